//! `server NAME ADDRESS …`, and the choice and the checks of servers.

use super::address::{ServerAddress, of_server};
use super::checks::checks;
use super::config::Config;
use super::server_line::{Given, Server, ServerSettings, servers};
use super::syntax::{HaproxySection, Line};
use crate::advice::{BACKENDS_ARE_VERIFIED, NO_TARGET, SECOND_TLS};
use crate::origin::{Origin, Origins};
use crate::section::{Kind, Section};
use crate::toml::{Backend, Certificate, backends, certificates, list, quoted, quoted_list};

const DEFAULT: &str = "this is the default here, too";

/// Returns whether a server of this backend gets the port of the client's connection.
pub(super) fn needs_port(part: &HaproxySection) -> bool {
    let servers = part.all("server").map(|line| line.word(2));
    let mut all = servers.chain(part.all("server-template").map(|line| line.word(3)));
    all.any(|address| matches!(of_server(address), ServerAddress::SamePort(..)))
}

/// Returns whether this connects with TLS.
pub(super) fn has_tls(part: &HaproxySection) -> bool {
    let kinds = ["server", "default-server", "server-template"];
    let mut lines = kinds.iter().flat_map(|kind| part.all(kind));
    lines.any(|line| line.has_word("ssl"))
}

/// Sets `to` and everything about backends. `port` is that of the clients' connections, if it is one.
pub(super) fn read(
    part: &HaproxySection,
    config: &Config,
    port: Option<u16>,
    section: &mut Section,
) {
    if part.is_disabled() {
        let lines = part.all("disabled").map(|line| line.origin);
        section.step(
            lines.collect::<Origins>(),
            "it is disabled, so its clients were refused: remove this route to refuse them",
        );
    }
    for line in part.all("dispatch") {
        section.step(line.origin, "add this address to `to`");
    }
    let servers = servers(part, config, section).into_iter();
    let (used, unused): (Vec<_>, Vec<_>) = servers.partition(|server| server.unused.is_none());
    for (n, server) in unused.iter().enumerate() {
        if let Some((why, word)) = &server.unused {
            let mut from = server.from.clone();
            from.add(word);
            from.add(server.settings.of_checks());
            if n > 0 || !used.is_empty() {
                from.add(server.settings.origins());
            }
            section.left_out(from, *why);
        }
    }
    balance(part, section);
    if used.is_empty() && !unused.is_empty() {
        section.step(
            part.origin,
            "no server of it gets connections: add backends to `to`, or remove this route",
        );
    }
    // Settings are those of the first server, also if it gets no connections.
    let Some(first) = used.first().or(unused.first()) else {
        return;
    };
    targets(&used, port, section);
    for other in used.iter().skip(1) {
        compare(first, other, section);
    }
    let settings = &first.settings;
    for settings in used
        .iter()
        .chain(unused.first())
        .map(|server| &server.settings)
    {
        if !settings.off.is_empty() {
            section.without_effect(&settings.off, "it is off");
        }
        let rest = settings_without_tls(settings);
        if settings.tls.is_none() && !rest.is_empty() {
            section.without_effect(rest, "there is no TLS to this server");
        }
    }
    match (section.has("pass_through"), &settings.tls) {
        (true, _) => second_tls(&used, section),
        (false, Some(_)) => tls(settings, section),
        (false, None) => {}
    }
    if let Some((version, from)) = &settings.proxy_protocol {
        section.set_text("proxy_protocol", version, from);
    }
    for server in used.iter().skip(1) {
        for name in [
            "backend_tls",
            "backend_ca",
            "backend_crl",
            "backend_name",
            "backend_certificates",
            "proxy_protocol",
        ] {
            section.also(name, server_setting(&server.settings, name));
        }
    }
    checks(part, &used, section);
}

/// Returns the words of another server for the same setting.
fn server_setting(settings: &ServerSettings, name: &str) -> Origins {
    fn of<T>(one: &Given<T>) -> Origins {
        one.as_ref()
            .map(|(_, from)| from.clone())
            .unwrap_or_default()
    }
    match name {
        "backend_tls" => {
            let mut from = of(&settings.tls);
            from.add(&settings.of_verify);
            from.add(of(&settings.protocols));
            from
        }
        "backend_ca" => of(&settings.ca),
        "backend_crl" => of(&settings.crl),
        "backend_name" => of(&settings.name),
        "backend_certificates" => of(&settings.certificate),
        _ => of(&settings.proxy_protocol),
    }
}

fn settings_without_tls(settings: &ServerSettings) -> Origins {
    let mut from = settings.of_verify.clone();
    for name in [
        "backend_ca",
        "backend_crl",
        "backend_name",
        "backend_certificates",
        "backend_tls",
    ] {
        from.add(server_setting(settings, name));
    }
    from
}

/// Sets `to`.
fn targets(used: &[Server<'_>], port: Option<u16>, section: &mut Section) {
    let (mut all, mut from) = (Vec::new(), Origins::default());
    for server in used {
        let at = if server.line.word(0) == "server" {
            2
        } else {
            3
        };
        section.targets.push(server.line.word(at).to_owned());
        let address = match (&server.address, port) {
            (ServerAddress::Whole(address), _) => address.clone(),
            (ServerAddress::SamePort(host, offset), Some(port)) => {
                format!("{host}:{}", i32::from(port).saturating_add(*offset))
            }
            (ServerAddress::SamePort(..), None) => {
                section.step(
                    &server.from,
                    "it gets the port of the client's connection: add it with that port to `to`",
                );
                continue;
            }
            (ServerAddress::Other, _) => {
                section.step(&server.from, NO_TARGET);
                continue;
            }
        };
        from.add(&server.from);
        all.push(Backend {
            address,
            ..server.backend.clone()
        });
    }
    if all.is_empty() {
        return;
    }
    let value = match section.kind {
        Kind::Originate => {
            all.sort_by_key(|one| one.is_backup);
            let has_words = |one: &&Server<'_>| one.from.len() > 1;
            for server in used.iter().filter(has_words) {
                section.left_out(
                    &server.from,
                    "servers are tried in the order of `to`, backups last",
                );
            }
            list(
                &all.iter()
                    .map(|one| quoted(&one.address))
                    .collect::<Vec<_>>(),
            )
        }
        _ => backends(&all),
    };
    section.set("to", value, from);
}

/// HAProxy would encrypt the client's TLS once more for these servers.
fn second_tls(used: &[Server<'_>], section: &mut Section) {
    let has_tls = |server: &&Server<'_>| server.settings.tls.is_some();
    let all = used
        .iter()
        .filter(has_tls)
        .map(|server| settings_without_tls(&server.settings));
    let from: Origins = all
        .flat_map(|from| from.iter().collect::<Vec<_>>())
        .collect();
    if !from.is_empty() {
        section.step(from, SECOND_TLS);
    }
}

/// Names settings in which a server differs from the first one, whose settings the route has.
fn compare(first: &Server<'_>, other: &Server<'_>, section: &mut Section) {
    let differences = first.settings.differences(&other.settings);
    if !differences.is_empty() {
        let (one, name) = (first.line.word(1), other.line.word(1));
        let what = format!(
            "servers {one} and {name} differ in {}, but all backends of a route have the same settings, here those of {one}: \
             configure the servers alike, or remove one from `to`",
            differences.join(", "),
        );
        let mut from = other.settings.origins();
        from.add(other.line.origin);
        section.step(from, what);
    }
}

fn tls(settings: &ServerSettings, section: &mut Section) {
    let on = settings
        .tls
        .as_ref()
        .map(|(_, from)| from.clone())
        .unwrap_or_default();
    if section.kind == Kind::Originate {
        return tls_of_origination(settings, on, section);
    }
    section.set("backend_tls", "true", &on);
    revoked("backend_crl", settings, section);
    match &settings.ca {
        Some((file, from)) if file.ends_with("@system-ca") => {
            section.without_effect(from, "the system's authorities are the default");
        }
        Some((file, from)) => section.set_text("backend_ca", file, from),
        None if settings.is_verified => {}
        None => {
            let mut from = on;
            from.add(&settings.of_verify);
            section.step(from, BACKENDS_ARE_VERIFIED);
        }
    }
    match settings.is_verified || settings.of_verify.is_empty() {
        true => section.also("backend_tls", &settings.of_verify),
        false => section.left_out(
            &settings.of_verify,
            "backends' certificates are always verified here",
        ),
    }
    if let Some((name, from)) = &settings.name {
        section.set_text("backend_name", name, from);
    }
    if let Some((file, from)) = &settings.certificate {
        let one = Certificate::whole(file.clone());
        section.set("backend_certificates", certificates(&[one]), from);
    }
    if let Some((list, from)) = &settings.protocols {
        let protocols: Vec<&str> = list.split(',').collect();
        section.set("backend_alpn", quoted_list(&protocols), from);
    }
}

/// Sets the revocation list for servers' certificates.
fn revoked(option: &'static str, settings: &ServerSettings, section: &mut Section) {
    let Some((file, from)) = &settings.crl else {
        return;
    };
    match settings.is_verified || settings.of_verify.is_empty() {
        true => section.set(option, quoted_list(&[file.as_str()]), from),
        false => section.without_effect(from, "no certificate was verified"),
    }
}

fn tls_of_origination(settings: &ServerSettings, on: Origins, section: &mut Section) {
    section.also("listen", on);
    revoked("crl", settings, section);
    let is_off = !settings.is_verified && !settings.of_verify.is_empty();
    match &settings.ca {
        _ if is_off => {
            section.set("insecure", "true", &settings.of_verify);
            section.left_out(&settings.of_verify, crate::advice::NOT_VERIFIED);
            if let Some((_, from)) = &settings.ca {
                section.without_effect(from, "no certificate was verified");
            }
        }
        Some((file, from)) if !file.ends_with("@system-ca") => {
            let mut from = from.clone();
            from.add(&settings.of_verify);
            section.set_text("ca", file, from);
        }
        Some((_, from)) => {
            let mut from = from.clone();
            from.add(&settings.of_verify);
            section.set_text("ca", "system", from);
        }
        None => section.set_text("ca", "system", &settings.of_verify),
    }
    if let Some((name, from)) = &settings.name {
        section.set_text("server_name", name, from);
    }
    if let Some((file, from)) = &settings.certificate {
        let one = Certificate::whole(file.clone());
        section.set("certificates", certificates(&[one]), from);
    }
    if let Some((list, from)) = &settings.protocols {
        let protocols: Vec<&str> = list.split(',').collect();
        section.set("alpn", quoted_list(&protocols), from);
    }
}

/// The sample of MQTT's client id, without spaces.
const MQTT_CLIENT_ID: &str = "mqtt_field_value(connect,client_identifier)";

/// Whether a line keeps a client of MQTT with its server.
pub(super) fn is_by_mqtt_client_id(line: &Line) -> bool {
    let is_rule = matches!(line.word(1), "on" | "match" | "store-request");
    line.word(0) == "stick" && is_rule && line.word(2).contains(MQTT_CLIENT_ID)
}

fn by_mqtt_client_id(section: &mut Section, from: Origin) {
    section.set_text("balance", "mqtt-client-id", from);
    section.set_text("backend_connect", "first-data", from);
}

/// Whether a sample is the client's server name.
fn is_server_name(sample: &str) -> bool {
    let name = sample.split(',').next().unwrap_or_default();
    matches!(name, "ssl_fc_sni" | "req.ssl_sni" | "req_ssl_sni")
}

fn balance(part: &HaproxySection, section: &mut Section) {
    // A table of clients goes before the rule for those that are not in it.
    let sticks: Vec<&Line> = part
        .all("stick")
        .filter(|line| is_by_mqtt_client_id(line))
        .collect();
    if let Some(stick) = sticks.first()
        && section.kind != Kind::Originate
    {
        section.replaced(
            part.all("balance")
                .map(|line| line.origin)
                .collect::<Origins>(),
        );
        return by_mqtt_client_id(section, stick.origin);
    }
    let lines: Vec<&Line> = part.all("balance").collect();
    let Some((line, earlier)) = lines.split_last() else {
        return;
    };
    section.replaced(earlier.iter().map(|line| line.origin).collect::<Origins>());
    let from = line.origin;
    match line.word(1).split('(').next().unwrap_or_default() {
        _ if section.kind == Kind::Originate => {
            section.left_out(from, "servers are tried in the order of `to`");
        }
        "leastconn" => section.set_text("balance", "least-connections", from),
        "source" => section.set_text("balance", "client-hash", from),
        "hash" if is_server_name(line.word(2)) => section.set_text("balance", "sni-hash", from),
        "hash" if line.word(2).contains(MQTT_CLIENT_ID) => by_mqtt_client_id(section, from),
        "roundrobin" | "static-rr" => section.without_effect(from, DEFAULT),
        "random" => {
            section.set_text("balance", "least-connections", from);
            section.left_out(from, "the nearest equivalent is least-connections");
        }
        _ => section.left_out(from, "no equivalent: backends are used in turn, by weight"),
    }
}
