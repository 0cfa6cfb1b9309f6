//! Parsers of this crate that take strangers' bytes, for `fuzz/` alone: no interface.

use crate::ClientRule;
use crate::handshake::record_assembly::RecordAssembler;
use crate::handshake::record_rules::{HeaderRules, Reading};
use crate::sessions::server_session::Session;
use crate::x509::{client_auth, client_rules};
use rustls_pki_types::CertificateDer;

/// Cuts the pieces of a client's stream into records before there are keys. Returns these, how many bytes
/// they and the beginning of another one have, and whether the next was refused.
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

/// Reads a session out of a ticket or a cache.
pub fn is_server_session(bytes: &[u8]) -> bool {
    Session::read(bytes).is_some()
}

/// What a client's certificate says of its owner: for the log, and the common name.
pub fn names(certificate: &[u8]) -> (Option<String>, Option<String>) {
    client_auth::names(&CertificateDer::from(certificate))
}

/// Judges a certificate by rules. The error is for the log.
///
/// # Errors
/// No rule fits.
pub fn allow(rules: &[ClientRule], certificate: &[u8]) -> Result<(), String> {
    client_rules::allow(rules, certificate)
}
