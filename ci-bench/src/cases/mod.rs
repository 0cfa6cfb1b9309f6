//! The counted cases. Each repeats one operation; record cases use fixed secrets.

mod handshakes;
mod records;
mod worker;

use crate::watch::{Once, Watch};
use handshakes::{Resumes, Side};
use records::Keys;

use dormouse_engine::{Group, Protocols};
use dormouse_record::{CONTENT_MAX, Suite, Version};

/// An operation that is counted.
pub struct Case {
    /// The name in `counts.toml` and on the command line.
    pub name: &'static str,
    /// Number of counted rounds; the figure is their mean.
    pub rounds: u32,
    make: fn() -> Once,
}

/// Rounds before counting starts, which fill caches, tables and sessions.
const WARM_UP_ROUNDS: u32 = 8;

impl Case {
    /// The case with this name.
    pub fn named(name: &str) -> Option<&'static Case> {
        ALL.iter().find(|case| case.name == name)
    }

    /// Runs the warm-up rounds, then the counted rounds.
    pub fn run(&self) {
        let mut once = (self.make)();
        for _ in 0..WARM_UP_ROUNDS {
            once(Watch::WARMING_UP);
        }
        for _ in 0..self.rounds {
            once(Watch::COUNTING);
        }
    }
}

const SMALL: u32 = 1_000;
const LARGE: u32 = 100;
const HANDSHAKES: u32 = 20;

/// All cases.
///
/// *wake*: a connection at rest receives a record. Both keys are expanded from its secrets, a record of 64 bytes is opened
/// and one is sealed. *kept-keys*: the same with keys that are expanded already, as for the second record of an event.
pub const ALL: &[Case] = &[
    case("wake.aes-128-gcm", SMALL, || {
        records::echo(Version::Tls13, Suite::Aes128GcmSha256, Keys::Expanded, 64)
    }),
    case("wake.aes-256-gcm", SMALL, || {
        records::echo(Version::Tls13, Suite::Aes256GcmSha384, Keys::Expanded, 64)
    }),
    case("wake.chacha20-poly1305", SMALL, || {
        let suite = Suite::Chacha20Poly1305Sha256;
        records::echo(Version::Tls13, suite, Keys::Expanded, 64)
    }),
    case("wake.tls12-aes-128-gcm", SMALL, || {
        records::echo(Version::Tls12, Suite::Aes128GcmSha256, Keys::Expanded, 64)
    }),
    case("kept-keys.aes-128-gcm", SMALL, || {
        records::echo(Version::Tls13, Suite::Aes128GcmSha256, Keys::Kept, 64)
    }),
    case("kept-keys.aes-256-gcm", SMALL, || {
        records::echo(Version::Tls13, Suite::Aes256GcmSha384, Keys::Kept, 64)
    }),
    case("kept-keys.chacha20-poly1305", SMALL, || {
        let suite = Suite::Chacha20Poly1305Sha256;
        records::echo(Version::Tls13, suite, Keys::Kept, 64)
    }),
    case("kept-keys.aes-128-gcm-16-kib", LARGE, || {
        let suite = Suite::Aes128GcmSha256;
        records::echo(Version::Tls13, suite, Keys::Kept, CONTENT_MAX)
    }),
    case("server.tls13.full", HANDSHAKES, || {
        handshakes::of(Side::Server, Protocols::TLS13, Group::X25519, Resumes::No)
    }),
    case("server.tls13.full.ml-kem", HANDSHAKES, || {
        let group = Group::X25519MlKem768;
        handshakes::of(Side::Server, Protocols::TLS13, group, Resumes::No)
    }),
    case("server.tls13.resumed", HANDSHAKES, || {
        handshakes::of(Side::Server, Protocols::TLS13, Group::X25519, Resumes::Yes)
    }),
    case("server.tls12.full", HANDSHAKES, || {
        handshakes::of(Side::Server, Protocols::TLS12, Group::X25519, Resumes::No)
    }),
    case("server.tls12.resumed", HANDSHAKES, || {
        handshakes::of(Side::Server, Protocols::TLS12, Group::X25519, Resumes::Yes)
    }),
    case("client.tls13.full", HANDSHAKES, || {
        handshakes::of(Side::Client, Protocols::TLS13, Group::X25519, Resumes::No)
    }),
    case("client.tls13.resumed", HANDSHAKES, || {
        handshakes::of(Side::Client, Protocols::TLS13, Group::X25519, Resumes::Yes)
    }),
    case("worker.wake", SMALL, worker::wake),
    case(
        "worker.wake.proxied-after-rest",
        SMALL,
        worker::wake_after_rest,
    ),
    case("worker.handshake.full", HANDSHAKES, || {
        worker::handshake(false)
    }),
    case("worker.handshake.resumed", HANDSHAKES, || {
        worker::handshake(true)
    }),
];

const fn case(name: &'static str, rounds: u32, make: fn() -> Once) -> Case {
    Case { name, rounds, make }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every case runs outside callgrind, and its name is unique.
    #[test]
    fn every_case_runs() {
        for case in ALL {
            (case.make)()(Watch::COUNTING);
            assert_eq!(
                ALL.iter().filter(|other| other.name == case.name).count(),
                1
            );
        }
    }
}
