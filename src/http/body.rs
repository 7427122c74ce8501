//! The body of an answer, with its idle timeout.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::stream::{BoxStream, StreamExt};
use tokio::time::{Instant, Sleep};

use crate::error::{Error, ErrorKind};

/// The bytes of an answer as they come. Dropping it closes the connection if it is not at its end.
pub struct Body {
    /// `None` once it ended.
    bytes: Option<BoxStream<'static, Result<Bytes, Error>>>,
    /// What was looked at and not taken.
    front: VecDeque<Result<Bytes, Error>>,
    idle: Duration,
    /// When the wait for the next piece is over.
    deadline: Instant,
    /// Made when there is something to wait for; set again only when it fires too early, so that
    /// a piece that comes in time costs a look at the clock and no timer.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Body {
    /// `deadline` is that of the first byte.
    pub(super) fn new(
        bytes: impl Stream<Item = Result<Bytes, Error>> + Send + 'static,
        deadline: Instant,
        idle: Duration,
    ) -> Self {
        Self { bytes: Some(bytes.boxed()), front: VecDeque::new(), idle, deadline, sleep: None }
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

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let deadline = self.deadline;
            let sleep =
                self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            // That of the first byte may be later than what is idle now.
            if sleep.deadline() > deadline {
                sleep.as_mut().reset(deadline);
            }
            ready!(sleep.as_mut().poll(cx));
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }
}

/// When a wait that begins now is over; one without measure ends far away.
pub(super) fn after(wait: Duration) -> Instant {
    const FAR: Duration = Duration::from_hours(24 * 365 * 30);
    let now = Instant::now();
    now.checked_add(wait).unwrap_or(now + FAR)
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
                this.deadline = after(this.idle);
                Poll::Ready(Some(Ok(piece)))
            }
            Poll::Ready(end) => {
                this.bytes = None;
                Poll::Ready(end)
            }
            Poll::Pending => {
                ready!(this.poll_timeout(cx));
                this.bytes = None;
                let message = "the provider went silent in the middle of its answer";
                Poll::Ready(Some(Err(Error::new(ErrorKind::Timeout, message))))
            }
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("ended", &self.bytes.is_none()).finish_non_exhaustive()
    }
}
