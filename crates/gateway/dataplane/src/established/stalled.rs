//! The log line of a connection that ends because its peer takes nothing.

use crate::bursts::{Place, Subject};
use crate::client::ConnectionId;
use crate::io::{Io, PeerName};
use crate::memory::holders::Stall;
use crate::settings::Settings;
use crate::workspace::Workspace;
use dormouse_handover::slot::Slot;

/// Logs the end. `is_by_route`: by the limit of its route, whether or not memory is short.
pub(super) fn log<I: Io>(
    slot: &Slot,
    stall: Stall,
    is_by_route: bool,
    settings: &Settings,
    work: &mut Workspace<I>,
) {
    let route = settings.route_or_removed(slot.route).name.as_str();
    let peer = PeerName::new(&work.io, slot.tls_fd());
    let id = ConnectionId::of(slot, work.id_seed);
    let reason = stall.describe();
    let place = Place::Route(slot.route);
    work.bursts.note(Subject::Stalled, place, work.now_ms, |more| {
        match is_by_route {
            true => {
                tracing::info!(route, %id, %peer, reason, more, "no progress for route_stall_timeout; connection closed");
            }
            false => {
                tracing::info!(route, %id, %peer, reason, more, "no progress while memory is short; connection closed");
            }
        }
    });
}
