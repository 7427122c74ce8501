//! One run of an agent.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::{BoxStream, FusedStream, StreamExt};

use crate::agent::body::body;
use crate::agent::control::Control;
use crate::agent::{Agent, Input, Receipt, RunHandle, State};
use crate::error::Error;
use crate::event::{AppendedWhy, Event, Outcome, Reason, Undelivered};
use crate::item::History;
use crate::story::Journal;
use crate::stream::{StateCell, loop_with_state};
use crate::usage::Usage;

/// One run of an agent: a stream of its events, the last of which is `Finished`.
///
/// It never gives `Err`; a failure is in the outcome. Between two pulls its holder can look at it
/// and act on it.
///
/// Dropping it cancels everything: the request that streams, the tools that run. What was said and
/// done until then can still be read from a [`handle`](Self::handle).
///
/// ```
/// use futures::StreamExt;
/// use turnstream::Agent;
/// use turnstream::provider::{Reply, Scripted};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let mut run = Agent::new(Scripted::new(["Hello there!"])).run("Hi");
/// while let Some(Ok(event)) = run.next().await {
///     if let Some(text) = event.text_delta() {
///         print!("{text}");
///     }
/// }
/// assert_eq!(run.history().len(), 2);
/// # }
/// ```
#[must_use = "streams do nothing unless polled"]
pub struct Run {
    /// The first event. `None` once it was given.
    input: Option<Event>,
    /// `None` once the loop is over; dropped before the ending is given.
    events: Option<BoxStream<'static, Result<Event, Error>>>,
    state: StateCell<State>,
    /// `Some` from the end of the loop to `Finished`.
    ending: Option<(Reason, Option<Error>)>,
    /// `Some` behind `Finished`.
    outcome: Option<Outcome>,
    handle: RunHandle,
}

impl Run {
    pub(super) fn new(agent: Agent, mut history: History, input: Input) -> Self {
        let journal = Journal::new(history.clone());
        let ids = Arc::clone(&agent.ids);
        let Input(items) = input;
        history.extend(items.iter().cloned());
        let input = (!items.is_empty()).then(|| Event::Appended {
            why: AppendedWhy::Input,
            id: ids.draw(),
            items,
        });
        let control = Arc::new(Control::new());
        let handle = RunHandle { control: Arc::clone(&control), journal, ids };
        let agent = Arc::new(agent);
        let (events, state) = loop_with_state(State::new(history), move |state| {
            body(Arc::clone(&agent), Arc::clone(&control), state)
        });
        let events = Some(events.boxed());
        Self { input, events, state, ending: None, outcome: None, handle }
    }

    /// Drives the run to its end. Dropping the future cancels the run.
    pub async fn outcome(mut self) -> Outcome {
        loop {
            if let Some(outcome) = self.outcome.take() {
                return outcome;
            }
            // Law: a run ends with `Finished`, which sets the outcome.
            if self.next().await.is_none() && self.outcome.is_none() {
                return self.handle.journal.outcome(Reason::Stopped, None);
            }
        }
    }

    /// The history as it is now: an open turn is shown as interrupted.
    pub fn history(&self) -> History {
        self.handle.history()
    }

    /// What the run has cost so far.
    pub fn usage(&self) -> Usage {
        self.handle.usage()
    }

    /// Ends the run with its next poll; see [`RunHandle::interrupt`].
    pub fn interrupt(&self) {
        self.handle.interrupt();
    }

    /// Says something before the next request; see [`RunHandle::steer`].
    ///
    /// # Errors
    ///
    /// Gives the items back if the run is over.
    pub fn steer(&self, input: impl Into<Input>) -> Result<Receipt, Undelivered> {
        self.handle.steer(input)
    }

    /// Does the same from elsewhere, also when an adapter has swallowed the run.
    pub fn handle(&self) -> RunHandle {
        self.handle.clone()
    }

    /// The journal that the run writes.
    pub fn journal(&self) -> &Journal {
        &self.handle.journal
    }

    /// Drops the loop, and with it all that runs.
    fn end(&mut self, reason: Reason, error: Option<Error>) {
        self.ending = Some((reason, error));
        let events = self.events.take();
        // A panic in a `Drop` is no reason to end without `Finished`.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(events)));
    }

    fn poll_loop(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let control = Arc::clone(&self.handle.control);
        control.register(cx.waker());
        if control.is_interrupted() {
            self.end(Reason::Interrupted(self.handle.journal.phase()), None);
            return Poll::Ready(None);
        }
        let Some(events) = &mut self.events else { return Poll::Ready(None) };
        match catch_unwind(AssertUnwindSafe(|| events.poll_next_unpin(cx))) {
            Ok(polled) => match ready!(polled) {
                Some(Ok(event)) => return Poll::Ready(Some(event)),
                Some(Err(error)) => self.end(Reason::of_error(&error), Some(error)),
                None => {
                    let reason = self.state.get().ending.unwrap_or(Reason::Stopped);
                    self.end(reason, None);
                }
            },
            Err(payload) => {
                let error = Error::panic("the provider", &*payload);
                self.end(Reason::of_error(&error), Some(error));
            }
        }
        Poll::Ready(None)
    }
}

impl Stream for Run {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(input) = this.input.take() {
            this.handle.journal.observe(&input);
            return Poll::Ready(Some(Ok(input)));
        }
        if this.events.is_some()
            && let Some(event) = ready!(this.poll_loop(cx))
        {
            this.handle.journal.observe(&event);
            return Poll::Ready(Some(Ok(event)));
        }
        let Some((reason, error)) = &this.ending else { return Poll::Ready(None) };
        let control = &this.handle.control;
        let event = this.handle.journal.close(*reason, error.as_ref(), None, || control.close());
        if let Some(outcome) = event.finished() {
            this.outcome = Some(outcome.clone());
            this.ending = None;
        }
        Poll::Ready(Some(Ok(event)))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Nobody will deliver it any more.
        self.handle.control.close();
    }
}

impl FusedStream for Run {
    fn is_terminated(&self) -> bool {
        self.events.is_none() && self.ending.is_none()
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("finished", &self.outcome.is_some())
            .field("usage", &self.usage())
            .finish_non_exhaustive()
    }
}
