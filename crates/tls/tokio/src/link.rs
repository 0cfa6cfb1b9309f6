//! A connection and its transport.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::scratch;
use crate::tls::{Found, Tls, session_error};

/// Bytes of a read: those of the longest record at least, and more if the reader has room for more.
const READ_MIN: usize = 18_437;
const READ_MAX: usize = 64 * 1_024;

/// Plaintext of the longest record.
const RECORD_MAX: usize = 16_384;

/// Bytes that a stream seals before its transport has taken them: four records.
pub const FLIGHT_MAX: usize = 4 * RECORD_MAX;

/// Unsent bytes with which nothing more is read. A write leaves fewer: these are replies to a peer that asks for new keys
/// and does not read.
const UNSENT_MAX: usize = 2 * FLIGHT_MAX;

#[derive(Debug)]
pub(crate) struct Link<IO> {
    pub(crate) io: IO,
    /// Boxed, because futures keep a stream several times: as an argument and as a variable, in each of their layers.
    pub(crate) tls: Box<Tls>,
}

/// Receiving.
impl<IO: AsyncRead + AsyncWrite + Unpin> Link<IO> {
    /// Reads once from the transport during the handshake, and handles what has arrived.
    pub(crate) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Found>> {
        scratch::input(READ_MIN, |room| {
            let mut read = ReadBuf::new(room);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut read))?;
            Poll::Ready(match read.filled_mut() {
                [] => match self.tls.eof() {
                    Ok(end) => Err(io::Error::new(ErrorKind::UnexpectedEof, end)),
                    Err(error) => Err(session_error(error)),
                },
                received => self.tls.feed(received, None).map_err(session_error),
            })
        })
    }

    /// Waits until there is plaintext, in `buf` or kept, or until the peer's direction has ended.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        mut buf: Option<&mut ReadBuf<'_>>,
    ) -> Poll<io::Result<()>> {
        let before = buf.as_ref().map_or(0, |buf| buf.filled().len());
        loop {
            if let Some(buf) = buf.as_deref_mut()
                && !self.tls.plaintext().is_empty()
            {
                self.tls.flight_mut().plaintext.move_to(buf);
            }
            let now = buf.as_ref().map_or(0, |buf| buf.filled().len());
            if now > before || !self.tls.plaintext().is_empty() {
                return Poll::Ready(Ok(()));
            }
            if let Some(end) = self.tls.end() {
                return Poll::Ready(end);
            }
            self.send_unawaited(cx);
            if self.tls.unsent().len() > UNSENT_MAX {
                self.tls.flight_mut().reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
            ready!(self.poll_open(cx, buf.as_deref_mut()))?;
        }
    }

    /// Reads once from the transport, and opens what has arrived.
    fn poll_open(
        &mut self,
        cx: &mut Context<'_>,
        buf: Option<&mut ReadBuf<'_>>,
    ) -> Poll<io::Result<()>> {
        let start = self.tls.ciphertext_len();
        let room = buf.as_ref().map_or(0, |buf| buf.remaining());
        let end = start + room.clamp(READ_MIN, READ_MAX);
        scratch::input(end, |input| {
            let free = input.get_mut(start..end).unwrap_or_default();
            let mut read = ReadBuf::new(free);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut read))?;
            let count = read.filled().len();
            if count == 0 {
                return Poll::Ready(self.tls.eof().map(drop).map_err(session_error));
            }
            self.tls.take_ciphertext(input);
            let received = input.get_mut(..start + count).unwrap_or_default();
            Poll::Ready(self.tls.open(received, buf).map_err(session_error))
        })
    }
}

/// Sending.
impl<IO: AsyncWrite + Unpin> Link<IO> {
    /// Seals bytes and gives the records to the transport, which may take only some of them.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.tls.check_writable()?;
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            return Poll::Ready(Err(error));
        }
        let waiting = self.tls.unsent().len();
        let room = FLIGHT_MAX.saturating_sub(waiting);
        // Not a record for each few bytes that the transport takes.
        if room < bytes.len().min(RECORD_MAX) {
            return Poll::Pending;
        }
        let count = bytes.len().min(room);
        let piece = bytes.get(..count).unwrap_or_default();
        scratch::output(self.tls.sealed_len(count), |output| {
            let len = self.tls.seal(piece, output)?;
            let mut sealed = output.get(..len).unwrap_or_default();
            while waiting == 0 && !sealed.is_empty() {
                match Pin::new(&mut self.io).poll_write(cx, sealed) {
                    Poll::Ready(Ok(0)) | Poll::Pending => break,
                    Poll::Ready(Ok(sent)) => sealed = sealed.get(sent..).unwrap_or_default(),
                    Poll::Ready(Err(error)) => {
                        self.tls.break_off();
                        return Poll::Ready(Err(error));
                    }
                }
            }
            self.tls.keep_unsent(sealed);
            Poll::Ready(Ok(count))
        })
    }

    /// Gives all sealed bytes to the transport.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let unsent @ [_, ..] = self.tls.unsent() {
            match ready!(Pin::new(&mut self.io).poll_write(cx, unsent)) {
                Ok(0) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                Ok(sent) => self.tls.flight_mut().unsent.take(sent),
                Err(error) => {
                    self.tls.break_off();
                    return Poll::Ready(Err(error));
                }
            }
        }
        self.tls.wake_reader();
        Poll::Ready(Ok(()))
    }

    /// The same, and the transport passes them on.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    /// While reading: sends replies, and what a write has left. A transport keeps one waker for writing, so this does
    /// nothing while a task waits to write: that one sends them.
    pub(crate) fn send_unawaited(&mut self, cx: &mut Context<'_>) {
        let waits = self.tls.flight().is_some_and(|flight| flight.writer_waits);
        if !waits && !self.tls.unsent().is_empty() {
            // An error is found by the next write.
            let _ = self.poll_flush(cx);
        }
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tls.close()?;
        ready!(self.poll_send(cx))?;
        match ready!(Pin::new(&mut self.io).poll_shutdown(cx)) {
            // The peer has ended the connection already.
            Err(error) if error.kind() == ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }
}
