//! Ticket key files: Dormouse's own, and those of nginx and HAProxy.
//!
//! nginx (`ssl_session_ticket_key`): a file is one key of 48 or 80 bytes. HAProxy (`tls-ticket-keys`): a file
//! has one base64 key per line; the last three lines are used, and the second to last seals.

use std::fmt;

use base64::prelude::*;
use zeroize::Zeroizing;

use super::keys::TicketKeys;
use crate::settings_error::SettingsError;

/// Number of lines that HAProxy uses (TLS_TICKETS_NO).
const HAPROXY_KEYS: usize = 3;

/// A key of 48 or 80 bytes.
pub type TicketKeyBytes = Zeroizing<Vec<u8>>;

/// Contents of a key file in the format of another program.
pub enum TicketKeyFile {
    /// One key.
    One(TicketKeyBytes),
    /// A key on each line.
    Lines(Vec<TicketKeyBytes>),
}

/// A problem with a key file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TicketKeyFileError {
    /// A line, counted from 1, whose key has the wrong length in bytes.
    Line(usize, usize),
    /// A file of this many bytes, which is neither a key nor lines of keys.
    Neither(usize),
    /// Sealed keys that the secret does not open, or no secret.
    Sealed,
    /// Too many keys.
    Settings(SettingsError),
}

impl TicketKeyFile {
    /// Parses the contents of a file.
    pub fn parse(contents: &[u8]) -> Result<TicketKeyFile, TicketKeyFileError> {
        let is_key = |len: usize| matches!(len, 48 | 80);
        match lines(contents) {
            None if is_key(contents.len()) => {
                Ok(TicketKeyFile::One(Zeroizing::new(contents.to_vec())))
            }
            None => Err(TicketKeyFileError::Neither(contents.len())),
            Some(keys) => match keys.iter().position(|key| !is_key(key.len())) {
                None => Ok(TicketKeyFile::Lines(keys)),
                Some(at) => {
                    let len = keys.get(at).map_or(0, |key| key.len());
                    Err(TicketKeyFileError::Line(at + 1, len))
                }
            },
        }
    }

    /// Returns the keys in use, and the index of the sealing key.
    pub fn keys(&self) -> (&[TicketKeyBytes], usize) {
        match self {
            TicketKeyFile::One(key) => (std::slice::from_ref(key), 0),
            TicketKeyFile::Lines(keys) => {
                let first = keys.len().saturating_sub(HAPROXY_KEYS);
                let last = keys.get(first..).unwrap_or_default();
                (last, last.len().saturating_sub(2))
            }
        }
    }
}

impl TicketKeys {
    /// Reads keys from one file of another program: sealed with `secret`, or in the format of nginx or HAProxy. White
    /// space around the secret is ignored, as `dormouse serve` does.
    ///
    /// Sealed keys rotate, and their owner writes a new file each time: read it again, at least once in each period. A
    /// context that has missed a whole period makes no more tickets, and after another one it opens none.
    pub fn from_file(contents: &[u8], secret: &[u8]) -> Result<TicketKeys, TicketKeyFileError> {
        if TicketKeys::looks_sealed(contents) {
            let keys = TicketKeys::unseal(contents, secret.trim_ascii());
            let mut keys = keys.map_err(|_| TicketKeyFileError::Sealed)?;
            keys.is_copy = true;
            return Ok(keys);
        }
        let file = TicketKeyFile::parse(contents)?;
        let (keys, sealing) = file.keys();
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_slice()).collect();
        TicketKeys::fixed(&keys, sealing).map_err(TicketKeyFileError::Settings)
    }
}

/// Reads one base64 key per line; `None` if these are not base64 lines.
fn lines(bytes: &[u8]) -> Option<Vec<TicketKeyBytes>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let lines: Option<Vec<TicketKeyBytes>> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(key)
        .collect();
    lines.filter(|lines| !lines.is_empty())
}

/// Decodes base64 (RFC 4648 §4).
fn key(line: &str) -> Option<TicketKeyBytes> {
    // With room for all, so that no copy of a key is left behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(base64::decoded_len_estimate(line.len())));
    BASE64_STANDARD.decode_vec(line, &mut bytes).ok()?;
    Some(bytes)
}

impl fmt::Debug for TicketKeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKeyFile")
    }
}

impl fmt::Display for TicketKeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line, len) => {
                write!(f, "line {line} is a key of {len} bytes; a key must have 48 or 80 bytes")
            }
            Self::Neither(len) => write!(
                f,
                "the file has {len} bytes; a ticket key file is one key of 48 or 80 bytes, or one base64 key per line"
            ),
            Self::Sealed => f.write_str(
                "the ticket keys are sealed, and the secret does not open them; pass the contents of ticket_secret_file",
            ),
            Self::Settings(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TicketKeyFileError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_follows_the_rfc() {
        for (text, bytes) in [
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
        ] {
            assert_eq!(key(text).unwrap().as_slice(), bytes.as_bytes());
        }
        for wrong in ["Z", "Zg=", "Z===", "Zm9v-", "Zm 9"] {
            assert!(key(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn key_files_are_read_as_their_program_reads_them() {
        let one = TicketKeys::from_file(&[200; 48], &[]).unwrap();
        let expected = TicketKeys::fixed(&[&[200; 48]], 0).unwrap();
        assert_eq!(*one.export(), *expected.export());

        // 48 bytes in base64 are 64 characters.
        let line = |c: char| c.to_string().repeat(64);
        let text = ['A', 'B', 'C', 'D'].map(line).join("\n\n");
        let lines = TicketKeys::from_file(text.as_bytes(), &[]).unwrap();
        let [b, c, d] = ['B', 'C', 'D'].map(|c| key(&line(c)).unwrap());
        let expected = TicketKeys::fixed(&[&b, &c, &d], 1).unwrap();
        assert_eq!(*lines.export(), *expected.export());

        let secret = [7; 32];
        let sealed = expected.seal(&secret).unwrap();
        let opened = TicketKeys::from_file(&sealed, &secret).unwrap();
        assert_eq!(*opened.export(), *expected.export());
        // A secret that `openssl rand -hex 32 > FILE` has written.
        let [line, trimmed] = [
            &b"0123456789abcdef0123456789abcdef\n"[..],
            b"0123456789abcdef0123456789abcdef",
        ];
        let sealed_by_serve = expected.seal(trimmed).unwrap();
        for secret in [line, trimmed] {
            let opened = TicketKeys::from_file(&sealed_by_serve, secret).unwrap();
            assert_eq!(*opened.export(), *expected.export());
        }
        for wrong in [&[][..], &[8; 32]] {
            let error = TicketKeys::from_file(&sealed, wrong)
                .map(|_| ())
                .unwrap_err();
            assert_eq!(error, TicketKeyFileError::Sealed);
        }
        for (contents, expected) in [
            (&[200; 47][..], TicketKeyFileError::Neither(47)),
            (&[], TicketKeyFileError::Neither(0)),
            (b"Zm9v\n", TicketKeyFileError::Line(1, 3)),
        ] {
            let error = TicketKeys::from_file(contents, &[])
                .map(|_| ())
                .unwrap_err();
            assert_eq!(error, expected);
        }
    }
}
