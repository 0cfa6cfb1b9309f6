//! stunnel.conf: `key = value` in `[services]`, with defaults above them (stunnel(8)).

mod ports;
mod services;
mod socket;
mod verification;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use crate::advice::{
    CLIENT_NETWORKS, COMMAND, EARLIER_RULE, LOG, LOG_IN, ONE_LABEL, SECURITY_LEVEL, STARTTLS,
    TOKEN_KEY, engine,
};
use crate::draft::Draft;
use crate::error::{ImportError, Position};
use crate::origin::Origins;
use crate::section::{Kind, Section};
use crate::toml::{Backend, Certificate, backends, certificates, list, quoted, quoted_list};
use services::{Service, ServiceReader, StunnelSetting};

/// Time after which stunnel closes an idle connection by default.
const IDLE_DEFAULT_MS: u64 = 12 * 3_600_000;

const PROCESS: &str = "how the process runs";
const OPENSSL: &str = "a setting of OpenSSL that Dormouse, which does not use it, has no need of";
const DEFAULT: &str = "this is the default here, too";
const FIPS: &str = "OpenSSL allowed only what FIPS 140 approves, which is less than the suites and groups here: make a \
    FIPS build of AWS-LC, Dormouse's cryptographic module, and limit `suites` and `groups`";

/// Settings of the program, all others are those of a service.
const OF_PROGRAM: [&str; 20] = [
    "setuid",
    "setgid",
    "pid",
    "foreground",
    "debug",
    "syslog",
    "output",
    "fips",
    "rndfile",
    "rndbytes",
    "rndoverwrite",
    "chroot",
    "log",
    "egd",
    "compression",
    "engine",
    "enginectrl",
    "enginedefault",
    "service",
    "setenv",
];

/// Settings without effect here, and why.
pub(super) const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("pid", PROCESS),
    ("foreground", PROCESS),
    ("syslog", PROCESS),
    ("service", PROCESS),
    ("debug", PROCESS),
    ("logid", PROCESS),
    ("stack", PROCESS),
    ("rndfile", OPENSSL),
    ("rndbytes", OPENSSL),
    ("rndoverwrite", OPENSSL),
    ("egd", OPENSSL),
    ("compression", "TLS is never compressed"),
    (
        "chroot",
        "workers confine themselves (`sandbox`); paths are not relative to a chroot",
    ),
    ("renegotiation", "renegotiation is always refused"),
    ("delay", "backend names are looked up again and again"),
    (
        "reset",
        "an end without close_notify is a reset (`truncation`)",
    ),
    ("sessioncachesize", "tickets hold the sessions"),
    (
        "timeoutocsp",
        "OCSP responses for own certificates are fetched by default",
    ),
];

pub(super) fn read(text: &str, position: &Position, folder: &Path) -> Result<Draft, ImportError> {
    let ServiceReader {
        services,
        defaults,
        mut draft,
        ..
    } = ServiceReader::read(text, position, folder)?;
    let (of_program, of_services): (Vec<_>, Vec<_>) = defaults
        .into_iter()
        .partition(|one| OF_PROGRAM.contains(&&*one.key));
    let mut all = Vec::new();
    for service in services {
        // Settings above the services apply to each service without its own.
        let own: HashSet<&str> = service.entries.iter().map(|one| &*one.key).collect();
        let is_kept = |one: &&StunnelSetting| is_cumulative(&one.key) || !own.contains(&*one.key);
        let kept: Vec<StunnelSetting> = of_services.iter().filter(is_kept).cloned().collect();
        draft.ledger.inherit(position, kept.len())?;
        let entries = [kept, service.entries].concat();
        all.push(Service { entries, ..service });
    }
    let services = Services {
        all: &all,
        // Of several with one name, the first counts.
        by_name: all.iter().rev().map(|one| (&*one.name, one)).collect(),
        have_idle_times: all.iter().any(|one| one.find("timeoutidle").is_some()),
        module: (of_program.iter().filter(|one| one.key == "enginectrl"))
            .find_map(|one| one.value.strip_prefix("MODULE_PATH:")),
    };
    for service in &all {
        match draft.is_full() {
            false => read_service(service, &services, &mut draft),
            true => draft.too_many(service.origins()),
        }
    }
    let connects = |one: &&StunnelSetting| matches!(&*one.key, "connect" | "exec");
    if all.is_empty() && of_services.iter().any(|one| connects(&one)) {
        let from: Origins = of_services.iter().map(|one| one.origin).collect();
        draft.program.step(from, INETD);
    }
    if !draft.is_empty() {
        for (n, one) in of_program.iter().enumerate() {
            let mut later = of_program.iter().skip(n + 1);
            let is_one = matches!(&*one.key, "debug" | "setuid" | "setgid");
            match is_one && later.any(|other| other.key == one.key) {
                true => draft.program.replaced(one.origin),
                false => program(one, &mut draft),
            }
        }
    }
    let carried = draft.carried();
    for one in of_services
        .iter()
        .filter(|one| !carried.contains(&one.origin))
    {
        let has_own = |service: &Service| {
            let mut entries = service.entries.iter();
            entries.any(|other| other.key == one.key && other.origin != one.origin)
        };
        if all.iter().all(has_own) {
            draft
                .program
                .without_effect(one.origin, "each service has its own");
        }
    }
    Ok(draft)
}

/// Returns whether several lines with this key count, or each changes what the lines before it have set.
fn is_cumulative(key: &str) -> bool {
    matches!(
        key,
        "options"
            | "socket"
            | "connect"
            | "checkhost"
            | "checkip"
            | "checkemail"
            | "config"
            | "redirect"
            | "sni"
    ) || verification::is_part(key)
        || key.starts_with("sslversion")
}

fn program(one: &StunnelSetting, draft: &mut Draft) {
    let section = &mut draft.program;
    let why = match &*one.key {
        "debug" if one.is("debug") || one.is("7") => {
            return section.set_text("log_level", "debug", one.origin);
        }
        "setuid" => return section.set_text("user", &one.value, one.origin),
        "setgid" => return section.set_text("group", &one.value, one.origin),
        "fips" if one.is("no") => return section.without_effect(one.origin, DEFAULT),
        "output" | "log" => LOG,
        "fips" => return section.step(one.origin, FIPS),
        "engine" | "enginectrl" | "enginedefault" => {
            let is_of_token = one.value.starts_with("MODULE_PATH") || one.value.starts_with("PIN");
            let why = if is_of_token {
                TOKEN_KEY
            } else {
                engine(&one.value)
            };
            return section.step(one.origin, why);
        }
        "setenv" => "no equivalent",
        _ => return without_effect(one, section),
    };
    section.left_out(one.origin, why);
}

/// Says why a setting has no effect here; one that is not in the list stays for the end of the import.
fn without_effect(one: &StunnelSetting, section: &mut Section) {
    if let Some((_, why)) = WITHOUT_EFFECT.iter().find(|(key, _)| *key == one.key) {
        section.without_effect(one.origin, *why);
    }
}

/// All services, and what is asked about them again and again.
struct Services<'a> {
    all: &'a [Service],
    by_name: HashMap<&'a str, &'a Service>,
    have_idle_times: bool,
    /// The library of tokens, as `engineCtrl` names it.
    module: Option<&'a str>,
}

fn read_service(service: &Service, services: &Services<'_>, draft: &mut Draft) {
    let title = format!("[{}]", service.name);
    let is_client = service.is_on("client");
    let kind = if is_client {
        Kind::Originate
    } else {
        Kind::Route
    };
    let mut section = Section::new(kind, &*title, service.origin, service.origins());
    if service.find("exec").is_some() || service.find("connect").is_none() {
        // With `redirect` or PSK only, too: there is nothing to connect to.
        let what = format!(
            "{title} runs a program or has no `connect`: keep stunnel for it, or this address will not be served"
        );
        if service.find("accept").is_some() || service.find("sni").is_some() {
            return draft.program.step(service.origins(), what);
        }
    }
    if !listen(service, services, &mut section, draft) {
        return;
    }
    if let Some(one) = service.find("client") {
        match is_client {
            true => section.also(
                "listen",
                service
                    .all("client")
                    .map(|one| one.origin)
                    .collect::<Origins>(),
            ),
            false => section.without_effect(one.origin, DEFAULT),
        }
    }
    switches(service, &mut section);
    connect(service, &mut section);
    show(service, services.module, &mut section);
    verification::convert(service, &mut section);
    crypto(service, &mut section);
    socket::convert(service, &mut draft.program);
    if services.have_idle_times && service.find("timeoutidle").is_none() {
        section.longest("idle_timeout", Some(IDLE_DEFAULT_MS), Origins::default());
    }
    let mut by_key: BTreeMap<&str, Vec<&StunnelSetting>> = BTreeMap::new();
    for one in &service.entries {
        by_key.entry(&one.key).or_default().push(one);
    }
    for (key, all) in by_key {
        rest(key, &all, &mut section, draft);
    }
    draft.add(section);
}

/// Reports values with which stunnel does not start; what they meant decides who is accepted.
fn switches(service: &Service, section: &mut Section) {
    const SWITCHES: [&str; 7] = [
        "client",
        "libwrap",
        "ocspaia",
        "requirecert",
        "sessionresume",
        "verifychain",
        "verifypeer",
    ];
    for one in &service.entries {
        let is_level = || matches!(&*one.value, "0" | "1" | "2" | "3" | "4");
        if SWITCHES.contains(&&*one.key) && !one.is("yes") && !one.is("no") {
            section.step(one.origin, "stunnel knows `yes` and `no` here");
        } else if one.key == "verify" && !is_level() {
            section.step(one.origin, "stunnel knows the levels 0 to 4");
        }
    }
}

/// Sets `listen`. Returns `false` if the service listens nowhere.
fn listen(
    service: &Service,
    services: &Services<'_>,
    section: &mut Section,
    draft: &mut Draft,
) -> bool {
    let is_client = section.kind == Kind::Originate;
    if let Some(one) = service.last("accept", section) {
        let address = match one.value.strip_prefix('/') {
            Some(_) if is_client => Some(format!("unix:{}", one.value)),
            Some(_) => None,
            None => accept_address(&one.value),
        };
        match address {
            Some(address) => section.set_text("listen", &address, one.origin),
            None => section.step(one.origin, NO_ADDRESS),
        }
        return true;
    }
    let names: Vec<&StunnelSetting> = service.all("sni").collect();
    if is_client || names.is_empty() {
        draft.program.step(service.origins(), INETD);
        return false;
    }
    second(service, services, &names, section) || {
        let what =
            "the service that `sni` names does not exist: remove this one, or correct its `sni`";
        draft.program.step(service.origins(), what);
        false
    }
}

const INETD: &str =
    "it accepts no connections itself (inetd mode): keep stunnel where it is started";

/// Handles a service for some names of another service's address: `sni = OTHER:NAME`.
fn second(
    service: &Service,
    services: &Services<'_>,
    names: &[&StunnelSetting],
    section: &mut Section,
) -> bool {
    let mut served = Vec::new();
    let from: Origins = names.iter().map(|one| one.origin).collect();
    for one in names {
        let Some((other, name)) = one.value.split_once(':') else {
            return false;
        };
        let first = services.by_name.get(other);
        let Some(accept) = first.and_then(|first| first.find("accept")) else {
            return false;
        };
        match accept_address(&accept.value) {
            Some(address) => section.set_text("listen", &address, [accept.origin, one.origin]),
            None => section.step([accept.origin, one.origin], NO_ADDRESS),
        }
        if name.starts_with('*') {
            section.left_out(one.origin, ONE_LABEL);
        }
        let before = services
            .all
            .iter()
            .take_while(|one| one.name != service.name);
        if before
            .flat_map(|one| one.all("sni"))
            .any(|earlier| is_decided_by(&one.value, &earlier.value))
        {
            section.step(one.origin, EARLIER_RULE);
        }
        served.push(name);
    }
    section.set("server_names", quoted_list(&served), from);
    true
}

const NO_ADDRESS: &str =
    "Dormouse listens on TCP addresses with a number as port: set one in `listen`";

/// Returns whether an earlier `SERVICE:*END` has names of this one, too: stunnel then uses the earlier one.
fn is_decided_by(sni: &str, earlier: &str) -> bool {
    let lower = |text: &str| text.to_ascii_lowercase();
    let (sni, earlier) = (lower(sni), lower(earlier));
    match (sni.split_once(':'), earlier.split_once(":*")) {
        (Some((first, name)), Some((other, end))) => first == other && name.ends_with(end),
        _ => false,
    }
}

/// Sets where connections go.
fn connect(service: &Service, section: &mut Section) {
    let (mut all, mut from) = (Vec::new(), Origins::default());
    for one in service.all("connect") {
        match connect_address(&one.value) {
            Some(address) => {
                all.push(address);
                from.add(one.origin);
            }
            None => section.step(
                one.origin,
                "this port has no number that `import` knows: add HOST:PORT to `to`",
            ),
        }
    }
    let failover = service.last("failover", section);
    let in_turn = failover.is_some_and(|one| one.is("rr"));
    if let Some(one) = failover {
        match (section.kind, in_turn, all.len()) {
            (_, false, _) | (Kind::Route, true, 0 | 1) => {
                section.without_effect(one.origin, DEFAULT);
            }
            (Kind::Route, true, _) => from.add(one.origin),
            _ => section.left_out(one.origin, "servers are tried in the order of `to`"),
        }
    }
    if all.is_empty() {
        return;
    }
    let value = match section.kind {
        Kind::Originate => list(&all.iter().map(|one| quoted(one)).collect::<Vec<_>>()),
        _ => {
            // stunnel's default is the order of the file.
            let backend = |(n, address): (usize, &String)| Backend {
                address: address.clone(),
                is_backup: n > 0 && !in_turn,
                ..Backend::default()
            };
            let all: Vec<Backend> = all.iter().enumerate().map(backend).collect();
            backends(&all)
        }
    };
    section.set("to", value, from);
}

/// Converts the certificate that is shown.
fn show(service: &Service, module: Option<&str>, section: &mut Section) {
    let (certs, key) = (service.all("cert"), service.last("key", section));
    let certs: Vec<&StunnelSetting> = certs.collect();
    let Some(cert) = certs.last() else {
        if let Some(key) = key {
            section.without_effect(key.origin, "there is no `cert`");
        }
        return;
    };
    let mut from = Origins::from(cert.origin);
    from.add(key.map(|one| one.origin).into_iter().collect::<Origins>());
    let others = certs.iter().filter(|one| one.origin != cert.origin);
    section.replaced(others.map(|one| one.origin).collect::<Origins>());
    let is_of_token = |one: &StunnelSetting| one.value.starts_with("pkcs11:");
    let is_archive = |one: &StunnelSetting| one.value.ends_with(".p12");
    if is_of_token(cert) {
        return section.step(from, TOKEN_KEY);
    }
    if is_archive(cert) || key.is_some_and(is_archive) {
        let why = "certificates and keys are PEM files here: list them in `certificates`";
        return section.step(from, why);
    }
    if let Some(key) = key.filter(|one| is_of_token(one)) {
        section.step(key.origin, PIN);
    }
    let of_key = |one: &StunnelSetting| match is_of_token(one) {
        true => token_uri(&one.value, module),
        false => one.value.clone(),
    };
    let one = Certificate {
        cert: cert.value.clone(),
        key: key.map(of_key),
        ocsp: None,
    };
    section.set("certificates", certificates(&[one]), from);
}

/// A URI of a key in a token, with the path of its library if the other program names that elsewhere.
fn token_uri(uri: &str, module: Option<&str>) -> String {
    let has_module = uri.contains("module-path=");
    match module.filter(|_| !has_module) {
        Some(module) => {
            let mark = if uri.contains('?') { '&' } else { '?' };
            format!("{uri}{mark}module-path={module}")
        }
        None => uri.to_owned(),
    }
}

fn crypto(service: &Service, section: &mut Section) {
    // In the order of the file, because each line changes what the lines before it have set.
    for one in &service.entries {
        let from = one.origin;
        match &*one.key {
            "sslversion" if one.is("all") => section.without_effect(from, DEFAULT),
            "sslversion" => section.versions([&*one.value].into_iter(), from),
            "sslversionmin" if one.is("all") => section.version("min_version", "TLSv1", from),
            "sslversionmin" => section.version("min_version", &one.value, from),
            "sslversionmax" if one.is("all") => section.version("max_version", "TLSv1.3", from),
            "sslversionmax" => section.version("max_version", &one.value, from),
            _ => {}
        }
    }
    // These count wherever they are. Old versions write a dot instead of the last `_`.
    for one in service.all("options") {
        match one.value.to_ascii_uppercase().replace('.', "_").as_str() {
            "NO_TLSV1_2" => section.set_text("min_version", "1.3", one.origin),
            "NO_TLSV1_3" => section.set_text("max_version", "1.2", one.origin),
            "NO_TICKET" => section.left_out(
                one.origin,
                "tickets are sealed with rotating keys; use `session_cache` to keep sessions on this machine",
            ),
            "NO_SSLV2" | "NO_SSLV3" | "NO_TLSV1" | "NO_TLSV1_1" | "-NO_SSLV3" | "-NO_SSLV2" => {
                section.without_effect(one.origin, crate::section::OLD_VERSION);
            }
            "CIPHER_SERVER_PREFERENCE" => section.without_effect(
                one.origin,
                "the client chooses among the suites, which are all AEAD",
            ),
            _ => section.without_effect(one.origin, OPENSSL),
        }
    }
    for one in service.all("config") {
        section.step(one.origin, COMMAND);
    }
    for one in service.all("redirect") {
        section.left_out(
            one.origin,
            "clients without a valid certificate are refused here, not redirected",
        );
    }
    if section.kind == Kind::Originate {
        return;
    }
    let list = |key: &str, section: &mut Section| {
        let one = service.last(key, section)?;
        Some((&*one.value, Origins::from(one.origin)))
    };
    let (tls12, tls13) = (list("ciphers", section), list("ciphersuites", section));
    section.suites(tls12, tls13);
    if let Some(one) = service
        .last("curves", section)
        .or(service.last("curve", section))
    {
        section.groups(&one.value, one.origin);
    }
}

const CA_ENGINE: &str = "authorities are read from files: list them in `client_ca` or `ca`";
const PIN: &str = "write the PIN of the token to a file that only its owner can read, add pin-source=/FILE to the URI \
    (`?` before the first of module-path and pin-source, `&` before the second), and set `pkcs11_user`";
const IDENT: &str = "clients were checked by their user name (RFC 1413): use `client_certificates`";

/// Converts the settings that no other function has read.
fn rest(key: &str, all: &[&StunnelSetting], section: &mut Section, draft: &mut Draft) {
    let is_taken = is_cumulative(key)
        || verification::takes(key)
        || matches!(key, "accept" | "client" | "failover" | "cert" | "key");
    let is_server = section.kind != Kind::Originate;
    if is_taken || (is_server && matches!(key, "ciphers" | "ciphersuites" | "curves" | "curve")) {
        return;
    }
    let Some((one, others)) = all.split_last() else {
        return;
    };
    section.replaced(others.iter().map(|one| one.origin).collect::<Origins>());
    let from = one.origin;
    let seconds = one.value.parse::<u64>().ok();
    let ms = seconds.map(|seconds| seconds.saturating_mul(1000));
    let why = match key {
        "timeoutidle" => return section.longest("idle_timeout", ms, from),
        "timeoutconnect" => return section.longest("backend_connect_timeout", ms, from),
        "timeoutbusy" => return draft.longest("handshake_timeout", ms, from),
        "timeoutclose" if one.value == "0" => {
            return section.set_text("truncation", "close", from);
        }
        "timeoutclose" => "an end without close_notify is a reset at once (`truncation`)",
        "protocol" if one.is("proxy") && is_server => {
            return section.set_text("proxy_protocol", "v1", from);
        }
        "protocol" => match starttls(&one.value) {
            Some(protocol) => return section.set_text("starttls", protocol, from),
            None => return section.step(from, STARTTLS),
        },
        "local" if is_server => return section.set_text("source_addresses", &one.value, from),
        "local" => "originations connect from the address that the system chooses",
        "sessionresume" if one.is("no") => match is_server {
            true => return draft.no_tickets(section, from),
            false => return section.set("resume_uses", "0", from),
        },
        "sessionresume" => return section.without_effect(from, DEFAULT),
        "sessioncachetimeout" if is_server => {
            return section.without_effect(from, "`ticket_lifetime` is one for the whole program");
        }
        "sessioncachetimeout" => return section.time("resume_age", ms, from),
        "alpn" => return section.set("alpn", quoted_list(&[&one.value]), from),
        "ciphers" | "ciphersuites" | "curves" | "curve" => {
            "all suites here are AEAD with forward secrecy"
        }
        "libwrap" if one.is("yes") => {
            let why = format!("hosts.allow and hosts.deny limited the clients: {CLIENT_NETWORKS}");
            return section.step(from, why);
        }
        "libwrap" => return section.without_effect(from, DEFAULT),
        "transparent" if one.is("none") || one.is("no") => {
            return section.without_effect(from, DEFAULT);
        }
        "transparent" if one.is("destination") || one.is("both") => {
            let why =
                "connections went to the address that the client asked for: add backends to `to`";
            return section.step(from, why);
        }
        "transparent" => {
            "use `proxy_protocol` to send clients' addresses to backends that understand it"
        }
        "ticketkeysecret" | "ticketmacsecret" | "sessiond" => {
            "use `ticket_keys` to share sessions among machines"
        }
        "ident" => return section.step(from, IDENT),
        "engineid" | "enginenum" => return section.step(from, TOKEN_KEY),
        "caengine" => return section.step(from, CA_ENGINE),
        "setuid" | "setgid" => "all services run as one user: set `user` and `group`",
        "execargs" | "pty" | "retry" => {
            return section.without_effect(from, "there is no `exec`");
        }
        "securitylevel" => return security_level(one, section),
        _ if key.starts_with("protocol") => return of_protocol(key, one, section),
        _ => return without_effect(one, section),
    };
    section.left_out(from, why);
}

/// Settings such as `protocolHost`. Only a client logs in.
fn of_protocol(key: &str, one: &StunnelSetting, section: &mut Section) {
    let logs_in = matches!(key, "protocolusername" | "protocolpassword");
    match logs_in && section.kind == Kind::Originate {
        true => section.step(one.origin, LOG_IN),
        false => section.without_effect(one.origin, "it belongs to `protocol`"),
    }
}

/// The protocol of STARTTLS that `protocol` means.
fn starttls(protocol: &str) -> Option<&'static str> {
    match protocol.to_ascii_lowercase().as_str() {
        "smtp" => Some("smtp"),
        "imap" => Some("imap"),
        "pop3" => Some("pop3"),
        "pgsql" => Some("postgres"),
        "ldap" => Some("ldap"),
        _ => None,
    }
}

/// 2 is OpenSSL's default, which every suite and key here reaches.
fn security_level(one: &StunnelSetting, section: &mut Section) {
    match one.value.parse::<u8>().is_ok_and(|level| level > 2) {
        true => section.step(one.origin, SECURITY_LEVEL),
        false => section.without_effect(one.origin, "suites and keys reach level 2 in any case"),
    }
}

/// Converts `443`, `host:443` or `:::443`. Without a host it is IPv4; `::` accepts IPv4 clients, too.
fn accept_address(text: &str) -> Option<String> {
    let text = with_number(text)?;
    Some(match text.rsplit_once(':') {
        None => format!("0.0.0.0:{text}"),
        Some(("", port)) => format!("0.0.0.0:{port}"),
        Some(("::" | "[::]", port)) => format!(":{port}"),
        Some(_) => with_brackets(&text),
    })
}

fn connect_address(text: &str) -> Option<String> {
    if text.starts_with('/') {
        return Some(format!("unix:{text}"));
    }
    let text = with_number(text)?;
    Some(match text.contains(':') {
        false => format!("127.0.0.1:{text}"),
        true => with_brackets(&text),
    })
}

/// Replaces the name of a service by its port.
fn with_number(text: &str) -> Option<String> {
    let (host, port) = text
        .rsplit_once(':')
        .map_or(("", text), |(host, port)| (host, port));
    if port.parse::<u16>().is_ok() {
        return Some(text.to_owned());
    }
    let number = ports::of_service(port)?;
    Some(match text.len() == port.len() {
        true => number.to_string(),
        false => format!("{host}:{number}"),
    })
}

fn with_brackets(text: &str) -> String {
    match text.rsplit_once(':') {
        Some((host, port)) if host.contains(':') && !host.starts_with('[') => {
            format!("[{host}]:{port}")
        }
        _ => text.to_owned(),
    }
}
