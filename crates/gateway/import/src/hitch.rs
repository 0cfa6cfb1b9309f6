//! hitch.conf: `key = value`, and blocks in braces (hitch.conf(5)).

mod syntax;

use std::collections::HashSet;

use crate::advice::{LOG, NO_WRITE_IP, OCSP, OTHER_PROTOCOLS, PROXY_NETWORKS};
use crate::certificates::{Directory, LISTED_ONE_BY_ONE, directory};
use crate::draft::{Draft, SECTIONS_MAX};
use crate::error::{ImportError, Position};
use crate::origin::{Origin, Origins};
use crate::section::{Kind, Section};
use crate::toml::{Certificate, certificates, list, quoted, quoted_list};
use crate::value::{is_off, is_on};
use syntax::{HitchSetting, Value};

/// The backend of a configuration that names none.
const DEFAULT_BACKEND: &str = "[127.0.0.1]:8000";

/// Settings that a frontend may have, too.
const OF_FRONTENDS: [&str; 12] = [
    "pem-file",
    "pem-dir",
    "pem-dir-glob",
    "sni-nomatch-abort",
    "match-global-certs",
    "tls-protos",
    "ciphers",
    "ciphersuites",
    "ecdh-curve",
    "client-verify",
    "client-verify-ca",
    "prefer-server-ciphers",
];

/// Settings in the block of a `pem-file`.
const OF_PEM: [&str; 3] = ["cert", "private-key", "ocsp-resp-file"];

/// Settings without effect here, and why.
pub(super) const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("daemon", PROCESS),
    ("pidfile", PROCESS),
    ("quiet", PROCESS),
    ("log-level", PROCESS),
    (
        "prefer-server-ciphers",
        "the client chooses among the suites, which are all AEAD",
    ),
    ("proxy-tlv", "version 2 of the header has these fields here"),
    ("ring-slots", "a buffer of hitch"),
    ("ring-data-len", "a buffer of hitch"),
    ("recv-bufsize", "a buffer of hitch"),
    ("send-bufsize", "a buffer of hitch"),
    ("ocsp-connect-tmo", OCSP),
    ("ocsp-resp-tmo", OCSP),
    ("ocsp-refresh-interval", OCSP),
    ("ocsp-verify-staple", OCSP),
    ("chroot", "workers confine themselves (`sandbox`)"),
];

const PROCESS: &str = "how the process runs";

pub(super) fn read(text: &str, position: &Position) -> Result<Draft, ImportError> {
    let mut draft = Draft::default();
    let entries = syntax::parse(text, position, &mut draft.ledger)?;
    let of_tls = ["backend", "frontend", "pem-file", "pem-dir"];
    if !entries.iter().any(|one| of_tls.contains(&&*one.key)) {
        return Ok(draft);
    }
    let entries = Settings { all: &entries };
    let mut base = Section::new(Kind::Route, "all other frontends", Origins::default(), []);
    program(&entries, &mut base, &mut draft);
    // Frontends without settings of their own become one route; every other frontend becomes its
    // own route.
    let mut listen: Vec<(String, Origins)> = Vec::new();
    let mut routes = Vec::new();
    for entry in entries.every("frontend") {
        let frontend = Frontend::of(entry);
        if frontend.own.is_empty() {
            listen.push((frontend.address, frontend.from));
            continue;
        }
        if routes.len() >= SECTIONS_MAX {
            draft.too_many(
                frontend
                    .own
                    .iter()
                    .map(|one| one.origin)
                    .collect::<Origins>(),
            );
            draft.too_many(frontend.from);
            continue;
        }
        let mut route = Section {
            title: format!("frontend {}", frontend.address),
            head: entry.origin.into(),
            owes: frontend.own.iter().map(|one| one.origin).collect(),
            ..base.clone()
        };
        route.set_text("listen", &frontend.address, frontend.from);
        let own = Settings { all: &frontend.own };
        tls(&[&own, &entries], &mut route);
        routes.push(route);
    }
    if listen.is_empty() && routes.is_empty() {
        listen.push(("0.0.0.0:8443".to_owned(), Origins::default()));
    }
    if !listen.is_empty() {
        let all: Vec<String> = listen.iter().map(|(one, _)| quoted(one)).collect();
        let from: Origins = listen.iter().flat_map(|(_, from)| from.iter()).collect();
        base.set("listen", list(&all), from);
        tls(&[&entries], &mut base);
        draft.add(base);
    }
    routes.into_iter().for_each(|route| draft.add(route));
    replaced_by_frontends(&entries, &mut draft);
    Ok(draft)
}

/// Says which settings above the frontends no frontend uses, because each has its own.
fn replaced_by_frontends(entries: &Settings<'_>, draft: &mut Draft) {
    const SHOWN: [&str; 4] = ["pem-file", "pem-dir", "pem-dir-glob", "match-global-certs"];
    let claimed = draft.claimed();
    let frontends: Vec<Frontend> = entries.every("frontend").map(Frontend::of).collect();
    let has_own = |frontend: &Frontend, key: &str| {
        let is_it = |own: &HitchSetting| {
            own.key == key || SHOWN.contains(&&*own.key) && SHOWN.contains(&key)
        };
        frontend.own.iter().any(is_it)
    };
    let of_frontends = entries
        .all
        .iter()
        .filter(|one| OF_FRONTENDS.contains(&&*one.key));
    for one in of_frontends {
        if !frontends.iter().all(|frontend| has_own(frontend, &one.key)) {
            continue;
        }
        for origin in one.origins(&OF_PEM).filter(|one| !claimed.contains(one)) {
            draft
                .program
                .without_effect(origin, "each frontend has its own");
        }
    }
}

/// Settings of one level.
struct Settings<'a> {
    all: &'a [HitchSetting],
}

impl<'a> Settings<'a> {
    fn every(&self, key: &'a str) -> impl DoubleEndedIterator<Item = &'a HitchSetting> {
        self.all.iter().filter(move |one| one.key == key)
    }

    /// Returns the last setting with this key, which wins.
    fn last(&self, key: &'a str, section: &mut Section) -> Option<&'a HitchSetting> {
        let mut all = self.every(key).rev();
        let last = all.next();
        section.replaced(all.map(|one| one.origin).collect::<Origins>());
        last
    }
}

/// A frontend: its address, and its own settings.
struct Frontend {
    address: String,
    from: Origins,
    own: Vec<HitchSetting>,
}

impl Frontend {
    fn of(entry: &HitchSetting) -> Frontend {
        match &entry.value {
            Value::Text(text) => {
                // `[HOST]:PORT`, with an optional `+PEM`.
                let (address, file) = text.split_once('+').unwrap_or((text, ""));
                let pem = HitchSetting {
                    origin: entry.origin,
                    key: "pem-file".to_owned(),
                    value: Value::Text(file.to_owned()),
                };
                Frontend {
                    address: listen_address(address),
                    from: entry.origin.into(),
                    own: Vec::from_iter(Some(pem).filter(|_| !file.is_empty())),
                }
            }
            Value::Block(inner) => {
                let is_address = |one: &&HitchSetting| matches!(&*one.key, "host" | "port");
                let (address, own): (Vec<&HitchSetting>, Vec<&HitchSetting>) =
                    inner.iter().partition(is_address);
                let find = |key: &str| address.iter().rev().find(|one| one.key == key);
                let host = find("host").map_or("*", |one| one.text());
                let port = find("port").map_or("8443", |one| one.text());
                Frontend {
                    address: listen_address(&format!("[{host}]:{port}")),
                    from: address.iter().map(|one| one.origin).collect(),
                    own: own.into_iter().cloned().collect(),
                }
            }
        }
    }
}

/// Converts everything about TLS. A setting of an earlier level takes precedence over a later one.
fn tls(levels: &[&Settings<'_>], route: &mut Section) {
    let mut find = |key: &'static str| {
        let mut found = levels.iter().filter_map(|level| level.last(key, route));
        found.next()
    };
    let own_certificates = levels.split_last().is_none_or(|(_, own)| {
        let mut own = own.iter().flat_map(|level| level.all);
        own.any(|one| matches!(&*one.key, "pem-file" | "pem-dir"))
    });
    let (glob, merges) = (find("pem-dir-glob"), find("match-global-certs"));
    let (protos, curve) = (find("tls-protos"), find("ecdh-curve"));
    let (tls12, tls13) = (find("ciphers"), find("ciphersuites"));
    let (how, ca) = (find("client-verify"), find("client-verify-ca"));
    let (abort, order) = (find("sni-nomatch-abort"), find("prefer-server-ciphers"));
    show(levels, glob, merges, route);
    if let Some(one) = order {
        without_effect(one, route);
    }
    let is_of_all = |one: &HitchSetting| {
        let all = levels.last().into_iter().flat_map(|level| level.all);
        all.into_iter().any(|other| other.origin == one.origin)
    };
    match abort {
        Some(one) if !own_certificates && !is_of_all(one) => {
            let why = "hitch looks at it only if the frontend has certificates of its own";
            route.without_effect(one.origin, why);
        }
        Some(one) if is_on(one.text()) => {
            route.set_text("unknown_name", "refuse-named", one.origin);
        }
        Some(one) if is_off(one.text()) => route.without_effect(one.origin, DEFAULT),
        // Neither on nor off: nobody takes it, so it is a step to do.
        _ => {}
    }
    if let Some(one) = protos {
        route.versions(one.text().split_whitespace(), one.origin);
    }
    let pair = |one: &'_ HitchSetting| (one.text().to_owned(), Origins::from(one.origin));
    let (tls12, tls13) = (tls12.map(pair), tls13.map(pair));
    route.suites(
        tls12.as_ref().map(|(text, from)| (&**text, from.clone())),
        tls13.as_ref().map(|(text, from)| (&**text, from.clone())),
    );
    if let Some(one) = curve {
        route.groups(one.text(), one.origin);
    }
    match how {
        Some(one) if matches!(one.text(), "optional" | "required") => {
            route.set_text("client_certificates", one.text(), one.origin);
            if let Some(ca) = ca {
                route.set_text("client_ca", ca.text(), ca.origin);
            }
        }
        Some(one) if one.text() != "none" => route.step(
            one.origin,
            "hitch knows `none`, `optional` and `required`: set `client_certificates`",
        ),
        _ => {
            for one in how.into_iter().chain(ca) {
                route.without_effect(one.origin, "no client certificate is requested");
            }
        }
    }
}

const DEFAULT: &str = "this is the default here, too";

/// Sets the certificates. A frontend's own replace those of all frontends, unless it says otherwise.
fn show(
    levels: &[&Settings<'_>],
    glob: Option<&HitchSetting>,
    merges: Option<&HitchSetting>,
    route: &mut Section,
) {
    let mut all: Vec<Certificate> = Vec::new();
    let mut from = Origins::default();
    let mut seen = HashSet::new();
    let mut glob_is_used = false;
    for level in levels {
        // For clients without a server name, hitch uses the last of these, or else the first file of
        // the directory, and Dormouse the first certificate.
        let mut of_level: Vec<Certificate> = Vec::new();
        for one in level.every("pem-file") {
            match pem(one) {
                Some(pem) => {
                    of_level.push(pem);
                    from.add(one.origins(&OF_PEM).collect::<Origins>());
                }
                None => route.step(one.origin, "this names no certificate"),
            }
        }
        of_level.reverse();
        if let Some(one) = level.last("pem-dir", route) {
            glob_is_used |= glob.is_some();
            of_level.extend(pem_dir(one, glob, route));
            from.add(one.origin);
        }
        // hitch accepts a file twice; the second one adds nothing.
        for pem in of_level {
            if seen.insert(pem.cert.clone()) {
                all.push(pem);
            }
        }
        if !all.is_empty() && !merges.is_some_and(|one| is_on(one.text())) {
            break;
        }
    }
    match glob {
        Some(one) if glob_is_used => from.add(one.origin),
        Some(one) => route.without_effect(one.origin, "there is no `pem-dir`"),
        None => {}
    }
    match merges {
        Some(one) if levels.len() > 1 && is_on(one.text()) => from.add(one.origin),
        Some(one) => route.without_effect(one.origin, "its certificates are the same without it"),
        None => {}
    }
    if !all.is_empty() {
        route.set("certificates", certificates(&all), from);
    }
}

fn pem_dir(
    one: &HitchSetting,
    glob: Option<&HitchSetting>,
    route: &mut Section,
) -> Vec<Certificate> {
    let pattern = glob.map_or("*", HitchSetting::text);
    let whole = |file: &str| Certificate::whole(file);
    let mut from = Origins::from(one.origin);
    from.add(glob.map(|one| one.origin).into_iter().collect::<Origins>());
    match directory(one.text(), pattern, |_| false, whole) {
        Directory::Same => vec![Certificate::whole(one.text())],
        Directory::Files(files) => {
            route.left_out(from, LISTED_ONE_BY_ONE);
            files
        }
        Directory::Unknown(why) => {
            let why = format!(
                "{why}: hitch reads every file {pattern} in it, Dormouse every NAME.pem, .crt and .cer \
                 (with its key in it, or in NAME.key): rename the files, or list them in `certificates`"
            );
            route.step(from, why);
            vec![Certificate::whole(one.text())]
        }
    }
}

fn pem(entry: &HitchSetting) -> Option<Certificate> {
    let find = |key: &str| entry.block().iter().rev().find(|one| one.key == key);
    match &entry.value {
        Value::Text(file) => Some(Certificate::whole(file)),
        Value::Block(_) => Some(Certificate {
            cert: find("cert")?.text().to_owned(),
            key: find("private-key").map(|one| one.text().to_owned()),
            ocsp: find("ocsp-resp-file").map(|one| one.text().to_owned()),
        }),
    }
}

/// Converts `[127.0.0.1]:80` and `[*]:443`.
fn listen_address(text: &str) -> String {
    let Some((host, port)) = text.rsplit_once(':') else {
        return text.to_owned();
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host {
        "" | "*" => format!(":{port}"),
        host if host.contains(':') => format!("[{host}]:{port}"),
        host => format!("{host}:{port}"),
    }
}

fn backend_address(text: &str) -> String {
    match text.starts_with('/') {
        true => format!("unix:{text}"),
        false => listen_address(text),
    }
}

/// Converts settings of all frontends.
fn program(entries: &Settings<'_>, base: &mut Section, draft: &mut Draft) {
    match entries.last("backend", &mut draft.program) {
        Some(one) => base.set_text("to", &backend_address(one.text()), one.origin),
        None => base.set_text("to", &backend_address(DEFAULT_BACKEND), Origins::default()),
    }
    // In the order of the last ones, which win.
    let (mut seen, mut last) = (HashSet::new(), Vec::new());
    for one in entries.all.iter().rev() {
        let key = &*one.key;
        if OF_FRONTENDS.contains(&key) || ["frontend", "backend"].contains(&key) {
            continue;
        }
        match seen.insert(key) {
            true => last.push(one),
            false => draft.program.replaced(one.origin),
        }
    }
    for one in last.into_iter().rev() {
        of_program(one, base, draft);
    }
}

fn of_program(one: &HitchSetting, base: &mut Section, draft: &mut Draft) {
    let (text, from) = (one.text(), one.origin);
    let (on, seconds) = (is_on(text), format!("{text}s"));
    let program = &mut draft.program;
    let v2 = |base: &mut Section, from: Origin| match base.value("proxy_protocol") {
        Some(before) if before.starts_with("\"v2") => base.also("proxy_protocol", from),
        _ => base.set_text("proxy_protocol", "v2", from),
    };
    match &*one.key {
        "workers" if text == "auto" => program.without_effect(from, DEFAULT),
        "workers" | "backlog" => {
            let name = if one.key == "workers" {
                "workers"
            } else {
                "backlog"
            };
            program.number(name, text, from);
        }
        "keepalive" => program.set_text("keepalive_idle", &seconds, from),
        "backend-connect-timeout" => program.set_text("backend_connect_timeout", &seconds, from),
        "ssl-handshake-timeout" => program.set_text("handshake_timeout", &seconds, from),
        "backend-refresh" if text == "0" => {
            program.left_out(from, "names are looked up again when their TTL expires");
        }
        "backend-refresh" => program.set_text("resolve_every", &seconds, from),
        "alpn-protos" => {
            let names = text.split(',').map(str::trim);
            let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
            base.set("alpn", quoted_list(&names), from);
            program.left_out(from, OTHER_PROTOCOLS);
        }
        "write-proxy-v1" if on => base.set_text("proxy_protocol", "v1", from),
        "write-proxy-v2" | "write-proxy" if on => v2(base, from),
        "proxy-client-cert" if on => {
            let mut from = Origins::from(from);
            from.add(base.remove("proxy_protocol"));
            base.set_text("proxy_protocol", "v2-certificate", from);
        }
        "proxy-proxy" if on => {
            v2(base, from);
            program.step(from, PROXY_NETWORKS);
        }
        "write-ip" if on => program.step(from, NO_WRITE_IP),
        "write-ip" | "proxy-proxy" | "write-proxy-v1" | "write-proxy-v2" | "write-proxy"
        | "proxy-client-cert" | "tcp-fastopen" | "client"
            if is_off(text) =>
        {
            program.without_effect(from, DEFAULT);
        }
        "client" => program.step(from, CLIENT),
        "user" => program.set_text("user", text, from),
        "group" => program.set_text("group", text, from),
        "log-level" if text == "0" => program.set_text("log_level", "error", from),
        "ocsp-dir" if text.is_empty() => program.set("ocsp_fetch", "false", from),
        "ocsp-dir" => program.without_effect(from, OCSP),
        "syslog" | "syslog-facility" | "log-filename" => program.left_out(from, LOG),
        "tcp-fastopen" => program.left_out(from, "no equivalent"),
        "ssl-engine" => program.step(from, crate::advice::engine(text)),
        _ => without_effect(one, program),
    }
}

const CLIENT: &str = "hitch then connects with TLS, which is an [[originate]] here: \
    docs/guide/connect.md";

fn without_effect(one: &HitchSetting, section: &mut Section) {
    let found = WITHOUT_EFFECT.iter().find(|(key, _)| *key == one.key);
    if let Some((_, why)) = found {
        section.without_effect(one.origin, *why);
    }
}
