//! The vendors' own clients, unchanged, against a server of agents.

use std::env;
use std::process::Stdio;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Response;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::process::Command;
use turnstream::Agent;
use turnstream::provider::{Reply, Scripted};
use turnstream_server::AgentServer;

use crate::server::{Served, searching_agent};
use crate::wires::doubling_agent;

/// The agents of the clients' cases.
fn router() -> Router {
    let city = Scripted::from_fn(|_, _| Reply::text(r#"{"name":"Malmö"}"#));
    AgentServer::new()
        .with_model("search", searching_agent())
        .with_model("double", doubling_agent())
        .with_model("city", Agent::new(city))
        .router()
}

/// The answer that a client must have received.
fn expected(run: &Value) -> (Value, &'static [&'static str]) {
    let stop: &[&str] = &["stop", "end_turn", "completed", "STOP"];
    match (run["case"].as_str().unwrap(), run["model"].as_str().unwrap()) {
        ("count", _) => (json!(true), &["counted"]),
        ("unknown model", _) => match run["client"] == "anthropic (Python)" {
            true => (json!("not_found_error"), &["refused"]),
            false => (json!("model"), &["refused"]),
        },
        ("models", _) => {
            let prefix = if run["client"] == "google-genai (Python)" { "models/" } else { "" };
            (json!(["city", "double", "search"].map(|name| format!("{prefix}{name}"))), &["listed"])
        }
        (_, "search") => (json!("Let me look.\n\nIt is five."), stop),
        (_, "double") => (json!("It is 42."), stop),
        (_, _) => (json!("Malmö"), stop),
    }
}

/// Returns why a run has failed.
fn complaint(run: &Value) -> Option<String> {
    let (text, ends) = expected(run);
    let is_right = run["answer"][0] == text
        && run["answer"][1].as_str().is_some_and(|end| ends.contains(&end));
    (!is_right).then(|| run.to_string())
}

/// Runs all cases of a language against the servers.
async fn runs(program: &str, script: &str, urls: &[String]) -> Vec<Value> {
    let output = Command::new(program)
        .arg(script)
        .args(urls)
        .env("NO_PROXY", "127.0.0.1")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{script} failed");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn runs_of_all_clients(urls: &[String]) -> Vec<Value> {
    let variable = |name| env::var(name).expect("set by run.sh");
    let folder = variable("TURNSTREAM_SERVER_CLIENTS");
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients.py");
    let mut all = runs(&variable("TURNSTREAM_PYTHON"), python, urls).await;
    all.extend(runs(&variable("TURNSTREAM_NODE"), &format!("{folder}/clients.mjs"), urls).await);
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the vendors' clients: crates/server/tests/run.sh"]
async fn unchanged_clients_of_all_vendors_read_the_answers() {
    let served = Served::router(router()).await;
    let runs = runs_of_all_clients(&[served.url("")]).await;
    let complaints: Vec<String> = runs.iter().filter_map(complaint).collect();
    println!("clients: {} runs, {} rejected", runs.len(), complaints.len());
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert_eq!(runs.len(), 47);
}

/// Changes of a response's bytes, which at least one client must notice.
const MUTATIONS: [(&str, &str); 12] = [
    // Chat Completions.
    (r#""object":"chat.completion.chunk""#, r#""object":"text_completion","choices":[],"was":0"#),
    (r#""finish_reason":"stop""#, r#""finish_reason":null"#),
    (r#""tool_calls":[{"index":0,"#, r#""tool_calls":[{"#),
    (r#""delta":{"content""#, r#""delta":{"text""#),
    // Responses.
    ("response.created", "response.creating"),
    ("response.content_part.added", "response.part.added"),
    ("response.completed", "response.done"),
    // Messages.
    ("message_start", "message_begin"),
    ("content_block_start", "content_block_begin"),
    (r#""stop_reason":"end_turn""#, r#""stop_reason":null"#),
    // Gemini.
    (r#""candidates""#, r#""candidate""#),
    // Ollama.
    (r#""content":"Let me "#, r#""content":"Let "#),
];

/// Serves the same agents, but replaces a text in all responses.
fn mutated_router((from, to): (&'static str, &'static str)) -> Router {
    router().layer(axum::middleware::map_response(move |response: Response<Body>| async move {
        let (mut parts, body) = response.into_parts();
        parts.headers.remove("content-length");
        let replace = move |bytes: Result<Bytes, axum::Error>| {
            bytes.map(|bytes| String::from_utf8_lossy(&bytes).replace(from, to))
        };
        Response::from_parts(parts, Body::from_stream(body.into_data_stream().map(replace)))
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the vendors' clients: crates/server/tests/run.sh"]
async fn each_change_of_the_bytes_is_noticed_by_a_client() {
    let mut urls = Vec::new();
    for mutation in MUTATIONS {
        urls.push(Served::router(mutated_router(mutation)).await.url(""));
    }
    let runs = runs_of_all_clients(&urls).await;
    let mut noticed = vec![0; MUTATIONS.len()];
    for run in &runs {
        let server = usize::try_from(run["server"].as_u64().unwrap()).unwrap();
        noticed[server] += usize::from(complaint(run).is_some());
    }
    println!("mutations: {noticed:?} of {} runs each noticed them", runs.len() / MUTATIONS.len());
    for (count, mutation) in noticed.iter().zip(MUTATIONS) {
        assert!(*count > 0, "nobody notices {mutation:?}");
    }
}
