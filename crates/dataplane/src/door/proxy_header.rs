//! The header by which a trusted proxy says for whom it speaks.

use crate::io::Io;
use crate::proxy_protocol::{self, Endpoints, HEADER_MAX, Progress, Refused};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Attempt;

/// What a receive led to.
pub(crate) enum Received {
    /// More is awaited.
    Part,
    /// The header is there.
    Whole,
    /// This is no header.
    Refused(Refused),
    /// The proxy's connection has ended.
    Gone,
}

/// A proxy's header, as far as it has come.
#[derive(Default)]
pub(crate) struct ProxyHeader {
    received: Vec<u8>,
    len: usize,
    endpoints: Option<Endpoints>,
}

impl ProxyHeader {
    /// Has anything come?
    pub(crate) fn has_begun(&self) -> bool {
        !self.received.is_empty()
    }

    /// Receives more of it.
    pub(crate) fn receive(&mut self, io: &impl Io, fd: Fd, scratch: &mut [u8]) -> Received {
        let n = match io.recv(fd, &mut scratch[..HEADER_MAX]) {
            Ok(Attempt::Done(0)) | Err(_) => return Received::Gone,
            Ok(Attempt::Done(n)) => n,
            Ok(Attempt::WouldBlock) => return Received::Part,
        };
        self.received.extend_from_slice(&scratch[..n]);
        match proxy_protocol::read(&self.received) {
            Ok(Progress::Partial) => Received::Part,
            Ok(Progress::Complete { len, endpoints }) => {
                (self.len, self.endpoints) = (len, endpoints);
                Received::Whole
            }
            Err(refused) => Received::Refused(refused),
        }
    }

    /// For whom it speaks, and what the client has said already.
    pub(crate) fn into_parts(mut self) -> (Option<Endpoints>, Vec<u8>) {
        self.received.drain(..self.len.min(self.received.len()));
        (self.endpoints, self.received)
    }
}
