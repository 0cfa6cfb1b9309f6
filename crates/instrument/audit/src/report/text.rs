//! Text report of an audit for a terminal.

use std::fmt::Write;

use dormouse_printable::whole;

use super::sections;
use crate::findings::Severity;
use crate::model::Finding;
use crate::model::{Audit, Measured};

/// Width of titles, if enough room remains for the text beside them.
const TITLE_WIDTH: usize = 44;
const TITLE_WIDTH_MIN: usize = 28;
/// Longer lines are hard to read; shorter ones hold too little.
const WIDTH_MAX: usize = 110;
const WIDTH_MIN: usize = 60;

/// Width and colours of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// Columns.
    pub width: usize,
    /// Whether to use colours.
    pub colours: bool,
}

impl Default for Form {
    /// The form for a file or a pipe.
    fn default() -> Self {
        Self {
            width: WIDTH_MAX,
            colours: false,
        }
    }
}

/// Text under construction, in its form.
struct Out {
    text: String,
    width: usize,
    titles: usize,
    colours: bool,
}

/// Formats the whole audit as text.
pub fn text(audit: &Audit, form: Form) -> String {
    let width = form.width.clamp(WIDTH_MIN, WIDTH_MAX);
    let mut out = Out {
        text: String::new(),
        width,
        titles: (width * 2 / 5).clamp(TITLE_WIDTH_MIN, TITLE_WIDTH),
        colours: form.colours,
    };
    out.audit(audit);
    out.text
}

/// Formats the load of the machine and the settings of the audit.
fn conditions(audit: &Audit) -> String {
    let load = audit.load_average();
    let load = load.map_or_else(String::new, |load| format!("load average {load:.1} · "));
    let held = audit.server.as_ref().and_then(|server| {
        let memory = server.memory.value()?;
        let held = memory.phases.iter().map(|phase| phase.connections);
        let most = held.max().filter(|most| *most > 0)?;
        Some(format!(" · at most {most} connections at a time"))
    });
    let effort = audit
        .settings
        .get("effort")
        .and_then(|effort| effort.as_str());
    let effort = effort.map_or_else(String::new, |effort| format!("effort {effort}"));
    format!("{load}{effort}{}", held.unwrap_or_default())
}

impl Out {
    fn audit(&mut self, audit: &Audit) {
        let software = match &audit.software {
            Measured::Value(software) => software.title(),
            Measured::NotMeasured(why) => format!("software unknown ({why})"),
        };
        let head = format!("audit of a {} · {} · {software}", audit.kind, audit.target);
        self.wrap(&head, 2, 0);
        let gib = audit.machine.memory_bytes as f64 / f64::from(1 << 30);
        let machine = format!(
            "{} · {} cores, {gib:.0} GiB, Linux {} · {} · took {:.1} s",
            audit.started_at,
            audit.machine.cores,
            audit.machine.kernel,
            audit.tool,
            audit.duration_s
        );
        self.wrap(&machine, 2, 0);
        self.wrap(&conditions(audit), 2, 0);
        for (title, rows) in sections::sections(audit) {
            self.heading(title);
            for row in rows {
                self.row(&row.title, &row.value);
            }
        }
        self.findings(audit);
        for missing in &audit.incomplete {
            let text = format!("{}, because {}", missing.part, missing.why);
            self.paragraph("not measured", &text);
        }
        for note in &audit.notes {
            self.paragraph("note", note);
        }
        match (&audit.outcome.message, audit.outcome.complete) {
            (None, _) => {}
            (Some(message), true) => self.paragraph("FAILED", message),
            (Some(message), false) => self.paragraph("NOT COMPLETE", message),
        }
    }

    fn heading(&mut self, title: &str) {
        let title = self.styled("1", title);
        let _ = writeln!(self.text, "\n  {title}");
    }

    fn paragraph(&mut self, what: &str, text: &str) {
        self.text.push_str("\n  ");
        let what = format!("{what}: ");
        self.text.push_str(&what);
        self.wrap(text, 4, 2 + what.chars().count());
    }

    fn row(&mut self, title: &str, value: &str) {
        let title = whole(title).to_string();
        let indent = 4 + self.titles;
        let length = title.chars().count();
        let _ = write!(self.text, "    {title}");
        if length < self.titles {
            self.text.push_str(&" ".repeat(self.titles - length));
        } else {
            let _ = write!(self.text, "\n{}", " ".repeat(indent));
        }
        self.wrap(value, indent, indent);
    }

    /// Wraps text: the first line starts at column `at`, the others are indented.
    fn wrap(&mut self, text: &str, indent: usize, mut at: usize) {
        for (index, word) in text.split_whitespace().enumerate() {
            let word = whole(word).to_string();
            let length = word.chars().count();
            if index > 0 && at + 1 + length > self.width {
                let _ = write!(self.text, "\n{}", " ".repeat(indent));
                at = indent;
            } else if index > 0 {
                self.text.push(' ');
                at += 1;
            }
            self.text.push_str(&word);
            at += length;
        }
        self.text.push('\n');
    }

    fn findings(&mut self, audit: &Audit) {
        if audit.findings.is_empty() {
            self.heading(match audit.outcome.complete {
                true => "no findings: everything that was measured looks fine",
                false => "no findings in the parts that were measured",
            });
            return;
        }
        self.heading("findings, the most severe first");
        for finding in &audit.findings {
            self.finding(finding);
        }
    }

    fn finding(&mut self, finding: &Finding) {
        let severity = format!("{:<7}", finding.severity.name().to_uppercase());
        let colour = match finding.severity {
            Severity::High => "1;31",
            Severity::Medium => "1;33",
            Severity::Low => "33",
            Severity::Info => "34",
        };
        let severity = self.styled(colour, &severity);
        let _ = write!(self.text, "\n  {severity} ");
        self.wrap(&format!("{}  [{}]", finding.title, finding.id), 10, 10);
        let confidence = format!("{:?}", finding.confidence).to_lowercase();
        let cause = format!("{} (confidence: {confidence})", finding.cause);
        for (what, text) in [
            ("measured", &finding.measured),
            ("good", &finding.reference),
            ("cause", &cause),
            ("change", &finding.advice),
        ] {
            let what = self.styled("2", &format!("{what:<9}"));
            let _ = write!(self.text, "          {what} ");
            self.wrap(text, 20, 20);
        }
        // Not wrapped: a copied command must not contain line breaks.
        let what = self.styled("2", &format!("{:<9}", "again"));
        let _ = writeln!(self.text, "          {what} {}", whole(&finding.command));
    }

    fn styled(&self, code: &str, text: &str) -> String {
        if self.colours {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::{Confidence, FindingId};

    fn audit() -> Audit {
        let mut audit = Audit::begin("server", "a server", "127.0.0.1:1");
        audit.notes.push("words ".repeat(40));
        audit.server = Some(Default::default());
        let words = "several words, ".repeat(20);
        audit.findings.push(Finding {
            id: FindingId::RecordBuffersKept,
            severity: Severity::High,
            title: "2.0 record buffers are kept for every quiet connection of this server".into(),
            measured: words.clone(),
            reference: words.clone(),
            cause: words.clone(),
            confidence: Confidence::High,
            advice: words,
            command: "dormouse bench hold 127.0.0.1:1 -n 2000".into(),
        });
        audit
    }

    #[test]
    fn lines_fit_every_width() {
        for width in [60, 80, 110] {
            let text = text(
                &audit(),
                Form {
                    width,
                    colours: false,
                },
            );
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(width), "{longest:?} of {width}:\n{text}");
            assert!(!text.contains('\x1b'));
        }
    }

    #[test]
    fn foreign_text_is_escaped() {
        let mut audit = audit();
        audit.target = "x\n\x1b[2J\u{202e}y".into();
        audit.notes.push("a note\x07 of\u{9b}31m a stranger".into());
        audit.findings[0].command = "curl 'a\x1b]0;b\n<0>'".into();
        let shown = text(&audit, Form::default());
        assert!(
            !shown.contains(['\x1b', '\x07', '\u{9b}', '\u{202e}']),
            "{shown:?}"
        );
        assert!(shown.contains(r"'a\u{1b}]0;b\n<0>'"), "{shown}");
        let page = crate::report::page("a \u{202e} title", &[audit]);
        assert!(
            !page.contains(['\x1b', '\x07', '\u{9b}', '\u{202e}']),
            "{page:?}"
        );
    }

    #[test]
    fn colours_are_the_only_difference() {
        let width = 80;
        // One audit: the machine's load may change before the next one begins.
        let audit = audit();
        let plain = text(
            &audit,
            Form {
                width,
                colours: false,
            },
        );
        let mut coloured = text(
            &audit,
            Form {
                width,
                colours: true,
            },
        );
        for code in ["1", "2", "1;31", "0"] {
            let code = format!("\x1b[{code}m");
            assert!(coloured.contains(&code));
            coloured = coloured.replace(&code, "");
        }
        assert_eq!(coloured, plain);
    }
}
