//! Tombstoned items of a session.

use turnstream::provider::{Reply, Scripted};
use turnstream::session::{Entry, Session, SessionState};
use turnstream::{Agent, ErrorKind, History};

use super::temp_store::ReopenableStore;
use super::tools::{IdempotencyKeys, key_recording_tool, open_session};

/// The places of the void items in a history.
pub fn tombstone_indices(history: &History) -> Vec<usize> {
    let void = history.iter().enumerate().filter(|(_, item)| item.tombstone);
    void.map(|(at, _)| at).collect()
}

/// An agent that calls the tool `look` in its first turn.
pub fn agent_with_one_call(keys: &IdempotencyKeys) -> Agent {
    let model = Scripted::new([
        Reply::new().call_raw("c", "look", "{}"),
        Reply::text("Done."),
        Reply::text("Yes."),
    ]);
    Agent::new(model).with_tools([key_recording_tool("look", keys, false)])
}

pub async fn items_of_an_idle_session_are_tombstoned_permanently(empty: fn() -> ReopenableStore) {
    let reopenable = empty();
    let store = reopenable.open();
    let session = open_session(&store).await;
    let agent = agent_with_one_call(&IdempotencyKeys::default());
    session.run(&agent, "go").await.unwrap().outcome().await.unwrap();
    let version = session.version();
    // The result and the user message: the call is tombstoned as well, its siblings would not be.
    session.tombstone([2, 0]).await.unwrap();
    for session in [&session, &open_session(&store).await] {
        assert_eq!(tombstone_indices(&session.history()), [0, 1, 2]);
        assert_eq!((session.version(), session.state()), (version + 1, SessionState::Idle));
    }
    // The tombstoned items stay in the store.
    let entries = session.entries().await.unwrap();
    assert!(matches!(&entries[0], Entry::Item(item) if !item.tombstone));
    session.tombstone([1]).await.unwrap();
    session.tombstone([]).await.unwrap();
    assert_eq!(session.version(), version + 1, "nothing changes");
    let error = session.tombstone([0, 4]).await.unwrap_err();
    assert_eq!((error.kind(), error.parameter()), (ErrorKind::InvalidRequest, Some("4")));
    // The session continues, and so does a fork.
    let fork = session.fork_at(session.version(), "f").await.unwrap();
    for session in [&session, &fork] {
        let model = Scripted::new(["Yes."]);
        session.run(&Agent::new(model.clone()), "And?").await.unwrap().outcome().await.unwrap();
        assert_eq!(tombstone_indices(&model.requests()[0].context), [0, 1, 2]);
        let read = Session::open(store.clone(), session.id()).await.unwrap();
        assert_eq!(read.history(), session.history());
    }
}
