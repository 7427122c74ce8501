//! Ends a hand-written loop with a `Finished` event.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::FusedStream;
use pin_project::pin_project;

use crate::error::Error;
use crate::event::{EndReason, Event};
use crate::journal::Journal;
use crate::journal::run_fold::RunEnd;

/// The stream returned by [`finish_with`](crate::journal::EventStreamExt::finish_with), which adds
/// the final events to the events of a hand-written loop.
#[pin_project]
#[must_use = "streams do nothing unless polled"]
pub(crate) struct FinishWith<T> {
    /// The wrapped stream, or `None` after the stream has ended. The wrapped stream is dropped
    /// before the final events are created.
    #[pin]
    events: Option<T>,
    journal: Journal,
    /// Whether a poll is in progress. If a poll panics, this field stays `true`.
    is_polling: bool,
    /// The end reason and, if the loop failed, the error. This field is `Some` from the end of the
    /// wrapped stream until `Finished` is yielded.
    pending_end: Option<(EndReason, Option<Error>)>,
    /// The error from a failed loop. This field is `Some` from the time that `Finished` is yielded
    /// until the error is yielded.
    pending_error: Option<Error>,
}

impl<T> FinishWith<T> {
    pub(super) fn new(events: T, journal: Journal) -> Self {
        Self {
            events: Some(events),
            journal,
            is_polling: false,
            pending_end: None,
            pending_error: None,
        }
    }
}

impl<T: Stream<Item = Result<Event, Error>>> Stream for FinishWith<T> {
    type Item = Result<Event, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        if std::mem::replace(this.is_polling, false) {
            // The wrapped stream panicked during an earlier poll, so the reason why the loop ended
            // is unknown.
            this.events.set(None);
        }
        if let Some(events) = this.events.as_mut().as_pin_mut() {
            *this.is_polling = true;
            let polled = events.poll_next(cx);
            *this.is_polling = false;
            *this.pending_end = match ready!(polled) {
                Some(Ok(event)) => {
                    if let Some(outcome) = event.outcome() {
                        this.pending_error.clone_from(&outcome.error);
                        this.events.set(None);
                    }
                    return Poll::Ready(Some(Ok(event)));
                }
                Some(Err(error)) => Some((EndReason::from_error(&error), Some(error))),
                None if this.journal.all_calls_answered() && !this.journal.has_open_turn() => {
                    Some((EndReason::Completed, None))
                }
                None => Some((EndReason::Stopped, None)),
            };
            this.events.set(None);
        }
        let Some((reason, error)) = this.pending_end else {
            return Poll::Ready(this.pending_error.take().map(Err));
        };
        let end = RunEnd {
            reason: *reason,
            error: error.as_ref(),
            budget: None,
            interrupt_reason: None,
            leaves_calls_open: false,
        };
        let event = this.journal.next_ending_event(&end, Vec::new);
        if event.outcome().is_some() {
            this.pending_error.clone_from(error);
            *this.pending_end = None;
        }
        Poll::Ready(Some(Ok(event)))
    }
}

impl<T: Stream<Item = Result<Event, Error>>> FusedStream for FinishWith<T> {
    fn is_terminated(&self) -> bool {
        self.events.is_none() && self.pending_end.is_none() && self.pending_error.is_none()
    }
}
