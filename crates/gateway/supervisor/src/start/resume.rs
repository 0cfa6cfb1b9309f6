//! Continuing in place of another binary: with its process id, children, listeners and memory.

use crate::configuration::certificate_watch::CertificateWatch;
use crate::configuration::edition::Edition;
use crate::configuration::source::Source;
use crate::connection_log::{LogFile, LogWriter};
use crate::contexts;
use crate::control::ControlProcess;
use crate::ctl::kept::KeptChanges;
use crate::deep_rest::DeepRest;
use crate::error::{ServeError, system};
use crate::material::workload::Workload;
use crate::material::{self, Material, OfHelpers};
use crate::pairs::Pairs;
use crate::serving::Serving;
use crate::shared_memory::SharedMemory;
use crate::sockets::control_addresses::ControlAddresses;
use crate::sockets::listening::Listening;
use crate::start::process_setup;
use crate::supervisor::{Helpers, History, Supervisor};
use crate::ticket_keys::Keyring;
use crate::upgrade::main_state::MainState;
use dormouse_config::{Config, Log};
use dormouse_engine::TicketKeys;
use dormouse_handover::Handover;
use dormouse_handover::trial;
use dormouse_reactor::Fd;
use dormouse_reactor::poller::Poller;
use dormouse_reactor::process::{self, Pid};
use dormouse_tables::backends::Backends;
use std::cell::OnceCell;

/// Checks whether this binary could take over the running one's state. If so, the process must exit with
/// [`CAN_RESUME`](crate::CAN_RESUME). Returns the running configuration.
///
/// # Errors
/// Why it cannot take over.
pub fn try_resume(state: i32) -> Result<Config, ServeError> {
    trial::crash_at("check", 0);
    process::forbid_core_dumps().map_err(system("forbid core dumps"))?;
    let state = MainState::read(Fd(state)).map_err(system("read the running binary's state"))?;
    if let Some(directory) = state.directory {
        let changed = process::change_to_directory(Fd(directory));
        changed.map_err(system("enter the running binary's working directory"))?;
    }
    check_material(&state.handover)?;
    Ok(state.handover.config.clone())
}

/// Checks that this binary can use the running one's certificates and keys, as its workers will. After the commit it would
/// be too late to find out.
pub(crate) fn check_material(handover: &Handover) -> Result<(), ServeError> {
    let (config, keys) = (&handover.config, ticket_keys(handover)?);
    let backends = Backends::create(1).map_err(system("create shared memory"))?;
    let built = contexts::of_all(
        config,
        &material(handover, OfHelpers::default()),
        &keys,
        &backends,
    );
    backends.fds().close();
    built.map_err(|why| ServeError::Workers(format!("cannot use a running certificate: {why}")))
}

/// Takes over from the binary that wrote `state`.
///
/// # Errors
/// Why it could not take over.
pub fn resume(state: i32, source: Source, set_logs: fn(&Log)) -> Result<(), ServeError> {
    process_setup::prepare_process()?;
    let fd = Fd(state);
    let state = MainState::read(fd).map_err(system("read the old binary's state"))?;
    fd.close();
    set_logs(&state.handover.config.log);
    trial::crash_at("resume", 0);
    let workers = state.pairs.len();
    let former_control = state.former_control;
    let mut supervisor = adopt(state, source, set_logs)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        workers,
        "upgraded; new binary running"
    );
    supervisor.replaces(former_control);
    supervisor.run()
}

fn adopt(state: MainState, source: Source, set_logs: fn(&Log)) -> Result<Supervisor, ServeError> {
    let signals = process_setup::open_signals()?;
    let poller = process_setup::open_poller(&signals)?;
    let serving = adopt_serving(&state, &poller)?;
    let config = &state.handover.config;
    let control = state.control.as_ref().map(|addresses| {
        let mut addresses = ControlAddresses::adopt(addresses, &state.socket_files);
        addresses.recover_admin();
        ControlProcess::resume(addresses, config)
    });
    // They are in effect already.
    let kept = KeptChanges::apply_to(&mut config.clone());
    let history = History {
        kept,
        born_ms: state.born_ms,
        is_announced: true,
        ending: state.former.into_iter().map(Pid).collect(),
        waits_for_restart: state.waits_for_restart,
        ctl_changes: state.ctl_changes,
        stops_after_drain: false,
    };
    let log_file = LogFile::open(config).unwrap_or_else(|error| {
        tracing::error!(%error, "connection log disabled until the next reload");
        None
    });
    let log_writer = LogWriter::new(log_file, state.log_writer.map(Pid));
    let helpers = Helpers {
        control,
        log_writer,
        certificate_watch: CertificateWatch::adopt(config),
    };
    Ok(Supervisor::new(
        source, set_logs, serving, helpers, poller, signals, history,
    ))
}

fn adopt_serving(state: &MainState, poller: &Poller) -> Result<Serving, ServeError> {
    let handover = &state.handover;
    let config = &handover.config;
    let (sessions, workers) = (state.sessions.as_ref(), state.pairs.len() as u32);
    let memory = SharedMemory::adopt(&handover.descriptors, config, sessions, workers)?;
    let (number, loaded_ms) = (state.edition, state.loaded_ms);
    // Workers do not have them, so they are in no handover. What cannot be read now is read when it can.
    let of_helpers = material::certificates_of_helpers(config);
    Ok(Serving {
        edition: Edition {
            timeouts_since_ms: handover.share.timeouts_since_ms,
            ..Edition::new(
                number,
                loaded_ms,
                config.clone(),
                state.plan.clone(),
                material(handover, of_helpers.clone()).taken_over_with(&state.workload),
            )
        },
        reported: OnceCell::new(),
        connections_max: state.connections_max,
        user: handover.user,
        memory,
        ticket_keys: Keyring::adopt(ticket_keys(handover)?, of_helpers.store),
        listening: Listening::adopt(
            handover,
            &state.spare_listeners,
            &state.socket_files,
            state.next_number,
        ),
        pairs: Pairs::adopt(&state.pairs, poller).map_err(system("adopt a worker"))?,
        rest: (state.rest.as_ref().map(DeepRest::adopt).transpose())
            .map_err(system("adopt the steering of packets"))?,
    })
}

fn material(handover: &Handover, of_helpers: OfHelpers) -> Material {
    Material {
        of_helpers,
        certificates: handover.certificates.clone(),
        client_trust: handover.clients.clone(),
        origins: handover.origins.clone(),
        backend_tls: handover.backend_tls.clone(),
        workload: Workload::none(),
    }
}

fn ticket_keys(handover: &Handover) -> Result<TicketKeys, ServeError> {
    let keys = TicketKeys::import(&handover.ticket_keys);
    keys.map_err(|error| ServeError::Workers(error.to_string()))
}
