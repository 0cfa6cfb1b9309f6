//! Going on in place of another binary: the same process id, children, listeners and memory.

use super::certificates::Watch;
use super::control::{Address, Control};
use super::error::{ServeError, system};
use super::listeners::Listener;
use super::numbers::Numbers;
use super::pairs::Pair;
use super::start::open_poller;
use super::{Source, Supervisor, TOKEN_ORDERS, signals};
use crate::config::{Log, Plan};
use crate::material;
use crate::session_files::SessionFiles;
use crate::share::Share;
use crate::upgrade::{MainState, trial};
use dormouse_engine::TicketKeys;
use dormouse_reactor::poller::Interest;
use dormouse_reactor::process::{self, Board, Pid};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::socket::Addr;
use dormouse_reactor::{Fd, OnExec, descriptors};
use std::io;

/// The exit status which says that this binary can go on. Not 0: that is what any program may say.
pub const CAN_RESUME: u8 = 75;

/// Whether this binary could go on with what the running one would leave. If so, the process is to
/// end with [`CAN_RESUME`].
pub fn try_resume(state: i32) -> Result<(), ServeError> {
    trial::crash_at("check", 0);
    process::forbid_core_dumps().map_err(system("forbid core dumps"))?;
    let state =
        MainState::read(Fd(state)).map_err(system("go on with the running binary's state"))?;
    TicketKeys::import(&state.ticket_keys).map_err(|e| ServeError::Workers(e.to_string()))?;
    Ok(())
}

/// Goes on in place of the binary that wrote `state`.
pub fn resume(state: i32, source: Source, start_logs: fn(&Log)) -> Result<(), ServeError> {
    process::set_subreaper().map_err(system("become the reaper of orphaned workers"))?;
    process::forbid_core_dumps().map_err(system("forbid core dumps"))?;
    descriptors::raise_limit().map_err(system("raise the limit on descriptors"))?;
    let fd = Fd(state);
    let state = MainState::read(fd).map_err(system("go on with the former binary's state"))?;
    fd.close();
    start_logs(&state.config.log);
    let mut supervisor = Supervisor::resume(&state, source, start_logs)?;
    drop(state);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        workers = supervisor.pairs.len(),
        "upgraded: the new binary goes on"
    );
    // Processes that ended while nobody listened.
    supervisor.reap()?;
    supervisor.run()
}

impl Supervisor {
    fn resume(
        state: &MainState,
        source: Source,
        set_logs: fn(&Log),
    ) -> Result<Supervisor, ServeError> {
        let config = &state.config;
        let plan = plan(state);
        let listeners = listeners(state)?;
        let signals = signals::open()?;
        let counters = Shared::adopt(Fd(state.counters), state.pairs.len())
            .map_err(io::Error::other)
            .map_err(system("map the counters"))?;
        let poller = open_poller(&signals)?;
        let address = state.admin.clone();
        let address = address.map(|(listener, path)| Address::again(Fd(listener), path));
        let control = Control::start(address, &state.config.log, &counters, &poller)
            .map_err(system("start the control process"))?;
        let mut pairs = Vec::with_capacity(state.pairs.len());
        for (index, pair) in state.pairs.iter().enumerate() {
            let orders = Fd(pair.orders);
            let token = TOKEN_ORDERS + index as u64;
            let add = || -> io::Result<()> {
                orders.set_on_exec(OnExec::Close)?;
                poller.add(orders, token, Interest::READ)
            };
            add().map_err(system("wait for a worker"))?;
            let board = Board::adopt(Fd(pair.board))
                .map_err(io::Error::other)
                .map_err(system("map a keeper's board"))?;
            pairs.push(Pair {
                pid: Pid(pair.keeper),
                born_ms: pair.born_ms,
                ended: None,
                orders,
                board,
                ready: true,
                edition: state.edition,
                is_over: false,
                share: Share::of(index as u32, &plan, config),
            });
        }
        let sessions = state.sessions.as_ref();
        let sessions = sessions.map(|left| SessionFiles::again(&state.config, left));
        Ok(Supervisor {
            sessions: sessions.transpose().map_err(system("map the sessions"))?,
            source,
            edition: state.edition,
            loaded_ms: state.loaded_ms,
            connections_max: state.connections_max,
            born_ms: state.born_ms,
            pairs,
            control,
            counters,
            poller,
            signals,
            ticket_keys: TicketKeys::import(&state.ticket_keys)
                .map_err(|e| ServeError::Workers(e.to_string()))?,
            config: config.clone(),
            set_logs,
            plan,
            certificates: read_again(material::load(config, &[])),
            origins: read_again(material::load_origins(config)),
            watch: Watch::begin(config),
            numbers: Numbers::again(config, &listeners, state.next_route),
            listeners,
            waits_for_restart: Vec::new(),
            last_reload: None,
            reloading: None,
            drain: None,
            upgrade: None,
            former_keepers: state.former.iter().copied().map(Pid).collect(),
            stopping: false,
            announced: true,
        })
    }
}

/// What the former binary planned, as far as it matters to a reload.
fn plan(state: &MainState) -> Plan {
    let workers = state.pairs.len() as u32;
    let connections_max = u32::try_from(state.connections_max).unwrap_or(u32::MAX);
    Plan {
        workers,
        connections_max,
        connections_per_worker: connections_max.div_ceil(workers.max(1)),
        descriptors_per_worker: 0,
        costs: Vec::new(),
    }
}

fn listeners(state: &MainState) -> Result<Vec<Listener>, ServeError> {
    let all = state.listeners.iter().map(|&(fd, route)| {
        Ok(Listener {
            address: Addr::local(Fd(fd))?,
            fd: Fd(fd),
            route,
        })
    });
    all.collect::<io::Result<_>>()
        .map_err(system("go on with a listener"))
}

/// Workers have what they need. What main has is for the next reload, which reads it again.
fn read_again<T>(read: Result<Vec<T>, Vec<String>>) -> Vec<T> {
    read.unwrap_or_else(|mistakes| {
        for mistake in mistakes {
            tracing::warn!("workers go on with what they have: {mistake}");
        }
        Vec::new()
    })
}
