//! Slots of fixed size in shared memory: where connections rest.
//!
//! A slab is a memory file: a header ([`Header`]), then `capacity` slots of `T`, plain old data,
//! of which all-zero means free. Invariants:
//!
//! - The slots are the truth. Which of them are free is kept in the heap of the process that
//!   works on them, and found again by looking at them ([`Slab::adopt`]).
//! - A free slot is all zero: it is wiped when it is freed, before its descriptors are closed.
//! - The lowest free index is given out first, so that live slots stay together. Groups of 64
//!   slots which became empty are given back to the operating system; a few are kept, so that
//!   churn does not cost a system call per close.
//! - A page of slots is not touched before a slot of it is used, not even to look at it.

mod foreign;
mod header;
mod occupancy;

pub use foreign::Foreign;
pub use header::{COUNTERS, Header, NOTES};

use std::io;
use std::marker::PhantomData;
use std::ops::Range;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::memory::{self, Mapping, PAGE};
use crate::{AdoptError, Fd};
use header::{HEADER_LEN, Move};
use occupancy::{GROUP, Occupancy};

/// Most slots of one slab.
pub const MAX_CAPACITY: u32 = 1 << 24;

/// Groups which are empty but keep their pages, so that the next connection finds them warm.
const SPARE_GROUPS: usize = 4;

/// What can lie in a slot: plain old data without padding or pointers, of which the all-zero
/// value means "free".
pub trait Slot: FromBytes + IntoBytes + Immutable + KnownLayout {}
impl<T: FromBytes + IntoBytes + Immutable + KnownLayout> Slot for T {}

/// Slots of type `T` in shared memory.
///
/// The size of `T` must be a multiple of 64 bytes, so that a group of 64 slots is a number of
/// whole pages and no slot shares a cache line with another.
#[derive(Debug)]
pub struct Slab<T> {
    header: Header,
    slots: Mapping,
    occupancy: Occupancy,
    /// Empty groups whose pages were touched and not given back, in no order.
    spare: Vec<u32>,
    capacity: u32,
    slot: PhantomData<T>,
}

/// What was found when a slab was adopted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adopted {
    /// The slot which the dead worker was working on. Its contents are in doubt; the mark is
    /// still set, and stays until [`Header::clear_busy`].
    pub busy: Option<u32>,
    /// A slot which was being moved: it is whole, and at the second index. Who refers to it by
    /// the first must be told; then call [`Slab::settle_move`].
    pub moved: Option<(u32, u32)>,
    /// Live slots.
    pub live: u32,
}

impl<T: Slot> Slab<T> {
    const SLOT_BYTES: usize = {
        assert!(size_of::<T>() > 0 && size_of::<T>().is_multiple_of(64));
        assert!(align_of::<T>() <= PAGE);
        size_of::<T>()
    };

    /// Creates a slab. `layout` is the caller's version of `T`; it is kept in the header, and
    /// asked for when the slab is adopted. The descriptor stays open over an exec.
    ///
    /// # Errors
    /// What the operating system says; `InvalidInput` when the capacity is 0 or beyond
    /// [`MAX_CAPACITY`].
    pub fn create(name: &str, capacity: u32, layout: u32) -> io::Result<Slab<T>> {
        if capacity == 0 || capacity > MAX_CAPACITY {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a slab has 1 to {MAX_CAPACITY} slots, not {capacity}"),
            ));
        }
        let fd = memory::create_file(name, HEADER_LEN + Self::slots_len(capacity))?;
        let build = || -> io::Result<Slab<T>> {
            let header = Header::create(fd, layout, Self::SLOT_BYTES as u32, capacity)?;
            let slots = Mapping::window(fd, HEADER_LEN, Self::slots_len(capacity))?;
            Ok(Slab {
                header,
                slots,
                occupancy: Occupancy::new(capacity),
                spare: Vec::with_capacity(SPARE_GROUPS + 1),
                capacity,
                slot: PhantomData,
            })
        };
        build().inspect_err(|_| fd.close())
    }

    /// Goes on with the slab of a process that is gone. `is_live` says whether a slot is in use;
    /// every other slot is wiped. Pages without memory behind them are not touched.
    ///
    /// # Errors
    /// The memory is not a slab of this layout, or the operating system refuses.
    pub fn adopt(
        fd: Fd,
        layout: u32,
        mut is_live: impl FnMut(u32, &T) -> bool,
    ) -> Result<(Slab<T>, Adopted), AdoptError> {
        let header = Header::open(fd)?;
        AdoptError::check("layout version", header.layout().into(), layout.into())?;
        let capacity = header.capacity();
        let in_range = u64::from(capacity.clamp(1, MAX_CAPACITY));
        AdoptError::check("capacity", capacity.into(), in_range)?;
        memory::check_file(fd, HEADER_LEN + Self::slots_len(capacity))?;
        header.sign(Self::SLOT_BYTES as u32)?;
        let slots = Mapping::window(fd, HEADER_LEN, Self::slots_len(capacity))
            .map_err(AdoptError::system("map memory"))?;
        let mut slab = Slab {
            header,
            slots,
            occupancy: Occupancy::new(capacity),
            spare: Vec::with_capacity(SPARE_GROUPS + 1),
            capacity,
            slot: PhantomData,
        };
        let moved = slab.finish_move();
        slab.survey(&mut is_live)
            .map_err(AdoptError::system("find used pages"))?;
        let adopted = Adopted {
            busy: slab.header.busy(),
            moved,
            live: slab.live(),
        };
        Ok((slab, adopted))
    }

    /// The descriptor of the memory file.
    pub fn fd(&self) -> Fd {
        self.slots.fd()
    }

    /// The header: busy mark, epoll descriptor, heartbeat, counters. Clone it to use it while a
    /// slot is borrowed.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Most slots that can be live at once.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Slots in use.
    pub fn live(&self) -> u32 {
        self.occupancy.count()
    }

    /// Whether every slot is in use.
    pub fn is_full(&self) -> bool {
        self.live() == self.capacity
    }

    /// Whether slot `index` is in use.
    pub fn is_live(&self, index: u32) -> bool {
        self.occupancy.is_taken(index)
    }

    /// Takes the lowest free slot, which is all zero. `None` when all are in use.
    pub fn insert(&mut self) -> Option<u32> {
        let index = self.occupancy.lowest_free()?;
        self.occupancy.take(index);
        let group = index / GROUP;
        self.spare.retain(|&spare| spare != group);
        Some(index)
    }

    /// The slot, if it is in use.
    pub fn get(&self, index: u32) -> Option<&T> {
        if !self.occupancy.is_taken(index) {
            return None;
        }
        T::ref_from_bytes(self.slots.bytes().get(Self::range(index))?).ok()
    }

    /// The slot, to change, if it is in use.
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        if !self.occupancy.is_taken(index) {
            return None;
        }
        T::mut_from_bytes(self.slots.bytes_mut().get_mut(Self::range(index))?).ok()
    }

    /// Wipes the slot and frees it. False when it was not in use.
    ///
    /// The descriptors which are named in it are to be closed *after* this: a slot never names a
    /// descriptor that might be somebody else's already.
    pub fn free(&mut self, index: u32) -> bool {
        if !self.occupancy.is_taken(index) {
            return false;
        }
        self.slots.wipe(Self::range(index));
        self.occupancy.release(index);
        let group = index / GROUP;
        if self.occupancy.is_group_empty(group) {
            self.spare.push(group);
            if self.spare.len() > SPARE_GROUPS {
                // The lowest groups are used again first: let the highest one go.
                self.give_back_highest_spare();
            }
        }
        true
    }

    /// Indices of the slots in use, in order.
    pub fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let index = self.occupancy.next_taken(from)?;
            from = index + 1;
            Some(index)
        })
    }

    /// The first slot in use at or after `from`: to go through all slots while they change.
    pub fn next_live(&self, from: u32) -> Option<u32> {
        self.occupancy.next_taken(from)
    }

    /// The last slot in use: the first candidate for [`Slab::relocate`].
    pub fn highest_live(&self) -> Option<u32> {
        self.occupancy.highest_taken()
    }

    /// Moves a slot to the lowest free index, if that is lower than its own, and returns the new
    /// index. This is how pages come back when connections close at random.
    ///
    /// Whoever refers to the slot by its index (epoll, timers, owners of pending bytes) is to be
    /// told by the caller, who then calls [`Slab::settle_move`], before anything else is done with
    /// the slab. A process that dies in between leaves a note in the header: after the adoption
    /// the slot is whole, and [`Adopted::moved`] says who has to be told.
    pub fn relocate(&mut self, from: u32) -> Option<u32> {
        if !self.occupancy.is_taken(from) {
            return None;
        }
        let to = self.occupancy.lowest_free().filter(|&to| to < from)?;
        self.header.set_move(Some(Move::Copying { from, to }));
        self.slots
            .bytes_mut()
            .copy_within(Self::range(from), Self::range(to).start);
        self.header.set_move(Some(Move::Clearing { from, to }));
        self.occupancy.take(to);
        self.spare.retain(|&spare| spare != to / GROUP);
        self.free(from);
        self.header.set_move(Some(Move::Telling { from, to }));
        Some(to)
    }

    /// Everybody who referred to a slot that was moved has been told.
    pub fn settle_move(&mut self) {
        self.header.set_move(None);
    }

    /// Gives back the pages of all empty groups, also those which are kept for reuse.
    pub fn trim(&mut self) {
        while !self.spare.is_empty() {
            self.give_back_highest_spare();
        }
    }

    /// Bytes of memory behind the slots.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn resident_bytes(&self) -> io::Result<usize> {
        self.slots.resident_bytes()
    }

    fn give_back_highest_spare(&mut self) {
        let Some(at) = (0..self.spare.len()).max_by_key(|&at| self.spare[at]) else {
            return;
        };
        let group = self.spare.swap_remove(at);
        // Refusal costs memory and nothing else; the pages are all zero already.
        let _ = self.slots.punch(Self::group_range(group));
    }

    /// Ends what a dead worker had begun. Returns the move that is to be made known.
    fn finish_move(&mut self) -> Option<(u32, u32)> {
        match self.header.unfinished_move()? {
            // The original is untouched: forget the copy.
            Move::Copying { to, .. } => {
                self.slots.wipe(Self::range(to));
                self.header.set_move(None);
                None
            }
            // The copy is whole: clear the original.
            Move::Clearing { from, to } => {
                self.slots.wipe(Self::range(from));
                self.header.set_move(Some(Move::Telling { from, to }));
                Some((from, to))
            }
            Move::Telling { from, to } => Some((from, to)),
        }
    }

    /// Looks at all slots that have memory, and gives back the groups in which none is live.
    fn survey(&mut self, is_live: &mut impl FnMut(u32, &T) -> bool) -> io::Result<()> {
        let data = self.slots.data()?;
        for data in &data {
            let first = (data.start / Self::SLOT_BYTES) as u32;
            let last = data.end.div_ceil(Self::SLOT_BYTES) as u32;
            for index in first..last.min(self.capacity) {
                let bytes = self.slots.bytes().get(Self::range(index));
                let slot = bytes.and_then(|bytes| T::ref_from_bytes(bytes).ok());
                if slot.is_some_and(|slot| is_live(index, slot)) {
                    self.occupancy.take(index);
                } else if slot.is_some_and(|slot| slot.as_bytes().iter().any(|&b| b != 0)) {
                    self.slots.wipe(Self::range(index));
                }
            }
        }
        // Only now is it known which groups are empty: one may lie in several ranges.
        for data in &data {
            let first = (data.start / Self::SLOT_BYTES) as u32;
            let last = data.end.div_ceil(Self::SLOT_BYTES) as u32;
            for group in first / GROUP..last.div_ceil(GROUP) {
                if self.occupancy.is_group_empty(group) {
                    let _ = self.slots.punch(Self::group_range(group));
                }
            }
        }
        Ok(())
    }

    /// Where the slot lies. Indices are below `MAX_CAPACITY`, so nothing overflows.
    fn range(index: u32) -> Range<usize> {
        let start = index as usize * Self::SLOT_BYTES;
        start..start + Self::SLOT_BYTES
    }

    fn group_range(group: u32) -> Range<usize> {
        let len = GROUP as usize * Self::SLOT_BYTES;
        group as usize * len..(group as usize + 1) * len
    }

    fn slots_len(capacity: u32) -> usize {
        (capacity as usize * Self::SLOT_BYTES).next_multiple_of(PAGE)
    }
}

#[cfg(test)]
mod tests;
