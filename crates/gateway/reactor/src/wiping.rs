//! The allocator of the program, which wipes blocks when they are freed.
//!
//! Libraries move secrets from one block of the heap to another and free the former one as it is; rustls does so with a
//! connection's key schedule. Such a copy would stay in free memory until the block is used again: without other
//! clients, for as long as the process lives.

use std::alloc::{GlobalAlloc, Layout, System};

/// Larger blocks are tables, files and lists; the system moves them without a copy when they grow. No block of a
/// handshake is so large.
const WIPED_LEN_MAX: usize = 128 << 10;

/// An allocator that wipes blocks when they are freed.
#[derive(Debug)]
pub struct WipingAllocator;

// SAFETY: every block is one of `System`, with the same layout, and is returned to it once.
unsafe impl GlobalAlloc for WipingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.size() <= WIPED_LEN_MAX {
            // SAFETY: the block has this length, and the caller does not use it any more. The compiler removes ordinary
            // writes to a block that is freed.
            unsafe { libc::explicit_bzero(block.cast(), layout.size()) };
        }
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        if layout.size() > WIPED_LEN_MAX {
            // SAFETY: as above.
            return unsafe { System.realloc(block, layout, len) };
        }
        // SAFETY: the caller promises that `len` fits, and is not zero.
        let moved = unsafe { self.alloc(Layout::from_size_align_unchecked(len, layout.align())) };
        if !moved.is_null() {
            // SAFETY: both blocks have at least this length, and the new one is another one.
            unsafe { moved.copy_from_nonoverlapping(block, len.min(layout.size())) };
            // SAFETY: as above.
            unsafe { self.dealloc(block, layout) };
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    /// Reads a block that may be free.
    fn bytes_at(address: usize, len: usize) -> Vec<u8> {
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let mut bytes = vec![0; len];
        memory.read_exact_at(&mut bytes, address as u64).unwrap();
        bytes
    }

    /// The allocator of the C library keeps its own numbers at both ends of a free block.
    #[test]
    fn freed_and_moved_blocks_are_wiped() {
        let layout = Layout::from_size_align(4_096, 8).unwrap();
        // SAFETY: the layout is not empty, and each block is freed once, with its layout.
        let (first, second) = unsafe {
            let block = WipingAllocator.alloc(layout);
            block.write_bytes(7, layout.size());
            let first = block as usize;
            let block = WipingAllocator.realloc(block, layout, 2 * layout.size());
            assert_eq!(*block.add(layout.size() - 1), 7, "moved");
            let second = block as usize;
            let larger = Layout::from_size_align(2 * layout.size(), 8).unwrap();
            WipingAllocator.dealloc(block, larger);
            (first, second)
        };
        for address in [first, second] {
            let middle = bytes_at(address + 64, layout.size() - 128);
            assert!(!middle.contains(&7), "{address:#x}");
        }
    }

    #[test]
    fn a_large_block_grows_with_its_content() {
        let layout = Layout::from_size_align(WIPED_LEN_MAX + 1, 8).unwrap();
        let larger = Layout::from_size_align(2 * layout.size(), 8).unwrap();
        // SAFETY: the layout is not empty, and the block is freed once, with its last layout.
        unsafe {
            let block = WipingAllocator.alloc_zeroed(layout);
            block.add(layout.size() - 1).write(7);
            let block = WipingAllocator.realloc(block, layout, larger.size());
            assert_eq!((*block, *block.add(layout.size() - 1)), (0, 7));
            WipingAllocator.dealloc(block, larger);
        }
    }
}
