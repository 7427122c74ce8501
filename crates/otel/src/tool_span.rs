//! The span of a tool that runs.

use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanContext, SpanKind};
use turnstream::item::ToolResult;

use crate::chat_span::{elapsed, to_i64};
use crate::content::{ContentKind, result_json};
use crate::names::{attribute, operation, value};
use crate::settings::TelemetrySettings;
use crate::span::{OpenSpan, SpanStart};

/// The open span of a tool, from its start until its result. Time that a call spends waiting for an
/// approval is not part of the span.
pub(crate) struct ToolSpan {
    settings: Arc<TelemetrySettings>,
    span: OpenSpan,
    /// The labels of the call's metrics.
    labels: Vec<KeyValue>,
}

/// The description of a call.
#[derive(Clone, Copy)]
pub(crate) struct ToolStart<'a> {
    pub(crate) parent: &'a SpanContext,
    pub(crate) agent_name: Option<&'a str>,
    /// The attributes of all spans of the run.
    pub(crate) shared: &'a [KeyValue],
    pub(crate) call_id: &'a str,
    pub(crate) name: &'a str,
    /// The arguments, if they are known.
    pub(crate) arguments: Option<&'a str>,
    /// The id of the grant that let the call start without a question.
    pub(crate) grant_id: Option<&'a str>,
    pub(crate) at: SystemTime,
}

impl ToolSpan {
    pub(crate) fn start(settings: &Arc<TelemetrySettings>, start: ToolStart<'_>) -> Self {
        let ToolStart { parent, agent_name, shared, call_id, name, arguments, grant_id, at } =
            start;
        let mut labels = vec![
            KeyValue::new(attribute::TOOL_NAME, name.to_owned()),
            KeyValue::new(attribute::TOOL_TYPE, value::FUNCTION),
        ];
        labels.extend(agent_name.map(|name| KeyValue::new(attribute::AGENT_NAME, name.to_owned())));
        let mut attributes = labels.clone();
        attributes.extend(shared.iter().cloned());
        attributes.push(KeyValue::new(attribute::TOOL_CALL_ID, call_id.to_owned()));
        attributes
            .extend(grant_id.map(|id| KeyValue::new(attribute::own::GRANT_ID, id.to_owned())));
        let content = arguments.and_then(|arguments| {
            settings.content.record(ContentKind::ToolArguments, || arguments.to_owned())
        });
        attributes
            .extend(content.map(|content| KeyValue::new(attribute::TOOL_CALL_ARGUMENTS, content)));
        let start = SpanStart {
            operation: operation::EXECUTE_TOOL,
            name: format!("{} {name}", operation::EXECUTE_TOOL).into(),
            kind: SpanKind::Internal,
            parent: Some(parent),
            links: Vec::new(),
            attributes,
            at,
        };
        let span = OpenSpan::start(settings, start);
        Self { settings: Arc::clone(settings), span, labels }
    }

    pub(crate) fn context(&self) -> &SpanContext {
        self.span.context()
    }

    pub(crate) fn complete(mut self, result: &ToolResult, at: SystemTime) {
        let content = &self.settings.content;
        if let Some(json) = content.record(ContentKind::ToolResult, || result_json(result)) {
            self.span.set(KeyValue::new(attribute::TOOL_CALL_RESULT, json));
        }
        if let Some(report) = result.report.as_deref() {
            for (name, count) in [
                (attribute::own::SIDE_EFFECT_COUNT, report.side_effects.len()),
                (attribute::own::EVIDENCE_COUNT, report.evidence.len()),
            ] {
                self.span.set(KeyValue::new(name, to_i64(count as u64)));
            }
        }
        let error_type = result.is_error().then(|| result.kind.as_str());
        self.end(result.kind.as_str(), at, error_type);
    }

    /// Ends the span of a call whose sub-agent waits for a verdict or a result. The call starts
    /// again when its run is resumed.
    pub(crate) fn suspend(self, at: SystemTime) {
        self.end(value::SUSPENDED, at, None);
    }

    /// Ends the span of a call that has no result.
    pub(crate) fn fail(self, error_type: &str, at: SystemTime) {
        self.end(error_type, at, Some(error_type));
    }

    fn end(mut self, result: &str, at: SystemTime, error_type: Option<&str>) {
        self.span.set(KeyValue::new(attribute::own::TOOL_RESULT_KIND, result.to_owned()));
        let duration = elapsed(self.span.started_at(), at);
        self.settings.instruments.record_tool(duration, &self.labels, error_type);
        self.span.end(at, error_type);
    }
}
