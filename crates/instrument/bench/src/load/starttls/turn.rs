//! One step of a dialogue: what the client says, and how the server's answer is read.

/// Maximum characters of a server's text in an error.
const QUOTED_MAX: usize = 100;

/// Builds what the client sends in a turn; the argument is the server's name.
pub(super) type Say = fn(&str) -> Vec<u8>;
/// Returns the length of a complete answer; `None` if more bytes are needed, or why the server refuses TLS.
pub(super) type Read = fn(&[u8]) -> Result<Option<usize>, String>;

/// One step of a dialogue. A turn without `read` ends when its bytes are sent.
pub(super) struct Turn {
    pub(super) say: Say,
    pub(super) read: Option<Read>,
}

pub(super) const fn turn(say: Say, read: Read) -> Turn {
    Turn {
        say,
        read: Some(read),
    }
}

pub(super) fn nothing(_: &str) -> Vec<u8> {
    Vec::new()
}

/// A server's text in an error, without its control characters.
pub(super) fn quoted(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().next().unwrap_or_default().trim();
    format!(
        "{:?}",
        dormouse_printable::line_up_to(line, QUOTED_MAX).to_string()
    )
}
