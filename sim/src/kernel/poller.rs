//! Readiness, registered by descriptor and level-triggered unless an edge is asked for, like epoll.

use super::errno::{self, error};
use super::stream::Readiness;
use dormouse_reactor::Fd;
use dormouse_reactor::poller::{Condition, Events, Interest};
use std::collections::BTreeMap;
use std::io;

#[derive(Clone, Copy, Debug)]
struct Watch {
    token: u64,
    interest: Interest,
    /// A one-shot event was reported; nothing is reported until the interest is set again.
    disarmed: bool,
    /// What had arrived and departed at the last report, if that was a report of an edge.
    reported: Option<(u64, u64)>,
}

/// The watched descriptors.
#[derive(Debug, Default)]
pub(crate) struct Poller {
    watches: BTreeMap<i32, Watch>,
}

impl Poller {
    pub(crate) fn add(&mut self, fd: Fd, token: u64, interest: Interest) -> io::Result<()> {
        if self.watches.contains_key(&fd.0) {
            return Err(error(errno::EXISTS));
        }
        self.set(fd, token, interest);
        Ok(())
    }

    pub(crate) fn modify(&mut self, fd: Fd, token: u64, interest: Interest) -> io::Result<()> {
        if !self.watches.contains_key(&fd.0) {
            return Err(error(errno::NO_ENTRY));
        }
        self.set(fd, token, interest);
        Ok(())
    }

    fn set(&mut self, fd: Fd, token: u64, interest: Interest) {
        let watch = Watch {
            token,
            interest,
            disarmed: false,
            reported: None,
        };
        self.watches.insert(fd.0, watch);
    }

    pub(crate) fn remove(&mut self, fd: Fd) -> io::Result<()> {
        let removed = self.watches.remove(&fd.0).map(|_| ());
        removed.ok_or_else(|| error(errno::NO_ENTRY))
    }

    pub(crate) fn len(&self) -> usize {
        self.watches.len()
    }

    /// All watched descriptors.
    pub(crate) fn watched(&self) -> Vec<Fd> {
        self.watches.keys().map(|&number| Fd(number)).collect()
    }

    /// Adds the event of a descriptor, if it is ready for what is watched.
    pub(crate) fn report(&mut self, fd: Fd, ready: Readiness, events: &mut Events) {
        let Some(watch) = self.watches.get_mut(&fd.0).filter(|watch| !watch.disarmed) else {
            return;
        };
        let reads = watch.interest.contains(Interest::READ);
        let writes = watch.interest.contains(Interest::WRITE);
        let has_arrived = watch
            .reported
            .is_none_or(|(arrivals, _)| arrivals != ready.arrivals);
        let has_room = watch
            .reported
            .is_none_or(|(_, departures)| departures != ready.departures);
        let found = Interest::NONE
            .with(Interest::READ, reads && ready.readable && has_arrived)
            .with(Interest::WRITE, writes && ready.writable && has_room);
        let condition = match ready {
            Readiness { error: true, .. } => Condition::ERROR,
            Readiness { hung_up: true, .. } => Condition::HUNG_UP,
            Readiness {
                read_closed: true, ..
            } if reads => Condition::READ_CLOSED,
            _ => Condition::NONE,
        };
        let condition = match has_arrived {
            true => condition,
            false => Condition::NONE,
        };
        if found == Interest::NONE && condition == Condition::NONE {
            return;
        }
        watch.disarmed = watch.interest.contains(Interest::ONCE);
        watch.reported =
            (watch.interest.contains(Interest::EDGE)).then_some((ready.arrivals, ready.departures));
        events.push(watch.token, found, condition);
    }
}
