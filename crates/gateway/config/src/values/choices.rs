//! Options whose value is one of a few words.

use crate::mistakes::problem::ReadResult;
use crate::mistakes::words::unknown_word;
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, Listed, OptionType, wrong_type};
use crate::option::value::{RawData, RawValue};
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! choice {
    (
        $(#[doc = $doc:literal])*
        $name:ident, $what:literal, $kind:literal, $example:literal {
            $( $(#[doc = $variant_doc:literal])* $variant:ident = $word:literal, )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $( $(#[doc = $variant_doc])* $variant, )*
        }

        impl $name {
            /// Returns the word for it.
            pub fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $word, )* }
            }

            /// Every valid word, with its value.
            pub const WORDS: &'static [(&'static str, $name)] = &[$( ($word, $name::$variant) ),*];
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl OptionType for $name {
            const KIND: Kind = Kind::choice($kind, $example, &[$($word),*]);

            fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
                let number = match &raw.data {
                    RawData::Integer(Ok(number)) => number.to_string(),
                    // TLS versions look like numbers, so 1.3 is accepted as well as "1.3".
                    RawData::Float(text) => text.clone(),
                    _ => String::new(),
                };
                let text = match Self::KIND.choices.contains(&number.as_str()) {
                    true => &number,
                    false => raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?,
                };
                match text {
                    $( $word => Ok(Self::$variant), )*
                    _ => Err(unknown_word($what, text, Self::KIND.choices).into()),
                }
            }
        }
    };
}

choice! {
    /// A version of TLS.
    TlsVersion, "version of TLS", "\"1.2\" or \"1.3\"", "\"1.3\"" {
        /// TLS 1.2, RFC 5246, with AEAD suites only.
        Tls12 = "1.2",
        /// TLS 1.3, RFC 8446.
        Tls13 = "1.3",
    }
}

choice! {
    /// What happens at a start or reload to names in `to` that do not resolve.
    ResolveNames, "way to treat names", "\"required\" or \"lazy\"", "\"lazy\"" {
        /// The start is refused.
        Required = "required",
        /// The backend is down until its name resolves.
        Lazy = "lazy",
    }
}

choice! {
    /// What a reload does to established connections whose clients it would refuse.
    Recheck, "way to treat connections", "\"new\" or \"established\"", "\"established\"" {
        /// They continue: only new connections are checked.
        New = "new",
        /// They are closed, spread over a minute.
        Established = "established",
    }
}

choice! {
    /// What a connection that ends without close_notify does to the other side.
    Truncation, "way to handle truncation", "\"abort\" or \"close\"", "\"abort\"" {
        /// All received bytes are delivered, then the backend's connection is reset.
        Abort = "abort",
        /// The backend's connection ends as if the client had closed properly.
        Close = "close",
    }
}

choice! {
    /// What a client sees when none of its backends can be reached.
    BackendDown, "way to end a connection without a backend", "\"alert\", \"reset\" or \"close\"", "\"alert\"" {
        /// The fatal alert internal_error.
        Alert = "alert",
        /// A TCP reset without an alert.
        Reset = "reset",
        /// close_notify, like an empty answer.
        Close = "close",
    }
}

choice! {
    /// When a connection to a backend is made.
    ConnectTime, "time to connect to a backend", "\"at-once\" or \"first-data\"", "\"at-once\"" {
        /// After the client's handshake.
        AtOnce = "at-once",
        /// When the client sends its first data.
        FirstData = "first-data",
    }
}

choice! {
    /// Whether a server must staple an OCSP response.
    StapledOcsp, "demand for OCSP responses", "\"optional\" or \"required\"", "\"required\"" {
        /// It need not. A valid response that says that the certificate was revoked refuses it.
        Optional = "optional",
        /// A server without a valid response that says "good" is refused.
        Required = "required",
    }
}

choice! {
    /// Whether client certificates are requested.
    ClientAsk, "way to request client certificates", "\"none\", \"optional\" or \"required\"", "\"required\"" {
        /// Not requested.
        None = "none",
        /// Requested. A client may send none, but one that is sent must be valid.
        Optional = "optional",
        /// Requested. A client without one is refused.
        Required = "required",
    }
}

choice! {
    /// How to prove to an ACME server that a name is ours.
    AcmeChallenge, "challenge", "\"tls-alpn-01\", \"http-01\" or \"dns-01\"", "\"http-01\"" {
        /// By a certificate on the TLS port (RFC 8737).
        TlsAlpn01 = "tls-alpn-01",
        /// By a page on the port of plain HTTP (RFC 8555 §8.3).
        Http01 = "http-01",
        /// By a TXT record of DNS (RFC 8555 §8.4).
        Dns01 = "dns-01",
    }
}

choice! {
    /// The status of a redirect.
    RedirectStatus, "status of a redirect", "301 or 308", "308" {
        /// Moved Permanently.
        MovedPermanently = "301",
        /// Permanent Redirect.
        PermanentRedirect = "308",
    }
}

impl RedirectStatus {
    /// The number of the status.
    pub fn code(self) -> u16 {
        match self {
            RedirectStatus::MovedPermanently => 301,
            RedirectStatus::PermanentRedirect => 308,
        }
    }
}

choice! {
    /// Whether processes confine themselves to the system calls and files they need.
    Sandbox, "kind of sandbox", "\"on\", \"off\" or \"required\"", "\"required\"" {
        /// As far as the kernel supports it.
        On = "on",
        /// Not at all.
        Off = "off",
        /// Completely, or nothing is started.
        Required = "required",
    }
}

choice! {
    /// What clients get if no certificate matches the requested name.
    NameUnknown, "value of unknown_name", "\"default\", \"refuse\" or \"refuse-named\"", "\"refuse\"" {
        /// The first certificate.
        Default = "default",
        /// An alert.
        Refuse = "refuse",
        /// An alert, but the first certificate for clients that send no name.
        RefuseNamed = "refuse-named",
    }
}

choice! {
    /// The least severe level that is logged.
    LogLevel, "log level", "a log level", "\"info\"" {
        /// Nothing is logged.
        Off = "off",
        /// Something is broken.
        Error = "error",
        /// Something should be looked at.
        Warn = "warn",
        /// Something of interest in normal operation.
        Info = "info",
        /// Details that help to find a fault.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

choice! {
    /// What log lines look like.
    LogFormat, "log format", "\"text\" or \"json\"", "\"text\"" {
        /// For people.
        Text = "text",
        /// One object per line, for programs.
        Json = "json",
    }
}

choice! {
    /// Whether and how the client's address is sent to the backend.
    ProxyProtocol, "version of the PROXY protocol", "\"off\", \"v1\", \"v2\" or \"v2-certificate\"", "\"v2\"" {
        /// The backend sees this program's address.
        Off = "off",
        /// A line of text with the addresses.
        V1 = "v1",
        /// A binary header with the addresses and what TLS negotiated.
        V2 = "v2",
        /// The same with the client's certificate.
        V2Certificate = "v2-certificate",
    }
}

choice! {
    /// The protocol in which TLS is asked for.
    Starttls, "protocol of STARTTLS", "\"off\", \"smtp\", \"imap\", \"pop3\", \"xmpp\", \"ldap\" or \"postgres\"", "\"smtp\"" {
        /// Connections begin with TLS.
        Off = "off",
        /// SMTP (RFC 3207).
        Smtp = "smtp",
        /// IMAP (RFC 9051).
        Imap = "imap",
        /// POP3 (RFC 2595).
        Pop3 = "pop3",
        /// XMPP, of clients and of servers (RFC 6120 §5).
        Xmpp = "xmpp",
        /// LDAP (RFC 4511 §4.14).
        Ldap = "ldap",
        /// PostgreSQL's SSLRequest.
        Postgres = "postgres",
    }
}

impl Starttls {
    /// Returns whether a server of this protocol speaks first, also after the handshake of a port that begins with TLS.
    pub fn has_greeting(self) -> bool {
        match self {
            Self::Smtp | Self::Imap | Self::Pop3 => true,
            Self::Xmpp | Self::Ldap | Self::Postgres | Self::Off => false,
        }
    }
}

choice! {
    /// TLS settings that Mozilla recommends (version 5.7).
    TlsProfile, "profile", "\"modern\" or \"intermediate\"", "\"intermediate\"" {
        /// TLS 1.3 only.
        Modern = "modern",
        /// TLS 1.2 and 1.3.
        Intermediate = "intermediate",
    }
}

choice! {
    /// A cipher suite, under its IANA name.
    TlsSuite, "suite", "a suite", "\"TLS_AES_128_GCM_SHA256\"" {
        /// TLS 1.3, AES-128-GCM.
        Aes128Gcm = "TLS_AES_128_GCM_SHA256",
        /// TLS 1.3, AES-256-GCM.
        Aes256Gcm = "TLS_AES_256_GCM_SHA384",
        /// TLS 1.3, ChaCha20-Poly1305.
        Chacha20 = "TLS_CHACHA20_POLY1305_SHA256",
        /// TLS 1.2, ECDSA certificates, AES-128-GCM.
        EcdsaAes128Gcm = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        /// TLS 1.2, ECDSA certificates, AES-256-GCM.
        EcdsaAes256Gcm = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        /// TLS 1.2, ECDSA certificates, ChaCha20-Poly1305.
        EcdsaChacha20 = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        /// TLS 1.2, RSA certificates, AES-128-GCM.
        RsaAes128Gcm = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        /// TLS 1.2, RSA certificates, AES-256-GCM.
        RsaAes256Gcm = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        /// TLS 1.2, RSA certificates, ChaCha20-Poly1305.
        RsaChacha20 = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    }
}

impl Listed for TlsSuite {
    const KIND_OF_LIST: Kind = Kind {
        choices: Self::KIND.choices,
        ..Kind::new(
            "a list of suites",
            "[\"TLS_AES_128_GCM_SHA256\", \"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256\"]",
            "SUITE",
        )
    };
}

choice! {
    /// A key exchange group, under its IANA name.
    TlsGroup, "group", "a group", "\"x25519\"" {
        /// ML-KEM-768 and X25519 together.
        X25519MlKem768 = "X25519MLKEM768",
        /// X25519.
        X25519 = "x25519",
        /// NIST P-256.
        P256 = "secp256r1",
        /// NIST P-384.
        P384 = "secp384r1",
    }
}

impl Listed for TlsGroup {
    const KIND_OF_LIST: Kind = Kind {
        choices: Self::KIND.choices,
        ..Kind::new(
            "a list of groups",
            "[\"X25519MLKEM768\", \"x25519\"]",
            "GROUP",
        )
    };
}

choice! {
    /// How a route chooses a backend for a connection.
    Balance, "way to choose a backend", "a way to choose a backend", "\"least-connections\"" {
        /// In turn, by weight.
        RoundRobin = "round-robin",
        /// The backend with the fewest connections in relation to its weight.
        LeastConnections = "least-connections",
        /// The same backend for the same client address, while that backend is there.
        ClientHash = "client-hash",
        /// The same for the same server name (SNI).
        SniHash = "sni-hash",
        /// The same for the same client id of MQTT.
        MqttClientId = "mqtt-client-id",
    }
}

choice! {
    /// The facility of messages to syslog (RFC 5424 §6.2.1), by which syslog sorts them.
    SyslogFacility, "facility", "a facility", "\"daemon\" or \"local0\"" {
        /// Programs that users know.
        User = "user",
        /// System daemons.
        Daemon = "daemon",
        /// Security and authorization.
        Authpriv = "authpriv",
        /// For local use, as the following.
        Local0 = "local0",
        /// Local use 1.
        Local1 = "local1",
        /// Local use 2.
        Local2 = "local2",
        /// Local use 3.
        Local3 = "local3",
        /// Local use 4.
        Local4 = "local4",
        /// Local use 5.
        Local5 = "local5",
        /// Local use 6.
        Local6 = "local6",
        /// Local use 7.
        Local7 = "local7",
    }
}

impl TlsSuite {
    /// Returns whether the suite is for certificates with RSA keys, or else for those with others. `None`: it is for
    /// all, as every suite of TLS 1.3.
    pub fn is_for_rsa(self) -> Option<bool> {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm | Self::Chacha20 => None,
            Self::EcdsaAes128Gcm | Self::EcdsaAes256Gcm | Self::EcdsaChacha20 => Some(false),
            Self::RsaAes128Gcm | Self::RsaAes256Gcm | Self::RsaChacha20 => Some(true),
        }
    }

    /// Returns the TLS version of this suite.
    pub fn version(self) -> TlsVersion {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm | Self::Chacha20 => TlsVersion::Tls13,
            _ => TlsVersion::Tls12,
        }
    }
}
