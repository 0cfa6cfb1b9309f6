//! A slab written by another build: read and converted, never changed.

use super::header::{HEADER_LEN, Header};
use super::{MAX_CAPACITY, Slab, Slot};
use crate::memory::{self, Mapping, PAGE};
use crate::{AdoptError, Fd};
use std::ops::Range;

/// A slab whose slots may have another version and size than this build's.
#[derive(Debug)]
pub struct Foreign {
    header: Header,
    slots: Mapping,
    slot_bytes: usize,
    /// What has memory, asked once: later the descriptor's number may be that of another file.
    data: Vec<Range<usize>>,
}

impl Foreign {
    /// Maps a slab of any layout without changing it.
    ///
    /// # Errors
    /// It is not a slab, its header version is unknown, or it cannot be mapped.
    pub fn open(fd: Fd) -> Result<Foreign, AdoptError> {
        let header = Header::open(fd)?;
        let slot_bytes = header.slot_bytes() as usize;
        let known = slot_bytes.clamp(64, PAGE).next_multiple_of(64);
        AdoptError::check("slot size", slot_bytes as u64, known as u64)?;
        let capacity = header.capacity();
        let in_range = u64::from(capacity.clamp(1, MAX_CAPACITY));
        AdoptError::check("capacity", capacity.into(), in_range)?;
        let len = (capacity as usize * slot_bytes).next_multiple_of(PAGE);
        memory::check_file(fd, HEADER_LEN + len)?;
        let slots =
            Mapping::window(fd, HEADER_LEN, len).map_err(AdoptError::system("map memory"))?;
        let data = slots
            .data()
            .map_err(AdoptError::system("find used pages"))?;
        Ok(Foreign {
            header,
            slots,
            slot_bytes,
            data,
        })
    }

    /// Returns its header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Calls `each` for the slots that are not all zero, in order, until `each` fails. Does not touch pages
    /// without memory.
    ///
    /// # Errors
    /// The error of `each`, or the operating system's error, converted to it.
    pub fn for_each<E: From<std::io::Error>>(
        &self,
        mut each: impl FnMut(u32, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut next = 0;
        for data in &self.data {
            let first = (data.start / self.slot_bytes).max(next);
            let last = data.end.div_ceil(self.slot_bytes);
            for index in first..last.min(self.header.capacity() as usize) {
                let at = index * self.slot_bytes;
                let bytes = self.slots.bytes().get(at..at + self.slot_bytes);
                if let Some(bytes) = bytes.filter(|bytes| bytes.iter().any(|&byte| byte != 0)) {
                    each(index as u32, bytes)?;
                }
            }
            next = last;
        }
        Ok(())
    }

    /// Overwrites every slot with zeros, after its contents were moved elsewhere.
    pub fn wipe(mut self) {
        for data in std::mem::take(&mut self.data) {
            self.slots.wipe(data);
        }
    }
}

impl<T: Slot> Slab<T> {
    /// Puts a slot at the same index as in the slab that this one is converted from, because epoll and pending
    /// memory refer to that index. Returns false if the index does not exist or is in use.
    pub fn put(&mut self, index: u32, slot: &T) -> bool {
        if index >= self.capacity || !self.occupancy.take(index) {
            return false;
        }
        let room = self.slots.bytes_mut().get_mut(Self::range(index));
        match room {
            Some(room) => room.copy_from_slice(slot.as_bytes()),
            None => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    struct Old([u64; 8]);

    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    struct New([u64; 16]);

    #[test]
    fn slots_of_another_size_keep_their_places() {
        let mut old = Slab::<Old>::create("old", 1000, 7).unwrap();
        for number in 0..500 {
            let index = old.insert().unwrap();
            old.get_mut(index).unwrap().0[7] = number + 1;
        }
        for index in (0..500).step_by(3) {
            old.free(index);
        }
        let foreign = Foreign::open(old.fd()).unwrap();
        assert_eq!(foreign.header().layout(), 7);
        let mut new = Slab::<New>::create("new", 1000, 8).unwrap();
        let all = foreign.for_each(|index, bytes| -> std::io::Result<()> {
            let mut slot = New([0; 16]);
            slot.0[15] = Old::ref_from_bytes(bytes).unwrap().0[7];
            assert!(new.put(index, &slot));
            assert!(!new.put(index, &slot), "the index is in use");
            Ok(())
        });
        all.unwrap();
        assert_eq!(new.live(), old.live());
        for index in old.indices() {
            assert_eq!(new.get(index).unwrap().0[15], u64::from(index) + 1);
        }
        assert!(!new.put(1000, &New([0; 16])), "the index does not exist");
        foreign.wipe();
        assert!(
            old.indices()
                .all(|index| old.get(index).unwrap().0 == [0; 8])
        );
        old.fd().close();
        new.fd().close();
    }

    /// In an upgrade the new slab gets the old one's descriptor number before the old memory is wiped.
    #[test]
    fn all_of_the_old_memory_is_wiped() {
        let mut old = Slab::<New>::create("old", 1000, 7).unwrap();
        for number in 0..1000 {
            let index = old.insert().unwrap();
            old.get_mut(index).unwrap().0[7] = number + 1;
        }
        let foreign = Foreign::open(old.fd()).unwrap();
        let new = Slab::<Old>::create("new", 1000, 8).unwrap();
        new.fd().move_to(old.fd()).unwrap();
        foreign.wipe();
        let all = 0..1000;
        assert!(
            all.into_iter()
                .all(|index| old.get(index).unwrap().0 == [0; 16])
        );
        old.fd().close();
    }
}
