//! A joint: two sockets by which two connections of one process are joined, so that what one
//! receives the other sends on.
//!
//! It is a pair of unix sockets, and those know but one end: the other side of a socket that was
//! closed in the middle of everything looks as if it had said all there was to say. So an end must
//! be *said*: by one byte with a descriptor. Whatever ends without it was cut off, by an error of
//! the connection behind, or because this process died.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::ops::Range;

use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, sockopt,
};

use super::transfer::{check, scatter};
use super::{Attempt, attempt, pair};
use crate::{Fd, OnExec};

/// What either end holds for the other, in bytes. The kernel takes it twice, for its overhead.
const BUFFER_BYTES: usize = 64 << 10;

/// Room that is left for the end to be said, whatever was sent before.
const BUFFER_BYTES_AT_THE_END: usize = 80 << 10;

/// What was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// So many bytes.
    pub bytes: usize,
    /// Behind them the other end has said that this is all.
    pub is_end: bool,
}

/// Two ends.
///
/// # Errors
/// What the operating system says.
pub fn joint(on_exec: OnExec) -> io::Result<(Fd, Fd)> {
    let (a, b) = pair(on_exec)?;
    for end in [a, b] {
        sockopt::set_socket_send_buffer_size(end.borrow()?, BUFFER_BYTES)?;
    }
    Ok((a, b))
}

/// Says that nothing more follows. `token` is any descriptor that may be copied; nobody gets it.
///
/// # Errors
/// What the operating system says: EPIPE when the other end is closed.
pub fn say_end(fd: Fd, token: Fd) -> io::Result<()> {
    let (fd, token) = (fd.borrow()?, [token.borrow()?]);
    sockopt::set_socket_send_buffer_size(fd, BUFFER_BYTES_AT_THE_END)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let sent = attempt(|| {
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        // There is room for one.
        let _ = ancillary.push(SendAncillaryMessage::ScmRights(&token));
        let parts = [IoSlice::new(b"E")];
        rustix::net::sendmsg(fd, &parts, &mut ancillary, SendFlags::NOSIGNAL)
    })?;
    match sent {
        Attempt::Done(_) => Ok(()),
        Attempt::WouldBlock => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// As [`super::recv_scattered`], from a joint. An end that was not said is an error.
///
/// # Errors
/// `ConnectionReset` when the other end was cut off; otherwise as [`super::recv_scattered`].
pub fn recv_from_joint(
    fd: Fd,
    buf: &mut [u8],
    ranges: &[Range<usize>],
) -> io::Result<Attempt<Received>> {
    check(ranges, buf.len())?;
    let fd = fd.borrow()?;
    let mut parts = scatter(buf, ranges);
    let parts = &mut parts[..ranges.len()];
    // Without room for descriptors: the kernel drops the one that comes, and says that it did.
    let received = attempt(|| {
        let mut ancillary = RecvAncillaryBuffer::default();
        rustix::net::recvmsg(fd, parts, &mut ancillary, RecvFlags::empty())
    })?;
    match received {
        Attempt::WouldBlock => Ok(Attempt::WouldBlock),
        Attempt::Done(message) if message.bytes == 0 => Err(io::ErrorKind::ConnectionReset.into()),
        Attempt::Done(message) => {
            let is_end = message.flags.contains(ReturnFlags::CTRUNC);
            Ok(Attempt::Done(Received {
                bytes: message.bytes - usize::from(is_end),
                is_end,
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{send, shutdown_write};

    fn receive(fd: Fd, room: usize) -> io::Result<Attempt<Received>> {
        let mut buf = vec![0; room];
        recv_from_joint(fd, &mut buf, std::slice::from_ref(&(0..room)))
    }

    fn got(bytes: usize, is_end: bool) -> Attempt<Received> {
        Attempt::Done(Received { bytes, is_end })
    }

    #[test]
    fn an_end_is_said_and_everything_else_is_none() {
        let (a, b) = joint(OnExec::Close).expect("a joint");
        assert_eq!(receive(b, 9).expect("nothing"), Attempt::WouldBlock);
        let _ = send(a, b"one").expect("sent");
        let _ = send(a, b"two").expect("sent");
        say_end(a, a).expect("said");
        shutdown_write(a).expect("shut");
        // The end is said behind the bytes, whatever room there is for them.
        assert_eq!(receive(b, 4).expect("bytes"), got(4, false));
        assert_eq!(receive(b, 2).expect("bytes"), got(2, false));
        assert_eq!(receive(b, 9).expect("the end"), got(0, true));
        // The other way is still open, and is cut off.
        let _ = send(b, b"three").expect("sent");
        b.close();
        assert_eq!(receive(a, 9).expect("bytes"), got(5, false));
        let cut = receive(a, 9).expect_err("cut off");
        assert_eq!(cut.kind(), io::ErrorKind::ConnectionReset);
        a.close();
    }

    #[test]
    fn an_end_comes_with_the_last_bytes() {
        let (a, b) = joint(OnExec::Close).expect("a joint");
        let _ = send(a, b"all").expect("sent");
        say_end(a, b).expect("said");
        a.close();
        assert_eq!(receive(b, 9).expect("the end"), got(3, true));
        b.close();
    }

    #[test]
    fn there_is_room_for_the_end_when_there_is_none_for_bytes() {
        let (a, b) = joint(OnExec::Close).expect("a joint");
        let mut sent = 0;
        while let Attempt::Done(n) = send(a, &[7; 4096]).expect("sent") {
            sent += n;
        }
        assert!(sent >= 32 << 10, "{sent}");
        say_end(a, a).expect("said");
        a.close();
        let mut received = 0;
        loop {
            match receive(b, 10_000).expect("bytes") {
                Attempt::Done(some) => received += some.bytes,
                Attempt::WouldBlock => panic!("no end after {received}"),
            }
            if received == sent {
                break;
            }
        }
        b.close();
    }
}
