//! Tests of the real binary from a user's side: its output and its exit status.

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use common::{RunOutput, run};
use tempfile::TempDir;

fn dormouse(directory: &Path, args: &[&str]) -> RunOutput {
    run(common::dormouse().args(args).current_dir(directory))
}

/// Creates a directory with a certificate, its key, another key, and this configuration.
fn site(configuration: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let names = vec!["example.com".to_owned(), "www.example.com".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let other = rcgen::KeyPair::generate().expect("a key");
    for (name, text) in [
        ("site.pem", made.cert.pem()),
        ("site.key", made.signing_key.serialize_pem()),
        ("other.key", other.serialize_pem()),
        ("dormouse.toml", configuration.to_owned()),
    ] {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a private file");
    }
    directory
}

const RIGHT: &str = "\
[[route]]
listen = \"127.0.0.1:18443\"
to = \"127.0.0.1:18080\"
certificates = [{ cert = \"site.pem\", key = \"site.key\" }]
";

#[test]
fn check_shows_what_would_run() {
    let site = site(&format!("workers = 3\nmax_connections = 300\n{RIGHT}"));
    let ran = dormouse(site.path(), &["check", "-c", "dormouse.toml"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[0], "Route 1 from 127.0.0.1:18443 to 127.0.0.1:18080");
    let shown = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(shown(lines[1]), "server names any");
    assert!(
        shown(lines[2])
            .starts_with("certificate site.pem example.com, www.example.com; ECDSA P-256; until "),
        "{}",
        ran.out
    );
    for expected in [
        "  versions             TLS 1.2 to 1.3",
        "  workers       3",
        "  connections   at most 300",
        "  per worker    100            needs 266 descriptors",
        "  connections at rest   56.3 KiB   300 x 192 bytes",
        "  pending bytes         64 MiB     pending_memory",
    ] {
        assert!(
            lines.contains(&expected),
            "`{expected}` is not in\n{}",
            ran.out
        );
    }
    assert!(!ran.out.contains('\x1b'), "no colours without a terminal");
    assert!(
        lines.iter().all(|line| line.trim_end() == *line),
        "no line has trailing spaces"
    );
}

/// Options that are off by default have a row if they are set.
#[test]
fn check_shows_what_was_switched_on() {
    let site = site(&format!(
        "redirect = '127.0.0.1:18081'\nconnection_log = 'connections.log'\nconnections_per_client = 50\n\
         total_timeout = '1h'\nsession_cache = '4 MiB'\n{RIGHT}"
    ));
    let ran = dormouse(site.path(), &["check", "dormouse.toml"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let shown = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = ran.out.lines().map(shown).collect();
    for expected in [
        "total timeout 1h",
        "each client 50 connections at most",
        "sessions 4 MiB session_cache",
        "redirect 127.0.0.1:18081 plain HTTP, redirected to https with status 308",
    ] {
        let is_it = |line: &String| line == expected;
        assert!(
            lines.iter().any(is_it),
            "`{expected}` is not in\n{}",
            ran.out
        );
    }
    assert!(ran.out.contains("connection log  "), "{}", ran.out);
}

/// For each route: its certificate, its source, and how it is renewed.
#[test]
fn check_shows_certificates_and_their_renewal() {
    let site = site(&format!(
        "acme_terms_agreed = true\nacme_folder = 'acme'\nacme_server = 'https://ca.test/dir'\n\
         reload_certificates = '1m'\n{RIGHT}\
         [[route]]\nlisten = '127.0.0.1:18444'\nto = '127.0.0.1:18080'\n\
         acme = ['www.example.com', 'new.example.com']\n\
         [[route]]\nlisten = '127.0.0.1:18445'\nto = '127.0.0.1:18080'\npass_through = true\n"
    ));
    let both = ["site.pem", "site.key"].map(|file| fs::read(site.path().join(file)));
    let both = both.map(|read| read.expect("a file")).concat();
    fs::create_dir_all(site.path().join("acme/ca.test")).expect("a folder");
    fs::write(site.path().join("acme/ca.test/www.example.com.pem"), both).expect("a file");
    let ran = dormouse(site.path(), &["check", "dormouse.toml"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    for (before, behind) in [
        ("renewal files ", " checked for changes every 1m"),
        (
            "certificate www.example.com example.com, www.example.com; ECDSA P-256; until ",
            "; from https://ca.test/dir",
        ),
        (
            "certificate new.example.com not issued yet by https://ca.test/dir",
            "",
        ),
        ("renewal by ACME ", " after two thirds of the lifetime"),
        ("certificate on the backend ", " TLS is passed through"),
    ] {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_it = |line: &str| words(line).starts_with(before) && words(line).ends_with(behind);
        assert!(ran.out.lines().any(is_it), "{before} in\n{}", ran.out);
    }
    assert!(!ran.out.contains("OCSP"), "none names a responder");
}

/// A configuration made by `import` is read while the old server still has its addresses.
#[test]
fn check_shows_what_would_run_when_only_its_addresses_are_taken() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("its address").to_string();
    let configuration = RIGHT.replace("127.0.0.1:18443", &taken);
    let with_metrics = format!("metrics = \"{taken}\"\n{RIGHT}");
    for configuration in [&configuration, &with_metrics] {
        let site = site(configuration);
        let ran = dormouse(site.path(), &["check", "dormouse.toml"]);
        assert_eq!(ran.code, Some(3), "{}", ran.err);
        let error = format!("error: cannot listen on {taken}: address in use by ");
        assert!(ran.err.starts_with(&error), "{}", ran.err);
        assert!(ran.out.starts_with("Route 1 from "), "{}", ran.out);
    }
    let wrong = site(&configuration.replace("site.key", "other.key"));
    let ran = dormouse(wrong.path(), &["check", "dormouse.toml"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{}", ran.err);
}

#[test]
fn check_reads_the_files_it_names() {
    let refused = |configuration: &str| {
        let site = site(configuration);
        let ran = dormouse(site.path(), &["check", "dormouse.toml"]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{}", ran.err);
        assert!(
            ran.err
                .ends_with("in dormouse.toml; `serve` would not start\n"),
            "{}",
            ran.err
        );
        ran.err
    };
    let mismatch = refused(&RIGHT.replace("site.key", "other.key"));
    assert!(mismatch.starts_with("error: other.key: "), "{mismatch}");
    assert!(mismatch.contains("site.pem"), "both are named: {mismatch}");
    let missing = refused(&RIGHT.replace("site.pem", "missing.pem"));
    assert!(
        missing.starts_with("error: missing.pem: cannot be read"),
        "{missing}"
    );
    let same = refused(&RIGHT.replace("site.key", "site.pem"));
    assert!(same.contains("has no key"), "{same}");
    let swapped = RIGHT
        .replace("site.pem", "X")
        .replace("site.key", "site.pem");
    let swapped = refused(&swapped.replace('X', "site.key"));
    assert!(swapped.contains("swapped"), "{swapped}");
    let directory = refused(&RIGHT.replace("site.pem", "."));
    assert!(directory.contains("cannot be read"), "{directory}");
}

#[test]
fn check_reports_every_mistake_with_its_line() {
    let site = site(
        &RIGHT
            .replace("to =", "too =")
            .replace("[[", "wokers = 2\n[["),
    );
    let ran = dormouse(site.path(), &["check", "-c", "dormouse.toml"]);
    assert_eq!(ran.code, Some(2));
    assert_eq!(
        ran.err,
        "error: unknown option `wokers`\n --> dormouse.toml:1:1\n  |\n1 | wokers = 2\n  \
         | ^^^^^^ did you mean `workers`?\n\n\
         error: unknown option `too`\n --> dormouse.toml:4:1\n  |\n4 | too = \"127.0.0.1:18080\"\n  \
         | ^^^ did you mean `to`?\n\n\
         2 mistakes in dormouse.toml; `serve` would not start\n"
    );
}

#[test]
fn standard_input_is_named_as_such() {
    let site = site("");
    let ran = dormouse(site.path(), &["check", "-"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err
            .ends_with("one mistake in standard input; `serve` would not start\n"),
        "{}",
        ran.err
    );
}

#[test]
fn unusable_files_have_distinct_messages() {
    let site = site("");
    let write =
        |name: &str, bytes: &[u8]| fs::write(site.path().join(name), bytes).expect("a file");
    write("latin1.toml", b"# gr\xfc\xdfe\n");
    write("huge.toml", &vec![b'#'; (16 << 20) + 1]);
    for (file, message) in [
        ("missing.toml", "cannot be read: No such file or directory"),
        (".", "cannot be read: Is a directory"),
        ("latin1.toml", "is not UTF-8 text: byte 4, in line 1"),
        ("huge.toml", "is larger than 16 MiB"),
        ("site.key", "is a certificate or key (PEM)"),
        ("dormouse.toml", "there is no route"),
    ] {
        for command in ["check", "serve"] {
            let ran = dormouse(site.path(), &[command, "-c", file]);
            assert_eq!(ran.code, Some(2), "{file}: {}", ran.err);
            assert!(
                ran.err.starts_with(&format!("error: {file}: {message}")),
                "{}",
                ran.err
            );
            let key = fs::read_to_string(site.path().join("site.key")).expect("the key");
            let secret = key.lines().nth(1).expect("its first line");
            assert!(!ran.err.contains(secret), "a key is shown: {}", ran.err);
        }
    }
}

#[test]
fn a_separate_value_of_a_flag_is_explained() {
    let ran = dormouse(site("").path(), &["serve", "--half-close", "false"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("--half-close=false"), "{}", ran.err);
}

#[test]
fn serve_refuses_invalid_flags() {
    let here = Path::new(".");
    let ran = dormouse(
        here,
        &[
            "serve",
            "--listen",
            "127.0.0.1:18443",
            "--to",
            "127.0.0.1:18443",
            "--self-signed",
            "x",
            "--workers",
            "many",
        ],
    );
    assert_eq!(ran.code, Some(2));
    assert_eq!(
        ran.err,
        "error: --workers: `many` is neither a whole number nor `auto`\n   \
         = help: the range is 1 to 1024\n\n\
         error: --to: the backend 127.0.0.1:18443 is this program's own listener 127.0.0.1:18443: \
         connections would loop\n   \
         = help: write the address of the server behind it\n\n\
         2 mistakes on the command line; nothing was started\n"
    );
    let ran = dormouse(here, &["serve", "--lissten", "x"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err.contains("a similar argument exists: '--listen'"),
        "{}",
        ran.err
    );
    let ran = dormouse(here, &["serv"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err.contains("a similar subcommand exists: 'serve'"),
        "{}",
        ran.err
    );
    assert_eq!(dormouse(here, &["serve"]).code, Some(2));
    assert_eq!(dormouse(here, &[]).code, Some(2));
}

/// A typo leads to a command or a flag that users may use, never to one that `--help` does not show.
#[test]
fn hidden_commands_and_flags_are_not_suggested() {
    let here = Path::new(".");
    let hidden = [
        "demo-part",
        "control",
        "errand",
        "generator",
        "keeper",
        "log-writer",
        "redirect",
        "reference",
        "scout",
        "ticket-store",
        "upgrade-trial",
        "acme-hook",
        "--resume",
        "--try-resume",
        "--parent",
    ];
    for args in [
        &["log"][..],
        &["demo-par"],
        &["contol"],
        &["errands"],
        &["keepr"],
        &["bench", "generato"],
        &["redirec"],
        &["referenc"],
        &["sco"],
        &["tickets"],
        &["--paren"],
        &["--resum"],
        &["serve", "--resum", "3"],
        &["connect", "--try-resum", "3"],
    ] {
        let ran = dormouse(here, args);
        assert_eq!(ran.code, Some(2), "{args:?}");
        for hidden in hidden {
            let quoted = ran.err.contains(&format!("'{hidden}'"));
            let of_command = ran.err.contains(&format!(" {hidden}' exists"));
            assert!(!quoted && !of_command, "{args:?}: {}", ran.err);
        }
    }
    let ran = dormouse(here, &["demo-par"]);
    assert!(ran.err.contains("'demo'"), "{}", ran.err);
}

#[test]
fn help_shows_examples_and_defaults() {
    let here = Path::new(".");
    let help = dormouse(here, &["serve", "-h"]);
    assert_eq!(help.code, Some(0));
    for expected in [
        "--self-signed <NAME>",
        "[default: 64 KiB]",
        "Timeouts:",
        "Examples:",
    ] {
        assert!(
            help.out.contains(expected),
            "`{expected}` is not in\n{}",
            help.out
        );
    }
    let more = dormouse(here, &["serve", "--help"]);
    assert!(more.out.contains("[range: 1 to 1024]"), "{}", more.out);
    let version = dormouse(here, &["--version"]);
    assert_eq!(version.code, Some(0));
    assert!(
        version.out.starts_with(concat!(
            "dormouse ",
            env!("CARGO_PKG_VERSION"),
            "\nrustls 0.23."
        )),
        "{}",
        version.out
    );
    assert!(version.out.contains("\naws-lc-rs 1."), "{}", version.out);
}

#[test]
fn reference_prints_the_reference() {
    let ran = dormouse(Path::new("."), &["reference"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.out.starts_with("# Reference\n"));
}

/// Steps to do keep the result from running, and the status says that there are some.
#[test]
fn an_import_with_steps_to_do_has_a_status_of_its_own() {
    let site = site("");
    let import = |text: &str| {
        fs::write(site.path().join("stunnel.conf"), text).expect("written");
        let ran = dormouse(site.path(), &["import", "stunnel", "stunnel.conf"]);
        fs::write(site.path().join("dormouse.toml"), &ran.out).expect("written");
        ran
    };
    let check = || dormouse(site.path(), &["check", "dormouse.toml"]);
    let service =
        "[s]\naccept = 127.0.0.1:18443\nconnect = 127.0.0.1:1\ncert = site.pem\nkey = site.key\n";
    let ran = import(service);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(check().code, Some(0), "{}", check().err);
    let ran = import(&format!("{service}libwrap = yes\n"));
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(
        ran.err.contains("1 step to do before the result can run"),
        "{}",
        ran.err
    );
    let ran = check();
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(
        ran.err
            .contains("error: still to do: [s]: line 6: libwrap = yes"),
        "{}",
        ran.err
    );
    // Somebody has decided.
    let page = fs::read_to_string(site.path().join("dormouse.toml")).expect("the result");
    let lines = page.lines().filter(|line| !line.starts_with("todo"));
    let decided: String = lines.map(|line| format!("{line}\n")).collect();
    fs::write(site.path().join("dormouse.toml"), decided).expect("written");
    assert_eq!(check().code, Some(0), "{}", check().err);
    assert_eq!(import("; nothing\n").code, Some(2));
}

/// `dormouse import … > dormouse.toml` on a full disk has not succeeded, and neither has `dormouse --help > help.txt`.
#[test]
fn a_full_disk_is_an_error_and_a_closed_pipe_is_not() {
    let run = |arguments: &str, stdout: std::process::Stdio| {
        let mut command = common::dormouse();
        let output = command
            .args(arguments.split(' '))
            .stdout(stdout)
            .stderr(std::process::Stdio::piped());
        let output = output.spawn().and_then(|child| child.wait_with_output());
        let output = output.expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    for arguments in ["schema", "--help", "-V", "ctl --help"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        let (code, said) = run(arguments, full.expect("the device").into());
        assert_eq!(code, Some(3), "{arguments}: {said}");
        assert!(
            said.contains("standard output cannot be written: No space left"),
            "{arguments}: {said}"
        );
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = run(arguments, writer.into());
        assert_eq!(ended, (Some(0), String::new()), "{arguments}");
    }
}

/// Before the wait: a hook before the end of a container has no second try.
#[test]
fn a_wrong_duration_of_a_drain_is_reported_before_the_wait() {
    let folder = tempfile::tempdir().expect("a directory");
    let ran = dormouse(
        folder.path(),
        &[
            "drain",
            "--admin",
            "none.sock",
            "--after",
            "1h",
            "--over",
            "10 parsecs",
        ],
    );
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err.contains("`10 parsecs` is not a duration"),
        "{}",
        ran.err
    );
    // Milliseconds since the start of the machine are added to it.
    let args = [
        "drain",
        "--admin",
        "none.sock",
        "--over",
        "18446744073709551615ms",
    ];
    let ran = dormouse(folder.path(), &args);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.err.contains("at most 365d"), "{}", ran.err);
}

/// `top` draws a screen, so it has no JSON.
#[test]
fn top_refuses_json() {
    let ran = dormouse(Path::new("."), &["top", "--json"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err.contains("unexpected argument '--json'"),
        "{}",
        ran.err
    );
}

#[test]
fn an_audit_refuses_one_file_for_two_results() {
    let folder = tempfile::tempdir().expect("a directory");
    let args = [
        "audit",
        "server",
        "127.0.0.1:1",
        "--json",
        "x",
        "--html",
        "x",
    ];
    let ran = dormouse(folder.path(), &args);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.err.contains("need a file each"), "{}", ran.err);
}

#[test]
fn status_shows_the_answer() {
    let site = site(&format!("admin = \"admin.sock\"\n{RIGHT}"));
    let ask = |args: &[&str]| dormouse(site.path(), args);

    let ran = ask(&["status", "-c", "dormouse.toml"]);
    assert_eq!(ran.code, Some(3), "no server is running");
    assert!(
        ran.err.starts_with("error: admin.sock: no such socket"),
        "{}",
        ran.err
    );

    let socket = UnixListener::bind(site.path().join("admin.sock")).expect("a socket");
    let server = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in [
            // Which instance is it? Then what was asked.
            "200 OK\r\n\r\n{\"phase\":\"ready\",\"configuration\":{\"file\":\"dormouse.toml\"}}",
            "200 OK\r\n\r\n{\"phase\":\"ready\"}",
            "200 OK\r\n\r\n{\"phase\":\"ready\"}",
            "409 Conflict\r\n\r\n{\"done\":false,\"words\":\"no\\u001b[31m\"}",
            "200 OK\r\n\r\nwelcome",
            // The process has died meanwhile.
            "",
        ] {
            let (mut stream, _) = socket.accept().expect("a connection");
            let mut request = [0; 1024];
            let count = stream.read(&mut request).expect("a request");
            asked.push(String::from_utf8_lossy(&request[..count]).into_owned());
            if !answer.is_empty() {
                let answer = format!("HTTP/1.1 {answer}");
                stream.write_all(answer.as_bytes()).expect("an answer");
            }
        }
        asked
    });
    let ran = ask(&["status", "-c", "dormouse.toml"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.starts_with("dormouse -, ready\n"), "{}", ran.out);
    let ran = ask(&["status", "--admin", "admin.sock", "--json"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "{\n  \"phase\": \"ready\"\n}\n")
    );
    let ran = ask(&["reload", "--admin", "admin.sock"]);
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (Some(2), "error: no\\u{1b}[31m\n")
    );
    let ran = ask(&["status", "--admin", "admin.sock"]);
    assert_eq!(ran.code, Some(3));
    assert!(
        ran.err.contains("is not from `dormouse serve`"),
        "{}",
        ran.err
    );
    let ran = ask(&["reload", "--admin", "admin.sock"]);
    assert_eq!(ran.code, Some(3));
    assert!(
        ran.err.contains("no answer: the control process"),
        "{}",
        ran.err
    );
    let asked = server.join().expect("six requests");
    assert!(asked[0].starts_with("GET /status HTTP/1.1\r\n"));
    assert!(asked[3].starts_with("POST /reload HTTP/1.1\r\n"));

    let ran = ask(&["status", "-c", "dormouse.toml"]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.err.contains("is no longer running"), "{}", ran.err);
}

#[test]
fn status_needs_an_admin_socket() {
    let site = site(&format!("admin = \"none\"\n{RIGHT}"));
    let ran = dormouse(site.path(), &["status", "-c", "dormouse.toml"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("switched off"), "{}", ran.err);
}

#[test]
fn an_expired_certificate_is_a_warning() {
    let site = site(RIGHT);
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(vec!["example.com".to_owned()]).expect("a name");
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let certificate = params.self_signed(&key).expect("a certificate");
    fs::write(site.path().join("site.pem"), certificate.pem()).expect("a file");
    fs::write(site.path().join("site.key"), key.serialize_pem()).expect("a file");
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(site.path().join("site.key"), private).expect("a file");
    let ran = dormouse(site.path(), &["check", "dormouse.toml"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.starts_with("warning: site.pem: "), "{}", ran.err);
    assert!(
        ran.out.contains("until 2021-01-01 (expired)"),
        "{}",
        ran.out
    );
}
