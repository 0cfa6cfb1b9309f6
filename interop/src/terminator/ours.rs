//! `dormouse serve`.

use std::path::Path;

use super::settings::{Launch, Settings, Target, write};
use crate::tools;

/// With this variable, connections of every scene rest after the time that it names, unless the test chooses one.
const REST_AFTER: &str = "DORMOUSE_REST_AFTER";

/// Options that belong to the route, not to the top of the file.
const OF_THE_ROUTE: &[&str] = &[
    "rest_after",
    "route_max_connections",
    "route_handshakes_per_second",
    "route_bytes_per_second",
    "route_memory_share",
    "name",
    "min_version",
    "max_version",
    "proxy_protocol",
    "accept_proxy_from",
    "allow",
    "deny",
    "profile",
    "suites",
    "groups",
    "to",
    "balance",
    "backend_failures",
    "backend_pause",
    "slow_start",
    "check",
    "check_status",
    "check_every",
    "check_timeout",
    "check_rise",
    "check_fall",
    "backend_tls",
    "backend_ca",
    "backend_name",
    "backend_certificates",
    "backend_alpn",
    "backend_truncation",
    "backend_down",
    "half_close",
    "starttls",
    "backend_connect",
    "source_addresses",
    "client_certificates",
    "client_ca",
    "client_crl",
];

pub(super) fn prepare(settings: &Settings, folder: &Path) -> Launch {
    let file = write(folder, "dormouse.toml", &configuration(settings));
    Launch {
        command: vec![
            tools::dormouse().to_string_lossy().into_owned(),
            "serve".into(),
            "-c".into(),
            file,
        ],
        ready_line: Some("ready"),
    }
}

fn configuration(settings: &Settings) -> String {
    let (route, whole): (Vec<_>, Vec<_>) = settings
        .options
        .iter()
        .partition(|(name, _)| OF_THE_ROUTE.contains(name));
    let lines = |options: Vec<&(&str, String)>| {
        options
            .iter()
            .map(|(name, value)| format!("{name} = {value}\n"))
            .collect::<String>()
    };
    // Each instance has its own admin path, or none, because all would try the default one.
    let admin = match settings.value("admin") {
        Some(_) => "",
        None => "admin = \"none\"\n",
    };
    let target = match &settings.target {
        // Several backends are written as an option.
        _ if settings.value("to").is_some() => String::new(),
        Target::Tcp(address) => format!("to = \"{address}\"\n"),
        Target::Unix(path) => format!("to = \"unix:{}\"\n", path.display()),
        Target::Echo => "to = \"echo:\"\n".to_owned(),
    };
    let addresses: Vec<_> = [settings.listen]
        .iter()
        .chain(&settings.also_listen)
        .map(ToString::to_string)
        .collect();
    let rest = match std::env::var(REST_AFTER) {
        Ok(time) if settings.value("rest_after").is_none() => {
            format!("rest_after = \"{time}\"\n")
        }
        _ => String::new(),
    };
    let truncation = if settings.truncation_closes {
        "close"
    } else {
        "abort"
    };
    format!(
        "workers = {workers}\n{admin}{whole}\n[[route]]\nlisten = {addresses:?}\n{target}\
         certificates = [{{ cert = \"{cert}\", key = \"{key}\" }}]\n\
         truncation = \"{truncation}\"\nalpn = {alpn:?}\n{rest}{route}",
        workers = settings.workers,
        whole = lines(whole),
        cert = settings.certificate.cert.display(),
        key = settings.certificate.key.display(),
        alpn = settings.alpn,
        route = lines(route),
    )
}
