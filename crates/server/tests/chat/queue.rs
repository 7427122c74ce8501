//! Messages that wait for the end of a run.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::http::request::Parts;
use serde_json::json;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::{Agent, Error};
use turnstream_server::{ChatLimits, ChatServer, ConnectionLimits, Principal, listen, serve};

use super::stores::FailingStore;
use super::support::{Chat, LIMIT, two_users};

/// Waits until a stored session contains a text.
async fn wait_for_text(chat: &Chat, id: &str, text: &str) {
    let found = async {
        while !chat.stored(id).await.contains(text) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, found).await.unwrap_or_else(|_| panic!("no {text} in {id}"));
}

#[tokio::test]
async fn a_principal_without_a_free_run_does_not_delay_the_messages_of_others() {
    let authorize =
        |request: &Parts| -> Result<Principal, Error> { Ok(two_users(request)?.with_max_runs(1)) };
    let chat = Chat::start(|server| server.with_shared_sessions().with_authorize(authorize));
    assert_eq!(chat.say("ada", "team", "Wait").await, 202);
    // Another session uses the only run of bob.
    assert_eq!(chat.say("bob", "own", "Wait").await, 202);
    assert_eq!(chat.say("bob", "team", "from bob").await, 202);
    assert_eq!(chat.say("ada", "team", "from ada").await, 202);
    assert_eq!(chat.post("ada", "/sessions/team/stop", &json!({})).await.status, 200);
    wait_for_text(&chat, "team", "You said: from ada").await;
    assert!(!chat.stored("team").await.contains("from bob"));
    assert_eq!(chat.post("bob", "/sessions/own/stop", &json!({})).await.status, 200);
    wait_for_text(&chat, "team", "You said: from bob").await;
}

#[tokio::test]
async fn queued_messages_start_no_more_runs_in_a_minute_than_others() {
    let limits = ChatLimits { max_starts_per_minute: 2, ..ChatLimits::default() };
    let chat = Chat::start(|server| server.with_limits(limits));
    assert_eq!(chat.say("ada", "s", "Wait").await, 202);
    assert_eq!(chat.say("ada", "s", "second").await, 202);
    assert_eq!(chat.say("ada", "s", "third").await, 202);
    assert_eq!(chat.post("ada", "/sessions/s/stop", &json!({})).await.status, 200);
    wait_for_text(&chat, "ada/s", "You said: second").await;
    chat.wait_for_runs(0).await;
    // The next attempt follows after 200 ms.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(!chat.stored("ada/s").await.contains("third"));
}

#[tokio::test]
async fn the_bytes_of_waiting_messages_are_limited_per_principal() {
    let limits = ChatLimits { max_queued_bytes_per_principal: 100, ..ChatLimits::default() };
    let chat = Chat::start(|server| server.with_limits(limits));
    for session in ["s", "t"] {
        assert_eq!(chat.say("ada", session, "Wait").await, 202);
    }
    assert_eq!(chat.say("ada", "s", &"x".repeat(60)).await, 202);
    assert_eq!(chat.say("ada", "t", &"x".repeat(60)).await, 429);
    assert_eq!(chat.say("ada", "t", &"x".repeat(40)).await, 202);
}

#[tokio::test]
async fn a_waiting_message_is_sent_once_the_store_has_recovered() {
    let (store, is_failing) = FailingStore::new();
    let logged = Arc::new(AtomicUsize::new(0));
    let log = Arc::clone(&logged);
    let chat = Chat {
        store: store.sessions.clone(),
        ..Chat::start(|server| {
            server.with_store(store).with_error_log(move |_| {
                log.fetch_add(1, Ordering::SeqCst);
            })
        })
    };
    assert_eq!(chat.say("ada", "s", "Wait").await, 202);
    assert_eq!(chat.say("ada", "s", "later").await, 202);
    is_failing.store(true, Ordering::SeqCst);
    assert_eq!(chat.post("ada", "/sessions/s/stop", &json!({})).await.status, 200);
    let logged_once = async {
        while logged.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, logged_once).await.expect("no error is logged");
    is_failing.store(false, Ordering::SeqCst);
    wait_for_text(&chat, "ada/s", "You said: later").await;
}

/// Sets its flag when it is dropped.
struct OnDrop(Arc<AtomicBool>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn waiting_messages_do_not_keep_the_runs_of_a_dropped_server() {
    let is_dropped = Arc::new(AtomicBool::new(false));
    let started = Arc::new(tokio::sync::Notify::new());
    let (dropped, starting) = (Arc::clone(&is_dropped), Arc::clone(&started));
    let spec = ToolSpec::new("work", "Works", json!({ "type": "object", "properties": {} }));
    let work = Tool::raw(spec, move |_, _| {
        let guard = OnDrop(Arc::clone(&dropped));
        let starting = Arc::clone(&starting);
        async move {
            let _guard = guard;
            starting.notify_one();
            pending::<()>().await;
        }
    });
    let model = Scripted::from_fn(|_, _| Reply::new().call("work", json!({})));
    let agent = Agent::new(model).with_tools([work.unwrap()]);
    let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
    let url = format!("http://{}/sessions/s/runs", listener.local_addr().unwrap());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopped = async { stopped.await.unwrap_or(()) };
    let router = ChatServer::new(agent).router();
    let serving = tokio::spawn(serve(listener, router, ConnectionLimits::default(), stopped));
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let say = async || {
        let request = http.post(&url).header("content-type", "application/json");
        request.body(r#"{"text":"Hi"}"#).send().await.unwrap().status().as_u16()
    };
    assert_eq!(say().await, 202);
    started.notified().await;
    assert_eq!(say().await, 202);
    // The router is dropped when the server has ended.
    stop.send(()).unwrap();
    serving.await.unwrap();
    let ended = async {
        while !is_dropped.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, ended).await.expect("the run continues");
}
