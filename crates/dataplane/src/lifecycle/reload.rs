//! Another configuration for what comes next.
//!
//! A slot says nothing of the configuration that its connection was accepted under but the number
//! of a route, and numbers keep their meaning: so a reload changes tables, and touches no
//! connection. (Warm connections of an origination that was changed have no client yet; they are
//! renewed.) Handshakes in flight hold what they need of the old tables until they are done;
//! when the last of them is, nothing is left of those.
//!
//! The descriptor of the handover is given a new meaning last of all, and in one step: a worker
//! that dies before it is followed by one which begins with the old configuration (and is told of
//! the new one as soon as it is ready), one that dies after it by one which begins with the new.
//! What goes there is the very file that main has made: the keeper would believe no other.

use crate::door::Door;
use crate::door::listeners::Listener;
use crate::io::Io;
use crate::settings::Settings;
use crate::workspace::Workspace;
use dormouse_config::{Log, Originate};
use dormouse_handover::notes::Notes;
use dormouse_handover::{Descriptors, Handover, OriginPem};
use dormouse_reactor::Fd;
use dormouse_routes::contexts;
use dormouse_routes::identities::Identities;
use dormouse_routes::origin;
use dormouse_routes::route::{self, Route};
use dormouse_routes::session_cache::SessionCache;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::SocketAddr;

/// What a worker needs to go by another configuration.
pub(crate) struct Reloader {
    /// Where the next worker will find its handover: a reload puts another in its place.
    handover: Fd,
    remembered: Remembered,
    /// Certificates and keys that were parsed.
    pub(crate) identities: Identities,
    /// Listeners that came for a reload which is still to come.
    arrived: Vec<Fd>,
    set_logs: fn(&Log),
}

impl Reloader {
    /// `handover`: the descriptor of the one that the worker goes by.
    pub(crate) fn new(
        handover: Fd,
        remembered: Remembered,
        identities: Identities,
        set_logs: fn(&Log),
    ) -> Reloader {
        Reloader {
            handover,
            remembered,
            identities,
            arrived: Vec::new(),
            set_logs,
        }
    }

    /// Listeners came for a reload which is still to come.
    pub(crate) fn note_listeners(&mut self, fds: Vec<Fd>) {
        self.arrived.extend(fds);
    }

    /// Goes by this handover from now on, or stays with the one before. Returns the numbers of the
    /// routes that were changed.
    pub(crate) fn reload<I: Io>(
        &mut self,
        told: Fd,
        settings: &mut Settings,
        door: &mut Door,
        work: &mut Workspace<I>,
    ) -> io::Result<Vec<u16>> {
        let listeners = std::mem::take(&mut self.arrived);
        let reloaded = self.take_over(told, &listeners, settings, door, work);
        if let Err(error) = &reloaded {
            told.close();
            listeners.iter().for_each(|&fd| work.io.close(fd));
            tracing::error!(%error, "reload failed in a worker; the old configuration stays");
        }
        reloaded
    }

    fn take_over<I: Io>(
        &mut self,
        told: Fd,
        listeners: &[Fd],
        settings: &mut Settings,
        door: &mut Door,
        work: &mut Workspace<I>,
    ) -> io::Result<Vec<u16>> {
        let mut handover = Handover::read(told)?;
        let own = &self.remembered.descriptors;
        let sessions = SessionCache::adopt(own)?;
        let mut routes = contexts::routes(
            &handover.config,
            &handover.certificates,
            &handover.clients,
            &handover.ticket_keys,
            &work.backends,
            sessions.as_ref(),
            &mut self.identities,
        )
        .map_err(io::Error::other)?;
        contexts::make_backend_contexts(&handover.config, &handover.backend_tls, &mut routes)
            .map_err(io::Error::other)?;
        if listeners.len() != handover.descriptors.listeners.len() {
            return Err(io::Error::other("listeners are missing"));
        }
        // The numbers are those of this table; main can't know them.
        let mut notes = self.remembered.notes.clone();
        let numbers = listeners.iter().map(|fd| fd.0).collect();
        notes.note_listeners(self.remembered.edition, handover.edition, numbers);
        notes.apply(&mut handover);
        let origins = origin::of_worker(&handover)?;
        let originations = route::originations(&handover.config, origins);
        notes.replace(self.remembered.notes_place())?;

        // From here on nothing fails. No worker polls the former listeners any more: after a crash
        // between these lines the next worker begins with either handover, and polls its own.
        let doors = handover.descriptors.doors().into_iter();
        let polled = doors.map(|(fd, door)| Listener::new(fd, &door)).collect();
        let former = door.replace(polled, work);
        if let Err(error) = told.move_to(self.handover) {
            door.replace(former, work);
            return Err(error);
        }
        former.iter().for_each(|old| work.io.close(old.fd));
        door.reserve(listeners.len(), former.len());

        let changed = self.place_routes(routes, originations, &handover, notes, settings);
        settings.limits = handover.share.limits(&handover.config);
        work.limit_steps(&settings.limits);
        work.connection_log.follow(settings);
        work.kernel.limit_to(settings.limits.kernel_bytes_max);
        (self.set_logs)(&handover.config.log);
        Ok(changed)
    }

    /// The backend of this name has other addresses from now on, here and in the worker that comes
    /// after this one.
    pub(crate) fn set_addresses<I>(
        &mut self,
        name: &str,
        addresses: &[SocketAddr],
        settings: &mut Settings,
        work: &mut Workspace<I>,
    ) {
        let known = &work.backends;
        let changes = |route: &mut Route| route.set_addresses(name, addresses, known);
        // All of them, also behind one that does.
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

    /// All routes are new, but for originations of which nothing was changed: these go on, with
    /// all that is known of their servers. The numbers of the others.
    fn place_routes(
        &mut self,
        mut routes: Vec<Route>,
        originations: Vec<Route>,
        handover: &Handover,
        notes: Notes,
        settings: &mut Settings,
    ) -> Vec<u16> {
        let remembered = self.remembered.after(handover, notes);
        let mut former: Vec<Option<Route>> = std::mem::take(&mut settings.routes)
            .into_iter()
            .map(Some)
            .collect();
        let mut unchanged = Vec::new();
        for (route, &new) in originations.into_iter().zip(&remembered.originations) {
            let same = self.remembered.originations.contains(&new);
            let (number, _) = new;
            let kept = former.get_mut(usize::from(number)).filter(|_| same);
            match kept.and_then(Option::take) {
                Some(kept) => {
                    unchanged.push(number);
                    routes.push(kept);
                }
                None => routes.push(route),
            }
        }
        self.remembered = remembered;
        settings.routes = route::by_number(routes, &handover.numbers, &handover.config);
        let all = 0..settings.routes.len().max(former.len()) as u16;
        all.filter(|number| !unchanged.contains(number)).collect()
    }
}

/// What a worker remembers of the handover it goes by, so that it need not be read again: with many
/// certificates that takes long.
#[cfg_attr(test, derive(Default))]
pub(crate) struct Remembered {
    descriptors: Descriptors,
    edition: u64,
    notes: Notes,
    /// The number of each, and what tells it from another: configuration, trust and certificate.
    originations: Vec<(u16, u64)>,
    hasher: RandomState,
}

impl Remembered {
    /// Of the first handover.
    pub(crate) fn of(handover: &Handover, notes: Notes) -> Remembered {
        Remembered::with(RandomState::new(), handover, notes)
    }

    /// Of the next one.
    fn after(&self, handover: &Handover, notes: Notes) -> Remembered {
        Remembered::with(self.hasher.clone(), handover, notes)
    }

    /// Where the next worker finds the notes.
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
            let OriginPem { roots, identity } = pem;
            let own = (identity.as_ref()).map(|own| (&own.name, &own.chain, &own.key));
            (
                number,
                hasher.hash_one((format!("{originate:?}"), roots, own)),
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
