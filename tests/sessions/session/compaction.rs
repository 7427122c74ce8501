//! Compactions of a session at rest: the note and the record that they keep.

use futures::executor::block_on;
use turnstream::context::{
    BytesDiv4, Compaction, Compactor, Summarizer, compactor_fn, count_tokens, estimate_tokens,
    was_reactively_compacted,
};
use turnstream::event::EndReason;
use turnstream::item::Mark;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{JsonLinesStore, MemoryStore, Session, Store};
use turnstream::{Agent, Error, ErrorKind, History, Item};

use crate::stores::sample_entries::Folder;
use crate::support::items::token_usage;
use crate::support::stores::open_session;

fn too_long() -> Reply {
    Reply::error(Error::new(ErrorKind::ContextWindow, "the prompt is too long").with_status(400))
}

fn summarize() -> Summarizer {
    Summarizer::new(Scripted::from_fn(|_, _| "In short.")).with_keep_turns(1)
}

async fn say(session: &Session, replies: impl IntoIterator<Item = Reply>) -> EndReason {
    let agent = Agent::new(Scripted::new(replies)).with_compactor(summarize());
    session.run(&agent, "And?").await.unwrap().outcome().await.unwrap().reason
}

fn notes(history: &History) -> usize {
    let is_note = |item: &&Item| {
        item.compacted
            && item
                .provider_data
                .as_ref()
                .is_some_and(|data| data.value.to_value()["compaction"] == "reactive")
    };
    history.iter().filter(is_note).count()
}

/// A session in which a request did not fit once.
async fn compacted(store: &(impl Store + Clone + 'static)) -> Session {
    let session = open_session(store).await;
    for text in ["One.", "Two."] {
        assert_eq!(say(&session, [text.into()]).await, EndReason::Completed);
    }
    assert_eq!(say(&session, [too_long(), "Three.".into()]).await, EndReason::Completed);
    assert!(was_reactively_compacted(&session.history()));
    session
}

async fn compacts_again_and_again(store: impl Store + Clone + 'static) {
    let session = compacted(&store).await;
    for n in 0..3 {
        say(&session, ["Yes.".into()]).await;
        say(&session, ["No.".into()]).await;
        assert!(session.compact(&summarize()).await.unwrap().is_some());
        let history = session.history();
        assert_eq!(notes(&history), 1, "after compaction {n}: {history:?}");
        assert!(history.is_settled());
        assert_eq!(open_session(&store).await.history(), history);
        assert_eq!(session.compact(&summarize()).await.unwrap(), None);
    }
    // By hand as well, of the whole history.
    let summary = Item::user("All of it.").with_mark(Mark::Compacted);
    let all = session.history().len();
    session.checkpoint(0..all, [summary.clone()]).await.unwrap();
    assert_eq!(session.history().len(), 2);
    assert_eq!(session.history().iter().next(), Some(&summary));
    assert_eq!(open_session(&store).await.history(), session.history());
    // Neither it nor a fork of it is compacted reactively for a second time.
    let fork = session.fork_at(session.version(), "f").await.unwrap();
    for session in [&session, &fork] {
        assert!(was_reactively_compacted(&session.history()));
        assert_eq!(say(session, [too_long()]).await, EndReason::ContextWindow);
        assert_eq!(notes(&session.history()), 1);
    }
}

#[tokio::test]
async fn a_session_that_was_compacted_reactively_can_be_compacted_again_and_keeps_the_note() {
    compacts_again_and_again(MemoryStore::new()).await;
    let folder = Folder::new();
    compacts_again_and_again(JsonLinesStore::open(folder.path()).unwrap()).await;
    #[cfg(feature = "sqlite")]
    compacts_again_and_again(turnstream::session::SqliteStore::in_memory().unwrap()).await;
}

#[tokio::test]
async fn any_range_containing_the_compaction_note_can_be_replaced() {
    let store = MemoryStore::new();
    let session = compacted(&store).await;
    say(&session, ["Yes.".into()]).await;
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
            assert_eq!(notes(&fork.history()), 1, "{from}..{to}");
            let fork = session.fork_at(session.version(), format!("{from}-{to}-c")).await.unwrap();
            assert!(fork.compact(&range).await.unwrap().is_some());
            assert_eq!(notes(&fork.history()), 1, "{from}..{to}");
        }
    }
    assert!(replaced > 9, "{replaced}");
}

#[tokio::test]
async fn usage_after_the_compaction_of_a_session_counts() {
    let store = MemoryStore::new();
    let session = open_session(&store).await;
    for _ in 0..3 {
        say(&session, [Reply::text("Yes.").usage(token_usage(9_000, 10))]).await;
    }
    assert!(session.compact(&summarize()).await.unwrap().is_some());
    let history = session.history();
    assert_eq!(estimate_tokens(&history, &BytesDiv4), count_tokens(&history, &BytesDiv4));
    say(&session, [Reply::text("Yes.").usage(token_usage(500, 10))]).await;
    assert_eq!(estimate_tokens(&open_session(&store).await.history(), &BytesDiv4), 510);
}
