//! The start of the program: everything that can fail does so before a client is served.

use crate::admin_address;
use crate::connection_log::{LogFile, LogWriter};
use crate::contexts;
use crate::control::ControlProcess;
use crate::edition::Edition;
use crate::error::{ServeError, system};
use crate::listening::Listening;
use crate::material::Material;
use crate::pairs::Pairs;
use crate::process_setup;
use crate::serving::Serving;
use crate::shared_memory::SharedMemory;
use crate::source::Source;
use crate::supervisor::{Helpers, History, Supervisor};
use crate::ticket_keys::Keyring;
use dormouse_config::{Config, Loaded, Log, Sandbox};
use dormouse_handover::unix_time;
use dormouse_reactor::process::OomScore;
use dormouse_reactor::{process, sandbox};
use dormouse_routes::contexts::warm_up;
use std::io;

/// How much sooner than main keepers and workers are killed when memory runs out: as if they used
/// this many thousandths of the machine's memory more.
const KEEPERS_OOM_SCORE: i32 = 300;

/// Serves until told to stop. `set_logs` sets what is logged, again after each reload.
///
/// # Errors
/// Why it could not begin, or could not go on.
pub fn serve(loaded: &Loaded, source: Source, set_logs: fn(&Log)) -> Result<(), ServeError> {
    set_logs(&loaded.config.log);
    let oom = OomScore::open();
    process_setup::prepare_process()?;
    let loaded = &loaded.settled();
    let material = Material::load(&loaded.config, &[]).map_err(ServeError::Certificates)?;
    let mut supervisor = prepare(loaded, source, set_logs, material)?;
    start_pairs(&mut supervisor, oom)?;
    supervisor.run()
}

fn prepare(
    loaded: &Loaded,
    source: Source,
    set_logs: fn(&Log),
    material: Material,
) -> Result<Supervisor, ServeError> {
    let Loaded { config, plan, .. } = loaded;
    check_user(config)?;
    check_sandbox(config.process.sandbox)?;
    let signals = process_setup::open_signals()?;
    let memory = SharedMemory::create(loaded, &material)?;
    let ticket_keys = Keyring::open(config, unix_time(), &memory.counters);
    let ticket_keys = ticket_keys.map_err(ServeError::Certificates)?;
    try_contexts(config, &material, &ticket_keys, &memory)?;
    let listening = Listening::open(config)?;
    let log_writer = LogWriter::new(LogFile::open(config)?, None);
    let poller = process_setup::open_poller(&signals)?;
    let address = admin_address::open(config)?;
    let control = address.map(|address| ControlProcess::start(address, config, &memory, &poller));
    let control = control
        .transpose()
        .map_err(system("start the control process"))?;
    let now_ms = process::boottime_ms();
    let mut serving = Serving {
        edition: Edition::new(1, now_ms, config.clone(), plan.clone(), material),
        connections_max: plan.connections_max.into(),
        memory,
        ticket_keys,
        listening,
        pairs: Pairs::default(),
    };
    serving
        .wait_for_ticket_keys(&poller)
        .map_err(system("wait for ticket keys"))?;
    let history = History {
        born_ms: now_ms,
        ..History::default()
    };
    let helpers = Helpers {
        control,
        log_writer,
    };
    Ok(Supervisor::new(
        source, set_logs, serving, helpers, poller, signals, history,
    ))
}

/// Starts all keepers, which start their workers. When memory runs out the kernel is to kill these
/// before main: their connections go on in the next worker. Of keeper and worker the worker is always
/// the larger one.
fn start_pairs(supervisor: &mut Supervisor, oom: io::Result<OomScore>) -> Result<(), ServeError> {
    let mut start = || supervisor.start_pairs();
    let (started, scored) = match oom {
        Ok(mut oom) => oom.raised(KEEPERS_OOM_SCORE, &mut start),
        Err(error) => (start(), Err(error)),
    };
    if let Err(error) = scored {
        tracing::debug!(%error, "workers have the score for want of memory that main has");
    }
    started.map_err(system("start a worker"))
}

/// A handshake with itself for each route, before a client can connect: mistakes are reported now.
fn try_contexts(
    config: &Config,
    material: &Material,
    ticket_keys: &Keyring,
    memory: &SharedMemory,
) -> Result<(), ServeError> {
    let refused = |why| ServeError::Certificates(vec![why]);
    let keys = ticket_keys.keys();
    let routes = contexts::of_routes(config, material, keys, &memory.backends).map_err(refused)?;
    warm_up(&routes).map_err(system("do a handshake with itself"))?;
    contexts::of_backends(config, material, routes).map_err(refused)
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
