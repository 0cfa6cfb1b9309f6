//! What was written, before it means anything: the same tree for a file and for
//! flags, where every value knows its place.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// These bytes of the file.
    File(Range<usize>),
    /// The flag of this name.
    Flag(String),
    /// Nowhere: it belongs to the whole, or comes from the table of options.
    Whole,
}

/// A value as it was written.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) place: Place,
    pub(crate) node: Node,
}

/// What kind of value was written.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// The value of a flag: not quoted, so it may be anything.
    Word(String),
    String(String),
    /// Written as an integer; too large ones keep their text.
    Integer(Result<u64, String>),
    Float(String),
    Boolean(bool),
    Datetime(String),
    List(Vec<Raw>),
    Table(Vec<(Key, Raw)>),
}

/// A key of a table.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) place: Place,
}

impl Raw {
    /// A text from the table of options.
    pub(crate) fn builtin(text: &str) -> Self {
        Self {
            place: Place::Whole,
            node: Node::Word(text.to_owned()),
        }
    }

    /// The value of a flag.
    pub(crate) fn flag(flag: &str, text: &str) -> Self {
        Self {
            place: Place::Flag(flag.to_owned()),
            node: Node::Word(text.to_owned()),
        }
    }

    /// The text, if the value is one.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.node {
            Node::Word(text) | Node::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value as it may be quoted in a message.
    pub(crate) fn text(&self) -> String {
        match &self.node {
            Node::Word(text)
            | Node::String(text)
            | Node::Float(text)
            | Node::Datetime(text)
            | Node::Integer(Err(text)) => shortened(text),
            Node::Integer(Ok(number)) => number.to_string(),
            Node::Boolean(value) => value.to_string(),
            Node::List(_) => "[…]".to_owned(),
            Node::Table(_) => "{…}".to_owned(),
        }
    }

    /// The kind of the value in words, with its article.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.node {
            Node::Word(_) => "a text",
            Node::String(_) => "a string",
            Node::Integer(_) => "a number",
            Node::Float(_) => "a fraction",
            Node::Boolean(_) => "a boolean",
            Node::Datetime(_) => "a date or time",
            Node::List(_) => "a list",
            Node::Table(_) => "a table",
        }
    }
}

/// A text made fit for a line of a message: no control characters, not too long.
pub(crate) fn shortened(text: &str) -> String {
    const LENGTH_MAX: usize = 80;
    let mut short: String = text
        .chars()
        .take(LENGTH_MAX)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(LENGTH_MAX).is_some() {
        short.push('…');
    }
    short
}

/// What reading a value gives: all that is wrong with it, not just the first.
pub(crate) type Read<T> = Result<T, Vec<Wrong>>;

/// Something wrong with a value; it becomes a mistake when its place is known.
#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    /// Where, if not the value as a whole.
    pub(crate) place: Option<Place>,
    pub(crate) what: String,
    pub(crate) label: String,
    pub(crate) help: Option<String>,
}

impl Wrong {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            place: None,
            what: what.into(),
            label: String::new(),
            help: None,
        }
    }

    /// A few words for under the caret.
    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// What would be right.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Where it is, unless that is known better.
    pub(crate) fn at(mut self, place: &Place) -> Self {
        self.place.get_or_insert_with(|| place.clone());
        self
    }

    /// The value has the wrong type.
    pub(crate) fn wrong_type(raw: &Raw, expected: &str, example: &str) -> Self {
        Self::new(format!("expected {expected}, found {}", raw.kind()))
            .label(format!("this is {}", raw.kind()))
            .help(format!("write it like this: {example}"))
            .at(&raw.place)
    }
}

impl From<Wrong> for Vec<Wrong> {
    fn from(wrong: Wrong) -> Self {
        vec![wrong]
    }
}

/// Looks up a host name.
pub(crate) type Resolve<'a> = &'a dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// What the meaning of a value depends on.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// Paths are relative to this directory.
    pub(crate) base: Option<&'a Path>,
    /// How host names are looked up.
    pub(crate) resolve: Resolve<'a>,
    /// Whether the machine speaks IPv6, which decides what `:PORT` means.
    pub(crate) ipv6: bool,
}

impl Context<'_> {
    /// For values of the table itself, which have neither paths nor names.
    pub(crate) const NONE: Self = Self {
        base: None,
        resolve: &|_, _| Err(io::ErrorKind::Unsupported.into()),
        ipv6: true,
    };

    /// The path with its base.
    pub(crate) fn path(&self, text: &str) -> PathBuf {
        match self.base {
            Some(base) => base.join(text),
            None => PathBuf::from(text),
        }
    }
}
