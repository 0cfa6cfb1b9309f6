//! Seals the records of one connection's handshake: those of rustls, and ours behind them.
//!
//! An alert that rustls asks for stays unprotected and unsent: the handshake judges the failure
//! first, then [`RecordSealer::seal`] protects the alert that goes out. So every failure has an
//! alert, and it is known which.
//!
//! Invariant: a sequence number is used for one record. rustls counts its records by itself, and
//! has sealed its last one when [`RecordSealer::seal`] is called: the handshake has failed or is
//! done.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::crypto::cipher::{
    MessageEncrypter, OutboundChunks, OutboundOpaqueMessage, OutboundPlainMessage, PrefixedPayload,
};
use rustls::{ContentType, Error, ProtocolVersion};

/// Shared by rustls and the call's scope.
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
