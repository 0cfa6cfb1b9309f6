//! Child processes that end with their test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dormouse_testkit::{Authority, PemFiles};

/// Longer than any step takes on a busy machine; a hang ends with a message.
const PATIENCE: Duration = Duration::from_secs(240);

/// A server that prints `listening on ADDRESS:PORT`.
pub(crate) struct Server {
    child: Child,
    /// Read continuously: a process with a full pipe would block.
    errors: Option<JoinHandle<String>>,
    pub(crate) port: String,
}

impl Server {
    pub(crate) fn start(command: &mut Command) -> Server {
        let spawned = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let port = line
            .trim()
            .rsplit_once(':')
            .map(|(_, port)| port.to_owned());
        let mut stderr = child.stderr.take().unwrap();
        let errors = std::thread::spawn(move || {
            let mut errors = String::new();
            stderr.read_to_string(&mut errors).unwrap();
            errors
        });
        let errors = Some(errors);
        match port {
            Some(port) => Server {
                child,
                errors,
                port,
            },
            None => panic!("{command:?}: {line:?} {:?}", errors.map(JoinHandle::join)),
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Waits until it ends by itself.
    pub(crate) fn finish(mut self) -> Finished {
        wait(&mut self.child, "the server");
        self.take()
    }

    /// Ends it with SIGTERM.
    pub(crate) fn stop(mut self) -> Finished {
        let pid = self.child.id().to_string();
        let killed = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(killed.unwrap().success());
        wait(&mut self.child, "the server");
        self.take()
    }

    fn take(&mut self) -> Finished {
        let errors = self.errors.take().map(JoinHandle::join);
        let errors = errors.expect("taken once").expect("read");
        let status = self.child.wait().unwrap();
        Finished {
            code: status.code(),
            errors,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a server ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) errors: String,
}

fn wait(child: &mut Child, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("{what} did not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a program to its end with this input.
pub(crate) fn run(command: &mut Command, input: &str) -> Output {
    let piped = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let reader = |mut from: Box<dyn std::io::Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).unwrap();
            bytes
        })
    };
    let (stdout, stderr) = (reader(Box::new(stdout)), reader(Box::new(stderr)));
    wait(&mut child, &format!("{command:?}"));
    Output {
        status: child.wait().unwrap(),
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    }
}

/// Runs a program that must succeed. Returns its output.
pub(crate) fn succeed(command: &mut Command, input: &str) -> String {
    let output = run(command, input);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{command:?}: {:?}\n{out}\n{err}",
        output.status
    );
    out
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A certificate for `localhost`, its key, and its authority.
pub(crate) fn certificate() -> PemFiles {
    let authority = Authority::shared();
    PemFiles::write(authority, &authority.ecdsa(&["localhost"])).unwrap()
}

/// Returns the program with these arguments.
pub(crate) fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}
