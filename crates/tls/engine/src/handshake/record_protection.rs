//! Our part in the protection of handshake records (RFC 8446 §5.2).
//!
//! rustls seals and opens records with objects of the provider's suites. They are wrapped here for two things
//! that rustls does not do:
//!
//! - *Records of our own*, alerts and tickets (`sessions::ticket_messages`), are sealed after those of rustls
//!   ([`RecordSealer`]).
//! - *Content checks.* The content of a protected record is checked ([`record_rules`]) before rustls sees it.

use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, KeyBlockShape, MessageDecrypter,
    MessageEncrypter, Tls12AeadAlgorithm, Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::{ConnectionTrafficSecrets, Error};

use super::record_rules::{self, Reading, RecordRefusal};
use super::record_sealer::RecordSealer;
use crate::call_scope::{Facts, Subject, in_scope};

/// What the protection of records has to do with a handshake.
#[derive(Default)]
pub(crate) struct Protection {
    /// Seals records to the peer once there are keys.
    pub(crate) sealer: Option<RecordSealer>,
    /// The current protection of the peer's records.
    pub(crate) reading: Reading,
    /// A refusal caused by the content of a protected record; it ends the handshake.
    pub(crate) refused: Option<RecordRefusal>,
    /// The last protected record could not be decrypted.
    pub(crate) is_skipped: bool,
}

impl Facts for Protection {
    const SUBJECT: Subject = Subject::Protection;
}

/// Opens the peer's records, and refuses content that is not allowed in a handshake.
struct RecordOpener(Box<dyn MessageDecrypter>);

impl MessageDecrypter for RecordOpener {
    fn decrypt<'a>(
        &mut self,
        record: InboundOpaqueMessage<'a>,
        sequence: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let opened = self.0.decrypt(record, sequence);
        // If this is no error for rustls, it skips the record as early data that it has rejected.
        in_scope(|own: &mut Protection| own.is_skipped = opened.is_err());
        let opened = opened?;
        match record_rules::judge_content(opened.typ.into(), opened.payload) {
            Ok(()) => Ok(opened),
            Err(refusal) => {
                in_scope(|own: &mut Protection| own.refused = Some(refusal));
                Err(Error::General("a record was refused".to_owned()))
            }
        }
    }
}

fn seals_with(cipher: Box<dyn MessageEncrypter>, is_active: bool) -> Box<dyn MessageEncrypter> {
    let sealer = RecordSealer::new(cipher, is_active);
    in_scope(|own: &mut Protection| own.sealer = Some(sealer.clone()));
    Box::new(sealer)
}

fn opens_with(cipher: Box<dyn MessageDecrypter>, reading: Reading) -> Box<dyn MessageDecrypter> {
    in_scope(|own: &mut Protection| own.reading = reading);
    Box::new(RecordOpener(cipher))
}

/// The algorithm of a TLS 1.3 suite. Its keys are in use from the start.
pub(super) struct ScopedTls13Aead(pub(super) &'static dyn Tls13AeadAlgorithm);

impl Tls13AeadAlgorithm for ScopedTls13Aead {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        seals_with(self.0.encrypter(key, iv), true)
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        opens_with(self.0.decrypter(key, iv), Reading::Tls13)
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

/// The algorithm of a TLS 1.2 suite. Its keys are in use after ChangeCipherSpec.
pub(super) struct ScopedTls12Aead(pub(super) &'static dyn Tls12AeadAlgorithm);

impl Tls12AeadAlgorithm for ScopedTls12Aead {
    fn encrypter(&self, key: AeadKey, iv: &[u8], extra: &[u8]) -> Box<dyn MessageEncrypter> {
        seals_with(self.0.encrypter(key, iv, extra), false)
    }

    fn decrypter(&self, key: AeadKey, iv: &[u8]) -> Box<dyn MessageDecrypter> {
        opens_with(self.0.decrypter(key, iv), Reading::Tls12Keyed)
    }

    fn key_block_shape(&self) -> KeyBlockShape {
        self.0.key_block_shape()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: &[u8],
        explicit: &[u8],
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv, explicit)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}
