//! Colours, and the whole screen of a terminal.

use std::io::{self, Write as _};

/// Terminals that know these sequences show the text between them at once; others ignore them.
const UPDATE_BEGINS: &str = "\x1b[?2026h\x1b[H";
const UPDATE_ENDS: &str = "\x1b[J\x1b[?2026l";
/// Switches to the second screen, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The style of a piece of text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    Plain,
    Bold,
    Faint,
    /// A colour of the 256.
    Colour(u8),
    /// The same, bold.
    Bright(u8),
    /// Dark on a colour of the 256.
    Label(u8),
}

/// Text with styles, line by line, never wider than the screen.
pub(crate) struct Canvas {
    text: String,
    colours: bool,
    width: usize,
    column: usize,
    style: Style,
}

impl Canvas {
    pub(crate) fn new(width: usize, colours: bool) -> Canvas {
        Canvas {
            text: String::with_capacity(16 * 1024),
            colours,
            width,
            column: 0,
            style: Style::Plain,
        }
    }

    /// Adds as much text as the line has room for. Every character is one column wide.
    pub(crate) fn put(&mut self, style: Style, text: &str) {
        let text = dormouse_printable::whole(text).to_string();
        self.change(style);
        for character in text.chars().take(self.width.saturating_sub(self.column)) {
            self.text.push(character);
            self.column += 1;
        }
    }

    /// Moves to this column, unless the line is longer already.
    pub(crate) fn go_to_column(&mut self, column: usize) {
        while self.column < column.min(self.width) {
            self.put(Style::Plain, " ");
        }
    }

    /// Ends the line, and clears the rest of it on the screen.
    pub(crate) fn end_line(&mut self) {
        self.change(Style::Plain);
        self.text.push_str("\x1b[K\r\n");
        self.column = 0;
    }

    /// Returns the finished text. It must not end with a line feed, or the screen would scroll.
    pub(crate) fn finish(mut self) -> String {
        self.change(Style::Plain);
        let len = self.text.trim_end_matches("\r\n").len();
        self.text.truncate(len);
        self.text
    }

    fn change(&mut self, style: Style) {
        if !self.colours || style == self.style {
            return;
        }
        self.style = style;
        let code = match style {
            Style::Plain => "\x1b[0m".to_owned(),
            Style::Bold => "\x1b[0;1m".to_owned(),
            Style::Faint => "\x1b[0;2m".to_owned(),
            Style::Colour(colour) => format!("\x1b[0;38;5;{colour}m"),
            Style::Bright(colour) => format!("\x1b[0;1;38;5;{colour}m"),
            Style::Label(colour) => format!("\x1b[0;1;38;5;16;48;5;{colour}m"),
        };
        self.text.push_str(&code);
    }
}

/// The second screen of the terminal, until this is dropped.
pub(crate) struct Screen;

impl Screen {
    pub(crate) fn enter() -> Screen {
        // A panic must not leave the terminal without a cursor.
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            write_out(LEAVE);
            report(info);
        }));
        write_out(ENTER);
        Screen
    }

    pub(crate) fn show(&self, text: &str) {
        write_out(&format!("{UPDATE_BEGINS}{text}{UPDATE_ENDS}"));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        write_out(LEAVE);
    }
}

/// Errors are ignored: a terminal that has gone away sends a signal.
fn write_out(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_the_screen_width() {
        let mut canvas = Canvas::new(6, false);
        canvas.put(Style::Bold, "abcd");
        canvas.put(Style::Faint, "efgh");
        canvas.end_line();
        canvas.go_to_column(2);
        canvas.put(Style::Plain, "x");
        canvas.end_line();
        assert_eq!(canvas.finish(), "abcdef\x1b[K\r\n  x\x1b[K");
    }

    #[test]
    fn styles_are_written_only_when_they_change() {
        let mut canvas = Canvas::new(80, true);
        canvas.put(Style::Colour(5), "a");
        canvas.put(Style::Colour(5), "b");
        canvas.put(Style::Plain, "c");
        assert_eq!(canvas.finish(), "\x1b[0;38;5;5mab\x1b[0mc");
    }
}
