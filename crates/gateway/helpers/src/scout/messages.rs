//! Messages between main and a scout.

use super::task::{Check, Task};
use dormouse_reactor::socket::{self, Attempt};
use dormouse_reactor::{Fd, OnExec};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;

/// Arguments of a scout.
#[derive(Serialize, Deserialize)]
pub struct ScoutArguments {
    /// Memory file with the task.
    pub task: i32,
    /// The scout's end of the channel to main.
    pub channel: i32,
}

/// A result of a lookup or of checks.
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
        /// The backend's address, as in the table of backends.
        backend: String,
        /// The error is the reason why the backend is unhealthy.
        well: Result<(), String>,
    },
}

/// First bytes of a message to a running scout, which carries a memory file with checks.
const CHECKS: &[u8] = b"checks";

/// Orders a scout to check these backends from now on, and no others. `WouldBlock`: the scout does not
/// read its channel.
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
    /// No message.
    None,
    /// Check these backends, and no others.
    Checks(Vec<Check>),
    /// Main is gone or stops this scout.
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
