//! TLS contexts of a generator: one for all, or one per lane when sessions are resumed.
//!
//! A lane is a client that connects repeatedly. It offers its own latest session, as a browser
//! does; lanes with a common store would use up each other's tickets.

use dormouse_engine::{
    ClientContext, ClientSettings, Group, Identity, Protocols, ResumptionSettings, Roots, Suite,
};

use super::orders::{Tls, TlsSuite, TlsVersion, Trust};

/// Contexts, created when they are first needed.
pub(super) struct Contexts {
    tls: Tls,
    shared: ClientContext,
    lanes: Vec<Option<ClientContext>>,
}

impl Contexts {
    /// Checks the settings by creating the shared context.
    pub(super) fn new(tls: Tls) -> Result<Self, String> {
        let shared = context(&tls, None)?;
        Ok(Self {
            tls,
            shared,
            lanes: Vec::new(),
        })
    }

    pub(super) fn server_name(&self) -> &str {
        &self.tls.server_name
    }

    /// Returns the context for a connection on `lane`.
    pub(super) fn of_lane(&mut self, lane: u32) -> Result<ClientContext, String> {
        if !self.tls.resume {
            return Ok(self.shared.clone());
        }
        let lane = lane as usize;
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, || None);
        }
        let Some(place) = self.lanes.get_mut(lane) else {
            return Ok(self.shared.clone());
        };
        if let Some(context) = place {
            return Ok(context.clone());
        }
        let made = context(
            &self.tls,
            Some(ResumptionSettings {
                sessions_max: 8,
                tickets_expected: 1,
                by_caller: None,
            }),
        )?;
        Ok(place.insert(made).clone())
    }
}

fn context(tls: &Tls, resumption: Option<ResumptionSettings>) -> Result<ClientContext, String> {
    let roots = match &tls.trust {
        Trust::System => Roots::System,
        Trust::Pem(pem) => Roots::Pem(pem.clone().into_bytes()),
        Trust::Insecure => Roots::Insecure,
    };
    let mut settings = ClientSettings::new(roots);
    settings.resumption = resumption;
    if let Some(files) = &tls.identity {
        let identity = Identity::from_files(&files.certificate, &files.key);
        settings.identity = Some(identity.map_err(|error| error.to_string())?);
    }
    settings.protocols = match tls.version {
        None => Protocols::ALL,
        Some(TlsVersion::V12) => Protocols::TLS12,
        Some(TlsVersion::V13) => Protocols::TLS13,
    };
    if let Some(suite) = tls.suite {
        settings.protocols = Protocols::TLS13;
        settings.suites = vec![match suite {
            TlsSuite::Aes128Gcm => Suite::Aes128Gcm,
            TlsSuite::Aes256Gcm => Suite::Aes256Gcm,
            TlsSuite::Chacha20 => Suite::Chacha20,
        }];
    }
    settings
        .groups
        .retain(|group| tls.post_quantum || *group != Group::X25519MlKem768);
    ClientContext::new(settings).map_err(|error| error.to_string())
}
