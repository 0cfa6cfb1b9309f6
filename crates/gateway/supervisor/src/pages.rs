//! Orders for pages of connections, and the workers' answers.
//!
//! Main passes each order to one worker and the answer back to control, and leads the caller from one worker to the next.
//! An order whose answer never comes is forgotten when newer ones have taken its place; its caller asks again.

use crate::configuration::edition::{self, Edition};
use crate::material::Certificates;
use dormouse_config::Upstream;
use dormouse_engine::Identity;
use dormouse_handover::Pem;
use dormouse_handover::connections::{
    CertificateProperty, ConnectionFilter, Page, PageOrder, PagePlace,
};
use dormouse_handover::orders::Order;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Maximum number of orders that wait for their answers; more than control has clients.
const WAITING_MAX: usize = 64;
/// The name of routes that a reload has removed.
const REMOVED: &str = "removed";
/// Maximum number of names in a message.
const NAMED_MAX: usize = 20;

/// Who gets an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asker {
    /// Control, whose order has this id.
    Control(u64),
    /// Main, in the check of established connections with this number.
    Recheck(u64),
}

/// The orders that wait for their answers.
#[derive(Default)]
pub(crate) struct Pages {
    last: u64,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    number: u64,
    asker: Asker,
    from: PagePlace,
}

/// What becomes of an order.
pub(crate) enum Passed {
    /// This worker gets it.
    To(usize, Order),
    /// No worker is left, so this is the answer.
    Answered(Page),
}

impl Pages {
    /// Passes an order to its worker, or to the next one if that is gone. `remaining`: the workers that are not gone for
    /// good.
    pub(crate) fn order(
        &mut self,
        asker: Asker,
        mut order: PageOrder,
        remaining: &[usize],
    ) -> Passed {
        let Some(worker) = next_worker(order.from.worker, remaining) else {
            return Passed::Answered(Page::default());
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
            asker,
            from: order.from,
        });
        Passed::To(worker as usize, Order::Page(self.last, Box::new(order)))
    }

    /// Handles a worker's answer. Returns it with its asker, unless that is forgotten or was given to
    /// another worker.
    pub(crate) fn note(
        &mut self,
        worker: usize,
        number: u64,
        page: Page,
        remaining: &[usize],
    ) -> Option<(Asker, Page)> {
        let is_it = |one: &Waiting| one.number == number && one.from.worker as usize == worker;
        let place = self.waiting.iter().position(is_it)?;
        let Waiting { asker, from, .. } = self.waiting.remove(place)?;
        // A compromised worker must not lead the caller to other workers, or round in circles.
        let below = page.next.map(|next| next.below);
        let next = match below.filter(|below| *below < from.below) {
            Some(below) => Some(PagePlace { below, ..from }),
            None => {
                let next = from.worker.checked_add(1)?;
                next_worker(next, remaining).map(PagePlace::of_worker)
            }
        };
        Some((asker, Page { next, ..page }))
    }
}

/// The first of the workers from this one on.
fn next_worker(from: u32, remaining: &[usize]) -> Option<u32> {
    let mut remaining = remaining.iter().map(|&worker| worker as u32);
    remaining.find(|worker| *worker >= from)
}

/// Checks the names in a filter, and replaces the name of a backend by its addresses. `Err` says what would be right.
pub(crate) fn look_up(filter: &mut ConnectionFilter, edition: &Edition) -> Result<(), String> {
    let config = &edition.config;
    if let Some(CertificateProperty::Name(name)) = &filter.certificate {
        require_certificate(name, &edition.material.certificates)?;
    }
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
    if let Some(named) = config.upstreams().find(is_named) {
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
            let known = config.upstreams().map(ToString::to_string);
            let known: Vec<String> = known.take(NAMED_MAX).collect();
            return Err(format!(
                "no backend {given}; the configuration has: {}; of other backends, give the address",
                known.join(", ")
            ));
        }
    }
    Ok(())
}

/// Refuses a name that no loaded certificate has.
fn require_certificate(name: &str, certificates: &Certificates) -> Result<(), String> {
    let identities = certificates.iter().flatten().map(Pem::identity);
    let names = identities.filter_map(Result::ok).flat_map(Identity::names);
    if names.clone().any(|one| one.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    let mut known: Vec<&str> = names.take(NAMED_MAX).map(String::as_str).collect();
    known.dedup();
    Err(format!(
        "no loaded certificate has the name {name}; names: {}; of other certificates, give the fingerprint",
        known.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_handover::connections::PageAction;

    fn order(from: PagePlace) -> PageOrder {
        PageOrder {
            filter: ConnectionFilter::default(),
            action: PageAction::Count,
            from,
        }
    }

    fn passed(passed: Passed) -> Option<(usize, u64, PagePlace)> {
        match passed {
            Passed::To(worker, Order::Page(number, order)) => Some((worker, number, order.from)),
            _ => None,
        }
    }

    fn page_until(worker: u32, below: u32) -> Page {
        Page {
            next: Some(PagePlace { worker, below }),
            ..Page::default()
        }
    }

    #[test]
    fn the_caller_is_led_from_worker_to_worker() {
        let mut pages = Pages::default();
        let remaining = [0, 2];
        let first = passed(pages.order(
            Asker::Control(7),
            order(PagePlace::of_worker(0)),
            &remaining,
        ));
        assert_eq!(first, Some((0, 1, PagePlace::of_worker(0))));
        let (asker, page) = pages
            .note(0, 1, page_until(0, 99), &remaining)
            .expect("an answer");
        assert_eq!(asker, Asker::Control(7));
        assert_eq!(page.next, page_until(0, 99).next);
        let next = page.next.expect("another page");
        assert!(passed(pages.order(Asker::Control(8), order(next), &remaining)).is_some());
        let (_, page) = pages
            .note(0, 2, Page::default(), &remaining)
            .expect("an answer");
        // The second one is gone.
        assert_eq!(page.next, Some(PagePlace::of_worker(2)));
        let gone = order(PagePlace {
            worker: 1,
            below: 5,
        });
        let third = passed(pages.order(Asker::Control(9), gone, &remaining));
        assert_eq!(third, Some((2, 3, PagePlace::of_worker(2))));
        let (_, page) = pages
            .note(2, 3, Page::default(), &remaining)
            .expect("an answer");
        assert_eq!(page.next, None);
        let beyond = pages.order(
            Asker::Control(9),
            order(PagePlace::of_worker(3)),
            &remaining,
        );
        assert!(matches!(beyond, Passed::Answered(page) if page == Page::default()));
    }

    #[test]
    fn a_compromised_worker_answers_for_itself_and_comes_to_an_end() {
        let mut pages = Pages::default();
        let from = PagePlace {
            worker: 0,
            below: 50,
        };
        let _ = pages.order(Asker::Control(7), order(from), &[0, 1]);
        assert!(
            pages.note(1, 1, Page::default(), &[0, 1]).is_none(),
            "not asked"
        );
        assert!(
            pages.note(0, 2, Page::default(), &[0, 1]).is_none(),
            "no such order"
        );
        // Neither another worker nor the same place again.
        let (_, page) = pages
            .note(0, 1, page_until(5, 50), &[0, 1])
            .expect("an answer");
        assert_eq!(page.next, Some(PagePlace::of_worker(1)));
        assert!(
            pages.note(0, 1, Page::default(), &[0, 1]).is_none(),
            "answered already"
        );
        for id in 0..1000 {
            let _ = pages.order(Asker::Control(id), order(from), &[0]);
        }
        assert_eq!(pages.waiting.len(), WAITING_MAX, "orders without an answer");
    }
}
