//! Text, reasoning, usage, the end of a turn, and ignored lines.

use turnstream::item::StopReason;
use turnstream::turn::{ReasoningKind, TurnEvent};
use turnstream::{ErrorKind, Usage};

use super::{
    DONE_LINE, check_items, decode_ended_turn, decode_events, decode_turn, done_line,
    item_summaries, json_lines_body, message_line, text_line, thinking_line,
};

#[test]
fn text_in_several_lines_is_one_item() {
    let turn = check_items(&[&text_line("Hel"), &text_line("lo")], &["text Hello"]);
    assert_eq!((turn.stop_reason(), turn.raw_stop_reason()), (&StopReason::Stop, Some("stop")));
    assert_eq!(turn.model(), Some("qwen3:8b"));
}

#[test]
fn thinking_is_reasoning_before_the_text() {
    let turn = check_items(
        &[&thinking_line("H"), &thinking_line("m."), &text_line("Yes.")],
        &["thought Hm.", "text Yes."],
    );
    let data = turn.items()[0].provider_data.as_ref().unwrap();
    assert_eq!((data.provider.as_str(), data.model.as_str()), ("ollama", "qwen3:8b"));
    let both = message_line(r#""content":"Yes.","thinking":"Hm.""#);
    let events = decode_events([json_lines_body(&[&both, DONE_LINE]).into()]);
    let is_trace = |event: &TurnEvent| matches!(event, TurnEvent::ReasoningDelta { text, kind: ReasoningKind::Trace, .. } if **text == *"Hm.");
    assert!(is_trace(events[0].as_ref().unwrap()), "{events:?}");
}

#[test]
fn the_last_line_may_have_text() {
    let last = DONE_LINE.replace(r#""content":"""#, r#""content":"b""#);
    assert_eq!(decode_turn(&[&text_line("a"), &last]).unwrap().text(), "ab");
}

#[test]
fn every_done_reason_is_distinguished() {
    for (raw, reason) in [
        ("stop", StopReason::Stop),
        ("length", StopReason::MaxTokens),
        ("load", StopReason::Other("load".into())),
        ("unload", StopReason::Other("unload".into())),
        ("novel", StopReason::Other("novel".into())),
    ] {
        let turn = decode_turn(&[&text_line("a"), &done_line(raw)]).unwrap();
        assert_eq!((turn.stop_reason(), turn.raw_stop_reason()), (&reason, Some(raw)));
    }
}

#[test]
fn thinking_and_text_may_share_a_line_and_text_may_be_null() {
    let lines = [
        message_line(r#""content":"A","thinking":"t1""#),
        message_line(r#""content":null,"thinking":"t2""#),
        message_line(r#""content":"B""#),
    ];
    let turn = decode_ended_turn(&[&lines[0], &lines[1], &lines[2]]).unwrap();
    assert_eq!((turn.text().as_str(), turn.reasoning().as_str()), ("AB", "t1t2"));
}

#[test]
fn an_empty_body_is_incomplete_and_an_error_line_is_an_error_with_its_message() {
    assert_eq!(decode_turn(&[]).unwrap_err().kind(), ErrorKind::IncompleteTurn);
    let stopped = r#"{"error":"model runner has unexpectedly stopped"}"#;
    let error = decode_turn(&[&text_line("A"), stopped]).unwrap_err();
    assert!(error.to_string().contains("unexpectedly stopped"), "{error}");
}

#[test]
fn old_servers_end_without_a_reason() {
    for last in [r#"{"done":true}"#, r#"{"done":true,"done_reason":""}"#] {
        let turn = decode_turn(&[&text_line("a"), last]).unwrap();
        assert_eq!((turn.stop_reason(), turn.raw_stop_reason()), (&StopReason::Stop, None));
    }
}

#[test]
fn a_body_that_ends_before_done_is_an_incomplete_turn() {
    for not_done in ["", "null", "false", "\"true\"", "1"] {
        let last = format!(r#"{{"done_reason":"stop","done":{not_done}}}"#);
        let lines = [text_line("a"), last.replace(r#","done":}"#, "}")];
        let error = decode_turn(&[&lines[0], &lines[1]]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IncompleteTurn, "{not_done}");
    }
    assert_eq!(decode_turn(&[]).unwrap_err().kind(), ErrorKind::IncompleteTurn);
}

#[test]
fn usage_includes_cached_tokens() {
    let counted = |fields: &str| {
        let last = format!(r#"{{"done":true,"done_reason":"stop",{fields}}}"#);
        decode_turn(&[&text_line("a"), &last]).unwrap().usage()
    };
    let usage = |input_tokens, cache_read_input_tokens, output_tokens| Usage {
        input_tokens,
        output_tokens,
        cache_read_input_tokens,
        ..Usage::default()
    };
    assert_eq!(counted(r#""prompt_eval_count":10,"eval_count":3"#), usage(10, 0, 3));
    let cached = r#""prompt_eval_count":10,"prompt_eval_cached_count":8,"eval_count":3"#;
    assert_eq!(counted(cached), usage(10, 8, 3));
    // Servers leave out the count of a prompt that was cached as a whole.
    assert_eq!(counted(r#""eval_count":3"#), usage(0, 0, 3));
    assert_eq!(counted(r#""prompt_eval_cached_count":8"#), usage(8, 8, 0));
    assert_eq!(counted(r#""prompt_eval_count":-1,"eval_count":"3""#), usage(0, 0, 0));
    assert_eq!(counted(r#""total_duration":5"#), usage(0, 0, 0));
}

#[test]
fn an_error_at_any_position_ends_the_turn() {
    let error = r#"{"error":"an error was encountered while running the model"}"#;
    for lines in [vec![error], vec![text_line("a").as_str(), error]] {
        let told = decode_ended_turn(&lines).unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Server);
        assert!(told.message().contains("while running the model"), "{told}");
    }
    for none in ["null", "\"\"", "false"] {
        let line = format!(r#"{{"error":{none}}}"#);
        assert_eq!(
            item_summaries(&decode_ended_turn(&[&line, &text_line("a")]).unwrap()),
            ["text a"]
        );
    }
}

#[test]
fn unknown_fields_and_malformed_values_do_not_fail_the_turn() {
    for odd in [
        "{}",
        "null",
        "[]",
        "[1,[2]]",
        "5",
        "\"x\"",
        r#"{"message":null}"#,
        r#"{"message":[{"content":"x"}]}"#,
        r#"{"message":"x"}"#,
        r#"{"message":{"content":5,"thinking":[],"tool_calls":null,"novel":{}}}"#,
        r#"{"message":{"content":"","tool_calls":[]}}"#,
        r#"{"model":5,"created_at":{},"done":null,"done_reason":[],"prompt_eval_count":"x"}"#,
        r#"{"novel":[{"done":true}],"logprobs":[{"token":"x"}]}"#,
        r#"{"message":{"content":"","content":""}}"#,
        r#"{"novel":"\ud800","eval_count":1e999}"#,
    ] {
        let turn = decode_turn(&[odd, &text_line("a"), odd, DONE_LINE, odd]);
        assert_eq!(item_summaries(&turn.unwrap()), ["text a"], "{odd}");
    }
}

#[test]
fn a_lone_surrogate_in_text_is_replaced() {
    check_items(&[&text_line("a\\ud800b")], &["text a\u{fffd}b"]);
}

#[test]
fn invalid_json_is_a_protocol_error_and_a_truncated_line_is_not() {
    for odd in ["x", "{\"message\":", "<html>", "[DONE]"] {
        assert_eq!(decode_ended_turn(&[odd]).unwrap_err().kind(), ErrorKind::Protocol, "{odd}");
    }
    let cut = &DONE_LINE[..DONE_LINE.len() - 1];
    let events = decode_events([format!("{}\n{cut}", text_line("a")).into()]);
    let error = events.last().unwrap().as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
}

#[test]
fn lines_after_the_end_are_ignored() {
    for late in
        [text_line("b"), thinking_line("b"), "x".to_owned(), r#"{"error":"late"}"#.to_owned()]
    {
        let turn = decode_turn(&[&text_line("a"), DONE_LINE, &late]).unwrap();
        assert_eq!(item_summaries(&turn), ["text a"], "{late}");
    }
}
