//! Everything that serves: the current edition, and what workers need to follow it.

use crate::contexts;
use crate::edition::{Edition, addresses};
use crate::listening::{self, Listening};
use crate::material::Material;
use crate::pairs::Pairs;
use crate::reload::FixedAtStart;
use crate::reported::Reported;
use crate::session_files::SessionFile;
use crate::shared_memory::SharedMemory;
use crate::ticket_keys::Keyring;
use crate::tokens;
use dormouse_config::{Config, Plan};
use dormouse_handover::child::Bounds;
use dormouse_handover::orders::Order;
use dormouse_handover::share::Share;
use dormouse_handover::unix_time;
use dormouse_handover::{Descriptors, Handover};
use dormouse_reactor::Fd;
use dormouse_reactor::poller::{Interest, Poller};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;

/// The running configuration, and what serves it.
pub(crate) struct Serving {
    pub(crate) edition: Edition,
    /// What control is told of the edition, once it was built.
    pub(crate) reported: OnceCell<Reported>,
    /// Slots of all workers; fixed at the start.
    pub(crate) connections_max: u64,
    /// User and group of keepers and workers. `None`: those of main.
    pub(crate) user: Option<(u32, u32)>,
    pub(crate) memory: SharedMemory,
    pub(crate) ticket_keys: Keyring,
    pub(crate) listening: Listening,
    pub(crate) pairs: Pairs,
}

impl Serving {
    /// Starts all keepers, which start their workers.
    pub(crate) fn start_pairs(&mut self, poller: &Poller) -> io::Result<()> {
        // Workers only look places up.
        for upstream in self.edition.upstreams() {
            for address in addresses(&upstream.backend) {
                self.memory.backends.place(&address);
            }
        }
        for worker in 0..self.edition.plan.workers {
            let handover = self.handover(worker);
            self.pairs.start(handover, poller)?;
        }
        Ok(())
    }

    /// The handover of a worker, for its start and for each edition.
    pub(crate) fn handover(&self, worker: u32) -> Handover {
        let Edition {
            number,
            config,
            plan,
            material,
            ..
        } = &self.edition;
        let mut share = match self.pairs.share(worker) {
            Some(share) => share.renewed(worker, plan),
            None => Share::of(worker, plan),
        };
        share.timeouts_since_ms = self.edition.timeouts_since_ms;
        let mut descriptors = Descriptors {
            slots: -1,
            pending: -1,
            orders: -1,
            notes: -1,
            log_entries: (-1, 0),
            log_lines: -1,
            ..Descriptors::default()
        };
        self.listening.describe(&mut descriptors);
        self.memory.describe(&mut descriptors);
        Handover {
            worker,
            edition: *number,
            config: config.clone(),
            user: self.user,
            share,
            numbers: self.listening.numbers().list(),
            certificates: material.certificates.clone(),
            clients: material.client_trust.clone(),
            origins: material.origins.clone(),
            backend_tls: material.backend_tls.clone(),
            ticket_keys: self.ticket_keys.keys().export().to_vec(),
            descriptors,
        }
    }

    /// What control is told of the edition.
    pub(crate) fn reported(&self) -> &Reported {
        let (edition, table) = (&self.edition, &self.memory.backends);
        self.reported
            .get_or_init(|| Reported::of(edition, &self.listening, table))
    }

    /// The descriptors that the next binary in this process needs.
    pub(crate) fn fds(&self) -> Vec<Fd> {
        [
            self.memory.fds(),
            self.listening.fds(),
            self.listening.redirects(),
            self.listening.spare(),
            self.pairs.fds(),
        ]
        .concat()
    }

    // ---- editions ----

    /// The properties that a reload cannot change.
    pub(crate) fn fixed(&self) -> FixedAtStart {
        FixedAtStart {
            connections_max: self.connections_max,
            has_sessions: self.memory.sessions.is_some(),
            is_nobody: self.user.is_some() && self.edition.config.process.user.is_none(),
        }
    }

    /// Switches to a reloaded configuration. On an error nothing has changed.
    pub(crate) fn apply_reload(
        &mut self,
        config: Config,
        plan: Plan,
        material: Material,
        is_draining: bool,
    ) -> Result<(), String> {
        let files = self.prepare_origins(&config, &material)?;
        let keys = self.ticket_keys.read_again();
        let keys = keys.map_err(|mistakes| in_words(&mistakes))?;
        let listening = self.prepare(&config, &material)?;
        self.follow_session_files(files);
        let counters = &self.memory.counters;
        self.ticket_keys
            .follow(&config, keys, unix_time(), counters);
        self.switch_to(config, plan, material, listening, is_draining);
        Ok(())
    }

    /// As [`Serving::apply_reload`], with the same files of sessions and ticket keys.
    pub(crate) fn apply(
        &mut self,
        config: Config,
        material: Material,
        is_draining: bool,
    ) -> Result<(), String> {
        let listening = self.prepare(&config, &material)?;
        let plan = self.edition.plan.clone();
        self.switch_to(config, plan, material, listening, is_draining);
        Ok(())
    }

    /// Builds the contexts of originations once to find errors, and prepares the files of their sessions.
    fn prepare_origins(
        &self,
        config: &Config,
        material: &Material,
    ) -> Result<Option<Vec<SessionFile>>, String> {
        contexts::of_origins(config, material)?;
        let sessions = self.memory.sessions.as_ref();
        let files = sessions.map(|sessions| sessions.prepare(config, &material.origins));
        files.transpose().map_err(|mistakes| in_words(&mistakes))
    }

    fn follow_session_files(&mut self, files: Option<Vec<SessionFile>>) {
        if let (Some(sessions), Some(files)) = (&mut self.memory.sessions, files) {
            sessions.follow(files);
        }
    }

    /// Builds all contexts once to find errors, and opens new listeners.
    fn prepare(&self, config: &Config, material: &Material) -> Result<Listening, String> {
        let (keys, backends) = (self.ticket_keys.keys(), &self.memory.backends);
        let routes = contexts::of_routes(config, material, keys, backends)?;
        contexts::of_backends(config, material, routes)?;
        let listening = self.listening.prepare(config);
        listening.map_err(|error| error.to_string())
    }

    fn switch_to(
        &mut self,
        config: Config,
        plan: Plan,
        material: Material,
        listening: Listening,
        is_draining: bool,
    ) {
        let has_other_backlog = config.sockets.backlog != self.edition.config.sockets.backlog;
        let backlog = has_other_backlog.then(|| listening::backlog(&config));
        self.listening.replace_by(listening, is_draining, backlog);
        self.edition = self.edition.followed_by(config, plan, material);
        self.reported.take();
        for worker in 0..self.pairs.len() {
            self.give_edition(worker);
        }
    }

    /// As [`Serving::apply`], with the same configuration and other certificates.
    pub(crate) fn apply_material(
        &mut self,
        material: Material,
        is_draining: bool,
    ) -> Result<(), String> {
        let config = self.edition.config.clone();
        // A session's place depends on our certificate.
        let files = match material.origins == self.edition.material.origins {
            true => None,
            false => self.prepare_origins(&config, &material)?,
        };
        self.apply(config, material, is_draining)?;
        self.follow_session_files(files);
        Ok(())
    }

    /// Sends the current edition to a worker. A worker that does not receive it now gets it again when it
    /// becomes ready, or has answered earlier editions.
    pub(crate) fn give_edition(&mut self, worker: usize) {
        let wanted = Bounds::of(&self.edition.config);
        if self.pairs.holds_back(worker, wanted) {
            return;
        }
        let handover = self.handover(worker as u32);
        let given = self
            .pairs
            .give_edition(worker, handover, &self.listening.fds());
        if let Err(error) = given {
            tracing::error!(%error, worker, "configuration could not be sent to a worker");
            self.pairs.keep(worker);
        }
    }

    // ---- workers ----

    /// Sends a worker that has become ready what its handover lacks, because its keeper may have kept the
    /// handover since the start.
    pub(crate) fn bring_up_to_date(&mut self, worker: usize) {
        self.pairs.order(worker, &self.ticket_keys_order());
        self.give_addresses(worker);
        if !self.pairs.has_edition(worker, self.edition.number) {
            self.give_edition(worker);
        }
    }

    fn give_addresses(&self, worker: usize) {
        let mut given = BTreeSet::new();
        for upstream in self.edition.upstreams() {
            let Some(name) = upstream.backend.name() else {
                continue;
            };
            if given.insert(name) {
                let addresses = upstream.backend.addresses().collect();
                self.pairs.order(worker, &addresses_order(name, addresses));
            }
        }
    }

    /// Replaces the addresses of a name. Returns `false` if they are unchanged.
    pub(crate) fn set_addresses(&mut self, name: &str, found: &[SocketAddr]) -> bool {
        if !self.edition.set_addresses(name, found) {
            return false;
        }
        self.reported.take();
        let shown: Vec<String> = found.iter().map(SocketAddr::to_string).collect();
        tracing::info!(
            name,
            addresses = shown.join(", "),
            "backend addresses changed"
        );
        for address in &shown {
            self.memory.backends.place(address);
        }
        self.pairs.order_all(&addresses_order(name, found.to_vec()));
        true
    }

    /// Rotates ticket keys if a rotation is due, and polls the ticket store's process.
    pub(crate) fn rotate_ticket_keys(&mut self, poller: &Poller) {
        let (config, counters) = (&self.edition.config, &self.memory.counters);
        if self.ticket_keys.update(config, unix_time(), counters) {
            self.pairs.order_all(&self.ticket_keys_order());
        }
        if let Err(error) = self.wait_for_ticket_keys(poller) {
            tracing::error!(%error, "ticket store process could not be polled");
        }
    }

    /// Rotates ticket keys now.
    pub(crate) fn rotate_ticket_keys_now(&mut self) -> Result<(), String> {
        let counters = &self.memory.counters;
        self.ticket_keys.rotate_now(unix_time(), counters)?;
        self.pairs.order_all(&self.ticket_keys_order());
        Ok(())
    }

    /// Starts to poll the ticket store's process, if there is a new one.
    pub(crate) fn wait_for_ticket_keys(&mut self, poller: &Poller) -> io::Result<()> {
        match self.ticket_keys.new_channel() {
            Some(channel) => poller.add(channel, tokens::TICKET_KEYS, Interest::READ),
            None => Ok(()),
        }
    }

    fn ticket_keys_order(&self) -> Order {
        Order::TicketKeys(self.ticket_keys.keys().export())
    }
}

fn addresses_order(name: &str, addresses: Vec<SocketAddr>) -> Order {
    Order::Addresses {
        name: name.to_owned(),
        addresses,
    }
}

/// Mistakes in the format of `dormouse check`.
fn in_words(mistakes: &[String]) -> String {
    let lines: Vec<String> = mistakes.iter().map(|m| format!("error: {m}")).collect();
    lines.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::Drain;
    use crate::load::{self, Ready};
    use crate::occasion::Occasion;
    use crate::resume;
    use crate::source::Source;
    use dormouse_config::Section;
    use dormouse_engine::UnixTime;
    use dormouse_handover::control::DrainOrder;
    use dormouse_handover::orders::{self, WorkerReport};
    use dormouse_reactor::sandbox::UnixSockets;
    use dormouse_reactor::{OnExec, socket};
    use dormouse_tables::counters::Common;
    use std::fs::{self, Permissions};
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    /// A configuration with a free port.
    fn ready(folder: &Path, options: &str) -> Ready {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let listen = free.expect("a free port");
        let file = folder.join("dormouse.toml");
        let text =
            format!("{options}\n[[route]]\nlisten = '{listen}'\nself_signed = 'x'\nto = 'echo:'\n");
        fs::write(&file, text).expect("written");
        let source = Source {
            file: Some(file),
            section: Section::Route,
            flags: Vec::new(),
        };
        load::load(&source, &Occasion::start()).unwrap_or_else(|mistakes| panic!("{mistakes}"))
    }

    /// A program without workers.
    fn serving(ready: Ready) -> Serving {
        let Ready {
            loaded, material, ..
        } = ready;
        let loaded = loaded.settled();
        let memory = SharedMemory::create(&loaded, &material).expect("shared memory");
        let (config, plan) = (loaded.config, loaded.plan);
        let keys = Keyring::open(&config, None, unix_time(), &memory.counters).expect("keys");
        Serving {
            connections_max: plan.connections_max.into(),
            user: None,
            ticket_keys: keys,
            listening: Listening::open(&config).expect("listeners"),
            edition: Edition::new(1, 0, config, plan, material),
            reported: OnceCell::new(),
            memory,
            pairs: Pairs::default(),
        }
    }

    fn reload(serving: &mut Serving, next: Ready) -> Result<(), String> {
        let Ready {
            loaded, material, ..
        } = next;
        let loaded = loaded.settled();
        serving.apply_reload(loaded.config, loaded.plan, material, false)
    }

    #[test]
    fn a_rejected_reload_changes_no_ticket_keys() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = folder.path().join("tickets.key");
        let options = format!("ticket_keys = 'file:{}'", keys.display());
        let write = |byte: u8| {
            fs::write(&keys, [byte; 80]).expect("written");
            fs::set_permissions(&keys, Permissions::from_mode(0o600)).expect("changed");
        };
        write(1);
        let mut serving = serving(ready(folder.path(), &options));
        let before = serving.ticket_keys.keys().export();
        write(2);
        let next = ready(folder.path(), &options);
        let address = next.loaded.config.routes[0].listen[0].address;
        let other = TcpListener::bind(address).expect("a listener of another program");
        let why = reload(&mut serving, next).expect_err("the address is in use");
        assert!(why.contains("cannot listen on"), "{why}");
        assert_eq!(*serving.ticket_keys.keys().export(), *before);
        drop(other);
        reload(&mut serving, ready(folder.path(), &options)).expect("a reload");
        assert_ne!(*serving.ticket_keys.keys().export(), *before);
    }

    /// A machine starts with a clock that is ten years ahead, and then asks a time server.
    #[test]
    fn a_clock_that_is_set_back_does_not_put_off_the_rotation() {
        let folder = tempfile::tempdir().expect("a folder");
        let ready = ready(
            folder.path(),
            "ticket_rotation = '1h'\nticket_lifetime = '1h'",
        );
        let mut serving = serving(ready);
        let ten_years = Duration::from_secs(10 * 365 * 86_400);
        let ahead =
            UnixTime::since_unix_epoch(Duration::from_secs(unix_time().as_secs()) + ten_years);
        let Serving {
            ticket_keys,
            memory,
            edition,
            ..
        } = &mut serving;
        let mut update = |now| ticket_keys.update(&edition.config, now, &memory.counters);
        assert!(update(ahead), "a rotation");
        update(unix_time());
        let until_ms = ticket_keys.until_due_ms(unix_time());
        assert!(until_ms.is_some_and(|ms| ms <= 3_600_000), "{until_ms:?}");
    }

    /// Gives the program an idle worker. Returns both ends of its channel.
    fn with_worker(serving: &mut Serving) -> [Fd; 2] {
        let (pairs, main, worker) = Pairs::idle(&serving.handover(0));
        serving.pairs = pairs;
        [main, worker]
    }

    /// Fills a channel to a worker that does not read.
    fn fill(channel: Fd) {
        while orders::send_order(channel, &Order::Resume).is_ok() {}
    }

    fn orders_in(channel: Fd) -> Vec<Order> {
        let next = || orders::receive_order(channel).expect("an order");
        std::iter::from_fn(next).collect()
    }

    /// A configuration that a worker's channel has no room for is given again later.
    #[test]
    fn a_configuration_that_was_not_sent_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut serving = serving(ready(folder.path(), ""));
        let [main, worker] = with_worker(&mut serving);
        fill(main);
        serving.give_edition(0);
        assert!(serving.pairs.lacks_edition(0, serving.edition.number));
        orders_in(worker);
        serving.give_edition(0);
        assert!(!serving.pairs.lacks_edition(0, serving.edition.number));
        let given = orders_in(worker).pop();
        assert!(matches!(given, Some(Order::Reload { number: 1, .. })));
    }

    /// A worker dies between two messages of a reload, so its successor cannot obey the second. Main repeats the order, and
    /// does not take the answer to the first one for the answer to the second.
    #[test]
    fn an_answer_to_an_order_of_a_predecessor_counts_for_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut serving = serving(ready(folder.path(), ""));
        let [main, worker] = with_worker(&mut serving);
        socket::name_senders(main).expect("an option");
        let poller = Poller::create(OnExec::Close).expect("a poller");
        let report = |serving: &mut Serving, report: WorkerReport| {
            orders::send_report(worker, &report);
            serving.pairs.receive(0, &poller).map(|(report, _)| report)
        };
        serving.give_edition(0);
        assert!(report(&mut serving, WorkerReport::Ready).is_some());
        serving.bring_up_to_date(0);
        let failed = WorkerReport::NotReloaded(1, "listeners are missing".to_owned());
        assert_eq!(report(&mut serving, failed), None);
        let edition = serving.edition.number;
        let done = report(&mut serving, WorkerReport::Reloaded(2));
        assert_eq!(done, Some(WorkerReport::Reloaded(edition)));
        assert!(serving.pairs.has_edition(0, edition));
    }

    /// As above, but the successor answers before it is ready. The reload is not rejected: the successor gets the order again.
    #[test]
    fn a_worker_that_is_not_ready_rejects_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut serving = serving(ready(folder.path(), ""));
        let [main, worker] = with_worker(&mut serving);
        socket::name_senders(main).expect("an option");
        let poller = Poller::create(OnExec::Close).expect("a poller");
        serving.give_edition(0);
        let failed = WorkerReport::NotReloaded(1, "listeners are missing".to_owned());
        orders::send_report(worker, &failed);
        assert!(serving.pairs.receive(0, &poller).is_none());
        let edition = serving.edition.number;
        assert!(serving.pairs.lacks_edition(0, edition));
        orders::send_report(worker, &WorkerReport::Ready);
        let ready = serving.pairs.receive(0, &poller);
        assert!(matches!(ready, Some((WorkerReport::Ready, _))));
        serving.bring_up_to_date(0);
        assert!(!serving.pairs.lacks_edition(0, edition));
        let failed = WorkerReport::NotReloaded(2, "no memory".to_owned());
        orders::send_report(worker, &failed);
        let rejected = serving.pairs.receive(0, &poller);
        assert!(matches!(
            rejected,
            Some((WorkerReport::NotReloaded(number, _), _)) if number == edition
        ));
    }

    /// Whoever sends an invalid message in a worker's name silences neither the worker nor its successors.
    #[test]
    fn reports_after_an_invalid_message_are_received() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut serving = serving(ready(folder.path(), ""));
        let [main, worker] = with_worker(&mut serving);
        socket::name_senders(main).expect("an option");
        let poller = Poller::create(OnExec::Close).expect("a poller");
        for _ in 0..3 {
            let _ = socket::send_message(worker, b"?", &[]).expect("sent");
        }
        orders::send_report(worker, &WorkerReport::Ready);
        for _ in 0..3 {
            assert!(serving.pairs.receive(0, &poller).is_none());
        }
        let received = serving.pairs.receive(0, &poller);
        assert!(matches!(received, Some((WorkerReport::Ready, _))));
        assert_eq!(serving.pairs.remaining(), [0]);
    }

    /// It never becomes ready without a reload, so its rejection is the answer to one. Its successor's is not yet.
    #[test]
    fn a_worker_with_unusable_certificates_rejects_a_reload() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut serving = serving(ready(folder.path(), ""));
        let [main, worker] = with_worker(&mut serving);
        socket::name_senders(main).expect("an option");
        let poller = Poller::create(OnExec::Close).expect("a poller");
        let edition = serving.edition.number;
        let report = |serving: &mut Serving, report: WorkerReport| {
            orders::send_report(worker, &report);
            serving.pairs.receive(0, &poller).map(|(report, _)| report)
        };
        serving.give_edition(0);
        let unusable = || WorkerReport::Unusable;
        assert_eq!(report(&mut serving, unusable()), Some(unusable()));
        assert_eq!(
            report(&mut serving, unusable()),
            None,
            "each reports it once"
        );
        serving.bring_up_to_date(0);
        let rejected = |number| WorkerReport::NotReloaded(number, "invalid key".to_owned());
        let of_predecessor = report(&mut serving, rejected(1));
        assert_eq!(of_predecessor, None, "that order was its predecessor's");
        assert_eq!(report(&mut serving, rejected(2)), Some(rejected(edition)));
        serving.give_edition(0);
        let reports = [WorkerReport::Ready, WorkerReport::Reloaded(3), unusable()];
        let noted = reports.map(|one| report(&mut serving, one));
        let reloaded = WorkerReport::Reloaded(edition);
        assert_eq!(noted, [Some(WorkerReport::Ready), Some(reloaded), None]);
    }

    /// A binary whose TLS library is stricter is refused while the old one serves.
    #[test]
    fn a_binary_that_cannot_use_a_running_certificate_does_not_take_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let serving = serving(ready(folder.path(), ""));
        let mut handover = serving.handover(0);
        resume::check_material(&handover).expect("valid certificates");
        handover.certificates[0][0].key = "not a key".to_owned();
        let refused = resume::check_material(&handover).expect_err("an invalid key");
        assert!(
            refused
                .to_string()
                .contains("cannot use a running certificate"),
            "{refused}"
        );
    }

    /// The new binary's first attempt to read the secret fails. It does not generate keys of its own for good.
    #[test]
    fn the_source_of_ticket_keys_is_sought_until_it_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let [secret, keys] = ["secret", "tickets.keys"].map(|name| folder.path().join(name));
        let write_secret = || {
            fs::write(&secret, "0123456789abcdef0123456789abcdef").expect("written");
            fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("changed");
        };
        write_secret();
        let options = format!(
            "ticket_keys = 'file:{}'\nticket_secret_file = '{}'",
            keys.display(),
            secret.display()
        );
        let mut serving = serving(ready(folder.path(), &options));
        let exported = serving.ticket_keys.keys().export();
        let again = || dormouse_engine::TicketKeys::import(&exported).expect("keys");
        serving.ticket_keys = Keyring::adopt(again(), None);
        fs::remove_file(&secret).expect("removed");
        let update = |serving: &mut Serving| {
            let (config, counters) = (&serving.edition.config, &serving.memory.counters);
            serving.ticket_keys.update(config, unix_time(), counters);
        };
        update(&mut serving);
        let why = serving.rotate_ticket_keys_now().expect_err("no secret");
        assert!(why.contains("unavailable"), "{why}");
        write_secret();
        let until_ms = serving.ticket_keys.until_due_ms(unix_time());
        std::thread::sleep(Duration::from_millis(until_ms.expect("another attempt")));
        update(&mut serving);
        fs::remove_file(&keys).expect("removed");
        serving.rotate_ticket_keys_now().expect("a rotation");
        assert!(serving.ticket_keys.wait_until_saved(Duration::MAX));
        assert!(keys.exists(), "the keys are saved again");
    }

    /// All workers can write the counters, so main does not conclude from zeros that a drain is complete.
    #[test]
    fn a_drain_is_done_when_each_worker_is_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut serving = serving(ready(folder.path(), ""));
        let [_, worker] = with_worker(&mut serving);
        let mut drain = Drain::default();
        let mut begin = || {
            let begun = drain.begin(60_000, DrainOrder::Longest, &serving);
            begun.expect("a drain");
            assert!(!drain.is_done(&serving));
            match orders_in(worker)[..] {
                [Order::Drain { .. }, Order::ReportEmpty(number)] => number,
                _ => panic!("not the orders of a drain"),
            }
        };
        let (first, second) = (begin(), begin());
        drain.note_empty(0, first);
        assert!(!drain.is_done(&serving), "that was the drain before");
        let reported = |drain: &Drain| drain.report(&serving.pairs).map(|drain| drain.is_empty);
        assert_eq!(reported(&drain), Some(false));
        drain.note_empty(0, second);
        assert!(drain.is_done(&serving));
        assert_eq!(reported(&drain), Some(true));
        assert!(drain.order_rest(0, &serving.pairs));
        assert!(!drain.is_done(&serving), "another worker has begun");
    }

    /// A quiet worker whose new configuration cannot be sent does not stay quiet.
    #[test]
    fn a_worker_that_cannot_be_replaced_continues() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut serving = serving(ready(folder.path(), ""));
        let [main, worker] = with_worker(&mut serving);
        let mut wanted = Bounds::of(&serving.edition.config);
        wanted.unix = UnixSockets::Files;
        assert!(serving.pairs.holds_back(0, wanted));
        // An upgrade that fails meanwhile lets all workers continue.
        serving.pairs.resume_all();
        let orders = orders_in(worker);
        assert!(matches!(
            orders[..],
            [Order::Quiesce, Order::Resume, Order::Quiesce]
        ));
        assert!(serving.pairs.note_quiet(0));
        fill(main);
        serving.give_edition(0);
        assert!(!serving.pairs.are_renewed());
    }

    /// With a thousand routes this takes milliseconds, and main has many turns.
    #[test]
    fn what_control_is_told_is_built_once_for_each_edition() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut serving = serving(ready(folder.path(), ""));
        let listeners = serving.reported().listeners.clone();
        assert!(std::ptr::eq(serving.reported(), serving.reported()));
        reload(&mut serving, ready(folder.path(), "")).expect("a reload to another port");
        assert_ne!(serving.reported().listeners, listeners);
    }

    #[test]
    fn a_shorter_rotation_is_reported_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut serving = serving(ready(folder.path(), "ticket_rotation = '7d'"));
        let rotates_s = |serving: &Serving| {
            let word = serving.memory.counters.common(Common::KeyRotates as usize);
            word.expect("a word").load(Ordering::Relaxed)
        };
        let before_s = rotates_s(&serving);
        let next = ready(
            folder.path(),
            "ticket_rotation = '1h'\nticket_lifetime = '1h'",
        );
        reload(&mut serving, next).expect("a reload");
        assert!(rotates_s(&serving) < before_s);
        assert_eq!(
            Some(rotates_s(&serving)),
            serving.ticket_keys.keys().rotates_at_s()
        );
    }
}
