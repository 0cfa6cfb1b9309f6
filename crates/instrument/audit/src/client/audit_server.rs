//! The server to which an audited client connects: our engine, one thread per connection, and a log of all
//! connections.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dormouse_engine::{Handshake, HandshakeLimits, ServerContext, ServerSettings};

use super::authority::Authority;
use super::client_hello::{self, ClientHello};
use super::openers::Openers;
use super::requests::{ClientMessage, Requests};
use super::session_ids::SessionIdStore;
use crate::connection::{Incoming, TlsConnection, complete_handshake, is_timeout};
use crate::model::ClientConnection;
use dormouse_measure::Error;

/// Maximum number of concurrent connections; further clients wait.
const THREADS_MAX: usize = 1024;
/// Maximum number of recorded connections. Further ones are served, too.
const VISITS_MAX: usize = 100_000;
/// Bytes for a backend from which on no more are received from the client.
const UNSENT_MAX: usize = 1 << 20;
/// How long a backend may pause while it takes the last bytes of a client that has closed.
const LAST_BYTES_WAIT: Duration = Duration::from_secs(5);
/// Wait for a client before the backend is looked at: for its bytes, or for room for those of the backend.
const TURN: Duration = Duration::from_millis(2);
/// Maximum number of reads from a backend before the client is looked at.
const READS_PER_TURN: usize = 64;
const IDLE: Duration = Duration::from_millis(200);
/// Maximum number of recorded failed handshakes.
const IN_VAIN_MAX: usize = 1000;
/// Maximum bytes kept of a client's first data until its ClientHello is complete.
const HELLO_MAX: usize = 64 * 1024;

/// One recorded connection, with details that are not in the report.
pub(super) struct RecordedConnection {
    pub(super) raw: ClientConnection,
    pub(super) hello: ClientHello,
    pub(super) retried: bool,
}

/// All recorded connections.
pub(super) struct ConnectionLog {
    pub(super) visits: Vec<RecordedConnection>,
    pub(super) visits_max: usize,
    /// Number of connections after the recorded ones.
    pub(super) unrecorded: u64,
    pub(super) failed: BTreeMap<String, u64>,
    /// ClientHellos of failed handshakes.
    pub(super) in_vain: Vec<ClientHello>,
}

impl Default for ConnectionLog {
    fn default() -> Self {
        Self {
            visits: Vec::new(),
            visits_max: VISITS_MAX,
            unrecorded: 0,
            failed: BTreeMap::new(),
            in_vain: Vec::new(),
        }
    }
}

impl ConnectionLog {
    /// Records a connection and returns its index; `None` if the log is full.
    fn write_down(&mut self, visit: RecordedConnection) -> Option<usize> {
        if self.visits.len() >= self.visits_max {
            self.unrecorded += 1;
            return None;
        }
        self.visits.push(visit);
        Some(self.visits.len() - 1)
    }

    pub(super) fn connections(&self) -> u64 {
        self.visits.len() as u64
    }
}

fn book(seen: &Mutex<ConnectionLog>) -> MutexGuard<'_, ConnectionLog> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The listening server.
pub(super) struct AuditServer {
    listener: TcpListener,
    address: SocketAddr,
    context: ServerContext,
    authority: Authority,
    relay: Option<SocketAddr>,
}

impl AuditServer {
    pub(super) fn open(listen: SocketAddr, relay: Option<SocketAddr>) -> Result<Self, Error> {
        let listener = TcpListener::bind(listen)
            .map_err(|error| Error::usage(format!("cannot listen on {listen}: {error}")))?;
        let address = listener
            .local_addr()
            .and_then(|address| listener.set_nonblocking(true).map(|()| address));
        let address = address.map_err(|error| Error::system(error.to_string()))?;
        let (authority, identity) = Authority::make(address)
            .map_err(|why| Error::system(format!("creating a certificate: {why}")))?;
        let mut settings = ServerSettings::new(vec![identity]);
        settings.sessions_by_id = Some(Arc::new(SessionIdStore::default()));
        let context =
            ServerContext::new(settings).map_err(|error| Error::system(error.to_string()))?;
        Ok(Self {
            listener,
            address,
            context,
            authority,
            relay,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Serves connections until it is stopped.
    pub(super) fn start(
        self,
        seen: Arc<Mutex<ConnectionLog>>,
        openers: Arc<Openers>,
        stop: Arc<AtomicBool>,
        began: Instant,
    ) -> JoinHandle<()> {
        thread::spawn(move || {
            let busy = Arc::new(AtomicUsize::new(0));
            while !stop.load(Ordering::Relaxed) {
                let room = busy.load(Ordering::Relaxed) < THREADS_MAX;
                let Some((stream, from)) = room.then(|| self.listener.accept().ok()).flatten()
                else {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                };
                let (context, relay) = (self.context.clone(), self.relay);
                let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
                let openers = Arc::clone(&openers);
                busy.fetch_add(1, Ordering::Relaxed);
                let here = BusyGuard(Arc::clone(&busy));
                // If no thread can be started, the client's connection is closed, which the client reports.
                let _ = thread::Builder::new().spawn(move || {
                    let _here = here;
                    let accepted = Instant::now();
                    let at_s = began.elapsed().as_secs_f64();
                    let to = stream.local_addr().ok();
                    let arrived = ClientConnection {
                        at_s,
                        process_cpu_ms: to.and_then(|to| openers.look_up_in_time(from, to)),
                        ..ClientConnection::default()
                    };
                    if let Err(reason) =
                        serve(stream, &context, relay, &seen, &stop, accepted, arrived)
                    {
                        *book(&seen).failed.entry(reason).or_default() += 1;
                    }
                });
            }
            let until = Instant::now() + Duration::from_secs(2);
            while busy.load(Ordering::Relaxed) > 0 && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
        })
    }
}

/// Counts a connection as being served until it is dropped.
struct BusyGuard(Arc<AtomicUsize>);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Adds the time to the reason of a failed handshake that took long: it shows a client's own limit, and a slow audit.
fn with_seconds(reason: String, took: Duration) -> String {
    match took.as_secs() {
        0 => reason,
        seconds => format!("{reason}, after {seconds} s"),
    }
}

fn serve(
    mut stream: TcpStream,
    context: &ServerContext,
    relay: Option<SocketAddr>,
    seen: &Mutex<ConnectionLog>,
    stop: &AtomicBool,
    accepted: Instant,
    arrived: ClientConnection,
) -> Result<(), String> {
    let began = Instant::now();
    let words = |error: io::Error| format!("during the handshake: {error}");
    // On Linux an accepted socket does not inherit O_NONBLOCK; elsewhere it may.
    stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_nodelay(true))
        .map_err(words)?;
    stream.set_read_timeout(Some(IDLE)).map_err(words)?;
    let mut handshake = Handshake::server(context, HandshakeLimits::default());
    let go_on = || !stop.load(Ordering::Relaxed);
    let mut overheard = RecordingStream {
        stream: &mut stream,
        heard: Vec::new(),
    };
    let shaken = complete_handshake(&mut overheard, &mut handshake, "the client", go_on);
    let handshake_ms = began.elapsed().as_secs_f64() * 1e3;
    let hello = match client_hello::read(&overheard.heard) {
        client_hello::HelloBytes::Whole(hello) => Some(*hello),
        client_hello::HelloBytes::More | client_hello::HelloBytes::Not => None,
    };
    if let Err(reason) = shaken {
        let mut seen = book(seen);
        if seen.in_vain.len() < IN_VAIN_MAX {
            seen.in_vain.extend(hello);
        }
        return Err(with_seconds(reason, accepted.elapsed()));
    }
    let hello = hello.ok_or("the ClientHello could not be parsed")?;
    let (connection, info) = TlsConnection::rest(stream, handshake)?;
    let raw = ClientConnection {
        version: info.protocol.to_string(),
        offered: hello.session.clone(),
        resumed: info.resumed,
        hello_bytes: hello.bytes,
        handshake_ms,
        ..arrived
    };
    let retried = info.retried;
    let visit = RecordedConnection {
        raw,
        hello,
        retried,
    };
    let place = book(seen).write_down(visit);
    let count = |requests: u64| {
        let mut seen = book(seen);
        if let Some(visit) = place.and_then(|place| seen.visits.get_mut(place)) {
            visit.raw.requests = requests;
        }
    };
    let mut talk = ClientSession {
        connection,
        backend: relay
            .map(TcpStream::connect)
            .transpose()
            .map_err(|error| format!("the relay's server: {error}"))?,
        unsent: Vec::new(),
        requests: Requests::default(),
        over: false,
    };
    if let Some(backend) = &talk.backend {
        backend
            .set_nonblocking(true)
            .map_err(|error| error.to_string())?;
    }
    talk.go(stop, count)
}

/// A stream that records the first bytes received.
struct RecordingStream<'a> {
    stream: &'a mut TcpStream,
    heard: Vec<u8>,
}

impl Read for RecordingStream<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(room)?;
        if self.heard.len() < HELLO_MAX {
            self.heard
                .extend_from_slice(room.get(..count).unwrap_or_default());
        }
        Ok(count)
    }
}

impl Write for RecordingStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// An established connection.
struct ClientSession {
    connection: TlsConnection<TcpStream>,
    backend: Option<TcpStream>,
    /// Bytes that the backend has not taken yet. To wait for it would stop both: it may wait until its answer is read.
    unsent: Vec<u8>,
    requests: Requests,
    /// The client asked for the connection to be closed and has received its answer.
    over: bool,
}

impl ClientSession {
    fn go(&mut self, stop: &AtomicBool, count: impl Fn(u64)) -> Result<(), String> {
        let mut room = vec![0; 17_000];
        if self.backend.is_some() {
            // Short timeouts let the loop serve both sides in turn.
            let stream = &self.connection.stream;
            let set = stream.set_read_timeout(Some(TURN));
            set.and_then(|()| stream.set_write_timeout(Some(TURN)))
                .map_err(|error| error.to_string())?;
        }
        loop {
            let ended = self.open()?;
            count(self.requests.count);
            if ended {
                self.send_rest()?;
            }
            if ended || self.over || !self.relay_back(&mut room)? {
                let patience = Some(LAST_BYTES_WAIT);
                let _ = self.connection.stream.set_write_timeout(patience);
                self.connection.close();
                return Ok(());
            }
            self.push()?;
            if self.unsent.len() >= UNSENT_MAX && !stop.load(Ordering::Relaxed) {
                thread::sleep(TURN);
                continue;
            }
            match self.connection.receive(&mut room) {
                Ok(1..) => {}
                Err(error) if is_timeout(&error) && !stop.load(Ordering::Relaxed) => {}
                // It does not matter how a client closes its connection.
                Ok(0) | Err(_) => return self.send_rest(),
            }
        }
    }

    /// Opens all complete records; returns whether the client has closed the connection.
    fn open(&mut self) -> Result<bool, String> {
        let (mut ended, mut heard) = (false, Vec::new());
        self.connection.open(|came| {
            match came {
                Incoming::Data(data) => heard.extend_from_slice(data),
                Incoming::Tickets(_) => {}
                Incoming::Alert(_) | Incoming::Closed => ended = true,
            }
            Ok(())
        })?;
        self.hear(&heard)?;
        Ok(ended)
    }

    fn hear(&mut self, heard: &[u8]) -> Result<(), String> {
        if self.backend.is_some() {
            self.unsent.extend_from_slice(heard);
            self.push()?;
        }
        for heard in self.requests.hear(heard) {
            if self.backend.is_some() || self.over {
                continue;
            }
            match heard {
                ClientMessage::Request(request) => {
                    self.connection.say(&request.answer())?;
                    self.over = request.close;
                }
                ClientMessage::Expects => self.connection.say(b"HTTP/1.1 100 Continue\r\n\r\n")?,
                ClientMessage::Lines(lines) => self.connection.say(&lines)?,
            }
        }
        Ok(())
    }

    /// Sends as much as the backend takes.
    fn push(&mut self) -> Result<(), String> {
        let Some(backend) = &mut self.backend else {
            return Ok(());
        };
        while !self.unsent.is_empty() {
            match backend.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if is_timeout(&error) => break,
                Err(error) => return Err(format!("the relay's server: {error}")),
            }
        }
        Ok(())
    }

    /// Sends what is left for the backend of a client that has closed.
    fn send_rest(&mut self) -> Result<(), String> {
        let Some(backend) = self.backend.as_mut().filter(|_| !self.unsent.is_empty()) else {
            return Ok(());
        };
        let sent = backend
            .set_nonblocking(false)
            .and_then(|()| backend.set_write_timeout(Some(LAST_BYTES_WAIT)))
            .and_then(|()| backend.write_all(&self.unsent));
        sent.map_err(|error| format!("the relay's server did not take everything: {error}"))
    }

    /// Forwards the backend's data to the client; returns false when the backend's connection has ended. A client that
    /// does not read may wait until its own bytes are taken.
    fn relay_back(&mut self, room: &mut [u8]) -> Result<bool, String> {
        let Some(backend) = &mut self.backend else {
            return Ok(true);
        };
        for _ in 0..READS_PER_TURN {
            if !self.connection.send_some()? {
                break;
            }
            match backend.read(room) {
                Ok(0) => return Ok(false),
                Ok(count) => self
                    .connection
                    .seal(room.get(..count).unwrap_or_default())?,
                Err(error) if is_timeout(&error) => break,
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_engine::{ClientContext, ClientSettings, Roots};

    type Client = TlsConnection<TcpStream>;

    /// Both ends of a connection after the handshake.
    fn connected() -> (Client, Client) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = thread::spawn(move || client_of(address));
        let (mut stream, _) = listener.accept().unwrap();
        let (_, identity) = Authority::make(address).unwrap();
        let context = ServerContext::new(ServerSettings::new(vec![identity])).unwrap();
        let mut handshake = Handshake::server(&context, HandshakeLimits::default());
        complete_handshake(&mut stream, &mut handshake, "the client", || true).unwrap();
        let (server, _) = TlsConnection::rest(stream, handshake).unwrap();
        (client.join().unwrap(), server)
    }

    fn client_of(address: SocketAddr) -> Client {
        let context = ClientContext::new(ClientSettings::new(Roots::Insecure)).unwrap();
        let mut handshake =
            Handshake::client(&context, "localhost", HandshakeLimits::default()).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        complete_handshake(&mut stream, &mut handshake, "the server", || true).unwrap();
        TlsConnection::rest(stream, handshake).unwrap().0
    }

    fn answer(client: &mut Client) -> Vec<u8> {
        let (mut room, mut heard) = (vec![0; 17_000], Vec::new());
        while heard.is_empty() && client.receive(&mut room).unwrap() > 0 {
            let take = |came: Incoming<'_>| {
                if let Incoming::Data(data) = came {
                    heard.extend_from_slice(data);
                }
                Ok(())
            };
            client.open(take).unwrap();
        }
        heard
    }

    #[test]
    fn connections_beyond_the_recorded_ones_are_served_and_counted() {
        let server = AuditServer::open("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let address = server.address();
        let seen = Arc::new(Mutex::new(ConnectionLog {
            visits_max: 3,
            ..ConnectionLog::default()
        }));
        let stop = Arc::new(AtomicBool::new(false));
        let running = server.start(
            Arc::clone(&seen),
            Arc::default(),
            Arc::clone(&stop),
            Instant::now(),
        );
        for _ in 0..5 {
            let mut client = client_of(address);
            client.say(b"hello\n").unwrap();
            assert_eq!(answer(&mut client), b"hello\n");
        }
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap();
        let seen = book(&seen);
        assert_eq!((seen.connections(), seen.unrecorded), (3, 2));
    }

    /// A client, the session with it, and the backend's end of the session's other connection.
    fn relayed() -> (Client, ClientSession, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let backend = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        backend.set_nonblocking(true).unwrap();
        let (far, _) = listener.accept().unwrap();
        let (client, connection) = connected();
        let session = ClientSession {
            connection,
            backend: Some(backend),
            unsent: Vec::new(),
            requests: Requests::default(),
            over: false,
        };
        (client, session, far)
    }

    /// A backend that does not read until its answer is read.
    #[test]
    fn a_backend_that_does_not_read_stops_nothing() {
        let (mut client, mut session, mut far) = relayed();
        let body = vec![b'x'; 16 << 20];
        session.hear(&body).unwrap();
        assert!(!session.unsent.is_empty());
        far.write_all(b"an answer").unwrap();
        assert!(session.relay_back(&mut vec![0; 17_000]).unwrap());
        assert_eq!(answer(&mut client), b"an answer");
        let reader = thread::spawn(move || {
            let mut heard = Vec::new();
            far.read_to_end(&mut heard).map(|_| heard.len())
        });
        session.send_rest().unwrap();
        drop(session);
        assert_eq!(reader.join().unwrap().unwrap(), body.len());
    }

    /// A client that does not read until the backend has read.
    #[test]
    fn a_client_that_does_not_read_stops_nothing() {
        let (mut client, mut session, mut far) = relayed();
        let (piece, pieces, answer_bytes) = ([b'x'; 16_000], 500, 16 << 20);
        let upload = pieces * piece.len();
        let going = thread::spawn(move || session.go(&AtomicBool::new(false), |_| {}));
        let mut far_end = far.try_clone().unwrap();
        let answering = thread::spawn(move || far_end.write_all(&vec![b'y'; answer_bytes]));
        let reading = thread::spawn(move || far.read_exact(&mut vec![0; upload]).map(|()| far));
        for _ in 0..pieces {
            client.say(&piece).unwrap();
        }
        let far = reading.join().unwrap().unwrap();
        let mut heard = 0;
        while heard < answer_bytes {
            heard += answer(&mut client).len();
        }
        answering.join().unwrap().unwrap();
        drop(far);
        going.join().unwrap().unwrap();
        assert_eq!(heard, answer_bytes);
    }

    /// The audit ends at its time, and the report has what the client did.
    #[test]
    fn a_client_that_never_reads_ends_with_the_audit() {
        let (_client, mut session, mut far) = relayed();
        far.set_nonblocking(true).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let going = thread::spawn(move || session.go(&stopped, |_| {}));
        // Until all buffers stay full.
        let (mut idle, block) = (0, [b'y'; 16_000]);
        while idle < 50 {
            idle = match far.write(&block) {
                Ok(_) => 0,
                Err(_) => idle + 1,
            };
            thread::sleep(TURN);
        }
        stop.store(true, Ordering::Relaxed);
        going.join().unwrap().unwrap();
    }

    #[test]
    fn the_last_bytes_of_a_client_reach_a_slow_backend() {
        for says_goodbye in [true, false] {
            let (mut client, mut session, mut far) = relayed();
            let mut sent = 0;
            while session.unsent.is_empty() {
                session.hear(&[b'x'; 16_000]).unwrap();
                sent += 16_000;
            }
            if says_goodbye {
                client.close();
            }
            drop(client);
            let going = thread::spawn(move || session.go(&AtomicBool::new(false), |_| {}));
            // The session finds the end first, while the backend has no room.
            thread::sleep(Duration::from_millis(50));
            let mut heard = Vec::new();
            far.read_to_end(&mut heard).unwrap();
            assert_eq!(heard.len(), sent, "{says_goodbye}");
            going.join().unwrap().unwrap();
        }
    }

    #[test]
    fn a_backend_that_does_not_take_the_last_bytes_is_reported() {
        let (_client, mut session, far) = relayed();
        while session.unsent.is_empty() {
            session.hear(&[b'x'; 16_000]).unwrap();
        }
        drop(far);
        let why = session.send_rest().unwrap_err();
        assert!(why.contains("did not take everything"), "{why}");
    }
}
