use std::cell::Cell;

use super::*;
use crate::item::{ResultKind, StopReason, ToolResult, TurnInfo};
use crate::provider::wires::openai_chat::Dialect;
use crate::provider::{anthropic, gemini, ollama, openai_chat, openai_responses};
use crate::request::shared_text;
use crate::usage::Usage;

thread_local! {
    static ENCODED: Cell<usize> = const { Cell::new(0) };
}

/// Counts the items that an encoder has to encode.
pub(super) fn count(items: usize) {
    ENCODED.set(ENCODED.get() + items);
}

const TURNS: usize = 100;

/// Encodes a history that grows by a call and its result, and returns how often an item was encoded
/// on average.
fn encoded(encode: impl Fn(&Request)) -> f64 {
    let mut history = History::empty("h");
    history.push(Item::user("go"));
    ENCODED.set(0);
    for n in 0..TURNS {
        encode(&Request::new(history.clone()));
        let mut call = Item::tool_call(format!("c{n}"), "t", "{}");
        call.turn = Some(Arc::new(TurnInfo {
            usage: Usage::default(),
            model: None,
            response_id: None,
            stop_reason: StopReason::ToolCalls,
        }));
        history.extend([
            call,
            Item::tool_result(ToolResult {
                call_id: format!("c{n}"),
                name: "t".into(),
                content: "ok".into(),
                kind: ResultKind::Ok,
                report: None,
            }),
        ]);
    }
    encode(&Request::new(history.clone()));
    #[expect(clippy::cast_precision_loss, reason = "they are few")]
    let times = ENCODED.get() as f64 / history.len() as f64;
    times
}

#[track_caller]
fn check(at_most: f64, encode: impl Fn(&Request) -> Result<Vec<u8>, Error>) {
    let times = encoded(|request| assert!(encode(request).is_ok_and(|bytes| !bytes.is_empty())));
    assert!((1.0..=at_most).contains(&times), "{times} times");
}

#[test]
fn each_item_is_encoded_once() {
    for dialect in Dialect::ALL {
        check(1.0, |request| openai_chat::encode(request, "m", dialect));
    }
    check(1.0, |request| openai_responses::encode(request, "m"));
    check(1.0, |request| ollama::encode(request, "m", &ollama::Chat::default()));
}

#[test]
fn only_the_unfinished_last_message_is_encoded_again() {
    // The results of the newest turn are encoded again.
    check(1.5, |request| anthropic::encode(request, "m"));
    // The newest turn is encoded again.
    check(2.0, |request| gemini::encode(request, "m"));
}

#[test]
fn after_a_model_change_all_items_are_encoded_once_more() {
    let request_count = Cell::new(0);
    check(2.0, |request| {
        request_count.set(request_count.get() + 1);
        let model = if request_count.get() > TURNS / 2 { "fallback" } else { "m" };
        openai_chat::encode(request, model, &Dialect::OPENAI)
    });
}

type Encode = fn(&Request) -> Result<Vec<u8>, Error>;

#[test]
fn the_stable_system_prompt_is_encoded_once() {
    let encoders: [Encode; 6] = [
        |request| openai_chat::encode(request, "m", &Dialect::OPENAI),
        |request| openai_chat::encode(request, "m", &Dialect::OPENROUTER),
        |request| openai_responses::encode(request, "m"),
        |request| anthropic::encode(request, "m"),
        |request| gemini::encode(request, "m"),
        |request| ollama::encode(request, "m", &ollama::Chat::default()),
    ];
    for leading in 0..2 {
        for encode in encoders {
            let mut history = History::empty("h");
            history.extend((0..leading).map(|_| Item::system("Answer in French.")));
            let stable = SharedText::from("Be \"brief\".");
            let before = shared_text::tests::ENCODED.get();
            for n in 0..20 {
                history.push(Item::user(format!("message {n}")));
                let mut turn = Item::text("answer");
                turn.turn = Some(Arc::new(TurnInfo {
                    usage: Usage::default(),
                    model: None,
                    response_id: None,
                    stop_reason: StopReason::Stop,
                }));
                history.push(turn);
                history.push(Item::user("more"));
                let request = Request::new(history.clone()).with_system(stable.clone());
                let body = String::from_utf8(encode(&request).unwrap()).unwrap();
                assert!(body.contains("Be \\\"brief\\\"."), "{body}");
            }
            assert_eq!(shared_text::tests::ENCODED.get() - before, 1);
        }
    }
}
