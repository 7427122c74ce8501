//! Text, reasoning, signatures, usage, and the provider's own parts.

use turnstream::item::StopReason;
use turnstream::turn::{ReasoningKind, TurnEvent};
use turnstream::{ErrorKind, Usage, item::ItemKind};

use super::{
    check_parts, decode_body, decode_events, decode_parts, decode_turn, finish_chunk,
    item_summaries, parts_chunk,
};

#[test]
fn text_in_several_chunks_is_one_item() {
    let turn = check_parts(&[r#"{"text":"Hel"}"#, r#"{"text":"lo"}"#], &["text Hello"]);
    assert_eq!(turn.stop_reason(), &StopReason::Stop);
    assert_eq!(turn.raw_stop_reason(), Some("STOP"));
}

#[test]
fn the_model_and_the_response_id_are_decoded() {
    let chunk = r#"{"modelVersion":"gemini-3-flash-001","responseId":"r1"}"#;
    let turn = decode_turn(&[chunk, &finish_chunk("STOP")]).unwrap();
    assert_eq!((turn.model(), turn.response_id()), (Some("gemini-3-flash-001"), Some("r1")));
}

#[test]
fn a_thought_part_is_a_reasoning_summary() {
    let thought = parts_chunk(r#"{"text":"Hm.","thought":true}"#);
    let text = parts_chunk(r#"{"text":"Yes.","thought":false}"#);
    let events = decode_events(&[&thought, &text, &finish_chunk("STOP")]);
    let summary = ReasoningKind::Summary;
    let is_summary = |event: &TurnEvent| matches!(event, TurnEvent::ReasoningDelta { text, kind, .. } if **text == *"Hm." && *kind == summary);
    assert!(is_summary(events[0].as_ref().unwrap()), "{events:?}");
    check_parts(
        &[r#"{"text":"a","thoughtSignature":"c2ln"}"#],
        &[r#"text a | {"thoughtSignature":"c2ln"}"#],
    );
}

#[test]
fn an_empty_text_yields_nothing_and_does_not_split_items() {
    let events = decode_events(&[
        &parts_chunk(r#"{"text":""},{"text":"","thought":true}"#),
        &finish_chunk("STOP"),
    ]);
    assert_eq!(events.len(), 1, "{events:?}");
    check_parts(&[r#"{"text":"a"}"#, r#"{"text":""}"#, r#"{"text":"b"}"#], &["text ab"]);
}

#[test]
fn a_signed_part_is_not_merged_with_its_neighbours() {
    check_parts(
        &[
            r#"{"text":"a"}"#,
            r#"{"text":"b","thoughtSignature":"czE="}"#,
            r#"{"text":"c"}"#,
            r#"{"text":"d"}"#,
        ],
        &["text a", r#"text b | {"thoughtSignature":"czE="}"#, "text cd"],
    );
    check_parts(
        &[
            r#"{"text":"a","thought":true,"thoughtSignature":"czE="}"#,
            r#"{"text":"b","thought":true}"#,
        ],
        &[r#"thought a | {"thoughtSignature":"czE="}"#, "thought b"],
    );
}

#[test]
fn a_signature_on_an_empty_part_is_kept_in_order() {
    let turn = check_parts(
        &[
            r#"{"text":"a"}"#,
            r#"{"text":"","thoughtSignature":"czE="}"#,
            r#"{"thought":true,"thoughtSignature":"czI="}"#,
            r#"{"text":"b"}"#,
        ],
        &[
            "text a",
            r#"thought  | {"text":"","thoughtSignature":"czE="}"#,
            r#"thought  | {"thoughtSignature":"czI="}"#,
            "text b",
        ],
    );
    assert_eq!(turn.text(), "ab");
}

#[test]
fn reasoning_between_texts_separates_them() {
    check_parts(
        &[r#"{"text":"a"}"#, r#"{"text":"h","thought":true}"#, r#"{"text":"b"}"#],
        &["text a", "thought h", "text b"],
    );
}

#[test]
fn several_parts_in_one_chunk_are_decoded_in_order() {
    check_parts(
        &[r#"{"text":"h","thought":true},{"text":"a"},{"text":"b"}"#],
        &["thought h", "text ab"],
    );
}

#[test]
fn every_finish_reason_is_distinguished() {
    let filter = StopReason::ContentFilter;
    for (raw, reason) in [
        ("STOP", StopReason::Stop),
        ("MAX_TOKENS", StopReason::MaxTokens),
        ("SAFETY", filter.clone()),
        ("RECITATION", filter.clone()),
        ("BLOCKLIST", filter.clone()),
        ("PROHIBITED_CONTENT", filter.clone()),
        ("SPII", filter.clone()),
        ("LANGUAGE", filter.clone()),
        ("IMAGE_SAFETY", filter.clone()),
        ("IMAGE_PROHIBITED_CONTENT", filter.clone()),
        ("ESCALATION", filter.clone()),
        ("PUP_LIMITED_DISABLED", filter.clone()),
        ("MODEL_ARMOR", filter),
        ("OTHER", StopReason::Other("OTHER".into())),
        ("NO_IMAGE", StopReason::Other("NO_IMAGE".into())),
        ("NOVEL", StopReason::Other("NOVEL".into())),
    ] {
        let turn = decode_turn(&[&parts_chunk(r#"{"text":"a"}"#), &finish_chunk(raw)]).unwrap();
        assert_eq!((turn.stop_reason(), turn.raw_stop_reason()), (&reason, Some(raw)));
    }
}

#[test]
fn a_continuation_is_a_pause_only_if_it_has_a_token() {
    let finish =
        |token: &str| format!(r#"{{"candidates":[{{"finishReason":"CONTINUATION"{token}}}]}}"#);
    let text = parts_chunk(r#"{"text":"a"}"#);
    let turn = decode_turn(&[&text, &finish(r#","continuationToken":"dG9rZW4=""#)]).unwrap();
    assert_eq!(turn.stop_reason(), &StopReason::Pause);
    assert_eq!(turn.raw_stop_reason(), Some("CONTINUATION"));
    assert_eq!(item_summaries(&turn), ["text a", r#"own | {"continuationToken":"dG9rZW4="}"#]);
    for missing in ["", r#","continuationToken":"""#, r#","continuationToken":null"#] {
        let turn = decode_turn(&[&text, &finish(missing)]).unwrap();
        assert_eq!(turn.stop_reason(), &StopReason::MaxTokens, "{missing}");
        assert_eq!(item_summaries(&turn), ["text a"], "{missing}");
    }
}

#[test]
fn a_finish_reason_may_be_alone_or_with_the_last_text() {
    let with_text =
        r#"{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}]}"#;
    assert_eq!(decode_turn(&[&parts_chunk(r#"{"text":"a"}"#), with_text]).unwrap().text(), "ab");
    assert_eq!(
        decode_turn(&[&parts_chunk(r#"{"text":"a"}"#), &finish_chunk("STOP")]).unwrap().text(),
        "a"
    );
}

#[test]
fn a_blocked_prompt_is_a_filtered_turn() {
    let turn = decode_turn(&[
        r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":4}}"#,
    ]);
    let turn = turn.unwrap();
    assert_eq!(turn.stop_reason(), &StopReason::ContentFilter);
    assert_eq!(turn.raw_stop_reason(), Some("SAFETY"));
    assert_eq!((turn.items().len(), turn.usage().input_tokens), (0, 4));
}

#[test]
fn prompt_feedback_without_a_block_reason_is_ignored() {
    let looked = r#"{"promptFeedback":{"safetyRatings":[]}}"#;
    assert_eq!(
        decode_turn(&[looked, &parts_chunk(r#"{"text":"a"}"#), &finish_chunk("STOP")])
            .unwrap()
            .text(),
        "a"
    );
}

#[test]
fn a_candidate_without_content_or_parts_is_ignored() {
    for odd in [
        r#"{"candidates":[{}]}"#,
        r#"{"candidates":[{"content":{}}]}"#,
        r#"{"candidates":[{"content":{"role":"model"}}]}"#,
        r#"{"candidates":[{"content":null,"finishReason":null}]}"#,
        r#"{"candidates":[{"content":{"parts":null}}]}"#,
        r#"{"candidates":[{"content":{"parts":[null,1,"x",[],{}]}}]}"#,
        r#"{"candidates":[]}"#,
        r#"{"candidates":null}"#,
        r#"{"candidates":[{"finishReason":"FINISH_REASON_UNSPECIFIED"}]}"#,
        "{}",
        "null",
    ] {
        let turn =
            decode_turn(&[odd, &parts_chunk(r#"{"text":"a"}"#), odd, &finish_chunk("STOP"), odd])
                .unwrap();
        assert_eq!(item_summaries(&turn), ["text a"], "{odd}");
    }
}

#[test]
fn only_the_first_candidate_is_read() {
    let two = r#"{"candidates":[{"index":1,"content":{"parts":[{"text":"b"}]}},{"index":0,"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}"#;
    assert_eq!(decode_turn(&[two]).unwrap().text(), "a");
}

#[test]
fn content_after_a_finish_reason_reopens_the_turn_until_another_one() {
    let (a, b) = (parts_chunk(r#"{"text":"a"}"#), parts_chunk(r#"{"text":"b"}"#));
    let turn = decode_turn(&[&a, &finish_chunk("STOP"), &b, &finish_chunk("MAX_TOKENS")]).unwrap();
    assert_eq!((turn.text().as_str(), turn.stop_reason()), ("ab", &StopReason::MaxTokens));
    let thought = parts_chunk(r#"{"text":"hm","thought":true}"#);
    let code = parts_chunk(r#"{"executableCode":{"language":"PYTHON","code":"1"}}"#);
    for more in [&b, &thought, &code] {
        let error = decode_turn(&[&a, &finish_chunk("STOP"), more]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IncompleteTurn, "{more}");
        assert!(
            decode_turn(&[&a, &finish_chunk("STOP"), more, &finish_chunk("STOP")]).is_ok(),
            "{more}"
        );
    }
    // The finish reason may be in a chunk with content.
    let both = r#"{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}]}"#;
    assert_eq!(decode_turn(&[&a, &finish_chunk("STOP"), both]).unwrap().text(), "ab");
    // A malformed call is reported even after another finish reason.
    let failed =
        decode_turn(&[&a, &finish_chunk("STOP"), &finish_chunk("MALFORMED_FUNCTION_CALL")])
            .unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::GenerationFailed);
}

#[test]
fn empty_chunks_after_a_finish_reason_leave_the_turn_complete() {
    let usage = r#"{"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":2}}"#;
    let (empty, signature) =
        (parts_chunk(r#"{"text":""}"#), parts_chunk(r#"{"text":"","thoughtSignature":"s"}"#));
    let a = parts_chunk(r#"{"text":"a"}"#);
    let turn = decode_turn(&[&a, &finish_chunk("STOP"), &empty, &signature, "{}", usage]).unwrap();
    assert_eq!((turn.text().as_str(), turn.usage().output_tokens), ("a", 2));
    let twice = decode_turn(&[&a, &finish_chunk("STOP"), &finish_chunk("MAX_TOKENS")]).unwrap();
    assert_eq!(twice.stop_reason(), &StopReason::MaxTokens, "the last one counts");
}

#[test]
fn provider_executed_code_may_be_between_two_finish_reasons() {
    // As the API sends it with code execution: the finish reason is next to the code.
    let code = r#"{"candidates":[{"content":{"parts":[{"executableCode":{"language":"PYTHON","code":"print(2)"}}]},"finishReason":"STOP"}]}"#;
    let result = parts_chunk(r#"{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"2\n"}}"#);
    let turn = decode_turn(&[
        code,
        &result,
        &parts_chunk(r#"{"text":"It is 2."}"#),
        &finish_chunk("STOP"),
    ])
    .unwrap();
    assert_eq!((turn.text().as_str(), turn.items().len()), ("It is 2.", 3));
}

#[test]
fn consistent_usage_replaces_all_earlier_usage() {
    let usage = |json: &str| format!(r#"{{"usageMetadata":{json}}}"#);
    let first = usage(
        r#"{"promptTokenCount":10,"candidatesTokenCount":5,"thoughtsTokenCount":9,"totalTokenCount":24}"#,
    );
    let whole = usage(r#"{"promptTokenCount":12,"candidatesTokenCount":6,"totalTokenCount":18}"#);
    let part = usage(r#"{"promptTokenCount":12,"candidatesTokenCount":6,"totalTokenCount":27}"#);
    let a = parts_chunk(r#"{"text":"a"}"#);
    let read =
        |last: &str| decode_turn(&[&a, &first, last, &finish_chunk("STOP")]).unwrap().usage();
    assert_eq!((read(&whole).output_tokens, read(&whole).reasoning_tokens), (6, 0));
    assert_eq!((read(&part).output_tokens, read(&part).reasoning_tokens), (15, 9));
}

#[test]
fn usage_is_cumulative_and_counts_thoughts_and_tools() {
    let first = r#"{"usageMetadata":{"trafficType":"ON_DEMAND"}}"#;
    let second = r#"{"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":1}}"#;
    let last = r#"{"usageMetadata":{"promptTokenCount":20,"candidatesTokenCount":5,"thoughtsTokenCount":7,"toolUsePromptTokenCount":100,"cachedContentTokenCount":8,"totalTokenCount":132}}"#;
    let turn =
        decode_turn(&[&parts_chunk(r#"{"text":"a"}"#), first, second, last, &finish_chunk("STOP")])
            .unwrap();
    let counted = Usage {
        input_tokens: 120,
        output_tokens: 12,
        cache_read_input_tokens: 8,
        cache_write_input_tokens: 0,
        reasoning_tokens: 7,
        ..Usage::default()
    };
    assert_eq!(turn.usage(), counted);
}

#[test]
fn grounding_metadata_is_kept_with_the_last_text() {
    let grounding = |uri: &str| {
        format!(
            r#"{{"candidates":[{{"groundingMetadata":{{"groundingChunks":[{{"web":{{"uri":"{uri}"}}}}]}},"urlContextMetadata":{{}}}}]}}"#
        )
    };
    let text = parts_chunk(r#"{"text":"a"}"#);
    let before =
        decode_turn(&[&grounding("x"), &text, &grounding("x"), &finish_chunk("STOP")]).unwrap();
    let with_x = r#"text a | {"groundingMetadata":[{"groundingChunks":[{"web":{"uri":"x"}}]}]}"#;
    assert_eq!(item_summaries(&before), [with_x]);
    assert_eq!(
        item_summaries(&decode_turn(&[&text, &finish_chunk("STOP"), &grounding("x")]).unwrap()),
        [with_x]
    );
    let signed = parts_chunk(r#"{"text":"a","thoughtSignature":"czE="}"#);
    let both =
        decode_turn(&[&signed, &grounding("x"), &grounding("y"), &finish_chunk("STOP")]).unwrap();
    let data = both.items()[0].provider_data.as_ref().unwrap().value.to_value();
    assert_eq!(data["thoughtSignature"], "czE=");
    assert_eq!(data["groundingMetadata"].as_array().unwrap().len(), 2);
}

#[test]
fn the_first_64_sources_of_each_kind_are_kept() {
    let source = |n| format!(r#"{{"candidates":[{{"groundingMetadata":{{"n":{n}}}}}]}}"#);
    let mut chunks = vec![parts_chunk(r#"{"text":"a"}"#)];
    chunks.extend((0..100).map(source));
    chunks.push(finish_chunk("STOP"));
    let chunks: Vec<&str> = chunks.iter().map(|chunk| &**chunk).collect();
    let turn = decode_turn(&chunks).unwrap();
    let data = turn.items()[0].provider_data.as_ref().unwrap().value.to_value();
    let sources = data["groundingMetadata"].as_array().unwrap();
    assert_eq!((sources.len(), &sources[63]["n"]), (64, &63.into()));
}

#[test]
fn a_finish_message_is_kept_with_the_last_text() {
    let end = r#"{"candidates":[{"finishReason":"SAFETY","finishMessage":"Too dark."}]}"#;
    let turn = decode_turn(&[&parts_chunk(r#"{"text":"a"}"#), end]).unwrap();
    assert_eq!(item_summaries(&turn), [r#"text a | {"finishMessage":"Too dark."}"#]);
}

#[test]
fn provider_executed_parts_and_files_are_kept_verbatim_in_order() {
    let own = [
        r#"{"executableCode":{"language":"PYTHON","code":"1"},"thoughtSignature":"czE="}"#,
        r#"{"codeExecutionResult":{"outcome":"OUTCOME_OK"}}"#,
        r#"{"toolCall":{"toolType":"GOOGLE_SEARCH_WEB","args":{},"id":"s1"}}"#,
        r#"{"toolResponse":{"toolType":"GOOGLE_SEARCH_WEB","response":{},"id":"s1"}}"#,
        r#"{"inlineData":{"mimeType":"image/png","data":"AAAA"},"thought":true}"#,
        r#"{"fileData":{"fileUri":"u","mimeType":"v"}}"#,
        r#"{"novel":{"z":1,"a":2}}"#,
    ];
    let mut all = vec![r#"{"text":"a"}"#];
    all.extend(own);
    all.push(r#"{"text":"b"}"#);
    let turn = decode_parts(&all).unwrap();
    let mut expected = vec!["text a".to_owned()];
    expected.extend(own.map(|part| format!("own | {part}")));
    expected.push("text b".to_owned());
    assert_eq!(item_summaries(&turn), expected);
    // None of the parts is a local tool call.
    assert_eq!(turn.stop_reason(), &StopReason::Stop);
    assert_eq!(turn.tool_calls().count(), 0);
}

#[test]
fn unexpected_values_of_known_fields_do_not_fail_the_turn() {
    for odd in ["null", "1", "[]", "{}", "true", "\"\\ud800\"", "1e999"] {
        let part =
            format!(r#"{{"text":"a","thought":{odd},"thoughtSignature":null,"novel":{odd}}}"#);
        let chunk = format!(
            r#"{{"candidates":[{{"content":{{"parts":[{part}],"role":{odd}}},"safetyRatings":{odd},"finishMessage":{odd}}}],"usageMetadata":{odd},"modelVersion":{odd},"promptFeedback":{odd}}}"#,
        );
        let turn = decode_turn(&[&chunk, &finish_chunk("STOP")])
            .unwrap_or_else(|error| panic!("{odd}: {error}"));
        assert_eq!(turn.text() + &turn.reasoning(), "a", "{odd}");
    }
}

#[test]
fn text_with_a_lone_surrogate_is_decoded() {
    let turn = check_parts(&[r#"{"text":"a\ud83d"}"#], &["text a\u{fffd}"]);
    assert!(matches!(&turn.items()[0].kind, ItemKind::Text { .. }));
}

#[test]
fn an_array_of_chunks_in_one_frame_is_decoded() {
    let list = format!("[{},{}]", parts_chunk(r#"{"text":"a"}"#), finish_chunk("STOP"));
    assert_eq!(decode_turn(&[&list]).unwrap().text(), "a");
}

#[test]
fn frames_with_either_line_ending_comments_and_an_end_marker_are_decoded() {
    let text = parts_chunk(r#"{"text":"a"}"#);
    let end = finish_chunk("STOP");
    for body in [
        format!(": hi\n\ndata: {text}\n\ndata: {end}\n\n"),
        format!("data: {text}\r\n\r\n: hi\r\n\r\ndata: {end}\r\n\r\ndata: [DONE]\r\n\r\n"),
        format!("data: {text}\r\rdata: {end}"),
    ] {
        assert_eq!(decode_body(body).unwrap().text(), "a");
    }
}

#[test]
fn the_tier_and_the_searches_of_an_answer_are_reported_with_the_turn() {
    #[track_caller]
    fn check(last: &str, expected: (Option<&str>, &[(&str, u64)])) {
        let turn = decode_turn(&[&parts_chunk(r#"{"text":"a"}"#), last]).unwrap();
        let billing = turn.billing().cloned().unwrap_or_default();
        let tools: Vec<_> = billing.server_tool_calls().collect();
        assert_eq!((billing.service_tier(), &*tools), expected, "{last}");
    }
    let last = |usage: &str, grounding: &str| {
        format!(
            r#"{{"candidates":[{{"finishReason":"STOP","groundingMetadata":{grounding}}}],"usageMetadata":{usage}}}"#
        )
    };
    check(&last(r#"{"serviceTier":"standard"}"#, "{}"), (None, &[]));
    check(&last(r#"{"serviceTier":"priority"}"#, "{}"), (Some("priority"), &[]));
    check(&last(r#"{"trafficType":"ON_DEMAND"}"#, "{}"), (None, &[]));
    check(&last(r#"{"trafficType":"ON_DEMAND_FLEX"}"#, "{}"), (Some("flex"), &[]));
    let searched = r#"{"webSearchQueries":["rain","snow","rain",""]}"#;
    check(&last("{}", searched), (None, &[("web_search", 2)]));
    let places = r#"{"groundingChunks":[{"web":{}},{"maps":{"uri":"u"}}]}"#;
    check(&last("{}", places), (None, &[("google_maps", 1)]));
}

#[test]
fn the_kinds_of_tokens_that_may_have_another_price_are_reported_with_the_turn() {
    let last = r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,
        "candidatesTokenCount":8,"cachedContentTokenCount":7,
        "promptTokensDetails":[{"modality":"TEXT","tokenCount":2},{"modality":"AUDIO","tokenCount":5},
            {"modality":"IMAGE","tokenCount":2}],
        "toolUsePromptTokensDetails":[{"modality":"AUDIO","tokenCount":1}],
        "cacheTokensDetails":[{"modality":"AUDIO","tokenCount":4}],
        "candidatesTokensDetails":[{"modality":"IMAGE","tokenCount":6},{"modality":"VIDEO","tokenCount":1},
            {"modality":"AUDIO","tokenCount":1}]}}"#;
    // A frame is one line.
    let last = last.replace('\n', "");
    let turn = decode_turn(&[&parts_chunk(r#"{"text":"a"}"#), &last]).unwrap();
    let expected = [
        ("cache_read_audio", 4),
        ("input_audio", 6),
        ("output_audio", 1),
        ("output_image", 6),
        ("output_video", 1),
    ];
    assert_eq!(turn.billing().unwrap().tokens_by_kind().collect::<Vec<_>>(), expected);
}
