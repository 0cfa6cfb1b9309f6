//! A private key in a PKCS #11 token, as a URI (RFC 7512).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The beginning of such a URI.
const SCHEME: &str = "pkcs11:";

/// How it is written.
const EXAMPLE: &str = "pkcs11:token=web;object=site?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=/etc/dormouse/pin";

/// A private key in a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenKey {
    /// The URI.
    pub uri: String,
    /// The library of the token.
    pub module: PathBuf,
    /// The file with the PIN.
    pub pin: Option<PathBuf>,
    /// Label of the token.
    pub token: Option<String>,
    /// Serial number of the token.
    pub serial: Option<String>,
    /// Manufacturer of the token.
    pub manufacturer: Option<String>,
    /// Model of the token.
    pub model: Option<String>,
    /// Number of the slot that the token is in.
    pub slot: Option<u64>,
    /// Label of the key.
    pub object: Option<String>,
    /// Id of the key.
    pub id: Option<Vec<u8>>,
}

impl TokenKey {
    /// Whether this path of a key is such a URI.
    pub fn is_uri(key: &Path) -> bool {
        key.to_str()
            .is_some_and(|text| after_scheme(text).is_some())
    }

    /// Reads a URI. The error says what is wrong, and what would be right.
    pub fn parse(uri: &str) -> Result<TokenKey, (String, String)> {
        let wrong = |what: String| (what, format!("write it like this: {EXAMPLE}"));
        let rest = after_scheme(uri).unwrap_or_default();
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut key = TokenKey {
            uri: uri.to_owned(),
            ..TokenKey::default()
        };
        let attributes = path.split(';').map(|one| (one, false));
        let queried = query.split('&').map(|one| (one, true));
        for (attribute, is_query) in attributes.chain(queried) {
            if attribute.is_empty() {
                continue;
            }
            let (name, value) = attribute
                .split_once('=')
                .ok_or_else(|| wrong(format!("`{attribute}` has no value")))?;
            let bytes = unescape(value)
                .filter(|bytes| !bytes.is_empty() && !bytes.contains(&0))
                .ok_or_else(|| wrong(format!("the value of `{name}` is not valid")))?;
            let text = || {
                String::from_utf8(bytes.clone())
                    .map_err(|_| wrong(format!("the value of `{name}` is not text")))
            };
            let is_second = match (name, is_query) {
                ("token", false) => key.token.replace(text()?).is_some(),
                ("serial", false) => key.serial.replace(text()?).is_some(),
                ("manufacturer", false) => key.manufacturer.replace(text()?).is_some(),
                ("model", false) => key.model.replace(text()?).is_some(),
                ("slot-id", false) => {
                    let number = text()?.parse().ok();
                    let number =
                        number.ok_or_else(|| wrong("`slot-id` is not a number".to_owned()))?;
                    key.slot.replace(number).is_some()
                }
                ("object", false) => key.object.replace(text()?).is_some(),
                ("id", false) => key.id.replace(bytes).is_some(),
                ("type", false) if bytes == b"private" => false,
                ("module-path", true) => {
                    let former = std::mem::replace(&mut key.module, absolute(name, text()?)?);
                    former != Path::new("")
                }
                ("pin-source", true) => key.pin.replace(absolute(name, text()?)?).is_some(),
                ("pin-value", true) => {
                    return Err((
                        "a PIN in the configuration can be read by everybody who can read that"
                            .to_owned(),
                        "write it to a file that only its owner can read, and add pin-source=FILE"
                            .to_owned(),
                    ));
                }
                _ => {
                    let known = "known are token, serial, manufacturer, model, slot-id, object, id and type=private, and after the question mark module-path and pin-source";
                    return Err((format!("`{attribute}` is not supported"), known.to_owned()));
                }
            };
            if is_second {
                return Err(wrong(format!("`{name}` is there twice")));
            }
        }
        if key.module == Path::new("") {
            return Err(wrong(
                "the library of the token is missing: module-path".to_owned(),
            ));
        }
        if key.object.is_none() && key.id.is_none() {
            return Err(wrong("the URI names no key: object, or id".to_owned()));
        }
        Ok(key)
    }
}

/// What follows the scheme, which may be written in capitals (RFC 3986 §3.1).
fn after_scheme(uri: &str) -> Option<&str> {
    let (scheme, rest) = uri.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(rest)
}

/// A path, which may be written as a URI of a file. The directory of the configuration is unknown to whoever reads it
/// elsewhere, so it must be absolute.
fn absolute(name: &str, text: String) -> Result<PathBuf, (String, String)> {
    let text = text.strip_prefix("file:").unwrap_or(&text);
    let path = Path::new(text.strip_prefix("//").unwrap_or(text));
    match path.is_absolute() {
        true => Ok(path.to_owned()),
        false => Err((
            format!("`{name}` is not an absolute path"),
            format!("write it like this: {EXAMPLE}"),
        )),
    }
}

/// Decodes `%40` (RFC 3986 §2.1). `None`: a % is not followed by two hexadecimal digits.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                (high * 16 + low) as u8
            }
            byte => byte,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = "module-path=/m.so";

    #[test]
    fn reads_uris() {
        let key = TokenKey::parse(EXAMPLE).expect("the example");
        assert_eq!(key.token.as_deref(), Some("web"));
        assert_eq!(key.object.as_deref(), Some("site"));
        assert_eq!(key.module, Path::new("/usr/lib/softhsm/libsofthsm2.so"));
        assert_eq!(key.pin.as_deref(), Some(Path::new("/etc/dormouse/pin")));
        let uri =
            format!("pkcs11:id=%01%fF;serial=a%20b;type=private?pin-source=file:///p&{MODULE}");
        let key = TokenKey::parse(&uri).expect("a URI");
        assert_eq!(key.id, Some(vec![1, 255]));
        assert_eq!(key.serial.as_deref(), Some("a b"));
        assert_eq!(key.pin.as_deref(), Some(Path::new("/p")));
        assert_eq!(key.uri, uri);
        assert!(TokenKey::is_uri(Path::new(&uri)));
        assert!(!TokenKey::is_uri(Path::new("/a/pkcs11:x")));
        assert!(!TokenKey::is_uri(Path::new("pkcs11é")));
    }

    /// As GnuTLS's `p11tool --list-all` writes a URI.
    #[test]
    fn reads_uris_of_tools() {
        let uri = format!(
            "PKCS11:model=SoftHSM%20v2;manufacturer=SoftHSM%20project;serial=6a84;token=web;slot-id=17;id=%02;object=ec;type=private?{MODULE}"
        );
        assert!(TokenKey::is_uri(Path::new(&uri)));
        let key = TokenKey::parse(&uri).expect("a URI");
        assert_eq!(key.model.as_deref(), Some("SoftHSM v2"));
        assert_eq!(key.manufacturer.as_deref(), Some("SoftHSM project"));
        assert_eq!((key.slot, key.id), (Some(17), Some(vec![2])));
    }

    #[test]
    fn refuses_invalid_uris() {
        for (uri, what) in [
            ("pkcs11:", "module-path"),
            ("pkcs11:object=a", "module-path"),
            ("pkcs11:token=a?module-path=/m.so", "names no key"),
            ("pkcs11:object=a?module-path=m.so", "absolute"),
            ("pkcs11:object=a;object=b?module-path=/m.so", "twice"),
            ("pkcs11:object?module-path=/m.so", "no value"),
            ("pkcs11:object=?module-path=/m.so", "not valid"),
            ("pkcs11:object=%1?module-path=/m.so", "not valid"),
            ("pkcs11:object=%00?module-path=/m.so", "not valid"),
            ("pkcs11:object=%ff?module-path=/m.so", "not text"),
            (
                "pkcs11:object=a;type=cert?module-path=/m.so",
                "not supported",
            ),
            (
                "pkcs11:library-version=1;object=a?module-path=/m.so",
                "not supported",
            ),
            (
                "pkcs11:slot-id=a;object=a?module-path=/m.so",
                "not a number",
            ),
            ("pkcs11:object=a?module-path=/m.so&pin-value=1", "PIN"),
            (
                "pkcs11:object=a?module-path=/m.so&pin-source=|ask",
                "absolute",
            ),
        ] {
            let (said, _) = TokenKey::parse(uri).expect_err(uri);
            assert!(said.contains(what), "{uri}: {said}");
        }
    }
}
