//! Memory that main creates and all workers share.

use crate::error::{ServeError, system};
use crate::material::Material;
use crate::session_files::{SessionFiles, SessionFilesState};
use dormouse_config::{Config, Loaded};
use dormouse_handover::Descriptors;
use dormouse_reactor::Fd;
use dormouse_reactor::cache::Cache;
use dormouse_reactor::shared::Shared;
use dormouse_tables::backends::{BackendFds, Backends};
use dormouse_tables::clients::Clients;
use dormouse_tables::traffic::Traffic;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;

/// Memory shared by all workers.
pub(crate) struct SharedMemory {
    pub(crate) counters: Shared,
    /// Counts per client address.
    pub(crate) clients: Clients,
    /// Load and health of backends.
    pub(crate) backends: Backends,
    /// Read-only descriptor of the roster of backends, for workers.
    roster: Fd,
    /// Traffic by route and by backend.
    pub(crate) traffic: Traffic,
    /// TLS sessions of routes.
    session_cache: Option<Fd>,
    /// TLS sessions of originations, and their files.
    pub(crate) sessions: Option<SessionFiles>,
}

impl SharedMemory {
    /// Creates all mappings at the start of the program.
    pub(crate) fn create(loaded: &Loaded, material: &Material) -> Result<SharedMemory, ServeError> {
        let Loaded { config, plan, .. } = loaded;
        let cannot = || system("create shared memory");
        let backends = Backends::create(plan.workers).map_err(cannot())?;
        Ok(SharedMemory {
            sessions: SessionFiles::open(config, &material.origins)?,
            counters: Shared::create("dormouse-counters", plan.workers as usize)
                .map_err(cannot())?,
            clients: Clients::create(plan.connections_max, random()).map_err(cannot())?,
            roster: backends.roster_reader().map_err(cannot())?,
            backends,
            traffic: Traffic::create(plan.workers).map_err(cannot())?,
            session_cache: create_session_cache(config)?,
        })
    }

    /// Adopts the mappings that another binary in this process has created.
    pub(crate) fn adopt(
        descriptors: &Descriptors,
        config: &Config,
        sessions: Option<&SessionFilesState>,
        workers: u32,
    ) -> Result<SharedMemory, ServeError> {
        let counters = Shared::adopt(Fd(descriptors.counters), workers as usize);
        let clients = Clients::adopt(Fd(descriptors.clients), descriptors.clients_for);
        let of_main = BackendFds {
            roster: Fd(descriptors.roster_of_main),
            ..descriptors.backends()
        };
        let backends = Backends::adopt_as_main(of_main, workers);
        let traffic = Traffic::adopt(Fd(descriptors.traffic), workers, 0);
        let sessions = sessions.map(|state| SessionFiles::adopt(config, state));
        Ok(SharedMemory {
            counters: (counters.map_err(io::Error::other)).map_err(system("map the counters"))?,
            clients: (clients.map_err(io::Error::other))
                .map_err(system("map the table of clients"))?,
            backends: (backends.map_err(io::Error::other))
                .map_err(system("map the table of backends"))?,
            roster: Fd(descriptors.roster),
            traffic: (traffic.map_err(io::Error::other))
                .map_err(system("map the table of traffic"))?,
            session_cache: descriptors.session_cache.map(Fd),
            sessions: sessions.transpose().map_err(system("map the sessions"))?,
        })
    }

    /// Writes the mappings' descriptors into `descriptors`.
    pub(crate) fn describe(&self, descriptors: &mut Descriptors) {
        descriptors.counters = self.counters.fd().0;
        descriptors.clients = self.clients.fd().0;
        descriptors.clients_for = self.clients.made_for();
        let BackendFds { roster, marks } = self.backends.fds();
        descriptors.backends = marks.0;
        descriptors.roster = self.roster.0;
        descriptors.roster_of_main = roster.0;
        descriptors.traffic = self.traffic.fd().0;
        descriptors.sessions = self.sessions.as_ref().map(|files| files.fd().0);
        descriptors.session_cache = self.session_cache.map(|fd| fd.0);
    }

    /// All of its descriptors.
    pub(crate) fn fds(&self) -> Vec<Fd> {
        let BackendFds { roster, marks } = self.backends.fds();
        let mut fds = vec![
            self.counters.fd(),
            self.clients.fd(),
            marks,
            roster,
            self.roster,
            self.traffic.fd(),
        ];
        fds.extend(self.sessions.as_ref().map(SessionFiles::fd));
        fds.extend(self.session_cache);
        fds
    }

    /// Descriptors through which another process can read these tables, but not write them.
    pub(crate) fn readers(&self) -> io::Result<Readers> {
        let counters = self.counters.reader()?;
        let backends = self.backends.reader().inspect_err(|_| counters.close())?;
        let traffic = self.traffic.reader().inspect_err(|_| {
            counters.close();
            backends.close();
        })?;
        Ok(Readers {
            counters,
            backends,
            traffic,
        })
    }
}

/// Descriptors for the control process, which only reads.
pub(crate) struct Readers {
    pub(crate) counters: Fd,
    pub(crate) backends: BackendFds,
    pub(crate) traffic: Fd,
}

impl Readers {
    pub(crate) fn close(&self) {
        self.fds().into_iter().for_each(Fd::close);
    }

    /// All of its descriptors.
    pub(crate) fn fds(&self) -> [Fd; 4] {
        let BackendFds { roster, marks } = self.backends;
        [self.counters, roster, marks, self.traffic]
    }
}

/// A random number. The seed is the standard library's, so outsiders cannot predict it.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn create_session_cache(config: &Config) -> Result<Option<Fd>, ServeError> {
    let bytes = config.session_cache_bytes();
    if bytes == 0 {
        return Ok(None);
    }
    Cache::create("dormouse-sessions", bytes)
        .map(|cache| Some(cache.fd()))
        .map_err(system("create the session cache"))
}
