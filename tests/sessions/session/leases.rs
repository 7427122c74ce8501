//! A session has one run at a time, and a run that has lost its lease does nothing more.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::channel::oneshot;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use serde_json::json;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{
    AlreadyLeased, Entry, Lease, LeaseLost, MemoryStore, Session, SessionInfo, SessionState, Store,
};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::{Agent, Error, ErrorKind, Event};

/// Records that the future that it is in was dropped.
struct DropFlag(Arc<AtomicBool>);

impl Drop for DropFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// An agent whose tool never ends, a count of the tool's starts, and a flag for its drop.
fn agent_with_endless_tool() -> (Agent, Arc<AtomicUsize>, Arc<AtomicBool>) {
    let (begun, dropped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let (begins, drops) = (Arc::clone(&begun), Arc::clone(&dropped));
    let spec = ToolSpec::new("wait", "Never ends", json!({ "type": "object" }));
    let tool = Tool::raw(spec, move |_, _| {
        begins.fetch_add(1, Ordering::SeqCst);
        let flag = DropFlag(Arc::clone(&drops));
        async move {
            std::future::pending::<()>().await;
            drop(flag);
            "never"
        }
    });
    let model = Scripted::from_fn(|request, _| match request.history.len() {
        1 => Reply::new().call("wait", json!({})),
        _ => Reply::text("On."),
    });
    (Agent::new(model).with_tools([tool.unwrap()]), begun, dropped)
}

async fn poll_until_tool_begins(run: &mut turnstream::session::SessionRun, begun: &AtomicUsize) {
    while begun.load(Ordering::SeqCst) == 0 {
        let _ = run.next().now_or_never();
        tokio::task::yield_now().await;
    }
}

fn talker() -> Agent {
    Agent::new(Scripted::from_fn(|_, _| "Hello!"))
}

#[tokio::test]
async fn a_second_run_is_rejected_and_settles_nothing_of_the_first() {
    let store = MemoryStore::new();
    let (agent, begun, dropped) = agent_with_endless_tool();
    let session = Session::open(store.clone(), "s").await.unwrap();
    let mut run = session.run(&agent, "go").await.unwrap();
    poll_until_tool_begins(&mut run, &begun).await;
    let entries = session.entries().await.unwrap();

    let elsewhere = Session::open(store.clone(), "s").await.unwrap();
    assert!(matches!(elsewhere.state(), SessionState::Unfinished { .. }));
    for other in [elsewhere.clone(), session.clone()] {
        let refused = [
            other.run(&agent, "again").await.unwrap_err(),
            other.resume(&agent, []).await.unwrap_err(),
        ];
        for error in refused {
            assert_eq!(error.kind(), ErrorKind::Conflict);
            assert_eq!(error.find_source::<AlreadyLeased>().unwrap().id, "s");
        }
    }
    assert_eq!(session.entries().await.unwrap(), entries);
    assert_eq!((begun.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)), (1, false));

    // When it is dropped, the other run settles the call, and continues.
    drop(run);
    let outcome = elsewhere.resume(&agent, []).await.unwrap().outcome().await.unwrap();
    assert_eq!(outcome.text, "On.");
    assert_eq!(begun.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_lease_ends_with_the_finished_event_or_an_error() {
    let store = MemoryStore::new();
    let session = Session::open(store.clone(), "s").await.unwrap();
    let mut run = session.run(&talker(), "one").await.unwrap();
    while let Some(event) = run.next().await {
        if matches!(event.unwrap(), Event::Finished(_)) {
            break;
        }
        store.lease("s").await.unwrap_err();
    }
    // The run still exists.
    drop(store.lease("s").await.unwrap());
    drop(run);

    // Another process writes in between, and the run fails.
    let mut run = session.run(&talker(), "two").await.unwrap();
    let version = session.version();
    store.append("s", version, vec![turnstream::Item::user("between").into()]).await.unwrap();
    run.next().await.unwrap().unwrap_err();
    drop(store.lease("s").await.unwrap());
    drop(run);

    // A call that fails keeps no lease either.
    let idle = Session::open(store.clone(), "idle").await.unwrap();
    assert_eq!(idle.resume(&talker(), []).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    drop(store.lease("idle").await.unwrap());
}

#[tokio::test]
async fn alternating_runs_of_two_processes_read_each_others_entries() {
    let store = MemoryStore::new();
    let one = Session::open(store.clone(), "s").await.unwrap();
    let other = Session::open(store.clone(), "s").await.unwrap();
    for turn in 1..4 {
        for session in [&one, &other] {
            session.run(&talker(), "go").await.unwrap().outcome().await.unwrap();
        }
        assert_eq!(other.history().len(), turn * 4);
    }
    let again = Session::open(store, "s").await.unwrap();
    assert_eq!(again.history(), other.history());
}

/// A store whose leases are lost on request, or are taken by another owner without notice.
#[derive(Clone, Default)]
struct LosingStore {
    inner: MemoryStore,
    lose: Arc<Mutex<Option<oneshot::Sender<()>>>>,
    is_stale: Arc<AtomicBool>,
    fails_to_load: Arc<AtomicBool>,
}

impl Store for LosingStore {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        self.inner.append(id, expected, entries)
    }

    fn append_leased<'a>(
        &'a self,
        lease: &'a Lease,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        async move {
            if self.is_stale.load(Ordering::SeqCst) {
                return Err(LeaseLost { id: id.to_owned(), epoch: lease.epoch() }.into());
            }
            self.inner.append_leased(lease, id, expected, entries).await
        }
        .boxed()
    }

    fn lease<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Lease, Error>> {
        async move {
            let (lose, is_lost) = oneshot::channel();
            *self.lose.lock().unwrap() = Some(lose);
            Ok(self.inner.lease(id).await?.with_loss(is_lost.map(drop)))
        }
        .boxed()
    }

    fn load<'a>(
        &'a self,
        id: &'a str,
        from: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>> {
        if self.fails_to_load.load(Ordering::SeqCst) {
            return async { Err(Error::new(ErrorKind::Store, "it fails")) }.boxed();
        }
        self.inner.load(id, from)
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Error>> {
        self.inner.list()
    }

    fn fork<'a>(&'a self, id: &'a str, at: u64, new: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.inner.fork(id, at, new)
    }
}

#[tokio::test]
async fn a_run_whose_lease_is_lost_is_dropped_at_once_and_settles_nothing() {
    let store = LosingStore::default();
    let (agent, begun, dropped) = agent_with_endless_tool();
    let session = Session::open(store.clone(), "s").await.unwrap();
    let mut run = session.run(&agent, "go").await.unwrap();
    poll_until_tool_begins(&mut run, &begun).await;
    while run.next().now_or_never().is_some() {}
    let entries = session.entries().await.unwrap();
    assert!(!dropped.load(Ordering::SeqCst));

    drop(store.lose.lock().unwrap().take());
    let error = run.next().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(error.find_source::<LeaseLost>().unwrap().id, "s");
    assert!(dropped.load(Ordering::SeqCst), "the tool");
    assert!(run.next().await.is_none());
    assert_eq!(session.entries().await.unwrap(), entries);
    // The lease is released, so that the session can continue here or elsewhere.
    let outcome = session.resume(&agent, []).await.unwrap().outcome().await.unwrap();
    assert_eq!(outcome.text, "On.");
}

#[tokio::test]
async fn a_run_unaware_of_its_lost_lease_ends_at_its_next_append() {
    let store = LosingStore::default();
    let session = Session::open(store.clone(), "s").await.unwrap();
    let mut run = session.run(&talker(), "go").await.unwrap();
    assert!(matches!(run.next().await, Some(Ok(Event::Appended { .. }))));
    store.is_stale.store(true, Ordering::SeqCst);
    let rest: Vec<_> = run.by_ref().collect().await;
    let (last, events) = rest.split_last().unwrap();
    assert!(events.iter().all(|event| event.as_ref().unwrap().outcome().is_none()));
    assert!(last.as_ref().unwrap_err().find_source::<LeaseLost>().is_some());
    assert_eq!(session.entries().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_session_is_reloaded_after_a_failed_read_under_its_lease() {
    let store = LosingStore::default();
    let (one, other) = (
        Session::open(store.clone(), "s").await.unwrap(),
        Session::open(store.inner.clone(), "s").await.unwrap(),
    );
    other.run(&talker(), "one").await.unwrap().outcome().await.unwrap();
    store.fails_to_load.store(true, Ordering::SeqCst);
    assert_eq!(one.run(&talker(), "two").await.unwrap_err().kind(), ErrorKind::Store);
    store.fails_to_load.store(false, Ordering::SeqCst);
    let outcome = one.run(&talker(), "two").await.unwrap().outcome().await.unwrap();
    assert_eq!(outcome.history.len(), 4);
}

#[tokio::test]
async fn a_session_recreated_elsewhere_does_not_continue_from_deleted_entries() {
    let store = MemoryStore::new();
    let one = Session::open(store.clone(), "s").await.unwrap();
    one.run(&talker(), "my secret").await.unwrap().outcome().await.unwrap();
    let other = Session::open(store.clone(), "s").await.unwrap();
    assert!(store.delete("s").await.unwrap());
    let agent = Agent::new(Scripted::from_fn(|_, _| "Something else."));
    other.run(&agent, "another question").await.unwrap().outcome().await.unwrap();
    let outcome = one.run(&talker(), "again").await.unwrap().outcome().await.unwrap();
    let said: Vec<String> =
        outcome.history.iter().filter_map(|item| Some(item.as_user()?.text())).collect();
    assert_eq!(said, ["another question", "again"]);
}
