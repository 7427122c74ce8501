//! Cases that apply to every wire, checked on each.

use std::sync::Arc;

use bytes::Bytes;
use futures::executor::block_on;
use futures::stream;
use serde_json::{Value, json};
use turnstream::agent::Limits;
use turnstream::event::EndReason;
use turnstream::item::{Item, ItemKind, StopReason};
use turnstream::provider::Reply;
use turnstream::provider::openai_chat::{Dialect, TurnEnd};
use turnstream::stream::TurnStreamExt;
use turnstream::{Error, ErrorKind, History, Turn, Usage};
use turnstream_testing::{Answer, Fault, Wire};

use turnstream_test_support::items::token_usage;
use turnstream_test_support::models::{ChunkedProvider, WireProvider};
use turnstream_test_support::runs::{limits_with_max_turns, test_agent};
use turnstream_test_support::tools::{Counter, ok_tool};
use turnstream_test_support::wires::{
    decode_in_dialect, encode_and_lint, read_answer, read_frames, sse_body, wire_frame,
};
use turnstream_test_support::world::{self, FinishedRun};

/// Frames as text, from JSON.
fn frame_texts(frames: &[Value]) -> Vec<String> {
    frames.iter().map(Value::to_string).collect()
}

/// Runs an agent with these tools, whose model answers with these frames, turn by turn. Also
/// returns the number of requests.
async fn run_with_frames(
    wire: Wire,
    turns: &[Vec<String>],
    tools: &[&str],
    ran: &Counter,
) -> (FinishedRun, usize) {
    let body = |turn: &Vec<String>| turn.iter().map(|data| wire_frame(wire, data)).collect();
    let model = ChunkedProvider::new(turns.iter().map(body).collect(), wire);
    let asked = Arc::clone(&model.requests);
    let agent = test_agent(model).with_tools(tools.iter().map(|name| ok_tool(name, ran)));
    let finished = world::finish_run(agent.run_from(History::empty("h"), "go")).await;
    let asked = asked.lock().unwrap().len();
    (finished, asked)
}

/// A turn with only text.
fn text_turn(wire: Wire) -> Vec<String> {
    frame_texts(&match wire {
        Wire::Anthropic => vec![
            json!({ "type": "message_start", "message": { "id": "m2" } }),
            json!({ "type": "content_block_start", "index": 0,
                "content_block": { "type": "text", "text": "done" } }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
            json!({ "type": "message_stop" }),
        ],
        Wire::OpenAiChat => {
            vec![
                json!({ "choices": [{ "delta": { "content": "done" }, "finish_reason": "stop" }] }),
            ]
        }
        Wire::OpenAiResponses => vec![
            json!({ "type": "response.output_text.delta", "output_index": 0, "delta": "done" }),
            json!({ "type": "response.completed", "response": { "status": "completed" } }),
        ],
        Wire::Ollama => vec![json!({ "message": { "content": "done" }, "done": true })],
        _ => vec![json!({ "candidates": [{ "content": { "parts": [{ "text": "done" }] },
            "finishReason": "STOP" }] })],
    })
}

/// A turn in which the provider runs `web_search` and answers with the results: the frames, and the
/// number of the provider's own items that are kept. `ours` adds a call of a local tool.
fn hosted_search_turn(wire: Wire, ours: bool) -> (Vec<String>, usize) {
    let mut frames = match wire {
        Wire::Anthropic => vec![
            json!({ "type": "message_start", "message": { "id": "m" } }),
            json!({ "type": "content_block_start", "index": 0, "content_block":
                { "type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {} } }),
            json!({ "type": "content_block_delta", "index": 0,
                "delta": { "type": "input_json_delta", "partial_json": "{\"query\":\"q\"}" } }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "content_block_start", "index": 1, "content_block":
                { "type": "web_search_tool_result", "tool_use_id": "srv1", "content": [] } }),
            json!({ "type": "content_block_stop", "index": 1 }),
        ],
        // Servers that search report it next to the text, in a field that is not a call.
        Wire::OpenAiChat => {
            vec![json!({ "choices": [{ "delta": { "content": "So. ", "executed_tools":
            [{ "index": 0, "type": "function", "name": "web_search", "arguments": "{}" }] } }] })]
        }
        Wire::OpenAiResponses => vec![
            json!({ "type": "response.output_item.done", "output_index": 0, "item": {
                "type": "web_search_call", "id": "srv1", "status": "completed",
                "action": { "type": "search", "query": "q" } } }),
            json!({ "type": "response.output_item.done", "output_index": 1, "item": {
                "type": "mcp_call", "id": "srv2", "name": "web_search", "arguments": "{}",
                "server_label": "s", "output": "found" } }),
        ],
        // This server runs no tools; a field with that name is not a call.
        Wire::Ollama => {
            vec![json!({ "message": { "content": "So. ", "executed_tools":
            [{ "name": "web_search", "arguments": {} }] }, "done": false })]
        }
        _ => vec![json!({ "candidates": [{ "content": { "role": "model", "parts": [
            { "toolCall": { "toolType": "GOOGLE_SEARCH_WEB", "args": {}, "id": "srv1" } },
            { "toolResponse": { "toolType": "GOOGLE_SEARCH_WEB", "response": {}, "id": "srv1" } },
        ] } }] })],
    };
    let own = if matches!(wire, Wire::OpenAiChat | Wire::Ollama) { 0 } else { 2 };
    frames.extend(match (wire, ours) {
        (Wire::Anthropic, true) => vec![
            json!({ "type": "content_block_start", "index": 2, "content_block":
                { "type": "tool_use", "id": "c1", "name": "web_search", "input": {} } }),
            json!({ "type": "content_block_stop", "index": 2 }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } }),
            json!({ "type": "message_stop" }),
        ],
        (Wire::Anthropic, false) => vec![
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
            json!({ "type": "message_stop" }),
        ],
        (Wire::OpenAiChat, true) => vec![json!({ "choices": [{ "delta": { "tool_calls": [
            { "index": 0, "id": "c1", "function": { "name": "web_search", "arguments": "{}" } },
        ] }, "finish_reason": "tool_calls" }] })],
        (Wire::OpenAiChat, false) => {
            vec![json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] })]
        }
        (Wire::OpenAiResponses, ours) => {
            let call = json!({ "type": "response.output_item.done", "output_index": 2, "item": {
                "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "web_search",
                "arguments": "{}", "status": "completed" } });
            let end =
                json!({ "type": "response.completed", "response": { "status": "completed" } });
            if ours { vec![call, end] } else { vec![end] }
        }
        (Wire::Ollama, ours) => {
            let call = json!({ "id": "c1", "function": { "name": "web_search", "arguments": {} } });
            let calls = if ours { vec![call] } else { vec![] };
            vec![json!({ "message": { "tool_calls": calls }, "done": true })]
        }
        (_, ours) => {
            let call = json!({ "functionCall": { "id": "c1", "name": "web_search", "args": {} } });
            let parts = if ours { vec![call] } else { vec![] };
            vec![json!({ "candidates": [{ "content": { "role": "model", "parts": parts },
                "finishReason": "STOP" }] })]
        }
    });
    (frame_texts(&frames), own)
}

mod provider_executed_calls {
    //! Calls that the provider executes are never run or answered locally, on any wire.

    use super::*;

    #[tokio::test]
    async fn provider_executed_calls_never_run_locally_on_any_wire() {
        for wire in Wire::ALL {
            let ran = Counter::default();
            let (turn, own) = hosted_search_turn(wire, false);
            // A local tool has the same name.
            let (finished, asked) =
                run_with_frames(wire, &[turn, text_turn(wire)], &["web_search"], &ran).await;
            let corrected = finished.transitions().len();
            assert_eq!(
                (finished.outcome.reason, asked, corrected),
                (EndReason::Completed, 1, 0),
                "{wire}"
            );
            assert_eq!(
                (ran.started_count(), finished.tool_start_count(), finished.result_kinds()),
                (0, 0, vec![]),
                "{wire}"
            );
            let history = finished.handle.history();
            let kept = history.iter().filter(|item| matches!(item.kind, ItemKind::Other)).count();
            assert_eq!(kept, own, "{wire}");
            assert_eq!(history.settled(), history, "{wire}: settling leaves it alone");
            let sent = encode_and_lint(wire, &history).to_string();
            assert_eq!(sent.contains("srv1"), own > 0, "{wire}: {sent}");
        }
    }

    #[tokio::test]
    async fn only_local_calls_are_run_and_answered_on_any_wire() {
        for wire in Wire::ALL {
            let ran = Counter::default();
            let (turn, own) = hosted_search_turn(wire, true);
            let (finished, asked) =
                run_with_frames(wire, &[turn, text_turn(wire)], &["web_search"], &ran).await;
            assert_eq!(
                (finished.outcome.reason, asked, ran.started_count()),
                (EndReason::Completed, 2, 1),
                "{wire}"
            );
            assert_eq!(finished.result_texts(), ["fine"], "{wire}");
            let history = finished.handle.history();
            assert!(history.is_settled(), "{wire}");
            let sent = encode_and_lint(wire, &history).to_string();
            assert_eq!(sent.contains("srv1"), own > 0, "{wire}: {sent}");
        }
    }

    #[tokio::test]
    async fn a_malformed_provider_call_gets_no_local_error_result() {
        let ran = Counter::default();
        let turn = frame_texts(&[
            json!({ "type": "message_start", "message": { "id": "m" } }),
            json!({ "type": "content_block_start", "index": 0, "content_block":
                { "type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {} } }),
            json!({ "type": "content_block_delta", "index": 0,
                "delta": { "type": "input_json_delta", "partial_json": "{\"query\":" } }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "content_block_start", "index": 1, "content_block": {
                "type": "web_search_tool_result", "tool_use_id": "srv1", "content":
                { "type": "web_search_tool_result_error", "error_code": "invalid_tool_input" } } }),
            json!({ "type": "content_block_stop", "index": 1 }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
            json!({ "type": "message_stop" }),
        ]);
        let (finished, asked) =
            run_with_frames(Wire::Anthropic, &[turn], &["web_search"], &ran).await;
        finished.check_outcome(EndReason::Completed, 1);
        assert_eq!((asked, ran.started_count(), finished.result_kinds()), (1, 0, vec![]));
        encode_and_lint(Wire::Anthropic, &finished.handle.history());
    }

    #[tokio::test]
    async fn the_run_continues_while_a_provider_result_is_deferred() {
        let ran = Counter::default();
        let message = |id: &str, blocks: &[Value], stop: &str| {
            let mut frames = vec![json!({ "type": "message_start", "message": { "id": id } })];
            for (index, block) in blocks.iter().enumerate() {
                frames.push(json!({ "type": "content_block_start", "index": index,
                    "content_block": block }));
                frames.push(json!({ "type": "content_block_stop", "index": index }));
            }
            frames.push(json!({ "type": "message_delta", "delta": { "stop_reason": stop } }));
            frames.push(json!({ "type": "message_stop" }));
            frame_texts(&frames)
        };
        let search = |id: &str| json!({ "type": "server_tool_use", "id": id, "name": "web_search", "input": { "query": "q" } });
        let found = |id: &str| json!({ "type": "web_search_tool_result", "tool_use_id": id, "content": [] });
        let said = json!({ "type": "text", "text": "done" });
        let turns = [
            message("m1", &[search("srv1"), search("srv2")], "pause_turn"),
            message("m2", &[found("srv1")], "pause_turn"),
            message("m3", &[found("srv2"), said], "end_turn"),
        ];
        let (finished, asked) =
            run_with_frames(Wire::Anthropic, &turns, &["web_search"], &ran).await;
        finished.check_outcome(EndReason::Completed, 3);
        assert_eq!(
            (asked, ran.started_count(), finished.result_kinds(), finished.text()),
            (3, 0, vec![], "done")
        );
        let sent = encode_and_lint(Wire::Anthropic, &finished.handle.history()).to_string();
        for id in ["srv1", "srv2"] {
            assert_eq!(sent.matches(id).count(), 2, "both halves of {id} go back: {sent}");
        }
    }
}

mod calls_without_end_marker {
    //! Complete calls of an incomplete turn never run, on any wire.

    use super::*;

    #[tokio::test]
    async fn a_complete_call_without_an_end_marker_never_runs_on_any_wire() {
        for wire in Wire::ALL {
            let ran = Counter::default();
            let calls = || Reply::text("so").call_raw("c1", "t", "{}").call_raw("c2", "t", "{}");
            let broken = || Answer::reply(calls()).with_fault(Fault::NoTerminalMarker);
            // No call runs, neither of the first turn nor of its retry.
            let model = WireProvider::new(wire, "m", [broken(), broken(), Answer::reply("hello")]);
            let agent = test_agent(model.clone()).with_tools([ok_tool("t", &ran)]);
            let asks_again =
                agent.clone().with_limits(Limits { max_turn_retries: 1, ..Limits::default() });
            let first = world::finish_run(asks_again.run("go")).await;
            first.check_outcome(EndReason::Incomplete, 2);
            assert_eq!(
                (ran.started_count(), first.tool_start_count(), first.retracted_usages().len()),
                (0, 0, 1),
                "{wire}"
            );
            // The next request is a valid history without these calls.
            let next = world::finish_run(agent.run_from(first.handle.history(), "again")).await;
            next.check_outcome(EndReason::Completed, 1);
            let sent = model.sent_bodies().pop().unwrap().to_string();
            assert!(!sent.contains("c1") && !sent.contains("c2"), "{wire}: {sent}");
            assert_eq!(ran.started_count(), 0, "{wire}");
        }
    }

    #[test]
    fn a_dialect_without_finish_reasons_never_runs_calls() {
        let in_end = |end, chunks: &[&str]| -> Result<Arc<Turn>, Error> {
            let dialect = Dialect { turn_end: end, ..Dialect::MINIMAL };
            let body = stream::iter([Ok(Bytes::from(sse_body(chunks)))]);
            let history = History::empty("h");
            block_on(decode_in_dialect(&dialect, Wire::OpenAiChat, "m", &history, body).into_turn())
        };
        let said = r#"{"choices":[{"delta":{"content":"hi"}}]}"#;
        let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"t","arguments":"{}"}}]}}]}"#;
        for (end, with_done, without) in [
            (TurnEnd::FinishReason, false, false),
            (TurnEnd::DoneMarker, true, false),
            (TurnEnd::BodyEnd, true, true),
        ] {
            let is_complete = |chunks: &[&str]| match in_end(end, chunks) {
                Ok(_) => true,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
                    false
                }
            };
            assert_eq!(is_complete(&[said, "[DONE]"]), with_done, "{end:?}");
            assert_eq!(is_complete(&[said]), without, "{end:?}");
            for calls in [&[call, "[DONE]"][..], &[call], &[said, call, "[DONE]"]] {
                assert!(!is_complete(calls), "{end:?}");
            }
        }
    }
}

/// A turn that a content filter ended after this text, or before any. `None` on the wire that
/// cannot report a filter.
fn filtered_turn(wire: Wire, words: Option<&str>) -> Option<Vec<String>> {
    let frames = match wire {
        Wire::Anthropic => {
            let block = words.map(|text| {
                let block = json!({ "type": "text", "text": text });
                json!({ "type": "content_block_start", "index": 0, "content_block": block })
            });
            let end = [
                json!({ "type": "message_delta", "delta": { "stop_reason": "sensitive" } }),
                json!({ "type": "message_stop" }),
            ];
            let start = json!({ "type": "message_start", "message": { "id": "m" } });
            [start].into_iter().chain(block).chain(end).collect()
        }
        Wire::OpenAiChat => vec![
            json!({ "choices": [{ "delta": { "content": words.unwrap_or_default() } }] }),
            json!({ "choices": [{ "delta": {}, "finish_reason": "content_filter" }] }),
        ],
        Wire::OpenAiResponses => vec![
            json!({ "type": "response.output_text.delta", "output_index": 0,
                "delta": words.unwrap_or_default() }),
            json!({ "type": "response.incomplete", "response": { "status": "incomplete",
                "incomplete_details": { "reason": "content_filter" } } }),
        ],
        Wire::Ollama => return None,
        // Without any text, not even a candidate is sent.
        _ if words.is_none() => vec![json!({ "promptFeedback": { "blockReason": "SAFETY" } })],
        _ => vec![json!({ "candidates": [{ "content": { "parts": [{ "text": words }] },
            "finishReason": "SAFETY" }] })],
    };
    Some(frame_texts(&frames))
}

mod content_filter {
    //! A content filter ends the run without an error, on any wire.

    use super::*;

    #[tokio::test]
    async fn a_content_filter_ends_the_run_and_keeps_its_text_on_any_wire() {
        for wire in Wire::ALL {
            for said in [None, Some("I was going to")] {
                let Some(turn) = filtered_turn(wire, said) else {
                    assert_eq!(wire, Wire::Ollama);
                    continue;
                };
                let (finished, asked) =
                    run_with_frames(wire, &[turn], &["t"], &Counter::default()).await;
                assert_eq!((finished.outcome.reason, asked), (EndReason::Filtered, 1), "{wire}");
                assert!(finished.outcome.error.is_none() && !finished.outcome.partial, "{wire}");
                assert_eq!(finished.text(), said.unwrap_or_default(), "{wire}");
                let mut history = finished.handle.history();
                let kept = history.iter().filter_map(Item::as_text).collect::<Vec<_>>();
                assert_eq!(kept, Vec::from_iter(said), "{wire}: the text is kept");
                history.push(Item::user("then something else"));
                encode_and_lint(wire, &history);
            }
        }
    }
}

/// The frames of a turn that says `hi`, ends, and then sends these frames.
fn turn_with_late_frames(wire: Wire, late: &[Value]) -> Vec<String> {
    let mut frames = match wire {
        Wire::Anthropic => vec![
            json!({ "type": "message_start", "message": { "id": "m1" } }),
            json!({ "type": "content_block_start", "index": 0,
                "content_block": { "type": "text", "text": "hi" } }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
        ],
        Wire::OpenAiChat => {
            vec![json!({ "choices": [{ "delta": { "content": "hi" }, "finish_reason": "stop" }] })]
        }
        Wire::OpenAiResponses => vec![
            json!({ "type": "response.output_text.delta", "output_index": 0, "delta": "hi" }),
            json!({ "type": "response.completed", "response": { "status": "completed" } }),
        ],
        Wire::Ollama => vec![json!({ "message": { "content": "hi" }, "done": true })],
        _ => vec![json!({ "candidates": [{ "content": { "parts": [{ "text": "hi" }] },
            "finishReason": "STOP" }] })],
    };
    frames.extend_from_slice(late);
    frame_texts(&frames)
}

fn decode_turn_with_late_frames(wire: Wire, late: &[Value]) -> Result<Arc<Turn>, Error> {
    let frames = turn_with_late_frames(wire, late);
    read_frames(wire, &frames.iter().map(String::as_str).collect::<Vec<_>>())
}

mod events_after_the_end {
    //! Events after the end marker, on any wire: usage counts, content does not.

    use super::*;

    #[test]
    fn usage_after_the_end_marker_counts_on_wires_that_send_it_there() {
        for (wire, usage) in [
            (
                Wire::Anthropic,
                json!({ "type": "message_delta", "delta": {},
                "usage": { "input_tokens": 7, "output_tokens": 2 } }),
            ),
            (
                Wire::OpenAiChat,
                json!({ "choices": [],
                "usage": { "prompt_tokens": 7, "completion_tokens": 2 } }),
            ),
            (
                Wire::Gemini,
                json!({ "usageMetadata":
                { "promptTokenCount": 7, "candidatesTokenCount": 2 } }),
            ),
        ] {
            let turn = decode_turn_with_late_frames(wire, &[usage]).unwrap();
            assert_eq!((turn.text().as_str(), turn.usage()), ("hi", token_usage(7, 2)), "{wire}");
            assert_eq!(turn.stop_reason(), &StopReason::Stop, "{wire}");
        }
    }

    #[test]
    fn content_after_the_end_marker_is_ignored_on_every_wire() {
        for (wire, late) in [
            (
                Wire::Anthropic,
                vec![
                    json!({ "type": "message_stop" }),
                    json!({ "type": "content_block_start", "index": 1,
                    "content_block": { "type": "text", "text": "late" } }),
                    json!({ "type": "content_block_start", "index": 2, "content_block":
                    { "type": "tool_use", "id": "c", "name": "t", "input": {} } }),
                    json!({ "type": "content_block_stop", "index": 2 }),
                    json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } }),
                ],
            ),
            (
                Wire::OpenAiChat,
                vec![
                    json!({ "choices": [{ "delta": { "content": "late" } }] }),
                    json!({ "choices": [{ "delta": {}, "finish_reason": "tool_calls" }] }),
                ],
            ),
            (
                Wire::OpenAiResponses,
                vec![
                    json!({ "type": "response.output_text.delta", "output_index": 0, "delta": "late" }),
                    json!({ "type": "response.output_item.done", "output_index": 1, "item": {
                    "type": "function_call", "id": "fc_1", "call_id": "c", "name": "t",
                    "arguments": "{}" } }),
                    json!({ "type": "response.completed", "response": { "status": "completed" } }),
                ],
            ),
            (
                Wire::Ollama,
                vec![
                    json!({ "message": { "content": "late" }, "done": false }),
                    json!({ "done": true, "done_reason": "length" }),
                ],
            ),
        ] {
            assert_eq!(
                decode_turn_with_late_frames(wire, &late).unwrap(),
                decode_turn_with_late_frames(wire, &[]).unwrap(),
                "{wire}"
            );
        }
    }

    #[test]
    fn a_call_after_the_stop_reason_never_runs_on_any_wire() {
        for (wire, call, expected) in [
            (
                Wire::Anthropic,
                vec![
                    json!({ "type": "content_block_start", "index": 1, "content_block":
                    { "type": "tool_use", "id": "c", "name": "t", "input": {} } }),
                    json!({ "type": "content_block_stop", "index": 1 }),
                    json!({ "type": "message_stop" }),
                ],
                Err(ErrorKind::Protocol),
            ),
            (
                Wire::OpenAiChat,
                vec![json!({ "choices": [{ "delta": { "tool_calls": [
                { "index": 0, "id": "c", "function": { "name": "t", "arguments": "{}" } },
            ] } }] })],
                Err(ErrorKind::Protocol),
            ),
            // The name alone has no content.
            (
                Wire::OpenAiChat,
                vec![json!({ "choices": [{ "delta": { "tool_calls": [
                { "index": 0, "id": "c", "function": { "name": "t" } },
            ] } }] })],
                Ok(0),
            ),
            (
                Wire::OpenAiResponses,
                vec![json!({ "type": "response.output_item.done",
                "output_index": 1, "item": { "type": "function_call", "call_id": "c", "name": "t",
                "arguments": "{}" } })],
                Ok(0),
            ),
            // On this wire, frames may follow a finish reason, as in code execution: the turn needs
            // another one.
            (
                Wire::Gemini,
                vec![json!({ "candidates": [{ "content": { "parts": [
                { "functionCall": { "name": "t", "args": {} } },
            ] } }] })],
                Err(ErrorKind::IncompleteTurn),
            ),
            (
                Wire::Ollama,
                vec![json!({ "message": { "tool_calls": [
                { "function": { "name": "t", "arguments": {} } },
            ] }, "done": true })],
                Err(ErrorKind::Protocol),
            ),
        ] {
            let turn = decode_turn_with_late_frames(wire, &call).map_err(|error| error.kind());
            assert_eq!(turn.map(|turn| turn.calls().len()), expected, "{wire}");
        }
    }
}

/// A turn with three usage reports, each of which is cumulative; `None` omits usage.
fn turn_with_usage(wire: Wire, counts: Option<[(u64, u64); 3]>) -> Vec<String> {
    let [first, second, last] = match counts {
        Some(counts) => counts.map(Some),
        None => [None; 3],
    };
    let with = |mut frame: Value, name: &str, usage: Option<Value>| {
        if let Some(usage) = usage {
            frame[name] = usage;
        }
        frame
    };
    let vendors = |[input, output]: [&str; 2], count: Option<(u64, u64)>| {
        count.map(|(used, said)| json!({ input: used, output: said }))
    };
    let frames = match wire {
        Wire::Anthropic => {
            let usage = |count| vendors(["input_tokens", "output_tokens"], count);
            let message = with(json!({ "id": "m" }), "usage", usage(first));
            let end = json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } });
            let more = json!({ "type": "message_delta", "delta": {} });
            vec![
                json!({ "type": "message_start", "message": message }),
                json!({ "type": "content_block_start", "index": 0,
                    "content_block": { "type": "text", "text": "hi" } }),
                json!({ "type": "content_block_stop", "index": 0 }),
                with(more, "usage", usage(second)),
                with(end, "usage", usage(last)),
                json!({ "type": "message_stop" }),
            ]
        }
        Wire::OpenAiChat => {
            let usage = |count| vendors(["prompt_tokens", "completion_tokens"], count);
            let chunk =
                |delta, reason| json!({ "choices": [{ "delta": delta, "finish_reason": reason }] });
            vec![
                with(chunk(json!({ "content": "hi" }), Value::Null), "usage", usage(first)),
                with(chunk(json!({}), json!("stop")), "usage", usage(second)),
                with(json!({ "choices": [] }), "usage", usage(last)),
            ]
        }
        Wire::OpenAiResponses => {
            let usage = |count| vendors(["input_tokens", "output_tokens"], count);
            let event = |kind: &str, status: &str, count| {
                let response = with(json!({ "id": "r", "status": status }), "usage", usage(count));
                json!({ "type": kind, "response": response })
            };
            vec![
                event("response.created", "in_progress", first),
                event("response.in_progress", "in_progress", second),
                json!({ "type": "response.output_text.delta", "output_index": 0, "delta": "hi" }),
                event("response.completed", "completed", last),
            ]
        }
        Wire::Ollama => {
            let line = |text: &str, done: bool, count| {
                let mut line = json!({ "message": { "content": text }, "done": done });
                let counts = vendors(["prompt_eval_count", "eval_count"], count);
                if let (Some(line), Some(Value::Object(counts))) = (line.as_object_mut(), counts) {
                    line.extend(counts);
                }
                line
            };
            vec![line("h", false, first), line("i", false, second), line("", true, last)]
        }
        _ => {
            let usage = |count| vendors(["promptTokenCount", "candidatesTokenCount"], count);
            let chunk = |text: &str, reason| {
                json!({ "candidates": [{ "content": { "parts": [{ "text": text }] },
                    "finishReason": reason }] })
            };
            let end = json!({ "candidates": [{ "finishReason": "STOP" }] });
            vec![
                with(chunk("h", Value::Null), "usageMetadata", usage(first)),
                with(chunk("i", Value::Null), "usageMetadata", usage(second)),
                with(end, "usageMetadata", usage(last)),
            ]
        }
    };
    frame_texts(&frames)
}

mod missing_or_repeated_usage {
    //! Usage that is missing or reported twice, on any wire.

    use super::*;

    #[tokio::test]
    async fn repeated_usage_replaces_the_previous_one_on_any_wire() {
        for wire in Wire::ALL {
            let turn = turn_with_usage(wire, Some([(10, 1), (10, 4), (12, 9)]));
            let (finished, _) = run_with_frames(wire, &[turn], &["t"], &Counter::default()).await;
            assert_eq!(
                (finished.outcome.reason, finished.text()),
                (EndReason::Completed, "hi"),
                "{wire}"
            );
            assert_eq!(finished.outcome.usage, token_usage(12, 9), "{wire}");
            let kept =
                finished.handle.history().iter().filter_map(|item| item.turn.clone()).next_back();
            assert_eq!(kept.unwrap().usage, token_usage(12, 9), "{wire}: with the turn as well");
        }
    }

    #[tokio::test]
    async fn a_request_without_usage_counts_on_any_wire() {
        for wire in Wire::ALL {
            let (finished, asked) =
                run_with_frames(wire, &[turn_with_usage(wire, None)], &["t"], &Counter::default())
                    .await;
            finished.check_outcome(EndReason::Completed, 1);
            assert_eq!((finished.outcome.usage, asked), (Usage::default(), 1), "{wire}");
            // Without usage, the turn still counts towards the limit.
            let call = Answer::reply(Reply::new().call_raw("", "t", "{}"));
            let turn = read_answer(wire, call.clone()).unwrap();
            assert_eq!(turn.usage(), Usage::default(), "{wire}");
            let model = WireProvider::new(wire, "m", [call.clone(), call]);
            let capped = test_agent(model.clone()).with_tools([ok_tool("t", &Counter::default())]);
            let finished =
                world::finish_run(capped.with_limits(limits_with_max_turns(2)).run("go")).await;
            finished.check_outcome(EndReason::MaxTurns, 2);
            assert_eq!(
                (finished.outcome.usage, model.sent_bodies().len()),
                (Usage::default(), 2),
                "{wire}"
            );
        }
    }
}
