//! A chat server with two users, and requests to it.

use std::time::Duration;

use axum::http::Method;
use axum::http::request::Parts;
use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::item::Content;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{MemoryStore, Store};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::{Agent, Error, ErrorKind};
use turnstream_server::{ChatServer, Principal, presented_key};

use crate::server::{Answered, Served};

/// Words of one user that another one must not see.
pub(super) const SECRET: &str = "swordfish";

/// How long a test waits for something that happens immediately.
pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// An agent whose answer depends on the user's last words: it waits for ever, calls a tool that
/// needs approval, or answers.
pub(super) fn agent() -> Agent {
    let model = Scripted::from_fn(|request, _| {
        let Some(said) = request.history.last().and_then(|item| item.as_user()) else {
            return Reply::text("Done.");
        };
        match said.text() {
            text if text.starts_with("Wait") => Reply::new().say(SECRET).hang(),
            text if text.starts_with("Write") => Reply::new().call("write", json!({})),
            text => Reply::text(format!("You said: {text}")),
        }
    });
    let spec = ToolSpec::new("write", "Writes", json!({ "type": "object", "properties": {} }));
    let write = Tool::raw(spec, |_, _| async { "written" }).unwrap().requires_approval();
    Agent::new(model).with_tools([write])
}

/// Knows two users by their keys.
pub(super) fn two_users(request: &Parts) -> Result<Principal, Error> {
    match presented_key(request) {
        Some(name @ ("ada" | "bob")) => Ok(Principal::new(name)),
        _ => Err(Error::new(ErrorKind::Auth, "unknown key")),
    }
}

pub(super) struct Chat {
    pub(super) served: Served,
    pub(super) store: MemoryStore,
}

impl Chat {
    /// Serves a server whose settings are changed.
    pub(super) fn start(change: impl FnOnce(ChatServer) -> ChatServer) -> Self {
        Self::of(agent(), change)
    }

    /// Serves a server of this agent, whose settings are changed.
    pub(super) fn of(agent: Agent, change: impl FnOnce(ChatServer) -> ChatServer) -> Self {
        let store = MemoryStore::new();
        let server = ChatServer::new(agent).with_store(store.clone()).with_authorize(two_users);
        let server = server.with_shown_load();
        Self { served: Served::chat(change(server).router()), store }
    }

    pub(super) fn request(
        &self,
        user: &str,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> reqwest::RequestBuilder {
        let request = match (method, body) {
            (&Method::POST, body) => self.served.request(path, body.unwrap_or(&Value::Null)),
            _ => self.served.get_request(path),
        };
        request.header("x-api-key", user)
    }

    pub(super) async fn post(&self, user: &str, path: &str, body: &Value) -> Answered {
        self.served.send(self.request(user, &Method::POST, path, Some(body))).await
    }

    pub(super) async fn get(&self, user: &str, path: &str) -> Answered {
        self.served.send(self.request(user, &Method::GET, path, None)).await
    }

    /// Starts a run of a user, and returns the status.
    pub(super) async fn say(&self, user: &str, session: &str, text: &str) -> u16 {
        let path = format!("/sessions/{session}/runs");
        self.post(user, &path, &json!({ "text": text })).await.status
    }

    /// Waits until this number of runs is active.
    pub(super) async fn wait_for_runs(&self, count: usize) {
        let reached = async {
            while self.get("ada", "/health").await.json()["runs"] != count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LIMIT, reached).await.expect("the number of runs is not reached");
    }

    /// Starts a run and waits for its end.
    pub(super) async fn say_and_wait(&self, user: &str, session: &str, text: &str) {
        assert_eq!(self.say(user, session, text).await, 202);
        self.wait_for_runs(0).await;
    }

    /// The call of a session that waits for approval.
    pub(super) async fn waiting_call(&self, user: &str, session: &str) -> Value {
        let page = self.get(user, &format!("/sessions/{session}/messages")).await.json();
        assert_eq!(page["state"], "pending", "{page}");
        page["messages"].as_array().unwrap().last().unwrap()["entry"]["calls"][0].clone()
    }

    /// The entries of a session in the store.
    pub(super) async fn stored(&self, id: &str) -> String {
        serde_json::to_string(&self.store.load(id, 0).await.unwrap()).unwrap()
    }
}

/// An agent whose answers are functions of the user's last words.
pub(super) fn answering(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Agent {
    Agent::new(Scripted::from_fn(move |request, _| {
        let said = request.history.iter().rev().find_map(|item| item.as_user());
        answer(&said.map(Content::text).unwrap_or_default())
    }))
}

/// Reads a response until it contains a text.
pub(super) async fn read_until(response: reqwest::Response, wanted: &str) -> String {
    let mut bytes = response.bytes_stream();
    let mut read = String::new();
    let found = async {
        while !read.contains(wanted) {
            let chunk = bytes.next().await.expect("the stream has ended").unwrap();
            read.push_str(&String::from_utf8_lossy(&chunk));
        }
    };
    let is_found = tokio::time::timeout(LIMIT, found).await.is_ok();
    assert!(is_found, "{wanted} is missing in {read}");
    read
}
