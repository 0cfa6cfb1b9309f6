//! Monitoring by a real Prometheus, in a real browser, and in a terminal.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::{Process, kill_asleep, signal};
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::{Can, Settings};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;
use rustls::Stream;
use serde_json::Value;

const ADMIN_PORT: u16 = 9901;

/// A scene of two workers with a metrics address.
fn scene() -> (Scene, SocketAddr) {
    scene_with(|settings| settings.workers = 2)
}

pub(super) fn scene_with(change: impl FnOnce(&mut Settings)) -> (Scene, SocketAddr) {
    let admin = |host| SocketAddr::new(host, ADMIN_PORT);
    let scene = Scene::with(|settings| {
        settings.option("metrics", &admin(settings.listen.ip()).to_string());
        change(settings);
    });
    let address = admin(scene.address.ip());
    (scene, address)
}

/// Peers that echo when all are connected: none has a session to resume.
fn peers(scene: &Scene, count: usize) -> Vec<Peer> {
    let mut peers: Vec<Peer> = (0..count)
        .map(|_| Peer::saying(scene.address, "echo"))
        .collect();
    for peer in &mut peers {
        peer.echo().expect("an echo");
    }
    peers
}

/// The response to curl.
pub(super) fn fetch(url: &str) -> String {
    let answer = Command::new(tools::path("curl"))
        .args([
            "--silent",
            "--show-error",
            "--fail",
            "--max-time",
            "10",
            url,
        ])
        .output()
        .expect("curl");
    assert!(answer.status.success(), "{url}: {answer:?}");
    String::from_utf8_lossy(&answer.stdout).into_owned()
}

/// The value of a series.
fn sample(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series));
    let value = line.and_then(|rest| rest.trim().parse().ok());
    value.unwrap_or_else(|| panic!("{series} is missing in:\n{page}"))
}

#[test]
fn prometheus_reads_the_metrics() {
    requires!(Can::BeDormouse, "prometheus", "promtool", "curl");
    let (scene, admin) = scene();
    let mut peers = peers(&scene, 5);
    drop(peers.remove(0).end_sending());
    let page = fetch(&format!("http://{admin}/metrics"));
    promtool(&page, scene.folder.path());

    let own = SocketAddr::new(admin.ip(), 9090);
    let config = scene.folder.path().join("prometheus.yml");
    let text = format!(
        "global: {{ scrape_interval: 1s }}\nscrape_configs:\n- job_name: dormouse\n  \
         static_configs: [{{ targets: ['{admin}'] }}]\n"
    );
    std::fs::write(&config, text).expect("a configuration");
    let command = [
        tools::path("prometheus"),
        format!("--config.file={}", config.display()),
        format!(
            "--storage.tsdb.path={}",
            scene.folder.path().join("data").display()
        ),
        format!("--web.listen-address={own}"),
        "--log.level=warn".to_owned(),
    ];
    let _prometheus = Process::start("prometheus", &command, scene.folder.path());
    wait::until_listening("prometheus", own);
    // PromQL expressions that dashboards use.
    for (query, expected) in [
        ("dormouse_connections{state=\"at_rest\"}", 4.0),
        ("dormouse_connections_opened_total", 5.0),
        ("sum(dormouse_connections_closed_total)", 1.0),
        ("sum(dormouse_handshakes_total)", 5.0),
        ("dormouse_handshake_seconds_count", 5.0),
        ("dormouse_backend_connect_seconds_bucket{le=\"+Inf\"}", 5.0),
        ("sum(dormouse_backend_connections)", 4.0),
        (
            "histogram_quantile(1, dormouse_handshake_seconds_bucket) > bool 0",
            1.0,
        ),
        ("dormouse_memory_used_bytes{pool=\"slots\"}", 4.0 * 192.0),
        ("count(process_resident_memory_bytes)", 6.0),
        ("count(process_cpu_seconds_total)", 6.0),
        ("count(process_start_time_seconds < time())", 6.0),
        ("count(process_open_fds > 3)", 6.0),
        ("count(process_max_fds >= process_open_fds)", 6.0),
        ("dormouse_control_restarts_total", 0.0),
        (
            "sum(dormouse_handshakes_by_version_total{version=\"1.3\",resumption=\"full\"})",
            5.0,
        ),
        ("up{job=\"dormouse\"}", 1.0),
    ] {
        wait::until(query, PATIENCE, || {
            (ask(own, query)? == expected).then_some(())
        });
    }
    for peer in &mut peers {
        peer.echo().expect("an echo");
    }
}

/// The result of an instant query, once there is one.
fn ask(prometheus: SocketAddr, query: &str) -> Option<f64> {
    let answer = Command::new(tools::path("curl"))
        .args(["--silent", "--max-time", "10", "--get", "--data-urlencode"])
        .arg(format!("query={query}"))
        .arg(format!("http://{prometheus}/api/v1/query"))
        .output()
        .expect("curl");
    let answer: Value = serde_json::from_slice(&answer.stdout).ok()?;
    let results = answer["data"]["result"].as_array()?;
    results.first()?["value"][1].as_str()?.parse().ok()
}

/// Checks names, types and help texts with promtool.
fn promtool(page: &str, folder: &Path) {
    let file = folder.join("metrics");
    std::fs::write(&file, page).expect("a file");
    let checked = Command::new(tools::path("promtool"))
        .args(["check", "metrics"])
        .stdin(std::fs::File::open(&file).expect("the file"))
        .output()
        .expect("promtool");
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(
        checked.status.success() && said.is_empty(),
        "{said}\n{page}"
    );
    // promtool accepts labels packed into names, and empty help texts.
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a text");
            assert!(help.ends_with('.') && help.len() > 10, "{line}");
            for word in ["tls13", "tls12", "Gauge", "Counter"] {
                assert!(!name.contains(word) && !help.starts_with(word), "{line}");
            }
        }
        assert!(!line.contains("\"tls1"), "{line}");
    }
}

/// Counters match what has happened: by reason, by direction, and in consistent histograms.
#[test]
fn counters_match_what_has_happened() {
    requires!(Can::BeDormouse, "curl");
    let (scene, admin) = scene();
    let mut peers = peers(&scene, 3);
    for _ in 0..40 {
        for peer in &mut peers {
            peer.echo().expect("an echo");
        }
    }
    // Not TLS, and a client that disconnects early.
    use std::io::{Read as _, Write as _};
    let mut stranger = peer::connect_tcp(scene.address).expect("a connection");
    stranger
        .write_all(b"SSH-2.0-OpenSSH_9.2\r\n")
        .expect("sent");
    let _ = stranger.read_to_end(&mut Vec::new());
    let mut http = peer::connect_tcp(scene.address).expect("a connection");
    http.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("sent");
    let _ = http.read_to_end(&mut Vec::new());
    let url = format!("http://{admin}/metrics");
    let page = wait::until("two failures", PATIENCE, || {
        let page = fetch(&url);
        (sample(&page, "dormouse_handshakes_total{result=\"failed\"}") == 2.0).then_some(page)
    });
    let value = |series: &str| sample(&page, series);
    assert_eq!(
        value("dormouse_handshakes_failed_total{reason=\"not_tls\"}"),
        1.0
    );
    assert_eq!(
        value("dormouse_handshakes_failed_total{reason=\"plain_http\"}"),
        1.0
    );
    let done = value("dormouse_handshakes_total{result=\"full\"}")
        + value("dormouse_handshakes_total{result=\"resumed\"}");
    assert_eq!(done, 3.0);
    assert_eq!(value("dormouse_handshake_seconds_count"), 3.0);
    assert_eq!(value("dormouse_backend_connect_seconds_count"), 3.0);
    assert!(value("dormouse_handshake_bytes_total{direction=\"out\"}") > 3.0 * 200.0);
    assert!(value("dormouse_handshake_flights_total") >= 9.0);
    // Every echoed byte passed both directions, and ciphertext is a little more.
    let bytes = |direction: &str| {
        value(&format!(
            "dormouse_bytes_total{{direction=\"{direction}\"}}"
        ))
    };
    assert!(bytes("plain_in") > 0.0 && bytes("plain_in") <= bytes("plain_out"));
    assert!(bytes("tls_in") > bytes("plain_out") && bytes("tls_out") > bytes("plain_in"));
    // One turn in eight is timed; 120 echoes are at least 240 turns, minus shared ones.
    assert!(value("dormouse_wake_seconds_count") >= 10.0, "{page}");
    assert!(value("dormouse_wake_seconds_sum") > 0.0);
}

/// A client may send data together with its last flight: they are counted as data, with their records.
#[test]
fn data_behind_the_last_flight_are_counted() {
    requires!(Can::BeDormouse, "curl");
    use std::io::{Read as _, Write as _};
    let (scene, admin) = scene();
    let mut tcp = peer::connect_tcp(scene.address).expect("a connection");
    let mut tls = peer::client(peer::config());
    while tls.is_handshaking() {
        while tls.wants_write() {
            tls.write_tls(&mut tcp).expect("sent");
        }
        tls.read_tls(&mut tcp).expect("received");
        tls.process_new_packets().expect("a valid flight");
    }
    tls.writer().write_all(b"echo\nhello").expect("room");
    let mut flight_and_data = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut flight_and_data).expect("room");
    }
    tcp.write_all(&flight_and_data).expect("sent");
    let mut answer = [0; 5];
    let mut stream = Stream::new(&mut tls, &mut tcp);
    stream.read_exact(&mut answer).expect("an echo");
    assert_eq!(&answer, b"hello");
    let url = format!("http://{admin}/metrics");
    let page = wait::until("the data to be counted", PATIENCE, || {
        let page = fetch(&url);
        let plain_out = sample(&page, "dormouse_bytes_total{direction=\"plain_out\"}");
        (plain_out == 10.0).then_some(page)
    });
    // The header of a record, its content type and its tag (RFC 8446 §5.2).
    let record = 10.0 + 5.0 + 1.0 + 16.0;
    let tls_in = sample(&page, "dormouse_bytes_total{direction=\"tls_in\"}");
    assert_eq!(tls_in, record);
}

/// A scene with a route named `shop`, and its metrics address.
fn shop() -> (Scene, String) {
    let (scene, admin) = scene_with(|settings| {
        settings.option("name", "shop");
    });
    (scene, format!("http://{admin}/metrics"))
}

/// Traffic is counted for the route, by its name, and for the backend.
#[test]
fn routes_and_backends_are_counted_by_name() {
    requires!(Can::BeDormouse, "curl");
    let (scene, url) = shop();
    let mut peers = peers(&scene, 3);
    drop(peers.remove(0).end_sending());
    let backend = format!("route=\"shop\",backend=\"{}\"", scene.backend.address());
    let closed = "dormouse_route_connections_closed_total{route=\"shop\",reason=\"clean\"}";
    let page = wait::until("one to be closed", PATIENCE, || {
        let page = fetch(&url);
        (sample(&page, closed) == 1.0).then_some(page)
    });
    for (series, expected) in [
        ("dormouse_route_connections{route=\"shop\"}".to_owned(), 2.0),
        (
            "dormouse_route_connections_opened_total{route=\"shop\"}".to_owned(),
            3.0,
        ),
        (
            format!("dormouse_backend_connections_opened_total{{{backend}}}"),
            3.0,
        ),
        (
            format!("dormouse_backend_connections_failed_total{{{backend}}}"),
            0.0,
        ),
        (
            format!("dormouse_backend_connections_closed_total{{{backend},reason=\"clean\"}}"),
            1.0,
        ),
    ] {
        assert_eq!(sample(&page, &series), expected, "{series}");
    }
    let of_route = |what: &str| sample(&page, &format!("dormouse_route_{what}"));
    let handshakes = ["full", "resumed"].map(|result| {
        of_route(&format!(
            "handshakes_total{{route=\"shop\",result=\"{result}\"}}"
        ))
    });
    assert_eq!(handshakes.iter().sum::<f64>(), 3.0);
    // With one route and one backend, each has the totals.
    for (direction, of_backend) in [("plain_out", "sent"), ("plain_in", "received")] {
        let all = sample(
            &page,
            &format!("dormouse_bytes_total{{direction=\"{direction}\"}}"),
        );
        let route = of_route(&format!(
            "bytes_total{{route=\"shop\",direction=\"{direction}\"}}"
        ));
        let series =
            format!("dormouse_backend_bytes_total{{{backend},direction=\"{of_backend}\"}}");
        assert_eq!((route, sample(&page, &series)), (all, all), "{direction}");
        assert!(all > 0.0, "{direction}");
    }
}

/// Counters continue, and the number of connections is right again, after the worker has died.
#[test]
fn counts_by_name_survive_the_worker() {
    requires!(Can::BeDormouse, "curl");
    let (scene, url) = shop();
    let mut peers = peers(&scene, 2);
    // A failed handshake has a route, too, if there is only one.
    use std::io::{Read as _, Write as _};
    let mut stranger = peer::connect_tcp(scene.address).expect("a connection");
    stranger
        .write_all(b"SSH-2.0-OpenSSH_9.2\r\n")
        .expect("sent");
    let _ = stranger.read_to_end(&mut Vec::new());
    let status: Value =
        serde_json::from_str(&fetch(&url.replace("metrics", "status"))).expect("JSON");
    assert_eq!(status["routes"][0]["name"], "shop");
    let worker = status["workers"][0]["pid"].as_u64().expect("a pid");
    kill_asleep(worker as u32);
    wait::until_true("the next worker to have counted", || {
        let page = fetch(&url);
        let ends = sample(&page, "dormouse_worker_ends_total{reason=\"died\"}");
        let failed = "dormouse_route_handshakes_total{route=\"shop\",result=\"failed\"}";
        let connections = sample(&page, "dormouse_route_connections{route=\"shop\"}");
        ends == 1.0 && sample(&page, failed) == 1.0 && connections == 2.0
    });
    for peer in &mut peers {
        peer.echo().expect("an echo");
    }
    drop(peers);
    wait::until_true("all to be gone", || {
        let page = fetch(&url);
        sample(&page, "dormouse_route_connections{route=\"shop\"}") == 0.0
    });
}

/// Every metric that the dashboard uses exists.
#[test]
fn the_dashboard_uses_existing_metrics() {
    requires!(Can::BeDormouse, "curl");
    let file = tools::home().join("../packaging/grafana/dormouse.json");
    let dashboard = std::fs::read_to_string(file).expect("the dashboard");
    let parsed: Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = parsed["panels"].as_array().expect("panels");
    let queries: Vec<&str> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
        .map(|target| target["expr"].as_str().expect("a query"))
        .collect();
    assert!(queries.len() >= 12, "{}", queries.len());
    let (_scene, admin) = scene();
    let page = fetch(&format!("http://{admin}/metrics"));
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut seen = 0;
    for query in queries {
        let ours = query.match_indices("dormouse_");
        for (at, _) in ours.chain(query.match_indices("process_")) {
            let rest = &query[at..];
            let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
            let is_there = page.lines().any(|line| {
                line.strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with([' ', '{']))
            });
            assert!(is_there, "{name}, of {query}, is not in:\n{page}");
            seen += 1;
        }
    }
    assert!(seen >= 12, "{seen}");
}

/// The status page in a real browser: it shows the current state, refreshes, and fits a phone.
#[test]
fn a_browser_shows_the_status_page() {
    requires!(Can::BeDormouse, "chromium", "curl");
    let (scene, admin) = scene_with(|settings| {
        settings.option("name", "shop");
        settings.workers = 2;
    });
    let _peers = peers(&scene, 7);
    let url = format!("http://{admin}/");
    wait::until_true("seven connections at rest", || {
        let page = fetch(&format!("{url}metrics"));
        sample(&page, "dormouse_connections{state=\"at_rest\"}") == 7.0
    });
    let picture = scene.folder.path().join("page.png");
    let document = browse(&url, scene.folder.path(), &picture);
    for expected in [
        ">ready</span>",
        "id=\"connections\">7</div>",
        "id=\"at-rest\">7</dd>",
        "id=\"opened\">7</dd>",
        "id=\"slot\">192 B</div>",
        "id=\"for-connections\">1,344 B</dd>",
        ">shop</td>",
        "data-head=\"listens on\"",
        "id=\"pool-slots\">slots</span>",
        ">localhost\n",
        ">main</td>",
        ">worker 1</td>",
        &format!(">{}</td>", scene.backend.address()),
        "id=\"notice\" role=\"alert\" hidden=\"\"",
    ] {
        assert!(
            document.contains(expected),
            "{expected} is missing in:\n{document}"
        );
    }
    // It has refreshed on its own.
    let shown = document.split("data-shown=\"").nth(1).expect("a count");
    let shown: u32 = shown
        .split('"')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("a number");
    assert!(shown >= 2, "shown {shown} times");
    // It uses no outside resources.
    let page = fetch(&url);
    for outside in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    let picture = std::fs::read(&picture).expect("a picture");
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 10_000);
    assert_eq!(cut_off(&page, &url, scene.folder.path()), "");
    in_the_guide(&page, &picture);
}

/// The tables that a phone's screen cuts off: a copy of the page with the current status measures itself.
fn cut_off(page: &str, url: &str, folder: &Path) -> String {
    let status = fetch(&format!("{url}status"));
    let answer = format!(
        "<script>window.fetch = async () => ({{ ok: true, json: async () => ({status}) }});\n\
         setTimeout(() => {{ const cut = [...document.querySelectorAll('.scroll')].filter((place) => place.scrollWidth > place.clientWidth);\n\
         document.body.dataset.cut = cut.map((place) => place.id).join(' '); }}, 3000);</script><script>\n\"use strict\";"
    );
    let (before, after) = page
        .split_once("<script>\n\"use strict\";")
        .expect("one script");
    let file = folder.join("copy.html");
    std::fs::write(&file, [before, &answer, after].concat()).expect("written");
    let document = browse(
        &format!("file://{}", file.display()),
        folder,
        &folder.join("copy.png"),
    );
    let shows_rows = document.matches("data-head=\"listens on\"").count();
    assert!(shows_rows > 0, "{document}");
    let cut = document.split("data-cut=\"").nth(1).expect("a measure");
    cut.split('"').next().unwrap_or_default().to_owned()
}

/// The guide's screenshot is of this page: a digest of the page is stored beside it. `DORMOUSE_BLESS=1`
/// replaces the screenshot.
fn in_the_guide(page: &str, picture: &[u8]) {
    let guide = tools::home().join("../docs/guide");
    let file = guide.join("status.md");
    let text = std::fs::read_to_string(&file).expect("the guide");
    let mark = |digest: &str| format!("<!-- picture of page {digest} -->");
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let digest = format!("{:016x}", page.bytes().fold(0xcbf2_9ce4_8422_2325, hash));
    if std::env::var_os("DORMOUSE_BLESS").is_some() {
        let (before, rest) = text.split_once("<!-- picture of page ").expect("the mark");
        let (_, after) = rest.split_once(" -->").expect("its end");
        std::fs::write(&file, format!("{before}{}{after}", mark(&digest))).expect("written");
        std::fs::write(guide.join("status-page.png"), picture).expect("written");
        return;
    }
    assert!(
        text.contains(&mark(&digest)),
        "the status page has changed and its picture in the guide has not: \
         DORMOUSE_BLESS=1 cargo test -p dormouse-interop --test interop status_page"
    );
}

/// The document after some seconds of the browser's time, and a screenshot.
fn browse(url: &str, folder: &Path, picture: &Path) -> String {
    let run = |what: String| {
        let output = Command::new(tools::path("chromium"))
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args([
                "--disable-dev-shm-usage",
                "--window-size=390,1400",
                "--hide-scrollbars",
            ])
            .arg(format!(
                "--user-data-dir={}",
                folder.join("browser").display()
            ))
            .arg("--virtual-time-budget=7000")
            .args([&what, url])
            .stdin(Stdio::null())
            .output()
            .expect("chromium");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run(format!("--screenshot={}", picture.display()));
    run("--dump-dom".to_owned())
}

/// `dormouse top` on a small screen, a smaller one, and its exit.
#[test]
fn top_shows_the_status_in_a_terminal() {
    requires!(Can::BeDormouse, "tmux");
    let (scene, admin) = scene();
    let _probe = scene.probe();
    let socket = scene.folder.path().join("tmux").display().to_string();
    let tmux = |arguments: &[&str]| -> String {
        let output = Command::new(tools::path("tmux"))
            .args(["-S", &socket, "-f", "/dev/null"])
            .args(arguments)
            .output()
            .expect("tmux");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let done = scene.folder.path().join("done");
    let command = format!(
        "{} top --admin {admin}; echo $? >{}; sleep 60",
        tools::dormouse().display(),
        done.display()
    );
    tmux(&["new-session", "-d", "-x", "80", "-y", "24", &command]);
    let shows = |what: &str, expected: &[&str]| {
        wait::until(what, PATIENCE, || {
            let screen = tmux(&["capture-pane", "-p"]);
            expected
                .iter()
                .all(|text| screen.contains(text))
                .then_some(screen)
        })
    };
    let screen = shows(
        "a screen",
        &["ready for", "connections   1 of", "worker 1", "per second"],
    );
    assert!(
        screen.contains(&format!("{}  up", scene.backend.address())),
        "{screen}"
    );
    assert!(screen.contains("1 at rest   0 pending"), "{screen}");
    tmux(&["resize-window", "-x", "40", "-y", "8"]);
    std::thread::sleep(Duration::from_millis(1500));
    let small = shows("a small screen", &["ready for", "connections   1 of"]);
    assert!(
        !small.contains("worker 1") && small.lines().count() <= 8,
        "{small}"
    );
    tmux(&["send-keys", "q"]);
    let code = wait::until("its end", PATIENCE, || {
        std::fs::read_to_string(&done)
            .ok()
            .filter(|code| !code.is_empty())
    });
    assert_eq!(code.trim(), "0");
    // The tmux server exits with its session.
    tmux(&["kill-session"]);
    signal(scene.terminator.pid(), Signal::TERM);
}
