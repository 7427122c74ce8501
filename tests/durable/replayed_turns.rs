//! Turns of each wire, which a later attempt replays.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use turnstream::Agent;
use turnstream::durable::Attempt;
use turnstream::event::EndReason;
use turnstream::provider::{Provider, Reply};
use turnstream::tool::Tool;
use turnstream_testing::Wire;
use turnstream_testing::durable_suite::MemoryEngine;

use turnstream_test_support::models::{ChunkedProvider, WireProvider};
use turnstream_test_support::tools::spec;
use turnstream_test_support::wires::sse_body;

/// Checks that a second attempt arrives at the outcome of the first, without another request and
/// without another call of the tool.
async fn check_second_attempt(name: &str, model: impl Provider + 'static) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let look = Tool::raw(spec("look"), move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { "found" }
    });
    let agent = Agent::new(model).with_tool(look.unwrap());
    let mut engine = MemoryEngine::new();
    let attempt = || Attempt::run(&agent, "s", Vec::new(), "Look.");
    let outcome = attempt().drive(&mut engine).await.unwrap();
    assert_eq!(outcome.reason, EndReason::Completed, "{name}: {:?}", outcome.error);
    assert_eq!(calls.load(Ordering::Relaxed), 1, "{name}");
    let again = attempt().drive(&mut engine.next_attempt()).await.unwrap();
    assert_eq!(again, outcome, "{name}");
    assert_eq!(calls.load(Ordering::Relaxed), 1, "{name}");
}

#[tokio::test(start_paused = true)]
async fn turns_with_signed_reasoning_and_calls_of_every_wire_are_replayed() {
    for wire in Wire::ALL {
        let has_secrets = wire != Wire::Ollama;
        let thought = Reply::new().think("I should look.");
        let thought = if has_secrets { thought.sign("U0VDUkVU") } else { thought };
        let hidden = if has_secrets { Reply::new().think_hidden("SElEREVO") } else { Reply::new() };
        let replies = [
            thought.say("Let me look.").call_raw("c1", "look", r#"{"x":1e2}"#),
            hidden.say("It is there."),
        ];
        check_second_attempt(&wire.to_string(), WireProvider::new(wire, "m", replies)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_with_commentary_and_a_call_is_replayed() {
    let message = |id: &str, phase: &str, text: &str| {
        json!({ "type": "message", "id": id, "role": "assistant", "phase": phase,
            "content": [{ "type": "output_text", "text": text, "annotations": [] }] })
    };
    let body = |output: &[Value]| {
        let done = |(at, item): (usize, &Value)| json!({ "type": "response.output_item.done", "output_index": at, "item": item });
        let mut events: Vec<Value> = output.iter().enumerate().map(done).collect();
        let response = json!({ "id": "r", "status": "completed", "output": output });
        events.push(json!({ "type": "response.completed", "response": response }));
        let events: Vec<String> = events.iter().map(Value::to_string).collect();
        vec![sse_body(&events)]
    };
    let turns = vec![
        body(&[
            json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SElEREVO" }),
            json!({ "type": "web_search_call", "id": "ws_1", "status": "completed" }),
            message("msg_1", "commentary", "Let me see."),
            json!({ "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look",
                "arguments": "{}", "status": "completed" }),
        ]),
        body(&[message("msg_2", "commentary", "So. "), message("msg_3", "final_answer", "Done.")]),
    ];
    let model = ChunkedProvider::new(turns, Wire::OpenAiResponses);
    check_second_attempt("commentary", model).await;
}
