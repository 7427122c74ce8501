//! Stores that violate their contract, and runs that are dropped at any poll.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use turnstream::event::ToolEvent;
use turnstream::item::{PendingCall, ResultKind};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{
    Entry, MemoryStore, Session, SessionInfo, SessionRun, SessionState, Store,
};
use turnstream::tool::{Tool, Verdict};
use turnstream::{Agent, Error, ErrorKind, Event, Item, Outcome};

use turnstream_test_support::cases::sample_step;
use turnstream_test_support::store_suite::{IdempotencyKeys, key_recording_tool, open_session};
use turnstream_test_support::tools::spec;

/// A store that yields before and after each append, can be replaced by another one, and fails to
/// list its sessions on request.
#[derive(Clone, Default)]
struct YieldingStore {
    inner: Arc<Mutex<MemoryStore>>,
    is_list_failing: Arc<AtomicBool>,
    /// Added to the version that an append returns.
    version_offset: Arc<AtomicUsize>,
}

impl YieldingStore {
    fn current(&self) -> MemoryStore {
        self.inner.lock().unwrap().clone()
    }
}

impl Store for YieldingStore {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        async move {
            tokio::task::yield_now().await;
            let version = self.current().append(id, expected, entries).await?;
            tokio::task::yield_now().await;
            Ok(version + self.version_offset.load(Ordering::Relaxed) as u64)
        }
        .boxed()
    }

    fn load<'a>(
        &'a self,
        id: &'a str,
        from: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>> {
        async move {
            tokio::task::yield_now().await;
            self.current().load(id, from).await
        }
        .boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Error>> {
        async {
            match self.is_list_failing.load(Ordering::Relaxed) {
                true => Err(Error::new(ErrorKind::Store, "the list is unavailable")),
                false => self.current().list().await,
            }
        }
        .boxed()
    }

    fn fork<'a>(&'a self, id: &'a str, at: u64, new: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        async move { self.current().fork(id, at, new).await }.boxed()
    }
}

/// A tool that yields as well.
fn yielding_tool(name: &'static str, keys: &IdempotencyKeys) -> Tool {
    let keys = Arc::clone(keys);
    let tool = Tool::raw(spec(name), move |_args, cx| {
        keys.lock().unwrap().push(format!("{} {}", name, cx.idempotency_key()));
        async move {
            tokio::task::yield_now().await;
            "done"
        }
    });
    tool.unwrap()
}

fn scripted_agent(keys: &IdempotencyKeys) -> Agent {
    let model = Scripted::from_fn(|request, _| {
        let called = request.history.iter().filter_map(Item::as_tool_call).count();
        match called {
            0 => Reply::text("See.").call_raw("a", "once", "{}").call_raw("b", "again", "{}"),
            2 => Reply::new()
                .call_raw("c", "asked", "{}")
                .call_raw("d", "once", "{}")
                .call_raw("e", "again", "{}"),
            _ => Reply::text("The end."),
        }
    });
    Agent::new(model).with_tools([
        yielding_tool("once", keys),
        yielding_tool("again", keys).idempotent(),
        yielding_tool("asked", keys).requires_approval(),
    ])
}

/// Drives a session for `polls` polls. Returns whether it reached the end.
async fn drive_for_polls(
    session: &Session,
    agent: &Agent,
    polls: &mut usize,
    told: &mut Vec<Item>,
) -> bool {
    while session.history().last().and_then(Item::as_text) != Some("The end.") {
        let run = match session.state() {
            SessionState::Pending { calls } => {
                let verdicts = calls.into_iter().map(|call: PendingCall| (call, Verdict::Approve));
                session.resume(agent, verdicts).await
            }
            SessionState::Unfinished { .. } if polls.is_multiple_of(2) => {
                session.resume(agent, []).await
            }
            SessionState::Idle | SessionState::Unfinished { .. } => session.run(agent, "go").await,
        };
        let mut run = match run {
            Ok(run) => run,
            // The session did not know its unfinished calls yet.
            Err(error)
                if matches!(error.kind(), ErrorKind::InvalidRequest | ErrorKind::Conflict) =>
            {
                session.reload().await.unwrap();
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        loop {
            if *polls == 0 {
                return false;
            }
            *polls -= 1;
            let Some(polled) = run.next().now_or_never() else {
                tokio::task::yield_now().await;
                continue;
            };
            let Some(event) = polled else { break };
            match event.unwrap() {
                Event::Appended { items, .. } => told.extend(items),
                Event::Tool(ToolEvent::Output(result)) => told.push(Item::tool_result(result)),
                event => {
                    told.extend(
                        event.turn_complete().into_iter().flat_map(|it| it.to_history_items()),
                    );
                }
            }
        }
    }
    true
}

async fn survives_drops(first: usize, second: usize) -> bool {
    let (store, keys, mut told) =
        (YieldingStore::default(), IdempotencyKeys::default(), Vec::new());
    let (session, agent) = (open_session(&store).await, scripted_agent(&keys));
    let (mut left, mut more) = (first, second);
    let ended = drive_for_polls(&session, &agent, &mut left, &mut told).await;
    if !ended && !drive_for_polls(&session, &agent, &mut more, &mut told).await {
        assert!(drive_for_polls(&session, &agent, &mut 10_000, &mut told).await);
    }
    let wrong = format!("dropped at {first} and {second} more");
    let entries = session.entries().await.unwrap();
    let mut items = entries.iter().filter_map(|entry| match entry {
        // Events do not report whether a call's tool is idempotent.
        Entry::Item(item) => Some(Item { idempotent: false, ..item.clone() }),
        _ => None,
    });
    for told in &told {
        assert!(items.any(|item| item == *told), "{wrong}: {told:?} is lost");
    }
    assert!(session.history().is_settled(), "{wrong}");
    assert_eq!(session.history(), open_session(&store).await.history(), "{wrong}");
    let mut seen = HashSet::new();
    for key in keys.lock().unwrap().iter() {
        assert!(seen.insert(key.clone()) || key.starts_with("again"), "{wrong}: {key} ran twice");
    }
    ended
}

#[tokio::test]
async fn a_run_dropped_at_any_poll_can_be_continued_by_the_same_session() {
    let step = 3 * sample_step(3);
    let mut first = 0;
    while !survives_drops(first, 10_000).await {
        for second in (first % step..40).step_by(step) {
            survives_drops(first, second).await;
        }
        first += 1;
    }
    assert!(first > 40, "{first}");
}

#[tokio::test]
async fn a_session_that_shrank_in_its_store_is_reloaded_from_the_start() {
    let agent = Agent::new(Scripted::from_fn(|_, _| "Hello!"));
    for other in [0, 1] {
        let store = YieldingStore::default();
        let session = open_session(&store).await;
        for _ in 0..3 {
            session.run(&agent, "go").await.unwrap().outcome().await.unwrap();
        }
        // Another store has replaced it.
        let replaced = MemoryStore::new();
        for n in 0..other {
            replaced.append("s", n, vec![Item::user("older").into()]).await.unwrap();
        }
        *store.inner.lock().unwrap() = replaced;
        let error = session.run(&agent, "lost").await.unwrap().outcome().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let outcome = session.run(&agent, "on").await.unwrap().outcome().await.unwrap();
        assert_eq!(session.version(), other + 2);
        assert_eq!(outcome.history, open_session(&store).await.history());
    }
}

#[tokio::test]
async fn a_reload_notices_that_a_session_was_deleted() {
    let agent = Agent::new(Scripted::from_fn(|_, _| "Hello!"));
    let store = YieldingStore::default();
    let session = open_session(&store).await;
    session.run(&agent, "go").await.unwrap().outcome().await.unwrap();
    *store.inner.lock().unwrap() = MemoryStore::new();
    session.reload().await.unwrap();
    assert_eq!((session.version(), session.history().len()), (0, 0));
}

#[tokio::test]
async fn an_impossible_version_from_a_store_is_an_error_and_the_session_continues() {
    let agent = Agent::new(Scripted::from_fn(|_, _| "Hello!"));
    let store = YieldingStore::default();
    let session = open_session(&store).await;
    store.version_offset.store(7, Ordering::Relaxed);
    let error = session.run(&agent, "go").await.unwrap().outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    store.version_offset.store(0, Ordering::Relaxed);
    session.run(&agent, "on").await.unwrap().outcome().await.unwrap();
    assert_eq!((session.version(), session.history().len()), (3, 3));
    assert_eq!(session.history(), open_session(&store).await.history());
}

#[tokio::test]
async fn a_panic_of_the_store_before_it_returns_a_future_is_an_error() {
    struct PanickingStore;
    impl Store for PanickingStore {
        fn append<'a>(
            &'a self,
            _: &'a str,
            _: u64,
            _: Vec<Entry>,
        ) -> BoxFuture<'a, Result<u64, Error>> {
            panic!("append")
        }
        fn load<'a>(
            &'a self,
            id: &'a str,
            _: u64,
        ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>> {
            match id {
                "s" => async { Ok(None) }.boxed(),
                "early" => panic!("load"),
                _ => async { panic!("load") }.boxed(),
            }
        }
        fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Error>> {
            panic!("list")
        }
        fn fork<'a>(&'a self, _: &'a str, _: u64, _: &'a str) -> BoxFuture<'a, Result<(), Error>> {
            panic!("fork")
        }
    }
    for id in ["early", "late"] {
        let error = Session::open(PanickingStore, id).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panic);
    }
    let session = Session::open(PanickingStore, "s").await.unwrap();
    let agent = Agent::new(Scripted::new(["Hello!"]));
    let error = session.run(&agent, "Hi").await.unwrap().outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panic);
    assert_eq!(session.fork_at(0, "f").await.unwrap_err().kind(), ErrorKind::Panic);
}

/// A session `s`, its run, which is in a call of an idempotent tool, and an agent that answers it.
async fn session_in_a_call(
    store: impl Store + 'static,
    keys: &IdempotencyKeys,
) -> (Session, SessionRun, Agent) {
    let session = Session::open(store, "s").await.unwrap();
    let model = Scripted::from_fn(|request, _| match request.history.len() {
        1 => Reply::new().call_raw("a", "again", "{}"),
        _ => Reply::text("Done."),
    });
    let agent = |hangs: bool| {
        let tool = key_recording_tool("again", keys, hangs).idempotent();
        Agent::new(model.clone()).with_tools([tool])
    };
    let mut run = session.run(&agent(true), "go").await.unwrap();
    while keys.lock().unwrap().is_empty() {
        let _ = run.next().now_or_never();
    }
    (session, run, agent(false))
}

/// Continues a session with new input, or without, and returns the outcome.
async fn continue_session(session: &Session, agent: &Agent, has_input: bool) -> Outcome {
    let run = match has_input {
        true => session.run(agent, "on").await,
        false => session.resume(agent, []).await,
    };
    run.unwrap().outcome().await.unwrap()
}

/// The calls belong to the other session, which may run them under their keys.
#[tokio::test]
async fn an_unsettled_fork_runs_no_calls_of_its_origin() {
    for has_input in [false, true] {
        let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
        let (session, run, agent) = session_in_a_call(store.clone(), &keys).await;
        // The process ended between the fork and the entries that settle it.
        store.fork("s", session.version(), "f").await.unwrap();
        store.fork("f", session.version(), "g").await.unwrap();
        for fork in ["f", "g"] {
            let fork = Session::open(store.clone(), fork).await.unwrap();
            let outcome = continue_session(&fork, &agent, has_input).await;
            assert!(outcome.history.is_settled());
            assert_eq!(*keys.lock().unwrap(), ["s/a"]);
        }
        // The session that owns the call runs it.
        drop(run);
        session.resume(&agent, []).await.unwrap().outcome().await.unwrap();
        assert_eq!(*keys.lock().unwrap(), ["s/a", "s/a"]);
    }
}

#[tokio::test]
async fn no_open_call_runs_again_if_the_store_cannot_tell_forks_from_their_origins() {
    for has_input in [false, true] {
        let (store, keys) = (YieldingStore::default(), IdempotencyKeys::default());
        let (session, run, agent) = session_in_a_call(store.clone(), &keys).await;
        store.fork("s", session.version(), "f").await.unwrap();
        drop(run);
        store.is_list_failing.store(true, Ordering::Relaxed);
        for id in ["f", "s"] {
            let session = Session::open(store.clone(), id).await.unwrap();
            let outcome = continue_session(&session, &agent, has_input).await;
            let result = outcome.history.iter().find_map(Item::as_tool_result).unwrap();
            assert_eq!(result.kind, ResultKind::Interrupted, "{id}");
            assert_eq!(*keys.lock().unwrap(), ["s/a"], "{id}");
        }
    }
}
