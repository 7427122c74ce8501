//! Tombstoned items are never sent, on any wire, and the remaining ones can be.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use turnstream::item::TurnInfo;
use turnstream::item::{
    ItemFlag, ItemKind, ProviderData, ResultKind, StopReason, ToolCall, ToolResult,
};
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{anthropic, gemini, ollama, openai_chat, openai_responses};
use turnstream::tool::ToolSpec;
use turnstream::{ErrorKind, History, Item, Request};
use turnstream_testing::{Wire, lint};

const MODEL: &str = "gemini-3-pro";

/// A part of a conversation.
#[derive(Clone, Debug)]
enum ConversationPart {
    User,
    System,
    Tombstone,
    Summary,
    Turn(TurnShape),
    /// Items that no run produces, selected by a number.
    StrayItem(usize),
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn independently")]
struct TurnShape {
    /// The wire whose signatures the turn has.
    wire_index: usize,
    has_thought: bool,
    has_second_thought: bool,
    /// Whether the provider executed a tool itself.
    has_server_tool: bool,
    has_text: bool,
    call_count: usize,
    /// The number of calls with results.
    result_count: usize,
    is_complete: bool,
    is_paused: bool,
}

fn any_part() -> impl Strategy<Value = ConversationPart> {
    let flags = prop::array::uniform5(any::<bool>());
    let turn = (0..4_usize, flags, 0..4_usize, 0..9_usize, 0..8_usize, 0..8_usize);
    let turn =
        turn.prop_map(|(wire, [thinks, again, speaks, own, more], calls, answered, w, p)| {
            let (own, whole, pauses) = (own && more, w > 0, p == 0);
            let thinks_again = again && thinks;
            TurnShape {
                wire_index: wire,
                has_thought: thinks,
                has_second_thought: thinks_again,
                has_server_tool: own,
                has_text: speaks,
                call_count: calls,
                result_count: answered,
                is_complete: whole,
                is_paused: pauses,
            }
        });
    prop_oneof![
        4 => Just(ConversationPart::User),
        1 => Just(ConversationPart::System),
        1 => Just(ConversationPart::Tombstone),
        1 => Just(ConversationPart::Summary),
        9 => turn.prop_map(ConversationPart::Turn),
        1 => (0..4_usize).prop_map(ConversationPart::StrayItem),
    ]
}

/// A history in which each item has a unique word: `word` and its number.
#[derive(Default)]
struct MarkedHistory {
    items: Vec<Item>,
    call_count: usize,
}

impl MarkedHistory {
    fn next_word(&self) -> String {
        format!("word{:04}", self.items.len())
    }

    fn push_part(&mut self, part: &ConversationPart) {
        let word = self.next_word();
        match part {
            ConversationPart::User => self.items.push(Item::user(word)),
            ConversationPart::System => self.items.push(Item::system(word)),
            ConversationPart::Tombstone => {
                self.items.push(Item::user(word).with_flag(ItemFlag::Tombstone));
            }
            ConversationPart::Summary => {
                self.items.push(Item::user(word).with_flag(ItemFlag::Compacted));
            }
            ConversationPart::Turn(turn) => self.push_turn(turn),
            ConversationPart::StrayItem(0) => {
                self.items.push(Item::tool_call("call_1", "t", self.call_arguments()));
            }
            ConversationPart::StrayItem(1) => self.items.push(tool_result("call_1", word)),
            ConversationPart::StrayItem(2) => {
                self.items.push(tool_result("call_2", word).with_flag(ItemFlag::Tombstone));
            }
            ConversationPart::StrayItem(_) => {
                self.items.push(Item::text(word).with_flag(ItemFlag::Interrupted));
            }
        }
    }

    fn call_arguments(&self) -> String {
        json!({ "a": self.next_word() }).to_string()
    }

    fn push_turn(&mut self, turn: &TurnShape) {
        let (from, wire) = (self.items.len(), turn.wire_index);
        let thought = format!("rs_{from}");
        if turn.has_thought {
            self.push_thought(wire, &thought);
        }
        if turn.has_server_tool {
            self.push_server_tool(wire);
        }
        if turn.has_text {
            let data = linked_item("message", &format!("msg_{from}"), &thought, turn.has_thought);
            let data = (wire == 1).then(|| provider_data(wire, &data));
            self.items.push(with_provider_data(Item::text(self.next_word()), data));
        }
        if turn.has_second_thought && turn.has_text && turn.call_count > 0 && wire != 1 {
            self.push_thought(wire, &format!("rs_{from}_b"));
        }
        let mut called = Vec::new();
        for n in 0..turn.call_count {
            self.call_count += 1;
            called.push(format!("call_{}", self.call_count));
            let id = format!("fc_{}", self.call_count);
            let data = match wire {
                1 => Some(linked_item("function_call", &id, &thought, turn.has_thought)),
                2 if n == 0 => Some(json!({ "thoughtSignature": self.next_word() })),
                _ => None,
            };
            let call = Item::tool_call(&called[n], "t", self.call_arguments());
            self.items
                .push(with_provider_data(call, data.map(|value| provider_data(wire, &value))));
        }
        let Some(last) = self.items[from..].last_mut() else { return };
        if turn.is_complete {
            let stop = match (turn.call_count, turn.is_paused) {
                (0, true) => StopReason::Pause,
                (0, false) => StopReason::Stop,
                _ => StopReason::ToolCalls,
            };
            last.turn = Some(Arc::new(TurnInfo::new(stop)));
        } else {
            self.items[from..].iter_mut().for_each(|item| item.interrupted = true);
            return;
        }
        for id in called.iter().take(turn.result_count) {
            self.items.push(tool_result(id, self.next_word()));
        }
    }

    fn push_thought(&mut self, wire: usize, id: &str) {
        let word = self.next_word();
        let value = match wire {
            0 => json!({ "signature": &word }),
            1 => {
                json!({ "type": "reasoning", "id": id, "encrypted_content": &word, "summary": [] })
            }
            2 => json!({ "thoughtSignature": &word }),
            _ => return self.items.push(Item::reasoning(word)),
        };
        self.items
            .push(with_provider_data(Item::reasoning(word), Some(provider_data(wire, &value))));
    }

    fn push_server_tool(&mut self, wire: usize) {
        let (id, word) = (format!("srv_{}", self.items.len()), self.next_word());
        let first = match wire {
            0 => {
                json!({ "type": "server_tool_use", "id": id, "name": "web_search", "input": { "query": word } })
            }
            1 => {
                json!({ "type": "web_search_call", "id": format!("ws_{id}"), "status": "completed",
                "action": { "type": "search", "query": word } })
            }
            2 => json!({ "executableCode": { "language": "PYTHON", "code": word } }),
            _ => return,
        };
        self.items.push(Item::provider_item(provider_data(wire, &first)));
        let word = self.next_word();
        let second = match wire {
            0 => json!({ "type": "web_search_tool_result", "tool_use_id": id, "content": [{
                "type": "web_search_result", "url": "https://a.example", "title": word,
                "encrypted_content": &word }] }),
            2 => json!({ "codeExecutionResult": { "outcome": "OUTCOME_OK", "output": word } }),
            _ => return,
        };
        self.items.push(Item::provider_item(provider_data(wire, &second)));
    }
}

fn provider_data(wire: usize, value: &Value) -> ProviderData {
    let provider = ["anthropic", "openai_responses", "gemini", "openai"][wire];
    ProviderData { provider: provider.into(), model: MODEL.into(), value: value.clone().into() }
}

fn linked_item(kind: &str, id: &str, thought: &str, thinks: bool) -> Value {
    let item = match kind {
        "message" => {
            json!({ "type": kind, "id": id, "role": "assistant", "status": "completed" })
        }
        _ => json!({ "type": kind, "id": id, "status": "completed" }),
    };
    json!({ "item": item, "after": if thinks { json!(thought) } else { Value::Null } })
}

fn with_provider_data(item: Item, data: impl Into<Option<ProviderData>>) -> Item {
    Item { provider_data: data.into().map(Arc::new), ..item }
}

fn tool_result(id: &str, word: String) -> Item {
    let call = ToolCall { call_id: id.into(), name: "t".into(), arguments: String::new() };
    Item::tool_result(ToolResult::for_call(&call, ResultKind::Ok, word))
}

fn encode_body(wire: Wire, history: &History) -> String {
    let parameters = json!({ "type": "object", "properties": {} });
    let tool = ToolSpec::new("t", "Does", parameters);
    let mut request = Request::new(history.clone()).with_tools([tool]);
    request.options.max_output_tokens = Some(100);
    let bytes = match wire {
        Wire::Anthropic => anthropic::encode(&request, MODEL),
        Wire::OpenAiResponses => openai_responses::encode(&request, MODEL),
        Wire::Gemini => gemini::encode(&request, MODEL),
        Wire::Ollama => ollama::encode(&request, MODEL, &ollama::Chat::default()),
        _ => openai_chat::encode(&request, MODEL, &Dialect::OPENAI),
    };
    String::from_utf8(bytes.unwrap()).unwrap()
}

fn violations(wire: Wire, body: &str) -> Vec<String> {
    let body: Value = serde_json::from_str(body).unwrap();
    lint::request(wire, MODEL, &body)
}

fn round_trip_json(history: &History) -> History {
    serde_json::from_str(&serde_json::to_string(history).unwrap()).unwrap()
}

fn is_provider_item(item: &Item) -> bool {
    item.kind == ItemKind::Other
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    #[test]
    fn no_tombstoned_text_is_sent_on_any_wire_and_the_rest_stays_sendable(
        parts in prop::collection::vec(any_part(), 1..9),
        chosen in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        wire in 0..Wire::ALL.len(),
    ) {
        let mut written = MarkedHistory::default();
        for part in &parts {
            written.push_part(part);
        }
        // This item stays, so that there is something to send.
        written.items.push(Item::user("go on"));
        let before = History::from_items("h", written.items.clone());
        if before.len() == 1 {
            return Ok(());
        }
        let positions: BTreeSet<usize> =
            chosen.iter().map(|index| index.index(before.len() - 1)).collect();
        // Items that no run produces may be refused even without tombstones.
        let is_taken = Wire::ALL.map(|wire| violations(wire, &encode_body(wire, &before)).is_empty());
        let is_of_runs = !parts.iter().any(|part| matches!(part, ConversationPart::StrayItem(_)));
        prop_assert!(!is_of_runs || is_taken == [true; Wire::ALL.len()], "{is_taken:?} {before:?}");
        let open = before.unanswered_calls();
        let made = match before.tombstone_edits(positions.iter().copied()) {
            Ok(made) => made,
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::InvalidRequest);
                let named = |call: &ToolCall| error.parameter() == Some(&*call.call_id);
                prop_assert!(open.iter().any(named), "{error}");
                return Ok(());
            }
        };
        // The encoding of the earlier history is cached.
        let wire = Wire::ALL[wire];
        let mut after = before.clone();
        encode_body(wire, &after);
        for made in &made {
            prop_assert_eq!(made.to - made.from, made.items.len());
            made.apply(&mut after);
            prop_assert!(!before.is_settled() || after.is_settled(), "{after:?}");
            prop_assert_eq!(encode_body(wire, &after), encode_body(wire, &round_trip_json(&after)));
        }
        let ranges = made.windows(2).all(|pair| pair[0].to < pair[1].from);
        prop_assert!(ranges, "{made:?}");
        let settled = after.settled();
        prop_assert!(settled.is_settled());
        prop_assert!(!is_of_runs || after.unanswered_calls() == open, "a call that waits is void");
        prop_assert_eq!(after.completed_turns(), before.completed_turns());
        prop_assert_eq!(after.tombstone_edits(positions.iter().copied()).unwrap(), vec![]);

        let items: Vec<(&Item, &Item)> = before.iter().zip(after.iter()).collect();
        prop_assert_eq!((items.len(), before.len()), (after.len(), after.len()));
        for (at, (was, is)) in items.iter().enumerate() {
            let but = Item { tombstone: was.tombstone, turn: was.turn.clone(), ..(*is).clone() };
            prop_assert_eq!(&but, *was, "only marks change");
            prop_assert!(is.tombstone || !was.tombstone && !positions.contains(&at));
            let is_others = matches!(was.kind, ItemKind::User { .. } | ItemKind::System { .. });
            prop_assert!(!is_others || is.tombstone == (was.tombstone || positions.contains(&at)));
        }
        for wire in Wire::ALL {
            let body = encode_body(wire, &after);
            let violations = violations(wire, &body);
            prop_assert!(!is_of_runs || violations.is_empty(), "{wire:?} {violations:?} {body}");
            for (at, _) in items.iter().enumerate().filter(|(_, (_, is))| is.tombstone) {
                let word = format!("word{at:04}");
                prop_assert!(!body.contains(&word), "{:?} sends {}: {}", wire, word, body);
            }
        }
        // The items of a turn stay if they were not selected, and are not bound to a selected one.
        let mut at = 0;
        for part in &parts {
            let mut one = MarkedHistory { items: written.items[..at].to_vec(), call_count: 0 };
            one.push_part(part);
            let turn = &items[at..one.items.len()];
            let here = |at: &usize| positions.contains(at);
            let is_chosen = (at..one.items.len()).any(|at| here(&at));
            at = one.items.len();
            if !is_chosen || !before.is_settled() {
                continue;
            }
            let is_bound = turn.iter().any(|(was, _)| is_provider_item(was));
            for (was, is) in turn {
                match &was.kind {
                    _ if is_bound && matches!(part, ConversationPart::Turn(_)) => prop_assert!(is.tombstone),
                    ItemKind::Reasoning { .. } => prop_assert!(is.tombstone),
                    _ => {}
                }
            }
        }
        if before.is_settled() && !before.iter().any(is_provider_item) {
            let paired = |at: usize| match (&items[at].0.as_tool_call(), &items[at].0.as_tool_result()) {
                (Some(call), _) => before.iter().position(|item| {
                    !item.tombstone
                            && item.as_tool_result().is_some_and(|it| it.call_id == call.call_id)
                }),
                (_, Some(result)) => before.iter().position(|item| {
                    item.as_tool_call().is_some_and(|it| it.call_id == result.call_id)
                }),
                (None, None) => None,
            };
            for (at, (was, is)) in items.iter().enumerate() {
                let wanted = positions.contains(&at)
                    || paired(at).is_some_and(|other| positions.contains(&other));
                let is_thought = matches!(was.kind, ItemKind::Reasoning { .. });
                prop_assert!(wanted || is_thought || is.tombstone == was.tombstone, "{at}");
            }
        }
    }
}
