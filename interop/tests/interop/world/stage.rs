//! A row in action: its files, the running programs, and the comparison of what they do with what the table says.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dormouse_interop::process::Process;
use dormouse_interop::scene::{PLAIN_PORT, TLS_PORT, unused_host};
use dormouse_interop::tools;
use tempfile::TempDir;

use super::program::{Place, Program};
use super::table::{self, Case, Expectation, Subject};

/// The port of a row's own server.
const SERVER_PORT: u16 = 9443;
/// Limit of each command, in seconds.
const COMMAND_SECONDS_MAX: &str = "40";
/// Limit of a start, and how long a line may take to come into a log.
const START_MAX: Duration = Duration::from_secs(30);
const LOG_MAX: Duration = Duration::from_secs(3);

/// What all rows share.
pub(super) struct World {
    /// The files that `common` of `lib.sh` makes.
    files: TempDir,
    backend: SocketAddr,
}

impl World {
    pub(super) fn new() -> World {
        let files = tempfile::tempdir().expect("a folder");
        let made = shell(files.path(), "common", &[]);
        assert!(made.status.success(), "the common files: {}", both(&made));
        World {
            files,
            backend: echo(),
        }
    }
}

/// Rows that are tried with the same running programs: one, unless its subject is shared.
pub(super) struct Stage<'a> {
    subject: &'a Subject,
    cases: Vec<&'a Case>,
}

impl<'a> Stage<'a> {
    /// The stages of a subject's rows that contain this text.
    pub(super) fn of(subject: &'a Subject, wanted: &str) -> Vec<Stage<'a>> {
        let is_wanted =
            |case: &&Case| subject.name.contains(wanted) || case.situation.contains(wanted);
        let cases: Vec<&Case> = subject.cases.iter().filter(is_wanted).collect();
        let own = |case: &&Case| {
            let has_config =
                |(_, expectation): &(Program, &Expectation)| expectation.config.is_some();
            !case.make.is_empty()
                || case.server.is_some()
                || case.expectations().iter().any(has_config)
        };
        let (alone, shared): (Vec<&Case>, Vec<&Case>) = cases
            .into_iter()
            .partition(|case| !subject.shared || own(case));
        let mut stages: Vec<Stage<'_>> = alone
            .into_iter()
            .map(|case| Stage {
                subject,
                cases: vec![case],
            })
            .collect();
        if !shared.is_empty() {
            stages.push(Stage {
                subject,
                cases: shared,
            });
        }
        stages
    }

    /// Tries all rows with these programs, and returns what differs.
    pub(super) fn run(&self, world: &World, wanted: &[Program]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let made = folder.path().join("made");
        copy(world.files.path(), &made);
        let first = self.cases.first().expect("a row");
        let lines = format!("set -e\n{}\n{}", self.subject.make, first.make);
        let result = shell(&made, &lines, &[]);
        if !result.status.success() {
            return vec![format!("{}: its files: {}", first.situation, both(&result))];
        }
        let mut programs: Vec<Program> = Vec::new();
        for case in &self.cases {
            programs.extend(case.expectations().iter().map(|(program, _)| *program));
        }
        programs.sort_unstable();
        programs.dedup();
        programs.retain(|program| wanted.contains(program));
        thread::scope(|scope| {
            let tries: Vec<_> = programs
                .into_iter()
                .map(|program| {
                    let own = folder.path().join(program.word());
                    copy(&made, &own);
                    scope.spawn(move || self.run_program(program, own, world))
                })
                .collect();
            tries
                .into_iter()
                .flat_map(|tried| tried.join().expect("no panic"))
                .collect()
        })
    }

    /// Tries all rows with one program.
    fn run_program(&self, program: Program, folder: PathBuf, world: &World) -> Vec<String> {
        let mut scene = Scene::new(self, program, folder, world);
        let mut faults = Vec::new();
        for case in &self.cases {
            let expectations = case.expectations();
            let expected = expectations.into_iter().find(|(of, _)| *of == program);
            let Some((_, expected)) = expected else {
                continue;
            };
            let outcome = scene.compare(case, expected);
            let waits = case.waits.as_ref().filter(|_| program == Program::Dormouse);
            let fault = match (outcome, waits) {
                (Err(_), Some(_)) | (Ok(()), None) => continue,
                (Err(fault), None) => fault,
                (Ok(()), Some(reason)) => {
                    format!("it is as expected now; remove `waits = \"{reason}\"`")
                }
            };
            faults.push(format!(
                "{}: {}\n  {program}: {}",
                self.subject.name,
                case.situation,
                fault.trim_end().replace('\n', "\n    ")
            ));
        }
        faults
    }
}

/// One program and its folder.
struct Scene<'a> {
    stage: &'a Stage<'a>,
    program: Program,
    folder: PathBuf,
    place: Place,
    running: Option<Running>,
    // Ends after the program.
    _server: Option<Process>,
}

/// What became of the start.
enum Running {
    Serves(Process),
    /// It exited; its output.
    Refused(String),
}

impl<'a> Scene<'a> {
    fn new(stage: &'a Stage<'a>, program: Program, folder: PathBuf, world: &World) -> Scene<'a> {
        let host = unused_host();
        let place = Place {
            listen: SocketAddr::new(host, TLS_PORT),
            backend: world.backend,
            server: SocketAddr::new(host, SERVER_PORT),
        };
        let first = stage.cases.first().expect("a row");
        let mut scene = Scene {
            stage,
            program,
            folder,
            place,
            running: None,
            _server: None,
        };
        let server = first.server.as_ref().or(stage.subject.server.as_ref());
        scene._server = server.map(|lines| scene.start_server(lines));
        scene
    }

    fn start_server(&self, lines: &str) -> Process {
        let script = format!("cd '{}'\n{}\n{lines}", self.folder.display(), LIBRARY);
        let mut command = vec!["env".to_owned()];
        command.extend(
            self.environment()
                .map(|(name, value)| format!("{name}={value}")),
        );
        command.extend(["sh".into(), "-c".into(), script]);
        let mut process = Process::start("server", &command, &self.folder);
        let end = Instant::now() + START_MAX;
        while process.runs()
            && Instant::now() < end
            && TcpStream::connect(self.place.server).is_err()
        {
            thread::sleep(Duration::from_millis(20));
        }
        process
    }

    /// Tries one row.
    fn compare(&mut self, case: &Case, expected: &Expectation) -> Result<(), String> {
        if let Some(lines) = &expected.run {
            return self.command(lines, expected);
        }
        let config = expected.config.as_deref();
        let config = config.or(self.stage.subject.with.of(self.program));
        let config = config.ok_or("there is no configuration for it")?;
        if self.program == Program::Openssl {
            return self.command(config, expected);
        }
        if self.running.is_none() {
            let command = self.program.prepare(config, &self.place, &self.folder);
            if self.program == Program::Dormouse {
                self.check(expected)?;
            }
            if expected.gives.is_none() && expected.refuses.is_none() {
                return Ok(());
            }
            self.running = Some(self.start(&command));
        }
        match (self.running.as_ref().expect("started"), &expected.refuses) {
            (Running::Refused(output), Some(fragments)) => all_in(output, fragments),
            (Running::Refused(output), None) => {
                Err(format!("expected a start, but it said: {output}"))
            }
            (Running::Serves(_), Some(_)) => Err("expected a refusal, but it started".into()),
            (Running::Serves(process), None) => {
                let lines = case.client.as_ref().unwrap_or(&self.stage.subject.client);
                let pid = process.pid().to_string();
                let output = self.shell(lines, &[("PID", &pid)]);
                let output = both(&output);
                let shown = |fault| format!("{fault}\nit logged: {}", tail(&process.log()));
                judge(&output, expected).map_err(shown)?;
                logged(process, &expected.logs)
            }
        }
    }

    /// `dormouse check` says what `serve` does.
    fn check(&self, expected: &Expectation) -> Result<(), String> {
        let wanted = match (&expected.warns, &expected.refuses) {
            (None, None) => return Ok(()),
            (Some(fragments), _) => (0, fragments),
            (None, Some(fragments)) => (2, fragments),
        };
        let output = self.shell("dormouse check -c dormouse.toml", &[]);
        let said = both(&output);
        match output.status.code() {
            Some(code) if code == wanted.0 => all_in(&said, wanted.1),
            code => Err(format!("check: status {code:?}, not {}: {said}", wanted.0)),
        }
    }

    fn command(&self, lines: &str, expected: &Expectation) -> Result<(), String> {
        let output = self.shell(lines, &[]);
        let said = both(&output);
        match (&expected.refuses, output.status.success()) {
            (Some(fragments), false) => all_in(&said, fragments),
            (Some(_), true) => Err(format!("expected a failure, but got: {said}")),
            (None, false) => Err(format!("{}: {said}", output.status)),
            (None, true) => judge(&said, expected),
        }
    }

    fn start(&self, command: &[String]) -> Running {
        let mut words = vec![
            "env".to_owned(),
            format!("--chdir={}", self.folder.display()),
        ];
        words.extend_from_slice(command);
        let mut process = Process::start(&self.program.word(), &words, &self.folder);
        let end = Instant::now() + START_MAX;
        loop {
            let is_up = match self.program {
                Program::Dormouse => process.log().contains(" ready"),
                _ => TcpStream::connect(self.place.listen).is_ok(),
            };
            if is_up {
                return Running::Serves(process);
            }
            if !process.runs() || Instant::now() > end {
                return Running::Refused(process.log());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn shell(&self, lines: &str, more: &[(&'static str, &str)]) -> Output {
        let mut environment: Vec<(&'static str, String)> = self.environment().into();
        environment.extend(
            more.iter()
                .map(|(name, value)| (*name, (*value).to_owned())),
        );
        shell(&self.folder, lines, &environment)
    }

    fn environment(&self) -> [(&'static str, String); 8] {
        let log = self.folder.join(format!("{}.log", self.program.word()));
        [
            ("AT", self.place.listen.to_string()),
            ("HOST", self.place.listen.ip().to_string()),
            ("BACKEND", self.place.backend.to_string()),
            ("SERVER", self.place.server.to_string()),
            ("PROGRAM", self.program.word()),
            ("LOG", log.to_string_lossy().into_owned()),
            ("DORMOUSE", tools::dormouse().to_string_lossy().into_owned()),
            ("WORLD", table::folder().to_string_lossy().into_owned()),
        ]
    }
}

const LIBRARY: &str = ". \"$WORLD/lib.sh\"";

/// Runs shell lines, with the functions of `lib.sh`.
fn shell(folder: &Path, lines: &str, environment: &[(&'static str, String)]) -> Output {
    Command::new("timeout")
        .args(["--kill-after=5", COMMAND_SECONDS_MAX, "sh", "-c"])
        .arg(format!("{LIBRARY}\n{lines}"))
        .env("WORLD", table::folder())
        .env("OPENSSL_CONF", "/dev/null")
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("sh starts")
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.expect("cp starts").success(), "a copied folder");
}

fn both(output: &Output) -> String {
    let bytes = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether a text is in the output, as this version of OpenSSL prints it or as those before 3.4 did.
fn has(output: &str, text: &str) -> bool {
    output.contains(text) || as_before(output).contains(text)
}

/// What OpenSSL 3.4 and later print, as the versions before did.
fn as_before(output: &str) -> String {
    let output = output.replace("CN=", "CN = ");
    let output = output.replace("signature type: rsa_pkcs1_sha256", "signature type: RSA");
    output.replace(
        "signature type: rsa_pss_rsae_sha256",
        "signature type: RSA-PSS",
    )
}

fn judge(output: &str, expected: &Expectation) -> Result<(), String> {
    all_in(output, expected.gives.as_deref().unwrap_or_default())?;
    match expected.never.iter().find(|text| has(output, text)) {
        Some(text) => Err(format!("did not expect `{text}` in: {output}")),
        None => Ok(()),
    }
}

fn all_in(output: &str, fragments: &[String]) -> Result<(), String> {
    match fragments.iter().find(|text| !has(output, text)) {
        Some(text) => Err(format!("expected `{text}`, but got: {output}")),
        None => Ok(()),
    }
}

/// Waits for these texts in the log.
fn logged(process: &Process, fragments: &[String]) -> Result<(), String> {
    let end = Instant::now() + LOG_MAX;
    loop {
        let outcome = all_in(&process.log(), fragments);
        if outcome.is_ok() || Instant::now() > end {
            return outcome;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let from = lines.len().saturating_sub(12);
    lines.get(from..).unwrap_or_default().join("\n")
}

/// A plain server that sends back what it gets, for as long as the test runs.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind((unused_host(), PLAIN_PORT)).expect("a listener");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let Ok(mut tcp) = tcp else { return };
            thread::spawn(move || {
                let mut buffer = [0; 16 * 1024];
                // Until either side ends.
                while let Ok(length @ 1..) = tcp.read(&mut buffer) {
                    if tcp
                        .write_all(buffer.get(..length).unwrap_or_default())
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    address
}
