//! The control process: answers the admin address, and forwards orders to main.
//!
//! It has no privileges, holds no connection and no slot, and sees the counters through a read-only
//! mapping. Main starts and restarts it. If main dies, control survives, keeps answering and reports
//! that main is gone. Clients, bytes and times are all bounded.
//!
//! ```text
//!   answers  responses, and orders for main
//!   http     requests and responses                      status   GET /status
//!   client   one client                                  metrics  GET /metrics
//!   view     the data behind all answers                 routes, backends  parts of both
//!   ages     connections by age, route and backend       exposition  the text format of metrics
//! ```

mod ages;
mod answers;
mod backends;
mod client;
mod exposition;
pub(crate) mod http;
mod listener;
mod metrics;
mod routes;
mod selection;
mod status;
mod view;

use crate::helper::{self, Privileges};
use ages::Taken;
use answers::Handling;
use client::{Client, ClientStep};
use dormouse_config::Log;
use dormouse_handover::connections::{ConnectionFilter, Page, PageAction, PageOrder, PagePlace};
use dormouse_handover::control::{
    AdminOrder, AdminResult, ControlArguments, ForwardedOrder, Report,
};
use dormouse_handover::message;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::process;
use dormouse_reactor::sandbox::Role;
use dormouse_reactor::socket::{self, Attempt};
use dormouse_reactor::{Fd, OnExec, shared};
use dormouse_tables::backends::{BackendFds, Backends};
use dormouse_tables::traffic::Traffic;
use http::{Request, Response};
use listener::{Access, ControlListener};
use std::io;
use std::process::ExitCode;
use view::View;

/// Maximum number of clients. At the limit, a new client replaces one that does not wait for main.
const CLIENTS_MAX: usize = 32;
/// Maximum bytes of responses that wait for their clients to read them, if it is more than one: a response about all of
/// ten thousand routes has tens of megabytes.
const UNSENT_MAX: usize = 32 << 20;
/// Maximum number of clients accepted from one listener per turn.
const ACCEPTS_PER_TURN: usize = 8;
/// Interval at which control checks for remaining workers after main's death.
const POLL_MS: u64 = 1_000;
/// Pause in accepting after it has failed.
const PAUSE_MS: u64 = 1_000;
/// Time for the last clients after main has ended this process.
const LAST_CLIENTS_MS: u64 = 500;
/// Time for a new binary to report that it runs. One that is too old to report it is believed after this time.
const REPLACEMENT_MS: u64 = 10_000;

const TOKEN_MAIN: u64 = 1;
/// First token of the listeners.
const TOKEN_LISTENERS: u64 = 2;
/// First token of the clients.
const TOKEN_CLIENTS: u64 = 100;

/// Entry point of the process; `args` is what follows the subcommand. `None`: main did not start it.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    helper::run("control", args, start_logs, |privileges, arguments| {
        Control::begin(privileges, arguments)?.run()
    })
}

struct Control {
    poller: Poller,
    listeners: Vec<ControlListener>,
    owner: u32,
    main: Fd,
    clients: Vec<Option<Client>>,
    last_order: u64,
    /// When it accepts again after a failure.
    accepts_at_ms: Option<u64>,
    view: View,
    /// When this process exits even if clients are left. `None`: main needs it.
    ends_at_ms: Option<u64>,
    replacement: Option<Replacement>,
}

/// A new binary that is about to take main's place. If it does not get that far, main is dead, and this process reports
/// that.
struct Replacement {
    /// The result of the upgrade.
    once_running: Option<AdminResult>,
    late_at_ms: u64,
}

impl Control {
    fn begin(privileges: &Privileges, arguments: &ControlArguments) -> io::Result<Control> {
        let counters = shared::View::open(Fd(arguments.counters), arguments.workers as usize)
            .map_err(io::Error::other)?;
        let backends = BackendFds {
            roster: Fd(arguments.roster),
            marks: Fd(arguments.backends),
        };
        let backends = Backends::view(backends, arguments.workers).map_err(io::Error::other)?;
        let traffic =
            Traffic::view(Fd(arguments.traffic), arguments.workers).map_err(io::Error::other)?;
        let mut control = Control {
            poller: Poller::create(OnExec::Close)?,
            listeners: ControlListener::all(arguments),
            owner: arguments.owner,
            main: Fd(arguments.channel),
            clients: (0..CLIENTS_MAX).map(|_| None).collect(),
            last_order: first_order(arguments.restarts),
            accepts_at_ms: None,
            view: View::new(counters, backends, traffic, arguments.restarts),
            ends_at_ms: None,
            replacement: None,
        };
        privileges.confine(Role::Control)?;
        let poller = &control.poller;
        poller.add(control.main, TOKEN_MAIN, Interest::READ)?;
        for (n, listener) in control.listeners.iter_mut().enumerate() {
            listener.start_polling(poller, TOKEN_LISTENERS + n as u64)?;
        }
        Ok(control)
    }

    /// Answers requests until the program ends.
    fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(64);
        loop {
            self.poller.wait(&mut events, self.timeout_ms())?;
            for event in events.iter() {
                match event.token() {
                    token @ TOKEN_LISTENERS..TOKEN_CLIENTS => {
                        self.accept((token - TOKEN_LISTENERS) as usize);
                    }
                    TOKEN_MAIN => self.receive_report(),
                    token => self.on_client(token.saturating_sub(TOKEN_CLIENTS) as usize),
                }
            }
            self.end_late_clients();
            self.end_late_replacement();
            self.end_pause();
            if !self.view.main_alive() && !self.view.is_any_process_serving() {
                tracing::info!("no workers left; control process exiting");
                return Ok(());
            }
            if self.is_over() {
                return Ok(());
            }
        }
    }

    fn timeout_ms(&self) -> Option<u64> {
        let now_ms = process::boottime_ms();
        let deadlines = self.clients.iter().flatten().map(|c| c.deadline_ms);
        let poll_ms = (!self.view.main_alive()).then_some(now_ms + POLL_MS);
        let replaced_ms = self.replacement.as_ref().map(|new| new.late_at_ms);
        let others = [poll_ms, self.ends_at_ms, replaced_ms, self.accepts_at_ms];
        let next = deadlines.chain(others.into_iter().flatten()).min();
        next.map(|deadline_ms| deadline_ms.saturating_sub(now_ms))
    }

    // ---- main ----

    /// Handles a message from main.
    fn receive_report(&mut self) {
        match message::receive(self.main) {
            Ok(None) => {}
            Ok(Some(Report::State(state))) => self.take_report(|view| view.set_state(state)),
            Ok(Some(Report::Listing(part))) => self.take_report(|view| view.list(part)),
            Ok(Some(Report::Result(result))) => self.answer(&result),
            Ok(Some(Report::Page(id, page))) => self.take_page(id, &page),
            Ok(Some(Report::Replacing { once_running })) => self.begin_replacement(once_running),
            Ok(Some(Report::Replaced)) => self.end_replacement(),
            Ok(Some(Report::End)) => self.end(),
            Err(error) => {
                tracing::error!(%error, "main process gone; control process still answers queries");
                let _ = self.poller.remove(self.main);
                self.view.note_main_death();
                // The next start must be able to bind the port of the metrics. A unix socket stays open: the next
                // start replaces its path.
                self.close_listeners_except(Some(Access::Orders));
                self.replacement = None;
                self.start_listening();
                self.respond_to_waiting(&answers::gone());
                self.end_count();
            }
        }
    }

    /// Takes a part of main's report. The clients that wait for the first one get their answers when it is complete.
    fn take_report(&mut self, take: impl FnOnce(&mut View)) {
        let was_complete = self.view.is_complete();
        take(&mut self.view);
        if was_complete || !self.view.is_complete() {
            return;
        }
        for index in 0..self.clients.len() {
            if let Some(request) = self.take_waiting_request(index) {
                self.handle(index, request, process::boottime_ms());
            }
        }
    }

    /// Stops accepting until the new binary runs: new requests wait for its control process.
    fn begin_replacement(&mut self, once_running: Option<AdminResult>) {
        for listener in &mut self.listeners {
            listener.stop_polling(&self.poller);
        }
        self.replacement = Some(Replacement {
            once_running,
            late_at_ms: process::boottime_ms() + REPLACEMENT_MS,
        });
    }

    /// Gives the result of the upgrade to its client, and makes room for the new binary's control process.
    fn end_replacement(&mut self) {
        let result = self.replacement.take().and_then(|new| new.once_running);
        if let Some(result) = result {
            self.answer(&result);
        }
        self.end();
    }

    fn end_late_replacement(&mut self) {
        let is_late = |new: &Replacement| new.late_at_ms <= process::boottime_ms();
        if self.replacement.as_ref().is_some_and(is_late) {
            self.end_replacement();
        }
    }

    /// Ends this process after the last answers. New requests wait for the next control process, if there is one.
    fn end(&mut self) {
        self.close_listeners_except(None);
        let _ = self.poller.remove(self.main);
        self.respond_to_waiting(&answers::ended());
        self.end_count();
        self.ends_at_ms = Some(process::boottime_ms() + LAST_CLIENTS_MS);
    }

    /// Answers the client that waits for this result.
    fn answer(&mut self, result: &AdminResult) {
        if self.view.ages.waits_for(result.id) {
            self.end_count();
        }
        self.give_to(result.id, &answers::answered(result));
    }

    /// Sends a response to the client that waits for the result of this order.
    fn give_to(&mut self, order: u64, response: &Response) {
        let waits = |client: &Client| client.waits_for(order);
        let mut clients = self.clients.iter();
        if let Some(index) = clients.position(|c| c.as_ref().is_some_and(waits)) {
            self.respond(index, response);
        }
    }

    fn is_over(&self) -> bool {
        let is_late = |at_ms| at_ms <= process::boottime_ms();
        self.ends_at_ms
            .is_some_and(|at_ms| is_late(at_ms) || self.clients.iter().all(Option::is_none))
    }

    fn close_listeners_except(&mut self, stays: Option<Access>) {
        let poller = &self.poller;
        self.listeners.retain_mut(|listener| {
            let stays = Some(listener.access) == stays;
            if !stays {
                listener.close(poller);
            }
            stays
        });
    }

    /// Answers all clients that wait for main.
    fn respond_to_waiting(&mut self, response: &Response) {
        for index in 0..self.clients.len() {
            if self.clients[index].as_ref().is_some_and(Client::waits) {
                self.respond(index, response);
            }
        }
    }

    // ---- clients ----

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(index) = self.accept_one(listener) else {
                return;
            };
            // Its request may be here already. Otherwise the next clients could replace it unheard.
            self.on_client(index);
        }
    }

    /// Returns the index of the next client.
    fn accept_one(&mut self, listener: usize) -> Option<usize> {
        let listener = self.listeners.get_mut(listener)?;
        let access = listener.access;
        let Some(index) = place_for(access, &self.clients) else {
            listener.stop_polling(&self.poller);
            return None;
        };
        let fd = match listener.accept() {
            Ok(accepted) => accepted?,
            Err(error) => {
                tracing::warn!(%error, "control accept failed");
                // Out of descriptors or memory, probably: the listener stays ready meanwhile.
                listener.stop_polling(&self.poller);
                self.accepts_at_ms = Some(process::boottime_ms() + PAUSE_MS);
                return None;
            }
        };
        let mut client = Client::new(fd, access, process::boottime_ms());
        let watched = self.poller.add(fd, token(index), Interest::READ);
        if watched.is_err() || !is_allowed(&mut client, self.owner) {
            fd.close();
            return None;
        }
        if let Some(replaced) = self.clients[index].replace(client) {
            replaced.fd.close();
        }
        Some(index)
    }

    fn on_client(&mut self, index: usize) {
        let now_ms = process::boottime_ms();
        let Some(Some(client)) = self.clients.get_mut(index) else {
            return;
        };
        match client.step(now_ms) {
            ClientStep::Pending => self.watch(index),
            ClientStep::Closed => self.drop_client(index),
            ClientStep::Request(request) => self.handle(index, request, now_ms),
        }
    }

    /// Answers a request when there is what its answer needs.
    fn handle(&mut self, index: usize, request: Request, now_ms: u64) {
        let is_counting = answers::has_ages(&request) && self.count_ages(now_ms);
        if !is_counting && !answers::is_early(&request, &self.view) {
            self.reply(index, &request);
        } else if let Some(Some(client)) = self.clients.get_mut(index) {
            client.wait_for_figures(request, now_ms);
        }
    }

    /// Answers a request, or forwards its order.
    fn reply(&mut self, index: usize, request: &Request) {
        let Some(Some(client)) = self.clients.get(index) else {
            return;
        };
        match answers::reply(request, &self.view, client.access) {
            Handling::Respond(response) => {
                let response = match has_room_for(&response, &self.clients) {
                    true => response,
                    false => answers::busy(),
                };
                let is_head = request.is_head();
                self.respond(
                    index,
                    &Response {
                        is_head,
                        ..response
                    },
                );
            }
            Handling::Forward(order) => self.forward(index, order, process::boottime_ms()),
        }
    }

    /// Sends an order to main, and returns its id.
    fn send_order(&mut self, order: AdminOrder) -> io::Result<Attempt<u64>> {
        self.last_order += 1;
        let id = self.last_order;
        let sent = message::send(self.main, &ForwardedOrder { id, order })?;
        Ok(match sent {
            Attempt::Done(()) => Attempt::Done(id),
            Attempt::WouldBlock => Attempt::WouldBlock,
        })
    }

    fn forward(&mut self, index: usize, order: AdminOrder, now_ms: u64) {
        match self.send_order(order) {
            Ok(Attempt::Done(id)) => {
                if let Some(Some(client)) = self.clients.get_mut(index) {
                    client.wait_for(id, now_ms);
                }
            }
            Ok(Attempt::WouldBlock) => self.respond(index, &answers::too_late()),
            Err(_) if self.ends_at_ms.is_some() => self.respond(index, &answers::ended()),
            Err(_) => self.respond(index, &answers::gone()),
        }
    }

    // ---- connections by age ----

    /// Begins to count connections by age if it is time. Returns whether their numbers are worth waiting for.
    fn count_ages(&mut self, now_ms: u64) -> bool {
        let can_ask = self.view.main_alive() && self.ends_at_ms.is_none();
        if can_ask && self.view.ages.are_due(now_ms) {
            match self.order_ages(PagePlace::of_worker(0)) {
                Some(id) => self.view.ages.begin(id, now_ms),
                None => self.view.ages.give_up(),
            }
        }
        self.view.ages.is_counting(now_ms)
    }

    /// Orders a page of numbers. `None`: it cannot be ordered now.
    fn order_ages(&mut self, from: PagePlace) -> Option<u64> {
        let order = PageOrder {
            filter: ConnectionFilter::default(),
            action: PageAction::CountAges,
            from,
        };
        match self.send_order(AdminOrder::Page(Box::new(order))) {
            Ok(Attempt::Done(id)) => Some(id),
            Ok(Attempt::WouldBlock) | Err(_) => None,
        }
    }

    /// Takes a page of connections: for a client, or for the count.
    fn take_page(&mut self, id: u64, page: &Page) {
        let now_ms = process::boottime_ms();
        match self.view.ages.take(id, page, now_ms) {
            Taken::Not => self.give_to(id, &answers::page(page, &self.view)),
            Taken::Next(from) => match self.order_ages(from) {
                Some(next) => self.view.ages.proceed(next, now_ms),
                None => self.end_count(),
            },
            Taken::Done => self.end_count(),
        }
    }

    /// Ends the count, and answers all who wait for it, with the last numbers if it has brought none.
    fn end_count(&mut self) {
        self.view.ages.give_up();
        for index in 0..self.clients.len() {
            self.answer_waiting(index);
        }
    }

    /// Answers a client if it waits for main's first report or numbers by age. Returns whether it did.
    fn answer_waiting(&mut self, index: usize) -> bool {
        let request = self.take_waiting_request(index);
        if let Some(request) = &request {
            self.reply(index, request);
        }
        request.is_some()
    }

    fn take_waiting_request(&mut self, index: usize) -> Option<Request> {
        let client = self.clients.get_mut(index).and_then(Option::as_mut);
        client.and_then(Client::take_waiting_request)
    }

    fn respond(&mut self, index: usize, response: &Response) {
        let now_ms = process::boottime_ms();
        let Some(Some(client)) = self.clients.get_mut(index) else {
            return;
        };
        match client.respond(response, now_ms) {
            ClientStep::Closed => self.drop_client(index),
            _ => self.watch(index),
        }
    }

    fn watch(&mut self, index: usize) {
        let Some(Some(client)) = self.clients.get(index) else {
            return;
        };
        let watched = self
            .poller
            .modify(client.fd, token(index), client.interest());
        if watched.is_err() {
            self.drop_client(index);
        }
    }

    /// Accepts again if the pause after a failure is over.
    fn end_pause(&mut self) {
        let now_ms = process::boottime_ms();
        if self
            .accepts_at_ms
            .take_if(|at_ms| *at_ms <= now_ms)
            .is_some()
            && self.replacement.is_none()
        {
            self.start_listening();
        }
    }

    fn end_late_clients(&mut self) {
        let now_ms = process::boottime_ms();
        for index in 0..self.clients.len() {
            let Some(client) = &self.clients[index] else {
                continue;
            };
            if client.deadline_ms > now_ms {
                continue;
            }
            if client.waits() {
                self.respond(index, &answers::too_late());
            } else if !self.answer_waiting(index) {
                self.drop_client(index);
            }
        }
    }

    fn drop_client(&mut self, index: usize) {
        if let Some(client) = self.clients.get_mut(index).and_then(Option::take) {
            client.fd.close();
        }
        if self.replacement.is_none() && self.accepts_at_ms.is_none() {
            self.start_listening();
        }
    }

    fn start_listening(&mut self) {
        for (n, listener) in self.listeners.iter_mut().enumerate() {
            // If polling fails, the next closed client tries it again.
            let _ = listener.start_polling(&self.poller, TOKEN_LISTENERS + n as u64);
        }
    }
}

/// Returns the index for a new client: a free one, or at the limit that of the client to replace. `None`: all wait for
/// answers of main. A client at the address of metrics replaces only another one there.
fn place_for(access: Access, clients: &[Option<Client>]) -> Option<usize> {
    let all = || {
        let places = clients.iter().enumerate();
        places.filter_map(|(index, client)| Some((index, client.as_ref()?)))
    };
    let of_same = all().filter(|(_, client)| client.access == access).count();
    let free = clients.iter().position(Option::is_none);
    free.filter(|_| of_same < access.clients_max()).or_else(|| {
        let replaced = all()
            .filter(|(_, client)| client.access == access || access == Access::Orders)
            .filter_map(|(index, client)| Some((client.rank()?, index)));
        replaced.min().map(|(_, index)| index)
    })
}

/// Whether there is memory for a response beside those that clients are reading.
fn has_room_for(response: &Response, clients: &[Option<Client>]) -> bool {
    let unsent: usize = clients.iter().flatten().map(Client::unsent).sum();
    unsent == 0 || unsent + response.body.len() <= UNSENT_MAX
}

/// On the admin socket, admits only the owner and root, whatever the mode of the file.
fn is_allowed(client: &mut Client, owner: u32) -> bool {
    if client.access != Access::Orders {
        return true;
    }
    match socket::peer_user_id(client.fd) {
        Ok(uid) if uid == 0 || uid == owner => true,
        Ok(uid) => {
            tracing::warn!(uid, "admin request denied");
            let words = "only root and the user who runs dormouse may use the admin socket";
            let _ = client.respond(&Response::words(403, words), process::boottime_ms());
            false
        }
        Err(_) => false,
    }
}

/// Number before the first order. Main may still answer orders of the process before this one, to which no client of
/// this one may listen.
fn first_order(restarts: u32) -> u64 {
    u64::from(restarts) << 32
}

fn token(index: usize) -> u64 {
    TOKEN_CLIENTS + index as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd as _;
    use std::os::unix::net::UnixStream;

    /// Anybody who reaches the address of metrics may ask for all of thousands of routes, and read nothing.
    #[test]
    fn long_responses_that_nobody_reads_have_a_limit() {
        let response = |len: usize| Response {
            body: "x".repeat(len),
            ..Response::words(200, "")
        };
        let (long, short) = (response(UNSENT_MAX), response(8));
        let (peer, ours) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("set");
        let access = Access::Questions { is_loopback: true };
        let mut client = Client::new(Fd(ours.into_raw_fd()), access, 0);
        let mut clients = vec![None];
        assert!(has_room_for(&long, &clients), "one may be longer");
        let _ = client.respond(&response(UNSENT_MAX / 2), 0);
        let fd = client.fd;
        clients.push(Some(client));
        assert!(!has_room_for(&long, &clients) && has_room_for(&short, &clients));
        fd.close();
        drop(peer);
    }
}
