//! Every kind of run, encoded as a UI message stream.

use std::collections::{HashMap, HashSet};

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use turnstream::event::EndReason;
use turnstream::item::PendingCall;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{MemoryStore, PersistExt, Session};
use turnstream::tool::{Tool, Verdict};
use turnstream::ui::ErrorTexts;
use turnstream::ui::ai_sdk::{AiSdk, Version};
use turnstream::{Agent, History, Outcome};

use super::grammar;
use super::projection::{expected_steps, steps_of_message};
use crate::{body_text, run_with_a_retried_turn, runs_that_end_inside_a_call};
use turnstream_test_support::runs::limits_with_max_turns;
use turnstream_test_support::tools::spec;
use turnstream_testing::conversations::{
    Conversation, Events, agent_of_conversations, conversations,
};

pub(super) const VERSIONS: [Version; 3] = [Version::V5, Version::V6, Version::V7];

/// The response body for a run.
pub(super) async fn body_of(run: Events, version: Version, continues: bool) -> String {
    let stream = AiSdk::new(version).with_error_texts(ErrorTexts::shown());
    let stream = match continues {
        true => stream.continue_message("c:1"),
        false => stream.with_message_id("c:1"),
    };
    body_text(stream.respond(stream::iter(run))).await
}

fn known_calls(runs: &[Events]) -> Vec<String> {
    let turns =
        runs.iter().flatten().filter_map(|event| event.as_ref().ok()?.turn_complete().cloned());
    turns
        .flat_map(|turn| turn.tool_calls().map(|call| call.call_id.clone()).collect::<Vec<_>>())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn every_run_encodes_to_a_valid_stream() {
    let mut count = 0;
    for conversation in conversations().await {
        for version in VERSIONS {
            let last = conversation.runs.len() - 1;
            for (at, run) in conversation.runs.iter().enumerate() {
                // A continued run, truncated after each of its events.
                let lengths = if at == last { 0..=run.len() } else { run.len()..=run.len() };
                for length in lengths {
                    let cut = run[..length].to_vec();
                    let body = body_of(cut, version, at > 0).await;
                    let known = known_calls(&conversation.runs[..at]);
                    if let Err(why) = grammar::check(&body, version, &known) {
                        let name = conversation.name;
                        panic!("{name}, run {at} of {length} events, {version:?}: {why}\n{body}");
                    }
                    count += 1;
                }
            }
        }
    }
    println!("{count} streams are valid");
    assert!(count > 500);
}

/// The session that these runs have written.
async fn session_of(conversation: &Conversation) -> Session {
    let session = Session::open(MemoryStore::new(), "c").await.unwrap();
    for run in &conversation.runs {
        let _ = stream::iter(run.clone()).persist_to(&session).collect::<Vec<_>>().await;
    }
    session
}

#[tokio::test(start_paused = true)]
async fn stored_messages_have_the_steps_of_the_streams() {
    let mut count = 0;
    for conversation in conversations().await {
        let session = session_of(&conversation).await;
        for version in VERSIONS {
            let sdk = AiSdk::new(version).with_error_texts(ErrorTexts::shown());
            let messages = sdk.load_messages(&session, &agent_of_conversations()).await.unwrap();
            let of_assistant = messages.iter().filter(|message| message["role"] == "assistant");
            let steps: Vec<Value> = of_assistant.flat_map(steps_of_message).collect();
            let expected = expected_steps(&conversation.start, &conversation.runs, version);
            assert_eq!(steps, expected, "{}, {version:?}", conversation.name);
            let ids: HashSet<_> =
                messages.iter().map(|message| message["id"].to_string()).collect();
            assert_eq!(ids.len(), messages.len(), "{messages:?}");
            count += messages.len();
        }
    }
    assert!(count > 100);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_stream_still_encodes_validly() {
    let all = conversations().await;
    let conversation = all.into_iter().find(|it| it.name == "one tool").unwrap();
    for version in VERSIONS {
        for length in 0..conversation.runs[0].len() {
            let events = conversation.runs[0][..length].to_vec();
            let panics = stream::once(async { panic!("the stream is broken") });
            let response = AiSdk::new(version).respond(stream::iter(events).chain(panics));
            let body = body_text(response).await;
            assert_eq!(grammar::check(&body, version, &[]), Ok(()), "{length}: {body}");
            assert!(body.contains("\"type\":\"error\"") && !body.contains("broken"), "{body}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_inside_a_call_closes_everything_that_it_opened() {
    for run in runs_that_end_inside_a_call().await {
        for version in VERSIONS {
            let body = body_of(run.clone(), version, false).await;
            assert_eq!(grammar::check(&body, version, &[]), Ok(()), "{body}");
            for kind in ["text", "reasoning"] {
                let count = |end: &str| body.matches(&format!("\"type\":\"{kind}-{end}\"")).count();
                assert!(count("start") > 0, "{body}");
                assert_eq!(count("start"), count("end"), "{kind}: {body}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_text_of_a_retried_turn_is_reset_or_marked_as_retracted() {
    let run = run_with_a_retried_turn().await;
    for version in VERSIONS {
        let body = body_of(run.clone(), version, false).await;
        assert_eq!(grammar::check(&body, version, &[]), Ok(()), "{body}");
        let is_reset = body.contains("\"type\":\"reset-step\"");
        let is_marked = body.contains("\"type\":\"data-retracted\"");
        assert_eq!(
            (is_reset, is_marked),
            (version == Version::V7, version < Version::V7),
            "{body}"
        );
    }
}

/// Returns whether the client sends a request on its own after these responses, which belong to one
/// message, once the calls in `answered` have results: the message's last step has calls, and each
/// of them has a result. This is `lastAssistantMessageIsCompleteWithToolCalls` in the AI SDK.
fn sends_request(bodies: &[String], answered: &[PendingCall]) -> bool {
    let mut has_result: HashMap<String, bool> = HashMap::new();
    for chunk in bodies.iter().flat_map(|body| grammar::chunks(body).unwrap()) {
        let call_id = || chunk["toolCallId"].as_str().unwrap().to_owned();
        match chunk["type"].as_str().unwrap() {
            "start-step" | "reset-step" => has_result.clear(),
            "tool-input-start" | "tool-input-available" => {
                has_result.insert(call_id(), false);
            }
            "tool-input-error"
            | "tool-output-available"
            | "tool-output-denied"
            | "tool-output-error" => {
                has_result.entry(call_id()).and_modify(|it| *it = true);
            }
            _ => {}
        }
    }
    for call in answered {
        has_result
            .entry(call.path.first().unwrap_or(&call.call_id).clone())
            .and_modify(|it| *it = true);
    }
    !has_result.is_empty() && has_result.into_values().all(|it| it)
}

/// Runs that end with the results of calls: at a limit, and resumed and then stopped.
async fn runs_that_end_with_results() -> [Conversation; 2] {
    let read = Tool::raw(spec("read"), |_, _| async { "four lines" }).unwrap();
    let delete = Tool::raw(spec("delete"), |_, _| async { "deleted" }).unwrap();
    let tools = [read, delete.requires_approval()];
    let agent_calling = |name| {
        let agent = Agent::new(Scripted::new([Reply::new().call(name, json!({}))]));
        agent.with_tools(tools.clone()).with_limits(limits_with_max_turns(1))
    };
    let at_limit: Events = agent_calling("read").run("Go").collect().await;
    let agent = agent_calling("delete");
    let first: Events = agent.run("Go").collect().await;
    let outcome = outcome_of(&first).unwrap();
    let verdicts = outcome.pending.iter().map(|call| (call.clone(), Verdict::Approve));
    let resumed = agent.resume(outcome.history.clone(), verdicts).unwrap();
    resumed.stop_after_turn();
    let runs = vec![first, resumed.collect().await];
    let start = || History::empty("c");
    [
        Conversation { name: "calls at a limit", runs: vec![at_limit], start: start() },
        Conversation { name: "an approved call, then a stop", runs, start: start() },
    ]
}

fn outcome_of(run: &Events) -> Option<&Outcome> {
    run.iter().find_map(|event| event.as_ref().ok()?.outcome())
}

#[tokio::test(start_paused = true)]
async fn a_client_sends_further_requests_on_its_own_only_after_answering_pending_calls() {
    let (mut ended, mut pending) = (0, 0);
    for conversation in conversations().await.into_iter().chain(runs_that_end_with_results().await)
    {
        for version in VERSIONS {
            let mut bodies = Vec::new();
            for (at, run) in conversation.runs.iter().enumerate() {
                bodies.push(body_of(run.clone(), version, at > 0).await);
                // A client sends nothing on its own after an error.
                let Some(outcome) = outcome_of(run).filter(|it| it.error.is_none()) else {
                    continue;
                };
                let (name, calls) = (conversation.name, &outcome.pending);
                assert!(!sends_request(&bodies, &[]), "{name}, {version:?}: {bodies:#?}");
                let is_pending = outcome.reason == EndReason::Pending;
                let sends = sends_request(&bodies, calls);
                assert_eq!(sends, is_pending, "{name}, {version:?}: {bodies:#?}");
                match is_pending {
                    true => pending += 1,
                    false => ended += 1,
                }
            }
        }
    }
    assert!(ended > 50 && pending > 9, "{ended} ended, {pending} pending");
}
