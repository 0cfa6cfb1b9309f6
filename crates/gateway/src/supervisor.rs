//! Main: the process with the stable pid, the only one with privileges.
//!
//! It reads configuration, certificates and keys, opens the listeners, makes the shared memory and
//! starts one keeper per worker. Then it waits: for signals, for processes that end, for somebody
//! who asks for the status. It holds no connection and reads nothing from the network.

use crate::config::{Loaded, Config};
use crate::counters::{Count, Counters};
use crate::handover::{Descriptors, Handover, Pem};
use crate::share::Share;
use crate::slot::{SLOT_LAYOUT_VERSION, Slot};
use crate::status::StatusSocket;
use crate::{keeper, material};
use dormouse_reactor::memory::Sealed;
use dormouse_reactor::pending::Pending;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::process::{self, Pid};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::signal::{Signal, Signals};
use dormouse_reactor::slab::Slab;
use dormouse_reactor::socket::{self, Addr, ListenOptions};
use dormouse_reactor::{Fd, OnExec};
use std::fmt;
use std::io;

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
    Workers(&'static str),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Certificates(lines) => f.write_str(&lines.join("\n")),
            ServeError::System { what, error, hint } if hint.is_empty() => {
                write!(f, "{what}: {error}")
            }
            ServeError::System { what, error, hint } => write!(f, "{what}: {error}\n  {hint}"),
            ServeError::Workers(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ServeError {}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServeError {
    move |error| ServeError::System { what: what.into(), error, hint: "" }
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
    process::become_subreaper().map_err(system("become the reaper of orphaned workers"))?;
    process::forbid_core_dumps().map_err(system("forbid core dumps"))?;
    let certificates = material::load(&loaded.config).map_err(ServeError::Certificates)?;
    Supervisor::start(loaded, &certificates)?.run()
}

struct Supervisor {
    pairs: Vec<Pair>,
    counters: Shared,
    poller: Poller,
    signals: Signals,
    status: Option<StatusSocket>,
    stopping: bool,
    announced: bool,
}

impl Supervisor {
    fn start(loaded: &Loaded, certificates: &[Vec<Pem>]) -> Result<Supervisor, ServeError> {
        let Loaded { config, plan, .. } = loaded;
        let signals = Signals::block(&[Signal::Term, Signal::Int, Signal::Child])
            .map_err(system("listen for signals"))?;
        let listeners = open_listeners(config)?;
        let counters = Shared::create(plan.workers as usize).map_err(system("make shared memory"))?;
        let poller = Poller::create().map_err(system("make an epoll instance"))?;
        poller
            .add(signals.fd(), TOKEN_SIGNALS, Interest::READ)
            .map_err(system("wait for signals"))?;
        let status = match &config.process.status {
            Some(path) => Some(StatusSocket::open(path).map_err(system(format!(
                "open the status socket {}",
                path.display()
            )))?),
            None => None,
        };
        if let Some(status) = &status {
            poller
                .add(status.fd(), TOKEN_STATUS, Interest::READ)
                .map_err(system("wait for status requests"))?;
        }
        let mut ticket_secret = vec![0; 32];
        process::random(&mut ticket_secret).map_err(system("get random bytes"))?;
        let mut supervisor = Supervisor {
            pairs: Vec::new(),
            counters,
            poller,
            signals,
            status,
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
                ticket_secret: ticket_secret.clone(),
                descriptors: Descriptors {
                    listeners: listeners.iter().map(|&(fd, route)| (fd.0, route)).collect(),
                    slots: -1,
                    pending: -1,
                    counters: supervisor.counters.fd().0,
                    orders: -1,
                },
            };
            supervisor.start_pair(handover).map_err(system("start a worker"))?;
        }
        // From here on the keepers hold them; main needs none to be open.
        Ok(supervisor)
    }

    fn start_pair(&mut self, mut handover: Handover) -> io::Result<()> {
        let slots = Slab::<Slot>::create(handover.share.connections_max, SLOT_LAYOUT_VERSION)?;
        let pending = Pending::create(handover.share.pending_bytes_max as usize)?;
        let (ours, theirs) = socket::channel()?;
        handover.descriptors.slots = slots.fd().0;
        handover.descriptors.pending = pending.fd().0;
        handover.descriptors.orders = theirs.0;
        let sealed: Sealed = handover.seal()?;
        let command = keeper::keeper_command(sealed.fd().0, 0);
        let mut inherited = handover.descriptors.all();
        inherited.push(sealed.fd());
        let keeper = process::spawn_self(&command, &inherited)?;
        // Main keeps no descriptor of the pair but its end of the channel.
        for fd in [slots.fd(), pending.fd(), theirs, sealed.fd()] {
            fd.close();
        }
        let token = TOKEN_ORDERS + self.pairs.len() as u64;
        self.poller.add(ours, token, Interest::READ)?;
        self.pairs.push(Pair { keeper: Some(keeper), orders: ours, ready: false });
        Ok(())
    }

    fn run(mut self) -> Result<(), ServeError> {
        let mut events = Events::with_capacity(64);
        loop {
            self.poller.wait(&mut events, None).map_err(system("wait for events"))?;
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
                    Err(ServeError::Workers("all workers are gone"))
                };
            }
        }
    }

    fn on_signals(&mut self) -> Result<(), ServeError> {
        while let Some(signal) = self.signals.next() {
            match signal {
                Signal::Child => self.reap()?,
                Signal::Term | Signal::Int => self.stop(),
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
            let _ = socket::send(pair.orders, b"stop");
        }
    }

    fn reap(&mut self) -> Result<(), ServeError> {
        while let Some((pid, ended)) = process::reap().map_err(system("wait for processes"))? {
            let Some(pair) = self.pairs.iter_mut().find(|pair| pair.keeper == Some(pid)) else {
                tracing::warn!(pid = pid.0, "an orphaned worker ended: {ended}");
                continue;
            };
            pair.keeper = None;
            let cannot_begin = ended.code() == Some(i32::from(keeper::EXIT_CANNOT_BEGIN));
            if cannot_begin && !pair.ready {
                self.stop();
                return Err(ServeError::Workers("a worker could not begin: see above"));
            }
            if !self.stopping {
                tracing::error!(pid = pid.0, "a keeper is gone ({ended}); its worker serves on, \
                    but would not be started again");
            }
        }
        Ok(())
    }

    fn on_worker(&mut self, index: usize) {
        let Some(pair) = self.pairs.get_mut(index) else { return };
        let mut word = [0; 64];
        match socket::recv(pair.orders, &mut word) {
            Ok(Attempt::Done(0)) => drop(self.poller.remove(pair.orders)),
            Ok(Attempt::Done(n)) if word[..n].starts_with(b"ready") => pair.ready = true,
            Ok(Attempt::Done(_)) => {}
            Ok(Attempt::WouldBlock) => {}
            Err(_) => drop(self.poller.remove(pair.orders)),
        }
        if !self.announced && self.pairs.iter().all(|pair| pair.ready) {
            self.announced = true;
            tracing::info!(workers = self.pairs.len(), pid = std::process::id(), "ready");
        }
    }

    fn on_status(&mut self) {
        let Some(status) = &self.status else { return };
        let counts = Count::ALL.iter().map(|&count| {
            let of = |n| Counters::new(self.counters.block(n)).value(count);
            (count.name(), (0..self.pairs.len()).map(of).sum())
        });
        status.answer(self.pairs.iter().map(|pair| pair.keeper.map(|pid| pid.0)), counts);
    }
}

fn open_listeners(config: &Config) -> Result<Vec<(Fd, u16)>, ServeError> {
    let options = ListenOptions {
        backlog: config.sockets.backlog,
        buffer_bytes: Some(config.sockets.socket_buffer.as_usize()),
        on_exec: OnExec::Keep,
        ..ListenOptions::default()
    };
    let mut listeners = Vec::new();
    for (index, route) in config.routes.iter().enumerate() {
        for listen in &route.listen {
            let fd = socket::listen(&Addr::Tcp(listen.address), &options).map_err(|error| {
                let hint = listen_hint(&error);
                ServeError::System { what: format!("listen on {listen}"), error, hint }
            })?;
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
        io::ErrorKind::AddrNotAvailable => "this machine has no such address: `ip addr` shows its own",
        _ => "",
    }
}
