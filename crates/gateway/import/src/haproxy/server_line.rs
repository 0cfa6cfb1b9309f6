//! `server NAME ADDRESS words…`

use super::address::{ServerAddress, of_server};
use super::config::Config;
use super::syntax::{HaproxySection, Keyword, Keywords, Line};
use crate::advice::{BACKEND_NEWEST, BACKEND_VERSIONS};
use crate::openssl::version;
use crate::origin::Origins;
use crate::section::{Kind, Section};
use crate::toml::Backend;
use crate::value::time;

const OWN: &str = "sockets and connections of HAProxy";
const DEFAULT: &str = "this is the default here, too";
const NO_EQUIVALENT: &str = "no equivalent";
const OWN_CHECK_ADDRESS: &str = "checks connect to the backend's own address and port here: without a server there, remove `check`";
const SNI_AUTO: &str = "the name sent is `backend_name`, or each backend's own host";

/// Words of a server without effect here, with the number of their values, and why.
pub(super) const WITHOUT_EFFECT: &[(&str, usize, &str)] = &[
    ("cookie", 1, "no request is read"),
    ("id", 1, "a name for statistics"),
    ("guid", 1, "a name for statistics"),
    ("observe", 1, OWN),
    ("on-error", 1, OWN),
    (
        "on-marked-down",
        1,
        "established connections stay as they are",
    ),
    (
        "on-marked-up",
        1,
        "established connections stay as they are",
    ),
    (
        "resolvers",
        1,
        "names are looked up with the system's resolver",
    ),
    ("resolve-prefer", 1, "IPv4 addresses of a name come first"),
    ("resolve-net", 1, "all addresses of a name are used"),
    ("resolve-opts", 1, "all addresses of a name are used"),
    ("tcp-ut", 1, OWN),
    ("tcp-md5sig", 1, OWN),
    ("pool-max-conn", 1, OWN),
    ("pool-purge-delay", 1, OWN),
    ("pool-low-conn", 1, OWN),
    ("max-reuse", 1, OWN),
    ("log-proto", 1, OWN),
    ("log-bufsize", 1, OWN),
    ("ws", 1, OWN),
    ("shard", 1, OWN),
    ("check-send-proxy", 0, "checks send what connections send"),
    (
        "no-check-send-proxy",
        0,
        "checks send what connections send",
    ),
    ("enabled", 0, DEFAULT),
    ("ssl-reuse", 0, DEFAULT),
    ("no-ssl-reuse", 0, "sessions are resumed"),
    ("stick", 0, DEFAULT),
    ("non-stick", 0, OWN),
    ("tfo", 0, OWN),
    ("no-tfo", 0, DEFAULT),
    ("no-tls-tickets", 0, "sessions are resumed"),
    ("tls-tickets", 0, DEFAULT),
    ("allow-0rtt", 0, "0-RTT data is never sent"),
    ("no-sslv3", 0, BACKEND_VERSIONS),
    ("no-tlsv10", 0, BACKEND_VERSIONS),
    ("no-tlsv11", 0, BACKEND_VERSIONS),
    ("proto", 1, "bytes are passed on unchanged"),
    ("check-proto", 1, "bytes are passed on unchanged"),
    ("no-backup", 0, DEFAULT),
    ("no-verifyhost", 0, DEFAULT),
    ("pool-conn-name", 1, OWN),
    ("check-reuse-pool", 0, OWN),
    ("no-check-reuse-pool", 0, DEFAULT),
    ("no-agent-check", 0, DEFAULT),
    (
        "strict-maxconn",
        0,
        "`max_connections` of a backend counts all connections to it",
    ),
];

/// Words of a server that have another form or none, with the number of their values, and why.
const LEFT_OUT: &[(&str, usize, &str)] = &[
    ("sni-auto", 0, SNI_AUTO),
    ("no-sni-auto", 0, SNI_AUTO),
    ("check-sni-auto", 0, SNI_AUTO),
    ("no-check-sni-auto", 0, SNI_AUTO),
    ("fastinter", 1, "checks always come at the same interval"),
    ("downinter", 1, "checks always come at the same interval"),
    (
        "proxy-v2-options",
        1,
        "version 2 of the header always has the facts about TLS, and a connection id",
    ),
    ("agent-check", 0, NO_EQUIVALENT),
    ("check-via-socks4", 0, NO_EQUIVALENT),
    ("port", 1, OWN_CHECK_ADDRESS),
    ("addr", 1, OWN_CHECK_ADDRESS),
    (
        "init-state",
        1,
        "a backend counts as up until a check fails",
    ),
    (
        "idle-ping",
        1,
        "bytes are passed on unchanged: `keepalive_idle` finds dead connections",
    ),
    (
        "usesrc",
        1,
        "the backend saw the client's address as the source: `proxy_protocol` sends it",
    ),
    ("check-sni", 1, NO_EQUIVALENT),
    ("check-alpn", 1, NO_EQUIVALENT),
    ("check-pool-conn-name", 1, NO_EQUIVALENT),
    ("agent-port", 1, NO_EQUIVALENT),
    ("agent-addr", 1, NO_EQUIVALENT),
    ("agent-inter", 1, NO_EQUIVALENT),
    ("agent-send", 1, NO_EQUIVALENT),
    ("minconn", 1, NO_EQUIVALENT),
    ("maxqueue", 1, NO_EQUIVALENT),
    ("track", 1, NO_EQUIVALENT),
    ("redir", 1, NO_EQUIVALENT),
    ("hash-key", 1, NO_EQUIVALENT),
    ("ciphers", 1, BACKEND_VERSIONS),
    ("ciphersuites", 1, BACKEND_VERSIONS),
    ("ssl-max-ver", 1, BACKEND_VERSIONS),
    ("curves", 1, BACKEND_VERSIONS),
    ("sigalgs", 1, BACKEND_VERSIONS),
    ("client-sigalgs", 1, BACKEND_VERSIONS),
    ("force-tlsv12", 0, BACKEND_VERSIONS),
    ("no-tlsv13", 0, BACKEND_VERSIONS),
];

/// A setting with the words that it comes from.
pub(super) type Given<T> = Option<(T, Origins)>;

/// Settings of one server that a route has once for all its backends.
#[derive(Default)]
pub(super) struct ServerSettings {
    pub(super) tls: Given<()>,
    pub(super) is_verified: bool,
    pub(super) of_verify: Origins,
    pub(super) ca: Given<String>,
    pub(super) name: Given<String>,
    pub(super) certificate: Given<String>,
    pub(super) protocols: Given<String>,
    pub(super) proxy_protocol: Given<&'static str>,
    pub(super) check: Given<()>,
    pub(super) check_by_tls: Given<()>,
    /// Words that switch something off.
    pub(super) off: Origins,
    pub(super) crl: Given<String>,
    /// Words that allow TLS 1.3 only.
    newest: Origins,
}

impl ServerSettings {
    /// Sets what a word without a value switches on or off. Returns `false` if it is another word.
    fn switch(&mut self, word: &str, from: &Origins) -> bool {
        let on = || Some(((), from.clone()));
        let is_off = word.starts_with("no-");
        match word {
            "ssl" => self.tls = on(),
            "no-ssl" => self.tls = None,
            "check" => self.check = on(),
            "no-check" => self.check = None,
            "check-ssl" => self.check_by_tls = on(),
            "no-check-ssl" => self.check_by_tls = None,
            "send-proxy" => self.proxy_protocol = Some(("v1", from.clone())),
            "send-proxy-v2" | "send-proxy-v2-ssl" | "send-proxy-v2-ssl-cn" => {
                self.proxy_protocol = Some(("v2", from.clone()));
            }
            "no-send-proxy"
            | "no-send-proxy-v2"
            | "no-send-proxy-v2-ssl"
            | "no-send-proxy-v2-ssl-cn" => self.proxy_protocol = None,
            _ => return false,
        }
        if is_off {
            self.off.add(from);
        }
        true
    }

    /// Keywords whose settings differ. Checks are not among them: a check of one more server takes nothing away.
    pub(super) fn differences(&self, other: &ServerSettings) -> Vec<&'static str> {
        fn is_same<T: PartialEq>(one: &Given<T>, other: &Given<T>) -> bool {
            one.as_ref().map(|(value, _)| value) == other.as_ref().map(|(value, _)| value)
        }
        let is_equal = [
            ("ssl", is_same(&self.tls, &other.tls)),
            ("verify", self.is_verified == other.is_verified),
            ("ca-file", is_same(&self.ca, &other.ca)),
            ("crl-file", is_same(&self.crl, &other.crl)),
            ("sni or verifyhost", is_same(&self.name, &other.name)),
            ("crt", is_same(&self.certificate, &other.certificate)),
            ("alpn", is_same(&self.protocols, &other.protocols)),
            (
                "send-proxy",
                is_same(&self.proxy_protocol, &other.proxy_protocol),
            ),
        ];
        let differ = is_equal.into_iter().filter(|(_, is_equal)| !is_equal);
        differ.map(|(keyword, _)| keyword).collect()
    }

    /// Returns the words that switch checks on.
    pub(super) fn of_checks(&self) -> Origins {
        let all = [&self.check, &self.check_by_tls].into_iter().flatten();
        all.flat_map(|(_, from)| from.iter()).collect()
    }

    /// Returns the words of everything that all backends of a route have in common.
    pub(super) fn origins(&self) -> Origins {
        fn of<T>(one: &Given<T>) -> Origins {
            one.as_ref()
                .map(|(_, from)| from.clone())
                .unwrap_or_default()
        }
        let mut all = self.off.clone();
        all.add(self.of_checks());
        for more in [
            of(&self.tls),
            self.of_verify.clone(),
            of(&self.ca),
            of(&self.crl),
            of(&self.name),
            of(&self.certificate),
            of(&self.protocols),
            of(&self.proxy_protocol),
        ] {
            all.add(more);
        }
        all
    }
}

/// A server, with what its line says.
pub(super) struct Server<'a> {
    pub(super) line: &'a Line,
    pub(super) backend: Backend,
    pub(super) address: ServerAddress,
    pub(super) from: Origins,
    /// Why it gets no connections.
    pub(super) unused: Option<(&'static str, Origins)>,
    pub(super) settings: ServerSettings,
}

/// Returns the servers of a backend.
pub(super) fn servers<'a>(
    part: &'a HaproxySection,
    config: &'a Config,
    section: &mut Section,
) -> Vec<Server<'a>> {
    let mut servers = Vec::new();
    let global = config.all_global("ssl-default-server-options");
    // A `default-server` counts for the servers after it.
    let mut defaults: Vec<&Line> = global.collect();
    for line in &part.lines {
        let (kind, at) = match line.word(0) {
            kind @ "server" => (kind, 2),
            kind @ "server-template" => (kind, 3),
            "default-server" => {
                defaults.push(line);
                continue;
            }
            _ => continue,
        };
        let mut server = Server {
            line,
            backend: Backend::default(),
            address: of_server(line.word(at)),
            from: line.origin.into(),
            unused: None,
            settings: ServerSettings::default(),
        };
        for line in defaults.iter().copied().chain([line]) {
            let mut keywords = line.keywords();
            while let Some(keyword) = keywords.next() {
                word(keyword, &mut keywords, config, &mut server, section);
            }
            if line.word(0) != kind {
                section.without_effect(line.origin, "it is part of each server");
            }
        }
        refusals(&server.settings, section);
        servers.push(server);
    }
    let is_last = |line: &&Line| {
        servers
            .last()
            .is_none_or(|last| last.line.origin < line.origin)
    };
    for line in part.all("default-server").filter(is_last) {
        let from: Origins = line.origins().collect();
        section.without_effect(from, "no server follows it");
    }
    servers
}

/// Says what becomes of settings with which HAProxy refused some servers of TLS.
fn refusals(settings: &ServerSettings, section: &mut Section) {
    let from = &settings.newest;
    match (&settings.tls, section.kind) {
        _ if from.is_empty() => {}
        (None, _) => section.without_effect(from, "there is no TLS to this server"),
        (Some(_), Kind::Originate) => section.set_text("min_version", "1.3", from),
        (Some(_), _) => section.step(from, BACKEND_NEWEST),
    }
}

/// Converts a word, with its value if it has one.
fn word<'a>(
    mut keyword: Keyword<'a>,
    words: &mut Keywords<'a>,
    config: &Config,
    server: &mut Server<'_>,
    section: &mut Section,
) {
    let name = keyword.word;
    if server.settings.switch(name, &keyword.from) {
        return;
    }
    if let Some((_, values, why)) = WITHOUT_EFFECT.iter().find(|(known, ..)| *known == name) {
        for _ in 0..*values {
            words.value(&mut keyword);
        }
        return section.without_effect(keyword.from, *why);
    }
    if let Some((_, values, why)) = LEFT_OUT.iter().find(|(known, ..)| *known == name) {
        for _ in 0..*values {
            words.value(&mut keyword);
        }
        return section.left_out(keyword.from, *why);
    }
    match name {
        "backup" => {
            server.backend.is_backup = true;
            server.from.add(keyword.from);
        }
        "disabled" => server.unused = Some(("it is disabled", keyword.from)),
        "force-tlsv13" | "no-tlsv12" => server.settings.newest.add(keyword.from),
        _ if HAVE_VALUES.contains(&name) => {
            let value = words.value(&mut keyword);
            with_value(name, value, keyword.from, config, server, section);
        }
        // Nobody knows it, so it is a step to do.
        _ => {}
    }
}

const HAVE_VALUES: [&str; 20] = [
    "weight",
    "maxconn",
    "slowstart",
    "inter",
    "rise",
    "fall",
    "error-limit",
    "verify",
    "ca-file",
    "sni",
    "verifyhost",
    "crt",
    "alpn",
    "source",
    "crl-file",
    "set-proxy-v2-tlv-fmt",
    "init-addr",
    "ssl-min-ver",
    "namespace",
    "socks4",
];

fn with_value(
    name: &str,
    value: &str,
    from: Origins,
    config: &Config,
    server: &mut Server<'_>,
    section: &mut Section,
) {
    let (backend, settings) = (&mut server.backend, &mut server.settings);
    match name {
        "weight" if value == "0" => {
            server.unused = Some(("its weight is 0, so it gets no connections", from));
        }
        "weight" => {
            backend.weight = value.parse().ok();
            server.from.add(from);
        }
        "maxconn" => {
            backend.max_connections = value.parse().ok().filter(|n| *n > 0);
            server.from.add(from);
        }
        "slowstart" => section.time("slow_start", time(value, 1), from),
        "inter" => section.time("check_every", time(value, 1), from),
        "rise" => section.number("check_rise", value, from),
        "fall" => section.number("check_fall", value, from),
        "error-limit" => section.number("backend_failures", value, from),
        "verify" => {
            settings.is_verified = value == "required";
            settings.of_verify = from;
        }
        "ca-file" => settings.ca = Some((config.path("ca-base", value), from)),
        "sni" => sni(value, from, settings, section),
        "verifyhost" => settings.name = Some((value.to_owned(), from)),
        "crt" => settings.certificate = Some((config.path("crt-base", value), from)),
        "alpn" => settings.protocols = Some((value.to_owned(), from)),
        "source" => match value.parse::<std::net::IpAddr>() {
            Ok(ip) => section.set_text("source_addresses", &ip.to_string(), from),
            Err(_) => section.left_out(from, "`source_addresses` takes IP addresses"),
        },
        "crl-file" => settings.crl = Some((config.path("ca-base", value), from)),
        "ssl-min-ver" if version(value) == Some("1.3") => settings.newest.add(from),
        "ssl-min-ver" => section.left_out(from, BACKEND_VERSIONS),
        "namespace" | "socks4" => section.step(
            from,
            "the connection took another way: see whether this server is reached without it",
        ),
        "set-proxy-v2-tlv-fmt" => section.step(
            from,
            "the header has no fields of your own here: see whether the backend needs them",
        ),
        _ => init_addr(value, from, section),
    }
}

/// Converts `init-addr`, the ways in which HAProxy found a server's address at its start.
fn init_addr(value: &str, from: Origins, section: &mut Section) {
    let mut ways = value.split(',');
    let is_address = |way: &str| !matches!(way, "last" | "libc" | "none");
    if ways.clone().any(is_address) {
        let why = "converted, but a backend whose name is not known is down until it resolves: no address stands in for it";
        section.left_out(&from, why);
    } else if !ways.any(|way| way == "none") {
        return section.without_effect(from, DEFAULT);
    }
    section.set_text("resolve", "lazy", from);
}

/// Converts `sni`: `str(app.example)`, or a fetch.
fn sni(value: &str, from: Origins, settings: &mut ServerSettings, section: &mut Section) {
    match value
        .strip_prefix("str(")
        .and_then(|rest| rest.strip_suffix(')'))
    {
        Some(name) => settings.name = Some((name.to_owned(), from)),
        None => section.left_out(
            from,
            "`backend_name` is one name for all backends; without it, each backend's own host is used",
        ),
    }
}
