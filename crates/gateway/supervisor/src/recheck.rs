//! Established connections whose clients a reload or a new revocation list would refuse.
//!
//! Main orders pages of them from the workers, one after the other: first it counts them, and then, if `recheck` asks for it,
//! closes them a few at a time, so that not all clients come back at the same moment.

use dormouse_config::Recheck;
use dormouse_handover::connections::{
    CLOSED_MAX, ConnectionFilter, Page, PageAction, PageOrder, PagePlace,
};
use dormouse_reactor::process;

/// Time over which connections are closed.
const OVER_MS: u64 = 60_000;
/// Time for backends to end connections with TLS to them; then both sides are reset.
const BACKENDS_END_MS: u64 = 5_000;
/// Time after which a page is ordered again: its worker may have died.
const ANSWER_MS: u64 = 10_000;

/// The progress of a check.
#[derive(Default)]
pub(crate) struct EstablishedCheck {
    /// The number of the check, so that an answer to an earlier one is not mistaken for one to this.
    number: u64,
    walk: Option<Walk>,
}

/// What is done with the connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Count,
    /// Closes this number, then pauses for this time.
    Close {
        most: u32,
        pause_ms: u64,
    },
    /// Resets those that have not ended.
    Reset,
}

/// A walk over the connections of all workers.
#[derive(Debug)]
struct Walk {
    stage: Stage,
    from: PagePlace,
    /// When the next page is ordered.
    next_ms: u64,
    found: u64,
    unknown: u64,
    closed: u64,
    ending: u64,
}

impl EstablishedCheck {
    /// Begins a check, from the beginning.
    pub(crate) fn begin(&mut self) {
        self.number += 1;
        self.walk = Some(Walk {
            stage: Stage::Count,
            from: PagePlace::of_worker(0),
            next_ms: 0,
            found: 0,
            unknown: 0,
            closed: 0,
            ending: 0,
        });
    }

    /// When the next page is due.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.walk.as_ref().map(|walk| walk.next_ms)
    }

    /// The next order, if it is due, with the number of the check.
    pub(crate) fn next_order(&mut self) -> Option<(u64, PageOrder)> {
        let now_ms = process::boottime_ms();
        let walk = self.walk.as_mut().filter(|walk| walk.next_ms <= now_ms)?;
        walk.next_ms = now_ms + ANSWER_MS;
        let order = PageOrder {
            filter: ConnectionFilter {
                refused: true,
                ..ConnectionFilter::default()
            },
            action: match walk.stage {
                Stage::Count => PageAction::Count,
                Stage::Close { most, .. } => PageAction::Close(most),
                Stage::Reset => PageAction::Close(CLOSED_MAX),
            },
            from: walk.from,
        };
        Some((self.number, order))
    }

    /// Handles an answer to an order of the check with this number.
    pub(crate) fn note(&mut self, number: u64, page: &Page, asked: Recheck) {
        let Some(walk) = self.walk.as_mut().filter(|_| number == self.number) else {
            return;
        };
        let now_ms = process::boottime_ms();
        walk.next_ms = now_ms;
        match walk.stage {
            Stage::Count => {
                walk.found += u64::from(page.matched);
                walk.unknown += u64::from(page.unknown);
            }
            Stage::Close { pause_ms, .. } => {
                walk.closed += u64::from(page.closed);
                walk.ending += u64::from(page.ending);
                if page.closed > 0 {
                    walk.next_ms = now_ms + pause_ms;
                }
            }
            Stage::Reset => {}
        }
        if let Some(next) = page.next {
            walk.from = next;
            return;
        }
        walk.from = PagePlace::of_worker(0);
        match walk.stage {
            Stage::Count if walk.is_told(asked) => walk.stage = closing(walk.found),
            Stage::Close { .. } if walk.is_closed() => {
                walk.stage = Stage::Reset;
                walk.next_ms = now_ms + BACKENDS_END_MS;
            }
            _ => self.walk = None,
        }
    }
}

impl Walk {
    /// Tells how many connections were found. Returns whether they are to be closed.
    fn is_told(&self, asked: Recheck) -> bool {
        let &Walk { found, unknown, .. } = self;
        if found > 0 {
            let recheck = asked.as_str();
            tracing::warn!(
                connections = found,
                unknown,
                recheck,
                "established connections have clients that would be refused now"
            );
        }
        if unknown > 0 && asked == Recheck::Established {
            tracing::warn!(
                connections = unknown,
                "established connections stay, because it is not known whether their clients would be refused now"
            );
        }
        found > 0 && asked == Recheck::Established
    }

    /// Tells how many were closed. Returns whether some of them still have to end.
    fn is_closed(&self) -> bool {
        tracing::info!(
            connections = self.closed,
            "connections closed whose clients would be refused now"
        );
        self.ending > 0
    }
}

/// How to close this number of connections evenly.
fn closing(found: u64) -> Stage {
    let seconds = OVER_MS / 1000;
    let most = found.div_ceil(seconds).clamp(1, CLOSED_MAX.into());
    Stage::Close {
        most: most as u32,
        pause_ms: OVER_MS * most / found.max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(matched: u32, closed: u32, next: Option<PagePlace>) -> Page {
        Page {
            matched,
            closed,
            ending: closed,
            next,
            ..Page::default()
        }
    }

    #[test]
    fn connections_are_counted_then_closed_and_at_last_reset() {
        let second = Some(PagePlace::of_worker(1));
        for asked in [Recheck::New, Recheck::Established] {
            let mut check = EstablishedCheck::default();
            assert!(check.next_order().is_none());
            check.begin();
            let (number, order) = check.next_order().expect("a first page");
            check.note(number - 1, &page(9, 0, None), asked);
            assert!(order.filter.refused && order.action == PageAction::Count);
            assert!(check.next_order().is_none(), "it is on its way");
            check.note(number, &page(2, 0, second), asked);
            let (_, order) = check.next_order().expect("a second page");
            assert_eq!(order.from, PagePlace::of_worker(1));
            check.note(number, &page(1, 0, None), asked);
            let Some((_, order)) = check.next_order() else {
                assert_eq!(asked, Recheck::New);
                assert_eq!(check.next_deadline_ms(), None);
                continue;
            };
            assert_eq!(order.action, PageAction::Close(1));
            check.note(number, &page(1, 1, None), asked);
            let reset_ms = check.next_deadline_ms().expect("a reset");
            assert!(reset_ms > process::boottime_ms());
            check.note(number, &page(0, 0, None), asked);
            assert_eq!(check.next_deadline_ms(), None);
        }
    }

    #[test]
    fn connections_are_closed_within_a_minute() {
        for found in [1, 59, 60, 61, 5_000, 1_000_000] {
            let Stage::Close { most, pause_ms } = closing(found) else {
                panic!("{found}");
            };
            let pages = found.div_ceil(most.into());
            assert!(pages * pause_ms <= OVER_MS + pause_ms, "{found}");
            assert!(found < 10 || pages * pause_ms >= OVER_MS / 2, "{found}");
        }
    }
}
