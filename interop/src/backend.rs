//! The plain server behind the terminator. The first line of a connection selects its behaviour:
//!
//! | first line | what the backend does |
//! |---|---|
//! | `echo` | sends back what it receives, until the client closes |
//! | `upload N [pause]` | receives N bytes, with `pause` waiting at the gate after 1 MiB; sends their digest |
//! | `download N` | sends N random bytes and ends; receives to the end |
//! | `halfclose N` | receives to the end, then sends N bytes |
//! | `backendfirst N` | sends N bytes and ends; receives to the end |
//! | `sink` | receives to the end and sends nothing |
//! | `reset N` | sends N bytes, waits for `got`, and resets the connection |
//! | `flood` | sends while the client reads |
//! | `hang` | reads nothing until the gate opens, then receives to the end |
//!
//! Each connection ends with a [`Report`] of what the backend saw, which the test compares with what the
//! client saw.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::sockopt;

use crate::content::{Meter, Total, random};
use crate::wait::{self, PATIENCE};

const BLOCK: usize = 64 * 1024;
const PAUSE_AT: u64 = 1 << 20;
/// Small, so that a blocked reader causes backpressure soon.
const SOCKET_BUFFER: usize = 128 * 1024;
/// Longer than any test, so that the end of the connection comes first.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(900);
const FIRST_LINE_MAX: usize = 200;
const HALF_CLOSE_PAUSE: Duration = Duration::from_millis(300);

/// How the client's side of a connection ended, as seen by the backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A FIN.
    Fin,
    /// A reset.
    Reset,
    /// This backend closed first.
    Ours,
    /// Anything else.
    Error(String),
}

/// What the backend saw of one connection.
#[derive(Clone, Debug)]
pub struct Report {
    /// The first line.
    pub command: String,
    /// The content after the first line.
    pub received: Total,
    /// The content that was sent.
    pub sent: Total,
    /// How the client's side ended.
    pub ended: Ending,
}

/// A running backend. It ends when it is dropped.
pub struct Backend {
    shared: Arc<Shared>,
    reports: Mutex<Receiver<Report>>,
    address: Option<SocketAddr>,
}

#[derive(Default)]
struct Shared {
    /// Bytes of content, over all connections.
    received: AtomicU64,
    sent: AtomicU64,
    accepted: AtomicU64,
    stopped: AtomicBool,
    gate: Mutex<bool>,
    gate_opened: Condvar,
    accept_then_close: AtomicBool,
}

impl Backend {
    /// Serves on a TCP address.
    ///
    /// # Panics
    /// When the address is not available.
    pub fn tcp(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address)
            .unwrap_or_else(|error| panic!("the backend cannot listen on {address}: {error}"));
        Self::on(listener)
    }

    /// Serves on a listener that another thread has opened, in another namespace for example.
    pub fn on(listener: TcpListener) -> Self {
        let address = listener.local_addr().ok();
        Self::serve(listener, address)
    }

    /// Serves on a unix socket.
    ///
    /// # Panics
    /// When the socket cannot be created.
    pub fn unix(path: &Path) -> Self {
        let listener = UnixListener::bind(path).unwrap_or_else(|error| {
            panic!("the backend cannot listen on {}: {error}", path.display())
        });
        // `std` treats both kinds of stream sockets alike.
        Self::serve(TcpListener::from(OwnedFd::from(listener)), None)
    }

    fn serve(listener: TcpListener, address: Option<SocketAddr>) -> Self {
        let shared = Arc::new(Shared::default());
        let (sender, reports) = channel();
        listener
            .set_nonblocking(true)
            .expect("a listener can be non-blocking");
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accept(&listener, &accepting, &sender));
        Self {
            shared,
            reports: Mutex::new(reports),
            address,
        }
    }

    /// The address it listens on.
    ///
    /// # Panics
    /// For a backend on a unix socket.
    pub fn address(&self) -> SocketAddr {
        self.address.expect("a backend on TCP")
    }

    /// Returns the report of the next connection that ends.
    ///
    /// # Panics
    /// When none ends within [`PATIENCE`].
    pub fn report(&self) -> Report {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            panic!("expected a connection to the backend to end within {PATIENCE:?}, none did")
        })
    }

    /// Releases the connections that wait at the gate.
    pub fn open_gate(&self) {
        *lock(&self.shared.gate) = true;
        self.shared.gate_opened.notify_all();
    }

    /// Sets whether every connection is closed as soon as it is accepted.
    pub fn close_at_once(&self, yes: bool) {
        self.shared.accept_then_close.store(yes, Ordering::SeqCst);
    }

    /// Content received until now, over all connections.
    pub fn received(&self) -> u64 {
        self.shared.received.load(Ordering::SeqCst)
    }

    /// Content sent until now, over all connections.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::SeqCst)
    }

    /// Connections accepted until now.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Stops listening; returns when the address is free again.
    pub fn stop(self) {
        let address = self.address;
        drop(self);
        if let Some(address) = address {
            wait::until("the backend's address to be free", PATIENCE, || {
                TcpListener::bind(address).ok()
            });
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.open_gate();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, reports: &Sender<Report>) {
    while !shared.stopped.load(Ordering::SeqCst) {
        // `std` does not support the peer address of a unix socket.
        let Ok(stream) = rustix::net::accept(listener).map(TcpStream::from) else {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        };
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        if shared.accept_then_close.load(Ordering::SeqCst) {
            continue;
        }
        let (shared, reports) = (Arc::clone(shared), reports.clone());
        std::thread::spawn(move || {
            if let Some(report) = Connection::new(stream, shared).run() {
                // A test that ignores reports has dropped the receiver.
                let _ = reports.send(report);
            }
        });
    }
}

struct Connection {
    stream: Option<TcpStream>,
    shared: Arc<Shared>,
    received: Meter,
    sent: Meter,
    /// Content received together with the first line.
    early: Vec<u8>,
}

impl Connection {
    fn new(stream: TcpStream, shared: Arc<Shared>) -> Self {
        // A unix socket lacks these options; nothing else can fail here.
        let _ = stream.set_nonblocking(false);
        let _ = stream.set_nodelay(true);
        let _ = stream.set_read_timeout(Some(SOCKET_TIMEOUT));
        let _ = stream.set_write_timeout(Some(SOCKET_TIMEOUT));
        let _ = sockopt::set_socket_send_buffer_size(&stream, SOCKET_BUFFER);
        let _ = sockopt::set_socket_recv_buffer_size(&stream, SOCKET_BUFFER);
        Self {
            stream: Some(stream),
            shared,
            received: Meter::default(),
            sent: Meter::default(),
            early: Vec::new(),
        }
    }

    /// Serves the connection. `None`: it ended before its first line, as a port check does.
    fn run(mut self) -> Option<Report> {
        let command = self.first_line().ok()?;
        let mut words = command.split(' ');
        let verb = words.next().unwrap_or_default();
        let count = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let pause = words.next() == Some("pause");
        let ended = match verb {
            "echo" => self.echo(),
            "upload" => self.upload(count, pause),
            "download" => self.send_and_end(count).and_then(|()| self.receive_all()),
            "halfclose" => self.halfclose(count),
            "backendfirst" => self.send_and_end(count).and_then(|()| self.receive_all()),
            "sink" => self.receive_all(),
            "reset" => self.reset(count),
            "flood" => self.flood(),
            "hang" => {
                self.wait_at_gate();
                self.receive_all()
            }
            _ => Err(io::Error::other(format!("no such command: {verb}"))),
        };
        Some(Report {
            command,
            received: self.received.total(),
            sent: self.sent.total(),
            ended: ended.unwrap_or_else(|error| match error.kind() {
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Ending::Reset,
                _ => Ending::Error(error.to_string()),
            }),
        })
    }

    fn stream(&mut self) -> io::Result<&mut TcpStream> {
        self.stream.as_mut().ok_or(ErrorKind::NotConnected.into())
    }

    fn first_line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        loop {
            if let Some(end) = line.iter().position(|&byte| byte == b'\n') {
                self.early = line.split_off(end + 1);
                line.truncate(end);
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            let mut part = [0; FIRST_LINE_MAX];
            let count = self.stream()?.read(&mut part)?;
            if count == 0 || line.len() > FIRST_LINE_MAX {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            line.extend_from_slice(&part[..count]);
        }
    }

    /// Receives the next part of the content; empty at the end.
    fn receive(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut part = std::mem::take(&mut self.early);
        if part.is_empty() {
            part.resize(most.min(BLOCK), 0);
            let count = self.stream()?.read(&mut part)?;
            part.truncate(count);
        }
        self.received.add(&part);
        self.shared
            .received
            .fetch_add(part.len() as u64, Ordering::SeqCst);
        Ok(part)
    }

    fn receive_all(&mut self) -> io::Result<Ending> {
        while !self.receive(BLOCK)?.is_empty() {}
        Ok(Ending::Fin)
    }

    fn send(&mut self, mut part: &[u8]) -> io::Result<()> {
        while !part.is_empty() {
            let count = self.stream()?.write(part)?;
            let (done, rest) = part.split_at(count);
            self.sent.add(done);
            self.shared.sent.fetch_add(count as u64, Ordering::SeqCst);
            part = rest;
        }
        Ok(())
    }

    fn send_random(&mut self, bytes: u64) -> io::Result<()> {
        let mut left = bytes;
        while left > 0 {
            let part = random(left.min(BLOCK as u64) as usize);
            self.send(&part)?;
            left -= part.len() as u64;
        }
        Ok(())
    }

    fn end_sending(&mut self) -> io::Result<()> {
        self.stream()?.shutdown(Shutdown::Write)
    }

    fn send_and_end(&mut self, bytes: u64) -> io::Result<()> {
        self.send_random(bytes)?;
        self.end_sending()
    }

    fn echo(&mut self) -> io::Result<Ending> {
        loop {
            let part = self.receive(BLOCK)?;
            if part.is_empty() {
                self.end_sending()?;
                return Ok(Ending::Fin);
            }
            self.send(&part)?;
        }
    }

    fn upload(&mut self, bytes: u64, pause: bool) -> io::Result<Ending> {
        let mut pause = pause;
        let mut digest = Meter::default();
        while digest.bytes() < bytes {
            if pause && digest.bytes() >= PAUSE_AT {
                self.wait_at_gate();
                pause = false;
            }
            let left = bytes - digest.bytes();
            let part = self.receive(left.min(BLOCK as u64) as usize)?;
            if part.is_empty() {
                return Ok(Ending::Fin);
            }
            digest.add(&part);
        }
        let line = format!("{}\n", digest.total().sha256);
        self.send(line.as_bytes())?;
        self.receive_all()
    }

    fn halfclose(&mut self, bytes: u64) -> io::Result<Ending> {
        let ended = self.receive_all()?;
        // Python's `unwrap` expects the answer right after its own close_notify. It treats data that is
        // already there as an error, after which nothing can be read (TLS 1.2).
        std::thread::sleep(HALF_CLOSE_PAUSE);
        self.send_and_end(bytes)?;
        Ok(ended)
    }

    fn reset(&mut self, bytes: u64) -> io::Result<Ending> {
        self.send_random(bytes)?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"got\n") {
            let part = self.receive(BLOCK)?;
            if part.is_empty() {
                return Ok(Ending::Fin);
            }
            answer.extend(part);
        }
        if let Some(stream) = self.stream.take() {
            sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
        }
        Ok(Ending::Ours)
    }

    fn flood(&mut self) -> io::Result<Ending> {
        let block = random(BLOCK);
        while !self.shared.stopped.load(Ordering::SeqCst) {
            self.send(&block)?;
        }
        Ok(Ending::Ours)
    }

    fn wait_at_gate(&self) {
        let gate = lock(&self.shared.gate);
        // Other checks detect a gate that opens late; this wait must only be bounded.
        let _ = self
            .shared
            .gate_opened
            .wait_timeout_while(gate, SOCKET_TIMEOUT, |open| !*open);
    }
}
