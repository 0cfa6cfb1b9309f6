//! A list of certificates that makes its verification expensive: nine with one name and different keys, which a library
//! can put in 60,000 orders, and one with thousands of extensions, which it parses each time.

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, IsCa, Issuer,
    KeyPair,
};
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::peer;

const KEYS: usize = 9;
/// 50 kB; a peer may send 64 KiB.
const EXTENSIONS: usize = 7_000;

/// A server that presents the list.
///
/// # Panics
/// Never: key and certificate are made for each other.
pub fn server() -> ServerConfig {
    let (chain, key) = list();
    ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate with its key")
}

/// A client that presents the list, and trusts the tests' CA.
///
/// # Panics
/// Never: key and certificate are made for each other.
pub fn client() -> ClientConfig {
    let (chain, key) = list();
    ClientConfig::builder()
        .with_root_certificates(peer::roots())
        .with_client_auth_cert(chain, key)
        .expect("a certificate with its key")
}

fn list() -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let keys: Vec<KeyPair> = (0..=KEYS)
        .map(|_| KeyPair::generate().expect("a key"))
        .collect();
    let (own, keys) = keys.split_first().expect("a key");
    let issuer = |key| Issuer::new(named("x", None), key);
    let mut params = named("localhost", Some("localhost"));
    let mut chain = vec![signed(&params, own, &issuer(&keys[0]))];
    params = named("other", None);
    params.custom_extensions =
        vec![CustomExtension::from_oid_content(&[1, 2], Vec::new()); EXTENSIONS];
    chain.push(signed(&params, own, &issuer(&keys[0])));
    params = named("x", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    for pair in keys.iter().zip(keys.iter().cycle().skip(1)) {
        chain.push(signed(&params, pair.0, &issuer(pair.1)));
    }
    let key = PrivatePkcs8KeyDer::from(own.serialize_der());
    (chain, key.into())
}

fn named(name: &str, host: Option<&str>) -> CertificateParams {
    let hosts: Vec<String> = host.into_iter().map(str::to_owned).collect();
    let mut params = CertificateParams::new(hosts).expect("a valid name");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2035, 12, 31);
    params
}

fn signed(
    params: &CertificateParams,
    key: &KeyPair,
    issuer: &Issuer<'_, &KeyPair>,
) -> CertificateDer<'static> {
    let certificate = params.signed_by(key, issuer);
    certificate.expect("a certificate").der().clone()
}
