//! The steps of docs/guide/moving-in.md: each program's package serves a site to curl, dormouse takes its
//! place by the steps of the page, and curl gets the same answers.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::requirement::{Requirement as _, Root};
use dormouse_interop::scene::{PLAIN_PORT, unused_host};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use dormouse_interop::web::Web;

use super::import::{FormerProgram, dormouse, migrates_with, ready};

const NAME: &str = "a.example";
/// The ports that browsers expect; each test has its own address.
const HTTP: u16 = 80;
const HTTPS: u16 = 443;

/// A web site behind the program that is replaced.
struct Site {
    host: IpAddr,
    web: Web,
    folder: tempfile::TempDir,
    pem: String,
}

impl Site {
    /// `None`: the program is not installed, or this is not root, for whom ports below 1024 are.
    fn behind(program: &str) -> Option<Site> {
        if !ready(program) || !tools::present(&["curl"]) || !Root.is_met() {
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let files = authority().give_out_for(NAME, Kind::EcdsaP256, &[NAME], folder.path());
        let host = unused_host();
        Some(Site {
            host,
            web: Web::start(SocketAddr::new(host, PLAIN_PORT)),
            pem: files.both.display().to_string(),
            folder,
        })
    }

    fn https(&self) -> SocketAddr {
        SocketAddr::new(self.host, HTTPS)
    }

    fn here(&self) -> &Path {
        self.folder.path()
    }

    /// Status, redirects and final address, as reported by curl.
    fn curl(&self, arguments: &[&str], url: &str) -> String {
        let mut command = Command::new(tools::path("curl"));
        command
            .args(["--silent", "--show-error", "--max-time", "30", "--cacert"])
            .arg(authority().trust())
            .args(["--output", "/dev/null", "--write-out"])
            .arg("%{http_code} %{num_redirects} %{url_effective} %{size_download}");
        for port in [HTTP, HTTPS] {
            command.args(["--resolve", &format!("{NAME}:{port}:{}", self.host)]);
        }
        let output = command.args(arguments).arg(url).output();
        let output = output.expect("curl runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        String::from_utf8_lossy(&output.stdout).into_owned() + &said
    }

    /// Asserts what a visitor sees: the page over https, and the redirect from http.
    fn assert_serves(&self, redirects: bool) {
        let page = "https://a.example/bytes/5000?x=1";
        // The web server ignores the query.
        let page = page.trim_end_matches("?x=1");
        for version in [["--tls-max", "1.3"], ["--tls-max", "1.2"]] {
            assert_eq!(self.curl(&version, page), format!("200 0 {page} 5000"));
        }
        if redirects {
            let plain = page.replace("https", "http");
            let said = self.curl(&["--location"], &plain);
            assert_eq!(said, format!("200 1 {page} 5000"));
        }
    }
}

#[test]
fn a_site_of_nginx() {
    let Some(site) = Site::behind("nginx") else {
        return;
    };
    let (here, host, pem, web) = (
        site.here().display(),
        site.host,
        &site.pem,
        site.web.address(),
    );
    let log = format!("{here}/access.log");
    let text = format!(
        "daemon off; user root; pid {here}/nginx.pid; error_log stderr;
events {{ }}
http {{
    access_log {log};
    server {{
        listen {host}:80;
        server_name {NAME};
        return 301 https://$host$request_uri;
    }}
    server {{
        listen {host}:443 ssl;
        server_name {NAME};
        ssl_certificate {pem};
        ssl_certificate_key {pem};
        location / {{ proxy_pass http://{web}; proxy_set_header Host $host; }}
    }}
}}
"
    );
    let old = FormerProgram {
        kind: "nginx",
        text,
        at: site.https(),
    };
    // A connection that still ends when the process stops has another line.
    let _process = migrates_with(&old, &|| site.assert_serves(true), site.here());
    // The old log file continues, with our lines after those of nginx.
    let lines = wait::until("lines of connections", PATIENCE, || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let ours = text.lines().filter(|line| line.contains(" id="));
        let ours: Vec<String> = ours.map(str::to_owned).collect();
        (ours.len() == 3).then_some(ours)
    });
    for line in lines {
        assert!(
            line.contains("sni=a.example") && line.contains("end=closed"),
            "{line}"
        );
    }
}

#[test]
fn a_site_of_haproxy() {
    let Some(site) = Site::behind("haproxy") else {
        return;
    };
    let (host, pem, web) = (site.host, &site.pem, site.web.address());
    let text = format!(
        "defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend www
    bind {host}:80
    bind {host}:443 ssl crt {pem} alpn http/1.1
    http-request redirect scheme https code 301 unless {{ ssl_fc }}
    default_backend app
backend app
    server a {web}
"
    );
    let old = FormerProgram {
        kind: "haproxy",
        text,
        at: site.https(),
    };
    migrates_with(&old, &|| site.assert_serves(true), site.here());
}

/// The same file twice, for all frontends and for one: hitch allows that.
#[test]
fn a_site_of_hitch() {
    let Some(site) = Site::behind("hitch") else {
        return;
    };
    let (pem, web) = (&site.pem, site.web.address());
    let text = format!(
        "frontend = \"[{}]:443+{pem}\"
backend = \"[{}]:{}\"
workers = 1
user = \"root\"
group = \"root\"
ocsp-dir = \"\"
alpn-protos = \"http/1.1\"
pem-file = \"{pem}\"
pem-file = \"{pem}\"
",
        site.host,
        web.ip(),
        web.port()
    );
    let old = FormerProgram {
        kind: "hitch",
        text,
        at: site.https(),
    };
    migrates_with(&old, &|| site.assert_serves(false), site.here());
}

#[test]
fn a_site_of_stunnel() {
    let Some(site) = Site::behind("stunnel") else {
        return;
    };
    let (pem, web) = (&site.pem, site.web.address());
    let text = format!(
        "foreground = yes
pid = {}/stunnel.pid
cert = {pem}
[https]
accept = {}
connect = {web}
TIMEOUTclose = 0
",
        site.here().display(),
        site.https()
    );
    let old = FormerProgram {
        kind: "stunnel",
        text,
        at: site.https(),
    };
    migrates_with(&old, &|| site.assert_serves(false), site.here());
}

/// A service whose STARTTLS is unknown here would become a listener without use, so it is reported as left to do.
#[test]
fn starttls_of_stunnel_is_reported() {
    let Some(site) = Site::behind("stunnel") else {
        return;
    };
    let file = site.here().join("stunnel.conf").display().to_string();
    let text = "[news]\nclient = yes\naccept = 127.0.0.1:119\nconnect = news.example:119\nprotocol = nntp\n";
    std::fs::write(&file, text).expect("written");
    let imported = dormouse(&["import", "stunnel", &file]);
    let page = String::from_utf8_lossy(&imported.stdout);
    assert!(
        page.contains("line 5: protocol = nntp -- TLS starts after"),
        "{page}"
    );
    assert!(page.contains("keep stunnel for it"), "{page}");
    assert_eq!(imported.status.code(), Some(1), "{page}");
    let said = String::from_utf8_lossy(&imported.stderr);
    assert!(said.contains("to do before the result can run"), "{said}");
}

/// A plain HTTP server of nginx is reported, not dropped silently.
#[test]
fn a_plain_server_of_nginx_is_reported() {
    let Some(site) = Site::behind("nginx") else {
        return;
    };
    let file = site.here().join("nginx.conf").display().to_string();
    let pem = &site.pem;
    let tls = format!(
        "listen 443 ssl; server_name {NAME}; ssl_certificate {pem}; ssl_certificate_key {pem};
         location / {{ proxy_pass http://127.0.0.1:8080; proxy_set_header Host $host; }}"
    );
    for (plain, says) in [
        (
            "root /var/www/html;",
            "it does not use TLS: keep nginx for it",
        ),
        (
            "return 301 https://www.b.example$request_uri;",
            "does more than redirect to the same host",
        ),
        (
            "location /.well-known/acme-challenge/ { root /var/www; } location / { return 301 https://$host$request_uri; }",
            "ACME challenges were answered here",
        ),
    ] {
        let text = format!("http {{ server {{ listen 80; {plain} }} server {{ {tls} }} }}");
        std::fs::write(&file, text).expect("written");
        let imported = dormouse(&["import", "nginx", &file]);
        let page = String::from_utf8_lossy(&imported.stdout);
        let to_do = page.lines().find(|line| line.starts_with("todo = "));
        assert!(
            to_do.is_some_and(|line| line.contains(says)),
            "{says}: {page}"
        );
    }
}
