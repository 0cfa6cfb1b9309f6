//! Messages between processes of one family, descriptors among them.
//!
//! A channel is a pair of `SOCK_SEQPACKET` unix sockets: the kernel keeps the boundaries, so a
//! message arrives whole or not at all, and the descriptors sent with it arrive with it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::io::FdFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use super::{Attempt, attempt};
use crate::process::Pid;
use crate::{Fd, OnExec};

/// Most descriptors that go with one message (the kernel's SCM_MAX_FD is 253).
pub const DESCRIPTORS_MAX: usize = 128;

/// The longest message. Far below what a socket's buffer takes at once.
pub const MESSAGE_MAX: usize = 128 << 10;

/// A message that was received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its length; the bytes are in the buffer. 0: the other end is closed.
    pub len: usize,
    /// What came with it. They belong to the receiver now.
    pub descriptors: Vec<Fd>,
}

/// Two ends of a channel.
///
/// # Errors
/// What the operating system says.
pub fn channel(on_exec: OnExec) -> io::Result<(Fd, Fd)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    if on_exec == OnExec::Keep {
        rustix::io::fcntl_setfd(&a, FdFlags::empty())?;
        rustix::io::fcntl_setfd(&b, FdFlags::empty())?;
    }
    Ok((a.into(), b.into()))
}

/// Sends one message, with copies of these descriptors. It is sent as a whole or not at all.
///
/// # Errors
/// `InvalidInput` for an empty message, one that is too long, or too many descriptors; else what
/// the operating system says: EPIPE when the other end is closed.
pub fn send_message(fd: Fd, bytes: &[u8], descriptors: &[Fd]) -> io::Result<Attempt<()>> {
    if bytes.is_empty() || bytes.len() > MESSAGE_MAX || descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "a message has 1 to {MESSAGE_MAX} bytes and at most {DESCRIPTORS_MAX} descriptors, \
                 not {} and {}",
                bytes.len(),
                descriptors.len()
            ),
        ));
    }
    let fd = fd.borrow()?;
    let borrowed = descriptors
        .iter()
        .map(|fd| fd.borrow())
        .collect::<io::Result<Vec<BorrowedFd<'_>>>>()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    attempt(|| {
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !borrowed.is_empty() {
            // There is room for DESCRIPTORS_MAX.
            let _ = ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
        }
        let parts = [IoSlice::new(bytes)];
        rustix::net::sendmsg(fd, &parts, &mut ancillary, SendFlags::NOSIGNAL).map(|_| ())
    })
}

/// Has the kernel tell the receiver at this end which process has sent each message
/// ([`receive_words`]). To be called before the other end is given away.
///
/// # Errors
/// What the operating system says.
pub fn name_senders(fd: Fd) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_passcred(
        fd.borrow()?,
        true,
    )?)
}

/// A message without descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Words {
    /// Its length; the bytes are in the buffer. 0: the other end is closed.
    pub len: usize,
    /// The process that has sent it, as the kernel knows it; `None` without [`name_senders`].
    pub sender: Option<Pid>,
}

/// Receives one message into `buf` that is to have no descriptors. There is no room for any, so that
/// the kernel closes those that come all the same: a sender can't fill the receiver's table.
///
/// # Errors
/// `InvalidData` when the message is longer than `buf`, or came with descriptors. Else what the
/// operating system says.
pub fn receive_words(fd: Fd, buf: &mut [u8]) -> io::Result<Attempt<Words>> {
    let fd = fd.borrow()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = attempt(|| {
        let mut parts = [IoSliceMut::new(&mut *buf)];
        rustix::net::recvmsg(fd, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let Attempt::Done(received) = received else {
        return Ok(Attempt::WouldBlock);
    };
    let (mut sender, mut has_descriptors) = (None, false);
    for message in ancillary.drain() {
        match message {
            RecvAncillaryMessage::ScmCredentials(who) => {
                sender = Some(Pid(who.pid.as_raw_nonzero().get()));
            }
            // Dropped, and thereby closed: without a sender's name there is room for one or two.
            RecvAncillaryMessage::ScmRights(_) => has_descriptors = true,
            _ => {}
        }
    }
    let flags = received.flags;
    if has_descriptors || flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message is too long, or has descriptors where none are expected",
        ));
    }
    Ok(Attempt::Done(Words {
        len: received.bytes,
        sender,
    }))
}

/// Receives one message into `buf`.
///
/// # Errors
/// `InvalidData` when the message is longer than `buf`, or came with more descriptors than
/// [`DESCRIPTORS_MAX`]: whatever came with it is closed. Else what the operating system says.
pub fn receive_message(fd: Fd, buf: &mut [u8], on_exec: OnExec) -> io::Result<Attempt<Message>> {
    let fd = fd.borrow()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = attempt(|| {
        let mut parts = [IoSliceMut::new(&mut *buf)];
        rustix::net::recvmsg(fd, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let Attempt::Done(received) = received else {
        return Ok(Attempt::WouldBlock);
    };
    let mut owned = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            owned.extend(descriptors);
        }
    }
    if received
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message is longer than any that is sent here",
        ));
    }
    let mut descriptors = Vec::with_capacity(owned.len());
    for fd in owned {
        if on_exec == OnExec::Keep {
            rustix::io::fcntl_setfd(&fd, FdFlags::empty())?;
        }
        descriptors.push(Fd::from_owned(fd));
    }
    Ok(Attempt::Done(Message {
        len: received.bytes,
        descriptors,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket;

    fn receive(fd: Fd, buf: &mut [u8]) -> Message {
        match receive_message(fd, buf, OnExec::Keep).expect("a look into the channel") {
            Attempt::Done(message) => message,
            Attempt::WouldBlock => panic!("expected a message, there is none"),
        }
    }

    #[test]
    fn messages_keep_their_bounds_and_their_descriptors() {
        let (a, b) = channel(OnExec::Close).expect("a channel");
        let (here, there) = socket::pair(OnExec::Close).expect("a pair");
        let mut buf = [0; 64];
        assert_eq!(
            receive_message(b, &mut buf, OnExec::Close).expect("nothing yet"),
            Attempt::WouldBlock
        );
        let _ = send_message(a, b"one", &[]).expect("sent");
        let _ = send_message(a, b"three", &[here, here]).expect("sent");
        let first = receive(b, &mut buf);
        assert_eq!(
            (&buf[..first.len], first.descriptors.len()),
            (&b"one"[..], 0)
        );
        let second = receive(b, &mut buf);
        assert_eq!(&buf[..second.len], b"three");
        assert_eq!(second.descriptors.len(), 2);
        let copy = second.descriptors[1];
        assert_eq!(copy.on_exec().expect("open"), OnExec::Keep);
        let _ = socket::send(copy, b"through").expect("sent");
        assert_eq!(
            socket::recv(there, &mut buf).expect("received"),
            Attempt::Done(7)
        );
        a.close();
        assert_eq!(receive(b, &mut buf).len, 0, "the other end is closed");
        for fd in [b, here, there, second.descriptors[0], copy] {
            fd.close();
        }
    }

    #[test]
    fn words_name_their_sender_and_bring_no_descriptors() {
        let count = || crate::descriptors::count().expect("/proc");
        for named in [false, true] {
            let (a, b) = channel(OnExec::Close).expect("a channel");
            if named {
                name_senders(b).expect("an option of sockets");
            }
            let mut buf = [0; 64];
            let _ = send_message(a, b"one", &[]).expect("sent");
            let words = receive_words(b, &mut buf).expect("a message");
            let sender = named.then(crate::process::pid);
            assert_eq!(words, Attempt::Done(Words { len: 3, sender }));
            let before = count();
            for some in [1, 2, 3, DESCRIPTORS_MAX] {
                let _ = send_message(a, b"two", &vec![a; some]).expect("sent");
                let refused = receive_words(b, &mut buf).expect_err("descriptors");
                assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{some}");
                assert_eq!(count(), before, "none is left open");
            }
            a.close();
            let end = receive_words(b, &mut buf).expect("the end");
            assert!(matches!(end, Attempt::Done(Words { len: 0, .. })));
            b.close();
        }
    }

    #[test]
    fn what_cannot_be_a_message_is_refused() {
        let (a, b) = channel(OnExec::Close).expect("a channel");
        assert!(send_message(a, b"", &[]).is_err());
        assert!(send_message(a, &vec![0; MESSAGE_MAX + 1], &[]).is_err());
        assert!(send_message(a, b"x", &[a; DESCRIPTORS_MAX + 1]).is_err());
        let _ = send_message(a, &[7; 100], &[a]).expect("sent");
        let refused = receive_message(b, &mut [0; 10], OnExec::Close);
        assert_eq!(
            refused.expect_err("longer than the buffer").kind(),
            io::ErrorKind::InvalidData
        );
        let full = (0..1000)
            .map(|_| send_message(a, &[0; 1000], &[]).expect("sent or not"))
            .find(|sent| *sent == Attempt::WouldBlock);
        assert!(full.is_some(), "a channel that nobody reads fills up");
        a.close();
        b.close();
    }
}
