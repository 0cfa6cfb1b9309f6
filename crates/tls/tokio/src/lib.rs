//! TLS streams for tokio, in the shape of `tokio-rustls`, without buffers.
//!
//! A [`TlsStream`] at rest has 152 bytes in the heap: the state of its connection. While something is under way (a
//! handshake, the start of a record, plaintext that was not read, output that the transport did not take), it also has a
//! box for that, which is freed when nothing is left in it. All connections of a thread open and seal in the same two
//! buffers.
//!
//! ```
//! use dormouse_tokio::embed::{ClientContext, ClientSettings, Identity, Roots, ServerContext, ServerSettings};
//! use dormouse_tokio::{TlsAcceptor, TlsConnector};
//! use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let settings = ServerSettings::new(vec![Identity::self_signed("localhost")?]);
//! let acceptor = TlsAcceptor::from(ServerContext::new(settings)?);
//! let connector = TlsConnector::from(ClientContext::new(ClientSettings::new(Roots::Insecure))?);
//!
//! // Any transport: a `TcpStream`, a `UnixStream`, or a pipe in memory.
//! let (client, server) = tokio::io::duplex(4_096);
//! let (client, server) = tokio::join!(connector.connect("localhost", client), acceptor.accept(server));
//! let (mut client, mut server) = (client?, server?);
//!
//! client.write_all(b"hello").await?;
//! client.shutdown().await?;
//! let mut received = Vec::new();
//! server.read_to_end(&mut received).await?;
//! assert_eq!(received, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Writing
//!
//! [`poll_write`](tokio::io::AsyncWrite::poll_write) seals bytes and gives them to the transport. What the transport does
//! not take waits in the stream, at most [`FLIGHT_MAX`] bytes of plaintext. `flush` returns when the transport has
//! everything. A read sends what waits, too, unless a task waits to write.
//!
//! `shutdown` sends close_notify and shuts the transport's direction down; the peer can still send. Dropping a stream
//! sends nothing.
//!
//! # The end of a connection
//!
//! A read returns 0 bytes only after close_notify. A transport that ends without it is
//! [`UnexpectedEof`](std::io::ErrorKind::UnexpectedEof), because bytes may be missing. Every other end is
//! [`InvalidData`](std::io::ErrorKind::InvalidData). The error holds an [`End`](dormouse_embed::End), whose text has the
//! name of the alert.
//!
//! # Cancellation
//!
//! A read or a write can be dropped at any time: no byte is lost or sent twice. A handshake that is dropped ends its
//! connection.
//!
//! # Moving a connection
//!
//! [`TlsStream::export`] returns the bytes with which [`TlsStream::import`] continues the connection over the same
//! transport, in this process or another.
#![forbid(unsafe_code)]

mod endpoints;
mod exported;
mod handshake;
mod in_flight;
mod keys;
mod lazy;
mod link;
mod negotiated;
mod scratch;
mod stream;
mod tls;

pub use dormouse_embed as embed;
pub use endpoints::{TlsAcceptor, TlsConnector};
pub use handshake::{Accept, Connect, FallibleHandshake, Handshake};
pub use lazy::{LazyConfigAcceptor, StartHandshake};
pub use link::FLIGHT_MAX;
pub use negotiated::Negotiated;
pub use stream::TlsStream;
