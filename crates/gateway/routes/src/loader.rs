//! The routes of a handover, built from its file a part at a time, for a worker that serves connections meanwhile.
//!
//! A route whose digest is the same as before stays as it is: of thousands of routes, a reload with one changed route reads
//! one. What is read and parsed in one call is bounded, whatever the routes.

use crate::contexts::{self, Common};
use crate::parsed::Parsed;
use crate::route::Route;
use crate::session_cache::SessionCache;
use dormouse_config::RouteDefaults;
use dormouse_engine::{Certificates, TicketKeyring};
use dormouse_handover::Handover;
use dormouse_handover::stored::{Stored, StoredRoute};
use dormouse_tables::backends::Backends;
use std::io;
use zeroize::Zeroize as _;

/// What one call of [`RouteLoader::load_some`] may cost, so that the caller's connections wait only briefly: less than a
/// millisecond. In units of a certificate that is known.
const COST_AT_ONCE: usize = 256;
/// Cost of a certificate that is read and parsed.
const COST_PARSED: usize = 32;
/// Cost of a route that is read, with its context and without its certificates.
const COST_ROUTE: usize = 32;
/// Bytes of a route's text that cost as much as a certificate that is known.
const TEXT_BYTES: usize = 256;

/// What the loader has found of a route.
pub enum Loaded {
    /// The same as before.
    Unchanged,
    /// Another route, complete.
    New(Box<Route>),
}

/// Where a loader is with a route.
enum Stage {
    /// So many of its certificates are known, as are its other parts.
    Compared(usize),
    /// It is to be read.
    Differs,
    /// It is read, and some of its certificates.
    Read(Box<StoredRoute>, Certificates),
}

/// Builder of the routes of a handover.
pub struct RouteLoader {
    handover: Handover,
    stored: Stored,
    defaults: RouteDefaults,
    keyring: TicketKeyring,
    sessions: Option<SessionCache>,
    /// Place of the next route in the configuration.
    next: usize,
    stage: Stage,
    /// Certificates that were parsed, not known.
    parsed: usize,
    /// Routes that were read, not known.
    read: usize,
}

impl RouteLoader {
    /// Creates a builder for all routes of `handover`, in its file, whose contexts share the ticket keys of `keyring`. From now
    /// on, `known` notes what these routes use.
    pub fn new(
        (handover, stored): (Handover, Stored),
        keyring: TicketKeyring,
        sessions: Option<SessionCache>,
        known: &mut Parsed,
    ) -> RouteLoader {
        known.begin_round();
        RouteLoader {
            defaults: handover.config.route_defaults(),
            handover,
            stored,
            keyring,
            sessions,
            next: 0,
            stage: Stage::Compared(0),
            parsed: 0,
            read: 0,
        }
    }

    /// Reads some routes and certificates, and passes each route that is then complete to `place`, with its number. `former`:
    /// the routes as they are. Returns `false` when all are built. An error names the route and the reason. What was parsed
    /// stays in `known` for a later reload.
    pub fn load_some<'a>(
        &mut self,
        known: &mut Parsed,
        backends: &Backends,
        former: impl Fn(u16) -> Option<&'a Route>,
        mut place: impl FnMut(u16, Loaded),
    ) -> Result<bool, String> {
        let mut left = COST_AT_ONCE;
        while self.next < self.stored.len() {
            if left == 0 {
                return Ok(true);
            }
            let number = self.handover.numbers.get(self.next).copied();
            let number = number.ok_or_else(|| "a route has no number".to_owned())?;
            if let Some(loaded) = self.load_part(former(number), known, backends, &mut left)? {
                place(number, loaded);
                self.next += 1;
                self.stage = Stage::Compared(0);
            }
        }
        Ok(false)
    }

    /// Reads a part of the next route as far as `left` allows. Returns the route if it is complete.
    fn load_part(
        &mut self,
        former: Option<&Route>,
        known: &mut Parsed,
        backends: &Backends,
        left: &mut usize,
    ) -> Result<Option<Loaded>, String> {
        let digest = self.stored.digest(self.next);
        match std::mem::replace(&mut self.stage, Stage::Differs) {
            Stage::Compared(count) => {
                let same = former.filter(|former| former.is_made_from(digest, backends));
                let Some(same) = same else {
                    return Ok(None);
                };
                self.stage = self.compare(count, known, left);
                let is_same = matches!(self.stage, Stage::Compared(count)
                    if self.stored.certificate(self.next, count).is_none());
                Ok(is_same.then(|| {
                    known.keep(same.made_from.uses);
                    Loaded::Unchanged
                }))
            }
            Stage::Differs => {
                let read = self.stored.route(self.next);
                let read = read.map_err(|error| error.to_string())?;
                let cost = COST_ROUTE + self.stored.text_len(self.next) / TEXT_BYTES;
                *left = left.saturating_sub(cost);
                self.read += 1;
                self.stage = Stage::Read(Box::new(read), Certificates::new());
                Ok(None)
            }
            Stage::Read(read, mut certificates) => {
                let name = read.name.clone();
                let of_route = |reason: String| contexts::of_route(&name, &reason);
                if !self
                    .add_some(&mut certificates, known, left)
                    .map_err(of_route)?
                {
                    self.stage = Stage::Read(read, certificates);
                    return Ok(None);
                }
                let mut route = self.build(*read, certificates, known, backends);
                if let Ok(route) = &mut route {
                    route.made_from.digest = digest;
                }
                let route = route.map_err(of_route)?;
                Ok(Some(Loaded::New(Box::new(route))))
            }
        }
    }

    /// Looks up certificates of a route whose digest is known, after the first `count`. One that is not kept, because its OCSP
    /// response was not valid yet, is parsed again.
    fn compare(&self, mut count: usize, known: &mut Parsed, left: &mut usize) -> Stage {
        *left = left.saturating_sub(1);
        while let Some(one) = self.stored.certificate(self.next, count) {
            if *left == 0 {
                break;
            }
            if !known.keeps(one) {
                return Stage::Differs;
            }
            (count, *left) = (count + 1, left.saturating_sub(1));
        }
        Stage::Compared(count)
    }

    /// Adds certificates of the route as far as `left` allows. Returns whether all are there.
    fn add_some(
        &mut self,
        certificates: &mut Certificates,
        known: &mut Parsed,
        left: &mut usize,
    ) -> Result<bool, String> {
        while let Some(one) = self.stored.certificate(self.next, certificates.len()) {
            if *left == 0 {
                return Ok(false);
            }
            let (identity, cost) = match known.known(one) {
                Some(identity) => (identity, 1),
                None => {
                    self.parsed += 1;
                    (known.read(&self.stored, one)?, COST_PARSED)
                }
            };
            certificates.add(&identity);
            *left = left.saturating_sub(cost);
        }
        Ok(true)
    }

    fn build(
        &self,
        read: StoredRoute,
        certificates: Certificates,
        known: &mut Parsed,
        backends: &Backends,
    ) -> Result<Route, String> {
        let common = Common {
            defaults: &self.defaults,
            keyring: &self.keyring,
            sessions: self.sessions.as_ref(),
            stored: Some(&self.stored),
        };
        let mut route = Route::without_context(&self.defaults, read.name, &read.route, backends);
        let clients = read.clients.as_ref();
        common.build_contexts(
            &mut route,
            &read.route,
            (certificates, clients, read.backend_tls.as_ref()),
            known,
        )?;
        Ok(route)
    }

    /// Creates all routes without their contexts, which established connections do not need.
    pub fn without_contexts(&self, backends: &Backends) -> io::Result<Vec<(u16, Route)>> {
        let numbers = self.handover.numbers.iter().zip(0..self.stored.len());
        let route = |(&number, n): (&u16, usize)| {
            let StoredRoute { name, route, .. } = self.stored.route(n)?;
            let mut route = Route::without_context(&self.defaults, name, &route, backends);
            route.made_from.digest = self.stored.digest(n);
            Ok((number, route))
        };
        numbers.map(route).collect()
    }

    /// Whether there is so much that even what is known takes several calls.
    pub fn is_long(&self) -> bool {
        self.stored.len() + self.stored.certificates() > COST_AT_ONCE
    }

    /// Returns the handover.
    pub fn handover(&self) -> &Handover {
        &self.handover
    }

    /// Returns the handover, when all routes are built.
    pub fn into_handover(self) -> Handover {
        self.handover
    }

    /// Replaces the handover's ticket keys with newer ones from main.
    pub fn set_ticket_keys(&mut self, exported: &[u8]) {
        self.handover.ticket_keys.zeroize();
        self.handover.ticket_keys = exported.to_vec();
    }

    /// Certificates that were parsed, because no route had them before.
    pub fn parsed(&self) -> usize {
        self.parsed
    }

    /// Routes that were read, because they are not as before.
    pub fn read(&self) -> usize {
        self.read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed::tests::pem;
    use crate::table::Routes;
    use dormouse_config::{self as config, Flag, Machine, Section};
    use dormouse_engine::{TicketKeys, UnixTime};
    use dormouse_handover::share::Share;
    use dormouse_handover::{Descriptors, Pem};
    use std::time::Duration;

    fn keys() -> TicketKeys {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        TicketKeys::generate(now, 3_600).expect("keys")
    }

    /// The handover of routes with these certificates.
    fn handover(certificates: Vec<Vec<Pem>>) -> Handover {
        let flags = [
            ("listen", "127.0.0.1:8443"),
            ("to", "echo:"),
            ("self-signed", "x"),
        ];
        let flags = flags.map(|(name, value)| Flag::new(name, value));
        let loaded = config::load(None, Section::Route, &flags, &Machine::read()).expect("valid");
        let mut config = loaded.config;
        let count = certificates.len();
        config.routes = vec![config.routes[0].clone(); count];
        Handover {
            worker: 0,
            edition: 1,
            share: Share::of(0, &loaded.plan),
            config,
            user: None,
            numbers: (0..count as u16).collect(),
            certificates,
            clients: vec![None; count],
            origins: Vec::new(),
            backend_tls: vec![None; count],
            ticket_keys: keys().export().to_vec(),
            descriptors: Descriptors::default(),
        }
    }

    /// What was done for a handover.
    #[derive(PartialEq, Eq, Debug)]
    struct Done {
        parsed: usize,
        read: usize,
        calls: usize,
    }

    /// Loads all routes of a handover as a worker does.
    fn load(handover: &Handover, routes: &mut Routes, known: &mut Parsed) -> Done {
        let file = handover.write().expect("a file");
        let opened = Handover::open(file).expect("a handover");
        let backends = Backends::create(1).expect("a table");
        let keyring = TicketKeyring::new(&keys()).expect("keys");
        let mut loader = RouteLoader::new(opened, keyring, None, known);
        let mut calls = 0;
        let mut placed = Vec::new();
        loop {
            calls += 1;
            let (parsed, read) = (loader.parsed, loader.read);
            let place = |number, loaded| placed.push((number, loaded));
            let is_left = loader.load_some(known, &backends, |number| routes.get(number), place);
            let (parsed, read) = (loader.parsed - parsed, loader.read - read);
            assert!(parsed <= 8 && read <= 8, "{parsed}, {read} in call {calls}");
            if !is_left.expect("valid") {
                break;
            }
        }
        assert_eq!(placed.len(), handover.config.routes.len());
        for (number, loaded) in placed {
            if let Loaded::New(route) = loaded {
                drop(routes.place(number, route));
            }
        }
        for (_, route) in routes.iter() {
            let context = route.context().expect("built");
            if calls < 100 {
                let now = dormouse_handover::unix_time();
                context.warm_up(now).expect("a handshake");
            }
        }
        backends.fds().close();
        file.close();
        Done {
            parsed: loader.parsed,
            read: loader.read,
            calls,
        }
    }

    /// Between two calls, the caller serves its connections.
    #[test]
    fn many_certificates_are_parsed_in_several_calls_and_once() {
        let names: Vec<String> = (0..20).map(|n| format!("{n}.example")).collect();
        let mut all: Vec<Pem> = names.iter().map(|name| pem(name)).collect();
        let known = &mut Parsed::default();
        let mut first = handover(vec![all.clone()]);
        let mut routes = Routes::new(Route::removed(&first.config.route_defaults()));
        let mut load = |all: Vec<Pem>, known: &mut Parsed| {
            first.certificates[0] = all;
            let Done {
                parsed,
                read,
                calls,
            } = load(&first, &mut routes, known);
            assert_eq!(read, 1);
            (parsed, calls)
        };
        assert_eq!(load(all.clone(), known), (20, 3));
        all[7] = pem("7.example");
        assert_eq!(load(all.clone(), known), (1, 1), "one has changed");
        assert_eq!(known.forget_others().len(), 1);
        // Known ones are added in several calls, too.
        let many = all.iter().cycle().take(2_000).cloned().collect();
        assert_eq!(load(many, known), (0, 8));
    }

    /// Of many routes, a reload reads the one that has changed.
    #[test]
    fn unchanged_routes_stay_as_they_are() {
        const COUNT: usize = 2_000;
        let known = &mut Parsed::default();
        let certificate = pem("x.example");
        let mut handover = handover(vec![vec![certificate]; COUNT]);
        let mut routes = Routes::new(Route::removed(&handover.config.route_defaults()));
        let first = load(&handover, &mut routes, known);
        assert_eq!((first.parsed, first.read), (1, COUNT));
        assert!(first.calls >= COUNT / 8, "{first:?}");
        let address = |routes: &Routes, number| std::ptr::from_ref(routes.get(number).unwrap());
        let before = [3, 4].map(|number| address(&routes, number));
        handover.config.routes[3].half_close = false;
        let second = load(&handover, &mut routes, known);
        assert_eq!((second.parsed, second.read), (0, 1));
        // Even what stays is looked at a few at a time.
        assert!(second.calls >= COUNT / COST_AT_ONCE, "{second:?}");
        let after = [3, 4].map(|number| address(&routes, number));
        assert!(before[0] != after[0] && before[1] == after[1]);
        assert!(known.forget_others().is_empty(), "all are in use");
        let third = load(&handover, &mut routes, known);
        assert_eq!((third.parsed, third.read), (0, 0));
        // Every route inherits it.
        handover.config.timeouts.partial_record_timeout += Duration::from_secs(1);
        assert_eq!(load(&handover, &mut routes, known).read, COUNT);
        // Of a route whose backends have other addresses than the file, nothing is known.
        routes.get_mut(5).expect("a route").made_from.digest = None;
        assert_eq!(load(&handover, &mut routes, known).read, 1);
    }
}
