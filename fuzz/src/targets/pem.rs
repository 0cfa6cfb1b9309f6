//! PEM: certificates, keys, authorities and revocation lists.

use dormouse_engine::{Identity, PemFile, TrustStore};

use super::choice;

/// PEM files with certificates and keys, separate or together.
pub(crate) fn run(data: &[u8]) {
    let (how, rest) = choice(data);
    let (certificate, key) = match how {
        0 => (rest, rest),
        _ => super::cut(data),
    };
    let _ = TrustStore::from_pem(certificate);
    if let Err(error) = Identity::from_pem(certificate, key, "a.pem", "a.key") {
        assert!(!error.to_string().is_empty());
    }
    let file = PemFile::of(certificate, "a.pem");
    if let Ok(chain) = file.chain() {
        // The key is in no text that is passed on as public, and the text is read again as it was read.
        assert!(!chain.contains("PRIVATE KEY"), "{chain}");
        let again = PemFile::of(chain.as_bytes(), "a.pem").chain();
        assert_eq!(again.as_deref(), Ok(&*chain));
    }
    if let Ok(lists) = file.revocation_lists() {
        let again = PemFile::of(lists.as_bytes(), "a.pem").revocation_lists();
        assert_eq!(again, Ok(lists));
    }
    openssl::compare(certificate);
}

/// OpenSSL's reader, beside ours: in a process of its own, because no crate of the workspace links another library for
/// cryptography.
mod openssl {
    use dormouse_engine::fuzzed;
    use std::cell::RefCell;
    use std::io::{Read, Write as _};
    use std::process::{Child, Command, Stdio};

    thread_local! {
        /// `fuzz/openssl/sections`, if the variable names it.
        static READER: RefCell<Option<Child>> = RefCell::new(start());
    }

    fn start() -> Option<Child> {
        let program = std::env::var_os("FUZZ_OPENSSL")?;
        let child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Some(child.expect("FUZZ_OPENSSL is a program"))
    }

    /// Checks that a text which we read has everything that OpenSSL reads, in its order.
    pub(super) fn compare(text: &[u8]) {
        let Some(ours) = fuzzed::pem_sections(text) else {
            return;
        };
        READER.with_borrow_mut(|reader| {
            let Some(reader) = reader else {
                return;
            };
            let mut ours = ours.iter();
            for (label, content) in ask(reader, text).expect("OpenSSL answers") {
                let kind = fuzzed::pem_kind(&label).expect("a label that we know, too");
                let theirs = (kind, content);
                assert!(
                    ours.any(|own| *own == theirs),
                    "OpenSSL reads more:\n{}",
                    text.escape_ascii()
                );
            }
        });
    }

    type Labelled = (Vec<u8>, Vec<u8>);

    fn ask(reader: &mut Child, text: &[u8]) -> Option<Vec<Labelled>> {
        let (input, output) = (reader.stdin.as_mut()?, reader.stdout.as_mut()?);
        let len = u32::try_from(text.len()).ok()?;
        input.write_all(&len.to_ne_bytes()).ok()?;
        input.write_all(text).ok()?;
        input.flush().ok()?;
        let count = number(output)?;
        (0..count)
            .map(|_| Some((part(output)?, part(output)?)))
            .collect()
    }

    fn number(output: &mut impl Read) -> Option<u32> {
        let mut bytes = [0; 4];
        output.read_exact(&mut bytes).ok()?;
        Some(u32::from_ne_bytes(bytes))
    }

    fn part(output: &mut impl Read) -> Option<Vec<u8>> {
        let mut part = vec![0; number(output)? as usize];
        output.read_exact(&mut part).ok()?;
        Some(part)
    }
}
