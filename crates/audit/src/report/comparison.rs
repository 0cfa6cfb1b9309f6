//! Audits side by side. Audits of one group have labels in two parts: `nginx: no cache`.

use std::fmt::Write;

use super::rows::bytes;
use super::section::section;
use crate::findings::{self, Severity};
use crate::model::{Audit, MemoryFigures, Resumption};
use dormouse_bench::model::grouped;
use dormouse_bench::report::html::escape;
use dormouse_measure::Verdict;

/// Anchor of an audit's full report on the page.
pub(super) fn anchor(number: usize) -> String {
    format!("audit-{number}")
}

/// Creates a table of servers and a table of clients.
pub(super) fn side_by_side(audits: &[Audit]) -> String {
    let numbered = || audits.iter().enumerate();
    let servers: Vec<_> = numbered().filter(|(_, one)| one.client.is_none()).collect();
    let clients: Vec<_> = numbered().filter(|(_, one)| one.client.is_some()).collect();
    let mut body = String::new();
    if !servers.is_empty() {
        body.push_str(&section(
            "Servers, side by side",
            "Measured one after the other on the same machine. A proxy in front of a server is measured with it. The bars compare within a group.",
            &table(&servers, &SERVER_COLUMNS, server_row),
        ));
    }
    if !clients.is_empty() {
        body.push_str(&section(
            "Clients, side by side",
            "How often they connect, and how many of these connections resume a session.",
            &table(&clients, &CLIENT_COLUMNS, client_row),
        ));
    }
    body
}

const SERVER_COLUMNS: [&str; 7] = [
    "",
    "bytes per idle connection",
    "retained after close",
    "growth per round",
    "CPU, full",
    "resumed 1.3 / 1.2",
    "findings",
];
const CLIENT_COLUMNS: [&str; 5] = ["", "connections", "requests", "resumed", "findings"];

/// Creates the cells after the name; the second argument is the largest weight in the group.
type RowCells = fn(&Audit, f64) -> Vec<String>;

fn table(audits: &[(usize, &Audit)], columns: &[&str], row: RowCells) -> String {
    let mut body = String::from("<table class=\"compare\"><thead><tr>");
    for column in columns {
        let _ = write!(body, "<th scope=\"col\">{column}</th>");
    }
    body.push_str("</tr></thead><tbody>");
    for group in audits.chunk_by(|a, b| group_of(a.1).is_some() && group_of(a.1) == group_of(b.1)) {
        let heaviest = group
            .iter()
            .map(|(_, audit)| weight(audit))
            .fold(1.0, f64::max);
        if let Some(name) = group.first().and_then(|(_, audit)| group_of(audit)) {
            let _ = write!(
                body,
                "<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"{}\">{}</th></tr>",
                columns.len(),
                escape(name)
            );
        }
        for (number, audit) in group {
            let name = audit
                .label
                .split_once(": ")
                .map_or(&*audit.label, |parts| parts.1);
            let own = if name.contains("dormouse") {
                " class=\"own\""
            } else {
                ""
            };
            let _ = write!(
                body,
                "<tr{own}><th scope=\"row\"><a href=\"#{}\">{}</a></th>",
                anchor(*number),
                escape(name)
            );
            let cells = row(audit, heaviest);
            // On a narrow screen a row becomes a card in which each cell needs its own label.
            for (column, cell) in columns.iter().skip(1).zip(cells) {
                let _ = write!(body, "<td data-what=\"{column}\">{cell}</td>");
            }
            let _ = write!(body, "<td class=\"found\">{}</td></tr>", found(audit));
        }
    }
    body + "</tbody></table>"
}

fn group_of(audit: &Audit) -> Option<&str> {
    audit.label.split_once(": ").map(|parts| parts.0)
}

fn weight(audit: &Audit) -> f64 {
    findings::bytes_per_connection(audit)
        .value()
        .copied()
        .unwrap_or_default()
}

fn server_row(audit: &Audit, heaviest: f64) -> Vec<String> {
    let server = audit.server.as_ref();
    let memory: Option<&MemoryFigures> = server.and_then(|server| server.memory.value());
    let per = findings::bytes_per_connection(audit).value().copied();
    let retained = memory.and_then(|memory| memory.retained_bytes().value().copied());
    let growth = memory.and_then(|memory| memory.growth.value());
    let growth = growth.and_then(|growth| match growth.verdict {
        Verdict::NoGrowth => Some("none".to_owned()),
        Verdict::Grows => Some(bytes(growth.slope?.per_unit)),
        Verdict::Unclear => Some(format!("{}, unclear", bytes(growth.slope?.per_unit))),
    });
    let cpu = server.and_then(|server| server.cpu.value());
    let share = |version: &str| {
        let best = Resumption::best_shares(&server?.resumption);
        let (_, share) = best.into_iter().find(|(known, _)| *known == version)?;
        Some(format!("{:.0} %", 100.0 * share))
    };
    let dash = || "–".to_owned();
    let bar = per.map_or_else(String::new, |value| {
        let width = 100.0 * (value / heaviest).clamp(0.0, 1.0);
        format!("<span class=\"meter\"><i style=\"width:{width:.1}%\"></i></span>")
    });
    vec![
        format!("{}{bar}", per.map_or_else(dash, bytes)),
        retained.map_or_else(dash, |left| bytes(left.max(0.0))),
        growth.unwrap_or_else(dash),
        cpu.map_or_else(dash, |cpu| format!("{} µs", grouped(cpu.full_us, 0))),
        format!(
            "{} / {}",
            share("TLS 1.3").unwrap_or_else(dash),
            share("TLS 1.2").unwrap_or_else(dash)
        ),
    ]
}

fn client_row(audit: &Audit, _: f64) -> Vec<String> {
    let Some(client) = &audit.client else {
        return Vec::new();
    };
    // The first connection has nothing to resume.
    let resumed = match client.connections {
        0 | 1 => "–".to_owned(),
        all => format!("{} of {all}", client.resumed),
    };
    vec![
        client.connections.to_string(),
        client.requests.to_string(),
        resumed,
    ]
}

/// Lists severe findings by identifier, and the number of others.
fn found(audit: &Audit) -> String {
    let mut chips = String::new();
    let mut lighter = 0;
    for finding in &audit.findings {
        if finding.severity < Severity::Medium {
            lighter += 1;
            continue;
        }
        let _ = write!(
            chips,
            "<span class=\"chip {}\" title=\"{}\">{}</span> ",
            finding.severity.name(),
            escape(&finding.title),
            finding.id
        );
    }
    if let Some(word) = audit.failure_word() {
        let _ = write!(chips, "<span class=\"chip high\">{word}</span> ");
    } else if audit.findings.is_empty() {
        chips.push_str("<span class=\"chip clean\">nothing</span> ");
    }
    if lighter > 0 {
        let _ = write!(chips, "<small>{lighter} less severe</small>");
    }
    chips
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audits_of_a_group_are_adjacent() {
        let labels = [
            "a<b: bare",
            "a<b: behind dormouse",
            "c: bare",
            "alone",
            "other",
        ];
        let audits: Vec<_> = labels
            .iter()
            .map(|label| Audit::begin("server", label, "127.0.0.1:1"))
            .collect();
        let page = side_by_side(&audits);
        assert_eq!(page.matches("class=\"group\"").count(), 2);
        assert_eq!(page.matches(">a&lt;b</th>").count(), 1);
        assert_eq!(page.matches("class=\"own\"").count(), 1);
        for number in 0..labels.len() {
            assert!(page.contains(&format!("href=\"#{}\"", anchor(number))));
        }
        assert!(page.contains(">alone</a>") && !page.contains("Clients"));
    }
}
