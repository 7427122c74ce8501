//! Compactions of an idle session.

use turnstream::context::{Summarizer, was_reactively_compacted};
use turnstream::event::EndReason;
use turnstream::item::ItemFlag;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{Session, Store};
use turnstream::{Agent, Error, ErrorKind, History, Item};

use super::temp_store::ReopenableStore;
use super::tools::open_session;

fn context_window_error() -> Reply {
    Reply::error(Error::new(ErrorKind::ContextWindow, "the prompt is too long").with_status(400))
}

/// A compactor that keeps one turn.
pub fn summarizer() -> Summarizer {
    Summarizer::new(Scripted::from_fn(|_, _| "In short.")).with_keep_turns(1)
}

/// Runs an agent whose model gives these replies, and returns why the run has ended.
pub async fn run_with_replies(
    session: &Session,
    replies: impl IntoIterator<Item = Reply>,
) -> EndReason {
    let agent = Agent::new(Scripted::new(replies)).with_compactor(summarizer());
    session.run(&agent, "And?").await.unwrap().outcome().await.unwrap().reason
}

/// The number of items that state that a request exceeded the window.
pub fn reactive_note_count(history: &History) -> usize {
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
pub async fn reactively_compacted_session(store: &(impl Store + Clone + 'static)) -> Session {
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

pub async fn a_session_that_was_compacted_reactively_can_be_compacted_again_and_keeps_the_note(
    empty: fn() -> ReopenableStore,
) {
    let reopenable = empty();
    let store = reopenable.open();
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
