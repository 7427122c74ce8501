//! Compactions of an idle session: the note and the record that they keep.

use futures::executor::block_on;
use serde_json::json;
use turnstream::context::{
    BytesDiv4, Compaction, Compactor, compactor_fn, count_tokens, estimate_tokens,
};
use turnstream::event::EndReason;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::MemoryStore;
use turnstream::tool::Verdict;
use turnstream::{Agent, History};
use turnstream_test_support::store_suite::compaction::{
    reactive_note_count, reactively_compacted_session, run_with_replies, summarizer,
};

use turnstream_test_support::items::token_usage;
use turnstream_test_support::store_suite::open_session;
use turnstream_test_support::tools::{Counter, ok_tool};

#[tokio::test]
async fn any_range_containing_the_compaction_note_can_be_replaced() {
    let store = MemoryStore::new();
    let session = reactively_compacted_session(&store).await;
    run_with_replies(&session, ["Yes.".into()]).await;
    let history = session.history();
    let mut replaced = 0;
    for from in 0..=history.len() {
        for to in from..=history.len() {
            let fork = session.fork_at(session.version(), format!("{from}-{to}")).await.unwrap();
            let range =
                compactor_fn(move |_: &History| Ok(Some(Compaction::new(from, to, vec![]))));
            let alone = block_on(range.compact(&history)).unwrap().unwrap();
            let mut shorter = history.clone();
            alone.apply(&mut shorter);
            if !shorter.is_settled() {
                continue;
            }
            replaced += 1;
            fork.checkpoint(from..to, []).await.unwrap();
            assert_eq!(reactive_note_count(&fork.history()), 1, "{from}..{to}");
            let fork = session.fork_at(session.version(), format!("{from}-{to}-c")).await.unwrap();
            assert!(fork.compact(&range).await.unwrap().is_some());
            assert_eq!(reactive_note_count(&fork.history()), 1, "{from}..{to}");
        }
    }
    assert!(replaced > 9, "{replaced}");
}

#[tokio::test]
async fn usage_after_the_compaction_of_a_session_counts() {
    let store = MemoryStore::new();
    let session = open_session(&store).await;
    for _ in 0..3 {
        run_with_replies(&session, [Reply::text("Yes.").usage(token_usage(9_000, 10))]).await;
    }
    assert!(session.compact(&summarizer()).await.unwrap().is_some());
    let history = session.history();
    assert_eq!(estimate_tokens(&history, &BytesDiv4), count_tokens(&history, &BytesDiv4));
    run_with_replies(&session, [Reply::text("Yes.").usage(token_usage(500, 10))]).await;
    assert_eq!(estimate_tokens(&open_session(&store).await.history(), &BytesDiv4), 510);
}

#[tokio::test]
async fn a_compaction_of_a_pending_session_keeps_the_pending_call() {
    let counter = Counter::default();
    let long = "word ".repeat(4000);
    let replies = [
        Reply::text(&*long),
        Reply::text(&*long),
        Reply::new().call("delete", json!({})),
        Reply::text("Done."),
    ];
    let agent = Agent::new(Scripted::new(replies))
        .with_tool(ok_tool("delete", &counter).requires_approval());
    let session = open_session(&MemoryStore::new()).await;
    for _ in 0..2 {
        session.run(&agent, "And?").await.unwrap().outcome().await.unwrap();
    }
    let outcome = session.run(&agent, "Delete it").await.unwrap().outcome().await.unwrap();
    assert_eq!(outcome.reason, EndReason::Pending);
    let before = session.history().pending_calls();
    assert_eq!(before.len(), 1);

    session.compact(&summarizer()).await.unwrap();
    assert!(session.history().iter().any(|item| item.compacted));
    let after = session.history().pending_calls();
    assert_eq!(after, before);
    let verdicts: Vec<_> = after.into_iter().map(|call| (call, Verdict::Approve)).collect();
    let outcome = session.resume(&agent, verdicts).await.unwrap().outcome().await.unwrap();
    assert_eq!((outcome.text.as_str(), counter.started_count()), ("Done.", 1));
}
