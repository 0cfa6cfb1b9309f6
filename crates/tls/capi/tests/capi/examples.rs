//! The examples: with each other, with OpenSSL, under sanitizers and valgrind, and from Go.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use dormouse_testkit::PemFiles;

use crate::build::{Watch, c, libraries, package};
use crate::process::{Server, certificate, command, run, succeed, text};

fn echo_server(program: &Path, files: &PemFiles) -> Server {
    let mut command = Command::new(program);
    command.arg("0").arg(files.certificate()).arg(files.key());
    Server::start(&mut command)
}

/// Sends words from OpenSSL's client to an echo server, and returns the reply.
fn s_client(server: &Server, version: &str, words: &str) -> String {
    let mut openssl = Command::new("timeout");
    openssl.args(["200", "openssl", "s_client", "-connect", &server.address()]);
    openssl.args([version, "-quiet", "-no_ign_eof"]);
    let piped = openssl
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut client = piped.spawn().expect("openssl");
    let mut input = client.stdin.take().unwrap();
    writeln!(input, "{words}").unwrap();
    let mut answer = String::new();
    let mut output = BufReader::new(client.stdout.take().unwrap());
    output.read_line(&mut answer).unwrap();
    drop(input);
    client.wait().unwrap();
    answer
}

#[test]
fn examples_are_short() {
    for name in ["echo_server.c", "client.c"] {
        let source = std::fs::read_to_string(package().join("examples").join(name)).unwrap();
        let lines = source.lines().count();
        assert!(lines < 250, "{name} has {lines} lines");
    }
}

#[test]
fn the_echo_server_serves_openssl_and_our_client() {
    let folder = tempfile::tempdir().unwrap();
    let files = certificate();
    for watch in [Watch::Nothing, Watch::Sanitizers] {
        let server = echo_server(&c(folder.path(), "examples/echo_server.c", watch), &files);
        for version in ["-tls1_2", "-tls1_3"] {
            assert_eq!(s_client(&server, version, "hello"), "hello\n", "{version}");
        }
        let client = c(folder.path(), "examples/client.c", watch);
        let words = "x".repeat(40_000);
        let roots = files.authority();
        let mut client = command(&client, &[&server.port, "localhost", &words]);
        let output = run(client.arg(&roots), "");
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(text(&output.stdout), format!("{words}\n{words}\n"));
        assert!(
            said.lines().count() == 2 && said.ends_with("resumed\n"),
            "{said}"
        );
        let ended = server.stop();
        assert!(!ended.errors.contains("ERROR"), "{}", ended.errors);
    }
}

#[test]
fn the_client_works_with_openssl_and_refuses_untrusted_servers() {
    let folder = tempfile::tempdir().unwrap();
    let files = certificate();
    let client = c(folder.path(), "examples/client.c", Watch::Sanitizers);
    let (port, mut server) = s_server(&files);
    let roots = files.authority();
    let good = run(
        command(&client, &[&port, "localhost", "hello\n"]).arg(&roots),
        "",
    );
    assert!(good.status.success(), "{}", text(&good.stderr));
    assert!(
        text(&good.stdout).contains("olleh"),
        "{}",
        text(&good.stdout)
    );
    let other = run(
        command(&client, &[&port, "other.test", "hello\n"]).arg(&roots),
        "",
    );
    assert!(
        text(&other.stderr).contains("not for other.test"),
        "{}",
        text(&other.stderr)
    );
    assert!(!other.status.success() && other.stdout.is_empty());
    server.kill().unwrap();
    server.wait().unwrap();
}

/// Starts OpenSSL's server, which reverses lines, on a free port.
fn s_server(files: &PemFiles) -> (String, std::process::Child) {
    for _ in 0..20 {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port().to_string();
        drop(free);
        let mut openssl = Command::new("openssl");
        openssl.args([
            "s_server",
            "-rev",
            "-quiet",
            "-accept",
            &format!("127.0.0.1:{port}"),
        ]);
        openssl
            .arg("-cert")
            .arg(files.certificate())
            .arg("-key")
            .arg(files.key());
        let mut child = openssl.spawn().expect("openssl");
        for _ in 0..200 {
            std::thread::sleep(std::time::Duration::from_millis(25));
            if child.try_wait().unwrap().is_some() {
                break;
            }
            if std::net::TcpStream::connect(("127.0.0.1", port.parse().unwrap())).is_ok() {
                return (port, child);
            }
        }
        let _ = child.kill();
        let _ = child.wait();
    }
    panic!("openssl s_server does not start");
}

#[test]
fn valgrind_finds_nothing_in_the_echo_server() {
    let folder = tempfile::tempdir().unwrap();
    let files = certificate();
    let program = c(folder.path(), "examples/echo_server.c", Watch::Nothing);
    let mut valgrind = Command::new("valgrind");
    // The server is still running when it is stopped, and Rust points into the middle of shared blocks, which
    // valgrind reports as "possibly lost".
    valgrind.args(["--leak-check=full", "--errors-for-leak-kinds=definite"]);
    valgrind.arg(&program);
    valgrind.arg("0").arg(files.certificate()).arg(files.key());
    let server = Server::start(&mut valgrind);
    for version in ["-tls1_2", "-tls1_3"] {
        assert_eq!(s_client(&server, version, "hello"), "hello\n", "{version}");
    }
    let ended = server.stop();
    assert!(
        ended.errors.contains("ERROR SUMMARY: 0 errors"),
        "{}",
        ended.errors
    );
    let lost =
        ended.errors.contains("definitely lost") && !ended.errors.contains("definitely lost: 0");
    assert!(!lost, "{}", ended.errors);
}

#[test]
fn a_connection_at_rest_uses_no_heap_and_kept_keys_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    // glibc's caches of freed blocks would count as in use.
    let tunable = "glibc.malloc.tcache_count=0";
    for source in ["tests/c/at_rest.c", "tests/c/kept.c"] {
        let program = c(folder.path(), source, Watch::Nothing);
        succeed(Command::new(program).env("GLIBC_TUNABLES", tunable), "");
    }
}

/// Go as `interop/install` brings it, or else the one in the search path.
fn go() -> &'static str {
    let own = "/usr/local/go/bin/go";
    if Path::new(own).exists() { own } else { "go" }
}

#[test]
fn go_loads_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let files = certificate();
    let program = folder.path().join("echo");
    let (include, libraries) = (package().join("include"), libraries());
    let mut go = Command::new(go());
    go.args(["build", "-o"]).arg(&program).arg(".");
    go.current_dir(package().join("examples/go"));
    go.env("CGO_CFLAGS", format!("-I{}", include.display()));
    go.env(
        "CGO_LDFLAGS",
        format!("-L{0} -Wl,-rpath,{0}", libraries.display()),
    );
    go.env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local");
    // The Go program needs libdormouse.so.0 at run time, as an installed library provides it.
    let soname = libraries.join("libdormouse.so.0");
    if !soname.exists() {
        let _ = std::os::unix::fs::symlink("libdormouse.so", &soname);
    }
    succeed(&mut go, "");
    let server = echo_server(&program, &files);
    for version in ["-tls1_2", "-tls1_3"] {
        assert_eq!(s_client(&server, version, "hello"), "hello\n", "{version}");
    }
    let client = c(folder.path(), "examples/client.c", Watch::Nothing);
    let words = "x".repeat(50_000);
    let said = succeed(
        command(&client, &[&server.port, "localhost", &words]).arg(files.authority()),
        "",
    );
    assert_eq!(said, format!("{words}\n{words}\n"));
}
