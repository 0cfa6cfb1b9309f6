//! Checks that routes and originations share.

use crate::input::locations::SectionRef;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::values::choices::TlsVersion;
use std::collections::BTreeSet;

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

/// Reports protocols that `alpn` lists twice.
pub(crate) fn alpn(at: SectionRef<'_>, protocols: &[String], mistakes: &mut MistakeCollector<'_>) {
    alpn_of(at, "alpn", protocols, mistakes);
}

/// Reports protocols that the option of this name lists twice.
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
