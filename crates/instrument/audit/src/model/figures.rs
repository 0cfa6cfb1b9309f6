//! The table of figures: a row for each field of the JSON.
//!
//! A row has the field's name and type, the words of the guide about it, and how reports show it: its title and the words
//! for its value. From the rows come the JSON, the text report, the page's list of all figures, and the guide's table of
//! the JSON. The few figures by which audits are compared are in `report/headlines.rs`.

use std::collections::BTreeMap;

use super::measured::Measured;

/// A figure in a report: a title, and a value or the reason why it is missing.
pub(crate) struct Row {
    pub(crate) title: String,
    pub(crate) value: String,
    /// The value is a reason, not a figure.
    pub(crate) is_missing: bool,
}

pub(crate) fn row(title: impl Into<String>, value: impl Into<String>) -> Row {
    Row {
        title: title.into(),
        value: value.into(),
        is_missing: false,
    }
}

pub(crate) fn missing(title: impl Into<String>, why: &str) -> Row {
    Row {
        title: title.into(),
        value: format!("not measured, because {why}"),
        is_missing: true,
    }
}

/// A value that reports show, unless it is unknown.
pub(crate) trait Shown {
    type Value: ?Sized;

    /// Returns the value; or why there is none, unless nothing is to be said about that.
    fn shown(&self) -> Result<&Self::Value, Option<&str>>;
}

impl<T> Shown for Measured<T> {
    type Value = T;

    fn shown(&self) -> Result<&T, Option<&str>> {
        match self {
            Self::Value(value) => Ok(value),
            Self::NotMeasured(why) => Err(Some(why)),
        }
    }
}

impl<T> Shown for Option<T> {
    type Value = T;

    fn shown(&self) -> Result<&T, Option<&str>> {
        self.as_ref().ok_or(None)
    }
}

macro_rules! always_shown {
    ($($type:ty),+) => {
        $(impl Shown for $type {
            type Value = Self;

            fn shown(&self) -> Result<&Self, Option<&str>> {
                Ok(self)
            }
        })+
    };
}

always_shown!(bool, f64, u64, (u64, u64), Vec<String>, BTreeMap<String, u64>, BTreeMap<String, bool>);

/// Returns the row of a field. Its words may leave it out.
pub(crate) fn shown_as<T, F: Shown, W: Into<Option<String>>>(
    object: &T,
    field: &F,
    title: &str,
    words: impl Fn(&T, &F::Value) -> W,
) -> Option<Row> {
    match field.shown() {
        Ok(value) => Some(row(title, words(object, value).into()?)),
        Err(why) => why.map(|why| missing(title, why)),
    }
}

/// What rows depend on besides the object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Premises {
    /// When the audit began, in seconds since 1970.
    pub(crate) at_s: u64,
    /// Whether the software's runtime collects garbage.
    pub(crate) collects: bool,
}

/// An object of the JSON.
pub trait Figures {
    /// Its places in the JSON.
    const PLACES: &'static [&'static str];
    /// What the guide says about it.
    const ABOUT: &'static str;
    /// Its fields, and what the guide says about each.
    const FIELDS: &'static [(&'static str, &'static str)];
    /// Fields that reports show, with their titles.
    const TITLES: &'static [(&'static str, &'static str)];

    /// The title of a field in reports.
    ///
    /// # Panics
    /// When no report shows the field.
    fn title(field: &str) -> &'static str {
        let mut titles = Self::TITLES.iter();
        let found = titles.find(|(of, _)| *of == field);
        found.expect("a field that reports show").1
    }
}

/// Defines objects of the JSON. A row: words for the guide, if the name does not say all; name; type; value in audits that
/// are older than the field; then for reports the title, the words for the value, the condition, and further rows after
/// it.
macro_rules! figures {
    ($(
        $(#[$attribute:meta])*
        $object:ident at $($place:literal)|+ $(, $about:literal)? {
            $(
                $(#[doc = $words:literal])*
                $field:ident: $type:ty $(= $default:expr)? $(, $title:literal => $show:expr)? $(, if $when:ident)? $(, also $more:ident)?;
            )*
        }
    )+) => {$(
        $(#[$attribute])*
        #[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $object {
            $(
                #[doc = concat!("`", stringify!($field), "`" $(, " (", $title, ")")? $(, "\n", $words)*)]
                pub $field: $type,
            )*
        }

        impl Default for $object {
            fn default() -> Self {
                Self {
                    $($field: $crate::model::figures::figures!(@default $($default)?),)*
                }
            }
        }

        impl $crate::model::figures::Figures for $object {
            const PLACES: &'static [&'static str] = &[$($place),+];
            const ABOUT: &'static str = concat!($($about)?);
            const FIELDS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), concat!($($words),*))),*];
            const TITLES: &'static [(&'static str, &'static str)] =
                &[$($((stringify!($field), $title),)?)*];
        }

        impl $object {
            /// Returns its figures as reports show them.
            #[allow(dead_code, unused_mut, unused_variables, clippy::vec_init_then_push, reason = "some objects have no such figures")]
            pub(crate) fn rows(&self, premises: $crate::model::figures::Premises) -> Vec<$crate::model::figures::Row> {
                let mut rows = Vec::new();
                $(
                    $crate::model::figures::figures!(@show rows, self, $field, $($title => $show)?, $($when)?);
                    $(rows.extend(self.$more(premises));)?
                )*
                rows
            }
        }
    )+};
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@show $rows:ident, $self:ident, $field:ident, , ) => {};
    (@show $rows:ident, $self:ident, $field:ident, $title:literal => $show:expr, $($when:ident)?) => {
        if true $(&& $self.$when())? {
            $rows.extend($crate::model::figures::shown_as($self, &$self.$field, $title, $show));
        }
    };
}
pub(crate) use figures;
