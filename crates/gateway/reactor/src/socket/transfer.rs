//! Sending and receiving bytes, and ending connections.

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, sockopt};

use crate::Fd;
use crate::outcome::{Attempt, attempt};

/// Maximum number of ranges of one scattered receive or gathered send.
pub const RANGES_MAX: usize = 8;

/// Receives into `buf`. `Done(0)` with a non-empty buffer is the end of the stream.
///
/// # Errors
/// The operating system's error, such as ECONNRESET or ETIMEDOUT.
pub fn recv(fd: Fd, buf: &mut [u8]) -> io::Result<Attempt<usize>> {
    let fd = fd.borrow()?;
    attempt(|| rustix::net::recv(fd, &mut *buf, RecvFlags::empty()).map(|(count, _)| count))
}

/// Returns the same bytes as [`recv`], without consuming them.
///
/// # Errors
/// See [`recv`].
pub fn peek(fd: Fd, buf: &mut [u8]) -> io::Result<Attempt<usize>> {
    let fd = fd.borrow()?;
    attempt(|| rustix::net::recv(fd, &mut *buf, RecvFlags::PEEK).map(|(count, _)| count))
}

/// Receives into several ranges of one buffer, in order: bytes to be sealed are received at their place in the
/// records, with room between. Ranges must ascend and not overlap.
///
/// # Errors
/// `InvalidInput` for invalid or too many ranges; otherwise see [`recv`].
pub fn recv_scattered(
    fd: Fd,
    buf: &mut [u8],
    ranges: &[Range<usize>],
) -> io::Result<Attempt<usize>> {
    check(ranges, buf.len())?;
    if let [range] = ranges {
        return recv(fd, &mut buf[range.clone()]);
    }
    let fd = fd.borrow()?;
    let mut parts = scatter(buf, ranges);
    let parts = &mut parts[..ranges.len()];
    attempt(|| rustix::io::readv(fd, parts))
}

/// Sends from `buf`, and returns how many bytes were taken.
///
/// # Errors
/// The operating system's error, such as EPIPE or ECONNRESET. Raises no signal.
pub fn send(fd: Fd, buf: &[u8]) -> io::Result<Attempt<usize>> {
    let fd = fd.borrow()?;
    attempt(|| rustix::net::send(fd, buf, SendFlags::NOSIGNAL))
}

/// Sends with the hint that more follows at once (MSG_MORE), so that both share a segment, or the FIN of
/// [`shutdown_write`] does. If nothing follows, the bytes are sent when the peer sends data, or after a
/// retransmission timeout of at least 200 ms.
///
/// # Errors
/// See [`send`].
pub fn send_before_more(fd: Fd, buf: &[u8]) -> io::Result<Attempt<usize>> {
    let fd = fd.borrow()?;
    attempt(|| rustix::net::send(fd, buf, SendFlags::NOSIGNAL | SendFlags::MORE))
}

/// Sends several ranges of one buffer, in order, with one call: the plaintext of several records opened in
/// place. Ranges must ascend and not overlap.
///
/// # Errors
/// `InvalidInput` for invalid or too many ranges; otherwise see [`send`].
pub fn send_gathered(fd: Fd, buf: &[u8], ranges: &[Range<usize>]) -> io::Result<Attempt<usize>> {
    check(ranges, buf.len())?;
    if let [range] = ranges {
        return send(fd, &buf[range.clone()]);
    }
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

/// Ends our direction (a FIN, after all earlier bytes). If the peer has already closed, this succeeds.
///
/// # Errors
/// The operating system's error.
pub fn shutdown_write(fd: Fd) -> io::Result<()> {
    match rustix::net::shutdown(fd.borrow()?, Shutdown::Write) {
        Ok(()) | Err(Errno::NOTCONN) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Aborts a connection: a TCP peer gets a reset. The send queue is discarded, so wait until [`super::unsent`]
/// is 0 if that matters. On a unix socket the peer sees an ordinary end, because unix sockets have no reset.
///
/// Another process with a copy of the descriptor keeps the connection open. A keeper's table is shared, so a
/// close there counts for both.
pub fn reset(fd: Fd) {
    reset_on_close(fd);
    fd.close();
}

/// Makes the close of a connection an abort ([`reset`]), whichever process closes the descriptor.
pub fn reset_on_close(fd: Fd) {
    if let Ok(socket) = fd.borrow() {
        // A failure means that there is no connection to abort.
        let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
    }
}

/// Splits one buffer into ranges, which were checked before; the rest of the array is empty.
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
