//! The definition of an option.

use crate::option::option_type::Kind;

/// The definition of one option.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its name in the file. The flag is the same with `-` for `_`.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: &'static Kind,
    /// Its default, in the notation of a flag.
    pub default: OptionDefault,
    /// When a change of it takes effect in a running program.
    pub applies: Applies,
    /// Least and greatest value, in the notation of a flag.
    pub range: Option<(&'static str, &'static str)>,
    /// What it does. The first sentence is its `--help` text.
    pub doc: &'static str,
    /// What it costs to raise it; empty if it costs nothing.
    pub cost: &'static str,
    /// An example, as written in the file; empty if the example of its kind is good enough.
    pub example: &'static str,
}

/// When a change of an option takes effect in a running program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// At a reload.
    Reload,
    /// At a reload that does not change `memory`, too; else at the next start. The option's `auto` follows from `memory`.
    ReloadIfSameMemory,
    /// At the next start. A reload keeps the running value.
    Start,
}

impl Applies {
    /// Returns what a group says of all its options, or an option of itself. An option of which neither says something, or
    /// both, does not compile.
    pub(crate) const fn stated_once(by_group: &[Applies], by_option: &[Applies]) -> Applies {
        match (by_group, by_option) {
            (&[one], []) | ([], &[one]) => one,
            ([], []) => panic!("an option must say when a change of it takes effect"),
            _ => panic!("an option says twice when a change of it takes effect"),
        }
    }

    /// Whether a reload keeps the running value.
    pub(crate) fn is_held(self, is_memory_changed: bool) -> bool {
        match self {
            Applies::Reload => false,
            Applies::ReloadIfSameMemory => is_memory_changed,
            Applies::Start => true,
        }
    }
}

/// The default of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionDefault {
    /// This value.
    Is(&'static str),
    /// None: the option is required, and this is an example.
    Required(&'static str),
}

impl OptionDefault {
    /// Returns the value that a blank group starts with.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Is(text) | Self::Required(text) => text,
        }
    }
}

impl OptionSpec {
    /// Returns the flag of the command line, without the dashes.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Returns the first sentence of the documentation.
    pub fn summary(&self) -> String {
        let text = self.explanation();
        match text.split_once(". ") {
            Some((first, _)) => first.to_owned(),
            None => text.trim_end_matches('.').to_owned(),
        }
    }

    /// Returns the documentation as one paragraph.
    pub fn explanation(&self) -> String {
        paragraph(self.doc)
    }
}

/// Returns a doc comment as one paragraph.
pub(crate) fn paragraph(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a default as written in the file.
pub(crate) fn in_file(spec: &OptionSpec, text: &str) -> String {
    let number = text.bytes().all(|b| b.is_ascii_digit());
    if spec.kind.bare && (number || text == "true" || text == "false") {
        text.to_owned()
    } else {
        format!("\"{text}\"")
    }
}

/// Returns the option's own example, or its default, or the first example of its kind.
pub(crate) fn first_example(spec: &OptionSpec) -> String {
    if !spec.example.is_empty() {
        return spec.example.to_owned();
    }
    match spec.default {
        OptionDefault::Required(_) | OptionDefault::Is("" | "off" | "none") => {
            let examples = spec.kind.example;
            let end = [", \"", " or "]
                .iter()
                .filter_map(|sep| examples.find(sep))
                .min();
            // A list has such separators inside.
            match end {
                Some(end) if !spec.kind.list => examples.get(..end).unwrap_or(examples).to_owned(),
                _ => examples.to_owned(),
            }
        }
        OptionDefault::Is(text) => in_file(spec, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    /// Whoever adds an option and forgets this would get a reload that reports success and applies nothing.
    #[test]
    fn an_option_that_does_not_say_once_when_it_applies_is_refused() {
        let (none, start): (&[Applies], &[Applies]) = (&[], &[Applies::Start]);
        assert_eq!(Applies::stated_once(none, start), Applies::Start);
        assert_eq!(Applies::stated_once(start, none), Applies::Start);
        let twice: &[Applies] = &[Applies::Start, Applies::Reload];
        for (by_group, by_option) in [(none, none), (start, start), (none, twice)] {
            assert!(catch_unwind(|| Applies::stated_once(by_group, by_option)).is_err());
        }
    }
}
