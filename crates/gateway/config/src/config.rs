//! The configuration as a whole, and values that follow from several options.

use crate::mistakes::problem::ReadResult;
use crate::option::context::ReadContext;
use crate::option::group::{Group, OptionGroup};
use crate::option::value::RawValue;
use crate::options::{
    Acme, Limits, Log, Originate, Process, Redirect, Route, Sockets, Tickets, Timeouts,
};
use crate::values::choices::{TlsProfile, TlsVersion};
use crate::values::endpoints::{Backend, Listen, PlainListen};
use crate::values::pem_files::CertificateFiles;
use crate::values::spiffe::SpiffeAgent;
use crate::values::token_key::TokenKey;
use crate::values::units::milliseconds;
use crate::values::upstream::Upstream;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// Size of the cache for TLS 1.2 sessions of clients without tickets, beside tickets: some 4,000
/// sessions.
const BESIDE_TICKETS_BYTES: usize = 1 << 20;

/// How long connections of a route may last, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Idle time after which a connection is closed. `None`: no limit.
    pub idle_ms: Option<u64>,
    /// Maximum age of a connection. `None`: no limit.
    pub total_ms: Option<u64>,
    /// Idle time after which a connection leaves the kernel. `None`: never.
    pub rest_after_ms: Option<u64>,
    /// Time after which a connection is reset whose bytes wait for one side, which takes none. `None`: no limit.
    pub stall_ms: Option<u64>,
    /// Time for a connect to a backend.
    pub connect_ms: u64,
    /// Time for the rest of a record that has begun to arrive.
    pub record_ms: u64,
}

impl Lifetime {
    fn of_program(program: &Timeouts) -> Lifetime {
        Lifetime {
            idle_ms: program.idle_timeout.map(milliseconds),
            total_ms: program.total_timeout.map(milliseconds),
            rest_after_ms: None,
            stall_ms: None,
            connect_ms: milliseconds(program.backend_connect_timeout),
            record_ms: milliseconds(program.partial_record_timeout),
        }
    }

    /// Whether one of the timeouts is new, or shorter than before.
    pub fn is_shorter_than(self, former: Lifetime) -> bool {
        let is_shorter = |next: Option<u64>, former: Option<u64>| {
            next.is_some_and(|next| former.is_none_or(|former| next < former))
        };
        is_shorter(self.idle_ms, former.idle_ms) || is_shorter(self.total_ms, former.total_ms)
    }
}

/// How long connections of a section may last. Both kinds of sections have these options.
macro_rules! lifetime {
    ($section: expr, $rest_after: expr, $program: expr) => {
        Lifetime {
            idle_ms: ($section.route_idle_timeout.or($program.idle_timeout)).map(milliseconds),
            total_ms: ($section.route_total_timeout.or($program.total_timeout)).map(milliseconds),
            rest_after_ms: $rest_after.map(milliseconds),
            stall_ms: $section.route_stall_timeout.map(milliseconds),
            connect_ms: milliseconds(
                ($section.route_backend_connect_timeout).or($program.backend_connect_timeout),
            ),
            record_ms: milliseconds(
                ($section.route_partial_record_timeout).or($program.partial_record_timeout),
            ),
        }
    };
}

/// Options of the program on which every route depends, and nothing else of the program does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteDefaults {
    /// Time limits.
    pub timeouts: Timeouts,
    /// Kernel settings for sockets.
    pub sockets: Sockets,
    /// Tickets and the session cache.
    pub tickets: Tickets,
    /// One connection in this many gets a line in the connection log.
    pub connection_log_one_in: u32,
}

impl RouteDefaults {
    /// Returns how long connections may last whose route a reload has removed.
    pub fn lifetime_without_route(&self) -> Lifetime {
        Lifetime::of_program(&self.timeouts)
    }
}

/// Everything that `serve` does, decided before it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The routes: clients connect with TLS. There may be thousands, so they pass to other processes one by one, not with the
    /// rest.
    #[serde(skip)]
    pub routes: Vec<Route>,
    /// The originations: Dormouse connects with TLS. There is at least one route or origination.
    pub originate: Vec<Originate>,
    /// The program as a whole.
    pub process: Process,
    /// Limits on memory, connections and rates.
    pub limits: Limits,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Kernel settings for sockets.
    pub sockets: Sockets,
    /// Tickets, their keys, and the session cache.
    pub tickets: Tickets,
    /// Automatic certificates.
    #[serde(default)]
    pub acme: Acme,
    /// Redirects from plain HTTP to https.
    #[serde(default)]
    pub redirect: Redirect,
    /// Logs.
    pub log: Log,
}

impl Config {
    /// The options of the program, in the order of the reference.
    pub const PROCESS_OPTIONS: &'static [OptionGroup] = &[
        OptionGroup::of::<Process>(),
        OptionGroup::of::<Limits>(),
        OptionGroup::of::<Timeouts>(),
        OptionGroup::of::<Sockets>(),
        OptionGroup::of::<Tickets>(),
        OptionGroup::of::<Acme>(),
        OptionGroup::of::<Redirect>(),
        OptionGroup::of::<Log>(),
    ];

    /// Every option at its default, and no route.
    pub(crate) fn blank() -> Self {
        Self {
            routes: Vec::new(),
            originate: Vec::new(),
            process: Process::blank(),
            limits: Limits::blank(),
            timeouts: Timeouts::blank(),
            sockets: Sockets::blank(),
            tickets: Tickets::blank(),
            acme: Acme::blank(),
            redirect: Redirect::blank(),
            log: Log::blank(),
        }
    }

    /// Reads an option of the program. `None`: no option has this name.
    pub(crate) fn read_option(
        &mut self,
        name: &str,
        raw: &RawValue,
        context: &ReadContext<'_>,
    ) -> Option<ReadResult<()>> {
        self.process
            .read(name, raw, context)
            .or_else(|| self.limits.read(name, raw, context))
            .or_else(|| self.timeouts.read(name, raw, context))
            .or_else(|| self.sockets.read(name, raw, context))
            .or_else(|| self.tickets.read(name, raw, context))
            .or_else(|| self.acme.read(name, raw, context))
            .or_else(|| self.redirect.read(name, raw, context))
            .or_else(|| self.log.read(name, raw, context))
    }

    /// Keeps the running values of options whose changes a reload cannot apply. Returns the names of those that differ,
    /// which wait for a restart.
    pub fn hold(&mut self, running: &Config) -> Vec<&'static str> {
        let is_memory_changed = self.limits.memory != running.limits.memory;
        let groups = [
            self.process.hold(&running.process, is_memory_changed),
            self.limits.hold(&running.limits, is_memory_changed),
            self.timeouts.hold(&running.timeouts, is_memory_changed),
            self.sockets.hold(&running.sockets, is_memory_changed),
            self.tickets.hold(&running.tickets, is_memory_changed),
            self.acme.hold(&running.acme, is_memory_changed),
            self.redirect.hold(&running.redirect, is_memory_changed),
            self.log.hold(&running.log, is_memory_changed),
        ];
        groups.concat()
    }

    /// Returns the names of all options of the program.
    pub(crate) fn option_names() -> Vec<&'static str> {
        let options = Self::PROCESS_OPTIONS.iter().flat_map(|group| group.options);
        options.map(|spec| spec.name).collect()
    }

    /// Returns the names in `acme` of all routes, each once.
    pub fn acme_names(&self) -> BTreeSet<&str> {
        let names = self.routes.iter().flat_map(|route| &route.acme);
        names.map(|name| name.as_str()).collect()
    }

    /// Returns the addresses that this configuration has for a name, given with its port. `None`: the
    /// configuration does not have the name.
    pub fn known_addresses(&self, name: &str) -> Option<Vec<SocketAddr>> {
        let backends = self.routes.iter().flat_map(|route| &route.to);
        let backends = backends
            .filter(|to| to.backend.name() == Some(name))
            .map(|to| to.backend.addresses().collect());
        let servers = self.originate.iter().flat_map(|originate| &originate.to);
        let servers = servers
            .filter(|server| server.given == name)
            .map(|server| server.addresses.clone());
        let listeners = self
            .listeners()
            .filter(|listen| listen.given == name)
            .map(|listen| vec![listen.address]);
        backends.chain(servers).chain(listeners).next()
    }

    /// Sets the addresses of this name in all routes and originations. Returns whether they have changed.
    pub fn set_addresses(&mut self, name: &str, found: &[SocketAddr]) -> bool {
        let mut has_changed = false;
        let backends = self.routes.iter_mut().flat_map(|route| &mut route.to);
        let backends = backends.map(|to| &mut to.backend);
        for backend in backends.filter(|backend| backend.name() == Some(name)) {
            has_changed |= backend.set_addresses(found);
        }
        let servers = self.originate.iter_mut().flat_map(|one| &mut one.to);
        // Those of a resolved name change with a reload.
        let unresolved = servers.filter(|one| one.addresses.is_empty() && one.given == name);
        for server in unresolved.filter(|_| !found.is_empty()) {
            server.addresses = found.to_vec();
            has_changed = true;
        }
        has_changed
    }

    /// Returns the names in `to` that are looked up again and again: those of backends, and those of servers that have
    /// not resolved yet.
    pub fn watched_names(&self) -> BTreeSet<&str> {
        let backends = self.routes.iter().flat_map(|route| &route.to);
        let backends = backends.filter_map(|to| to.backend.name());
        let servers = self.originate.iter().flat_map(|one| &one.to);
        let unresolved = servers.filter(|one| one.addresses.is_empty());
        backends
            .chain(unresolved.map(|one| one.given.as_str()))
            .collect()
    }

    /// Returns the backends of all routes.
    pub fn upstreams(&self) -> impl Iterator<Item = &Upstream> {
        self.routes.iter().flat_map(|route| &route.to)
    }

    /// Returns the TCP addresses of all listeners for clients.
    pub fn listeners(&self) -> impl Iterator<Item = &Listen> {
        let plain = self
            .originate
            .iter()
            .flat_map(|originate| &originate.listen);
        let plain = plain.filter_map(PlainListen::tcp);
        let routes = self.routes.iter().flat_map(|route| &route.listen);
        routes.chain(plain).chain(&self.redirect.redirect)
    }

    /// Returns the names of the routes, then of the originations, as metrics, logs and `status`
    /// show them: as configured, or by number.
    pub fn route_names(&self) -> Vec<String> {
        let routes = self.routes.iter().enumerate().map(|(n, route)| {
            let name = route.name.as_ref().map(ToString::to_string);
            name.unwrap_or_else(|| (n + 1).to_string())
        });
        let originations = self.originate.iter().enumerate().map(|(n, originate)| {
            let name = originate.name.as_ref().map(ToString::to_string);
            name.unwrap_or_else(|| format!("originate-{}", n + 1))
        });
        routes.chain(originations).collect()
    }

    /// Returns how long connections may last: of the routes, then of the originations.
    pub fn lifetimes(&self) -> Vec<Lifetime> {
        let program = &self.timeouts;
        let routes = self.routes.iter().map(|route| route.lifetime(program));
        let originations = self.originate.iter();
        let originations = originations.map(|one| lifetime!(one, None::<Duration>, program));
        routes.chain(originations).collect()
    }

    /// Returns the options of the program on which every route depends.
    pub fn route_defaults(&self) -> RouteDefaults {
        RouteDefaults {
            timeouts: self.timeouts.clone(),
            sockets: self.sockets.clone(),
            tickets: self.tickets.clone(),
            connection_log_one_in: self.log.connection_log_one_in,
        }
    }

    /// Returns the keys in tokens, each once.
    pub fn token_keys(&self) -> Vec<TokenKey> {
        let routes = self.routes.iter().flat_map(|route| &route.certificates);
        let originations = self.originate.iter().flat_map(|one| &one.certificates);
        let mut keys: Vec<TokenKey> = Vec::new();
        for key in routes
            .chain(originations)
            .filter_map(CertificateFiles::token_key)
        {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// Returns the agent, if something comes from it.
    pub fn spiffe_agent(&self) -> Option<&SpiffeAgent> {
        let has = |files: &[CertificateFiles]| files.iter().any(|one| one.spiffe().is_some());
        let of_route = |route: &Route| {
            has(&route.certificates)
                || (route.client_ca.as_ref()).is_some_and(|ca| ca.trust_domain().is_some())
                || has(&route.backend_certificates)
                || route.backend_ca.trust_domain().is_some()
        };
        let of_origination =
            |one: &Originate| has(&one.certificates) || one.ca.trust_domain().is_some();
        let is_used = self.routes.iter().any(of_route) || self.originate.iter().any(of_origination);
        self.process.spiffe_agent.as_ref().filter(|_| is_used)
    }

    /// Returns whether connections of a route may leave the kernel.
    pub fn rests(&self) -> bool {
        self.routes.iter().any(|route| route.rest_after.is_some())
    }

    /// Returns whether such a route has a port below 1024.
    pub fn rests_on_low_port(&self) -> bool {
        let resting = self
            .routes
            .iter()
            .filter(|route| route.rest_after.is_some());
        let mut listen = resting.flat_map(|route| &route.listen);
        listen.any(|listen| listen.address.port() < 1024)
    }

    /// Returns how long connections may last whose route a reload has removed.
    pub fn lifetime_without_route(&self) -> Lifetime {
        Lifetime::of_program(&self.timeouts)
    }

    /// Returns the bytes of the session cache: as configured, or a small cache beside tickets. It is there without tickets
    /// or routes, too, because a reload may bring them, and uses no memory until then.
    pub fn session_cache_bytes(&self) -> usize {
        let configured = self.tickets.session_cache;
        configured.map_or(BESIDE_TICKETS_BYTES, |bytes| bytes.as_usize())
    }
}

impl Route {
    /// Returns how long connections of this route may last.
    pub fn lifetime(&self, program: &Timeouts) -> Lifetime {
        lifetime!(self, self.rest_after, program)
    }

    /// Returns the oldest TLS version that profile and option allow.
    pub fn oldest_version(&self) -> TlsVersion {
        match self.profile {
            TlsProfile::Modern => TlsVersion::Tls13,
            TlsProfile::Intermediate => self.min_version,
        }
    }

    /// Returns the names of certificates that may not have arrived yet.
    pub fn awaited(&self) -> Vec<String> {
        let of_agent = self
            .certificates
            .iter()
            .filter(|one| one.spiffe().is_some());
        let of_agent = of_agent.map(|one| one.cert.display().to_string());
        (self.acme.iter().map(ToString::to_string))
            .chain(of_agent)
            .collect()
    }

    /// Returns whether the route answers by itself.
    pub fn is_echo(&self) -> bool {
        self.to.iter().any(|to| to.backend == Backend::Echo)
    }
}
