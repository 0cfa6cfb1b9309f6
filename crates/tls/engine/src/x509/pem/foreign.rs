//! Files that are not PEM: names their format and the command that converts them.

use crate::x509::der::{Der, Tag};
use crate::x509::outline::Outline;
use crate::x509::revocation_list::ListOutline;

/// Object identifiers of PKCS #7 (RFC 2315 §14): data, of which PKCS #12 consists, and signed data.
const PKCS7_DATA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01";
const PKCS7_SIGNED_DATA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02";

const PKCS12: &str = "PKCS #12; convert it: openssl pkcs12 -in FILE -nodes -out FILE.pem";

/// What the file is, and what to do about it. `None`: text, or a format that is not known.
pub(crate) fn format(bytes: &[u8]) -> Option<&'static str> {
    /// How the base64 of a PEM text begins.
    const IN_BASE64: &[u8] = b"LS0tLS1CRUdJTi";
    match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            Some("UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8 FILE >FILE.pem")
        }
        [b'-', 0, b'-', 0, ..] => {
            Some("UTF-16 text; convert it: iconv -f UTF-16LE -t UTF-8 FILE >FILE.pem")
        }
        [0, b'-', 0, b'-', ..] => {
            Some("UTF-16 text; convert it: iconv -f UTF-16BE -t UTF-8 FILE >FILE.pem")
        }
        [0xfe, 0xed, 0xfe, 0xed, ..] => Some(
            "a Java key store; convert it: keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 \
             -deststoretype pkcs12, then openssl pkcs12 -in FILE.p12 -nodes -out FILE.pem",
        ),
        // The length is left open, as some programs write it.
        [0x30, 0x80, 2, 1, 3, ..] => Some(PKCS12),
        _ if bytes.trim_ascii_start().starts_with(IN_BASE64) => {
            Some("PEM once more in base64; decode it: base64 -d FILE >FILE.pem")
        }
        _ => of_der(bytes),
    }
}

fn of_der(bytes: &[u8]) -> Option<&'static str> {
    let mut outer = Der::whole(bytes)?.enter(Tag::SEQUENCE)?;
    if Outline::read(bytes).is_some() {
        return Some(
            "a certificate in DER; convert it: openssl x509 -inform DER -in FILE -out FILE.pem",
        );
    }
    if ListOutline::read(bytes).is_some() {
        return Some(
            "a revocation list in DER; convert it: openssl crl -inform DER -in FILE -out FILE.pem",
        );
    }
    Some(match outer.any() {
        Some((Tag::OID, PKCS7_SIGNED_DATA)) => {
            "PKCS #7 in DER; convert it: openssl pkcs7 -inform DER -print_certs -in FILE -out FILE.pem"
        }
        Some((Tag::INTEGER, [3])) if is_data(&mut outer) => PKCS12,
        // Of RSA and PKCS #8 the version; of an encrypted key its algorithm.
        Some((Tag::INTEGER, [0 | 1])) | Some((Tag::SEQUENCE, _)) => {
            "a key in DER; convert it: openssl pkey -inform DER -in FILE -out FILE.pem"
        }
        _ => "binary, but neither a certificate, a key, nor a revocation list",
    })
}

fn is_data(rest: &mut Der<'_>) -> bool {
    let kind = rest
        .enter(Tag::SEQUENCE)
        .and_then(|mut info| info.expect(Tag::OID));
    kind == Some(PKCS7_DATA)
}
