//! A terminator in front of a backend, with their own addresses and folder.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use rustls::ClientConfig;
use tempfile::TempDir;

use crate::backend::Backend;
use crate::namespace;
use crate::peer;
use crate::probe::Probe;
use crate::process::Process;
use crate::terminator::{Can, Settings, Target, Terminator};
use crate::wait::{self, PATIENCE};

/// The port of the terminator in every scene.
pub const TLS_PORT: u16 = 8443;
/// The port of the backend in every scene.
pub const PLAIN_PORT: u16 = 8080;

/// A running terminator in front of a running backend. Dropping it ends both.
pub struct Scene {
    /// The kind of terminator.
    pub kind: Terminator,
    /// Its process.
    pub terminator: Process,
    /// The backend.
    pub backend: Backend,
    /// The address for clients.
    pub address: SocketAddr,
    /// Folder for files of this test.
    pub folder: TempDir,
    /// What a client says first so that its bytes come back.
    greeting: &'static str,
}

impl Scene {
    /// The default scene.
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// A scene with changed settings.
    pub fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let host = unused_host();
        let backend = Backend::tcp(SocketAddr::new(host, PLAIN_PORT));
        let target = Target::Tcp(backend.address());
        let mut settings = Settings::new(SocketAddr::new(host, TLS_PORT), target);
        change(&mut settings);
        Self::of(Terminator::chosen(), backend, &settings)
    }

    /// A scene of parts that the test has made.
    pub fn of(kind: Terminator, backend: Backend, settings: &Settings) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let terminator = start(kind, settings, folder.path());
        Self {
            kind,
            terminator,
            backend,
            address: settings.listen,
            folder,
            greeting: match settings.target {
                Target::Echo => "",
                Target::Tcp(_) | Target::Unix(_) => "echo\n",
            },
        }
    }

    /// A new connection, after its first echo. (A client finishes the handshake before the worker does.)
    ///
    /// # Panics
    /// When it fails.
    pub fn probe(&self) -> Probe {
        let mut probe = self.probe_as(peer::config());
        probe.echo(100).expect("an echo");
        probe
    }

    /// A new connection, by a client with this configuration.
    ///
    /// # Panics
    /// When it fails.
    pub fn probe_as(&self, config: ClientConfig) -> Probe {
        Probe::open(self.address, config, self.greeting).expect("a connection")
    }
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

/// Starts a terminator and waits until it serves.
///
/// # Panics
/// When it does not start.
pub fn start(kind: Terminator, settings: &Settings, folder: &Path) -> Process {
    let launch = kind.prepare(settings, folder);
    let mut process = Process::start(&kind.to_string(), &launch.command, folder);
    match launch.ready_line {
        Some(line) => {
            process.wait_for_line(line, PATIENCE);
        }
        None => wait::until(&format!("{kind} to listen"), PATIENCE, || {
            assert!(process.runs(), "expected {kind} to listen, but it exited");
            let listen = settings.listen;
            let connect = move || TcpStream::connect(listen).ok().map(drop);
            match &settings.namespace {
                Some(namespace) => namespace::inside(namespace, connect),
                None => connect(),
            }
        }),
    }
    process
}

/// Whether the chosen terminator can do this; reports it if not, and the test returns.
pub fn applies(what: Can) -> bool {
    let kind = Terminator::chosen();
    let can = kind.can(what);
    if !can {
        eprintln!("NOT APPLICABLE: {kind} does not {what:?}");
    }
    can
}

/// Returns a loopback address that no other test uses, so that ports can be fixed.
///
/// # Panics
/// When a test program asks for more addresses than it has.
pub fn unused_host() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(number < HOSTS_PER_PROCESS, "more scenes than addresses");
    let block = std::process::id() % HOST_BLOCKS;
    IpAddr::V4((FIRST_HOST + block * HOSTS_PER_PROCESS + number).into())
}

/// Returns a port for a program that listens on 127.0.0.1, or on all addresses. It is below those that the kernel gives to
/// connections, so nothing else gets it before the program does.
///
/// # Panics
/// When somebody listens on each of them.
pub fn unused_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() as u16 % 1_000 * 10;
    let mut ports = (0..10_000)
        .map(|_| 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000)
        .filter(|&port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok());
    ports.next().expect("a port that nobody listens on")
}

/// Addresses of one test program, and how many programs with neighbouring process ids may run at once.
const HOSTS_PER_PROCESS: u32 = 1 << 12;
const HOST_BLOCKS: u32 = 3_500;

/// 127.20.0.0, because programs use lower addresses on their own.
const FIRST_HOST: u32 = 0x7f14_0000;

// The last address is below 127.255.0.0.
const _: () = assert!(FIRST_HOST + HOST_BLOCKS * HOSTS_PER_PROCESS < 0x7fff_0000);
