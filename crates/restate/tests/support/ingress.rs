//! The ingress API of a server.

use reqwest::{Client, RequestBuilder};
use serde_json::Value;
use std::time::Duration;

/// The time limit of a call.
const CALL_LIMIT: Duration = Duration::from_mins(1);

/// The answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Calls `target`, for example `Greeter/greet` or `Counter/my-key/add`, and waits for its answer.
/// An input of `Value::Null` is sent as an empty body: the handler has no input.
pub(crate) async fn call(ingress_url: &str, target: &str, input: &Value) -> Reply {
    let url = format!("{ingress_url}/restate/call/{target}");
    reply(with_input(client().post(url), input)).await
}

/// Like [`call`], with an idempotency key.
pub(crate) async fn call_with_key(
    ingress_url: &str,
    target: &str,
    input: &Value,
    key: &str,
) -> Reply {
    let url = format!("{ingress_url}/restate/call/{target}");
    reply(with_input(client().post(url).header("idempotency-key", key), input)).await
}

/// Starts `target` without waiting for it, and returns the id of the invocation.
pub(crate) async fn send(ingress_url: &str, target: &str, input: &Value) -> String {
    let url = format!("{ingress_url}/restate/send/{target}");
    let Reply { status, body } = reply(with_input(client().post(url), input)).await;
    assert!(status < 300, "{target}: {status} {body}");
    let body: Value = serde_json::from_str(&body).expect("the answer is JSON");
    body["invocationId"].as_str().expect("the answer has the invocation's id").to_owned()
}

/// Waits for the answer of an invocation that was started before.
pub(crate) async fn attach(ingress_url: &str, invocation_id: &str) -> Reply {
    let url = format!("{ingress_url}/restate/invocation/{invocation_id}/attach");
    reply(client().get(url)).await
}

/// Resolves an awakeable with a value.
pub(crate) async fn resolve_awakeable(ingress_url: &str, id: &str, value: &Value) {
    let url = format!("{ingress_url}/restate/awakeables/{id}/resolve");
    let Reply { status, body } = reply(client().post(url).json(value)).await;
    assert!(status < 300, "{id}: {status} {body}");
}

fn with_input(request: RequestBuilder, input: &Value) -> RequestBuilder {
    match input {
        // A content type without a body is refused with 400.
        Value::Null => request,
        input => request.json(input),
    }
}

async fn reply(request: RequestBuilder) -> Reply {
    let response = request.timeout(CALL_LIMIT).send().await.expect("the ingress answers");
    Reply {
        status: response.status().as_u16(),
        body: response.text().await.expect("the answer can be read"),
    }
}

/// A client that ignores the proxies of the environment. It is made for each request: a connection
/// belongs to the runtime of the test that opened it.
pub(crate) fn client() -> Client {
    Client::builder().no_proxy().build().expect("a client can be built")
}
