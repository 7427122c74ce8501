//! Each scripted run has one tree of spans, with the right parents, and its usage is counted once.

use std::collections::BTreeSet;

use futures::StreamExt;
use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use turnstream::event::{Event, Outcome};
use turnstream::request::{Effort, Options, Output, Reasoning};
use turnstream::usage::{Billing, Usage};
use turnstream_otel::{Conventions, Telemetry};

use crate::recorder::{RecordedSpan, Recorder};
use crate::scenarios::{Events, Scenario, TokioClock, agent, answer, model, scenarios, usage};

pub(crate) fn silent_meter() -> Meter {
    SdkMeterProvider::default().meter("tests")
}

pub(crate) fn recorded_telemetry(recorder: &Recorder) -> Telemetry {
    Telemetry::new(recorder.clone(), &silent_meter()).with_clock(TokioClock::new())
}

/// Starts a scenario's run, with a tracer that keeps its spans.
pub(crate) fn start(scenario: &Scenario) -> (Recorder, Events) {
    let recorder = Recorder::default();
    let events = (scenario.start)(&recorded_telemetry(&recorder));
    (recorder, events)
}

#[tokio::test(start_paused = true)]
async fn each_run_has_one_tree_with_the_right_parents() {
    let mut found = Vec::new();
    for scenario in scenarios() {
        let (recorder, events) = start(scenario);
        events.collect::<Vec<_>>().await;
        assert_eq!(recorder.open_spans(), Vec::<String>::new(), "{}", scenario.name);
        let trees = recorder.trees();
        if trees != scenario.trees {
            found.push(format!("{}:\n{trees}", scenario.name));
        }
        // Only an attempt that continues a durable run has a tree of its own.
        let roots = trees.lines().filter(|line| !line.starts_with(' ')).count();
        let attempts = if scenario.name.starts_with("a durable run") { 2 } else { 1 };
        assert_eq!(roots, attempts, "{}", scenario.name);
    }
    assert!(found.is_empty(), "other trees:\n{}", found.join("\n"));
    println!("{} trees", scenarios().count());
}

pub(crate) fn usage_of(span: &RecordedSpan) -> Usage {
    Usage {
        input_tokens: span.number("gen_ai.usage.input_tokens"),
        output_tokens: span.number("gen_ai.usage.output_tokens"),
        cache_read_input_tokens: span.number("gen_ai.usage.cache_read.input_tokens"),
        cache_write_input_tokens: span.number("gen_ai.usage.cache_write.input_tokens"),
        reasoning_tokens: span.number("gen_ai.usage.reasoning.output_tokens"),
        ..Usage::default()
    }
}

/// The usage of all recorded requests of a scenario.
pub(crate) fn expected_usage(scenario: &Scenario, outcome: &Outcome) -> Usage {
    match scenario.name {
        // Its parent's requests are not recorded.
        "a recorded sub-agent of an agent that is not" => *outcome.nested_usage,
        // A run that a tool has started, and the request of a lost attempt, are not part of the
        // outcome.
        "a tool that runs an agent" | "a durable run that is killed in a turn" => {
            outcome.usage + usage(100, 10)
        }
        _ => outcome.usage + *outcome.nested_usage,
    }
}

#[tokio::test(start_paused = true)]
async fn the_usage_of_a_run_is_the_sum_of_the_usage_of_its_spans() {
    let mut compared = 0;
    for scenario in scenarios() {
        let (recorder, events) = start(scenario);
        let events: Vec<_> = events.collect().await;
        let outcome = events.iter().flatten().find_map(Event::outcome);
        let spans = recorder.spans().into_iter();
        let sum = spans.map(|span| usage_of(&span)).fold(Usage::default(), |sum, it| sum + it);
        let Some(outcome) = outcome else { continue };
        let expected = expected_usage(scenario, outcome);
        assert_eq!(sum, expected, "{}", scenario.name);
        compared += 1;
    }
    assert!(compared >= 18, "{compared} outcomes");
}

/// The attributes of the conventions, version 0.1.0.
const CONVENTIONS: &str = include_str!("conventions.tsv");

/// The attributes of the older conventions.
const OLDER_CONVENTIONS: &str = include_str!("conventions_1_41.tsv");

/// The attributes that conventions define for a span, or only the required ones.
fn defined(table: &'static str, span: &str, only_required: bool) -> BTreeSet<&'static str> {
    let rows = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let rows = rows.filter(|row| row[0] == span && (!only_required || row[2] == "required"));
    rows.map(|row| row[1]).collect()
}

#[tokio::test(start_paused = true)]
async fn spans_have_the_required_attributes_and_none_that_the_conventions_do_not_define() {
    for (conventions, table) in
        [(Conventions::GenAi0_1, CONVENTIONS), (Conventions::General1_41, OLDER_CONVENTIONS)]
    {
        for (scenario, span) in recorded_spans(conventions).await {
            let operation = span.text("gen_ai.operation.name").unwrap();
            assert_eq!(span.name.split(' ').next(), Some(&*operation));
            let defined_all = defined(table, &operation, false);
            let names: BTreeSet<_> = span.attributes.iter().map(|it| it.key.as_str()).collect();
            for name in &names {
                let is_known = name.starts_with("turnstream.") || defined_all.contains(name);
                assert!(is_known, "{conventions:?}, {scenario}: `{}` has {name}", span.name);
            }
            for required in defined(table, &operation, true) {
                assert!(names.contains(required), "{conventions:?}: `{}`: {required}", span.name);
            }
        }
    }
}

/// The spans of all scenarios and of a run with all options, with content.
async fn recorded_spans(conventions: Conventions) -> Vec<(&'static str, RecordedSpan)> {
    let telemetry = |recorder: &Recorder| {
        recorded_telemetry(recorder).with_content(true).with_conventions(conventions)
    };
    let recorder = Recorder::default();
    run_with_all_options(&telemetry(&recorder)).await;
    let mut spans: Vec<_> = recorder.spans().into_iter().map(|it| ("all options", it)).collect();
    for scenario in scenarios() {
        let recorder = Recorder::default();
        (scenario.start)(&telemetry(&recorder)).collect::<Vec<_>>().await;
        spans.extend(recorder.spans().into_iter().map(|it| (scenario.name, it)));
    }
    spans
}

/// A run with every option that is an attribute.
async fn run_with_all_options(telemetry: &Telemetry) {
    let options = Options {
        max_output_tokens: Some(500),
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(40),
        seed: Some(1),
        frequency_penalty: Some(0.1),
        presence_penalty: Some(0.1),
        stop_sequences: vec!["END".into()],
        reasoning: Some(Reasoning::Effort(Effort::High)),
        output: Output::Json,
        ..Options::default()
    };
    let mut billing = Billing::default();
    billing.set_service_tier("flex");
    for kind in ["input_audio", "cache_read_audio", "output_audio", "output_image"] {
        billing.set_tokens_of_kind(kind, 7);
    }
    let agent = agent(model([answer("{}").billing(billing)])).with_options(options);
    agent.with_run_observer(telemetry.clone()).run("Go.").collect::<Vec<_>>().await;
    // A scripted model has no ids.
    let turn = serde_json::json!({
        "type": "turn_complete",
        "turn": { "items": [], "stop_reason": "stop", "usage": {}, "response_id": "r" },
    });
    telemetry.start_run().observe(&serde_json::from_value(turn).unwrap());
}

#[tokio::test(start_paused = true)]
async fn each_attribute_of_the_conventions_is_recorded_unless_the_table_has_a_reason() {
    for (conventions, table) in
        [(Conventions::GenAi0_1, CONVENTIONS), (Conventions::General1_41, OLDER_CONVENTIONS)]
    {
        let mut found = BTreeSet::new();
        for (_, span) in recorded_spans(conventions).await {
            let operation = span.text("gen_ai.operation.name").unwrap();
            let attributes = span.attributes.iter();
            found.extend(attributes.map(|it| (operation.clone(), it.key.to_string())));
        }
        let is_found = |span: &str, name: &str| found.contains(&(span.to_owned(), name.to_owned()));
        check_rows(table, |name| !name.contains('.'), is_found);
    }
}

/// Checks that the attributes of a table are recorded, except for those with a reason.
pub(crate) fn check_rows(
    table: &str,
    is_checked: impl Fn(&str) -> bool,
    is_recorded: impl Fn(&str, &str) -> bool,
) {
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    let rows = rows.map(|line| line.split('\t').collect::<Vec<_>>());
    let mut wrong = Vec::new();
    for row in rows.filter(|row| is_checked(row[0])) {
        if is_recorded(row[0], row[1]) == row.get(3).is_some() {
            wrong.push(row.join(" "));
        }
    }
    assert!(wrong.is_empty(), "missing, or recorded in spite of a reason:\n{}", wrong.join("\n"));
}
