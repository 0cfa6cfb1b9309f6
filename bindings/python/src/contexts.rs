//! The shared part of connections: certificates, trust, tickets. Prepared once; any thread may use it.

use std::path::PathBuf;
use std::sync::Arc;

use dormouse_embed::{
    CertificateProblem, CertificateRefusal, ClientCertificates, ClientSettings, Finding, Group,
    Issuers, JudgeCertificate, KeyKind, NAMED_SUITES, NamedSuite, PemFile, Protocols, Roots,
    SecretLog, ServerSettings, ShownCertificates, TicketSettings, UnixTime, Version,
    groups_by_name, pem_chain,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::errors;
use crate::key_log::KeyLog;

/// A certificate chain with its key.
#[pyclass(frozen, module = "dormouse._native")]
pub(crate) struct Identity(dormouse_embed::Identity);

#[pymethods]
impl Identity {
    /// Reads a chain and its key, both PEM. The names are for errors.
    #[new]
    fn new(
        py: Python<'_>,
        certificate: &[u8],
        key: &[u8],
        certificate_name: &str,
        key_name: &str,
    ) -> PyResult<Identity> {
        dormouse_embed::Identity::from_pem(certificate, key, certificate_name, key_name)
            .map(Identity)
            .map_err(|error| errors::settings(py, error))
    }

    /// The kind of its key: `RSA`, `EC` or `ED25519`.
    #[getter]
    fn key_kind(&self) -> &'static str {
        match self.0.key_kind() {
            KeyKind::Rsa { .. } => "RSA",
            KeyKind::Ecdsa { .. } => "EC",
            KeyKind::Ed25519 => "ED25519",
        }
    }

    /// Creates a self-signed certificate for `name`.
    #[staticmethod]
    fn self_signed(py: Python<'_>, name: &str) -> PyResult<Identity> {
        dormouse_embed::Identity::self_signed(name)
            .map(Identity)
            .map_err(|error| errors::settings(py, error))
    }
}

/// Keys by which several servers resume each other's sessions.
#[pyclass(frozen, module = "dormouse._native")]
pub(crate) struct TicketKeys(Vec<u8>, Vec<u8>);

#[pymethods]
impl TicketKeys {
    /// Reads the contents of a ticket key file, and the secret that opens it if the file is Dormouse's own.
    #[new]
    fn new(py: Python<'_>, keys: &[u8], secret: &[u8]) -> PyResult<TicketKeys> {
        dormouse_embed::TicketKeys::from_file(keys, secret)
            .map_err(|error| errors::settings(py, error))?;
        Ok(TicketKeys(keys.to_vec(), secret.to_vec()))
    }
}

impl Drop for TicketKeys {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
        zeroize::Zeroize::zeroize(&mut self.1);
    }
}

/// Settings that servers and clients share.
#[pyclass(frozen, module = "dormouse._native")]
pub(crate) struct Common {
    identities: Vec<Py<Identity>>,
    roots: Vec<u8>,
    alpn: Vec<String>,
    oldest: u16,
    newest: u16,
    groups: Vec<String>,
    key_log: Option<PathBuf>,
}

#[pymethods]
impl Common {
    #[new]
    #[pyo3(signature = (*, identities, roots, alpn, oldest, newest, groups, key_log))]
    fn new(
        identities: Vec<Py<Identity>>,
        roots: Vec<u8>,
        alpn: Vec<String>,
        oldest: u16,
        newest: u16,
        groups: Vec<String>,
        key_log: Option<PathBuf>,
    ) -> Common {
        Common {
            identities,
            roots,
            alpn,
            oldest,
            newest,
            groups,
            key_log,
        }
    }
}

/// The same, as the engine takes them.
struct Negotiation {
    protocols: Protocols,
    alpn: Vec<Vec<u8>>,
    groups: Vec<Group>,
    secret_log: Option<Arc<dyn SecretLog>>,
}

impl Common {
    /// The chains, with what they lack of the trusted certificates, as in OpenSSL.
    fn completed(&self) -> Vec<dormouse_embed::Identity> {
        let issuers = Issuers::from_pem(&self.roots, "").unwrap_or_default();
        let identities = self.identities.iter().map(|one| one.get().0.clone());
        identities.map(|one| one.completed(&issuers)).collect()
    }

    fn negotiation(&self) -> PyResult<Negotiation> {
        let key_log = self.key_log.as_deref().map(KeyLog::open).transpose()?;
        Ok(Negotiation {
            protocols: self.protocols()?,
            alpn: self
                .alpn
                .iter()
                .map(|name| name.as_bytes().to_vec())
                .collect(),
            groups: groups(&self.groups)?,
            secret_log: key_log.map(|log| log as _),
        })
    }

    fn protocols(&self) -> PyResult<Protocols> {
        let version = |number| {
            Version::from_number(number).ok_or_else(|| {
                PyValueError::new_err(format!("{number:#06x} is not TLS 1.2 or 1.3"))
            })
        };
        Ok(Protocols {
            min: version(self.oldest)?,
            max: version(self.newest)?,
        })
    }
}

fn groups(names: &[String]) -> PyResult<Vec<Group>> {
    groups_by_name(names).map_err(|unknown| PyValueError::new_err(unknown.to_string()))
}

/// Checks that each of these groups is known.
#[pyfunction]
pub(crate) fn check_groups(names: Vec<String>) -> PyResult<()> {
    groups(&names).map(drop)
}

/// All suites: OpenSSL's name, oldest protocol, bits of the key.
#[pyfunction]
pub(crate) fn suites() -> Vec<(&'static str, &'static str, u16)> {
    let facts = |suite: &NamedSuite| {
        let version = suite.suite.version().name();
        (suite.openssl, version, suite.key_bits())
    };
    NAMED_SUITES.iter().map(facts).collect()
}

/// The shared context of a server's connections.
#[pyclass(frozen, module = "dormouse._native")]
pub(crate) struct ServerContext {
    pub(crate) context: dormouse_embed::ServerContext,
}

#[pymethods]
impl ServerContext {
    /// `certificates`: `None`, or whether a client must send a certificate, which `roots` must have signed.
    #[new]
    fn new(
        py: Python<'_>,
        common: &Common,
        certificates: Option<bool>,
        tickets: usize,
        ticket_keys: Option<&TicketKeys>,
    ) -> PyResult<ServerContext> {
        let identities = common.completed();
        let Negotiation {
            protocols,
            alpn,
            groups,
            secret_log,
        } = common.negotiation()?;
        let mut settings = ServerSettings {
            protocols,
            alpn,
            groups,
            secret_log,
            ..ServerSettings::new(identities)
        };
        settings.client_certificates = certificates.map(|required| ClientCertificates {
            required,
            roots: common.roots.clone(),
            ..ClientCertificates::default()
        });
        settings.tickets = match tickets {
            0 => None,
            per_handshake => Some(TicketSettings {
                per_handshake,
                keys: match ticket_keys {
                    Some(TicketKeys(keys, secret)) => Some(
                        dormouse_embed::TicketKeys::from_file(keys, secret)
                            .map_err(|error| errors::settings(py, error))?,
                    ),
                    None => None,
                },
                ..TicketSettings::default()
            }),
        };
        let logs_secrets = settings.secret_log.is_some();
        let context = dormouse_embed::ServerContext::new(settings)
            .map_err(|error| errors::settings(py, error))?;
        if !logs_secrets {
            // The first connection must cost no more than the thousandth.
            py.detach(|| context.warm_up(UnixTime::now()))
                .map_err(|failure| errors::settings(py, failure.reason))?;
        }
        Ok(ServerContext { context })
    }
}

/// The shared context of a client's connections, including their sessions for resumption.
#[pyclass(frozen, module = "dormouse._native")]
pub(crate) struct ClientContext {
    pub(crate) context: dormouse_embed::ClientContext,
}

#[pymethods]
impl ClientContext {
    /// `verifies`: whether servers need a certificate that `roots` vouch for; `checks_name`: one for the requested
    /// name.
    #[new]
    fn new(
        py: Python<'_>,
        common: &Common,
        verifies: bool,
        checks_name: bool,
        resumes: bool,
    ) -> PyResult<ClientContext> {
        let roots = match verifies {
            true => Roots::Pem(common.roots.clone()),
            false => Roots::Insecure,
        };
        let Negotiation {
            protocols,
            alpn,
            groups,
            secret_log,
        } = common.negotiation()?;
        let mut settings = ClientSettings {
            protocols,
            alpn,
            groups,
            secret_log,
            ..ClientSettings::new(roots)
        };
        settings.identity = common.completed().pop();
        if verifies && !checks_name {
            settings.judge = Some(Arc::new(AnyName));
        }
        if !resumes {
            settings.resumption = None;
        }
        let context = dormouse_embed::ClientContext::new(settings)
            .map_err(|error| errors::settings(py, error))?;
        Ok(ClientContext { context })
    }
}

/// Accepts a valid certificate whatever its name.
#[derive(Debug)]
struct AnyName;

impl JudgeCertificate for AnyName {
    fn judge(&self, shown: &ShownCertificates<'_>) -> Result<(), CertificateRefusal> {
        match shown.finding {
            Finding::Trusted | Finding::Refused(CertificateProblem::WrongName { .. }) => Ok(()),
            Finding::Refused(problem) => Err(problem.to_string().into()),
            Finding::NoRoots => Err("there are no trusted certificates".into()),
        }
    }
}

/// The certificates that the operating system trusts, as one PEM bundle.
#[pyfunction]
pub(crate) fn system_roots(py: Python<'_>) -> PyResult<Bound<'_, PyBytes>> {
    let bundle = Roots::system_pem().map_err(|error| errors::settings(py, error))?;
    Ok(PyBytes::new(py, bundle.as_bytes()))
}

/// The certificates of a PEM bundle, as PEM, each of which can be trusted. `name` is for errors.
#[pyfunction]
pub(crate) fn authorities<'py>(
    py: Python<'py>,
    bundle: &[u8],
    name: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let authorities = PemFile::of(bundle, name).authorities();
    let authorities = authorities.map_err(|error| errors::settings(py, error))?;
    Ok(PyBytes::new(py, authorities.as_bytes()))
}

/// The certificates of a PEM text, DER.
#[pyfunction]
pub(crate) fn pem_certificates<'py>(py: Python<'py>, pem: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
    let chain = pem_chain(pem, "").map_err(|error| errors::settings(py, error))?;
    PyTuple::new(py, chain.iter().map(|der| PyBytes::new(py, der)))
}
