//! The trial of a new binary: whether it can take over. It is given nothing but the state of the running program, and reads the
//! configuration file; so it runs without main's privileges, in `/`, and cannot change or reach anything.

use crate::helper::{self, Privileges};
use dormouse_config::Log;
use dormouse_reactor::Fd;
use dormouse_reactor::process::{self, Inherit, Program, ProgramFile};
use dormouse_reactor::sandbox::Role;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::process::ExitCode;

/// Name of the process.
pub const NAME: &str = "upgrade-trial";

/// What main tells it.
#[derive(Serialize, Deserialize)]
pub struct TrialArguments {
    /// The new binary, which main has checked.
    pub binary: i32,
    /// Its arguments, the program's name first.
    pub arguments: Vec<Vec<u8>>,
    /// Further descriptors that it inherits.
    pub inherited: Vec<i32>,
}

/// Entry point of the process; `args` is what follows the subcommand. `None`: main did not start it.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    helper::run(NAME, args, start_logs, run)
}

fn run(privileges: &Privileges, arguments: &TrialArguments) -> io::Result<()> {
    // A file of the working directory must not be taken for an argument.
    process::change_directory("/")?;
    privileges.confine(Role::UpgradeTrial)?;
    let program = Program {
        file: ProgramFile::Open(Fd(arguments.binary)),
        arguments: (arguments.arguments.iter().cloned())
            .map(OsString::from_vec)
            .collect(),
        environment: None,
        inherit: Inherit::Only(arguments.inherited.iter().copied().map(Fd).collect()),
    };
    match program.replace_this()? {}
}
