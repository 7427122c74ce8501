//! The span of a run, and of what happens in the run.

use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanContext, SpanKind};
use turnstream::Journal;
use turnstream::error::{Error, ErrorKind};
use turnstream::event::{
    BudgetKind, EndReason, Event, InterruptedPhase, Outcome, RewriteReason, ToolEvent, Transition,
};
use turnstream::item::{History, PendingCall, ResultKind, ToolResult};
use turnstream::propagation::TraceContexts;
use turnstream::request::{Options, Output};
use turnstream::turn::{Turn, TurnEvent};
use turnstream::usage::Usage;

use crate::chat_span::{ChatSpan, ChatStart, elapsed, to_i64};
use crate::content::{ContentKind, messages};
use crate::names::{attribute, error_type, event, operation, value};
use crate::settings::TelemetrySettings;
use crate::span::{OpenSpan, SpanStart, to_trace_context};
use crate::tool_span::{ToolSpan, ToolStart};

/// The open span of a run or of a sub-agent's run, with the open spans below it.
pub(crate) struct AgentSpan {
    settings: Arc<TelemetrySettings>,
    span: OpenSpan,
    name: Option<String>,
    /// The attributes of every request.
    request_attributes: Arc<[KeyValue]>,
    contexts: TraceContexts,
    phase: Phase,
    calls: Vec<OpenCall>,
    totals: Totals,
    /// Whether the history was compacted.
    is_compacted: bool,
    /// The history; `None` if content is not recorded.
    journal: Option<Journal>,
    /// The time of the last event that is not part of a response.
    last_event_at: SystemTime,
}

/// The state of the request for the next turn.
enum Phase {
    /// No request has been announced since the last turn.
    BetweenRequests,
    /// A request was announced, and its turn is not complete.
    Requesting { chat: Box<ChatSpan>, model: String },
    /// The turn was retracted. Its provider asks again, or the run announces another request. The
    /// span of the failed request is open if its error may follow.
    Retracted { failed: Option<Box<ChatSpan>>, model: String, at: SystemTime },
}

/// A call that is waiting or running.
struct OpenCall {
    call_id: String,
    state: CallState,
}

enum CallState {
    AwaitingVerdict { name: String, since: SystemTime },
    Running { span: ToolSpan, sub_agent: Option<Box<AgentSpan>> },
}

/// The requests and calls of the run that have ended.
#[derive(Default)]
struct Totals {
    requests: u64,
    executed_calls: u64,
    usage: Usage,
}

/// The description of a run.
pub(crate) struct AgentStart<'a> {
    pub(crate) name: Option<String>,
    pub(crate) parent: Option<&'a SpanContext>,
    pub(crate) links: Vec<SpanContext>,
    pub(crate) attributes: Vec<KeyValue>,
    pub(crate) request_attributes: Arc<[KeyValue]>,
    pub(crate) contexts: TraceContexts,
    /// The history at the start of the run.
    pub(crate) history: History,
    pub(crate) at: SystemTime,
}

impl AgentSpan {
    pub(crate) fn start(settings: &Arc<TelemetrySettings>, start: AgentStart<'_>) -> Self {
        let AgentStart { name, parent, links, attributes: more, request_attributes, .. } = start;
        let mut attributes =
            vec![KeyValue::new(attribute::OPERATION_NAME, operation::INVOKE_AGENT)];
        attributes.extend(name.clone().map(|name| KeyValue::new(attribute::AGENT_NAME, name)));
        attributes.extend(more);
        let span_name = match &name {
            Some(name) => format!("{} {name}", operation::INVOKE_AGENT).into(),
            None => operation::INVOKE_AGENT.into(),
        };
        let span = OpenSpan::start(
            &settings.tracer,
            SpanStart {
                name: span_name,
                kind: SpanKind::Internal,
                parent,
                links,
                attributes,
                at: start.at,
            },
        );
        let contexts = start.contexts;
        let journal = settings.content.is_on().then(|| Journal::new(start.history));
        Self {
            settings: Arc::clone(settings),
            span,
            name,
            request_attributes,
            contexts,
            phase: Phase::BetweenRequests,
            calls: Vec::new(),
            totals: Totals::default(),
            is_compacted: false,
            journal,
            last_event_at: start.at,
        }
    }

    pub(crate) fn context(&self) -> &SpanContext {
        self.span.context()
    }

    /// Processes an event. [`Event::Finished`] is processed by [`finish`](Self::finish).
    pub(crate) fn observe(&mut self, event: &Event) {
        match event {
            Event::Turn(turn) => self.on_turn_event(turn),
            Event::Nested { call_id, name, event } => self.on_nested(call_id, name, event),
            Event::Tool(ToolEvent::Nested { call_id, name, event }) => {
                self.on_nested(call_id, name, event);
            }
            Event::TurnStarted { turn, model, transition } => {
                self.on_turn_started(*turn, model, *transition);
            }
            Event::Tool(tool) => self.on_tool_event(tool),
            Event::Rewritten { why, from, to, items, usage } => {
                self.on_rewritten(*why, to - from, items.len(), **usage);
            }
            Event::HelperUsage { purpose, model, usage } => {
                let now = self.settings.clock.now();
                let model = model.as_deref().unwrap_or_default();
                self.record_helper(purpose.clone(), model, **usage, true, now);
                self.last_event_at = now;
            }
            Event::Continued { reason } => self.on_continued(*reason),
            _ => self.last_event_at = self.settings.clock.now(),
        }
        // The input of a request does not include the response.
        if let Some(journal) = &self.journal {
            journal.observe(event);
        }
    }

    fn on_turn_started(&mut self, turn: u32, model: &str, transition: Option<Transition>) {
        let now = self.settings.clock.now();
        self.give_up_request(error_type::OTHER, now);
        if let Some(wait) = self.contexts.take_pool_wait() {
            let wait = KeyValue::new(attribute::own::WAIT_DURATION, wait.as_secs_f64());
            self.span.add_event(event::POOL_WAIT, now, vec![wait]);
        }
        let mut attributes = vec![KeyValue::new(attribute::own::TURN, i64::from(turn))];
        if let Some(transition) = transition {
            attributes.push(KeyValue::new(attribute::own::TRANSITION, transition.to_string()));
        } else {
            self.span.set(KeyValue::new(attribute::REQUEST_MODEL, model.to_owned()));
        }
        self.start_request(model, attributes, now);
    }

    fn start_request(&mut self, model: &str, mut attributes: Vec<KeyValue>, at: SystemTime) {
        attributes.push(KeyValue::new(attribute::REQUEST_STREAM, true));
        attributes.extend(self.request_attributes.iter().cloned());
        if self.is_compacted {
            attributes.push(KeyValue::new(attribute::CONVERSATION_COMPACTED, true));
        }
        let start = ChatStart { parent: self.span.context(), model, attributes, at };
        let mut chat = ChatSpan::start(&self.settings, start);
        self.contexts.set_request(to_trace_context(chat.context()));
        if let Some(journal) = self.journal.as_ref().filter(|_| chat.is_recording()) {
            let history = journal.history();
            let content = &self.settings.content;
            let input = content.record(ContentKind::InputMessages, || messages(history.iter()));
            if let Some(input) = input {
                chat.set(KeyValue::new(attribute::INPUT_MESSAGES, input));
            }
        }
        self.phase = Phase::Requesting { chat: Box::new(chat), model: model.to_owned() };
        self.last_event_at = at;
    }

    /// Returns the span of the request to which an event of a turn belongs. A provider that has
    /// retracted a turn asks again without an announcement, and a hand-written loop announces none
    /// of its requests.
    fn open_chat(&mut self) -> &mut ChatSpan {
        match &mut self.phase {
            Phase::Requesting { .. } => {}
            Phase::Retracted { model, at, .. } => {
                let (model, at) = (std::mem::take(model), *at);
                self.end_retracted(error_type::RETRACTED);
                self.start_request(&model, Vec::new(), at);
            }
            Phase::BetweenRequests => self.start_request("", Vec::new(), self.last_event_at),
        }
        match &mut self.phase {
            Phase::Requesting { chat, .. } => chat,
            // Invariant: `start_request` has set the phase.
            Phase::BetweenRequests | Phase::Retracted { .. } => unreachable!(),
        }
    }

    #[inline]
    fn on_turn_event(&mut self, event: &TurnEvent) {
        match event {
            TurnEvent::TextDelta { .. }
            | TurnEvent::ReasoningDelta { .. }
            | TurnEvent::RefusalDelta { .. }
            | TurnEvent::ToolCallStart { .. }
            | TurnEvent::ToolCallArgsDelta { .. }
            | TurnEvent::ToolCallEnd { .. } => self.open_chat().on_chunk(),
            TurnEvent::UsageUpdate { usage } => self.open_chat().set_usage(*usage),
            TurnEvent::Retrying { attempt, delay_ms, error } => {
                self.end_retracted(error.kind().as_str());
                self.open_chat().on_retry(*attempt, *delay_ms, error);
            }
            TurnEvent::Retracted { usage, .. } => self.on_retracted(**usage),
            TurnEvent::TurnComplete { turn } => self.on_turn_complete(turn),
            _ => {}
        }
    }

    fn on_turn_complete(&mut self, turn: &Turn) {
        let now = self.settings.clock.now();
        self.open_chat();
        if let Some((chat, _)) = self.take_request() {
            self.totals.add_request(turn.usage());
            chat.complete(turn, now);
        }
        self.last_event_at = now;
    }

    fn on_retracted(&mut self, usage: Usage) {
        let now = self.settings.clock.now();
        self.open_chat();
        if let Some((mut chat, model)) = self.take_request() {
            chat.set_usage(usage);
            self.totals.add_request(usage);
            let failed = match self.contexts.take_request_error() {
                Some(kind) => {
                    chat.fail(kind.as_str(), now);
                    None
                }
                None => Some(Box::new(chat)),
            };
            self.phase = Phase::Retracted { failed, model, at: now };
        }
        self.last_event_at = now;
    }

    /// Ends the span of a request whose turn was retracted.
    fn end_retracted(&mut self, error_type: &str) {
        if let Phase::Retracted { failed, at, .. } = &mut self.phase
            && let Some(chat) = failed.take()
        {
            chat.fail(error_type, *at);
        }
    }

    fn on_continued(&mut self, reason: Transition) {
        let now = self.settings.clock.now();
        self.give_up_request(error_type_of(reason), now);
        self.last_event_at = now;
    }

    /// Ends the span of a request whose turn failed before it had any output to retract.
    fn give_up_request(&mut self, error_type: &str, at: SystemTime) {
        let kind = match self.contexts.take_request_error() {
            Some(kind) => kind.as_str(),
            None => error_type,
        };
        if let Some((chat, _)) = self.take_request() {
            self.totals.add_request(chat.usage());
            chat.fail(kind, at);
        }
    }

    /// Takes the request that is in progress, and its model.
    fn take_request(&mut self) -> Option<(ChatSpan, String)> {
        self.end_retracted(error_type::RETRACTED);
        self.contexts.set_request(None);
        match std::mem::replace(&mut self.phase, Phase::BetweenRequests) {
            Phase::Requesting { chat, model } => Some((*chat, model)),
            Phase::BetweenRequests | Phase::Retracted { .. } => None,
        }
    }

    fn on_rewritten(&mut self, why: RewriteReason, replaced: usize, by: usize, usage: Usage) {
        let now = self.settings.clock.now();
        let is_rewrite = replaced > 0 || by > 0;
        if usage != Usage::default() {
            self.record_helper(value::COMPACTION.to_owned(), "", usage, is_rewrite, now);
        }
        if is_rewrite {
            let name = match why {
                RewriteReason::Tombstoned => event::TOMBSTONED,
                RewriteReason::ReasoningRefused => event::REASONING_DROPPED,
                _ => event::COMPACTED,
            };
            self.is_compacted |= name == event::COMPACTED;
            let attributes = vec![
                KeyValue::new(attribute::own::REPLACED_COUNT, to_i64(replaced as u64)),
                KeyValue::new(attribute::own::ITEM_COUNT, to_i64(by as u64)),
            ];
            self.span.add_event(name, now, attributes);
        }
        self.last_event_at = now;
    }

    /// Records the requests of a compaction or of a hook as a single span, since the events contain
    /// only the sum of their usage. The requests were sent after the previous event.
    fn record_helper(
        &mut self,
        purpose: String,
        model: &str,
        usage: Usage,
        succeeded: bool,
        now: SystemTime,
    ) {
        let mut attributes = vec![KeyValue::new(attribute::own::REQUEST_PURPOSE, purpose)];
        attributes.extend(self.request_attributes.iter().cloned());
        let at = self.last_event_at;
        let start = ChatStart { parent: self.span.context(), model, attributes, at };
        let mut chat = ChatSpan::start(&self.settings, start);
        chat.set_usage(usage);
        self.totals.add_request(usage);
        match succeeded {
            true => chat.end_unobserved(now),
            false => chat.fail(error_type::COMPACTION_FAILED, now),
        }
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
        self.last_event_at = now;
    }

    fn on_approval_requested(&mut self, call: &PendingCall, now: SystemTime) {
        let attributes = call_attributes(&call.call_id, &call.name);
        self.span.add_event(event::APPROVAL_REQUESTED, now, attributes);
        // A call for which an approval is requested again has waited all the time.
        if self.calls.iter().all(|open| open.call_id != call.call_id) {
            let state = CallState::AwaitingVerdict { name: call.name.clone(), since: now };
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
                self.totals.executed_calls += 1;
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
        let mut attributes = call_attributes(call_id, name);
        attributes.push(KeyValue::new(attribute::own::TOOL_RESULT_KIND, kind.as_str()));
        self.span.add_event(event::TOOL_NOT_RUN, now, attributes);
    }

    fn record_approval(
        &mut self,
        call_id: &str,
        name: &str,
        since: SystemTime,
        decision: &'static str,
        now: SystemTime,
    ) {
        let mut attributes = call_attributes(call_id, name);
        attributes.push(KeyValue::new(attribute::own::APPROVAL_DECISION, decision));
        let waited = elapsed(since, now).as_secs_f64();
        attributes.push(KeyValue::new(attribute::own::WAIT_DURATION, waited));
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
                attributes: Vec::new(),
                request_attributes: Arc::clone(&self.request_attributes),
                contexts: self.contexts.of_call(call_id),
                history: History::empty(""),
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
        if let Some((mut chat, _)) = self.take_request() {
            // No event contains the usage of a turn that the run's end has cut off.
            let usage = outcome.usage - self.totals.usage;
            chat.set_usage(usage);
            self.totals.add_request(usage);
            chat.fail(unfinished, now);
        }
        self.end_calls(unfinished, now);
        self.set_outcome(outcome);
        let error_type = match (error, outcome.reason) {
            (Some(kind), _) => Some(kind.as_str()),
            (None, EndReason::Interrupted(_)) => Some(outcome.reason.as_str()),
            (None, _) => None,
        };
        self.end(error_type, now);
    }

    fn set_outcome(&mut self, outcome: &Outcome) {
        let own = [
            KeyValue::new(attribute::own::REASON, outcome.reason.as_str()),
            KeyValue::new(attribute::own::PARTIAL, outcome.partial),
            KeyValue::new(attribute::own::TURN_COUNT, i64::from(outcome.turns)),
        ];
        for attribute in own {
            self.span.set(attribute);
        }
        if let EndReason::Interrupted(phase) = outcome.reason {
            let phase = match phase {
                InterruptedPhase::Tools => "tools",
                _ => "streaming",
            };
            self.span.set(KeyValue::new(attribute::own::INTERRUPTED_PHASE, phase));
        }
        let counts = [
            (attribute::own::PENDING_COUNT, outcome.pending.len()),
            (attribute::own::UNDELIVERED_COUNT, outcome.undelivered.len()),
            (attribute::own::EVIDENCE_COUNT, outcome.evidence.len()),
        ];
        for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            self.span.set(KeyValue::new(name, to_i64(count as u64)));
        }
        if outcome.proof.is_some() {
            self.span.set(KeyValue::new(attribute::own::EVIDENCE_PROVEN, true));
        }
        if let Some(cost) = outcome.cost {
            self.span.set(KeyValue::new(attribute::own::COST_MICROS, to_i64(cost)));
        }
        if let Some(budget) = &outcome.budget {
            let kind = budget_kind(budget.kind);
            self.span.set(KeyValue::new(attribute::own::BUDGET_KIND, kind));
            self.span.set(KeyValue::new(attribute::own::BUDGET_USED, to_i64(budget.used)));
            self.span.set(KeyValue::new(attribute::own::BUDGET_LIMIT, to_i64(budget.limit)));
        }
    }

    /// Ends the span of a run that has no outcome. `error_type` is `None` if the stream of events
    /// has ended without an error.
    pub(crate) fn end_without_outcome(mut self, error_type: Option<&str>) {
        let now = self.settings.clock.now();
        let unfinished = error_type.unwrap_or(error_type::CANCELLED);
        self.give_up_request(unfinished, now);
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
                    self.totals.executed_calls += 1;
                    span.fail(error_type, now);
                }
            }
        }
    }

    fn end(self, error_type: Option<&str>, now: SystemTime) {
        let labels: Vec<_> = self
            .name
            .iter()
            .map(|name| KeyValue::new(attribute::AGENT_NAME, name.clone()))
            .collect();
        let Totals { requests, executed_calls, .. } = self.totals;
        let duration = elapsed(self.span.started_at(), now);
        self.settings.instruments.record_agent(
            duration,
            requests,
            executed_calls,
            &labels,
            error_type,
        );
        self.span.end(now, error_type);
    }
}

impl Totals {
    fn add_request(&mut self, usage: Usage) {
        self.requests += 1;
        self.usage += usage;
    }
}

/// Ends the span of a sub-agent whose call ended first.
fn end_sub_agent(sub_agent: Option<Box<AgentSpan>>, error_type: &str) {
    if let Some(agent) = sub_agent {
        agent.end_without_outcome(Some(error_type));
    }
}

fn call_attributes(call_id: &str, name: &str) -> Vec<KeyValue> {
    vec![
        KeyValue::new(attribute::TOOL_NAME, name.to_owned()),
        KeyValue::new(attribute::TOOL_CALL_ID, call_id.to_owned()),
    ]
}

/// Returns the error after which a run continues for this reason.
fn error_type_of(reason: Transition) -> &'static str {
    match reason {
        Transition::ReactiveCompactRetry => ErrorKind::ContextWindow.as_str(),
        Transition::ReasoningRefused => ErrorKind::ReasoningRefused.as_str(),
        _ => error_type::OTHER,
    }
}

fn budget_kind(kind: BudgetKind) -> &'static str {
    match kind {
        BudgetKind::OutputTokens => "output_tokens",
        BudgetKind::TotalTokens => "total_tokens",
        BudgetKind::Pool => "pool",
        BudgetKind::Money => "money",
        BudgetKind::Time => "time",
        BudgetKind::ToolCalls => "tool_calls",
        BudgetKind::Target => "target",
        _ => "other",
    }
}

/// Returns the attributes that describe a request's options.
pub(crate) fn request_attributes(options: &Options) -> Vec<KeyValue> {
    let integers = [
        (attribute::REQUEST_MAX_TOKENS, options.max_output_tokens.map(i64::from)),
        (attribute::REQUEST_TOP_K, options.top_k.map(i64::from)),
        (attribute::REQUEST_SEED, options.seed.map(to_i64)),
    ];
    let floats = [
        (attribute::REQUEST_TEMPERATURE, options.temperature),
        (attribute::REQUEST_TOP_P, options.top_p),
        (attribute::REQUEST_FREQUENCY_PENALTY, options.frequency_penalty),
        (attribute::REQUEST_PRESENCE_PENALTY, options.presence_penalty),
    ];
    let output = match options.output {
        Output::Text => None,
        _ => Some(KeyValue::new(attribute::OUTPUT_TYPE, value::JSON)),
    };
    let integers = integers.into_iter().filter_map(|(name, it)| Some(KeyValue::new(name, it?)));
    let floats = floats.into_iter().filter_map(|(name, it)| Some(KeyValue::new(name, widen(it?))));
    integers.chain(floats).chain(output).collect()
}

/// Converts a number so that it has the same decimal digits, such as 0.7.
fn widen(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| number.into())
}
