//! Redirects from plain HTTP to https: for curl, and for unusual clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::content::{Total, random};
use dormouse_interop::peer::Peer;
use dormouse_interop::process::{name, signal};
use dormouse_interop::scene::{PLAIN_PORT, unused_host};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use dormouse_interop::web::Web;
use rustix::process::Signal;

use crate::certificates::site::{Site, can_run};

const HTTP_PORT: u16 = 8081;

/// A site with a web server behind it, which also listens for plain HTTP.
fn site(options: &str) -> (Site, SocketAddr, Web) {
    let host = unused_host();
    let http = SocketAddr::new(host, HTTP_PORT);
    let web = Web::start(SocketAddr::new(host, PLAIN_PORT));
    let site = Site::at(host, &routes(&http.to_string(), options, &web), |_| {});
    (site, http, web)
}

fn routes(redirect: &str, options: &str, web: &Web) -> String {
    let own = authority().certificate(Kind::EcdsaP256);
    format!(
        "redirect = '{redirect}'\nredirect_port = 8443\n{options}\n[[route]]\nlisten = 'LISTEN'\n\
         to = '{}'\ncertificates = [{{ cert = '{}', key = '{}' }}]\n",
        web.address(),
        own.cert.display(),
        own.key.display()
    )
}

/// The response headers of `http://localhost/PATH` at this address, from curl.
fn curl(http: SocketAddr, path: &str, arguments: &[&str]) -> (Option<i32>, Vec<u8>) {
    let ip = http.ip();
    let output = Command::new(tools::path("curl"))
        .args(["--silent", "--show-error", "--max-time", "30", "--cacert"])
        .arg(authority().trust())
        .args(["--resolve", &format!("localhost:{}:{ip}", http.port())])
        .args(["--resolve", &format!("localhost:8443:{ip}")])
        .args(arguments)
        .arg(format!("http://localhost:{}{path}", http.port()))
        .output()
        .expect("curl runs");
    (output.status.code(), output.stdout)
}

fn redirects_to(http: SocketAddr, path: &str) -> String {
    let format = [
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code} %{redirect_url}",
    ];
    let (_, said) = curl(http, path, &format);
    String::from_utf8_lossy(&said).into_owned()
}

/// Sends these bytes, closes, and returns everything that comes back.
fn exchange(http: SocketAddr, bytes: &[u8]) -> String {
    let mut tcp = TcpStream::connect(http).expect("a connection");
    tcp.set_read_timeout(Some(PATIENCE)).expect("set");
    tcp.write_all(bytes).expect("sent");
    let mut all = Vec::new();
    tcp.read_to_end(&mut all).expect("a response and an end");
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn plain_http_is_redirected_to_https() {
    requires!(can_run(), "curl");
    let (site, http, web) = site("");
    assert_eq!(
        redirects_to(http, "/bytes/5?a=b%20c&d"),
        "308 https://localhost:8443/bytes/5?a=b%20c&d"
    );
    let (status, body) = curl(http, "/bytes/70000", &["--location", "--fail"]);
    assert_eq!(status, Some(0));
    assert_eq!(
        Some(&Total::of(&body)),
        web.sent().last(),
        "the body over https"
    );
    // With 308 a POST stays a POST: its body is sent to https only.
    let body = random(300_000);
    let file = site.folder.path().join("body");
    std::fs::write(&file, &body).expect("written");
    let post = format!("@{}", file.display());
    let arguments = ["--location", "--fail", "--data-binary", &post];
    let (status, digest) = curl(http, "/", &arguments);
    assert_eq!(status, Some(0));
    assert_eq!(String::from_utf8_lossy(&digest), Total::of(&body).sha256);
    // Workers have seen only the https clients.
    assert_eq!(site.admin.status()["counts"]["accepted"], 2);
}

#[test]
fn invalid_requests_are_answered_and_closed() {
    requires!(can_run());
    let (site, http, _web) = site("redirect_status = 301");
    for (bytes, status) in [
        (&b"GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n"[..], "301"),
        (b"GET / HTTP/1.1\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "400"),
        (
            b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "400",
        ),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "400"),
        (&[b'A'; 20_000], "431"),
    ] {
        let said = exchange(http, bytes);
        let line = format!("HTTP/1.1 {status} ");
        assert!(said.starts_with(&line), "{}: {said}", bytes.escape_ascii());
        assert_eq!(said.contains("Location:"), status == "301", "{said}");
        let responses = said.matches("Connection: close").count();
        assert_eq!(responses, 1, "one response: {said}");
    }
    let endless = [b"GET / HTTP/1.1\r\nHost: a\r\nX: ", &[b'x'; 30_000][..]].concat();
    assert!(exchange(http, &endless).starts_with("HTTP/1.1 431 "));
    // The response does not wait for the body, and is not lost to a reset.
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    let with_body = [&head[..], &random(100_000)].concat();
    assert!(exchange(http, &with_body).starts_with("HTTP/1.1 301 "));
    // Of two requests on one connection, the first is answered.
    let two = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    let said = exchange(http, two);
    assert!(
        said.contains("https://a:8443/1") && !said.contains("/2"),
        "{said}"
    );
    drop(site);
}

/// More silent clients than places: the next client is served anyway, and the silent ones are closed.
#[test]
fn silent_clients_keep_no_client_out() {
    requires!(can_run());
    let (_site, http, _web) = site("");
    let connect = |_| TcpStream::connect(http).expect("a connection");
    let mut silent: Vec<TcpStream> = (0..600).map(connect).collect();
    for one in silent.iter_mut().step_by(2) {
        // A client that was closed for another one may refuse the write.
        let _ = one.write_all(b"GET / HTT");
    }
    let said = exchange(http, b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 308 "), "{said}");
    for one in &mut silent {
        one.set_read_timeout(Some(PATIENCE)).expect("set");
        let end = one.read(&mut [0; 16]);
        let is_closed = match &end {
            Ok(0) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
            Ok(_) => false,
        };
        assert!(is_closed, "{end:?}");
    }
}

/// The only redirect process.
fn process(site: &Site) -> u32 {
    wait::until("one redirect process", PATIENCE, || {
        let is_it = |pid: &u32| name(*pid) == "redirect";
        let mut found = site.process.tree().into_iter().filter(is_it);
        found.next().filter(|_| found.next().is_none())
    })
}

#[test]
fn redirects_follow_crashes_reloads_drains_and_upgrades() {
    requires!(can_run(), "curl");
    let (site, http, web) = site("");
    let works = |http| redirects_to(http, "/x") == "308 https://localhost:8443/x";
    let mut https = Peer::connect(site.address).expect("a connection");
    assert!(works(http));

    let first = process(&site);
    signal(first, Signal::KILL);
    wait::until_true("another process", || process(&site) != first);
    assert!(works(http), "after a crash");

    // The process that accepted a client serves it to the end.
    let mut begun = TcpStream::connect(http).expect("a connection");
    begun.write_all(b"GET /old HTTP/1.1\r\n").expect("sent");
    std::thread::sleep(std::time::Duration::from_millis(100));
    let other = SocketAddr::new(http.ip(), HTTP_PORT + 1);
    site.reload(&routes(&other.to_string(), "redirect_status = 301", &web));
    wait::until_true("the new address to serve", || {
        redirects_to(other, "/x") == "301 https://localhost:8443/x"
    });
    begun.write_all(b"Host: a\r\n\r\n").expect("sent");
    let mut said = String::new();
    begun.read_to_string(&mut said).expect("a response");
    assert!(said.contains("308") && said.contains("/old"), "{said}");
    wait::until_true("the former address to be closed", || {
        TcpStream::connect(http).is_err()
    });

    site.admin.order("/upgrade").expect("an upgrade");
    assert!(
        redirects_to(other, "/x").starts_with("301"),
        "after an upgrade"
    );
    process(&site);

    site.admin.order("/drain?over=10m").expect("a drain");
    wait::until_true("a drain to refuse", || TcpStream::connect(other).is_err());
    site.admin.order("/drain/stop").expect("its end");
    wait::until_true("it to serve again", || {
        redirects_to(other, "/x").starts_with("301")
    });
    // None of this affected an https connection.
    let request = b"GET /bytes/3 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    https
        .stream()
        .write_all(request)
        .expect("an open connection");
    let mut first = [0; 12];
    https.stream().read_exact(&mut first).expect("a response");
    assert_eq!(&first, b"HTTP/1.1 200");
}
