//! A connection whose writes fail when the client does not read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A connection on which a write fails if it makes no progress for `limit`.
pub(crate) struct WriteTimeout<T> {
    io: T,
    limit: Duration,
    state: WriteState,
}

enum WriteState {
    /// The last write has made progress.
    Progressing,
    /// The client has not read since the last write. The write fails at the deadline.
    Blocked(Pin<Box<Sleep>>),
}

impl<T: Unpin> WriteTimeout<T> {
    pub(crate) fn new(io: T, limit: Duration) -> Self {
        Self { io, limit, state: WriteState::Progressing }
    }

    /// Polls a write.
    fn poll<R>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        let written = write(Pin::new(&mut self.io), cx);
        if written.is_ready() {
            self.state = WriteState::Progressing;
            return written;
        }
        if let WriteState::Progressing = self.state {
            self.state = WriteState::Blocked(Box::pin(sleep(self.limit)));
        }
        let WriteState::Blocked(deadline) = &mut self.state else { return Poll::Pending };
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteTimeout<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, |io, cx| io.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, |io, cx| io.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has nothing to flush, so this does not count as progress.
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
