//! Many concurrent connections, each with a stream of bytes that is checked to the last byte: a crash or an
//! upgrade must not disturb them.
//!
//! Every connection sends numbered bytes and expects them back in order. A missing, duplicated, reordered
//! or changed byte is a fault; a connection that is reset is counted, and must have received an exact
//! prefix until then.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::peer::{self, Peer};

/// Maximum bytes of a message.
const MESSAGE_MAX: usize = 3_000;

/// One connection with an `echo` behind it.
pub struct Probe {
    peer: Peer,
    sent: u64,
    /// Number of bytes that came back, all correct.
    pub received: u64,
}

/// Why a probe ended.
#[derive(Debug)]
pub enum Fault {
    /// The connection was lost; until then every byte was correct.
    Lost(io::Error),
    /// A byte was wrong.
    Wrong {
        /// Its position in the stream.
        at: u64,
    },
}

/// The byte at a position of the stream. Neighbouring parts differ, so a shift is noticed.
fn content(at: u64) -> u8 {
    let mixed = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8 ^ (at >> 16) as u8
}

impl Probe {
    /// Connects with this configuration and asks for an echo.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn open(address: SocketAddr, config: ClientConfig, first: &str) -> io::Result<Self> {
        let tcp: TcpStream = peer::connect_tcp(address)?;
        let mut peer = Peer::over(tcp, peer::client(config))?;
        if !first.is_empty() {
            peer.stream().write_all(first.as_bytes())?;
        }
        Ok(Self {
            peer,
            sent: 0,
            received: 0,
        })
    }

    /// The TLS state, for key updates.
    pub fn tls(&mut self) -> &mut rustls::ClientConnection {
        &mut self.peer.tls
    }

    /// Sends `len` bytes, without waiting for them.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn send(&mut self, len: usize) -> Result<(), Fault> {
        let bytes: Vec<u8> = (self.sent..self.sent + len as u64).map(content).collect();
        self.peer.stream().write_all(&bytes).map_err(Fault::Lost)?;
        self.sent += len as u64;
        Ok(())
    }

    /// Receives everything in flight, and compares.
    ///
    /// # Errors
    /// When the connection is lost, or a byte is wrong.
    pub fn receive(&mut self) -> Result<(), Fault> {
        let mut room = [0; 16 << 10];
        while self.received < self.sent {
            let n = match self.peer.stream().read(&mut room) {
                Ok(0) => return Err(Fault::Lost(ErrorKind::UnexpectedEof.into())),
                Ok(n) => n,
                Err(error) => return Err(Fault::Lost(error)),
            };
            for &byte in &room[..n] {
                if self.received >= self.sent || byte != content(self.received) {
                    return Err(Fault::Wrong { at: self.received });
                }
                self.received += 1;
            }
        }
        Ok(())
    }

    /// Sends and receives.
    ///
    /// # Errors
    /// As [`Probe::send`] and [`Probe::receive`].
    pub fn echo(&mut self, len: usize) -> Result<(), Fault> {
        self.send(len)?;
        self.receive()
    }

    /// Closes the sending direction, reads to the end, and compares the rest.
    ///
    /// # Errors
    /// As [`Probe::receive`], and when the close is not clean.
    pub fn finish(mut self) -> Result<(), Fault> {
        self.receive()?;
        self.peer.end_sending().map_err(Fault::Lost)?;
        match self.peer.receive_all() {
            Ok(rest) if rest.is_empty() => Ok(()),
            Ok(_) => Err(Fault::Wrong { at: self.received }),
            Err(error) => Err(Fault::Lost(error)),
        }
    }
}

/// Threads that probe continuously.
pub struct Load {
    stop: Arc<AtomicBool>,
    echoes: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Observations>>,
}

/// Observations of a load's threads.
#[derive(Debug, Default)]
pub struct Observations {
    /// Lost connections, with the reason. Each was replaced.
    pub lost: Vec<String>,
    /// Wrong bytes.
    pub wrong: Vec<String>,
    /// The longest time of an echo.
    pub longest: Duration,
    /// Number of echoes.
    pub echoes: u64,
}

impl Load {
    /// Starts this number of threads, each with this number of connections; every second connection uses TLS
    /// 1.2, and some update their keys. `pause` lies between two echoes of a thread. Returns when all
    /// connections are open.
    ///
    /// # Panics
    /// When a thread panics instead of opening its connections.
    pub fn start(
        address: SocketAddr,
        threads: usize,
        connections: usize,
        first: &'static str,
        pause: Duration,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let echoes = Arc::new(AtomicU64::new(0));
        let (is_open, opened) = channel();
        let count = threads;
        let threads = (0..count)
            .map(|thread| {
                let (stop, echoes) = (Arc::clone(&stop), Arc::clone(&echoes));
                let crowd = Crowd {
                    address,
                    first,
                    thread,
                    configs: peer::configs_by_version(),
                };
                let is_open = is_open.clone();
                thread::spawn(move || {
                    let probes = (0..connections).map(|number| crowd.open(number)).collect();
                    let _ = is_open.send(());
                    crowd.run(probes, pause, &stop, &echoes)
                })
            })
            .collect();
        drop(is_open);
        assert_eq!(opened.iter().take(count).count(), count, "all are open");
        Self {
            stop,
            echoes,
            threads,
        }
    }

    /// Number of echoes so far.
    pub fn echoes(&self) -> u64 {
        self.echoes.load(Ordering::Relaxed)
    }

    /// Ends the load, and returns the observations.
    ///
    /// # Panics
    /// When a thread panicked.
    pub fn finish(self) -> Observations {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Observations::default();
        for thread in self.threads {
            let seen = thread
                .join()
                .expect("a thread of the load that did not panic");
            all.lost.extend(seen.lost);
            all.wrong.extend(seen.wrong);
            all.longest = all.longest.max(seen.longest);
            all.echoes += seen.echoes;
        }
        all
    }
}

/// Settings that the connections of one thread share.
struct Crowd {
    address: SocketAddr,
    first: &'static str,
    thread: usize,
    configs: [ClientConfig; 2],
}

impl Crowd {
    /// Connects wait in the queue while there is no worker, and a handshake in flight may be lost. A TLS 1.3
    /// client considers itself connected before the server has its last message, so a connection counts only
    /// after an echo.
    fn open(&self, number: usize) -> Probe {
        let config = &self.configs[number % 2];
        let connected = |_| {
            let mut probe = Probe::open(self.address, config.clone(), self.first).ok()?;
            match probe.echo(1) {
                Ok(()) => Some(probe),
                Err(Fault::Lost(_)) => None,
                Err(Fault::Wrong { at }) => panic!("byte {at} of a new connection is wrong"),
            }
        };
        (0..20)
            .find_map(connected)
            .expect("a connection within twenty attempts")
    }

    fn run(
        &self,
        mut probes: Vec<Probe>,
        pause: Duration,
        stop: &AtomicBool,
        echoes: &AtomicU64,
    ) -> Observations {
        let mut seen = Observations::default();
        let thread = self.thread;
        let mut turn = thread * 7919;
        while !stop.load(Ordering::Relaxed) {
            for (number, probe) in probes.iter_mut().enumerate() {
                turn = turn.wrapping_mul(1_103_515_245).wrapping_add(12_345);
                if turn.is_multiple_of(31) && number % 2 == 0 {
                    // Also requests an update by the server. TLS 1.2 has no key updates.
                    let _ = probe.tls().refresh_traffic_keys();
                }
                let began = Instant::now();
                match probe.echo(1 + (turn >> 8) % MESSAGE_MAX) {
                    Ok(()) => {
                        seen.longest = seen.longest.max(began.elapsed());
                        seen.echoes += 1;
                        echoes.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(Fault::Lost(error)) => {
                        seen.lost
                            .push(format!("after {} bytes: {error}", probe.received));
                        *probe = self.open(number);
                    }
                    Err(Fault::Wrong { at }) => {
                        seen.wrong
                            .push(format!("thread {thread}, connection {number}, byte {at}"));
                        *probe = self.open(number);
                    }
                }
                if !pause.is_zero() {
                    thread::sleep(pause);
                }
            }
        }
        for probe in probes {
            if let Err(fault) = probe.finish() {
                seen.lost.push(format!("at its end: {fault:?}"));
            }
        }
        seen
    }
}
