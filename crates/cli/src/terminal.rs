//! Output on standard output and standard error.

use std::env;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write as _};

use serde::Serialize;

use crate::journal;

/// Whether standard error gets colours: it is a terminal that can show them, and `NO_COLOR` is
/// not set (<https://no-color.org>).
pub(crate) fn colours() -> bool {
    colours_on(&io::stderr())
}

/// The same for another stream.
pub(crate) fn colours_on(stream: &impl IsTerminal) -> bool {
    let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !refused && !dumb
}

/// Writes to standard output. A closed pipe (`| head`) is not an error.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes a document as JSON to standard output, its fields in the order of their names.
pub(crate) fn print_json(document: &impl Serialize) {
    // Our documents have text keys only, so this can't fail.
    let value = serde_json::to_value(document).unwrap_or_default();
    print(&format!("{value:#}\n"));
}

/// The same in one line.
pub(crate) fn print_json_line(document: &impl Serialize) {
    let value = serde_json::to_value(document).unwrap_or_default();
    print(&format!("{value}\n"));
}

/// Writes an error to standard error, in one line.
pub(crate) fn error(what: impl Display) {
    let word = if colours() {
        "\x1b[1;31merror\x1b[0m"
    } else {
        "error"
    };
    mark(journal::ERROR, &format!("{word}: {what}"));
}

/// Writes a line to standard error.
pub(crate) fn note(what: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{what}");
}

/// Writes lines to standard error, with their priority if the journal reads it.
pub(crate) fn mark(priority: u8, text: &str) {
    if journal::listens() {
        let _ = write!(
            io::stderr().lock(),
            "{}",
            journal::prioritised(priority, text)
        );
    } else {
        note(text);
    }
}

/// Text from elsewhere without control characters except line feeds.
pub(crate) fn printable(text: &str) -> String {
    let harmless = |c: &char| !c.is_control() || *c == '\n';
    text.chars().filter(harmless).collect()
}
