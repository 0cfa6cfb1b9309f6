//! How the audit connects: target, trusted certificates, and the limits on connections and time.

use std::time::{Duration, Instant};

use dormouse_bench::load::{IdentityFiles, Starttls, Trust};
use dormouse_engine::{
    ClientContext, ClientSettings, Group, Identity, PemFile, Protocols, ResumptionSettings, Roots,
    pem_chain,
};
use dormouse_measure::Interrupts;
use dormouse_reactor::socket::Addr;

use super::deadline::Deadline;
use super::spec::ServerSpec;

/// Target and settings of the audit's own connections.
#[derive(Clone, Copy)]
pub(super) struct Dialer<'a> {
    pub(super) target: &'a Addr,
    pub(super) name: &'a str,
    pub(super) trust: &'a Trust,
    pub(super) identity: Option<&'a IdentityFiles>,
    /// Bytes that make the server answer; empty until they are known.
    pub(super) words: &'a [u8],
    /// Whether more than a handful of connections are allowed.
    pub(super) free: bool,
    /// Protocol of a server that begins in plaintext.
    pub(super) starttls: Option<Starttls>,
    /// Signals that end the audit, also in the middle of a connection.
    pub(super) interrupts: &'a Interrupts,
    /// Time by which the connections of this part must be over.
    pub(super) deadline: Deadline,
}

impl<'a> Dialer<'a> {
    pub(super) fn new(
        spec: &'a ServerSpec,
        target: &'a Addr,
        free: bool,
        interrupts: &'a Interrupts,
    ) -> Self {
        Self {
            target,
            name: &spec.server_name,
            trust: &spec.trust,
            identity: spec.identity.as_ref(),
            words: &[],
            free,
            starttls: spec.starttls,
            interrupts,
            deadline: Deadline::NONE,
        }
    }
}

impl Dialer<'_> {
    /// The versions to try: only the newest one on a server that must not be loaded.
    pub(super) fn versions<'v>(&self, all: &'v [Protocols]) -> &'v [Protocols] {
        if self.free {
            all
        } else {
            all.get(..1).unwrap_or_default()
        }
    }

    /// Returns the same for a part that must end by a deadline.
    pub(super) fn until(self, deadline: Deadline) -> Self {
        Self { deadline, ..self }
    }

    /// Returns how long a step may wait.
    pub(super) fn patience(&self, patience: Duration) -> Duration {
        self.deadline.limit(Instant::now(), patience)
    }

    /// Size of the client's certificate chain in DER, in bytes.
    pub(super) fn chain_bytes(&self) -> Option<u32> {
        let file = PemFile::read(&self.identity?.certificate).ok()?;
        let chain = pem_chain(file.text(), file.name()).ok()?;
        u32::try_from(chain.iter().map(Vec::len).sum::<usize>()).ok()
    }

    pub(super) fn context(
        &self,
        protocols: Protocols,
        resumption: Option<ResumptionSettings>,
    ) -> Result<ClientContext, String> {
        let roots = match self.trust {
            Trust::System => Roots::System,
            Trust::Pem(pem) => Roots::Pem(pem.clone().into_bytes()),
            Trust::Insecure => Roots::Insecure,
        };
        let mut settings = ClientSettings::new(roots);
        settings.protocols = protocols;
        settings.resumption = resumption;
        if let Some(files) = self.identity {
            let identity = Identity::from_files(&files.certificate, &files.key);
            settings.identity = Some(identity.map_err(|error| error.to_string())?);
        }
        settings
            .groups
            .retain(|group| *group != Group::X25519MlKem768);
        ClientContext::new(settings).map_err(|error| error.to_string())
    }
}

pub(super) fn version_name(protocols: Protocols) -> &'static str {
    if protocols == Protocols::TLS12 {
        "TLS 1.2"
    } else {
        "TLS 1.3"
    }
}
