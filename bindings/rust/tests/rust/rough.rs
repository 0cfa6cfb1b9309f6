//! A transport that is often not ready, and takes or returns only some bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Random numbers from a seed (xorshift).
#[derive(Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// 0 to `limit` - 1.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        for (left, shift) in [(true, 13), (false, 7), (true, 17)] {
            self.0 ^= if left {
                self.0 << shift
            } else {
                self.0 >> shift
            };
        }
        (self.0 >> 8) as usize % limit
    }
}

pub(crate) struct Rough<IO> {
    io: IO,
    dice: Dice,
}

impl<IO> Rough<IO> {
    pub(crate) fn new(io: IO, seed: u64) -> Rough<IO> {
        Rough {
            io,
            dice: Dice::new(seed),
        }
    }

    /// How many bytes pass now. `None`: not now.
    fn luck(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        match self.dice.below(4) {
            0 => {
                cx.waker().wake_by_ref();
                None
            }
            1 => Some(1 + self.dice.below(8)),
            _ => Some(1 + self.dice.below(20_000)),
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Rough<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(count) = this.luck(cx) else {
            return Poll::Pending;
        };
        let mut room = vec![0; count.min(buf.remaining())];
        let mut read = ReadBuf::new(&mut room);
        ready!(Pin::new(&mut this.io).poll_read(cx, &mut read))?;
        buf.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Rough<IO> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match this.luck(cx) {
            Some(count) => Pin::new(&mut this.io).poll_write(cx, &bytes[..count.min(bytes.len())]),
            None => Poll::Pending,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.luck(cx) {
            Some(_) => Pin::new(&mut this.io).poll_flush(cx),
            None => Poll::Pending,
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.luck(cx) {
            Some(_) => Pin::new(&mut this.io).poll_shutdown(cx),
            None => Poll::Pending,
        }
    }
}
