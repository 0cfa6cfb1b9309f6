//! Tests of `dormouse bench` against `dormouse serve` of the same binary: output, files, exit
//! status.

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use common::{RunOutput, dormouse, run};
use tempfile::TempDir;

/// All tests run the same binary, and each process's share of its code (PSS) changes when another
/// process starts or ends: while a test reads memory, no other test runs.
static MEMORY: RwLock<()> = RwLock::new(());

fn beside_others() -> RwLockReadGuard<'static, ()> {
    MEMORY.read().unwrap_or_else(PoisonError::into_inner)
}

fn bench(args: &[&str]) -> RunOutput {
    run(dormouse().arg("bench").args(args))
}

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it has a name").to_string()
}

/// `dormouse serve --to echo:` with a self-signed certificate for localhost.
struct Echo {
    child: Child,
    address: String,
    files: TempDir,
}

impl Echo {
    fn start() -> Self {
        let files = tempfile::tempdir().expect("a directory");
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        fs::write(files.path().join("site.pem"), made.cert.pem()).expect("a file");
        fs::write(
            files.path().join("site.key"),
            made.signing_key.serialize_pem(),
        )
        .expect("a file");
        let address = free_address();
        let mut child = dormouse()
            .args(["serve", "--listen", &address, "--to", "echo:"])
            .args(["--cert", "site.pem", "--key", "site.key", "--workers", "1"])
            .current_dir(files.path())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let log = child.stderr.take().expect("it was piped");
        let mut lines = BufReader::new(log).lines();
        let ready = lines.any(|line| line.is_ok_and(|line| line.contains("ready")));
        assert!(ready, "serve ended before it was ready");
        // The log is read until it ends, so that its pipe never fills.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            child,
            address,
            files,
        }
    }

    fn file(&self, name: &str) -> String {
        self.files.path().join(name).display().to_string()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}

fn json(path: impl AsRef<Path>) -> serde_json::Value {
    let text = fs::read_to_string(path).expect("it was written");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn a_whole_run_ends_with_0_and_everything_is_in_its_json() {
    let _alone = MEMORY.write().unwrap_or_else(PoisonError::into_inner);
    let server = Echo::start();
    let (out, ca) = (server.file("run.json"), server.file("site.pem"));
    let pid = server.child.id().to_string();
    let mut args = vec!["hold", &server.address, "-n", "1000", "--for", "200ms"];
    args.extend(["--settle", "100ms", "--after", "100ms", "--echoes", "2"]);
    args.extend(["--ca", &ca, "--pid", &pid, "--json", &out]);
    let ran = bench(&args);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("by part") && ran.out.contains("complete"));

    let run = json(&out);
    assert_eq!((&run["mode"], &run["schema"]), (&"hold".into(), &1.into()));
    assert_eq!(run["outcome"]["exit_status"], 0);
    assert_eq!(run["settings"]["connections"], 1000);
    let agreed = run["settings"]["agreed"].as_str().unwrap_or_default();
    assert!(agreed.starts_with("TLS 1.3"), "{agreed}");
    assert!(run["machine"]["memory_bytes"].as_u64() > Some(0));
    assert!(run["versions"]["rustls"].is_string() && run["settings"]["trust"].is_string());
    let figures = run["figures"].as_array().expect("a list");
    assert!(
        figures
            .iter()
            .all(|figure| { figure["unit"].is_string() && figure["value"].is_number() })
    );
    let value = |name: &str| {
        let figure = figures.iter().find(|figure| figure["name"] == name);
        figure.and_then(|figure| figure["value"].as_f64())
    };
    assert_eq!(value("connections.alive"), Some(1000.0));
    assert_eq!(value("connections.echoed.2"), Some(1000.0));
    for name in [
        "memory.per_connection.pss",
        "memory.left",
        "cpu.server.per_open",
        "generator.per_connection",
        "apart.server.together",
        "apart.generators.per_connection",
    ] {
        assert!(value(name).is_some(), "{name} is missing");
    }
}

#[test]
fn json_alone_is_one_object_on_one_line() {
    let _beside = beside_others();
    let server = Echo::start();
    let args = ["churn", &server.address, "-n", "40", "-c", "4", "-r", "1"];
    let fast = ["--settle", "50ms", "--after", "50ms"];
    let ran = bench(&[&args[..], &fast, &["--tls", "1.2", "--insecure", "--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert_eq!(ran.out.lines().count(), 1);
    let run: serde_json::Value = serde_json::from_str(&ran.out).expect("it is JSON");
    let agreed = run["settings"]["agreed"].as_str().unwrap_or_default();
    assert!(agreed.starts_with("TLS 1.2"), "{agreed}");
    assert!(run["notes"].to_string().contains("NOT verified"));
}

#[test]
fn lost_connections_end_with_1() {
    let _beside = beside_others();
    // The kernel accepts connections for this listener, and nothing answers them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("it has a name").to_string();
    let args = ["hold", &address, "-n", "50", "--for", "100ms", "--plain"];
    let more = ["--settle", "50ms", "--after", "50ms"];
    let talk = ["--echoes", "1", "--timeout", "300ms"];
    let ran = bench(&[&args[..], &more, &talk].concat());
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    let words = "complete, but 50 connections failed or were lost";
    assert!(ran.out.contains(words), "{}{}", ran.out, ran.err);
    assert_eq!(ran.err.matches("complete").count(), 0, "reported once");
}

#[test]
fn invalid_usage_ends_with_2() {
    let _beside = beside_others();
    for (args, word) in [
        (
            &["hold", "nowhere.invalid:1", "--insecure"][..],
            "not an address",
        ),
        (&["hold", "localhost", "--insecure"], "no port"),
        (
            &["hold", "192.0.2.1:443", "-n", "101", "--insecure"],
            "--i-own-this-server",
        ),
        // Connections that are open at different times count too.
        (
            &[
                "churn",
                "192.0.2.1:443",
                "-n",
                "50",
                "-c",
                "2",
                "--insecure",
            ],
            "--i-own-this-server",
        ),
        (
            &["hold", "127.0.0.1:1", "--ca", "/nonexistent"],
            "--ca: /nonexistent: cannot be read",
        ),
        (&["request", "127.0.0.1:1", "-n", "0"], "no end"),
        // Each mode refuses what it would ignore.
        (&["request", "127.0.0.1:1", "--send", "x"], "'--send'"),
        (&["bulk", "127.0.0.1:1", "--expect", "any"], "'--expect'"),
        (
            &["churn", "127.0.0.1:1", "--no-exchange", "--send", "x"],
            "--send",
        ),
        (
            &["churn", "127.0.0.1:1", "--no-exchange", "--http", "/"],
            "--http",
        ),
        (
            &["churn", "127.0.0.1:1", "--no-exchange", "--greeting"],
            "--greeting",
        ),
        (
            &["hold", "127.0.0.1:1", "--any-status", "--insecure"],
            "needs --http",
        ),
        (
            &["hold", "127.0.0.1:1", "--timeout", "10000000000000000000s"],
            "longer than a year",
        ),
        (
            &["hold", "127.0.0.1:1", "--timeout", "0s"],
            "leaves no time",
        ),
        (
            &[
                "hold",
                "127.0.0.1:1",
                "--source",
                "192.0.2.77",
                "--insecure",
            ],
            "192.0.2.77 is no address of this machine",
        ),
        (&["bulk", "127.0.0.1:1", "--bytes", "many"], "512k"),
        (&["report", "/nonexistent.json"], "cannot read"),
    ] {
        let ran = bench(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(word), "{args:?}: {}", ran.err);
        assert_eq!(ran.out, "", "nothing was measured");
    }
}

#[test]
fn an_unusable_server_ends_with_3_and_one_message() {
    let _beside = beside_others();
    let nobody = free_address();
    let ran = bench(&["hold", &nobody, "-n", "10", "--insecure"]);
    assert_eq!(ran.code, Some(3));
    assert_eq!(ran.err.matches("refused").count(), 1, "{}", ran.err);
    assert_eq!(ran.out, "", "nothing was measured");

    let server = Echo::start();
    // The server echoes the request, which is not an HTTP response.
    let ran = bench(&["request", &server.address, "--any-status", "--insecure"]);
    assert_eq!(ran.code, Some(3), "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("not HTTP"), "{}", ran.err);
    let more = ["--http", "/", "--insecure"];
    let ran = bench(&[&["hold", &server.address, "-n", "20"][..], &more].concat());
    assert_eq!(ran.code, Some(3), "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("not HTTP"), "{}", ran.err);

    // A greeting never comes.
    let more = ["--greeting", "--timeout", "300ms", "--insecure"];
    let ran = bench(&[&["hold", &server.address, "-n", "20"][..], &more].concat());
    assert_eq!(ran.code, Some(3), "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("stopped answering"), "{}", ran.err);

    // Connections are accepted, and no message is ever answered.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("it has a name").to_string();
    for mode in ["churn", "wake"] {
        let args = [mode, &address, "-n", "1000", "--plain"];
        let ran = bench(&[&args[..], &["--timeout", "300ms"]].concat());
        assert_eq!(ran.code, Some(3), "{mode}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains("stopped answering"), "{mode}: {}", ran.err);
        assert_eq!(ran.out, "", "nothing was measured");
    }

    // Some other authority.
    let other = rcgen::generate_simple_self_signed(vec!["other".into()]).expect("a certificate");
    fs::write(server.file("other.pem"), other.cert.pem()).expect("a file");
    let ca = server.file("other.pem");
    let ran = bench(&["hold", &server.address, "-n", "10", "--ca", &ca]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.err.contains("certificate"), "{}", ran.err);
}

#[test]
fn ctrl_c_ends_with_the_figures_so_far() {
    let _beside = beside_others();
    let server = Echo::start();
    let pid = server.child.id().to_string();
    let out = server.file("run.json");
    let args = ["bench", "hold", &server.address, "-n", "100000"];
    let more = ["--rate", "100", "--settle", "50ms", "--insecure"];
    let mut child = dormouse()
        .args(args)
        .args(more)
        .args(["--pid", &pid, "--json", &out])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    // Without a terminal, lines show progress and remaining time now and then.
    let progress = BufReader::new(child.stderr.take().expect("it was piped"));
    let mut lines = progress.lines().map_while(Result::ok);
    let line = lines
        .find(|line| line.starts_with("opening:"))
        .expect("progress");
    assert!(
        line.contains("of 100000") && line.contains("s left"),
        "{line}"
    );
    let interrupt = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(interrupt.is_ok_and(|status| status.success()));
    let output = child.wait_with_output().expect("it ends");
    let table = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{table}");
    assert!(table.contains("NOT COMPLETE: interrupted"), "{table}");
    let run = json(&out);
    assert_eq!(run["outcome"]["complete"], false);
    let figures = run["figures"].as_array().expect("a list");
    let alive = figures
        .iter()
        .find(|figure| figure["name"] == "connections.alive");
    assert!(
        alive.and_then(|figure| figure["value"].as_f64()) > Some(100.0),
        "{table}"
    );
    assert_eq!(run["failures"], serde_json::json!({}));
}

/// The memory of `dormouse serve` has its keys in it, so only root may read it.
#[test]
fn unreadable_memory_is_explained_before_connections_open() {
    let _beside = beside_others();
    let server = Echo::start();
    let pid = server.child.id().to_string();
    let program = env!("CARGO_BIN_EXE_dormouse");
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let root = status.lines().any(|line| line.starts_with("Uid:\t0"));
    let mut command = if root {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--bounding-set=-all", "--inh-caps=-all", program]);
        setpriv
    } else {
        Command::new(program)
    };
    command.args([
        "bench",
        "hold",
        &server.address,
        "--insecure",
        "--pid",
        &pid,
    ]);
    let output = command.output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    let remedy = if root {
        "CAP_SYS_PTRACE"
    } else {
        "run as root"
    };
    assert!(errors.contains(&pid) && errors.contains(remedy), "{errors}");
    assert!(output.stdout.is_empty(), "nothing was measured");
}

#[test]
fn saved_runs_become_a_self_contained_page() {
    let _beside = beside_others();
    let server = Echo::start();
    let (out, page) = (server.file("run.json"), server.file("page.html"));
    let pid = server.child.id().to_string();
    let args = ["bulk", &server.address, "-c", "2", "--bytes", "5M"];
    let more = [
        "--settle",
        "50ms",
        "--pid",
        &pid,
        "--label",
        "<this> & that",
    ];
    let ran = bench(&[&args[..], &more, &["--insecure", "--json", &out]].concat());
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    let ran = bench(&["report", &out, "-o", &page]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let html = fs::read_to_string(&page).expect("it was written");
    assert!(html.contains("<svg") && html.contains(&server.address));
    assert!(html.contains("&lt;this&gt; &amp; that"));
    for word in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!html.contains(word), "{word}");
    }
}
