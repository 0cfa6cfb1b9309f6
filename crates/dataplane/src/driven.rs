//! A worker without processes: its handover and its operating system are the caller's, who also
//! decides when it turns. This is what a simulation drives.

use crate::keeper::begin;
use crate::worker::{End, Io, Token, Worker};
use dormouse_reactor::Fd;
use dormouse_reactor::poller::Events;
use std::io;

/// Events that a worker takes per turn.
const EVENTS_PER_TURN: usize = 256;

/// A worker that turns when it is told to.
pub struct DrivenWorker<I> {
    worker: Worker<I>,
    events: Events,
    newcomers: Vec<Token>,
}

impl<I: Io> DrivenWorker<I> {
    /// Starts by the handover in `handover`, as a keeper's worker does: the first one, or the
    /// successor of one that died. `io` is given the former worker's poller.
    ///
    /// # Errors
    /// The handover or the shared memory it names can't be used.
    pub fn begin(handover: Fd, io: impl FnOnce(Fd) -> io::Result<I>) -> io::Result<Self> {
        let (worker, _) = begin::begin(handover, &[], |_| {}, io)?;
        Ok(DrivenWorker {
            worker,
            events: Events::with_capacity(EVENTS_PER_TURN),
            newcomers: Vec::new(),
        })
    }

    /// One turn of the loop. Returns how the worker ended, if it did.
    ///
    /// # Errors
    /// What the poller says.
    pub fn turn(&mut self) -> io::Result<Option<End>> {
        self.worker.turn(&mut self.events, &mut self.newcomers)?;
        Ok(self.worker.end())
    }
}
