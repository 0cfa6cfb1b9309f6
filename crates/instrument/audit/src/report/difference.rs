//! Compares two audits of the same server or client: what changed by more than chance.

use std::fmt::Write;

use super::headlines::{Change, Line, OF_CLIENT, OF_SERVER};
use crate::model::Audit;
use crate::model::Finding;

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
    let collects = before.collects() || after.collects();
    let mut lines: Vec<Line> = Vec::new();
    if let (Some(before), Some(after)) = (&before.server, &after.server) {
        lines.extend(
            OF_SERVER
                .iter()
                .flat_map(|row| (row.changes)([before, after], collects)),
        );
    }
    if let (Some(before), Some(after)) = (&before.client, &after.client) {
        lines.extend(
            OF_CLIENT
                .iter()
                .flat_map(|row| (row.changes)([before, after], collects)),
        );
    }
    let mut text = format!("{}\n{}\n\n", heading(before), heading(after));
    for note in differing_premises(before, after) {
        let _ = writeln!(text, "  note: {note}\n");
    }
    let is_unknown = |change| matches!(change, Change::Unknown(_));
    for (title, lines) in [
        (
            "changed",
            lines
                .iter()
                .filter(|line| line.change == Change::Yes)
                .collect(),
        ),
        (
            "no significant change",
            lines
                .iter()
                .filter(|line| line.change == Change::No)
                .collect(),
        ),
        (
            "not comparable",
            lines
                .iter()
                .filter(|line| is_unknown(line.change))
                .collect::<Vec<_>>(),
        ),
    ] {
        table(&mut text, title, &lines);
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
    let width = lines.iter().map(|line| line.title.chars().count()).max();
    let width = width.unwrap_or(0);
    for line in lines {
        let why = match line.change {
            Change::Unknown(why) => format!(" ({why})"),
            Change::Yes | Change::No => String::new(),
        };
        let [before, after] = &line.values;
        let _ = writeln!(text, "    {:<width$}  {before} → {after}{why}", line.title);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::{Confidence, FindingId, Severity};
    use crate::model::{Measured, MemoryFigures, ServerFigures, Trials};
    use crate::software::{Software, SoftwareKind};
    use dormouse_measure::{Growth, Slope, Verdict};

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
        let memory = MemoryFigures {
            used_bytes: Measured::Value(used),
            ..MemoryFigures::default()
        };
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
            let memory = MemoryFigures {
                growth: Measured::Value(Growth {
                    rounds: Vec::new(),
                    slope: Some(Slope {
                        per_unit: 250.0 * each,
                        plus_minus: Some(250.0 * plus_minus),
                    }),
                    material_bytes: 2_500.0,
                    connections_per_round: 250,
                    verdict: Verdict::Unclear,
                }),
                ..MemoryFigures::default()
            };
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
