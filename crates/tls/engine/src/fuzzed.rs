//! Parsers of untrusted bytes, exported for `fuzz/` only; not a public interface.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::server::danger::ClientCertVerifier as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::ClientRule;
use crate::client_hello::key_share::ClientShare;
use crate::context::settings::{Group, provider};
use crate::handshake::record_assembly::RecordAssembler;
use crate::handshake::record_rules::{HeaderRules, Reading};
use crate::sessions::server_session::Session;
use crate::settings_error::SettingsError;
use crate::x509::client_auth::{self, ClientAuth, ClientCertificates};
use crate::x509::client_rules;
use crate::x509::path::needed;
use crate::x509::pem::contents;
use crate::x509::pem::kind::Kind;
use crate::x509::pem::sections;
use crate::x509::trust::Roots;

/// Predicts the X25519 share of a ClientHello for which a server with all groups needs an agreement. A share is part of
/// the hello.
pub fn x25519_share(first: &[u8]) -> Option<[u8; 32]> {
    let groups = Group::ALL.map(Group::id);
    ClientShare::of(first, &groups).map(|share| *share.bytes())
}

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

/// Returns the sections of a PEM text, each with the number of its kind. `None`: the text is refused.
pub fn pem_sections(text: &[u8]) -> Option<Vec<(u8, Vec<u8>)>> {
    let sections = sections::sections(text).ok()?.into_iter();
    let sections = sections.map(|section| (section.kind as u8, section.der.to_vec()));
    Some(sections.collect())
}

/// Returns the number of the kind of sections with this label.
pub fn pem_kind(label: &[u8]) -> Option<u8> {
    Kind::of(label).ok().map(|kind| kind as u8)
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
    client_rules::allow(rules, certificate).map(drop)
}

/// Both verifiers, with the same roots.
pub struct Verifiers {
    roots: RootCertStore,
    server: Arc<dyn ServerCertVerifier>,
    client: ClientAuth,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The verification of a peer's certificates.
pub struct Verification {
    /// The number of certificates that the library searches, of steps that its search can take, and of signatures that
    /// were verified before it. `None` if the search would take too many steps.
    pub work: Option<(usize, usize, usize)>,
    /// Whether they are accepted as those of the server `localhost`, and as those of a client.
    pub accepted: [bool; 2],
}

impl Verifiers {
    /// Returns verifiers that trust the authorities in a PEM bundle.
    ///
    /// # Errors
    /// The bundle contains something else.
    pub fn new(bundle: &str) -> Result<Verifiers, SettingsError> {
        let provider = provider(&Group::ALL)?;
        let bundle = bundle.as_bytes().to_vec();
        let roots = contents::roots(&bundle, "");
        let (roots, _) =
            roots.map_err(|refused| SettingsError::Roots(contents::in_bundle(&refused)))?;
        let settings = ClientCertificates {
            required: true,
            roots: bundle.clone(),
            ..ClientCertificates::default()
        };
        Ok(Verifiers {
            roots,
            client: ClientAuth::new(&settings, None, &provider, None)?,
            server: Roots::Pem(bundle).verifier(&provider, None)?,
            algorithms: provider.signature_verification_algorithms,
        })
    }

    /// Verifies a peer's own certificate together with the others that it sent.
    pub fn verify(&self, own: &[u8], others: &[&[u8]], now: UnixTime) -> Verification {
        let own = CertificateDer::from(own);
        let others: Vec<_> = others
            .iter()
            .map(|&der| CertificateDer::from(der))
            .collect();
        let needed = needed(&own, &others, &self.roots, self.algorithms, now).ok();
        let name = ServerName::try_from("localhost").ok();
        let server = name.map(|name| {
            self.server
                .verify_server_cert(&own, &others, &name, &[], now)
                .is_ok()
        });
        let client = self.client.verify_client_cert(&own, &others, now).is_ok();
        Verification {
            work: needed.map(|needed| (needed.certificates.len(), needed.steps, needed.signatures)),
            accepted: [server == Some(true), client],
        }
    }
}
