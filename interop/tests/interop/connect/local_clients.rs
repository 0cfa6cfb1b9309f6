//! `dormouse connect`: plain local clients, a TLS server, and faults in between.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;

use dormouse_interop::admin::Admin;
use dormouse_interop::backend::{Backend, Ending};
use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::content::{Total, random};
use dormouse_interop::originator::{Client, Originator, Settings};
use dormouse_interop::process::kill_asleep;
use dormouse_interop::scene::{self, Scene, TLS_PORT, unused_host};
use dormouse_interop::terminator::{self, Target, Terminator};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use dormouse_interop::web::Web;

/// A `dormouse serve` in front of an echo backend: the server of most tests here.
pub(super) fn server() -> Scene {
    server_with(|_| {})
}

fn server_with(change: impl FnOnce(&mut terminator::Settings)) -> Scene {
    let host = unused_host();
    let backend = Backend::tcp(SocketAddr::new(host, scene::PLAIN_PORT));
    let target = Target::Tcp(backend.address());
    let mut settings = terminator::Settings::new(SocketAddr::new(host, TLS_PORT), target);
    change(&mut settings);
    Scene::of(Terminator::Dormouse, backend, &settings)
}

pub(super) fn echoed(connect: &Originator) -> Client {
    let mut client = connect.saying("echo");
    client.echo().expect("an echo");
    client
}

/// Waits until the log has this number of handshakes, and returns them.
fn handshakes(connect: &Originator, sum: usize) -> (usize, usize) {
    wait::until(&format!("{sum} handshakes"), PATIENCE, || {
        let (full, resumed) = connect.handshakes();
        (full + resumed >= sum).then_some((full, resumed))
    })
}

/// Perl's LWP drops its sessions when it closes a connection. Through `connect` it needs none.
#[test]
fn every_agent_of_lwp_gets_a_resumed_handshake() {
    requires!("perl");
    let host = unused_host();
    let web = Web::start(SocketAddr::new(host, scene::PLAIN_PORT));
    let target = Target::Tcp(web.address());
    let settings = terminator::Settings::new(SocketAddr::new(host, TLS_PORT), target);
    let idle = Backend::tcp(SocketAddr::new(host, 0));
    let server = Scene::of(Terminator::Dormouse, idle, &settings);
    let connect = Originator::start(&Settings::new(&[server.address]));
    let program = "use LWP::UserAgent; \
        for (1 .. 8) { LWP::UserAgent->new->get($ARGV[0])->is_success or die }";
    let mut perl = Command::new("perl");
    perl.args([
        "-e",
        program,
        &format!("http://{}/bytes/100", connect.address),
    ]);
    let output = perl.output().expect("perl");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(handshakes(&connect, 8), (1, 7));
}

#[test]
fn all_but_one_per_resume_uses_are_resumed_by_all_workers() {
    resumed_by_all_workers("");
}

#[test]
fn all_but_one_per_resume_uses_are_resumed_by_all_workers_with_tls12() {
    resumed_by_all_workers("max_version = 1.2");
}

fn resumed_by_all_workers(line: &str) {
    let server = server();
    let settings = Settings::new(&[server.address])
        .line("resume_uses = 10")
        .line(line)
        .workers(3);
    let connect = Originator::start(&settings);
    // Some connections stay open, so that another worker gets the next one at times.
    let mut open = Vec::new();
    for _ in 0..33 {
        open.push(echoed(&connect));
        if open.len() > 5 {
            open.remove(0);
        }
    }
    assert_eq!(handshakes(&connect, 33), (3, 30));
}

#[test]
fn sessions_survive_a_restart_and_stay_private() {
    sessions_outlive_a_restart("");
}

#[test]
fn sessions_of_tls12_survive_a_restart() {
    sessions_outlive_a_restart("max_version = 1.2");
}

fn sessions_outlive_a_restart(line: &str) {
    let server = server();
    let settings = Settings::new(&[server.address])
        .line("session_file = \"sessions\"")
        .line(line);
    let mut connect = Originator::start(&settings);
    for _ in 0..5 {
        echoed(&connect);
    }
    assert_eq!(handshakes(&connect, 5), (1, 4));
    connect.restart();
    for _ in 0..5 {
        echoed(&connect);
    }
    assert_eq!(handshakes(&connect, 5), (0, 5));
    let file = connect.folder.path().join("sessions");
    let mode =
        |file: &std::path::Path| file.metadata().expect("metadata").permissions().mode() & 0o777;
    assert_eq!(mode(&file), 0o600);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))
        .expect("a file of the test");
    let refused = Command::new(tools::dormouse())
        .args(["connect", "-c"])
        .arg(connect.folder.path().join("dormouse.toml"))
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("chmod 600"), "{said}");
}

/// Data arrives in both directions, and each direction closes on its own.
#[test]
fn bytes_and_closes_pass_in_both_directions() {
    let server = server();
    let mut connect = Originator::start(&Settings::new(&[server.address]));
    let mut client = connect.saying("download 3000000");
    let mut all = Vec::new();
    client.tcp.read_to_end(&mut all).expect("a clean end");
    client.tcp.shutdown(Shutdown::Write).expect("a shutdown");
    let report = server.backend.report();
    assert_eq!(report.sent, Total::of(&all));
    assert_eq!((all.len(), report.ended), (3_000_000, Ending::Fin));

    let content = random(3_000_000);
    let mut client = connect.saying("halfclose 2000000");
    client.tcp.write_all(&content).expect("a write");
    client.tcp.shutdown(Shutdown::Write).expect("a shutdown");
    let mut all = Vec::new();
    client.tcp.read_to_end(&mut all).expect("a clean end");
    let report = server.backend.report();
    assert_eq!(report.received, Total::of(&content));
    assert_eq!(report.sent, Total::of(&all));

    let path = connect.folder.path().join("plain.sock");
    let mut unix = UnixStream::connect(&path).expect("a unix listener");
    unix.write_all(b"echo\nhello").expect("a write");
    let mut back = [0; 5];
    unix.read_exact(&mut back).expect("an echo");
    assert_eq!(&back, b"hello");

    connect.process.terminate();
    assert!(!path.exists(), "the listener's file is left");
}

/// A reset of a local client must not look like a close to the server, and vice versa.
#[test]
fn a_reset_stays_a_reset_on_the_other_side() {
    let server = server();
    let connect = Originator::start(&Settings::new(&[server.address]));
    let mut client = connect.saying("reset 1000");
    let mut some = vec![0; 1000];
    client.tcp.read_exact(&mut some).expect("the bytes sent");
    client.tcp.write_all(b"got\n").expect("a write");
    let end = client.tcp.read(&mut some);
    assert!(end.is_err(), "expected a reset, came: {end:?}");
}

/// The worker is killed: idle and warm connections survive, none is lost.
#[test]
fn connections_survive_their_worker() {
    let server = server();
    let settings = Settings::new(&[server.address]).line("warm = 6").workers(2);
    let connect = Originator::start(&settings);
    let mut clients: Vec<Client> = (0..40).map(|_| echoed(&connect)).collect();
    for round in 0..3 {
        let before = wait::until("all workers to be there", PATIENCE, || {
            let workers = connect.process.workers();
            (workers.len() == 2).then_some(workers)
        });
        before.into_iter().for_each(kill_asleep);
        for (number, client) in clients.iter_mut().enumerate() {
            client
                .echo()
                .unwrap_or_else(|error| panic!("round {round}, connection {number}: {error}"));
        }
        clients.push(echoed(&connect));
    }
    assert_eq!(
        connect.process.lines_with("connection reset after a crash"),
        [""; 0]
    );
}

/// Warm connections serve at once, and are replaced when their server closes them, without an error for a
/// local client.
#[test]
fn warm_connections_are_used_and_replaced() {
    let mut server = server();
    let settings = Settings::new(&[server.address])
        .line("warm = 5")
        .line("resume_uses = 1000")
        .top("admin = \"admin.sock\"");
    let connect = Originator::start(&settings);
    let done = |sum: usize| {
        handshakes(&connect, sum);
    };
    done(5);
    connect.wait_for_count("at_rest", 5);
    let mut clients: Vec<Client> = (0..4).map(|_| echoed(&connect)).collect();
    // The connections in use are replaced by new warm ones.
    done(9);
    drop(clients);
    for round in 0..2 {
        let (full, resumed) = connect.handshakes();
        // The server closes all its connections, and starts again.
        let address = server.address;
        drop(server);
        server = wait::until("the server to be there again", PATIENCE, || {
            TcpListener::bind(address).ok().map(drop)?;
            let plain = TcpListener::bind((address.ip(), scene::PLAIN_PORT)).ok()?;
            Some(again(address, plain))
        });
        wait::until_true("the warm ones to be replaced", || {
            let (now_full, now_resumed) = connect.handshakes();
            now_full + now_resumed >= full + resumed + 5
        });
        clients = (0..5).map(|_| echoed(&connect)).collect();
        assert_eq!(clients.len(), 5, "round {round}");
    }
    drop(server);
}

/// A warm connection is not given away shortly before `total_timeout` closes it.
#[test]
fn an_old_warm_connection_is_replaced() {
    let server = server();
    let settings = Settings::new(&[server.address])
        .line("warm = 1")
        .top("total_timeout = \"6s\"");
    let connect = Originator::start(&settings);
    std::thread::sleep(std::time::Duration::from_secs(8));
    let mut client = echoed(&connect);
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    client.echo().expect("an echo");
}

/// How a server closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerClose {
    CloseNotify,
    Fin,
    Reset,
}

/// A warm connection that ends at the moment of its use: nothing was read from the local client yet, so the
/// client gets another connection, and no error.
#[test]
fn a_warm_connection_that_ends_at_its_use_is_replaced() {
    for how in [
        ServerClose::CloseNotify,
        ServerClose::Fin,
        ServerClose::Reset,
    ] {
        let listener = TcpListener::bind((unused_host(), TLS_PORT)).expect("an address");
        let address = listener.local_addr().expect("bound");
        let (come, came) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let config = std::sync::Arc::new(dormouse_interop::peer::server());
            for tcp in listener.incoming().flatten() {
                let tls = rustls::ServerConnection::new(config.clone()).expect("a server");
                let mut stream = rustls::StreamOwned::new(tls, tcp);
                while stream.conn.is_handshaking() {
                    stream
                        .conn
                        .complete_io(&mut stream.sock)
                        .expect("a handshake");
                }
                come.send(stream).expect("a test that listens");
            }
        });
        let settings = Settings::new(&[address])
            .line("warm = 1")
            .top("admin = \"admin.sock\"");
        let connect = Originator::start(&settings);
        let mut given = came.recv_timeout(PATIENCE).expect("a warm connection");
        let mut client = connect.client();
        connect.wait_for_count("warm_given", 1);
        match how {
            ServerClose::CloseNotify => {
                given.conn.send_close_notify();
                given.conn.complete_io(&mut given.sock).expect("sent");
            }
            ServerClose::Fin => given.sock.shutdown(Shutdown::Write).expect("a FIN"),
            // Closing sends a reset then.
            ServerClose::Reset => rustix::net::sockopt::set_socket_linger(
                &given.sock,
                Some(std::time::Duration::ZERO),
            )
            .expect("a socket option"),
        }
        drop(given);
        connect.wait_for_count("warm_replaced", 1);
        client.tcp.write_all(b"hello").expect("a write");
        // One of the newer connections belongs to the client: the others are warm, or were.
        let heard = wait::until("what the client says to arrive", PATIENCE, || {
            let mut stream = came.try_recv().ok()?;
            stream
                .sock
                .set_read_timeout(Some(std::time::Duration::from_millis(500)))
                .expect("a socket");
            let mut heard = [0; 5];
            let arrived = stream.read_exact(&mut heard).is_ok();
            arrived.then(|| {
                stream.write_all(b"world").expect("sent");
                (heard, stream)
            })
        });
        assert_eq!(&heard.0, b"hello", "{how:?}");
        let mut back = [0; 5];
        client.tcp.read_exact(&mut back).expect("an answer");
        assert_eq!(&back, b"world", "{how:?}");
    }
}

fn again(address: SocketAddr, plain: TcpListener) -> Scene {
    let backend = Backend::on(plain);
    let target = Target::Tcp(backend.address());
    Scene::of(
        Terminator::Dormouse,
        backend,
        &terminator::Settings::new(address, target),
    )
}

/// The first bytes of a server that sends first arrive, although there was no client when it sent them.
#[test]
fn data_for_a_warm_connection_is_not_lost() {
    let host = unused_host();
    let greeting = TcpListener::bind(SocketAddr::new(host, scene::PLAIN_PORT)).expect("an address");
    let backend = greeting.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut all = Vec::new();
        for mut stream in greeting.incoming().flatten() {
            stream.write_all(b"220 welcome\r\n").expect("a write");
            all.push(stream);
        }
    });
    let settings = terminator::Settings::new(SocketAddr::new(host, TLS_PORT), Target::Tcp(backend));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let _server = scene::start(Terminator::Dormouse, &settings, folder.path());
    let connect = Originator::start(&Settings::new(&[settings.listen]).line("warm = 2"));
    handshakes(&connect, 2);
    for _ in 0..5 {
        let mut client = connect.client();
        let mut words = [0; 13];
        client.tcp.read_exact(&mut words).expect("a greeting");
        assert_eq!(&words, b"220 welcome\r\n");
    }
}

/// Servers are tried in order, whatever the fault of the first; a failed server is skipped.
#[test]
fn the_next_server_is_tried() {
    let (good, other) = (server(), server());
    let refusing = SocketAddr::new(unused_host(), TLS_PORT);
    let plain = TcpListener::bind((unused_host(), TLS_PORT)).expect("an address");
    let not_tls = plain.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut stream in plain.incoming().flatten() {
            let _ = stream.write_all(b"SSH-2.0-nothing\r\n");
        }
    });
    let all = [refusing, not_tls, good.address, other.address];
    let connect = Originator::start(&Settings::new(&all));
    for _ in 0..10 {
        echoed(&connect);
    }
    assert_eq!(good.backend.accepted(), 10);
    assert_eq!(other.backend.accepted(), 0);
    connect.process.logged("Connection refused", 1);
    connect.process.logged("does not speak TLS", 1);
    drop(good);
    for _ in 0..3 {
        echoed(&connect);
    }
    assert_eq!(other.backend.accepted(), 3);
}

/// Every fault of a certificate has its own error text, with both names.
#[test]
fn certificate_faults_of_a_server_are_described() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let self_signed = |name: &str, authority: &str| {
        let [cert, key] = ["pem", "key"].map(|end| folder.path().join(format!("{name}.{end}")));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "30"])
            .args(["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=own"])
            .args(["-addext", "subjectAltName=DNS:localhost"])
            .args([
                "-addext",
                &format!("basicConstraints=critical,CA:{authority}"),
            ])
            .arg("-out")
            .arg(&cert)
            .arg("-keyout")
            .arg(&key)
            .output()
            .expect("openssl starts");
        assert!(made.status.success(), "{made:?}");
        let mut files = authority_files();
        (files.cert, files.key) = (cert, key);
        files
    };
    let good = authority_files();
    let expired = authority().give_out("expired", Kind::EcdsaP256, 2021, folder.path());
    let name = "server_name = \"localhost\"\n";
    for (what, files, lines, words) in [
        ("expired", expired, name, &["expired at"][..]),
        (
            "another name",
            good.clone(),
            "server_name = \"db.example\"\n",
            &["is for localhost, not for db.example"],
        ),
        (
            "self-signed",
            self_signed("own", "FALSE"),
            name,
            &["is self-signed (CN=own)"],
        ),
        (
            "an authority's",
            self_signed("ca", "TRUE"),
            name,
            &["CN=own, CA:TRUE", "CA:FALSE"],
        ),
        (
            "unknown",
            good,
            "server_name = \"localhost\"\nca = \"system\"\n",
            &["issued by CN=interop authority, which is not trusted"],
        ),
    ] {
        let server = server_with(|settings| settings.certificate = files);
        let mut settings = Settings::new(&[server.address]);
        settings.lines = lines.to_owned();
        let mut connect = Originator::start(&settings);
        let mut client = connect.client();
        let end = client.tcp.read(&mut [0; 1]);
        assert!(end.is_err(), "{what}: expected a reset, came {end:?}");
        let line = connect
            .process
            .wait_for_line("TLS connection to server failed", PATIENCE);
        for word in words {
            assert!(line.contains(word), "{what}: {line}");
        }
    }
}

fn authority_files() -> dormouse_interop::certificates::Files {
    authority().certificate(Kind::EcdsaP256).clone()
}

/// With `log_handshakes`, every handshake has a line, successful or not, and is counted by version.
#[test]
fn log_handshakes_writes_a_line_for_every_handshake() {
    let server = server();
    for version in ["1.3", "1.2"] {
        let settings = Settings::new(&[server.address])
            .line(&format!("max_version = {version}"))
            .top("log_handshakes = true\nadmin = \"admin.sock\"");
        let connect = Originator::start(&settings);
        echoed(&connect);
        echoed(&connect);
        handshakes(&connect, 2);
        let lines = connect.process.lines_with("handshake done");
        let version_said = format!("version=\"TLS {version}\"");
        for part in [
            " INFO ",
            &version_said,
            "suite=",
            "sni=",
            "took_ms=",
            "flights=",
        ] {
            assert!(
                lines.iter().all(|line| line.contains(part)),
                "{part} in {lines:?}"
            );
        }
        assert!(lines[0].contains("group=") && lines[0].contains("resumed=false"));
        assert!(lines[1].contains("resumed=true"), "{}", lines[1]);
        for kind in ["full", "resumed"] {
            let number = version.replace('.', "");
            connect.wait_for_count(&format!("connect_handshakes_{kind}_tls{number}"), 1);
        }
    }
    let other = Settings::new(&[server.address]).top("log_handshakes = true");
    let mut connect = Originator::start(&Settings {
        lines: "server_name = \"db.example\"\n".to_owned(),
        ..other
    });
    let mut client = connect.client();
    assert!(client.tcp.read(&mut [0; 1]).is_err(), "expected a reset");
    let line = connect.process.wait_for_line("handshake failed", PATIENCE);
    for part in [
        "by=dormouse",
        "alert=bad_certificate",
        "took_ms=",
        "not for db.example",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[test]
fn an_unknown_host_is_reported_before_the_start() {
    let refused = Command::new(tools::dormouse())
        .args([
            "connect",
            "--listen",
            "127.0.0.1:8082",
            "--to",
            "nowhere.invalid:443",
        ])
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("`nowhere.invalid` cannot be looked up"),
        "{said}"
    );
}

/// A reload changes the target of new connections and their settings; established connections continue, and
/// unchanged originations keep their state.
#[test]
fn a_reload_changes_where_connections_go() {
    let (one, other) = (server(), server());
    let settings = Settings::new(&[one.address])
        .line("warm = 3")
        .top("admin = \"admin.sock\"");
    let connect = Originator::start(&settings);
    handshakes(&connect, 3);
    let mut before = echoed(&connect);
    let (full, _) = handshakes(&connect, 4);
    let reload = || {
        let admin = Admin::at(&connect.folder.path().join("admin.sock"));
        let (status, said) = admin.ask("POST", "/reload");
        assert!(status == 200 && !said.contains("restart"), "{said}");
    };
    reload();
    echoed(&connect);
    assert_eq!(handshakes(&connect, 5), (full, 5 - full), "resumed");
    wait::until_true("five connections in all", || one.backend.accepted() == 5);

    let file = connect.folder.path().join("dormouse.toml");
    let text = std::fs::read_to_string(&file).expect("its configuration");
    let text = text.replace(&one.address.to_string(), &other.address.to_string());
    std::fs::write(&file, text).expect("a file of the test");
    reload();
    wait::until_true("the warm ones to be with the other server", || {
        other.backend.accepted() == 3
    });
    for _ in 0..4 {
        echoed(&connect);
    }
    assert_eq!(
        one.backend.accepted(),
        5,
        "no more connections to the former server"
    );
    before
        .echo()
        .expect("an established connection stays with its server");
}

/// A silent server delays only its own client, and not for ever. The last server has all the time that is left.
#[test]
fn a_silent_server_times_out() {
    let silent = TcpListener::bind((unused_host(), TLS_PORT)).expect("an address");
    let settings = Settings::new(&[silent.local_addr().expect("bound")])
        .top("backend_connect_timeout = \"50ms\"")
        .top("handshake_timeout = \"300ms\"");
    let mut connect = Originator::start(&settings);
    let mut client = connect.client();
    let end = client.tcp.read(&mut [0; 1]);
    assert!(end.is_err(), "expected a reset, came {end:?}");
    connect
        .process
        .wait_for_line("no TLS connection within handshake_timeout", PATIENCE);
}

/// A server that accepts connections but does not speak TLS in time is as bad as one that accepts none.
#[test]
fn a_silent_server_is_followed_by_the_next_one() {
    let silent = TcpListener::bind((unused_host(), TLS_PORT)).expect("an address");
    let server = server();
    let settings = Settings::new(&[silent.local_addr().expect("bound"), server.address])
        .top("backend_connect_timeout = \"200ms\"");
    let mut connect = Originator::start(&settings);
    echoed(&connect);
    let why = "no TLS connection within backend_connect_timeout";
    connect.process.wait_for_line(why, PATIENCE);
    assert_eq!(server.backend.accepted(), 1);
}

/// A client that disconnects during the handshake leaves nothing behind.
#[test]
fn clients_that_disconnect_early_leave_nothing_behind() {
    let server = server();
    let connect = Originator::start(&Settings::new(&[server.address]));
    echoed(&connect);
    let open = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    let worker = connect.process.leaves()[0];
    // The first client's connections may still be open.
    let before = open(worker);
    for _ in 0..20 {
        drop(TcpStream::connect(connect.address).expect("connect listens"));
    }
    wait::until_true("all clients to be served", || {
        let (full, resumed) = connect.handshakes();
        full + resumed > 20
    });
    wait::until_true("all of them to be closed", || open(worker) <= before);
}

mod alone {
    use super::*;

    /// Memory per idle connection: the slope of the whole process tree's memory. The goal is 256 bytes. The test
    /// takes long, so `make test-full` runs it.
    #[test]
    #[ignore = "opens eight thousand connections"]
    fn quiet_connections_cost_what_their_slots_do() {
        const STEP: usize = 2_000;
        let server = server_with(|settings| {
            settings.target = Target::Echo;
        });
        let connect = Originator::start(&Settings::new(&[server.address]));
        let mut clients: Vec<Client> = Vec::new();
        let mut grow = |to: usize| {
            while clients.len() < to {
                let mut client = connect.client();
                client.tcp.write_all(b"x").expect("a write");
                client.tcp.read_exact(&mut [0]).expect("an echo");
                clients.push(client);
            }
            // Connections no longer wait for tickets.
            std::thread::sleep(std::time::Duration::from_secs(3));
            connect.process.memory()
        };
        let before = grow(STEP);
        let after = grow(4 * STEP);
        let each = after.saturating_sub(before) / (3 * STEP) as u64;
        println!(
            "{each} bytes per quiet connection, {after} bytes with {}",
            4 * STEP
        );
        assert!((150..=256).contains(&each), "{each} bytes per connection");
    }
}
