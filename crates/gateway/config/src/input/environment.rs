//! Environment variables in the strings of a file: `${NAME}` and `${NAME:-default}`, as in shells.

use crate::mistakes::location::Location;
use crate::mistakes::problem::Problem;
use crate::mistakes::words::shortened;
use crate::option::value::{Key, RawData, RawValue};
use crate::section::Section;
use std::ffi::OsString;

/// Looks up a variable.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Fills in variables and collects what is wrong with them.
pub(crate) struct Expansion<'a> {
    pub(crate) environment: Environment<'a>,
    /// The text of the file, and the offset of its first byte.
    pub(crate) written: &'a str,
    pub(crate) start: usize,
    /// What is wrong, and where.
    pub(crate) problems: Vec<(Location, Problem)>,
}

/// A variable without a value.
struct Unfilled {
    /// The variable as the file has it.
    written: String,
    problem: Box<Problem>,
}

impl Unfilled {
    fn new(written: String, problem: Problem) -> Self {
        let problem = Box::new(problem);
        Self { written, problem }
    }
}

impl Expansion<'_> {
    /// Fills in the variables of all strings. Removes an option with a variable that can't be filled
    /// in; its section stays, so that the mistakes of other options are reported too.
    pub(crate) fn fill_in(&mut self, entries: &mut Vec<(Key, RawValue)>) {
        entries.retain_mut(|(key, value)| match &mut value.data {
            RawData::List(sections) if Section::named(&key.name).is_some() => {
                let sections = sections.iter_mut();
                sections.for_each(|section| self.fill_in_section(section));
                true
            }
            _ => self.fill_in_value(value),
        });
    }

    fn fill_in_section(&mut self, section: &mut RawValue) {
        if let RawData::Table(options) = &mut section.data {
            options.retain_mut(|(_, value)| self.fill_in_value(value));
        }
    }

    /// Returns `false` if a variable of the values can't be filled in. All are tried, so that all
    /// problems are reported.
    fn fill_in_all<'v>(&mut self, values: impl Iterator<Item = &'v mut RawValue>) -> bool {
        let mut filled = true;
        for value in values {
            filled &= self.fill_in_value(value);
        }
        filled
    }

    /// Returns `false` if a variable of the value can't be filled in.
    fn fill_in_value(&mut self, value: &mut RawValue) -> bool {
        match &mut value.data {
            RawData::String(text) if text.contains("${") => match self.expanded(text) {
                Ok(filled) => {
                    // Like the value of a flag, it may be a number.
                    value.data = RawData::Word(filled);
                    true
                }
                Err(Unfilled { written, problem }) => {
                    let location = self.find(&written, &value.location);
                    self.problems.push((location, *problem));
                    false
                }
            },
            RawData::List(items) => self.fill_in_all(items.iter_mut()),
            RawData::Table(entries) => self.fill_in_all(entries.iter_mut().map(|(_, value)| value)),
            _ => true,
        }
    }

    /// Returns the text with its variables filled in.
    fn expanded(&self, text: &str) -> Result<String, Unfilled> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            if let Some(before) = before.strip_suffix('$') {
                filled.push_str(before);
                filled.push_str("${");
                rest = behind;
                continue;
            }
            filled.push_str(before);
            let Some((inner, after)) = behind.split_once('}') else {
                let problem = Problem::new("this variable is not closed")
                    .label("`}` is missing")
                    .help("write ${NAME} or ${NAME:-default}; `$${` stands for `${` itself");
                return Err(Unfilled::new("${".to_owned(), problem));
            };
            let value = self.value(inner);
            filled.push_str(
                &value.map_err(|problem| Unfilled::new(format!("${{{inner}}}"), problem))?,
            );
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// Returns the value of `NAME` or `NAME:-default`.
    fn value(&self, inner: &str) -> Result<String, Problem> {
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let is_name = |name: &str| {
            let mut bytes = name.bytes();
            bytes
                .next()
                .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
                && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        if !is_name(name) {
            return Err(Problem::new(format!(
                "`{}` is not the name of a variable",
                shortened(name)
            ))
            .label("only letters, digits and `_`")
            .help("write ${NAME} or ${NAME:-default}; `$${` stands for `${` itself"));
        }
        if default.is_some_and(|default| default.contains("${")) {
            return Err(Problem::new(format!(
                "the default of `{name}` has a variable, which is not filled in"
            ))
            .help("write a default without variables"));
        }
        let found = (self.environment)(name).map(OsString::into_string);
        match (found, default) {
            (Some(Err(_)), _) => {
                let what = format!("the environment variable `{name}` is not UTF-8 text");
                Err(Problem::new(what))
            }
            (Some(Ok(value)), Some(default)) if value.is_empty() => Ok(default.to_owned()),
            (Some(Ok(value)), _) => Ok(value),
            (None, Some(default)) => Ok(default.to_owned()),
            (None, None) => {
                let problem = Problem::new(format!("the environment variable `{name}` is not set"));
                Err(problem.help(format!("set it, or give a default: ${{{name}:-…}}")))
            }
        }
    }

    /// Returns the location of `needle` within a value, or of the whole value if it is not written
    /// there literally.
    fn find(&self, needle: &str, value: &Location) -> Location {
        let Location::File(span) = value else {
            return value.clone();
        };
        let within = span.start - self.start..span.end - self.start;
        let at = self.written.get(within).and_then(|text| text.find(needle));
        at.map_or(value.clone(), |at| {
            Location::File(span.start + at..span.start + at + needle.len())
        })
    }
}
