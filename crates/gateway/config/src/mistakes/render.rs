//! Rendering of mistakes for a terminal.

use crate::mistakes::mistake::{Mistake, Mistakes, Severity, Source};
use crate::mistakes::texts::STANDARD_INPUT;
use crate::mistakes::words::shortened;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use std::fmt;
use std::path::Path;

/// Maximum number of mistakes shown.
const SHOWN_MAX: usize = 40;

impl Mistakes {
    /// Returns the mistakes as text for a terminal, with or without colours.
    pub fn render(&self, colours: bool) -> String {
        let renderer = match colours {
            true => Renderer::styled(),
            false => Renderer::plain(),
        };
        let file = self.file.as_deref().map(shown);
        let mut out = String::new();
        for mistake in self.list.iter().take(SHOWN_MAX) {
            out += &mistake.render(file.as_deref(), &renderer);
            out += "\n\n";
        }
        if self.list.len() > SHOWN_MAX {
            out += &format!("and {} more\n", self.list.len() - SHOWN_MAX);
        }
        // The library replaces other control characters by their pictures, but leaves these, one of
        // which begins a terminal's escape sequences. Colours do not use them.
        out.replace(|c| matches!(c, '\u{80}'..='\u{9f}'), "\u{fffd}")
    }
}

/// Returns a file's name for a message.
fn shown(file: &Path) -> String {
    if file == Path::new(STANDARD_INPUT) {
        return "standard input".to_owned();
    }
    shortened(&file.display().to_string())
}

impl Mistake {
    fn render(&self, file: Option<&str>, renderer: &Renderer) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let what = match (&self.source, file) {
            (Source::Flag(flag), _) if self.label.is_empty() => format!("{flag}: {}", self.what),
            (Source::Flag(flag), _) => format!("{flag}: {}: {}", self.what, self.label),
            (Source::Whole, Some(file)) => format!("{file}: {}", self.what),
            _ => self.what.clone(),
        };
        let title = level.primary_title(&what);
        let help = self.help.as_deref();
        let Source::Line {
            file: included,
            line,
            span,
            text,
        } = &self.source
        else {
            let title = renderer.render(&[Group::with_title(title)]);
            let help =
                help.map(|help| format!("\n   = help: {}", help.replace('\n', "\n           ")));
            return title + &help.unwrap_or_default();
        };
        let caret = AnnotationKind::Primary.span(span.clone());
        let caret = match self.label.as_str() {
            "" => caret,
            label => caret.label(label),
        };
        let included = included.as_deref().map(shown);
        let text = without_passwords(text);
        let snippet = Snippet::source(text.as_str())
            .line_start(*line)
            .path(included.as_deref().or(file))
            .annotation(caret);
        let help = help.map(|help| Level::HELP.message(help));
        renderer.render(&[title.element(snippet).elements(help)])
    }
}

/// Returns a line with asterisks for the passwords in URLs, such as a ticket store's: the message may
/// go to a log. Offsets stay the same.
fn without_passwords(line: &str) -> String {
    let Some((before, behind)) = line.split_once("://") else {
        return line.to_owned();
    };
    // Up to the next URL, not to a quote: a password may have one.
    let end = behind.find("://").unwrap_or(behind.len());
    let (authority, rest) = behind.split_at(end);
    let hidden = authority.rsplit_once('@').map(|(login, host)| {
        // Without a colon, all of it may be the password.
        let (user, password) = login.split_at(login.find(':').map_or(0, |at| at + 1));
        format!("{user}{}@{host}", "*".repeat(password.len()))
    });
    let authority = hidden.as_deref().unwrap_or(authority);
    format!("{before}://{authority}{}", without_passwords(rest))
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for Mistakes {}
