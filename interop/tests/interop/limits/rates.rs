//! Rate limits: for one client, and for all. A delayed client still gets every byte, and no client waits for
//! another one's use.

use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_interop::admin::Admin;
use dormouse_interop::backend::Backend;
use dormouse_interop::certificates::authority;
use dormouse_interop::content::{Total, random};
use dormouse_interop::scene::{PLAIN_PORT, Scene, TLS_PORT, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::wait::{self, PATIENCE};
use dormouse_interop::web::Web;

/// Bytes per second, as text and as a number.
const RATE: &str = "256 KiB";
const RATE_BYTES: usize = 256 << 10;
const BURST: &str = "64 KiB";
const BURST_BYTES: usize = 64 << 10;

fn scene(change: impl FnOnce(&mut Settings)) -> (Scene, Web) {
    let host = unused_host();
    let web = Web::start(SocketAddr::new(host, PLAIN_PORT));
    let mut settings = Settings::new(SocketAddr::new(host, TLS_PORT), Target::Tcp(web.address()));
    settings.workers = 2;
    Admin::in_folder(&mut settings);
    change(&mut settings);
    let idle = Backend::tcp(SocketAddr::new(host, 0));
    (Scene::of(Terminator::Dormouse, idle, &settings), web)
}

/// A running curl, from this address.
fn curl(scene: &Scene, from: &str, arguments: &[&str]) -> Child {
    Command::new("curl")
        .args(["--silent", "--show-error", "--fail", "--max-time", "100"])
        .args(["--interface", from, "--cacert"])
        .arg(authority().trust())
        .args([
            "--resolve",
            &format!("localhost:{TLS_PORT}:{}", scene.address.ip()),
        ])
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl starts")
}

fn url(path: &str) -> String {
    format!("https://localhost:{TLS_PORT}{path}")
}

fn body(mut curl: Child) -> Vec<u8> {
    let mut body = Vec::new();
    let mut out = curl.stdout.take().expect("a pipe");
    out.read_to_end(&mut body).expect("a body");
    assert!(curl.wait().expect("an end").success());
    body
}

/// Maximum bytes of a connection per step, before they are charged.
const STEP_BYTES: usize = 16 << 10;

/// Minimum time for this number of bytes on this number of connections. The last step of each connection is
/// not waited for.
fn least(bytes: usize, connections: usize) -> Duration {
    let paid = bytes - BURST_BYTES - connections * STEP_BYTES;
    Duration::from_secs_f64(paid as f64 / RATE_BYTES as f64)
}

/// One client's two downloads share its rate; another client is done long before; an upload is delayed as
/// well. All bytes arrive.
#[test]
fn the_rate_of_one_client_is_limited() {
    requires!(Can::BeDormouse, "curl");
    let (scene, web) = scene(|settings| {
        settings.option("bytes_per_client", RATE);
        settings.option("burst_per_client", BURST);
    });
    let began = Instant::now();
    let big = 600_000;
    let path = url(&format!("/bytes/{big}"));
    let mut greedy = [(); 2].map(|()| curl(&scene, "127.9.8.1", &[&path]));
    let modest = curl(&scene, "127.9.8.2", &[&url("/bytes/20000")]);
    assert_eq!(body(modest).len(), 20_000);
    let still = |one: &mut Child| one.try_wait().expect("a child").is_none();
    assert!(
        greedy.iter_mut().all(still),
        "the small download waited for the large ones"
    );

    let folder = tempfile::tempdir().expect("a temporary folder");
    let (file, content) = (folder.path().join("file"), random(big));
    std::fs::write(&file, &content).expect("written");
    let file = file.to_string_lossy().into_owned();
    let upload = curl(&scene, "127.9.8.3", &["-T", &file, &url("/put")]);
    let bodies = greedy.map(body);
    let took = began.elapsed();
    assert!(took >= least(2 * big, 2), "both together in {took:?}");
    assert!(bodies.iter().all(|body| body.len() == big));
    let sent = web.sent();
    for body in &bodies {
        assert!(sent.contains(&Total::of(body)), "what was sent is received");
    }
    let digest = String::from_utf8_lossy(&body(upload)).into_owned();
    assert_eq!(digest.trim(), Total::of(&content).sha256);

    // The clients have closed; the worker notices when their bytes are paid for.
    let counts = wait::until("nobody to wait", PATIENCE, || {
        let counts = Admin::of(&scene).status()["counts"].clone();
        (counts["paced_now"] == 0 && counts["connections"] == 0).then_some(counts)
    });
    assert!(counts["paced_client"].as_u64() > Some(20), "{counts}");
    assert_eq!(counts["paced_all"], 0);
    let lines = scene.terminator.logged("bytes_per_client", 1);
    assert!(
        (1..=2).contains(&lines.len()),
        "a line per worker: {lines:?}"
    );
}

/// All clients together, over both workers.
#[test]
fn the_rate_of_all_clients_is_limited() {
    requires!(Can::BeDormouse, "curl");
    let (scene, web) = scene(|settings| {
        settings.option("max_bytes_per_second", RATE);
    });
    let began = Instant::now();
    let each = 250_000;
    let path = url(&format!("/bytes/{each}"));
    let clients = ["127.9.8.1", "127.9.8.2", "127.9.8.3"].map(|from| curl(&scene, from, &[&path]));
    let bodies = clients.map(body);
    let took = began.elapsed();
    assert!(took >= least(3 * each, 3), "all together in {took:?}");
    let sent = web.sent();
    for body in &bodies {
        assert!(sent.contains(&Total::of(body)), "what was sent is received");
    }
    let counts = Admin::of(&scene).status()["counts"].clone();
    assert!(counts["paced_all"].as_u64() > Some(10), "{counts}");
    assert_eq!(counts["paced_client"], 0);
}

/// A worker dies while its clients wait: the connection in progress is reset, if there was one; the others
/// get every byte from the next worker, which knows their debts.
#[test]
fn rate_limits_survive_a_worker() {
    requires!(Can::BeDormouse, "curl");
    let (scene, web) = scene(|settings| {
        settings.workers = 1;
        settings.option("bytes_per_client", RATE);
        settings.option("burst_per_client", BURST);
    });
    let began = Instant::now();
    let each = 700_000;
    let path = url(&format!("/bytes/{each}"));
    let clients: Vec<Child> = (1..=4)
        .map(|last| curl(&scene, &format!("127.9.8.{last}"), &[&path]))
        .collect();
    let admin = Admin::of(&scene);
    wait::until_true("all to be there, and some to wait", || {
        let counts = admin.status()["counts"].clone();
        counts["connections"] == 4 && counts["paced_now"].as_u64() >= Some(2)
    });
    scene.terminator.kill_workers();
    let outputs = clients.into_iter().map(|curl| curl.wait_with_output());
    let bodies: Vec<Vec<u8>> = outputs
        .map(|output| output.expect("curl ends"))
        .filter(|output| output.status.success())
        .map(|output| output.stdout)
        .collect();
    assert!(began.elapsed() >= least(each, 1));
    assert!(bodies.len() >= 3, "{} of 4 came through", bodies.len());
    let sent = web.sent();
    for body in &bodies {
        assert!(sent.contains(&Total::of(body)), "what was sent is received");
    }
    assert_eq!(admin.status()["counts"]["restarts"], 1);
}
