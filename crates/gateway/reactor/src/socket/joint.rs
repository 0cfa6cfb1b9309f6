//! A joint: a pair of sockets that joins two connections of one process, so that each sends on the data
//! received by the other.
//!
//! It is a pair of unix sockets, which cannot distinguish an end from an abort: a socket that is closed in the
//! middle of a stream looks like a complete stream. So an end is *sent explicitly*, as one byte with a
//! descriptor. A close without it is an abort, caused by an error of the connection behind it, or by the death
//! of this process.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::ops::Range;

use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, sockopt,
};

use super::pair;
use super::transfer::{check, scatter};
use crate::outcome::{Attempt, attempt};
use crate::{Fd, OnExec};

/// Buffer of each end in bytes. The kernel doubles it for its overhead.
const BUFFER_BYTES: usize = 64 << 10;

/// Buffer at the end, which leaves room for the end marker after any data: the kernel takes a last piece of 36 KiB as long
/// as anything is free.
const BUFFER_BYTES_AT_THE_END: usize = 2 * BUFFER_BYTES;

/// Result of receiving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Number of bytes.
    pub bytes: usize,
    /// Whether the other end has sent the end marker after them.
    pub is_end: bool,
}

/// Creates a joint and returns its two ends.
///
/// # Errors
/// The operating system's error.
pub fn joint(on_exec: OnExec) -> io::Result<(Fd, Fd)> {
    let ends = pair(on_exec)?;
    let limited = [ends.0, ends.1].into_iter().try_for_each(|end| {
        Ok(sockopt::set_socket_send_buffer_size(
            end.borrow()?,
            BUFFER_BYTES,
        )?)
    });
    if limited.is_err() {
        ends.0.close();
        ends.1.close();
    }
    limited.map(|()| ends)
}

/// Sends the end marker: nothing more follows. `token` is any descriptor that may be copied; the receiver does
/// not keep it.
///
/// # Errors
/// The operating system's error: EPIPE if the other end is closed.
pub fn send_end(fd: Fd, token: Fd) -> io::Result<()> {
    let (fd, token) = (fd.borrow()?, [token.borrow()?]);
    sockopt::set_socket_send_buffer_size(fd, BUFFER_BYTES_AT_THE_END)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let sent = attempt(|| {
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        // The buffer has room for one.
        let _ = ancillary.push(SendAncillaryMessage::ScmRights(&token));
        let parts = [IoSlice::new(b"E")];
        rustix::net::sendmsg(fd, &parts, &mut ancillary, SendFlags::NOSIGNAL)
    })?;
    match sent {
        Attempt::Done(_) => Ok(()),
        Attempt::WouldBlock => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Like [`super::recv_scattered`], from a joint. An end without a marker is an error.
///
/// # Errors
/// `ConnectionReset` if the other end was aborted; otherwise see [`super::recv_scattered`].
pub fn recv_from_joint(
    fd: Fd,
    buf: &mut [u8],
    ranges: &[Range<usize>],
) -> io::Result<Attempt<Received>> {
    check(ranges, buf.len())?;
    let fd = fd.borrow()?;
    let mut parts = scatter(buf, ranges);
    let parts = &mut parts[..ranges.len()];
    // Without room for descriptors, the kernel drops the marker's descriptor and reports the truncation.
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
    fn only_an_explicit_end_is_an_end() {
        let (a, b) = joint(OnExec::Close).expect("a joint");
        assert_eq!(receive(b, 9).expect("an empty joint"), Attempt::WouldBlock);
        let _ = send(a, b"one").expect("sent");
        let _ = send(a, b"two").expect("sent");
        send_end(a, a).expect("the end sent");
        shutdown_write(a).expect("shut");
        // The end arrives after the bytes, however small the buffer is.
        assert_eq!(receive(b, 4).expect("bytes"), got(4, false));
        assert_eq!(receive(b, 2).expect("bytes"), got(2, false));
        assert_eq!(receive(b, 9).expect("the end"), got(0, true));
        // The other direction is still open, and is aborted.
        let _ = send(b, b"three").expect("sent");
        b.close();
        assert_eq!(receive(a, 9).expect("bytes"), got(5, false));
        let cut = receive(a, 9).expect_err("a truncated stream");
        assert_eq!(cut.kind(), io::ErrorKind::ConnectionReset);
        a.close();
    }

    #[test]
    fn an_end_comes_with_the_last_bytes() {
        let (a, b) = joint(OnExec::Close).expect("a joint");
        let _ = send(a, b"all").expect("sent");
        send_end(a, b).expect("the end sent");
        a.close();
        assert_eq!(receive(b, 9).expect("the end"), got(3, true));
        b.close();
    }

    #[test]
    fn the_end_fits_after_pieces_of_any_length() {
        for small in 0..64 {
            let (a, b) = joint(OnExec::Close).expect("a joint");
            for _ in 0..3 {
                let _ = send(a, &[7; 36_544]).expect("sent");
            }
            for _ in 0..small {
                let _ = send(a, b"x").expect("sent, or full");
            }
            let _ = send(a, &[7; 36_544]).expect("sent, or full");
            send_end(a, a).unwrap_or_else(|error| panic!("after {small} short pieces: {error}"));
            a.close();
            b.close();
        }
    }

    #[test]
    fn the_end_fits_even_when_no_bytes_do() {
        let (a, b) = joint(OnExec::Close).expect("a joint");
        let mut sent = 0;
        while let Attempt::Done(n) = send(a, &[7; 4096]).expect("sent") {
            sent += n;
        }
        assert!(sent >= 32 << 10, "{sent}");
        send_end(a, a).expect("the end sent");
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
