//! Parsers of untrusted bytes, exported for `fuzz/` only; not a public interface.

use crate::ClientRule;
use crate::handshake::record_assembly::RecordAssembler;
use crate::handshake::record_rules::{HeaderRules, Reading};
use crate::sessions::server_session::Session;
use crate::x509::{client_auth, client_rules};
use rustls_pki_types::CertificateDer;

/// Splits the pieces of a peer's stream into records, in the situation that `how` chooses: the protection of the
/// records, our role, and whether early data is skipped. Returns the records, the number of bytes taken including a
/// partial record, and whether the next record was refused.
pub fn records(how: u8, pieces: &[&[u8]]) -> (Vec<Vec<u8>>, usize, bool) {
    let reading = match how & 3 {
        0 => Reading::Clear,
        1 => Reading::Tls12Keyed,
        2 => Reading::Tls12,
        _ => Reading::Tls13,
    };
    let mut assembler = RecordAssembler::default();
    let mut records = Vec::new();
    for mut piece in pieces.iter().copied() {
        loop {
            let rules = HeaderRules {
                reading,
                is_server: how & 4 == 0,
                is_first: records.is_empty(),
                skips_early_data: how & 8 != 0,
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
