//! Main: the process with the stable pid, the only one with privileges.
//!
//! It reads configuration, certificates and keys, opens the listeners, makes the shared memory and
//! starts one keeper per worker. Then it waits: for signals, for processes that end, for somebody
//! who asks for the status. It holds no connection and reads nothing from the network.
//!
//! ```text
//!   start      what is made before anything serves      keys       ticket keys and their rotation
//!   listeners  the sockets that all workers poll        signals    what signals mean
//!   pairs      keepers and workers, their ends          error      why it could not begin
//! ```

mod error;
mod keys;
mod listeners;
mod pairs;
mod signals;
mod start;

pub use error::ServeError;

use crate::config::Loaded;
use crate::counters::Count;
use crate::material;
use crate::status::StatusSocket;
use crate::ticket_keys::{self, Keyring};
use dormouse_reactor::poller::{Events, Poller};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::signal::Signals;
use dormouse_reactor::{descriptors, process};
use error::system;
use pairs::Pair;

const TOKEN_SIGNALS: u64 = 1;
const TOKEN_STATUS: u64 = 2;
const TOKEN_TICKET_KEYS: u64 = 3;
/// And those after it, one for each worker.
const TOKEN_ORDERS: u64 = 1000;

/// Serves until told to stop.
pub fn serve(loaded: &Loaded) -> Result<(), ServeError> {
    process::set_subreaper().map_err(system("become the reaper of orphaned workers"))?;
    process::forbid_core_dumps().map_err(system("forbid core dumps"))?;
    // The plan counts on it; workers inherit it.
    descriptors::raise_limit().map_err(system("raise the limit on descriptors"))?;
    let certificates = material::load(&loaded.config).map_err(ServeError::Certificates)?;
    Supervisor::start(loaded, &certificates)?.run()
}

struct Supervisor {
    pairs: Vec<Pair>,
    counters: Shared,
    poller: Poller,
    signals: Signals,
    status: Option<StatusSocket>,
    ticket_keys: Keyring,
    stopping: bool,
    announced: bool,
}

impl Supervisor {
    fn run(mut self) -> Result<(), ServeError> {
        let mut events = Events::with_capacity(64);
        loop {
            let timeout_ms = self.until_rotation_ms();
            self.poller
                .wait(&mut events, timeout_ms)
                .map_err(system("wait for events"))?;
            self.rotate_ticket_keys();
            for event in events.iter() {
                match event.token() {
                    TOKEN_SIGNALS => self.on_signals()?,
                    TOKEN_STATUS => self.on_status(),
                    // The store has news: taken above, before the next wait at the latest.
                    TOKEN_TICKET_KEYS => self.rotate_ticket_keys(),
                    token => self.on_worker(token.saturating_sub(TOKEN_ORDERS) as usize),
                }
            }
            if self.pairs.iter().all(|pair| pair.keeper.is_none()) {
                return if self.stopping {
                    Ok(())
                } else {
                    Err(ServeError::Workers("all workers are gone".to_owned()))
                };
            }
        }
    }

    fn on_status(&mut self) {
        let Some(status) = &self.status else { return };
        let counts = Count::ALL
            .iter()
            .map(|&count| (count.name(), self.counters.sum(count as usize)));
        status.answer(
            self.pairs.iter().map(|pair| pair.keeper.map(|pid| pid.0)),
            counts,
            ticket_keys::status(&self.counters, keys::unix_time().as_secs()),
        );
    }
}
