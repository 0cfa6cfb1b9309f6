//! Memory that outlives the process that uses it.
//!
//! A [`Mapping`] is a window of a memory file (memfd). Invariants:
//!
//! - The file is sealed against shrinking and growing before it is mapped, so that no access can fault because
//!   another process truncated it.
//! - It is never part of a core dump, and never backed by huge pages: a page uses memory only once it is
//!   touched, and can be returned alone.
//! - Only one process at a time works in the bytes of a mapping. Data that several live processes use consists
//!   of atomic words, in separate windows ([`Words`]).
//! - Dropping a mapping unmaps it. The descriptor stays, for the next process to adopt.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, SealFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::{AdoptError, Fd};

/// Granularity in which memory is used and returned.
pub const PAGE: usize = 4096;

const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// A window of a sealed memory file.
#[derive(Debug)]
pub struct Mapping {
    fd: Fd,
    /// Offset of the window in the file.
    offset: usize,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping owns its address range, and nothing in it belongs to a thread.
unsafe impl Send for Mapping {}
// SAFETY: through a shared reference the bytes can only be read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates a memory file of `len` zero bytes, which use no memory yet, and maps it.
    ///
    /// The descriptor stays open over an exec ([`Fd::set_on_exec`] changes that).
    ///
    /// # Errors
    /// The operating system's error; `InvalidInput` if `len` is not a multiple of [`PAGE`].
    pub fn create(name: &str, len: usize) -> io::Result<Mapping> {
        let fd = create_file(name, len)?;
        Mapping::window(fd, 0, len).inspect_err(|_| fd.close())
    }

    /// Maps the whole memory file that another process created.
    ///
    /// # Errors
    /// The file is not sealed, has another length, or cannot be mapped.
    pub fn adopt(fd: Fd, len: usize) -> Result<Mapping, AdoptError> {
        check_file(fd, len)?;
        Mapping::window(fd, 0, len).map_err(AdoptError::system("map memory"))
    }

    /// Returns a read-only descriptor of the file.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn reader(&self) -> io::Result<Fd> {
        let path = format!("/proc/self/fd/{}", self.fd());
        Ok(Fd::from_owned(std::fs::File::open(path)?.into()))
    }

    /// Maps a part of a file that was created or checked before.
    pub(crate) fn window(fd: Fd, offset: usize, len: usize) -> io::Result<Mapping> {
        Mapping::map(fd, offset, len, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn map(fd: Fd, offset: usize, len: usize, prot: ProtFlags) -> io::Result<Mapping> {
        // SAFETY: this requests a new address range (null hint, no MAP_FIXED), so no memory in use changes.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                len,
                prot,
                MapFlags::SHARED,
                fd.borrow()?,
                offset as u64,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        let mapping = Mapping {
            fd,
            offset,
            base,
            len,
        };
        mapping.advise(0..len, Advice::LinuxDontDump)?;
        // Fails on kernels without huge pages, where nothing needs to be disabled.
        let _ = mapping.advise(0..len, Advice::LinuxNoHugepage);
        Ok(mapping)
    }

    /// Returns the descriptor of the memory file.
    pub fn fd(&self) -> Fd {
        self.fd
    }

    /// Returns the length of the window in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a window is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns all bytes for reading. Reading a page that was never written allocates it.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: base..base+len is mapped readable as long as self lives, and sealed against
        // shrinking; writes need `&mut self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// Returns all bytes for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, mapped writable, and `&mut self` excludes every other reference
        // into this window.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }

    /// Overwrites a range with zeros; the compiler cannot remove these writes. The range is clipped to the
    /// mapping.
    pub fn wipe(&mut self, range: Range<usize>) {
        let end = range.end.min(self.len);
        let start = range.start.min(end);
        let bytes = self.bytes_mut().get_mut(start..end).unwrap_or_default();
        // SAFETY: an exclusive slice of bytes, all of which may be written.
        unsafe { libc::explicit_bzero(bytes.as_mut_ptr().cast(), bytes.len()) };
    }

    /// Returns the pages of a range to the operating system; they read as zeros afterwards. Affects only pages
    /// that lie entirely within the range.
    ///
    /// # Errors
    /// The operating system's error. Only the saving of memory is lost then.
    pub fn punch(&mut self, range: Range<usize>) -> io::Result<()> {
        let start = range.start.next_multiple_of(PAGE);
        let end = range.end.min(self.len) / PAGE * PAGE;
        if start >= end {
            return Ok(());
        }
        self.advise(start..end, Advice::LinuxRemove)
    }

    /// Returns the ranges of the window that use memory, in order. Reading elsewhere would allocate memory.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn data(&self) -> io::Result<Vec<Range<usize>>> {
        let fd = self.fd.borrow()?;
        let window_end = self.offset + self.len;
        let mut ranges = Vec::new();
        let mut position = self.offset;
        while position < window_end {
            let start = match rustix::fs::seek(fd, SeekFrom::Data(position as u64)) {
                Ok(start) => start as usize,
                Err(Errno::NXIO) => break,
                Err(errno) => return Err(errno.into()),
            };
            if start >= window_end {
                break;
            }
            let end = rustix::fs::seek(fd, SeekFrom::Hole(start as u64))? as usize;
            ranges.push(start - self.offset..end.min(window_end) - self.offset);
            position = end;
        }
        Ok(ranges)
    }

    /// Returns the bytes of memory that the window uses.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn resident_bytes(&self) -> io::Result<usize> {
        Ok(self.data()?.iter().map(ExactSizeIterator::len).sum())
    }

    fn advise(&self, range: Range<usize>, advice: Advice) -> io::Result<()> {
        debug_assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: the range lies within the mapping. The advice used here either changes no contents, or
        // (Remove, from `punch` with `&mut self`) zeroes whole pages.
        unsafe {
            let address = self.base.as_ptr().add(range.start);
            rustix::mm::madvise(address.cast(), range.len(), advice)?;
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and no reference into it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A window of atomic words only, so that several processes can use it at once.
#[derive(Debug)]
pub struct Words(Mapping);

impl Words {
    /// Creates a memory file of `len` bytes, all zero (see [`Mapping::create`]).
    ///
    /// # Errors
    /// See [`Mapping::create`].
    pub fn create(name: &str, len: usize) -> io::Result<Words> {
        Mapping::create(name, len).map(Words)
    }

    /// Maps the whole memory file that another process created.
    ///
    /// # Errors
    /// See [`Mapping::adopt`].
    pub fn adopt(fd: Fd, len: usize) -> Result<Words, AdoptError> {
        Mapping::adopt(fd, len).map(Words)
    }

    pub(crate) fn window(fd: Fd, offset: usize, len: usize) -> io::Result<Words> {
        Mapping::window(fd, offset, len).map(Words)
    }

    pub(crate) fn window_to_read(fd: Fd, offset: usize, len: usize) -> io::Result<Words> {
        Mapping::map(fd, offset, len, ProtFlags::READ).map(Words)
    }

    /// Returns a read-only descriptor for [`Words::adopt_to_read`].
    ///
    /// # Errors
    /// The operating system's error.
    pub fn reader(&self) -> io::Result<Fd> {
        self.0.reader()
    }

    /// Maps words that another process writes. A store would end the process, so the holder must not offer one.
    ///
    /// # Errors
    /// See [`Mapping::adopt`].
    pub fn adopt_to_read(fd: Fd, len: usize) -> Result<Words, AdoptError> {
        check_file(fd, len)?;
        let mapping = Mapping::map(fd, 0, len, ProtFlags::READ);
        Ok(Words(mapping.map_err(AdoptError::system("map memory"))?))
    }

    /// Returns the 64-bit word at an offset that is always within the window.
    ///
    /// # Panics
    /// It is not.
    pub fn word_at(&self, offset: usize) -> &AtomicU64 {
        match self.word(offset) {
            Some(word) => word,
            None => unreachable!("offset {offset} is always within the window"),
        }
    }

    /// Like [`Words::word_at`], for 32 bits.
    pub(crate) fn word32_at(&self, offset: usize) -> &AtomicU32 {
        match self.word32(offset) {
            Some(word) => word,
            None => unreachable!("offset {offset} is always within the window"),
        }
    }

    /// Returns the descriptor of the memory file.
    pub fn fd(&self) -> Fd {
        self.0.fd
    }

    /// Returns the ranges that use memory (see [`Mapping::data`]).
    ///
    /// # Errors
    /// The operating system's error.
    pub fn data(&self) -> io::Result<Vec<Range<usize>>> {
        self.0.data()
    }

    /// Returns the 64-bit word at byte `offset` (a multiple of 8).
    pub fn word(&self, offset: usize) -> Option<&AtomicU64> {
        if !offset.is_multiple_of(8) || offset.checked_add(8)? > self.0.len {
            return None;
        }
        // SAFETY: in bounds and aligned (base is a page), mapped while self lives; this window is accessed only
        // through atomic words.
        Some(unsafe { AtomicU64::from_ptr(self.0.base.as_ptr().add(offset).cast()) })
    }

    /// Returns the 32-bit word at byte `offset` (a multiple of 4).
    pub fn word32(&self, offset: usize) -> Option<&AtomicU32> {
        if !offset.is_multiple_of(4) || offset.checked_add(4)? > self.0.len {
            return None;
        }
        // SAFETY: as for `word`.
        Some(unsafe { AtomicU32::from_ptr(self.0.base.as_ptr().add(offset).cast()) })
    }
}

/// Identity of an open file. It is unique on the machine while the file exists, whatever descriptor is put in
/// the place of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileIdentity {
    /// The device of the file; memory files have their own.
    pub device: u64,
    /// The file's number on that device.
    pub inode: u64,
}

impl FileIdentity {
    /// Returns the identity of an open file.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn of(fd: Fd) -> io::Result<FileIdentity> {
        let stat = rustix::fs::fstat(fd.borrow()?)?;
        Ok(FileIdentity {
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }
}

/// Creates a memory file from these parts that cannot be changed any more, not even by its creator.
///
/// # Errors
/// The operating system's error.
pub fn create_unchangeable(name: &str, parts: &[&[u8]]) -> io::Result<Fd> {
    let file = open_file(name)?;
    for part in parts {
        let mut rest: &[u8] = part;
        while !rest.is_empty() {
            match rustix::io::write(&file, rest) {
                Ok(n) => rest = rest.get(n..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    rustix::fs::fcntl_add_seals(&file, SEALS.union(SealFlags::WRITE))?;
    Ok(file.into())
}

/// Reads `len` bytes of a memory file at `offset`, without mapping it.
///
/// # Errors
/// The operating system's error; `UnexpectedEof` if the file is too short.
pub fn read_at(fd: Fd, offset: usize, len: usize) -> io::Result<Vec<u8>> {
    let borrowed = fd.borrow()?;
    if rustix::fs::fstat(borrowed)?.st_size < offset.saturating_add(len) as i64 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut bytes = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match rustix::io::pread(borrowed, &mut bytes[filled..], (offset + filled) as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => filled += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(bytes)
}

/// Creates a sealed memory file.
pub(crate) fn create_file(name: &str, len: usize) -> io::Result<Fd> {
    if len == 0 || !len.is_multiple_of(PAGE) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("the length of a mapping must be a multiple of {PAGE} bytes, not {len}"),
        ));
    }
    let file = open_file(name)?;
    rustix::fs::ftruncate(&file, len as u64)?;
    rustix::fs::fcntl_add_seals(&file, SEALS)?;
    Ok(file.into())
}

/// Creates an empty memory file without seals.
fn open_file(name: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
    let file = match rustix::fs::memfd_create(name, flags) {
        // Kernels before 6.3 cannot forbid execution.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, MemfdFlags::ALLOW_SEALING)?,
        other => other?,
    };
    // Only the owner and privileged processes may open it through /proc.
    rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    Ok(file)
}

/// Checks a memory file that another process created.
pub(crate) fn check_file(fd: Fd, len: usize) -> Result<(), AdoptError> {
    AdoptError::check("length", sealed_len(fd)?, len as u64)
}

/// Checks a memory file that another process created, of which only the beginning is used.
pub(crate) fn check_beginning(fd: Fd, len: usize) -> Result<(), AdoptError> {
    let found = sealed_len(fd)?;
    AdoptError::check("length", found.min(len as u64), len as u64)
}

/// Returns the length of a memory file, and checks that it is sealed against shrinking.
fn sealed_len(fd: Fd) -> Result<u64, AdoptError> {
    let borrowed = fd
        .borrow()
        .map_err(AdoptError::system("use the descriptor"))?;
    let seals = rustix::fs::fcntl_get_seals(borrowed)
        .map_err(|errno| AdoptError::system("read the seals")(errno.into()))?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err(AdoptError::NotSealed);
    }
    let stat = rustix::fs::fstat(borrowed)
        .map_err(|errno| AdoptError::system("read the length")(errno.into()))?;
    Ok(stat.st_size as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_touched_pages_take_memory_and_punched_pages_return_it() {
        let mut mapping = Mapping::create("test", 1024 * PAGE).unwrap();
        assert_eq!(mapping.resident_bytes().unwrap(), 0);
        mapping.bytes_mut()[3 * PAGE] = 7;
        mapping.bytes_mut()[5 * PAGE..6 * PAGE].fill(9);
        assert_eq!(
            mapping.data().unwrap(),
            [3 * PAGE..4 * PAGE, 5 * PAGE..6 * PAGE]
        );
        // A range that covers page 3 and half of page 5 gives page 3 back, and only that.
        mapping.punch(PAGE..5 * PAGE + 100).unwrap();
        assert_eq!(mapping.data().unwrap(), vec![5 * PAGE..6 * PAGE; 1]);
        assert_eq!(mapping.bytes()[5 * PAGE], 9);
        mapping.fd().close();
    }

    #[test]
    fn an_unchangeable_file_cannot_be_changed() {
        let fd = create_unchangeable("test", &[b"one ", b"two"]).unwrap();
        assert_eq!(read_at(fd, 0, 7).unwrap(), b"one two");
        assert_eq!(
            rustix::io::pwrite(fd.borrow().unwrap(), b"x", 0),
            Err(Errno::PERM)
        );
        assert!(Mapping::window(fd, 0, PAGE).is_err(), "mapped for writing");
        let other = create_unchangeable("test", &[b"one two"]).unwrap();
        let identity = FileIdentity::of(fd).unwrap();
        assert_ne!(identity, FileIdentity::of(other).unwrap());
        assert_eq!(identity, FileIdentity::of(fd).unwrap());
        fd.close();
        other.close();
    }

    #[test]
    fn length_is_sealed_and_checked_on_adoption() {
        let mut mapping = Mapping::create("test", 2 * PAGE).unwrap();
        mapping.bytes_mut()[PAGE] = 42;
        let fd = mapping.fd();
        for len in [PAGE, 3 * PAGE] {
            let refused = rustix::fs::ftruncate(fd.borrow().unwrap(), len as u64);
            assert_eq!(refused, Err(Errno::PERM));
        }
        drop(mapping);
        assert!(matches!(
            Mapping::adopt(fd, PAGE),
            Err(AdoptError::Mismatch { .. })
        ));
        assert_eq!(Mapping::adopt(fd, 2 * PAGE).unwrap().bytes()[PAGE], 42);
        assert!(matches!(
            Mapping::adopt(Fd(1_000_000), 2 * PAGE),
            Err(AdoptError::System { .. })
        ));
        fd.close();
    }

    #[test]
    fn an_unsealed_file_is_refused() {
        let file = rustix::fs::memfd_create("open", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, PAGE as u64).unwrap();
        let fd = Fd::from_owned(file);
        assert!(matches!(
            Mapping::adopt(fd, PAGE),
            Err(AdoptError::NotSealed)
        ));
        fd.close();
    }

    #[test]
    fn wipe_clears_exactly_the_range() {
        let mut mapping = Mapping::create("test", PAGE).unwrap();
        mapping.bytes_mut().fill(0xff);
        mapping.wipe(13..1001);
        let bytes = mapping.bytes();
        assert!(bytes[..13].iter().all(|&b| b == 0xff));
        assert!(bytes[13..1001].iter().all(|&b| b == 0));
        assert!(bytes[1001..].iter().all(|&b| b == 0xff));
        mapping.wipe(4000..usize::MAX);
        assert!(mapping.bytes()[4000..].iter().all(|&b| b == 0));
        mapping.fd().close();
    }

    #[test]
    fn words_are_checked() {
        let mapping = Words::create("test", PAGE).unwrap();
        assert!(mapping.word(4).is_none());
        assert!(mapping.word(PAGE - 8).is_some());
        assert!(mapping.word(PAGE).is_none());
        assert!(mapping.word32(PAGE - 4).is_some());
        assert!(mapping.word32(usize::MAX - 3).is_none());
        mapping.fd().close();
    }
}
