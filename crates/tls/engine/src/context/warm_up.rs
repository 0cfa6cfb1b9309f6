//! A handshake of the server with itself, so that the first connection costs no more than the thousandth.

use dormouse_record as record;
use rustls_pki_types::UnixTime;

use crate::context::client::{ClientContext, ClientSettings};
use crate::context::server::ServerContext;
use crate::context::settings::Protocols;
use crate::failure::{Blame, FailureKind, HandshakeFailure};
use crate::handshake::{Handshake, HandshakeLimits};
use crate::restore::loopback;
use crate::x509::trust::Roots;

impl ServerContext {
    /// Makes one handshake with itself for each enabled version. This warms up everything that the first
    /// connection would find cold (tables, the random generator, code pages), and finds a context that cannot
    /// work at all before a client does.
    ///
    /// A context without a certificate is skipped, which is not an error.
    pub fn warm_up(&self, now: UnixTime) -> Result<(), HandshakeFailure> {
        for protocols in [Protocols::TLS13, Protocols::TLS12] {
            let mut settings = ClientSettings::new(Roots::Insecure);
            settings.protocols = protocols;
            settings.alpn = self.config.alpn_protocols.clone();
            let client = ClientContext::new(settings)
                .map_err(|e| HandshakeFailure::internal(e.to_string()))?;
            // A disabled version, or a missing client certificate, ends in a refusal. That also warms up the
            // context, and is not an error.
            match run_handshake(&client, self, now) {
                Err(failure) if failure.blame == Blame::Internal => return Err(failure),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

fn run_handshake(
    client: &ClientContext,
    server: &ServerContext,
    now: UnixTime,
) -> Result<(), HandshakeFailure> {
    let limits = HandshakeLimits::default();
    let mut client = Handshake::client(client, &server.own_name, limits)
        .map_err(|e| HandshakeFailure::new(Blame::Misuse, FailureKind::Misuse, e.to_string()))?;
    let mut server = Handshake::server(server, limits);
    let run = loopback::run(&mut client, &mut server, now);
    if server.signature_request().is_some() {
        return Ok(());
    }
    run?;
    let mut state = record::State::empty();
    server.rest(&mut state)?;
    // The next work of a connection: its keys are expanded and a record is sealed.
    let mut key = record::SealKey::new(&state);
    let mut room = [0; record::SMALL_RECORD_MAX];
    let close = record::Alert::CLOSE_NOTIFY;
    let sealed = record::seal_alert(&mut state, &mut key, close, &mut room);
    state.wipe();
    match sealed {
        Ok(_) => Ok(()),
        Err(_) => Err(HandshakeFailure::internal("a new key cannot seal a record")),
    }
}
