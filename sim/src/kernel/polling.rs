//! Calls of the worker that watch descriptors and wait for events.

use super::Kernel;
use super::descriptors::File;
use super::errno::{self, error};
use super::faults::Sabotage;
use super::repair::Repair;
use super::stream::Readiness;
use dormouse_reactor::Fd;
use dormouse_reactor::poller::{Events, Interest};
use std::io;

/// Most events that a wait reports.
const EVENTS_MAX: usize = 64;

impl Kernel {
    pub(crate) fn poller_fd(&self) -> Fd {
        self.poller_fd
    }

    pub(crate) fn watch(&mut self, fd: Fd, token: u64, interest: Interest) -> io::Result<()> {
        let file = self.descriptors.get(fd)?;
        if matches!(file, File::Stream(_)) && self.happens(self.faults.no_watch) {
            return Err(error(errno::NO_WATCH));
        }
        self.poller.add(fd, token, interest)
    }

    pub(crate) fn rewatch(&mut self, fd: Fd, token: u64, interest: Interest) -> io::Result<()> {
        self.descriptors.get(fd)?;
        self.poller.modify(fd, token, interest)
    }

    pub(crate) fn unwatch(&mut self, fd: Fd) -> io::Result<()> {
        self.descriptors.get(fd)?;
        if self.sabotage == Some(Sabotage::KeepWatch) {
            return Ok(());
        }
        self.poller.remove(fd)
    }

    /// Reports ready descriptors, in an order that begins at random. It doesn't wait: `wake_us` is when
    /// the worker's wait would end.
    pub(crate) fn wait(&mut self, events: &mut Events, timeout_ms: Option<u64>) {
        events.clear();
        // Each turn takes time.
        self.clock_us += 20;
        self.wake_us = timeout_ms.map(|ms| self.clock_us + ms * 1000);
        let watched = self.poller.watched();
        let first = self.random.below(watched.len().max(1));
        for fd in watched[first..].iter().chain(&watched[..first]) {
            let Ok(file) = self.descriptors.get(*fd) else {
                continue;
            };
            let ready = self.readiness(file);
            if events.len() < EVENTS_MAX && !self.happens(self.faults.late_event) {
                self.poller.report(*fd, ready, events);
            }
        }
        self.has_reported = !events.is_empty();
        self.waits += 1;
        self.reported += events.len() as u64;
    }

    fn readiness(&self, file: File) -> Readiness {
        let mut ready = match file {
            File::Stream(end) => self.streams.readiness(end),
            File::Listener(n) => Readiness {
                readable: !self.listeners[n].queue.is_empty(),
                ..Readiness::default()
            },
            File::Orders => Readiness {
                readable: !self.orders.is_empty(),
                ..Readiness::default()
            },
            File::Repair => Readiness {
                readable: self.repair.as_ref().is_some_and(Repair::is_readable),
                writable: self.repair.as_ref().is_some_and(Repair::is_writable),
                ..Readiness::default()
            },
            File::Poller => Readiness::default(),
        };
        if self.sabotage == Some(Sabotage::NeverWritable) {
            ready.writable = false;
        }
        ready
    }
}
