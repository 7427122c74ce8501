//! The state that an attempt shares with its run.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use futures::future::{BoxFuture, FutureExt, poll_fn};

use crate::durable::step_record::{
    BegunCall, BegunCalls, DrawnValue, EndedEarly, StepRecord, StepResult,
};
use crate::error::{Error, ErrorKind};
use crate::event::{Event, ToolEvent};
use crate::item::{PendingCall, RawJson, ToolCall, ToolResult};
use crate::lock::lock_ignoring_poison;
use crate::session::Session;
use crate::tool::{CallStart, CallsBegin, ProgressRedactor, Tool, Toolkit, Verdict};
use crate::world::{EffectKey, EffectKind, LoopEnd};

/// Holds the state that an attempt shares with its run's world. The run accesses its environment
/// only through this world. A single task polls both the attempt and the run.
///
/// When a step starts, it is not yet known whether the step is performed or replayed, and the run
/// pauses. If the engine polls the step's future, the step is performed. If the engine returns a
/// value without polling the future, an earlier attempt has recorded the step. The run is polled
/// only once it is known whether the step is performed or replayed. The run then takes the previous
/// step's value, obtains the nondeterministic values that it needs, and requests its next effect.
pub(super) struct Bridge {
    /// The unique name of this attempt.
    attempt: String,
    /// The agent's own tools, which other processes also have. Tools from tool sources are known
    /// only to this process.
    toolkit: Toolkit,
    state: Mutex<BridgeState>,
}

#[derive(Default)]
struct BridgeState {
    /// The waker of the task that polls the attempt.
    task: Option<Waker>,
    /// The wakers of the effects and calls that wait until it is known whether the step is
    /// performed or replayed.
    waiting: Vec<Waker>,
    phase: Phase,
    /// Whether the run has completed its part of the step and is pausing until the next step is
    /// performed or replayed.
    is_complete: bool,
    /// Whether the run has requested the step's effect.
    has_effect: bool,
    /// The number of entries in the session when the effect was requested.
    version: u64,
    /// The number of events that the run has yielded since the previous effect. While a turn's
    /// calls run, events are counted from the start of the first of the two steps that the calls
    /// take.
    event_count: usize,
    /// The nondeterministic values that the run has obtained since the previous effect, if the step
    /// is performed.
    draws: Vec<DrawnValue>,
    key: Option<EffectKey>,
    /// The events that the effect has yielded, if the effect is performed.
    effect_events: Vec<Event>,
    /// The effect's result, until the engine takes it.
    result: Option<StepResult>,
    /// The previous step's result, until the run takes it.
    answer: Option<StepResult>,
    /// Whether the run has taken the previous step's result and is repeating that step's events,
    /// which have already been counted.
    is_repeating: bool,
    calls: CallBatch,
    verdicts: Vec<(PendingCall, Verdict)>,
    session: Option<Session>,
    failure: Option<Error>,
}

#[derive(Default)]
enum Phase {
    #[default]
    Undecided,
    Performed,
    Kept {
        record: StepRecord,
        /// The number of recorded values that the run has already obtained.
        drawn: usize,
    },
}

/// The calls in a single turn.
#[derive(Default)]
struct CallBatch {
    max_concurrency: usize,
    /// The calls that may run, in the order in which they were announced.
    announced: Vec<BegunCall>,
    /// The calls that have been allowed to start. `None` once all of these calls have ended.
    begun: Option<BegunCalls>,
    /// The results of calls that were executed separately from the run, by call id.
    results: HashMap<String, ToolResult>,
    /// The ids of the calls that run in this process.
    running: Vec<String>,
    /// The redactor for the progress of calls that are executed separately from the run.
    progress_redactor: Option<ProgressRedactor>,
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
        Self { attempt, toolkit, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BridgeState> {
        // No user code runs while the lock is held.
        lock_ignoring_poison(&self.state)
    }
}

/// Methods that the attempt calls.
impl Bridge {
    pub(super) fn set_task(&self, waker: &Waker) {
        self.lock().task = Some(waker.clone());
    }

    pub(super) fn set_session(&self, session: &Session) {
        self.lock().session = Some(session.clone());
    }

    /// Starts the next step.
    pub(super) fn begin_step(&self) {
        let mut state = self.lock();
        let state = &mut *state;
        state.phase = Phase::Undecided;
        // If calls have been allowed to start, their results are the effect of the next step.
        state.has_effect = state.calls.begun.is_some();
        if !state.has_effect {
            state.key = None;
        }
        state.is_complete = false;
        state.draws.clear();
        if !state.has_effect {
            state.event_count = 0;
            state.effect_events.clear();
        }
    }

    /// Returns the future that the engine polls to perform the step. The future does no work of its
    /// own; it waits until the run has performed the step's effect.
    pub(super) fn step_future(self: &Arc<Self>) -> BoxFuture<'static, RawJson> {
        let bridge = Arc::clone(self);
        poll_fn(move |cx| bridge.poll_step(cx)).boxed()
    }

    fn poll_step(&self, cx: &Context<'_>) -> Poll<RawJson> {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Undecided) {
            state.phase = Phase::Performed;
            state.wake();
        }
        let Some(result) = state.result.take() else {
            state.wait(cx);
            return Poll::Pending;
        };
        let record = StepRecord::new(mem::take(&mut state.draws), state.key.clone(), result);
        match record.to_json().or_else(|error| record.too_large(error)?.to_json()) {
            Ok(json) => Poll::Ready(json),
            Err(error) => {
                state.fail(error);
                Poll::Pending
            }
        }
    }

    /// Returns whether the run must be polled.
    pub(super) fn wants_run(&self) -> bool {
        let state = self.lock();
        !matches!(state.phase, Phase::Undecided) && !state.is_complete && state.failure.is_none()
    }

    /// Returns whether the run has completed its part of the step.
    pub(super) fn is_complete(&self) -> bool {
        self.lock().is_complete
    }

    /// Returns whether this attempt performs, or has performed, an effect in this step that no
    /// earlier attempt has recorded.
    pub(super) fn is_live(&self) -> bool {
        let state = self.lock();
        matches!(state.phase, Phase::Performed) && (state.has_effect || state.is_complete)
    }

    /// Accepts the step's value from the engine. If the step was not performed, the run continues
    /// from this recorded value.
    ///
    /// # Errors
    ///
    /// Returns a [`ReplayMismatch`](ErrorKind::ReplayMismatch) error if the JSON is not a valid
    /// step value.
    pub(super) fn set_kept(&self, json: &RawJson) -> Result<(), Error> {
        let mut state = self.lock();
        if let Phase::Undecided = state.phase {
            let record = StepRecord::parse(json)?;
            // Calls that were allowed to start have already requested this effect.
            state.is_complete = state.has_effect && !matches!(record.result, StepResult::Ended(_));
            state.phase = Phase::Kept { record, drawn: 0 };
            state.wake();
        }
        Ok(())
    }

    /// Ends the step, and returns the step's result and the number of session entries that can now
    /// be saved.
    pub(super) fn end_step(&self, json: &RawJson) -> Result<(StepResult, u64), Error> {
        let result = StepRecord::parse(json)?.result;
        let mut state = self.lock();
        if let Some(failure) = state.failure.clone() {
            return Err(failure);
        }
        match &result {
            StepResult::CallsBegin(begun) => state.calls.begun = Some(begun.clone()),
            StepResult::Ended(_) | StepResult::Finished | StepResult::TooLarge(_) => {
                state.calls = CallBatch::default();
            }
            result => {
                state.calls = CallBatch::default();
                state.answer = Some(result.clone());
            }
        }
        Ok((result, state.version))
    }

    /// Sets the results of calls that were executed separately from the run.
    pub(super) fn set_call_results(&self, results: Vec<ToolResult>) {
        let results = results.into_iter().map(|result| (result.call_id.clone(), result));
        self.lock().calls.results = results.collect();
    }

    /// Applies the run's hooks to the progress of a call that is executed separately from the run.
    ///
    /// # Errors
    ///
    /// Returns the error from a hook, which ends the run. If a hook fails, the progress is set to
    /// `null`.
    pub(super) fn redact_progress(&self, call: &ToolCall, data: &mut RawJson) -> Result<(), Error> {
        let redactor = self.lock().calls.progress_redactor.clone();
        redactor.map_or(Ok(()), |redact| redact(call, data))
    }

    /// Sets the verdicts that the run has been waiting for.
    pub(super) fn set_verdicts(&self, verdicts: Vec<(PendingCall, Verdict)>) {
        self.lock().verdicts = verdicts;
    }

    /// Records that the run has ended.
    pub(super) fn end_run(&self) {
        let mut state = self.lock();
        match &state.phase {
            Phase::Performed => state.complete(StepResult::Finished),
            Phase::Kept { record, .. } if !matches!(record.result, StepResult::Finished) => {
                state.fail(mismatch("the run ends, but an earlier attempt continued"));
            }
            Phase::Kept { .. } | Phase::Undecided => {}
        }
        state.is_complete = true;
        state.version = state.session_version();
    }

    /// Returns the error that ends the attempt, if any.
    pub(super) fn failure(&self) -> Option<Error> {
        self.lock().failure.clone()
    }
}

/// Methods that the run's world calls.
impl Bridge {
    /// Returns a nondeterministic value: the value that an earlier attempt recorded or, if none has
    /// been recorded, the value that `live` returns.
    pub(super) fn draw(
        &self,
        key: &EffectKey,
        live: impl FnOnce() -> Result<RawJson, Error>,
    ) -> Option<RawJson> {
        match self.kept_draw(key.kind)? {
            KeptDraw::Value(value) => {
                if is_taken_away(key.kind) {
                    // In a new attempt, the original value, such as a command, is available again.
                    // The value is removed here so that it is not delivered twice.
                    let _ = live();
                }
                Some(value)
            }
            KeptDraw::Perform => match live() {
                Ok(value) => {
                    let draw = DrawnValue { kind: key.kind, value: value.clone() };
                    self.lock().draws.push(draw);
                    Some(value)
                }
                Err(error) => {
                    self.lock().fail(error);
                    None
                }
            },
        }
    }

    /// Returns the recorded value of an effect that was ready on the first poll in an earlier
    /// attempt.
    pub(super) fn drawn_effect(&self, kind: EffectKind) -> Option<RawJson> {
        let mut state = self.lock();
        let Phase::Kept { record, drawn } = &mut state.phase else { return None };
        let draw = record.drawn_values.get(*drawn).filter(|draw| draw.kind == kind)?;
        *drawn += 1;
        Some(draw.value.clone())
    }

    /// Adds the value of an effect that was ready on the first poll to the step's nondeterministic
    /// values.
    pub(super) fn keep_as_drawn(&self, kind: EffectKind, value: RawJson) {
        self.lock().draws.push(DrawnValue { kind, value });
    }

    fn kept_draw(&self, kind: EffectKind) -> Option<KeptDraw> {
        let mut state = self.lock();
        let found = match &mut state.phase {
            Phase::Undecided => return None,
            Phase::Performed => return Some(KeptDraw::Perform),
            Phase::Kept { record, drawn } => match record.drawn_values.get(*drawn) {
                Some(draw) if draw.kind == kind => {
                    *drawn += 1;
                    return Some(KeptDraw::Value(draw.value.clone()));
                }
                found => found.map_or("nothing", |draw| draw.kind.as_str()),
            },
        };
        let what =
            format!("the run draws `{}`, but an earlier attempt drew {found}", kind.as_str());
        state.fail(mismatch(&what));
        None
    }

    /// Waits until the run may request an effect. If the loop ended early in the current step, this
    /// method waits for the next step.
    pub(super) fn poll_ready(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if !state.is_complete && !matches!(state.phase, Phase::Undecided) {
            return Poll::Ready(());
        }
        state.wait(cx);
        Poll::Pending
    }

    /// Returns whether the effects that the run requests are performed rather than replayed.
    pub(super) fn is_performing(&self) -> bool {
        matches!(self.lock().phase, Phase::Performed)
    }

    /// Requests the step's effect for the run. Call this method only after
    /// [`poll_ready`](Self::poll_ready) has returned `Poll::Ready`.
    pub(super) fn begin_effect(&self, key: &EffectKey) -> EffectEntry {
        let mut state = self.lock();
        let state = &mut *state;
        if !state.has_effect {
            state.version = state.session_version();
        }
        state.has_effect = true;
        match &state.phase {
            Phase::Performed => {
                state.key = Some(key.clone());
                EffectEntry::Perform
            }
            Phase::Kept { record, drawn } => {
                if record.key.as_ref() != Some(key)
                    || *drawn < record.drawn_values.len() && !record.has_ended()
                {
                    let recorded =
                        record.key.as_ref().map_or("its end".to_owned(), ToString::to_string);
                    let what = format!(
                        "the run requests `{key}`, but an earlier attempt requested {recorded}"
                    );
                    state.fail(mismatch(&what));
                    return EffectEntry::Kept;
                }
                match &record.result {
                    StepResult::Ended(ended) => {
                        let events = ended.effect_events.clone();
                        state.wake();
                        EffectEntry::EndsAfter(events)
                    }
                    _ => {
                        state.is_complete = true;
                        state.wake();
                        EffectEntry::Kept
                    }
                }
            }
            Phase::Undecided => EffectEntry::Kept,
        }
    }

    /// Sets the result of an effect that has been performed.
    pub(super) fn complete(&self, result: StepResult) {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Performed) && !state.is_complete {
            state.complete(result);
        }
    }

    /// Waits until the effect's result has been recorded and the next step is performed or
    /// replayed. Then takes the result.
    pub(super) fn poll_answer(&self, cx: &Context<'_>) -> Poll<StepResult> {
        let mut state = self.lock();
        if !matches!(state.phase, Phase::Undecided)
            && let Some(answer) = state.answer.take()
        {
            return Poll::Ready(answer);
        }
        state.wait(cx);
        Poll::Pending
    }

    /// Takes the verdicts that the run has been waiting for.
    pub(super) fn take_verdicts(&self) -> Vec<(PendingCall, Verdict)> {
        mem::take(&mut self.lock().verdicts)
    }

    /// Returns whether the run has yet to take an effect's result, a call's result or the events to
    /// repeat, or is replaying a recorded step. If this method returns `true`, the run ends only
    /// [where the recorded step ended it](Self::forced_end).
    pub(super) fn has_untaken_answer(&self) -> bool {
        let state = self.lock();
        let is_performed = matches!(state.phase, Phase::Performed);
        let has_value = state.answer.is_some() || !state.calls.results.is_empty();
        !is_performed || state.is_complete || has_value || state.is_repeating
    }

    /// Sets whether the run is repeating the events of the previous step.
    pub(super) fn set_repeating(&self, is_repeating: bool) {
        self.lock().is_repeating = is_repeating;
    }

    /// Observes an event that the run yields.
    pub(super) fn observe(&self, event: &Event) {
        let mut state = self.lock();
        if state.is_repeating {
            if event.turn_complete().is_none() {
                return;
            }
            // If this attempt performed the turn, it has already yielded all other events in the
            // turn, and yields the end of the turn here.
            state.is_repeating = false;
        }
        state.event_count += 1;
        if let Event::Tool(ToolEvent::Output(result)) = event {
            // The run may have answered the call in another way, for example because its tool no
            // longer exists.
            state.calls.results.remove(&result.call_id);
        }
        let is_of_effect = state.has_effect
            && !state.is_complete
            && matches!(event, Event::Turn(_) | Event::Tool(_) | Event::Nested { .. });
        if is_of_effect && matches!(state.phase, Phase::Performed) {
            state.effect_events.push(event.clone());
        }
    }

    /// If an earlier attempt's loop ended early at this position, returns how it ended.
    pub(super) fn forced_end(&self) -> Option<LoopEnd> {
        let state = self.lock();
        let Phase::Kept { record, drawn } = &state.phase else { return None };
        let StepResult::Ended(ended) = &record.result else { return None };
        let is_there = !state.is_complete
            && state.answer.is_none()
            && !state.is_repeating
            && *drawn == ended.drawn_value_count
            && state.event_count == ended.event_count
            && (state.has_effect || record.key.is_none());
        is_there.then(|| ended.to_loop_end())
    }

    /// Records that the loop ended early, because of an interrupt, a time limit or an error.
    pub(super) fn end_loop(&self, end: &LoopEnd) {
        let mut state = self.lock();
        let state = &mut *state;
        (state.answer, state.is_repeating) = (None, false);
        if !state.has_effect {
            state.version = state.session_version();
        }
        match &state.phase {
            Phase::Performed if !state.is_complete => {
                let (draws, events) = (state.draws.len(), state.event_count);
                let effect_events = mem::take(&mut state.effect_events);
                let ended = EndedEarly::new(draws, events, effect_events, end);
                state.complete(StepResult::Ended(ended));
            }
            Phase::Kept { record, .. } if !record.has_ended() => {
                state.fail(mismatch(
                    "the loop is ended from outside, but an earlier attempt continued",
                ));
            }
            Phase::Performed | Phase::Kept { .. } | Phase::Undecided => {}
        }
        state.is_complete = true;
    }
}

/// Methods for the calls in a turn.
impl Bridge {
    /// Sets the options for the calls in a turn: the maximum number of calls that run at the same
    /// time, and the redactor for their progress.
    pub(super) fn begin_calls(&self, max_concurrency: usize, redactor: Option<ProgressRedactor>) {
        let mut state = self.lock();
        state.calls.max_concurrency = max_concurrency.max(1);
        state.calls.progress_redactor = redactor;
    }

    /// Waits until the calls in the turn may run, or until their recorded results are available.
    pub(super) fn poll_calls_begin(&self, cx: &Context<'_>) -> Poll<CallsBegin> {
        let mut state = self.lock();
        let state = &mut *state;
        let begun = state.calls.begun.as_ref();
        let decision = match (&state.phase, begun, state.answer.take()) {
            (Phase::Performed | Phase::Kept { .. }, None, Some(StepResult::Calls(saved))) => {
                state.is_repeating = true;
                Some(CallsBegin::Saved(saved))
            }
            (Phase::Performed, _, None) => {
                let admitted = begun.into_iter().flat_map(|begun| &begun.calls);
                Some(CallsBegin::Live(admitted.map(|begun| begun.call.clone()).collect()))
            }
            (Phase::Kept { record, .. }, Some(_), None) => match &record.result {
                StepResult::Ended(ended) => Some(CallsBegin::Ended(ended.effect_events.clone())),
                _ => None,
            },
            (_, _, answer) => {
                state.answer = answer;
                None
            }
        };
        match decision {
            Some(decision) => Poll::Ready(decision),
            None => {
                state.wait(cx);
                Poll::Pending
            }
        }
    }

    pub(super) fn announce(&self, call: &ToolCall, tool: &Tool) {
        let mut state = self.lock();
        // Tools from tool sources are known only to this process.
        let is_shared = self.toolkit.get(&call.name).is_some();
        let announced = &mut state.calls.announced;
        if announced.iter().all(|other| other.call.call_id != call.call_id) {
            announced.push(BegunCall::new(call, tool, is_shared));
        }
    }

    /// Ends the current step so that the announced calls can start. This method is called once the
    /// run has nothing else to do.
    pub(super) fn on_calls_idle(&self) {
        let mut state = self.lock();
        let is_due = matches!(state.phase, Phase::Performed)
            && !state.is_complete
            && state.calls.begun.is_none()
            && !state.calls.announced.is_empty();
        if is_due {
            let calls = state.calls.announced.clone();
            let attempt = self.attempt.clone();
            state.complete(StepResult::CallsBegin(BegunCalls { attempt, calls }));
        }
    }

    /// Returns whether the call was executed separately from the run, and its result is available.
    pub(super) fn has_call_result(&self, call_id: &str) -> bool {
        self.lock().calls.results.contains_key(call_id)
    }

    /// Waits until an announced call may start.
    pub(super) fn poll_call_start(&self, call_id: &str, cx: &Context<'_>) -> Poll<CallStart> {
        let mut state = self.lock();
        let state = &mut *state;
        if let (Phase::Performed, Some(begun)) = (&state.phase, &state.calls.begun) {
            if let Some(result) = state.calls.results.remove(call_id) {
                return Poll::Ready(CallStart::Result(result));
            }
            let is_it = |begun: &&BegunCall| begun.call.call_id == call_id;
            // The tool may have been idempotent only in the attempt that started the call, or only
            // in this one.
            let is_idempotent = |calls: &[BegunCall]| {
                calls.iter().find(is_it).is_some_and(|call| call.is_idempotent)
            };
            let may_repeat = is_idempotent(&begun.calls) && is_idempotent(&state.calls.announced);
            if begun.attempt != self.attempt && !may_repeat {
                return Poll::Ready(CallStart::Interrupted);
            }
            if state.calls.has_place_for(call_id) {
                state.calls.running.push(call_id.to_owned());
                return Poll::Ready(CallStart::Run);
            }
        }
        state.wait(cx);
        Poll::Pending
    }

    pub(super) fn end_call(&self, call_id: &str) {
        let mut state = self.lock();
        state.calls.running.retain(|running| running != call_id);
        state.wake();
    }
}

impl CallBatch {
    fn has_place_for(&self, call_id: &str) -> bool {
        let is_exclusive = |call_id: &str| {
            let call = self.announced.iter().find(|begun| begun.call.call_id == call_id);
            call.is_some_and(|call| call.is_exclusive)
        };
        match is_exclusive(call_id) {
            true => self.running.is_empty(),
            false => {
                self.running.len() < self.max_concurrency
                    && !self.running.iter().any(|running| is_exclusive(running))
            }
        }
    }
}

/// A nondeterministic value that the run obtains.
enum KeptDraw {
    Value(RawJson),
    Perform,
}

/// Returns whether obtaining a value of this kind removes it from its source.
fn is_taken_away(kind: EffectKind) -> bool {
    matches!(
        kind,
        EffectKind::DeliveredInput
            | EffectKind::UndeliveredInput
            | EffectKind::Tombstones
            | EffectKind::EffectReports
            | EffectKind::HookMessages
    )
}

impl BridgeState {
    fn wake(&mut self) {
        for waker in self.task.iter().cloned().chain(self.waiting.drain(..)) {
            waker.wake();
        }
    }

    fn wait(&mut self, cx: &Context<'_>) {
        if !self.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.waiting.push(cx.waker().clone());
        }
    }

    fn complete(&mut self, result: StepResult) {
        (self.result, self.is_complete) = (Some(result), true);
        self.wake();
    }

    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
        self.wake();
    }

    fn session_version(&self) -> u64 {
        self.session.as_ref().map_or(0, Session::version)
    }
}

impl_debug!(Bridge(it), attempt = it.attempt);

fn mismatch(what: &str) -> Error {
    Error::new(ErrorKind::ReplayMismatch, format!("{what}: its code or its agent has changed"))
}
