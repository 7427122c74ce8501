//! The telemetry of a single run: a fold over the run's events.

use std::fmt;
use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry::trace::SpanContext;
use turnstream::error::Error;
use turnstream::event::Event;
use turnstream::item::History;
use turnstream::propagation::{TraceContext, TraceContexts};
use turnstream::request::Options;

use crate::agent_span::{AgentSpan, AgentStart};
use crate::names::{attribute, error_type};
use crate::request_attributes::request_attributes;
use crate::run_progress::RunProgress;
use crate::settings::TelemetrySettings;
use crate::span::{to_span_context, to_trace_context};

/// The telemetry of a single run, which turns the run's events into spans and metrics.
///
/// [`with_telemetry`](crate::TelemetryExt::with_telemetry) passes each event of a stream to
/// [`observe`](Self::observe). Dropping a `RunTelemetry` ends all open spans with the `error.type`
/// `cancelled`.
///
/// The parent of the run's span is only the context that was passed to
/// [`with_parent`](Self::with_parent), never the current context of the thread or the task.
pub struct RunTelemetry {
    settings: Arc<TelemetrySettings>,
    description: RunDescription,
    state: RunState,
}

/// The information about a run that its events do not contain.
struct RunDescription {
    agent_name: Option<String>,
    conversation_id: Option<String>,
    parent: Option<SpanContext>,
    links: Vec<SpanContext>,
    options: Vec<KeyValue>,
    history: History,
    contexts: TraceContexts,
}

enum RunState {
    NotStarted,
    /// The run repeats the recorded steps of an earlier attempt. Its span starts with the first new
    /// event.
    Repeating(Box<RunProgress>),
    Running(Box<AgentSpan>),
    /// A run has ended, and another one may follow.
    BetweenRuns,
    /// The stream of events has ended.
    Ended,
}

impl RunTelemetry {
    pub(crate) fn new(settings: Arc<TelemetrySettings>) -> Self {
        let contexts = TraceContexts::of_recorded_run();
        let contexts = match settings.content.is_on() {
            true => contexts.with_request_input(),
            false => contexts,
        };
        let description = RunDescription {
            agent_name: None,
            conversation_id: None,
            parent: None,
            links: Vec::new(),
            options: Vec::new(),
            history: History::empty(""),
            contexts,
        };
        Self { settings, description, state: RunState::NotStarted }
    }

    /// Sets the agent's name, which is part of the name of the run's span.
    pub fn with_agent_name(mut self, name: impl Into<String>) -> Self {
        self.description.agent_name = Some(name.into());
        self
    }

    /// Sets the id of the conversation to which the run belongs, for example the name of its
    /// session. An empty id has no effect.
    pub fn with_conversation_id(mut self, id: impl Into<String>) -> Self {
        self.description.conversation_id = Some(id.into()).filter(|id| !id.is_empty());
        self
    }

    /// Sets the parent of the run's span, for example from the headers of a server's request.
    pub fn with_parent(mut self, parent: &TraceContext) -> Self {
        self.description.parent = Some(to_span_context(parent));
        self
    }

    /// Links the run's span to another span, for example to the span of the run that this run
    /// continues.
    pub fn with_link(mut self, linked: &TraceContext) -> Self {
        self.description.links.push(to_span_context(linked));
        self
    }

    /// Sets the options of the run's requests, for example the agent's
    /// [`options`](turnstream::Agent::options). They are attributes of the run and of each of its
    /// requests, but not of the requests of sub-agents.
    pub fn with_options(mut self, options: &Options) -> Self {
        self.description.options = request_attributes(options);
        self
    }

    /// Sets the history with which the run starts. If content is recorded, it is part of the
    /// messages of requests, unless these are known from the run's [contexts](Self::contexts).
    pub fn with_history(mut self, history: History) -> Self {
        self.description.history = history;
        self
    }

    /// Returns the contexts of the run's spans. If they are part of the
    /// [run's data](turnstream::Run::with_data), the context of a request is sent to the model's
    /// server, and a tool can continue the trace; see
    /// [`ToolContext::trace_context`](turnstream::tool::ToolContext::trace_context). If content is
    /// recorded, the messages of a request are then those that the agent's hooks have returned.
    pub fn contexts(&self) -> TraceContexts {
        self.description.contexts.clone()
    }

    /// Starts the run's span, if it has not started yet. The span otherwise starts with the first
    /// event.
    pub(crate) fn start(&mut self) {
        if let RunState::NotStarted = self.state {
            self.start_span(RunProgress::new(self.description.history.clone()));
        }
    }

    /// Adds an event that repeats a step which an earlier attempt at a durable run has recorded.
    /// That attempt has emitted the step's spans, so nothing is emitted. The run's span starts with
    /// the first new event.
    pub(crate) fn observe_repeated(&mut self, event: &Event) {
        if let RunState::NotStarted = self.state {
            let progress = RunProgress::new(self.description.history.clone());
            self.state = RunState::Repeating(Box::new(progress));
        }
        if let RunState::Repeating(progress) = &mut self.state {
            progress.observe_repeated(event);
        }
    }

    /// Processes the next event. An event after [`Finished`](Event::Finished) starts the span of
    /// another run.
    pub fn observe(&mut self, event: &Event) {
        match (&mut self.state, event) {
            (_, Event::Unknown) | (RunState::Ended, _) => {}
            (RunState::NotStarted | RunState::BetweenRuns, event) => {
                self.start_span(RunProgress::new(self.description.history.clone()));
                self.observe(event);
            }
            (RunState::Repeating(progress), event) => {
                let progress = RunProgress::clone(progress);
                self.start_span(progress);
                self.observe(event);
            }
            (RunState::Running(_), Event::Finished(outcome)) => {
                let running = std::mem::replace(&mut self.state, RunState::BetweenRuns);
                if let RunState::Running(agent) = running {
                    agent.finish(outcome);
                }
            }
            (RunState::Running(agent), event) => agent.observe(event),
        }
    }

    /// Ends all open spans because the stream of events has failed. An error that follows
    /// [`Finished`](Event::Finished) is already part of the run's outcome, and changes nothing.
    pub fn fail(&mut self, error: &Error) {
        self.end(Some(error.kind().as_str()));
    }

    /// Ends all open spans because the stream of events has ended. Events observed later have no
    /// effect.
    pub fn end_of_events(&mut self) {
        self.end(None);
        self.state = RunState::Ended;
    }

    /// Returns the context of the run's span, if the span is open, so that a program's own spans
    /// can be its children.
    pub fn context(&self) -> Option<TraceContext> {
        match &self.state {
            RunState::Running(agent) => to_trace_context(agent.context()),
            RunState::NotStarted
            | RunState::Repeating(_)
            | RunState::BetweenRuns
            | RunState::Ended => None,
        }
    }

    fn end(&mut self, error_type: Option<&str>) {
        if let RunState::Running(agent) = std::mem::replace(&mut self.state, RunState::BetweenRuns)
        {
            agent.end_without_outcome(error_type);
        }
    }

    fn start_span(&mut self, before: RunProgress) {
        let RunDescription {
            agent_name,
            conversation_id,
            parent,
            links,
            options,
            contexts,
            history: _,
        } = &self.description;
        let conversation = conversation_id
            .as_ref()
            .map(|id| KeyValue::new(attribute::CONVERSATION_ID, id.clone()));
        let agent = AgentSpan::start(
            &self.settings,
            AgentStart {
                name: agent_name.clone(),
                parent: parent.as_ref(),
                links: links.clone(),
                shared: conversation.into_iter().collect(),
                options: options.clone(),
                contexts: contexts.clone(),
                before,
                at: self.settings.clock.now(),
            },
        );
        contexts.set_current(to_trace_context(agent.context()));
        self.state = RunState::Running(Box::new(agent));
    }
}

/// Ends all open spans.
impl Drop for RunTelemetry {
    fn drop(&mut self) {
        self.end(Some(error_type::CANCELLED));
    }
}

impl fmt::Debug for RunTelemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            RunState::NotStarted => "NotStarted",
            RunState::Repeating(_) => "Repeating",
            RunState::Running(_) => "Running",
            RunState::BetweenRuns => "BetweenRuns",
            RunState::Ended => "Ended",
        };
        f.debug_struct("RunTelemetry").field("state", &state).finish_non_exhaustive()
    }
}
