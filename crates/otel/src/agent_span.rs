//! The span of a run, and of what happens in the run.

use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanContext, SpanKind};
use turnstream::error::{Error, ErrorKind};
use turnstream::event::{EndReason, Event, Outcome, RewriteReason, ToolEvent, Transition};
use turnstream::item::{History, PendingCall, ResultKind, ToolResult};
use turnstream::propagation::TraceContexts;
use turnstream::usage::Usage;

use crate::chat_span::{elapsed, to_i64};
use crate::instruments::AgentRecord;
use crate::names::{Conventions, attribute, error_type, event, operation, value};
use crate::outcome_attributes::outcome_attributes;
use crate::request_attributes::is_option_of_run;
use crate::request_spans::{HelperRequest, RequestSpans, RequestsStart};
use crate::run_progress::RunProgress;
use crate::settings::TelemetrySettings;
use crate::span::{OpenSpan, SpanStart, to_trace_context};
use crate::tool_span::{ToolSpan, ToolStart};

/// The open span of a run or of a sub-agent's run, with the open spans below it.
pub(crate) struct AgentSpan {
    settings: Arc<TelemetrySettings>,
    span: OpenSpan,
    name: Option<String>,
    /// The attributes of all spans of requests and runs, those of sub-agents included.
    shared: Arc<[KeyValue]>,
    contexts: TraceContexts,
    requests: RequestSpans,
    calls: Vec<OpenCall>,
    /// The number of calls that have run and ended.
    executed_calls: u64,
    model: RequestedModel,
}

/// The model of a run's announced requests.
enum RequestedModel {
    /// No request has been announced.
    Unknown,
    One(String),
    /// The conventions have no name for several models.
    Several,
}

impl RequestedModel {
    fn add(&mut self, model: &str) {
        match self {
            Self::Unknown => *self = Self::One(model.to_owned()),
            Self::One(known) if known != model => *self = Self::Several,
            Self::One(_) | Self::Several => {}
        }
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::One(name) => Some(name),
            Self::Unknown | Self::Several => None,
        }
    }
}

/// A call that is waiting or running.
struct OpenCall {
    call_id: String,
    state: CallState,
}

enum CallState {
    AwaitingVerdict {
        name: String,
        /// The time of the question; `None` if an earlier attempt at the run has asked it.
        since: Option<SystemTime>,
    },
    Running {
        span: ToolSpan,
        sub_agent: Option<Box<AgentSpan>>,
    },
}

/// The description of a run.
pub(crate) struct AgentStart<'a> {
    pub(crate) name: Option<String>,
    pub(crate) parent: Option<&'a SpanContext>,
    pub(crate) links: Vec<SpanContext>,
    /// The attributes of all spans of requests and runs, those of sub-agents included.
    pub(crate) shared: Arc<[KeyValue]>,
    /// The attributes that describe the options of the run's own requests.
    pub(crate) options: Vec<KeyValue>,
    pub(crate) contexts: TraceContexts,
    pub(crate) before: RunProgress,
    pub(crate) at: SystemTime,
}

impl AgentSpan {
    pub(crate) fn start(settings: &Arc<TelemetrySettings>, start: AgentStart<'_>) -> Self {
        let AgentStart { name, parent, links, shared, options, contexts, before, at } = start;
        let agent_name = name.clone().map(|name| KeyValue::new(attribute::AGENT_NAME, name));
        let mut attributes: Vec<_> = agent_name.into_iter().collect();
        attributes.extend(shared.iter().cloned());
        let of_runs = options.iter().filter(|it| is_option_of_run(it.key.as_str()));
        attributes.extend(of_runs.cloned());
        let span_name = match &name {
            Some(name) => format!("{} {name}", operation::INVOKE_AGENT).into(),
            None => operation::INVOKE_AGENT.into(),
        };
        let span_start = SpanStart {
            operation: operation::INVOKE_AGENT,
            name: span_name,
            kind: SpanKind::Internal,
            parent,
            links,
            attributes,
            at,
        };
        let span = OpenSpan::start(settings, span_start);
        let awaiting = before.awaiting_calls.iter().map(|call| {
            let state = CallState::AwaitingVerdict { name: call.name.clone(), since: None };
            OpenCall { call_id: call.call_id.clone(), state }
        });
        let calls = awaiting.collect();
        let requests = RequestSpans::new(
            settings,
            RequestsStart {
                parent: span.context().clone(),
                attributes: shared.iter().cloned().chain(options).collect(),
                contexts: contexts.clone(),
                before,
                at,
            },
        );
        let settings = Arc::clone(settings);
        Self {
            settings,
            span,
            name,
            shared,
            contexts,
            requests,
            calls,
            executed_calls: 0,
            model: RequestedModel::Unknown,
        }
    }

    pub(crate) fn context(&self) -> &SpanContext {
        self.span.context()
    }

    /// Processes an event. [`Event::Finished`] is processed by [`finish`](Self::finish).
    pub(crate) fn observe(&mut self, event: &Event) {
        match event {
            Event::Turn(turn) => self.requests.on_turn_event(turn),
            Event::Nested { call_id, name, event } => self.on_nested(call_id, name, event),
            Event::Tool(ToolEvent::Nested { call_id, name, event }) => {
                self.on_nested(call_id, name, event);
            }
            Event::TurnStarted { turn, model, transition } => {
                self.on_turn_started(*turn, model, *transition);
            }
            Event::Tool(tool) => self.on_tool_event(tool),
            Event::Rewritten { why, from, to, items, usage, model } => {
                if **usage != Usage::default() {
                    self.on_compaction_request(model.as_deref(), **usage, event.is_rewrite());
                }
                self.on_rewritten(*why, to - from, items.len());
            }
            Event::HelperUsage { purpose, model, usage } => {
                self.requests.record_helper(&HelperRequest {
                    purpose,
                    model: model.as_deref().unwrap_or_default(),
                    usage: **usage,
                    succeeded: true,
                    ended_at: self.settings.clock.now(),
                });
            }
            Event::Continued { reason } => {
                let now = self.settings.clock.now();
                self.requests.give_up(error_type_of(*reason), now);
                self.requests.on_other_event(now);
            }
            _ => self.requests.on_other_event(self.settings.clock.now()),
        }
        // The input of a request does not include the response.
        self.requests.add_to_history(event);
    }

    fn on_turn_started(&mut self, turn: u32, model: &str, transition: Option<Transition>) {
        let now = self.settings.clock.now();
        self.requests.give_up(error_type::OTHER, now);
        self.record_pool_wait(now);
        let mut attributes = vec![KeyValue::new(attribute::own::TURN, i64::from(turn))];
        if let Some(transition) = transition {
            attributes.push(KeyValue::new(attribute::own::TRANSITION, transition.to_string()));
        }
        self.model.add(model);
        self.requests.start(model, attributes, now);
    }

    fn record_pool_wait(&mut self, now: SystemTime) {
        if let Some(wait) = self.contexts.take_pool_wait() {
            let wait = KeyValue::new(attribute::own::WAIT_DURATION, wait.as_secs_f64());
            self.span.add_event(event::POOL_WAIT, now, vec![wait]);
        }
    }

    fn on_compaction_request(&mut self, model: Option<&str>, usage: Usage, succeeded: bool) {
        self.requests.record_helper(&HelperRequest {
            purpose: value::COMPACTION,
            model: model.unwrap_or_default(),
            usage,
            succeeded,
            ended_at: self.settings.clock.now(),
        });
    }

    fn on_rewritten(&mut self, why: RewriteReason, replaced: usize, by: usize) {
        let now = self.settings.clock.now();
        if replaced > 0 || by > 0 {
            let name = match why {
                RewriteReason::Tombstoned => event::TOMBSTONED,
                RewriteReason::ReasoningRefused => event::REASONING_DROPPED,
                _ => event::COMPACTED,
            };
            if name == event::COMPACTED {
                self.requests.on_compacted();
            }
            let attributes = vec![
                KeyValue::new(attribute::own::REPLACED_COUNT, to_i64(replaced as u64)),
                KeyValue::new(attribute::own::ITEM_COUNT, to_i64(by as u64)),
            ];
            self.span.add_event(name, now, attributes);
        }
        self.requests.on_other_event(now);
    }

    fn on_tool_event(&mut self, event: &ToolEvent) {
        let now = self.settings.clock.now();
        match event {
            ToolEvent::ApprovalRequested(call) => self.on_approval_requested(call, now),
            ToolEvent::Started { call_id, name, arguments, grant_id } => {
                self.start_call(call_id, name, Some(arguments), grant_id.as_deref(), now);
            }
            ToolEvent::Suspended { call_id, .. } => {
                if let Some(CallState::Running { span, sub_agent }) = self.take_call(call_id) {
                    end_sub_agent(sub_agent, error_type::CANCELLED);
                    span.suspend(now);
                }
            }
            ToolEvent::Output(result) => self.on_result(result, now),
            _ => {}
        }
        self.requests.on_other_event(now);
    }

    fn on_approval_requested(&mut self, call: &PendingCall, now: SystemTime) {
        let attributes = call_attributes(&call.call_id, Some(&call.name));
        self.span.add_event(event::APPROVAL_REQUESTED, now, attributes);
        // A call for which an approval is requested again has waited all the time.
        if self.calls.iter().all(|open| open.call_id != call.call_id) {
            let state = CallState::AwaitingVerdict { name: call.name.clone(), since: Some(now) };
            self.calls.push(OpenCall { call_id: call.call_id.clone(), state });
        }
    }

    fn start_call(
        &mut self,
        call_id: &str,
        name: &str,
        arguments: Option<&str>,
        grant_id: Option<&str>,
        at: SystemTime,
    ) {
        match self.take_call(call_id) {
            Some(CallState::AwaitingVerdict { name, since }) => {
                self.record_approval(call_id, &name, since, value::APPROVED, at);
            }
            // The call starts again, for example because an engine has restored the run.
            Some(CallState::Running { span, sub_agent }) => {
                end_sub_agent(sub_agent, error_type::CANCELLED);
                span.fail(error_type::CANCELLED, at);
            }
            None => {}
        }
        let start = ToolStart {
            parent: self.span.context(),
            agent_name: self.name.as_deref(),
            shared: &self.shared,
            call_id,
            name,
            arguments,
            grant_id,
            at,
        };
        let span = ToolSpan::start(&self.settings, start);
        self.contexts.of_call(call_id).set_current(to_trace_context(span.context()));
        let state = CallState::Running { span, sub_agent: None };
        self.calls.push(OpenCall { call_id: call_id.to_owned(), state });
    }

    fn on_result(&mut self, result: &ToolResult, now: SystemTime) {
        let ToolResult { call_id, name, kind, .. } = result;
        match self.take_call(call_id) {
            Some(CallState::Running { span, sub_agent }) => {
                end_sub_agent(sub_agent, kind.as_str());
                self.executed_calls += 1;
                span.complete(result, now);
                return;
            }
            Some(CallState::AwaitingVerdict { since, .. }) => {
                let decision = match kind {
                    ResultKind::Denied => value::DENIED,
                    ResultKind::Interrupted => value::PENDING,
                    _ => value::ANSWERED,
                };
                self.record_approval(call_id, name, since, decision, now);
            }
            None => {}
        }
        // The model has invented the name of an unknown tool, which may quote the conversation.
        let name = (*kind != ResultKind::UnknownTool).then_some(&**name);
        let mut attributes = call_attributes(call_id, name);
        attributes.push(KeyValue::new(attribute::own::TOOL_RESULT_KIND, kind.as_str()));
        self.span.add_event(event::TOOL_NOT_RUN, now, attributes);
    }

    fn record_approval(
        &mut self,
        call_id: &str,
        name: &str,
        since: Option<SystemTime>,
        decision: &'static str,
        now: SystemTime,
    ) {
        let mut attributes = call_attributes(call_id, Some(name));
        attributes.push(KeyValue::new(attribute::own::APPROVAL_DECISION, decision));
        let waited = since.map(|since| elapsed(since, now).as_secs_f64());
        attributes.extend(waited.map(|it| KeyValue::new(attribute::own::WAIT_DURATION, it)));
        self.span.add_event(event::APPROVAL_WAIT, now, attributes);
    }

    fn on_nested(&mut self, call_id: &str, name: &str, event: &Event) {
        let is_running = |open: &OpenCall| {
            open.call_id == call_id && matches!(open.state, CallState::Running { .. })
        };
        let at = match self.calls.iter().position(is_running) {
            Some(at) => at,
            None => {
                self.start_call(call_id, name, None, None, self.settings.clock.now());
                self.calls.len() - 1
            }
        };
        let CallState::Running { span, sub_agent } = &mut self.calls[at].state else { return };
        let agent = sub_agent.get_or_insert_with(|| {
            let start = AgentStart {
                name: Some(name.to_owned()),
                parent: Some(span.context()),
                links: Vec::new(),
                shared: Arc::clone(&self.shared),
                options: Vec::new(),
                contexts: self.contexts.of_call(call_id),
                before: RunProgress::new(History::empty("")),
                at: self.settings.clock.now(),
            };
            Box::new(Self::start(&self.settings, start))
        });
        match event {
            Event::Finished(outcome) => {
                if let Some(agent) = sub_agent.take() {
                    agent.finish(outcome);
                }
            }
            event => agent.observe(event),
        }
    }

    fn take_call(&mut self, call_id: &str) -> Option<CallState> {
        let at = self.calls.iter().position(|open| open.call_id == call_id)?;
        let OpenCall { call_id, state } = self.calls.remove(at);
        self.contexts.remove_call(&call_id);
        Some(state)
    }

    /// Ends the span of a run with this outcome.
    pub(crate) fn finish(mut self, outcome: &Outcome) {
        let now = self.settings.clock.now();
        let error = outcome.error.as_ref().map(Error::kind);
        let unfinished = error.map_or(outcome.reason.as_str(), ErrorKind::as_str);
        self.requests.finish(outcome, unfinished, now);
        self.end_calls(unfinished, now);
        let lane = self.contexts.take_interrupt_lane();
        for attribute in outcome_attributes(outcome, lane) {
            self.span.set(attribute);
        }
        let error_type = match (error, outcome.reason) {
            (Some(kind), _) => Some(kind.as_str()),
            (None, EndReason::Interrupted(_)) => Some(outcome.reason.as_str()),
            (None, _) => None,
        };
        self.end(error_type, now);
    }

    /// Ends the span of a run that has no outcome. `error_type` is `None` if the stream of events
    /// has ended without an error.
    pub(crate) fn end_without_outcome(mut self, error_type: Option<&str>) {
        let now = self.settings.clock.now();
        let unfinished = error_type.unwrap_or(error_type::CANCELLED);
        self.requests.give_up(unfinished, now);
        self.end_calls(unfinished, now);
        self.end(error_type, now);
    }

    fn end_calls(&mut self, error_type: &str, now: SystemTime) {
        for OpenCall { call_id, state } in std::mem::take(&mut self.calls) {
            self.contexts.remove_call(&call_id);
            match state {
                CallState::AwaitingVerdict { name, since } => {
                    self.record_approval(&call_id, &name, since, value::PENDING, now);
                }
                CallState::Running { span, sub_agent } => {
                    end_sub_agent(sub_agent, error_type);
                    self.executed_calls += 1;
                    span.fail(error_type, now);
                }
            }
        }
    }

    fn end(mut self, error_type: Option<&str>, now: SystemTime) {
        self.record_pool_wait(now);
        if let Some(model) = self.model.name() {
            self.span.set(KeyValue::new(attribute::REQUEST_MODEL, model.to_owned()));
        }
        if self.settings.conventions == Conventions::General1_41 {
            // These conventions require a provider of each run.
            let model = self.model.name().unwrap_or_default();
            let provider = (self.settings.provider_of_model)(model);
            self.span.set(KeyValue::new(attribute::PROVIDER_NAME, provider));
        }
        self.settings.instruments.record_agent(&AgentRecord {
            duration: elapsed(self.span.started_at(), now),
            inference_calls: self.requests.count(),
            tool_calls: self.executed_calls,
            name: self.name.as_deref(),
            model: self.model.name(),
            error_type,
        });
        self.span.end(now, error_type);
    }
}

/// Ends the span of a sub-agent whose call ended first.
fn end_sub_agent(sub_agent: Option<Box<AgentSpan>>, error_type: &str) {
    if let Some(agent) = sub_agent {
        agent.end_without_outcome(Some(error_type));
    }
}

/// Returns the attributes of a call. `name` is `None` if no tool has the name.
fn call_attributes(call_id: &str, name: Option<&str>) -> Vec<KeyValue> {
    let name = name.map(|name| KeyValue::new(attribute::TOOL_NAME, name.to_owned()));
    let id = KeyValue::new(attribute::TOOL_CALL_ID, call_id.to_owned());
    name.into_iter().chain([id]).collect()
}

/// Returns the error after which a run continues for this reason.
fn error_type_of(reason: Transition) -> &'static str {
    match reason {
        Transition::ReactiveCompactRetry => ErrorKind::ContextWindow.as_str(),
        Transition::ReasoningRefused => ErrorKind::ReasoningRefused.as_str(),
        _ => error_type::OTHER,
    }
}
