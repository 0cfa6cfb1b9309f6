//! Bytes in and out, and the ends of a connection.

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, sockopt};

use super::{Attempt, attempt};
use crate::Fd;

/// Most ranges of one scattered receive or gathered send.
pub const RANGES_MAX: usize = 8;

/// Receives into `buf`. `Done(0)` with a buffer that is not empty is the end of the stream.
///
/// # Errors
/// What the operating system says: ECONNRESET, ETIMEDOUT.
pub fn recv(fd: Fd, buf: &mut [u8]) -> io::Result<Attempt<usize>> {
    let fd = fd.borrow()?;
    attempt(|| rustix::net::recv(fd, &mut *buf, RecvFlags::empty()).map(|(count, _)| count))
}

/// Looks at what [`recv`] would give, and leaves it where it is.
///
/// # Errors
/// As [`recv`].
pub fn peek(fd: Fd, buf: &mut [u8]) -> io::Result<Attempt<usize>> {
    let fd = fd.borrow()?;
    attempt(|| rustix::net::recv(fd, &mut *buf, RecvFlags::PEEK).map(|(count, _)| count))
}

/// Receives into several ranges of one buffer, in order: bytes which will be sealed are received
/// where their records will be, with room between them. Ranges must ascend and not overlap.
///
/// # Errors
/// `InvalidInput` for ranges which are not as above or too many; otherwise as [`recv`].
pub fn recv_scattered(
    fd: Fd,
    buf: &mut [u8],
    ranges: &[Range<usize>],
) -> io::Result<Attempt<usize>> {
    check(ranges, buf.len())?;
    let fd = fd.borrow()?;
    let mut parts = scatter(buf, ranges);
    let parts = &mut parts[..ranges.len()];
    attempt(|| rustix::io::readv(fd, parts))
}

/// Sends from `buf`; how much was taken is in the result.
///
/// # Errors
/// What the operating system says: EPIPE, ECONNRESET. There is no signal.
pub fn send(fd: Fd, buf: &[u8]) -> io::Result<Attempt<usize>> {
    let fd = fd.borrow()?;
    attempt(|| rustix::net::send(fd, buf, SendFlags::NOSIGNAL))
}

/// Sends, and says that more follows at once (MSG_MORE): it then goes in the same segment as that,
/// or as a FIN by [`shutdown_write`]. If nothing follows, it goes when the peer says something, or
/// after the time of a retransmission, 200 ms at least.
///
/// # Errors
/// As [`send`].
pub fn send_before_more(fd: Fd, buf: &[u8]) -> io::Result<Attempt<usize>> {
    let fd = fd.borrow()?;
    attempt(|| rustix::net::send(fd, buf, SendFlags::NOSIGNAL | SendFlags::MORE))
}

/// Sends several ranges of one buffer, in order, as one: the plaintext of several records which
/// were opened in place. Ranges must ascend and not overlap.
///
/// # Errors
/// `InvalidInput` for ranges which are not as above or too many; otherwise as [`send`].
pub fn send_gathered(fd: Fd, buf: &[u8], ranges: &[Range<usize>]) -> io::Result<Attempt<usize>> {
    check(ranges, buf.len())?;
    let fd = fd.borrow()?;
    let mut parts = [IoSlice::new(&[]); RANGES_MAX];
    for (part, range) in parts.iter_mut().zip(ranges) {
        *part = IoSlice::new(&buf[range.clone()]);
    }
    let parts = &parts[..ranges.len()];
    attempt(|| {
        rustix::net::sendmsg(
            fd,
            parts,
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL,
        )
    })
}

/// Says that nothing more will be sent (a FIN, once what was sent before is through). What the
/// peer closed already counts as done.
///
/// # Errors
/// What the operating system says.
pub fn shutdown_write(fd: Fd) -> io::Result<()> {
    shutdown(fd, Shutdown::Write)
}

/// Says that nothing more will be received.
///
/// # Errors
/// What the operating system says.
pub fn shutdown_read(fd: Fd) -> io::Result<()> {
    shutdown(fd, Shutdown::Read)
}

fn shutdown(fd: Fd, how: Shutdown) -> io::Result<()> {
    match rustix::net::shutdown(fd.borrow()?, how) {
        Ok(()) | Err(Errno::NOTCONN) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Aborts a connection: a TCP peer gets a reset. What is in the send queue is thrown away, so
/// wait until [`super::unsent`] is 0 when that matters. On a unix socket the peer sees an
/// ordinary end: it cannot be said there.
///
/// Another process that has the same descriptor keeps the connection open: a keeper's table is
/// shared, so that a close there counts for both.
pub fn reset(fd: Fd) {
    if let Ok(socket) = fd.borrow() {
        // Refusal means that there is no connection to abort.
        let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
    }
    fd.close();
}

/// The ranges of one buffer, which have been checked; what is left of the array is empty.
pub(super) fn scatter<'a>(
    buf: &'a mut [u8],
    ranges: &[Range<usize>],
) -> [IoSliceMut<'a>; RANGES_MAX] {
    let mut parts: [IoSliceMut<'_>; RANGES_MAX] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
    let (mut rest, mut rest_start) = (buf, 0);
    for (part, range) in parts.iter_mut().zip(ranges) {
        let (taken, after) = rest.split_at_mut(range.end - rest_start);
        *part = IoSliceMut::new(&mut taken[range.start - rest_start..]);
        (rest, rest_start) = (after, range.end);
    }
    parts
}

pub(super) fn check(ranges: &[Range<usize>], len: usize) -> io::Result<()> {
    let mut position = 0;
    let ordered = ranges.iter().all(|range| {
        let fits = position <= range.start && range.start <= range.end && range.end <= len;
        position = range.end;
        fits
    });
    if ordered && ranges.len() <= RANGES_MAX {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "misuse: ranges must ascend, lie in the buffer, and be at most 8",
    ))
}
