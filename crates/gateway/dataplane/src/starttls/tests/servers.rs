//! The dialogue with servers, and the first bytes of local clients.

use super::*;
use std::net::{IpAddr, Ipv4Addr};

const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

const LDAP_CONSENT: &[u8] = b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x00";
const XMPP_FEATURES: &[u8] = b"<?xml version='1.0'?><stream:stream id='1' from='a.example' version='1.0' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'><stream:features><starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/></starttls><mechanisms><mechanism>PLAIN</mechanism></mechanisms></stream:features>";
const XMPP_PROCEED: &[u8] = b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";

/// What a server says, message by message, and what it is asked before each one.
fn dialogue(protocol: Starttls) -> &'static [(&'static [u8], &'static [u8])] {
    match protocol {
        Starttls::Smtp => &[
            (b"", b"220-mx.example ESMTP\r\n220 ready\r\n"),
            (b"EHLO [192.0.2.7]\r\n", b"250-mx.example\r\n250-STARTTLS\r\n250 DSN\r\n"),
            (b"STARTTLS\r\n", b"220 2.0.0 Ready\r\n"),
        ],
        Starttls::Imap => &[
            (b"", b"* OK [CAPABILITY IMAP4rev1 STARTTLS] ready\r\n"),
            (b"a STARTTLS\r\n", b"* CAPABILITY IMAP4rev1\r\na ok begin\r\n"),
        ],
        Starttls::Pop3 => &[(b"", b"+OK <1@a>\r\n"), (b"STLS\r\n", b"+OK\r\n")],
        Starttls::Xmpp => &[
            (b"<?xml version='1.0'?><stream:stream to='a.example' version='1.0' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>", XMPP_FEATURES),
            (b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>", XMPP_PROCEED),
        ],
        Starttls::Ldap => &[(
            b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037",
            LDAP_CONSENT,
        )],
        Starttls::Postgres => &[(&[0, 0, 0, 8, 4, 210, 22, 47], b"S")],
        Starttls::Off => unreachable!("not in the list"),
    }
}

/// A request whose server has said everything but the last message.
fn up_to_consent(protocol: Starttls) -> (Request, &'static [u8]) {
    let (last, before) = dialogue(protocol).split_last().expect("messages");
    let mut request = Request::new(protocol, "a.example", OWN);
    for (_, said) in before {
        request.handle_input(said).expect("accepted");
    }
    (request, last.1)
}

#[test]
fn servers_of_every_protocol_consent_however_their_bytes_are_divided() {
    for protocol in super::ALL {
        for piece in [1, 2, 7, 4096] {
            let mut request = Request::new(protocol, "a.example", OWN);
            for (asked, said) in dialogue(protocol) {
                let output = request.output().escape_ascii().to_string();
                assert_eq!(output, asked.escape_ascii().to_string(), "{protocol}");
                request.output_sent(asked.len());
                assert!(!request.is_done(), "{protocol}");
                for bytes in said.chunks(piece) {
                    assert_eq!(request.output(), b"", "{protocol}");
                    request.handle_input(bytes).expect("accepted");
                }
            }
            assert!(
                request.is_done() && request.output().is_empty(),
                "{protocol}"
            );
        }
    }
}

/// Active Directory writes each length in four bytes.
#[test]
fn a_server_of_ldap_may_write_long_lengths() {
    let mut request = Request::new(Starttls::Ldap, "a.example", OWN);
    let consent = b"\x30\x84\0\0\0\x10\x02\x01\x01\x78\x84\0\0\0\x07\x0a\x01\x00\x04\x00\x04\x00";
    for byte in consent {
        assert!(!request.is_done());
        request.handle_input(&[*byte]).expect("accepted");
    }
    assert!(request.is_done());
    // 52 is "unavailable": the server has no certificate.
    let mut request = Request::new(Starttls::Ldap, "a.example", OWN);
    let refusal = b"\x30\x84\0\0\0\x17\x02\x01\x01\x78\x84\0\0\0\x0e\x0a\x01\x34\x04\x00\x04\x84\0\0\0\x03no!";
    let error = request.handle_input(refusal).expect_err("refused");
    assert!(error.contains("LDAP result 52: no!"), "{error}");
}

/// Somebody on the way may have inserted them (CVE-2021-23222).
#[test]
fn bytes_behind_the_consent_are_refused() {
    for protocol in super::ALL {
        for more in [&b"\r\n"[..], b"\x16\x03\x03", b"250 injected\r\n"] {
            let (mut request, consent) = up_to_consent(protocol);
            let error = request.handle_input(&[consent, more].concat());
            let error = error.expect_err("refused");
            let expected = format!("{} bytes of plaintext behind its consent", more.len());
            assert!(error.contains(&expected), "{protocol}: {error}");
        }
    }
}

#[test]
fn an_answer_that_is_no_consent_is_the_reason() {
    for (protocol, answer, reason) in [
        (
            Starttls::Smtp,
            &b"454 4.7.0 not\x1b now\r\n"[..],
            "454 4.7.0 not\\u{1b} now",
        ),
        (Starttls::Smtp, b"2200 Ready\r\n", "2200 Ready"),
        (Starttls::Imap, b"a BAD unknown\r\n", "a BAD unknown"),
        (Starttls::Imap, b"* BYE too many\r\n", "* BYE too many"),
        (Starttls::Imap, b"b OK\r\n", "b OK"),
        (Starttls::Pop3, b"-ERR no TLS\r\n", "-ERR no TLS"),
        (
            Starttls::Xmpp,
            b"<failure xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
            "<failure xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
        ),
        (
            Starttls::Xmpp,
            b"<stream:error><host-unknown/>",
            "<stream:error><host-unknown/>",
        ),
        (Starttls::Xmpp, b"</stream:stream>", "</stream:stream>"),
        (
            Starttls::Ldap,
            b"\x30\x0e\x02\x01\x01\x78\x09\x0a\x01\x34\x04\x00\x04\x02no",
            "LDAP result 52: no",
        ),
        (
            Starttls::Ldap,
            b"HTTP/1.1 400\r\n",
            "does not answer with LDAP",
        ),
        (Starttls::Postgres, b"N", "it has no TLS"),
        (
            Starttls::Postgres,
            b"E\0\0\0\x09no\0",
            "the server answered E",
        ),
    ] {
        let (mut request, _) = up_to_consent(protocol);
        let error = request.handle_input(answer).expect_err("refused");
        assert!(error.contains(reason), "{protocol}: {error}");
        assert!(!request.is_done());
    }
    // A server that does not welcome its client, and one that needs no log-in any more (CVE-2020-12398).
    for (protocol, greeting) in [
        (Starttls::Smtp, &b"554 not you\r\n"[..]),
        (Starttls::Imap, b"* PREAUTH welcome\r\n"),
        (Starttls::Imap, b"* OKAY\r\n"),
        (Starttls::Pop3, b"-ERR full\r\n"),
    ] {
        let mut request = Request::new(protocol, "a.example", OWN);
        assert!(request.handle_input(greeting).is_err(), "{protocol}");
    }
}

#[test]
fn answers_are_bounded() {
    for protocol in super::ALL {
        let endless: &[u8] = match protocol {
            Starttls::Smtp => b"220-a\r\n",
            Starttls::Imap => b"* OK a\r\n",
            Starttls::Pop3 => b"+OK a",
            Starttls::Xmpp => b"<a/>text",
            Starttls::Ldap => b"\x30\x82\xff\xff",
            Starttls::Postgres | Starttls::Off => continue,
        };
        let (mut request, _) = up_to_consent(protocol);
        let pieces = std::iter::repeat_n(endless, 8 * ANSWER_MAX / endless.len());
        let mut results = pieces.map(|piece| request.handle_input(piece));
        assert!(results.any(|result| result.is_err()), "{protocol}");
    }
}

#[test]
fn a_client_of_postgres_that_asks_for_encryption_is_recognized() {
    for (bytes, beginning) in [
        (&[][..], Beginning::Partial),
        (&[0, 0, 0, 8, 4, 210, 22], Beginning::Partial),
        (
            &[0, 0, 0, 8, 4, 210, 22, 47],
            Beginning::AsksForEncryption(8),
        ),
        (
            &[0, 0, 0, 8, 4, 210, 22, 48, 9],
            Beginning::AsksForEncryption(8),
        ),
        (&[0, 0, 0, 8, 4, 210, 22, 46], Beginning::Session),
        (&[0, 0, 0, 16, 4], Beginning::Session),
        (&[22, 3, 1], Beginning::Session),
    ] {
        assert_eq!(postgres_beginning(bytes), beginning, "{bytes:?}");
    }
}

/// Postfix refuses `localhost` (reject_non_fqdn_helo_hostname), and accepts addresses as RFC 5321 §4.1.3 writes them.
#[test]
fn a_server_of_mail_is_told_our_address() {
    for (own, told) in [
        ("192.0.2.7", "EHLO [192.0.2.7]"),
        ("::ffff:192.0.2.7", "EHLO [192.0.2.7]"),
        ("2001:db8::7", "EHLO [IPv6:2001:db8::7]"),
    ] {
        let own = own.parse().expect("an address");
        let mut request = Request::new(Starttls::Smtp, "a.example", own);
        request.handle_input(b"220 mx\r\n").expect("accepted");
        let output = String::from_utf8_lossy(request.output()).into_owned();
        assert_eq!(output, format!("{told}\r\n"));
    }
}
