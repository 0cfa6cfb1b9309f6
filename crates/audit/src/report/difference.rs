//! Compares two audits of the same server or client: what changed by more than chance.
//!
//! A figure counts as changed if it differs by more than two audits of an unchanged server would. Figures with
//! confidence intervals changed if the intervals do not overlap; the others have a tolerance that the lab's repeated
//! audits stay within.

use std::fmt::Write;

use super::rows::bytes;
use crate::findings::Finding;
use crate::model::{Audit, ClientFigures, Measured, MemoryFigures, ServerFigures, Trials};
use dormouse_bench::model::grouped;
use dormouse_measure::Growth;

/// Tolerance for bytes in use.
const IN_USE: f64 = 0.05;
/// Tolerance for resident memory.
const RESIDENT: f64 = 0.15;
/// Tolerance for CPU time, which is compared as a multiple of the machine's reference at that moment.
const CPU: f64 = 0.25;
/// Smaller differences in bytes per connection are ignored.
const BYTES: f64 = 64.0;

/// One figure in both audits.
struct Line {
    what: String,
    before: String,
    after: String,
    /// Whether the figure changed; `None`: the audits cannot be compared.
    changed: Option<bool>,
}

/// Formats the differences as text.
///
/// # Errors
/// If one audit is of a server and the other of a client.
pub fn difference(before: &Audit, after: &Audit) -> Result<String, String> {
    if before.kind != after.kind {
        return Err(format!(
            "the first file is an audit of a {}, the second of a {}",
            before.kind, after.kind
        ));
    }
    let mut lines = Vec::new();
    if let (Some(before), Some(after)) = (&before.server, &after.server) {
        server(before, after, &mut lines);
    }
    if let (Some(before), Some(after)) = (&before.client, &after.client) {
        client(before, after, &mut lines);
    }
    let mut text = format!(
        "{} · {}\n{} · {}\n\n",
        before.label, before.started_at, after.label, after.started_at
    );
    let (changed, others): (Vec<_>, Vec<_>) =
        lines.iter().partition(|line| line.changed == Some(true));
    let (same, unknown): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|line| line.changed.is_some());
    for (title, lines) in [
        ("changed", changed),
        ("no significant change", same),
        ("not comparable", unknown),
    ] {
        table(&mut text, title, &lines);
    }
    findings(&mut text, &before.findings, &after.findings);
    Ok(text)
}

fn table(text: &mut String, title: &str, lines: &[&Line]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "  {title}");
    let width = lines
        .iter()
        .map(|line| line.what.chars().count())
        .max()
        .unwrap_or(0);
    for line in lines {
        let _ = writeln!(
            text,
            "    {:<width$}  {} → {}",
            line.what, line.before, line.after
        );
    }
    text.push('\n');
}

/// Lists findings that are gone, new and unchanged.
fn findings(text: &mut String, before: &[Finding], after: &[Finding]) {
    let only = |some: &[Finding], others: &[Finding]| -> Vec<String> {
        let missing = some
            .iter()
            .filter(|one| others.iter().all(|other| other.id != one.id));
        missing
            .map(|one| format!("{} ({})", one.id, one.severity.name()))
            .collect()
    };
    let still = before.iter().filter_map(|one| {
        let other = after.iter().find(|other| other.id == one.id)?;
        let (was, is) = (one.severity.name(), other.severity.name());
        let severity = if was == is {
            was.to_owned()
        } else {
            format!("{was} → {is}")
        };
        Some(format!("{} ({severity})", one.id))
    });
    for (title, which) in [
        ("findings gone", only(before, after)),
        ("findings new", only(after, before)),
        ("findings that remain", still.collect()),
    ] {
        let which = if which.is_empty() {
            "none".to_owned()
        } else {
            which.join(", ")
        };
        let _ = writeln!(text, "  {title}: {which}");
    }
}

fn server(before: &ServerFigures, after: &ServerFigures, lines: &mut Vec<Line>) {
    if let (Some(before), Some(after)) = (before.memory.value(), after.memory.value()) {
        memory(before, after, lines);
    }
    for entry in &after.resumption {
        let same = before
            .resumption
            .iter()
            .find(|other| other.version == entry.version && other.by == entry.by);
        if let Some(other) = same {
            let what = format!("{} resumed by {}", entry.version, entry.by);
            lines.extend(shares(what, &other.trials, &entry.trials));
        }
    }
    if let (Some(before), Some(after)) = (before.cpu.value(), after.cpu.value()) {
        // A busy machine slows the reference too, so the ratio is compared.
        let times = |cpu: &crate::model::CpuFigures| {
            cpu.full_us / (cpu.reference.handshake_us + cpu.reference.tcp_us).max(1.0)
        };
        let words = |cpu: &crate::model::CpuFigures| {
            format!(
                "{} µs, {:.1} times the reference",
                grouped(cpu.full_us, 0),
                times(cpu)
            )
        };
        lines.push(Line {
            what: "CPU time of a full handshake".into(),
            before: words(before),
            after: words(after),
            changed: Some(differs(times(before), times(after), CPU, 0.0)),
        });
    }
}

fn memory(before: &MemoryFigures, after: &MemoryFigures, lines: &mut Vec<Line>) {
    for (what, before, after, chance) in [
        (
            "in use per idle connection",
            &before.used_bytes,
            &after.used_bytes,
            IN_USE,
        ),
        (
            "resident growth per idle connection",
            &before.resident_per_connection(),
            &after.resident_per_connection(),
            RESIDENT,
        ),
    ] {
        let both = before.value().zip(after.value());
        let words =
            |value: &Measured<f64>| value.value().map_or("–".into(), |value| bytes(*value));
        // If the heap had free memory before, resident memory says nothing about a connection.
        let comparable = chance == IN_USE;
        lines.push(Line {
            what: what.into(),
            before: words(before),
            after: words(after),
            changed: both
                .filter(|_| comparable)
                .map(|(before, after)| differs(*before, *after, chance, BYTES)),
        });
    }
    let growth = [before, after].map(|memory| memory.judged_growth().0);
    if let [Some(before), Some(after)] = growth {
        lines.push(Line {
            what: "growth per closed connection".into(),
            before: slope_words(before),
            after: slope_words(after),
            changed: slopes_differ(before, after),
        });
    }
}

/// Growth in bytes per closed connection, and its uncertainty.
fn slope(growth: &Growth) -> Option<(f64, f64)> {
    let slope = growth.slope?;
    let each = growth.connections_per_round.max(1) as f64;
    Some((slope.per_unit / each, slope.plus_minus? / each))
}

fn slope_words(growth: &Growth) -> String {
    slope(growth).map_or("–".into(), |(each, plus_minus)| {
        format!("{} ± {} bytes", grouped(each, 0), grouped(plus_minus, 0))
    })
}

fn slopes_differ(before: &Growth, after: &Growth) -> Option<bool> {
    let ((before, one), (after, other)) = (slope(before)?, slope(after)?);
    Some((before - after).abs() > one + other + BYTES)
}

fn client(before: &ClientFigures, after: &ClientFigures, lines: &mut Vec<Line>) {
    let trials = |client: &ClientFigures| {
        Measured::Value(Trials {
            offered: client.connections.saturating_sub(1),
            resumed: client.resumed,
            outcomes: Vec::new(),
        })
    };
    lines.extend(shares(
        "connections resumed".into(),
        &trials(before),
        &trials(after),
    ));
    let each = |client: &ClientFigures| client.requests as f64 / client.connections.max(1) as f64;
    lines.push(Line {
        what: "requests per connection".into(),
        before: format!("{:.1}", each(before)),
        after: format!("{:.1}", each(after)),
        changed: Some(differs(each(before), each(after), IN_USE, 0.0)),
    });
}

/// Compares resumed shares; they changed if their intervals do not overlap.
fn shares(what: String, before: &Measured<Trials>, after: &Measured<Trials>) -> Option<Line> {
    let (before, after) = (before.value()?, after.value()?);
    let words = |trials: &Trials| format!("{} of {}", trials.resumed, trials.offered);
    let ((least, most), (other_least, other_most)) = (before.interval(), after.interval());
    Some(Line {
        what,
        before: words(before),
        after: words(after),
        changed: Some(most < other_least || other_most < least),
    })
}

fn differs(before: f64, after: f64, share: f64, least: f64) -> bool {
    let difference = (before - after).abs();
    difference > least && difference > share * before.abs().max(after.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::{Confidence, FindingId, Severity};

    fn audit(used: f64, resumed: u64) -> Audit {
        let mut audit = Audit::begin("server", "s", "127.0.0.1:1");
        let mut memory = MemoryFigures::not_measured();
        memory.used_bytes = Measured::Value(used);
        audit.server = Some(ServerFigures {
            memory: Measured::Value(memory),
            resumption: vec![crate::model::Resumption {
                version: "TLS 1.3".into(),
                by: "ticket".into(),
                trials: Measured::Value(Trials {
                    offered: 16,
                    resumed,
                    outcomes: Vec::new(),
                }),
            }],
            ..ServerFigures::default()
        });
        audit
    }

    #[test]
    fn chance_is_no_change() {
        let text = difference(&audit(15_300.0, 16), &audit(14_900.0, 15)).unwrap();
        assert!(!text.contains("  changed"), "{text}");
        assert!(text.contains("findings gone: none"), "{text}");
    }

    #[test]
    fn a_cure_is_shown_with_its_finding() {
        let (mut before, after) = (audit(48_000.0, 0), audit(14_900.0, 16));
        before.findings.push(Finding {
            id: FindingId::NoResumption,
            severity: Severity::High,
            title: String::new(),
            measured: String::new(),
            reference: String::new(),
            cause: String::new(),
            confidence: Confidence::High,
            advice: String::new(),
            command: String::new(),
        });
        let text = difference(&before, &after).unwrap();
        let (_, changed) = text.split_once("  changed").unwrap();
        assert!(changed.contains("48.0 kB → 14.9 kB"), "{text}");
        assert!(changed.contains("0 of 16 → 16 of 16"), "{text}");
        assert!(
            text.contains("findings gone: no-resumption (high)"),
            "{text}"
        );
    }

    #[test]
    fn a_server_and_a_client_are_not_compared() {
        let client = Audit::begin("client", "c", "curl");
        assert!(
            difference(&audit(1.0, 1), &client)
                .unwrap_err()
                .contains("of a client")
        );
    }
}
