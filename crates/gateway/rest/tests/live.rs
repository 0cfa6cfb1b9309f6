//! Connections of two workers that rest and wake while their clients speak, and workers that are compromised.
#![cfg(debug_assertions)]

use std::cell::RefCell;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dormouse_reactor::own_network::{alone, counted};
use dormouse_reactor::socket::{self, Attempt, Keepalive, send_message};
use dormouse_reactor::steering::{Captured, Digest, Steering};
use dormouse_reactor::tcp_state::{Filter, checkpoint};
use dormouse_reactor::{Fd, OnExec, step};
use dormouse_rest::{
    Detail, MESSAGE_LEN, Message, Parts, Phase, Records, RecordsReader, Repair, Subject, copy,
};

const PER_WORKER: u32 = 64;
/// Wakes by packets for which a worker has room.
const ROOM: u32 = 1 << 20;
/// Time after which a connection rests. Less than a client's pause, so that packets meet it in every phase; more than
/// the time between a packet that was cut and its repetition.
const QUIET: Duration = Duration::from_millis(1);
const HOURS: Keepalive = Keepalive {
    idle_s: 7200,
    interval_s: 75,
    count: 9,
};
const PATIENCE: Duration = Duration::from_secs(60);

struct Scene {
    steering: Steering,
    repair: Repair,
    records: RecordsReader,
    /// The workers' ends of their channels.
    workers: Vec<Fd>,
    listener: TcpListener,
}

impl Scene {
    fn make(keepalive: Keepalive) -> Scene {
        Scene::on("127.0.0.1:0", keepalive)
    }

    fn on(address: &str, keepalive: Keepalive) -> Scene {
        let steering = Steering::create(2 * PER_WORKER).unwrap();
        let channels = [(), ()].map(|()| socket::channel(OnExec::Close).unwrap());
        let records = Records::create(2 * PER_WORKER).unwrap();
        let reader = records.reader().unwrap();
        let repair = Repair::begin(Parts {
            access: steering.access(),
            records,
            raw: [socket::raw(false).unwrap(), socket::raw(true).unwrap()],
            workers: channels.map(|(_, theirs)| theirs).to_vec(),
            records_per_worker: PER_WORKER,
            keepalive,
        });
        Scene {
            steering,
            repair: repair.unwrap(),
            records: RecordsReader::adopt(reader, 2 * PER_WORKER).unwrap(),
            workers: channels.map(|(ours, _)| ours).to_vec(),
            listener: TcpListener::bind(address).unwrap(),
        }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn accept(&self) -> Fd {
        let stream = self.listener.accept().unwrap().0;
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        Fd::from_owned(stream.into())
    }

    fn ask(&mut self, worker: usize, subject: Subject, record: u32, descriptors: &[Fd]) {
        let bytes = Message::new(subject, record).to_bytes();
        let _ = send_message(self.workers[worker], &bytes, descriptors).unwrap();
    }

    fn answer(&mut self, worker: usize) -> Option<(Message, Option<Fd>)> {
        let mut bytes = [0; MESSAGE_LEN];
        loop {
            let channel = self.workers[worker];
            match socket::receive_message(channel, &mut bytes, OnExec::Close).unwrap() {
                Attempt::WouldBlock => return None,
                Attempt::Done(message) => {
                    let read = Message::from_bytes(&bytes).unwrap();
                    if read.subject != Subject::Begun {
                        return Some((read, message.descriptors.first().copied()));
                    }
                    self.ask(worker, Subject::Room, ROOM, &[]);
                }
            }
        }
    }

    fn answer_to(&mut self, worker: usize, subject: Subject, record: u32, fds: &[Fd]) -> Detail {
        self.ask(worker, subject, record, fds);
        assert!(self.repair.turn().unwrap());
        let (message, fd) = self.answer(worker).expect("an answer");
        assert_eq!((message.subject, fd), (Subject::Rested, None));
        message.detail
    }
}

/// A client that sends pieces of random length at random times, and compares what comes back.
fn client(address: SocketAddr, seed: u32, is_over: Arc<AtomicBool>) -> JoinHandle<usize> {
    std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut random = seed;
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        let (mut total, mut number) = (0, 0_u8);
        while !is_over.load(Ordering::Relaxed) {
            let len = match next(8) {
                0 => 1 + next(60_000),
                _ => 1 + next(3_000),
            };
            let piece: Vec<u8> = (0..len)
                .map(|_| {
                    number = number.wrapping_mul(5).wrapping_add(seed as u8 | 1);
                    number
                })
                .collect();
            stream.write_all(&piece).unwrap();
            let mut back = vec![0; piece.len()];
            stream.read_exact(&mut back).unwrap();
            assert!(back == piece, "other bytes after {total}");
            total += piece.len();
            std::thread::sleep(Duration::from_micros(next(20_000).into()));
        }
        total
    })
}

/// One connection of a worker, which echoes.
#[derive(Debug, Default)]
struct Echo {
    /// `None`: it rests.
    fd: Option<Fd>,
    /// A descriptor that does not speak yet.
    mute: Option<Fd>,
    is_asked: bool,
    /// When it last had something to do.
    busy: Option<Instant>,
    unsent: Vec<u8>,
    ended: bool,
    rests: u32,
}

impl Echo {
    /// Receives and sends what it can. Returns whether it may rest.
    fn work(&mut self) -> bool {
        let Some(fd) = self.fd else { return false };
        let mut bytes = [0; 20_000];
        match socket::recv(fd, &mut bytes).unwrap() {
            Attempt::WouldBlock => {}
            Attempt::Done(0) => {
                self.ended = true;
                fd.close();
                self.fd = None;
                return false;
            }
            Attempt::Done(len) => self.unsent.extend_from_slice(&bytes[..len]),
        }
        if !self.unsent.is_empty() {
            self.busy = Some(Instant::now());
        }
        if !self.unsent.is_empty()
            && let Attempt::Done(len) = socket::send(fd, &self.unsent).unwrap()
        {
            self.unsent.drain(..len);
        }
        self.unsent.is_empty() && self.busy.is_none_or(|busy| busy.elapsed() > QUIET)
    }

    fn hear(&mut self, message: Message, fd: Option<Fd>) {
        match message.subject {
            Subject::Rested => {
                self.is_asked = false;
                if message.detail == Detail::Done {
                    self.rests += 1;
                    self.fd.take().unwrap().close();
                } else {
                    assert_eq!(message.detail, Detail::Busy);
                }
            }
            Subject::Awake => self.mute = fd,
            Subject::Go => {
                self.fd = self.mute.take();
                self.busy = Some(Instant::now());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn no_byte_is_lost_or_changed_while_connections_rest_between_all_others() {
    alone(|| race("127.0.0.1:0"));
    alone(|| race("[::1]:0"));
}

fn race(address: &str) {
    const CLIENTS: u32 = 24;
    let mut scene = Scene::on(address, HOURS);
    let is_over = Arc::new(AtomicBool::new(false));
    let address = scene.address();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|seed| client(address, seed, is_over.clone()))
        .collect();
    // Every second connection belongs to the second worker.
    let record = |number: u32| number / 2 + number % 2 * PER_WORKER;
    let mut echoes: Vec<Echo> = (0..CLIENTS)
        .map(|_| Echo {
            fd: Some(scene.accept()),
            ..Echo::default()
        })
        .collect();
    let start = Instant::now();
    while echoes.iter().any(|echo| !echo.ended) {
        let rests: u32 = echoes.iter().map(|echo| echo.rests).sum();
        is_over.fetch_or(rests >= 500, Ordering::Relaxed);
        let left = || echoes.iter().filter(|echo| !echo.ended).collect::<Vec<_>>();
        assert!(
            start.elapsed() < PATIENCE,
            "not ended: {:?}, {:?}, {:?}",
            left(),
            scene.repair.counts(),
            scene.steering.counts()
        );
        for (number, echo) in (0..).zip(&mut echoes) {
            // It may go to rest at once, with a packet on its way.
            if !echo.is_asked && echo.work() {
                echo.is_asked = true;
                let fd = echo.fd.unwrap();
                scene.ask(number as usize % 2, Subject::Rest, record(number), &[fd]);
            }
        }
        assert!(scene.repair.turn().unwrap());
        for worker in 0..2 {
            while let Some((message, fd)) = scene.answer(worker) {
                let number = message.record % PER_WORKER * 2 + worker as u32;
                echoes[number as usize].hear(message, fd);
            }
        }
    }
    let total: usize = clients
        .into_iter()
        .map(|client| client.join().unwrap())
        .sum();
    assert!(total > 100_000, "{total} bytes");
    assert_eq!(counted("OutRsts"), 0);
    let counts = scene.repair.counts();
    assert_eq!(
        (counts.failed, counts.woken),
        (0, counts.rested),
        "{counts:?}"
    );
    assert_eq!(scene.steering.access().table().unwrap().count(), 0);
}

/// What a worker asks.
const OF_WORKERS: [Subject; 4] = [
    Subject::Rest,
    Subject::Wake,
    Subject::Recalled,
    Subject::Forget,
];

/// What a worker has no reason to say.
const NONSENSE: [Subject; 4] = [
    Subject::Recalled,
    Subject::Go,
    Subject::Gone,
    Subject::Awake,
];

#[test]
fn a_compromised_worker_reaches_nothing_but_its_own_connections() {
    alone(|| {
        let mut scene = Scene::make(HOURS);
        let address = scene.address();
        let mut victim = TcpStream::connect(address).unwrap();
        victim.set_read_timeout(Some(PATIENCE)).unwrap();
        let server = scene.accept();
        assert_eq!(
            scene.answer_to(0, Subject::Rest, 3, &[server]),
            Detail::Done
        );
        server.close();
        // Descriptors that are no quiet connections: the listener that all workers share, and others.
        let listener = Fd::from_owned(scene.listener.try_clone().unwrap().into());
        let (unix, _other) = UnixStream::pair().unwrap();
        let unix = Fd::from_owned(unix.into());
        let udp = Fd::from_owned(UdpSocket::bind("127.0.0.1:0").unwrap().into());
        let file = Fd::from_owned(std::fs::File::open("/dev/null").unwrap().into());
        for fd in [listener, unix, udp, file] {
            let detail = scene.answer_to(1, Subject::Rest, PER_WORKER, &[fd]);
            assert!(
                matches!(detail, Detail::Busy | Detail::Unable),
                "{detail:?}"
            );
        }
        // Its own record, with the listener in the place of its connection.
        let mut own = TcpStream::connect(address).unwrap();
        let its = scene.accept();
        let record = PER_WORKER + 1;
        assert_eq!(
            scene.answer_to(1, Subject::Rest, record, &[its]),
            Detail::Done
        );
        its.close();
        let _ = scene.answer_to(1, Subject::Rest, record, &[listener]);
        for subject in NONSENSE {
            scene.ask(1, subject, record, &[listener, unix]);
        }
        // Another worker's record, and none.
        for other in [3, 2 * PER_WORKER, u32::MAX] {
            for subject in OF_WORKERS {
                scene.ask(1, subject, other, &[listener]);
                scene.ask(1, subject, other, &[]);
            }
        }
        for garbage in [&[1][..], &[0xff; MESSAGE_LEN], &[0; 500]] {
            let _ = send_message(scene.workers[1], garbage, &[listener; 100]).unwrap();
        }
        assert!(scene.repair.turn().unwrap());
        assert_eq!(scene.answer(1), None);
        assert_eq!(scene.answer(0), None);
        // The listener listens, and both connections rest and wake.
        drop(TcpStream::connect(address).expect("a listener"));
        for (worker, client) in [(0, &mut victim), (1, &mut own)] {
            client.write_all(b"hello").unwrap();
            let start = Instant::now();
            let (message, fd) = loop {
                assert!(scene.repair.turn().unwrap());
                if let Some(answer) = scene.answer(worker) {
                    break answer;
                }
                assert!(start.elapsed() < PATIENCE, "no wake");
            };
            assert_eq!(message.subject, Subject::Awake);
            let mut stream = TcpStream::from(fd.unwrap().into_owned().unwrap());
            let mut hello = [0; 5];
            while let Err(error) = stream.read_exact(&mut hello) {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                assert!(start.elapsed() < PATIENCE, "no data");
            }
            assert_eq!(&hello, b"hello");
        }
        assert_eq!(counted("OutRsts"), 0);
    });
}

/// Turns until a worker is told something.
fn wait_for_answer(scene: &mut Scene, worker: usize) -> (Message, Option<Fd>) {
    let start = Instant::now();
    loop {
        assert!(scene.repair.turn().unwrap());
        if let Some(answer) = scene.answer(worker) {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "no answer");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Without room a packet wakes nothing, and waits. If it is lost meanwhile, its sender repeats it.
#[test]
fn a_packet_that_finds_no_room_waits() {
    alone(|| {
        let mut scene = Scene::make(HOURS);
        let mut clients = [0, 1].map(|record| {
            let client = TcpStream::connect(scene.address()).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let server = scene.accept();
            let detail = scene.answer_to(0, Subject::Rest, record, &[server]);
            assert_eq!(detail, Detail::Done);
            server.close();
            client
        });
        // A worker that is new has said nothing of room.
        scene.ask(0, Subject::Sync, 7, &[]);
        assert_eq!(wait_for_answer(&mut scene, 0).0.subject, Subject::Synced);
        for client in &mut clients {
            client.write_all(b"hello").unwrap();
        }
        let mut waiting = [0, 0];
        while waiting.contains(&0) {
            let (message, fd) = wait_for_answer(&mut scene, 0);
            assert_eq!((message.subject, fd), (Subject::Waits, None));
            waiting[message.record as usize] += 1;
        }
        assert_eq!(scene.repair.counts().woken, 0);
        // There is room for one, which its worker asks for. So the other one has to wait.
        scene.ask(0, Subject::Wake, 1, &[]);
        scene.ask(0, Subject::Room, 1, &[]);
        let mut expected = vec![Subject::Awake, Subject::Go];
        while let Some(next) = expected.first().copied() {
            let (message, _) = wait_for_answer(&mut scene, 0);
            if message.subject == next {
                assert_eq!(message.record, 1);
                expected.remove(0);
            } else {
                assert_eq!(message.subject, Subject::Waits);
            }
        }
        assert_eq!(scene.repair.counts().woken, 1);
        // Its packet wakes the other one as soon as there is room.
        scene.ask(0, Subject::Room, 2, &[]);
        let fd = loop {
            let (message, fd) = wait_for_answer(&mut scene, 0);
            if message.subject == Subject::Awake {
                assert_eq!(message.record, 0);
                break fd.unwrap();
            }
        };
        assert_eq!(wait_for_answer(&mut scene, 0).0.subject, Subject::Go);
        // It was there before the worker was told.
        let mut hello = [0; 5];
        TcpStream::from(fd.into_owned().unwrap())
            .read_exact(&mut hello)
            .unwrap();
        assert_eq!(&hello, b"hello");
        assert_eq!(counted("OutRsts"), 0);
    });
}

/// The descriptor of a connection that wakes at once must not arrive before the news that it rests.
#[test]
fn messages_about_a_connection_keep_their_order() {
    alone(|| {
        let mut scene = Scene::make(HOURS);
        let mut client = TcpStream::connect(scene.address()).unwrap();
        let server = scene.accept();
        assert!(scene.repair.turn().unwrap());
        while !scene.repair.channels().next().unwrap().waits {
            scene.ask(0, Subject::Sync, 1, &[]);
            assert!(scene.repair.turn().unwrap());
        }
        scene.ask(0, Subject::Room, ROOM, &[]);
        scene.ask(0, Subject::Rest, 0, &[server]);
        assert!(scene.repair.turn().unwrap());
        assert_eq!(scene.repair.counts().rested, 1);
        client.write_all(b"hello").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        // The worker reads after the wake has begun, so there is room for the descriptor, and after each turn.
        let (ours, theirs) = (scene.workers[0], Rc::new(RefCell::new(Vec::new())));
        let reader = UnixDatagram::from(ours.duplicate().unwrap().into_owned().unwrap());
        reader.set_nonblocking(true).unwrap();
        let heard = theirs.clone();
        let read = Rc::new(move || {
            let mut bytes = [0; MESSAGE_LEN];
            while let Ok(MESSAGE_LEN) = reader.recv(&mut bytes) {
                let message = Message::from_bytes(&bytes).unwrap();
                heard.borrow_mut().push(message.subject);
            }
        });
        let (records, read_in_wake) = (scene.records, read.clone());
        step::at_each(Some(Box::new(move || {
            if records.get(0).unwrap().phase() == Phase::Waking {
                read_in_wake();
            }
        })));
        let start = Instant::now();
        while !theirs.borrow().contains(&Subject::Go) {
            assert!(scene.repair.turn().unwrap());
            read();
            assert!(start.elapsed() < PATIENCE, "no wake");
        }
        step::at_each(None);
        let heard = theirs.take().into_iter();
        let is_about = |subject: &Subject| !matches!(subject, Subject::Begun | Subject::Synced);
        let about: Vec<Subject> = heard.filter(is_about).collect();
        assert_eq!(about, [Subject::Rested, Subject::Awake, Subject::Go]);
    });
}

#[test]
fn a_request_without_a_descriptor_is_refused() {
    alone(|| {
        let mut scene = Scene::make(HOURS);
        assert_eq!(scene.answer_to(0, Subject::Rest, 3, &[]), Detail::Busy);
        let _client = TcpStream::connect(scene.address()).unwrap();
        let server = scene.accept();
        let taken = scene.answer_to(0, Subject::Rest, 3, &[server]);
        assert_eq!(taken, Detail::Done);
        // The first answer was lost with a predecessor.
        assert_eq!(scene.answer_to(0, Subject::Rest, 3, &[]), Detail::Done);
    });
}

#[test]
fn forged_packets_keep_no_vanished_peer_alive() {
    alone(|| {
        let keepalive = Keepalive {
            idle_s: 1,
            interval_s: 1,
            count: 2,
        };
        let mut scene = Scene::make(keepalive);
        let address = scene.address();
        let client = TcpStream::connect(address).unwrap();
        let peer = client.local_addr().unwrap();
        let server = scene.accept();
        assert_eq!(
            scene.answer_to(0, Subject::Rest, 0, &[server]),
            Detail::Done
        );
        server.close();
        let vanished = Fd::from_owned(client.try_clone().unwrap().into());
        let (state, muted) = checkpoint(vanished, Filter::DropAll).unwrap();
        let raw = socket::raw(false).unwrap();
        let start = Instant::now();
        let (message, _) = loop {
            // A SYN of any number, and a reset near the right one, each of which is answered.
            let near = state.send_next().wrapping_add(99);
            send_forged(raw, peer, address, (12_345, 0, 0x02));
            send_forged(raw, peer, address, (near, 0, 0x04));
            assert!(scene.repair.turn().unwrap());
            if let Some(answer) = scene.answer(0) {
                break answer;
            }
            assert!(start.elapsed() < PATIENCE, "it is not noticed");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(
            (message.subject, message.detail),
            (Subject::Gone, Detail::Silent)
        );
        assert!(scene.repair.counts().acknowledged > 0);
        raw.close();
        drop(muted);
    });
}

/// A client may send more packets for its own connection than tcp-repair could read: they take no place in the ring from
/// others.
#[test]
fn the_packets_of_one_connection_are_limited() {
    alone(|| {
        const PACKETS: u32 = 30_000;
        let mut scene = Scene::make(HOURS);
        let address = scene.address();
        let mut clients = [0, 1].map(|record| {
            let client = TcpStream::connect(address).unwrap();
            let server = scene.accept();
            let detail = scene.answer_to(0, Subject::Rest, record, &[server]);
            assert_eq!(detail, Detail::Done);
            server.close();
            client
        });
        scene.ask(0, Subject::Room, ROOM, &[]);
        let peer = clients[0].local_addr().unwrap();
        let vanished = Fd::from_owned(clients[0].try_clone().unwrap().into());
        let (state, muted) = checkpoint(vanished, Filter::DropAll).unwrap();
        let raw = socket::raw(false).unwrap();
        let before = scene.steering.counts();
        let start = Instant::now();
        // Nobody reads the ring meanwhile. A SYN, a SYN with an acknowledgement, a probe.
        for number in 0..PACKETS {
            let probe = state.send_next().wrapping_sub(1);
            send_forged(raw, peer, address, (number * 99_991, 0, 0x02));
            send_forged(raw, peer, address, (number * 99_991, 0, 0x12));
            send_forged(raw, peer, address, (probe, state.receive_next(), 0x10));
        }
        let ticks = 2 + start.elapsed().as_millis() as u64 / 67;
        let counts = scene.steering.counts();
        let passed = 3 * u64::from(PACKETS)
            - (counts.limited - before.limited)
            - (counts.outside - before.outside);
        assert!(passed <= 64 * ticks, "{passed} in {ticks} ticks");
        assert_eq!(counts.ring_full, before.ring_full);
        // The other client wakes.
        clients[1].write_all(b"hello").unwrap();
        while scene.repair.counts().woken == 0 {
            assert!(scene.repair.turn().unwrap());
            assert!(start.elapsed() < PATIENCE, "no wake");
        }
        raw.close();
        drop(muted);
    });
}

/// Sends a packet with 4 bytes, these numbers and these flags, from and to these addresses.
fn send_forged(raw: Fd, from: SocketAddr, to: SocketAddr, (sequence, ack, flags): (u32, u32, u8)) {
    let mut bytes = [0; 24];
    bytes[..2].copy_from_slice(&from.port().to_be_bytes());
    bytes[2..4].copy_from_slice(&to.port().to_be_bytes());
    bytes[4..8].copy_from_slice(&sequence.to_be_bytes());
    bytes[8..12].copy_from_slice(&ack.to_be_bytes());
    (bytes[12], bytes[13]) = (5 << 4, flags);
    let forged = Captured {
        digest: Digest(0),
        source: from,
        destination: to,
        len: bytes.len(),
        bytes: &bytes,
    };
    let mut packet = Vec::new();
    copy(&forged, &mut packet);
    socket::send_raw(raw, &packet, to.ip()).unwrap();
}

#[test]
fn a_silent_peer_is_asked_and_a_vanished_one_ends() {
    alone(|| {
        let keepalive = Keepalive {
            idle_s: 1,
            interval_s: 1,
            count: 2,
        };
        let mut scene = Scene::make(keepalive);
        let address = scene.address();
        let clients = [0, 1].map(|record| {
            let client = TcpStream::connect(address).unwrap();
            let server = scene.accept();
            let detail = scene.answer_to(0, Subject::Rest, record, &[server]);
            assert_eq!(detail, Detail::Done);
            server.close();
            client
        });
        // The second client vanishes: its socket drops everything, and the kernel answers nothing for it.
        let vanished = Fd::from_owned(clients[1].try_clone().unwrap().into());
        let (_, muted) = checkpoint(vanished, Filter::DropAll).unwrap();
        let start = Instant::now();
        let (message, _) = loop {
            assert!(scene.repair.turn().unwrap());
            if let Some(answer) = scene.answer(0) {
                break answer;
            }
            assert!(start.elapsed() < PATIENCE, "it is not noticed");
            std::thread::sleep(Duration::from_millis(5));
        };
        let expected = (Subject::Gone, Detail::Silent, 1);
        assert_eq!((message.subject, message.detail, message.record), expected);
        // The first one was asked as often, and has answered.
        let counts = scene.repair.counts();
        assert!(counts.probed >= 4 && counts.gone == 1, "{counts:?}");
        assert_eq!(scene.steering.access().table().unwrap().count(), 1);
        assert_eq!(counted("OutRsts"), 0);
        drop(muted);
    });
}

#[test]
fn forged_packets_wake_nothing_and_are_answered_rarely() {
    alone(|| {
        const PACKETS: u32 = 20_000;
        let mut scene = Scene::make(HOURS);
        let address = scene.address();
        let client = TcpStream::connect(address).unwrap();
        let peer = client.local_addr().unwrap();
        let server = scene.accept();
        let (state, muted) = checkpoint(server, Filter::DropAll).unwrap();
        let _ = muted.release().unwrap();
        let answer = scene.answer_to(0, Subject::Rest, 0, &[server]);
        assert_eq!(answer, Detail::Done);
        server.close();
        let raw = socket::raw(false).unwrap();
        let send = |sequence: u32, acknowledgement: u32, flags: u8| {
            send_forged(raw, peer, address, (sequence, acknowledgement, flags));
        };
        // Right addresses and ports, and numbers that are guessed: data, ends, resets.
        for number in 0..PACKETS {
            let guess = number.wrapping_mul(2_654_435_761).wrapping_add(99_999_999);
            let flags = [0x18, 0x11, 0x04][number as usize % 3];
            send(guess, guess.rotate_left(9), flags);
        }
        // The right number before the next one, which a live connection answers each time.
        let before = state.receive_next().wrapping_sub(4);
        (0..1000).for_each(|_| send(before, state.send_next(), 0x10));
        for _ in 0..20 {
            assert!(scene.repair.turn().unwrap());
        }
        let (counts, kernel) = (scene.repair.counts(), scene.steering.counts());
        assert_eq!((counts.woken, counts.gone), (0, 0), "{counts:?}");
        assert!((1..5).contains(&counts.acknowledged), "{counts:?}");
        assert!(kernel.outside > u64::from(PACKETS) * 9 / 10, "{kernel:?}");
        // And a reset with the right number is one.
        send(state.receive_next(), 0, 0x04);
        assert!(scene.repair.turn().unwrap());
        assert_eq!(scene.repair.counts().gone, 1);
        raw.close();
    });
}
