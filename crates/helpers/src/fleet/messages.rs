//! Messages between main and the ticket store's process.

use super::secret::Secret;
use dormouse_config::StoreAddress;
use dormouse_reactor::socket::MESSAGE_MAX;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use zeroize::{Zeroize as _, Zeroizing};

/// Settings of the ticket store.
pub struct StoreSettings {
    /// Its address.
    pub address: StoreAddress,
    /// The fleet's secret, which seals the keys.
    pub secret: Secret,
    /// PEM of the authorities for the store's certificate. `None`: the system's roots.
    pub ca: Option<String>,
    /// Time between rotations.
    pub rotation: Duration,
}

/// Arguments of the process. They hold nothing secret.
#[derive(Serialize, Deserialize)]
pub(super) struct StoreArguments {
    /// The process's end of the channel.
    pub(super) channel: i32,
    /// Memory file with the authorities for the store's certificate, which may be too long for a message.
    pub(super) ca: Option<i32>,
}

/// The first message through the channel, and the only one from main.
#[derive(Serialize, Deserialize)]
pub(super) struct FirstMessage {
    pub(super) address: StoreAddress,
    pub(super) secret: Vec<u8>,
    /// Time between rotations.
    pub(super) rotation: Duration,
    /// Main's keys, to be written to a store that has none.
    pub(super) keys: Vec<u8>,
}

/// The process's report after each poll of the store.
#[derive(Serialize, Deserialize)]
pub(super) struct StoreReport {
    pub(super) state: StoreState,
    /// New keys, if there are any.
    pub(super) keys: Option<Vec<u8>>,
}

impl Drop for FirstMessage {
    fn drop(&mut self) {
        self.secret.zeroize();
        self.keys.zeroize();
    }
}

impl Drop for StoreReport {
    fn drop(&mut self) {
        self.keys.zeroize();
    }
}

/// Serialises a message for the channel.
pub(super) fn message(content: &impl Serialize) -> Result<Zeroizing<Vec<u8>>, String> {
    // Allocate everything at once: a growing buffer leaves copies behind that are never wiped.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MESSAGE_MAX));
    serde_json::to_writer(&mut *bytes, content).map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// State of the store, as this machine sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum StoreState {
    /// The store holds the fleet's keys.
    Reachable = 1,
    /// The store does not answer, or not in time.
    Unreachable = 2,
    /// The store answers with an error (wrong password, out of memory, read-only), or another client interferes.
    Refuses = 3,
    /// The store holds a value that is not encrypted with our secret.
    Unreadable = 4,
}

impl StoreState {
    /// The word for this state in `status`.
    pub(crate) fn word(code: u64) -> &'static str {
        match code {
            1 => "reachable",
            2 => "unreachable",
            3 => "refuses",
            4 => "unreadable",
            _ => "none",
        }
    }
}
