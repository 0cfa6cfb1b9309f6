//! TLS to backends (`backend_tls`): a route's plaintext is encrypted again.
//!
//! Such a connection is two slots of one worker, one for TLS with the client and one for TLS with the
//! backend. Their plain sides are the two ends of a joint (`reactor/src/socket/joint.rs`). Each slot
//! rests, survives and ends separately, and a worker works on one of them at a time.

use crate::balance::Target;
use crate::engine_values::{alpn, judge_of_ids};
use crate::parsed::Parsed;
use dormouse_config::{self as config, SpiffeRule, Truncation};
use dormouse_engine::{ClientContext, ClientSettings, ResumptionSettings, Roots};
use dormouse_handover::stored::Stored;
use dormouse_handover::{OriginPem, Pem};

/// Number of tickets that a connection waits for: most servers send two after a full handshake.
pub(crate) const TICKETS_EXPECTED: u32 = 2;

/// Maximum time to wait for these tickets.
pub const TICKET_WAIT_MS: u64 = 1_000;

/// TLS settings for the backends of a route.
pub struct BackendTls {
    /// Trust, own certificate and sessions, shared by all connections. `None` until a new worker that
    /// took over connections has parsed them.
    pub context: Option<ClientContext>,
    /// How to treat a backend that closes without close_notify.
    pub truncation: Truncation,
    /// The server name for all backends, if one is configured.
    name: Option<String>,
}

impl BackendTls {
    /// Creates the settings without a context, so that nothing is parsed.
    pub(crate) fn of(route: &config::Route) -> Option<BackendTls> {
        route.backend_tls.then(|| BackendTls {
            context: None,
            truncation: route.backend_truncation,
            name: route.backend_name.clone(),
        })
    }

    /// Builds the context. Returns the id of the trust store that it uses.
    pub(crate) fn make_context(
        &mut self,
        configured: &config::Route,
        pem: &OriginPem,
        stored: Option<&Stored>,
        known: &mut Parsed,
    ) -> Result<u64, String> {
        let (id, roots) = match known.trust(pem, stored)? {
            Some(known) => known,
            None => return Err("no authorities are configured for backends".to_owned()),
        };
        let (offered, own) = (&configured.backend_alpn, pem.identity.as_ref());
        let trust = Trust {
            roots: Roots::Store(roots),
            ids: (configured.backend_ca.trust_domain()).map(|_| &configured.backend_ids[..]),
        };
        self.context = Some(context(offered, trust, own, true)?);
        Ok(id)
    }

    /// The name that must be in the certificate of this backend.
    pub fn server_name(&self, target: &Target) -> Option<String> {
        self.name.clone().or_else(|| target.host.clone())
    }
}

/// What is demanded of backends' certificates.
pub struct Trust<'a> {
    /// The authorities.
    pub roots: Roots,
    /// The SPIFFE ids that take the place of the name, if the authorities are those of a trust domain.
    pub ids: Option<&'a [SpiffeRule]>,
}

/// Builds the TLS context for backends, which connections and health checks use.
pub fn context(
    offered: &[String],
    trust: Trust<'_>,
    own: Option<&Pem>,
    resumes: bool,
) -> Result<ClientContext, String> {
    let mut settings = ClientSettings::new(trust.roots);
    settings.judge = trust.ids.map(judge_of_ids);
    settings.alpn = alpn(offered);
    settings.resumption = resumes.then(|| ResumptionSettings {
        tickets_expected: TICKETS_EXPECTED,
        ..ResumptionSettings::default()
    });
    if let Some(pem) = own {
        settings.identity = Some(pem.identity().map_err(|e| e.to_string())?.clone());
    }
    ClientContext::new(settings).map_err(|e| e.to_string())
}
