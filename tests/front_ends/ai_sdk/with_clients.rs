//! Streams as the AI SDK clients themselves read them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use turnstream::ui::ai_sdk::Version;

use super::grammar;
use super::projection::{expected_steps, steps_of_message};
use super::streams::{VERSIONS, body_of};
use crate::clients::Clients;
use crate::mutations::{Mutation, Table};
use turnstream_testing::conversations::{Conversation, Events, conversations};

/// The client releases that read a version's stream: the version's first release, which is the
/// strictest, and the newest releases of this and later versions.
fn readers(version: Version) -> &'static [&'static str] {
    match version {
        Version::V5 => &["ai5_0_0", "ai5", "ai6", "ai7"],
        Version::V7 => &["ai7"],
        _ => &["ai6_0_0", "ai6", "ai7"],
    }
}

/// Whether the client shows a repeated call in another place: the first releases search the whole
/// message for the call, and show it in the retracted step.
fn shows_elsewhere(client: &str, conversation: &Conversation) -> bool {
    client.ends_with("_0_0") && conversation.name == "a call taken back"
}

/// Updates a message as an app does when its user has answered.
fn answer_calls(message: &mut Value) {
    for part in message["parts"].as_array_mut().unwrap() {
        if part["state"] == "approval-requested" {
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(true);
        }
    }
}

/// Returns the client's final message, and whether the client has reported an error.
fn read_all(
    clients: &mut Clients,
    client: &str,
    bodies: &[String],
) -> Result<(Value, bool), String> {
    let mut message: Option<Value> = None;
    let mut has_failed = false;
    for body in bodies {
        let answer = clients.read(client, body, message.as_ref());
        has_failed = body.contains("data: {\"type\":\"error\"");
        let is_told = answer["ok"] == json!(false) && has_failed;
        if answer["ok"] != json!(true) && !is_told {
            return Err(format!("{}\n{body}", answer["error"]));
        }
        let mut read = answer["message"].clone();
        answer_calls(&mut read);
        message = Some(read);
    }
    Ok((message.unwrap(), has_failed))
}

async fn bodies_of(runs: &[Events], version: Version) -> Vec<String> {
    let mut bodies = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        bodies.push(body_of(run.clone(), version, at > 0).await);
    }
    bodies
}

/// The conversation truncated after each event of its last run.
fn cuts(conversation: &Conversation) -> impl Iterator<Item = Vec<Events>> {
    let length = conversation.runs.last().unwrap().len();
    (0..=length).map(|count| {
        let mut runs = conversation.runs.clone();
        runs.last_mut().unwrap().truncate(count);
        runs
    })
}

#[tokio::test(start_paused = true)]
#[ignore = "needs Node and npm packages: tests/front_ends/run.sh"]
async fn the_messages_of_clients_match_the_history_of_the_events() {
    let mut clients = Clients::start();
    let (mut counts, mut rejected) = (BTreeMap::new(), Vec::new());
    for conversation in conversations().await {
        for version in VERSIONS {
            for runs in cuts(&conversation) {
                let bodies = bodies_of(&runs, version).await;
                let mut expected = expected_steps(&conversation.start, &runs, version);
                let length = runs.last().unwrap().len();
                for &client in readers(version) {
                    let name = format!(
                        "{}, {length} events, {version:?} read by {client}",
                        conversation.name
                    );
                    match read_all(&mut clients, client, &bodies) {
                        Ok((message, _)) => {
                            for step in
                                expected.iter_mut().flat_map(|it| it.as_array_mut().unwrap())
                            {
                                if step["state"] == "approval-requested" {
                                    step["state"] = json!("approval-responded");
                                }
                            }
                            let found = steps_of_message(&message);
                            if found != expected && !shows_elsewhere(client, &conversation) {
                                rejected.push(format!(
                                    "{name}: {found:?} is not {expected:?}\n{bodies:?}"
                                ));
                                continue;
                            }
                            let id = &message["id"];
                            assert!(length == 0 || id == "c:1", "{name}: the id is {id}");
                            *counts.entry(client).or_insert(0) += bodies.len();
                        }
                        Err(why) => rejected.push(format!("{name}: {why}")),
                    }
                }
            }
        }
    }
    println!("streams read: {counts:?}; rejected: {}", rejected.len());
    rejected.truncate(5);
    assert!(rejected.is_empty(), "{}", rejected.join("\n\n"));
}

/// Mutations of a stream with text, calls and results, each of which must be detected.
fn mutations() -> Vec<Mutation> {
    let mutation = |name, change| Mutation { name, change };
    vec![
        mutation("no finish", |body| without_frame(body, "\"type\":\"finish\"")),
        mutation("no [DONE]", |body| without_frame(body, "[DONE]")),
        mutation("no start", |body| without_frame(body, "\"type\":\"start\"")),
        mutation("cut inside a frame", |body| body[..body.len() - 60].to_owned()),
        mutation("null for a field that may be absent", |body| {
            body.replacen("\"messageId\":\"c:1\"", "\"messageId\":null", 1)
        }),
        mutation("a number for an id", |body| body.replacen("\"id\":\"t1.0\"", "\"id\":10", 1)),
        mutation("a chunk that is not known", |body| body.replacen("text-start", "text-begin", 1)),
        mutation("a field that is not known", |body| {
            body.replacen("\"type\":\"start-step\"", "\"type\":\"start-step\",\"turn\":1", 1)
        }),
        mutation("a required field is missing", |body| {
            body.replacen("\"toolName\":\"read\",", "", 1)
        }),
        mutation("a reason with an underscore", |body| {
            body.replacen("\"finishReason\":\"stop\"", "\"finishReason\":\"tool_calls\"", 1)
        }),
        mutation("text without its start", |body| without_frame(body, "\"type\":\"text-start\"")),
        mutation("text without its end", |body| without_frame(body, "\"type\":\"text-end\"")),
        mutation("a result of a call that was never made", |body| {
            let (head, tail) =
                body.split_once("\"tool-output-available\",\"toolCallId\":\"").unwrap();
            format!("{head}\"tool-output-available\",\"toolCallId\":\"other-{tail}")
        }),
        mutation("a second result", |body| {
            let is_output = |frame: &&str| frame.contains("tool-output-available");
            let frame = body.split("\n\n").find(is_output).unwrap();
            body.replacen(frame, &format!("{frame}\n\n{frame}"), 1)
        }),
        mutation("a step that is not finished", |body| without_frame(body, "finish-step")),
        mutation("words after the finish", |body| {
            let late = "data: {\"type\":\"data-late\",\"data\":1}\n\ndata: [DONE]";
            body.replacen("data: [DONE]", late, 1)
        }),
        mutation("CRLF", |body| body.replace('\n', "\r\n")),
    ]
}

/// The body without the first frame that contains this text.
fn without_frame(body: &str, content: &str) -> String {
    let mut is_found = false;
    let is_kept = |frame: &&str| {
        is_found || {
            is_found = frame.contains(content);
            !is_found
        }
    };
    body.split("\n\n").filter(is_kept).collect::<Vec<_>>().join("\n\n")
}

#[tokio::test(start_paused = true)]
#[ignore = "needs Node and npm packages: tests/front_ends/run.sh"]
async fn every_damaged_stream_is_detected_by_a_client_or_the_grammar() {
    let mut clients = Clients::start();
    let mut table = Table::default();
    let all = conversations().await;
    let conversation = all.into_iter().find(|it| it.name == "one tool").unwrap();
    let body = body_of(conversation.runs[0].clone(), Version::V6, false).await;
    assert_eq!(grammar::check(&body, Version::V6, &[]), Ok(()));
    for Mutation { name, change } in mutations() {
        let damaged = change(&body);
        assert_ne!(damaged, body, "{name} changes nothing");
        let mut seen_by = Vec::new();
        for &client in readers(Version::V6) {
            if clients.read(client, &damaged, None)["ok"] == json!(false) {
                seen_by.push(client);
            }
        }
        table.add(name, &seen_by, grammar::check(&damaged, Version::V6, &[]).is_err());
    }
    table.check();
}
