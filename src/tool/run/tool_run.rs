//! Runs the calls in a turn.
#![doc = include_str!("tool_run.md")]

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use futures::stream::{FusedStream, StreamExt};

use crate::error::{Error, ErrorKind};
use crate::event::{Event, ToolEvent};
use crate::item::RawJson;
use crate::item::{History, PendingCall, ResultKind, ToolCall, ToolResult};
use crate::stream::{Step, Steps};
use crate::tool::run::call_journal::CallJournal;
use crate::tool::run::live_calls::LiveCalls;
use crate::tool::run::policy_handle::PolicyHandle;
use crate::tool::run::replayed_calls::ReplayedCalls;
use crate::tool::run::result_collector::{ResultCollector, ToolRunOutcome};
use crate::tool::run::result_source::ResultSource;
use crate::tool::run::saved_calls::{SaveCallback, SavedCalls};
use crate::tool::run::turn_calls::TurnCalls;
use crate::tool::{PollTimer, RunData, ToolPolicy, Toolkit};
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
    /// The source of the calls' events, which is also the run's state.
    source: ResultSource,
    /// Collects the results of the calls.
    result_collector: ResultCollector,
    /// Reads the final history from the place where the run's events were written, for example from
    /// a journal.
    history_source: Option<HistorySource>,
    /// The function that redacts the progress of calls that are executed separately from the run.
    progress_redactor: Option<ProgressRedactor>,
}

/// A function that redacts the progress that a call reports.
type ProgressRedactor = Arc<dyn Fn(&ToolCall, &mut RawJson) -> Result<(), Error> + Send + Sync>;

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
        let live = LiveCalls::new(queue, calls.toolkit.max_concurrency());
        Self {
            turn_calls: calls,
            source: ResultSource::Live(Box::new(live)),
            result_collector: ResultCollector::default(),
            history_source: None,
            progress_redactor: None,
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
    pub(crate) fn with_call_limit(
        mut self,
        calls: u32,
        kind: ResultKind,
        why: impl Into<String>,
    ) -> Self {
        if let Some(live) = self.source.live_mut() {
            live.set_call_limit(calls, (kind, why.into()));
        }
        self
    }

    /// Denies calls to tools that [run agents](Tool::running_sub_agents).
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

    /// Sets a function that receives each result that is known before its event is emitted, namely
    /// the result of a call whose sub-agent has ended. The result is passed to the function before
    /// the sub-agent's last event is emitted.
    pub(crate) fn with_known_result_callback(
        mut self,
        callback: impl FnMut(&ToolResult) + Send + 'static,
    ) -> Self {
        if let Some(live) = self.source.live_mut() {
            live.set_known_result_callback(callback);
        }
        self
    }

    /// Measures the polls of the run's tools.
    pub(crate) fn with_poll_timer(mut self, timer: PollTimer) -> Self {
        self.turn_calls.poll_timer = Some(Arc::new(timer));
        self
    }

    /// Sets the function that redacts the progress of calls that are executed separately from the
    /// run.
    pub(crate) fn with_progress_redactor(
        mut self,
        redactor: impl Fn(&ToolCall, &mut RawJson) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        self.progress_redactor = Some(Arc::new(redactor));
        self
    }

    /// Returns a function that redacts the progress of an agent's calls with the agent's hooks, for
    /// a [world](crate::world::World) that executes calls elsewhere and shows their progress.
    ///
    /// If a hook fails, the function returns an error, and the progress becomes `null`.
    pub fn progress_redactor(
        &self,
    ) -> impl Fn(&ToolCall, &mut RawJson) -> Result<(), Error> + Send + Sync + 'static {
        let redactor = self.progress_redactor.clone();
        move |call, data| redactor.as_ref().map_or(Ok(()), |redact| redact(call, data))
    }

    /// Sets a [journal](CallJournal), which decides whether and when the calls start. A run with
    /// saved calls ignores the journal.
    pub fn with_journal(self, journal: Arc<dyn CallJournal>) -> Self {
        Self { source: self.source.with_journal(journal), ..self }
    }

    /// Returns the turn's calls as the model wrote them, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.turn_calls.turn.tool_calls()
    }

    /// Emits the events that were saved for the same calls, without running tools or calling the
    /// policy. The saved events do not include progress.
    pub fn with_saved_calls(mut self, saved: SavedCalls) -> Self {
        self.source = ResultSource::Replayed(saved.into());
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
        self.source = ResultSource::Replayed(ReplayedCalls::new(events, pending));
        self
    }

    /// Sets a function that receives the turn's saved calls. The function is called in the poll in
    /// which the stream ends, and is not called if the run is dropped before that poll, or if it
    /// emits events that were saved.
    pub fn on_complete(mut self, keep: impl FnOnce(SavedCalls) + Send + 'static) -> Self {
        if let Some(live) = self.source.live_mut() {
            live.set_save_callback(SaveCallback::new(keep));
        }
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
    /// these calls. `then` owns what it uses, so move the rest of the loop's state into it:
    ///
    /// ```
    /// use std::pin::pin;
    ///
    /// use futures::TryStreamExt;
    /// use serde_json::json;
    /// use turnstream::env::SystemIds;
    /// use turnstream::provider::{Provider, Reply, Scripted};
    /// use turnstream::stream::TurnStreamExt;
    /// use turnstream::tool::Toolkit;
    /// use turnstream::{History, Item, Request, Steps, Tool, loop_stream};
    ///
    /// /// The state of the loop.
    /// struct Game {
    ///     history: History,
    ///     rolls: usize,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let toolkit = Toolkit::new([Tool::new("roll", "Rolls a die", |_: (), _cx| async { 4 })]);
    /// let model = Scripted::from_fn(|_, _| Reply::new().call("roll", json!({})));
    /// let mut history = History::new(&SystemIds);
    /// history.push(Item::user("Roll until I say stop"));
    ///
    /// let mut game = pin!(loop_stream(Game { history, rolls: 0 }, |game| {
    ///     let toolkit = &toolkit;
    ///     let request = Request::new(game.history.clone()).with_tools(toolkit.specs());
    ///     model.stream_turn(request).on_turn_complete(async move |turn| {
    ///         let calls = toolkit.run(&game.history, &turn);
    ///         Ok(calls.then_steps(move |history, results| {
    ///             let next = Game { history, rolls: game.rolls + results.len() };
    ///             if next.rolls < 3 { Steps::next(next) } else { Steps::stop_with(next) }
    ///         }))
    ///     })
    /// }));
    /// while game.try_next().await?.is_some() {}
    /// let last = game.take_final_state().expect("the loop ended with a state");
    /// // The question, and three calls with their results.
    /// assert_eq!((last.rolls, last.history.len()), (3, 7));
    /// # Ok(())
    /// # }
    /// ```
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
    pub fn finish(mut self) -> Result<ToolRunOutcome, Error> {
        let end = self.source.end(&self.result_collector);
        self.result_collector.finish(self.turn_calls, self.history_source, end)
    }
}

impl Stream for ToolRun {
    type Item = ToolEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ToolEvent>> {
        let Self { turn_calls, source, result_collector, .. } = &mut *self;
        source.poll_event(turn_calls, result_collector, cx)
    }
}

impl FusedStream for ToolRun {
    fn is_terminated(&self) -> bool {
        matches!(self.source, ResultSource::Over(_))
    }
}

impl_debug!(ToolRun(it), calls = it.calls().count(), ended = it.is_terminated());

#[cfg(test)]
mod tests;
