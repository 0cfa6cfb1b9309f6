//! Lists of certificates as honest peers send them, and as hostile ones do.

use std::cell::Cell;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::Error;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier as _;
use rustls_pki_types::alg_id::AlgorithmIdentifier;
use rustls_pki_types::{InvalidSignature, SignatureVerificationAlgorithm};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::*;
use crate::x509::client_auth::{ClientAuth, ClientCertificates};
use crate::x509::der::{sequence, tagged};
use crate::x509::pem::contents;
use crate::x509::trust::Roots;

const NAME: &str = "leaf.test";

/// Keys by number; generating them takes time.
fn key(number: usize) -> &'static KeyPair {
    static KEYS: OnceLock<Vec<KeyPair>> = OnceLock::new();
    let generate = || (0..40).map(|_| KeyPair::generate().unwrap()).collect();
    &KEYS.get_or_init(generate)[number]
}

/// Someone who has a key: a name and the number of the key.
type Party<'a> = (&'a str, usize);

/// The certificate of an authority, valid in the years 2020 to `until`.
fn authority_until(subject: Party<'_>, issuer: Party<'_>, until: i32) -> Vec<u8> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    signed(params, subject, issuer, until)
}

fn authority(subject: Party<'_>, issuer: Party<'_>) -> Vec<u8> {
    authority_until(subject, issuer, 2049)
}

fn leaf(issuer: Party<'_>) -> Vec<u8> {
    let params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    signed(params, (NAME, 0), issuer, 2049)
}

fn signed(
    mut params: CertificateParams,
    subject: Party<'_>,
    issuer: Party<'_>,
    until: i32,
) -> Vec<u8> {
    let named = |name: &str| {
        let mut named = rcgen::DistinguishedName::new();
        named.push(DnType::CommonName, name);
        named
    };
    params.distinguished_name = named(subject.0);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(until, 12, 31);
    let mut issuing = CertificateParams::new(Vec::new()).unwrap();
    issuing.distinguished_name = named(issuer.0);
    let issuer = Issuer::new(issuing, key(issuer.1));
    params
        .signed_by(key(subject.1), &issuer)
        .unwrap()
        .der()
        .to_vec()
}

/// A certificate with this name as subject and issuer and `count` empty extensions. Its signature is invalid.
fn dead(name: &str, count: usize) -> Vec<u8> {
    let real = authority((name, 1), (name, 2));
    let mut whole = Der::whole(&real).unwrap().enter(Tag::SEQUENCE).unwrap();
    let mut contents = whole.enter(Tag::SEQUENCE).unwrap();
    let mut parts = Vec::new();
    for _ in 0..7 {
        let (tag, content) = contents.any().unwrap();
        parts.push(tagged(tag, content));
    }
    let extension = sequence(&[&tagged(Tag::OID, &[0x55]), &tagged(Tag::OCTETS, &[])]);
    let extensions = tagged(Tag::SEQUENCE, &extension.repeat(count));
    parts.push(tagged(Tag::CONTEXT_3_CONSTRUCTED, &extensions));
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let algorithm = whole.element(Tag::SEQUENCE).unwrap();
    let signature = whole.element(Tag::BITS).unwrap();
    sequence(&[&sequence(&parts), algorithm, signature])
}

fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(1_795_000_000))
}

/// What verifies lists of certificates: both verifiers, and webpki alone in the same two roles.
struct Verifiers {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    server: Arc<dyn rustls::client::danger::ServerCertVerifier>,
    client: ClientAuth,
}

/// One verifier's answers about a server and a client.
type Answers = [Result<(), Error>; 2];

impl Verifiers {
    fn new(roots: &[Vec<u8>], provider: Arc<CryptoProvider>) -> Verifiers {
        let mut store = RootCertStore::empty();
        let mut bundle = String::new();
        for root in roots {
            store.add(CertificateDer::from(root.as_slice())).unwrap();
            bundle.push_str(&contents::encode("CERTIFICATE", root));
        }
        let settings = ClientCertificates {
            required: true,
            roots: bundle.clone().into_bytes(),
            ..ClientCertificates::default()
        };
        Verifiers {
            roots: Arc::new(store),
            server: Roots::Pem(bundle.into_bytes())
                .verifier(&provider, None)
                .unwrap(),
            client: ClientAuth::new(&settings, None, &provider, None).unwrap(),
            provider,
        }
    }

    fn of(roots: &[Vec<u8>]) -> Verifiers {
        Verifiers::new(roots, Arc::new(aws_lc_rs::default_provider()))
    }

    /// What Dormouse says about the list.
    fn ours(&self, list: &[Vec<u8>]) -> Answers {
        let (own, others) = split(list);
        let name = NAME.try_into().unwrap();
        let server = self
            .server
            .verify_server_cert(&own, &others, &name, &[], now());
        let client = self.client.verify_client_cert(&own, &others, now());
        [server.map(|_| ()), client.map(|_| ())]
    }

    /// What webpki says about it.
    fn webpki(&self, list: &[Vec<u8>]) -> Answers {
        let (own, others) = split(list);
        let name = NAME.try_into().unwrap();
        let (roots, provider) = (&self.roots, &self.provider);
        let server = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone());
        let server = server.build().unwrap();
        let client = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let client = client.build().unwrap();
        let server = server.verify_server_cert(&own, &others, &name, &[], now());
        let client = client.verify_client_cert(&own, &others, now());
        [server.map(|_| ()), client.map(|_| ())]
    }

    /// Whether valid signatures lead from the first certificate to a root.
    fn are_signed(&self, list: &[Vec<u8>]) -> bool {
        let (own, others) = split(list);
        let algorithms = self.provider.signature_verification_algorithms;
        let message = Message::read(&own, &others);
        let signed = message.signed(&message.nearest(), &self.roots, algorithms);
        signed.distances(|_| true).contains_key(&OWN)
    }

    /// Returns what webpki is given of the list, and the work of finding it.
    fn given(&self, list: &[Vec<u8>]) -> Result<(Vec<Vec<u8>>, usize, usize), TooManySteps> {
        let (own, others) = split(list);
        let algorithms = self.provider.signature_verification_algorithms;
        let needed = needed(&own, &others, &self.roots, algorithms, now())?;
        let given = needed.certificates.iter().map(|one| one.to_vec()).collect();
        Ok((given, needed.steps, needed.signatures))
    }
}

fn split(list: &[Vec<u8>]) -> (CertificateDer<'_>, Vec<CertificateDer<'_>>) {
    let mut all = list.iter().map(|der| CertificateDer::from(der.as_slice()));
    (all.next().unwrap(), all.collect())
}

/// Counts the steps of webpki's search when it comes to no root, by the names in the certificates.
fn steps_of_webpki(own: &[u8], given: &[Vec<u8>]) -> usize {
    type Names = (Vec<u8>, Vec<u8>, Vec<u8>);
    fn names(der: &[u8]) -> Option<Names> {
        let (_, one) = X509Certificate::from_der(der).ok()?;
        let names = [
            one.issuer().as_raw(),
            one.subject().as_raw(),
            one.public_key().raw,
        ];
        let [issuer, subject, key] = names.map(<[u8]>::to_vec);
        Some((issuer, subject, key))
    }
    fn from(path: &mut Vec<Names>, given: &[Names]) -> usize {
        let mut steps = 1;
        for one in given {
            let is_loop = path
                .iter()
                .any(|(_, subject, key)| (subject, key) == (&one.1, &one.2));
            if path.last().unwrap().0 == one.1 && !is_loop && path.len() < 7 {
                path.push(one.clone());
                steps += from(path, given);
                path.pop();
            }
        }
        steps
    }
    let given: Vec<Names> = given.iter().filter_map(|der| names(der)).collect();
    from(&mut vec![names(own).unwrap()], &given)
}

thread_local! {
    /// How often signatures were verified by the algorithms of [`counting`].
    static VERIFIED: Cell<usize> = const { Cell::new(0) };
}

#[derive(Debug)]
struct Counted(&'static dyn SignatureVerificationAlgorithm);

impl SignatureVerificationAlgorithm for Counted {
    fn verify_signature(
        &self,
        key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        VERIFIED.set(VERIFIED.get() + 1);
        self.0.verify_signature(key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.0.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.0.signature_alg_id()
    }
}

/// A provider whose algorithms for certificates are counted.
fn counting() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    let WebPkiSupportedAlgorithms { all, mapping } = provider.signature_verification_algorithms;
    let all: Vec<&'static dyn SignatureVerificationAlgorithm> = all
        .iter()
        .map(|&one| &*Box::leak(Box::new(Counted(one))) as _)
        .collect();
    let all = Vec::leak(all);
    provider.signature_verification_algorithms = WebPkiSupportedAlgorithms { all, mapping };
    Arc::new(provider)
}

/// Hostile lists: many paths of names, of signatures, or of both; none leads to the root ("root", 0).
fn bombs() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let mut bombs = Vec::new();
    let ring = |name: &'static str, count: usize| -> Vec<Vec<u8>> {
        let next = |at| authority((name, at), (name, at % count + 1));
        (1..=count).map(next).collect()
    };
    let with_leaf = |issuer, rest: Vec<Vec<u8>>| [vec![leaf(issuer)], rest].concat();

    let mut unsigned = with_leaf(("x", 20), ring("x", 9));
    unsigned.insert(1, dead("other", 6_000));
    bombs.push(("one name, many extensions", unsigned));

    let mut signed = with_leaf(("x", 1), ring("x", 9));
    signed.insert(1, dead("x", 6_000));
    bombs.push(("one name, valid signatures", signed));

    bombs.push(("the root's name", with_leaf(("root", 1), ring("root", 32))));

    let mut mesh = Vec::new();
    for (subject, issuer) in (1..8).flat_map(|s| (1..8).map(move |i| (s, i))) {
        mesh.extend((subject != issuer).then(|| authority(("x", subject), ("x", issuer))));
    }
    bombs.push((
        "every key certified by every other",
        with_leaf(("x", 1), mesh),
    ));

    let layers = ["a", "b", "c", "d", "e", "f", "g"];
    let mut layered = Vec::new();
    for pair in layers.windows(2) {
        layered.extend((1..7).map(|at| authority((pair[0], at), (pair[1], at % 6 + 1))));
    }
    bombs.push(("layers of keys", with_leaf(("a", 1), layered)));

    let mut variants = Vec::new();
    for pair in layers.windows(2) {
        variants
            .extend((2040..2046).map(|until| authority_until((pair[0], 1), (pair[1], 1), until)));
    }
    bombs.push((
        "layers of certificates with one key",
        with_leaf(("a", 1), variants),
    ));

    let names: Vec<String> = (0..100).map(|at| format!("deep {at}")).collect();
    let deep = names
        .windows(2)
        .map(|pair| authority((&pair[0], 1), (&pair[1], 1)));
    bombs.push(("a deep chain", with_leaf((&names[0], 1), deep.collect())));

    let many = (0..100)
        .map(|at| authority_until(("x", at % 40), ("x", at * 7 % 40), 2030 + at as i32 / 40));
    bombs.push(("a hundred of one name", with_leaf(("x", 1), many.collect())));
    bombs
}

#[test]
fn hostile_lists_are_little_work_for_both_verifiers() {
    let roots = [authority(("root", 0), ("root", 0))];
    let verifiers = Verifiers::new(&roots, counting());
    for (name, list) in bombs() {
        if let Ok((given, steps, signatures)) = verifiers.given(&list) {
            let steps_of_webpki = steps_of_webpki(&list[0], &given);
            assert!(
                steps_of_webpki <= steps,
                "{name}: {steps_of_webpki} steps, not {steps}"
            );
            assert!(steps <= STEPS_MAX, "{name}: {steps} steps");
            assert!(given.len() <= CERTIFICATES_MAX, "{name}: {}", given.len());
            assert!(
                signatures <= SIGNATURES_MAX,
                "{name}: {signatures} signatures"
            );
        }
        let before = VERIFIED.get();
        let answers = verifiers.ours(&list);
        let verified = VERIFIED.get() - before;
        assert!(answers.iter().all(Result::is_err), "{name}: {answers:?}");
        assert!(
            verified <= 2 * 2 * SIGNATURES_MAX,
            "{name}: {verified} signatures"
        );
    }
}

/// Asserts that a list verifies now as it does with webpki alone, and is refused for the same reason. Of a large list
/// in which no valid signatures lead to a root, webpki sees too little for the same reason. Returns whether it verifies.
fn verifies_as_before(roots: &[Vec<u8>], list: &[Vec<u8>]) -> bool {
    let verifiers = Verifiers::of(roots);
    let (ours, webpki) = (verifiers.ours(list), verifiers.webpki(list));
    let is_small = steps_of_webpki(&list[0], &list[1..]) <= STEPS_MAX;
    let is_signed = verifiers.are_signed(list);
    for (ours, webpki) in ours.iter().zip(&webpki) {
        let both = (format!("{ours:?}"), format!("{webpki:?}"));
        // webpki gave up at one of its limits, which a list without the useless certificates does not reach.
        let gave_up = both.1.contains("Maximum");
        let leads_nowhere = !is_small && !is_signed;
        assert!(ours.is_ok() == webpki.is_ok() || gave_up, "{both:?}");
        assert!(both.0 == both.1 || gave_up || leads_nowhere, "{both:?}");
    }
    ours.iter().all(Result::is_ok)
}

#[test]
fn honest_lists_verify_as_before() {
    let root = [authority(("root", 1), ("root", 1))];
    let intermediate = [authority(("int", 2), ("root", 1))];
    let expired = [authority_until(("int", 2), ("root", 1), 2025)];
    let own = [leaf(("int", 2))];
    let unreadable = [vec![1, 2, 3], Vec::new()];
    let unrelated = (0..60).map(|at| authority((&format!("other {at}"), 3), ("elsewhere", 3)));
    let unrelated: Vec<_> = unrelated.collect();
    let generations = (1..9).map(|at| authority(("root", at), ("root", at)));
    let generations: Vec<_> = generations.collect();
    let many = vec![expired[0].clone(); 40];
    let lists: [&[&[Vec<u8>]]; 8] = [
        &[&intermediate],
        &[&intermediate, &root],
        &[&root, &own, &intermediate, &own],
        &[&expired, &intermediate, &expired],
        &[&unrelated, &intermediate],
        &[&generations, &intermediate, &generations],
        &[&many, &intermediate],
        &[&unreadable, &generations, &intermediate],
    ];
    for (at, others) in lists.iter().enumerate() {
        let list = [&own[..], &others.concat()].concat();
        assert!(verifies_as_before(&root, &list), "list {at}");
    }
    // From the root itself, with more keys of that name than signatures are verified.
    let generations = (1..40).map(|at| authority(("root", at), ("root", at % 4)));
    let list: Vec<_> = std::iter::once(leaf(("root", 1)))
        .chain(generations)
        .collect();
    let accepted = Verifiers::of(&root).ours(&list);
    assert!(accepted.iter().all(Result::is_ok), "{accepted:?}");
}

/// An authority renewed its key four times under the same name, and each two keys after each other are certified by each
/// other (RFC 4210 §4.4). A peer sends all of it.
#[test]
fn renewed_keys_of_one_authority_verify_as_before() {
    let mut all = Vec::new();
    for old in 1..5 {
        all.push(authority(("x", old), ("x", old)));
        all.push(authority(("x", old), ("x", old + 1)));
        all.push(authority(("x", old + 1), ("x", old)));
    }
    for trusted in 1..6 {
        let root = authority(("x", trusted), ("x", trusted));
        let list = [vec![leaf(("x", 3))], all.clone()].concat();
        assert!(verifies_as_before(&[root], &list), "key {trusted}");
    }
}

proptest! {
    #[test]
    fn small_lists_verify_as_before(
        roots in proptest::collection::vec((0..2_usize, 1..4_usize), 1..3),
        own in (0..3_usize, 1..4_usize),
        others in proptest::collection::vec(
            (0..3_usize, 1..4_usize, 0..4_usize, 1..4_usize, prop::bool::weighted(0.2), 1..3_usize),
            0..8,
        ),
    ) {
        let names = ["root", "int", "sub", "else"];
        let roots: Vec<_> = roots
            .iter()
            .map(|&(name, key)| authority((names[name], key), (names[name], key)))
            .collect();
        let mut list = vec![leaf((names[own.0], own.1))];
        for (subject, key, issuer, by, has_expired, times) in others {
            let until = if has_expired { 2025 } else { 2049 };
            let one = authority_until((names[subject], key), (names[issuer], by), until);
            list.extend(vec![one; times]);
        }
        verifies_as_before(&roots, &list);
    }
}
