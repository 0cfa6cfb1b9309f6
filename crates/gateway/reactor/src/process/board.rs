//! The board: one page with the commands of main for a keeper.
//!
//! A keeper reads no message from any descriptor, because an attacker who controls its worker can replace any
//! descriptor of the shared table. It reads this page instead. Only main can write to it: the keeper gets a
//! read-only descriptor, which cannot be mapped for writing. After an exec the keeper recognises the page by
//! its identity, which is unique on the machine.
//!
//! A post is a text followed by a number, which grows with every post and includes the command. Readers check
//! the number before and after they read the text.
//!
//! The page also lists the files that main created for the pair. A keeper trusts the contents of a descriptor
//! of the shared table only if the descriptor refers to one of them. And it says for how long keeper and worker may outlive
//! main, which a reload can change.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Pid, futex_wait, futex_wake};
use crate::memory::{FileIdentity, PAGE, Words};
use crate::{AdoptError, Fd, OnExec};

const MAGIC: u64 = u64::from_le_bytes(*b"dm-board");
const MAGIC_AT: usize = 0;
const STATE_AT: usize = 8;
const OWNER_AT: usize = 12;
const TEXT_LEN_AT: usize = 16;
const FILES_AT: usize = 24;
const ORPHANED_AT: usize = 32;
const TEXT_AT: usize = 64;
const LIST_AT: usize = PAGE - FILES_MAX * FILE_BYTES;
/// Device and inode.
const FILE_BYTES: usize = 16;
/// Maximum number of files in the list; the oldest are dropped first.
pub const FILES_MAX: usize = 32;
/// Maximum length of a post's text in bytes.
pub const TEXT_MAX: usize = LIST_AT - TEXT_AT;

/// The lowest bits of the state hold the command; the others count.
const COMMAND_BITS: u32 = 4;

/// Main's side of the board.
#[derive(Debug)]
pub struct Board {
    words: Words,
}

/// A keeper's side of the board.
#[derive(Debug)]
pub struct BoardReader {
    words: Words,
}

/// A post on a board.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Post {
    /// Grows with every post.
    pub number: u32,
    /// The command, 0 to 15. 0: nothing.
    pub command: u32,
}

impl Post {
    fn of(state: u32) -> Post {
        Post {
            number: state >> COMMAND_BITS,
            command: state & ((1 << COMMAND_BITS) - 1),
        }
    }

    fn state(self) -> u32 {
        self.number << COMMAND_BITS | self.command
    }
}

impl Board {
    /// Creates an empty board that belongs to this process.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn create(name: &str) -> io::Result<Board> {
        let words = Words::create(name, PAGE)?;
        let board = Board { words };
        let owner = std::process::id();
        board.at32(OWNER_AT).store(owner, Ordering::Relaxed);
        board.at(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok(board)
    }

    /// Maps the board again, after an exec of the process that created it.
    ///
    /// # Errors
    /// It is not a board, or cannot be mapped.
    pub fn adopt(fd: Fd) -> Result<Board, AdoptError> {
        let words = Words::adopt(fd, PAGE)?;
        let board = Board { words };
        let magic = board.at(MAGIC_AT).load(Ordering::Acquire);
        AdoptError::check("magic", magic, MAGIC)?;
        Ok(board)
    }

    /// Returns the writable descriptor, for the owner only.
    pub fn fd(&self) -> Fd {
        self.words.fd()
    }

    /// Returns a read-only descriptor for the keeper.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn reader(&self) -> io::Result<Fd> {
        let reader = self.words.reader()?;
        reader
            .set_on_exec(OnExec::Keep)
            .inspect_err(|_| reader.close())?;
        Ok(reader)
    }

    /// Posts a command and wakes the waiting reader. Refuses a text longer than [`TEXT_MAX`].
    ///
    /// # Errors
    /// `InvalidInput`: the text is too long.
    pub fn post(&self, command: u32, text: &str) -> io::Result<Post> {
        if text.len() > TEXT_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "the text of a post is limited to {TEXT_MAX} bytes, not {}",
                    text.len()
                ),
            ));
        }
        let state = self.at32(STATE_AT);
        let now = Post::of(state.load(Ordering::Relaxed));
        for (number, chunk) in text.as_bytes().chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.at(TEXT_AT + 8 * number)
                .store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        self.at(TEXT_LEN_AT)
            .store(text.len() as u64, Ordering::Relaxed);
        let post = Post {
            number: (now.number + 1) & (u32::MAX >> COMMAND_BITS),
            command: command & ((1 << COMMAND_BITS) - 1),
        };
        state.store(post.state(), Ordering::SeqCst);
        futex_wake(state, u32::MAX >> 1)?;
        Ok(post)
    }

    /// Adds a file that the keeper may trust, also when it finds it in the shared table.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn vouch_for(&self, file: Fd) -> io::Result<FileIdentity> {
        let identity = FileIdentity::of(file)?;
        let count = self.at(FILES_AT);
        let number = count.load(Ordering::Relaxed) as usize;
        let at = LIST_AT + number % FILES_MAX * FILE_BYTES;
        // While the entry is written, its inode is 0, which matches no file.
        self.at(at + 8).store(0, Ordering::SeqCst);
        self.at(at).store(identity.device, Ordering::SeqCst);
        self.at(at + 8).store(identity.inode, Ordering::SeqCst);
        count.store(number as u64 + 1, Ordering::Release);
        Ok(identity)
    }

    /// Removes a file from the list that will not be used. The last one leaves its place to the next.
    pub fn withdraw(&self, file: FileIdentity) {
        let count = self.at(FILES_AT);
        let number = count.load(Ordering::Relaxed);
        for back in 1..=number.min(FILES_MAX as u64) {
            let at = LIST_AT + (number - back) as usize % FILES_MAX * FILE_BYTES;
            let (device, inode) = (self.at(at), self.at(at + 8));
            if device.load(Ordering::Relaxed) != file.device
                || inode.load(Ordering::Relaxed) != file.inode
            {
                continue;
            }
            inode.store(0, Ordering::SeqCst);
            if back == 1 {
                count.store(number - 1, Ordering::Release);
            }
            return;
        }
    }

    /// Sets for how long keeper and worker may outlive the owner.
    pub fn set_orphaned_max(&self, ms: u64) {
        self.at(ORPHANED_AT).store(ms, Ordering::Relaxed);
    }

    fn at(&self, offset: usize) -> &std::sync::atomic::AtomicU64 {
        self.words.word_at(offset)
    }

    fn at32(&self, offset: usize) -> &AtomicU32 {
        self.words.word32_at(offset)
    }
}

impl BoardReader {
    /// Maps a board for reading. `expected` is the identity that was passed on.
    ///
    /// # Errors
    /// It is not a board, or a different one, or cannot be mapped.
    pub fn open(fd: Fd, expected: FileIdentity) -> Result<BoardReader, AdoptError> {
        let found = FileIdentity::of(fd);
        let found = found.map_err(AdoptError::system("use the descriptor of the board"))?;
        AdoptError::check("device of the board", found.device, expected.device)?;
        AdoptError::check("inode of the board", found.inode, expected.inode)?;
        let words = Words::adopt_to_read(fd, PAGE)?;
        let magic = words.word_at(MAGIC_AT).load(Ordering::Acquire);
        AdoptError::check("magic", magic, MAGIC)?;
        Ok(BoardReader { words })
    }

    /// Whether the list contains the file with this identity.
    pub fn vouches_for(&self, file: FileIdentity) -> bool {
        let entry = |n: usize| {
            let at = LIST_AT + n * FILE_BYTES;
            let load = |at: usize| self.words.word_at(at).load(Ordering::SeqCst);
            FileIdentity {
                inode: load(at + 8),
                device: load(at),
            }
        };
        file.inode != 0 && (0..FILES_MAX).any(|n| entry(n) == file)
    }

    /// Returns the process that writes to the board.
    pub fn owner(&self) -> Pid {
        Pid(self.words.word32_at(OWNER_AT).load(Ordering::Relaxed) as i32)
    }

    /// For how many milliseconds keeper and worker may outlive the owner. `None`: it has not said so.
    pub fn orphaned_ms_max(&self) -> Option<u64> {
        let ms = self.words.word_at(ORPHANED_AT).load(Ordering::Relaxed);
        (ms > 0).then_some(ms)
    }

    /// Returns the current post.
    pub fn post(&self) -> Post {
        Post::of(self.words.word32_at(STATE_AT).load(Ordering::SeqCst))
    }

    /// Returns the text of the post; `None` if there is another post by now, or the text is not UTF-8.
    pub fn text(&self, post: Post) -> Option<String> {
        let len = self.words.word(TEXT_LEN_AT)?.load(Ordering::Relaxed) as usize;
        let mut bytes: Vec<u8> = (0..len.min(TEXT_MAX).div_ceil(8))
            .filter_map(|number| self.words.word(TEXT_AT + 8 * number))
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .collect();
        bytes.truncate(len);
        std::sync::atomic::fence(Ordering::SeqCst);
        (self.post() == post).then(|| String::from_utf8(bytes).ok())?
    }

    /// Sleeps until there is another post, or for `timeout_ms`. May return early.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn wait(&self, while_it_is: Post, timeout_ms: u64) -> io::Result<()> {
        let state = self.words.word32_at(STATE_AT);
        futex_wait(state, while_it_is.state(), Some(timeout_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;

    #[test]
    fn a_reader_sees_posts_and_cannot_write() {
        let board = Board::create("test").unwrap();
        let fd = board.reader().unwrap();
        let identity = FileIdentity::of(board.fd()).unwrap();
        let reader = BoardReader::open(fd, identity).unwrap();
        assert_eq!(reader.post().command, 0);
        assert_eq!(reader.owner(), super::super::pid());
        let first = board.post(3, "/usr/bin/dormouse").unwrap();
        assert_eq!(reader.post(), first);
        assert_eq!(reader.text(first).as_deref(), Some("/usr/bin/dormouse"));
        let second = board.post(1, "x").unwrap();
        assert_eq!(second.number, first.number + 1);
        assert_eq!(reader.text(first), None, "the post was replaced");
        assert_eq!(reader.text(second).as_deref(), Some("x"));
        assert!(board.post(1, &"x".repeat(TEXT_MAX + 1)).is_err());
        assert_eq!(reader.orphaned_ms_max(), None);
        board.set_orphaned_max(75_000);
        assert_eq!(reader.orphaned_ms_max(), Some(75_000));
        assert_eq!(reader.text(second).as_deref(), Some("x"));
        assert!(
            Words::adopt(fd, PAGE).is_err(),
            "mapped for writing through a read-only descriptor"
        );
        let FileIdentity { device, inode } = identity;
        for (device, inode) in [(device, inode + 1), (device + 1, inode)] {
            let other = FileIdentity { device, inode };
            assert!(BoardReader::open(fd, other).is_err(), "another file");
        }
        drop(board);
        fd.close();
    }

    #[test]
    fn a_reader_knows_the_files_that_the_owner_vouches_for() {
        let board = Board::create("test").unwrap();
        let fd = board.reader().unwrap();
        let reader = BoardReader::open(fd, FileIdentity::of(fd).unwrap()).unwrap();
        let file = || memory::create_unchangeable("test", &[b"x"]).unwrap();
        let stranger = file();
        let empty = FileIdentity {
            device: 0,
            inode: 0,
        };
        assert!(!reader.vouches_for(empty), "an empty list has no files");
        let files: Vec<Fd> = (0..FILES_MAX + 1).map(|_| file()).collect();
        let known: Vec<FileIdentity> = files
            .iter()
            .map(|&file| board.vouch_for(file).unwrap())
            .collect();
        assert!(!reader.vouches_for(known[0]), "the oldest is dropped");
        assert!(known[1..].iter().all(|&file| reader.vouches_for(file)));
        assert!(!reader.vouches_for(FileIdentity::of(stranger).unwrap()));
        let post = board.post(1, &"x".repeat(TEXT_MAX)).unwrap();
        assert_eq!(reader.text(post).map(|text| text.len()), Some(TEXT_MAX));
        assert!(
            reader.vouches_for(known[1]),
            "the longest text does not reach the list"
        );
        for _ in 0..FILES_MAX {
            let rejected = board.vouch_for(stranger).unwrap();
            assert!(reader.vouches_for(rejected));
            board.withdraw(rejected);
            assert!(!reader.vouches_for(rejected));
        }
        assert!(
            known[2..].iter().all(|&file| reader.vouches_for(file)),
            "files that were withdrawn displace one at most"
        );
        files.into_iter().for_each(Fd::close);
        [stranger, fd, board.fd()].into_iter().for_each(Fd::close);
    }
}
