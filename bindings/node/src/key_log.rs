//! Secrets of connections for Wireshark, for programs that listen to `keylog`.

use std::cell::RefCell;

use dormouse_embed::{SecretLog, secret_log_line};

thread_local! {
    /// Lines of the current call.
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps lines until the call ends.
#[derive(Debug)]
pub(crate) struct KeyLog;

impl SecretLog for KeyLog {
    fn log_secret(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let line = secret_log_line(label, client_random, secret) + "\n";
        LINES.with_borrow_mut(|lines| lines.push(line));
    }
}

/// Takes the lines of this thread's current call.
pub(crate) fn take_lines() -> Vec<String> {
    LINES.take()
}
