//! The body of a streamed answer.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::answer::Answer;
use crate::failure::Failure;

/// The body of a streamed answer. Dropping it drops the run, unless runs are detached.
pub(crate) struct AnswerBody {
    /// `None` once the body has been dropped.
    answer: Option<Answer>,
    /// The first bytes, until they have been sent.
    first: Option<Bytes>,
    /// Whether the run continues after the body has been dropped.
    detaches: bool,
    keep_alive: KeepAlive,
}

impl AnswerBody {
    /// Waits for the first bytes of an answer, or until it has been silent for `keep_alive`.
    ///
    /// # Errors
    ///
    /// Returns the error with which the run ends before the first piece of the answer, so that the
    /// error has a status of its own.
    pub(crate) async fn start(
        answer: Answer,
        detaches: bool,
        keep_alive: Duration,
    ) -> Result<Self, Failure> {
        let answer = Some(answer);
        let mut body =
            Self { answer, first: None, detaches, keep_alive: KeepAlive::new(keep_alive) };
        if let Some(answer) = &mut body.answer {
            let first = timeout(keep_alive, poll_fn(|cx| answer.poll_bytes(cx))).await;
            body.first = Some(match first {
                Ok(Some(first)) => first?,
                Ok(None) | Err(_) => answer.open()?,
            });
        }
        Ok(body)
    }
}

impl Stream for AnswerBody {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { answer, first, keep_alive, .. } = &mut *self;
        let Some(answer) = answer else { return Poll::Ready(None) };
        let bytes = match first.take() {
            Some(first) => Some(first),
            None => match answer.poll_bytes(cx) {
                Poll::Ready(Some(Ok(bytes))) => Some(bytes),
                Poll::Ready(Some(Err(failure))) => Some(answer.error_bytes(&failure)),
                Poll::Ready(None) => None,
                Poll::Pending => {
                    ready!(keep_alive.poll_due(cx));
                    Some(answer.keep_alive())
                }
            },
        };
        keep_alive.silent_since = None;
        Poll::Ready(bytes.map(Ok))
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        if let Some(mut answer) = self.answer.take()
            && self.detaches
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime
                .spawn(async move { while poll_fn(|cx| answer.poll_bytes(cx)).await.is_some() {} });
        }
    }
}

/// Detects when a stream has been silent for some time. The timer is started again only when it
/// ends, instead of for each piece of the stream.
struct KeepAlive {
    every: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// `None` while the stream has bytes.
    silent_since: Option<Instant>,
}

impl KeepAlive {
    fn new(every: Duration) -> Self {
        Self { every, timer: None, silent_since: None }
    }

    /// Polls for the time at which bytes must keep the connection alive.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let silent_since = *self.silent_since.get_or_insert_with(Instant::now);
        let Some(due) = silent_since.checked_add(self.every) else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= due {
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_kept_alive_when_its_stream_has_been_silent_for_the_whole_time() {
        let every = Duration::from_secs(15);
        let mut keep_alive = KeepAlive::new(every);
        // Other pieces of the stream follow each other more quickly.
        for pieces in [0, 1, 5] {
            for _ in 0..pieces {
                let wait = poll_fn(|cx| keep_alive.poll_due(cx));
                timeout(Duration::from_secs(10), wait).await.expect_err("it is not due");
                keep_alive.silent_since = None;
            }
            let silent_since = Instant::now();
            poll_fn(|cx| keep_alive.poll_due(cx)).await;
            assert_eq!(silent_since.elapsed().as_secs(), 15, "after {pieces} pieces");
            keep_alive.silent_since = None;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_without_end_is_never_over() {
        let mut keep_alive = KeepAlive::new(Duration::MAX);
        let wait = poll_fn(|cx| keep_alive.poll_due(cx));
        timeout(Duration::from_hours(24), wait).await.expect_err("it is not due");
    }
}
