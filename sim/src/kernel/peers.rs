//! What the other machines do: clients and backends.

use super::Kernel;
use super::stream::{EndId, Family, Phase};
use dormouse_reactor::socket::Attempt;
use std::io;

impl Kernel {
    /// Connects a client to the listener.
    pub(crate) fn connect_client(&mut self, listener: usize) -> EndId {
        let from = self.new_address();
        let ends = [from, self.listeners[listener].address].map(|address| (address, self.buffers));
        let end = self.streams.create(Family::Tcp, Phase::Open, ends);
        self.listeners[listener].queue.push_back(end.other());
        end
    }

    /// Accepts a connection at a backend.
    pub(crate) fn accept_backend(&mut self, backend: usize) -> Option<EndId> {
        self.backends[backend].queue.pop_front()
    }

    /// Sends from a peer's end.
    pub(crate) fn send_from(&mut self, end: EndId, bytes: &[u8]) -> io::Result<Attempt<usize>> {
        let sent = self.streams.send(end, bytes, usize::MAX);
        self.note_undelivered(end);
        sent
    }

    /// Receives at a peer's end.
    pub(crate) fn recv_at(&mut self, end: EndId, buf: &mut [u8]) -> io::Result<Attempt<usize>> {
        let received = self.streams.recv(end, buf, usize::MAX, false);
        self.note_undelivered(end.other());
        received
    }

    /// Shuts down the sending direction of a peer's end.
    pub(crate) fn shutdown_at(&mut self, end: EndId) {
        self.streams.shutdown_write(end);
        self.note_undelivered(end);
    }

    /// Closes a peer's end.
    pub(crate) fn close_at(&mut self, end: EndId) {
        self.streams.close(end);
        self.note_undelivered(end);
        self.note_undelivered(end.other());
    }

    /// Resets the connection from a peer's end.
    pub(crate) fn reset_at(&mut self, end: EndId) {
        self.streams.reset(end);
    }
}
