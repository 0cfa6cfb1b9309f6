//! Charts of a server's audit: bars and lines, as SVG and HTML boxes.

use std::fmt::Write;

use super::rows::{self, bytes};
use super::section::picture;
use crate::model::{Measured, ServerFigures};
use dormouse_bench::model::grouped;
use dormouse_bench::report::html::escape;
use dormouse_census::SizeClass;

/// Maximum number of block sizes drawn separately.
const PIECES: usize = 5;

/// Draws a bar of the memory of an idle connection.
pub(super) fn where_bytes_go(server: &ServerFigures) -> String {
    let Some(memory) = server.memory.value() else {
        return String::new();
    };
    let quiet = memory.per_connection_bytes().max(0.0);
    let mut pieces = blocks_of(server, quiet);
    let named: f64 = pieces.iter().map(|piece| piece.1).sum();
    if quiet - named > 0.01 * quiet {
        pieces.push((
            "not in counted blocks: free bytes, stacks, mappings, a managed heap".into(),
            quiet - named,
        ));
    }
    let process = named.max(quiet);
    if let Measured::Value(kernel) = memory.kernel_bytes {
        // The figure covers both ends on this machine; the server owns one of them.
        pieces.push(("in the kernel: its end of the socket".into(), kernel / 2.0));
    }
    let all: f64 = pieces.iter().map(|piece| piece.1).sum();
    if all <= 0.0 {
        return String::new();
    }
    let (mut bar, mut list) = (String::new(), String::new());
    for (index, (name, value)) in pieces.iter().enumerate() {
        let class = if name.starts_with("in the kernel") {
            7
        } else {
            index % 7
        };
        let _ = write!(
            bar,
            "<i class=\"c{class}\" style=\"width:{:.2}%\" title=\"{}\"></i>",
            100.0 * value / all,
            escape(name)
        );
        let _ = write!(
            list,
            "<b class=\"c{class}\"></b><span>{}</span><span class=\"n\">{}</span>",
            escape(name),
            bytes(*value)
        );
    }
    // The list describes the bar in words.
    let body = format!(
        "<div class=\"bar\" aria-hidden=\"true\">{bar}</div><div class=\"share\">{list}</div>"
    );
    let mut what = format!(
        "An idle connection takes {} in the process, and memory in the kernel.",
        bytes(quiet)
    );
    if process > 1.02 * quiet {
        let more = bytes(process - quiet);
        let _ = write!(
            what,
            " {more} of its blocks lie in memory that the process held before."
        );
    }
    picture("Where a connection's bytes go", &what, &body)
}

/// The resident blocks that come with a connection.
fn blocks_of(server: &ServerFigures, quiet: f64) -> Vec<(String, f64)> {
    let Some(census) = server.census.value() else {
        return Vec::new();
    };
    let resident = |class: &SizeClass| {
        let known = class.resident_per_connection;
        known.unwrap_or(class.bytes_per_connection).max(0.0)
    };
    let mut classes: Vec<&SizeClass> = census.classes.iter().collect();
    classes.sort_by(|a, b| resident(b).total_cmp(&resident(a)));
    let (named, others) = classes.split_at(classes.len().min(PIECES));
    let mut pieces: Vec<(String, f64)> = named
        .iter()
        .filter(|class| resident(class) > 0.02 * quiet)
        .map(|class| {
            let whose = if class.heap == "malloc" {
                String::new()
            } else {
                format!("{}, ", class.heap)
            };
            let part = if resident(class) < 0.9 * class.bytes_per_connection {
                "; their resident part"
            } else {
                ""
            };
            let name = format!(
                "{whose}{} × {} bytes, {:.0} % zeros{part}",
                rows::times(class.per_connection),
                grouped(class.size_bytes as f64, 0),
                100.0 * class.zero_share
            );
            (name, resident(class))
        })
        .collect();
    // Sizes that are too small for the report belong to no class.
    let reported: f64 = census
        .classes
        .iter()
        .map(|class| class.bytes_per_connection)
        .sum();
    let small = (census.heap_bytes_per_connection - reported).max(0.0);
    let other = small + others.iter().map(|class| resident(class)).sum::<f64>();
    if other > 0.01 * quiet {
        pieces.push(("other blocks of the heap".into(), other));
    }
    pieces
}

/// Draws memory after each round of churn.
pub(super) fn rounds(server: &ServerFigures) -> String {
    let Some(memory) = server.memory.value() else {
        return String::new();
    };
    let Some(growth) = memory.growth.value() else {
        return String::new();
    };
    let after: Vec<_> = memory
        .phases
        .iter()
        .filter(|phase| phase.name.starts_with("round_"))
        .collect();
    let most = after
        .iter()
        .map(|phase| phase.memory.pss)
        .max()
        .unwrap_or(1) as f64;
    let mut body = String::from("<div class=\"steps\">");
    for phase in &after {
        let value = phase.memory.pss as f64;
        step(&mut body, &phase.title, value / most, "c3", &bytes(value));
    }
    body.push_str("</div>");
    let mut what = format!(
        "Memory after each round of {} connections: {}.",
        grouped(growth.connections_per_round as f64, 0),
        escape(&rows::grows(growth))
    );
    if let Some(resumed) = memory.growth_resumed.value() {
        let _ = write!(
            what,
            " With resumed handshakes: {}.",
            escape(&rows::grows(resumed))
        );
    }
    picture("Rounds of churn", &what, &body)
}

pub(super) fn step(body: &mut String, name: &str, share: f64, class: &str, value: &str) {
    let width = 100.0 * share.clamp(0.0, 1.0);
    let _ = write!(
        body,
        "<span>{}</span><span aria-hidden=\"true\"><i class=\"{class}\" style=\"width:{width:.1}%\"></i></span><span class=\"n\">{}</span>",
        escape(name),
        escape(value)
    );
}

/// Draws CPU time beside the machine's reference.
pub(super) fn processor(server: &ServerFigures) -> String {
    let Some(cpu) = server.cpu.value() else {
        return String::new();
    };
    let mut rows = vec![("full handshake".to_owned(), cpu.full_us, "c0")];
    for (version, us) in &cpu.resumed_us {
        rows.extend(
            us.value()
                .map(|us| (format!("resumed, {version}"), *us, "c1")),
        );
    }
    let r = &cpu.reference;
    rows.push(("dormouse, in memory".into(), r.handshake_us, "c2"));
    rows.push((format!("{} signature", r.key), r.signature_us, "c7"));
    rows.push(("key exchange".into(), r.exchange_us, "c7"));
    rows.push(("TCP connection".into(), r.tcp_us, "c7"));
    let most = rows.iter().map(|row| row.1).fold(1.0, f64::max);
    let mut body = String::from("<div class=\"steps\">");
    for (name, us, class) in &rows {
        step(
            &mut body,
            name,
            us / most,
            class,
            &format!("{} µs", grouped(*us, 0)),
        );
    }
    body.push_str("</div>");
    picture(
        "CPU time",
        "Microseconds of the server's CPU time per connection, beside what this machine needs for each step.",
        &body,
    )
}
