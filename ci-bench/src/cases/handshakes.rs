//! One side of a handshake, from the first byte until the connection is at rest.
//!
//! Dormouse's client and server run alternately in memory; only one side is counted. Contexts are created before.

use dormouse_engine::{
    ClientContext, ClientSettings, Group, Handshake, HandshakeLimits, Progress, Protocols, Rested,
    ServerContext, ServerSettings,
};
use dormouse_record::{OpenKey, Opened, State, open};
use dormouse_testkit::{Authority, now};

use crate::watch::{Once, Watch};

const NAME: &str = "dormouse.test";

/// The side whose instructions are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Client,
}

/// Whether the handshake resumes the session of an earlier one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Resumes {
    Yes,
    No,
}

/// Handshakes with a P-256 certificate, which the client verifies; the server issues tickets in either case.
pub(super) fn of(side: Side, protocols: Protocols, group: Group, resumes: Resumes) -> Once {
    let authority = Authority::shared();
    let mut settings = ServerSettings::new(vec![authority.ecdsa(&[NAME]).identity()]);
    settings.protocols = protocols;
    let server = ServerContext::new(settings).expect("server settings");

    let mut settings = ClientSettings::new(authority.roots());
    settings.protocols = protocols;
    settings.groups = vec![group, Group::P256];
    if resumes == Resumes::No {
        settings.resumption = None;
    }
    let client = ClientContext::new(settings).expect("client settings");

    let mut is_first = true;
    Box::new(move |watch| {
        let resumed = once(&client, &server, side, watch);
        let expected = resumes == Resumes::Yes && !is_first;
        assert_eq!(resumed, expected, "the wrong kind of handshake");
        is_first = false;
    })
}

/// Makes a handshake. Returns whether it resumed a session.
fn once(client: &ClientContext, server: &ServerContext, side: Side, watch: Watch) -> bool {
    let of = |counted| {
        if side == counted {
            watch
        } else {
            Watch::WARMING_UP
        }
    };
    let (of_client, of_server) = (of(Side::Client), of(Side::Server));
    let limits = HandshakeLimits::default();
    let mut client = of_client.count(|| {
        let mut client = Handshake::client(client, NAME, limits).expect("a name");
        client.handle_input(now(), &[]).expect("ClientHello");
        client
    });
    let mut server = of_server.count(|| Handshake::server(server, limits));
    let mut received = output(&mut client);
    loop {
        let progress = of_server.count(|| server.handle_input(now(), &received).expect("server"));
        let answer = output(&mut server);
        of_client.count(|| client.handle_input(now(), &answer).expect("client"));
        received = output(&mut client);
        if progress == Progress::Established {
            break;
        }
    }
    let resumed = of_server.count(|| {
        let mut state = State::empty();
        server.rest(&mut state).expect("at rest").info.resumed
    });
    of_client.count(|| {
        let mut state = State::empty();
        let rested = client.rest(&mut state).expect("at rest");
        take_tickets(&mut state, rested);
    });
    resumed
}

fn output(handshake: &mut Handshake) -> Vec<u8> {
    let output = handshake.output().to_vec();
    handshake.output_sent(output.len());
    output
}

/// Lets the client store its tickets, so that the next handshake resumes.
fn take_tickets(state: &mut State, mut rested: Rested) {
    let Some(watch) = &mut rested.tickets else {
        return;
    };
    let mut key = OpenKey::new(state);
    let mut records = rested.leftover.as_mut_slice();
    while !records.is_empty() {
        let Ok(Opened::Ticket { consumed, fragment }) = open(state, &mut key, records) else {
            panic!("not a ticket");
        };
        watch
            .handle_fragment(now(), &records[fragment])
            .expect("a ticket");
        records = &mut records[consumed..];
    }
}
