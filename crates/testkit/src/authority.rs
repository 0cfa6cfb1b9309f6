//! A certificate authority for one test, and valid, expired and not yet valid certificates.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use dormouse_engine::{Identity, Roots};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_RSA_SHA256, RevokedCertParams, RsaKeySize, SerialNumber, date_time_ymd,
};

/// Length of the generated RSA keys.
pub const RSA_BITS: usize = 2_048;

/// A certificate authority whose key exists only in memory.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate with its key, in PEM.
#[derive(Clone)]
pub struct Leaf {
    /// The certificate, without the authority's.
    pub certificate_pem: String,
    /// The key, PKCS #8.
    pub key_pem: String,
    /// The serial number.
    pub serial: u64,
}

impl Authority {
    /// A new authority with this name.
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2049, 12, 31);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("self-signed");
        Authority { issuer }
    }

    /// An authority that all tests of one process share.
    pub fn shared() -> &'static Authority {
        static SHARED: OnceLock<Authority> = OnceLock::new();
        SHARED.get_or_init(|| Authority::new("Dormouse Test Authority"))
    }

    /// The authority's own certificate, for trust stores.
    pub fn certificate_pem(&self) -> String {
        self.issuer.pem()
    }

    /// Trust in this authority only.
    pub fn roots(&self) -> Roots {
        Roots::Pem(self.certificate_pem().into_bytes())
    }

    /// A valid certificate with a P-256 key.
    pub fn ecdsa(&self, names: &[&str]) -> Leaf {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
        self.issue(names, &key, 2020, 2049)
    }

    /// A valid certificate with a P-384 key.
    pub fn ecdsa_p384(&self, names: &[&str]) -> Leaf {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).expect("a key");
        self.issue(names, &key, 2020, 2049)
    }

    /// A valid certificate with an RSA key of [`RSA_BITS`]. Generating a key is slow, so all RSA
    /// certificates of one process have the same key.
    pub fn rsa(&self, names: &[&str]) -> Leaf {
        static KEY: OnceLock<KeyPair> = OnceLock::new();
        let key = KEY.get_or_init(|| {
            KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).expect("an RSA key")
        });
        self.issue(names, key, 2020, 2049)
    }

    /// An expired certificate.
    pub fn expired(&self, names: &[&str]) -> Leaf {
        let key = KeyPair::generate().expect("a key");
        self.issue(names, &key, 2020, 2021)
    }

    /// A certificate that is not yet valid.
    pub fn not_yet_valid(&self, names: &[&str]) -> Leaf {
        let key = KeyPair::generate().expect("a key");
        self.issue(names, &key, 2048, 2049)
    }

    fn issue(&self, names: &[&str], key: &KeyPair, from: i32, until: i32) -> Leaf {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names.clone()).expect("valid names");
        if let Some(name) = names.first() {
            params
                .distinguished_name
                .push(DnType::CommonName, name.as_str());
        }
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 12, 31);
        static NEXT: AtomicU64 = AtomicU64::new(1_000);
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        params.serial_number = Some(SerialNumber::from(serial));
        let certificate = params.signed_by(key, &self.issuer).expect("signed");
        Leaf {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            serial,
        }
    }

    /// A revocation list of these certificates, PEM.
    pub fn revocation_list(&self, revoked: &[&Leaf]) -> String {
        self.revocation_list_of(2024, 2050, revoked)
    }

    /// The same, valid from the beginning of one year to that of the other.
    pub fn revocation_list_of(&self, from: i32, to: i32, revoked: &[&Leaf]) -> String {
        let revoked = revoked.iter().map(|leaf| RevokedCertParams {
            serial_number: SerialNumber::from(leaf.serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        CertificateRevocationListParams {
            this_update: date_time_ymd(from, 1, 1),
            next_update: date_time_ymd(to, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        }
        .signed_by(&self.issuer)
        .expect("signed")
        .pem()
        .expect("PEM")
    }
}

impl Leaf {
    /// The certificate and key as an identity for the engine.
    pub fn identity(&self) -> Identity {
        Identity::from_pem(
            self.certificate_pem.as_bytes(),
            self.key_pem.as_bytes(),
            "leaf.pem",
            "leaf.key",
        )
        .expect("a key of the certificate")
    }
}
