//! A running `dormouse serve` with the test's own configuration, and OpenSSL's client.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use dormouse_interop::admin::Admin;
use dormouse_interop::process::{Process, signal};
use dormouse_interop::scene::{TLS_PORT, applies, unused_host};
use dormouse_interop::terminator::Can;
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;
use tempfile::TempDir;

/// A running server. Dropping it ends the server.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    // Dropped first: the process exits, and may show its log, before its folder is removed.
    pub(crate) process: Process,
    pub(crate) folder: TempDir,
    pub(crate) admin: Admin,
}

/// Whether these tests can run here, against the chosen terminator.
pub(crate) fn can_run() -> bool {
    applies(Can::BeDormouse) && tools::present(&["openssl"])
}

impl Site {
    /// Starts with these routes. `LISTEN` and `HERE` in them are replaced by the address and the folder, which
    /// `fill` fills before.
    pub(crate) fn new(routes: &str, fill: impl FnOnce(&Path)) -> Site {
        Site::at(unused_host(), routes, fill)
    }

    /// The same at a given address. There is one worker, unless `routes` begin with another number of workers.
    pub(crate) fn at(host: IpAddr, routes: &str, fill: impl FnOnce(&Path)) -> Site {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fill(folder.path());
        let address = SocketAddr::new(host, TLS_PORT);
        let file = folder.path().join("dormouse.toml");
        fs::write(&file, text(routes, address, folder.path())).expect("written");
        Site {
            address,
            admin: Admin::at(&folder.path().join("admin.sock")),
            process: start(folder.path()),
            folder,
        }
    }

    /// Stops the server and starts it again with the same files.
    pub(crate) fn restarted(self) -> Site {
        let Site {
            address,
            folder,
            process,
            admin,
        } = self;
        drop(process);
        Site {
            address,
            admin,
            process: start(folder.path()),
            folder,
        }
    }

    /// Kills the server as in a power failure, and starts it again.
    pub(crate) fn restarted_after_a_crash(self) -> Site {
        for pid in self.process.tree() {
            signal(pid, Signal::KILL);
        }
        // A keeper may have started another worker, and the kernel needs time to close listeners.
        self.process.end_orphans();
        wait::until("the address to be free", PATIENCE, || {
            TcpListener::bind(self.address).ok()
        });
        self.restarted()
    }

    /// Reloads with other routes.
    pub(crate) fn reload(&self, routes: &str) {
        let file = self.folder.path().join("dormouse.toml");
        fs::write(&file, text(routes, self.address, self.folder.path())).expect("written");
        self.admin.order("/reload").expect("a reload");
    }

    /// The output of `openssl s_client` for a connection without data.
    pub(crate) fn s_client(&self, arguments: &[&str]) -> String {
        let connect = self.address.to_string();
        let output = Command::new(tools::path("openssl"))
            .args(["s_client", "-connect", &connect])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("openssl runs");
        let both = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&both).into_owned()
    }

    /// What `openssl s_client` says up to the echo of a line, which may follow the beginning of another line: "hello" is last
    /// if all went well.
    pub(crate) fn s_client_with_echo(&self, arguments: &[&str]) -> String {
        let connect = self.address.to_string();
        let mut client = Command::new(tools::path("openssl"))
            .args(["s_client", "-connect", &connect])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl runs");
        let mut input = client.stdin.take().expect("a pipe");
        // A client that is refused has gone.
        let _ = input.write_all(b"hello\n");
        let output = client.stdout.take().expect("a pipe");
        let mut said = String::new();
        for line in BufReader::new(output).lines() {
            let line = line.expect("text");
            said += &line;
            said.push('\n');
            if line.ends_with("hello") {
                break;
            }
        }
        drop(input);
        client.wait().expect("it ends");
        said
    }

    /// What `openssl s_client` receives after it has sent a request.
    pub(crate) fn s_client_asking(&self, request: &str) -> String {
        let connect = self.address.to_string();
        let mut client = Command::new(tools::path("openssl"))
            .args(["s_client", "-quiet", "-connect", &connect])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl runs");
        let mut input = client.stdin.take().expect("a pipe");
        // A client that is refused has gone.
        let _ = input.write_all(request.as_bytes());
        let output = client.wait_with_output().expect("its output");
        drop(input);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The common name of the certificate served for a name.
    pub(crate) fn shown(&self, name: &str, arguments: &[&str]) -> String {
        let mut all = vec!["-servername", name];
        all.extend(arguments);
        subject(&self.s_client(&all))
    }
}

/// The common name of the server's certificate in the output of `s_client`.
pub(crate) fn subject(said: &str) -> String {
    let line = said.lines().find(|line| line.starts_with("subject="));
    let line = line.unwrap_or_else(|| panic!("no certificate was shown: {said}"));
    let (_, name) = line.rsplit_once("CN").expect("a common name");
    name.trim_start_matches([' ', '=']).to_owned()
}

fn start(folder: &Path) -> Process {
    let command = [
        tools::dormouse().to_string_lossy().into_owned(),
        "serve".to_owned(),
        "-c".to_owned(),
        folder.join("dormouse.toml").to_string_lossy().into_owned(),
    ];
    let mut process = Process::start("dormouse", &command, folder);
    process.wait_for_line("ready", PATIENCE);
    process
}

fn text(routes: &str, address: SocketAddr, folder: &Path) -> String {
    let routes = routes
        .replace("LISTEN", &address.to_string())
        .replace("HERE", &folder.to_string_lossy());
    let workers = match routes.starts_with("workers") {
        true => "",
        false => "workers = 1\n",
    };
    let certificates = match routes.contains("reload_certificates") {
        true => "",
        false => "reload_certificates = \"100ms\"\n",
    };
    format!(
        "{workers}admin = \"{}/admin.sock\"\n{certificates}log_handshakes = true\n{routes}",
        folder.display()
    )
}

/// A plain server that sends its name to every client, and closes.
pub(crate) fn greeter(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((unused_host(), 0)).expect("a listener");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let Ok(mut tcp) = tcp else { return };
            // Clients of a finished test are gone.
            let _ = tcp.write_all(name.as_bytes());
            let _ = tcp.shutdown(std::net::Shutdown::Write);
            let _ = tcp.read_to_end(&mut Vec::new());
        }
    });
    address
}
