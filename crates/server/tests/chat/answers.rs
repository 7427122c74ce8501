//! An answer that is replaced is not lost if the run that replaces it cannot start.

use std::sync::Mutex;

use axum::http::Method;
use serde_json::{Value, json};
use turnstream::agent::{Budget, Pool};
use turnstream::partial::PartialValues;
use turnstream::provider::Reply;
use turnstream::session::Store;
use turnstream::usage::Usage;
use turnstream_server::{ChatLimits, Principal};

use super::support::{Chat, answering, read_until, two_users};

/// Requests another answer as a client of the AI SDK.
async fn regenerate_by_ai_sdk(chat: &Chat) -> u16 {
    let messages = chat.get("ada", "/api/chat/s/messages").await.json();
    let body = json!({ "id": "s", "trigger": "regenerate-message", "messages": messages,
        "messageId": messages[1]["id"] });
    chat.post("ada", "/api/chat", &body).await.status
}

async fn regenerate(chat: &Chat, body: &Value) -> u16 {
    chat.post("ada", "/sessions/s/regenerate", body).await.status
}

#[tokio::test]
async fn another_answer_replaces_the_existing_one() {
    let count = Mutex::new(0);
    let agent = answering(move |_| {
        let mut count = count.lock().unwrap();
        *count += 1;
        Reply::text(format!("answer {count}"))
    });
    let chat = Chat::of(agent, |server| server);
    chat.say_and_wait("ada", "s", "Hi").await;
    assert_eq!(regenerate(&chat, &json!({})).await, 202);
    chat.wait_for_runs(0).await;
    let shown = chat.get("ada", "/api/chat/s/messages").await;
    assert!(shown.text.contains("answer 2") && !shown.text.contains("answer 1"), "{shown:?}");
    assert_eq!(regenerate_by_ai_sdk(&chat).await, 200);
    let shown = chat.get("ada", "/api/chat/s/messages").await;
    assert!(shown.text.contains("answer 3") && !shown.text.contains("answer 2"), "{shown:?}");
}

#[tokio::test]
async fn the_existing_answer_stays_if_the_new_run_cannot_start() {
    let limits = ChatLimits { max_starts_per_minute: 1, ..ChatLimits::default() };
    let chat = Chat::start(|server| server.with_limits(limits));
    chat.say_and_wait("ada", "s", "Hi").await;
    let before = chat.stored("ada/s").await;
    assert_eq!(regenerate(&chat, &json!({})).await, 429);
    assert_eq!(regenerate_by_ai_sdk(&chat).await, 429);
    // Another process runs the session.
    let chat = Chat::start(|server| server);
    chat.say_and_wait("ada", "s", "Hi").await;
    let lease = chat.store.lease("ada/s").await.unwrap();
    assert_eq!(regenerate(&chat, &json!({})).await, 409);
    assert_eq!(chat.stored("ada/s").await, before);
    drop(lease);
    assert_eq!(regenerate(&chat, &json!({})).await, 202);
}

#[tokio::test]
async fn an_exhausted_pool_is_reported_before_anything_is_stored() {
    let pool = Pool::new(100);
    let principals = pool.clone();
    let authorize = move |request: &axum::http::request::Parts| -> Result<Principal, _> {
        let budget = Budget::new().with_pool(principals.clone());
        Ok(two_users(request)?.with_budget(budget))
    };
    let chat = Chat::start(|server| server.with_authorize(authorize));
    chat.say_and_wait("ada", "s", "Hi").await;
    let before = chat.stored("ada/s").await;
    pool.charge(Usage { input_tokens: 100, ..Usage::default() });
    assert_eq!(chat.say("ada", "s", "Hi").await, 429);
    assert_eq!(regenerate(&chat, &json!({})).await, 429);
    assert_eq!(chat.stored("ada/s").await, before);
}

#[tokio::test]
async fn another_answer_gives_up_waiting_calls_only_if_the_request_says_so() {
    let chat = Chat::start(|server| server);
    chat.say_and_wait("ada", "s", "Write").await;
    let before = chat.stored("ada/s").await;
    let refused = chat.post("ada", "/sessions/s/regenerate", &json!({})).await;
    assert_eq!((refused.status, &refused.json()["waiting_calls"]), (409, &json!(1)));
    assert_eq!(chat.stored("ada/s").await, before);
    assert_eq!(regenerate(&chat, &json!({ "waiting_calls": "give_up" })).await, 202);
    chat.wait_for_runs(0).await;
    assert!(chat.stored("ada/s").await.contains("Done."));
}

#[tokio::test]
async fn growing_answers_are_sent_in_each_protocol_if_they_are_turned_on() {
    let agent = || answering(|_| Reply::text(r#"{"city":"Oslo"}"#));
    let values = PartialValues::untyped_answer(&true.into());
    let on = Chat::of(agent(), |server| server.with_partials(values));
    let off = Chat::of(agent(), |server| server);
    let message = json!({ "id": "1", "role": "user", "parts": [{ "type": "text", "text": "Hi" }] });
    let for_ai_sdk = json!({ "id": "s", "trigger": "submit-message", "messages": [message] });
    let for_ag_ui = json!({ "threadId": "t", "runId": "r", "state": null, "tools": [],
        "context": [], "forwardedProps": null,
        "messages": [{ "id": "1", "role": "user", "content": "Hi" }] });
    for (chat, is_on) in [(&on, true), (&off, false)] {
        let parts = chat.post("ada", "/api/chat", &for_ai_sdk).await.text;
        assert_eq!(parts.contains(r#""type":"data-partial""#), is_on, "{parts}");
        let events = chat.post("ada", "/ag-ui", &for_ag_ui).await.text;
        assert_eq!(events.contains("partials"), is_on, "{events}");
        let reader = chat.request("ada", &Method::GET, "/sessions/u/events", None);
        let reader = reader.send().await.unwrap();
        chat.say_and_wait("ada", "u", "Hi").await;
        let events = read_until(reader, r#""type":"finished""#).await;
        assert_eq!(events.contains("event: partial\n"), is_on, "{events}");
    }
}
