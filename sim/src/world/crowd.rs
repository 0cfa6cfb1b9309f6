//! A worker with hogs, which hold memory and take nothing, and one honest client beside them. Without faults: the time
//! stands still while anything moves, so a wait for a timer takes time.

use super::pairs::{self, Contexts};
use super::scenario::{RouteKind, Scenario};
use super::setup::{self, Setup};
use crate::io::{Fuse, SimIo};
use crate::kernel::{Buffers, EndId, Kernel};
use crate::peer::codec::Codec;
use dormouse_dataplane::driven::DrivenWorker;
use dormouse_reactor::socket::Attempt;
use dormouse_record::State;
use dormouse_tables::counters::Count;
use std::cell::RefCell;
use std::io;
use std::ops::Sub;
use std::rc::Rc;

/// Turns without a change after which nothing moves any more.
const QUIET_TURNS: u32 = 4;

/// Content of a record, nearly as long as it may be.
const CONTENT: usize = 16_000;

/// A connection that holds memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hog {
    /// It sends for as long as it can, and reads nothing.
    ReadsNothing,
    /// It sends most of a record.
    EndsNoRecord,
}

/// What something has cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Effort {
    /// Turns of the worker's event loop.
    pub turns: u64,
    /// Events that were reported to the worker.
    pub events: u64,
    /// System calls of the worker.
    pub calls: u64,
    /// Simulated time, in microseconds.
    pub us: u64,
}

impl Sub for Effort {
    type Output = Effort;

    fn sub(self, before: Effort) -> Effort {
        Effort {
            turns: self.turns - before.turns,
            events: self.events - before.events,
            calls: self.calls - before.calls,
            us: self.us - before.us,
        }
    }
}

struct Client {
    end: EndId,
    codec: Codec,
    unsent: Vec<u8>,
}

/// A backend that sends back what it receives, and receives no more until that is sent.
struct Echo {
    end: EndId,
    kept: Vec<u8>,
}

/// A worker, its hogs and its honest client.
pub struct Crowd {
    kernel: Rc<RefCell<Kernel>>,
    fuse: Fuse,
    worker: DrivenWorker<SimIo>,
    contexts: Contexts,
    backends: usize,
    honest: Option<Client>,
    hogs: Vec<Client>,
    echoes: Vec<Echo>,
    scratch: Vec<u8>,
    setup: Setup,
}

impl Crowd {
    /// A worker without connections. `pending_bytes` and `kernel_bytes`: `pending_memory` and `kernel_memory`; 0: the
    /// default.
    ///
    /// # Errors
    /// When the worker's shared memory can't be created.
    pub fn new(route_kind: RouteKind, pending_bytes: u64, kernel_bytes: u64) -> io::Result<Crowd> {
        let scenario = Scenario {
            route_kind,
            pending_bytes,
            kernel_bytes,
            buffers: Buffers {
                send: 1 << 16,
                receive: 1 << 16,
            },
            ..Scenario::calm(1)
        };
        let (kernel, setup) = setup::calm(&scenario)?;
        let kernel = Rc::new(RefCell::new(kernel));
        let fuse = Fuse::endless();
        let io = SimIo::new(Rc::clone(&kernel), fuse.clone());
        Ok(Crowd {
            worker: DrivenWorker::begin(setup.handover, |_| Ok(io))?,
            kernel,
            fuse,
            contexts: Contexts::new(pairs::protocols(false), false),
            backends: setup::backends(route_kind).len(),
            honest: None,
            hogs: Vec::new(),
            echoes: Vec::new(),
            scratch: vec![0; 1 << 16],
            setup,
        })
    }

    /// Connects the honest client.
    pub fn welcome(&mut self) {
        self.honest = Some(self.connect());
    }

    /// Connects hogs, which do what they can. Then nothing moves any more.
    pub fn invade(&mut self, hog: Hog, count: u32) {
        for _ in 0..count {
            let mut client = self.connect();
            client.codec.send(&[7; CONTENT], &mut client.unsent);
            if hog == Hog::EndsNoRecord {
                client.unsent.truncate(CONTENT - 500);
            }
            let index = self.hogs.len();
            self.hogs.push(client);
            loop {
                self.settle();
                let client = &mut self.hogs[index];
                if hog == Hog::EndsNoRecord || !client.unsent.is_empty() {
                    break;
                }
                client.codec.send(&[7; CONTENT], &mut client.unsent);
            }
        }
    }

    /// Sends records of the honest client, each with this many bytes of content, and receives them back. Time passes only
    /// while nothing moves.
    ///
    /// # Panics
    /// When the worker waits for nothing, and some have not come back.
    pub fn exchange(&mut self, records: usize, bytes: usize) -> Effort {
        let before = self.effort();
        let client = self.honest.as_mut().expect("the honest client");
        let content = vec![9; bytes];
        for _ in 0..records {
            client.codec.send(&content, &mut client.unsent);
        }
        let (mut missing, mut quiet) = (records * bytes, 0);
        while missing > 0 {
            let has_moved = self.turn();
            let received = self.receive_at_honest();
            missing -= received;
            quiet = match has_moved || received > 0 {
                true => 0,
                false => quiet + 1,
            };
            if quiet == QUIET_TURNS {
                let mut kernel = self.kernel.borrow_mut();
                let wake_us = kernel.wake_us;
                kernel.advance_to(wake_us.expect("a time at which the worker looks again"));
                quiet = 0;
            }
        }
        self.effort() - before
    }

    /// Lets this time pass.
    pub fn wait(&mut self, seconds: u64) -> Effort {
        let before = self.effort();
        let until_us = self.kernel.borrow().clock_us() + seconds * 1_000_000;
        loop {
            self.turn();
            let kernel = &mut *self.kernel.borrow_mut();
            if kernel.clock_us() >= until_us {
                break;
            }
            // A worker that got an event does not sleep.
            let wake_us = kernel.wake_us.filter(|_| !kernel.has_reported);
            let next_us = match kernel.has_reported {
                true => kernel.clock_us(),
                false => wake_us.unwrap_or(u64::MAX),
            };
            kernel.advance_to(next_us.min(until_us));
        }
        self.effort() - before
    }

    /// The value of a counter.
    pub fn count(&self, count: Count) -> u64 {
        self.setup.counters.sum(count as usize)
    }

    /// Number of connections, also those that make a handshake.
    pub fn connections(&self) -> usize {
        self.worker.slots().live() as usize + self.worker.handshakes()
    }

    fn effort(&self) -> Effort {
        let kernel = self.kernel.borrow();
        Effort {
            turns: kernel.waits,
            events: kernel.reported,
            // A call has a step before it and one after it.
            calls: (u64::MAX - self.fuse.left()) / 2,
            us: kernel.clock_us(),
        }
    }

    /// Connects a client and completes its handshake.
    fn connect(&mut self) -> Client {
        let end = self.kernel.borrow_mut().connect_client(0);
        let mut client = Client {
            end,
            codec: Codec::tls(self.contexts.client(), State::empty()),
            unsent: Vec::new(),
        };
        // Begins the handshake.
        client.codec.handle(&mut [], |_| {});
        while !client.codec.is_established() || self.worker.handshakes() > 0 {
            client.codec.flush(&mut client.unsent);
            send(end, &mut client.unsent, &self.kernel);
            self.turn();
            receive(&mut client, &mut self.scratch, &self.kernel);
        }
        client
    }

    /// Runs turns until nothing moves any more.
    fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < QUIET_TURNS {
            quiet = if self.turn() { 0 } else { quiet + 1 };
        }
    }

    /// A turn of everything. Returns whether something has moved.
    fn turn(&mut self) -> bool {
        let before = self.kernel.borrow().changes();
        for client in self.hogs.iter_mut().chain(&mut self.honest) {
            send(client.end, &mut client.unsent, &self.kernel);
        }
        self.kernel.borrow_mut().deliver();
        let exit = self.worker.turn().expect("a turn");
        assert_eq!(exit, None);
        self.kernel.borrow_mut().deliver();
        self.echo();
        self.kernel.borrow().changes() != before
    }

    fn echo(&mut self) {
        for backend in 0..self.backends {
            while let Some(end) = self.kernel.borrow_mut().accept_backend(backend) {
                let kept = Vec::new();
                self.echoes.push(Echo { end, kept });
            }
        }
        for echo in &mut self.echoes {
            if echo.kept.is_empty() {
                let received = (self.kernel.borrow_mut()).recv_at(echo.end, &mut self.scratch);
                if let Ok(Attempt::Done(n)) = received {
                    echo.kept.extend_from_slice(&self.scratch[..n]);
                }
            }
            send(echo.end, &mut echo.kept, &self.kernel);
        }
    }

    /// Receives at the honest client. Returns the bytes of content.
    fn receive_at_honest(&mut self) -> usize {
        let client = self.honest.as_mut().expect("the honest client");
        receive(client, &mut self.scratch, &self.kernel)
    }
}

/// Receives all that has arrived at a client. Returns the bytes of content.
fn receive(client: &mut Client, scratch: &mut [u8], kernel: &RefCell<Kernel>) -> usize {
    let mut received = 0;
    while let Ok(Attempt::Done(n)) = kernel.borrow_mut().recv_at(client.end, scratch) {
        if n == 0 {
            break;
        }
        let count = |content: &[u8]| received += content.len();
        client.codec.handle(&mut scratch[..n], count);
    }
    received
}

/// Sends what the socket takes.
fn send(end: EndId, unsent: &mut Vec<u8>, kernel: &RefCell<Kernel>) {
    if unsent.is_empty() {
        return;
    }
    if let Ok(Attempt::Done(n)) = kernel.borrow_mut().send_from(end, unsent) {
        unsent.drain(..n);
    }
}
