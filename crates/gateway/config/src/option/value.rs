//! Values as written, not yet interpreted: the same tree for a file and for flags, in which every
//! value has its location.

use crate::mistakes::location::Location;
use crate::mistakes::problem::Problem;
use crate::mistakes::words::shortened;

/// A value as it was written.
#[derive(Clone, Debug)]
pub(crate) struct RawValue {
    pub(crate) location: Location,
    pub(crate) data: RawData,
}

/// What kind of value was written.
#[derive(Clone, Debug)]
pub(crate) enum RawData {
    /// The value of a flag: without quotes, so it may be of any kind.
    Word(String),
    String(String),
    /// An integer; one that is too large keeps its text.
    Integer(Result<u64, String>),
    Float(String),
    Boolean(bool),
    Datetime(String),
    List(Vec<RawValue>),
    Table(Vec<(Key, RawValue)>),
}

/// A key of a table.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) location: Location,
}

impl RawValue {
    /// Returns a text from the table of options.
    pub(crate) fn builtin(text: &str) -> Self {
        Self {
            location: Location::Whole,
            data: RawData::Word(text.to_owned()),
        }
    }

    /// Returns the value of a flag.
    pub(crate) fn flag(flag: &str, text: &str) -> Self {
        Self {
            location: Location::Flag(flag.to_owned()),
            data: RawData::Word(text.to_owned()),
        }
    }

    /// Returns the text, if the value is one.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.data {
            RawData::Word(text) | RawData::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value as messages quote it.
    pub(crate) fn text(&self) -> String {
        match &self.data {
            RawData::Word(text)
            | RawData::String(text)
            | RawData::Float(text)
            | RawData::Datetime(text)
            | RawData::Integer(Err(text)) => shortened(text),
            RawData::Integer(Ok(number)) => number.to_string(),
            RawData::Boolean(value) => value.to_string(),
            RawData::List(_) => "[…]".to_owned(),
            RawData::Table(_) => "{…}".to_owned(),
        }
    }

    /// Returns the kind of the value in words, with an article.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.data {
            RawData::Word(_) => "a text",
            RawData::String(_) => "a string",
            RawData::Integer(_) => "a number",
            RawData::Float(_) => "a fraction",
            RawData::Boolean(_) => "a boolean",
            RawData::Datetime(_) => "a date or time",
            RawData::List(_) => "a list",
            RawData::Table(_) => "a table",
        }
    }

    /// Returns the problem that the value has another type than the expected one.
    pub(crate) fn wrong_type(&self, expected: &str, example: &str) -> Problem {
        Problem::new(format!("expected {expected}, found {}", self.kind()))
            .label(format!("this is {}", self.kind()))
            .help(format!("write it like this: {example}"))
            .at(&self.location)
    }
}
