//! A handshake of this process with itself, in memory.

use std::sync::Arc;

use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::{ClientConfig, NamedGroup};
use rustls_pki_types::{ServerName, UnixTime};

use crate::call_scope::in_scope;
use crate::failure::HandshakeFailure;
use crate::handshake::{Handshake, Progress};
use crate::sessions::client_facts::ClientResumption;

/// A name that no server has (RFC 6761 §6.4).
pub(super) const NAME: &str = "mint.invalid";

/// Maximum number of flights each way; a real handshake has fewer.
const ROUNDS: usize = 3;

/// Returns the settings of a loopback client that restores sessions for clients with `config`.
pub(super) fn client_config(config: &ClientConfig) -> Arc<ClientConfig> {
    let mut client = config.clone();
    client.alpn_protocols.clear();
    client.resumption = Resumption::store(Arc::new(ScopeStore));
    Arc::new(client)
}

/// Completes the handshake on both sides.
pub(crate) fn run(
    client: &mut Handshake,
    server: &mut Handshake,
    now: UnixTime,
) -> Result<(), HandshakeFailure> {
    let mut progress = client.handle_input(now, &[])?;
    for _ in 0..ROUNDS {
        pass(client, server, now)?;
        progress = pass(server, client, now)?;
    }
    match progress {
        Progress::Established => Ok(()),
        Progress::Handshaking => Err(HandshakeFailure::internal("a loopback handshake stalls")),
    }
}

fn pass(
    from: &mut Handshake,
    to: &mut Handshake,
    now: UnixTime,
) -> Result<Progress, HandshakeFailure> {
    let bytes = from.output().to_vec();
    from.output_sent(bytes.len());
    to.handle_input(now, &bytes)
}

/// Session store of a loopback client: puts a value into the call scope.
#[derive(Debug)]
struct ScopeStore;

impl ClientSessionStore for ScopeStore {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        in_scope(|own: &mut ClientResumption| own.tls12_value = Some(value));
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        in_scope(|own: &mut ClientResumption| own.tls13_value = Some(value));
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        None
    }
}
