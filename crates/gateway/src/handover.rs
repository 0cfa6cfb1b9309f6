//! What main hands to a worker: one memory file, read again by every worker after a crash.
//!
//! It holds the configuration, certificates and keys as they were read by main (which alone may
//! read them), and the numbers of the descriptors that the worker inherits. It is data, not
//! objects: a new binary can read what an old one wrote.

use crate::config::Config;
use crate::share::Share;
use dormouse_engine::{Identity, IdentityError};
use dormouse_reactor::Fd;
use dormouse_reactor::memory::{Mapping, PAGE};
use serde::{Deserialize, Serialize};
use std::io;
use zeroize::{Zeroize as _, Zeroizing};

/// Pages of the memory file; those that are not written take no memory.
const PAGES: usize = 4096;

/// Everything a worker is told before it starts.
#[derive(Serialize, Deserialize)]
pub(crate) struct Handover {
    /// Which of the workers this is, from 0.
    pub(crate) worker: u32,
    pub(crate) config: Config,
    pub(crate) share: Share,
    /// Numbers of the routes, then of the originations: what slots call them by.
    pub(crate) numbers: Vec<u16>,
    /// Certificates by route, in the order of `config.routes`.
    pub(crate) certificates: Vec<Vec<Pem>>,
    /// The same for originations: trust and own certificate.
    pub(crate) origins: Vec<OriginPem>,
    /// Ticket keys as they are exported; the same in all workers.
    pub(crate) ticket_keys: Vec<u8>,
    pub(crate) descriptors: Descriptors,
}

/// A chain and its key as PEM.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Pem {
    /// Where the chain was read, for messages.
    pub(crate) name: String,
    /// Where the key was read.
    pub(crate) key_name: String,
    pub(crate) chain: String,
    pub(crate) key: String,
}

/// Whom an origination trusts, and what it shows.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct OriginPem {
    /// Authorities; `None`: any certificate is taken.
    pub(crate) roots: Option<String>,
    pub(crate) identity: Option<Pem>,
}

/// Numbers of inherited descriptors.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Descriptors {
    /// Listening sockets, each with the number of its route.
    pub(crate) listeners: Vec<(i32, u16)>,
    pub(crate) slots: i32,
    pub(crate) pending: i32,
    pub(crate) counters: i32,
    /// Sessions of originations, if there are any.
    pub(crate) sessions: Option<i32>,
    /// The worker's end of its channel to main.
    pub(crate) orders: i32,
}

impl Descriptors {
    /// All of them.
    pub(crate) fn all(&self) -> Vec<Fd> {
        let mut all: Vec<Fd> = self.listeners.iter().map(|&(fd, _)| Fd(fd)).collect();
        all.extend(self.sessions.map(Fd));
        all.extend([self.slots, self.pending, self.counters, self.orders].map(Fd));
        all
    }
}

impl Handover {
    /// Writes it into a memory file which the worker's keeper inherits. Returns the descriptor.
    pub(crate) fn write(&self) -> io::Result<Fd> {
        let text = Zeroizing::new(serde_json::to_vec(self)?);
        let mut file = Mapping::create("dormouse-handover", PAGES * PAGE)?;
        let bytes = file.bytes_mut();
        let Some(room) = bytes.get_mut(8..8 + text.len()) else {
            return Err(io::Error::other(
                "configuration and certificates are larger than 16 MiB",
            ));
        };
        room.copy_from_slice(&text);
        bytes[..8].copy_from_slice(&(text.len() as u64).to_le_bytes());
        Ok(file.fd())
    }

    /// Reads it.
    pub(crate) fn read(fd: Fd) -> io::Result<Handover> {
        let file = Mapping::adopt(fd, PAGES * PAGE).map_err(io::Error::other)?;
        let (len, text) = file.bytes().split_at(8);
        let len = u64::from_le_bytes(len.try_into().unwrap_or_default()) as usize;
        let text = text
            .get(..len)
            .ok_or_else(|| io::Error::other("the handover is cut short"))?;
        Ok(serde_json::from_slice(text)?)
    }
}

impl Pem {
    /// The identity that it holds.
    pub(crate) fn identity(&self) -> Result<Identity, IdentityError> {
        Identity::from_pem(
            self.chain.as_bytes(),
            self.key.as_bytes(),
            &self.name,
            &self.key_name,
        )
    }
}

impl Drop for Pem {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        self.ticket_keys.zeroize();
    }
}
