//! Turns a TOML file into raw values with locations.

use crate::mistakes::location::Location;
use crate::mistakes::mistake::Mistakes;
use crate::mistakes::problem::Problem;
use crate::mistakes::texts::STANDARD_INPUT;
use crate::mistakes::words::shortened;
use crate::option::value::{Key, RawData, RawValue};
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum size of a file: far more than a real configuration needs, and small enough to read at once.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads the configuration's own file, or standard input.
pub(crate) fn read(path: &Path) -> Result<String, Mistakes> {
    read_text(path).map_err(|(what, help)| Mistakes::of_file(path, what, help))
}

/// Reads the text of a file. The error has what is wrong, and what would be right.
pub(crate) fn read_text(path: &Path) -> Result<String, (String, String)> {
    let refuse = |what: &str, help: &str| Err((what.to_owned(), help.to_owned()));
    let mut bytes = Vec::new();
    let most = FILE_BYTES_MAX + 1;
    let read = if path == Path::new(STANDARD_INPUT) {
        io::stdin().take(most).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes))
    };
    if let Err(error) = read {
        let help = match error.kind() {
            std::io::ErrorKind::NotFound if is_truth_value(path) => {
                "if this is the value of an option, write it with an equals sign: --half-close=false"
            }
            std::io::ErrorKind::NotFound => {
                "check the path; `dormouse serve --help` shows how to do without a file"
            }
            std::io::ErrorKind::IsADirectory => {
                "name a file in this directory, such as dormouse.toml"
            }
            std::io::ErrorKind::PermissionDenied => {
                "make it readable for the user who starts the program"
            }
            _ => "name a TOML file",
        };
        return refuse(&format!("cannot be read: {}", os_words(&error)), help);
    }
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return refuse("is larger than 16 MiB", "is this the right file?");
    }
    // Mistakes are shown with their lines, and these would be a key's.
    if bytes.split(|byte| *byte == b'\n').any(begins_pem) {
        return refuse(
            "is a certificate or key (PEM), not a configuration",
            "name a TOML file",
        );
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..good).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let what =
            format!("is not UTF-8 text: byte {good}, in line {line}, is not part of any character");
        (what, "save it as UTF-8; is this the right file?".to_owned())
    })
}

fn begins_pem(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"-----BEGIN ")
}

/// Whether a path is more likely the value of the option before it: those of options that are on or off need `=`.
fn is_truth_value(path: &Path) -> bool {
    ["true", "false"]
        .iter()
        .any(|value| path == Path::new(value))
}

/// Returns the text of an error without "(os error 13)".
pub(crate) fn os_words(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

/// The contents of a text.
pub(crate) struct Parsed {
    pub(crate) entries: Vec<(Key, RawValue)>,
    /// What is wrong, and where.
    pub(crate) problems: Vec<(Location, Problem)>,
}

/// Parses a text whose first byte is at the offset `start`. Returns the values that could be read
/// even if there are syntax errors, so that other mistakes are reported with them.
pub(crate) fn parse(text: &str, start: usize) -> Parsed {
    let (table, errors) = DeTable::parse_recoverable(text);
    let problem = |error: &toml::de::Error| {
        let span = error.span();
        let written = span.clone().and_then(|span| text.get(span));
        let location = span.map_or(Location::Whole, |span| located(start, span));
        (
            location,
            syntax_problem(error.message(), written.unwrap_or_default()),
        )
    };
    Parsed {
        problems: errors.iter().map(problem).collect(),
        entries: entries(table.get_ref(), start),
    }
}

fn located(start: usize, span: Range<usize>) -> Location {
    Location::File(start + span.start..start + span.end)
}

/// Turns a message of the parser into a problem.
fn syntax_problem(message: &str, written: &str) -> Problem {
    let (what, label) = match message.split_once(", expected ") {
        Some((what, expected)) => (what, format!("expected {expected}")),
        None => (message, String::new()),
    };
    // The parser reports an unquoted word as something else: `info` as a broken `inf`.
    let is_word = written.starts_with(|c: char| c.is_ascii_alphabetic())
        && !written.contains(|c: char| c.is_whitespace() || c == '"' || c == '\'');
    if is_word && (what.starts_with("invalid") || what.starts_with("string values")) {
        return Problem::new(format!("`{}` needs quotes", shortened(written)))
            .label(format!("write \"{}\"", shortened(written)));
    }
    if what == "duplicate key" {
        return Problem::new("this is given twice")
            .label("remove one of the two")
            .help("each option may be given once; a list takes several values: [\"a\", \"b\"]");
    }
    Problem::new(format!("this is not TOML: {what}"))
        .label(label)
        .help("a line is `name = value`; strings are in quotes: log_level = \"info\"")
}

fn entries(table: &DeTable<'_>, start: usize) -> Vec<(Key, RawValue)> {
    table
        .iter()
        .map(|(key, value)| {
            let key = Key {
                name: key.get_ref().to_string(),
                location: located(start, key.span()),
            };
            (key, raw(value, start))
        })
        .collect()
}

fn raw(value: &Spanned<DeValue<'_>>, start: usize) -> RawValue {
    let data = match value.get_ref() {
        DeValue::String(text) => RawData::String(text.to_string()),
        DeValue::Integer(number) => {
            let read = u64::from_str_radix(number.as_str().trim_start_matches('+'), number.radix());
            RawData::Integer(read.map_err(|_| number.to_string()))
        }
        DeValue::Float(number) => RawData::Float(number.as_str().to_owned()),
        DeValue::Boolean(value) => RawData::Boolean(*value),
        DeValue::Datetime(value) => RawData::Datetime(value.to_string()),
        DeValue::Array(values) => {
            RawData::List(values.iter().map(|value| raw(value, start)).collect())
        }
        DeValue::Table(table) => RawData::Table(entries(table, start)),
    };
    RawValue {
        location: located(start, value.span()),
        data,
    }
}
