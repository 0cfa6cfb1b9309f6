//! Paced connections: rate-limited by `bytes_per_client` or `max_bytes_per_second`.
//!
//! The worker reads neither side of a paced connection, so both senders have to wait. It drops no
//! received bytes, and notices closed sockets after the wait. The end of a wait is known, so the
//! worker does not serve the connection before. Both directions count, and they count for the
//! connection that moved the bytes, so a connection with little traffic is not slowed down by others.

use crate::memory::waits::Waits;
use dormouse_handover::slot::{Flag, Phase, Slot};
use dormouse_record::Role;
use dormouse_tables::clients::{ClientLimits, Clients};

/// The paced connections.
pub(crate) type Paced = Waits<()>;

/// The limit that makes a connection wait.
#[derive(Clone, Copy)]
pub(crate) enum PaceLimit {
    /// `bytes_per_client`.
    Client,
    /// `max_bytes_per_second`.
    All,
}

/// Charges the bytes that the step on this slot has received. `Some`: the connection must wait for
/// this many milliseconds, because of this limit.
pub(crate) fn pay(
    slot: &mut Slot,
    received: u64,
    limits: ClientLimits,
    clients: &Clients,
    now_ms: u64,
) -> Option<(u64, PaceLimit)> {
    // Of two slots with a joint between them, only the client's is charged.
    let is_client_side = slot.has(Flag::PassThrough) || slot.tls.role() == Role::Server;
    if received == 0 || !is_client_side || slot.phase() != Phase::Established {
        return None;
    }
    let own_ms = clients.pay(slot.client(), limits, received, now_ms);
    let all_ms = clients.pay_for_all(limits, received, now_ms);
    let wait_ms = own_ms.max(all_ms);
    if wait_ms == 0 || slot.has(Flag::Paced) {
        return None;
    }
    slot.set(Flag::Paced);
    let limit = match own_ms >= all_ms {
        true => PaceLimit::Client,
        false => PaceLimit::All,
    };
    Some((wait_ms, limit))
}
