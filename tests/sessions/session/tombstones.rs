//! Tombstoned items of a session.

use std::slice;

use futures::StreamExt;
use serde_json::json;
use turnstream::event::EndReason;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{MemoryStore, SessionState};
use turnstream::tool::Verdict;
use turnstream::{Agent, ErrorKind};
use turnstream_test_support::store_suite::tombstones::{agent_with_one_call, tombstone_indices};

use turnstream_test_support::store_suite::{IdempotencyKeys, key_recording_tool, open_session};
use turnstream_test_support::stores::CountingStore;

#[tokio::test]
async fn items_tombstoned_in_a_session_run_are_tombstoned_when_reloaded() {
    let store = MemoryStore::new();
    let session = open_session(&store).await;
    let agent = agent_with_one_call(&IdempotencyKeys::default());
    let mut run = session.run(&agent, "go").await.unwrap();
    while let Some(event) = run.next().await {
        if event.unwrap().tool_output().is_some() {
            run.tombstone([0]).unwrap();
        }
    }
    assert_eq!(tombstone_indices(&run.history()), [0]);
    assert_eq!(open_session(&store).await.history(), run.history());
    assert_eq!(run.tombstone([0]).unwrap_err().message(), "the run is over");
}

#[tokio::test]
async fn a_pending_call_cannot_be_tombstoned_and_earlier_items_can() {
    let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
    let session = open_session(&store).await;
    let model = Scripted::new([
        Reply::text("Hello!"),
        Reply::text("So.").call("look", json!({})),
        Reply::text("Done."),
    ]);
    let agent = Agent::new(model)
        .with_tools([key_recording_tool("look", &keys, false).requires_approval()]);
    session.run(&agent, "Hi").await.unwrap().outcome().await.unwrap();
    session.run(&agent, "go").await.unwrap().outcome().await.unwrap();
    let SessionState::Pending { calls } = session.state() else { panic!("nothing is pending") };
    let error = session.tombstone([0, 4]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert_eq!(error.parameter(), Some(&*calls[0].call_id));
    assert_eq!(tombstone_indices(&session.history()), [0; 0]);
    // Its text is in the same turn, but is not bound to it.
    session.tombstone([1, 3]).await.unwrap();
    let session = open_session(&store).await;
    assert_eq!(tombstone_indices(&session.history()), [1, 3]);
    assert_eq!(session.state(), SessionState::Pending { calls: calls.clone() });
    let verdicts = slice::from_ref(&calls[0]).iter().map(|it| (it.clone(), Verdict::Approve));
    let outcome = session.resume(&agent, verdicts).await.unwrap().outcome().await.unwrap();
    assert_eq!((outcome.reason, keys.lock().unwrap().len()), (EndReason::Completed, 1));
}

#[tokio::test]
async fn a_failing_store_or_concurrent_run_leaves_the_session_unchanged() {
    let store = CountingStore::default();
    let session = open_session(&store).await;
    let agent = agent_with_one_call(&IdempotencyKeys::default());
    session.run(&agent, "go").await.unwrap().outcome().await.unwrap();
    store.is_failing.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(session.tombstone([0]).await.unwrap_err().kind(), ErrorKind::Store);
    store.is_failing.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(tombstone_indices(&session.history()), [0; 0]);
    let other = open_session(&store).await;
    session.run(&agent, "And?").await.unwrap().outcome().await.unwrap();
    assert_eq!(other.tombstone([0]).await.unwrap_err().kind(), ErrorKind::Conflict);
    other.reload().await.unwrap();
    other.tombstone([0]).await.unwrap();
    assert_eq!(tombstone_indices(&open_session(&store).await.history()), [0]);
}
