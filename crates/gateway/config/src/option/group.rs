//! The macro that turns one definition of an option into its field of [`Config`](crate::Config),
//! its default, its reader, its range, its flag and its entry in the reference.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::option::context::ReadContext;
use crate::option::option_type::OptionType;
use crate::option::spec::{OptionDefault, OptionSpec, first_example};
use crate::option::value::RawValue;

/// A group of options: a struct whose fields come from the table.
pub(crate) trait Group: Sized {
    /// The heading in the reference and in `--help`.
    const TITLE: &'static str;
    /// What the group is about.
    const ABOUT: &'static str;
    /// The options in the order of the reference.
    const OPTIONS: &'static [OptionSpec];

    /// Returns a group with every option at its default, and required options at their example.
    fn blank() -> Self;

    /// Reads one option. `None`: the group has no option of this name.
    fn read(
        &mut self,
        name: &str,
        raw: &RawValue,
        context: &ReadContext<'_>,
    ) -> Option<ReadResult<()>>;

    /// Keeps the running values of options whose changes a reload cannot apply. Returns the names of those that differ.
    fn hold(&mut self, running: &Self, is_memory_changed: bool) -> Vec<&'static str>;
}

/// A group of options, for `--help` and the reference.
#[derive(Clone, Copy, Debug)]
pub struct OptionGroup {
    /// Its heading.
    pub title: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// Its options.
    pub options: &'static [OptionSpec],
}

impl OptionGroup {
    pub(crate) const fn of<G: Group>() -> Self {
        Self {
            title: G::TITLE,
            about: G::ABOUT,
            options: G::OPTIONS,
        }
    }
}

/// Reads a default or a bound, whose text is part of the program.
pub(crate) fn builtin<T: OptionType>(text: &str) -> T {
    match T::read(&RawValue::builtin(text), &ReadContext::NONE) {
        Ok(value) => value,
        Err(problem) => panic!("the table of options has an invalid value `{text}`: {problem:?}"),
    }
}

/// Reads a value and checks its range.
pub(crate) fn read_within<T: OptionType>(
    spec: &OptionSpec,
    raw: &RawValue,
    context: &ReadContext<'_>,
) -> ReadResult<T> {
    let value = T::read(raw, context).map_err(|problems| -> Vec<Problem> {
        problems
            .into_iter()
            .map(|problem| specific_to(spec, problem))
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
    Err(Problem::new(format!(
        "`{}` is too {size} for `{}`",
        raw.text(),
        spec.name
    ))
    .label(label)
    .help(format!("the range is {least} to {greatest}"))
    .into())
}

/// Replaces the example of the value's kind by an example of this option.
fn specific_to(spec: &OptionSpec, mut problem: Problem) -> Problem {
    let like = |example: &str| format!("write it like this: {example}");
    let own = match spec.default {
        // These messages list every valid form already.
        _ if !spec.kind.choices.is_empty() || spec.kind.example.contains(" or ") => None,
        _ if !spec.example.is_empty() => Some(spec.example),
        // The example of a number may be out of this option's range.
        OptionDefault::Is(text) if spec.kind.bare && text.parse::<u32>().is_ok() => Some(text),
        _ => None,
    };
    if let (true, Some(own)) = (problem.help == Some(like(spec.kind.example)), own) {
        problem.help = Some(like(own));
    }
    if problem.help.is_none() && problem.label.is_empty() {
        problem.help = Some(match spec.range {
            Some((least, greatest)) => format!("the range is {least} to {greatest}"),
            None => like(&first_example(spec)),
        });
    }
    problem
}

/// Defines groups of options. See `options.rs` for what an entry looks like.
macro_rules! option_groups {
    ($(
        $(#[doc = $about:literal])*
        $group:ident, $title:literal $(, each at $each:ident)? {
            $(
                $(#[doc = $doc:literal])*
                $name:ident: $kind:ty = $how:ident $default:literal
                    $(, at $when:ident)*
                    $(, $least:literal ..= $greatest:literal)?
                    $(, costs $cost:literal)?
                    $(, like $example:literal)?;
            )*
        }
    )*) => {$(
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        // An option that an older binary did not know has its default after an upgrade.
        #[serde(default)]
        pub struct $group {
            $( $(#[doc = $doc])* pub $name: $kind, )*
        }

        impl ::core::default::Default for $group {
            fn default() -> Self {
                <Self as $crate::option::group::Group>::blank()
            }
        }

        impl $group {
            /// What the group says of all its options.
            const EACH_APPLIES: &'static [$crate::option::spec::Applies] =
                &[$(option_groups!(@applies $each))?];
        }

        impl $crate::option::group::Group for $group {
            const TITLE: &'static str = $title;
            const ABOUT: &'static str = concat!($($about, "\n"),*);
            const OPTIONS: &'static [$crate::OptionSpec] = &[$(
                $crate::OptionSpec {
                    name: stringify!($name),
                    kind: &<$kind as $crate::option::option_type::OptionType>::KIND,
                    default: option_groups!(@default $how $default),
                    applies: $crate::option::spec::Applies::stated_once(
                        Self::EACH_APPLIES,
                        &[$(option_groups!(@applies $when)),*],
                    ),
                    range: option_groups!(@range $($least, $greatest)?),
                    doc: concat!($($doc, "\n"),*),
                    cost: concat!("", $($cost)?),
                    example: concat!("", $($example)?),
                },
            )*];

            fn blank() -> Self {
                use $crate::option::group::builtin;
                Self { $( $name: builtin($default), )* }
            }

            fn read(
                &mut self,
                name: &str,
                raw: &$crate::option::value::RawValue,
                context: &$crate::option::context::ReadContext<'_>,
            ) -> Option<$crate::mistakes::problem::ReadResult<()>> {
                use $crate::option::group::read_within;
                let spec = Self::OPTIONS.iter().find(|spec| spec.name == name)?;
                match name {
                    $( stringify!($name) => Some(read_within(spec, raw, context).map(|value| self.$name = value)), )*
                    _ => None,
                }
            }

            fn hold(&mut self, running: &Self, is_memory_changed: bool) -> Vec<&'static str> {
                let mut options = Self::OPTIONS.iter();
                let mut waits = Vec::new();
                $(
                    let option = options.next().expect("an option per field");
                    if option.applies.is_held(is_memory_changed) && self.$name != running.$name {
                        self.$name.clone_from(&running.$name);
                        waits.push(option.name);
                    }
                )*
                waits
            }
        }
    )*};
    (@default default $text:literal) => { $crate::option::spec::OptionDefault::Is($text) };
    (@default required $text:literal) => { $crate::option::spec::OptionDefault::Required($text) };
    (@applies reload) => { $crate::option::spec::Applies::Reload };
    (@applies reload_if_same_memory) => { $crate::option::spec::Applies::ReloadIfSameMemory };
    (@applies start) => { $crate::option::spec::Applies::Start };
    (@range) => { None };
    (@range $least:literal, $greatest:literal) => { Some(($least, $greatest)) };
}
pub(crate) use option_groups;
