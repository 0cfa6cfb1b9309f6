//! A worker without processes: its handover and its operating system are the caller's, who also
//! decides when it turns. This is what a simulation drives.

use crate::io::Io;
use crate::keeper::begin;
use crate::worker::{Exit, Worker};
use dormouse_handover::orders::Order;
use dormouse_handover::slot::Slot;
use dormouse_reactor::Fd;
use dormouse_reactor::slab::Slab;
use std::io;

/// A worker that turns when it is told to.
pub struct DrivenWorker<I> {
    worker: Worker<I>,
}

impl<I: Io> DrivenWorker<I> {
    /// Starts by the handover in `handover`, as a keeper's worker does: the first one, or the
    /// successor of one that died. `io` is given the former worker's poller.
    ///
    /// # Errors
    /// The handover or the shared memory it names can't be used.
    pub fn begin(handover: Fd, io: impl FnOnce(Fd) -> io::Result<I>) -> io::Result<Self> {
        let (worker, _) = begin::begin(handover, 0, &[], |_| {}, io)?;
        Ok(DrivenWorker { worker })
    }

    /// One turn of the loop. Returns how the worker ended, if it did.
    ///
    /// # Errors
    /// What the poller says.
    pub fn turn(&mut self) -> io::Result<Option<Exit>> {
        self.worker.turn()?;
        Ok(self.worker.exit())
    }

    /// Does what main would ask for, without a channel.
    pub fn obey(&mut self, order: Order) {
        self.worker.obey(order);
    }

    /// The slots of its connections, to look at.
    pub fn slots(&self) -> &Slab<Slot> {
        self.worker.slots()
    }

    /// Handshakes in flight, with clients and with servers.
    pub fn handshakes(&self) -> usize {
        self.worker.handshakes()
    }
}
