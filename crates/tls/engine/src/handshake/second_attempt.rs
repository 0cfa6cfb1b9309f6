//! A handshake that waited for a signature begins again, and continues with it ([`deferred`](crate::deferred)).

use rustls::Error;

use super::driver::RustlsConnection;
use super::exporter::Exporting;
use super::{Beginning, ClientSide, Handshake, Progress};
use crate::deferred::{Deferred, SignatureRequest};
use crate::failure::HandshakeFailure;
use crate::sessions::client_facts::ClientResumption;
use crate::sessions::server_flight::ServerFlight;

impl Handshake {
    /// Returns the signature that this handshake waits for. Until [`Handshake::handle_signature`] it takes no input.
    pub fn signature_request(&self) -> Option<&SignatureRequest> {
        self.beginning.as_ref()?;
        self.scope.as_ref()?.peek::<Deferred>()?.wanted.as_ref()
    }

    /// Continues with the signature, or ends because there is none, and the reason. As after
    /// [`Handshake::handle_input`], there may be output.
    ///
    /// # Panics
    /// If the handshake waits for no signature.
    pub fn handle_signature(
        &mut self,
        signature: Result<Vec<u8>, String>,
    ) -> Result<Progress, HandshakeFailure> {
        let beginning = self.beginning.take();
        let beginning = beginning.expect("the handshake waits for a signature");
        let signature = match signature {
            Ok(signature) => signature,
            Err(why) => {
                let error = Error::General(format!("no signature: {why}"));
                return Err(self.fail(error.into(), self.driver.output.len()));
            }
        };
        let Beginning {
            connection,
            now,
            input,
        } = *beginning;
        let mut again = self.second_attempt(connection, signature);
        let now = now.expect("a signature follows input");
        let progress = again.handle_input(now, &input);
        again.scope().forget::<Deferred>();
        again.continue_after(self);
        *self = again;
        progress
    }

    /// Returns a handshake that begins as this one did, and draws the same.
    fn second_attempt(&mut self, connection: RustlsConnection, signature: Vec<u8>) -> Handshake {
        let exporter = self
            .scope()
            .find::<Exporting>()
            .is_some_and(|Exporting(source)| source.is_some());
        let store = self.facts::<ClientResumption>().store.take();
        let mut deferred = std::mem::take(self.facts::<Deferred>());
        deferred.sign_with(signature);
        let side = self.client.take().map(|side| ClientSide {
            server_flight: ServerFlight::default(),
            ..side
        });
        let again = Handshake::new(connection, self.limits, side);
        let mut again = again.keep_exporter(exporter);
        if let Some(store) = store {
            again.keep_sessions(store);
        }
        *again.facts::<Deferred>() = deferred;
        again
    }

    /// Counts what the first attempt has received and sent.
    fn continue_after(&mut self, first: &Handshake) {
        let sent = first.sent_before + first.sent;
        let (taken, written) = (
            first.driver.records.taken(),
            first.sent_before + first.driver.output.len(),
        );
        let more = |all: usize, before: usize| all.saturating_sub(before);
        self.flights = first.flights;
        let from_client = self.is_server();
        (self.flights).add(from_client, more(self.driver.records.taken(), taken));
        (self.flights).add(!from_client, more(self.driver.output.len(), written));
        self.sent_before = sent;
        self.driver
            .output
            .drain(..sent.min(self.driver.output.len()));
    }
}
