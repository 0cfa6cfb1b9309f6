//! Conditions for resumption. A session is never resumed under another server name, protocol or client policy,
//! never twice for single-use tickets, and never with a client certificate that is refused now. A refused
//! session leads to a full handshake.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_engine::{
    CertificateProblem, ClientCertificates, ClientContext, FailureKind, Handshake,
    HandshakeFailure, HandshakeInfo, Protocols, ResumptionRefused, ResumptionSettings, Roots,
    ServerContext, ServerSessions, ServerSettings, TicketKeys, TicketSettings, UnixTime,
};
use dormouse_record::State;
use dormouse_testkit::{Authority, Cut, Leaf, NOW_S, Resting, drive, now};

use crate::ours::{
    client_handshake, client_with, client_with_hello, complete, handshake_with, server_handshake,
    server_with, visit,
};
use crate::stock::NAME;

const BOTH: [Protocols; 2] = [Protocols::TLS13, Protocols::TLS12];

/// Returns a server with these keys; `change` sets what the test is about.
fn server(keys: &TicketKeys, change: impl FnOnce(&mut ServerSettings)) -> ServerContext {
    server_with(|settings| {
        settings.tickets = Some(TicketSettings {
            keys: Some(TicketKeys::import(&keys.export()).unwrap()),
            lifetime_s: 3_600,
            ..TicketSettings::default()
        });
        change(settings);
    })
}

fn keys() -> TicketKeys {
    TicketKeys::generate(now(), 3_600).unwrap()
}

fn meet(
    client: &ClientContext,
    server: &ServerContext,
) -> Result<(Resting, Resting), HandshakeFailure> {
    drive(
        client_handshake(client),
        server_handshake(server),
        Cut::Whole,
    )
}

/// Asserts that the session is not resumed for this reason, and that the next session is resumed.
fn assert_refused(
    client: &ClientContext,
    server: &ServerContext,
    reason: ResumptionRefused,
) -> HandshakeInfo {
    let info = visit(client, server);
    assert!(!info.resumed, "{reason:?}");
    assert_eq!(info.refused, Some(reason));
    let again = visit(client, server);
    assert!(again.resumed && again.refused.is_none(), "after {reason:?}");
    info
}

fn asking(required: bool, crls: &[String]) -> Option<ClientCertificates> {
    Some(ClientCertificates {
        required,
        roots: Authority::shared().certificate_pem().into_bytes(),
        crls: crls
            .iter()
            .map(|pem| ("test.crl".to_owned(), pem.clone().into_bytes()))
            .collect(),
        allow: Vec::new(),
    })
}

fn with_certificate(protocols: Protocols, leaf: &Leaf) -> ClientContext {
    client_with(|settings| {
        settings.protocols = protocols;
        settings.identity = Some(leaf.identity());
    })
}

#[test]
fn another_application_protocol_is_not_resumed() {
    for protocols in BOTH {
        let keys = keys();
        let speaks = |alpn: &[u8]| server(&keys, |settings| settings.alpn = vec![alpn.to_vec()]);
        let client = client_with(|settings| {
            settings.protocols = protocols;
            settings.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        });
        let (one, other) = (speaks(b"http/1.1"), speaks(b"h2"));
        assert!(visit(&client, &one).refused.is_none());
        assert_eq!(visit(&client, &one).alpn.as_deref(), Some(&b"http/1.1"[..]));
        let info = assert_refused(&client, &other, ResumptionRefused::OtherAlpn);
        assert_eq!(info.alpn.as_deref(), Some(&b"h2"[..]));
        let silent = server(&keys, |_| {});
        assert_refused(&client, &silent, ResumptionRefused::OtherAlpn);
    }
}

/// A client's connection may be diverted to another address of the server, or to another machine of the fleet.
#[test]
fn a_certificate_for_other_names_is_not_resumed() {
    let named = |keys: &TicketKeys, name: &str| {
        let identity = Authority::shared().ecdsa(&[name]).identity();
        server(keys, |settings| settings.identities = vec![identity])
    };
    for protocols in BOTH {
        let keys = keys();
        let (own, other) = (named(&keys, NAME), named(&keys, "other.test"));
        let wildcard = named(
            &keys,
            &NAME.replacen(NAME.split_once('.').unwrap().0, "*", 1),
        );
        let client = client_with(|settings| settings.protocols = protocols);
        assert!(!visit(&client, &own).resumed);
        assert!(visit(&client, &wildcard).resumed, "it covers the name, too");
        let failure = meet(&client, &other).err().expect("refused");
        assert!(
            matches!(
                failure.kind,
                FailureKind::Certificate(CertificateProblem::WrongName { .. })
            ),
            "{failure}"
        );
        // A client that accepts any certificate, and one that requests no name.
        for name in [NAME, "192.0.2.1"] {
            let client = client_with(|settings| {
                settings.protocols = protocols;
                settings.roots = Roots::Insecure;
            });
            let visit = |server| complete(handshake_with(&client, name), server);
            assert!(!visit(&own).resumed && visit(&own).resumed);
            let info = visit(&other);
            assert_eq!(info.refused, Some(ResumptionRefused::OtherServerName));
            assert!(visit(&other).resumed);
            assert!(visit(&named(&keys, "OTHER.test")).resumed, "the same names");
        }
    }
}

/// In TLS 1.2 a resumed session keeps its master secret, so the session must end although its client gets new tickets.
#[test]
fn a_new_ticket_does_not_make_a_tls12_session_younger() {
    for protocols in BOTH {
        let keys = TicketKeys::generate(now(), 86_400).unwrap();
        let server = server(&keys, |_| {});
        let client = client_with(|settings| settings.protocols = protocols);
        let visit = |after_s| visit_later(&client, 0, &server, after_s);
        assert!(!visit(0).resumed);
        assert!(visit(1_800).resumed && visit(3_600).resumed);
        let info = visit(3_601);
        if protocols == Protocols::TLS12 {
            assert_eq!(info.refused, Some(ResumptionRefused::Expired));
            assert!(visit(7_201).resumed, "it began at 3,601");
        } else {
            assert!(info.resumed, "a resumed handshake exchanges new keys");
        }
    }
}

/// A resumed handshake does not verify the certificate again.
#[test]
fn a_client_makes_a_full_handshake_once_a_day() {
    for protocols in BOTH {
        let server = server_for_a_week();
        let client = client_with(|settings| settings.protocols = protocols);
        let visit = |after_s| visit_later(&client, after_s, &server, after_s);
        assert!(!visit(100).resumed);
        assert!(visit(43_200).resumed && visit(86_499).resumed);
        assert!(!visit(86_500).resumed);
        assert!(visit(86_501).resumed && visit(172_899).resumed);
        assert!(!visit(0).resumed, "the clock was set back");
    }
}

/// A full handshake that has not ended, or fails, has verified nothing. A client with many connections begins one
/// whenever it has used up its tickets.
#[test]
fn a_full_handshake_that_only_begins_makes_no_session_younger() {
    for protocols in BOTH {
        let server = server_for_a_week();
        let client = client_with(|settings| settings.protocols = protocols);
        let begin = |after_s| begin_later(&client, after_s);
        let finish = |begun, after_s| finish_later(begun, after_s, &server, after_s);
        let visit = |after_s| finish(begin(after_s), after_s);
        assert!(!visit(100).resumed);
        // The server gave two tickets.
        let [first, _second, _third] = [82_800; 3].map(begin);
        assert!(finish(first, 82_800).resumed);
        assert!(!visit(90_000).resumed, "a day after the verification");
        assert!(visit(90_001).resumed);
        // A session that was under way when the day ended is not one of the next day.
        let late = begin(170_000);
        let _failed = begin(176_401);
        assert!(finish(late, 176_402).resumed);
        assert!(!visit(176_403).resumed);
        assert!(visit(176_404).resumed);
    }
}

/// Returns a server whose tickets are valid for longer than a client uses them.
fn server_for_a_week() -> ServerContext {
    let keys = TicketKeys::generate(now(), 604_800).unwrap();
    server(&keys, |settings| {
        settings.tickets.as_mut().unwrap().lifetime_s = 604_800;
    })
}

fn later(after_s: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(NOW_S + after_s))
}

/// Completes a handshake, so many seconds later for each side. Returns the server's info.
fn visit_later(
    client: &ClientContext,
    client_later_s: u64,
    server: &ServerContext,
    server_later_s: u64,
) -> HandshakeInfo {
    let begun = begin_later(client, client_later_s);
    finish_later(begun, client_later_s, server, server_later_s)
}

/// Returns a client's handshake whose output is its ClientHello.
fn begin_later(client: &ClientContext, after_s: u64) -> Handshake {
    let mut client = client_handshake(client);
    client.handle_input(later(after_s), &[]).unwrap();
    client
}

fn finish_later(
    mut client: Handshake,
    client_later_s: u64,
    server: &ServerContext,
    server_later_s: u64,
) -> HandshakeInfo {
    let (for_client, for_server) = (later(client_later_s), later(server_later_s));
    let mut server = server_handshake(server);
    for _ in 0..3 {
        let output = client.output().to_vec();
        client.output_sent(output.len());
        server.handle_input(for_server, &output).unwrap();
        let output = server.output().to_vec();
        server.output_sent(output.len());
        client.handle_input(for_client, &output).unwrap();
    }
    let mut state = State::empty();
    let rested = client.rest(&mut state).unwrap();
    assert!(Resting::new(state, rested).open(&[]).is_empty());
    server.rest(&mut State::empty()).unwrap().info
}

#[test]
fn another_rule_for_clients_is_not_resumed() {
    let leaf = Authority::shared().ecdsa(&["alice"]);
    let elsewhere = Authority::new("Elsewhere");
    for protocols in BOTH {
        let keys = keys();
        let rules = |rules| server(&keys, |settings| settings.client_certificates = rules);
        let mut wider = asking(true, &[]).unwrap();
        wider
            .roots
            .extend_from_slice(elsewhere.certificate_pem().as_bytes());
        let all = [
            rules(None),
            rules(asking(false, &[])),
            rules(asking(true, &[])),
            rules(Some(wider)),
        ];
        for (m, made) in all.iter().enumerate() {
            for (s, shown) in all.iter().enumerate() {
                let client = with_certificate(protocols, &leaf);
                let first = visit(&client, made);
                assert_eq!(first.client.is_some(), m > 0, "{first:?}");
                assert_eq!(first.verified, m > 0);
                let second = visit(&client, shown);
                assert_eq!(second.resumed, m == s, "made {m}, shown {s}");
                assert_eq!(second.client.is_some(), s > 0);
                assert_eq!(
                    second.refused,
                    (m != s).then_some(ResumptionRefused::OtherClientPolicy)
                );
            }
        }
    }
}

#[test]
fn a_certificate_revoked_after_the_ticket_was_made_is_refused() {
    let authority = Authority::shared();
    for protocols in BOTH {
        let (alice, bob) = (authority.ecdsa(&["alice"]), authority.ecdsa(&["bob"]));
        let keys = keys();
        let rules = |revoked: &[&Leaf]| {
            let list = authority.revocation_list(revoked);
            server(&keys, |settings| {
                settings.client_certificates = asking(true, &[list]);
            })
        };
        let (before, after) = (rules(&[]), rules(&[&alice]));
        let as_alice = with_certificate(protocols, &alice);
        let as_bob = with_certificate(protocols, &bob);
        for client in [&as_alice, &as_bob] {
            assert!(!visit(client, &before).resumed);
            assert!(visit(client, &before).resumed, "not revoked yet");
        }
        assert!(
            visit(&as_bob, &after).resumed,
            "and bob is not revoked at all"
        );
        // The session is not resumed, and the full handshake reports why.
        let failure = meet(&as_alice, &after).err().expect("refused");
        assert_eq!(
            failure.kind,
            FailureKind::Certificate(CertificateProblem::Revoked)
        );
        assert!(failure.reason.contains("alice"), "{failure}");
        assert!(failure.reason.contains("certificate_revoked"), "{failure}");
    }
}

/// A directory of revocation lists may hold those of earlier days, too, in any order.
#[test]
fn the_newest_revocation_list_of_an_issuer_counts() {
    let authority = Authority::shared();
    let (alice, bob) = (authority.ecdsa(&["alice"]), authority.ecdsa(&["bob"]));
    let expired = authority.revocation_list_of(2024, 2025, &[]);
    let older = authority.revocation_list_of(2025, 2050, &[&bob]);
    let newest = authority.revocation_list_of(2026, 2049, &[&alice]);
    for lists in [
        [&expired, &older, &newest],
        [&newest, &older, &expired],
        [&older, &newest, &expired],
    ] {
        let rules = asking(true, &lists.map(String::clone));
        assert!(rules.as_ref().unwrap().warnings(now()).is_empty());
        let server = server(&keys(), |settings| settings.client_certificates = rules);
        let as_alice = with_certificate(Protocols::ALL, &alice);
        let failure = meet(&as_alice, &server).err().expect("refused");
        assert_eq!(
            failure.kind,
            FailureKind::Certificate(CertificateProblem::Revoked)
        );
        visit(&with_certificate(Protocols::ALL, &bob), &server);
    }
    let rules = asking(true, std::slice::from_ref(&expired)).unwrap();
    assert_eq!(rules.warnings(now()).len(), 1);
}

#[test]
fn a_missing_required_certificate_is_refused() {
    for protocols in BOTH {
        let server = server(&keys(), |settings| {
            settings.client_certificates = asking(true, &[]);
        });
        let anonymous = client_with(|settings| settings.protocols = protocols);
        let failure = meet(&anonymous, &server).err().expect("refused");
        assert_eq!(
            failure.kind,
            FailureKind::Certificate(CertificateProblem::Missing)
        );
        assert!(failure.reason.contains("client's certificate"), "{failure}");
    }
}

#[test]
fn an_overlong_chain_gets_no_ticket() {
    let authority = Authority::shared();
    let mut leaf = authority.ecdsa(&["alice"]);
    for n in 0..10 {
        let more = authority.ecdsa(&[&format!("padding-{n}.test")]);
        leaf.certificate_pem.push_str(&more.certificate_pem);
    }
    for protocols in BOTH {
        let server = server(&keys(), |settings| {
            settings.client_certificates = asking(true, &[]);
        });
        let client = with_certificate(protocols, &leaf);
        for _ in 0..3 {
            let info = visit(&client, &server);
            assert!(!info.resumed && info.ticket_withheld, "{info:?}");
            assert_eq!(info.refused, None);
        }
    }
}

#[test]
fn foreign_tickets_lead_to_a_full_handshake() {
    for protocols in BOTH {
        let client = client_with(|settings| settings.protocols = protocols);
        let (ours, theirs) = (server(&keys(), |_| {}), server(&keys(), |_| {}));
        assert!(visit(&client, &ours).refused.is_none());
        assert_refused(&client, &theirs, ResumptionRefused::UnknownKey);
    }
}

/// A minimal session store.
#[derive(Debug, Default)]
struct InMemory(Mutex<HashMap<Vec<u8>, Vec<u8>>>);

impl ServerSessions for InMemory {
    fn put(&self, id: &[u8], sealed: &[u8]) -> bool {
        self.0.lock().unwrap().insert(id.to_vec(), sealed.to_vec());
        true
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(id).cloned()
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.0.lock().unwrap().remove(id)
    }

    fn mark(&self, id: &[u8]) -> u32 {
        id.first_chunk()
            .map_or(0, |start| u32::from_be_bytes(*start))
    }

    fn forget(&self, mark: u32) {
        let mut sessions = self.0.lock().unwrap();
        sessions.retain(|id, _| self.mark(id) != mark);
    }
}

/// Returns a server that resumes by id, with its sessions.
fn server_with_ids() -> (ServerContext, Arc<InMemory>) {
    let store = Arc::new(InMemory::default());
    let server = server(&keys(), |settings| {
        settings.protocols = Protocols::TLS12;
        settings.sessions = Some(Arc::clone(&store) as _);
    });
    (server, store)
}

#[test]
fn a_connection_knows_its_stored_session() {
    let (server, store) = server_with_ids();
    let client = client_with(|settings| settings.protocols = Protocols::TLS12);
    for resumed in [false, true] {
        let (_, server) = meet(&client, &server).unwrap();
        assert_eq!(server.info.resumed, resumed);
        let id = store.0.lock().unwrap().keys().next().unwrap().clone();
        assert_eq!(server.state.session_mark(), store.mark(&id));
    }
    // TLS 1.3 has no such rule, so there is nothing to remember.
    let server = super::resumption::server(&keys(), |settings| {
        settings.sessions = Some(Arc::clone(&store) as _);
    });
    let client = client_with(|_| {});
    assert_eq!(meet(&client, &server).unwrap().1.state.session_mark(), 0);
}

#[test]
fn a_failed_handshake_ends_the_session_that_it_resumes() {
    let (server, store) = server_with_ids();
    let client = client_with(|settings| settings.protocols = Protocols::TLS12);
    assert!(!visit(&client, &server).resumed);
    assert!(visit(&client, &server).resumed);
    let client = client_with_hello(&client);
    let mut server = server_handshake(&server);
    server.handle_input(now(), client.output()).unwrap();
    assert!(!store.0.lock().unwrap().is_empty());
    let alert = [21, 3, 3, 0, 2, 2, 40];
    server.handle_input(now(), &alert).unwrap_err();
    assert!(store.0.lock().unwrap().is_empty(), "it was resumed here");
}

#[test]
fn stored_sessions_are_resumed_and_lost_or_damaged_ones_are_not() {
    for protocols in BOTH {
        let store = Arc::new(InMemory::default());
        let server = server(&keys(), |settings| {
            settings.sessions = Some(Arc::clone(&store) as _);
        });
        let client = client_with(|settings| settings.protocols = protocols);
        assert!(!visit(&client, &server).resumed);
        assert!(!store.0.lock().unwrap().is_empty());
        for _ in 0..5 {
            assert!(visit(&client, &server).resumed, "{protocols:?}");
        }
        for sealed in store.0.lock().unwrap().values_mut() {
            let last = sealed.len() - 1;
            sealed[last] ^= 1;
        }
        assert_refused(&client, &server, ResumptionRefused::Damaged);
        store.0.lock().unwrap().clear();
        assert_refused(&client, &server, ResumptionRefused::NotCached);
    }
}

/// A client has as many tickets after a resumed handshake as before it.
#[test]
fn a_resumed_handshake_replaces_the_used_ticket() {
    for count in [1, 2, 5] {
        for stored in [false, true] {
            let server = server(&keys(), |settings| {
                settings.tickets = Some(TicketSettings {
                    per_handshake: count,
                    ..TicketSettings::default()
                });
                if stored {
                    settings.sessions = Some(Arc::new(InMemory::default()));
                }
            });
            let client = client_with(|settings| {
                settings.resumption = settings.resumption.map(|resumption| ResumptionSettings {
                    tickets_expected: count as u32,
                    ..resumption
                });
            });
            for expected in [count as u32, 1, 1] {
                let (mut client, server) = meet(&client, &server).unwrap();
                assert!(client.open(&[]).is_empty());
                assert_eq!(server.info.resumed, client.info.resumed);
                let watch = client.tickets.unwrap();
                assert_eq!(watch.received(), expected, "of {count}, stored: {stored}");
                assert!(watch.is_satisfied());
            }
        }
    }
}

#[test]
fn a_context_warms_up_with_any_settings() {
    let keys = keys();
    for protocols in [Protocols::ALL, Protocols::TLS12, Protocols::TLS13] {
        for rules in [None, asking(false, &[]), asking(true, &[])] {
            let server = server(&keys, |settings| {
                settings.protocols = protocols;
                settings.client_certificates = rules;
                settings.alpn = vec![b"h2".to_vec()];
            });
            server.warm_up(now()).unwrap();
        }
    }
}
