//! Compactions of an idle session: the note and the record that they keep.

use futures::executor::block_on;
use serde_json::json;
use turnstream::context::{
    BytesDiv4, Compaction, Compactor, Summarizer, compactor_fn, count_tokens, estimate_tokens,
    was_reactively_compacted,
};
use turnstream::event::EndReason;
use turnstream::item::ItemFlag;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{JsonLinesStore, MemoryStore, Session, Store};
use turnstream::tool::Verdict;
use turnstream::{Agent, Error, ErrorKind, History, Item};

use crate::stores::sample_entries::TempFolder;
use crate::support::items::token_usage;
use crate::support::stores::open_session;
use crate::support::tools::{Counter, ok_tool};

fn context_window_error() -> Reply {
    Reply::error(Error::new(ErrorKind::ContextWindow, "the prompt is too long").with_status(400))
}

fn summarizer() -> Summarizer {
    Summarizer::new(Scripted::from_fn(|_, _| "In short.")).with_keep_turns(1)
}

async fn run_with_replies(
    session: &Session,
    replies: impl IntoIterator<Item = Reply>,
) -> EndReason {
    let agent = Agent::new(Scripted::new(replies)).with_compactor(summarizer());
    session.run(&agent, "And?").await.unwrap().outcome().await.unwrap().reason
}

fn reactive_note_count(history: &History) -> usize {
    let is_note = |item: &&Item| {
        item.compacted
            && item
                .provider_data
                .as_ref()
                .is_some_and(|data| data.value.to_value()["compaction"] == "reactive")
    };
    history.iter().filter(is_note).count()
}

/// A session in which a request once exceeded the window.
async fn reactively_compacted_session(store: &(impl Store + Clone + 'static)) -> Session {
    let session = open_session(store).await;
    for text in ["One.", "Two."] {
        assert_eq!(run_with_replies(&session, [text.into()]).await, EndReason::Completed);
    }
    assert_eq!(
        run_with_replies(&session, [context_window_error(), "Three.".into()]).await,
        EndReason::Completed
    );
    assert!(was_reactively_compacted(&session.history()));
    session
}

async fn assert_repeated_compaction(store: impl Store + Clone + 'static) {
    let session = reactively_compacted_session(&store).await;
    for n in 0..3 {
        run_with_replies(&session, ["Yes.".into()]).await;
        run_with_replies(&session, ["No.".into()]).await;
        assert!(session.compact(&summarizer()).await.unwrap().is_some());
        let history = session.history();
        assert_eq!(reactive_note_count(&history), 1, "after compaction {n}: {history:?}");
        assert!(history.is_settled());
        assert_eq!(open_session(&store).await.history(), history);
        assert_eq!(session.compact(&summarizer()).await.unwrap(), None);
    }
    // A manual compaction of the whole history.
    let summary = Item::user("All of it.").with_flag(ItemFlag::Compacted);
    let all = session.history().len();
    session.checkpoint(0..all, [summary.clone()]).await.unwrap();
    assert_eq!(session.history().len(), 2);
    assert_eq!(session.history().iter().next(), Some(&summary));
    assert_eq!(open_session(&store).await.history(), session.history());
    // Neither the session nor a fork of it is compacted reactively for a second time.
    let fork = session.fork_at(session.version(), "f").await.unwrap();
    for session in [&session, &fork] {
        assert!(was_reactively_compacted(&session.history()));
        assert_eq!(
            run_with_replies(session, [context_window_error()]).await,
            EndReason::ContextWindow
        );
        assert_eq!(reactive_note_count(&session.history()), 1);
    }
}

#[tokio::test]
async fn a_session_that_was_compacted_reactively_can_be_compacted_again_and_keeps_the_note() {
    assert_repeated_compaction(MemoryStore::new()).await;
    let folder = TempFolder::new();
    assert_repeated_compaction(JsonLinesStore::open(folder.path()).unwrap()).await;
    #[cfg(feature = "sqlite")]
    {
        let store = turnstream::session::SqliteStore::open(folder.path().join("db")).unwrap();
        assert_repeated_compaction(store).await;
    }
}

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
