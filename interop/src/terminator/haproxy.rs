//! HAProxy in TCP mode.

use std::path::Path;

use super::settings::{Launch, Settings, Target, write};
use crate::tools;

pub(super) fn prepare(settings: &Settings, folder: &Path) -> Launch {
    let target = match &settings.target {
        Target::Tcp(address) => address.to_string(),
        Target::Unix(path) => format!("unix@{}", path.display()),
        Target::Echo => unreachable!("only for dormouse"),
    };
    let alpn = match settings.alpn.as_slice() {
        [] => String::new(),
        protocols => format!("alpn {}", protocols.join(",")),
    };
    let max_connections = settings.value("max_connections").unwrap_or("4096");
    let user_timeout = match settings.value("user_timeout") {
        Some(time) => format!("tcp-ut {time}"),
        None => String::new(),
    };
    let keepalive: String = [
        ("keepalive_idle", "clitcpka-idle"),
        ("keepalive_interval", "clitcpka-intvl"),
        ("keepalive_count", "clitcpka-cnt"),
    ]
    .iter()
    .filter_map(|(ours, theirs)| Some(format!("    {theirs} {}\n", settings.value(ours)?)))
    .collect();
    let (cache, tickets) = match settings.value("tickets") {
        Some("0") => ("tune.ssl.cachesize 0", "no-tls-tickets"),
        _ => ("", ""),
    };
    let text = format!(
        "global
    maxconn {max_connections}
    nbthread {workers}
    {cache}
    log stderr format raw local0

defaults
    mode tcp
    log global
    timeout connect 5s
    retries 0
    timeout client 5m
    timeout server 5m
    option tcplog
    option clitcpka

listen interop
    bind {listen} ssl crt {both} ssl-min-ver TLSv1.2 {alpn} {tickets} {user_timeout}
{keepalive}    server backend {target}
",
        workers = settings.workers,
        listen = settings.listen,
        both = settings.certificate.both.display(),
    );
    let file = write(folder, "haproxy.cfg", &text);
    Launch {
        command: vec![tools::path("haproxy"), "-db".into(), "-f".into(), file],
        ready_line: None,
    }
}
