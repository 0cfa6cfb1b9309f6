//! `dormouse serve` and `dormouse connect`: one program, with the flags of either.

use std::path::Path;
use std::process::ExitCode;

use dormouse_config::{
    self as config, Flag, Machine, Mistake, Mistakes, Purpose, Section, Severity,
};
use dormouse_supervisor::{ServeError, Source};

use crate::arguments::{ConnectArgs, PlaceArgs, ServeArgs};
use crate::outcome::Outcome;
use crate::{journal, logs, terminal};

pub(crate) fn run(args: &ServeArgs) -> ExitCode {
    let given = &args.options.given;
    start(args.config.as_deref(), Section::Route, given, &args.place)
}

pub(crate) fn run_connect(args: &ConnectArgs) -> ExitCode {
    let given = &args.options.given;
    start(
        args.config.as_deref(),
        Section::Originate,
        given,
        &args.place,
    )
}

fn start(file: Option<&Path>, section: Section, flags: &[Flag], place: &PlaceArgs) -> ExitCode {
    let source = Source {
        file: file.map(Path::to_owned),
        section,
        flags: flags.to_vec(),
    };
    if let Some(state) = place.resume {
        // The running configuration goes on, whatever the file says by now.
        return ended(dormouse_supervisor::resume(state, source, logs::start));
    }
    let loaded = config::load(file, section, flags, &Machine::read(), Purpose::Serve);
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(mistakes) => return refuse(file, &mistakes, "nothing was started"),
    };
    show(&loaded.warnings);
    if let Some(state) = place.try_resume {
        return match dormouse_supervisor::try_resume(state) {
            Ok(()) => ExitCode::from(dormouse_supervisor::CAN_RESUME),
            Err(error) => ended(Err(error)),
        };
    }
    ended(dormouse_supervisor::serve(&loaded, source, logs::start))
}

fn ended(result: Result<(), ServeError>) -> ExitCode {
    match result {
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
