//! A client of the admin address of `dormouse serve`, over a bare socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::scene::Scene;
use crate::terminator::Settings;
use crate::wait::PATIENCE;

/// The name of the socket in a scene's folder.
const NAME: &str = "admin.sock";

/// The admin address of a running program.
#[derive(Clone, Debug)]
pub struct Admin {
    path: PathBuf,
}

impl Admin {
    /// Makes a scene answer in its own folder.
    pub fn in_folder(settings: &mut Settings) {
        settings.option("admin", NAME);
    }

    /// The admin address of a scene with [`Admin::in_folder`].
    pub fn of(scene: &Scene) -> Self {
        Self::at(&scene.folder.path().join(NAME))
    }

    /// The admin address at this path.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends these bytes, and returns everything that comes back.
    ///
    /// # Errors
    /// The system's error.
    pub fn say(&self, bytes: &[u8]) -> io::Result<String> {
        let mut stream = UnixStream::connect(&self.path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(bytes)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Sends a request. Returns status and body of the response.
    ///
    /// # Panics
    /// When there is no response.
    pub fn ask(&self, method: &str, path: &str) -> (u16, String) {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        let answer = self
            .say(request.as_bytes())
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("expected a response, got: {answer}"));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        (status.unwrap_or_default(), body.to_owned())
    }

    /// Sends an order. Returns its result in words.
    ///
    /// # Errors
    /// The result in words, if the order was refused.
    pub fn order(&self, path: &str) -> Result<String, String> {
        let (status, body) = self.ask("POST", path);
        let answer: Value = serde_json::from_str(&body).unwrap_or_default();
        let words = answer["words"].as_str().unwrap_or(&body).to_owned();
        if status == 200 && answer["done"] == true {
            Ok(words)
        } else {
            Err(words)
        }
    }

    /// The document of `GET /status`.
    ///
    /// # Panics
    /// When there is no valid response.
    pub fn status(&self) -> Value {
        let (status, body) = self.ask("GET", "/status");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("JSON")
    }
}
