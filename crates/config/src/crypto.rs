//! What TLS may be made of: profiles, suites and groups.

use super::Section;
use super::choices::{TlsGroup, TlsProfile, TlsSuite, TlsVersion};
use super::mistake::Collector;
use super::options::Route;
use super::placed::{At, Placed};
use super::raw::Wrong;

impl TlsSuite {
    /// The version of TLS that has it.
    pub fn version(self) -> TlsVersion {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm | Self::Chacha20 => TlsVersion::Tls13,
            _ => TlsVersion::Tls12,
        }
    }
}

impl TlsGroup {
    /// All of them, the preferred one first.
    pub const ALL: [TlsGroup; 4] = [
        TlsGroup::X25519MlKem768,
        TlsGroup::X25519,
        TlsGroup::P256,
        TlsGroup::P384,
    ];
}

impl Route {
    /// The oldest version of TLS, as profile and option say it.
    pub fn oldest_version(&self) -> TlsVersion {
        match self.profile {
            TlsProfile::Modern => TlsVersion::Tls13,
            TlsProfile::Intermediate => self.min_version,
        }
    }
}

/// Reports what leaves no client a way in, or contradicts itself.
pub(super) fn check(
    route: &Route,
    index: usize,
    placed: &Placed<'_>,
    mistakes: &mut Collector<'_>,
) {
    let at = At {
        section: Section::Route,
        index,
        placed,
    };
    if !at.sound(&["profile", "suites", "min_version", "max_version"]) {
        return;
    }
    if route.profile == TlsProfile::Modern {
        for (name, version) in [
            ("min_version", route.min_version),
            ("max_version", route.max_version),
        ] {
            if placed.written_in_route(index, name) && version != TlsVersion::Tls13 {
                mistakes.error(
                    &at.place(name, None),
                    Wrong::new(format!(
                        "profile \"modern\" is TLS 1.3 only, but {name} is {version}"
                    ))
                    .label("remove one of the two"),
                );
                return;
            }
        }
    }
    if route.suites.is_empty() || route.oldest_version() > route.max_version {
        return;
    }
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let spoken = (route.oldest_version()..=route.max_version).contains(&version);
        if spoken && !route.suites.iter().any(|suite| suite.version() == version) {
            mistakes.error(
                &at.place("suites", None),
                Wrong::new(format!("no suite of TLS {version} is among these, so nobody could speak it"))
                    .help(match version {
                        TlsVersion::Tls12 => "add one, such as \"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256\", or set min_version = \"1.3\"",
                        TlsVersion::Tls13 => "add one, such as \"TLS_AES_128_GCM_SHA256\", or set max_version = \"1.2\"",
                    }),
            );
        }
    }
}
