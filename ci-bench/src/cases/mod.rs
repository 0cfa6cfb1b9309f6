//! What is counted. Each case does one thing, again and again, with fixed secrets where it has any.

mod handshakes;
mod records;
mod worker;

use crate::watch::{Once, Watch};
use handshakes::{Resumes, Side};
use records::Keys;

use dormouse_engine::{Group, Protocols};
use dormouse_record::{CONTENT_MAX, Protocol, Suite};

/// One thing that is counted.
pub struct Case {
    /// Its name in `counts.toml` and on the command line.
    pub name: &'static str,
    /// How often it is done; the count is the mean.
    pub rounds: u32,
    make: fn() -> Once,
}

/// How often it is done before anything is counted: caches, tables and sessions are there then.
const WARM_UP_ROUNDS: u32 = 8;

impl Case {
    /// The case of this name.
    pub fn named(name: &str) -> Option<&'static Case> {
        ALL.iter().find(|case| case.name == name)
    }

    /// Does it as often as it is to be done.
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

/// All of them.
///
/// A *wake* is what comes to a connection at rest: both keys expanded from its secrets, a record of 64 bytes opened and
/// one sealed. *kept keys* is the same where the keys are at hand already, as for the second record of an event.
pub const ALL: &[Case] = &[
    case("wake.aes-128-gcm", SMALL, || {
        records::echo(Protocol::Tls13, Suite::Aes128GcmSha256, Keys::Expanded, 64)
    }),
    case("wake.aes-256-gcm", SMALL, || {
        records::echo(Protocol::Tls13, Suite::Aes256GcmSha384, Keys::Expanded, 64)
    }),
    case("wake.chacha20-poly1305", SMALL, || {
        let suite = Suite::Chacha20Poly1305Sha256;
        records::echo(Protocol::Tls13, suite, Keys::Expanded, 64)
    }),
    case("wake.tls12-aes-128-gcm", SMALL, || {
        records::echo(Protocol::Tls12, Suite::Aes128GcmSha256, Keys::Expanded, 64)
    }),
    case("kept-keys.aes-128-gcm", SMALL, || {
        records::echo(Protocol::Tls13, Suite::Aes128GcmSha256, Keys::Kept, 64)
    }),
    case("kept-keys.aes-256-gcm", SMALL, || {
        records::echo(Protocol::Tls13, Suite::Aes256GcmSha384, Keys::Kept, 64)
    }),
    case("kept-keys.chacha20-poly1305", SMALL, || {
        let suite = Suite::Chacha20Poly1305Sha256;
        records::echo(Protocol::Tls13, suite, Keys::Kept, 64)
    }),
    case("kept-keys.aes-128-gcm-16-kib", LARGE, || {
        let suite = Suite::Aes128GcmSha256;
        records::echo(Protocol::Tls13, suite, Keys::Kept, CONTENT_MAX)
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

    /// What is counted is done for real, and each has a name of its own.
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
