//! The door: listeners, and how much may still come in.

pub(crate) mod admission;
pub(crate) mod client;
pub(crate) mod listeners;
pub(crate) mod pause;
pub(crate) mod proxy_header;

use crate::bursts::Subject;
use crate::io::Io;
use crate::settings::Settings;
use crate::workspace::Workspace;
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Accepted;
use listeners::{Listener, Listeners};
use pause::Pause;

/// Connections accepted from one listener per turn.
pub(crate) const ACCEPTS_PER_TURN: usize = 16;

/// Standard streams, epoll, and what a library opens for a moment.
const DESCRIPTORS_SPARE: u64 = 8;

/// How often the limit of descriptors is looked at, while no client connects.
const DESCRIPTORS_LOOK_MS: u64 = 100;

/// What there is already.
#[derive(Clone, Copy)]
pub(crate) struct Occupancy {
    pub(crate) connections: usize,
    pub(crate) handshakes: usize,
    /// Connections to servers that are on their way.
    pub(crate) originations: usize,
}

/// Listeners, polled while there is room.
pub(crate) struct Door {
    pub(crate) listeners: Listeners,
    descriptors: Descriptors,
}

/// How many connections there are descriptors for.
struct Descriptors {
    /// Descriptors of the table that are not connections.
    reserved: u64,
    suffice_for: u64,
    looked_ms: u64,
}

impl Door {
    /// A door that is closed, until [`Door::update`].
    pub(crate) fn new(listeners: Vec<Listener>, descriptors_kept: usize) -> Door {
        Door {
            listeners: Listeners::new(listeners),
            descriptors: Descriptors {
                reserved: descriptors_kept as u64 + DESCRIPTORS_SPARE,
                suffice_for: u64::MAX,
                looked_ms: 0,
            },
        }
    }

    /// Accepts a connection. `None`: there is none, or it can't be had now.
    pub(crate) fn accept<I: Io>(
        &mut self,
        listener: Fd,
        work: &mut Workspace<I>,
    ) -> Option<Accepted> {
        match work.io.accept(listener) {
            Ok(attempt) => attempt.done(),
            Err(e) => {
                tracing::debug!(error = %e, "accept failed");
                self.pause(Pause::Descriptors, work);
                None
            }
        }
    }

    /// Accepting pauses: something has run out.
    pub(crate) fn pause<I>(&mut self, why: Pause, work: &mut Workspace<I>) {
        work.has_room_again = false;
        self.listeners.pause(why, work.now_ms, &work.count);
    }

    /// Other listeners take the place of these, which are not polled any more. Returns the former
    /// ones.
    pub(crate) fn replace<I: Io>(
        &mut self,
        by: Vec<Listener>,
        work: &Workspace<I>,
    ) -> Vec<Listener> {
        self.listeners.replace(&work.io, by)
    }

    /// Counts descriptors that came into the table and left it, and are not connections.
    pub(crate) fn reserve(&mut self, more: usize, less: usize) {
        let reserved = self.descriptors.reserved + more as u64;
        self.descriptors.reserved = reserved.saturating_sub(less as u64);
    }

    /// Why nothing more may be accepted, if that is so.
    pub(crate) fn limit_reached(&self, occupancy: Occupancy, settings: &Settings) -> Option<Pause> {
        let Occupancy {
            connections,
            handshakes,
            originations,
        } = occupancy;
        let limits = &settings.limits;
        // With TLS to its backend a connection will need two slots.
        let each = match settings.routes.iter().any(|r| r.backend_tls.is_some()) {
            true => 2,
            false => 1,
        };
        let taken = connections + each * handshakes + originations + each - 1;
        let most = self
            .descriptors
            .suffice_for
            .min(limits.connections_max.into());
        if taken as u64 >= most {
            Some(Pause::Full)
        } else if originations >= limits.handshakes_max {
            Some(Pause::Handshakes)
        } else {
            None
        }
    }

    /// Looks how many descriptors there may be. The limit may have been lowered since the plan was
    /// made, and an accepted connection will need a descriptor for the backend as well: so it is
    /// looked at before anything is accepted, not when there is none.
    pub(crate) fn count_descriptors<I: Io>(&mut self, settings: &Settings, work: &Workspace<I>) {
        self.descriptors.looked_ms = work.now_ms;
        let mut routes = settings.routes.iter();
        let each = match routes.all(|route| route.is_echo() || route.is_gone()) {
            true => 1,
            false => 2,
        };
        let free = work.io.descriptors_max();
        let free = free.saturating_sub(self.descriptors.reserved);
        self.descriptors.suffice_for = free / each;
    }

    /// Polls the listeners or stops polling them, as there is room.
    pub(crate) fn update<I: Io>(
        &mut self,
        occupancy: Occupancy,
        settings: &Settings,
        work: &mut Workspace<I>,
    ) {
        if std::mem::take(&mut work.has_room_again) {
            self.listeners.resume();
        }
        if work.now_ms >= self.descriptors.looked_ms + DESCRIPTORS_LOOK_MS {
            self.count_descriptors(settings, work);
        }
        let limit = self.limit_reached(occupancy, settings);
        let Workspace {
            io, count, now_ms, ..
        } = work;
        match self.listeners.update(limit, *now_ms, io, count) {
            Ok(None) => {}
            Ok(Some(pause)) => work.bursts.note(Subject::Paused, work.now_ms, |more| {
                tracing::warn!(reason = pause.reason(), more, "accepting paused");
            }),
            Err(e) => tracing::error!(error = %e, "listener poll failed"),
        }
    }
}
