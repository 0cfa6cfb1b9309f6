//! The text of the result.

use std::collections::HashMap;

use dormouse_config::{Mistake, Source};

use crate::origin::{Ledger, Origin, Origins};
use crate::section::{Fate, Kind, Remark, Section};
use crate::toml::quoted;

/// Maximum number of characters in a comment, or in a step.
const COMMENT_MAX: usize = 1000;
/// Maximum number of characters that name lines after an option.
const LINES_MAX: usize = 150;
/// Maximum number of steps: more are one. A list of the configuration holds 1000 items.
const STEPS_MAX: usize = 900;

/// The result.
pub struct ImportedConfig {
    /// The configuration, with comments.
    pub text: String,
    /// Number of comments about settings that could not be converted.
    pub left_out: usize,
    /// Number of steps to take before the result can run: the items of `todo`.
    pub to_do: usize,
    /// Section and option of each line, if it has any.
    lines: Vec<(Option<usize>, Option<&'static str>)>,
}

impl ImportedConfig {
    pub(super) fn of(
        ledger: &Ledger,
        program: &Section,
        sections: &[Section],
        source: &str,
        with_steps: bool,
    ) -> ImportedConfig {
        let mut page = ImportedConfig {
            text: String::new(),
            left_out: 0,
            to_do: 0,
            lines: Vec::new(),
        };
        page.comment(None, &format!("From {source}, by `dormouse import`."));
        if with_steps {
            page.steps(ledger, program, sections);
        }
        page.section(None, program, ledger);
        for (at, section) in sections.iter().enumerate() {
            let kind = match section.kind {
                Kind::Originate => "originate",
                Kind::Route | Kind::Program => "route",
            };
            page.line(Some(at), None, "");
            page.comment(Some(at), &titled(section, ledger));
            page.line(Some(at), None, &format!("[[{kind}]]"));
            page.section(Some(at), section, ledger);
        }
        page
    }

    fn line(&mut self, section: Option<usize>, option: Option<&'static str>, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
        self.lines.push((section, option));
    }

    /// A comment may quote the source file: no character in it ends the line or breaks the TOML.
    fn comment(&mut self, section: Option<usize>, text: &str) {
        let text = dormouse_printable::line_up_to(text, COMMENT_MAX);
        self.line(section, None, &format!("# {text}"));
    }

    /// `todo`, which `check` and `serve` refuse.
    fn steps(&mut self, ledger: &Ledger, program: &Section, sections: &[Section]) {
        let mut all = statements(program, Fate::ToDo, ledger);
        for section in sections {
            let own = statements(section, Fate::ToDo, ledger);
            all.extend(
                own.into_iter()
                    .map(|text| format!("{}: {text}", section.title)),
            );
        }
        if let Some(more) = all.len().checked_sub(STEPS_MAX).filter(|more| *more > 0) {
            all.truncate(STEPS_MAX);
            all.push(format!(
                "{more} more steps of this kind: is this the right file?"
            ));
        }
        self.to_do = all.len();
        let shown = all
            .iter()
            .map(|text| dormouse_printable::line_up_to(text, COMMENT_MAX).to_string());
        let items: Vec<String> = shown.map(|text| quoted(&text)).collect();
        match items.as_slice() {
            [] => {}
            [one] => self.line(None, None, &format!("todo = {one}")),
            several => {
                self.line(None, None, "todo = [");
                for one in several {
                    self.line(None, None, &format!("    {one},"));
                }
                self.line(None, None, "]");
            }
        }
    }

    fn section(&mut self, at: Option<usize>, section: &Section, ledger: &Ledger) {
        for one in &section.options {
            let mut line = format!("{} = {}", one.name, one.value);
            if !one.from.is_empty() {
                let lines = ledger.lines(&one.from);
                let lines = dormouse_printable::line_up_to(&lines, LINES_MAX);
                line.push_str(&format!("  # {lines}"));
            }
            self.line(at, Some(one.name), &line);
        }
        for fate in [Fate::LeftOut, Fate::WithoutEffect, Fate::Stays] {
            for text in statements(section, fate, ledger) {
                self.left_out += usize::from(fate == Fate::LeftOut);
                self.comment(at, &text);
            }
        }
    }

    /// Returns the section and the option of a mistake.
    pub(super) fn origin(
        &self,
        mistake: &Mistake,
    ) -> Option<(Option<usize>, Option<&'static str>)> {
        let Source::Line { line, .. } = mistake.source else {
            return None;
        };
        self.lines.get(line.checked_sub(1)?).copied()
    }
}

fn titled(section: &Section, ledger: &Ledger) -> String {
    match section.head.is_empty() {
        true => section.title.clone(),
        false => format!("{}, {}", section.title, ledger.lines(&section.head)),
    }
}

/// Returns what a section says with this fate. Settings with the same reason share a statement.
fn statements(section: &Section, fate: Fate, ledger: &Ledger) -> Vec<String> {
    let mut places: HashMap<(&str, Option<Origin>), usize> = HashMap::new();
    let mut groups: Vec<(&str, Origins)> = Vec::new();
    let of_fate = |one: &&Remark| one.fate == fate;
    for Remark { from, why, .. } in section.remarks.iter().filter(of_fate) {
        // A whole block has a statement of its own.
        let block = ledger.head(from);
        let place = *places.entry((why, block)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some((_, origins)) => origins.add(from),
            None => groups.push((why, from.clone())),
        }
    }
    let groups = groups.into_iter();
    groups
        .flat_map(|(why, from)| match fate {
            _ if from.is_empty() => vec![why.to_owned()],
            Fate::Stays => {
                let (lines, count) = (ledger.lines(&from), from.len());
                let settings = if count == 1 { "setting" } else { "settings" };
                vec![format!("{lines}: {count} {settings} -- {why}")]
            }
            _ => match ledger.head(&from).filter(|_| from.len() > 1) {
                // A whole block.
                Some(head) => {
                    let (head, lines) = (ledger.quotes(&head.into()).concat(), ledger.lines(&from));
                    vec![format!(
                        "{head} … ({lines}, {} settings) -- {why}",
                        from.len()
                    )]
                }
                None => in_parts(&ledger.quotes(&from), why),
            },
        })
        .collect()
}

/// Joins quotes and their reason; as many texts as their lengths need.
fn in_parts(quotes: &[String], why: &str) -> Vec<String> {
    let room = COMMENT_MAX
        .saturating_sub(why.chars().count() + 60)
        .max(200);
    let mut parts: Vec<String> = Vec::new();
    for quote in quotes {
        match parts.last_mut() {
            Some(part) if part.chars().count() + quote.chars().count() + 2 <= room => {
                part.push_str(&format!("; {quote}"));
            }
            _ => parts.push(quote.clone()),
        }
    }
    parts
        .iter()
        .map(|part| format!("{part} -- {why}"))
        .collect()
}
