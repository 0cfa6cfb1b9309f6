//! Options that have no effect, because another option is missing or off.

use crate::config::Config;
use crate::input::locations::{Locations, SectionRef};
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::location::Location;
use crate::mistakes::problem::Problem;
use crate::options::{Log, Originate, Route, Tickets};
use crate::values::choices::{LogLevel, Recheck};
use crate::values::key_source::KeySource;
use crate::values::log_target::{LogDestination, LogTarget};
use crate::values::probe::Probe;

/// Options that depend on others.
struct Dependent {
    options: &'static [&'static str],
    /// The options that decide.
    depends_on: &'static [&'static str],
    is_used: bool,
    /// The end of the sentence "`option` has no effect".
    why: &'static str,
    help: &'static str,
}

impl Dependent {
    /// Reports the written options that are not used.
    fn report(
        &self,
        is_sound: bool,
        location: impl Fn(&str) -> Option<Location>,
        mistakes: &mut MistakeCollector<'_>,
    ) {
        for name in self.options.iter().filter(|_| is_sound && !self.is_used) {
            if let Some(location) = location(name) {
                let problem = Problem::new(format!("`{name}` has no effect{}", self.why));
                mistakes.warning(&location, problem.help(self.help));
            }
        }
    }
}

/// Reports options of the program.
pub(crate) fn of_program(
    config: &Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    let (log, sockets) = (&config.log, &config.sockets);
    let all = [
        Dependent {
            options: &[
                "connection_log_begin",
                "connection_log_format",
                "connection_log_one_in",
            ],
            depends_on: &["connection_log"],
            is_used: log.connection_log != LogTarget::Off,
            why: " without `connection_log`",
            help: "add connection_log = \"/var/log/dormouse.log\"",
        },
        Dependent {
            options: &["syslog_facility"],
            depends_on: &["log_to", "connection_log"],
            is_used: matches!(log.log_to, LogDestination::Syslog(_))
                || matches!(log.connection_log, LogTarget::Syslog(_)),
            why: ": no log goes to syslog",
            help: "add log_to = \"syslog\" or connection_log = \"syslog\"",
        },
        Dependent {
            options: &["log_handshakes"],
            depends_on: &["log_level"],
            is_used: !log.log_handshakes || log.log_level >= LogLevel::Info,
            why: ": these lines have the level info",
            help: "set log_level = \"info\"",
        },
        Dependent {
            options: &["redirect_status", "redirect_port"],
            depends_on: &["redirect"],
            is_used: !config.redirect.redirect.is_empty(),
            why: " without `redirect`",
            help: "add redirect = \":80\"",
        },
        of_recheck(config),
        Dependent {
            options: &["group"],
            depends_on: &["user"],
            is_used: config.process.user.is_some(),
            why: " without `user`",
            help: "add user = \"dormouse\"",
        },
        Dependent {
            options: &["resolve_ttl_min", "resolve_ttl_max"],
            depends_on: &["resolve_every"],
            is_used: config.process.resolve_every.is_some(),
            why: ": with resolve_every = \"off\", names are not looked up again",
            help: "remove one of the two",
        },
        Dependent {
            options: &["keepalive_interval", "keepalive_count"],
            depends_on: &["keepalive_idle"],
            is_used: sockets.keepalive_idle.is_some(),
            why: ": keepalive_idle = \"off\" turns probes off",
            help: "remove one of the two",
        },
    ];
    let others = of_limits(config)
        .into_iter()
        .chain(of_tickets(&config.tickets));
    for one in all.into_iter().chain(others) {
        let location =
            |name: &str| Some(locations.option(name)).filter(|at| *at != Location::Whole);
        one.report(locations.sound(one.depends_on), location, mistakes);
    }
}

/// `recheck` judges an established connection by what is known of it.
fn of_recheck(config: &Config) -> Dependent {
    Dependent {
        options: &["recheck"],
        depends_on: &["connection_log", "connection_log_one_in"],
        is_used: config.process.recheck == Recheck::New
            || !config
                .routes
                .iter()
                .any(|route| is_rechecked_in_part(route, &config.log)),
        why: " on some clients without `connection_log`, and a line for each connection: only its entries know client certificates, and clients behind a proxy",
        help: "add connection_log = \"/var/log/dormouse.log\", without `connection_log_one_in`",
    }
}

/// Whether a rule of this route is about something that the connection log alone knows of an established connection, and
/// not all of the route's connections are in it.
fn is_rechecked_in_part(route: &Route, log: &Log) -> bool {
    let by_address = !route.allow.is_empty() || !route.deny.is_empty();
    let by_certificate = !route.client_allow.is_empty() || !route.client_crl.is_empty();
    let needs_log = by_certificate || (by_address && !route.accept_proxy_from.is_empty());
    let one_in = (route.route_connection_log_one_in).or(log.connection_log_one_in);
    needs_log && (log.connection_log == LogTarget::Off || one_in != 1)
}

/// The same for limits of connections and of clients.
fn of_limits(config: &Config) -> [Dependent; 3] {
    [
        Dependent {
            options: &["max_awake"],
            depends_on: &[],
            is_used: config.rests(),
            why: ": no route has `rest_after`, so every connection has its sockets",
            help: "add rest_after = \"60s\" to a route, or set max_connections",
        },
        Dependent {
            options: &["burst_per_client"],
            depends_on: &["bytes_per_client"],
            is_used: config.limits.bytes_per_client.is_some(),
            why: " without `bytes_per_client`",
            help: "add bytes_per_client = \"10 MiB\", in bytes per second",
        },
        Dependent {
            options: &[
                "connections_per_client",
                "handshakes_per_client",
                "bytes_per_client",
                "max_bytes_per_second",
            ],
            depends_on: &[],
            is_used: !config.routes.is_empty(),
            why: ": it limits clients of routes, and there is no [[route]]",
            help: "limit originations with max_connections",
        },
    ]
}

/// The same for session tickets.
fn of_tickets(tickets: &Tickets) -> [Dependent; 4] {
    let is_stored = |source: &KeySource| matches!(source, KeySource::Store(store) if store.tls);
    [
        Dependent {
            options: &["ticket_store_ca", "ticket_store_certificates"],
            depends_on: &["ticket_keys"],
            is_used: tickets.ticket_keys.iter().any(is_stored),
            why: " without ticket_keys = \"rediss://…\"",
            help: "remove it, or use a store with TLS",
        },
        Dependent {
            options: &["ticket_keys"],
            depends_on: &["session_cache"],
            is_used: tickets.session_cache.is_none()
                || tickets.tickets == 0
                || tickets.ticket_keys.contains(&KeySource::Memory),
            why: " with `session_cache`: sessions stay on this machine, and end with the program",
            help: "remove one of the two",
        },
        Dependent {
            options: &["ticket_secret_file"],
            depends_on: &["ticket_keys"],
            is_used: !tickets.ticket_keys.contains(&KeySource::Memory),
            why: ": ticket keys are kept in memory only",
            help: "add ticket_keys = \"file:PATH\", so that tickets survive a restart",
        },
        Dependent {
            options: &[
                "ticket_lifetime",
                "ticket_rotation",
                "session_cache",
                "ticket_keys",
            ],
            depends_on: &["tickets"],
            is_used: tickets.tickets > 0,
            why: ": tickets = 0 turns resumption off",
            help: "remove one of the two",
        },
    ]
}

/// Reports options of a route.
pub(crate) fn of_route(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    let all = [
        Dependent {
            options: &[
                "backend_ca",
                "backend_ids",
                "backend_crl",
                "backend_ocsp",
                "backend_name",
                "backend_certificates",
                "backend_alpn",
                "backend_truncation",
            ],
            depends_on: &["backend_tls", "pass_through"],
            // With `pass_through` they are mistakes.
            is_used: route.backend_tls || route.pass_through,
            why: " without `backend_tls`",
            help: "add backend_tls = true",
        },
        Dependent {
            options: &["check_every", "check_timeout", "check_rise", "check_fall"],
            depends_on: &["check"],
            is_used: route.check != Probe::Off,
            why: " without `check`",
            help: "add check = \"connect\"",
        },
        Dependent {
            options: &["check_status"],
            depends_on: &["check"],
            is_used: matches!(route.check, Probe::Get(_)),
            why: " without a check over HTTP",
            help: "set check = \"GET /\"",
        },
        Dependent {
            options: &[
                "balance",
                "backend_failures",
                "backend_pause",
                "slow_start",
                "backend_down",
                "backend_connect",
                "check",
                "source_addresses",
                "half_close",
            ],
            depends_on: &["to"],
            is_used: !route.is_echo(),
            why: ": `echo:` answers by itself, and there is no backend",
            help: "give `to` the address of a backend, or remove this",
        },
    ];
    in_section(&all, at, mistakes);
}

/// Reports options of an origination.
pub(crate) fn of_origination(
    originate: &Originate,
    at: SectionRef<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    let of_sessions = Dependent {
        options: &["resume_age", "ticket_wait", "session_file"],
        depends_on: &["resume_uses"],
        is_used: originate.resume_uses > 0,
        why: ": resume_uses = 0 turns resumption off",
        help: "remove one of the two",
    };
    in_section(&[of_sessions], at, mistakes);
}

fn in_section(all: &[Dependent], at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    for one in all {
        let location = |name: &str| at.has(name).then(|| at.location(name, None));
        one.report(at.sound(one.depends_on), location, mistakes);
    }
}
