//! The calls of one turn while they run.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use futures::stream::{FusedStream, SelectAll, StreamExt};
use futures::{FutureExt, Stream};
use tokio::time::Instant;

use crate::error::Error;
use crate::event::ToolEvent;
use crate::item::{History, ResultKind, ToolCall, ToolResult};
use crate::tool::begin::{Candidate, Refusal};
use crate::tool::kept::{Keeper, Played};
use crate::tool::pass::{Asking, Passed, guarded};
use crate::tool::places::Places;
use crate::tool::running::{Running, Said};
use crate::tool::suspended::Suspended;
use crate::tool::{Gate, RunData, Tool, ToolContext, Toolkit};
use crate::turn::Turn;

/// What a call of a sub-agent is answered with where none may run any more.
const TOO_DEEP: &str = "Denied: sub-agents run inside one another as deep as they may. Do it \
     yourself, with the other tools, or answer with what you have.";

/// How many calls may start.
pub(super) struct Limit {
    pub(super) left: u32,
    /// What the others are answered with.
    refusal: Refusal,
    /// How many of these there are.
    pub(super) answered: usize,
    /// Whether calls are left alone while it is open whether they may start.
    holds_back: bool,
}

/// The wait for a place among the calls and requests of other runs.
type Slot = BoxFuture<'static, Box<dyn Any + Send>>;

/// Reads the history that the events so far tell.
pub(super) type Told = Box<dyn FnOnce() -> History + Send>;

/// The calls of one turn while they run: a stream of their events, one output a call.
///
/// Made by [`Toolkit::run`] and [`Toolkit::resume`]. Dropping it drops every tool that is running.
///
/// Tools advance only while it is polled: a consumer that pauses pauses its tools. Their
/// [timeouts](crate::Tool::with_timeout) do not count from an event to the next poll. Only a thread
/// that a tool has started goes on by itself; it can look at
/// [`is_cancelled`](ToolContext::is_cancelled).
///
/// It ends when nothing runs and nobody is waited for. With a [`Gate`] some calls may be without a
/// result then: they are [`pending`](crate::tool::Answered::pending).
#[must_use = "streams do nothing unless polled"]
pub struct ToolRun {
    pub(super) kit: Toolkit,
    /// What the run began with.
    pub(super) history: History,
    pub(super) turn: Arc<Turn>,
    /// The turn is in the history already.
    pub(super) resumed: bool,
    /// What each call is answered with instead of running.
    pub(super) refusal: Option<Refusal>,
    pub(super) limit: Option<Limit>,
    pub(super) gate: Option<Box<dyn Gate>>,
    data: RunData,
    /// Why no sub-agent may run in this one, if none may.
    pub(super) agent_refusal: Option<&'static str>,
    /// Those that nobody looked at yet, in call order, with their places in it.
    queue: VecDeque<(usize, ToolCall)>,
    /// The one that the gate is being asked about. Boxed, since most runs have no gate that takes time.
    pub(super) asking: Option<Box<Asking>>,
    /// Those that wait for a verdict, in call order.
    pub(super) waiting: Vec<Candidate>,
    /// Those that start as soon as there is room, in call order.
    allowed: VecDeque<Candidate>,
    /// What the first of these waits for, with its place in the turn.
    slot: Option<(usize, Slot)>,
    places: Places,
    running: SelectAll<Running>,
    /// When an event was last given out; `None` while no tool has a time limit.
    gave_out: Option<Instant>,
    is_timed: bool,
    /// What was given out, in the order in which it came, with the places of the calls.
    pub(super) results: Vec<(usize, ToolResult)>,
    /// The calls that stay open since their sub-agents were suspended.
    pub(super) suspended: Vec<Suspended>,
    /// What the gate ended it with.
    pub(super) error: Option<Error>,
    /// What it gives out instead of running anything, and the calls that stay pending.
    pub(super) played: Option<Box<Played>>,
    /// Reads the history where its events were written into.
    pub(super) told: Option<Told>,
    /// Takes what the calls come to.
    pub(super) keeper: Option<Box<Keeper>>,
    over: bool,
}

impl ToolRun {
    pub(super) fn new(
        kit: &Toolkit,
        history: History,
        turn: Arc<Turn>,
        queue: VecDeque<(usize, ToolCall)>,
    ) -> Self {
        Self {
            kit: kit.clone(),
            history,
            turn,
            resumed: false,
            refusal: None,
            limit: None,
            gate: None,
            data: RunData::new(),
            agent_refusal: None,
            queue,
            asking: None,
            waiting: Vec::new(),
            allowed: VecDeque::new(),
            slot: None,
            places: Places::new(kit.limit()),
            running: SelectAll::new(),
            gave_out: None,
            is_timed: false,
            results: Vec::new(),
            suspended: Vec::new(),
            error: None,
            played: None,
            told: None,
            keeper: None,
            over: false,
        }
    }

    /// Puts a gate between the calls and their tools.
    ///
    /// Without one, a call that needs an approval is denied, since nobody can be asked, and an
    /// [external](crate::Tool::external) one is skipped: every call gets its result.
    ///
    /// If the gate gives an error or panics, everything that runs is dropped and the stream ends;
    /// [`finish`](Self::finish) gives the error. Results that were given out stay with the consumer.
    pub fn gated(mut self, gate: impl Gate + 'static) -> Self {
        self.gate = Some(Box::new(gate));
        self
    }

    /// Hands data to the tools, as [`Run::with_data`](crate::Run::with_data) does.
    pub fn with_data(mut self, data: RunData) -> Self {
        self.data = data;
        self
    }

    /// Reads the history that it ends with from where its events are written, such as a journal.
    pub(crate) fn told_by(mut self, history: impl FnOnce() -> History + Send + 'static) -> Self {
        self.told = Some(Box::new(history));
        self
    }

    /// Denies calls of tools that [run agents](Tool::runs_agents).
    pub(crate) fn refusing_agents(mut self) -> Self {
        self.agent_refusal = Some(TOO_DEEP);
        self
    }

    /// Runs no call: each is answered so. A veto of the turn keeps its own answer.
    pub fn refused(mut self, kind: ResultKind, why: impl Into<String>) -> Self {
        self.refusal = Some((kind, why.into()));
        self
    }

    /// Lets the first `calls` begin that may, in call order, and answers the others so. A call that
    /// is denied or cannot run does not count, nor does an [external](crate::Tool::external) one.
    pub fn limited(mut self, calls: u32, kind: ResultKind, why: impl Into<String>) -> Self {
        let refusal = (kind, why.into());
        self.limit = Some(Limit { left: calls, refusal, answered: 0, holds_back: true });
        self
    }

    fn try_poll(&mut self, cx: &mut Context<'_>) -> Result<Poll<Option<ToolEvent>>, Error> {
        if let Some(event) = self.judge()? {
            return Ok(Poll::Ready(Some(event)));
        }
        loop {
            // One a poll, so that nothing of a tool runs before its `Started` is given out.
            if let Some(event) = self.start_next(cx)? {
                return Ok(Poll::Ready(Some(event)));
            }
            match self.pass_next(cx)? {
                Passed::Event(event) => return Ok(Poll::Ready(Some(event))),
                Passed::Call => {}
                Passed::Nothing => break,
            }
        }
        Ok(match self.running.poll_next_unpin(cx) {
            Poll::Ready(Some(Said::Event(event))) => Poll::Ready(Some(self.redact(event))),
            Poll::Ready(Some(Said::Ended { at, call, result })) => {
                self.places.give_back();
                Poll::Ready(Some(self.give_out(at, &call, result)))
            }
            Poll::Ready(Some(Said::Suspended { at, call, suspension })) => {
                self.places.give_back();
                Poll::Ready(Some(self.suspend(at, &call, *suspension)))
            }
            Poll::Pending => Poll::Pending,
            // One that is allowed and has not begun waits for a slot.
            Poll::Ready(None) if self.asking.is_some() || !self.allowed.is_empty() => Poll::Pending,
            Poll::Ready(None) if self.is_waited_for()? => Poll::Pending,
            Poll::Ready(None) if self.lets_go() => return self.try_poll(cx),
            Poll::Ready(None) => Poll::Ready(None),
        })
    }

    /// Starts the first of those that may, if there is room.
    fn start_next(&mut self, cx: &mut Context<'_>) -> Result<Option<ToolEvent>, Error> {
        let has_room = |first: &&Candidate| self.places.are_left(first.tool.class());
        let Some(first) = self.allowed.front().filter(has_room) else {
            // Other runs may wait for a slot that this one cannot use now.
            self.give_up_slot()?;
            return Ok(None);
        };
        if !first.continues && self.limit.as_ref().is_some_and(|limit| limit.left == 0) {
            let Some(candidate) = self.allowed.pop_front() else { return Ok(None) };
            return Ok(self.beyond_limit(candidate.at, &candidate.call));
        }
        let at = first.at;
        if self.slot.as_ref().is_some_and(|(whose, _)| *whose != at) {
            self.give_up_slot()?;
        }
        let Some(first) = self.allowed.front() else { return Ok(None) };
        let slot = match (&mut self.slot, &mut self.gate) {
            (Some((_, waiting)), _) => Some(waiting),
            (slot @ None, Some(gate)) if !first.tool.runs_agents() => {
                let waiting = guarded(|| gate.slot(&first.call))?;
                *slot = waiting.map(|waiting| (at, waiting));
                slot.as_mut().map(|(_, waiting)| waiting)
            }
            (None, _) => None,
        };
        let slot = match slot.map(|waiting| guarded(|| waiting.poll_unpin(cx))).transpose()? {
            Some(Poll::Pending) => return Ok(None),
            Some(Poll::Ready(slot)) => Some(slot),
            None => None,
        };
        self.give_up_slot()?;
        let Some(candidate) = self.allowed.pop_front() else { return Ok(None) };
        let call_id = &candidate.call.call_id;
        let context = ToolContext::new(call_id, self.history.id(), Arc::clone(&self.turn))
            .in_dry_run(self.kit.is_dry_run())
            .with_data(self.data.clone());
        self.starts(&context)?;
        let context = context.with_extension(self.extension()?);
        let limit = self.kit.time_limit(&candidate.tool);
        let is_timed = limit.is_some();
        let (at, continues, class) = (candidate.at, candidate.continues, candidate.tool.class());
        Ok(Some(match Running::begin(candidate, limit, context) {
            Ok(running) => {
                let running = running.holding(slot);
                let started = running.started();
                if let Some(limit) = self.limit.as_mut().filter(|_| !continues) {
                    limit.left = limit.left.saturating_sub(1);
                }
                self.is_timed |= is_timed;
                self.places.take(class);
                self.running.push(running);
                started
            }
            Err(answer) => {
                let (call, result) = *answer;
                self.give_out(at, &call, result)
            }
        }))
    }

    /// Takes the next call to look at, if it may start or will wait in any case.
    pub(super) fn take_queued(&mut self) -> Option<(usize, ToolCall)> {
        if !self.allowed.is_empty() {
            return None;
        }
        let (_, call) = self.queue.front()?;
        let tool = self.kit.get(&call.name);
        if tool.is_some_and(|tool| self.holds_back(tool)) {
            return None;
        }
        let waits = tool.is_some_and(|tool| tool.wants_approval() || tool.is_external());
        let class = tool.map(Tool::class).unwrap_or_default();
        (waits || self.places.are_left(class)).then(|| self.queue.pop_front())?
    }

    /// Whether it is open how many calls may start, since some of those that may are waited for.
    fn holds_back(&self, tool: &Tool) -> bool {
        let Some(limit) = self.limit.as_ref().filter(|limit| limit.holds_back) else {
            return false;
        };
        let undecided = self.waiting.iter().filter(|candidate| !candidate.tool.is_external());
        let left = usize::try_from(limit.left).unwrap_or(usize::MAX);
        !tool.is_external() && left > 0 && left <= undecided.count()
    }

    /// Lets those by that were held back, now that nothing is decided any more. Tells whether there
    /// are any.
    fn lets_go(&mut self) -> bool {
        let Some(limit) = &mut self.limit else { return false };
        std::mem::take(&mut limit.holds_back) && !self.queue.is_empty()
    }

    /// Answers a call that may not start any more.
    pub(super) fn beyond_limit(&mut self, at: usize, call: &ToolCall) -> Option<ToolEvent> {
        let limit = self.limit.as_mut()?;
        limit.answered += 1;
        let (kind, why) = limit.refusal.clone();
        Some(self.give_out(at, call, ToolResult::answering(call, kind, why)))
    }

    fn give_up_slot(&mut self) -> Result<(), Error> {
        let slot = self.slot.take();
        guarded(|| drop(slot))
    }

    /// Lets a call start as soon as there is room, behind those before it in the turn.
    pub(super) fn allow(&mut self, candidate: Candidate) {
        let place = self.allowed.partition_point(|other| other.at < candidate.at);
        self.allowed.insert(place, candidate);
    }

    /// Ends it with an error, and drops everything that runs.
    pub(super) fn fail(&mut self, error: Error) {
        self.error = Some(error);
        self.over = true;
        self.queue.clear();
        self.allowed.clear();
        self.waiting.clear();
        self.running = SelectAll::new();
        let _ = self.give_up_slot();
        self.drop_asking();
    }
}

impl Stream for ToolRun {
    type Item = ToolEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ToolEvent>> {
        let this = &mut *self;
        if this.over {
            return Poll::Ready(None);
        }
        if let Some(played) = &mut this.played {
            let event = ready!(played.events.poll_next_unpin(cx));
            match &event {
                Some(event) => this.keep(event),
                None => {
                    this.error = played.error.take();
                    this.over = true;
                }
            }
            return Poll::Ready(event);
        }
        if let Some(since) = this.gave_out.take() {
            let pause = since.elapsed();
            this.running.iter_mut().for_each(|running| running.shift(pause));
        }
        let polled = match this.try_poll(cx) {
            Ok(polled) => polled,
            Err(error) => {
                this.fail(error);
                Poll::Ready(None)
            }
        };
        match &polled {
            Poll::Ready(Some(_)) if this.is_timed => this.gave_out = Some(Instant::now()),
            Poll::Ready(Some(_)) | Poll::Pending => {}
            Poll::Ready(None) => this.over = true,
        }
        if let (Poll::Ready(item), true) = (&polled, this.keeper.is_some()) {
            this.note(item.as_ref());
        }
        polled
    }
}

impl FusedStream for ToolRun {
    fn is_terminated(&self) -> bool {
        self.over
    }
}

impl fmt::Debug for ToolRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolRun")
            .field("queue", &self.queue.len())
            .field("waiting", &self.waiting.len())
            .field("places", &self.places)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}
