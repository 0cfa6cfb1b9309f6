//! `dormouse serve` and `dormouse connect`: one program, with the flags of either.

use std::path::Path;
use std::process::ExitCode;

use dormouse_gateway::config::{self, Flag, Machine, Mistakes, Purpose, Section};
use dormouse_gateway::{ServeError, Source};

use crate::arguments::{ConnectArgs, ServeArgs};
use crate::outcome::Outcome;
use crate::{logs, terminal};

pub(crate) fn run(args: &ServeArgs) -> ExitCode {
    start(args.config.as_deref(), Section::Route, &args.options.given)
}

pub(crate) fn run_connect(args: &ConnectArgs) -> ExitCode {
    let flags = &args.options.given;
    start(args.config.as_deref(), Section::Originate, flags)
}

fn start(file: Option<&Path>, section: Section, flags: &[Flag]) -> ExitCode {
    let loaded = config::load(file, section, flags, &Machine::read(), Purpose::Serve);
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(mistakes) => return refuse(file, &mistakes, "nothing was started"),
    };
    show(&loaded.warnings);
    let source = Source {
        file: file.map(Path::to_owned),
        section,
        flags: flags.to_vec(),
    };
    match dormouse_gateway::serve(&loaded, source, logs::start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::error(&error);
            match error {
                ServeError::Certificates(_) => Outcome::Misused.into(),
                ServeError::System { .. } | ServeError::Workers(_) => Outcome::Failed.into(),
            }
        }
    }
}

/// Shows what is wrong, and how much of it there is.
pub(crate) fn refuse(file: Option<&Path>, mistakes: &Mistakes, then: &str) -> ExitCode {
    show(mistakes);
    refused(file, mistakes.errors(), then)
}

/// Says how much was wrong, and what follows from it.
pub(crate) fn refused(file: Option<&Path>, errors: usize, then: &str) -> ExitCode {
    let count = match errors {
        1 => "one mistake".to_owned(),
        more => format!("{more} mistakes"),
    };
    match file {
        Some(file) => terminal::note(format_args!("{count} in {}; {then}", file.display())),
        None => terminal::note(format_args!("{count} on the command line; {then}")),
    }
    Outcome::Misused.into()
}

/// Shows mistakes or warnings, each with an empty line below it.
pub(crate) fn show(mistakes: &Mistakes) {
    if !mistakes.list.is_empty() {
        let shown = mistakes.render(terminal::colours());
        terminal::note(shown.strip_suffix('\n').unwrap_or(&shown));
    }
}
