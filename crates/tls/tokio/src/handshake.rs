//! A handshake as a future.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dormouse_embed::{Session, SettingsError};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::link::Link;
use crate::negotiated::Negotiated;
use crate::stream::TlsStream;
use crate::tls::{Found, Tls, end_error, session_error};

/// A handshake with a client.
pub type Accept<IO> = Handshake<IO>;

/// A handshake with a server.
pub type Connect<IO> = Handshake<IO>;

/// A handshake, which becomes a [`TlsStream`].
///
/// If it fails, the alert for the peer is sent, and the transport is dropped: [`Handshake::into_fallible`] returns it
/// instead.
#[must_use = "a handshake does nothing unless polled"]
pub struct Handshake<IO>(Stage<IO>);

enum Stage<IO> {
    /// Nothing was handled yet, also not what the client has sent before its context was chosen.
    New(Link<IO>),
    Shaking(Link<IO>),
    /// The last bytes are sent: an alert, or the end of our last flight.
    Ending(Link<IO>, io::Result<Arc<Negotiated>>),
    Failed(IO, io::Error),
    Done,
}

impl<IO> Handshake<IO> {
    pub(crate) fn new(io: IO, session: Session) -> Handshake<IO> {
        Handshake::of(Link {
            io,
            tls: Box::new(Tls::new(session)),
        })
    }

    pub(crate) fn of(link: Link<IO>) -> Handshake<IO> {
        Handshake(Stage::New(link))
    }

    pub(crate) fn failed(io: IO, error: SettingsError) -> Handshake<IO> {
        Handshake(Stage::Failed(
            io,
            io::Error::new(ErrorKind::InvalidInput, error),
        ))
    }

    /// Returns a future whose error contains the transport.
    pub fn into_fallible(self) -> FallibleHandshake<IO> {
        FallibleHandshake(self.0)
    }

    /// Returns the transport, unless the handshake is done.
    pub fn get_ref(&self) -> Option<&IO> {
        match &self.0 {
            Stage::New(link) | Stage::Shaking(link) | Stage::Ending(link, _) => Some(&link.io),
            Stage::Failed(io, _) => Some(io),
            Stage::Done => None,
        }
    }

    /// The same, for its options.
    pub fn get_mut(&mut self) -> Option<&mut IO> {
        match &mut self.0 {
            Stage::New(link) | Stage::Shaking(link) | Stage::Ending(link, _) => Some(&mut link.io),
            Stage::Failed(io, _) => Some(io),
            Stage::Done => None,
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Future for Handshake<IO> {
    type Output = io::Result<TlsStream<IO>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let stage = &mut self.get_mut().0;
        stage.poll(cx).map_err(|(error, _)| error)
    }
}

/// A handshake whose error contains the transport.
#[must_use = "a handshake does nothing unless polled"]
pub struct FallibleHandshake<IO>(Stage<IO>);

impl<IO: AsyncRead + AsyncWrite + Unpin> Future for FallibleHandshake<IO> {
    type Output = Result<TlsStream<IO>, (io::Error, IO)>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.poll(cx)
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Stage<IO> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<TlsStream<IO>, (io::Error, IO)>> {
        loop {
            *self = match std::mem::replace(self, Stage::Done) {
                Stage::New(mut link) => {
                    let found = link.tls.feed(&mut [], None).map_err(session_error);
                    Stage::after(link, found)
                }
                // While the transport takes nothing, the peer may wait until its bytes are read.
                Stage::Shaking(mut link) => match link.poll_flush(cx) {
                    Poll::Ready(Err(error)) => Stage::Failed(link.io, error),
                    _ => match link.poll_handshake(cx) {
                        Poll::Ready(found) => Stage::after(link, found),
                        Poll::Pending => {
                            *self = Stage::Shaking(link);
                            return Poll::Pending;
                        }
                    },
                },
                Stage::Ending(mut link, outcome) => match (link.poll_flush(cx), outcome) {
                    (Poll::Pending, outcome)
                        if outcome.is_err() || !link.tls.owes_only_tickets() =>
                    {
                        *self = Stage::Ending(link, outcome);
                        return Poll::Pending;
                    }
                    (_, Err(error)) | (Poll::Ready(Err(error)), Ok(_)) => {
                        Stage::Failed(link.io, error)
                    }
                    (_, Ok(negotiated)) => {
                        link.tls.rest();
                        return Poll::Ready(Ok(TlsStream { link, negotiated }));
                    }
                },
                Stage::Failed(io, error) => return Poll::Ready(Err((error, io))),
                Stage::Done => panic!("a handshake was polled after its end"),
            }
        }
    }

    /// The stage that follows from received bytes.
    fn after(mut link: Link<IO>, found: io::Result<Found>) -> Stage<IO> {
        match found {
            Ok(Found {
                info: Some(info), ..
            }) => {
                if link.tls.session_mut().awaits_tickets() {
                    link.tls.flight_mut().wait_for_tickets();
                }
                Stage::Ending(link, Ok(Negotiated::of(*info)))
            }
            Ok(Found { end: Some(end), .. }) => Stage::Ending(link, Err(end_error(end))),
            Ok(_) => Stage::Shaking(link),
            Err(error) => Stage::Ending(link, Err(error)),
        }
    }
}

impl<IO> std::fmt::Debug for Handshake<IO> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handshake").finish_non_exhaustive()
    }
}

impl<IO> std::fmt::Debug for FallibleHandshake<IO> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FallibleHandshake").finish_non_exhaustive()
    }
}
