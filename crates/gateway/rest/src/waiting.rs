//! Packets that would wake connections for which their workers have no room. Their senders repeat them, but later and later:
//! after a broadcast, all would come back in the same moment, and most of them in vain. So the packets wait here, in the
//! order in which they came, while there is memory for them.

use std::collections::{HashMap, VecDeque};

/// Maximum bytes of all packets.
const BYTES_MAX: usize = 2 << 20;

/// Bytes of a packet besides its own.
const OVERHEAD: usize = 128;

/// Packets that wait, at most one for each record.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    packets: HashMap<u32, Vec<u8>>,
    /// The records of each worker, some of which wait no more.
    order: Vec<VecDeque<u32>>,
    bytes: usize,
}

impl Waiting {
    /// No packets, for this many workers.
    pub(crate) fn for_workers(workers: usize) -> Waiting {
        Waiting {
            order: vec![VecDeque::new(); workers],
            ..Waiting::default()
        }
    }

    /// Keeps a packet, if there is memory for it. The first one of a record is what its sender repeats.
    pub(crate) fn push(&mut self, worker: usize, record: u32, packet: &[u8]) {
        let cost = packet.len() + OVERHEAD;
        let Some(order) = self.order.get_mut(worker) else {
            return;
        };
        if packet.is_empty() || self.bytes + cost > BYTES_MAX || self.packets.contains_key(&record)
        {
            return;
        }
        self.bytes += cost;
        self.packets.insert(record, packet.to_vec());
        order.push_back(record);
    }

    /// The record of a worker that has waited for the longest time.
    pub(crate) fn next(&mut self, worker: usize) -> Option<u32> {
        let order = self.order.get_mut(worker)?;
        while let Some(record) = order.pop_front() {
            if self.packets.contains_key(&record) {
                return Some(record);
            }
        }
        // It grew in a storm.
        order.shrink_to_fit();
        None
    }

    /// Takes the packet of a record that wakes or ends.
    pub(crate) fn take(&mut self, record: u32) -> Option<Vec<u8>> {
        if self.packets.is_empty() {
            return None;
        }
        let packet = self.packets.remove(&record)?;
        self.bytes -= packet.len() + OVERHEAD;
        if self.packets.is_empty() {
            self.packets.shrink_to_fit();
            self.order.iter_mut().for_each(VecDeque::clear);
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_wait_in_order_one_for_each_record() {
        let mut waiting = Waiting::for_workers(2);
        for record in [5, 3, 9, 3] {
            waiting.push(0, record, &[record as u8; 40]);
        }
        waiting.push(1, 70, b"other");
        waiting.push(2, 71, b"none such");
        waiting.push(1, 72, b"");
        assert_eq!(waiting.take(3).as_deref(), Some(&[3; 40][..]));
        assert_eq!(waiting.next(0), Some(5));
        assert!(waiting.take(5).is_some() && waiting.take(5).is_none());
        assert_eq!((waiting.next(0), waiting.next(0)), (Some(9), None));
        assert_eq!((waiting.next(1), waiting.next(1)), (Some(70), None));
        assert!(waiting.take(9).is_some() && waiting.take(70).is_some());
        assert_eq!((waiting.bytes, waiting.packets.len()), (0, 0));
    }

    #[test]
    fn their_memory_is_bounded() {
        let mut waiting = Waiting::for_workers(1);
        for record in 0..100_000 {
            waiting.push(0, record, &[0; 72]);
        }
        assert_eq!(waiting.packets.len(), BYTES_MAX / 200);
        for record in 0..100_000 {
            waiting.take(record);
        }
        assert_eq!(waiting.bytes, 0);
        assert_eq!(waiting.next(0), None);
    }
}
