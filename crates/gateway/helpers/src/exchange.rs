//! One request and one response on a connection: what control and the redirect process share.

use dormouse_reactor::Fd;
use dormouse_reactor::socket::{self, Attempt};
use std::io;
use zeroize::Zeroizing;

/// Receives a request, up to `room` bytes. Returns whether the client has closed its direction, which it may do right
/// after the request.
pub(crate) fn receive(fd: Fd, request: &mut Vec<u8>, room: usize) -> io::Result<bool> {
    // Control receives keys.
    let mut chunk = Zeroizing::new([0; 1024]);
    while request.len() < room {
        let left = chunk.len().min(room - request.len());
        let chunk = &mut chunk[..left];
        match socket::recv(fd, chunk)? {
            Attempt::Done(0) => return Ok(true),
            Attempt::Done(count) => {
                request.extend_from_slice(chunk.get(..count).unwrap_or_default());
            }
            Attempt::WouldBlock => break,
        }
    }
    Ok(false)
}

/// A response, and how much of it was sent.
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    pub(crate) fn new(bytes: Vec<u8>) -> Outgoing {
        Outgoing { bytes, sent: 0 }
    }

    /// Bytes that were not sent yet.
    pub(crate) fn unsent(&self) -> usize {
        self.bytes.len().saturating_sub(self.sent)
    }

    /// Sends as much as the socket takes. After the last byte, closes our direction.
    pub(crate) fn send(&mut self, fd: Fd) -> io::Result<Attempt<()>> {
        while let Some(rest) = self.bytes.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match socket::send(fd, rest)? {
                Attempt::Done(count) => self.sent += count,
                Attempt::WouldBlock => return Ok(Attempt::WouldBlock),
            }
        }
        socket::shutdown_write(fd)?;
        Ok(Attempt::Done(()))
    }
}
