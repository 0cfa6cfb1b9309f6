//! The descriptor table that a worker shares with its keeper; it outlives the worker.

use super::errno::{self, error};
use super::stream::EndId;
use dormouse_reactor::Fd;
use std::collections::BTreeMap;
use std::io;

/// First simulated descriptor, above all real descriptors of this process.
const FIRST: i32 = 100_000;

/// The file that a descriptor refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum File {
    Stream(EndId),
    Listener(usize),
    /// The channel to main.
    Orders,
    /// The channel to tcp-repair.
    Repair,
    Poller,
}

/// All open descriptors.
#[derive(Debug)]
pub(crate) struct Descriptors {
    open: BTreeMap<i32, File>,
    /// Limit of open descriptors.
    pub(crate) max: u64,
}

impl Descriptors {
    pub(crate) fn new() -> Descriptors {
        Descriptors {
            open: BTreeMap::new(),
            max: u64::MAX,
        }
    }

    /// Opens the lowest free number, as the kernel does.
    pub(crate) fn open(&mut self, file: File) -> io::Result<Fd> {
        if self.open.len() as u64 >= self.max {
            return Err(error(errno::TOO_MANY_FILES));
        }
        let taken = self.open.keys().zip(FIRST..);
        let gap = taken.filter(|&(&number, expected)| number != expected);
        let mut gap = gap.map(|(_, expected)| expected);
        let number = gap.next().unwrap_or(FIRST + self.open.len() as i32);
        self.open.insert(number, file);
        Ok(Fd(number))
    }

    pub(crate) fn get(&self, fd: Fd) -> io::Result<File> {
        let found = self.open.get(&fd.0).copied();
        found.ok_or_else(|| error(errno::BAD_DESCRIPTOR))
    }

    pub(crate) fn close(&mut self, fd: Fd) -> Option<File> {
        self.open.remove(&fd.0)
    }

    /// All open descriptors with their files.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Fd, File)> + '_ {
        self.open.iter().map(|(&number, &file)| (Fd(number), file))
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }
}
