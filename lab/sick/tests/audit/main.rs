//! Tests that the audit finds every planted fault, and nothing severe in the healthy twins.

mod allocators;
mod callers;
mod pairs;
mod places;
mod runtimes;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use self::places::Place;

/// The program that is tested: what `DORMOUSE_BIN` names, or the one that was built with these tests.
fn program() -> PathBuf {
    let beside = || PathBuf::from(env!("CARGO_BIN_EXE_sick")).with_file_name("dormouse");
    std::env::var_os("DORMOUSE_BIN").map_or_else(beside, PathBuf::from)
}

/// Runs an audit, which has a place on this machine's cores.
fn dormouse(_: &Place, arguments: &[&str]) -> Output {
    let hint = "cargo build -p dormouse builds the program that is tested";
    Command::new(program())
        .arg("audit")
        .args(arguments)
        .output()
        .expect(hint)
}

/// The arguments of a short audit of a server whose result is JSON. On a busy machine it takes as long as it needs: what
/// is tested is the verdict.
fn short(address: &str) -> Vec<&str> {
    let words = [
        "--insecure",
        "--quick",
        "--time",
        "300s",
        "-q",
        "--json",
        "-",
    ];
    ["server", address].into_iter().chain(words).collect()
}

/// An audit, and its findings with their severities.
type Judged = (Value, Vec<(String, String)>);

/// An address on which nothing listens.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Audits a server that a shell command starts.
fn audit_command(place: &Place, address: &str, command: &str, options: &[&str]) -> Judged {
    let words = [&short(address)[..], &["--cmd", command], options].concat();
    judged(&dormouse(place, &words))
}

fn judged(output: &Output) -> Judged {
    let said = String::from_utf8_lossy(&output.stderr);
    keep_report(&output.stdout);
    let audit: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(audit["outcome"]["complete"], true, "{said}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let findings = audit["findings"].as_array().unwrap().iter();
    let findings = findings.map(|finding| (text(&finding["id"]), text(&finding["severity"])));
    let findings = findings.collect();
    (audit, findings)
}

/// Writes the report into the folder that `SICK_REPORTS` names, with the test's name.
fn keep_report(report: &[u8]) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    if let Some(folder) = std::env::var_os("SICK_REPORTS") {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("test").replace("::", ".");
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(folder).join(format!("{test}.{number}.json"));
        fs::write(&path, report).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

fn audit_server(fault: &str) -> Judged {
    let place = Place::shared();
    let address = free_address();
    let sick = env!("CARGO_BIN_EXE_sick");
    let command = |objects: &str| format!("exec {sick} server {fault} {address} {objects}");
    let mut arguments = short(&address);
    let (with_heap, with_larger) = (command("200000"), command("800000"));
    let plain = command("");
    if fault.starts_with("first") {
        arguments.extend(["--cmd", &with_heap, "--cmd-larger", &with_larger]);
    } else {
        arguments.extend(["--cmd", &plain]);
    }
    judged(&dormouse(&place, &arguments))
}

/// The same for faults that are visible from outside: the audit does not know the process.
fn audit_address(fault: &str) -> Judged {
    let place = Place::shared();
    let address = free_address();
    let mut server = Command::new(env!("CARGO_BIN_EXE_sick"))
        .args(["server", fault, &address])
        // Its children exit with it.
        .process_group(0)
        .spawn()
        .unwrap();
    while TcpStream::connect(&address).is_err() {
        assert!(server.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = dormouse(&place, &short(&address));
    let group = Pid::from_raw(i32::try_from(server.id()).unwrap()).unwrap();
    kill_process_group(group, Signal::KILL).unwrap();
    server.wait().unwrap();
    judged(&output)
}

fn client(fault: &str, more: &[&str]) -> Output {
    let sick = env!("CARGO_BIN_EXE_sick");
    let words = ["client", "-q", "--json", "-"];
    let command = ["--", sick, "client", fault, "{address}"];
    dormouse(&Place::shared(), &[&words[..], more, &command].concat())
}

fn audit_client(fault: &str) -> Judged {
    judged(&client(fault, &[]))
}

/// Checks that the fault is among the findings, and severe enough to fail.
fn is_named((audit, findings): &Judged, id: &str) {
    let named = findings
        .iter()
        .any(|(of, severity)| of == id && (severity == "medium" || severity == "high"));
    assert!(named, "{id} is not among {findings:?}\n{audit:#}");
}

fn is_clean((audit, findings): &Judged) {
    let heavy: Vec<_> = findings
        .iter()
        .filter(|(_, severity)| severity == "medium" || severity == "high")
        .collect();
    assert!(
        heavy.is_empty(),
        "{heavy:?}\n{}\n{:#}",
        audit["findings"],
        audit["server"]["memory"]
    );
    assert_eq!(audit["outcome"]["exit_status"], 0);
}

macro_rules! faults {
    ($audit:ident: $($(#[$more:meta])* $name:ident: $fault:literal is $id:literal;)*) => {
        $(#[test] $(#[$more])* fn $name() { is_named(&$audit($fault), $id); })*
    };
}

/// The faults' twins. Each is a whole audit, like the ignored faults: together they would take minutes of `make test`, which
/// has one of each kind: memory, CPU time, resumption, an offer, a healthy server, clients.
macro_rules! twins {
    ($($name:ident: $twin:literal;)*) => {
        $(#[test] #[ignore = "a whole audit: half a minute"] fn $name() { is_clean(&audit_server($twin)); })*
    };
}

faults! {
    audit_server:
    #[ignore = "a whole audit: half a minute"]
    a_trust_store_for_each_connection: "trust-store" is "context-per-connection";
    #[ignore = "a whole audit: half a minute"]
    a_session_cache_without_end: "session-cache" is "session-cache-grows";
    #[ignore = "a whole audit: half a minute"]
    a_leak_for_each_connection: "leak" is "leak-per-connection";
    #[ignore = "a whole audit: half a minute"]
    fragmentation_without_a_leak: "fragments" is "heap-fragmented";
    cpu_time_burnt_for_each_handshake: "burn" is "handshake-cpu";
}

faults! {
    audit_address:
    no_resumption: "no-resumption" is "no-resumption";
    #[ignore = "a whole audit: half a minute"]
    resumption_in_one_of_four_processes: "one-of-four" is "resumption-partial";
    #[ignore = "a whole audit: half a minute"]
    keys_that_are_forgotten: "keys-forgotten" is "resumption-ends-early";
    compression: "compression" is "compression-accepted";
}

#[test]
fn a_healthy_server() {
    is_clean(&audit_server("healthy"));
}

twins! {
    one_trust_store_for_all: "trust-store-shared";
    buffers_that_are_released: "buffers-released";
    a_session_cache_with_a_bound: "session-cache-bounded";
    garbage_apart_from_what_stays: "fragments-apart";
    four_processes_with_the_same_keys: "four-shared";
    what_belongs_to_the_start_is_done_there: "first-early";
}

#[test]
#[ignore = "a whole audit: half a minute"]
fn a_first_connection_that_walks_the_heap() {
    let judged = audit_server("first");
    is_named(&judged, "first-connection-slow");
    let findings = judged.0["findings"].as_array().unwrap();
    let finding = findings
        .iter()
        .find(|finding| finding["id"] == "first-connection-slow")
        .unwrap();
    assert_eq!(
        finding["confidence"], "high",
        "it grows with the heap: {finding:#}"
    );
}

#[test]
fn buffers_that_are_kept() {
    let judged = audit_server("buffers");
    is_named(&judged, "record-buffers-kept");
    let (audit, _) = judged;
    let class = &audit["server"]["census"]["measured"]["classes"][0];
    let size = class["size_bytes"].as_u64().unwrap();
    assert!((16_921..16_960).contains(&size), "{class:#}");
    assert!(
        (1.9..2.1).contains(&class["per_connection"].as_f64().unwrap()),
        "{class:#}"
    );
    assert!(class["zero_share"].as_f64().unwrap() > 0.95, "{class:#}");
}

#[test]
fn clients() {
    is_named(&audit_client("never"), "client-never-resumes");
    is_named(&audit_client("for-ever"), "client-same-session-for-ever");
    let healthy = audit_client("renewing");
    is_clean(&healthy);
    assert_eq!(healthy.0["client"]["resumed"], 11);
    let least = ["--fail-on", "never", "--min-resumed", "100"];
    assert_eq!(client("renewing", &least).status.code(), Some(0));
    assert_eq!(client("never", &least).status.code(), Some(1));
}

#[test]
fn an_unreachable_target_is_never_clean() {
    let place = Place::shared();
    let server = ["server", "127.0.0.1:1", "--insecure", "--quick", "-q"];
    let output = dormouse(&place, &server);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let output = dormouse(&place, &["client", "-q", "--", "true"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let output = dormouse(&place, &["client", "-q"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// Free heap that earlier connections left changes nothing: the same server gets the same result again.
#[test]
#[ignore = "two whole audits: a minute"]
fn an_audited_server_is_the_same_the_second_time() {
    let place = Place::shared();
    let address = free_address();
    let mut server = Command::new(env!("CARGO_BIN_EXE_sick"))
        .args(["server", "buffers", &address])
        .process_group(0)
        .spawn()
        .unwrap();
    while TcpStream::connect(&address).is_err() {
        assert!(server.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = server.id().to_string();
    let words = [&short(&address)[..], &["--pid", &pid]].concat();
    let audits: Vec<_> = (0..2).map(|_| judged(&dormouse(&place, &words))).collect();
    server.kill().unwrap();
    server.wait().unwrap();
    let used = audits.iter().map(|(audit, _)| {
        let used = &audit["server"]["memory"]["measured"]["used_bytes"]["measured"];
        used.as_f64()
            .unwrap_or_else(|| panic!("{}", audit["server"]["memory"]))
    });
    let used: Vec<f64> = used.collect();
    let most = used.iter().copied().fold(0.0, f64::max);
    assert!(used.iter().all(|used| *used > 0.95 * most), "{used:?}");
    assert!(most > 30_000.0, "{used:?}");
}

/// The same with realistic sizes: half an hour.
#[test]
#[ignore = "takes half an hour"]
fn thoroughly() {
    let place = Place::whole_core();
    for fault in ["healthy", "session-cache-bounded", "fragments-apart"] {
        let address = free_address();
        let command = format!(
            "exec {} server {fault} {address}",
            env!("CARGO_BIN_EXE_sick")
        );
        let words = ["server", &address, "--insecure", "-q", "--json", "-"];
        let output = dormouse(&place, &[&words[..], &["--cmd", &command]].concat());
        is_clean(&judged(&output));
    }
}
