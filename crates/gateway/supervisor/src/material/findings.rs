//! Problems with the files, addresses and users that a configuration names.

use dormouse_config::{Blame, Finding, Place, Severity};

/// The problems found so far.
#[derive(Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    /// Adds an error, which prevents the start. The lines after the first are the remedy.
    pub(crate) fn error(&mut self, place: Place, what: impl Into<String>) {
        self.add(place, Severity::Error, Blame::Configuration, what.into());
    }

    /// As [`Findings::error`], but the operating system refuses what the configuration asks for.
    pub(crate) fn refusal(&mut self, place: Place, severity: Severity, what: impl Into<String>) {
        self.add(place, severity, Blame::System, what.into());
    }

    /// Adds a warning.
    pub(crate) fn warning(&mut self, place: Place, what: impl Into<String>) {
        self.add(place, Severity::Warning, Blame::Configuration, what.into());
    }

    fn add(&mut self, place: Place, severity: Severity, blame: Blame, text: String) {
        let (what, help) = match text.split_once('\n') {
            Some((what, help)) => (what.to_owned(), Some(help.trim().to_owned())),
            None => (text, None),
        };
        self.0.push(Finding {
            place,
            severity,
            blame,
            what,
            help,
        });
    }

    /// Adds several errors at one place.
    pub(crate) fn errors(&mut self, place: Place, all: Vec<String>) {
        all.into_iter().for_each(|what| self.error(place, what));
    }

    /// Adds several warnings at one place.
    pub(crate) fn warnings(&mut self, place: Place, all: Vec<String>) {
        all.into_iter().for_each(|what| self.warning(place, what));
    }

    /// Whether an error prevents the start.
    pub(crate) fn has_errors(&self) -> bool {
        self.0.iter().any(|one| one.severity == Severity::Error)
    }

    /// The texts of all findings of this severity.
    pub(crate) fn words(&self, severity: Severity) -> Vec<String> {
        let those = self.0.iter().filter(|one| one.severity == severity);
        those.map(|one| one.what.clone()).collect()
    }

    /// Returns all findings.
    pub(crate) fn into_list(self) -> Vec<Finding> {
        self.0
    }
}
