//! Clients that mean harm.

use std::time::Duration;

use axum::http::Request;
use futures::StreamExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::time::Instant;
use turnstream::provider::{Reply, Scripted};
use turnstream::ui::ClientLimits;
use turnstream::{Agent, Error, ErrorKind};
use turnstream_server::{AgentServer, Principal};

use crate::server::{Served, searching_agent};

/// All routes, with a body for those that need one.
fn routes() -> Vec<(&'static str, Option<Value>)> {
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    let body = || Some(json!({ "model": "assistant", "messages": messages }));
    let contents = json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hi" }] }] });
    vec![
        ("/v1/chat/completions", body()),
        ("/v1/responses", Some(json!({ "model": "assistant", "input": "Hi" }))),
        ("/v1/messages", body()),
        ("/v1/messages/count_tokens", body()),
        ("/v1/models", None),
        ("/v1/models/assistant", None),
        ("/v1/models/assistant:generateContent", Some(contents.clone())),
        ("/v1beta/models", None),
        ("/v1beta/models/assistant", None),
        ("/v1beta/models/assistant:generateContent", Some(contents.clone())),
        ("/v1beta/models/assistant:streamGenerateContent?alt=sse", Some(contents.clone())),
        ("/v1beta/models/assistant:countTokens", Some(contents)),
        ("/api/chat", body()),
        ("/api/tags", None),
        ("/api/show", Some(json!({ "model": "assistant" }))),
        ("/api/version", None),
    ]
}

/// Sends a request to each route, and returns the statuses.
async fn statuses(served: &Served, headers: &[(&str, &str)]) -> Vec<(&'static str, u16)> {
    let mut statuses = Vec::new();
    for (path, body) in routes() {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = match body {
            Some(body) => served.request(path, &body),
            None => client.get(served.url(path)),
        };
        let request = headers.iter().fold(request, |it, (name, value)| it.header(*name, *value));
        statuses.push((path, served.send(request).await.status));
    }
    statuses
}

/// The number of routes in the source of the router, so that a new one is not forgotten here.
fn route_count() -> usize {
    include_str!("../src/agent_server.rs").matches(".route(").count()
}

#[tokio::test]
async fn every_route_asks_who_calls() {
    // Two routes have two methods, and one of them names its own methods in its path.
    assert_eq!(routes().len(), route_count() + 4);
    let refuse = |_: &axum::http::request::Parts| -> Result<Principal, Error> {
        Err(Error::new(ErrorKind::Auth, "unknown key"))
    };
    let agents = AgentServer::new().with_model("assistant", searching_agent());
    let served = Served::router(agents.with_authorize(refuse).router()).await;
    for (path, status) in statuses(&served, &[]).await {
        assert_eq!(status, 401, "{path}");
    }
}

#[tokio::test]
async fn without_authorization_only_this_machines_names_are_served() {
    let served = Served::agent(searching_agent()).await;
    let port = served.address.port();
    for (path, status) in statuses(&served, &[("host", &format!("localhost:{port}"))]).await {
        assert_eq!(status, 200, "{path}");
    }
    // A name that an attacker has pointed to this machine.
    for (path, status) in statuses(&served, &[("host", "evil.example")]).await {
        assert_eq!(status, 421, "{path}");
    }
    // A page of another site.
    for header in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
        for (path, status) in statuses(&served, &[header]).await {
            assert_eq!(status, 403, "{path}");
        }
    }
}

#[tokio::test]
async fn large_requests_are_refused_before_they_are_read() {
    let limits =
        ClientLimits { max_bytes: 1_000, max_messages: 3, max_tools: 1, ..ClientLimits::default() };
    let agents = AgentServer::new().with_model("assistant", searching_agent()).with_limits(limits);
    let served = Served::router(agents.router()).await;
    let chat = |messages: Value| json!({ "model": "assistant", "messages": messages });
    let message = json!({ "role": "user", "content": "Hi" });
    let path = "/v1/chat/completions";
    let large = chat(json!([{ "role": "user", "content": "x".repeat(2_000) }]));
    assert_eq!(served.post(path, &large).await.status, 413);
    // A body without a declared length.
    let pieces = (0..100).map(|_| Ok::<_, std::io::Error>(vec![b' '; 100]));
    let body = reqwest::Body::wrap_stream(futures::stream::iter(pieces));
    assert_eq!(served.send(served.request(path, &json!(null)).body(body)).await.status, 413);
    let many = chat(vec![message.clone(); 4].into());
    assert_eq!(served.post(path, &many).await.status, 400);
    let deep = "[".repeat(500) + &"]".repeat(500);
    assert_eq!(served.send(served.request(path, &json!(null)).body(deep)).await.status, 400);
    assert_eq!(served.post(path, &chat(json!([message]))).await.status, 200);
}

#[tokio::test]
async fn many_values_and_calls_are_refused_quickly() {
    let served = Served::agent(searching_agent()).await;
    let many = format!("[{}1]", "{},".repeat(300_000));
    let request = served.request("/v1/chat/completions", &json!(null)).body(many);
    assert_eq!(served.send(request).await.status, 413);
    let call = |n: usize| json!({ "id": n.to_string(), "function": { "name": "x" } });
    let calls: Vec<Value> = (0..20_000).map(call).collect();
    let body = json!({ "model": "assistant", "messages": [
        { "role": "user", "content": "Hi" }, { "role": "assistant", "tool_calls": calls },
    ] });
    let answered = served.post("/v1/chat/completions", &body).await;
    assert!(answered.status == 400 && answered.text.contains("10000 calls"), "{answered:?}");
}

#[tokio::test]
async fn separators_of_lines_in_a_text_do_not_break_the_stream() {
    // The second piece, which is all but the first word, continues the text.
    let text = "zero one\u{2028}two\u{2029}three\u{85}four\r\nfive";
    let model = Scripted::from_fn(move |_, _| Reply::text(text));
    let served = Served::agent(Agent::new(model)).await;
    let body = json!({
        "model": "assistant", "stream": true, "messages": [{ "role": "user", "content": "Hi" }],
    });
    let answered = served.post("/v1/chat/completions", &body).await;
    for separator in ['\u{2028}', '\u{2029}', '\u{85}', '\r'] {
        assert!(!answered.text.contains(separator), "{separator:?} in {answered:?}");
    }
    let pieces = answered.text.lines().filter_map(|line| line.strip_prefix("data: {"));
    let pieces = pieces.map(|json| serde_json::from_str(&format!("{{{json}")).unwrap());
    let said: String = pieces
        .filter_map(|chunk: Value| {
            Some(chunk["choices"][0]["delta"]["content"].as_str()?.to_owned())
        })
        .collect();
    assert_eq!(said, text);
}

#[tokio::test(start_paused = true)]
async fn a_silent_agent_keeps_its_connection_alive() {
    let model = Scripted::from_fn(|_, _| Reply::new().hang());
    let agents = AgentServer::new().with_model("assistant", Agent::new(model));
    let body = json!({
        "model": "assistant", "stream": true, "messages": [{ "role": "user", "content": "Hi" }],
    });
    let request = Request::post("/v1/chat/completions").header("host", "localhost");
    let request = request.header("content-type", "application/json").body(body.to_string());
    // Without a connection, whose bytes could arrive later than the paused time says.
    let service = TowerToHyperService::new(agents.router());
    let response = service.call(request.unwrap()).await.unwrap();
    let mut bytes = response.into_body().into_data_stream();
    let opening = bytes.next().await.unwrap().unwrap();
    assert!(opening.starts_with(b"data: {"), "{opening:?}");
    for _ in 0..3 {
        let silent_since = Instant::now();
        let ping = bytes.next().await.unwrap().unwrap();
        assert_eq!(ping.as_ref(), b": keep-alive\n\n");
        assert_eq!(silent_since.elapsed(), Duration::from_secs(15));
    }
}

#[tokio::test]
async fn both_kinds_of_servers_can_be_nested() {
    let agent = searching_agent();
    let models = AgentServer::new().with_model("assistant", agent.clone());
    let chat = turnstream_server::ChatServer::new(agent);
    let served = Served::router(chat.router().nest("/models", models.router())).await;
    let message = json!({ "role": "user", "content": "Hi" });
    let body = json!({ "model": "assistant", "stream": false, "messages": [message] });
    let model = served.post("/models/api/chat", &body).await;
    assert_eq!(model.json()["message"]["content"], "Let me look.\n\nIt is five.", "{model:?}");
    let part = json!({ "type": "text", "text": "Hi" });
    let message = json!({ "id": "1", "role": "user", "parts": [part] });
    let body = json!({ "id": "s", "trigger": "submit-message", "messages": [message] });
    let page = served.post("/api/chat", &body).await;
    assert_eq!(page.headers["x-vercel-ai-ui-message-stream"], "v1", "{page:?}");
    assert_eq!(served.get("/models/v1/models/assistant").await.status, 200);
}
