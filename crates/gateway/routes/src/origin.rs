//! An origination (`[[originate]]`) at run time.

use crate::backend_tls::TICKETS_EXPECTED;
use crate::engine_values::{alpn, judge_of_ids, version};
use crate::parsed::Parsed;
use dormouse_config::{Config, Originate, Server, milliseconds};
use dormouse_engine::{
    ClientContext, ClientSettings, Protocols, ResumptionSettings, Reuse, Roots, digest,
};
use dormouse_handover::{Handover, OriginPem, Revocation};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Addr;
use dormouse_tables::client_sessions::{ClientSessions, SessionKey, SessionPlace};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// TLS settings and servers of one `[[originate]]`.
pub struct Origin {
    /// Trust, own certificate and suites, shared by all connections.
    pub context: ClientContext,
    /// The servers' addresses, in the order in which they are tried.
    pub targets: Vec<ServerAddress>,
    /// The servers of those addresses.
    servers: Vec<OriginServer>,
    /// Milliseconds for which a connection waits for tickets after its handshake.
    pub ticket_wait_ms: u64,
    /// Number of warm connections that this worker keeps.
    pub warm: u32,
}

/// A configured server.
struct OriginServer {
    /// As written: the name that may resolve later.
    given: String,
    addresses: Vec<SocketAddr>,
    server_name: String,
    sessions: Option<Arc<SessionPlace>>,
}

/// One address of a server.
pub struct ServerAddress {
    /// The address to connect to.
    pub address: Addr,
    /// The server name to request and verify.
    pub server_name: String,
    /// The server's name in messages.
    pub name: String,
    /// Sessions of this server. `None`: handshakes are never resumed.
    pub sessions: Option<Arc<SessionPlace>>,
}

/// Number of a worker, and the number of workers.
#[derive(Clone, Copy)]
pub struct WorkerNumber {
    /// The number of this worker, from 0.
    pub worker: u32,
    /// The number of workers.
    pub workers: u32,
}

/// Builds the originations of a worker from its handover.
pub fn of_worker(handover: &Handover) -> io::Result<Vec<Origin>> {
    let number = WorkerNumber {
        worker: handover.worker,
        workers: handover.share.workers,
    };
    let sessions = match handover.descriptors.sessions {
        Some(fd) => {
            let sessions = ClientSessions::adopt(Fd(fd), PLACES, handover.worker)?;
            sessions.forget_claims();
            Some(sessions)
        }
        None => None,
    };
    origins(
        &handover.config,
        &handover.origins,
        sessions.as_ref(),
        number,
    )
    .map_err(io::Error::other)
}

/// Builds the configured originations. An error names the origination and the reason.
pub fn origins(
    config: &Config,
    pems: &[OriginPem],
    sessions: Option<&ClientSessions>,
    number: WorkerNumber,
) -> Result<Vec<Origin>, String> {
    // Originations with the same authorities and revocation lists share one trust store.
    let mut known = Parsed::default();
    config
        .originate
        .iter()
        .zip(pems)
        .enumerate()
        .map(|(n, (originate, pem))| {
            origin(originate, pem, sessions, number, &mut known)
                .map_err(|reason| format!("origination {}: {reason}", n + 1))
        })
        .collect()
}

fn origin(
    originate: &Originate,
    pem: &OriginPem,
    sessions: Option<&ClientSessions>,
    number: WorkerNumber,
    known: &mut Parsed,
) -> Result<Origin, String> {
    let trust = known.trust(pem, None)?;
    let roots = trust.map_or(Roots::Insecure, |(_, store)| Roots::Store(store));
    let reuse = reuse(originate);
    let mut settings = ClientSettings::new(roots);
    let ids = originate
        .ca
        .trust_domain()
        .map(|_| &originate.server_ids[..]);
    settings.judge = ids.map(judge_of_ids);
    settings.alpn = alpn(&originate.alpn);
    settings.protocols = Protocols {
        min: version(originate.min_version),
        max: version(originate.max_version),
    };
    settings.resumption = (originate.resume_uses > 0).then_some(ResumptionSettings {
        tickets_expected: TICKETS_EXPECTED,
        by_caller: Some(reuse),
        ..ResumptionSettings::default()
    });
    if let Some(pem) = &pem.identity {
        settings.identity = Some(pem.identity().map_err(|e| e.to_string())?.clone());
    }
    let context = ClientContext::new(settings).map_err(|e| e.to_string())?;
    let servers = originate.to.iter().map(|server| {
        let place = sessions.and_then(|all| all.place(key(originate, server, pem), reuse));
        OriginServer {
            given: server.given.clone(),
            addresses: server.addresses.clone(),
            server_name: server_name(originate, server).to_owned(),
            sessions: place.map(Arc::new),
        }
    });
    let servers: Vec<OriginServer> = servers.collect();
    let WorkerNumber { worker, workers } = number;
    let extra = u32::from(worker < originate.warm % workers.max(1));
    Ok(Origin {
        context,
        targets: servers.iter().flat_map(OriginServer::targets).collect(),
        servers,
        ticket_wait_ms: milliseconds(originate.ticket_wait),
        warm: originate.warm / workers.max(1) + extra,
    })
}

impl Origin {
    /// Sets the addresses of a name that had none. Returns `true` if a server has this name.
    pub(crate) fn set_addresses(&mut self, name: &str, found: &[SocketAddr]) -> bool {
        let servers = self.servers.iter_mut();
        let mut has_changed = false;
        for server in servers.filter(|one| one.addresses.is_empty() && one.given == name) {
            server.addresses = found.to_vec();
            has_changed = true;
        }
        if has_changed {
            self.targets = self
                .servers
                .iter()
                .flat_map(OriginServer::targets)
                .collect();
        }
        has_changed
    }

    /// The first server whose name has not resolved yet.
    pub fn unresolved(&self) -> Option<&str> {
        let mut servers = self.servers.iter();
        let unresolved = servers.find(|server| server.addresses.is_empty());
        unresolved.map(|server| server.given.as_str())
    }
}

impl OriginServer {
    fn targets(&self) -> impl Iterator<Item = ServerAddress> + '_ {
        self.addresses.iter().map(|address| {
            let shown = address.to_string();
            ServerAddress {
                address: Addr::Tcp(*address),
                server_name: self.server_name.clone(),
                name: match shown == self.given {
                    true => shown,
                    false => format!("{} ({shown})", self.given),
                },
                sessions: self.sessions.clone(),
            }
        })
    }
}

fn server_name<'a>(originate: &'a Originate, server: &'a Server) -> &'a str {
    originate.server_name.as_deref().unwrap_or(&server.host)
}

/// Limits on the reuse of an origination's sessions.
pub fn reuse(originate: &Originate) -> Reuse {
    Reuse {
        uses_max: originate.resume_uses,
        age_max_s: originate.resume_age.as_secs(),
    }
}

/// Digest of everything on which a session with this server depends. Only an origination with the same
/// key may resume it. A server that was revoked since makes a full handshake, because its list has changed.
pub fn key(originate: &Originate, server: &Server, pem: &OriginPem) -> SessionKey {
    let alpn = originate.alpn.join("\0");
    let versions = format!("{} {}", originate.min_version, originate.max_version);
    let own = pem.identity.as_ref().map_or("", |own| own.chain.as_str());
    let mut parts = vec![
        server.given.as_bytes(),
        server_name(originate, server).as_bytes(),
        alpn.as_bytes(),
        versions.as_bytes(),
        pem.roots.as_deref().unwrap_or("insecure").as_bytes(),
        own.as_bytes(),
    ];
    let Revocation {
        crls,
        ocsp_required,
    } = &pem.revocation;
    parts.extend(ocsp_required.then_some(&b"OCSP required"[..]));
    parts.extend(crls.iter().map(|list| list.pem().as_bytes()));
    let ids: Vec<String> = originate
        .server_ids
        .iter()
        .map(|id| format!("id {id}"))
        .collect();
    parts.extend(ids.iter().map(String::as_bytes));
    let digest = digest(&parts);
    let mut key = SessionKey::default();
    key.copy_from_slice(&digest[..16]);
    key
}

/// Maximum number of servers whose sessions are kept. An unused place takes no memory.
pub const PLACES: usize = 1_024;
