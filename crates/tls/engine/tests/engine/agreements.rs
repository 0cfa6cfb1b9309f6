//! Handshakes with key agreements that were computed before, together with others.

use dormouse_engine::{
    AgreementBatches, ClientShare, Group, Handshake, HandshakeInfo, Identity, PreparedAgreement,
    Progress, Protocols, ServerContext, ServerSettings,
};
use dormouse_testkit::{Authority, Cut, drive, now};

use crate::ours::{client_with, client_with_hello, server_handshake, server_with};
use crate::stock::NAME;

fn batches() -> Vec<AgreementBatches> {
    let here = AgreementBatches::detect().ok();
    here.into_iter()
        .chain([AgreementBatches::one_by_one()])
        .collect()
}

fn client(groups: &[Group]) -> Handshake {
    client_with_hello(&client_with(|settings| settings.groups = groups.to_vec()))
}

fn share(server: &ServerContext, client: &Handshake) -> Option<ClientShare> {
    server.x25519_share(client.output())
}

/// Prepares the agreement of a client, beside that of another one.
fn prepare(
    batches: AgreementBatches,
    server: &ServerContext,
    client: &Handshake,
) -> Box<PreparedAgreement> {
    let other = share(&server_with(|_| {}), &self::client(&[Group::X25519])).unwrap();
    let shares = [other, share(server, client).unwrap()];
    batches.prepare(&shares).remove(1).unwrap()
}

/// Completes the handshake. Returns its info, and whether the server has sent this public key.
fn complete(
    mut client: Handshake,
    mut server: Handshake,
    public_key: &[u8; 32],
) -> (HandshakeInfo, bool) {
    let hello = client.output().to_vec();
    client.output_sent(hello.len());
    server.handle_input(now(), &hello).unwrap();
    let was_sent = has(server.output(), public_key);
    let (_, server) = drive(client, server, Cut::Whole).unwrap();
    (server.info, was_sent)
}

fn has(bytes: &[u8], key: &[u8; 32]) -> bool {
    bytes.windows(32).any(|bytes| bytes == key)
}

#[test]
fn a_handshake_uses_its_agreement() {
    for batches in batches() {
        for groups in [&[Group::X25519][..], &Group::ALL] {
            let server = server_with(|_| {});
            let client = client(groups);
            let agreement = prepare(batches, &server, &client);
            let public_key = *agreement.public_key();
            let mut handshake = server_handshake(&server);
            handshake.use_agreement(agreement);
            let (info, was_sent) = complete(client, handshake, &public_key);
            assert!(was_sent && !info.resumed, "{info:?}");
        }
    }
}

/// As if a program mixed up its connections: both handshakes succeed, with keys of their own.
#[test]
fn another_clients_agreement_is_not_used() {
    for batches in batches() {
        let server = server_with(|_| {});
        let agreement = prepare(batches, &server, &client(&[Group::X25519]));
        let public_key = *agreement.public_key();
        let mut handshake = server_handshake(&server);
        handshake.use_agreement(agreement);
        let (_, was_sent) = complete(client(&[Group::X25519]), handshake, &public_key);
        assert!(!was_sent);
    }
}

/// The route that the hello chooses may have other groups than the one that was expected.
#[test]
fn a_server_that_asks_for_another_share_drops_the_agreement() {
    let expected = server_with(|_| {});
    let server = server_with(|settings| settings.groups = vec![Group::P256]);
    let client = client(&Group::ALL);
    assert!(share(&server, &client).is_none());
    let agreement = prepare(AgreementBatches::one_by_one(), &expected, &client);
    let public_key = *agreement.public_key();
    let mut handshake = server_handshake(&server);
    handshake.use_agreement(agreement);
    let (info, was_sent) = complete(client, handshake, &public_key);
    assert!(info.retried && !was_sent, "{info:?}");
}

#[test]
fn a_server_without_tls_1_3_expects_no_share() {
    let server = server_with(|settings| settings.protocols = Protocols::TLS12);
    assert!(share(&server, &client(&Group::ALL)).is_none());
}

/// Both attempts of a handshake that waits for a signature have the same agreement.
#[test]
fn a_handshake_that_waits_for_its_signature_keeps_its_agreement() {
    let leaf = Authority::shared().ecdsa(&[NAME]);
    let pem = leaf.certificate_pem.as_bytes();
    let identity = Identity::with_deferred_key(pem, "token", "site.pem").unwrap();
    let server = server_with(|settings| *settings = ServerSettings::new(vec![identity]));
    let client = client(&Group::ALL);
    let agreement = prepare(AgreementBatches::one_by_one(), &server, &client);
    let public_key = *agreement.public_key();
    let mut handshake = server_handshake(&server);
    handshake.use_agreement(agreement);
    handshake.handle_input(now(), client.output()).unwrap();
    assert!(handshake.signature_request().is_some());
    // The client would refuse this signature; what matters is in the ServerHello.
    let progress = handshake.handle_signature(Ok(vec![1; 70])).unwrap();
    assert_eq!(progress, Progress::Handshaking);
    assert!(has(handshake.output(), &public_key));
}
