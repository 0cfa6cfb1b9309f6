//! Which connections may leave the kernel, and when; what other parts of the worker must know of those that have.
//! `waking.rs` makes the transitions.

use crate::token::Side;
use crate::workspace::Workspace;
use dormouse_handover::slot::{Flag, Phase, PlainSide, SIDES, SideRest, Slot};
use dormouse_reactor::Fd;
use dormouse_record::Role;
use std::net::SocketAddr;

/// Time until a wake is asked for again. The repair process may have had no memory, or too many to do.
pub(super) const REPEAT_MS: u64 = 1_000;

/// Unit of the time between two attempts to rest, which doubles with each refusal.
const ATTEMPT_MS: u64 = 25;
/// The number of attempts from which on that time grows no more: 3.2 s.
const ATTEMPTS_MAX: u8 = 7;
/// In place of a number of attempts: this connection cannot rest.
pub(super) const NEVER: u8 = u8::MAX;

/// The side that may go to bed next. `None`: the connection is not quiet, or no other side of it can rest.
pub(super) fn next_side(slot: &Slot) -> Option<Side> {
    let may_rest = |side| slot.side_rest(side) == SideRest::Awake && can_rest(slot, side);
    let is_on_its_way =
        slot.side_rest(Side::Tls) != SideRest::Awake && slot.side_rest(Side::Tls) != SideRest::Abed;
    if slot.tried() == NEVER || !is_quiet(slot) || is_on_its_way || slot.is_wanted() {
        return None;
    }
    match slot.side_rest(Side::Tls) {
        SideRest::Abed => Some(Side::Plain).filter(|side| may_rest(*side)),
        _ => Some(Side::Tls).filter(|side| may_rest(*side)),
    }
}

/// Whether nothing is under way in either direction.
fn is_quiet(slot: &Slot) -> bool {
    slot.at_rest()
        && slot.phase() != Phase::Warm
        && !slot.is_starved()
        && !slot.has(Flag::Paced)
        && !slot.has(Flag::OpeningBlocked)
        && !slot.has(Flag::PlainEnded)
        && !slot.has(Flag::PlainShut)
        && !slot.has(Flag::TlsShut)
        && !slot.has_tls_ended()
        && !slot.sealing_over()
}

/// Whether a side can be a TCP connection that may be made into a socket again: that of a client, or that to a backend.
fn can_rest(slot: &Slot, side: Side) -> bool {
    let is_route = slot.has(Flag::PassThrough) || slot.tls.role() == Role::Server;
    let is_socket = match side {
        Side::Tls => true,
        Side::Plain => slot.plain_side() == PlainSide::Tcp && slot.plain_fd() != Fd::NONE,
    };
    is_route && is_socket
}

/// The least time until the next attempt to rest.
pub(super) fn pause_ms(slot: &Slot) -> u64 {
    match slot.tried() {
        0 => ATTEMPT_MS,
        attempts => ATTEMPT_MS << attempts.min(ATTEMPTS_MAX),
    }
}

/// Doubles the time until the next attempt.
pub(super) fn put_off(slot: &mut Slot) {
    let attempts = slot.tried().saturating_add(1).min(ATTEMPTS_MAX);
    slot.set_tried(attempts);
}

/// Takes the place and the records of a connection whose slot is about to be freed.
pub(super) fn forget<I>(index: u32, slot: &Slot, work: &mut Workspace<I>) {
    if let Some(link) = &mut work.repair {
        link.places.leave(index);
        if !slot.is_dormant() {
            return;
        }
        for side in SIDES {
            match slot.side_rest(side) {
                SideRest::Awake | SideRest::Between | SideRest::Gone => {}
                rest => link.forget(side, slot.record(side), rest),
            }
        }
    }
}

/// Notes the new slot of a connection that was moved.
pub(super) fn moved<I>(slot: &Slot, from: u32, to: u32, work: &mut Workspace<I>) {
    if let Some(link) = &mut work.repair {
        link.places.moved(from, to);
        for side in SIDES {
            if let SideRest::Bedding | SideRest::Abed | SideRest::Waking = slot.side_rest(side) {
                link.own(slot.record(side), to);
            }
        }
    }
}

/// The address of a client whose connection is abed.
pub(crate) fn address_of_client<I>(slot: &Slot, work: &Workspace<I>) -> Option<SocketAddr> {
    let link = work.repair.as_ref()?;
    let is_abed = slot.side_rest(Side::Tls) == SideRest::Abed;
    let ends = is_abed.then(|| link.resting(slot.record(Side::Tls)))?;
    ends.map(|ends| ends.peer)
}
