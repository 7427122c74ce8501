//! The body of an answer, with its limits on waiting.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::stream::{BoxStream, StreamExt};
use tokio::time::Instant;

use crate::env::after;
use crate::error::{Error, ErrorKind};
use crate::http::deadline::Deadline;
use crate::http::runtime::ConnectionRuntime;

/// The bytes of an answer as they come. Dropping it closes the connection if it is not at its end.
pub struct Body {
    /// `None` once it ended.
    bytes: Option<BoxStream<'static, Result<Bytes, Error>>>,
    /// What was looked at and not taken.
    front: VecDeque<Result<Bytes, Error>>,
    runtime: ConnectionRuntime,
    idle: Duration,
    stage: Stage,
    deadline: Deadline,
}

/// What is waited for.
#[derive(Clone, Copy)]
enum Stage {
    /// The first byte, until then.
    First(Option<Instant>),
    /// Nothing: there was a piece, and nobody had to wait for the next one yet.
    Moving,
    /// The next piece, until then.
    Next(Option<Instant>),
}

impl Body {
    /// `runtime` drives the connection; `first` is when the wait for the first byte is over.
    pub(super) fn new(
        bytes: impl Stream<Item = Result<Bytes, Error>> + Send + 'static,
        runtime: ConnectionRuntime,
        first: Option<Instant>,
        idle: Duration,
    ) -> Self {
        let (front, deadline) = (VecDeque::new(), Deadline::default());
        let (bytes, stage) = (Some(bytes.boxed()), Stage::First(first));
        Self { bytes, front, runtime, idle, stage, deadline }
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

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        if let Stage::Moving = self.stage {
            self.stage = Stage::Next(after(Instant::now(), self.idle));
        }
        let message = match self.stage {
            Stage::First(at) => {
                ready!(self.deadline.poll(at, cx));
                "the provider did not begin its answer in time".to_owned()
            }
            // Law: nothing moves any more, see above.
            Stage::Moving => return Poll::Pending,
            Stage::Next(at) => {
                ready!(self.deadline.poll(at, cx));
                format!("the provider went silent in the middle of its answer, for {:?}", self.idle)
            }
        };
        Poll::Ready(Error::new(ErrorKind::Timeout, message))
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
        match bytes.poll_next_unpin(cx) {
            Poll::Ready(Some(Ok(piece))) => {
                this.stage = Stage::Moving;
                Poll::Ready(Some(Ok(piece)))
            }
            Poll::Ready(end) => {
                this.bytes = None;
                Poll::Ready(end)
            }
            Poll::Pending => {
                let error = match this.runtime.check() {
                    Ok(()) => ready!(this.poll_timeout(cx)),
                    Err(error) => error,
                };
                this.bytes = None;
                Poll::Ready(Some(Err(error)))
            }
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("ended", &self.bytes.is_none()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;

    const IDLE: Duration = Duration::from_secs(10);

    /// A body whose pieces come after so many seconds each, and then no more.
    fn pieces(seconds: &'static [u64]) -> Body {
        let pieces = stream::iter(seconds).then(|seconds| async move {
            tokio::time::sleep(Duration::from_secs(*seconds)).await;
            Ok(Bytes::from_static(b"x"))
        });
        let first = after(Instant::now(), Duration::from_secs(30));
        Body::new(pieces.chain(stream::pending()), ConnectionRuntime::current(), first, IDLE)
    }

    /// How many pieces come, how many seconds it takes to the error, and its words.
    async fn read(body: &mut Body) -> (usize, u64, String) {
        let (began, mut count) = (Instant::now(), 0);
        loop {
            match body.next().await.unwrap() {
                Ok(_) => count += 1,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Timeout);
                    assert!(body.next().await.is_none());
                    return (count, began.elapsed().as_secs(), error.to_string());
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_byte_has_a_limit_of_its_own() {
        let (count, seconds, words) = read(&mut pieces(&[31])).await;
        assert_eq!((count, seconds), (0, 30));
        assert!(words.contains("begin"), "{words}");
        let (count, seconds, words) = read(&mut pieces(&[29])).await;
        assert_eq!((count, seconds), (1, 39));
        assert!(words.contains("silent"), "{words}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_body_times_out_and_a_busy_one_does_not() {
        let (count, seconds, _) = read(&mut pieces(&[9, 9, 9, 9, 9])).await;
        assert_eq!((count, seconds), (5, 55));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_that_a_consumer_takes_is_not_counted() {
        let mut body = pieces(&[1, 9]);
        assert!(body.next().await.unwrap().is_ok());
        tokio::time::advance(Duration::from_mins(10)).await;
        assert_eq!(read(&mut body).await.0, 1);
    }
}
