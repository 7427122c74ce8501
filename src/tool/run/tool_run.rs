//! The calls of one turn while they run.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::{FusedStream, StreamExt};

use crate::error::{Error, ErrorKind};
use crate::event::{Event, ToolEvent};
#[cfg(feature = "durable")]
use crate::item::RawJson;
use crate::item::{History, PendingCall, ResultKind, ToolCall, ToolResult};
use crate::request::ensure_distinct_names;
use crate::stream::{Step, Steps};
use crate::tool::run::admission::{Admission, AdmissionStep};
use crate::tool::run::call_executor::CallExecutor;
use crate::tool::run::call_journal::{CallJournal, CallsBegin, replayed_until_end};
use crate::tool::run::concurrency_slots::ConcurrencySlots;
use crate::tool::run::policy_handle::PolicyHandle;
use crate::tool::run::result_collector::{ResultCollector, ToolRunOutcome};
use crate::tool::run::running_call::CallUpdate;
use crate::tool::run::saved_calls::{ReplayedCalls, SaveCallback, SavedCalls};
use crate::tool::run::turn_calls::{AnsweredCall, TurnCalls};
use crate::tool::{RunData, ToolPolicy, Toolkit};
use crate::turn::Turn;

/// Reads the history that the events so far tell.
type HistorySource = Box<dyn FnOnce() -> History + Send>;

/// The calls of one turn while they run: a stream of their events, one output a call.
///
/// Made by [`Toolkit::run`] and [`Toolkit::resume`]. Dropping it drops every tool that is running.
///
/// Tools advance only while it is polled: a consumer that pauses pauses its tools. Their
/// [timeouts](crate::Tool::with_timeout) do not count from an event to the next poll. Only a thread
/// that a tool has started goes on by itself; it can look at
/// [`is_cancelled`](crate::tool::ToolContext::is_cancelled).
///
/// It ends when nothing runs and nobody is waited for. With a [`ToolPolicy`] some calls may be without a
/// result then: they are [`pending`](crate::tool::ToolRunOutcome::pending).
#[must_use = "streams do nothing unless polled"]
pub struct ToolRun {
    turn_calls: TurnCalls,
    /// Which of them may run.
    admission: Admission,
    /// Those that do.
    executor: CallExecutor,
    /// What they came to.
    result_collector: ResultCollector,
    /// What it gives out instead of running anything, and the calls that stay pending.
    replayed: Option<Box<ReplayedCalls>>,
    /// Reads the history where its events were written into.
    history_source: Option<HistorySource>,
    /// Takes what the calls come to.
    save_callback: Option<Box<SaveCallback>>,
    /// Redacts the progress of calls that run elsewhere.
    #[cfg(feature = "durable")]
    progress_redactor: Option<ProgressRedactor>,
    stage: RunStage,
}

/// Redacts what a call reports as progress.
#[cfg(feature = "durable")]
pub(crate) type ProgressRedactor =
    Arc<dyn Fn(&ToolCall, &mut RawJson) -> Result<(), Error> + Send + Sync>;

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunStage {
    /// A journal says whether the calls run.
    AwaitsBegin,
    Running,
    /// The calls have ended, which a journal does not have yet.
    AwaitsKept,
    Over,
}

impl Toolkit {
    /// Runs the calls of a turn that follows `history`.
    ///
    /// Every call gets exactly one result, whatever happens: what may not run is answered without
    /// running. Only a [`ToolPolicy`](crate::tool::ToolPolicy) may leave some pending. Calls run at once as far
    /// as the kit allows, and their events come as they happen; read the results back in call order
    /// with [`ToolRun::then_next`].
    ///
    /// Nothing runs before the first poll, and dropping the run drops every tool that is running.
    pub fn run(&self, history: &History, turn: &Arc<Turn>) -> ToolRun {
        let calls = turn.tool_calls().map(|call| self.unwrapped_call(call).into_owned());
        let queue = calls.enumerate().collect();
        ToolRun::new(TurnCalls::new(self, history, Arc::clone(turn)), queue)
    }

    /// Runs the calls of the last turn of `history` that have no result, and no others.
    ///
    /// They are checked again, as by [`run`](Self::run): their ids are used once, their tools are
    /// there, and their arguments fit. The [`Answered::history`](crate::tool::ToolRunOutcome::history) is
    /// `history` with their results.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if two tools have one name, if no call is open, if something else than
    /// results follows the turn of the open ones, if that turn is not known to be complete (its last
    /// item carries a [`TurnInfo`](crate::item::TurnInfo)), or does not allow calls to run. The message
    /// says which.
    pub fn resume(&self, history: &History) -> Result<ToolRun, Error> {
        ensure_distinct_names(&self.specs())?;
        let refuse = |why: &str| Error::new(ErrorKind::InvalidRequest, why);
        let mut open = history.unanswered_calls();
        if open.is_empty() {
            return Err(refuse("no call is open"));
        }
        let turn = Turn::from_history(history).map_err(refuse)?;
        if turn.calls().veto().is_some() {
            let why = format!(
                "the turn of the open calls does not allow them to run: it stopped as `{}`",
                turn.stop_reason().as_str()
            );
            return Err(refuse(&why));
        }
        let mut queue = VecDeque::new();
        for (at, call) in turn.tool_calls().enumerate() {
            if let Some(found) = open.iter().position(|open| open == call) {
                queue.push_back((at, self.unwrapped_call(&open.remove(found)).into_owned()));
            }
        }
        if !open.is_empty() {
            return Err(refuse(
                "a call of an earlier turn is open: of the items of a turn only the last one carries \
                 a `TurnInfo`",
            ));
        }
        let calls = TurnCalls::new(self, history, Arc::new(turn));
        Ok(ToolRun::new(TurnCalls { is_resumed: true, ..calls }, queue))
    }
}

impl ToolRun {
    fn new(calls: TurnCalls, queue: VecDeque<(usize, ToolCall)>) -> Self {
        Self {
            admission: Admission::new(queue),
            executor: CallExecutor::new(ConcurrencySlots::new(calls.toolkit.max_concurrency())),
            turn_calls: calls,
            result_collector: ResultCollector::default(),
            replayed: None,
            history_source: None,
            save_callback: None,
            #[cfg(feature = "durable")]
            progress_redactor: None,
            stage: RunStage::Running,
        }
    }

    /// Puts a gate between the calls and their tools.
    ///
    /// Without one, a call that needs an approval is denied, since nobody can be asked, and an
    /// [external](crate::Tool::external) one is skipped: every call gets its result.
    ///
    /// If the gate gives an error or panics, everything that runs is dropped and the stream ends;
    /// [`finish`](Self::finish) gives the error. Results that were given out stay with the consumer.
    pub fn with_policy(mut self, gate: impl ToolPolicy + 'static) -> Self {
        self.turn_calls.policy = PolicyHandle::new(gate);
        self
    }

    /// Hands data to the tools, as [`Run::with_data`](crate::Run::with_data) does.
    pub fn with_data(mut self, data: RunData) -> Self {
        self.turn_calls.run_data = data;
        self
    }

    /// Runs no call: each is answered so. A veto of the turn keeps its own answer.
    pub fn with_refusal(mut self, kind: ResultKind, why: impl Into<String>) -> Self {
        self.turn_calls.refusal = Some((kind, why.into()));
        self
    }

    /// Lets the first `calls` begin that may, in call order, and answers the others so. A call that
    /// is denied or cannot run does not count, nor does an [external](crate::Tool::external) one.
    pub fn with_call_limit(mut self, calls: u32, kind: ResultKind, why: impl Into<String>) -> Self {
        self.admission.set_call_limit(calls, (kind, why.into()));
        self
    }

    /// Denies calls of tools that [run agents](Tool::runs_sub_agents).
    pub(crate) fn without_sub_agents(mut self) -> Self {
        self.turn_calls.denies_sub_agents = true;
        self
    }

    /// Reads the history that it ends with from where its events are written, such as a journal.
    pub(crate) fn with_history_source(
        mut self,
        history: impl FnOnce() -> History + Send + 'static,
    ) -> Self {
        self.history_source = Some(Box::new(history));
        self
    }

    /// How many of them may run at once.
    #[cfg(feature = "durable")]
    pub(crate) fn max_concurrency(&self) -> usize {
        self.turn_calls.toolkit.max_concurrency()
    }

    /// Redacts the progress of calls that run elsewhere as that of calls that run here.
    #[cfg(feature = "durable")]
    pub(crate) fn with_progress_redactor(mut self, redactor: ProgressRedactor) -> Self {
        self.progress_redactor = Some(redactor);
        self
    }

    /// What redacts the progress of calls that run elsewhere.
    #[cfg(feature = "durable")]
    pub(crate) fn progress_redactor(&self) -> Option<ProgressRedactor> {
        self.progress_redactor.clone()
    }

    /// Starts calls when a journal says so, which keeps what they come to.
    #[cfg(feature = "durable")]
    pub(crate) fn with_journal(mut self, journal: std::sync::Arc<dyn CallJournal>) -> Self {
        self.executor = CallExecutor::new(ConcurrencySlots::unlimited());
        self.turn_calls.journal = Some(journal);
        self.stage = RunStage::AwaitsBegin;
        self
    }

    /// The calls that it was given, in their order, as the model wrote them.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.turn_calls.turn.tool_calls()
    }

    /// Runs no tool and asks nobody: gives what the same calls came to before.
    pub fn with_saved_calls(mut self, kept: SavedCalls) -> Self {
        self.replayed = Some(Box::new(kept.into()));
        self
    }

    /// Runs no tool and asks nobody: its events are these, and those of `pending`
    /// that are its own are left without a result at their end.
    pub(crate) fn with_replayed_events(
        mut self,
        events: impl Stream<Item = ToolEvent> + Send + 'static,
        mut pending: Vec<PendingCall>,
    ) -> Self {
        pending.retain(|it| self.calls().any(|call| call.call_id == it.root_call_id()));
        let end = SavedCalls { pending, ..SavedCalls::default() };
        self.replayed =
            Some(Box::new(ReplayedCalls { saved_calls: end, ..ReplayedCalls::new(events) }));
        self
    }

    /// Hands on what the calls came to, in the poll in which the last of them ends. If it is dropped
    /// before, nothing is handed on.
    pub fn on_complete(mut self, keep: impl FnOnce(SavedCalls) + Send + 'static) -> Self {
        self.save_callback = Some(Box::new(SaveCallback::new(keep)));
        self
    }

    /// Forwards the events of the tools, and goes on with the state that `next` makes of the
    /// history: by then it holds the turn and every result, in call order.
    ///
    /// Dropping the steps drops every tool that is running. If a [`ToolPolicy`](crate::tool::ToolPolicy) ends
    /// the run with an error, that is the last step; calls that it leaves pending are without a
    /// result in the history ([`finish`](Self::finish) tells which they are).
    ///
    /// ```
    /// # use turnstream::{History, Item, tool::Toolkit};
    /// # fn body(kit: &Toolkit, history: &History, turn: &std::sync::Arc<turnstream::Turn>) {
    /// let steps = kit.run(history, turn).then_next(|history| history);
    /// # drop(steps);
    /// # }
    /// ```
    pub fn then_next<S, F>(self, next: F) -> Steps<'static, S>
    where
        S: Send + 'static,
        F: FnOnce(History) -> S + Send + 'static,
    {
        self.then_steps(|history, _| Steps::next(next(history)))
    }

    /// Forwards the events of the tools, and goes on with the steps that `then` gives: it gets the
    /// history, which holds the turn and every result in call order, and the results themselves.
    ///
    /// Like [`then_next`](Self::then_next), for those who may also stop.
    pub fn then_steps<S, F>(self, then: F) -> Steps<'static, S>
    where
        S: Send + 'static,
        F: FnOnce(History, &[ToolResult]) -> Steps<'static, S> + Send + 'static,
    {
        Steps::new(async_stream::stream! {
            let mut tools = self;
            while let Some(event) = tools.next().await {
                yield Ok(Step::Value(Event::from(event)));
            }
            match tools.finish() {
                Ok(answered) => {
                    let mut steps = then(answered.history, &answered.results);
                    while let Some(step) = steps.next().await {
                        yield step;
                    }
                }
                Err(error) => yield Err(error),
            }
        })
    }

    /// What the calls came to, after the stream has ended.
    ///
    /// If it has not, everything that runs is dropped, and what has no result is not there.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # use turnstream::{Error, History, Toolkit, Turn};
    /// # async fn f(kit: &Toolkit, history: &History, turn: &std::sync::Arc<Turn>) -> Result<(), Error> {
    /// let mut tools = kit.run(history, turn);
    /// while let Some(event) = tools.next().await {
    ///     println!("{}", event.call_id());
    /// }
    /// let answered = tools.finish()?;
    /// assert!(answered.history.is_settled() && answered.pending.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What the [`ToolPolicy`](crate::tool::ToolPolicy) ended it with.
    pub fn finish(self) -> Result<ToolRunOutcome, Error> {
        let (pending, limited) = (self.pending(), self.calls_over_limit());
        self.result_collector.finish(self.turn_calls, self.history_source, pending, limited)
    }

    /// The calls that stay open, in call order.
    fn pending(&self) -> Vec<PendingCall> {
        let Some(played) = &self.replayed else {
            return self.result_collector.pending(self.admission.awaiting_verdict());
        };
        let is_open = |call: &&PendingCall| !self.result_collector.has_result(call.root_call_id());
        played.saved_calls.pending.iter().filter(is_open).cloned().collect()
    }

    /// How many calls were answered since they were beyond the limit.
    fn calls_over_limit(&self) -> usize {
        self.replayed
            .as_ref()
            .map_or_else(|| self.admission.over_limit_count(), |played| played.saved_calls.limited)
    }

    fn try_poll(&mut self, cx: &mut Context<'_>) -> Result<Poll<Option<ToolEvent>>, Error> {
        for judged in self.admission.take_verdicts(&mut self.turn_calls)? {
            if let Some(event) = self.handle_admission(judged) {
                return Ok(Poll::Ready(Some(event)));
            }
        }
        loop {
            // One a poll, so that nothing of a tool runs before its `Started` is given out.
            if let Some(event) = self.start_next(cx)? {
                return Ok(Poll::Ready(Some(event)));
            }
            let places = self.executor.free_slots();
            match self.admission.next(&mut self.turn_calls, places, cx)? {
                AdmissionStep::Idle => break,
                admitted => {
                    if let Some(event) = self.handle_admission(admitted) {
                        return Ok(Poll::Ready(Some(event)));
                    }
                }
            }
        }
        Ok(match self.executor.poll(cx) {
            Poll::Ready(Some(said)) => Poll::Ready(Some(self.emit_update(said))),
            Poll::Pending => Poll::Pending,
            // One that is allowed and has not begun waits for a slot.
            Poll::Ready(None) if self.executor.free_slots().is_none() => Poll::Pending,
            Poll::Ready(None) if self.admission.must_wait(&mut self.turn_calls)? => Poll::Pending,
            Poll::Ready(None) if self.admission.release_deferred() => return self.try_poll(cx),
            Poll::Ready(None) => Poll::Ready(None),
        })
    }

    /// Goes on with what became of a call that was looked at.
    fn handle_admission(&mut self, admitted: AdmissionStep) -> Option<ToolEvent> {
        match admitted {
            AdmissionStep::Allowed(candidate) => {
                self.executor.enqueue(candidate);
                None
            }
            AdmissionStep::Answered(ended) => {
                Some(self.result_collector.emit_result(&mut self.turn_calls, ended))
            }
            AdmissionStep::VerdictRequested(event) => Some(event),
            AdmissionStep::Progressed | AdmissionStep::Idle => None,
        }
    }

    /// Starts the first of those that may, if there is room.
    fn start_next(&mut self, cx: &mut Context<'_>) -> Result<Option<ToolEvent>, Error> {
        let counts = self.executor.peek_next().is_some_and(|next| !next.is_resumed);
        if counts && self.admission.is_limit_reached() {
            let refusal = self.admission.refuse_over_limit();
            let Some(next) = self.executor.take_next() else { return Ok(None) };
            let ended = AnsweredCall::from_refusal(next.index, next.call, refusal);
            return Ok(Some(self.result_collector.emit_result(&mut self.turn_calls, ended)));
        }
        let said = self.executor.start_next(&mut self.turn_calls, cx)?;
        if let Some(CallUpdate::Event(_)) = said
            && counts
        {
            self.admission.count_started();
        }
        Ok(said.map(|said| self.emit_update(said)))
    }

    /// Gives out what a call that runs has to say.
    fn emit_update(&mut self, said: CallUpdate) -> ToolEvent {
        match said {
            CallUpdate::Event(event) => {
                self.result_collector.redact_progress(&mut self.turn_calls, event)
            }
            CallUpdate::Answered(ended) => {
                self.result_collector.emit_result(&mut self.turn_calls, *ended)
            }
            CallUpdate::Suspended { call_index: at, call, suspension } => {
                self.result_collector.emit_suspended(at, call, *suspension)
            }
        }
    }

    /// Gives the next of the events that are known.
    fn replay_event(&mut self, event: Option<ToolEvent>) -> Option<ToolEvent> {
        let Some(event) = event else {
            let error = self.replayed.as_mut().and_then(|played| played.saved_calls.error.take());
            self.result_collector.set_error(error.map_or(Ok(()), Err));
            self.stage = RunStage::Over;
            if let Some(journal) = &self.turn_calls.journal {
                journal.on_repeated();
            }
            return None;
        };
        let at = self.calls().position(|call| call.call_id == event.call_id());
        self.result_collector.record_event(at.unwrap_or(usize::MAX), &event);
        Some(event)
    }

    fn poll_begin(&mut self, journal: &dyn CallJournal, cx: &mut Context<'_>) -> Poll<CallsBegin> {
        let begin = journal.poll_begin(cx);
        if begin.is_pending() {
            self.stage = RunStage::AwaitsBegin;
        }
        begin
    }

    /// Takes an item for the keeper, if there is one.
    fn save_event(&mut self, event: Option<&ToolEvent>) {
        match (event, &mut self.save_callback) {
            (_, None) => {}
            (Some(event), Some(keeper)) => keeper.observe(event),
            (None, keeper) => {
                let Some(keeper) = keeper.take() else { return };
                let (pending, limited) = (self.pending(), self.calls_over_limit());
                keeper.finish(pending, limited, self.result_collector.error().cloned());
            }
        }
    }
}

impl Stream for ToolRun {
    type Item = ToolEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ToolEvent>> {
        let this = &mut *self;
        let journal = this.turn_calls.journal.clone();
        match (this.stage, &journal) {
            (RunStage::Over, _) => return Poll::Ready(None),
            (RunStage::AwaitsKept, Some(journal)) => {
                ready!(journal.poll_kept(cx));
                this.stage = RunStage::Over;
                return Poll::Ready(None);
            }
            (RunStage::AwaitsBegin, Some(journal)) => {
                this.stage = RunStage::Running;
                match ready!(this.poll_begin(&**journal, cx)) {
                    CallsBegin::Live(admitted) => this.turn_calls.admitted = admitted,
                    CallsBegin::Saved(saved) => this.replayed = Some(Box::new(saved.into())),
                    CallsBegin::Ended(events) => {
                        this.replayed = Some(Box::new(replayed_until_end(events)));
                    }
                }
            }
            (RunStage::Running | RunStage::AwaitsBegin | RunStage::AwaitsKept, _) => {}
        }
        if let Some(played) = &mut this.replayed {
            let event = ready!(played.events.poll_next_unpin(cx));
            return Poll::Ready(this.replay_event(event));
        }
        this.executor.resume_timeouts();
        let item = match this.result_collector.error() {
            // The poll before gave out the result that came with the error.
            Some(_) => Poll::Ready(None),
            None => this.try_poll(cx).unwrap_or_else(|error| {
                this.result_collector.set_error(Err(error));
                Poll::Ready(None)
            }),
        };
        if let (Poll::Pending, Some(journal), false) = (&item, &journal, this.admission.is_asking())
        {
            journal.on_idle();
        }
        let item = ready!(item);
        this.executor.pause_timeouts();
        if this.result_collector.error().is_some() {
            // Everything that runs is dropped.
            this.admission.clear();
            this.executor.clear();
        }
        this.save_event(item.as_ref());
        match (item, &journal) {
            (None, Some(journal)) => {
                this.stage = RunStage::AwaitsKept;
                ready!(journal.poll_kept(cx));
                this.stage = RunStage::Over;
                Poll::Ready(None)
            }
            (item, _) => {
                if item.is_none() {
                    this.stage = RunStage::Over;
                }
                Poll::Ready(item)
            }
        }
    }
}

impl FusedStream for ToolRun {
    fn is_terminated(&self) -> bool {
        self.stage == RunStage::Over
    }
}

impl fmt::Debug for ToolRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolRun")
            .field("calls", &self.calls().count())
            .field("waiting", &self.admission.awaiting_verdict().count())
            .field("over", &(self.stage == RunStage::Over))
            .finish_non_exhaustive()
    }
}
