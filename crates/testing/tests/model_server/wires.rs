//! The output of the loopback server on each wire, byte by byte or event by event, without a
//! network.

use std::time::Duration;

use serde_json::{Value, json};
use turnstream::provider::Reply;
use turnstream::turn::StopReason;
use turnstream::{Error, ErrorKind, Usage};
use turnstream_testing::{Answer, Fault, FaultPosition, LineEnd, Noise, Wire};

/// The stream of a reply as text.
fn stream_text(wire: Wire, answer: impl Into<Answer>) -> String {
    String::from_utf8(answer.into().to_bytes(wire)).unwrap()
}

/// The events of a stream: the name, if there is one, and the data.
fn parse_events(stream: &str) -> Vec<(String, Value)> {
    let stream = stream.replace("\r\n", "\n");
    // JSON lines have no names.
    if stream.trim_start().starts_with('{') {
        let lines = stream.lines().filter(|line| !line.is_empty());
        return lines.map(|data| (String::new(), serde_json::from_str(data).unwrap())).collect();
    }
    let frames = stream.split("\n\n").filter(|frame| !frame.is_empty());
    frames
        .filter_map(|frame| {
            let mut event = (String::new(), Value::Null);
            for line in frame.lines() {
                match line.split_once(": ") {
                    Some(("event", name)) => name.clone_into(&mut event.0),
                    Some(("data", "[DONE]")) => event.1 = "[DONE]".into(),
                    Some(("data", data)) => event.1 = serde_json::from_str(data).unwrap(),
                    _ => return None,
                }
            }
            Some(event)
        })
        .collect()
}

fn reply_events(wire: Wire, reply: impl Into<Reply>) -> Vec<(String, Value)> {
    parse_events(&stream_text(wire, reply.into()))
}

fn reply_event_data(wire: Wire, reply: impl Into<Reply>) -> Vec<Value> {
    reply_events(wire, reply).into_iter().map(|(_, data)| data).collect()
}

/// The deltas of a chat stream that have content, and the finish reasons.
fn chat_deltas(reply: impl Into<Reply>) -> Vec<Value> {
    let chunks = reply_event_data(Wire::OpenAiChat, reply);
    let choices = chunks.iter().filter_map(|chunk| chunk["choices"].get(0)).skip(1);
    choices
        .map(|choice| match &choice["finish_reason"] {
            Value::Null => choice["delta"].clone(),
            reason => reason.clone(),
        })
        .collect()
}

/// The parts of a Gemini stream.
fn gemini_parts(reply: impl Into<Reply>) -> Vec<Value> {
    let chunks = reply_event_data(Wire::Gemini, reply);
    let parts = |chunk: &Value| chunk["candidates"][0]["content"]["parts"].as_array().cloned();
    chunks.iter().filter_map(parts).flatten().collect()
}

/// The items of a finished Responses stream.
fn responses_output(reply: impl Into<Reply>) -> Value {
    reply_event_data(Wire::OpenAiResponses, reply).last().unwrap()["response"]["output"].clone()
}

fn usage() -> Usage {
    Usage {
        input_tokens: 100,
        output_tokens: 20,
        cache_read_input_tokens: 30,
        cache_write_input_tokens: 10,
        reasoning_tokens: 5,
        ..Usage::default()
    }
}

#[test]
fn a_text_is_written_in_the_anthropic_format() {
    let stream = stream_text(Wire::Anthropic, Reply::text("Hi you").usage(usage()));
    let expected = [
        r#"{"type":"message_start","message":{"id":"msg_0000","type":"message","role":"assistant","model":"scripted","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":60,"cache_read_input_tokens":30,"cache_creation_input_tokens":10,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi "}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"you"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":60,"cache_read_input_tokens":30,"cache_creation_input_tokens":10,"output_tokens":20,"output_tokens_details":{"thinking_tokens":5}}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let frame = |data: &&str| {
        let event: Value = serde_json::from_str(data).unwrap();
        format!("event: {}\ndata: {data}\n\n", event["type"].as_str().unwrap())
    };
    assert_eq!(stream, expected.iter().map(frame).collect::<String>());
}

#[test]
fn reasoning_and_calls_are_written_in_the_anthropic_format() {
    let reply = Reply::new()
        .think("Hm")
        .sign("c2ln")
        .think_hidden("b3BhcXVl")
        .call("add", json!({ "a": 1, "b": "two words" }))
        .call_raw("toolu_9", "now", "");
    let events = reply_event_data(Wire::Anthropic, reply);
    let is = |event: &&Value| !matches!(event["type"].as_str(), Some("ping" | "message_start"));
    let events: Vec<_> = events.iter().filter(is).collect();
    let mut at = events.into_iter();
    let mut next = |index: u32, what: &str| {
        let event = at.next().unwrap();
        assert_eq!(event["index"], index, "{event}");
        event[what].clone()
    };
    let thinking = json!({ "type": "thinking", "thinking": "", "signature": "" });
    assert_eq!(next(0, "content_block"), thinking);
    assert_eq!(next(0, "delta"), json!({ "type": "thinking_delta", "thinking": "Hm" }));
    assert_eq!(next(0, "delta"), json!({ "type": "signature_delta", "signature": "c2ln" }));
    assert_eq!(next(0, "type"), "content_block_stop");
    let hidden = json!({ "type": "redacted_thinking", "data": "b3BhcXVl" });
    assert_eq!(next(1, "content_block"), hidden);
    assert_eq!(next(1, "type"), "content_block_stop");
    let call = json!({ "type": "tool_use", "id": "toolu_0000_2", "name": "add", "input": {} });
    assert_eq!(next(2, "content_block"), call);
    for piece in ["", "{\"a\":1,\"b\":\"", "two words\"}"] {
        let delta = json!({ "type": "input_json_delta", "partial_json": piece });
        assert_eq!(next(2, "delta"), delta);
    }
    assert_eq!(next(2, "type"), "content_block_stop");
    assert_eq!(next(3, "content_block")["id"], "toolu_9");
    assert_eq!(next(3, "delta")["partial_json"], "");
    assert_eq!(next(3, "type"), "content_block_stop");
    assert_eq!(at.next().unwrap()["delta"]["stop_reason"], "tool_use");
}

#[test]
fn a_text_is_written_in_the_chat_format() {
    let chunk = |choices: Value, usage: Value| {
        json!({
            "id": "chatcmpl-0000", "object": "chat.completion.chunk", "created": 1_700_000_000,
            "model": "scripted", "service_tier": "default", "system_fingerprint": "fp_turnstream",
            "choices": choices, "usage": usage,
        })
    };
    let choice = |delta: Value, reason: Value| json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason }]);
    let events = reply_events(Wire::OpenAiChat, Reply::text("Hi you").usage(usage()));
    assert!(events.iter().all(|(name, _)| name.is_empty()), "this wire names no event");
    let start = json!({ "role": "assistant", "content": "", "refusal": null });
    let counted = json!({
        "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
        "prompt_tokens_details": { "cached_tokens": 30, "cache_write_tokens": 10 },
        "completion_tokens_details": { "reasoning_tokens": 5 },
    });
    let expected = [
        chunk(choice(start, Value::Null), Value::Null),
        chunk(choice(json!({ "content": "Hi " }), Value::Null), Value::Null),
        chunk(choice(json!({ "content": "you" }), Value::Null), Value::Null),
        chunk(choice(json!({}), json!("stop")), Value::Null),
        chunk(json!([]), counted),
        json!("[DONE]"),
    ];
    assert_eq!(events.into_iter().map(|(_, data)| data).collect::<Vec<_>>(), expected);
}

#[test]
fn calls_in_the_chat_format_have_an_index_and_deltas() {
    let reply = Reply::new().call("add", json!({ "a": 1, "b": "x" })).call_raw("c9", "now", "{}");
    let call = |index: u32, id: &str, name: &str| {
        json!({ "tool_calls": [{ "index": index, "id": id, "type": "function",
            "function": { "name": name, "arguments": "" } }] })
    };
    let piece = |index: u32, piece: &str| json!({ "tool_calls": [{ "index": index, "function": { "arguments": piece } }] });
    let expected = [
        call(0, "call_0000_0", "add"),
        piece(0, "{\"a\":1,\"b\":\""),
        piece(0, "x\"}"),
        call(1, "c9", "now"),
        piece(1, "{}"),
        json!("tool_calls"),
    ];
    assert_eq!(chat_deltas(reply), expected);
}

#[test]
fn reasoning_in_the_chat_format_is_plain_unless_signed() {
    assert_eq!(
        chat_deltas(Reply::new().think("Hm").say("Hi")),
        [json!({ "reasoning_content": "Hm" }), json!({ "content": "Hi" }), json!("stop")]
    );
    let detail = |mut detail: Value, index: u32| {
        detail["format"] = "anthropic-claude-v1".into();
        detail["index"] = index.into();
        json!([detail])
    };
    let shown = |text: &str, index: u32| {
        let detail = detail(json!({ "type": "reasoning.text", "text": text }), index);
        json!({ "reasoning": text, "reasoning_details": detail })
    };
    let signed = detail(json!({ "type": "reasoning.text", "signature": "c2ln" }), 0);
    let hidden = detail(json!({ "type": "reasoning.encrypted", "data": "b3Bh" }), 1);
    assert_eq!(
        chat_deltas(Reply::new().think("Hm hm").sign("c2ln").think_hidden("b3Bh").say("Hi")),
        [
            shown("Hm ", 0),
            shown("hm", 0),
            json!({ "reasoning_details": signed }),
            json!({ "reasoning_details": hidden }),
            json!({ "content": "Hi" }),
            json!("stop"),
        ]
    );
    let google = chat_deltas(Reply::new().call_raw("c", "now", "{}").sign("c2ln"));
    let content = &google[0]["tool_calls"][0]["extra_content"];
    assert_eq!(*content, json!({ "google": { "thought_signature": "c2ln" } }));
}

#[test]
fn a_refusal_in_the_chat_format_has_its_own_field() {
    let refusal = [json!({ "refusal": "I " }), json!({ "refusal": "won't" }), json!("stop")];
    assert_eq!(chat_deltas(Reply::new().refuse("I won't")), refusal);
}

#[test]
fn events_in_the_responses_format_are_numbered_and_named() {
    let reply = Reply::new()
        .summarize("Hm hm")
        .say("Hi you")
        .call("add", json!({ "a": 1 }))
        .call_raw("c9", "now", "")
        .usage(usage());
    let events = reply_events(Wire::OpenAiResponses, reply);
    for (at, (name, data)) in events.iter().enumerate() {
        assert_eq!(data["type"], **name, "{data}");
        assert_eq!(data["sequence_number"], at, "{data}");
    }
    let short = |(name, data): &(String, Value)| {
        let name = name.trim_start_matches("response.").to_owned();
        (name, data["output_index"].as_u64())
    };
    let names: Vec<_> = events.iter().map(short).collect();
    let expected: Vec<(String, Option<u64>)> = [
        ("created", None),
        ("in_progress", None),
        ("output_item.added", Some(0)),
        ("reasoning_summary_part.added", Some(0)),
        ("reasoning_summary_text.delta", Some(0)),
        ("reasoning_summary_text.delta", Some(0)),
        ("reasoning_summary_text.done", Some(0)),
        ("reasoning_summary_part.done", Some(0)),
        ("output_item.done", Some(0)),
        ("output_item.added", Some(1)),
        ("content_part.added", Some(1)),
        ("output_text.delta", Some(1)),
        ("output_text.delta", Some(1)),
        ("output_text.done", Some(1)),
        ("content_part.done", Some(1)),
        ("output_item.done", Some(1)),
        ("output_item.added", Some(2)),
        ("function_call_arguments.delta", Some(2)),
        ("function_call_arguments.done", Some(2)),
        ("output_item.done", Some(2)),
        ("output_item.added", Some(3)),
        ("function_call_arguments.done", Some(3)),
        ("output_item.done", Some(3)),
        ("completed", None),
    ]
    .into_iter()
    .map(|(name, at)| (name.to_owned(), at))
    .collect();
    assert_eq!(names, expected);
    let delta = json!({
        "type": "response.output_text.delta", "sequence_number": 11, "item_id": "msg_0000_1",
        "output_index": 1, "content_index": 0, "delta": "Hi ",
    });
    assert_eq!(events[11].1, delta);
    let response = &events.last().unwrap().1["response"];
    let encrypted = response["output"][0]["encrypted_content"].as_str().unwrap();
    assert_eq!(
        response["output"],
        json!([
            { "id": "rs_0000_0", "type": "reasoning", "encrypted_content": encrypted,
              "summary": [{ "type": "summary_text", "text": "Hm hm" }] },
            { "id": "msg_0000_1", "type": "message", "status": "completed", "role": "assistant",
              "content": [{ "type": "output_text", "text": "Hi you", "annotations": [], "logprobs": [] }] },
            { "id": "fc_0000_2", "type": "function_call", "status": "completed",
              "call_id": "call_0000_2", "name": "add", "arguments": "{\"a\":1}" },
            { "id": "fc_0000_3", "type": "function_call", "status": "completed",
              "call_id": "c9", "name": "now", "arguments": "" },
        ])
    );
    assert_eq!(response["status"], "completed");
    assert_eq!(
        response["usage"],
        json!({
            "input_tokens": 100, "output_tokens": 20, "total_tokens": 120,
            "input_tokens_details": { "cached_tokens": 30, "cache_write_tokens": 10 },
            "output_tokens_details": { "reasoning_tokens": 5 },
        })
    );
}

#[test]
fn reasoning_and_refusals_are_written_in_the_responses_format() {
    let items =
        responses_output(Reply::new().think("Hm").sign("c2ln").think_hidden("b3Bh").refuse("No"));
    assert_eq!(
        items,
        json!([
            { "id": "rs_0000_0", "type": "reasoning", "summary": [], "encrypted_content": "c2ln",
              "content": [{ "type": "reasoning_text", "text": "Hm" }] },
            { "id": "rs_0000_1", "type": "reasoning", "summary": [], "encrypted_content": "b3Bh" },
            { "id": "msg_0000_2", "type": "message", "status": "completed", "role": "assistant",
              "content": [{ "type": "refusal", "refusal": "No" }] },
        ])
    );
}

#[test]
fn a_truncated_call_is_never_marked_done_in_the_responses_format() {
    let reply = Reply::new().call_unfinished("c", "add", "{\"a\"").stop(StopReason::MaxTokens);
    let events = reply_events(Wire::OpenAiResponses, reply);
    let last = &events.last().unwrap().1;
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["incomplete_details"], json!({ "reason": "max_output_tokens" }));
    assert_eq!(last["response"]["output"][0]["status"], "incomplete");
    assert!(!events.iter().any(|(name, _)| name.ends_with("done")), "{events:?}");
}

#[test]
fn a_text_in_the_gemini_format_uses_the_vendors_line_endings() {
    let stream = stream_text(Wire::Gemini, Reply::text("Hi").usage(usage()));
    assert_eq!(
        stream,
        concat!(
            r#"data: {"modelVersion":"scripted","responseId":"response-0000","candidates":[{"content":{"parts":[{"text":"Hi"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":100,"totalTokenCount":100,"cachedContentTokenCount":30}}"#,
            "\r\n\r\n",
            r#"data: {"modelVersion":"scripted","responseId":"response-0000","candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"index":0,"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":100,"totalTokenCount":120,"candidatesTokenCount":15,"thoughtsTokenCount":5,"cachedContentTokenCount":30}}"#,
            "\r\n\r\n",
        )
    );
}

#[test]
fn parallel_calls_in_the_gemini_format_share_a_chunk_and_the_first_is_signed() {
    let reply = Reply::new()
        .think("Hm")
        .sign("c2ln")
        .call("add", json!({ "a": 1 }))
        .call_raw("c9", "now", "");
    let chunks = reply_event_data(Wire::Gemini, reply);
    let parts = |at: usize| &chunks[at]["candidates"][0]["content"]["parts"];
    assert_eq!(*parts(0), json!([{ "text": "Hm", "thought": true }]));
    assert_eq!(
        *parts(1),
        json!([
            { "functionCall": { "name": "add", "args": { "a": 1 } }, "thoughtSignature": "c2ln" },
            { "functionCall": { "id": "c9", "name": "now", "args": {} } },
        ])
    );
    assert_eq!(chunks[2]["candidates"][0]["finishReason"], "STOP");
}

#[test]
fn a_signature_of_text_on_the_gemini_wire_is_an_empty_part_of_its_own() {
    let signed = json!({ "text": "", "thoughtSignature": "c2ln" });
    let last = json!({ "text": "" });
    let text = json!({ "text": "Hi" });
    assert_eq!(gemini_parts(Reply::text("Hi").sign("c2ln")), [text.clone(), signed.clone(), last]);
    // Reasoning at the end is signed by the last part.
    let thought = json!({ "text": "Hm", "thought": true });
    assert_eq!(gemini_parts(Reply::new().think("Hm").sign("c2ln")), [thought, signed]);
    let carries = json!({ "text": "Hi", "thoughtSignature": "b3Bh" });
    assert_eq!(gemini_parts(Reply::new().think_hidden("b3Bh").say("Hi"))[0], carries);
}

#[test]
fn a_turn_in_the_ollama_format_is_json_lines_with_whole_calls() {
    let reply = Reply::new()
        .think("Hm")
        .say("Hi you")
        .call("add", json!({ "a": 1, "b": "x" }))
        .call_raw("c9", "now", "")
        .usage(usage());
    let said = [
        r#""message":{"role":"assistant","content":"","thinking":"Hm"},"done":false"#,
        r#""message":{"role":"assistant","content":"Hi "},"done":false"#,
        r#""message":{"role":"assistant","content":"you"},"done":false"#,
        r#""message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"add","arguments":{"a":1,"b":"x"}}}]},"done":false"#,
        r#""message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"now","arguments":{}},"id":"c9"}]},"done":false"#,
        r#""message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":100,"prompt_eval_cached_count":30,"eval_count":20"#,
    ];
    let head = r#"{"model":"scripted","created_at":"2023-11-14T22:13:20Z","#;
    let lines: Vec<_> = said.iter().map(|said| format!("{head}{said}}}\n")).collect();
    let lines = lines.concat();
    assert_eq!(stream_text(Wire::Ollama, reply), lines);
    // A count of zero is left out.
    let cut = stream_text(Wire::Ollama, Reply::text("Hi").stop(StopReason::MaxTokens));
    assert!(cut.ends_with("\"done\":true,\"done_reason\":\"length\"}\n"), "{cut}");
}

#[test]
fn every_stop_reason_is_written_or_rejected() {
    #[track_caller]
    fn check(reason: &StopReason, expected: [Option<&str>; 5]) {
        for (wire, expected) in Wire::ALL.into_iter().zip(expected) {
            let stream = stream_text(wire, Reply::text("x").stop(reason.clone()));
            match expected {
                Some(word) => assert!(stream.contains(&format!("\"{word}\"")), "{wire}: {stream}"),
                None => {
                    let what = format!("content that the {wire} wire cannot express");
                    assert!(stream.contains(&what), "{wire}: {stream}");
                }
            }
        }
    }
    let word = |word| Some(word);
    check(
        &StopReason::Stop,
        [word("end_turn"), word("stop"), word("completed"), word("STOP"), word("stop")],
    );
    check(
        &StopReason::ToolCalls,
        [word("tool_use"), word("tool_calls"), word("completed"), word("STOP"), word("stop")],
    );
    check(
        &StopReason::MaxTokens,
        [
            word("max_tokens"),
            word("length"),
            word("max_output_tokens"),
            word("MAX_TOKENS"),
            word("length"),
        ],
    );
    check(
        &StopReason::ContentFilter,
        [word("sensitive"), word("content_filter"), word("content_filter"), word("SAFETY"), None],
    );
    check(&StopReason::Refusal, [word("refusal"), None, None, None, None]);
    check(&StopReason::Pause, [word("pause_turn"), None, None, word("CONTINUATION"), None]);
    let full = "model_context_window_exceeded";
    check(&StopReason::ContextWindow, [word(full), word(full), None, None, None]);
    let novel = StopReason::Other("novel".into());
    check(&novel, [word("novel"); 5]);
}

#[test]
fn content_that_a_wire_cannot_express_is_an_error() {
    #[track_caller]
    fn check(reply: &Reply, what: &str, wires: &[Wire]) {
        for wire in Wire::ALL {
            let stream = stream_text(wire, reply.clone());
            let refused = stream.contains(&format!(
                "the script has content that the {wire} wire cannot express: {what}"
            ));
            assert_eq!(refused, wires.contains(&wire), "{wire}: {stream}");
        }
    }
    let all = Wire::ALL;
    let event = turnstream::turn::TurnEvent::UsageUpdate { usage: usage() };
    check(&Reply::text("x").event(event), "an event as it is", &all);
    check(&Reply::text("x").retract("again"), "a retraction", &all);
    let text = [Wire::Anthropic, Wire::OpenAiChat, Wire::OpenAiResponses];
    check(&Reply::text("x").sign("c2ln"), "a signature of text", &text);
    let call = Reply::new().call_raw("c", "f", "{}").sign("c2ln");
    check(&call, "a signature of text or of a call", &[Wire::Anthropic, Wire::OpenAiResponses]);
    check(&call, "a signature", &[Wire::Anthropic, Wire::OpenAiResponses, Wire::Ollama]);
    check(&Reply::new().think_hidden("b3Bh"), "hidden reasoning", &[Wire::Ollama]);
    let whole = [Wire::Gemini, Wire::Ollama];
    check(&Reply::new().refuse("No"), "a refusal", &whole);
    let raw = Reply::new().call_raw("c", "f", "no JSON");
    check(&raw, "arguments that are not a JSON object", &whole);
    let cut = Reply::new().call_unfinished("c", "f", "{").stop(StopReason::MaxTokens);
    check(&cut, "a call that is cut off", &whole);
}

#[test]
fn an_error_in_the_stream_has_the_shape_of_its_wire() {
    #[track_caller]
    fn check(wire: Wire, reply: Reply, name: &str, expected: &Value) {
        let events = reply_events(wire, reply);
        let (event, data) = events.last().unwrap();
        assert_eq!((event.as_str(), data), (name, expected));
    }
    let failing = || Reply::text("Hel").fail(Error::new(ErrorKind::Overloaded, "busy"));
    let error = json!({ "type": "overloaded_error", "message": "busy" });
    check(Wire::Anthropic, failing(), "error", &json!({ "type": "error", "error": error }));
    let error = json!({
        "message": "busy", "type": "service_unavailable_error", "param": null,
        "code": "server_is_overloaded",
    });
    check(Wire::OpenAiChat, failing(), "", &json!({ "error": error }));
    let error = json!({ "code": 503, "message": "busy", "status": "UNAVAILABLE" });
    check(Wire::Gemini, failing(), "", &json!({ "error": error }));
    check(Wire::Ollama, failing(), "", &json!({ "error": "server busy: busy" }));
    let events = reply_events(Wire::OpenAiResponses, failing());
    let (name, data) = events.last().unwrap();
    assert_eq!((name.as_str(), &data["sequence_number"]), ("response.failed", &json!(5)));
    let error = json!({ "code": "server_is_overloaded", "message": "busy" });
    assert_eq!(
        (&data["response"]["status"], &data["response"]["error"]),
        (&json!("failed"), &error)
    );
    // Before any output it is an event of its own.
    let early = Reply::new().delay(Duration::ZERO).fail(Error::new(ErrorKind::RateLimited, "slow"));
    let flat = json!({
        "type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": null,
        "sequence_number": 2,
    });
    check(Wire::OpenAiResponses, early, "error", &flat);
}

#[test]
fn an_error_response_has_the_vendors_shape() {
    #[track_caller]
    fn check(wire: Wire, expected: &Value) {
        let body: Value = serde_json::from_slice(&Answer::error(429).to_bytes(wire)).unwrap();
        assert_eq!(body, *expected);
    }
    let message = "too many requests";
    let error = json!({ "type": "rate_limit_error", "message": message });
    check(Wire::Anthropic, &json!({ "type": "error", "error": error }));
    let error = json!({
        "message": message, "type": "requests", "param": null, "code": "rate_limit_exceeded",
    });
    check(Wire::OpenAiChat, &json!({ "error": error }));
    check(Wire::OpenAiResponses, &json!({ "error": error }));
    let error = json!({ "code": 429, "message": message, "status": "RESOURCE_EXHAUSTED" });
    check(Wire::Gemini, &json!({ "error": error }));
    check(Wire::Ollama, &json!({ "error": message }));
    let waits =
        Error::new(ErrorKind::RateLimited, "slow").with_retry_after(Duration::from_millis(1500));
    let body: Value = serde_json::from_slice(&Answer::from(waits).to_bytes(Wire::Gemini)).unwrap();
    assert_eq!(body["error"]["details"][0]["retryDelay"], "1.5s");
}

#[test]
fn the_same_script_yields_the_same_bytes() {
    let reply = || Reply::new().think("Hm").say("Hi you").call("f", json!({ "a": [1, 2, 3] }));
    for wire in Wire::ALL {
        assert_eq!(stream_text(wire, reply()), stream_text(wire, reply()));
        let pieces = Fault::RandomSizeChunks { seed: 7, max_len: 9 };
        assert_eq!(
            stream_text(wire, Answer::reply(reply()).with_fault(pieces)),
            stream_text(wire, reply())
        );
    }
}

#[test]
fn a_body_breaks_off_at_the_configured_byte() {
    for wire in Wire::ALL {
        let whole = Answer::reply("Hi you").to_bytes(wire);
        for n in [0, 1, 50, whole.len(), whole.len() + 1] {
            let kept = &whole[..n.min(whole.len())];
            for mishap in [Fault::Cut, Fault::EndEarly, Fault::Stall, Fault::Reset] {
                let answer = Answer::reply("Hi you").with_fault(mishap(FaultPosition::Bytes(n)));
                assert_eq!(answer.to_bytes(wire), kept, "{wire} {n}");
            }
        }
        let all = parse_events(&stream_text(wire, Answer::reply("Hi you")));
        for n in 0..=all.len() + 1 {
            let answer =
                Answer::reply("Hi you").with_fault(Fault::EndEarly(FaultPosition::Events(n)));
            assert_eq!(
                parse_events(&stream_text(wire, answer)),
                all[..n.min(all.len())],
                "{wire} {n}"
            );
        }
    }
}

#[test]
fn the_end_marker_of_a_stream_can_be_omitted() {
    let left_out = |wire, mishap| {
        let whole = parse_events(&stream_text(wire, Answer::reply("Hi")));
        let left = parse_events(&stream_text(wire, Answer::reply("Hi").with_fault(mishap)));
        assert_eq!(left, whole[..left.len()]);
        whole.len() - left.len()
    };
    // The terminal events: `message_delta`, the finish reason, `response.completed`,
    // `finishReason`, `done`, and all after them.
    let terminal: Vec<_> =
        Wire::ALL.into_iter().map(|wire| left_out(wire, Fault::NoTerminalMarker)).collect();
    assert_eq!(terminal, [2, 3, 1, 1, 1]);
    let last_word: Vec<_> =
        Wire::ALL.into_iter().map(|wire| left_out(wire, Fault::NoDoneMarker)).collect();
    assert_eq!(last_word, [1, 1, 0, 0, 0]);
    for wire in Wire::ALL {
        let whole = stream_text(wire, "Hi");
        let short = stream_text(wire, Answer::reply("Hi").with_fault(Fault::NoFinalBlankLine));
        let end = if wire == Wire::Gemini { "\r\n" } else { "\n" };
        assert_eq!(short + end, whole);
    }
}

#[test]
fn framing_options_change_no_content() {
    for wire in Wire::ALL {
        let plain = stream_text(wire, "Hi you").replace("\r\n", "\n");
        for (end, text) in [(LineEnd::Lf, "\n"), (LineEnd::CrLf, "\r\n"), (LineEnd::Cr, "\r")] {
            let ended = stream_text(wire, Answer::reply("Hi you").with_fault(Fault::LineEnds(end)));
            // A carriage return alone does not end a JSON line.
            let text = if wire == Wire::Ollama && text == "\r" { "\n" } else { text };
            assert_eq!(ended, plain.replace('\n', text));
        }
        let said = parse_events(&plain);
        for noise in [Noise::Comments, Noise::BlankLines] {
            let noisy =
                stream_text(wire, Answer::reply("Hi you").with_fault(Fault::InsertNoise(noise)));
            assert_eq!(parse_events(&noisy), said, "{wire}");
            assert!(noisy.len() > plain.len());
        }
        let unknown = Answer::reply("Hi you").with_fault(Fault::InsertNoise(Noise::UnknownEvents));
        let mut unknown = parse_events(&stream_text(wire, unknown));
        assert_eq!(unknown.len(), 2 * said.len());
        unknown.retain(|(_, data)| !data.to_string().contains("sky"));
        assert_eq!(unknown, said);
    }
}

#[test]
fn keep_alives_have_the_wires_format() {
    for (wire, sign) in Wire::ALL.into_iter().zip([
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        ": keep-alive\n\n",
        "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":0}\n\n",
        "\r\ndata: {",
        r#"{"model":"","created_at":"1970-01-01T00:00:00Z","message":{"role":"assistant","content":""}"#,
    ]) {
        let alive =
            stream_text(wire, Answer::reply("Hi").with_fault(Fault::InsertNoise(Noise::Pings)));
        assert!(alive.starts_with(sign), "{alive}");
    }
}

#[test]
fn an_error_can_be_placed_after_a_number_of_events() {
    let error = Error::new(ErrorKind::Overloaded, "busy");
    for wire in Wire::ALL {
        let whole = parse_events(&stream_text(wire, Answer::reply("Hi you")));
        let failing = Answer::reply("Hi you")
            .with_fault(Fault::Error(FaultPosition::Events(3), error.clone()));
        let failed = parse_events(&stream_text(wire, failing));
        assert_eq!(failed[..3], whole[..3]);
        assert_eq!(failed.len(), 4);
        assert!(failed[3].1.to_string().contains("busy"), "{wire}");
    }
}

#[test]
fn a_compressed_body_declares_its_encoding() {
    let packed = Answer::reply("Hi").with_fault(Fault::Gzip).to_bytes(Wire::Anthropic);
    assert_eq!(packed[..3], [0x1f, 0x8b, 8]);
    assert!(!packed.windows(5).any(|window| window == b"event"));
}
