//! Ticket keys shared by a fleet through Redis or Valkey.
//!
//! The store holds one value: the keys, sealed with the fleet's secret. A process of its own, which
//! has no privileges and nothing else to do, looks at it every few seconds. Whoever finds the keys
//! due makes the next ones and puts them there if the value is still the one it has seen (WATCH,
//! MULTI, EXEC); so one machine rotates for all, and any may. What a machine rotates to is *next*,
//! which all of them have had for a whole period.
//!
//! Handshakes know nothing of this: main is told of new keys when there are any, and goes on with
//! the ones it has when there are none. It reads nothing that the store has sent but keys which
//! were unsealed. Clocks may differ by minutes: a ticket from the near future is good, and *next* is
//! known to everybody long before it seals.
//!
//! ```text
//!   link     main's end: the process, its life, what it says
//!   member   the process: one machine of the fleet
//!   resp     its protocol: commands and bounded replies
//! ```

mod link;
mod member;
mod resp;
mod secret;

use dormouse_config::StoreAddress;
use dormouse_reactor::socket::MESSAGE_MAX;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

pub use link::Link;
pub use member::process_entry;
pub use secret::{Secret, read_private};

/// How to reach the store.
pub struct Settings {
    /// The store's address, user and password.
    pub address: StoreAddress,
    /// The secret that seals the keys in the store.
    pub secret: Secret,
    /// Who may vouch for it: PEM; `None`: whom the system trusts.
    pub ca: Option<String>,
}

/// What the process is told on its command line. There is nothing secret in it.
#[derive(Serialize, Deserialize)]
struct Started {
    /// Its end of the channel.
    channel: i32,
}

/// The first message of the channel, and the only one to the process.
#[derive(Serialize, Deserialize)]
struct Told {
    address: StoreAddress,
    secret: Vec<u8>,
    ca: Option<String>,
    /// What main has. A store without keys is given these.
    keys: Vec<u8>,
}

/// What the process says after each look at the store.
#[derive(Serialize, Deserialize)]
struct Report {
    state: StoreState,
    /// Keys, if there are others than before.
    keys: Option<Vec<u8>>,
}

impl Drop for Told {
    fn drop(&mut self) {
        self.secret.zeroize();
        self.keys.zeroize();
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.keys.zeroize();
    }
}

/// A message as it goes through the channel.
fn message(content: &impl Serialize) -> Result<Zeroizing<Vec<u8>>, String> {
    // Room for all of it at once: a buffer that grows leaves copies behind which nobody wipes.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MESSAGE_MAX));
    serde_json::to_writer(&mut *bytes, content).map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// How it stands with the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StoreState {
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
    /// The word for it in `status`.
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
