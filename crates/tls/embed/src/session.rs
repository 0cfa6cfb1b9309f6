//! A TLS connection as a host uses it.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use dormouse_engine::stream::{self, Connection, End};
use dormouse_engine::{
    ClientContext, ClientHello, FirstFlight, HandshakeFailure, HandshakeInfo, HandshakeLimits,
    ServerContext, SessionStore, SettingsError, TicketWatch, UnixTime,
};
use dormouse_record::{AlertDescription, OpenKey, SealKey, State};

use crate::at_rest::{self, Received};
use crate::error::SessionError;

/// A TLS connection, from its first byte to its end.
///
/// At rest it is only its state. Data in flight (a handshake, the start of a record, unsent output, the wait
/// for tickets) is in a box that is freed when no longer needed. It wipes itself when dropped, and sends
/// nothing to the peer then: call [`Session::close`] first.
///
/// It may move between threads, but only one thread may use it at a time.
pub struct Session {
    pub(crate) state: State,
    pub(crate) flight: Option<Box<Flight>>,
}

const _: () = assert!(size_of::<Session>() == 136);

/// The data in flight.
pub(crate) enum Flight {
    /// A ClientHello is expected, or has arrived and waits for a context.
    Hello {
        received: Vec<u8>,
        limits: HandshakeLimits,
        is_reported: bool,
    },
    Connection(Connection),
    Poisoned,
}

/// A result of [`Session::feed`].
#[derive(Debug)]
pub enum Event<'a> {
    /// After [`Session::listen`]: the client's request, once. Reply with [`Session::decide`], now or later. An
    /// unreadable first message has no name and no protocols; any context then refuses it with the right alert.
    ClientHello(ClientHello),
    /// The handshake is done.
    Established(Box<HandshakeInfo>),
    /// Plaintext, at least one byte.
    Data(&'a [u8]),
    /// The peer's direction ended; further input is ignored. Each later call returns this event again.
    Ended(End),
}

/// Starting a connection.
impl Session {
    /// Starts a session with a client that has just connected.
    pub fn accept(context: &ServerContext) -> Session {
        Session::accept_within(context, HandshakeLimits::default())
    }

    /// Like [`Session::accept`], with other limits.
    pub fn accept_within(context: &ServerContext, limits: HandshakeLimits) -> Session {
        Session::handshaking(Flight::Connection(Connection::server(context, limits)))
    }

    /// Starts a session with a client whose context depends on its request: wait for [`Event::ClientHello`],
    /// then call [`Session::decide`].
    pub fn listen(limits: HandshakeLimits) -> Session {
        Session::handshaking(Flight::Hello {
            received: Vec::new(),
            limits,
            is_reported: false,
        })
    }

    /// Continues with this context, after [`Session::listen`]. Then call [`Session::feed`], with empty input if
    /// there is none: it handles the ClientHello.
    pub fn decide(&mut self, context: &ServerContext) -> Result<(), SessionError> {
        match self.flight.as_deref_mut() {
            Some(flight @ Flight::Hello { .. }) => {
                let Flight::Hello {
                    received, limits, ..
                } = std::mem::replace(flight, Flight::Poisoned)
                else {
                    return Err(SessionError::Poisoned);
                };
                let connection = Connection::server(context, limits).with_received(received);
                *flight = Flight::Connection(connection);
                Ok(())
            }
            Some(Flight::Poisoned) => Err(SessionError::Poisoned),
            Some(Flight::Connection(_)) | None => Err(SessionError::Undecided),
        }
    }

    /// Refuses the client with this fatal alert, after [`Session::listen`]. The alert is in the output, and
    /// the next [`Session::feed`] finds the end.
    pub fn refuse(&mut self, why: AlertDescription) -> Result<(), SessionError> {
        match self.flight.as_deref_mut() {
            Some(flight @ Flight::Hello { .. }) => {
                let (failure, alert) = HandshakeFailure::refused_by_caller(why.code());
                *flight = Flight::Connection(Connection::refused(failure, &alert));
                Ok(())
            }
            Some(Flight::Poisoned) => Err(SessionError::Poisoned),
            Some(Flight::Connection(_)) | None => Err(SessionError::Undecided),
        }
    }

    /// Starts a session with the server `server_name`, a host name or an IP address. The first
    /// [`Session::feed`], without input, produces the ClientHello.
    pub fn connect(context: &ClientContext, server_name: &str) -> Result<Session, SettingsError> {
        Session::connect_within(context, server_name, HandshakeLimits::default())
    }

    /// Like [`Session::connect`], with other limits.
    pub fn connect_within(
        context: &ClientContext,
        server_name: &str,
        limits: HandshakeLimits,
    ) -> Result<Session, SettingsError> {
        let connection = Connection::client(context, server_name, limits)?;
        Ok(Session::handshaking(Flight::Connection(connection)))
    }

    /// Client: takes sessions from `store` and puts new ones there. Call it first. The context's settings must
    /// say that the caller stores the sessions ([`ResumptionSettings`](crate::ResumptionSettings)).
    pub fn keep_sessions(&mut self, store: Arc<dyn SessionStore>) {
        if let Some(Flight::Connection(connection)) = self.flight.as_deref_mut() {
            connection.keep_sessions(store);
        }
    }

    fn handshaking(flight: Flight) -> Session {
        Session {
            state: State::empty(),
            flight: Some(Box::new(flight)),
        }
    }
}

/// Receiving.
impl Session {
    /// Handles ciphertext, split anywhere, opens it in place and reports events in order. Afterwards there may
    /// be [`Session::output`]. `now` is used for certificates and tickets.
    ///
    /// Plaintext usually lies in `input`, and is valid only during the call of `on_event`.
    pub fn feed(
        &mut self,
        now: UnixTime,
        input: &mut [u8],
        mut on_event: impl FnMut(Event<'_>),
    ) -> Result<(), SessionError> {
        if let Some(flight @ Flight::Hello { .. }) = self.flight.as_deref_mut() {
            match flight.wait_for_hello(input) {
                Waiting::More => return Ok(()),
                Waiting::Asked(hello) => {
                    return self.guarded(|_, _| on_event(Event::ClientHello(hello)));
                }
                // The end is reported below.
                Waiting::Refused => {}
            }
        }
        self.guarded(|connection, state| {
            let mut rest = input;
            loop {
                match connection.handle(state, now, &mut rest) {
                    stream::Event::InputUsed => return,
                    stream::Event::Established(info) => on_event(Event::Established(info)),
                    stream::Event::Data(plaintext) => on_event(Event::Data(plaintext)),
                    stream::Event::Ticket(_) => {}
                    stream::Event::Ended(end) => return on_event(Event::Ended(end)),
                }
            }
        })
    }

    /// Opens the complete records at the start of `buf`, in place, as [`at_rest::receive`] does. A reply to the peer
    /// is in the output afterwards. What follows the records is the start of another one, and stays with the caller.
    ///
    /// Returns `None`, and changes nothing, if the session is not at rest; [`Session::feed`] always works.
    pub fn receive_at_rest(
        &mut self,
        now: UnixTime,
        buf: &mut [u8],
    ) -> Result<Option<Received>, SessionError> {
        if !self.is_at_rest() {
            return Ok(None);
        }
        let mut key = OpenKey::new(&self.state);
        self.receive_at_rest_with(&mut key, now, buf)
    }

    /// Does the same, at rest, with an expanded key.
    pub(crate) fn receive_at_rest_with(
        &mut self,
        key: &mut OpenKey,
        now: UnixTime,
        buf: &mut [u8],
    ) -> Result<Option<Received>, SessionError> {
        let mut reply = [0; at_rest::ANSWER_MAX];
        let received = self
            .guarded(|_, state| at_rest::receive_with(state, key, now, buf, &mut reply, None))??;
        if let Some(reply @ [_, ..]) = reply.get(..received.output_len) {
            let unsent = Connection::in_flight(Vec::new(), reply.to_vec());
            self.flight = Some(Box::new(Flight::Connection(unsent)));
        }
        Ok(Some(received))
    }

    /// Like [`Session::feed`], but returns when the handshake is done. Bytes received after it stay sealed
    /// ([`Session::take_unopened`]), for hosts that continue with [`at_rest`].
    pub fn shake_hands(
        &mut self,
        now: UnixTime,
        input: &mut [u8],
        mut on_event: impl FnMut(Event<'_>),
    ) -> Result<(), SessionError> {
        if let Some(Flight::Hello { .. }) = self.flight.as_deref() {
            return self.feed(now, input, on_event);
        }
        if !self.is_handshaking() {
            return Err(SessionError::Established);
        }
        self.guarded(|connection, state| {
            let mut rest = input;
            while connection.is_handshaking() {
                match connection.handle(state, now, &mut rest) {
                    stream::Event::Established(info) => on_event(Event::Established(info)),
                    stream::Event::Ended(end) => return on_event(Event::Ended(end)),
                    _ => return,
                }
            }
        })
    }

    /// Returns received but unopened bytes: the start of a record, and after [`Session::shake_hands`] any
    /// number of records.
    pub fn unopened(&self) -> &[u8] {
        match self.flight.as_deref() {
            Some(Flight::Connection(connection)) => connection.unopened(),
            _ => &[],
        }
    }

    /// Takes the received but unopened bytes.
    pub fn take_unopened(&mut self) -> Vec<u8> {
        let unopened = match self.flight.as_deref_mut() {
            Some(Flight::Connection(connection)) => connection.take_unopened(),
            _ => Vec::new(),
        };
        self.rest();
        unopened
    }

    /// Client: returns the ticket receiver, for [`at_rest::receive`].
    pub fn take_tickets(&mut self) -> Option<TicketWatch> {
        let tickets = match self.flight.as_deref_mut() {
            Some(Flight::Connection(connection)) => connection.take_tickets(),
            _ => None,
        };
        self.rest();
        tickets
    }

    /// Handles the end of the transport. Returns [`End::Closed`] only if close_notify has arrived.
    pub fn eof(&mut self) -> Result<End, SessionError> {
        if let Some(Flight::Hello { .. }) = self.flight.as_deref() {
            return Ok(End::Truncated);
        }
        self.guarded(|connection, state| connection.handle_eof(state))
    }

    /// Client: whether this session still waits for tickets. Until then it is not at rest.
    pub fn awaits_tickets(&self) -> bool {
        matches!(self.flight.as_deref(), Some(Flight::Connection(one)) if one.awaits_tickets())
    }

    /// Client: ignores further tickets, so that the session can rest. Call it about a second after the
    /// handshake.
    pub fn ignore_tickets(&mut self) {
        if let Some(Flight::Connection(connection)) = self.flight.as_deref_mut() {
            connection.ignore_tickets();
        }
        self.rest();
    }
}

/// Sending.
impl Session {
    /// Seals `plaintext` into the output; at most 1 GiB per call. Empty plaintext makes no record.
    pub fn send(&mut self, plaintext: &[u8]) -> Result<(), SessionError> {
        self.sending(|connection, state| connection.send(state, plaintext))
    }

    /// Copies pending [`Session::output`] into `output`, seals `plaintext` after it, and returns how many bytes
    /// to send. It does all of this or nothing: [`Session::sealed_len`] returns the required room.
    pub fn seal_into(
        &mut self,
        plaintext: &[u8],
        output: &mut [u8],
    ) -> Result<usize, SessionError> {
        let mut key = SealKey::new(&self.state);
        self.seal_into_with(&mut key, plaintext, output)
    }

    /// Does the same with an expanded key.
    pub(crate) fn seal_into_with(
        &mut self,
        key: &mut SealKey,
        plaintext: &[u8],
        output: &mut [u8],
    ) -> Result<usize, SessionError> {
        let need = self.sealed_len(plaintext.len());
        if output.len() < need {
            return Err(SessionError::BufferTooSmall { need });
        }
        self.sending(|connection, state| {
            let before = connection.output();
            let (first, rest) = output.split_at_mut(before.len());
            first.copy_from_slice(before);
            let len = first.len();
            let sealed = at_rest::seal_with(state, key, plaintext, rest)?;
            connection.output_sent(len);
            Ok(len + sealed)
        })
    }

    /// Returns the output room that [`Session::seal_into`] needs for `plaintext_len` bytes.
    pub fn sealed_len(&self, plaintext_len: usize) -> usize {
        at_rest::sealed_len(&self.state, plaintext_len).saturating_add(self.output().len())
    }

    /// Seals plaintext where it lies: the caller has written its records' contents to their places
    /// ([`Session::content_range`]) in a buffer of [`Session::batch_len`] bytes. Returns the range to send.
    ///
    /// Send earlier output first. After an error no byte of the buffer may be sent.
    pub fn seal_batch(
        &mut self,
        batch: &mut [u8],
        plaintext_len: usize,
    ) -> Result<Range<usize>, SessionError> {
        if !self.output().is_empty() {
            return Err(SessionError::Unsent);
        }
        self.sending(|_, state| {
            stream::seal_batch(state, &mut SealKey::new(state), batch, plaintext_len)
        })
    }

    /// Returns the length of a buffer in which [`Session::seal_batch`] seals `plaintext_len` bytes.
    pub fn batch_len(&self, plaintext_len: usize) -> usize {
        stream::batch_len(&self.state, plaintext_len)
    }

    /// Returns the place of the record with this index in a batch. Each record but the last is full.
    pub fn content_range(&self, index: usize) -> Range<usize> {
        stream::content_range(&self.state, index)
    }

    /// Ends our direction with close_notify. The peer's direction stays open, possibly for long.
    pub fn close(&mut self) -> Result<(), SessionError> {
        self.sending(|connection, state| {
            connection.close(state);
            Ok(())
        })
    }

    /// Aborts the connection in both directions, with a fatal alert for the peer.
    pub fn abort(&mut self, why: AlertDescription) -> Result<(), SessionError> {
        self.sending(|connection, state| {
            connection.abort(state, why);
            Ok(())
        })
    }

    /// TLS 1.3: replaces the key of our direction and tells the peer. Keys near their limit are replaced
    /// automatically.
    pub fn update_keys(&mut self) -> Result<(), SessionError> {
        self.sending(|connection, state| connection.update_keys(state))
    }

    fn sending<T>(
        &mut self,
        work: impl FnOnce(&mut Connection, &mut State) -> Result<T, dormouse_record::SealError>,
    ) -> Result<T, SessionError> {
        if self.is_handshaking() {
            return Err(SessionError::Handshaking);
        }
        Ok(self.guarded(work)??)
    }

    /// Returns the bytes to send to the peer, in order, from all calls.
    pub fn output(&self) -> &[u8] {
        match self.flight.as_deref() {
            Some(Flight::Connection(connection)) => connection.output(),
            _ => &[],
        }
    }

    /// Records that the first `count` bytes of the output were sent.
    pub fn output_sent(&mut self, count: usize) {
        if let Some(Flight::Connection(connection)) = self.flight.as_deref_mut() {
            connection.output_sent(count);
        }
        self.rest();
    }

    /// Takes all of the output, for a host with its own queue.
    pub fn take_output(&mut self) -> Vec<u8> {
        let output = match self.flight.as_deref_mut() {
            Some(Flight::Connection(connection)) => connection.take_output(),
            _ => Vec::new(),
        };
        self.rest();
        output
    }
}

/// The state.
impl Session {
    /// Whether the handshake is in progress or has failed.
    pub fn is_handshaking(&self) -> bool {
        match self.flight.as_deref() {
            Some(Flight::Connection(connection)) => connection.is_handshaking(),
            Some(Flight::Hello { .. }) => true,
            Some(Flight::Poisoned) | None => false,
        }
    }

    /// Whether the session consists only of its 136 bytes, with nothing in the heap.
    pub fn is_at_rest(&self) -> bool {
        self.flight.is_none()
    }

    /// Returns the state: protocol, suite, closed directions.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Runs `work` on the data in flight, behind the panic boundary.
    fn guarded<T>(
        &mut self,
        work: impl FnOnce(&mut Connection, &mut State) -> T,
    ) -> Result<T, SessionError> {
        let mut quiet = Connection::default();
        let connection = match self.flight.as_deref_mut() {
            Some(Flight::Connection(connection)) => connection,
            Some(Flight::Hello { .. }) | None => &mut quiet,
            Some(Flight::Poisoned) => return Err(SessionError::Poisoned),
        };
        let state = &mut self.state;
        let Ok(result) = catch_unwind(AssertUnwindSafe(|| work(connection, state))) else {
            self.state.wipe();
            self.flight = Some(Box::new(Flight::Poisoned));
            return Err(SessionError::Poisoned);
        };
        if self.flight.is_none() && !has_nothing(&quiet, &self.state) {
            self.flight = Some(Box::new(Flight::Connection(quiet)));
        }
        self.rest();
        Ok(result)
    }

    /// Frees the box if nothing is in flight.
    fn rest(&mut self) {
        if let Some(Flight::Connection(connection)) = self.flight.as_deref()
            && has_nothing(connection, &self.state)
        {
            self.flight = None;
        }
    }
}

/// Whether the state alone describes the connection. It also records that the peer has closed.
fn has_nothing(connection: &Connection, state: &State) -> bool {
    match connection.end() {
        None => connection.is_at_rest(),
        Some(End::Closed) => state.peer_closed() && connection.output().is_empty(),
        Some(_) => false,
    }
}

/// Result of [`Flight::wait_for_hello`].
enum Waiting {
    /// There is nothing to report.
    More,
    /// The ClientHello has arrived, or never can.
    Asked(ClientHello),
    /// The client has sent more than it may; the flight holds its failure.
    Refused,
}

impl Flight {
    /// Adds input of a client without a context.
    fn wait_for_hello(&mut self, input: &[u8]) -> Waiting {
        let Flight::Hello {
            received,
            limits,
            is_reported,
        } = self
        else {
            return Waiting::Refused;
        };
        received.extend_from_slice(input);
        let is_too_long = received.len() > limits.bytes_max;
        if *is_reported {
            if !is_too_long {
                return Waiting::More;
            }
            let (failure, alert) = HandshakeFailure::too_large_undecided(limits.bytes_max);
            *self = Flight::Connection(Connection::refused(failure, &alert));
            return Waiting::Refused;
        }
        let hello = match FirstFlight::of(received) {
            FirstFlight::ClientHello(hello) => hello,
            FirstFlight::Incomplete if !is_too_long => return Waiting::More,
            FirstFlight::Incomplete | FirstFlight::Other => ClientHello::default(),
        };
        *is_reported = true;
        Waiting::Asked(hello)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("state", &self.state)
            .field("is_at_rest", &self.is_at_rest())
            .finish_non_exhaustive()
    }
}
