//! Types of option values: kinds, values that may be absent, lists, and the plainest types. Other
//! types have files of their own.

use crate::mistakes::location::Location;
use crate::mistakes::problem::{Problem, ReadResult};
use crate::mistakes::words::unknown_word;
use crate::option::context::ReadContext;
use crate::option::value::{Key, RawData, RawValue};
use std::path::PathBuf;

/// A kind of value, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name with article: "a duration".
    pub name: &'static str,
    /// How it is written in the file.
    pub example: &'static str,
    /// The placeholder in `--help`.
    pub placeholder: &'static str,
    /// Every valid word, if it is a choice.
    pub choices: &'static [&'static str],
    /// Whether it is written without quotes in TOML, like a number.
    pub bare: bool,
    /// Whether it is a list.
    pub list: bool,
    /// The keys, with their kinds, if it may be a table.
    pub keys: &'static [(&'static str, &'static Kind)],
}

impl Kind {
    pub(crate) const fn new(
        name: &'static str,
        example: &'static str,
        placeholder: &'static str,
    ) -> Self {
        Self {
            name,
            example,
            placeholder,
            choices: &[],
            bare: false,
            list: false,
            keys: &[],
        }
    }

    pub(crate) const fn choice(
        name: &'static str,
        example: &'static str,
        choices: &'static [&'static str],
    ) -> Self {
        Self {
            choices,
            ..Self::new(name, example, "CHOICE")
        }
    }
}

/// A type that an option may have.
pub(crate) trait OptionType: Sized {
    /// Its kind, in words.
    const KIND: Kind;

    /// Reads a value.
    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self>;

    /// Returns the number that a range applies to, if there is one.
    fn measure(&self) -> Option<u64> {
        None
    }
}

/// Returns the problem of a key that a table of this kind does not have.
pub(crate) fn unknown_key(key: &Key, kind: &Kind) -> Problem {
    let known: Vec<&str> = kind.keys.iter().map(|(name, _)| *name).collect();
    unknown_word("key", &key.name, &known).at(&key.location)
}

pub(crate) fn wrong_type<T: OptionType>(raw: &RawValue) -> Vec<Problem> {
    raw.wrong_type(T::KIND.name, T::KIND.example).into()
}

impl OptionType for bool {
    const KIND: Kind = Kind {
        bare: true,
        ..Kind::new("true or false", "true", "true|false")
    };

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        match (&raw.data, raw.as_text()) {
            (RawData::Boolean(value), _) => Ok(*value),
            (RawData::Word(_), Some("true")) => Ok(true),
            (RawData::Word(_), Some("false")) => Ok(false),
            _ => Err(wrong_type::<Self>(raw)),
        }
    }
}

// Values that may be absent, and lists.

/// A type whose absence can be written.
pub(crate) trait Absent: OptionType {
    /// The word for absence.
    const WORD: &'static str;
    /// Its kind, with the absence.
    const KIND_OR_ABSENT: Kind;
}

impl Absent for PathBuf {
    const WORD: &'static str = "off";
    const KIND_OR_ABSENT: Kind = Kind::new(
        "a path or \"off\"",
        "\"/etc/dormouse/example.pem\" or \"off\"",
        "PATH|off",
    );
}

impl Absent for String {
    const WORD: &'static str = "none";
    const KIND_OR_ABSENT: Kind = Kind::new("a string", "\"localhost\"", "NAME");
}

impl<T: Absent> OptionType for Option<T> {
    const KIND: Kind = T::KIND_OR_ABSENT;

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        match raw.as_text() {
            Some(text) if text == T::WORD => Ok(None),
            _ => T::read(raw, context).map(Some).map_err(|mut problems| {
                for problem in &mut problems {
                    if problem.what.starts_with("expected ") {
                        problem.what =
                            format!("expected {}, found {}", Self::KIND.name, raw.kind());
                        problem.help = Some(format!("write it like this: {}", Self::KIND.example));
                    }
                }
                problems
            }),
        }
    }

    fn measure(&self) -> Option<u64> {
        self.as_ref().and_then(OptionType::measure)
    }
}

/// Maximum number of items in a list, of routes in a file, and of listeners of all routes.
pub(crate) const ITEMS_MAX: usize = 1000;

/// Maximum number of routes.
pub(crate) const ROUTES_MAX: usize = 10_000;

/// A type of which there may be a list.
pub(crate) trait Listed: OptionType {
    /// The kind of the list.
    const KIND_OF_LIST: Kind;

    /// Reads one item, which may stand for several values.
    fn read_item(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Vec<Self>> {
        Self::read(raw, context).map(|value| vec![value])
    }
}

impl<T: Listed> OptionType for Vec<T> {
    const KIND: Kind = Kind {
        list: true,
        ..T::KIND_OF_LIST
    };

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        let items = match &raw.data {
            RawData::List(items) => items.as_slice(),
            // Only a default can be written like this: an empty variable must not allow everyone.
            RawData::Word(text) if text.is_empty() && raw.location == Location::Whole => &[],
            // A list of one needs no brackets.
            RawData::Word(_) | RawData::String(_) | RawData::Table(_) => std::slice::from_ref(raw),
            _ => return Err(wrong_type::<Self>(raw)),
        };
        if items.len() > ITEMS_MAX {
            let problem = Problem::new(format!("this list has {} items", items.len()));
            return Err(problem.label(format!("at most {ITEMS_MAX}")).into());
        }
        let mut values = Vec::with_capacity(items.len());
        let mut problems = Vec::new();
        for item in items {
            match T::read_item(item, context) {
                Ok(read) => values.extend(read),
                Err(found) => {
                    problems.extend(found.into_iter().map(|problem| problem.at(&item.location)))
                }
            }
        }
        if problems.is_empty() {
            Ok(values)
        } else {
            Err(problems)
        }
    }
}

// Texts.

impl OptionType for String {
    const KIND: Kind = Kind::new("a string", "\"localhost\"", "NAME");

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        match raw.as_text() {
            Some("") => Err(Problem::new("this string is empty").into()),
            Some(text) if text.len() > 255 => {
                Err(Problem::new(format!("this string is {} bytes long", text.len()))
                    .label("at most 255 bytes")
                    .into())
            }
            Some(text) if text.contains(|c: char| c.is_control() || !c.is_ascii()) => {
                Err(Problem::new(format!(
                    "`{}` has characters that are not allowed here",
                    raw.text()
                ))
                .help("use only visible ASCII characters; write international names in their xn-- form")
                .into())
            }
            Some(text) => Ok(text.to_owned()),
            None => Err(wrong_type::<Self>(raw)),
        }
    }
}

impl Listed for String {
    const KIND_OF_LIST: Kind = Kind::new("a list of strings", "[\"h2\", \"http/1.1\"]", "NAME");
}

impl OptionType for PathBuf {
    const KIND: Kind = Kind::new("a path", "\"site.pem\"", "PATH");

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        match raw.as_text() {
            Some("") => Err(Problem::new("this path is empty").into()),
            Some(text) if text.contains('\0') => Err(Problem::new(
                "this path has a zero byte, which is not allowed in a path",
            )
            .into()),
            Some(text) => Ok(context.path(text)),
            None => Err(wrong_type::<Self>(raw)),
        }
    }
}

impl Listed for PathBuf {
    const KIND_OF_LIST: Kind = Kind::new("a list of paths", "[\"revoked.pem\"]", "PATH");
}
