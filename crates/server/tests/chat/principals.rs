//! Sessions and verdicts belong to the principal that has started them.

use std::sync::{Arc, Mutex};

use axum::http::Method;
use axum::http::request::Parts;
use serde_json::{Value, json};
use turnstream::agent::{Budget, EventObserver, ObservedRun, RunObserver};
use turnstream::event::RewriteReason;
use turnstream::item::TombstoneEdit;
use turnstream::propagation::TraceContext;
use turnstream::session::{Entry, JsonLinesStore, Store};
use turnstream::{History, Item};
use turnstream_server::{AllowedSites, ChatServer, Principal, presented_key, presented_trace};

use super::support::{Chat, LIMIT, SECRET, agent, read_until, two_users};
use crate::server::Served;

/// A body that the route accepts. A new route has to be added here.
fn body(path: &str, id: &str, call: &Value) -> Option<Value> {
    let message = json!({ "id": "1", "role": "user", "parts": [{ "type": "text", "text": "Hi" }] });
    Some(match path {
        "/sessions/{id}/runs" | "/sessions/{id}/steer" => json!({ "text": "Hi" }),
        "/sessions/{id}/stop" | "/sessions/{id}/regenerate" | "/api/chat/{id}/stop" => json!({}),
        "/sessions/{id}/approve" | "/sessions/{id}/deny" => json!({ "call": call }),
        "/sessions/{id}/grants/revoke" => json!({ "grant_id": "1" }),
        "/sessions/{id}/fork" => json!({ "at": 1 }),
        "/api/chat" => json!({ "id": id, "trigger": "submit-message", "messages": [message] }),
        "/ag-ui" => json!({ "threadId": id, "runId": "r", "state": null, "tools": [],
            "context": [], "forwardedProps": null,
            "messages": [{ "id": "1", "role": "user", "content": "Hi" }] }),
        "/sessions/{id}/events"
        | "/sessions/{id}/grants"
        | "/sessions/{id}/messages"
        | "/sessions/{id}/trace"
        | "/sessions"
        | "/health"
        | "/api/chat/{id}/stream"
        | "/api/chat/{id}/messages" => return None,
        other => panic!("the route {other} is new: add it here"),
    })
}

/// The status for the id of another principal's session. The routes with 404 act on a session; the
/// others read or start one, and treat an unknown id as that of a new, empty session.
fn expected_status(path: &str) -> u16 {
    match path {
        "/sessions/{id}/steer"
        | "/sessions/{id}/stop"
        | "/sessions/{id}/regenerate"
        | "/sessions/{id}/approve"
        | "/sessions/{id}/deny"
        | "/sessions/{id}/grants/revoke"
        | "/sessions/{id}/fork"
        | "/api/chat/{id}/stop" => 404,
        "/sessions/{id}/runs" => 202,
        "/api/chat/{id}/stream" => 204,
        _ => 200,
    }
}

/// The response of each route to a user who presents the id of a session.
async fn responses(chat: &Chat, user: &str, id: &str, call: &Value) -> Vec<(String, u16, String)> {
    let mut responses = Vec::new();
    // The routes that start a run are last, so that the session is unknown before.
    let starts = ["/sessions/{id}/runs", "/api/chat", "/ag-ui"];
    let (first, last): (Vec<_>, Vec<_>) =
        ChatServer::routes().partition(|(_, path)| !starts.contains(path));
    for (method, path) in first.into_iter().chain(last) {
        let place = path.replace("{id}", id);
        let request = chat.request(user, &method, &place, body(path, id, call).as_ref());
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let text = match path.ends_with("/events") {
            true => read_until(response, "\n\n").await,
            false => response.text().await.unwrap(),
        };
        responses.push((format!("{method} {path}"), status, text.replace(id, "ID")));
        chat.wait_for_runs(1).await;
    }
    responses
}

#[tokio::test]
async fn another_principals_session_is_like_one_that_does_not_exist() {
    let chat = Chat::start(|server| server);
    chat.say_and_wait("ada", "adas-first", &format!("Write {SECRET}")).await;
    let call = chat.waiting_call("ada", "adas-first").await;
    assert_eq!(chat.say("ada", "adas-second", &format!("Wait {SECRET}")).await, 202);
    chat.wait_for_runs(1).await;
    read_until(
        chat.request("ada", &Method::GET, "/sessions/adas-second/events", None)
            .send()
            .await
            .unwrap(),
        SECRET,
    )
    .await;
    let before = [chat.stored("ada/adas-first").await, chat.stored("ada/adas-second").await];
    let unknown = responses(&chat, "bob", "not-a-session", &call).await;
    for id in ["adas-first", "adas-second"] {
        let known = responses(&chat, "bob", id, &call).await;
        for ((route, status, text), (_, unknown_status, unknown_text)) in known.iter().zip(&unknown)
        {
            let path = route.split_once(' ').unwrap().1;
            assert_eq!((status, *status), (unknown_status, expected_status(path)), "{route}");
            assert!(!text.contains(SECRET) && !text.contains("ada/"), "{route}: {text}");
            if *status == 404 || text.is_empty() || path.ends_with("/messages") {
                assert_eq!(text, unknown_text, "{route}");
            }
        }
    }
    let after = [chat.stored("ada/adas-first").await, chat.stored("ada/adas-second").await];
    assert_eq!(before, after);
    assert!(before[0].contains(SECRET));
    // The call still waits for its own principal.
    let verdict = json!({ "call": call });
    let approved = chat.post("ada", "/sessions/adas-first/approve", &verdict).await;
    assert_eq!(approved.status, 202, "{approved:?}");
}

/// An observer that collects the trace contexts in the data of runs.
#[derive(Clone, Default)]
pub(crate) struct TraceParents(Arc<Mutex<Vec<Option<TraceContext>>>>);

impl RunObserver for TraceParents {
    fn start(&self, run: &ObservedRun<'_>) -> Option<Box<dyn EventObserver>> {
        let parent = run.data.get::<TraceContext>();
        self.0.lock().unwrap().push(parent.map(|it| TraceContext::clone(&it)));
        None
    }
}

impl TraceParents {
    pub(crate) fn take(&self) -> Vec<Option<TraceContext>> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// The value of the header `traceparent` of a client.
pub(crate) const TRACE_PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test]
async fn the_runs_of_a_trusted_client_are_part_of_its_trace() {
    let parents = TraceParents::default();
    let trusts_ada = |request: &Parts| {
        let principal = two_users(request)?;
        Ok(match principal.id() {
            "ada" => principal.with_trace_parent(presented_trace(request)),
            _ => principal,
        })
    };
    let agent = agent().with_run_observer(parents.clone());
    let chat = Chat::of(agent, |server| server.with_authorize(trusts_ada));
    let send = async |user: &str, session: &str, parent: &str, body: &Value| {
        let path =
            format!("/sessions/{session}/{}", if body["text"].is_null() { "stop" } else { "runs" });
        let request = chat.request(user, &Method::POST, &path, Some(body));
        let request = request.header("traceparent", parent).header("tracestate", "vendor=1");
        assert!(chat.served.send(request).await.status < 300, "{user}");
    };
    let expected = TraceContext::parse(TRACE_PARENT, Some("vendor=1"));
    assert!(expected.is_some());
    let (hi, wait) = (json!({ "text": "Hi" }), json!({ "text": "Wait" }));
    for (user, parent, found) in [
        ("ada", TRACE_PARENT, expected.clone()),
        ("ada", "00-malformed-01", None),
        ("bob", TRACE_PARENT, None),
    ] {
        send(user, "s", parent, &hi).await;
        chat.wait_for_runs(0).await;
        assert_eq!(parents.take(), [found], "{user} {parent}");
    }
    // A message that waits keeps the trace of its request.
    send("ada", "t", "none", &wait).await;
    send("ada", "t", TRACE_PARENT, &hi).await;
    send("ada", "t", "none", &json!({})).await;
    let started = async {
        while parents.0.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, started).await.expect("the second run has not started");
    assert_eq!(parents.take(), [None, expected]);
}

#[tokio::test]
async fn every_route_refuses_unknown_principals() {
    let chat = Chat::start(|server| server.with_routes(page()));
    let call = Value::Null;
    let app = [(Method::GET, "/page"), (Method::GET, "/no-such-page")];
    for (method, path) in ChatServer::routes().chain(app) {
        let body = if path.contains("page") { None } else { body(path, "s", &call) };
        for user in ["", "eve"] {
            let place = path.replace("{id}", "s");
            let request = chat.request(user, &method, &place, body.as_ref());
            let answered = chat.served.send(request).await;
            assert_eq!(answered.status, 401, "{method} {path}: {answered:?}");
        }
    }
    assert_eq!(chat.get("ada", "/page").await.text, "the page of ada");
}

/// A page of the app.
fn page() -> axum::Router {
    let show = |axum::Extension(principal): axum::Extension<Principal>| async move {
        format!("the page of {}", principal.id())
    };
    axum::Router::new().route("/page", axum::routing::get(show))
}

#[tokio::test]
async fn every_route_refuses_foreign_hosts_and_pages() {
    let served = Served::chat(ChatServer::new(agent()).router());
    let sites =
        AllowedSites::of_hosts(["chat.example"]).with_origin("https://app.example").unwrap();
    let open = ChatServer::new(agent()).with_sites(sites).with_authorize(two_users);
    let open = Served::chat(open.router());
    for (method, path) in ChatServer::routes() {
        let place = path.replace("{id}", "s");
        let send = async |served: &Served, header: (&'static str, &'static str)| {
            let request = match method {
                Method::POST => {
                    served.request(&place, &body(path, "s", &Value::Null).unwrap_or_default())
                }
                _ => served.get_request(&place),
            };
            let request = request.header("x-api-key", "ada").header(header.0, header.1);
            request.send().await.unwrap().status().as_u16()
        };
        for server in [&served, &open] {
            // A name that an attacker has pointed to the server.
            assert_eq!(send(server, ("host", "evil.example")).await, 421, "{path}");
            assert_eq!(send(server, ("origin", "https://evil.example")).await, 403, "{path}");
            assert_eq!(send(server, ("sec-fetch-site", "cross-site")).await, 403, "{path}");
        }
        assert_eq!(send(&served, ("host", "10.0.0.1")).await, 421, "{path}");
        for allowed in [("host", "chat.example:443"), ("origin", "https://app.example")] {
            let status = send(&open, allowed).await;
            assert!(!matches!(status, 401 | 403 | 421), "{path}: {status}");
        }
    }
}

#[tokio::test]
async fn a_verdict_answers_one_request_of_its_own_session() {
    let chat = Chat::start(|server| server);
    chat.say_and_wait("ada", "s", "Write").await;
    let call = chat.waiting_call("ada", "s").await;
    // The same words in another session ask another question.
    chat.say_and_wait("ada", "other", "Write").await;
    let verdict = json!({ "call": call });
    assert_eq!(chat.post("ada", "/sessions/other/approve", &verdict).await.status, 409);
    assert_eq!(chat.post("bob", "/sessions/s/approve", &verdict).await.status, 404);
    assert_eq!(chat.post("bob", "/sessions/s/deny", &verdict).await.status, 404);
    assert_eq!(chat.post("ada", "/sessions/s/approve", &verdict).await.status, 202);
    chat.wait_for_runs(0).await;
    let replayed = chat.post("ada", "/sessions/s/approve", &verdict).await;
    assert_eq!(replayed.status, 409, "{replayed:?}");
    // Also not while the next call waits.
    chat.say_and_wait("ada", "s", "Write again").await;
    assert_eq!(chat.post("ada", "/sessions/s/approve", &verdict).await.status, 409);
    assert_eq!(chat.stored("ada/s").await.matches(r#""written""#).count(), 1);
}

#[tokio::test]
async fn principals_list_only_their_own_sessions() {
    let chat = Chat::start(|server| server);
    for (user, session) in [("ada", "a"), ("bob", "b"), ("bob", "a")] {
        chat.say_and_wait(user, session, &format!("I am {user}")).await;
    }
    let fork = chat.post("bob", "/sessions/b/fork", &json!({})).await.json()["session"].clone();
    let listed = async |user: &str| {
        let list = chat.get(user, "/sessions").await.json();
        let of = |it: &Value| {
            let text = |name: &str| it[name].as_str().unwrap_or_default().to_owned();
            (text("id"), text("title"), text("forked_from"))
        };
        let mut sessions: Vec<_> = list["sessions"].as_array().unwrap().iter().map(of).collect();
        sessions.sort_by_key(|(id, ..)| id.len());
        sessions
    };
    let entry =
        |id: &str, user: &str, from: &str| (id.to_owned(), format!("I am {user}"), from.to_owned());
    assert_eq!(listed("ada").await, [entry("a", "ada", "")]);
    let bobs = listed("bob").await;
    assert_eq!(bobs.len(), 3);
    assert!(bobs.contains(&entry("a", "bob", "")) && bobs.contains(&entry("b", "bob", "")));
    assert!(bobs.contains(&entry(fork.as_str().unwrap(), "bob", "b")), "{bobs:?}");
    assert_eq!(
        chat.stored("bob/b").await.len(),
        chat.stored(&format!("bob/{}", fork.as_str().unwrap())).await.len()
    );
}

#[tokio::test]
async fn a_title_does_not_contain_a_message_that_became_a_tombstone() {
    let chat = Chat::start(|server| server);
    let items = ["My key is 1234.", "What is a key?"].map(Item::user);
    let entries: Vec<Entry> = items.iter().cloned().map(Entry::from).collect();
    chat.store.append("ada/s", 0, entries).await.unwrap();
    let title = async || {
        chat.get("ada", "/sessions").await.json()["sessions"][0]["title"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(title().await, items[0].as_user().unwrap().text());
    // The same message again, which stays.
    chat.store.append("ada/s", 2, vec![items[0].clone().into()]).await.unwrap();
    assert_eq!(title().await, items[0].as_user().unwrap().text());

    let edits = History::from_items("s", items.clone()).tombstone_edits([0]).unwrap();
    assert_eq!(edits[0].items.len(), 1);
    let TombstoneEdit { from, to, items: replaced } = edits.into_iter().next().unwrap();
    let why = RewriteReason::Tombstoned;
    let entry = Entry::Rewritten { why, from, to, items: replaced };
    chat.store.append("ada/s", 3, vec![entry]).await.unwrap();
    assert_eq!(title().await, items[1].as_user().unwrap().text());
}

#[tokio::test]
async fn a_long_list_is_read_in_pages_without_sessions_of_others() {
    let chat = Chat::start(|server| server);
    for number in 0..120 {
        let entries = vec![Item::user(format!("{number}")).into()];
        let owner = if number % 2 == 0 { "ada" } else { "bob" };
        chat.store.append(&format!("{owner}/{number}"), 0, entries).await.unwrap();
    }
    let mut listed = Vec::new();
    let mut path = "/sessions".to_owned();
    loop {
        let page = chat.get("ada", &path).await.json();
        let titles = page["sessions"].as_array().unwrap().iter().map(|it| it["title"].clone());
        listed.extend(titles.map(|title| title.as_str().unwrap().parse::<usize>().unwrap()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/sessions?after={next}");
    }
    listed.sort_unstable();
    assert_eq!(listed, (0..120).step_by(2).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_principal_has_a_budget_and_a_number_of_runs() {
    let authorize = |request: &axum::http::request::Parts| {
        let principal = two_users(request)?;
        Ok(match presented_key(request) {
            Some("ada") => principal.with_max_runs(2),
            _ => principal.with_budget(Budget::new().with_tool_calls(0)),
        })
    };
    let chat = Chat::start(|server| server.with_authorize(authorize));
    assert_eq!(chat.say("ada", "1", "Wait").await, 202);
    assert_eq!(chat.say("ada", "2", "Wait").await, 202);
    let refused = chat.post("ada", "/sessions/3/runs", &json!({ "text": "Hi" })).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.json()["error"].is_string() && refused.headers.contains_key("retry-after"));
    for path in ["/api/chat", "/ag-ui"] {
        let body = body(path, "3", &Value::Null).unwrap();
        assert_eq!(chat.post("ada", path, &body).await.status, 429, "{path}");
    }
    // Nothing was kept of the refused messages, and others are not concerned.
    assert_eq!(chat.stored("ada/3").await, "null");
    assert_eq!(chat.say("bob", "1", "Wait").await, 202);
    // A run that has ended makes room.
    assert_eq!(chat.post("ada", "/sessions/1/stop", &json!({})).await.status, 200);
    chat.wait_for_runs(2).await;
    assert_eq!(chat.say("ada", "3", "Hi").await, 202);
    // The budget holds for the principal's runs.
    assert_eq!(chat.say("bob", "2", "Write").await, 202);
    chat.wait_for_runs(2).await;
    let ends = chat.get("bob", "/sessions/2/messages").await.json()["ends"].clone();
    assert_eq!(ends[0]["outcome"]["reason"], "budget", "{ends}");
}

#[tokio::test]
async fn shared_sessions_belong_to_all_principals_under_their_own_ids() {
    let chat = Chat::start(ChatServer::with_shared_sessions);
    chat.say_and_wait("ada", "team", "Hello").await;
    assert!(chat.stored("team").await.contains("Hello"));
    let page = chat.get("bob", "/sessions/team/messages").await;
    assert!(page.text.contains("Hello"), "{page:?}");
    assert_eq!(chat.get("bob", "/sessions").await.json()["sessions"][0]["id"], "team");
}

#[tokio::test]
async fn no_id_leads_out_of_a_principals_own_sessions() {
    let folder = std::env::temp_dir().join(format!("chat-principals-{}", std::process::id()));
    let inner = folder.join("sessions");
    let authorize = |request: &axum::http::request::Parts| {
        Ok::<_, turnstream::Error>(Principal::new(presented_key(request).unwrap_or_default()))
    };
    let store = JsonLinesStore::open(&inner).unwrap();
    let chat = Chat::start(|server| server.with_store(store).with_authorize(authorize));
    let users = ["a", "a/b", "../..", "", "a%2Fb", "ada@example.org"];
    for user in users {
        chat.say_and_wait(user, "c", &format!("I am {user}!")).await;
    }
    for user in users {
        let page = chat.get(user, "/sessions/c/messages").await.json();
        let said = page["messages"].as_array().unwrap();
        assert_eq!(said[0]["entry"]["content"], format!("I am {user}!"));
        assert_eq!(said.len(), 2, "{user}: {page}");
        let list = chat.get(user, "/sessions").await.json();
        assert_eq!(list["sessions"].as_array().unwrap().len(), 1, "{user}: {list}");
        assert_eq!(list["sessions"][0]["id"], "c");
    }
    for id in ["b%2Fc", "..%2Fc", "%2F", "a%00b", ""] {
        let page = chat.get("a", &format!("/sessions/{id}/messages")).await;
        assert!(matches!(page.status, 400 | 404), "{id}: {page:?}");
    }
    // Nothing was written outside of the store's folder.
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn the_load_is_shown_only_if_configured() {
    let health = async |server: ChatServer| {
        let served = Served::chat(server.router());
        served.get("/health").await.json()
    };
    let server = ChatServer::new(agent());
    assert_eq!(health(server.clone()).await, json!({ "status": "ok" }));
    assert_eq!(health(server.with_shown_load()).await["runs"], 0);
}
