//! Runs the calls in a turn.
#![doc = include_str!("tool_run.md")]

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::{FusedStream, StreamExt};

use crate::error::{Error, ErrorKind};
use crate::event::{Event, ToolEvent};
use crate::item::RawJson;
use crate::item::{History, PendingCall, ResultKind, ToolCall, ToolResult};
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

/// A function that reads the run's final history from the place where the run's events were
/// written.
type HistorySource = Box<dyn FnOnce() -> History + Send>;

/// Runs the calls in a turn and streams their events, including one result for each call.
///
/// [`Toolkit::run`] and [`Toolkit::resume`] create a `ToolRun`. Dropping the run drops every
/// running tool.
///
/// Tools advance only while the run is polled, so they pause whenever the run's consumer pauses.
/// The time between an event and the next poll does not count towards the tools'
/// [timeouts](crate::Tool::with_timeout). Only threads started by a tool continue to run while the
/// consumer pauses. Such a thread can check
/// [`is_cancelled`](crate::tool::ToolContext::is_cancelled).
///
/// The stream ends once no calls are running and the run is not waiting for a verdict. If the run
/// has a [`ToolPolicy`], some calls may not have a result when the stream ends. The outcome lists
/// calls without a result as [`pending`](crate::tool::ToolRunOutcome::pending).
#[must_use = "streams do nothing unless polled"]
pub struct ToolRun {
    turn_calls: TurnCalls,
    /// Decides which calls are allowed to run.
    admission: Admission,
    /// Runs the calls that are allowed to run.
    executor: CallExecutor,
    /// Collects the results of the calls.
    result_collector: ResultCollector,
    /// The saved events that are emitted instead of running the calls, along with the calls that
    /// stay pending. This field is `None` if the calls actually run.
    replayed: Option<Box<ReplayedCalls>>,
    /// Reads the final history from the place where the run's events were written, for example from
    /// a journal.
    history_source: Option<HistorySource>,
    /// The callback that receives the saved calls once all calls have ended.
    save_callback: Option<Box<SaveCallback>>,
    /// The function that redacts the progress of calls that are executed separately from the run.
    progress_redactor: Option<ProgressRedactor>,
    stage: RunStage,
}

/// A function that redacts the progress that a call reports.
pub(crate) type ProgressRedactor =
    Arc<dyn Fn(&ToolCall, &mut RawJson) -> Result<(), Error> + Send + Sync>;

/// The stage that a `ToolRun` is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunStage {
    /// The run is waiting for the journal to report whether the calls may start.
    AwaitsBegin,
    Running,
    /// The calls have ended, but the journal has not stored their results yet.
    AwaitsKept,
    Over,
}

impl Toolkit {
    /// Runs the calls in a turn that follows `history`.
    ///
    /// Every call receives exactly one result. A call that is not allowed to run receives its
    /// result without being run. Only a [`ToolPolicy`](crate::tool::ToolPolicy) can leave calls
    /// pending. Calls run concurrently within the toolkit's limits, and their events are emitted as
    /// they happen. [`ToolRun::then_next`] provides the results in call order.
    ///
    /// Nothing runs before the first poll, and dropping the run drops every running tool.
    pub fn run(&self, history: &History, turn: &Arc<Turn>) -> ToolRun {
        let calls = turn.tool_calls().map(|call| self.unwrapped_call(call).into_owned());
        let queue = calls.enumerate().collect();
        ToolRun::new(TurnCalls::new(self, history, Arc::clone(turn)), queue)
    }

    /// Runs the calls that have no result yet in the last turn of `history`.
    ///
    /// As in [`run`](Self::run), the calls are checked: their ids must be unique, their tools must
    /// exist, and their arguments must be valid. The outcome's
    /// [`history`](crate::tool::ToolRunOutcome::history) consists of `history` followed by the
    /// results of these calls.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if two tools have the same
    /// name, if no calls are open, or if items other than results follow the turn that contains the
    /// open calls. Also returns an `InvalidRequest` error if the turn does not allow its calls to
    /// run or is not known to be complete. A turn is known to be complete if its last item contains
    /// a [`TurnInfo`](crate::item::TurnInfo). The error message states why the calls cannot be
    /// resumed.
    pub fn resume(&self, history: &History) -> Result<ToolRun, Error> {
        self.specs().ensure_distinct_names()?;
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
        let mut seen = HashSet::new();
        let repeated = history.used_call_ids().filter(|id| !seen.insert(*id)).map(str::to_owned);
        let calls = TurnCalls { is_resumed: true, repeated_call_ids: repeated.collect(), ..calls };
        Ok(ToolRun::new(calls, queue))
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
            progress_redactor: None,
            stage: RunStage::Running,
        }
    }

    /// Sets a policy that decides which calls run.
    ///
    /// Without a policy, every call receives a result. A call that needs an approval is denied,
    /// since no approval could ever arrive. A call to an [external](crate::Tool::external) tool is
    /// skipped.
    ///
    /// If the policy returns an error or panics, all running calls are dropped and the stream ends.
    /// [`finish`](Self::finish) then returns the error. Results that were emitted before the error
    /// remain valid.
    pub fn with_policy(mut self, policy: impl ToolPolicy + 'static) -> Self {
        self.turn_calls.policy = PolicyHandle::new(policy);
        self
    }

    /// Passes data to the run's tools. See [`Run::with_data`](crate::Run::with_data).
    pub fn with_data(mut self, data: RunData) -> Self {
        self.turn_calls.run_data = data;
        self
    }

    /// Answers each call with a result of the given kind and text, without running any calls. If
    /// the turn itself does not allow its calls to run, each call instead receives a result that
    /// states why the turn does not allow calls to run.
    pub fn with_refusal(mut self, kind: ResultKind, why: impl Into<String>) -> Self {
        self.turn_calls.refusal = Some((kind, why.into()));
        self
    }

    /// Allows at most `calls` calls to start. Calls start in call order, and those that exceed the
    /// limit are answered with a result of the given kind and text. Calls that are denied, calls
    /// that cannot run, and [external](crate::Tool::external) calls do not count towards the limit.
    pub fn with_call_limit(mut self, calls: u32, kind: ResultKind, why: impl Into<String>) -> Self {
        self.admission.set_call_limit(calls, (kind, why.into()));
        self
    }

    /// Denies calls to tools that [run agents](Tool::runs_sub_agents).
    pub(crate) fn without_sub_agents(mut self) -> Self {
        self.turn_calls.denies_sub_agents = true;
        self
    }

    /// Sets a function that reads the final history from the place where the run's events are
    /// written, for example from a journal.
    pub(crate) fn with_history_source(
        mut self,
        history: impl FnOnce() -> History + Send + 'static,
    ) -> Self {
        self.history_source = Some(Box::new(history));
        self
    }

    /// Returns the maximum number of calls that can run concurrently.
    pub(crate) fn max_concurrency(&self) -> usize {
        self.turn_calls.toolkit.max_concurrency()
    }

    /// Sets the function that redacts the progress of calls that are executed separately from the
    /// run.
    pub(crate) fn with_progress_redactor(mut self, redactor: ProgressRedactor) -> Self {
        self.progress_redactor = Some(redactor);
        self
    }

    /// Returns the function that redacts the progress of calls that are executed separately from
    /// the run.
    pub(crate) fn progress_redactor(&self) -> Option<ProgressRedactor> {
        self.progress_redactor.clone()
    }

    /// Sets a journal, which decides when calls start and stores their results.
    pub(crate) fn with_journal(mut self, journal: std::sync::Arc<dyn CallJournal>) -> Self {
        self.executor = CallExecutor::new(ConcurrencySlots::unlimited());
        self.turn_calls.journal = Some(journal);
        self.stage = RunStage::AwaitsBegin;
        self
    }

    /// Returns the turn's calls as the model wrote them, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.turn_calls.turn.tool_calls()
    }

    /// Emits the events that were saved for the same calls, without running tools or calling the
    /// policy. The saved events do not include progress.
    pub fn with_saved_calls(mut self, saved: SavedCalls) -> Self {
        self.replayed = Some(Box::new(saved.into()));
        self
    }

    /// Emits the given events without running tools or calling the policy. The calls in `pending`
    /// that belong to this turn are left without a result.
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

    /// Sets a function that receives the turn's saved calls. The function is called during the poll
    /// in which the last call ends, and is not called if the run is dropped before that poll.
    pub fn on_complete(mut self, keep: impl FnOnce(SavedCalls) + Send + 'static) -> Self {
        self.save_callback = Some(Box::new(SaveCallback::new(keep)));
        self
    }

    /// Forwards the tools' events and then continues with the state that `next` creates from the
    /// history. The history passed to `next` contains the turn and every result, in call order.
    ///
    /// Dropping the returned steps drops every running tool. If a
    /// [`ToolPolicy`](crate::tool::ToolPolicy) ends the run with an error, this error is the last
    /// step. Calls that the policy leaves pending have no result in the history. To obtain the
    /// pending calls, use [`finish`](Self::finish).
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

    /// Forwards the tools' events and then continues with the steps that `then` returns. `then`
    /// receives the results and the history, which contains the turn and every result, in call
    /// order.
    ///
    /// Use `then_steps` instead of [`then_next`](Self::then_next) if the loop might stop after
    /// these calls.
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

    /// Returns the history, the results and the pending calls. Call `finish` after the stream has
    /// ended.
    ///
    /// If the stream has not ended yet, all running calls are dropped, and the outcome contains no
    /// results for them.
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
    /// If the [`ToolPolicy`](crate::tool::ToolPolicy) ended the run with an error, returns this
    /// error.
    pub fn finish(self) -> Result<ToolRunOutcome, Error> {
        let (pending, limited) = (self.pending(), self.calls_over_limit());
        self.result_collector.finish(self.turn_calls, self.history_source, pending, limited)
    }

    /// Returns the calls that stay open, in call order.
    fn pending(&self) -> Vec<PendingCall> {
        let Some(played) = &self.replayed else {
            return self.result_collector.pending(self.admission.awaiting_verdict());
        };
        let is_open = |call: &&PendingCall| !self.result_collector.has_result(call.root_call_id());
        played.saved_calls.pending.iter().filter(is_open).cloned().collect()
    }

    /// Returns the number of calls that were answered because they exceeded the call limit.
    fn calls_over_limit(&self) -> usize {
        self.replayed.as_ref().map_or_else(
            || self.admission.over_limit_count(),
            |played| played.saved_calls.calls_over_limit,
        )
    }

    fn try_poll(&mut self, cx: &mut Context<'_>) -> Result<Poll<Option<ToolEvent>>, Error> {
        for step in self.admission.take_verdicts(&mut self.turn_calls)? {
            if let Some(event) = self.handle_admission(step) {
                return Ok(Poll::Ready(Some(event)));
            }
        }
        loop {
            // Only one call is started in each poll, so that no tool runs before its `Started`
            // event is emitted.
            if let Some(event) = self.start_next(cx)? {
                return Ok(Poll::Ready(Some(event)));
            }
            let slots = self.executor.free_slots();
            match self.admission.next(&mut self.turn_calls, slots, cx)? {
                AdmissionStep::Idle => break,
                admitted => {
                    if let Some(event) = self.handle_admission(admitted) {
                        return Ok(Poll::Ready(Some(event)));
                    }
                }
            }
        }
        Ok(match self.executor.poll(cx) {
            Poll::Ready(Some(update)) => Poll::Ready(Some(self.emit_update(update))),
            Poll::Pending => Poll::Pending,
            // An admitted call that has not started yet is waiting for a slot.
            Poll::Ready(None) if self.executor.free_slots().is_none() => Poll::Pending,
            Poll::Ready(None) if self.admission.must_wait(&mut self.turn_calls)? => Poll::Pending,
            Poll::Ready(None) if self.admission.release_deferred() => return self.try_poll(cx),
            Poll::Ready(None) => Poll::Ready(None),
        })
    }

    /// Processes an admission step and returns the event to emit, if any.
    fn handle_admission(&mut self, admitted: AdmissionStep) -> Option<ToolEvent> {
        match admitted {
            AdmissionStep::Allowed(ready_call) => {
                self.executor.enqueue(ready_call);
                None
            }
            AdmissionStep::Answered(ended) => {
                Some(self.result_collector.emit_result(&mut self.turn_calls, ended))
            }
            AdmissionStep::VerdictRequested(event) => Some(event),
            AdmissionStep::Progressed | AdmissionStep::Idle => None,
        }
    }

    /// Starts the first ready call, if a slot is free for it.
    fn start_next(&mut self, cx: &mut Context<'_>) -> Result<Option<ToolEvent>, Error> {
        let counts = self.executor.peek_next().is_some_and(|next| !next.is_resumed);
        if counts && self.admission.is_limit_reached() {
            let refusal = self.admission.refuse_over_limit();
            let Some(next) = self.executor.take_next() else { return Ok(None) };
            let ended = AnsweredCall::from_refusal(next.index, next.call, refusal);
            return Ok(Some(self.result_collector.emit_result(&mut self.turn_calls, ended)));
        }
        let update = self.executor.start_next(&mut self.turn_calls, cx)?;
        if let Some(CallUpdate::Event(_)) = update
            && counts
        {
            self.admission.count_started();
        }
        Ok(update.map(|update| self.emit_update(update)))
    }

    /// Converts an update from a running call into an event.
    fn emit_update(&mut self, update: CallUpdate) -> ToolEvent {
        match update {
            CallUpdate::Event(event) => event,
            CallUpdate::Progress { call, data } => {
                self.result_collector.redact_progress(&mut self.turn_calls, call, data)
            }
            CallUpdate::Answered(ended) => {
                self.result_collector.emit_result(&mut self.turn_calls, *ended)
            }
            CallUpdate::Suspended { call_index: at, call, suspension } => {
                self.result_collector.emit_suspended(at, call, *suspension)
            }
        }
    }

    /// Collects the result or suspension that the next saved event contains, if any, and returns
    /// the event.
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

    /// Passes an event to the save callback, if one is set.
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
                    CallsBegin::Live(admitted) => {
                        let by_id = |call: ToolCall| (call.call_id.clone(), call);
                        this.turn_calls.admitted = admitted.into_iter().map(by_id).collect();
                    }
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
            // The previous poll already returned the result that arrived together with the error.
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
            // All calls are dropped, including running calls.
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

impl_debug!(
    ToolRun(it),
    calls = it.calls().count(),
    waiting = it.admission.awaiting_verdict().count(),
    ended = (it.stage == RunStage::Over),
);

#[cfg(test)]
mod tests;
