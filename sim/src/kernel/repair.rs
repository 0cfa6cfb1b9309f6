//! The state of a simulated tcp-repair ([`super::repair_steps`]).
//!
//! What survives a death is what the kernel and main hold: both directions of the channel, the records, the table, and
//! sockets that somebody has a descriptor of.

use super::stream::EndId;
use dormouse_rest::{Message, Phase, Record, Records, Subject};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Messages that a channel holds in one direction.
pub(super) const CHANNEL: usize = 8;

/// A message in a channel, with the socket whose descriptor goes with it.
pub(super) type Carried = (Message, Option<EndId>);

/// What a simulated tcp-repair and its successors have done.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepairCounts {
    /// Steps, between which it may die.
    pub steps: u64,
    /// Deaths.
    pub deaths: u64,
    /// Connections taken out of the kernel.
    pub rests: u64,
    /// Connections brought back.
    pub wakes: u64,
    /// The steps of a worker that is never killed: of its first request, and of the last message that it has taken.
    pub worker_steps: [u64; 2],
}

/// Death in the middle of a task.
pub(super) struct Death;

/// The state of everything that deep rest is made of.
pub(crate) struct Repair {
    pub(super) records: Records,
    /// The end of each record in use.
    pub(super) ends: BTreeMap<u32, EndId>,
    /// Ends whose socket sends and receives nothing.
    pub(super) mute: BTreeSet<EndId>,
    /// Ends that have no socket.
    pub(super) out: BTreeSet<EndId>,
    /// Ends of which packets go to the process.
    pub(super) table: BTreeSet<EndId>,
    pub(super) to_worker: VecDeque<Carried>,
    pub(super) to_repair: VecDeque<Carried>,
    /// What follows is in the memory of the process.
    pub(super) process: Process,
    /// Steps until the process dies; then until its successor does.
    pub(crate) deaths: Vec<u64>,
    /// When peers repeat packets for which there was no room.
    pub(super) repeat_us: Option<u64>,
    pub(crate) counts: RepairCounts,
}

#[derive(Default)]
pub(super) struct Process {
    pub(super) unsent: VecDeque<Message>,
    pub(super) woken: u32,
    pub(super) room: u32,
    /// Records of which the worker has not said yet what it has.
    pub(super) recalled: BTreeSet<u32>,
}

impl Repair {
    /// A process that has just begun.
    pub(crate) fn begin(records: Records, deaths: Vec<u64>) -> Repair {
        Repair {
            records,
            ends: BTreeMap::new(),
            mute: BTreeSet::new(),
            out: BTreeSet::new(),
            table: BTreeSet::new(),
            to_worker: VecDeque::new(),
            to_repair: VecDeque::new(),
            process: Process {
                unsent: VecDeque::from([Message::new(Subject::Begun, 0)]),
                ..Process::default()
            },
            deaths,
            repeat_us: None,
            counts: RepairCounts::default(),
        }
    }

    /// Whether a socket is silent, or none is there.
    pub(crate) fn is_silent(&self, end: EndId) -> bool {
        self.mute.contains(&end) || self.out.contains(&end)
    }

    /// Whether a message on its way holds this socket.
    pub(super) fn carries(&self, end: EndId) -> bool {
        let all = self.to_worker.iter().chain(&self.to_repair);
        all.filter_map(|(_, carried)| *carried)
            .any(|carried| carried == end)
    }

    /// When something happens without a message.
    pub(crate) fn repeat_us(&self) -> Option<u64> {
        self.repeat_us
    }

    /// What is left at the end of a simulation, if anything is.
    pub(crate) fn leftovers(&self) -> Option<String> {
        let left = [
            self.ends.len(),
            self.mute.len(),
            self.out.len(),
            self.table.len(),
        ];
        (left != [0; 4]).then(|| {
            format!("{left:?} records, mute sockets, resting connections and entries in the table")
        })
    }

    /// Whether connections rest, or messages are on their way.
    pub(crate) fn is_busy(&self) -> bool {
        !self.ends.is_empty() || !self.to_worker.is_empty() || !self.to_repair.is_empty()
    }

    pub(crate) fn is_readable(&self) -> bool {
        !self.to_worker.is_empty()
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.to_repair.len() < CHANNEL
    }

    pub(super) fn phase(&self, record: u32) -> Phase {
        self.records.get(record).map_or(Phase::Free, Record::phase)
    }

    pub(super) fn step(&mut self) -> Result<(), Death> {
        self.counts.steps += 1;
        match self.deaths.last_mut() {
            Some(1) => {
                self.deaths.pop();
                Err(Death)
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(super) fn set_phase(&mut self, record: u32, phase: Phase) {
        if let Some(record) = self.records.get_mut(record) {
            record.set_phase(phase);
        }
    }

    pub(super) fn free(&mut self, record: u32) {
        self.ends.remove(&record);
        if let Some(record) = self.records.get_mut(record) {
            *record = Record::default();
        }
    }

    pub(super) fn send(&mut self, message: Message) {
        self.process.unsent.push_back(message);
    }

    pub(super) fn send_unsent(&mut self) -> Result<(), Death> {
        while self.to_worker.len() < CHANNEL {
            let Some(message) = self.process.unsent.front().copied() else {
                break;
            };
            self.step()?;
            self.to_worker.push_back((message, None));
            self.step()?;
            self.process.unsent.pop_front();
            if message.subject == Subject::Go {
                self.free(message.record);
            }
        }
        Ok(())
    }
}
