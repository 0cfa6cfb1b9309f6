//! Assembles received bytes into records, and passes them on one at a time.
//!
//! Invariants:
//!
//! - `buffer[..fed]` is what rustls has seen and not discarded. rustls keeps offsets into it, so it is only
//!   shortened from the front, by rustls' own count.
//! - `buffer[fed..]` is the start of one incomplete record.
//! - Bytes after the current record are never taken: they stay with the caller. This keeps application data,
//!   and a KeyUpdate right after Finished, away from rustls.
//!
//! Every byte is copied once and inspected once, so a ClientHello in 16,000 segments costs 16,000 small
//! appends.

use zeroize::Zeroize;

use super::record_rules::HEADER_LEN;

/// Most client flights are smaller, so most handshakes never grow it.
const FIRST_CAPACITY: usize = 512;

#[derive(Default)]
pub(crate) struct RecordAssembler {
    buffer: Vec<u8>,
    fed: usize,
    /// Start of the last complete record.
    last: usize,
    taken: usize,
}

impl RecordAssembler {
    /// Takes the bytes from `received` that complete the next record. Returns true if there is another record
    /// to show, false if `received` is used up. `judge` returns a record's payload length from its header, or
    /// refuses it.
    pub(crate) fn complete_record<E>(
        &mut self,
        received: &mut &[u8],
        judge: impl Fn([u8; HEADER_LEN]) -> Result<usize, E>,
    ) -> Result<bool, E> {
        loop {
            let partial = self.buffer.get(self.fed..).unwrap_or_default();
            let header = partial.first_chunk();
            let need = HEADER_LEN + header.map_or(Ok(0), |header| judge(*header))?;
            if header.is_some() && partial.len() >= need {
                self.last = self.fed;
                self.fed = self.buffer.len();
                return Ok(true);
            }
            let missing = need - partial.len();
            let Some((piece, rest)) = received.split_at_checked(missing.min(received.len())) else {
                return Ok(false);
            };
            if piece.is_empty() {
                return Ok(false);
            }
            self.make_room(piece.len(), need);
            self.buffer.extend_from_slice(piece);
            self.taken += piece.len();
            *received = rest;
        }
    }

    /// Makes room for `more` bytes of a record of `need` bytes. A vector that grows by itself would leave its former bytes
    /// in memory.
    fn make_room(&mut self, more: usize, need: usize) {
        let (len, capacity) = (self.buffer.len(), self.buffer.capacity());
        if capacity - len >= more {
            return;
        }
        let room = (len + more).max(2 * capacity);
        let room = if capacity == 0 {
            FIRST_CAPACITY.max(need)
        } else {
            room
        };
        let mut larger = Vec::with_capacity(room);
        larger.extend_from_slice(&self.buffer);
        let mut former = std::mem::replace(&mut self.buffer, larger);
        former.zeroize();
    }

    /// Returns the record that was just completed, before rustls sees it.
    pub(crate) fn completed(&self) -> &[u8] {
        self.buffer.get(self.last..self.fed).unwrap_or_default()
    }

    /// As [`RecordAssembler::completed`].
    pub(crate) fn completed_mut(&mut self) -> &mut [u8] {
        self.buffer.get_mut(self.last..self.fed).unwrap_or_default()
    }

    /// Whether the record that was just completed is the only one here, because rustls has consumed all earlier
    /// ones.
    pub(crate) fn is_alone(&self) -> bool {
        self.last == 0
    }

    /// Returns the bytes that rustls may see.
    pub(crate) fn shown(&mut self) -> &mut [u8] {
        self.buffer.get_mut(..self.fed).unwrap_or_default()
    }

    /// Drops the first `count` bytes, which rustls has consumed.
    pub(crate) fn discard(&mut self, count: usize) {
        let count = count.min(self.fed);
        if count > 0 {
            self.buffer.drain(..count);
            self.fed -= count;
        }
    }

    /// Drops all bytes that rustls may see. It must have no offset into them.
    pub(crate) fn discard_shown(&mut self) {
        self.discard(self.fed);
    }

    /// Frees the buffer if it is empty.
    pub(crate) fn release(&mut self) {
        if self.buffer.is_empty() {
            self.buffer.zeroize();
            self.buffer = Vec::new();
        }
    }

    /// Returns the number of bytes that complete the next header, or the record with this header.
    pub(crate) fn missing(&self) -> usize {
        let partial = self.buffer.get(self.fed..).unwrap_or_default();
        let len = match *partial {
            [_, _, _, high, low, ..] => usize::from(u16::from_be_bytes([high, low])),
            _ => 0,
        };
        (HEADER_LEN + len).saturating_sub(partial.len())
    }

    /// Returns the number of bytes taken from the caller so far.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Returns the heap capacity of the buffer.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Whether nothing is buffered, neither complete nor partial.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }
}

impl Drop for RecordAssembler {
    fn drop(&mut self) {
        // rustls decrypts in place, so handshake plaintext (certificates) may be left here.
        self.buffer.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_RECORDS: [u8; 16] = [
        22, 3, 1, 0, 3, b'a', b'b', b'c', 23, 3, 3, 0, 2, b'x', b'y', 99,
    ];

    fn complete(assembler: &mut RecordAssembler, received: &mut &[u8]) -> bool {
        let judge = |[_, _, _, high, low]: [u8; HEADER_LEN]| {
            Ok::<_, ()>(usize::from(u16::from_be_bytes([high, low])))
        };
        assembler.complete_record(received, judge).unwrap()
    }

    #[test]
    fn one_record_at_a_time_at_every_cut() {
        for cut in 0..TWO_RECORDS.len() {
            let (first, second) = TWO_RECORDS.split_at(cut);
            let mut assembler = RecordAssembler::default();
            let mut records = Vec::new();
            for mut part in [first, second] {
                while complete(&mut assembler, &mut part) {
                    assert_eq!(assembler.completed().to_vec(), assembler.shown().to_vec());
                    records.push(assembler.shown().to_vec());
                    let shown = assembler.shown().len();
                    assembler.discard(shown);
                }
                assert!(part.is_empty());
                let ends = [5, 8, 13, 15];
                let next = ends.into_iter().find(|&end| end > assembler.taken());
                let next = next.unwrap_or(8 + 7 + 5);
                assert_eq!(assembler.missing(), next - assembler.taken());
            }
            assert_eq!(records, [&TWO_RECORDS[..8], &TWO_RECORDS[8..15]]);
            assert!(!assembler.is_empty());
        }
    }

    #[test]
    fn a_long_record_in_small_pieces() {
        let mut record = vec![22, 3, 3, 0x20, 0];
        record.extend((0..0x2000).map(|n| n as u8));
        let mut assembler = RecordAssembler::default();
        for mut piece in record.chunks(100) {
            let is_last = piece.as_ptr_range().end == record.as_ptr_range().end;
            assert_eq!(complete(&mut assembler, &mut piece), is_last);
        }
        assert_eq!(assembler.shown(), record);
        assert!(assembler.capacity() <= 2 * record.len());
    }

    #[test]
    fn bytes_after_a_record_stay_with_the_caller() {
        let mut assembler = RecordAssembler::default();
        let mut received = &TWO_RECORDS[..];
        assert!(complete(&mut assembler, &mut received));
        assert_eq!(assembler.shown(), &TWO_RECORDS[..8]);
        assert_eq!(received, &TWO_RECORDS[8..]);
        assert_eq!(assembler.taken(), 8);
    }
}
