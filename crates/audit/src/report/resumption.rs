//! Rows about resumption: by version and mechanism, after a delay, and across the addresses of a name.

use super::rows::{Row, missing, of, row};
use crate::model::{AgedTicket, Measured, Resumption, ServerFigures};
use dormouse_bench::model::grouped;

/// Returns all rows about resumption.
pub(super) fn rows(server: &ServerFigures) -> Vec<Row> {
    let entry = |entry: &Resumption| {
        of(
            &format!("{} by {}", entry.version, entry.by),
            &entry.trials,
            |trials| match (trials.offered, &trials.refusal) {
                (offered, Some(why)) => {
                    format!(
                        "0 of {offered}: no connection that offers a session is established ({why})"
                    )
                }
                (0, None) => {
                    "the server sent no ticket, so there was no session to offer".to_owned()
                }
                (offered, None) => format!(
                    "{} of {offered} ({:.0} %)",
                    trials.resumed,
                    100.0 * trials.share()
                ),
            },
        )
    };
    let mut rows: Vec<Row> = server.resumption.iter().map(entry).collect();
    rows.extend(aged(server));
    rows.extend(across(server));
    rows
}

fn aged(server: &ServerFigures) -> Vec<Row> {
    let aged = match &server.aged {
        Measured::Value(aged) => aged,
        Measured::NotMeasured(why) => return vec![missing("older tickets", why)],
    };
    let oldest = |version: &str| {
        let same = aged.iter().filter(|ticket| ticket.version == version);
        same.map(|ticket| ticket.age_s).fold(0.0, f64::max)
    };
    let words = |ticket: &AgedTicket| {
        let title = format!("{}, a ticket of {:.0} s", ticket.version, ticket.age_s);
        of(&title, &ticket.resumed, |resumed| {
            let mut words = if *resumed { "resumed" } else { "refused" }.to_owned();
            if *resumed && ticket.age_s >= oldest(&ticket.version) {
                words += match ticket.lifetime_s {
                    0 => "; the server announces no lifetime;".to_owned(),
                    s => format!("; the announced lifetime is {} s;", grouped(s.into(), 0)),
                }
                .as_str();
                words += " older ones were not tried";
            }
            words
        })
    };
    aged.iter().map(words).collect()
}

/// Rows that show which address accepts which tickets, one per address and version.
fn across(server: &ServerFigures) -> Vec<Row> {
    let all = match &server.addresses {
        Measured::Value(all) => all,
        Measured::NotMeasured(why) => return vec![missing("across addresses", why)],
    };
    let mut rows: Vec<Row> = Vec::new();
    for entry in all {
        let title = format!("{}, tickets of {}", entry.version, entry.from);
        let at = if entry.from == entry.to {
            "at itself"
        } else {
            &entry.to
        };
        let came = match &entry.trials {
            Measured::NotMeasured(why) => format!("{at}: not measured, because {why}"),
            Measured::Value(trials) if trials.offered == 0 => "it sent no ticket".into(),
            Measured::Value(trials) => {
                format!("{at} {} of {}", trials.resumed, trials.offered)
            }
        };
        match rows.last_mut().filter(|row| row.title == title) {
            Some(row) if row.value == came => {}
            Some(row) => row.value += &format!("; {came}"),
            None => rows.push(row(title, came)),
        }
    }
    rows
}
