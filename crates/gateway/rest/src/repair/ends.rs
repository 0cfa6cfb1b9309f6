//! Connections whose peers have vanished, and those that a predecessor left behind.

use std::io;

use dormouse_reactor::Fd;
use dormouse_reactor::tcp_state::Muted;

use super::{Repair, gone};
use crate::message::{Message, Subject};
use crate::record::{Phase, Record};
use crate::segment::acknowledge;

impl Repair {
    // ---- peers that have vanished ----

    /// Asks some silent peers whether they live, and ends connections whose peers have not answered.
    pub(super) fn probe(&mut self, now_ms: u64) -> io::Result<()> {
        let records = &self.records;
        let interval_s = self.keepalive.interval_s;
        let would_be_heard = self.crowding.is_over(now_ms, interval_s);
        for number in self.rounds.next(now_ms, interval_s, || records.in_use())? {
            let Some(record) = self.records.get_mut(number) else {
                continue;
            };
            let is_silent = record.silent_s(now_ms) >= self.keepalive.idle_s;
            if record.phase() != Phase::Resting || !is_silent {
                continue;
            }
            if would_be_heard {
                if u32::from(record.unanswered) >= self.keepalive.count {
                    self.end(number)?;
                    continue;
                }
                record.unanswered = record.unanswered.saturating_add(1).min(Record::FAILED - 1);
            }
            let (mut packet, peer) = (Vec::new(), record.state.peer());
            acknowledge(&record.state, true, 0, &mut packet);
            self.send_raw(&packet, Some(peer));
            self.counts.probed += 1;
        }
        Ok(())
    }

    /// Ends a connection that rests, without a packet.
    pub(super) fn end(&mut self, number: u32) -> io::Result<()> {
        let Some(record) = self.records.get_mut(number) else {
            return Ok(());
        };
        record.set_phase(Phase::Gone);
        let message = gone(number, record);
        // Afterwards, or a successor would find a connection that rests and hears nothing.
        self.leave_table(number);
        self.counts.gone += 1;
        self.send(message)
    }

    // ---- after the death of a predecessor ----

    /// Asks the workers for connections that a predecessor was waking, and tells them of those that have ended.
    pub(super) fn recall(&mut self) -> io::Result<()> {
        for number in self.records.in_use()?.into_iter().flatten() {
            let message = match self.records.get(number) {
                Some(record) if record.phase() == Phase::Gone => gone(number, record),
                Some(record) if record.phase() == Phase::Waking => {
                    self.recalled.insert(number);
                    Message::new(Subject::Recall, number)
                }
                _ => continue,
            };
            let worker = self.worker_of(number);
            if let Some(worker) = self.workers.get_mut(worker) {
                worker.unsent.push_back(message);
            }
        }
        Ok(())
    }

    /// Asks a worker again that is new: its predecessor may have died with the question.
    pub(super) fn recall_again(&mut self, worker: usize) -> io::Result<()> {
        let unanswered: Vec<u32> = (self.recalled.iter().copied())
            .filter(|record| self.worker_of(*record) == worker)
            .collect();
        for record in unanswered {
            self.send(Message::new(Subject::Recall, record))?;
        }
        Ok(())
    }

    /// Finishes a wake if the worker has the descriptor. If it never had one, the socket died with the predecessor,
    /// and the record rests.
    pub(super) fn settle(
        &mut self,
        number: u32,
        found: Option<Fd>,
        has_ended: bool,
    ) -> io::Result<()> {
        self.recalled.remove(&number);
        let phase = self.records.get(number).map(Record::phase);
        if phase != Some(Phase::Waking) {
            return Ok(());
        }
        match found {
            None if has_ended => {
                self.free(number);
                Ok(())
            }
            None => self.rest_again(number).map(|_| ()),
            Some(fd) => match Muted::of(fd).release() {
                Ok(_) => {
                    self.leave_table(number);
                    self.send(Message::new(Subject::Go, number))
                }
                // Not what it was sent.
                Err(_) => self.rest_again(number).map(|_| ()),
            },
        }
    }
}
