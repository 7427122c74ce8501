//! The reads of the store, and the sessions that are kept in memory.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::{self, BoxFuture};
use serde_json::{Value, json};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{Entry, Lease, MemoryStore, SessionInfo, Store};
use turnstream::{Agent, Error, ErrorKind, Item};
use turnstream_server::{ChatLimits, ChatServer};

use super::support::{Chat, SECRET, agent, two_users};
use crate::server::{Answered, Served};

/// A store that can fail, and counts how often its list is read.
#[derive(Clone)]
pub(super) struct FailingStore {
    pub(super) sessions: MemoryStore,
    is_failing: Arc<AtomicBool>,
    lists: Arc<AtomicUsize>,
}

impl FailingStore {
    /// Creates a store, and the switch that lets it fail.
    pub(super) fn new() -> (Self, Arc<AtomicBool>) {
        let is_failing = Arc::new(AtomicBool::new(false));
        let (sessions, lists) = (MemoryStore::new(), Arc::default());
        (Self { sessions, is_failing: Arc::clone(&is_failing), lists }, is_failing)
    }

    fn unless_failing<'a, T: Send + 'a>(
        &self,
        result: BoxFuture<'a, Result<T, Error>>,
    ) -> BoxFuture<'a, Result<T, Error>> {
        match self.is_failing.load(Ordering::SeqCst) {
            true => Box::pin(future::ready(Err(Error::new(ErrorKind::Store, SECRET)))),
            false => result,
        }
    }
}

impl Store for FailingStore {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        self.sessions.append(id, expected, entries)
    }

    fn append_leased<'a>(
        &'a self,
        lease: &'a Lease,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        self.sessions.append_leased(lease, id, expected, entries)
    }

    fn lease<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Lease, Error>> {
        self.unless_failing(self.sessions.lease(id))
    }

    fn load<'a>(
        &'a self,
        id: &'a str,
        from: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>> {
        self.unless_failing(self.sessions.load(id, from))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Error>> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.unless_failing(self.sessions.list())
    }

    fn fork<'a>(&'a self, id: &'a str, at: u64, new: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.sessions.fork(id, at, new)
    }
}

#[tokio::test]
async fn a_clone_with_another_store_shares_no_sessions() {
    let (one, two) = (MemoryStore::new(), MemoryStore::new());
    let first = ChatServer::new(agent()).with_authorize(two_users).with_store(one.clone());
    let first = first.with_shown_load();
    let second = first.clone().with_store(two.clone());
    let serve = |server: ChatServer, store| Chat { served: Served::chat(server.router()), store };
    let (first, second) = (serve(first, one), serve(second, two));
    assert_eq!(first.say("ada", "s", &format!("Wait {SECRET}")).await, 202);
    // The session is neither known nor active there.
    let messages = second.get("ada", "/sessions/s/messages").await;
    assert!(!messages.text.contains(SECRET), "{messages:?}");
    assert_eq!(second.post("ada", "/sessions/s/stop", &json!({})).await.status, 404);
    second.say_and_wait("ada", "s", "Hello").await;
    assert!(second.stored("ada/s").await.contains("Hello"));
    assert!(!first.stored("ada/s").await.contains("Hello"));
}

#[tokio::test]
async fn a_list_of_sessions_reads_the_list_of_the_store_once() {
    let (store, _) = FailingStore::new();
    for number in 0..1_200 {
        let entries = vec![Item::user("Hi").into()];
        store.append(&format!("bob/{number}"), 0, entries).await.unwrap();
    }
    let lists = Arc::clone(&store.lists);
    let chat = Chat::start(|server| server.with_store(store));
    assert_eq!(chat.get("ada", "/sessions").await.json()["sessions"], json!([]));
    assert_eq!(lists.load(Ordering::SeqCst), 1);
    assert_eq!(chat.get("bob", "/sessions").await.json()["sessions"].as_array().unwrap().len(), 50);
    assert_eq!(lists.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn new_sessions_are_refused_while_the_stored_ones_cannot_be_counted() {
    let (store, is_failing) = FailingStore::new();
    let sessions = store.sessions.clone();
    let chat = Chat::start(|server| server.with_store(store));
    // The session is open when the store fails.
    assert_eq!(chat.get("ada", "/sessions/s/messages").await.status, 200);
    is_failing.store(true, Ordering::SeqCst);
    let refused = chat.post("ada", "/sessions/s/runs", &json!({ "text": "Hi" })).await;
    assert_eq!(refused.status, 503);
    assert!(!refused.text.contains(SECRET) && refused.headers.contains_key("retry-after"));
    is_failing.store(false, Ordering::SeqCst);
    assert_eq!(chat.say("ada", "s", "Hi").await, 202);
    chat.wait_for_runs(0).await;
    assert!(sessions.load("ada/s", 0).await.unwrap().is_some());
}

#[tokio::test]
async fn reading_unknown_ids_closes_no_session_of_others() {
    let chat = Chat::start(|server| server);
    chat.say_and_wait("ada", "s", "Hi").await;
    let traces = chat.get("ada", "/sessions/s/trace").await.json();
    assert_eq!(traces.as_array().unwrap().len(), 1);
    for number in 0..300 {
        let read = chat.get("bob", &format!("/sessions/none-{number}/messages")).await;
        assert_eq!(read.status, 200);
    }
    assert_eq!(chat.get("ada", "/sessions/s/trace").await.json(), traces);
}

#[tokio::test]
async fn forks_that_fail_are_not_counted_and_forks_have_a_rate() {
    let limits = ChatLimits {
        max_sessions_per_principal: 4,
        max_starts_per_minute: 4,
        ..ChatLimits::default()
    };
    let chat = Chat::start(|server| server.with_limits(limits));
    chat.say_and_wait("ada", "s", "Hi").await;
    let fork =
        async |at: u64| chat.post("ada", "/sessions/s/fork", &json!({ "at": at })).await.status;
    for _ in 0..5 {
        assert_eq!(fork(1_000_000_000_000).await, 409);
    }
    assert_eq!([fork(1).await, fork(1).await, fork(1).await], [201, 201, 201]);
    // The forks have used up the rate, together with the first run.
    let refused = chat.post("ada", "/sessions/s/runs", &json!({ "text": "Hi" })).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.text.contains("last minute"), "{refused:?}");
}

#[tokio::test]
async fn a_fork_of_another_principals_session_has_no_origin() {
    let chat = Chat::start(|server| server);
    chat.say_and_wait("ada", "s", "Hi").await;
    chat.store.fork("ada/s", 1, "bob/copy").await.unwrap();
    let listed = chat.get("bob", "/sessions").await.json();
    assert_eq!(listed["sessions"][0]["id"], "copy");
    assert_eq!(listed["sessions"][0]["forked_from"], Value::Null);
}

#[tokio::test]
async fn a_hundred_forks_in_a_row_have_all_entries_and_the_next_one_is_refused() {
    let chat = Chat::start(|server| server);
    chat.say_and_wait("ada", "s", "Write").await;
    let fork = async |session: &str, body: Value| {
        chat.post("ada", &format!("/sessions/{session}/fork"), &body).await
    };
    let id_of = |answered: &Answered| answered.json()["session"].as_str().unwrap().to_owned();
    let (mut session, mut calls) = ("s".to_owned(), HashSet::new());
    for _ in 0..100 {
        session = id_of(&fork(&session, json!({})).await);
        // Each session needs verdicts of its own.
        let call = chat.waiting_call("ada", &session).await;
        assert!(calls.insert(call["approval_id"].to_string()), "{call}");
    }
    let refused = fork(&session, json!({})).await;
    let error = refused.json()["error"].clone();
    assert_eq!((refused.status, error), (409, json!("there are already 100 forks in a row")));
    assert_eq!(chat.store.list().await.unwrap().len(), 101);
    // A fork without entries has no origin.
    let empty = id_of(&fork(&session, json!({ "at": 0 })).await);
    chat.say_and_wait("ada", &empty, "Hi").await;
    assert_eq!(fork(&empty, json!({})).await.status, 201);
    let verdict = json!({ "call": chat.waiting_call("ada", &session).await });
    let approve = format!("/sessions/{session}/approve");
    assert_eq!(chat.post("ada", &approve, &verdict).await.status, 202);
    chat.wait_for_runs(0).await;
    let stored = chat.stored(&format!("ada/{session}")).await;
    assert!(stored.contains("written") && stored.contains("Done."), "{stored}");
}

#[tokio::test]
async fn a_principal_finds_its_sessions_among_many_others() {
    let chat = Chat::start(|server| server);
    let add = async |id: String| {
        chat.store.append(&id, 0, vec![Item::user("Hi").into()]).await.unwrap();
    };
    for n in 0..60 {
        add(format!("ada/{n}")).await;
        for other in 0..20 {
            add(format!("bob/{n}-{other}")).await;
        }
    }
    let list = async |query: &str| chat.get("ada", &format!("/sessions{query}")).await.json();
    let ids = |page: &Value| {
        let ids = page["sessions"].as_array().unwrap().iter().map(|it| it["id"].clone());
        ids.collect::<HashSet<_>>()
    };
    let first = list("").await;
    let second = list(&format!("?after={}", first["next"].as_str().unwrap())).await;
    assert_eq!((ids(&first).len(), ids(&second).len()), (50, 10));
    assert!(ids(&first).is_disjoint(&ids(&second)));
    assert_eq!(second["next"], Value::Null);
}

#[tokio::test]
async fn the_histories_of_sub_agents_are_stored_if_asked_for() {
    for is_asked in [false, true] {
        let reader = Agent::new(Scripted::new(["Two pages."]));
        let call = Reply::new().call("read", json!({ "prompt": "Count" }));
        let model = Scripted::new([call, "It has two pages.".into()]);
        let agent = Agent::new(model).with_tool(reader.as_tool("read", "Reads").unwrap());
        let chat = Chat::of(agent, |server| match is_asked {
            true => server.with_sub_agent_histories(),
            false => server,
        });
        chat.say_and_wait("ada", "s", "How long is it?").await;
        let entries = chat.store.load("ada/s", 0).await.unwrap().unwrap();
        let stored = entries.iter().filter(|entry| matches!(entry, Entry::Nested { .. })).count();
        assert_eq!(stored, usize::from(is_asked));
    }
}
