//! The counters of `dormouse serve`, read through its admin socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::terminator::Settings;

/// The admin socket of a process.
#[derive(Clone, Debug)]
pub struct Counts(PathBuf);

impl Counts {
    /// Makes the process answer in this folder.
    pub fn of(settings: &mut Settings, folder: &Path) -> Self {
        let path = folder.join("admin.sock");
        settings.option("admin", &path.to_string_lossy());
        Self(path)
    }

    /// At this path.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// The whole status document.
    ///
    /// # Panics
    /// When there is no valid JSON answer.
    pub fn all(&self) -> Value {
        let mut asked = UnixStream::connect(&self.0).expect("the socket of a running process");
        // The server may have answered and closed already.
        let _ =
            asked.write_all(b"GET /status HTTP/1.1\r\nHost: dormouse\r\nConnection: close\r\n\r\n");
        let mut answer = Vec::new();
        let _ = asked.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        let json = answer.find('{').map_or("", |at| &answer[at..]);
        serde_json::from_str(json).unwrap_or_else(|e| panic!("{e} in the answer: {answer}"))
    }

    /// The value of a counter.
    ///
    /// # Panics
    /// When there is no counter of this name.
    pub fn get(&self, name: &str) -> u64 {
        let all = self.all();
        all["counts"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no count `{name}` in {all}"))
    }
}
