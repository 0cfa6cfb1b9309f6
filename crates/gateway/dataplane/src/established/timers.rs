//! The timer of a connection: each slot has one, chosen by the connection's state.

use crate::established::interest::may_read_tls;
use crate::established::{close, deep_rest};
use crate::settings::Times;
use dormouse_handover::share::Limits;
use dormouse_handover::slot::{Flag, Phase, Slot, TimerPurpose};
use dormouse_reactor::Fd;
use std::ops::RangeInclusive;

/// Maximum place of a connection in the spread of a timeout.
const PLACES: u64 = 1 << 16;

/// Bounds of the time over which connections end that a reload of timeouts has found overdue. Between them, it is the new
/// timeout: at that rate connections end in any case.
const SPREAD_MS: RangeInclusive<u64> = 10_000..=600_000;

/// Interval at which a draining connection's send queue is checked.
const DRAIN_CHECK_MS: u64 = 100;

/// Time until the retry of a connect that had no descriptor or port.
const RETRY_CONNECT_MS: u64 = 200;

/// Returns the purpose and duration of the timer that the slot needs. `None`: that timer is running.
pub(crate) fn change(
    slot: &Slot,
    times: Times<'_>,
    now_ms: u64,
) -> Option<(TimerPurpose, Option<u64>)> {
    let (purpose, after_ms) = required(slot, times, now_ms);
    // A partial record keeps its deadline. If a record was completed since, this is a new one.
    let restart = purpose == TimerPurpose::PartialRecord && slot.has(Flag::RecordCompleted);
    (purpose != slot.timer_purpose() || restart).then_some((purpose, after_ms))
}

fn required(slot: &Slot, times: Times<'_>, now_ms: u64) -> (TimerPurpose, Option<u64>) {
    match slot.phase() {
        Phase::Connecting if slot.awaits_client() => quiet(slot, times, now_ms),
        Phase::Connecting if slot.plain_fd() == Fd::NONE => {
            (TimerPurpose::RetryConnect, Some(RETRY_CONNECT_MS))
        }
        Phase::Connecting => (TimerPurpose::Connect, Some(times.lifetime.connect_ms)),
        Phase::Draining => (TimerPurpose::Drain, Some(DRAIN_CHECK_MS)),
        Phase::Established | Phase::Warm if has_partial(slot) && is_up_to_peer(slot) => {
            (TimerPurpose::PartialRecord, Some(times.lifetime.record_ms))
        }
        Phase::Established => quiet(slot, times, now_ms),
        // A local client gets at least the other half.
        Phase::Warm => {
            match due_within_ms(slot, times.limits, times.lifetime.total_ms.map(|ms| ms / 2)) {
                Some(due_ms) => (TimerPurpose::Idle, Some(due_ms.saturating_sub(now_ms))),
                None => (TimerPurpose::None, None),
            }
        }
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
fn quiet(slot: &Slot, times: Times<'_>, now_ms: u64) -> (TimerPurpose, Option<u64>) {
    if slot.is_wanted() {
        return (TimerPurpose::Rest, Some(deep_rest::REPEAT_MS));
    }
    let idle_ms = idle_due_ms(slot, times);
    let total_ms = total_due_ms(slot, times);
    let end_ms = idle_ms.into_iter().chain(total_ms).min();
    if let Some(after_ms) = times.lifetime.rest_after_ms
        && let Some(due_ms) = rest_due_ms(slot, after_ms, end_ms, now_ms)
    {
        return (TimerPurpose::Rest, Some(due_ms - now_ms));
    }
    match end_ms {
        Some(due_ms) => (
            TimerPurpose::Idle,
            Some(due_ms.saturating_sub(now_ms).max(1000)),
        ),
        None => (TimerPurpose::None, None),
    }
}

/// When the connection goes to rest. `None`: not before it ends at `end_ms`.
fn rest_due_ms(slot: &Slot, after_ms: u64, end_ms: Option<u64>, now_ms: u64) -> Option<u64> {
    deep_rest::next_side(slot)?;
    // Counted from the beginning of a second: a connection may rest before its time, but must not end before it.
    let due_ms = u64::from(slot.active_s) * 1000 + after_ms;
    let due_ms = due_ms.max(now_ms + deep_rest::pause_ms(slot));
    end_ms
        .is_none_or(|end_ms| due_ms < end_ms)
        .then_some(due_ms)
}

/// When the connection is idle for too long. `None`: never.
pub(super) fn idle_due_ms(slot: &Slot, times: Times<'_>) -> Option<u64> {
    let (limits, idle_ms) = (times.limits, times.lifetime.idle_ms?);
    // Longer, because clients that ping within the timeout must not lose.
    let more_ms = part(jitter_ms(idle_ms, limits), place(slot));
    let due_ms = slot.active_until_ms() + idle_ms + more_ms;
    Some(due_ms.max(after_reload_ms(
        slot,
        limits,
        idle_ms,
        slot.active_until_ms(),
    )))
}

/// When the connection is too old. `None`: never.
pub(super) fn total_due_ms(slot: &Slot, times: Times<'_>) -> Option<u64> {
    due_within_ms(slot, times.limits, times.lifetime.total_ms)
}

/// When the connection is older than `total_ms`. `None`: never.
fn due_within_ms(slot: &Slot, limits: &Limits, total_ms: Option<u64>) -> Option<u64> {
    let total_ms = total_ms?;
    // Shorter, because it is a maximum.
    let less_ms = part(jitter_ms(total_ms, limits), PLACES - place(slot));
    let due_ms = slot.opened_by_ms() + total_ms - less_ms;
    Some(due_ms.max(after_reload_ms(slot, limits, total_ms, slot.opened_by_ms())))
}

/// Before this time, a reload of timeouts does not end a connection that has waited since `from_ms`: those that it finds
/// overdue do not end together.
fn after_reload_ms(slot: &Slot, limits: &Limits, timeout_ms: u64, from_ms: u64) -> u64 {
    let since_ms = limits.timeouts_since_ms;
    if from_ms >= since_ms {
        return 0;
    }
    let spread_ms = timeout_ms.clamp(*SPREAD_MS.start(), *SPREAD_MS.end());
    since_ms + part(spread_ms, place(slot))
}

fn jitter_ms(timeout_ms: u64, limits: &Limits) -> u64 {
    timeout_ms / 100 * u64::from(limits.timeout_jitter)
}

fn part(ms: u64, place: u64) -> u64 {
    (u128::from(ms) * u128::from(place) / u128::from(PLACES)) as u64
}

/// The place of a connection in the spread, which it keeps for life, also in another worker. Multiples of the golden ratio
/// are spread evenly, whichever connections are left.
fn place(slot: &Slot) -> u64 {
    const GOLDEN_RATIO: u32 = 0x9E37_79B9;
    // Of two halves, the backend's ends first.
    if slot.is_joined() && !close::is_backend_half(slot) {
        return PLACES;
    }
    u64::from(slot.generation.wrapping_mul(GOLDEN_RATIO) >> 16)
}
