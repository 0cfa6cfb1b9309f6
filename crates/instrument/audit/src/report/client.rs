//! Charts of a client's audit.

use std::collections::HashMap;

use super::pictures::{picture, steps};
use crate::model::ClientFigures;
use dormouse_bench::model::grouped;
use dormouse_bench::report::html::{Markup, html};

/// Maximum number of connections drawn as squares.
const SQUARES_MAX: usize = 400;
/// Maximum number of sessions drawn as bars.
const SESSIONS_MAX: usize = 6;

/// Kinds of connections: class, word, and name in the legend.
const KINDS: [(&str, &str, &str); 3] = [
    (
        "c0 full",
        "full handshake",
        "full handshake, no session offered",
    ),
    (
        "c4 in-vain",
        "offered a session, which was not resumed",
        "full handshake, though a session was offered",
    ),
    ("c2", "resumed", "resumed"),
];

/// Draws a client's connections in order, one square each.
pub(super) fn connections(client: &ClientFigures) -> Markup {
    if client.connections == 0 {
        return html! {};
    }
    let shown = client.raw.iter().take(SQUARES_MAX);
    let shown = shown.map(|one| match (&one.offered, one.resumed) {
        (_, true) => (one, 2),
        (Some(_), false) => (one, 1),
        (None, false) => (one, 0),
    });
    let shown: Vec<_> = shown.collect();
    let what = if (shown.len() as u64) < client.connections {
        format!(
            "The first {} of {} connections, in order.",
            shown.len(),
            client.connections
        )
    } else {
        format!("{} connections, in order.", shown.len())
    };
    let count = |kind: usize| shown.iter().filter(|(_, of)| *of == kind).count();
    let body = html! {
        div class="strip" aria-hidden="true" {
            @for (one, kind) in &shown {
                @let (class, word, _) = KINDS[*kind];
                i class=(class) title={
                    (format_args!("{:.2}", one.at_s)) " s: " (one.version) ", " (word) ", " (one.requests) " requests"
                } {}
            }
        }
        div class="legend squares" {
            @for (kind, (class, _, name)) in KINDS.iter().enumerate() {
                span { i class=(class) {} (name) ": " (count(kind)) }
            }
        }
    };
    picture("Connections", &what, &body)
}

/// Draws how often each session was used, if any was used more than once.
pub(super) fn sessions(client: &ClientFigures) -> Markup {
    if client.same_session_max < 2 {
        return html! {};
    }
    let mut uses: HashMap<&str, u64> = HashMap::new();
    for session in client.raw.iter().filter_map(|one| one.offered.as_deref()) {
        *uses.entry(session).or_default() += 1;
    }
    let mut uses: Vec<_> = uses.into_iter().collect();
    uses.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let bars = uses.iter().take(SESSIONS_MAX).map(|(name, count)| {
        (
            (*name).to_owned(),
            *count as f64,
            "c3",
            format!("{count} connections"),
        )
    });
    let what = format!(
        "How many connections offered the same session; sessions in all: {}.",
        client.sessions_offered
    );
    picture("Sessions", &what, &steps(&bars.collect::<Vec<_>>(), 1.0))
}

/// Draws how the run's time was spent, as far as the server can tell.
pub(super) fn time(client: &ClientFigures) -> Markup {
    // Parallel handshakes can add up to more than the run.
    if client.connections == 0 || client.handshake_ms > client.run_ms {
        return html! {};
    }
    let share = 100.0 * client.handshake_ms / client.run_ms.max(1.0);
    let parts = [
        ("c0", "in handshakes", share, client.handshake_ms),
        (
            "c7",
            "everything else: start-up, requests, processing",
            100.0 - share,
            client.run_ms - client.handshake_ms,
        ),
    ];
    let body = html! {
        div class="bar" aria-hidden="true" {
            @for (class, _, share, _) in parts { i class=(class) style=(format_args!("width:{share:.2}%")) {} }
        }
        div class="share" {
            @for (class, name, _, ms) in parts {
                b class=(class) {} span { (name) } span class="n" { (grouped(ms, 0)) " ms" }
            }
        }
    };
    let what = "From the start of the command to its end. Handshakes as the server sees them, including the time it waits for the client.";
    picture("Where the time goes", what, &body)
}
