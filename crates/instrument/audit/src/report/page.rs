//! HTML report: one or several audits as one self-contained page.

use super::headlines::{OF_CLIENT, OF_SERVER, Tile};
use super::sections;
use super::{client, comparison, flights, pictures, timeline};
use crate::findings::Severity;
use crate::model::Finding;
use crate::model::{Audit, Measured};
use dormouse_bench::model::grouped;
use dormouse_bench::report::html::{Markup, PreEscaped, STYLE, document, html, section};

const AUDIT_STYLE: &str = include_str!("audit.css");

/// Returns the headline of a page about one audit.
pub fn title(audit: &Audit) -> String {
    let software = audit.software.value();
    match software.filter(|_| audit.label == audit.target) {
        Some(software) => format!("{} at {}, audited", software.title(), audit.target),
        None => format!("{}, audited", audit.label),
    }
}

/// Creates the page.
pub fn page(title: &str, audits: &[Audit]) -> String {
    let body = html! {
        header {
            h1 { (title) }
            @if let [audit] = audits {
                p { (about(audit)) } (verdict(audit)) (tiles(audit))
            } @else if let Some(first) = audits.first() {
                p { (audits.len()) " audits · " (machine(first)) (busy(audits)) }
            }
        }
        @if let [audit] = audits { (one(audit)) } @else {
            (comparison::side_by_side(audits))
            @for (number, audit) in audits.iter().enumerate() {
                details id=(comparison::anchor(number)) {
                    summary { b { (audit.label) } " " (verdict(audit)) }
                    p class="what" { (about(audit)) }
                    (tiles(audit)) (one(audit))
                }
            }
        }
    };
    document(title, &[STYLE, AUDIT_STYLE].concat(), &body)
}

fn about(audit: &Audit) -> String {
    let software = audit.software.value().map(crate::software::Software::title);
    format!(
        "{} · {} · {}{} · took {} s · {}",
        software.as_deref().unwrap_or("software unknown"),
        audit.target,
        machine(audit),
        busy(std::slice::from_ref(audit)),
        grouped(audit.duration_s, usize::from(audit.duration_s < 10.0)),
        audit.tool
    )
}

fn machine(audit: &Audit) -> String {
    let machine = &audit.machine;
    let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
    let (cores, kernel) = (machine.cores, &machine.kernel);
    format!(
        "{} · {cores} cores, {gib:.0} GiB, Linux {kernel}",
        audit.started_at
    )
}

/// Describes the load average: on a busy machine, CPU times are useful as ratios only.
fn busy(audits: &[Audit]) -> String {
    let mut loads: Vec<f64> = audits.iter().filter_map(Audit::load_average).collect();
    loads.sort_by(f64::total_cmp);
    match &*loads {
        [] => String::new(),
        [only] => format!(", load average {only:.1} at the start"),
        [least, .., most] => {
            format!(", load averages {least:.1} to {most:.1} at their starts: CPU times are ratios")
        }
    }
}

fn verdict(audit: &Audit) -> Markup {
    let count = |severity| {
        audit
            .findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    };
    html! {
        div class="verdict" {
            @for severity in Severity::ALL.into_iter().filter(|severity| count(*severity) > 0) {
                span class={ "chip " (severity.name()) } { (count(severity)) " " (severity.name()) }
            }
            @if let Some(word) = audit.failure_word() {
                span class="chip high" { (word) } " "
                span class="bad" { (audit.outcome.message.as_deref().unwrap_or("?")) }
            } @else if audit.findings.is_empty() {
                span class="chip clean" { "nothing found" }
            }
        }
    }
}

/// Shows the headlines in a row.
fn tiles(audit: &Audit) -> Markup {
    let server = audit.server.iter();
    let server = server.flat_map(|server| OF_SERVER.iter().filter_map(|row| (row.tile)(server)));
    let client = audit.client.iter().filter(|client| client.connections > 0);
    let client = client.flat_map(|client| OF_CLIENT.iter().filter_map(|row| (row.tile)(client)));
    let tiles: Vec<Tile> = server.chain(client).collect();
    html! {
        @if !tiles.is_empty() {
            dl class="tiles" {
                @for Tile { title, value, beside } in &tiles {
                    div {
                        dt { (title) }
                        @match value {
                            Measured::Value(value) => dd { (value) small { (beside) } },
                            Measured::NotMeasured(why) => dd { "–" small { "not measured: " (why) } },
                        }
                    }
                }
            }
        }
    }
}

fn one(audit: &Audit) -> Markup {
    html! {
        (found(audit))
        @if let Some(server) = &audit.server {
            (pictures::where_bytes_go(server))
            (timeline::over_time(audit))
            (pictures::rounds(server))
            (flights::sequences(&server.flights))
            (pictures::processor(server))
        }
        @if let Some(figures) = &audit.client {
            (client::connections(figures))
            (client::sessions(figures))
            (client::time(figures))
            (timeline::over_time(audit))
        }
        (figures(audit))
    }
}

fn found(audit: &Audit) -> Markup {
    let what = match (audit.failure_word(), audit.outcome.complete) {
        _ if !audit.findings.is_empty() => "The most severe first.",
        (None, _) => "Nothing was found.",
        (Some(_), true) => "There is no finding, but the audit failed for the reason above.",
        (Some(_), false) => "Nothing was found in the parts that were measured.",
    };
    section(
        None,
        "Findings",
        what,
        &html! { @for found in &audit.findings { (finding(found)) } },
    )
}

fn finding(found: &Finding) -> Markup {
    let severity = found.severity.name();
    let confidence = format!("{:?}", found.confidence).to_lowercase();
    html! {
        div class={ "finding " (severity) } {
            span class="chip" { (severity) } " " small { (found.id) }
            h3 { (found.title) }
            dl {
                dt { "measured" } dd { (found.measured) }
                dt { "good" } dd { (found.reference) }
                dt { "likely cause" } dd { (found.cause) " " small { "(confidence: " (confidence) ")" } }
                dt { "what to change" } dd { (worded(&found.advice)) }
                dt { "reproduce it" } dd { code { (found.command) } }
            }
        }
    }
}

/// Formats text with code between backticks. An unmatched backtick stays as it is.
fn worded(text: &str) -> Markup {
    let pieces: Vec<&str> = text.split('`').collect();
    let last = pieces.len() - 1;
    html! {
        @for (index, piece) in pieces.iter().enumerate() {
            @if index % 2 == 1 && index < last { code { (piece) } } @else {
                @if index % 2 == 1 { "`" } (piece)
            }
        }
    }
}

fn figures(audit: &Audit) -> Markup {
    if audit.server.is_none() && audit.client.is_none() {
        return html! {};
    }
    let sections = sections::sections(audit);
    let missing = sections
        .iter()
        .flat_map(|(_, rows)| rows)
        .filter(|row| row.is_missing);
    let what = match missing.count() {
        0 => "Everything was measured.".to_owned(),
        count => format!("{count} figures were not measured; each has its reason."),
    };
    let body = html! {
        @for (title, rows) in &sections {
            h3 { (title) }
            table class="figures" {
                @for row in rows {
                    tr { th scope="row" { (row.title) } td class=[row.is_missing.then_some("missing")] { (breakable(&row.value)) } }
                }
            }
        }
        @for missing in &audit.incomplete {
            p class="note" { "not measured: " (missing.part) ", because " (missing.why) }
        }
        @for note in &audit.notes { p class="note" { (note) } }
    };
    section(None, "All figures", &what, &body)
}

/// Suite names are long and need break points.
fn breakable(text: &str) -> Markup {
    let escaped = html! { (text) };
    PreEscaped(escaped.0.replace('_', "_<wbr>"))
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
            worded("in `a<b>` and `c`: d").0,
            "in <code>a&lt;b&gt;</code> and <code>c</code>: d"
        );
        assert_eq!(worded("a ` alone").0, "a ` alone");
        assert_eq!(worded("none").0, "none");
    }
}
