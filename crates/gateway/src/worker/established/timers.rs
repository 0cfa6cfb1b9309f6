//! What happens in its time: the one timer that each slot has, deadlines of handshakes, and what is
//! looked at again and again while it lasts.

use crate::counters::Count;
use crate::slot::{Flag, Phase, Slot, TimerPurpose};
use crate::worker::Worker;
use crate::worker::established::flow::Allowance;
use crate::worker::established::opening;
use crate::worker::io::Io;
use dormouse_reactor::Fd;

/// How often a draining connection's send queue is looked at.
const DRAIN_LOOK_MS: u64 = 100;

/// Connections of a predecessor whose queues are looked at per turn.
const SURVEYED_PER_TURN: u32 = 128;

/// How soon a connect is tried again for which there was no descriptor or port.
const RETRY_CONNECT_MS: u64 = 200;

impl<I: Io> Worker<I> {
    /// Which timer the slot's state asks for; armed when it is not the one that runs.
    pub(crate) fn set_timer(&mut self, index: u32) {
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        let (purpose, after_ms) = self.timer_for(slot);
        let running = slot.timer_purpose();
        // A partial record has its deadline already, unless one was completed since: then this is
        // another record.
        let restart = purpose == TimerPurpose::PartialRecord && slot.has(Flag::RecordCompleted);
        if purpose == running && !restart {
            return;
        }
        match after_ms {
            Some(after_ms) => {
                self.wheel
                    .arm(&mut self.slots, index, self.now_ms + after_ms);
            }
            None => self.wheel.cancel(&mut self.slots, index),
        }
        if let Some(slot) = self.slots.get_mut(index) {
            slot.set_timer_purpose(purpose);
            slot.clear(Flag::RecordCompleted);
        }
    }

    fn timer_for(&self, slot: &Slot) -> (TimerPurpose, Option<u64>) {
        let limits = &self.limits;
        match slot.phase() {
            Phase::Connecting if slot.plain_fd() == Fd::NONE => {
                (TimerPurpose::RetryConnect, Some(RETRY_CONNECT_MS))
            }
            Phase::Connecting => (
                TimerPurpose::Connect,
                Some(limits.backend_connect_timeout_ms),
            ),
            Phase::Draining => (TimerPurpose::Drain, Some(DRAIN_LOOK_MS)),
            // While we do not read, a record can't be completed.
            Phase::Established | Phase::Warm if slot.partial_len > 0 && !slot.has(Flag::Paced) => (
                TimerPurpose::PartialRecord,
                Some(limits.partial_record_timeout_ms),
            ),
            Phase::Established => {
                // Not moved at every event: when it runs out it looks at the slot, and runs on for
                // what is left.
                let idle_ms = limits.idle_timeout_ms;
                let idle_ms = idle_ms.map(|idle_ms| slot.active_until_ms() + idle_ms);
                let total_ms = limits.total_timeout_ms;
                let total_ms = total_ms.map(|total_ms| slot.opened_by_ms() + total_ms);
                match idle_ms.into_iter().chain(total_ms).min() {
                    Some(due_ms) => (
                        TimerPurpose::Idle,
                        Some(due_ms.saturating_sub(self.now_ms).max(1000)),
                    ),
                    None => (TimerPurpose::None, None),
                }
            }
            Phase::Warm | Phase::Free => (TimerPurpose::None, None),
        }
    }

    pub(crate) fn on_time(&mut self) {
        while let Some(index) = self.wheel.expired(self.now_ms, &mut self.slots) {
            if self.is_beyond_doubt(index) {
                self.slots.header().mark_busy(index);
                let over = self.work(index, |work, slot| work.timer(slot));
                self.finish_work(index, over);
            }
        }
        let timeout_ms = self.limits.handshake_timeout_ms;
        while let Some((index, generation)) = self.handshakes.next_expired(self.now_ms, timeout_ms)
        {
            self.end_handshake_in_time(index, generation);
        }
        self.end_originations_in_time();
        self.refill_warm();
        let tickets_done = self.tools.tickets.expire(self.now_ms);
        self.look_at_queues();
        self.feed_starved();
        self.end_waits();
        if self.handshakes.burst_ended() || tickets_done {
            self.tools.io.return_heap();
            self.slots.trim();
            self.tools.pending.trim();
        }
        self.compact();
        self.attend_to_ends();
        let count = &self.tools.count;
        count.set(Count::Connections, u64::from(self.slots.live()));
        count.set(Count::AtRest, u64::from(self.at_rest));
        let in_flight = self.handshakes.live() + self.originations.live();
        count.set(Count::Handshaking, in_flight as u64);
        count.set(Count::Warm, self.originations.warm());
        count.set(
            Count::PendingBytes,
            self.tools.pending.bytes_in_use() as u64,
        );
        count.set(Count::PacedNow, self.tools.paced.len() as u64);
        count.set(Count::KernelBytes, self.tools.kernel.sum() as u64);
        self.update_accepting();
    }

    /// Those who were not read for want of memory are looked at again.
    fn feed_starved(&mut self) {
        for (_, index, generation, wait_ms) in self.tools.starved.due(self.now_ms) {
            let Some(slot) = self.slots.get_mut(index) else {
                continue;
            };
            if slot.generation != generation || !slot.is_starved() {
                continue;
            }
            let mut goes_on = false;
            for (flow, towards) in [
                (Flag::Starved, opening::towards(slot)),
                (Flag::SealingStarved, slot.tls_fd()),
            ] {
                if slot.has(flow) && self.tools.allowance(towards) != Allowance::Nothing {
                    slot.clear(flow);
                    goes_on = true;
                }
            }
            if slot.is_starved() {
                let now_ms = self.now_ms;
                self.tools.starved.push(index, generation, now_ms, wait_ms);
            }
            if goes_on {
                self.apply_interest(index);
            }
        }
    }

    /// Send queues drain without a word: when little is left for others they are looked at. So are,
    /// once, those which a predecessor left.
    fn look_at_queues(&mut self) {
        for index in self.tools.kernel.next_looks(self.now_ms) {
            self.note_queues(index);
        }
        for _ in 0..SURVEYED_PER_TURN {
            let next = self.survey_from.and_then(|from| self.slots.next_live(from));
            self.survey_from = next.map(|index| index + 1);
            match next {
                Some(index) => self.note_queues(index),
                None => return,
            }
        }
    }
}
