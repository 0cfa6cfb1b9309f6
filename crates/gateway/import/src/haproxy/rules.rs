//! Networks that may connect, and other rules about connections.

use super::checks::is_check;
use super::condition::{
    Acls, Condition, Test, Tests, condition, is_met, tests_counter, tests_source,
};
use super::config::Config;
use super::plain::is_redirect;
use super::server;
use super::syntax::{HaproxySection, Line};
use crate::advice::{
    ACCEPTED_BEFORE, CLIENT_NETWORKS, LOG, NO_QUIC, PROXY_NETWORKS, REFUSALS, REQUESTS, RULES,
};
use crate::networks::Networks;
use crate::origin::Origins;
use crate::section::{Fate, Section};
use crate::toml::quoted_list;

/// Networks of rules, with their lines.
#[derive(Default)]
struct Rules {
    networks: Vec<String>,
    from: Origins,
}

impl Rules {
    fn add(&mut self, networks: &[String], from: &Origins) {
        self.networks.extend_from_slice(networks);
        self.from.add(from);
    }

    fn append(&mut self, other: &mut Rules) {
        self.networks.append(&mut other.networks);
        self.from.add(std::mem::take(&mut other.from));
    }
}

/// Converts `tcp-request connection` with `src` to networks. In HAProxy the first matching rule
/// decides.
pub(super) fn networks(part: &HaproxySection, config: &Config, section: &mut Section) {
    let (mut allow, mut deny, mut proxies) = (Rules::default(), Rules::default(), Rules::default());
    let (mut accepted, mut accepted_before) = (Rules::default(), Networks::default());
    let mut accepts_tls = false;
    let acls = Acls::of(part, &config.files);
    // Whether the rules so far decide for all clients.
    let mut is_over = false;
    for line in part.all("tcp-request") {
        let tests = condition(line, &acls);
        let from = tests.from.clone();
        if line.word(1) != "connection" {
            if !about_tls(line, &tests, &mut accepts_tls, section) {
                inspection(line, &tests, section);
            }
            continue;
        }
        if is_over {
            section.without_effect(from, "an earlier rule is for all clients");
            continue;
        }
        let what = line.word(2);
        is_over = what == "accept" && tests.ways.is_none();
        let rejects = rejects(line);
        let only = match tests.ways.as_deref() {
            Some([way]) => way.first().filter(|_| way.len() == 1),
            _ => None,
        };
        match (what, only) {
            (_, Some(Test::Source(networks))) if networks.len() > NETWORKS_MAX => {
                section.step(from, CLIENT_NETWORKS);
            }
            ("expect-proxy", Some(Test::Source(networks))) => proxies.add(networks, &from),
            ("expect-proxy", _) => section.step(from, PROXY_NETWORKS),
            ("accept", Some(Test::Source(networks))) => {
                networks.iter().for_each(|one| accepted_before.add(one));
                accepted.add(networks, &from);
            }
            (_, None) if rejects && tests.ways.is_none() && !accepted.networks.is_empty() => {
                allow.append(&mut accepted);
                allow.from.add(from);
            }
            (_, Some(Test::Source(networks))) if rejects => {
                if networks.iter().any(|one| accepted_before.overlap(one)) {
                    section.step(&from, ACCEPTED_BEFORE);
                }
                deny.add(networks, &from);
            }
            (_, Some(Test::Not(test))) if rejects && allow.networks.is_empty() => match &**test {
                Test::Source(networks) => {
                    allow.append(&mut accepted);
                    allow.add(networks, &from);
                }
                _ => rate(line, &tests, section),
            },
            // Without the rule, clients that were refused would be accepted.
            _ if rejects && tests.ways.as_ref().is_none_or(tests_source) => {
                section.step(from, CLIENT_NETWORKS);
            }
            _ => rate(line, &tests, section),
        }
    }
    if !accepted.from.is_empty() {
        section.without_effect(accepted.from, "clients of other networks are accepted, too");
    }
    for (name, rules) in [
        ("allow", allow),
        ("deny", deny),
        ("accept_proxy_from", proxies),
    ] {
        if !rules.networks.is_empty() {
            section.set(name, quoted_list(&rules.networks), rules.from);
        }
    }
}

/// Handles a rule that only tests for TLS, which needs none: Dormouse reads the ClientHello anyway. Returns `false` if
/// it is another rule.
fn about_tls(line: &Line, tests: &Tests, accepts_tls: &mut bool, section: &mut Section) -> bool {
    let why = match (line.word(1), line.word(2), is_met(tests.ways.as_ref())) {
        ("content", "accept" | "reject", Some(false)) => "it is about clients without TLS",
        ("content", "accept", Some(true)) => {
            *accepts_tls = true;
            "the ClientHello is read in any case"
        }
        // No client with TLS gets here.
        ("content", "reject", Some(true)) if *accepts_tls => "it is about clients without TLS",
        _ => return false,
    };
    section.without_effect(&tests.from, why);
    true
}

/// Maximum number of networks in a list of the configuration.
const NETWORKS_MAX: usize = 1000;

/// A rule of a later phase (`content`, `session`).
fn inspection(line: &Line, tests: &Tests, section: &mut Section) {
    if line.word(1) == "inspect-delay" {
        return section.without_effect(
            line.origin,
            "the ClientHello is read in any case (`handshake_timeout`)",
        );
    }
    if rejects(line) && tests.ways.as_ref().is_some_and(tests_source) {
        return section.step(&tests.from, CLIENT_NETWORKS);
    }
    rate(line, tests, section);
}

fn rejects(line: &Line) -> bool {
    matches!(line.word(2), "reject" | "silent-drop")
}

/// Leaves out rules about rates, or about facts that Dormouse does not test. Clients that the latter
/// refused would be accepted.
fn rate(line: &Line, tests: &Tests, section: &mut Section) {
    let from = &tests.from;
    let counts = |ways: &Condition, ends: &[&str]| tests_counter(ways, ends);
    let is_about = |ends: &[&str]| tests.ways.as_ref().is_some_and(|ways| counts(ways, ends));
    let what = line.word(2);
    if rejects(line) {
        let why = if is_about(&["conn_cur"]) {
            "set `connections_per_client`"
        } else if is_about(&["_rate", "conn_cur"]) {
            "set `handshakes_per_client`, which counts per minute"
        } else {
            REFUSALS
        };
        section.step(from, why);
    } else if what.starts_with("track-sc") {
        section.left_out(
            from,
            "clients are counted by `connections_per_client` and `handshakes_per_client`",
        );
    } else if HARMLESS.iter().any(|start| what.starts_with(start)) {
        section.left_out(from, RULES);
    } else {
        section.step(
            from,
            "Dormouse neither changes connections nor runs code for them: find out what it did",
        );
    }
}

/// Beginnings of actions that neither refuse a connection nor change it.
const HARMLESS: [&str; 12] = [
    "accept",
    "capture",
    "do-log",
    "sc-",
    "set-bandwidth-limit",
    "set-bc-",
    "set-fc-",
    "set-log-level",
    "set-nice",
    "set-priority",
    "set-var",
    "unset-var",
];

const OWN: &str = "names, logs and memory of HAProxy";
const DONE_ANYWAY: &str = "Dormouse does this anyway";

/// Says what becomes of lines without an equivalent, or with a different one. `taken` have been read already.
pub(super) fn rest(part: &HaproxySection, taken: &Origins, section: &mut Section) {
    for line in part.lines.iter().filter(|line| !taken.has(line.origin)) {
        if let Some((fate, why)) = fate_of(line, part.is_http()) {
            section.say(fate, line.origin, why);
        }
    }
}

/// The same for a backend.
pub(super) fn rest_of_backend(backend: &HaproxySection, config: &Config, section: &mut Section) {
    let mut taken = Origins::default();
    let acls = Acls::of(backend, &config.files);
    for line in backend.all("tcp-request") {
        let tests = condition(line, &acls);
        inspection(line, &tests, section);
        taken.add(tests.from);
    }
    if backend.is_disabled() {
        taken.add(
            backend
                .all("disabled")
                .map(|line| line.origin)
                .collect::<Origins>(),
        );
    }
    rest(backend, &taken, section);
}

const FORWARDS: &str = "converted as a plain forward. Beyond that, HAProxy parsed each request: it refused malformed \
    ones (400), and answered 502, 503 or 504 itself. Here the backend gets what the client sends";

const OWN_LINES: [&str; 14] = [
    "description",
    "error-log-format",
    "guid",
    "hash-balance-factor",
    "hash-preserve-affinity",
    "hash-type",
    "id",
    "load-server-state-from-file",
    "log-format",
    "log-format-sd",
    "log-steps",
    "log-tag",
    "max-session-srv-conns",
    "server-state-file-name",
];

const ABOUT_REQUESTS: [&str; 13] = [
    "capture",
    "compression",
    "cookie",
    "declare",
    "http-reuse",
    "http-send-name-header",
    "max-keep-alive-queue",
    "monitor-net",
    "monitor-uri",
    "stats",
    "unique-id-format",
    "unique-id-header",
    "use-fcgi-app",
];

/// Returns what becomes of a line that no option takes. `None`: another function takes it, or nobody knows it.
pub(super) fn fate_of(line: &Line, is_http: bool) -> Option<(Fate, &'static str)> {
    let left_out = |why| Some((Fate::LeftOut, why));
    let without = |why| Some((Fate::WithoutEffect, why));
    let to_do = |why| Some((Fate::ToDo, why));
    match line.word(0) {
        "bind" | "server" | "server-template" | "default-server" | "balance" | "timeout"
        | "tcp-check" | "http-check" | "use_backend" | "default_backend" | "tcp-request"
        | "ssl-f-use" | "dispatch" => None,
        "clitimeout" | "contimeout" | "srvtimeout" => None,
        "disabled" => without("a later line replaces it"),
        "enabled" => without("this is the default here, too"),
        "acl" => without("no rule that is converted names it"),
        "mode" if is_http && line.word(1) == "http" => left_out(FORWARDS),
        "mode" if !matches!(line.word(1), "tcp" | "http") => {
            to_do("HAProxy did more than pass on bytes in this mode: keep HAProxy for it")
        }
        "mode" => without("bytes are passed on unchanged in any mode"),
        "stick-table" => left_out("use `connections_per_client` and `handshakes_per_client`"),
        "use-server" | "force-persist" | "ignore-persist" => {
            to_do("this chose a server for some clients: make a route with `server_names` for them")
        }
        "stick" if server::is_by_mqtt_client_id(line) => None,
        "stick" | "persist" | "appsession" => {
            left_out("no equivalent: balance = \"client-hash\" keeps a client with its backend")
        }
        "rate-limit" | "maxconn" => without("a later line replaces it"),
        "fullconn" => left_out("the limits of servers do not depend on the load here"),
        "backlog" => left_out("use `backlog`, for all routes together"),
        "source" => left_out("use `source_addresses`"),
        "filter" if line.word(1).starts_with("bwlim-") => {
            left_out("use `bytes_per_client`, which counts all connections of a client")
        }
        "filter" if matches!(line.word(1), "compression" | "cache") => without(REQUESTS),
        "filter" if line.word(1) == "trace" => left_out("no equivalent"),
        "filter" => {
            to_do("this code saw, and may have refused, what clients sent: find out what it did")
        }
        "log" if line.word(1) == "global" => without(OWN),
        "log" | "email-alert" => left_out(LOG),
        "errorfile" | "errorfiles" | "errorloc" | "errorloc302" | "errorloc303" | "http-error" => {
            match is_http {
                true => left_out("stays with the backend"),
                false => without(REQUESTS),
            }
        }
        "option" => option(line.word(1)),
        word if OWN_LINES.contains(&word) => without(OWN),
        "quic-initial" => without(NO_QUIC),
        word if is_keepalive(word) => {
            left_out("use `keepalive_idle`, `keepalive_interval` and `keepalive_count`")
        }
        "retries" | "retry-on" => without("if a backend refuses, the next one is tried, each once"),
        "no" => left_out("the options of HAProxy are not those of Dormouse"),
        "http-request" | "http-response" | "http-after-response"
            if line
                .words
                .iter()
                .any(|word| word.eq_ignore_ascii_case("alt-svc")) =>
        {
            left_out("there is no QUIC here, so nothing may announce it")
        }
        // With any other, HAProxy stays; and in `mode tcp` it reads over them, too.
        "http-request" | "redirect" if is_redirect(line) => {
            without("clients with TLS were not redirected")
        }
        "http-request" | "http-response" | "http-after-response" | "redirect" if !is_http => {
            without(REQUESTS)
        }
        word if ABOUT_REQUESTS.contains(&word) => without(REQUESTS),
        "tcp-response" => to_do(
            "this inspected what the backend sent, and may have refused it: find out what it did",
        ),
        word if word.starts_with("req") || word.starts_with("rsp") => without(REQUESTS),
        _ => None,
    }
}

fn is_keepalive(word: &str) -> bool {
    let ends = ["tcpka-cnt", "tcpka-idle", "tcpka-intvl"];
    ends.iter().any(|end| word.ends_with(end))
}

fn option(name: &str) -> Option<(Fate, &'static str)> {
    let is_about_requests = name.starts_with("http-")
        || name.starts_with("h1-")
        || name.starts_with("accept-invalid-")
        || name.starts_with("accept-unsafe-")
        || matches!(
            name,
            "abortonclose"
                | "checkcache"
                | "forwardfor"
                | "forwarded"
                | "httpclose"
                | "originalto"
                | "http_proxy"
                | "prefer-last-server"
                | "disable-h2-upgrade"
                | "http-buffer-request"
        );
    let is_about_logs = matches!(
        name,
        "contstats"
            | "dontlog-normal"
            | "dontlognull"
            | "httplog"
            | "httpslog"
            | "log-health-checks"
            | "log-separate-errors"
            | "logasap"
            | "socket-stats"
            | "tcplog"
            | "error-log-format"
            | "nolinger"
            | "external-check"
    );
    // Probes of idle connections (`keepalive`) and failover are on.
    let is_done_anyway = matches!(
        name,
        "allbackups" | "clitcpka" | "redispatch" | "srvtcpka" | "tcpka" | "independent-streams"
    ) || name.starts_with("splice-")
        || name.starts_with("tcp-smart-");
    match name {
        "transparent" => Some((
            Fate::ToDo,
            "connections went to the address that the client asked for: add backends to `to`",
        )),
        "idle-close-on-response" => Some((Fate::WithoutEffect, REQUESTS)),
        // The checks take these.
        _ if is_check(name) => None,
        _ if is_about_requests => Some((Fate::WithoutEffect, REQUESTS)),
        _ if is_about_logs => Some((Fate::WithoutEffect, OWN)),
        _ if is_done_anyway => Some((Fate::WithoutEffect, DONE_ANYWAY)),
        _ => None,
    }
}
