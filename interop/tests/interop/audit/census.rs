//! The memory census of a process, and the permissions that it needs.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::scene::unused_port;
use dormouse_interop::tools;

use super::{Started, audit, read, until_listening};
use serde_json::Value;

/// A user without any files here.
const NOBODY: u32 = 65_534;

/// The owner of a process can audit it without root. CPython's small objects are found in its own
/// allocator.
#[test]
#[ignore = "a whole audit, with a census of the heap"]
fn the_owner_of_a_process_needs_no_root() {
    requires!("python3", "setpriv");
    if !Path::new("/usr/bin/python3").exists() {
        tools::unavailable("there is no Python that everybody may start");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    open(folder.path());
    let program = folder.path().join("dormouse");
    std::fs::copy(tools::dormouse(), &program).expect("an executable copy");
    let files = authority().certificate(Kind::EcdsaP256);
    for (file, name) in [(&files.cert, "cert.pem"), (&files.key, "key.pem")] {
        std::fs::copy(file, folder.path().join(name)).expect("a copy");
        open(&folder.path().join(name));
    }
    let server = folder.path().join("echo.py");
    std::fs::write(&server, ECHO).expect("a file");
    open(&server);
    let port = unused_port();
    let nobody = NOBODY.to_string();
    let as_nobody = |program: &str| {
        let mut command = Command::new(program);
        if rustix::process::geteuid().is_root() {
            command = Command::new("setpriv");
            command.args([&format!("--reuid={nobody}"), &format!("--regid={nobody}")]);
            command.args(["--clear-groups", program]);
        }
        command
            .current_dir(folder.path())
            .env("HOME", folder.path())
            // Folders of root are not readable for other users.
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null());
        command
    };
    let mut echo = as_nobody("python3");
    let mut echo = echo
        .arg("echo.py")
        .arg(port.to_string())
        .spawn()
        .expect("python starts");
    let target = format!("127.0.0.1:{port}");
    until_listening("the server", &target);
    let pid = echo.id().to_string();
    let output = as_nobody(&program.to_string_lossy())
        .args(["audit", "server", &target, "--pid", &pid])
        // The time is for audits beside other tests.
        .args(["--insecure", "--quick", "--time", "5m", "-q"])
        .args(["--connections", "100", "--json", "-", "--fail-on", "never"])
        .output()
        .expect("the audit starts");
    echo.kill().expect("it runs");
    echo.wait().expect("an end");
    let (audit, status) = read(&output);
    assert_eq!(status, Some(0), "{audit:#}");
    assert_eq!(audit["software"]["measured"]["kind"], "python");
    let census = &audit["server"]["census"]["measured"];
    assert_eq!(
        census["method"], "glibc malloc, CPython's allocator",
        "{census:#}"
    );
    // The server keeps ten objects of one particular size for each connection.
    let classes = census["classes"].as_array().expect("classes");
    let own = classes
        .iter()
        .find(|class| class["heap"] == "CPython" && class["size_bytes"] == 432);
    let per = own.unwrap_or_else(|| panic!("{classes:#?}"))["per_connection"].as_f64();
    assert!(per.is_some_and(|per| (9.5..10.5).contains(&per)), "{per:?}");
}

/// An echo server that keeps ten byte strings of 400 bytes for each connection.
const ECHO: &str = r#"
import asyncio, ssl, sys

async def echo(reader, writer):
    kept = [bytes(390 + n) for n in range(10)]
    try:
        while data := await reader.read(4096):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()
    return kept

async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("cert.pem", "key.pem")
    server = await asyncio.start_server(echo, "127.0.0.1", int(sys.argv[1]), ssl=context, backlog=512)
    await server.serve_forever()

asyncio.run(main())
"#;

/// A server that serves sixty connections at a time leaves the others without an answer. Four fifths of sixty are held,
/// and what the failed attempts left behind is not counted as theirs: fifty blocks of 3,000 bytes once, and one for each.
#[test]
#[ignore = "a minute: a whole audit"]
fn a_server_at_its_limit_is_measured_within_it() {
    requires!("python3");
    let folder = tempfile::tempdir().expect("a folder");
    let server = folder.path().join("sixty.py");
    std::fs::write(&server, SIXTY).expect("a file");
    let files = authority().certificate(Kind::EcdsaP256);
    let port = unused_port();
    let mut python = Command::new("python3");
    python.arg(&server).arg(port.to_string());
    let python = Started::new(python.arg(&files.cert).arg(&files.key));
    let target = format!("127.0.0.1:{port}");
    until_listening("the server", &target);
    let pid = python.0.id().to_string();
    let words = ["server", &target, "--pid", &pid, "--insecure", "--quick"];
    let (audit, _) = read(&audit(&[&words[..], &["--time", "3m", "-q"]].concat()));
    let of_idle = |part: &Value| {
        part["part"]
            .as_str()
            .is_some_and(|part| part.contains("idle"))
    };
    let incomplete = audit["incomplete"].as_array().expect("a list");
    assert!(!incomplete.iter().any(of_idle), "{incomplete:#?}");
    let memory = &audit["server"]["memory"]["measured"];
    let phases = memory["phases"].as_array().expect("phases");
    let held = phases
        .iter()
        .filter_map(|phase| phase["connections"].as_u64());
    assert_eq!(held.max(), Some(48), "{phases:#?}");
    let classes = &audit["server"]["census"]["measured"]["classes"];
    let classes = classes.as_array().expect("classes").iter();
    let own = classes.filter(|class| class["heap"] == "malloc");
    let per = own
        .filter(|class| class["size_bytes"] == 3_056)
        .find_map(|class| class["per_connection"].as_f64());
    assert!(per.is_some_and(|per| (0.9..1.1).contains(&per)), "{per:?}");
}

/// A server of sixty connections at a time. It keeps a block of 3,000 bytes for each open one, and one for each of the
/// first fifty that follow the sixtieth.
const SIXTY: &str = r#"
import socket, ssl, sys, threading

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=4096)
free = threading.Semaphore(60)
kept, was_full = [], False

def serve(connection):
    own = bytes(3_000)
    try:
        with context.wrap_socket(connection, server_side=True) as stream:
            while data := stream.recv(16_384):
                stream.sendall(data)
    except OSError:
        pass
    finally:
        connection.close()
        free.release()

while True:
    was_full |= not free.acquire(blocking=False) and free.acquire()
    connection, _ = listener.accept()
    if was_full and len(kept) < 50:
        kept.append(bytes(3_000))
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
"#;

fn open(path: &Path) {
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("its permissions");
}

/// V8 reports its classes if the process offers its inspector.
#[test]
#[ignore = "a minute: node warms up"]
fn the_classes_of_a_node_process() {
    requires!("node");
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("echo.cjs");
    std::fs::write(&script, NODE).expect("a file");
    let files = authority().certificate(Kind::EcdsaP256);
    let target = format!("127.0.0.1:{}", unused_port());
    let (_, port) = target.split_once(':').expect("a port");
    let command = format!(
        "exec node --inspect=127.0.0.1:0 {} {port} {} {}",
        script.display(),
        files.cert.display(),
        files.key.display()
    );
    let words = [
        "server",
        &target,
        "--insecure",
        "--quick",
        "-q",
        "-n",
        "100",
        "--cmd",
        &command,
    ];
    let (audit, status) = read(&audit(&words));
    assert_eq!(status, Some(0), "{audit:#}");
    assert_eq!(audit["software"]["measured"]["kind"], "node");
    let census = &audit["server"]["census"]["measured"];
    let classes = census["managed"].as_array().expect("classes");
    let sockets = classes.iter().find(|class| class["class"] == "TLSSocket");
    let per = sockets.unwrap_or_else(|| panic!("{census:#}"))["per_connection"].as_f64();
    assert!(
        per.is_some_and(|per| (0.95..1.05).contains(&per)),
        "{per:?}"
    );
}

const NODE: &str = "
const { readFileSync } = require('node:fs');
const [port, cert, key] = process.argv.slice(2);
const identity = { cert: readFileSync(cert), key: readFileSync(key) };
const server = require('node:tls').createServer(identity, (socket) => {
  socket.on('error', () => {});
  socket.on('data', (bytes) => socket.write(bytes));
});
server.on('tlsClientError', () => {});
server.listen(Number(port), '127.0.0.1', 512);
";
