//! Tests of `dormouse demo`: it succeeds, it can fail, and it leaves no process behind however it
//! ends.

mod common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::RunOutput;

fn demo() -> Command {
    let mut command = common::dormouse();
    command.args(["demo", "--quick"]).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> RunOutput {
    let ran = common::run(demo().args(arguments));
    assert_gone(serve_address(&ran.out));
    ran
}

/// Returns the address in `$ dormouse serve --listen ADDRESS …`.
fn serve_address(line: &str) -> SocketAddr {
    let (_, rest) = line
        .split_once("--listen ")
        .expect("the command line of serve is shown");
    let address = rest.split_whitespace().next().expect("an address");
    address.parse().expect("an address")
}

/// Checks that the address is soon no longer listened on.
fn assert_gone(address: SocketAddr) {
    let until = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).is_ok() {
        assert!(
            Instant::now() < until,
            "somebody still listens on {address}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn connections_rest_wake_and_survive_their_workers() {
    let ran = run(&[]);
    let RunOutput { out, err, .. } = &ran;
    assert_eq!(ran.code, Some(0), "{out}\n{err}");
    assert_eq!(err, "");
    assert!(out.contains("500 TLS connections in"), "{out}");
    // 500 slots are smaller than other changes in the memory of a few processes.
    let costs = [
        "bytes per connection in `dormouse serve`",
        "the cost of a connection is unknown",
    ];
    assert!(costs.iter().any(|words| out.contains(words)), "{out}");
    assert!(out.contains("compared byte for byte: all correct"), "{out}");
    assert!(out.contains("of 500 connections continued"), "{out}");
    assert!(
        out.contains("connections continued with the new binary, none lost"),
        "{out}"
    );
    assert!(out.contains("Success: "), "{out}");
    assert!(
        !out.contains('\u{1b}'),
        "no colours and no animation into a pipe: {out}"
    );
}

#[test]
fn a_flipped_bit_is_detected() {
    let ran = run(&["--fault", "flip"]);
    assert_eq!(ran.code, Some(1), "{}\n{}", ran.out, ran.err);
    assert!(
        ran.out.contains("one connection got a wrong echo"),
        "{}",
        ran.out
    );
    assert!(!ran.out.contains("Success: "), "{}", ran.out);
}

#[test]
fn lost_connections_are_counted() {
    let ran = run(&["--fault", "lose"]);
    assert_eq!(ran.code, Some(1), "{}\n{}", ran.out, ran.err);
    assert!(
        ran.out
            .contains("5 connections lost before any worker was killed"),
        "{}",
        ran.out
    );
}

#[test]
fn too_few_descriptors_are_explained() {
    let binary = env!("CARGO_BIN_EXE_dormouse");
    let script = format!("ulimit -n 300 && exec {binary} demo --quick");
    let output = Command::new("sh")
        .args(["-c", &script])
        .output()
        .expect("a shell");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(
        err.contains("300 descriptors") && err.contains("ulimit -Hn"),
        "{err}"
    );
}

/// Starts a demo and waits until its `serve` is ready.
fn started() -> (Child, SocketAddr, BufReader<std::process::ChildStdout>) {
    let mut child = demo()
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut first = String::new();
    lines.read_line(&mut first).expect("a line");
    let address = serve_address(&first);
    drop(TcpStream::connect(address).expect("serve listens"));
    (child, address, lines)
}

fn send(signal: &str, child: &Child) {
    let status = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(status.expect("kill").success());
}

#[test]
fn an_interrupted_demo_stops_its_processes() {
    let (mut child, address, mut lines) = started();
    send("-INT", &child);
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(1), "{rest}");
    assert_gone(address);
}

#[test]
fn a_killed_demo_takes_its_processes_with_it() {
    let (mut child, address, _lines) = started();
    send("-KILL", &child);
    child.wait().expect("it ends");
    assert_gone(address);
}
