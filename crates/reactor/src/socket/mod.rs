//! Sockets: TCP and unix, never blocking, named by plain numbers.
//!
//! Every call that is interrupted by a signal is repeated here. What would block is no error but
//! an outcome of its own ([`Attempt`]). Errors which mean that something has run out are told
//! apart by [`Shortage`].

mod address;
mod channel;
mod datagram;
mod joint;
mod open;
mod options;
mod transfer;

pub use address::{Addr, AddrError, Peer, canonical};
pub use channel::{
    DESCRIPTORS_MAX, MESSAGE_MAX, Message, Words, channel, name_senders, receive_message,
    receive_words, send_message,
};
pub use datagram::{DatagramAddress, connect_datagrams, datagrams};
pub use joint::{Received, joint, recv_from_joint, say_end};
pub use open::{
    Accepted, ConnectOptions, Connecting, ListenOptions, accept, connect, listen, pair,
    pause_listening, resume_listening, try_listen,
};
pub use options::{
    Keepalive, TcpBytes, cookie, peer_process, peer_user_id, received_unread, send_memory,
    set_keepalive, set_keepalive_times, set_nodelay, set_notsent_lowat, set_receive_buffer,
    set_receive_lowat, set_send_buffer, set_user_timeout, take_error, takes_both_families,
    tcp_bytes, unsent,
};
pub use transfer::{
    RANGES_MAX, peek, recv, recv_scattered, reset, send, send_before_more, send_gathered,
    shutdown_read, shutdown_write,
};

use std::io;

use rustix::io::Errno;

/// The outcome of something that may have to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Attempt<T> {
    /// It happened.
    Done(T),
    /// Nothing happened; try again when the descriptor is ready.
    WouldBlock,
}

impl<T> Attempt<T> {
    /// The result, if it happened.
    pub fn done(self) -> Option<T> {
        match self {
            Attempt::Done(value) => Some(value),
            Attempt::WouldBlock => None,
        }
    }
}

/// Something that a gateway has to wait for has run out. None of these is the peer's fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// Descriptors, of this process or of the machine (EMFILE, ENFILE).
    Descriptors,
    /// Local ports to this target (EADDRNOTAVAIL).
    Ports,
    /// Kernel memory (ENOMEM, ENOBUFS), or watches of epoll (ENOSPC).
    Memory,
    /// Room in the queue of a local listener (EAGAIN of a unix socket's connect).
    Queue,
}

impl Shortage {
    /// Whether this error is a shortage, and of what.
    pub fn of(error: &io::Error) -> Option<Shortage> {
        match Errno::from_io_error(error)? {
            Errno::MFILE | Errno::NFILE => Some(Shortage::Descriptors),
            Errno::ADDRNOTAVAIL => Some(Shortage::Ports),
            Errno::NOMEM | Errno::NOBUFS | Errno::NOSPC => Some(Shortage::Memory),
            Errno::AGAIN => Some(Shortage::Queue),
            _ => None,
        }
    }
}

/// Whether an error says that descriptors have run out.
pub fn is_emfile(error: &io::Error) -> bool {
    Shortage::of(error) == Some(Shortage::Descriptors)
}

/// Repeats what a signal interrupts, and tells apart what would block.
fn attempt<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<Attempt<T>> {
    loop {
        crate::step::step();
        let result = call();
        crate::step::step();
        match result {
            Ok(value) => return Ok(Attempt::Done(value)),
            Err(Errno::AGAIN) => return Ok(Attempt::WouldBlock),
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests;
