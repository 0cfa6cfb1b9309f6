//! Sockets: TCP and unix, non-blocking, identified by plain numbers.
//!
//! Every call that a signal interrupts is repeated here. A call that would block is not an error but a separate
//! outcome ([`Attempt`]). [`Shortage`] classifies errors of exhausted resources.

mod address;
mod channel;
mod datagram;
mod joint;
mod open;
mod options;
mod raw;
mod transfer;

pub use crate::outcome::Attempt;
pub use address::{Addr, AddrError, Peer, canonical};
pub use channel::{
    DESCRIPTORS_MAX, MESSAGE_MAX, Message, PlainMessage, channel, name_senders, peek_message,
    receive_message, receive_plain_message, send_message,
};
pub use datagram::{DatagramAddress, connect_datagrams, datagrams};
pub use joint::{Received, joint, recv_from_joint, send_end};
pub use open::{
    Accepted, ConnectOptions, Connecting, ListenOptions, accept, connect, connect_unix, listen,
    pair, pause_listening, resume_listening, try_listen,
};
pub(crate) use options::SIOCOUTQNSD;
pub use options::{
    Keepalive, Queues, cookie, held_back, peer_process, peer_user_id, queues, received_unread,
    set_keepalive, set_keepalive_times, set_nodelay, set_receive_buffer, set_send_buffer,
    set_user_timeout, set_writable_when_drained, take_error, takes_both_families, unsent,
};
pub use raw::{raw, send_raw};
pub use transfer::{
    RANGES_MAX, peek, recv, recv_scattered, reset, reset_on_close, send, send_before_more,
    send_gathered, shutdown_write,
};

use std::io;

use rustix::io::Errno;

/// An exhausted resource, for which a gateway has to wait. None of these is the peer's fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// Descriptors of this process (EMFILE), or those of its user that are on their way in messages (ETOOMANYREFS).
    Descriptors,
    /// Open files of the machine (ENFILE).
    Files,
    /// Local ports for this target (EADDRNOTAVAIL).
    Ports,
    /// Kernel memory (ENOMEM, ENOBUFS).
    Memory,
    /// Epoll watches (ENOSPC).
    Watches,
    /// The queue of a local listener (EAGAIN from a unix socket's connect).
    Queue,
}

impl Shortage {
    /// Returns the shortage that this error means, if any.
    pub fn of(error: &io::Error) -> Option<Shortage> {
        match Errno::from_io_error(error)? {
            Errno::MFILE | Errno::TOOMANYREFS => Some(Shortage::Descriptors),
            Errno::NFILE => Some(Shortage::Files),
            Errno::ADDRNOTAVAIL => Some(Shortage::Ports),
            Errno::NOMEM | Errno::NOBUFS => Some(Shortage::Memory),
            Errno::NOSPC => Some(Shortage::Watches),
            Errno::AGAIN => Some(Shortage::Queue),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
