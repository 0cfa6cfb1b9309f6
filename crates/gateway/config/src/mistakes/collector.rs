//! Mistakes as they are found, and their order.

use crate::mistakes::location::Location;
use crate::mistakes::mistake::{Mistake, Mistakes, Severity, Source};
use crate::mistakes::problem::Problem;
use crate::mistakes::texts::Texts;
use std::path::Path;

/// Maximum number of errors that are collected, and of warnings: a file of another kind has an error
/// per line.
const COLLECTED_MAX: usize = 500;

/// Collects mistakes while a configuration is read.
pub(crate) struct MistakeCollector<'a> {
    texts: &'a Texts,
    /// Each with its offset in the files, which gives the order.
    found: Vec<(usize, Mistake)>,
}

impl<'a> MistakeCollector<'a> {
    /// Returns an empty collector for these texts.
    pub(crate) fn new(texts: &'a Texts) -> Self {
        Self {
            texts,
            found: Vec::new(),
        }
    }

    /// Adds an error at this location.
    pub(crate) fn error(&mut self, location: &Location, problem: Problem) {
        self.add(Severity::Error, location, problem);
    }

    /// Adds a warning at this location.
    pub(crate) fn warning(&mut self, location: &Location, problem: Problem) {
        self.add(Severity::Warning, location, problem);
    }

    /// Returns whether there is an error.
    pub(crate) fn has_errors(&self) -> bool {
        let mut found = self.found.iter();
        found.any(|(_, mistake)| mistake.severity == Severity::Error)
    }

    /// Returns whether no more errors are collected.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full_of(Severity::Error)
    }

    /// Warnings leave room for errors: an invalid configuration must not seem valid.
    fn is_full_of(&self, severity: Severity) -> bool {
        let found = self.found.iter();
        let found = found.filter(|(_, mistake)| mistake.severity == severity);
        found.count() >= COLLECTED_MAX
    }

    /// Adds a mistake, unless the same one has been added for the line.
    pub(crate) fn add(&mut self, severity: Severity, location: &Location, problem: Problem) {
        if self.is_full_of(severity) {
            return;
        }
        let location = problem.location.as_ref().unwrap_or(location);
        let mistake = Mistake {
            severity,
            source: self.source(location),
            what: problem.what,
            label: problem.label,
            help: problem.help,
            blame: problem.blame,
        };
        let order = match location {
            Location::File(span) => span.start,
            Location::Flag(_) => usize::MAX - 1,
            Location::Whole => usize::MAX,
        };
        if !self.found.iter().any(|(_, found)| *found == mistake) {
            self.found.push((order, mistake));
        }
    }

    /// Returns whether the line of this location has a mistake already.
    pub(crate) fn has_mistake_in_line(&self, location: &Location) -> bool {
        let Source::Line { file, line, .. } = self.source(location) else {
            return false;
        };
        let is_there = |source: &Source| matches!(source, Source::Line { file: other_file, line: other, .. } if *other_file == file && *other == line);
        self.found.iter().any(|(_, found)| is_there(&found.source))
    }

    /// Returns the line of a location in brackets, to append to a message; empty for flags.
    pub(crate) fn line_in_words(&self, location: &Location) -> String {
        match self.source(location) {
            Source::Line {
                file: Some(file),
                line,
                ..
            } => format!(" ({}, line {line})", file.display()),
            Source::Line { line, .. } => format!(" (line {line})"),
            _ => String::new(),
        }
    }

    /// Returns errors and warnings separately, each in the order of the file.
    pub(crate) fn into_parts(mut self, file: Option<&Path>) -> (Mistakes, Mistakes) {
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

    fn source(&self, location: &Location) -> Source {
        let span = match location {
            Location::File(span) => span,
            Location::Flag(flag) => return Source::Flag(flag.clone()),
            Location::Whole => return Source::Whole,
        };
        let Some(file) = self.texts.at(span.start) else {
            return Source::Whole;
        };
        let text = file.text.as_str();
        let start = floor(text, span.start - file.start);
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = text.get(line_start..).unwrap_or_default();
        let line = rest
            .split('\n')
            .next()
            .unwrap_or_default()
            .trim_end_matches('\r');
        let end = floor(text, span.end - file.start) - line_start;
        let start = (start - line_start).min(line.len());
        Source::Line {
            file: file.included.clone(),
            line: 1 + before.matches('\n').count(),
            span: start..end.clamp(start, line.len()),
            text: line.to_owned(),
        }
    }
}

/// Returns the nearest character boundary at or before this byte.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
