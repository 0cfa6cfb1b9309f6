//! Connections that are held: their memory at N and 2N, after an exchange, after an idle period, and after closing.

use std::collections::BTreeMap;
use std::time::Instant;

use super::backlog::Backlog;
use super::echo::{LARGE_BYTES, LargeEcho};
use super::moments::{Moments, ObjectMoments};
use super::polling::Activity;
use super::running::{Partly, RunningPart, missing};
use dormouse_bench::load::{Messages, Order};
use dormouse_census::{self as census, Collector, Detail, PageSample};
use dormouse_measure::Error;

/// Messages per second when every held connection sends one.
const SPEAK_PER_S: f64 = 3000.0;

/// What held connections show.
#[derive(Default)]
pub(super) struct Held {
    /// Number of connections held at the end.
    pub(super) connections: u64,
    pub(super) moments: Moments,
    /// Objects of the server's runtimes.
    pub(super) objects: ObjectMoments,
    /// A page sample, taken where malloc's heap explains little.
    pub(super) pages: Option<Result<PageSample, String>>,
    pub(super) idle: Option<IdleTime>,
    /// How many of the connections have ended, and why.
    pub(super) closed_early: Option<String>,
    /// Failed connections by reason, when these were open.
    pub(super) failures_before: BTreeMap<String, u64>,
    /// Whether a runtime did not collect its garbage before a census.
    pub(super) is_uncollected: bool,
    /// Whether the server answers nothing that the audit could send.
    pub(super) is_silent: bool,
    pub(super) large: LargeEcho,
    /// Why connections without a request could not be held.
    pub(super) silence_refused: Option<String>,
    /// Open and waiting connections before these were opened.
    pub(super) before: Backlog,
}

/// CPU time while the connections were idle.
pub(super) struct IdleTime {
    /// Microseconds per connection and second; `None` if the server closed connections meanwhile.
    pub(super) us: Option<f64>,
    /// Threads that never slept.
    pub(super) polling: u64,
}

impl RunningPart<'_, '_> {
    /// Holds 0, N and 2N connections, and with `exchanges` makes them exchange data.
    pub(super) fn hold(&mut self, served_at_once: Option<u64>, exchanges: bool) -> Partly<Held> {
        let mut held = Held::default();
        let end = match served_at_once {
            Some(1) => Err(Error::target(
                "the server serves one connection at a time, so idle connections cannot be held",
            )),
            _ => self.hold_all(&mut held, exchanges),
        };
        (held, end)
    }

    fn hold_all(&mut self, held: &mut Held, exchanges: bool) -> Result<(), Error> {
        // Before connections are held: while their memory is counted, the server must do nothing else.
        held.large = self.try_large()?;
        // V8 keeps a list of all its objects after the first snapshot, in blocks of malloc: before a census counts these.
        let detail = match self
            .slot
            .has_much_room(Instant::now(), self.heap.classes_took)
        {
            true => Detail::Classes,
            false => Detail::Bytes,
        };
        self.none_held(held, detail);
        let mut n = self.open_as_many(held, detail, self.sizes.n)?;
        self.opened(held, ("n", "N connections"), n);
        if self.is_late() {
            self.session
                .run
                .note("the time was too short to open twice as many connections");
        } else if self.budget.is_exceeded_by_twice(held.moments.grown("n")) {
            self.session
                .run
                .note("twice as many connections would exceed the memory limit (--memory)");
        } else if let Err(error) = self.open("opening", 2 * n) {
            self.go_on()?;
            self.missing
                .push(missing("twice as many idle connections", &error));
            self.close_all()?;
            self.drain(Backlog::default());
            self.none_held(held, detail);
            n = self.open_as_many(held, detail, n)?;
            self.opened(held, ("n", "N connections"), n);
        } else {
            self.opened(held, ("2n", "2N connections"), 2 * n);
            self.hold_more(held, 4 * n)?;
            if self
                .heap
                .collection
                .took()
                .is_some_and(|took| self.has_room(took))
            {
                held.objects.opened = Some(self.objects(Detail::Bytes));
            }
        }
        let is_unexplained = self.heap.no_census.is_some() || held.explains_little();
        if is_unexplained && !self.is_late() {
            held.pages = Some(census::sample_pages(&self.pids(), held.connections));
        }
        if exchanges {
            self.exchange(held, n)?;
        }
        let detail = held
            .objects
            .detail_of_held(self.heap.classes_took, |took| self.has_room(took));
        self.objects_held(held, detail);
        self.close(held)
    }

    /// Holds HTTP connections, of which each has received a response, after others were held without a request.
    pub(super) fn hold_requests(&mut self, mut held: Held) -> Partly<Held> {
        let end = self.request(&mut held);
        (held, end)
    }

    fn request(&mut self, held: &mut Held) -> Result<(), Error> {
        held.closed_early = None;
        held.before = self.backlog();
        // Connections that were held before without a request may be garbage now.
        if let Some(Collector::Python(_)) = self.session.collector() {
            let none = self.census(0);
            held.moments.add_census("before_requests", none);
        }
        if let Some(fewer) =
            self.open_or_close("opening with a request", held.connections.max(1))?
        {
            // What the failed attempts left behind belongs to no connection, unless it is a process for each.
            if !held
                .moments
                .has_process_each(self.pids().len() as u64, fewer)
            {
                self.read(held, ("before_requests", "before requests"), 0, true);
            }
            self.open_at_once("opening one at a time", fewer, 1)?;
            held.connections = fewer;
        }
        self.note_failures(held);
        self.read_open(held, ("after_exchange", "after a request"), false);
        self.quiet(held);
        self.hold_again(held, held.connections, |_, _| Ok(()))?;
        self.objects_held(held, Detail::Classes);
        self.close(held)
    }

    /// Opens this many connections, or fewer if the server accepts no more. Returns their number.
    fn open_as_many(&mut self, held: &mut Held, detail: Detail, wanted: u64) -> Result<u64, Error> {
        let Some(fewer) = self.open_or_close("opening", wanted)? else {
            return Ok(wanted);
        };
        // What the failed attempts left behind belongs to no connection, unless it is a process for each.
        if !held
            .moments
            .has_process_each(self.pids().len() as u64, fewer)
        {
            self.none_held(held, detail);
        }
        self.open_at_once("opening one at a time", fewer, 1)?;
        Ok(fewer)
    }

    /// Reads the memory of the server without connections.
    fn none_held(&mut self, held: &mut Held, detail: Detail) {
        held.before = self.backlog();
        held.objects = ObjectMoments {
            none: Some(self.objects(detail)),
            ..ObjectMoments::default()
        };
        held.is_uncollected = !self.await_collection(0);
        self.read(held, ("before", "before"), 0, true);
    }

    /// Reads the memory of this many connections, and with `counts` their blocks in use.
    fn read(
        &mut self,
        held: &mut Held,
        (name, title): (&'static str, &str),
        connections: u64,
        counts: bool,
    ) {
        let phase = self.phase(name, title, connections);
        held.moments.add_phase(phase);
        if counts {
            let snapshot = self.census(connections);
            held.moments.add_census(name, snapshot);
        }
    }

    /// Reads the memory right after connections were opened.
    fn opened(&mut self, held: &mut Held, moment: (&'static str, &str), count: u64) {
        held.connections = count;
        self.note_failures(held);
        self.read_open(held, moment, true);
    }

    /// Notes what has failed until all connections are open: that says nothing about their ends.
    fn note_failures(&self, held: &mut Held) {
        held.failures_before.clone_from(&self.session.run.failures);
    }

    /// Reads the memory of the connections that are open. A reading during which the server closed some is dropped: it is
    /// not known how many it counted.
    fn read_open(&mut self, held: &mut Held, (name, title): (&'static str, &str), counts: bool) {
        let open = self.still_open(held);
        if open == 0 {
            return;
        }
        let phase = self.phase(name, title, open);
        held.moments.add_phase(phase);
        if counts {
            held.is_uncollected |= !self.await_collection(held.connections);
            let snapshot = self.census(open);
            held.moments.add_census(name, snapshot);
        }
        if self.still_open(held) < open {
            held.moments.forget(name);
        }
    }

    /// Makes all held connections exchange data, and then leaves them idle. `n`: half of them.
    fn exchange(&mut self, held: &mut Held, n: u64) -> Result<(), Error> {
        held.is_silent = self.is_silent;
        if !self.is_silent {
            self.speak("an exchange on each", held.connections, 0)?;
            self.read_open(held, ("after_exchange", "after an exchange"), false);
        }
        let is_large = matches!(held.large, LargeEcho::Returned) && !self.is_late();
        if is_large {
            self.speak("16 kB each way", held.connections, LARGE_BYTES)?;
            self.read_open(held, ("after_large_records", "after 16 kB each way"), false);
        }
        self.quiet(held);
        self.hold_again(held, n, |part, all| {
            if !part.is_silent {
                part.speak("an exchange on each", all, 0)?;
            }
            if is_large {
                part.speak("16 kB each way", all, LARGE_BYTES)?;
            }
            Ok(())
        })
    }

    fn speak(&mut self, stage: &str, messages: u64, bytes: u64) -> Result<(), Error> {
        let order = Order::Messages(Messages {
            per_s: SPEAK_PER_S,
            messages,
            for_ms: 0,
            among: 0,
            bytes,
            name: "exchange".into(),
        });
        let report = self
            .session
            .order(stage, Some(messages), &order, |tally| tally.answers)?;
        report.ensure_complete()?;
        self.go_on()
    }

    /// Opens more connections if the server's own pools had free blocks for the first ones: only connections beyond
    /// these take blocks that a census can count.
    fn hold_more(&mut self, held: &mut Held, count: u64) -> Result<(), Error> {
        // Twice as many connections take twice as long.
        let has_time = self.has_room(2 * held.moments.second_half_took());
        let is_too_much = self.budget.is_exceeded_by_twice(held.moments.grown("2n"));
        if !held.hides_much() || !has_time || is_too_much {
            return Ok(());
        }
        if self.open("opening", count).is_ok() {
            self.opened(held, ("4n", "4N connections"), count);
            return Ok(());
        }
        // The readings so far stay valid with the connections that they are about.
        self.go_on()?;
        self.close_all()?;
        self.open("opening", held.connections)?;
        self.note_failures(held);
        Ok(())
    }

    /// Holds more connections if CPython has freed old garbage since the last ones were opened: then the memory before
    /// all connections included garbage, and only the additional ones show what each uses. They exchange the same data.
    fn hold_again(
        &mut self,
        held: &mut Held,
        more: u64,
        exchange: impl FnOnce(&mut Self, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let grown = held.moments.grown("after_quiet");
        let has_room = !self.is_late() && !self.budget.is_exceeded_by_twice(grown);
        if !has_room || held.closed_early.is_some() || !held.is_garbage_lost() {
            return Ok(());
        }
        let all = held.connections + more;
        self.open("opening more", all)?;
        exchange(self, all)?;
        self.session.pause("quiet", self.sizes.quiet, all);
        self.await_collection(held.connections);
        let again = self.census(all);
        held.moments.add_census("again", again);
        Ok(())
    }

    /// Leaves the connections idle.
    fn quiet(&mut self, held: &mut Held) {
        let alive = self.still_open(held);
        if alive == 0 {
            return;
        }
        let (began, before) = (Instant::now(), self.session.server_cpu());
        let activity = Activity::of(&self.pids());
        self.session.pause("quiet", self.sizes.quiet, alive);
        let activity = activity.since();
        let spent = self.session.server_cpu() - before;
        let spent_ns = activity.of_program_ns.unwrap_or(spent.total_ns) as f64;
        let seconds = began.elapsed().as_secs_f64() * alive as f64;
        // Closing connections takes CPU time, which is not that of idle ones.
        let is_same = self.still_open(held) == alive;
        held.idle = Some(IdleTime {
            us: is_same.then(|| spent_ns / 1e3 / seconds.max(1e-9)),
            polling: activity.polling,
        });
        self.read_open(held, ("after_quiet", "after being quiet"), true);
    }

    /// Number of held connections that the server has not closed: it may close idle ones, or those without a login.
    fn still_open(&mut self, held: &mut Held) -> u64 {
        let order = Order::Open {
            alive: 0,
            per_s: 0.0,
            in_flight_max: 1,
        };
        let report = self
            .session
            .order("counting", None, &order, |tally| tally.alive);
        let open = report.map_or(0, |report| report.of.tally.alive);
        let all = held.connections;
        if open < all && !self.session.is_over() {
            let failures = &self.session.run.failures;
            held.closed_early = Some(ended(all - open, all, &held.failures_before, failures));
        }
        open
    }

    /// Counts the objects of a language runtime while all connections are still open.
    fn objects_held(&self, held: &mut Held, detail: Detail) {
        held.objects.held = match held.closed_early {
            None => Some(self.objects(detail)),
            Some(_) => held.objects.opened.take(),
        };
    }

    fn close(&mut self, held: &mut Held) -> Result<(), Error> {
        self.close_all()?;
        let early = held.closed_early.iter();
        let notes =
            early.map(|what| format!("{what}: later figures, if any, are those of the others"));
        self.session.run.notes.extend(notes);
        self.session.pause("after closing", self.sizes.after, 0);
        // Memory of connections that the server has yet to close would seem to outlive them.
        self.drain(held.before);
        let phase = self.phase("after_close", "all closed", 0);
        held.moments.add_phase(phase);
        self.await_collection(0);
        let snapshot = self.census(0);
        held.moments.add_census("after_close", snapshot);
        Ok(())
    }
}

/// What has become of held connections. The audit itself ends those that got a wrong answer, or none in time.
fn ended(
    count: u64,
    all: u64,
    before: &BTreeMap<String, u64>,
    failures: &BTreeMap<String, u64>,
) -> String {
    let new = failures.iter().map(|(reason, count)| {
        let earlier = before.get(reason).copied().unwrap_or(0);
        (count.saturating_sub(earlier), reason)
    });
    match new.filter(|(count, _)| *count > 0).max() {
        Some((_, reason)) if !is_of_server(reason) => {
            format!("{count} of {all} idle connections ended, most because {reason}")
        }
        _ => format!("the server closed {count} of {all} idle connections"),
    }
}

fn is_of_server(reason: &str) -> bool {
    reason.starts_with("the server closed") || reason.starts_with("connection lost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_answer_is_not_an_end_by_the_server() {
        let failures = |counts: &[(&str, u64)]| {
            let counts = counts.iter();
            counts
                .map(|(reason, count)| ((*reason).to_owned(), *count))
                .collect::<BTreeMap<_, _>>()
        };
        let (closed, wrong) = (
            "the server closed the connection",
            "the echo differs from the message (integrity)",
        );
        let before = failures(&[(closed, 9), (wrong, 1)]);
        let now = failures(&[(closed, 10), (wrong, 7)]);
        assert_eq!(
            ended(7, 64, &before, &now),
            "7 of 64 idle connections ended, most because the echo differs from the message (integrity)"
        );
        for now in [failures(&[(closed, 16), (wrong, 1)]), before.clone()] {
            assert_eq!(
                ended(7, 64, &before, &now),
                "the server closed 7 of 64 idle connections"
            );
        }
    }
}
