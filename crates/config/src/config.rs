//! The configuration as a whole, and what follows from several of its options.

use crate::input::context::ReadContext;
use crate::input::value::RawValue;
use crate::mistakes::problem::ReadResult;
use crate::option::group::{Group, OptionGroup};
use crate::options::{
    Acme, Limits, Log, Originate, Process, Redirect, Route, Sockets, Tickets, Timeouts,
};
use crate::values::choices::{TlsProfile, TlsVersion};
use crate::values::endpoints::Backend;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Room for TLS 1.2 sessions of clients that know no tickets, beside tickets: some 4,000 of them.
const BESIDE_TICKETS_BYTES: usize = 1 << 20;

/// Everything that `serve` does, decided before it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The ways through the program for TLS that comes in.
    pub routes: Vec<Route>,
    /// Those for TLS that goes out. There is at least one of either kind.
    pub originate: Vec<Originate>,
    /// The program as a whole.
    pub process: Process,
    /// How much there may be of everything.
    pub limits: Limits,
    /// How long anything may take.
    pub timeouts: Timeouts,
    /// What the kernel is asked for.
    pub sockets: Sockets,
    /// Resumption.
    pub tickets: Tickets,
    /// Where certificates are had from.
    #[serde(default)]
    pub acme: Acme,
    /// Plain HTTP that is sent on to https.
    #[serde(default)]
    pub redirect: Redirect,
    /// Standard error.
    pub log: Log,
}

impl Config {
    /// The options of a route.
    pub const ROUTE_OPTIONS: OptionGroup = OptionGroup::of::<Route>();

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

    /// Reads an option of the program. `None`: there is none of this name.
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

    /// The names of all options of the program.
    pub(crate) fn option_names() -> Vec<&'static str> {
        let options = Self::PROCESS_OPTIONS.iter().flat_map(|group| group.options);
        options.map(|spec| spec.name).collect()
    }

    /// All names for which certificates are had, each once.
    pub fn acme_names(&self) -> BTreeSet<&str> {
        let names = self.routes.iter().flat_map(|route| &route.acme);
        names.map(|name| name.as_str()).collect()
    }

    /// The names under which metrics, logs and `status` show the routes, then those of the
    /// originations: as configured, or by their number.
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

    /// Bytes of the session cache: as configured, or a small one beside tickets. 0: there is none.
    pub fn session_cache_bytes(&self) -> usize {
        match self.tickets.session_cache {
            Some(bytes) => bytes.as_usize(),
            None if self.tickets.tickets == 0 || self.routes.is_empty() => 0,
            None => BESIDE_TICKETS_BYTES,
        }
    }
}

impl Route {
    /// The oldest version of TLS, as profile and option say it.
    pub fn oldest_version(&self) -> TlsVersion {
        match self.profile {
            TlsProfile::Modern => TlsVersion::Tls13,
            TlsProfile::Intermediate => self.min_version,
        }
    }

    /// Whether it answers by itself.
    pub fn is_echo(&self) -> bool {
        self.to.iter().any(|to| to.backend == Backend::Echo)
    }
}
