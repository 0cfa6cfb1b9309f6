//! Going on in place of another binary: the same process id, children, listeners and memory.

use super::certificates::Watch;
use super::control::{Address, Control, Tables};
use super::errands::Errands;
use super::error::{ServeError, system};
use super::notify::Notify;
use super::numbers::Numbers;
use super::pairs::Pair;
use super::scout::Scouts;
use super::start::open_poller;
use super::state::certificates_told;
use super::{Source, Supervisor, TOKEN_ORDERS, keys, listeners, signals};
use crate::main_state::MainState;
use crate::session_files::SessionFiles;
use crate::ticket_keys::Keyring;
use dormouse_config::Log;
use dormouse_engine::TicketKeys;
use dormouse_handover::trial;
use dormouse_handover::{Descriptors, Handover};
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::process::{self, Board, Pid};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::{Fd, OnExec, descriptors};
use dormouse_tables::backends::Backends;
use dormouse_tables::clients::Clients;
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
    TicketKeys::import(&state.told.ticket_keys).map_err(|e| ServeError::Workers(e.to_string()))?;
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
    start_logs(&state.told.config.log);
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
    supervisor.tell_scouts();
    supervisor.run()
}

fn counters(told: &Descriptors, workers: usize) -> Result<Shared, ServeError> {
    Shared::adopt(Fd(told.counters), workers)
        .map_err(io::Error::other)
        .map_err(system("map the counters"))
}

/// What all workers know together of clients and backends.
fn tables(told: &Descriptors, workers: u32) -> Result<(Clients, Backends), ServeError> {
    let clients = Clients::adopt(Fd(told.clients), told.clients_for).map_err(io::Error::other);
    let backends = Backends::adopt(Fd(told.backends), workers, 0).map_err(io::Error::other);
    Ok((
        clients.map_err(system("map the table of clients"))?,
        backends.map_err(system("map the table of backends"))?,
    ))
}

/// Another control process, on the address that is open already.
fn control(
    state: &MainState,
    counters: &Shared,
    backends: &Backends,
    poller: &Poller,
) -> Result<Option<Control>, ServeError> {
    let tables = Tables { counters, backends };
    let address = state.admin.clone();
    let address = address.map(|(listener, path)| Address::again(Fd(listener), path));
    Control::start(address, &state.told.config, tables, poller)
        .map_err(system("start the control process"))
}

fn keyring(told: &Handover) -> Result<Keyring, ServeError> {
    let keys = TicketKeys::import(&told.ticket_keys);
    let keys = keys.map_err(|e| ServeError::Workers(e.to_string()))?;
    Ok(Keyring::again(&told.config, keys))
}

impl Supervisor {
    fn resume(
        state: &MainState,
        source: Source,
        set_logs: fn(&Log),
    ) -> Result<Supervisor, ServeError> {
        let told = &state.told;
        let signals = signals::open()?;
        let counters = counters(&told.descriptors, state.pairs.len())?;
        let (clients, backends) = tables(&told.descriptors, state.pairs.len() as u32)?;
        let poller = open_poller(&signals)?;
        let control = control(state, &counters, &backends, &poller)?;
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
                edition: pair.edition,
                shows: 0,
                is_over: false,
                share: pair.share.clone(),
            });
        }
        let mut ticket_keys = keyring(told)?;
        keys::wait_for_keys(&poller, &mut ticket_keys).map_err(system("wait for ticket keys"))?;
        let again = |left| SessionFiles::again(&told.config, left);
        let sessions = state.sessions.as_ref().map(again).transpose();
        Ok(Supervisor {
            sessions: sessions.map_err(system("map the sessions"))?,
            source,
            set_logs,
            edition: state.edition,
            loaded_ms: state.loaded_ms,
            born_ms: state.born_ms,
            plan: state.plan.clone(),
            connections_max: state.connections_max,
            certificates_told: certificates_told(&told.certificates),
            certificates: told.certificates.clone(),
            client_trust: told.clients.clone(),
            origins: told.origins.clone(),
            backend_tls: told.backend_tls.clone(),
            watch: Watch::begin(&told.config),
            listeners: listeners::again(told),
            numbers: Numbers::again(&told.config, &told.numbers, state.next_number),
            waits_for_restart: state.waits_for_restart.clone(),
            last_reload: None,
            reloading: None,
            drain: None,
            pairs,
            control,
            counters,
            clients,
            backends,
            notify: Notify::from_environment(),
            errands: Errands::default(),
            scouts: Scouts::default(),
            poller,
            signals,
            ticket_keys,
            session_cache: told.descriptors.session_cache.map(Fd),
            config: told.config.clone(),
            upgrade: None,
            former_keepers: state.former.iter().copied().map(Pid).collect(),
            stopping: false,
            announced: true,
        })
    }
}
