//! The PROXY header of a trusted proxy, which names its client.

use crate::io::Io;
use crate::proxy_protocol::{self, Endpoints, HEADER_MAX, HeaderError, HeaderProgress};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Attempt;

/// Result of a receive.
pub(crate) enum Received {
    /// The header is incomplete.
    Part,
    /// The header is complete.
    Whole,
    /// The bytes are not a valid header.
    Invalid(HeaderError),
    /// The proxy's connection has ended.
    Ended,
}

/// A proxy's header, as far as it was received.
#[derive(Default)]
pub(crate) struct ProxyHeader {
    received: Vec<u8>,
    len: usize,
    endpoints: Option<Endpoints>,
}

impl ProxyHeader {
    /// Whether any byte was received.
    pub(crate) fn has_begun(&self) -> bool {
        !self.received.is_empty()
    }

    /// Receives more of the header.
    pub(crate) fn receive(&mut self, io: &impl Io, fd: Fd, scratch: &mut [u8]) -> Received {
        let n = match io.recv(fd, &mut scratch[..HEADER_MAX]) {
            Ok(Attempt::Done(0)) | Err(_) => return Received::Ended,
            Ok(Attempt::Done(n)) => n,
            Ok(Attempt::WouldBlock) => return Received::Part,
        };
        self.received.extend_from_slice(&scratch[..n]);
        match proxy_protocol::read(&self.received) {
            Ok(HeaderProgress::Partial) => Received::Part,
            Ok(HeaderProgress::Complete { len, endpoints }) => {
                (self.len, self.endpoints) = (len, endpoints);
                Received::Whole
            }
            Err(error) => Received::Invalid(error),
        }
    }

    /// The addresses in the header, and the client's bytes that followed it.
    pub(crate) fn into_parts(mut self) -> (Option<Endpoints>, Vec<u8>) {
        self.received.drain(..self.len.min(self.received.len()));
        (self.endpoints, self.received)
    }
}
