//! The start of the program: everything that can fail does so before the first client is served.

pub(crate) mod process_setup;
pub(crate) mod resume;

use crate::configuration::certificate_watch::CertificateWatch;
use crate::configuration::edition::Edition;
use crate::configuration::load::Ready;
use crate::configuration::source::Source;
use crate::connection_log::{LogFile, LogWriter};
use crate::control::ControlProcess;
use crate::ctl::kept::KeptChanges;
use crate::deep_rest::DeepRest;
use crate::error::{ServeError, system};
use crate::material::Material;
use crate::pairs::Pairs;
use crate::reload::ctl_changes::CtlChanges;
use crate::serving::Serving;
use crate::shared_memory::SharedMemory;
use crate::sockets::control_addresses::ControlAddresses;
use crate::sockets::listening::Listening;
use crate::sockets::syslog::SavedStandardError;
use crate::supervisor::{Helpers, History, Supervisor};
use crate::ticket_keys::Keyring;
use crate::worker_user;
use dormouse_config::{Loaded, Log};
use dormouse_handover::unix_time;
use dormouse_reactor::process;
use dormouse_reactor::process::OomScore;
use std::cell::OnceCell;
use std::io;

/// Added to the OOM score of keepers and workers, in thousandths of the machine's memory.
const KEEPERS_OOM_SCORE: i32 = 300;

/// Serves until stopped. `set_logs` applies the log settings, again after each reload.
///
/// # Errors
/// Why it could not start, or ended unexpectedly.
pub fn serve(ready: Ready, source: Source, set_logs: fn(&Log)) -> Result<(), ServeError> {
    let Ready {
        loaded,
        material,
        watch,
        changes: _,
    } = ready;
    let saved = SavedStandardError::redirect(&loaded.config.log.log_to);
    let _saved = saved.map_err(system("open syslog"))?;
    set_logs(&loaded.config.log);
    let oom = OomScore::open();
    process_setup::prepare_process()?;
    let mut loaded = loaded.settled();
    let of_file = loaded.config.clone();
    let kept = KeptChanges::apply_to(&mut loaded.config);
    set_logs(&loaded.config.log);
    let history = History {
        kept,
        ctl_changes: CtlChanges::of(&of_file, &loaded.config),
        ..History::default()
    };
    let mut supervisor = prepare(&loaded, source, set_logs, material, watch, history)?;
    start_pairs(&mut supervisor, oom)?;
    // Frees what was parsed to check the configuration.
    process::return_heap();
    supervisor.run()
}

fn prepare(
    loaded: &Loaded,
    source: Source,
    set_logs: fn(&Log),
    material: Material,
    certificate_watch: CertificateWatch,
    history: History,
) -> Result<Supervisor, ServeError> {
    let Loaded { config, plan, .. } = loaded;
    let user = worker_user::choose(config)?;
    let signals = process_setup::open_signals()?;
    let memory = SharedMemory::create(loaded, &material)?;
    let ticket_keys = Keyring::open(
        config,
        material.of_helpers.store.clone(),
        unix_time(),
        &memory.counters,
    );
    let ticket_keys = ticket_keys.map_err(ServeError::Certificates)?;
    let listening = Listening::open(config)?;
    let rest = DeepRest::create(config, plan)?;
    let log_writer = LogWriter::new(LogFile::open(config)?, None);
    let poller = process_setup::open_poller(&signals)?;
    let addresses = ControlAddresses::open(config)?;
    let start = |addresses| ControlProcess::start(addresses, config, &memory, &poller);
    let control = addresses.map(start);
    let control = control
        .transpose()
        .map_err(system("start the control process"))?;
    let now_ms = process::boottime_ms();
    let mut serving = Serving {
        edition: Edition::new(1, now_ms, config.clone(), plan.clone(), material),
        reported: OnceCell::new(),
        connections_max: plan.connections_max.into(),
        user,
        memory,
        ticket_keys,
        listening,
        pairs: Pairs::default(),
        rest,
    };
    serving
        .wait_for_ticket_keys(&poller)
        .map_err(system("wait for ticket keys"))?;
    let history = History {
        born_ms: now_ms,
        ..history
    };
    let helpers = Helpers {
        control,
        log_writer,
        certificate_watch,
    };
    Ok(Supervisor::new(
        source, set_logs, serving, helpers, poller, signals, history,
    ))
}

/// Starts all keepers, which start their workers. When memory runs out, the kernel should kill these before main,
/// because the next worker takes over their connections. A worker is always larger than its keeper, so it goes first.
fn start_pairs(supervisor: &mut Supervisor, oom: io::Result<OomScore>) -> Result<(), ServeError> {
    let mut start = || supervisor.start_pairs();
    let (started, scored) = match oom {
        Ok(mut oom) => oom.raised(KEEPERS_OOM_SCORE, &mut start),
        Err(error) => (start(), Err(error)),
    };
    if let Err(error) = scored {
        tracing::debug!(%error, "OOM score of workers could not be raised");
    }
    started.map_err(system("start a worker"))
}
