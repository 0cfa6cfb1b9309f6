//! `socket = a|l|r:OPTION=VALUE`: options of the listening, the local and the remote socket.

use std::collections::HashSet;

use super::services::{Service, StunnelSetting};
use crate::section::Section;

/// Converts the lines that have an option for the whole program.
pub(super) fn convert(service: &Service, program: &mut Section) {
    // Of several for one socket, the last counts.
    let (mut seen, mut last) = (HashSet::new(), Vec::new());
    let all: Vec<&StunnelSetting> = service.all("socket").collect();
    for one in all.into_iter().rev() {
        let option = one.value.split('=').next().unwrap_or_default();
        match seen.insert(option.trim().to_ascii_uppercase()) {
            true => last.push(one),
            // Another service may use one that stands above all services.
            false if one.origin < service.origin => {}
            false => program.replaced(one.origin),
        }
    }
    for one in last.into_iter().rev() {
        let from = one.origin;
        let (which, option) = one.value.split_once(':').unwrap_or(("", &one.value));
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let is_on = !matches!(value.trim(), "" | "0" | "no");
        let number = value.trim();
        match (name.trim().to_ascii_uppercase().as_str(), number) {
            // A listening socket passes these on to the connections that it accepts.
            ("TCP_KEEPIDLE", n) => program.set_text("keepalive_idle", &format!("{n}s"), from),
            ("TCP_KEEPINTVL", n) => program.set_text("keepalive_interval", &format!("{n}s"), from),
            ("TCP_KEEPCNT", n) => program.number("keepalive_count", n, from),
            ("SO_KEEPALIVE", _) if is_on => {
                program
                    .without_effect(from, "probes of idle connections are on (`keepalive_idle`)");
            }
            ("SO_KEEPALIVE", _) => {
                program.left_out(
                    from,
                    "probes of idle connections are on: see `keepalive_idle`",
                );
            }
            ("TCP_NODELAY" | "SO_REUSEADDR", _) if is_on => {
                program.without_effect(from, "it is always on");
            }
            ("SO_BINDTODEVICE", device) => program.step(
                from,
                format!("only {device} was used: list only its addresses in `listen`"),
            ),
            ("SO_RCVBUF" | "SO_SNDBUF", _) => {
                program.left_out(from, "use `receive_buffer` and `socket_buffer`");
            }
            _ => program.left_out(
                from,
                format!("no equivalent for this option of the {}", of(which)),
            ),
        }
    }
}

fn of(which: &str) -> &'static str {
    match which {
        "a" => "listening socket",
        "l" => "socket of the client",
        _ => "socket of the server",
    }
}
