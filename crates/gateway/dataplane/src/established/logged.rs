//! Entries and lines of established connections in the connection log.

use crate::client::{Client, ConnectionId};
use crate::close_reason::CloseReason;
use crate::connection_log::{Ending, code_of_suite};
use crate::established::begin::First;
use crate::io::{Io, peer_address};
use crate::workspace::Workspace;
use dormouse_engine::{FirstFlight, HandshakeInfo, fingerprint};
use dormouse_handover::fingerprint::ShortFingerprint;
use dormouse_handover::log_entries::{LogEntries, LogEntry, Opened};
use dormouse_handover::slot::Slot;
use dormouse_reactor::slab::Slab;
use dormouse_record::Role;
use std::net::SocketAddr;

/// Creates the log entry of a connection that begins with this event.
pub(crate) fn begin<I: Io>(index: u32, slot: &Slot, first: &First, work: &mut Workspace<I>) {
    if work.connection_log.logs(slot)
        && let Some(entry) = entry(first, &work.io, work.now_ms)
    {
        work.connection_log.begin(index, &entry);
        write_begin(index, slot, work);
    }
}

/// Writes the line of a connection that has begun, if there are such lines.
pub(crate) fn write_begin<I: Io>(index: u32, slot: &Slot, work: &mut Workspace<I>) {
    if work.connection_log.logs_begin(slot) {
        let (now_ms, unix_ms) = (work.now_ms, work.io.unix_ms());
        let id = ConnectionId::of(slot, work.id_seed);
        let log = &mut work.connection_log;
        log.write_begin(index, slot, id, (now_ms, unix_ms), &work.count);
    }
}

/// Writes the line of the connection in this slot, which is about to be freed. `reason`: the reason
/// of its end, if no step has noted one.
pub(crate) fn write_line<I: Io>(
    slots: &Slab<Slot>,
    index: u32,
    reason: Option<CloseReason>,
    work: &mut Workspace<I>,
) {
    // The facts below cost a system call, so they are collected only for a line.
    let Some(slot) = slots
        .get(index)
        .filter(|slot| work.connection_log.logs(slot))
    else {
        return;
    };
    let backend = match slot.tls.role() {
        Role::Client => slot.tls_fd(),
        Role::Server => slot.plain_fd(),
    };
    let ending = Ending {
        now_ms: work.now_ms,
        unix_ms: work.io.unix_ms(),
        id: ConnectionId::of(slot, work.id_seed),
        reason,
        backend: peer_address(&work.io, backend),
        is_last_of_page: is_last_of_page(slots, index),
    };
    work.connection_log.end(index, slot, ending, &work.count);
}

/// Whether all other slots with entries in the same page are free.
pub(crate) fn is_last_of_page(slots: &Slab<Slot>, index: u32) -> bool {
    let page = LogEntries::neighbours(index);
    let live = |from: u32| slots.next_live(from).filter(|next| page.contains(next));
    let mut next = live(page.start);
    while let Some(found) = next {
        if found != index {
            return false;
        }
        next = live(found + 1);
    }
    true
}

/// The entry of a connection that begins with this event. `None`: the connection gets no line.
fn entry(first: &First, io: &impl Io, now_ms: u64) -> Option<LogEntry> {
    match first {
        First::Terminated {
            rested,
            client,
            took_ms,
        } => {
            let accepted_ms = now_ms.saturating_sub(*took_ms);
            let opened = opened(&rested.info, accepted_ms, client.address());
            Some(LogEntry::new(&opened))
        }
        First::PassedThrough { received, client } => Some(passed_through(received, client, now_ms)),
        // The far end of a joint has no line of its own: the client's connection has it.
        First::Originated {
            client: Some(client),
            ..
        } if client.is_joined() => None,
        First::Originated {
            rested,
            client: Some(client),
            took_ms,
        } => {
            let accepted_ms = now_ms.saturating_sub(*took_ms);
            let opened = opened(&rested.info, accepted_ms, peer_address(io, client.fd));
            Some(LogEntry::new(&opened))
        }
        First::Originated {
            rested,
            client: None,
            ..
        } => Some(LogEntry::waiting(&opened(&rested.info, now_ms, None))),
    }
}

fn opened(info: &HandshakeInfo, accepted_ms: u64, client: Option<SocketAddr>) -> Opened<'_> {
    Opened {
        accepted_ms,
        client,
        sni: info.sni.as_deref(),
        alpn: info.alpn.as_deref(),
        resumed: info.resumed,
        suite: code_of_suite(info.suite),
        certificate: info.fingerprint.map(ShortFingerprint::of),
        peer_certificate: (info.peer_certificates.first())
            .map(|own| ShortFingerprint::of(fingerprint(own))),
        standing: info.standing,
    }
}

fn passed_through(received: &[u8], client: &Client, now_ms: u64) -> LogEntry {
    let sni = match FirstFlight::of(received) {
        FirstFlight::ClientHello(hello) => hello.server_name,
        FirstFlight::Other | FirstFlight::Incomplete => None,
    };
    LogEntry::new(&Opened {
        accepted_ms: now_ms,
        client: client.address(),
        sni: sni.as_deref(),
        ..Opened::default()
    })
}
