use super::*;

mod servers;

const ALL: [Starttls; 6] = [
    Starttls::Smtp,
    Starttls::Imap,
    Starttls::Pop3,
    Starttls::Xmpp,
    Starttls::Ldap,
    Starttls::Postgres,
];

const LDAP_REQUEST: &[u8] = b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037";
const SSL_REQUEST: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];
const XMPP_STREAM: &[u8] = b"<?xml version='1.0'?>\n<stream:stream xmlns:stream='http://etherx.jabber.org/streams' xmlns='jabber:client' to='a.example' version='1.0'>";
const XMPP_REQUEST: &[u8] = b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";

/// What a usual client sends up to its request for TLS, and the end of what the server answers.
fn dialogue(protocol: Starttls) -> (Vec<u8>, &'static [u8]) {
    match protocol {
        Starttls::Smtp => (
            b"EHLO me\r\nSTARTTLS\r\n".to_vec(),
            b"220 2.0.0 Ready for TLS\r\n",
        ),
        Starttls::Imap => (
            b"a1 CAPABILITY\r\na2 starttls\r\n".to_vec(),
            b"a2 OK Begin TLS negotiation now\r\n",
        ),
        Starttls::Pop3 => (
            b"CAPA\r\nSTLS\r\n".to_vec(),
            b"+OK Begin TLS negotiation\r\n",
        ),
        Starttls::Xmpp => (
            [XMPP_STREAM, XMPP_REQUEST].concat(),
            b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
        ),
        Starttls::Ldap => (
            LDAP_REQUEST.to_vec(),
            b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x00",
        ),
        Starttls::Postgres => (SSL_REQUEST.to_vec(), b"S"),
        Starttls::Off => unreachable!("not in the list"),
    }
}

/// The answers to these bytes, and why the client gets no TLS.
fn answers(protocol: Starttls, input: &[u8]) -> (String, Result<bool, Refusal>) {
    let mut prelude = Prelude::new(protocol);
    prelude.greet("mx.example");
    let greeting = prelude.output().len();
    let result = prelude.handle_input(input, "mx.example");
    let output = String::from_utf8_lossy(&prelude.output()[greeting..]).into_owned();
    prelude.output_sent(usize::MAX);
    (output, result.map(|()| prelude.is_done()))
}

#[test]
fn every_protocol_starts_tls_however_the_bytes_are_divided() {
    for protocol in ALL {
        let (input, end) = dialogue(protocol);
        for piece in [1, 2, 7, 4096] {
            let mut prelude = Prelude::new(protocol);
            assert!(
                !prelude.has_begun(),
                "a client that waits for its turn costs nothing"
            );
            prelude.greet("mx.example");
            prelude.greet("mx.example");
            let mut said = Vec::new();
            for bytes in input.chunks(piece) {
                assert!(!prelude.is_done(), "{protocol}");
                prelude.handle_input(bytes, "mx.example").expect("accepted");
                said.extend_from_slice(prelude.output());
                prelude.output_sent(1);
                prelude.output_sent(usize::MAX);
            }
            assert!(prelude.is_done(), "{protocol}, {piece} bytes at a time");
            assert!(said.ends_with(end), "{}", said.escape_ascii());
            assert_eq!(prelude.into_received(), b"");
        }
    }
}

#[test]
fn the_server_speaks_first_where_clients_wait_for_it() {
    for protocol in ALL {
        let mut prelude = Prelude::new(protocol);
        prelude.greet("mx.example");
        let said = String::from_utf8_lossy(prelude.output()).into_owned();
        assert_eq!(protocol.has_greeting(), !said.is_empty(), "{protocol}");
        assert!(said.is_empty() || said.contains("mx.example"), "{said}");
    }
}

/// Plaintext that somebody inserts behind the request must not count as if TLS had protected it (CVE-2011-0411).
#[test]
fn bytes_behind_the_request_for_tls_are_refused() {
    for protocol in ALL {
        let (mut input, _) = dialogue(protocol);
        input.push(b'x');
        let (_, result) = answers(protocol, &input);
        let reason = result.expect_err("refused");
        assert!(
            reason.contains("behind its request"),
            "{protocol}: {reason}"
        );
    }
}

#[test]
fn nothing_but_tls_can_be_had() {
    for (protocol, input, answer) in [
        (Starttls::Smtp, &b"MAIL FROM:<a@b>\r\n"[..], "530 5.7.0"),
        (Starttls::Smtp, b"AUTH PLAIN AGEAYg==\r\n", "530 5.7.0"),
        (Starttls::Smtp, b"STARTTLS now\r\n", "501"),
        (Starttls::Imap, b"1 LOGIN a b\r\n", "1 NO [PRIVACYREQUIRED]"),
        (Starttls::Imap, b"* STARTTLS\r\n", "* BAD"),
        (Starttls::Imap, b"1\r\n", "1 BAD"),
        (Starttls::Pop3, b"USER a\r\n", "-ERR"),
        // A simple bind as cn=a with a password: bindResponse, confidentialityRequired.
        (
            Starttls::Ldap,
            b"\x30\x10\x02\x01\x05\x60\x0b\x02\x01\x03\x04\x04cn=a\x80\x00",
            "\x30\x1a\x02\x01\x05\x61\x15\x0a\x01\x0d\x04\x00\x04\x0eStartTLS first",
        ),
        (Starttls::Postgres, &[0, 0, 0, 8, 4, 210, 22, 48], "N"),
    ] {
        let (said, result) = answers(protocol, input);
        assert!(said.starts_with(answer), "{protocol}: {said:?}");
        assert_eq!(result, Ok(false), "{protocol}");
    }
    for (protocol, input, answer) in [
        (Starttls::Smtp, &b"QUIT\r\n"[..], "221"),
        (Starttls::Imap, b"7 LOGOUT\r\n", "* BYE"),
        (Starttls::Pop3, b"QUIT\r\n", "+OK"),
        (Starttls::Ldap, b"\x30\x05\x02\x01\x03\x42\x00", ""),
        // StartupMessage, then CancelRequest.
        (
            Starttls::Postgres,
            b"\0\0\0\x15\0\x03\0\0user\0a\0\0",
            "E\0\0\0",
        ),
        (
            Starttls::Postgres,
            b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x01\0\0\0\x02",
            "",
        ),
        // The same since protocol 3.2, with a longer key.
        (
            Starttls::Postgres,
            b"\0\0\0\x14\x04\xd2\x16\x2e\0\0\0\x01\0\0\0\x02\0\0\0\x03",
            "",
        ),
        (Starttls::Postgres, b"GET / HTTP/1.1\r\n", ""),
        (Starttls::Ldap, b"GET / HTTP/1.1\r\n", ""),
        (Starttls::Xmpp, b"GET / HTTP/1.1\r\n", ""),
        (Starttls::Xmpp, b"<!DOCTYPE a>", ""),
        (Starttls::Xmpp, b"<stream:stream to=\"a'b\">", ""),
    ] {
        let (said, result) = answers(protocol, input);
        assert!(said.starts_with(answer), "{protocol}: {said:?}");
        assert!(result.is_err(), "{protocol}: {}", input.escape_ascii());
    }
    let iq = [XMPP_STREAM, b"<iq type='get'/>"].concat();
    let (said, result) = answers(Starttls::Xmpp, &iq);
    assert!(said.ends_with("</stream:error></stream:stream>"), "{said}");
    assert!(result.is_err());
}

#[test]
fn a_stream_of_servers_is_answered_in_its_namespace() {
    let stream = b"<stream:stream to='a.example' xmlns=\"jabber:server\" a='>'>";
    let request = b"\n<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'></starttls>";
    let (said, result) = answers(Starttls::Xmpp, &[&stream[..], request].concat());
    assert!(
        said.contains(" from='a.example' ") && said.contains(" xmlns='jabber:server' "),
        "{said}"
    );
    assert_eq!(result, Ok(true));
}

/// Each length in four bytes, as Windows writes them.
const LDAP_REQUEST_OF_WINDOWS: &[u8] =
    b"\x30\x84\0\0\0\x25\x02\x01\x01\x77\x84\0\0\0\x1c\x80\x84\0\0\0\x161.3.6.1.4.1.1466.20037";

#[test]
fn a_client_of_ldap_may_write_long_lengths() {
    for end in 0..LDAP_REQUEST_OF_WINDOWS.len() {
        let (said, result) = answers(Starttls::Ldap, &LDAP_REQUEST_OF_WINDOWS[..end]);
        assert_eq!((said.as_str(), result), ("", Ok(false)), "{end}");
    }
    let (said, result) = answers(Starttls::Ldap, LDAP_REQUEST_OF_WINDOWS);
    assert!(said.starts_with("\x30\x0c\x02\x01\x01\x78"), "{said:?}");
    assert_eq!(result, Ok(true));
    // The name of another operation (Cancel, RFC 3909), and a value behind the name.
    for other in [
        &b"\x30\x16\x02\x01\x01\x77\x11\x80\x0f1.3.6.1.1.8.999"[..],
        b"\x30\x1f\x02\x01\x01\x77\x1a\x80\x161.3.6.1.4.1.1466.20037\x81\0",
    ] {
        let (said, result) = answers(Starttls::Ldap, other);
        assert!(said.ends_with("StartTLS first"), "{said:?}");
        assert_eq!(result, Ok(false));
    }
}

#[test]
fn a_client_of_postgres_may_begin_with_tls() {
    let mut prelude = Prelude::new(Starttls::Postgres);
    prelude.handle_input(b"\x16\x03\x01", "").expect("accepted");
    assert!(prelude.is_done());
    assert_eq!(prelude.into_received(), b"\x16\x03\x01");
}

#[test]
fn messages_are_bounded_in_length_and_number() {
    for protocol in ALL {
        let long = match protocol {
            Starttls::Ldap => b"\x30\x82\xff\xff".to_vec(),
            Starttls::Xmpp => b"<a".to_vec(),
            _ => b"a ".to_vec(),
        };
        let mut prelude = Prelude::new(protocol);
        prelude.handle_input(&long, "a").expect("incomplete");
        let rest = [b' '; MESSAGE_MAX];
        assert!(prelude.handle_input(&rest, "a").is_err(), "{protocol}");
    }
    for (protocol, message) in [
        (Starttls::Smtp, &b"\n"[..]),
        (Starttls::Imap, b"a noop\n"),
        (Starttls::Pop3, b"\n"),
        (Starttls::Postgres, &[0, 0, 0, 8, 4, 210, 22, 48]),
        (Starttls::Xmpp, b"<?a?>"),
        (Starttls::Ldap, b"\x30\x07\x02\x01\x05\x60\x02\x02\x00"),
    ] {
        let (said, result) = answers(protocol, &message.repeat(100));
        assert!(said.len() < 4096, "{protocol}");
        assert!(
            result.expect_err("refused").contains("16 messages"),
            "{protocol}"
        );
    }
}

#[test]
fn the_greeting_of_a_backend_ends_with_its_last_line() {
    let smtp = b"220-mx.example\r\n220 ESMTP\r\n250 more";
    for end in 0..smtp.len() {
        let found = greeting(Starttls::Smtp, &smtp[..end]).expect("it greets");
        let expected = match end {
            ..27 => Greeting::Partial,
            _ => Greeting::Complete(27),
        };
        assert_eq!(found, expected, "{end}");
    }
    for (protocol, bytes, expected) in [
        (Starttls::Imap, &b"* O"[..], Greeting::Partial),
        (
            Starttls::Imap,
            b"* OK ready\r\n* more",
            Greeting::Complete(12),
        ),
        (Starttls::Pop3, b"+OK\r\n", Greeting::Complete(5)),
        // The client reads why it is not welcome.
        (Starttls::Smtp, b"554 no\r\n", Greeting::Complete(0)),
        (Starttls::Imap, b"* BYE\r\n", Greeting::Complete(0)),
        (Starttls::Pop3, b"-ERR\r\n", Greeting::Complete(0)),
    ] {
        assert_eq!(
            greeting(protocol, bytes),
            Some(expected),
            "{}",
            bytes.escape_ascii()
        );
    }
    assert_eq!(greeting(Starttls::Postgres, b"R"), None);
}
