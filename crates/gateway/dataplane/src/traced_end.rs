//! The log line of a traced connection's end.

use crate::client::ConnectionId;
use crate::close_reason::{CloseReason, Party, Sides};
use crate::io::{Io, peer_address};
use crate::workspace::Workspace;
use dormouse_handover::slot::Slot;
use dormouse_record::Role;

/// Writes the end of a connection, if its client is traced. What a former worker kept of the client is lost: then a client
/// behind a proxy is not known any more, and no client whose socket is not connected any more.
pub(crate) fn log<I: Io>(slot: &Slot, reason: CloseReason, work: &Workspace<I>) {
    if work.traces.are_over(work.now_ms) {
        return;
    }
    let client = match slot.tls.role() {
        Role::Server => slot.tls_fd(),
        Role::Client => slot.plain_fd(),
    };
    let kept = work.traces.take_client(slot);
    let Some(peer) = kept.or_else(|| peer_address(&work.io, client)) else {
        return;
    };
    if work.traces.takes(Some(peer.ip()), work.now_ms) {
        let first = match slot.has_tls_ended() {
            true => Sides::of(slot).tls,
            false => Sides::of(slot).plain,
        };
        let (end, by) = reason.end_and_by(Sides::of(slot), first);
        let by = Party::name(by);
        let id = ConnectionId::of(slot, work.id_seed);
        let age_s = (work.now_ms / 1000).saturating_sub(slot.opened_s.into());
        tracing::info!(%peer, %id, end, by, age_s, "connection ended");
    }
}
