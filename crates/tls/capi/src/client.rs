//! Clients: settings and contexts.

use std::ffi::c_void;
use std::sync::Arc;

use dormouse_embed::{ClientContext, ClientSettings, Roots};

use crate::boundary::{bytes, guard};
use crate::callback::Callback;
use crate::hooks::*;
use crate::identity::{IDENTITIES, dormouse_identity};
use crate::registry::{Registry, change, free, make};
use crate::server::protocols;
use crate::status::*;

static SETTINGS: Registry<ClientSettings> = Registry::new();
pub(crate) static CLIENTS: Registry<ClientContext> = Registry::new();

/// Client settings under construction. Only one thread may use them at a time.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_client_settings {
    /// An opaque handle; 0: none.
    pub id: u64,
}

/// A client context, shared by all its connections, including their sessions for resumption. Any number of
/// threads may use it. Free it with dormouse_client_free(); handshakes in progress continue.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_client {
    /// An opaque handle; 0: none.
    pub id: u64,
}

/// A new client, or the reason for failure.
#[repr(C)]
pub struct dormouse_made_client {
    /// DORMOUSE_OK, or the problem with the settings.
    pub result: dormouse_result,
    /// Owned by the caller, which must free it.
    pub client: dormouse_client,
}

/// Creates client settings: TLS 1.2 and 1.3, the system's roots, resumption enabled, no ALPN.
/// dormouse_client_new() or dormouse_client_settings_free() consumes them.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_client_settings_new() -> dormouse_client_settings {
    let id = guard(|| SETTINGS.insert(ClientSettings::new(Roots::System)));
    dormouse_client_settings {
        id: id.unwrap_or_default(),
    }
}

/// Frees unused settings. A second call returns DORMOUSE_NO_SUCH_HANDLE and has no effect.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_client_settings_free(
    settings: dormouse_client_settings,
) -> dormouse_status {
    free(&SETTINGS, settings.id)
}

fn set(
    settings: dormouse_client_settings,
    set: impl FnOnce(&mut ClientSettings) -> Result<(), Refusal>,
) -> dormouse_result {
    change(&SETTINGS, settings.id, set)
}

/// Trusts only the roots of this PEM bundle, in which every certificate must be usable.
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
        // SAFETY: guaranteed by the caller.
        settings.roots = Roots::Pem(unsafe { bytes(bundle, bundle_len) }?.to_vec());
        Ok(())
    })
}

/// Disables the verification of servers against roots. Without a judge every server is accepted, which gives no
/// protection: only for trials.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_client_trust_anybody(
    settings: dormouse_client_settings,
) -> dormouse_result {
    set(settings, |settings| {
        settings.roots = Roots::Insecure;
        Ok(())
    })
}

/// Sets a callback that checks server certificates, after the check against the roots.
///
/// # Safety
/// `judge` follows its contract, on any thread, while the client or one of its handshakes exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_client_set_judge(
    settings: dormouse_client_settings,
    judge: dormouse_judge_callback,
    context: *mut c_void,
) -> dormouse_result {
    set(settings, |settings| {
        settings.judge =
            judge.map(|judge| Arc::new(CallerJudge(Callback::new(judge, context))) as _);
        Ok(())
    })
}

/// Sets the client's own certificate, for servers that request one.
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

/// Adds an application protocol (ALPN), 1 to 255 bytes; preferred first.
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
        // SAFETY: guaranteed by the caller.
        let protocol = unsafe { bytes(protocol, protocol_len) }?;
        settings.alpn.push(protocol.to_vec());
        Ok(())
    })
}

/// Sets the oldest and newest TLS version: 0x0303 is TLS 1.2, 0x0304 is TLS 1.3.
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

/// Disables resumption: every handshake is full, and no session is stored.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_client_disable_resumption(
    settings: dormouse_client_settings,
) -> dormouse_result {
    set(settings, |settings| {
        settings.resumption = None;
        Ok(())
    })
}

/// Enables the export of keying material: dormouse_handshake_export(). TLS 1.2 then requires servers with
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

/// Logs the secrets of every connection. Only for debugging: anyone with the secrets can decrypt the traffic.
///
/// # Safety
/// `log` follows its contract, on any thread, while the client or one of its handshakes exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_client_set_secret_log(
    settings: dormouse_client_settings,
    log: dormouse_secret_log_callback,
    context: *mut c_void,
) -> dormouse_result {
    set(settings, |settings| {
        settings.secret_log = log.map(|log| Arc::new(CallerLog(Callback::new(log, context))) as _);
        Ok(())
    })
}

/// Creates a client. Consumes the settings, even on failure.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_client_new(settings: dormouse_client_settings) -> dormouse_made_client {
    let (result, id) = make(&CLIENTS, || {
        let settings = SETTINGS.remove(settings.id)?;
        ClientContext::new(settings).map_err(Refusal::settings)
    });
    dormouse_made_client {
        result,
        client: dormouse_client { id },
    }
}

/// Frees a client. A second call returns DORMOUSE_NO_SUCH_HANDLE and has no effect.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_client_free(client: dormouse_client) -> dormouse_status {
    free(&CLIENTS, client.id)
}
