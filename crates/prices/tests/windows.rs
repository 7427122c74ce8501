//! The context windows of models.

use turnstream::agent::Agent;
use turnstream::context::{ContextWindows, Window, compactor_fn};
use turnstream::provider::{Reply, Scripted};
use turnstream::{Event, History, Item};
use turnstream_prices::BundledPrices;

#[test]
fn windows_are_those_that_vendors_publish() {
    let windows = BundledPrices::new();
    // https://platform.claude.com/docs/en/build-with-claude/context-windows
    assert_eq!(windows.context_window("claude-opus-4-6"), Some(1_000_000));
    assert_eq!(windows.context_window("claude-haiku-4-5-20251001"), Some(200_000));
    // https://developers.openai.com/api/docs/models/gpt-5
    assert_eq!(windows.context_window("gpt-5-2025-08-07"), Some(400_000));
    assert_eq!(windows.context_window("my-local-model"), None);
}

/// Returns whether a run on a history of 150,000 tokens compacts it.
fn compacts(model: &'static str) -> bool {
    let history = History::from_items(
        "h",
        [Item::user("word".repeat(75_000)), Item::text("word".repeat(75_000))],
    );
    let forget = compactor_fn(|history: &History| {
        let to = history.len().saturating_sub(1);
        Ok((to > 0).then(|| turnstream::context::Compaction::new(0, to, Vec::new())))
    });
    let agent = Agent::new(Scripted::new([Reply::text("done")]).with_model(model))
        .with_window(Window::by_model(BundledPrices::new(), 100_000))
        .with_compactor(forget);
    let events = futures::executor::block_on_stream(agent.run_from(history, "go"));
    events.into_iter().any(|event| matches!(event.unwrap(), Event::Rewritten { .. }))
}

#[test]
fn the_window_of_the_model_decides_when_the_history_is_compacted() {
    assert!(!compacts("claude-opus-4-6"), "150,000 of 1,000,000 tokens");
    assert!(compacts("gpt-4o"), "150,000 of 128,000 tokens");
    assert!(compacts("my-local-model"), "150,000 of 100,000 tokens");
}
