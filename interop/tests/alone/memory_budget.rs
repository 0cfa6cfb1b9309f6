//! Attacks on memory: clients that never read, endless ClientHellos, partial records. The budget holds
//! inside a memory cgroup, and well-behaved clients are served.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dormouse_interop::backend::Backend;
use dormouse_interop::cgroup::Cgroup;
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::scene::{PLAIN_PORT, Scene, TLS_PORT, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::wait;
use rustix::net::{AddressFamily, SocketType, sockopt};

/// Small, so that the gateway's sockets are measured and not the test's.
const SMALL_BUFFER: usize = 8 << 10;

/// A connection with small socket buffers from the beginning.
fn connect_small(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_recv_buffer_size(&socket, SMALL_BUFFER)?;
    sockopt::set_socket_send_buffer_size(&socket, SMALL_BUFFER)?;
    rustix::net::connect(&socket, &address)?;
    let tcp = TcpStream::from(socket);
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(Duration::from_secs(60)))?;
    tcp.set_write_timeout(Some(Duration::from_secs(60)))?;
    Ok(tcp)
}

/// A backend that sends endlessly after `f`, and echoes after `e`.
struct Flood {
    sent: Arc<AtomicU64>,
}

impl Flood {
    fn start(address: SocketAddr) -> Flood {
        let listener = TcpListener::bind(address).expect("an address for the backend");
        // Accepted sockets inherit this.
        sockopt::set_socket_send_buffer_size(&listener, SMALL_BUFFER).expect("a small buffer");
        rustix::net::listen(&listener, 4096).expect("a longer queue");
        let sent = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&sent);
        std::thread::spawn(move || {
            while let Ok((tcp, _)) = listener.accept() {
                let sent = Arc::clone(&counter);
                let thread = std::thread::Builder::new().stack_size(128 << 10);
                let serve = move || drop(serve(tcp, &sent));
                thread.spawn(serve).expect("a thread");
            }
        });
        Flood { sent }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

fn serve(mut tcp: TcpStream, sent: &AtomicU64) -> io::Result<()> {
    let mut block = [0; 4096];
    tcp.read_exact(&mut block[..1])?;
    if block[0] == b'f' {
        loop {
            let n = tcp.write(&block)?;
            sent.fetch_add(n as u64, Ordering::SeqCst);
        }
    }
    loop {
        match tcp.read(&mut block)? {
            0 => return Ok(()),
            n => tcp.write_all(&block[..n])?,
        }
    }
}

/// Runs `one` `count` times in several threads, and returns the results.
fn many<T: Send + 'static>(count: usize, one: impl Fn() -> T + Send + Sync + 'static) -> Vec<T> {
    const THREADS: usize = 16;
    let one = Arc::new(one);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let one = Arc::clone(&one);
            let share = count / THREADS + usize::from(thread < count % THREADS);
            std::thread::spawn(move || (0..share).map(|_| one()).collect::<Vec<_>>())
        })
        .collect();
    let done = threads
        .into_iter()
        .map(|thread| thread.join().expect("no panic"));
    done.flatten().collect()
}

fn greeted(address: SocketAddr, word: &[u8]) -> Peer {
    let tcp = connect_small(address).expect("a connection");
    let mut peer = Peer::over(tcp, peer::client(peer::config())).expect("a handshake");
    peer.stream().write_all(word).expect("a write");
    peer
}

/// A hello of 60,000 bytes without its last byte, or as much of it as the server accepts.
fn endless_hello(address: SocketAddr) -> io::Result<TcpStream> {
    const HELLO: usize = 60_000;
    let mut message = vec![1, 0, (HELLO >> 8) as u8, HELLO as u8, 3, 3];
    message.resize(4 + HELLO - 1, 0);
    let mut tcp = connect_small(address)?;
    tcp.set_write_timeout(Some(Duration::from_millis(200)))?;
    for record in message.chunks(16_000) {
        let mut bytes = vec![22, 3, 1];
        bytes.extend((record.len() as u16).to_be_bytes());
        bytes.extend(record);
        if tcp.write_all(&bytes).is_err() {
            break;
        }
    }
    Ok(tcp)
}

/// The beginning of a record whose rest never comes.
fn half_record(address: SocketAddr) -> Peer {
    let mut peer = greeted(address, b"e");
    let mut record = vec![23, 3, 3];
    record.extend(16_000_u16.to_be_bytes());
    record.resize(8_000, 0);
    peer.tcp.write_all(&record).expect("a write");
    peer
}

struct Crowd {
    readers: usize,
    half_records: usize,
    hellos: usize,
}

/// Starts `serve` with a budget inside a cgroup with the same limit, lets all attackers connect, and checks
/// the peak.
fn budget_holds(budget: u64, crowd: &Crowd, connections: u32) {
    requires!(Can::BeDormouse);
    let Some(group) = Cgroup::with_memory(budget) else {
        return;
    };
    let host = unused_host();
    let behind = SocketAddr::new(host, PLAIN_PORT);
    let mut settings = Settings::new(SocketAddr::new(host, TLS_PORT), Target::Tcp(behind));
    settings
        .option("memory", &format!("{} MiB", budget >> 20))
        .option("max_connections", &connections.to_string())
        .option("handshake_timeout", "5m")
        .option("partial_record_timeout", "5m")
        // These readers read again in the end.
        .option("stall_timeout", "1d");
    settings.wrapper = group.wrapper();
    let backend = Flood::start(behind);
    // The scene's own backend is not used here.
    let unused = Backend::tcp(SocketAddr::new(host, PLAIN_PORT + 1));
    let mut scene = Scene::of(Terminator::chosen(), unused, &settings);
    let address = scene.address;

    let mut bystander = greeted(address, b"e");
    bystander.echo().expect("an echo");
    eprintln!("at the start: {}", group.memory_parts());
    let began = Instant::now();
    let readers = many(crowd.readers, move || greeted(address, b"f"));
    wait::until_still("floods before readers who never read", || backend.sent());
    eprintln!(
        "{} readers after {:?}: {}, {} KiB sent to each",
        readers.len(),
        began.elapsed(),
        group.memory_parts(),
        (backend.sent() >> 10) / (crowd.readers as u64).max(1)
    );
    bystander
        .echo()
        .expect("an echo beside clients that never read");
    let half = many(crowd.half_records, move || half_record(address));
    eprintln!("{} half records: {}", half.len(), group.memory_parts());
    let hellos = many(crowd.hellos, move || endless_hello(address));
    eprintln!("{} endless hellos: {}", hellos.len(), group.memory_parts());
    for _ in 0..20 {
        bystander
            .echo()
            .expect("an echo beside endless ClientHellos");
    }
    // A client that reads again receives everything.
    for mut reader in readers.into_iter().take(20) {
        let mut some = vec![0; 256 << 10];
        (reader.stream().read_exact(&mut some)).expect("a reading client receives the flood");
    }
    assert!(scene.terminator.runs(), "the program still runs");
    // Also of a keeper or a helper, which is the kernel's first choice when it is larger.
    assert_eq!(scene.terminator.lines_with(" died"), Vec::<String>::new());
    assert_eq!(group.oom_kills(), 0, "processes killed for the limit");
    let peak = group.memory_peak();
    eprintln!(
        "the peak: {} MiB of {} MiB; resident now: {} MiB",
        peak >> 20,
        budget >> 20,
        scene.terminator.memory() >> 20
    );
    assert!(
        peak <= budget,
        "expected at most {budget} bytes to be used, at the peak it were {peak}: {}",
        group.memory_parts()
    );
    drop(scene);
    drop(group);
}

#[test]
fn a_budget_holds() {
    let _alone = crate::alone();
    let crowd = Crowd {
        readers: 200,
        half_records: 50,
        hellos: 200,
    };
    budget_holds(160 << 20, &crowd, 600);
}

/// The same with five thousand connections.
#[test]
#[ignore = "5,000 connections: a minute"]
fn a_budget_holds_against_five_thousand() {
    let _alone = crate::alone();
    let crowd = Crowd {
        readers: 5_000,
        half_records: 500,
        hellos: 1_500,
    };
    budget_holds(512 << 20, &crowd, 8_000);
}
