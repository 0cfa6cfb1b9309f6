//! `dormouse connect` with foreign TLS servers: it reaches them, and they resume.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::originator::{Originator, Settings};
use dormouse_interop::process::Process;
use dormouse_interop::scene::{TLS_PORT, unused_host};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rcgen::SerialNumber;

const REQUESTS: usize = 6;

/// Fetches a page repeatedly, each time over a new connection: all but the first resume, and the server
/// confirms it with the text `resumed`, if given.
fn all_but_one_resume(server: SocketAddr, lines: &str, resumed: Option<&str>) {
    let settings = Settings::new(&[server]).line(lines);
    let connect = Originator::start(&settings);
    for number in 0..REQUESTS {
        let mut client = connect.client();
        client
            .tcp
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("taken");
        let mut answer = Vec::new();
        client.tcp.read_to_end(&mut answer).expect("a clean end");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.contains(" 200 "), "{answer}");
        if let Some(resumed) = resumed {
            assert_eq!(answer.contains(resumed), number > 0, "{number}: {answer}");
        }
    }
    wait::until_true("every handshake to be in the log", || {
        connect.handshakes() == (1, REQUESTS - 1)
    });
}

/// Starts a server and waits until it listens.
fn serving(name: &str, command: &[String], address: SocketAddr, folder: &Path) -> Process {
    let mut process = Process::start(name, command, folder);
    wait::until(&format!("{name} to listen"), PATIENCE, || {
        assert!(process.runs(), "{name} has ended: {}", process.log());
        TcpStream::connect(address).ok()
    });
    process
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    std::fs::write(&file, text).expect("a file in our own folder");
    file.to_string_lossy().into_owned()
}

/// Both versions, and the suite with the other hash.
#[test]
fn openssl() {
    requires!("openssl");
    let files = authority().certificate(Kind::EcdsaP256);
    for arguments in [
        "-tls1_3",
        "-tls1_3 -ciphersuites TLS_AES_256_GCM_SHA384",
        "-tls1_3 -ciphersuites TLS_CHACHA20_POLY1305_SHA256 -num_tickets 1",
        "-tls1_2",
        "-tls1_2 -no_ticket",
    ] {
        let address = SocketAddr::new(unused_host(), TLS_PORT);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (cert, key) = (files.cert.display(), files.key.display());
        let command = words(&format!(
            "openssl s_server -accept {address} -cert {cert} -key {key} -www -quiet {arguments}"
        ));
        let _server = serving("s_server", &command, address, folder.path());
        all_but_one_resume(address, "", Some("Reused, "));
    }
}

#[test]
fn nginx() {
    requires!("nginx");
    let files = authority().certificate(Kind::Rsa2048);
    for version in ["TLSv1.2", "TLSv1.3"] {
        let address = SocketAddr::new(unused_host(), TLS_PORT);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (cert, key) = (files.cert.display(), files.key.display());
        let at = folder.path().display();
        let config = format!(
            "daemon off; worker_processes 1; pid {at}/pid; error_log stderr;
             events {{}}
             http {{
                 access_log off;
                 client_body_temp_path {at}/a; proxy_temp_path {at}/b; fastcgi_temp_path {at}/c;
                 uwsgi_temp_path {at}/d; scgi_temp_path {at}/e;
                 server {{
                     listen {address} ssl; ssl_protocols {version};
                     ssl_certificate {cert}; ssl_certificate_key {key};
                     location / {{ return 200 \"reused=$ssl_session_reused\"; }}
                 }}
             }}"
        );
        let file = write(folder.path(), "nginx.conf", &config);
        let command = tools::nginx(Path::new(&file));
        let _server = serving("nginx", &command, address, folder.path());
        all_but_one_resume(address, "", Some("reused=r"));
    }
}

#[test]
fn apache() {
    requires!("apache2");
    let files = authority().certificate(Kind::EcdsaP256);
    for version in ["TLSv1.2", "TLSv1.3"] {
        let address = SocketAddr::new(unused_host(), TLS_PORT);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = folder.path().display();
        let mut config = String::new();
        for module in ["mpm_event", "authz_core", "headers", "ssl"] {
            let path = format!("/usr/lib/apache2/modules/mod_{module}.so");
            writeln!(config, "LoadModule {module}_module {path}").expect("a text");
        }
        let (cert, key) = (files.cert.display(), files.key.display());
        write!(
            config,
            "ServerName localhost\nPidFile {at}/pid\nDefaultRuntimeDir {at}\nErrorLog /dev/stderr\n\
             Listen {address}\nStartServers 1\nSSLEngine on\nSSLProtocol -all +{version}\n\
             SSLCertificateFile {cert}\nSSLCertificateKeyFile {key}\nDocumentRoot {at}/html\n\
             <Directory {at}/html>\nRequire all granted\n</Directory>\n\
             Header always set Session \"%{{SSL_SESSION_RESUMED}}s\"\n"
        )
        .expect("a text");
        std::fs::create_dir(folder.path().join("html")).expect("a folder");
        write(&folder.path().join("html"), "index.html", "hello\n");
        let file = write(folder.path(), "apache.conf", &config);
        let run = format!("{} -DFOREGROUND -f {file}", tools::path("apache2"));
        let _server = serving("apache", &words(&run), address, folder.path());
        // Without mod_dir, the file needs its name.
        let connect = Originator::start(&Settings::new(&[address]));
        for number in 0..REQUESTS {
            let mut client = connect.client();
            client
                .tcp
                .write_all(b"GET /index.html HTTP/1.0\r\nHost: localhost\r\n\r\n")
                .expect("taken");
            let mut answer = String::new();
            client.tcp.read_to_string(&mut answer).expect("a clean end");
            assert!(
                answer.contains(" 200 ") && answer.ends_with("hello\n"),
                "{answer}"
            );
            let resumed = answer.contains("Session: Resumed");
            assert_eq!(resumed, number > 0, "{version}, {number}: {answer}");
        }
    }
}

#[test]
fn go() {
    requires!("go");
    let files = authority().certificate(Kind::EcdsaP256);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join("server");
    let built = Command::new(tools::path("go"))
        .arg("build")
        .arg("-o")
        .arg(&program)
        .arg(tools::home().join("servers/server.go"))
        .output()
        .expect("go starts");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let address = SocketAddr::new(unused_host(), TLS_PORT);
    let command = [
        program.to_string_lossy().into_owned(),
        address.to_string(),
        files.cert.to_string_lossy().into_owned(),
        files.key.to_string_lossy().into_owned(),
    ];
    let _server = serving("go", &command, address, folder.path());
    for version in ["1.2", "1.3"] {
        let lines = format!("max_version = {version}");
        all_but_one_resume(address, &lines, Some("resumed=true"));
    }
}

#[test]
fn java() {
    requires!("java", "openssl");
    let files = authority().certificate(Kind::EcdsaP256);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = folder.path().join("store.p12");
    let made = Command::new("openssl")
        .args(["pkcs12", "-export", "-passout", "pass:interop", "-in"])
        .arg(&files.cert)
        .arg("-inkey")
        .arg(&files.key)
        .arg("-out")
        .arg(&store)
        .output()
        .expect("openssl starts");
    assert!(made.status.success(), "{made:?}");
    let address = SocketAddr::new(unused_host(), TLS_PORT);
    let program = tools::home().join("servers/Server.java");
    let command = words(&format!(
        "{} {} {} {} {}",
        tools::java().join(" "),
        program.display(),
        address.ip(),
        address.port(),
        store.display()
    ));
    let _server = serving("java", &command, address, folder.path());
    for version in ["1.2", "1.3"] {
        // The JDK's HTTP server closes without close_notify.
        let lines = format!("max_version = {version}\ntruncation = \"close\"");
        all_but_one_resume(address, &lines, None);
    }
}

/// A client certificate and an ALPN protocol, which a server may require.
#[test]
fn own_certificates_and_protocols() {
    requires!("openssl");
    let files = authority().certificate(Kind::EcdsaP256);
    let (cert, key) = (files.cert.display(), files.key.display());
    let trust = authority().trust();
    let page = |lines: &str| {
        let address = SocketAddr::new(unused_host(), TLS_PORT);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let command = words(&format!(
            "openssl s_server -accept {address} -cert {cert} -key {key} -www -quiet \
             -Verify 1 -verify_return_error -CAfile {} -alpn http/1.1,h2",
            trust.display()
        ));
        let _server = serving("s_server", &command, address, folder.path());
        let connect = Originator::start(&Settings::new(&[address]).line(lines));
        let mut client = connect.client();
        let mut page = String::new();
        let _ = client.tcp.write_all(b"GET / HTTP/1.0\r\n\r\n");
        let read = client.tcp.read_to_string(&mut page).map(|_| page);
        (read, connect.process.log())
    };
    let own = format!("certificates = {{ cert = \"{cert}\", key = \"{key}\" }}");
    let (shown, log) = page(&format!("{own}\nalpn = [\"h2\", \"http/1.1\"]"));
    let shown = shown.expect("a page");
    assert!(shown.contains("Client certificate"), "{shown}");
    assert!(shown.contains("CN=localhost"), "{shown}");
    // The server prefers and chooses it.
    assert!(log.contains("alpn=http/1.1"), "{log}");
    // In TLS 1.3 a client learns only later that its certificate was missing.
    let (refused, _) = page("alpn = \"h2\"");
    assert!(
        refused.as_ref().map_or(true, String::is_empty),
        "{refused:?}"
    );
}

/// A short-lived client certificate is renewed beside the running program, as an agent does.
#[test]
fn a_renewed_certificate_is_shown_without_a_reload() {
    requires!("openssl");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [cert, key] = ["own.pem", "own.key"].map(|name| folder.path().join(name));
    let renew = |serial: &[u8]| {
        let files = authority().give_out_with("next", Kind::EcdsaP256, folder.path(), |params| {
            params.serial_number = Some(SerialNumber::from_slice(serial));
        });
        std::fs::copy(&files.cert, &cert).expect("a file in our own folder");
        std::fs::copy(&files.key, &key).expect("a file in our own folder");
    };
    renew(&[0x4a, 1]);
    let address = SocketAddr::new(unused_host(), TLS_PORT);
    let own = authority().certificate(Kind::EcdsaP256);
    let command = words(&format!(
        "openssl s_server -accept {address} -cert {} -key {} -www -quiet -Verify 1 \
         -verify_return_error -CAfile {}",
        own.cert.display(),
        own.key.display(),
        authority().trust().display()
    ));
    let _server = serving("s_server", &command, address, folder.path());
    let (shown, secret) = (cert.display(), key.display());
    let settings = Settings::new(&[address])
        .top("reload_certificates = \"100ms\"")
        .line(&format!(
            "certificates = {{ cert = \"{shown}\", key = \"{secret}\" }}"
        ));
    let connect = Originator::start(&settings);
    let shows = |serial: &str| {
        let mut client = connect.client();
        let mut page = String::new();
        let _ = client.tcp.write_all(b"GET / HTTP/1.0\r\n\r\n");
        let read = client.tcp.read_to_string(&mut page);
        read.is_ok() && page.contains(serial)
    };
    assert!(shows("(0x4a01)"), "the first certificate");
    renew(&[0x4a, 2]);
    wait::until_true("the second certificate", || shows("(0x4a02)"));
}
