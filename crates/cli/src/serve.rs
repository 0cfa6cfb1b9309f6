//! `dormouse serve` and `dormouse connect`: the same program with different flags.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;

use dormouse_config::{self as config, Config, Loaded, Machine, Mistakes};
use dormouse_supervisor::{Occasion, ServeError, Source};

use crate::arguments::ServeArgs;
use crate::exit_status::ExitStatus;
use crate::options::OptionFlags;
use crate::{logs, mistakes, terminal};

pub(crate) fn run<const CONNECT: bool>(args: &ServeArgs<CONNECT>) -> ExitCode {
    let file = args.file.path();
    let source = Source {
        file: file.map(Path::to_owned),
        section: OptionFlags::<CONNECT>::SECTION,
        flags: args.options.given.clone(),
    };
    if let Some(state) = args.place.resume {
        // The running configuration continues, whatever the file says now.
        return ended(dormouse_supervisor::resume(state, source, logs::start));
    }
    if let Some(state) = args.place.try_resume {
        return try_resume(state, &source);
    }
    let ready = match dormouse_supervisor::load(&source, &Occasion::start()) {
        Ok(ready) => ready,
        Err(found) => return mistakes::refuse(file, &found, "nothing was started"),
    };
    mistakes::show(&ready.loaded.warnings);
    ended(dormouse_supervisor::serve(ready, source, logs::start))
}

/// Reports whether this binary can continue in place of the running one.
fn try_resume(state: i32, source: &Source) -> ExitCode {
    let running = match dormouse_supervisor::try_resume(state) {
        Ok(running) => running,
        Err(error) => return ended(Err(error)),
    };
    // The next start, and the next reload, must be able to read the file. Standard input and a pipe have been read.
    if !source.is_read_once()
        && let Err(found) = read_again(source, &running)
    {
        let file = source.file.as_deref();
        return mistakes::refuse(file, &found, "the running binary continues");
    }
    ExitCode::from(dormouse_supervisor::CAN_RESUME)
}

/// Stands for the address of a name that the file has now, and the running program does not know.
const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Loads the configuration of a running program. Its names keep their addresses: an upgrade looks none of them
/// up, and must work while DNS does not.
fn read_again(source: &Source, running: &Config) -> Result<Loaded, Mistakes> {
    let look_up = |host: &str, port: u16| match running.known_addresses(&format!("{host}:{port}")) {
        Some(known) if !known.is_empty() => Ok(known),
        Some(_) | None => Ok(vec![SocketAddr::new(UNKNOWN, port)]),
    };
    config::load_with(
        source.file.as_deref(),
        source.section,
        &source.flags,
        &Machine::read(),
        &look_up,
        &|_| Vec::new(),
    )
}

fn ended(result: Result<(), ServeError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::error(&error);
            match error {
                ServeError::Certificates(_) => ExitStatus::Misused.into(),
                ServeError::System { .. } | ServeError::Rest(_) | ServeError::Workers(_) => {
                    ExitStatus::Failed.into()
                }
            }
        }
    }
}
