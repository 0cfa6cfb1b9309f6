//! What `dormouse serve` says of itself, by its socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::terminator::Settings;

/// Where a process can be asked.
#[derive(Clone, Debug)]
pub struct Counts(PathBuf);

impl Counts {
    /// Lets the process answer in this folder.
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

    /// All that it says.
    ///
    /// # Panics
    /// When it does not answer, or not in JSON.
    pub fn all(&self) -> Value {
        let mut asked = UnixStream::connect(&self.0).expect("the socket of a running process");
        // It may have answered and closed before it is asked.
        let _ =
            asked.write_all(b"GET /status HTTP/1.1\r\nHost: dormouse\r\nConnection: close\r\n\r\n");
        let mut answer = Vec::new();
        let _ = asked.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        let json = answer.find('{').map_or("", |at| &answer[at..]);
        serde_json::from_str(json).unwrap_or_else(|e| panic!("{e} in the answer: {answer}"))
    }

    /// One of the counts.
    ///
    /// # Panics
    /// When there is none of this name.
    pub fn get(&self, name: &str) -> u64 {
        let all = self.all();
        all["counts"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no count `{name}` in {all}"))
    }
}
