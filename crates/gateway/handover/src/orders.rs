//! Messages between main and its workers.
//!
//! Main sends [`Order`]s, a worker sends [`WorkerReport`]s. Each is one message on a channel; the kernel
//! preserves message boundaries, and passes descriptors along. A message is a byte for its kind, followed
//! by its body. To add a kind, add its variant, its byte, and its arms in `encode` and `decode`.

use crate::connections::{Page, PageOrder};
use crate::control::DrainOrder;
use crate::signing::{SignRequest, Signed};
use dormouse_config::Network;
use dormouse_reactor::process::Pid;
use dormouse_reactor::socket::{self, Attempt, MESSAGE_MAX, PlainMessage};
use dormouse_reactor::{Fd, OnExec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::net::SocketAddr;
use zeroize::Zeroizing;

/// Maximum number of traces at a time ([`Order::Trace`]).
pub const TRACES_MAX: usize = 16;

/// An order of main to a worker.
pub enum Order {
    /// Stop accepting, finish pending work, close all connections properly, end.
    Stop,
    /// Use these exported ticket keys.
    TicketKeys(Zeroizing<Vec<u8>>),
    /// Suspend accepting; report when no handshake is in flight.
    Quiesce,
    /// Accept again: the upgrade was aborted.
    Resume,
    /// End, and leave the connections to another binary.
    HandOver,
    /// Listening sockets for the reload that follows, in order.
    Listeners(Vec<Fd>),
    /// Apply this handover.
    Reload {
        /// The memory file of the handover.
        handover: Fd,
        /// The number of the order, for the answer. A worker may read an order to its predecessor, so the edition of the
        /// configuration does not tell which order it answers.
        number: u64,
    },
    /// Stop accepting, and close all connections evenly over this time.
    Drain {
        /// Milliseconds until the last connection is closed.
        over_ms: u64,
        /// Which connections are closed first.
        order: DrainOrder,
    },
    /// Report with this number as soon as there is no connection and no handshake.
    ReportEmpty(u64),
    /// Stop draining, and accept again.
    StopDrain,
    /// Answer the ACME challenge with this number: a line with its name, then certificate and key as PEM. Without these,
    /// answer the challenge for this name no longer.
    Challenge(u64, Zeroizing<String>),
    /// Count no connection in the table of clients any more, and report it with this number.
    Uncount(u64),
    /// Count all connections in the table of clients again.
    CountAgain,
    /// List or close some connections, and report the page with this number.
    Page(u64, Box<PageOrder>),
    /// Log handshakes and ends of the connections with these clients until this time of CLOCK_BOOTTIME, in milliseconds.
    Trace(u64, Network),
    /// The answer to the [`WorkerReport::Sign`] with this number.
    Signed(u64, Box<Signed>),
    /// Change the addresses of a backend.
    Addresses {
        /// The backend's name and port, as in the configuration.
        name: String,
        /// All addresses of the name, at least one.
        addresses: Vec<SocketAddr>,
    },
}

/// A report of a worker or its keeper to main. It does not name its sender: main gets that from the
/// kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkerReport {
    /// From each new worker: it serves, and has all its certificates.
    Ready,
    /// From a new worker: it serves the connections of its predecessor, but its certificates are unusable, so it accepts
    /// no others. It becomes [`WorkerReport::Ready`] with a reload.
    Unusable,
    /// From a worker: it does not accept, and no handshake is in flight (or their time is up).
    Quiet,
    /// From a keeper: its child with this pid executes the new binary.
    Preparing(Pid),
    /// From a new keeper: it has copied the worker's connections, and waits for the decision.
    Prepared,
    /// From an old or a new keeper: the new binary can't take over, and the reason.
    Refused(String),
    /// From an old keeper after a commit: the new keeper died, and the old one continues.
    Kept,
    /// From a worker: it has obeyed the [`Order::Reload`] with this number.
    Reloaded(u64),
    /// From a worker: it has not obeyed the [`Order::Reload`] with this number, and the reason.
    NotReloaded(u64, String),
    /// From a worker: it has opened the challenge with this number.
    ChallengeShown(u64),
    /// From a worker: it has obeyed the [`Order::Uncount`] with this number.
    Uncounted(u64),
    /// From a worker: it has had no connection and no handshake since the [`Order::ReportEmpty`] with this number.
    Empty(u64),
    /// From a worker: its answer to the [`Order::Page`] with this number.
    Page(u64, Box<Page>),
    /// From a worker: a handshake needs this signature, which main answers with this number.
    Sign(u64, Box<SignRequest>),
}

const STOP: u8 = b'S';
const TICKET_KEYS: u8 = b'K';
const QUIESCE: u8 = b'Q';
const RESUME: u8 = b'A';
const HAND_OVER: u8 = b'H';

const LISTENERS: u8 = b'L';
const RELOAD: u8 = b'C';
const DRAIN: u8 = b'D';
const REPORT_EMPTY: u8 = b'E';
const STOP_DRAIN: u8 = b'd';
const ADDRESSES: u8 = b'N';
const CHALLENGE: u8 = b'T';
const UNCOUNT: u8 = b'U';
const COUNT_AGAIN: u8 = b'u';
const PAGE: u8 = b'l';
const TRACE: u8 = b't';
const SIGN: u8 = b's';

const READY: u8 = b'R';
const UNUSABLE: u8 = b'x';
const RELOADED: u8 = b'c';
const NOT_RELOADED: u8 = b'n';
const CHALLENGE_SHOWN: u8 = b't';
const QUIET: u8 = b'q';
const PREPARING: u8 = b'P';
const PREPARED: u8 = b'p';
const REFUSED: u8 = b'r';
const KEPT: u8 = b'k';
const UNCOUNTED: u8 = b'u';
const EMPTY: u8 = b'e';

/// Maximum length of a reason; longer ones are cut.
const WORDS_MAX: usize = 4096;

impl Order {
    pub(crate) fn encode(&self) -> Zeroizing<Vec<u8>> {
        match self {
            Order::Stop => message(STOP, &[]),
            Order::TicketKeys(keys) => message(TICKET_KEYS, keys),
            Order::Quiesce => message(QUIESCE, &[]),
            Order::Resume => message(RESUME, &[]),
            Order::HandOver => message(HAND_OVER, &[]),
            Order::Uncount(number) => message(UNCOUNT, &number.to_le_bytes()),
            Order::CountAgain => message(COUNT_AGAIN, &[]),
            Order::Page(number, order) => numbered(PAGE, *number, order),
            Order::Trace(until_ms, client) => numbered(TRACE, *until_ms, client),
            Order::Signed(number, signed) => numbered(SIGN, *number, signed),
            Order::Listeners(_) => message(LISTENERS, &[]),
            Order::Reload { number, .. } => message(RELOAD, &number.to_le_bytes()),
            Order::Drain { over_ms, order } => {
                let mut body = over_ms.to_le_bytes().to_vec();
                body.push(*order as u8);
                message(DRAIN, &body)
            }
            Order::ReportEmpty(number) => message(REPORT_EMPTY, &number.to_le_bytes()),
            Order::StopDrain => message(STOP_DRAIN, &[]),
            Order::Challenge(number, shown) => {
                let mut body = Zeroizing::new(Vec::with_capacity(8 + shown.len()));
                body.extend_from_slice(&number.to_le_bytes());
                body.extend_from_slice(shown.as_bytes());
                message(CHALLENGE, &body)
            }
            Order::Addresses { name, addresses } => {
                let addresses = addresses.iter().map(|address| format!("\n{address}"));
                let text: String = std::iter::once(name.clone()).chain(addresses).collect();
                message(ADDRESSES, text.as_bytes())
            }
        }
    }

    /// The descriptors that are sent with the order.
    fn descriptors(&self) -> &[Fd] {
        match self {
            Order::Listeners(fds) => fds,
            Order::Reload { handover, .. } => std::slice::from_ref(handover),
            _ => &[],
        }
    }

    pub(crate) fn decode(kind: u8, body: &[u8], descriptors: &[Fd]) -> io::Result<Order> {
        match (kind, body, descriptors) {
            (STOP, [], []) => Ok(Order::Stop),
            (QUIESCE, [], []) => Ok(Order::Quiesce),
            (RESUME, [], []) => Ok(Order::Resume),
            (HAND_OVER, [], []) => Ok(Order::HandOver),
            (UNCOUNT, body, []) => Ok(Order::Uncount(number(body)?)),
            (COUNT_AGAIN, [], []) => Ok(Order::CountAgain),
            (PAGE, body, []) => {
                let (number, order) = numbered_in(body)?;
                Ok(Order::Page(number, order))
            }
            (TRACE, body, []) => {
                let (until_ms, client) = numbered_in(body)?;
                Ok(Order::Trace(until_ms, client))
            }
            (SIGN, body, []) => {
                let (number, signed) = numbered_in(body)?;
                Ok(Order::Signed(number, signed))
            }
            (TICKET_KEYS, keys, []) => Ok(Order::TicketKeys(Zeroizing::new(keys.to_vec()))),
            (LISTENERS, [], fds) => Ok(Order::Listeners(fds.to_vec())),
            // The worker had no descriptor left for it. It answers that it could not read the file.
            (RELOAD, body, []) => Ok(Order::Reload {
                handover: Fd::NONE,
                number: number(body)?,
            }),
            (RELOAD, body, &[handover]) => Ok(Order::Reload {
                handover,
                number: number(body)?,
            }),
            (DRAIN, [over_ms @ .., order], []) => Ok(Order::Drain {
                over_ms: number(over_ms)?,
                order: match order {
                    0 => DrainOrder::Longest,
                    _ => DrainOrder::Shortest,
                },
            }),
            (REPORT_EMPTY, body, []) => Ok(Order::ReportEmpty(number(body)?)),
            (STOP_DRAIN, [], []) => Ok(Order::StopDrain),
            (CHALLENGE, body, []) => {
                let (number_bytes, shown) = body.split_at_checked(8).ok_or_else(invalid)?;
                let shown = std::str::from_utf8(shown).map_err(|_| invalid())?;
                let shown = Zeroizing::new(shown.to_owned());
                Ok(Order::Challenge(number(number_bytes)?, shown))
            }
            (ADDRESSES, text, []) => addresses(text).ok_or(io::ErrorKind::InvalidData.into()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Decodes [`Order::Addresses`]: a line with the name, then a line per address.
fn addresses(text: &[u8]) -> Option<Order> {
    let mut lines = std::str::from_utf8(text).ok()?.split('\n');
    let name = lines.next()?.to_owned();
    let addresses: Result<Vec<SocketAddr>, _> = lines.map(str::parse).collect();
    Some(Order::Addresses {
        name,
        addresses: addresses.ok().filter(|addresses| !addresses.is_empty())?,
    })
}

fn invalid() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

fn number(bytes: &[u8]) -> io::Result<u64> {
    let bytes = bytes.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(u64::from_le_bytes(bytes))
}

impl WorkerReport {
    pub(crate) fn encode(&self) -> Zeroizing<Vec<u8>> {
        match self {
            WorkerReport::Ready => message(READY, &[]),
            WorkerReport::Unusable => message(UNUSABLE, &[]),
            WorkerReport::Quiet => message(QUIET, &[]),
            WorkerReport::Preparing(child) => message(PREPARING, &child.0.to_le_bytes()),
            WorkerReport::Prepared => message(PREPARED, &[]),
            WorkerReport::Kept => message(KEPT, &[]),
            WorkerReport::Uncounted(number) => message(UNCOUNTED, &number.to_le_bytes()),
            WorkerReport::Empty(number) => message(EMPTY, &number.to_le_bytes()),
            WorkerReport::Page(number, page) => numbered(PAGE, *number, page),
            WorkerReport::Sign(number, request) => numbered(SIGN, *number, request),
            WorkerReport::Refused(why) => {
                let why: Vec<u8> = why.bytes().take(WORDS_MAX).collect();
                message(REFUSED, &why)
            }
            WorkerReport::Reloaded(number) => message(RELOADED, &number.to_le_bytes()),
            WorkerReport::ChallengeShown(number) => message(CHALLENGE_SHOWN, &number.to_le_bytes()),
            WorkerReport::NotReloaded(number, why) => {
                let mut body = number.to_le_bytes().to_vec();
                body.extend(why.bytes().take(WORDS_MAX));
                message(NOT_RELOADED, &body)
            }
        }
    }

    pub(crate) fn decode(kind: u8, body: &[u8]) -> io::Result<WorkerReport> {
        match (kind, body) {
            (READY, []) => Ok(WorkerReport::Ready),
            (UNUSABLE, []) => Ok(WorkerReport::Unusable),
            (UNCOUNTED, body) => Ok(WorkerReport::Uncounted(number(body)?)),
            (EMPTY, body) => Ok(WorkerReport::Empty(number(body)?)),
            (PAGE, body) => {
                let (number, page) = numbered_in(body)?;
                Ok(WorkerReport::Page(number, page))
            }
            (SIGN, body) => {
                let (number, request) = numbered_in(body)?;
                Ok(WorkerReport::Sign(number, request))
            }
            (QUIET, []) => Ok(WorkerReport::Quiet),
            (PREPARING, &[a, b, c, d]) => Ok(WorkerReport::Preparing(Pid(i32::from_le_bytes([
                a, b, c, d,
            ])))),
            (PREPARED, []) => Ok(WorkerReport::Prepared),
            (KEPT, []) => Ok(WorkerReport::Kept),
            (REFUSED, why) => Ok(WorkerReport::Refused(
                String::from_utf8_lossy(why).into_owned(),
            )),
            (RELOADED, body) => Ok(WorkerReport::Reloaded(number(body)?)),
            (CHALLENGE_SHOWN, body) => Ok(WorkerReport::ChallengeShown(number(body)?)),
            (NOT_RELOADED, body) => {
                let (number_bytes, why) =
                    body.split_at_checked(8).ok_or(io::ErrorKind::InvalidData)?;
                let why = String::from_utf8_lossy(why).into_owned();
                Ok(WorkerReport::NotReloaded(number(number_bytes)?, why))
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// A message with a number and a document.
fn numbered(kind: u8, number: u64, document: &impl Serialize) -> Zeroizing<Vec<u8>> {
    let mut body = number.to_le_bytes().to_vec();
    // The keys of our documents are strings, so this cannot fail.
    let _ = serde_json::to_writer(&mut body, document);
    message(kind, &body)
}

/// The number and the document in a message's body.
fn numbered_in<T: DeserializeOwned>(body: &[u8]) -> io::Result<(u64, T)> {
    let (number_bytes, text) = body.split_at_checked(8).ok_or_else(invalid)?;
    let document = serde_json::from_slice(text).map_err(|_| invalid())?;
    Ok((number(number_bytes)?, document))
}

fn message(kind: u8, body: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut message = Zeroizing::new(Vec::with_capacity(1 + body.len()));
    message.push(kind);
    message.extend_from_slice(body);
    message
}

/// Sends an order; for main. Fails if neither worker nor keeper exists any more, or if the worker has not
/// read its orders and the channel is full.
pub fn send_order(channel: Fd, order: &Order) -> io::Result<()> {
    send(channel, &order.encode(), order.descriptors())
}

/// Sends a report; for workers and keepers. If main has died, the report is dropped. `false`: the channel is full.
pub fn send_report(channel: Fd, report: &WorkerReport) -> bool {
    match send(channel, &report.encode(), &[]) {
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        Ok(()) => true,
    }
}

fn send(channel: Fd, bytes: &[u8], descriptors: &[Fd]) -> io::Result<()> {
    match socket::send_message(channel, bytes, descriptors)? {
        Attempt::Done(()) => Ok(()),
        Attempt::WouldBlock => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Receives the next order, if there is one; for workers. Fails if main has died, or the message is
/// invalid.
pub fn receive_order(channel: Fd) -> io::Result<Option<Order>> {
    let mut buffer = Zeroizing::new(vec![0; MESSAGE_MAX]);
    // The descriptors must outlive this worker, like everything in the shared table.
    let received = socket::receive_message(channel, &mut buffer, OnExec::Keep)?;
    let Attempt::Done(message) = received else {
        return Ok(None);
    };
    let (kind, body) = split(&buffer, message.len)?;
    let order = Order::decode(kind, body, &message.descriptors);
    if order.is_err() {
        message.descriptors.iter().for_each(|fd| fd.close());
    }
    order.map(Some)
}

/// A message from a worker or its keeper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// The report. `None`: the message is invalid. The messages after it can still be received.
    pub report: Option<WorkerReport>,
    /// The process that sent it.
    pub sender: Pid,
}

/// Receives the next message, if there is one; for main. Fails if neither worker nor keeper exists any more.
pub fn receive_report(channel: Fd) -> io::Result<Option<Received>> {
    let mut buffer = vec![0; MESSAGE_MAX];
    let Attempt::Done(message) = socket::receive_plain_message(channel, &mut buffer)? else {
        return Ok(None);
    };
    let (report, sender) = match message {
        PlainMessage::Whole { len, sender } => {
            let (kind, body) = split(&buffer, len)?;
            (WorkerReport::decode(kind, body).ok(), sender)
        }
        PlainMessage::Invalid { sender } => (None, sender),
        PlainMessage::End => return Err(io::ErrorKind::UnexpectedEof.into()),
    };
    let sender = sender.ok_or_else(|| io::Error::other("the kernel does not name senders"))?;
    Ok(Some(Received { report, sender }))
}

/// Splits a message into its kind and its body.
fn split(buffer: &[u8], len: usize) -> io::Result<(u8, &[u8])> {
    let split = buffer.get(..len).and_then(<[u8]>::split_first);
    let (kind, body) = split.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((*kind, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::{ConnectionFilter, PageAction, PagePlace};
    use dormouse_reactor::process;

    #[test]
    fn a_trace_round_trips() {
        let (main, worker) = socket::channel(OnExec::Close).expect("a channel");
        let client = dormouse_config::read_network("2001:db8::/32").expect("a network");
        send_order(main, &Order::Trace(9, client)).expect("an order sent");
        let got = receive_order(worker).expect("an order");
        assert!(matches!(got, Some(Order::Trace(9, got)) if got == client));
    }

    #[test]
    fn orders_and_reports_round_trip() {
        let (main, worker) = socket::channel(OnExec::Close).expect("a channel");
        socket::name_senders(main).expect("an option of sockets");
        assert!(receive_order(worker).expect("an empty channel").is_none());
        let keys = Zeroizing::new(vec![7; 300]);
        send_order(main, &Order::TicketKeys(keys.clone())).expect("an order sent");
        send_order(main, &Order::Stop).expect("an order sent");
        match receive_order(worker).expect("an order") {
            Some(Order::TicketKeys(got)) => assert_eq!(got, keys),
            _ => panic!("not ticket keys"),
        }
        assert!(matches!(receive_order(worker), Ok(Some(Order::Stop))));
        assert!(receive_report(main).expect("an empty channel").is_none());
        let (order, over_ms) = (DrainOrder::Shortest, 600_000);
        send_order(main, &Order::Drain { over_ms, order }).expect("an order sent");
        match receive_order(worker).expect("an order") {
            Some(Order::Drain { over_ms, order }) => {
                assert_eq!((over_ms, order), (600_000, DrainOrder::Shortest));
            }
            _ => panic!("not a drain"),
        }
        send_order(main, &Order::ReportEmpty(8)).expect("an order sent");
        let got = receive_order(worker).expect("an order");
        assert!(matches!(got, Some(Order::ReportEmpty(8))));
        let name = "db.example:5432".to_owned();
        let addresses = ["10.0.0.1:5432", "[fd00::1]:5432"].map(|a| a.parse().expect("an address"));
        let addresses = addresses.to_vec();
        let expected = (name.clone(), addresses.clone());
        send_order(main, &Order::Addresses { name, addresses }).expect("an order sent");
        match receive_order(worker).expect("an order") {
            Some(Order::Addresses { name, addresses }) => {
                assert_eq!((name, addresses), expected);
            }
            _ => panic!("not addresses"),
        }
        let shown = Zeroizing::new("a.example\nPEM".to_owned());
        send_order(main, &Order::Challenge(9, shown.clone())).expect("an order sent");
        let got = receive_order(worker).expect("an order");
        assert!(matches!(got, Some(Order::Challenge(9, got)) if got == shown));
        let (handover, number) = (main, 7);
        send_order(main, &Order::Reload { handover, number }).expect("an order sent");
        match receive_order(worker).expect("an order") {
            Some(Order::Reload { handover, number }) => {
                assert_eq!(number, 7);
                handover.close();
            }
            _ => panic!("not a reload"),
        }
        for report in [
            WorkerReport::Ready,
            WorkerReport::Unusable,
            WorkerReport::Reloaded(u64::MAX),
            WorkerReport::Preparing(Pid(77)),
            WorkerReport::Prepared,
            WorkerReport::Kept,
            WorkerReport::ChallengeShown(9),
            WorkerReport::Uncounted(7),
            WorkerReport::Empty(8),
            WorkerReport::NotReloaded(3, "because".to_owned()),
        ] {
            send_report(worker, &report);
            let received = receive_report(main).expect("a report");
            let (report, sender) = (Some(report), process::pid());
            assert_eq!(received, Some(Received { report, sender }));
        }
        // Invalid messages have a sender, too, and the next one is received.
        for bytes in [&b"?"[..], b"Rx", b"c1234567", &[b'R'; MESSAGE_MAX]] {
            let _ = socket::send_message(worker, bytes, &[]).expect("sent");
            send_report(worker, &WorkerReport::Quiet);
            for report in [None, Some(WorkerReport::Quiet)] {
                let sender = process::pid();
                let received = receive_report(main).expect("a message");
                assert_eq!(received, Some(Received { report, sender }));
            }
        }
        main.close();
        assert!(receive_order(worker).is_err(), "main is gone");
        worker.close();
    }

    #[test]
    fn pages_round_trip() {
        let (main, worker) = socket::channel(OnExec::Close).expect("a channel");
        socket::name_senders(main).expect("an option of sockets");
        let asked = PageOrder {
            filter: ConnectionFilter {
                route: Some("shop".to_owned()),
                older_ms: Some(5),
                ..ConnectionFilter::default()
            },
            action: PageAction::Close(7),
            from: PagePlace::of_worker(1),
        };
        send_order(main, &Order::Page(9, Box::new(asked.clone()))).expect("an order sent");
        let got = receive_order(worker).expect("an order");
        assert!(matches!(got, Some(Order::Page(9, got)) if *got == asked));
        let page = Page {
            unknown: 3,
            next: Some(asked.from),
            ..Page::default()
        };
        let report = WorkerReport::Page(9, Box::new(page));
        send_report(worker, &report);
        let received = receive_report(main).expect("a report").expect("a report");
        assert_eq!(received.report, Some(report));
        main.close();
        worker.close();
    }

    #[test]
    fn signatures_round_trip() {
        let (main, worker) = socket::channel(OnExec::Close).expect("a channel");
        socket::name_senders(main).expect("an option of sockets");
        let request = SignRequest {
            key: "pkcs11:object=a".to_owned(),
            scheme: 0x0403,
            digest: vec![255; 32],
        };
        let report = WorkerReport::Sign(u64::MAX, Box::new(request));
        send_report(worker, &report);
        let received = receive_report(main).expect("a report").expect("a report");
        assert_eq!(received.report, Some(report));
        for signature in [Ok(vec![200; 1024]), Err("the token is gone".to_owned())] {
            let signed = Signed {
                digest: vec![7; 64],
                signature,
            };
            send_order(main, &Order::Signed(9, Box::new(signed.clone()))).expect("an order sent");
            let got = receive_order(worker).expect("an order");
            assert!(matches!(got, Some(Order::Signed(9, got)) if *got == signed));
        }
        main.close();
        worker.close();
    }

    #[test]
    fn refuses_invalid_orders() {
        let (main, worker) = socket::channel(OnExec::Close).expect("a channel");
        for bytes in [
            &b"?"[..],
            b"Sx",
            b"C",
            b"D1234567",
            b"Nx",
            b"Nx\ny",
            b"T1234567",
            b"l1234567{}",
            b"s1234567{}",
        ] {
            send(main, bytes, &[]).expect("sent");
            let refused = receive_order(worker).err().map(|error| error.kind());
            assert_eq!(refused, Some(io::ErrorKind::InvalidData), "{bytes:?}");
        }
        main.close();
        worker.close();
    }
}
