//! Log lines about failed clients, as JSON for programs.

use std::io::{Read, Write};
use std::net::SocketAddr;

use dormouse_interop::peer::connect_tcp;
use dormouse_interop::scene::{self, TLS_PORT, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::wait;
use serde_json::Value;

/// Each line is an object with the reason and the client's address; many failures share one line, unless a line
/// for each is configured.
#[test]
fn failures_are_json_lines_with_reasons() {
    requires!(Can::BeDormouse);
    const FAILURES: usize = 60;
    for each in [false, true] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let listen = SocketAddr::new(unused_host(), TLS_PORT);
        let mut settings = Settings::new(listen, Target::Echo);
        settings.option("log_format", "json");
        settings.option("log_handshakes", &each.to_string());
        let terminator = scene::start(Terminator::Dormouse, &settings, folder.path());
        for _ in 0..FAILURES {
            let mut stranger = connect_tcp(listen).expect("a connection");
            stranger
                .write_all(b"\x16\x03\x01\x00\x05no TLS")
                .expect("sent");
            let _ = stranger.read_to_end(&mut Vec::new());
        }
        let expected = if each { FAILURES } else { 1 };
        wait::until_true("lines of the failures", || {
            terminator.lines_with("handshake failed").len() >= expected
        });
        let log = terminator.log();
        let lines: Vec<Value> = log
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect();
        let is_failure = |line: &&Value| line.to_string().contains("handshake failed");
        let failures: Vec<&Value> = lines.iter().filter(is_failure).collect();
        assert_eq!(failures.len(), expected, "{log}");
        for failure in failures {
            let text = failure.to_string();
            assert!(
                failure["timestamp"].is_string() && failure["level"].is_string(),
                "{text}"
            );
            assert!(
                failure["peer"]
                    .as_str()
                    .is_some_and(|peer| peer.starts_with("127.")),
                "{text}"
            );
            assert!(
                text.contains("message") && text.len() > 100,
                "a reason in words: {text}"
            );
        }
    }
}
