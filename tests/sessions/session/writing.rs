//! The entries that are written, and the behaviour when they cannot be.

use std::sync::atomic::Ordering;

use futures::stream::FusedStream;
use futures::{FutureExt, StreamExt};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{Conflict, Entry, SessionState};
use turnstream::{Agent, Error, ErrorKind, Event};

use turnstream_test_support::store_suite::{IdempotencyKeys, key_recording_tool, open_session};
use turnstream_test_support::stores::CountingStore;

#[tokio::test]
async fn each_entry_is_written_once_and_growth_is_linear() {
    let store = CountingStore::default();
    let session = open_session(&store).await;
    let keys = IdempotencyKeys::default();
    let model = Scripted::from_fn(|request, _| match request.history.last() {
        Some(item) if item.as_user().is_some() => {
            Reply::text("Look.").call("look", serde_json::json!({}))
        }
        _ => Reply::text("Done."),
    });
    let agent = Agent::new(model).with_tools([key_recording_tool("look", &keys, false)]);
    for turn in 1..=100 {
        session.run(&agent, "go").await.unwrap().outcome().await.unwrap();
        // The user message, the model's text and call, the result, the model's text.
        assert_eq!(store.entry_count.load(Ordering::Relaxed), turn * 5);
        assert_eq!(store.append_count.load(Ordering::Relaxed), turn * 4);
    }
    assert_eq!(session.version(), 500);
    assert_eq!(open_session(&store).await.history(), session.history());
}

#[tokio::test]
async fn the_run_is_not_polled_while_an_append_is_in_progress() {
    let store = CountingStore::default();
    let session = open_session(&store).await;
    let model = Scripted::new([Reply::text("Hello!")]);
    let mut run = session.run(&Agent::new(model.clone()), "Hi").await.unwrap();
    // The append waits, and the request does not start concurrently.
    assert!(run.next().now_or_never().is_none());
    assert_eq!((model.requests().len(), session.version()), (0, 0));
    assert!(matches!(run.next().await, Some(Ok(Event::Appended { .. }))));
    assert_eq!((model.requests().len(), session.version()), (0, 1));
}

#[tokio::test]
async fn a_store_error_drops_the_run_synchronously_without_a_finished_event() {
    let store = CountingStore::default();
    let session = open_session(&store).await;
    let keys = IdempotencyKeys::default();
    let model = Scripted::new([Reply::new()
        .call("look", serde_json::json!({}))
        .call("look", serde_json::json!({}))]);
    let agent = Agent::new(model).with_tools([
        key_recording_tool("look", &keys, false),
        key_recording_tool("hang", &keys, true),
    ]);
    let mut run = session.run(&agent, "go").await.unwrap();
    let handle = run.handle();
    let mut last = None;
    while let Some(event) = run.next().await {
        if let Ok(event) = &event {
            assert!(event.outcome().is_none());
            if event.turn_complete().is_some() {
                store.is_failing.store(true, Ordering::Relaxed);
            }
        }
        last = Some(event);
    }
    let error = last.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Store, "the disk is full"));
    assert!(handle.steer("late").is_err(), "the run below is gone");
    assert!(run.next().await.is_none());

    // The stored entries are read again, and the session continues.
    store.is_failing.store(false, Ordering::Relaxed);
    let SessionState::Unfinished { open_calls: calls } = session.state() else { panic!() };
    assert_eq!(calls.len(), 2);
    let agent = Agent::new(Scripted::new(["On."]));
    let outcome = session.run(&agent, "again").await.unwrap().outcome().await.unwrap();
    assert!(outcome.history.is_settled());
    assert_eq!(open_session(&store).await.history(), outcome.history);
}

#[tokio::test]
async fn of_two_concurrent_runs_in_a_store_without_leases_the_second_append_is_a_conflict() {
    let store = CountingStore::default();
    let (one, other) = (open_session(&store).await, open_session(&store).await);
    let agent = Agent::new(Scripted::from_fn(|_, _| "Hello!"));
    for (first, second) in [(one.clone(), other), (one.clone(), one.clone())] {
        second.reload().await.unwrap();
        let mut a = first.run(&agent, "a").await.unwrap();
        let mut b = second.run(&agent, "b").await.unwrap();
        assert!(matches!(a.next().await, Some(Ok(Event::Appended { .. }))));
        let error = b.next().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(
            error.find_source::<Conflict>().unwrap().found
                > error.find_source::<Conflict>().unwrap().expected
        );
        assert!(b.next().await.is_none());
        a.outcome().await.unwrap();
        // The next run of either session reads the stored entries.
        let outcome = second.run(&agent, "c").await.unwrap().outcome().await.unwrap();
        assert_eq!(outcome.history, open_session(&store).await.history());
        first.reload().await.unwrap();
    }
}

#[tokio::test]
async fn a_dropped_append_is_looked_up_before_the_next_run() {
    let store = CountingStore::default();
    let session = open_session(&store).await;
    let agent = Agent::new(Scripted::from_fn(|_, _| "Hello!"));
    let mut run = session.run(&agent, "lost?").await.unwrap();
    assert!(run.next().now_or_never().is_none());
    drop(run);
    // The entry was written after all, by another process.
    let item = turnstream::Item::user("lost?");
    turnstream::session::Store::append(&store.inner, "s", 0, vec![Entry::Item(item)])
        .await
        .unwrap();
    let outcome = session.run(&agent, "and now?").await.unwrap().outcome().await.unwrap();
    assert_eq!((outcome.history.len(), session.version()), (3, 3));
}

#[tokio::test]
async fn a_failed_session_run_ends_with_its_error_which_is_not_stored() {
    let store = CountingStore::default();
    let session = open_session(&store).await;
    let refused = || Reply::error(Error::new(ErrorKind::Auth, "the key is wrong"));
    let agent = Agent::new(Scripted::new([refused(), refused(), "fine".into()]));
    let mut run = session.run(&agent, "go").await.unwrap();
    while run.next().await.unwrap().unwrap().outcome().is_none() {}
    assert!(!run.is_terminated());
    let (entries, version) = (store.entry_count.load(Ordering::Relaxed), session.version());
    assert_eq!(run.next().await.unwrap().unwrap_err().kind(), ErrorKind::Auth);
    assert!(run.is_terminated() && run.next().await.is_none());
    assert_eq!((store.entry_count.load(Ordering::Relaxed), session.version()), (entries, version));
    assert_eq!(entries, 1, "what the user said");

    // The error of a run is not an error of the store.
    let outcome = session.run(&agent, "again").await.unwrap().outcome().await.unwrap();
    assert_eq!(outcome.error.as_ref().map(Error::kind), Some(ErrorKind::Auth));
    let outcome = session.run(&agent, "again").await.unwrap().outcome().await.unwrap();
    assert_eq!((outcome.text.as_str(), outcome.error), ("fine", None));
}

#[tokio::test]
async fn a_panic_in_the_store_is_an_error() {
    struct PanickingStore;
    impl turnstream::session::Store for PanickingStore {
        fn append<'a>(
            &'a self,
            _: &'a str,
            _: u64,
            _: Vec<Entry>,
        ) -> futures::future::BoxFuture<'a, Result<u64, turnstream::Error>> {
            async { panic!("the store") }.boxed()
        }
        fn load<'a>(
            &'a self,
            _: &'a str,
            _: u64,
        ) -> futures::future::BoxFuture<'a, Result<Option<Vec<Entry>>, turnstream::Error>> {
            async { Ok(None) }.boxed()
        }
        fn list(
            &self,
        ) -> futures::future::BoxFuture<
            '_,
            Result<Vec<turnstream::session::SessionInfo>, turnstream::Error>,
        > {
            async { Ok(Vec::new()) }.boxed()
        }
        fn fork<'a>(
            &'a self,
            _: &'a str,
            _: u64,
            _: &'a str,
        ) -> futures::future::BoxFuture<'a, Result<(), turnstream::Error>> {
            async { Ok(()) }.boxed()
        }
    }
    let session = turnstream::session::Session::open(PanickingStore, "s").await.unwrap();
    let agent = Agent::new(Scripted::new(["Hello!"]));
    let error = session.run(&agent, "Hi").await.unwrap().outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panic);
}

#[tokio::test]
async fn an_empty_session_id_is_an_error() {
    let opened = turnstream::session::Session::open(CountingStore::default(), "").await;
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::InvalidRequest);
}
