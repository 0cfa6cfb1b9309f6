//! Python, Go, Java and Node, each with TLS 1.3 and 1.2, in the same scenarios.

use dormouse_interop::backend::Ending;
use dormouse_interop::client::{Job, Language, Version};
use dormouse_interop::scene::{Scene, applies};
use dormouse_interop::terminator::Can;
use dormouse_interop::wait;

/// Maximum bytes between a sender and a reader that has stopped, apart from the client's own buffers: those
/// of three sockets (256 KiB each, which the kernel doubles), and the gateway's. Without a bound it would be
/// everything.
const LEAD_MAX: u64 = 2 << 20;

/// Transfer size in every run; the long runs use another one.
const BIG: u64 = 12_000_000;
const HUGE: u64 = 100_000_000;

/// Echo, in messages from one byte to more than a record, then a clean close on both sides.
fn echo(language: Language, version: Version) {
    let scene = Scene::new();
    let answer = Job::new(language, version, "echo", 300_000).run(&scene);
    let report = scene.backend.report();
    assert_eq!(answer.text("version"), version.name());
    assert_eq!(answer.sent(), answer.received(), "sent and echoed");
    assert_eq!(
        answer.sent(),
        report.received,
        "sent by the client and received behind"
    );
    assert_eq!(report.ended, Ending::Fin);
    answer.assert_clean_end(&scene);
}

/// The backend stops reading after 1 MiB: the client gets backpressure, and nothing is lost.
fn upload(language: Language, version: Version) {
    upload_of(language, version, BIG);
}

fn upload_huge(language: Language, version: Version) {
    upload_of(language, version, HUGE);
}

fn upload_of(language: Language, version: Version, bytes: u64) {
    let scene = Scene::new();
    let mut client = Job::new(language, version, "upload", bytes).start(&scene);
    client.wait_for("sent ");
    let sent = wait::until_still("the client that sends to a stopped reader", || {
        client.latest("sent ").unwrap_or(0)
    });
    let received = scene.backend.received();
    assert_backpressure(language, "client", sent, received, bytes);
    scene.backend.open_gate();
    let answer = client.answer();
    let report = scene.backend.report();
    assert_eq!(answer.sent().bytes, bytes);
    assert_eq!(
        answer.sent(),
        report.received,
        "sent by the client and received behind"
    );
    assert_eq!(
        answer.received(),
        report.sent,
        "the backend's digest, received and sent"
    );
    assert_eq!(report.ended, Ending::Fin);
    answer.assert_clean_end(&scene);
}

/// The client stops reading after 1 MiB: the backend gets backpressure, and nothing is lost.
fn download(language: Language, version: Version) {
    download_of(language, version, BIG);
}

fn download_huge(language: Language, version: Version) {
    download_of(language, version, HUGE);
}

fn download_of(language: Language, version: Version, bytes: u64) {
    let scene = Scene::new();
    let mut client = Job::new(language, version, "download", bytes).start(&scene);
    let received = client.wait_for("paused ");
    let sent = wait::until_still("the backend that sends to a stopped reader", || {
        scene.backend.sent()
    });
    assert_backpressure(language, "backend", sent, received, bytes);
    client.resume_reading();
    let answer = client.answer();
    let report = scene.backend.report();
    assert_eq!(answer.received().bytes, bytes);
    assert_eq!(
        answer.received(),
        report.sent,
        "received by the client and sent behind"
    );
    assert_eq!(report.ended, Ending::Fin);
    answer.assert_clean_end(&scene);
}

fn assert_backpressure(language: Language, who: &str, sent: u64, received: u64, bytes: u64) {
    let lead = sent.saturating_sub(received);
    eprintln!("{who} held up at {sent} of {bytes} bytes, {lead} ahead of the reader");
    let most = if applies(Can::BoundBuffers) {
        LEAD_MAX + language.own_buffers_max()
    } else {
        bytes
    };
    assert!(
        lead < most,
        "expected the {who} to be held up less than {most} bytes ahead of a reader that has \
         stopped, it was {lead} ahead ({sent} sent, {received} read)"
    );
}

/// The client closes its direction first and still receives everything.
fn halfclose(language: Language, version: Version) {
    requires!(Can::HalfCloseByClient);
    let scene = Scene::new();
    let answer = Job::new(language, version, "halfclose", 3_000_000).run(&scene);
    let report = scene.backend.report();
    assert_eq!(
        report.ended,
        Ending::Fin,
        "the client's end as the backend saw it; the client says {answer:?}"
    );
    assert_eq!(report.sent.bytes, 3_000_000);
    assert_eq!(
        answer.received(),
        report.sent,
        "received after the client's own end"
    );
    answer.assert_clean_end(&scene);
}

/// The backend closes its direction first and still receives everything.
fn backendfirst(language: Language, version: Version) {
    requires!(Can::HalfCloseByBackend);
    let scene = Scene::new();
    let back = if language.sends_after_end(version) {
        3_000_000
    } else {
        0
    };
    let answer = Job::new(language, version, "backendfirst", 3_000_000)
        .option("--back", &back.to_string())
        .run(&scene);
    let report = scene.backend.report();
    answer.assert_clean_end(&scene);
    assert_eq!(
        answer.received(),
        report.sent,
        "received before the backend's end"
    );
    assert_eq!(answer.sent().bytes, back);
    assert_eq!(
        answer.sent(),
        report.received,
        "sent after the backend's end"
    );
    assert_eq!(report.ended, Ending::Fin);
}

/// TCP ends without close_notify: all data is delivered, then the backend sees a reset.
fn truncation(language: Language, version: Version) {
    requires!(Can::ReportTruncation);
    let scene = Scene::new();
    let answer = Job::new(language, version, "truncate", 1_000_000).run(&scene);
    let report = scene.backend.report();
    assert_eq!(
        report.received,
        answer.sent(),
        "what was sent before the cut"
    );
    assert_eq!(report.ended, Ending::Reset, "truncation = \"abort\"");
}

/// The same with `truncation = "close"`: the backend sees a clean close.
fn truncation_forgiven(language: Language, version: Version) {
    let scene = Scene::with(|settings| settings.truncation_closes = true);
    let answer = Job::new(language, version, "truncate", 1_000_000).run(&scene);
    let report = scene.backend.report();
    assert_eq!(
        report.received,
        answer.sent(),
        "what was sent before the cut"
    );
    assert_eq!(report.ended, Ending::Fin, "truncation = \"close\"");
}

/// A reset by the backend is an error for the client, not a close.
fn reset(language: Language, version: Version) {
    requires!(Can::ReportReset);
    let scene = Scene::new();
    let answer = Job::new(language, version, "reset", 200_000).run(&scene);
    let report = scene.backend.report();
    assert_eq!(
        answer.received(),
        report.sent,
        "what was sent before the reset"
    );
    answer.assert_unclean_end();
}

/// The second connection resumes the first one's session.
fn resumption(language: Language, version: Version) {
    // Java forgets the session of a connection that was cut.
    if language == Language::Java && !applies(Can::EndCleanly) {
        return;
    }
    let scene = Scene::new();
    let answer = Job::new(language, version, "resume", 5_000).run(&scene);
    assert!(
        answer.resumed(),
        "expected the second connection to resume the session of the first: {answer:?}"
    );
    assert_eq!(
        answer.sent(),
        answer.received(),
        "echoed on the resumed connection"
    );
}

/// Without tickets no client resumes; a client that wrongly reports `resumed` is detected.
fn no_resumption(language: Language, version: Version) {
    let scene = Scene::with(|settings| {
        settings.option("tickets", "0");
    });
    let answer = Job::new(language, version, "resume", 5_000).run(&scene);
    assert!(
        !answer.resumed(),
        "expected a full handshake with tickets turned off: {answer:?}"
    );
}

/// ALPN chooses a common protocol.
fn alpn(language: Language, version: Version) {
    let scene = Scene::with(|settings| settings.alpn = vec!["h2", "http/1.1"]);
    let answer = Job::new(language, version, "echo", 1_000)
        .option("--alpn", "spdy/1,http/1.1")
        .run(&scene);
    assert_eq!(answer.text("alpn"), "http/1.1");
}

/// An RSA certificate, and P-256 for the key exchange.
fn rsa_and_p256(language: Language, version: Version) {
    let rsa = dormouse_interop::certificates::Kind::Rsa2048;
    let authority = dormouse_interop::certificates::authority();
    let scene = Scene::with(|settings| settings.certificate = authority.certificate(rsa).clone());
    let answer = Job::new(language, version, "echo", 50_000)
        .option("--group", "P-256")
        .run(&scene);
    assert_eq!(answer.sent(), answer.received(), "sent and echoed");
    // Node reports the group for 1.3, and Go reports the certificate; openssl.rs checks all of it.
    if language == Language::Go {
        assert_eq!(answer.text("group"), "P-256");
    }
}

macro_rules! matrix {
    ($($language:ident: $variant:ident),*) => {$(
        mod $language {
            use super::Language;
            matrix!(@version $variant, tls13: Tls13);
            matrix!(@version $variant, tls12: Tls12);
        }
    )*};
    (@version $variant:ident, $name:ident: $version:ident) => {
        mod $name {
            matrix!(@scenarios $variant, $version, echo, halfclose, backendfirst, truncation,
                resumption);
            matrix!(@seldom $variant, $version, upload, download, truncation_forgiven, reset,
                no_resumption, alpn, rsa_and_p256);
            matrix!(@long $variant, $version, "100 MB: part of the long run",
                upload_huge, download_huge);
        }
    };
    // Java computes longest: a program takes more than a second of CPU time.
    (@seldom Java, Tls12, $($scenario:ident),*) => {
        matrix!(@long Java, Tls12, "as with TLS 1.3: part of the long run", $($scenario),*);
    };
    (@seldom $variant:ident, $version:ident, $($scenario:ident),*) => {
        matrix!(@scenarios $variant, $version, $($scenario),*);
    };
    (@scenarios $variant:ident, $version:ident, $($scenario:ident),*) => {$(
        #[test]
        fn $scenario() {
            requires!(super::Language::$variant);
            super::super::$scenario(super::Language::$variant, super::super::Version::$version);
        }
    )*};
    (@long $variant:ident, $version:ident, $reason:literal, $($scenario:ident),*) => {$(
        #[test]
        #[ignore = $reason]
        fn $scenario() {
            requires!(super::Language::$variant);
            super::super::$scenario(super::Language::$variant, super::super::Version::$version);
        }
    )*};
}

matrix!(python: Python, go: Go, java: Java, node: Node);

/// Go prefers the post-quantum group, and gets it.
#[test]
fn go_agrees_on_x25519mlkem768() {
    agree_on("X25519MLKEM768");
}

/// A client that knows only the older group.
#[test]
fn go_agrees_on_x25519() {
    agree_on("X25519");
}

fn agree_on(group: &str) {
    let post_quantum = group.contains("MLKEM");
    requires!(Language::Go, !post_quantum || applies(Can::PostQuantum));
    let scene = Scene::new();
    let answer = Job::new(Language::Go, Version::Tls13, "echo", 50_000)
        .option("--group", group)
        .run(&scene);
    assert_eq!(answer.text("group"), group);
    assert_eq!(answer.sent(), answer.received(), "sent and echoed");
}
