//! What a section of a PEM text holds, by its label (RFC 7468 §3, and the labels of OpenSSL).

/// The content of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Certificate,
    /// A certificate that OpenSSL's settings of trust may follow.
    TrustedCertificate,
    RevocationList,
    Pkcs8Key,
    RsaKey,
    EcKey,
    EncryptedKey,
    /// A request for a certificate. No file that Dormouse reads is about it, as about the next two, and `openssl` leaves
    /// them beside what it writes.
    Request,
    PublicKey,
    Parameters,
}

impl Kind {
    /// The kind of a section with this label. The error says what to do about one that cannot be read: if it were
    /// passed over, certificates might be missing in silence.
    pub(crate) fn of(label: &[u8]) -> Result<Kind, String> {
        let refuse = |what: &str, remedy: &str| {
            let label = label.get(..64).unwrap_or(label).escape_ascii();
            Err(format!("the section {label} {what}; {remedy}"))
        };
        Ok(match label {
            b"CERTIFICATE" | b"X509 CERTIFICATE" => Kind::Certificate,
            b"TRUSTED CERTIFICATE" => Kind::TrustedCertificate,
            b"X509 CRL" => Kind::RevocationList,
            b"PRIVATE KEY" => Kind::Pkcs8Key,
            b"RSA PRIVATE KEY" => Kind::RsaKey,
            b"EC PRIVATE KEY" => Kind::EcKey,
            b"ENCRYPTED PRIVATE KEY" => Kind::EncryptedKey,
            b"EC PARAMETERS" | b"DH PARAMETERS" | b"X9.42 DH PARAMETERS" | b"DSA PARAMETERS" => {
                Kind::Parameters
            }
            b"CERTIFICATE REQUEST" | b"NEW CERTIFICATE REQUEST" => Kind::Request,
            b"PUBLIC KEY" | b"RSA PUBLIC KEY" => Kind::PublicKey,
            b"PKCS7" | b"PKCS #7 SIGNED DATA" | b"CMS" => {
                return refuse(
                    "holds certificates in PKCS #7",
                    "convert it: openssl pkcs7 -print_certs -in FILE -out FILE.pem",
                );
            }
            b"OPENSSH PRIVATE KEY" => {
                return refuse(
                    "is a key of OpenSSH",
                    "convert it: ssh-keygen -p -m PKCS8 -f FILE",
                );
            }
            b"DSA PRIVATE KEY" => {
                return refuse("is a DSA key", "RSA, ECDSA and Ed25519 are supported");
            }
            _ => {
                return refuse(
                    "is not known",
                    "certificates are in sections CERTIFICATE, keys in PRIVATE KEY, revocation lists in X509 CRL",
                );
            }
        })
    }

    pub(crate) fn is_certificate(self) -> bool {
        matches!(self, Kind::Certificate | Kind::TrustedCertificate)
    }

    pub(crate) fn is_key(self) -> bool {
        matches!(
            self,
            Kind::Pkcs8Key | Kind::RsaKey | Kind::EcKey | Kind::EncryptedKey
        )
    }
}
