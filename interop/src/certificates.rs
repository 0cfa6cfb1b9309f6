//! A certificate authority and its certificates, generated for every test program.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType,
    SerialNumber,
};
use tempfile::TempDir;

/// Kind of a certificate's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ECDSA with P-256.
    EcdsaP256,
    /// RSA with 2048 bits.
    Rsa2048,
}

/// A certificate and its key, as PEM files.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key, PKCS #8.
    pub key: PathBuf,
    /// Both in one file, for HAProxy.
    pub both: PathBuf,
}

/// The authority of this test program.
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    ecdsa: OnceLock<Files>,
    rsa: OnceLock<Files>,
}

/// Returns the authority, which the first call generates.
pub fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(Authority::new)
}

impl Authority {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Botan cannot parse rcgen's default, which is too late a date.
        params.not_after = rcgen::date_time_ymd(2045, 12, 31);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(DnType::CommonName, "interop authority");
        let certificate = params.self_signed(&key).expect("a certificate");
        write(&folder.path().join("ca.pem"), &certificate.pem());
        write(&folder.path().join("ca.key"), &key.serialize_pem());
        Self {
            folder,
            issuer: Issuer::new(params, key),
            ecdsa: OnceLock::new(),
            rsa: OnceLock::new(),
        }
    }

    /// The file with the CA certificate that clients trust.
    pub fn trust(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The file with the CA's own key, for programs that act as the CA.
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("ca.key")
    }

    /// A valid certificate for `localhost`.
    pub fn certificate(&self, kind: Kind) -> &Files {
        let (cell, name) = match kind {
            Kind::EcdsaP256 => (&self.ecdsa, "ecdsa"),
            Kind::Rsa2048 => (&self.rsa, "rsa"),
        };
        cell.get_or_init(|| self.give_out(name, kind, 2035, self.folder.path()))
    }

    /// Issues a certificate for `localhost` that expires at the end of this year.
    pub fn give_out(&self, name: &str, kind: Kind, last_year: i32, folder: &Path) -> Files {
        self.give_out_with(name, kind, folder, |params| {
            params.not_after = rcgen::date_time_ymd(last_year, 12, 31);
        })
    }

    /// Issues a certificate for these names.
    pub fn give_out_for(&self, name: &str, kind: Kind, names: &[&str], folder: &Path) -> Files {
        self.give_out_with(name, kind, folder, |params| {
            let names = names
                .iter()
                .map(|&name| name.try_into().expect("a valid name"));
            params.subject_alt_names = names.map(SanType::DnsName).collect();
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
        })
    }

    /// Issues a certificate for `localhost` with the changes of `change`.
    pub fn give_out_with(
        &self,
        name: &str,
        kind: Kind,
        folder: &Path,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Files {
        let key = match kind {
            Kind::EcdsaP256 => KeyPair::generate(),
            Kind::Rsa2048 => {
                KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048)
            }
        }
        .expect("a key");
        let mut params =
            CertificateParams::new(vec!["localhost".to_owned()]).expect("a valid name");
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2035, 12, 31);
        params.use_authority_key_identifier_extension = true;
        params
            .distinguished_name
            .push(DnType::CommonName, "localhost");
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let files = Files {
            cert: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
            both: folder.join(format!("{name}.both.pem")),
        };
        write(&files.cert, &certificate.pem());
        write_private(&files.key, &key.serialize_pem());
        write_private(
            &files.both,
            &format!("{}{}", certificate.pem(), key.serialize_pem()),
        );
        files
    }
}

impl Authority {
    /// Issues a certificate for each name, in files of that name with the same key.
    pub fn give_out_many(&self, names: &[String], folder: &Path) {
        let key = KeyPair::generate().expect("a key");
        for name in names {
            let mut params = CertificateParams::new(vec![name.clone()]).expect("a valid name");
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2035, 12, 31);
            let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
            write(&folder.join(format!("{name}.pem")), &certificate.pem());
            write_private(&folder.join(format!("{name}.key")), &key.serialize_pem());
        }
    }

    /// A CRL (PEM) with these serial numbers.
    pub fn revocation_list(&self, serials: &[Vec<u8>]) -> String {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from_slice(serial),
            revocation_time: rcgen::date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2024, 1, 2),
            next_update: rcgen::date_time_ymd(2035, 12, 31),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        }
        .signed_by(&self.issuer)
        .and_then(|list| list.pem())
        .expect("a revocation list")
    }
}

/// Writes a file that only its owner may read, as a key should be.
fn write_private(file: &Path, text: &str) {
    write(file, "");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(file, private).expect("a file of ours");
    write(file, text);
}

fn write(file: &Path, text: &str) {
    std::fs::write(file, text)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
}
