//! One connection to a server, made by hand: blocking, with everything looked at that passes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use dormouse_engine::{
    ClientContext, Handshake, HandshakeInfo, HandshakeLimits, Progress, TicketWatch, UnixTime,
    alert_name,
};
use dormouse_reactor::socket::Addr;
use dormouse_record::{self as record, OpenKey, Opened, SealKey, State};

use super::super::wire::{Reading, hello_extension};
use super::hello::{Answer, Ask, read_answer};

/// How long a server may take for anything.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
const RECEIVE: usize = 17_000;
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

    fn patience(&self, time: Duration) -> io::Result<()> {
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

fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
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
    stream: Stream,
    tls: Box<State>,
    watch: Option<TicketWatch>,
    partial: Vec<u8>,
    ended: bool,
    refused: Option<u8>,
}

impl Visit {
    /// Connects and makes the handshake.
    pub(super) fn make(target: &Addr, context: &ClientContext, name: &str) -> Result<Self, String> {
        let began = Instant::now();
        let words = |error: io::Error| format!("during the handshake: {error}");
        let mut stream = Stream::connect(target).map_err(|error| format!("connect: {error}"))?;
        let mut handshake = Handshake::client(context, name, HandshakeLimits::default())
            .map_err(|error| error.to_string())?;
        let mut tickets = Vec::new();
        let (mut clear, mut room) = (Vec::new(), vec![0; RECEIVE]);
        let mut received: &[u8] = &[];
        loop {
            let progress = handshake.handle_input(UnixTime::now(), received);
            stream.write_all(handshake.output()).map_err(words)?;
            let sent = handshake.output().len();
            handshake.output_sent(sent);
            if progress.map_err(|failure| failure.to_string())? == Progress::Established {
                break;
            }
            let count = match stream.read(&mut room).map_err(words)? {
                0 => return Err("the server closed the connection during the handshake".into()),
                count => count,
            };
            received = room.get(..count).unwrap_or_default();
            clear.extend_from_slice(received);
        }
        let took = began.elapsed();
        let chain = handshake.peer_certificates();
        tickets.extend(ticket_in_the_clear(&clear));
        let mut tls: Box<State> = Box::new(State::empty());
        let rested = handshake
            .rest(&mut tls)
            .map_err(|failure| failure.to_string())?;
        stream.write_all(&rested.unsent).map_err(words)?;
        let mut visit = Self {
            info: rested.info,
            chain,
            took,
            tickets,
            stream,
            tls,
            watch: rested.tickets,
            partial: rested.leftover,
            ended: false,
            refused: None,
        };
        visit.open(&mut Vec::new())?;
        Ok(visit)
    }

    /// Says something.
    pub(super) fn say(&mut self, words: &[u8]) -> Result<(), String> {
        let mut key = SealKey::new(&self.tls);
        let room = record::record_room(&self.tls);
        let mut out = vec![0; room.header + words.len() + room.trailer];
        if let Some(content) = out.get_mut(room.header..room.header + words.len()) {
            content.copy_from_slice(words);
        }
        let len = record::seal_in_place(&mut self.tls, &mut key, &mut out, words.len())
            .map_err(|error| error.to_string())?;
        let sealed = out.get(..len).unwrap_or_default();
        self.stream
            .write_all(sealed)
            .map_err(|error| format!("sending: {error}"))
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
            self.stream
                .patience(left)
                .map_err(|error| error.to_string())?;
            match self.stream.read(&mut room) {
                Ok(0) => self.ended = true,
                Ok(count) => {
                    self.partial
                        .extend_from_slice(room.get(..count).unwrap_or_default());
                    self.open(&mut heard)?;
                }
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
        let mut key = SealKey::new(&self.tls);
        let mut out = [0; record::SMALL_RECORD_MAX];
        if let Ok(len) = record::seal_alert(
            &mut self.tls,
            &mut key,
            record::Alert::CLOSE_NOTIFY,
            &mut out,
        ) {
            let _ = self.stream.write_all(out.get(..len).unwrap_or_default());
        }
    }

    /// Opens all whole records that came.
    fn open(&mut self, heard: &mut Vec<u8>) -> Result<(), String> {
        let mut bytes = std::mem::take(&mut self.partial);
        let mut key = OpenKey::new(&self.tls);
        let mut at = 0;
        while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
            let opened = record::open(&mut self.tls, &mut key, rest)
                .map_err(|refusal| format!("record refused: {refusal}"))?;
            at += match opened {
                Opened::Partial { .. } => break,
                Opened::Data {
                    consumed,
                    plaintext,
                } => {
                    heard.extend_from_slice(rest.get(plaintext).unwrap_or_default());
                    consumed
                }
                Opened::Ticket { consumed, fragment } => {
                    let fragment = rest.get(fragment).unwrap_or_default();
                    self.tickets.extend(tickets_13(fragment));
                    if let Some(watch) = &mut self.watch {
                        watch
                            .handle_fragment(UnixTime::now(), fragment)
                            .map_err(|failure| failure.to_string())?;
                    }
                    consumed
                }
                Opened::Handled { consumed } | Opened::NoRenegotiation { consumed } => consumed,
                Opened::PeerAlert {
                    consumed,
                    description: alert,
                } => {
                    self.refused = Some(alert);
                    self.ended = true;
                    consumed
                }
                Opened::PeerClosed { consumed } => {
                    self.ended = true;
                    consumed
                }
            };
        }
        self.partial = bytes.split_off(at);
        Ok(())
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
