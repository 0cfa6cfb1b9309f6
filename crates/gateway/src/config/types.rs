//! What the value of an option may be: the types, and how each is read.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::choices::unknown_word;
use super::raw::{Context, Node, Raw, Read, Wrong};
use super::units::{self, Refused};

/// A kind of value, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name with article: "a duration".
    pub name: &'static str,
    /// How it is written in the file.
    pub example: &'static str,
    /// The placeholder in `--help`.
    pub placeholder: &'static str,
    /// Every word it may be, if it is a choice.
    pub choices: &'static [&'static str],
    /// Whether it stands for itself in TOML (a number) rather than in quotes.
    pub bare: bool,
    /// Whether there may be several.
    pub list: bool,
}

impl Kind {
    pub(super) const fn new(
        name: &'static str,
        example: &'static str,
        placeholder: &'static str,
    ) -> Self {
        Self {
            name,
            example,
            placeholder,
            choices: &[],
            bare: false,
            list: false,
        }
    }

    pub(super) const fn choice(
        name: &'static str,
        example: &'static str,
        choices: &'static [&'static str],
    ) -> Self {
        Self {
            choices,
            ..Self::new(name, example, "CHOICE")
        }
    }
}

/// A type that an option may have.
pub(super) trait OptionType: Sized {
    /// How to speak of it.
    const KIND: Kind;

    /// Reads a value.
    fn read(raw: &Raw, context: &Context<'_>) -> Read<Self>;

    /// The number which a range is about, if there is one.
    fn measure(&self) -> Option<u64> {
        None
    }
}

pub(super) fn wrong_type<T: OptionType>(raw: &Raw) -> Vec<Wrong> {
    Wrong::wrong_type(raw, T::KIND.name, T::KIND.example).into()
}

// Numbers.

impl OptionType for u32 {
    const KIND: Kind = Kind {
        bare: true,
        ..Kind::new("a whole number", "4096", "N")
    };

    fn read(raw: &Raw, _: &Context<'_>) -> Read<Self> {
        let number = match &raw.node {
            Node::Integer(number) => number.clone().map_err(|text| text.starts_with('-')),
            Node::Word(text) => text.parse::<u64>().map_err(|_| text.starts_with('-')),
            _ => return Err(wrong_type::<Self>(raw)),
        };
        let too_large = || Wrong::new(format!("`{}` is too large a number", raw.text()));
        match number {
            Ok(number) => number.try_into().map_err(|_| too_large().into()),
            Err(true) => Err(Wrong::new(format!("`{}` is negative", raw.text()))
                .help("write a whole number that is not negative")
                .into()),
            Err(false)
                if raw.text().bytes().all(|b| b.is_ascii_digit()) && !raw.text().is_empty() =>
            {
                Err(too_large().into())
            }
            Err(false) => Err(
                Wrong::new(format!("`{}` is not a whole number", raw.text()))
                    .help(format!("write it like this: {}", Self::KIND.example))
                    .into(),
            ),
        }
    }

    fn measure(&self) -> Option<u64> {
        Some(u64::from(*self))
    }
}

impl OptionType for bool {
    const KIND: Kind = Kind {
        bare: true,
        ..Kind::new("true or false", "true", "true|false")
    };

    fn read(raw: &Raw, _: &Context<'_>) -> Read<Self> {
        match (&raw.node, raw.as_text()) {
            (Node::Boolean(value), _) => Ok(*value),
            (Node::Word(_), Some("true")) => Ok(true),
            (Node::Word(_), Some("false")) => Ok(false),
            _ => Err(wrong_type::<Self>(raw)),
        }
    }
}

/// A number, or whatever fits the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Count {
    /// What fits the machine.
    Auto,
    /// Exactly so many.
    Exactly(u32),
}

impl OptionType for Count {
    const KIND: Kind = Kind {
        bare: true,
        ..Kind::new("a whole number or \"auto\"", "4 or \"auto\"", "N|auto")
    };

    fn read(raw: &Raw, context: &Context<'_>) -> Read<Self> {
        match raw.as_text() {
            Some("auto") => Ok(Self::Auto),
            Some(text) if matches!(raw.node, Node::String(_)) => Err(Wrong::new(format!(
                "expected {}, found \"{}\"",
                Self::KIND.name,
                super::raw::shortened(text)
            ))
            .help("write a number without quotes, or \"auto\"")
            .into()),
            Some(text) if !text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                Err(Wrong::new(format!(
                    "`{}` is neither a whole number nor `auto`",
                    raw.text()
                ))
                .into())
            }
            Some(_) => u32::read(raw, context).map(Self::Exactly),
            None if matches!(raw.node, Node::Integer(_)) => {
                u32::read(raw, context).map(Self::Exactly)
            }
            None => Err(wrong_type::<Self>(raw)),
        }
    }

    fn measure(&self) -> Option<u64> {
        match self {
            Self::Auto => None,
            Self::Exactly(number) => Some(u64::from(*number)),
        }
    }
}

impl Count {
    /// The number; this one where it is left to the machine.
    pub fn or(self, auto: u32) -> u32 {
        match self {
            Self::Auto => auto,
            Self::Exactly(number) => number,
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Exactly(number) => number.fmt(f),
        }
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// The number as a length in memory.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&units::show_size(self.0))
    }
}

impl OptionType for ByteSize {
    const KIND: Kind = Kind::new("a size", "\"64 MiB\", \"64k\" or a number of bytes", "SIZE");

    fn read(raw: &Raw, _: &Context<'_>) -> Read<Self> {
        let refused = match (&raw.node, raw.as_text()) {
            (Node::Integer(Ok(bytes)), _) => return Ok(Self(*bytes)),
            (Node::Integer(Err(text)), _) if text.starts_with('-') => Refused::Negative,
            (Node::Integer(Err(_)), _) => Refused::TooLarge,
            (Node::Float(_), _) => Refused::Fraction,
            (_, Some(text)) => match units::size(text) {
                Ok(bytes) => return Ok(Self(bytes)),
                Err(refused) => refused,
            },
            _ => return Err(wrong_type::<Self>(raw)),
        };
        Err(quantity_wrong(
            raw,
            refused,
            "size",
            "\"512 KiB\", \"64 MiB\" or a number of bytes",
            "units are B, KiB, MiB, GiB and TiB; k, M, G and T for short: all by 1024",
        ))
    }

    fn measure(&self) -> Option<u64> {
        Some(self.0)
    }
}

impl OptionType for Duration {
    const KIND: Kind = Kind::new("a duration", "\"10s\", \"250ms\" or \"5m\"", "TIME");

    fn read(raw: &Raw, _: &Context<'_>) -> Read<Self> {
        let refused = match (&raw.node, raw.as_text()) {
            (Node::Integer(_), _) => Refused::NoUnit,
            (Node::Float(_), _) => Refused::Fraction,
            (_, Some(text)) => match units::duration(text) {
                Ok(duration) => return Ok(duration),
                Err(refused) => refused,
            },
            _ => return Err(wrong_type::<Self>(raw)),
        };
        Err(quantity_wrong(
            raw,
            refused,
            "duration",
            "\"10s\", \"250ms\" or \"5m\"",
            "units are ms, s, m, h and d",
        ))
    }

    fn measure(&self) -> Option<u64> {
        u64::try_from(self.as_millis()).ok()
    }
}

/// Says what is wrong with a size or a duration.
fn quantity_wrong(raw: &Raw, refused: Refused, what: &str, like: &str, units: &str) -> Vec<Wrong> {
    let text = raw.text();
    let (message, help) = match refused {
        Refused::NoNumber => (
            format!("`{text}` is not a {what}"),
            format!("write it like this: {like}"),
        ),
        Refused::NoUnit => (
            format!("`{text}` has no unit"),
            format!("write it with one, such as \"{text}s\"; {units}"),
        ),
        Refused::UnknownUnit => (format!("`{text}` has an unknown unit"), units.to_owned()),
        Refused::Fraction => (
            format!("`{text}` is a fraction"),
            format!("write a whole number of a smaller unit, such as {like}"),
        ),
        Refused::Negative => (
            format!("`{text}` is negative"),
            format!("write it like this: {like}"),
        ),
        Refused::TooLarge => (
            format!("`{text}` is larger than anything that makes sense"),
            units.to_owned(),
        ),
    };
    Wrong::new(message).help(help).into()
}

// Things which may be absent, and lists.

/// A type whose absence can be written.
pub(super) trait Absent: OptionType {
    /// The word for it.
    const WORD: &'static str;
    /// Its kind, with the absence.
    const KIND_OR_ABSENT: Kind;
}

impl Absent for Duration {
    const WORD: &'static str = "off";
    const KIND_OR_ABSENT: Kind = Kind::new(
        "a duration or \"off\"",
        "\"10s\", \"5m\" or \"off\"",
        "TIME|off",
    );
}

impl Absent for u32 {
    const WORD: &'static str = "off";
    const KIND_OR_ABSENT: Kind = Kind {
        bare: true,
        ..Kind::new("a whole number or \"off\"", "100 or \"off\"", "N|off")
    };
}

impl Absent for ByteSize {
    const WORD: &'static str = "off";
    const KIND_OR_ABSENT: Kind =
        Kind::new("a size or \"off\"", "\"512 MiB\" or \"off\"", "SIZE|off");
}

impl Absent for PathBuf {
    const WORD: &'static str = "off";
    const KIND_OR_ABSENT: Kind = Kind::new(
        "a path or \"off\"",
        "\"/etc/dormouse/example.pem\" or \"off\"",
        "PATH|off",
    );
}

impl Absent for String {
    const WORD: &'static str = "none";
    const KIND_OR_ABSENT: Kind = Kind::new("a string", "\"localhost\"", "NAME");
}

impl<T: Absent> OptionType for Option<T> {
    const KIND: Kind = T::KIND_OR_ABSENT;

    fn read(raw: &Raw, context: &Context<'_>) -> Read<Self> {
        match raw.as_text() {
            Some(text) if text == T::WORD => Ok(None),
            _ => T::read(raw, context).map(Some).map_err(|mut wrongs| {
                for wrong in &mut wrongs {
                    if wrong.what.starts_with("expected ") {
                        wrong.what = format!("expected {}, found {}", Self::KIND.name, raw.kind());
                        wrong.help = Some(format!("write it like this: {}", Self::KIND.example));
                    }
                }
                wrongs
            }),
        }
    }

    fn measure(&self) -> Option<u64> {
        self.as_ref().and_then(OptionType::measure)
    }
}

/// Items of a list, routes of a file, listeners of all routes: no more of each than this.
pub(super) const ITEMS_MAX: usize = 1000;

/// A type of which there may be a list.
pub(super) trait Listed: OptionType {
    /// The kind of the list.
    const KIND_OF_LIST: Kind;

    /// Reads one item, which may stand for several values.
    fn read_item(raw: &Raw, context: &Context<'_>) -> Read<Vec<Self>> {
        Self::read(raw, context).map(|value| vec![value])
    }
}

impl<T: Listed> OptionType for Vec<T> {
    const KIND: Kind = Kind {
        list: true,
        ..T::KIND_OF_LIST
    };

    fn read(raw: &Raw, context: &Context<'_>) -> Read<Self> {
        let items = match &raw.node {
            Node::List(items) => items.as_slice(),
            Node::Word(text) if text.is_empty() => &[],
            // One needs no brackets.
            Node::Word(_) | Node::String(_) | Node::Table(_) => std::slice::from_ref(raw),
            _ => return Err(wrong_type::<Self>(raw)),
        };
        if items.len() > ITEMS_MAX {
            let wrong = Wrong::new(format!("this list has {} items", items.len()));
            return Err(wrong.label(format!("at most {ITEMS_MAX}")).into());
        }
        let mut values = Vec::with_capacity(items.len());
        let mut wrongs = Vec::new();
        for item in items {
            match T::read_item(item, context) {
                Ok(read) => values.extend(read),
                Err(found) => wrongs.extend(found.into_iter().map(|wrong| wrong.at(&item.place))),
            }
        }
        if wrongs.is_empty() {
            Ok(values)
        } else {
            Err(wrongs)
        }
    }
}

// Texts.

impl OptionType for String {
    const KIND: Kind = Kind::new("a string", "\"localhost\"", "NAME");

    fn read(raw: &Raw, _: &Context<'_>) -> Read<Self> {
        match raw.as_text() {
            Some("") => Err(Wrong::new("this is empty").into()),
            Some(text) if text.len() > 255 => {
                Err(Wrong::new(format!("this is {} bytes long", text.len()))
                    .label("at most 255 bytes")
                    .into())
            }
            Some(text) if text.contains(|c: char| c.is_control() || !c.is_ascii()) => {
                Err(Wrong::new(format!(
                    "`{}` has characters which do not belong there",
                    raw.text()
                ))
                .help("only visible ASCII characters; write international names in their xn-- form")
                .into())
            }
            Some(text) => Ok(text.to_owned()),
            None => Err(wrong_type::<Self>(raw)),
        }
    }
}

impl Listed for String {
    const KIND_OF_LIST: Kind = Kind::new("a list of strings", "[\"h2\", \"http/1.1\"]", "NAME");
}

impl OptionType for PathBuf {
    const KIND: Kind = Kind::new("a path", "\"site.pem\"", "PATH");

    fn read(raw: &Raw, context: &Context<'_>) -> Read<Self> {
        match raw.as_text() {
            Some("") => Err(Wrong::new("this path is empty").into()),
            Some(text) if text.contains('\0') => {
                Err(Wrong::new("this path has a zero byte, which no path may have").into())
            }
            Some(text) => Ok(context.path(text)),
            None => Err(wrong_type::<Self>(raw)),
        }
    }
}

impl Listed for PathBuf {
    const KIND_OF_LIST: Kind = Kind::new("a list of paths", "[\"revoked.pem\"]", "PATH");
}

/// A certificate chain and its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateFiles {
    /// The PEM file with the chain, leaf first; or a directory of many.
    pub cert: PathBuf,
    /// The PEM file with the private key; the same as `cert` if that has both, or is a directory.
    pub key: PathBuf,
    /// The file with an OCSP response, DER.
    #[serde(default)]
    pub ocsp: Option<PathBuf>,
}

impl CertificateFiles {
    /// A file that has both, or a directory.
    fn whole(path: PathBuf) -> Self {
        Self {
            cert: path.clone(),
            key: path,
            ocsp: None,
        }
    }
}

impl OptionType for CertificateFiles {
    const KIND: Kind = Kind::new(
        "a certificate with its key",
        "{ cert = \"site.pem\", key = \"site.key\" }",
        "FILE",
    );

    fn read(raw: &Raw, context: &Context<'_>) -> Read<Self> {
        if let Node::String(_) = raw.node {
            return PathBuf::read(raw, context).map(Self::whole);
        }
        let Node::Table(entries) = &raw.node else {
            return Err(wrong_type::<Self>(raw));
        };
        let mut wrongs = Vec::new();
        let (mut cert, mut key, mut ocsp) = (None, None, None);
        for (name, value) in entries {
            let slot = match name.name.as_str() {
                "cert" => &mut cert,
                "key" => &mut key,
                "ocsp" => &mut ocsp,
                other => {
                    let known = ["cert", "key", "ocsp"];
                    wrongs.push(unknown_word("key", other, &known).at(&name.place));
                    continue;
                }
            };
            match PathBuf::read(value, context) {
                Ok(path) => *slot = Some(path),
                Err(found) => {
                    // It is there, if wrong: do not say that it is missing too.
                    *slot = Some(PathBuf::new());
                    wrongs.extend(found.into_iter().map(|wrong| wrong.at(&value.place)));
                }
            }
        }
        // With an unknown key beside it, the name was misspelt.
        let misspelt = entries
            .iter()
            .any(|(name, _)| !["cert", "key", "ocsp"].contains(&name.name.as_str()));
        for (name, slot) in [("cert", &cert), ("key", &key)] {
            if slot.is_none() && !misspelt {
                wrongs.push(
                    Wrong::new(format!("a certificate needs `{name}` too"))
                        .label(format!("`{name}` is missing"))
                        .help(format!("write it like this: {}", Self::KIND.example))
                        .at(&raw.place),
                );
            }
        }
        match (cert, key) {
            (Some(cert), Some(key)) if wrongs.is_empty() => Ok(Self { cert, key, ocsp }),
            _ => Err(wrongs),
        }
    }
}

impl Listed for CertificateFiles {
    const KIND_OF_LIST: Kind = Kind::new(
        "a list of certificates",
        "[{ cert = \"site.pem\", key = \"site.key\" }]",
        "FILE",
    );
}

// Addresses: how they are read stands in `address.rs`.

/// An address that is listened on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listen {
    /// The address.
    pub address: SocketAddr,
    /// As it was written.
    pub given: String,
}

/// An address on which plaintext is taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlainListen {
    /// A TCP address.
    Tcp(Listen),
    /// A unix socket.
    Unix(PathBuf),
}

/// A TLS server to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its addresses, in the order in which they are tried; at least one.
    pub addresses: Vec<SocketAddr>,
    /// Its name, or address, without the port.
    pub host: String,
    /// As it was written.
    pub given: String,
}

/// Whom a client trusts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ca {
    /// Whom the operating system trusts.
    System,
    /// The authorities in this PEM file.
    File(PathBuf),
}

impl OptionType for Ca {
    const KIND: Kind = Kind::new(
        "a path or \"system\"",
        "\"authority.pem\" or \"system\"",
        "FILE|system",
    );

    fn read(raw: &Raw, context: &Context<'_>) -> Read<Self> {
        match raw.as_text() {
            Some("system") => Ok(Self::System),
            _ => PathBuf::read(raw, context).map(Self::File),
        }
    }
}

impl fmt::Display for PlainListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(listen) => listen.fmt(f),
            Self::Unix(path) => f.pad(&format!("unix:{}", path.display())),
        }
    }
}

impl fmt::Display for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.pad("system"),
            Self::File(path) => f.pad(&path.display().to_string()),
        }
    }
}

/// Where plaintext goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backend {
    /// To a TCP server.
    Tcp {
        /// Its address; of a name the first one.
        address: SocketAddr,
        /// As it was written.
        given: String,
        /// The other addresses of a name.
        #[serde(default)]
        more: Vec<SocketAddr>,
    },
    /// To a server on a unix socket.
    Unix(PathBuf),
    /// Back to where it came from.
    Echo,
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.address.to_string())
    }
}

impl Backend {
    /// Its addresses: a name has one or more.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let all = match self {
            Self::Tcp { address, more, .. } => Some((address, more)),
            Self::Unix(_) | Self::Echo => None,
        };
        all.into_iter()
            .flat_map(|(first, more)| std::iter::once(first).chain(more))
            .copied()
    }

    /// The host and port to look up, if it was given as a name.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Tcp { given, .. } if given.parse::<SocketAddr>().is_err() => Some(given),
            _ => None,
        }
    }

    /// A name has these addresses now, one at least. True: they are others than before.
    pub(crate) fn set_addresses(&mut self, found: &[SocketAddr]) -> bool {
        let (Some(&first), false) = (found.first(), self.addresses().eq(found.iter().copied()))
        else {
            return false;
        };
        if let Self::Tcp { address, more, .. } = self {
            *address = first;
            *more = found.get(1..).unwrap_or_default().to_vec();
        }
        true
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { address, .. } => f.pad(&address.to_string()),
            Self::Unix(path) => f.pad(&format!("unix:{}", path.display())),
            Self::Echo => f.pad("echo:"),
        }
    }
}
