//! The verification of a peer's certificates, with a limit on its CPU time.
//!
//! An input is a list of recipes, so that mutations change who certifies whom and every signature fits; or certificates
//! as they are (DER).

use std::sync::LazyLock;
use std::time::Duration;

use dormouse_engine::{UnixTime, fuzzed::Verifiers};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CustomExtension, DistinguishedName, DnType,
    IsCa, Issuer, KeyPair, PKCS_ED25519, SerialNumber, date_time_ymd,
};
use rustix::time::{ClockId, clock_gettime};
use rustls_pki_types::PrivatePkcs8KeyDer;

use super::choice;

const NAMES: u8 = 6;
const KEYS: u8 = 12;
/// The root's name and key.
const ROOT: (u8, u8) = (0, 0);
/// A peer's message has at most this length.
const MESSAGE_LEN_MAX: usize = 64 << 10;
/// webpki's limit on a path.
const DEPTH_MAX: usize = 6;
/// Maximum CPU time of one message, for both verifiers. An optimised build takes less than 0.1 s; under libFuzzer it also
/// counts branches. A search without limits takes ten seconds and more.
const CPU_MAX: Duration = Duration::from_secs(2);

/// Who certifies whom: names and keys by number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Recipe {
    subject: (u8, u8),
    issuer: (u8, u8),
    has_expired: bool,
    is_forged: bool,
    /// Empty extensions, which take time to parse.
    extensions: usize,
}

impl Recipe {
    const LEN: usize = 4;

    fn read(bytes: &[u8]) -> Option<Recipe> {
        let [subject, issuer, how, extensions] = *bytes.first_chunk()?;
        let party = |byte: u8| (byte % NAMES, byte / NAMES % KEYS);
        Some(Recipe {
            subject: party(subject),
            issuer: party(issuer),
            has_expired: how & 7 == 1,
            is_forged: how & 7 == 2,
            extensions: if how & 8 == 0 {
                0
            } else {
                usize::from(extensions) * 32
            },
        })
    }

    /// Makes its certificate, with a serial number, so that none is like another one.
    fn bake(&self, number: u64, is_authority: bool) -> Certificate {
        let name = |number: u8| {
            let mut name = DistinguishedName::new();
            name.push(DnType::CommonName, format!("name {number}"));
            name
        };
        let mut params = CertificateParams::default();
        params.distinguished_name = name(self.subject.0);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(if self.has_expired { 2025 } else { 2049 }, 1, 1);
        params.serial_number = Some(SerialNumber::from(number));
        let extension = CustomExtension::from_oid_content(&[1, 2], Vec::new());
        params.custom_extensions = vec![extension; self.extensions];
        let own = if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            key(self.subject.1)
        } else {
            params.subject_alt_names = vec![
                "localhost"
                    .try_into()
                    .map(rcgen::SanType::DnsName)
                    .expect("a name"),
            ];
            key(KEYS)
        };
        let mut issuing = CertificateParams::default();
        issuing.distinguished_name = name(self.issuer.0);
        let signing = if self.is_forged { KEYS } else { self.issuer.1 };
        let issuer = Issuer::new(issuing, key(signing));
        params.signed_by(own, &issuer).expect("a certificate")
    }
}

/// Returns a key by number. The same number is the same key in every run.
fn key(number: u8) -> &'static KeyPair {
    static ALL: LazyLock<Vec<KeyPair>> = LazyLock::new(|| {
        let make = |number: u8| {
            // PKCS #8 of an Ed25519 key (RFC 8410 §7).
            let front = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
            let der = PrivatePkcs8KeyDer::from([&front[..], &[number; 32]].concat());
            KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519).expect("a key")
        };
        (0..=KEYS).map(make).collect()
    });
    &ALL[usize::from(number)]
}

/// Whether a path of valid certificates leads from the first one to the root.
fn is_path_to_root(recipes: &[Recipe]) -> bool {
    let Some((own, others)) = recipes.split_first() else {
        return false;
    };
    let mut layer = vec![*own];
    for _ in 0..=DEPTH_MAX {
        layer.retain(|one| !one.has_expired && !one.is_forged);
        if layer.iter().any(|one| one.issuer == ROOT) {
            return true;
        }
        let is_next = |other: &&Recipe| layer.iter().any(|one| one.issuer == other.subject);
        layer = others.iter().filter(is_next).copied().collect();
    }
    false
}

/// A peer's message.
pub(crate) fn run(data: &[u8]) {
    let (how, rest) = choice(data);
    let recipes: Vec<Recipe> = rest.chunks(Recipe::LEN).filter_map(Recipe::read).collect();
    let list: Vec<Vec<u8>> = match how {
        0 => elements(rest).map(<[u8]>::to_vec).collect(),
        _ => baked(&recipes),
    };
    let Some((own, others)) = list.split_first() else {
        return;
    };
    if list.iter().map(Vec::len).sum::<usize>() > MESSAGE_LEN_MAX {
        return;
    }
    let others: Vec<&[u8]> = others.iter().map(Vec::as_slice).collect();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_795_279_037));
    let begin = clock_gettime(ClockId::ThreadCPUTime);
    let found = VERIFIERS.verify(own, &others, now);
    let end = clock_gettime(ClockId::ThreadCPUTime);
    let took = Duration::try_from(end - begin).unwrap_or_default();
    assert!(took < CPU_MAX, "{took:?} for {} certificates", list.len());
    let Some((certificates, steps, signatures)) = found.work else {
        assert_eq!(found.accepted, [false; 2]);
        return;
    };
    assert!(certificates <= 32 && steps <= 64 && signatures <= 64);
    if how != 0 {
        let is_valid = is_path_to_root(&recipes);
        // Beyond these limits a path may remain unseen.
        let is_complete = others.len() <= 32 && signatures < 64;
        assert!(found.accepted == [is_valid; 2] || !is_complete && found.accepted == [false; 2]);
    }
}

static VERIFIERS: LazyLock<Verifiers> = LazyLock::new(|| {
    let root = Recipe {
        subject: ROOT,
        issuer: ROOT,
        has_expired: false,
        is_forged: false,
        extensions: 0,
    };
    Verifiers::new(&root.bake(0, true).pem()).expect("an authority")
});

/// The first recipe is for the peer's own certificate.
fn baked(recipes: &[Recipe]) -> Vec<Vec<u8>> {
    // A recipe with many extensions makes a certificate of up to 57 kB.
    let numbered = (0..).zip(recipes).take(48);
    let certificates = numbered.map(|(at, recipe)| recipe.bake(at, at > 0).der().to_vec());
    certificates.collect()
}

/// Splits DER into its elements.
fn elements(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let len = match *rest.get(1..)? {
            [0x82, high, low, ..] => 4 + usize::from(u16::from_be_bytes([high, low])),
            [len, ..] => 2 + usize::from(len),
            [] => return None,
        };
        let (element, next) = rest.split_at(len.min(rest.len()));
        rest = next;
        Some(element)
    })
}
