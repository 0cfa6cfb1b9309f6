//! Reloads of what serves, with a worker's end of the channel.

use super::*;
use crate::configuration::load::{self, Ready};
use crate::configuration::occasion::Occasion;
use crate::configuration::source::Source;
use crate::drain::Drain;
use crate::start::resume;
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
        rest: None,
    }
}

fn reload(serving: &mut Serving, next: Ready) -> Result<(), String> {
    let Ready {
        loaded, material, ..
    } = next;
    let loaded = loaded.settled();
    let examined = loaded.config.clone();
    serving.apply_reload((loaded.config, &examined), loaded.plan, material, false)
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
    let ahead = UnixTime::since_unix_epoch(Duration::from_secs(unix_time().as_secs()) + ten_years);
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
    handover.certificates[0][0].change(|pem| pem.key = "not a key".to_owned());
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
