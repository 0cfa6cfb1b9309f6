//! Routes and settings for the tests.

use super::*;
use dormouse_engine::{TicketKeyring, TicketKeys, UnixTime};
use std::time::Duration;

pub(super) fn route(tls: &Pair, sockets: &config::Sockets) -> Route {
    Route {
        direction: Direction::Terminate {
            context: Some(tls.server.clone()),
            targets: None,
        },
        ..removed(sockets)
    }
}

pub(super) fn removed(sockets: &config::Sockets) -> Route {
    Route {
        direction: Direction::Removed,
        sockets: SocketOptions::new(sockets),
        lifetime: Lifetime {
            idle_ms: Some(3_600_000),
            total_ms: None,
            rest_after_ms: None,
            stall_ms: None,
            connect_ms: 5_000,
            record_ms: 60_000,
        },
        limits: dormouse_routes::route::RouteLimits::default(),
        log_one_in: 1,
        backend_tls: None,
        starttls: config::Starttls::Off,
        truncation: Truncation::Abort,
        half_close: true,
        backend_connect: ConnectTime::AtOnce,
        name: "1".to_owned(),
        backend_down: BackendDown::Alert,
        backend_name: String::new(),
        access: Access::default(),
        sources: Vec::new(),
        filter: dormouse_routes::route_filter::RouteFilter::default(),
        made_from: dormouse_routes::route::MadeFrom::default(),
    }
}

pub(super) fn keyring() -> TicketKeyring {
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    let keys = TicketKeys::generate(now, 3_600).expect("keys");
    TicketKeyring::new(&keys).expect("keys")
}

pub(super) fn routes_of(all: Vec<Route>) -> Routes {
    let mut routes = Routes::new(removed(&sockets()));
    for (number, one) in (0..).zip(all) {
        routes.place(number, Box::new(one));
    }
    routes
}

pub(super) fn settings_of(all: Vec<Route>) -> Settings {
    Settings::new(limits(), routes_of(all))
}

pub(super) fn only_route(settings: &mut Settings) -> &mut Route {
    settings.routes.get_mut(0).expect("a route")
}
