//! Another configuration for what comes next.
//!
//! A slot says nothing of the configuration that its connection was accepted under but the number
//! of a route, and numbers keep their meaning: so a reload changes tables, and touches no
//! connection. (Warm connections of an origination that was changed are nobody's yet; they are
//! renewed.) Handshakes in flight hold what they need of the old tables until they are done;
//! when the last of them is, nothing is left of those.
//!
//! The descriptor of the handover is given a new meaning last of all, and in one step: a worker
//! that dies before it is followed by one which begins with the old configuration (and is told of
//! the new one as soon as it is ready), one that dies after it by one which begins with the new.

use super::Worker;
use super::accepting::Listener;
use crate::backend_tls;
use crate::config::{Backend, Originate};
use crate::contexts;
use crate::handover::{Descriptors, ForKeeper, Handover, OriginPem};
use crate::orders::{self, Word};
use crate::origin;
use crate::route::{self, Route};
use crate::session_cache::Sessions;
use dormouse_reactor::{Fd, OnExec, process};
use std::io;
use std::net::SocketAddr;

impl Worker {
    /// Goes by this handover from now on, or stays with the one before.
    pub(super) fn reload(&mut self, told: Fd, edition: u64) {
        let listeners = std::mem::take(&mut self.arrived);
        let reloaded = self.take_over(told, &listeners);
        told.close();
        let word = match reloaded {
            Ok(()) => {
                if self.late.take().is_some() {
                    orders::say(self.orders, &Word::Ready);
                }
                Word::Reloaded(edition)
            }
            Err(error) => {
                listeners.iter().for_each(|fd| fd.close());
                tracing::error!(%error, "the new configuration can't be used; the old one stays");
                Word::NotReloaded(edition, error.to_string())
            }
        };
        process::return_heap();
        orders::say(self.orders, &word);
    }

    fn take_over(&mut self, told: Fd, listeners: &[Fd]) -> io::Result<()> {
        let mut handover = Handover::read(told)?;
        let own = Handover::read(self.handover)?;
        let sessions = Sessions::adopt(&own.descriptors)?;
        let mut routes = contexts::routes(
            &handover.config,
            &handover.certificates,
            &handover.clients,
            &handover.ticket_keys,
            &self.tools.backends,
            sessions.as_ref(),
            &mut self.identities,
        )
        .map_err(io::Error::other)?;
        backend_tls::make_contexts(&handover.config, &handover.backend_tls, &mut routes)
            .map_err(io::Error::other)?;
        if listeners.len() != handover.descriptors.listeners.len() {
            return Err(io::Error::other("listeners are missing"));
        }
        // The numbers are those of this table; main can't know them.
        let routes_of_listeners = handover.descriptors.listeners.iter().map(|&(_, n)| n);
        let numbers: Vec<i32> = listeners.iter().map(|fd| fd.0).collect();
        handover.descriptors = Descriptors {
            listeners: numbers.into_iter().zip(routes_of_listeners).collect(),
            doors: handover.descriptors.doors.clone(),
            ..own.descriptors.clone()
        };
        let origins = origin::of_worker(&handover)?;
        let originations = route::originations(&handover.config, origins);
        let keeper = ForKeeper {
            slots: own.descriptors.slots,
            counters: own.descriptors.counters,
            orders: own.descriptors.orders,
            ..ForKeeper::read(told)?
        };
        let written = handover.write_for(&keeper)?;
        written.set_on_exec(OnExec::Keep)?;

        // From here on nothing fails. What is no more polled is polled by nobody: after a crash
        // between these lines the next worker begins with either handover, and polls its own.
        let former = self.listeners.replace(
            &self.poller,
            handover
                .descriptors
                .doors()
                .into_iter()
                .map(|(fd, door)| Listener::new(fd, &door))
                .collect(),
        );
        if let Err(error) = written.move_to(self.handover) {
            written.close();
            self.listeners.replace(&self.poller, former);
            return Err(error);
        }
        former.iter().for_each(|listener| listener.fd.close());
        self.descriptors_reserved = (self.descriptors_reserved + listeners.len() as u64)
            .saturating_sub(former.len() as u64);

        let changed = self.place_routes(routes, originations, &handover, &own);
        self.limits = handover.share.limits(&handover.config);
        self.limit_steps();
        self.tools.paced.end_all();
        self.tools.kernel.limit_to(self.limits.kernel_bytes_max);
        (self.set_logs)(&handover.config.log);
        self.originate_anew(&changed);
        Ok(())
    }

    /// The backend of this name has other addresses from now on, here and in the worker that
    /// comes after this one.
    pub(super) fn set_addresses(&mut self, name: &str, addresses: &[SocketAddr]) {
        let known = &self.tools.backends;
        let changes = |route: &mut Route| route.set_addresses(name, addresses, known);
        // All of them, also behind one that does.
        let changed = self
            .routes
            .iter_mut()
            .filter_map(|r| changes(r).then_some(()));
        if changed.count() > 0
            && let Err(error) = self.write_addresses(name, addresses)
        {
            tracing::error!(%error, "the addresses of a backend can't be noted for the next worker");
        }
    }

    fn write_addresses(&self, name: &str, addresses: &[SocketAddr]) -> io::Result<()> {
        let mut own = Handover::read(self.handover)?;
        let upstreams = own.config.routes.iter_mut().flat_map(|route| &mut route.to);
        let is_named = |backend: &&mut Backend| backend.name() == Some(name);
        let mut backends = upstreams.map(|upstream| &mut upstream.backend);
        let mut has_changed = false;
        while let Some(backend) = backends.find(is_named) {
            has_changed |= backend.set_addresses(addresses);
        }
        if !has_changed {
            return Ok(());
        }
        let written = own.write_for(&ForKeeper::read(self.handover)?)?;
        let moved = written
            .set_on_exec(OnExec::Keep)
            .and_then(|()| written.move_to(self.handover));
        moved.inspect_err(|_| written.close())
    }

    /// All routes are new, but for originations of which nothing was changed: these go on, with
    /// all that is known of their servers. The numbers of the others.
    fn place_routes(
        &mut self,
        mut routes: Vec<Route>,
        originations: Vec<Route>,
        handover: &Handover,
        own: &Handover,
    ) -> Vec<u16> {
        let mut former: Vec<Option<Route>> = std::mem::take(&mut self.routes)
            .into_iter()
            .map(Some)
            .collect();
        let mut unchanged = Vec::new();
        for (route, new) in originations.into_iter().zip(originations_of(handover)) {
            let same = originations_of(own).any(|old| old == new);
            let (number, ..) = new;
            let kept = former.get_mut(usize::from(number)).filter(|_| same);
            match kept.and_then(Option::take) {
                Some(kept) => {
                    unchanged.push(number);
                    routes.push(kept);
                }
                None => routes.push(route),
            }
        }
        self.routes = route::by_number(routes, &handover.numbers, &handover.config.sockets);
        let all = 0..self.routes.len().max(former.len()) as u16;
        all.filter(|number| !unchanged.contains(number)).collect()
    }
}

/// Number, configuration, trust and certificate of each.
fn originations_of(
    handover: &Handover,
) -> impl Iterator<Item = (u16, &Originate, &OriginPem)> + '_ {
    let config = &handover.config;
    let numbers = handover.numbers.iter().skip(config.routes.len());
    let all = numbers.zip(&config.originate).zip(&handover.origins);
    all.map(|((&number, originate), pem)| (number, originate, pem))
}
