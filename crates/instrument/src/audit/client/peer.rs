//! The server that an audited client meets: our engine, one thread per connection, and a book in
//! which every connection is written down.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dormouse_engine::{Handshake, HandshakeLimits, Identity, ServerContext, ServerSettings};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};

use super::super::connection::{Came, Established, is_late, shake_hands};
use super::super::model::ClientConnection;
use super::hello::{self, ClientHello};
use crate::trouble::Trouble;

/// Connections that are served at a time; a client which needs more waits.
const THREADS_MAX: usize = 256;
/// Connections that are written down.
const VISITS_MAX: usize = 100_000;
const IDLE: Duration = Duration::from_millis(200);
const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nhello\n";
/// How much of a request's head is kept while its end is looked for.
const HEAD_MAX: usize = 64 * 1024;

/// One connection, with what is not in the report.
pub(super) struct Visit {
    pub(super) raw: ClientConnection,
    pub(super) hello: ClientHello,
    pub(super) retried: bool,
}

/// All connections so far.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) visits: Vec<Visit>,
    pub(super) failed: BTreeMap<String, u64>,
}

impl Seen {
    pub(super) fn connections(&self) -> u64 {
        self.visits.len() as u64
    }
}

/// The listening server.
pub(super) struct Peer {
    listener: TcpListener,
    address: SocketAddr,
    context: ServerContext,
    authority_pem: String,
    relay: Option<SocketAddr>,
}

impl Peer {
    pub(super) fn open(listen: SocketAddr, relay: Option<SocketAddr>) -> Result<Self, Trouble> {
        let listener = TcpListener::bind(listen)
            .map_err(|error| Trouble::usage(format!("cannot listen on {listen}: {error}")))?;
        let address = listener
            .local_addr()
            .and_then(|address| listener.set_nonblocking(true).map(|()| address));
        let address = address.map_err(|error| Trouble::system(error.to_string()))?;
        let (authority_pem, identity) = authority(address)
            .map_err(|why| Trouble::system(format!("making a certificate: {why}")))?;
        let context = ServerContext::new(ServerSettings::new(vec![identity]))
            .map_err(|error| Trouble::system(error.to_string()))?;
        Ok(Self {
            listener,
            address,
            context,
            authority_pem,
            relay,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn authority_pem(&self) -> &str {
        &self.authority_pem
    }

    /// Serves until told to stop.
    pub(super) fn start(
        self,
        seen: Arc<Mutex<Seen>>,
        stop: Arc<AtomicBool>,
        began: Instant,
    ) -> JoinHandle<()> {
        thread::spawn(move || {
            let busy = Arc::new(AtomicUsize::new(0));
            while !stop.load(Ordering::Relaxed) {
                let room = busy.load(Ordering::Relaxed) < THREADS_MAX;
                let Some((stream, _)) = room.then(|| self.listener.accept().ok()).flatten() else {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                };
                let (context, relay) = (self.context.clone(), self.relay);
                let (seen, stop, busy) = (Arc::clone(&seen), Arc::clone(&stop), Arc::clone(&busy));
                busy.fetch_add(1, Ordering::Relaxed);
                thread::spawn(move || {
                    let at_s = began.elapsed().as_secs_f64();
                    if let Err(reason) = serve(stream, &context, relay, &seen, &stop, at_s) {
                        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                        *seen.failed.entry(reason).or_default() += 1;
                    }
                    busy.fetch_sub(1, Ordering::Relaxed);
                });
            }
            let until = Instant::now() + Duration::from_secs(2);
            while busy.load(Ordering::Relaxed) > 0 && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
        })
    }
}

/// An authority and a certificate for this address, both for this run only.
fn authority(address: SocketAddr) -> Result<(String, Identity), String> {
    let words = |error: rcgen::Error| error.to_string();
    let mut params = CertificateParams::new(Vec::new()).map_err(words)?;
    params
        .distinguished_name
        .push(DnType::CommonName, "dormouse audit, for this run only");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let issuer =
        CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(words)?).map_err(words)?;
    let mut names = vec![
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ];
    if !address.ip().is_loopback() && !address.ip().is_unspecified() {
        names.push(address.ip().to_string());
    }
    let key = KeyPair::generate().map_err(words)?;
    let leaf = CertificateParams::new(names)
        .and_then(|params| params.signed_by(&key, &issuer))
        .map_err(words)?;
    let pem = leaf.pem();
    let identity = Identity::from_pem(
        pem.as_bytes(),
        key.serialize_pem().as_bytes(),
        "certificate",
        "key",
    )
    .map_err(|error| error.to_string())?;
    Ok((issuer.pem(), identity))
}

fn serve(
    mut stream: TcpStream,
    context: &ServerContext,
    relay: Option<SocketAddr>,
    seen: &Mutex<Seen>,
    stop: &AtomicBool,
    at_s: f64,
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
    let passed = shake_hands(&mut stream, &mut handshake, "the client", go_on)?;
    let handshake_ms = began.elapsed().as_secs_f64() * 1e3;
    let (connection, rested) = Established::rest(stream, handshake)?;
    let hello = match hello::read(&passed.received) {
        hello::Read::Whole(hello) => *hello,
        hello::Read::More | hello::Read::Not => ClientHello::default(),
    };
    let raw = ClientConnection {
        at_s,
        version: rested.info.protocol.to_string(),
        offered: hello.session.clone(),
        resumed: rested.info.resumed,
        hello_bytes: hello.bytes,
        requests: 0,
        handshake_ms,
    };
    let place = {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.visits.len() >= VISITS_MAX {
            return Ok(());
        }
        let retried = rested.info.retried;
        seen.visits.push(Visit {
            raw,
            hello,
            retried,
        });
        seen.visits.len() - 1
    };
    let count = |requests: u64| {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(visit) = seen.visits.get_mut(place) {
            visit.raw.requests = requests;
        }
    };
    let mut talk = Talk {
        connection,
        backend: relay
            .map(TcpStream::connect)
            .transpose()
            .map_err(|error| format!("the relay's server: {error}"))?,
        head: Vec::new(),
        requests: 0,
    };
    if let Some(backend) = &talk.backend {
        backend
            .set_nonblocking(true)
            .map_err(|error| error.to_string())?;
    }
    talk.go(stop, count)
}

/// An established connection.
struct Talk {
    connection: Established<TcpStream>,
    backend: Option<TcpStream>,
    /// The head of a request, as far as it came.
    head: Vec<u8>,
    requests: u64,
}

impl Talk {
    fn go(&mut self, stop: &AtomicBool, count: impl Fn(u64)) -> Result<(), String> {
        let mut room = vec![0; 17_000];
        if self.backend.is_some() {
            // Both sides are looked at in turn.
            let _ = self
                .connection
                .stream
                .set_read_timeout(Some(Duration::from_millis(2)));
        }
        loop {
            let ended = self.open()?;
            count(self.requests);
            if ended || !self.relay_back(&mut room)? {
                self.connection.close();
                return Ok(());
            }
            match self.connection.receive(&mut room) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if is_late(&error) && !stop.load(Ordering::Relaxed) => {}
                // How a client leaves is its own affair.
                Err(_) => return Ok(()),
            }
        }
    }

    /// Opens all whole records; whether the client has said goodbye.
    fn open(&mut self) -> Result<bool, String> {
        let (mut ended, mut heard) = (false, Vec::new());
        self.connection.open(|came| {
            match came {
                Came::Data(data) => heard.extend_from_slice(data),
                Came::Tickets(_) => {}
                Came::Alert(_) | Came::Closed => ended = true,
            }
            Ok(())
        })?;
        self.hear(&heard)?;
        Ok(ended)
    }

    fn hear(&mut self, heard: &[u8]) -> Result<(), String> {
        if let Some(backend) = &mut self.backend {
            backend
                .set_nonblocking(false)
                .and_then(|()| backend.write_all(heard))
                .and_then(|()| backend.set_nonblocking(true))
                .map_err(|error| format!("the relay's server: {error}"))?;
        }
        self.head.extend_from_slice(heard);
        while let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") {
            self.head.drain(..end + 4);
            self.requests += 1;
            if self.backend.is_none() {
                self.connection.say(ANSWER)?;
            }
        }
        if self.backend.is_none()
            && self.requests == 0
            && self.head.ends_with(b"\n")
            && !self.head.contains(&b'\r')
        {
            // Lines which are no HTTP are echoed.
            let line = std::mem::take(&mut self.head);
            self.connection.say(&line)?;
        }
        // Bodies are not looked at; a head has its bound.
        if self.head.len() > HEAD_MAX {
            self.head.clear();
        }
        Ok(())
    }

    /// Whether the relay's server goes on.
    fn relay_back(&mut self, room: &mut [u8]) -> Result<bool, String> {
        loop {
            let Some(backend) = &mut self.backend else {
                return Ok(true);
            };
            match backend.read(room) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    let said = room.get(..count.min(16_000)).unwrap_or_default().to_vec();
                    let rest = room
                        .get(16_000.min(count)..count)
                        .unwrap_or_default()
                        .to_vec();
                    self.connection.say(&said)?;
                    if !rest.is_empty() {
                        self.connection.say(&rest)?;
                    }
                }
                Err(error) if is_late(&error) => return Ok(true),
                Err(_) => return Ok(false),
            }
        }
    }
}
