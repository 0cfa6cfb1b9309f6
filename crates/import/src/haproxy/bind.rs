//! `bind ADDRESS ssl crt FILE …`

use std::path::Path;

use super::config::Config;
use super::syntax::Line;
use crate::advice::{
    CERTIFICATE_OPTIONS, CERTIFICATE_VERIFIES, CERTIFICATES_BY_NAME, PROXY_NETWORKS,
};
use crate::draft::Draft;
use crate::error::Position;
use crate::openssl::version;
use crate::section::Section;
use crate::source::read as read_file;
use crate::toml::{Certificate, certificates, list, quoted, quoted_list};
use crate::value::time;

/// What a bind says about TLS, before its defaults are added.
#[derive(Default)]
struct BindSettings {
    certificates: Vec<Certificate>,
    verify: Option<String>,
    ca: Option<String>,
    crls: Vec<String>,
    ciphers: Option<String>,
    ciphersuites: Option<String>,
    curves: Option<String>,
    no_tickets: bool,
    no_tls: Vec<&'static str>,
}

pub(super) fn read(
    line: &Line,
    config: &Config,
    has_tls: bool,
    section: &mut Section,
    draft: &mut Draft,
) {
    listen(line, config, section);
    let mut settings = BindSettings::default();
    if let Some(options) = config.global("ssl-default-bind-options") {
        words(
            options,
            options.behind(1),
            config,
            &mut settings,
            section,
            draft,
        );
    }
    words(line, line.behind(2), config, &mut settings, section, draft);
    if !has_tls {
        section.set("pass_through", "true");
        return;
    }
    if !settings.certificates.is_empty() {
        section.set("certificates", certificates(&settings.certificates));
    }
    let default = |name: &str| config.global(name).map(|line| line.word(1).to_owned());
    let (tls12, tls13) = (
        settings.ciphers.or(default("ssl-default-bind-ciphers")),
        settings
            .ciphersuites
            .or(default("ssl-default-bind-ciphersuites")),
    );
    if tls12.is_some() || tls13.is_some() {
        section.suites(
            &line.position,
            "ciphers, ciphersuites",
            tls12.as_deref(),
            tls13.as_deref(),
        );
    }
    if let Some(curves) = settings.curves.or(default("ssl-default-bind-curves")) {
        section.groups(&line.position, &format!("curves {curves}"), &curves);
    }
    match settings.no_tls.as_slice() {
        [] => {}
        no if no.contains(&"1.3") => section.set_text("max_version", "1.2"),
        _ => section.set_text("min_version", "1.3"),
    }
    if settings.no_tickets {
        // HAProxy then keeps sessions in a cache, some 200 bytes each.
        let cache = config
            .global("tune.ssl.cachesize")
            .map_or(20_000, |line| line.word(1).parse::<u64>().unwrap_or(20_000));
        match cache {
            0 => draft.set("tickets", "0"),
            sessions => draft.set_text("session_cache", &format!("{} KiB", (sessions / 4).max(64))),
        }
    }
    match settings.verify.as_deref() {
        None | Some("none") => {}
        Some(how) => section.clients(
            if how == "optional" { how } else { "required" },
            settings.ca.as_deref(),
            &settings.crls,
        ),
    }
}

/// Returns the addresses of a bind that Dormouse can listen on.
pub(super) fn addresses(line: &Line, config: &Config) -> Vec<String> {
    let all = line.word(1).split(',');
    all.filter_map(|one| address(one, line, config)).collect()
}

/// Returns its other addresses, such as unix sockets and ranges of ports.
pub(super) fn not_of_tcp<'a>(line: &'a Line, config: &Config) -> Vec<&'a str> {
    let all = line.word(1).split(',');
    all.filter(|one| address(one, line, config).is_none())
        .collect()
}

/// Sets `listen` from several addresses separated by commas.
fn listen(line: &Line, config: &Config, section: &mut Section) {
    for one in not_of_tcp(line, config) {
        let what = format!("Dormouse listens on TCP addresses with one port, not on {one}");
        section.add_to_do(&line.position, &what);
    }
    let all: Vec<String> = addresses(line, config)
        .iter()
        .map(|one| quoted(one))
        .collect();
    section.set("listen", list(&all));
}

/// Converts an address of a bind. `None`: not a TCP address. On Linux `:::443` accepts IPv4 clients, too,
/// unless another bind does.
fn address(text: &str, line: &Line, config: &Config) -> Option<String> {
    let address = of_one_family(text)?;
    let Some(port) = address.strip_prefix("[::]:") else {
        return Some(address);
    };
    let ipv4 = format!("0.0.0.0:{port}");
    let binds = config.parts.iter().flat_map(|part| part.all("bind"));
    let mut others = binds.flat_map(|bind| bind.word(1).split(','));
    let is_ipv6_only =
        line.has_word("v6only") || others.any(|one| of_one_family(one).as_ref() == Some(&ipv4));
    Some(match is_ipv6_only {
        true => address,
        false => format!(":{port}"),
    })
}

/// Converts `*:443`, `:443`, `ipv4@1.2.3.4:443` or `:::443`. `None`: not a TCP address.
fn of_one_family(text: &str) -> Option<String> {
    let (family, text) = text.split_once('@').unwrap_or(("", text));
    if !matches!(family, "" | "ipv4" | "ipv6" | "tcp" | "tcp4" | "tcp6")
        || text.starts_with('/')
        || text.contains('$')
    {
        return None;
    }
    let (host, port) = text.rsplit_once(':')?;
    if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(match (host, family) {
        ("" | "*", "ipv6" | "tcp6") | ("::", _) => format!("[::]:{port}"),
        ("" | "*", _) => format!("0.0.0.0:{port}"),
        (host, _) if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
        (host, _) => format!("{host}:{port}"),
    })
}

fn words(
    line: &Line,
    all: &[String],
    config: &Config,
    settings: &mut BindSettings,
    section: &mut Section,
    draft: &mut Draft,
) {
    let position = &line.position;
    let mut rest = all.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().map_or("", String::as_str);
        match word.as_str() {
            "crt" => settings
                .certificates
                .push(certificate(&config.path("crt-base", value()))),
            "crt-list" => crt_list(
                &config.path("crt-base", value()),
                config,
                position,
                settings,
                section,
            ),
            "alpn" => section.set("alpn", quoted_list(&value().split(',').collect::<Vec<_>>())),
            "ssl-min-ver" => oldest(value(), position, section),
            "ssl-max-ver" => match version(value()) {
                Some("1.3") => section.remove("max_version"),
                Some(ours) => section.set_text("max_version", ours),
                None => section.leave_out(
                    position,
                    "ssl-max-ver",
                    "TLS 1.2 is the oldest supported version",
                ),
            },
            "force-tlsv12" => settings.no_tls.push("1.3"),
            "force-tlsv13" => settings.no_tls.push("1.2"),
            "no-tlsv12" => settings.no_tls.push("1.2"),
            "no-tlsv13" => settings.no_tls.push("1.3"),
            "no-tls-tickets" => settings.no_tickets = true,
            "tls-ticket-keys" => {
                let keys = format!("file:{}", value());
                draft.set("ticket_keys", quoted_list(&[keys]));
            }
            "verify" => settings.verify = Some(value().to_owned()),
            "ca-file" => settings.ca = Some(config.path("ca-base", value())),
            "crl-file" => settings.crls.push(config.path("ca-base", value())),
            "ciphers" => settings.ciphers = Some(value().to_owned()),
            "ciphersuites" => settings.ciphersuites = Some(value().to_owned()),
            "curves" | "ecdhe" => settings.curves = Some(value().to_owned()),
            "strict-sni" => section.set_text("unknown_name", "refuse"),
            "accept-proxy" => section.add_to_do(position, PROXY_NETWORKS),
            "backlog" => draft.number("backlog", value(), position, "backlog"),
            "tcp-ut" => {
                if let Some(ms) = time(value(), 1) {
                    draft.longest("user_timeout", ms, position, "tcp-ut");
                }
            }
            _ => without_equivalent(word, &mut rest, position, section),
        }
    }
}

/// Handles words that are not about TLS or have no equivalent, with their value if they have one.
fn without_equivalent<'a>(
    word: &str,
    rest: &mut impl Iterator<Item = &'a String>,
    position: &Position,
    section: &mut Section,
) {
    let mut with_value = || format!("{word} {}", rest.next().map_or("", String::as_str));
    match word {
        "maxconn" => {
            let shown = with_value();
            section.leave_out(
                position,
                &shown,
                "`max_connections` applies to all routes together",
            );
        }
        "interface" | "namespace" => {
            let shown = with_value();
            let what = "list only the addresses of that interface in `listen`";
            section.add_to_do(position, &format!("{shown} has no equivalent: {what}"));
        }
        "accept-netscaler-cip" => {
            let shown = with_value();
            let what = "is not supported: let the clients send the PROXY protocol";
            section.add_to_do(position, &format!("{shown} {what}"));
        }
        "ca-ignore-err" | "crt-ignore-err" => {
            let shown = with_value();
            section.leave_out(position, &shown, "invalid certificates are always refused");
        }
        "allow-0rtt" => section.leave_out(position, word, "0-RTT data is never accepted"),
        "tfo" | "generate-certificates" | "transparent" => {
            section.leave_out(position, word, "no equivalent");
        }
        "npn" | "ca-verify-file" | "ca-sign-file" | "ca-sign-pass" | "proto" => {
            let shown = with_value();
            section.leave_out(position, &shown, "no equivalent");
        }
        "name" | "id" | "nice" | "process" | "thread" | "mss" | "mode" | "user" | "uid"
        | "group" | "gid" | "level" | "shards" | "severity-output" => drop(with_value()),
        "force-sslv3" | "force-tlsv10" | "force-tlsv11" => {
            let why = "TLS 1.2 is the oldest supported version";
            section.leave_out(position, word, why);
        }
        "ssl"
        | "v4v6"
        | "v6only"
        | "defer-accept"
        | "prefer-client-ciphers"
        | "no-ca-names"
        | "no-sslv3"
        | "no-tlsv10"
        | "no-tlsv11"
        | "tls-tickets"
        | "no-alpn"
        | "expose-fd"
        | "listeners" => {}
        _ => section.leave_out(position, word, "no equivalent"),
    }
}

fn oldest(text: &str, position: &Position, section: &mut Section) {
    match version(text) {
        Some("1.3") => section.set_text("min_version", "1.3"),
        // The oldest supported version, whatever the defaults of all binds say.
        Some(_) => section.remove("min_version"),
        None => section.leave_out(
            position,
            &format!("ssl-min-ver {text}"),
            "TLS 1.2 is the oldest supported version",
        ),
    }
}

/// Returns a certificate file with the files that HAProxy finds beside it, or a folder.
fn certificate(file: &str) -> Certificate {
    let beside = |end: &str| {
        let path = format!("{file}.{end}");
        Path::new(&path).is_file().then_some(path)
    };
    Certificate {
        key: beside("key"),
        ocsp: beside("ocsp"),
        cert: file.to_owned(),
    }
}

/// Reads a file with a line for each certificate: `FILE [options] names…`.
fn crt_list(
    file: &str,
    config: &Config,
    position: &Position,
    settings: &mut BindSettings,
    section: &mut Section,
) {
    let shown = format!("crt-list {file}");
    let inner = Position::included(file);
    let Ok(text) = read_file(Path::new(file), &inner) else {
        return section.add_to_do(
            position,
            &format!("{shown} cannot be read: list its files in `certificates`"),
        );
    };
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (cert, more) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        settings
            .certificates
            .push(certificate(&config.path("crt-base", cert)));
        let (position, more) = (inner.at(n + 1), more.trim());
        let options = more.strip_prefix('[').and_then(|more| more.split_once(']'));
        let (options, names) = options.unwrap_or(("", more));
        let words: Vec<&str> = options.split_whitespace().collect();
        let verifies = |pair: &[&str]| pair[0] == "verify" && pair[1] != "none";
        if words.windows(2).any(verifies) {
            section.add_to_do(&position, &format!("[{options}]: {CERTIFICATE_VERIFIES}"));
        } else if !words.is_empty() {
            section.leave_out(&position, &format!("[{options}]"), CERTIFICATE_OPTIONS);
        }
        if !names.trim().is_empty() {
            section.leave_out(&position, names, CERTIFICATES_BY_NAME);
        }
    }
}
