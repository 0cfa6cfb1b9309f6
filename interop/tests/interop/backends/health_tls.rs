//! Health checks over TLS: nginx and OpenSSL's server, healthy and with various faults.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use dormouse_interop::admin::Admin;
use dormouse_interop::certificates::{Files, Kind, authority};
use dormouse_interop::checks;
use dormouse_interop::process::Process;
use dormouse_interop::scene::{TLS_PORT, unused_host};
use dormouse_interop::terminator::{Can, Settings};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rcgen::date_time_ymd;

/// One result is enough.
fn at_once(settings: &mut Settings) {
    settings.option("check_fall", "1");
    settings.option("check_rise", "1");
}

fn encrypt_again(settings: &mut Settings) {
    settings.option("backend_tls", "true");
    settings.option("backend_ca", &authority().trust().display().to_string());
    settings.option("backend_name", "localhost");
}

fn serving(name: &str, command: &[String], address: SocketAddr, folder: &Path) -> Process {
    let process = Process::start(name, command, folder);
    wait::until_listening(name, address);
    process
}

/// nginx requires our certificate and a PROXY protocol header, resumes sessions, and answers by whether a
/// file exists.
#[test]
fn nginx_is_checked_like_a_client_connects() {
    requires!(Can::BeDormouse, "nginx");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (here, own) = (
        folder.path().display(),
        authority().certificate(Kind::EcdsaP256),
    );
    let (cert, key) = (own.cert.display(), own.key.display());
    let address = SocketAddr::new(unused_host(), TLS_PORT);
    let text = format!(
        "daemon off; user root; worker_processes 1; pid {here}/nginx.pid; error_log stderr;
events {{ }}
http {{
    log_format seen '$request $status $ssl_client_verify $ssl_server_name $ssl_session_reused$ssl_alpn_protocol';
    access_log {here}/access.log seen;
    server {{
        listen {address} ssl proxy_protocol;
        ssl_certificate {cert}; ssl_certificate_key {key};
        ssl_client_certificate {ca}; ssl_verify_client on;
        ssl_session_cache shared:s:1m;
        location /healthz {{ if (-f {here}/down) {{ return 503; }} return 204; }}
    }}
}}
",
        ca = authority().trust().display(),
    );
    let file = folder.path().join("nginx.conf");
    fs::write(&file, text).expect("written");
    let command = tools::nginx(&file);
    let _nginx = serving("nginx", &command, address, folder.path());
    let (terminator, admin, _) = checks::start(&[address], folder.path(), |settings| {
        at_once(settings);
        encrypt_again(settings);
        settings.option("proxy_protocol", "v1");
        settings.option("check", "GET /healthz");
        settings.options.push((
            "backend_certificates",
            format!("[{{ cert = \"{cert}\", key = \"{key}\" }}]"),
        ));
        settings
            .options
            .push(("backend_alpn", "[\"h2\", \"http/1.1\"]".to_owned()));
    });
    checks::until(&admin, 0, "healthy");
    for resumed in [".", "r"] {
        let wanted = format!("GET /healthz HTTP/1.1 204 SUCCESS localhost {resumed}http/1.1");
        wait::until_true(&format!("nginx to log `{wanted}`"), || {
            let log = fs::read_to_string(folder.path().join("access.log")).unwrap_or_default();
            log.lines().any(|line| line == wanted)
        });
    }
    fs::write(folder.path().join("down"), "").expect("written");
    checks::until(&admin, 0, "unhealthy");
    assert_eq!(terminator.logged("status 503", 1).len(), 1, "said once");
    fs::remove_file(folder.path().join("down")).expect("removed");
    checks::until(&admin, 0, "healthy");
}

/// An OpenSSL server with this certificate.
fn s_server(files: &Files, arguments: &[&str], folder: &Path) -> (Process, SocketAddr) {
    let address = SocketAddr::new(unused_host(), TLS_PORT);
    let mut command = ["openssl", "s_server", "-www", "-quiet", "-accept"]
        .map(str::to_owned)
        .to_vec();
    command.push(address.to_string());
    command.extend(
        ["-cert", "-key"]
            .into_iter()
            .zip([&files.cert, &files.key])
            .flat_map(|(option, file)| [option.to_owned(), file.display().to_string()]),
    );
    command.extend(arguments.iter().map(ToString::to_string));
    (serving("s_server", &command, address, folder), address)
}

/// A handshake check finds what a client would find, and describes it; a server counts as healthy only after
/// it has verified our certificate.
#[test]
fn handshake_faults_are_described() {
    requires!(Can::BeDormouse, "openssl");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let here = folder.path();
    let good = authority().certificate(Kind::EcdsaP256);
    let expired = authority().give_out_with("expired", Kind::EcdsaP256, here, |params| {
        params.not_after = date_time_ymd(2024, 12, 31);
    });
    let other = authority().give_out_for("other", Kind::EcdsaP256, &["elsewhere.test"], here);
    let ca = authority().trust().display().to_string();
    let asks = ["-Verify", "1", "-verify_return_error", "-CAfile", &ca];
    let asks_12 = [&asks[..], &["-tls1_2"]].concat();
    let silent = TcpListener::bind((unused_host(), TLS_PORT)).expect("an unused address");
    let nobody = SocketAddr::new(unused_host(), TLS_PORT);
    let servers = [
        (s_server(good, &[], here), ""),
        (s_server(good, &["-tls1_2"], here), ""),
        (s_server(&expired, &[], here), "expired"),
        (s_server(&other, &[], here), "elsewhere.test"),
        (s_server(good, &asks, here), "certificate_required"),
        (s_server(good, &asks_12, here), "handshake"),
    ];
    let mut to: Vec<SocketAddr> = servers.iter().map(|((_, address), _)| *address).collect();
    let mut words: Vec<&str> = servers.iter().map(|(_, words)| *words).collect();
    to.extend([silent.local_addr().expect("an address"), nobody]);
    words.extend(["no TLS handshake within 1000 ms", "refused"]);
    let (terminator, admin, _) = checks::start(&to, here, |settings| {
        at_once(settings);
        encrypt_again(settings);
        settings.option("check", "tls");
    });
    for (number, words) in words.iter().enumerate() {
        checks::until(
            &admin,
            number,
            if words.is_empty() {
                "healthy"
            } else {
                "unhealthy"
            },
        );
        let backend = to[number].to_string();
        let is_said = |words: &str| {
            let lines = terminator.lines_with(&backend);
            lines
                .iter()
                .any(|line| line.contains("backend is unhealthy") && line.contains(words))
        };
        match *words {
            "" => assert!(!is_said(""), "{number} is healthy"),
            words => wait::until_true(words, || is_said(words)),
        }
    }
    // Ten checks later the results are the same: resumption hides no certificate.
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    for (number, words) in words.iter().enumerate() {
        let check = admin.status()["backends"][number]["check"].clone();
        assert_eq!(
            check,
            if words.is_empty() {
                "healthy"
            } else {
                "unhealthy"
            },
            "{number}"
        );
    }

    assert_pass_through_verifies_nothing(&to[1..4]);
}

/// With pass-through, the backends' certificates are for clients to verify.
fn assert_pass_through_verifies_nothing(to: &[SocketAddr]) {
    let pass = tempfile::tempdir().expect("a temporary folder");
    let file = pass.path().join("dormouse.toml");
    let listed: Vec<String> = to.iter().map(|to| format!("\"{to}\"")).collect();
    let text = format!(
        "admin = \"{}\"\n[[route]]\nlisten = \"{}:{TLS_PORT}\"\npass_through = true\n\
         to = [{}]\ncheck = \"tls\"\ncheck_every = \"100ms\"\n",
        pass.path().join("admin.sock").display(),
        unused_host(),
        listed.join(", ")
    );
    fs::write(&file, text).expect("written");
    let command = [
        tools::dormouse().display().to_string(),
        "serve".to_owned(),
        "-c".to_owned(),
        file.display().to_string(),
    ];
    let mut through = Process::start("dormouse", &command, pass.path());
    through.wait_for_line("ready", PATIENCE);
    let admin = Admin::at(&pass.path().join("admin.sock"));
    for number in 0..3 {
        checks::until(&admin, number, "healthy");
    }
}
