//! `dormouse rest-trial`: whether this machine lets quiet connections leave the kernel.

use std::process::ExitCode;

use dormouse_helpers::tcp_repair::{TrialPorts, try_cycles};

use crate::exit_status::ExitStatus;
use crate::terminal;

pub(crate) fn run() -> ExitCode {
    match try_cycles(TrialPorts::Any) {
        Ok(cycles) => {
            for cycle in cycles {
                terminal::print(&format!(
                    "{}: connections can rest outside of the kernel; rest {} us, echo that wakes {} us\n",
                    cycle.ip,
                    cycle.rest.as_micros(),
                    cycle.wake.as_micros(),
                ));
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            terminal::error(format_args!("connections cannot rest here: cannot {error}"));
            ExitStatus::Failed.into()
        }
    }
}
