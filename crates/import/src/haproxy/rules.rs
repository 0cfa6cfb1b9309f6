//! Who may connect, and what else is said of connections.

use super::config::Config;
use super::syntax::{HaproxySection, Line, Test, asks_for_source, condition};
use crate::advice::{RULES, WHO_MAY_COME};
use crate::section::Section;
use crate::toml::quoted_list;

/// `tcp-request connection` with `src`: networks. There the first rule that fits decides.
pub(super) fn networks(part: &HaproxySection, config: &Config, section: &mut Section) {
    let (mut allow, mut deny, mut proxies) = (Vec::new(), Vec::new(), Vec::new());
    let mut accepted = Vec::new();
    for line in part.all("tcp-request") {
        let what = match (line.word(1), line.word(2)) {
            ("connection", what) => what,
            ("inspect-delay", _) => continue,
            // Whether it is TLS at all is found out by reading it.
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
            // Who was kept out would come in.
            _ if rejects && tests.as_ref().is_none_or(asks_for_source) => {
                section.add_to_do(&line.position, &format!("{}: {WHO_MAY_COME}", line.shown()));
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

/// Rules by what is counted, or by something that is not looked at here.
fn rate(line: &Line, section: &mut Section) {
    let shown = line.shown();
    let why = if shown.contains("conn_cur") {
        "see `connections_per_client`"
    } else if shown.contains("rate") || shown.contains("track-sc") {
        "see `handshakes_per_client`: so many in a minute"
    } else {
        RULES
    };
    section.leave_out(&line.position, &shown, why);
}

/// What has no counterpart, or another one.
pub(super) fn left_out(part: &HaproxySection, section: &mut Section) {
    for line in &part.lines {
        let why = match line.word(0) {
            "stick-table" => "see `connections_per_client` and `handshakes_per_client`",
            "stick" | "use-server" | "persist" | "appsession" => {
                "no counterpart: balance = \"client-hash\" keeps a client with its backend"
            }
            "rate-limit" => "see `handshakes_per_client`, and `max_handshakes` at a time",
            "maxconn" | "fullconn" => {
                "`max_connections` is for all routes together, and for each backend in `to`"
            }
            "tcp-response" | "filter" | "dispatch" | "external-check" => "no counterpart",
            "errorfile" | "errorloc" if part.is_http() => "stays with the server behind",
            "option" => match line.word(1) {
                "transparent" | "http_proxy" => "no counterpart",
                _ => continue,
            },
            _ => continue,
        };
        section.leave_out(&line.position, &line.shown(), why);
    }
}
