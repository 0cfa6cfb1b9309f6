//! Starting handshakes, as a server or a client.

use std::sync::Arc;

use dormouse_embed::{ClientContext, ServerContext, Session};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::handshake::{Accept, Connect, Handshake};

/// Accepts TLS connections. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct TlsAcceptor(Arc<ServerContext>);

impl From<ServerContext> for TlsAcceptor {
    fn from(context: ServerContext) -> TlsAcceptor {
        TlsAcceptor(Arc::new(context))
    }
}

impl TlsAcceptor {
    /// Makes the handshake with a client that has just connected. There is no time limit: use `tokio::time::timeout`.
    pub fn accept<IO: AsyncRead + AsyncWrite + Unpin>(&self, io: IO) -> Accept<IO> {
        Handshake::new(io, Session::accept(&self.0))
    }

    /// The server's context.
    pub fn context(&self) -> &ServerContext {
        &self.0
    }
}

/// Makes TLS connections to servers. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct TlsConnector(Arc<ClientContext>);

impl From<ClientContext> for TlsConnector {
    fn from(context: ClientContext) -> TlsConnector {
        TlsConnector(Arc::new(context))
    }
}

impl TlsConnector {
    /// Makes the handshake with the server `server_name`, a host name or an IP address. There is no time limit: use
    /// `tokio::time::timeout`.
    pub fn connect<IO: AsyncRead + AsyncWrite + Unpin>(
        &self,
        server_name: &str,
        io: IO,
    ) -> Connect<IO> {
        match Session::connect(&self.0, server_name) {
            Ok(session) => Handshake::new(io, session),
            Err(error) => Handshake::failed(io, error),
        }
    }

    /// The client's context.
    pub fn context(&self) -> &ClientContext {
        &self.0
    }
}
