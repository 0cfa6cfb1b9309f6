//! Recorded audits of real systems: their JSON, and the reports of it.

mod json;
mod reports;

use dormouse_audit::model::{
    AddressTrials, AgedTicket, ClassRounds, CollectedPoint, CollectedRounds, LockWaits, Measured,
    MissingPart, ParallelHandshakes, RecordFigures, SilentClients, Trials,
};
use dormouse_audit::{Audit, report};
use dormouse_census::HotSpot;

/// As few audits as possible, shortened.
const RECORDED: &str = include_str!("../audits.json");

/// Reads the audits, and adds the figures of later versions.
fn audits() -> Vec<Audit> {
    let mut audits = report::read(RECORDED).unwrap();
    assert!(audits.len() > 1);
    audits.iter_mut().for_each(complete);
    audits
}

fn complete(audit: &mut Audit) {
    audit.incomplete.push(MissingPart {
        part: "growth".into(),
        why: "connection refused".into(),
    });
    let Some(server) = &mut audit.server else {
        return;
    };
    server.addresses = Measured::Value(vec![AddressTrials {
        version: "TLS 1.3".into(),
        from: "192.0.2.1:443".into(),
        to: "192.0.2.2:443".into(),
        trials: Measured::Value(Trials::default()),
    }]);
    server.aged = Measured::Value(vec![AgedTicket {
        version: "TLS 1.3".into(),
        age_s: 30.0,
        lifetime_s: 7200,
        load_between: true,
        resumed: Measured::Value(true),
    }]);
    server.records = Measured::Value(RecordFigures::default());
    server.silent_clients = Measured::Value(SilentClients {
        tried: 1,
        blocked_by: Some(1),
        waited_ms: 2_000.0,
        alone_ms: 1.2,
        established_blocks: Some(false),
    });
    if let Measured::Value(cpu) = &mut server.cpu {
        cpu.parallel = Measured::Value(ParallelHandshakes {
            clients: 16,
            alone_per_s: 400.0,
            together_per_s: 1_900.0,
            server_cores: 0.6,
            client_cores: 0.6,
            idle_cores: 0.8,
            quota_cores: Some(1.0),
            lock: Measured::Value(LockWaits::default()),
        });
        cpu.profile = Measured::Value(vec![HotSpot {
            object: "libcrypto.so.3".into(),
            function: Some("EVP_DigestSign".into()),
            share: 0.5,
        }]);
    }
    if let Measured::Value(memory) = &mut server.memory {
        memory.growth_in_use = memory.growth.clone();
        memory.growth_in_use_resumed = memory.growth.clone();
        memory.growth_in_use_tls12 = memory.growth.clone();
        memory.growth_in_use_broken = memory.growth.clone();
        memory.growth_collected = Measured::Value(CollectedRounds {
            by: Some("the JVM".into()),
            points: vec![CollectedPoint {
                pss_bytes: 100_000_000,
                living_bytes: Some(9_000_000),
                in_use_bytes: Some(12_000_000),
            }],
            connections_per_round: 250,
            classes: vec![ClassRounds {
                class: "[B".into(),
                rounds: vec![(2, 1000, 24_000), (5, 2000, 48_000)],
            }],
        });
    }
}
