//! The world for a run that is being recorded.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use futures::FutureExt;

use crate::agent::{Agent, RunStart};
use crate::error::Error;
use crate::event::Event;
use crate::item::{History, RawJson};
use crate::lock::lock_ignoring_poison;
use crate::propagation::TraceContext;
use crate::replay::effect_counter::EffectCounter;
use crate::replay::recorded_request::RecordedRequest;
use crate::replay::recorder::Recorder;
use crate::replay::recording::RecordingParser;
use crate::replay::recording_entry::ends_step;
use crate::replay::recording_line::{FORMAT_VERSION, LineOwner, RecordingLine, ValueLine};
use crate::request::Request;
use crate::stream::TurnStream;
use crate::tool::ToolRun;
use crate::world::{
    Effect, EffectKey, EffectKind, EffectValue, LoopControl, LoopEnd, SendRequest, World,
    is_vetoed_event,
};

/// Wraps another world, and records the values that this world provides and the run's events.
#[derive(Debug)]
pub(super) struct RunRecorder {
    world: Arc<dyn World>,
    log: Arc<RunLog>,
}

/// The recording of a single run.
struct RunLog {
    recorder: Recorder,
    agent: Agent,
    history: History,
    is_resuming: bool,
    state: Mutex<RecorderState>,
}

#[derive(Default)]
struct RecorderState {
    /// The run's number, or `None` before the first line is recorded.
    run_number: Option<u32>,
    /// Parses the recorded lines to build the recording that is passed to a callback at the end of
    /// the run.
    parser: RecordingParser,
    requests: Vec<Request>,
    last_request: RecordedRequest,
    /// The number of times that each kind of effect has been requested since the last event.
    effect_counter: EffectCounter,
}

impl Agent {
    /// Records all subsequent runs of the agent with the given recorder.
    ///
    /// A [`Recorder`] only observes runs and does not change their behavior.
    pub fn with_recorder(self, recorder: &Recorder) -> Self {
        let recorder = recorder.clone();
        let inner = self.world_factory();
        self.with_world(move |agent, start| {
            RunRecorder::new(agent.open_world(&inner, start), &recorder, agent, start)
        })
    }
}

impl RunRecorder {
    pub(super) fn new(
        world: Arc<dyn World>,
        recorder: &Recorder,
        agent: &Agent,
        start: &RunStart<'_>,
    ) -> Self {
        let page = RunLog {
            recorder: recorder.clone(),
            agent: agent.clone(),
            history: start.history.clone(),
            is_resuming: start.is_resuming,
            state: Mutex::default(),
        };
        Self { world, log: Arc::new(page) }
    }
}

impl World for RunRecorder {
    fn draw(&self, key: &EffectKey, live: &mut dyn FnMut() -> EffectValue) -> EffectValue {
        let drawn = self.world.draw(key, live);
        // Events contain the values of all other effects.
        if matches!(
            key.kind,
            EffectKind::Facts
                | EffectKind::HookMessages
                | EffectKind::RefusedInput
                | EffectKind::RequestTime
        ) {
            let nth = self.log.count_effect(key);
            self.log.write_value_if_set(key, nth, &drawn);
        }
        drawn
    }

    fn step(&self, key: &EffectKey, effect: Effect) -> Effect {
        let (page, key, nth) = (Arc::clone(&self.log), key.clone(), self.log.count_effect(key));
        let effect = self.world.step(&key, effect);
        async move {
            let made = effect.await;
            match &made {
                Ok(made) => page.write_value_if_set(&key, nth, made),
                Err(error) => page.write_value(&key, nth, Err(error.clone())),
            }
            made
        }
        .boxed()
    }

    fn turn(&self, key: &EffectKey, request: Request, ask: SendRequest) -> TurnStream {
        self.log.write_request(&request);
        let page = Arc::clone(&self.log);
        self.world.turn(key, request, ask).observed_by(move |item| {
            if let Err(error) = item {
                page.write_turn_error(error);
            }
        })
    }

    fn fan_out(&self, key: &EffectKey, calls: ToolRun) -> ToolRun {
        self.world.fan_out(key, calls)
    }

    fn observe(&self, event: &Event) {
        self.world.observe(event);
        self.log.write_event(event);
    }

    fn is_repeating(&self) -> bool {
        self.world.is_repeating()
    }

    fn first_trace_context(&self) -> Option<TraceContext> {
        self.world.first_trace_context()
    }

    fn record_trace_context(&self, context: &TraceContext) {
        self.world.record_trace_context(context);
    }

    fn loop_control(&self) -> LoopControl {
        self.world.loop_control()
    }

    fn on_end(&self, ending: &LoopEnd) {
        self.world.on_end(ending);
        self.log.write_loop_end(ending);
    }

    fn on_drop(&self) {
        self.world.on_drop();
        self.log.finish();
    }
}

impl RunLog {
    /// Records an emitted event.
    fn write_event(&self, event: &Event) {
        if *event.without_nesting() == Event::Unknown {
            return;
        }
        let mut state = lock_ignoring_poison(&self.state);
        state.effect_counter.clear();
        let is_vetoed = matches!(event, Event::Turn(event) if is_vetoed_event(event));
        let event = Cow::Borrowed(event);
        let is_end = ends_step(&event) || event.outcome().is_some();
        self.append(&mut state, |run| {
            let owner = LineOwner::Run(run);
            RecordingLine::Event { owner, is_vetoed, event }
        });
        if is_end {
            self.recorder.write_buffered();
        }
    }

    /// Counts an effect, and returns its number among the effects of the same kind since the last
    /// event.
    fn count_effect(&self, key: &EffectKey) -> u32 {
        lock_ignoring_poison(&self.state).effect_counter.count(key)
    }

    /// Records the value of an effect unless it is a default value.
    fn write_value_if_set(&self, key: &EffectKey, nth: u32, made: &EffectValue) {
        match made.to_json() {
            Ok(json) if is_default_json(&json) && key.kind != EffectKind::Step => {}
            made => self.write_value(key, nth, made),
        }
    }

    fn write_value(&self, key: &EffectKey, nth: u32, made: Result<RawJson, Error>) {
        let (kind, name) = (key.kind, key.name.to_string());
        let (value, error) = match made {
            Ok(json) => (Some(json), None),
            Err(error) => (None, Some(error)),
        };
        let value = ValueLine { kind, name, nth, value, error };
        let mut state = lock_ignoring_poison(&self.state);
        self.append(&mut state, |run| RecordingLine::Value { run, value });
    }

    fn write_request(&self, request: &Request) {
        let mut state = lock_ignoring_poison(&self.state);
        let recorded = RecordedRequest::new(request);
        let line = Box::new(recorded.line_since(&state.last_request));
        state.last_request = recorded;
        if self.recorder.keeps_requests() {
            state.requests.push(request.clone());
        }
        self.append(&mut state, |run| {
            let owner = LineOwner::Run(run);
            RecordingLine::Request { owner, request: line }
        });
        self.recorder.write_buffered();
    }

    fn write_turn_error(&self, error: &Error) {
        let mut state = lock_ignoring_poison(&self.state);
        let error = Cow::Borrowed(error);
        self.append(&mut state, |run| {
            let owner = LineOwner::Run(run);
            RecordingLine::TurnFailed { owner, error }
        });
        self.recorder.write_buffered();
    }

    fn write_loop_end(&self, ending: &LoopEnd) {
        let mut state = lock_ignoring_poison(&self.state);
        self.append(&mut state, |run| RecordingLine::LoopEnded {
            run,
            polled_since_last_event: ending.polled_since_last_event,
            error: ending.error.as_ref().map(Cow::Borrowed),
            time_limit_reached: ending.time_limit_reached,
            interrupt_reason: ending.interrupt_reason.as_deref().map(Cow::Borrowed),
        });
        self.recorder.write_buffered();
    }

    /// Ends the recording when the run is dropped.
    fn finish(&self) {
        let state = std::mem::take(&mut *lock_ignoring_poison(&self.state));
        if state.run_number.is_some() {
            self.recorder.finish_run(&self.agent, state.parser, state.requests);
        }
    }

    fn append<'a>(&self, state: &mut RecorderState, line: impl FnOnce(u32) -> RecordingLine<'a>) {
        let run = match state.run_number {
            Some(run) => run,
            None => {
                let run = *state.run_number.insert(self.recorder.begin_run());
                let (history, is_resuming) = (Cow::Borrowed(&self.history), self.is_resuming);
                let version = FORMAT_VERSION;
                let header = RecordingLine::Run { run, version, history, is_resuming };
                self.recorder.append(&mut state.parser, &header);
                run
            }
        };
        self.recorder.append(&mut state.parser, &line(run));
    }
}

/// Returns whether a value is a default value, such as `null` or an empty list, and can therefore
/// be omitted.
fn is_default_json(json: &RawJson) -> bool {
    matches!(json.as_str(), "null" | "false" | "{}" | "[]")
}

impl_debug!(RunLog(it), recorder = it.recorder);
