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
/// Tolerance for CPU time, which is compared as a multiple of the machine's reference at that moment.
const CPU: f64 = 0.25;
/// Smaller differences in bytes per connection are ignored.
const BYTES: f64 = 64.0;

/// One figure in both audits.
struct Line {
    what: String,
    before: String,
    after: String,
    change: Change,
}

/// Whether a figure changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Yes,
    No,
    /// The figures cannot be compared, for this reason.
    Unknown(&'static str),
}

impl From<bool> for Change {
    fn from(changed: bool) -> Self {
        if changed { Self::Yes } else { Self::No }
    }
}

/// Resident memory that a connection takes from free heap is not growth.
const FREE_HEAP: &str = "it depends on how much free heap the server had before";
/// Memory that connections leave behind for later ones.
const POOL: &str = "closing frees the same; the server keeps the rest for later connections, and the lower figure is without it";
/// Resident memory of a runtime that collects garbage.
const GARBAGE: &str = "garbage that was not collected is part of it";
const NO_INTERVAL: &str = "too few rounds";

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
    let of = (before, after);
    if let (Some(before), Some(after)) = (&before.server, &after.server) {
        let collects = of.0.collects() || of.1.collects();
        server(before, after, collects, &mut lines);
    }
    if let (Some(before), Some(after)) = (&before.client, &after.client) {
        client(before, after, &mut lines);
    }
    let mut text = format!("{}\n{}\n\n", heading(before), heading(after));
    for note in differing_premises(before, after) {
        let _ = writeln!(text, "  note: {note}\n");
    }
    let with = |wanted: fn(Change) -> bool| lines.iter().filter(move |line| wanted(line.change));
    for (title, lines) in [
        ("changed", with(|change| change == Change::Yes)),
        ("no significant change", with(|change| change == Change::No)),
        (
            "not comparable",
            with(|change| matches!(change, Change::Unknown(_))),
        ),
    ] {
        table(&mut text, title, &lines.collect::<Vec<_>>());
    }
    findings(&mut text, &before.findings, &after.findings);
    Ok(text)
}

fn heading(audit: &Audit) -> String {
    let software = audit.software.value();
    let software = software.map(|software| format!("{} · ", software.title()));
    format!(
        "{} · {}{}",
        audit.label,
        software.unwrap_or_default(),
        audit.started_at
    )
}

/// Returns what else differs between two audits: without it, a reader would attribute every difference to the server.
fn differing_premises(before: &Audit, after: &Audit) -> Vec<String> {
    let setting = |audit: &Audit, name: &str| {
        let value = audit.settings.get(name);
        value.map(|value| value.as_str().map_or(value.to_string(), str::to_owned))
    };
    let software = |audit: &Audit| audit.software.value().map(|software| software.title());
    let mut all = vec![
        (
            "targets",
            Some(before.target.clone()),
            Some(after.target.clone()),
        ),
        ("programs", software(before), software(after)),
        (
            "versions of the instrument",
            Some(before.tool.clone()),
            Some(after.tool.clone()),
        ),
    ];
    for name in ["effort", "options"] {
        all.push((name, setting(before, name), setting(after, name)));
    }
    // These are stored only if they were given.
    for name in ["connections", "time_s", "memory_bytes", "cmd"] {
        let given = |audit| setting(audit, name).or(Some("not given".into()));
        all.push((name, given(before), given(after)));
    }
    let mut notes: Vec<_> = all
        .into_iter()
        .filter_map(|(what, before, after)| {
            let (before, after) = before.zip(after)?;
            (before != after).then(|| format!("different {what}: {before}, {after}"))
        })
        .collect();
    for (which, audit) in [("first", before), ("second", after)] {
        if !audit.outcome.complete {
            let why = audit.outcome.message.as_deref().unwrap_or("unknown reason");
            notes.push(format!("the {which} audit is not complete: {why}"));
        }
    }
    notes
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
        let why = match line.change {
            Change::Unknown(why) => format!(" ({why})"),
            Change::Yes | Change::No => String::new(),
        };
        let _ = writeln!(
            text,
            "    {:<width$}  {} → {}{why}",
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

fn server(before: &ServerFigures, after: &ServerFigures, collects: bool, lines: &mut Vec<Line>) {
    if let (Some(before), Some(after)) = (before.memory.value(), after.memory.value()) {
        memory(before, after, collects, lines);
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
            change: differs(times(before), times(after), CPU, 0.0).into(),
        });
    }
}

fn memory(before: &MemoryFigures, after: &MemoryFigures, collects: bool, lines: &mut Vec<Line>) {
    let mut add = |what: &str,
                   before: &Measured<f64>,
                   after: &Measured<f64>,
                   change: Option<Change>| {
        let words =
            |value: &Measured<f64>| value.value().map_or("–".into(), |value| bytes(*value));
        let line = |change| Line {
            what: what.into(),
            before: words(before),
            after: words(after),
            change,
        };
        match (before.value(), after.value()) {
            (None, None) => {}
            (Some(one), Some(other)) => {
                lines.push(line(change.unwrap_or_else(|| {
                    Change::from(differs(*one, *other, IN_USE, BYTES))
                })))
            }
            (None, Some(_)) => lines.push(line(Change::Unknown("the first did not measure it"))),
            (Some(_), None) => lines.push(line(Change::Unknown("the second did not measure it"))),
        }
    };
    let (one, other) = (&before.used_bytes, &after.used_bytes);
    let pooled = differs_by_pool(before, after).then_some(Change::Unknown(POOL));
    add("in use per idle connection", one, other, pooled);
    let (one, other) = (
        &before.resident_per_connection(),
        &after.resident_per_connection(),
    );
    let unknown = Some(Change::Unknown(FREE_HEAP));
    add("resident growth per idle connection", one, other, unknown);
    let growth = [before, after].map(|memory| memory.judged_growth().0);
    if let [Some(one), Some(other)] = growth {
        let counted = [before, after].map(|memory| memory.growth_in_use.value().is_some());
        lines.push(Line {
            what: "growth per closed connection".into(),
            before: slope_words(one),
            after: slope_words(other),
            change: match counted {
                [true, true] => slopes_differ(one, other),
                _ if collects => Change::Unknown(GARBAGE),
                _ => slopes_differ(one, other),
            },
        });
    }
}

/// Whether one audit counts what connections leave in a pool, and the other found it there: closing frees the same bytes,
/// and in one of the audits nothing else.
fn differs_by_pool(before: &MemoryFigures, after: &MemoryFigures) -> bool {
    let figures = |memory: &MemoryFigures| {
        let used = *memory.used_bytes.value()?;
        Some((used, used - memory.kept_bytes.value()?))
    };
    let Some(((used, freed), (other_used, other_freed))) = figures(before).zip(figures(after))
    else {
        return false;
    };
    let same = |one, other| !differs(one, other, IN_USE, BYTES);
    !same(used, other_used) && same(freed, other_freed) && same(freed, used.min(other_used))
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

fn slopes_differ(before: &Growth, after: &Growth) -> Change {
    match slope(before).zip(slope(after)) {
        Some(((before, one), (after, other))) => {
            ((before - after).abs() > one + other + BYTES).into()
        }
        None => Change::Unknown(NO_INTERVAL),
    }
}

fn client(before: &ClientFigures, after: &ClientFigures, lines: &mut Vec<Line>) {
    let trials = |client: &ClientFigures| {
        Measured::Value(Trials {
            offered: client.connections.saturating_sub(1),
            resumed: client.resumed,
            outcomes: Vec::new(),
            refusal: None,
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
        change: differs(each(before), each(after), IN_USE, 0.0).into(),
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
        change: (most < other_least || other_most < least).into(),
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
    use crate::software::{Software, SoftwareKind};
    use dormouse_measure::{Slope, Verdict};

    fn software(kind: SoftwareKind, version: Option<&str>) -> Software {
        Software {
            kind,
            program: None,
            version: version.map(str::to_owned),
            library: None,
            evidence: Vec::new(),
        }
    }

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
                    refusal: None,
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

    /// Recorded: MariaDB keeps 38 kB with each of its threads, and HAProxy keeps all blocks of a connection.
    #[test]
    fn a_filled_pool_is_no_change() {
        let audit = |used, kept| {
            let mut audit = audit(used, 16);
            let memory = &mut audit.server.as_mut().unwrap().memory;
            if let Measured::Value(memory) = memory {
                memory.kept_bytes = Measured::Value(kept);
            }
            audit
        };
        let changed = |before, after| {
            let text = difference(&before, &after).unwrap();
            text.contains("  changed")
        };
        assert!(!changed(audit(101_294.0, 38_487.0), audit(62_751.0, 1.0)));
        assert!(!changed(audit(62_751.0, 1.0), audit(101_294.0, 38_487.0)));
        assert!(changed(audit(101_294.0, 38_487.0), audit(51_751.0, 1.0)));
        assert!(changed(
            audit(17_618.0, 17_600.0),
            audit(35_100.0, 35_090.0)
        ));
    }

    /// An unchanged Node.js server: its garbage grew during the first audit, and was collected in the second.
    #[test]
    fn garbage_is_no_change() {
        let audits = [(10_621.0, 909.0), (-4_086.0, 7_828.0)].map(|(each, plus_minus)| {
            let mut audit = audit(15_300.0, 16);
            let mut memory = MemoryFigures::not_measured();
            memory.growth = Measured::Value(Growth {
                rounds: Vec::new(),
                slope: Some(Slope {
                    per_unit: 250.0 * each,
                    plus_minus: Some(250.0 * plus_minus),
                }),
                material_bytes: 2_500.0,
                connections_per_round: 250,
                verdict: Verdict::Unclear,
            });
            audit.server.as_mut().unwrap().memory = Measured::Value(memory);
            audit.software = Measured::Value(software(SoftwareKind::Node, None));
            audit
        });
        let [before, after] = audits;
        let text = difference(&before, &after).unwrap();
        assert!(!text.contains("  changed"), "{text}");
        assert!(text.contains("garbage that was not collected"), "{text}");
        assert!(!text.contains("– → –"), "{text}");
    }

    #[test]
    fn other_differences_of_two_audits_are_named() {
        let (mut before, mut after) = (audit(1_000.0, 16), audit(1_000.0, 16));
        before.software = Measured::Value(software(SoftwareKind::Nginx, Some("1.22.1")));
        after.software = Measured::Value(software(SoftwareKind::Nginx, Some("1.26.0")));
        after.target = "127.0.0.1:2".into();
        for (audit, effort) in [(&mut before, "quick"), (&mut after, "normal")] {
            audit.settings.insert("effort".into(), effort.into());
            audit.settings.insert("time_s".into(), 60.into());
            audit.outcome.complete = true;
        }
        before.settings.insert("connections".into(), 200.into());
        after.settings.insert("cmd".into(), "./new".into());
        after.outcome.complete = false;
        after.outcome.message = Some("interrupted".into());
        let text = difference(&before, &after).unwrap();
        for words in [
            "different targets: 127.0.0.1:1, 127.0.0.1:2",
            "different programs: nginx 1.22.1, nginx 1.26.0",
            "different effort: quick, normal",
            "different connections: 200, not given",
            "different cmd: not given, ./new",
            "the second audit is not complete: interrupted",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("the first audit"), "{text}");
        assert!(!text.contains("instrument"), "{text}");
        assert!(!text.contains("time_s"), "{text}");
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
