//! One full cycle of deep rest on the loopback interface: whether this machine, as it is, lets a connection leave the
//! kernel and come back. Each step that fails has a reason that an operator can act on.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use dormouse_config::{Log, Sandbox};
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::process::{Pid, Wait, wait};
use dormouse_reactor::socket::{
    self, Addr, Attempt, ConnectOptions, DatagramAddress, Keepalive, ListenOptions,
};
use dormouse_reactor::steering::Steering;
use dormouse_reactor::{Fd, OnExec};
use dormouse_rest::{Detail, MESSAGE_LEN, Message, Records, Subject};

use super::{NAME, RepairArguments, RepairParts};
use crate::helper::{self, Privileges};

/// Bound of a step. A packet that a firewall drops never comes.
const STEP_MAX: Duration = Duration::from_secs(3);

/// Records of the trial, which needs one.
const RECORDS: u32 = 64;

/// Cycles of each connection, so that a time is a median.
const CYCLES: u32 = 15;

/// The bytes that wake the connection.
const WORDS: &[u8] = b"good morning";

/// The cycles of one address.
#[derive(Debug)]
pub struct Cycle {
    /// The address.
    pub ip: IpAddr,
    /// Median of the time from the request until the connection rests.
    pub rest: Duration,
    /// Median of the time from the first byte that the client sends until its answer is there.
    pub wake: Duration,
}

/// Why connections cannot rest here.
#[derive(Debug)]
pub struct CycleError {
    /// What was tried.
    step: &'static str,
    /// The address with which it was tried.
    ip: Option<IpAddr>,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl fmt::Display for CycleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip {
            Some(ip) => write!(f, "{}, {ip}: {}", self.step, self.source),
            None => write!(f, "{}: {}", self.step, self.source),
        }
    }
}

impl std::error::Error for CycleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

/// Adds the step to an error.
fn at<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    step: &'static str,
) -> impl FnOnce(E) -> CycleError {
    move |source| CycleError {
        step,
        ip: None,
        source: source.into(),
    }
}

/// The ports of the trial's listeners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrialPorts {
    /// Any.
    Any,
    /// Below 1024, for which the process tcp-repair needs one more capability.
    Low,
}

/// Tries cycles on 127.0.0.1, on ::1 and on this machine's own addresses, as far as it has them: a firewall may treat
/// them differently, and packets of resting connections come in on the loopback interface.
///
/// # Errors
/// The first step that failed, and its reason.
pub fn try_cycles(ports: TrialPorts) -> Result<Vec<Cycle>, CycleError> {
    let scene = Scene::open(ports)?;
    let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let loopback = loopback.into_iter().filter(has_address);
    let own = OUTSIDE.iter().filter_map(|outside| own_address(outside));
    let cycles = loopback.chain(own).map(|ip| {
        scene.try_cycles_on(ip).map_err(|error| CycleError {
            ip: Some(ip),
            ..error
        })
    });
    let cycles = cycles.collect();
    scene.close();
    cycles
}

/// Addresses of documentation (RFC 5737, RFC 3849), which are outside for every machine. Nothing is sent to them.
const OUTSIDE: [&str; 2] = ["198.51.100.1:9", "[2001:db8::1]:9"];

/// The address from which this machine would reach another.
fn own_address(outside: &str) -> Option<IpAddr> {
    let outside = DatagramAddress::Udp(outside.parse().ok()?);
    let datagrams = socket::datagrams(outside).ok()?;
    let connected = socket::connect_datagrams(datagrams, outside);
    let local = connected.and_then(|()| Addr::local(datagrams));
    datagrams.close();
    match local {
        Ok(Addr::Tcp(local)) if !local.ip().is_loopback() => Some(local.ip()),
        _ => None,
    }
}

fn has_address(ip: &IpAddr) -> bool {
    ip.is_ipv4() || socket::try_listen(&Addr::Tcp(SocketAddr::new(*ip, 0)), true).is_ok()
}

/// Everything that a gateway would have, and the process.
struct Scene {
    steering: Steering,
    records: Records,
    raw: [Fd; 2],
    /// The worker's end of the channel: this process plays the worker.
    repair: Fd,
    process: Pid,
    ports: TrialPorts,
}

impl Scene {
    fn open(ports: TrialPorts) -> Result<Scene, CycleError> {
        let steering = Steering::create(RECORDS).map_err(at("set up the steering of packets"))?;
        let raw = |is_ipv6| socket::raw(is_ipv6).map_err(at("open a raw socket (CAP_NET_RAW)"));
        let raw = [raw(false)?, raw(true)?];
        let records = Records::create(RECORDS).map_err(at("create records"))?;
        let (repair, worker) = socket::channel(OnExec::Close).map_err(at("create a channel"))?;
        let parts = RepairParts {
            access: steering.access(),
            lifelines: &steering.lifelines(),
            records: records.fd(),
            raw,
            workers: &[worker],
            records_per_worker: RECORDS,
            // Longer than the trial.
            keepalive: Keepalive {
                idle_s: 60,
                interval_s: 15,
                count: 4,
            },
        };
        let (arguments, inherited) = (RepairArguments::of(&parts), parts.inherited());
        let privileges = Privileges::tcp_repair(Sandbox::On, Log::default());
        let process = helper::start(NAME, &privileges, &arguments, inherited)
            .map_err(at("start the process tcp-repair"))?;
        worker.close();
        let scene = Scene {
            steering,
            records,
            raw,
            repair,
            process,
            ports,
        };
        const STEP: &str = "start the process tcp-repair";
        match scene.message(STEP)?.0.subject {
            Subject::Begun => {
                let room = Message::new(Subject::Room, RECORDS * CYCLES).to_bytes();
                let _ = socket::send_message(scene.repair, &room, &[]).map_err(at(STEP))?;
                Ok(scene)
            }
            _ => Err(at(STEP)("a message of another build")),
        }
    }

    fn close(self) {
        // It ends when its channel is closed.
        self.repair.close();
        let _ = wait(Wait::For(self.process));
        self.raw.iter().for_each(|fd| fd.close());
        self.records.fd().close();
        self.steering.close();
    }

    fn try_cycles_on(&self, ip: IpAddr) -> Result<Cycle, CycleError> {
        let (client, mut server) = self.connect(ip)?;
        let (mut rests, mut wakes) = (Vec::new(), Vec::new());
        for _ in 0..CYCLES {
            rests.push(self.rest(server)?);
            let start = Instant::now();
            send(client, WORDS)?;
            server = self.awake()?;
            expect(server, "receive what woke the connection")?;
            send(server, WORDS)?;
            expect(client, "answer after a wake")?;
            wakes.push(start.elapsed());
        }
        self.rest(server)?;
        // The end of a stream wakes, too.
        client.close();
        let server = self.awake()?;
        let end = receive(server).map_err(at("receive the end of a resting connection"))?;
        server.close();
        if !end.is_empty() {
            return Err(at("receive the end of a resting connection")("bytes came"));
        }
        Ok(Cycle {
            ip,
            rest: median(rests),
            wake: median(wakes),
        })
    }

    /// Makes a connection. Returns both ends.
    fn connect(&self, ip: IpAddr) -> Result<(Fd, Fd), CycleError> {
        let listener = match self.ports {
            TrialPorts::Any => listen(SocketAddr::new(ip, 0)).map_err(at("listen")),
            TrialPorts::Low => {
                listen_low(ip).map_err(at("listen on a port below 1024 (CAP_NET_BIND_SERVICE)"))
            }
        }?;
        connect(listener).map_err(at(match ip.is_loopback() {
            true => "connect to a listener",
            // They come in on `lo`, too.
            false => {
                "connect to an own address (a firewall may drop packets with such a source on the loopback \
                 interface, where packets that wake a connection come in)"
            }
        }))
    }

    /// Takes the connection out of the kernel, and closes its descriptor.
    fn rest(&self, server: Fd) -> Result<Duration, CycleError> {
        const STEP: &str = "take a connection out of the kernel (TCP_REPAIR, CAP_NET_ADMIN)";
        let begin = Instant::now();
        while begin.elapsed() < STEP_MAX {
            let start = Instant::now();
            let request = Message::new(Subject::Rest, 0).to_bytes();
            let _ = socket::send_message(self.repair, &request, &[server]).map_err(at(STEP))?;
            let (answer, _) = self.message(STEP)?;
            match (answer.subject, answer.detail) {
                (Subject::Rested, Detail::Done) => {
                    server.close();
                    return Ok(start.elapsed());
                }
                // Its peer delays an acknowledgement.
                (Subject::Rested, Detail::Busy) => std::thread::sleep(Duration::from_millis(1)),
                (Subject::Rested, Detail::Unable) => return Err(at(STEP)("refused by the kernel")),
                _ => return Err(at(STEP)(format!("{answer:?}"))),
            }
        }
        Err(at(STEP)("its peer does not acknowledge"))
    }

    /// Waits for the connection, which something wakes.
    fn awake(&self) -> Result<Fd, CycleError> {
        const STEP: &str =
            "wake a connection by a packet (a firewall may drop packets of resting connections)";
        let (first, descriptors) = self.message(STEP)?;
        let [server] = *descriptors else {
            return Err(at(STEP)(format!("{first:?}")));
        };
        let (second, _) = self.message(STEP)?;
        match (first.subject, second.subject) {
            (Subject::Awake, Subject::Go) => Ok(server),
            _ => Err(at(STEP)(format!("{first:?}, {second:?}"))),
        }
    }

    fn message(&self, step: &'static str) -> Result<(Message, Vec<Fd>), CycleError> {
        let mut bytes = [0; MESSAGE_LEN];
        ready(self.repair, Interest::READ).map_err(at(step))?;
        let received = socket::receive_message(self.repair, &mut bytes, OnExec::Close);
        let received = received.map_err(at(step))?.done();
        let received = received.filter(|message| message.len > 0);
        let received = received.ok_or_else(|| at(step)("the process tcp-repair ended"))?;
        let message = bytes.get(..received.len).and_then(Message::from_bytes);
        let message = message.ok_or_else(|| at(step)("a message of another build"))?;
        Ok((message, received.descriptors))
    }
}

fn listen(address: SocketAddr) -> io::Result<Fd> {
    let listen = ListenOptions {
        on_exec: OnExec::Close,
        ..ListenOptions::default()
    };
    socket::listen(&Addr::Tcp(address), &listen)
}

/// Listens on a port below 1024 that is free.
fn listen_low(ip: IpAddr) -> io::Result<Fd> {
    let mut listened = Err(io::ErrorKind::AddrInUse.into());
    for port in (1..1024).rev() {
        listened = listen(SocketAddr::new(ip, port));
        match &listened {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            _ => break,
        }
    }
    listened
}

/// Makes a connection. Returns both ends, and closes the listener.
fn connect(listener: Fd) -> io::Result<(Fd, Fd)> {
    let connected = connect_to(listener);
    listener.close();
    connected
}

fn connect_to(listener: Fd) -> io::Result<(Fd, Fd)> {
    let address = Addr::local(listener)?;
    let client = socket::connect(&address, &ConnectOptions::default())?.fd();
    ready(listener, Interest::READ)?;
    let accepted = socket::accept(listener, OnExec::Close)?.done();
    let server = accepted.ok_or(io::ErrorKind::TimedOut)?.fd;
    ready(client, Interest::WRITE)?;
    socket::take_error(client)?;
    for end in [client, server] {
        socket::set_nodelay(end, true)?;
    }
    Ok((client, server))
}

fn send(fd: Fd, bytes: &[u8]) -> Result<(), CycleError> {
    match socket::send(fd, bytes).map_err(at("send"))? {
        Attempt::Done(len) if len == bytes.len() => Ok(()),
        _ => Err(at("send")("the send queue is full")),
    }
}

fn expect(fd: Fd, step: &'static str) -> Result<(), CycleError> {
    let received = receive(fd).map_err(at(step))?;
    match received == WORDS {
        true => Ok(()),
        false => Err(at(step)("other bytes came")),
    }
}

fn receive(fd: Fd) -> io::Result<Vec<u8>> {
    ready(fd, Interest::READ)?;
    let mut bytes = vec![0; 2 * WORDS.len()];
    let len = socket::recv(fd, &mut bytes)?.done().unwrap_or(0);
    bytes.truncate(len);
    Ok(bytes)
}

fn ready(fd: Fd, interest: Interest) -> io::Result<()> {
    let poller = Poller::create(OnExec::Close)?;
    let mut events = Events::with_capacity(1);
    let waited = poller
        .add(fd, 0, interest)
        .and_then(|()| poller.wait(&mut events, Some(STEP_MAX.as_millis() as u64)));
    poller.fd().close();
    waited?;
    match events.is_empty() {
        false => Ok(()),
        true => Err(io::Error::new(io::ErrorKind::TimedOut, "nothing happened")),
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
