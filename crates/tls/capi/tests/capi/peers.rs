//! Every feature, with curl and OpenSSL as peers.

use std::collections::HashMap;
use std::process::Command;

use dormouse_testkit::{Authority, PemFiles};

use crate::build::{Watch, c};
use crate::process::{Server, certificate, run, succeed, text};

struct Answer {
    server: Server,
    files: PemFiles,
    _folder: tempfile::TempDir,
}

/// Starts the server of `tests/c/answer.c` for this many requests.
fn answer(requests: usize) -> Answer {
    let folder = tempfile::tempdir().unwrap();
    let files = certificate();
    let program = c(folder.path(), "tests/c/answer.c", Watch::Sanitizers);
    let mut command = Command::new(program);
    command.arg(requests.to_string());
    command
        .arg(files.certificate())
        .arg(files.key())
        .arg(files.authority());
    Answer {
        server: Server::start(&mut command),
        files,
        _folder: folder,
    }
}

impl Answer {
    fn curl(&self, name: &str, arguments: &[&str]) -> std::process::Output {
        let mut curl = Command::new("curl");
        let url = format!("https://{name}:{}/", self.server.port);
        let here = format!("{name}:{}:127.0.0.1", self.server.port);
        curl.args(["-sS", "--max-time", "60", "--resolve", &here, &url]);
        run(
            curl.args(arguments)
                .arg("--cacert")
                .arg(self.files.authority()),
            "",
        )
    }

    fn facts(&self, name: &str, arguments: &[&str]) -> HashMap<String, String> {
        let output = self.curl(name, arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        facts(&text(&output.stdout))
    }

    fn finish(self) {
        let ended = self.server.finish();
        assert_eq!(ended.code, Some(0), "{}", ended.errors);
    }
}

/// Parses lines of a word and its value.
fn facts(body: &str) -> HashMap<String, String> {
    let lines = body.lines().filter_map(|line| line.split_once(' '));
    lines
        .map(|(word, value)| (word.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn curl_gets_a_reply_in_both_versions() {
    let answer = answer(2);
    for (arguments, version, lines) in [
        (&["--tls-max", "1.2"][..], "303", "1"),
        (&["--tlsv1.3"], "304", "5"),
    ] {
        let facts = answer.facts("localhost", arguments);
        for (word, value) in [
            ("version", version),
            ("alpn", "http/1.1"),
            ("name", "localhost"),
            ("asked", "localhost"),
            ("verified", "0"),
            ("certificate", "0"),
            ("judged", "-1"),
            ("lines", lines),
            ("busy", "1"),
        ] {
            assert_eq!(facts[word], value, "{word}: {facts:?}");
        }
    }
    answer.finish();
}

#[test]
fn client_certificates_are_checked() {
    let answer = answer(2);
    let authority = Authority::shared();
    let good = PemFiles::write(authority, &authority.ecdsa(&["alice"])).unwrap();
    let stranger = Authority::new("stranger");
    let bad = PemFiles::write(&stranger, &stranger.ecdsa(&["mallory"])).unwrap();
    let with = |files: &PemFiles| {
        let paths = [files.certificate(), files.key()];
        let [certificate, key] = paths.map(|path| path.display().to_string());
        answer.curl("localhost", &["--cert", &certificate, "--key", &key])
    };
    let facts = facts(&text(&with(&good).stdout));
    assert_eq!(
        (facts["verified"].as_str(), facts["judged"].as_str()),
        ("1", "0")
    );
    assert_ne!(facts["certificate"], "0");
    assert!(!with(&bad).status.success());
    answer.finish();
}

#[test]
fn a_name_gets_the_chosen_certificate() {
    let answer = answer(2);
    let chosen = answer.facts("chosen.test", &["--insecure"]);
    assert_eq!(chosen["asked"], "chosen.test");
    let refused = answer.curl("chosen.test", &[]);
    assert!(
        text(&refused.stderr).contains("self"),
        "{}",
        text(&refused.stderr)
    );
    answer.finish();
}

#[test]
fn keying_material_and_resumption_match_openssl() {
    for version in ["-tls1_2", "-tls1_3"] {
        let answer = answer(2);
        let session = answer.files.directory().join("session");
        let mut keys = Vec::new();
        for (option, resumed) in [("-sess_out", "0"), ("-sess_in", "1")] {
            let mut openssl = Command::new("openssl");
            openssl.args(["s_client", "-connect", &answer.server.address(), version]);
            openssl.args(["-ign_eof", "-alpn", "http/1.1", "-servername", "localhost"]);
            openssl.args(["-keymatexport", "EXPORTER-test", "-keymatexportlen", "20"]);
            let output = succeed(openssl.arg(option).arg(&session), "GET / HTTP/1.1\r\n\r\n");
            let facts = facts(&output);
            assert_eq!(facts["resumed"], resumed, "{output}");
            let theirs = output
                .lines()
                .find_map(|line| line.trim().strip_prefix("Keying material: "));
            assert_eq!(theirs, Some(facts["key"].as_str()), "{output}");
            keys.push(facts["key"].clone());
        }
        assert_ne!(keys[0], keys[1]);
        answer.finish();
    }
}
