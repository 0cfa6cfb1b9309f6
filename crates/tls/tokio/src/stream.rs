//! A TLS connection over a transport.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use crate::link::{FLIGHT_MAX, Link};
use crate::negotiated::Negotiated;
use crate::scratch;

/// A TLS connection over a transport, from the end of its handshake on.
///
/// It is two pointers larger than its transport, and has 152 bytes in the heap: nothing else while it is at rest.
/// [`Negotiated`] is shared by connections that agreed on the same. A client waits for the server's ticket first: until it
/// has arrived, or until the stream is read or written a second after the handshake.
///
/// Dropping it sends nothing: call `shutdown` first. The documentation of the [crate] says what reads, writes and ends do.
pub struct TlsStream<IO> {
    pub(crate) link: Link<IO>,
    pub(crate) negotiated: Arc<Negotiated>,
}

const _: () = assert!(size_of::<TlsStream<()>>() + size_of::<crate::tls::Tls>() <= 168);

impl<IO> TlsStream<IO> {
    /// Returns the transport, and what the handshake agreed on.
    pub fn get_ref(&self) -> (&IO, &Negotiated) {
        (&self.link.io, &self.negotiated)
    }

    /// Returns the transport, for its options. Bytes that the caller sends or receives by it break the connection.
    pub fn get_mut(&mut self) -> (&mut IO, &Negotiated) {
        (&mut self.link.io, &self.negotiated)
    }

    /// Ends the stream and returns its transport. What was not read or sent is lost.
    pub fn into_inner(self) -> (IO, Arc<Negotiated>) {
        (self.link.io, self.negotiated)
    }

    /// Whether the stream has nothing in the heap.
    pub fn is_at_rest(&self) -> bool {
        self.link.tls.is_at_rest()
    }

    /// Records whether the task that writes, flushes or shuts down waits now.
    fn writing<T>(&mut self, result: Poll<T>) -> Poll<T> {
        let tls = &mut self.link.tls;
        if result.is_pending() || tls.flight().is_some() {
            tls.flight_mut().writer_waits = result.is_pending();
            tls.rest();
        }
        result
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let link = &mut self.get_mut().link;
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let result = link.poll_receive(cx, Some(buf));
        link.send_unawaited(cx);
        link.tls.rest();
        result
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncBufRead for TlsStream<IO> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let link = &mut self.get_mut().link;
        let result = link.poll_receive(cx, None);
        link.send_unawaited(cx);
        link.tls.rest();
        ready!(result)?;
        Poll::Ready(Ok(link.tls.plaintext()))
    }

    fn consume(self: Pin<&mut Self>, count: usize) {
        let tls = &mut self.get_mut().link.tls;
        if !tls.plaintext().is_empty() {
            tls.flight_mut().plaintext.take(count);
            tls.rest();
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<IO> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = this.link.poll_write(cx, bytes);
        this.writing(result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = parts.iter().map(|part| part.len()).sum::<usize>();
        let first = parts.iter().find(|part| !part.is_empty());
        match first {
            Some(first) if first.len() < all.min(FLIGHT_MAX) => {
                let this = self.get_mut();
                let result = scratch::input(FLIGHT_MAX, |room| {
                    let gathered = gather(parts, room);
                    this.link.poll_write(cx, gathered)
                });
                this.writing(result)
            }
            first => self.poll_write(cx, first.map_or(&[], |first| first)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = this.link.poll_flush(cx);
        this.writing(result)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = this.link.poll_shutdown(cx);
        this.writing(result)
    }
}

/// Copies the parts to one place, as far as there is room.
fn gather<'a>(parts: &[IoSlice<'_>], room: &'a mut [u8]) -> &'a [u8] {
    let mut len = 0;
    for part in parts {
        let free = room.get_mut(len..).unwrap_or_default();
        for (to, from) in free.iter_mut().zip(part.iter()) {
            *to = *from;
        }
        len += part.len().min(free.len());
    }
    room.get(..len).unwrap_or_default()
}

#[cfg(unix)]
impl<IO: std::os::fd::AsFd> std::os::fd::AsFd for TlsStream<IO> {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.link.io.as_fd()
    }
}

#[cfg(unix)]
impl<IO: std::os::fd::AsRawFd> std::os::fd::AsRawFd for TlsStream<IO> {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.link.io.as_raw_fd()
    }
}

impl<IO: std::fmt::Debug> std::fmt::Debug for TlsStream<IO> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsStream")
            .field("io", &self.link.io)
            .field("negotiated", &self.negotiated)
            .field("in_flight", &self.link.tls.flight())
            .finish_non_exhaustive()
    }
}
