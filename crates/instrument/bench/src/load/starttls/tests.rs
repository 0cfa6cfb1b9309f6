use super::*;

/// What a server sends before each turn of the client, and what the client sends in reply.
struct Script {
    protocol: Starttls,
    server: &'static [&'static [u8]],
    client: &'static [&'static [u8]],
}

const MYSQL_GREETING: &[u8] = b"\x4a\x00\x00\x00\x0a8.0.36\x00\x08\x00\x00\x00abcdefgh\x00\xff\xff\xff\x02\x00\xff\xdf\x15\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00ijklmnopqrst\x00caching_sha2_password\x00";

fn scripts() -> Vec<Script> {
    let script = |protocol, server, client| Script {
        protocol,
        server,
        client,
    };
    vec![
        script(
            Starttls::Smtp,
            &[
                b"220-mx.example.org\r\n220 ESMTP\r\n",
                b"250-mx.example.org\r\n250-PIPELINING\r\n250-starttls\r\n250 8BITMIME\r\n",
                b"220 2.0.0 Ready to start TLS\r\n",
            ],
            &[b"", b"EHLO [127.0.0.1]\r\n", b"STARTTLS\r\n"],
        ),
        script(
            Starttls::Imap,
            &[
                b"* OK [CAPABILITY IMAP4rev1 STARTTLS] ready\r\n",
                b"* CAPABILITY IMAP4rev1\r\na1 OK Begin TLS negotiation now.\r\n",
            ],
            &[b"", b"a1 STARTTLS\r\n"],
        ),
        script(
            Starttls::Pop3,
            &[b"+OK ready.\r\n", b"+OK Begin TLS negotiation now.\r\n"],
            &[b"", b"STLS\r\n"],
        ),
        script(
            Starttls::Ldap,
            &[b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x00"],
            &[b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037"],
        ),
        script(
            Starttls::Xmpp,
            &[
                b"<?xml version='1.0'?><stream:stream from='example.org'><stream:features><starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/></starttls></stream:features>",
                b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
            ],
            &[
                b"<?xml version='1.0'?><stream:stream to='example.org' version='1.0' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>",
                b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
            ],
        ),
        script(Starttls::Postgres, &[b"S"], &[&[0, 0, 0, 8, 4, 210, 22, 47]]),
        script(
            Starttls::Mysql,
            &[MYSQL_GREETING],
            &[
                b"",
                b"\x20\x00\x00\x01\x00\x8a\x08\x00\x00\x00\x00\x01\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            ],
        ),
    ]
}

fn sent(dialogue: &mut Dialogue) -> Vec<u8> {
    let out = dialogue.output().to_vec();
    dialogue.output_sent(out.len());
    out
}

/// Active Directory writes each length in four bytes.
#[test]
fn a_server_of_ldap_may_write_long_lengths() {
    let consent = b"\x30\x84\0\0\0\x10\x02\x01\x01\x78\x84\0\0\0\x07\x0a\x01\x00\x04\x00\x04\x00";
    let mut dialogue = Dialogue::new(Starttls::Ldap, "example.org");
    let _ = sent(&mut dialogue);
    for byte in consent {
        assert!(!dialogue.is_done());
        dialogue.handle_input(&[*byte]).expect("accepted");
    }
    assert!(dialogue.is_done());
}

#[test]
fn every_protocol_agrees_on_tls_however_the_answers_are_divided() {
    assert_eq!(scripts().len(), Starttls::ALL.len());
    for script in scripts() {
        for piece in [1, 2, 5, 4096] {
            let mut dialogue = Dialogue::new(script.protocol, "example.org");
            let mut client = vec![sent(&mut dialogue)];
            for answer in script.server {
                assert!(!dialogue.is_done(), "{:?}", script.protocol);
                for bytes in answer.chunks(piece) {
                    dialogue.handle_input(bytes).unwrap();
                }
                client.push(sent(&mut dialogue));
            }
            assert!(dialogue.is_done(), "{:?}", script.protocol);
            client.retain(|said| !said.is_empty());
            let expected: Vec<_> = script
                .client
                .iter()
                .filter(|said| !said.is_empty())
                .collect();
            assert_eq!(client.iter().collect::<Vec<_>>().len(), expected.len());
            for (said, expected) in client.iter().zip(expected) {
                assert_eq!(said, expected, "{:?}", script.protocol);
            }
        }
    }
}

#[test]
fn plaintext_after_the_agreement_is_refused() {
    for script in scripts() {
        let mut dialogue = Dialogue::new(script.protocol, "example.org");
        let (last, before) = script.server.split_last().unwrap();
        for answer in before {
            dialogue.handle_input(answer).unwrap();
        }
        let injected = [last, &b"220 injected\r\n"[..]].concat();
        let error = dialogue.handle_input(&injected).unwrap_err();
        assert!(error.contains("14 bytes in plaintext"), "{error}");
        assert!(!dialogue.is_done());
    }
}

#[test]
fn a_refusal_is_quoted_without_control_characters() {
    let refused = |protocol, answers: &[&[u8]]| {
        let mut dialogue = Dialogue::new(protocol, "x");
        let mut answers = answers.iter();
        answers
            .find_map(|answer| dialogue.handle_input(answer).err())
            .unwrap()
    };
    let said = refused(Starttls::Smtp, &[b"554 no\x1b[31m service\r\n"]);
    assert!(
        said.starts_with("STARTTLS (smtp): the server answered \"554 no"),
        "{said}"
    );
    assert!(!said.contains('\x1b'), "{said}");
    let said = refused(Starttls::Smtp, &[b"220 x\r\n", b"250-x\r\n250 SIZE\r\n"]);
    assert!(said.contains("does not offer STARTTLS"), "{said}");
    let said = refused(Starttls::Imap, &[b"* PREAUTH welcome\r\n"]);
    assert!(said.contains("PREAUTH"), "{said}");
    let said = refused(
        Starttls::Imap,
        &[b"* OK x\r\n", b"a1 BAD not supported\r\n"],
    );
    assert!(said.contains("a1 BAD"), "{said}");
    let said = refused(
        Starttls::Ldap,
        &[b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x02\x04\x00\x04\x00"],
    );
    assert!(said.contains("result code 2"), "{said}");
    let said = refused(Starttls::Xmpp, &[b"<stream:features></stream:features>"]);
    assert!(said.contains("does not offer"), "{said}");
    let said = refused(Starttls::Postgres, &[b"N"]);
    assert!(said.contains("ssl = off"), "{said}");
    let said = refused(Starttls::Mysql, &[b"\x0b\x00\x00\x00\xff\x10\x04Too many"]);
    assert!(said.contains("Too many"), "{said}");
    let without = [&MYSQL_GREETING[..25], &[0xff, 0xf7], &MYSQL_GREETING[27..]].concat();
    let said = refused(Starttls::Mysql, &[&without]);
    assert!(said.contains("does not offer TLS"), "{said}");
}

#[test]
fn an_endless_answer_is_refused() {
    for protocol in [Starttls::Smtp, Starttls::Imap, Starttls::Xmpp] {
        let mut dialogue = Dialogue::new(protocol, "x");
        let error = (0..100).find_map(|_| dialogue.handle_input(&[b'2'; 1024]).err());
        assert!(
            error.is_some_and(|error| error.contains("64 KiB")),
            "{protocol:?}"
        );
    }
}

#[test]
fn every_protocol_has_a_message_for_an_exchange() {
    for protocol in Starttls::ALL {
        let message = protocol.first_message("example.org");
        assert!(!message.is_empty());
    }
}
