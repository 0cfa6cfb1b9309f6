//! The programs of `servers/` in other runtimes, built once. A machine without a runtime leaves their tests out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::places::Place;
use super::{Judged, audit_command, free_address};

/// A runtime, and a program on it that has the faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Runtime {
    OpenSsl,
    Threads,
    GnuTls,
    Go,
    Java,
    Node,
    Python,
    Asyncio,
}

impl Runtime {
    /// Audits the server with this fault; `None` if the machine lacks the runtime.
    pub(super) fn audit(self, fault: &str, options: &[&str]) -> Option<Judged> {
        let Some(program) = self.program() else {
            eprintln!("left out: this machine cannot build or run {self:?}");
            return None;
        };
        let place = Place::whole_core();
        let address = free_address();
        let (certificate, key) = files();
        // The certificate is its own authority, which only the server with client certificates needs.
        let command = format!("exec {program} {fault} {address} {certificate} {key} {certificate}");
        Some(audit_command(&place, &address, &command, options))
    }

    /// The beginning of the command line.
    fn program(self) -> Option<String> {
        match self {
            Self::OpenSsl => {
                let header = "/usr/include/openssl/ssl.h";
                built(
                    &OPENSSL,
                    ("c", "openssl"),
                    c("openssl.c", header, &["-lssl", "-lcrypto"]),
                )
            }
            Self::Threads => {
                let header = "/usr/include/openssl/ssl.h";
                let libraries = ["-lssl", "-lcrypto", "-pthread"];
                built(
                    &THREADS,
                    ("c", "threads"),
                    c("threads.c", header, &libraries),
                )
            }
            Self::GnuTls => {
                let header = "/usr/include/gnutls/gnutls.h";
                built(
                    &GNUTLS,
                    ("c", "gnutls"),
                    c("gnutls.c", header, &["-lgnutls"]),
                )
            }
            Self::Go => {
                let go = tool("go", "/usr/local/go/bin/go");
                built(
                    &GO,
                    ("go", "go"),
                    go.map(|go| words(go, &["build", "-o", PROGRAM])),
                )
            }
            Self::Java => {
                let compiler = tool("javac", "/usr/bin/javac");
                let compiler = compiler.map(|it| words(it, &["-d", PROGRAM, "Server.java"]));
                let classes = built(&JAVA, ("java", "java"), compiler)?;
                let settings = "-XX:+UseSerialGC -Xmx256m";
                Some(format!("java {settings} -cp {classes} Server"))
            }
            // The audit sees V8's objects only through an open inspector.
            Self::Node => script(
                tool("node", "/usr/bin/node")?,
                "--inspect=127.0.0.1:0",
                "node/server.cjs",
            ),
            Self::Python => script("/usr/bin/python3".into(), "-B", "python/server.py"),
            Self::Asyncio => script("/usr/bin/python3".into(), "-B", "python/echo_protocol.py"),
        }
    }
}

type Built = OnceLock<Option<String>>;
static OPENSSL: Built = OnceLock::new();
static THREADS: Built = OnceLock::new();
static GNUTLS: Built = OnceLock::new();
static GO: Built = OnceLock::new();
static JAVA: Built = OnceLock::new();

/// A certificate, its own authority, and its key, for all of these servers.
pub(super) fn files() -> (&'static str, &'static str) {
    static MADE: OnceLock<(String, String)> = OnceLock::new();
    let (certificate, key) = MADE.get_or_init(|| {
        let of = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let write = |name: &str, text: String| {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let certificate = write("sick-cert.pem", of.cert.pem());
        (
            certificate,
            write("sick-key.pem", of.signing_key.serialize_pem()),
        )
    });
    (certificate, key)
}

fn servers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("servers")
}

/// Returns a program by name if the shell finds it, else the usual path if it exists.
fn tool(name: &str, usual: &str) -> Option<PathBuf> {
    let found = std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    found.or_else(|| Some(PathBuf::from(usual)).filter(|path| path.is_file()))
}

fn script(interpreter: PathBuf, option: &str, of: &str) -> Option<String> {
    let interpreter = Some(interpreter).filter(|path| path.is_file())?;
    let script = servers().join(of);
    Some(format!(
        "{} {option} {}",
        interpreter.display(),
        script.display()
    ))
}

/// Stands for the compiled program in a compiler's arguments.
const PROGRAM: &str = "PROGRAM";

fn words(compiler: PathBuf, arguments: &[&str]) -> Vec<String> {
    let first = compiler.display().to_string();
    let rest = arguments.iter().map(|argument| (*argument).to_owned());
    std::iter::once(first).chain(rest).collect()
}

/// The command that compiles a C server; `None` without the library's header or a compiler.
fn c(source: &str, header: &str, libraries: &[&str]) -> Option<Vec<String>> {
    Path::new(header).is_file().then_some(())?;
    let options = ["-O2", "-Wall", "-Werror", "-o", PROGRAM, source];
    Some(words(
        tool("cc", "/usr/bin/cc")?,
        &[&options, libraries].concat(),
    ))
}

/// Runs a compiler in a folder of `servers/`, once, and returns the program's path. A program that
/// does not compile fails the test.
fn built(
    once: &'static Built,
    (folder, name): (&str, &str),
    compiler: Option<Vec<String>>,
) -> Option<String> {
    let result = once.get_or_init(|| {
        let compiler = compiler?;
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sick-{name}"));
        let program = program.display().to_string();
        let filled = compiler.iter().map(|word| word.replace(PROGRAM, &program));
        let filled: Vec<_> = filled.collect();
        let (first, rest) = filled.split_first()?;
        let mut command = Command::new(first);
        let status = command
            .args(rest)
            .current_dir(servers().join(folder))
            .status();
        assert!(
            status.ok()?.success(),
            "{name} does not compile: {command:?}"
        );
        Some(program)
    });
    result.clone()
}
