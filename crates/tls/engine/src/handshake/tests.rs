//! Conditions under which a handshake comes to rest.

use rustls::KeyLog;

use self::secret_log::SecretCatcher;
use super::*;
use crate::{
    ClientContext, ClientSettings, Identity, Roots, ServerContext, ServerSettings, Version,
};

const NOW: UnixTime = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000));

fn established() -> (Handshake, Handshake) {
    let identity = Identity::self_signed("dormouse.test").unwrap();
    let server = ServerContext::new(ServerSettings::new(vec![identity])).unwrap();
    let client = ClientContext::new(ClientSettings::new(Roots::Insecure)).unwrap();
    let limits = HandshakeLimits::default();
    let mut client = Handshake::client(&client, "dormouse.test", limits).unwrap();
    let mut server = Handshake::server(&server, limits);
    client.handle_input(NOW, &[]).unwrap();
    for _ in 0..2 {
        pass(&mut client, &mut server);
        pass(&mut server, &mut client);
    }
    (client, server)
}

fn pass(from: &mut Handshake, to: &mut Handshake) {
    let bytes = from.output().to_vec();
    from.output_sent(bytes.len());
    to.handle_input(NOW, &bytes).unwrap();
}

/// Tests the check of the captured secrets: with secrets other than those in use, in either direction, the
/// handshake does not come to rest.
#[test]
fn secrets_which_do_not_yield_the_keys_in_use_are_refused() {
    for label in ["CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"] {
        for len in [32, 48] {
            let (client, server) = established();
            for mut handshake in [client, server] {
                let scope = handshake.scope.take().unwrap();
                let (scope, ()) = enter(scope, || {
                    SecretCatcher::default().log(label, &[], &[7; 48][..len])
                });
                handshake.scope = Some(scope);
                let mut state = record::State::empty();
                let failure = handshake.rest(&mut state).unwrap_err();
                assert_eq!(failure.kind, FailureKind::Internal, "{failure}");
                assert!(state.is_empty());
            }
        }
    }
}

#[test]
fn rested_keeps_unsent_output_and_leftover_input() {
    let (mut client, mut server) = established();
    client.handle_input(NOW, b"more").unwrap();
    server.driver.output.extend_from_slice(b"sent and unsent");
    server.output_sent(9);
    let mut state = record::State::empty();
    let rested = server.rest(&mut state).unwrap();
    assert_eq!(rested.unsent, b"unsent");
    assert_eq!(rested.info.protocol, Version::Tls13);
    let rested = client.rest(&mut state).unwrap();
    assert!(rested.leftover.ends_with(b"more"));
}

/// Bytes received after the handshake, before the connection rests, are limited.
#[test]
fn leftover_is_bounded() {
    let (mut client, _) = established();
    let failure = (0..100)
        .find_map(|_| client.handle_input(NOW, &[0; 1_000]).err())
        .unwrap();
    assert_eq!(failure.kind, FailureKind::TooLarge);
    assert!(client.leftover.len() <= client.limits.bytes_max);
}
