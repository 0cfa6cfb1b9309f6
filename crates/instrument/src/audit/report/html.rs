//! An audit as one self-contained page; several of them side by side.

use std::fmt::Write;

use super::super::census::SizeClass;
use super::super::findings::Severity;
use super::super::model::{Audit, FlightRow, Measured, MemoryFigures, ServerFigures};
use super::beside;
use super::parts::{self, bytes};
use crate::model::grouped;
use crate::report::scale::Scale;
use crate::report::{STYLE, escape};

const AUDIT_STYLE: &str = include_str!("audit.css");
const SEVERITIES: [Severity; 4] = [
    Severity::High,
    Severity::Medium,
    Severity::Low,
    Severity::Info,
];
/// Block sizes with a piece of their own in the picture.
const PIECES: usize = 5;

/// Draws the page.
pub fn page(title: &str, audits: &[Audit]) -> String {
    let mut body = String::new();
    let _ = write!(body, "<header><h1>{}</h1>", escape(title));
    if let [audit] = audits {
        let _ = write!(body, "<p>{}</p>{}", about(audit), verdict(audit));
    } else if let Some(first) = audits.first() {
        let _ = write!(
            body,
            "<p>{} audits · {}{}</p>",
            audits.len(),
            machine(first),
            busy(audits)
        );
    }
    body.push_str("</header>\n");
    if audits.len() > 1 {
        body.push_str(&beside::side_by_side(audits));
    }
    for (number, audit) in audits.iter().enumerate() {
        if audits.len() == 1 {
            body.push_str(&one(audit));
        } else {
            let _ = write!(
                body,
                "<details id=\"{}\"><summary><b>{}</b> {}</summary><p class=\"what\">{}</p>\n{}</details>\n",
                beside::anchor(number),
                escape(&audit.label),
                verdict(audit),
                about(audit),
                one(audit)
            );
        }
    }
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}{AUDIT_STYLE}</style>\n</head>\n\
         <body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

fn about(audit: &Audit) -> String {
    let software = audit
        .software
        .value()
        .map_or_else(|| "software unknown".into(), |s| s.title());
    format!(
        "{} · {} · {} · {:.0} s · {}",
        escape(&software),
        escape(&audit.target),
        machine(audit) + &busy(std::slice::from_ref(audit)),
        audit.duration_s,
        escape(&audit.tool)
    )
}

fn machine(audit: &Audit) -> String {
    let gib = audit.machine.memory_bytes as f64 / f64::from(1 << 30);
    format!(
        "{} · {} cores, {gib:.0} GiB, Linux {}",
        escape(&audit.started_at),
        audit.machine.cores,
        escape(&audit.machine.kernel)
    )
}

/// On a busy machine CPU times are ratios.
fn busy(audits: &[Audit]) -> String {
    let loads: Vec<f64> = audits.iter().filter_map(Audit::load_average).collect();
    let (Some(least), Some(most)) = (
        loads.iter().copied().reduce(f64::min),
        loads.iter().copied().reduce(f64::max),
    ) else {
        return String::new();
    };
    if loads.len() == 1 {
        format!(", load average {most:.1} at the start")
    } else {
        format!(", load averages {least:.1} to {most:.1} at their starts: CPU times are ratios")
    }
}

fn verdict(audit: &Audit) -> String {
    let mut chips = String::new();
    for severity in SEVERITIES {
        let count = audit
            .findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count();
        if count > 0 {
            let _ = write!(
                chips,
                "<span class=\"chip {0}\">{count} {0}</span>",
                severity.name()
            );
        }
    }
    if chips.is_empty() && audit.outcome.complete {
        chips.push_str("<span class=\"chip clean\">nothing found</span>");
    }
    if !audit.outcome.complete {
        let why = audit.outcome.message.as_deref().unwrap_or("?");
        let _ = write!(
            chips,
            "<span class=\"chip high\">not complete</span> <span class=\"bad\">{}</span>",
            escape(why)
        );
    }
    format!("<div class=\"verdict\">{chips}</div>")
}

fn one(audit: &Audit) -> String {
    let mut body = found(audit);
    if let Some(server) = &audit.server {
        body.push_str(&where_bytes_go(server));
        body.push_str(&over_time(audit, server));
        body.push_str(&rounds(server));
        body.push_str(&sequence(&server.flights));
        body.push_str(&processor(server));
    }
    body.push_str(&connections(audit));
    body.push_str(&figures(audit));
    body
}

pub(super) fn section(title: &str, what: &str, body: &str) -> String {
    format!("<section><h2>{title}</h2><p class=\"what\">{what}</p>\n{body}</section>\n")
}

fn found(audit: &Audit) -> String {
    let mut body = String::new();
    for finding in &audit.findings {
        let severity = finding.severity.name();
        let _ = write!(
            body,
            "<div class=\"finding {severity}\"><span class=\"chip\">{severity}</span> <small>{}</small><h3>{}</h3><dl>",
            escape(&finding.id),
            escape(&finding.title)
        );
        let confidence = format!("{:?}", finding.confidence).to_lowercase();
        for (what, text) in [
            ("measured", escape(&finding.measured)),
            ("a good one", escape(&finding.reference)),
            (
                "likely cause",
                format!(
                    "{} <small>(confidence: {confidence})</small>",
                    escape(&finding.cause)
                ),
            ),
            ("to change", escape(&finding.advice)),
            (
                "see it again",
                format!("<code>{}</code>", escape(&finding.command)),
            ),
        ] {
            let _ = write!(body, "<dt>{what}</dt><dd>{text}</dd>");
        }
        body.push_str("</dl></div>\n");
    }
    if body.is_empty() {
        body.push_str("<p>Nothing was found.</p>");
    }
    section("Findings", "The weightiest first.", &body)
}

/// A bar of what a quiet connection takes.
fn where_bytes_go(server: &ServerFigures) -> String {
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
            "<b class=\"c{class}\"></b><span class=\"w\">{}</span><span class=\"n\">{}</span>",
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
                "{whose}{:.1} × {} bytes, {:.0} % zeros",
                class.per_connection,
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

fn over_time(audit: &Audit, server: &ServerFigures) -> String {
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
    let y = Scale::linear(points.iter().map(|p| p.1), bottom, 26.0);
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

fn rounds(server: &ServerFigures) -> String {
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
fn sequence(flights: &[FlightRow]) -> String {
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

fn processor(server: &ServerFigures) -> String {
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

/// A client's connections, one square each.
fn connections(audit: &Audit) -> String {
    let Some(client) = &audit.client else {
        return String::new();
    };
    let mut strip = String::from("<div class=\"strip\">");
    for connection in client.raw.iter().take(400) {
        let (class, word) = match (&connection.offered, connection.resumed) {
            (_, true) => ("c2", "resumed"),
            (Some(_), false) => ("c4", "offered a session in vain"),
            (None, false) => ("c0", "full handshake"),
        };
        let title = format!(
            "{:.2} s: {}, {word}, {} requests",
            connection.at_s, connection.version, connection.requests
        );
        let _ = write!(
            strip,
            "<i class=\"{class}\" title=\"{}\"></i>",
            escape(&title)
        );
    }
    strip.push_str("</div><div class=\"legend\"><span class=\"c0\"><span class=\"swatch\"></span>full</span><span class=\"c4\"><span class=\"swatch\"></span>session offered in vain</span><span class=\"c2\"><span class=\"swatch\"></span>resumed</span></div>");
    section(
        "Connections",
        &format!("{} connections, in order.", client.connections),
        &strip,
    )
}

fn figures(audit: &Audit) -> String {
    let mut body = String::new();
    for (title, rows) in parts::sections(audit) {
        let _ = write!(body, "<h3>{title}</h3><table>");
        for row in rows {
            let class = if row.missing {
                " class=\"missing\""
            } else {
                ""
            };
            let _ = write!(
                body,
                "<tr><td>{}</td><td{class}>{}</td></tr>",
                escape(&row.title),
                escape(&row.value)
            );
        }
        body.push_str("</table>");
    }
    let missing = parts::not_measured(audit);
    let what = match missing.len() {
        0 => "Everything was measured.".to_owned(),
        count => format!("{count} of them could not be measured; the reason is given."),
    };
    for note in &audit.notes {
        let _ = write!(body, "<p class=\"note\">{}</p>", escape(note));
    }
    section("All figures", &what, &body)
}
