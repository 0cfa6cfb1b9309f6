//! TLS connections over bytes: the caller moves the bytes, this module seals and opens them.
//!
//! A connection is two things:
//!
//! * its [`State`](dormouse_record::State): 128 bytes of plain data in the caller's memory, which may be shared
//!   and may outlive the process. A connection at rest consists only of its state.
//! * a [`Connection`]: the data in flight. That is the handshake, the start of a record, unsent output, and the
//!   wait for tickets. At rest ([`Connection::is_at_rest`]) it is empty, owns no memory, and can be dropped;
//!   `Connection::default()` continues with the state.
//!
//! There are no sockets, threads or clocks, and no global state.
//!
//! # A connection, step by step
//!
//! 1. Make a context once: [`ServerContext`](crate::ServerContext) or
//!    [`ClientContext`](crate::ClientContext).
//! 2. Per connection: an empty state, and [`Connection::server`] or [`Connection::client`].
//! 3. Call [`Connection::handle`] with received bytes until it returns [`Event::InputUsed`] or
//!    [`Event::Ended`]. The first call needs no input: on the client side it starts the handshake. Records are
//!    opened in place, so [`Event::Data`] usually points into the caller's buffer.
//! 4. Then send [`Connection::output`] and report how much was sent ([`Connection::output_sent`]). The output
//!    includes all handshake flights, KeyUpdates and alerts.
//! 5. Receive more, and continue with 3. When the transport ends, call [`Connection::handle_eof`].
//! 6. To send plaintext: [`Connection::send`], then step 4. It adds to the output, so wait with further
//!    plaintext while much output is unsent.
//! 7. To end our direction: [`Connection::close`], then step 4. The peer may continue to send.
//!
//! ```
//! use dormouse_engine::stream::{Connection, Event};
//! use dormouse_engine::{
//!     ClientContext, ClientSettings, HandshakeLimits, Identity, Roots, ServerContext,
//!     ServerSettings, UnixTime,
//! };
//! use dormouse_record::State;
//!
//! let server = ServerContext::new(ServerSettings::new(vec![Identity::self_signed("a.test")?]))?;
//! let client = ClientContext::new(ClientSettings::new(Roots::Insecure))?;
//! let limits = HandshakeLimits::default();
//! let mut server = (Connection::server(&server, limits), State::empty());
//! let mut client = (Connection::client(&client, "a.test", limits)?, State::empty());
//!
//! // Lets `to` handle what `from` has sent. Returns the plaintext.
//! type Side = (Connection, State);
//! fn pass(from: &mut Side, to: &mut Side) -> Vec<u8> {
//!     let mut wire = from.0.output().to_vec();
//!     from.0.output_sent(wire.len());
//!     let (mut input, mut plaintext) = (&mut wire[..], Vec::new());
//!     loop {
//!         match to.0.handle(&mut to.1, UnixTime::now(), &mut input) {
//!             Event::InputUsed => return plaintext,
//!             Event::Established(info) => println!("{} with {}", info.protocol, info.suite),
//!             Event::Data(bytes) => plaintext.extend_from_slice(bytes),
//!             Event::Ticket(_) => {}
//!             Event::Ended(end) => panic!("{end}"),
//!         }
//!     }
//! }
//! pass(&mut client, &mut server); // No output yet: the client has not started.
//! pass(&mut server, &mut client);
//! for _ in 0..2 {
//!     pass(&mut client, &mut server);
//!     pass(&mut server, &mut client);
//! }
//! client.0.send(&mut client.1, b"hello")?;
//! assert_eq!(pass(&mut client, &mut server), b"hello");
//! assert!(server.0.is_at_rest());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`BlockingStream`] does all of this over blocking sockets; `examples/echo_server.rs` and
//! `examples/client.rs` are whole programs over [`Connection`].
//!
//! # How a connection ends
//!
//! Only [`End::Closed`] means that everything has arrived. A transport that ends without close_notify is
//! [`End::Truncated`], and may be an attack (RFC 8446 §6.1): a protocol that does not mark its own end must not
//! treat it as one. After [`End::Closed`] our own direction is still open; after every other end nothing more
//! is sealed.
//!
//! # Invariants
//!
//! * Input from the network never causes a panic or unbounded work per byte. It uses only memory for the
//!   handshake (bounded by [`HandshakeLimits`](crate::HandshakeLimits)), one record and one reply.
//! * A state belongs to one connection. With another connection's state, or after a crash during a call,
//!   nothing is opened or sealed with a wrong key: the connection ends.
//!
//! # Zero copy
//!
//! A program with its own buffers, such as the gateway's data path, can use only the two cores below
//! [`Connection`]: [`open_record`] and [`seal_batch`].

mod blocking;
mod connection;
mod end;
mod incoming;
mod outgoing;

pub use blocking::BlockingStream;
pub use connection::{Connection, Event};
pub use end::End;
pub use incoming::{Ahead, Incoming, look_ahead, open_record};
pub use outgoing::{BATCH_START, batch_len, content_range, seal_batch};
