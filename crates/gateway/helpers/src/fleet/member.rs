//! One machine of the fleet: the process that talks to the ticket store.

use super::messages::{
    FirstMessage, SecretBytes, StoreArguments, StoreReport, StoreState, message,
};
use super::resp::{self, Store};
use crate::helper::{self, Privileges};
use crate::tls_file;
use crate::transport::Connector;
use dormouse_config::{Log, StoreAddress};
use dormouse_engine::TicketKeys;
use dormouse_handover::unix_time;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::sandbox::Role;
use dormouse_reactor::socket::{self, Attempt, MESSAGE_MAX, PlainMessage};
use dormouse_reactor::{Fd, OnExec};
use std::process::ExitCode;
use std::time::Duration;
use std::{fmt, io};
use zeroize::Zeroizing;

/// Name of the value that holds the keys.
const KEY: &str = "dormouse:ticket-keys";

/// Interval between two polls of the store.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Time for one poll, connecting included.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Number of times that one poll tries to write keys. Another machine is faster once; only a client that changes
/// the value all the time defeats more.
const ATTEMPTS: u32 = 3;

/// The store deletes keys that no machine has replaced for this number of rotations.
const ROTATIONS_KEPT: u64 = 4;

/// Entry point of the process; `args` is what follows the subcommand. `None`: main did not start it.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    helper::run("ticket-store", args, start_logs, |privileges, started| {
        Member::begin(privileges, started)?.run()
    })
}

/// Why a poll of the store failed.
enum StoreError {
    Wire(io::Error),
    Refused(String),
    Unreadable,
    /// Other clients change the value whenever new keys are written.
    Contested,
    /// A failure of our own engine.
    Engine(String),
}

impl StoreError {
    fn state(&self) -> StoreState {
        match self {
            StoreError::Wire(_) | StoreError::Engine(_) => StoreState::Unreachable,
            StoreError::Refused(_) | StoreError::Contested => StoreState::Refuses,
            StoreError::Unreadable => StoreState::Unreadable,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Wire(error) => write!(f, "unreachable: {error}"),
            StoreError::Refused(words) => write!(f, "refused: {words}"),
            StoreError::Engine(words) => f.write_str(words),
            StoreError::Contested => write!(
                f,
                "another client keeps changing {KEY}, so new keys cannot be written; only machines of the \
                                fleet should have access to it"
            ),
            StoreError::Unreadable => write!(
                f,
                "ticket_secret_file does not decrypt the store's keys: they belong to another fleet or \
                                are damaged; to delete damaged keys: redis-cli DEL {KEY}"
            ),
        }
    }
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        StoreError::Wire(error)
    }
}

impl From<resp::Failure> for StoreError {
    fn from(failure: resp::Failure) -> Self {
        match failure {
            resp::Failure::Wire(error) => StoreError::Wire(error),
            resp::Failure::Refused(words) => StoreError::Refused(words),
        }
    }
}

impl From<dormouse_engine::SettingsError> for StoreError {
    fn from(error: dormouse_engine::SettingsError) -> Self {
        StoreError::Engine(error.to_string())
    }
}

struct Member {
    address: StoreAddress,
    secret: Zeroizing<Vec<u8>>,
    connector: Connector,
    store: Option<Store>,
    /// Time between rotations. The machine that rotates sets the fleet's.
    rotation: Duration,
    keys: TicketKeys,
    /// Whether main has not received these keys yet.
    fresh: bool,
    state: Option<StoreState>,
    channel: Fd,
    poller: Poller,
}

impl Member {
    fn begin(privileges: &Privileges, started: &StoreArguments) -> io::Result<Member> {
        let channel = Fd(started.channel);
        let poller = Poller::create(OnExec::Close)?;
        poller.add(channel, 0, Interest::READ)?;
        let first = receive_first_message(channel, &poller)?;
        let connector = match started.tls {
            Some(file) => tls_file::connector(Fd(file))?,
            None => Connector::plain(),
        };
        let keys = TicketKeys::import(&first.keys.0).map_err(io::Error::other)?;
        privileges.confine(Role::Scout)?;
        Ok(Member {
            address: first.address,
            secret: first.secret.0,
            connector,
            store: None,
            rotation: first.rotation,
            keys,
            fresh: false,
            state: None,
            channel,
            poller,
        })
    }

    /// Polls the store until main closes the channel.
    fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1);
        loop {
            let outcome = self.poll_store();
            if outcome.is_err() {
                self.store = None;
            }
            self.report_outcome(&outcome)?;
            self.poller
                .wait(&mut events, Some(POLL_INTERVAL.as_millis() as u64))?;
            // Main sends nothing more on this channel, so an event means that main closed it.
            if events.iter().next().is_some() {
                return Ok(());
            }
        }
    }

    /// Polls the store once: adopts its keys, or writes keys if there are none or a rotation is due.
    fn poll_store(&mut self) -> Result<(), StoreError> {
        let mut store = match self.store.take() {
            Some(store) => store,
            None => {
                let StoreAddress { host, port, .. } = &self.address;
                let transport = self.connector.connect(host, *port, TIMEOUT)?;
                Store::open(transport, &self.address)?
            }
        };
        store.set_deadline(TIMEOUT);
        for _ in 0..ATTEMPTS {
            store.watch(KEY)?;
            let is_settled = match store.get(KEY)? {
                None => {
                    // A new fleet, or a store that lost its data: this machine's keys become the fleet's.
                    let mut keys = TicketKeys::import(&self.keys.export())?;
                    keys.rotate_if_due(unix_time())?;
                    self.put(keys, &mut store)?
                }
                Some(sealed) => self.adopt(&sealed, &mut store)?,
            };
            if is_settled {
                self.store = Some(store);
                return Ok(());
            }
        }
        Err(StoreError::Contested)
    }

    /// Adopts the store's keys. If a rotation is due, rotates and writes them. Returns `false` if the value has
    /// changed meanwhile: another machine may have been faster.
    fn adopt(&mut self, sealed: &[u8], store: &mut Store) -> Result<bool, StoreError> {
        let theirs = TicketKeys::unseal(sealed, &self.secret);
        let mut theirs = theirs.map_err(|_| StoreError::Unreadable)?;
        if !theirs.rotate_if_due(unix_time())? {
            store.unwatch()?;
            self.fresh |= *theirs.export() != *self.keys.export();
            self.keys = theirs;
            return Ok(true);
        }
        theirs.set_period(unix_time(), self.rotation);
        self.put(theirs, store)
    }

    /// Writes these keys and adopts them, unless the value has changed since it was read. If the store's answer is lost,
    /// the store may have the keys all the same; then the next poll finds them new.
    fn put(&mut self, keys: TicketKeys, store: &mut Store) -> Result<bool, StoreError> {
        let sealed = keys.seal(&self.secret)?;
        let period_s = u64::from(keys.period_s().unwrap_or(3600));
        let is_written = store.replace(KEY, &sealed, period_s * ROTATIONS_KEPT)?;
        if is_written {
            self.keys = keys;
            self.fresh = true;
        }
        Ok(is_written)
    }

    /// Reports every outcome to main, and logs changes of the state.
    fn report_outcome(&mut self, outcome: &Result<(), StoreError>) -> io::Result<()> {
        let state = match outcome {
            Ok(()) => StoreState::Reachable,
            Err(trouble) => trouble.state(),
        };
        let keys = self.fresh.then(|| SecretBytes(self.keys.export()));
        let report = message(&StoreReport { state, keys }).map_err(io::Error::other)?;
        match socket::send_message(self.channel, &report, &[]) {
            Ok(Attempt::Done(())) => self.fresh = false,
            // The keys go with the next report.
            Ok(Attempt::WouldBlock) => {}
            // Main is gone; the poller notices at once.
            Err(_) => return Ok(()),
        }
        if self.state.replace(state) == Some(state) {
            return Ok(());
        }
        let store = &self.address;
        match outcome {
            Ok(()) => tracing::info!(%store, "ticket store reachable; sharing ticket keys"),
            Err(error) => {
                tracing::warn!(%store, %error, "ticket store failed; keeping current ticket keys")
            }
        }
        Ok(())
    }
}

fn receive_first_message(channel: Fd, poller: &Poller) -> io::Result<FirstMessage> {
    let mut room = Zeroizing::new(vec![0; MESSAGE_MAX]);
    let mut events = Events::with_capacity(1);
    loop {
        match socket::receive_plain_message(channel, &mut room)? {
            Attempt::Done(PlainMessage::Whole { len, .. }) => {
                let bytes = room.get(..len).unwrap_or_default();
                return serde_json::from_slice(bytes).map_err(io::Error::other);
            }
            Attempt::Done(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Attempt::WouldBlock => drop(poller.wait(&mut events, None)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_engine::UnixTime;
    use std::io::{BufRead, BufReader, Write as _};
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    const SECRET: &[u8] = &[7; 32];

    /// A store in which another client always replaces the value first: it returns these values in turn, and the
    /// last one again and again.
    fn contested_store(values: Vec<Vec<u8>>) -> SocketAddr {
        store_with(values, b"*-1\r\n")
    }

    /// A store that returns these values, if there are any, and gives this answer to an attempt to replace them.
    fn store_with(values: Vec<Vec<u8>>, replaced: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a client");
            let mut answers = stream.try_clone().expect("a second handle");
            let mut commands = BufReader::new(stream);
            let mut asked = 0;
            while let Some(command) = read_command(&mut commands) {
                let answer = match command.as_str() {
                    "GET" if values.is_empty() => b"$-1\r\n".to_vec(),
                    "GET" => {
                        let value = &values[asked.min(values.len() - 1)];
                        asked += 1;
                        let head = format!("${}\r\n", value.len());
                        [head.as_bytes(), value, b"\r\n"].concat()
                    }
                    "SET" => b"+QUEUED\r\n".to_vec(),
                    "EXEC" => replaced.to_vec(),
                    _ => b"+OK\r\n".to_vec(),
                };
                if answers.write_all(&answer).is_err() {
                    return;
                }
            }
        });
        address
    }

    /// Reads a command; returns its first word.
    fn read_command(from: &mut impl BufRead) -> Option<String> {
        let number = |from: &mut dyn BufRead| {
            let mut line = String::new();
            from.read_line(&mut line).ok()?;
            line.trim_end().get(1..)?.parse::<usize>().ok()
        };
        let mut words = Vec::new();
        for _ in 0..number(from)? {
            let mut word = vec![0; number(from)? + 2];
            from.read_exact(&mut word).ok()?;
            words.push(word);
        }
        let word = words.first()?.strip_suffix(b"\r\n")?;
        String::from_utf8(word.to_vec()).ok()
    }

    fn member(store: SocketAddr, keys: TicketKeys) -> Member {
        let address = StoreAddress {
            host: store.ip().to_string(),
            port: store.port(),
            tls: false,
            database: 0,
            user: None,
            password: None,
        };
        Member {
            address,
            secret: Zeroizing::new(SECRET.to_vec()),
            connector: Connector::plain(),
            store: None,
            rotation: Duration::from_secs(60),
            keys,
            fresh: false,
            state: None,
            channel: Fd::NONE,
            poller: Poller::create(OnExec::Close).expect("epoll"),
        }
    }

    /// Keys that were generated this long ago, with a period of a minute.
    fn keys_of(age: Duration) -> TicketKeys {
        let then = UnixTime::since_unix_epoch(Duration::from_secs(unix_time().as_secs()) - age);
        TicketKeys::generate(then, 60).expect("random bytes")
    }

    #[test]
    fn a_client_that_interferes_is_reported() {
        let due = keys_of(Duration::from_secs(90));
        let store = contested_store(vec![due.seal(SECRET).expect("sealed")]);
        let own = keys_of(Duration::ZERO);
        let before = own.export();
        let mut member = member(store, own);
        let error = member.poll_store().expect_err("no keys can be written");
        assert_eq!(error.state(), StoreState::Refuses);
        let words = error.to_string();
        assert!(words.contains("another client keeps changing"), "{words}");
        assert_eq!(*member.keys.export(), *before, "its own keys remain");
        assert!(!member.fresh);
    }

    /// Else the fleet would keep the period of its first machine for ever.
    #[test]
    fn the_machine_that_rotates_sets_the_period() {
        let due = keys_of(Duration::from_secs(90));
        let values = vec![due.seal(SECRET).expect("sealed")];
        let store = store_with(values, b"*1\r\n+OK\r\n");
        let mut member = member(store, keys_of(Duration::ZERO));
        member.rotation = Duration::from_secs(120);
        assert!(member.poll_store().is_ok());
        assert_eq!(member.keys.period_s(), Some(120));
    }

    /// The store may have executed the command, so the next poll must find its keys new.
    #[test]
    fn keys_whose_writing_was_not_confirmed_are_not_adopted() {
        let due = keys_of(Duration::from_secs(90));
        let value = due.seal(SECRET).expect("sealed");
        let before = due.export();
        let mut member = member(store_with(vec![value], b"-ERR lost\r\n"), due);
        assert!(member.poll_store().is_err());
        assert_eq!(*member.keys.export(), *before);
        assert!(!member.fresh);
    }

    /// The same for a store that has lost its data.
    #[test]
    fn keys_that_an_empty_store_does_not_confirm_are_not_adopted() {
        let due = keys_of(Duration::from_secs(90));
        let before = due.export();
        let mut member = member(store_with(Vec::new(), b"-ERR lost\r\n"), due);
        assert!(member.poll_store().is_err());
        assert_eq!(*member.keys.export(), *before);
        assert!(!member.fresh);
    }

    #[test]
    fn a_faster_machine_is_no_error() {
        let [due, rotated] = [90, 0].map(|age| keys_of(Duration::from_secs(age)));
        let values = [&due, &rotated].map(|keys| keys.seal(SECRET).expect("sealed"));
        let mut member = member(contested_store(values.to_vec()), keys_of(Duration::ZERO));
        assert!(member.poll_store().is_ok());
        assert_eq!(*member.keys.export(), *rotated.export());
        assert!(member.fresh, "main receives them");
    }
}
