//! What is made before anything serves.

use super::certificates::Watch;
use super::control::{self, Control};
use super::error::{ServeError, system};
use super::keys::unix_time;
use super::notify::Notify;
use super::numbers::Numbers;
use super::scout::Scouts;
use super::{Source, Supervisor, TOKEN_SIGNALS, TOKEN_TICKET_KEYS, listeners, signals};
use crate::backend_tls;
use crate::backends::Backends;
use crate::clients::Clients;
use crate::config::{Config, Loaded, Log};
use crate::handover::{ClientTrust, OriginPem, Pem};
use crate::route::{self, Route};
use crate::session_files::SessionFiles;
use crate::ticket_keys::Keyring;
use dormouse_reactor::cache::Cache;
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::signal::Signals;
use dormouse_reactor::{Fd, OnExec, process};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;

impl Supervisor {
    /// Opens everything, then starts the pairs: what can fail does so before anybody is served.
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
        let signals = signals::open()?;
        let sessions = SessionFiles::open(config, &origins)?;
        let counters = Shared::create("dormouse-counters", plan.workers as usize)
            .map_err(system("make shared memory"))?;
        let clients = Clients::create(plan.connections_max, random())
            .map_err(system("make shared memory"))?;
        let backends = Backends::create(plan.workers).map_err(system("make shared memory"))?;
        let ticket_keys =
            Keyring::open(config, unix_time(), &counters).map_err(ServeError::Certificates)?;
        let routes = shake_hands(config, &certificates, &trust, &ticket_keys, &backends)?;
        make_contexts(config, &backend_tls, routes)?;
        let session_cache = session_cache(config)?;
        let numbers = Numbers::default().of(config);
        let listeners = listeners::open(config, &numbers.list(), &[])?;
        let poller = open_poller(&signals)?;
        wait_for_keys(&poller, &ticket_keys)?;
        let address = control::open_address(config)?;
        let control = Control::start(address, &config.log, (&counters, &backends), &poller)
            .map_err(system("start the control process"))?;
        let now_ms = process::boottime_ms();
        let mut supervisor = Supervisor {
            config: config.clone(),
            source,
            set_logs,
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
            scouts: Scouts::default(),
            stopping: false,
            announced: false,
        };
        for worker in 0..plan.workers {
            let handover = supervisor.handover(worker);
            supervisor
                .start_pair(handover)
                .map_err(system("start a worker"))?;
        }
        supervisor.tell_scouts();
        Ok(supervisor)
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
    let routes = route::routes(config, certificates, trust, &keys, backends, None)
        .map_err(|why| ServeError::Certificates(vec![why]))?;
    route::warm_up(&routes).map_err(system("do a handshake with itself"))?;
    Ok(routes)
}

/// What can't work with backends is told now, too.
fn make_contexts(
    config: &Config,
    pems: &[Option<OriginPem>],
    mut routes: Vec<Route>,
) -> Result<(), ServeError> {
    backend_tls::make_contexts(config, pems, &mut routes)
        .map_err(|why| ServeError::Certificates(vec![why]))
}

/// Room for sessions of TLS 1.2 whose clients know no tickets: some 4,000 of them.
const SESSIONS_BY_ID_BYTES: usize = 1 << 20;

/// The session cache of all workers: the one that is configured, or a small one beside tickets.
fn session_cache(config: &Config) -> Result<Option<Fd>, ServeError> {
    let tickets = &config.tickets;
    let bytes = match tickets.session_cache {
        Some(bytes) => bytes.as_usize(),
        None if tickets.tickets == 0 || config.routes.is_empty() => return Ok(None),
        None => SESSIONS_BY_ID_BYTES,
    };
    Cache::create("dormouse-sessions", bytes)
        .map(|cache| Some(cache.fd()))
        .map_err(system("make the session cache"))
}

/// A store tells of new keys.
pub(super) fn wait_for_keys(poller: &Poller, ticket_keys: &Keyring) -> Result<(), ServeError> {
    match ticket_keys.bell() {
        Some(bell) => poller
            .add(bell, TOKEN_TICKET_KEYS, Interest::READ)
            .map_err(system("wait for ticket keys")),
        None => Ok(()),
    }
}

/// The poller of main, and what it waits for from the start.
pub(super) fn open_poller(signals: &Signals) -> Result<Poller, ServeError> {
    let poller = Poller::create(OnExec::Close).map_err(system("make an epoll instance"))?;
    poller
        .add(signals.fd(), TOKEN_SIGNALS, Interest::READ)
        .map_err(system("wait for signals"))?;
    Ok(poller)
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
