//! An open span, and the conversions between the formats of its context.

use std::borrow::Cow;
use std::time::SystemTime;

use opentelemetry::global::BoxedSpan;
use opentelemetry::trace::{
    Link, Span, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags,
    TraceId, TraceState, Tracer,
};
use opentelemetry::{Context, KeyValue};
use turnstream::propagation::TraceContext;

use crate::names::attribute;
use crate::settings::TelemetrySettings;

/// A span that has started. A span must be [ended](Self::end): the tracer decides what becomes of
/// one that is only dropped.
pub(crate) struct OpenSpan {
    span: BoxedSpan,
    /// The attributes that the selected conventions do not define for the span.
    undefined: &'static [&'static str],
    started_at: SystemTime,
}

/// The parts of a span that must be known when it starts.
pub(crate) struct SpanStart<'a> {
    /// The name of the operation, which becomes an attribute.
    pub(crate) operation: &'static str,
    pub(crate) name: Cow<'static, str>,
    pub(crate) kind: SpanKind,
    pub(crate) parent: Option<&'a SpanContext>,
    pub(crate) links: Vec<SpanContext>,
    pub(crate) attributes: Vec<KeyValue>,
    pub(crate) at: SystemTime,
}

impl OpenSpan {
    pub(crate) fn start(settings: &TelemetrySettings, start: SpanStart<'_>) -> Self {
        let SpanStart { operation, name, kind, parent, links, mut attributes, at } = start;
        let undefined = settings.conventions.undefined_attributes(operation);
        attributes.retain(|it| !undefined.contains(&it.key.as_str()));
        attributes.push(KeyValue::new(attribute::OPERATION_NAME, operation));
        let mut builder = SpanBuilder::from_name(name)
            .with_kind(kind)
            .with_start_time(at)
            .with_attributes(attributes);
        if !links.is_empty() {
            builder = builder.with_links(links.into_iter().map(Link::with_context).collect());
        }
        // The current context of the thread is never used.
        let context = parent.map_or_else(Context::new, |parent| {
            Context::new().with_remote_span_context(parent.clone())
        });
        let span = settings.tracer.build_with_context(builder, &context);
        Self { span, undefined, started_at: at }
    }

    pub(crate) fn context(&self) -> &SpanContext {
        self.span.span_context()
    }

    pub(crate) fn started_at(&self) -> SystemTime {
        self.started_at
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.span.is_recording()
    }

    pub(crate) fn set(&mut self, attribute: KeyValue) {
        if !self.undefined.contains(&attribute.key.as_str()) {
            self.span.set_attribute(attribute);
        }
    }

    pub(crate) fn add_event(
        &mut self,
        name: &'static str,
        at: SystemTime,
        attributes: Vec<KeyValue>,
    ) {
        self.span.add_event_with_timestamp(name, at, attributes);
    }

    /// Ends the span. The description of an error is never set, since it may quote a prompt.
    pub(crate) fn end(mut self, at: SystemTime, error_type: Option<&str>) {
        if let Some(kind) = error_type {
            self.span.set_attribute(KeyValue::new(attribute::ERROR_TYPE, kind.to_owned()));
            self.span.set_status(Status::error(""));
        }
        self.span.end_with_timestamp(at);
    }
}

/// Returns the context of a span in the form in which it is sent, if it is valid.
pub(crate) fn to_trace_context(span: &SpanContext) -> Option<TraceContext> {
    if !span.is_valid() {
        return None;
    }
    let (trace, id, flags) = (span.trace_id(), span.span_id(), span.trace_flags().to_u8());
    let state = span.trace_state().header();
    TraceContext::parse(&format!("00-{trace}-{id}-{flags:02x}"), Some(&state))
}

/// Returns the context of a span in another process.
pub(crate) fn to_span_context(context: &TraceContext) -> SpanContext {
    let mut fields = context.traceparent().split('-').skip(1);
    let mut next_field = || fields.next().unwrap_or_default();
    let trace = TraceId::from_hex(next_field()).unwrap_or(TraceId::INVALID);
    let span = SpanId::from_hex(next_field()).unwrap_or(SpanId::INVALID);
    let flags = u8::from_str_radix(next_field(), 16).unwrap_or_default();
    let state = context.tracestate().and_then(|state| state.parse().ok());
    // Only the first flag has a meaning in every version.
    let flags = TraceFlags::new(flags) & TraceFlags::SAMPLED;
    SpanContext::new(trace, span, flags, true, state.unwrap_or_else(|| TraceState::NONE.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_survives_the_conversion_to_a_span_and_back() {
        for (value, state) in [
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Some("a=1,b=2")),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", None),
        ] {
            let context = TraceContext::parse(value, state).unwrap();
            let span = to_span_context(&context);
            assert!(span.is_valid() && span.is_remote());
            assert_eq!(to_trace_context(&span), Some(context));
        }
        assert_eq!(to_trace_context(&SpanContext::empty_context()), None);
    }
}
