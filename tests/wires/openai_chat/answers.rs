//! Envelopes, texts, usage and endings.

use serde_json::json;
use turnstream::item::ItemKind;
use turnstream::provider::openai_chat::{Dialect, ThinkTags, TurnEnd};
use turnstream::turn::{StopReason, Turn};
use turnstream::{Error, ErrorKind, Usage};

use super::{
    answer_chunks, decode_events, decode_in_dialect, decode_turn, delta_chunk, done_marker,
    finish_chunk, provider_data_texts,
};
use turnstream_test_support::wires::sse_body;

fn text_or_error_kind(turn: Result<Turn, Error>) -> Result<String, ErrorKind> {
    turn.map(|turn| turn.text()).map_err(|error| error.kind())
}

fn hi_chunk() -> String {
    delta_chunk(&json!({ "content": "hi" }))
}

#[test]
fn a_turn_ends_by_its_finish_reason_with_or_without_done_and_not_by_done_alone() {
    assert_eq!(
        text_or_error_kind(decode_turn(&[hi_chunk(), finish_chunk("stop"), done_marker()])),
        Ok("hi".into())
    );
    assert_eq!(
        text_or_error_kind(decode_turn(&[hi_chunk(), finish_chunk("stop")])),
        Ok("hi".into())
    );
    assert_eq!(text_or_error_kind(decode_turn(&[hi_chunk()])), Err(ErrorKind::IncompleteTurn));
    assert_eq!(
        text_or_error_kind(decode_turn(&[hi_chunk(), done_marker()])),
        Err(ErrorKind::IncompleteTurn)
    );
}

#[test]
fn done_ends_a_turn_without_calls_if_the_dialect_allows_it() {
    let dialect = Dialect { turn_end: TurnEnd::DoneMarker, ..Dialect::MINIMAL };
    let turn = decode_in_dialect(&dialect, &[hi_chunk(), done_marker()]).unwrap();
    assert_eq!((turn.stop_reason(), turn.raw_stop_reason()), (&StopReason::Stop, None));
    assert_eq!(
        text_or_error_kind(decode_in_dialect(&dialect, &[hi_chunk()])),
        Err(ErrorKind::IncompleteTurn)
    );
    // The response has no content.
    assert_eq!(
        text_or_error_kind(decode_in_dialect(&dialect, &[done_marker()])),
        Err(ErrorKind::IncompleteTurn)
    );
    let call = json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{}" } }]);
    let called = delta_chunk(&json!({ "tool_calls": call }));
    let unsaid = decode_in_dialect(&dialect, &[called.clone(), done_marker()]);
    assert_eq!(text_or_error_kind(unsaid), Err(ErrorKind::IncompleteTurn));
    assert!(
        decode_in_dialect(&dialect, &[called, finish_chunk("stop"), done_marker()])
            .unwrap()
            .calls()
            .veto()
            .is_none()
    );
    let written = Dialect { parses_text_calls: true, ..dialect };
    let said = delta_chunk(&json!({ "content": "<tool_call>{\"name\":\"f\"}</tool_call>" }));
    assert_eq!(
        text_or_error_kind(decode_in_dialect(&written, &[said, done_marker()])),
        Err(ErrorKind::IncompleteTurn)
    );
}

#[test]
fn done_after_the_usage_ends_a_turn_with_complete_calls_only_if_the_dialect_says_so() {
    const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
    let call = |name: &str, arguments: &str| {
        let function = json!({ "name": name, "arguments": arguments });
        let calls = json!([{ "index": 0, "id": "a", "function": function }]);
        delta_chunk(&json!({ "tool_calls": calls }))
    };
    let whole = || vec![call("f", "{\"x\":1}"), USAGE.to_owned(), done_marker()];
    let dialect = Dialect { turn_end: TurnEnd::DoneMarkerAfterUsage, ..Dialect::MINIMAL };
    let turn = decode_in_dialect(&dialect, &whole()).unwrap();
    assert_eq!((turn.stop_reason(), turn.raw_stop_reason()), (&StopReason::ToolCalls, None));
    assert!(turn.calls().veto().is_none() && turn.calls().len() == 1);
    assert_eq!(
        text_or_error_kind(decode_in_dialect(&dialect, &[hi_chunk(), done_marker()])),
        Ok("hi".into())
    );
    // Anything less may be the start of a response that was cut off.
    for cut in [
        vec![call("f", "{\"x\":1}"), done_marker()],
        vec![call("f", "{\"x\":1}"), USAGE.to_owned()],
        vec![call("f", "{\"x\":"), USAGE.to_owned(), done_marker()],
        vec![call("f", ""), USAGE.to_owned(), done_marker()],
        vec![call("", "{}"), USAGE.to_owned(), done_marker()],
    ] {
        let read = text_or_error_kind(decode_in_dialect(&dialect, &cut));
        assert_eq!(read, Err(ErrorKind::IncompleteTurn), "{cut:?}");
    }
    // Every preset requires a finish reason, as do the other settings.
    let ends = [TurnEnd::FinishReason, TurnEnd::DoneMarker, TurnEnd::BodyEnd];
    let others = ends.map(|turn_end| Dialect { turn_end, ..Dialect::MINIMAL });
    for dialect in Dialect::ALL.iter().chain(&others) {
        let read = text_or_error_kind(decode_in_dialect(dialect, &whole()));
        assert_eq!(read, Err(ErrorKind::IncompleteTurn), "{}", dialect.name);
    }
}

#[test]
fn end_of_body_ends_a_turn_without_calls_if_the_dialect_allows_it() {
    let dialect = Dialect { turn_end: TurnEnd::BodyEnd, ..Dialect::MINIMAL };
    assert_eq!(text_or_error_kind(decode_in_dialect(&dialect, &[hi_chunk()])), Ok("hi".into()));
    assert_eq!(
        text_or_error_kind(decode_in_dialect(&dialect, &[hi_chunk(), done_marker()])),
        Ok("hi".into())
    );
    assert_eq!(
        text_or_error_kind(decode_in_dialect(&dialect, &[])),
        Err(ErrorKind::IncompleteTurn)
    );
    let call = json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{}" } }]);
    let called = decode_in_dialect(&dialect, &[delta_chunk(&json!({ "tool_calls": call }))]);
    assert_eq!(text_or_error_kind(called), Err(ErrorKind::IncompleteTurn));
}

#[test]
fn comments_blank_lines_and_event_names_are_ignored() {
    let body = ": OPENROUTER PROCESSING\n\n\n\nevent: chunk\n".to_owned()
        + &sse_body(&[hi_chunk()])
        + ": still here\n\n"
        + &sse_body(&[finish_chunk("stop"), done_marker()]);
    assert_eq!(
        decode_events(body, &Dialect::OPENAI),
        decode_events(
            sse_body(&[hi_chunk(), finish_chunk("stop"), done_marker()]),
            &Dialect::OPENAI,
        )
    );
}

#[test]
fn usage_is_read_at_any_position_and_the_last_one_wins() {
    #[track_caller]
    fn check(chunks: &[&str]) {
        let mut all: Vec<String> = vec![hi_chunk()];
        all.extend(chunks.iter().map(|chunk| (*chunk).to_owned()));
        all.push(done_marker());
        let counted = Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() };
        assert_eq!(decode_turn(&all).unwrap().usage(), counted, "{chunks:?}");
    }
    const STOP_CHUNK: &str = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    const USAGE_CHUNK: &str = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
    check(&[STOP_CHUNK, USAGE_CHUNK]);
    check(&[USAGE_CHUNK, STOP_CHUNK]);
    check(&[STOP_CHUNK, USAGE_CHUNK, r#"{"choices":[],"usage":null}"#]);
    check(&[
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#,
    ]);
    check(&[
        r#"{"choices":[{"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":3,"completion_tokens":2}}]}"#,
    ]);
    check(&[
        r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#,
        USAGE_CHUNK,
        STOP_CHUNK,
    ]);
    let none = decode_turn(&[hi_chunk(), finish_chunk("stop"), done_marker()]).unwrap();
    assert_eq!(none.usage(), Usage::default());
}

#[test]
fn an_empty_usage_object_and_unknown_fields_in_a_chunk_change_nothing() {
    let turn = decode_turn(&[
        r#"{"usage":{},"extend_fields":{"traceId":"t"},"input_sensitive_type":0,"choices":[{"delta":{"content":"hi","audio_content":"","name":"x"}}]}"#.into(),
        r#"{"usage":{"total_tokens":7,"prompt_tokens":5,"completion_tokens":2,"total_characters":0},"choices":[{"delta":{},"finish_reason":"stop"}]}"#.into(),
        done_marker(),
    ])
    .unwrap();
    assert_eq!((turn.usage().input_tokens, turn.usage().output_tokens), (5, 2));
    assert_eq!(turn.text(), "hi");
}

#[test]
fn usage_field_aliases_of_servers_are_recognized() {
    #[track_caller]
    fn check(usage: &str, expected: Usage) {
        let count = format!(r#"{{"choices":[],"usage":{usage}}}"#);
        assert_eq!(
            decode_turn(&[finish_chunk("stop"), count]).unwrap().usage(),
            expected,
            "{usage}"
        );
    }
    let plain = Usage { input_tokens: 9, output_tokens: 7, ..Usage::default() };
    // Reasoning tokens are part of the output tokens, or separate, as the total shows.
    let reasoned = Usage { reasoning_tokens: 5, ..plain };
    let usage = |said: u64, total: u64| {
        format!(
            r#"{{"prompt_tokens":9,"completion_tokens":{said},"total_tokens":{total},"completion_tokens_details":{{"reasoning_tokens":5}}}}"#
        )
    };
    check(&usage(7, 16), reasoned);
    check(&usage(2, 16), reasoned);
    let cached = Usage { cache_read_input_tokens: 4, ..plain };
    for name in ["cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens"] {
        check(&format!(r#"{{"prompt_tokens":9,"completion_tokens":7,"{name}":4}}"#), cached);
    }
    let written = Usage { cache_write_input_tokens: 6, ..plain };
    check(r#"{"prompt_tokens":9,"completion_tokens":7,"cache_creation_input_tokens":6}"#, written);
}

#[test]
fn errors_in_a_stream_have_their_kind_in_every_form_and_position() {
    #[track_caller]
    fn check(error: &str, kind: ErrorKind) {
        for chunks in [vec![error.to_owned()], vec![hi_chunk(), error.to_owned()]] {
            assert_eq!(text_or_error_kind(decode_turn(&chunks)), Err(kind), "{error}");
        }
    }
    check(r#"{"error":{"message":"m","code":429}}"#, ErrorKind::RateLimited);
    check(r#"{"error":{"message":"m","code":"429"}}"#, ErrorKind::RateLimited);
    check(r#"{"error":{"message":"m","type":"server_error"}}"#, ErrorKind::Server);
    check(r#"{"error":"out of memory"}"#, ErrorKind::Server);
    check(
        r#"{"choices":[{"delta":{"content":""},"finish_reason":"error","error":{"code":502,"message":"m"}}]}"#,
        ErrorKind::Server,
    );
    check(
        r#"{"error":{"code":503,"message":"m"},"choices":[{"delta":{},"finish_reason":"error"}]}"#,
        ErrorKind::Overloaded,
    );
    check(
        r#"{"choices":[{"delta":{},"finish_reason":"stop","error":{"code":429,"message":"m"}}]}"#,
        ErrorKind::RateLimited,
    );
    check("{\"choices\":", ErrorKind::Protocol);
    check("hello", ErrorKind::Protocol);
}

#[test]
fn azures_asynchronous_filter_chunks_are_ignored() {
    let turn = decode_turn(&[
        r#"{"choices":[],"id":"","model":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{}}]}"#.into(),
        hi_chunk(),
        r#"{"choices":[{"content_filter_offsets":{"check_offset":1},"content_filter_results":{"hate":{"filtered":false}},"delta":null,"finish_reason":null,"index":0}],"id":"","model":""}"#.into(),
        r#"{"choices":[{"content_filter_offsets":{},"index":0,"finish_reason":null}]}"#.into(),
        finish_chunk("stop"),
        done_marker(),
    ])
    .unwrap();
    assert_eq!((turn.text().as_str(), turn.response_id(), turn.model()), ("hi", Some("x"), None));
}

#[test]
fn only_the_first_choice_is_decoded() {
    let turn = decode_turn(&[
        r#"{"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"length"},{"index":0,"delta":{"content":"hi"}}]}"#.into(),
        r#"{"choices":[{"index":2,"delta":{"content":"no"},"finish_reason":"stop"}]}"#.into(),
        finish_chunk("stop"),
    ]);
    assert_eq!(text_or_error_kind(turn), Ok("hi".into()));
}

#[test]
fn empty_or_changing_ids_and_models_and_unknown_fields_are_ignored() {
    let turn = decode_turn(&[
        r#"{"id":"","created":0,"model":"","choices":[]}"#.into(),
        r#"{"id":"a","model":"m1","x_groq":{"id":"r"},"provider":"P","service_tier":null,"system_fingerprint":"fp","obfuscation":"x","moderation":{"input":[]},"choices":[{"delta":{"content":"hi"},"logprobs":{"content":[]}}]}"#.into(),
        r#"{"id":"b","model":"m2","choices":[{"delta":{},"finish_reason":"stop"}]}"#.into(),
    ])
    .unwrap();
    assert_eq!((turn.response_id(), turn.model()), (Some("a"), Some("m1")));
    assert_eq!(turn.text(), "hi");
}

#[test]
fn empty_roles_and_contents_yield_no_events() {
    let silent = [
        json!({ "role": "assistant" }),
        json!({ "role": "", "content": "" }),
        json!({ "role": "assistant", "content": null, "refusal": null, "reasoning_content": "" }),
        json!({}),
    ];
    let said = decode_events(sse_body(&answer_chunks(&silent, "stop")), &Dialect::OPENAI);
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn white_space_before_a_call_is_kept_and_not_sent_back() {
    let call = json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{}" } }]);
    let said = [json!({ "content": "\n\n" }), json!({ "tool_calls": call })];
    let turn = decode_turn(&answer_chunks(&said, "tool_calls")).unwrap();
    assert_eq!(turn.text(), "\n\n");
    let messages = super::encode_messages(turn.to_history_items(), &Dialect::OPENAI);
    assert!(messages[0]["content"].is_null(), "{}", messages[0]);
}

#[test]
fn content_parts_are_text_and_reasoning() {
    let parts = [
        json!({ "content": [{ "type": "thinking", "thinking": [{ "type": "text", "text": "h" }] }] }),
        json!({ "content": [{ "type": "thinking", "thinking": [{ "text": "m" }] }, { "type": "text", "text": "hi" }] }),
        json!({ "content": [{ "type": "reference", "reference_ids": [1] }] }),
    ];
    let turn = decode_turn(&answer_chunks(&parts, "stop")).unwrap();
    assert_eq!((turn.reasoning().as_str(), turn.text().as_str()), ("hm", "hi"));
}

#[test]
fn reasoning_parts_are_reasoning_and_only_text_parts_are_the_answer() {
    let parts = [
        json!({ "content": [{ "type": "reasoning", "summary": [
            { "type": "summary_text", "text": "a" }, { "type": "summary_text", "text": "b" },
        ] }] }),
        json!({ "content": [{ "type": "reasoning", "text": "c" }, { "type": "text", "text": "hi" }] }),
        json!({ "content": [{ "type": "output_text", "text": "!" }, { "type": "tool_reference", "text": "x" }] }),
    ];
    let turn = decode_turn(&answer_chunks(&parts, "stop")).unwrap();
    assert_eq!((turn.reasoning().as_str(), turn.text().as_str()), ("abc", "hi!"));
}

#[test]
fn generated_images_are_kept_and_count_as_an_answer() {
    let picture =
        |n: u32| json!({ "type": "image_url", "image_url": { "url": format!("data:{n}") } });
    let kept = |n: u32| Some(format!(r#"{{"type":"image_url","image_url":{{"url":"data:{n}"}}}}"#));
    let said = [
        json!({ "content": "", "images": [picture(1), picture(2)] }),
        json!({ "content": [{ "type": "text", "text": "hi" }, picture(3)], "images": null }),
        json!({ "images": "none" }),
    ];
    let turn = decode_turn(&answer_chunks(&said, "stop")).unwrap();
    assert_eq!(turn.text(), "hi");
    assert_eq!(provider_data_texts(&turn), [kept(1), kept(2), None, kept(3)]);
    let alone = decode_turn(&answer_chunks(&said[..1], "stop")).unwrap();
    assert_eq!((alone.text().as_str(), alone.items().len()), ("", 2));
    assert!(alone.items().iter().all(|item| item.kind == ItemKind::Other));
}

#[test]
fn audio_is_an_unsupported_error() {
    let sound = delta_chunk(&json!({ "audio": { "id": "a", "data": "AAAA" } }));
    let error = decode_turn(&[sound]).unwrap_err();
    assert_eq!((error.kind(), error.parameter()), (ErrorKind::Unsupported, Some("audio")));
    assert_eq!(
        text_or_error_kind(decode_turn(&[
            delta_chunk(&json!({ "audio": null, "content": "hi" })),
            finish_chunk("stop")
        ])),
        Ok("hi".into())
    );
}

#[test]
fn annotations_and_citations_are_kept_with_the_text() {
    let turn = decode_turn(&[
        delta_chunk(
            &json!({ "content": "hi", "annotations": [{ "type": "url_citation", "a": 1 }] }),
        ),
        delta_chunk(&json!({ "annotations": [{ "type": "url_citation", "a": 2 }] })),
        r#"{"citations":["u"],"choices":[]}"#.into(),
        r#"{"citations":["u","v"],"choices":[]}"#.into(),
        finish_chunk("stop"),
    ])
    .unwrap();
    let kept = r#"{"annotations":[{"type":"url_citation","a":1},{"type":"url_citation","a":2}],"citations":["u","v"]}"#;
    assert_eq!(provider_data_texts(&turn), [Some(kept.to_owned())]);
    // Without any text, annotations refer to nothing.
    let alone = [json!({ "annotations": [{ "type": "url_citation" }] })];
    assert!(decode_turn(&answer_chunks(&alone, "stop")).unwrap().items().is_empty());
}

#[test]
fn finish_reasons_are_decoded_and_their_raw_values_kept() {
    use StopReason::*;
    #[track_caller]
    fn check(raw: &str, reason: &StopReason) {
        let turn = decode_turn(&[hi_chunk(), finish_chunk(raw), done_marker()]).unwrap();
        assert_eq!((turn.stop_reason(), turn.raw_stop_reason()), (reason, Some(raw)));
    }
    for raw in ["stop", "end", "eos", "eos_token", "stop_sequence", "end_turn"] {
        check(raw, &Stop);
    }
    for raw in ["tool_calls", "function_call"] {
        check(raw, &ToolCalls);
    }
    for raw in ["length", "model_length"] {
        check(raw, &MaxTokens);
    }
    check("content_filter", &ContentFilter);
    check("sensitive", &ContentFilter);
    check("model_context_window_exceeded", &ContextWindow);
    check("moon_phase", &Other("moon_phase".into()));
    for (raw, kind) in [
        ("error", ErrorKind::Server),
        ("abort", ErrorKind::Server),
        ("network_error", ErrorKind::Server),
        ("insufficient_system_resource", ErrorKind::Overloaded),
    ] {
        assert_eq!(
            text_or_error_kind(decode_turn(&[hi_chunk(), finish_chunk(raw)])),
            Err(kind),
            "{raw}"
        );
    }
    // An empty one counts as missing, in front of the real one too.
    let early = r#"{"choices":[{"delta":{"content":"hi"},"finish_reason":""}]}"#.to_owned();
    let turn = decode_turn(&[early, finish_chunk("eos_token"), done_marker()]).unwrap();
    assert_eq!((turn.stop_reason(), turn.text().as_str()), (&Stop, "hi"));
    assert_eq!(
        text_or_error_kind(decode_turn(&[hi_chunk(), finish_chunk(""), done_marker()])),
        Err(ErrorKind::IncompleteTurn)
    );
}

#[test]
fn a_finish_reason_counts_once_and_may_accompany_the_last_text() {
    let last = r#"{"choices":[{"delta":{"content":"!"},"finish_reason":"stop"}]}"#;
    let turn =
        decode_turn(&[hi_chunk(), last.into(), finish_chunk("length"), hi_chunk(), done_marker()])
            .unwrap();
    assert_eq!((turn.text().as_str(), turn.raw_stop_reason()), ("hi!", Some("stop")));
}

#[test]
fn reasoning_tags_in_text_are_split_if_the_dialect_enables_it() {
    let pieces: Vec<_> = ["<th", "ink>h", "m</", "think>\n\nhi"]
        .iter()
        .map(|piece| json!({ "content": piece }))
        .collect();
    let tagged = Dialect { think_tags: ThinkTags::Tagged, ..Dialect::MINIMAL };
    let turn = decode_in_dialect(&tagged, &answer_chunks(&pieces, "stop")).unwrap();
    assert_eq!((turn.reasoning().as_str(), turn.text().as_str()), ("hm", "hi"));
    let turn = decode_turn(&answer_chunks(&pieces, "stop")).unwrap();
    assert_eq!((turn.reasoning().as_str(), turn.text().as_str()), ("", "<think>hm</think>\n\nhi"));
    let opened = Dialect { think_tags: ThinkTags::OpenedByTemplate, ..Dialect::MINIMAL };
    let turn =
        decode_in_dialect(&opened, &answer_chunks(&[json!({ "content": "hm</think>hi" })], "stop"))
            .unwrap();
    assert_eq!((turn.reasoning().as_str(), turn.text().as_str()), ("hm", "hi"));
    // Text that was held back is emitted before the end.
    let cut = decode_in_dialect(&tagged, &answer_chunks(&[json!({ "content": "<thi" })], "stop"))
        .unwrap();
    assert_eq!(cut.text(), "<thi");
}

#[test]
fn the_service_tier_that_answered_is_reported_with_the_turn() {
    #[track_caller]
    fn check(tier: &str, expected: Option<&str>) {
        let last = finish_chunk("stop").replacen('{', &format!(r#"{{"service_tier":{tier},"#), 1);
        let turn = decode_turn(&[last]).unwrap();
        assert_eq!(turn.billing().and_then(|it| it.service_tier()), expected, "{tier}");
    }
    check(r#""priority""#, Some("priority"));
    check(r#""default""#, None);
    check(r#""on_demand""#, None);
    check("null", None);
}

/// The token counts, the calls of server tools and the kinds of tokens of an answer.
type Reported<'a> = (Usage, &'a [(&'a str, u64)], &'a [(&'a str, u64)]);

#[test]
fn what_a_provider_may_charge_at_another_price_is_reported_with_the_turn() {
    #[track_caller]
    fn check(usage: &str, (expected, tools, kinds): Reported<'_>) {
        // A frame is one line.
        let usage = usage.replace('\n', "");
        let last = finish_chunk("stop").replacen('{', &format!(r#"{{"usage":{usage},"#), 1);
        let turn = decode_turn(&[last]).unwrap();
        let billing = turn.billing().cloned().unwrap_or_default();
        assert_eq!(turn.usage(), expected, "{usage}");
        assert_eq!(billing.server_tool_calls().collect::<Vec<_>>(), tools, "{usage}");
        assert_eq!(billing.tokens_by_kind().collect::<Vec<_>>(), kinds, "{usage}");
    }
    let tokens =
        |input_tokens, output_tokens| Usage { input_tokens, output_tokens, ..Usage::default() };
    let audio = r#"{"prompt_tokens":9,"completion_tokens":8,"prompt_tokens_details":{"audio_tokens":5},
        "completion_tokens_details":{"audio_tokens":4,"image_tokens":3}}"#;
    let kinds = [("input_audio", 5), ("output_audio", 4), ("output_image", 3)];
    check(audio, (tokens(9, 8), &[], &kinds));
    let text =
        r#"{"prompt_tokens":9,"completion_tokens":8,"prompt_tokens_details":{"audio_tokens":0}}"#;
    check(text, (tokens(9, 8), &[], &[]));
    let research = r#"{"prompt_tokens":33,"completion_tokens":7163,"total_tokens":7196,
        "citation_tokens":19028,"num_search_queries":18,"reasoning_tokens":73997}"#;
    let expected = Usage { reasoning_tokens: 73_997, ..tokens(33, 7_163 + 73_997 + 19_028) };
    check(research, (expected, &[("web_search", 18)], &[("citation", 19_028)]));
    let searched = r#"{"prompt_tokens":9,"completion_tokens":8,
        "server_tool_use_details":{"web_search_requests":2},"num_sources_used":3}"#;
    check(searched, (tokens(9, 8), &[("live_search", 3), ("web_search", 2)], &[]));
}
