//! A reload: a new configuration for new connections.
//!
//! A slot refers to the configuration only by a route number, and numbers keep their meaning. So a
//! reload changes tables, and of a connection only its timer. (Warm connections of a changed origination have no
//! client yet; they are renewed.) Handshakes in flight keep the parts of the old tables that they need.
//! After the last of them, the old tables are released. Clients without a backend that the new configuration does not
//! admit are refused ([`Readmission`]), before the last step: the next worker does not know the old configuration.
//!
//! With thousands of routes or certificates a reload takes many turns of the loop ([`Loading`]): each reads and parses some of
//! those that the worker does not know yet, and adds them to what follows from all routes ([`NextRoutes`]), while the old tables
//! serve. Routes that have not changed stay where they are. Orders that come meanwhile and depend on the reload, such as the next
//! one, wait for its end (`worker/orders.rs`). What is no longer used is released over many turns, too ([`Retirement`]).
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
use crate::lifecycle::next_routes::{NextRoutes, Replaced};
use crate::lifecycle::retirement::Retirement;
use crate::numbers::Numbers;
use crate::settings::Settings;
use crate::workspace::Workspace;
use dormouse_config::{Log, Originate};
use dormouse_engine::{SettingsError, TicketKeyring, TicketKeys};
use dormouse_handover::notes::Notes;
use dormouse_handover::slot::{Phase, Slot};
use dormouse_handover::{Descriptors, Handover, OriginPem};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Peer;
use dormouse_routes::loader::RouteLoader;
use dormouse_routes::origin;
use dormouse_routes::parsed::Parsed;
use dormouse_routes::route;
use dormouse_routes::session_cache::SessionCache;
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
    /// The ticket keys of all contexts.
    keyring: TicketKeyring,
    /// Listeners that main has sent ahead of a reload.
    arrived: Vec<Fd>,
    /// The reload under way.
    loading: Option<Loading>,
    /// What was used before the last reloads.
    pub(crate) retirement: Retirement,
    set_logs: fn(&Log),
}

/// A handover whose routes are being loaded.
struct Loading {
    /// The file of the handover.
    next: Fd,
    /// The number of the order.
    number: u64,
    loader: RouteLoader,
    routes: NextRoutes,
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
    pub(crate) routes: Numbers,
    /// Whether a route has other timeouts.
    pub(crate) timeouts: bool,
}

impl Reloader {
    /// `handover`: the descriptor of the current handover.
    pub(crate) fn new(
        handover: Fd,
        remembered: Remembered,
        (parsed, keyring): (Parsed, TicketKeyring),
        set_logs: fn(&Log),
    ) -> Reloader {
        Reloader {
            handover,
            remembered,
            parsed,
            keyring,
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

    /// Whether the reload under way has so many routes and certificates that its begin was long enough for one turn.
    pub(crate) fn is_long(&self) -> bool {
        self.loading
            .as_ref()
            .is_some_and(|loading| loading.loader.is_long())
    }

    /// Replaces the ticket keys, also those that a reload under way brings.
    pub(crate) fn set_ticket_keys(&mut self, exported: &[u8]) -> Result<(), SettingsError> {
        self.keyring.replace(&TicketKeys::import(exported)?)?;
        if let Some(loading) = &mut self.loading {
            loading.loader.set_ticket_keys(exported);
        }
        Ok(())
    }

    /// Gives up the reload under way. Returns the number of its order.
    pub(crate) fn give_up(&mut self) -> Option<u64> {
        std::mem::take(&mut self.arrived)
            .into_iter()
            .for_each(Fd::close);
        let Loading {
            next,
            number,
            routes,
            ..
        } = self.loading.take()?;
        next.close();
        let (routes, sums) = routes.give_up();
        self.retirement.add(routes, sums);
        Some(number)
    }

    /// Begins a reload with the handover in the file `next`. Returns its end if it has failed.
    pub(crate) fn begin<I: Io>(
        &mut self,
        next: Fd,
        number: u64,
        cx: &WorkerContext<I>,
    ) -> Option<Reloaded> {
        let opened = Handover::open(next).and_then(|opened| {
            let sessions = SessionCache::adopt(&self.remembered.descriptors)?;
            let keyring = self.keyring.clone();
            Ok(RouteLoader::new(
                opened,
                keyring,
                sessions,
                &mut self.parsed,
            ))
        });
        match opened {
            Ok(loader) => {
                let handover = loader.handover();
                let limits = handover.share.limits(&handover.config);
                let has_log = limits.connection_log.is_some();
                self.loading = Some(Loading {
                    next,
                    number,
                    routes: NextRoutes::new(&handover.config, has_log),
                    loader,
                });
                None
            }
            Err(error) => Some(self.fail(next, number, error, cx)),
        }
    }

    /// Loads some routes of the reload under way, and applies the handover when all are loaded. Returns the end of the
    /// reload, if it has come.
    pub(crate) fn advance<I: Io>(
        &mut self,
        door: &mut Door,
        handshakes: &mut Handshakes,
        cx: &mut WorkerContext<I>,
    ) -> Option<Reloaded> {
        let Loading { loader, routes, .. } = self.loading.as_mut()?;
        let present = &cx.settings.routes;
        let loaded = loader.load_some(
            &mut self.parsed,
            &cx.work.backends,
            |number| present.get(number),
            |number, loaded| routes.add(number, loaded, present.get(number)),
        );
        if loaded == Ok(true) {
            return None;
        }
        let Loading {
            next,
            number,
            loader,
            mut routes,
        } = self.loading.take()?;
        let prepared = match loaded {
            Ok(_) => self.apply(
                (next, loader.into_handover(), &mut routes),
                door,
                handshakes,
                cx,
            ),
            Err(reason) => Err(io::Error::other(reason)),
        };
        Some(match prepared {
            Ok(applied) => Reloaded {
                number,
                changed: Ok(self.switch(applied, routes, door, cx)),
            },
            Err(error) => {
                let (routes, sums) = routes.give_up();
                self.retirement.add(routes, sums);
                self.fail(next, number, error, cx)
            }
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

    /// Puts the next handover and its listeners in place of the present ones. The routes follow in the same turn.
    fn apply<I: Io>(
        &mut self,
        (next, mut handover, routes): (Fd, Handover, &mut NextRoutes),
        door: &mut Door,
        handshakes: &mut Handshakes,
        cx: &mut WorkerContext<I>,
    ) -> io::Result<Applied> {
        let arrived = self.arrived.clone();
        let (stale, listeners) = of_order(&arrived, handover.descriptors.listeners.len())?;
        let keys = TicketKeys::import(&handover.ticket_keys).map_err(io::Error::other)?;
        // Main can't know the descriptor numbers in this process's table.
        let mut notes = self.remembered.notes.clone();
        let numbers = listeners.iter().map(|fd| fd.0).collect();
        notes.note_listeners(self.remembered.edition, handover.edition, numbers);
        notes.apply(&mut handover);
        let origins = origin::of_worker(&handover)?;
        let originations = route::originations(&handover.config, origins);
        notes.replace(self.remembered.notes_place())?;
        let remembered = self.remembered.after(&handover, notes);
        for (route, one) in originations.into_iter().zip(&remembered.originations) {
            let (number, _) = *one;
            let is_same = self.remembered.originations.contains(one);
            routes.add_origination(number, route, is_same, cx.settings.routes.get(number));
        }
        routes.note_removed(&cx.settings.routes);
        refuse_others(routes, handshakes, cx);

        // After a crash between these lines, the next worker starts with either handover, and polls that
        // one's listeners. The former listeners are not polled any more.
        let work = &cx.work;
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
        Ok(Applied {
            handover,
            remembered,
            keys,
        })
    }

    /// Switches to the next routes and limits.
    fn switch<I: Io>(
        &mut self,
        applied: Applied,
        routes: NextRoutes,
        door: &mut Door,
        cx: &mut WorkerContext<I>,
    ) -> Changed {
        let Applied {
            handover,
            remembered,
            keys,
        } = applied;
        let WorkerContext { settings, work, .. } = cx;
        self.remembered = remembered;
        if let Err(error) = self.keyring.replace(&keys) {
            tracing::error!(%error, "ticket keys rejected");
        }
        let Replaced {
            routes: former,
            sums,
            changed,
            timeouts,
        } = routes.switch(settings);
        self.retirement.add(former, sums);
        self.retirement.add_identities(self.parsed.forget_others());
        let former_jitter = settings.limits.timeout_jitter;
        settings.limits = handover.share.limits(&handover.config);
        let Settings { limits, sums, .. } = settings;
        door.follow(sums);
        let names = work
            .connection_log
            .follow(limits.connection_log, sums.log.take());
        self.retirement.add_log(names);
        work.kernel.limit_to(limits.kernel_bytes_max);
        if let Some(link) = &mut work.repair {
            link.places.limit_to(limits.awake_max);
            link.places.follow_shares(settings.shares_of_places());
        }
        let has_other_jitter = settings.limits.timeout_jitter != former_jitter;
        work.step.follow(settings);
        (self.set_logs)(&handover.config.log);
        Changed {
            routes: changed,
            timeouts: timeouts || has_other_jitter,
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
        let mut has_changed = false;
        for (number, route) in settings.routes.iter_mut() {
            if route.set_addresses(name, addresses, &work.backends) {
                work.connection_log.follow_backends(number, route);
                has_changed = true;
            }
        }
        if has_changed && let Err(error) = self.remembered.note_addresses(name, addresses) {
            tracing::error!(%error, "backend addresses not stored for the next worker");
        }
    }
}

/// A handover that is in place.
struct Applied {
    handover: Handover,
    remembered: Remembered,
    keys: TicketKeys,
}

/// Refuses clients without a backend that the next routes do not admit. If the reload fails afterwards, they may connect
/// again.
fn refuse_others<I: Io>(next: &NextRoutes, handshakes: &mut Handshakes, cx: &mut WorkerContext<I>) {
    let WorkerContext {
        settings,
        work,
        connections,
    } = cx;
    let former = |number| settings.routes.get(number);
    let next_route = |number| next.other(number);
    let readmission = Readmission::new(next.changes(), &former, &next_route);
    if !readmission.admits_all() {
        handshakes.end_refused(&readmission, settings, work);
        refuse_waiting(&readmission, connections, settings, work);
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
        let numbers = handover.numbers_of_originations().iter();
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
        Remembered {
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
