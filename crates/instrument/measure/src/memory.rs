//! The memory of one process, from `smaps_rollup`.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::proc_files;

/// Memory in bytes. `pss` is the sum of its three parts; `rss` counts shared pages in full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Resident set: every mapped page in memory; shared pages count in full.
    pub rss: u64,
    /// Proportional set: a page mapped by n processes counts one n-th in each.
    pub pss: u64,
    /// The anonymous part of `pss`: heap and stacks.
    pub pss_anonymous: u64,
    /// The shared-memory part of `pss`: memfd and tmpfs mappings.
    pub pss_shared: u64,
    /// The file part of `pss`: program text and libraries.
    pub pss_file: u64,
    /// Swapped out; not part of the others.
    pub swap: u64,
}

impl Memory {
    /// Reads process `pid`; `None` if it is gone.
    ///
    /// # Errors
    /// If this process may not read it.
    pub fn of(pid: i32) -> Result<Option<Self>, Error> {
        let Some(text) = proc_files::read(pid, "smaps_rollup")? else {
            return Ok(None);
        };
        Ok(Self::parse(&text))
    }

    /// What the processes hold themselves: `pss` without its file part. A page of program text is
    /// divided among all who map it, so each start or end of another process with the same program
    /// changes `pss` by megabytes, and what is left of the file part are pages that the kernel can
    /// read again. Growth is judged by this.
    #[must_use]
    pub const fn data(&self) -> u64 {
        self.pss.saturating_sub(self.pss_file)
    }

    /// A process that is exiting has an empty rollup.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let field = |name| proc_files::kb_field(text, name);
        Some(Self {
            rss: field("Rss")?,
            pss: field("Pss")?,
            pss_anonymous: field("Pss_Anon").unwrap_or(0),
            pss_shared: field("Pss_Shmem").unwrap_or(0),
            pss_file: field("Pss_File").unwrap_or(0),
            swap: field("SwapPss").unwrap_or(0),
        })
    }
}

impl AddAssign for Memory {
    fn add_assign(&mut self, other: Self) {
        self.rss += other.rss;
        self.pss += other.pss;
        self.pss_anonymous += other.pss_anonymous;
        self.pss_shared += other.pss_shared;
        self.pss_file += other.pss_file;
        self.swap += other.swap;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_this_process_add_up() {
        let own = i32::try_from(std::process::id()).unwrap();
        let memory = Memory::of(own).unwrap().unwrap();
        let parts = memory.pss_anonymous + memory.pss_shared + memory.pss_file;
        assert!(memory.pss.abs_diff(parts) <= 3 * 1024, "{memory:?}");
        assert!(memory.rss >= memory.pss && memory.pss > 100_000);
    }

    #[test]
    fn a_touched_megabyte_is_counted() {
        let own = i32::try_from(std::process::id()).unwrap();
        let before = Memory::of(own).unwrap().unwrap();
        let block = std::hint::black_box(vec![7_u8; 64 << 20]);
        let after = Memory::of(own).unwrap().unwrap();
        drop(block);
        let grown = after.pss_anonymous - before.pss_anonymous;
        // Other tests of this process free memory meanwhile.
        assert!((60 << 20..80 << 20).contains(&grown), "grew by {grown}");
    }

    #[test]
    fn an_empty_rollup_is_an_exiting_process() {
        assert_eq!(Memory::parse(""), None);
        assert_eq!(Memory::parse("Rss: 1 kB\nPss: x kB"), None);
    }
}
