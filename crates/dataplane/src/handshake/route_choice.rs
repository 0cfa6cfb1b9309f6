//! The choice of a route among those of an address, by the client's first bytes.
//!
//! These bytes then go into the handshake of the chosen route or, if the route passes TLS through,
//! unchanged to its backend.

use crate::handshake::challenge::Challenge;
use crate::settings::Settings;
use dormouse_engine::{FirstFlight, HandshakeFailure};
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
    /// The client is an ACME server that requests the open challenge.
    Challenge,
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
    challenge: Option<&Challenge>,
) -> RouteChoice {
    let all = candidates.iter().filter_map(|&number| {
        let route = settings.route(number);
        route
            .filter(|route| !route.is_removed())
            .map(|route| (number, route))
    });
    match FirstFlight::of(received) {
        // The client may be any host: the challenge certificate is public.
        FirstFlight::ClientHello(hello) if challenge.is_some_and(|open| open.matches(&hello)) => {
            RouteChoice::Challenge
        }
        FirstFlight::ClientHello(hello) => {
            match route_filter::choose(all.map(|(n, route)| (n, &route.filter)), &hello) {
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
