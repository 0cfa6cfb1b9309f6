//! What a word on a connection at rest asks of the operating system, counted by strace: a number
//! that does not depend on how busy the machine is.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use dormouse_interop::peer::Peer;
use dormouse_interop::process::signal;
use dormouse_interop::scene::{Scene, applies};
use dormouse_interop::terminator::Can;
use dormouse_interop::{tools, wait};
use rustix::process::Signal;

/// Exchanges that are counted.
const WORDS: u64 = 200;

/// A word to the backend and its answer are waited for, received and sent: six. What is looked at now
/// and then may be two more.
const CALLS_MAX: f64 = 8.0;

/// System calls of this process while `work` is done, by name.
fn calls(pid: u32, work: impl FnOnce()) -> BTreeMap<String, u64> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("calls");
    let mut strace = Command::new("strace")
        .args(["-c", "-f", "-p", &pid.to_string(), "-o"])
        .arg(&file)
        .stderr(Stdio::null())
        .spawn()
        .expect("strace can be started");
    wait::until("strace to be attached", wait::PATIENCE, || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let tracer = status.lines().find_map(|l| l.strip_prefix("TracerPid:"))?;
        (tracer.trim() != "0").then_some(())
    });
    work();
    // The last call's return is counted when the next one is waited for.
    std::thread::sleep(Duration::from_millis(50));
    signal(strace.id(), Signal::INT);
    strace.wait().expect("strace ends");
    let table = std::fs::read_to_string(&file).expect("its table");
    let rows = table.lines().map(|line| line.split_whitespace().collect());
    // % time, seconds, usecs/call, calls, (errors,) name.
    rows.filter_map(|row: Vec<&str>| Some((row.last()?.to_string(), row.get(3)?.parse().ok()?)))
        .filter(|(name, _)| name != "total")
        .collect()
}

#[test]
fn a_word_costs_few_system_calls() {
    if !applies(Can::BeDormouse) || !tools::present(&["strace"]) {
        return;
    }
    let scene = Scene::new();
    let mut peer = Peer::saying(scene.address, "echo");
    peer.echo().expect("an echo");
    let workers = scene.terminator.leaves().into_iter().filter(|pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.starts_with("worker")
    });
    // Which of them has the connection is told by who does something.
    let counted: Vec<BTreeMap<String, u64>> = workers
        .map(|pid| {
            calls(pid, || {
                for _ in 0..WORDS {
                    let mut back = [0; 6];
                    peer.stream().write_all(b"hello\n").expect("sent");
                    peer.stream().read_exact(&mut back).expect("an echo");
                }
            })
        })
        .collect();
    let sum = |calls: &BTreeMap<String, u64>| calls.values().sum::<u64>();
    let busiest = counted
        .iter()
        .max_by_key(|calls| sum(calls))
        .expect("workers");
    let each = sum(busiest) as f64 / WORDS as f64;
    assert!(each >= 4.0, "nothing was counted: {counted:?}");
    assert!(
        each <= CALLS_MAX,
        "{each} system calls for each word and its answer: {busiest:?}"
    );
}
