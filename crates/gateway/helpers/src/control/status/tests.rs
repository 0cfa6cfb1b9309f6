//! The whole document: `document.expected` is what clients read, byte for byte.
//! `DORMOUSE_BLESS=1 cargo test -p dormouse-helpers status` rewrites it.

use super::*;
use crate::control::ages::Taken;
use crate::control::answers::{self, Handling};
use crate::control::http::{Request, Response};
use crate::control::listener::Access;
use dormouse_handover::SecretText;
use dormouse_handover::connections::{AgeGroups, Page};
use dormouse_handover::control::{
    Backend, Bounds, Certificate, Configuration, DrainOrder, Keeper, KeptChange, Listing, Phase,
    Reload, Route, SpiffeCertificate,
};
use dormouse_reactor::shared::{self, Shared};
use dormouse_tables::backends::{Backends, CheckedHealth};
use dormouse_tables::counters::Counters;
use dormouse_tables::traffic::{Row, Tally, Traffic};
use std::path::{Path, PathBuf};

const FULL: &str = include_str!("document.expected");

fn backend(place: u16, address: &str) -> Backend {
    Backend {
        routes: vec!["shop".to_owned()],
        address: address.to_owned(),
        name: (place != 0).then(|| "app.internal".to_owned()),
        place,
        is_unresolved: false,
        checked: place != 0,
        weight: 1,
        out: false,
        differing: Vec::new(),
    }
}

fn state() -> State {
    let pid = process::pid().0;
    let now_ms = process::boottime_ms();
    let keeper = |ended: Option<&str>| Keeper {
        pid,
        born_ms: now_ms,
        ended: ended.map(str::to_owned),
    };
    State {
        pid,
        born_ms: now_ms,
        phase: Phase::Draining,
        keepers: vec![keeper(None), keeper(Some("exit status 1"))],
        configuration: Configuration {
            file: Some(PathBuf::from("/etc/dormouse/dormouse.toml")),
            edition: 3,
            loaded_ms: now_ms,
            last_reload: Some(Reload {
                done: false,
                words: "error: \"x\"\nline 7".to_owned(),
                at_ms: now_ms,
            }),
            waits_for_restart: vec!["workers".to_owned()],
            kept_changes: vec![KeptChange {
                change: "out 10.0.0.9:80".to_owned(),
                problem: Some("no backend 10.0.0.9:80".to_owned()),
            }],
        },
        bounds: Bounds {
            connections: 20_000,
            awake: 2_000,
            handshakes: 300,
            pending_bytes: 1 << 20,
            handshake_bytes: 16_384,
            kernel_bytes: 1 << 24,
        },
        certificates: vec![Certificate {
            file: "/etc/dormouse/é.pem".to_owned(),
            name: "example.com".to_owned(),
            expires_s: 0,
            is_pushed: true,
        }],
        acme: Some(Acme {
            issued: 2,
            failed: 1,
            names: vec![AcmeName {
                name: "a.example".to_owned(),
                expires_s: None,
                next_ms: now_ms,
                failures: 1,
                why: Some("refused".to_owned()),
            }],
        }),
        spiffe: Some(Spiffe {
            agent: "unix:/run/agent.sock".to_owned(),
            away: Some("cannot connect".to_owned()),
            since_ms: now_ms,
            responses: 3,
            certificates: vec![SpiffeCertificate {
                id: "spiffe://example.org/web".to_owned(),
                expires_s: 0,
            }],
            trust_domains: vec!["spiffe://example.org".to_owned()],
        }),
        drain: Some(Drain {
            begun_ms: now_ms,
            over_ms: 10_000,
            order: DrainOrder::Shortest,
            connections: 9,
            closed_before: 1,
            is_empty: false,
        }),
        listeners: vec!["0.0.0.0:443".to_owned()],
    }
}

fn listing(backends: Vec<Backend>) -> Listing {
    Listing {
        routes: vec![Route {
            name: "shop".to_owned(),
            number: 3,
            listen: vec![":443".to_owned()],
            memory_share: Some(10),
        }],
        backends,
        is_first: true,
        is_last: true,
    }
}

/// The state of a program with two workers, the second of which has crashed once.
fn view() -> View {
    let shared = Shared::create("test", 2).expect("memory");
    for number in 0..2 {
        let counters = Counters::new(shared.block(number).expect("a block"));
        counters.set(Count::WorkerPid, process::pid().0 as u64);
        counters.set(Count::WorkerBornMs, process::boottime_ms());
        counters.set(Count::Connections, 5 + number as u64);
        counters.set(Count::AtRest, 4);
        counters.set(Count::Handshaking, 2);
        counters.set(Count::HandshakesBegun, 1);
        counters.set(Count::ClosedDrained, 3);
        counters.observe(Latency::Handshake, 2_000);
        counters.observe(Latency::Wake, 10_000_000);
    }
    let dead = Counters::new(shared.block(1).expect("a block"));
    dead.note_death(process::Ended::Killed(9));
    dead.set(Count::Restarts, 1);
    Common::KeySince.set(&shared, 1);
    Common::StoreState.set(&shared, 2);
    let backends = Backends::create(2).expect("memory");
    let place = backends.place("10.0.0.7:8080");
    backends.set_checked(place, CheckedHealth::Down, process::boottime_ms());
    let listing = listing(vec![
        backend(place, "10.0.0.7:8080"),
        backend(0, "unix:/run/app.sock"),
    ]);
    let counters = shared::View::open(shared.reader().expect("a descriptor"), 2).expect("a view");
    let traffic = Traffic::create(2).expect("memory");
    traffic.enter(Row::of_route(3), 0);
    for (tally, n) in [
        (Tally::Opened, 7),
        (Tally::HandshakesResumed, 4),
        (Tally::PlainBytesOut, 1000),
        (Tally::ClosedClean, 6),
    ] {
        traffic.add(Row::of_route(3), tally, n);
        traffic.add(Row::of_backend(place), tally, n);
    }
    let mut view = View::new(counters, backends, traffic, 2);
    view.set_state(Box::new(state()));
    view.list(listing);
    count_ages(&mut view, place);
    view
}

/// Counts connections of the route by age: two young ones and an old one, of which one has the backend at this place.
fn count_ages(view: &mut View, place: u16) {
    let mut groups = AgeGroups::default();
    groups.count(3, place, 0);
    groups.count(3, 0, 0);
    groups.count(3, 0, u64::MAX);
    let page = Page {
        ages: Some(groups),
        ..Page::default()
    };
    let now_ms = process::boottime_ms();
    view.ages.begin(1, now_ms);
    assert_eq!(view.ages.take(1, &page, now_ms), Taken::Done);
}

/// The document with ages, sizes and process ids set to 0, because they change from run to run, and
/// without counters that are 0.
fn stable(document: &str) -> String {
    const CHANGING: [&str; 12] = [
        "age_s",
        "ago_s",
        "expires_in_s",
        "loaded_ago_s",
        "older",
        "own_bytes",
        "passed_s",
        "pid",
        "resident_bytes",
        "under_1d",
        "under_1h",
        "under_7d",
    ];
    let mut in_counts = false;
    let mut stable = String::new();
    for line in document.lines() {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        in_counts = match line {
            "  \"counts\": {" => true,
            "  }," => false,
            _ => in_counts,
        };
        if in_counts && value.trim_end_matches(',') == "0" {
            continue;
        }
        stable.push_str(key);
        if !value.is_empty() {
            let is_number = value.starts_with(|c: char| c.is_ascii_digit() || c == '-');
            let is_changing = CHANGING.contains(&key.trim().trim_matches('"'));
            stable.push_str(": ");
            stable.push_str(match value.ends_with(',') {
                true if is_number && is_changing => "0,",
                false if is_number && is_changing => "0",
                _ => value,
            });
        }
        stable.push('\n');
    }
    stable
}

#[test]
fn the_full_document_is_unchanged() {
    let body = stable(&Response::json(200, &document(&view(), &Selection::default())).body);
    if std::env::var_os("DORMOUSE_BLESS").is_some() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("src/control/status/document.expected");
        std::fs::write(path, &body).expect("a file written");
    }
    assert_eq!(body, FULL);
}

#[test]
fn a_document_before_the_first_report_of_main_has_all_fields() {
    let mut view = view();
    let shared = Shared::create("test", 1).expect("memory");
    let counters = shared::View::open(shared.reader().expect("a descriptor"), 1).expect("a view");
    view = View::new(counters, view.backends, view.traffic, 0);
    let body = Response::json(200, &document(&view, &Selection::default())).body;
    for expected in [
        "\"phase\": \"unknown\"",
        "\"main\": null",
        "\"configuration\": null",
        "\"certificates\": null",
        "\"acme\": null",
        "\"drain\": null",
        "\"max\": null",
        "\"backends\": []",
        "\"keeper\": null",
        "\"last_death\": null",
        "\"bound_bytes\": null",
    ] {
        assert!(body.contains(expected), "{expected} is missing in {body}");
    }
}

/// A client that sees no backends, or no drain, would take that for the truth.
#[test]
fn nothing_is_told_before_the_first_whole_report_of_main() {
    let fresh = || {
        let known = view();
        let shared = Shared::create("test", 1).expect("memory");
        let own = Counters::new(shared.block(0).expect("a block"));
        own.set(Count::WorkerPid, process::pid().0 as u64);
        let reader = shared.reader().expect("a descriptor");
        let counters = shared::View::open(reader, 1).expect("a view");
        View::new(counters, known.backends, known.traffic, 0)
    };
    let first = || Listing {
        is_last: false,
        ..listing(vec![backend(0, "unix:/run/app.sock")])
    };
    let status_of = |path: &str, view: &View| {
        let request = Request {
            method: "GET".to_owned(),
            path: path.to_owned(),
            query: Vec::new(),
            host: None,
            origin: None,
            body: SecretText(String::new()),
        };
        match answers::reply(&request, view, Access::Orders) {
            Handling::Respond(response) => response.status,
            Handling::Forward(_) => panic!("{path} is no command"),
        }
    };
    let all = |view: &View| {
        ["/status", "/metrics", "/readyz", "/healthz", "/"].map(|path| status_of(path, view))
    };
    let mut view = fresh();
    assert_eq!(all(&view), [503, 503, 503, 200, 200]);
    view.set_state(Box::new(state()));
    view.list(first());
    assert_eq!(all(&view), [503, 503, 503, 200, 200]);
    view.list(Listing {
        is_first: false,
        ..listing(Vec::new())
    });
    let [status, metrics, ..] = all(&view);
    assert_eq!((status, metrics), (200, 200));
    // A main process that has died completes nothing.
    let mut view = fresh();
    view.note_main_death();
    assert_eq!(all(&view), [200, 200, 503, 200, 200]);
}

/// Names choose among thousands of routes; without a choice there are the first few hundred.
#[test]
fn names_choose_routes_and_backends() {
    let mut view = view();
    let (mut routes, mut backends) = (Vec::new(), Vec::new());
    for n in 0..1_000_u16 {
        routes.push(Route {
            name: format!("tenant-{n}"),
            number: n,
            listen: Vec::new(),
            memory_share: None,
        });
        let mut own = backend(0, &format!("10.0.{}.{}:80", n / 250, n % 250));
        own.routes = vec![format!("tenant-{n}")];
        backends.push(own);
    }
    let [first, mut second] = [true, false].map(|is_first| Listing {
        is_first,
        is_last: !is_first,
        ..Listing::default()
    });
    view.list(first);
    second.routes = routes;
    second.backends = backends;
    view.list(second);
    let counted = |query: &[(&str, &str)]| {
        let query = query
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let query: Vec<(String, String)> = query.collect();
        let selection = Selection::of(&query).expect("known parameters");
        let status = document(&view, &selection);
        (status.routes.len(), status.backends.len())
    };
    assert_eq!(counted(&[]), (200, 200));
    assert_eq!(counted(&[("route", "*")]), (1_000, 1_000));
    assert_eq!(counted(&[("route", "tenant-7")]), (1, 1));
    assert_eq!(counted(&[("route", "tenant-7*")]), (111, 111));
    assert_eq!(counted(&[("backend", "10.0.3.*")]), (0, 250));
    assert_eq!(
        counted(&[("route", "tenant-1"), ("backend", "10.0.0.2:80")]),
        (1, 2)
    );
    assert_eq!(counted(&[("route", "none")]), (0, 0));
    let unknown = [("name".to_owned(), "x".to_owned())];
    assert!(Selection::of(&unknown).is_err());
}
