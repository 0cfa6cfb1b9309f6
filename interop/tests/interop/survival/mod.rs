//! Connections survive crashes, upgrades and reloads; draining and stopping close each of them cleanly.

mod drain;
mod keepers;
mod kill;
mod processes;
mod readmission;
mod reload;
mod reloaded_options;
mod signals;
mod systemd;
mod upgrade;

use dormouse_interop::peer;
use dormouse_interop::probe::Probe;
use dormouse_interop::scene::Scene;

/// Connections whose bytes come back, of both versions, some with new keys.
fn probes(scene: &Scene, count: usize) -> Vec<Probe> {
    let configs = peer::configs_by_version();
    (0..count)
        .map(|number| {
            let mut probe = scene.probe_as(configs[number % 2].clone());
            probe.echo(1000).expect("an echo");
            if number % 4 == 0 {
                // Both sides: our update requests the server's.
                probe.tls().refresh_traffic_keys().expect("TLS 1.3");
                probe.echo(100).expect("an echo with new keys");
            }
            probe
        })
        .collect()
}

/// Asserts that each connection still echoes, byte by byte.
#[track_caller]
fn assert_echoes(probes: &mut [Probe]) {
    for probe in probes {
        probe.echo(500).expect("an echo");
    }
}
