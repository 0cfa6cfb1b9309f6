//! One configuration for many machines: included files, variables, standard input, the schema.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::peer::Peer;
use dormouse_interop::process::{Process, signal};
use dormouse_interop::scene::{TLS_PORT, unused_host};
use dormouse_interop::terminator::Can;
use dormouse_interop::tools;
use dormouse_interop::wait::PATIENCE;
use rustix::process::Signal;

fn route(listen: SocketAddr) -> String {
    let files = authority().certificate(Kind::EcdsaP256);
    let (cert, key) = (files.cert.display(), files.key.display());
    format!(
        "[[route]]\nlisten = \"{listen}\"\nto = \"echo:\"\n\
         certificates = [{{ cert = \"{cert}\", key = \"{key}\" }}]\n"
    )
}

fn echoes(address: SocketAddr) {
    let peer = Peer::connect(address);
    peer.and_then(|mut peer| peer.echo())
        .unwrap_or_else(|error| panic!("an echo of {address}: {error}"));
}

/// Runs a shell command in a folder.
fn shell(line: &str, folder: &Path) -> Process {
    let script = format!("cd '{}'; {line}", folder.display());
    let line = script.replace("dormouse ", &format!("{} ", tools::dormouse().display()));
    Process::start("dormouse", &["bash".into(), "-c".into(), line], folder)
}

/// A new file in an included directory is served after a reload; a mistake in it is rejected with its file and
/// line, and nothing changes. Variables keep the values of the start, also after an upgrade.
#[test]
fn a_reload_reads_new_included_files_but_not_variables() {
    requires!(Can::BeDormouse);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("a file of the test");
    };
    let (first, second) = (unused_host(), unused_host());
    let (first, second) = (
        SocketAddr::new(first, TLS_PORT),
        SocketAddr::new(second, TLS_PORT),
    );
    std::fs::create_dir(folder.path().join("sites")).expect("a directory");
    write(
        "dormouse.toml",
        "include = \"sites\"\nadmin = \"none\"\nworkers = \"${WORKERS:-1}\"\n",
    );
    let named = route(first).replace(&first.to_string(), "${FIRST}:${PORT:-8443}");
    write("sites/first.toml", &named);
    let line = format!("FIRST={} exec dormouse serve dormouse.toml", first.ip());
    let mut process = shell(&line, folder.path());
    process.wait_for_line("ready", PATIENCE);
    echoes(first);

    write("sites/second.toml", "[[route]]\nlisten = \"nonsense\"\n");
    signal(process.pid(), Signal::HUP);
    process.wait_for_line("sites/second.toml:2:10", PATIENCE);
    write("sites/second.toml", &route(second));
    signal(process.pid(), Signal::HUP);
    process.wait_for_line("edition=2", PATIENCE);
    echoes(second);

    process.upgrade();
    signal(process.pid(), Signal::HUP);
    process.wait_for_line("edition=3", PATIENCE);
    echoes(first);
    assert!(process.terminate().success());
}

/// `-` is standard input for `check` and `serve`. A reload explains that it cannot be read again; an upgrade works.
#[test]
fn a_configuration_comes_from_standard_input() {
    requires!(Can::BeDormouse);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let listen = SocketAddr::new(unused_host(), TLS_PORT);
    std::fs::write(folder.path().join("text"), route(listen)).expect("a file of the test");
    for command in ["cat text | dormouse check -", "dormouse check -c - < text"] {
        let mut check = shell(command, folder.path());
        assert!(check.wait_for_end(PATIENCE).success(), "{}", check.log());
    }
    let mut wrong = shell("echo 'wokers = 1' | dormouse check -", folder.path());
    assert_eq!(wrong.wait_for_end(PATIENCE).code(), Some(2));
    assert_eq!(
        wrong.logged("--> standard input:1:1", 1).len(),
        1,
        "{}",
        wrong.log()
    );

    let mut process = shell(
        "exec dormouse serve -c - --admin none < text",
        folder.path(),
    );
    process.wait_for_line("ready", PATIENCE);
    echoes(listen);
    signal(process.pid(), Signal::HUP);
    process.wait_for_line(
        "came from standard input or a pipe, which cannot be read again",
        PATIENCE,
    );
    process.upgrade();
    echoes(listen);
    assert!(process.terminate().success());

    // A pipe, too, ends when it has been read: to read it again would wait forever.
    let mut process = shell(
        "exec dormouse serve -c <(cat text) --admin none",
        folder.path(),
    );
    process.wait_for_line("ready", PATIENCE);
    for signals in [Signal::HUP, Signal::USR2, Signal::HUP] {
        signal(process.pid(), signals);
        process.wait_for_line(
            match signals {
                Signal::HUP => "pipe, which cannot be read again",
                _ => "new binary running",
            },
            PATIENCE,
        );
        echoes(listen);
    }
    assert!(process.terminate().success());
}

/// A validator such as editors use: the schema is valid, and accepts and rejects the right configurations.
const VALIDATE: &str = "
import json, sys, tomllib, jsonschema
schema = json.load(sys.stdin)
jsonschema.Draft7Validator.check_schema(schema)
validator = jsonschema.Draft7Validator(schema)
for text in json.load(open(sys.argv[1])):
    print(int(validator.is_valid(tomllib.loads(text))))
";

#[test]
fn the_schema_accepts_and_rejects_like_check() {
    requires!(Can::BeDormouse, "python3");
    let route = "[[route]]\nlisten = ':8443'\nto = 'echo:'\n";
    let cases = [
        (
            "workers = 2\nmemory = 1_000_000_000\nidle_timeout = '1h'\n",
            "",
            true,
        ),
        (
            "workers = 'auto'\nocsp_fetch = false\nmax_connections = '${MOST:-5}'\n",
            "",
            true,
        ),
        (
            "include = 'sites/'\n",
            "alpn = ['h2']\nmin_version = 1.3\n",
            true,
        ),
        (
            "",
            "certificates = [{ cert = 'a', key = 'b' }, 'both.pem']\n",
            true,
        ),
        ("wokers = 2\n", "", false),
        ("workers = true\n", "", false),
        ("workers = 5000\n", "", false),
        ("workers = 'many'\n", "", false),
        ("ocsp_fetch = 'yes'\n", "", false),
        ("sandbox = 'of'\n", "", false),
        ("", "certificates = [{ cert = 'a', kay = 'b' }]\n", false),
        ("", "workers = 2\n", false),
    ];
    let texts: Vec<String> = cases
        .iter()
        .map(|(top, of_route, _)| format!("{top}{route}{of_route}"))
        .collect();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("cases.json");
    std::fs::write(&file, serde_json::to_vec(&texts).expect("JSON")).expect("a file");
    let schema = Command::new(tools::dormouse())
        .arg("schema")
        .stdout(Stdio::piped())
        .spawn();
    let schema = schema.expect("dormouse").stdout.expect("its output");
    let found = Command::new(tools::path("python3"))
        .args(["-c", VALIDATE])
        .arg(&file)
        .stdin(schema)
        .output()
        .expect("python3");
    assert!(
        found.status.success(),
        "python3-jsonschema: {}",
        String::from_utf8_lossy(&found.stderr)
    );
    let verdicts = String::from_utf8_lossy(&found.stdout);
    for ((text, (_, _, right)), verdict) in texts.iter().zip(&cases).zip(verdicts.lines()) {
        assert_eq!(verdict == "1", *right, "{text}");
    }
    assert_eq!(verdicts.lines().count(), cases.len());
}
