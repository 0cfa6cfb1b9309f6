//! A connection without its transport: bytes in, bytes out.

use std::io::{self, ErrorKind};

use dormouse_embed::{
    ClientHello, End, HandshakeInfo, Role, Session, SessionError, State, UnixTime, Version,
};
use tokio::io::ReadBuf;

use crate::in_flight::{InFlight, put};
use crate::keys::KeptPlace;

/// A connection's state, and a pointer to what is under way.
#[derive(Debug)]
pub(crate) struct Tls {
    session: Session,
    keys: KeptPlace,
    flight: Option<Box<InFlight>>,
}

/// What was found in received bytes, besides plaintext.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) info: Option<Box<HandshakeInfo>>,
    pub(crate) hello: Option<ClientHello>,
    pub(crate) end: Option<End>,
}

impl Tls {
    pub(crate) fn new(session: Session) -> Tls {
        Tls {
            session,
            keys: KeptPlace::new(),
            flight: None,
        }
    }

    pub(crate) fn state(&self) -> &State {
        self.session.state()
    }

    /// Whether nothing is in the heap.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.flight.is_none() && self.session.is_at_rest()
    }

    pub(crate) fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    pub(crate) fn flight(&self) -> Option<&InFlight> {
        self.flight.as_deref()
    }

    pub(crate) fn flight_mut(&mut self) -> &mut InFlight {
        self.flight.get_or_insert_default()
    }

    /// Frees the box if nothing is under way.
    pub(crate) fn rest(&mut self) {
        if let Some(flight) = self.flight.as_deref_mut() {
            if flight.gives_up_tickets() {
                self.session.ignore_tickets();
            }
            if !self.session.awaits_tickets() {
                flight.tickets_until = None;
            }
            if flight.is_empty() {
                self.flight = None;
            }
        }
    }
}

/// Receiving.
impl Tls {
    /// Opens the bytes that were received, after the start of a record that is kept. Plaintext goes to `buf`, and what it
    /// has no room for is kept. A reply is in the unsent bytes afterwards.
    pub(crate) fn open(
        &mut self,
        input: &mut [u8],
        buf: Option<&mut ReadBuf<'_>>,
    ) -> Result<(), SessionError> {
        let (session, now) = (&mut self.session, UnixTime::now());
        let received = self
            .keys
            .with(|keys, number| keys.receive_at_rest(number, session, now, input))?;
        let Some(received) = received else {
            return self.feed(input, buf).map(drop);
        };
        let plaintext = input.get(..received.plaintext_len).unwrap_or_default();
        deliver(plaintext, buf, &mut self.flight);
        let rest = input.get(received.consumed..).unwrap_or_default();
        if received.end.is_none() && !rest.is_empty() {
            self.flight_mut().ciphertext = rest.to_vec();
        }
        self.note(received.end);
        Ok(())
    }

    /// Does the same with a session that is not at rest.
    pub(crate) fn feed(
        &mut self,
        input: &mut [u8],
        mut buf: Option<&mut ReadBuf<'_>>,
    ) -> Result<Found, SessionError> {
        use dormouse_embed::Event;
        let mut found = Found::default();
        let flight = &mut self.flight;
        self.session
            .feed(UnixTime::now(), input, |event| match event {
                Event::ClientHello(hello) => found.hello = Some(hello),
                Event::Established(info) => found.info = Some(info),
                Event::Data(plaintext) => deliver(plaintext, buf.as_deref_mut(), flight),
                Event::Ended(end) => found.end = Some(end),
            })?;
        let session = &self.session;
        self.keys
            .with(|keys, number| keys.forget_replaced(number, session));
        self.note(found.end.clone());
        Ok(found)
    }

    /// Handles the end of the transport.
    pub(crate) fn eof(&mut self) -> Result<End, SessionError> {
        let end = self.session.eof()?;
        self.note(Some(end.clone()));
        Ok(end)
    }

    fn note(&mut self, end: Option<End>) {
        let reply = self.session.take_output();
        if !reply.is_empty() {
            self.flight_mut().unsent.push(&reply);
        }
        // The state itself says that the peer has closed.
        if let Some(end) = end.filter(|end| !end.is_clean()) {
            self.flight_mut().end = Some(end);
        }
    }

    /// Takes the kept start of a record into `input`. Returns its length.
    pub(crate) fn take_ciphertext(&mut self, input: &mut [u8]) -> usize {
        let Some(flight) = self.flight.as_deref_mut() else {
            return 0;
        };
        let start = std::mem::take(&mut flight.ciphertext);
        if let Some(room) = input.get_mut(..start.len()) {
            room.copy_from_slice(&start);
        }
        start.len()
    }

    pub(crate) fn ciphertext_len(&self) -> usize {
        self.flight().map_or(0, |flight| flight.ciphertext.len())
    }

    /// Plaintext that was not read yet.
    pub(crate) fn plaintext(&self) -> &[u8] {
        self.flight().map_or(&[], |flight| flight.plaintext.bytes())
    }

    /// How reading ends, if it does.
    pub(crate) fn end(&self) -> Option<io::Result<()>> {
        match self.flight().and_then(|flight| flight.end.clone()) {
            Some(end) => Some(Err(end_error(end))),
            None => self.state().peer_closed().then_some(Ok(())),
        }
    }
}

/// Sending.
impl Tls {
    pub(crate) fn unsent(&self) -> &[u8] {
        self.flight().map_or(&[], |flight| flight.unsent.bytes())
    }

    /// Returns the room that [`Tls::seal`] needs.
    pub(crate) fn sealed_len(&self, plaintext_len: usize) -> usize {
        self.session.sealed_len(plaintext_len)
    }

    /// Seals plaintext, to be sent after the unsent bytes. Returns the length of its records.
    pub(crate) fn seal(&mut self, plaintext: &[u8], output: &mut [u8]) -> io::Result<usize> {
        let session = &mut self.session;
        self.keys
            .with(|keys, number| keys.seal_into(number, session, plaintext, output))
            .map_err(session_error)
    }

    pub(crate) fn keep_unsent(&mut self, sealed: &[u8]) {
        if !sealed.is_empty() {
            self.flight_mut().unsent.push(sealed);
        }
    }

    /// After the handshake: whether the unsent bytes are only tickets, which the client does not wait for. It may wait
    /// until its own bytes are read, before it reads.
    pub(crate) fn owes_only_tickets(&self) -> bool {
        self.state().role() == Role::Server && self.state().version() == Version::Tls13
    }

    /// Whether something can still be sealed.
    pub(crate) fn check_writable(&self) -> io::Result<()> {
        let is_broken = self.flight().is_some_and(|flight| flight.is_broken);
        match is_broken || self.state().closed() {
            true => Err(session_error(SessionError::Closed)),
            false => Ok(()),
        }
    }

    /// Seals close_notify, once.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        if self.check_writable().is_ok() {
            self.session.close().map_err(session_error)?;
            self.note(None);
        }
        Ok(())
    }

    /// Records that the transport has failed while it sent: the peer would refuse later records.
    pub(crate) fn break_off(&mut self) {
        let flight = self.flight_mut();
        flight.is_broken = true;
        flight.unsent = Default::default();
        self.wake_reader();
    }

    /// Wakes the task that waits until nothing is unsent.
    pub(crate) fn wake_reader(&mut self) {
        let reader = self
            .flight
            .as_deref_mut()
            .and_then(|flight| flight.reader.take());
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

fn deliver(plaintext: &[u8], buf: Option<&mut ReadBuf<'_>>, flight: &mut Option<Box<InFlight>>) {
    let count = buf.map_or(0, |buf| put(plaintext, buf));
    if let Some(rest @ [_, ..]) = plaintext.get(count..) {
        flight.get_or_insert_default().plaintext.push(rest);
    }
}

pub(crate) fn end_error(end: End) -> io::Error {
    let kind = match &end {
        End::Closed | End::Truncated => ErrorKind::UnexpectedEof,
        End::Alert(_) | End::Refused(_) | End::Handshake(_) => ErrorKind::InvalidData,
    };
    io::Error::new(kind, end)
}

pub(crate) fn session_error(error: SessionError) -> io::Error {
    let kind = match error {
        SessionError::Closed | SessionError::Failed | SessionError::KeyExhausted => {
            ErrorKind::BrokenPipe
        }
        _ => ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
