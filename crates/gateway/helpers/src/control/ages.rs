//! Numbers of connections by age, for each route and each backend.
//!
//! The age of a connection is in its slot, which only its worker reads. So control asks the workers, a page at a time, when
//! somebody wants the numbers, and keeps them for a while. Nothing is counted while nobody asks, and all who ask cost the
//! workers a small part of their time at most.

use dormouse_handover::connections::{AgeCounts, AgeGroups, AgesPage, NamedAges, Page, PagePlace};
use dormouse_handover::control::Listing;
use dormouse_handover::status::AgeFigures;
use std::collections::{BTreeMap, HashMap};

/// Numbers of this age are not counted again.
const FRESH_MS: u64 = 10_000;
/// Nor are numbers whose counting took more than this part of their age.
const PART: u64 = 20;
/// A count whose next page has not come after this time is given up: it was lost.
const LOST_MS: u64 = 10_000;
/// So is one that takes longer than this: a compromised worker could go on for ever.
const COUNT_MS: u64 = 600_000;

/// The name of routes and backends that a reload has removed.
const REMOVED: &str = "removed";
/// The name of backends without a place.
const NONE: &str = "none";

/// The numbers, and the count under way.
#[derive(Default)]
pub(super) struct Ages {
    last: Option<Last>,
    counting: Option<Counting>,
}

struct Last {
    sums: Sums,
    at_ms: u64,
    took_ms: u64,
}

struct Counting {
    /// The order whose page is the next one.
    order: u64,
    begun_ms: u64,
    /// When that page was ordered.
    ordered_ms: u64,
    sums: Sums,
}

/// Sums over pages.
#[derive(Default)]
struct Sums {
    routes: HashMap<u16, AgeFigures>,
    backends: HashMap<u16, AgeFigures>,
}

impl Sums {
    /// A compromised worker can write any number, so sums wrap around.
    fn add(&mut self, groups: &AgeGroups) {
        let both = [
            (&groups.routes, &mut self.routes),
            (&groups.backends, &mut self.backends),
        ];
        for (more, sums) in both {
            for (number, counts) in more {
                let sum = sums.entry(*number).or_default();
                let more = figures(counts);
                sum.under_1h = sum.under_1h.wrapping_add(more.under_1h);
                sum.under_1d = sum.under_1d.wrapping_add(more.under_1d);
                sum.under_7d = sum.under_7d.wrapping_add(more.under_7d);
                sum.older = sum.older.wrapping_add(more.older);
            }
        }
    }
}

/// What becomes of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It belongs to another order.
    Not,
    /// The next page begins here.
    Next(PagePlace),
    /// It was the last one.
    Done,
}

impl Ages {
    /// Whether the numbers should be counted: they are old, or there are none, and no count is under way.
    pub(super) fn are_due(&self, now_ms: u64) -> bool {
        let is_old = self.last.as_ref().is_none_or(|last| {
            now_ms.saturating_sub(last.at_ms) >= FRESH_MS.max(PART * last.took_ms)
        });
        is_old && !self.is_counting(now_ms)
    }

    /// Whether a count is under way.
    pub(super) fn is_counting(&self, now_ms: u64) -> bool {
        let is_current = |count: &Counting| {
            now_ms.saturating_sub(count.ordered_ms) < LOST_MS
                && now_ms.saturating_sub(count.begun_ms) < COUNT_MS
        };
        self.counting.as_ref().is_some_and(is_current)
    }

    /// Begins to count. `order` has the first page.
    pub(super) fn begin(&mut self, order: u64, now_ms: u64) {
        self.counting = Some(Counting {
            order,
            begun_ms: now_ms,
            ordered_ms: now_ms,
            sums: Sums::default(),
        });
    }

    /// Continues with this order.
    pub(super) fn proceed(&mut self, order: u64, now_ms: u64) {
        if let Some(counting) = &mut self.counting {
            (counting.order, counting.ordered_ms) = (order, now_ms);
        }
    }

    /// Gives the count up, and keeps the last numbers.
    pub(super) fn give_up(&mut self) {
        self.counting = None;
    }

    /// Whether the count waits for this order.
    pub(super) fn waits_for(&self, order: u64) -> bool {
        self.counting.as_ref().is_some_and(|one| one.order == order)
    }

    /// Takes the page of an order, if the count waits for it.
    pub(super) fn take(&mut self, order: u64, page: &Page, now_ms: u64) -> Taken {
        let Some(counting) = self.counting.as_mut().filter(|one| one.order == order) else {
            return Taken::Not;
        };
        if let Some(groups) = &page.ages {
            counting.sums.add(groups);
        }
        if let Some(next) = page.next {
            return Taken::Next(next);
        }
        self.last = self.counting.take().map(|counted| Last {
            sums: counted.sums,
            at_ms: now_ms,
            took_ms: now_ms.saturating_sub(counted.begun_ms),
        });
        Taken::Done
    }

    /// Seconds since the numbers were counted. `None`: they never were.
    pub(super) fn counted_s_ago(&self, now_ms: u64) -> Option<u64> {
        let last = self.last.as_ref()?;
        Some(now_ms.saturating_sub(last.at_ms) / 1000)
    }

    /// The numbers of the route with this number. `None`: they were never counted.
    pub(super) fn of_route(&self, number: u16) -> Option<AgeFigures> {
        let last = self.last.as_ref()?;
        Some(last.sums.routes.get(&number).cloned().unwrap_or_default())
    }

    /// The numbers of the backend at this place. `None`: they were never counted, or the backend has no place.
    pub(super) fn of_backend(&self, place: u16) -> Option<AgeFigures> {
        let last = self.last.as_ref().filter(|_| place != 0)?;
        Some(last.sums.backends.get(&place).cloned().unwrap_or_default())
    }
}

fn figures(counts: &AgeCounts) -> AgeFigures {
    let [under_1h, under_1d, under_7d, older] = counts.map(u64::from);
    AgeFigures {
        under_1h,
        under_1d,
        under_7d,
        older,
    }
}

/// A page with names in place of numbers.
pub(super) fn named(page: &Page, groups: &AgeGroups, listed: &Listing) -> AgesPage {
    let routes = listed.routes.iter();
    let backends = listed.backends.iter();
    let mut names_of_backends: HashMap<u16, &str> = backends
        .map(|backend| (backend.place, &*backend.address))
        .collect();
    names_of_backends.insert(0, NONE);
    AgesPage {
        matched: page.matched,
        unknown: page.unknown,
        next: page.next,
        routes: with_names(
            &groups.routes,
            &routes.map(|route| (route.number, &*route.name)).collect(),
        ),
        backends: with_names(&groups.backends, &names_of_backends),
    }
}

fn with_names(groups: &BTreeMap<u16, AgeCounts>, names: &HashMap<u16, &str>) -> Vec<NamedAges> {
    let all = groups.iter().map(|(number, counts)| NamedAges {
        name: (*names.get(number).unwrap_or(&REMOVED)).to_owned(),
        ages: figures(counts),
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(route: u16, next: Option<PagePlace>) -> Page {
        let mut groups = AgeGroups::default();
        groups.count(route, 1, 0);
        groups.count(route, 1, u64::from(u32::MAX));
        Page {
            ages: Some(groups),
            next,
            ..Page::default()
        }
    }

    #[test]
    fn pages_add_up_and_are_kept_for_a_while() {
        let mut ages = Ages::default();
        assert!(ages.are_due(0) && ages.of_route(7).is_none());
        ages.begin(3, 1_000);
        assert!(!ages.are_due(1_000) && ages.is_counting(1_000));
        let next = PagePlace::of_worker(1);
        assert_eq!(ages.take(4, &page(7, None), 1_000), Taken::Not);
        assert_eq!(ages.take(3, &page(7, Some(next)), 1_000), Taken::Next(next));
        assert!(ages.of_route(7).is_none(), "a part is no number");
        ages.proceed(5, 1_000);
        assert_eq!(ages.take(3, &page(7, None), 1_000), Taken::Not);
        assert_eq!(ages.take(5, &page(7, None), 1_900), Taken::Done);
        let of_route = ages.of_route(7).expect("a number");
        assert_eq!((of_route.under_1h, of_route.older), (2, 2));
        assert_eq!(ages.of_route(8), Some(AgeFigures::default()));
        assert_eq!(
            (ages.of_backend(1), ages.of_backend(0)),
            (Some(of_route), None)
        );
        // It took 900 ms, so the next one begins after 18 s.
        assert!(!ages.are_due(19_899) && ages.are_due(19_900));
        assert_eq!(ages.counted_s_ago(19_900), Some(18));
    }

    #[test]
    fn a_count_whose_page_was_lost_begins_again() {
        let mut ages = Ages::default();
        ages.begin(3, 0);
        assert!(!ages.are_due(LOST_MS - 1) && ages.are_due(LOST_MS));
        // As long as pages come, a long count is no lost one.
        ages.begin(4, LOST_MS);
        for now_ms in (LOST_MS..LOST_MS + COUNT_MS).step_by(LOST_MS as usize - 1) {
            assert!(ages.is_counting(now_ms));
            ages.proceed(4, now_ms);
        }
        assert!(!ages.is_counting(LOST_MS + COUNT_MS));
        ages.begin(4, LOST_MS);
        assert_eq!(ages.take(3, &page(7, None), LOST_MS), Taken::Not);
        ages.give_up();
        assert!(ages.are_due(LOST_MS) && !ages.waits_for(4));
    }
}
