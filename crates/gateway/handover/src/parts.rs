//! A memory file in six parts, so that each process reads only what it needs:
//!
//! | part | format | read by |
//! |---|---|---|
//! | keeper's part: log, names, bounds | JSON | keeper |
//! | configuration without routes, numbers of descriptors | JSON | worker |
//! | keys of originations' certificates, ticket keys | bytes | worker |
//! | digests and places of routes, certificates and revocation lists ([`stored`](crate::stored)) | bytes | worker |
//! | certificates with their private keys | bytes | worker, a few at a time |
//! | routes; revocation lists | JSON; text | worker, a few at a time |
//!
//! A keeper never has the secrets in its memory, except while it copies them for an upgrade: it reads the first part with
//! `pread` and maps nothing. Main's own state and the scout's task use the same format.

use dormouse_reactor::Fd;
use dormouse_reactor::memory::{create_unchangeable, read_at};
use std::io;
use zeroize::Zeroizing;

/// Version of the parts and their order. JSON may gain fields without a new version.
pub(crate) const HANDOVER_VERSION: u64 = 6;

const MAGIC: u64 = u64::from_le_bytes(*b"dm-hndvr");
/// Number of parts.
const PARTS: usize = 6;
const HEAD_BYTES: usize = 8 * (2 + PARTS);
/// Maximum length of a part, so that a damaged head can't make the reader allocate all memory.
const PART_BYTES_MAX: usize = 256 << 20;
/// Maximum length of all certificates and revocation lists. JSON writes each line break of an authority as two bytes, and the
/// configuration is in the same part.
pub const MATERIAL_BYTES_MAX: usize = PART_BYTES_MAX / 4 * 3;

/// Writes a text as the second part, for a process that can't read its source.
pub fn write_text(text: &str) -> io::Result<Fd> {
    write(&[], text.as_bytes(), &[])
}

/// Reads a text that [`write_text`] has written.
pub fn read_text(fd: Fd) -> io::Result<String> {
    let [_, text, ..] = locate(fd)?;
    String::from_utf8(read(fd, text)?.to_vec()).map_err(io::Error::other)
}

/// Joins secrets, each preceded by its length.
pub fn join_secrets(all: Vec<&[u8]>) -> Zeroizing<Vec<u8>> {
    // Allocated at full size: a growing vector would leave copies of secrets.
    let len = all.iter().map(|secret| 8 + secret.len()).sum();
    let mut bytes = Zeroizing::new(Vec::with_capacity(len));
    for secret in all {
        bytes.extend_from_slice(&(secret.len() as u64).to_le_bytes());
        bytes.extend_from_slice(secret);
    }
    bytes
}

/// Byte range of a part in the file.
pub type Part = std::ops::Range<usize>;

/// Writes the first three parts into a new memory file that can't be changed; the others are empty. Fails if a part is larger
/// than 256 MiB, or if the system has no memory.
pub fn write(keeper: &[u8], public: &[u8], secrets: &[u8]) -> io::Result<Fd> {
    write_all([keeper, public, secrets, &[], &[], &[]])
}

/// Writes all parts into a new memory file that can't be changed. Fails as [`write()`].
pub fn write_all(parts: [&[u8]; PARTS]) -> io::Result<Fd> {
    if parts.iter().any(|part| part.len() > PART_BYTES_MAX) {
        return Err(io::Error::other(
            "configuration or certificates are larger than 256 MiB",
        ));
    }
    let head: Vec<u8> = [MAGIC, HANDOVER_VERSION]
        .into_iter()
        .chain(parts.iter().map(|part| part.len() as u64))
        .flat_map(u64::to_le_bytes)
        .collect();
    let [a, b, c, d, e, f] = parts;
    create_unchangeable("dormouse-handover", &[&head, a, b, c, d, e, f])
}

/// Reads the ranges of the parts from the file's head. Fails if the file is not a handover, or has
/// another version.
pub fn locate(fd: Fd) -> io::Result<[Part; PARTS]> {
    let head = read_at(fd, 0, HEAD_BYTES)?;
    let word = |n: usize| {
        let bytes = head.get(8 * n..8 * n + 8).unwrap_or_default();
        u64::from_le_bytes(bytes.try_into().unwrap_or_default())
    };
    if word(0) != MAGIC || word(1) != HANDOVER_VERSION {
        return Err(io::Error::other(format!(
            "the handover has version {}; this build reads version {HANDOVER_VERSION}",
            word(1)
        )));
    }
    let mut start = HEAD_BYTES;
    let parts = [2, 3, 4, 5, 6, 7].map(|n| {
        let len = usize::try_from(word(n)).unwrap_or(usize::MAX);
        let part = start..start.saturating_add(len.min(PART_BYTES_MAX));
        start = part.end;
        part
    });
    Ok(parts)
}

/// Reads one part, into memory that is wiped on drop.
pub fn read(fd: Fd, part: Part) -> io::Result<Zeroizing<Vec<u8>>> {
    read_at(fd, part.start, part.len()).map(Zeroizing::new)
}

/// Takes the next secret, as written by [`join_secrets`], from `rest`. Fails if it is truncated.
pub fn take_secret<'a>(rest: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let cut_short = || io::Error::other("the secrets of the handover are truncated");
    let (len, behind) = rest.split_at_checked(8).ok_or_else(cut_short)?;
    let len = u64::from_le_bytes(len.try_into().unwrap_or_default());
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let (secret, behind) = behind.split_at_checked(len).ok_or_else(cut_short)?;
    *rest = behind;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_separately() {
        let parts: [&[u8]; 6] = [
            b"{}",
            b"[1,2]",
            b"secret",
            b"table",
            b"certificates",
            b"texts",
        ];
        let file = write_all(parts).expect("a memory file");
        let [keeper, public, secrets, table, certificates, texts] =
            locate(file).expect("six parts");
        assert_eq!(
            read(file, keeper).expect("for the keeper").as_slice(),
            b"{}"
        );
        assert_eq!(read(file, public).expect("public").as_slice(), b"[1,2]");
        assert_eq!(read(file, secrets).expect("secrets").as_slice(), b"secret");
        assert_eq!(read(file, table).expect("a table").as_slice(), b"table");
        let certificates = read(file, certificates).expect("certificates");
        assert_eq!(certificates.as_slice(), b"certificates");
        assert_eq!(read(file, texts).expect("texts").as_slice(), b"texts");
        file.close();
    }

    #[test]
    fn refuses_truncated_secrets() {
        let mut rest: &[u8] = &[3, 0, 0, 0, 0, 0, 0, 0, b'a', b'b', b'c', 9];
        assert_eq!(take_secret(&mut rest).expect("a secret"), b"abc");
        assert!(take_secret(&mut rest).is_err());
        let mut rest: &[u8] = &[255; 20];
        assert!(take_secret(&mut rest).is_err());
    }
}
