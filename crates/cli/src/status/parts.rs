//! Parts of the page: counters, ticket keys, routes with their listeners, backends, certificates.

use std::fmt::Write as _;

use dormouse_config::show_number;
use dormouse_handover::status::{
    AgeFigures, Count, RouteMemory, RouteStatus, Status, TicketKeyStatus,
};
use dormouse_printable::line;

use crate::figures::Handshakes;
use crate::show::{age, bytes, or_dash};

/// Maximum number of rows shown of a list; `--json` has all.
const ROWS_MAX: usize = 50;

/// Prefix of the counters that say why connections have ended.
const ENDS: &str = "closed_";

/// Counters and gauges that other parts of the page show.
const SHOWN: [Count; 13] = [
    Count::AtRest,
    Count::Connections,
    Count::ConnectHandshakesFailed,
    Count::ConnectHandshakesFull,
    Count::ConnectHandshakesResumed,
    Count::Handshaking,
    Count::HandshakesFailed,
    Count::HandshakesFull,
    Count::HandshakesResumed,
    Count::KernelBytes,
    Count::PendingBytes,
    Count::PlainBytesIn,
    Count::PlainBytesOut,
];

/// Writes handshakes, bytes and reasons of ends, over all routes.
pub(super) fn counters(page: &mut String, status: &Status) {
    let Handshakes {
        full,
        resumed,
        failed,
    } = Handshakes::of(status);
    // Writing into a String can't fail.
    let _ = writeln!(
        page,
        "handshakes   {} full, {} resumed, {} failed",
        show_number(full),
        show_number(resumed),
        show_number(failed)
    );
    let _ = writeln!(
        page,
        "plaintext    {} to backends, {} from them",
        bytes(status.count(Count::PlainBytesOut)),
        bytes(status.count(Count::PlainBytesIn))
    );
    let ends = status.counts.iter().filter_map(|(name, count)| {
        let reason = name.strip_prefix(ENDS).filter(|_| *count > 0)?;
        Some(format!("{} {reason}", show_number(*count)))
    });
    let ends: Vec<String> = ends.collect();
    if !ends.is_empty() {
        let _ = writeln!(page, "closed       {}", ends.join(", "));
    }
}

/// Writes the age of the ticket keys, and the state of their store.
pub(super) fn ticket_keys(page: &mut String, keys: &TicketKeyStatus) {
    let Some(age_s) = keys.age_s else { return };
    let next = keys.rotates_in_s.map(|s| format!(", next in {}", age(s)));
    let _ = write!(
        page,
        "ticket keys  {} old{}",
        age(age_s),
        next.unwrap_or_default()
    );
    if !matches!(keys.store.as_str(), "" | "none") {
        let seen = keys.store_seen_s_ago;
        let seen = seen.map(|s| format!(", last seen {} ago", age(s)));
        let _ = write!(page, "; store {}{}", keys.store, seen.unwrap_or_default());
    }
    page.push('\n');
}

/// Writes a row for each route and origination.
pub(super) fn routes(page: &mut String, status: &Status) {
    if status.routes.is_empty() {
        return;
    }
    let shown = status.routes.iter().take(ROWS_MAX);
    let width = |of: fn(&RouteStatus) -> usize, least: usize| {
        let widths = status.routes.iter().take(ROWS_MAX).map(of);
        widths.max().unwrap_or(0).max(least)
    };
    let name_width = width(|route| route.name.chars().count(), 10);
    let listen_width = width(|route| listeners(route).chars().count(), 20);
    let _ = writeln!(
        page,
        "\nroute{:<name_width$} {:<listen_width$} connections   over 1 h   over 1 d   over 7 d  handshakes  failed",
        "",
        "listens on",
        name_width = name_width - 2,
    );
    for route in shown {
        let done = route.handshakes.full + route.handshakes.resumed;
        let [hour, day, week] = older_than(route.ages.as_ref());
        let _ = writeln!(
            page,
            "  {:<name_width$} {:<listen_width$} {:>11} {hour:>10} {day:>10} {week:>10} {:>11} {:>7}",
            route.name,
            listeners(route),
            show_number(route.connections),
            show_number(done),
            show_number(route.handshakes.failed)
        );
        if let Some(memory) = &route.memory {
            let _ = writeln!(page, "    memory share {}", share(memory));
        }
    }
    more(page, status.routes.len());
}

fn share(memory: &RouteMemory) -> String {
    format!(
        "{} %: at most {} connections, {} of {} for slow peers",
        memory.share_percent,
        or_dash(memory.connections_max, show_number),
        bytes(memory.held_bytes),
        or_dash(memory.bound_bytes, bytes)
    )
}

/// Numbers of connections at least an hour, a day and a week old.
fn older_than(ages: Option<&AgeFigures>) -> [String; 3] {
    match ages {
        Some(ages) => ages.older_than().map(show_number),
        None => std::array::from_fn(|_| "-".to_owned()),
    }
}

fn listeners(route: &RouteStatus) -> String {
    route.listen.join(", ")
}

/// Writes a row for each backend.
pub(super) fn backends(page: &mut String, status: &Status) {
    if status.backends.is_empty() {
        return;
    }
    page.push_str("\nbackends\n");
    let shown = status.backends.iter().take(ROWS_MAX);
    let width = shown.clone().map(|one| one.address.chars().count()).max();
    let width = width.unwrap_or(0);
    for one in shown {
        let failed = match one.connects_failed {
            0 => String::new(),
            1 => ", 1 connect failed".to_owned(),
            more => format!(", {} connects failed", show_number(more)),
        };
        let old = match &one.ages {
            Some(ages) if ages.older_than()[0] > 0 => {
                let [hour, day, week] = older_than(Some(ages));
                format!(", over 1 h {hour}, 1 d {day}, 7 d {week}")
            }
            _ => String::new(),
        };
        let _ = writeln!(
            page,
            "  {:<width$}  {:<10} {} connections{old}{failed}  ({})",
            one.address,
            one.state(),
            show_number(one.connections),
            one.routes.join(", ")
        );
    }
    more(page, status.backends.len());
}

/// Writes a row for each certificate; those that expire soonest come first.
pub(super) fn certificates(page: &mut String, status: &Status) {
    let all = status.certificates.as_deref().unwrap_or_default();
    if all.is_empty() {
        return;
    }
    page.push_str("\ncertificates\n");
    let shown = all.iter().take(ROWS_MAX);
    let width = shown.clone().map(|one| one.name.chars().count()).max();
    let width = width.unwrap_or(0);
    for one in shown {
        let left = match u64::try_from(one.expires_in_s) {
            Ok(left_s @ 1..) => age(left_s),
            _ => "EXPIRED".to_owned(),
        };
        let _ = writeln!(page, "  {:<width$}  {left}  {}", one.name, one.file);
    }
    more(page, all.len());
}

/// Writes a row for each name whose certificate has not arrived, or whose last order has failed.
pub(super) fn orders(page: &mut String, status: &Status) {
    let names = status.acme.iter().flat_map(|acme| &acme.names);
    let names = names.filter(|one| one.failures > 0 || one.expires_in_s.is_none());
    let names: Vec<_> = names.take(ROWS_MAX).collect();
    let Some(width) = names.iter().map(|one| one.name.chars().count()).max() else {
        return;
    };
    page.push_str("\nACME orders\n");
    for one in names {
        let missing = match one.expires_in_s {
            Some(_) => "",
            None => "no certificate yet, ",
        };
        let next = age(one.next_in_s);
        let _ = write!(
            page,
            "  {:<width$}  {missing}next attempt in {next}",
            one.name
        );
        let times = match one.failures {
            0 => {
                page.push('\n');
                continue;
            }
            1 => "once".to_owned(),
            more => format!("{more} times"),
        };
        let why = line(one.last_error.as_deref().unwrap_or("-"));
        let _ = writeln!(page, ", failed {times}: {why}");
    }
}

/// Writes a row about the SPIFFE agent, and one for each of its certificates.
pub(super) fn spiffe(page: &mut String, status: &Status) {
    let Some(of_agent) = &status.spiffe else {
        return;
    };
    let state = match &of_agent.away {
        None => "connected".to_owned(),
        Some(why) => format!("AWAY for {}: {}", age(of_agent.for_s), line(why)),
    };
    let _ = writeln!(page, "\nSPIFFE agent {}  {state}", line(&of_agent.agent));
    for one in &of_agent.certificates {
        let left = match u64::try_from(one.expires_in_s) {
            Ok(left_s @ 1..) => age(left_s),
            _ => "EXPIRED".to_owned(),
        };
        let _ = writeln!(page, "  {}  {left}", line(&one.id));
    }
}

/// Writes the counters that no other part shows, except those at 0.
pub(super) fn other_counters(page: &mut String, status: &Status) {
    let is_shown =
        |name: &str| name.starts_with(ENDS) || SHOWN.iter().any(|count| count.name() == name);
    let others = status.counts.iter();
    let others = others.filter(|(name, count)| **count > 0 && !is_shown(name));
    let others: Vec<_> = others.collect();
    let Some(width) = others.iter().map(|(name, _)| name.chars().count()).max() else {
        return;
    };
    page.push_str("\ncounters\n");
    for (name, count) in others {
        let _ = writeln!(page, "  {name:<width$}  {}", show_number(*count));
    }
}

fn more(page: &mut String, count: usize) {
    if count > ROWS_MAX {
        let _ = writeln!(page, "  and {} more: see --json", count - ROWS_MAX);
    }
}
