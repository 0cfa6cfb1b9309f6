//! Lists of connections, and orders to close some of them.
//!
//! A list is a series of *pages*. Control passes each [`PageOrder`] to main, main passes it to one worker, and the
//! worker's [`Page`] goes back the same way, with the place at which the next page begins. So nobody keeps the state of a
//! list: a worker looks at a bounded number of slots per order, every message is bounded, and a page that was lost is
//! ordered again, also from the next worker or the next binary.
//!
//! Only the facts of a [`ConnectionRow`] leave a worker, never a slot.

use crate::ages::AgeFigures;
use crate::fingerprint::ShortFingerprint;
use dormouse_config::Network;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Maximum number of connections on a page.
pub const ROWS_MAX: usize = 128;
/// Maximum number of connections that one order closes.
pub const CLOSED_MAX: u32 = 64;
/// Maximum number of slots that a worker looks at for a page, and so of groups on it.
pub const SLOTS_PER_PAGE: usize = 1024;

/// Which connections: those with all of these properties.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionFilter {
    /// The name of the route.
    pub route: Option<String>,
    /// Addresses of the backend. Empty: any backend.
    pub backends: Vec<String>,
    /// A network with the client's address.
    pub client: Option<Network>,
    /// The server name that the client sent. `*.example.com` stands for all names below `example.com`.
    pub name: Option<String>,
    /// Our certificate, or that of the TLS peer.
    pub certificate: Option<CertificateProperty>,
    /// The route would refuse the client now.
    pub refused: bool,
    /// The connection's id.
    pub id: Option<String>,
    /// Established at least this number of milliseconds ago.
    pub older_ms: Option<u64>,
    /// No byte has moved for at least this number of milliseconds.
    pub idle_ms: Option<u64>,
}

impl fmt::Display for ConnectionFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backends = (!self.backends.is_empty()).then(|| self.backends.join(","));
        let all = [
            ("route", self.route.clone()),
            ("backend", backends),
            ("client", self.client.map(|client| client.to_string())),
            ("name", self.name.clone()),
            (
                "certificate",
                self.certificate.as_ref().map(ToString::to_string),
            ),
            ("refused", self.refused.then(|| true.to_string())),
            ("id", self.id.clone()),
            ("older_ms", self.older_ms.map(|ms| ms.to_string())),
            ("idle_ms", self.idle_ms.map(|ms| ms.to_string())),
        ];
        let given = all
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| (name, value)));
        for (number, (name, value)) in given.enumerate() {
            let before = if number == 0 { "" } else { " " };
            write!(f, "{before}{name}={value}")?;
        }
        Ok(())
    }
}

/// A certificate of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CertificateProperty {
    /// Ours has this name, and is loaded.
    Name(String),
    /// Ours or the peer's has this fingerprint.
    Fingerprint(ShortFingerprint),
}

impl From<&str> for CertificateProperty {
    fn from(text: &str) -> CertificateProperty {
        match text.parse() {
            Ok(fingerprint) => CertificateProperty::Fingerprint(fingerprint),
            Err(_) => CertificateProperty::Name(text.to_ascii_lowercase()),
        }
    }
}

impl fmt::Display for CertificateProperty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateProperty::Name(name) => f.write_str(name),
            CertificateProperty::Fingerprint(fingerprint) => fingerprint.fmt(f),
        }
    }
}

/// What to do with the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageAction {
    /// List them.
    List,
    /// Count them.
    Count,
    /// Count them by route, by backend and by age.
    CountAges,
    /// Close at most this number of them.
    Close(u32),
}

/// An order for one page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageOrder {
    /// Which connections.
    pub filter: ConnectionFilter,
    /// What to do with them.
    pub action: PageAction,
    /// Where the page begins.
    pub from: PagePlace,
}

impl PageOrder {
    /// Whether it is the first order of a command that closes connections.
    pub fn is_first_to_close(&self) -> bool {
        matches!(self.action, PageAction::Close(_)) && self.from == PagePlace::of_worker(0)
    }
}

/// The place at which a page begins: a worker, and a number that all its slots on the page are below. Slots are listed in
/// descending order, because a connection may be moved to a lower slot meanwhile: it may be listed twice, but is never
/// missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PagePlace {
    /// The worker's number.
    pub worker: u32,
    /// The limit of the slots.
    pub below: u32,
}

impl PagePlace {
    /// The beginning of a worker's connections.
    pub fn of_worker(worker: u32) -> PagePlace {
        PagePlace {
            worker,
            below: u32::MAX,
        }
    }
}

impl fmt::Display for PagePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.worker, self.below)
    }
}

impl From<PagePlace> for String {
    fn from(place: PagePlace) -> String {
        place.to_string()
    }
}

impl TryFrom<String> for PagePlace {
    type Error = String;

    fn try_from(text: String) -> Result<PagePlace, String> {
        text.parse()
    }
}

impl FromStr for PagePlace {
    type Err = String;

    fn from_str(text: &str) -> Result<PagePlace, String> {
        let numbers = text
            .split_once(':')
            .and_then(|(worker, below)| Some((worker.parse().ok()?, below.parse().ok()?)));
        let (worker, below) = numbers.ok_or_else(|| {
            format!("`{text}` is not a place; use the field `next` of the page before")
        })?;
        Ok(PagePlace { worker, below })
    }
}

/// A worker's answer to a [`PageOrder`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The connections, if they were to be listed.
    pub rows: Vec<ConnectionRow>,
    /// Number of connections with the properties.
    pub matched: u32,
    /// Number of those that were closed, or begin to end.
    pub closed: u32,
    /// Number of those closed whose client waits until their backend has ended the connection, because it has TLS to its
    /// backend. A second order resets them.
    pub ending: u32,
    /// Number of connections without a fact that the filter needs: the name, or the client behind a proxy. Only the
    /// connection log has it.
    pub unknown: u32,
    /// Their numbers by age, if they were to be counted by age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ages: Option<AgeGroups>,
    /// Where the next page begins. `None`: this is the last one.
    pub next: Option<PagePlace>,
}

/// Numbers of connections that are younger than an hour, a day and a week, and of the others. An array, because a page may
/// have thousands.
pub type AgeCounts = [u32; 4];

/// Seconds that separate the numbers of [`AgeCounts`].
const AGE_BOUNDS_S: [u64; 3] = [3_600, 24 * 3_600, 7 * 24 * 3_600];

/// Numbers of connections by age, for each route and each backend. Both are numbers here, because names would not fit into a
/// message: control knows the names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgeGroups {
    /// By the number of the route.
    pub routes: BTreeMap<u16, AgeCounts>,
    /// By the backend's place in the table of backends.
    pub backends: BTreeMap<u16, AgeCounts>,
}

impl AgeGroups {
    /// Counts a connection.
    pub fn count(&mut self, route: u16, backend: u16, age_s: u64) {
        let group = AGE_BOUNDS_S.iter().position(|bound_s| age_s < *bound_s);
        let group = group.unwrap_or(AGE_BOUNDS_S.len());
        self.routes.entry(route).or_default()[group] += 1;
        self.backends.entry(backend).or_default()[group] += 1;
    }
}

/// The answer to `GET /connections/ages`: a page with names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgesPage {
    /// Number of connections with the properties.
    pub matched: u32,
    /// As in [`Page`].
    pub unknown: u32,
    /// Where the next page begins. `None`: this is the last one.
    pub next: Option<PagePlace>,
    /// Routes that have some of these connections.
    pub routes: Vec<NamedAges>,
    /// Backends that have some.
    pub backends: Vec<NamedAges>,
}

/// Numbers of a route or a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamedAges {
    /// The route's name, or the backend's address. `removed`: a reload has removed it; `none`: no backend is connected, or it
    /// has no row in the table of backends, as `echo:` and the servers of an origination.
    pub name: String,
    /// The numbers.
    #[serde(flatten)]
    pub ages: AgeFigures,
}

/// State of a listed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// No backend is connected yet.
    Connecting,
    /// Established, nothing pending.
    AtRest,
    /// Established, with bytes that could not be finished yet.
    Pending,
    /// It ends: received bytes are still delivered.
    Closing,
}

impl ConnectionState {
    /// The state's name.
    pub fn name(self) -> &'static str {
        match self {
            ConnectionState::Connecting => "connecting",
            ConnectionState::AtRest => "at_rest",
            ConnectionState::Pending => "pending",
            ConnectionState::Closing => "closing",
        }
    }
}

/// A listed connection. Its fields have the names of those in the connection log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionRow {
    /// The connection's id.
    pub id: String,
    /// The name of the route.
    pub route: String,
    /// The client's address. `None`: it is not known, or a unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<SocketAddr>,
    /// The backend's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The server name that the client sent; from the connection log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
    /// The first bytes of the fingerprint of our certificate; from the connection log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<ShortFingerprint>,
    /// The same of the certificate of the TLS peer: the client, or the server of `connect`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_certificate: Option<ShortFingerprint>,
    /// The application protocol; from the connection log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpn: Option<String>,
    /// The TLS version. `None`: TLS passes through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The cipher suite; from the connection log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// Whether a session was resumed; from the connection log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed: Option<bool>,
    /// Bytes from the client; from the connection log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<u64>,
    /// Bytes to the client; from the connection log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<u64>,
    /// Seconds since the end of the handshake.
    pub age_s: u64,
    /// Seconds since bytes were last moved.
    pub idle_s: u64,
    /// Its state.
    pub state: ConnectionState,
    /// Whether a side of it is in deep rest, and so has no socket.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resting: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_reactor::socket::MESSAGE_MAX;

    #[test]
    fn a_page_of_the_longest_rows_fits_into_a_message() {
        // An unprintable byte of a protocol's name takes four characters, and its backslash another one in JSON.
        let row = ConnectionRow {
            id: "f".repeat(32),
            route: "r".repeat(63),
            client: "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"
                .parse()
                .ok(),
            backend: Some("p".repeat(113)),
            sni: Some("n".repeat(83)),
            certificate: Some(ShortFingerprint([255; 8])),
            peer_certificate: Some(ShortFingerprint([255; 8])),
            alpn: Some("\\xff".repeat(16)),
            version: Some("TLSv1.3".to_owned()),
            suite: Some("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256".to_owned()),
            resumed: Some(false),
            bytes_in: Some(u64::MAX),
            bytes_out: Some(u64::MAX),
            age_s: u64::MAX,
            idle_s: u64::MAX,
            state: ConnectionState::Connecting,
            resting: true,
        };
        let page = Page {
            rows: vec![row; ROWS_MAX],
            next: Some(PagePlace::of_worker(u32::MAX)),
            ..Page::default()
        };
        let text = serde_json::to_string(&page).expect("JSON");
        assert!(text.len() < MESSAGE_MAX - 1024, "{} bytes", text.len());
    }

    #[test]
    fn a_page_with_as_many_groups_as_connections_fits_into_a_message() {
        let mut ages = AgeGroups::default();
        for number in 0..SLOTS_PER_PAGE as u16 {
            ages.count(u16::MAX - number, u16::MAX - number, u64::MAX);
        }
        let page = Page {
            ages: Some(ages),
            next: Some(PagePlace::of_worker(u32::MAX)),
            ..Page::default()
        };
        let text = serde_json::to_string(&page).expect("JSON");
        assert!(text.len() < MESSAGE_MAX - 1024, "{} bytes", text.len());
        assert_eq!(serde_json::from_str::<Page>(&text).expect("a page"), page);
    }

    #[test]
    fn connections_are_counted_in_the_group_of_their_age() {
        let mut ages = AgeGroups::default();
        for age_s in [0, 3_599, 3_600, 86_399, 86_400, 604_799, 604_800, u64::MAX] {
            ages.count(1, 2, age_s);
        }
        assert_eq!(ages.routes, BTreeMap::from([(1, [2; 4])]));
        assert_eq!(ages.backends, BTreeMap::from([(2, [2; 4])]));
    }

    #[test]
    fn a_place_round_trips() {
        let place = PagePlace {
            worker: 3,
            below: 77,
        };
        assert_eq!(place.to_string().parse(), Ok(place));
        for wrong in ["", "3", "3:", ":7", "3:-1", "3:7:9", "4294967296:1"] {
            assert!(wrong.parse::<PagePlace>().is_err(), "{wrong}");
        }
    }
}
