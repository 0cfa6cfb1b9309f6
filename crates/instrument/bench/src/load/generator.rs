//! A generator: one process, one loop, many connections.
//!
//! It reads orders from its standard input and reports on its standard output, one JSON object per
//! line. Memory is bounded by `connections_max` slots and by what is in flight.

mod flow;
mod opening;
mod outcome;
mod turn;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::slab::Slab;
use dormouse_reactor::socket::Addr;
use dormouse_reactor::{Fd, OnExec};

use super::connection::{ActiveConnection, SLOT_LAYOUT, Slot};
use super::contexts::Contexts;
use super::exchange::Pattern;
use super::job::Job;
use super::orders::{OrderReport, Report, Setup, Tally, Traffic};
use super::sources;
use dormouse_measure::Latencies;

/// Room for one receive: a partial record and four whole records.
const SCRATCH_LEN: usize = 96 * 1024;
const EVENTS_PER_TURN: usize = 256;
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// Maximum number of distinct reasons for failure that are counted.
const REASONS_MAX: usize = 64;
/// Token of the standard input.
const ORDERS: u64 = u64::MAX;
/// Maximum length of a line of orders (the setup has a bundle of certificates in it).
const LINE_MAX: usize = 16 << 20;

/// The loop's state.
struct Generator {
    setup: Setup,
    orders: File,
    target: Addr,
    tls: Option<Contexts>,
    timeout: Duration,
    /// When the connections of a stopped order end, whatever still flows on them.
    stop_by: Option<Instant>,
    poller: Poller,
    slots: Slab<Slot>,
    /// By slot.
    active: Vec<Option<Box<ActiveConnection>>>,
    /// Connections that are not established yet.
    in_flight: u32,
    serial: u64,
    /// Whether connections come from 127.0.0.1 for now.
    from_usual_source: bool,
    scratch: Vec<u8>,
    message: Arc<[u8]>,
    bulk: Arc<[u8]>,
    job: Option<Job>,
    job_began: Instant,
    tally: Tally,
    failures_in_row: u64,
    gave_up: Option<String>,
    latencies: BTreeMap<String, Latencies>,
    failures: BTreeMap<String, u64>,
    agreed: BTreeMap<String, u64>,
    next_progress: Instant,
    next_sweep: Instant,
    input: Vec<u8>,
    quit: bool,
}

/// Runs a generator on standard input and output until its orders end.
///
/// # Errors
/// The reason why it cannot continue, which has been reported to the controlling process too.
pub fn run() -> Result<(), String> {
    let outcome = serve();
    if let Err(message) = &outcome {
        let _ = say(&Report::Failed(message.clone()));
    }
    outcome
}

fn serve() -> Result<(), String> {
    // Unbuffered, so that what follows the first line is left for the poller.
    let orders = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| format!("standard input: {error}"))?;
    let mut orders = File::from(orders);
    let mut line = Vec::new();
    let mut byte = [0];
    while let Ok(1) = orders.read(&mut byte) {
        if byte == *b"\n" || line.len() >= LINE_MAX {
            break;
        }
        line.extend_from_slice(&byte);
    }
    if line.is_empty() {
        return Ok(());
    }
    let setup = serde_json::from_slice(&line).map_err(|error| format!("setup: {error}"))?;
    let mut generator = Generator::new(setup, orders)?;
    say(&Report::Ready).map_err(|error| format!("reporting: {error}"))?;
    generator.run()
}

fn say(report: &Report) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    io::stdout().write_all(&line)?;
    io::stdout().flush()
}

impl Generator {
    fn new(setup: Setup, orders: File) -> Result<Self, String> {
        let in_words = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        dormouse_reactor::descriptors::raise_limit()
            .map_err(in_words("raising the descriptor limit"))?;
        let target = setup
            .target
            .parse::<Addr>()
            .map_err(|error| error.to_string())?;
        let tls = setup.tls.clone().map(Contexts::new).transpose()?;
        let poller = Poller::create(OnExec::Close).map_err(in_words("epoll"))?;
        poller
            .add(Fd(0), ORDERS, Interest::READ)
            .map_err(in_words("watching the orders"))?;
        let capacity = setup.connections_max.max(1);
        let slots = Slab::create("bench", capacity, SLOT_LAYOUT)
            .map_err(in_words("memory for connections"))?;
        let now = Instant::now();
        let from_usual_source = sources::has_usual(&target, &setup.sources, setup.index);
        Ok(Self {
            message: message(&setup.talk).into(),
            timeout: Duration::from_millis(setup.timeout_ms.max(1)),
            stop_by: None,
            setup,
            orders,
            target,
            tls,
            poller,
            slots,
            active: std::iter::repeat_with(|| None)
                .take(capacity as usize)
                .collect(),
            in_flight: 0,
            serial: 0,
            from_usual_source,
            scratch: vec![0; SCRATCH_LEN],
            bulk: Pattern::bulk_block(),
            job: None,
            job_began: now,
            tally: Tally::default(),
            failures_in_row: 0,
            gave_up: None,
            latencies: BTreeMap::new(),
            failures: BTreeMap::new(),
            agreed: BTreeMap::new(),
            next_progress: now,
            next_sweep: now,
            input: Vec::new(),
            quit: false,
        })
    }

    fn run(&mut self) -> Result<(), String> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        while !self.quit {
            let timeout = self.until_next(Instant::now());
            self.poller
                .wait(&mut events, Some(timeout))
                .map_err(|error| format!("epoll: {error}"))?;
            for event in events.iter() {
                match event.token() {
                    ORDERS => self.read_orders()?,
                    token => self.on_event(token as u32, event),
                }
            }
            let now = Instant::now();
            self.pump(now);
            self.sweep(now);
            self.report(now)
                .map_err(|error| format!("reporting: {error}"))?;
        }
        Ok(())
    }

    /// When its input ends, the generator exits: its controller is gone.
    fn read_orders(&mut self) -> Result<(), String> {
        let mut piece = [0; 4096];
        let count = self.orders.read(&mut piece);
        let count = count.map_err(|error| format!("reading orders: {error}"))?;
        self.quit |= count == 0;
        self.input
            .extend_from_slice(piece.get(..count).unwrap_or_default());
        while let Some(end) = self.input.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            let order = serde_json::from_slice(&line).map_err(|error| format!("order: {error}"))?;
            self.start_order(order, Instant::now());
        }
        if self.input.len() > LINE_MAX {
            return Err("an order is too long".into());
        }
        Ok(())
    }

    fn report(&mut self, now: Instant) -> io::Result<()> {
        if self.job.is_some() && now >= self.next_progress {
            self.next_progress = now + PROGRESS_EVERY;
            say(&Report::Progress(self.tally))?;
        }
        Ok(())
    }

    /// Reports the job as done and forgets its counts.
    fn done(&mut self, now: Instant) {
        self.job = None;
        let alive = self.tally.alive;
        let latencies = std::mem::take(&mut self.latencies);
        let yielded = OrderReport {
            tally: std::mem::take(&mut self.tally),
            latencies: latencies
                .into_iter()
                .map(|(name, of)| (name, of.to_sparse()))
                .collect(),
            failures: std::mem::take(&mut self.failures),
            duration_s: (now - self.job_began).as_secs_f64(),
            gave_up: self.gave_up.take(),
            agreed: std::mem::take(&mut self.agreed),
        };
        self.tally.alive = alive;
        // The end of the input shows that the controller is gone.
        let _ = say(&Report::Done(Box::new(yielded)));
    }

    fn count_failure(&mut self, reason: String) {
        let known = self.failures.contains_key(&reason) || self.failures.len() < REASONS_MAX;
        let reason = if known {
            reason
        } else {
            "other reasons".into()
        };
        *self.failures.entry(reason).or_default() += 1;
    }

    fn record(&mut self, name: &str, latency: Duration) {
        match self.latencies.get_mut(name) {
            Some(latencies) => latencies.record(latency),
            None => self
                .latencies
                .entry(name.to_owned())
                .or_default()
                .record(latency),
        }
    }

    /// No more ports are left at the usual source. False if it was left before.
    fn leave_usual_source(&mut self) -> bool {
        std::mem::take(&mut self.from_usual_source)
    }

    /// The usual source address as long as it has ports: some servers treat the rest of 127.0.0.0/8 as foreign. Then
    /// source addresses are used in turn, so that none runs out of ports before the others.
    fn source(&self) -> Option<SocketAddr> {
        if self.from_usual_source && self.serial < sources::USUAL_MAX {
            return Some(sources::USUAL);
        }
        let count = self.setup.sources.len() as u64;
        let turn = self.serial.checked_rem(count)? as usize;
        self.setup
            .sources
            .get(turn)
            .map(|&address| SocketAddr::new(address, 0))
    }
}

/// Returns the bytes of the message or of the request.
fn message(talk: &Traffic) -> Vec<u8> {
    match talk {
        Traffic::Message { message, .. } => message.clone(),
        Traffic::Http { path, host, .. } => {
            let agent = concat!("dormouse-bench/", env!("CARGO_PKG_VERSION"));
            format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {agent}\r\nAccept: */*\r\n\r\n"
            )
            .into_bytes()
        }
    }
}
