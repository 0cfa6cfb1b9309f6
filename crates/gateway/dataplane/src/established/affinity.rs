//! The key by which a connection gets the same backend each time.

use crate::io::Io;
use crate::memory::backlog;
use crate::mqtt;
use crate::workspace::Workspace;
use dormouse_engine::stream::{Ahead, look_ahead};
use dormouse_handover::slot::Slot;
use dormouse_reactor::socket::Attempt;
use dormouse_tables::hash;

/// Maximum length of a first record that is looked at: a CONNECT with a long password is shorter.
const RECORD_MAX: usize = 8 << 10;
/// Time in which a record must arrive that has begun.
const RECORD_MS: u64 = 1_000;

/// The key of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Affinity {
    /// Connections with this key get the same backend.
    Key(u64),
    /// It has none.
    None,
    /// What the key is made of has begun to arrive.
    Awaited,
}

/// The key of a server name.
pub(crate) fn of_name(name: &str) -> u64 {
    hash::of_text(&name.to_ascii_lowercase())
}

/// The key of a client by MQTT, from its first record. The record stays where it is: it is received when the backend
/// is connected.
pub(crate) fn of_first_data<I: Io>(
    slot: &Slot,
    work: &mut Workspace<I>,
    connect_timeout_ms: u64,
) -> Affinity {
    // Later the connection would be given up, instead of getting a backend in turn.
    let until_ms = slot.active_until_ms() + connect_timeout_ms.min(RECORD_MS);
    // Bytes that followed the handshake.
    let stored = backlog::partial(slot, &work.pending);
    let copy = &mut work.scratch.opening[..RECORD_MAX];
    let mut have = stored.len().min(RECORD_MAX);
    copy[..have].copy_from_slice(&stored[..have]);
    if have < RECORD_MAX {
        have += match work.io.peek(slot.tls_fd(), &mut copy[have..]) {
            Ok(Attempt::Done(n)) => n,
            Ok(Attempt::WouldBlock) | Err(_) => 0,
        };
    }
    let copy = &mut copy[..have];
    let affinity = match look_ahead(&slot.tls, copy) {
        Ahead::Data { plaintext } => match mqtt::client_id(&copy[plaintext]) {
            Some(id) => Affinity::Key(hash::of_bytes(id)),
            None => Affinity::None,
        },
        Ahead::Partial { need } if need <= RECORD_MAX && work.now_ms < until_ms => {
            Affinity::Awaited
        }
        Ahead::Partial { .. } | Ahead::Other => Affinity::None,
    };
    work.scratch.note_opened(have);
    affinity
}
