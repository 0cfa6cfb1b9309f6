//! The data of a TLS connection besides its state: a handshake, a partial record, unsent output.

use std::ops::Range;
use std::sync::Arc;

use dormouse_record::{
    Alert, AlertDescription, OpenKey, Refusal, SMALL_RECORD_MAX, SealError, SealKey, State,
    seal_alert, seal_key_update,
};
use rustls_pki_types::UnixTime;

use super::end::End;
use super::incoming::{Incoming, open_record};
use super::outgoing::{batch_len, content_range, seal_batch};
use crate::context::client::ClientContext;
use crate::context::server::ServerContext;
use crate::failure::{Blame, FailureKind, HandshakeFailure};
use crate::handshake::info::HandshakeInfo;
use crate::handshake::rest::Rested;
use crate::handshake::{Handshake, HandshakeLimits, Progress};
use crate::sessions::client_session::SessionStore;
use crate::sessions::ticket_watch::TicketWatch;
use crate::settings_error::SettingsError;

/// Maximum plaintext per seal call.
const SEND_MAX: usize = 1 << 30;

/// The data in flight of a TLS connection. See the [module](super) for its use.
///
/// Everything that outlives a quiet moment is in the [`State`], which the caller passes to each method. A
/// connection [at rest](Connection::is_at_rest) holds nothing here, and owns no memory: it can be dropped, and
/// [`Connection::default`] continues with the state alone.
///
/// Invariants:
/// - While `handshake` is set, the state is empty, and output comes from the handshake.
/// - `received[opened..]` starts with a record. It holds more than one only around a handshake: bytes from
///   before it (`with_received`) or after it.
/// - `open_key` is set only between two calls of [`Connection::handle`] for the same input.
/// - After `end` is set, nothing more is opened.
#[derive(Default)]
pub struct Connection {
    handshake: Option<Box<Handshake>>,
    tickets: Option<Box<TicketWatch>>,
    received: Vec<u8>,
    opened: usize,
    unsent: Vec<u8>,
    sent: usize,
    open_key: Option<OpenKey>,
    end: Option<End>,
}

/// Result of [`Connection::handle`].
#[derive(Debug)]
pub enum Event<'a> {
    /// All input was consumed. Send the [output](Connection::output), then receive more.
    InputUsed,
    /// The handshake is done, and its secrets are in the state.
    Established(Box<HandshakeInfo>),
    /// Plaintext, at least one byte.
    Data(&'a [u8]),
    /// Client: bytes of NewSessionTicket messages, which the connection has already handled.
    Ticket(&'a [u8]),
    /// The peer's direction ended; the rest of the input is ignored. Every further call returns this event
    /// again.
    Ended(End),
}

/// An event without its bytes.
enum Found {
    InputUsed,
    Established(Box<HandshakeInfo>),
    Bytes(Kind, Source, Range<usize>),
    Ended(End),
}

#[derive(Clone, Copy)]
enum Kind {
    Data,
    Ticket,
}

/// The buffer in which a record was opened.
#[derive(Clone, Copy)]
enum Source {
    Received,
    Input,
}

impl Connection {
    /// Starts a connection with a client that has just connected.
    pub fn server(context: &ServerContext, limits: HandshakeLimits) -> Connection {
        Connection::handshaking(Handshake::server(context, limits))
    }

    /// Starts a connection to the server `server_name`, a host name or an IP address. The first
    /// [`Connection::handle`], without input, produces the ClientHello.
    pub fn client(
        context: &ClientContext,
        server_name: &str,
        limits: HandshakeLimits,
    ) -> Result<Connection, SettingsError> {
        Handshake::client(context, server_name, limits).map(Connection::handshaking)
    }

    /// Returns a connection whose handshake the caller has completed and brought to rest.
    pub fn established(rested: Rested) -> (Connection, HandshakeInfo) {
        let connection = Connection {
            tickets: rested.tickets.map(Box::new),
            received: rested.leftover,
            unsent: rested.unsent,
            ..Connection::default()
        };
        (connection, rested.info)
    }

    /// Returns an established connection with received but unopened bytes and unsent output, as returned by
    /// [`Connection::take_unopened`] and [`Connection::take_output`].
    pub fn in_flight(received: Vec<u8>, unsent: Vec<u8>) -> Connection {
        Connection {
            received,
            unsent,
            ..Connection::default()
        }
    }

    /// Adds bytes that the peer sent before the handshake. The next [`Connection::handle`] handles them before
    /// its input.
    #[must_use]
    pub fn with_received(mut self, received: Vec<u8>) -> Connection {
        self.received = received;
        self
    }

    /// A connection with a client that is refused before its handshake begins, and this alert for it.
    pub fn refused(failure: HandshakeFailure, alert: &[u8]) -> Connection {
        Connection {
            unsent: alert.to_vec(),
            end: Some(End::Handshake(Box::new(failure))),
            ..Connection::default()
        }
    }

    fn handshaking(handshake: Handshake) -> Connection {
        Connection {
            handshake: Some(Box::new(handshake)),
            ..Connection::default()
        }
    }

    /// Client: takes sessions from `store` and puts new ones there. Call it first.
    pub fn keep_sessions(&mut self, store: Arc<dyn SessionStore>) {
        if let Some(handshake) = &mut self.handshake {
            handshake.keep_sessions(store);
        }
    }

    /// Whether the handshake is in progress or has failed.
    pub fn is_handshaking(&self) -> bool {
        self.handshake.is_some() || matches!(self.end, Some(End::Handshake(_)))
    }

    /// Whether this connection consists only of its state.
    pub fn is_at_rest(&self) -> bool {
        self.handshake.is_none()
            && self.tickets.is_none()
            && self.end.is_none()
            && self.open_key.is_none()
            && self.received.capacity() == 0
            && self.unsent.capacity() == 0
    }

    /// Client: whether this connection still waits for tickets.
    pub fn awaits_tickets(&self) -> bool {
        self.tickets.is_some()
    }

    /// Client: ignores further tickets, so that the connection can rest.
    pub fn ignore_tickets(&mut self) {
        self.tickets = None;
    }

    /// Client: returns the ticket receiver, for callers that open records themselves.
    pub fn take_tickets(&mut self) -> Option<TicketWatch> {
        self.tickets.take().map(|tickets| *tickets)
    }

    /// Returns the bytes that were received but not opened.
    pub fn unopened(&self) -> &[u8] {
        self.received.get(self.opened..).unwrap_or_default()
    }

    /// Takes the start of an incomplete record, for tools that continue reading themselves.
    pub fn take_unopened(&mut self) -> Vec<u8> {
        let mut unopened = std::mem::take(&mut self.received);
        unopened.drain(..self.opened.min(unopened.len()));
        self.opened = 0;
        unopened
    }

    /// Returns how the peer's direction ended, if it has.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }
}

/// Receiving.
impl Connection {
    /// Returns the next event. Opens `input` in place and removes the consumed bytes from its front.
    ///
    /// Call it until it returns [`Event::InputUsed`] or [`Event::Ended`]. `now` is used for certificates and
    /// tickets.
    pub fn handle<'e, 'i: 'e>(
        &'e mut self,
        state: &mut State,
        now: UnixTime,
        input: &mut &'i mut [u8],
    ) -> Event<'e> {
        let whole = std::mem::take(input);
        let mut used = 0;
        let found = self.find(state, now, whole, &mut used);
        let (record, rest) = whole.split_at_mut(used.min(whole.len()));
        *input = rest;
        match found {
            Found::InputUsed => Event::InputUsed,
            Found::Established(info) => Event::Established(info),
            Found::Ended(end) => Event::Ended(end),
            Found::Bytes(kind, source, range) => {
                let bytes = match source {
                    Source::Received => self.received.get(range).unwrap_or_default(),
                    Source::Input => record.get(range).unwrap_or_default(),
                };
                match kind {
                    Kind::Data => Event::Data(bytes),
                    Kind::Ticket => Event::Ticket(bytes),
                }
            }
        }
    }

    /// Handles the end of the transport. Returns [`End::Closed`] only if close_notify has arrived.
    pub fn handle_eof(&mut self, state: &State) -> End {
        let end = match &self.end {
            Some(end) => return end.clone(),
            None if self.handshake.is_some() => End::Handshake(Box::new(HandshakeFailure::new(
                Blame::Peer,
                FailureKind::PeerClosed,
                "the peer closed the connection during the handshake",
            ))),
            None if state.peer_closed() => End::Closed,
            None => End::Truncated,
        };
        self.finish(end.clone());
        end
    }

    /// Adds the consumed bytes of `input` to `used`.
    fn find(
        &mut self,
        state: &mut State,
        now: UnixTime,
        input: &mut [u8],
        used: &mut usize,
    ) -> Found {
        loop {
            if let Some(end) = &self.end {
                *used = input.len();
                return Found::Ended(end.clone());
            }
            let found = if self.handshake.is_some() {
                if !self.received.is_empty() {
                    // Bytes received before the handshake began.
                    let early = std::mem::take(&mut self.received);
                    match self.advance_handshake(state, now, &early) {
                        Some(Found::InputUsed) => continue,
                        found => found,
                    }
                } else {
                    let received = input.get(*used..).unwrap_or_default();
                    *used = input.len();
                    self.advance_handshake(state, now, received)
                }
            } else {
                self.open_next(state, now, input, used)
            };
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// Opens the next record. Returns `None` to be called again.
    fn open_next(
        &mut self,
        state: &mut State,
        now: UnixTime,
        input: &mut [u8],
        used: &mut usize,
    ) -> Option<Found> {
        if state.peer_closed() {
            self.finish(End::Closed);
            return None;
        }
        let (source, at) = match self.has_received() {
            true => (Source::Received, self.opened),
            false => (Source::Input, *used),
        };
        let buf = match source {
            Source::Received => self.received.get_mut(at..),
            Source::Input => input.get_mut(at..),
        };
        let buf = buf.filter(|buf| !buf.is_empty());
        let Some(buf) = buf else {
            return Some(self.input_used(state));
        };
        let key = self.open_key.get_or_insert_with(|| OpenKey::new(state));
        let (consumed, kind, range) = match open_record(state, key, buf) {
            Incoming::Partial { need } => {
                let is_whole = self.take_partial(need, input, used);
                return (!is_whole).then(|| self.input_used(state));
            }
            Incoming::Data {
                consumed,
                plaintext,
            } => (consumed, Kind::Data, plaintext),
            Incoming::Ticket { consumed, fragment } => {
                let tickets = buf.get(fragment.clone()).unwrap_or_default();
                if let Err(refusal) = take_tickets(&mut self.tickets, now, tickets) {
                    self.seal_alert(state, refusal.answer());
                    self.finish(End::Refused(refusal));
                    return None;
                }
                (consumed, Kind::Ticket, fragment)
            }
            Incoming::Handled { consumed, answer } => {
                if let Some(alert) = answer {
                    self.answer(state, alert);
                }
                (consumed, Kind::Data, 0..0)
            }
            Incoming::Ended(end) => {
                if let End::Refused(refusal) = &end {
                    self.seal_alert(state, refusal.answer());
                }
                self.finish(end);
                return None;
            }
        };
        match source {
            Source::Received => self.opened += consumed,
            Source::Input => *used += consumed,
        }
        let range = at + range.start..at + range.end;
        (!range.is_empty()).then_some(Found::Bytes(kind, source, range))
    }

    /// Advances the handshake. Returns `None` if it failed; `end` is then set.
    fn advance_handshake(
        &mut self,
        state: &mut State,
        now: UnixTime,
        received: &[u8],
    ) -> Option<Found> {
        let handshake = self.handshake.as_mut()?;
        match handshake.handle_input(now, received) {
            Ok(Progress::Handshaking) => return Some(Found::InputUsed),
            Ok(Progress::Established) => {}
            Err(failure) => {
                self.end = Some(End::Handshake(Box::new(failure)));
                return None;
            }
        }
        match self.handshake.take()?.rest(state) {
            Ok(rested) => {
                let (connection, info) = Connection::established(rested);
                *self = connection;
                Some(Found::Established(Box::new(info)))
            }
            Err(failure) => {
                self.end = Some(End::Handshake(Box::new(failure)));
                None
            }
        }
    }

    /// Whether bytes from before the input remain. Drops those that were opened.
    fn has_received(&mut self) -> bool {
        if self.opened > 0 && self.opened >= self.received.len() {
            (self.received, self.opened) = (Vec::new(), 0);
        }
        !self.received.is_empty()
    }

    /// Moves the start of a record out of the input. Returns false if the record is still incomplete.
    fn take_partial(&mut self, need: usize, input: &[u8], used: &mut usize) -> bool {
        self.received.drain(..self.opened.min(self.received.len()));
        self.opened = 0;
        let rest = input.get(*used..).unwrap_or_default();
        let missing = need.saturating_sub(self.received.len());
        let piece = rest.get(..missing.min(rest.len())).unwrap_or_default();
        self.received.extend_from_slice(piece);
        *used += piece.len();
        !piece.is_empty() && piece.len() == missing
    }

    /// Ends the event: drops the key and seals the KeyUpdate that the peer requested. If there is unsent
    /// output, the KeyUpdate waits for the next event or the next data.
    fn input_used(&mut self, state: &mut State) -> Found {
        self.open_key = None;
        if state.owes_key_update() && self.output().is_empty() {
            let mut key = SealKey::new(state);
            // If it fails, the next data fails too and returns the error.
            let _ = self.seal_small(|room| seal_key_update(state, &mut key, room));
        }
        Found::InputUsed
    }

    /// Replies to a request, unless the last reply is still unsent: a peer that sends requests without end and
    /// never reads must not make the output grow.
    fn answer(&mut self, state: &mut State, alert: Alert) {
        if self.output().is_empty() {
            self.seal_alert(state, alert);
        }
    }

    fn finish(&mut self, end: End) {
        self.open_key = None;
        self.tickets = None;
        (self.received, self.opened) = (Vec::new(), 0);
        self.end = Some(end);
    }
}

fn take_tickets(
    tickets: &mut Option<Box<TicketWatch>>,
    now: UnixTime,
    fragment: &[u8],
) -> Result<(), Refusal> {
    let Some(watch) = tickets else {
        return Ok(());
    };
    let taken = watch.handle_fragment(now, fragment);
    if taken.is_err() || watch.is_satisfied() {
        *tickets = None;
    }
    taken
}

/// Sending.
impl Connection {
    /// Seals `plaintext` into the output, in as many records as needed; at most 1 GiB per call.
    pub fn send(&mut self, state: &mut State, plaintext: &[u8]) -> Result<(), SealError> {
        let mut rest = plaintext;
        self.send_with(state, plaintext.len(), &mut |room| {
            let (piece, later) = rest.split_at(room.len().min(rest.len()));
            if let Some(room) = room.get_mut(..piece.len()) {
                room.copy_from_slice(piece);
            }
            rest = later;
        })
    }

    /// Seals `len` bytes of plaintext into the output. `write` writes them piece by piece into the place where
    /// they are sealed.
    // Not generic: compiled once, and as fast as the rest of this crate, whatever the crate of the caller is compiled with.
    pub fn send_with(
        &mut self,
        state: &mut State,
        len: usize,
        write: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SealError> {
        if len > SEND_MAX {
            return Err(SealError::ContentTooLong(len));
        }
        self.unsent.drain(..self.sent.min(self.unsent.len()));
        self.sent = 0;
        let start = self.unsent.len();
        self.unsent.resize(start + batch_len(state, len), 0);
        let batch = self.unsent.get_mut(start..).unwrap_or_default();
        let mut left = len;
        for index in 0.. {
            if left == 0 {
                break;
            }
            let mut content = content_range(state, index);
            content.end = content.start + left.min(content.len());
            left -= content.len();
            write(batch.get_mut(content).unwrap_or_default());
        }
        let mut key = SealKey::new(state);
        let sealed = seal_batch(state, &mut key, batch, len);
        let range = sealed.as_ref().map_or(0..0, Range::clone);
        if start == 0 {
            // The room for a KeyUpdate counts as sent.
            self.unsent.truncate(range.end);
            self.sent = range.start;
        } else {
            batch.copy_within(range.clone(), 0);
            self.unsent.truncate(start + range.len());
        }
        self.release_output();
        sealed.map(|_| ())
    }

    /// Ends our direction (close_notify). The peer's direction stays open.
    pub fn close(&mut self, state: &mut State) {
        self.seal_alert(state, Alert::CLOSE_NOTIFY);
    }

    /// Aborts the connection, with this alert for the peer.
    pub fn abort(&mut self, state: &mut State, why: AlertDescription) {
        self.seal_alert(state, Alert::fatal(why));
    }

    /// TLS 1.3: replaces the key of our direction and tells the peer (RFC 8446 §4.6.3).
    pub fn update_keys(&mut self, state: &mut State) -> Result<(), SealError> {
        let mut key = SealKey::new(state);
        self.seal_small(|room| seal_key_update(state, &mut key, room))
    }

    /// Takes all of the output and counts it as sent.
    pub fn take_output(&mut self) -> Vec<u8> {
        if self.handshake.is_some() || self.sent > 0 {
            let output = self.output().to_vec();
            self.output_sent(output.len());
            return output;
        }
        std::mem::take(&mut self.unsent)
    }

    /// Returns the bytes to send to the peer, in order.
    pub fn output(&self) -> &[u8] {
        match &self.handshake {
            Some(handshake) => handshake.output(),
            None => self.unsent.get(self.sent..).unwrap_or_default(),
        }
    }

    /// Records that the first `count` bytes of the output were sent.
    pub fn output_sent(&mut self, count: usize) {
        match &mut self.handshake {
            Some(handshake) => handshake.output_sent(count),
            None => {
                self.sent = self.sent.saturating_add(count).min(self.unsent.len());
                self.release_output();
            }
        }
    }

    /// Frees the memory of sent output.
    fn release_output(&mut self) {
        if self.sent >= self.unsent.len() {
            (self.unsent, self.sent) = (Vec::new(), 0);
        }
    }

    /// Seals an alert, unless nothing may be sealed any more.
    fn seal_alert(&mut self, state: &mut State, alert: Alert) {
        let mut key = SealKey::new(state);
        let _ = self.seal_small(|room| seal_alert(state, &mut key, alert, room));
    }

    fn seal_small(
        &mut self,
        seal: impl FnOnce(&mut [u8]) -> Result<usize, SealError>,
    ) -> Result<(), SealError> {
        let mut room = [0; SMALL_RECORD_MAX];
        let len = seal(&mut room)?;
        self.unsent
            .extend_from_slice(room.get(..len).unwrap_or_default());
        Ok(())
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("handshaking", &self.is_handshaking())
            .field("received", &self.received.len())
            .field("unsent", &self.output().len())
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}
