//! stunnel.conf: `key = value` in `[services]`, with defaults above them (stunnel(8)).

mod services;

use std::path::Path;

use crate::advice::{
    CLIENT_NETWORKS, CLIENTS_UNCHECKED, EARLIER_RULE, NOT_VERIFIED, ONE_CA_FILE, ONE_LABEL,
    PINNED_CLIENTS, REVOKED_SERVERS, SERVER_NAME_UNCHECKED, STARTTLS,
};
use crate::draft::Draft;
use crate::error::{ImportError, Position};
use crate::openssl::version;
use crate::section::Section;
use crate::toml::{Backend, Certificate, backends, certificates, list, quoted, quoted_list};
use services::{Service, ServiceReader, StunnelSetting};

/// Time after which stunnel closes an idle connection by default.
const IDLE_DEFAULT_MS: u64 = 12 * 3_600_000;

pub(super) fn read(text: &str, position: &Position, folder: &Path) -> Result<Draft, ImportError> {
    let ServiceReader {
        services,
        defaults,
        mut draft,
        ..
    } = ServiceReader::read(text, position, folder)?;
    let (of_services, of_program): (Vec<_>, Vec<_>) = defaults
        .into_iter()
        .partition(|one| is_of_service(&one.key));
    let mut all = Vec::new();
    for service in services {
        // Settings above the services apply to each service without its own.
        let entries = [of_services.clone(), service.entries].concat();
        all.push(Service { entries, ..service });
    }
    for service in &all {
        read_service(service, &all, &mut draft);
    }
    if !draft.is_empty() {
        of_program.iter().for_each(|one| program(one, &mut draft));
    }
    Ok(draft)
}

fn is_of_service(key: &str) -> bool {
    const OF_PROGRAM: [&str; 15] = [
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
        "chroot",
        "log",
        "egd",
        "compression",
        "engine",
    ];
    !OF_PROGRAM.contains(&key) && !key.starts_with("engineC") && !key.starts_with("engineD")
}

fn program(one: &StunnelSetting, draft: &mut Draft) {
    let why = match one.key.as_str() {
        "debug" if one.is("debug") || one.is("7") => {
            return draft.set_text("log_level", "debug");
        }
        "setuid" => return draft.set_text("user", &one.value),
        "setgid" => return draft.set_text("group", &one.value),
        "pid" | "foreground" | "debug" | "syslog" | "rndfile" | "rndbytes" => return,
        "fips" if one.is("no") => return,
        "output" | "log" => "the log goes to standard error",
        "chroot" => "workers confine themselves (`sandbox`); paths are not relative to a chroot",
        _ => "no equivalent",
    };
    draft.leave_out(&one.position, &one.shown(), why);
}

fn read_service(service: &Service, all: &[Service], draft: &mut Draft) {
    let title = format!("[{}]", service.name);
    let is_client = service.is_on("client");
    let mut section = Section::new(is_client, title.clone());
    let listen = match (service.value("accept"), is_client) {
        (Some(accept), true) if accept.starts_with('/') => format!("unix:{accept}"),
        (Some(accept), _) => accept_address(accept),
        (None, false) if service.find("sni").is_some() => {
            match second(service, all, &mut section) {
                Some(listen) => listen,
                None => {
                    return draft.leave_out(
                        &service.position,
                        &title,
                        "the service that `sni` names does not exist",
                    );
                }
            }
        }
        (None, _) => {
            return draft.leave_out(
                &service.position,
                &title,
                "it accepts no connections itself (inetd mode)",
            );
        }
    };
    section.set_text("listen", &listen);
    if !connect(service, &mut section) {
        let what = format!(
            "{title} has no `connect` (`exec` is not supported): keep stunnel for it, or this address will not be served"
        );
        return draft.add_to_do(&service.position, &what);
    }
    if let Some(cert) = service.find("cert") {
        if cert.value.starts_with("pkcs11:") {
            section.add_to_do(
                &cert.position,
                "keys are read from files: list them in `certificates`",
            );
        } else {
            let one = Certificate {
                cert: cert.value.clone(),
                key: service.value("key").map(str::to_owned),
                ocsp: None,
            };
            section.set("certificates", certificates(&[one]));
        }
    }
    match is_client {
        true => trust(service, &mut section),
        false => clients(service, &mut section),
    }
    crypto(service, &mut section);
    if service.find("timeoutidle").is_none()
        && all.iter().any(|other| other.find("timeoutidle").is_some())
    {
        draft.longest("idle_timeout", IDLE_DEFAULT_MS, &service.position, "");
    }
    for entry in &service.entries {
        if !check_of_peer(entry, service, &mut section) {
            rest(entry, service, &mut section, draft);
        }
    }
    draft.sections.push(section);
}

/// Handles a service for some names of another service's address: `sni = OTHER:NAME`.
fn second(service: &Service, all: &[Service], section: &mut Section) -> Option<String> {
    let mut names = Vec::new();
    let mut listen = None;
    for one in service.all("sni") {
        let (other, name) = one.value.split_once(':')?;
        let first = all.iter().find(|service| service.name == other)?;
        listen = first.value("accept").map(accept_address);
        if name.starts_with('*') {
            section.leave_out(&one.position, &one.shown(), ONE_LABEL);
        }
        let before = all.iter().take_while(|one| one.name != service.name);
        if before
            .flat_map(|one| one.all("sni"))
            .any(|earlier| is_decided_by(&one.value, &earlier.value))
        {
            let what = format!("{}: {EARLIER_RULE}", one.shown());
            section.add_to_do(&one.position, &what);
        }
        names.push(name);
    }
    section.set("server_names", quoted_list(&names));
    listen
}

/// Returns whether an earlier `SERVICE:*END` has names of this one, too: stunnel then uses the earlier one.
fn is_decided_by(sni: &str, earlier: &str) -> bool {
    let lower = |text: &str| text.to_ascii_lowercase();
    let (sni, earlier) = (lower(sni), lower(earlier));
    match (sni.split_once(':'), earlier.split_once(":*")) {
        (Some((first, name)), Some((other, end))) => first == other && name.ends_with(end),
        _ => false,
    }
}

/// Sets where connections go. Returns `false` if there is no target.
fn connect(service: &Service, section: &mut Section) -> bool {
    let all: Vec<String> = service
        .all("connect")
        .map(|one| connect_address(&one.value))
        .collect();
    let failover = service.find("failover").filter(|one| one.is("rr"));
    if section.originate {
        if let Some(one) = failover {
            let why = "servers are tried in the order of `to`";
            section.leave_out(&one.position, &one.shown(), why);
        }
        section.set(
            "to",
            list(&all.iter().map(|one| quoted(one)).collect::<Vec<_>>()),
        );
        return !all.is_empty();
    }
    // stunnel's default is the order of the file.
    let backend = |(n, address): (usize, &String)| Backend {
        address: address.clone(),
        is_backup: n > 0 && failover.is_none(),
        ..Backend::default()
    };
    let all: Vec<Backend> = all.iter().enumerate().map(backend).collect();
    section.set("to", backends(&all));
    !all.is_empty()
}

/// What stunnel verifies of a peer's certificate.
#[derive(Default)]
struct Verification<'a> {
    /// The chain.
    chain: bool,
    /// The certificate itself, by comparison.
    peer: bool,
    /// The line that requires a certificate.
    required: Option<&'a StunnelSetting>,
}

impl Verification<'_> {
    /// Returns what a service verifies. Each line changes what the lines before it have set.
    fn of(service: &Service) -> Verification<'_> {
        let mut all = Verification::default();
        for one in &service.entries {
            let is_on = one.is("yes");
            match one.key.as_str() {
                "verify" => {
                    let level: u8 = one.value.parse().unwrap_or(0);
                    (all.chain, all.peer) = ((1..=3).contains(&level), level >= 3);
                    all.required = (level >= 2).then_some(one);
                }
                "verifychain" => all.chain = is_on,
                "verifypeer" => all.peer = is_on,
                "requirecert" if !is_on => all.required = None,
                _ => {}
            }
            if is_on && matches!(&*one.key, "verifychain" | "verifypeer" | "requirecert") {
                all.required = Some(one);
            }
        }
        all
    }

    fn is_any(&self) -> bool {
        self.chain || self.peer
    }
}

const PINNED: &str = "stunnel accepts only the servers' certificates that are in CAfile: set `ca` to their authority, or to a self-signed certificate itself";

/// Sets the authorities of a client. stunnel trusts any server by default, which is not converted
/// silently.
fn trust(service: &Service, section: &mut Section) {
    let verification = Verification::of(service);
    let ca = service.value("cafile");
    match (verification.is_any(), ca) {
        (true, Some(file)) => {
            section.set_text("ca", file);
            if verification.peer {
                section.add_to_do(&service.position, PINNED);
            }
        }
        // A folder of hashed certificates is usually the operating system's.
        (true, None) => section.set_text("ca", "system"),
        (false, _) => {
            section.set("insecure", "true");
            let why = NOT_VERIFIED;
            section.leave_out(&service.position, "verifyChain", why);
        }
    }
    if let (true, Some(one)) = (
        verification.is_any(),
        service
            .find("capath")
            .filter(|one| ca.is_none() && one.value != "/etc/ssl/certs"),
    ) {
        // Until then authorities are trusted that stunnel did not trust.
        let what = format!("{}: {ONE_CA_FILE}", one.shown());
        section.add_to_do(&one.position, &what);
    }
    let name = service
        .find("checkhost")
        .or(service.find("sni"))
        .or(service.find("checkip"));
    match name.filter(|name| !name.value.is_empty()) {
        Some(name) => section.set_text("server_name", &name.value),
        None if verification.is_any() => {
            section.leave_out(&service.position, "checkHost", SERVER_NAME_UNCHECKED);
        }
        None => {}
    }
}

/// Converts the verification of client certificates.
fn clients(service: &Service, section: &mut Section) {
    let verification = Verification::of(service);
    if !verification.is_any() {
        if let Some(one) = verification.required {
            section.leave_out(&one.position, &one.shown(), NOT_REQUESTED);
        }
        return;
    }
    let how = match verification.required {
        Some(_) => "required",
        None => "optional",
    };
    let crls: Vec<String> = ["crlfile", "crlpath"]
        .into_iter()
        .filter_map(|key| service.value(key))
        .map(str::to_owned)
        .collect();
    let ca = service.value("cafile").or(service.value("capath"));
    section.clients(how, ca, &crls);
    let hosts: Vec<String> = service
        .all("checkhost")
        .map(|one| format!("dns={}", one.value))
        .collect();
    if !hosts.is_empty() {
        section.set("client_allow", quoted_list(&hosts));
    }
    if verification.peer {
        section.add_to_do(&service.position, PINNED_CLIENTS);
    }
}

const NOT_REQUESTED: &str = "certificates were required, but not verified, and none is \
    requested here: set `client_certificates` and `client_ca` to verify them";

fn versions(service: &Service, section: &mut Section) {
    for one in &service.entries {
        let options: &[&'static str] = match one.key.as_str() {
            "sslversion" => &["min_version", "max_version"],
            "sslversionmin" => &["min_version"],
            "sslversionmax" => &["max_version"],
            _ => continue,
        };
        match version(&one.value) {
            Some(ours) => options
                .iter()
                .for_each(|option| section.set_text(option, ours)),
            // An older minimum becomes the oldest supported version.
            None if one.is("all") || one.key == "sslversionmin" => {
                options.iter().for_each(|option| section.remove(option));
            }
            None => section.leave_out(
                &one.position,
                &one.shown(),
                "TLS 1.2 is the oldest supported version",
            ),
        }
    }
    // These count wherever they are. Old versions write a dot instead of the last `_`.
    for one in service.all("options") {
        match one.value.to_ascii_uppercase().replace('.', "_").as_str() {
            "NO_TLSV1_2" => section.set_text("min_version", "1.3"),
            "NO_TLSV1_3" => section.set_text("max_version", "1.2"),
            _ => {}
        }
    }
}

fn crypto(service: &Service, section: &mut Section) {
    versions(service, section);
    if section.originate {
        return;
    }
    let (tls12, tls13) = (service.find("ciphers"), service.find("ciphersuites"));
    if let Some(one) = tls12.or(tls13) {
        let text = |one: Option<&StunnelSetting>| one.map(|one| one.value.clone());
        section.suites(
            &one.position,
            &one.shown(),
            text(tls12).as_deref(),
            text(tls13).as_deref(),
        );
    }
    if let Some(one) = service.find("curves") {
        section.groups(&one.position, &one.shown(), &one.value);
    }
}

/// Reports a check of the peer's certificate that Dormouse does not make. Returns `false` if the setting is none.
fn check_of_peer(one: &StunnelSetting, service: &Service, section: &mut Section) -> bool {
    let (key, shown) = (one.key.as_str(), one.shown());
    let to_do = |why: &str| format!("{shown}: {why}");
    match (key, section.originate) {
        ("ocspaia", _) if one.is("no") => {}
        ("ocspaia" | "ocsp" | "crlfile" | "crlpath" | "checkemail" | "checkip", _)
            if !Verification::of(service).is_any() =>
        {
            let why = "it had no effect: no certificate was verified";
            section.leave_out(&one.position, &shown, why);
        }
        ("ocspaia" | "ocsp" | "checkemail" | "checkip", false) => {
            section.add_to_do(&one.position, &to_do(CLIENTS_UNCHECKED));
        }
        ("ocspaia" | "ocsp" | "crlfile" | "crlpath", true) => {
            section.add_to_do(&one.position, &to_do(REVOKED_SERVERS));
        }
        ("capath", _) if service.find("cafile").is_some() && Verification::of(service).is_any() => {
            let why = "peers with certificates of these authorities were accepted, too: append them to CAfile";
            section.leave_out(&one.position, &shown, why);
        }
        ("checkemail", true) => {
            let why = "the address in the server's certificate is not checked; here the certificate must be for \
                the host of `to`, or for `server_name`";
            section.leave_out(&one.position, &shown, why);
        }
        _ => return false,
    }
    true
}

fn rest(one: &StunnelSetting, service: &Service, section: &mut Section, draft: &mut Draft) {
    let shown = one.shown();
    let to_do = |why: &str| format!("{shown}: {why}");
    let mut seconds = |name| match one.value.parse::<u64>() {
        Ok(n) => draft.longest(name, n.saturating_mul(1000), &one.position, &shown),
        Err(_) => draft.leave_out(&one.position, &shown, "it is not a number of seconds"),
    };
    let why = match one.key.as_str() {
        "timeoutidle" => return seconds("idle_timeout"),
        "timeoutconnect" => return seconds("backend_connect_timeout"),
        "timeoutbusy" => return seconds("handshake_timeout"),
        "timeoutclose" if one.value == "0" => return section.set_text("truncation", "close"),
        "protocol" if one.is("proxy") && !section.originate => {
            return section.set_text("proxy_protocol", "v1");
        }
        "local" if !section.originate => return section.set_text("source_addresses", &one.value),
        "sessionresume" if one.is("no") => match section.originate {
            true => return section.set("resume_uses", "0"),
            false => return draft.set("tickets", "0"),
        },
        "sessioncachetimeout" if section.originate => {
            return section.set_text("resume_age", &format!("{}s", one.value));
        }
        "alpn" => return section.set("alpn", quoted_list(&[&one.value])),
        "options" if one.is("NO_TICKET") => {
            "tickets are sealed with rotating keys; use `session_cache` to keep sessions on this machine"
        }
        "protocol" => {
            return section.add_to_do(&one.position, &to_do(STARTTLS));
        }
        "ciphers" | "ciphersuites" | "curves" if section.originate => {
            "all suites here are AEAD with forward secrecy"
        }
        "libwrap" if one.is("yes") => {
            let what = format!("hosts.allow and hosts.deny limited the clients: {CLIENT_NETWORKS}");
            return section.add_to_do(&one.position, &what);
        }
        "redirect" => "clients without a valid certificate are refused here, not redirected",
        "transparent" => {
            "use `proxy_protocol` to send clients' addresses to backends that understand it"
        }
        "ticketkeysecret" | "ticketmacsecret" | "sessiond" => {
            "use `ticket_keys` to share sessions among machines"
        }
        "exec" | "execargs" | "pty" | "ident" | "engineid" | "enginenum" | "caengine"
        | "socket" | "config" => "no equivalent",
        "psksecrets" => {
            let what = to_do(
                "pre-shared keys (PSK) are not supported: keep stunnel for the peers that use them",
            );
            return section.add_to_do(&one.position, &what);
        }
        "pskidentity" => return,
        // 2 is OpenSSL's default, which every suite and key here reaches.
        "securitylevel" if one.value.parse::<u8>().is_ok_and(|level| level > 2) => {
            "keys and suites of 112 bits of security are accepted (level 2); `suites` and `groups` can be limited"
        }
        key if key.starts_with("protocol") || key.starts_with("ocsp") => "no equivalent",
        // Converted already, or without effect.
        _ if is_known(&one.key) || service.find("connect").is_none() => return,
        _ => "no equivalent",
    };
    section.leave_out(&one.position, &shown, why);
}

fn is_known(key: &str) -> bool {
    const KNOWN: [&str; 36] = [
        "accept",
        "connect",
        "cert",
        "key",
        "client",
        "cafile",
        "capath",
        "checkhost",
        "checkip",
        "verifychain",
        "verifypeer",
        "verify",
        "requirecert",
        "crlfile",
        "crlpath",
        "sni",
        "sslversion",
        "sslversionmin",
        "sslversionmax",
        "ciphers",
        "ciphersuites",
        "curves",
        "options",
        "failover",
        "timeoutclose",
        "renegotiation",
        "reset",
        "retry",
        "delay",
        "sessioncachesize",
        "sessioncachetimeout",
        "securitylevel",
        "logid",
        "libwrap",
        "debug",
        "sessionresume",
    ];
    KNOWN.contains(&key)
}

/// Converts `443`, `host:443` or `:::443`. Without a host it is IPv4; `::` accepts IPv4 clients, too.
fn accept_address(text: &str) -> String {
    match text.rsplit_once(':') {
        None => format!("0.0.0.0:{text}"),
        Some(("", port)) => format!("0.0.0.0:{port}"),
        Some(("::" | "[::]", port)) => format!(":{port}"),
        Some(_) => with_brackets(text),
    }
}

fn connect_address(text: &str) -> String {
    match text {
        path if path.starts_with('/') => format!("unix:{path}"),
        port if !port.contains(':') => format!("127.0.0.1:{port}"),
        text => with_brackets(text),
    }
}

fn with_brackets(text: &str) -> String {
    match text.rsplit_once(':') {
        Some((host, port)) if host.contains(':') && !host.starts_with('[') => {
            format!("[{host}]:{port}")
        }
        _ => text.to_owned(),
    }
}
