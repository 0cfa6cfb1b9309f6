//! What is made before anything serves.

use super::control::{self, Control};
use super::error::{ServeError, system};
use super::keys::unix_time;
use super::{Source, Supervisor, TOKEN_SIGNALS, TOKEN_TICKET_KEYS, listeners, signals};
use crate::config::{Config, Loaded};
use crate::handover::{Descriptors, Handover, Material, OriginPem};
use crate::session_files::SessionFiles;
use crate::share::Share;
use crate::ticket_keys::Keyring;
use crate::{keeper, route};
use dormouse_reactor::cache::Cache;
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::{Fd, OnExec, process};

impl Supervisor {
    /// Opens everything, then starts the pairs: what can fail does so before anybody is served.
    pub(super) fn start(
        loaded: &Loaded,
        source: Source,
        certificates: &[Material],
        origins: &[OriginPem],
    ) -> Result<Supervisor, ServeError> {
        let Loaded { config, plan, .. } = loaded;
        let signals = signals::open()?;
        let sessions = SessionFiles::open(config, origins)?;
        let counters = Shared::create("dormouse-counters", plan.workers as usize)
            .map_err(system("make shared memory"))?;
        let ticket_keys =
            Keyring::open(config, unix_time(), &counters).map_err(ServeError::Certificates)?;
        shake_hands(config, certificates, &ticket_keys)?;
        let session_cache = session_cache(config)?;
        let listeners = listeners::open(config)?;
        let poller = Poller::create(OnExec::Close).map_err(system("make an epoll instance"))?;
        poller
            .add(signals.fd(), TOKEN_SIGNALS, Interest::READ)
            .map_err(system("wait for signals"))?;
        if let Some(bell) = ticket_keys.bell() {
            poller
                .add(bell, TOKEN_TICKET_KEYS, Interest::READ)
                .map_err(system("wait for ticket keys"))?;
        }
        let address = control::open_address(config)?;
        let control = Control::start(address, &config.log, &counters, &poller)
            .map_err(system("start the control process"))?;
        let now_ms = process::boottime_ms();
        let mut supervisor = Supervisor {
            config: config.clone(),
            source,
            edition: 1,
            loaded_ms: now_ms,
            plan: plan.clone(),
            pairs: Vec::new(),
            control,
            counters,
            poller,
            signals,
            ticket_keys,
            born_ms: now_ms,
            sessions,
            session_cache,
            stopping: false,
            announced: false,
        };
        for worker in 0..plan.workers {
            let handover = Handover {
                worker,
                config: config.clone(),
                share: Share::of(worker, plan),
                certificates: certificates.to_vec(),
                ticket_keys: supervisor.ticket_keys.keys().export().to_vec(),
                origins: origins.to_vec(),
                descriptors: Descriptors {
                    listeners: listeners.iter().map(|&(fd, route)| (fd.0, route)).collect(),
                    slots: -1,
                    pending: -1,
                    counters: supervisor.counters.fd().0,
                    sessions: supervisor.sessions.as_ref().map(|files| files.fd().0),
                    orders: -1,
                    session_cache: supervisor.session_cache.map(|fd| fd.0),
                },
            };
            supervisor
                .start_pair(handover)
                .map_err(system("start a worker"))?;
        }
        Ok(supervisor)
    }
}

/// A handshake with itself for each route, before anybody can connect: what can't work is told
/// now.
fn shake_hands(
    config: &Config,
    certificates: &[Material],
    ticket_keys: &Keyring,
) -> Result<(), ServeError> {
    let keys = ticket_keys.keys().export();
    let routes = route::routes(config, certificates, &keys, None)
        .map_err(|why| ServeError::Certificates(vec![why]))?;
    keeper::warm_up(&routes).map_err(system("do a handshake with itself"))
}

/// The session cache of all workers, if there is to be one.
fn session_cache(config: &Config) -> Result<Option<Fd>, ServeError> {
    match config.tickets.session_cache {
        None => Ok(None),
        Some(bytes) => Cache::create("dormouse-sessions", bytes.as_usize())
            .map(|cache| Some(cache.fd()))
            .map_err(system("make the session cache")),
    }
}
