//! Where each part of the result comes from.
//!
//! A reader enters every setting of the source into the [`Ledger`] and gets its [`Origin`]. Every option, remark and
//! step of the result names the origins that it stands for. What nothing in the result names has been lost, so the
//! end of an import makes it a step to do (`Draft::finish`): a converter cannot drop a setting by saying nothing.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::{ImportError, Position};
use crate::source;

/// Maximum number of settings, which no real configuration reaches: the work for some of them grows with its square.
const SETTINGS_MAX: usize = 50_000;
/// Maximum number of settings that parts take over from defaults, counted for each part.
const INHERITED_MAX: usize = 500_000;
/// Maximum number of bytes in all files that others include.
const BYTES_MAX: usize = 16 << 20;

/// A setting of the source: the smallest text with a meaning of its own, such as a directive of nginx, or a word of
/// a `bind` of HAProxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Origin(usize);

/// The settings that a part of the result stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origins(BTreeSet<Origin>);

impl Origins {
    pub(super) fn add(&mut self, more: impl Into<Origins>) {
        self.0.extend(more.into().0);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Origin> {
        self.0.iter().copied()
    }

    pub(super) fn has(&self, one: Origin) -> bool {
        self.0.contains(&one)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl From<Origin> for Origins {
    fn from(one: Origin) -> Origins {
        Origins(BTreeSet::from([one]))
    }
}

impl<const N: usize> From<[Origin; N]> for Origins {
    fn from(all: [Origin; N]) -> Origins {
        Origins(BTreeSet::from(all))
    }
}

impl From<Vec<Origin>> for Origins {
    fn from(all: Vec<Origin>) -> Origins {
        all.into_iter().collect()
    }
}

impl From<&Origins> for Origins {
    fn from(all: &Origins) -> Origins {
        all.clone()
    }
}

impl FromIterator<Origin> for Origins {
    fn from_iter<I: IntoIterator<Item = Origin>>(all: I) -> Origins {
        Origins(all.into_iter().collect())
    }
}

/// All settings of the source, in the order of reading.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    places: Vec<Place>,
    inherited: usize,
    /// Number of bytes of the files that others include.
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Place {
    position: Position,
    shown: String,
    /// Whether it continues the setting before it, as a word of the same line.
    continues: bool,
    /// Whether it only holds other settings, each of which has to be accounted for.
    is_head: bool,
}

impl Ledger {
    /// Enters a setting, with its text.
    pub(super) fn enter(
        &mut self,
        position: &Position,
        shown: impl Into<String>,
    ) -> Result<Origin, ImportError> {
        self.push(position, shown.into(), false)
    }

    /// Enters a word of a line that has been entered, or whose first word has been.
    pub(super) fn enter_word(
        &mut self,
        position: &Position,
        word: &str,
    ) -> Result<Origin, ImportError> {
        self.push(position, word.to_owned(), true)
    }

    fn push(
        &mut self,
        position: &Position,
        shown: String,
        continues: bool,
    ) -> Result<Origin, ImportError> {
        if self.places.len() == SETTINGS_MAX {
            let what = format!("there are more than {SETTINGS_MAX} settings here");
            let help = "import a part of it: a configuration of Dormouse has 1000 routes at most";
            return Err(ImportError::new(position, position.line, what, help));
        }
        self.places.push(Place {
            position: position.clone(),
            shown: shown.split_whitespace().collect::<Vec<_>>().join(" "),
            continues,
            is_head: false,
        });
        Ok(Origin(self.places.len() - 1))
    }

    /// Reads a file that another one includes.
    pub(super) fn read(&mut self, path: &Path, position: &Position) -> Result<String, ImportError> {
        if self.bytes > BYTES_MAX {
            let what = "the included files have more than 16 MiB together";
            let help = "no configuration is that long; do they include each other?";
            return Err(ImportError::new(position, position.line, what, help));
        }
        let text = source::read_named(path, position)?;
        self.bytes += text.len();
        Ok(text)
    }

    /// Counts settings that a part takes over from defaults.
    pub(super) fn inherit(&mut self, position: &Position, count: usize) -> Result<(), ImportError> {
        self.inherited += count;
        match self.inherited > INHERITED_MAX {
            true => {
                let what = "too many parts take over too many defaults";
                let help = "no configuration is that long; is this the right file?";
                Err(ImportError::new(position, position.line, what, help))
            }
            false => Ok(()),
        }
    }

    /// Returns where a setting stands.
    pub(super) fn position(&self, Origin(at): Origin) -> Option<&Position> {
        self.places.get(at).map(|place| &place.position)
    }

    /// Says that a setting only holds others.
    pub(super) fn is_head(&mut self, Origin(at): Origin) {
        if let Some(place) = self.places.get_mut(at) {
            place.is_head = true;
        }
    }

    /// Returns everything that has to be accounted for.
    pub(super) fn all(&self) -> impl Iterator<Item = Origin> {
        let places = self.places.iter().enumerate();
        places
            .filter(|(_, place)| !place.is_head)
            .map(|(at, _)| Origin(at))
    }

    /// Returns the lines, in words: `line 3`, `lines 3-5, 8`, `conf.d/a.conf:2`.
    pub(super) fn lines(&self, origins: &Origins) -> String {
        let positions = origins.iter().filter_map(|one| self.places.get(one.0));
        let positions: BTreeSet<(bool, &str, usize)> = positions
            .map(|place| {
                let at = &place.position;
                (at.is_included, &*at.file, at.line)
            })
            .collect();
        let mut ranges: Vec<(bool, &str, usize, usize)> = Vec::new();
        for (is_included, file, line) in positions {
            match ranges.last_mut() {
                Some((_, in_file, _, last)) if *in_file == file && *last + 1 == line => {
                    *last = line
                }
                _ => ranges.push((is_included, file, line, line)),
            }
        }
        let of_main = ranges.iter().filter(|(is_included, ..)| !is_included);
        let word = match of_main.clone().map(|(_, _, a, b)| b - a + 1).sum() {
            1 => "line ",
            _ => "lines ",
        };
        let mut before = word;
        let mut out = String::new();
        for (is_included, file, first, last) in &ranges {
            let range = match first == last {
                true => first.to_string(),
                false => format!("{first}-{last}"),
            };
            if !out.is_empty() {
                out.push_str(", ");
            }
            match is_included {
                true => out.push_str(&format!("{file}:{range}")),
                false => {
                    out.push_str(&format!("{}{range}", std::mem::take(&mut before)));
                }
            }
        }
        out
    }

    /// Returns the first setting among these that holds others.
    pub(super) fn head(&self, origins: &Origins) -> Option<Origin> {
        let is_head = |one: &Origin| self.places.get(one.0).is_some_and(|place| place.is_head);
        origins.iter().find(is_head)
    }

    /// Returns each setting with its place: `line 3: ssl_ocsp on`. Words that follow each other are one.
    pub(super) fn quotes(&self, origins: &Origins) -> Vec<String> {
        let mut all: Vec<(usize, String)> = Vec::new();
        for Origin(at) in origins.iter() {
            let Some(place) = self.places.get(at) else {
                continue;
            };
            match all.last_mut() {
                Some((last, text)) if place.continues && *last + 1 == at => {
                    *last = at;
                    text.push_str(&format!(" {}", place.shown));
                }
                _ => all.push((at, format!("{}: {}", place.position, place.shown))),
            }
        }
        let texts = all.into_iter().map(|(_, text)| text);
        texts
            .map(|text| dormouse_printable::line(&text).to_string())
            .collect()
    }
}
