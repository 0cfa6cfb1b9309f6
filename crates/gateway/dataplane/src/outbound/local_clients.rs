//! Local clients that have connected: each gets a warm connection, or a new one.

use super::Outbound;
use super::approach::starttls;
use super::attempt::{Attempt, Stage};
use super::local_opening::LocalOpening;
use crate::context::WorkerContext;
use crate::door::admission;
use crate::io::Io;
use crate::outcome::LocalClient;
use crate::token::{self, Id};
use crate::workspace::Workspace;
use dormouse_config::Starttls;
use dormouse_tables::counters::Count;

impl Outbound {
    /// Accepts a local client, and gives it a connection to a server.
    pub(crate) fn accept<I: Io>(
        &mut self,
        client: LocalClient,
        route: u16,
        cx: &mut WorkerContext<I>,
    ) {
        cx.work.count.add(Count::Accepted, 1);
        // A warm connection is one of those that the limits count.
        let has_warm = self.pool(route).is_some_and(|pool| pool.ready() > 0);
        if !has_warm && !admission::admit_local(route, &cx.settings, &mut cx.work) {
            return client.reset(&cx.work.io);
        }
        match starttls(route, &cx.settings) {
            Starttls::Postgres => self.await_client(client, route, cx),
            _ => self.provide(client, route, cx),
        }
    }

    /// Waits for the first bytes of a local client.
    fn await_client<I: Io>(&mut self, client: LocalClient, route: u16, cx: &mut WorkerContext<I>) {
        let stage = Stage::AwaitsClient(LocalOpening::default());
        let timeout_ms = cx.settings.limits.handshake_timeout_ms;
        let id = self.insert(Some(client), route, (stage, None), timeout_ms, cx);
        let interest = self.attempts.at(id).interest();
        let watched = cx
            .work
            .io
            .watch(client.fd, token::origination(id), interest);
        if watched.is_err() {
            self.dismiss(id, &cx.work);
        }
    }

    /// Reads the first bytes of a local client, and gives it a connection if they are for a server.
    pub(super) fn on_client<I: Io>(&mut self, id: Id, cx: &mut WorkerContext<I>) {
        let attempt = self.attempts.at(id);
        let (Stage::AwaitsClient(opening), Some(client)) = (&mut attempt.stage, attempt.client)
        else {
            unreachable!("the attempt awaits its client");
        };
        let answered = opening.answer(client.fd, &mut cx.work);
        let answered = answered.and_then(|is_done| match is_done {
            // From now on its slot watches it.
            true => cx.work.io.unwatch(client.fd).map(|()| true),
            false => Ok(false),
        });
        match answered {
            Ok(false) => {}
            Ok(true) => {
                let route = self.attempts.take(id).route;
                self.provide(client, route, cx);
            }
            Err(error) => {
                tracing::debug!(%error, "local client left before its first message");
                self.dismiss(id, &cx.work);
            }
        }
    }

    /// Closes the connection of a local client for which no server was tried.
    pub(super) fn dismiss<I: Io>(&mut self, id: Id, work: &Workspace<I>) {
        let attempt = self.attempts.take(id);
        self.lose(attempt.client, attempt.route, work);
        self.given_up += 1;
    }

    /// Gives a local client a warm connection, or begins a new one.
    fn provide<I: Io>(&mut self, client: LocalClient, route: u16, cx: &mut WorkerContext<I>) {
        while let Some(warm) = self.pool(route).and_then(|pool| pool.pop(cx.work.now_ms)) {
            let WorkerContext {
                settings,
                work,
                connections,
            } = cx;
            if connections.give_warm(warm, client, settings, work) {
                work.count.add(Count::WarmGiven, 1);
                return;
            }
        }
        self.originate(Some(client), route, cx);
    }

    /// Whether the limits of the origination have room for a connection that is established now. Others may have taken the
    /// room meanwhile. A connection to a backend belongs to one that is counted.
    pub(super) fn has_room<I>(attempt: &Attempt, cx: &mut WorkerContext<I>) -> bool {
        let (route, settings) = (attempt.route, &cx.settings);
        match (&attempt.request, attempt.client) {
            (Some(_), _) => true,
            (None, Some(_)) => admission::admit_local(route, settings, &mut cx.work),
            (None, None) => admission::has_room_for_warm(route, settings, &cx.work),
        }
    }
}
