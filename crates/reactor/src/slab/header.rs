//! The first pages of a slab: what its worker says about itself, and what its keeper reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::memory::{self, PAGE, Words};
use crate::step::step;
use crate::{AdoptError, Fd};

/// "dormouse", as the first eight bytes of a slab.
const MAGIC: u64 = u64::from_le_bytes(*b"dormouse");
/// Version of the header itself, apart from the caller's version of its slots.
const HEADER_VERSION: u32 = 1;

/// Room for the header. Only its first page is ever touched; the length keeps the slots aligned
/// to the pages of any machine.
pub(super) const HEADER_LEN: usize = 16 * PAGE;

/// Words which the caller may use as it likes: see [`Header::counter`].
pub const COUNTERS: usize = 128;
/// Words in which the caller notes what its successor needs: see [`Header::note`].
pub const NOTES: usize = 64;

/// Where the words lie. Once written by a released build, this is a format.
mod at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const HEADER_VERSION: usize = 8;
    pub(super) const LAYOUT: usize = 12;
    pub(super) const SLOT_BYTES: usize = 16;
    pub(super) const CAPACITY: usize = 20;
    pub(super) const PID: usize = 24;
    pub(super) const ADOPTIONS: usize = 28;
    pub(super) const BUSY: usize = 64;
    pub(super) const EPOLL: usize = 68;
    pub(super) const MOVE: usize = 72;
    pub(super) const HEARTBEAT: usize = 128;
    pub(super) const NOTES: usize = 512;
    pub(super) const COUNTERS: usize = 1024;
    const _: () = assert!(NOTES + 8 * super::NOTES <= COUNTERS);
    const _: () = assert!(COUNTERS + 8 * super::COUNTERS <= super::PAGE);
}

/// The header of a slab. Cheap to clone, so that marks and counters can be set while a slot is
/// borrowed; all of it is atomic words, so that a keeper may look at it while its worker lives.
#[derive(Clone, Debug)]
pub struct Header {
    words: Arc<Words>,
}

/// A slot that was being moved when its worker died: see [`super::Slab::relocate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Move {
    Copying {
        from: u32,
        to: u32,
    },
    Clearing {
        from: u32,
        to: u32,
    },
    /// The slot is whole at `to`; who refers to it by `from` has yet to be told.
    Telling {
        from: u32,
        to: u32,
    },
}

impl Header {
    /// Looks at the header of a slab without touching its slots: for a keeper.
    ///
    /// # Errors
    /// This is no slab, or one of another header version, or one that could shrink, or it cannot be
    /// mapped.
    pub fn open(slab: Fd) -> Result<Header, AdoptError> {
        // Before it is mapped: a file that ends before the header would kill who looks at it.
        memory::check_beginning(slab, HEADER_LEN)?;
        let words = Words::window(slab, 0, HEADER_LEN).map_err(AdoptError::system("map memory"))?;
        let header = Header {
            words: Arc::new(words),
        };
        let magic = header.word(at::MAGIC).load(Ordering::Acquire);
        AdoptError::check("magic", magic, MAGIC)?;
        let version = header.word32(at::HEADER_VERSION).load(Ordering::Relaxed);
        AdoptError::check("header version", version.into(), HEADER_VERSION.into())?;
        Ok(header)
    }

    /// Writes the header of a new slab.
    pub(super) fn create(
        slab: Fd,
        layout: u32,
        slot_bytes: u32,
        capacity: u32,
    ) -> std::io::Result<Header> {
        let header = Header {
            words: Arc::new(Words::window(slab, 0, HEADER_LEN)?),
        };
        for (offset, value) in [
            (at::HEADER_VERSION, HEADER_VERSION),
            (at::LAYOUT, layout),
            (at::SLOT_BYTES, slot_bytes),
            (at::CAPACITY, capacity),
            (at::EPOLL, Fd::NONE.0 as u32),
            (at::PID, std::process::id()),
        ] {
            header.word32(offset).store(value, Ordering::Relaxed);
        }
        // The magic comes last: a header without it was never finished.
        header.word(at::MAGIC).store(MAGIC, Ordering::Release);
        Ok(header)
    }

    /// Checks that slots are what this build takes them for, and signs for them.
    pub(super) fn sign(&self, slot_bytes: u32) -> Result<(), AdoptError> {
        let found = self.word32(at::SLOT_BYTES).load(Ordering::Relaxed);
        AdoptError::check("slot size", found.into(), slot_bytes.into())?;
        let pid = std::process::id();
        self.word32(at::PID).store(pid, Ordering::Release);
        self.word32(at::ADOPTIONS).fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The caller's version of its slots.
    pub fn layout(&self) -> u32 {
        self.word32(at::LAYOUT).load(Ordering::Relaxed)
    }

    /// Bytes of a slot.
    pub fn slot_bytes(&self) -> u32 {
        self.word32(at::SLOT_BYTES).load(Ordering::Relaxed)
    }

    /// How many slots there are room for.
    pub fn capacity(&self) -> u32 {
        self.word32(at::CAPACITY).load(Ordering::Relaxed)
    }

    /// The process which created or adopted the slab last.
    pub fn pid(&self) -> u32 {
        self.word32(at::PID).load(Ordering::Acquire)
    }

    /// How often the slab was adopted.
    pub fn adoptions(&self) -> u32 {
        self.word32(at::ADOPTIONS).load(Ordering::Relaxed)
    }

    /// Says that slot `index` is being worked on. From here until [`Header::clear_busy`], a
    /// process that dies leaves this slot in doubt, and no other.
    ///
    /// The fence keeps every access to the slot and its sockets behind the mark.
    pub fn mark_busy(&self, index: u32) {
        let mark = index.saturating_add(1);
        step();
        self.word32(at::BUSY).store(mark, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        step();
    }

    /// Says that everything about the busy slot has been written down.
    pub fn clear_busy(&self) {
        fence(Ordering::SeqCst);
        step();
        self.word32(at::BUSY).store(0, Ordering::SeqCst);
        step();
    }

    /// The slot which is being worked on, or was when the worker died.
    pub fn busy(&self) -> Option<u32> {
        self.word32(at::BUSY).load(Ordering::SeqCst).checked_sub(1)
    }

    /// The epoll descriptor of the worker, [`Fd::NONE`] if it has none yet.
    pub fn epoll(&self) -> Fd {
        Fd(self.word32(at::EPOLL).load(Ordering::Acquire) as i32)
    }

    /// Notes the epoll descriptor for the next worker.
    pub fn set_epoll(&self, epoll: Fd) {
        self.word32(at::EPOLL)
            .store(epoll.0 as u32, Ordering::Release);
    }

    /// A word that the worker changes at every turn of its loop (milliseconds of boot time, say),
    /// so that its keeper notices when it hangs.
    pub fn heartbeat(&self) -> &AtomicU64 {
        self.word(at::HEARTBEAT)
    }

    /// A word for the caller's counters. They outlive the worker. `None` from [`COUNTERS`] on.
    pub fn counter(&self, index: usize) -> Option<&AtomicU64> {
        (index < COUNTERS).then(|| self.word(at::COUNTERS + 8 * index))
    }

    /// A word in which the caller notes what its successor needs to find: descriptors of
    /// listeners and of other mappings, say. `None` from [`NOTES`] on.
    pub fn note(&self, index: usize) -> Option<&AtomicU64> {
        (index < NOTES).then(|| self.word(at::NOTES + 8 * index))
    }

    pub(super) fn set_move(&self, step: Option<Move>) {
        let (phase, from, to) = match step {
            None => (0, 0, 0),
            Some(Move::Copying { from, to }) => (1, from, to),
            Some(Move::Clearing { from, to }) => (2, from, to),
            Some(Move::Telling { from, to }) => (3, from, to),
        };
        // Both indices are below 2^31 (see MAX_CAPACITY), which leaves two bits for the phase.
        let packed = phase << 62 | u64::from(from) << 31 | u64::from(to);
        fence(Ordering::SeqCst);
        self.word(at::MOVE).store(packed, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    pub(super) fn unfinished_move(&self) -> Option<Move> {
        let packed = self.word(at::MOVE).load(Ordering::SeqCst);
        let index = |shift: u32| (packed >> shift) as u32 & 0x7fff_ffff;
        let (from, to) = (index(31), index(0));
        match packed >> 62 {
            1 => Some(Move::Copying { from, to }),
            2 => Some(Move::Clearing { from, to }),
            3 => Some(Move::Telling { from, to }),
            _ => None,
        }
    }

    /// A word at a constant offset of the first page.
    fn word(&self, offset: usize) -> &AtomicU64 {
        match self.words.word(offset) {
            Some(word) => word,
            None => unreachable!("offset {offset} lies in the header by construction"),
        }
    }

    fn word32(&self, offset: usize) -> &AtomicU32 {
        match self.words.word32(offset) {
            Some(word) => word,
            None => unreachable!("offset {offset} lies in the header by construction"),
        }
    }
}
