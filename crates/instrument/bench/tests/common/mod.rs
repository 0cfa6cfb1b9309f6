//! Starts and measures the known server.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_bench::load::{Expect, Launcher, Tls, Traffic, Trust};
use dormouse_bench::model::Run;
use dormouse_bench::{Console, Mode, Progress, Spec};
use dormouse_measure::ServerSource;

/// `examples/known_server`, which cargo builds beside the tests.
fn program() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples/known_server");
    assert!(
        path.exists(),
        "{}: build it with cargo build --example known_server",
        path.display()
    );
    path
}

pub fn launcher() -> Launcher {
    Launcher {
        program: program(),
        arguments: vec!["generator".into()],
    }
}

/// One test at a time. The processes of these tests share the pages of one program, and each one's
/// share (PSS) changes whenever a process starts or exits. Also, a measurement that stops the
/// server it has started stops all other children of this process too.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test of this program once more, in a network namespace of its own: the kernel counts sockets for each, so those of
/// other programs are not in it. `false`: the caller must run here. It is there already, or there can be none.
pub fn has_run_in_own_network(test: &str) -> bool {
    const IS_THERE: &str = "DORMOUSE_IN_OWN_NETWORK";
    if std::env::var_os(IS_THERE).is_some() {
        return false;
    }
    let inside = |program: &Path, arguments: &[&str]| {
        let enter = "ip link set lo up && exec \"$0\" \"$@\"";
        let status = Command::new("unshare")
            .args(["--map-root-user", "--net", "sh", "-c", enter])
            .arg(program)
            .args(arguments)
            .env(IS_THERE, "")
            .status();
        status.is_ok_and(|status| status.success())
    };
    if !inside(Path::new("true"), &[]) {
        eprintln!(
            "no network namespace can be made here: {test} counts other programs' sockets, too"
        );
        return false;
    }
    let own = std::env::current_exe().unwrap();
    assert!(inside(&own, &["--exact", test, "--nocapture"]), "{test}");
    true
}

pub struct KnownServer {
    child: Child,
    pub address: String,
}

impl KnownServer {
    pub fn start(knobs: &[&str]) -> Self {
        let mut child = Command::new(program())
            .args(knobs)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut address)
            .unwrap();
        assert!(!address.is_empty(), "the server has ended; see above");
        Self {
            child,
            address: address.trim().to_owned(),
        }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }
}

impl Drop for KnownServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Silent;

impl Console for Silent {
    fn stage(&mut self, _name: &str, _total: Option<u64>) {}
    fn progress(&mut self, _at: &Progress) {}
    fn stage_over(&mut self) {}
}

pub fn spec(target: &str, mode: Mode) -> Spec {
    let tls = Tls {
        server_name: "localhost".into(),
        trust: Trust::Insecure,
        version: None,
        suite: None,
        resume: false,
        post_quantum: false,
        identity: None,
        starttls: None,
    };
    Spec {
        target: target.into(),
        label: "known".into(),
        server: ServerSource::Unknown,
        tls: Some(tls),
        talk: Traffic::Message {
            message: b"hello\n".to_vec(),
            expect: Expect::Echo,
            greeting: false,
        },
        sources: Vec::new(),
        timeout: Duration::from_secs(30),
        own_server: false,
        settle: Duration::from_millis(300),
        per_process: None,
        mode,
    }
}

pub fn measure_at(spec: &Spec) -> Run {
    dormouse_bench::run(spec, &launcher(), &mut Silent)
}

pub fn measure(server: &KnownServer, mode: Mode, resume: bool) -> Run {
    let mut spec = spec(&server.address, mode);
    spec.server = ServerSource::Pid(server.pid());
    if let Some(tls) = &mut spec.tls {
        tls.resume = resume;
    }
    measure_at(&spec)
}

/// A run in which nothing was lost.
pub fn clean(run: Run) -> Run {
    assert_eq!(
        run.outcome.exit_status, 0,
        "{:?} {:?}",
        run.outcome, run.failures
    );
    run
}
