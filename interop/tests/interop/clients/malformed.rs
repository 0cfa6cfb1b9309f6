//! Connections to a TLS port that do not behave like TLS clients. Each is closed, and established
//! connections notice nothing.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use dormouse_interop::backend::Ending;
use dormouse_interop::content::random;
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::scene::{Scene, applies};
use dormouse_interop::terminator::Can;
use dormouse_interop::wait::{self, PATIENCE};

const ALERT: u8 = 21;

/// What the terminator sends to the peer before it closes the connection.
///
/// # Panics
/// When the connection stays open.
fn answer_and_end(mut stranger: &TcpStream, who: &str) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    stranger
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout above zero");
    loop {
        match stranger.read(&mut part) {
            Ok(0) => return answer,
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return answer,
            Err(error) => panic!("expected the terminator to end {who}, it did not: {error}"),
        }
    }
}

/// A well-behaved connection, which must not suffer.
fn bystander(scene: &Scene) -> Peer {
    Peer::echoing(scene.address)
}

fn assert_unharmed(mut bystander: Peer, scene: &Scene) {
    bystander.echo().expect("an echo on an older connection");
    self::bystander(scene);
}

#[test]
fn plain_http() {
    let scene = Scene::new();
    let bystander = bystander(&scene);
    let mut stranger = peer::connect_tcp(scene.address).expect("a connection");
    stranger
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("a write of a request");
    answer_and_end(&stranger, "a client that speaks plain HTTP");
    assert_unharmed(bystander, &scene);
    if applies(Can::BeDormouse) {
        wait::until_true("a log line about plain HTTP", || {
            let lines = scene.terminator.lines_with("http");
            !lines.is_empty()
        });
    }
}

#[test]
fn garbage() {
    let scene = Scene::new();
    let bystander = bystander(&scene);
    let record = |kind: u8, body: &[u8]| {
        let length = u16::try_from(body.len()).expect("a short record");
        [&[kind, 3, 1][..], &length.to_be_bytes(), body].concat()
    };
    let not_random: [(&str, Vec<u8>); 8] = [
        ("zeros", vec![0; 5000]),
        ("ones", vec![0xff; 5000]),
        ("a record of garbage", record(22, &[0xaa; 300])),
        ("an empty handshake record", record(22, &[])),
        ("application data first", record(23, b"hello")),
        ("an alert first", record(ALERT, &[2, 40])),
        ("a change of ciphers first", record(20, &[1])),
        (
            "an SSLv2 hello",
            vec![0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10],
        ),
    ];
    let by_chance = (0..20).map(|_| ("random bytes", random(700)));
    for (what, bytes) in not_random.into_iter().chain(by_chance) {
        let mut stranger = peer::connect_tcp(scene.address).expect("a connection");
        // The server may close before everything is sent.
        let _ = stranger.write_all(&bytes);
        let _ = stranger.shutdown(Shutdown::Write);
        let who = format!("a client that sends {what} ({:02x?})", &bytes[..5]);
        let answer = answer_and_end(&stranger, &who);
        // A peer that sends something like TLS gets an alert (RFC 8446 §6.2).
        if what.starts_with("a record") || what.starts_with("application data") {
            assert_eq!(
                answer.first(),
                Some(&ALERT),
                "an alert for {what}: {answer:02x?}"
            );
        }
    }
    assert_unharmed(bystander, &scene);
}

/// A ClientHello of the maximum record size, in 16,000 segments of one byte.
#[test]
fn client_hello_in_16000_segments() {
    let scene = Scene::new();
    let mut bystander = bystander(&scene);
    let mut config = peer::config();
    // Unknown protocols, of 201 bytes each.
    config.alpn_protocols = (0..78_u8).map(|n| vec![b'a' + n % 26; 200]).collect();
    let mut tls = peer::client(config);
    let mut hello = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut hello).expect("memory to write to");
    }
    assert!(
        hello.len() >= 16_000,
        "the hello has {} bytes only",
        hello.len()
    );
    let mut tcp = peer::connect_tcp(scene.address).expect("a connection");
    for (number, byte) in hello.chunks(1).enumerate() {
        tcp.write_all(byte)
            .unwrap_or_else(|error| panic!("expected byte {number} to be taken: {error}"));
        if number % 4000 == 0 {
            bystander
                .echo()
                .expect("an echo while another ClientHello arrives slowly");
        }
    }
    let mut slow = Peer::over(tcp, tls).expect("a handshake despite slow bytes");
    slow.stream().write_all(b"echo\n").expect("a line");
    slow.echo().expect("an echo after a slow handshake");
    assert_unharmed(bystander, &scene);
}

/// A client that connects and sends nothing is closed after a while, and so is one that sends single bytes.
#[test]
fn silence_instead_of_a_handshake() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.option("handshake_timeout", "700ms");
    });
    let bystander = bystander(&scene);
    let silent: Vec<_> = (0..50)
        .map(|_| peer::connect_tcp(scene.address).expect("a connection"))
        .collect();
    let mut trickling = peer::connect_tcp(scene.address).expect("a connection");
    // The start of a plausible hello of 508 bytes, then zeros, so that only its end is invalid.
    let start = [22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    let mut bytes = start.into_iter().chain(std::iter::repeat(0)).take(500);
    let end = Instant::now() + PATIENCE;
    while bytes
        .next()
        .is_some_and(|byte| trickling.write_all(&[byte]).is_ok())
    {
        assert!(Instant::now() < end, "a trickling client is never ended");
        std::thread::sleep(Duration::from_millis(100));
    }
    answer_and_end(&trickling, "who says a byte at a time");
    for stranger in &silent {
        answer_and_end(stranger, "who says nothing");
    }
    assert_unharmed(bystander, &scene);
}

/// A partial record and then silence: the connection is closed, and the backend sees a reset. A connection
/// that is quiet between records stays.
#[test]
fn half_a_record() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.option("partial_record_timeout", "500ms");
    });
    let bystander = bystander(&scene);
    let mut half = Peer::saying(scene.address, "sink");
    half.tcp
        .write_all(&[23, 3, 3, 0, 100, 1, 2, 3])
        .expect("a write of half a record");
    half.receive_all()
        .expect_err("a connection that ends within a record is truncated");
    let report = scene.backend.report();
    assert_eq!(report.command, "sink");
    assert_eq!(report.ended, Ending::Reset);
    assert_unharmed(bystander, &scene);
}

/// A record with a wrong tag: bad_record_mac, and a reset for the backend.
#[test]
fn a_forged_record() {
    let scene = Scene::new();
    let bystander = bystander(&scene);
    let mut forged = Peer::saying(scene.address, "sink");
    let record = [&[23, 3, 3, 0, 100][..], &[7; 100]].concat();
    forged.tcp.write_all(&record).expect("a write of a record");
    let error = forged.receive_all().expect_err("an alert");
    assert!(
        error.to_string().contains("BadRecordMac"),
        "expected the alert bad_record_mac, came: {error}"
    );
    if applies(Can::ReportTruncation) {
        assert_eq!(scene.backend.report().ended, Ending::Reset);
    }
    assert_unharmed(bystander, &scene);
}

/// A handshake message with an excessive length, from a client that ignores the alert: it is refused, and
/// the rest is not read for ever.
#[test]
fn a_handshake_without_end() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings
            .option("handshake_bytes_max", "20 KiB")
            .option("drain_timeout", "1s");
    });
    let bystander = bystander(&scene);
    let mut stranger = peer::connect_tcp(scene.address).expect("a connection");
    // A ClientHello of 16 MB, which consists of zeros.
    let mut record = vec![22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff, 3, 3];
    record.resize(5 + 0x4000, 0);
    stranger
        .write_all(&record)
        .expect("a write of the first record");
    stranger
        .write_all(&record)
        .expect("a write of the second record");
    let mut alert = [0; 7];
    stranger.read_exact(&mut alert).expect("an alert");
    assert_eq!(
        alert[..3],
        [ALERT, 3, 3],
        "the record that says no: {alert:?}"
    );
    let end = Instant::now() + PATIENCE;
    while stranger.write_all(&record).is_ok() {
        assert!(
            Instant::now() < end,
            "a refused client can keep sending forever"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_unharmed(bystander, &scene);
}

/// Many clients that disconnect during the handshake.
#[test]
fn clients_that_disconnect_during_the_handshake() {
    let scene = Scene::new();
    let bystander = bystander(&scene);
    let mut hello = Vec::new();
    peer::client(peer::config())
        .write_tls(&mut hello)
        .expect("memory to write to");
    for number in 0..300 {
        let mut stranger = peer::connect_tcp(scene.address).expect("a connection");
        let part = hello.len() * (number % 11) / 10;
        stranger
            .write_all(&hello[..part.min(hello.len())])
            .expect("a write of a part");
    }
    assert_unharmed(bystander, &scene);
}
