//! Audits of real clients.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use dormouse_interop::process::signal;
use dormouse_interop::web::Web;
use dormouse_interop::{tools, wait};
use rustix::process::Signal;

use dormouse_interop::scene::unused_port;

use super::{PATIENCE, audit, finds, read, start};

/// An interrupted client is ended, and the audit reports what it did.
#[test]
fn an_interrupted_client() {
    requires!("curl");
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("mark");
    // One of its children has moved to a session of its own.
    let script = format!(
        "setsid sleep 1235 & curl -sS $DORMOUSE_URL && echo $$ $! > {} && sleep 1234",
        mark.display()
    );
    let running = start(&["client", "-q", "--", "sh", "-c", &script]);
    let pids = wait::until("the first connection", PATIENCE, || {
        std::fs::read_to_string(&mark)
            .ok()
            .filter(|text| text.ends_with('\n'))
    });
    signal(running.id(), Signal::INT);
    let (audit, status) = read(&running.wait_with_output().expect("an end"));
    assert_eq!(
        (status, &audit["client"]["connections"]),
        (Some(1), &1.into()),
        "{audit:#}"
    );
    wait::until_true("none of them", || {
        let goes_on = |pid: &str| Path::new(&format!("/proc/{pid}")).exists();
        !pids.split_whitespace().any(goes_on)
    });
}

/// Each signal in each part of a run: the exit status says how the run ended, and neither files nor
/// processes are left, even of a client that ignores signals and has left its process group.
#[test]
fn an_interrupted_client_leaves_nothing_behind() {
    requires!("curl");
    let web = Web::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let relay = web.address().to_string();
    let relay = ["--relay", relay.as_str()];
    // With a command, the measurements are reported (1); an audit that only listened has no result (3).
    let parts: [(&str, &[&str], bool, i32); 3] = [
        ("a command", &[], true, 1),
        ("a relay", &relay, true, 1),
        ("listening", &[], false, 3),
    ];
    std::thread::scope(|scope| {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            for (part, words, with_command, status) in parts {
                scope.spawn(move || {
                    let ended = interrupted(signal, words, with_command);
                    assert_eq!(ended, Some(status), "{part}, {signal:?}");
                });
            }
        }
    });
}

/// Interrupts the audit once its client has connected, or it listens. Returns its exit status.
fn interrupted(by: Signal, words: &[&str], with_command: bool) -> Option<i32> {
    let (folder, temporary) = (tempfile::tempdir(), tempfile::tempdir());
    let (folder, temporary) = (folder.expect("a folder"), temporary.expect("a folder"));
    let mark = folder.path().join("mark");
    let listen = format!("127.0.0.1:{}", unused_port());
    let stubborn = format!(
        "trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' & \
         curl -sS {{url}}bytes/10 >&2; echo $$ $! > {}; while :; do sleep 1; done",
        mark.display()
    );
    // An audit under `nohup` is meant to outlive a hangup, and these tests may run under it.
    let mut command = Command::new("env");
    command
        .arg("--default-signal=HUP")
        .arg(tools::dormouse())
        .args(["audit", "client", "-q", "--json", "-", "--listen", &listen])
        .args(words)
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if with_command {
        command.args(["--", "sh", "-c", &stubborn]);
    }
    let running = command.spawn().expect("the audit starts");
    let pids = wait::until("the client, or a listener", PATIENCE, || {
        if with_command {
            let text = std::fs::read_to_string(&mark).ok();
            return text.filter(|text| text.ends_with('\n'));
        }
        let listens = std::net::TcpStream::connect(&listen).is_ok();
        // Its certificate exists before the address is announced.
        listens.then(String::new)
    });
    signal(running.id(), by);
    let (audit, status) = read(&running.wait_with_output().expect("an end"));
    if with_command {
        assert_eq!(audit["client"]["connections"], 1, "{audit:#}");
        let message = audit["outcome"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("interrupted"), "{message}");
    }
    for pid in pids.split_whitespace() {
        let goes_on = Path::new(&format!("/proc/{pid}")).exists();
        assert!(!goes_on, "{by:?}: process {pid} still runs");
    }
    let left: Vec<_> = std::fs::read_dir(temporary.path())
        .expect("the folder")
        .collect();
    assert!(left.is_empty(), "{by:?}: {left:?}");
    assert!(std::net::TcpListener::bind(&listen).is_ok(), "{by:?}");
    status
}

fn curl(url: &str, trust: &Path, out: &Path) -> bool {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--cacert"])
        .arg(trust)
        .arg("-o")
        .arg(out)
        .arg(url);
    curl.status().expect("curl starts").success()
}

/// Clients that the user starts, with the address and CA that the audit prints.
#[test]
fn clients_that_the_user_starts() {
    requires!("curl");
    let folder = tempfile::tempdir().expect("a folder");
    let (trust, out) = (folder.path().join("ca.pem"), folder.path().join("out"));
    let port = unused_port();
    let listen = format!("127.0.0.1:{port}");
    let ca_file = trust.to_string_lossy().into_owned();
    let running = start(&["client", "-q", "--listen", &listen, "--ca-file", &ca_file]);
    wait::until("a listener", PATIENCE, || {
        std::net::TcpStream::connect(&listen)
            .ok()
            .filter(|_| trust.exists())
    });
    for _ in 0..5 {
        assert!(curl(&format!("https://localhost:{port}/"), &trust, &out));
    }
    assert_eq!(std::fs::read_to_string(&out).expect("an answer"), "hello\n");
    signal(running.id(), Signal::INT);
    let (audit, status) = read(&running.wait_with_output().expect("an end"));
    // Nothing else would end the audit, so the interrupt is no failure.
    assert_eq!(status, Some(0), "{audit:#}");
    assert_eq!(
        (&audit["client"]["connections"], &audit["client"]["offered"]),
        (&5.into(), &0.into())
    );
    let ids: Vec<_> = audit["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .map(|f| &f["id"])
        .collect();
    assert!(ids.contains(&&"client-never-resumes".into()), "{ids:?}");
    assert!(audit["client"]["cpu_ms"]["not_measured"].is_string());
}

/// A client that fails is never clean: the message says how it ended, and what would help.
#[test]
fn a_client_that_fails() {
    for (script, words) in [
        ("exit 7", "exited with status 7 and made no TLS connection"),
        ("true", "put {url} or {address} into its command"),
        ("kill -SEGV $$", "was killed by signal 11"),
    ] {
        let (audit, status) = read(&audit(&["client", "-q", "--", "sh", "-c", script]));
        let said = audit["outcome"]["message"].as_str().unwrap_or_default();
        assert_eq!(status, Some(3), "{script}: {audit:#}");
        assert!(said.contains(words), "{script}: {said}");
    }
    requires!("python3");
    // A client of TLS 1.3 may verify the certificate after its handshake, and then leave without an alert.
    let late = "import socket, ssl, os, sys\n\
        context = ssl._create_unverified_context()\n\
        port = int(os.environ['DORMOUSE_PORT'])\n\
        context.wrap_socket(socket.create_connection(('127.0.0.1', port)))\n\
        sys.exit(5)";
    let (audit, status) = read(&audit(&["client", "-q", "--", "python3", "-c", late]));
    let said = audit["outcome"]["message"].as_str().unwrap_or_default();
    assert_eq!(status, Some(3), "{audit:#}");
    assert!(
        said.contains("status 5") && said.contains("{ca}"),
        "{audit:#}"
    );
    assert_eq!(audit["client"]["connections"], 1, "{audit:#}");
}

/// A relay forwards the complete answers of a real server, and counts requests.
#[test]
fn a_relay_in_front_of_a_real_server() {
    requires!("curl");
    let web = Web::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let (relay, to) = (
        web.address().to_string(),
        out.to_string_lossy().into_owned(),
    );
    let urls = ["{url}bytes/1000000", "-o", "/dev/null", "{url}bytes/10"];
    let words = [
        "client", "-q", "--relay", &relay, "--", "curl", "-sS", "-o", &to,
    ];
    let (audit, status) = read(&audit(&[&words[..], &urls].concat()));
    assert_eq!(status, Some(0), "{audit:#}");
    assert_eq!(std::fs::metadata(&out).expect("an answer").len(), 1_000_000);
    let client = &audit["client"];
    assert_eq!(
        (&client["connections"], &client["requests"]),
        (&1.into(), &2.into()),
        "{client:#}"
    );
    assert_eq!(client["kept_alive"], 1);
}

/// Bodies do not count as requests, and a client that asks for the end of the connection gets it; else it
/// would wait for its own timeout.
#[test]
fn requests_are_counted_and_answered() {
    requires!("curl", "ab");
    let folder = tempfile::tempdir().expect("a folder");
    let body = folder.path().join("body");
    std::fs::write(&body, "\r\n\r\nGET / HTTP/1.1\r\n\r\n".repeat(100_000)).expect("a file");
    let script = format!(
        "curl -sS -o /dev/null --data-binary @{body} $DORMOUSE_URL --next -sSI $DORMOUSE_URL \
         --next -sS -o /dev/null -H 'Transfer-Encoding: chunked' -T {body} $DORMOUSE_URL --next -sSf $DORMOUSE_URL \
         && ab -q -n 4 -c 1 $DORMOUSE_URL",
        body = body.display()
    );
    let (audit, status) = read(&audit(&["client", "-q", "--", "sh", "-c", &script]));
    assert_eq!(status, Some(0), "{audit:#}");
    let client = &audit["client"];
    assert_eq!(client["exit_status"]["measured"], 0, "{client:#}");
    assert_eq!(
        (&client["connections"], &client["requests"]),
        (&5.into(), &8.into()),
        "{client:#}"
    );
}

/// The offer of a client is reported even if the handshake fails; an unknown result is not a "no".
#[test]
fn a_client_of_an_old_version() {
    requires!("curl");
    let command = "curl -sS --tls-max 1.1 --ciphers DEFAULT@SECLEVEL=0 $DORMOUSE_URL";
    let (audit, status) = read(&audit(&["client", "-q", "--", "sh", "-c", command]));
    assert_eq!(status, Some(3), "{audit:#}");
    let client = &audit["client"];
    assert_eq!(client["connections"], 0, "{client:#}");
    let offered = client["versions_offered"].as_array().expect("versions");
    assert!(offered.contains(&"TLS 1.1".into()), "{client:#}");
    assert!(finds(&audit, "client-old-version"), "{audit:#}");
}

/// A JVM cannot read PEM files, so the audit passes the CA in another way.
#[test]
fn a_client_in_java_needs_no_preparation() {
    requires!("java", "javac");
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("Fetch.java");
    let text = "public class Fetch { public static void main(String[] a) throws Exception { \
                new java.net.URI(a[0]).toURL().openStream().readAllBytes(); } }";
    std::fs::write(&program, text).expect("a file");
    let (java, program) = (tools::java(), program.to_string_lossy());
    let mut words = vec!["client", "-q", "--"];
    words.extend(java.iter().map(String::as_str));
    words.extend([&*program, "{url}"]);
    let (audit, status) = read(&audit(&words));
    assert_eq!(status, Some(0), "{audit:#}");
    let client = &audit["client"];
    assert_eq!(
        (&client["requests"], &client["exit_status"]["measured"]),
        (&1.into(), &0.into()),
        "{client:#}"
    );
}
