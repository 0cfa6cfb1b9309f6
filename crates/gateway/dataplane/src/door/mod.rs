//! The door: listeners, and the decision how many more connections to accept.

pub(crate) mod admission;
pub(crate) mod listeners;
pub(crate) mod proxy_header;
pub(crate) mod readmission;

use crate::bursts::{Place, Subject};
use crate::io::Io;
use crate::pause::Pause;
use crate::settings::{RouteSums, Settings};
use crate::workspace::Workspace;
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Accepted;
use listeners::{Listener, Listeners};
use std::io::{self, ErrorKind};

/// Connections accepted from one listener per turn.
pub(crate) const ACCEPTS_PER_TURN: usize = 16;

/// Descriptors kept free: standard streams, epoll, and short-lived ones of libraries.
const DESCRIPTORS_SPARE: u64 = 8;

/// Interval at which the descriptor limit is read while no client connects.
const DESCRIPTORS_CHECK_MS: u64 = 100;

/// Numbers of existing connections and handshakes.
#[derive(Clone, Copy)]
pub(crate) struct Occupancy {
    pub(crate) connections: usize,
    /// Those that have sockets, or are promised some.
    pub(crate) awake: usize,
    pub(crate) handshakes: usize,
    /// Connections to servers that are not established yet.
    pub(crate) originations: usize,
    /// Number of connections and handshakes that have ended since the start of the worker.
    pub(crate) ended: u64,
}

/// The listeners, polled while there is room.
pub(crate) struct Door {
    pub(crate) listeners: Listeners,
    descriptors: Descriptors,
    needs: Needs,
    /// [`Occupancy::ended`] at the last look.
    ended_before: u64,
}

/// What one more connection takes, whatever its route.
struct Needs {
    slots: usize,
    descriptors: u64,
}

/// The number of connections for which the process has descriptors.
struct Descriptors {
    /// Descriptors that are not connections.
    reserved: u64,
    suffice_for: u64,
    checked_ms: u64,
}

impl Door {
    /// Creates a door that accepts nothing before [`Door::update`].
    pub(crate) fn new(listeners: Vec<Listener>, descriptors_kept: usize) -> Door {
        Door {
            listeners: Listeners::new(listeners),
            descriptors: Descriptors {
                reserved: descriptors_kept as u64 + DESCRIPTORS_SPARE,
                suffice_for: u64::MAX,
                checked_ms: 0,
            },
            needs: Needs {
                slots: 2,
                descriptors: 2,
            },
            ended_before: 0,
        }
    }

    /// Notes what a connection of these routes takes.
    pub(crate) fn follow(&mut self, sums: &RouteSums) {
        self.needs = Needs {
            // With TLS to its backend, a connection needs two.
            slots: 1 + usize::from(sums.has_backend_tls),
            descriptors: 1 + u64::from(sums.has_backends),
        };
    }

    /// Accepts a connection. Returns `None` if none is queued, or if accepting failed.
    pub(crate) fn accept<I: Io>(
        &mut self,
        listener: Fd,
        occupancy: Occupancy,
        work: &Workspace<I>,
    ) -> Option<Accepted> {
        match work.io.accept(listener) {
            Ok(attempt) => attempt.done(),
            Err(e) => {
                tracing::debug!(error = %e, "accept failed");
                // A listener that was shut down for a drain, of which this worker does not know yet: it polls
                // as ready all the time.
                if e.kind() == ErrorKind::InvalidInput {
                    self.listeners.pause_silently(work.now_ms);
                } else {
                    self.pause(Pause::after_accept(&e), occupancy, work);
                }
                None
            }
        }
    }

    /// Counts connections accepted from listener `n`. With other workers, these come first after some.
    pub(crate) fn note_accepted<I: Io>(
        &mut self,
        n: usize,
        accepted: usize,
        work: &mut Workspace<I>,
    ) {
        if work.backends.workers() < 2 {
            return;
        }
        let Workspace { io, now_ms, .. } = work;
        let polled = self.listeners.note_accepted(n, accepted, *now_ms, io);
        if let Err(error) = polled {
            note_unpolled(&error, work);
        }
    }

    /// Pauses accepting, because a resource has run out. Only what ends from now on gives it back.
    pub(crate) fn pause<I>(&mut self, reason: Pause, occupancy: Occupancy, work: &Workspace<I>) {
        self.ended_before = occupancy.ended;
        self.listeners.pause(reason, work.now_ms, &work.count);
    }

    /// Replaces the listeners. Returns the former ones, which are no longer polled.
    pub(crate) fn replace<I: Io>(
        &mut self,
        by: Vec<Listener>,
        work: &Workspace<I>,
    ) -> Vec<Listener> {
        self.listeners.replace(&work.io, by)
    }

    /// Counts descriptors added to and removed from the table that are not connections.
    pub(crate) fn reserve(&mut self, more: usize, less: usize) {
        let reserved = self.descriptors.reserved + more as u64;
        self.descriptors.reserved = reserved.saturating_sub(less as u64);
    }

    /// Returns the limit that forbids accepting another connection, if one is reached.
    pub(crate) fn limit_reached(&self, occupancy: Occupancy, settings: &Settings) -> Option<Pause> {
        let Occupancy {
            connections,
            awake,
            handshakes,
            originations,
            ended: _,
        } = occupancy;
        let limits = &settings.limits;
        let each = self.needs.slots;
        let begun = each * handshakes + originations + each - 1;
        let with_sockets = (awake + begun) as u64;
        if (connections + begun) as u64 >= u64::from(limits.connections_max)
            || with_sockets >= self.descriptors.suffice_for
        {
            Some(Pause::Full)
        } else if with_sockets >= u64::from(limits.awake_max) {
            Some(Pause::Awake)
        } else if originations >= limits.handshakes_max {
            Some(Pause::Handshakes)
        } else {
            None
        }
    }

    /// Reads the descriptor limit, which may have been lowered since the start. This happens before
    /// accepting, because an accepted connection also needs a descriptor for its backend.
    pub(crate) fn count_descriptors<I: Io>(&mut self, work: &Workspace<I>) {
        self.descriptors.checked_ms = work.now_ms;
        let free = work.io.descriptors_max();
        let free = free.saturating_sub(self.descriptors.reserved);
        self.descriptors.suffice_for = free / self.needs.descriptors;
    }

    /// Starts or stops polling the listeners, according to the room there is.
    pub(crate) fn update<I: Io>(
        &mut self,
        occupancy: Occupancy,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        if occupancy.ended != self.ended_before {
            self.ended_before = occupancy.ended;
            self.listeners.resume();
        }
        if work.now_ms >= self.descriptors.checked_ms + DESCRIPTORS_CHECK_MS {
            self.count_descriptors(work);
        }
        let limit = self.limit_reached(occupancy, settings);
        let Workspace {
            io, count, now_ms, ..
        } = work;
        match self.listeners.update(limit, *now_ms, io, count) {
            Ok(None) => {}
            Ok(Some(pause)) => {
                work.bursts
                    .note(Subject::Paused, Place::Program, work.now_ms, |more| {
                        tracing::warn!(reason = %pause, more, "accepting paused");
                    })
            }
            Err(error) => note_unpolled(&error, work),
        }
    }
}

fn note_unpolled<I>(error: &io::Error, work: &mut Workspace<I>) {
    work.bursts
        .note(Subject::Paused, Place::Program, work.now_ms, |more| {
            tracing::error!(%error, more, "listener poll failed");
        });
}
