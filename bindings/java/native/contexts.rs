//! The shared part of connections: certificates, trust, tickets. Prepared once; any thread may use it.

use std::sync::Arc;

use dormouse_embed::{
    ClientCertificates, ClientContext, ClientSettings, Identity, Protocols, ResumptionSettings,
    Roots, ServerContext, ServerSettings, Suite, TicketSettings, TrustStore,
};
use jni::Env;
use jni::objects::{JByteArray, JLongArray, JObject, JObjectArray, JString};
use jni::sys::jint;
use zeroize::Zeroizing;

use crate::engine_calls::{JavaKey, TrustManager};
use crate::exceptions::{Error, settings_error};
use crate::handle;

/// A chain, or a list of names: arrays of bytes.
pub(crate) type Certificates<'local> = JObjectArray<'local, JByteArray<'local>>;

/// Reads a chain, DER, and its key, PKCS #8.
pub(crate) fn identity(
    env: &mut Env<'_>,
    chain: &Certificates<'_>,
    key: &JByteArray<'_>,
    name: &JString<'_>,
) -> Result<Identity, Error> {
    let chain = all(env, chain)?;
    let key = Zeroizing::new(env.convert_byte_array(key)?);
    Identity::from_der(chain, &key, &name.try_to_string(env)?).map_err(settings_error)
}

/// Reads a chain whose key signs in Java.
pub(crate) fn identity_of_signer(
    env: &mut Env<'_>,
    chain: &Certificates<'_>,
    signer: &JObject<'_>,
    name: &JString<'_>,
) -> Result<Identity, Error> {
    let chain = all(env, chain)?;
    let key = Arc::new(JavaKey(env.new_global_ref(signer)?));
    let name = name.try_to_string(env)?;
    Identity::from_signer(chain, key, &name).map_err(settings_error)
}

/// Settings of both sides.
pub(crate) struct Common {
    /// Bit 0: TLS 1.2, bit 1: TLS 1.3.
    pub(crate) versions: jint,
    /// A bit for each of [`Suite::ALL`].
    pub(crate) suites: jint,
}

impl Common {
    fn protocols(&self) -> Result<Protocols, Error> {
        match self.versions {
            1 => Ok(Protocols::TLS12),
            2 => Ok(Protocols::TLS13),
            3 => Ok(Protocols::ALL),
            _ => Err(settings_error("no TLS version is enabled")),
        }
    }

    fn suites(&self) -> Vec<Suite> {
        let all = Suite::ALL.into_iter().enumerate();
        all.filter(|(bit, _)| self.suites & (1 << bit) != 0)
            .map(|(_, suite)| suite)
            .collect()
    }
}

/// Settings of a server only.
pub(crate) struct ServerChoices {
    /// Client certificates: 0 not requested, 1 wanted, 2 required.
    pub(crate) client_certificates: jint,
    pub(crate) ticket_lifetime_s: jint,
}

/// Prepares a server's context. `authorities` tell a client which certificates it may send; the TrustManager decides.
pub(crate) fn server(
    env: &mut Env<'_>,
    identities: &JLongArray<'_>,
    common: &Common,
    choices: &ServerChoices,
    authorities: &Certificates<'_>,
) -> Result<ServerContext, Error> {
    let mut handles = vec![0; identities.len(env)?];
    identities.get_region(env, 0, &mut handles)?;
    let identities = handles.into_iter().filter_map(handle::copy_of::<Identity>);
    let mut settings = ServerSettings::new(identities.collect());
    settings.protocols = common.protocols()?;
    settings.suites = common.suites();
    if choices.client_certificates > 0 {
        settings.client_certificates = Some(ClientCertificates {
            required: choices.client_certificates > 1,
            roots: usable(&all(env, authorities)?),
            ..ClientCertificates::default()
        });
        settings.judge = Some(Arc::new(TrustManager));
    }
    settings.tickets = Some(TicketSettings {
        lifetime_s: u32::try_from(choices.ticket_lifetime_s).unwrap_or_default(),
        ..TicketSettings::default()
    });
    ServerContext::new(settings).map_err(settings_error)
}

/// Settings of a client only.
pub(crate) struct ClientChoices {
    pub(crate) identity: Option<Identity>,
    /// Number of sessions kept for resumption.
    pub(crate) sessions_max: jint,
}

/// Prepares a client's context.
pub(crate) fn client(
    env: &mut Env<'_>,
    choices: ClientChoices,
    common: &Common,
    alpn: &Certificates<'_>,
) -> Result<ClientContext, Error> {
    // Without roots the TrustManager decides alone.
    let mut settings = ClientSettings::new(Roots::Insecure);
    settings.judge = Some(Arc::new(TrustManager));
    settings.protocols = common.protocols()?;
    settings.suites = common.suites();
    settings.identity = choices.identity;
    settings.alpn = all(env, alpn)?;
    settings.resumption = match usize::try_from(choices.sessions_max) {
        Ok(0) | Err(_) => None,
        Ok(sessions_max) => Some(ResumptionSettings {
            sessions_max,
            ..ResumptionSettings::default()
        }),
    };
    ClientContext::new(settings).map_err(settings_error)
}

/// The certificates that can be authorities, as PEM: a trust store of Java may hold others too.
fn usable(certificates: &[Vec<u8>]) -> Vec<u8> {
    let bundle = certificates
        .iter()
        .map(|der| pem::encode(&pem::Pem::new("CERTIFICATE", der.as_slice())));
    bundle
        .filter(|one| TrustStore::from_pem(one.as_bytes()).is_ok())
        .collect::<String>()
        .into_bytes()
}

/// Copies a `byte[][]`; null is empty.
fn all(
    env: &mut Env<'_>,
    arrays: &JObjectArray<'_, JByteArray<'_>>,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut copied = Vec::new();
    if arrays.is_null() {
        return Ok(copied);
    }
    for at in 0..arrays.len(env)? {
        let array = arrays.get_element(env, at)?;
        copied.push(env.convert_byte_array(&array)?);
        env.delete_local_ref(array);
    }
    Ok(copied)
}
