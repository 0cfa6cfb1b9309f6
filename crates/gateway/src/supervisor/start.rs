//! What is made before anything serves.

use super::error::{ServeError, system};
use super::keys::unix_time;
use super::{Supervisor, TOKEN_SIGNALS, TOKEN_STATUS, TOKEN_TICKET_KEYS, listeners, signals};
use crate::config::{Config, Loaded};
use crate::handover::{Descriptors, Handover, Material};
use crate::share::Share;
use crate::status::StatusSocket;
use crate::ticket_keys::Keyring;
use crate::{keeper, route};
use dormouse_reactor::cache::Cache;
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::{Fd, OnExec};

impl Supervisor {
    /// Opens everything, then starts the pairs: what can fail does so before anybody is served.
    pub(super) fn start(
        loaded: &Loaded,
        certificates: &[Material],
    ) -> Result<Supervisor, ServeError> {
        let Loaded { config, plan, .. } = loaded;
        let signals = signals::open()?;
        let counters = Shared::create("dormouse-counters", plan.workers as usize)
            .map_err(system("make shared memory"))?;
        let ticket_keys =
            Keyring::open(config, unix_time(), &counters).map_err(ServeError::Certificates)?;
        shake_hands(config, certificates, &ticket_keys)?;
        let sessions = sessions(config)?;
        let listeners = listeners::open(config)?;
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
        if let Some(bell) = ticket_keys.bell() {
            poller
                .add(bell, TOKEN_TICKET_KEYS, Interest::READ)
                .map_err(system("wait for ticket keys"))?;
        }
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
            let handover = Handover {
                worker,
                config: config.clone(),
                share: Share::of(worker, plan, config),
                certificates: certificates.to_vec(),
                ticket_keys: supervisor.ticket_keys.keys().export().to_vec(),
                descriptors: Descriptors {
                    listeners: listeners.iter().map(|&(fd, route)| (fd.0, route)).collect(),
                    slots: -1,
                    pending: -1,
                    counters: supervisor.counters.fd().0,
                    orders: -1,
                    sessions: sessions.0,
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
fn sessions(config: &Config) -> Result<Fd, ServeError> {
    match config.tickets.session_cache {
        None => Ok(Fd(-1)),
        Some(bytes) => Cache::create("dormouse-sessions", bytes.as_usize())
            .map(|cache| cache.fd())
            .map_err(system("make the session cache")),
    }
}
