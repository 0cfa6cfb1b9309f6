//! Neither the session cache nor the heap grows with the number of handshakes: long-lived sessions are in a
//! mapping of their own, where they pin no page among the garbage of handshakes. `lab/memory/session-cache` does the
//! same with half a million handshakes.

use std::sync::atomic::{AtomicU64, Ordering};

use dormouse_interop::counts::Counts;
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::Process;
use dormouse_interop::scene::{self, TLS_PORT, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::wait;
use std::net::SocketAddr;

/// Fills the cache: 256 KiB hold some 1,000 sessions, and each handshake adds two.
const WARM_UP: u64 = 1_000;

/// Maximum growth. (Some pages are touched for the first time.)
const GROWTH_MAX: u64 = 512 << 10;

/// Every fourth client resumes a session.
fn handshakes(address: SocketAddr, count: u64) {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while next.fetch_add(4, Ordering::Relaxed) < count {
                    let configs = peer::configs_by_version();
                    for visit in 0..4 {
                        let config = configs[visit / 3].clone();
                        let tcp = peer::connect_tcp(address).expect("a connection");
                        let mut peer = Peer::over(tcp, peer::client(config)).expect("a handshake");
                        peer.echo().expect("an echo, and tickets before it");
                    }
                }
            });
        }
    });
}

fn still(process: &Process) -> u64 {
    wait::until_still("memory", || process.memory() >> 16) << 16
}

fn does_not_grow(count: u64) {
    requires!(Can::BeDormouse);
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = Settings::new(SocketAddr::new(unused_host(), TLS_PORT), Target::Echo);
    settings.option("session_cache", "256 KiB");
    let counts = Counts::of(&mut settings, folder.path());
    let process = scene::start(Terminator::Dormouse, &settings, folder.path());
    handshakes(settings.listen, WARM_UP);
    let before = still(&process);
    handshakes(settings.listen, count);
    let after = still(&process);
    let done = ["full", "resumed"].map(|kind| counts.get(&format!("handshakes_{kind}")));
    eprintln!("{done:?} handshakes, full and resumed: {before} bytes before, {after} after");
    assert!(done[0] + done[1] >= count + WARM_UP);
    assert!(done[1] >= count / 3, "the cache is in use");
    assert_eq!(counts.get("resumption_refused_damaged"), 0);
    assert!(
        after <= before + GROWTH_MAX,
        "{before} bytes before, {after} after"
    );
}

#[test]
fn memory_is_stable_over_eight_thousand_handshakes() {
    let _alone = crate::alone();
    does_not_grow(8_000);
}
