//! `dormouse serve` and `dormouse connect`: one program, with the flags of either.

use std::path::Path;
use std::process::ExitCode;

use dormouse_config::{self as config, Flag, Machine, Purpose, Section};
use dormouse_supervisor::{ServeError, Source};

use crate::arguments::{ConnectArgs, PlaceArgs, ServeArgs};
use crate::exit_status::ExitStatus;
use crate::{logs, mistakes, terminal};

pub(crate) fn run(args: &ServeArgs) -> ExitCode {
    let given = &args.options.given;
    start(args.file.path(), Section::Route, given, &args.place)
}

pub(crate) fn run_connect(args: &ConnectArgs) -> ExitCode {
    let given = &args.options.given;
    start(args.file.path(), Section::Originate, given, &args.place)
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
    if let (Some(state), true) = (place.try_resume, source.is_standard_input()) {
        // It has been read, and the running configuration goes on.
        return can_resume(state);
    }
    let mut machine = Machine::read();
    if place.try_resume.is_some() {
        // It opens no listener: those of the running program go on, whoever opened them.
        machine.privileged_below = 0;
    }
    let loaded = config::load(file, section, flags, &machine, Purpose::Serve);
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(found) => return mistakes::refuse(file, &found, "nothing was started"),
    };
    mistakes::show(&loaded.warnings);
    if let Some(state) = place.try_resume {
        return can_resume(state);
    }
    ended(dormouse_supervisor::serve(&loaded, source, logs::start))
}

fn can_resume(state: i32) -> ExitCode {
    match dormouse_supervisor::try_resume(state) {
        Ok(()) => ExitCode::from(dormouse_supervisor::CAN_RESUME),
        Err(error) => ended(Err(error)),
    }
}

fn ended(result: Result<(), ServeError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::error(&error);
            match error {
                ServeError::Certificates(_) => ExitStatus::Misused.into(),
                ServeError::System { .. } | ServeError::Workers(_) => ExitStatus::Failed.into(),
            }
        }
    }
}
