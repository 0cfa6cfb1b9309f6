//! Networks that may connect, and other rules about connections.

use super::config::Config;
use super::syntax::{
    Condition, HaproxySection, Line, Test, condition, is_met, tests_counter, tests_source,
};
use crate::advice::{ACCEPTED_BEFORE, CLIENT_NETWORKS, LOG, PROXY_NETWORKS, REFUSALS, RULES};
use crate::section::Section;
use crate::toml::quoted_list;
use crate::value::overlap;

/// Converts `tcp-request connection` with `src` to networks. In HAProxy the first matching rule
/// decides.
pub(super) fn networks(part: &HaproxySection, config: &Config, section: &mut Section) {
    let (mut allow, mut deny, mut proxies) = (Vec::new(), Vec::new(), Vec::new());
    let mut accepted = Vec::new();
    let mut accepts_tls = false;
    for line in part.all("tcp-request") {
        let tests = condition(&line.words, part, &config.folder);
        let what = match (line.word(1), line.word(2), is_met(tests.as_ref())) {
            ("connection", what, _) => what,
            // A test for TLS needs no rule: Dormouse reads the ClientHello anyway.
            ("content", "accept" | "reject", Some(false)) => continue,
            ("content", "accept", Some(true)) => {
                accepts_tls = true;
                continue;
            }
            // No client with TLS gets here.
            ("content", "reject", Some(true)) if accepts_tls => continue,
            _ => {
                inspection(line, tests.as_ref(), section);
                continue;
            }
        };
        let rejects = rejects(line);
        let only = match tests.as_deref() {
            Some([way]) => way.first().filter(|_| way.len() == 1),
            _ => None,
        };
        match (what, only) {
            ("expect-proxy", Some(Test::Source(networks))) => proxies.extend(networks.clone()),
            ("expect-proxy", _) => section.add_to_do(&line.position, PROXY_NETWORKS),
            ("accept", Some(Test::Source(networks))) => accepted.extend(networks.clone()),
            (_, None) if rejects && tests.is_none() && !accepted.is_empty() => {
                allow.append(&mut accepted);
            }
            (_, Some(Test::Source(networks))) if rejects => {
                let is_accepted = |one: &String| accepted.iter().any(|other| overlap(one, other));
                if networks.iter().any(is_accepted) {
                    let what = format!("{}: {ACCEPTED_BEFORE}", line.shown());
                    section.add_to_do(&line.position, &what);
                }
                deny.extend(networks.clone());
            }
            (_, Some(Test::Not(test))) if rejects && allow.is_empty() => match &**test {
                Test::Source(networks) => {
                    allow.append(&mut accepted);
                    allow.extend(networks.clone());
                }
                _ => rate(line, tests.as_ref(), section),
            },
            // Without the rule, clients that were refused would be accepted.
            _ if rejects && tests.as_ref().is_none_or(tests_source) => {
                section.add_to_do(
                    &line.position,
                    &format!("{}: {CLIENT_NETWORKS}", line.shown()),
                );
            }
            _ => rate(line, tests.as_ref(), section),
        }
    }
    for (name, networks) in [
        ("allow", allow),
        ("deny", deny),
        ("accept_proxy_from", proxies),
    ] {
        if !networks.is_empty() {
            section.set(name, quoted_list(&networks));
        }
    }
}

/// Leaves out a rule of a later phase (`content`, `session`), unless it refuses clients.
fn inspection(line: &Line, tests: Option<&Condition>, section: &mut Section) {
    if line.word(1) == "inspect-delay" {
        return;
    }
    if rejects(line) && tests.is_some_and(tests_source) {
        let what = format!("{}: {CLIENT_NETWORKS}", line.shown());
        return section.add_to_do(&line.position, &what);
    }
    rate(line, tests, section);
}

fn rejects(line: &Line) -> bool {
    matches!(line.word(2), "reject" | "silent-drop")
}

/// Leaves out rules about rates, or about facts that Dormouse does not test. Clients that the latter
/// refused would be accepted.
fn rate(line: &Line, tests: Option<&Condition>, section: &mut Section) {
    let shown = line.shown();
    let is_about = |ends: &[&str]| tests.is_some_and(|tests| tests_counter(tests, ends));
    let why = if is_about(&["conn_cur"]) {
        "use `connections_per_client`"
    } else if is_about(&["_rate", "conn_cur"]) || line.word(2).starts_with("track-sc") {
        "use `handshakes_per_client`, which counts per minute"
    } else if rejects(line) {
        return section.add_to_do(&line.position, &format!("{shown}: {REFUSALS}"));
    } else {
        RULES
    };
    section.leave_out(&line.position, &shown, why);
}

/// Leaves out lines without an equivalent, or with a different one.
pub(super) fn left_out(part: &HaproxySection, section: &mut Section) {
    for line in &part.lines {
        left_out_line(line, part.is_http(), section);
    }
}

/// The same for a backend of this frontend. Both begin with the lines of their `defaults`, which are reported once.
pub(super) fn left_out_of_backend(
    backend: &HaproxySection,
    frontend: &HaproxySection,
    config: &Config,
    section: &mut Section,
) {
    let of_frontend = |line: &&Line| {
        let mut lines = frontend.lines.iter();
        lines.any(|one| one.position.line == line.position.line)
    };
    for line in backend.lines.iter().filter(|line| !of_frontend(line)) {
        match line.word(0) {
            "tcp-request" => {
                let tests = condition(&line.words, backend, &config.folder);
                inspection(line, tests.as_ref(), section);
            }
            _ => left_out_line(line, backend.is_http(), section),
        }
    }
}

fn left_out_line(line: &Line, is_http: bool, section: &mut Section) {
    let why = match line.word(0) {
        word if needs_no_remark(word) || word.starts_with('.') => return,
        "stick-table" => "use `connections_per_client` and `handshakes_per_client`",
        "stick" | "use-server" | "persist" | "appsession" => {
            "no equivalent: balance = \"client-hash\" keeps a client with its backend"
        }
        "rate-limit" => {
            "use `handshakes_per_client`, and `max_handshakes` for handshakes in flight"
        }
        "maxconn" | "fullconn" => {
            "use `max_connections`, for all routes together, or for each backend in `to`"
        }
        "backlog" => "use `backlog`, for all routes together",
        "source" => "use `source_addresses`",
        "filter" if line.word(1).starts_with("bwlim-") => {
            "use `bytes_per_client`, which counts all connections of a client"
        }
        "log" if line.word(1) == "global" => return,
        "log" => LOG,
        "errorfile" | "errorfiles" | "errorloc" | "errorloc302" | "errorloc303" | "http-error" => {
            if !is_http {
                return;
            }
            "stays with the backend"
        }
        "option" if option_needs_no_remark(line.word(1)) => return,
        _ => "no equivalent",
    };
    section.leave_out(&line.position, &line.shown(), why);
}

/// Lines that are converted elsewhere, that process requests (HAProxy then stays behind Dormouse, see `does_more`),
/// or that do not concern Dormouse: names, log formats, HAProxy's state and retries.
fn needs_no_remark(word: &str) -> bool {
    let is_converted = matches!(
        word,
        "acl"
            | "balance"
            | "bind"
            | "default-server"
            | "default_backend"
            | "http-check"
            | "mode"
            | "server"
            | "server-template"
            | "tcp-check"
            | "tcp-request"
            | "timeout"
            | "use_backend"
    );
    let is_about_requests = word.starts_with("http-")
        || word.starts_with("req")
        || word.starts_with("rsp")
        || matches!(
            word,
            "capture"
                | "compression"
                | "cookie"
                | "max-keep-alive-queue"
                | "monitor-uri"
                | "redirect"
                | "stats"
                | "unique-id-format"
                | "unique-id-header"
        );
    let is_haproxys_own = matches!(
        word,
        "description"
            | "disabled"
            | "enabled"
            | "error-log-format"
            | "guid"
            | "hash-balance-factor"
            | "hash-type"
            | "id"
            | "load-server-state-from-file"
            | "log-format"
            | "log-format-sd"
            | "log-steps"
            | "log-tag"
            | "no"
            | "retries"
            | "retry-on"
            | "server-state-file-name"
    );
    is_converted || is_about_requests && word != "http-error" || is_haproxys_own
}

/// Options of HAProxy that are converted, that are about requests or logs, or that Dormouse does always or never needs.
fn option_needs_no_remark(word: &str) -> bool {
    let is_check =
        word.ends_with("-check") || matches!(word, "httpchk" | "smtpchk" | "ssl-hello-chk");
    let is_about_requests = word.starts_with("http-")
        || word.starts_with("h1-")
        || word.starts_with("accept-invalid-")
        || word.starts_with("accept-unsafe-")
        || matches!(
            word,
            "abortonclose" | "checkcache" | "forwardfor" | "forwarded" | "httpclose" | "originalto"
        );
    let is_about_logs = matches!(
        word,
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
    );
    // Probes of idle connections (`keepalive`) and failover are on.
    let is_done_anyway = matches!(
        word,
        "allbackups" | "clitcpka" | "redispatch" | "srvtcpka" | "tcpka"
    ) || word.starts_with("splice-")
        || word.starts_with("tcp-smart-");
    is_check || is_about_requests || is_about_logs || is_done_anyway
}
