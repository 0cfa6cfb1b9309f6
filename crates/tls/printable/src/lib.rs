//! Escapes untrusted text for log lines, terminals and pages.
//!
//! Names in certificates, server names, banners, file names and library errors that quote their input may
//! contain anything. A line feed starts a forged log line, ESC moves the cursor or renames the terminal's
//! window, and a bidirectional control displays a name in a different order.
//!
//! Text is escaped in two places, both through this crate:
//!
//! - where foreign text enters a message of ours: [`line()`], which also limits its length;
//! - where a message leaves the process: the log's formatter ([`whole`]), the terminal ([`lines`]), a page
//!   ([`lines`]), JSON ([`json`]). Text that the first place missed is still harmless.
//!
//! A character that is not printable becomes its escape in Rust's notation: `\n`, `\u{1b}`, `\u{202e}`.
//! `char::escape_debug` decides which characters are printable: its table is generated from Unicode's
//! categories (controls, formats, separators, private and unassigned characters). Backslashes and quotes stay
//! as they are.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// Maximum number of characters of a foreign text in a message of ours.
pub const LENGTH_MAX: usize = 200;

/// A text that displays with its unprintable characters escaped.
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a> {
    text: &'a str,
    length_max: usize,
    line_feeds: bool,
}

/// Foreign text in a message: one line of at most [`LENGTH_MAX`] characters.
pub fn line(text: &str) -> Printable<'_> {
    line_up_to(text, LENGTH_MAX)
}

/// Foreign text in a message: one line of at most `length_max` characters.
pub fn line_up_to(text: &str, length_max: usize) -> Printable<'_> {
    Printable {
        text,
        length_max,
        line_feeds: false,
    }
}

/// A whole message of ours as one line, not truncated.
pub fn whole(text: &str) -> Printable<'_> {
    line_up_to(text, usize::MAX)
}

/// A whole message of ours with its line feeds kept, not truncated.
pub fn lines(text: &str) -> Printable<'_> {
    Printable {
        line_feeds: true,
        ..whole(text)
    }
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.text.char_indices().nth(self.length_max);
        let (shown, is_cut) = match end {
            Some((end, _)) => (self.text.get(..end).unwrap_or_default(), true),
            None => (self.text, false),
        };
        // `escape_debug` also escapes quotes and backslashes, which are printable; they stay.
        let kept = |c: char| matches!(c, '\\' | '"' | '\'') || (c == '\n' && self.line_feeds);
        for piece in shown.split_inclusive(kept) {
            let last = piece.chars().next_back().filter(|last| kept(*last));
            let body = last.map_or(piece, |last| piece.strip_suffix(last).unwrap_or_default());
            write!(f, "{}", body.escape_debug())?;
            if let Some(last) = last {
                f.write_char(last)?;
            }
        }
        if is_cut { f.write_char('…') } else { Ok(()) }
    }
}

/// Returns the value of a `name=value` field in a log line. One word of plain ASCII is unchanged; any other
/// text is quoted and escaped, so that a reader can find the end of the value.
pub fn field_value(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\');
    if !text.is_empty() && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    Cow::Owned(format!("\"{}\"", whole(&escaped)))
}

/// Escapes unprintable characters in a JSON document. JSON itself escapes only those below U+0020. The document
/// keeps its meaning.
pub fn json(document: &str) -> String {
    let mut out = String::with_capacity(document.len());
    let mut units = [0; 2];
    for c in document.chars() {
        // Outside strings, JSON has only printable characters and white space.
        if matches!(c, '\n' | '\t') || is_printable(c) {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut units) {
                // Writing into a String cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

/// Whether a character is displayed without an escape.
pub fn is_printable(c: char) -> bool {
    // `escape_debug` escapes a combining character that stands alone, but not one after a letter.
    let mut pair = [0; 5];
    pair[0] = b'x';
    let len = c.encode_utf8(pair.get_mut(1..).unwrap_or_default()).len();
    let pair = pair.get(..=len).unwrap_or_default();
    let escaped = std::str::from_utf8(pair).map_or(0, |pair| pair.escape_debug().count());
    escaped == 2 || matches!(c, '\\' | '"' | '\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Characters that a terminal, a log reader or a person would misread.
    const HARMFUL: [char; 16] = [
        '\n',
        '\r',
        '\0',
        '\x07',
        '\x08',
        '\x1b',
        '\x7f',
        '\u{85}',
        '\u{9b}',
        '\u{200b}',
        '\u{2028}',
        '\u{202e}',
        '\u{2066}',
        '\u{feff}',
        '\u{e0041}',
        '\u{ad}',
    ];

    #[test]
    fn a_field_value_is_one_word_or_quoted() {
        for (text, written) in [
            ("10.0.0.7:8080", "10.0.0.7:8080"),
            ("[::1]:443", "[::1]:443"),
            ("", r#""""#),
            ("two words", r#""two words""#),
            (r#"say "x" \"#, r#""say \"x\" \\""#),
            ("a\nb", r#""a\nb""#),
        ] {
            assert_eq!(field_value(text), written);
        }
    }

    #[test]
    fn harmful_characters_are_escaped() {
        for harmful in HARMFUL {
            for text in [
                format!("{harmful}"),
                format!("a{harmful}b"),
                format!("\\{harmful}\""),
            ] {
                for shown in [
                    line(&text).to_string(),
                    whole(&text).to_string(),
                    json(&text),
                ] {
                    let clean = !shown.contains(harmful) || shown == text && harmful == '\n';
                    assert!(clean, "{:x}: {shown:?}", u32::from(harmful));
                }
                let shown = lines(&text).to_string();
                assert_eq!(shown.contains(harmful), harmful == '\n', "{shown:?}");
            }
        }
    }

    #[test]
    fn names_in_all_languages_are_unchanged() {
        for name in [
            "O=Müller & Söhne, CN=\"a\\, b\" it's",
            "Ελλάδα",
            "日本語",
            "สวัสดี",
            "cafe\u{301}",
            "<0>",
            "",
        ] {
            assert_eq!(line(name).to_string(), name);
            assert_eq!(lines(name).to_string(), name);
            assert_eq!(json(name), name);
        }
    }

    #[test]
    fn escapes_name_the_original_character() {
        let text = "CN=x\n<0>forged \x1b]0;title\x07 \u{202e}gpj.exe";
        assert_eq!(
            line(text).to_string(),
            r"CN=x\n<0>forged \u{1b}]0;title\u{7} \u{202e}gpj.exe"
        );
        assert_eq!(lines("a\n\tb\r\n").to_string(), "a\n\\tb\\r\n");
    }

    #[test]
    fn long_text_is_truncated() {
        let long = "ä".repeat(LENGTH_MAX + 1);
        assert_eq!(line(&long).to_string().chars().count(), LENGTH_MAX + 1);
        assert!(line(&long).to_string().ends_with("ä…"));
        assert_eq!(whole(&long).to_string(), long);
        assert_eq!(line_up_to("abc", 3).to_string(), "abc");
        assert_eq!(line_up_to("abc", 2).to_string(), "ab…");
    }

    #[test]
    fn escaped_json_keeps_its_meaning() {
        let document = "{\"name\":\"\u{9b}31m \u{202e} \u{e0041} é\",\n \"n\": 1}";
        assert_eq!(
            json(document),
            "{\"name\":\"\\u009b31m \\u202e \\udb40\\udc41 é\",\n \"n\": 1}"
        );
    }
}
