//! The option `ticket_keys`: where ticket keys come from.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, Listed, OptionType, wrong_type};
use crate::option::value::RawValue;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use zeroize::Zeroize;

const REDIS_PORT: u16 = 6379;

/// Where ticket keys come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeySource {
    /// Generated at startup.
    Memory,
    /// A file in Dormouse's format, or in that of nginx or HAProxy.
    File(PathBuf),
    /// Redis or Valkey.
    Store(StoreAddress),
}

/// How to reach a store.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreAddress {
    /// Its host name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whether it speaks TLS.
    pub tls: bool,
    /// The number of the database.
    pub database: u32,
    /// The user to log in as.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

impl StoreAddress {
    /// Reads what follows the scheme: `[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`.
    fn read(tls: bool, rest: &str) -> Result<StoreAddress, &'static str> {
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        let (address, database) = place.split_once('/').unwrap_or((place, "0"));
        let database = match database {
            "" => 0,
            number => number
                .parse()
                .map_err(|_| "the text after the slash is not a database number")?,
        };
        let (host, port) = match address.strip_prefix('[') {
            Some(v6) => {
                let (host, rest) = v6.split_once(']').ok_or("the bracket is not closed")?;
                match rest.strip_prefix(':') {
                    None if !rest.is_empty() => return Err("a colon is missing after the bracket"),
                    port => (host, port),
                }
            }
            None => match address.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (address, None),
            },
        };
        if host.is_empty() {
            return Err("there is no host");
        }
        let port = match port {
            None => REDIS_PORT,
            Some(port) => match port.parse() {
                Ok(0) | Err(_) => return Err("the port is not a number from 1 to 65535"),
                Ok(port) => port,
            },
        };
        let (user, password) = match login {
            None => (None, None),
            Some(login) => match login.split_once(':') {
                Some((user, password)) => {
                    let user = (!user.is_empty()).then(|| unescape(user)).transpose()?;
                    (user, Some(unescape(password)?))
                }
                None => return Err("a password is written as :PASSWORD@ or USER:PASSWORD@"),
            },
        };
        Ok(StoreAddress {
            host: host.to_owned(),
            port,
            tls,
            database,
            user,
            password,
        })
    }
}

/// `%40` is `@`, as in every URL (RFC 3986 §2.1).
fn unescape(text: &str) -> Result<String, &'static str> {
    const WRONG: &str = "a % is not followed by two hexadecimal digits";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let (high, low) = (digit(rest.next()), digit(rest.next()));
        match (high, low) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return Err(WRONG),
        }
    }
    String::from_utf8(bytes).map_err(|_| WRONG)
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let host = &self.host;
        let (open, close) = if host.contains(':') {
            ("[", "]")
        } else {
            ("", "")
        };
        write!(f, "{scheme}://{open}{host}{close}:{}", self.port)?;
        match self.database {
            0 => Ok(()),
            database => write!(f, "/{database}"),
        }
    }
}

/// Shows the address without its password.
impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Drop for StoreAddress {
    fn drop(&mut self) {
        self.password.zeroize();
    }
}

impl OptionType for KeySource {
    const KIND: Kind = Kind::new(
        "a source of ticket keys",
        "\"memory\", \"file:tickets.keys\" or \"redis://10.0.0.1:6379\"",
        "SOURCE",
    );

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        let Some(text) = raw.as_text() else {
            return Err(wrong_type::<Self>(raw));
        };
        let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
        match (scheme, rest.strip_prefix("//")) {
            ("memory", _) if rest.is_empty() => Ok(Self::Memory),
            ("file", None) if !rest.is_empty() => Ok(Self::File(context.path(rest))),
            ("file", Some(path)) if path.starts_with('/') => Ok(Self::File(path.into())),
            ("redis" | "rediss" | "valkey" | "valkeys", Some(place)) => {
                StoreAddress::read(scheme.ends_with("ss") || scheme == "valkeys", place)
                    .map(Self::Store)
                    .map_err(|why| {
                        Problem::new(format!("this store address is not valid: {why}"))
                            .help("write it like this: redis://USER:PASSWORD@HOST:PORT")
                            .into()
                    })
            }
            _ => Err(Problem::new("this is not a source of ticket keys")
                .help("write \"memory\", \"file:PATH\", \"redis://HOST:PORT\" or \"rediss://HOST:PORT\"")
                .into()),
        }
    }
}

impl Listed for KeySource {
    const KIND_OF_LIST: Kind = Kind::new(
        "a source of ticket keys, or a list of files",
        "\"file:tickets.keys\"",
        "SOURCE",
    );
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Store(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<KeySource, String> {
        KeySource::read(&RawValue::builtin(text), &ReadContext::NONE).map_err(|problems| {
            problems
                .first()
                .map_or_else(String::new, |w| w.what.clone())
        })
    }

    #[test]
    fn reads_sources() {
        assert_eq!(read("memory"), Ok(KeySource::Memory));
        assert_eq!(read("file:/a/b"), Ok(KeySource::File("/a/b".into())));
        assert_eq!(read("file:///a/b"), Ok(KeySource::File("/a/b".into())));
        let Ok(KeySource::Store(store)) = read("rediss://me:p%40ss@[::1]:7000/3") else {
            panic!("a store");
        };
        assert_eq!(
            (store.host.as_str(), store.port, store.tls),
            ("::1", 7000, true)
        );
        assert_eq!(store.database, 3);
        assert_eq!(store.user.as_deref(), Some("me"));
        assert_eq!(store.password.as_deref(), Some("p@ss"));
        assert_eq!(store.to_string(), "rediss://[::1]:7000/3");
        assert!(!format!("{store:?}").contains("p@ss"));
        let Ok(KeySource::Store(store)) = read("valkey://:pw@cache") else {
            panic!("a store");
        };
        assert_eq!(
            (store.port, store.tls, store.user.is_none()),
            (6379, false, true)
        );
    }

    #[test]
    fn refuses_invalid_sources() {
        for text in [
            "",
            "mem",
            "file:",
            "redis:",
            "redis://",
            "redis://h:0",
            "redis://h:x",
            "redis://pw@h",
            "redis://:p%4@h",
            "redis://h/x",
            "redis://[::1]7000",
            "redis://[::1]x:7000",
            "http://h",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
