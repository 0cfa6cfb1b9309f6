//! The repair process dies at every step of a rest and of a wake, and the worker when it is asked what it has. Their
//! successors continue, and the connection loses nothing and is never reset.
#![cfg(debug_assertions)]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use dormouse_reactor::own_network::{alone, counted};
use dormouse_reactor::socket::{self, Attempt, Keepalive};
use dormouse_reactor::steering::{Access, Steering};
use dormouse_reactor::{Fd, OnExec, step};
use dormouse_rest::{Detail, MESSAGE_LEN, Message, Parts, Records, Repair, Subject};

const RECORDS: u32 = 64;
const RECORD: u32 = 7;
/// Wakes by packets for which the worker has room.
const ROOM: u32 = 1000;
const HOURS: Keepalive = Keepalive {
    idle_s: 7200,
    interval_s: 75,
    count: 9,
};
const PATIENCE: Duration = Duration::from_secs(30);

/// The simulated end of the process.
struct Death;

/// A worker with one connection, and a repair process that dies.
struct Scene {
    access: Access,
    records: Fd,
    raw: [Fd; 2],
    theirs: Fd,
    repair: Option<Repair>,
    /// Steps until the next death.
    left: Option<u32>,
    deaths: u32,
    /// Whether the worker dies with the next question about a wake: it has taken the message, and not answered.
    worker_dies: bool,
    /// The worker's end of the channel.
    ours: Fd,
    server: Option<Fd>,
    client: TcpStream,
}

fn descriptors() -> BTreeSet<i32> {
    let names = std::fs::read_dir("/proc/self/fd").unwrap();
    let names = names.map(|name| name.unwrap().file_name().into_string().unwrap());
    let numbers: Vec<i32> = names.map(|name| name.parse().unwrap()).collect();
    // Without that of the list itself, which is closed by now.
    let open = |number: &i32| Fd(*number).on_exec().is_ok();
    numbers.into_iter().filter(open).collect()
}

impl Scene {
    fn begin(&mut self) -> Repair {
        Repair::begin(Parts {
            access: self.access,
            records: Records::adopt(self.records, RECORDS).unwrap(),
            raw: self.raw,
            workers: vec![self.theirs],
            records_per_worker: RECORDS,
            keepalive: HOURS,
        })
        .unwrap()
    }

    /// Lets the process do its work, and die in it.
    fn turn(&mut self) {
        let mut repair = match self.repair.take() {
            Some(repair) => repair,
            None => self.begin(),
        };
        let before = descriptors();
        let mut left = self.left;
        let done = Rc::new(Cell::new(0));
        let counter = done.clone();
        step::at_each(Some(Box::new(move || {
            counter.set(counter.get() + 1);
            match &mut left {
                Some(0) => resume_unwind(Box::new(Death)),
                Some(left) => *left -= 1,
                None => {}
            }
        })));
        let result = catch_unwind(AssertUnwindSafe(|| repair.turn().unwrap()));
        step::at_each(None);
        match result {
            Ok(lives) => {
                assert!(lives);
                self.left = self.left.map(|left| left - done.get());
                self.repair = Some(repair);
            }
            Err(panic) if panic.is::<Death>() => {
                // What a process has open ends with it. All but the channel's messages.
                drop(repair);
                for number in descriptors().difference(&before) {
                    Fd(*number).close();
                }
                self.left = None;
                self.deaths += 1;
            }
            Err(panic) => resume_unwind(panic),
        }
    }

    fn recalled(&self, detail: Detail, fd: Option<Fd>) {
        let message = Message {
            detail,
            ..Message::new(Subject::Recalled, RECORD)
        };
        let fds: Vec<Fd> = fd.into_iter().collect();
        let _ = socket::send_message(self.ours, &message.to_bytes(), &fds).unwrap();
    }

    fn make_room(&self) {
        let room = Message::new(Subject::Room, ROOM).to_bytes();
        let _ = socket::send_message(self.ours, &room, &[]).unwrap();
    }

    fn send(&self, subject: Subject, descriptors: &[Fd]) {
        let bytes = Message::new(subject, RECORD).to_bytes();
        let _ = socket::send_message(self.ours, &bytes, descriptors).unwrap();
    }

    /// Receives a message, and lets the process work until there is one.
    fn receive(&mut self) -> (Message, Option<Fd>) {
        let start = Instant::now();
        let mut bytes = [0; MESSAGE_LEN];
        loop {
            match socket::receive_message(self.ours, &mut bytes, OnExec::Close).unwrap() {
                Attempt::Done(message) => {
                    let read = Message::from_bytes(&bytes).unwrap();
                    if read.subject != Subject::Begun {
                        return (read, message.descriptors.first().copied());
                    }
                    self.make_room();
                }
                Attempt::WouldBlock => {
                    let deaths = self.deaths;
                    self.turn();
                    if let (true, Some(server)) = (self.deaths != deaths, self.server) {
                        // A worker repeats a request that had no answer.
                        self.send(Subject::Rest, &[server]);
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            assert!(
                start.elapsed() < PATIENCE,
                "no message after death {}",
                self.deaths
            );
        }
    }

    fn rest(&mut self) {
        let server = self.server.unwrap();
        self.send(Subject::Rest, &[server]);
        loop {
            let (message, _) = self.receive();
            match (message.subject, message.detail) {
                (Subject::Rested, Detail::Done) => break,
                (Subject::Rested, Detail::Busy) => {
                    std::thread::sleep(Duration::from_millis(2));
                    self.send(Subject::Rest, &[server]);
                }
                // A successor that does not know that its predecessor had told us.
                (Subject::Recall, _) => {
                    self.recalled(Detail::Done, None);
                    std::thread::sleep(Duration::from_millis(2));
                    self.send(Subject::Rest, &[server]);
                }
                (Subject::Rested, Detail::NoRoom) => {}
                other => panic!("{other:?}"),
            }
        }
        self.server = None;
        server.close();
        // Answers to requests that were repeated.
        let mut bytes = [0; MESSAGE_LEN];
        while let Attempt::Done(_) =
            socket::receive_message(self.ours, &mut bytes, OnExec::Close).unwrap()
        {}
    }

    /// The connection wakes by what the client has sent.
    fn awake(&mut self) -> Fd {
        let mut here = None;
        loop {
            let (message, fd) = self.receive();
            match message.subject {
                Subject::Awake => here = fd,
                Subject::Go => return here.unwrap(),
                Subject::Recall if std::mem::take(&mut self.worker_dies) => {
                    self.send(Subject::Sync, &[]);
                }
                Subject::Synced => self.make_room(),
                // If it had none, the next packet wakes it again.
                Subject::Recall => self.recalled(Detail::Busy, here),
                // The answer to a request that was repeated, and a successor that knows of no room yet.
                Subject::Rested | Subject::Waits => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// One rest and one wake, with a death after `steps` of one of them. Returns whether it came to that.
fn cycle(scene: &mut Scene, steps: u32, in_wake: bool, worker_dies: bool) -> bool {
    let deaths = scene.deaths;
    scene.worker_dies = worker_dies;
    scene.left = (!in_wake).then_some(steps);
    scene.rest();
    scene.left = in_wake.then_some(steps);
    scene.client.write_all(b"hello").unwrap();
    let server = scene.awake();
    scene.left = None;
    let mut stream = TcpStream::from(server.into_owned().unwrap());
    let mut hello = [0; 5];
    let start = Instant::now();
    while let Err(error) = stream.read_exact(&mut hello) {
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(start.elapsed() < PATIENCE, "no data");
        scene.turn();
        std::thread::sleep(Duration::from_micros(200));
    }
    stream.write_all(&hello).unwrap();
    scene.client.read_exact(&mut hello).unwrap();
    assert_eq!(&hello, b"hello");
    scene.server = Some(Fd::from_owned(stream.into()));
    scene.deaths != deaths
}

#[test]
fn a_death_at_any_step_loses_no_connection() {
    alone(|| {
        // Linux 6.11: a packet that is lost with the process is repeated soon.
        let _ = std::fs::write("/proc/sys/net/ipv4/tcp_rto_min_us", "5000");
        let steering = Steering::create(RECORDS).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.set_nodelay(true).unwrap();
        let server = Fd::from_owned(listener.accept().unwrap().0.into());
        let (ours, theirs) = socket::channel(OnExec::Close).unwrap();
        let mut scene = Scene {
            access: steering.access(),
            records: Records::create(RECORDS).unwrap().fd(),
            raw: [socket::raw(false).unwrap(), socket::raw(true).unwrap()],
            theirs,
            repair: None,
            left: None,
            deaths: 0,
            worker_dies: false,
            ours,
            server: Some(server),
            client,
        };
        for (in_wake, worker_dies) in [(false, false), (true, false), (true, true)] {
            let mut steps = 0;
            while cycle(&mut scene, steps, in_wake, worker_dies) {
                steps += 1;
            }
            assert!(steps > 10, "{steps} steps");
        }
        assert_eq!(counted("OutRsts"), 0);
        assert_eq!(steering.access().table().unwrap().count(), 0);
    });
}
