//! `bind ADDRESS ssl crt FILE …`

use std::path::Path;

use super::address::{BindAddress, of_bind};
use super::config::Config;
use super::syntax::{HaproxySection, Keyword, Keywords, Line, enter};
use crate::advice::{
    CERTIFICATE_OPTIONS, CERTIFICATE_VERIFIES, CERTIFICATES_BY_NAME, NO_DOOR, NO_QUIC,
    PROXY_NETWORKS, QUIC,
};
use crate::certificates::{Directory, LISTED_ONE_BY_ONE, directory};
use crate::draft::Draft;
use crate::error::Position;
use crate::openssl::version;
use crate::origin::Origins;
use crate::section::{NO_NEW_VERSION, OLD_VERSION, Section};
use crate::toml::{Certificate, certificates, list, quoted, quoted_list};
use crate::value::time;

const DEFAULT: &str = "this is the default here, too";
const OWN: &str = "sockets and threads of HAProxy";

/// Words of a bind without effect here, with the number of their values, and why.
pub(super) const WITHOUT_EFFECT: &[(&str, usize, &str)] = &[
    ("name", 1, "a name for statistics"),
    ("label", 1, "a name for statistics"),
    ("id", 1, "a name for statistics"),
    ("guid-prefix", 1, "a name for statistics"),
    ("nice", 1, OWN),
    ("process", 1, OWN),
    ("thread", 1, OWN),
    ("shards", 1, OWN),
    ("mss", 1, OWN),
    ("mode", 1, OWN),
    ("user", 1, OWN),
    ("uid", 1, OWN),
    ("group", 1, OWN),
    ("gid", 1, OWN),
    ("level", 1, OWN),
    ("severity-output", 1, OWN),
    ("defer-accept", 0, OWN),
    ("expose-fd", 1, OWN),
    ("v4v6", 0, "an address for all families takes both"),
    ("v6only", 0, "[::] takes IPv6 only here, too"),
    (
        "prefer-client-ciphers",
        0,
        "the client chooses among the suites, which are all AEAD",
    ),
    ("no-ca-names", 0, DEFAULT),
    ("no-sslv3", 0, OLD_VERSION),
    ("no-tlsv10", 0, OLD_VERSION),
    ("no-tlsv11", 0, OLD_VERSION),
    ("tls-tickets", 0, DEFAULT),
    ("quic-cc-algo", 1, NO_QUIC),
    ("quic-force-retry", 0, NO_QUIC),
    ("quic-socket", 1, NO_QUIC),
    ("ssl", 0, "it belongs to an address that is not converted"),
];

/// What a bind says about TLS, before its defaults are added.
#[derive(Default)]
struct BindSettings {
    certificates: Vec<Certificate>,
    /// How many of them, at the beginning, are for clients that send no name, or an unknown one.
    defaults: usize,
    of_certificates: Origins,
    verify: Option<(String, Origins)>,
    ca: Option<(String, Origins)>,
    crls: Vec<String>,
    of_crls: Origins,
    ciphers: Option<(String, Origins)>,
    ciphersuites: Option<(String, Origins)>,
    curves: Option<(String, Origins)>,
    no_tickets: Origins,
    no_tls: Vec<&'static str>,
    of_no_tls: Origins,
    /// Lines that choose a certificate by other names than its own.
    by_name: Origins,
}

impl BindSettings {
    /// Adds certificates. The first of all is a default as well, also if a `default-crt` follows it.
    fn load(&mut self, found: Vec<Certificate>, are_defaults: bool) {
        let count = match are_defaults {
            true => found.len(),
            false => usize::from(self.certificates.is_empty()),
        };
        let at = match are_defaults {
            true => self.defaults,
            false => self.certificates.len(),
        };
        self.certificates.splice(at..at, found).for_each(drop);
        self.defaults += count;
    }
}

/// Converts a bind, for these of its addresses.
pub(super) fn read(
    line: &Line,
    addresses: &[String],
    part: &HaproxySection,
    config: &Config,
    section: &mut Section,
    draft: &mut Draft,
) {
    let has_tls = line.has_word("ssl");
    listen(line, addresses, config, section);
    let mut settings = BindSettings::default();
    let defaults = (config.all_global("ssl-default-bind-options")).filter(|_| has_tls);
    for line in defaults.chain([line]) {
        let mut words = line.keywords();
        while let Some(keyword) = words.next() {
            word(keyword, &mut words, config, &mut settings, section, draft);
        }
        if line.word(0) != "bind" {
            section.without_effect(line.origin, "it is part of each bind");
        }
    }
    if !has_tls {
        section.set("pass_through", "true", Origins::default());
        return;
    }
    // HAProxy puts each line before those above it: the last certificate is for clients without a name.
    for line in part.all("ssl-f-use").rev() {
        of_frontend(line, config, &mut settings, section, draft);
    }
    let by_name = std::mem::take(&mut settings.by_name);
    match section.value("unknown_name") {
        _ if by_name.is_empty() => {}
        // Only these names were served.
        Some(_) => section.step(by_name, CERTIFICATES_BY_NAME),
        None => section.left_out(by_name, CERTIFICATES_BY_NAME),
    }
    if !settings.certificates.is_empty() {
        let value = certificates(&settings.certificates);
        section.set("certificates", value, settings.of_certificates.clone());
    }
    crypto(settings, config, section, draft);
}

/// Sets suites, groups, versions, sessions and client certificates.
fn crypto(settings: BindSettings, config: &Config, section: &mut Section, draft: &mut Draft) {
    let or_global = |own: Option<(String, Origins)>, name: &str, section: &mut Section| {
        let default = config.global(name);
        match (own, default) {
            (Some(own), default) => {
                if let Some(line) = default {
                    section.without_effect(line.origin, "the bind has its own");
                }
                Some(own)
            }
            (None, line) => line.map(|line| (line.word(1).to_owned(), Origins::from(line.origin))),
        }
    };
    let tls12 = or_global(settings.ciphers, "ssl-default-bind-ciphers", section);
    let tls13 = or_global(
        settings.ciphersuites,
        "ssl-default-bind-ciphersuites",
        section,
    );
    section.suites(
        tls12.as_ref().map(|(text, from)| (&**text, from.clone())),
        tls13.as_ref().map(|(text, from)| (&**text, from.clone())),
    );
    if let Some((list, from)) = or_global(settings.curves, "ssl-default-bind-curves", section) {
        section.groups(&list, from);
    }
    match settings.no_tls.as_slice() {
        [] => {}
        no if no.contains(&"1.3") && no.contains(&"1.2") => {
            section.step(settings.of_no_tls, NO_NEW_VERSION);
        }
        no if no.contains(&"1.3") => section.set_text("max_version", "1.2", settings.of_no_tls),
        _ => section.set_text("min_version", "1.3", settings.of_no_tls),
    }
    if !settings.no_tickets.is_empty() {
        section.has_no_tickets = true;
        // HAProxy then keeps sessions in a cache, some 200 bytes each.
        let line = config.global("tune.ssl.cachesize");
        let cache = line.map_or(20_000, |line| line.word(1).parse::<u64>().unwrap_or(20_000));
        let mut from = settings.no_tickets;
        from.add(
            line.map(|line| line.origin)
                .into_iter()
                .collect::<Origins>(),
        );
        match cache {
            0 => draft.no_tickets(section, from),
            sessions => {
                let size = format!("{} KiB", (sessions / 4).max(64));
                draft.program.set_text("session_cache", &size, from);
            }
        }
    }
    let crls = (settings.crls, settings.of_crls);
    clients(settings.verify, settings.ca, crls, section);
}

/// Sets the verification of clients.
fn clients(
    verify: Option<(String, Origins)>,
    ca: Option<(String, Origins)>,
    (files, crls): (Vec<String>, Origins),
    section: &mut Section,
) {
    match verify {
        Some((how, from)) if how != "none" => {
            if !matches!(&*how, "optional" | "required") {
                section.step(&from, "`verify` is `none`, `optional` or `required`");
            }
            let how = if how == "optional" {
                "optional"
            } else {
                "required"
            };
            section.set_text("client_certificates", how, from);
            if let Some((file, from)) = ca {
                section.set_text("client_ca", &file, from);
            }
            if !files.is_empty() {
                section.set("client_crl", quoted_list(&files), crls);
            }
        }
        other => {
            let mut from = crls;
            for (_, more) in other.into_iter().chain(ca) {
                from.add(more);
            }
            if !from.is_empty() {
                section.without_effect(from, "no client certificate is requested");
            }
        }
    }
}

/// Sets `listen` from several addresses separated by commas.
fn listen(line: &Line, addresses: &[String], config: &Config, section: &mut Section) {
    let from = Origins::from(line.origin);
    for (text, address) in of_bind(line, config) {
        match address {
            BindAddress::Tcp(_) => {}
            BindAddress::Quic => section.step(line.origin, format!("{text}: {QUIC}")),
            BindAddress::Other if text.contains('$') => {
                section.step(line.origin, format!("{text} names a variable of the environment: write the address into `listen`"));
            }
            BindAddress::Other => {
                section.doors.push(text.to_owned());
                section.step(line.origin, format!("{NO_DOOR} (not on {text})"));
            }
        }
    }
    section.doors.extend_from_slice(addresses);
    let all: Vec<String> = addresses.iter().map(|one| quoted(one)).collect();
    match all.is_empty() {
        false => section.set("listen", list(&all), from),
        true => section.without_effect(from, "it belongs to that address"),
    }
}

fn word<'a>(
    mut keyword: Keyword<'a>,
    words: &mut Keywords<'a>,
    config: &Config,
    settings: &mut BindSettings,
    section: &mut Section,
    draft: &mut Draft,
) {
    let name = keyword.word;
    if has_value(name) {
        let value = words.value(&mut keyword);
        // The others add to each other, or are for this route alone.
        if matches!(name, "backlog" | "tcp-ut" | "tls-ticket-keys") && words.come_to(name) {
            return draft.program.replaced(keyword.from);
        }
        return with_value(name, value, keyword.from, config, settings, section, draft);
    }
    let from = keyword.from;
    match name {
        "ssl" if section.has("listen") => section.also("listen", from),
        "force-tlsv12" | "no-tlsv13" => {
            settings.no_tls.push("1.3");
            settings.of_no_tls.add(from);
        }
        "force-tlsv13" | "no-tlsv12" => {
            settings.no_tls.push("1.2");
            settings.of_no_tls.add(from);
        }
        "no-tls-tickets" => settings.no_tickets.add(from),
        "strict-sni" => section.set_text("unknown_name", "refuse", from),
        "no-strict-sni" | "no-alpn" => {
            let cancelled = match name {
                "no-alpn" => "alpn",
                _ => "unknown_name",
            };
            let mut from = from;
            from.add(section.remove(cancelled));
            section.without_effect(from, DEFAULT);
        }
        "accept-proxy" => section.step(from, PROXY_NETWORKS),
        "allow-0rtt" => section.left_out(from, "0-RTT data is never accepted"),
        "tfo" | "transparent" => section.left_out(from, "no equivalent"),
        "generate-certificates" => section.step(
            from,
            "it made a certificate for each name that a client asked for: list certificates for these names",
        ),
        "force-sslv3" | "force-tlsv10" | "force-tlsv11" => section.left_out(from, OLD_VERSION),
        _ => {
            if let Some((_, values, why)) = WITHOUT_EFFECT.iter().find(|(known, ..)| *known == name)
            {
                let mut keyword = Keyword { word: name, from };
                for _ in 0..*values {
                    words.value(&mut keyword);
                }
                section.without_effect(keyword.from, *why);
            }
        }
    }
}

/// Returns the words of a bind that are without effect on any address, each with the reason.
pub(super) fn without_effect(line: &Line) -> Vec<(Origins, &'static str)> {
    let (mut all, mut words) = (Vec::new(), line.keywords());
    while let Some(mut keyword) = words.next() {
        let mut known = WITHOUT_EFFECT.iter().filter(|(known, ..)| *known != "ssl");
        let Some((_, values, why)) = known.find(|(known, ..)| *known == keyword.word) else {
            continue;
        };
        for _ in 0..*values {
            words.value(&mut keyword);
        }
        all.push((keyword.from, *why));
    }
    all
}

fn has_value(name: &str) -> bool {
    matches!(
        name,
        "crt"
            | "default-crt"
            | "crt-list"
            | "alpn"
            | "ssl-min-ver"
            | "ssl-max-ver"
            | "tls-ticket-keys"
            | "verify"
            | "ca-file"
            | "crl-file"
            | "ciphers"
            | "ciphersuites"
            | "curves"
            | "ecdhe"
            | "backlog"
            | "tcp-ut"
            | "maxconn"
            | "interface"
            | "namespace"
            | "accept-netscaler-cip"
            | "ca-ignore-err"
            | "crt-ignore-err"
            | "npn"
            | "ca-verify-file"
            | "ca-sign-file"
            | "ca-sign-pass"
            | "proto"
            | "sigalgs"
            | "client-sigalgs"
            | "cc"
            | "ktls"
            | "idle-ping"
    )
}

fn with_value(
    name: &str,
    value: &str,
    from: Origins,
    config: &Config,
    settings: &mut BindSettings,
    section: &mut Section,
    draft: &mut Draft,
) {
    match name {
        "crt" | "default-crt" => {
            let found = certificate(value, &from, config, section, draft);
            settings.load(found, name == "default-crt");
            settings.of_certificates.add(from);
        }
        "crt-list" => crt_list(
            &config.path("crt-base", value),
            from,
            config,
            settings,
            section,
            draft,
        ),
        "alpn" => {
            let all: Vec<&str> = value.split(',').collect();
            section.set("alpn", quoted_list(&all), from);
        }
        "ssl-min-ver" => oldest(value, from, section),
        "ssl-max-ver" => match version(value) {
            Some("1.3") => {
                let mut from = from;
                from.add(section.remove("max_version"));
                section.without_effect(from, DEFAULT);
            }
            _ => section.version("max_version", value, from),
        },
        "tls-ticket-keys" => {
            let keys = format!("file:{value}");
            draft.program.set("ticket_keys", quoted_list(&[keys]), from);
        }
        "verify" => settings.verify = Some((value.to_owned(), from)),
        "ca-file" => settings.ca = Some((config.path("ca-base", value), from)),
        "crl-file" => {
            settings.crls.push(config.path("ca-base", value));
            settings.of_crls.add(from);
        }
        "ciphers" => settings.ciphers = Some((value.to_owned(), from)),
        "ciphersuites" => settings.ciphersuites = Some((value.to_owned(), from)),
        "curves" | "ecdhe" => settings.curves = Some((value.to_owned(), from)),
        "backlog" => draft.program.number("backlog", value, from),
        "tcp-ut" => draft.longest("user_timeout", time(value, 1), from),
        "maxconn" => super::limits::limit("route_max_connections", value, from, section),
        "interface" | "namespace" => {
            section.step(
                from,
                "no equivalent: list only the addresses of that interface in `listen`",
            );
        }
        "accept-netscaler-cip" => {
            section.step(
                from,
                "it is not supported: let the clients send the PROXY protocol",
            );
        }
        "ca-ignore-err" | "crt-ignore-err" => {
            section.left_out(from, "invalid certificates are always refused");
        }
        "ca-verify-file" => section.step(
            from,
            "it verifies clients, and is not told to them: put its certificates into `client_ca`",
        ),
        "client-sigalgs" => section.step(
            from,
            "clients with other signatures were refused, and are accepted here",
        ),
        _ => section.left_out(from, "no equivalent"),
    }
}

fn oldest(text: &str, from: Origins, section: &mut Section) {
    match version(text) {
        Some("1.3") => section.set_text("min_version", "1.3", from),
        // The oldest supported version, whatever the defaults of all binds say.
        Some(_) => {
            let mut from = from;
            from.add(section.remove("min_version"));
            section.without_effect(from, DEFAULT);
        }
        None => section.version("min_version", text, from),
    }
}

/// Returns the certificates of a `crt`: of the store, a file with the files that HAProxy finds beside it, or a
/// directory.
fn certificate(
    value: &str,
    from: &Origins,
    config: &Config,
    section: &mut Section,
    draft: &mut Draft,
) -> Vec<Certificate> {
    if value.starts_with('@') {
        return match config.store.find(value) {
            Some(load) if load.automatic(&config.parts, section, draft) => {
                section.also("acme", from);
                Vec::new()
            }
            Some(load) => {
                section.without_effect(
                    &load.from,
                    "it is in `certificates` of the routes that name it",
                );
                section.remarks.extend(load.remarks.iter().cloned());
                vec![load.certificate.clone()]
            }
            None => {
                section.step(
                    from,
                    "no `crt-store` here has this certificate: list its files in `certificates`",
                );
                Vec::new()
            }
        };
    }
    let file = config.path("crt-base", value);
    if !file.ends_with('/') && !Path::new(&file).is_dir() {
        return of_file(&file);
    }
    // These are beside a certificate, not certificates.
    let is_beside = |name: &str| {
        let ends = [".key", ".ocsp", ".issuer", ".sctl"];
        ends.iter().any(|end| name.ends_with(end))
    };
    let whole = |file: &str| of_file(file).swap_remove(0);
    match directory(&file, "*", is_beside, whole) {
        Directory::Same => vec![Certificate::whole(file)],
        Directory::Files(files) => {
            section.left_out(from, LISTED_ONE_BY_ONE);
            files
        }
        Directory::Unknown(why) => {
            let why = format!(
                "{why}: HAProxy reads every file in it, Dormouse every NAME.pem, .crt and .cer (with its key in it, \
                 or in NAME.key): rename the others, or list them in `certificates`"
            );
            section.step(from, why);
            vec![Certificate::whole(file)]
        }
    }
}

/// Returns the certificate of a file, or those for several types of keys.
fn of_file(file: &str) -> Vec<Certificate> {
    let beside = |file: &str, end: &str| {
        let path = format!("{file}.{end}");
        Path::new(&path).is_file().then_some(path)
    };
    let one = |file: &str| Certificate {
        key: beside(file, "key"),
        ocsp: beside(file, "ocsp"),
        cert: file.to_owned(),
    };
    let bundle = ["ecdsa", "rsa"]
        .into_iter()
        .filter_map(|end| beside(file, end));
    let bundle: Vec<Certificate> = bundle.map(|file| one(&file)).collect();
    match Path::new(file).is_file() || bundle.is_empty() {
        true => vec![one(file)],
        false => bundle,
    }
}

/// Reads `ssl-f-use crt FILE …`, which is a line of a `crt-list` in the frontend.
fn of_frontend(
    line: &Line,
    config: &Config,
    settings: &mut BindSettings,
    section: &mut Section,
    draft: &mut Draft,
) {
    let mut words = line.keywords();
    let (mut options, mut is_strict) = (Origins::from(line.origin), false);
    while let Some(mut keyword) = words.next() {
        match keyword.word {
            "crt" => {
                let value = words.value(&mut keyword);
                let found = certificate(value, &keyword.from, config, section, draft);
                settings.load(found, false);
                settings.of_certificates.add(keyword.from);
                continue;
            }
            name if has_value(name) => {
                let value = words.value(&mut keyword);
                is_strict |= refuses_clients(name, value);
            }
            name => is_strict |= refuses_clients(name, ""),
        }
        options.add(keyword.from);
    }
    match (is_strict, options.len()) {
        (true, _) => section.step(options, CERTIFICATE_VERIFIES),
        (false, 1) if section.has("acme") => section.also("acme", options),
        (false, 1) => settings.of_certificates.add(options),
        (false, _) => section.left_out(options, CERTIFICATE_OPTIONS),
    }
}

/// Returns whether an option of one certificate refuses some of the clients that ask for its names.
fn refuses_clients(name: &str, value: &str) -> bool {
    match name {
        "verify" => value != "none",
        "ssl-min-ver" => version(value) != Some("1.2"),
        "no-tlsv12" | "force-tlsv13" | "client-sigalgs" => true,
        _ => false,
    }
}

/// Reads a file with a line for each certificate: `FILE [options] names…`.
fn crt_list(
    file: &str,
    from: Origins,
    config: &Config,
    settings: &mut BindSettings,
    section: &mut Section,
    draft: &mut Draft,
) {
    let inner = Position::included(file);
    let Ok(text) = draft.ledger.read(Path::new(file), &inner) else {
        return section.step(from, "it cannot be read: list its files in `certificates`");
    };
    settings.of_certificates.add(&from);
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<String> = line
            .replace(['[', ']'], " ")
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        let Ok(entered) = enter(words, 1, &inner.at(n + 1), &mut draft.ledger) else {
            return section.step(from, "it has too many lines");
        };
        let of_line: Origins = entered.origins().collect();
        let found = certificate(
            entered.word(0),
            &entered.origin.into(),
            config,
            section,
            draft,
        );
        settings.load(found, false);
        settings.of_certificates.add(entered.origin);
        let (options, names) = match line
            .split_once('[')
            .and_then(|(_, more)| more.split_once(']'))
        {
            Some((options, names)) => (options, names),
            None => (
                "",
                line.split_once(char::is_whitespace)
                    .map_or("", |(_, names)| names),
            ),
        };
        let options: Vec<&str> = options.split_whitespace().collect();
        let next = options.iter().copied().skip(1).chain([""]);
        let mut pairs = options.iter().zip(next);
        if pairs.any(|(name, value)| refuses_clients(name, value)) {
            section.step(&of_line, CERTIFICATE_VERIFIES);
        } else if !options.is_empty() {
            section.left_out(&of_line, CERTIFICATE_OPTIONS);
        }
        if !names.trim().is_empty() {
            settings.by_name.add(of_line);
        }
    }
}
