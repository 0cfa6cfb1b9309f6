//! Examination of everything that a configuration names besides certificates, before anything starts:
//! addresses, users, ticket keys, session files, TLS contexts. It changes nothing.

mod addresses;
mod holder;
mod spiffe;
mod token_keys;

use crate::configuration::occasion::{Occasion, Purpose, of_privilege};
use crate::connection_log::{LogFile, is_named_pipe};
use crate::contexts;
use crate::ctl::kept::KeptChanges;
use crate::deep_rest::trial_ports;
use crate::material::Material;
use crate::material::directories::directory_of;
use crate::material::findings::Findings;
use crate::session_files;
use crate::sockets::syslog;
use crate::ticket_keys;
use dormouse_config::{
    Backend, Config, LogDestination, LogTarget, Place, Sandbox, Severity, SyslogAddress,
};
use dormouse_engine::TicketKeys;
use dormouse_handover::unix_time;
use dormouse_helpers::tcp_repair::try_cycles;
use dormouse_reactor::sandbox::OwnPorts;
use dormouse_reactor::{process, sandbox};
use dormouse_routes::contexts::warm_up;
use dormouse_tables::backends::Backends;

/// Examines what the configuration names; `material` was read for it.
pub(crate) fn examine(
    config: &Config,
    material: &Material,
    occasion: &Occasion<'_>,
    findings: &mut Findings,
) {
    user(config, occasion.purpose, findings);
    confinement(config, findings);
    ticket_keys::examine(config, findings);
    session_file(config, findings);
    ctl_file(config, findings);
    token_keys::examine(config, material, occasion.purpose, findings);
    spiffe::examine(config, occasion.purpose, findings);
    rest(config, occasion.purpose, findings);
    connection_log(config, occasion.purpose, findings);
    addresses::examine(config, occasion, findings);
    if !findings.has_errors()
        && let Err(why) = build_contexts(config, material)
    {
        findings.error(Place::Whole, why);
    }
}

/// Checks that keepers and workers can switch to the configured user.
fn user(config: &Config, purpose: Purpose, findings: &mut Findings) {
    let Some(name) = &config.process.user else {
        return;
    };
    let place = Place::Program("user");
    match process::look_up_user(name, config.process.group.as_deref()) {
        Err(why) => findings.refusal(
            place,
            Severity::Error,
            format!("keepers and workers cannot run as the user `{name}`: {why}\n`getent passwd` and `getent group` list the existing ones"),
        ),
        Ok(user) => {
            let own = process::user_id();
            if own != 0 && own != user.uid {
                let what = format!(
                    "only root can switch to the user `{name}`\nstart as root, or remove `user`"
                );
                findings.refusal(place, of_privilege(purpose), what);
            }
        }
    }
}

fn confinement(config: &Config, findings: &mut Findings) {
    let wanted = config.process.sandbox;
    let missing = match wanted {
        Sandbox::Off => Vec::new(),
        Sandbox::On | Sandbox::Required => sandbox::missing(),
    };
    if missing.is_empty() {
        return;
    }
    let place = Place::Program("sandbox");
    let missing = missing.join(", ");
    if wanted == Sandbox::Required {
        let what = format!(
            "processes cannot be sandboxed: this kernel lacks {missing}\nsandbox = \"on\" uses what the kernel has"
        );
        findings.refusal(place, Severity::Error, what);
    } else {
        let what = format!("the sandbox is incomplete: this kernel lacks {missing}");
        findings.refusal(place, Severity::Warning, what);
    }
}

fn session_file(config: &Config, findings: &mut Findings) {
    for (index, originate) in config.originate.iter().enumerate() {
        let Some(path) = &originate.session_file else {
            continue;
        };
        let place = Place::of_origination(index, "session_file");
        match session_files::examine(path) {
            Ok(warning) => findings.warnings(place, warning.into_iter().collect()),
            Err(why) => findings.error(place, why),
        }
        directory_of(path, "sessions", place, findings);
    }
}

/// What is kept and has no effect is no reason to refuse a start.
fn ctl_file(config: &Config, findings: &mut Findings) {
    if let Some(path) = &config.process.ctl_file {
        let place = Place::Program("ctl_file");
        findings.warnings(place, KeptChanges::examine(config));
        directory_of(path, "kept changes", place, findings);
    }
}

/// Takes connections on loopback out of the kernel, for `check`. The start tries it again with the privileges of `serve`.
fn rest(config: &Config, purpose: Purpose, findings: &mut Findings) {
    let first = (config.routes.iter()).position(|route| route.rest_after.is_some());
    let (Some(index), Purpose::Check) = (first, purpose) else {
        return;
    };
    let place = Place::of_route(index, "rest_after");
    if let Err(error) = try_cycles(trial_ports(config)) {
        let severity = match process::user_id() {
            0 => Severity::Error,
            _ => Severity::Warning,
        };
        let what = format!(
            "connections cannot leave the kernel here: cannot {error}\n`serve` tries the same at its start, and needs CAP_NET_ADMIN, CAP_BPF, CAP_NET_RAW and Linux 5.9"
        );
        findings.refusal(place, severity, what);
    }
    let has_tcp_backend = config.routes.iter().any(|route| {
        route.rest_after.is_some()
            && !route.backend_tls
            && (route.to.iter()).any(|to| matches!(to.backend, Backend::Tcp { .. }))
    });
    if has_tcp_backend && OwnPorts::of_worker(0, 1).all().next().is_none() {
        let what = "only clients' sides rest, and all connections count in max_awake: net.ipv4.ip_local_port_range leaves no ports from 10000 on for connections to backends that rest";
        findings.refusal(place, Severity::Warning, what);
    }
}

/// Syslog may start later, so its absence is only a warning.
fn check_syslog(address: &SyslogAddress, option: &'static str, findings: &mut Findings) {
    if let Err(error) = syslog::examine(address) {
        let what = format!(
            "{address}: no syslog server receives there now ({error}); lines are dropped until one does"
        );
        findings.warning(Place::Program(option), what);
    }
}

fn connection_log(config: &Config, purpose: Purpose, findings: &mut Findings) {
    if let LogDestination::Syslog(address) = &config.log.log_to {
        check_syslog(address, "log_to", findings);
    }
    let path = match &config.log.connection_log {
        LogTarget::File(path) => path,
        LogTarget::Syslog(address) => return check_syslog(address, "connection_log", findings),
        LogTarget::Off | LogTarget::Stderr => return,
    };
    let place = Place::Program("connection_log");
    if path.is_dir() {
        let what = format!("{}: is a directory", path.display());
        findings.error(place, what);
    } else if !path.exists() {
        directory_of(path, "the connection log", place, findings);
    } else if is_named_pipe(path) {
        // Whether a process reads from it shows only when it is opened; to close it again would end that process's input.
        let what = format!(
            "{}: is a pipe; `serve` starts only while a process reads from it",
            path.display()
        );
        if purpose == Purpose::Check {
            findings.warning(place, what);
        }
    } else if let Err(error) = LogFile::open(config) {
        findings.error(place, error.to_string());
    }
}

/// Builds the contexts and makes a handshake with one of each kind, so that an error of the TLS library
/// appears before a client connects.
fn build_contexts(config: &Config, material: &Material) -> Result<(), String> {
    let keys = TicketKeys::generate(unix_time(), 3600).map_err(|error| error.to_string())?;
    let backends = Backends::create(1).map_err(|error| error.to_string())?;
    let built = contexts::of_routes(config, material, &keys, &backends).and_then(|routes| {
        warm_up(&routes, || ()).map_err(|error| format!("a test handshake failed: {error}"))?;
        contexts::of_origins(config, material)
    });
    backends.fds().close();
    built
}
