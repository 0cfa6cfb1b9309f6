//! One connection to a server, made by hand: blocking, with everything looked at that passes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use dormouse_engine::{
    ClientContext, Handshake, HandshakeInfo, HandshakeLimits, TicketWatch, UnixTime, alert_name,
};
use dormouse_reactor::socket::Addr;

use super::super::connection::{Came, Established, RECEIVE, is_late, shake_hands};
use super::super::wire::{Reading, hello_extension};
use super::hello::{Answer, Ask, read_answer};

/// How long a server may take for anything.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
const ANSWER_MAX: usize = 256 * 1024;

/// A connected socket.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(super) fn connect(target: &Addr) -> io::Result<Self> {
        let stream = match target {
            Addr::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, PATIENCE)?;
                stream.set_nodelay(true)?;
                Self::Tcp(stream)
            }
            Addr::Unix(path) => Self::Unix(UnixStream::connect(path)?),
        };
        stream.patience(PATIENCE)?;
        Ok(stream)
    }

    pub(super) fn patience(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(time)),
            Self::Unix(stream) => stream.set_read_timeout(Some(time)),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(room),
            Self::Unix(stream) => stream.read(room),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends a hello of our own and reads the answer.
pub(super) fn ask(target: &Addr, ask: &Ask) -> Result<Answer, String> {
    let connected = Stream::connect(target).map_err(|error| format!("connect: {error}"));
    let mut stream = connected?;
    if stream.write_all(&ask.record()).is_err() {
        return Ok(Answer::Closed);
    }
    let (mut bytes, mut room) = (Vec::new(), [0; 4096]);
    while bytes.len() < ANSWER_MAX {
        match stream.read(&mut room) {
            Ok(0) => return Ok(Answer::Closed),
            Ok(count) => bytes.extend_from_slice(room.get(..count).unwrap_or_default()),
            Err(error) if is_late(&error) => return Ok(Answer::Silent),
            Err(_) => return Ok(Answer::Closed),
        }
        if let Some(answer) = read_answer(&bytes) {
            return Ok(answer);
        }
    }
    Ok(Answer::NotTls)
}

/// A ticket that a server sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket {
    pub(super) lifetime_s: u32,
    pub(super) early_data_max_bytes: u32,
}

/// An established connection.
pub(super) struct Visit {
    pub(super) info: HandshakeInfo,
    pub(super) chain: Vec<Vec<u8>>,
    /// Wall time of connecting and the handshake.
    pub(super) took: Duration,
    /// Tickets which came, as far as it was waited for them.
    pub(super) tickets: Vec<Ticket>,
    pub(super) connection: Established<Stream>,
    /// What was sent in the handshake, as it passed.
    pub(super) sent: Vec<u8>,
    watch: Option<TicketWatch>,
    ended: bool,
    refused: Option<u8>,
}

impl Visit {
    /// Connects and makes the handshake.
    pub(super) fn make(target: &Addr, context: &ClientContext, name: &str) -> Result<Self, String> {
        let began = Instant::now();
        let mut stream = Stream::connect(target).map_err(|error| format!("connect: {error}"))?;
        let mut handshake = Handshake::client(context, name, HandshakeLimits::default())
            .map_err(|error| error.to_string())?;
        let passed = shake_hands(&mut stream, &mut handshake, "the server", || false)?;
        let took = began.elapsed();
        let chain = handshake.peer_certificates();
        let (connection, rested) = Established::rest(stream, handshake)?;
        let mut visit = Self {
            info: rested.info,
            chain,
            took,
            tickets: ticket_in_the_clear(&passed.received).into_iter().collect(),
            connection,
            sent: passed.sent,
            watch: rested.tickets,
            ended: false,
            refused: None,
        };
        visit.open(&mut Vec::new())?;
        Ok(visit)
    }

    /// Says something.
    pub(super) fn say(&mut self, words: &[u8]) -> Result<(), String> {
        self.connection.say(words)
    }

    /// Hears what comes within this time, until `enough`.
    pub(super) fn hear(
        &mut self,
        time: Duration,
        enough: impl Fn(&[u8], usize) -> bool,
    ) -> Result<Vec<u8>, String> {
        let until = Instant::now() + time;
        let (mut heard, mut room) = (Vec::new(), vec![0; RECEIVE]);
        self.open(&mut heard)?;
        while !enough(&heard, self.tickets.len()) && !self.ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let patience = self.connection.stream.patience(left);
            patience.map_err(|error| error.to_string())?;
            match self.connection.receive(&mut room) {
                Ok(0) => self.ended = true,
                Ok(_) => self.open(&mut heard)?,
                Err(error) if is_late(&error) => break,
                Err(_) => self.ended = true,
            }
        }
        Ok(heard)
    }

    /// Waits for tickets, at least one; where none has come by then, none comes.
    pub(super) fn await_tickets(&mut self, time: Duration) {
        if self.tickets.is_empty() {
            let _ = self.hear(time, |_, tickets| tickets > 0);
        }
    }

    /// In TLS 1.3 a server judges a client's certificate, and that there is none, behind the handshake.
    ///
    /// # Errors
    /// When it has sent an alert, as far as was heard.
    pub(super) fn accepted(&self) -> Result<(), String> {
        match self.refused {
            None => Ok(()),
            Some(alert) => Err(format!(
                "the server ended the connection behind the handshake with the alert {}",
                alert_name(alert)
            )),
        }
    }

    /// Says goodbye.
    pub(super) fn close(mut self) {
        self.connection.close();
    }

    /// Opens all whole records that came.
    fn open(&mut self, heard: &mut Vec<u8>) -> Result<(), String> {
        let Self {
            connection,
            tickets,
            watch,
            ended,
            refused,
            ..
        } = self;
        connection.open(|came| {
            match came {
                Came::Data(data) => heard.extend_from_slice(data),
                Came::Tickets(fragment) => {
                    tickets.extend(tickets_13(fragment));
                    if let Some(watch) = watch {
                        watch
                            .handle_fragment(UnixTime::now(), fragment)
                            .map_err(|failure| failure.to_string())?;
                    }
                }
                Came::Alert(alert) => (*refused, *ended) = (Some(alert), true),
                Came::Closed => *ended = true,
            }
            Ok(())
        })
    }
}

/// NewSessionTicket messages (RFC 8446 §4.6.1) in one piece of a record.
fn tickets_13(fragment: &[u8]) -> Vec<Ticket> {
    let mut messages = Reading::new(fragment);
    let mut tickets = Vec::new();
    while let (Some(4), Some(body)) = (messages.u8(), messages.vec_24()) {
        let mut reading = Reading::new(body);
        let (Some(lifetime_s), Some(_), Some(_), Some(_)) = (
            reading.u32(),
            reading.u32(),
            reading.vec_8(),
            reading.vec_16(),
        ) else {
            break;
        };
        let mut early_data_max_bytes = 0;
        let mut extensions = Reading::new(reading.vec_16().unwrap_or_default());
        while let (Some(kind), Some(content)) = (extensions.u16(), extensions.vec_16()) {
            if kind == hello_extension::EARLY_DATA {
                early_data_max_bytes = Reading::new(content).u32().unwrap_or(0);
            }
        }
        tickets.push(Ticket {
            lifetime_s,
            early_data_max_bytes,
        });
    }
    tickets
}

/// The ticket of TLS 1.2 (RFC 5077 §3.3), which is sent before the change of keys.
fn ticket_in_the_clear(received: &[u8]) -> Option<Ticket> {
    let mut messages = Vec::new();
    let mut records = Reading::new(received);
    while let (Some(22), Some(_), Some(content)) = (records.u8(), records.u16(), records.vec_16()) {
        messages.extend_from_slice(content);
    }
    let mut reading = Reading::new(&messages);
    while let (Some(kind), Some(body)) = (reading.u8(), reading.vec_24()) {
        if kind == 4 {
            let lifetime_s = Reading::new(body).u32()?;
            return Some(Ticket {
                lifetime_s,
                early_data_max_bytes: 0,
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_with_early_data() {
        let mut message = vec![4, 0, 0, 23];
        message.extend_from_slice(&7200_u32.to_be_bytes());
        message.extend_from_slice(&[1, 2, 3, 4, 1, 0, 0, 1, 0xaa, 0, 8, 0, 42, 0, 4]);
        message.extend_from_slice(&16_384_u32.to_be_bytes());
        let expected = Ticket {
            lifetime_s: 7200,
            early_data_max_bytes: 16_384,
        };
        assert_eq!(tickets_13(&message), [expected]);
        assert_eq!(tickets_13(&message[..26]), []);
        let mut flight = vec![22, 3, 3, 0, message.len() as u8];
        flight.extend_from_slice(&message);
        assert_eq!(
            ticket_in_the_clear(&flight).map(|t| t.lifetime_s),
            Some(7200)
        );
    }
}
