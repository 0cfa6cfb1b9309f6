//! Slots of fixed size in shared memory, which hold the connections at rest.
//!
//! A slab is a memory file: a header ([`Header`]), then `capacity` slots of `T`. A slot is plain old data, and
//! all-zero means free. Invariants:
//!
//! - The slots are authoritative. The set of free slots is in the heap of the process that uses them, and
//!   rebuilt from the slots ([`Slab::adopt`]).
//! - A free slot is all zero: it is wiped when it is freed, before its descriptors are closed.
//! - The lowest free index is used first, so that live slots stay together. Groups of 64 slots that become
//!   empty are returned to the operating system; a few are kept, so that churn does not cost a system call per
//!   close.
//! - A page of slots is not touched, not even read, before one of its slots is used.

mod foreign;
mod header;
mod looks;
mod occupancy;

pub use foreign::Foreign;
pub use header::{Header, NOTES};
pub use looks::looks;

use std::io;
use std::marker::PhantomData;
use std::ops::Range;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::memory::{self, Mapping, PAGE};
use crate::step::step;
use crate::{AdoptError, Fd};
use header::{HEADER_LEN, Move};
use looks::note_look;
use occupancy::{GROUP, Occupancy};

/// Maximum number of slots of a slab.
pub const MAX_CAPACITY: u32 = 1 << 24;

/// Number of empty groups that keep their pages, so that the next connection finds them warm.
const SPARE_GROUPS: usize = 4;

/// The contents of a slot: plain old data without padding or pointers. The all-zero value means "free".
pub trait Slot: FromBytes + IntoBytes + Immutable + KnownLayout {}
impl<T: FromBytes + IntoBytes + Immutable + KnownLayout> Slot for T {}

/// Slots of type `T` in shared memory.
///
/// The size of `T` must be a multiple of 64 bytes, so that a group of 64 slots covers whole pages and no slot
/// shares a cache line with another.
#[derive(Debug)]
pub struct Slab<T> {
    header: Header,
    slots: Mapping,
    occupancy: Occupancy,
    /// Empty groups whose pages still use memory, in no order.
    spare: Vec<u32>,
    capacity: u32,
    slot: PhantomData<T>,
}

/// Findings of an adoption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adopted {
    /// The slot that the dead worker was working on. Its contents are in doubt. The mark stays set until
    /// [`Header::clear_busy`].
    pub busy: Option<u32>,
    /// A slot that was being moved: it is complete, at the second index. The caller must update references to
    /// the first index, and then call [`Slab::settle_move`].
    pub moved: Option<(u32, u32)>,
    /// Number of live slots.
    pub live: u32,
}

impl<T: Slot> Slab<T> {
    const SLOT_BYTES: usize = {
        assert!(size_of::<T>() > 0 && size_of::<T>().is_multiple_of(64));
        assert!(align_of::<T>() <= PAGE);
        size_of::<T>()
    };

    /// Creates a slab. `layout` is the caller's version of `T`; the header stores it, and an adoption checks
    /// it. The descriptor stays open over an exec.
    ///
    /// # Errors
    /// The operating system's error; `InvalidInput` if the capacity is 0 or above [`MAX_CAPACITY`].
    pub fn create(name: &str, capacity: u32, layout: u32) -> io::Result<Slab<T>> {
        if capacity == 0 || capacity > MAX_CAPACITY {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the capacity of a slab must be 1 to {MAX_CAPACITY} slots, not {capacity}"),
            ));
        }
        let fd = memory::create_file(name, HEADER_LEN + Self::slots_len(capacity))?;
        let build = || -> io::Result<Slab<T>> {
            let header = Header::create(fd, layout, Self::SLOT_BYTES as u32, capacity)?;
            let slots = Mapping::window(fd, HEADER_LEN, Self::slots_len(capacity))?;
            Ok(Slab::of_free_slots(header, slots, capacity))
        };
        build().inspect_err(|_| fd.close())
    }

    fn of_free_slots(header: Header, slots: Mapping, capacity: u32) -> Slab<T> {
        Slab {
            header,
            slots,
            occupancy: Occupancy::new(capacity),
            spare: Vec::with_capacity(SPARE_GROUPS + 1),
            capacity,
            slot: PhantomData,
        }
    }

    /// Adopts the slab of a dead process. `is_live` decides whether a slot is in use; every other slot is
    /// wiped. Pages without memory are not touched.
    ///
    /// # Errors
    /// The memory is not a slab of this layout, or the operating system's error.
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
        let mut slab = Slab::of_free_slots(header, slots, capacity);
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

    /// Returns the descriptor of the memory file.
    pub fn fd(&self) -> Fd {
        self.slots.fd()
    }

    /// Returns the header: busy mark, epoll descriptor, heartbeat, notes. Clone it to use it while a slot is
    /// borrowed.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the maximum number of live slots.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns the number of live slots.
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

    /// Takes the lowest free slot, which is all zero. Returns `None` if all are in use.
    pub fn insert(&mut self) -> Option<u32> {
        let index = self.occupancy.lowest_free()?;
        self.occupancy.take(index);
        let group = index / GROUP;
        self.spare.retain(|&spare| spare != group);
        Some(index)
    }

    /// Returns the slot, if it is in use.
    pub fn get(&self, index: u32) -> Option<&T> {
        if !self.occupancy.is_taken(index) {
            return None;
        }
        note_look();
        T::ref_from_bytes(self.slots.bytes().get(Self::range(index))?).ok()
    }

    /// Returns the slot for changes, if it is in use.
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        if !self.occupancy.is_taken(index) {
            return None;
        }
        note_look();
        T::mut_from_bytes(self.slots.bytes_mut().get_mut(Self::range(index))?).ok()
    }

    /// Returns a slot that is in use.
    ///
    /// # Panics
    /// It is not in use. Whatever named it is wrong about its connections, and must not go on.
    #[track_caller]
    pub fn at(&self, index: u32) -> &T {
        self.get(index).expect("the slot is in use")
    }

    /// Returns a slot that is in use, for changes.
    ///
    /// # Panics
    /// As [`Slab::at`].
    #[track_caller]
    pub fn at_mut(&mut self, index: u32) -> &mut T {
        self.get_mut(index).expect("the slot is in use")
    }

    /// Iterates over the slots in use, in order, with their indexes.
    pub fn all(&self) -> impl Iterator<Item = (u32, &T)> {
        self.indices().map(move |index| (index, self.at(index)))
    }

    /// Wipes and frees the slot. Returns false if it was not in use.
    ///
    /// Close the descriptors in the slot *after* this: a slot must never hold a descriptor that might already
    /// belong to another connection.
    pub fn free(&mut self, index: u32) -> bool {
        if !self.occupancy.is_taken(index) {
            return false;
        }
        step();
        self.slots.wipe(Self::range(index));
        step();
        self.occupancy.release(index);
        let group = index / GROUP;
        if self.occupancy.is_group_empty(group) {
            self.spare.push(group);
            if self.spare.len() > SPARE_GROUPS {
                // The lowest groups are reused first, so the highest one is returned.
                self.give_back_highest_spare();
            }
        }
        true
    }

    /// Iterates over the indexes of live slots, in order.
    pub fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let index = self.occupancy.next_taken(from)?;
            from = index + 1;
            Some(index)
        })
    }

    /// Returns the first live slot at or after `from`, for iteration while slots change.
    pub fn next_live(&self, from: u32) -> Option<u32> {
        self.occupancy.next_taken(from)
    }

    /// Returns the last live slot before `below`, for iteration in descending order while slots change.
    pub fn last_live(&self, below: u32) -> Option<u32> {
        self.occupancy.last_taken(below)
    }

    /// Returns the last live slot: the first candidate for [`Slab::relocate`].
    pub fn highest_live(&self) -> Option<u32> {
        self.occupancy.highest_taken()
    }

    /// Moves a slot to the lowest free index, if that is lower, and returns the new index. This frees pages
    /// after connections have closed at random.
    ///
    /// The caller must update everything that refers to the slot by its index (epoll, timers, owners of pending
    /// bytes) and then call [`Slab::settle_move`], before any other operation on the slab. A process that dies
    /// in between leaves a note in the header: after the adoption the slot is complete, and [`Adopted::moved`]
    /// names the indexes.
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
        self.header.set_move(Some(Move::Updating { from, to }));
        Some(to)
    }

    /// Completes a move, after all references to the slot were updated.
    pub fn settle_move(&mut self) {
        self.header.set_move(None);
    }

    /// Returns the pages of all empty groups, including those kept for reuse.
    pub fn trim(&mut self) {
        while !self.spare.is_empty() {
            self.give_back_highest_spare();
        }
    }

    /// Returns the bytes of memory that the slots use.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn resident_bytes(&self) -> io::Result<usize> {
        self.slots.resident_bytes()
    }

    fn give_back_highest_spare(&mut self) {
        let Some(at) = (0..self.spare.len()).max_by_key(|&at| self.spare[at]) else {
            return;
        };
        let group = self.spare.swap_remove(at);
        // A failure only costs memory; the pages are already zero.
        let _ = self.slots.punch(Self::group_range(group));
    }

    /// Completes the move of a dead worker. Returns the move if references must be updated.
    fn finish_move(&mut self) -> Option<(u32, u32)> {
        match self.header.unfinished_move()? {
            // The original is intact: discard the copy.
            Move::Copying { to, .. } => {
                self.slots.wipe(Self::range(to));
                self.header.set_move(None);
                None
            }
            // The copy is complete: clear the original.
            Move::Clearing { from, to } => {
                self.slots.wipe(Self::range(from));
                self.header.set_move(Some(Move::Updating { from, to }));
                Some((from, to))
            }
            Move::Updating { from, to } => Some((from, to)),
        }
    }

    /// Reads all slots that use memory, and returns the groups without a live slot.
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
        // Only now are the empty groups known, because a group can span several ranges.
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

    /// Returns the slot's range. Indexes are below `MAX_CAPACITY`, so this cannot overflow.
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
