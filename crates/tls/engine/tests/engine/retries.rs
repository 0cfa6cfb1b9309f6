//! Sessions of a server whose software has been replaced by one with other preferences. The new server may ask for
//! another key share, with a suite that the session does not fit; the client then withdraws the session from its
//! second ClientHello (RFC 8446 §4.1.2).

use dormouse_engine::{
    ClientContext, Group, Protocols, ResumptionRefused, ResumptionSettings, Reuse, ServerContext,
    Suite, TicketKeys,
};
use dormouse_testkit::now;

use crate::ours::{client, client_with, server_with, visit};

fn server(suite: Suite, groups: &[Group]) -> ServerContext {
    server_with(|settings| {
        settings.suites = vec![suite];
        settings.groups = groups.to_vec();
    })
}

/// Takes as many sessions as a server gives, and keeps the group that it has chosen.
fn client_of(server: &ServerContext) -> ClientContext {
    let client = client();
    assert!(!visit(&client, server).resumed);
    assert!(visit(&client, server).resumed);
    client
}

#[test]
fn a_withdrawn_session_leads_to_a_full_handshake() {
    for (old, new) in [
        (Suite::Aes256Gcm, Suite::Aes128Gcm),
        (Suite::Aes256Gcm, Suite::Chacha20),
        (Suite::Aes128Gcm, Suite::Aes256Gcm),
    ] {
        for groups in [&Group::ALL[..], &[Group::P384]] {
            let client = client_of(&server(old, &[Group::P256]));
            let new = server(new, groups);
            let info = visit(&client, &new);
            assert!(info.retried && !info.resumed, "{info:?}");
            assert_eq!(info.refused, Some(ResumptionRefused::OtherSuite));
            let info = visit(&client, &new);
            assert!(!info.retried && info.resumed, "{info:?}");
        }
    }
}

/// The hash fits, so the session stays in the second ClientHello.
#[test]
fn a_session_is_resumed_after_a_retry() {
    let keys = TicketKeys::generate(now(), 3_600).unwrap();
    let with_groups = |groups: &[Group]| {
        server_with(|settings| {
            settings.groups = groups.to_vec();
            let tickets = settings.tickets.as_mut().unwrap();
            tickets.keys = Some(TicketKeys::import(&keys.export()).unwrap());
        })
    };
    let client = client_of(&with_groups(&[Group::P256]));
    let info = visit(&client, &with_groups(&Group::ALL));
    assert!(info.resumed, "{info:?}");
    assert_eq!(info.group, Some("X25519MLKEM768"));
}

#[test]
fn a_session_of_tls12_is_no_hindrance() {
    let old = server_with(|settings| settings.protocols = Protocols::TLS12);
    let info = visit(&client_of(&old), &server(Suite::Aes256Gcm, &[Group::P384]));
    assert!(info.retried && !info.resumed, "{info:?}");
}

/// The client sends the shares of its preferred group whatever the old server has chosen, so that its session is
/// neither withdrawn nor resumed without ML-KEM.
#[test]
fn a_group_whose_share_is_sent_anyway_takes_no_place_of_the_preferred_one() {
    let by_caller = ResumptionSettings {
        by_caller: Some(Reuse {
            uses_max: 1,
            age_max_s: 3_600,
        }),
        ..ResumptionSettings::default()
    };
    for resumption in [ResumptionSettings::default(), by_caller] {
        let client = client_with(|settings| settings.resumption = Some(resumption));
        let [old, new] = [&[Group::X25519][..], &Group::ALL].map(|groups| {
            let info = visit(&client, &server(Suite::Aes256Gcm, groups));
            assert!(!info.retried, "{info:?}");
            info.group
        });
        assert_eq!([old, new], [Some("x25519"), Some("X25519MLKEM768")]);
        // A group whose share is not sent otherwise is a hint.
        let other = server(Suite::Aes256Gcm, &[Group::P256]);
        let retried = [(); 2].map(|()| visit(&client, &other).retried);
        assert_eq!(retried, [true, false]);
    }
}
