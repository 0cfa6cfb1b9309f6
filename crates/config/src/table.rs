//! The macro which makes one definition of an option serve for everything: the
//! field of [`Config`](super::Config), its default, how it is read, its range,
//! the flag of the command line and the line of the reference.

use super::raw::{Context, Raw, Read, Wrong};
use super::reference::first_example;
use super::types::{Kind, OptionType};

/// All there is to know about one option.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its name in the file. The flag is the same with `-` for `_`.
    pub name: &'static str,
    /// What may stand there.
    pub kind: &'static Kind,
    /// What holds when it is not given, in the notation of a flag.
    pub default: Default,
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
pub enum Default {
    /// This value.
    Is(&'static str),
    /// It has to be given; this is an example of what may stand there.
    Required(&'static str),
}

impl Default {
    /// The value which a blank group starts with.
    pub(super) const fn text(self) -> &'static str {
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

/// A group of options: a struct whose fields were made from the table.
pub(super) trait Group: Sized {
    /// The heading in the reference and in `--help`.
    const TITLE: &'static str;
    /// What the group is about.
    const ABOUT: &'static str;
    /// The options in the order of the reference.
    const OPTIONS: &'static [OptionSpec];

    /// Every option at its default; those without one at their example.
    fn blank() -> Self;

    /// Reads one option. `None`: there is no option of this name here.
    fn read(&mut self, name: &str, raw: &Raw, context: &Context<'_>) -> Option<Read<()>>;
}

/// Reads the text of a default or a bound, which is part of the program.
pub(super) fn builtin<T: OptionType>(text: &str) -> T {
    match T::read(&Raw::builtin(text), &Context::NONE) {
        Ok(value) => value,
        Err(wrong) => panic!("the table of options says `{text}`, which is wrong: {wrong:?}"),
    }
}

/// Reads a value and holds it against its range.
pub(super) fn read_within<T: OptionType>(
    spec: &OptionSpec,
    raw: &Raw,
    context: &Context<'_>,
) -> Read<T> {
    let value = T::read(raw, context).map_err(|wrongs| -> Vec<Wrong> {
        wrongs
            .into_iter()
            .map(|wrong| told_of(spec, wrong))
            .collect()
    })?;
    let (Some((least, greatest)), Some(measure)) = (spec.range, value.measure()) else {
        return Ok(value);
    };
    let bound = |text: &str| builtin::<T>(text).measure().unwrap_or_default();
    let (size, label) = if measure < bound(least) {
        ("small", format!("at least {least}"))
    } else if measure > bound(greatest) {
        ("large", format!("at most {greatest}"))
    } else {
        return Ok(value);
    };
    Err(Wrong::new(format!(
        "`{}` is too {size} for `{}`",
        raw.text(),
        spec.name
    ))
    .label(label)
    .help(format!("it may be from {least} to {greatest}"))
    .into())
}

/// What is said of any value of its kind, said of this option.
fn told_of(spec: &OptionSpec, mut wrong: Wrong) -> Wrong {
    let like = |example: &str| format!("write it like this: {example}");
    let own = match spec.default {
        // These say all that may stand there.
        _ if !spec.kind.choices.is_empty() || spec.kind.example.contains(" or ") => None,
        _ if !spec.example.is_empty() => Some(spec.example),
        // Any number is an example of a number, but not each is in the range.
        Default::Is(text) if spec.kind.bare && text.parse::<u32>().is_ok() => Some(text),
        _ => None,
    };
    if let (true, Some(own)) = (wrong.help == Some(like(spec.kind.example)), own) {
        wrong.help = Some(like(own));
    }
    if wrong.help.is_none() && wrong.label.is_empty() {
        wrong.help = Some(match spec.range {
            Some((least, greatest)) => format!("it may be from {least} to {greatest}"),
            None => like(&first_example(spec)),
        });
    }
    wrong
}

/// Defines groups of options. See `options.rs` for what an entry looks like.
macro_rules! options {
    ($(
        $(#[doc = $about:literal])*
        $group:ident, $title:literal {
            $(
                $(#[doc = $doc:literal])*
                $name:ident: $kind:ty = $how:ident $default:literal
                    $(, $least:literal ..= $greatest:literal)?
                    $(, costs $cost:literal)?
                    $(, like $example:literal)?;
            )*
        }
    )*) => {$(
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        // What an older binary did not know, an upgrade finds at its default.
        #[serde(default)]
        pub struct $group {
            $( $(#[doc = $doc])* pub $name: $kind, )*
        }

        impl ::core::default::Default for $group {
            fn default() -> Self {
                <Self as $crate::table::Group>::blank()
            }
        }

        impl $crate::table::Group for $group {
            const TITLE: &'static str = $title;
            const ABOUT: &'static str = concat!($($about, "\n"),*);
            const OPTIONS: &'static [$crate::OptionSpec] = &[$(
                $crate::OptionSpec {
                    name: stringify!($name),
                    kind: &<$kind as $crate::types::OptionType>::KIND,
                    default: options!(@default $how $default),
                    range: options!(@range $($least, $greatest)?),
                    doc: concat!($($doc, "\n"),*),
                    cost: concat!("", $($cost)?),
                    example: concat!("", $($example)?),
                },
            )*];

            fn blank() -> Self {
                use $crate::table::builtin;
                Self { $( $name: builtin($default), )* }
            }

            fn read(
                &mut self,
                name: &str,
                raw: &$crate::raw::Raw,
                context: &$crate::raw::Context<'_>,
            ) -> Option<$crate::raw::Read<()>> {
                use $crate::table::read_within;
                let spec = Self::OPTIONS.iter().find(|spec| spec.name == name)?;
                match name {
                    $( stringify!($name) => Some(read_within(spec, raw, context).map(|value| self.$name = value)), )*
                    _ => None,
                }
            }
        }
    )*};
    (@default default $text:literal) => { $crate::table::Default::Is($text) };
    (@default required $text:literal) => { $crate::table::Default::Required($text) };
    (@range) => { None };
    (@range $least:literal, $greatest:literal) => { Some(($least, $greatest)) };
}
pub(super) use options;
