//! Migration: a program answers some requests; then dormouse, with the configuration that `dormouse import`
//! makes of that program's file, gives the same answers at the same address.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::peer::{self, Peer, connect_from};
use dormouse_interop::process::Process;
use dormouse_interop::requirement::Root;
use dormouse_interop::scene::{self, PLAIN_PORT, TLS_PORT, applies, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};

/// Address of the client.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 8, 5));
const NAMES: [&str; 3] = ["a.example", "b.example", "c.example"];

/// Answers with its name, and with the client's address if a header announces it.
fn backend(name: &'static str, with_header: bool) -> SocketAddr {
    let listener = TcpListener::bind((unused_host(), 0)).expect("an address of this test");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            // A port check sends nothing.
            let _ = answer(tcp, name, with_header);
        }
    });
    address
}

fn answer(mut tcp: TcpStream, name: &str, with_header: bool) -> std::io::Result<()> {
    let mut line = String::new();
    if with_header {
        BufReader::new(&tcp).read_line(&mut line)?;
    }
    // PROXY TCP4 127.9.8.5 …
    let client = line.split(' ').nth(2).unwrap_or("nobody");
    tcp.write_all(format!("{name} {client}").as_bytes())
}

/// The answers to clients with these names.
fn answers(at: SocketAddr) -> Vec<String> {
    let answer = |name: &&str| {
        let tcp = connect_from(CLIENT, at);
        let mut peer =
            Peer::over(tcp, peer::client_for(peer::config(), name)).expect("a handshake");
        // stunnel and nginx sometimes close without close_notify.
        let heard = peer.receive_all().unwrap_or_default();
        String::from_utf8_lossy(&heard).into_owned()
    };
    NAMES.iter().map(answer).collect()
}

pub(super) fn dormouse(arguments: &[&str]) -> Output {
    Command::new(tools::dormouse())
        .args(arguments)
        .output()
        .expect("it runs")
}

/// A program with a configuration, at an address.
pub(super) struct FormerProgram {
    /// Name of the program, also for `dormouse import`.
    pub(super) kind: &'static str,
    pub(super) text: String,
    pub(super) at: SocketAddr,
}

impl FormerProgram {
    /// Starts it with this file, and waits until it listens at `at`.
    fn start(&self, file: &str, at: SocketAddr, folder: &Path) -> Process {
        let words: &[&str] = match self.kind {
            "haproxy" => &["-db", "-f", file],
            "nginx" => &["-e", "stderr", "-c", file],
            "hitch" => &["--config", file],
            _ => &[file],
        };
        let mut command = vec![tools::path(self.kind)];
        command.extend(words.iter().map(ToString::to_string));
        let process = Process::start(self.kind, &command, folder);
        wait::until_listening(self.kind, at);
        process
    }
}

/// Asks the program, migrates, and asks again.
fn moves(old: &FormerProgram, want: [&str; 3], folder: &Path) {
    migrates_with(old, &|| assert_eq!(answers(old.at), want), folder);
}

/// The same with another question, which panics on a wrong answer. Returns the process that has taken the program's
/// place.
pub(super) fn migrates_with(old: &FormerProgram, ask: &dyn Fn(), folder: &Path) -> Process {
    let file = folder.join("old.conf").display().to_string();
    std::fs::write(&file, &old.text).expect("written");
    let process = old.start(&file, old.at, folder);
    ask();
    drop(process);

    let imported = dormouse(&["import", old.kind, &file]);
    let said = String::from_utf8_lossy(&imported.stderr);
    assert!(imported.status.success(), "{said}");
    assert!(!said.contains("to do before"), "{said}");
    let page = String::from_utf8_lossy(&imported.stdout);
    let ours = ours(&page, folder);
    let checked = dormouse(&["check", &ours]);
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}\n{page}");
    let process = serve(ours, folder);
    ask();
    process
}

/// Writes the imported configuration, without the steps to do: somebody has decided.
pub(super) fn ours(page: &str, folder: &Path) -> String {
    let mut lines = Vec::new();
    let mut is_step = false;
    for line in page.lines() {
        is_step |= line.starts_with("todo = [");
        if !is_step && !line.starts_with("todo = ") {
            lines.push(line);
        }
        is_step &= line != "]";
    }
    let file = folder.join("dormouse.toml").display().to_string();
    // Without an admin path of its own, each instance would try the default one.
    let text = format!("admin = \"none\"\n{}\n", lines.join("\n"));
    std::fs::write(&file, text).expect("written");
    file
}

fn serve(file: String, folder: &Path) -> Process {
    let binary = tools::dormouse().display().to_string();
    let command = [binary, "serve".into(), "-c".into(), file];
    let mut process = Process::start("dormouse", &command, folder);
    process.wait_for_line("ready", PATIENCE);
    process
}

/// A certificate for all the names, with its key in the same file.
fn pem(folder: &Path) -> String {
    let files = authority().give_out_for("a.example", Kind::EcdsaP256, &NAMES, folder);
    files.both.display().to_string()
}

pub(super) fn ready(program: &str) -> bool {
    applies(Can::BeDormouse) && tools::present(&[program])
}

#[test]
fn from_haproxy() {
    requires!(ready("haproxy"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (pem, at) = (pem(folder.path()), SocketAddr::new(unused_host(), TLS_PORT));
    let (a, b, c) = (backend("A", true), backend("B", false), backend("C", true));
    let map = folder.path().join("names").display().to_string();
    std::fs::write(&map, "# names\nb.example b\nc.example nowhere\n").expect("written");
    let text = format!(
        "global
    maxconn 500
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend f
    bind {at} ssl crt {pem}
    tcp-request connection reject if !{{ src 127.0.0.0/8 }}
    acl is_a ssl_fc_sni -i A.example
    use_backend a if is_a
    use_backend %[ssl_fc_sni,lower,map({map})]
    default_backend c
backend a
    server a {a} send-proxy
backend b
    server b {b} check
backend c
    server c {c} send-proxy
"
    );
    let old = FormerProgram {
        kind: "haproxy",
        text,
        at,
    };
    moves(
        &old,
        ["A 127.9.8.5", "B nobody", "C 127.9.8.5"],
        folder.path(),
    );
}

#[test]
fn from_nginx() {
    requires!(ready("nginx"), Root);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (pem, at) = (pem(folder.path()), SocketAddr::new(unused_host(), TLS_PORT));
    let (a, b) = (backend("A", true), backend("B", true));
    std::fs::write(
        folder.path().join("names.conf"),
        format!("a.example {a};\n"),
    )
    .expect("written");
    let here = folder.path().display();
    let text = format!(
        "load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off; user root; pid {here}/nginx.pid; error_log stderr; worker_processes 1;
events {{ }}
stream {{
    map $ssl_server_name $to {{
        include names.conf;
        default others;
    }}
    upstream others {{ least_conn; server {b} weight=2; }}
    server {{
        listen {at} ssl;
        ssl_certificate {pem};
        ssl_certificate_key {pem};
        ssl_protocols TLSv1.2 TLSv1.3;
        proxy_protocol on;
        proxy_pass $to;
        allow 127.0.0.0/8;
        deny all;
    }}
}}
"
    );
    let old = FormerProgram {
        kind: "nginx",
        text,
        at,
    };
    moves(
        &old,
        ["A 127.9.8.5", "B 127.9.8.5", "B 127.9.8.5"],
        folder.path(),
    );
}

#[test]
fn from_hitch() {
    requires!(ready("hitch"), Root);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (pem, at) = (pem(folder.path()), SocketAddr::new(unused_host(), TLS_PORT));
    let b = backend("B", true);
    let text = format!(
        "frontend = {{\n host = \"{}\"\n port = \"{}\"\n}}
backend = \"[{}]:{}\"
workers = 1
user = \"root\"
group = \"root\"
write-proxy-v1 = on
ocsp-dir = \"\"
alpn-protos = \"http/1.1\"
pem-file = \"{pem}\"
",
        at.ip(),
        at.port(),
        b.ip(),
        b.port()
    );
    let old = FormerProgram {
        kind: "hitch",
        text,
        at,
    };
    moves(
        &old,
        ["B 127.9.8.5", "B 127.9.8.5", "B 127.9.8.5"],
        folder.path(),
    );
}

#[test]
fn from_stunnel() {
    requires!(ready("stunnel"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (pem, at) = (pem(folder.path()), SocketAddr::new(unused_host(), TLS_PORT));
    let (a, b) = (backend("A", false), backend("B", false));
    let text = format!(
        "foreground = yes
pid = {}/stunnel.pid
cert = {pem}
TIMEOUTidle = 600
[tls]
accept = {at}
connect = {b}
[tls-a]
sni = tls:a.example
connect = {a}
",
        folder.path().display()
    );
    let old = FormerProgram {
        kind: "stunnel",
        text,
        at,
    };
    moves(&old, ["A nobody", "B nobody", "B nobody"], folder.path());
}

/// Pass-through by the name in the ClientHello: the backends have the certificates.
#[test]
fn from_nginx_with_pass_through() {
    requires!(ready("nginx"), Root);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = authority().give_out_for("a.example", Kind::EcdsaP256, &NAMES, folder.path());
    let server = |name: &'static str| {
        let listen = SocketAddr::new(unused_host(), TLS_PORT);
        let mut settings = Settings::new(listen, Target::Tcp(backend(name, false)));
        settings.certificate = files.clone();
        let here = folder.path().join(name);
        std::fs::create_dir(&here).expect("a folder");
        (scene::start(Terminator::Dormouse, &settings, &here), listen)
    };
    let ((_a, a), (_b, b)) = (server("A"), server("B"));
    let (at, here) = (
        SocketAddr::new(unused_host(), TLS_PORT),
        folder.path().display(),
    );
    let text = format!(
        "load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off; user root; pid {here}/nginx.pid; error_log stderr;
events {{ }}
stream {{
    map $ssl_preread_server_name $to {{
        hostnames;
        a.example {a};
        default {b};
    }}
    server {{ listen {at}; ssl_preread on; proxy_pass $to; }}
}}
"
    );
    let old = FormerProgram {
        kind: "nginx",
        text,
        at,
    };
    moves(&old, ["A nobody", "B nobody", "B nobody"], folder.path());
}

/// Clients with a certificate are accepted, others are not.
#[test]
fn from_haproxy_with_client_certificates() {
    requires!(ready("haproxy"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (pem, at) = (pem(folder.path()), SocketAddr::new(unused_host(), TLS_PORT));
    let (ca, a) = (
        authority().trust().display().to_string(),
        backend("A", false),
    );
    let text = format!(
        "defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
listen l
    bind {at} ssl crt {pem} verify required ca-file {ca}
    server a {a}
"
    );
    let old = FormerProgram {
        kind: "haproxy",
        text,
        at,
    };
    let mine = authority().certificate(Kind::EcdsaP256);
    let ask = || {
        let both = [peer::config_showing(mine), peer::config()].map(|config| {
            let mut peer = Peer::over(
                connect_from(CLIENT, at),
                peer::client_for(config, "a.example"),
            )
            .ok()?;
            let heard = peer.receive_all().ok()?;
            Some(String::from_utf8_lossy(&heard).into_owned()).filter(|heard| !heard.is_empty())
        });
        assert_eq!(both, [Some("A nobody".to_owned()), None]);
    };
    migrates_with(&old, &ask, folder.path());
}

/// A stunnel client becomes an `[[originate]]`.
#[test]
fn from_a_client_of_stunnel() {
    requires!(ready("stunnel"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = SocketAddr::new(unused_host(), TLS_PORT);
    let settings = Settings::new(server, Target::Echo);
    let inner = folder.path().join("server");
    std::fs::create_dir(&inner).expect("a folder");
    let _server = scene::start(Terminator::Dormouse, &settings, &inner);
    let at = SocketAddr::new(unused_host(), PLAIN_PORT);
    let text = format!(
        "foreground = yes
pid = {}/stunnel.pid
[echo]
client = yes
accept = {at}
connect = {server}
verifyChain = yes
CAfile = {}
checkHost = localhost
sni = localhost
",
        folder.path().display(),
        authority().trust().display()
    );
    let old = FormerProgram {
        kind: "stunnel",
        text,
        at,
    };
    let ask = || {
        let mut tcp = TcpStream::connect(at).expect("connected");
        tcp.write_all(b"hello").expect("sent");
        let mut heard = [0; 5];
        tcp.read_exact(&mut heard).expect("an echo");
        assert_eq!(&heard, b"hello");
    };
    migrates_with(&old, &ask, folder.path());
}

/// A program that processes HTTP requests stays behind dormouse, as the result says: it still knows the
/// client's address, the port, and with HAProxy HTTP/2.
fn stays_behind(
    old: &FormerProgram,
    behind: impl Fn(SocketAddr) -> String,
    folder: &Path,
) -> String {
    let file = folder.join("old.conf").display().to_string();
    std::fs::write(&file, &old.text).expect("written");
    let imported = dormouse(&["import", old.kind, &file]);
    let page = String::from_utf8_lossy(&imported.stdout).into_owned();
    assert!(
        page.contains("\ntodo = ") && page.contains("stays behind"),
        "{page}"
    );
    let at = SocketAddr::new(unused_host(), PLAIN_PORT);
    let page = page.replace("127.0.0.1:8080", &at.to_string());
    std::fs::write(&file, behind(at)).expect("written");
    let _behind = old.start(&file, at, folder);
    let _process = serve(ours(&page, folder), folder);
    let ca = authority().trust().display().to_string();
    let to = format!("a.example:443:{}", old.at);
    let from = CLIENT.to_string();
    let words = [
        "-sS",
        "--cacert",
        &ca,
        "--interface",
        &from,
        "--connect-to",
        &to,
        "https://a.example/",
    ];
    let output = Command::new(tools::path("curl"))
        .args(words)
        .output()
        .expect("it runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn haproxy_stays_behind_for_requests() {
    requires!(ready("haproxy"), "curl");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (pem, at) = (pem(folder.path()), SocketAddr::new(unused_host(), TLS_PORT));
    let with = |bind: String| {
        format!(
            "defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend f
    bind {bind}
    http-request return status 200 content-type text/plain lf-string \"%[src] %[dst_port] %[req.ver]\"
"
        )
    };
    let text = with(format!("{at} ssl crt {pem} alpn h2,http/1.1"));
    let old = FormerProgram {
        kind: "haproxy",
        text,
        at,
    };
    let said = stays_behind(&old, |at| with(format!("{at} accept-proxy")), folder.path());
    assert_eq!(said, "127.9.8.5 8443 2.0");
}

#[test]
fn nginx_stays_behind_for_requests() {
    requires!(ready("nginx"), "curl", Root);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (pem, at) = (pem(folder.path()), SocketAddr::new(unused_host(), TLS_PORT));
    let here = folder.path().display();
    let with = |lines: String| {
        format!(
            "daemon off; user root; pid {here}/nginx.pid; error_log stderr;
events {{ }}
http {{
    access_log off;
    server {{
        {lines}
        location / {{ return 200 \"$remote_addr $proxy_protocol_server_port\"; }}
    }}
}}
"
        )
    };
    let text = with(format!(
        "listen {at} ssl; ssl_certificate {pem}; ssl_certificate_key {pem};"
    ));
    let old = FormerProgram {
        kind: "nginx",
        text,
        at,
    };
    let behind = |at: SocketAddr| {
        with(format!(
            "listen {at} proxy_protocol; set_real_ip_from 127.0.0.0/8; real_ip_header proxy_protocol;"
        ))
    };
    assert_eq!(stays_behind(&old, behind, folder.path()), "127.9.8.5 8443");
}

/// The configurations shipped with packages are understood: the file, and whether it has anything to import.
#[test]
fn shipped_configurations_are_understood() {
    requires!(Can::BeDormouse, "hitch", "stunnel", "nginx", "haproxy");
    let shipped = [
        (
            "hitch",
            "/usr/share/doc/hitch/examples/hitch.conf.example",
            true,
        ),
        (
            "stunnel",
            "/usr/share/doc/stunnel4/examples/stunnel.conf-sample",
            true,
        ),
        (
            "haproxy",
            "/usr/share/doc/haproxy/examples/basic-config-edge.cfg",
            true,
        ),
        (
            "haproxy",
            "/usr/share/doc/haproxy/examples/content-sw-sample.cfg",
            false,
        ),
        ("haproxy", "/etc/haproxy/haproxy.cfg", false),
        ("nginx", "/etc/nginx/nginx.conf", false),
    ];
    let mut seen = 0;
    for (kind, file, has_tls) in shipped {
        // Small images omit documentation.
        if !Path::new(file).exists() {
            eprintln!("NOT THERE: {file}");
            continue;
        }
        let imported = dormouse(&["import", kind, file]);
        let said = String::from_utf8_lossy(&imported.stderr);
        assert_eq!(imported.status.code() != Some(2), has_tls, "{file}: {said}");
        assert!(
            has_tls || said.contains("no TLS found in this"),
            "{file}: {said}"
        );
        seen += 1;
    }
    // Those in /etc are no documentation.
    assert!(seen >= 2, "only {seen} of these files are here");
}
