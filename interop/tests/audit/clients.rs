//! Clients, as they come.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use dormouse_interop::process::signal;
use dormouse_interop::web::Web;
use dormouse_interop::{tools, wait};
use rustix::process::Signal;

use crate::{PATIENCE, audit, read, start, unused_port};

/// An interrupted client: it is ended, and what it did is told.
#[test]
fn an_interrupted_client() {
    if !tools::present(&["curl"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("mark");
    let script = format!(
        "curl -sS $DORMOUSE_URL && echo $$ > {} && sleep 1234",
        mark.display()
    );
    let running = start(&["client", "-q", "--", "sh", "-c", &script]);
    let pid = wait::until("the first connection", PATIENCE, || {
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
    assert!(
        !Path::new(&format!("/proc/{}", pid.trim())).exists(),
        "the client goes on"
    );
}

fn curl(url: &str, trust: &Path, out: &Path) -> bool {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--cacert"])
        .arg(trust)
        .arg("-o")
        .arg(out)
        .arg(url);
    curl.status().expect("curl can be started").success()
}

/// Clients which come by themselves, to an address and with an authority that they are told.
#[test]
fn clients_that_come_by_themselves() {
    if !tools::present(&["curl"]) {
        return;
    }
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
    // Nobody else would end it: that is no failure.
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

/// A relay passes on what a real server answers, whole, and counts requests.
#[test]
fn a_relay_in_front_of_a_real_server() {
    if !tools::present(&["curl"]) {
        return;
    }
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
