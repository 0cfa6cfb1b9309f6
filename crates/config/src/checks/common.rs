//! Checks that routes and originations share.

use crate::input::locations::SectionRef;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::values::choices::TlsVersion;
use std::collections::BTreeSet;

/// Reports versions of TLS that leave no client a way in.
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
            .help("leave both away for TLS 1.2 and 1.3"),
        );
    } else if max == TlsVersion::Tls12 {
        mistakes.warning(
            &at.location("max_version", None),
            Problem::new("TLS 1.3 is turned off")
                .help("it is faster and safer; clients that can't speak it use 1.2 by themselves"),
        );
    }
}

/// Reports protocols that `alpn` names twice.
pub(crate) fn alpn(at: SectionRef<'_>, protocols: &[String], mistakes: &mut MistakeCollector<'_>) {
    alpn_of(at, "alpn", protocols, mistakes);
}

/// As [`alpn`], for the option of this name.
pub(crate) fn alpn_of(
    at: SectionRef<'_>,
    option: &str,
    protocols: &[String],
    mistakes: &mut MistakeCollector<'_>,
) {
    let mut seen = BTreeSet::new();
    for (item, protocol) in protocols.iter().enumerate() {
        if !seen.insert(protocol) {
            mistakes.error(
                &at.location(option, Some(item)),
                Problem::new(format!("`{protocol}` is listed twice"))
                    .label("remove one of the two"),
            );
        }
    }
}
