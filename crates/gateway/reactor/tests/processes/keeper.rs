//! A keeper, its workers, and connections that outlive them.
//!
//! The worker echoes. On `x` it hangs with the slot marked busy; on `?` it stores the bytes as pending instead
//! of sending them; on `q` it ends. A worker that finds live slots sends the pending bytes, resets the busy
//! connection, and continues with the same epoll instance.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;

use dormouse_reactor::pending::{Handle, Pending};
use dormouse_reactor::poller::{Event, Events, Interest, Poller};
use dormouse_reactor::process::{self, Ended, Inherit, Pid, Wait, die_with_parent, wait};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::slab::{Header, Slab};
use dormouse_reactor::socket::{self, Addr, Attempt, ListenOptions};
use dormouse_reactor::{Fd, OnExec};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::lifecycle::role;
use super::survival::header_of;

use super::share_table;

const LAYOUT: u32 = 1;
const PENDING_BYTES_MAX: usize = 1 << 20;
const LISTENER: u64 = u64::MAX;
const CLIENTS: usize = 60;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Connection {
    fd: Fd,
    is_live: u32,
    cookie: u64,
    pending: Handle,
    reserved: [u32; 11],
}

/// The descriptors in the table that keeper and worker are passed.
#[derive(Clone, Copy)]
struct Descriptors {
    listener: Fd,
    slab: Fd,
    pending: Fd,
}

pub(crate) fn connections_outlive_the_worker() {
    scenario("same");
}

pub(crate) fn connections_outlive_the_keepers_exec() {
    scenario("exec");
}

/// The clients' side, in a separate process.
fn scenario(mode: &str) {
    let any: Addr = "127.0.0.1:0".parse().unwrap();
    let listener = socket::listen(&any, &ListenOptions::default()).unwrap();
    let Addr::Tcp(address) = Addr::local(listener).unwrap() else {
        panic!("a TCP listener has a TCP address");
    };
    let slab = Slab::<Connection>::create("slab", 1000, LAYOUT)
        .unwrap()
        .fd();
    let pending = Pending::create("pending", PENDING_BYTES_MAX).unwrap().fd();
    let header = header_of(slab);
    let list = [listener, slab, pending];
    let mut arguments = list.map(|fd| fd.to_string()).to_vec();
    arguments.extend([mode.to_owned(), process::pid().to_string()]);
    let keeper = role("--keeper", &arguments)
        .with(Inherit::Only(list.to_vec()))
        .start()
        .unwrap();

    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(address)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        echo(client, format!("first {number}").as_bytes());
    }
    for round in 0..3 {
        // One connection leaves pending bytes, another one hangs the worker.
        clients[7].write_all(b"?keep this").unwrap();
        let worker = Pid(header.pid() as i32);
        let mut victim = clients.pop().unwrap();
        while header.note(1).unwrap().load(Ordering::Acquire) != round + 1 {
            std::thread::yield_now();
        }
        victim.write_all(b"x").unwrap();
        while header.busy().is_none() {
            std::thread::yield_now();
        }
        process::send_signal(worker, Signal::Kill).unwrap();
        // No worker is running now: events and connections wait.
        for (number, client) in clients.iter_mut().enumerate().filter(|(n, _)| *n != 7) {
            client
                .write_all(format!("round {round} {number}").as_bytes())
                .unwrap();
        }
        let mut newcomer = connect(address);
        newcomer.write_all(b"hello").unwrap();

        for (number, client) in clients.iter_mut().enumerate().filter(|(n, _)| *n != 7) {
            expect(client, format!("round {round} {number}").as_bytes());
        }
        expect(&mut clients[7], b"?keep this");
        expect(&mut newcomer, b"hello");
        clients.push(newcomer);
        // The busy connection was reset, and no other.
        let error = victim.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert_ne!(header.pid() as i32, worker.0);
        assert_eq!(header.adoptions() as u64, round + 2);
    }
    for client in &mut clients {
        echo(client, b"the end is near");
    }
    clients[0].write_all(b"q").unwrap();
    assert_eq!(
        wait(Wait::For(keeper)).unwrap(),
        Some((keeper, Ended::Exited(0)))
    );
    list.into_iter().for_each(Fd::close);
}

fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).unwrap()
}

fn echo(client: &mut TcpStream, bytes: &[u8]) {
    client.write_all(bytes).unwrap();
    expect(client, bytes);
}

fn expect(client: &mut TcpStream, bytes: &[u8]) {
    let mut buf = vec![0; bytes.len()];
    client.read_exact(&mut buf).unwrap();
    assert_eq!(buf, bytes);
}

/// Child: starts a worker, and another one each time it is killed.
pub(crate) fn keeper(arguments: &[String]) -> i32 {
    let number = |at: usize| arguments[at].parse::<i32>().unwrap();
    let [listener, slab, pending] = [0, 1, 2].map(|at| Fd(number(at)));
    let descriptors = Descriptors {
        listener,
        slab,
        pending,
    };
    assert!(die_with_parent(Signal::Kill, Pid(number(4))).unwrap());
    loop {
        let keeper = process::pid();
        let work = move || worker(descriptors, keeper);
        let worker = share_table("worker", work).unwrap();
        match wait(Wait::For(worker)).unwrap() {
            Some((_, Ended::Exited(code))) => return code,
            Some((_, Ended::Killed(9))) if arguments[3] == "exec" => {
                let Err(error) = role("--keeper", arguments)
                    .with(Inherit::Unmarked)
                    .replace_this();
                panic!("{error}");
            }
            Some((_, Ended::Killed(9))) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The worker's parts, which are borrowed separately.
struct Worker {
    slab: Slab<Connection>,
    header: Header,
    pending: Pending,
    poller: Poller,
}

fn worker(descriptors: Descriptors, keeper: Pid) -> i32 {
    assert!(die_with_parent(Signal::Kill, keeper).unwrap());
    let mut worker = Worker::adopt(descriptors);
    let mut events = Events::with_capacity(64);
    loop {
        worker.poller.wait(&mut events, None).unwrap();
        for event in events.iter() {
            if event.token() == LISTENER {
                worker.accept(descriptors.listener);
            } else if worker.serve(event) {
                return 0;
            }
        }
    }
}

impl Worker {
    fn adopt(descriptors: Descriptors) -> Worker {
        let is_live = |_: u32, connection: &Connection| connection.is_live != 0;
        let (slab, adopted) = Slab::adopt(descriptors.slab, LAYOUT, is_live).unwrap();
        let header = slab.header().clone();
        let named = slab.indices().filter_map(|index| {
            let handle = slab.get(index)?.pending;
            handle.is_some().then_some((handle, index))
        });
        let (pending, refused) =
            Pending::adopt(descriptors.pending, PENDING_BYTES_MAX, named).unwrap();
        assert!(refused.is_empty());
        let poller = match header.epoll() {
            Fd::NONE => {
                let poller = Poller::create(OnExec::Keep).unwrap();
                poller
                    .add_exclusive(descriptors.listener, LISTENER)
                    .unwrap();
                header.set_epoll(poller.fd());
                poller
            }
            epoll => Poller::adopt(epoll).unwrap(),
        };
        let mut worker = Worker {
            slab,
            header,
            pending,
            poller,
        };
        if let Some(index) = adopted.busy {
            worker.reset(index);
            worker.header.clear_busy();
        }
        worker.resume();
        worker
    }

    /// Every connection continues, and pending bytes are sent.
    fn resume(&mut self) {
        let indices: Vec<u32> = self.slab.indices().collect();
        for index in indices {
            let connection = self.slab.get_mut(index).unwrap();
            assert_eq!(socket::cookie(connection.fd).unwrap(), connection.cookie);
            if connection.pending.is_some() {
                self.header.mark_busy(index);
                let data = self.pending.data(connection.pending);
                assert!(socket::send(connection.fd, data).unwrap().done().is_some());
                self.pending.free(connection.pending);
                connection.pending = Handle::NONE;
                self.header.clear_busy();
            }
        }
    }

    fn accept(&mut self, listener: Fd) {
        let Attempt::Done(accepted) = socket::accept(listener, OnExec::Keep).unwrap() else {
            return;
        };
        let index = self.slab.insert().unwrap();
        self.header.mark_busy(index);
        let connection = self.slab.get_mut(index).unwrap();
        connection.fd = accepted.fd;
        connection.cookie = socket::cookie(accepted.fd).unwrap();
        connection.is_live = 1;
        self.poller
            .add(accepted.fd, index.into(), Interest::READ)
            .unwrap();
        self.header.clear_busy();
    }

    /// Returns true if the worker must end.
    fn serve(&mut self, event: Event) -> bool {
        let index = event.token() as u32;
        let Some(connection) = self.slab.get_mut(index) else {
            return false;
        };
        self.header.mark_busy(index);
        let mut buf = [0; 1024];
        match socket::recv(connection.fd, &mut buf) {
            Ok(Attempt::WouldBlock) => {}
            Ok(Attempt::Done(0)) | Err(_) => self.reset(index),
            Ok(Attempt::Done(count)) => match buf[0] {
                b'x' => loop {
                    std::thread::park();
                },
                b'q' => return true,
                b'?' => {
                    let handle = connection.pending;
                    let stored = self.pending.store(handle, index, &buf[..count]);
                    connection.pending = stored.unwrap();
                    self.header.clear_busy();
                    self.header.note(1).unwrap().fetch_add(1, Ordering::Release);
                    return false;
                }
                _ => {
                    let sent = socket::send(connection.fd, &buf[..count]).unwrap();
                    assert_eq!(sent, Attempt::Done(count));
                }
            },
        }
        self.header.clear_busy();
        false
    }

    /// Cleared first, then closed.
    fn reset(&mut self, index: u32) {
        let Some(connection) = self.slab.get(index) else {
            return;
        };
        let (fd, pending) = (connection.fd, connection.pending);
        self.slab.free(index);
        self.pending.free(pending);
        socket::reset(fd);
    }
}
