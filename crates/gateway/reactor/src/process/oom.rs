//! The order in which the kernel kills processes when memory runs out: a child before its parent.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};

/// The maximum score adjustment.
const MOST: i32 = 1000;

/// The score adjustment of this process, which its children inherit. Open it before the process becomes
/// non-dumpable, because afterwards only root can. Not for a process that shares its file table.
#[derive(Debug)]
pub struct OomScore {
    file: File,
    own: i32,
}

impl OomScore {
    /// Opens the file and reads the current value.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn open() -> io::Result<OomScore> {
        let path = "/proc/self/oom_score_adj";
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let own = text.trim().parse().map_err(io::Error::other)?;
        Ok(OomScore { file, own })
    }

    /// Runs `start` with the score raised by `by`, so that processes started there are killed first; then
    /// restores the score.
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
