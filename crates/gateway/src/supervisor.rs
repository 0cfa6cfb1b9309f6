//! Main: the process with the stable pid, the only one with privileges.
//!
//! It reads configuration, certificates and keys, opens the listeners, makes the shared memory and
//! starts one keeper per worker. Then it waits: for signals, for processes that end, for somebody
//! who asks for the status. It holds no connection and reads nothing from the network.

use crate::config::{Config, Loaded};
use crate::counters::Count;
use crate::handover::{Descriptors, Handover, Pem};
use crate::route::SocketOptions;
use crate::share::Share;
use crate::slot::{SLOT_LAYOUT_VERSION, Slot};
use crate::status::StatusSocket;
use crate::{keeper, material, orders};
use dormouse_engine::{TicketKeys, UnixTime};
use dormouse_reactor::pending::Pending;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::process::{self, Ended, Inherit, Pid, Program, Wait};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::signal::{Signal, Signals};
use dormouse_reactor::slab::Slab;
use dormouse_reactor::socket::{self, Addr, Attempt, ListenOptions};
use dormouse_reactor::{Fd, OnExec, descriptors};
use std::fmt;
use std::io;
use std::time::SystemTime;

/// Why `serve` could not begin, or ended as it should not.
#[derive(Debug)]
pub enum ServeError {
    /// A certificate or key is not what it should be. Each line says which and why.
    Certificates(Vec<String>),
    /// The operating system refused something.
    System {
        /// What was tried.
        what: String,
        /// What it said.
        error: io::Error,
        /// What would be right.
        hint: &'static str,
    },
    /// A worker could not begin, or all of them are gone.
    Workers(String),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Certificates(lines) => f.write_str(&lines.join("\n")),
            ServeError::System {
                what,
                error,
                hint: "",
            } => write!(f, "{what}: {error}"),
            ServeError::System { what, error, hint } => write!(f, "{what}: {error}\n  {hint}"),
            ServeError::Workers(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ServeError {}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServeError {
    move |error| ServeError::System {
        what: what.into(),
        error,
        hint: "",
    }
}

const TOKEN_SIGNALS: u64 = 1;
const TOKEN_STATUS: u64 = 2;
const TOKEN_ORDERS: u64 = 1000;

/// A keeper and its worker.
struct Pair {
    keeper: Option<Pid>,
    /// Main's end of the channel to the worker.
    orders: Fd,
    ready: bool,
}

/// Serves until told to stop.
pub fn serve(loaded: &Loaded) -> Result<(), ServeError> {
    process::set_subreaper().map_err(system("become the reaper of orphaned workers"))?;
    process::forbid_core_dumps().map_err(system("forbid core dumps"))?;
    // The plan counts on it; workers inherit it.
    descriptors::raise_limit().map_err(system("raise the limit on descriptors"))?;
    let certificates = material::load(&loaded.config).map_err(ServeError::Certificates)?;
    Supervisor::start(loaded, &certificates)?.run()
}

struct Supervisor {
    pairs: Vec<Pair>,
    counters: Shared,
    poller: Poller,
    signals: Signals,
    status: Option<StatusSocket>,
    ticket_keys: TicketKeys,
    stopping: bool,
    announced: bool,
}

impl Supervisor {
    fn start(loaded: &Loaded, certificates: &[Vec<Pem>]) -> Result<Supervisor, ServeError> {
        let Loaded { config, plan, .. } = loaded;
        // Blocked from here on in every process that is started: only main acts on them.
        let signals = Signals::open(
            &[
                Signal::Terminate,
                Signal::Interrupt,
                Signal::Hangup,
                Signal::Child,
            ],
            OnExec::Close,
        )
        .map_err(system("listen for signals"))?;
        let listeners = open_listeners(config)?;
        let counters = Shared::create("dormouse-counters", plan.workers as usize)
            .map_err(system("make shared memory"))?;
        let poller = Poller::create(OnExec::Close).map_err(system("make an epoll instance"))?;
        poller
            .add(signals.fd(), TOKEN_SIGNALS, Interest::READ)
            .map_err(system("wait for signals"))?;
        let status = match &config.process.status {
            Some(path) => Some(
                StatusSocket::open(path)
                    .map_err(system(format!("open the status socket {}", path.display())))?,
            ),
            None => None,
        };
        if let Some(status) = &status {
            poller
                .add(status.fd(), TOKEN_STATUS, Interest::READ)
                .map_err(system("wait for status requests"))?;
        }
        let ticket_keys = TicketKeys::generate(unix_time(), rotation_s(config))
            .map_err(|e| ServeError::Workers(e.to_string()))?;
        let mut supervisor = Supervisor {
            pairs: Vec::new(),
            counters,
            poller,
            signals,
            status,
            ticket_keys,
            stopping: false,
            announced: false,
        };
        for worker in 0..plan.workers {
            let share = Share::of(worker, plan, config);
            let handover = Handover {
                worker,
                config: config.clone(),
                share,
                certificates: certificates.to_vec(),
                ticket_keys: supervisor.ticket_keys.export().to_vec(),
                descriptors: Descriptors {
                    listeners: listeners.iter().map(|&(fd, route)| (fd.0, route)).collect(),
                    slots: -1,
                    pending: -1,
                    counters: supervisor.counters.fd().0,
                    orders: -1,
                },
            };
            supervisor
                .start_pair(handover)
                .map_err(system("start a worker"))?;
        }
        // From here on the keepers hold them; main needs none to be open.
        Ok(supervisor)
    }

    fn start_pair(&mut self, mut handover: Handover) -> io::Result<()> {
        let slots = Slab::<Slot>::create(
            "dormouse-slots",
            handover.share.connections_max,
            SLOT_LAYOUT_VERSION,
        )?;
        let pending = Pending::create(
            "dormouse-pending",
            handover.share.pending_bytes_max as usize,
        )?;
        let (ours, theirs) = socket::pair(OnExec::Close)?;
        handover.descriptors.slots = slots.fd().0;
        handover.descriptors.pending = pending.fd().0;
        handover.descriptors.orders = theirs.0;
        let told = handover.write()?;
        let mut inherited = handover.descriptors.all();
        inherited.push(told);
        let mut program =
            Program::this(keeper::first_command(told.0)).with(Inherit::Only(inherited));
        program.environment = Some(keeper::environment());
        let keeper = program.start()?;
        // Main keeps no descriptor of the pair but its end of the channel.
        for fd in [slots.fd(), pending.fd(), theirs, told] {
            fd.close();
        }
        let token = TOKEN_ORDERS + self.pairs.len() as u64;
        self.poller.add(ours, token, Interest::READ)?;
        self.pairs.push(Pair {
            keeper: Some(keeper),
            orders: ours,
            ready: false,
        });
        Ok(())
    }

    fn run(mut self) -> Result<(), ServeError> {
        let mut events = Events::with_capacity(64);
        loop {
            let until_rotation_ms = self
                .ticket_keys
                .rotates_at_s()
                .saturating_sub(unix_time().as_secs())
                * 1000;
            self.poller
                .wait(&mut events, Some(until_rotation_ms))
                .map_err(system("wait for events"))?;
            self.rotate_ticket_keys();
            for event in events.iter() {
                match event.token() {
                    TOKEN_SIGNALS => self.on_signals()?,
                    TOKEN_STATUS => self.on_status(),
                    token => self.on_worker(token.saturating_sub(TOKEN_ORDERS) as usize),
                }
            }
            if self.pairs.iter().all(|pair| pair.keeper.is_none()) {
                return if self.stopping {
                    Ok(())
                } else {
                    Err(ServeError::Workers("all workers are gone".to_owned()))
                };
            }
        }
    }

    fn on_signals(&mut self) -> Result<(), ServeError> {
        while let Attempt::Done(received) =
            self.signals.receive().map_err(system("receive a signal"))?
        {
            match received.signal {
                Signal::Child => self.reap()?,
                Signal::Terminate | Signal::Interrupt => self.stop(),
                _ => {}
            }
        }
        Ok(())
    }

    fn stop(&mut self) {
        if !self.stopping {
            tracing::info!("stopping: no more is accepted, what is pending may end");
        }
        self.stopping = true;
        for pair in &self.pairs {
            orders::stop(pair.orders);
        }
    }

    fn reap(&mut self) -> Result<(), ServeError> {
        while let Some((pid, ended)) =
            process::wait(Wait::AnyEnded).map_err(system("wait for processes"))?
        {
            let Some(pair) = self.pairs.iter_mut().find(|pair| pair.keeper == Some(pid)) else {
                tracing::warn!(pid = pid.0, "an orphaned worker ended: {ended}");
                continue;
            };
            pair.keeper = None;
            if ended == Ended::Exited(i32::from(keeper::EXIT_CANNOT_BEGIN)) && !pair.ready {
                self.stop();
                let what = "a worker could not begin: see above".to_owned();
                return Err(ServeError::Workers(what));
            }
            if !self.stopping {
                tracing::error!(
                    pid = pid.0,
                    "a keeper is gone ({ended}); its worker serves on, \
                    but would not be started again"
                );
            }
        }
        Ok(())
    }

    fn on_worker(&mut self, index: usize) {
        let Some(pair) = self.pairs.get_mut(index) else {
            return;
        };
        match orders::heard_ready(pair.orders) {
            Ok(false) => {}
            Ok(true) => {
                // A worker that came after a crash knows the keys of the beginning.
                orders::give_ticket_keys(pair.orders, &self.ticket_keys);
                pair.ready = true;
            }
            Err(_) => drop(self.poller.remove(pair.orders)),
        }
        if !self.announced && self.pairs.iter().all(|pair| pair.ready) {
            self.announced = true;
            tracing::info!(
                workers = self.pairs.len(),
                pid = std::process::id(),
                "ready"
            );
        }
    }

    fn rotate_ticket_keys(&mut self) {
        match self.ticket_keys.rotate_if_due(unix_time()) {
            Ok(false) => {}
            Ok(true) => {
                for pair in &self.pairs {
                    orders::give_ticket_keys(pair.orders, &self.ticket_keys);
                }
            }
            Err(error) => tracing::error!(%error, "ticket keys could not be rotated"),
        }
    }

    fn on_status(&mut self) {
        let Some(status) = &self.status else { return };
        let counts = Count::ALL
            .iter()
            .map(|&count| (count.name(), self.counters.sum(count as usize)));
        status.answer(
            self.pairs.iter().map(|pair| pair.keeper.map(|pid| pid.0)),
            counts,
        );
    }
}

fn unix_time() -> UnixTime {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    UnixTime::since_unix_epoch(since)
}

fn rotation_s(config: &Config) -> u32 {
    u32::try_from(config.tickets.ticket_rotation.as_secs()).unwrap_or(u32::MAX)
}

fn open_listeners(config: &Config) -> Result<Vec<(Fd, u16)>, ServeError> {
    let backlog = i32::try_from(config.sockets.backlog).unwrap_or(i32::MAX);
    let options = ListenOptions {
        backlog,
        on_exec: OnExec::Keep,
        v6only: true,
    };
    let sockets = SocketOptions::new(&config.sockets);
    let mut listeners = Vec::new();
    for (index, route) in config.routes.iter().enumerate() {
        for listen in &route.listen {
            let fd = socket::listen(&Addr::Tcp(listen.address), &options).map_err(|error| {
                let hint = listen_hint(&error);
                ServeError::System {
                    what: format!("listen on {listen}"),
                    error,
                    hint,
                }
            })?;
            sockets.apply_to_listener(fd);
            listeners.push((fd, index as u16));
        }
    }
    Ok(listeners)
}

fn listen_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens there: `ss -ltnp` shows which; stop it or choose another port"
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need a privilege: run as root, or \
             `setcap cap_net_bind_service=+ep` on the binary, or choose a higher port"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address: `ip addr` shows its own"
        }
        _ => "",
    }
}
