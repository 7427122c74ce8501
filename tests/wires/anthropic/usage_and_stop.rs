//! The data of a message besides its blocks: usage, stop reason, container.

use turnstream::Usage;
use turnstream::item::StopReason;
use turnstream::provider::anthropic;

use super::fixture::*;

fn message_with_delta(delta: &str, beside: &str) -> Vec<String> {
    let end = format!(r#"{{"type":"message_delta","delta":{delta}{beside}}}"#);
    vec![MESSAGE_START.into(), end, MESSAGE_STOP.into()]
}

#[test]
fn usage_is_cumulative_and_omitted_fields_keep_their_value() {
    #[track_caller]
    fn check(end: &str, expected: [u64; 5]) {
        let start = MESSAGE_START.replace(
            r#""input_tokens":10"#,
            r#""input_tokens":10,"cache_read_input_tokens":100,"cache_creation_input_tokens":1000"#,
        );
        let mut events = message_with_delta(r#"{"stop_reason":"end_turn"}"#, end);
        events[0] = start;
        let usage = decode_turn(&events).unwrap().usage();
        let [input_tokens, output_tokens, read, written, reasoning_tokens] = expected;
        let expected = Usage {
            input_tokens,
            output_tokens,
            cache_read_input_tokens: read,
            cache_write_input_tokens: written,
            reasoning_tokens,
            ..Usage::default()
        };
        assert_eq!(usage, expected, "{end}");
    }
    check(r#","usage":{"output_tokens":7}"#, [1110, 7, 100, 1000, 0]);
    check("", [1110, 1, 100, 1000, 0]);
    check(r#","usage":null"#, [1110, 1, 100, 1000, 0]);
    check(r#","usage":{"input_tokens":20,"output_tokens":7}"#, [1120, 7, 100, 1000, 0]);
    check(
        r#","usage":{"output_tokens":7,"output_tokens_details":{"thinking_tokens":4}}"#,
        [1110, 7, 100, 1000, 4],
    );
}

#[test]
fn iterations_of_another_model_are_kept_and_not_counted() {
    let passes = r#"[{"type":"compaction","input_tokens":500,"output_tokens":80},{"type":"message","input_tokens":10,"output_tokens":7}]"#;
    let usage = format!(r#","usage":{{"output_tokens":7,"iterations":{passes}}}"#);
    let turn = decode_turn(&message_with_delta(r#"{"stop_reason":"end_turn"}"#, &usage)).unwrap();
    assert_eq!(turn.usage().total(), 17);
    assert_eq!(
        provider_item_texts(&turn),
        [format!(r#"{{"type":"message","usage":{{"iterations":{passes}}}}}"#)]
    );
    // Fields that the usage already has are not stored twice.
    let usage = r#","usage":{"output_tokens":7,"iterations":[{"type":"message"}],"server_tool_use":{"web_search_requests":0}}"#;
    let turn = decode_turn(&message_with_delta(r#"{"stop_reason":"end_turn"}"#, usage)).unwrap();
    assert_eq!(provider_item_texts(&turn), Vec::<String>::new());
}

#[test]
fn server_tool_usage_is_kept() {
    let usage = r#","usage":{"server_tool_use":{"web_search_requests":2,"web_fetch_requests":0}}"#;
    let turn = decode_turn(&message_with_delta(r#"{"stop_reason":"end_turn"}"#, usage)).unwrap();
    let kept = r#"{"server_tool_use":{"web_search_requests":2,"web_fetch_requests":0}}"#;
    assert_eq!(provider_item_texts(&turn), [format!(r#"{{"type":"message","usage":{kept}}}"#)]);
}

#[test]
fn every_stop_reason_is_decoded_and_its_raw_value_kept() {
    #[track_caller]
    fn check(word: &str, expected: &StopReason) {
        let turn = decode_turn(&message_with_delta(&format!(r#"{{"stop_reason":"{word}"}}"#), ""))
            .unwrap();
        assert_eq!((turn.stop_reason(), turn.raw_stop_reason()), (expected, Some(word)));
    }
    check("end_turn", &StopReason::Stop);
    check("max_tokens", &StopReason::MaxTokens);
    check("stop_sequence", &StopReason::Stop);
    check("tool_use", &StopReason::ToolCalls);
    check("pause_turn", &StopReason::Pause);
    check("compaction", &StopReason::Pause);
    check("refusal", &StopReason::Refusal);
    check("model_context_window_exceeded", &StopReason::ContextWindow);
    check("sensitive", &StopReason::ContentFilter);
    check("eos_token", &StopReason::Stop);
    check("moon_phase", &StopReason::Other("moon_phase".into()));
}

#[test]
fn a_stop_without_a_reason_runs_no_calls() {
    let call = r#"{"type":"tool_use","id":"t1","name":"f","input":{}}"#;
    let null = r#"{"type":"message_delta","delta":{"stop_reason":null}}"#;
    let events = [
        MESSAGE_START.into(),
        content_block_start(0, call),
        content_block_stop(0),
        null.into(),
        MESSAGE_STOP.into(),
    ];
    let turn = decode_turn(&events).unwrap();
    assert_eq!(turn.stop_reason(), &StopReason::Other("message_stop".into()));
    assert!(turn.calls().veto().is_some());
}

#[test]
fn the_matched_stop_sequence_is_kept() {
    let delta = r#"{"stop_reason":"stop_sequence","stop_sequence":"🌊\n"}"#;
    let turn = decode_turn(&message_with_delta(delta, "")).unwrap();
    assert_eq!(provider_item_texts(&turn), ["{\"type\":\"message\",\"stop_sequence\":\"🌊\\n\"}"]);
    assert_eq!(turn.raw_stop_reason(), Some("stop_sequence"));
}

#[test]
fn the_details_of_a_refusal_are_kept_and_not_sent() {
    let details = r#"{"type":"refusal","category":"cyber","explanation":"No."}"#;
    let delta = format!(r#"{{"stop_reason":"refusal","stop_details":{details}}}"#);
    let turn = decode_turn(&message_with_delta(&delta, "")).unwrap();
    assert_eq!(turn.stop_reason(), &StopReason::Refusal);
    assert_eq!(
        provider_item_texts(&turn),
        [format!(r#"{{"type":"message","stop_details":{details}}}"#)]
    );
    assert!(!encode_items(items_with_follow_up(&turn)).contains("cyber"));
}

#[test]
fn input_transformations_of_the_vendor_are_kept_and_decoded() {
    let dropped = r#"{"type":"thinking_dropped","path":"messages.1.content.0","reason":"prefix_binding_mismatch"}"#;
    let at_start = MESSAGE_START.replace(
        r#""content":[]"#,
        &format!(r#""content":[],"input_transformations":[{dropped}]"#),
    );
    let delta = r#"{"stop_reason":"end_turn"}"#;
    let mut events = message_with_delta(delta, "");
    events[0] = at_start;
    let turn = decode_turn(&events).unwrap();
    assert_eq!(
        provider_item_texts(&turn),
        [format!(r#"{{"type":"message","input_transformations":[{dropped}]}}"#)]
    );
    let changes = anthropic::input_transformations(&turn);
    let told: Vec<_> = changes.iter().map(|c| [&*c.kind, &*c.path, &*c.reason]).collect();
    assert_eq!(told, [["thinking_dropped", "messages.1.content.0", "prefix_binding_mismatch"]]);
    assert!(!encode_items(items_with_follow_up(&turn)).contains("thinking_dropped"));
    // It may be repeated at the end, by the model that has answered.
    let again = dropped.replace("messages.1", "messages.3");
    let top =
        format!(r#"{{"type":"message_delta","delta":{delta},"input_transformations":[{again}]}}"#);
    let last = events.len() - 2;
    events[last] = top;
    let changes = anthropic::input_transformations(&decode_turn(&events).unwrap());
    assert_eq!(changes[0].path, "messages.3.content.0");
    // Nothing was changed.
    let none =
        MESSAGE_START.replace(r#""content":[]"#, r#""content":[],"input_transformations":[]"#);
    let mut events = message_with_delta(delta, "");
    events[0] = none;
    assert!(provider_item_texts(&decode_turn(&events).unwrap()).is_empty());
}

#[test]
fn cache_writes_are_summed_by_ttl_if_no_total_is_reported() {
    let usage = |usage: &str| {
        let turn = decode_turn(&message_with_delta(
            r#"{"stop_reason":"end_turn"}"#,
            &format!(r#","usage":{usage}"#),
        ))
        .unwrap();
        turn.usage().cache_write_input_tokens
    };
    let by_age =
        r#""cache_creation":{"ephemeral_5m_input_tokens":3,"ephemeral_1h_input_tokens":4}"#;
    assert_eq!(usage(&format!("{{{by_age}}}")), 7);
    assert_eq!(usage(&format!(r#"{{{by_age},"cache_creation_input_tokens":9}}"#)), 9);
    assert_eq!(usage(r#"{"cache_creation":null}"#), 0);
}

#[test]
fn cache_writes_for_an_hour_are_counted_by_themselves() {
    #[track_caller]
    fn check(usage: &str, expected: (u64, u64)) {
        let end = format!(r#","usage":{{"output_tokens":7,{usage}}}"#);
        let turn = decode_turn(&message_with_delta(r#"{"stop_reason":"end_turn"}"#, &end)).unwrap();
        let usage = turn.usage();
        let written = (usage.cache_write_input_tokens, usage.cache_write_1h_input_tokens);
        assert_eq!(written, expected, "{end}");
        assert_eq!(usage.input_tokens, 10 + expected.0, "{end}");
    }
    let split =
        r#""cache_creation":{"ephemeral_5m_input_tokens":30,"ephemeral_1h_input_tokens":12}"#;
    check(split, (42, 12));
    check(&format!(r#""cache_creation_input_tokens":42,{split}"#), (42, 12));
    check(r#""cache_creation_input_tokens":42"#, (42, 0));
    // A count that contradicts the total does not exceed it.
    check(&format!(r#""cache_creation_input_tokens":5,{split}"#), (5, 5));
}

#[test]
fn what_affects_the_price_is_reported_with_the_turn() {
    #[track_caller]
    fn check(usage: &str, tier: Option<&str>, tools: &[(&str, u64)]) {
        let end = format!(r#","usage":{{"output_tokens":7,{usage}}}"#);
        let turn = decode_turn(&message_with_delta(r#"{"stop_reason":"end_turn"}"#, &end)).unwrap();
        let billing = turn.billing().cloned().unwrap_or_default();
        assert_eq!(billing.service_tier(), tier, "{usage}");
        assert_eq!(billing.server_tool_calls().collect::<Vec<_>>(), tools, "{usage}");
    }
    check(r#""service_tier":"standard""#, None, &[]);
    check(r#""service_tier":"priority""#, Some("priority"), &[]);
    check(r#""service_tier":"standard","speed":"fast""#, Some("fast"), &[]);
    check(r#""service_tier":"standard","speed":"standard""#, None, &[]);
    check(r#""service_tier":"standard","inference_geo":"global""#, None, &[]);
    check(r#""service_tier":"standard","inference_geo":"us""#, Some("inference_geo:us"), &[]);
    let tools = r#""server_tool_use":{"web_search_requests":2,"web_fetch_requests":0}"#;
    check(tools, None, &[("web_search", 2)]);
    // The tokens of these iterations are not part of the message's counts.
    let others = r#"{"type":"advisor_message"},{"type":"advisor_message"}"#;
    let passes = r#"{"type":"compaction","output_tokens":83},{"type":"message"}"#;
    check(
        &format!(r#""iterations":[{passes},{others}]"#),
        None,
        &[("advisor", 2), ("compaction", 1)],
    );
    check(r#""iterations":[{"type":"message"}]"#, None, &[]);
}
