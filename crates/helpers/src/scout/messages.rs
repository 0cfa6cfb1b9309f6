//! What main and a scout tell each other.

use super::task::{Check, Task};
use dormouse_reactor::socket::{self, Attempt};
use dormouse_reactor::{Fd, OnExec};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;

/// Command line of a scout.
#[derive(Serialize, Deserialize)]
pub struct ScoutArguments {
    /// Memory file with the task.
    pub task: i32,
    /// The scout's end of the channel to main.
    pub channel: i32,
}

/// A result of a scout's work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ScoutReport {
    /// A lookup has ended.
    Name {
        /// Host and port.
        name: String,
        /// Its addresses, or why there are none.
        found: Result<Vec<SocketAddr>, String>,
    },
    /// A backend's health has changed.
    Health {
        /// Its address, as the table of backends knows it.
        backend: String,
        /// The error says why it is not well.
        well: Result<(), String>,
    },
}

/// Start of a message to a running scout: a memory file with checks comes along.
const CHECKS: &[u8] = b"checks";

/// Main's order to check these backends from now on, and no others. `WouldBlock`: the scout does
/// not read its channel.
pub fn send_checks(channel: Fd, checks: &[Check]) -> io::Result<Attempt<()>> {
    let task = Task {
        checks: checks.to_vec(),
        ..Task::default()
    };
    let file = task.write()?;
    let sent = socket::send_message(channel, CHECKS, &[file]);
    file.close();
    sent
}

/// What a scout receives from main.
pub(super) enum Instruction {
    /// Nothing new.
    None,
    /// Check these backends, and no others.
    Checks(Vec<Check>),
    /// Main is gone, or has ended this scout.
    End,
}

/// Receives main's next instruction.
pub(super) fn receive_instruction(channel: Fd) -> io::Result<Instruction> {
    let mut room = [0; CHECKS.len()];
    let Attempt::Done(message) = socket::receive_message(channel, &mut room, OnExec::Close)? else {
        return Ok(Instruction::None);
    };
    match message.descriptors.as_slice() {
        [file] => Ok(Instruction::Checks(Task::read(*file)?.checks)),
        _ => Ok(Instruction::End),
    }
}
