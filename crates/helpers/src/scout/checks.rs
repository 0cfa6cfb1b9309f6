//! Whether backends are well: each is asked now and then, and what changes is told.
//!
//! A backend is taken to be well, or not, after so many good or bad answers in a row; before that
//! nothing is said. Questions go out one by one in the order of their times, each time up to a
//! fifth sooner than the interval, so that backends are not all asked at once.

use super::question::{Next, Question};
use super::tls::TlsContexts;
use super::{Check, Finding, Heard, Speech};
use crate::beside;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::socket::Addr;
use dormouse_reactor::{Fd, OnExec, process};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;

/// Main has others to be asked, or is gone.
const TOKEN_MAIN: u64 = u64::MAX;

/// A reason in words is cut to this.
const WORDS_MAX: usize = 400;

/// All that are asked.
pub(super) struct Checks {
    poller: Poller,
    channel: Fd,
    /// By a number that no other backend has had: an event for one that is gone finds nobody.
    asked: BTreeMap<u64, Asked>,
    next_number: u64,
    contexts: Vec<TlsContexts>,
    random: RandomState,
    questions: u64,
}

/// A backend which is asked.
struct Asked {
    check: Check,
    address: Addr,
    /// The next question, or the end of the time for this one's answer.
    due_ms: u64,
    question: Option<Question>,
    /// Questions so far, and whether the last answer was a good one.
    questions: u64,
    last_was_good: bool,
    verdict: Verdict,
}

/// What the answers until now come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// What was told last.
    told: Option<bool>,
    good_in_a_row: u32,
    bad_in_a_row: u32,
}

impl Verdict {
    /// Takes an answer. `true`: what is to be told has changed.
    fn take(&mut self, good: bool, check: &Check) -> bool {
        if good {
            (self.good_in_a_row, self.bad_in_a_row) = (self.good_in_a_row.saturating_add(1), 0);
        } else {
            (self.good_in_a_row, self.bad_in_a_row) = (0, self.bad_in_a_row.saturating_add(1));
        }
        let in_a_row = self.good_in_a_row.max(self.bad_in_a_row);
        let enough = if good { check.rise } else { check.fall };
        let changes = self.told != Some(good) && in_a_row >= enough;
        if changes {
            self.told = Some(good);
        }
        changes
    }
}

impl Asked {
    fn end_question(&mut self, poller: &Poller) {
        if let Some(question) = self.question.take() {
            let _ = poller.remove(question.fd());
            question.fd().close();
        }
    }
}

impl Checks {
    /// Makes everything ready; the first questions come within their intervals.
    pub(super) fn begin(
        checks: Vec<Check>,
        speeches: &[Speech],
        channel: Fd,
    ) -> io::Result<Checks> {
        let contexts: Result<Vec<TlsContexts>, String> =
            speeches.iter().map(TlsContexts::new).collect();
        let poller = Poller::create(OnExec::Close)?;
        poller.add(channel, TOKEN_MAIN, Interest::READ)?;
        let mut all = Checks {
            poller,
            channel,
            asked: BTreeMap::new(),
            next_number: 0,
            contexts: contexts.map_err(io::Error::other)?,
            random: RandomState::new(),
            questions: 0,
        };
        all.ask_these(checks)?;
        Ok(all)
    }

    /// From now on these are asked. Whoever was asked before, in the same way, stays, with all that
    /// is known of it.
    fn ask_these(&mut self, checks: Vec<Check>) -> io::Result<()> {
        let former = std::mem::take(&mut self.asked).into_iter();
        let by_name =
            |(number, asked): (u64, Asked)| (asked.check.backend.clone(), (number, asked));
        let mut former: HashMap<String, (u64, Asked)> = former.map(by_name).collect();
        for check in checks {
            match former.remove(&check.backend) {
                Some((number, asked)) if asked.check == check => {
                    self.asked.insert(number, asked);
                }
                other => {
                    if let Some((_, mut asked)) = other {
                        asked.end_question(&self.poller);
                    }
                    self.begin_to_ask(check)?;
                }
            }
        }
        let gone = former.values_mut();
        gone.for_each(|(_, asked)| asked.end_question(&self.poller));
        Ok(())
    }

    fn begin_to_ask(&mut self, check: Check) -> io::Result<()> {
        let address = check.backend.parse().map_err(io::Error::other)?;
        let within_ms = self.random_below(check.every_ms.min(FIRST_WITHIN_MS));
        let asked = Asked {
            check,
            address,
            due_ms: process::monotonic_ms() + within_ms,
            question: None,
            questions: 0,
            last_was_good: false,
            verdict: Verdict::default(),
        };
        self.asked.insert(self.next_number, asked);
        self.next_number += 1;
        Ok(())
    }

    /// Asks until main is gone.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(64);
        loop {
            let now_ms = process::monotonic_ms();
            let due_ms = self.asked.values().map(|asked| asked.due_ms).min();
            let wait_ms = due_ms.map(|due_ms| due_ms.saturating_sub(now_ms));
            self.poller.wait(&mut events, wait_ms)?;
            for event in events.iter() {
                match event.token() {
                    TOKEN_MAIN => match super::hear_checks(self.channel)? {
                        Heard::Nothing => {}
                        Heard::Checks(checks) => self.ask_these(checks)?,
                        Heard::End => return Ok(()),
                    },
                    number => self.go_on(number)?,
                }
            }
            let now_ms = process::monotonic_ms();
            let due = (self.asked.iter()).filter(|(_, asked)| asked.due_ms <= now_ms);
            let due: Vec<u64> = due.map(|(number, _)| *number).collect();
            for number in due {
                self.on_time(number, now_ms)?;
            }
        }
    }

    /// Time for the next question, or the time for an answer is over.
    fn on_time(&mut self, number: u64, now_ms: u64) -> io::Result<()> {
        let Some(asked) = self.asked.get_mut(&number) else {
            return Ok(());
        };
        if let Some(question) = &asked.question {
            return match question.late(&asked.check) {
                Next::Ill(why) => self.answered(number, Err(why)),
                Next::Well | Next::Wait => self.answered(number, Ok(())),
            };
        }
        let tls = asked.check.tls.as_ref();
        let contexts = tls.and_then(|tls| self.contexts.get(tls.speech));
        let context =
            contexts.map(|contexts| contexts.context(asked.questions, asked.last_was_good));
        asked.questions += 1;
        match Question::begin(&asked.check, &asked.address, context) {
            Ok(question) => {
                asked.due_ms = now_ms + asked.check.timeout_ms;
                self.poller
                    .add(question.fd(), number, question.interest())?;
                asked.question = Some(question);
                self.go_on(number)
            }
            Err(why) => self.answered(number, Err(why)),
        }
    }

    fn go_on(&mut self, number: u64) -> io::Result<()> {
        let Some((asked, question)) = self
            .asked
            .get_mut(&number)
            .and_then(|asked| Some((&asked.check, asked.question.as_mut()?)))
        else {
            return Ok(());
        };
        match question.step(asked) {
            Next::Wait => {
                let (fd, interest) = (question.fd(), question.interest());
                self.poller.modify(fd, number, interest)
            }
            Next::Well => self.answered(number, Ok(())),
            Next::Ill(why) => self.answered(number, Err(why)),
        }
    }

    fn answered(&mut self, number: u64, well: Result<(), String>) -> io::Result<()> {
        let every_ms = self
            .asked
            .get(&number)
            .map_or(0, |asked| asked.check.every_ms);
        let sooner_ms = self.random_below(every_ms / 5 + 1);
        let Some(asked) = self.asked.get_mut(&number) else {
            return Ok(());
        };
        asked.end_question(&self.poller);
        asked.due_ms = process::monotonic_ms() + every_ms - sooner_ms;
        asked.last_was_good = well.is_ok();
        if !asked.verdict.take(well.is_ok(), &asked.check) {
            return Ok(());
        }
        let backend = asked.check.backend.clone();
        let well = well.map_err(|why| why.chars().take(WORDS_MAX).collect());
        beside::tell(self.channel, &Finding::Health { backend, well })
    }

    /// Not known to anybody outside: what the standard library seeds its own tables with.
    fn random_below(&mut self, bound: u64) -> u64 {
        self.questions += 1;
        let mut hasher = self.random.build_hasher();
        hasher.write_u64(self.questions);
        hasher.finish() % bound.max(1)
    }
}

/// The first question to a backend comes within this time, however long the interval.
const FIRST_WITHIN_MS: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::super::tell_checks;
    use super::*;
    use dormouse_handover::talk;
    use dormouse_reactor::socket::{self, Attempt};
    use std::net::TcpListener;
    use std::time::Duration;

    #[test]
    fn it_takes_some_answers_in_a_row() {
        let check = Check {
            backend: "10.0.0.1:80".to_owned(),
            preface: Vec::new(),
            request: None,
            tls: None,
            every_ms: 1,
            timeout_ms: 1,
            rise: 2,
            fall: 3,
        };
        let mut verdict = Verdict::default();
        let answers = "bbgbbb bb gbgg gg bbgbbb";
        let told: String = answers
            .chars()
            .map(|answer| match answer {
                ' ' => ' ',
                answer => match verdict.take(answer == 'g', &check) {
                    true if answer == 'g' => 'U',
                    true => 'D',
                    false => '.',
                },
            })
            .collect();
        assert_eq!(told, ".....D .. ...U .. .....D");
    }
    /// A pool of which one address stays while the other is replaced more often than it is asked.
    #[test]
    fn what_is_known_of_an_address_outlives_the_changes_of_others() {
        let backends = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a listener"));
        let [stays, one, other] = backends.each_ref().map(|backend| Check {
            backend: backend.local_addr().expect("an address").to_string(),
            preface: Vec::new(),
            request: None,
            tls: None,
            every_ms: 200,
            timeout_ms: 1_000,
            rise: 3,
            fall: 3,
        });
        let (main, channel) = socket::channel(OnExec::Close).expect("a channel");
        let first = vec![stays.clone(), one.clone()];
        let checks = Checks::begin(first, &[], channel).expect("ready");
        let scout = std::thread::spawn(move || checks.run());
        let well = Finding::Health {
            backend: stays.backend.clone(),
            well: Ok(()),
        };
        let mut others = [other, one].into_iter().cycle();
        let told = (0..200).any(|_| {
            let next = others.next().expect("one of two");
            let told = tell_checks(main, &[stays.clone(), next]).expect("told");
            assert_eq!(told, Attempt::Done(()));
            std::thread::sleep(Duration::from_millis(50));
            let found = std::iter::from_fn(|| talk::receive(main).expect("the scout is there"));
            found.into_iter().any(|found: Finding| found == well)
        });
        assert!(told, "10 s were too short for three answers");
        main.close();
        scout.join().expect("no panic").expect("a proper end");
        channel.close();
    }
}
