//! Foreign clients: one program for each language in `clients/`, with a common interface.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::certificates::authority;
use crate::content::Total;
use crate::requirement::Requirement;
use crate::scene::Scene;
use crate::terminator::Can;
use crate::tools;

/// Languages of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Python's ssl, which is OpenSSL.
    Python,
    /// Go's crypto/tls.
    Go,
    /// Java's SSLSocket.
    Java,
    /// Node's tls, which is OpenSSL with streams.
    Node,
}

/// TLS versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

impl Version {
    /// As `1.2` or `1.3`.
    pub fn number(self) -> &'static str {
        match self {
            Self::Tls12 => "1.2",
            Self::Tls13 => "1.3",
        }
    }

    /// The usual name: `TLSv1.3`.
    pub fn name(self) -> String {
        format!("TLSv{}", self.number())
    }
}

/// Everything that the client needs is installed.
impl Requirement for Language {
    fn is_met(&self) -> bool {
        tools::present(match self {
            Self::Python => &["python3"],
            Self::Go => &["go"],
            Self::Java => &["java", "javac"],
            Self::Node => &["node"],
        })
    }
}

impl Language {
    /// Whether the client may still send after the other side's close_notify. TLS 1.2 forbids it
    /// (RFC 5246 §7.2.1), and Java follows that.
    pub fn sends_after_end(self, version: Version) -> bool {
        !(self == Self::Java && version == Version::Tls12)
    }

    /// Maximum bytes that its own socket may buffer. Node cannot limit that; others can.
    pub fn own_buffers_max(self) -> u64 {
        match self {
            Self::Node => 6 << 20,
            Self::Python | Self::Go | Self::Java => 512 << 10,
        }
    }

    fn command(self) -> Command {
        let program = |name: &str| tools::home().join("clients").join(name);
        match self {
            Self::Python => {
                let mut command = Command::new("python3");
                command.arg(program("client.py"));
                command
            }
            Self::Go => Command::new(go_program(&program("client.go"))),
            Self::Java => {
                let java = tools::java();
                let mut command = Command::new(&java[0]);
                command
                    .args(&java[1..])
                    .arg("-cp")
                    .arg(java_classes(&program("Client.java")));
                command.arg("Client");
                command
            }
            Self::Node => {
                let mut command = Command::new("node");
                command.arg(program("client.mjs"));
                command
            }
        }
    }
}

/// Compiles the program, once per test program; Go's own cache makes that quick.
fn go_program(source: &Path) -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM
        .get_or_init(|| {
            let program = built_folder().join("client-go");
            build(
                Command::new(tools::path("go"))
                    .args(["build", "-o"])
                    .arg(&program)
                    .arg(source),
            );
            program
        })
        .clone()
}

fn java_classes(source: &Path) -> PathBuf {
    static CLASSES: OnceLock<PathBuf> = OnceLock::new();
    CLASSES
        .get_or_init(|| {
            let folder = built_folder().join("java");
            build(Command::new("javac").arg("-d").arg(&folder).arg(source));
            folder
        })
        .clone()
}

/// A folder beside each test program, so that no program reads what another one writes.
fn built_folder() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let folder = test.with_extension("clients");
    std::fs::create_dir_all(&folder).expect("a folder beside the test");
    folder
}

fn build(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A client's scenario and options.
#[derive(Clone, Debug)]
pub struct Job {
    language: Language,
    version: Version,
    scenario: &'static str,
    bytes: u64,
    extra: Vec<String>,
}

impl Job {
    /// A scenario of `clients/README.md`.
    pub fn new(language: Language, version: Version, scenario: &'static str, bytes: u64) -> Self {
        Self {
            language,
            version,
            scenario,
            bytes,
            extra: Vec::new(),
        }
    }

    /// Adds an option, `--alpn` or `--group`.
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.extra.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Starts the client.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(&self, scene: &Scene) -> Client {
        let mut command = self.language.command();
        command
            .arg("--connect")
            .arg(scene.address.to_string())
            .arg("--ca")
            .arg(authority().trust())
            .args(["--version", self.version.number()])
            .args(["--scenario", self.scenario])
            .args(["--bytes", &self.bytes.to_string()])
            .args(&self.extra);
        let name = format!(
            "{:?} {} {}",
            self.language,
            self.version.number(),
            self.scenario
        );
        let errors =
            tempfile::NamedTempFile::new_in(scene.folder.path()).expect("a file for errors");
        let (errors, path) = errors.into_parts();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(errors))
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: cannot start {command:?}: {error}"));
        let (sender, lines) = channel();
        let output = child.stdout.take().expect("a pipe");
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Client {
            name,
            child,
            lines,
            errors: path.to_path_buf(),
            _errors: path,
            seen: Vec::new(),
        }
    }

    /// Starts the client and waits for its answer.
    ///
    /// # Panics
    /// When it fails or takes too long.
    pub fn run(&self, scene: &Scene) -> Answer {
        self.start(scene).answer()
    }
}

/// A running client.
pub struct Client {
    name: String,
    child: Child,
    lines: Receiver<String>,
    errors: PathBuf,
    _errors: tempfile::TempPath,
    seen: Vec<String>,
}

/// Time for a client. The largest transfers need some ten seconds.
const CLIENT_TIME: Duration = Duration::from_secs(110);

impl Client {
    /// Returns the number in the next line that starts with this word.
    ///
    /// # Panics
    /// When the client ends without such a line, or takes too long.
    pub fn wait_for(&mut self, word: &str) -> u64 {
        let end = Instant::now() + CLIENT_TIME;
        loop {
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(word) {
                        return rest.trim().parse().unwrap_or_else(|_| {
                            self.fail(&format!("a number after `{word}`"), &line)
                        });
                    }
                    self.seen.push(line);
                }
                Err(RecvTimeoutError::Timeout) => self.fail(&format!("`{word} …`"), "nothing"),
                Err(RecvTimeoutError::Disconnected) => self.fail(&format!("`{word} …`"), "its end"),
            }
        }
    }

    /// Returns the number in the last line so far that starts with this word, if there is one.
    pub fn latest(&mut self, word: &str) -> Option<u64> {
        self.seen.extend(self.lines.try_iter());
        let rest = self
            .seen
            .iter()
            .rev()
            .find_map(|line| line.strip_prefix(word))?;
        rest.trim().parse().ok()
    }

    /// Continues a client that waits for a line.
    ///
    /// # Panics
    /// When it has exited.
    pub fn resume_reading(&mut self) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        if input
            .write_all(b"go\n")
            .and_then(|()| input.flush())
            .is_err()
        {
            self.fail("it to wait for a line", "its end");
        }
    }

    /// Waits for the client's exit and its answer.
    ///
    /// # Panics
    /// When it fails or takes too long.
    pub fn answer(mut self) -> Answer {
        let end = Instant::now() + CLIENT_TIME;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("the status of a child") {
                break status;
            }
            if Instant::now() > end {
                self.fail("its end", "it still runs");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        self.seen.extend(self.lines.iter());
        if !status.success() {
            self.fail("success", &status.to_string());
        }
        let last = self.seen.last().cloned().unwrap_or_default();
        match serde_json::from_str(&last) {
            Ok(json) => Answer {
                name: self.name.clone(),
                json,
            },
            Err(_) => self.fail("an answer in JSON", &last),
        }
    }

    fn fail(&self, expected: &str, came: &str) -> ! {
        let errors = File::open(&self.errors)
            .and_then(std::io::read_to_string)
            .unwrap_or_default();
        panic!(
            "client {}: expected {expected}, got: {came}\nits last lines: {:?}\nits errors:\n{errors}",
            self.name,
            self.seen.iter().rev().take(3).collect::<Vec<_>>(),
        );
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The answer that a client prints before it exits.
#[derive(Debug)]
pub struct Answer {
    name: String,
    json: Value,
}

impl Answer {
    /// A field as text; empty for null.
    pub fn text(&self, field: &str) -> &str {
        self.json[field].as_str().unwrap_or_default()
    }

    /// Whether the connection was resumed.
    pub fn resumed(&self) -> bool {
        self.json["resumed"].as_bool().unwrap_or_default()
    }

    /// What it sent after the first line.
    pub fn sent(&self) -> Total {
        self.total("sent")
    }

    /// What it received.
    pub fn received(&self) -> Total {
        self.total("received")
    }

    fn total(&self, field: &str) -> Total {
        Total {
            bytes: self.json[field].as_u64().unwrap_or_default(),
            sha256: self.text(&format!("{field}_sha256")).to_owned(),
        }
    }

    /// How the connection ended.
    pub fn ended(&self) -> &str {
        self.text("ended")
    }

    /// Asserts that the other side sent close_notify, if the terminator ever does.
    ///
    /// # Panics
    /// When it did not.
    pub fn assert_clean_end(&self, scene: &Scene) {
        assert!(
            !scene.kind.can(Can::EndCleanly) || matches!(self.ended(), "close_notify" | "end"),
            "client {}: expected the connection to end with close_notify, it ended with: {}",
            self.name,
            self.ended()
        );
    }

    /// Asserts that the other side did not close cleanly.
    ///
    /// # Panics
    /// When it did.
    pub fn assert_unclean_end(&self) {
        assert!(
            !matches!(self.ended(), "close_notify" | "end" | "none"),
            "client {}: expected an error at the end of the connection, it ended with: {}",
            self.name,
            self.ended()
        );
    }
}
