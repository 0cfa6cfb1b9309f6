//! The guide's table of the JSON is made from the table of figures and from what recorded audits have printed.
//! `DORMOUSE_BLESS=1 cargo test -p dormouse-audit --test recorded` rewrites it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use dormouse_audit::model::{
    AddressTrials, AgedTicket, Certificate, ClassRounds, ClientConnection, ClientFigures,
    CollectedPoint, CollectedRounds, CpuFigures, Figures, FirstConnection, FlightRow, LockWaits,
    MemoryFigures, MemoryPhase, Offer, ParallelHandshakes, RecordFigures, Reference, Resumption,
    ServerFigures, Serving, SilentClients, Trials,
};
use dormouse_audit::report;

use super::{RECORDED, audits};

const BEGIN: &str = "| place | fields | |\n|---|---|---|\n";

/// An object of the JSON as the guide describes it.
struct Object {
    places: &'static [&'static str],
    /// Keys that are not fixed.
    keys: Option<&'static str>,
    about: String,
}

fn of<T: Figures>() -> Object {
    let fields = T::FIELDS.iter().filter(|(_, words)| !words.is_empty());
    let fields = fields.map(|(name, words)| format!("`{name}`: {}", words.trim()));
    let about = Some(T::ABOUT.to_owned()).filter(|about| !about.is_empty());
    Object {
        places: T::PLACES,
        keys: None,
        about: about
            .into_iter()
            .chain(fields)
            .collect::<Vec<_>>()
            .join("; "),
    }
}

/// An object of another crate.
fn other(places: &'static [&'static str], about: &str) -> Object {
    Object {
        places,
        keys: None,
        about: about.to_owned(),
    }
}

fn map(place: &'static [&'static str], keys: &'static str, about: &str) -> Object {
    Object {
        keys: Some(keys),
        ..other(place, about)
    }
}

const GROWTH: &[&str] = &[
    "server.memory.growth",
    "server.memory.growth_resumed",
    "server.memory.growth_in_use",
    "server.memory.growth_in_use_resumed",
    "server.memory.growth_in_use_tls12",
    "server.memory.growth_in_use_broken",
];
const SLOPE: &[&str] = &[
    "server.memory.growth.slope",
    "server.memory.growth_resumed.slope",
    "server.memory.growth_in_use.slope",
    "server.memory.growth_in_use_resumed.slope",
    "server.memory.growth_in_use_tls12.slope",
    "server.memory.growth_in_use_broken.slope",
];

/// Every object, in the order of the guide.
fn objects() -> impl Iterator<Item = Object> {
    let all = [of_the_run_and_the_offer(), of_memory(), of_cpu_and_client()];
    all.into_iter().flatten()
}

fn of_the_run_and_the_offer() -> Vec<Object> {
    vec![
        other(
            &[""],
            "`schema`: 1; `tool`: name and version; `kind`: `server` or `client`; then what, when, how long, where, how. `software` may be missing; `server` or `client` is null",
        ),
        other(&["machine"], ""),
        map(
            &["settings"],
            "`effort`, `server_name`, `options`, `load_average`, …",
            "settings of this run",
        ),
        other(
            &["software"],
            "what was recognised in the processes that hold the listening socket, and the evidence. `program` is the name by which it was started, null: unknown",
        ),
        other(&["processes[]"], ""),
        of::<ServerFigures>(),
        of::<Offer>(),
        map(
            &["server.offer.versions"],
            "`TLS 1.0` to `TLS 1.3`",
            "whether each is accepted",
        ),
        map(&["server.offer.not_measured"], "fields above", "why"),
        of::<Certificate>(),
        of::<Resumption>(),
        of::<Trials>(),
        of::<AddressTrials>(),
        of::<AgedTicket>(),
        of::<FlightRow>(),
        of::<RecordFigures>(),
        of::<SilentClients>(),
    ]
}

fn of_memory() -> Vec<Object> {
    vec![
        of::<MemoryFigures>(),
        of::<MemoryPhase>(),
        of::<Serving>(),
        other(
            &["server.memory.phases[].memory"],
            "bytes of the process tree",
        ),
        other(&["server.memory.phases[].kernel"], "of the machine"),
        other(GROWTH, ""),
        other(SLOPE, "bytes per round"),
        of::<CollectedRounds>(),
        of::<CollectedPoint>(),
        of::<ClassRounds>(),
        other(
            &["server.census"],
            "`grown`: size, before, after; `pins`: blocks on mostly free pages, by size: before, after closing",
        ),
        other(
            &["server.census.classes[]"],
            "`blocks`: at zero, N and 2N connections",
        ),
        map(
            &["server.census.in_use_bytes", "server.census.free_bytes"],
            "moments",
            "",
        ),
        map(
            &["server.census.returnable_bytes"],
            "moments",
            "of the free bytes, those in whole free pages",
        ),
        other(
            &["server.census.managed[]"],
            "of a language runtime; at zero and 2N connections",
        ),
        other(
            &["server.census.pages"],
            "null if the blocks explain the memory; `unread_bytes`: address space that was not read, because a process maps more than 1 TiB",
        ),
    ]
}

fn of_cpu_and_client() -> Vec<Object> {
    vec![
        of::<CpuFigures>(),
        of::<ParallelHandshakes>(),
        of::<LockWaits>(),
        other(
            &["server.cpu.profile[]"],
            "CPU time of full handshakes by program, library and function; null: the file does not name its functions",
        ),
        map(&["server.cpu.resumed_us"], "versions", ""),
        of::<Reference>(),
        of::<FirstConnection>(),
        of::<ClientFigures>(),
        map(&["client.failed"], "reasons", ""),
        map(&["client.versions"], "versions", ""),
        of::<ClientConnection>(),
        other(&["findings[]"], ""),
        other(&["incomplete[]"], "a part of the audit that is missing"),
        other(&["samples[]"], "memory and CPU time over time"),
        other(&["outcome"], ""),
    ]
}

/// The fields of every object in the JSON of the recorded audits, in their order.
fn printed() -> BTreeMap<String, Vec<String>> {
    let mut objects: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for audit in audits() {
        let json = serde_json::to_string_pretty(&audit).unwrap();
        collect(&json, &mut objects);
    }
    objects
}

/// Walks the lines of indented JSON: a line opens an object or a list, closes it, or has a field.
fn collect(json: &str, objects: &mut BTreeMap<String, Vec<String>>) {
    let mut open: Vec<String> = Vec::new();
    for line in json.lines().map(str::trim) {
        if line.starts_with(['}', ']']) {
            open.pop();
            continue;
        }
        let (name, value) = match line
            .strip_prefix('"')
            .and_then(|rest| rest.split_once("\": "))
        {
            Some((name, value)) => (Some(name), value),
            None => (None, line),
        };
        let place = open.concat();
        // A figure that may be missing is in an object of its own, which the guide leaves out.
        let is_field = |name: &&str| match *name {
            "measured" => place == "findings[]",
            "not_measured" => value.starts_with('{'),
            _ => true,
        };
        if let Some(name) = name.filter(is_field) {
            let fields = objects.entry(place.clone()).or_default();
            if !fields.iter().any(|known| known == name) {
                fields.push(name.to_owned());
            }
        }
        let dot = if place.is_empty() { "" } else { "." };
        let step = match name {
            None | Some("measured") => String::new(),
            Some(name) => format!("{dot}{name}"),
        };
        match value {
            "{" => open.push(step),
            "[" => open.push(step + "[]"),
            _ => {}
        }
    }
}

fn table() -> String {
    let mut printed = printed();
    let mut table = BEGIN.to_owned();
    for object in objects() {
        let fields = object.places.iter().map(|place| printed.remove(*place));
        let mut fields: Vec<_> = fields.map(Option::unwrap_or_default).collect();
        fields.dedup();
        assert!(
            object.keys.is_some() || fields.len() == 1,
            "{:?} differ",
            object.places
        );
        let fields = fields.swap_remove(0);
        let is_same = object.keys.is_some() || !fields.is_empty();
        assert!(is_same, "no audit has printed {:?}", object.places);
        let quoted = |names: &[&str]| {
            names
                .iter()
                .map(|name| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let fields = object
            .keys
            .map_or_else(|| quoted(&fields), |keys| format!("[{keys}]"));
        let places = if object.places == [""] {
            String::new()
        } else {
            quoted(object.places) + " "
        };
        writeln!(table, "| {places}| {fields} | {} |", object.about).unwrap();
    }
    let places: Vec<_> = printed
        .keys()
        .filter(|place| !place.starts_with("settings."))
        .collect();
    assert!(places.is_empty(), "the table does not know {places:?}");
    table.replace("|  |", "| |")
}

#[test]
fn the_guide_has_every_field_and_no_other() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/guide/audit.md");
    let text = std::fs::read_to_string(&guide).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let rows = rest
        .split_inclusive('\n')
        .take_while(|line| line.starts_with('|'));
    let rows: String = rows.collect();
    let (made, known) = (table(), format!("{BEGIN}{rows}"));
    if std::env::var_os("DORMOUSE_BLESS").is_some() {
        let after = rest.strip_prefix(rows.as_str()).unwrap();
        std::fs::write(&guide, format!("{before}{made}{after}")).unwrap();
        return;
    }
    for (made, known) in made.lines().zip(known.lines()) {
        assert_eq!(made, known);
    }
    assert_eq!(made, known);
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
