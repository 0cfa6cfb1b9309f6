//! Hooks of the host during a handshake.

use std::sync::{Arc, Mutex};

use dormouse_embed::{
    AlertDescription, CertificateProblem, CertificateRefusal, ChooseIdentity, ClientCertificates,
    ClientHello, End, FailureKind, Finding, Identity, JudgeCertificate, Protocols, Roots,
    SecretLog, Session, SessionError, ShownCertificates, Sign, SigningScheme, pem_chain,
    secret_log_line,
};
use dormouse_testkit::{Authority, now};
use rcgen::SigningKey as _;

use crate::pair::*;

fn refusal(end: Option<End>) -> FailureKind {
    match end {
        Some(End::Handshake(failure)) => failure.kind,
        other => panic!("{other:?}"),
    }
}

#[derive(Debug)]
struct OnDemand(Mutex<Vec<ClientHello>>);

impl ChooseIdentity for OnDemand {
    fn choose_identity(&self, hello: &ClientHello) -> Option<Identity> {
        self.0.lock().unwrap().push(hello.clone());
        let name = hello.server_name.as_deref()?;
        let known = name.ends_with(".made.test");
        known.then(|| Authority::shared().ecdsa(&[name]).identity())
    }
}

#[test]
fn the_host_chooses_certificates() {
    let chooser = Arc::new(OnDemand(Mutex::default()));
    let mut settings = server_settings();
    settings.chooser = Some(Arc::clone(&chooser) as _);
    let server = server(settings);
    let client = client(client_settings());
    for (name, good) in [("a.made.test", true), (NAME, true), ("b.test", false)] {
        let mut client = Session::connect(&client, name).unwrap();
        let mut server = Session::accept(&server);
        let (by_client, _) = run_handshake(&mut client, &mut server, usize::MAX);
        assert_eq!(by_client.info.is_some(), good, "{name}");
    }
    let asked = chooser.0.lock().unwrap();
    assert_eq!(asked[0].server_name.as_deref(), Some("a.made.test"));
    assert_eq!(asked.len(), 3);
}

/// A key store, or one that is unavailable.
#[derive(Debug)]
struct Store(Option<rcgen::KeyPair>);

impl Sign for Store {
    fn sign(&self, scheme: SigningScheme, message: &[u8]) -> Result<Vec<u8>, String> {
        assert_eq!(scheme.name(), "ecdsa_secp256r1_sha256");
        let key = self.0.as_ref().ok_or("the store is closed")?;
        key.sign(message).map_err(|error| error.to_string())
    }
}

#[test]
fn a_key_in_an_external_store_signs() {
    let leaf = Authority::shared().ecdsa(&[NAME]);
    let key = rcgen::KeyPair::from_pem(&leaf.key_pem).unwrap();
    for (store, good) in [(Store(Some(key)), true), (Store(None), false)] {
        let chain = pem_chain(leaf.certificate_pem.as_bytes(), "leaf").unwrap();
        let store = Arc::new(store);
        let identity = Identity::from_signer(chain, store, "store").unwrap();
        let mut settings = server_settings();
        settings.identities = vec![identity];
        let server = server(settings);
        for protocols in VERSIONS {
            let mut settings = client_settings();
            settings.protocols = protocols;
            let mut client = Session::connect(&client(settings), NAME).unwrap();
            let mut server = Session::accept(&server);
            let (by_client, by_server) = run_handshake(&mut client, &mut server, usize::MAX);
            assert_eq!(by_client.info.is_some(), good);
            if !good {
                let Some(End::Handshake(failure)) = by_server.end else {
                    panic!("{by_server:?}");
                };
                assert!(failure.reason.contains("the store is closed"), "{failure}");
            }
        }
    }
}

/// Decides by the finding of the roots, and records it.
#[derive(Debug)]
struct Judge {
    accepts: fn(&Finding<'_>) -> bool,
    seen: Mutex<Vec<String>>,
}

impl Judge {
    fn new(accepts: fn(&Finding<'_>) -> bool) -> Arc<Judge> {
        let seen = Mutex::default();
        Arc::new(Judge { accepts, seen })
    }
}

impl JudgeCertificate for Judge {
    fn judge(&self, shown: &ShownCertificates<'_>) -> Result<(), CertificateRefusal> {
        let finding = format!("{:?} {:?}", shown.server_name, shown.finding);
        self.seen.lock().unwrap().push(finding);
        assert_eq!(shown.chain.len(), 1);
        match (self.accepts)(&shown.finding) {
            true => Ok(()),
            false => Err("not one of ours".into()),
        }
    }
}

#[test]
fn the_host_checks_servers_after_the_roots() {
    let (_, server) = contexts(Protocols::ALL);
    let only_name = |finding: &Finding<'_>| {
        matches!(
            finding,
            Finding::Trusted | Finding::Refused(CertificateProblem::WrongName { .. })
        )
    };
    let none: fn(&Finding<'_>) -> bool = |_| false;
    let any: fn(&Finding<'_>) -> bool = |_| true;
    let known = Authority::shared().roots();
    let unknown = Authority::new("another").roots();
    for (roots, name, accepts, good, seen) in [
        (&known, NAME, none, false, "Some(\"dormouse.test\") Trusted"),
        (
            &known,
            "other.test",
            only_name,
            true,
            "Some(\"other.test\") Refused(WrongName",
        ),
        (
            &unknown,
            NAME,
            only_name,
            false,
            "Some(\"dormouse.test\") Refused(UnknownIssuer",
        ),
        (
            &unknown,
            NAME,
            any,
            true,
            "Some(\"dormouse.test\") Refused(UnknownIssuer",
        ),
        (
            &Roots::Insecure,
            NAME,
            none,
            false,
            "Some(\"dormouse.test\") NoRoots",
        ),
        (
            &Roots::Insecure,
            NAME,
            any,
            true,
            "Some(\"dormouse.test\") NoRoots",
        ),
    ] {
        let judge = Judge::new(accepts);
        let mut settings = client_settings();
        settings.roots = roots.clone();
        settings.judge = Some(Arc::clone(&judge) as _);
        let mut client = Session::connect(&client(settings), name).unwrap();
        let mut server = Session::accept(&server);
        let (by_client, by_server) = run_handshake(&mut client, &mut server, usize::MAX);
        let asked = judge.seen.lock().unwrap();
        assert!(asked.len() == 1 && asked[0].starts_with(seen), "{asked:?}");
        assert_eq!(
            by_client.info.map(|info| info.verified),
            good.then_some(true)
        );
        if !good {
            assert!(matches!(
                refusal(by_client.end),
                FailureKind::Certificate(_)
            ));
            assert!(matches!(refusal(by_server.end), FailureKind::PeerAlert(_)));
        }
    }
}

#[test]
fn the_host_checks_clients_with_and_without_roots() {
    let leaf = Authority::shared().ecdsa(&["alice"]);
    let ours = Authority::shared().certificate_pem().into_bytes();
    for roots in [Vec::new(), ours] {
        for (accepts, good) in [(true, true), (false, false)] {
            let judge = Judge::new(if accepts { |_| true } else { |_| false });
            let mut settings = server_settings();
            settings.client_certificates = Some(ClientCertificates {
                required: true,
                roots: roots.clone(),
                ..ClientCertificates::default()
            });
            settings.judge = Some(Arc::clone(&judge) as _);
            let server = server(settings);
            let mut settings = client_settings();
            settings.identity = Some(leaf.identity());
            let context = client(settings);
            // The second is resumed, and checked again.
            for visit in 1..=2 {
                let mut client = Session::connect(&context, NAME).unwrap();
                let mut server = Session::accept(&server);
                let (by_client, by_server) = run_handshake(&mut client, &mut server, usize::MAX);
                let shown = by_server
                    .info
                    .as_ref()
                    .map(|info| info.peer_certificates.len());
                assert_eq!(shown, good.then_some(1));
                assert_eq!(judge.seen.lock().unwrap().len(), visit);
                if let (Some(of_client), Some(info)) = (by_client.info, by_server.info) {
                    assert_eq!(info.resumed, visit == 2);
                    assert_eq!(of_client.own_certificate_sent, visit == 1);
                }
            }
        }
    }
}

/// Refuses every peer.
#[derive(Debug)]
struct Refuses(Option<AlertDescription>);

impl JudgeCertificate for Refuses {
    fn judge(&self, _: &ShownCertificates<'_>) -> Result<(), CertificateRefusal> {
        Err(CertificateRefusal {
            reason: "not today".to_owned(),
            alert: self.0,
        })
    }
}

#[test]
fn a_refused_peer_gets_an_alert_of_its_version() {
    use AlertDescription::{
        AccessDenied, CertificateExpired, CertificateRequired, CertificateUnknown, HandshakeFailure,
    };
    let known = Authority::shared().roots();
    for (roots, chosen, alert) in [
        (&known, None, AccessDenied),
        (&Roots::Insecure, None, CertificateUnknown),
        (&known, Some(CertificateExpired), CertificateExpired),
        (
            &Roots::Insecure,
            Some(CertificateExpired),
            CertificateExpired,
        ),
    ] {
        for protocols in VERSIONS {
            let mut settings = client_settings();
            settings.protocols = protocols;
            settings.roots = roots.clone();
            settings.judge = Some(Arc::new(Refuses(chosen)));
            let mut client = Session::connect(&client(settings), NAME).unwrap();
            let mut server = Session::accept(&server(server_settings()));
            let (_, by_server) = run_handshake(&mut client, &mut server, usize::MAX);
            let sent = FailureKind::PeerAlert(alert.code());
            assert_eq!(refusal(by_server.end), sent);
        }
    }
    for (protocols, alert) in [
        (Protocols::TLS12, HandshakeFailure),
        (Protocols::TLS13, CertificateRequired),
    ] {
        let mut settings = server_settings();
        settings.client_certificates = Some(ClientCertificates {
            required: true,
            roots: Authority::shared().certificate_pem().into_bytes(),
            ..ClientCertificates::default()
        });
        let mut server = Session::accept(&server(settings));
        let mut settings = client_settings();
        settings.protocols = protocols;
        let mut client = Session::connect(&client(settings), NAME).unwrap();
        let (_, by_server) = run_handshake(&mut client, &mut server, usize::MAX);
        let Some(End::Handshake(failure)) = by_server.end else {
            panic!("{by_server:?}");
        };
        assert_eq!(failure.alert_sent, Some(alert.code()));
    }
}

#[test]
fn a_certificate_is_sent_only_if_the_server_requests_it() {
    let mut settings = client_settings();
    settings.identity = Some(Authority::shared().ecdsa(&["alice"]).identity());
    let mut client = Session::connect(&client(settings), NAME).unwrap();
    let mut server = Session::accept(&server(server_settings()));
    let (by_client, by_server) = run_handshake(&mut client, &mut server, usize::MAX);
    assert!(!by_client.info.unwrap().own_certificate_sent);
    assert!(by_server.info.unwrap().peer_certificates.is_empty());
}

#[derive(Debug, Default)]
struct Lines(Mutex<Vec<String>>);

impl SecretLog for Lines {
    fn log_secret(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        assert_eq!(client_random.len(), 32);
        let line = secret_log_line(label, client_random, secret);
        self.0.lock().unwrap().push(line);
    }
}

#[test]
fn both_ends_log_the_same_secrets() {
    for (protocols, labels) in [
        (Protocols::TLS12, &["CLIENT_RANDOM "][..]),
        (
            Protocols::TLS13,
            &[
                "CLIENT_HANDSHAKE_TRAFFIC_SECRET ",
                "SERVER_HANDSHAKE_TRAFFIC_SECRET ",
                "CLIENT_TRAFFIC_SECRET_0 ",
                "SERVER_TRAFFIC_SECRET_0 ",
                "EXPORTER_SECRET ",
            ],
        ),
    ] {
        let logs = [Arc::new(Lines::default()), Arc::new(Lines::default())];
        let (mut for_client, mut for_server) = (client_settings(), server_settings());
        for_client.protocols = protocols;
        for_client.secret_log = Some(Arc::clone(&logs[0]) as _);
        for_server.secret_log = Some(Arc::clone(&logs[1]) as _);
        let mut client = Session::connect(&client(for_client), NAME).unwrap();
        let mut server = Session::accept(&server(for_server));
        run_handshake(&mut client, &mut server, usize::MAX);
        let [mut one, mut two] = logs.map(|log| log.0.lock().unwrap().clone());
        one.sort();
        two.sort();
        assert_eq!(one, two);
        assert_eq!(one.len(), labels.len());
        for label in labels {
            assert!(one.iter().any(|line| line.starts_with(label)), "{label}");
        }
    }
}

/// A hook that panics.
#[derive(Debug)]
struct Panics;

impl ChooseIdentity for Panics {
    fn choose_identity(&self, _: &ClientHello) -> Option<Identity> {
        panic!("as a test");
    }
}

#[test]
fn a_panic_ends_only_its_session() {
    let mut settings = server_settings();
    settings.chooser = Some(Arc::new(Panics));
    let (context, bad) = (client(client_settings()), server(settings));
    let (mut other, mut peer) = established(Protocols::TLS13);
    let mut client = Session::connect(&context, NAME).unwrap();
    let mut server = Session::accept(&bad);
    client.feed(now(), &mut [], |_| {}).unwrap();
    let mut wire = client.take_output();
    let fed = server.feed(now(), &mut wire, |_| {});
    assert_eq!(fed, Err(SessionError::Poisoned));
    assert_eq!(
        server.feed(now(), &mut wire, |_| {}),
        Err(SessionError::Poisoned)
    );
    assert_eq!(server.send(b"x"), Err(SessionError::Poisoned));
    assert_eq!(server.eof(), Err(SessionError::Poisoned));
    assert!(server.take_output().is_empty() && server.state().is_empty());
    assert_eq!(server.export(), Err(SessionError::Poisoned));
    other.send(b"unharmed").unwrap();
    assert_eq!(pass(&mut other, &mut peer, 9).plaintext, b"unharmed");
    // A host whose event handler panics.
    other.send(b"data").unwrap();
    let mut wire = other.take_output();
    let fed = peer.feed(now(), &mut wire, |_| panic!("as a test"));
    assert_eq!(fed, Err(SessionError::Poisoned));
    assert!(peer.state().is_empty());
}
