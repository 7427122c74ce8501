//! The result that a parent receives at the end of its sub-agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use serde_json::json;
use turnstream::agent::{Budget, Limits, hook};
use turnstream::event::EndReason;
use turnstream::item::{Item, ResultKind};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::Tool;
use turnstream::turn::StopReason;
use turnstream::{Agent, Error, ErrorKind, Event, Usage};

use turnstream_test_support::replays;
use turnstream_test_support::runs::{collect_rest, limits_with_max_turns};
use turnstream_test_support::tools::spec;

/// Runs a parent that calls the agent once. Returns how the child ended, and its result.
async fn sub_agent_result(child: Agent) -> (EndReason, ResultKind, String) {
    let tool = child.as_tool("child", "Looks").unwrap();
    let asks = Reply::new().call("child", json!({ "prompt": "look" }));
    let parent = Agent::new(Scripted::new([asks, "I see.".into()])).with_tools([tool]);
    let events =
        collect_rest(&mut parent.with_recorder(replays::replaying_recorder()).run("go")).await;
    let nested = events.iter().filter_map(|event| match event {
        Event::Nested { event, .. } => event.outcome(),
        _ => None,
    });
    let reasons: Vec<_> = nested.map(|outcome| outcome.reason).collect();
    let results: Vec<_> = events.iter().filter_map(Event::tool_output).collect();
    let ([reason], [result]) = (&reasons[..], &results[..]) else { panic!("{events:?}") };
    (*reason, result.kind, result.content.text())
}

/// An agent whose model writes this text, calls a tool, and continues with `replies`.
fn agent_that_says(text: &str, replies: impl IntoIterator<Item = Reply>) -> Agent {
    let cost = Usage { input_tokens: 10, ..Usage::default() };
    let first = Reply::text(text).call("t", json!({})).usage(cost);
    let tool = Tool::raw(spec("t"), |_, _| async { "fine" }).unwrap();
    let limits = Limits { max_continuations: 0, max_turn_retries: 0, ..Limits::default() };
    Agent::new(Scripted::new([first].into_iter().chain(replies)))
        .with_tools([tool])
        .with_limits(limits)
}

/// Agents that end early, each of which has written `text` in its last turn.
fn agents_that_end_early(text: &str) -> Vec<(EndReason, Agent, &'static str)> {
    let cut = Reply::text(text).stop(StopReason::MaxTokens);
    let stops = hook::should_stop(|_| async { true });
    vec![
        (
            EndReason::MaxTurns,
            agent_that_says(text, []).with_limits(limits_with_max_turns(1)),
            "the step limit was reached",
        ),
        (
            EndReason::Budget,
            agent_that_says(text, []).with_budget(Budget::new().with_total_tokens(5)),
            "its budget was spent",
        ),
        (EndReason::Truncated, agent_that_says("", [cut]), "the output limit was reached"),
        (EndReason::Stopped, agent_that_says(text, []).with_hook(stops), "it was stopped"),
    ]
}

#[tokio::test]
async fn a_sub_agent_ended_early_with_text_is_a_result_marked_as_partial() {
    for (reason, child, why) in agents_that_end_early("Two of ten.") {
        let (ended, kind, text) = sub_agent_result(child).await;
        assert_eq!((ended, kind), (reason, ResultKind::Ok), "{text}");
        let stamp = format!("[stopped early: {why} — this result is partial]");
        assert!(text.starts_with("Two of ten.\n\n"), "{text}");
        assert!(text.ends_with(&stamp), "{text}");
    }
}

#[tokio::test]
async fn a_sub_agent_ended_early_without_text_is_a_failed_result() {
    for (reason, child, why) in agents_that_end_early(" ") {
        let (ended, kind, text) = sub_agent_result(child).await;
        assert_eq!((ended, kind), (reason, ResultKind::Error), "{text}");
        assert!(text.contains(why), "{text}");
    }
}

#[tokio::test]
async fn a_failed_sub_agent_is_an_error_result_even_with_text() {
    let busy = Error::new(ErrorKind::Overloaded, "busy");
    let repeats = Limits { end_after_repeats: 1, ..Limits::default() };
    let full = Reply::text("half").stop(StopReason::ContextWindow);
    for (reason, child) in [
        (EndReason::Refused, agent_that_says("", [Reply::text("no").stop(StopReason::Refusal)])),
        (
            EndReason::Filtered,
            agent_that_says("", [Reply::text("half").stop(StopReason::ContentFilter)]),
        ),
        (EndReason::ContextWindow, agent_that_says("", [full]).without_compactor()),
        (EndReason::Malformed, agent_that_says("so", [Reply::new().stop(StopReason::ToolCalls)])),
        (EndReason::Repeating, agent_that_says("so", []).with_limits(repeats)),
        (EndReason::Incomplete, agent_that_says("", [Reply::text("half").disconnect()])),
        (EndReason::ProviderError, agent_that_says("", [Reply::text("half").fail(busy)])),
    ] {
        let (ended, kind, text) = sub_agent_result(child).await;
        assert_eq!((ended, kind), (reason, ResultKind::Error), "{text}");
        assert!(text.contains("[stopped early: "), "{text}");
    }
}

#[tokio::test]
async fn the_default_turn_limit_of_a_sub_agent_is_eighty() {
    for (cap, expected) in [(None, 80), (Some(3), 3), (Some(90), 90)] {
        let asked = Arc::new(AtomicUsize::new(0));
        let n = Arc::clone(&asked);
        let next = Tool::raw(spec("next"), move |_, _| {
            let n = n.fetch_add(1, Ordering::Relaxed);
            async move { format!("number {n}") }
        });
        let model = Scripted::from_fn(|_, _| Reply::text("More.").call("next", json!({})));
        let limits = Limits { max_turns: cap, ..Limits::default() };
        let child = Agent::new(model.clone()).with_tools([next.unwrap()]).with_limits(limits);
        let (reason, kind, text) = sub_agent_result(child).await;
        assert_eq!((reason, kind), (EndReason::MaxTurns, ResultKind::Ok), "{text}");
        assert_eq!((model.requests().len(), asked.load(Ordering::Relaxed)), (expected, expected));
    }
}

#[tokio::test]
async fn an_interrupt_after_the_last_event_of_a_sub_agent_keeps_its_answer() {
    let child = Agent::new(Scripted::new(["The code is 1234."]));
    let asks = Reply::new().call("child", json!({ "prompt": "look" }));
    let edited = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&edited);
    let hides_digits = hook::after_tool(move |_, _, result| {
        count.fetch_add(1, Ordering::Relaxed);
        result.content = result.content.text().replace("1234", "****").into();
    });
    let parent = Agent::new(Scripted::new([asks, "Unused.".into()]))
        .with_tools([child.as_tool("child", "Looks").unwrap()])
        .with_hook(hides_digits)
        .with_recorder(replays::replaying_recorder());
    let mut run = parent.run("go");
    while let Some(event) = run.next().await {
        if let Event::Nested { event, .. } = event.unwrap()
            && event.outcome().is_some()
        {
            run.handle().interrupt();
        }
    }
    let outcome = run.outcome().await;
    assert!(matches!(outcome.reason, EndReason::Interrupted(_)), "{:?}", outcome.reason);
    let results: Vec<_> = outcome.history.iter().filter_map(Item::as_tool_result).collect();
    let [result] = results[..] else { panic!("{results:?}") };
    assert_eq!((result.kind, &*result.content.text()), (ResultKind::Ok, "The code is ****."));
    assert_eq!(edited.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn the_result_of_a_sub_agent_that_completes_without_text_says_so() {
    let child = agent_that_says("I will look.", [Reply::text("")]);
    let (ended, kind, text) = sub_agent_result(child).await;
    assert_eq!((ended, kind), (EndReason::Completed, ResultKind::Ok));
    assert_eq!(text, "[the agent completed its task without an answer in words]");
}

#[tokio::test]
async fn the_result_of_a_sub_agent_is_the_text_of_its_last_turn() {
    let child = agent_that_says("Let me look.", [Reply::text("Two pages.")]);
    let expected = (EndReason::Completed, ResultKind::Ok, "Two pages.".to_owned());
    assert_eq!(sub_agent_result(child).await, expected);
}
