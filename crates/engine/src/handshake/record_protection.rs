//! The protection of a handshake's records (RFC 8446 §5.2), where this crate takes part in it.
//!
//! rustls seals and opens with objects of the provider's suites. They are wrapped here, for what
//! rustls does not do:
//!
//! - *Alerts.* An alert that rustls asks for stays unprotected and unsent: the handshake judges the
//!   failure first, then [`RecordSealer::seal`] protects the alert that goes out. So every failure
//!   has an alert, and it is known which.
//! - *Tickets.* NewSessionTicket messages are ours (`sessions::tickets::issue`), and sealed here.
//! - *Content.* What a protected record holds is judged ([`record_rules`]) before rustls sees it.
//!
//! Invariant: a sequence number is used for one record. rustls counts its records by itself, and
//! has sealed its last one when [`RecordSealer::seal`] is called: the handshake has failed or is
//! done.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, KeyBlockShape, MessageDecrypter,
    MessageEncrypter, OutboundChunks, OutboundOpaqueMessage, OutboundPlainMessage, PrefixedPayload,
    Tls12AeadAlgorithm, Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::{ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion};

use super::call_scope::in_scope;
use super::record_rules::{self, Reading};

/// Seals the records of one connection's handshake; shared by rustls and the call's scope.
#[derive(Clone)]
pub(crate) struct RecordSealer(Arc<Mutex<Sealing>>);

struct Sealing {
    cipher: Box<dyn MessageEncrypter>,
    next_sequence: u64,
    is_active: bool,
}

impl RecordSealer {
    /// `is_active`: the next record is already protected. In TLS 1.2 the first one behind
    /// ChangeCipherSpec is.
    fn new(cipher: Box<dyn MessageEncrypter>, is_active: bool) -> RecordSealer {
        RecordSealer(Arc::new(Mutex::new(Sealing {
            cipher,
            next_sequence: 0,
            is_active,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Sealing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether records to the peer are protected by now.
    pub(crate) fn is_active(&self) -> bool {
        self.lock().is_active
    }

    /// Seals a record of our own. `None`: the cryptographic library refuses.
    pub(crate) fn seal(&self, typ: ContentType, content: &[u8]) -> Option<Vec<u8>> {
        let mut sealing = self.lock();
        let sequence = sealing.next_sequence;
        sealing.next_sequence = sequence.checked_add(1)?;
        let message = OutboundPlainMessage {
            typ,
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(content),
        };
        let sealed = sealing.cipher.encrypt(message, sequence).ok()?;
        Some(sealed.encode())
    }

    /// The sequence number of the next record to the peer.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.lock().next_sequence
    }
}

impl MessageEncrypter for RecordSealer {
    fn encrypt(
        &mut self,
        message: OutboundPlainMessage<'_>,
        sequence: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        let mut sealing = self.lock();
        sealing.is_active = true;
        sealing.next_sequence = sequence;
        if message.typ == ContentType::Alert {
            let content = PrefixedPayload::from(&message.payload.to_vec()[..]);
            let (typ, version) = (message.typ, message.version);
            return Ok(OutboundOpaqueMessage::new(typ, version, content));
        }
        sealing.next_sequence += 1;
        sealing.cipher.encrypt(message, sequence)
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        self.lock().cipher.encrypted_payload_len(payload_len)
    }
}

/// Opens the peer's records, and refuses content which has no place in a handshake.
struct RecordOpener(Box<dyn MessageDecrypter>);

impl MessageDecrypter for RecordOpener {
    fn decrypt<'a>(
        &mut self,
        record: InboundOpaqueMessage<'a>,
        sequence: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let opened = self.0.decrypt(record, sequence)?;
        match record_rules::judge_content(opened.typ.into(), opened.payload) {
            Ok(()) => Ok(opened),
            Err(refusal) => {
                in_scope(|scope| scope.refused = Some(refusal));
                Err(Error::General("a record was refused".to_owned()))
            }
        }
    }
}

fn seals_with(cipher: Box<dyn MessageEncrypter>, is_active: bool) -> Box<dyn MessageEncrypter> {
    let sealer = RecordSealer::new(cipher, is_active);
    in_scope(|scope| scope.sealer = Some(sealer.clone()));
    Box::new(sealer)
}

fn opens_with(cipher: Box<dyn MessageDecrypter>, reading: Reading) -> Box<dyn MessageDecrypter> {
    in_scope(|scope| scope.reading = reading);
    Box::new(RecordOpener(cipher))
}

/// The algorithm of a TLS 1.3 suite. Its keys are in use as soon as they are made.
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

/// The algorithm of a TLS 1.2 suite. Its keys are in use from ChangeCipherSpec on.
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
