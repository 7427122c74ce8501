//! A frame that differs from the previous one only in a text is read without the parser, with the
//! same result as the parser's. White space in every other frame keeps the frames from being
//! repetitions, so that the parser reads all of them.

use futures::StreamExt;
use futures::executor::block_on;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use turnstream::History;
use turnstream_testing::Wire;

use crate::any_bytes::{any_mutation, checks, mutate_bytes, seed_folder, seed_streams};
use turnstream_test_support::wires::{decode_chunks, parse_each_frame, wire_frame};

/// The events of a body, and the kind of the error that ends it.
fn decode(wire: Wire, body: Vec<u8>) -> String {
    let events = decode_chunks(wire, "m", &History::empty("h"), [body]);
    let shown = events.map(|event| match event {
        Ok(event) => format!("{event:?}"),
        Err(error) => format!("{:?}", error.kind()),
    });
    block_on(shown.collect::<Vec<_>>()).join("\n")
}

/// The frames of the generated streams. `TEXT` stands for a string literal and `N` for a number.
fn frame_shapes(wire: Wire) -> &'static [&'static str] {
    match wire {
        Wire::OpenAiChat => &[
            r#"{"id":"1","choices":[{"index":0,"delta":{"content":TEXT}}],"created":N,"obfuscation":TEXT}"#,
            r#"{"id":"1","choices":[{"index":0,"delta":{"content":TEXT}}]}"#,
            r#"{"id":"2","choices":[{"index":0,"delta":{"content":TEXT}}]}"#,
            r#"{"id":"1","choices":[{"index":1,"delta":{"content":TEXT}}]}"#,
            r#"{"id":"1","choices":[{"index":0,"delta":{"content":TEXT,"content":TEXT}}]}"#,
            r#"{"id":"1","choices":[{"index":0,"delta":{"content":TEXT,"refusal":TEXT}}]}"#,
            r#"{"id":"1","choices":[{"index":0,"delta":{"content":"","reasoning_content":TEXT}}]}"#,
            r#"{"id":"1","choices":[{"index":0,"delta":{"reasoning":TEXT,"reasoning_content":TEXT}}]}"#,
            r#"{"id":"1","choices":[{"index":0,"delta":{"content":[{"type":"text","text":TEXT}]}}]}"#,
            r#"{"id":"1","choices":[{"index":0,"delta":{"content":TEXT}}],"usage":{"prompt_tokens":N}}"#,
            r#"{"id":"1","choices":[{"index":0,"delta":{"content":TEXT},"finish_reason":"stop"}]}"#,
            r#"{"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":N,"id":"c","function":{"name":"f","arguments":TEXT}}]}}]}"#,
            r#"{"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":N,"function":{"arguments":TEXT}}]}}]}"#,
            r#"{"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"f","arguments":TEXT}}]}}]}"#,
            r#"{"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":TEXT}}]}}]}"#,
            r#"{"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":TEXT,"function":{"arguments":"{}"}}]}}]}"#,
        ],
        Wire::Anthropic => &[
            r#"{"type":"message_start","message":{"id":"1","model":"m"}}"#,
            r#"{"type":"content_block_start","index":N,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_start","index":N,"content_block":{"type":"thinking","thinking":""}}"#,
            r#"{"type":"content_block_start","index":N,"content_block":{"type":"tool_use","id":"c","name":"f","input":{}}}"#,
            r#"{"type":"content_block_delta","index":N,"delta":{"type":"text_delta","text":TEXT}}"#,
            r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":TEXT}}"#,
            r#"{"type":"content_block_delta","index":N,"delta":{"type":"text_delta","text":TEXT,"text":TEXT}}"#,
            r#"{"type":"content_block_delta","index":N,"delta":{"type":"thinking_delta","thinking":TEXT}}"#,
            r#"{"type":"content_block_delta","index":N,"delta":{"type":"signature_delta","signature":TEXT}}"#,
            r#"{"type":"content_block_delta","index":N,"delta":{"type":"input_json_delta","partial_json":TEXT}}"#,
            r#"{"type":"content_block_delta","index":N,"delta":{"type":"text_delta","partial_json":TEXT}}"#,
            r#"{"type":"content_block_stop","index":N}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":N}}"#,
        ],
        Wire::OpenAiResponses => &[
            r#"{"type":"response.output_item.added","output_index":N,"item":{"type":"message","id":"i"}}"#,
            r#"{"type":"response.output_item.added","output_index":N,"item":{"type":"function_call","id":"i","call_id":"c","name":"f"}}"#,
            r#"{"type":"response.output_text.delta","sequence_number":N,"output_index":0,"item_id":"i","content_index":0,"delta":TEXT,"obfuscation":TEXT}"#,
            r#"{"type":"response.output_text.delta","output_index":0,"item_id":"i","content_index":N,"delta":TEXT}"#,
            r#"{"type":"response.output_text.delta","output_index":N,"item_id":TEXT,"delta":"x"}"#,
            r#"{"type":"response.refusal.delta","output_index":0,"content_index":1,"delta":TEXT}"#,
            r#"{"type":"response.reasoning_summary_text.delta","output_index":1,"summary_index":N,"delta":TEXT}"#,
            r#"{"type":"response.reasoning_text.delta","output_index":1,"content_index":0,"delta":TEXT}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":N,"item_id":"i","delta":TEXT}"#,
            r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"text":TEXT}"#,
            r#"{"type":"response.output_text.delta","output_index":0,"delta":TEXT,"delta":TEXT}"#,
        ],
        Wire::Gemini => &[
            r#"{"candidates":[{"content":{"parts":[{"text":TEXT}]},"index":0}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":N,"totalTokenCount":N},"responseId":"1"}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":TEXT}]},"index":0}],"responseId":"1"}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":TEXT}]},"index":1}],"responseId":"1"}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":TEXT,"thought":true}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":TEXT,"thoughtSignature":TEXT}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":TEXT},{"text":TEXT}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":TEXT,"text":TEXT}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":TEXT}]},"finishReason":"STOP"}],"usageMetadata":{"thoughtsTokenCount":N}}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":TEXT}]}}],"usageMetadata":{"promptTokenCount":N,"promptTokensDetails":[{"modality":"TEXT","tokenCount":N}]},"other":{"promptTokenCount":N}}"#,
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":TEXT}}}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[]},"groundingMetadata":{"q":TEXT}}]}"#,
        ],
        Wire::Ollama => &[
            r#"{"model":"m","created_at":TEXT,"message":{"role":"assistant","content":TEXT},"done":false}"#,
            r#"{"model":"m","message":{"role":"assistant","content":TEXT},"done":false}"#,
            r#"{"model":"m","message":{"role":"assistant","content":"","thinking":TEXT},"done":false}"#,
            r#"{"model":"m","message":{"content":TEXT,"thinking":TEXT},"done":false}"#,
            r#"{"model":"m","message":{"content":TEXT,"content":TEXT},"done":false}"#,
            r#"{"model":"m","message":{"content":TEXT},"eval_count":N,"done":false}"#,
            r#"{"model":"m","message":{"content":TEXT,"tool_calls":[{"function":{"name":"f","arguments":{"a":TEXT}}}]},"done":false}"#,
            r#"{"model":"m","message":{"content":TEXT},"done":true,"done_reason":"stop"}"#,
        ],
        _ => unreachable!("a wire without frames here"),
    }
}

/// String literals, with a preference for unusual ones. Not all of them are valid JSON.
fn any_literal() -> impl Strategy<Value = String> {
    let awkward = select(vec![
        r#""""#,
        r#""a""#,
        r#"" b""#,
        r#""\"}}]}""#,
        r#""\",\"content\":\"x""#,
        r#""\\""#,
        r#""\\\"""#,
        r#""\u0022""#,
        r#""\ud83d\ude00""#,
        r#""\ud83d""#,
        r#""\n\t\b\f\r\/""#,
        r#""\x""#,
        r#""<think>""#,
        r#""</think>""#,
        "\"\u{7f}\"",
        "\"\u{1}\"",
        r#""é👍""#,
        "null",
        "7",
        r#""a","b":"c""#,
        r#""a"#,
        r#"{"a":1}"#,
    ]);
    prop_oneof![
        6 => awkward.prop_map(str::to_owned),
        3 => any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        1 => "[ -~]{0,8}".prop_map(|text| format!("\"{text}\"")),
    ]
}

fn any_number() -> impl Strategy<Value = &'static str> {
    select(vec![
        "0",
        "1",
        "2",
        "10",
        "01",
        "-1",
        "1.0",
        "1e2",
        "9999999999999999999999",
        "\"1\"",
        "null",
    ])
}

/// A frame from a shape: the shape's position in hundredths of the list, its literals and its
/// numbers.
type FilledShape = (usize, Vec<String>, Vec<&'static str>);

fn fill(wire: Wire, (which, literals, numbers): &FilledShape) -> String {
    let shapes = frame_shapes(wire);
    let mut frame = shapes[which % shapes.len()].to_owned();
    for literal in literals.iter().cycle().take(4) {
        frame = frame.replacen("TEXT", literal, 1);
    }
    for number in numbers.iter().cycle().take(4) {
        frame = frame.replacen(":N", &format!(":{number}"), 1);
    }
    frame
}

/// Runs of frames of one shape, as streams have them.
fn any_frames() -> impl Strategy<Value = Vec<FilledShape>> {
    let run = (0..100_usize, vec((vec(any_literal(), 1..3), vec(any_number(), 1..3)), 1..5));
    vec(run, 1..6).prop_map(|runs| {
        let frames = runs.into_iter().flat_map(|(which, frames)| {
            frames.into_iter().map(move |(literals, numbers)| (which, literals, numbers))
        });
        frames.collect()
    })
}

fn check_same_as_parsed(wire: Wire, body: &[u8]) {
    let parsed = decode(wire, parse_each_frame(body));
    assert_eq!(decode(wire, body.to_vec()), parsed, "{wire:?}: {}", String::from_utf8_lossy(body));
}

#[test]
fn a_repeated_frame_and_its_variations_decode_the_same_on_every_wire() {
    for wire in Wire::ALL {
        for (which, _) in frame_shapes(wire).iter().enumerate() {
            for literal in [r#""x""#, r#""\"}""#, r#""é\n""#, r#""""#] {
                let frame = |literal: &str, number| {
                    wire_frame(wire, &fill(wire, &(which, vec![literal.to_owned()], vec![number])))
                };
                let frames = [frame("\"a\"", "0"), frame(literal, "0"), frame(literal, "1")];
                check_same_as_parsed(wire, frames.concat().as_bytes());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn repeated_frames_are_decoded_as_by_the_json_parser(frames in any_frames()) {
        for wire in Wire::ALL {
            let body: String =
                frames.iter().map(|frame| wire_frame(wire, &fill(wire, frame))).collect();
            check_same_as_parsed(wire, body.as_bytes());
        }
    }

    #[test]
    fn damaged_streams_are_decoded_as_by_the_json_parser(
        which in any::<usize>(),
        mutations in vec(any_mutation(), 0..4),
    ) {
        for (wire, folder) in Wire::ALL.into_iter().zip(checks::Wire::ALL.map(seed_folder)) {
            let seeds = seed_streams(folder);
            let bytes = seeds[which % seeds.len()].clone();
            check_same_as_parsed(wire, &mutations.iter().fold(bytes, mutate_bytes));
        }
    }
}
