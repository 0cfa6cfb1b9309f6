//! Output on standard output and standard error.
//!
//! Text may quote foreign input. [`print()`] and [`mark`] take text that is printable already and
//! may have colours; all other functions make text printable.

use std::env;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write as _};
use std::process;

use dormouse_printable::lines;
use serde::Serialize;

use crate::exit_status::ExitStatus;
use crate::journal;

/// Whether standard error gets colours: it is a terminal that can show them, and `NO_COLOR` is
/// not set (<https://no-color.org>).
pub(crate) fn colours() -> bool {
    colours_on(&io::stderr())
}

/// Returns the same for another stream.
pub(crate) fn colours_on(stream: &impl IsTerminal) -> bool {
    let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !refused && !dumb
}

/// Whether the terminal can move the cursor, as its type says.
pub(crate) fn can_draw() -> bool {
    env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Returns the columns and rows of the terminal.
pub(crate) fn size() -> (usize, usize) {
    let size = terminal_size::terminal_size();
    size.map_or((80, 24), |(width, height)| {
        (width.0.into(), height.0.into())
    })
}

/// Writes to standard output.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    end_unless_written(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Judges a write to standard output. A closed pipe (`| head`) is not an error; a full disk ends the program, because
/// what it has written is incomplete.
pub(crate) fn end_unless_written(written: io::Result<()>) {
    if let Err(why) = written
        && why.kind() != io::ErrorKind::BrokenPipe
    {
        error(format_args!("standard output cannot be written: {why}"));
        process::exit(ExitStatus::Failed as i32);
    }
}

/// Writes a line to standard output.
pub(crate) fn line(what: impl Display) {
    print(&format!("{}\n", lines(&what.to_string())));
}

/// Writes a document as JSON to standard output, its fields in the order of their names.
pub(crate) fn print_json(document: &impl Serialize) {
    // The keys of our documents are strings, so this can't fail.
    let value = serde_json::to_value(document).unwrap_or_default();
    print(&dormouse_printable::json(&format!("{value:#}\n")));
}

/// Writes a document as JSON to standard output, in one line.
pub(crate) fn print_json_line(document: &impl Serialize) {
    let value = serde_json::to_value(document).unwrap_or_default();
    print(&dormouse_printable::json(&format!("{value}\n")));
}

/// Writes an error to standard error, in one line.
pub(crate) fn error(what: impl Display) {
    let word = if colours() {
        "\x1b[1;31merror\x1b[0m"
    } else {
        "error"
    };
    mark(
        journal::ERROR,
        &format!("{word}: {}", lines(&what.to_string())),
    );
}

/// Writes a line to standard error.
pub(crate) fn note(what: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", lines(&what.to_string()));
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
        let _ = writeln!(io::stderr().lock(), "{text}");
    }
}
