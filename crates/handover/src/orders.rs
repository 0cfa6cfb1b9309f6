//! What main and its workers say to each other.
//!
//! Main sends [`Order`]s, a worker sends [`WorkerReport`]s. Each is one message of a channel (the
//! kernel keeps messages apart, and passes descriptors with them): a byte which says what it is,
//! then what belongs to it. To add a kind, add its variant, its byte and its two lines in
//! `encode` and `decode`.

use crate::control::DrainOrder;
use dormouse_reactor::process::Pid;
use dormouse_reactor::socket::{self, Attempt, MESSAGE_MAX};
use dormouse_reactor::{Fd, OnExec};
use std::io;
use std::net::SocketAddr;
use zeroize::Zeroizing;

/// What main can ask of a worker.
pub enum Order {
    /// Accept nothing more, let pending work end, close everything properly.
    Stop,
    /// Seal and open tickets with these from now on: keys as they are exported.
    TicketKeys(Zeroizing<Vec<u8>>),
    /// Accept nothing for now; say when no handshake is in flight.
    Quiesce,
    /// There is no upgrade after all: accept again.
    Resume,
    /// Put everything down and end: another binary goes on.
    HandOver,
    /// Listening sockets which belong to the reload that follows, in their order.
    Listeners(Vec<Fd>),
    /// Go by this handover from now on; which edition of the configuration it is.
    Reload {
        /// The memory file of the handover.
        handover: Fd,
        /// The edition of the configuration, from 1 on.
        edition: u64,
    },
    /// Accept nothing more, and close all connections evenly over this time.
    Drain {
        /// Milliseconds until the last connection is closed.
        over_ms: u64,
        /// Which connections are closed first.
        order: DrainOrder,
    },
    /// Stop draining, and accept again.
    StopDrain,
    /// Show this to whoever asks by acme-tls/1 whether its name is ours; `None`: nobody may ask any
    /// more. Its number, and the name, the certificate and its key as PEM.
    Challenge(u64, Option<Zeroizing<String>>),
    /// The backend of this name has these addresses now.
    Addresses {
        /// The backend's name and port, as the configuration has them.
        name: String,
        /// All addresses that the name stands for, at least one.
        addresses: Vec<SocketAddr>,
    },
}

/// What a worker or its keeper says to main. None names its sender: main asks the kernel for that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkerReport {
    /// It serves. Said by the first worker, and by each that comes after a crash.
    Ready,
    /// It accepts nothing, and no handshake is in flight (or their time is up).
    Quiet,
    /// A keeper's: its child of this pid executes the new binary.
    Preparing(Pid),
    /// A new keeper's: it has taken over this worker's connections, and waits.
    Prepared,
    /// A keeper's, old or new: the new binary can't take over, and why.
    Refused(String),
    /// An old keeper's after a commit: the new one died, and it goes on itself.
    Kept,
    /// It goes by this edition of the configuration.
    Reloaded(u64),
    /// It does not, and why.
    NotReloaded(u64, String),
    /// It shows the challenge of this number.
    ChallengeShown(u64),
}

const STOP: u8 = b'S';
const TICKET_KEYS: u8 = b'K';
const QUIESCE: u8 = b'Q';
const RESUME: u8 = b'A';
const HAND_OVER: u8 = b'H';

const LISTENERS: u8 = b'L';
const RELOAD: u8 = b'C';
const DRAIN: u8 = b'D';
const STOP_DRAIN: u8 = b'd';
const ADDRESSES: u8 = b'N';
const CHALLENGE: u8 = b'T';

const READY: u8 = b'R';
const RELOADED: u8 = b'c';
const NOT_RELOADED: u8 = b'n';
const CHALLENGE_SHOWN: u8 = b't';
const QUIET: u8 = b'q';
const PREPARING: u8 = b'P';
const PREPARED: u8 = b'p';
const REFUSED: u8 = b'r';
const KEPT: u8 = b'k';

/// A reason in words is cut to this.
const WORDS_MAX: usize = 4096;

impl Order {
    pub(crate) fn encode(&self) -> Zeroizing<Vec<u8>> {
        match self {
            Order::Stop => message(STOP, &[]),
            Order::TicketKeys(keys) => message(TICKET_KEYS, keys),
            Order::Quiesce => message(QUIESCE, &[]),
            Order::Resume => message(RESUME, &[]),
            Order::HandOver => message(HAND_OVER, &[]),
            Order::Listeners(_) => message(LISTENERS, &[]),
            Order::Reload { edition, .. } => message(RELOAD, &edition.to_le_bytes()),
            Order::Drain { over_ms, order } => {
                let mut body = over_ms.to_le_bytes().to_vec();
                body.push(*order as u8);
                message(DRAIN, &body)
            }
            Order::StopDrain => message(STOP_DRAIN, &[]),
            Order::Challenge(number, shown) => {
                let shown = shown.as_ref().map_or("", |shown| shown.as_str());
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

    /// Those which go with it.
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
            (TICKET_KEYS, keys, []) => Ok(Order::TicketKeys(Zeroizing::new(keys.to_vec()))),
            (LISTENERS, [], fds) => Ok(Order::Listeners(fds.to_vec())),
            (RELOAD, edition, &[handover]) => Ok(Order::Reload {
                handover,
                edition: number(edition)?,
            }),
            (DRAIN, [over_ms @ .., order], []) => Ok(Order::Drain {
                over_ms: number(over_ms)?,
                order: match order {
                    0 => DrainOrder::Longest,
                    _ => DrainOrder::Shortest,
                },
            }),
            (STOP_DRAIN, [], []) => Ok(Order::StopDrain),
            (CHALLENGE, body, []) => {
                let (number_of_it, shown) = body.split_at_checked(8).ok_or_else(invalid)?;
                let shown = std::str::from_utf8(shown).map_err(|_| invalid())?;
                let shown = Some(shown).filter(|shown| !shown.is_empty());
                let shown = shown.map(|shown| Zeroizing::new(shown.to_owned()));
                Ok(Order::Challenge(number(number_of_it)?, shown))
            }
            (ADDRESSES, text, []) => addresses(text).ok_or(io::ErrorKind::InvalidData.into()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// A line for the name, one for each address.
fn addresses(text: &[u8]) -> Option<Order> {
    let mut lines = std::str::from_utf8(text).ok()?.lines();
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
            WorkerReport::Quiet => message(QUIET, &[]),
            WorkerReport::Preparing(child) => message(PREPARING, &child.0.to_le_bytes()),
            WorkerReport::Prepared => message(PREPARED, &[]),
            WorkerReport::Kept => message(KEPT, &[]),
            WorkerReport::Refused(why) => {
                let why: Vec<u8> = why.bytes().take(WORDS_MAX).collect();
                message(REFUSED, &why)
            }
            WorkerReport::Reloaded(edition) => message(RELOADED, &edition.to_le_bytes()),
            WorkerReport::ChallengeShown(number) => message(CHALLENGE_SHOWN, &number.to_le_bytes()),
            WorkerReport::NotReloaded(edition, why) => {
                let mut body = edition.to_le_bytes().to_vec();
                body.extend(why.bytes().take(WORDS_MAX));
                message(NOT_RELOADED, &body)
            }
        }
    }

    pub(crate) fn decode(kind: u8, body: &[u8]) -> io::Result<WorkerReport> {
        match (kind, body) {
            (READY, []) => Ok(WorkerReport::Ready),
            (QUIET, []) => Ok(WorkerReport::Quiet),
            (PREPARING, &[a, b, c, d]) => Ok(WorkerReport::Preparing(Pid(i32::from_le_bytes([
                a, b, c, d,
            ])))),
            (PREPARED, []) => Ok(WorkerReport::Prepared),
            (KEPT, []) => Ok(WorkerReport::Kept),
            (REFUSED, why) => Ok(WorkerReport::Refused(
                String::from_utf8_lossy(why).into_owned(),
            )),
            (RELOADED, edition) => Ok(WorkerReport::Reloaded(number(edition)?)),
            (CHALLENGE_SHOWN, of_it) => Ok(WorkerReport::ChallengeShown(number(of_it)?)),
            (NOT_RELOADED, body) => {
                let (edition, why) = body.split_at_checked(8).ok_or(io::ErrorKind::InvalidData)?;
                let why = String::from_utf8_lossy(why).into_owned();
                Ok(WorkerReport::NotReloaded(number(edition)?, why))
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn message(kind: u8, body: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut message = Zeroizing::new(Vec::with_capacity(1 + body.len()));
    message.push(kind);
    message.extend_from_slice(body);
    message
}

/// Main: sends an order. An error: there is no worker any more, nor a keeper who could start one;
/// or it has not read its orders for so long that no more fit.
pub fn send_order(channel: Fd, order: &Order) -> io::Result<()> {
    send(channel, &order.encode(), order.descriptors())
}

/// Worker: sends a report. If main is gone there is nobody to tell, and no harm in that.
pub fn send_report(channel: Fd, report: &WorkerReport) {
    let _ = send(channel, &report.encode(), &[]);
}

fn send(channel: Fd, bytes: &[u8], descriptors: &[Fd]) -> io::Result<()> {
    match socket::send_message(channel, bytes, descriptors)? {
        Attempt::Done(()) => Ok(()),
        Attempt::WouldBlock => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Worker: the next order, if one has come. An error: main is gone, or says what makes no sense.
pub fn receive_order(channel: Fd) -> io::Result<Option<Order>> {
    let mut buffer = Zeroizing::new(vec![0; MESSAGE_MAX]);
    // Descriptors must outlive this worker, as everything in the shared table.
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

/// Main: the next report, if one has come, and the process that has sent it. An error: there is neither
/// worker nor keeper, or it was no report.
pub fn receive_report(channel: Fd) -> io::Result<Option<(WorkerReport, Pid)>> {
    let mut buffer = vec![0; MESSAGE_MAX];
    let Attempt::Done(words) = socket::receive_plain_message(channel, &mut buffer)? else {
        return Ok(None);
    };
    let (kind, body) = split(&buffer, words.len)?;
    let word = WorkerReport::decode(kind, body)?;
    Ok(Some((word, words.sender.ok_or_else(invalid)?)))
}

/// The first byte of a message, and what follows it.
fn split(buffer: &[u8], len: usize) -> io::Result<(u8, &[u8])> {
    let split = buffer.get(..len).and_then(<[u8]>::split_first);
    let (kind, body) = split.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((*kind, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_reactor::process;

    #[test]
    fn orders_arrive_as_they_were_given() {
        let (main, worker) = socket::channel(OnExec::Close).expect("a channel");
        socket::name_senders(main).expect("an option of sockets");
        assert!(receive_order(worker).expect("nothing yet").is_none());
        let keys = Zeroizing::new(vec![7; 300]);
        send_order(main, &Order::TicketKeys(keys.clone())).expect("given");
        send_order(main, &Order::Stop).expect("given");
        match receive_order(worker).expect("an order") {
            Some(Order::TicketKeys(got)) => assert_eq!(got, keys),
            _ => panic!("not ticket keys"),
        }
        assert!(matches!(receive_order(worker), Ok(Some(Order::Stop))));
        assert!(receive_report(main).expect("nothing yet").is_none());
        let (order, over_ms) = (DrainOrder::Shortest, 600_000);
        send_order(main, &Order::Drain { over_ms, order }).expect("given");
        match receive_order(worker).expect("an order") {
            Some(Order::Drain { over_ms, order }) => {
                assert_eq!((over_ms, order), (600_000, DrainOrder::Shortest));
            }
            _ => panic!("not a drain"),
        }
        let name = "db.example:5432".to_owned();
        let addresses = ["10.0.0.1:5432", "[fd00::1]:5432"].map(|a| a.parse().expect("one"));
        let addresses = addresses.to_vec();
        let (told, found) = (name.clone(), addresses.clone());
        send_order(main, &Order::Addresses { name, addresses }).expect("given");
        match receive_order(worker).expect("an order") {
            Some(Order::Addresses { name, addresses }) => {
                assert_eq!((name, addresses), (told, found));
            }
            _ => panic!("not addresses"),
        }
        for shown in [None, Some(Zeroizing::new("a.example\nPEM".to_owned()))] {
            send_order(main, &Order::Challenge(9, shown.clone())).expect("given");
            let got = receive_order(worker).expect("an order");
            assert!(matches!(got, Some(Order::Challenge(9, got)) if got == shown));
        }
        let (handover, edition) = (main, 7);
        send_order(main, &Order::Reload { handover, edition }).expect("given");
        match receive_order(worker).expect("an order") {
            Some(Order::Reload { handover, edition }) => {
                assert_eq!(edition, 7);
                handover.close();
            }
            _ => panic!("not a reload"),
        }
        for word in [
            WorkerReport::Ready,
            WorkerReport::Reloaded(u64::MAX),
            WorkerReport::Preparing(Pid(77)),
            WorkerReport::Prepared,
            WorkerReport::Kept,
            WorkerReport::ChallengeShown(9),
            WorkerReport::NotReloaded(3, "because".to_owned()),
        ] {
            send_report(worker, &word);
            let said = (word, process::pid());
            assert_eq!(receive_report(main).expect("a word"), Some(said));
        }
        main.close();
        assert!(receive_order(worker).is_err(), "main is gone");
        worker.close();
    }

    #[test]
    fn what_is_no_order_is_refused() {
        let (main, worker) = socket::channel(OnExec::Close).expect("a channel");
        for bytes in [
            &b"?"[..],
            b"Sx",
            b"C",
            b"C12345678",
            b"D1234567",
            b"Nx",
            b"Nx\ny",
            b"T1234567",
        ] {
            send(main, bytes, &[]).expect("sent");
            let refused = receive_order(worker).err().map(|error| error.kind());
            assert_eq!(refused, Some(io::ErrorKind::InvalidData), "{bytes:?}");
        }
        main.close();
        worker.close();
    }
}
