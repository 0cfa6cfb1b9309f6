//! stunnel.conf: `key = value` in `[services]`, with defaults above them (stunnel(8)).

use super::said::{CLIENTS_UNCHECKED, NAME_OF_SERVER, NOT_VERIFIED, ONE_CA_FILE, PINNED};
use std::path::Path;

use super::draft::{
    Backend, Certificate, Draft, Section, backends, certificates, list, quoted, quoted_list,
};
use super::fault::{Fault, Spot};
use super::words::version;
use super::{files_in, read as read_file};

/// Files that are included, in all.
const INCLUDES_MAX: usize = 200;

#[derive(Clone, Debug)]
struct Entry {
    spot: Spot,
    key: String,
    value: String,
}

impl Entry {
    fn shown(&self) -> String {
        format!("{} = {}", self.key, self.value)
    }
}

struct Service {
    name: String,
    spot: Spot,
    entries: Vec<Entry>,
}

impl Service {
    /// The last one counts.
    fn find(&self, key: &str) -> Option<&Entry> {
        self.entries
            .iter()
            .rev()
            .find(|one| one.key.eq_ignore_ascii_case(key))
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.find(key).map(|one| one.value.as_str())
    }

    fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries
            .iter()
            .filter(move |one| one.key.eq_ignore_ascii_case(key))
    }

    fn is_on(&self, key: &str) -> bool {
        self.value(key) == Some("yes")
    }
}

/// What is being read.
#[derive(Default)]
struct Reader {
    services: Vec<Service>,
    /// What stands above all services.
    defaults: Vec<Entry>,
    draft: Draft,
    included: usize,
}

pub(super) fn read(text: &str, spot: &Spot, folder: &Path) -> Result<Draft, Fault> {
    let mut reader = Reader::default();
    reader.text(text, spot, folder, 0)?;
    let Reader {
        services,
        defaults,
        mut draft,
        ..
    } = reader;
    let (of_services, of_program): (Vec<_>, Vec<_>) = defaults
        .into_iter()
        .partition(|one| is_of_service(&one.key));
    let mut all = Vec::new();
    for service in services {
        // What is said above holds for each that says nothing else.
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

impl Reader {
    fn text(&mut self, text: &str, spot: &Spot, folder: &Path, depth: usize) -> Result<(), Fault> {
        for (n, line) in text.lines().enumerate() {
            let spot = spot.at(n + 1);
            let line = line.trim();
            if line.is_empty() || line.starts_with([';', '#']) {
                continue;
            }
            if let Some(inner) = line.strip_prefix('[') {
                let Some(name) = inner.strip_suffix(']') else {
                    return Err(Fault::new(
                        &spot,
                        n + 1,
                        "the `[` in this line is never closed",
                        "a service begins with [NAME]",
                    ));
                };
                self.services.push(Service {
                    name: name.to_owned(),
                    spot,
                    entries: Vec::new(),
                });
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                self.draft
                    .leave_out(&spot, line, "this is no `key = value`");
                continue;
            };
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            if key == "include" {
                self.include(&value, &spot, folder, depth)?;
                continue;
            }
            let entry = Entry { spot, key, value };
            match self.services.last_mut() {
                Some(service) => service.entries.push(entry),
                None => self.defaults.push(entry),
            }
        }
        Ok(())
    }

    /// All files of a folder, in the order of their names.
    fn include(
        &mut self,
        value: &str,
        spot: &Spot,
        folder: &Path,
        depth: usize,
    ) -> Result<(), Fault> {
        let path = folder.join(value);
        if !path.is_dir() {
            self.draft.leave_out(
                spot,
                &format!("include = {value}"),
                "this folder is not there",
            );
            return Ok(());
        }
        for file in files_in(&path, |_| true) {
            self.included += 1;
            if depth >= 10 || self.included > INCLUDES_MAX {
                let what = format!(
                    "{} is one file too many: 200 are read, 10 deep",
                    file.display()
                );
                return Err(Fault::new(
                    spot,
                    spot.line,
                    what,
                    "do they include each other?",
                ));
            }
            let spot = Spot::included(&file.display().to_string());
            self.text(&read_file(&file, &spot)?, &spot, folder, depth + 1)?;
        }
        Ok(())
    }
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
        "RNDfile",
        "RNDbytes",
        "chroot",
        "log",
        "EGD",
        "compression",
        "engine",
    ];
    !OF_PROGRAM.contains(&key) && !key.starts_with("engineC") && !key.starts_with("engineD")
}

fn program(one: &Entry, draft: &mut Draft) {
    let why = match one.key.as_str() {
        "debug" if matches!(one.value.as_str(), "debug" | "7") => {
            return draft.say("log_level", "debug");
        }
        "setuid" => return draft.say("user", &one.value),
        "setgid" => return draft.say("group", &one.value),
        "pid" | "foreground" | "debug" | "syslog" | "RNDfile" | "RNDbytes" => return,
        "fips" if one.value == "no" => return,
        "output" | "log" => "the log goes to standard error",
        "chroot" => "workers confine themselves (`sandbox`); paths are as they are",
        _ => "no counterpart",
    };
    draft.leave_out(&one.spot, &one.shown(), why);
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
                        &service.spot,
                        &title,
                        "the service that `sni` names is not there",
                    );
                }
            }
        }
        (None, _) => {
            return draft.leave_out(&service.spot, &title, "it accepts nothing (inetd mode)");
        }
    };
    section.say("listen", &listen);
    if !connect(service, &mut section) {
        return draft.leave_out(
            &service.spot,
            &title,
            "it has no `connect` (`exec` is not done here)",
        );
    }
    if let Some(cert) = service.find("cert") {
        if cert.value.starts_with("pkcs11:") {
            section.do_this(
                &cert.spot,
                "keys are read from files: give them to `certificates`",
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
    for entry in &service.entries {
        rest(entry, service, &mut section, draft);
    }
    draft.sections.push(section);
}

/// A service for some names of another one's address: `sni = OTHER:NAME`.
fn second(service: &Service, all: &[Service], section: &mut Section) -> Option<String> {
    let mut names = Vec::new();
    let mut listen = None;
    for one in service.all("sni") {
        let (other, name) = one.value.split_once(':')?;
        let first = all.iter().find(|service| service.name == other)?;
        listen = first.value("accept").map(accept_address);
        names.push(name);
    }
    section.set("server_names", quoted_list(&names));
    listen
}

/// Where it goes. False: nowhere.
fn connect(service: &Service, section: &mut Section) -> bool {
    let all: Vec<String> = service
        .all("connect")
        .map(|one| connect_address(&one.value))
        .collect();
    if section.originate {
        section.set(
            "to",
            list(&all.iter().map(|one| quoted(one)).collect::<Vec<_>>()),
        );
        return !all.is_empty();
    }
    // Its default is the order of the file.
    let in_turn = service.value("failover") == Some("rr");
    let backend = |(n, address): (usize, &String)| Backend {
        address: address.clone(),
        is_backup: n > 0 && !in_turn,
        ..Backend::default()
    };
    let all: Vec<Backend> = all.iter().enumerate().map(backend).collect();
    section.set("to", backends(&all));
    !all.is_empty()
}

/// Whether and how peers' certificates are judged: the chain, and the very certificate.
fn verifies(service: &Service) -> (bool, bool) {
    let level = service.value("verify").unwrap_or("0");
    let chain = service.is_on("verifyChain") || matches!(level, "1" | "2" | "3");
    let peer = service.is_on("verifyPeer") || matches!(level, "3" | "4");
    (chain, peer)
}

/// Whom a client trusts. stunnel trusts anybody unless told otherwise; that is not carried over
/// silently.
fn trust(service: &Service, section: &mut Section) {
    let (chain, peer) = verifies(service);
    let ca = service.value("CAfile");
    match (chain || peer, ca) {
        (true, Some(file)) => section.say("ca", file),
        // A folder of hashed certificates is what the operating system has.
        (true, None) => section.say("ca", "system"),
        (false, _) => {
            section.set("insecure", "true");
            let why = NOT_VERIFIED;
            section.leave_out(&service.spot, "verifyChain", why);
        }
    }
    if let (true, Some(one)) = (
        chain || peer,
        service
            .find("CApath")
            .filter(|one| ca.is_none() && one.value != "/etc/ssl/certs"),
    ) {
        section.leave_out(&one.spot, &one.shown(), ONE_CA_FILE);
    }
    let name = service
        .find("checkHost")
        .or(service.find("sni"))
        .or(service.find("checkIP"));
    match name.filter(|name| !name.value.is_empty()) {
        Some(name) => section.say("server_name", &name.value),
        None if chain || peer => {
            section.leave_out(&service.spot, "checkHost", NAME_OF_SERVER);
        }
        None => {}
    }
}

/// Whether it is a service whose clients have to show a certificate.
fn asks_clients(service: &Service) -> bool {
    let (chain, peer) = verifies(service);
    !service.is_on("client") && (chain || peer)
}

/// What clients have to show.
fn clients(service: &Service, section: &mut Section) {
    let (chain, peer) = verifies(service);
    if !chain && !peer {
        return;
    }
    let is_asked_only =
        service.value("verify") == Some("1") && !service.is_on("verifyChain") && !peer;
    let how = if is_asked_only {
        "optional"
    } else {
        "required"
    };
    let crls: Vec<String> = ["CRLfile", "CRLpath"]
        .into_iter()
        .filter_map(|key| service.value(key))
        .map(str::to_owned)
        .collect();
    let ca = service.value("CAfile").or(service.value("CApath"));
    section.clients(how, ca, &crls);
    let hosts: Vec<String> = service
        .all("checkHost")
        .map(|one| format!("dns={}", one.value))
        .collect();
    if !hosts.is_empty() {
        section.set("client_allow", quoted_list(&hosts));
    }
    if peer {
        section.do_this(&service.spot, PINNED);
    }
}

fn crypto(service: &Service, section: &mut Section) {
    for one in &service.entries {
        let options: &[&'static str] = match one.key.as_str() {
            "sslVersion" => &["min_version", "max_version"],
            "sslVersionMin" => &["min_version"],
            "sslVersionMax" => &["max_version"],
            _ => continue,
        };
        match version(&one.value) {
            Some(ours) => options.iter().for_each(|option| section.say(option, ours)),
            // Older ones may be the oldest: then ours is.
            None if one.value == "all" || one.key == "sslVersionMin" => {}
            None => section.leave_out(&one.spot, &one.shown(), "TLS 1.2 is the oldest here"),
        }
    }
    if section.originate {
        return;
    }
    let (tls12, tls13) = (service.find("ciphers"), service.find("ciphersuites"));
    if let Some(one) = tls12.or(tls13) {
        let text = |one: Option<&Entry>| one.map(|one| one.value.clone());
        section.suites(
            &one.spot,
            &one.shown(),
            text(tls12).as_deref(),
            text(tls13).as_deref(),
        );
    }
    if let Some(one) = service.find("curves") {
        section.groups(&one.spot, &one.shown(), &one.value);
    }
}

fn rest(one: &Entry, service: &Service, section: &mut Section, draft: &mut Draft) {
    let shown = one.shown();
    let mut seconds = |name| match one.value.parse::<u64>() {
        Ok(n) => draft.longest(name, n.saturating_mul(1000), &one.spot, &shown),
        Err(_) => draft.leave_out(&one.spot, &shown, "it is no number of seconds"),
    };
    let why = match one.key.as_str() {
        "TIMEOUTidle" => return seconds("idle_timeout"),
        "TIMEOUTconnect" => return seconds("backend_connect_timeout"),
        "TIMEOUTbusy" => return seconds("handshake_timeout"),
        "TIMEOUTclose" if one.value == "0" => return section.say("truncation", "close"),
        "protocol" if one.value == "proxy" && !section.originate => {
            return section.say("proxy_protocol", "v1");
        }
        "local" if !section.originate => return section.say("source_addresses", &one.value),
        "sessionResume" if one.value == "no" => match section.originate {
            true => return section.set("resume_uses", "0"),
            false => return draft.set("tickets", "0"),
        },
        "sessionCacheTimeout" if section.originate => {
            return section.say("resume_age", &format!("{}s", one.value));
        }
        "alpn" => return section.set("alpn", quoted_list(&[&one.value])),
        "options" if one.value == "NO_TICKET" => {
            "tickets are sealed with keys that change; see `session_cache` to keep sessions here"
        }
        "protocol" => "it speaks in the clear before TLS begins, which is not done here",
        "OCSPaia" | "OCSP" | "checkEmail" | "checkIP" if asks_clients(service) => {
            return section.do_this(&one.spot, &format!("{shown}: {CLIENTS_UNCHECKED}"));
        }
        "OCSPaia" | "OCSP" | "checkEmail" => "not checked here",
        "CRLfile" | "CRLpath" if section.originate => "revocation lists are for clients only",
        "ciphers" | "ciphersuites" | "curves" if section.originate => {
            "all suites here are AEAD with forward secrecy"
        }
        "libwrap" if one.value == "yes" => "see `allow` and `deny`",
        "redirect" | "exec" | "execArgs" | "pty" | "transparent" | "ident" | "engineId"
        | "engineNum" | "CAengine" | "ticketKeySecret" | "ticketMacSecret" | "sessiond"
        | "socket" | "config" => "no counterpart",
        "PSKsecrets" | "PSKidentity" => "keys agreed on beforehand (PSK) are not spoken",
        key if key.starts_with("protocol") || key.starts_with("OCSP") => "no counterpart",
        "checkIP" if !section.originate => "see `client_allow`",
        // Carried over already, or nothing is lost without it.
        _ if is_known(&one.key) || service.find("connect").is_none() => return,
        _ => "no counterpart",
    };
    section.leave_out(&one.spot, &shown, why);
}

fn is_known(key: &str) -> bool {
    const KNOWN: [&str; 32] = [
        "accept",
        "connect",
        "cert",
        "key",
        "client",
        "CAfile",
        "CApath",
        "checkHost",
        "checkIP",
        "verifyChain",
        "verifyPeer",
        "verify",
        "requireCert",
        "CRLfile",
        "CRLpath",
        "sni",
        "sslVersion",
        "sslVersionMin",
        "sslVersionMax",
        "ciphers",
        "ciphersuites",
        "curves",
        "options",
        "failover",
        "TIMEOUTclose",
        "renegotiation",
        "reset",
        "retry",
        "delay",
        "sessionCacheSize",
        "sessionCacheTimeout",
        "securityLevel",
    ];
    KNOWN.contains(&key)
        || matches!(
            key,
            "logId" | "libwrap" | "debug" | "sessionResume" | "local"
        )
}

/// `443`, `host:443`, `:::443`. Without a host it is IPv4.
fn accept_address(text: &str) -> String {
    match text.rsplit_once(':') {
        None => format!("0.0.0.0:{text}"),
        Some(("", port)) => format!("0.0.0.0:{port}"),
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
