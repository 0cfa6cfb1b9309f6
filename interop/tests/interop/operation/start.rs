//! The start: the main task from flags, and every reason to refuse it. An error names what is wrong and where,
//! and has the right exit status: 2 for the configuration, 3 for the operating system.

use std::fs::Permissions;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use dormouse_interop::backend::Backend;
use dormouse_interop::certificates::{Files, Kind, authority};
use dormouse_interop::peer::Peer;
use dormouse_interop::process::Process;
use dormouse_interop::scene::{TLS_PORT, unused_host};
use dormouse_interop::terminator::Can;
use dormouse_interop::tools;
use dormouse_interop::wait::PATIENCE;
use tempfile::TempDir;

const MISCONFIGURED: i32 = 2;
const REFUSED_BY_SYSTEM: i32 = 3;

/// Everything to start `dormouse`, with a mistake in it.
struct Attempt {
    folder: TempDir,
    files: Files,
    listen: SocketAddr,
    to: String,
    wrapper: Vec<String>,
}

impl Attempt {
    /// Without a mistake yet.
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            files: authority().certificate(Kind::EcdsaP256).clone(),
            listen: SocketAddr::new(unused_host(), TLS_PORT),
            to: "echo:".to_owned(),
            wrapper: Vec::new(),
        }
    }

    /// Starts it after this shell command, in a mount namespace of its own. Returns false if that is not possible here.
    fn run_after(&mut self, command: &str) -> bool {
        if !tools::present(&["unshare"]) {
            return false;
        }
        if !rustix::process::geteuid().is_root() {
            tools::unavailable("a mount namespace needs root");
            return false;
        }
        let unshare = [tools::path("unshare"), "--mount".into()];
        let command = format!("{command} && exec \"$@\"");
        let shell = ["sh", "-c", &command, "sh"].map(str::to_owned);
        self.wrapper = unshare.into_iter().chain(shell).collect();
        true
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let file = self.folder.path().join(name);
        std::fs::write(&file, content).expect("a file in the test's folder");
        file
    }

    fn start(&self, arguments: &[&str]) -> Process {
        let program = tools::dormouse().to_string_lossy().into_owned();
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        let wrapper = self.wrapper.iter().cloned();
        let command: Vec<_> = wrapper.chain([program]).chain(arguments).collect();
        Process::start("dormouse", &command, self.folder.path())
    }

    /// Expects an exit with this status, and all these words, ignoring case.
    fn refused(&self, arguments: &[&str], status: i32, says: &[&str]) {
        let mut process = self.start(arguments);
        let ended = process.wait_for_end(PATIENCE);
        let log = process.log();
        assert_eq!(
            ended.code(),
            Some(status),
            "exit status of dormouse {}:\n{log}",
            arguments.join(" ")
        );
        for text in says {
            assert!(
                log.to_lowercase().contains(&text.to_lowercase()),
                "expected dormouse {} to say {text:?}, it said:\n{log}",
                arguments.join(" ")
            );
        }
    }

    fn serve_flags(&self) -> Vec<String> {
        let path = |file: &Path| file.to_string_lossy().into_owned();
        let words = [
            "serve",
            "--listen",
            &self.listen.to_string(),
            "--to",
            &self.to,
        ];
        let mut flags: Vec<_> = words.map(str::to_owned).to_vec();
        flags.extend(["--cert".to_owned(), path(&self.files.cert)]);
        flags.extend(["--key".to_owned(), path(&self.files.key)]);
        flags
    }

    /// Expects `serve` to reject these files.
    fn files_refused(&self, cert: &Path, key: &Path, says: &[&str]) {
        let mut attempt = Self::new();
        attempt.files.cert = cert.to_owned();
        attempt.files.key = key.to_owned();
        let file = attempt.write("dormouse.toml", attempt.toml(""));
        attempt.refused(
            &["check", "-c", &file.to_string_lossy()],
            MISCONFIGURED,
            says,
        );
        attempt.serve_refused(MISCONFIGURED, says);
    }

    /// Expects `serve` to exit with this status, and all these words.
    fn serve_refused(&self, status: i32, says: &[&str]) {
        let flags = self.serve_flags();
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        self.refused(&flags, status, says);
    }

    /// Starts `serve` and waits until it is ready.
    fn serve(&self) -> Process {
        let flags = self.serve_flags();
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let mut process = self.start(&flags);
        process.wait_for_line("ready", PATIENCE);
        process
    }

    /// A complete file, with these lines before the route.
    fn toml(&self, lines: &str) -> String {
        format!(
            "{lines}\n[[route]]\nlisten = [\"{}\"]\nto = \"echo:\"\n\
             certificates = [{{ cert = \"{}\", key = \"{}\" }}]\n",
            self.listen,
            self.files.cert.display(),
            self.files.key.display()
        )
    }

    /// Expects `check` and `serve` to reject this file.
    fn toml_refused(&self, toml: &str, says: &[&str]) {
        let file = self.write("wrong.toml", toml);
        let file = file.to_string_lossy();
        for command in ["check", "serve"] {
            self.refused(&[command, "-c", &file], MISCONFIGURED, says);
        }
    }
}

/// The main task, from flags.
#[test]
fn serves_from_flags() {
    requires!(Can::BeDormouse);
    let mut attempt = Attempt::new();
    let backend = Backend::tcp(SocketAddr::new(unused_host(), 0));
    attempt.to = backend.address().to_string();
    for kind in [Kind::EcdsaP256, Kind::Rsa2048] {
        attempt.files = authority().certificate(kind).clone();
        attempt.listen = SocketAddr::new(unused_host(), TLS_PORT);
        let _process = attempt.serve();
        Peer::echoing(attempt.listen);
    }
}

/// A file with certificate and key needs only one flag.
#[test]
fn serves_a_certificate_that_has_its_key_in_the_same_file() {
    requires!(Can::BeDormouse);
    let attempt = Attempt::new();
    let read = |file: &Path| std::fs::read_to_string(file).expect("a PEM file");
    let both = attempt.write(
        "both.pem",
        read(&attempt.files.cert) + &read(&attempt.files.key),
    );
    let listen = attempt.listen.to_string();
    let flags = ["serve", "--listen", &listen, "--to", "echo:", "--cert"];
    let mut process = attempt.start(&[&flags[..], &[&both.display().to_string()]].concat());
    process.wait_for_line("ready", PATIENCE);
    let mut peer = Peer::connect(attempt.listen).expect("a connection");
    peer.echo().expect("an echo");
    // Without a key in it, the message says so.
    let cert = attempt.files.cert.display().to_string();
    let other = SocketAddr::new(unused_host(), TLS_PORT).to_string();
    let flags = [
        "serve", "--listen", &other, "--to", "echo:", "--cert", &cert,
    ];
    attempt.refused(&flags, MISCONFIGURED, &[&cert, "has no key"]);
}

/// `serve FILE` works like `check FILE` and `serve -c FILE`, but not with both forms.
#[test]
fn serves_a_file_named_like_any_other() {
    requires!(Can::BeDormouse);
    let attempt = Attempt::new();
    let listen = attempt.listen.to_string();
    let text = format!("[[route]]\nlisten = \"{listen}\"\nto = \"echo:\"\nself_signed = \"x\"\n");
    let file = attempt.write("dormouse.toml", text).display().to_string();
    let mut process = attempt.start(&["serve", &file, "--admin", "none"]);
    process.wait_for_line("ready", PATIENCE);
    let said = ["cannot be used with"];
    attempt.refused(&["serve", &file, "-c", &file], MISCONFIGURED, &said);
}

/// For tests: a self-signed certificate, generated at the start.
#[test]
fn serves_self_signed() {
    requires!(Can::BeDormouse, "openssl");
    let attempt = Attempt::new();
    let listen = attempt.listen.to_string();
    let name = "sleepy.example";
    let flags = [
        "serve",
        "--listen",
        &listen,
        "--to",
        "echo:",
        "--self-signed",
        name,
    ];
    let mut process = attempt.start(&flags);
    process.wait_for_line("ready", PATIENCE);
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &listen, "-servername", name])
        .args(["-verify_hostname", name])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("openssl starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("New, TLSv1.3") && said.contains("self-signed certificate"),
        "expected a handshake with a self-signed certificate:\n{said}"
    );
    assert!(
        !said.contains("hostname mismatch"),
        "expected a certificate for {name}:\n{said}"
    );
}

#[test]
fn a_missing_file() {
    requires!(Can::BeDormouse);
    let attempt = Attempt::new();
    let missing = Path::new("/nowhere/at/all.pem");
    attempt.files_refused(
        missing,
        &attempt.files.key,
        &["/nowhere/at/all.pem", "No such file"],
    );
    attempt.files_refused(
        &attempt.files.cert,
        missing,
        &["/nowhere/at/all.pem", "No such file"],
    );
}

/// An unreadable file, for a process without the privilege to read it anyway.
#[test]
fn an_unreadable_file() {
    requires!(Can::BeDormouse);
    let mut attempt = Attempt::new();
    if rustix::process::geteuid().is_root() {
        requires!("setpriv");
        let drop = "--bounding-set=-dac_override,-dac_read_search";
        attempt.wrapper = vec![tools::path("setpriv"), drop.into()];
    }
    let key = std::fs::read(&attempt.files.key).expect("a readable PEM file");
    attempt.files.key = attempt.write("secret.key", key);
    std::fs::set_permissions(&attempt.files.key, Permissions::from_mode(0o000))
        .expect("the permissions removed");
    attempt.serve_refused(MISCONFIGURED, &["secret.key", "permission denied"]);
}

#[test]
fn a_folder_instead_of_a_file() {
    requires!(Can::BeDormouse);
    let attempt = Attempt::new();
    let folder = attempt.folder.path();
    let name = folder.to_string_lossy();
    attempt.files_refused(folder, &attempt.files.key, &[&name, "directory"]);
    attempt.files_refused(&attempt.files.cert, folder, &[&name, "directory"]);
}

#[test]
fn files_that_are_not_pem() {
    requires!(Can::BeDormouse);
    let attempt = Attempt::new();
    let wrong = attempt.write("wrong.pem", [0x30, 0x82, 0x01, 0x0a, 0xff, 0x00]);
    attempt.files_refused(&wrong, &attempt.files.key, &["wrong.pem", "PEM"]);
    attempt.files_refused(&attempt.files.cert, &wrong, &["wrong.pem", "PEM"]);
    let empty = attempt.write("empty.pem", "");
    attempt.files_refused(&empty, &attempt.files.key, &["empty.pem", "empty"]);
}

#[test]
fn swapped_files() {
    requires!(Can::BeDormouse);
    let attempt = Attempt::new();
    let Files { cert, key, .. } = &attempt.files;
    attempt.files_refused(key, cert, &["swapped", &key.to_string_lossy()]);
}

#[test]
fn an_encrypted_key() {
    requires!(Can::BeDormouse, "openssl");
    let attempt = Attempt::new();
    let encrypted = attempt.folder.path().join("encrypted.key");
    let made = Command::new("openssl")
        .args([
            "pkcs8",
            "-topk8",
            "-v2",
            "aes-256-cbc",
            "-passout",
            "pass:secret",
            "-in",
        ])
        .arg(&attempt.files.key)
        .arg("-out")
        .arg(&encrypted)
        .status()
        .expect("openssl starts");
    assert!(made.success(), "openssl pkcs8: {made}");
    attempt.files_refused(
        &attempt.files.cert,
        &encrypted,
        &["encrypted.key", "encrypted with"],
    );
}

#[test]
fn a_key_of_another_certificate() {
    requires!(Can::BeDormouse);
    let attempt = Attempt::new();
    let other = authority().give_out("other", Kind::EcdsaP256, 2035, attempt.folder.path());
    let cert = attempt.files.cert.to_string_lossy();
    attempt.files_refused(
        &attempt.files.cert,
        &other.key,
        &["other.key", "belong", &cert],
    );
    let rsa = authority().certificate(Kind::Rsa2048);
    attempt.files_refused(&attempt.files.cert, &rsa.key, &["belong", &cert]);
}

/// An expired certificate causes a warning, but does not prevent the start.
#[test]
fn an_expired_certificate() {
    requires!(Can::BeDormouse);
    let mut attempt = Attempt::new();
    attempt.files = authority().give_out("old", Kind::EcdsaP256, 2021, attempt.folder.path());
    let mut process = attempt.serve();
    let warning = process.wait_for_line("expired", PATIENCE);
    assert!(
        warning.contains("old.pem"),
        "expected the file's name: {warning}"
    );
    let error = match Peer::connect(attempt.listen) {
        Ok(_) => panic!("a client that verifies has taken an expired certificate"),
        Err(error) => error.to_string(),
    };
    assert!(
        error.contains("xpired"),
        "expected a handshake up to the certificate: {error}"
    );
}

#[test]
fn misspelt_keys() {
    requires!(Can::BeDormouse);
    let attempt = Attempt::new();
    let toml = attempt.toml("# a comment\nhandshake_timout = \"5s\"");
    attempt.toml_refused(
        &toml,
        &["wrong.toml:2", "handshake_timout", "handshake_timeout"],
    );
    let toml = attempt.toml("").replace("certificates =", "certificate =");
    attempt.toml_refused(&toml, &["wrong.toml:5", "`certificate`", "`certificates`"]);
}

/// All mistakes are reported at once.
#[test]
fn several_mistakes() {
    requires!(Can::BeDormouse);
    let attempt = Attempt::new();
    let toml = attempt.toml("workers = 0\nidle_timeout = \"soon\"\nbacklogg = 5");
    let all = [
        "wrong.toml:1",
        "workers",
        "wrong.toml:2",
        "soon",
        "wrong.toml:3",
        "`backlog`",
    ];
    attempt.toml_refused(&toml, &all);
    attempt.toml_refused("[[route]\n", &["wrong.toml:1"]);
    attempt.toml_refused("", &["wrong.toml", "route"]);
}

#[test]
fn an_address_in_use() {
    requires!(Can::BeDormouse);
    let attempt = Attempt::new();
    let _taken = TcpListener::bind(attempt.listen).expect("an unused address");
    let address = attempt.listen.to_string();
    attempt.serve_refused(REFUSED_BY_SYSTEM, &[&address, "in use"]);
}

/// `check` finds what prevents a unix listener, too.
#[test]
fn a_path_without_room_for_a_unix_listener() {
    requires!(Can::BeDormouse);
    let attempt = Attempt::new();
    attempt.write("not-a-socket", "");
    let wrongs = [
        ("missing/plain.sock", MISCONFIGURED, "no such directory"),
        ("not-a-socket", REFUSED_BY_SYSTEM, "not a socket"),
    ];
    for (path, status, says) in wrongs {
        let path = attempt.folder.path().join(path);
        let listen = format!("listen = \"unix:{}\"", path.display());
        let toml = format!("[[originate]]\n{listen}\nto = \"127.0.0.1:1\"\n");
        let file = attempt.write("plain.toml", toml);
        let file = file.to_string_lossy();
        for command in ["check", "serve"] {
            let says = [says, "plain.toml:2", &listen];
            attempt.refused(&[command, "-c", &file], status, &says);
        }
    }
}

#[test]
fn an_address_of_another_machine() {
    requires!(Can::BeDormouse);
    let mut attempt = Attempt::new();
    // TEST-NET-1 (RFC 5737), which no machine has.
    attempt.listen = "192.0.2.1:8443".parse().expect("an address");
    attempt.serve_refused(REFUSED_BY_SYSTEM, &["192.0.2.1:8443"]);
}

#[test]
fn a_source_address_of_another_machine() {
    requires!(Can::BeDormouse);
    let mut attempt = Attempt::new();
    attempt.to = "127.0.0.1:80".to_owned();
    let mut flags = attempt.serve_flags();
    flags.extend(["--source-addresses", "192.0.2.1"].map(str::to_owned));
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let says = ["192.0.2.1", "source_addresses", "does not have the address"];
    attempt.refused(&flags, REFUSED_BY_SYSTEM, &says);
}

/// Limits beyond the memory budget are rejected with a table of what each limit costs.
#[test]
fn limits_beyond_the_memory_budget() {
    requires!(Can::BeDormouse);
    let attempt = Attempt::new();
    let mut flags = attempt.serve_flags();
    let limits = ["--memory", "64 MiB", "--max-connections", "30000"];
    flags.extend(limits.map(str::to_owned));
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let says = [
        "--memory",
        "more than memory (64 MiB)",
        "kernel: sockets",
        "maximum cost of each limit",
    ];
    attempt.refused(&flags, MISCONFIGURED, &says);
}

#[test]
fn a_privileged_port() {
    requires!(Can::BeDormouse);
    let mut attempt = Attempt::new();
    let first_free = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    if first_free.is_ok_and(|port| port.trim().parse().unwrap_or(1024) <= 443) {
        tools::unavailable("this machine lets everybody listen on port 443");
        return;
    }
    if rustix::process::geteuid().is_root() {
        requires!("setpriv");
        let drop = [
            "--bounding-set=-net_bind_service",
            "--inh-caps=-net_bind_service",
        ];
        attempt.wrapper = vec![tools::path("setpriv"), drop[0].into(), drop[1].into()];
    }
    attempt.listen.set_port(443);
    // It is found before anything starts.
    attempt.serve_refused(REFUSED_BY_SYSTEM, &["port 443", "privilege"]);
    // For both families it is one mistake.
    let flags = [
        "serve",
        "--listen",
        ":443",
        "--to",
        "echo:",
        "--self-signed",
        "x",
    ];
    attempt.refused(&flags, REFUSED_BY_SYSTEM, &["port 443", "one mistake"]);
}

#[test]
fn contradictory_flags() {
    requires!(Can::BeDormouse);
    let attempt = Attempt::new();
    let listen = attempt.listen.to_string();
    attempt.refused(&["serve"], MISCONFIGURED, &["listen"]);
    attempt.refused(&["serve", "--listen", &listen], MISCONFIGURED, &["to"]);
    attempt.refused(
        &["serve", "--listen", &listen, "--to", "echo:"],
        MISCONFIGURED,
        &["cert"],
    );
    attempt.refused(&["serve", "--listn", &listen], MISCONFIGURED, &["--listen"]);
    attempt.refused(
        &[
            "serve",
            "--listen",
            "nonsense",
            "--to",
            "echo:",
            "--self-signed",
            "x",
        ],
        MISCONFIGURED,
        &["nonsense"],
    );
}

#[test]
fn a_machine_without_proc() {
    requires!(Can::BeDormouse);
    let mut attempt = Attempt::new();
    if !attempt.run_after("mount -t tmpfs none /proc") {
        return;
    }
    let says = [
        "the file system /proc is missing",
        "mount -t proc proc /proc",
    ];
    attempt.serve_refused(REFUSED_BY_SYSTEM, &says);
}

/// The program serves with keys that it cannot save.
#[test]
fn a_full_disk_under_the_ticket_keys() {
    requires!(Can::BeDormouse);
    let mut attempt = Attempt::new();
    let full = attempt.folder.path().join("full");
    std::fs::create_dir(&full).expect("a directory");
    let secret = attempt.write("secret", [b's'; 32]);
    std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("its mode");
    let fill = "mount -t tmpfs -o size=4k none {} && printf x > {}/all";
    if !attempt.run_after(&fill.replace("{}", &full.to_string_lossy())) {
        return;
    }
    let file = attempt.write(
        "dormouse.toml",
        attempt.toml(&format!(
            "admin = \"none\"\nticket_keys = \"file:{}/keys\"\nticket_secret_file = \"{}\"",
            full.display(),
            secret.display()
        )),
    );
    let mut process = attempt.start(&["serve", "-c", &file.to_string_lossy()]);
    process.wait_for_line("ready", PATIENCE);
    process.wait_for_line("ticket keys could not be saved", PATIENCE);
}
