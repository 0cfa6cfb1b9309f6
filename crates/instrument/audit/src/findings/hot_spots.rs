//! Describes sampled CPU time: what a server does during a handshake.

use super::units::percent;
use crate::software::SoftwareKind;
use dormouse_census::HotSpot;

/// Minimum share of the samples for a part to be named.
const NAMED: f64 = 0.08;

/// Kinds of functions, by the prefixes of their names.
const KINDS: [(&str, &str); 6] = [
    (PARSING, "X509 ASN1 asn1_ d2i_ PEM_ EVP_Decode OBJ_ x509_"),
    (
        "allocating and freeing memory",
        "malloc free realloc calloc _int_ runtime.mallocgc CRYPTO_malloc CRYPTO_free",
    ),
    (
        "waiting for locks",
        "pthread_mutex pthread_rwlock __lll_lock __pthread_mutex runtime.lock",
    ),
    (
        "collecting garbage",
        "runtime.gc runtime.scan runtime.sweep gc_collect",
    ),
    (
        "looking up names",
        "getaddrinfo res_n __res_ gethostby getnameinfo",
    ),
    (
        "writing logs",
        "vfprintf fprintf syslog __vsyslog fwrite ngx_log_ vsnprintf",
    ),
];
const PARSING: &str = "parsing certificates or a trust store";
/// Libraries that only parse certificates and keys.
const PARSERS: &str = "libtasn1";
/// Cryptographic libraries, whose unnamed functions count as arithmetic.
const CRYPTO: &str = "libcrypto libgnutls libnettle libhogweed";
/// Functions of cryptography that a program contains itself, by the prefixes of their names. The libraries of Rust put their
/// own names before all of theirs.
const CRYPTO_FUNCTIONS: &str = "AES_ ChaCha EC_ ECDSA_ EVP_ BN_ aes bn_ crypto/ ec_ ecdsa_ ecp_ fe_ ge_ gcm_ \
    golang.org/x/crypto/ ossl_ p256_ poly1305 sha256_ sha512_ x25519 aws_lc_ ring_core_";

/// Whether a name has one of these prefixes.
fn begins(name: &str, prefixes: &str) -> bool {
    let mut prefixes = prefixes.split_ascii_whitespace();
    prefixes.any(|prefix| name.starts_with(prefix))
}

/// Share of the samples spent on parsing certificates, which a server needs to do only once.
pub(super) fn parsing_share(profile: &[HotSpot]) -> f64 {
    let parsing = |spot: &&HotSpot| kind(spot) == PARSING;
    profile.iter().filter(parsing).map(|spot| spot.share).sum()
}

/// Share of the samples in cryptography, if it is the largest part.
pub(super) fn largest_is_cryptography(profile: &[HotSpot]) -> Option<f64> {
    let parts = parts(profile);
    let (what, share) = parts.first()?;
    what.starts_with("cryptography").then_some(*share)
}

/// Describes the cause according to the samples.
pub(super) fn words(profile: &[HotSpot]) -> String {
    let parts = parts(profile);
    let named: Vec<_> = parts
        .iter()
        .filter(|(_, share)| *share >= NAMED)
        .map(|(what, share)| format!("{} {what}", percent(*share)))
        .collect();
    if named.is_empty() {
        return "sampled during handshakes: no part of the program stands out".into();
    }
    format!("sampled during handshakes: {}", named.join(", "))
}

/// Kinds of functions with their shares, the largest first.
fn parts(profile: &[HotSpot]) -> Vec<(String, f64)> {
    let mut parts: Vec<(String, f64)> = Vec::new();
    let mut add = |what: String, share: f64| match parts.iter_mut().find(|known| known.0 == what) {
        Some(known) => known.1 += share,
        None => parts.push((what, share)),
    };
    for spot in profile {
        add(kind(spot), spot.share);
    }
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    parts
}

fn kind(spot: &HotSpot) -> String {
    let object = &*spot.object;
    if object == "kernel" {
        return "in the kernel".into();
    }
    let function = spot.function.as_deref();
    let of = |(_, prefixes): &&(&str, &str)| function.is_some_and(|name| begins(name, prefixes));
    if let Some((what, _)) = KINDS.iter().find(of) {
        return (*what).to_owned();
    }
    if begins(object, PARSERS) {
        return PARSING.into();
    }
    let is_crypto = |name| begins(name, CRYPTO_FUNCTIONS);
    if begins(object, CRYPTO) || function.is_some_and(is_crypto) {
        return format!("cryptography ({object})");
    }
    let is_of = |kind: &SoftwareKind| {
        let mut names = kind.program().interpreter.iter();
        names.any(|name| object.starts_with(name))
    };
    if SoftwareKind::ALL.iter().any(is_of) {
        return format!("the interpreter ({object})");
    }
    match &spot.function {
        Some(function) => format!("{function} ({object})"),
        None => format!("{object}, in functions without a name"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(object: &str, function: Option<&str>, share: f64) -> HotSpot {
        HotSpot {
            object: object.into(),
            function: function.map(str::to_owned),
            share,
        }
    }

    #[test]
    fn functions_of_one_kind_are_one_part() {
        let text = words(&[
            spot("libcrypto.so.3", Some("X509_NAME_cmp"), 0.2),
            spot("libcrypto.so.3", Some("ASN1_item_d2i"), 0.15),
            spot("libcrypto.so.3", None, 0.3),
            spot("kernel", None, 0.1),
            spot("python3.11", Some("_PyEval_EvalFrameDefault"), 0.05),
        ]);
        assert_eq!(
            text,
            "sampled during handshakes: 35 % parsing certificates or a trust store, 30 % cryptography (libcrypto.so.3), \
             10 % in the kernel"
        );
        // Recorded: Node.js contains OpenSSL.
        let node = words(&[
            spot("node", Some("sha512_block_data_order_avx2"), 0.06),
            spot("node", Some("fe_mul"), 0.04),
            spot("node", Some("Builtins_LoadIC"), 0.09),
        ]);
        assert_eq!(
            node,
            "sampled during handshakes: 10 % cryptography (node), 9 % the interpreter (node)"
        );
        // Recorded: axum contains aws-lc.
        let axum = words(&[spot("axum", Some("aws_lc_0_47_0_curve25519_x25519"), 0.15)]);
        assert!(axum.ends_with("15 % cryptography (axum)"), "{axum}");
        assert!(words(&[]).contains("no part"));
        let parsing = [
            spot("libcrypto.so.3", Some("X509_NAME_cmp"), 0.2),
            spot("libcrypto.so.3", None, 0.3),
        ];
        assert!((parsing_share(&parsing) - 0.2).abs() < 1e-9);
        assert!((parsing_share(&[spot("libtasn1.so.6.6.3", None, 0.3)]) - 0.3).abs() < 1e-9);
    }
}
