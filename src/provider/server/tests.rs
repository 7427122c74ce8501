//! Tests of the writers, without a script, a server or prior knowledge of the turn.

use serde_json::{Value, json};

use crate::item::StopReason;
use crate::provider::content_delta::ContentDelta;
use crate::provider::server::{
    FrameRole, IssuedItem, ServerFrame, ServerWire, TurnStart, TurnWriter, WriterOutput,
};
use crate::provider::{anthropic, gemini, ollama, openai_chat, openai_responses};
use crate::turn::ReasoningKind;
use crate::usage::Usage;

const WIRES: [ServerWire; 5] = [
    anthropic::server::SERVER_WIRE,
    gemini::server::SERVER_WIRE,
    ollama::server::SERVER_WIRE,
    openai_chat::server::SERVER_WIRE,
    openai_responses::server::SERVER_WIRE,
];

fn begin(
    wire: ServerWire,
    request: &Value,
    sign: fn(&str) -> Option<String>,
) -> Box<dyn TurnWriter> {
    (wire.new_turn_writer)(&TurnStart {
        id: "own-id",
        model: "own-model",
        request,
        usage: Usage::default(),
        signatures: &[],
        sign_fn: sign,
    })
}

fn thought() -> ContentDelta {
    ContentDelta::Reasoning(ReasoningKind::Trace, "thought".into())
}

#[test]
fn each_part_of_a_turn_is_written_as_it_arrives() {
    for wire in WIRES {
        let mut turn = begin(wire, &json!({}), |_| None);
        let mut frames: Vec<ServerFrame> = Vec::new();
        let word = ContentDelta::Text("word".into());
        for (index, delta, piece) in [(0, thought(), "thought"), (1, word, "word")] {
            turn.write(index, delta).unwrap();
            let new = std::mem::take(&mut turn.output().frames);
            assert!(new.iter().any(|frame| frame.data.contains(piece)), "{}: {new:?}", wire.name);
            frames.extend(new);
        }
        turn.stop(&StopReason::Stop, Usage::default()).unwrap();
        frames.append(&mut turn.output().frames);
        let ends = frames.iter().filter(|frame| frame.role == FrameRole::Terminal).count();
        assert_eq!(ends, 1, "{}: {frames:?}", wire.name);
        // Ollama's lines have no response id.
        let has_id = frames.iter().any(|frame| frame.data.contains("own-id"));
        assert_eq!(has_id, wire.name != "ollama", "{}: {frames:?}", wire.name);
    }
}

/// Anthropic signs all reasoning, Responses only if the request includes it.
#[test]
fn reasoning_is_signed_only_if_the_caller_signs_it() {
    let request = json!({ "include": ["reasoning.encrypted_content"] });
    for wire in [anthropic::server::SERVER_WIRE, openai_responses::server::SERVER_WIRE] {
        for (sign, signed) in [((|_| Some("S1".into())) as fn(&str) -> _, 1), (|_| None, 0)] {
            let mut turn = begin(wire, &request, sign);
            turn.write(0, thought()).unwrap();
            turn.stop(&StopReason::Stop, Usage::default()).unwrap();
            let WriterOutput { frames, issued } = turn.output();
            let written = frames.iter().filter(|frame| frame.data.contains("S1"));
            assert_eq!(written.count() > 0, signed > 0, "{}: {frames:?}", wire.name);
            let is_signature =
                |issued: &&IssuedItem| matches!(issued, IssuedItem::Signature { .. });
            assert_eq!(issued.iter().filter(is_signature).count(), signed, "{}", wire.name);
        }
    }
}
