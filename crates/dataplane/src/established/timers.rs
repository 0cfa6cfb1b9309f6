//! The timer of a connection: each slot has one, chosen by the connection's state.

use crate::established::interest::may_read_tls;
use dormouse_handover::share::Limits;
use dormouse_handover::slot::{Flag, Phase, Slot, TimerPurpose};
use dormouse_reactor::Fd;

/// Interval at which a draining connection's send queue is checked.
const DRAIN_CHECK_MS: u64 = 100;

/// Time until the retry of a connect that had no descriptor or port.
const RETRY_CONNECT_MS: u64 = 200;

/// Returns the purpose and duration of the timer that the slot needs. `None`: that timer is running.
pub(crate) fn change(
    slot: &Slot,
    limits: &Limits,
    now_ms: u64,
) -> Option<(TimerPurpose, Option<u64>)> {
    let (purpose, after_ms) = required(slot, limits, now_ms);
    // A partial record keeps its deadline. If a record was completed since, this is a new one.
    let restart = purpose == TimerPurpose::PartialRecord && slot.has(Flag::RecordCompleted);
    (purpose != slot.timer_purpose() || restart).then_some((purpose, after_ms))
}

fn required(slot: &Slot, limits: &Limits, now_ms: u64) -> (TimerPurpose, Option<u64>) {
    match slot.phase() {
        Phase::Connecting if slot.awaits_client() => quiet(slot, limits, now_ms),
        Phase::Connecting if slot.plain_fd() == Fd::NONE => {
            (TimerPurpose::RetryConnect, Some(RETRY_CONNECT_MS))
        }
        Phase::Connecting => (
            TimerPurpose::Connect,
            Some(limits.backend_connect_timeout_ms),
        ),
        Phase::Draining => (TimerPurpose::Drain, Some(DRAIN_CHECK_MS)),
        Phase::Established | Phase::Warm if has_partial(slot) && is_up_to_peer(slot) => (
            TimerPurpose::PartialRecord,
            Some(limits.partial_record_timeout_ms),
        ),
        Phase::Established => quiet(slot, limits, now_ms),
        Phase::Warm => match limits.total_timeout_ms {
            // A local client gets at least the other half.
            Some(total_ms) => {
                let due_ms = slot.opened_by_ms() + total_ms / 2;
                (TimerPurpose::Idle, Some(due_ms.saturating_sub(now_ms)))
            }
            None => (TimerPurpose::None, None),
        },
        Phase::Free => (TimerPurpose::None, None),
    }
}

/// Whether the beginning of a record has arrived: it is stored, or stays in the kernel because memory is short.
fn has_partial(slot: &Slot) -> bool {
    slot.partial_len > 0 || slot.has(Flag::AwaitsRecord)
}

/// Whether the TLS peer can complete its record: not while we do not read it, and not after its end. (A starved connection
/// is tried again and again. When memory is short, its timer is what frees the memory of records that never end.)
fn is_up_to_peer(slot: &Slot) -> bool {
    may_read_tls(slot) || (slot.has(Flag::Starved) && !slot.has(Flag::Paced))
}

/// The timer of a quiet connection. Events do not move it. When it fires, it checks the slot and is armed
/// again for the rest of the time.
fn quiet(slot: &Slot, limits: &Limits, now_ms: u64) -> (TimerPurpose, Option<u64>) {
    let idle_ms = limits.idle_timeout_ms;
    let idle_ms = idle_ms.map(|idle_ms| slot.active_until_ms() + idle_ms);
    let total_ms = limits.total_timeout_ms;
    let total_ms = total_ms.map(|total_ms| slot.opened_by_ms() + total_ms);
    match idle_ms.into_iter().chain(total_ms).min() {
        Some(due_ms) => (
            TimerPurpose::Idle,
            Some(due_ms.saturating_sub(now_ms).max(1000)),
        ),
        None => (TimerPurpose::None, None),
    }
}
