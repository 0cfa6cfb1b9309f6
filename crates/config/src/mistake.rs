//! Mistakes in a configuration, and how they are shown.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use super::raw::{Place, Wrong, shortened};

/// How many mistakes are shown; who has more mends these first.
const SHOWN_MAX: usize = 40;
/// How many are collected: a file which is something else altogether has one per line.
const COLLECTED_MAX: usize = 500;
/// How much of a long line is shown.
const LINE_SHOWN_MAX: usize = 120;

/// Something wrong, where it is, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Whether it can be lived with.
    pub severity: Severity,
    /// Where it was written.
    pub source: Source,
    /// What is wrong, as one sentence without a full stop.
    pub what: String,
    /// A few words for under the caret; may be empty.
    pub label: String,
    /// What would be right.
    pub help: Option<String>,
}

/// Whether something can be lived with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It cannot: nothing starts.
    Error,
    /// It can, but somebody should know.
    Warning,
}

/// Where a mistake was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a line of the file.
    Line {
        /// From 1.
        line: usize,
        /// In characters, from 1.
        column: usize,
        /// In characters, at least 1; never past the end of the line.
        width: usize,
        /// The line.
        text: String,
    },
    /// In the flag of this name.
    Flag(String),
    /// In the whole of it.
    Whole,
}

/// All mistakes of a configuration, in the order in which they stand there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    /// The file, unless there were only flags.
    pub file: Option<PathBuf>,
    /// The mistakes.
    pub list: Vec<Mistake>,
}

impl Mistakes {
    /// One mistake which concerns the file as such.
    pub(super) fn of_file(file: &Path, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            file: Some(file.to_owned()),
            list: vec![Mistake {
                severity: Severity::Error,
                source: Source::Whole,
                what: what.into(),
                label: String::new(),
                help: Some(help.into()),
            }],
        }
    }

    /// How many of them keep the program from starting.
    pub fn errors(&self) -> usize {
        let of = |mistake: &&Mistake| mistake.severity == Severity::Error;
        self.list.iter().filter(of).count()
    }

    /// Text for a person, with colours if the terminal has them.
    pub fn render(&self, colours: bool) -> String {
        let paint = Paint { on: colours };
        let mut out = String::new();
        for mistake in self.list.iter().take(SHOWN_MAX) {
            // Writing into a String can't fail.
            let _ = self.render_one(&mut out, mistake, paint);
        }
        if self.list.len() > SHOWN_MAX {
            let _ = writeln!(out, "and {} more", self.list.len() - SHOWN_MAX);
        }
        out
    }

    fn render_one(&self, out: &mut String, mistake: &Mistake, paint: Paint) -> fmt::Result {
        let (word, colour) = match mistake.severity {
            Severity::Error => ("error", RED),
            Severity::Warning => ("warning", YELLOW),
        };
        let word = paint.with(colour, word);
        let bar = paint.with(BLUE, "|");
        let equals = paint.with(BLUE, "=");
        let file = self
            .file
            .as_deref()
            .map(|file| shortened(&file.display().to_string()));
        match &mistake.source {
            Source::Line {
                line,
                column,
                width,
                text,
            } => {
                let arrow = paint.with(BLUE, "-->");
                let number = line.to_string();
                let gutter = " ".repeat(number.len().max(2));
                let (text, column) = window(text, *column);
                let shown = text.chars().count().saturating_sub(column - 1).max(1);
                let width = (*width).min(shown);
                writeln!(out, "{word}: {}", paint.with(BOLD, &mistake.what))?;
                writeln!(
                    out,
                    "{gutter}{arrow} {}:{line}:{}",
                    file.unwrap_or_default(),
                    mistake.column()
                )?;
                writeln!(out, "{gutter} {bar}")?;
                writeln!(
                    out,
                    "{} {bar} {text}",
                    paint.with(BLUE, &format!("{number:>2}"))
                )?;
                let carets = format!("{} {}", "^".repeat(width), mistake.label);
                writeln!(
                    out,
                    "{gutter} {bar} {}{}",
                    " ".repeat(column.saturating_sub(1)),
                    paint.with(colour, carets.trim_end())
                )?;
                if let Some(help) = &mistake.help {
                    writeln!(out, "{gutter} {equals} help: {help}")?;
                }
            }
            Source::Flag(flag) => {
                let what = if mistake.label.is_empty() {
                    mistake.what.clone()
                } else {
                    format!("{}: {}", mistake.what, mistake.label)
                };
                writeln!(
                    out,
                    "{word}: {}",
                    paint.with(BOLD, &format!("{flag}: {what}"))
                )?;
                if let Some(help) = &mistake.help {
                    writeln!(out, "   {equals} help: {help}")?;
                }
            }
            Source::Whole => {
                let what = match file {
                    Some(file) => format!("{file}: {}", mistake.what),
                    None => mistake.what.clone(),
                };
                writeln!(out, "{word}: {}", paint.with(BOLD, &what))?;
                if let Some(help) = &mistake.help {
                    writeln!(out, "   {equals} help: {help}")?;
                }
            }
        }
        writeln!(out)
    }
}

impl Mistake {
    fn column(&self) -> usize {
        match &self.source {
            Source::Line { column, .. } => *column,
            _ => 1,
        }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for Mistakes {}

/// The part of a long line in which the column lies, fit to be printed: one
/// column per character, so that the caret stands where it should.
fn window(text: &str, column: usize) -> (String, usize) {
    let start = match column.checked_sub(LINE_SHOWN_MAX / 2) {
        Some(start) if text.chars().count() > LINE_SHOWN_MAX => start,
        _ => 0,
    };
    let shown = text
        .chars()
        .skip(start)
        .take(LINE_SHOWN_MAX)
        .map(|c| match c {
            '\t' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect();
    (shown, column - start)
}

const RED: &str = "1;31";
const YELLOW: &str = "1;33";
const BLUE: &str = "1;34";
const BOLD: &str = "1";

#[derive(Clone, Copy)]
struct Paint {
    on: bool,
}

impl Paint {
    fn with(self, colour: &str, text: &str) -> String {
        if self.on {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Collects mistakes while a configuration is read.
pub(super) struct Collector<'a> {
    text: &'a str,
    /// With the place in the file, for the order.
    found: Vec<(usize, Mistake)>,
}

impl<'a> Collector<'a> {
    /// For a file of this text, or for flags alone if it is empty.
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            found: Vec::new(),
        }
    }

    /// Something wrong at this place.
    pub(super) fn error(&mut self, place: &Place, wrong: Wrong) {
        self.add(Severity::Error, place, wrong);
    }

    /// Something to know about this place.
    pub(super) fn warning(&mut self, place: &Place, wrong: Wrong) {
        self.add(Severity::Warning, place, wrong);
    }

    /// Whether it is enough.
    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= COLLECTED_MAX
    }

    /// Adds it, unless that line has been complained about in the same words.
    pub(super) fn add(&mut self, severity: Severity, place: &Place, wrong: Wrong) {
        if self.is_full() {
            return;
        }
        let place = wrong.place.as_ref().unwrap_or(place);
        let mistake = Mistake {
            severity,
            source: self.source(place),
            what: wrong.what,
            label: wrong.label,
            help: wrong.help,
        };
        let order = match place {
            Place::File(span) => span.start,
            Place::Flag(_) => usize::MAX - 1,
            Place::Whole => usize::MAX,
        };
        if !self.found.iter().any(|(_, found)| *found == mistake) {
            self.found.push((order, mistake));
        }
    }

    /// Whether there is a mistake in one of the lines of this place already.
    pub(super) fn complained_about(&self, place: &Place) -> bool {
        let Source::Line { line, .. } = self.source(place) else {
            return false;
        };
        self.found.iter().any(
            |(_, found)| matches!(found.source, Source::Line { line: other, .. } if other == line),
        )
    }

    /// The line in which a place begins.
    pub(super) fn line_of(&self, place: &Place) -> Option<usize> {
        match self.source(place) {
            Source::Line { line, .. } => Some(line),
            _ => None,
        }
    }

    /// Errors and warnings apart, each in the order of the file.
    pub(super) fn into_parts(mut self, file: Option<&Path>) -> (Mistakes, Mistakes) {
        self.found.sort_by_key(|(order, _)| *order);
        let file = file.map(Path::to_owned);
        let (errors, warnings) = self
            .found
            .into_iter()
            .map(|(_, mistake)| mistake)
            .partition(|mistake| mistake.severity == Severity::Error);
        let of = |list| Mistakes {
            file: file.clone(),
            list,
        };
        (of(errors), of(warnings))
    }

    fn source(&self, place: &Place) -> Source {
        let span = match place {
            Place::File(span) => span,
            Place::Flag(flag) => return Source::Flag(flag.clone()),
            Place::Whole => return Source::Whole,
        };
        let start = floor(self.text, span.start);
        let before = self.text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = self.text.get(line_start..).unwrap_or_default();
        let line = rest
            .split('\n')
            .next()
            .unwrap_or_default()
            .trim_end_matches('\r');
        let line_end = line_start + line.len();
        let end = floor(self.text, span.end).clamp(start.min(line_end), line_end);
        let count =
            |from: usize, to: usize| self.text.get(from..to).map_or(0, |s| s.chars().count());
        Source::Line {
            line: 1 + before.matches('\n').count(),
            column: 1 + count(line_start, start),
            width: count(start, end).max(1),
            text: line.to_owned(),
        }
    }
}

/// The nearest boundary of a character at or before this byte.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
