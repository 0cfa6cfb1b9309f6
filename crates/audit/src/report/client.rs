//! Charts of a client's audit.

use std::collections::HashMap;
use std::fmt::Write;

use super::pictures::step;
use super::section::picture;
use crate::model::ClientFigures;
use dormouse_bench::model::grouped;
use dormouse_bench::report::html::escape;

/// Maximum number of connections drawn as squares.
const SQUARES_MAX: usize = 400;
/// Maximum number of sessions drawn as bars.
const SESSIONS_MAX: usize = 6;

/// Draws a client's connections in order, one square each.
pub(super) fn connections(client: &ClientFigures) -> String {
    if client.connections == 0 {
        return String::new();
    }
    let mut counts = [0_u64; 3];
    let mut strip = String::new();
    for connection in client.raw.iter().take(SQUARES_MAX) {
        let (kind, class, word) = match (&connection.offered, connection.resumed) {
            (_, true) => (2, "c2", "resumed"),
            (Some(_), false) => (1, "c4 in-vain", "offered a session, which was not resumed"),
            (None, false) => (0, "c0 full", "full handshake"),
        };
        if let Some(count) = counts.get_mut(kind) {
            *count += 1;
        }
        let title = format!(
            "{:.2} s: {}, {word}, {} requests",
            connection.at_s, connection.version, connection.requests
        );
        let title = escape(&title);
        let _ = write!(strip, "<i class=\"{class}\" title=\"{title}\"></i>");
    }
    let [full, in_vain, resumed] = counts;
    let shown = full + in_vain + resumed;
    let what = if shown < client.connections {
        format!(
            "The first {shown} of {} connections, in order.",
            client.connections
        )
    } else {
        format!("{shown} connections, in order.")
    };
    let legend: String = [
        ("c0 full", "full handshake, no session offered", full),
        (
            "c4 in-vain",
            "full handshake, though a session was offered",
            in_vain,
        ),
        ("c2", "resumed", resumed),
    ]
    .map(|(class, name, count)| format!("<span><i class=\"{class}\"></i>{name}: {count}</span>"))
    .concat();
    let body = format!(
        "<div class=\"strip\" aria-hidden=\"true\">{strip}</div><div class=\"legend squares\">{legend}</div>"
    );
    picture("Connections", &what, &body)
}

/// Draws how often each session was used, if any was used more than once.
pub(super) fn sessions(client: &ClientFigures) -> String {
    if client.same_session_max < 2 {
        return String::new();
    }
    let mut uses: HashMap<&str, u64> = HashMap::new();
    for session in client.raw.iter().filter_map(|one| one.offered.as_deref()) {
        *uses.entry(session).or_default() += 1;
    }
    let mut uses: Vec<_> = uses.into_iter().collect();
    uses.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let most = uses.first().map_or(1, |(_, count)| *count) as f64;
    let mut body = String::from("<div class=\"steps\">");
    for (name, count) in uses.iter().take(SESSIONS_MAX) {
        let value = format!("{count} connections");
        step(&mut body, name, *count as f64 / most, "c3", &value);
    }
    body.push_str("</div>");
    let what = format!(
        "How many connections offered the same session; sessions in all: {}.",
        client.sessions_offered
    );
    picture("Sessions", &what, &body)
}

/// Draws how the run's time was spent, as far as the server can tell.
pub(super) fn time(client: &ClientFigures) -> String {
    // Parallel handshakes can add up to more than the run.
    if client.connections == 0 || client.handshake_ms > client.run_ms {
        return String::new();
    }
    let share = 100.0 * client.handshake_ms / client.run_ms.max(1.0);
    let rest = client.run_ms - client.handshake_ms;
    let ms = |value: f64| format!("{} ms", grouped(value, 0));
    let body = format!(
        "<div class=\"bar\" aria-hidden=\"true\"><i class=\"c0\" style=\"width:{share:.2}%\"></i><i class=\"c7\" style=\"width:{:.2}%\"></i></div>\
         <div class=\"share\"><b class=\"c0\"></b><span>in handshakes</span><span class=\"n\">{}</span>\
         <b class=\"c7\"></b><span>everything else: start-up, requests, processing</span><span class=\"n\">{}</span></div>",
        100.0 - share,
        ms(client.handshake_ms),
        ms(rest)
    );
    let what = "From the start of the command to its end. Handshakes as the server sees them, including the time it waits for the client.";
    picture("Where the time goes", what, &body)
}
