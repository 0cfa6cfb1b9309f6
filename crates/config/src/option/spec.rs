//! What is known of an option from its definition.

use crate::option::option_type::Kind;

/// All there is to know about one option.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its name in the file. The flag is the same with `-` for `_`.
    pub name: &'static str,
    /// What may stand there.
    pub kind: &'static Kind,
    /// What holds when it is not given, in the notation of a flag.
    pub default: OptionDefault,
    /// Least and greatest value, in the notation of a flag.
    pub range: Option<(&'static str, &'static str)>,
    /// What it does. The first sentence stands for itself.
    pub doc: &'static str,
    /// What it costs to raise it; empty if it costs nothing.
    pub cost: &'static str,
    /// What might stand there, as it is written in the file; empty if any of its kind would do.
    pub example: &'static str,
}

/// What holds when an option is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionDefault {
    /// This value.
    Is(&'static str),
    /// It has to be given; this is an example of what may stand there.
    Required(&'static str),
}

impl OptionDefault {
    /// The value which a blank group starts with.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Is(text) | Self::Required(text) => text,
        }
    }
}

impl OptionSpec {
    /// The flag of the command line, without the dashes.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// The first sentence of the documentation.
    pub fn summary(&self) -> String {
        let text = self.explanation();
        match text.split_once(". ") {
            Some((first, _)) => first.to_owned(),
            None => text.trim_end_matches('.').to_owned(),
        }
    }

    /// The documentation as one paragraph.
    pub fn explanation(&self) -> String {
        self.doc.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// A default as it would stand in the file.
pub(crate) fn in_file(spec: &OptionSpec, text: &str) -> String {
    let number = text.bytes().all(|b| b.is_ascii_digit());
    if spec.kind.bare && (number || text == "true" || text == "false") {
        text.to_owned()
    } else {
        format!("\"{text}\"")
    }
}

/// The first of the examples, or the default if it says more.
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
