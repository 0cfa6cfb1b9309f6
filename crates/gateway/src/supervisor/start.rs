//! What is made before anything serves.

use super::error::{ServeError, system};
use super::keys::{rotation_s, unix_time};
use super::{Supervisor, TOKEN_SIGNALS, TOKEN_STATUS, listeners, signals};
use crate::config::{Config, Loaded};
use crate::handover::{Descriptors, Handover, Pem};
use crate::share::Share;
use crate::status::StatusSocket;
use dormouse_engine::TicketKeys;
use dormouse_reactor::OnExec;
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::signal::Signals;

impl Supervisor {
    /// Opens everything, then starts the pairs: what can fail does so before anybody is served.
    pub(super) fn start(
        loaded: &Loaded,
        certificates: &[Vec<Pem>],
    ) -> Result<Supervisor, ServeError> {
        let Loaded { config, plan, .. } = loaded;
        let signals = signals::open()?;
        let listeners = listeners::open(config)?;
        let counters = Shared::create("dormouse-counters", plan.workers as usize)
            .map_err(system("make shared memory"))?;
        let (poller, status) = open_poller(config, &signals)?;
        let ticket_keys = TicketKeys::generate(unix_time(), rotation_s(config))
            .map_err(|e| ServeError::Workers(e.to_string()))?;
        let mut supervisor = Supervisor {
            pairs: Vec::new(),
            counters,
            poller,
            signals,
            status,
            ticket_keys,
            config: config.clone(),
            listeners: listeners.clone(),
            upgrade: None,
            former_keepers: Vec::new(),
            stopping: false,
            announced: false,
        };
        for worker in 0..plan.workers {
            let handover = Handover {
                worker,
                config: config.clone(),
                share: Share::of(worker, plan, config),
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
        Ok(supervisor)
    }
}

/// The poller of main, and what it waits for from the start.
pub(super) fn open_poller(
    config: &Config,
    signals: &Signals,
) -> Result<(Poller, Option<StatusSocket>), ServeError> {
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
    Ok((poller, status))
}
