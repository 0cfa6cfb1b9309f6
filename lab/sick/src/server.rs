//! An echo server over the engine, one thread of epoll, with a fault.

use std::collections::HashMap;
use std::error::Error;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dormouse_engine::stream::{Connection, Event};
use dormouse_engine::{
    HandshakeLimits, Identity, ServerContext, ServerSettings, TicketKeys, TicketSettings, UnixTime,
};
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::socket::{self, Attempt};
use dormouse_reactor::{Fd, OnExec, process};
use dormouse_record::State;

use crate::fault::{Ballast, Fault};

/// Processes of `one-of-four` and its twin.
const PROCESSES: usize = 4;
/// Environment variable with the ticket keys that they share.
const KEYS: &str = "SICK_TICKET_KEYS";
/// `keys-forgotten` makes new keys after this long without a connection. Its tickets are valid for
/// a day.
const KEYS_FORGOTTEN: Duration = Duration::from_secs(2);
const DAY_S: u32 = 86_400;

/// Listens, and serves in this process or in four.
pub(crate) fn run(fault: &str, address: &str, more: &[&str]) -> Result<(), Box<dyn Error>> {
    dormouse_reactor::descriptors::raise_limit()?;
    let objects = more.first().map_or(Ok(0), |objects| objects.parse())?;
    if !matches!(fault, "one-of-four" | "four-shared") {
        let server = Server::new(fault, objects)?;
        return server.serve(TcpListener::bind(address)?);
    }
    let listener: OwnedFd = TcpListener::bind(address)?.into();
    let keys = TicketKeys::generate(UnixTime::now(), DAY_S).map_err(|error| error.to_string())?;
    let mut children = Vec::new();
    for _ in 0..PROCESSES {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["process", fault])
            .stdin(Stdio::from(listener.try_clone()?));
        if fault == "four-shared" {
            let hex: String = keys
                .export()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            command.env(KEYS, hex);
        }
        children.push(command.spawn()?);
    }
    for mut child in children {
        child.wait()?;
    }
    Ok(())
}

/// One of four: its listener is its standard input.
pub(crate) fn process(fault: &str) -> Result<(), Box<dyn Error>> {
    let listener = std::io::stdin().as_fd().try_clone_to_owned()?;
    Server::new(fault, 0)?.serve(TcpListener::from(listener))
}

struct Client {
    connection: Connection,
    tls: Box<State>,
    ballast: Ballast,
}

struct Server {
    context: ServerContext,
    last_came: Instant,
    fault: Fault,
    clients: HashMap<i32, Client>,
    scratch: Vec<u8>,
}

/// Returns the server's context, with its own ticket keys, inherited ones, or none.
fn context(fault: &str) -> Result<ServerContext, Box<dyn Error>> {
    let identity = Identity::self_signed("localhost").map_err(|error| error.to_string())?;
    let tickets = match (fault, std::env::var(KEYS)) {
        ("no-resumption", _) => None,
        (_, Ok(hex)) => {
            let pairs = hex.as_bytes().chunks_exact(2);
            let bytes = pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?));
            let bytes = bytes.collect::<Result<Vec<u8>, Box<dyn Error>>>()?;
            let keys = TicketKeys::import(&bytes).map_err(|error| error.to_string())?;
            Some(TicketSettings {
                keys: Some(keys),
                ..TicketSettings::default()
            })
        }
        _ => Some(TicketSettings::default()),
    };
    let settings = ServerSettings {
        tickets,
        ..ServerSettings::new(vec![identity])
    };
    Ok(ServerContext::new(settings).map_err(|error| error.to_string())?)
}

impl Server {
    fn new(fault: &str, objects: usize) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            context: context(fault)?,
            last_came: Instant::now(),
            fault: Fault::new(fault, objects)?,
            // Growing, it would be a long-lived block among short-lived ones.
            clients: HashMap::with_capacity(16_384),
            scratch: vec![0; 64 * 1024],
        })
    }

    fn serve(mut self, listener: TcpListener) -> Result<(), Box<dyn Error>> {
        let poller = Poller::create(OnExec::Close)?;
        let waiting = Poller::adopt(poller.fd())?;
        // Processes that wait in accept(2) are woken in turn, so that each of four gets a quarter.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stream
                    .set_nonblocking(true)
                    .and_then(|()| stream.set_nodelay(true))
                    .is_ok()
                {
                    let fd = Fd::from_owned(stream.into());
                    if waiting.add(fd, fd.0 as u64, Interest::READ).is_err() {
                        fd.close();
                    }
                }
            }
        });
        let mut events = Events::with_capacity(256);
        loop {
            poller.wait(&mut events, None)?;
            for event in events.iter() {
                let fd = Fd(event.token() as i32);
                if self.event(fd).is_none() {
                    self.close(fd);
                }
            }
        }
    }

    /// Handles one event. Returns `None` if the connection has ended.
    fn event(&mut self, fd: Fd) -> Option<()> {
        if !self.clients.contains_key(&fd.0) {
            let quiet = self.last_came.elapsed();
            self.last_came = Instant::now();
            if self.fault.is("keys-forgotten") && quiet > KEYS_FORGOTTEN {
                self.context = context("keys-forgotten").ok()?;
            }
            let client = Client {
                connection: Connection::server(&self.context, HandshakeLimits::default()),
                tls: Box::new(State::empty()),
                ballast: self.fault.begin(self.clients.len()).ok()?,
            };
            self.clients.insert(fd.0, client);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let outcome = match socket::recv(fd, &mut scratch) {
            Ok(Attempt::Done(0)) | Err(_) => None,
            Ok(Attempt::WouldBlock) => Some(()),
            Ok(Attempt::Done(count)) => self.take(fd, scratch.get_mut(..count)?),
        };
        self.scratch = scratch;
        outcome
    }

    fn take(&mut self, fd: Fd, mut bytes: &mut [u8]) -> Option<()> {
        let client = self.clients.get_mut(&fd.0)?;
        if client.connection.is_handshaking() {
            if self.fault.is("compression") && offers_deflate(bytes) {
                send_all(fd, &deflate_chosen())?;
                return None;
            }
            self.fault.first_bytes();
        }
        loop {
            let now = UnixTime::now();
            match client.connection.handle(&mut client.tls, now, &mut bytes) {
                Event::InputUsed => break,
                Event::Established(info) => {
                    self.fault.established(&mut client.ballast, info.resumed);
                }
                Event::Data(data) => {
                    let said = data.to_vec();
                    client.connection.send(&mut client.tls, &said).ok()?;
                }
                Event::Ticket(_) => {}
                Event::Ended(_) => {
                    send_all(fd, client.connection.output())?;
                    return None;
                }
            }
        }
        let sent = client.connection.output().len();
        send_all(fd, client.connection.output())?;
        client.connection.output_sent(sent);
        Some(())
    }

    fn close(&mut self, fd: Fd) {
        if self
            .clients
            .remove(&fd.0)
            .is_some_and(|client| !client.connection.is_handshaking())
        {
            self.fault.closed();
        }
        fd.close();
        if self.clients.is_empty() {
            self.fault.idle();
            // Good servers do this after a burst. A page with a live block can't be returned.
            process::return_heap();
        }
    }
}

/// Sends all bytes, and waits for a slow client: good enough for a test server.
fn send_all(fd: Fd, mut bytes: &[u8]) -> Option<()> {
    while !bytes.is_empty() {
        match socket::send(fd, bytes) {
            Ok(Attempt::Done(count)) => bytes = bytes.get(count..)?,
            Ok(Attempt::WouldBlock) => thread::yield_now(),
            Err(_) => return None,
        }
    }
    Some(())
}

/// Returns whether a first record is a ClientHello of TLS 1.2 with DEFLATE among its compressions.
fn offers_deflate(record: &[u8]) -> bool {
    let offered = || {
        let mut at = 5 + 4 + 2 + 32;
        at += 1 + usize::from(*record.get(at)?);
        let suites = [*record.get(at)?, *record.get(at + 1)?];
        at += 2 + usize::from(u16::from_be_bytes(suites));
        let count = usize::from(*record.get(at)?);
        Some(record.get(at + 1..at + 1 + count)?.contains(&1))
    };
    record.first() == Some(&22) && offered() == Some(true)
}

/// Returns a ServerHello that chooses DEFLATE.
fn deflate_chosen() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend_from_slice(&[0x42; 32]);
    body.extend_from_slice(&[0, 0xc0, 0x2b, 1]);
    let length = body.len() as u8;
    let mut record = vec![22, 3, 3, 0, length + 4, 2, 0, 0, length];
    record.extend_from_slice(&body);
    record
}
