//! An audit on a terminal.

use std::fmt::Write;

use super::super::findings::Finding;
use super::super::model::{Audit, Measured};
use super::parts;

const TITLE_WIDTH: usize = 44;
const LINE_MAX: usize = 110;

/// The whole audit as text.
pub fn text(audit: &Audit) -> String {
    let mut out = String::new();
    let software = match &audit.software {
        Measured::Measured(software) => software.title(),
        Measured::NotMeasured(why) => format!("software unknown ({why})"),
    };
    let _ = writeln!(
        out,
        "audit of a {} · {} · {software}",
        audit.kind, audit.target
    );
    let gib = audit.machine.memory_bytes as f64 / f64::from(1 << 30);
    let _ = writeln!(
        out,
        "{} · {} cores, {gib:.0} GiB, Linux {} · {} · {:.1} s",
        audit.started_at, audit.machine.cores, audit.machine.kernel, audit.tool, audit.duration_s
    );
    for (title, rows) in parts::sections(audit) {
        let _ = writeln!(out, "\n  {title}");
        for row in rows {
            line(&mut out, &row.title, &row.value);
        }
    }
    findings(&mut out, &audit.findings);
    for note in &audit.notes {
        let _ = writeln!(out, "\n  note: {note}");
    }
    match (&audit.outcome.message, audit.outcome.complete) {
        (None, _) => {}
        (Some(message), true) => drop(writeln!(out, "\n  FAILED: {message}")),
        (Some(message), false) => drop(writeln!(out, "\n  NOT COMPLETE: {message}")),
    }
    out
}

fn line(out: &mut String, title: &str, value: &str) {
    let indent = 4 + TITLE_WIDTH;
    let pad = TITLE_WIDTH.saturating_sub(title.chars().count());
    let _ = write!(out, "    {title}{}", " ".repeat(pad));
    wrap(out, value, indent, indent);
}

/// Writes words, the first line from `at` on, the others indented.
fn wrap(out: &mut String, text: &str, indent: usize, mut at: usize) {
    for (index, word) in text.split_whitespace().enumerate() {
        let length = word.chars().count();
        if index > 0 && at + 1 + length > LINE_MAX {
            let _ = write!(out, "\n{}", " ".repeat(indent));
            at = indent;
        } else if index > 0 {
            out.push(' ');
            at += 1;
        }
        out.push_str(word);
        at += length;
    }
    out.push('\n');
}

fn findings(out: &mut String, findings: &[Finding]) {
    if findings.is_empty() {
        out.push_str("\n  findings: none\n");
        return;
    }
    out.push_str("\n  findings\n");
    for finding in findings {
        let _ = writeln!(
            out,
            "\n  {:<7} {}  [{}]",
            finding.severity.name().to_uppercase(),
            finding.title,
            finding.id
        );
        let confidence = format!("{:?}", finding.confidence).to_lowercase();
        for (what, text) in [
            ("measured", finding.measured.clone()),
            ("good", finding.reference.clone()),
            (
                "cause",
                format!("{} (confidence: {confidence})", finding.cause),
            ),
            ("change", finding.advice.clone()),
            ("again", finding.command.clone()),
        ] {
            let _ = write!(out, "          {what:<9} ");
            wrap(out, &text, 20, 20);
        }
    }
}
