//! The redirect process: answers plain HTTP with a redirect to https, or with the response to an ACME
//! challenge (http-01).
//!
//! It parses untrusted requests, so it is a process of its own: no privileges, no file, no outgoing
//! connection, no secret. Workers never see these clients. Clients, bytes and times are all bounded. At
//! the limit of clients, a new client replaces the client with the earliest deadline.
//!
//! ```text
//!   messages   messages between main and the process
//!   client     one connection                            response  the response to a request
//! ```

mod client;
mod messages;
mod response;

pub use messages::{ChallengeOrder, ChallengeShown, HttpChallenge, RedirectArguments, Site};

use crate::helper::{self, Privileges};
use client::{Client, Next};
use dormouse_config::Log;
use dormouse_handover::message;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::process;
use dormouse_reactor::sandbox::Role;
use dormouse_reactor::socket::{self, Attempt};
use dormouse_reactor::{Fd, OnExec};
use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// Maximum number of clients.
const CLIENTS_MAX: usize = 512;
/// Maximum number of clients accepted from one listener per turn.
const ACCEPTS_PER_TURN: usize = 32;
/// Pause after a failed accept.
const RETRY: Duration = Duration::from_millis(20);

const TOKEN_MAIN: u64 = 1;
/// First token of the listeners.
const TOKEN_LISTENERS: u64 = 1000;
/// First token of the clients.
const TOKEN_CLIENTS: u64 = 1_000_000;

/// Entry point of the process; `args` is what follows the subcommand. `None`: main did not start it.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    helper::run("redirect", args, start_logs, |privileges, arguments| {
        Redirect::begin(privileges, arguments)?.run()
    })
}

struct Redirect {
    poller: Poller,
    listeners: Vec<Fd>,
    main: Fd,
    site: Site,
    challenges: Vec<HttpChallenge>,
    clients: Vec<Option<Client>>,
    /// Main has closed the channel: no more clients are accepted, and the process ends after the last one.
    is_ending: bool,
}

impl Redirect {
    fn begin(privileges: &Privileges, arguments: &RedirectArguments) -> io::Result<Redirect> {
        let redirect = Redirect {
            poller: Poller::create(OnExec::Close)?,
            listeners: arguments.listeners.iter().copied().map(Fd).collect(),
            main: Fd(arguments.channel),
            site: arguments.site,
            challenges: Vec::new(),
            clients: (0..CLIENTS_MAX).map(|_| None).collect(),
            is_ending: false,
        };
        privileges.confine(Role::Redirect)?;
        let poller = &redirect.poller;
        poller.add(redirect.main, TOKEN_MAIN, Interest::READ)?;
        for (fd, token) in redirect.listeners.iter().zip(TOKEN_LISTENERS..) {
            poller.add(*fd, token, Interest::READ)?;
        }
        Ok(redirect)
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        while !self.is_ending || self.clients.iter().any(Option::is_some) {
            self.poller.wait(&mut events, self.timeout_ms())?;
            let now_ms = process::boottime_ms();
            for event in events.iter() {
                match event.token() {
                    TOKEN_MAIN => self.receive_from_main(),
                    token @ TOKEN_CLIENTS.. => {
                        self.on_client((token - TOKEN_CLIENTS) as usize, now_ms);
                    }
                    token => {
                        self.accept(token.saturating_sub(TOKEN_LISTENERS) as usize, now_ms);
                    }
                }
            }
            self.close_late_clients(now_ms);
        }
        Ok(())
    }

    fn timeout_ms(&self) -> Option<u64> {
        let deadlines = self.clients.iter().flatten().map(|one| one.deadline_ms);
        let now_ms = process::boottime_ms();
        deadlines.min().map(|at_ms| at_ms.saturating_sub(now_ms))
    }

    // ---- main ----

    fn receive_from_main(&mut self) {
        match message::receive::<ChallengeOrder>(self.main) {
            Ok(None) => {}
            Ok(Some(order)) => {
                self.challenges = order.challenges;
                // If main is gone, the next event reports it.
                let _ = helper::report(self.main, &ChallengeShown(order.number));
            }
            Err(_) => self.end(),
        }
    }

    fn end(&mut self) {
        self.is_ending = true;
        let _ = self.poller.remove(self.main);
        for listener in self.listeners.drain(..) {
            let _ = self.poller.remove(listener);
            listener.close();
        }
    }

    // ---- clients ----

    fn accept(&mut self, listener: usize, now_ms: u64) {
        let Some(&listener) = self.listeners.get(listener) else {
            return;
        };
        for _ in 0..ACCEPTS_PER_TURN {
            let fd = match socket::accept(listener, OnExec::Close) {
                Ok(Attempt::Done(accepted)) => accepted.fd,
                Ok(Attempt::WouldBlock) => return,
                Err(error) => {
                    // Out of descriptors, probably: the listener stays ready, so close a client to free one.
                    tracing::debug!(%error, "redirect accept failed");
                    self.close_oldest();
                    return thread::sleep(RETRY);
                }
            };
            let index = self.free_place();
            if self.poller.add(fd, token(index), Interest::READ).is_err() {
                fd.close();
                continue;
            }
            self.clients[index] = Some(Client::new(fd, now_ms));
            self.on_client(index, now_ms);
        }
    }

    /// Returns a free index. If there is none, closes the client with the earliest deadline.
    fn free_place(&mut self) -> usize {
        let free = self.clients.iter().position(Option::is_none);
        free.unwrap_or_else(|| self.close_oldest())
    }

    /// Closes the client with the earliest deadline. Returns its index.
    fn close_oldest(&mut self) -> usize {
        let places = self.clients.iter().enumerate();
        let deadlines = places.filter_map(|(index, one)| Some((one.as_ref()?.deadline_ms, index)));
        let (_, index) = deadlines.min().unwrap_or_default();
        self.close(index);
        index
    }

    fn on_client(&mut self, index: usize, now_ms: u64) {
        let Some(Some(client)) = self.clients.get_mut(index) else {
            return;
        };
        let interest = match client.step(now_ms, self.site, &self.challenges) {
            Next::Read => Interest::READ,
            Next::Write => Interest::WRITE,
            Next::Close => return self.close(index),
        };
        if self
            .poller
            .modify(client.fd, token(index), interest)
            .is_err()
        {
            self.close(index);
        }
    }

    fn close_late_clients(&mut self, now_ms: u64) {
        for index in 0..self.clients.len() {
            if matches!(&self.clients[index], Some(client) if client.deadline_ms <= now_ms) {
                self.close(index);
            }
        }
    }

    fn close(&mut self, index: usize) {
        if let Some(client) = self.clients.get_mut(index).and_then(Option::take) {
            client.fd.close();
        }
    }
}

fn token(index: usize) -> u64 {
    TOKEN_CLIENTS + index as u64
}
