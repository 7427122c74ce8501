//! Bytes: the prompt cache prefix, stream transforms, and frames that are split anywhere.

use std::time::Duration;

use futures::executor::block_on;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use turnstream::event::EndReason;
use turnstream::provider::openai_chat::{Decoder, Dialect, ThinkTags};
use turnstream::provider::{Decoding, Provider, Reply, Scripted};
use turnstream::stream::{TurnStream, TurnStreamExt, seal};
use turnstream::turn::StopReason;
use turnstream::{Error, ErrorKind, Event, History, Item, Request, TurnEvent};
use turnstream_testing::{Answer, Wire};

use turnstream_test_support::models::WireProvider;
use turnstream_test_support::runs::{limits_with_max_turns, test_agent};
use turnstream_test_support::tools::{spec, uncounted_tool};
use turnstream_test_support::wires::{decode_events, decode_stream, encode, framing_variants};
use turnstream_test_support::world::finish_run;

/// The content blocks of a body, in order, each with the role of its message. Cache marks are
/// ignored.
fn content_blocks(wire: Wire, body: &Value) -> Vec<String> {
    let (messages, content) = match wire {
        Wire::Anthropic => ("messages", Some("content")),
        Wire::OpenAiChat | Wire::Ollama => ("messages", None),
        Wire::OpenAiResponses => ("input", None),
        _ => ("contents", Some("parts")),
    };
    let mut blocks = Vec::new();
    for message in body[messages].as_array().unwrap() {
        match content.and_then(|content| message[content].as_array()) {
            Some(parts) => blocks.extend(parts.iter().map(|part| {
                let mut part = part.clone();
                part.as_object_mut().map(|fields| fields.shift_remove("cache_control"));
                format!("{} {part}", message["role"])
            })),
            None => blocks.push(message.to_string()),
        }
    }
    blocks
}

/// The part of a request before the messages: the instructions and the tools.
fn request_head(body: &Value) -> String {
    let names = ["system", "instructions", "systemInstruction", "system_instruction", "tools"];
    names.iter().map(|name| body[*name].to_string().replace("\"cache_control\"", "")).collect()
}

mod prompt_cache_prefix {
    //! Each request of a run extends the previous one, so that prompt caches stay valid.

    use super::*;

    #[tokio::test]
    async fn each_request_of_a_run_extends_the_previous_one() {
        for wire in Wire::ALL {
            let replies = [
                Reply::new()
                    .think("hm")
                    .say("two")
                    .call_raw("same", "t", "{\"ms\":1}")
                    .call("t", json!({})),
                // A repeated id, an unknown tool, invalid arguments.
                Reply::new().call_raw("same", "t", "{}").call("nobody", json!({})),
                Reply::new().call_raw("odd", "t", "{\"ms\":\"x\"}"),
                Reply::text("cut").stop(StopReason::MaxTokens),
                Reply::text("done"),
            ];
            let model = WireProvider::new(wire, "m", replies);
            let agent =
                test_agent(model.clone()).with_tools([uncounted_tool("t")]).with_system("be brief");
            finish_run(agent.run("go")).await.check_outcome(EndReason::Completed, 5);
            let sent = model.sent_bodies();
            let bodies: Vec<_> = sent.iter().map(|body| content_blocks(wire, body)).collect();
            assert_eq!(bodies.len(), 5);
            for (n, pair) in bodies.windows(2).enumerate() {
                assert!(pair[1].len() > pair[0].len(), "{wire} {n}");
                assert_eq!(pair[1][..pair[0].len()], pair[0][..], "{wire} {n}");
            }
            assert!(sent.iter().all(|body| request_head(body) == request_head(&sent[0])), "{wire}");
        }
    }

    #[test]
    fn history_repairs_are_deterministic() {
        let items = [
            Item::user("u"),
            Item::tool_call("a", "t", "{}"),
            Item::user("u"),
            Item::tool_call("a", "t", "{\"ms\":"),
            Item::user("u"),
        ];
        let request = |id: &str| {
            Request::new(History::from_items(id, items.to_vec())).with_tools([spec("t")])
        };
        for wire in Wire::ALL {
            let body = encode(wire, "m", &request("h"));
            assert_eq!(encode(wire, "m", &request("h")), body, "{wire}");
            assert_eq!(encode(wire, "m", &request("another")), body, "{wire}: not even of its id");
            // Later items do not change the prefix.
            let mut longer = History::from_items("h", items.to_vec());
            longer.extend([Item::text("x"), Item::user("y")]);
            let longer = encode(wire, "m", &Request::new(longer).with_tools([spec("t")]));
            let (short, long) = (content_blocks(wire, &body), content_blocks(wire, &longer));
            assert_eq!(long[..short.len()], short[..], "{wire}");
        }
    }
}

/// A provider whose stream is stopped after a number of events.
struct InterruptedProvider(Scripted, usize);

impl Provider for InterruptedProvider {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let history = request.history.clone();
        self.0.stream_turn(request).take(self.1).seal(&history)
    }

    fn model(&self) -> &str {
        self.0.model()
    }
}

mod turn_transforms {
    //! Transforms that end, fail or reorder the stream of a turn.

    use super::*;

    #[tokio::test]
    async fn a_transform_that_ends_the_stream_leaves_one_ending_and_no_calls() {
        let script = || Scripted::new([Reply::text("one two").call("t", json!({ "ms": 1 }))]);
        let whole = script().stream_turn(Request::new(History::empty("h"))).count().await;
        assert!(whole > 5);
        for events in 0..whole {
            // `finish_run` checks the counts, and that the run ends once.
            let finished = finish_run(
                test_agent(InterruptedProvider(script(), events))
                    .with_tools([uncounted_tool("t")])
                    .run("go"),
            )
            .await;
            finished.check_outcome(EndReason::Incomplete, 1);
            assert_eq!(finished.tool_start_count(), 0, "stopped after {events}");
        }
        let finished = finish_run(
            test_agent(InterruptedProvider(script(), whole))
                .with_limits(limits_with_max_turns(1))
                .run("go"),
        )
        .await;
        finished.check_outcome(EndReason::MaxTurns, 1);
    }

    #[tokio::test]
    async fn an_error_from_a_transform_is_the_runs_error() {
        struct FailingProvider(Scripted);
        impl Provider for FailingProvider {
            fn stream_turn(&self, request: Request) -> TurnStream {
                let history = request.history.clone();
                let objection = |event: Result<TurnEvent, Error>| match event {
                    Ok(TurnEvent::TextDelta { text, .. }) if text.contains("two") => {
                        Err(Error::new(ErrorKind::Other, "not that word"))
                    }
                    event => event,
                };
                self.0.stream_turn(request).map(objection).seal(&history)
            }
            fn model(&self) -> &str {
                self.0.model()
            }
        }
        let finished =
            finish_run(test_agent(FailingProvider(Scripted::new(["one two three"]))).run("go"))
                .await;
        finished.check_outcome(EndReason::ProviderError, 1);
        assert_eq!(
            (finished.text(), finished.outcome.error.as_ref().unwrap().kind()),
            ("one ", ErrorKind::Other)
        );
    }

    #[test]
    fn a_transform_that_splits_reasoning_from_text_keeps_their_order() {
        let tagged = Dialect { think_tags: ThinkTags::Tagged, ..Dialect::MINIMAL };
        let text = "<think>first\nsecond</think>third fourth";
        let cuts = 0..=text.len();
        for (from, to) in cuts.clone().flat_map(|from| cuts.clone().map(move |to| (from, to))) {
            if from > to {
                continue;
            }
            let pieces = [&text[..from], &text[from..to], &text[to..]];
            let mut body = String::new();
            for piece in pieces {
                let chunk = json!({ "choices": [{ "delta": { "content": piece } }] });
                body.extend(["data: ", &chunk.to_string(), "\n\n"]);
            }
            body.push_str(
                "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
            );
            let decoding =
                Decoding::new(stream::iter([Ok(body.into())]), Decoder::new("m", &tagged));
            let events = block_on(seal(&History::empty("h"), decoding).collect::<Vec<_>>());
            let (mut thought, mut said) = (String::new(), String::new());
            for event in events {
                match event.unwrap() {
                    TurnEvent::ReasoningDelta { text, .. } => {
                        assert!(said.is_empty(), "thoughts come first");
                        thought.push_str(&text);
                    }
                    TurnEvent::TextDelta { text, .. } => said.push_str(&text),
                    _ => {}
                }
            }
            assert_eq!((thought.as_str(), said.as_str()), ("first\nsecond", "third fourth"));
        }
    }
}

mod split_frames {
    //! Bodies that are split at any byte decode to the same turn.

    use super::*;

    #[test]
    fn a_body_split_at_any_byte_decodes_to_the_same_turn() {
        let reply = || Reply::text("\u{e9}\u{1f44d}\u{2028}");
        for wire in Wire::ALL {
            let bodies = framing_variants(wire, &reply());
            let expected = decode_events(wire, [bodies[0].clone()]);
            assert!(matches!(expected.last(), Some(TurnEvent::TurnComplete { .. })));
            // LF; CRLF, comments and a byte order mark; CR without the last blank line, and a byte
            // order mark.
            for n in [0, 13, 21] {
                let body = &bodies[n];
                for at in 0..=body.len() {
                    let found = decode_events(wire, [body[..at].to_vec(), body[at..].to_vec()]);
                    assert!(found == expected, "{wire}, body {n}, cut at {at}");
                }
            }
        }
    }

    #[test]
    fn several_data_lines_form_one_frame() {
        let body = "data: {\"choices\":[{\"delta\":\ndata: {\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
        let found = decode_events(Wire::OpenAiChat, [body.as_bytes().to_vec()]);
        let said = found.into_iter().map(Event::from).find_map(|event| event.text_delta().cloned());
        assert_eq!(said.as_deref(), Some("hi"));
    }

    /// Gemini has no marker after its finish reason: the turn ends with the body, or at a timeout.
    #[tokio::test(start_paused = true)]
    async fn a_connection_left_open_after_the_end_marker_does_not_delay_the_turn() {
        for wire in Wire::ALL.into_iter().filter(|wire| *wire != Wire::Gemini) {
            let body = Answer::reply("hello").to_bytes(wire);
            let open = stream::iter([Ok(body.into())]).chain(stream::pending());
            let turn = decode_stream(wire, "m", &History::empty("h"), open).into_turn();
            let turn = tokio::time::timeout(Duration::from_secs(1), turn).await;
            assert_eq!(turn.expect("it ends").unwrap().text(), "hello", "{wire}");
        }
    }

    #[test]
    fn only_a_line_feed_terminates_a_json_line() {
        let line = |text: &str| {
            serde_json::to_string(&Event::Appended {
                why: turnstream::event::AppendReason::Input,
                id: "i".into(),
                items: vec![Item::user(text)],
            })
        };
        let lines = [line("a\u{2028}b\u{2029}c\u{85}d\r").unwrap(), line("next\n").unwrap()];
        let body = lines.join("\n");
        let read: Vec<Event> =
            body.split('\n').map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(read.len(), 2);
        let Event::Appended { items, .. } = &read[0] else { panic!("{read:?}") };
        assert_eq!(items[0], Item::user("a\u{2028}b\u{2029}c\u{85}d\r"));
    }
}
