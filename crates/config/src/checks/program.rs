//! What must fit together among the options of the program.

use crate::checks::listeners::overlap;
use crate::config::Config;
use crate::input::location::Location;
use crate::input::locations::Locations;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::options::Route;
use crate::values::address::UNIX_PATH_MAX;
use crate::values::admin::Admin;
use crate::values::endpoints::Backend;
use crate::values::log_target::LogTarget;
use crate::values::metrics_address::MetricsAddress;
use crate::values::units::show_duration;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

/// Reports what does not fit.
pub(crate) fn check(
    config: &Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    admin(config, locations, mistakes);
    metrics(config, locations, mistakes);
    amounts(config, locations, mistakes);
    whole_seconds(config, locations, mistakes);
    keepalive(config, locations, mistakes);
    bounds(config, locations, mistakes);
    redirect(config, locations, mistakes);
    connection_log(config, locations, mistakes);
}

fn connection_log(config: &Config, locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    let alone = locations.first_of(&["connection_log_format", "connection_log_one_in"]);
    if config.log.connection_log == LogTarget::Off
        && locations.sound(&["connection_log"])
        && alone != Location::Whole
    {
        let problem = Problem::new("this has no effect: there is no connection log");
        let help = "add connection_log = \"/var/log/dormouse.log\"";
        mistakes.warning(&alone, problem.help(help));
    }
}

fn redirect(config: &Config, locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    let alone = locations.first_of(&["redirect_status", "redirect_port"]);
    if config.redirect.redirect.is_empty()
        && locations.sound(&["redirect"])
        && alone != Location::Whole
    {
        let problem = Problem::new("this has no effect: `redirect` has no address");
        mistakes.warning(&alone, problem.help("add redirect = \":80\""));
    }
}

fn admin(config: &Config, locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    let location = locations.option("admin");
    match &config.process.admin {
        Admin::Auto | Admin::None | Admin::Loopback(_) => {}
        Admin::Unix(path) => {
            let length = path.as_os_str().as_bytes().len();
            if length > UNIX_PATH_MAX {
                mistakes.error(
                    &location,
                    Problem::new(format!(
                        "the path of this unix socket is {length} bytes long"
                    ))
                    .label(format!("at most {UNIX_PATH_MAX} bytes"))
                    .help("the kernel takes no longer one"),
                );
            }
            let is_it = |backend: &Backend| matches!(backend, Backend::Unix(to) if to == path);
            let backend = |route: &Route| route.to.iter().any(|to| is_it(&to.backend));
            if config.routes.iter().any(backend) {
                mistakes.error(
                    &location,
                    Problem::new("this is also the socket of a backend")
                        .help("give it a path of its own"),
                );
            }
        }
    }
}

fn metrics(config: &Config, locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    let Some(MetricsAddress(address)) = config.process.metrics else {
        return;
    };
    let listens = |route: &Route| route.listen.iter().any(|l| overlap(l.address, address));
    if config.routes.iter().any(listens) {
        mistakes.error(
            &locations.first_of(&["metrics", "admin"]),
            Problem::new("a route listens on this address").help("give each an address of its own"),
        );
    }
}

fn amounts(config: &Config, locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    let limits = &config.limits;
    let comparable = locations.sound(&["pending_per_connection", "pending_memory"]);
    let pending = limits.pending_memory.given();
    if let Some(pending) = pending.filter(|all| comparable && limits.pending_per_connection > *all)
    {
        mistakes.error(
            &locations.first_of(&["pending_per_connection", "pending_memory"]),
            Problem::new(format!(
                "pending_per_connection ({}) is more than pending_memory ({}), of which it is a part",
                limits.pending_per_connection, pending
            ))
            .help(format!("make pending_memory at least {}, or this less", limits.pending_per_connection)),
        );
    }
    let (lifetime, rotation) = (
        config.tickets.ticket_lifetime,
        config.tickets.ticket_rotation,
    );
    if locations.sound(&["ticket_lifetime", "ticket_rotation"]) && lifetime > rotation {
        mistakes.error(
            &locations.first_of(&["ticket_lifetime", "ticket_rotation"]),
            Problem::new(format!(
                "tickets would live {} but their key changes every {}",
                show_duration(lifetime),
                show_duration(rotation)
            ))
            .help("a key opens tickets for one more rotation after it was replaced: make ticket_rotation at least ticket_lifetime"),
        );
    }
}

/// The kernel and the protocol count these in seconds.
fn whole_seconds(config: &Config, locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    let sockets = &config.sockets;
    let counted = [
        ("keepalive_idle", sockets.keepalive_idle),
        ("keepalive_interval", Some(sockets.keepalive_interval)),
        ("ticket_lifetime", Some(config.tickets.ticket_lifetime)),
    ];
    for (name, duration) in counted {
        if duration.is_some_and(|duration| duration.subsec_nanos() != 0) {
            mistakes.error(
                &locations.option(name),
                Problem::new(format!("`{name}` is counted in whole seconds"))
                    .help("round it to the next second"),
            );
        }
    }
}

/// With TCP_USER_TIMEOUT the kernel takes a peer for gone at the first probe after
/// that time, however few probes were sent.
fn keepalive(config: &Config, locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    let sockets = &config.sockets;
    let (Some(idle), Some(user)) = (sockets.keepalive_idle, sockets.user_timeout) else {
        return;
    };
    if !locations.sound(&[
        "user_timeout",
        "keepalive_idle",
        "keepalive_interval",
        "keepalive_count",
    ]) {
        return;
    }
    let probes = sockets.keepalive_interval * sockets.keepalive_count;
    if user < idle + probes {
        let fitting = idle.checked_add(probes).unwrap_or(Duration::MAX);
        mistakes.warning(
            &locations.first_of(&["user_timeout", "keepalive_idle", "keepalive_interval", "keepalive_count"]),
            Problem::new(format!(
                "user_timeout ({}) ends before the keepalive probes do ({})",
                show_duration(user),
                show_duration(fitting)
            ))
            .help("a resting connection could be lost with a single lost packet: raise user_timeout or lower keepalive_idle"),
        );
    }
}

/// Bounds which belong together: how fast bytes may pass, and how long names hold.
fn bounds(config: &Config, locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    let limits = &config.limits;
    if limits.burst_per_client.given().is_some()
        && limits.bytes_per_client.is_none()
        && locations.sound(&["bytes_per_client", "burst_per_client"])
    {
        mistakes.warning(
            &locations.first_of(&["burst_per_client"]),
            Problem::new("`burst_per_client` is of no use: clients have no limit for bytes")
                .help("add bytes_per_client = \"10 MiB\", in bytes per second"),
        );
    }
    let sound = locations.sound(&["bytes_per_client", "max_bytes_per_second"]);
    let both = limits.bytes_per_client.zip(limits.max_bytes_per_second);
    if let Some((each, all)) = both.filter(|(each, all)| sound && each > all) {
        mistakes.warning(
            &locations.first_of(&["bytes_per_client", "max_bytes_per_second"]),
            Problem::new(format!(
                "one client may have more ({each}) than all together ({all})"
            ))
            .help("lower bytes_per_client, so that one client leaves something for others"),
        );
    }
    let process = &config.process;
    let (least, most) = (process.resolve_ttl_min, process.resolve_ttl_max);
    if locations.sound(&["resolve_ttl_min", "resolve_ttl_max"]) && least > most {
        mistakes.error(
            &locations.first_of(&["resolve_ttl_min", "resolve_ttl_max"]),
            Problem::new(format!(
                "the least lifetime of a name ({}) is more than the greatest ({})",
                show_duration(least),
                show_duration(most)
            )),
        );
    }
}
