//! Messages, refusals, reasoning.

use super::*;
use turnstream::turn::{ReasoningKind, StopReason};
use turnstream::{ErrorKind, Usage};

#[track_caller]
fn check_items(list: &[Value], expected: &[&str]) {
    assert_eq!(item_summaries(&decode_turn(list).unwrap()), expected);
}

/// The pieces of all deltas, with a retraction as `!`.
fn delta_pieces(list: &[Value]) -> Vec<String> {
    let piece = |event: &Result<TurnEvent, Error>| match event.as_ref().unwrap() {
        TurnEvent::TextDelta { text, .. } => Some(text.to_string()),
        TurnEvent::RefusalDelta { text, .. } => Some(format!("refusal {text:?}")),
        TurnEvent::ReasoningDelta { text, kind: ReasoningKind::Summary, .. } => {
            Some(format!("summary {text:?}"))
        }
        TurnEvent::ReasoningDelta { text, kind: ReasoningKind::Trace, .. } => {
            Some(format!("trace {text:?}"))
        }
        TurnEvent::Retracted { .. } => Some("!".to_owned()),
        _ => None,
    };
    decode_events(list).iter().filter_map(piece).collect()
}

fn summary_delta(index: u64, part: u64, delta: &str) -> Value {
    json!({ "type": "response.reasoning_summary_text.delta", "output_index": index,
        "summary_index": part, "delta": delta })
}

#[test]
fn a_message_in_the_documented_shape_is_decoded() {
    let part = json!({ "type": "output_text", "text": "", "annotations": [], "logprobs": [] });
    let list = [
        response_created(),
        json!({ "type": "response.in_progress", "response": { "id": "resp_1" } }),
        output_item_added(
            0,
            json!({ "type": "message", "id": "msg_1", "content": [], "role": "assistant" }),
        ),
        json!({ "type": "response.content_part.added", "output_index": 0, "part": part }),
        text_delta(0, "Hel"),
        text_delta(0, "lo"),
        json!({ "type": "response.output_text.done", "output_index": 0, "text": "Hello" }),
        json!({ "type": "response.content_part.done", "output_index": 0, "part":
            { "type": "output_text", "text": "Hello" } }),
        output_item_done(0, message_item("msg_1", "Hello")),
        json!({ "type": "response.completed", "response": {
            "id": "resp_1", "model": "gpt-5.1-2025", "status": "completed",
            "service_tier": "default", "output": [message_item("msg_1", "Hello")],
            "usage": { "input_tokens": 9, "input_tokens_details":
                    { "cached_tokens": 5, "cache_write_tokens": 1 },
                "output_tokens": 4, "output_tokens_details": { "reasoning_tokens": 2 } },
        } }),
    ];
    assert_eq!(delta_pieces(&list), ["Hel", "lo"]);
    let turn = decode_turn(&list).unwrap();
    assert_eq!(item_summaries(&turn), ["text Hello"]);
    assert_eq!((turn.model(), turn.response_id()), (Some("gpt-5.1-2025"), Some("resp_1")));
    assert_eq!(
        (turn.stop_reason(), turn.raw_stop_reason()),
        (&StopReason::Stop, Some("completed"))
    );
    assert_eq!(
        turn.usage(),
        Usage {
            input_tokens: 9,
            output_tokens: 4,
            cache_read_input_tokens: 5,
            cache_write_input_tokens: 1,
            reasoning_tokens: 2,
            ..Usage::default()
        }
    );
}

#[test]
fn a_null_delta_is_ignored() {
    check_items(
        &[
            text_delta(0, "a"),
            text_delta(0, Value::Null),
            text_delta(0, "b"),
            response_completed(json!([])),
        ],
        &["text ab"],
    );
}

#[test]
fn a_message_without_deltas_is_yielded_at_its_end() {
    let completed = response_completed(json!([]));
    let text_done = json!({ "type": "response.output_text.done", "output_index": 0, "text": "a" });
    let part_done = json!({ "type": "response.content_part.done", "output_index": 0, "part":
        { "type": "output_text", "text": "a" } });
    for whole in [text_done, part_done, output_item_done(0, message_item("m", "a"))] {
        check_items(&[whole, completed.clone()], &["text a"]);
    }
}

#[test]
fn text_added_by_the_done_event_is_yielded() {
    let list = [
        text_delta(0, "Hel"),
        output_item_done(0, message_item("m", "Hello")),
        response_completed(json!([])),
    ];
    assert_eq!(delta_pieces(&list), ["Hel", "lo"]);
}

#[test]
fn a_message_contradicted_by_its_done_event_is_retracted_once_and_repeated() {
    let list = [
        text_delta(0, "one"),
        output_item_done(0, message_item("m", "One")),
        text_delta(1, "two"),
        output_item_done(1, message_item("n", "Two")),
        response_completed(json!([])),
    ];
    assert_eq!(delta_pieces(&list), ["one", "two", "!", "One", "Two"]);
    let turn = decode_turn(&list).unwrap();
    assert_eq!(item_summaries(&turn), ["text One", "text Two"]);
    assert_eq!((turn.model(), turn.response_id()), (Some("gpt-5.1-2025"), Some("resp_1")));
    assert_eq!(provider_data_value(&turn.items()[1])["item"]["id"], "n");
}

#[test]
fn surrounding_white_space_and_an_empty_done_event_are_not_contradictions() {
    for whole in ["a", "a \n", ""] {
        let list = [
            text_delta(0, "a "),
            output_item_done(0, message_item("m", whole)),
            response_completed(json!([])),
        ];
        assert_eq!(delta_pieces(&list), ["a "], "{whole:?}");
    }
}

#[test]
fn deltas_after_the_end_of_their_part_or_item_are_ignored() {
    let text_done = json!({ "type": "response.output_text.done", "output_index": 0, "text": "a" });
    let list = [
        text_done,
        text_delta(0, "x"),
        output_item_done(0, message_item("m", "a")),
        text_delta(0, "y"),
        response_completed(json!([])),
    ];
    assert_eq!(delta_pieces(&list), ["a"]);
}

#[test]
fn interleaved_messages_are_kept_separate() {
    check_items(
        &[
            text_delta(0, "a"),
            text_delta(1, "x"),
            text_delta(0, "b"),
            response_completed(json!([])),
        ],
        &["text ab", "text x"],
    );
}

#[test]
fn items_with_changing_ids_are_distinguished_by_output_index() {
    let delta = |id: &str, text: &str| {
        let mut delta = text_delta(0, text);
        delta["item_id"] = id.into();
        delta
    };
    let list = [
        output_item_added(0, json!({ "type": "message", "id": "m1" })),
        delta("m2", "a"),
        delta("m3", "b"),
        output_item_done(0, message_item("m4", "ab")),
        response_completed(json!([message_item("m5", "ab")])),
    ];
    check_items(&list, &["text ab"]);
    assert_eq!(provider_data_value(&decode_turn(&list).unwrap().items()[0])["item"]["id"], "m4");
}

#[test]
fn without_an_output_index_an_item_is_found_by_id_or_is_the_newest() {
    let placeless = |mut event: Value| {
        event.as_object_mut().unwrap().shift_remove("output_index");
        event
    };
    let delta = |id: &str, text: &str| {
        let mut delta = placeless(text_delta(0, text));
        delta["item_id"] = id.into();
        delta
    };
    check_items(
        &[
            placeless(output_item_added(0, json!({ "type": "message", "id": "m1" }))),
            placeless(output_item_added(0, json!({ "type": "message", "id": "m2" }))),
            delta("m1", "a"),
            delta("m2", "x"),
            delta("", "y"),
            delta("m1", "b"),
            placeless(output_item_done(0, message_item("m1", "ab"))),
            response_completed(json!([])),
        ],
        &["text ab", "text xy"],
    );
}

#[test]
fn a_reused_output_index_is_another_item() {
    check_items(
        &[
            output_item_added(0, json!({ "type": "message", "id": "m1" })),
            text_delta(0, "a"),
            output_item_done(0, message_item("m1", "a")),
            output_item_added(0, json!({ "type": "message", "id": "m2" })),
            text_delta(0, "b"),
            output_item_done(0, message_item("m2", "b")),
            response_completed(json!([])),
        ],
        &["text a", "text b"],
    );
}

#[test]
fn a_repeated_added_or_done_event_is_one_item() {
    check_items(
        &[
            output_item_added(0, json!({ "type": "message", "id": "m1" })),
            output_item_added(0, json!({ "type": "message", "id": "m1" })),
            text_delta(0, "a"),
            output_item_done(0, message_item("m1", "a")),
            output_item_done(0, message_item("m1", "a")),
            response_completed(json!([message_item("m1", "a")])),
        ],
        &["text a"],
    );
}

#[test]
fn sequence_numbers_are_ignored() {
    let numbered = |mut event: Value, number: u64| {
        event["sequence_number"] = number.into();
        event
    };
    check_items(
        &[
            numbered(text_delta(0, "a"), 4),
            numbered(text_delta(0, "b"), 9),
            numbered(text_delta(0, "c"), 9),
            numbered(response_completed(json!([])), 0),
        ],
        &["text abc"],
    );
}

#[test]
fn unknown_events_are_ignored() {
    let mut bytes = b": comment\n\nevent: keepalive\ndata: still here\n\n\
        event: response.new_thing.delta\ndata: {\"type\":\"response.new_thing.delta\",\"delta\":{}}\n\n\
        data: {\"type\":\"keepalive\",\"sequence_number\":3}\n\ndata: null\n\ndata:\n\n"
        .to_vec();
    bytes.extend(sse_body(&[text_delta(0, "a"), response_completed(json!([]))]));
    let turn = fold_turn(decode_events_with(Decoder::new(MODEL), bytes)).unwrap();
    assert_eq!(item_summaries(&turn), ["text a"]);
}

/// As over a web socket, whose messages have no separate event name.
#[test]
fn events_are_recognized_by_type_field_or_event_name() {
    let list = [text_delta(0, "a"), response_completed(json!([]))];
    let (mut nameless, mut typeless) = (Vec::new(), Vec::new());
    for event in &list {
        write_frame(&mut nameless, None, &event.to_string());
        let mut bare = event.clone();
        bare.as_object_mut().unwrap().shift_remove("type");
        write_frame(&mut typeless, event["type"].as_str(), &bare.to_string());
    }
    for bytes in [nameless, typeless] {
        let turn = fold_turn(decode_events_with(Decoder::new(MODEL), bytes)).unwrap();
        assert_eq!(item_summaries(&turn), ["text a"]);
    }
}

#[test]
fn unexpected_fields_lose_no_text() {
    #[track_caller]
    fn check(delta: &str) {
        let done = response_completed(json!([])).to_string();
        let bytes = format!("data: {delta}\n\ndata: {done}\n\n");
        let turn = fold_turn(decode_events_with(Decoder::new(MODEL), bytes)).unwrap();
        assert_eq!(item_summaries(&turn), ["text a"], "{delta:.100}");
    }
    let delta = |fields: &str| {
        format!(r#"{{"type":"response.output_text.delta",{fields}"output_index":0,"delta":"a"}}"#)
    };
    let deep = "[".repeat(5000) + &"]".repeat(5000);
    check(&delta(r#""output_index":0,"#));
    check(&delta(r#""logprobs":1e999,"sequence_number":99999999999999999999999,"#));
    check(&delta(r#""item_id":7,"content_index":"zero","item":5,"response":[],"part":true,"#));
    check(&delta(&format!(r#""x":{deep},"item_id":{deep},"response":{deep},"#)));
    check(&delta(r#""item_id":"\ud83d","#));
}

#[test]
fn annotations_are_kept_and_logprobs_are_not() {
    let part = json!({ "type": "output_text", "text": "a", "logprobs": [{ "token": "a" }],
        "annotations": [{ "type": "url_citation", "url": "https://a.example" }] });
    let item = json!({ "type": "message", "id": "m", "role": "assistant", "content": [part] });
    let turn = decode_turn(&[
        text_delta(0, "a"),
        json!({ "type": "response.output_text.annotation.added", "output_index": 0,
            "annotation": { "type": "url_citation" } }),
        output_item_done(0, item),
        response_completed(json!([])),
    ])
    .unwrap();
    let kept = provider_data_value(&turn.items()[0]);
    assert_eq!(
        kept.pointer("/item/content/0/annotations/0/url"),
        Some(&json!("https://a.example"))
    );
    assert_eq!(kept.pointer("/item/content/0/logprobs"), None);
}

#[test]
fn the_phase_of_a_message_is_kept() {
    let mut item = message_item("m", "a");
    item["phase"] = "commentary".into();
    let turn = decode_turn(&[output_item_done(0, item), response_completed(json!([]))]).unwrap();
    assert_eq!(provider_data_value(&turn.items()[0])["item"]["phase"], "commentary");
    // The text is already in the item of the history.
    assert_eq!(provider_data_value(&turn.items()[0])["item"].get("content"), None);
}

#[test]
fn a_refusal_is_text_with_the_refusal_stop_reason() {
    let refusal = |kind: &str, field: &str, text: &str| json!({ "type": format!("response.refusal.{kind}"), "output_index": 0, field: text });
    let content = json!([{ "type": "refusal", "refusal": "I can't" }]);
    let list = [
        refusal("delta", "delta", "I "),
        refusal("delta", "delta", "can"),
        refusal("done", "refusal", "I can't"),
        output_item_done(0, json!({ "type": "message", "id": "m", "content": content })),
        response_completed(json!([])),
    ];
    assert_eq!(delta_pieces(&list), [r#"refusal "I ""#, r#"refusal "can""#, r#"refusal "'t""#]);
    let turn = decode_turn(&list).unwrap();
    assert_eq!(item_summaries(&turn), ["text I can't"]);
    assert_eq!(turn.stop_reason(), &StopReason::Refusal);
    assert_eq!(turn.raw_stop_reason(), Some("completed"));
}

#[test]
fn the_parts_of_a_summary_are_paragraphs() {
    let part = |kind: &str, index: u64| {
        json!({ "type": format!("response.reasoning_summary_part.{kind}"), "output_index": 0,
            "summary_index": index, "part": { "type": "summary_text", "text": "" } })
    };
    let list = [
        output_item_added(0, json!({ "type": "reasoning", "id": "rs_1", "summary": [] })),
        part("added", 0),
        summary_delta(0, 0, "First"),
        summary_delta(0, 0, " I"),
        part("done", 0),
        part("added", 1),
        summary_delta(0, 1, "Then"),
        json!({ "type": "response.reasoning_summary_text.done", "output_index": 0,
            "summary_index": 1, "text": "Then." }),
        output_item_done(
            0,
            json!({ "type": "reasoning", "id": "rs_1", "encrypted_content": "gA==",
            "summary": [{ "type": "summary_text", "text": "First I" },
                { "type": "summary_text", "text": "Then." }] }),
        ),
        response_completed(json!([])),
    ];
    let summary = [
        r#"summary "First""#,
        r#"summary " I""#,
        r#"summary "\n\n""#,
        r#"summary "Then""#,
        r#"summary ".""#,
    ];
    assert_eq!(delta_pieces(&list), summary);
    check_items(&list, &["reasoning First I\n\nThen."]);
}

#[test]
fn plain_reasoning_text_is_full_reasoning_and_not_a_summary() {
    let delta =
        json!({ "type": "response.reasoning_text.delta", "output_index": 0, "delta": "hm" });
    let item = json!({ "type": "reasoning", "id": "r", "summary": [],
        "content": [{ "type": "reasoning_text", "text": "hm" }] });
    let list = [delta, output_item_done(0, item.clone()), response_completed(json!([]))];
    assert_eq!(delta_pieces(&list), [r#"trace "hm""#]);
    assert_eq!(provider_data_value(&decode_turn(&list).unwrap().items()[0]), item);
}

#[test]
fn reasoning_without_deltas_is_yielded_once_at_its_end() {
    let parts = |kind: &str| json!([{ "type": kind, "text": "hm" }]);
    let item = |summary: Value, content: Value| {
        output_item_done(
            0,
            json!({ "type": "reasoning", "id": "r", "summary": summary, "content": content }),
        )
    };
    for (item, piece) in [
        (item(parts("summary_text"), json!([])), r#"summary "hm""#),
        (item(json!([]), parts("reasoning_text")), r#"trace "hm""#),
        (item(parts("summary_text"), parts("reasoning_text")), r#"summary "hm""#),
    ] {
        assert_eq!(delta_pieces(&[item, response_completed(json!([]))]), [piece]);
    }
}

#[test]
fn empty_reasoning_is_an_item_with_its_encrypted_content() {
    let mut early = reasoning_item("rs_1", "early");
    early["status"] = "in_progress".into();
    let item = reasoning_item("rs_1", "gA==");
    let turn = decode_turn(&[
        output_item_added(0, early),
        output_item_done(0, item.clone()),
        response_completed(json!([])),
    ])
    .unwrap();
    assert_eq!(item_summaries(&turn), ["reasoning "]);
    assert_eq!(provider_data_value(&turn.items()[0]), item);
    let data = turn.items()[0].provider_data.as_ref().unwrap();
    // Bound to the requested model, not to the name in the response.
    assert_eq!((data.provider.as_str(), data.model.as_str()), ("openai_responses", MODEL));
}

#[test]
fn a_chat_completions_response_is_a_protocol_error() {
    let chunk = json!({ "id": "x", "object": "chat.completion.chunk", "choices":
        [{ "index": 0, "delta": { "content": "a" } }] });
    let error = decode_turn(&[chunk]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(error.message().contains("Chat Completions"), "{error}");
}

#[test]
fn invalid_json_is_a_protocol_error() {
    let bytes = "event: response.output_text.delta\ndata: {\"delta\":\n\n";
    let error = fold_turn(decode_events_with(Decoder::new(MODEL), bytes)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
}

#[test]
fn commentary_is_yielded_and_sent_back_but_not_part_of_the_answer() {
    let phased = |id: &str, text: &str, phase: &str| {
        let mut message = message_item(id, text);
        message["phase"] = phase.into();
        message
    };
    let (on_the_way, answer) = (
        phased("msg_1", "Let me see. ", "commentary"),
        phased("msg_2", "{\"n\":7}", "final_answer"),
    );
    let list = [
        response_created(),
        output_item_added(
            0,
            json!({ "type": "message", "id": "msg_1", "content": [], "role": "assistant" }),
        ),
        text_delta(0, "Let me see. "),
        output_item_done(0, on_the_way.clone()),
        output_item_done(1, answer.clone()),
        response_completed(json!([on_the_way.clone(), answer.clone()])),
    ];
    let turn = decode_turn(&list).unwrap();
    assert_eq!(turn.text(), "Let me see. {\"n\":7}");
    assert_eq!(turn.answer(), "{\"n\":7}");
    assert_eq!(turn.parse::<std::collections::HashMap<String, u32>>().unwrap()["n"], 7);
    let marks: Vec<_> = turn.items().iter().map(|item| item.commentary).collect();
    assert_eq!(marks, [true, false]);
    // The mark is stored with the item.
    let stored = serde_json::to_string(&turn).unwrap();
    assert_eq!(serde_json::from_str::<turnstream::turn::Turn>(&stored).unwrap(), turn);
    assert!(stored.contains(r#""commentary":true"#));
    let mut items = vec![Item::user("x")];
    items.extend(turn.to_history_items());
    let request = Request::new(History::from_items("h", items));
    let sent: Value = serde_json::from_slice(&encode(&request, MODEL).unwrap()).unwrap();
    let sent_phases: Vec<_> =
        sent["input"].as_array().unwrap().iter().map(|i| i["phase"].clone()).collect();
    assert_eq!(sent_phases, [Value::Null, json!("commentary"), json!("final_answer")]);
    // Without an answer, the commentary is the only text.
    let only = decode_turn(&[
        response_created(),
        output_item_done(0, on_the_way.clone()),
        response_completed(json!([on_the_way])),
    ])
    .unwrap();
    assert_eq!(only.answer(), "Let me see. ");
}

#[test]
fn an_event_that_repeats_the_response_is_still_checked() {
    let events = |next: &str| {
        let mut body = sse_body(&[response_created()]);
        write_frame(&mut body, Some("response.in_progress"), next);
        body.extend(sse_body(&[text_delta(0, "Hi"), response_completed(json!([]))]));
        fold_turn(decode_events_with(Decoder::new(MODEL), body)).map(|turn| turn.text())
    };
    let created = response_created().to_string();
    let next = created.replace("response.created", "response.in_progress");
    assert_eq!(events(&next).unwrap(), "Hi");
    assert_eq!(events(&next[..next.len() - 1]).unwrap_err().kind(), ErrorKind::Protocol);
    let failed = next.replace("response.in_progress", "error");
    assert!(events(&failed).is_err());
}
