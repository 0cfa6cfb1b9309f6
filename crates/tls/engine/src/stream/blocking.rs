//! TLS over a blocking transport, with the traits of `std::io`.

use std::borrow::BorrowMut;
use std::io::{self, ErrorKind, Read, Write};

use dormouse_record::{CONTENT_MAX, State};
use rustls_pki_types::UnixTime;

use super::connection::{Connection, Event};
use super::end::End;
use crate::handshake::info::HandshakeInfo;

/// Maximum bytes per receive call.
const RECEIVE_MAX: usize = 16_384;

/// A TLS connection over a blocking transport.
///
/// Reading returns `Ok(0)` only after close_notify; every other end is an error that carries the [`End`]
/// ([`End::Truncated`] is `UnexpectedEof`). Dropping the stream sends nothing to the peer: call
/// [`BlockingStream::close`].
///
/// `M` holds the state: a `Box<State>`, or a `&mut State` in the caller's memory.
pub struct BlockingStream<T, M> {
    transport: T,
    state: M,
    connection: Connection,
    clock: fn() -> UnixTime,
    /// Plaintext that was opened but not read yet.
    opened: Vec<u8>,
}

impl<T: Read + Write, M: BorrowMut<State>> BlockingStream<T, M> {
    /// Creates a stream. `clock` returns the time (`UnixTime::now`).
    pub fn new(transport: T, connection: Connection, state: M, clock: fn() -> UnixTime) -> Self {
        BlockingStream {
            transport,
            state,
            connection,
            clock,
            opened: Vec::new(),
        }
    }

    /// Completes the handshake.
    pub fn handshake(&mut self) -> io::Result<Box<HandshakeInfo>> {
        let mut received = [0; RECEIVE_MAX];
        let mut count = 0;
        loop {
            let mut input = received.get_mut(..count).unwrap_or_default();
            let event = self
                .connection
                .handle(self.state.borrow_mut(), (self.clock)(), &mut input);
            let outcome = match event {
                Event::Established(info) => Some(Ok(info)),
                Event::Ended(end) => Some(Err(error(end))),
                Event::InputUsed | Event::Data(_) | Event::Ticket(_) => None,
            };
            let flushed = self.flush();
            match outcome {
                Some(Ok(info)) => return flushed.map(|()| info),
                // The alert is sent if possible; the reason is returned in any case.
                Some(Err(error)) => return Err(error),
                None => flushed?,
            }
            count = self.receive(&mut received)?;
        }
    }

    /// Sends close_notify. Reading continues until the peer's close_notify.
    pub fn close(&mut self) -> io::Result<()> {
        self.connection.close(self.state.borrow_mut());
        self.flush()
    }

    /// Returns the transport.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Returns the state.
    pub fn state(&self) -> &State {
        self.state.borrow()
    }

    /// Returns the connection's data in flight.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    fn receive(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.transport.read(room) {
                Ok(0) => return Err(error(self.connection.handle_eof(self.state.borrow()))),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Opens received bytes. Returns `None` if there is no plaintext yet.
    fn open(&mut self, received: &mut [u8]) -> Option<End> {
        let mut input = received;
        loop {
            let state = self.state.borrow_mut();
            match self.connection.handle(state, (self.clock)(), &mut input) {
                Event::InputUsed => return None,
                Event::Ended(end) => return Some(end),
                Event::Data(data) => self.opened.extend_from_slice(data),
                Event::Established(_) | Event::Ticket(_) => {}
            }
        }
    }
}

impl<T: Read + Write, M: BorrowMut<State>> Read for BlockingStream<T, M> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut received = [0; RECEIVE_MAX];
        let mut count = 0;
        while self.opened.is_empty() && !room.is_empty() {
            // The first pass has no input: plaintext may have arrived with the handshake.
            let end = self.open(received.get_mut(..count).unwrap_or_default());
            let flushed = self.flush();
            match end {
                // Plaintext before the end is read first; the next call finds the end again.
                _ if !self.opened.is_empty() => break,
                Some(End::Closed) => return Ok(0),
                Some(end) => return Err(error(end)),
                None => flushed?,
            }
            count = self.receive(&mut received)?;
        }
        let count = self.opened.as_slice().read(room)?;
        self.opened.drain(..count);
        if self.opened.is_empty() {
            self.opened = Vec::new();
        }
        Ok(count)
    }
}

impl<T: Read + Write, M: BorrowMut<State>> Write for BlockingStream<T, M> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Output of an earlier call goes first.
        self.flush()?;
        let piece = bytes
            .get(..CONTENT_MAX.min(bytes.len()))
            .unwrap_or_default();
        let sealed = self.connection.send(self.state.borrow_mut(), piece);
        sealed.map_err(|error| io::Error::new(ErrorKind::BrokenPipe, error))?;
        // The piece is sealed, so it must not be written again, even if the transport fails now. The next call finds
        // the error if it lasts.
        let _ = self.flush();
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.connection.output().is_empty() {
            match self.transport.write(self.connection.output()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.connection.output_sent(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.transport.flush()
    }
}

fn error(end: End) -> io::Error {
    let kind = match &end {
        End::Closed | End::Truncated => ErrorKind::UnexpectedEof,
        End::Alert(_) => ErrorKind::ConnectionAborted,
        End::Refused(_) | End::Handshake(_) => ErrorKind::InvalidData,
    };
    io::Error::new(kind, end)
}

impl<T, M> std::fmt::Debug for BlockingStream<T, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockingStream")
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_record::{OpenKey, Opened, Role, Suite, open};

    /// A transport whose first write times out.
    #[derive(Default)]
    struct Slow {
        has_timed_out: bool,
        written: Vec<u8>,
    }

    impl Read for Slow {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(ErrorKind::TimedOut.into())
        }
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !std::mem::replace(&mut self.has_timed_out, true) {
                return Err(ErrorKind::TimedOut.into());
            }
            self.written.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Bytes for which an error was returned have not been written, so a caller may write them again.
    #[test]
    fn no_byte_is_sent_twice_after_a_timeout() {
        let suite = Suite::Aes128GcmSha256;
        let mut state = State::empty();
        let mut peer = State::empty();
        let established = state.establish_tls13(Role::Client, suite, &[1; 32], 0, &[2; 32], 0);
        established.unwrap();
        let established = peer.establish_tls13(Role::Server, suite, &[2; 32], 0, &[1; 32], 0);
        established.unwrap();
        let connection = Connection::default();
        let mut stream =
            BlockingStream::new(Slow::default(), connection, &mut state, UnixTime::now);
        let written = (0..2).find_map(|_| stream.write(b"hello").ok());
        assert_eq!(written, Some(5));
        stream.flush().unwrap();
        let wire = &mut stream.transport().written;
        let mut key = OpenKey::new(&peer);
        let record = match open(&mut peer, &mut key, wire) {
            Ok(Opened::Data { consumed, .. }) => consumed,
            other => panic!("{other:?}"),
        };
        assert_eq!(record, wire.len(), "one record");
    }
}
