//! Certificates: chosen by name and signature, and verified with a distinct error for each problem.

use std::sync::Arc;

use dormouse_engine::{
    Blame, CertificateProblem, ClientCertificates, ClientContext, ClientSettings, FailureKind,
    Handshake, HandshakeFailure, HandshakeLimits, Identity, Protocols, Roots, ServerContext,
    ServerSettings, UnknownName,
};
use dormouse_testkit::{Authority, Cut, NOW_S, Outcome, Side, drive, drive_tampered, now};
use rustls::SignatureScheme;
use rustls::crypto::WebPkiSupportedAlgorithms;

use crate::stock::{NAME, client_config, incoming, outgoing, provider};

fn server(identities: Vec<Identity>, protocols: Protocols) -> ServerContext {
    let mut settings = ServerSettings::new(identities);
    settings.protocols = protocols;
    ServerContext::new(settings).unwrap()
}

/// Returns the client's failure for `identity`, in each version.
fn refusals(identity: &Identity, roots: &Roots) -> [HandshakeFailure; 2] {
    [Protocols::TLS13, Protocols::TLS12].map(|protocols| {
        let server = server(vec![identity.clone()], protocols);
        let client = ClientContext::new(ClientSettings::new(roots.clone())).unwrap();
        let limits = HandshakeLimits::default();
        let client = Handshake::client(&client, NAME, limits).unwrap();
        let server = Handshake::server(&server, limits);
        match drive_tampered(client, server, Cut::Whole, None) {
            Outcome::Failed(Side::Client, failure) => failure,
            _ => panic!("the client should have refused"),
        }
    })
}

/// Returns the client's result for `identity`, which must be equal in both versions.
fn verdict(identity: &Identity, roots: Roots) -> CertificateProblem {
    let [first, second] = refusals(identity, &roots).map(|failure| {
        assert_eq!(failure.blame, Blame::Peer);
        assert!(failure.alert_sent.is_some(), "{failure:?}");
        println!("{failure}");
        match failure.kind {
            FailureKind::Certificate(problem) => problem,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(first, second);
    first
}

/// Another verifier may accept these certificates, so the peer is not to blame.
#[test]
fn what_is_not_supported_is_named() {
    let authority = |constraints| {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.name_constraints = constraints;
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertifiedIssuer::self_signed(params, key).unwrap()
    };
    let unlimited = authority(None);
    let of_directory = authority(Some(rcgen::NameConstraints {
        permitted_subtrees: vec![rcgen::GeneralSubtree::DirectoryName(
            rcgen::DistinguishedName::new(),
        )],
        excluded_subtrees: Vec::new(),
    }));
    let mut policy = rcgen::CustomExtension::from_oid_content(&[2, 5, 29, 36], vec![0x30, 0]);
    policy.set_criticality(true);
    for (issuer, extension, words) in [
        (&unlimited, Some(policy), "policyConstraints (2.5.29.36)"),
        (&of_directory, None, "directory names"),
    ] {
        let mut params = rcgen::CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        params.custom_extensions.extend(extension);
        let key = rcgen::KeyPair::generate().unwrap();
        let has_extension = !params.custom_extensions.is_empty();
        let pem = params.signed_by(&key, issuer).unwrap().pem() + &key.serialize_pem();
        let own = Identity::from_pem(pem.as_bytes(), pem.as_bytes(), "own", "own");
        let own = own.map_err(|error| error.to_string());
        let is_named = own.as_ref().is_err_and(|error| error.contains(words));
        assert_eq!(is_named, has_extension, "{own:?}");
        // Read without a check of the key, for which the library would have to understand the certificate.
        let identity = Identity::from_acme_challenge_pem(&pem, "own").unwrap();
        for failure in refusals(&identity, &Roots::Pem(issuer.pem().into_bytes())) {
            assert_eq!(failure.blame, Blame::Limit);
            assert!(failure.reason.contains(words), "{failure}");
            assert!(failure.reason.contains("not supported here"), "{failure}");
        }
    }
}

#[test]
fn each_problem_has_its_own_error() {
    let authority = Authority::shared();
    let expired = authority.expired(&[NAME]).identity();
    assert!(matches!(
        verdict(&expired, authority.roots()),
        CertificateProblem::Expired { not_after_s, now_s: NOW_S } if not_after_s < NOW_S
    ));
    let early = authority.not_yet_valid(&[NAME]).identity();
    assert!(matches!(
        verdict(&early, authority.roots()),
        CertificateProblem::NotYetValid { not_before_s, .. } if not_before_s > NOW_S
    ));
    let other = authority.ecdsa(&["other.test", "*.more.test"]).identity();
    assert_eq!(
        verdict(&other, authority.roots()),
        CertificateProblem::WrongName {
            expected: NAME.to_owned(),
            presented: vec!["other.test".to_owned(), "*.more.test".to_owned()],
        }
    );
    let stranger = Authority::new("A Stranger").ecdsa(&[NAME]).identity();
    assert!(matches!(
        verdict(&stranger, authority.roots()),
        CertificateProblem::UnknownIssuer { issuer, .. } if issuer.contains("A Stranger")
    ));
    let own = Identity::self_signed(NAME).unwrap();
    assert!(matches!(
        verdict(&own, authority.roots()),
        CertificateProblem::SelfSigned { subject } if subject.contains(NAME)
    ));
}

#[test]
fn an_insecure_client_accepts_any_certificate_and_reports_it() {
    let own = Identity::self_signed(NAME).unwrap();
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let context = server(vec![own.clone()], protocols);
        let insecure = ClientContext::new(ClientSettings::new(Roots::Insecure)).unwrap();
        for resumed in [false, true] {
            let limits = HandshakeLimits::default();
            let client = Handshake::client(&insecure, "192.0.2.1", limits).unwrap();
            let server = Handshake::server(&context, limits);
            let (mut client, server) = drive(client, server, Cut::Whole).unwrap();
            assert!(client.open(&[]).is_empty());
            assert_eq!(client.info.resumed, resumed);
            assert!(!client.info.verified);
            assert_eq!(server.info.sni, None, "an address is no server name");
        }
    }
}

#[test]
fn a_self_signed_certificate_can_be_trusted() {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let identity =
        Identity::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes(), "c", "k").unwrap();
    let (client, _) = ours(&[identity], Roots::Pem(pem.into_bytes()), NAME).unwrap();
    assert!(client.verified);
}

fn ours(
    identities: &[Identity],
    roots: Roots,
    name: &str,
) -> Result<(dormouse_engine::HandshakeInfo, Vec<u8>), HandshakeFailure> {
    let context = server(identities.to_vec(), Protocols::ALL);
    let client = ClientContext::new(ClientSettings::new(roots)).unwrap();
    let limits = HandshakeLimits::default();
    let client = Handshake::client(&client, name, limits).unwrap();
    let server = Handshake::server(&context, limits);
    let (client, _) = drive(client, server, Cut::Whole)?;
    Ok((client.info, Vec::new()))
}

/// Returns the server's certificate as seen by a stock client that requests `name` and accepts only these
/// signatures.
fn shown(context: &ServerContext, name: &str, protocols: Protocols, rsa_only: bool) -> Vec<u8> {
    let mut provider = Arc::unwrap_or_clone(provider(None));
    if rsa_only {
        let all = provider.signature_verification_algorithms;
        let is_rsa =
            |scheme: &SignatureScheme| scheme.as_str().is_some_and(|name| name.starts_with("RSA"));
        let mapping: Vec<_> = all
            .mapping
            .iter()
            .filter(|(scheme, _)| is_rsa(scheme))
            .copied()
            .collect();
        provider.signature_verification_algorithms = WebPkiSupportedAlgorithms {
            all: all.all,
            mapping: Vec::leak(mapping),
        };
    }
    let config = Arc::new(client_config(protocols, Arc::new(provider)));
    let name = name.to_owned().try_into().unwrap();
    let mut client: rustls::Connection =
        rustls::ClientConnection::new(config, name).unwrap().into();
    let mut server = Handshake::server(context, HandshakeLimits::default());
    while client.is_handshaking() {
        server.handle_input(now(), &outgoing(&mut client)).unwrap();
        let answer = server.output().to_vec();
        server.output_sent(answer.len());
        incoming(&mut client, &answer);
    }
    client.peer_certificates().unwrap()[0].to_vec()
}

/// A self-signed certificate, as `openssl req -x509` makes it: CA:TRUE.
fn own_authority(change: impl FnOnce(&mut rcgen::CertificateParams)) -> (String, Identity) {
    let mut params = rcgen::CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2049, 1, 1);
    change(&mut params);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    let key = key.serialize_pem();
    let identity = Identity::from_pem(certificate.as_bytes(), key.as_bytes(), "own", "own");
    (certificate, identity.unwrap())
}

/// What a server with these settings for clients says to a client with this certificate, in both versions.
fn client_result(
    identity: &Identity,
    roots: &str,
    crls: &[(String, Vec<u8>)],
) -> Result<(), HandshakeFailure> {
    let authority = Authority::shared();
    let [first, second] = [Protocols::TLS13, Protocols::TLS12].map(|protocols| {
        let mut settings = ServerSettings::new(vec![authority.ecdsa(&[NAME]).identity()]);
        settings.protocols = protocols;
        settings.client_certificates = Some(ClientCertificates {
            required: true,
            roots: roots.as_bytes().to_vec(),
            crls: crls.to_vec(),
            allow: Vec::new(),
        });
        let server = ServerContext::new(settings).unwrap();
        let mut settings = ClientSettings::new(authority.roots());
        settings.identity = Some(identity.clone());
        let client = ClientContext::new(settings).unwrap();
        let limits = HandshakeLimits::default();
        let client = Handshake::client(&client, NAME, limits).unwrap();
        let server = Handshake::server(&server, limits);
        match drive_tampered(client, server, Cut::Whole, None) {
            Outcome::Failed(Side::Server, failure) => Err(failure),
            Outcome::Failed(Side::Client, failure) => panic!("{failure}"),
            _ => Ok(()),
        }
    });
    assert_eq!(first.is_ok(), second.is_ok(), "{first:?}, {second:?}");
    first
}

/// webpki accepts no authority as a peer. But the operator trusts exactly this certificate.
#[test]
fn a_trusted_authority_is_accepted_as_a_peer_for_what_it_says_of_itself() {
    type Change = fn(&mut rcgen::CertificateParams);
    let (pem, own) = own_authority(|_| {});
    let trust = |pem: &str| Roots::Pem(pem.as_bytes().to_vec());
    ours(std::slice::from_ref(&own), trust(&pem), NAME).unwrap();
    client_result(&own, &pem, &[]).unwrap();
    // Another certificate with the same name.
    let (other, _) = own_authority(|_| {});
    let refused = verdict(&own, trust(&other));
    assert!(matches!(
        refused,
        CertificateProblem::AuthorityAsServer { .. }
    ));
    assert!(client_result(&own, &other, &[]).is_err());
    let expired: Change = |params| params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let nameless: Change = |params| params.subject_alt_names.clear();
    let for_clients: Change = |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    };
    let for_servers: Change = |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    };
    let for_certificates: Change = |params| {
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    };
    let for_signatures: Change = |params| {
        params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
    };
    let (no_server, no_client) = (Err("not valid for a server"), Err("not valid for a client"));
    for (change, as_server, as_client) in [
        (expired, Err("expired at"), Err("expired at")),
        (nameless, Err("has no names"), Ok(())),
        (for_clients, no_server, Ok(())),
        (for_servers, Ok(()), no_client),
        (for_certificates, no_server, no_client),
        (for_signatures, Ok(()), Ok(())),
    ] {
        let (pem, own) = own_authority(change);
        let of_server = ours(std::slice::from_ref(&own), trust(&pem), NAME).map(|_| ());
        let of_client = client_result(&own, &pem, &[]);
        for (result, expected) in [(of_server, as_server), (of_client, as_client)] {
            match (result, expected) {
                (Err(failure), Err(words)) => assert!(failure.reason.contains(words), "{failure}"),
                (result, expected) => assert_eq!(result.is_ok(), expected.is_ok(), "{result:?}"),
            }
        }
    }
}

/// A certificate that no list covers is refused, so this one is.
#[test]
fn with_revocation_lists_a_trusted_authority_is_not_accepted_as_a_client() {
    let (pem, own) = own_authority(|_| {});
    let authority = Authority::shared();
    let lists = [(
        "list".to_owned(),
        authority.revocation_list(&[]).into_bytes(),
    )];
    let both = pem + &authority.certificate_pem();
    let failure = client_result(&own, &both, &lists).unwrap_err();
    assert!(
        failure.reason.contains("no revocation list covers it"),
        "{failure}"
    );
    client_result(&authority.ecdsa(&[NAME]).identity(), &both, &lists).unwrap();
}

/// Names of 400 authorities do not fit into a request for a certificate. It is sent without them.
#[test]
fn many_authorities_for_clients_make_no_malformed_request() {
    let authority = Authority::shared();
    let mut roots = authority.certificate_pem();
    for at in 0..400 {
        let name = format!("{at:0>60}");
        let (pem, _) = own_authority(|params| {
            params.distinguished_name = rcgen::DistinguishedName::new();
            for kind in [rcgen::DnType::OrganizationName, rcgen::DnType::CommonName] {
                params.distinguished_name.push(kind, name.as_str());
            }
        });
        roots += &pem;
    }
    let own = authority.ecdsa(&["client.test"]).identity();
    client_result(&own, &roots, &[]).unwrap();
}

#[test]
fn chosen_by_name_and_by_signature() {
    let authority = Authority::shared();
    let default = authority.ecdsa(&["default.test"]).identity();
    let default_rsa = authority.rsa(&["default.test"]).identity();
    let exact = authority.ecdsa_p384(&["a.site.test"]).identity();
    let wild = authority.ecdsa(&["*.site.test"]).identity();
    let wild_rsa = authority.rsa(&["*.site.test"]).identity();
    let all = [&default, &default_rsa, &exact, &wild, &wild_rsa];
    let context = server(all.map(Identity::clone).to_vec(), Protocols::ALL);
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        for (name, rsa_only, expected) in [
            ("default.test", false, &default),
            ("default.test", true, &default_rsa),
            ("a.site.test", false, &exact),
            ("A.Site.TEST", false, &exact),
            // No RSA certificate covers exactly this name.
            ("a.site.test", true, &wild_rsa),
            ("b.site.test", false, &wild),
            ("b.site.test", true, &wild_rsa),
        ] {
            assert!(
                shown(&context, name, protocols, rsa_only) == expected.chain()[0],
                "{name} {protocols:?} rsa_only {rsa_only}"
            );
        }
    }
}

/// A renewed certificate may have another file than the one before, which has expired meanwhile.
#[test]
fn a_certificate_that_has_expired_is_the_last_choice() {
    const SITE: &str = "a.site.test";
    let authority = Authority::shared();
    let default = authority.ecdsa(&["default.test"]).identity();
    let expired = authority.expired(&[SITE]).identity();
    let early = authority.not_yet_valid(&[SITE]).identity();
    let valid = authority.ecdsa(&[SITE]).identity();
    let wild = authority.ecdsa(&["*.site.test"]).identity();
    for valid in [&valid, &wild] {
        let all = [&default, &expired, &early, valid].map(Identity::clone);
        assert!(ours(&all, authority.roots(), SITE).is_ok());
    }
    // The default as well.
    let failure = ours(
        &[expired.clone(), valid],
        authority.roots(),
        "elsewhere.test",
    )
    .unwrap_err();
    assert!(matches!(
        failure.kind,
        FailureKind::Certificate(CertificateProblem::WrongName { .. })
    ));
    // A certificate for another name is not better.
    let failure = ours(&[default, expired], authority.roots(), SITE).unwrap_err();
    assert!(matches!(
        failure.kind,
        FailureKind::Certificate(CertificateProblem::Expired { .. })
    ));
}

#[test]
fn clients_without_a_name_get_the_default_while_unknown_names_are_refused() {
    let authority = Authority::shared();
    let default = authority.ecdsa(&["default.test", "192.0.2.1"]).identity();
    let mut settings = ServerSettings::new(vec![default.clone()]);
    settings.unknown_name = UnknownName::RefuseNamed;
    let context = ServerContext::new(settings).unwrap();
    // A client sends no name for an address.
    for name in ["192.0.2.1", "default.test"] {
        let shown = shown(&context, name, Protocols::ALL, false);
        assert!(shown == default.chain()[0], "{name}");
    }
    let client = ClientContext::new(ClientSettings::new(authority.roots())).unwrap();
    let limits = HandshakeLimits::default();
    let client = Handshake::client(&client, "elsewhere.test", limits).unwrap();
    let server = Handshake::server(&context, limits);
    match drive_tampered(client, server, Cut::Whole, None) {
        Outcome::Failed(Side::Server, failure) => {
            assert_eq!(failure.kind, FailureKind::UnknownName);
        }
        _ => panic!("the name was accepted"),
    }
}

/// A wildcard covers one label (RFC 6125 §6.4.3); unknown names get the default.
#[test]
fn unknown_names_get_the_default() {
    let authority = Authority::shared();
    let default = authority.ecdsa(&["default.test"]).identity();
    let wild = authority.ecdsa(&["*.site.test"]).identity();
    for name in ["site.test", "a.b.site.test", "elsewhere.test"] {
        let identities = [default.clone(), wild.clone()];
        let failure = ours(&identities, authority.roots(), name).unwrap_err();
        match failure.kind {
            FailureKind::Certificate(CertificateProblem::WrongName { presented, .. }) => {
                assert_eq!(presented, ["default.test"], "{name}");
            }
            other => panic!("{other:?}"),
        }
    }
}
