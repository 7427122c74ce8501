//! Each scripted run has one tree of spans, with the right parents, and its usage is counted once.

use std::collections::BTreeSet;

use futures::StreamExt;
use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use turnstream::event::Event;
use turnstream::usage::Usage;
use turnstream_otel::Telemetry;

use crate::recorder::{RecordedSpan, Recorder};
use crate::scenarios::{Events, SCENARIOS, Scenario, TokioClock, telemetry_of};

pub(crate) fn silent_meter() -> Meter {
    SdkMeterProvider::default().meter("tests")
}

pub(crate) fn recorded_telemetry(recorder: &Recorder) -> Telemetry {
    Telemetry::new(recorder.clone(), &silent_meter())
        .with_content(false)
        .with_clock(TokioClock::new())
}

/// Starts a scenario's run, with a tracer that keeps its spans.
pub(crate) fn start(scenario: &Scenario) -> (Recorder, Events) {
    let recorder = Recorder::default();
    let events = (scenario.start)(telemetry_of(&recorded_telemetry(&recorder)));
    (recorder, events)
}

#[tokio::test(start_paused = true)]
async fn each_run_has_one_tree_with_the_right_parents() {
    let mut found = Vec::new();
    for scenario in SCENARIOS {
        let (recorder, events) = start(scenario);
        events.collect::<Vec<_>>().await;
        assert_eq!(recorder.open_spans(), Vec::<String>::new(), "{}", scenario.name);
        let trees = recorder.trees();
        if trees != scenario.trees {
            found.push(format!("{}:\n{trees}", scenario.name));
        }
        let roots = trees.lines().filter(|line| !line.starts_with(' ')).count();
        assert_eq!(roots, 1, "{}", scenario.name);
    }
    assert!(found.is_empty(), "other trees:\n{}", found.join("\n"));
    println!("{} trees", SCENARIOS.len());
}

fn usage_of(span: &RecordedSpan) -> Usage {
    Usage {
        input_tokens: span.number("gen_ai.usage.input_tokens"),
        output_tokens: span.number("gen_ai.usage.output_tokens"),
        cache_read_input_tokens: span.number("gen_ai.usage.cache_read.input_tokens"),
        cache_write_input_tokens: span.number("gen_ai.usage.cache_write.input_tokens"),
        reasoning_tokens: span.number("gen_ai.usage.reasoning.output_tokens"),
        ..Usage::default()
    }
}

#[tokio::test(start_paused = true)]
async fn the_usage_of_a_run_is_the_sum_of_the_usage_of_its_spans() {
    let mut compared = 0;
    for scenario in SCENARIOS {
        let (recorder, events) = start(scenario);
        let events: Vec<_> = events.collect().await;
        let outcome = events.iter().flatten().find_map(Event::outcome);
        let spans = recorder.spans().into_iter();
        let sum = spans.map(|span| usage_of(&span)).fold(Usage::default(), |sum, it| sum + it);
        let Some(outcome) = outcome else { continue };
        assert_eq!(sum, outcome.usage + *outcome.nested_usage, "{}", scenario.name);
        compared += 1;
    }
    assert!(compared >= 18, "{compared} outcomes");
}

/// The attributes of the conventions, version 0.1.0.
const CONVENTIONS: &str = include_str!("conventions.tsv");

/// The attributes that the conventions define for a span, or only the required ones.
fn defined(span: &str, only_required: bool) -> BTreeSet<&'static str> {
    let rows = CONVENTIONS.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let rows = rows.filter(|row| row[0] == span && (!only_required || row[2] == "required"));
    rows.map(|row| row[1]).collect()
}

#[tokio::test(start_paused = true)]
async fn spans_have_the_required_attributes_and_none_that_the_conventions_do_not_define() {
    for scenario in SCENARIOS {
        let (recorder, events) = start(scenario);
        events.collect::<Vec<_>>().await;
        for span in recorder.spans() {
            let operation = span.name.split(' ').next().unwrap();
            assert_eq!(span.text("gen_ai.operation.name").as_deref(), Some(operation));
            let defined_all = defined(operation, false);
            let names: BTreeSet<_> = span.attributes.iter().map(|it| it.key.as_str()).collect();
            for name in &names {
                let is_known = name.starts_with("turnstream.") || defined_all.contains(name);
                assert!(is_known, "{}: `{}` has {name}", scenario.name, span.name);
            }
            for required in defined(operation, true) {
                assert!(names.contains(required), "`{}` has no {required}", span.name);
            }
        }
    }
}
