//! A TLS echo server whose costs are known exactly, to test the instrument.
//!
//! ```text
//! known_server [--keep] [--leak BYTES] [--burn-us N] [--resume-every-second]
//! ```
//!
//! - At rest a connection is one entry of [`KEPT`] bytes in a mapping, all of them touched, and
//!   nothing else: exactly 10,000 bytes per connection.
//! - `--leak`: this many bytes stay in the heap when a connection closes.
//! - `--burn-us`: CPU time is wasted until each handshake has used this much, all work included.
//! - `--resume-every-second`: every second handshake uses a context that resumes nothing.
//!
//! It prints its address. Called as `known_server generator` it is a load generator.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::error::Error;
use std::io::Write;

use dormouse_engine::{
    Handshake, HandshakeLimits, Identity, Progress, ServerContext, ServerSettings, TicketSettings,
    UnixTime,
};
use dormouse_reactor::memory::Mapping;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::socket::{self, Addr, Attempt, ListenOptions};
use dormouse_reactor::{Fd, OnExec, process};
use dormouse_record::{self as record, OpenKey, Opened, SealKey, State};
use zerocopy::FromBytes;

/// Bytes of a connection at rest.
const KEPT: usize = 10_000;
/// A multiple of 256, so that all entries together are a number of whole pages.
const CONNECTIONS_MAX: u32 = 58 * 256;
const STATE_LEN: usize = size_of::<State>();
const LISTENER: u64 = u64::MAX;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "generator") {
        return Ok(dormouse_bench::load::generator::run()?);
    }
    let knob = |name: &str| arguments.iter().position(|argument| argument == name);
    let number = |name: &str| {
        knob(name)
            .and_then(|at| arguments.get(at + 1)?.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let mut server = Server::new(
        number("--leak") as usize,
        number("--burn-us") * 1000,
        knob("--resume-every-second").is_some(),
    )?;
    server.run()
}

struct Server {
    contexts: [ServerContext; 2],
    poller: Poller,
    listener: Fd,
    entries: Mapping,
    free: Vec<u32>,
    handshakes: HashMap<u32, Box<Handshake>>,
    partial: HashMap<u32, Vec<u8>>,
    scratch: Vec<u8>,
    leak_bytes: usize,
    burn_ns: u64,
    every_second: bool,
    begun: u64,
    done: u64,
    cpu_at_start_ns: u64,
}

impl Server {
    fn new(leak_bytes: usize, burn_ns: u64, every_second: bool) -> Result<Self, Box<dyn Error>> {
        dormouse_reactor::descriptors::raise_limit()?;
        let listener = socket::listen(&"127.0.0.1:0".parse::<Addr>()?, &ListenOptions::default())?;
        let mut output = std::io::stdout();
        writeln!(output, "{}", Addr::local(listener)?)?;
        output.flush()?;
        let poller = Poller::create(OnExec::Close)?;
        poller.add(listener, LISTENER, Interest::READ)?;
        let context = |tickets| {
            let identity = Identity::self_signed("localhost").map_err(|error| error.to_string())?;
            let settings = ServerSettings {
                tickets,
                ..ServerSettings::new(vec![identity])
            };
            ServerContext::new(settings).map_err(|error| error.to_string())
        };
        // A handshake that resumes nothing uses up a ticket. `right_figures` knows this number.
        let generous = TicketSettings {
            per_handshake: 4,
            ..TicketSettings::default()
        };
        Ok(Self {
            contexts: [context(None)?, context(Some(generous))?],
            poller,
            listener,
            entries: Mapping::create("kept", KEPT * CONNECTIONS_MAX as usize)?,
            free: (0..CONNECTIONS_MAX).rev().collect(),
            handshakes: HashMap::new(),
            partial: HashMap::new(),
            scratch: vec![0; 64 * 1024],
            leak_bytes,
            burn_ns,
            every_second,
            begun: 0,
            done: 0,
            cpu_at_start_ns: process::cpu_ns(),
        })
    }

    fn run(&mut self) -> Result<(), Box<dyn Error>> {
        let mut events = Events::with_capacity(256);
        loop {
            self.poller.wait(&mut events, None)?;
            for event in events.iter() {
                match event.token() {
                    LISTENER => self.accept(),
                    token => {
                        let index = token as u32;
                        if self.serve(index).is_none() {
                            self.close(index);
                        }
                    }
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Ok(Attempt::Done(accepted)) = socket::accept(self.listener, OnExec::Close) {
            let Some(index) = self.free.pop() else {
                accepted.fd.close();
                return;
            };
            let _ = socket::set_nodelay(accepted.fd, true);
            self.entry(index).fill(0xa5);
            self.entry(index)[STATE_LEN..STATE_LEN + 4]
                .copy_from_slice(&accepted.fd.0.to_ne_bytes());
            self.entry(index)[..STATE_LEN].fill(0);
            let _ = self
                .poller
                .add(accepted.fd, u64::from(index), Interest::READ);
        }
    }

    fn entry(&mut self, index: u32) -> &mut [u8] {
        let start = index as usize * KEPT;
        &mut self.entries.bytes_mut()[start..start + KEPT]
    }

    fn fd(&mut self, index: u32) -> Fd {
        let bytes = self.entry(index)[STATE_LEN..STATE_LEN + 4]
            .first_chunk()
            .copied()
            .unwrap_or_default();
        Fd(i32::from_ne_bytes(bytes))
    }

    fn state(&mut self, index: u32) -> Option<&mut State> {
        State::mut_from_bytes(&mut self.entry(index)[..STATE_LEN]).ok()
    }

    /// One event; `None` when the connection is over.
    fn serve(&mut self, index: u32) -> Option<()> {
        let fd = self.fd(index);
        let mut scratch = std::mem::take(&mut self.scratch);
        let received = socket::recv(fd, &mut scratch);
        let outcome = match received {
            Ok(Attempt::Done(0)) | Err(_) => None,
            Ok(Attempt::WouldBlock) => Some(()),
            Ok(Attempt::Done(count)) => self.take(index, fd, &scratch[..count]),
        };
        self.scratch = scratch;
        outcome
    }

    fn take(&mut self, index: u32, fd: Fd, bytes: &[u8]) -> Option<()> {
        if !self.state(index)?.is_empty() {
            return self.echo(index, fd, bytes);
        }
        let mut handshake = match self.handshakes.remove(&index) {
            Some(handshake) => handshake,
            None => {
                self.begun += 1;
                // The first is the instrument's trial, the second primes: it must get tickets.
                let resumes = !self.every_second || self.begun.is_multiple_of(2);
                Box::new(Handshake::server(
                    &self.contexts[usize::from(resumes)],
                    HandshakeLimits::default(),
                ))
            }
        };
        let progress = handshake.handle_input(UnixTime::now(), bytes).ok()?;
        while !handshake.output().is_empty() {
            let Ok(Attempt::Done(count)) = socket::send(fd, handshake.output()) else {
                return None;
            };
            handshake.output_sent(count);
        }
        if progress == Progress::Handshaking {
            self.handshakes.insert(index, handshake);
            return Some(());
        }
        let rested = handshake.rest(self.state(index)?).ok()?;
        send_all(fd, &rested.unsent)?;
        self.done += 1;
        self.burn();
        if rested.leftover.is_empty() {
            Some(())
        } else {
            self.echo(index, fd, &rested.leftover)
        }
    }

    /// Uses CPU time until the handshake has used this much, all work included.
    fn burn(&self) {
        while process::cpu_ns() - self.cpu_at_start_ns < self.done * self.burn_ns {
            std::hint::spin_loop();
        }
    }

    fn echo(&mut self, index: u32, fd: Fd, bytes: &[u8]) -> Option<()> {
        let mut buffer = self.partial.remove(&index).unwrap_or_default();
        buffer.extend_from_slice(bytes);
        let state = self.state(index)?;
        let (mut open, mut seal) = (OpenKey::new(state), SealKey::new(state));
        let mut at = 0;
        while at < buffer.len() {
            at += match record::open(state, &mut open, &mut buffer[at..]).ok()? {
                Opened::Partial { .. } => break,
                Opened::Data {
                    consumed,
                    plaintext,
                } => {
                    let room = record::record_room(state);
                    let content = plaintext.len();
                    let mut out = vec![0; room.header + content + room.trailer];
                    let from = at + plaintext.start;
                    out[room.header..room.header + content]
                        .copy_from_slice(&buffer[from..from + content]);
                    let len = record::seal_in_place(state, &mut seal, &mut out, content).ok()?;
                    send_all(fd, &out[..len])?;
                    consumed
                }
                Opened::PeerClosed { .. } | Opened::PeerAlert { .. } => return None,
                Opened::Handled { consumed }
                | Opened::NoRenegotiation { consumed }
                | Opened::Ticket { consumed, .. } => consumed,
            };
        }
        if at < buffer.len() {
            self.partial.insert(index, buffer.split_off(at));
        }
        Some(())
    }

    fn close(&mut self, index: u32) {
        self.handshakes.remove(&index);
        self.partial.remove(&index);
        self.fd(index).close();
        self.free.push(index);
        if self.leak_bytes > 0 {
            Box::leak(vec![0xa5_u8; self.leak_bytes].into_boxed_slice());
        }
    }
}

/// A server for small messages: a client that does not take them is closed.
fn send_all(fd: Fd, mut bytes: &[u8]) -> Option<()> {
    while !bytes.is_empty() {
        let Ok(Attempt::Done(count)) = socket::send(fd, bytes) else {
            return None;
        };
        bytes = &bytes[count..];
    }
    Some(())
}
