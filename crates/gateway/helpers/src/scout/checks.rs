//! Health of backends: checks each backend periodically, and reports changes.
//!
//! A backend is up after `rise` consecutive successes, and down after `fall` consecutive failures;
//! before that nothing is reported. Each interval is randomly shortened by up to a fifth, so that the
//! checks of many backends spread out.

use super::attempt::{CheckAttempt, CheckProgress};
use super::messages::{Instruction, ScoutReport, receive_instruction};
use super::task::{Check, TlsProfile};
use super::tls::TlsContexts;
use crate::helper;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::socket::Addr;
use dormouse_reactor::{Fd, OnExec, process};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;

/// Token of the channel: main has sent another list of checks, or is gone.
const TOKEN_MAIN: u64 = u64::MAX;

/// Maximum characters of a reason.
const WORDS_MAX: usize = 400;

/// All checked backends.
pub(super) struct Checks {
    poller: Poller,
    channel: Fd,
    /// By a number that is never reused, so that a late event for a removed backend finds nothing.
    backends: BTreeMap<u64, CheckedBackend>,
    next_number: u64,
    contexts: Vec<TlsContexts>,
    random: RandomState,
    attempts: u64,
}

/// A checked backend.
struct CheckedBackend {
    check: Check,
    address: Addr,
    /// Start of the next check, or deadline of the current one.
    due_ms: u64,
    attempt: Option<CheckAttempt>,
    /// Number of checks so far.
    attempts: u64,
    /// Whether the last check succeeded.
    last_was_good: bool,
    health: HealthState,
}

/// A backend's health, derived from its checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HealthState {
    /// The health reported last.
    reported: Option<bool>,
    good_in_a_row: u32,
    bad_in_a_row: u32,
}

impl HealthState {
    /// Records a result. Returns `true` if the health has changed and must be reported.
    fn take(&mut self, good: bool, check: &Check) -> bool {
        if good {
            (self.good_in_a_row, self.bad_in_a_row) = (self.good_in_a_row.saturating_add(1), 0);
        } else {
            (self.good_in_a_row, self.bad_in_a_row) = (0, self.bad_in_a_row.saturating_add(1));
        }
        let in_a_row = self.good_in_a_row.max(self.bad_in_a_row);
        let enough = if good { check.rise } else { check.fall };
        let changes = self.reported != Some(good) && in_a_row >= enough;
        if changes {
            self.reported = Some(good);
        }
        changes
    }
}

impl CheckedBackend {
    fn end_attempt(&mut self, poller: &Poller) {
        if let Some(attempt) = self.attempt.take() {
            let _ = poller.remove(attempt.fd());
            attempt.fd().close();
        }
    }
}

impl Checks {
    /// Prepares all checks. The first checks start soon, spread over a second at most.
    pub(super) fn begin(
        checks: Vec<Check>,
        profiles: &[TlsProfile],
        channel: Fd,
    ) -> io::Result<Checks> {
        let contexts: Result<Vec<TlsContexts>, String> =
            profiles.iter().map(TlsContexts::new).collect();
        let poller = Poller::create(OnExec::Close)?;
        poller.add(channel, TOKEN_MAIN, Interest::READ)?;
        let mut all = Checks {
            poller,
            channel,
            backends: BTreeMap::new(),
            next_number: 0,
            contexts: contexts.map_err(io::Error::other)?,
            random: RandomState::new(),
            attempts: 0,
        };
        all.replace_checks(checks)?;
        Ok(all)
    }

    /// Replaces the list of checks. A backend whose check is unchanged keeps its state.
    fn replace_checks(&mut self, checks: Vec<Check>) -> io::Result<()> {
        let former = std::mem::take(&mut self.backends).into_iter();
        let by_name = |(number, checked): (u64, CheckedBackend)| {
            (checked.check.backend.clone(), (number, checked))
        };
        let mut former: HashMap<String, (u64, CheckedBackend)> = former.map(by_name).collect();
        for check in checks {
            match former.remove(&check.backend) {
                Some((number, checked)) if checked.check == check => {
                    self.backends.insert(number, checked);
                }
                other => {
                    if let Some((_, mut checked)) = other {
                        checked.end_attempt(&self.poller);
                    }
                    self.add(check)?;
                }
            }
        }
        let gone = former.values_mut();
        gone.for_each(|(_, checked)| checked.end_attempt(&self.poller));
        Ok(())
    }

    fn add(&mut self, check: Check) -> io::Result<()> {
        let address = check.backend.parse().map_err(io::Error::other)?;
        let within_ms = self.random_below(check.every_ms.min(FIRST_WITHIN_MS));
        let backend = CheckedBackend {
            check,
            address,
            due_ms: process::monotonic_ms() + within_ms,
            attempt: None,
            attempts: 0,
            last_was_good: false,
            health: HealthState::default(),
        };
        self.backends.insert(self.next_number, backend);
        self.next_number += 1;
        Ok(())
    }

    /// Checks backends until main is gone.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(64);
        loop {
            let now_ms = process::monotonic_ms();
            let due_ms = self.backends.values().map(|backend| backend.due_ms).min();
            let wait_ms = due_ms.map(|due_ms| due_ms.saturating_sub(now_ms));
            self.poller.wait(&mut events, wait_ms)?;
            for event in events.iter() {
                match event.token() {
                    TOKEN_MAIN => match receive_instruction(self.channel)? {
                        Instruction::None => {}
                        Instruction::Checks(checks) => self.replace_checks(checks)?,
                        Instruction::End => return Ok(()),
                    },
                    number => self.continue_check(number)?,
                }
            }
            let now_ms = process::monotonic_ms();
            let due = (self.backends.iter()).filter(|(_, backend)| backend.due_ms <= now_ms);
            let due: Vec<u64> = due.map(|(number, _)| *number).collect();
            for number in due {
                self.on_time(number, now_ms)?;
            }
        }
    }

    /// Starts the next check, or ends one that has timed out.
    fn on_time(&mut self, number: u64, now_ms: u64) -> io::Result<()> {
        let Some(backend) = self.backends.get_mut(&number) else {
            return Ok(());
        };
        if let Some(attempt) = &backend.attempt {
            return match attempt.late(&backend.check) {
                CheckProgress::Failed(why) => self.answered(number, Err(why)),
                CheckProgress::Passed | CheckProgress::Pending => self.answered(number, Ok(())),
            };
        }
        let tls = backend.check.tls.as_ref();
        let contexts = tls.and_then(|tls| self.contexts.get(tls.profile));
        let context =
            contexts.map(|contexts| contexts.context(backend.attempts, backend.last_was_good));
        backend.attempts += 1;
        match CheckAttempt::begin(&backend.check, &backend.address, context) {
            Ok(attempt) => {
                backend.due_ms = now_ms + backend.check.timeout_ms;
                self.poller.add(attempt.fd(), number, attempt.interest())?;
                backend.attempt = Some(attempt);
                self.continue_check(number)
            }
            Err(why) => self.answered(number, Err(why)),
        }
    }

    fn continue_check(&mut self, number: u64) -> io::Result<()> {
        let Some((check, attempt)) = self
            .backends
            .get_mut(&number)
            .and_then(|backend| Some((&backend.check, backend.attempt.as_mut()?)))
        else {
            return Ok(());
        };
        match attempt.step(check) {
            CheckProgress::Pending => {
                let (fd, interest) = (attempt.fd(), attempt.interest());
                self.poller.modify(fd, number, interest)
            }
            CheckProgress::Passed => self.answered(number, Ok(())),
            CheckProgress::Failed(why) => self.answered(number, Err(why)),
        }
    }

    fn answered(&mut self, number: u64, well: Result<(), String>) -> io::Result<()> {
        let every_ms = self
            .backends
            .get(&number)
            .map_or(0, |backend| backend.check.every_ms);
        let sooner_ms = self.random_below(every_ms / 5 + 1);
        let Some(backend) = self.backends.get_mut(&number) else {
            return Ok(());
        };
        backend.end_attempt(&self.poller);
        backend.due_ms = process::monotonic_ms() + every_ms - sooner_ms;
        backend.last_was_good = well.is_ok();
        if !backend.health.take(well.is_ok(), &backend.check) {
            return Ok(());
        }
        let backend = backend.check.backend.clone();
        let well = well.map_err(|why| why.chars().take(WORDS_MAX).collect());
        helper::report(self.channel, &ScoutReport::Health { backend, well })
    }

    /// A random number. The seed is the standard library's, so outsiders cannot predict it.
    fn random_below(&mut self, bound: u64) -> u64 {
        self.attempts += 1;
        let mut hasher = self.random.build_hasher();
        hasher.write_u64(self.attempts);
        hasher.finish() % bound.max(1)
    }
}

/// Maximum delay of a backend's first check, however long the interval.
const FIRST_WITHIN_MS: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::super::messages::send_checks;
    use super::*;
    use dormouse_handover::message;
    use dormouse_reactor::socket::{self, Attempt};
    use std::net::TcpListener;
    use std::time::Duration;

    #[test]
    fn health_changes_after_consecutive_results() {
        let check = Check {
            backend: "10.0.0.1:80".to_owned(),
            source: None,
            preface: Vec::new(),
            request: None,
            tls: None,
            every_ms: 1,
            timeout_ms: 1,
            rise: 2,
            fall: 3,
        };
        let mut health = HealthState::default();
        let answers = "bbgbbb bb gbgg gg bbgbbb";
        let told: String = answers
            .chars()
            .map(|answer| match answer {
                ' ' => ' ',
                answer => match health.take(answer == 'g', &check) {
                    true if answer == 'g' => 'U',
                    true => 'D',
                    false => '.',
                },
            })
            .collect();
        assert_eq!(told, ".....D .. ...U .. .....D");
    }
    /// A pool of two addresses: one stays, the other changes faster than a check can reach its threshold.
    #[test]
    fn health_survives_changes_of_other_backends() {
        let backends = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a listener"));
        let [stays, one, other] = backends.each_ref().map(|backend| Check {
            backend: backend.local_addr().expect("an address").to_string(),
            source: None,
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
        let well = ScoutReport::Health {
            backend: stays.backend.clone(),
            well: Ok(()),
        };
        let mut others = [other, one].into_iter().cycle();
        let told = (0..200).any(|_| {
            let next = others.next().expect("an endless iterator");
            let sent = send_checks(main, &[stays.clone(), next]).expect("sent");
            assert_eq!(sent, Attempt::Done(()));
            std::thread::sleep(Duration::from_millis(50));
            let found =
                std::iter::from_fn(|| message::receive(main).expect("a message from the scout"));
            found.into_iter().any(|found: ScoutReport| found == well)
        });
        assert!(told, "no report after three answers within 10 s");
        main.close();
        scout
            .join()
            .expect("no panic")
            .expect("an exit without an error");
        channel.close();
    }
}
