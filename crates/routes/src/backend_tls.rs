//! TLS with backends: plaintext of a route is encrypted again.
//!
//! Such a connection is two slots of one worker, one for the client's TLS and one for the
//! backend's, whose plain sides are the two ends of a joint (`reactor/src/socket/joint.rs`). Each
//! rests, survives and ends for itself, as any other; what is worked on at a time is one of them.

use crate::engine_values::alpn;
use dormouse_config::{self as config, Backend, Truncation};
use dormouse_engine::{ClientContext, ClientSettings, ResumptionSettings, Roots, TrustStore};
use dormouse_handover::{OriginPem, Pem};
use dormouse_reactor::socket::Addr;

/// Tickets that a connection waits for: what most servers send after a full handshake.
const TICKETS_EXPECTED: u32 = 2;

/// For how long at most.
pub const TICKET_WAIT_MS: u64 = 1_000;

/// How TLS is spoken with the backends of a route.
pub struct BackendTls {
    /// Trust, own certificate and sessions: one for all connections, parsed once. `None` for the
    /// first moments of a worker that found connections.
    pub context: Option<ClientContext>,
    /// What an end of the backend's TCP connection without close_notify means.
    pub truncation: Truncation,
    /// The name that every backend is asked for.
    name: Option<String>,
    /// Or the host of each, as it was given.
    hosts: Vec<(String, Backend)>,
}

impl BackendTls {
    /// What there is to know of it without parsing anything.
    pub(crate) fn of(route: &config::Route) -> Option<BackendTls> {
        let host = |upstream: &config::Upstream| {
            let Backend::Tcp { given, .. } = &upstream.backend else {
                return None;
            };
            let (host, _) = given.rsplit_once(':')?;
            let host = host.trim_start_matches('[').trim_end_matches(']');
            Some((host.to_owned(), upstream.backend.clone()))
        };
        route.backend_tls.then(|| BackendTls {
            context: None,
            truncation: route.backend_truncation,
            name: route.backend_name.clone(),
            hosts: route.to.iter().filter_map(host).collect(),
        })
    }

    /// Makes the context. The error says what is wrong.
    pub(crate) fn make_context(
        &mut self,
        configured: &config::Route,
        pem: &OriginPem,
    ) -> Result<(), String> {
        let roots = match &pem.roots {
            Some(text) => TrustStore::from_pem(text.as_bytes()).map_err(|e| e.to_string())?,
            None => return Err("nobody is named who may vouch for backends".to_owned()),
        };
        let (offered, own) = (&configured.backend_alpn, pem.identity.as_ref());
        self.context = Some(context(offered, Roots::Store(roots), own, true)?);
        Ok(())
    }

    /// The name that the certificate of the backend at this address has to be for.
    pub fn server_name(&self, address: &Addr) -> Option<String> {
        if let Some(name) = &self.name {
            return Some(name.clone());
        }
        let Addr::Tcp(address) = address else {
            return None;
        };
        let is_it = |(_, backend): &&(String, Backend)| backend.addresses().any(|a| a == *address);
        let host = self.hosts.iter().find(is_it).map(|(host, _)| host.clone());
        Some(host.unwrap_or_else(|| address.ip().to_string()))
    }

    /// The backend of this name has other addresses from now on.
    pub(crate) fn set_addresses(&mut self, name: &str, addresses: &[std::net::SocketAddr]) {
        for (_, backend) in &mut self.hosts {
            if backend.name() == Some(name) {
                backend.set_addresses(addresses);
            }
        }
    }
}

/// How TLS is spoken with backends: by clients' connections, and by checks.
pub fn context(
    offered: &[String],
    roots: Roots,
    own: Option<&Pem>,
    resumes: bool,
) -> Result<ClientContext, String> {
    let mut settings = ClientSettings::new(roots);
    settings.alpn = alpn(offered);
    settings.resumption = resumes.then(|| ResumptionSettings {
        tickets_expected: TICKETS_EXPECTED,
        ..ResumptionSettings::default()
    });
    if let Some(pem) = own {
        settings.identity = Some(pem.identity().map_err(|e| e.to_string())?);
    }
    ClientContext::new(settings).map_err(|e| e.to_string())
}
