//! A blocking connection to a server whose bytes are all recorded.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use dormouse_engine::messages::content_type::HANDSHAKE;
use dormouse_engine::messages::handshake_type::NEW_SESSION_TICKET;
use dormouse_engine::messages::{Reader, extension};
use dormouse_engine::{ClientContext, Handshake, HandshakeInfo, HandshakeLimits, alert_name};
use dormouse_reactor::socket::{Addr, connect_unix};

use super::dialer::Dialer;
use super::probe_hello::{HelloAnswer, ProbeHello, read_answer};
use crate::connection::{Incoming, RECEIVE, TlsConnection, complete_handshake, is_timeout};
use dormouse_bench::load::Dialogue;
use dormouse_measure::Interrupts;

/// Maximum wait for any step.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
const ANSWER_MAX: usize = 256 * 1024;
/// Bytes of application data after which no more are awaited.
const HEARD_MAX: usize = 4 << 20;
/// Interval between two looks for an interrupt.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A connected socket, and the time by which its peer must have answered. A timeout of each read alone would let a
/// server that drips bytes hold the audit forever.
pub(super) struct Socket {
    stream: Stream,
    until: Option<Instant>,
    interrupts: Option<Interrupts>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(super) fn connect(target: &Addr, patience: Duration) -> io::Result<Self> {
        let stream = match target {
            Addr::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, patience)?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(patience))?;
                Stream::Tcp(stream)
            }
            Addr::Unix(path) => Stream::Unix(connect_unix(path, patience)?),
        };
        let mut socket = Self {
            stream,
            until: None,
            interrupts: None,
        };
        socket.patience(patience);
        Ok(socket)
    }

    #[cfg(test)]
    fn of(stream: UnixStream) -> Self {
        Self {
            stream: Stream::Unix(stream),
            until: None,
            interrupts: None,
        }
    }

    /// Connects, and brings a server that begins in plaintext to the start of the handshake.
    fn open(dialer: &Dialer<'_>) -> Result<Self, String> {
        let patience = dialer.patience(PATIENCE);
        let mut stream =
            Self::connect(dialer.target, patience).map_err(|error| format!("connect: {error}"))?;
        stream.interrupts = Some(dialer.interrupts.clone());
        if let Some(protocol) = dialer.starttls {
            stream.start_tls(Dialogue::new(protocol, dialer.name))?;
        }
        Ok(stream)
    }

    fn start_tls(&mut self, mut dialogue: Dialogue) -> Result<(), String> {
        let mut room = [0; 4096];
        loop {
            self.write_all(dialogue.output())
                .map_err(|error| format!("STARTTLS: {error}"))?;
            dialogue.output_sent(dialogue.output().len());
            if dialogue.is_done() {
                return Ok(());
            }
            match self.read(&mut room) {
                Ok(0) => return Err("STARTTLS: the server closed the connection".into()),
                Ok(count) => dialogue.handle_input(room.get(..count).unwrap_or_default())?,
                Err(error) if is_timeout(&error) => {
                    return Err("STARTTLS: the server did not answer in time".into());
                }
                Err(error) => return Err(format!("STARTTLS: {error}")),
            }
        }
    }

    /// Lets all following reads together take this time.
    pub(super) fn patience(&mut self, time: Duration) {
        self.until = Instant::now().checked_add(time);
    }

    fn time_left(&self) -> io::Result<Option<Duration>> {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        match self.until.map(left) {
            Some(left) if left.is_zero() => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupts.as_ref().is_some_and(Interrupts::arrived)
    }

    fn read_within(&mut self, time: Duration, room: &mut [u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(time))?;
                stream.read(room)
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(time))?;
                stream.read(room)
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.time_left()?.unwrap_or(LOOK_EVERY);
            if self.is_interrupted() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match self.read_within(left.min(LOOK_EVERY), room) {
                Err(error) if is_timeout(&error) => {}
                ended => return ended,
            }
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends a handmade ClientHello and reads the answer.
pub(super) fn ask(dialer: &Dialer<'_>, ask: &ProbeHello) -> Result<HelloAnswer, String> {
    let mut stream = Socket::open(dialer)?;
    if stream.write_all(&ask.record()).is_err() {
        return Ok(HelloAnswer::Closed);
    }
    let (mut bytes, mut room) = (Vec::new(), [0; 4096]);
    while bytes.len() < ANSWER_MAX {
        match stream.read(&mut room) {
            Ok(0) => return Ok(HelloAnswer::Closed),
            Ok(count) => bytes.extend_from_slice(room.get(..count).unwrap_or_default()),
            Err(error) if is_timeout(&error) => return Ok(HelloAnswer::Silent),
            Err(_) => return Ok(HelloAnswer::Closed),
        }
        if let Some(answer) = read_answer(&bytes) {
            return Ok(answer);
        }
    }
    Ok(HelloAnswer::NotTls)
}

/// A ticket that a server sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket {
    pub(super) lifetime_s: u32,
    pub(super) early_data_max_bytes: u32,
}

/// An established connection.
pub(super) struct ProbeConnection {
    pub(super) info: HandshakeInfo,
    pub(super) chain: Vec<Vec<u8>>,
    /// Wall time from the TCP connect to the end of the handshake.
    pub(super) took: Duration,
    /// Tickets received while the connection waited for them.
    pub(super) tickets: Vec<Ticket>,
    pub(super) connection: TlsConnection<Socket>,
    /// Bytes sent during the handshake.
    pub(super) sent: Vec<u8>,
    ended: bool,
    refused: Option<u8>,
}

impl ProbeConnection {
    /// Connects and completes the handshake.
    pub(super) fn make(dialer: &Dialer<'_>, context: &ClientContext) -> Result<Self, String> {
        let began = Instant::now();
        let mut stream = Socket::open(dialer)?;
        let mut handshake = Handshake::client(context, dialer.name, HandshakeLimits::default())
            .map_err(|error| error.to_string())?;
        let passed = complete_handshake(&mut stream, &mut handshake, "the server", || false)?;
        let took = began.elapsed();
        let chain = handshake.peer_certificates();
        let (connection, info) = TlsConnection::rest(stream, handshake)?;
        let mut visit = Self {
            info,
            chain,
            took,
            tickets: ticket_in_the_clear(&passed.received).into_iter().collect(),
            connection,
            sent: passed.sent,
            ended: false,
            refused: None,
        };
        visit.open(&mut Vec::new())?;
        Ok(visit)
    }

    /// Sends application data.
    pub(super) fn say(&mut self, words: &[u8]) -> Result<(), String> {
        self.connection.say(words)
    }

    /// Receives application data until `enough` returns true or the time is over.
    pub(super) fn hear(
        &mut self,
        time: Duration,
        enough: impl Fn(&[u8], usize) -> bool,
    ) -> Result<Vec<u8>, String> {
        let until = Instant::now() + time;
        let (mut heard, mut room) = (Vec::new(), vec![0; RECEIVE]);
        self.open(&mut heard)?;
        while !enough(&heard, self.tickets.len()) && !self.ended && heard.len() < HEARD_MAX {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.connection.stream.patience(left);
            match self.connection.receive(&mut room) {
                Ok(0) => self.ended = true,
                Ok(_) => self.open(&mut heard)?,
                Err(error) if is_timeout(&error) => break,
                Err(_) => self.ended = true,
            }
        }
        Ok(heard)
    }

    /// Waits for at least one ticket. If none arrives in time, the server is assumed to send none.
    pub(super) fn await_tickets(&mut self, time: Duration) {
        if self.tickets.is_empty() {
            let _ = self.hear(time, |_, tickets| tickets > 0);
        }
    }

    /// Waits for tickets and if none arrives sends a request, because BoringSSL sends its tickets with its first
    /// answer.
    pub(super) fn await_tickets_or_ask(&mut self, words: &[u8], time: Duration) {
        self.await_tickets(time);
        if self.tickets.is_empty() && !time.is_zero() && self.say(words).is_ok() {
            self.await_tickets(time);
        }
    }

    /// Checks that the server has not rejected the client. In TLS 1.3 a server judges the client's certificate, or its
    /// absence, after the handshake.
    ///
    /// # Errors
    /// If the server has sent an alert in what was received so far.
    pub(super) fn accepted(&self) -> Result<(), String> {
        match self.refused {
            None => Ok(()),
            Some(alert) => Err(format!(
                "the server closed the connection after the handshake with the alert {}",
                alert_name(alert)
            )),
        }
    }

    /// Closes the connection with close_notify.
    pub(super) fn close(mut self) {
        self.connection.close();
    }

    /// Opens all complete records received so far.
    fn open(&mut self, heard: &mut Vec<u8>) -> Result<(), String> {
        let Self {
            connection,
            tickets,
            ended,
            refused,
            ..
        } = self;
        connection.open(|came| {
            match came {
                Incoming::Data(data) => heard.extend_from_slice(data),
                Incoming::Tickets(fragment) => tickets.extend(tickets_13(fragment)),
                Incoming::Alert(alert) => (*refused, *ended) = (Some(alert), true),
                Incoming::Closed => *ended = true,
            }
            Ok(())
        })
    }
}

/// Parses the NewSessionTicket messages (RFC 8446 §4.6.1) in a record fragment.
fn tickets_13(fragment: &[u8]) -> Vec<Ticket> {
    let mut messages = Reader::new(fragment);
    let mut tickets = Vec::new();
    while let (Some(NEW_SESSION_TICKET), Some(body)) = (messages.u8(), messages.vector24()) {
        let mut reading = Reader::new(body);
        let (Some(lifetime_s), Some(_), Some(_), Some(_)) = (
            reading.u32(),
            reading.u32(),
            reading.vector8(),
            reading.vector16(),
        ) else {
            break;
        };
        let mut early_data_max_bytes = 0;
        let mut extensions = Reader::new(reading.vector16().unwrap_or_default());
        while let (Some(kind), Some(content)) = (extensions.u16(), extensions.vector16()) {
            if kind == extension::EARLY_DATA {
                early_data_max_bytes = Reader::new(content).u32().unwrap_or(0);
            }
        }
        tickets.push(Ticket {
            lifetime_s,
            early_data_max_bytes,
        });
    }
    tickets
}

/// Finds the TLS 1.2 ticket (RFC 5077 §3.3), which the server sends before ChangeCipherSpec.
fn ticket_in_the_clear(received: &[u8]) -> Option<Ticket> {
    let mut messages = Vec::new();
    let mut records = Reader::new(received);
    while let (Some(HANDSHAKE), Some(_), Some(content)) =
        (records.u8(), records.u16(), records.vector16())
    {
        messages.extend_from_slice(content);
    }
    let mut reading = Reader::new(&messages);
    while let (Some(kind), Some(body)) = (reading.u8(), reading.vector24()) {
        if kind == NEW_SESSION_TICKET {
            let lifetime_s = Reader::new(body).u32()?;
            return Some(Ticket {
                lifetime_s,
                early_data_max_bytes: 0,
            });
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use dormouse_engine::{Flights, Version};
    use dormouse_record::{Role, State, Suite};

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

    /// Recorded bytes of Netty with tcnative 2.0 (BoringSSL): two tickets in one record, sent only after its first
    /// answer.
    const BORINGSSL: &str = "\
        040000b20002a300d0799ab9010000a068b7e4c65063ccd98f0b5fc6dced90a421521b9bd9af346f2b32\
        efed3f60d69fb0c880aadf7a336c60812eff69b482372607ca8c1084160133950ad2b59eef280a64648b\
        0bc6d92111264426b9d07b31c25a3c25910d04ebed4b68de6f2dc5c637076b7ede4d24c739d7f128209a\
        65cdd811e54e86aff58e5bcb900920533c7d43b6eabeb653cfec8a87482723b6e278f6506968b0155549\
        c632f4144cf5aecb00042a2a0000040000b20002a3008edbc562010100a068b7e4c65063ccd98f0b5fc6\
        dced90a4eea1d021cf2333f6e719c1cc3f921071c060401baddeb5fe0b3db5d5d2f503d1eb18448e71eb\
        910b15e5a7070ef890bd888da981bf94ee6d3aa7f68768667ca4383c355af2d8d6ce8f63fff254e50e2c\
        ba4c5516d080a84a0d8b75d698e94a1d4fffeb9c7b1aa8632e76e255d8afc36c72e4d0e6915a2017ac1e\
        a025c473fa2cd4d4a7b97e2c8388084ddf70241dae7600042a2a0000";

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |byte: &u8| (*byte as char).to_digit(16).unwrap() as u8;
        let pairs = hex.as_bytes().chunks_exact(2);
        pairs
            .map(|pair| digit(&pair[0]) << 4 | digit(&pair[1]))
            .collect()
    }

    /// Both ends of a TLS 1.3 connection after the handshake.
    fn behind_the_handshake() -> (ProbeConnection, TlsConnection<UnixStream>) {
        let tls = |role, read: u8, write: u8| {
            let mut tls = State::empty();
            let suite = Suite::Aes128GcmSha256;
            tls.establish_tls13(role, suite, &[read; 32], 0, &[write; 32], 0)
                .unwrap();
            tls
        };
        connected(
            Version::Tls13,
            tls(Role::Client, 1, 2),
            tls(Role::Server, 2, 1),
        )
    }

    /// Both ends of a connection with these states.
    pub(in crate::server) fn connected(
        protocol: Version,
        client: State,
        server: State,
    ) -> (ProbeConnection, TlsConnection<UnixStream>) {
        let (near, far) = UnixStream::pair().unwrap();
        let info = HandshakeInfo {
            protocol,
            suite: "TLS13_AES_128_GCM_SHA256",
            group: None,
            sni: None,
            alpn: None,
            resumed: false,
            retried: false,
            signature: None,
            verified: false,
            client: None,
            client_name: None,
            client_certificate: None,
            standing: None,
            peer_certificates: Vec::new(),
            own_certificate_sent: false,
            exporter: None,
            algorithms: None,
            fingerprint: None,
            refused: None,
            ticket_withheld: false,
            bytes_in: 0,
            bytes_out: 0,
            flights: Flights::default(),
        };
        let visit = ProbeConnection {
            info,
            chain: Vec::new(),
            took: Duration::ZERO,
            tickets: Vec::new(),
            connection: TlsConnection::of(Socket::of(near), client),
            sent: Vec::new(),
            ended: false,
            refused: None,
        };
        (visit, TlsConnection::of(far, server))
    }

    #[test]
    fn an_endless_answer_is_not_kept() {
        let (mut visit, mut server) = behind_the_handshake();
        let serving = std::thread::spawn(move || while server.say(&[b'-'; 16_000]).is_ok() {});
        let heard = visit.hear(Duration::from_secs(60), |_, _| false).unwrap();
        assert!(heard.len() < 2 * HEARD_MAX, "{}", heard.len());
        drop(visit);
        serving.join().unwrap();
    }

    /// A tarpit: each byte arrives in time, but the answer never does.
    #[test]
    fn a_server_that_drips_bytes_has_no_more_time_than_a_silent_one() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let dripping = std::thread::spawn(move || {
            while far.write_all(b"\x16").is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut socket = Socket::of(near);
        socket.patience(Duration::from_millis(50));
        let end = (0..2_000).find_map(|_| socket.read(&mut [0; 1]).err());
        assert!(end.is_some_and(|error| is_timeout(&error)));
        drop(socket);
        dripping.join().unwrap();
    }

    #[test]
    fn tickets_that_arrive_with_the_first_answer() {
        let (mut visit, mut server) = behind_the_handshake();
        let serving = std::thread::spawn(move || {
            let mut heard = Vec::new();
            while heard.is_empty() {
                server.receive(&mut [0; RECEIVE]).unwrap();
                server
                    .open(|came| {
                        if let Incoming::Data(data) = came {
                            heard.extend_from_slice(data);
                        }
                        Ok(())
                    })
                    .unwrap();
            }
            server.send(HANDSHAKE, &bytes(BORINGSSL)).unwrap();
            server.say(&heard).unwrap();
            (server, heard)
        });
        // The server sends no ticket unasked, however long the client waits.
        visit.await_tickets(Duration::from_millis(20));
        assert_eq!(visit.tickets, []);
        // Without waiting time no request is sent either.
        visit.await_tickets_or_ask(b"hello\n", Duration::ZERO);
        assert_eq!(visit.tickets, []);
        visit.await_tickets_or_ask(b"hello\n", Duration::from_millis(500));
        let ticket = Ticket {
            lifetime_s: 172_800,
            early_data_max_bytes: 0,
        };
        assert_eq!(visit.tickets, [ticket; 2]);
        let (_server, heard) = serving.join().unwrap();
        assert_eq!(heard, b"hello\n");
    }
}
