//! One TLS connection over a blocking socket, used at the client's end for servers and at the server's end for
//! clients.

use std::io::{self, Read, Write};

use dormouse_engine::stream::{Connection, End, Event};
use dormouse_engine::{Handshake, HandshakeInfo, Progress, UnixTime};
use dormouse_record::{self as record, SealKey, State};

/// Size of the receive buffer: one complete record.
pub(super) const RECEIVE: usize = 17_000;

/// All bytes of a handshake.
#[derive(Default)]
pub(super) struct Transcript {
    pub(super) sent: Vec<u8>,
    pub(super) received: Vec<u8>,
}

/// Completes the handshake. `peer` names the other end in errors; `go_on` is called at each socket timeout and decides
/// whether to keep waiting.
pub(super) fn complete_handshake(
    stream: &mut (impl Read + Write),
    handshake: &mut Handshake,
    peer: &str,
    go_on: impl Fn() -> bool,
) -> Result<Transcript, String> {
    let words = |error: io::Error| format!("during the handshake: {error}");
    let (mut passed, mut room) = (Transcript::default(), vec![0; RECEIVE]);
    let mut received: &[u8] = &[];
    loop {
        // A client's handshake begins without input; a server's ignores empty input.
        let progress = handshake.handle_input(UnixTime::now(), received);
        stream.write_all(handshake.output()).map_err(words)?;
        passed.sent.extend_from_slice(handshake.output());
        handshake.output_sent(handshake.output().len());
        if progress.map_err(|failure| failure.reason)? == Progress::Established {
            return Ok(passed);
        }
        let count = loop {
            match stream.read(&mut room) {
                Ok(0) if passed.received.is_empty() => {
                    return Err(format!("{peer} closed the connection before the handshake"));
                }
                Ok(0) => return Err(format!("{peer} closed the connection during the handshake")),
                Ok(count) => break count,
                Err(error) if is_timeout(&error) && go_on() => {}
                Err(error) if is_timeout(&error) => {
                    return Err(format!(
                        "during the handshake: {peer} did not answer in time"
                    ));
                }
                Err(error) => return Err(words(error)),
            }
        };
        received = room.get(..count).unwrap_or_default();
        passed.received.extend_from_slice(received);
    }
}

/// Whether the error is a socket timeout.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Data received on an established connection.
pub(super) enum Incoming<'a> {
    /// Plaintext.
    Data(&'a [u8]),
    /// Bytes of NewSessionTicket messages.
    Tickets(&'a [u8]),
    /// A fatal alert: the connection is over.
    Alert(u8),
    /// The peer has closed its side of the connection.
    Closed,
}

/// Records with application data that a connection has received.
#[derive(Clone, Copy, Default)]
pub(super) struct DataRecords {
    pub(super) records: u64,
    pub(super) content_bytes: u64,
    pub(super) wire_bytes: u64,
}

/// An established connection.
pub(super) struct TlsConnection<S> {
    pub(super) stream: S,
    tls: Box<State>,
    connection: Connection,
    /// Received bytes that are not opened yet.
    received: Vec<u8>,
    data: DataRecords,
    /// Received bytes of a record that is not whole yet.
    begun_bytes: u64,
}

impl<S: Read + Write> TlsConnection<S> {
    /// Creates the connection from a completed handshake.
    pub(super) fn rest(stream: S, handshake: Handshake) -> Result<(Self, HandshakeInfo), String> {
        let mut tls = Box::new(State::empty());
        let rested = handshake.rest(&mut tls);
        let rested = rested.map_err(|failure| failure.reason)?;
        let (connection, info) = Connection::established(rested);
        let mut established = Self {
            stream,
            tls,
            connection,
            received: Vec::new(),
            data: DataRecords::default(),
            begun_bytes: 0,
        };
        let sent = established.flush();
        sent.map_err(|error| format!("during the handshake: {error}"))?;
        Ok((established, info))
    }

    #[cfg(test)]
    pub(super) fn of(stream: S, tls: State) -> Self {
        Self {
            stream,
            tls: Box::new(tls),
            connection: Connection::default(),
            received: Vec::new(),
            data: DataRecords::default(),
            begun_bytes: 0,
        }
    }

    pub(super) fn tls(&self) -> &State {
        &self.tls
    }

    /// Returns the records with application data so far.
    pub(super) fn data_records(&self) -> DataRecords {
        self.data
    }

    /// Sends plaintext.
    pub(super) fn say(&mut self, words: &[u8]) -> Result<(), String> {
        self.seal(words)?;
        self.flush().map_err(|error| format!("sending: {error}"))
    }

    /// Seals plaintext, for [`TlsConnection::send_some`].
    pub(super) fn seal(&mut self, words: &[u8]) -> Result<(), String> {
        let sealed = self.connection.send(&mut self.tls, words);
        sealed.map_err(|error| error.to_string())
    }

    /// Sends as many sealed bytes as the stream takes before its timeout. Returns whether that is all of them.
    pub(super) fn send_some(&mut self) -> Result<bool, String> {
        match self.flush() {
            Ok(()) => Ok(true),
            Err(error) if is_timeout(&error) => Ok(false),
            Err(error) => Err(format!("sending: {error}")),
        }
    }

    /// Sends a record of any content type.
    pub(super) fn send(&mut self, content_type: u8, content: &[u8]) -> Result<(), String> {
        let words = |error: io::Error| format!("sending: {error}");
        self.flush().map_err(words)?;
        let mut key = SealKey::new(&self.tls);
        let room = record::record_room(&self.tls);
        let mut out = vec![0; room.header + content.len() + room.trailer];
        if let Some(place) = out.get_mut(room.header..room.header + content.len()) {
            place.copy_from_slice(content);
        }
        let length = content.len();
        let sealed =
            record::seal_record(&mut self.tls, &mut key, &mut out, content_type, length, 0);
        let sealed = sealed.map_err(|error| error.to_string())?;
        let sent = self.stream.write_all(out.get(..sealed).unwrap_or_default());
        sent.map_err(words)
    }

    /// Sends close_notify.
    pub(super) fn close(&mut self) {
        self.connection.close(&mut self.tls);
        let _ = self.flush();
    }

    /// Receives once and returns the number of bytes.
    pub(super) fn receive(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(room)?;
        self.received
            .extend_from_slice(room.get(..count).unwrap_or_default());
        Ok(count)
    }

    /// Takes the received bytes that are not opened yet.
    pub(super) fn take_unopened(&mut self) -> Vec<u8> {
        let mut unopened = self.connection.take_unopened();
        unopened.append(&mut self.received);
        unopened
    }

    /// Opens all complete records received so far and sends the replies that the protocol requires.
    pub(super) fn open(
        &mut self,
        mut each: impl FnMut(Incoming<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut bytes = std::mem::take(&mut self.received);
        let mut input = bytes.as_mut_slice();
        let outcome = loop {
            let (now, before) = (UnixTime::now(), input.len());
            let event = self.connection.handle(&mut self.tls, now, &mut input);
            self.begun_bytes += (before - input.len()) as u64;
            let incoming = match event {
                Event::InputUsed => break Ok(()),
                Event::Established(_) => continue,
                Event::Data(data) => {
                    self.data.records += 1;
                    self.data.content_bytes += data.len() as u64;
                    self.data.wire_bytes += std::mem::take(&mut self.begun_bytes);
                    Incoming::Data(data)
                }
                Event::Ticket(fragment) => {
                    self.begun_bytes = 0;
                    Incoming::Tickets(fragment)
                }
                Event::Ended(End::Closed | End::Truncated) => break each(Incoming::Closed),
                Event::Ended(End::Alert(number)) => break each(Incoming::Alert(number)),
                Event::Ended(end) => break Err(end.to_string()),
            };
            each(incoming)?;
        };
        // A peer that has disconnected does not need the reply.
        let _ = self.flush();
        outcome
    }

    /// Sends everything that is sealed; what is left after an error can be sent later.
    fn flush(&mut self) -> io::Result<()> {
        while !self.connection.output().is_empty() {
            match self.stream.write(self.connection.output()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.connection.output_sent(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
