//! Orders for pages of connections, and the workers' answers.
//!
//! Main passes each order to one worker and the answer back to control, and leads the caller from one worker to the next.
//! An order whose answer never comes is forgotten when newer ones have taken its place; its caller asks again.

use crate::edition;
use crate::pairs::Pairs;
use dormouse_config::{Config, Upstream};
use dormouse_handover::connections::{ConnectionFilter, Page, PageOrder, PagePlace};
use dormouse_handover::orders::Order;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Maximum number of orders that wait for their answers; more than control has clients.
const WAITING_MAX: usize = 64;
/// The name of routes that a reload has removed.
const REMOVED: &str = "removed";
/// Maximum number of names in a message.
const NAMED_MAX: usize = 20;

/// The orders that wait for their answers.
#[derive(Default)]
pub(crate) struct Pages {
    last: u64,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    number: u64,
    /// The id of control's order.
    id: u64,
    from: PagePlace,
}

impl Pages {
    /// Passes an order to its worker, or to the next one if that is gone. Returns the last page if there is none.
    pub(crate) fn order(&mut self, id: u64, mut order: PageOrder, pairs: &Pairs) -> Option<Page> {
        let worker = next_worker(order.from.worker, pairs);
        let Some(worker) = worker else {
            return Some(Page::default());
        };
        if worker != order.from.worker {
            order.from = PagePlace::of_worker(worker);
        }
        self.last += 1;
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Waiting {
            number: self.last,
            id,
            from: order.from,
        });
        pairs.order(worker as usize, &Order::Page(self.last, Box::new(order)));
        None
    }

    /// Handles a worker's answer. Returns it with the id of control's order, unless that is forgotten or was given to
    /// another worker.
    pub(crate) fn note(
        &mut self,
        worker: usize,
        number: u64,
        page: Page,
        pairs: &Pairs,
    ) -> Option<(u64, Page)> {
        let is_it = |one: &Waiting| one.number == number && one.from.worker as usize == worker;
        let place = self.waiting.iter().position(is_it)?;
        let Waiting { id, from, .. } = self.waiting.remove(place)?;
        // A compromised worker must not lead the caller to others, or round in circles.
        let below = page.next.map(|next| next.below);
        let next = match below.filter(|below| *below < from.below) {
            Some(below) => Some(PagePlace { below, ..from }),
            None => next_worker(from.worker.saturating_add(1), pairs).map(PagePlace::of_worker),
        };
        Some((id, Page { next, ..page }))
    }
}

/// The first worker from this one on that is not gone for good.
fn next_worker(from: u32, pairs: &Pairs) -> Option<u32> {
    let remaining = pairs.remaining().into_iter();
    let mut remaining = remaining.map(|worker| worker as u32);
    remaining.find(|worker| *worker >= from)
}

/// Checks the names in a filter, and replaces the name of a backend by its addresses. `Err` says what would be right.
pub(crate) fn look_up(filter: &mut ConnectionFilter, config: &Config) -> Result<(), String> {
    let routes = config.route_names();
    if let Some(route) = &filter.route
        && !routes.contains(route)
        && route != REMOVED
    {
        let known: Vec<String> = routes.into_iter().take(NAMED_MAX).collect();
        return Err(format!(
            "no route {route}; the configuration has: {}; `{REMOVED}` stands for routes that a reload has removed",
            known.join(", ")
        ));
    }
    let Some(given) = filter.backends.first() else {
        return Ok(());
    };
    let is_named = |one: &&Upstream| one.backend.name() == Some(given);
    if let Some(named) = edition::upstreams(config).find(is_named) {
        filter.backends = edition::addresses(&named.backend);
        return Ok(());
    }
    let mut servers = config.originate.iter().flat_map(|one| &one.to);
    if let Some(server) = servers.find(|server| server.given == *given) {
        filter.backends = server.addresses.iter().map(ToString::to_string).collect();
        return Ok(());
    }
    if given.starts_with("unix:") {
        return Ok(());
    }
    // Also a backend that a reload has removed. As in the table of backends: `[::1]:80` for `[0:0::1]:80`.
    match given.parse::<SocketAddr>() {
        Ok(address) => filter.backends = vec![address.to_string()],
        Err(_) => {
            let known = edition::upstreams(config).map(ToString::to_string);
            let known: Vec<String> = known.take(NAMED_MAX).collect();
            return Err(format!(
                "no backend {given}; the configuration has: {}; of other backends, give the address",
                known.join(", ")
            ));
        }
    }
    Ok(())
}
