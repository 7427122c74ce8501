//! The state that an attempt shares with its run.
#![doc = include_str!("bridge.md")]

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::durable::step_record::{
    BegunCall, BegunCalls, DrawnValue, EndedEarly, RecordedTraceContext, StepRecord, StepResult,
};
use crate::error::{Error, ErrorKind};
use crate::event::{Event, ToolEvent};
use crate::item::{
    INTERRUPTED_MID_EXECUTION, PendingCall, RawJson, ResultKind, ToolCall, ToolResult,
};
use crate::lock::lock_ignoring_poison;
use crate::propagation::TraceContext;
use crate::session::Session;
use crate::tool::{AdmittedCall, CallsBegin, Tool, Toolkit, Verdict};
use crate::world::{EffectKey, EffectKind, LoopControl, LoopEnd};

/// Shares the state of an attempt with its run's world. The run accesses its environment only
/// through this world. A single task polls both the attempt and the run.
pub(super) struct Bridge(Mutex<BridgeState>);

#[derive(Default)]
pub(super) struct BridgeState {
    /// The unique name of this attempt.
    attempt: String,
    /// The agent's own tools, which other processes also have. Tools from tool sources are known
    /// only to this process.
    toolkit: Toolkit,
    step: Step,
    previous: PreviousResult,
    /// The number of events that the run has yielded since the previous effect. While a turn's
    /// calls run, events are counted from the start of the first of the two steps that the calls
    /// take.
    event_count: usize,
    pub(super) calls: CallBatch,
    /// The verdicts that the run takes together with the result of its wait for them.
    pub(super) verdicts: Vec<(PendingCall, Verdict)>,
    /// `None` until the run has been created.
    pub(super) session: Option<Session>,
    /// Whether the run has only repeated recorded steps so far, of which there is at least one.
    is_repeating: bool,
    first_trace_context: FirstTraceContext,
    /// The wakers of the attempt, and of the effects and calls that wait for another state.
    wakers: Vec<Waker>,
}

/// The state of the current step.
enum Step {
    /// It is not yet known whether the step is performed or replayed. If calls have been allowed to
    /// start, their results are the effect of this step.
    Undecided { calls: Option<Effect> },
    /// The run draws values, and then performs the effect that it requests.
    Performing { draws: Vec<DrawnValue>, effect: Option<Effect> },
    /// The run has performed the step, and pauses. The engine has not taken the result yet.
    Performed { draws: Vec<DrawnValue>, effect: Effect, result: StepResult },
    /// The engine has taken the result, in order to record it. `written` is what it has taken, if
    /// parsing that JSON would return the same result.
    Recording { effect: Effect, written: Option<(RawJson, StepResult)> },
    /// The run repeats a step that an earlier attempt has recorded.
    Replaying { replay: Replay, effect: Option<Effect> },
    /// The run repeats the recorded results of a turn's calls, which are the effect of this step.
    RepeatingCalls { replay: Replay, effect: Effect },
    /// The run has repeated the recorded step, and pauses.
    Replayed { replay: Replay, effect: Effect },
    /// The attempt ends with this error.
    Failed { error: Error, was_live: bool },
}

/// An effect that the run has requested, or the end of a run that has requested none. The calls in
/// a turn are a single effect, which takes two steps.
#[derive(Default)]
struct Effect {
    /// `None` if this attempt has not requested the effect to be performed.
    key: Option<EffectKey>,
    /// The number of entries in the session when the effect was requested.
    version: u64,
    /// The number of entries in the session when the effect was completed or repeated, if it
    /// consists of the calls in a turn.
    version_after_calls: u64,
    /// The events that the effect has yielded, if it is performed.
    events: Vec<Event>,
    /// The calls that have been allowed to start.
    started: Option<BegunCalls>,
}

/// A recorded step, and the number of its drawn values that the run has already obtained.
struct Replay {
    record: StepRecord,
    drawn: usize,
}

/// The trace context of the span with which the run began.
#[derive(Default)]
enum FirstTraceContext {
    #[default]
    Unknown,
    /// The next step that is recorded contains the context.
    Unrecorded(TraceContext),
    Recorded(TraceContext),
}

/// The run's progress with the result of the previous step.
#[derive(Default)]
enum PreviousResult {
    /// The run has taken the result, or no step has ended with a result yet.
    #[default]
    Taken,
    Untaken(StepResult),
    /// The run has taken the result and is repeating the events of that step's turn, which have
    /// already been counted.
    Repeating,
}

/// The calls in a single turn, until the engine has recorded their results.
#[derive(Default)]
pub(super) struct CallBatch {
    /// The calls that may run, in the order in which they were announced.
    announced: Vec<BegunCall>,
    /// The results of calls that were executed separately from the run, by call id.
    pub(super) results: HashMap<String, ToolResult>,
    /// The redactor for the progress of calls that are executed separately from the run.
    pub(super) progress_redactor: Option<ProgressRedactor>,
}

/// A function that redacts the progress that a call reports.
type ProgressRedactor = Arc<dyn Fn(&ToolCall, &mut RawJson) -> Result<(), Error> + Send + Sync>;

/// The source of a nondeterministic value.
pub(super) enum Draw {
    Recorded(RawJson),
    Live,
}

/// The response to a run's request for an effect.
pub(super) enum EffectEntry {
    /// The effect is performed.
    Perform,
    /// The effect has already been recorded. The run receives the recorded value when the next step
    /// is performed or replayed.
    Kept,
    /// The effect is not performed. In an earlier attempt, the effect yielded these events before
    /// the loop ended early.
    EndsAfter(Vec<Event>),
}

impl Bridge {
    pub(super) fn new(attempt: String, toolkit: Toolkit) -> Self {
        Self(Mutex::new(BridgeState { attempt, toolkit, ..BridgeState::default() }))
    }

    /// Accesses the state. No user code may run in `access`.
    pub(super) fn with<T>(&self, access: impl FnOnce(&mut BridgeState) -> T) -> T {
        access(&mut lock_ignoring_poison(&self.0))
    }
}

/// Methods that the attempt calls.
impl BridgeState {
    /// Performs the step: waits until the run has performed it, and returns the value that the
    /// engine records.
    pub(super) fn poll_step(&mut self, cx: &Context<'_>) -> Poll<RawJson> {
        match mem::take(&mut self.step) {
            Step::Undecided { calls: effect } => {
                self.set(Step::Performing { draws: Vec::new(), effect });
            }
            Step::Performed { draws, effect, result } => {
                let record = StepRecord::new(draws, effect.key.clone(), result)
                    .with_trace_context(self.take_unrecorded_context().as_ref());
                let json = match record.to_json() {
                    Ok(json) => {
                        let result = record.is_kept_by_json().then_some(record.result);
                        let written = result.map(|result| (json.clone(), result));
                        self.step = Step::Recording { effect, written };
                        Ok(json)
                    }
                    Err(error) => {
                        self.step = Step::Recording { effect, written: None };
                        record.too_large(error).and_then(|record| record.to_json())
                    }
                };
                match json {
                    Ok(json) => return Poll::Ready(json),
                    Err(error) => self.fail(error),
                }
            }
            step => self.step = step,
        }
        self.wait(cx)
    }

    /// Accepts the step's value from the engine, and returns the step's result. If the step was not
    /// performed, the run continues from this recorded value.
    ///
    /// # Errors
    ///
    /// Returns a [`ReplayMismatch`](ErrorKind::ReplayMismatch) error if the JSON is not a valid
    /// step value.
    pub(super) fn accept(&mut self, json: &RawJson) -> Result<StepResult, Error> {
        if let Step::Recording { written, .. } = &mut self.step
            && let Some((_, result)) = written.take_if(|(written, _)| written == json)
        {
            return Ok(result);
        }
        let record = StepRecord::parse(json)?;
        let Step::Undecided { calls } = &mut self.step else { return Ok(record.result) };
        self.is_repeating = true;
        if let Some(context) = record.trace_context.as_ref().and_then(RecordedTraceContext::parse) {
            self.first_trace_context = FirstTraceContext::Recorded(context);
        }
        let (result, calls) = (record.result.clone(), calls.take());
        let replay = Replay { record, drawn: 0 };
        // Calls that have been allowed to start have already requested this effect.
        self.set(match (calls, &replay.record.result) {
            (effect, StepResult::Ended(_)) | (effect @ None, _) => {
                Step::Replaying { replay, effect }
            }
            (Some(effect), StepResult::Calls(_)) => Step::RepeatingCalls { replay, effect },
            (Some(effect), _) => Step::Replayed { replay, effect },
        });
        Ok(result)
    }

    /// Waits until the run has completed its part of the step, whose result the engine has
    /// returned. Then ends the step, and returns the result and the number of session entries that
    /// can now be saved.
    ///
    /// # Errors
    ///
    /// Returns the error that ends the attempt, if any.
    pub(super) fn poll_end(
        &mut self,
        stored: &mut Option<StepResult>,
    ) -> Poll<Result<(StepResult, u64), Error>> {
        let (effect, result) = match (&mut self.step, stored.take()) {
            (Step::Failed { error, .. }, _) => return Poll::Ready(Err(error.clone())),
            (
                Step::Performed { effect, .. }
                | Step::Recording { effect, .. }
                | Step::Replayed { effect, .. },
                Some(result),
            ) => (mem::take(effect), result),
            (_, result) => {
                *stored = result;
                return Poll::Pending;
            }
        };
        let version = match &result {
            // Results that are too large to be recorded are not saved.
            StepResult::Calls(_) => effect.version_after_calls,
            _ => effect.version,
        };
        match &result {
            StepResult::CallsBegin(begun) => {
                // The results of these calls are the effect of the next step.
                let effect = Effect { started: Some(begun.clone()), ..effect };
                self.step = Step::Undecided { calls: Some(effect) };
                return Poll::Ready(Ok((result, version)));
            }
            StepResult::Ended(_) | StepResult::Finished | StepResult::TooLarge(_) => {}
            result => self.previous = PreviousResult::Untaken(result.clone()),
        }
        (self.step, self.calls, self.event_count) = (Step::default(), CallBatch::default(), 0);
        Poll::Ready(Ok((result, version)))
    }

    /// Returns whether the run must be polled.
    pub(super) fn is_running(&self) -> bool {
        matches!(
            self.step,
            Step::Performing { .. } | Step::Replaying { .. } | Step::RepeatingCalls { .. }
        )
    }

    /// Returns whether this attempt performs, or has performed, an effect in this step that no
    /// earlier attempt has recorded.
    pub(super) fn is_live(&self) -> bool {
        matches!(
            self.step,
            Step::Performing { effect: Some(_), .. }
                | Step::Performed { .. }
                | Step::Recording { .. }
                | Step::Failed { was_live: true, .. }
        )
    }

    /// Records that the run has ended.
    pub(super) fn end_run(&mut self) {
        let version = self.session_version();
        if let Step::Performing { effect, .. } | Step::Replaying { effect, .. } = &mut self.step {
            effect.get_or_insert_default().version = version;
        }
        match &self.step {
            Step::Replaying { replay, .. } => match replay.record.result {
                StepResult::Finished => self.set_replayed(),
                _ => self.mismatch("the run ends, but an earlier attempt continued"),
            },
            Step::RepeatingCalls { .. } => {
                self.mismatch("the run ends, but an earlier attempt continued");
            }
            _ => self.complete(StepResult::Finished),
        }
    }
}

/// Methods that the run's world calls.
impl BridgeState {
    /// Returns the source of a nondeterministic value. Returns `None` if the attempt fails, or if
    /// the step has not begun.
    pub(super) fn draw(&mut self, kind: EffectKind) -> Option<Draw> {
        let replay = match &mut self.step {
            Step::Undecided { .. } | Step::Failed { .. } => return None,
            Step::Performing { .. } | Step::Performed { .. } | Step::Recording { .. } => {
                return Some(Draw::Live);
            }
            Step::Replaying { replay, .. }
            | Step::RepeatingCalls { replay, .. }
            | Step::Replayed { replay, .. } => replay,
        };
        let drawn = replay.draw(kind);
        if let Err(found) = drawn {
            let kind = kind.as_str();
            self.mismatch(&format!("the run draws `{kind}`, but an earlier attempt drew {found}"));
        }
        drawn.ok().map(Draw::Recorded)
    }

    /// Adds a value to the step's nondeterministic values.
    pub(super) fn keep_draw(&mut self, kind: EffectKind, value: RawJson) {
        if let Step::Performing { draws, .. } | Step::Performed { draws, .. } = &mut self.step {
            draws.push(DrawnValue { kind, value });
        }
    }

    /// Waits until the run may request an effect. Then returns the value of the effect if the
    /// effect was ready on the first poll in an earlier attempt, `Live` if the effect may be ready
    /// on the first poll now, or `None` if it was not ready in the earlier attempt.
    pub(super) fn poll_draw(&mut self, kind: EffectKind, cx: &Context<'_>) -> Poll<Option<Draw>> {
        match &mut self.step {
            Step::Performing { .. } => Poll::Ready(Some(Draw::Live)),
            Step::Replaying { replay, .. } => {
                Poll::Ready(replay.draw(kind).ok().map(Draw::Recorded))
            }
            _ => self.wait(cx),
        }
    }

    /// Waits until the run may request an effect, and requests it. If the loop ended early in the
    /// current step, this method waits for the next step.
    pub(super) fn poll_request(&mut self, key: &EffectKey, cx: &Context<'_>) -> Poll<EffectEntry> {
        let version = self.session_version();
        let new_effect = || Effect { version, ..Effect::default() };
        match &mut self.step {
            Step::Performing { effect, .. } => {
                self.is_repeating = false;
                effect.get_or_insert_with(new_effect).key = Some(key.clone());
                Poll::Ready(EffectEntry::Perform)
            }
            Step::Replaying { replay, effect } => {
                if let Err(what) = replay.check_request(key) {
                    self.mismatch(&what);
                    return self.wait(cx);
                }
                effect.get_or_insert_with(new_effect);
                match &replay.record.result {
                    StepResult::Ended(EndedEarly { effect_events, .. }) => {
                        let events = effect_events.clone();
                        self.wake();
                        return Poll::Ready(EffectEntry::EndsAfter(events));
                    }
                    StepResult::Calls(_) => self.begin_repeating_calls(),
                    _ => self.set_replayed(),
                }
                Poll::Ready(EffectEntry::Kept)
            }
            Step::RepeatingCalls { .. } => {
                let what = format!("the run requests `{key}` before its calls have ended");
                self.mismatch(&what);
                self.wait(cx)
            }
            _ => self.wait(cx),
        }
    }

    /// Sets the result of an effect that has been performed.
    pub(super) fn complete(&mut self, result: StepResult) {
        let version = self.session_version();
        if let Step::Performing { draws, effect } = &mut self.step {
            self.is_repeating = false;
            let mut effect = effect.take().unwrap_or(Effect { version, ..Effect::default() });
            effect.version_after_calls = version;
            let draws = mem::take(draws);
            self.set(Step::Performed { draws, effect, result });
        }
    }

    /// Waits until the effect's result has been recorded and the next step is performed or
    /// replayed. Then takes the result.
    pub(super) fn poll_answer(&mut self, cx: &Context<'_>) -> Poll<StepResult> {
        match mem::take(&mut self.previous) {
            PreviousResult::Untaken(result) if self.is_running() => return Poll::Ready(result),
            previous => self.previous = previous,
        }
        self.wait(cx)
    }

    /// Returns whether the loop may end early. If the run has yet to take an effect's result, a
    /// call's result or the events to repeat, or is replaying a recorded step, the loop ends only
    /// where the recorded step ended it.
    pub(super) fn loop_control(&self) -> LoopControl {
        match (&self.step, &self.previous) {
            (Step::Performing { .. }, PreviousResult::Taken) if self.calls.results.is_empty() => {
                LoopControl::MayEnd
            }
            _ => self.recorded_end().map_or(LoopControl::MustContinue, LoopControl::MustEnd),
        }
    }

    /// Starts to repeat the events of the previous step.
    pub(super) fn begin_repeat(&mut self) {
        self.previous = PreviousResult::Repeating;
    }

    /// Records that the run has repeated the events of the previous step, if it had to.
    pub(super) fn end_repeat(&mut self) {
        if let PreviousResult::Repeating = self.previous {
            self.previous = PreviousResult::Taken;
        }
    }

    /// Returns whether the run has only repeated recorded steps so far.
    pub(super) fn is_repeating(&self) -> bool {
        self.is_repeating
    }

    /// Returns the trace context of the span with which the run began, if it was recorded.
    pub(super) fn first_trace_context(&self) -> Option<TraceContext> {
        match &self.first_trace_context {
            FirstTraceContext::Recorded(context) => Some(context.clone()),
            FirstTraceContext::Unknown | FirstTraceContext::Unrecorded(_) => None,
        }
    }

    /// Records the trace context of the span with which the run began, together with the next step.
    pub(super) fn set_first_trace_context(&mut self, context: &TraceContext) {
        if let FirstTraceContext::Unknown = self.first_trace_context {
            self.first_trace_context = FirstTraceContext::Unrecorded(context.clone());
        }
    }

    fn take_unrecorded_context(&mut self) -> Option<TraceContext> {
        let FirstTraceContext::Unrecorded(context) = &self.first_trace_context else { return None };
        let context = context.clone();
        self.first_trace_context = FirstTraceContext::Recorded(context.clone());
        Some(context)
    }

    /// Observes an event that the run yields.
    pub(super) fn observe(&mut self, event: &Event) {
        if let (Event::TurnStarted { .. } | Event::Finished(_), Step::Performing { .. }) =
            (event, &self.step)
        {
            // The request of this turn, or the end of the run, is the effect of a step that is not
            // recorded.
            self.is_repeating = false;
        }
        if let PreviousResult::Repeating = self.previous {
            if event.turn_complete().is_none() {
                return;
            }
            // If this attempt performed the turn, it has already yielded all other events in the
            // turn, and yields the end of the turn here.
            self.previous = PreviousResult::Taken;
        }
        self.event_count += 1;
        if let Event::Tool(ToolEvent::Output(result)) = event {
            // The run may have answered the call in another way, for example because its tool no
            // longer exists.
            self.calls.results.remove(&result.call_id);
        }
        if let Step::Performing { effect: Some(effect), .. } = &mut self.step
            && matches!(event, Event::Turn(_) | Event::Tool(_) | Event::Nested { .. })
        {
            effect.events.push(event.clone());
        }
    }

    /// If an earlier attempt's loop ended early at this position, returns how it ended.
    fn recorded_end(&self) -> Option<LoopEnd> {
        let Step::Replaying { replay, effect } = &self.step else { return None };
        let ended = replay.record.ended()?;
        let is_there = matches!(self.previous, PreviousResult::Taken)
            && replay.drawn == ended.drawn_value_count
            && self.event_count == ended.event_count
            && (effect.is_some() || replay.record.key.is_none());
        is_there.then(|| ended.to_loop_end())
    }

    /// Records that the loop ended early, because of an interrupt, a time limit or an error.
    pub(super) fn end_loop(&mut self, end: &LoopEnd) {
        self.previous = PreviousResult::Taken;
        match &mut self.step {
            Step::Performing { draws, effect } => {
                let events =
                    effect.as_mut().map(|it| mem::take(&mut it.events)).unwrap_or_default();
                let ended = EndedEarly::new(draws.len(), self.event_count, events, end);
                self.complete(StepResult::Ended(ended));
            }
            Step::Replaying { replay, .. } | Step::Replayed { replay, .. }
                if replay.record.ended().is_none() =>
            {
                self.mismatch("the loop is ended from outside, but an earlier attempt continued");
            }
            Step::RepeatingCalls { .. } => {
                self.mismatch("the loop is ended from outside, but an earlier attempt continued");
            }
            Step::Replaying { .. } => self.set_replayed(),
            _ => {}
        }
    }
}

/// Methods for the calls in a turn, and the changes of the state.
impl BridgeState {
    /// Waits until the calls in the turn may run, or until their recorded results are available.
    pub(super) fn poll_calls_begin(&mut self, cx: &Context<'_>) -> Poll<CallsBegin> {
        match (&self.step, &self.previous) {
            (Step::Performing { effect, .. }, PreviousResult::Taken) => {
                // An earlier attempt has recorded the request for this effect, but no results.
                self.is_repeating = false;
                let started = effect.as_ref().and_then(|effect| effect.started.as_ref());
                let calls = started.into_iter().flat_map(|started| &started.calls);
                let calls = calls.map(|begun| begun.admitted.clone()).collect();
                Poll::Ready(CallsBegin::Live(calls))
            }
            (Step::Replaying { replay, effect: Some(_) }, PreviousResult::Taken) => {
                match replay.record.ended() {
                    Some(ended) => Poll::Ready(CallsBegin::EndedEarly(ended.effect_events.clone())),
                    None => self.wait(cx),
                }
            }
            (Step::RepeatingCalls { replay, .. }, _) => match &replay.record.result {
                StepResult::Calls(saved) => Poll::Ready(CallsBegin::Saved(saved.clone())),
                _ => self.wait(cx),
            },
            _ => self.wait(cx),
        }
    }

    pub(super) fn announce(&mut self, admitted: &AdmittedCall, tool: &Tool) {
        let call = &admitted.call;
        // Tools from tool sources are known only to this process.
        let is_shared = self.toolkit.get(&call.name).is_some();
        if find(&self.calls.announced, &call.call_id).is_none() {
            self.calls.announced.push(BegunCall::new(admitted, tool, is_shared));
        }
    }

    /// Ends the current step so that the announced calls can start. This method is called once the
    /// run has nothing else to do.
    pub(super) fn on_calls_idle(&mut self) {
        if let Step::Performing { effect: Some(Effect { started: None, .. }), .. } = self.step
            && !self.calls.announced.is_empty()
        {
            let (attempt, calls) = (self.attempt.clone(), self.calls.announced.clone());
            self.complete(StepResult::CallsBegin(BegunCalls { attempt, calls }));
        }
    }

    /// Waits until an announced call may start. Returns the call's result if its tool must not run.
    pub(super) fn poll_call_start(
        &mut self,
        call: &ToolCall,
        cx: &Context<'_>,
    ) -> Poll<Option<ToolResult>> {
        match &self.step {
            Step::Performing { effect: Some(Effect { started: Some(begun), .. }), .. } => {
                Poll::Ready(self.calls.result_instead_of(call, begun, &self.attempt))
            }
            _ => self.wait(cx),
        }
    }

    /// Records that all events of the calls have been yielded. Then waits until the calls' results
    /// have been recorded and the next step is performed or replayed.
    pub(super) fn poll_calls_end(&mut self, cx: &Context<'_>) -> Poll<()> {
        let version_after_calls = self.session_version();
        match mem::take(&mut self.step) {
            Step::RepeatingCalls { replay, effect } => {
                let effect = Effect { version_after_calls, ..effect };
                self.set(Step::Replayed { replay, effect });
            }
            step => self.step = step,
        }
        self.poll_answer(cx).map(drop)
    }

    /// Waits until the state changes.
    pub(super) fn wait<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        if !self.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }

    fn set(&mut self, step: Step) {
        self.step = step;
        self.wake();
    }

    /// Lets the run repeat the recorded results of the calls that it has requested.
    fn begin_repeating_calls(&mut self) {
        match mem::take(&mut self.step) {
            Step::Replaying { replay, effect: Some(effect) } => {
                self.set(Step::RepeatingCalls { replay, effect });
            }
            step => self.step = step,
        }
    }

    /// Records that the run has repeated its part of the step.
    fn set_replayed(&mut self) {
        let version = self.session_version();
        match mem::take(&mut self.step) {
            Step::Replaying { replay, effect } => {
                let effect = effect.unwrap_or(Effect { version, ..Effect::default() });
                self.set(Step::Replayed { replay, effect });
            }
            step => self.step = step,
        }
    }

    /// Ends the attempt with this error, unless another error ends it already.
    pub(super) fn fail(&mut self, error: Error) {
        if !matches!(self.step, Step::Failed { .. }) {
            self.set(Step::Failed { error, was_live: self.is_live() });
        }
    }

    fn mismatch(&mut self, what: &str) {
        let message = format!("{what}: its code or its agent has changed");
        self.fail(Error::new(ErrorKind::ReplayMismatch, message));
    }

    fn session_version(&self) -> u64 {
        self.session.as_ref().map_or(0, Session::version)
    }
}

impl Default for Step {
    fn default() -> Self {
        Self::Undecided { calls: None }
    }
}

impl Replay {
    /// Returns the next recorded value, or the name of its kind if the kind is another one.
    fn draw(&mut self, kind: EffectKind) -> Result<RawJson, &'static str> {
        match self.record.drawn_values.get(self.drawn) {
            Some(draw) if draw.kind == kind => {
                self.drawn += 1;
                Ok(draw.value.clone())
            }
            found => Err(found.map_or("nothing", |draw| draw.kind.as_str())),
        }
    }

    fn check_request(&self, key: &EffectKey) -> Result<(), String> {
        let recorded = self.record.key.as_ref();
        let has_more = self.drawn < self.record.drawn_values.len() && self.record.ended().is_none();
        if recorded == Some(key) {
            return match has_more {
                false => Ok(()),
                true => Err(format!(
                    "the run requests `{key}` before it draws all values that an earlier attempt drew"
                )),
            };
        }
        let recorded = recorded.map_or("its end".to_owned(), ToString::to_string);
        Err(format!("the run requests `{key}`, but an earlier attempt requested {recorded}"))
    }
}

impl CallBatch {
    /// Sets the results of calls that were executed separately from the run.
    pub(super) fn set_results(&mut self, results: Vec<ToolResult>) {
        let results = results.into_iter().map(|result| (result.call_id.clone(), result));
        self.results = results.collect();
    }

    /// Returns the result of a call that was executed elsewhere, or that may have started in an
    /// earlier attempt and must not run again.
    fn result_instead_of(
        &mut self,
        call: &ToolCall,
        begun: &BegunCalls,
        attempt: &str,
    ) -> Option<ToolResult> {
        if let Some(result) = self.results.remove(&call.call_id) {
            return Some(result);
        }
        // The tool may have been idempotent only in the attempt that started the call, or only in
        // this one.
        let is_idempotent =
            |calls: &[BegunCall]| find(calls, &call.call_id).is_some_and(|call| call.is_idempotent);
        let may_repeat = is_idempotent(&begun.calls) && is_idempotent(&self.announced);
        (begun.attempt != attempt && !may_repeat)
            .then(|| ToolResult::for_call(call, ResultKind::Interrupted, INTERRUPTED_MID_EXECUTION))
    }
}

fn find<'a>(calls: &'a [BegunCall], call_id: &str) -> Option<&'a BegunCall> {
    calls.iter().find(|begun| begun.admitted.call.call_id == call_id)
}

impl_debug!(Bridge(it), attempt = it.with(|it| it.attempt.clone()));

#[cfg(test)]
mod tests;
