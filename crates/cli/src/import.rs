//! `dormouse import`: another program's configuration as one of ours, on standard output.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;

use crate::exit_status::ExitStatus;
use crate::terminal;

/// Whose configuration it is.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Program {
    /// hitch.conf
    Hitch,
    /// stunnel.conf; its clients become `[[originate]]`
    Stunnel,
    /// nginx.conf, with the files that it includes: servers with `ssl` or `ssl_preread`
    Nginx,
    /// haproxy.cfg: binds with `ssl`, and those which choose by the name in the ClientHello
    Haproxy,
}

impl From<Program> for dormouse_import::Program {
    fn from(program: Program) -> Self {
        match program {
            Program::Hitch => Self::Hitch,
            Program::Stunnel => Self::Stunnel,
            Program::Nginx => Self::Nginx,
            Program::Haproxy => Self::Haproxy,
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
    let program = dormouse_import::Program::from(args.program);
    let draft = match dormouse_import::read(program, &args.file) {
        Ok(draft) => draft,
        Err(error) => {
            terminal::error(error);
            return ExitStatus::Misused.into();
        }
    };
    if draft.is_empty() {
        let name = program.name();
        terminal::error(format_args!(
            "{shown} has nothing that speaks TLS, as far as a configuration of {name} goes"
        ));
        return ExitStatus::Misused.into();
    }
    let page = draft.finish(&format!("{shown} ({})", program.name()));
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
