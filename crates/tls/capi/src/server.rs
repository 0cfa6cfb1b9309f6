//! Servers: settings and contexts.

use std::ffi::c_void;
use std::sync::Arc;

use dormouse_embed::{
    ClientCertificates, Protocols, ServerContext, ServerSettings, TicketKeys, TicketSettings,
    Version,
};

use crate::boundary::{bytes, guard};
use crate::callback::Callback;
use crate::hooks::*;
use crate::identity::{IDENTITIES, dormouse_identity};
use crate::registry::{Registry, change, free, make};
use crate::status::*;

static SETTINGS: Registry<ServerSettings> = Registry::new();
pub(crate) static SERVERS: Registry<ServerContext> = Registry::new();

/// Server settings under construction. Only one thread may use them at a time.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_server_settings {
    /// An opaque handle; 0: none.
    pub id: u64,
}

/// A server context, shared by all its connections. Any number of threads may use it. Free it with
/// dormouse_server_free(); handshakes in progress continue.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_server {
    /// An opaque handle; 0: none.
    pub id: u64,
}

/// A new server, or the reason for failure.
#[repr(C)]
pub struct dormouse_made_server {
    /// DORMOUSE_OK, or the problem with the settings.
    pub result: dormouse_result,
    /// Owned by the caller, which must free it.
    pub server: dormouse_server,
}

/// Creates server settings: TLS 1.2 and 1.3, tickets with generated keys, no ALPN, no client certificates.
/// dormouse_server_new() or dormouse_server_settings_free() consumes them.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_server_settings_new() -> dormouse_server_settings {
    let id = guard(|| SETTINGS.insert(ServerSettings::new(Vec::new())));
    dormouse_server_settings {
        id: id.unwrap_or_default(),
    }
}

/// Frees unused settings. A second call returns DORMOUSE_NO_SUCH_HANDLE and has no effect.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_server_settings_free(
    settings: dormouse_server_settings,
) -> dormouse_status {
    free(&SETTINGS, settings.id)
}

fn set(
    settings: dormouse_server_settings,
    set: impl FnOnce(&mut ServerSettings) -> Result<(), Refusal>,
) -> dormouse_result {
    change(&SETTINGS, settings.id, set)
}

/// Adds a certificate. The client's requested name and accepted signatures decide which one it gets; the first
/// is the default.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_server_add_identity(
    settings: dormouse_server_settings,
    identity: dormouse_identity,
) -> dormouse_result {
    set(settings, |settings| {
        settings.identities.push(IDENTITIES.get(identity.id)?);
        Ok(())
    })
}

/// Sets a callback that chooses certificates, before those that were added.
///
/// # Safety
/// `choose` follows its contract, on any thread, while the server or one of its handshakes exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_server_set_choose(
    settings: dormouse_server_settings,
    choose: dormouse_choose_callback,
    context: *mut c_void,
) -> dormouse_result {
    set(settings, |settings| {
        let choice =
            choose.map(|choose| Arc::new(CallerChoice(Callback::new(choose, context))) as _);
        settings.chooser = choice;
        Ok(())
    })
}

/// Adds an application protocol (ALPN), 1 to 255 bytes; preferred first.
///
/// # Safety
/// `protocol` points to `protocol_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_server_add_alpn(
    settings: dormouse_server_settings,
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
pub extern "C" fn dormouse_server_set_versions(
    settings: dormouse_server_settings,
    min: u16,
    max: u16,
) -> dormouse_result {
    set(settings, |settings| {
        settings.protocols = protocols(min, max)?;
        Ok(())
    })
}

pub(crate) fn protocols(min: u16, max: u16) -> Result<Protocols, dormouse_status> {
    let version = |number| Version::from_number(number).ok_or(DORMOUSE_BAD_ARGUMENT);
    Ok(Protocols {
        min: version(min)?,
        max: version(max)?,
    })
}

/// Requests client certificates, signed by one of `roots` (a PEM bundle). `required` is 1 to refuse clients
/// without one, or 0. `roots` may be empty if there is a judge, which then decides alone.
///
/// # Safety
/// `roots` points to `roots_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_server_ask_certificates(
    settings: dormouse_server_settings,
    required: i32,
    roots: *const u8,
    roots_len: usize,
) -> dormouse_result {
    set(settings, |settings| {
        // SAFETY: guaranteed by the caller.
        let roots = unsafe { bytes(roots, roots_len) }?.to_vec();
        settings.client_certificates = Some(ClientCertificates {
            required: required != 0,
            roots,
            ..ClientCertificates::default()
        });
        Ok(())
    })
}

/// Sets a callback that checks client certificates, after the check against the roots, and again whenever a
/// session is resumed. Without dormouse_server_ask_certificates() there is nothing to check, and
/// dormouse_server_new() fails.
///
/// # Safety
/// `judge` follows its contract, on any thread, while the server or one of its handshakes exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_server_set_judge(
    settings: dormouse_server_settings,
    judge: dormouse_judge_callback,
    context: *mut c_void,
) -> dormouse_result {
    set(settings, |settings| {
        settings.judge =
            judge.map(|judge| Arc::new(CallerJudge(Callback::new(judge, context))) as _);
        Ok(())
    })
}

/// Sets the number of tickets after a TLS 1.3 handshake, 0 to 16 (2 by default); 0 disables resumption, also in
/// TLS 1.2, and forgets the ticket keys. Ticket keys that are set afterwards enable it again.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_server_set_tickets(
    settings: dormouse_server_settings,
    count: usize,
) -> dormouse_result {
    set(settings, |settings| {
        match count {
            0 => settings.tickets = None,
            count => {
                let tickets = settings.tickets.get_or_insert_with(TicketSettings::default);
                tickets.per_handshake = count;
            }
        }
        Ok(())
    })
}

/// Seals tickets with the keys of a file (its contents), so that this program and others resume each other's
/// sessions. The format is that of `ticket_keys = "file:PATH"` in `dormouse serve`: a key of 48 or 80 bytes, as
/// for nginx; lines of such keys in base64, as for HAProxy; or Dormouse's own, for which `secret` is the
/// contents of `ticket_secret_file`. Wipe both afterwards.
///
/// Keys in Dormouse's own format rotate, and a server does not read the file again. So read it at least once in each
/// `ticket_rotation` and make a new server. A server that has missed a whole rotation sends no more tickets, and after
/// another one it resumes no session.
///
/// # Safety
/// Each pointer points to the number of bytes given by its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_server_set_ticket_keys(
    settings: dormouse_server_settings,
    keys: *const u8,
    keys_len: usize,
    secret: *const u8,
    secret_len: usize,
) -> dormouse_result {
    set(settings, |settings| {
        // SAFETY: guaranteed by the caller.
        let (keys, secret) = unsafe { (bytes(keys, keys_len)?, bytes(secret, secret_len)?) };
        let keys = TicketKeys::from_file(keys, secret).map_err(Refusal::settings)?;
        let tickets = settings.tickets.get_or_insert_with(TicketSettings::default);
        tickets.keys = Some(keys);
        Ok(())
    })
}

/// Enables the export of keying material: dormouse_handshake_export(). TLS 1.2 then requires clients with
/// extended master secret (RFC 7627).
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_server_enable_exporter(
    settings: dormouse_server_settings,
) -> dormouse_result {
    set(settings, |settings| {
        settings.exporter = true;
        Ok(())
    })
}

/// Logs the secrets of every connection. Only for debugging: anyone with the secrets can decrypt the traffic.
///
/// # Safety
/// `log` follows its contract, on any thread, while the server or one of its handshakes exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_server_set_secret_log(
    settings: dormouse_server_settings,
    log: dormouse_secret_log_callback,
    context: *mut c_void,
) -> dormouse_result {
    set(settings, |settings| {
        settings.secret_log = log.map(|log| Arc::new(CallerLog(Callback::new(log, context))) as _);
        Ok(())
    })
}

/// Creates a server. Consumes the settings, even on failure.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_server_new(settings: dormouse_server_settings) -> dormouse_made_server {
    let (result, id) = make(&SERVERS, || {
        let settings = SETTINGS.remove(settings.id)?;
        if settings.judge.is_some() && settings.client_certificates.is_none() {
            // No client would be asked for a certificate, and all would be accepted.
            let why = "a judge of client certificates needs dormouse_server_ask_certificates()";
            return Err(Refusal::settings(why));
        }
        ServerContext::new(settings).map_err(Refusal::settings)
    });
    dormouse_made_server {
        result,
        server: dormouse_server { id },
    }
}

/// Frees a server. A second call returns DORMOUSE_NO_SUCH_HANDLE and has no effect.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_server_free(server: dormouse_server) -> dormouse_status {
    free(&SERVERS, server.id)
}
