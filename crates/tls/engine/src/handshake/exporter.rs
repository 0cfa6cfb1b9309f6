//! Keying material for the application, derived from a connection's secrets (RFC 5705, RFC 8446 §7.5).

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use rustls::crypto::tls13::{HkdfExpander, OkmBlock, OutputLengthError};
use rustls::{SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite};
use zeroize::Zeroizing;

use crate::call_scope::{Facts, Subject};
use crate::messages::content_type::HANDSHAKE;
use crate::messages::handshake_type::SERVER_HELLO;
use crate::secrets::Secret;

const RANDOM_LEN: usize = 32;
/// Labels that TLS 1.2 uses itself (RFC 5705 §4).
const RESERVED: [&[u8]; 5] = [
    b"client finished",
    b"server finished",
    b"master secret",
    b"extended master secret",
    b"key expansion",
];
/// TLS 1.3 adds a prefix of six bytes to a label and stores its length in one byte.
const LABEL_MAX: usize = 249;

/// Exports keying material of one connection. It holds a secret, which it wipes when dropped, and does not
/// depend on the connection's lifetime.
pub struct Exporter {
    suite: SupportedCipherSuite,
    source: Box<ExporterSource>,
}

/// What a handshake collects for its exporter, if its context has one.
#[derive(Default)]
pub(crate) struct Exporting(pub(crate) Option<Box<ExporterSource>>);

impl Facts for Exporting {
    const SUBJECT: Subject = Subject::Exporter;
}

/// The secrets that a handshake collects for its exporter.
pub(crate) struct ExporterSource {
    /// TLS 1.3: exporter_master_secret. TLS 1.2: the master secret.
    pub(crate) secret: Secret,
    pub(crate) client_random: [u8; RANDOM_LEN],
    pub(crate) server_random: Option<[u8; RANDOM_LEN]>,
}

impl ExporterSource {
    pub(crate) fn new() -> Box<ExporterSource> {
        Box::new(ExporterSource {
            secret: Secret::empty(),
            client_random: [0; RANDOM_LEN],
            server_random: None,
        })
    }

    /// Stores a secret from rustls' key log, if it is the one that the exporter needs.
    pub(crate) fn note_secret(&mut self, label: &str, client_random: &[u8], secret: &[u8]) {
        if matches!(label, EXPORTER_SECRET | TLS12_MASTER_SECRET)
            && let Ok(random) = client_random.try_into()
        {
            self.client_random = random;
            self.secret.write(secret);
        }
    }

    /// Stores the server random, if the record starts with a ServerHello. Only TLS 1.2 needs it, where it is in
    /// the server's first record.
    pub(crate) fn note_first_record(&mut self, record: &[u8]) {
        // Record header (5), message header (4), version (2).
        const RANDOM_AT: usize = 11;
        if let (None, [HANDSHAKE, 3, _, _, _, SERVER_HELLO, ..]) = (self.server_random, record) {
            let random = record.get(RANDOM_AT..RANDOM_AT + RANDOM_LEN);
            self.server_random = random.and_then(|random| random.try_into().ok());
        }
    }
}

pub(crate) const EXPORTER_SECRET: &str = "EXPORTER_SECRET";
pub(crate) const TLS12_MASTER_SECRET: &str = "CLIENT_RANDOM";

/// Why keying material cannot be exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExportError {
    /// The requested length is zero, or more than the derivation can produce.
    Length(usize),
    /// The label is longer than 249 bytes, or used by TLS itself (RFC 5705 §4).
    Label,
    /// The context is longer than 65,535 bytes.
    Context(usize),
}

impl Exporter {
    /// Returns `None` if the source lacks a secret that this suite needs.
    pub(crate) fn new(
        suite: SupportedCipherSuite,
        source: Box<ExporterSource>,
    ) -> Option<Exporter> {
        let whole = !source.secret.bytes().is_empty()
            && (suite.tls13().is_some() || source.server_random.is_some());
        whole.then_some(Exporter { suite, source })
    }

    /// Fills `output`, 1 to 8,160 bytes (255 blocks of SHA-256). Both ends of the connection get the same bytes
    /// for the same label, context and length.
    ///
    /// In TLS 1.3 an empty context equals no context; in TLS 1.2 it does not.
    pub fn export(
        &self,
        label: &[u8],
        context: Option<&[u8]>,
        output: &mut [u8],
    ) -> Result<(), ExportError> {
        if output.is_empty() || output.len() > OUTPUT_MAX {
            return Err(ExportError::Length(output.len()));
        }
        if label.is_empty() || label.len() > LABEL_MAX || RESERVED.contains(&label) {
            return Err(ExportError::Label);
        }
        if let Some(context) = context.filter(|context| context.len() > u16::MAX.into()) {
            return Err(ExportError::Context(context.len()));
        }
        match self.suite {
            SupportedCipherSuite::Tls13(suite) => self.export_tls13(suite, label, context, output),
            SupportedCipherSuite::Tls12(suite) => {
                self.export_tls12(suite, label, context, output);
                Ok(())
            }
        }
    }

    /// RFC 8446 §7.5: "TLS-Exporter(label, context_value, key_length) = HKDF-Expand-Label(
    /// Derive-Secret(Secret, label, ""), "exporter", Hash(context_value), key_length)".
    fn export_tls13(
        &self,
        suite: &Tls13CipherSuite,
        label: &[u8],
        context: Option<&[u8]>,
        output: &mut [u8],
    ) -> Result<(), ExportError> {
        let hash = suite.common.hash_provider;
        let mut derived = Zeroizing::new(vec![0; hash.output_len()]);
        let (nothing, context) = (hash.hash(&[]), hash.hash(context.unwrap_or_default()));
        let len = output.len();
        let secret = self.source.secret.bytes();
        let expand = |secret: &[u8]| suite.hkdf_provider.expander_for_okm(&OkmBlock::new(secret));
        expand_label(&*expand(secret), label, nothing.as_ref(), &mut derived)
            .and_then(|()| expand_label(&*expand(&derived), b"exporter", context.as_ref(), output))
            .map_err(|_| ExportError::Length(len))
    }

    /// RFC 5705 §4: "PRF(SecurityParameters.master_secret, label, SecurityParameters.client_random +
    /// SecurityParameters.server_random + context_value_length + context_value)".
    fn export_tls12(
        &self,
        suite: &Tls12CipherSuite,
        label: &[u8],
        context: Option<&[u8]>,
        output: &mut [u8],
    ) {
        let mut seed = self.source.client_random.to_vec();
        seed.extend_from_slice(&self.source.server_random.unwrap_or_default());
        if let Some(context) = context {
            seed.extend_from_slice(&(context.len() as u16).to_be_bytes());
            seed.extend_from_slice(context);
        }
        let secret = self.source.secret.bytes();
        suite.prf_provider.for_secret(output, secret, label, &seed);
    }
}

/// HKDF-Expand produces up to 255 blocks (RFC 5869 §2.3); the shortest hash in use has 32 bytes.
const OUTPUT_MAX: usize = 255 * 32;

/// HKDF-Expand-Label (RFC 8446 §7.1).
fn expand_label(
    expander: &dyn HkdfExpander,
    label: &[u8],
    context: &[u8],
    output: &mut [u8],
) -> Result<(), OutputLengthError> {
    const PREFIX: &[u8] = b"tls13 ";
    let length = (output.len() as u16).to_be_bytes();
    let label_len = [(PREFIX.len() + label.len()) as u8];
    let context_len = [context.len() as u8];
    let info: [&[u8]; 6] = [&length, &label_len, PREFIX, label, &context_len, context];
    expander.expand_slice(&info, output)
}

/// Equal if both belong to the same connection.
impl PartialEq for Exporter {
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (&self.source, &other.source);
        one.client_random == other.client_random
            && verify_slices_are_equal(one.secret.bytes(), other.secret.bytes()).is_ok()
    }
}

impl Eq for Exporter {}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exporter(..)")
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => write!(
                f,
                "{len} bytes of keying material were requested; 1 to {OUTPUT_MAX} can be exported"
            ),
            Self::Label => write!(
                f,
                "the label is empty, longer than {LABEL_MAX} bytes, or used by TLS itself (RFC 5705 §4)"
            ),
            Self::Context(len) => write!(
                f,
                "a context of {len} bytes is too long; the limit is 65535"
            ),
        }
    }
}

impl std::error::Error for ExportError {}
