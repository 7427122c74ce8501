//! The compactor of an agent without an explicit one: a context that is full of tool results.

use serde_json::json;
use turnstream::context::{Truncator, Window, was_reactively_compacted};
use turnstream::event::EndReason;
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Request, Usage};

use super::{compaction_order, look_tool, run_to_end};
use turnstream_test_support::items::token_usage;

const RESULT_BYTES: usize = 22_000;

/// The lengths of all results, oldest first.
fn result_lengths(history: &History) -> Vec<usize> {
    history.iter().filter_map(Item::as_tool_result).map(|it| it.content.text().len()).collect()
}

/// A model whose requests may contain at most `max_bytes` of results. It calls `look` until the
/// history has `results` results.
fn model_with_limit(max_bytes: usize, results: usize, usage: Usage) -> Scripted {
    Scripted::from_fn(move |request: &Request, _| {
        let lengths = result_lengths(&request.context);
        if lengths.iter().sum::<usize>() > max_bytes {
            return Reply::error(Error::new(ErrorKind::ContextWindow, "the prompt is too long"));
        }
        match lengths.len() < results {
            true => Reply::new().call("look", json!({ "page": lengths.len() })).usage(usage),
            false => Reply::text("Done."),
        }
    })
}

fn agent(model: &Scripted) -> Agent {
    Agent::new(model.clone()).with_tools([look_tool(RESULT_BYTES)])
}

#[tokio::test]
async fn by_default_old_results_are_truncated_if_a_request_does_not_fit() {
    let model = model_with_limit(9 * RESULT_BYTES, 10, Usage::default());
    let (events, outcome) = run_to_end(agent(&model).run("go")).await;
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "Done."));
    assert_eq!(compaction_order(&events), "tttttttttttct");
    assert!(was_reactively_compacted(&outcome.history));
    let lengths = result_lengths(&outcome.history);
    let (old, new) = lengths.split_at(lengths.iter().filter(|len| **len <= 1_024).count());
    // Half of the request is enough, and the oldest results are truncated first.
    assert_eq!((old.len(), new), (6, [RESULT_BYTES; 4].as_slice()), "{lengths:?}");
    assert!(old.iter().all(|len| *len > 500), "the head and the tail remain: {lengths:?}");
    assert!(outcome.history.is_settled());
}

#[tokio::test]
async fn with_a_window_no_more_results_are_truncated_than_necessary() {
    let model = model_with_limit(usize::MAX, 10, Usage::default());
    let window = Window::new(50_000);
    let (events, outcome) = run_to_end(agent(&model).with_window(window).run("go")).await;
    assert_eq!(outcome.reason, EndReason::Completed);
    // Above 40,000 tokens, the request is shortened to 30,000 tokens, which are 120,000 bytes.
    assert_eq!(compaction_order(&events), "ttttttttcttt");
    let lengths = result_lengths(&outcome.history);
    let truncated = lengths.iter().filter(|len| **len <= 1_024).count();
    assert!(lengths[truncated..].iter().all(|len| *len == RESULT_BYTES), "{lengths:?}");
    assert_eq!(truncated, 3, "{lengths:?}");
}

#[tokio::test]
async fn a_result_is_truncated_once_and_then_never_changes_again() {
    let model = model_with_limit(usize::MAX, 40, Usage::default());
    let agent = agent(&model)
        .with_limits(turnstream::agent::Limits { max_turns: Some(80), ..Default::default() })
        .with_window(Window::new(50_000));
    let (events, outcome) = run_to_end(agent.run("go")).await;
    assert_eq!(outcome.reason, EndReason::Completed);
    let rewritten: Vec<(usize, usize)> = events
        .iter()
        .filter_map(|event| match event {
            Event::Rewritten { from, to, .. } => Some((*from, *to)),
            _ => None,
        })
        .collect();
    assert!(rewritten.len() > 3, "{rewritten:?}");
    assert!(rewritten.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{rewritten:?}");
}

#[tokio::test]
async fn if_only_the_newest_results_are_left_the_run_ends_with_the_context_window() {
    let model = Scripted::from_fn(|request: &Request, _| {
        match result_lengths(&request.context).is_empty() {
            true => {
                (0..10).fold(Reply::text("Let me look."), |reply, _| reply.call("look", json!({})))
            }
            false => Reply::error(Error::new(ErrorKind::ContextWindow, "the prompt is too long")),
        }
    });
    let (events, outcome) = run_to_end(agent(&model).run("go")).await;
    assert_eq!(outcome.reason, EndReason::ContextWindow);
    assert_eq!(compaction_order(&events), "tt");
    assert_eq!(result_lengths(&outcome.history), [RESULT_BYTES; 10]);
}

#[tokio::test]
async fn an_explicit_truncator_leaves_results_whole() {
    let usage = token_usage(10, 1);
    let model = model_with_limit(9 * RESULT_BYTES, 10, usage);
    let agent = agent(&model).with_compactor(Truncator::new());
    let (_, outcome) = run_to_end(agent.run("go")).await;
    assert_eq!(outcome.reason, EndReason::ContextWindow);
    assert_eq!(result_lengths(&outcome.history), [RESULT_BYTES; 10]);
}
