//! Which of the routes on one address a client is for, by its first bytes.
//!
//! What came is not lost: it goes into the handshake of the chosen route, or, untouched, to the
//! backend of one that passes TLS through.

use crate::handshake::challenge::Challenge;
use crate::settings::Settings;
use dormouse_engine::{FirstFlight, HandshakeFailure};
use dormouse_routes::route::Route;
use dormouse_routes::route_filter;

/// No ClientHello is longer in earnest: one with ML-KEM, a ticket and everything else has 2 kB.
const HELLO_LEN_MAX: usize = 16 * 1024;

/// Is there enough to choose by?
pub(crate) fn suffices(received: &[u8]) -> bool {
    received.len() >= HELLO_LEN_MAX || FirstFlight::of(received) != FirstFlight::Incomplete
}

/// The route that a client is for.
pub(crate) enum RouteChoice {
    /// An ACME server looks whether a name is ours.
    Challenge,
    /// This one, and the name that the client asks for.
    Route(u16, Option<String>),
    /// There is none that answers.
    None,
    /// None is for this name; the alert says so.
    UnknownName(HandshakeFailure, [u8; 7]),
}

/// Chooses among `candidates` by what was received.
pub(crate) fn choose(
    received: &[u8],
    candidates: &[u16],
    settings: &Settings,
    challenge: Option<&Challenge>,
) -> RouteChoice {
    let all = candidates.iter().filter_map(|&number| {
        let route = settings.route(number);
        route
            .filter(|route| !route.is_gone())
            .map(|route| (number, route))
    });
    match FirstFlight::of(received) {
        // Any host may look, and gets nothing else.
        FirstFlight::ClientHello(hello)
            if challenge.is_some_and(|open| open.is_asked_for(&hello)) =>
        {
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
        // Not TLS, or not whole: a handshake has an answer to that.
        FirstFlight::Other | FirstFlight::Incomplete => {
            let may_answer = |(_, route): &(u16, &Route)| !route.passes_through();
            match all.clone().find(may_answer) {
                Some((number, _)) => RouteChoice::Route(number, None),
                None => RouteChoice::None,
            }
        }
    }
}
