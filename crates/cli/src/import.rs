//! `dormouse import`: converts another program's configuration, to standard output.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;

use crate::exit_status::ExitStatus;
use crate::terminal;

/// The program whose configuration to convert.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Program {
    /// hitch.conf
    Hitch,
    /// stunnel.conf; client services become `[[originate]]`
    Stunnel,
    /// nginx.conf, with the files that it includes: servers with `ssl` or `ssl_preread`
    Nginx,
    /// haproxy.cfg: binds with `ssl`, and binds that choose a backend by the name in the
    /// ClientHello
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
    /// Program whose configuration to convert
    program: Program,
    /// Its configuration file, which is only read
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
            "{shown}: no TLS found in this {name} configuration"
        ));
        return ExitStatus::Misused.into();
    }
    let page = draft.finish(&format!("{shown} ({})", program.name()));
    terminal::print(&page.text);
    if page.left_out > 0 {
        terminal::note(format_args!(
            "{} could not be converted exactly: each is a comment with its line and the reason",
            counted(page.left_out, "setting")
        ));
    }
    if page.to_do > 0 {
        terminal::note(format_args!(
            "{} to do before the result can run: they are in `todo`, at the top",
            counted(page.to_do, "step")
        ));
    }
    terminal::note("next: run `dormouse check` on the result; it reads certificates and keys too");
    match page.to_do {
        0 => ExitCode::SUCCESS,
        _ => ExitStatus::Lost.into(),
    }
}

fn counted(n: usize, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}
