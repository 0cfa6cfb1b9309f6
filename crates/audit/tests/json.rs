//! The JSON of an audit has exactly the objects and fields that the guide describes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use dormouse_audit::model::{
    AddressTrials, AgedTicket, ClassRounds, CollectedPoint, CollectedRounds, LockWaits, Measured,
    MissingPart, ParallelHandshakes, RecordFigures, SilentClients, Trials,
};
use dormouse_audit::{Audit, report};
use dormouse_census::HotSpot;
use serde_json::Value;

type Objects = BTreeMap<String, BTreeSet<String>>;

/// The objects in recorded audits of real systems. The file has as few audits as possible, shortened. Reading and
/// writing them adds the fields of later versions.
fn printed() -> Objects {
    let mut objects = Objects::new();
    let audits = report::read(include_str!("audits.json")).unwrap();
    assert!(audits.len() > 1);
    for mut audit in audits {
        complete(&mut audit);
        collect(&serde_json::to_value(&audit).unwrap(), "", &mut objects);
    }
    objects
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

fn collect(value: &Value, place: &str, objects: &mut Objects) {
    match value {
        Value::Object(fields) if is_measured(fields) => {
            for inner in fields.values() {
                collect(inner, place, objects);
            }
        }
        Value::Object(fields) => {
            let known = objects.entry(place.to_owned()).or_default();
            known.extend(fields.keys().cloned());
            for (name, inner) in fields {
                let dot = if place.is_empty() { "" } else { "." };
                collect(inner, &format!("{place}{dot}{name}"), objects);
            }
        }
        Value::Array(entries) => {
            for entry in entries {
                collect(entry, &format!("{place}[]"), objects);
            }
        }
        _ => {}
    }
}

fn is_measured(fields: &serde_json::Map<String, Value>) -> bool {
    fields.len() == 1 && (fields.contains_key("measured") || fields.contains_key("not_measured"))
}

/// The objects in the guide. An object with arbitrary names has no set.
fn documented() -> BTreeMap<String, Option<BTreeSet<String>>> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/audit.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let (_, table) = guide.split_once("| place | fields | |").unwrap();
    let mut objects = BTreeMap::new();
    for row in table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
    {
        let mut columns = row.split('|').skip(1).map(str::trim);
        let (place, fields) = (columns.next().unwrap(), columns.next().unwrap());
        let names = fields.split('`').skip(1).step_by(2).map(str::to_owned);
        let names = (!fields.starts_with('[')).then(|| names.collect());
        objects.insert(place.trim_matches('`').to_owned(), names);
    }
    objects
}

#[test]
fn the_guide_has_every_field_and_no_other() {
    let (printed, documented) = (printed(), documented());
    for (place, fields) in &printed {
        let named = documented.iter().any(|(known, names)| {
            names.is_none()
                && place
                    .strip_prefix(known.as_str())
                    .is_some_and(|rest| rest.starts_with('.'))
        });
        match documented.get(place) {
            Some(Some(names)) => assert_eq!(fields, names, "{place:?}"),
            Some(None) => {}
            None => assert!(named, "the guide does not know {place:?}: {fields:?}"),
        }
    }
    for place in documented.keys() {
        assert!(
            printed.contains_key(place),
            "the guide knows {place:?}, which no audit has printed"
        );
    }
}

#[test]
fn an_unknown_finding_is_refused_by_its_name() {
    let known = include_str!("audits.json");
    let changed = known.replace("\"id\":\"handshake-cpu\"", "\"id\":\"warp-core-breach\"");
    assert_ne!(changed, known);
    let error = report::read(&changed).unwrap_err();
    assert!(
        error.contains("unknown finding \"warp-core-breach\""),
        "{error}"
    );
}
