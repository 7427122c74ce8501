//! Properties that hold for all splits of the bytes and for all histories.

use bytes::Bytes;
use futures::executor::block_on;
use futures::{StreamExt, stream};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use turnstream::item::ItemKind;
use turnstream::provider::Decoding;
use turnstream::provider::openai_responses::Decoder;
use turnstream::request::{ClientTool, ToolSpec};
use turnstream::stream::seal;
use turnstream::turn::{PartialTurn, TurnEvent};
use turnstream::{Error, History, Item, Request};

#[path = "../../../../tests/wires/openai_responses/fixture.rs"]
#[allow(dead_code, reason = "the tests of the wire use all of it")]
mod fixture;

use self::fixture::*;

/// A response with an item of every kind, and a response with contradictory events.
fn full_response_events() -> Vec<Vec<Value>> {
    let own = json!({ "type": "web_search_call", "id": "ws_1" });
    let rich = vec![
        response_created(),
        output_item_added(0, json!({ "type": "reasoning", "id": "rs_1" })),
        json!({ "type": "response.reasoning_summary_text.delta", "output_index": 0,
            "summary_index": 0, "delta": "hé" }),
        output_item_done(0, reasoning_item("rs_1", "e")),
        output_item_done(1, own),
        output_item_added(2, json!({ "type": "message", "id": "m" })),
        text_delta(2, "Grüße\n"),
        text_delta(2, "\u{2028}🦀"),
        output_item_done(2, message_item("m", "Grüße\n\u{2028}🦀")),
        output_item_added(3, function_call_item("fc_1", "c", "")),
        arguments_delta(3, "{\"x\":"),
        arguments_delta(3, "\"东\"}"),
        arguments_done(3, "{\"x\":\"东\"}"),
        response_completed(json!([])),
    ];
    let corrected = vec![
        text_delta(0, "a"),
        arguments_delta(1, "{}"),
        output_item_done(1, function_call_item("fc_1", "c", "{\"x\":1}")),
        output_item_done(0, message_item("m", "b")),
        response_completed(json!([])),
    ];
    vec![rich, corrected]
}

fn decode_pieces(pieces: Vec<Bytes>) -> Vec<Result<TurnEvent, Error>> {
    let body = stream::iter(pieces.into_iter().map(Ok));
    block_on(seal(&History::empty("h"), Decoding::new(body, Decoder::new(MODEL))).collect())
}

#[test]
fn any_split_of_the_bytes_yields_the_same_events() {
    for list in full_response_events() {
        let bytes = Bytes::from(sse_body(&list));
        let whole = decode_events(&list);
        assert!(matches!(whole.last(), Some(Ok(TurnEvent::TurnComplete { .. }))));
        for at in 0..=bytes.len() {
            assert_eq!(decode_pieces(vec![bytes.slice(..at), bytes.slice(at..)]), whole, "{at}");
        }
        let single = (0..bytes.len()).map(|at| bytes.slice(at..=at)).collect();
        assert_eq!(decode_pieces(single), whole);
    }
}

/// Noise without meaning between two events.
const NOISE_FRAMES: &[&str] = &[
    ": OPENROUTER PROCESSING\n\n",
    "\n\n",
    ":\n",
    "event: ping\ndata: {}\n\n",
    "event: keepalive\ndata: not json\n\n",
    "data: {\"type\":\"response.moon.delta\",\"output_index\":2,\"delta\":\"x\"}\n\n",
    "data: {\"type\":\"response.in_progress\",\"response\":{\"status\":\"in_progress\"}}\n\n",
    "data:\n\n",
    "id: 3\nretry: 5\n\n",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn noise_between_events_changes_nothing(
        which in 0..2_usize,
        noise in vec(vec(0..NOISE_FRAMES.len(), 0..3), 15),
        crlf in any::<bool>(),
    ) {
        let list = full_response_events().swap_remove(which);
        let mut bytes = String::new();
        for (event, noise) in list.iter().zip(noise) {
            bytes.extend(noise.iter().map(|at| NOISE_FRAMES[*at]));
            bytes.push_str(&String::from_utf8(sse_body(std::slice::from_ref(event))).unwrap());
        }
        if crlf {
            bytes = bytes.replace('\n', "\r\n");
        }
        prop_assert_eq!(decode_pieces(vec![bytes.into()]), decode_events(&list));
    }

    #[test]
    fn reordered_events_never_run_an_unfinished_call(
        order in vec(0..14_usize, 0..20),
        which in 0..2_usize,
    ) {
        let list = full_response_events().swap_remove(which);
        let mixed: Vec<Value> = order.iter().filter_map(|at| list.get(*at).cloned()).collect();
        let end = |event: &Value| {
            let kind = event["type"].as_str().unwrap();
            kind == "response.function_call_arguments.done"
                || (kind == "response.output_item.done" && event["item"]["type"] == "function_call")
        };
        let runs = runnable_calls(decode_turn(&mixed));
        prop_assert!(runs.is_empty() || mixed.iter().any(end), "{:?} of {:?}", runs, mixed);
    }

    #[test]
    fn corrupted_bytes_yield_a_turn_or_an_error(
        which in 0..2_usize,
        breaks in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = sse_body(&full_response_events().swap_remove(which));
        for (at, byte) in breaks {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let read = decode_pieces(vec![bytes.into()]);
        prop_assert!(!read.is_empty());
        // The turn is the sum of its events, or has failed; `fold_turn` checks that.
        let _ = fold_turn(read);
    }

    #[test]
    fn each_request_extends_the_input_of_the_previous_one(
        rounds in vec(any_round(), 1..6),
        same_model in any::<bool>(),
    ) {
        let model = if same_model { MODEL } else { "gpt-5.2" };
        let mut items = Vec::new();
        let mut before: Vec<String> = Vec::new();
        for (nth, round) in rounds.into_iter().enumerate() {
            for step in round.history_items(nth) {
                items.push(step);
                let ends = matches!(
                    items.last().map(|item| &item.kind),
                    Some(ItemKind::User { .. } | ItemKind::ToolResult(_))
                );
                let settled = History::from_items("h", items.iter().cloned());
                if !ends || !settled.is_settled() {
                    continue;
                }
                let mut request = Request::new(settled).with_system("stable").with_tools([ToolSpec::new("f", "", json!({}))]);
                request.system.volatile = format!("it is {}", items.len());
                let mut input: Vec<String> = encode_json(&request, model).unwrap()["input"]
                    .as_array().unwrap().iter().map(Value::to_string).collect();
                let volatile = input.pop().unwrap();
                prop_assert!(volatile.contains("it is"));
                prop_assert!(input.starts_with(&before), "{:?} then {:?}", before, input);
                before = input;
            }
        }
    }

    #[test]
    fn provider_data_is_sent_back_verbatim_to_its_model_only(
        rounds in vec(any_round(), 1..4),
    ) {
        for (nth, round) in rounds.into_iter().enumerate() {
            let round = ConversationRound { is_interrupted: false, has_instruction: false, ..round };
            let output = round.output_items(nth);
            let items = [vec![Item::user("x")], round.history_items(nth).split_off(1)].concat();
            let input = |model: &str| -> Vec<Value> {
                let input = fixture::encode_input(items.clone(), model);
                let own = |item: &Value| {
                    let kind = item["type"].as_str().unwrap_or_default();
                    item["role"] != "user"
                        && !kind.ends_with("_output")
                        && kind != "mcp_approval_response"
                };
                input.into_iter().filter(own).collect()
            };
            // Reasoning at the end is not followed by any item.
            let mut expected = output;
            while expected.last().is_some_and(|item| item["type"] == "reasoning") {
                expected.pop();
            }
            let text = |items: &[Value]| serde_json::to_string(items).unwrap();
            prop_assert_eq!(input(MODEL), expected);
            let foreign = text(&input("gpt-5.2"));
            prop_assert!(!foreign.contains("\"id\"") && !foreign.contains("encrypted"), "{}", foreign);
        }
    }
}

/// A user message and what follows: an optional instruction, and output of these kinds, complete or
/// incomplete.
#[derive(Clone, Debug)]
struct ConversationRound {
    output_kinds: Vec<u8>,
    is_interrupted: bool,
    has_instruction: bool,
}

fn any_round() -> impl Strategy<Value = ConversationRound> {
    (vec(0..6_u8, 0..6), prop::bool::weighted(0.1), prop::bool::weighted(0.2)).prop_map(
        |(kinds, interrupted, instructed)| ConversationRound {
            output_kinds: kinds,
            is_interrupted: interrupted,
            has_instruction: instructed,
        },
    )
}

impl ConversationRound {
    fn output_items(&self, nth: usize) -> Vec<Value> {
        let item = |(at, kind): (usize, &u8)| match kind {
            0 => reasoning_item(&format!("rs_{nth}_{at}"), "e"),
            1 => message_item(&format!("m_{nth}_{at}"), "words"),
            2 => function_call_item(&format!("fc_{nth}_{at}"), &format!("c_{nth}_{at}"), "{}"),
            3 => json!({ "type": "shell_call", "id": format!("sh_{nth}_{at}"),
                "call_id": format!("s_{nth}_{at}"), "action": { "commands": ["ls"] } }),
            4 => json!({ "type": "mcp_approval_request", "id": format!("mcpr_{nth}_{at}"),
                "server_label": "wiki", "name": "find", "arguments": "{}" }),
            _ => json!({ "type": "web_search_call", "id": format!("ws_{nth}_{at}") }),
        };
        self.output_kinds.iter().enumerate().map(item).collect()
    }

    /// The items that the round adds to a history, with the user's message first.
    fn history_items(&self, nth: usize) -> Vec<Item> {
        let output = self.output_items(nth);
        let mut list: Vec<Value> =
            (0..).zip(&output).map(|(at, item)| output_item_done(at, item.clone())).collect();
        if !self.is_interrupted {
            list.push(response_completed(json!([])));
        }
        let approval = ClientTool::McpApproval { server: "wiki".into() };
        let tools = [ClientTool::Shell.spec(), approval.spec()];
        let decoder = Decoder::new(MODEL).with_tools(tools);
        let turn = match fold_turn(decode_events_with(decoder, sse_body(&list))) {
            Ok(turn) => turn.to_history_items(),
            Err(error) => error.find_source::<PartialTurn>().unwrap().items(),
        };
        let mut items = vec![Item::user(format!("round {nth}"))];
        if self.has_instruction {
            items.push(Item::system("mind the step"));
        }
        let calls = turn.iter().filter(|item| !item.interrupted).filter_map(Item::as_tool_call);
        let results: Vec<Item> = calls.map(|call| tool_result(&call.call_id, "r")).collect();
        items.extend(
            turn.into_iter().filter(|item| !item.interrupted || item.as_tool_call().is_none()),
        );
        items.extend(results);
        items
    }
}
