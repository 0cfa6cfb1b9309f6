//! `dormouse import`: the TLS part of another program's configuration as one of ours.
//!
//! Each program has a module that reads its file into a [`Draft`]; how a draft is written down is
//! the same for all. What can't be carried over becomes a comment with the line it came from,
//! never silence.

mod draft;
mod haproxy;
mod hitch;
mod nginx;
mod stunnel;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;

use crate::outcome::Outcome;
use crate::terminal;
use draft::Draft;

/// No configuration is larger.
const FILE_MAX: u64 = 4 << 20;

/// Whose configuration it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Program {
    /// hitch.conf
    Hitch,
    /// stunnel.conf; its clients become [[originate]]
    Stunnel,
    /// nginx.conf, with the files that it includes: servers with `ssl`
    Nginx,
    /// haproxy.cfg: binds with `ssl`
    Haproxy,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::Hitch => "hitch",
            Program::Stunnel => "stunnel",
            Program::Nginx => "nginx",
            Program::Haproxy => "HAProxy",
        }
    }
}

/// Arguments of `dormouse import`.
#[derive(clap::Args, Debug)]
pub(crate) struct ImportArgs {
    /// Whose configuration it is
    program: Program,
    /// Its file
    file: PathBuf,
}

pub(crate) fn run(args: &ImportArgs) -> ExitCode {
    let shown = args.file.display();
    let text = match read(&args.file) {
        Ok(text) => text,
        Err(why) => {
            terminal::error(format_args!("cannot read {shown}: {why}"));
            return Outcome::Misused.into();
        }
    };
    let draft = draft_of(args.program, &text, &args.file);
    if draft.is_empty() {
        terminal::error(format_args!(
            "{shown} has nothing that speaks TLS, as far as a configuration of {} goes",
            args.program.name()
        ));
        return Outcome::Misused.into();
    }
    terminal::print(&draft.render(&format!("{shown} ({})", args.program.name())));
    let left = draft.left_out();
    if left > 0 {
        terminal::note(format_args!(
            "{left} lines could not be carried over; they stand as comments. Look at them, then: dormouse check FILE"
        ));
    }
    ExitCode::SUCCESS
}

fn draft_of(program: Program, text: &str, file: &Path) -> Draft {
    let folder = file.parent().unwrap_or(Path::new(""));
    match program {
        Program::Hitch => hitch::read(text),
        Program::Stunnel => stunnel::read(text),
        Program::Nginx => nginx::read(text, folder),
        Program::Haproxy => haproxy::read(text),
    }
}

fn read(path: &Path) -> Result<String, String> {
    let found = std::fs::metadata(path).map_err(|e| e.to_string())?;
    if found.len() > FILE_MAX {
        return Err(format!("{} bytes; at most 4 MiB are read", found.len()));
    }
    let bytes = std::fs::read(path).map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // Some editors put a mark in front.
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

#[cfg(test)]
mod tests;
