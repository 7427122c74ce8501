//! A tracer that keeps its spans. A span that is dropped without having been ended stays open.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use opentelemetry::trace::{
    Span, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer,
};
use opentelemetry::{Context, KeyValue, Value};

#[derive(Clone, Debug)]
pub(crate) struct RecordedSpan {
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    pub(crate) id: SpanId,
    pub(crate) trace: TraceId,
    pub(crate) parent: Option<SpanId>,
    pub(crate) links: Vec<SpanId>,
    pub(crate) attributes: Vec<KeyValue>,
    pub(crate) events: Vec<(String, Vec<KeyValue>)>,
    pub(crate) status: Status,
    pub(crate) started_at: SystemTime,
    pub(crate) ended_at: Option<SystemTime>,
}

impl RecordedSpan {
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        let found = self.attributes.iter().rfind(|it| it.key.as_str() == name);
        found.map(|attribute| &attribute.value)
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(|value| value.as_str().into_owned())
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        match self.get(name) {
            Some(Value::I64(number)) => u64::try_from(*number).unwrap(),
            _ => 0,
        }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.ended_at.unwrap().duration_since(self.started_at).unwrap().as_secs_f64()
    }
}

#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<RecorderState>);

#[derive(Default)]
struct RecorderState {
    last_id: AtomicU64,
    spans: Mutex<Vec<RecordedSpan>>,
}

impl Recorder {
    pub(crate) fn spans(&self) -> Vec<RecordedSpan> {
        self.0.spans.lock().unwrap().clone()
    }

    pub(crate) fn open_spans(&self) -> Vec<String> {
        let spans = self.spans();
        spans.into_iter().filter(|it| it.ended_at.is_none()).map(|it| it.name).collect()
    }

    pub(crate) fn span(&self, name: &str) -> RecordedSpan {
        let spans = self.spans();
        spans.into_iter().find(|it| it.name == name).unwrap_or_else(|| panic!("no span `{name}`"))
    }

    /// The trees of spans, one span a line, with the errors of spans.
    pub(crate) fn trees(&self) -> String {
        let spans = self.spans();
        let mut lines = String::new();
        let is_root = |span: &&RecordedSpan| {
            span.parent.is_none_or(|parent| spans.iter().all(|it| it.id != parent))
        };
        for root in spans.iter().filter(is_root) {
            write_tree(&spans, root, 0, &mut lines);
        }
        lines
    }
}

fn write_tree(spans: &[RecordedSpan], span: &RecordedSpan, depth: usize, lines: &mut String) {
    let error = span.text("error.type").map_or_else(String::new, |kind| format!(" !{kind}"));
    writeln!(lines, "{}{}{error}", "  ".repeat(depth), span.name).unwrap();
    for child in spans.iter().filter(|it| it.parent == Some(span.id)) {
        assert_eq!(child.trace, span.trace, "{}", child.name);
        write_tree(spans, child, depth + 1, lines);
    }
}

impl Tracer for Recorder {
    type Span = RecorderSpan;

    fn build_with_context(&self, builder: SpanBuilder, parent_cx: &Context) -> RecorderSpan {
        let number = self.0.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let parent = parent_cx.span().span_context().clone();
        let parent = parent.is_valid().then_some(parent);
        let trace =
            parent.as_ref().map_or(TraceId::from(u128::from(number)), SpanContext::trace_id);
        let id = SpanId::from(number);
        let mut spans = self.0.spans.lock().unwrap();
        spans.push(RecordedSpan {
            name: builder.name.into_owned(),
            kind: builder.span_kind.unwrap_or(SpanKind::Internal),
            id,
            trace,
            parent: parent.map(|it| it.span_id()),
            links: builder
                .links
                .into_iter()
                .flatten()
                .map(|it| it.span_context.span_id())
                .collect(),
            attributes: builder.attributes.unwrap_or_default(),
            events: Vec::new(),
            status: Status::Unset,
            started_at: builder.start_time.unwrap_or(SystemTime::UNIX_EPOCH),
            ended_at: None,
        });
        let context =
            SpanContext::new(trace, id, TraceFlags::SAMPLED, false, TraceState::NONE.clone());
        RecorderSpan { recorder: self.clone(), index: spans.len() - 1, context }
    }
}

pub(crate) struct RecorderSpan {
    recorder: Recorder,
    index: usize,
    context: SpanContext,
}

impl RecorderSpan {
    fn update(&self, change: impl FnOnce(&mut RecordedSpan)) {
        let mut spans = self.recorder.0.spans.lock().unwrap();
        let span = &mut spans[self.index];
        assert!(span.ended_at.is_none(), "`{}` is changed after its end", span.name);
        change(span);
    }
}

impl Span for RecorderSpan {
    fn add_event_with_timestamp<T>(&mut self, name: T, _: SystemTime, attributes: Vec<KeyValue>)
    where
        T: Into<std::borrow::Cow<'static, str>>,
    {
        self.update(|span| span.events.push((name.into().into_owned(), attributes)));
    }

    fn span_context(&self) -> &SpanContext {
        &self.context
    }

    fn is_recording(&self) -> bool {
        true
    }

    fn set_attribute(&mut self, attribute: KeyValue) {
        self.update(|span| span.attributes.push(attribute));
    }

    fn set_status(&mut self, status: Status) {
        self.update(|span| span.status = status);
    }

    fn update_name<T>(&mut self, name: T)
    where
        T: Into<std::borrow::Cow<'static, str>>,
    {
        self.update(|span| span.name = name.into().into_owned());
    }

    fn add_link(&mut self, linked: SpanContext, _: Vec<KeyValue>) {
        self.update(|span| span.links.push(linked.span_id()));
    }

    fn end_with_timestamp(&mut self, at: SystemTime) {
        self.update(|span| span.ended_at = Some(at));
    }
}
