//! Health checks: what is requested, and the effect of the results.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

use dormouse_interop::admin::Admin;
use dormouse_interop::backend::Backend;
use dormouse_interop::checks;
use dormouse_interop::peer::Peer;
use dormouse_interop::process::signal;
use dormouse_interop::scene::unused_host;
use dormouse_interop::terminator::Can;
use dormouse_interop::wait;
use rustix::process::Signal;
use serde_json::Value;

/// A server that answers every request with a set status.
struct Web {
    address: SocketAddr,
    status: Arc<AtomicU16>,
    asked: Arc<AtomicU64>,
}

impl Web {
    fn start(address: SocketAddr, seen: Sender<String>) -> Self {
        let listener = TcpListener::bind(address).expect("an unused address");
        let (status, asked) = (Arc::new(AtomicU16::new(200)), Arc::new(AtomicU64::new(0)));
        let (answer, count) = (Arc::clone(&status), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut request = Vec::new();
                let mut room = [0; 1024];
                // A PROXY protocol header comes first, and may contain empty lines too.
                while !(request.ends_with(b"\r\n\r\n") && request.windows(4).any(|w| w == b"GET "))
                {
                    match stream.read(&mut room) {
                        Ok(n) if n > 0 => request.extend_from_slice(&room[..n]),
                        _ => break,
                    }
                }
                let _ = seen.send(String::from_utf8_lossy(&request).into_owned());
                count.fetch_add(1, Ordering::SeqCst);
                let code = answer.load(Ordering::SeqCst);
                let name = address.port();
                let head = format!("HTTP/1.1 {code} So\r\nContent-Length: 4\r\n\r\n{name}");
                let _ = stream.write_all(head.as_bytes());
            }
        });
        Self {
            address,
            status,
            asked,
        }
    }
}

fn backend(admin: &Admin, number: usize) -> Value {
    admin.status()["backends"][number].clone()
}

/// A server that answers with an error gets no connections until it answers well again, although it accepts
/// every connection.
#[test]
fn failed_checks_skip_a_backend_and_successes_restore_it() {
    requires!(Can::BeDormouse);
    let host = unused_host();
    let (sender, requests) = channel();
    let webs = [8080, 8081].map(|port| Web::start(SocketAddr::new(host, port), sender.clone()));
    let to = [webs[0].address, webs[1].address];
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (terminator, admin, settings) = checks::start(&to, folder.path(), |settings| {
        settings.option("check", "GET /healthz?x=1");
        settings.option("check_status", "200-299");
        settings.option("proxy_protocol", "v2");
    });
    checks::until(&admin, 0, "healthy");
    checks::until(&admin, 1, "healthy");
    let local = "\r\n\r\n\0\r\nQUIT\n \0\0\0";
    let expected = format!("{local}GET /healthz?x=1 HTTP/1.1\r\nHost: {host}:808");
    let request = requests.recv().expect("a request");
    assert!(request.starts_with(&expected), "{request:?}");

    let served_by = || {
        let mut peer = Peer::connect(settings.listen).expect("a handshake");
        peer.stream()
            .write_all(b"GET / HTTP/1.0\r\n\r\n")
            .expect("sent");
        let answer = peer.receive_all().expect("a clean end");
        String::from_utf8_lossy(&answer[answer.len() - 4..]).into_owned()
    };
    let both: Vec<String> = (0..4).map(|_| served_by()).collect();
    assert!(
        both.contains(&"8080".to_owned()) && both.contains(&"8081".to_owned()),
        "{both:?}"
    );
    webs[0].status.store(503, Ordering::SeqCst);
    checks::until(&admin, 0, "unhealthy");
    assert_eq!(backend(&admin, 0)["up"], false);
    assert!((0..6).all(|_| served_by() == "8081"));
    let (_, metrics) = admin.ask("GET", "/metrics");
    let line =
        |port, up| format!("dormouse_backend_up{{route=\"1\",backend=\"{host}:{port}\"}} {up}\n");
    assert!(
        metrics.contains(&line(8080, 0)) && metrics.contains(&line(8081, 1)),
        "{metrics}"
    );
    assert_eq!(
        terminator.logged("the response has status 503", 1).len(),
        1,
        "said once"
    );

    // A scout that dies is replaced, and its successor finds the same.
    signal(terminator.named("scout").expect("a scout"), Signal::KILL);
    webs[0].status.store(204, Ordering::SeqCst);
    checks::until(&admin, 0, "healthy");
    assert!((0..4).any(|_| served_by() == "8080"));

    // Both are unhealthy: results that would cause an outage are ignored.
    webs.iter()
        .for_each(|web| web.status.store(500, Ordering::SeqCst));
    checks::until(&admin, 0, "unhealthy");
    checks::until(&admin, 1, "unhealthy");
    assert_eq!(served_by().len(), 4);
    ends_with_the_option(&admin, &webs[0], folder.path());
}

/// Without checks nothing is requested any more, and nothing is reported.
fn ends_with_the_option(admin: &Admin, web: &Web, folder: &Path) {
    let file = folder.join("dormouse.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    let without: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("check"))
        .collect();
    std::fs::write(&file, without.join("\n")).expect("written");
    admin.order("/reload").expect("reloaded");
    checks::until(admin, 0, "off");
    wait::until_true("both to be up", || {
        let is_up = |n| backend(admin, n)["up"] == true;
        (0..2).all(is_up)
    });
    let asked = wait::until_still("questions", || web.asked.load(Ordering::SeqCst));
    assert!(asked > 0);
}

/// Checks find a dead backend before any client connects to it.
#[test]
fn checks_find_a_dead_backend_before_any_client() {
    requires!(Can::BeDormouse);
    let host = unused_host();
    let addresses = [8080, 8081].map(|port| SocketAddr::new(host, port));
    let servers = addresses.map(Backend::tcp);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_terminator, admin, settings) = checks::start(&addresses, folder.path(), |settings| {
        settings.option("check", "connect");
    });
    checks::until(&admin, 1, "healthy");
    let [first, second] = servers;
    second.stop();
    checks::until(&admin, 1, "unhealthy");
    for _ in 0..6 {
        Peer::echoing(settings.listen);
    }
    let counts = admin.status()["counts"].clone();
    assert_eq!(
        counts["backend_connects_failed"], 0,
        "nobody had to find out"
    );
    let _second = Backend::tcp(addresses[1]);
    checks::until(&admin, 1, "healthy");
    drop(first);
}
