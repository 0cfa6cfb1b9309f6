//! The certificate authority that a client is told to trust, for one run only.

use std::net::SocketAddr;

use dormouse_engine::Identity;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// Limits a certificate to dates that every client can parse; the library's usual ones end in the year 4096.
fn limit(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2049, 12, 31);
}

/// Certificate of the authority.
pub(super) struct Authority {
    pub(super) pem: String,
    pub(super) der: Vec<u8>,
}

impl Authority {
    /// Creates an authority and a certificate for this address.
    pub(super) fn make(address: SocketAddr) -> Result<(Self, Identity), String> {
        let words = |error: rcgen::Error| error.to_string();
        let mut params = CertificateParams::new(Vec::new()).map_err(words)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "dormouse audit, for this run only");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        limit(&mut params);
        let key = KeyPair::generate().map_err(words)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(words)?;
        let mut names = vec![
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
            "::1".to_owned(),
        ];
        let ip = address.ip().to_string();
        if !address.ip().is_unspecified() && !names.contains(&ip) {
            names.push(ip);
        }
        let key = KeyPair::generate().map_err(words)?;
        let mut params = CertificateParams::new(names).map_err(words)?;
        // Strict clients ask for these, such as Python since 3.13.
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        limit(&mut params);
        let leaf = params.signed_by(&key, &issuer).map_err(words)?;
        let (chain, key) = (leaf.pem(), key.serialize_pem());
        let identity = Identity::from_pem(chain.as_bytes(), key.as_bytes(), "certificate", "key")
            .map_err(|error| error.to_string())?;
        let authority = Self {
            pem: issuer.pem(),
            der: issuer.der().to_vec(),
        };
        Ok((authority, identity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::extensions::ParsedExtension;
    use x509_parser::prelude::{FromDer, X509Certificate};

    /// What strict clients ask of a certificate that an authority has issued (RFC 5280 §4.2.1.1 to §4.2.1.3), and dates
    /// that all can parse: two digits for the year (§4.1.2.5).
    #[test]
    fn strict_clients_accept_the_certificate() {
        let address = "127.0.0.1:443".parse().expect("an address");
        let (authority, identity) = Authority::make(address).expect("made");
        let (_, issuer) = X509Certificate::from_der(&authority.der).expect("a certificate");
        let chain = identity.chain();
        let (_, leaf) = X509Certificate::from_der(chain[0]).expect("a certificate");
        let names_issuer = |one: &ParsedExtension<'_>| match one {
            ParsedExtension::AuthorityKeyIdentifier(key) => key.key_identifier.is_some(),
            _ => false,
        };
        let mut extensions = leaf.iter_extensions();
        assert!(extensions.any(|one| names_issuer(one.parsed_extension())));
        assert!(leaf.key_usage().expect("one").is_some());
        assert!(leaf.extended_key_usage().expect("one").is_some());
        for certificate in [&issuer, &leaf] {
            assert!(certificate.validity().not_after.to_datetime().year() < 2050);
        }
    }
}
