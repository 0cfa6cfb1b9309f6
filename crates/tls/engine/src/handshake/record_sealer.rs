//! Seals the records of one connection's handshake: rustls' records, and ours after them.
//!
//! An alert that rustls emits stays unprotected and unsent. The handshake classifies the failure first, then
//! [`RecordSealer::seal`] protects the alert that is sent. So every failure has a known alert.
//!
//! Invariant: a sequence number is used for one record. rustls counts its own records, and has sealed its last
//! one when [`RecordSealer::seal`] is called, because the handshake has then failed or completed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::crypto::cipher::{
    MessageEncrypter, OutboundChunks, OutboundOpaqueMessage, OutboundPlainMessage, PrefixedPayload,
};
use rustls::{ContentType, Error, ProtocolVersion};

/// Shared by rustls and the call scope.
#[derive(Clone)]
pub(crate) struct RecordSealer(Arc<Mutex<Sealing>>);

struct Sealing {
    cipher: Box<dyn MessageEncrypter>,
    next_sequence: u64,
    is_active: bool,
}

impl RecordSealer {
    /// `is_active`: the next record is already protected. In TLS 1.2, protection starts after ChangeCipherSpec.
    pub(super) fn new(cipher: Box<dyn MessageEncrypter>, is_active: bool) -> RecordSealer {
        RecordSealer(Arc::new(Mutex::new(Sealing {
            cipher,
            next_sequence: 0,
            is_active,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Sealing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether records to the peer are already protected.
    pub(crate) fn is_active(&self) -> bool {
        self.lock().is_active
    }

    /// Seals a record of our own. Returns `None` if the cryptographic library reports an error.
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

    /// Returns the sequence number of the next record to the peer.
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
