//! Tickets that a TLS 1.3 server sends after the handshake.
//!
//! Only rustls' `KernelConnection` can handle them: it has the resumption secret and the session store. So a
//! client's connection keeps it until the expected number of tickets has arrived, or until its owner has waited
//! long enough. Then it is dropped, and later tickets are ignored.

use std::fmt;
use std::sync::Arc;

use dormouse_record::{Reason, Refusal};
use rustls::Error;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls_pki_types::UnixTime;
use zeroize::{Zeroize as _, Zeroizing};

use crate::call_scope::{CallScope, enter};
use crate::messages::handshake_type::NEW_SESSION_TICKET;
use crate::secrets::{Derivation, Secret, SessionSecrets};
use crate::sessions::client_facts::ClientResumption;
use crate::sessions::client_session::{Session, SessionStore};

const HEADER_LEN: usize = 4;
/// Maximum length of a ticket message; tickets can hold a client certificate chain.
const MESSAGE_MAX: usize = 16_384;
/// Maximum number of tickets from one server; further tickets are ignored.
const TICKETS_MAX: u32 = 32;

/// Receives the tickets of one connection; see [`Rested::tickets`](crate::Rested).
pub struct TicketWatch {
    kernel: Box<KernelConnection<ClientConnectionData>>,
    /// The start of one incomplete message.
    message: Zeroizing<Vec<u8>>,
    received: u32,
    expected: u32,
    /// The caller's session store, and the chain to which these tickets belong.
    kept: Option<(Arc<dyn SessionStore>, u64)>,
    /// [`ClientResumption::since_s`] of the handshake.
    since_s: u64,
}

impl TicketWatch {
    pub(crate) fn new(
        kernel: Box<KernelConnection<ClientConnectionData>>,
        expected: u32,
        kept: Option<(Arc<dyn SessionStore>, u64)>,
        since_s: u64,
    ) -> TicketWatch {
        TicketWatch {
            kernel,
            message: Zeroizing::new(Vec::new()),
            received: 0,
            expected,
            kept,
            since_s,
        }
    }

    pub(crate) fn into_kernel(self) -> Box<KernelConnection<ClientConnectionData>> {
        self.kernel
    }

    /// Handles the bytes that `record::Opened::Ticket` points to: NewSessionTicket messages (RFC 8446 §4.6.1),
    /// headers included, split anywhere. Complete tickets go into the session store. A ticket that cannot
    /// become a session is ignored.
    ///
    /// # Errors
    /// A message that cannot be decoded: the connection ends with the refusal's alert.
    pub fn handle_fragment(&mut self, now: UnixTime, mut fragment: &[u8]) -> Result<(), Refusal> {
        while !fragment.is_empty() && self.received < TICKETS_MAX {
            let need = self.message_len()?;
            let missing = need.saturating_sub(self.message.len());
            let (piece, rest) = fragment
                .split_at_checked(missing)
                .unwrap_or((fragment, &[]));
            self.message.extend_from_slice(piece);
            fragment = rest;
            if self.message.len() >= HEADER_LEN && self.message.len() == self.message_len()? {
                self.take_message(now)?;
            }
        }
        Ok(())
    }

    /// Returns the number of complete tickets so far.
    pub fn received(&self) -> u32 {
        self.received
    }

    /// Whether the expected number of tickets has arrived, so that this can be dropped.
    pub fn is_satisfied(&self) -> bool {
        self.received >= self.expected
    }

    /// Returns the length of the message that starts `self.message`, as far as it is known.
    fn message_len(&self) -> Result<usize, Refusal> {
        let &[kind, a, b, c, ..] = self.message.as_slice() else {
            return Ok(HEADER_LEN);
        };
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        if kind != NEW_SESSION_TICKET || len > MESSAGE_MAX {
            return Err(Refusal::new(Reason::TicketMalformed));
        }
        Ok(HEADER_LEN + len)
    }

    fn take_message(&mut self, now: UnixTime) -> Result<(), Refusal> {
        let payload = self.message.get(HEADER_LEN..).unwrap_or_default();
        let mut scope = CallScope::new();
        scope.now = now;
        scope.of::<ClientResumption>().since_s = self.since_s;
        if self.kept.is_some() {
            scope.of::<SessionSecrets>().psk = Derivation::Captured(Secret::empty());
        }
        let (mut scope, taken) = enter(scope, || self.kernel.handle_new_session_ticket(payload));
        if let (Ok(()), Some((store, chain)), Derivation::Captured(psk)) =
            (&taken, &self.kept, &scope.of::<SessionSecrets>().psk)
        {
            let suite = self.kernel.negotiated_cipher_suite().suite();
            if let Some(session) = Session::of_ticket(suite, now, psk.bytes(), payload) {
                store.put(*chain, &session);
            }
        }
        self.message.zeroize();
        self.received += 1;
        match taken {
            Err(Error::InvalidMessage(_)) => Err(Refusal::new(Reason::TicketMalformed)),
            Err(_) | Ok(()) => Ok(()),
        }
    }
}

impl fmt::Debug for TicketWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketWatch")
            .field("received", &self.received)
            .field("expected", &self.expected)
            .finish_non_exhaustive()
    }
}
