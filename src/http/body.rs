//! The body of an answer.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use futures::stream::{BoxStream, StreamExt};

use crate::error::Error;
use crate::http::runtime::ConnectionRuntime;

/// The bytes of an answer as they come. Dropping it closes the connection if it is not at its end.
///
/// It has no limits on waiting; whoever reads it has.
pub struct Body {
    /// `None` once it ended.
    bytes: Option<BoxStream<'static, Result<Bytes, Error>>>,
    /// What was looked at and not taken.
    front: VecDeque<Result<Bytes, Error>>,
    runtime: ConnectionRuntime,
}

impl Body {
    /// `runtime` drives the connection.
    pub(super) fn new(
        bytes: impl Stream<Item = Result<Bytes, Error>> + Send + 'static,
        runtime: ConnectionRuntime,
    ) -> Self {
        Self { bytes: Some(bytes.boxed()), front: VecDeque::new(), runtime }
    }

    /// Looks at the first byte that is no white space, without taking it. `None` if there is none,
    /// or as much white space as nobody sends.
    pub(crate) async fn first_byte(&mut self) -> Option<u8> {
        let mut seen = VecDeque::new();
        let mut first = None;
        while first.is_none() && seen.len() < 64 {
            let Some(piece) = self.next().await else { break };
            let bytes = piece.as_deref().unwrap_or_default();
            first = bytes.iter().copied().find(|byte| !byte.is_ascii_whitespace());
            seen.push_back(piece);
        }
        self.front = seen;
        first
    }
}

impl Stream for Body {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(piece) = this.front.pop_front() {
            return Poll::Ready(Some(piece));
        }
        let Some(bytes) = &mut this.bytes else { return Poll::Ready(None) };
        let end = match bytes.poll_next_unpin(cx) {
            Poll::Ready(Some(Ok(piece))) => return Poll::Ready(Some(Ok(piece))),
            Poll::Ready(end) => end,
            Poll::Pending => match this.runtime.check() {
                Ok(()) => return Poll::Pending,
                Err(error) => Some(Err(error)),
            },
        };
        this.bytes = None;
        Poll::Ready(end)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("ended", &self.bytes.is_none()).finish_non_exhaustive()
    }
}
