//! One world: a run of a script, its model, its tools, and their state poll by poll.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::Stream;
use futures::stream::FusedStream;
use turnstream::agent::RunHandle;
use turnstream::item::StopReason;
use turnstream::provider::Scripted;
use turnstream::{Event, History, Journal, Run};

use super::environment::{Environment, prior_history};
use super::script::Script;
use turnstream_test_support::tools::Executions;

/// An external disturbance of a run. Polls are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    Nothing,
    /// The run is dropped after this number of polls.
    Drop(usize),
    /// The run is interrupted through a handle after this number of polls.
    Interrupt(usize),
    /// The wire breaks.
    Wire(Fault),
    Steer(usize),
    FollowUp(usize),
    StopAfterTurn(usize),
    /// The model is interrupted after this number of polls.
    InterruptTurn {
        at: usize,
        /// Whether input is sent just before.
        steers: bool,
    },
}

/// How the stream of a turn breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The turn, from 0.
    pub(crate) turn: usize,
    /// The number of its events before the fault.
    pub(crate) after_events: usize,
    pub(crate) kind: FaultKind,
    /// Whether the agent retries.
    pub(crate) is_retried: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// The stream ends without a terminal marker.
    Cut,
    Error,
}

/// Counts how many times a run was woken.
#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One run, and all observations of it.
pub(crate) struct Simulation<'a> {
    script: &'a Script,
    disturbance: Disturbance,
    /// `None` after a drop.
    pub(crate) run: Option<Run>,
    pub(crate) handle: RunHandle,
    pub(crate) journal: Journal,
    pub(crate) model: Scripted,
    pub(crate) executions: Arc<Executions>,
    /// The events of earlier runs.
    pub(crate) earlier_events: Vec<Event>,
    pub(crate) events: Vec<Event>,
    /// The events after a round trip through JSON.
    pub(crate) reparsed_events: Vec<Event>,
    /// The fold of those events.
    pub(crate) folded_journal: Journal,
    /// The fold at the start of each turn.
    pub(crate) turn_start_histories: Vec<History>,
    /// The number of polls before the start of each turn.
    pub(crate) turn_start_polls: Vec<usize>,
    pub(crate) poll_count: usize,
    /// The number of requests that other runs have sent.
    pub(crate) earlier_request_count: usize,
    wake_counter: Arc<WakeCounter>,
    /// Whether the last poll was pending.
    pub(crate) was_pending: bool,
    pending_polls: usize,
    /// Whether the run has yielded its error.
    has_yielded_error: bool,
}

/// After this number of consecutive polls without an event, a second apart, the run counts as
/// hanging.
const MAX_PENDING_POLLS: usize = 10;

impl<'a> Simulation<'a> {
    pub(crate) fn new(stage: &Environment, script: &'a Script, what: Disturbance) -> Self {
        let (agent, model) = stage.agent(script, what);
        let run = agent.run_from(prior_history(), "go");
        Self::from_run(stage, script, what, (run, model, prior_history()))
    }

    pub(crate) fn from_run(
        stage: &Environment,
        script: &'a Script,
        what: Disturbance,
        (run, model, before): (Run, Scripted, History),
    ) -> Self {
        Self {
            script,
            disturbance: what,
            handle: run.handle(),
            journal: run.journal().clone(),
            run: Some(run),
            earlier_request_count: model.requests().len(),
            model,
            executions: Arc::clone(&stage.executions),
            folded_journal: Journal::new(before),
            earlier_events: Vec::new(),
            events: Vec::new(),
            reparsed_events: Vec::new(),
            turn_start_histories: Vec::new(),
            turn_start_polls: Vec::new(),
            poll_count: 0,
            wake_counter: Arc::default(),
            was_pending: false,
            pending_polls: 0,
            has_yielded_error: false,
        }
    }

    /// Fails with the world's name if an invariant does not hold.
    #[track_caller]
    pub(crate) fn check(&self, holds: bool, claim: impl fmt::Display) {
        assert!(holds, "{claim}, after {} polls, in the world of {self:?}", self.poll_count);
    }

    /// Fails with the world's name if two values differ.
    #[track_caller]
    pub(crate) fn check_eq<T: PartialEq + fmt::Debug + ?Sized>(
        &self,
        found: &T,
        wanted: &T,
        claim: &str,
    ) {
        assert!(
            found == wanted,
            "{claim}, after {} polls, in the world of {self:?}\n found: {found:?}\nwanted: \
             {wanted:?}",
            self.poll_count
        );
    }

    /// How many times the run was woken.
    pub(crate) fn wake_count(&self) -> usize {
        self.wake_counter.0.load(Ordering::Relaxed)
    }

    /// The number of requests that this run has sent.
    pub(crate) fn request_count(&self) -> usize {
        self.model.requests().len() - self.earlier_request_count
    }

    /// Polls once; returns false if the run has ended. `known` is another run of the same script.
    pub(crate) async fn poll(&mut self, known: Option<&Simulation<'_>>) -> bool {
        let wakes = self.wake_count();
        let Some(run) = &mut self.run else { return false };
        let bell = Waker::from(Arc::clone(&self.wake_counter));
        let polled = Pin::new(run).poll_next(&mut Context::from_waker(&bell));
        self.poll_count += 1;
        self.was_pending = polled.is_pending();
        match polled {
            Poll::Ready(Some(Ok(event))) => {
                self.pending_polls = 0;
                self.record_event(event, known);
                true
            }
            Poll::Ready(Some(Err(error))) => {
                let outcome = self.events.last().and_then(Event::outcome);
                let own = outcome.and_then(|outcome| outcome.error.clone());
                self.check_eq(&Some(error), &own, "the error of a failed run");
                let over = self.run.as_ref().is_some_and(FusedStream::is_terminated);
                self.check(!self.has_yielded_error, "a failed run yields its error once");
                self.has_yielded_error = true;
                self.check(over, "nothing follows the error of a failed run");
                true
            }
            Poll::Ready(None) => {
                let outcome = self.events.last().and_then(Event::outcome);
                let failed = outcome.is_some_and(|outcome| outcome.error.is_some());
                self.check(self.has_yielded_error == failed, "a failed run yields its error once");
                false
            }
            Poll::Pending => {
                self.pending_polls += 1;
                self.check(self.pending_polls < MAX_PENDING_POLLS, "nothing hangs");
                if self.wake_count() == wakes {
                    tokio::time::advance(Duration::from_secs(1)).await;
                }
                true
            }
        }
    }

    fn record_event(&mut self, event: Event, known: Option<&Simulation<'_>>) {
        let at = self.events.len();
        let read = match known {
            // Law 8 for the part that both have in common.
            Some(known) => {
                let same = known.events.get(at) == Some(&event);
                self.check(same, format!("event {at} is another: {event:?}"));
                known.reparsed_events[at].clone()
            }
            None => self.round_trip_json(&event),
        };
        self.folded_journal.observe(&read);
        if let Event::TurnStarted { .. } = event {
            self.turn_start_histories.push(self.folded_journal.history());
            self.turn_start_polls.push(self.poll_count);
        }
        if let Some(turn) = event.turn_complete()
            && *turn.stop_reason() == StopReason::Interrupted
            && self.request_count() < self.turn_start_histories.len()
        {
            // The turn was interrupted before its request was sent.
            self.turn_start_histories.pop();
        }
        self.events.push(event);
        self.reparsed_events.push(read);
    }

    fn round_trip_json(&self, event: &Event) -> Event {
        let line = serde_json::to_string(event).expect("an event can be written");
        let read: Event = serde_json::from_str(&line).expect("an event can be read");
        let again = serde_json::to_string(&read).expect("an event can be written");
        self.check_eq(&again, &line, "an event is what was written of it");
        read
    }

    /// Polls until there were `polls` polls in total, or to the end.
    pub(crate) async fn poll_until(&mut self, polls: usize, known: &Simulation<'_>) {
        while self.poll_count < polls && self.poll(Some(known)).await {}
    }
}

impl fmt::Debug for Simulation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} with {:?}", self.script, self.disturbance)
    }
}
