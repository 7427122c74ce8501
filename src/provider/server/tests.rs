//! Tests of the writers, without a script, a server or prior knowledge of the turn.

use serde_json::{Value, json};

use crate::error::{Error, ErrorKind};
use crate::item::StopReason;
use crate::provider::server::{ContentDelta, Frame, Issued, TurnStart, TurnWriter, Wire};
use crate::turn::ReasoningKind;
use crate::usage::Usage;

fn begin(wire: Wire, request: &Value, sign: fn(&str) -> Option<String>) -> TurnWriter {
    TurnWriter::new(
        wire,
        TurnStart {
            id: "own-id",
            model: "own-model",
            created_at: 1_700_000_000,
            request,
            usage: Usage::default(),
            signatures: &[],
            sign: Box::new(sign),
        },
    )
}

fn thought() -> ContentDelta {
    ContentDelta::Reasoning(ReasoningKind::Trace, "thought".into())
}

#[test]
fn each_part_of_a_turn_is_written_as_it_arrives() {
    for wire in Wire::ALL {
        let mut turn = begin(wire, &json!({}), |_| None);
        let mut frames: Vec<Frame> = Vec::new();
        let word = ContentDelta::Text("word".into());
        for (index, delta, piece) in [(0, thought(), "thought"), (1, word, "word")] {
            let new = turn.write([(index, delta)]).unwrap();
            assert!(new.iter().any(|frame| frame.data.contains(piece)), "{wire}: {new:?}");
            frames.extend(new);
        }
        let last = turn.stop(&StopReason::Stop, Usage::default()).unwrap();
        assert!(!last.is_empty(), "{wire}");
        frames.extend(last);
        // Ollama's lines have no response id.
        let has_id = frames.iter().any(|frame| frame.data.contains("own-id"));
        assert_eq!(has_id, wire != Wire::Ollama, "{wire}: {frames:?}");
    }
}

/// Anthropic signs all reasoning, Responses only if the request includes it.
#[test]
fn reasoning_is_signed_only_if_the_caller_signs_it() {
    let request = json!({ "include": ["reasoning.encrypted_content"] });
    for wire in [Wire::Anthropic, Wire::OpenAiResponses] {
        for (sign, signed) in [((|_| Some("S1".into())) as fn(&str) -> _, 1), (|_| None, 0)] {
            let mut turn = begin(wire, &request, sign);
            let mut frames = turn.write([(0, thought())]).unwrap();
            frames.extend(turn.stop(&StopReason::Stop, Usage::default()).unwrap());
            let written = frames.iter().filter(|frame| frame.data.contains("S1"));
            assert_eq!(written.count() > 0, signed > 0, "{wire}: {frames:?}");
            let is_signature = |issued: &&Issued| matches!(issued, Issued::Signature { .. });
            let issued = frames.iter().flat_map(|frame| &frame.issued);
            assert_eq!(issued.filter(is_signature).count(), signed, "{wire}");
        }
    }
}

/// Writes pieces, and returns the body and the number of pieces that continued a text.
fn body(
    wire: Wire,
    path: &str,
    pieces: &[(u32, ContentDelta)],
    may_continue: bool,
) -> (String, u32) {
    let format = wire.frame_format(path);
    let mut turn = begin(wire, &json!({}), |_| Some("S".into()));
    let (mut body, mut count, mut continued) = (Vec::new(), 0, 0);
    for (index, piece) in pieces {
        if let ContentDelta::Text(text) = piece
            && may_continue
            && turn.continue_text(*index, text, &format, &mut body)
        {
            (count, continued) = (count + 1, continued + 1);
            continue;
        }
        for frame in turn.write([(*index, piece.clone())]).unwrap() {
            body.extend_from_slice(format.encode(&frame, count).as_bytes());
            count += 1;
        }
    }
    for frame in turn.stop(&StopReason::Stop, Usage::default()).unwrap() {
        body.extend_from_slice(format.encode(&frame, count).as_bytes());
        count += 1;
    }
    (String::from_utf8(body).unwrap(), continued)
}

#[test]
fn a_continued_text_has_the_same_bytes_as_a_written_one() {
    let text = |index, text: &str| (index, ContentDelta::Text(text.to_owned()));
    let pieces = [
        text(0, "a"),
        text(0, ""),
        text(0, "\u{2028}\"\r\n\\ä"),
        (1, ContentDelta::Reasoning(crate::turn::ReasoningKind::Trace, "hm".into())),
        text(2, "b"),
        text(2, "c"),
        text(3, "another block"),
        text(3, "d"),
        (4, ContentDelta::CallStart { call_id: "x".into(), name: "f".into() }),
        (4, ContentDelta::CallArgs("{}".into())),
        (4, ContentDelta::CallEnd),
        text(5, "e"),
        text(5, "f"),
        // The call has ended the block, so that this text begins another one.
        (6, ContentDelta::CallStart { call_id: "y".into(), name: "f".into() }),
        (6, ContentDelta::CallEnd),
        text(5, "g"),
    ];
    for wire in Wire::ALL {
        for path in ["/", "/?alt=sse"] {
            let (written, _) = body(wire, path, &pieces, false);
            let (continued, count) = body(wire, path, &pieces, true);
            assert_eq!(continued, written, "{wire}");
            assert!(count >= 5, "{wire}: {count} pieces were continued");
        }
    }
}

#[test]
fn text_after_a_refusal_in_its_block_continues_it_except_on_chat() {
    let text = |text: &str| (0, ContentDelta::Text(text.to_owned()));
    let pieces = [(0, ContentDelta::Refusal("no".into())), text("a"), text("b")];
    for (wire, expected) in
        [(Wire::Anthropic, 2), (Wire::OpenAiChat, 1), (Wire::OpenAiResponses, 2)]
    {
        let (continued, count) = body(wire, "/", &pieces, true);
        assert_eq!(continued, body(wire, "/", &pieces, false).0, "{wire}");
        assert_eq!(count, expected, "{wire}");
    }
}

#[test]
fn a_signature_is_not_delayed_by_a_continued_text() {
    let text = |text: &str| (0, ContentDelta::Text(text.to_owned()));
    let signature = ContentDelta::HiddenReasoning("S1".into());
    let pieces = [text("a"), text("b"), (1, signature), text("c"), text("d")];
    for path in ["/", "/?alt=sse"] {
        let (continued, count) = body(Wire::Gemini, path, &pieces, true);
        assert_eq!(continued, body(Wire::Gemini, path, &pieces, false).0);
        assert_eq!(count, 2);
        let [b, signature, d] =
            ["\"b\"", "S1", "\"d\""].map(|part| continued.find(part).expect("it is written"));
        assert!(b < signature && signature < d, "{continued}");
    }
}

#[test]
fn a_value_is_issued_with_the_frame_that_contains_it() {
    for wire in [Wire::Anthropic, Wire::OpenAiChat, Wire::OpenAiResponses] {
        let request = json!({ "include": ["reasoning.encrypted_content"] });
        let mut turn = begin(wire, &request, |_| None);
        let hidden = ContentDelta::HiddenReasoning("S1".into());
        let text = ContentDelta::Text("word".into());
        let mut frames = turn.write([(0, text.clone()), (1, hidden), (2, text)]).unwrap();
        frames.extend(turn.stop(&StopReason::Stop, Usage::default()).unwrap());
        let issued: Vec<&Frame> = frames
            .iter()
            .filter(|frame| frame.issued.iter().any(|it| matches!(it, Issued::Signature { .. })))
            .collect();
        assert_eq!(issued.len(), 1, "{wire}: {frames:?}");
        assert!(issued[0].data.contains("S1"), "{wire}: {issued:?}");
    }
}

#[test]
fn content_that_a_wire_cannot_express_is_an_unsupported_error() {
    let refusal = || [(0, ContentDelta::Refusal("no".into()))];
    for wire in Wire::ALL {
        let found = begin(wire, &json!({}), |_| None).write(refusal());
        let is_unsupported = matches!(wire, Wire::Gemini | Wire::Ollama);
        assert_eq!(found.is_err(), is_unsupported, "{wire}");
        if let Err(error) = found {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{wire}");
            assert!(error.message().contains(&wire.to_string()), "{error}");
        }
    }
}

#[test]
fn calls_of_one_write_are_one_chunk_on_gemini() {
    let call = |index| {
        let name = format!("tool{index}");
        let start = ContentDelta::CallStart { call_id: String::new(), name };
        [
            (index, start),
            (index, ContentDelta::CallArgs("{}".into())),
            (index, ContentDelta::CallEnd),
        ]
    };
    let both =
        begin(Wire::Gemini, &json!({}), |_| None).write([call(0), call(1)].concat()).unwrap();
    assert_eq!(both.len(), 1, "{both:?}");
    let mut turn = begin(Wire::Gemini, &json!({}), |_| None);
    assert_eq!(turn.write(call(0)).unwrap().len() + turn.write(call(1)).unwrap().len(), 2);
}

#[test]
fn an_error_has_the_status_and_the_delay_of_its_vendor() {
    let error = Error::new(ErrorKind::Overloaded, "busy");
    let statuses = Wire::ALL.map(|wire| wire.error_document(&error).status);
    assert_eq!(statuses, [529, 503, 503, 503, 503]);
    let late = error.with_retry_after(std::time::Duration::from_millis(1_500));
    for wire in Wire::ALL {
        let document = wire.error_document(&late);
        match wire {
            Wire::Gemini => assert!(document.body.to_string().contains("1.5s"), "{document:?}"),
            _ => assert_eq!(document.headers, [("retry-after", "2".to_owned())], "{wire}"),
        }
        assert!(wire.error_frame(&late, 0).data.contains("busy"), "{wire}");
    }
}

#[test]
fn bytes_that_keep_a_connection_alive_are_valid_in_the_format() {
    for wire in Wire::ALL {
        let bytes = wire.keep_alive(&wire.frame_format("/?alt=sse"), 3);
        let expected = match wire {
            Wire::Anthropic => "event: ping\ndata: {\"type\":\"ping\"}\n\n",
            Wire::OpenAiChat => ": keep-alive\n\n",
            Wire::OpenAiResponses => {
                "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":3}\n\n"
            }
            Wire::Gemini => "\r\n",
            Wire::Ollama => concat!(
                r#"{"model":"","created_at":"1970-01-01T00:00:00Z","#,
                r#""message":{"role":"assistant","content":""},"done":false}"#,
                "\n"
            ),
        };
        assert_eq!(bytes, expected, "{wire}");
    }
    assert_eq!(Wire::Gemini.keep_alive(&Wire::Gemini.frame_format("/"), 0).trim(), "");
}
