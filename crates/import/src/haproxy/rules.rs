//! Networks that may connect, and other rules about connections.

use super::config::Config;
use super::syntax::{HaproxySection, Line, Test, condition, tests_source};
use crate::advice::{CLIENT_NETWORKS, RULES};
use crate::section::Section;
use crate::toml::quoted_list;

/// Converts `tcp-request connection` with `src` to networks. In HAProxy the first matching rule
/// decides.
pub(super) fn networks(part: &HaproxySection, config: &Config, section: &mut Section) {
    let (mut allow, mut deny, mut proxies) = (Vec::new(), Vec::new(), Vec::new());
    let mut accepted = Vec::new();
    for line in part.all("tcp-request") {
        let what = match (line.word(1), line.word(2)) {
            ("connection", what) => what,
            ("inspect-delay", _) => continue,
            // A test for TLS needs no rule: Dormouse reads the ClientHello anyway.
            ("content", "accept" | "reject") if is_about_tls(line, part, config) => continue,
            _ => {
                rate(line, section);
                continue;
            }
        };
        let tests = condition(&line.words, part, &config.folder);
        let rejects = matches!(what, "reject" | "silent-drop");
        let only = match tests.as_deref() {
            Some([way]) => way.first().filter(|_| way.len() == 1),
            _ => None,
        };
        match (what, only) {
            ("expect-proxy", Some(Test::Source(networks))) => proxies.extend(networks.clone()),
            ("accept", Some(Test::Source(networks))) => accepted.extend(networks.clone()),
            (_, None) if rejects && tests.is_none() && !accepted.is_empty() => {
                allow.append(&mut accepted);
            }
            (_, Some(Test::Source(networks))) if rejects => deny.extend(networks.clone()),
            (_, Some(Test::Not(test))) if rejects && allow.is_empty() => match &**test {
                Test::Source(networks) => allow.extend(networks.clone()),
                _ => rate(line, section),
            },
            // Without the rule, clients that were refused would be accepted.
            _ if rejects && tests.as_ref().is_none_or(tests_source) => {
                section.add_to_do(
                    &line.position,
                    &format!("{}: {CLIENT_NETWORKS}", line.shown()),
                );
            }
            _ => rate(line, section),
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

/// `accept if { req_ssl_hello_type 1 }`, `reject if !{ req.ssl_hello_type 1 }`, `reject`.
fn is_about_tls(line: &Line, part: &HaproxySection, config: &Config) -> bool {
    let is_tls = |test: &Test| match test {
        Test::Tls => true,
        Test::Not(test) => **test == Test::Tls,
        _ => false,
    };
    let tests = condition(&line.words, part, &config.folder).unwrap_or_default();
    tests.iter().flatten().all(is_tls)
}

/// Leaves out rules about rates, or about facts that Dormouse does not test.
fn rate(line: &Line, section: &mut Section) {
    let shown = line.shown();
    let why = if shown.contains("conn_cur") {
        "use `connections_per_client`"
    } else if shown.contains("rate") || shown.contains("track-sc") {
        "use `handshakes_per_client`, which counts per minute"
    } else {
        RULES
    };
    section.leave_out(&line.position, &shown, why);
}

/// Leaves out lines without an equivalent, or with a different one.
pub(super) fn left_out(part: &HaproxySection, section: &mut Section) {
    for line in &part.lines {
        let why = match line.word(0) {
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
            "tcp-response" | "filter" | "dispatch" | "external-check" => "no equivalent",
            "errorfile" | "errorloc" if part.is_http() => "stays with the backend",
            "option" => match line.word(1) {
                "transparent" | "http_proxy" => "no equivalent",
                _ => continue,
            },
            _ => continue,
        };
        section.leave_out(&line.position, &line.shown(), why);
    }
}
