//! Ticket keys shared by a fleet through Redis or Valkey.
//!
//! The store holds one value: the keys, sealed with the fleet's secret. A thread looks at it every
//! few seconds. Whoever finds the keys due makes the next ones and puts them there if the value is
//! still the one it has seen (WATCH, MULTI, EXEC); so one machine rotates for all, and any may.
//! What a machine rotates to is *next*, which all of them have had for a whole period.
//!
//! Handshakes know nothing of this: main gets new keys when there are any, and goes on with the
//! ones it has when there are none. Clocks may differ by minutes: a ticket from the near future is
//! good, and *next* is known to everybody long before it seals.
//!
//! ```text
//!   wire   a connection to the store, plain or TLS, with a deadline
//!   resp   its protocol: commands and bounded replies
//! ```

mod resp;
mod wire;

use crate::config::StoreAddress;
use crate::counters::Common;
use crate::ticket_keys::Secret;
use dormouse_engine::{TicketKeys, UnixTime};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::socket;
use dormouse_reactor::{Fd, OnExec};
use resp::Store;
use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime};

/// Where the keys lie.
const KEY: &str = "dormouse:ticket-keys";

/// How often the store is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// How long one look may take, connecting included.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long the start waits for the fleet's keys; later they come whenever they come.
const START_PATIENCE: Duration = Duration::from_secs(3);

/// Keys which nobody has looked after for so many rotations are gone from the store.
const ROTATIONS_KEPT: u64 = 4;

/// How to reach the store.
pub(crate) struct Settings {
    pub(crate) address: StoreAddress,
    pub(crate) secret: Secret,
    /// Who may vouch for it: PEM; `None`: whom the system trusts.
    pub(crate) ca: Option<Vec<u8>>,
}

/// Main's end of the thread that talks to the store.
pub(crate) struct Link {
    news: Receiver<TicketKeys>,
    bell: Fd,
}

impl Link {
    /// Starts the thread. It offers `fresh` to a store that has none, as soon as it can.
    pub(crate) fn start(
        settings: Settings,
        fresh: TicketKeys,
        shared: Shared,
    ) -> Result<Link, String> {
        let in_words = |e: io::Error| e.to_string();
        let connector = wire::Connector::new(&settings.address, settings.ca.as_deref())?;
        let (ours, theirs) = socket::pair(OnExec::Close).map_err(in_words)?;
        let (sender, news) = channel();
        let mut member = Member {
            address: settings.address,
            secret: settings.secret,
            connector,
            store: None,
            keys: fresh,
            told: false,
            state: None,
            news: sender,
            bell: theirs,
            shared,
        };
        thread::Builder::new()
            .name("ticket-store".to_owned())
            .spawn(move || member.run())
            .map_err(in_words)?;
        Ok(Link { news, bell: ours })
    }

    /// The fleet's keys, if the store has them now. If it is unreachable, or slow, that is said by
    /// the thread, and nobody waits any longer.
    pub(crate) fn first(&self) -> Option<TicketKeys> {
        self.news.recv_timeout(START_PATIENCE).ok()
    }

    /// Becomes readable when there is news.
    pub(crate) fn bell(&self) -> Fd {
        self.bell
    }

    /// The latest keys, if there are newer ones than before.
    pub(crate) fn news(&self) -> Option<TicketKeys> {
        let mut rings = [0; 64];
        while let Ok(socket::Attempt::Done(1..)) = socket::recv(self.bell, &mut rings) {}
        self.news.try_iter().last()
    }
}

/// How it stands with the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

/// Why a look at the store came to nothing.
enum Trouble {
    Wire(io::Error),
    Refused(String),
    Unreadable,
    /// A fault of our own.
    Engine(String),
}

impl Trouble {
    fn state(&self) -> StoreState {
        match self {
            Trouble::Wire(_) | Trouble::Engine(_) => StoreState::Unreachable,
            Trouble::Refused(_) => StoreState::Refuses,
            Trouble::Unreadable => StoreState::Unreadable,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Wire(error) => write!(f, "can't be reached: {error}"),
            Trouble::Refused(words) => write!(f, "refuses: {words}"),
            Trouble::Engine(words) => f.write_str(words),
            Trouble::Unreadable => write!(
                f,
                "holds keys which ticket_secret_file does not open: another fleet's, or damaged; \
                 if they are damaged: redis-cli DEL {KEY}"
            ),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Wire(error)
    }
}

impl From<resp::Failure> for Trouble {
    fn from(failure: resp::Failure) -> Self {
        match failure {
            resp::Failure::Wire(error) => Trouble::Wire(error),
            resp::Failure::Refused(words) => Trouble::Refused(words),
        }
    }
}

impl From<dormouse_engine::SettingsError> for Trouble {
    fn from(error: dormouse_engine::SettingsError) -> Self {
        Trouble::Engine(error.to_string())
    }
}

/// One machine of the fleet: the thread's own.
struct Member {
    address: StoreAddress,
    secret: Secret,
    connector: wire::Connector,
    store: Option<Store>,
    keys: TicketKeys,
    /// Main has been told of keys at least once.
    told: bool,
    state: Option<StoreState>,
    news: Sender<TicketKeys>,
    bell: Fd,
    shared: Shared,
}

impl Member {
    fn run(&mut self) {
        loop {
            let outcome = self.look();
            self.note(&outcome);
            if outcome.is_err() {
                self.store = None;
            }
            thread::sleep(LOOK);
        }
    }

    /// Looks at the store once: adopts what is there, or puts there what is due.
    fn look(&mut self) -> Result<(), Trouble> {
        let mut store = match self.store.take() {
            Some(store) => store,
            None => Store::open(
                self.connector.connect(&self.address, PATIENCE)?,
                &self.address,
            )?,
        };
        store.set_deadline(PATIENCE);
        store.watch(KEY)?;
        match store.get(KEY)? {
            None => {
                // A new fleet, or a store that lost everything: what we have goes on.
                self.keys.rotate_if_due(now())?;
                if self.put(&mut store)? {
                    self.tell()?;
                }
            }
            Some(sealed) => {
                let secret = self.secret.bytes();
                let mut theirs =
                    TicketKeys::unseal(&sealed, secret).map_err(|_| Trouble::Unreadable)?;
                let due = theirs.rotate_if_due(now())?;
                let new = due || *theirs.export() != *self.keys.export();
                if due {
                    let before = std::mem::replace(&mut self.keys, theirs);
                    if !self.put(&mut store)? {
                        // Another machine was faster: its keys come with the next look.
                        self.keys = before;
                        self.store = Some(store);
                        return Ok(());
                    }
                } else {
                    store.unwatch()?;
                    self.keys = theirs;
                }
                if new || !self.told {
                    self.tell()?;
                }
            }
        }
        self.store = Some(store);
        Ok(())
    }

    /// Puts our keys there, if the value is still the one that was looked at.
    fn put(&mut self, store: &mut Store) -> Result<bool, Trouble> {
        let sealed = self.keys.seal(self.secret.bytes())?;
        let period_s = u64::from(self.keys.period_s().unwrap_or(3600));
        Ok(store.replace(KEY, &sealed, period_s * ROTATIONS_KEPT)?)
    }

    fn tell(&mut self) -> Result<(), Trouble> {
        let copy = TicketKeys::import(&self.keys.export())?;
        if self.news.send(copy).is_ok() {
            self.told = true;
            // If it is full it rings already.
            let _ = socket::send(self.bell, &[1]);
        }
        Ok(())
    }

    /// To the log when it changes, to the counters always.
    fn note(&mut self, outcome: &Result<(), Trouble>) {
        let state = match outcome {
            Ok(()) => StoreState::Reachable,
            Err(trouble) => trouble.state(),
        };
        Common::StoreState.set(&self.shared, state as u64);
        match outcome {
            Ok(()) => Common::StoreSeen.set(&self.shared, now().as_secs()),
            Err(_) => Common::StoreFailures.add(&self.shared, 1),
        }
        if self.state.replace(state) == Some(state) {
            return;
        }
        let store = &self.address;
        match outcome {
            Ok(()) => tracing::info!(%store, "ticket keys are shared through the store"),
            Err(trouble) => tracing::warn!(%store,
                "the store of the ticket keys {trouble}; handshakes go on with the keys there are"),
        }
    }
}

fn now() -> UnixTime {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    UnixTime::since_unix_epoch(since)
}
