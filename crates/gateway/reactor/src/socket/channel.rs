//! Messages between related processes, with descriptors.
//!
//! A channel is a pair of `SOCK_SEQPACKET` unix sockets: the kernel preserves message boundaries, so a message
//! arrives completely or not at all, together with its descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::io::FdFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::outcome::{Attempt, attempt};
use crate::process::Pid;
use crate::{Fd, OnExec};

/// Maximum number of descriptors per message (the kernel's SCM_MAX_FD is 253).
pub const DESCRIPTORS_MAX: usize = 128;

/// Maximum message length, well below the capacity of a socket buffer.
pub const MESSAGE_MAX: usize = 128 << 10;

/// A received message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its length; the bytes are in the buffer. 0: the other end is closed.
    pub len: usize,
    /// Its descriptors. They now belong to the receiver.
    pub descriptors: Vec<Fd>,
}

/// Creates a channel and returns its two ends.
///
/// # Errors
/// The operating system's error.
pub fn channel(on_exec: OnExec) -> io::Result<(Fd, Fd)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    if on_exec == OnExec::Keep {
        rustix::io::fcntl_setfd(&a, FdFlags::empty())?;
        rustix::io::fcntl_setfd(&b, FdFlags::empty())?;
    }
    Ok((a.into(), b.into()))
}

/// Sends one message with copies of these descriptors, completely or not at all.
///
/// # Errors
/// `InvalidInput` for an empty or overlong message, or too many descriptors; otherwise the operating system's
/// error, such as EPIPE if the other end is closed.
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
            // The buffer has room for DESCRIPTORS_MAX.
            let _ = ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
        }
        let parts = [IoSlice::new(bytes)];
        rustix::net::sendmsg(fd, &parts, &mut ancillary, SendFlags::NOSIGNAL).map(|_| ())
    })
}

/// Makes the kernel report the sending process of each message to the receiver at this end ([`receive_plain_message`]).
/// Call it before the other end is passed on.
///
/// # Errors
/// The operating system's error.
pub fn name_senders(fd: Fd) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_passcred(
        fd.borrow()?,
        true,
    )?)
}

/// What a channel has when no descriptors are expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlainMessage {
    /// A message of this length; the bytes are in the buffer.
    Whole {
        /// Its length.
        len: usize,
        /// The sending process, as reported by the kernel; `None` without [`name_senders`].
        sender: Option<Pid>,
    },
    /// A message that is longer than the buffer, has descriptors, or is empty. The next one can be received.
    Invalid {
        /// As above.
        sender: Option<Pid>,
    },
    /// The other end is closed. Without [`name_senders`], an empty message looks the same.
    End,
}

/// Receives one message without descriptors into `buf`. There is no room for descriptors, so the kernel closes
/// any that arrive, and a sender cannot fill the receiver's table.
///
/// # Errors
/// The operating system's error.
pub fn receive_plain_message(fd: Fd, buf: &mut [u8]) -> io::Result<Attempt<PlainMessage>> {
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
            // Dropped, and so closed: without the sender's credentials there is room for one or two.
            RecvAncillaryMessage::ScmRights(_) => has_descriptors = true,
            _ => {}
        }
    }
    let is_cut = (received.flags).intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    Ok(Attempt::Done(match received.bytes {
        _ if has_descriptors || is_cut => PlainMessage::Invalid { sender },
        // The end has no sender.
        0 if sender.is_some() => PlainMessage::Invalid { sender },
        0 => PlainMessage::End,
        len => PlainMessage::Whole { len, sender },
    }))
}

/// Receives one message into `buf`. If this process has no place for all of its descriptors, or there are more than
/// [`DESCRIPTORS_MAX`], the message comes without any.
///
/// # Errors
/// `InvalidData` if the message is longer than `buf`; its descriptors are then closed. Otherwise the operating system's
/// error.
pub fn receive_message(fd: Fd, buf: &mut [u8], on_exec: OnExec) -> io::Result<Attempt<Message>> {
    receive(fd, buf, on_exec, RecvFlags::empty())
}

/// Receives as [`receive_message`], and leaves the message in the channel: the next receiver gets it again, with
/// descriptors of the same files.
///
/// # Errors
/// See [`receive_message`].
pub fn peek_message(fd: Fd, buf: &mut [u8], on_exec: OnExec) -> io::Result<Attempt<Message>> {
    receive(fd, buf, on_exec, RecvFlags::PEEK)
}

fn receive(
    fd: Fd,
    buf: &mut [u8],
    on_exec: OnExec,
    flags: RecvFlags,
) -> io::Result<Attempt<Message>> {
    let fd = fd.borrow()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = attempt(|| {
        let mut parts = [IoSliceMut::new(&mut *buf)];
        rustix::net::recvmsg(
            fd,
            &mut parts,
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC | flags,
        )
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
    if received.flags.contains(ReturnFlags::CTRUNC) {
        owned.clear();
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message exceeds the maximum length",
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
        match receive_message(fd, buf, OnExec::Keep).expect("a read from the channel") {
            Attempt::Done(message) => message,
            Attempt::WouldBlock => panic!("expected a message, there is none"),
        }
    }

    #[test]
    fn messages_keep_their_boundaries_and_descriptors() {
        let (a, b) = channel(OnExec::Close).expect("a channel");
        let (here, there) = socket::pair(OnExec::Close).expect("a pair");
        let mut buf = [0; 64];
        assert_eq!(
            receive_message(b, &mut buf, OnExec::Close).expect("an empty channel"),
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
    fn plain_messages_report_their_sender_and_accept_no_descriptors() {
        // Other tests of this process open and close descriptors, but none of this socket.
        let link = |fd: &std::path::Path| std::fs::read_link(fd).ok();
        let count = |fd: Fd| {
            let socket = link(format!("/proc/self/fd/{}", fd.0).as_ref());
            let all = std::fs::read_dir("/proc/self/fd").expect("/proc").flatten();
            all.filter(|entry| link(&entry.path()) == socket).count()
        };
        for named in [false, true] {
            let (a, b) = channel(OnExec::Close).expect("a channel");
            if named {
                name_senders(b).expect("an option of sockets");
            }
            let mut buf = [0; 64];
            let _ = send_message(a, b"one", &[]).expect("sent");
            let words = receive_plain_message(b, &mut buf).expect("a message");
            let sender = named.then(crate::process::pid);
            assert_eq!(words, Attempt::Done(PlainMessage::Whole { len: 3, sender }));
            let before = count(a);
            for some in [1, 2, 3, DESCRIPTORS_MAX] {
                let _ = send_message(a, b"two", &vec![a; some]).expect("sent");
                let refused = receive_plain_message(b, &mut buf).expect("a message");
                let invalid = PlainMessage::Invalid { sender };
                assert_eq!(refused, Attempt::Done(invalid), "{some} descriptors");
                assert_eq!(count(a), before, "none is left open");
            }
            let _ = send_message(a, &[7; 65], &[]).expect("sent");
            let too_long = receive_plain_message(b, &mut buf).expect("a message");
            assert_eq!(too_long, Attempt::Done(PlainMessage::Invalid { sender }));
            let empty = rustix::net::send(a.borrow().expect("open"), &[], SendFlags::empty());
            empty.expect("sent");
            let empty = receive_plain_message(b, &mut buf).expect("a message");
            let is_end = empty == Attempt::Done(PlainMessage::End);
            assert_eq!(is_end, !named, "a sender tells a message from the end");
            a.close();
            let end = receive_plain_message(b, &mut buf).expect("the end");
            assert_eq!(end, Attempt::Done(PlainMessage::End));
            b.close();
        }
    }

    #[test]
    fn invalid_messages_are_refused() {
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
        assert!(full.is_some(), "an unread channel must fill up");
        a.close();
        b.close();
    }
}
