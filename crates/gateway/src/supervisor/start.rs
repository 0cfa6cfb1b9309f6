//! What is made before anything serves.

use super::certificates::Watch;
use super::control::{self, Control};
use super::error::{ServeError, system};
use super::keys::{rotation_s, unix_time};
use super::numbers::Numbers;
use super::{Source, Supervisor, TOKEN_SIGNALS, listeners, signals};
use crate::config::{Loaded, Log};
use crate::handover::{OriginPem, Pem};
use crate::session_files::SessionFiles;
use dormouse_engine::TicketKeys;
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::{OnExec, process};

impl Supervisor {
    /// Opens everything, then starts the pairs: what can fail does so before anybody is served.
    pub(super) fn start(
        loaded: &Loaded,
        source: Source,
        set_logs: fn(&Log),
        certificates: Vec<Vec<Pem>>,
        origins: Vec<OriginPem>,
    ) -> Result<Supervisor, ServeError> {
        let Loaded { config, plan, .. } = loaded;
        let signals = signals::open()?;
        let sessions = SessionFiles::open(config, &origins)?;
        let numbers = Numbers::default().of(config);
        let listeners = listeners::open(config, &numbers.list(), &[])?;
        let counters = Shared::create("dormouse-counters", plan.workers as usize)
            .map_err(system("make shared memory"))?;
        let poller = Poller::create(OnExec::Close).map_err(system("make an epoll instance"))?;
        poller
            .add(signals.fd(), TOKEN_SIGNALS, Interest::READ)
            .map_err(system("wait for signals"))?;
        let address = control::open_address(config)?;
        let ticket_keys = TicketKeys::generate(unix_time(), rotation_s(config))
            .map_err(|e| ServeError::Workers(e.to_string()))?;
        let control = Control::start(address, &config.log, &counters, &poller)
            .map_err(system("start the control process"))?;
        let now_ms = process::boottime_ms();
        let mut supervisor = Supervisor {
            config: config.clone(),
            source,
            set_logs,
            certificates,
            origins,
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
            poller,
            signals,
            ticket_keys,
            born_ms: now_ms,
            sessions,
            stopping: false,
            announced: false,
        };
        for worker in 0..plan.workers {
            let handover = supervisor.handover(worker);
            supervisor
                .start_pair(handover)
                .map_err(system("start a worker"))?;
        }
        Ok(supervisor)
    }
}
