//! A step in a recorded run, from which a new run can continue.

use crate::agent::{Agent, Input, Run};
use crate::error::{Error, ErrorKind};
use crate::event::{AppendReason, Event, ToolEvent};
use crate::item::{History, ToolCall};
use crate::journal::Journal;
use crate::replay::recording::Recording;
use crate::replay::recording_entry::ends_step;
use crate::request::Request;
use crate::tool::IntoToolOutput;

/// A step in a recorded run. You can inspect the step, change a tool result or the prompt, and
/// continue with a new run.
///
/// [`Recording::at_step`] and [`ReplayRun::replay_point`](super::ReplayRun::replay_point) create
/// replay points. A replay point never changes its recording.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use serde_json::json;
/// use turnstream::replay::Recorder;
/// use turnstream::provider::{Reply, Scripted};
/// use turnstream::tool::{Tool, ToolOutput, ToolSpec};
/// use turnstream::{Agent, Item};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let model = Scripted::from_fn(|request, turn| match turn {
///     0 => Reply::new().call_raw("c1", "look", "{}"),
///     _ => match request.history.last().and_then(Item::as_tool_result) {
///         Some(result) => Reply::text(format!("I see {}.", result.content.text())),
///         None => Reply::text("I have not looked."),
///     },
/// });
/// let schema = json!({ "type": "object", "properties": {} });
/// let spec = ToolSpec::new("look", "Looks out of the window", schema);
/// let look = Tool::raw(spec, |_args, _cx| async { "rain" })?;
/// let agent = Agent::new(model).with_tools([look]);
///
/// let kept = Arc::new(Mutex::new(None));
/// let keep = Arc::clone(&kept);
/// let recorder = Recorder::to_callback(move |run| *keep.lock().unwrap() = Some(run.recording));
/// let outcome = agent.clone().with_recorder(&recorder).run("How is it?").outcome().await;
/// assert_eq!(outcome.text, "I see rain.");
///
/// let recording = kept.lock().unwrap().take().unwrap();
/// let sunny = recording.at_step(2).with_tool_result("c1", ToolOutput::ok("the sun"))?;
/// assert_eq!(sunny.run(&agent).outcome().await.text, "I see the sun.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReplayPoint {
    recording: Recording,
    journal: Journal,
    /// The history from which a new run continues, including all recorded results of the turn's
    /// calls.
    continuation_history: History,
    input: Input,
}

impl Recording {
    /// Selects a step in the recording. Steps are counted from 0. A number beyond the last step
    /// selects the end of the recording.
    pub fn at_step(&self, step: usize) -> ReplayPoint {
        ReplayPoint::new(self, step)
    }
}

impl ReplayPoint {
    pub(super) fn new(recording: &Recording, step: usize) -> Self {
        let events: Vec<&Event> = recording.events().collect();
        let ends = |(at, event): (usize, &&Event)| ends_step(event).then_some(at + 1);
        let behind = match step.checked_sub(1) {
            None => events.iter().take_while(|event| is_input(event)).count(),
            Some(before) => {
                events.iter().enumerate().filter_map(ends).nth(before).unwrap_or(events.len())
            }
        };
        let (events, left) = events.split_at(behind);
        let journal = journal_from_events(recording, events.iter().copied().cloned());
        let onward = journal_from_events(recording, events.iter().copied().cloned());
        // The recording contains the results of the turn's other calls.
        let results = left.iter().take_while(|event| is_tool_event(event));
        results.for_each(|event| onward.observe(event));
        let onward = onward.history();
        Self {
            recording: recording.clone(),
            journal,
            continuation_history: onward,
            input: Input::default(),
        }
    }

    /// Returns the run's journal up to this step, including the journals of its sub-agents.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Moves the replay point to the turn that contains the given call, and replaces the call's
    /// result. The turn's other calls keep their results, and everything after the turn's results
    /// is discarded.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidRequest`](ErrorKind::InvalidRequest) if the call has no result in the
    /// recording.
    pub fn with_tool_result(
        self,
        call_id: &str,
        output: impl IntoToolOutput,
    ) -> Result<Self, Error> {
        let is_it = |event: &Event| event.tool_output().is_some_and(|it| it.call_id == call_id);
        let Some(at) = self.recording.events().position(is_it) else {
            let message = format!("the call `{call_id}` has no result in the recording");
            let error = Error::new(ErrorKind::InvalidRequest, message);
            return Err(error.with_parameter(call_id.to_owned()));
        };
        let output = output.into_tool_output();
        let changed = |event: &Event| match event {
            Event::Tool(ToolEvent::Output(result)) if result.call_id == call_id => {
                let call = ToolCall {
                    call_id: result.call_id.clone(),
                    name: result.name.clone(),
                    arguments: String::new(),
                };
                Event::Tool(ToolEvent::Output(output.clone().into_result_for(&call)))
            }
            event => event.clone(),
        };
        let first = self.recording.events().take(at + 1);
        let behind = self.recording.events().skip(at + 1).take_while(|event| is_tool_event(event));
        let journal = journal_from_events(&self.recording, first.chain(behind).map(changed));
        let onward = journal.history();
        Ok(Self { journal, continuation_history: onward, input: Input::default(), ..self })
    }

    /// Moves the replay point to the start of the run, and replaces the prompt. The rest of the
    /// recorded run is discarded.
    pub fn with_prompt(self, prompt: impl Into<Input>) -> Self {
        let input = prompt.into();
        let onward = self.recording.history().clone();
        let journal = Journal::new(onward.clone());
        Self { journal, continuation_history: onward, input, ..self }
    }

    /// Returns the first request that [`run`](Self::run) would send, without any changes made by
    /// hooks. The returned request contains no tools from [tool sources](Agent::with_tool_source),
    /// since this method does not load the sources' tool lists.
    pub fn request(&self, agent: &Agent) -> Request {
        let mut history = self.continuation_history.settled();
        history.extend(self.input.0.iter().cloned());
        agent.build_request(&history)
    }

    /// Continues from this step with a new run that uses the provider and tools of `agent`. As in
    /// any other run, counters and limits start afresh.
    ///
    /// Open calls receive their recorded results, so no tool runs twice. A call without a recorded
    /// result receives an `Interrupted` result. The new run's history is a [fork](History::fork),
    /// so later calls receive new idempotency keys.
    pub fn run(&self, agent: &Agent) -> Run {
        agent.run_from(agent.fork_history(&self.continuation_history), self.input.clone())
    }
}

fn journal_from_events(recording: &Recording, events: impl IntoIterator<Item = Event>) -> Journal {
    let journal = Journal::new(recording.history().clone());
    events.into_iter().for_each(|event| journal.observe(&event));
    journal
}

fn is_input(event: &Event) -> bool {
    matches!(event, Event::Appended { why: AppendReason::Input, .. })
}

fn is_tool_event(event: &Event) -> bool {
    matches!(event, Event::Tool(_) | Event::Nested { .. })
}
