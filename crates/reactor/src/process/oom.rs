//! Whom the kernel takes first when memory runs out: a child before its parent.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};

/// The highest score adjustment there is.
const MOST: i32 = 1000;

/// The score adjustment of this process, which its children inherit. It is opened before the
/// process makes itself unreadable: afterwards only root can. Not for a process which shares its
/// table of descriptors.
#[derive(Debug)]
pub struct OomScore {
    file: File,
    own: i32,
}

impl OomScore {
    /// Opens it, and reads what it is.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open() -> io::Result<OomScore> {
        let path = "/proc/self/oom_score_adj";
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let own = text.trim().parse().map_err(io::Error::other)?;
        Ok(OomScore { file, own })
    }

    /// Does `start` while the score is raised by so much, so that who is started there goes first;
    /// then puts it back.
    pub fn raised<T>(&mut self, by: i32, start: impl FnOnce() -> T) -> (T, io::Result<()>) {
        let own = self.own;
        let raised = self.set((own + by).min(MOST));
        let result = start();
        (result, raised.and_then(|()| self.set(own)))
    }

    fn set(&mut self, score: i32) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(score.to_string().as_bytes())
    }
}
