//! What main and the ticket store's process tell each other.

use super::secret::Secret;
use dormouse_config::StoreAddress;
use dormouse_reactor::socket::MESSAGE_MAX;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

/// How the store is reached.
pub struct StoreSettings {
    /// Its address.
    pub address: StoreAddress,
    /// The fleet's secret, which seals the keys.
    pub secret: Secret,
    /// Authorities that may vouch for it, PEM. `None`: those of the system.
    pub ca: Option<String>,
}

/// Command line of the process. There is nothing secret in it.
#[derive(Serialize, Deserialize)]
pub(super) struct StoreArguments {
    /// Its end of the channel.
    pub(super) channel: i32,
}

/// The first message through the channel, and the only one to the process.
#[derive(Serialize, Deserialize)]
pub(super) struct FirstMessage {
    pub(super) address: StoreAddress,
    pub(super) secret: Vec<u8>,
    pub(super) ca: Option<String>,
    /// Main's keys, for a store that has none.
    pub(super) keys: Vec<u8>,
}

/// The process's report after each look at the store.
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
    // Room for all of it at once: a buffer that grows leaves copies behind which nobody wipes.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MESSAGE_MAX));
    serde_json::to_writer(&mut *bytes, content).map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// The state of the store, as a machine of the fleet sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum StoreState {
    /// The keys are the fleet's.
    Reachable = 1,
    /// It does not answer, or not in time.
    Unreachable = 2,
    /// It answers with an error: a wrong password, no room, read-only.
    Refuses = 3,
    /// What it holds is not sealed with our secret.
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
