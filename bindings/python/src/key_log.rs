//! A key log file in NSS format, for Wireshark.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_embed::{SecretLog, secret_log_line};

/// Appends the secrets of connections to a file.
#[derive(Debug)]
pub(crate) struct KeyLog(Mutex<File>);

impl KeyLog {
    /// Opens the file, or creates it, readable only by its owner.
    pub(crate) fn open(path: &Path) -> std::io::Result<Arc<KeyLog>> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        Ok(Arc::new(KeyLog(Mutex::new(file))))
    }
}

impl SecretLog for KeyLog {
    fn log_secret(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let line = secret_log_line(label, client_random, secret) + "\n";
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk must not end connections.
        let _ = file.write_all(line.as_bytes());
    }
}
