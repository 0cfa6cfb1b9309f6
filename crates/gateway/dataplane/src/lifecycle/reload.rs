//! A reload: a new configuration for new connections.
//!
//! A slot refers to the configuration only by a route number, and numbers keep their meaning. So a
//! reload changes tables, and of a connection only its timer. (Warm connections of a changed origination have no
//! client yet; they are renewed.) Handshakes in flight keep the parts of the old tables that they need.
//! After the last of them, the old tables are released. Clients without a backend that the new configuration does not
//! admit are refused ([`Readmission`]), before the last step: the next worker does not know the old configuration.
//!
//! With thousands of certificates a reload takes many turns of the loop ([`Loading`]): each reads and parses some of the
//! certificates that the worker does not know yet, while the old tables serve. Orders that come meanwhile and depend on the
//! reload, such as the next one, wait for its end (`worker/orders.rs`). What is no longer used is released over many turns, too
//! ([`Retirement`]).
//!
//! The last step replaces the file behind the handover's descriptor, atomically. If a worker dies before
//! that step, its successor starts with the old configuration, and main sends the new one again. If it
//! dies after that step, its successor starts with the new one. The file must be the one that main made,
//! because the keeper accepts no other.

use crate::client::Client;
use crate::context::WorkerContext;
use crate::door::Door;
use crate::door::listeners::Listener;
use crate::door::readmission::Readmission;
use crate::established::Connections;
use crate::established::step::Event;
use crate::handshake::Handshakes;
use crate::io::Io;
use crate::lifecycle::retirement::Retirement;
use crate::settings::Settings;
use crate::workspace::Workspace;
use dormouse_config::{Lifetime, Log, Originate};
use dormouse_handover::notes::Notes;
use dormouse_handover::slot::{Phase, Slot};
use dormouse_handover::{ClientTrust, Descriptors, Handover, OriginPem};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Peer;
use dormouse_routes::contexts::LateContexts;
use dormouse_routes::origin;
use dormouse_routes::parsed::Parsed;
use dormouse_routes::route::{self, Route};
use dormouse_routes::session_cache::SessionCache;
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::SocketAddr;

/// State that a worker needs to reload.
pub(crate) struct Reloader {
    /// Descriptor at which the next worker finds its handover; a reload replaces the file behind it.
    handover: Fd,
    remembered: Remembered,
    /// Parsed certificates, keys and revocation lists.
    pub(crate) parsed: Parsed,
    /// Listeners that main has sent ahead of a reload.
    arrived: Vec<Fd>,
    /// The reload under way.
    loading: Option<Loading>,
    /// What was used before the last reloads.
    pub(crate) retirement: Retirement,
    set_logs: fn(&Log),
}

/// A handover whose contexts are being built.
struct Loading {
    /// The file of the handover.
    next: Fd,
    /// The number of the order.
    number: u64,
    late: LateContexts,
    /// In the order of the configuration.
    routes: Vec<Route>,
}

/// The end of a reload.
pub(crate) struct Reloaded {
    /// The number of the order.
    pub(crate) number: u64,
    /// What it has changed. On an error the current configuration stays.
    pub(crate) changed: io::Result<Changed>,
}

/// What a reload has changed.
pub(crate) struct Changed {
    /// The numbers of the changed routes.
    pub(crate) routes: Vec<u16>,
    /// Whether a route has other timeouts.
    pub(crate) timeouts: bool,
}

/// What decides when a connection of each route is closed.
fn timeouts(settings: &Settings) -> (Vec<Lifetime>, u32) {
    let lifetimes = settings.routes.iter().map(|route| route.lifetime);
    (lifetimes.collect(), settings.limits.timeout_jitter)
}

impl Reloader {
    /// `handover`: the descriptor of the current handover.
    pub(crate) fn new(
        handover: Fd,
        remembered: Remembered,
        parsed: Parsed,
        set_logs: fn(&Log),
    ) -> Reloader {
        Reloader {
            handover,
            remembered,
            parsed,
            arrived: Vec::new(),
            loading: None,
            retirement: Retirement::default(),
            set_logs,
        }
    }

    /// Stores listeners that main has sent ahead of a reload.
    pub(crate) fn note_listeners(&mut self, fds: Vec<Fd>) {
        self.arrived.extend(fds);
    }

    /// Whether a reload is under way.
    pub(crate) fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    /// Whether the reload under way has so many certificates that its begin was long enough for one turn.
    pub(crate) fn is_long(&self) -> bool {
        self.loading
            .as_ref()
            .is_some_and(|loading| loading.late.is_long())
    }

    /// Replaces the ticket keys of contexts that are not built yet.
    pub(crate) fn set_ticket_keys(&mut self, exported: &[u8]) {
        if let Some(loading) = &mut self.loading {
            loading.late.set_ticket_keys(exported);
        }
    }

    /// The routes of the reload under way. Some may have no context yet.
    pub(crate) fn next_routes(&self) -> &[Route] {
        self.loading.as_ref().map_or(&[], |loading| &loading.routes)
    }

    /// Gives up the reload under way. Returns the number of its order.
    pub(crate) fn give_up(&mut self) -> Option<u64> {
        std::mem::take(&mut self.arrived)
            .into_iter()
            .for_each(Fd::close);
        let Loading { next, number, .. } = self.loading.take()?;
        next.close();
        Some(number)
    }

    /// Begins a reload with the handover in the file `next`. Returns its end if it has failed.
    pub(crate) fn begin<I: Io>(
        &mut self,
        next: Fd,
        number: u64,
        cx: &WorkerContext<I>,
    ) -> Option<Reloaded> {
        let opened = Handover::open(next).and_then(|(handover, stored)| {
            let routes = route::without_contexts(&handover.config, &cx.work.backends);
            let sessions = SessionCache::adopt(&self.remembered.descriptors)?;
            let late = LateContexts::new(handover, stored, sessions, &mut self.parsed);
            Ok((late, routes))
        });
        match opened {
            Ok((late, routes)) => {
                self.loading = Some(Loading {
                    next,
                    number,
                    late,
                    routes,
                });
                None
            }
            Err(error) => Some(self.fail(next, number, error, cx)),
        }
    }

    /// Loads some certificates of the reload under way, and applies the handover when all are loaded. Returns the end of the
    /// reload, if it has come.
    pub(crate) fn advance<I: Io>(
        &mut self,
        door: &mut Door,
        handshakes: &mut Handshakes,
        cx: &mut WorkerContext<I>,
    ) -> Option<Reloaded> {
        let Loading { late, routes, .. } = self.loading.as_mut()?;
        let loaded = late.load_some_in_order(routes, &mut self.parsed);
        if loaded == Ok(true) {
            return None;
        }
        let Loading {
            next,
            number,
            late,
            routes,
        } = self.loading.take()?;
        let applied = match loaded {
            Ok(_) => self.apply((next, late.into_handover(), routes), door, handshakes, cx),
            Err(reason) => Err(io::Error::other(reason)),
        };
        Some(match applied {
            Ok(changed) => Reloaded {
                number,
                changed: Ok(changed),
            },
            Err(error) => self.fail(next, number, error, cx),
        })
    }

    /// Gives a reload up.
    fn fail<I: Io>(
        &mut self,
        next: Fd,
        number: u64,
        error: io::Error,
        cx: &WorkerContext<I>,
    ) -> Reloaded {
        next.close();
        let listeners = std::mem::take(&mut self.arrived);
        listeners.iter().for_each(|&fd| cx.work.io.close(fd));
        tracing::error!(%error, "reload failed in a worker; the old configuration stays");
        Reloaded {
            number,
            changed: Err(error),
        }
    }

    fn apply<I: Io>(
        &mut self,
        (next, mut handover, routes): (Fd, Handover, Vec<Route>),
        door: &mut Door,
        handshakes: &mut Handshakes,
        cx: &mut WorkerContext<I>,
    ) -> io::Result<Changed> {
        let arrived = self.arrived.clone();
        let (stale, listeners) = of_order(&arrived, handover.descriptors.listeners.len())?;
        // Main can't know the descriptor numbers in this process's table.
        let mut notes = self.remembered.notes.clone();
        let numbers = listeners.iter().map(|fd| fd.0).collect();
        notes.note_listeners(self.remembered.edition, handover.edition, numbers);
        notes.apply(&mut handover);
        let origins = origin::of_worker(&handover)?;
        let originations = route::originations(&handover.config, origins);
        notes.replace(self.remembered.notes_place())?;
        let remembered = self.remembered.after(&handover, notes);
        let numbered = handover.numbers.iter().copied();
        let next_routes = numbered.zip(routes.iter().chain(&originations));
        self.refuse_others(next_routes, &remembered, handshakes, cx);
        let WorkerContext { settings, work, .. } = cx;

        // After a crash between these lines, the next worker starts with either handover, and polls that
        // one's listeners. The former listeners are not polled any more.
        let doors = handover.descriptors.doors().into_iter();
        let polled = doors.map(|(fd, door)| Listener::new(fd, &door)).collect();
        let former = door.replace(polled, work);
        if let Err(error) = next.move_to(self.handover) {
            door.replace(former, work);
            return Err(error);
        }
        self.arrived.clear();
        let old = former.iter().map(|old| old.fd).chain(stale.iter().copied());
        old.for_each(|fd| work.io.close(fd));
        door.reserve(listeners.len(), former.len());

        let former = timeouts(settings);
        let changed = self.place_routes(routes, originations, &handover, remembered, settings);
        door.follow(&settings.routes);
        settings.limits = handover.share.limits(&handover.config);
        work.step.follow(settings);
        work.connection_log.follow(settings);
        work.kernel.limit_to(settings.limits.kernel_bytes_max);
        if let Some(link) = &mut work.repair {
            link.places.limit_to(settings.limits.awake_max);
            link.places.follow_shares(settings.shares_of_places());
        }
        (self.set_logs)(&handover.config.log);
        Ok(Changed {
            routes: changed,
            timeouts: timeouts(settings) != former,
        })
    }

    /// Refuses clients without a backend that the next routes do not admit. If the reload fails afterwards, they may connect
    /// again.
    fn refuse_others<'a, I: Io>(
        &self,
        next: impl Iterator<Item = (u16, &'a Route)>,
        remembered: &Remembered,
        handshakes: &mut Handshakes,
        cx: &mut WorkerContext<I>,
    ) {
        let WorkerContext {
            settings,
            work,
            connections,
        } = cx;
        let [former_trusts, next_trusts] = [&self.remembered.trusts, &remembered.trusts];
        let has_same_trust = |number| former_trusts.get(&number) == next_trusts.get(&number);
        let readmission = Readmission::new(&settings.routes, next, has_same_trust);
        if !readmission.admits_all() {
            handshakes.end_refused(&readmission, settings, work);
            refuse_waiting(&readmission, connections, settings, work);
        }
    }

    /// Changes the addresses of a backend name, here and for the next worker.
    pub(crate) fn set_addresses<I>(
        &mut self,
        name: &str,
        addresses: &[SocketAddr],
        settings: &mut Settings,
        work: &mut Workspace<I>,
    ) {
        let known = &work.backends;
        let changes = |route: &mut Route| route.set_addresses(name, addresses, known);
        // Every route must be changed, so this counts and does not stop at the first change.
        let changed = settings
            .routes
            .iter_mut()
            .filter_map(|r| changes(r).then_some(()));
        let changed = changed.count();
        work.connection_log.follow(settings);
        if changed > 0
            && let Err(error) = self.remembered.note_addresses(name, addresses)
        {
            tracing::error!(%error, "backend addresses not stored for the next worker");
        }
    }

    /// Replaces all routes except unchanged originations, which keep what is known about their servers.
    /// Returns the numbers of the replaced routes.
    fn place_routes(
        &mut self,
        mut routes: Vec<Route>,
        originations: Vec<Route>,
        handover: &Handover,
        remembered: Remembered,
        settings: &mut Settings,
    ) -> Vec<u16> {
        let mut former: Vec<Option<Route>> = std::mem::take(&mut settings.routes)
            .into_iter()
            .map(Some)
            .collect();
        self.retirement
            .add(former.iter().flatten(), self.parsed.forget_others());
        let mut unchanged = Vec::new();
        for (route, &new) in originations.into_iter().zip(&remembered.originations) {
            let same = self.remembered.originations.contains(&new);
            let (number, _) = new;
            let kept = former.get_mut(usize::from(number)).filter(|_| same);
            match kept.and_then(Option::take) {
                Some(kept) => {
                    unchanged.push(number);
                    // Socket options are not its own.
                    let sockets = route.sockets;
                    routes.push(Route { sockets, ..kept });
                }
                None => routes.push(route),
            }
        }
        self.remembered = remembered;
        settings.routes = route::by_number(routes, &handover.numbers, &handover.config);
        settings.names = route::names_of(&settings.routes);
        let all = 0..settings.routes.len().max(former.len()) as u16;
        all.filter(|number| !unchanged.contains(number)).collect()
    }
}

/// Refuses the clients that wait for a backend and that the next routes do not admit.
fn refuse_waiting<I: Io>(
    readmission: &Readmission<'_>,
    connections: &mut Connections,
    settings: &Settings,
    work: &mut Workspace<I>,
) {
    let is_refused = |slot: &Slot| {
        let peer = || Client::new(work.io.peer(slot.tls_fd()).unwrap_or(Peer::Unix));
        slot.phase() == Phase::Connecting && !readmission.keeps_waiting(slot.route, peer)
    };
    for index in connections.connecting(is_refused) {
        connections.step(index, Event::Refuse, settings, work);
    }
}

/// Splits the listeners that have arrived into those of earlier orders, which main could not send completely, and the
/// `wanted` ones of this order.
fn of_order(arrived: &[Fd], wanted: usize) -> io::Result<(&[Fd], &[Fd])> {
    let stale = arrived.len().checked_sub(wanted);
    stale
        .map(|stale| arrived.split_at(stale))
        .ok_or_else(|| io::Error::other("listeners are missing"))
}

/// The parts of the current handover that a reload needs. Reading the handover again would take long
/// with many certificates.
#[cfg_attr(test, derive(Default))]
pub(crate) struct Remembered {
    descriptors: Descriptors,
    edition: u64,
    notes: Notes,
    /// Number and hash of each origination; the hash covers configuration, trust and certificate.
    originations: Vec<(u16, u64)>,
    /// Hash of each route's rules for client certificates, by number. Revocation lists are not rules.
    trusts: BTreeMap<u16, u64>,
    hasher: RandomState,
}

impl Remembered {
    /// Remembers the first handover.
    pub(crate) fn of(handover: &Handover, notes: Notes) -> Remembered {
        Remembered::with(RandomState::new(), handover, notes)
    }

    /// Remembers the next handover, with the same hash function.
    fn after(&self, handover: &Handover, notes: Notes) -> Remembered {
        Remembered::with(self.hasher.clone(), handover, notes)
    }

    /// Descriptor at which the next worker finds the notes.
    fn notes_place(&self) -> Fd {
        Fd(self.descriptors.notes)
    }

    fn note_addresses(&mut self, name: &str, addresses: &[SocketAddr]) -> io::Result<()> {
        if self.notes.note_addresses(self.edition, name, addresses) {
            self.notes.replace(self.notes_place())?;
        }
        Ok(())
    }

    fn with(hasher: RandomState, handover: &Handover, notes: Notes) -> Remembered {
        let config = &handover.config;
        let numbers = handover.numbers.iter().skip(config.routes.len());
        let all = numbers.zip(config.originate.iter().zip(&handover.origins));
        let known = |(&number, (originate, pem)): (&u16, (&Originate, &OriginPem))| {
            let OriginPem {
                roots,
                revocation,
                identity,
            } = pem;
            let own = (identity.as_ref()).map(|own| (&own.name, &own.chain, &own.key));
            (
                number,
                hasher.hash_one((format!("{originate:?}"), roots, revocation, own)),
            )
        };
        let numbers_of_routes = handover.numbers.iter().take(config.routes.len());
        let trusts = numbers_of_routes.zip(handover.clients.iter().chain(std::iter::repeat(&None)));
        let hashed = |(&number, trust): (&u16, &Option<ClientTrust>)| {
            let rules = trust.as_ref().map(|trust| {
                let ClientTrust {
                    required,
                    roots,
                    crls: _,
                    allow,
                } = trust;
                (required, roots, format!("{allow:?}"))
            });
            (number, hasher.hash_one(rules))
        };
        Remembered {
            trusts: trusts.map(hashed).collect(),
            descriptors: handover.descriptors.clone(),
            edition: handover.edition,
            originations: all.map(known).collect(),
            notes,
            hasher,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Main's channel was full after the first listeners of an order, so it sent the order again.
    #[test]
    fn listeners_of_an_incomplete_order_are_not_taken_for_those_of_the_next() {
        let arrived = [Fd(10), Fd(20), Fd(21)];
        let (stale, own) = of_order(&arrived, 2).expect("enough");
        assert_eq!((stale, own), (&[Fd(10)][..], &[Fd(20), Fd(21)][..]));
        let (stale, _) = of_order(&arrived[1..], 2).expect("enough");
        assert!(stale.is_empty());
        assert!(of_order(&arrived, 4).is_err());
    }
}
