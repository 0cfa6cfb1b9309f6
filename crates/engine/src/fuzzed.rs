//! Parsers of untrusted bytes, exported for `fuzz/` only; not a public interface.

use crate::ClientRule;
use crate::handshake::record_assembly::RecordAssembler;
use crate::handshake::record_rules::{HeaderRules, Reading};
use crate::sessions::server_session::Session;
use crate::x509::{client_auth, client_rules};
use rustls_pki_types::CertificateDer;

/// Splits the pieces of a client's stream into records, before there are keys. Returns the records, the number
/// of bytes taken including a partial record, and whether the next record was refused.
pub fn records(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, usize, bool) {
    let mut assembler = RecordAssembler::default();
    let mut records = Vec::new();
    for mut piece in pieces.iter().copied() {
        loop {
            let rules = HeaderRules {
                reading: Reading::Clear,
                is_server: true,
                is_first: records.is_empty(),
                skips_early_data: false,
            };
            match assembler.complete_record(&mut piece, |header| rules.judge(header)) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return (records, assembler.taken(), true),
            }
            records.push(assembler.completed().to_vec());
            let shown = assembler.shown().len();
            assembler.discard(shown);
        }
    }
    (records, assembler.taken(), false)
}

/// Parses a session from a ticket or a cache.
pub fn is_server_session(bytes: &[u8]) -> bool {
    Session::read(bytes).is_some()
}

/// Returns the subject and common name of a client's certificate.
pub fn names(certificate: &[u8]) -> (Option<String>, Option<String>) {
    client_auth::names(&CertificateDer::from(certificate))
}

/// Checks a certificate against rules. The error is for the log.
///
/// # Errors
/// No rule matches.
pub fn allow(rules: &[ClientRule], certificate: &[u8]) -> Result<(), String> {
    client_rules::allow(rules, certificate)
}
