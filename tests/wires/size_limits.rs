//! A turn with too many items is an error, which is returned without delay, whatever the items are.
//! An algorithm whose time grows faster than the body would not finish here.

use std::fmt::Write as _;

use turnstream::ErrorKind;
use turnstream::provider::openai_chat::{Dialect, ThinkTags};
use turnstream::provider::{Decode, anthropic, gemini, ollama, openai_chat, openai_responses};

use turnstream_test_support::wires::{decode_json_lines_turn, decode_sse_turn};

const ITEM_COUNT: usize = 100_000;

/// One frame with a list.
fn list_frame(head: &str, tail: &str, many: usize, element: impl Fn(usize) -> String) -> String {
    let elements: Vec<String> = (0..many).map(element).collect();
    format!("data: {head}{}{tail}\n\n", elements.join(","))
}

/// One frame for each item.
fn repeated_frames(many: usize, frame: impl Fn(usize) -> String) -> String {
    (0..many).fold(String::new(), |mut body, n| {
        write!(body, "data: {}\n\n", frame(n)).unwrap();
        body
    })
}

#[track_caller]
fn check_too_large(body: String, decoder: impl Decode + Send + 'static) {
    assert_eq!(decode_sse_turn(body, decoder).unwrap_err().kind(), ErrorKind::TooLarge);
}

fn chat_decoder() -> openai_chat::Decoder {
    let dialect =
        Dialect { parses_text_calls: true, think_tags: ThinkTags::Tagged, ..Dialect::OPENROUTER };
    openai_chat::Decoder::new("m", &dialect)
}

#[test]
fn a_chat_turn_with_too_many_calls_is_too_large() {
    let (head, tail) = ("{\"choices\":[{\"delta\":{\"tool_calls\":[", "]}}]}");
    let named = |n| format!("{{\"index\":{n},\"function\":{{\"name\":\"f\"}}}}");
    check_too_large(list_frame(head, tail, ITEM_COUNT, named), chat_decoder());
    let nameless = |n| format!("{{\"index\":{n},\"id\":\"{n}\"}}");
    check_too_large(list_frame(head, tail, ITEM_COUNT, nameless), chat_decoder());
    let tags = "<tool_call>{\\\"name\\\":\\\"f\\\"}</tool_call>".repeat(20_000);
    check_too_large(
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{tags}\"}}}}]}}\n\n"),
        chat_decoder(),
    );
}

#[test]
fn many_chat_calls_with_one_id_are_distinguished() {
    let (head, tail) =
        ("{\"choices\":[{\"delta\":{\"tool_calls\":[", "]},\"finish_reason\":\"stop\"}]}");
    let same = |n| {
        let n = n % 4000;
        format!(
            "{{\"index\":{n},\"id\":\"a\",\"function\":{{\"name\":\"f\",\"arguments\":\"{n}\"}}}}"
        )
    };
    let turn = decode_sse_turn(list_frame(head, tail, 4000, same), chat_decoder()).unwrap();
    assert_eq!(turn.calls().len(), 4000);
    assert_eq!(turn.tool_calls().last().unwrap().call_id, "a_dup3999");
}

#[test]
fn any_number_of_chat_reasoning_details_is_merged() {
    let (head, tail) =
        ("{\"choices\":[{\"delta\":{\"reasoning_details\":[", "]},\"finish_reason\":\"stop\"}]}");
    let each = |n| {
        format!("{{\"type\":\"reasoning.text\",\"text\":\"x\",\"index\":{}}}", n % (ITEM_COUNT / 2))
    };
    let turn = decode_sse_turn(list_frame(head, tail, ITEM_COUNT, each), chat_decoder()).unwrap();
    let data = turn.items()[0].provider_data.as_ref().unwrap();
    assert_eq!(data.value.as_str().matches("\"xx\"").count(), ITEM_COUNT / 2);
    let fields: Vec<String> = (0..ITEM_COUNT).map(|n| format!("\"{n}\":1")).collect();
    let wide = |_| format!("{{\"type\":\"reasoning.text\",{}}}", fields.join(","));
    assert!(decode_sse_turn(list_frame(head, tail, 2, wide), chat_decoder()).is_ok());
}

#[test]
fn an_anthropic_turn_with_too_many_blocks_is_too_large() {
    let decoder = || anthropic::Decoder::new("m");
    for block in ["text", "x", "redacted_thinking", "tool_use\",\"id\":\"a\",\"name\":\"f"] {
        let start = |n| {
            format!(
                "{{\"type\":\"content_block_start\",\"index\":{n},\"content_block\":{{\"type\":\"{block}\"}}}}"
            )
        };
        check_too_large(repeated_frames(ITEM_COUNT, start), decoder());
    }
    let head = "{\"type\":\"message_start\",\"message\":{\"content\":[";
    check_too_large(list_frame(head, "]}}", ITEM_COUNT, |_| "{\"type\":\"x\"}".into()), decoder());
}

#[test]
fn at_most_256_blocks_of_an_anthropic_turn_are_open_at_once() {
    let start = |n| {
        format!(
            "{{\"type\":\"content_block_start\",\"index\":{n},\"content_block\":{{\"type\":\"text\"}}}}"
        )
    };
    for (blocks, kind) in [(256, ErrorKind::IncompleteTurn), (257, ErrorKind::TooLarge)] {
        let body = repeated_frames(blocks, start);
        let error = decode_sse_turn(body, anthropic::Decoder::new("m")).unwrap_err();
        assert_eq!(error.kind(), kind, "{blocks} blocks: {error}");
    }
}

#[test]
fn an_item_of_a_responses_turn_has_at_most_1024_parts() {
    let part = |n| {
        format!("{{\"type\":\"response.output_text.delta\",\"content_index\":{n},\"delta\":\"x\"}}")
    };
    for (parts, kind) in [(1_024, ErrorKind::IncompleteTurn), (1_025, ErrorKind::TooLarge)] {
        let body = repeated_frames(parts, part);
        let error = decode_sse_turn(body, openai_responses::Decoder::new("m")).unwrap_err();
        assert_eq!(error.kind(), kind, "{parts} parts: {error}");
    }
}

#[test]
fn a_responses_turn_with_too_many_items_or_parts_is_too_large() {
    let decoder = || openai_responses::Decoder::new("m");
    for kind in ["message", "x", "function_call\",\"name\":\"f"] {
        let added = |n| {
            format!(
                "{{\"type\":\"response.output_item.added\",\"output_index\":{n},\"item\":{{\"type\":\"{kind}\"}}}}"
            )
        };
        check_too_large(repeated_frames(ITEM_COUNT, added), decoder());
        let head = "{\"type\":\"response.completed\",\"response\":{\"output\":[";
        check_too_large(
            list_frame(head, "]}}", ITEM_COUNT, |_| format!("{{\"type\":\"{kind}\"}}")),
            decoder(),
        );
    }
    let part = |n| {
        format!("{{\"type\":\"response.output_text.delta\",\"content_index\":{n},\"delta\":\"x\"}}")
    };
    check_too_large(repeated_frames(ITEM_COUNT, part), decoder());
}

#[test]
fn a_gemini_turn_with_too_many_parts_is_too_large() {
    for part in [
        "\"functionCall\":{\"name\":\"f\"}",
        "\"functionCall\":{\"name\":\"f\",\"willContinue\":true}",
        "\"x\":1",
    ] {
        let head = "{\"candidates\":[{\"content\":{\"parts\":[";
        let body = list_frame(head, "]}}]}", ITEM_COUNT, |_| format!("{{{part}}}"));
        check_too_large(body, gemini::Decoder::new("m"));
    }
}

#[test]
fn an_ollama_turn_with_too_many_calls_is_too_large() {
    let many = |call: &str| vec![call; ITEM_COUNT].join(",");
    for call in
        [r#"{"function":{"name":"f"}}"#, r#"{"function":{"name":"f","arguments":"{}"},"id":""}"#]
    {
        let line = format!("{{\"message\":{{\"tool_calls\":[{}]}}}}\n", many(call));
        let turn = decode_json_lines_turn(line, ollama::Decoder::new("m"));
        assert_eq!(turn.unwrap_err().kind(), ErrorKind::TooLarge);
    }
}
