//! `check` and `serve` agree about every file, address and user that a configuration names: both reject the
//! same mistakes with the same text, line and exit status.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::process::Process;
use dormouse_interop::scene::{TLS_PORT, unused_host};
use dormouse_interop::terminator::Can;
use dormouse_interop::tools;
use dormouse_interop::wait::PATIENCE;
use rustix::fs::{CWD, FileType, Mode};
use tempfile::TempDir;

/// A folder with valid and invalid files, and an address to listen on.
struct Site {
    folder: TempDir,
    listen: SocketAddr,
}

/// A mistake in what a configuration names.
struct NamedMistake {
    /// Lines above the route.
    program: &'static str,
    /// Lines of the route.
    route: &'static str,
    /// Expected words, ignoring case.
    says: &'static [&'static str],
    /// Exit status: 2, or 3 if the text is valid and the system refuses.
    status: i32,
}

const fn wrong(
    program: &'static str,
    route: &'static str,
    says: &'static [&'static str],
) -> NamedMistake {
    NamedMistake {
        program,
        route,
        says,
        status: 2,
    }
}

const ALL: &[NamedMistake] = &[
    wrong(
        "",
        "certificates = 'missing.pem'",
        &["missing.pem", "No such file", "check the path"],
    ),
    wrong("", "certificates = 'garbage.pem'", &["garbage.pem", "PEM"]),
    // Nobody writes to this pipe: to read it would wait forever.
    wrong(
        "",
        "certificates = 'pipe'",
        &["pipe: cannot be read", "not a regular file"],
    ),
    wrong(
        "",
        "certificates = [{ cert = 'site.pem', key = 'site.key', ocsp = 'pipe' }]",
        &["pipe: cannot be read", "not a regular file"],
    ),
    wrong(
        "ticket_secret_file = 'pipe'\nticket_keys = 'file:own.keys'",
        "",
        &["pipe", "not a regular file"],
    ),
    wrong("include = 'pipe'", "", &["pipe is a pipe"]),
    wrong(
        "metrics = '[::]:8447'",
        "listen = '127.0.0.1:8447'",
        &["8447 is already a listener", "an address of its own"],
    ),
    wrong(
        "metrics = '127.0.0.1:9901'\nredirect = ':9901'",
        "",
        &["0.0.0.0:9901 is already a listener"],
    ),
    wrong(
        "",
        "certificates = [{ cert = 'site.pem', key = 'other.key' }]",
        &["other.key", "belong"],
    ),
    wrong(
        "",
        "certificates = 'empty'",
        &["no certificates in this directory"],
    ),
    wrong(
        "",
        "certificates = [{ cert = 'site.pem', key = 'site.key', ocsp = 'garbage.pem' }]",
        &["garbage.pem", "OCSP"],
    ),
    wrong(
        "",
        "client_certificates = 'required'\nclient_ca = 'missing.pem'",
        &["missing.pem", "No such file"],
    ),
    wrong(
        "",
        "client_certificates = 'required'\nclient_ca = 'garbage.pem'",
        &["garbage.pem"],
    ),
    wrong(
        "",
        "client_certificates = 'required'\nclient_ca = 'site.key'",
        &["site.key", "contains a key instead of the certificate"],
    ),
    wrong(
        "",
        "client_certificates = 'required'\nclient_ca = 'ca.pem'\nclient_crl = 'missing.pem'",
        &["missing.pem", "No such file"],
    ),
    wrong(
        "",
        "client_certificates = 'required'\nclient_ca = 'ca.pem'\nclient_crl = 'garbage.pem'",
        &["garbage.pem", "is not PEM"],
    ),
    wrong(
        "",
        "client_certificates = 'required'\nclient_ca = 'ca.pem'\nclient_crl = 'site.pem'",
        &["site.pem", "revocation list"],
    ),
    wrong(
        "",
        "backend_tls = true\nbackend_ca = 'missing.pem'",
        &["missing.pem", "No such file", "or \"system\""],
    ),
    wrong(
        "",
        "backend_tls = true\nbackend_ca = 'garbage.pem'",
        &["garbage.pem"],
    ),
    wrong(
        "",
        "backend_tls = true\nbackend_ca = 'ca.pem'\nbackend_certificates = [{ cert = 'site.pem', key = 'other.key' }]",
        &["other.key", "belong"],
    ),
    wrong(
        "ticket_secret_file = 'missing.secret'\nticket_keys = 'file:own.keys'",
        "",
        &["missing.secret", "no such file"],
    ),
    wrong(
        "ticket_secret_file = 'open.secret'\nticket_keys = 'file:own.keys'",
        "",
        &["open.secret", "chmod 600"],
    ),
    wrong(
        "ticket_secret_file = 'short.secret'\nticket_keys = 'file:own.keys'",
        "",
        &["short.secret", "at least 32 bytes"],
    ),
    wrong(
        "ticket_secret_file = 'good.secret'\nticket_keys = 'file:nowhere/own.keys'",
        "",
        &["nowhere/own.keys", "create the directory"],
    ),
    wrong("ticket_keys = 'file:garbage.pem'", "", &["garbage.pem"]),
    wrong(
        "ticket_secret_file = 'good.secret'\nticket_keys = 'rediss://127.0.0.1:1'\nticket_store_ca = 'garbage.pem'",
        "",
        &["garbage.pem"],
    ),
    wrong(
        "connection_log = 'nowhere/connections.log'",
        "",
        &["nowhere/connections.log", "create the directory"],
    ),
    wrong("connection_log = 'empty'", "", &["is a directory"]),
    wrong(
        "admin = 'nowhere/admin.sock'",
        "",
        &["nowhere/admin.sock", "create the directory"],
    ),
    wrong(
        "acme_terms_agreed = true\nacme_folder = 'site.pem/acme'\nacme_ca = 'ca.pem'",
        "acme = 'a.example'",
        &["cannot save certificates"],
    ),
    wrong(
        "acme_terms_agreed = true\nacme_folder = 'acme'\nacme_ca = 'garbage.pem'",
        "acme = 'a.example'",
        &["garbage.pem"],
    ),
    wrong(
        "",
        "to = '127.0.0.1:1'\nsource_addresses = '192.0.2.1'",
        &["192.0.2.1", "does not have the address"],
    )
    .of_system(),
    wrong(
        "user = 'nobody-has-this-name'",
        "",
        &["nobody-has-this-name", "does not exist"],
    )
    .of_system(),
    wrong(
        "user = 'root'\ngroup = 'no-such-group'",
        "",
        &["no-such-group"],
    )
    .of_system(),
    wrong(
        "",
        "listen = '192.0.2.1:8443'",
        &["192.0.2.1:8443", "does not have the address"],
    )
    .of_system(),
];

impl NamedMistake {
    const fn of_system(self) -> NamedMistake {
        NamedMistake { status: 3, ..self }
    }
}

impl Site {
    fn new() -> Site {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        authority().give_out("site", Kind::EcdsaP256, 2035, folder.path());
        authority().give_out("other", Kind::EcdsaP256, 2035, folder.path());
        fs::copy(authority().trust(), at("ca.pem")).expect("a copy");
        fs::create_dir(at("empty")).expect("a folder");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, mode, 0).expect("a pipe");
        for (name, text, mode) in [
            ("garbage.pem", "this is no PEM", 0o600),
            ("good.secret", "0123456789abcdef0123456789abcdef", 0o600),
            ("open.secret", "0123456789abcdef0123456789abcdef", 0o644),
            ("short.secret", "too short", 0o600),
        ] {
            fs::write(at(name), text).expect("a file");
            fs::set_permissions(at(name), Permissions::from_mode(mode)).expect("a mode");
        }
        Site {
            listen: SocketAddr::new(unused_host(), TLS_PORT),
            folder,
        }
    }

    /// A valid route, except for these lines.
    fn route(&self, lines: &str) -> String {
        let says = |name: &str| lines.lines().any(|line| line.starts_with(name));
        let mut route = "[[route]]\n".to_owned();
        for (name, value) in [
            ("listen", format!("'{}'", self.listen)),
            ("to", "'127.0.0.1:1'".to_owned()),
            (
                "certificates",
                "[{ cert = 'site.pem', key = 'site.key' }]".to_owned(),
            ),
        ] {
            let is_replaced = says(name) || (name == "certificates" && says("acme"));
            if !is_replaced {
                route.push_str(&format!("{name} = {value}\n"));
            }
        }
        route + lines + "\n"
    }

    fn write(&self, program: &str, route: &str) {
        let text = format!("{program}\n{}", self.route(route));
        fs::write(self.folder.path().join("dormouse.toml"), text).expect("a file");
    }

    /// The command that serves the file, from any folder.
    fn serve(&self) -> [String; 4] {
        let file = self.folder.path().join("dormouse.toml");
        let [program, file] = [tools::dormouse(), &file].map(|path| path.display().to_string());
        [program, "serve".to_owned(), "-c".to_owned(), file]
    }

    /// Runs a command with the file. The command must exit on its own.
    fn run(&self, command: &str) -> Output {
        run(self.folder.path(), command)
    }

    /// Asserts that both reject the file alike. Returns their output.
    fn refused(&self, status: i32) -> String {
        let [checked, served] = ["check", "serve"].map(|command| self.run(command));
        let [by_check, by_serve] =
            [&checked, &served].map(|ran| String::from_utf8_lossy(&ran.stderr).into_owned());
        assert_eq!(checked.status.code(), Some(status), "check: {by_check}");
        assert_eq!(served.status.code(), Some(status), "serve: {by_serve}");
        let mistakes = |said: &str| {
            said.rsplit_once("in dormouse.toml;")
                .map(|(all, _)| all.to_owned())
        };
        assert_eq!(
            mistakes(&by_check),
            mistakes(&by_serve),
            "{by_check}\n{by_serve}"
        );
        by_check
    }
}

fn run(folder: &Path, command: &str) -> Output {
    let mut child = Command::new(tools::dormouse())
        .args([command, "-c", "dormouse.toml"])
        .current_dir(folder)
        .env_remove("XDG_RUNTIME_DIR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dormouse");
    let until = Instant::now() + PATIENCE;
    while child.try_wait().expect("its exit status").is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            let output = child.wait_with_output().expect("its output");
            panic!(
                "{command} still runs: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().expect("its output")
}

#[test]
fn check_and_serve_reject_the_same_files() {
    requires!(Can::BeDormouse);
    let site = Site::new();
    for wrong in ALL {
        site.write(wrong.program, wrong.route);
        let said = site.refused(wrong.status);
        for text in wrong.says {
            assert!(
                said.to_lowercase().contains(&text.to_lowercase()),
                "{text:?} is not said of\n{}\n{}\nbut:\n{said}",
                wrong.program,
                wrong.route
            );
        }
        assert!(
            said.contains("--> dormouse.toml:"),
            "no line is named:\n{said}"
        );
        assert!(said.contains("^"), "no place is shown:\n{said}");
    }
    // Nothing was created.
    for name in ["acme", "nowhere", "own.keys"] {
        assert!(!site.folder.path().join(name).exists(), "{name}");
    }
}

/// Mistakes in options and in files are all reported at once, each with its line.
#[test]
fn all_mistakes_are_reported_at_once() {
    requires!(Can::BeDormouse);
    let site = Site::new();
    let program = "wokers = 2\nticket_secret_file = 'missing.secret'\nticket_keys = 'file:own.keys'\nadmin = 'nowhere/x.sock'";
    let route = "certificates = 'missing.pem'\nbackend_tls = true\nbackend_ca = 'garbage.pem'\ntruncation = 'maybe'";
    site.write(program, route);
    let said = site.refused(2);
    // The route begins in line 5.
    for line in [1, 2, 4, 8, 10, 11] {
        assert!(
            said.contains(&format!("dormouse.toml:{line}:")),
            "line {line}:\n{said}"
        );
    }
    assert!(said.contains("6 mistakes in dormouse.toml"), "{said}");
}

/// Only the start can find out whether a process reads from a pipe: `check` would end that process's input. So it warns.
#[test]
fn a_pipe_as_connection_log_needs_a_reader() {
    requires!(Can::BeDormouse);
    let site = Site::new();
    site.write("connection_log = 'pipe'", "");
    let expected = [
        ("check", 0, "pipe: is a pipe"),
        ("serve", 3, "start that first"),
    ];
    for (command, status, says) in expected {
        let ran = site.run(command);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(status), "{command}: {said}");
        assert!(said.contains(says), "{command}: {said}");
    }
}

/// An address in use is an error of both commands, which name its owner; the running instance itself is
/// allowed to use it.
#[test]
fn an_address_in_use_is_found_before_the_start() {
    requires!(Can::BeDormouse);
    let site = Site::new();
    site.write("admin = 'admin.sock'", "");
    let taken = TcpListener::bind(site.listen).expect("an unused address");
    let said = site.refused(3);
    let pid = format!("(pid {})", std::process::id());
    for text in ["address in use by", &*pid] {
        assert!(said.contains(text), "{text} is missing in:\n{said}");
    }
    drop(taken);

    let mut served = Process::start("dormouse", &site.serve(), site.folder.path());
    served.wait_for_line("ready", PATIENCE);
    let checked = site.run("check");
    let said = String::from_utf8_lossy(&checked.stderr);
    assert_eq!(checked.status.code(), Some(0), "{said}");
    let second = site.run("serve");
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(3), "{said}");
    assert!(said.contains("dormouse"), "{said}");
}

/// A version 1 certificate, as old commands make it, is reported as such.
#[test]
fn a_version_1_certificate_is_rejected_with_a_reason() {
    requires!(Can::BeDormouse, "openssl");
    let site = Site::new();
    let made = Command::new("sh")
        .arg("-c")
        .arg(
            "openssl req -newkey rsa:2048 -nodes -keyout v1.key -subj /CN=old -out v1.csr && \
             { openssl req -x509v1 -in v1.csr -key v1.key -out v1.pem || \
             openssl x509 -req -in v1.csr -signkey v1.key -out v1.pem; }",
        )
        .current_dir(site.folder.path())
        // Its usual configuration asks for extensions, which a certificate of version 1 cannot have.
        .env("OPENSSL_CONF", "/dev/null")
        .output()
        .expect("a shell");
    assert!(made.status.success(), "{made:?}");
    site.write("", "certificates = [{ cert = 'v1.pem', key = 'v1.key' }]");
    let said = site.refused(2);
    assert!(said.contains("X.509 certificate of version 1"), "{said}");
    assert!(!said.contains("Other("), "{said}");
}

/// A descriptor limit that leaves little room is reported at the start, with what it allows.
#[test]
fn a_low_descriptor_limit_is_reported() {
    requires!(Can::BeDormouse, "prlimit");
    let site = Site::new();
    site.write("workers = 1\nadmin = 'none'", "");
    let prlimit = [tools::path("prlimit"), "--nofile=1000".to_owned()];
    let command = [prlimit.as_slice(), &site.serve()].concat();
    let mut served = Process::start("dormouse", &command, site.folder.path());
    let ready = served.wait_for_line("ready", PATIENCE);
    assert!(ready.contains(&site.listen.to_string()), "{ready}");
    let max = ready
        .split("connections_max=")
        .nth(1)
        .expect("the number of connections");
    let max = max.split_whitespace().next().expect("a number");
    let log = served.log();
    assert!(log.contains(&format!("at most {max} connections")), "{log}");
    assert!(log.contains("only 1000 descriptors"), "{log}");
    assert!(log.contains("LimitNOFILE="), "{log}");
}

/// `check` starts nothing, and leaves nothing behind.
#[test]
fn check_starts_nothing() {
    requires!(Can::BeDormouse);
    let site = Site::new();
    site.write("workers = 2\nadmin = 'admin.sock'", "");
    let checked = site.run("check");
    let page = String::from_utf8_lossy(&checked.stdout);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    assert!(page.contains(&site.listen.to_string()), "{page}");
    assert!(!site.folder.path().join("admin.sock").exists());
    TcpListener::bind(site.listen).expect("the address is free");
}

/// The output of `check` has what a reviewer looks for.
#[test]
fn check_shows_what_a_reviewer_looks_for() {
    requires!(Can::BeDormouse);
    let site = Site::new();
    site.write(
        "",
        "name = 'shop'\nserver_names = ['shop.example', '*.shop.example']\n\
         client_certificates = 'required'\nclient_ca = 'ca.pem'\nclient_allow = 'cn=alice'\n\
         proxy_protocol = 'v2'\naccept_proxy_from = '10.0.0.0/8'\n\
         backend_tls = true\nbackend_ca = 'ca.pem'\nbackend_name = 'app.internal'\n\
         check = 'GET /healthz'\nallow = '192.0.2.0/24'",
    );
    let checked = site.run("check");
    let page = String::from_utf8_lossy(&checked.stdout);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    for (name, value) in [
        ("Route shop from", ""),
        ("server names", "shop.example, *.shop.example"),
        ("client certificates", "required"),
        ("client certificates", "only cn=alice"),
        ("PROXY protocol", "sent as v2"),
        ("PROXY protocol", "required from 10.0.0.0/8"),
        ("backend TLS", "name: app.internal"),
        ("checks", "GET /healthz"),
        ("networks", "192.0.2.0/24"),
    ] {
        let is_it = |line: &str| line.trim_start().starts_with(name) && line.contains(value);
        assert!(page.lines().any(is_it), "{name}: {value} is not in\n{page}");
    }
}
