//! The first part of a reload, before anything changes: loads the configuration again, and keeps the
//! options that a running program cannot change.

pub(crate) mod answer;
pub(crate) mod ctl_changes;
pub(crate) mod report;

use crate::configuration::certificate_watch::CertificateWatch;
use crate::configuration::edition::Edition;
use crate::configuration::load::{self, Ready};
use crate::configuration::occasion::{Occasion, Occupied, Purpose};
use crate::configuration::source::Source;
use crate::material::Former;
use crate::scout::FoundNames;
use crate::worker_user;
use dormouse_config::{self as config, Config, Count, Loaded, Machine, Plan};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Stands for the address of an unresolved name. It is never used: the configuration is loaded again once
/// the name is resolved.
const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Why a program that was started with `-c -` or `-c <(command)` cannot reload.
const READ_ONCE: &str = "the configuration came from standard input or a pipe, which cannot be read again; \
restart dormouse, or start it with a file";

/// Result of loading the configuration again.
pub(crate) enum Reloaded {
    /// It is complete.
    Complete(Box<Ready>),
    /// All its names; some must be resolved first. The next attempt gets only what is looked up now, and a changed file
    /// may have other names than that of the attempt before.
    LookUp(BTreeSet<String>),
}

/// Loads the configuration again, with everything that it names. A name that cannot be resolved keeps its
/// current addresses. `watch` knows which files there were before.
pub(crate) fn load(
    source: &Source,
    names: &FoundNames,
    edition: &Edition,
    listeners: &[String],
    watch: &CertificateWatch,
) -> Result<Reloaded, String> {
    if source.is_read_once() {
        return Err(READ_ONCE.to_owned());
    }
    let wanted = RefCell::new(BTreeSet::new());
    let look_up = |host: &str, port: u16| {
        let name = format!("{host}:{port}");
        wanted.borrow_mut().insert(name.clone());
        match names.get(&name) {
            Some(Ok(found)) => Ok(found.clone()),
            Some(Err(why)) => edition
                .config
                .known_addresses(&name)
                .ok_or_else(|| io::Error::other(why.clone())),
            None => Ok(vec![SocketAddr::new(UNKNOWN, port)]),
        }
    };
    let occasion = Occasion {
        purpose: Purpose::Serve,
        look_up: &look_up,
        occupied: &|_| Occupied {
            listeners: listeners.to_vec(),
            metrics: edition.config.process.metrics,
            admin: Some(edition.config.process.admin.clone()),
        },
    };
    // Asked only of certificates whose files are missing.
    let seen = OnceCell::new();
    let was_there = |name: &str| seen.get_or_init(|| watch.seen()).contains(name);
    let former = Former::of(&edition.material, &was_there);
    let is_complete = || wanted.borrow().iter().all(|name| names.contains_key(name));
    let ready = load::load_after(source, &occasion, &former, &is_complete);
    if !is_complete() {
        return Ok(Reloaded::LookUp(wanted.into_inner()));
    }
    let mut ready = ready.map_err(|mistakes| {
        for error in mistakes.lines() {
            tracing::error!(error, "configuration error");
        }
        mistakes.render(false).trim_end().to_owned()
    })?;
    for warning in ready.loaded.warnings.lines() {
        tracing::warn!(warning, "configuration warning");
    }
    ready.loaded = ready.loaded.settled();
    Ok(Reloaded::Complete(Box::new(ready)))
}

/// Properties that are fixed at the start.
pub(crate) struct FixedAtStart {
    /// Slots of all workers.
    pub(crate) connections_max: u64,
    /// Whether there is memory for sessions of originations.
    pub(crate) has_sessions: bool,
    /// Whether there is what connections in deep rest need.
    pub(crate) rests: bool,
    /// Whether workers run as nobody because no backend was a unix socket. They cannot become root again.
    pub(crate) is_nobody: bool,
}

/// A configuration that the running program can switch to.
pub(crate) struct ReloadPlan {
    pub(crate) config: Config,
    pub(crate) plan: Plan,
    /// Changed options that take effect at the next start.
    pub(crate) waits_for_restart: Vec<String>,
}

/// The plan from the configuration `now` to the next one.
pub(crate) fn plan(
    now: &Config,
    now_plan: &Plan,
    next: Loaded,
    fixed: &FixedAtStart,
) -> ReloadPlan {
    let Loaded {
        config: mut next,
        mut plan,
        ..
    } = next;
    let mut waits = next.hold(now);
    if fixed.is_nobody && worker_user::is_closed_to_nobody(&next) && !waits.contains(&"user") {
        waits.push("user");
    }
    let has_more_room = u64::from(plan.connections_max) > fixed.connections_max
        && next.limits.max_connections != now.limits.max_connections;
    if has_more_room {
        // The next reload compares the file with this, and names the option again.
        let most = u32::try_from(fixed.connections_max).unwrap_or(u32::MAX);
        next.limits.max_connections = Count::Exactly(most);
        waits.push("max_connections");
    }
    if !fixed.has_sessions && next.originate != now.originate {
        // The memory for their sessions is created at the start.
        next.originate.clone_from(&now.originate);
        waits.push("originate");
    }
    if !fixed.rests && next.rests() {
        // The steering of packets is created at the start, with privileges that only the start needs.
        next.routes
            .iter_mut()
            .for_each(|route| route.rest_after = None);
        waits.push("rest_after");
    }
    if !waits.is_empty() {
        // The plan was made with values that wait.
        plan = config::plan_with(&next, &Machine::read(), plan.material)
            .unwrap_or_else(|_| now_plan.clone());
    }
    ReloadPlan {
        config: next,
        plan,
        waits_for_restart: waits.into_iter().map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_config::Section;
    use std::fs::Permissions;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    fn loaded(process: &str, route: &str) -> Loaded {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let route = format!("[[route]]\nlisten = '127.0.0.1:5001'\nself_signed = 'x'\n{route}\n");
        write!(file, "{process}\n{route}").expect("written");
        let machine = Machine::read();
        let loaded = config::load(Some(file.path()), Section::Route, &[], &machine);
        loaded
            .unwrap_or_else(|mistakes| panic!("{mistakes}"))
            .settled()
    }

    /// What main needs for it is created at the start, with privileges that it has only then.
    #[test]
    fn connections_rest_after_a_reload_only_if_they_could_at_the_start() {
        let now = loaded("", "to = 'echo:'");
        for rests in [false, true] {
            let next = loaded("", "to = 'echo:'\nrest_after = '1m'");
            let fixed = FixedAtStart {
                connections_max: u64::MAX,
                has_sessions: true,
                rests,
                is_nobody: false,
            };
            let plan = plan(&now.config, &now.plan, next, &fixed);
            assert_eq!(plan.config.rests(), rests);
            let waits: &[&str] = if rests { &[] } else { &["rest_after"] };
            assert_eq!(plan.waits_for_restart, waits);
        }
    }

    /// DNS may fail while a reload is needed for another reason, such as a certificate.
    #[test]
    fn a_name_that_cannot_be_looked_up_keeps_its_addresses_wherever_it_stands() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("dormouse.toml");
        let text = "[[route]]\nlisten = 'localhost:5001'\nself_signed = 'x'\nto = 'localhost:5002'\n\
             [[originate]]\nlisten = 'localhost:5003'\nto = 'localhost:5004'\ninsecure = true\n";
        std::fs::write(&file, text).expect("written");
        let source = Source {
            file: Some(file),
            section: Section::Route,
            flags: Vec::new(),
        };
        let at_start = load::load(&source, &Occasion::start()).expect("a configuration");
        let Ready {
            loaded,
            material,
            watch,
            ..
        } = at_start;
        let names = 5001..=5004;
        let edition = Edition::new(1, 0, loaded.config, loaded.plan, material);
        let failed = || Err("Temporary failure in name resolution".to_owned());
        let names = names.map(|port| (format!("localhost:{port}"), failed()));
        let reloaded = load(&source, &names.collect(), &edition, &[], &watch);
        let Reloaded::Complete(ready) = reloaded.expect("addresses are known") else {
            panic!("all names have been looked up");
        };
        assert!(ready.loaded.config.routes == edition.config.routes);
        assert!(ready.loaded.config.originate == edition.config.originate);
        // The file has changed during the lookup, and has names that were not looked up.
        let some = (5001..=5002).map(|port| (format!("localhost:{port}"), failed()));
        let reloaded = load(&source, &some.collect(), &edition, &[], &watch);
        let Reloaded::LookUp(all) = reloaded.expect("names are unknown") else {
            panic!("two names have not been looked up");
        };
        assert_eq!(all.len(), 4, "{all:?}");
    }

    /// Workers that run as nobody cannot become root again, which they would be after a start with such a backend.
    #[test]
    fn a_socket_that_nobody_cannot_reach_needs_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode))
                .expect("a file of the test");
        };
        open(folder.path(), 0o755);
        let path = folder.path().join("backend.sock");
        let _backend = UnixListener::bind(&path).expect("a socket");
        let now = loaded("", "to = 'echo:'");
        let waits = |mode| {
            open(&path, mode);
            let next = loaded("", &format!("to = 'unix:{}'", path.display()));
            let fixed = FixedAtStart {
                connections_max: u64::MAX,
                has_sessions: true,
                rests: false,
                is_nobody: true,
            };
            plan(&now.config, &now.plan, next, &fixed).waits_for_restart
        };
        assert_eq!(waits(0o660), ["user"]);
        assert!(waits(0o666).is_empty());
    }

    /// What a program with 1,000 slots does with these options.
    fn plan_with(now: &Loaded, options: &str) -> ReloadPlan {
        let fixed = FixedAtStart {
            connections_max: 1_000,
            has_sessions: true,
            rests: false,
            is_nobody: false,
        };
        let next = loaded(options, "to = 'echo:'");
        plan(&now.config, &now.plan, next, &fixed)
    }

    #[test]
    fn an_option_that_waits_is_named_by_each_reload() {
        let mut now = loaded("max_connections = 1000", "to = 'echo:'");
        for _ in 0..2 {
            let next = plan_with(&now, "max_connections = 2000");
            assert_eq!(next.waits_for_restart, ["max_connections"]);
            assert_eq!(next.plan.connections_max, 1_000);
            (now.config, now.plan) = (next.config, next.plan);
        }
        let next = plan_with(&now, "max_connections = 500");
        assert!(next.waits_for_restart.is_empty());
        assert_eq!(next.plan.connections_max, 500);
    }

    #[test]
    fn the_plan_has_no_values_that_wait() {
        let options = "max_connections = 1000\npending_memory = ";
        let now = loaded(&format!("{options}'64 MiB'"), "to = 'echo:'");
        let next = plan_with(&now, &format!("{options}'32 MiB'"));
        assert_eq!(next.waits_for_restart, ["pending_memory"]);
        assert_eq!(next.plan.pending_memory, now.plan.pending_memory);
    }

    #[test]
    fn a_plan_without_values_that_wait_counts_the_certificates() {
        let options = "memory = '512 MiB'\npending_memory = ";
        let now = loaded(&format!("{options}'64 MiB'"), "to = 'echo:'");
        let mut next = loaded(&format!("{options}'32 MiB'"), "to = 'echo:'");
        next.plan.material = 1 << 20;
        let fixed = FixedAtStart {
            connections_max: u64::MAX,
            has_sessions: true,
            rests: false,
            is_nobody: false,
        };
        let plan = plan(&now.config, &now.plan, next, &fixed).plan;
        assert!(plan.costs.iter().any(|cost| cost.what == "certificates"));
    }

    #[test]
    fn a_plan_applies_what_can_change_and_keeps_the_rest() {
        let now = loaded("workers = 1\nidle_timeout = '60s'", "to = 'echo:'");
        let next = loaded(
            "workers = 2\nidle_timeout = '90s'\nbytes_per_client = '1MiB'",
            "to = '127.0.0.1:1'",
        );
        let fixed = FixedAtStart {
            connections_max: u64::MAX,
            has_sessions: false,
            rests: false,
            is_nobody: false,
        };
        let (routes, idle) = (
            next.config.routes.clone(),
            next.config.timeouts.idle_timeout,
        );
        let ReloadPlan {
            config,
            plan,
            waits_for_restart,
        } = plan(&now.config, &now.plan, next, &fixed);
        assert_eq!(plan.workers, 1, "the plan is for the running workers");
        assert_eq!(waits_for_restart, ["workers"]);
        assert!(config.process.workers == now.config.process.workers);
        assert!(config.timeouts.idle_timeout == idle && idle != now.config.timeouts.idle_timeout);
        assert!(config.routes == routes && config.limits.bytes_per_client.is_some());
    }
}
