//! One run of an agent.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::{BoxStream, FusedStream, StreamExt};

use crate::agent::evidence::Standing;
use crate::agent::replay::{Ending, Tape};
use crate::agent::state::Verdicts;
use crate::agent::{Agent, Input, Parts, Receipt, RunHandle, State};
use crate::error::Error;
use crate::event::{AppendedWhy, BudgetKind, Event, Exceeded, Outcome, Reason, Undelivered};
use crate::item::{History, ToolCall};
use crate::story::Journal;
use crate::stream::{StateCell, Step, loop_with_state};
use crate::usage::Usage;

/// What a run begins with.
pub(super) struct Begin {
    pub(super) history: History,
    pub(super) input: Input,
    pub(super) resuming: Option<Verdicts>,
}

/// One run of an agent: a stream of its events, the last of which is `Finished`.
///
/// If the run failed, [`Outcome::error`] is set, and the stream yields that error once more as
/// `Err`, after `Finished` and before `None`: `while let Some(event) = run.try_next().await?` ends
/// with it. A run that ended for another reason than its own, such as `max_turns`, `budget`,
/// `stopped` or `pending`, has no error. [`outcome`](Self::outcome) returns the outcome of a failed
/// run as that of any other, and [`Outcome::into_result`] makes an error of it.
///
/// Between two pulls the owner of the run can inspect it and act on it.
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
    /// `Some` after `Finished`.
    outcome: Option<Box<Outcome>>,
    /// `Some` from `Finished` to the `Err` of a run that failed.
    failure: Option<Error>,
    parts: Parts,
}

impl Run {
    pub(super) fn new<B, St>(agent: Agent, begin: Begin, mut body: B) -> Self
    where
        B: FnMut(Parts, State) -> St + Send + 'static,
        St: Stream<Item = Result<Step<Event, State>, Error>> + Send + 'static,
    {
        let Begin { mut history, input: Input(items), resuming } = begin;
        let journal = Journal::new(history.clone());
        let tape = Tape::new(&agent, &history, resuming.is_some());
        let ids = Arc::clone(&agent.ids);
        history.extend(items.iter().cloned());
        // Without anything said to it, a run goes on with what is there.
        let standing = match items.iter().any(|item| item.as_user().is_some()) {
            true => Standing::of(&items),
            false => Standing::of(&history),
        };
        let input = (!items.is_empty()).then(|| Event::Appended {
            why: AppendedWhy::Input,
            id: tape.id().unwrap_or_else(|| ids.draw()),
            items,
        });
        let handle = RunHandle { control: Arc::default(), journal, ids };
        let parts = Parts::new(Arc::new(agent), handle, tape);
        let state = State { standing, resuming, ..State::new(history) };
        let given = parts.clone();
        let (events, state) = loop_with_state(state, move |state| body(given.clone(), state));
        let events = Some(events.boxed());
        Self { input, events, state, ending: None, outcome: None, failure: None, parts }
    }

    /// Drives the run to its end; after `Finished` it returns at once. Dropping the future cancels
    /// the run.
    ///
    /// A failed run has an outcome as well, with [`error`](Outcome::error) set:
    /// [`into_result`](Outcome::into_result) makes an `Err` of it.
    pub async fn outcome(mut self) -> Outcome {
        loop {
            if let Some(outcome) = self.outcome.take() {
                return *outcome;
            }
            // Law: a run ends with `Finished`, which sets the outcome.
            if self.next().await.is_none() && self.outcome.is_none() {
                return self.handle().journal.outcome(Reason::Stopped, None);
            }
        }
    }

    /// The history as it is now: an open turn is shown as interrupted. It stays open when the run
    /// is dropped or interrupted; [`settled`](History::settled) gives what can be sent, and
    /// [`run_from`](Agent::run_from) does that by itself.
    pub fn history(&self) -> History {
        self.parts.handle().history()
    }

    /// The tokens that the run has used so far.
    pub fn usage(&self) -> Usage {
        self.parts.handle().usage()
    }

    /// Ends the run with its next poll; see [`RunHandle::interrupt`].
    pub fn interrupt(&self) {
        self.parts.handle().interrupt();
    }

    /// Ends the run behind this turn and its tools; see [`RunHandle::stop_after_turn`].
    pub fn stop_after_turn(&self) {
        self.parts.handle().stop_after_turn();
    }

    /// Says something before the next request; see [`RunHandle::steer`].
    ///
    /// # Errors
    ///
    /// Gives the items back if the run is over.
    pub fn steer(&self, input: impl Into<Input>) -> Result<Receipt, Undelivered> {
        self.parts.handle().steer(input)
    }

    /// Says something when the model stops by itself; see [`RunHandle::follow_up`].
    ///
    /// # Errors
    ///
    /// Gives the items back if the run is over.
    pub fn follow_up(&self, input: impl Into<Input>) -> Result<Receipt, Undelivered> {
        self.parts.handle().follow_up(input)
    }

    /// Lets a call run that waits for a verdict; see [`RunHandle::approve`].
    ///
    /// # Errors
    ///
    /// If no call like this waits.
    pub fn approve(&self, call: &ToolCall) -> Result<(), Error> {
        self.parts.handle().approve(call)
    }

    /// Refuses a call that waits for a verdict; see [`RunHandle::deny`].
    ///
    /// # Errors
    ///
    /// If no call like this waits.
    pub fn deny(&self, call: &ToolCall, why: impl Into<String>) -> Result<(), Error> {
        self.parts.handle().deny(call, why)
    }

    /// Does the same from elsewhere, also when an adapter has swallowed the run.
    pub fn handle(&self) -> RunHandle {
        self.parts.handle().clone()
    }

    /// The journal that the run writes.
    pub fn journal(&self) -> &Journal {
        &self.parts.handle().journal
    }

    /// Whether only the `Err` of a failed run is left to yield.
    pub(super) fn has_failure_left(&self) -> bool {
        self.failure.is_some()
    }

    /// What it has changed and checked so far.
    pub(super) fn standing(&self) -> Standing {
        self.state.get().standing
    }

    /// Drops the loop, and with it all that runs.
    fn end(&mut self, reason: Reason, error: Option<Error>) {
        if reason == Reason::Pending {
            // No event tells with what an external call would run.
            self.parts.handle().journal.ask(&self.state.get().pending);
        }
        if error.is_some() || matches!(reason, Reason::Interrupted(_)) {
            self.parts.tape().ended(error.as_ref());
        }
        self.ending = Some((reason, error));
        let handle = self.handle();
        handle.control.close_verdicts();
        let events = self.events.take();
        // A panic in a `Drop` is no reason to end without `Finished`.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(events)));
        for context in handle.control.take_started() {
            handle.journal.report(context.call_id(), context.report());
        }
        for (call_id, report) in self.parts.tape().reports() {
            handle.journal.report(&call_id, report);
        }
    }

    /// The next event of the ending.
    fn close(&mut self) -> Option<Event> {
        let (reason, error) = self.ending.as_ref()?;
        // What a run crossed that ended for another reason did not end it.
        let counts = |it: &Exceeded| *reason == Reason::Budget || it.kind == BudgetKind::Target;
        let budget = self.state.get().exceeded.filter(counts);
        let handle = self.parts.handle();
        let played = self.parts.tape().outcome();
        let undelivered = || {
            let undelivered = handle.control.close();
            played.map_or(undelivered, |outcome| outcome.undelivered.clone())
        };
        let mut event = handle.journal.close(*reason, error.as_ref(), budget, undelivered);
        if let Event::Finished(outcome) = &mut event {
            self.ending = None;
            let state = self.state.get();
            outcome.cost = self.parts.over(&state);
            // Somebody may have steered past a hook that was ending the run.
            let ended_by_hook = matches!(
                outcome.reason,
                Reason::StopHookPrevented | Reason::Blocked | Reason::Unproven
            );
            outcome.proof = match outcome.reason {
                Reason::Completed => self.parts.proof(&state),
                _ => None,
            };
            outcome.why = state.why.filter(|_| ended_by_hook);
            self.parts.agent().hooks.finished(outcome);
            self.failure.clone_from(&outcome.error);
            self.outcome = Some(outcome.clone());
        }
        Some(event)
    }

    /// Ends a loop that is played where the recorded one was ended from outside.
    fn end_as(&mut self, ending: Ending, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let Ending { polled, mut error } = ending;
        if let (true, Some(events)) = (polled, &mut self.events) {
            let polled = catch_unwind(AssertUnwindSafe(|| events.poll_next_unpin(cx)));
            // It knows more of its own error than what was written of it.
            if let Ok(Poll::Ready(Some(Err(own)))) = polled
                && error.as_ref() == Some(&own)
            {
                error = Some(own);
            }
        }
        let phase = self.handle().journal.phase();
        let reason = error.as_ref().map_or(Reason::Interrupted(phase), Reason::of_error);
        self.end(reason, error);
        Poll::Ready(None)
    }

    fn poll_loop(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let control = Arc::clone(&self.parts.handle().control);
        control.register(cx.waker());
        if control.is_interrupted() {
            self.end(Reason::Interrupted(self.handle().journal.phase()), None);
            return Poll::Ready(None);
        }
        if let Some(ending) = self.parts.tape().ending() {
            return self.end_as(ending, cx);
        }
        self.parts.tape().polled();
        let Some(events) = &mut self.events else { return Poll::Ready(None) };
        let error = match catch_unwind(AssertUnwindSafe(|| events.poll_next_unpin(cx))) {
            Ok(polled) => match ready!(polled) {
                // The ending of another run, handed on: this one's own comes last.
                Some(Ok(Event::Finished(_))) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(Ok(event)) => return Poll::Ready(Some(event)),
                Some(Err(error)) => Some(error),
                None => None,
            },
            Err(payload) => {
                let error = Error::panic("the provider", &*payload);
                self.parts.agent().hooks.failure(&self.state.get(), &error);
                Some(error)
            }
        };
        match error {
            // An interrupt of this very poll, from a hook or a tool, is no other end.
            _ if control.is_interrupted() => {
                self.end(Reason::Interrupted(self.handle().journal.phase()), None);
            }
            Some(error) => self.end(Reason::of_error(&error), Some(error)),
            None => {
                let reason = self.state.get().ending.unwrap_or(Reason::Stopped);
                self.end(reason, None);
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
            // From here on the time counts.
            this.parts.control().started();
            this.parts.handle().journal.observe(&input);
            this.parts.tape().event(&input);
            return Poll::Ready(Some(Ok(input)));
        }
        if this.events.is_some()
            && let Some(event) = ready!(this.poll_loop(cx))
        {
            this.parts.handle().journal.observe(&event);
            this.parts.tape().event(&event);
            return Poll::Ready(Some(Ok(event)));
        }
        if let Some(event) = this.close() {
            this.parts.tape().event(&event);
            return Poll::Ready(Some(Ok(event)));
        }
        // It says nothing that `Finished` did not say, so nothing records it.
        Poll::Ready(this.failure.take().map(Err))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let events = self.events.take();
        // What is below cannot be left out for a panic in somebody's `Drop`.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(events)));
        // Dropped before its end: what was used is counted, and nothing is taken any more.
        self.parts.over(&self.state.get());
        self.parts.control().close();
        self.parts.tape().over();
    }
}

impl FusedStream for Run {
    fn is_terminated(&self) -> bool {
        self.events.is_none() && self.ending.is_none() && self.failure.is_none()
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
