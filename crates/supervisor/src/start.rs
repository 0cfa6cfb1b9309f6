//! What is made before anything serves.

use super::certificates::Watch;
use super::control::{self, Control, Tables};
use super::errands::Errands;
use super::error::{ServeError, system};
use super::keys;
use super::notify::Notify;
use super::numbers::Numbers;
use super::scout::Scouts;
use super::state::certificates_told;
use super::{Source, Supervisor, TOKEN_SIGNALS, listeners, signals};
use crate::session_files::SessionFiles;
use crate::ticket_keys::Keyring;
use dormouse_config::{Config, Loaded, Log, Sandbox};
use dormouse_handover::unix_time;
use dormouse_handover::{ClientTrust, OriginPem, Pem};
use dormouse_reactor::cache::Cache;
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::process::OomScore;
use dormouse_reactor::shared::Shared;
use dormouse_reactor::signal::Signals;
use dormouse_reactor::{Fd, OnExec, process, sandbox};
use dormouse_routes::contexts;
use dormouse_routes::identities::Identities;
use dormouse_routes::route::Route;
use dormouse_tables::backends::Backends;
use dormouse_tables::clients::Clients;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;

/// How much sooner than main keepers and workers are taken when memory runs out: as if they used
/// so many thousandths of the machine's memory more.
const KEEPERS_OOM_SCORE: i32 = 300;

impl Supervisor {
    /// Opens everything: what can fail does so before anybody is served.
    pub(super) fn start(
        loaded: &Loaded,
        source: Source,
        set_logs: fn(&Log),
        certificates: Vec<Vec<Pem>>,
        trust: Vec<Option<ClientTrust>>,
        (origins, backend_tls): (Vec<OriginPem>, Vec<Option<OriginPem>>),
    ) -> Result<Supervisor, ServeError> {
        let Loaded { config, plan, .. } = loaded;
        check_user(config)?;
        check_sandbox(config.process.sandbox)?;
        let signals = signals::open()?;
        let sessions = SessionFiles::open(config, &origins)?;
        let counters = Shared::create("dormouse-counters", plan.workers as usize)
            .map_err(system("make shared memory"))?;
        let clients = Clients::create(plan.connections_max, random())
            .map_err(system("make shared memory"))?;
        let backends = Backends::create(plan.workers).map_err(system("make shared memory"))?;
        let mut ticket_keys =
            Keyring::open(config, unix_time(), &counters).map_err(ServeError::Certificates)?;
        let routes = shake_hands(config, &certificates, &trust, &ticket_keys, &backends)?;
        make_contexts(config, &backend_tls, routes)?;
        let session_cache = make_session_cache(config)?;
        let numbers = Numbers::default().of(config);
        let listeners = listeners::open(config, &numbers.list(), &[])?;
        let poller = open_poller(&signals)?;
        keys::wait_for_keys(&poller, &mut ticket_keys).map_err(system("wait for ticket keys"))?;
        let address = control::open_address(config)?;
        let tables = Tables {
            counters: &counters,
            backends: &backends,
        };
        let control = Control::start(address, config, tables, &poller)
            .map_err(system("start the control process"))?;
        let now_ms = process::boottime_ms();
        Ok(Supervisor {
            config: config.clone(),
            source,
            set_logs,
            certificates_told: certificates_told(&certificates),
            certificates,
            client_trust: trust,
            origins,
            backend_tls,
            watch: Watch::begin(config),
            listeners,
            numbers,
            waits_for_restart: Vec::new(),
            last_reload: None,
            reloading: None,
            drain: None,
            edition: 1,
            loaded_ms: now_ms,
            connections_max: plan.connections_max.into(),
            plan: plan.clone(),
            pairs: Vec::new(),
            control,
            counters,
            clients,
            backends,
            poller,
            signals,
            ticket_keys,
            upgrade: None,
            former_keepers: Vec::new(),
            born_ms: now_ms,
            sessions,
            session_cache,
            notify: Notify::from_environment(),
            errands: Errands::default(),
            scouts: Scouts::default(),
            stopping: false,
            announced: false,
        })
    }

    /// Starts all keepers, which start their workers. When memory runs out the kernel is to take
    /// these before main: their connections go on in the next one. Of the two the worker is always
    /// the larger one.
    pub(super) fn start_pairs(
        mut self,
        oom: io::Result<OomScore>,
    ) -> Result<Supervisor, ServeError> {
        let mut start = || -> io::Result<()> {
            for worker in 0..self.plan.workers {
                let handover = self.handover(worker);
                self.start_pair(handover)?;
            }
            Ok(())
        };
        let (started, scored) = match oom {
            Ok(mut oom) => oom.raised(KEEPERS_OOM_SCORE, &mut start),
            Err(error) => (start(), Err(error)),
        };
        if let Err(error) = scored {
            tracing::debug!(%error, "workers have the score for want of memory that main has");
        }
        started.map_err(system("start a worker"))?;
        self.tell_scouts();
        Ok(self)
    }
}

/// Not known to anybody outside: what the standard library seeds its own tables with.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A handshake with itself for each route, before anybody can connect: what can't work is told
/// now.
fn shake_hands(
    config: &Config,
    certificates: &[Vec<Pem>],
    trust: &[Option<ClientTrust>],
    ticket_keys: &Keyring,
    backends: &Backends,
) -> Result<Vec<Route>, ServeError> {
    let keys = ticket_keys.keys().export();
    let known = &mut Identities::default();
    let routes = contexts::routes(config, certificates, trust, &keys, backends, None, known)
        .map_err(|why| ServeError::Certificates(vec![why]))?;
    contexts::warm_up(&routes).map_err(system("do a handshake with itself"))?;
    Ok(routes)
}

/// What can't work with backends is told now, too.
fn make_contexts(
    config: &Config,
    pems: &[Option<OriginPem>],
    mut routes: Vec<Route>,
) -> Result<(), ServeError> {
    contexts::make_backend_contexts(config, pems, &mut routes)
        .map_err(|why| ServeError::Certificates(vec![why]))
}

/// The session cache of all workers.
fn make_session_cache(config: &Config) -> Result<Option<Fd>, ServeError> {
    let bytes = config.session_cache_bytes();
    if bytes == 0 {
        return Ok(None);
    }
    Cache::create("dormouse-sessions", bytes)
        .map(|cache| Some(cache.fd()))
        .map_err(system("make the session cache"))
}

/// The poller of main, and what it waits for from the start.
pub(super) fn open_poller(signals: &Signals) -> Result<Poller, ServeError> {
    let poller = Poller::create(OnExec::Close).map_err(system("make an epoll instance"))?;
    poller
        .add(signals.fd(), TOKEN_SIGNALS, Interest::READ)
        .map_err(system("wait for signals"))?;
    Ok(poller)
}

/// What the kernel lacks for confining processes is said once, here, or is a reason not to start.
fn check_sandbox(wanted: Sandbox) -> Result<(), ServeError> {
    let missing = match wanted {
        Sandbox::Off => Vec::new(),
        Sandbox::On | Sandbox::Required => sandbox::missing(),
    };
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    if wanted == Sandbox::Required {
        return Err(ServeError::System {
            what: "confine processes (sandbox = \"required\")".to_owned(),
            error: io::Error::new(
                io::ErrorKind::Unsupported,
                format!("this kernel lacks {missing}"),
            ),
            hint: "with sandbox = \"on\" it does what it can",
        });
    }
    tracing::warn!("the sandbox is incomplete: this kernel lacks {missing}");
    Ok(())
}

/// Whether keepers and workers can become whom the configuration names.
fn check_user(config: &Config) -> Result<(), ServeError> {
    let Some(name) = &config.process.user else {
        return Ok(());
    };
    let cannot = |error: io::Error, hint| ServeError::System {
        what: format!("become the user `{name}` in keepers and workers"),
        error,
        hint,
    };
    let user = process::look_up_user(name, config.process.group.as_deref())
        .map_err(|why| cannot(io::Error::other(why), "`getent passwd` shows who there is"))?;
    let own = process::user_id();
    if own != 0 && own != user.uid {
        let refused = io::ErrorKind::PermissionDenied.into();
        return Err(cannot(refused, "start as root, or without `user`"));
    }
    Ok(())
}
