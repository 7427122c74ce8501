//! Verdicts on the calls of an active run.

use serde_json::{Value, json};
use turnstream::Agent;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolSpec};

use super::support::{Chat, read_until};

/// An agent that makes two calls, and waits for both verdicts while its run is active.
fn interactive_agent() -> Agent {
    let model = Scripted::from_fn(|request, _| {
        match request.history.iter().any(|item| item.as_tool_result().is_some()) {
            true => Reply::text("Done."),
            false => {
                Reply::new().call_raw("first", "write", "{}").call_raw("second", "write", "{}")
            }
        }
    });
    let spec = ToolSpec::new("write", "Writes", json!({ "type": "object", "properties": {} }));
    let write = Tool::raw(spec, |_, _| async { "written" }).unwrap().requires_approval();
    Agent::new(model).with_tools([write]).interactive()
}

/// The requests for approval in a session's events.
async fn requested_calls(chat: &Chat) -> Vec<Value> {
    let request = chat.request("ada", &axum::http::Method::GET, "/sessions/s/events", None);
    // The request for approval of the second call, and not the call itself.
    let last = r#""call_id":"second","name":"write","arguments":"{}","definition""#;
    let events = read_until(request.send().await.unwrap(), last).await;
    let events = events.lines().filter_map(|line| line.strip_prefix("data: "));
    let mut calls = Vec::new();
    for event in events {
        find_requests(&serde_json::from_str(event).unwrap(), &mut calls);
    }
    calls
}

fn find_requests(value: &Value, calls: &mut Vec<Value>) {
    match value {
        Value::Object(object) => {
            if object.get("type").is_some_and(|it| it == "approval_requested") {
                calls.push(value.clone());
            }
            object.values().for_each(|value| find_requests(value, calls));
        }
        Value::Array(values) => values.iter().for_each(|value| find_requests(value, calls)),
        _ => {}
    }
}

#[tokio::test]
async fn a_verdict_reaches_an_active_run_that_has_received_the_earlier_ones() {
    let chat = Chat::of(interactive_agent(), |server| server);
    assert_eq!(chat.say("ada", "s", "Write").await, 202);
    let calls = requested_calls(&chat).await;
    let first = calls.iter().find(|call| call.to_string().contains("\"first\"")).unwrap();
    let second = calls.iter().find(|call| call.to_string().contains("\"second\"")).unwrap();
    let approve = async |body: &Value| chat.post("ada", "/sessions/s/approve", body).await.status;
    assert_eq!(approve(&json!({ "call": first })).await, 202);
    // A page repeats its earlier verdicts.
    let earlier = json!([{ "call": first, "is_approved": true }]);
    assert_eq!(approve(&json!({ "call": second, "earlier": earlier })).await, 202);
    chat.wait_for_runs(0).await;
    let stored = chat.stored("ada/s").await;
    assert_eq!(stored.matches("written").count(), 2, "{stored}");
    // A verdict that is sent again is refused for its own reason.
    let replayed = chat.post("ada", "/sessions/s/approve", &json!({ "call": second })).await;
    assert_eq!(replayed.status, 409);
    assert!(!replayed.text.contains("another program"), "{replayed:?}");
}
