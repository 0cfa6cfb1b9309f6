//! Checks that routes and originations share.

use crate::input::locations::SectionRef;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::values::choices::TlsVersion;
use std::collections::BTreeSet;
use std::fmt::Display;

/// Reports TLS versions that no client could use, and TLS 1.3 turned off.
pub(crate) fn versions(
    at: SectionRef<'_>,
    min: TlsVersion,
    max: TlsVersion,
    mistakes: &mut MistakeCollector<'_>,
) {
    if !at.sound(&["min_version", "max_version"]) {
        return;
    }
    if min > max {
        mistakes.error(
            &at.location("min_version", None),
            Problem::new(format!(
                "min_version {min} is above max_version {max}, so no client could connect",
            ))
            .help("remove both for TLS 1.2 and 1.3"),
        );
    } else if max == TlsVersion::Tls12 {
        mistakes.warning(
            &at.location("max_version", None),
            Problem::new("TLS 1.3 is turned off")
                .help("TLS 1.3 is faster and safer, and clients without it use TLS 1.2"),
        );
    }
}

/// Reports items that a list has twice.
pub(crate) fn no_item_twice<T: Ord + Display>(
    at: SectionRef<'_>,
    option: &str,
    items: &[T],
    mistakes: &mut MistakeCollector<'_>,
) {
    let mut seen = BTreeSet::new();
    for (n, item) in items.iter().enumerate() {
        if !seen.insert(item) {
            mistakes.error(
                &at.location(option, Some(n)),
                Problem::new(format!("`{item}` is listed twice")).label("remove one of the two"),
            );
        }
    }
}
