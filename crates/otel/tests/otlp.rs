//! The bytes that a receiver gets over OTLP.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::routing::post;
use axum::{Json, Router};
use futures::StreamExt;
use opentelemetry::metrics::MeterProvider;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{MetricExporter, Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{
    InMemorySpanExporter, SdkTracerProvider, SpanData, SpanExporter as _,
};
use serde_json::{Value, json};
use turnstream_otel::Telemetry;

use crate::scenarios::{SECRET, Scenario, TokioClock, scenarios};

/// A receiver on this machine.
struct Receiver {
    address: String,
    bodies: Arc<Mutex<Vec<(&'static str, Bytes)>>>,
}

impl Receiver {
    async fn start() -> Self {
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let route = |path: &'static str| {
            let bodies = Arc::clone(&bodies);
            post(move |body: Bytes| async move {
                bodies.lock().unwrap().push((path, body));
                Json(json!({}))
            })
        };
        let app = Router::new()
            .route("/v1/traces", route("traces"))
            .route("/v1/metrics", route("metrics"));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, bodies }
    }

    fn bodies(&self, path: &str) -> Vec<Bytes> {
        let bodies = self.bodies.lock().unwrap();
        bodies.iter().filter(|(kind, _)| *kind == path).map(|(_, body)| body.clone()).collect()
    }
}

/// Runs a scenario on a thread with a paused clock, and returns its finished spans.
fn run(scenario: &'static Scenario, meters: &SdkMeterProvider) -> Vec<SpanData> {
    let spans = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
    let meter = meters.meter("tests");
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let telemetry = Telemetry::new(provider.tracer("tests"), &meter);
        let telemetry = telemetry.with_content(false).with_clock(TokioClock::new());
        (scenario.start)(&telemetry).collect::<Vec<_>>().await;
    });
    spans.get_finished_spans().unwrap()
}

fn exported_spans(body: &[u8]) -> Vec<Value> {
    let body: Value = serde_json::from_slice(body).unwrap();
    let resources = body["resourceSpans"].as_array().unwrap().clone();
    let scopes = resources.into_iter().flat_map(|it| it["scopeSpans"].as_array().unwrap().clone());
    scopes.flat_map(|it| it["spans"].as_array().unwrap().clone()).collect()
}

/// The tree of spans, one span a line.
fn tree(spans: &[Value]) -> String {
    let mut lines = String::new();
    for root in spans.iter().filter(|it| text(it, "parentSpanId").is_empty()) {
        write_tree(spans, root, 0, &mut lines);
    }
    assert_eq!(lines.lines().count(), spans.len(), "spans without a parent");
    lines
}

fn text<'a>(span: &'a Value, key: &str) -> &'a str {
    span[key].as_str().unwrap_or_default()
}

fn attributes(span: &Value) -> BTreeMap<String, Value> {
    let attributes = span["attributes"].as_array().cloned().unwrap_or_default();
    let pair = |it: Value| (text(&it, "key").to_owned(), it["value"].clone());
    attributes.into_iter().map(pair).collect()
}

fn write_tree(spans: &[Value], span: &Value, depth: usize, lines: &mut String) {
    let error = attributes(span)
        .get("error.type")
        .map_or_else(String::new, |kind| format!(" !{}", text(kind, "stringValue")));
    writeln!(lines, "{}{}{error}", "  ".repeat(depth), text(span, "name")).unwrap();
    let is_child = |it: &&Value| it["parentSpanId"] == span["spanId"];
    let mut children: Vec<_> = spans.iter().filter(is_child).collect();
    // The ids of a tracer are random, and spans are exported when they end.
    children.sort_by_key(|it| text(it, "startTimeUnixNano").parse::<u64>().unwrap());
    for child in children {
        assert_eq!(child["traceId"], span["traceId"]);
        write_tree(spans, child, depth + 1, lines);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_gets_one_tree_for_each_run_and_no_content() {
    let receiver = Receiver::start().await;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpJson)
        .with_endpoint(format!("{}/v1/traces", receiver.address))
        .build()
        .unwrap();
    let metric_exporter = MetricExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpJson)
        .with_endpoint(format!("{}/v1/metrics", receiver.address))
        .build()
        .unwrap();
    // The tests of metrics read them in memory; here they are sent.
    let in_memory = opentelemetry_sdk::metrics::InMemoryMetricExporter::default();
    let reader = PeriodicReader::builder(in_memory.clone()).build();
    let meters = SdkMeterProvider::builder().with_reader(reader).build();

    let mut trees = 0;
    for scenario in scenarios() {
        let thread_meters = meters.clone();
        let spans = std::thread::spawn(move || run(scenario, &thread_meters)).join().unwrap();
        let expected = spans.len();
        exporter.export(spans).await.unwrap();
        let spans = exported_spans(receiver.bodies("traces").last().unwrap());
        assert_eq!(spans.len(), expected, "{}", scenario.name);
        assert_eq!(sorted(&tree(&spans)), sorted(scenario.trees), "{}", scenario.name);
        assert!(spans.iter().all(|it| text(it, "endTimeUnixNano") != "0"), "{}", scenario.name);
        trees += 1;
    }
    meters.force_flush().unwrap();
    for metrics in in_memory.get_finished_metrics().unwrap() {
        use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
        metric_exporter.export(&metrics).await.unwrap();
    }
    let (traces, metrics) = (receiver.bodies("traces"), receiver.bodies("metrics"));
    assert!(!metrics.is_empty());
    let mut bytes = 0;
    for body in traces.iter().chain(&metrics) {
        let body = std::str::from_utf8(body).unwrap();
        assert!(!body.contains(SECRET), "content is exported: {body}");
        assert!(!body.contains("the prompt was"), "an error's text is exported");
        bytes += body.len();
    }
    println!("{trees} trees in {bytes} bytes");
}

/// Spans that start at the same time have no order.
fn sorted(tree: &str) -> Vec<&str> {
    let mut lines: Vec<_> = tree.lines().collect();
    lines.sort_unstable();
    lines
}
