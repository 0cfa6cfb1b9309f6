//! A worker without processes, for simulations: the caller supplies the handover and the operating
//! system, and runs each turn of the loop.

use crate::io::Io;
use crate::keeper::begin;
use crate::worker::{Exit, Worker};
use dormouse_handover::slot::Slot;
use dormouse_reactor::Fd;
use dormouse_reactor::slab::Slab;
use std::io;

/// A worker whose caller runs each turn of the loop.
pub struct DrivenWorker<I> {
    worker: Worker<I>,
}

impl<I: Io> DrivenWorker<I> {
    /// Starts a worker from the file `handover`, as a keeper does: the first worker, or the successor
    /// of one that died. `io` receives the predecessor's poller.
    ///
    /// # Errors
    /// The handover is invalid, or the shared memory that it names can't be used.
    pub fn begin(handover: Fd, io: impl FnOnce(Fd) -> io::Result<I>) -> io::Result<Self> {
        let (worker, _) = begin::begin(handover, 0, &[], |_| {}, io)?;
        Ok(DrivenWorker { worker })
    }

    /// Runs one turn of the loop. Returns how the worker ended, if it did.
    ///
    /// # Errors
    /// The poller failed.
    pub fn turn(&mut self) -> io::Result<Option<Exit>> {
        self.worker.turn()?;
        Ok(self.worker.exit())
    }

    /// Wipes the expanded keys that the worker has kept.
    pub fn forget_keys(&mut self) {
        self.worker.forget_keys();
    }

    /// The worker's slots, for inspection.
    pub fn slots(&self) -> &Slab<Slot> {
        self.worker.slots()
    }

    /// Number of handshakes in flight, with clients and with servers.
    pub fn handshakes(&self) -> usize {
        self.worker.handshakes()
    }
}
