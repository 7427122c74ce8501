//! The metrics of runs.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, MetricData, ResourceMetrics, ScopeMetrics,
};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use turnstream::error::Error;
use turnstream::event::Event;
use turnstream_otel::{Conventions, Telemetry};

use crate::recorder::Recorder;
use crate::scenarios::{TokioClock, scenario, scenarios};
use crate::trees::{check_rows, expected_usage};

/// A point of a metric: its labels, the number of recorded values, and the sum of those that are
/// whole numbers.
#[derive(Debug)]
pub(crate) struct Point {
    labels: BTreeMap<String, String>,
    count: u64,
    sum: u64,
}

type Points = BTreeMap<String, Vec<Point>>;

fn labels<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> BTreeMap<String, String> {
    attributes.map(|it| (it.key.to_string(), it.value.to_string())).collect()
}

fn points_of(metrics: &[ResourceMetrics]) -> Points {
    let mut found = Points::new();
    let scopes = metrics.iter().flat_map(ResourceMetrics::scope_metrics);
    for metric in scopes.flat_map(ScopeMetrics::metrics) {
        let points: Vec<Point> = match metric.data() {
            AggregatedMetrics::F64(MetricData::Histogram(histogram)) => histogram
                .data_points()
                .map(|it| Point { labels: labels(it.attributes()), count: it.count(), sum: 0 })
                .collect(),
            AggregatedMetrics::U64(MetricData::Histogram(histogram)) => histogram
                .data_points()
                .map(|it| Point {
                    labels: labels(it.attributes()),
                    count: it.count(),
                    sum: it.sum(),
                })
                .collect(),
            AggregatedMetrics::U64(MetricData::Sum(sum)) => sum
                .data_points()
                .map(|it| Point { labels: labels(it.attributes()), count: 1, sum: it.value() })
                .collect(),
            other => panic!("{}: {other:?}", metric.name()),
        };
        found.entry(metric.name().to_owned()).or_default().extend(points);
    }
    found
}

async fn measure(name: &str, change: impl FnOnce(Telemetry) -> Telemetry) -> Points {
    points_of(&collect(name, change).await)
}

/// Runs a scenario, and returns its metrics.
async fn collect(name: &str, change: impl FnOnce(Telemetry) -> Telemetry) -> Vec<ResourceMetrics> {
    collect_with_events(name, change).await.0
}

/// Runs a scenario, and returns its metrics and its events.
async fn collect_with_events(
    name: &str,
    change: impl FnOnce(Telemetry) -> Telemetry,
) -> (Vec<ResourceMetrics>, Vec<Result<Event, Error>>) {
    let exporter = InMemoryMetricExporter::default();
    let reader = PeriodicReader::builder(exporter.clone()).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();
    let telemetry = Telemetry::new(Recorder::default(), &provider.meter("tests"));
    let telemetry = change(telemetry.with_clock(TokioClock::new()));
    let scenario = scenario(name);
    let events = (scenario.start)(&telemetry).collect().await;
    provider.force_flush().unwrap();
    (exporter.get_finished_metrics().unwrap(), events)
}

fn total(points: &Points, name: &str) -> (u64, u64) {
    let points = points.get(name).map_or(&[][..], Vec::as_slice);
    (points.iter().map(|it| it.count).sum(), points.iter().map(|it| it.sum).sum())
}

#[tokio::test(start_paused = true)]
async fn requests_tools_and_runs_are_measured() {
    let points = measure("sub-agents, two deep", |it| it).await;
    let prefix = "gen_ai.client.inference";
    assert_eq!(total(&points, &format!("{prefix}.duration")).0, 6);
    assert_eq!(total(&points, &format!("{prefix}.time_to_first_chunk")).0, 6);
    assert_eq!(total(&points, &format!("{prefix}.time_per_output_chunk")).0, 0);
    assert_eq!(total(&points, &format!("{prefix}.usage.input_tokens")).1, 600);
    assert_eq!(total(&points, &format!("{prefix}.usage.output_tokens")).1, 60);
    assert_eq!(total(&points, &format!("{prefix}.usage.cache_read.input_tokens")).1, 300);
    assert_eq!(total(&points, &format!("{prefix}.usage.cache_write.input_tokens")).1, 150);
    assert_eq!(total(&points, &format!("{prefix}.usage.reasoning.output_tokens")).1, 30);
    assert_eq!(total(&points, &format!("{prefix}.operation.input_tokens")), (6, 600));
    assert_eq!(total(&points, "gen_ai.execute_tool.duration").0, 3);
    assert_eq!(total(&points, "gen_ai.invoke_agent.duration").0, 3);
    assert_eq!(total(&points, "gen_ai.invoke_agent.inference_calls"), (3, 6));
    assert_eq!(total(&points, "gen_ai.invoke_agent.tool_calls"), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn failed_and_dropped_operations_are_measured_with_their_errors() {
    let errors = |points: &Points, name: &str| -> BTreeSet<String> {
        points[name].iter().filter_map(|it| it.labels.get("error.type").cloned()).collect()
    };
    let failed = measure("a failure of the first request", |it| it).await;
    assert_eq!(errors(&failed, "gen_ai.client.inference.duration"), ["auth".into()].into());
    assert_eq!(errors(&failed, "gen_ai.invoke_agent.duration"), ["auth".into()].into());
    let tools = measure("tools that fail", |it| it).await;
    let kinds = ["error", "panic", "timeout"].map(str::to_owned);
    assert_eq!(errors(&tools, "gen_ai.execute_tool.duration"), kinds.into());
    let interrupted = measure("an interrupt of a response", |it| it).await;
    let kinds = ["interrupted".to_owned()];
    assert_eq!(errors(&interrupted, "gen_ai.client.inference.duration"), kinds.into());
    assert_eq!(total(&interrupted, "gen_ai.client.inference.usage.input_tokens").1, 100);
}

#[tokio::test(start_paused = true)]
async fn the_time_between_chunks_is_measured_only_if_it_is_asked_for() {
    let points = measure("an answer", Telemetry::with_chunk_times).await;
    let (count, _) = total(&points, "gen_ai.client.inference.time_per_output_chunk");
    assert!(count > 1, "{count}");
}

/// The instruments, units and boundaries of the conventions' metrics.
const METRICS: &str = include_str!("conventions_metrics.tsv");

#[tokio::test(start_paused = true)]
async fn metrics_have_the_instruments_units_and_boundaries_of_the_conventions() {
    let mut found = BTreeSet::new();
    for scenario in scenarios() {
        let metrics = collect(scenario.name, Telemetry::with_chunk_times).await;
        let scopes = metrics.iter().flat_map(ResourceMetrics::scope_metrics);
        for metric in scopes.flat_map(ScopeMetrics::metrics) {
            let (instrument, boundaries) = match metric.data() {
                AggregatedMetrics::F64(MetricData::Histogram(it)) => {
                    ("histogram", it.data_points().next().unwrap().bounds().collect())
                }
                AggregatedMetrics::U64(MetricData::Histogram(it)) => {
                    ("histogram", it.data_points().next().unwrap().bounds().collect())
                }
                AggregatedMetrics::U64(MetricData::Sum(_)) => ("counter", Vec::new()),
                other => panic!("{}: {other:?}", metric.name()),
            };
            let boundaries: Vec<_> = boundaries.iter().map(ToString::to_string).collect();
            let row = [metric.name(), instrument, metric.unit(), &boundaries.join(" ")].join("\t");
            found.insert(row);
        }
    }
    let rows = METRICS.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(found, rows.map(str::to_owned).collect());
}

#[tokio::test(start_paused = true)]
async fn metrics_have_the_labels_that_the_conventions_define() {
    let table = include_str!("conventions.tsv");
    let mut seen = 0;
    for scenario in scenarios() {
        for (name, points) in measure(scenario.name, Telemetry::with_chunk_times).await {
            let rows = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
            let rows: Vec<_> = rows.filter(|row| row[0] == name).collect();
            assert!(!rows.is_empty(), "{name} is not defined");
            for point in points {
                for label in point.labels.keys() {
                    assert!(rows.iter().any(|row| row[1] == label), "{name} has {label}");
                }
                for row in rows.iter().filter(|row| row[2] == "required") {
                    assert!(point.labels.contains_key(row[1]), "{name} has no {}", row[1]);
                }
                seen += 1;
            }
        }
    }
    assert!(seen > 100, "{seen} points");
}

#[tokio::test(start_paused = true)]
async fn each_label_of_the_conventions_is_recorded_unless_the_table_has_a_reason() {
    for (conventions, table) in [
        (Conventions::GenAi0_1, include_str!("conventions.tsv")),
        (Conventions::General1_41, include_str!("conventions_1_41.tsv")),
    ] {
        let mut found = BTreeSet::new();
        for scenario in scenarios() {
            let change = |it: Telemetry| it.with_conventions(conventions).with_chunk_times();
            for (name, points) in measure(scenario.name, change).await {
                let labels = points.iter().flat_map(|point| point.labels.keys());
                found.extend(labels.map(|label| (name.clone(), label.clone())));
            }
        }
        let is_found = |name: &str, label: &str| found.contains(&(name.into(), label.into()));
        check_rows(table, |name| name.contains('.'), is_found);
        for (name, label) in &found {
            let row = format!("\n{name}\t{label}\t");
            assert!(table.contains(&row), "{conventions:?}: {name} has {label}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_counters_of_tokens_add_up_to_the_usage_of_the_outcomes() {
    let mut compared = 0;
    for scenario in scenarios() {
        let (metrics, events) = collect_with_events(scenario.name, |it| it).await;
        let points = points_of(&metrics);
        let Some(outcome) = events.iter().flatten().find_map(Event::outcome) else { continue };
        let usage = expected_usage(scenario, outcome);
        for (kind, tokens) in [
            ("input_tokens", usage.input_tokens),
            ("output_tokens", usage.output_tokens),
            ("cache_read.input_tokens", usage.cache_read_input_tokens),
            ("cache_write.input_tokens", usage.cache_write_input_tokens),
            ("reasoning.output_tokens", usage.reasoning_tokens),
        ] {
            let (_, counted) = total(&points, &format!("gen_ai.client.inference.usage.{kind}"));
            assert_eq!(counted, tokens, "{}: {kind}", scenario.name);
        }
        compared += 1;
    }
    println!("{compared} outcomes compared with counters");
    assert!(compared > 30, "{compared} outcomes");
}

#[tokio::test(start_paused = true)]
async fn older_metrics_replace_the_newer_ones_if_they_are_selected() {
    let older = |it: Telemetry| it.with_conventions(Conventions::General1_41);
    let points = measure("an answer", older).await;
    assert_eq!(total(&points, "gen_ai.client.token.usage"), (2, 110));
    assert_eq!(total(&points, "gen_ai.client.operation.duration").0, 1);
    let names: Vec<_> = points.keys().map(String::as_str).collect();
    let first_chunk = "gen_ai.client.operation.time_to_first_chunk";
    let expected = ["gen_ai.client.operation.duration", first_chunk, "gen_ai.client.token.usage"];
    assert_eq!(names, expected);
}
