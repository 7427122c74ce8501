//! The body of a response.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use futures::stream::{BoxStream, StreamExt};

use crate::error::Error;
use crate::http::TurnDeadlines;
use crate::http::connection_runtime::ConnectionRuntime;

/// Streams the bytes of a response body as they arrive. Dropping a `Body` before it has been fully
/// read closes the connection.
///
/// A `Body` has no timeout of its own; the code that reads the body enforces the timeouts.
pub struct Body {
    /// The stream of remaining bytes; `None` after the end of the body.
    bytes: Option<BoxStream<'static, Result<Bytes, Error>>>,
    /// The chunks that have been peeked at but not consumed yet.
    peeked_chunks: VecDeque<Result<Bytes, Error>>,
    runtime: ConnectionRuntime,
}

impl Body {
    /// Creates a body whose connection is driven by `runtime`.
    pub(super) fn new(
        bytes: impl Stream<Item = Result<Bytes, Error>> + Send + 'static,
        runtime: ConnectionRuntime,
    ) -> Self {
        Self { bytes: Some(bytes.boxed()), peeked_chunks: VecDeque::new(), runtime }
    }

    /// Returns the first non-blank byte of the body without consuming any bytes. Returns `None` if
    /// the first 64 chunks are blank.
    ///
    /// # Errors
    ///
    /// Returns an error if one of the `deadlines` passes.
    pub(crate) async fn peek_first_byte(
        &mut self,
        deadlines: &mut TurnDeadlines,
    ) -> Result<Option<u8>, Error> {
        let mut seen = VecDeque::new();
        let mut first = None;
        while first.is_none() && seen.len() < 64 {
            let Some(piece) = deadlines.await_within_limits(self.next()).await? else { break };
            // Some servers send blank lines while a model is loading or a request is queued.
            deadlines.on_bytes();
            let bytes = piece.as_deref().unwrap_or_default();
            first = bytes.iter().copied().find(|byte| !byte.is_ascii_whitespace());
            seen.push_back(piece);
        }
        self.peeked_chunks = seen;
        Ok(first)
    }
}

impl Stream for Body {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(piece) = this.peeked_chunks.pop_front() {
            return Poll::Ready(Some(piece));
        }
        let Some(bytes) = &mut this.bytes else { return Poll::Ready(None) };
        let end = match bytes.poll_next_unpin(cx) {
            Poll::Ready(Some(Ok(piece))) => return Poll::Ready(Some(Ok(piece))),
            Poll::Ready(end) => end,
            Poll::Pending => match this.runtime.ensure_driven() {
                Ok(()) => return Poll::Pending,
                Err(error) => Some(Err(error)),
            },
        };
        this.bytes = None;
        Poll::Ready(end)
    }
}

impl_debug!(Body(it), ended = it.bytes.is_none());

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::stream;
    use tokio::time::Instant;

    use super::*;
    use crate::error::ErrorKind;
    use crate::http::Timeouts;

    /// A body whose pieces arrive after the given delays in seconds, and which then stays open.
    fn body(pieces: &'static [(u64, &'static str)]) -> Body {
        let pieces = stream::iter(pieces).then(|(seconds, piece)| async move {
            tokio::time::sleep(Duration::from_secs(*seconds)).await;
            Ok(Bytes::from_static(piece.as_bytes()))
        });
        let runtime = ConnectionRuntime::for_handle(&tokio::runtime::Handle::current());
        Body::new(pieces.chain(stream::pending()), runtime)
    }

    #[tokio::test(start_paused = true)]
    async fn after_leading_white_space_the_idle_limit_applies() {
        let (first_byte, idle) = (Duration::from_secs(30), Duration::from_secs(20));
        let limits = Timeouts { first_byte, idle, ..Timeouts::default() };
        let deadlines = || TurnDeadlines::start(limits, "the host".to_owned());
        let mut lines = body(&[(29, "\n"), (19, "\n"), (19, " data")]);
        let first = lines.peek_first_byte(&mut deadlines()).await;
        assert_eq!(first.unwrap(), Some(b'd'));
        for (pieces, seconds) in [(&[(31, "\n")], 30), (&[(1, "\n")], 1 + 20)] {
            let began = Instant::now();
            let error = body(pieces).peek_first_byte(&mut deadlines()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            assert_eq!(began.elapsed().as_secs(), seconds, "{error}");
        }
    }
}
