//! What certificates demand of a verifier that webpki does not support. It reports this as an error of the certificate,
//! as a name that is not allowed or as a wrong signature; an operator has to know that another verifier would accept the certificate.

use std::ops::RangeInclusive;

use rustls_pki_types::TrustAnchor;
use x509_parser::der_parser::oid::Oid;

use crate::x509::der::{Der, Tag};
use crate::x509::outline::{Outline, id, name_as_text};

/// The extensions that webpki supports.
const SUPPORTED: [&[u8]; 6] = [
    id::KEY_USAGE,
    id::ALTERNATIVE_NAME,
    id::BASIC_CONSTRAINTS,
    id::NAME_CONSTRAINTS,
    id::REVOCATION_LISTS,
    id::EXTENDED_KEY_USAGE,
];

/// Names of extensions that are critical in some certificates.
const NAMES: [(&str, &str); 11] = [
    ("2.5.29.18", "issuerAltName"),
    ("2.5.29.32", "certificatePolicies"),
    ("2.5.29.33", "policyMappings"),
    ("2.5.29.36", "policyConstraints"),
    ("2.5.29.54", "inhibitAnyPolicy"),
    ("1.3.6.1.4.1.311.21.10", "application policies of Microsoft"),
    ("1.3.6.1.4.1.11129.2.4.3", "Certificate Transparency poison"),
    ("1.3.6.1.5.5.7.1.3", "qcStatements"),
    ("1.3.6.1.5.5.7.1.14", "proxyCertInfo"),
    ("1.3.6.1.5.5.7.1.24", "TLS feature"),
    ("1.3.6.1.5.5.7.1.31", "acmeIdentifier"),
];

/// Maximum length of an identifier that is shown.
const ID_LEN_MAX: usize = 32;

/// Describes the first critical extension in these certificates that is not supported. The first one is the peer's own.
pub(crate) fn critical_extension(certificates: &[&[u8]]) -> Option<String> {
    certificates.iter().enumerate().find_map(|(at, der)| {
        let outline = Outline::read(der)?;
        let mut extensions = outline.extensions();
        let unknown = extensions.find(|one| one.is_critical && !SUPPORTED.contains(&one.id))?;
        let whose = whose(at, &outline);
        let id = id_as_text(unknown.id);
        Some(format!(
            "{whose} has the critical extension {id}, which is not supported here"
        ))
    })
}

/// The certificate at this place of a chain.
fn whose(at: usize, outline: &Outline<'_>) -> String {
    match at {
        0 => "it".to_owned(),
        _ => format!(
            "the certificate of {} in its chain",
            name_as_text(outline.subject)
        ),
    }
}

/// Describes the first certificate of a chain that has issued another one, and whose key may not sign certificates.
pub(crate) fn no_signer(certificates: &[&[u8]]) -> Option<String> {
    let outlines = certificates.iter().filter_map(|der| Outline::read(der));
    let outlines: Vec<Outline<'_>> = outlines.collect();
    let has_issued = |name: &[u8]| outlines.iter().any(|one| one.issuer == name);
    let mut others = outlines.iter().enumerate().skip(1);
    let (at, outline) = others.find(|(_, one)| has_issued(one.subject) && !one.may_sign())?;
    let whose = whose(at, outline);
    Some(format!(
        "{whose} may not sign certificates (its key usage has no keyCertSign)"
    ))
}

/// Lengths of the RSA keys that are supported. webpki reports a signature of another key as wrong.
const RSA_BITS: RangeInclusive<usize> = 2048..=8192;

/// Describes the first RSA key of these certificates, or of the root that has signed one, whose length is not supported.
pub(crate) fn key_length(certificates: &[&[u8]], roots: &[TrustAnchor<'_>]) -> Option<String> {
    let outlines = certificates.iter().filter_map(|der| Outline::read(der));
    let outlines: Vec<Outline<'_>> = outlines.collect();
    let of_chain = outlines.iter().enumerate();
    let of_chain = of_chain.map(|(at, outline)| (whose(at, outline), outline.key));
    let is_issuer = |root: &&TrustAnchor<'_>| {
        let name = root.subject.as_ref();
        outlines.iter().any(|outline| outline.issuer == name)
    };
    let of_roots = roots.iter().filter(is_issuer).map(|root| {
        let name = name_as_text(root.subject.as_ref());
        let key = root.subject_public_key_info.as_ref();
        (format!("its authority {name}"), key)
    });
    of_chain.chain(of_roots).find_map(|(whose, key)| {
        let bits = rsa_bits(key).filter(|bits| !RSA_BITS.contains(bits))?;
        let (least, most) = (RSA_BITS.start(), RSA_BITS.end());
        Some(format!(
            "{whose} has an RSA key of {bits} bits, and only keys of {least} to {most} bits are supported here; create it \
             again with such a key"
        ))
    })
}

/// The length of the modulus in a public key (RFC 8017 §A.1.1). `None`: it is no RSA key.
fn rsa_bits(key: &[u8]) -> Option<usize> {
    let mut key = Der::contents(key);
    key.expect(Tag::SEQUENCE)?; // its algorithm
    let numbers = key.expect(Tag::BITS)?.strip_prefix(&[0])?;
    let modulus = Der::whole(numbers)?
        .enter(Tag::SEQUENCE)?
        .expect(Tag::INTEGER)?;
    let first = modulus.iter().position(|&byte| byte != 0)?;
    let modulus = modulus.get(first..)?;
    let unused = modulus.first()?.leading_zeros() as usize;
    Some(modulus.len() * 8 - unused)
}

fn id_as_text(id: &[u8]) -> String {
    if id.len() > ID_LEN_MAX {
        return format!("with an identifier of {} bytes", id.len());
    }
    let id = Oid::new(id.into()).to_id_string();
    match NAMES.iter().find(|(known, _)| *known == id) {
        Some((_, name)) => format!("{name} ({id})"),
        None => id,
    }
}

/// Describes the first name constraint that is not supported, of an authority in the chain, and applies to the peer's
/// own certificate.
pub(crate) fn name_constraint(certificates: &[&[u8]], roots: &[TrustAnchor<'_>]) -> Option<String> {
    let outlines = certificates.iter().filter_map(|der| Outline::read(der));
    let outlines: Vec<Outline<'_>> = outlines.collect();
    let own = outlines.first()?;
    let is_issuer = |name: &[u8]| outlines.iter().any(|one| one.issuer == name);
    let of_roots = roots.iter().filter_map(|root| {
        let constraints = root.name_constraints.as_ref()?.as_ref();
        Some((root.subject.as_ref(), Der::contents(constraints)))
    });
    let of_others = outlines.iter().skip(1).filter_map(|authority| {
        let constraints = authority.extension(id::NAME_CONSTRAINTS)?;
        let constraints = Der::whole(constraints)?.enter(Tag::SEQUENCE)?;
        Some((authority.subject, constraints))
    });
    let mut of_issuers = of_roots
        .chain(of_others)
        .filter(|(name, _)| is_issuer(name));
    of_issuers.find_map(|(authority, constraints)| {
        let mut kinds = constrained(constraints).filter_map(NameKind::unsupported);
        let kind = kinds.find(|kind| kind.applies_to(own))?;
        let authority = name_as_text(authority);
        Some(format!(
            "the authority {authority} of its chain may issue certificates only for some {}, and this constraint is \
             not supported here",
            kind.words()
        ))
    })
}

/// Describes a constraint on mail addresses for which webpki accepts a certificate with such an address in its subject: it
/// looks at alternative names only.
pub(crate) fn subject_constraint(
    certificates: &[&[u8]],
    roots: &[TrustAnchor<'_>],
) -> Option<String> {
    let own = Outline::read(certificates.first()?)?;
    let applies = has_mail(own.subject);
    applies.then(|| name_constraint(certificates, roots))?
}

/// Whether a name has a mail address among its attributes (RFC 2985 §5.2.1).
fn has_mail(name: &[u8]) -> bool {
    const MAIL: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];
    name.windows(MAIL.len()).any(|part| part == MAIL)
}

/// Returns the numbers of the kinds of names in constraints (RFC 5280 §4.2.1.10).
fn constrained(mut constraints: Der<'_>) -> impl Iterator<Item = u8> + use<'_> {
    let permitted = constraints.enter(Tag::CONTEXT_0_CONSTRUCTED);
    let excluded = constraints.enter(Tag::CONTEXT_1_CONSTRUCTED);
    let both = permitted.into_iter().chain(excluded);
    both.flat_map(|mut subtrees| {
        std::iter::from_fn(move || Some(subtrees.enter(Tag::SEQUENCE)?.any()?.0.number()))
    })
}

/// A kind of names that webpki cannot compare with constraints: the number of its choice in a GeneralName.
struct NameKind(u8);

impl NameKind {
    const MAIL: u8 = 1;
    const DIRECTORY_NAME: u8 = 4;

    /// DNS names and addresses are supported.
    fn unsupported(number: u8) -> Option<NameKind> {
        (!matches!(number, 2 | 7)).then_some(NameKind(number))
    }

    /// Every certificate has a directory name: its subject. Constraints on mail addresses are for those in the subject,
    /// too (RFC 5280 §4.2.1.10).
    fn applies_to(&self, own: &Outline<'_>) -> bool {
        let names = own.extension(id::ALTERNATIVE_NAME).and_then(Der::whole);
        let names = names.and_then(|mut names| names.enter(Tag::SEQUENCE));
        let mut names = names.unwrap_or_else(|| Der::contents(&[]));
        let mut kinds = std::iter::from_fn(|| Some(names.any()?.0.number()));
        self.0 == NameKind::DIRECTORY_NAME
            || self.0 == NameKind::MAIL && has_mail(own.subject)
            || kinds.any(|kind| kind == self.0)
    }

    fn words(&self) -> &'static str {
        match self.0 {
            0 => "other names",
            NameKind::MAIL => "mail addresses",
            NameKind::DIRECTORY_NAME => "directory names",
            6 => "URIs",
            8 => "registered identifiers",
            _ => "names of a rare kind",
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, CustomExtension,
        DistinguishedName, DnType, GeneralSubtree, IsCa, KeyPair, NameConstraints, SanType,
    };
    use rustls::RootCertStore;

    use super::*;

    type Authority = CertifiedIssuer<'static, KeyPair>;

    fn named(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    fn root(permitted: Vec<GeneralSubtree>) -> Authority {
        let mut params = named("Corp Root");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: permitted,
            excluded_subtrees: Vec::new(),
        });
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn leaf(of: &Authority, change: impl FnOnce(&mut CertificateParams)) -> Certificate {
        let mut params = named("alice");
        change(&mut params);
        params.signed_by(&KeyPair::generate().unwrap(), of).unwrap()
    }

    fn critical(id: &[u64]) -> CustomExtension {
        let mut extension = CustomExtension::from_oid_content(id, vec![5, 0]);
        extension.set_criticality(true);
        extension
    }

    #[test]
    fn an_unknown_critical_extension_is_named() {
        let root = root(Vec::new());
        let with =
            |id: &'static [u64]| leaf(&root, |params| params.custom_extensions.push(critical(id)));
        let said = |chain: &[&Certificate]| {
            let chain: Vec<&[u8]> = chain.iter().map(|one| one.der().as_ref()).collect();
            critical_extension(&chain)
        };
        let (policy, own, plain) = (
            with(&[2, 5, 29, 36]),
            with(&[1, 2, 3, 4]),
            leaf(&root, |_| {}),
        );
        let of_own = "it has the critical extension 1.2.3.4, which is not supported here";
        assert_eq!(said(&[&own]).as_deref(), Some(of_own));
        let of_other = "the certificate of CN=alice in its chain has the critical extension policyConstraints \
                        (2.5.29.36), which is not supported here";
        assert_eq!(said(&[&plain, &policy]).as_deref(), Some(of_other));
        assert_eq!(
            said(&[&plain]),
            None,
            "basic constraints and others are supported"
        );
        let long = leaf(&root, |params| {
            params
                .custom_extensions
                .push(critical(&[[1, 2].as_slice(), &[9; 90]].concat()))
        });
        assert!(
            said(&[&long])
                .unwrap()
                .contains("an identifier of 91 bytes")
        );
    }

    #[test]
    fn a_constraint_on_names_that_cannot_be_compared_is_named() {
        let mail = || vec![GeneralSubtree::Rfc822Name("example.org".to_owned())];
        let directory = || {
            vec![GeneralSubtree::DirectoryName(
                named("Corp").distinguished_name,
            )]
        };
        let dns = || vec![GeneralSubtree::DnsName("example.org".to_owned())];
        let with_mail = |params: &mut CertificateParams| {
            let mail = "alice@example.org".try_into().unwrap();
            params.subject_alt_names.push(SanType::Rfc822Name(mail));
        };
        let said = |permitted, has_mail: bool| {
            let root = self::root(permitted);
            let own = leaf(&root, |params| {
                if has_mail {
                    with_mail(params)
                }
            });
            let mut store = RootCertStore::empty();
            store.add(root.der().clone()).unwrap();
            let of_root = name_constraint(&[own.der()], &store.roots);
            assert_eq!(of_root, name_constraint(&[own.der(), root.der()], &[]));
            of_root
        };
        let words = said(directory(), false).unwrap();
        assert!(
            words.starts_with("the authority CN=Corp Root of its chain"),
            "{words}"
        );
        assert!(words.contains("directory names"), "{words}");
        assert!(said(mail(), true).unwrap().contains("mail addresses"));
        assert_eq!(said(mail(), false), None, "no mail address is constrained");
        let root = root(mail());
        let in_subject = leaf(&root, |params| {
            let id = DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]);
            params.distinguished_name.push(id, "alice@example.net");
        });
        let chain = [in_subject.der().as_ref(), root.der().as_ref()];
        assert!(subject_constraint(&chain, &[]).unwrap().contains("mail"));
        let without = leaf(&root, |_| {});
        let chain = [without.der().as_ref(), root.der().as_ref()];
        assert_eq!(subject_constraint(&chain, &[]), None);
        assert_eq!(said(dns(), true), None, "a constraint that is supported");
    }

    /// The contents of a public key with a modulus of this many bytes, the first of which is given.
    fn public_key(first: u8, length: u8) -> Vec<u8> {
        let modulus = [&[0, first][..], &vec![0xff; usize::from(length) - 1]].concat();
        let integer = [&[2, 0x81, length + 1][..], &modulus, &[2, 1, 3]].concat();
        let numbers = [&[0x30, 0x81, length + 7][..], &integer].concat();
        let bits = [&[3, 0x81, length + 11, 0][..], &numbers].concat();
        [&[0x30, 2, 5, 0][..], &bits].concat()
    }

    #[test]
    fn the_length_of_a_modulus_is_counted_from_its_first_bit() {
        assert_eq!(rsa_bits(&public_key(0x80, 128)), Some(1024));
        assert_eq!(rsa_bits(&public_key(0x01, 128)), Some(1017));
        assert_eq!(rsa_bits(&public_key(0x80, 192)), Some(1536));
        let other = leaf(&root(Vec::new()), |_| {});
        assert_eq!(key_length(&[other.der()], &[]), None, "an ECDSA key");
    }
}
