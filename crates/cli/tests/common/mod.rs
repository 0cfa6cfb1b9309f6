//! Runs of the real binary.

use std::process::Command;

/// The result of a run.
pub(crate) struct RunOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Returns the command `dormouse`.
pub(crate) fn dormouse() -> Command {
    Command::new(env!("CARGO_BIN_EXE_dormouse"))
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> RunOutput {
    let output = command.output().expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it writes UTF-8");
    RunOutput {
        code: output.status.code(),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}
