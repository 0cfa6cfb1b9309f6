//! Negotiated parameters; tickets across contexts, and so across processes; and disabled resumption.

use std::time::Duration;

use dormouse_engine::{Group, Protocols, ServerContext, TicketKeys, TicketSettings, UnixTime};
use dormouse_testkit::{Authority, Cut, NOW_S, Pair, PairSettings, drive, now};

use crate::ours::{client, client_handshake, server_handshake, server_with, visit};
use crate::stock::NAME;

const LIFETIME_S: u32 = 3_600;

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

fn server(tickets: Option<TicketSettings>, protocols: Protocols) -> ServerContext {
    server_with(|settings| {
        settings.protocols = protocols;
        settings.tickets = tickets;
    })
}

fn shared(keys: &TicketKeys) -> Option<TicketSettings> {
    Some(TicketSettings {
        keys: Some(TicketKeys::import(&keys.export()).unwrap()),
        lifetime_s: LIFETIME_S,
        ..TicketSettings::default()
    })
}

#[test]
fn groups_and_signatures_are_reported() {
    let authority = Authority::shared();
    for (leaf, in_13, in_12) in [
        (
            authority.ecdsa(&[NAME]),
            "ecdsa_secp256r1_sha256",
            "ecdsa_secp256r1_sha256",
        ),
        (
            authority.ecdsa_p384(&[NAME]),
            "ecdsa_secp384r1_sha384",
            "ecdsa_secp384r1_sha384",
        ),
        (
            authority.rsa(&[NAME]),
            "rsa_pss_rsae_sha512",
            "rsa_pss_rsae_sha512",
        ),
    ] {
        for group in Group::ALL {
            for (protocols, signature) in [(Protocols::TLS13, in_13), (Protocols::TLS12, in_12)] {
                if group == Group::X25519MlKem768 && protocols == Protocols::TLS12 {
                    continue; // TLS 1.3 only
                }
                let pair = Pair::new(PairSettings {
                    leaf: leaf.clone(),
                    protocols,
                    client_groups: vec![group],
                    ..PairSettings::default()
                });
                let (client, server) = pair.connect(Cut::Whole).unwrap();
                assert!(client.info.verified);
                for info in [client.info, server.info] {
                    assert_eq!(info.group, Some(group.name()));
                    assert_eq!(info.signature, Some(signature), "{group:?} {protocols:?}");
                    assert_eq!(info.sni.as_deref(), Some(NAME));
                    assert!(!info.retried);
                }
            }
        }
    }
}

#[test]
fn processes_with_the_same_keys_resume_each_others_sessions() {
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let mut keys = TicketKeys::generate(now(), LIFETIME_S).unwrap();
        let one = server(shared(&keys), protocols);
        let other = server(shared(&keys), protocols);
        let client = client();
        assert!(!visit(&client, &one).resumed);
        assert!(visit(&client, &other).resumed);
        assert!(visit(&client, &one).resumed);
        // After one rotation the old tickets still open; after three they do not.
        let later = |periods: u64| at(NOW_S + periods * u64::from(LIFETIME_S));
        assert!(keys.rotate_if_due(later(1)).unwrap());
        other.replace_ticket_keys(&keys).unwrap();
        assert!(visit(&client, &other).resumed);
        for periods in 2..5 {
            assert!(keys.rotate_if_due(later(periods)).unwrap());
        }
        other.replace_ticket_keys(&keys).unwrap();
        assert!(!visit(&client, &other).resumed);
        assert!(visit(&client, &other).resumed);
    }
}

#[test]
fn processes_with_other_keys_fall_back_to_a_full_handshake() {
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let client = client();
        assert!(!visit(&client, &server(Some(TicketSettings::default()), protocols)).resumed);
        assert!(!visit(&client, &server(Some(TicketSettings::default()), protocols)).resumed);
    }
}

#[test]
fn without_tickets_nothing_is_resumed() {
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let (client, server) = (client(), server(None, protocols));
        for _ in 0..3 {
            let info = visit(&client, &server);
            assert!(!info.resumed);
        }
    }
}

#[test]
fn the_configured_number_of_tickets_is_sent() {
    for count in [0, 1, 5] {
        let tickets = TicketSettings {
            per_handshake: count,
            ..TicketSettings::default()
        };
        let server = server(Some(tickets), Protocols::TLS13);
        let client = client_handshake(&client());
        let (mut client, _) = drive(client, server_handshake(&server), Cut::Whole).unwrap();
        assert!(client.open(&[]).is_empty());
        let watch = client.tickets.unwrap();
        assert_eq!(watch.received() as usize, count);
        assert_eq!(watch.is_satisfied(), count > 0);
    }
}
