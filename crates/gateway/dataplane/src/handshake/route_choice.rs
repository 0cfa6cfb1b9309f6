//! The choice of a route among those of an address, by the client's first bytes.
//!
//! These bytes then go into the handshake of the chosen route or, if the route passes TLS through,
//! unchanged to its backend.
//!
//! A client may also be an ACME server that verifies that we control a name (RFC 8737 §3): it requests the name and
//! offers only the protocol acme-tls/1, and gets the certificate of the challenge for it. Main opens a challenge in all
//! workers, because any of them may accept the ACME server's connection. While a challenge is open, the worker reads
//! every ClientHello before its handshake begins. The connection ends with the handshake, so nothing reaches a backend.
//! While no challenge is open, `engine` refuses such clients on every route.

use crate::settings::Settings;
use dormouse_engine::{
    ACME_TLS, ClientHello, FirstFlight, Handshake, HandshakeFailure, HandshakeLimits, Identity,
    ServerContext, ServerSettings, UnknownName,
};
use dormouse_routes::route::Route;
use dormouse_routes::route_filter;

/// Maximum length of a ClientHello; with ML-KEM, a ticket and all extensions it has about 2 kB.
const HELLO_LEN_MAX: usize = 16 * 1024;

/// Whether the received bytes suffice to choose a route.
pub(crate) fn can_choose(received: &[u8]) -> bool {
    received.len() >= HELLO_LEN_MAX || FirstFlight::of(received) != FirstFlight::Incomplete
}

/// Result of the choice.
pub(crate) enum RouteChoice {
    /// The client is an ACME server that requests the open challenge with this number.
    Challenge(u64),
    /// A route, with the requested server name.
    Route(u16, Option<String>),
    /// No route can answer.
    None,
    /// No route serves the requested name; with the alert to send.
    UnknownName(HandshakeFailure, [u8; 7]),
}

/// Chooses among `candidates` by the received bytes.
pub(crate) fn choose(
    received: &[u8],
    candidates: &[u16],
    settings: &Settings,
    challenges: &[Challenge],
) -> RouteChoice {
    let all = candidates.iter().filter_map(|&number| {
        let route = settings.route(number)?;
        Some((number, route))
    });
    match FirstFlight::of(received) {
        FirstFlight::ClientHello(hello) => {
            // The client may be any host: the challenge certificate is public.
            if let Some(open) = challenges.iter().find(|open| open.matches(&hello)) {
                return RouteChoice::Challenge(open.number);
            }
            let name = hello.server_name.as_deref();
            let nearest = settings.sums.names.nearest(name, candidates).into_iter();
            let nearest = nearest.filter_map(|n| Some((n, &settings.route(n)?.filter)));
            let nearest: Vec<_> = nearest.collect();
            match route_filter::choose(nearest.into_iter(), &hello) {
                Some(number) => RouteChoice::Route(number, hello.server_name),
                None => {
                    let name = hello.server_name;
                    let (failure, alert) = HandshakeFailure::unknown_name(name.as_deref());
                    RouteChoice::UnknownName(failure, alert)
                }
            }
        }
        // Not TLS, or too long: a route that terminates TLS answers with an alert.
        FirstFlight::Other | FirstFlight::Incomplete => {
            let terminates = |(_, route): &(u16, &Route)| !route.passes_through();
            match all.clone().find(terminates) {
                Some((number, _)) => RouteChoice::Route(number, None),
                None => RouteChoice::None,
            }
        }
    }
}

/// An open challenge.
pub(crate) struct Challenge {
    pub(super) number: u64,
    pub(super) name: String,
    context: ServerContext,
}

impl Challenge {
    /// Parses a challenge: a certificate and its key as PEM.
    pub(crate) fn new(number: u64, name: &str, pem: &str) -> Result<Challenge, String> {
        let identity = Identity::from_acme_challenge_pem(pem, name);
        let mut settings = ServerSettings::new(vec![identity.map_err(|e| e.to_string())?]);
        settings.alpn = vec![ACME_TLS.to_vec()];
        settings.tickets = None;
        settings.unknown_name = UnknownName::Refuse;
        let context = ServerContext::new(settings).map_err(|e| e.to_string())?;
        Ok(Challenge {
            number,
            name: name.to_owned(),
            context,
        })
    }

    /// Whether the client requests this challenge.
    pub(crate) fn matches(&self, hello: &ClientHello) -> bool {
        hello.alpn == [ACME_TLS] && hello.server_name.as_deref() == Some(self.name.as_str())
    }

    pub(crate) fn handshake(&self, limits: HandshakeLimits) -> Handshake {
        Handshake::server(&self.context, limits)
    }
}
