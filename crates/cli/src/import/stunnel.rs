//! stunnel.conf: `key = value` in `[services]`, with defaults above them (stunnel(8)).

use super::draft::{Draft, Section, certificates, list, quoted, quoted_list};

struct Service {
    name: String,
    entries: Vec<(usize, String, String)>,
}

pub(super) fn read(text: &str) -> Draft {
    let mut draft = Draft::default();
    let mut services: Vec<Service> = Vec::new();
    let mut defaults: Vec<(usize, String, String)> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            services.push(Service {
                name: name.to_owned(),
                entries: Vec::new(),
            });
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            draft.note(n + 1, line, "not understood");
            continue;
        };
        let entry = (n + 1, key.trim().to_owned(), value.trim().to_owned());
        match services.last_mut() {
            Some(service) => service.entries.push(entry),
            None => defaults.push(entry),
        }
    }
    // What is said above the services holds for each that says nothing else.
    let (of_services, of_program): (Vec<_>, Vec<_>) = defaults
        .into_iter()
        .partition(|(_, key, _)| is_of_service(key));
    for (line, key, value) in of_program {
        program(line, &key, &value, &mut draft);
    }
    for mut service in services {
        let inherited = of_services.iter().cloned();
        service.entries.splice(0..0, inherited);
        read_service(&service, &mut draft);
    }
    draft
}

fn is_of_service(key: &str) -> bool {
    matches!(
        key,
        "cert"
            | "key"
            | "CAfile"
            | "CApath"
            | "client"
            | "sslVersion"
            | "sslVersionMin"
            | "sslVersionMax"
            | "ciphers"
            | "ciphersuites"
            | "curves"
            | "options"
            | "verify"
            | "verifyChain"
            | "verifyPeer"
            | "checkHost"
            | "protocol"
    )
}

fn program(line: usize, key: &str, value: &str, draft: &mut Draft) {
    let shown = format!("{key} = {value}");
    match key {
        "debug" if value == "debug" || value == "7" => draft.set("log_level", quoted("debug")),
        "setuid" => draft.set("user", quoted(value)),
        "setgid" => draft.set("group", quoted(value)),
        "pid" | "foreground" | "debug" | "syslog" | "fips" | "RNDfile" | "RNDbytes" => {}
        "include" => draft.note(line, &shown, "import its files too"),
        "output" => draft.note(line, &shown, "the log goes to standard error"),
        _ => draft.note(line, &shown, "no counterpart"),
    }
}

fn read_service(service: &Service, draft: &mut Draft) {
    let value = |key: &str| {
        let mut found = service.entries.iter().rev();
        found
            .find(|(_, name, _)| name == key)
            .map(|(_, _, value)| value.as_str())
    };
    let is_client = value("client") == Some("yes");
    let mut section = Section::new(is_client, format!("[{}]", service.name));
    let Some(accept) = value("accept") else {
        let (line, ..) = service.entries.first().cloned().unwrap_or_default();
        draft.note(
            line,
            &format!("[{}]", service.name),
            "it accepts nothing (inetd mode)",
        );
        return;
    };
    section.set("listen", quoted(&accept_address(accept)));
    let to: Vec<String> = service
        .entries
        .iter()
        .filter(|(_, key, _)| key == "connect")
        .map(|(.., value)| quoted(&connect_address(value)))
        .collect();
    if to.is_empty() {
        let (line, ..) = service.entries.first().cloned().unwrap_or_default();
        let why = "it has no `connect` (exec is not done here)";
        draft.note(line, &format!("[{}]", service.name), why);
        return;
    }
    section.set("to", list(&to));
    if let Some(cert) = value("cert") {
        let key = value("key").map(str::to_owned);
        section.set("certificates", certificates(&[(cert.to_owned(), key)]));
    }
    if is_client {
        trust(&value, &mut section);
    } else if !section.has("certificates") {
        section.note(
            0,
            "cert",
            "MISSING: add certificates = [{ cert = \"…\", key = \"…\" }]",
        );
    }
    for (line, key, value) in &service.entries {
        rest(*line, key, value, &mut section, draft);
    }
    draft.sections.push(section);
}

/// Whom a client trusts. stunnel trusts anybody unless told otherwise; that is not carried over
/// silently.
fn trust<'a>(value: &impl Fn(&str) -> Option<&'a str>, section: &mut Section) {
    let verifies = value("verifyChain") == Some("yes")
        || value("verify").is_some_and(|level| matches!(level, "1" | "2" | "3" | "4"));
    match (verifies, value("CAfile")) {
        (true, Some(file)) => section.set("ca", quoted(file)),
        // A folder of hashed certificates is what the operating system has.
        (true, None) => section.set("ca", quoted("system")),
        (false, _) => {
            section.set("insecure", "true");
            section.note(
                0,
                "verifyChain",
                "was not on, so any server is taken: remove `insecure` to have the server verified",
            );
        }
    }
    let name = value("checkHost").or(value("sni"));
    if let Some(name) = name {
        section.set("server_name", quoted(name));
    }
}

fn rest(line: usize, key: &str, value: &str, section: &mut Section, draft: &mut Draft) {
    let shown = format!("{key} = {value}");
    match key {
        "accept" | "connect" | "cert" | "key" | "client" | "CAfile" | "CApath" | "checkHost"
        | "verifyChain" | "renegotiation" | "reset" | "retry" | "sessionCacheSize" | "delay" => {}
        "sni" if section.originate => {}
        "verify" if section.originate => {}
        "protocol" if value == "proxy" && !section.originate => {
            section.set("proxy_protocol", quoted("v1"));
        }
        "sslVersion" | "sslVersionMin" | "sslVersionMax" => {
            let version = match value {
                "TLSv1.2" => "1.2",
                "TLSv1.3" => "1.3",
                _ => return,
            };
            if key != "sslVersionMax" {
                section.set("min_version", quoted(version));
            }
            if key != "sslVersionMin" {
                section.set("max_version", quoted(version));
            }
        }
        "TIMEOUTidle" => draft.set("idle_timeout", quoted(&format!("{value}s"))),
        "TIMEOUTconnect" => draft.set("backend_connect_timeout", quoted(&format!("{value}s"))),
        "TIMEOUTbusy" => draft.set("handshake_timeout", quoted(&format!("{value}s"))),
        "TIMEOUTclose" if value == "0" && !section.originate => {
            section.set("truncation", quoted("close"));
        }
        "failover" if value == "rr" && !section.originate => {
            section.set("balance", quoted("round-robin"));
        }
        "failover" | "TIMEOUTclose" => {}
        "options" if value.starts_with("NO_") => {}
        "alpn" => section.set("alpn", quoted_list(&[value])),
        "ciphers" | "ciphersuites" | "curves" => section.note(
            line,
            &shown,
            "all suites here are AEAD with forward secrecy; see `suites` and `groups` for fewer",
        ),
        "OCSPaia" | "OCSP" | "verifyPeer" | "CRLfile" | "CRLpath" | "checkIP" | "checkEmail" => {
            section.note(line, &shown, "not checked here");
        }
        "verify" => section.note(line, &shown, "clients are not asked for certificates here"),
        _ => section.note(line, &shown, "no counterpart"),
    }
}

/// `443`, `host:443`, `:::443`.
fn accept_address(text: &str) -> String {
    match text.rsplit_once(':') {
        None => format!(":{text}"),
        Some(("::", port)) => format!("[::]:{port}"),
        Some((host, port)) if host.contains(':') && !host.starts_with('[') => {
            format!("[{host}]:{port}")
        }
        Some(_) => text.to_owned(),
    }
}

fn connect_address(text: &str) -> String {
    if text.starts_with('/') {
        return format!("unix:{text}");
    }
    match text.rsplit_once(':') {
        None => format!("127.0.0.1:{text}"),
        Some((host, port)) if host.contains(':') && !host.starts_with('[') => {
            format!("[{host}]:{port}")
        }
        Some(_) => text.to_owned(),
    }
}
