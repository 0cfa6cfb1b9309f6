//! A running `dormouse serve` with a configuration of the test's own, and OpenSSL's client.

use std::fs;
use std::io::{Read, Write};
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

/// It serves as long as this lives.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    // It ends, and shows its log if need be, before its folder goes.
    pub(crate) process: Process,
    pub(crate) folder: TempDir,
    pub(crate) admin: Admin,
}

/// Can these tests be run here, with what is to be tested?
pub(crate) fn can_run() -> bool {
    applies(Can::BeDormouse) && tools::present(&["openssl"])
}

impl Site {
    /// Starts with these routes. `LISTEN` and `HERE` in them are the address and the folder, which
    /// `fill` puts files into before.
    pub(crate) fn new(routes: &str, fill: impl FnOnce(&Path)) -> Site {
        Site::at(unused_host(), routes, fill)
    }

    /// The same, where others expect it. It has one worker, unless `routes` begin with another
    /// number of them.
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

    /// It ends, and another begins with the same files.
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

    /// As if the machine had lost its power.
    pub(crate) fn restarted_after_a_crash(self) -> Site {
        for pid in self.process.tree() {
            signal(pid, Signal::KILL);
        }
        // A keeper may have started another worker, and the kernel takes its time to close listeners.
        self.process.end_orphans();
        wait::until("the address to be free", PATIENCE, || {
            TcpListener::bind(self.address).ok()
        });
        self.restarted()
    }

    /// Goes on with other routes.
    pub(crate) fn reload(&self, routes: &str) {
        let file = self.folder.path().join("dormouse.toml");
        fs::write(&file, text(routes, self.address, self.folder.path())).expect("written");
        self.admin.order("/reload").expect("a reload");
    }

    /// What `openssl s_client` says of a connection on which it says nothing.
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

    /// The common name of the certificate that is shown for a name.
    pub(crate) fn shown(&self, name: &str, arguments: &[&str]) -> String {
        let mut all = vec!["-servername", name];
        all.extend(arguments);
        subject(&self.s_client(&all))
    }
}

/// The common name of the server's certificate.
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
    format!(
        "{workers}admin = \"{}/admin.sock\"\nreload_certificates = \"100ms\"\n\
         log_handshakes = true\n{routes}",
        folder.display()
    )
}

/// A plain server which says its name to whoever connects, and ends.
pub(crate) fn greeter(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((unused_host(), 0)).expect("a listener");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let Ok(mut tcp) = tcp else { return };
            // A test that has ended does not listen any more.
            let _ = tcp.write_all(name.as_bytes());
            let _ = tcp.shutdown(std::net::Shutdown::Write);
            let _ = tcp.read_to_end(&mut Vec::new());
        }
    });
    address
}
