//! Checks of the program's options.

use crate::checks::common::not_whole;
use crate::checks::listeners::{self, Listener, metrics_overlap};
use crate::checks::unused;
use crate::config::Config;
use crate::input::locations::Locations;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::options::{Originate, Route};
use crate::values::admin::Admin;
use crate::values::choices::ResolveNames;
use crate::values::endpoints::{Backend, PlainListen};
use crate::values::metrics_address::MetricsAddress;
use crate::values::units::show_duration;

/// Reports mistakes among the program's options.
pub(crate) fn check(
    config: &Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    steps(config, locations, mistakes);
    admin(config, locations, mistakes);
    metrics(config, locations, mistakes);
    amounts(config, locations, mistakes);
    whole_seconds(config, locations, mistakes);
    keepalive(config, locations, mistakes);
    bounds(config, locations, mistakes);
    unused::of_program(config, locations, mistakes);
}

/// Refuses a configuration with steps that are still to take.
fn steps(config: &Config, locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    for (n, step) in config.process.todo.iter().enumerate() {
        let help = "do it, or decide that it is not needed; then remove this item of `todo`";
        mistakes.error(
            &locations.item_of_option("todo", n),
            Problem::new(format!("still to do: {step}")).help(help),
        );
    }
}

fn admin(config: &Config, locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    let location = locations.option("admin");
    match &config.process.admin {
        Admin::Auto | Admin::None | Admin::Loopback(_) => {}
        Admin::Unix(path) => {
            let is_it = |backend: &Backend| matches!(backend, Backend::Unix(to) if to == path);
            let backend = |route: &Route| route.to.iter().any(|to| is_it(&to.backend));
            let listens =
                |listen: &PlainListen| matches!(listen, PlainListen::Unix(at) if at == path);
            let originate = |one: &Originate| one.listen.iter().any(listens);
            let whose = if config.routes.iter().any(backend) {
                "a backend"
            } else if config.originate.iter().any(originate) {
                "an origination"
            } else {
                return;
            };
            let problem = Problem::new(format!("this is also the unix socket of {whose}"));
            mistakes.error(&location, problem.help("give it a path of its own"));
        }
    }
}

fn metrics(config: &Config, locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    let Some(MetricsAddress(address)) = config.process.metrics else {
        return;
    };
    let others = listeners::all(config, locations);
    let overlaps = |other: &&Listener| metrics_overlap(address, other.address);
    if let Some(other) = others.iter().find(overlaps) {
        let line = mistakes.line_in_words(&other.location);
        mistakes.error(
            &locations.first_of(&["metrics", "admin"]),
            Problem::new(format!("{} is already a listener{line}", other.address))
                .help("give each an address of its own"),
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
                "pending_per_connection ({}) is larger than pending_memory ({})",
                limits.pending_per_connection, pending
            ))
            .help(format!(
                "raise pending_memory to at least {}, or lower pending_per_connection",
                limits.pending_per_connection
            )),
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
                "ticket_lifetime ({}) is longer than ticket_rotation ({})",
                show_duration(lifetime),
                show_duration(rotation)
            ))
            .help("a replaced key opens tickets for only one more rotation: make ticket_rotation at least ticket_lifetime"),
        );
    }
}

/// Reports fractions of a second where the kernel or the protocol counts seconds.
fn whole_seconds(config: &Config, locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    let sockets = &config.sockets;
    let counted = [
        ("keepalive_idle", sockets.keepalive_idle),
        ("keepalive_interval", Some(sockets.keepalive_interval)),
        ("ticket_lifetime", Some(config.tickets.ticket_lifetime)),
    ];
    for (name, duration) in counted {
        if duration.is_some_and(|duration| duration.subsec_nanos() != 0) {
            mistakes.error(&locations.option(name), not_whole(name));
        }
    }
}

/// Reports a `user_timeout` that is shorter than the keepalive probes take. With TCP_USER_TIMEOUT
/// the kernel gives up a peer at the first probe after that time, however few probes were sent.
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
    let fitting = idle + sockets.keepalive_interval * sockets.keepalive_count;
    if user < fitting {
        mistakes.warning(
            &locations.first_of(&["user_timeout", "keepalive_idle", "keepalive_interval", "keepalive_count"]),
            Problem::new(format!(
                "user_timeout ({}) ends before the keepalive probes do ({})",
                show_duration(user),
                show_duration(fitting)
            ))
            .help("a single lost packet could end a connection at rest: raise user_timeout or lower keepalive_idle"),
        );
    }
}

/// Reports contradictions among rate limits and among the bounds of TTLs.
fn bounds(config: &Config, locations: &Locations<'_>, mistakes: &mut MistakeCollector<'_>) {
    let limits = &config.limits;
    let sound = locations.sound(&["bytes_per_client", "max_bytes_per_second"]);
    let both = limits.bytes_per_client.zip(limits.max_bytes_per_second);
    if let Some((each, all)) = both.filter(|(each, all)| sound && each > all) {
        mistakes.warning(
            &locations.first_of(&["bytes_per_client", "max_bytes_per_second"]),
            Problem::new(format!(
                "bytes_per_client ({each}) is larger than max_bytes_per_second ({all})"
            ))
            .help("lower bytes_per_client, so that one client cannot use up what all share"),
        );
    }
    let process = &config.process;
    let is_lazy = process.resolve == ResolveNames::Lazy;
    if is_lazy && process.resolve_every.is_none() && locations.sound(&["resolve", "resolve_every"])
    {
        let what = "with resolve_every = \"off\", an unresolved name is not looked up again, and so is down until a reload";
        let help = "remove resolve_every, or set resolve = \"required\"";
        let location = locations.first_of(&["resolve", "resolve_every"]);
        mistakes.error(&location, Problem::new(what).help(help));
    }
    let (least, most) = (process.resolve_ttl_min, process.resolve_ttl_max);
    if locations.sound(&["resolve_ttl_min", "resolve_ttl_max"]) && least > most {
        mistakes.error(
            &locations.first_of(&["resolve_ttl_min", "resolve_ttl_max"]),
            Problem::new(format!(
                "resolve_ttl_min ({}) is larger than resolve_ttl_max ({})",
                show_duration(least),
                show_duration(most)
            )),
        );
    }
}
