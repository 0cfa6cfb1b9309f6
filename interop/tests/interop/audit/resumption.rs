//! Several machines behind one name, and tickets that age.

use std::path::Path;
use std::process::Command;

use dormouse_interop::certificates::{Kind, authority};
use serde_json::Value;

use dormouse_interop::scene::unused_port;

use super::{Started, audit, finds, read, until_listening};

/// Two servers behind one name, with shared ticket keys and with separate ones; and an address without a
/// server, of which only that is reported.
#[test]
fn two_machines_behind_one_name() {
    requires!("nginx");
    let folder = tempfile::tempdir().expect("a folder");
    let (one, other) = (
        folder.path().join("one.key"),
        folder.path().join("other.key"),
    );
    std::fs::write(&one, [1; 80]).expect("a file");
    std::fs::write(&other, [2; 80]).expect("a file");

    let (shared, status) = audit_pair(folder.path(), [&one, &one], "127.0.0.2,127.0.0.3", &[]);
    assert_eq!(status, Some(0), "{shared:#}");
    assert_eq!(shares(&shared), [(true, 12, 12), (false, 12, 12)]);
    assert!(!finds(&shared, "resumption-not-shared"));

    let least = ["--min-resumed", "95"];
    let (apart, status) = audit_pair(folder.path(), [&one, &other], "127.0.0.2,127.0.0.3", &least);
    assert_eq!(shares(&apart), [(true, 12, 12), (false, 12, 0)]);
    assert!(finds(&apart, "resumption-not-shared"), "{apart:#}");
    // At each address everything is resumed, but not across addresses.
    assert_eq!(status, Some(1));

    // The first address does not answer: the second is audited, and nothing is claimed about the first.
    let (alone, status) = audit_pair(folder.path(), [&one, &one], "127.0.0.9,127.0.0.2", &[]);
    assert_eq!(status, Some(0), "{alone:#}");
    assert!(!finds(&alone, "resumption-not-shared"));
    let about = alone["target"].as_str().unwrap_or_default();
    assert!(about.starts_with("127.0.0.2:"), "{about}");
    let unknown = alone["server"]["addresses"]["measured"]
        .as_array()
        .expect("addresses");
    let unknown = unknown
        .iter()
        .filter(|entry| entry["trials"]["not_measured"].is_string());
    assert_eq!(unknown.count(), 6, "{alone:#}");
}

/// Starts two servers on 127.0.0.2 and 127.0.0.3, and audits their common name.
fn audit_pair(
    folder: &Path,
    keys: [&Path; 2],
    addresses: &str,
    more: &[&str],
) -> (Value, Option<i32>) {
    let port = unused_port();
    let files = authority().certificate(Kind::EcdsaP256);
    let mut servers = Vec::new();
    for (place, key) in keys.into_iter().enumerate() {
        let address = format!("127.0.0.{}:{port}", place + 2);
        let name = folder.join(format!("nginx-{place}-{port}"));
        let configuration = format!(
            "daemon off; pid {0}.pid; error_log stderr; events {{}} http {{ access_log off;
             client_body_temp_path {0}-b; proxy_temp_path {0}-p; fastcgi_temp_path {0}-f; uwsgi_temp_path {0}-u; scgi_temp_path {0}-s;
             server {{ listen {address} ssl; ssl_protocols TLSv1.2 TLSv1.3; ssl_session_ticket_key {1};
             ssl_certificate {2}; ssl_certificate_key {3}; return 200 hello; }} }}",
            name.display(), key.display(), files.cert.display(), files.key.display(),
        );
        let path = name.with_extension("conf");
        std::fs::write(&path, configuration).expect("a file");
        let mut command = Command::new("nginx");
        command
            .args(["-e", "stderr", "-g", "master_process off;", "-p"])
            .arg(folder)
            .arg("-c")
            .arg(&path);
        servers.push(Started::new(&mut command));
        until_listening("nginx", &address);
    }
    let (target, resolve) = (
        format!("localhost:{port}"),
        format!("localhost:{port}:{addresses}"),
    );
    let words = [
        "server",
        &target,
        "--resolve",
        &resolve,
        "--insecure",
        "--quick",
        "-q",
    ];
    read(&audit(&[&words[..], more].concat()))
}

/// Offered and resumed tickets: at the same address, and at the other one.
fn shares(audit: &Value) -> [(bool, u64, u64); 2] {
    let all = audit["server"]["addresses"]["measured"]
        .as_array()
        .expect("addresses");
    [true, false].map(|home| {
        let some = all
            .iter()
            .filter(|entry| (entry["from"] == entry["to"]) == home);
        let sum = |what: &str| {
            let each = some
                .clone()
                .map(|entry| entry["trials"]["measured"][what].as_u64());
            each.map(Option::unwrap_or_default).sum()
        };
        (home, sum("offered"), sum("resumed"))
    })
}

/// Ages beyond the wait are unknown, and no client offers an expired ticket.
#[test]
fn tickets_that_have_aged() {
    requires!("nginx");
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("one.key");
    std::fs::write(&key, [1; 80]).expect("a file");
    let (audit, _) = audit_pair(folder.path(), [&key, &key], "127.0.0.2", &[]);
    let aged = audit["server"]["aged"]["measured"]
        .as_array()
        .expect("tickets");
    assert_eq!(aged.len(), 2, "{aged:#?}");
    for ticket in aged {
        assert_eq!(ticket["resumed"]["measured"], true, "{ticket:#}");
        assert_eq!(ticket["lifetime_s"], 300, "{ticket:#}");
        assert!(ticket["age_s"].as_f64() >= Some(3.0), "{ticket:#}");
    }
    assert!(audit["server"]["addresses"]["not_measured"].is_string());
}
