//! The bytes that a receiver gets over OTLP.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Lines;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
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
use turnstream::Agent;
use turnstream::provider::Anthropic;
use turnstream_otel::Telemetry;
use turnstream_test_support::programs::example_program;

use crate::content::VARIABLE;
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

/// Telemetry with the default settings.
fn default_telemetry(spans: &InMemorySpanExporter, meters: &SdkMeterProvider) -> Telemetry {
    assert_eq!(std::env::var_os(VARIABLE), None, "the tests are those of the default settings");
    let provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
    Telemetry::new(provider.tracer("tests"), &meters.meter("tests"))
}

/// Runs a scenario on a thread with a paused clock, and returns its finished spans.
fn run(scenario: &'static Scenario, meters: &SdkMeterProvider) -> Vec<SpanData> {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let spans = InMemorySpanExporter::default();
        let telemetry = default_telemetry(&spans, meters).with_clock(TokioClock::new());
        (scenario.start)(&telemetry).collect::<Vec<_>>().await;
        spans.get_finished_spans().unwrap()
    })
}

fn span_exporter(receiver: &Receiver) -> SpanExporter {
    let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpJson);
    exporter.with_endpoint(format!("{}/v1/traces", receiver.address)).build().unwrap()
}

fn exported_spans(body: &[u8]) -> Vec<Value> {
    let body: Value = serde_json::from_slice(body).unwrap();
    let resources = body["resourceSpans"].as_array().unwrap().clone();
    let scopes = resources.into_iter().flat_map(|it| it["scopeSpans"].as_array().unwrap().clone());
    scopes.flat_map(|it| it["spans"].as_array().unwrap().clone()).collect()
}

/// The trees of spans, one span a line.
fn trees(spans: &[Value]) -> String {
    let roots = spans.iter().filter(|it| text(it, "parentSpanId").is_empty());
    let roots = roots.map(|root| subtree(spans, root, 0));
    let lines = join_sorted(roots.collect());
    assert_eq!(lines.lines().count(), spans.len(), "spans without a parent");
    lines
}

/// Joins the trees of spans with the same parent in the order of their names, since spans that
/// start at the same time have no order.
fn join_sorted(mut trees: Vec<String>) -> String {
    trees.sort_unstable();
    trees.concat()
}

/// Returns trees with the spans of each parent in the order of their names.
fn sorted(trees: &str) -> String {
    /// Takes the trees whose roots have this depth.
    fn take(lines: &mut Peekable<Lines<'_>>, depth: usize) -> String {
        let mut trees = Vec::new();
        while let Some(root) = lines.next_if(|it| indentation(it) == depth) {
            trees.push(format!("{root}\n{}", take(lines, depth + 1)));
        }
        join_sorted(trees)
    }
    take(&mut trees.lines().peekable(), 0)
}

fn indentation(line: &str) -> usize {
    (line.len() - line.trim_start().len()) / 2
}

fn text<'a>(span: &'a Value, key: &str) -> &'a str {
    span[key].as_str().unwrap_or_default()
}

fn attributes(span: &Value) -> BTreeMap<String, Value> {
    let attributes = span["attributes"].as_array().cloned().unwrap_or_default();
    let pair = |it: Value| (text(&it, "key").to_owned(), it["value"].clone());
    attributes.into_iter().map(pair).collect()
}

fn subtree(spans: &[Value], span: &Value, depth: usize) -> String {
    let error = attributes(span)
        .get("error.type")
        .map_or_else(String::new, |kind| format!(" !{}", text(kind, "stringValue")));
    let line = format!("{}{}{error}\n", "  ".repeat(depth), text(span, "name"));
    let children = spans.iter().filter(|it| it["parentSpanId"] == span["spanId"]);
    let children = children.map(|child| {
        assert_eq!(child["traceId"], span["traceId"]);
        subtree(spans, child, depth + 1)
    });
    line + &join_sorted(children.collect())
}

#[test]
fn a_wrong_parent_at_the_same_depth_is_another_tree() {
    let tree = "run\n  call a\n    run a\n  call b\n";
    assert_eq!(sorted(tree), sorted("run\n  call b\n  call a\n    run a\n"));
    assert_ne!(sorted(tree), sorted("run\n  call a\n  call b\n    run a\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_gets_one_tree_for_each_run_and_no_content() {
    let receiver = Receiver::start().await;
    let exporter = span_exporter(&receiver);
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

    let mut count = 0;
    for scenario in scenarios() {
        let thread_meters = meters.clone();
        let spans = std::thread::spawn(move || run(scenario, &thread_meters)).join().unwrap();
        let expected = spans.len();
        exporter.export(spans).await.unwrap();
        let spans = exported_spans(receiver.bodies("traces").last().unwrap());
        assert_eq!(spans.len(), expected, "{}", scenario.name);
        assert_eq!(trees(&spans), sorted(scenario.trees), "{}", scenario.name);
        assert!(spans.iter().all(|it| text(it, "endTimeUnixNano") != "0"), "{}", scenario.name);
        count += 1;
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
    println!("{count} trees in {bytes} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_the_key_of_a_provider_nor_a_servers_quote_of_the_prompt_is_exported() {
    const KEY: &str = "sk-ant-plugh";
    // A server that quotes the request and its key in an error.
    let quote = post(|headers: HeaderMap, body: String| async move {
        let key = headers["x-api-key"].to_str().unwrap();
        let message = format!("the key {key} may not send {body}");
        let error = json!({ "type": "invalid_request_error", "message": message });
        (StatusCode::BAD_REQUEST, Json(json!({ "type": "error", "error": error })))
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().route("/v1/messages", quote);
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });

    let (receiver, spans) = (Receiver::start().await, InMemorySpanExporter::default());
    let telemetry = default_telemetry(&spans, &SdkMeterProvider::default());
    let model = Anthropic::new("claude").with_api_key(KEY).with_base_url(&url).unwrap();
    let agent = Agent::new(model).with_system(SECRET).with_run_observer(telemetry);
    let outcome = agent.run(format!("Go. {SECRET}")).outcome().await;
    // The text of the error quotes the prompt.
    let error = outcome.error.expect("the request is refused");
    assert!(error.to_string().contains(SECRET), "{error}");

    let finished = spans.get_finished_spans().unwrap();
    span_exporter(&receiver).export(finished).await.unwrap();
    let body = receiver.bodies("traces").pop().unwrap();
    let kind = error.kind().as_str();
    let expected = format!("invoke_agent !{kind}\n  chat claude !{kind}\n");
    assert_eq!(trees(&exported_spans(&body)), expected);
    let body = std::str::from_utf8(&body).unwrap();
    for private in [KEY, SECRET, "may not send"] {
        assert!(!body.contains(private), "{private}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_sends_its_spans_and_metrics() {
    let receiver = Receiver::start().await;
    let mut example = std::process::Command::new(example_program("otlp"));
    example.arg(&receiver.address).env_remove(VARIABLE);
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        example.env_remove(name);
    }
    let output = tokio::task::spawn_blocking(move || example.output().unwrap()).await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("Sent 8 spans") && printed.contains("Sent the metrics."), "{printed}");
    let (traces, metrics) = (receiver.bodies("traces"), receiver.bodies("metrics"));
    assert_eq!((traces.len(), metrics.is_empty()), (1, false));
    // The names are plain text in the binary protocol.
    let sent = String::from_utf8_lossy(&traces[0]);
    for name in ["invoke_agent assistant", "invoke_agent cleaner", "execute_tool delete"] {
        assert!(sent.contains(name), "{name}");
    }
    for event in ["turnstream.retry", "turnstream.approval_wait"] {
        assert!(sent.contains(event), "{event}");
    }
}
