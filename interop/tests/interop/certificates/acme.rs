//! Certificates from a real ACME server: Pebble, with dnsmasq for names. It validates from three places at
//! once, rejects some nonces, and is slow.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::process::{Process, signal};
use dormouse_interop::requirement::Root;
use dormouse_interop::scene::{TLS_PORT, unused_host};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rcgen::SanType;
use rustix::process::Signal;
use serde_json::json;

use super::site::{Site, can_run};

/// Pebble and its DNS, and perhaps a proxy in front of it; they end with the test.
pub(super) struct Pebble {
    proxy: Option<Process>,
    _server: Process,
    pub(super) dns: Process,
    folder: tempfile::TempDir,
    address: IpAddr,
}

const DIRECTORY_PORT: u16 = 14000;
const MANAGEMENT_PORT: u16 = 14001;
const PROXY_PORT: u16 = 14002;
const PROXY: &str = include_str!("acme_proxy.py");

/// Behaviour of the server.
#[derive(Clone, Copy)]
pub(super) struct ServerBehaviour {
    /// Percentage of rejected nonces.
    rejects: u32,
    /// Whether it waits before it validates a name.
    sleeps: bool,
    /// Whether an account needs an external account binding.
    bound: bool,
}

pub(super) const KIND: ServerBehaviour = ServerBehaviour {
    rejects: 0,
    sleeps: false,
    bound: false,
};

const EAB_ID: &str = "kid-1";
const EAB_KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

impl Pebble {
    /// `None`: Pebble cannot run here, which is reported.
    fn start(behaviour: ServerBehaviour, names_at: &[(&str, IpAddr)]) -> Option<Pebble> {
        if !can_run() || !tools::present(&["pebble", "dnsmasq", "curl"]) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let address = unused_host();
        let dns_port = free_port(address);
        let mut dns = vec![
            tools::path("dnsmasq"),
            "--keep-in-foreground".to_owned(),
            "--conf-file=/dev/null".to_owned(),
            "--log-facility=-".to_owned(),
            "--user=root".to_owned(),
            format!("--pid-file={}", folder.path().join("dns.pid").display()),
            format!("--listen-address={address}"),
            format!("--port={dns_port}"),
            "--bind-interfaces".to_owned(),
            "--no-resolv".to_owned(),
            "--no-hosts".to_owned(),
        ];
        dns.extend(
            names_at
                .iter()
                .map(|(name, at)| format!("--address=/{name}/{at}")),
        );
        let mut dns = Process::start("dnsmasq", &dns, folder.path());
        dns.wait_for_line("started", PATIENCE);
        let dns_at = SocketAddr::new(address, dns_port);
        Some(Pebble::asking(behaviour, folder, address, dns_at, dns))
    }

    /// Starts it with a DNS server of the test.
    pub(super) fn asking(
        behaviour: ServerBehaviour,
        folder: tempfile::TempDir,
        address: IpAddr,
        dns_at: SocketAddr,
        dns: Process,
    ) -> Pebble {
        let own = authority().give_out_with("pebble", Kind::EcdsaP256, folder.path(), |params| {
            params.subject_alt_names = vec![SanType::IpAddress(address)];
        });
        let management = SocketAddr::new(address, MANAGEMENT_PORT);
        let mut config = json!({ "pebble": {
            "listenAddress": SocketAddr::new(address, DIRECTORY_PORT).to_string(),
            "managementListenAddress": management.to_string(),
            "certificate": own.cert,
            "privateKey": own.key,
            "httpPort": 80,
            "tlsPort": TLS_PORT,
            "keyAlgorithm": "ecdsa",
            "externalAccountBindingRequired": behaviour.bound,
            "profiles": {
                "default": { "description": "the usual one", "validityPeriod": 7_776_000 },
                "shortlived": { "description": "for six days", "validityPeriod": 518_400 },
            },
        }});
        if behaviour.bound {
            config["pebble"]["externalAccountMACKeys"] = json!({ EAB_ID: EAB_KEY });
        }
        let file = folder.path().join("pebble.json");
        fs::write(&file, config.to_string()).expect("written");
        let mut command = vec!["env".to_owned()];
        command.push(format!("PEBBLE_WFE_NONCEREJECT={}", behaviour.rejects));
        command.push(match behaviour.sleeps {
            true => "PEBBLE_VA_SLEEPTIME=3".to_owned(),
            false => "PEBBLE_VA_NOSLEEP=1".to_owned(),
        });
        command.extend([
            tools::path("pebble"),
            "-config".to_owned(),
            file.display().to_string(),
            "-dnsserver".to_owned(),
            dns_at.to_string(),
        ]);
        let mut server = Process::start("pebble", &command, folder.path());
        server.wait_for_line("ACME directory available", PATIENCE);
        let pebble = Pebble {
            proxy: None,
            _server: server,
            dns,
            folder,
            address,
        };
        fs::write(
            pebble.roots(),
            pebble.ask(MANAGEMENT_PORT, "/roots/0", None),
        )
        .expect("written");
        pebble
    }

    /// The CA that clients of this server's certificates trust.
    fn roots(&self) -> PathBuf {
        self.folder.path().join("roots.pem")
    }

    /// Sends a request to this port of the server or its proxy, over HTTPS.
    fn ask(&self, port: u16, path: &str, body: Option<&Path>) -> String {
        let mut curl = Command::new(tools::path("curl"));
        curl.args(["--silent", "--show-error", "--fail", "--cacert"])
            .arg(authority().trust());
        if let Some(body) = body {
            curl.arg("--data-binary")
                .arg(format!("@{}", body.display()));
        }
        let at = SocketAddr::new(self.address, port);
        curl.arg(format!("https://{at}{path}"));
        let output = curl.output().expect("curl runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{path}: {said}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Makes the server ask for an immediate renewal of this certificate.
    fn request_renewal(&self, certificate: &Path) {
        let text = fs::read_to_string(certificate).expect("a certificate");
        let window = json!({ "suggestedWindow": {
            "start": "2020-01-01T00:00:00Z",
            "end": "2020-01-02T00:00:00Z",
        }});
        let body = self.folder.path().join("window.json");
        let wanted = json!({ "Certificate": text, "ARIResponse": window.to_string() });
        fs::write(&body, wanted.to_string()).expect("written");
        self.ask(MANAGEMENT_PORT, "/set-renewal-info/", Some(&body));
    }

    /// Puts a proxy with this behaviour in front of the server.
    fn behind(mut self, behaviour: &str) -> Pebble {
        let script = self.folder.path().join("acme_proxy.py");
        fs::write(&script, PROXY).expect("written");
        let own = |file: &str| self.folder.path().join(file).display().to_string();
        let at = |port: u16| SocketAddr::new(self.address, port).to_string();
        let command = [
            tools::path("python3"),
            script.display().to_string(),
            at(PROXY_PORT),
            at(DIRECTORY_PORT),
            own("pebble.pem"),
            own("pebble.key"),
            behaviour.to_owned(),
        ];
        let mut proxy = Process::start("proxy", &command, self.folder.path());
        proxy.wait_for_line("ready", PATIENCE);
        self.proxy = Some(proxy);
        self
    }

    /// The number of requests of this kind that the proxy has seen.
    fn requests(&self, kind: &str) -> usize {
        let proxy = self.proxy.as_ref().expect("a proxy");
        proxy.lines_with(kind).len()
    }

    fn port(&self) -> u16 {
        match self.proxy {
            Some(_) => PROXY_PORT,
            None => DIRECTORY_PORT,
        }
    }

    /// The options of a site with certificates from this server.
    pub(super) fn options(&self, more: &str) -> String {
        let port = self.port();
        format!(
            "acme_server = 'https://{}:{port}/dir'\nacme_terms_agreed = true\n\
             acme_email = 'hostmaster@one.example'\nacme_folder = 'HERE/acme'\nacme_ca = '{}'\n{more}\n",
            self.address,
            authority().trust().display(),
        )
    }
}

pub(super) fn free_port(address: IpAddr) -> u16 {
    let listener = TcpListener::bind((address, 0)).expect("a listener");
    listener.local_addr().expect("its address").port()
}

pub(super) const ROUTE: &str = "[[route]]\nlisten = 'LISTEN'\nto = 'echo:'\n";

/// Whether the site serves a certificate for this name that the server has issued.
fn is_good(site: &Site, pebble: &Pebble, name: &str) -> bool {
    let roots = pebble.roots();
    let roots = roots.to_string_lossy();
    let said = site.s_client(&[
        "-servername",
        name,
        "-verify_hostname",
        name,
        "-CAfile",
        &roots,
    ]);
    said.contains("BEGIN CERTIFICATE") && said.contains("Verify return code: 0 (ok)")
}

pub(super) fn until_good(site: &Site, pebble: &Pebble, name: &str) {
    wait::until_true("a certificate that can be trusted", || {
        std::thread::sleep(Duration::from_millis(50));
        is_good(site, pebble, name)
    });
}

fn serial(site: &Site, name: &str) -> String {
    let file = site.folder.path().join("shown.pem");
    fs::write(&file, site.s_client(&["-servername", name])).expect("written");
    let mut openssl = Command::new(tools::path("openssl"));
    let output = openssl
        .args(["x509", "-noout", "-serial", "-in"])
        .arg(&file)
        .output();
    let output = output.expect("openssl runs");
    assert!(output.status.success(), "no certificate is shown");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(super) fn kept(site: &Site, pebble: &Pebble, name: &str) -> PathBuf {
    let folder = format!("acme/{}_{}", pebble.address, pebble.port());
    site.folder.path().join(folder).join(name)
}

/// The answer to a client that offers acme-tls/1 for this name.
fn challenged(site: &Site, name: &str) -> String {
    site.s_client(&["-servername", name, "-alpn", "acme-tls/1"])
}

/// Asserts that only the owner can read the files, and that the log contains no key.
fn assert_private(site: &Site, file: &Path, account: &Path) {
    let mode = |path: &Path| {
        fs::metadata(path)
            .expect("an existing file")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!((mode(file), mode(account)), (0o600, 0o600));
    assert_eq!(mode(file.parent().expect("a folder")), 0o700);
    let text = fs::read_to_string(file).expect("read");
    let (_, key) = text.split_once("PRIVATE KEY-----\n").expect("a key");
    let secret = key.lines().next().expect("a line");
    assert!(!site.process.log().contains(secret), "the log has the key");
}

#[test]
fn a_certificate_is_obtained_while_serving_and_renewed_in_the_servers_window() {
    let host = unused_host();
    let behaviour = ServerBehaviour {
        rejects: 20,
        ..KIND
    };
    let Some(pebble) = Pebble::start(behaviour, &[("one.example", host)]) else {
        return;
    };
    let routes = format!(
        "workers = 3\n{}{ROUTE}acme = 'one.example'\n",
        pebble.options("")
    );
    let site = Site::at(host, &routes, |_| {});
    until_good(&site, &pebble, "one.example");
    for version in ["-tls1_2", "-tls1_3"] {
        let said = site.s_client(&["-servername", "other.example", version]);
        assert!(said.contains("BEGIN CERTIFICATE"), "the default: {said}");
    }
    // The challenge is closed, and clients that ask for it never reach a backend.
    let said = challenged(&site, "one.example");
    assert!(said.contains("SSL alert number 120"), "{said}");
    assert!(!said.contains("BEGIN CERTIFICATE"), "{said}");

    let file = kept(&site, &pebble, "one.example.pem");
    assert_private(&site, &file, &kept(&site, &pebble, "account.json"));

    let status = site.admin.status();
    let of = &status["acme"]["names"][0];
    assert_eq!(status["acme"]["issued"], 1, "{status}");
    assert_eq!(
        (&of["name"], &of["failures"]),
        (&json!("one.example"), &json!(0))
    );
    assert!(
        of["next_in_s"].as_u64() < of["expires_in_s"].as_u64(),
        "{of}"
    );
    let looked = status["counts"]["acme_challenges_answered"].as_u64();
    assert!(
        looked >= Some(3),
        "the server looks from three places: {looked:?}"
    );

    // An established connection notices nothing of the renewal.
    let first = serial(&site, "one.example");
    pebble.request_renewal(&file);
    site.admin.order("/reload").expect("a reload");
    let renewed = || Some(serial(&site, "one.example")).filter(|now| *now != first);
    let second = wait::until("another certificate", PATIENCE, renewed);
    assert!(is_good(&site, &pebble, "one.example"));
    let accounts = site.process.logged("ACME account created", 1);
    assert_eq!(
        accounts.len(),
        1,
        "it is asked by the same account: {accounts:?}"
    );
    let (_, metrics) = site.admin.ask("GET", "/metrics");
    for line in [
        "dormouse_acme_orders_total{result=\"issued\"} 2",
        "dormouse_acme_orders_total{result=\"failed\"} 0",
        "dormouse_acme_failures{name=\"one.example\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }

    // A start with these files needs no server.
    let folder = site.folder.path().to_owned();
    drop(pebble);
    let site = site.restarted();
    assert_eq!(serial(&site, "one.example"), second);
    assert!(folder.is_dir());
}

#[test]
fn a_failing_name_delays_no_other() {
    let (host, nowhere) = (unused_host(), unused_host());
    let behaviour = ServerBehaviour {
        bound: true,
        ..KIND
    };
    let names = [("lost.example", nowhere), ("two.example", host)];
    let Some(pebble) = Pebble::start(behaviour, &names) else {
        return;
    };
    let eab = format!("acme_eab_id = '{EAB_ID}'\nacme_eab_key_file = 'HERE/eab.key'");
    let routes = format!(
        "{}{ROUTE}acme = ['lost.example', 'two.example']\n",
        pebble.options(&eab)
    );
    let site = Site::at(host, &routes, |folder| {
        let file = folder.join("eab.key");
        fs::write(&file, format!("{EAB_KEY}\n")).expect("written");
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("set");
    });
    until_good(&site, &pebble, "two.example");
    let says = |what: &str| site.process.logged(what, 1).swap_remove(0);
    let line = says("ACME order failed; clients that ask for this name are refused");
    for part in ["lost.example", "Failed to connect", "retry_in_s=60"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    for version in ["-tls1_2", "-tls1_3"] {
        let said = site.s_client(&["-servername", "lost.example", version]);
        assert!(said.contains("SSL alert number 112"), "{said}");
    }
    says("the client requested lost.example, whose certificate has not been issued yet");
    let status = site.admin.status();
    let of = &status["acme"]["names"][0];
    assert_eq!(
        (&of["name"], &of["failures"]),
        (&json!("lost.example"), &json!(1))
    );
    let why = of["last_error"].as_str().expect("a reason");
    assert!(why.contains("the server answered unauthorized"), "{why}");
    assert!(
        of["expires_in_s"].is_null() && status["acme"]["failed"] == 1,
        "{status}"
    );
}

/// By http-01, on the port of plain HTTP; the server cannot reach the TLS port.
#[test]
fn a_certificate_is_obtained_by_http_01() {
    // For port 80.
    requires!(Root);
    let host = unused_host();
    let Some(pebble) = Pebble::start(KIND, &[("four.example", host)]) else {
        return;
    };
    let http = format!("redirect = '{host}:80'\nacme_challenge = 'http-01'");
    let routes = format!(
        "workers = 2\n{}{}acme = 'four.example'\n",
        pebble.options(&http),
        ROUTE.replace("LISTEN", &format!("{host}:9443"))
    );
    let mut site = Site::at(host, &routes, |_| {});
    site.address.set_port(9443);
    until_good(&site, &pebble, "four.example");
    let status = site.admin.status();
    assert_eq!(status["acme"]["issued"], 1, "{status}");
    let answered = &status["counts"]["acme_challenges_answered"];
    assert_eq!(*answered, 0, "no worker was asked");
}

/// Any process may be killed during a validation; the certificate is issued anyway.
#[test]
fn an_order_survives_kills() {
    let host = unused_host();
    let behaviour = ServerBehaviour {
        sleeps: true,
        ..KIND
    };
    let Some(pebble) = Pebble::start(behaviour, &[("three.example", host)]) else {
        return;
    };
    let routes = format!(
        "workers = 2\n{}{ROUTE}acme = 'three.example'\n",
        pebble.options("")
    );
    let mut site = Site::at(host, &routes, |_| {});
    // The errand: the order is lost, which is logged.
    let errand = wait::until("an errand", PATIENCE, || site.process.named("errand"));
    signal(errand, Signal::KILL);
    site.process.logged("the errand process ended", 1);
    site.admin
        .order("/reload")
        .expect("a reload, which orders at once");
    let second = wait::until("another errand", PATIENCE, || site.process.named("errand"));
    // An upgrade cancels the errand, and the new binary starts its own.
    site.admin.order("/upgrade").expect("an upgrade");
    wait::until("an errand of the new binary", PATIENCE, || {
        site.process.named("errand").filter(|pid| *pid != second)
    });
    // Main: all processes exit, and the next start begins again.
    site = site.restarted_after_a_crash();
    // Workers, one after the other, while the challenge is open. (If the server does not wait at all, the
    // order may be complete already.)
    let mut killed = 0;
    let end = std::time::Instant::now() + PATIENCE;
    while !is_good(&site, &pebble, "three.example") {
        if std::time::Instant::now() >= end {
            let log = site.process.log();
            let lines = log.lines().filter(|line| !line.contains("handshake"));
            panic!("no certificate comes: {:#?}", lines.collect::<Vec<_>>());
        }
        if killed < 2 && challenged(&site, "three.example").contains("ALPN protocol: acme-tls/1") {
            let workers = site.process.workers();
            signal(workers[killed % workers.len()], Signal::KILL);
            killed += 1;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let restarts = site.admin.status()["counts"]["restarts"].as_u64();
    assert_eq!(restarts, Some(killed as u64));
}

/// A server that works on an order for longer than an errand lives: it is asked again when it wants to be, and completes the
/// one order.
#[test]
fn a_slow_server_completes_one_order() {
    requires!(can_run(), "python3");
    let host = unused_host();
    let Some(pebble) = Pebble::start(KIND, &[("five.example", host)]) else {
        return;
    };
    let pebble = pebble.behind("slow:8:5");
    let routes = format!("{}{ROUTE}acme = 'five.example'\n", pebble.options(""));
    let site = Site::at(host, &routes, |_| {});
    until_good(&site, &pebble, "five.example");
    assert_eq!(pebble.requests("POST order-plz"), 1);
    assert_eq!(pebble.requests("POST finalize-order"), 1);
    // At first, then twice after five seconds.
    assert!(pebble.requests("POST my-order") <= 12);
    let waits = site
        .process
        .logged("ACME server is processing the order", 2);
    assert_eq!(waits.len(), 2, "{waits:?}");
    let status = site.admin.status();
    assert_eq!(status["acme"]["failed"], 0, "{status}");
}

/// A server that validates a name when it likes. Meanwhile the other names get their certificates, and its challenge is
/// answered.
#[test]
fn a_slow_validation_delays_no_other_name() {
    requires!(can_run(), "python3");
    let host = unused_host();
    let names = ["a.example", "b.example"];
    let Some(pebble) = Pebble::start(KIND, &names.map(|name| (name, host))) else {
        return;
    };
    let pebble = pebble.behind("holds");
    let routes = format!(
        "workers = 2\n{}{ROUTE}acme = ['a.example', 'b.example']\n",
        pebble.options("")
    );
    let site = Site::at(host, &routes, |_| {});
    until_good(&site, &pebble, "b.example");
    assert!(!is_good(&site, &pebble, "a.example"));
    assert!(challenged(&site, "a.example").contains("ALPN protocol: acme-tls/1"));
    let closed = challenged(&site, "b.example");
    assert!(!closed.contains("ALPN protocol: acme-tls/1"), "{closed}");
    // A worker that starts now answers it, too. Half of all clients come to it, so ten answers in a row are also its own. A
    // validation before that would fail, and a third order follow.
    signal(site.process.workers()[0], Signal::KILL);
    let mut in_a_row = 0;
    wait::until_true("the challenge answered by all workers", || {
        let is_answered = challenged(&site, "a.example").contains("ALPN protocol: acme-tls/1");
        in_a_row = if is_answered { in_a_row + 1 } else { 0 };
        in_a_row == 10
    });
    pebble.ask(PROXY_PORT, "/let-go", None);
    until_good(&site, &pebble, "a.example");
    assert_eq!(pebble.requests("POST order-plz"), 2);
    let status = site.admin.status();
    assert_eq!(status["acme"]["failed"], 0, "{status}");
}

/// A server inside a company may ask its clients for a certificate. One that is renewed is shown without a reload.
#[test]
fn a_server_may_require_a_certificate() {
    requires!(can_run(), "python3");
    let host = unused_host();
    let Some(pebble) = Pebble::start(KIND, &[("eight.example", host)]) else {
        return;
    };
    let trust = authority().trust();
    let pebble = pebble.behind(&format!("asks:{}", trust.display()));
    let own = "acme_certificates = { cert = 'HERE/own.pem', key = 'HERE/own.key' }";
    let routes = format!(
        "reload_certificates = '100ms'\n{}{ROUTE}acme = 'eight.example'\n",
        pebble.options(own)
    );
    let strange = rcgen::generate_simple_self_signed(["machine".to_owned()]);
    let strange = strange.expect("a certificate");
    let site = Site::at(host, &routes, |folder| {
        let key = folder.join("own.key");
        fs::write(folder.join("own.pem"), strange.cert.pem()).expect("written");
        fs::write(&key, strange.signing_key.serialize_pem()).expect("written");
        fs::set_permissions(key, fs::Permissions::from_mode(0o600)).expect("set");
    });
    site.process.logged("ACME order failed", 1);
    authority().give_out("own", Kind::EcdsaP256, 2035, site.folder.path());
    site.process.logged("certificates reloaded", 1);
    site.admin
        .order("/reload")
        .expect("a reload, which orders at once");
    until_good(&site, &pebble, "eight.example");
}

/// A server that refuses all orders of an account, as if it had never heard of it: another account is created, once.
#[test]
fn a_forgotten_account_is_replaced() {
    requires!(can_run(), "python3");
    for status in [404, 500] {
        let host = unused_host();
        let Some(pebble) = Pebble::start(KIND, &[("six.example", host)]) else {
            return;
        };
        let pebble = pebble.behind(&format!("forgets:{status}"));
        let routes = format!("{}{ROUTE}acme = 'six.example'\n", pebble.options(""));
        let site = Site::at(host, &routes, |_| {});
        for failures in 1..=2 {
            site.process.logged("ACME order failed", failures);
            // Tries again at once.
            site.admin.order("/reload").expect("a reload");
        }
        until_good(&site, &pebble, "six.example");
        assert_eq!(pebble.requests("POST sign-me-up"), 2, "{status}");
    }
}

/// A file system that is full, until this is dropped.
struct FullFolder(PathBuf);

impl FullFolder {
    fn at(path: &Path) -> FullFolder {
        fs::create_dir(path).expect("a folder");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "none"])
            .arg(path)
            .status();
        assert!(mounted.is_ok_and(|status| status.success()), "mounted");
        fs::write(path.join("all"), [b'x'; 64 << 10]).expect("written");
        FullFolder(path.to_owned())
    }
}

impl Drop for FullFolder {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Certificates are used although they cannot be saved, by one account, and saved when there is room.
#[test]
fn what_a_full_folder_did_not_take_is_saved_later() {
    requires!(can_run(), Root);
    let host = unused_host();
    let names = ["a.example", "b.example", "c.example"];
    let Some(pebble) = Pebble::start(KIND, &names.map(|name| (name, host))) else {
        return;
    };
    let routes = format!(
        "{}{ROUTE}acme = ['a.example', 'b.example', 'c.example']\n",
        pebble.options("")
    );
    let mut folder = None;
    let site = Site::at(host, &routes, |at| {
        folder = Some(FullFolder::at(&at.join("acme")))
    });
    for name in names {
        until_good(&site, &pebble, name);
    }
    let created = site.process.logged("ACME account created", 1);
    assert_eq!(created.len(), 1, "{created:?}");
    // The next binary knows no more than what is in use.
    site.admin.order("/upgrade").expect("an upgrade");
    let folder = folder.expect("a folder");
    fs::remove_file(folder.0.join("all")).expect("removed");
    site.admin.order("/reload").expect("a reload");
    for name in names {
        let file = kept(&site, &pebble, &format!("{name}.pem"));
        wait::until_true("a saved certificate", || file.exists());
    }
    // A start with these files orders nothing.
    let first = serial(&site, "a.example");
    drop(pebble);
    let site = site.restarted();
    assert_eq!(serial(&site, "a.example"), first);
    drop((site, folder));
}
