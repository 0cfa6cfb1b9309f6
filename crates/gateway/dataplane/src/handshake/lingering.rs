//! The end of a handshake that has failed.

use crate::io::{Io, discard};
use crate::workspace::Workspace;
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Attempt;
use std::io;

/// How many times a failed peer's bytes are discarded before its connection is closed. It may have
/// bytes in flight, but a peer that keeps sending does not read our alert.
const LINGER_READS_MAX: u32 = 16;

/// Has failed: sends the rest of the output, then waits for the peer to close.
pub(crate) struct Lingering {
    output: Vec<u8>,
    is_shut: bool,
    reads: u32,
}

impl Lingering {
    /// Sends the last output, which has the alert, at once.
    pub(super) fn begin<I: Io>(output: Vec<u8>, fd: Fd, work: &mut Workspace<I>) -> Lingering {
        let mut lingering = Lingering {
            output,
            is_shut: false,
            reads: 0,
        };
        // The result does not matter: the deadline ends the connection.
        let _ = lingering.send_rest(fd, work);
        lingering
    }

    /// Whether the peer must read before it may send.
    pub(super) fn is_blocked(&self) -> bool {
        !self.output.is_empty()
    }

    /// Sends and discards more. Returns whether the connection is to be closed.
    pub(super) fn is_over<I: Io>(&mut self, fd: Fd, work: &mut Workspace<I>) -> bool {
        self.reads += 1;
        self.reads > LINGER_READS_MAX || {
            let sent = self.send_rest(fd, work);
            sent.unwrap_or(true)
        }
    }

    /// Sends the rest of the output, closes the sending direction, and discards what the peer sends. Returns whether the
    /// peer has closed its direction.
    fn send_rest<I: Io>(&mut self, fd: Fd, work: &mut Workspace<I>) -> io::Result<bool> {
        while !self.output.is_empty() {
            match work.io.send(fd, &self.output)? {
                Attempt::Done(n) => drop(self.output.drain(..n)),
                Attempt::WouldBlock => return Ok(false),
            }
        }
        if !self.is_shut {
            self.is_shut = true;
            work.io.shutdown_write(fd)?;
        }
        Ok(discard(&work.io, fd, &mut work.scratch.opening))
    }
}
