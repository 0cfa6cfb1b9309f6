//! TSIG (RFC 8945): a secret that a DNS server shares with us authenticates our messages and its responses.

use base64::prelude::*;
use domain::base::iana::{Class, TsigRcode};
use domain::base::message_builder::AdditionalBuilder;
use domain::base::wire::ParseError;
use domain::base::{Message, Name, ParsedName, ToName, Ttl};
use domain::rdata::tsig::{Time48, Tsig};
use dormouse_engine::{HmacHash, HmacKey};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

/// Clock difference that we ask the server to accept, and accept ourselves (RFC 8945 §10), in seconds.
const FUDGE_S: u16 = 300;
/// Minimum length of a secret, in bytes: a shorter one can be guessed.
const SECRET_MIN: usize = 16;
/// Maximum length of a key file.
pub const KEY_FILE_MAX: u64 = 16 << 10;

/// A key, as a BIND key file has it.
#[derive(Clone, Serialize, Deserialize)]
pub struct TsigKey {
    /// Its name, which is a domain name in lower case.
    pub name: String,
    /// `hmac-sha256`, `hmac-sha384` or `hmac-sha512`.
    algorithm: String,
    /// Base64.
    secret: String,
}

impl Drop for TsigKey {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl TsigKey {
    /// Parses a key file of BIND, as `tsig-keygen` writes it: `key "NAME" { algorithm hmac-sha256; secret "…"; };`. The
    /// error says what is wrong.
    pub fn parse(text: &str) -> Result<TsigKey, String> {
        const FORM: &str = "a key looks like this: key \"NAME\" { algorithm hmac-sha256; secret \"BASE64\"; }; (tsig-keygen writes one)";
        let words = words(text)?;
        let mut words = words.iter().map(String::as_str);
        let mut next = || words.next().ok_or(FORM.to_owned());
        if next()? != "key" {
            return Err(FORM.to_owned());
        }
        let name = next()?.trim_end_matches('.').to_ascii_lowercase();
        if next()? != "{" {
            return Err(FORM.to_owned());
        }
        let (mut algorithm, mut secret) = (None, None);
        loop {
            let place = match next()? {
                "}" => break,
                "algorithm" => &mut algorithm,
                "secret" => &mut secret,
                _ => return Err(FORM.to_owned()),
            };
            let value = next()?.to_owned();
            if place.replace(value).is_some() || next()? != ";" {
                return Err(FORM.to_owned());
            }
        }
        if words.any(|word| word != ";") {
            return Err("the file has more than one key; leave only one".to_owned());
        }
        let algorithm = algorithm.ok_or(FORM)?.to_ascii_lowercase();
        let key = TsigKey {
            name,
            algorithm: algorithm.trim_end_matches('.').to_owned(),
            secret: secret.ok_or(FORM)?,
        };
        key.parsed()?;
        Ok(key)
    }

    /// Parses the parts, of which each mistake has its own error.
    fn parsed(&self) -> Result<ParsedKey, String> {
        let hash = match self.algorithm.as_str() {
            "hmac-sha256" => HmacHash::Sha256,
            "hmac-sha384" => HmacHash::Sha384,
            "hmac-sha512" => HmacHash::Sha512,
            other => {
                let shown = dormouse_printable::line_up_to(other, 40);
                return Err(format!(
                    "the algorithm `{shown}` is not supported; make a key with hmac-sha256: tsig-keygen NAME"
                ));
            }
        };
        let name: Result<Name<Vec<u8>>, _> = self.name.parse();
        let name = name.ok().filter(|name| !name.is_root());
        let secret = Zeroizing::new(BASE64_STANDARD.decode(&self.secret).unwrap_or_default());
        if secret.len() < SECRET_MIN {
            return Err(format!(
                "the secret is not base64 of at least {SECRET_MIN} bytes; make one with tsig-keygen"
            ));
        }
        Ok(ParsedKey {
            name: name.ok_or("the name of the key is not a domain name")?,
            algorithm: self.algorithm.parse().map_err(|_| "no algorithm")?,
            key: HmacKey::new(hash, &secret),
        })
    }
}

/// Words, texts in quotes, and the signs `{`, `}` and `;`, without comments.
fn words(text: &str) -> Result<Zeroizing<Vec<String>>, String> {
    let mut words = Zeroizing::new(Vec::new());
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let comment_end = if rest.starts_with('#') || rest.starts_with("//") {
            Some(rest.find('\n').unwrap_or(rest.len()))
        } else if let Some(comment) = rest.strip_prefix("/*") {
            let end = comment.find("*/").ok_or("a comment is not closed")?;
            Some(end + 4)
        } else {
            None
        };
        let len = match (comment_end, rest.chars().next()) {
            (Some(end), _) => end,
            (None, None) => return Ok(words),
            (None, Some('"')) => {
                let quoted = rest.get(1..).unwrap_or_default();
                let end = quoted.find('"').ok_or("a text in quotes is not closed")?;
                words.push(quoted.get(..end).unwrap_or_default().to_owned());
                end + 2
            }
            (None, Some(sign @ ('{' | '}' | ';'))) => {
                words.push(sign.to_string());
                1
            }
            (None, Some(_)) => {
                let is_end = |c: char| c.is_whitespace() || "{};\"#".contains(c);
                let end = rest.find(is_end).unwrap_or(rest.len());
                words.push(rest.get(..end).unwrap_or_default().to_owned());
                end
            }
        };
        rest = rest.get(len..).unwrap_or_default();
    }
}

struct ParsedKey {
    name: Name<Vec<u8>>,
    algorithm: Name<Vec<u8>>,
    key: HmacKey,
}

/// Signs a message and verifies its response.
pub(super) struct Transaction {
    key: ParsedKey,
    /// The request's own code, which the response's code includes.
    code: Vec<u8>,
}

/// Why a response is not authentic.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unauthentic {
    /// It has no valid TSIG record at its end.
    Unsigned,
    /// The server refuses our key or our signature; its name for the reason.
    Refused(TsigRcode),
    /// It is signed by another key, or it was changed.
    BadSignature,
    /// It was signed at another time.
    BadTime,
}

impl Transaction {
    /// Adds the TSIG record to a message.
    pub(super) fn sign(
        key: &TsigKey,
        message: &mut AdditionalBuilder<Vec<u8>>,
        now_s: u64,
    ) -> Result<Transaction, String> {
        let key = key.parsed()?;
        let id = message.header().id();
        let time = Time48::from_u64(now_s);
        let variables = key.variables(time, FUDGE_S, TsigRcode::NOERROR, &[]);
        let code = key.key.sign(&[message.as_slice(), &variables]);
        let record = Tsig::new(
            key.algorithm.clone(),
            time,
            FUDGE_S,
            code.clone(),
            id,
            TsigRcode::NOERROR,
            Vec::new(),
        );
        let record = record.map_err(|error| error.to_string())?;
        let record = (key.name.clone(), Class::ANY, Ttl::ZERO, record);
        message.push(record).map_err(|error| error.to_string())?;
        Ok(Transaction { key, code })
    }

    /// Verifies the response.
    pub(super) fn verify(&self, response: &[u8], now_s: u64) -> Result<(), Unauthentic> {
        let (begins_at, tsig) = last_record(response)
            .ok()
            .flatten()
            .ok_or(Unauthentic::Unsigned)?;
        if tsig.error != TsigRcode::NOERROR && tsig.code.is_empty() {
            return Err(Unauthentic::Refused(tsig.error));
        }
        let mut unsigned = response.get(..begins_at).unwrap_or_default().to_vec();
        // The message as it was before the record was added (RFC 8945 §5.3.2): its id, and one record less.
        if let Some(id) = unsigned.get_mut(..2) {
            id.copy_from_slice(&tsig.original_id.to_be_bytes());
        }
        if let Some(count) = unsigned.get_mut(10..12)
            && let Ok(&former) = <&[u8; 2]>::try_from(&*count)
        {
            let former = u16::from_be_bytes(former).saturating_sub(1);
            count.copy_from_slice(&former.to_be_bytes());
        }
        let code_len = u16::try_from(self.code.len()).unwrap_or(u16::MAX);
        let variables = self
            .key
            .variables(tsig.time, tsig.fudge_s, tsig.error, &tsig.other);
        let parts: [&[u8]; 4] = [&code_len.to_be_bytes(), &self.code, &unsigned, &variables];
        let is_of_key = tsig.name == self.key.name && tsig.algorithm == self.key.algorithm;
        if !is_of_key || !self.key.key.verify(&parts, &tsig.code) {
            return Err(Unauthentic::BadSignature);
        }
        if tsig.error != TsigRcode::NOERROR {
            return Err(Unauthentic::Refused(tsig.error));
        }
        match u64::from(tsig.time).abs_diff(now_s) <= u64::from(FUDGE_S) {
            true => Ok(()),
            false => Err(Unauthentic::BadTime),
        }
    }
}

impl ParsedKey {
    /// The variables that a code includes besides the message (RFC 8945 §4.3.3).
    fn variables(&self, time: Time48, fudge_s: u16, error: TsigRcode, other: &[u8]) -> Vec<u8> {
        let other_len = u16::try_from(other.len()).unwrap_or(u16::MAX);
        [
            self.name.as_slice(),
            &Class::ANY.to_int().to_be_bytes(),
            &0_u32.to_be_bytes(),
            self.algorithm.as_slice(),
            &time.into_octets(),
            &fudge_s.to_be_bytes(),
            &error.to_int().to_be_bytes(),
            &other_len.to_be_bytes(),
            other,
        ]
        .concat()
    }
}

/// The TSIG record of a response.
struct Signed {
    name: Name<Vec<u8>>,
    algorithm: Name<Vec<u8>>,
    time: Time48,
    /// The difference of the clocks that the server accepts.
    fudge_s: u16,
    code: Vec<u8>,
    original_id: u16,
    error: TsigRcode,
    other: Vec<u8>,
}

/// Returns the last record of a message, if it is a TSIG record, and where it begins.
fn last_record(message: &[u8]) -> Result<Option<(usize, Signed)>, ParseError> {
    let message = Message::from_octets(message).map_err(|_| ParseError::ShortInput)?;
    let mut section = message.additional()?;
    let mut last = None;
    loop {
        let begins_at = section.pos();
        match section.next() {
            Some(record) => last = Some((begins_at, record?)),
            None => break,
        }
    }
    let Some((begins_at, record)) = last.filter(|_| section.pos() == message.as_slice().len())
    else {
        return Ok(None);
    };
    let name = canonical(&record.owner())?;
    let is_any = record.class() == Class::ANY && record.ttl() == Ttl::ZERO;
    let Some(record) = record.to_record::<Tsig<&[u8], ParsedName<&[u8]>>>()? else {
        return Ok(None);
    };
    let tsig = record.data();
    Ok(is_any.then_some((
        begins_at,
        Signed {
            name,
            algorithm: canonical(tsig.algorithm())?,
            time: tsig.time_signed(),
            fudge_s: tsig.fudge(),
            code: tsig.mac().to_vec(),
            original_id: tsig.original_id(),
            error: tsig.error(),
            other: tsig.other().to_vec(),
        },
    )))
}

/// A name in lower case, without compression (RFC 8945 §4.3.3).
fn canonical(name: &impl ToName) -> Result<Name<Vec<u8>>, ParseError> {
    let name: Name<Vec<u8>> = name.to_name();
    Name::from_octets(name.as_slice().to_ascii_lowercase()).map_err(|_| ParseError::ShortInput)
}

/// Parses a response without a key that could have signed it, for `fuzz/`.
pub(crate) fn judge_without_key(response: &[u8]) {
    let zeros = |hash| HmacKey::new(hash, &[0; SECRET_MIN]);
    let key = ParsedKey {
        name: Name::root_vec(),
        algorithm: Name::root_vec(),
        key: zeros(HmacHash::Sha256),
    };
    let code = vec![0; 32];
    let transaction = Transaction { key, code };
    assert!(transaction.verify(response, 0).is_err());
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::base::iana::Rcode;
    use domain::base::{MessageBuilder, Rtype};

    const SECRET: &str = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0cw==";

    fn key() -> TsigKey {
        let text = format!(
            "# made today\nkey \"Acme.\" {{\n\talgorithm hmac-sha256;\n\tsecret \"{SECRET}\";\n}};\n"
        );
        TsigKey::parse(&text).expect("a key")
    }

    #[test]
    fn a_key_file_is_read_as_bind_reads_it() {
        assert_eq!(key().name, "acme");
        let one_line = format!("key a.b {{secret {SECRET}; algorithm HMAC-SHA512;}};");
        assert_eq!(
            TsigKey::parse(&one_line).expect("a key").algorithm,
            "hmac-sha512"
        );
        let commented = format!("/* {{ */ {one_line} // end");
        assert!(TsigKey::parse(&commented).is_ok());
        for (text, why) in [
            ("", "a key looks like this"),
            ("secret", "a key looks like this"),
            ("key a { algorithm hmac-sha256; };", "a key looks like this"),
            ("key \"a", "not closed"),
            ("/* key", "not closed"),
            (
                "key a { algorithm hmac-md5; secret \"YWFhYWFhYWFhYWFhYWFhYQ==\"; };",
                "hmac-md5",
            ),
            (
                "key a { algorithm hmac-sha256; secret \"YWFh\"; };",
                "at least 16 bytes",
            ),
            (
                "key a..b { algorithm hmac-sha256; secret \"YWFhYWFhYWFhYWFhYWFhYQ==\"; };",
                "domain name",
            ),
            ("key a { secret x; secret y; };", "a key looks like this"),
            (&format!("{one_line} {one_line}"), "more than one key"),
        ] {
            let refused = TsigKey::parse(text).err().expect("a mistake");
            assert!(refused.contains(why), "{text}: {refused}");
            assert!(!refused.contains(SECRET), "{refused}");
        }
    }

    /// A response that the other side of the key signs.
    fn response(transaction: &Transaction, key: &TsigKey, now_s: u64, fudge_s: u16) -> Vec<u8> {
        let key = key.parsed().expect("a key");
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_id(7);
        builder.header_mut().set_qr(true);
        builder.header_mut().set_rcode(Rcode::NOERROR);
        let mut message = builder.additional();
        let time = Time48::from_u64(now_s);
        let variables = key.variables(time, fudge_s, TsigRcode::NOERROR, &[]);
        let len = (transaction.code.len() as u16).to_be_bytes();
        let code = key
            .key
            .sign(&[&len, &transaction.code, message.as_slice(), &variables]);
        let tsig = Tsig::new(
            key.algorithm,
            time,
            fudge_s,
            code,
            7,
            TsigRcode::NOERROR,
            Vec::new(),
        );
        let record = (key.name, Class::ANY, Ttl::ZERO, tsig.expect("short"));
        message.push(record).expect("room");
        message.finish()
    }

    #[test]
    fn only_the_holder_of_the_key_can_answer_and_only_now() {
        let mut builder = MessageBuilder::new_vec().question();
        let name: Name<Vec<u8>> = "example.com".parse().expect("a name");
        builder.push((name, Rtype::SOA)).expect("room");
        let mut message = builder.additional();
        let transaction = Transaction::sign(&key(), &mut message, 1_000_000).expect("signed");
        let answer = response(&transaction, &key(), 1_000_000, FUDGE_S);
        assert_eq!(transaction.verify(&answer, 1_000_000), Ok(()));
        assert_eq!(transaction.verify(&answer, 1_000_300), Ok(()));
        assert_eq!(
            transaction.verify(&answer, 1_000_301),
            Err(Unauthentic::BadTime)
        );
        for at in 0..answer.len() {
            let mut changed = answer.clone();
            changed[at] ^= 1;
            // The id is that of the transport; the message's own is in the record.
            let is_id = at < 2;
            assert_eq!(
                transaction.verify(&changed, 1_000_000).is_ok(),
                is_id,
                "byte {at}"
            );
            assert!(transaction.verify(&answer[..at], 1_000_000).is_err());
        }
        // A server may accept another difference. Ours counts.
        let lenient = response(&transaction, &key(), 1_000_000, 36_000);
        assert_eq!(transaction.verify(&lenient, 1_000_000), Ok(()));
        assert_eq!(
            transaction.verify(&lenient, 1_000_301),
            Err(Unauthentic::BadTime)
        );
        let mut longer = answer.clone();
        longer.push(0);
        assert_eq!(
            transaction.verify(&longer, 1_000_000),
            Err(Unauthentic::Unsigned)
        );
        let other = SECRET.replace("c2Vj", "AAAA");
        let other = format!("key acme {{ algorithm hmac-sha256; secret \"{other}\"; }};");
        let other = TsigKey::parse(&other).expect("a key");
        let forged = response(&transaction, &other, 1_000_000, FUDGE_S);
        assert_eq!(
            transaction.verify(&forged, 1_000_000),
            Err(Unauthentic::BadSignature)
        );
    }
}
