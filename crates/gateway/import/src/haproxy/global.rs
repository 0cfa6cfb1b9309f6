//! `global`, and the sections that are no proxies.

use std::collections::HashMap;

use super::config::Config;
use super::syntax::{HaproxySection, Line};
use crate::advice::{
    BRANCHES, HAPROXY_STAYS, LOG, NO_QUIC, OCSP, REQUESTS, SECURITY_LEVEL, STAYS_WITH_HAPROXY,
    engine,
};
use crate::draft::Draft;
use crate::origin::Origin;
use crate::section::Fate;
use crate::value::time;

const VARIABLE: &str = "this names a variable of the environment: write its value into the result, \
    or ${NAME}, which Dormouse fills in as well";
const RESOLVER: &str = "names are looked up with the system's resolver, and again when their TTL expires: its servers are \
    in /etc/resolv.conf";
const OWN: &str = "memory, processes and files of HAProxy";

const PEERS: &str = "machines shared counts of clients and their choice of a server, with or without TLS: here each \
    machine counts for itself; balance = \"client-hash\" chooses alike on all, and `ticket_keys` shares sessions";

/// Lines of `global` without effect here, and why.
pub(super) const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("busy-polling", OWN),
    ("daemon", OWN),
    ("description", OWN),
    ("expose-experimental-directives", OWN),
    ("expose-deprecated-directives", OWN),
    ("grace", OWN),
    ("h1-case-adjust", OWN),
    ("h1-case-adjust-file", OWN),
    ("close-spread-time", OWN),
    ("cpu-set", OWN),
    ("dns-accept-family", "all addresses of a name are used"),
    ("h1-accept-payload-with-any-method", REQUESTS),
    ("h1-do-not-close-on-insecure-transfer-encoding", REQUESTS),
    ("http-err-codes", REQUESTS),
    ("http-fail-codes", REQUESTS),
    ("key-base", "files are named with their whole path here"),
    ("ocsp-update.disable", OCSP),
    ("ocsp-update.httpproxy", OCSP),
    ("ocsp-update.maxdelay", OCSP),
    ("ocsp-update.mindelay", OCSP),
    ("ocsp-update.mode", OCSP),
    ("prealloc-fd", OWN),
    ("set-var-fmt", OWN),
    ("stress-level", OWN),
    ("thread-hard-limit", OWN),
    ("insecure-fork-wanted", OWN),
    ("issuers-chain-path", OWN),
    ("localpeer", OWN),
    ("master-worker", OWN),
    ("mworker-max-reloads", OWN),
    ("node", OWN),
    ("nbproc", OWN),
    ("cpu-map", OWN),
    ("cpu-policy", OWN),
    ("numa-cpu-mapping", OWN),
    ("pidfile", OWN),
    ("presetenv", OWN),
    ("quiet", OWN),
    ("resetenv", OWN),
    ("setcap", OWN),
    ("server-state-base", OWN),
    ("server-state-file", OWN),
    ("set-dumpable", OWN),
    ("set-var", OWN),
    ("setenv", OWN),
    ("shm-stats-file", OWN),
    ("spread-checks", OWN),
    (
        "ssl-dh-param-file",
        "finite-field Diffie-Hellman is not supported",
    ),
    (
        "ssl-load-extra-files",
        "files beside a certificate are named here",
    ),
    (
        "ssl-load-extra-del-ext",
        "files beside a certificate are named here",
    ),
    (
        "ssl-skip-self-issued-ca",
        "chains are sent as they are in their files",
    ),
    ("limited-quic", NO_QUIC),
    ("no-quic", NO_QUIC),
    ("harden.reject-privileged-ports.quic", NO_QUIC),
    ("thread-groups", OWN),
    ("thread-group", OWN),
    ("unix-bind", OWN),
    ("unsetenv", OWN),
    ("zero-warning", OWN),
    ("force-cfg-parser-pause", OWN),
    ("warn-blocked-traffic-after", OWN),
    ("default-path", "files are named with their whole path here"),
    ("ca-base", "files are named with their whole path here"),
    ("crt-base", "files are named with their whole path here"),
];

/// Lines of `global` that binds and servers take.
const OF_BINDS_AND_SERVERS: [&str; 6] = [
    "ssl-default-bind-ciphers",
    "ssl-default-bind-ciphersuites",
    "ssl-default-bind-curves",
    "ssl-default-bind-options",
    "ssl-default-server-options",
    "tune.ssl.cachesize",
];

/// Lines of `global` that set the same, of which one counts.
const ONE_COUNTS: [(&[&str], Counts); 7] = [
    (&["user", "uid"], Counts::First),
    (&["group", "gid"], Counts::First),
    (&["maxconn"], Counts::First),
    (&["maxsslconn"], Counts::Last),
    (&["nbthread"], Counts::Last),
    (&["tune.ssl.lifetime"], Counts::Last),
    (&["hard-stop-after"], Counts::Last),
];

/// Which of several lines counts.
#[derive(Clone, Copy)]
enum Counts {
    /// HAProxy says of the others that it ignores them.
    First,
    Last,
}

/// Converts `global`, but of lines that replace each other only the one that counts.
fn of_lines(lines: &[Line], draft: &mut Draft) {
    let group = |line: &Line| (ONE_COUNTS.iter()).find(|(words, _)| words.contains(&line.word(0)));
    let mut counting: HashMap<&[&str], usize> = HashMap::new();
    for (n, line) in lines.iter().enumerate() {
        match group(line) {
            Some((words, Counts::First)) => {
                counting.entry(words).or_insert(n);
            }
            Some((words, Counts::Last)) => {
                counting.insert(words, n);
            }
            None => {}
        }
    }
    for (n, line) in lines.iter().enumerate() {
        match group(line) {
            Some((words, which)) if counting.get(words) != Some(&n) => match which {
                Counts::First => draft.program.without_effect(line.origin, EARLIER_COUNTS),
                Counts::Last => draft.program.replaced(line.origin),
            },
            _ => of_global(line, draft),
        }
    }
}

const EARLIER_COUNTS: &str = "an earlier line counts";

pub(super) fn read(config: &Config, draft: &mut Draft) {
    of_lines(&config.global, draft);
    for part in &config.parts {
        let has_variable = |line: &&Line| line.words.iter().any(|word| word.contains("${"));
        for line in part.lines.iter().filter(has_variable) {
            draft.program.step(line.origin, VARIABLE);
        }
        for line in part
            .lines
            .iter()
            .filter(|line| line.word(0).starts_with('.'))
        {
            match line.word(0) {
                ".if" | ".elif" => draft.program.step(line.origin, BRANCHES),
                _ => draft
                    .program
                    .without_effect(line.origin, "it belongs to a `.if`, or is a message"),
            }
        }
        other_section(part, draft);
    }
    unused(config, draft);
}

fn of_global(line: &Line, draft: &mut Draft) {
    let (value, from, program) = (line.word(1), line.origin, &mut draft.program);
    let why = match line.word(0) {
        "nbthread" => return program.number("workers", value, from),
        // Every connection of Dormouse is one with TLS.
        "maxconn" | "maxsslconn" => return program.lowest("max_connections", value, from),
        "user" | "uid" => return program.set_text("user", value, from),
        "group" | "gid" => return program.set_text("group", value, from),
        "hard-stop-after" => return draft.longest("shutdown_grace", time(value, 1), from),
        "tune.ssl.lifetime" => {
            let seconds = time(value, 1000).map(|ms| (ms / 1000).clamp(60, 43_200));
            return match seconds {
                Some(seconds) => program.set_text("ticket_lifetime", &format!("{seconds}s"), from),
                None => program.left_out(from, "this is not a time"),
            };
        }
        "chroot" => return program.without_effect(from, "workers confine themselves (`sandbox`)"),
        "stats" => "use `admin`, `dormouse status` and `/metrics`",
        "log" | "log-send-hostname" | "log-tag" => LOG,
        "maxsslrate" | "maxconnrate" | "maxsessrate" => {
            "use `route_handshakes_per_second` for each route, and `handshakes_per_client`; there is no such limit for all routes together"
        }
        "ulimit-n" | "fd-hard-limit" => {
            "set it where the program starts: LimitNOFILE= or ulimit -Hn"
        }
        "ssl-server-verify" => "servers' certificates are always verified",
        "lua-load" | "lua-load-per-thread" | "lua-prepend-path" => {
            "Dormouse runs no code for a connection"
        }
        "ssl-engine" | "ssl-provider" | "ssl-provider-path" | "ssl-propquery"
        | "ssl-mode-async" => {
            return program.step(from, engine(value));
        }
        "ssl-security-level" if !matches!(value, "0" | "1" | "2") => {
            return program.step(from, SECURITY_LEVEL);
        }
        "ssl-security-level" => "suites and keys reach level 2 in any case",
        "ssl-default-bind-sigalgs" | "ssl-default-bind-client-sigalgs" => "no equivalent",
        // Those that binds and servers have taken are done; of the others nothing is left to say.
        word if OF_BINDS_AND_SERVERS.contains(&word) => return,
        word if word.starts_with("ssl-default-server-") => {
            "TLS 1.2 and 1.3 with AEAD suites are used with backends"
        }
        word if word.starts_with("tune.")
            || word.starts_with("no")
            || word.starts_with("profiling")
            || word.starts_with("httpclient.")
            || word.starts_with("acme.") =>
        {
            return program.without_effect(from, OWN);
        }
        word => {
            if let Some((_, why)) = WITHOUT_EFFECT.iter().find(|(known, _)| *known == word) {
                program.without_effect(from, *why);
            }
            return;
        }
    };
    draft.program.left_out(from, why);
}

/// Sections that are no proxies.
fn other_section(part: &HaproxySection, draft: &mut Draft) {
    let (program, all) = (&mut draft.program, part.origins());
    match part.kind.as_str() {
        "log-forward" => program.step(
            all,
            "keep HAProxy for it, or its addresses will not be served",
        ),
        "program" => program.step(all, "HAProxy starts this program: start it in another way"),
        "userlist" | "cache" | "http-errors" | "fcgi-app" => {
            program.without_effect(all, REQUESTS);
        }
        "peers" => program.left_out(all, PEERS),
        "resolvers" if part.all("nameserver").next().is_some() => program.left_out(all, RESOLVER),
        "resolvers" => program.without_effect(all, RESOLVER),
        "mailers" | "ring" | "log-profile" | "traces" => program.left_out(all, LOG),
        "healthcheck" => program.left_out(all, "checks are those of `check`"),
        "global" | "defaults" | "crt-store" | "acme" if part.lines.is_empty() => {
            program.without_effect(part.origin, "it is empty");
        }
        _ => {}
    }
}

/// Says what becomes of settings that no converted section uses.
fn unused(config: &Config, draft: &mut Draft) {
    let haproxy_stays = draft.has_step(HAPROXY_STAYS);
    let claimed = draft.claimed();
    for part in &config.parts {
        let (fate, why) = match part.kind.as_str() {
            "backend" if haproxy_stays => (Fate::Stays, STAYS_WITH_HAPROXY),
            "backend" => (
                Fate::WithoutEffect,
                "no converted rule leads to this backend",
            ),
            "crt-store" => (Fate::WithoutEffect, "no bind names this certificate"),
            "acme" => (
                Fate::WithoutEffect,
                "no certificate that a bind names uses it",
            ),
            "global" => (
                Fate::WithoutEffect,
                "no bind or server is left that uses it",
            ),
            "defaults" => {
                for line in &part.lines {
                    if claimed.contains(&line.origin) || line.word(0).starts_with('.') {
                        continue;
                    }
                    let why = "no converted section uses it";
                    draft
                        .program
                        .without_effect(line.origins().collect::<Vec<_>>(), why);
                }
                continue;
            }
            _ => continue,
        };
        let is_free = |one: &Origin| !claimed.contains(one);
        let free: Vec<Origin> = match part.kind.as_str() {
            "acme" if part.lines.iter().any(|line| claimed.contains(&line.origin)) => continue,
            "crt-store" => {
                let is_known =
                    |line: &&Line| matches!(line.word(0), "load" | "crt-base" | "key-base");
                let lines = part.lines.iter().filter(is_known);
                let lines = lines.filter(|line| is_free(&line.origin));
                lines.flat_map(Line::origins).filter(is_free).collect()
            }
            "global" => (part.lines.iter())
                .filter(|line| OF_BINDS_AND_SERVERS.contains(&line.word(0)))
                .flat_map(Line::origins)
                .filter(is_free)
                .collect(),
            _ => part.origins().into_iter().filter(is_free).collect(),
        };
        if !free.is_empty() {
            draft.program.say(fate, free, why);
        }
    }
}
