//! Recordings that are intentionally decoded differently than by the vendor's SDK, with the
//! reasons.

use serde_json::Value;
use turnstream::item::{Item, ResultKind, ToolCall};
use turnstream::{ErrorKind, Usage};

use super::recording::{DecodedStream, Recording, Wire};

/// A recording that is intentionally decoded differently than by the vendor's SDK.
pub(crate) struct Disagreement {
    /// Whether a recording is one of these.
    pub(crate) applies_to: fn(&Recording) -> bool,
    /// The only fields that may differ.
    pub(crate) fields: &'static [&'static str],
    pub(crate) reason: &'static str,
    /// Asserts our result.
    pub(crate) assert_ours: fn(&DecodedStream),
}

pub(crate) const DISAGREEMENTS: &[Disagreement] = &[
    Disagreement {
        applies_to: |recording| recording.name == "vercel__anthropic__spliced-message-start",
        fields: &["complete", "finish_reason", "reasoning", "signatures", "tool_calls", "usage"],
        reason: "a second message begins inside the first: the SDK goes on in the blocks of the \
              first and gives two calls that nobody wrote; the turn ends there instead",
        assert_ours: |reading| {
            let error = reading.error().expect("the second message is refused");
            assert_eq!(error.kind(), ErrorKind::Protocol);
            assert_eq!(error.message(), "a second message began inside the first");
            assert_eq!(reading.turn(), None);
            let calls = tool_calls_of(&reading.to_partial_turn().items());
            assert_eq!(calls.len(), 1);
            assert_eq!((&*calls[0].call_id, &*calls[0].name), ("toolu_first", "test-tool"));
            assert_eq!(calls[0].arguments, r#"{"value":"Spark"#);
        },
    },
    Disagreement {
        applies_to: |recording| recording.name == "anthropicsdk__incomplete_partial_json_response",
        fields: &["tool_calls"],
        reason: "the output limit cuts the arguments off: the SDK closes what is open, so that they \
              look whole; here they stay the text that came, and the call may not run",
        assert_ours: |reading| {
            let turn = reading.turn().expect("the turn is complete");
            let calls = tool_calls_of(turn.items());
            assert_eq!(calls.len(), 1);
            assert_eq!(
                (&*calls[0].call_id, &*calls[0].name),
                ("toolu_01EKqbqmZrGRXy18eN7m9kvY", "make_file"),
            );
            let cut_off = serde_json::from_str::<Value>(&calls[0].arguments).unwrap_err();
            assert!(cut_off.is_eof(), "{cut_off}");
            let veto = turn.calls().veto().expect("no call may run");
            assert_eq!(veto.result_kind, ResultKind::Truncated);
        },
    },
    Disagreement {
        applies_to: |recording| {
            recording.name == "pydantic__test_openai_test_openai_moderation_stream__0"
        },
        fields: &["usage"],
        reason: "a chunk with `usage: null` comes after the one that counts: to the SDK nothing was \
              counted then; here `null` says nothing and the count stays",
        assert_ours: |reading| {
            let turn = reading.turn().expect("the turn is complete");
            let counted = Usage { input_tokens: 13, output_tokens: 11, ..Usage::default() };
            assert_eq!(turn.usage(), counted);
        },
    },
    Disagreement {
        applies_to: |recording| {
            let forms = [r#""type":"thinking""#, r#""reasoning_details""#];
            recording.wire == Wire::OpenAiChat
                && forms.iter().any(|form| recording.contains(form))
                && recording.expected["reasoning"] == ""
        },
        fields: &["reasoning"],
        reason: "the thoughts are parts of the content, or details of their own, which the SDK of \
              another vendor passes over; here they are reasoning",
        assert_ours: |reading| {
            assert!(!reading.turn().expect("the turn is complete").reasoning().is_empty());
        },
    },
    Disagreement {
        applies_to: |recording| recording.contains(r#""chat.completion.done""#),
        fields: &["complete", "finish_reason"],
        reason: "the finish reason comes in a `chat.completion.done` chunk, which the SDK does not \
              know and passes over",
        assert_ours: |reading| assert!(reading.turn().is_some()),
    },
    Disagreement {
        applies_to: |recording| {
            let types = recording.expected["item_types"].as_array();
            recording.wire == Wire::OpenAiResponses
                && recording.expected["text"] == ""
                && recording.expected["refusal"] == ""
                && types.is_some_and(|types| types.iter().any(|kind| kind == "message"))
        },
        fields: &["item_types"],
        reason: "a message says nothing; here what says nothing is no item",
        assert_ours: |reading| {
            assert!(reading.turn().expect("the turn is complete").text().is_empty());
        },
    },
];

pub(crate) fn tool_calls_of(items: &[Item]) -> Vec<ToolCall> {
    items.iter().filter_map(Item::as_tool_call).cloned().collect()
}
