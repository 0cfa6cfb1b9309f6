//! The pictures of a server's audit: bars and lines, as SVG and boxes in the page.

use std::fmt::Write;

use super::super::census::SizeClass;
use super::super::model::{Audit, FlightRow, Measured, MemoryFigures, ServerFigures};
use super::html::section;
use super::parts::{self, bytes};
use crate::model::grouped;
use crate::report::escape;
use crate::report::scale::Scale;

/// Block sizes with a piece of their own in the picture.
const PIECES: usize = 5;

/// A bar of what a quiet connection takes.
pub(super) fn where_bytes_go(server: &ServerFigures) -> String {
    let Some(memory) = server.memory.value() else {
        return String::new();
    };
    let quiet = memory.quiet_bytes().max(0.0);
    let mut pieces = blocks_of(server, quiet);
    let named: f64 = pieces.iter().map(|piece| piece.1).sum();
    if quiet - named > 0.01 * quiet {
        pieces.push((
            "outside of blocks that were counted: holes, stacks, mappings, a managed heap".into(),
            quiet - named,
        ));
    }
    let process = named.max(quiet);
    if let Measured::Measured(kernel) = memory.kernel_bytes {
        // Both ends are on this machine; the server has one of them.
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
    let body = format!("<div class=\"bar\">{bar}</div><div class=\"share\">{list}</div>");
    let mut what = format!(
        "The process grew by {} for each quiet connection; and the kernel's part.",
        bytes(quiet)
    );
    if process > 1.02 * quiet {
        let more = bytes(process - quiet);
        let _ = write!(
            what,
            " {more} of its blocks lie where it held memory before."
        );
    }
    section("Where a connection's bytes go", &what, &body)
}

/// The blocks that come with a connection, as far as they are resident.
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
            let name = format!(
                "{whose}{} × {} bytes, {:.0} % zeros",
                parts::times(class.per_connection),
                grouped(class.size_bytes as f64, 0),
                100.0 * class.zero_share
            );
            (name, resident(class))
        })
        .collect();
    // The sizes which are too small to be in the report are in none of the classes.
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

/// The server's memory, with the phases marked.
pub(super) fn over_time(audit: &Audit, server: &ServerFigures) -> String {
    let Some(memory) = server.memory.value().filter(|_| audit.samples.len() > 2) else {
        return String::new();
    };
    let (width, height, left, bottom) = (680.0, 300.0, 70.0, 262.0);
    let points: Vec<(f64, f64)> = audit
        .samples
        .iter()
        .map(|sample| (sample.at_s, sample.pss_bytes as f64 / 1e6))
        .collect();
    let marks = || memory.phases.iter().map(|phase| phase.at_s);
    let first = points.first().map_or(0.0, |point| point.0);
    let x = Scale::linear(
        points
            .iter()
            .map(|p| p.0 - first)
            .chain(marks().map(|at| at - first)),
        left,
        width - 10.0,
    );
    // Above the line is room for the numbers of the phases.
    let y = Scale::linear(points.iter().map(|p| p.1), bottom, 48.0);
    let mut svg = format!(
        "<svg class=\"time\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"memory over time\">"
    );
    for tick in y.ticks() {
        let at = y.at(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            width - 10.0,
            left - 8.0,
            at + 5.0,
            grouped(tick, usize::from(tick < 10.0 && tick.fract() > 0.0))
        );
    }
    for tick in x.ticks() {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{tick}</text>",
            x.at(tick),
            bottom + 20.0
        );
    }
    let line: Vec<String> = points
        .iter()
        .map(|point| format!("{:.1} {:.1}", x.at(point.0 - first), y.at(point.1)))
        .collect();
    let line = line.join(" L");
    let (start, end) = (
        x.at(0.0),
        points.last().map_or(left, |point| x.at(point.0 - first)),
    );
    let _ = write!(
        svg,
        "<g class=\"c1\"><path class=\"area\" d=\"M{start:.1} {bottom} L{line} L{end:.1} {bottom} Z\"/><path class=\"line\" d=\"M{line}\"/></g>"
    );
    let names = marks_of(&mut svg, memory, |at_s| x.at(at_s - first), bottom);
    let _ = write!(
        svg,
        "<line class=\"axis\" x1=\"{left}\" x2=\"{}\" y1=\"{bottom}\" y2=\"{bottom}\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">seconds</text></svg>",
        width - 10.0,
        width - 10.0,
        height - 2.0
    );
    section(
        "Memory over time",
        "Megabytes (PSS) of all the server's processes; the phases are numbered.",
        &format!("<div class=\"scroll\">{svg}</div><ol class=\"phases\">{names}</ol>"),
    )
}

/// Numbers the phases in the picture, and names them in a list.
fn marks_of(
    svg: &mut String,
    memory: &MemoryFigures,
    x: impl Fn(f64) -> f64,
    bottom: f64,
) -> String {
    let mut names = String::new();
    for (index, phase) in memory.phases.iter().enumerate() {
        let at = x(phase.at_s);
        let row = if index.is_multiple_of(2) { 11.0 } else { 27.0 };
        let _ = write!(
            svg,
            "<line class=\"mark\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{row}\" y2=\"{bottom}\"/><circle class=\"dot\" cx=\"{at:.1}\" cy=\"{row}\" r=\"9\"/><text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\" style=\"font-size:11px\">{}</text>",
            row + 4.0,
            index + 1
        );
        let _ = write!(
            names,
            "<li>{}: {}</li>",
            escape(&phase.title),
            bytes(phase.memory.pss as f64)
        );
    }
    names
}

/// Memory after each round of churn.
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
        escape(&growth.to_string())
    );
    if let Some(resumed) = memory.growth_resumed.value() {
        let _ = write!(
            what,
            " With resumed handshakes: {}.",
            escape(&resumed.to_string())
        );
    }
    section("Rounds of churn", &what, &body)
}

fn step(body: &mut String, name: &str, share: f64, class: &str, value: &str) {
    let width = 100.0 * share.clamp(0.0, 1.0);
    let _ = write!(
        body,
        "<span>{}</span><span><i class=\"{class}\" style=\"width:{width:.1}%\"></i></span><span class=\"n\">{}</span>",
        escape(name),
        escape(value)
    );
}

/// Flights as a sequence diagram: time goes down, the thickness is the number of bytes.
pub(super) fn sequence(flights: &[FlightRow]) -> String {
    let mut body = String::from("<div class=\"flights\">");
    for flight in flights {
        let (row, top) = (46.0, 44.0);
        let height = top + flight.bytes.len() as f64 * row + 8.0;
        let _ = write!(
            body,
            "<div><h3>{}</h3><svg viewBox=\"0 0 300 {height}\" role=\"img\" aria-label=\"flights\"><text x=\"40\" y=\"16\" text-anchor=\"middle\">client</text><text x=\"260\" y=\"16\" text-anchor=\"middle\">server</text><line class=\"life\" x1=\"40\" x2=\"40\" y1=\"24\" y2=\"{height}\"/><line class=\"life\" x1=\"260\" x2=\"260\" y1=\"24\" y2=\"{height}\"/>",
            escape(&parts::flight_title(flight))
        );
        for (index, bytes) in flight.bytes.iter().enumerate() {
            let y = top + index as f64 * row;
            let to_server = index.is_multiple_of(2);
            let (from, to) = if to_server {
                (40.0, 252.0)
            } else {
                (260.0, 48.0)
            };
            let (class, back) = if to_server {
                ("c1", -10.0)
            } else {
                ("c0", 10.0)
            };
            let thick = 1.5 + f64::from(*bytes).max(1.0).log10();
            let end = y + 22.0;
            let _ = write!(
                body,
                "<g class=\"{class}\"><line class=\"arrow\" style=\"stroke-width:{thick:.1}\" x1=\"{from}\" y1=\"{y}\" x2=\"{to}\" y2=\"{end}\"/><path class=\"head\" d=\"M{} {end} l{back} -6 l0 12 Z\"/></g><text x=\"150\" y=\"{}\" text-anchor=\"middle\">{} bytes</text>",
                if to_server { 260.0 } else { 40.0 },
                y + 1.0,
                grouped(f64::from(*bytes), 0)
            );
        }
        body.push_str("</svg></div>");
    }
    body.push_str("</div>");
    if flights.is_empty() {
        return String::new();
    }
    section(
        "Flights",
        "Bytes of each flight of a handshake, tickets included.",
        &body,
    )
}

/// CPU time, beside what this machine needs.
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
    section(
        "CPU time",
        "Microseconds of the server per connection, beside what this machine needs for the parts.",
        &body,
    )
}
