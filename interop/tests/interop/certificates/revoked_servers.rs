//! Revoked certificates of servers, behind `connect` and behind `serve` with `backend_tls`, with OpenSSL as the server.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use dormouse_interop::certificates::{Files, Kind, authority};
use dormouse_interop::originator::{Originator, Settings};
use dormouse_interop::process::Process;
use dormouse_interop::scene::{TLS_PORT, unused_host};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rcgen::{
    CertificateParams, CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair, SerialNumber,
};

use super::ocsp::{index, response};
use super::site::{Site, can_run};

const SERIAL: &[u8] = &[0x5e, 0x11, 0x01];

/// An OpenSSL server, and its files.
struct Server {
    address: SocketAddr,
    files: Files,
    folder: tempfile::TempDir,
    process: Option<Process>,
}

impl Server {
    fn new() -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let kind = Kind::EcdsaP256;
        let files = authority().give_out_with("server", kind, folder.path(), |params| {
            params.serial_number = Some(SerialNumber::from_slice(SERIAL));
        });
        let mut server = Server {
            address: SocketAddr::new(unused_host(), TLS_PORT),
            files,
            folder,
            process: None,
        };
        server.start(&[]);
        server
    }

    /// Starts it, again if it runs, with these arguments.
    fn start(&mut self, arguments: &[&str]) {
        drop(self.process.take());
        let (address, openssl) = (self.address.to_string(), tools::path("openssl"));
        let [cert, key] =
            [&self.files.cert, &self.files.key].map(|path| path.to_string_lossy().into_owned());
        let mut command = vec![openssl.as_str(), "s_server", "-accept", &address];
        command.extend(["-cert", &cert, "-key", &key, "-www", "-quiet"]);
        command.extend(arguments);
        let command: Vec<String> = command.into_iter().map(str::to_owned).collect();
        let mut process = Process::start("s_server", &command, self.folder.path());
        wait::until("s_server to listen", PATIENCE, || {
            assert!(process.runs(), "s_server has ended: {}", process.log());
            TcpStream::connect(self.address).ok()
        });
        self.process = Some(process);
    }

    /// Starts it with a response of this state (OpenSSL's letter), valid for some days.
    fn start_stapling(&mut self, state: &str) {
        let folder = self.folder.path();
        let file = folder.join("response.der");
        index(folder, state, SERIAL);
        response(folder, SERIAL, &file);
        let file = file.to_string_lossy().into_owned();
        self.start(&["-status_file", &file]);
    }
}

/// Whether a request over a plain connection to this address is answered by the server.
fn answers(address: SocketAddr) -> bool {
    let mut tcp = TcpStream::connect(address).expect("connect listens");
    let _ = tcp.write_all(b"GET / HTTP/1.0\r\n\r\n");
    let mut answer = Vec::new();
    let _ = tcp.read_to_end(&mut answer);
    answer.windows(5).any(|part| part == b" 200 ")
}

fn write_list(folder: &Path, serials: &[&[u8]]) {
    let serials: Vec<Vec<u8>> = serials.iter().map(|serial| serial.to_vec()).collect();
    let list = authority().revocation_list(&serials);
    fs::write(folder.join("list.new"), list).expect("written");
    fs::rename(folder.join("list.new"), folder.join("list.pem")).expect("renamed");
}

/// A session of a server that was revoked is not resumed, and the full handshake that follows refuses the server.
#[test]
fn connect_drops_the_sessions_of_a_revoked_server() {
    requires!(can_run());
    let server = Server::new();
    write_list(server.folder.path(), &[]);
    let list = server.folder.path().join("list.pem");
    let settings = Settings::new(&[server.address])
        .line(&format!("crl = {:?}", list.display().to_string()))
        .top("reload_certificates = \"100ms\"");
    let connect = Originator::start(&settings);
    assert!(answers(connect.address) && answers(connect.address));
    wait::until_true("a resumed handshake", || connect.handshakes() == (1, 1));
    write_list(server.folder.path(), &[&[0x77], SERIAL]);
    let is_refused = || (!answers(connect.address)).then_some(());
    wait::until("the server to be refused", PATIENCE, is_refused);
    connect.process.logged("was revoked", 1);
    let (full, resumed) = connect.handshakes();
    assert!(!answers(connect.address));
    assert_eq!(connect.handshakes(), (full, resumed));
    // A list that is not one is refused, and the former stays in use.
    fs::write(&list, "no list\n").expect("written");
    connect.process.logged("list.pem", 1);
    assert!(!answers(connect.address));
    // The server gets its certificate back.
    write_list(server.folder.path(), &[]);
    let is_back = || answers(connect.address).then_some(());
    wait::until("the server to be back", PATIENCE, is_back);
}

/// A list of another authority: the server's status is not known.
#[test]
fn connect_refuses_a_server_without_a_list() {
    requires!(can_run());
    let server = Server::new();
    let other = CertificateParams::default();
    let key = KeyPair::generate().expect("a key");
    let other = CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2024, 1, 2),
        next_update: rcgen::date_time_ymd(2035, 12, 31),
        crl_number: SerialNumber::from(1_u64),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: KeyIdMethod::Sha256,
    }
    .signed_by(&Issuer::new(other, key))
    .and_then(|list| list.pem())
    .expect("a revocation list");
    let list = server.folder.path().join("other.pem");
    fs::write(&list, other).expect("written");
    let settings = Settings::new(&[server.address]);
    let line = format!("crl = {:?}", list.display().to_string());
    let connect = Originator::start(&settings.line(&line));
    assert!(!answers(connect.address));
    connect.process.logged("no revocation list covers it", 1);
}

#[test]
fn connect_judges_stapled_responses() {
    requires!(can_run());
    let mut server = Server::new();
    let start = |line: &str| {
        let settings = Settings::new(&[server.address]).line("resume_uses = 0");
        Originator::start(&settings.line(line))
    };
    let optional = start("");
    let required = start("ocsp = \"required\"");
    let says = |connect: &Originator, words: &str| {
        connect.process.logged(words, 1);
    };
    assert!(answers(optional.address) && !answers(required.address));
    says(
        &required,
        "the server stapled no OCSP response, and one is required",
    );
    says(&required, "bad_certificate_status_response");
    server.start_stapling("V");
    assert!(answers(optional.address) && answers(required.address));
    server.start_stapling("R");
    assert!(!answers(optional.address) && !answers(required.address));
    // The other one has logged a failure just now, and counts this one.
    says(&optional, "was revoked");
    says(&optional, "certificate_revoked");
}

/// With `backend_tls`, for clients' connections and for health checks.
#[test]
fn serve_refuses_a_revoked_backend() {
    requires!(can_run());
    let server = Server::new();
    write_list(server.folder.path(), &[]);
    let (trust, own) = (
        authority().trust(),
        authority().certificate(Kind::EcdsaP256),
    );
    let routes = format!(
        "reload_certificates = '100ms'\n[[route]]\nlisten = 'LISTEN'\nto = '{}'\ncertificates = '{}'\n\
         backend_tls = true\nbackend_ca = '{}'\nbackend_name = 'localhost'\nbackend_crl = '{}/list.pem'\n\
         check = 'tls'\ncheck_every = '200ms'\ncheck_fall = 1\nbackend_down = 'reset'\n",
        server.address,
        own.both.display(),
        trust.display(),
        server.folder.path().display()
    );
    let site = Site::new(&routes, |_| {});
    let asks = || site.s_client_asking("GET / HTTP/1.0\r\n\r\n");
    let is_served = || asks().contains(" 200 ").then_some(());
    wait::until("an answer", PATIENCE, is_served);
    write_list(server.folder.path(), &[SERIAL]);
    let is_down = || {
        let lines = site.process.lines_with("backend is unhealthy");
        let is_named = lines.iter().any(|line| line.contains("was revoked"));
        is_named.then_some(())
    };
    wait::until("the check to find it", PATIENCE, is_down);
    assert!(!asks().contains(" 200 "));
    write_list(server.folder.path(), &[]);
    wait::until("an answer again", PATIENCE, is_served);
}
