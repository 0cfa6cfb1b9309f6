//! Clients: settings, then a context.

use std::ffi::c_void;
use std::sync::Arc;

use dormouse_embed::{ClientContext, ClientSettings, Roots};

use crate::boundary::{bytes, guard};
use crate::hooks::*;
use crate::identity::{IDENTITIES, dormouse_identity, free};
use crate::registry::Registry;
use crate::server::protocols;
use crate::status::*;

static SETTINGS: Registry<ClientSettings> = Registry::new();
pub(crate) static CLIENTS: Registry<ClientContext> = Registry::new();

/// How a client does TLS, while it is being said. One thread at a time uses it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_client_settings {
    /// A number that only this library understands; 0: none.
    pub id: u64,
}

/// What all connections of a client share, sessions for resumption among it. Any thread may use it,
/// several at once. dormouse_client_free() when nobody connects any more; handshakes that have begun go on.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_client {
    /// A number that only this library understands; 0: none.
    pub id: u64,
}

/// A new client, or why there is none.
#[repr(C)]
pub struct dormouse_made_client {
    /// DORMOUSE_OK, or what is wrong with the settings.
    pub result: dormouse_result,
    /// The caller's, to be freed.
    pub client: dormouse_client,
}

/// Begins the settings of a client: TLS 1.2 and 1.3, the roots that the system trusts, sessions are
/// resumed, no ALPN. dormouse_client_new() or dormouse_client_settings_free() ends them.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_client_settings_new() -> dormouse_client_settings {
    let id = guard(|| SETTINGS.insert(ClientSettings::new(Roots::System)));
    dormouse_client_settings {
        id: id.unwrap_or_default(),
    }
}

/// Frees settings that are not used. A second time it is DORMOUSE_NO_SUCH_HANDLE, and nothing happens.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_client_settings_free(
    settings: dormouse_client_settings,
) -> dormouse_status {
    free(&SETTINGS, settings.id)
}

fn set(
    settings: dormouse_client_settings,
    change: impl FnOnce(&mut ClientSettings) -> Result<(), Refusal>,
) -> dormouse_result {
    let changed = guard(|| SETTINGS.with(settings.id, change));
    match changed {
        Ok(Ok(Ok(()))) => dormouse_result::OK,
        Ok(Ok(Err(refusal))) => refusal.into(),
        Ok(Err(status)) | Err(status) => status.into(),
    }
}

/// Trusts the roots of this PEM bundle, in which every certificate must be usable, and no others.
///
/// # Safety
/// `bundle` points to `bundle_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_client_trust(
    settings: dormouse_client_settings,
    bundle: *const u8,
    bundle_len: usize,
) -> dormouse_result {
    set(settings, |settings| {
        // SAFETY: as the caller promises.
        settings.roots = Roots::Pem(unsafe { bytes(bundle, bundle_len) }?.to_vec());
        Ok(())
    })
}

/// Judges no server's certificate by roots. Without a judge every server is accepted, which is no
/// protection at all: only to try things out.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_client_trust_anybody(
    settings: dormouse_client_settings,
) -> dormouse_result {
    set(settings, |settings| {
        settings.roots = Roots::Insecure;
        Ok(())
    })
}

/// Lets the caller judge servers' certificates, after the roots have.
///
/// # Safety
/// `judge` keeps to its contract, on any thread, as long as the client or a handshake of it lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_client_set_judge(
    settings: dormouse_client_settings,
    judge: dormouse_judge_callback,
    context: *mut c_void,
) -> dormouse_result {
    set(settings, |settings| {
        settings.judge = judge.map(|judge| Arc::new(CallerJudge::new(judge, context)) as _);
        Ok(())
    })
}

/// Sets the client's own certificate, for servers that ask for one.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_client_set_identity(
    settings: dormouse_client_settings,
    identity: dormouse_identity,
) -> dormouse_result {
    set(settings, |settings| {
        settings.identity = Some(IDENTITIES.get(identity.id)?);
        Ok(())
    })
}

/// Adds an application protocol (ALPN), 1 to 255 bytes; the preferred one first.
///
/// # Safety
/// `protocol` points to `protocol_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_client_add_alpn(
    settings: dormouse_client_settings,
    protocol: *const u8,
    protocol_len: usize,
) -> dormouse_result {
    set(settings, |settings| {
        // SAFETY: as the caller promises.
        let protocol = unsafe { bytes(protocol, protocol_len) }?;
        settings.alpn.push(protocol.to_vec());
        Ok(())
    })
}

/// Sets the oldest and the newest version: 0x0303 is TLS 1.2, 0x0304 is TLS 1.3.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_client_set_versions(
    settings: dormouse_client_settings,
    min: u16,
    max: u16,
) -> dormouse_result {
    set(settings, |settings| {
        settings.protocols = protocols(min, max)?;
        Ok(())
    })
}

/// Makes every handshake a full one: no session is kept or resumed.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_client_disable_resumption(
    settings: dormouse_client_settings,
) -> dormouse_result {
    set(settings, |settings| {
        settings.resumption = None;
        Ok(())
    })
}

/// Lets connections export keying material: dormouse_handshake_export(). TLS 1.2 servers then need an
/// extended master secret (RFC 7627).
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_client_enable_exporter(
    settings: dormouse_client_settings,
) -> dormouse_result {
    set(settings, |settings| {
        settings.exporter = true;
        Ok(())
    })
}

/// Gives the secrets of every connection to a log. Only for debugging: whoever has them can read along.
///
/// # Safety
/// `log` keeps to its contract, on any thread, as long as the client or a handshake of it lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_client_set_secret_log(
    settings: dormouse_client_settings,
    log: dormouse_secret_log_callback,
    context: *mut c_void,
) -> dormouse_result {
    set(settings, |settings| {
        settings.secret_log = log.map(|log| Arc::new(CallerLog::new(log, context)) as _);
        Ok(())
    })
}

/// Makes a client. The settings are used up, also if it fails.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_client_new(settings: dormouse_client_settings) -> dormouse_made_client {
    let made = guard(|| {
        let settings = SETTINGS.remove(settings.id)?;
        let client = ClientContext::new(settings).map_err(Refusal::settings)?;
        Ok(CLIENTS.insert(client))
    });
    let (result, id) = match made.unwrap_or_else(|panic| Err(Refusal::from(panic))) {
        Ok(id) => (dormouse_result::OK, id),
        Err(refusal) => (refusal.into(), 0),
    };
    dormouse_made_client {
        result,
        client: dormouse_client { id },
    }
}

/// Frees a client. A second time it is DORMOUSE_NO_SUCH_HANDLE, and nothing happens.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_client_free(client: dormouse_client) -> dormouse_status {
    free(&CLIENTS, client.id)
}
