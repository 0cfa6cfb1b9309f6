//! Garbage-collected runtimes: memory that was not collected yet is no leak, memory that survives a
//! collection is.

use std::path::Path;
use std::process::Command;

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::scene::unused_port;
use dormouse_interop::tools;
use serde_json::Value;

use super::offered::{NODE, key_store};
use super::{Started, audit, read, until_listening};

/// Findings of growing memory, with their severity.
const GROWING: [&str; 3] = [
    "leak-per-connection",
    "session-cache-grows",
    "grows-under-churn",
];

fn growing(audit: &Value) -> Vec<(String, String)> {
    let findings = audit["findings"].as_array().expect("findings").iter();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let of = findings.map(|finding| (text(&finding["id"]), text(&finding["severity"])));
    of.filter(|(id, _)| GROWING.contains(&id.as_str()))
        .collect()
}

/// Audits a server that listens on the given port, with its process.
fn look(server: impl Fn(u16) -> Command) -> Value {
    let port = unused_port();
    let server = Started::new(&mut server(port));
    let target = format!("127.0.0.1:{port}");
    until_listening("the server", &target);
    let pid = server.0.id().to_string();
    let words = [
        "server",
        &target,
        "--pid",
        &pid,
        "--insecure",
        "--quick",
        "-q",
    ];
    let (audit, status) = read(&audit(&words));
    assert_eq!(status, Some(0), "{audit:#}");
    audit
}

fn high(id: &str) -> Vec<(String, String)> {
    vec![(id.to_owned(), "high".to_owned())]
}

/// Asserts that findings are low at most, which means that they are ambiguous.
fn is_healthy(audit: &Value, who: &str) {
    let found = growing(audit);
    let heavy = found.iter().any(|(_, severity)| severity != "low");
    assert!(!heavy, "{who}: {found:?}\n{:#}", audit["server"]["memory"]);
}

fn java(store: &Path, fault: &str) -> Value {
    let program = tools::home().join("servers/Echo.java");
    look(|port| {
        let mut command = Command::new(tools::path("java"));
        command.arg(&program).arg(port.to_string()).arg(store);
        command.arg(fault);
        command
    })
}

#[test]
#[ignore = "takes minutes: a JVM warms up"]
fn a_jvm() {
    requires!("java", "jcmd", "openssl");
    let folder = tempfile::tempdir().expect("a folder");
    let store = key_store(folder.path());
    // The leak that it can have is found where time does not matter: `java_leak` in lab/sick. On a busy machine a
    // short audit leaves collections out.
    is_healthy(&java(&store, "healthy"), "java");
}

#[test]
#[ignore = "takes minutes"]
fn v8() {
    requires!("node");
    let files = authority().certificate(Kind::EcdsaP256);
    let node = |options: &[&str], script: &str| {
        look(|port| {
            let mut command = Command::new(tools::path("node"));
            command
                .args(options)
                .args(["-e", script, &port.to_string(), "3"])
                .arg(&files.cert)
                .arg(&files.key);
            command
        })
    };
    let leaking = NODE.replace(
        "socket.pipe(socket);",
        "socket.pipe(socket); socket.on('close', () => kept.push(new Array(250).fill(1.5)));",
    );
    let leaking = format!("const kept = [];{leaking}");
    is_healthy(&node(&[], NODE), "node");
    let inspector = ["--inspect=127.0.0.1:0"];
    is_healthy(&node(&inspector, NODE), "node with an inspector");
    // Without the inspector, no collection can be requested.
    let found = growing(&node(&inspector, &leaking));
    assert_eq!(found, high("leak-per-connection"));
}
