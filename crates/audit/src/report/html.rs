//! HTML report: one or several audits as one self-contained page.

use std::fmt::Write;

use super::comparison;
use super::section::section;
use super::{brief, client, flights, parts, pictures, timeline};
use crate::findings::Severity;
use crate::model::Audit;
use dormouse_bench::model::grouped;
use dormouse_bench::report::html::{STYLE, document, escape};

const AUDIT_STYLE: &str = include_str!("audit.css");
const SEVERITIES: [Severity; 4] = [
    Severity::High,
    Severity::Medium,
    Severity::Low,
    Severity::Info,
];

/// Returns the headline of a page about one audit.
pub fn title(audit: &Audit) -> String {
    match audit
        .software
        .value()
        .filter(|_| audit.label == audit.target)
    {
        Some(software) => format!("{} at {}, audited", software.title(), audit.target),
        None => format!("{}, audited", audit.label),
    }
}

/// Creates the page.
pub fn page(title: &str, audits: &[Audit]) -> String {
    let mut body = String::new();
    let _ = write!(body, "<header><h1>{}</h1>", escape(title));
    if let [audit] = audits {
        let _ = write!(
            body,
            "<p>{}</p>{}{}",
            about(audit),
            verdict(audit),
            brief::tiles(audit)
        );
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
        body.push_str(&comparison::side_by_side(audits));
    }
    for (number, audit) in audits.iter().enumerate() {
        if audits.len() == 1 {
            body.push_str(&one(audit));
        } else {
            let _ = write!(
                body,
                "<details id=\"{}\"><summary><b>{}</b> {}</summary><p class=\"what\">{}</p>\n{}{}</details>\n",
                comparison::anchor(number),
                escape(&audit.label),
                verdict(audit),
                about(audit),
                brief::tiles(audit),
                one(audit)
            );
        }
    }
    document(&escape(title), &[STYLE, AUDIT_STYLE].concat(), &body)
}

fn about(audit: &Audit) -> String {
    let software = audit
        .software
        .value()
        .map_or_else(|| "software unknown".into(), |s| s.title());
    format!(
        "{} · {} · {} · took {} s · {}",
        escape(&software),
        escape(&audit.target),
        machine(audit) + &busy(std::slice::from_ref(audit)),
        grouped(audit.duration_s, usize::from(audit.duration_s < 10.0)),
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

/// Describes the load average: on a busy machine, CPU times are useful as ratios only.
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
    if let Some(word) = audit.failure_word() {
        let why = audit.outcome.message.as_deref().unwrap_or("?");
        let _ = write!(
            chips,
            "<span class=\"chip high\">{word}</span> <span class=\"bad\">{}</span>",
            escape(why)
        );
    } else if chips.is_empty() {
        chips.push_str("<span class=\"chip clean\">nothing found</span>");
    }
    format!("<div class=\"verdict\">{chips}</div>")
}

fn one(audit: &Audit) -> String {
    let mut body = found(audit);
    if let Some(server) = &audit.server {
        body.push_str(&pictures::where_bytes_go(server));
        body.push_str(&timeline::over_time(audit));
        body.push_str(&pictures::rounds(server));
        body.push_str(&flights::sequences(&server.flights));
        body.push_str(&pictures::processor(server));
    }
    if let Some(figures) = &audit.client {
        body.push_str(&client::connections(figures));
        body.push_str(&client::sessions(figures));
        body.push_str(&client::time(figures));
        body.push_str(&timeline::over_time(audit));
    }
    body.push_str(&figures(audit));
    body
}

fn found(audit: &Audit) -> String {
    let mut body = String::new();
    for finding in &audit.findings {
        let severity = finding.severity.name();
        let _ = write!(
            body,
            "<div class=\"finding {severity}\"><span class=\"chip\">{severity}</span> <small>{}</small><h3>{}</h3><dl>",
            finding.id,
            escape(&finding.title)
        );
        let confidence = format!("{:?}", finding.confidence).to_lowercase();
        for (what, text) in [
            ("measured", escape(&finding.measured)),
            ("good", escape(&finding.reference)),
            (
                "likely cause",
                format!(
                    "{} <small>(confidence: {confidence})</small>",
                    escape(&finding.cause)
                ),
            ),
            ("what to change", worded(&finding.advice)),
            (
                "reproduce it",
                format!("<code>{}</code>", escape(&finding.command)),
            ),
        ] {
            let _ = write!(body, "<dt>{what}</dt><dd>{text}</dd>");
        }
        body.push_str("</dl></div>\n");
    }
    if !body.is_empty() {
        return section("Findings", "The most severe first.", &body);
    }
    let nothing = match (audit.failure_word(), audit.outcome.complete) {
        (None, _) => "Nothing was found.",
        (Some(_), true) => "There is no finding, but the audit failed for the reason above.",
        (Some(_), false) => "Nothing was found in the parts that were measured.",
    };
    section("Findings", nothing, "")
}

/// Formats text with code between backticks.
fn worded(text: &str) -> String {
    let mut out = String::new();
    let pieces: Vec<&str> = text.split('`').collect();
    let last = pieces.len() - 1;
    for (index, piece) in pieces.iter().enumerate() {
        // An unmatched backtick stays as it is.
        if index % 2 == 1 && index < last {
            let _ = write!(out, "<code>{}</code>", escape(piece));
        } else {
            let tick = if index % 2 == 1 { "`" } else { "" };
            let _ = write!(out, "{tick}{}", escape(piece));
        }
    }
    out
}

fn figures(audit: &Audit) -> String {
    if audit.server.is_none() && audit.client.is_none() {
        return String::new();
    }
    let mut body = String::new();
    for (title, rows) in parts::sections(audit) {
        let _ = write!(body, "<h3>{title}</h3><table class=\"figures\">");
        for row in rows {
            let class = if row.missing {
                " class=\"missing\""
            } else {
                ""
            };
            let _ = write!(
                body,
                "<tr><th scope=\"row\">{}</th><td{class}>{}</td></tr>",
                escape(&row.title),
                // Suite names are long and need break points.
                escape(&row.value).replace('_', "_<wbr>")
            );
        }
        body.push_str("</table>");
    }
    let missing = parts::not_measured(audit);
    let what = match missing.len() {
        0 => "Everything was measured.".to_owned(),
        count => format!("{count} figures were not measured; each has its reason."),
    };
    for missing in &audit.incomplete {
        let _ = write!(
            body,
            "<p class=\"note\">not measured: {}, because {}</p>",
            escape(&missing.part),
            escape(&missing.why)
        );
    }
    for note in &audit.notes {
        let _ = write!(body, "<p class=\"note\">{}</p>", escape(note));
    }
    section("All figures", &what, &body)
}

#[cfg(test)]
mod tests {
    use super::{page, worded};
    use crate::model::{Audit, MissingPart, ServerFigures};

    #[test]
    fn a_failed_audit_is_not_called_clean() {
        let mut audit = Audit::begin("server", "a", "127.0.0.1:1");
        audit.server = Some(ServerFigures::default());
        audit.outcome.complete = true;
        let clean = page("t", std::slice::from_ref(&audit));
        assert!(clean.contains("nothing found") && !clean.contains("failed"));
        audit.outcome.message = Some("15300 bytes per idle connection".into());
        audit.incomplete.push(MissingPart {
            part: "growth".into(),
            why: "there was <no> time".into(),
        });
        let one = page("t", std::slice::from_ref(&audit));
        assert!(!one.contains("nothing found"), "{one}");
        let two = page("t", &[audit.clone(), audit]);
        for page in [&one, &two] {
            for words in [
                "<span class=\"chip high\">failed</span>",
                "15300 bytes per idle connection",
                "not measured: growth, because there was &lt;no&gt; time",
            ] {
                assert!(page.contains(words), "{words}: {page}");
            }
        }
        assert!(!two.contains("chip clean"), "{two}");
    }

    #[test]
    fn text_between_backticks_becomes_code() {
        assert_eq!(
            worded("in `a<b>` and `c`: d"),
            "in <code>a&lt;b&gt;</code> and <code>c</code>: d"
        );
        assert_eq!(worded("a ` alone"), "a ` alone");
        assert_eq!(worded("none"), "none");
    }
}
