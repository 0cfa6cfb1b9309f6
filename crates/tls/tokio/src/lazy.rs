//! A server's context that depends on the ClientHello.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use dormouse_embed::{AlertDescription, ClientHello, HandshakeLimits, ServerContext, Session};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::handshake::{Accept, Handshake};
use crate::link::Link;
use crate::tls::{Tls, end_error};

/// Waits for a client's ClientHello, so that it can choose the context of its connection.
///
/// A first message that cannot be read has no name and no protocols. Any context refuses it with the right alert.
#[must_use = "an acceptor does nothing unless polled"]
pub struct LazyConfigAcceptor<IO> {
    link: Option<Link<IO>>,
    /// Why the client is refused, while its alert is sent.
    refused: Option<io::Error>,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> LazyConfigAcceptor<IO> {
    /// Waits for the ClientHello of a client that has just connected.
    pub fn new(io: IO) -> LazyConfigAcceptor<IO> {
        let tls = Box::new(Tls::new(Session::listen(HandshakeLimits::default())));
        LazyConfigAcceptor {
            link: Some(Link { io, tls }),
            refused: None,
        }
    }

    /// Takes the transport, after an error.
    pub fn take_io(&mut self) -> Option<IO> {
        self.link.take().map(|link| link.io)
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Future for LazyConfigAcceptor<IO> {
    type Output = io::Result<StartHandshake<IO>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            let Some(link) = &mut this.link else {
                return Poll::Ready(Err(io::Error::other("the acceptor has no transport")));
            };
            if let Some(error) = this.refused.take() {
                if link.poll_flush(cx).is_pending() {
                    this.refused = Some(error);
                    return Poll::Pending;
                }
                return Poll::Ready(Err(error));
            }
            let found = ready!(link.poll_handshake(cx))?;
            if let Some(client_hello) = found.hello {
                return match this.link.take() {
                    Some(link) => Poll::Ready(Ok(StartHandshake { client_hello, link })),
                    None => Poll::Pending,
                };
            }
            this.refused = found.end.map(end_error);
        }
    }
}

/// A client whose ClientHello has arrived.
pub struct StartHandshake<IO> {
    client_hello: ClientHello,
    link: Link<IO>,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> StartHandshake<IO> {
    /// Returns the server name and the protocols that the client requests.
    pub fn client_hello(&self) -> &ClientHello {
        &self.client_hello
    }

    /// Continues the handshake with this context.
    pub fn into_stream(mut self, context: &ServerContext) -> Accept<IO> {
        // It waits for a context, so there is no error.
        let _ = self.link.tls.session_mut().decide(context);
        Handshake::of(self.link)
    }

    /// Refuses the client. The handshake sends this alert, and fails.
    pub fn refuse(mut self, alert: AlertDescription) -> Accept<IO> {
        let _ = self.link.tls.session_mut().refuse(alert);
        Handshake::of(self.link)
    }

    /// Returns the transport. The ClientHello is lost.
    pub fn into_io(self) -> IO {
        self.link.io
    }
}

impl<IO> std::fmt::Debug for LazyConfigAcceptor<IO> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LazyConfigAcceptor").finish_non_exhaustive()
    }
}

impl<IO> std::fmt::Debug for StartHandshake<IO> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StartHandshake")
            .field("client_hello", &self.client_hello)
            .finish_non_exhaustive()
    }
}
