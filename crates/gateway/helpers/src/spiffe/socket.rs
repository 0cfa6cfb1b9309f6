//! The agent's socket under `h2`, which reads and writes through tokio's traits. No runtime wakes the task: the process
//! polls it whenever the socket is ready.

use dormouse_reactor::Fd;
use dormouse_reactor::socket::{self, Attempt};
use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A socket that does not block. It is closed on drop.
pub(super) struct AgentSocket {
    fd: Fd,
    /// Whether the last write found no room.
    is_full: Rc<Cell<bool>>,
}

impl AgentSocket {
    /// Returns the socket, and whether it has no room, from then on.
    pub(super) fn new(fd: Fd) -> (AgentSocket, Rc<Cell<bool>>) {
        let is_full = Rc::new(Cell::new(false));
        let socket = AgentSocket {
            fd,
            is_full: Rc::clone(&is_full),
        };
        (socket, is_full)
    }
}

impl Drop for AgentSocket {
    fn drop(&mut self) {
        self.fd.close();
    }
}

fn ready<T>(result: io::Result<Attempt<T>>) -> Poll<io::Result<T>> {
    match result {
        Ok(Attempt::Done(value)) => Poll::Ready(Ok(value)),
        Ok(Attempt::WouldBlock) => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    }
}

impl AsyncRead for AgentSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready(socket::recv(self.fd, room.initialize_unfilled()));
        read.map_ok(|len| room.advance(len))
    }
}

impl AsyncWrite for AgentSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready(socket::send(self.fd, bytes));
        self.is_full.set(written.is_pending());
        written
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(socket::shutdown_write(self.fd))
    }
}
