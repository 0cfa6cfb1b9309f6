//! Clients that never read hold memory, and slow no other connection.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dormouse_interop::peer::Peer;
use dormouse_interop::process::{Process, cpu_time};
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::Terminator;
use rustix::net::sockopt;

/// Enough of them to use up the memory for bytes that wait: each holds what its sockets take, and 64 KiB more.
const STUCK: usize = 500;
const MEMORY: &str = "200 MiB";

/// Records that the honest client sends and gets back, one after the other.
const RECORDS: usize = 300;
const RECORD: usize = 16_000;

/// How much longer a record may take beside them. It was hundreds of times, when each record waited for a timer.
const DELAY_MAX: u32 = 30;
/// How much more CPU time it may take.
const WORK_MAX: u32 = 5;
/// The part of a core that they may take while nothing happens.
const IDLE_PARTS: u32 = 20;

/// A client that sends for as long as it can, and reads nothing.
struct Stuck {
    peer: Peer,
    unsent: Vec<u8>,
    /// The server has closed it, because it needs the memory.
    is_closed: bool,
}

impl Stuck {
    fn connect(address: SocketAddr) -> Stuck {
        let peer = Peer::echoing(address);
        sockopt::set_socket_recv_buffer_size(&peer.tcp, 4096).expect("a small buffer");
        peer.tcp.set_nonblocking(true).expect("a mode");
        Stuck {
            peer,
            unsent: Vec::new(),
            is_closed: false,
        }
    }

    /// Sends what the socket takes. Returns whether it has taken anything.
    fn push(&mut self) -> bool {
        if self.unsent.is_empty() {
            let content = [7; RECORD];
            self.peer.tls.writer().write_all(&content).expect("room");
            while self.peer.tls.wants_write() {
                self.peer.tls.write_tls(&mut self.unsent).expect("a record");
            }
        }
        match self.peer.tcp.write(&self.unsent) {
            Ok(sent) => {
                self.unsent.drain(..sent);
                sent > 0
            }
            Err(error) => {
                self.is_closed = error.kind() != ErrorKind::WouldBlock;
                false
            }
        }
    }
}

/// Sends until nothing has moved for a while.
fn fill(all: &mut [Stuck]) {
    let mut quiet = 0;
    while quiet < 10 {
        let mut has_moved = false;
        for stuck in all.iter_mut().filter(|stuck| !stuck.is_closed) {
            has_moved |= stuck.push();
        }
        quiet = if has_moved { 0 } else { quiet + 1 };
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn cpu_of(process: &Process) -> Duration {
    process.tree().into_iter().map(cpu_time).sum()
}

/// The time, and the CPU time of the program, until an honest client has its records back.
fn exchange(peer: &mut Peer, process: &Process) -> (Duration, Duration) {
    let (began, before) = (Instant::now(), cpu_of(process));
    let (content, mut back) = ([9; RECORD], [0; RECORD]);
    for _ in 0..RECORDS {
        peer.stream().write_all(&content).expect("a write");
        peer.stream().read_exact(&mut back).expect("an echo");
    }
    (began.elapsed(), cpu_of(process) - before)
}

#[test]
fn clients_that_never_read_slow_no_other() {
    let _alone = crate::alone();
    let terminator = Terminator::chosen();
    let scene = Scene::with(|settings| {
        settings.workers = 1;
        if terminator == Terminator::Dormouse {
            settings.option("memory", MEMORY);
        }
    });
    let mut honest = Peer::echoing(scene.address);
    let process = &scene.terminator;
    // The first exchange grows buffers.
    exchange(&mut honest, process);
    let (usual, usual_cpu) = exchange(&mut honest, process);
    let mut stuck: Vec<_> = (0..STUCK).map(|_| Stuck::connect(scene.address)).collect();
    fill(&mut stuck);
    let (at_once, at_once_cpu) = exchange(&mut honest, process);
    let (began, before) = (Instant::now(), cpu_of(process));
    std::thread::sleep(Duration::from_secs(2));
    let (idle, idle_for) = (cpu_of(process) - before, began.elapsed());
    let (later, later_cpu) = exchange(&mut honest, process);
    let mut newcomer = Peer::echoing(scene.address);
    newcomer.echo().expect("an echo");
    fill(&mut stuck);
    let closed = stuck.iter().filter(|stuck| stuck.is_closed).count();
    eprintln!(
        "{terminator}: {RECORDS} records of {RECORD} bytes: {usual:?} and {usual_cpu:?} of CPU time; beside {STUCK} \
         clients that never read: {at_once:?} and {at_once_cpu:?}, later {later:?} and {later_cpu:?}; they take {idle:?} of \
         {idle_for:?} at rest; {closed} were closed"
    );
    assert!(closed < STUCK / 2, "{closed} closed");
    for (time, cpu) in [(at_once, at_once_cpu), (later, later_cpu)] {
        assert!(time <= DELAY_MAX * usual, "{time:?}, {usual:?}");
        assert!(cpu <= WORK_MAX * usual_cpu, "{cpu:?}, {usual_cpu:?}");
    }
    assert!(idle * IDLE_PARTS <= idle_for, "{idle:?} of {idle_for:?}");
}
