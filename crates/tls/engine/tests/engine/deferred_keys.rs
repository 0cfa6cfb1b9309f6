//! Handshakes that wait for a signature that is made elsewhere.

use std::process::Command;
use std::sync::{Arc, Mutex};

use dormouse_engine::{
    Blame, ClientCertificates, FailureKind, Group, Handshake, Identity, Progress, Protocols,
    ResumptionSettings, Reuse, ServerSettings, Session, SessionStore, SignatureRequest, UnixTime,
};
use dormouse_testkit::{Authority, Cut, Leaf, PemFiles, drive, now};

use crate::ours::{client_handshake, client_with, server_handshake, server_with};
use crate::stock::NAME;

/// Signs a digest as a token does.
fn sign(leaf: &Leaf, request: &SignatureRequest) -> Vec<u8> {
    assert_eq!(&*request.key, "token");
    let files = PemFiles::write(Authority::shared(), leaf).unwrap();
    let digest = files.directory().join("digest");
    std::fs::write(&digest, &request.digest).unwrap();
    let hash = format!("digest:sha{}", request.digest.len() * 8);
    let mut command = Command::new("openssl");
    command.args(["pkeyutl", "-sign", "-pkeyopt", &hash]);
    if request.scheme.name().starts_with("rsa_pss") {
        command.args(["-pkeyopt", "rsa_padding_mode:pss"]);
        command.args(["-pkeyopt", "rsa_pss_saltlen:digest"]);
    }
    let output = command
        .arg("-inkey")
        .arg(files.key())
        .arg("-in")
        .arg(&digest)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

fn deferred(leaf: &Leaf) -> Identity {
    Identity::with_deferred_key(leaf.certificate_pem.as_bytes(), "token", "site.pem").unwrap()
}

/// Passes output on until a side waits for a signature or nothing moves.
fn exchange(client: &mut Handshake, server: &mut Handshake) -> [Progress; 2] {
    let mut progress = [Progress::Handshaking; 2];
    progress[0] = client.handle_input(now(), &[]).unwrap();
    loop {
        let mut moved = false;
        for (side, from_client) in [(1, true), (0, false)] {
            let (from, to) = match from_client {
                true => (&mut *client, &mut *server),
                false => (&mut *server, &mut *client),
            };
            let bytes = from.output().to_vec();
            from.output_sent(bytes.len());
            for byte in &bytes {
                moved = true;
                progress[side] = to.handle_input(now(), &[*byte]).unwrap();
            }
        }
        let waits = client.signature_request().is_some() || server.signature_request().is_some();
        if waits || !moved {
            return progress;
        }
    }
}

/// A HelloRetryRequest comes before the signature if the client's first group is not the server's.
#[test]
fn a_server_waits_in_each_version_with_each_kind_of_key() {
    let authority = Authority::shared();
    let all = Group::ALL.to_vec();
    for leaf in [authority.ecdsa(&[NAME]), authority.rsa(&[NAME])] {
        for protocols in [Protocols::TLS13, Protocols::TLS12] {
            for groups in [all.clone(), vec![Group::P384, Group::X25519]] {
                let server = server_with(|settings| {
                    *settings = ServerSettings::new(vec![deferred(&leaf)]);
                    settings.protocols = protocols;
                    settings.groups = vec![Group::X25519MlKem768, Group::X25519];
                });
                let client = client_with(|settings| settings.groups = groups.clone());
                let mut server = server_handshake(&server);
                let mut client = client_handshake(&client);
                exchange(&mut client, &mut server);
                let request = server.signature_request().unwrap().clone();
                let progress = server.handle_signature(Ok(sign(&leaf, &request))).unwrap();
                assert_eq!(progress, Progress::Handshaking);
                assert!(server.signature_request().is_none());
                let (_, server) = drive_on(client, server);
                assert!(!server.info.resumed);
            }
        }
    }
}

fn drive_on(
    mut client: Handshake,
    mut server: Handshake,
) -> (dormouse_testkit::Resting, dormouse_testkit::Resting) {
    let bytes = server.output().to_vec();
    server.output_sent(bytes.len());
    client.handle_input(now(), &bytes).unwrap();
    drive(client, server, Cut::Whole).unwrap()
}

#[test]
fn without_a_signature_the_handshake_fails_with_an_alert() {
    let leaf = Authority::shared().ecdsa(&[NAME]);
    let context = server_with(|settings| *settings = ServerSettings::new(vec![deferred(&leaf)]));
    for signature in [Err("the token is gone".to_owned()), Ok(vec![1; 70])] {
        let mut server = server_handshake(&context);
        let mut client = client_handshake(&client_with(|_| {}));
        exchange(&mut client, &mut server);
        let is_refused = signature.is_err();
        match server.handle_signature(signature) {
            Err(failure) => {
                assert!(is_refused);
                assert_eq!(failure.blame, Blame::Internal);
                assert!(failure.reason.contains("the token is gone"), "{failure}");
                assert!(failure.alert_sent.is_some());
            }
            Ok(_) => assert!(!is_refused),
        }
        let failure = client.handle_input(now(), server.output()).unwrap_err();
        // An invalid one is the client's to refuse.
        assert_eq!(failure.is_by_peer(), is_refused, "{failure}");
    }
}

#[test]
fn nothing_is_received_while_a_signature_is_awaited() {
    let leaf = Authority::shared().ecdsa(&[NAME]);
    let context = server_with(|settings| *settings = ServerSettings::new(vec![deferred(&leaf)]));
    let mut server = server_handshake(&context);
    exchange(&mut client_handshake(&client_with(|_| {})), &mut server);
    let failure = server.handle_input(now(), &[0]).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Misuse);
}

/// Gives its only session away once.
#[derive(Debug, Default)]
struct OneSession(Mutex<Option<(u64, Session)>>);

impl SessionStore for OneSession {
    fn take(&self, _: UnixTime) -> Option<(u64, Session)> {
        self.0.lock().unwrap().take()
    }

    fn begin(&self, _: UnixTime) -> u64 {
        7
    }

    fn put(&self, chain: u64, session: &Session) -> bool {
        *self.0.lock().unwrap() = Some((chain, session.clone()));
        true
    }
}

/// The second time it offers a session that the server, another one, does not know.
#[test]
fn a_client_waits_too_and_offers_the_same_session_again() {
    let authority = Authority::shared();
    let leaf = authority.ecdsa(&["client"]);
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let server = || {
            server_with(|settings| {
                settings.client_certificates = Some(ClientCertificates {
                    required: true,
                    roots: authority.certificate_pem().into_bytes(),
                    crls: Vec::new(),
                    allow: Vec::new(),
                });
            })
        };
        let context = client_with(|settings| {
            settings.identity = Some(deferred(&leaf));
            settings.protocols = protocols;
            settings.resumption = Some(ResumptionSettings {
                by_caller: Some(Reuse {
                    uses_max: 10,
                    age_max_s: 3600,
                }),
                ..ResumptionSettings::default()
            });
        });
        let store = Arc::new(OneSession::default());
        for _ in 0..2 {
            let server = server();
            let mut server = server_handshake(&server);
            let mut client = client_handshake(&context);
            client.keep_sessions(Arc::clone(&store) as _);
            exchange(&mut client, &mut server);
            let request = client.signature_request().unwrap().clone();
            client.handle_signature(Ok(sign(&leaf, &request))).unwrap();
            let (mut client, server) = drive(client, server, Cut::Whole).unwrap();
            assert!(client.open(&[]).is_empty());
            assert!(!server.info.resumed);
            assert_eq!(server.info.peer_certificates.len(), 1);
        }
    }
}

/// A resumed handshake needs no signature, and a context with such a key can be warmed up.
#[test]
fn a_resumed_handshake_does_not_wait() {
    let leaf = Authority::shared().ecdsa(&[NAME]);
    let context = server_with(|settings| *settings = ServerSettings::new(vec![deferred(&leaf)]));
    context.warm_up(now()).unwrap();
    let client = client_with(|_| {});
    let mut first = client_handshake(&client);
    let mut waiting = server_handshake(&context);
    exchange(&mut first, &mut waiting);
    let request = waiting.signature_request().unwrap().clone();
    waiting.handle_signature(Ok(sign(&leaf, &request))).unwrap();
    let (mut first, _) = drive_on(first, waiting);
    assert!(first.open(&[]).is_empty());
    let (_, resumed) = drive(
        client_handshake(&client),
        server_handshake(&context),
        Cut::Whole,
    )
    .unwrap();
    assert!(resumed.info.resumed);
}

#[test]
fn a_key_is_tried() {
    let authority = Authority::shared();
    for leaf in [authority.ecdsa(&[NAME]), authority.rsa(&[NAME])] {
        let identity = deferred(&leaf);
        let request = identity.trial_request().unwrap();
        assert!(identity.accepts_trial(&sign(&leaf, &request)));
        let other = deferred(&authority.ecdsa(&[NAME]));
        assert!(!other.accepts_trial(&sign(&leaf, &request)));
        assert!(leaf.identity().trial_request().is_none());
    }
}
