//! One world: a run of a script, its model, its tools, and what becomes of them poll by poll.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::Stream;
use futures::stream::FusedStream;
use turnstream::agent::RunHandle;
use turnstream::provider::Scripted;
use turnstream::{Event, History, Journal, Run};

use super::environment::{Stage, before};
use super::script::Script;
use crate::support::tools::Executions;

/// What happens to a run that it did not ask for. Polls are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    Nothing,
    /// It is dropped behind so many polls.
    Drop(usize),
    /// It is interrupted behind so many polls, by a handle.
    Interrupt(usize),
    /// The wire breaks.
    Wire(Fault),
    Steer(usize),
    FollowUp(usize),
    StopAfterTurn(usize),
}

/// How the stream of a turn breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// In which turn, from 0.
    pub(crate) turn: usize,
    /// Behind how many of its events.
    pub(crate) behind: usize,
    pub(crate) how: How,
    /// The agent asks once more.
    pub(crate) retried: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The stream ends without a terminal marker.
    Cut,
    Error,
}

/// Counts how often a run said that it wants to be polled.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One run, and all that was seen of it.
pub(crate) struct World<'a> {
    script: &'a Script,
    what: Disturbance,
    /// `None` once it was dropped.
    pub(crate) run: Option<Run>,
    pub(crate) handle: RunHandle,
    pub(crate) journal: Journal,
    pub(crate) model: Scripted,
    pub(crate) tools: Arc<Executions>,
    /// What runs before this one gave.
    pub(crate) earlier: Vec<Event>,
    pub(crate) events: Vec<Event>,
    /// The same, written and read.
    pub(crate) read: Vec<Event>,
    /// The fold of what was read.
    pub(crate) folded: Journal,
    /// What was folded when a turn began.
    pub(crate) asked_with: Vec<History>,
    /// Behind how many polls each turn began.
    pub(crate) starts: Vec<usize>,
    pub(crate) polls: usize,
    /// How many requests other runs had sent.
    pub(crate) sent_before: usize,
    woken: Arc<Woken>,
    /// The last poll gave nothing.
    pub(crate) silent: bool,
    silences: usize,
    /// The run has yielded its error.
    failed: bool,
}

/// So many polls in a row without an event, each a second behind the other: it hangs.
const HANGS: usize = 10;

impl<'a> World<'a> {
    pub(crate) fn new(stage: &Stage, script: &'a Script, what: Disturbance) -> Self {
        let (agent, model) = stage.agent(script, what);
        let run = agent.run_from(before(), "go");
        Self::of(stage, script, what, (run, model, before()))
    }

    pub(crate) fn of(
        stage: &Stage,
        script: &'a Script,
        what: Disturbance,
        (run, model, before): (Run, Scripted, History),
    ) -> Self {
        Self {
            script,
            what,
            handle: run.handle(),
            journal: run.journal().clone(),
            run: Some(run),
            sent_before: model.requests().len(),
            model,
            tools: Arc::clone(&stage.tools),
            folded: Journal::new(before),
            earlier: Vec::new(),
            events: Vec::new(),
            read: Vec::new(),
            asked_with: Vec::new(),
            starts: Vec::new(),
            polls: 0,
            woken: Arc::default(),
            silent: false,
            silences: 0,
            failed: false,
        }
    }

    /// Fails with the world's name if a law does not hold.
    #[track_caller]
    pub(crate) fn check(&self, holds: bool, law: impl fmt::Display) {
        assert!(holds, "{law}, behind {} polls, in the world of {self:?}", self.polls);
    }

    /// The same for two values.
    #[track_caller]
    pub(crate) fn equal<T: PartialEq + fmt::Debug + ?Sized>(
        &self,
        found: &T,
        wanted: &T,
        law: &str,
    ) {
        assert!(
            found == wanted,
            "{law}, behind {} polls, in the world of {self:?}\n found: {found:?}\nwanted: \
             {wanted:?}",
            self.polls
        );
    }

    /// How often the run wanted to be polled.
    pub(crate) fn wakes(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed)
    }

    /// How many requests this run has sent.
    pub(crate) fn sent(&self) -> usize {
        self.model.requests().len() - self.sent_before
    }

    /// Polls once; false if the run is over. `known` is what another run of the script gave.
    pub(crate) async fn poll(&mut self, known: Option<&World<'_>>) -> bool {
        let wakes = self.wakes();
        let Some(run) = &mut self.run else { return false };
        let bell = Waker::from(Arc::clone(&self.woken));
        let polled = Pin::new(run).poll_next(&mut Context::from_waker(&bell));
        self.polls += 1;
        self.silent = polled.is_pending();
        match polled {
            Poll::Ready(Some(Ok(event))) => {
                self.silences = 0;
                self.take(event, known);
                true
            }
            Poll::Ready(Some(Err(error))) => {
                let outcome = self.events.last().and_then(Event::outcome);
                let own = outcome.and_then(|outcome| outcome.error.clone());
                self.equal(&Some(error), &own, "law 6: the error of a failed run");
                let over = self.run.as_ref().is_some_and(FusedStream::is_terminated);
                self.check(!self.failed, "law 6: a failed run yields its error once");
                self.failed = true;
                self.check(over, "law 6: nothing follows the error of a failed run");
                true
            }
            Poll::Ready(None) => {
                let outcome = self.events.last().and_then(Event::outcome);
                let failed = outcome.is_some_and(|outcome| outcome.error.is_some());
                self.check(self.failed == failed, "law 6: a failed run yields its error once");
                false
            }
            Poll::Pending => {
                self.silences += 1;
                self.check(self.silences < HANGS, "law 6: nothing hangs");
                if self.wakes() == wakes {
                    tokio::time::advance(Duration::from_secs(1)).await;
                }
                true
            }
        }
    }

    fn take(&mut self, event: Event, known: Option<&World<'_>>) {
        let at = self.events.len();
        let read = match known {
            // Law 8 for the part that both have in common.
            Some(known) => {
                let same = known.events.get(at) == Some(&event);
                self.check(same, format!("law 8: event {at} is another: {event:?}"));
                known.read[at].clone()
            }
            None => self.written_and_read(&event),
        };
        self.folded.observe(&read);
        if let Event::TurnStarted { .. } = event {
            self.asked_with.push(self.folded.history());
            self.starts.push(self.polls);
        }
        self.events.push(event);
        self.read.push(read);
    }

    fn written_and_read(&self, event: &Event) -> Event {
        let line = serde_json::to_string(event).expect("an event can be written");
        let read: Event = serde_json::from_str(&line).expect("an event can be read");
        let again = serde_json::to_string(&read).expect("an event can be written");
        self.equal(&again, &line, "law 7: an event is what was written of it");
        read
    }

    /// Polls until `polls` were made in all, or to the end.
    pub(crate) async fn poll_until(&mut self, polls: usize, known: &World<'_>) {
        while self.polls < polls && self.poll(Some(known)).await {}
    }
}

impl fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} with {:?}", self.script, self.what)
    }
}
