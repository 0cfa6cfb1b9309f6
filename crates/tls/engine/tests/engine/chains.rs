//! Chains with issuers that have expired, that are superfluous, and that are missing.

use dormouse_engine::{DateProblem, Identity, IdentityWarning, IssuerProblem, Issuers, UnixTime};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use std::time::Duration;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn params(name: &str, until: i32) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    params
}

fn of_authority(name: &str, until: i32) -> CertificateParams {
    let mut params = params(name, until);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// A root, `root`, an intermediate authority, `inter`, until 2030, and a certificate of the latter until 2040.
struct Chain {
    root: Authority,
    inter: Authority,
    leaf: String,
    key: String,
}

fn chain() -> Chain {
    let key = || KeyPair::generate().unwrap();
    let root = CertifiedIssuer::self_signed(of_authority("root", 2045), key()).unwrap();
    let inter = CertifiedIssuer::signed_by(of_authority("inter", 2030), key(), &root).unwrap();
    let own = key();
    let leaf = params("a.test", 2040).signed_by(&own, &inter).unwrap();
    let (leaf, key) = (leaf.pem(), own.serialize_pem());
    Chain {
        root,
        inter,
        leaf,
        key,
    }
}

impl Chain {
    fn identity(&self, issuers: &[&str]) -> Identity {
        let text = format!("{}{}", self.leaf, issuers.concat());
        Identity::from_pem(text.as_bytes(), self.key.as_bytes(), "site.pem", "site.key").unwrap()
    }
}

/// The beginning of a year, or a day after it, roughly.
fn at(year: u64, days: u64) -> UnixTime {
    let days = (year - 1970) * 365 + (year - 1969) / 4 + days;
    UnixTime::since_unix_epoch(Duration::from_secs(days * 86_400))
}

fn problems(identity: &Identity, now: UnixTime) -> Vec<(usize, IssuerProblem)> {
    let warnings = identity.warnings(now).into_iter();
    warnings
        .map(|warning| {
            println!("{warning}");
            match warning {
                IdentityWarning::Issuer { place, problem, .. } => (place, problem),
                other => panic!("{other}"),
            }
        })
        .collect()
}

#[test]
fn issuers_that_expire_first_are_seen() {
    let chain = chain();
    let inter = chain.inter.pem();
    let identity = chain.identity(&[&inter]);
    let ends_s = identity.chain_expires_at_s();
    assert_eq!(ends_s, at(2030, 0).as_secs());
    assert!(identity.expires_at_s() > ends_s);
    assert_eq!(problems(&identity, at(2026, 0)), []);
    let soon = IssuerProblem::Dates(DateProblem::ExpiresSoon { days: 10 });
    assert_eq!(problems(&identity, at(2029, 355)), [(2, soon)]);
    let expired = DateProblem::Expired {
        not_after_s: ends_s,
    };
    assert_eq!(
        problems(&identity, at(2030, 1)),
        [(2, IssuerProblem::Dates(expired))]
    );
    let shown = identity.warnings(at(2030, 1))[0].to_string();
    assert!(
        shown.starts_with("certificate 2 of the chain (CN=inter) expired at"),
        "{shown}"
    );

    // Cross-signed by another root, until 2023.
    let other =
        CertifiedIssuer::self_signed(of_authority("old", 2045), KeyPair::generate().unwrap())
            .unwrap();
    let key = KeyPair::from_pem(&chain.root.key().serialize_pem()).unwrap();
    let cross = of_authority("root", 2023)
        .signed_by(&key, &other)
        .unwrap()
        .pem();
    let identity = chain.identity(&[&inter, &cross]);
    let problems = problems(&identity, at(2026, 0));
    assert!(matches!(
        problems[..],
        [(3, IssuerProblem::Dates(DateProblem::Expired { .. }))]
    ));
    assert_eq!(identity.chain_expires_at_s(), at(2023, 0).as_secs());
}

#[test]
fn superfluous_certificates_are_seen() {
    let (chain, other) = (chain(), self::chain());
    let (inter, root) = (chain.inter.pem(), chain.root.pem());
    let identity = chain.identity(&[&inter, &root, &inter, &other.leaf, &chain.leaf]);
    assert_eq!(
        problems(&identity, at(2026, 0)),
        [
            (4, IssuerProblem::Duplicate { of: 2 }),
            (5, IssuerProblem::Unrelated),
            (6, IssuerProblem::Duplicate { of: 1 }),
        ]
    );
    // In any order, and with the authority itself.
    assert_eq!(problems(&chain.identity(&[&root, &inter]), at(2026, 0)), []);
}

#[test]
fn a_chain_is_completed_up_to_the_authority() {
    let (chain, other) = (chain(), self::chain());
    let (inter, root) = (chain.inter.pem(), chain.root.pem());
    let full = chain.identity(&[&inter]);
    let bundle = |parts: &[&str]| Issuers::from_pem(parts.concat().as_bytes(), "ca").unwrap();
    // The other authorities have the same names.
    let (other_inter, other_root) = (other.inter.pem(), other.root.pem());
    let issuers = bundle(&[&other_root, &root, &other_inter, &inter]);
    let completed = chain.identity(&[]).completed(&issuers);
    assert_eq!(completed.chain(), full.chain());
    assert_eq!(full.clone().completed(&issuers).chain(), full.chain());
    assert_eq!(completed.names(), ["a.test"]);
    for useless in [&root, &other.leaf] {
        let identity = chain.identity(&[]).completed(&bundle(&[useless]));
        assert_eq!(identity.chain().len(), 1);
    }
    let expected = [full.chain()[1], &chain.root.der()[..]];
    assert_eq!(issuers.issuers_of(full.chain()[0]), expected);
    let own = issuers.issuer_of(full.chain()[1]).unwrap();
    assert_eq!(own, &chain.root.der()[..]);
    assert_eq!(issuers.issuer_of(own), None);
    assert_eq!(
        Issuers::from_pem(issuers.to_pem().as_bytes(), "again")
            .unwrap()
            .to_pem(),
        issuers.to_pem()
    );
}
