//! Mistakes of a configuration on the terminal, and the exit status that follows from them.

use std::path::Path;
use std::process::ExitCode;

use dormouse_config::{Mistake, Mistakes, STANDARD_INPUT, Severity};

use crate::exit_status::ExitStatus;
use crate::{journal, terminal};

/// Prints the mistakes and their number.
pub(crate) fn refuse(file: Option<&Path>, mistakes: &Mistakes, then: &str) -> ExitCode {
    show(mistakes);
    let count = match mistakes.errors() {
        1 => "one mistake".to_owned(),
        more => format!("{more} mistakes"),
    };
    let place = match file {
        Some(file) if file == Path::new(STANDARD_INPUT) => "in standard input".to_owned(),
        Some(file) => format!("in {}", file.display()),
        None => "on the command line".to_owned(),
    };
    terminal::note(format_args!("{count} {place}; {then}"));
    match mistakes.are_of_system() {
        true => ExitStatus::Failed.into(),
        false => ExitStatus::Misused.into(),
    }
}

/// Prints mistakes or warnings, each with an empty line below it.
pub(crate) fn show(mistakes: &Mistakes) {
    if !mistakes.list.is_empty() {
        let shown = mistakes.render(terminal::colours());
        let shown = shown.strip_suffix('\n').unwrap_or(&shown);
        let severe = |mistake: &Mistake| mistake.severity == Severity::Error;
        let priority = if mistakes.list.iter().any(severe) {
            journal::ERROR
        } else {
            journal::WARNING
        };
        terminal::mark(priority, shown);
    }
}
