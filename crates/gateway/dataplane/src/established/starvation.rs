//! The end of a wait for memory, for the rest of a record, or for a destination to drain.

use crate::established::context::Context;
use crate::established::fault::Flow;
use crate::established::interest::{may_read_plain, may_read_tls};
use crate::established::{opening, sealing};
use crate::io::Io;
use crate::memory::allowance::{Check, OPENING, SEALING};
use crate::memory::kernel::Wish;
use crate::token::Side;
use crate::workspace::Workspace;
use dormouse_handover::slot::{Flag, Slot};

/// Resumes the flows that a step would read now: the rule is that of the step. Returns whether there are some.
pub(crate) fn resume(slot: &mut Slot, work: &mut Workspace<impl Io>) -> bool {
    let mut is_resumed = false;
    if slot.has(Flag::Starved) || slot.has(Flag::AwaitsRecord) {
        let check = opening::check(slot, work);
        note(check, work);
        if check == Check::Reads {
            OPENING.resume(slot);
            slot.clear(Flag::AwaitsRecord);
            is_resumed = true;
        }
    }
    if slot.has(Flag::SealingStarved) {
        let check = sealing::check(slot, work);
        note(check, work);
        if check == Check::Reads {
            SEALING.resume(slot);
            is_resumed = true;
        }
    }
    is_resumed
}

fn note(check: Check, work: &mut Workspace<impl Io>) {
    if check == Check::Wants {
        work.kernel.note_wanted(Wish::Old, work.now_ms);
    }
}

/// Resumes the flow whose destination has drained: `side` is writable. Returns whether the other side is to be read, in
/// which the step applies its rule again.
pub(crate) fn on_drained(slot: &mut Slot, side: Side) -> bool {
    let opening_goes_to = match slot.is_echo() {
        true => Side::Tls,
        false => Side::Plain,
    };
    if slot.has(Flag::OpeningHeld) && side == opening_goes_to {
        OPENING.resume(slot);
        return side == Side::Plain;
    }
    let has_drained = slot.has(Flag::SealingHeld) && side == Side::Tls;
    if has_drained {
        SEALING.resume(slot);
    }
    has_drained
}

/// Reads the side opposite to `side`, whose wait is over.
pub(crate) fn read_other(slot: &mut Slot, side: Side, cx: &mut Context<'_, impl Io>) -> Flow {
    match side {
        Side::Plain if may_read_tls(slot) => opening::read_tls(slot, cx),
        Side::Tls if may_read_plain(slot) => sealing::read_plain(slot, cx),
        _ => Ok(()),
    }
}
