//! `dormouse connect` in front of a TLS server, with plain local clients.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::certificates::authority;
use crate::content::random;
use crate::counts::Counts;
use crate::process::Process;
use crate::scene::unused_host;
use crate::tools;
use crate::wait::{self, PATIENCE};

/// The port for plain connections in every test.
pub const PLAIN_PORT: u16 = 8081;

/// A running `dormouse connect`.
pub struct Originator {
    /// Its process.
    pub process: Process,
    /// The address for local clients.
    pub address: SocketAddr,
    /// Folder for files of this test.
    pub folder: TempDir,
    /// Its command line.
    command: Vec<String>,
}

/// Settings of the program.
pub struct Settings {
    /// Servers.
    pub to: Vec<String>,
    /// Lines at the top of the file.
    pub whole: String,
    /// Lines of the origination. Without `ca` or `insecure`, it trusts the tests' CA.
    pub lines: String,
    /// Workers.
    pub workers: u32,
}

impl Settings {
    /// The default settings: one worker, and a server whose certificate is for `localhost`.
    pub fn new(to: &[SocketAddr]) -> Self {
        Self {
            to: to.iter().map(ToString::to_string).collect(),
            whole: String::new(),
            lines: "server_name = \"localhost\"\n".to_owned(),
            workers: 1,
        }
    }

    /// Adds a line to the origination.
    #[must_use]
    pub fn line(mut self, line: &str) -> Self {
        self.lines.push_str(line);
        self.lines.push('\n');
        self
    }

    /// Adds a line at the top.
    #[must_use]
    pub fn top(mut self, line: &str) -> Self {
        self.whole.push_str(line);
        self.whole.push('\n');
        self
    }

    /// Sets the number of workers.
    #[must_use]
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    fn text(&self, host: IpAddr) -> String {
        let Self {
            to,
            whole,
            lines,
            workers,
        } = self;
        let trust = if ["ca =", "insecure ="]
            .iter()
            .any(|name| lines.contains(name))
        {
            String::new()
        } else {
            format!("ca = \"{}\"\n", authority().trust().display())
        };
        // Tests run concurrently, so only those that need an admin address have one.
        let admin = if whole.contains("admin =") {
            ""
        } else {
            "admin = \"none\"\n"
        };
        format!(
            "workers = {workers}\nlog_level = \"debug\"\n{admin}{whole}[[originate]]\n\
             listen = [\"{host}:{PLAIN_PORT}\", \"unix:plain.sock\"]\nto = {to:?}\n{trust}{lines}"
        )
    }
}

impl Originator {
    /// Starts the program and waits until it accepts connections.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(settings: &Settings) -> Self {
        let host = unused_host();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("dormouse.toml");
        std::fs::write(&file, settings.text(host)).expect("a file in our own folder");
        let command = vec![
            tools::dormouse().to_string_lossy().into_owned(),
            "connect".into(),
            "-c".into(),
            file.to_string_lossy().into_owned(),
        ];
        let process = started(&command, folder.path());
        Self {
            process,
            address: SocketAddr::new(host, PLAIN_PORT),
            folder,
            command,
        }
    }

    /// Stops the program and starts it again.
    pub fn restart(&mut self) {
        self.process.terminate();
        self.process = started(&self.command, self.folder.path());
    }

    /// Opens a plain connection.
    ///
    /// # Panics
    /// When the connection is refused.
    pub fn client(&self) -> Client {
        let tcp = TcpStream::connect(self.address).expect("connect listens");
        tcp.set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a socket");
        Client { tcp }
    }

    /// Opens a connection and sends its first line to the backend.
    ///
    /// # Panics
    /// When that fails.
    pub fn saying(&self, line: &str) -> Client {
        let mut client = self.client();
        client
            .tcp
            .write_all(format!("{line}\n").as_bytes())
            .expect("a write of the first line");
        client
    }

    /// Waits until a counter has this value. Needs `admin = "admin.sock"`.
    ///
    /// # Panics
    /// When the value is not reached.
    pub fn wait_for_count(&self, name: &str, count: u64) {
        let counts = Counts::at(&self.folder.path().join("admin.sock"));
        wait::until_true(&format!("{name} to be {count}"), || {
            counts.get(name) == count
        });
    }

    /// Number of handshakes so far: full and resumed.
    pub fn handshakes(&self) -> (usize, usize) {
        let done = self.process.lines_with("handshake done");
        let resumed = done.iter().filter(|line| line.contains("resumed=true"));
        let resumed = resumed.count();
        (done.len() - resumed, resumed)
    }
}

fn started(command: &[String], folder: &Path) -> Process {
    let mut process = Process::start("connect", command, folder);
    process.wait_for_line(" ready ", PATIENCE);
    process
}

/// A plain connection.
pub struct Client {
    /// Its socket.
    pub tcp: TcpStream,
}

impl Client {
    /// Sends some bytes on a connection with the first line `echo`, and compares the answer.
    ///
    /// # Errors
    /// When the connection fails, or the echo differs.
    pub fn echo(&mut self) -> io::Result<()> {
        let message = random(1500);
        self.tcp.write_all(&message)?;
        let mut back = vec![0; message.len()];
        self.tcp.read_exact(&mut back)?;
        if back == message {
            Ok(())
        } else {
            Err(io::Error::other("the echo differs from what was sent"))
        }
    }
}
