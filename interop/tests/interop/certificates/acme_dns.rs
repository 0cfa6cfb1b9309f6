//! Certificates by dns-01: Pebble asks BIND, which accepts signed updates.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use dormouse_interop::process::Process;
use dormouse_interop::scene::unused_host;
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};

use super::acme::{KIND, Pebble, ROUTE, free_port, kept, until_good};
use super::site::{Site, can_run};

const SECRET: &str = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0cw==";

/// A key file with this secret, which only its owner may read.
fn write_key(file: &Path, secret: &str) {
    let text = format!("key \"acme\" {{\n\talgorithm hmac-sha256;\n\tsecret \"{secret}\";\n}};\n");
    fs::write(file, text).expect("written");
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("a file of ours");
}

/// Starts BIND with three zones: of a name, of another name whose record is an alias, and of the alias. It is Pebble's
/// resolver, too, and only as a resolver follows the alias.
fn start_bind(folder: &Path) -> (Process, SocketAddr) {
    // It listens on addresses of interfaces only, of which this is the one that every machine has.
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let port = free_port(address);
    let here = folder.display();
    write_key(&folder.join("acme.key"), SECRET);
    let zone = |name: &str, more: &str| {
        let text = format!(
            "$TTL 60\n@ SOA ns.{name}. hostmaster.{name}. 1 60 60 600 60\n@ NS ns.{name}.\nns A 127.0.0.1\n{more}"
        );
        fs::write(folder.join(format!("{name}.zone")), text).expect("written");
        let policy = match more.is_empty() {
            true => "update-policy { grant acme zonesub TXT; };",
            false => "",
        };
        format!("zone \"{name}\" {{ type primary; file \"{here}/{name}.zone\"; {policy} }};\n")
    };
    let zones = [
        zone("wild.example", ""),
        zone(
            "alias.example",
            "_acme-challenge CNAME alias.acme.example.\n",
        ),
        zone("acme.example", ""),
    ]
    .concat();
    let config = folder.join("named.conf");
    let text = format!(
        "include \"{here}/acme.key\";\noptions {{ directory \"{here}\"; listen-on port {port} {{ {address}; }};\n\
         listen-on-v6 {{ none; }}; allow-recursion {{ any; }}; dnssec-validation no; pid-file \"{here}/named.pid\";\n\
         session-keyfile \"{here}/session.key\"; }};\ncontrols {{ }};\n{zones}"
    );
    fs::write(&config, text).expect("written");
    let command = [
        tools::path("named"),
        "-g".to_owned(),
        "-c".to_owned(),
        config.display().to_string(),
    ];
    let mut named = Process::start("named", &command, folder);
    named.wait_for_line("all zones loaded", PATIENCE);
    (named, SocketAddr::new(address, port))
}

/// A program writes the record with BIND's own tool. What it says about a failure is in the log.
#[test]
fn dns_01_by_a_program() {
    requires!(can_run());
    if !tools::present(&["pebble", "named", "curl", "nsupdate"]) {
        return;
    }
    let (folder, host) = (tempfile::tempdir().expect("a folder"), unused_host());
    let (named, server) = start_bind(folder.path());
    let key = fs::read_to_string(folder.path().join("acme.key")).expect("a key");
    let pebble = Pebble::asking(KIND, folder, host, server, named);
    let options = pebble
        .options("acme_challenge = 'dns-01'\nacme_dns_hook = 'HERE/hook'\nacme_dns_wait = '0s'");
    let routes = format!("{options}{ROUTE}acme = '*.wild.example'\n");
    let write = |folder: &Path, text: &str| {
        // In one step: an order may start the program at any time.
        let (new, hook) = (folder.join("new-hook"), folder.join("hook"));
        fs::write(&new, text).expect("written");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).expect("a file of ours");
        fs::rename(new, hook).expect("replaced");
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("a folder of ours");
    };
    let site = Site::at(host, &routes, |folder| {
        write(folder, "#!/bin/sh\necho not today >&2\nexit 7\n");
    });
    site.process.logged("exit status: 7: not today", 1);
    let secret = key.split('"').nth(3).expect("a secret");
    let script = format!(
        "#!/bin/sh\ncase $1 in add) what=\"add $2 60\";; *) what=\"delete $2\";; esac\n\
         printf 'server {} {}\\nzone wild.example\\nkey hmac-sha256:acme {secret}\\nupdate %s TXT %s\\nsend\\n' \
         \"$what\" \"$3\" | nsupdate\n",
        server.ip(),
        server.port()
    );
    write(site.folder.path(), &script);
    site.reload(&routes);
    until_good(&site, &pebble, "x.wild.example");
    // The certificate may be in use before the line about the removed record has been read.
    let changes = || {
        let lines = ["adding an RR", "deleting an RR"].map(|what| pebble.dns.lines_with(what));
        (lines.map(|found| found.len()) == [1, 1]).then_some(())
    };
    wait::until("one record added and removed", PATIENCE, changes);
}

/// A wildcard, and a name whose record is in another zone. The records are gone afterwards, and another kind of
/// certificate was ordered.
#[test]
fn dns_01_proves_wildcards_and_follows_aliases() {
    requires!(can_run());
    if !tools::present(&["pebble", "named", "curl"]) {
        return;
    }
    let (folder, host) = (tempfile::tempdir().expect("a folder"), unused_host());
    let (named, server) = start_bind(folder.path());
    let key = folder.path().join("acme.key");
    let pebble = Pebble::asking(KIND, folder, host, server, named);
    let options = pebble.options(&format!(
        "acme_challenge = 'dns-01'\nacme_dns_server = '{server}'\nacme_dns_key_file = 'HERE/dns.key'\n\
         acme_dns_wait = '0s'\nacme_profile = 'shortlived'"
    ));
    let routes = format!("{options}{ROUTE}acme = ['*.wild.example', 'alias.example']\n");
    // A key that the server does not have, at first.
    let site = Site::at(host, &routes, |folder| {
        write_key(&folder.join("dns.key"), &SECRET.replace("c2Vj", "AAAA"));
    });
    let said = || {
        let lines = site
            .process
            .lines_with("is not the one that it has (BADSIG)");
        (lines.len() == 2).then_some(())
    };
    wait::until("a line for each name", PATIENCE, said);
    let waits = site.s_client(&["-servername", "x.wild.example"]);
    assert!(!waits.contains("BEGIN CERTIFICATE"), "{waits}");
    fs::copy(key, site.folder.path().join("dns.key")).expect("copied");
    site.reload(&routes);
    for name in ["x.wild.example", "y.wild.example", "alias.example"] {
        until_good(&site, &pebble, name);
    }
    let file = kept(&site, &pebble, "_.wild.example.pem");
    let text = Command::new(tools::path("openssl"))
        .args([
            "x509",
            "-noout",
            "-ext",
            "subjectAltName",
            "-checkend",
            "600000",
            "-in",
        ])
        .arg(&file)
        .output()
        .expect("openssl runs");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("DNS:*.wild.example"), "{text}");
    assert!(text.contains("will expire"), "in six days: {text}");
    let changes = |what: &str| {
        let lines = pebble.dns.lines_with(what);
        let of = |zone: &str| lines.iter().filter(|line| line.contains(zone)).count();
        ["'wild.example/IN'", "'acme.example/IN'"].map(of)
    };
    assert_eq!(changes("adding an RR"), [1, 1]);
    assert_eq!(changes("deleting an RR"), [1, 1]);
    let log = site.process.log();
    assert!(
        !log.contains(SECRET) && !log.contains("left in DNS"),
        "{log}"
    );
}
