//! The JSON of an audit has exactly the objects and fields that the guide describes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use dormouse_audit::report;
use serde_json::Value;

use super::{RECORDED, audits};

type Objects = BTreeMap<String, BTreeSet<String>>;

/// The objects in the JSON of the recorded audits.
fn printed() -> Objects {
    let mut objects = Objects::new();
    for audit in audits() {
        collect(&serde_json::to_value(&audit).unwrap(), "", &mut objects);
    }
    objects
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
    let changed = RECORDED.replace("\"id\":\"handshake-cpu\"", "\"id\":\"warp-core-breach\"");
    assert_ne!(changed, RECORDED);
    let error = report::read(&changed).unwrap_err();
    assert!(
        error.contains("unknown finding \"warp-core-breach\""),
        "{error}"
    );
}
