//! The span of a request to a model.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanContext, SpanKind};
use opentelemetry::{Array, KeyValue, Value};
use turnstream::error::Error;
use turnstream::turn::{StopReason, Turn};
use turnstream::usage::{Billing, Usage};

use crate::content::{ContentKind, messages};
use crate::names::{Conventions, attribute, event, operation, value};
use crate::settings::TelemetrySettings;
use crate::span::{OpenSpan, SpanStart};

/// The open span of a request, from the event that announces the request until the turn is complete
/// or has failed. Retries of the request by its provider are events in the span.
pub(crate) struct ChatSpan {
    settings: Arc<TelemetrySettings>,
    span: OpenSpan,
    /// The labels of the request's metrics.
    labels: Vec<KeyValue>,
    output: Output,
    usage: Usage,
}

/// The part of a response that has been received.
enum Output {
    Awaited,
    Streaming { first_after: Duration, last_at: SystemTime },
}

/// The description of a request.
pub(crate) struct ChatStart<'a> {
    pub(crate) parent: &'a SpanContext,
    pub(crate) model: &'a str,
    pub(crate) attributes: Vec<KeyValue>,
    pub(crate) at: SystemTime,
}

impl ChatSpan {
    pub(crate) fn start(settings: &Arc<TelemetrySettings>, start: ChatStart<'_>) -> Self {
        let ChatStart { parent, model, attributes: more, at } = start;
        let provider = (settings.provider_of_model)(model);
        let mut labels = vec![
            KeyValue::new(attribute::OPERATION_NAME, operation::CHAT),
            KeyValue::new(attribute::PROVIDER_NAME, provider),
        ];
        let name = match model {
            "" => Cow::Borrowed(operation::CHAT),
            model => {
                labels.push(KeyValue::new(attribute::REQUEST_MODEL, model.to_owned()));
                Cow::Owned(format!("{} {model}", operation::CHAT))
            }
        };
        // The span adds the name of the operation itself.
        let mut attributes = labels[1..].to_vec();
        attributes.extend(more);
        let start = SpanStart {
            operation: operation::CHAT,
            name,
            kind: SpanKind::Client,
            parent: Some(parent),
            links: Vec::new(),
            attributes,
            at,
        };
        let span = OpenSpan::start(settings, start);
        let settings = Arc::clone(settings);
        Self { settings, span, labels, output: Output::Awaited, usage: Usage::default() }
    }

    pub(crate) fn context(&self) -> &SpanContext {
        self.span.context()
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.span.is_recording()
    }

    pub(crate) fn set(&mut self, attribute: KeyValue) {
        self.span.set(attribute);
    }

    pub(crate) fn set_usage(&mut self, usage: Usage) {
        self.usage = usage;
    }

    /// Returns the tokens that the request has used so far.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Records a chunk of the response. The clock is read only if the chunk's time is needed.
    #[inline]
    pub(crate) fn on_chunk(&mut self) {
        match self.output {
            Output::Streaming { .. } if !self.settings.chunk_times => {}
            Output::Awaited | Output::Streaming { .. } => self.record_chunk(),
        }
    }

    fn record_chunk(&mut self) {
        let now = self.settings.clock.now();
        self.output = match self.output {
            Output::Awaited => {
                let first_after = elapsed(self.span.started_at(), now);
                Output::Streaming { first_after, last_at: now }
            }
            Output::Streaming { first_after, last_at } => {
                self.settings.instruments.record_chunk(elapsed(last_at, now), &self.labels);
                Output::Streaming { first_after, last_at: now }
            }
        };
    }

    /// Records that the provider sends the request again after a delay.
    pub(crate) fn on_retry(&mut self, attempt: u32, delay_ms: u64, error: &Error) {
        let delay = Duration::from_millis(delay_ms).as_secs_f64();
        let attributes = vec![
            KeyValue::new(attribute::ERROR_TYPE, error.kind().as_str()),
            KeyValue::new(attribute::own::RETRY_ATTEMPT, i64::from(attempt)),
            KeyValue::new(attribute::own::WAIT_DURATION, delay),
        ];
        let now = self.settings.clock.now();
        self.span.add_event(event::RETRY, now, attributes);
    }

    /// Ends the span of a request whose turn is complete.
    pub(crate) fn complete(mut self, turn: &Turn, at: SystemTime) {
        if let Some(model) = turn.model() {
            let model = KeyValue::new(attribute::RESPONSE_MODEL, model.to_owned());
            self.labels.push(model.clone());
            self.span.set(model);
        }
        if let Some(id) = turn.response_id() {
            self.span.set(KeyValue::new(attribute::RESPONSE_ID, id.to_owned()));
        }
        for attribute in turn.billing().into_iter().flat_map(billing_attributes) {
            self.span.set(attribute);
        }
        let content = &self.settings.content;
        let output = content.record(ContentKind::OutputMessages, || messages(turn.items()));
        if let Some(output) = output {
            self.span.set(KeyValue::new(attribute::OUTPUT_MESSAGES, output));
        }
        self.usage = turn.usage();
        match turn.stop_reason() {
            // The response was cut off.
            reason @ StopReason::Interrupted => self.fail(reason.as_str(), at),
            reason => self.end(Some(reason.as_str()), at, None),
        }
    }

    /// Ends the span of a request that has failed or was given up.
    pub(crate) fn fail(self, error_type: &str, at: SystemTime) {
        self.end(Some(value::FINISH_REASON_ERROR), at, Some(error_type));
    }

    /// Ends the span of a request about which only its usage is known.
    pub(crate) fn end_unobserved(self, at: SystemTime) {
        self.end(None, at, None);
    }

    fn end(mut self, finish_reason: Option<&str>, at: SystemTime, error_type: Option<&str>) {
        if let Some(reason) = finish_reason {
            let reasons = Value::Array(Array::String(vec![reason.to_owned().into()]));
            self.span.set(KeyValue::new(attribute::RESPONSE_FINISH_REASONS, reasons));
        }
        if let Output::Streaming { first_after, .. } = self.output {
            let seconds = first_after.as_secs_f64();
            self.span.set(KeyValue::new(attribute::RESPONSE_TIME_TO_FIRST_CHUNK, seconds));
        }
        for usage in usage_attributes(self.usage, self.settings.conventions) {
            self.span.set(usage);
        }
        self.record(at, error_type);
        self.span.end(at, error_type);
    }

    fn record(&self, at: SystemTime, error_type: Option<&str>) {
        let first_chunk = match self.output {
            Output::Awaited => None,
            Output::Streaming { first_after, .. } => Some(first_after),
        };
        self.settings.instruments.record_inference(
            elapsed(self.span.started_at(), at),
            first_chunk,
            self.usage,
            &self.labels,
            error_type,
        );
    }
}

/// Returns the attributes for the service tier, and for the tokens that are not text.
fn billing_attributes(billing: &Billing) -> Vec<KeyValue> {
    let tier = billing.service_tier().filter(|tier| is_tier_name(tier));
    let tier = tier.map(|it| KeyValue::new(attribute::own::RESPONSE_SERVICE_TIER, it.to_owned()));
    let tokens = billing.tokens_by_kind().filter_map(|(kind, tokens)| {
        let name = match kind {
            "input_audio" => attribute::USAGE_AUDIO_INPUT_TOKENS,
            "cache_read_audio" => attribute::USAGE_AUDIO_CACHE_READ_INPUT_TOKENS,
            "output_audio" => attribute::USAGE_AUDIO_OUTPUT_TOKENS,
            "output_image" => attribute::USAGE_IMAGE_OUTPUT_TOKENS,
            _ => return None,
        };
        Some(KeyValue::new(name, to_i64(tokens)))
    });
    tier.into_iter().chain(tokens).collect()
}

/// The maximum length of a service tier's name, in bytes.
const MAX_TIER_BYTES: usize = 32;

/// Returns whether a server's text has the form of a service tier's name, such as `flex`. Any other
/// text may quote the request, and is not recorded.
fn is_tier_name(text: &str) -> bool {
    (1..=MAX_TIER_BYTES).contains(&text.len())
        && text.bytes().all(|it| matches!(it, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// Returns the attributes for the tokens that a request used. Tokens that a provider may not report
/// have an attribute only if there are any.
pub(crate) fn usage_attributes(usage: Usage, conventions: Conventions) -> Vec<KeyValue> {
    if usage == Usage::default() {
        return Vec::new();
    }
    let cache_write = match conventions {
        Conventions::GenAi0_1 => attribute::USAGE_CACHE_WRITE_INPUT_TOKENS,
        Conventions::General1_41 => attribute::older::USAGE_CACHE_CREATION_INPUT_TOKENS,
    };
    let reported = [
        (attribute::USAGE_CACHE_READ_INPUT_TOKENS, usage.cache_read_input_tokens),
        (cache_write, usage.cache_write_input_tokens),
        (attribute::USAGE_REASONING_OUTPUT_TOKENS, usage.reasoning_tokens),
    ];
    let always = [
        (attribute::USAGE_INPUT_TOKENS, usage.input_tokens),
        (attribute::USAGE_OUTPUT_TOKENS, usage.output_tokens),
    ];
    let reported = reported.into_iter().filter(|(_, tokens)| *tokens > 0);
    let all = always.into_iter().chain(reported);
    all.map(|(name, tokens)| KeyValue::new(name, to_i64(tokens))).collect()
}

pub(crate) fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the time between two readings of a clock that may have been set back.
pub(crate) fn elapsed(from: SystemTime, to: SystemTime) -> Duration {
    to.duration_since(from).unwrap_or_default()
}
