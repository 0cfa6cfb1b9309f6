//! The first pages of a slab: data that its worker publishes and its keeper reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::memory::{self, PAGE, Words};
use crate::step::step;
use crate::{AdoptError, Fd};

/// "dormouse", the first eight bytes of a slab.
const MAGIC: u64 = u64::from_le_bytes(*b"dormouse");
/// Version of the header itself, independent of the caller's version of its slots.
const HEADER_VERSION: u32 = 1;

/// Room for the header. Only its first page is ever touched; the length keeps the slots aligned to the pages of
/// any machine.
pub(super) const HEADER_LEN: usize = 16 * PAGE;

/// Number of words with data for the caller's successor: see [`Header::note`].
pub const NOTES: usize = 64;

/// Offsets of the words. They are a file format once a release has written them.
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
    const _: () = assert!(NOTES + 8 * super::NOTES <= super::PAGE);
}

/// The header of a slab. Cheap to clone, so that marks can be set while a slot is borrowed. It
/// consists of atomic words, so that a keeper can read it while its worker runs.
#[derive(Clone, Debug)]
pub struct Header {
    words: Arc<Words>,
}

/// A move in progress when the worker died: see [`super::Slab::relocate`].
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
    /// The slot is complete at `to`; references to `from` still have to be updated.
    Updating {
        from: u32,
        to: u32,
    },
}

impl Header {
    /// Maps the header of a slab without touching its slots: for a keeper.
    ///
    /// # Errors
    /// It is not a slab, has another header version, could shrink, or cannot be mapped.
    pub fn open(slab: Fd) -> Result<Header, AdoptError> {
        // Checked before mapping: a file that ends before the header would kill a process that reads it.
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
        // The magic is stored last: a header without it is incomplete.
        header.word(at::MAGIC).store(MAGIC, Ordering::Release);
        Ok(header)
    }

    /// Checks that the slots have this build's size, and records this process as the owner.
    pub(super) fn sign(&self, slot_bytes: u32) -> Result<(), AdoptError> {
        let found = self.word32(at::SLOT_BYTES).load(Ordering::Relaxed);
        AdoptError::check("slot size", found.into(), slot_bytes.into())?;
        let pid = std::process::id();
        self.word32(at::PID).store(pid, Ordering::Release);
        self.word32(at::ADOPTIONS).fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the caller's version of its slots.
    pub fn layout(&self) -> u32 {
        self.word32(at::LAYOUT).load(Ordering::Relaxed)
    }

    /// Returns the length of a slot in bytes.
    pub(super) fn slot_bytes(&self) -> u32 {
        self.word32(at::SLOT_BYTES).load(Ordering::Relaxed)
    }

    /// Returns the number of slots.
    pub fn capacity(&self) -> u32 {
        self.word32(at::CAPACITY).load(Ordering::Relaxed)
    }

    /// Returns the process that last created or adopted the slab.
    pub fn pid(&self) -> u32 {
        self.word32(at::PID).load(Ordering::Acquire)
    }

    /// Returns how often the slab was adopted.
    pub fn adoptions(&self) -> u32 {
        self.word32(at::ADOPTIONS).load(Ordering::Relaxed)
    }

    /// Marks slot `index` as busy. Until [`Header::clear_busy`], a process that dies leaves only this slot in
    /// doubt.
    ///
    /// The fence keeps every access to the slot and its sockets after the mark.
    pub fn mark_busy(&self, index: u32) {
        let mark = index.saturating_add(1);
        step();
        self.word32(at::BUSY).store(mark, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        step();
    }

    /// Clears the busy mark, once all changes to the slot are stored.
    pub fn clear_busy(&self) {
        fence(Ordering::SeqCst);
        step();
        self.word32(at::BUSY).store(0, Ordering::SeqCst);
        step();
    }

    /// Returns the slot that is being worked on, or was when the worker died.
    pub fn busy(&self) -> Option<u32> {
        self.word32(at::BUSY).load(Ordering::SeqCst).checked_sub(1)
    }

    /// Returns the worker's epoll descriptor, or [`Fd::NONE`].
    pub fn epoll(&self) -> Fd {
        Fd(self.word32(at::EPOLL).load(Ordering::Acquire) as i32)
    }

    /// Stores the epoll descriptor for the next worker.
    pub fn set_epoll(&self, epoll: Fd) {
        self.word32(at::EPOLL)
            .store(epoll.0 as u32, Ordering::Release);
    }

    /// Returns a word that the worker changes at every turn of its loop (for example, the boot time in
    /// milliseconds), so that its keeper notices a hang.
    pub fn heartbeat(&self) -> &AtomicU64 {
        self.word(at::HEARTBEAT)
    }

    /// Returns a word in which the caller stores data for its successor, such as descriptors of listeners and
    /// other mappings. `None` from [`NOTES`] on.
    pub fn note(&self, index: usize) -> Option<&AtomicU64> {
        (index < NOTES).then(|| self.word(at::NOTES + 8 * index))
    }

    pub(super) fn set_move(&self, step: Option<Move>) {
        let (phase, from, to) = match step {
            None => (0, 0, 0),
            Some(Move::Copying { from, to }) => (1, from, to),
            Some(Move::Clearing { from, to }) => (2, from, to),
            Some(Move::Updating { from, to }) => (3, from, to),
        };
        // Both indexes are below 2^31 (see MAX_CAPACITY), which leaves two bits for the phase.
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
            3 => Some(Move::Updating { from, to }),
            _ => None,
        }
    }

    /// Returns a word at a constant offset of the first page.
    fn word(&self, offset: usize) -> &AtomicU64 {
        self.words.word_at(offset)
    }

    fn word32(&self, offset: usize) -> &AtomicU32 {
        self.words.word32_at(offset)
    }
}
