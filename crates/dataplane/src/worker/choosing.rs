//! Whose client is it? Where several routes share an address, or a route is for some names only,
//! the ClientHello is read before anything is done with it.
//!
//! What has been received meanwhile is in the heap, bounded, and counts as a handshake that has
//! begun. Then it goes where it belongs: to the handshake of a route, from its first byte; or
//! untouched to the backend of one that passes TLS through.

use super::Worker;
use super::challenges;
use super::in_flight::Step;
use super::interest::{self, Side};
use super::io::Io;
use super::token;
use dormouse_engine::{FirstFlight, HandshakeFailure};
use dormouse_routes::route::Route;
use dormouse_routes::route_filter;
use dormouse_tables::counters::Count;

/// No ClientHello is longer in earnest: one with ML-KEM, a ticket and everything else has 2 kB.
const HELLO_LEN_MAX: usize = 16 * 1024;

/// Is there enough to choose by?
pub(super) fn suffices(received: &[u8]) -> bool {
    received.len() >= HELLO_LEN_MAX || FirstFlight::of(received) != FirstFlight::Incomplete
}

impl<I: Io> Worker<I> {
    /// The hello of this client is there: finds the route it is for. `None`: its handshake is that
    /// route's now.
    pub(super) fn choose_route(&mut self, index: u32, generation: u32) -> Option<Step> {
        let Worker {
            handshakes,
            routes,
            tools,
            challenge,
            ..
        } = self;
        let entry = handshakes.entry(index, generation)?;
        let client = entry.client;
        let (received, door) = entry.hello()?;
        let all = door.iter().filter_map(|&number| {
            let route = routes.get(usize::from(number));
            route
                .filter(|route| !route.is_gone())
                .map(|route| (number, route))
        });
        let mut name = None;
        let chosen = match FirstFlight::of(received) {
            // Whoever looks may come from anywhere, and gets nothing else.
            FirstFlight::Asks(asked)
                if challenge
                    .as_ref()
                    .is_some_and(|open| open.is_asked_for(&asked)) =>
            {
                entry.route = challenges::ROUTE;
                entry.is_chosen();
                return None;
            }
            FirstFlight::Asks(asked) => {
                let chosen = route_filter::choose(all.map(|(n, route)| (n, &route.filter)), &asked);
                name = asked.server_name;
                chosen
            }
            // Not TLS, or not whole: whoever shakes hands has an answer to that.
            FirstFlight::Other | FirstFlight::Incomplete => {
                let may_answer = |(_, route): &(u16, &Route)| !route.passes_through();
                let Some((number, _)) = all.clone().find(may_answer) else {
                    return Some(Step::Gone);
                };
                Some(number)
            }
        };
        let Some(number) = chosen else {
            let (failure, alert) = HandshakeFailure::unknown_name(name.as_deref());
            let token = token::handshake(index, generation);
            let told = entry.refuse(&alert, &tools.io, token, &mut tools.scratch.opening);
            return Some(told.map_or(Step::Gone, |()| Step::Failed(failure)));
        };
        entry.route = number;
        if !self.admit_network(number, &client) {
            return Some(Step::Denied);
        }
        let route = self.routes.get(usize::from(number))?;
        if route.passes_through() {
            if self.limits.log_handshakes {
                let backend = &route.backend_name;
                tracing::info!(peer = %client, server_name = name, %backend, "passed through");
            }
            return Some(Step::PassesThrough);
        }
        self.handshakes.entry(index, generation)?.is_chosen();
        None
    }

    /// TLS is not ours here: from now on the connection is its slot, and what came goes on.
    pub(super) fn pass_through(&mut self, index: u32, generation: u32) {
        let Some(entry) = self.handshakes.take(index, generation) else {
            return;
        };
        let (fd, route, watched) = (entry.fd, entry.route, entry.is_watched());
        let client = entry.client;
        let (received, Some(index)) = (entry.into_received(), self.slots.insert()) else {
            self.tools.io.close(fd);
            return;
        };
        self.tools.count.add(Count::PassedThrough, 1);
        self.slots.header().mark_busy(index);
        let now_s = (self.now_ms / 1000) as u32;
        let token = token::connection(index, generation, Side::Tls);
        let adopted = self.slots.get_mut(index).map(|slot| {
            let cookie = self.tools.io.cookie(fd).unwrap_or(0) as u32;
            slot.begin(fd, cookie, route, generation, now_s);
            interest::adopt(slot, &self.tools.io, token, watched)
        });
        let over = match adopted {
            Some(Ok(())) => {
                !self.enter(index, &client)
                    || self.work(index, |work, slot| {
                        work.begin_passing_through(slot, &received, &client)
                    })
            }
            Some(Err(_)) | None => true,
        };
        self.finish_work(index, over);
    }
}
