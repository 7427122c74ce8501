//! The log probabilities of tokens: requested, and read from the answer.

use turnstream::provider::Decode;
use turnstream::request::Options;
use turnstream::sse::Frame;
use turnstream::turn::{StopReason, TokenLogprob, TopLogprob, TurnBuilder};
use turnstream::world::SavedTurn;
use turnstream::{Turn, TurnEvent};

use super::*;

#[test]
fn log_probabilities_are_requested_on_the_wires_that_have_them() {
    let options = Options { logprobs: Some(2), ..Options::default() };
    let chat = json!({ "logprobs": true, "top_logprobs": 2 });
    let include = ["reasoning.encrypted_content", "message.output_text.logprobs"];
    check(
        &hello().with_options(options),
        "logprobs",
        &[
            (Wire::Chat, chat.clone()),
            (Wire::Responses, json!({ "top_logprobs": 2, "include": include })),
            (
                Wire::Gemini,
                json!({ "generationConfig": { "responseLogprobs": true, "logprobs": 2 } }),
            ),
            (Wire::Ollama, chat),
        ],
    );
}

fn decode(mut decoder: impl Decode, frames: &[Value]) -> std::sync::Arc<Turn> {
    let mut turn = TurnBuilder::new();
    for frame in frames {
        let (event, data) = (frame["type"].as_str().unwrap_or("message"), frame.to_string());
        decoder.frame(Frame::new(event, &data), &mut turn).unwrap();
    }
    decoder.finish(&mut turn).unwrap();
    turn.complete().unwrap();
    let events = std::iter::from_fn(|| turn.next_event());
    let complete = events.into_iter().find_map(|event| match event {
        TurnEvent::TurnComplete { turn } => Some(turn),
        _ => None,
    });
    complete.unwrap()
}

/// The token in the format of OpenAI and Ollama.
fn wire_token(token: &str) -> Value {
    let top = json!([{ "token": token, "logprob": -0.5, "bytes": [1] },
        { "token": "x", "logprob": -2.5, "bytes": null }]);
    json!({ "token": token, "logprob": -0.5, "bytes": [1], "top_logprobs": top })
}

fn token(token: &str) -> TokenLogprob {
    let top = [(token, -0.5), ("x", -2.5)]
        .map(|(token, logprob)| TopLogprob { token: token.to_owned(), logprob });
    TokenLogprob { token: token.to_owned(), logprob: -0.5, top: top.into() }
}

fn chunk(text: &str, finish: Option<&str>) -> Value {
    let logprobs = (!text.is_empty()).then(|| json!({ "content": [wire_token(text)] }));
    json!({ "id": "r", "model": "m", "choices": [{ "index": 0, "delta": { "content": text },
        "logprobs": logprobs, "finish_reason": finish }] })
}

#[test]
fn chat_reports_each_token_also_if_a_chunk_repeats_another() {
    // The same chunk several times in a row is otherwise not parsed again.
    let frames = [chunk("a", None), chunk("a", None), chunk("a", None), chunk("", Some("stop"))];
    let turn = decode(openai_chat::Decoder::new("m", &openai_chat::Dialect::OPENAI), &frames);
    assert_eq!(turn.text(), "aaa");
    assert_eq!(turn.logprobs(), [token("a"), token("a"), token("a")]);
}

#[test]
fn responses_reports_the_tokens_of_the_finished_message_once() {
    let part = json!({ "type": "output_text", "text": "ab", "annotations": [],
        "logprobs": [wire_token("a"), wire_token("b")] });
    let item = json!({ "type": "message", "id": "m", "role": "assistant", "content": [part] });
    let response = json!({ "id": "r", "model": "m", "status": "completed", "output": [item] });
    let frames = [
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
        json!({ "type": "response.completed", "response": response }),
    ];
    let turn = decode(openai_responses::Decoder::new("m"), &frames);
    assert_eq!(turn.logprobs(), [token("a"), token("b")]);
}

#[test]
fn gemini_reports_the_tokens_of_each_chunk() {
    let chunk = |text: &str, finish: Option<&str>| {
        let chosen = json!([{ "token": text, "tokenId": 7, "logProbability": -0.5 }]);
        let top = json!([{ "candidates": [{ "token": text, "logProbability": -0.5 },
            { "token": "x", "logProbability": -2.5 }] }]);
        json!({ "candidates": [{ "content": { "parts": [{ "text": text }] },
            "finishReason": finish,
            "logprobsResult": { "chosenCandidates": chosen, "topCandidates": top } }] })
    };
    let frames = [chunk("a", None), chunk("a", None), chunk("b", Some("STOP"))];
    let turn = decode(gemini::Decoder::new("m"), &frames);
    assert_eq!(turn.text(), "aab");
    assert_eq!(turn.logprobs(), [token("a"), token("a"), token("b")]);
}

#[test]
fn ollama_reports_the_tokens_of_each_line() {
    let line = |text: &str| json!({ "model": "m", "message": { "content": text }, "logprobs": [wire_token(text)] });
    let done = json!({ "model": "m", "message": { "content": "" }, "done": true,
        "done_reason": "stop" });
    let turn = decode(ollama::Decoder::new("m"), &[line("a"), line("a"), line("b"), done]);
    assert_eq!(turn.text(), "aab");
    assert_eq!(turn.logprobs(), [token("a"), token("a"), token("b")]);
}

#[test]
fn log_probabilities_survive_json_and_are_absent_without_a_request_for_them() {
    let frames = [chunk("a", None), chunk("", Some("stop"))];
    let dialect = &openai_chat::Dialect::OPENAI;
    let turn = decode(openai_chat::Decoder::new("m", dialect), &frames);
    let event = TurnEvent::TurnComplete { turn: turn.clone() };
    let json = serde_json::to_string(&event).unwrap();
    assert!(json.contains("\"logprobs\""), "{json}");
    assert_eq!(serde_json::from_str::<TurnEvent>(&json).unwrap(), event);
    let plain = json!({ "id": "r", "model": "m", "choices": [{ "index": 0,
        "delta": { "content": "a" }, "logprobs": null, "finish_reason": "stop" }] });
    let turn = decode(openai_chat::Decoder::new("m", dialect), &[plain]);
    assert!(!serde_json::to_string(&turn).unwrap().contains("logprobs"));
}

#[test]
fn log_probabilities_count_toward_the_size_of_a_turn() {
    let mut turn = TurnBuilder::new();
    let huge = TokenLogprob { token: "x".repeat(65 << 20), ..TokenLogprob::default() };
    turn.push_logprobs(vec![huge]);
    turn.stop(StopReason::Stop, "stop");
    assert_eq!(turn.complete().unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn a_saved_turn_has_no_log_probabilities() {
    let mut turn = TurnBuilder::new();
    turn.push_text(0, "Hi");
    turn.push_logprobs(vec![TokenLogprob { token: "Hi".to_owned(), ..TokenLogprob::default() }]);
    turn.stop(StopReason::Stop, "stop");
    turn.complete().unwrap();
    let mut saved = SavedTurn::default();
    let mut count = 0;
    while let Some(event) = turn.next_event() {
        if let Some(turn) = event.turn_complete() {
            count = turn.logprobs().len();
        }
        saved.observe(&Ok(event));
    }
    assert_eq!(count, 1);
    let json = serde_json::to_string(&saved).unwrap();
    assert!(saved.is_complete() && !json.contains("logprob"), "{json}");
}
