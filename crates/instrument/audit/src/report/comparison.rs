//! Audits side by side. Audits of one group have labels in two parts: `nginx: no cache`.

use super::headlines::{OF_CLIENT, OF_SERVER, RESUMED};
use crate::findings::{self, Severity};
use crate::model::Audit;
use dormouse_bench::report::html::{Markup, html, section};

/// Anchor of an audit's full report on the page.
pub(super) fn anchor(number: usize) -> String {
    format!("audit-{number}")
}

/// A column: its title, and the value of an audit.
type Column<'a> = (&'static str, Box<dyn Fn(&Audit) -> Option<String> + 'a>);

/// Creates a table of servers and a table of clients.
pub(super) fn side_by_side(audits: &[Audit]) -> Markup {
    let numbered = || audits.iter().enumerate();
    let servers: Vec<_> = numbered().filter(|(_, one)| one.client.is_none()).collect();
    let clients: Vec<_> = numbered().filter(|(_, one)| one.client.is_some()).collect();
    let of_server = OF_SERVER
        .iter()
        .filter_map(|row| row.column)
        .map(|(title, cell)| {
            let cell = move |audit: &Audit| cell(audit.server.as_ref()?);
            (title, Box::new(cell) as _)
        });
    let (title, cell) = RESUMED;
    let resumed = move |audit: &Audit| {
        Some(
            audit
                .server
                .as_ref()
                .map_or_else(|| "– / –".to_owned(), cell),
        )
    };
    let of_server: Vec<Column<'_>> = of_server.chain([(title, Box::new(resumed) as _)]).collect();
    let of_client = OF_CLIENT
        .iter()
        .filter_map(|row| row.column)
        .map(|(title, cell)| {
            let cell = move |audit: &Audit| cell(audit.client.as_ref()?);
            (title, Box::new(cell) as _)
        });
    let of_client: Vec<Column<'_>> = of_client.collect();
    html! {
        @if !servers.is_empty() {
            (section(
                None,
                "Servers, side by side",
                "Measured one after the other on the same machine. A proxy in front of a server is measured with it. The bars compare within a group.",
                &table(&servers, &of_server)
            ))
        }
        @if !clients.is_empty() {
            (section(
                None,
                "Clients, side by side",
                "How often they connect, and how many of these connections resume a session.",
                &table(&clients, &of_client)
            ))
        }
    }
}

fn table(audits: &[(usize, &Audit)], columns: &[Column<'_>]) -> Markup {
    let groups = audits.chunk_by(|a, b| group_of(a.1).is_some() && group_of(a.1) == group_of(b.1));
    let all = columns.len() + 2;
    html! {
        table class="compare" {
            thead { tr {
                th scope="col" {}
                @for (title, _) in columns { th scope="col" { (title) } }
                th scope="col" { "findings" }
            } }
            tbody {
                @for group in groups {
                    @if let Some(name) = group.first().and_then(|(_, audit)| group_of(audit)) {
                        tr class="group" { th scope="rowgroup" colspan=(all) { (name) } }
                    }
                    @let heaviest = group.iter().filter_map(|(_, audit)| weight(audit)).fold(1.0, f64::max);
                    @for (number, audit) in group { (row(*number, audit, columns, heaviest)) }
                }
            }
        }
    }
}

/// The row of an audit. Its first cell has a bar, whose length compares it with the heaviest of its group.
fn row(number: usize, audit: &Audit, columns: &[Column<'_>], heaviest: f64) -> Markup {
    let name = audit
        .label
        .split_once(": ")
        .map_or(&*audit.label, |parts| parts.1);
    let own = name.contains("dormouse").then_some("own");
    let bar = weight(audit).map(|weight| 100.0 * (weight / heaviest).clamp(0.0, 1.0));
    html! {
        tr class=[own] {
            th scope="row" { a href={ "#" (anchor(number)) } { (name) } }
            // On a narrow screen a row becomes a card in which each cell needs its own title.
            @for (index, (title, cell)) in columns.iter().enumerate() {
                td data-what=(title) {
                    (cell(audit).as_deref().unwrap_or("–"))
                    @if let Some(width) = bar.filter(|_| index == 0) {
                        span class="meter" { i style=(format_args!("width:{width:.1}%")) {} }
                    }
                }
            }
            td class="found" { (found(audit)) }
        }
    }
}

fn group_of(audit: &Audit) -> Option<&str> {
    audit.label.split_once(": ").map(|parts| parts.0)
}

fn weight(audit: &Audit) -> Option<f64> {
    findings::bytes_per_connection(audit).value().copied()
}

/// Lists severe findings by identifier, and the number of others.
fn found(audit: &Audit) -> Markup {
    let is_severe = |severity| severity >= Severity::Medium;
    let lighter = audit
        .findings
        .iter()
        .filter(|found| !is_severe(found.severity))
        .count();
    html! {
        @for found in audit.findings.iter().filter(|found| is_severe(found.severity)) {
            span class={ "chip " (found.severity.name()) } title=(found.title) { (found.id) } " "
        }
        @if let Some(word) = audit.failure_word() {
            span class="chip high" { (word) } " "
        } @else if audit.findings.is_empty() {
            span class="chip clean" { "nothing" } " "
        }
        @if lighter > 0 { small { (lighter) " less severe" } }
    }
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
        let page = side_by_side(&audits).0;
        assert_eq!(page.matches("class=\"group\"").count(), 2);
        assert_eq!(page.matches(">a&lt;b</th>").count(), 1);
        assert_eq!(page.matches("class=\"own\"").count(), 1);
        for number in 0..labels.len() {
            assert!(page.contains(&format!("href=\"#{}\"", anchor(number))));
        }
        assert!(page.contains(">alone</a>") && !page.contains("Clients"));
    }
}
