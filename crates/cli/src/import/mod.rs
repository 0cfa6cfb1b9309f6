//! `dormouse import`: the TLS part of another program's configuration as one of ours.
//!
//! Each program has a module that reads its file into a [`Draft`]; how a draft is written down is
//! the same for all. What can't be carried over becomes a comment with the line it came from,
//! never silence; what the result still lacks is found by the check that `dormouse check` makes,
//! and stands there as a comment too.

mod draft;
mod fault;
mod haproxy;
mod hitch;
mod nginx;
mod said;
mod stunnel;
mod words;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;

use crate::outcome::Outcome;
use crate::terminal;
use draft::Draft;
use fault::{Fault, Spot};

/// No configuration is larger, and none has longer lines.
const FILE_MAX: u64 = 4 << 20;
const LINE_MAX: usize = 64 << 10;

/// Whose configuration it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Program {
    /// hitch.conf
    Hitch,
    /// stunnel.conf; its clients become `[[originate]]`
    Stunnel,
    /// nginx.conf, with the files that it includes: servers with `ssl` or `ssl_preread`
    Nginx,
    /// haproxy.cfg: binds with `ssl`, and those which choose by the name in the ClientHello
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
    /// Its file; it is only read
    file: PathBuf,
}

pub(crate) fn run(args: &ImportArgs) -> ExitCode {
    let shown = args.file.display();
    let draft = match draft_of(args.program, &args.file) {
        Ok(draft) => draft,
        Err(fault) => {
            terminal::error(fault);
            return Outcome::Misused.into();
        }
    };
    if draft.is_empty() {
        let name = args.program.name();
        terminal::error(format_args!(
            "{shown} has nothing that speaks TLS, as far as a configuration of {name} goes"
        ));
        return Outcome::Misused.into();
    }
    let page = draft.finish(&format!("{shown} ({})", args.program.name()));
    terminal::print(&page.text);
    if page.left_out > 0 {
        terminal::note(format_args!(
            "{} could not be carried over: each stands as a comment, with its line and why",
            counted(page.left_out, "thing")
        ));
    }
    if page.to_do > 0 {
        terminal::note(format_args!(
            "{} to be done before it can run: look for TO DO",
            counted(page.to_do, "thing")
        ));
    }
    terminal::note("next: `dormouse check` on the result, which reads certificates and keys too");
    ExitCode::SUCCESS
}

fn counted(n: usize, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

fn draft_of(program: Program, file: &Path) -> Result<Draft, Fault> {
    let spot = Spot::new(&file.display().to_string());
    let text = read(file, &spot)?;
    understand(program, &text, &spot, file)
}

/// The text of a file, as the program understands it.
fn understand(program: Program, text: &str, spot: &Spot, file: &Path) -> Result<Draft, Fault> {
    let folder = file.parent().unwrap_or(Path::new(""));
    match program {
        Program::Hitch => hitch::read(text, spot),
        Program::Stunnel => stunnel::read(text, spot, folder),
        Program::Nginx => nginx::read(text, spot, file),
        Program::Haproxy => haproxy::read(text, spot, folder),
    }
}

/// The text of a configuration.
fn read(path: &Path, spot: &Spot) -> Result<String, Fault> {
    let unreadable = |why: std::io::Error| {
        let help = "give the file that the program itself reads, as a user who may read it";
        Fault::new(spot, 0, format!("this file can't be read: {why}"), help)
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > FILE_MAX {
        let help = "no configuration of a person is that long; is this the right file?";
        return Err(Fault::new(
            spot,
            0,
            "this file has more than 4 MiB, which is all that is read",
            help,
        ));
    }
    for (n, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let help = "a configuration is text; is this the right file?";
        if line.contains(&0) {
            return Err(Fault::new(
                spot,
                n + 1,
                "there is a zero byte in this line",
                help,
            ));
        }
        if line.len() > LINE_MAX {
            let what = format!(
                "this line has {} bytes, 64 KiB at most are read",
                line.len()
            );
            return Err(Fault::new(spot, n + 1, what, help));
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    // Some editors put a mark in front.
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

/// The files of a folder whose names fit, in the order of their names; hidden ones do not.
fn files_in(folder: &Path, fits: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_wanted = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy());
        path.is_file() && name.is_some_and(|name| !name.starts_with('.') && fits(&name))
    };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(is_wanted)
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests;
