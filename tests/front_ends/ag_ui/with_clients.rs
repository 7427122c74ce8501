//! Streams as the AG-UI client reads them.

use serde_json::{Value, json};

use super::grammar;
use super::projection::{expected, found};
use super::streams::{body_of, first_request};
use crate::clients::Clients;
use crate::mutations::{Mutation, Table};
use turnstream_testing::conversations::conversations;

/// The client's input for pending calls: verdicts, and results of its own tools.
fn next_input(read: &Value, run: usize) -> Value {
    let interrupts = &read["interrupts"];
    let mut messages = read["messages"].clone();
    for id in read["finished"]["pendingToolCallIds"].as_array().into_iter().flatten() {
        let message = json!({ "id": "own", "role": "tool", "toolCallId": id, "content": "yes" });
        messages.as_array_mut().unwrap().push(message);
    }
    let answer = |it: &Value| json!({ "interruptId": it["id"], "status": "resolved", "payload": { "approved": true } });
    let resume: Vec<Value> = interrupts.as_array().into_iter().flatten().map(answer).collect();
    let mut input = json!({
        "threadId": "c", "runId": format!("r{run}"), "messages": messages, "interrupts": interrupts,
    });
    if !resume.is_empty() {
        input["resume"] = resume.into();
    }
    input
}

#[tokio::test(start_paused = true)]
#[ignore = "needs Node and npm packages: tests/front_ends/run.sh"]
async fn the_messages_of_the_client_match_the_history_of_the_events() {
    let mut clients = Clients::start();
    let (mut count, mut rejected) = (0, Vec::new());
    for conversation in conversations().await {
        let last = conversation.runs.last().unwrap().len();
        for length in 0..=last {
            let mut runs = conversation.runs.clone();
            runs.last_mut().unwrap().truncate(length);
            let name = format!("{}, {length} events", conversation.name);
            // The client has the result of its own tool before the run has it.
            if length == 0 && conversation.name == "a client's tool" {
                continue;
            }
            let mut input = first_request();
            let mut messages = Value::Null;
            for (at, run) in runs.iter().enumerate() {
                let post = json!({ "do": "post", "client": "ag_ui", "input": input });
                let posted = clients.ask(post);
                assert_eq!(posted["type"], "application/json", "{name}: {posted}");
                let posted: Value = serde_json::from_str(posted["body"].as_str().unwrap()).unwrap();
                let body = body_of(run.clone(), &posted).await;
                let read = json!({ "do": "read", "client": "ag_ui", "input": input, "body": body });
                let read = clients.ask(read);
                let is_told = body.contains("data: {\"type\":\"RUN_ERROR\"");
                if read["ok"] != json!(!is_told) {
                    rejected.push(format!("{name}: {}\n{body}", read["error"]));
                }
                messages = read["messages"].clone();
                input = next_input(&read, at + 2);
                count += 1;
            }
            if found(&messages) != expected(&conversation.start, &runs) {
                let (found, expected) = (found(&messages), expected(&conversation.start, &runs));
                rejected.push(format!("{name}: {found:?}\nis not\n{expected:?}"));
            }
        }
    }
    println!("streams read by @ag-ui/client: {count}; rejected: {}", rejected.len());
    rejected.truncate(5);
    assert!(rejected.is_empty(), "{}", rejected.join("\n\n"));
}

/// Mutations of a stream with reasoning, text, calls and results, each of which must be detected.
fn mutations() -> Vec<Mutation> {
    let mutation = |name, change| Mutation { name, change };
    vec![
        mutation("no end", |body| without(body, "RUN_FINISHED")),
        mutation("no start", |body| without(body, "RUN_STARTED")),
        mutation("cut inside an event", |body| body[..body.len() - 60].to_owned()),
        mutation("[DONE]", |body| format!("{body}data: [DONE]\n\n")),
        mutation("CRLF", |body| body.replace('\n', "\r\n")),
        mutation("null for a field that may be absent", |body| {
            body.replacen("\"outcome\":{\"type\":\"success\"}", "\"outcome\":null", 1)
        }),
        mutation("a number for an id", |body| {
            body.replacen("\"toolCallId\":\"call_1_1\"", "\"toolCallId\":11", 1)
        }),
        mutation("an event that is not known", |body| {
            body.replacen("STEP_STARTED", "STEP_BEGUN", 1)
        }),
        mutation("reasoning without its role", |body| {
            body.replacen(",\"role\":\"reasoning\"", "", 1)
        }),
        mutation("words without their start", |body| without(body, "TEXT_MESSAGE_START")),
        mutation("words without their end", |body| without(body, "TEXT_MESSAGE_END")),
        mutation("a call without its end", |body| without(body, "TOOL_CALL_END")),
        mutation("a step that is not finished", |body| without(body, "STEP_FINISHED")),
        mutation("an event after the end", |body| {
            format!("{body}data: {{\"type\":\"CUSTOM\",\"name\":\"late\",\"value\":1}}\n\n")
        }),
        mutation("no interrupts in an interrupt", |body| {
            let empty = "\"outcome\":{\"type\":\"interrupt\",\"interrupts\":[]}";
            body.replacen("\"outcome\":{\"type\":\"success\"}", empty, 1)
        }),
    ]
}

/// The body without the first event of this type.
fn without(body: &str, kind: &str) -> String {
    let start = format!("data: {{\"type\":\"{kind}\"");
    let mut is_found = false;
    let is_kept = |frame: &&str| {
        is_found || {
            is_found = frame.starts_with(&start);
            !is_found
        }
    };
    body.split("\n\n").filter(is_kept).collect::<Vec<_>>().join("\n\n")
}

#[tokio::test(start_paused = true)]
#[ignore = "needs Node and npm packages: tests/front_ends/run.sh"]
async fn every_damaged_stream_is_detected_by_the_client_or_the_grammar() {
    let mut clients = Clients::start();
    let mut table = Table::default();
    let all = conversations().await;
    let conversation = all.into_iter().find(|it| it.name == "reasoning and one tool").unwrap();
    let body = body_of(conversation.runs[0].clone(), &first_request()).await;
    assert_eq!(grammar::check(&body), Ok(()));
    for Mutation { name, change } in mutations() {
        let damaged = change(&body);
        assert_ne!(damaged, body, "{name} changes nothing");
        let input = first_request();
        let read = json!({ "do": "read", "client": "ag_ui", "input": input, "body": damaged });
        let is_seen = clients.ask(read)["ok"] == json!(false);
        let seen_by: &[&str] = if is_seen { &["ag_ui"] } else { &[] };
        table.add(name, seen_by, grammar::check(&damaged).is_err());
    }
    table.check();
}
