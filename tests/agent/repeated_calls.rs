//! A run that repeats its calls ends, and one that polls does not.

use std::time::Duration;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use turnstream::agent::Limits;
use turnstream::event::{AppendReason, EndReason};
use turnstream::item::ResultKind;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::Tool;
use turnstream::{Agent, Event, Outcome};

use turnstream_test_support::replays;
use turnstream_test_support::runs::{collect_rest, result_summaries};
use turnstream_test_support::tools::spec;

/// A tool that always returns the same result.
fn constant_tool(name: &str) -> Tool {
    Tool::raw(spec(name), |_, _| async { "the same" }).unwrap()
}

/// A tool that never returns the same result twice.
fn fresh_result_tool(name: &str) -> Tool {
    let n = Arc::new(AtomicU32::new(0));
    Tool::raw(spec(name), move |_, _| {
        let n = n.fetch_add(1, Ordering::Relaxed);
        async move { format!("number {n}") }
    })
    .unwrap()
}

/// An agent whose model calls these tools, one list per turn, again and again.
fn cycling_agent(cycle: &'static [&'static [&'static str]], limits: Limits) -> Agent {
    cycling_agent_with_poll(cycle, limits, constant_tool("poll").pollable())
}

fn cycling_agent_with_poll(
    cycle: &'static [&'static [&'static str]],
    limits: Limits,
    poll: Tool,
) -> Agent {
    let model = Scripted::from_fn(move |_, n| {
        let names = cycle[n % cycle.len()];
        names.iter().fold(Reply::text("Once more."), |reply, name| reply.call(name, json!({})))
    });
    Agent::new(model)
        .with_tools(
            ["a", "b", "c", "d", "e"]
                .map(constant_tool)
                .into_iter()
                .chain([fresh_result_tool("new"), poll]),
        )
        .with_limits(limits)
        .with_recorder(replays::replaying_recorder())
}

/// The outcome of a run, and the numbers of the requests after which the model was warned.
async fn run_to_end(agent: &Agent) -> (Outcome, Vec<u32>) {
    let events = collect_rest(&mut agent.run("go")).await;
    let mut turn = 0;
    let mut nudges = Vec::new();
    for event in &events {
        match event {
            Event::TurnStarted { turn: begun, .. } => turn = *begun,
            Event::Appended { why: AppendReason::Nudge, .. } => nudges.push(turn),
            _ => {}
        }
    }
    (events.last().and_then(Event::outcome).unwrap().clone(), nudges)
}

const NUDGE_ONLY_LIMITS: Limits = Limits {
    forced_tool_turns: 1,
    max_turns: Some(60),
    max_corrections: 2,
    max_continuations: 3,
    max_truncated_call_retries: 1,
    max_turn_retries: 1,
    nudge_after_repeats: 4,
    end_after_repeats: 24,
    end_after_failed_fixes: 0,
    max_turn_bytes: 1 << 20,
    max_depth: 8,
    hook_timeout: None,
    tool_source_timeout: None,
    compactor_timeout: None,
    long_poll: Duration::from_millis(100),
};

#[track_caller]
fn assert_end((outcome, told): (Outcome, Vec<u32>), ends: (EndReason, u32), nudges: &[u32]) {
    assert_eq!((outcome.reason, outcome.turns), ends);
    assert_eq!(told, nudges);
}

#[tokio::test]
async fn a_cycle_of_up_to_four_turns_ends_the_run_as_repeating() {
    let end = (EndReason::Repeating, 24);
    assert_end(
        run_to_end(&cycling_agent(&[&["a"]], NUDGE_ONLY_LIMITS)).await,
        end,
        &[4, 8, 12, 16, 20],
    );
    assert_end(
        run_to_end(&cycling_agent(&[&["a"], &["b"]], NUDGE_ONLY_LIMITS)).await,
        end,
        &[4, 8, 12, 16, 20],
    );
    assert_end(
        run_to_end(&cycling_agent(&[&["a", "b"], &["b", "a"]], NUDGE_ONLY_LIMITS)).await,
        end,
        &[4, 8, 12, 16, 20],
    );
    let three: &[&[&str]] = &[&["a"], &["b"], &["c", "d"]];
    assert_end(run_to_end(&cycling_agent(three, NUDGE_ONLY_LIMITS)).await, end, &[8, 12, 16, 20]);
    let four: &[&[&str]] = &[&["a"], &["a"], &["b"], &["c"]];
    assert_end(run_to_end(&cycling_agent(four, NUDGE_ONLY_LIMITS)).await, end, &[8, 12, 16, 20]);
}

#[tokio::test]
async fn longer_cycles_and_differing_results_are_bounded_only_by_the_turn_limit() {
    let end = (EndReason::MaxTurns, 60);
    let five: &[&[&str]] = &[&["a"], &["b"], &["c"], &["d"], &["e"]];
    assert_end(run_to_end(&cycling_agent(five, NUDGE_ONLY_LIMITS)).await, end, &[]);
    assert_end(run_to_end(&cycling_agent(&[&["new"]], NUDGE_ONLY_LIMITS)).await, end, &[]);
    assert_end(run_to_end(&cycling_agent(&[&["a"], &["new"]], NUDGE_ONLY_LIMITS)).await, end, &[]);
    let never = Limits { nudge_after_repeats: 0, end_after_repeats: 0, ..NUDGE_ONLY_LIMITS };
    assert_end(run_to_end(&cycling_agent(&[&["a"], &["b"]], never)).await, end, &[]);
}

#[tokio::test]
async fn polling_calls_alone_are_not_repetition_and_end_at_the_turn_limit() {
    let end = (EndReason::MaxTurns, 60);
    assert_end(run_to_end(&cycling_agent(&[&["poll"]], NUDGE_ONLY_LIMITS)).await, end, &[]);
    assert_end(
        run_to_end(&cycling_agent(&[&["poll", "poll"], &["poll"]], NUDGE_ONLY_LIMITS)).await,
        end,
        &[],
    );
    assert_end(run_to_end(&cycling_agent(&[&["poll", "new"]], NUDGE_ONLY_LIMITS)).await, end, &[]);
    // The same without declaring the tool as pollable.
    let plain = cycling_agent_with_poll(&[&["poll"]], NUDGE_ONLY_LIMITS, constant_tool("poll"));
    assert_end(run_to_end(&plain).await, (EndReason::Repeating, 24), &[4, 8, 12, 16, 20]);
}

#[tokio::test]
async fn polling_calls_between_identical_calls_do_not_hide_repetition() {
    let limits = Limits { end_after_repeats: 6, ..NUDGE_ONLY_LIMITS };
    let beside: &[&[&str]] = &[&["a", "poll"], &["poll", "a", "poll"], &["a"]];
    assert_end(run_to_end(&cycling_agent(beside, limits)).await, (EndReason::Repeating, 6), &[4]);
    // A turn that only polls is not counted, and the model is warned once, not again after that
    // turn.
    let between: &[&[&str]] = &[&["a"], &["poll"]];
    assert_end(run_to_end(&cycling_agent(between, limits)).await, (EndReason::Repeating, 11), &[7]);
    let cycle: &[&[&str]] = &[&["a"], &["poll"], &["poll"], &["b"]];
    assert_end(run_to_end(&cycling_agent(cycle, limits)).await, (EndReason::Repeating, 12), &[8]);
}

#[tokio::test]
async fn calls_that_differ_only_in_argument_field_order_are_equal() {
    let model = Scripted::from_fn(|_, n| {
        let arguments = [r#"{"x":1,"y":{"a":2,"b":3}}"#, r#"{ "y": {"b":3, "a":2}, "x": 1 }"#];
        Reply::new().call_raw(&format!("c{n}"), "a", arguments[n % 2])
    });
    let limits = Limits { nudge_after_repeats: 0, end_after_repeats: 3, ..NUDGE_ONLY_LIMITS };
    let agent = Agent::new(model).with_tools([constant_tool("a")]).with_limits(limits);
    // Two alternating calls would be counted as a cycle after the fourth.
    assert_end(run_to_end(&agent).await, (EndReason::Repeating, 3), &[]);
}

#[tokio::test]
async fn the_outcome_reports_repeated_calls() {
    let limits = Limits { end_after_repeats: 2, ..NUDGE_ONLY_LIMITS };
    let (outcome, _) = run_to_end(&cycling_agent(&[&["a"]], limits)).await;
    assert!(outcome.partial && outcome.error.is_none());
    let stamp = "[stopped early: it kept repeating the same calls — this result is partial]";
    assert_eq!(outcome.labeled_text(), format!("Once more.\n\n{stamp}"));
    let written = serde_json::to_value(&outcome).unwrap();
    assert_eq!(written["reason"], "repeating");
    let read: Outcome = serde_json::from_value(written).unwrap();
    assert_eq!(read, outcome);
    let error = outcome.into_result().unwrap_err();
    assert_eq!(error.to_string(), "the run ended early: repeating");
}

#[tokio::test]
async fn a_repeating_sub_agent_is_a_failed_result_for_its_parent() {
    let child =
        cycling_agent(&[&["a"], &["b"]], NUDGE_ONLY_LIMITS).as_tool("child", "Looks").unwrap();
    let asks = Reply::new().call("child", json!({ "prompt": "look" }));
    let parent = Agent::new(Scripted::new([asks, "I give up.".into()])).with_tools([child]);
    let outcome = parent.with_recorder(replays::replaying_recorder()).run("go").outcome().await;
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 2));
    let [(_, kind, text)] = &result_summaries(outcome.new_items())[..] else {
        panic!("{outcome:?}")
    };
    assert_eq!(*kind, ResultKind::Error);
    assert!(text.contains("it kept repeating the same calls"), "{text}");
}
