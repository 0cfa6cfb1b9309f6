//! Checks of TLS profiles, suites and versions.

use crate::input::locations::SectionRef;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::options::Route;
use crate::values::choices::{TlsGroup, TlsProfile, TlsVersion};

/// Reports suites and versions that contradict each other or that no client could use.
pub(crate) fn check(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    if !at.sound(&["profile", "suites", "groups", "min_version", "max_version"]) {
        return;
    }
    if route.profile == TlsProfile::Modern {
        for (name, version) in [
            ("min_version", route.min_version),
            ("max_version", route.max_version),
        ] {
            if at.has(name) && version != TlsVersion::Tls13 {
                mistakes.error(
                    &at.location(name, None),
                    Problem::new(format!(
                        "profile \"modern\" is TLS 1.3 only, but {name} is {version}"
                    ))
                    .label("remove one of the two"),
                );
                return;
            }
        }
    }
    if route.oldest_version() > route.max_version {
        return;
    }
    groups(route, at, mistakes);
    if route.suites.is_empty() {
        return;
    }
    let spoken = route.oldest_version()..=route.max_version;
    for (n, suite) in route.suites.iter().enumerate() {
        let version = suite.version();
        if !spoken.contains(&version) {
            mistakes.warning(
                &at.location("suites", Some(n)),
                Problem::new(format!("`{suite}` has no effect: it is for TLS {version}, which this route does not accept"))
                    .label("remove it"),
            );
        }
    }
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let is_spoken = spoken.contains(&version);
        if is_spoken && !route.suites.iter().any(|suite| suite.version() == version) {
            mistakes.error(
                &at.location("suites", None),
                Problem::new(format!("none of these suites is for TLS {version}, so no client could use that version"))
                    .help(match version {
                        TlsVersion::Tls12 => "add one, such as \"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256\", or set min_version = \"1.3\"",
                        TlsVersion::Tls13 => "add one, such as \"TLS_AES_128_GCM_SHA256\", or set max_version = \"1.2\"",
                    }),
            );
        }
    }
}

/// Reports TLS 1.2 without a group that it has.
fn groups(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    if route.groups != [TlsGroup::X25519MlKem768] || route.oldest_version() > TlsVersion::Tls12 {
        return;
    }
    let problem =
        Problem::new("X25519MLKEM768 is for TLS 1.3 only, so no client could use TLS 1.2")
            .help("add another group, such as \"x25519\", or set min_version = \"1.3\"");
    mistakes.warning(&at.location("groups", None), problem);
}
