//! Main: the process with the stable pid, the only one with privileges.
//!
//! It reads configuration, certificates and keys, opens the listeners, makes the shared memory and
//! starts one keeper per worker. Then it waits: for signals, for processes that end, for somebody
//! who asks for the status. It holds no connection and reads nothing from the network.
//!
//! ```text
//!   start      what is made before anything serves      keys       ticket keys and their rotation
//!   listeners  the sockets that all workers poll        signals    what signals mean
//!   pairs      keepers and workers, their ends          error      why it could not begin
//!   upgrade    another binary in place of this one      resume     going on in place of another
//!   control    the process which answers questions      state      what it is told
//!   reload     another configuration                    numbers    what slots call routes by
//!   drain      closing all connections slowly           certificates  files that change
//!   scout      names and health of backends            errands    what authorities are asked
//!   names      certificates that are had                questions  what the scout is told to find out
//! ```
#![forbid(unsafe_code)]

mod certificates;
mod control;
mod drain;
mod errands;
mod error;
mod keys;
mod listeners;
mod main_state;
mod material;
mod names;
mod notify;
mod numbers;
mod pairs;
mod questions;
mod reload;
mod resume;
mod scout;
mod session_files;
mod signals;
mod start;
mod state;
mod ticket_keys;
mod upgrade;

pub use error::ServeError;
pub use material::acme::file_of as acme_file;
pub use material::{PairFiles, pairs as certificate_pairs};
pub use resume::{CAN_RESUME, resume, try_resume};

use crate::session_files::SessionFiles;
use crate::ticket_keys::Keyring;
use certificates::Watch;
use control::Control;
use dormouse_config::{Config, Flag, Loaded, Log, Plan, Section};
use dormouse_handover::talk;
use dormouse_handover::{ClientTrust, OriginPem, Pem};
use dormouse_reactor::poller::{Events, Poller};
use dormouse_reactor::process::{OomScore, Pid, Wait};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::signal::Signals;
use dormouse_reactor::{Fd, descriptors, process};
use dormouse_tables::backends::Backends;
use dormouse_tables::clients::Clients;
use errands::Errands;
use error::system;
use listeners::Listener;
use notify::Notify;
use numbers::Numbers;
use pairs::Pair;
use reload::Reloading;
use scout::Scouts;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use upgrade::Upgrade;

/// How long those who were told to end have to do so before main ends.
const LAST_ONES_MS: u64 = 1_000;
const LOOK_AGAIN: Duration = Duration::from_millis(2);

const TOKEN_SIGNALS: u64 = 1;
const TOKEN_CONTROL: u64 = 2;
const TOKEN_TICKET_KEYS: u64 = 3;
const TOKEN_SCOUT: u64 = 4;
const TOKEN_LOOKUP: u64 = 5;
const TOKEN_ERRAND: u64 = 6;
/// And those after it, one for each worker.
const TOKEN_ORDERS: u64 = 1000;

/// Where a configuration comes from: a reload reads it from there again.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// What the flags of the command line describe.
    pub section: Section,
    /// What was given there.
    pub flags: Vec<Flag>,
}

/// Serves until told to stop. `set_logs` sets what is logged, again after each reload.
///
/// # Errors
/// Why it could not begin, or could not go on.
pub fn serve(loaded: &Loaded, source: Source, set_logs: fn(&Log)) -> Result<(), ServeError> {
    set_logs(&loaded.config.log);
    process::set_subreaper().map_err(system("become the reaper of orphaned workers"))?;
    let oom = OomScore::open();
    process::forbid_core_dumps().map_err(system("forbid core dumps"))?;
    // The plan counts on it; workers inherit it.
    descriptors::raise_limit().map_err(system("raise the limit on descriptors"))?;
    let loaded = &loaded.settled();
    let certificates = material::load(&loaded.config, &[]).map_err(ServeError::Certificates)?;
    let origins = material::load_origins(&loaded.config).map_err(ServeError::Certificates)?;
    let trust = material::load_clients(&loaded.config).map_err(ServeError::Certificates)?;
    let backend_tls =
        material::load_backend_tls(&loaded.config).map_err(ServeError::Certificates)?;
    let origins = (origins, backend_tls);
    let supervisor = Supervisor::start(loaded, source, set_logs, certificates, trust, origins)?;
    supervisor.start_pairs(oom)?.run()
}

struct Supervisor {
    /// What runs.
    config: Config,
    source: Source,
    set_logs: fn(&Log),
    /// What it comes to on this machine.
    plan: Plan,
    /// What routes show their clients, in the order of the configuration.
    certificates: Vec<Vec<Pem>>,
    /// What control is told of them.
    certificates_told: Vec<talk::Certificate>,
    /// Who may vouch for clients, in the same order.
    client_trust: Vec<Option<ClientTrust>>,
    origins: Vec<OriginPem>,
    /// Whom routes trust that speak TLS with their backends, in the order of the configuration.
    backend_tls: Vec<Option<OriginPem>>,
    watch: Watch,
    listeners: Vec<Listener>,
    numbers: Numbers,
    waits_for_restart: Vec<String>,
    last_reload: Option<talk::Reload>,
    reloading: Option<Reloading>,
    drain: Option<talk::Drain>,
    /// Counts configurations: 1 after the start.
    edition: u64,
    loaded_ms: u64,
    /// Slots there are: a reload can't make more.
    connections_max: u64,
    pairs: Vec<Pair>,
    control: Option<Control>,
    counters: Shared,
    /// Counts per client address, and what is known of backends: of all workers.
    clients: Clients,
    backends: Backends,
    poller: Poller,
    signals: Signals,
    ticket_keys: Keyring,
    upgrade: Option<Upgrade>,
    /// Keepers whose connections a new binary has taken over, and which have not ended yet.
    former_keepers: Vec<Pid>,
    born_ms: u64,
    /// Sessions of originations.
    sessions: Option<SessionFiles>,
    /// The cache of sessions of routes.
    session_cache: Option<Fd>,
    notify: Notify,
    errands: Errands,
    scouts: Scouts,
    stopping: bool,
    announced: bool,
}

impl Supervisor {
    fn run(mut self) -> Result<(), ServeError> {
        let mut events = Events::with_capacity(64);
        loop {
            self.attend_to_control();
            self.attend_to_scouts();
            self.poller
                .wait(&mut events, self.timeout_ms())
                .map_err(system("wait for events"))?;
            self.notify.alive(process::boottime_ms());
            self.rotate_ticket_keys();
            self.end_late_upgrade();
            self.look_at_certificates();
            self.attend_to_errands();
            self.end_late_reload();
            if let Some(sessions) = &mut self.sessions {
                sessions.save_if_due();
            }
            for event in events.iter() {
                match event.token() {
                    TOKEN_SIGNALS => self.on_signals()?,
                    TOKEN_CONTROL => self.on_control(),
                    TOKEN_TICKET_KEYS => self.rotate_ticket_keys(),
                    TOKEN_ERRAND => self.on_errand(),
                    TOKEN_SCOUT => self.on_scout(),
                    TOKEN_LOOKUP => self.on_lookup(),
                    token => self.on_worker(token.saturating_sub(TOKEN_ORDERS) as usize),
                }
            }
            self.tell_what_is_shown();
            if self.pairs.iter().all(|pair| pair.ended.is_some()) {
                self.end_control();
                self.end_scouts();
                if let Some(sessions) = &mut self.sessions {
                    sessions.save();
                }
                wait_for_the_last();
                return if self.stopping {
                    Ok(())
                } else {
                    Err(ServeError::Workers("all workers are gone".to_owned()))
                };
            }
        }
    }

    fn timeout_ms(&self) -> Option<u64> {
        let until_ms = |at_ms: u64| at_ms.saturating_sub(process::boottime_ms());
        let control = self.control.as_ref().and_then(Control::next_deadline_ms);
        let sessions = self.sessions.as_ref();
        [
            self.until_rotation_ms(),
            Some(self.until_upgrade_late_ms()),
            control.map(until_ms),
            self.notify.next_ms().map(until_ms),
            self.next_look_ms().map(until_ms),
            self.next_errand_ms().map(until_ms),
            self.reload_deadline_ms().map(until_ms),
            self.scouts.next_deadline_ms().map(until_ms),
            sessions.and_then(SessionFiles::until_look_ms),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

/// Main is the last to go. A service manager that finds main gone and another process still there
/// has to end that, and may not learn when it has ended: systemd then waits for `TimeoutStopSec`.
fn wait_for_the_last() {
    let until_ms = process::monotonic_ms() + LAST_ONES_MS;
    while process::has_children() && process::monotonic_ms() < until_ms {
        if !matches!(process::wait(Wait::AnyEnded), Ok(Some(_))) {
            thread::sleep(LOOK_AGAIN);
        }
    }
}
