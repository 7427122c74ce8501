//! The spans of a run's requests.

use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::KeyValue;
use opentelemetry::trace::SpanContext;
use turnstream::Journal;
use turnstream::event::{Event, Outcome};
use turnstream::item::History;
use turnstream::propagation::TraceContexts;
use turnstream::turn::{Turn, TurnEvent};
use turnstream::usage::Usage;

use crate::chat_span::{ChatSpan, ChatStart};
use crate::content::{ContentKind, messages};
use crate::names::{attribute, error_type};
use crate::run_progress::RunProgress;
use crate::settings::TelemetrySettings;
use crate::span::to_trace_context;

/// The span of a run's open request, and the sums of those that have ended.
pub(crate) struct RequestSpans {
    settings: Arc<TelemetrySettings>,
    /// The context of the run's span.
    parent: SpanContext,
    /// The attributes of every request.
    attributes: Vec<KeyValue>,
    contexts: TraceContexts,
    phase: Phase,
    /// The number of requests that have ended.
    count: u64,
    /// The tokens of the requests that have ended.
    usage: Usage,
    /// Whether the history was compacted.
    is_compacted: bool,
    /// The history; `None` if content is not recorded.
    journal: Option<Journal>,
    /// The items of the last announced request, as the agent's hooks have changed them; `None` if
    /// they are not known.
    input: Option<History>,
    /// The time of the last event that is not part of a response.
    last_event_at: SystemTime,
}

/// The state of the request for the next turn.
enum Phase {
    /// No request has been announced since the last turn.
    BetweenRequests,
    /// A request was announced, and its turn is not complete.
    Requesting { chat: Box<ChatSpan>, model: String },
    /// The turn was retracted, and the error that caused it is not known yet, so that the span of
    /// the failed request is open.
    AwaitingError { failed: Box<ChatSpan>, model: String, at: SystemTime },
    /// The turn was retracted, and the span of the failed request has ended. The provider sends the
    /// request again, or the run announces another one.
    Retracted { model: String, at: SystemTime },
}

/// The description of a run's requests.
pub(crate) struct RequestsStart {
    /// The context of the run's span.
    pub(crate) parent: SpanContext,
    pub(crate) attributes: Vec<KeyValue>,
    pub(crate) contexts: TraceContexts,
    pub(crate) before: RunProgress,
    pub(crate) at: SystemTime,
}

/// The request of a compaction or of a hook.
pub(crate) struct HelperRequest<'a> {
    pub(crate) purpose: &'a str,
    /// The name of the model; empty if it is not known.
    pub(crate) model: &'a str,
    pub(crate) usage: Usage,
    pub(crate) succeeded: bool,
    pub(crate) ended_at: SystemTime,
}

impl RequestSpans {
    pub(crate) fn new(settings: &Arc<TelemetrySettings>, start: RequestsStart) -> Self {
        let RequestsStart { parent, attributes, contexts, before, at } = start;
        let RunProgress { journal, is_compacted, .. } = before;
        Self {
            settings: Arc::clone(settings),
            parent,
            attributes,
            contexts,
            phase: Phase::BetweenRequests,
            count: 0,
            usage: journal.usage(),
            is_compacted,
            journal: settings.content.is_on().then_some(journal),
            input: None,
            last_event_at: at,
        }
    }

    /// Returns the number of requests that have ended.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn on_compacted(&mut self) {
        self.is_compacted = true;
    }

    /// Records the time of an event that is not part of a response.
    pub(crate) fn on_other_event(&mut self, now: SystemTime) {
        self.last_event_at = now;
    }

    /// Adds an event to the history that is the input of the next request.
    #[inline]
    pub(crate) fn add_to_history(&self, event: &Event) {
        if let Some(journal) = &self.journal {
            journal.observe(event);
        }
    }

    /// Starts the span of a request that the run has announced.
    pub(crate) fn start(&mut self, model: &str, attributes: Vec<KeyValue>, at: SystemTime) {
        self.input = self.contexts.take_request_input();
        self.start_chat(model, attributes, at);
    }

    fn start_chat(&mut self, model: &str, mut attributes: Vec<KeyValue>, at: SystemTime) {
        attributes.push(KeyValue::new(attribute::REQUEST_STREAM, true));
        attributes.extend(self.attributes.iter().cloned());
        if self.is_compacted {
            attributes.push(KeyValue::new(attribute::CONVERSATION_COMPACTED, true));
        }
        let start = ChatStart { parent: &self.parent, model, attributes, at };
        let mut chat = ChatSpan::start(&self.settings, start);
        self.contexts.set_request(to_trace_context(chat.context()));
        if let Some(journal) = self.journal.as_ref().filter(|_| chat.is_recording()) {
            let history = self.input.clone().unwrap_or_else(|| journal.history());
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
        if !matches!(self.phase, Phase::Requesting { .. }) {
            self.end_retracted(error_type::RETRACTED);
            let (model, at) = match std::mem::replace(&mut self.phase, Phase::BetweenRequests) {
                Phase::Retracted { model, at } => (model, at),
                _ => (String::new(), self.last_event_at),
            };
            self.start_chat(&model, Vec::new(), at);
        }
        match &mut self.phase {
            Phase::Requesting { chat, .. } => chat,
            // Invariant: `start_chat` has set the phase.
            _ => unreachable!(),
        }
    }

    #[inline]
    pub(crate) fn on_turn_event(&mut self, event: &TurnEvent) {
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
        if let Some((chat, _)) = self.take() {
            self.add(turn.usage());
            chat.complete(turn, now);
        }
        self.last_event_at = now;
    }

    fn on_retracted(&mut self, usage: Usage) {
        let now = self.settings.clock.now();
        self.open_chat();
        if let Some((mut chat, model)) = self.take() {
            chat.set_usage(usage);
            chat.set(KeyValue::new(attribute::own::RETRACTED, true));
            self.add(usage);
            self.phase = match self.contexts.take_request_error() {
                Some(kind) => {
                    chat.fail(kind.as_str(), now);
                    Phase::Retracted { model, at: now }
                }
                None => Phase::AwaitingError { failed: Box::new(chat), model, at: now },
            };
        }
        self.last_event_at = now;
    }

    /// Ends the span of a request whose turn was retracted.
    fn end_retracted(&mut self, error_type: &str) {
        self.phase = match std::mem::replace(&mut self.phase, Phase::BetweenRequests) {
            Phase::AwaitingError { failed, model, at } => {
                failed.fail(error_type, at);
                Phase::Retracted { model, at }
            }
            phase => phase,
        };
    }

    /// Ends the span of a request whose turn failed before it had any output to retract.
    pub(crate) fn give_up(&mut self, error_type: &str, at: SystemTime) {
        let kind = match self.contexts.take_request_error() {
            Some(kind) => kind.as_str(),
            None => error_type,
        };
        if let Some((chat, _)) = self.take() {
            self.add(chat.usage());
            chat.fail(kind, at);
        }
    }

    /// Ends the span of a request that the end of the run has cut off.
    pub(crate) fn finish(&mut self, outcome: &Outcome, error_type: &str, at: SystemTime) {
        if let Some((mut chat, _)) = self.take() {
            // No event contains the usage of such a request.
            let usage = outcome.usage - self.usage;
            chat.set_usage(usage);
            self.add(usage);
            chat.fail(error_type, at);
        }
    }

    /// Takes the request that is in progress, and its model.
    fn take(&mut self) -> Option<(ChatSpan, String)> {
        self.end_retracted(error_type::RETRACTED);
        self.contexts.set_request(None);
        match std::mem::replace(&mut self.phase, Phase::BetweenRequests) {
            Phase::Requesting { chat, model } => Some((*chat, model)),
            Phase::BetweenRequests | Phase::AwaitingError { .. } | Phase::Retracted { .. } => None,
        }
    }

    /// Records the requests of a compaction or of a hook as a single span, since the events contain
    /// only the sum of their usage. The requests were sent after the previous event.
    pub(crate) fn record_helper(&mut self, request: &HelperRequest<'_>) {
        let &HelperRequest { purpose, model, usage, succeeded, ended_at } = request;
        let purpose = KeyValue::new(attribute::own::REQUEST_PURPOSE, purpose.to_owned());
        let mut attributes = vec![purpose];
        attributes.extend(self.attributes.iter().cloned());
        let start = ChatStart { parent: &self.parent, model, attributes, at: self.last_event_at };
        let mut chat = ChatSpan::start(&self.settings, start);
        chat.set_usage(usage);
        self.add(usage);
        match succeeded {
            true => chat.end_unobserved(ended_at),
            false => chat.fail(error_type::COMPACTION_FAILED, ended_at),
        }
        self.last_event_at = ended_at;
    }

    fn add(&mut self, usage: Usage) {
        self.count += 1;
        self.usage += usage;
    }
}
