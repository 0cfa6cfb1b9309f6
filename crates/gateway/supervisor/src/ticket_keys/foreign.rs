//! Key files in the formats of nginx and HAProxy.
//!
//! nginx (`ssl_session_ticket_key`): a file is one key of 48 or 80 bytes; of several files, the first
//! key encrypts, and all keys decrypt. HAProxy (`tls-ticket-keys`): a file has one line of base64 per key;
//! the last three are used, and the last but one encrypts.

use dormouse_engine::{TicketKeyBytes, TicketKeyFile, TicketKeyFileError, TicketKeys};
use dormouse_helpers::fleet::FILE_BYTES_MAX;
use dormouse_helpers::private_file::read_private;
use std::path::{Path, PathBuf};

/// Reads the keys. Each error is a line of its own.
pub(super) fn read(paths: &[PathBuf]) -> Result<TicketKeys, Vec<String>> {
    let mut files = Vec::new();
    let mut mistakes = Vec::new();
    for path in paths {
        match read_file(path) {
            Ok(keys) => files.push(keys),
            Err(why) => mistakes.push(why),
        }
    }
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let (keys, sealing): (Vec<&TicketKeyBytes>, usize) = match files.as_slice() {
        [only] => {
            let (keys, sealing) = only.keys();
            (keys.iter().collect(), sealing)
        }
        all => {
            let mut keys = Vec::new();
            for (file, path) in all.iter().zip(paths) {
                match file {
                    TicketKeyFile::One(key) => keys.push(key),
                    TicketKeyFile::Lines(_) => {
                        return Err(vec![format!(
                            "{}: a file with one key per line must be the only file; several files need one key of 48 or 80 bytes each",
                            path.display()
                        )]);
                    }
                }
            }
            (keys, 0)
        }
    };
    if keys.len() > TicketKeys::MAX {
        return Err(vec![format!(
            "{} ticket keys, but at most {} are allowed; leave out the oldest",
            keys.len(),
            TicketKeys::MAX
        )]);
    }
    let keys: Vec<&[u8]> = keys.into_iter().map(|key| key.as_slice()).collect();
    TicketKeys::fixed(&keys, sealing).map_err(|e| vec![e.to_string()])
}

fn read_file(path: &Path) -> Result<TicketKeyFile, String> {
    let shown = path.display();
    let mend = format!("create a key: (umask 077; openssl rand 80 > {shown})");
    let Some(bytes) = read_private(path, FILE_BYTES_MAX)? else {
        return Err(format!(
            "{shown}: no such file\n  {mend}\n  or add ticket_secret_file, and dormouse keeps its own keys there"
        ));
    };
    if TicketKeys::looks_sealed(&bytes) {
        return Err(format!(
            "{shown}: these are dormouse's own encrypted keys: add ticket_secret_file, and name no other file"
        ));
    }
    TicketKeyFile::parse(&bytes).map_err(|problem| match problem {
        TicketKeyFileError::Line(..) => {
            format!("{shown}: {problem}\n  create a key: openssl rand -base64 -A 80")
        }
        _ => format!("{shown}: {problem}\n  {mend}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn file(folder: &Path, name: &str, contents: &[u8]) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, contents).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed");
        path
    }

    #[test]
    fn keys_are_read_as_nginx_and_haproxy_read_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let one = file(folder.path(), "48.key", &[200; 48]);
        let two = file(folder.path(), "80.key", &[201; 80]);
        let expected = TicketKeys::fixed(&[&[200; 48], &[201; 80]], 0).expect("valid keys");
        let read_both = read(&[one.clone(), two]).expect("read");
        assert_eq!(*read_both.export(), *expected.export());

        // 48 bytes of 'A' in base64 is 64 characters.
        let line = |c: char| c.to_string().repeat(64);
        let text = format!(
            "{}\n{}\n\n{}\n{}\n",
            line('A'),
            line('B'),
            line('C'),
            line('D')
        );
        let lines = file(folder.path(), "haproxy.keys", text.as_bytes());
        let expected = TicketKeys::from_file(text.as_bytes(), &[]).expect("valid keys");
        let alone = read(std::slice::from_ref(&lines)).expect("read");
        assert_eq!(*alone.export(), *expected.export());
        assert!(read(&[one, lines]).is_err());
    }

    #[test]
    fn a_key_of_wrong_size_is_rejected_with_a_remedy() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, contents, says) in [
            ("47.key", &[200; 47][..], "the file has 47 bytes"),
            ("empty.key", &[][..], "the file has 0 bytes"),
            ("lines.key", b"Zm9v\n", "line 1 is a key of 3 bytes"),
        ] {
            let path = file(folder.path(), name, contents);
            let why = read(&[path]).expect_err("refused").join("\n");
            assert!(why.contains(says) && why.contains("openssl rand"), "{why}");
        }
        let missing = read(&[folder.path().join("none")]).expect_err("refused");
        assert!(missing[0].contains("no such file"), "{missing:?}");
        let path = file(folder.path(), "open.key", &[200; 80]);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("changed");
        let open = read(&[path]).expect_err("refused");
        assert!(open[0].contains("chmod 600"), "{open:?}");
    }
}
