//! The board: one page on which main writes what a keeper is to do.
//!
//! A keeper reads no message from any descriptor, because whoever takes over its worker can put
//! another one in its place. It looks at this page. Main alone can write there: the page is given
//! out by a descriptor that was opened for reading, which cannot be mapped for writing; and after
//! an exec it is known again by its inode number, which no other file of the machine has.
//!
//! A post is a text and, after it, a number that grows by one with every post and says what is to
//! be done. Readers look at the number before and after they read the text.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Pid, futex_wait, futex_wake};
use crate::memory::{PAGE, Words};
use crate::{AdoptError, Fd, OnExec};

const MAGIC: u64 = u64::from_le_bytes(*b"dm-board");
const MAGIC_AT: usize = 0;
const STATE_AT: usize = 8;
const OWNER_AT: usize = 12;
const TEXT_LEN_AT: usize = 16;
const TEXT_AT: usize = 64;
/// Longest text of a post, in bytes.
pub const TEXT_MAX: usize = PAGE - TEXT_AT;

/// The lowest bits of the state say what is to be done; the others count.
const COMMAND_BITS: u32 = 4;

/// Main's end.
#[derive(Debug)]
pub struct Board {
    words: Words,
}

/// A keeper's end.
#[derive(Debug)]
pub struct BoardReader {
    words: Words,
}

/// What is on a board.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Post {
    /// Grows with every post.
    pub number: u32,
    /// What is to be done, 0 to 15. 0: nothing.
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
    /// An empty board, which belongs to this process.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn create(name: &str) -> io::Result<Board> {
        let words = Words::create(name, PAGE)?;
        let board = Board { words };
        let owner = std::process::id();
        board.at32(OWNER_AT).store(owner, Ordering::Relaxed);
        board.at(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok(board)
    }

    /// The board again, after an exec of the process that created it.
    ///
    /// # Errors
    /// It is no board, or cannot be mapped.
    pub fn adopt(fd: Fd) -> Result<Board, AdoptError> {
        let words = Words::adopt(fd, PAGE)?;
        let board = Board { words };
        let magic = board.at(MAGIC_AT).load(Ordering::Acquire);
        AdoptError::check("magic", magic, MAGIC)?;
        Ok(board)
    }

    /// The descriptor for writing: for nobody but its owner.
    pub fn fd(&self) -> Fd {
        self.words.fd()
    }

    /// A descriptor for reading, to be given to the keeper.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn reader(&self) -> io::Result<Fd> {
        let path = format!("/proc/self/fd/{}", self.fd());
        let reader = Fd::from_owned(std::fs::File::open(path)?.into());
        reader
            .set_on_exec(OnExec::Keep)
            .inspect_err(|_| reader.close())?;
        Ok(reader)
    }

    /// Says what is to be done, and wakes those who wait for it. A text that is longer than
    /// [`TEXT_MAX`] is refused.
    ///
    /// # Errors
    /// `InvalidInput`: the text is too long.
    pub fn post(&self, command: u32, text: &str) -> io::Result<Post> {
        if text.len() > TEXT_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a post has at most {TEXT_MAX} bytes, not {}", text.len()),
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

    fn at(&self, offset: usize) -> &std::sync::atomic::AtomicU64 {
        self.words.word_at(offset)
    }

    fn at32(&self, offset: usize) -> &AtomicU32 {
        self.words.word32_at(offset)
    }
}

impl BoardReader {
    /// Maps a board for reading. `inode` is what [`inode`] said when it was given out.
    ///
    /// # Errors
    /// It is no board, or another one, or cannot be mapped.
    pub fn open(fd: Fd, expected_inode: u64) -> Result<BoardReader, AdoptError> {
        let found = inode(fd).map_err(AdoptError::system("use the descriptor of the board"))?;
        AdoptError::check("inode of the board", found, expected_inode)?;
        let words = Words::adopt_to_read(fd, PAGE)?;
        let magic = words.word_at(MAGIC_AT).load(Ordering::Acquire);
        AdoptError::check("magic", magic, MAGIC)?;
        Ok(BoardReader { words })
    }

    /// The process that writes here.
    pub fn owner(&self) -> Pid {
        Pid(self.words.word32_at(OWNER_AT).load(Ordering::Relaxed) as i32)
    }

    /// What is there now.
    pub fn post(&self) -> Post {
        Post::of(self.words.word32_at(STATE_AT).load(Ordering::SeqCst))
    }

    /// The text of the post. `None`: there is another post by now, or it is no text.
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

    /// Sleeps until there is another post, or for `timeout_ms`. Returns early now and then.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn wait(&self, while_it_is: Post, timeout_ms: u64) -> io::Result<()> {
        let state = self.words.word32_at(STATE_AT);
        futex_wait(state, while_it_is.state(), Some(timeout_ms))
    }
}

/// What names the file behind a descriptor as long as it exists.
///
/// # Errors
/// What the operating system says.
pub fn inode(fd: Fd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(fd.borrow()?)?.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_posts_and_cannot_write() {
        let board = Board::create("test").unwrap();
        let fd = board.reader().unwrap();
        let reader = BoardReader::open(fd, inode(board.fd()).unwrap()).unwrap();
        assert_eq!(reader.post().command, 0);
        assert_eq!(reader.owner(), super::super::pid());
        let first = board.post(3, "/usr/bin/dormouse").unwrap();
        assert_eq!(reader.post(), first);
        assert_eq!(reader.text(first).as_deref(), Some("/usr/bin/dormouse"));
        let second = board.post(1, "x").unwrap();
        assert_eq!(second.number, first.number + 1);
        assert_eq!(reader.text(first), None, "that post is gone");
        assert_eq!(reader.text(second).as_deref(), Some("x"));
        assert!(board.post(1, &"x".repeat(TEXT_MAX + 1)).is_err());
        assert!(
            Words::adopt(fd, PAGE).is_err(),
            "mapped for writing by a descriptor for reading"
        );
        assert!(BoardReader::open(fd, 1).is_err(), "another inode");
        drop(board);
        fd.close();
    }
}
