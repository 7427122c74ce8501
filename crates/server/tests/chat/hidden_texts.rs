//! No route shows the messages of errors, unless they are shown.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use axum::http::Method;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{Entry, MemoryStore, SessionInfo, Store};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::ui::ErrorTexts;
use turnstream::{Agent, Error, ErrorKind};
use turnstream_server::ChatServer;

use super::support::{Chat, SECRET, answering, read_until, two_users};
use crate::server::Served;

/// An agent whose tool fails, whose sub-agent fails, and whose model then fails.
fn failing_agent() -> Agent {
    let failure = || Error::new(ErrorKind::Server, format!("the disk of {SECRET} is full"));
    let spec =
        |name: &str| ToolSpec::new(name, "Fails", json!({ "type": "object", "properties": {} }));
    let save = Tool::raw(spec("save"), |_, _| async { Err::<(), _>(format!("no {SECRET}")) });
    let sub_agent = Agent::new(Scripted::from_fn(move |_, _| Reply::error(failure())));
    let model = Scripted::from_fn(move |request, _| {
        let results = request.history.iter().filter(|item| item.as_tool_result().is_some());
        match results.count() {
            0 => Reply::new().call("save", json!({})),
            1 => Reply::new().call("research", json!({ "prompt": "Look" })),
            _ => Reply::error(failure()),
        }
    });
    Agent::new(model)
        .with_tools([save.unwrap(), sub_agent.as_tool("research", "Researches").unwrap()])
}

/// The texts of all routes that read the session `s`.
async fn read_all(chat: &Chat) -> Vec<(&'static str, String)> {
    let mut texts = Vec::new();
    for (method, path) in ChatServer::routes().filter(|(method, _)| method == Method::GET) {
        let request = chat.request("ada", &method, &path.replace("{id}", "s"), None);
        let response = request.send().await.unwrap();
        let text = match path.ends_with("/events") {
            true => read_until(response, "\n\n").await,
            false => response.text().await.unwrap(),
        };
        texts.push((path, text));
    }
    texts
}

#[tokio::test]
async fn no_route_shows_the_messages_of_errors_by_default() {
    let chat = Chat::of(failing_agent(), |server| server);
    chat.say_and_wait("ada", "s", "Save it").await;
    assert!(chat.stored("ada/s").await.contains(SECRET));
    for (path, text) in read_all(&chat).await {
        assert!(!text.contains(SECRET), "{path}: {text}");
    }
    // The kinds of the errors are shown.
    let messages = chat.get("ada", "/sessions/s/messages").await;
    assert!(messages.text.contains("server (error "), "{messages:?}");
    assert_eq!(messages.json()["ends"][0]["outcome"]["reason"], "provider_error", "{messages:?}");
    let message = json!({ "id": "1", "role": "user", "parts": [{ "type": "text", "text": "Hi" }] });
    let bodies = [
        ("/api/chat", json!({ "id": "t", "trigger": "submit-message", "messages": [message] })),
        (
            "/ag-ui",
            json!({ "threadId": "u", "runId": "r", "state": null, "tools": [],
            "context": [], "forwardedProps": null,
            "messages": [{ "id": "1", "role": "user", "content": "Hi" }] }),
        ),
    ];
    for (path, body) in bodies {
        let streamed = chat.post("ada", path, &body).await;
        assert!(streamed.status == 200 && !streamed.text.contains(SECRET), "{streamed:?}");
    }
}

#[tokio::test]
async fn the_messages_of_errors_are_shown_if_configured() {
    let chat = Chat::of(failing_agent(), |server| server.with_error_texts(ErrorTexts::shown()));
    chat.say_and_wait("ada", "s", "Save it").await;
    let shown: Vec<_> = read_all(&chat).await;
    for path in ["/sessions/{id}/messages", "/sessions/{id}/trace"] {
        let (_, text) = shown.iter().find(|(it, _)| *it == path).unwrap();
        assert!(text.contains(&format!("the disk of {SECRET}")), "{path}: {text}");
    }
}

#[tokio::test]
async fn each_failure_is_logged_once_with_the_id_that_all_readers_receive() {
    let logged: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let log = Arc::clone(&logged);
    let texts = ErrorTexts::hidden().log(move |id, text| {
        log.lock().unwrap().push((id.to_owned(), text.to_owned()));
    });
    let agent = answering(|said| {
        Reply::error(Error::new(ErrorKind::Server, format!("{said} of {SECRET} is full")))
    });
    let chat = Chat::of(agent, |server| server.with_error_texts(texts));
    chat.say_and_wait("ada", "unread", "One disk").await;
    let read = async || {
        let request = chat.request("ada", &Method::GET, "/sessions/s/events", None);
        request.send().await.unwrap()
    };
    let readers = [read().await, read().await];
    chat.say_and_wait("ada", "s", "Another disk").await;
    let mut received = Vec::new();
    for reader in readers {
        let events = read_until(reader, r#""type":"finished""#).await;
        let ids = events.split("(error ").skip(1).map(|rest| rest.split(')').next().unwrap());
        received.push(ids.map(str::to_owned).collect::<HashSet<_>>());
    }
    // The list and the messages repeat the error.
    chat.get("ada", "/sessions/s/messages").await;
    chat.get("ada", "/sessions").await;
    let log = logged.lock().unwrap();
    let [(unread, one), (id, another)] = log.as_slice() else { panic!("{log:?}") };
    assert!(one.contains("One disk of") && another.contains("Another disk of"), "{log:?}");
    assert_ne!(unread, id);
    assert_eq!(received, [HashSet::from([id.clone()]), HashSet::from([id.clone()])]);
}

/// A store that lists an unreadable session.
#[derive(Clone)]
struct DamagedStore(MemoryStore);

impl Store for DamagedStore {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        self.0.append(id, expected, entries)
    }

    fn load<'a>(
        &'a self,
        id: &'a str,
        from: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>> {
        self.0.load(id, from)
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Error>> {
        Box::pin(async {
            let mut listed = self.0.list().await?;
            for info in &mut listed {
                info.read_error = Some(format!("/home/{SECRET}/chats is damaged"));
            }
            Ok(listed)
        })
    }

    fn fork<'a>(&'a self, id: &'a str, at: u64, new: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.0.fork(id, at, new)
    }
}

#[tokio::test]
async fn the_list_of_sessions_does_not_show_why_a_session_cannot_be_read() {
    let store = MemoryStore::new();
    store.append("ada/s", 0, vec![turnstream::Item::user("Hi").into()]).await.unwrap();
    let server = |texts: ErrorTexts| {
        let server = ChatServer::new(failing_agent()).with_store(DamagedStore(store.clone()));
        Served::chat(server.with_authorize(two_users).with_error_texts(texts).router())
    };
    let list = async |served: Served| {
        let listed = served.send(served.get_request("/sessions").header("x-api-key", "ada")).await;
        listed.json()["sessions"][0]["read_error"].clone()
    };
    let hidden = list(server(ErrorTexts::hidden())).await;
    assert!(hidden.as_str().unwrap().starts_with("store (error "), "{hidden}");
    let shown = list(server(ErrorTexts::shown())).await;
    assert_eq!(shown, Value::from(format!("/home/{SECRET}/chats is damaged")));
}
