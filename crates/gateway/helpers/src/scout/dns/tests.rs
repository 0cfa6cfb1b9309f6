//! Answers of correct, failing, lying and silent servers.

use super::message::{Answer, InvalidAnswer, Question, Rtype};
use super::resolver_files::ResolverFiles;
use super::{Lifetime, of_kind, of_name};
use proptest::prelude::*;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const NAME: &str = "App.Example";
/// Record types on the wire.
const A: u16 = 1;
const AAAA: u16 = 28;
/// Compression pointer to the question's name.
const TO_QUESTION: [u8; 2] = [0xc0, 12];

fn asked(kind: Rtype) -> Question {
    Question::new(0x1234, NAME, kind).expect("a name")
}

fn wire(name: &str) -> Vec<u8> {
    let labels = name.split('.').filter(|label| !label.is_empty());
    let mut wire: Vec<u8> = labels
        .flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat())
        .collect();
    wire.push(0);
    wire
}

fn record(owner: &[u8], kind: u16, ttl_s: u32, data: &[u8]) -> Vec<u8> {
    let mut record = owner.to_vec();
    record.extend(kind.to_be_bytes());
    record.extend([0, 1]);
    record.extend(ttl_s.to_be_bytes());
    record.extend((data.len() as u16).to_be_bytes());
    record.extend(data);
    record
}

/// An answer to `question` with these flags and records.
fn answer(question: &[u8], flags: u16, answers: &[Vec<u8>], authorities: &[Vec<u8>]) -> Vec<u8> {
    let mut message = question[..2].to_vec();
    message.extend(flags.to_be_bytes());
    message.extend([0, 1]);
    message.extend((answers.len() as u16).to_be_bytes());
    message.extend((authorities.len() as u16).to_be_bytes());
    message.extend([0, 0]);
    message.extend(&question[12..]);
    message.extend(answers.concat());
    message.extend(authorities.concat());
    message
}

const OK: u16 = 0x8180;
const NO_SUCH_NAME: u16 = 0x8183;
const TRUNCATED: u16 = 0x8380;

fn soa(ttl_s: u32, minimum_s: u32) -> Vec<u8> {
    let mut data = [wire("ns.example"), wire("admin.example")].concat();
    data.extend([0; 16]);
    data.extend(minimum_s.to_be_bytes());
    record(&wire("example"), 6, ttl_s, &data)
}

#[test]
fn a_question_is_encoded_as_in_the_rfc() {
    let expected = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03app\x07example\0\0\x01\0\x01";
    assert_eq!(asked(Rtype::A).bytes(), expected);
    let long = format!("{}.example", "x".repeat(64));
    let longer = "x.".repeat(128);
    for wrong in ["", ".", "a..b", "\u{e4}.example", &long, &longer] {
        assert!(Question::new(0, wrong, Rtype::A).is_none(), "{wrong:?}");
    }
}

#[test]
fn the_shortest_lifetime_on_the_way_to_the_addresses_applies() {
    let question = asked(Rtype::A);
    let direct = [
        record(&TO_QUESTION, A, 300, &[10, 0, 0, 1]),
        record(&TO_QUESTION, A, 60, &[10, 0, 0, 2]),
        record(&wire("other.example"), A, 1, &[10, 0, 0, 3]),
    ];
    let said = question.understand(&answer(question.bytes(), OK, &direct, &[]));
    let two: Vec<IpAddr> = vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
    assert_eq!(
        said,
        Ok(Answer::Addresses {
            all: two,
            ttl_s: 60
        })
    );
    // Aliases in any order and any case.
    let aliased = [
        record(&wire("END.example"), A, 600, &[10, 0, 0, 9]),
        record(&wire("middle.example"), 5, 30, &wire("end.Example")),
        record(&TO_QUESTION, 5, 90, &wire("middle.example")),
    ];
    let said = question.understand(&answer(question.bytes(), OK, &aliased, &[]));
    let one: Vec<IpAddr> = vec![[10, 0, 0, 9].into()];
    assert_eq!(
        said,
        Ok(Answer::Addresses {
            all: one,
            ttl_s: 30
        })
    );
    // A TTL with the highest bit set counts as 0 (RFC 2181 §8).
    let odd = [record(&TO_QUESTION, A, 1 << 31, &[10, 0, 0, 1])];
    let said = question.understand(&answer(question.bytes(), OK, &odd, &[]));
    assert!(matches!(said, Ok(Answer::Addresses { ttl_s: 0, .. })));
    let question = asked(Rtype::AAAA);
    let six = [record(&TO_QUESTION, AAAA, 5, &[1; 16])];
    let said = question.understand(&answer(question.bytes(), OK, &six, &[]));
    assert!(matches!(said, Ok(Answer::Addresses { ttl_s: 5, .. })));
}

#[test]
fn a_negative_answer_has_a_lifetime() {
    let question = asked(Rtype::A);
    let understand = |flags, answers: &[Vec<u8>], authorities: &[Vec<u8>]| {
        question.understand(&answer(question.bytes(), flags, answers, authorities))
    };
    let nothing = |ttl_s| Ok(Answer::Nothing { ttl_s });
    assert_eq!(understand(NO_SUCH_NAME, &[], &[soa(900, 60)]), nothing(60));
    assert_eq!(understand(OK, &[], &[soa(30, 60)]), nothing(30));
    assert_eq!(understand(OK, &[], &[]), nothing(0));
    let alias = record(&TO_QUESTION, 5, 20, &wire("gone.example"));
    assert_eq!(
        understand(NO_SUCH_NAME, &[alias], &[soa(900, 60)]),
        nothing(20)
    );
    assert_eq!(understand(0x8182, &[], &[]), Ok(Answer::Failed));
    assert_eq!(understand(TRUNCATED, &[], &[]), Ok(Answer::Truncated));
}

#[test]
fn answers_to_other_questions_are_ignored() {
    let question = asked(Rtype::A);
    let good = answer(
        question.bytes(),
        OK,
        &[record(&TO_QUESTION, A, 9, &[1; 4])],
        &[],
    );
    assert!(question.understand(&good).is_ok());
    let changed = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        question.understand(&bytes)
    };
    // Another id; a question; another opcode; two questions; another name, type and class.
    for (at, to) in [
        (0, 9),
        (2, 1),
        (2, 0x91),
        (5, 2),
        (13, b'b'),
        (26, 28),
        (28, 3),
    ] {
        assert_eq!(
            changed(at, to),
            Err(InvalidAnswer::OtherQuestion),
            "byte {at}"
        );
    }
    for len in 0..good.len() {
        assert!(question.understand(&good[..len]).is_err(), "{len} bytes");
    }
    // To the right question, but with an invalid address.
    let short = answer(
        question.bytes(),
        OK,
        &[record(&TO_QUESTION, A, 9, &[1; 3])],
        &[],
    );
    assert_eq!(question.understand(&short), Err(InvalidAnswer::Broken));
}

#[test]
fn alias_loops_end() {
    let question = asked(Rtype::A);
    let around = [
        record(&TO_QUESTION, 5, 10, &wire("b.example")),
        record(&wire("b.example"), 5, 10, &TO_QUESTION),
    ];
    let said = question.understand(&answer(question.bytes(), OK, &around, &[]));
    assert_eq!(said, Ok(Answer::Nothing { ttl_s: 0 }));
    // Compression pointers to themselves, to each other, and past the end.
    let at = question.bytes().len() as u8;
    for pointer in [[0xc0, at], [0xc0, at + 1], [0xff, 0xff]] {
        let bytes = answer(
            question.bytes(),
            OK,
            &[record(&pointer, A, 9, &[1; 4])],
            &[],
        );
        assert_eq!(question.understand(&bytes), Err(InvalidAnswer::Broken));
    }
}

proptest! {
    /// Arbitrary bytes neither panic nor loop.
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), flags in any::<u16>()) {
        let question = asked(Rtype::A);
        let _ = question.understand(&bytes);
        let mut fit = answer(question.bytes(), flags, &[], &[]);
        fit[6..12].copy_from_slice(&[0, 3, 0, 1, 0, 0]);
        fit.extend(bytes);
        let _ = question.understand(&fit);
    }
}

/// A server that sends the results of `answers`, and counts the questions.
fn server(
    answers: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = socket.local_addr().expect("an address");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        let mut room = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut room) {
            count.fetch_add(1, Ordering::SeqCst);
            for answer in answers(&room[..len]) {
                let _ = socket.send_to(&answer, from);
            }
        }
    });
    (address, asked)
}

fn right(question: &[u8], last: u8, ttl_s: u32) -> Vec<u8> {
    answer(
        question,
        OK,
        &[record(&TO_QUESTION, A, ttl_s, &[10, 0, 0, last])],
        &[],
    )
}

fn found(last: u8, ttl_s: u64) -> Lifetime {
    Lifetime::Of(vec![[10, 0, 0, last].into()], Duration::from_secs(ttl_s))
}

/// Forged answers are ignored, however many come, and the right answer is still received.
#[test]
fn a_forged_answer_is_ignored() {
    let (address, asked) = server(|question| {
        let mut guess = right(question, 66, 999);
        guess[0] ^= 1;
        let mut other = right(question, 66, 999);
        other[13] = b'b';
        vec![guess; 20]
            .into_iter()
            .chain([other, b"x".to_vec(), right(question, 1, 7)])
            .collect()
    });
    assert_eq!(of_kind(NAME, Rtype::A, &[address]), found(1, 7));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

/// A server that refuses, sends nonsense or does not answer is skipped.
#[test]
fn the_next_server_is_asked() {
    let refuses = server(|question| vec![answer(question, 0x8185, &[], &[])]).0;
    let mad = server(|question| vec![answer(question, OK, &[vec![0xc0]], &[])]).0;
    let gone = UdpSocket::bind("127.0.0.1:0")
        .and_then(|s| s.local_addr())
        .expect("a port");
    let good = server(|question| vec![right(question, 2, 8)]).0;
    assert_eq!(
        of_kind(NAME, Rtype::A, &[refuses, mad, gone, good]),
        found(2, 8)
    );
    assert_eq!(
        of_kind(NAME, Rtype::A, &[refuses, mad, gone]),
        Lifetime::Unknown
    );
}

/// A truncated answer is requested again over TCP, where it may arrive in pieces.
#[test]
fn a_truncated_answer_is_requested_over_tcp() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = tcp.local_addr().expect("an address");
    let udp = UdpSocket::bind(address).expect("the same port");
    std::thread::spawn(move || {
        let mut room = [0; 512];
        let (len, from) = udp.recv_from(&mut room).expect("a question");
        let _ = udp.send_to(&answer(&room[..len], TRUNCATED, &[], &[]), from);
        let (mut stream, _) = tcp.accept().expect("a connection");
        let mut len = [0; 2];
        stream.read_exact(&mut len).expect("a length");
        let mut question = vec![0; usize::from(u16::from_be_bytes(len))];
        stream.read_exact(&mut question).expect("a question");
        let many: Vec<Vec<u8>> = (0..60)
            .map(|n| record(&TO_QUESTION, A, 40 + n, &[10, 0, 1, n as u8]))
            .collect();
        let said = answer(&question, OK, &many, &[]);
        let said = [&(said.len() as u16).to_be_bytes()[..], &said].concat();
        for piece in said.chunks(100) {
            stream.write_all(piece).expect("sent");
        }
    });
    let Lifetime::Of(all, ttl) = of_kind(NAME, Rtype::A, &[address]) else {
        panic!("no addresses");
    };
    assert_eq!((all.len(), ttl), (60, Duration::from_secs(40)));
}

/// IPv6 addresses are used only without an IPv4 address, and no longer than there is none.
#[test]
fn ipv6_is_used_without_ipv4() {
    let (address, _) = server(|question| {
        let kind = question[question.len() - 3];
        vec![match kind {
            28 => answer(
                question,
                OK,
                &[record(&TO_QUESTION, AAAA, 50, &[2; 16])],
                &[],
            ),
            _ => answer(question, OK, &[], &[soa(20, 20)]),
        }]
    });
    let six = IpAddr::from([2_u8; 16]);
    assert_eq!(
        of_name(NAME, &[address]),
        Lifetime::Of(vec![six], Duration::from_secs(20))
    );
}

#[test]
fn resolver_files_are_parsed_as_in_the_c_library() {
    let resolv_conf = "# comment\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\n\
        nameserver 2001:db8::1\nsearch one.example two.example\noptions timeout:1 ndots:2\n";
    let hosts = "127.0.0.1 localhost\n10.0.0.1\tApp.Example app # other\n";
    let files = ResolverFiles::of(
        resolv_conf,
        hosts,
        "passwd: files\nhosts: files dns # resolve\n",
    );
    let servers: Vec<SocketAddr> = ["192.0.2.1:53", "[2001:db8::1]:53"]
        .map(|text| text.parse().expect("an address"))
        .to_vec();
    assert_eq!(files.servers, servers);
    assert!(!files.asks_dns_for("app.example") && !files.asks_dns_for("APP."));
    assert!(files.asks_dns_for("other") && files.asks_dns_for("b.example"));
    assert_eq!(
        files.candidates("a.b"),
        ["a.b.one.example", "a.b.two.example", "a.b"]
    );
    assert_eq!(files.candidates("a.b.c")[0], "a.b.c");
    assert_eq!(files.candidates("a."), ["a."]);
    for (nsswitch, asks) in [
        ("", true),
        ("hosts: files resolve [!UNAVAIL=return] dns", true),
        ("hosts: files myhostname", false),
    ] {
        assert_eq!(
            ResolverFiles::of("", "", nsswitch).asks_dns_for("b"),
            asks,
            "{nsswitch}"
        );
    }
    assert_eq!(
        ResolverFiles::of("", "", "").servers,
        ["127.0.0.1:53".parse().expect("an address")]
    );
}
