//! The admin API of a server.

use super::ingress::client;
use super::wait::wait_for;
use reqwest::Response;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const REGISTER_LIMIT: Duration = Duration::from_secs(30);

/// Registers the worker at `worker_url`, and returns the id of its deployment.
///
/// Repeats the request until the worker can be reached and the server accepts it. Panics with the
/// server's last answer if that takes longer than 30 seconds. A URL that is already registered
/// keeps the handlers of its first registration.
pub(crate) async fn register(admin_url: &str, worker_url: &str) -> String {
    register_with(admin_url, worker_url, false).await
}

/// Like [`register`], and replaces what an earlier worker of this URL has registered.
pub(crate) async fn register_overwriting(admin_url: &str, worker_url: &str) -> String {
    register_with(admin_url, worker_url, true).await
}

async fn register_with(admin_url: &str, worker_url: &str, force: bool) -> String {
    let url = format!("{admin_url}/deployments");
    let body = json!({ "uri": worker_url, "use_http_11": false, "force": force });
    let description = format!("the worker at {worker_url} is registered");
    wait_for(&description, REGISTER_LIMIT, async || {
        let response =
            client().post(&url).json(&body).send().await.map_err(|e| format!("{e:?}"))?;
        let status = response.status();
        let answer = response.text().await.unwrap_or_default();
        if !status.is_success() {
            return Err(format!("{status} {answer}"));
        }
        let deployment: Value = serde_json::from_str(&answer).expect("a deployment is JSON");
        Ok(deployment["id"].as_str().expect("a deployment has an id").to_owned())
    })
    .await
}

/// Waits until the server knows the deployment. The nodes of a cluster receive each other's
/// registrations with a delay, and until then their ingress answers 404.
pub(super) async fn wait_for_deployment(admin_url: &str, deployment: &str) {
    let url = format!("{admin_url}/deployments/{deployment}");
    wait_for(&format!("{admin_url} knows {deployment}"), REGISTER_LIMIT, async || {
        let response = client().get(&url).send().await;
        response.and_then(Response::error_for_status).map(drop).map_err(|e| format!("{e:?}"))
    })
    .await;
}

/// Requests that the invocation is cancelled.
pub(crate) async fn cancel(admin_url: &str, invocation_id: &str) {
    change(admin_url, invocation_id, "cancel").await;
}

/// Ends the invocation, and with it its child invocations.
pub(crate) async fn kill(admin_url: &str, invocation_id: &str) {
    change(admin_url, invocation_id, "kill").await;
}

/// Resumes a paused invocation, or immediately retries one that waits for its next attempt.
pub(crate) async fn resume(admin_url: &str, invocation_id: &str) {
    change(admin_url, invocation_id, "resume").await;
}

async fn change(admin_url: &str, invocation_id: &str, change: &str) {
    let url = format!("{admin_url}/invocations/{invocation_id}/{change}");
    let response = client().patch(url).send().await.expect("the admin API answers");
    let status = response.status();
    assert!(
        status.is_success(),
        "{change} {invocation_id}: {status} {}",
        response.text().await.unwrap_or_default()
    );
}

/// The rows of a SQL query, each an object with the column names as keys.
///
/// The tables are in Restate's "SQL introspection" reference, `sys_invocation` above all.
pub(crate) async fn query(admin_url: &str, sql: &str) -> Vec<Value> {
    try_query(admin_url, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

pub(super) async fn try_query(admin_url: &str, sql: &str) -> Result<Vec<Value>, String> {
    let response = client()
        .post(format!("{admin_url}/query"))
        .header("accept", "application/json")
        .json(&json!({ "query": sql }))
        .send()
        .await
        .map_err(|error| format!("{error:?}"))?;
    let status = response.status();
    let body = response.text().await.map_err(|error| format!("{error:?}"))?;
    let mut answer: Value = serde_json::from_str(&body).unwrap_or_default();
    match answer.get_mut("rows").map(Value::take) {
        Some(Value::Array(rows)) => Ok(rows),
        _ => Err(format!("{status} {body}")),
    }
}

/// The row of an invocation in `sys_invocation`, if the server knows it.
pub(crate) async fn invocation(admin_url: &str, invocation_id: &str) -> Option<Value> {
    let sql = format!("SELECT * FROM sys_invocation WHERE id = '{invocation_id}'");
    query(admin_url, &sql).await.pop()
}

/// The reasons why attempts of the invocation failed, oldest first, as `<Restate's code>
/// <message>`. Consecutive equal failures are one entry.
///
/// The row in `sys_invocation` has the last failure only until the next attempt starts, and none
/// once the invocation is paused; these are from `sys_journal_events`.
pub(crate) async fn failures(admin_url: &str, invocation_id: &str) -> Vec<String> {
    let sql = format!(
        "SELECT event_json FROM sys_journal_events WHERE id = '{invocation_id}' \
         ORDER BY appended_at"
    );
    let events = query(admin_url, &sql).await;
    events.iter().filter_map(|row| failure(row["event_json"].as_str()?)).collect()
}

fn failure(event: &str) -> Option<String> {
    let event: Value = serde_json::from_str(event).ok()?;
    let failure = match event["ty"].as_str()? {
        "TransientError" => &event,
        "Paused" => &event["last_failure"],
        _ => return None,
    };
    let code = failure["restate_doc_error_code"].as_str().unwrap_or("-");
    Some(format!("{code} {}", failure["error_message"].as_str()?))
}

/// The number of invocations in each status, across all services.
pub(crate) async fn count_by_status(admin_url: &str) -> BTreeMap<String, u64> {
    let sql = "SELECT status, COUNT(*) AS count FROM sys_invocation GROUP BY status";
    query(admin_url, sql)
        .await
        .into_iter()
        .filter_map(|row| Some((row["status"].as_str()?.to_owned(), row["count"].as_u64()?)))
        .collect()
}
