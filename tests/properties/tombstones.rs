//! What becomes void is never sent, on any wire, and what stays can be.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use turnstream::item::TurnInfo;
use turnstream::item::{
    ItemKind, Mark, ProviderData, ResultKind, StopReason, ToolCall, ToolResult,
};
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{anthropic, gemini, ollama, openai_chat, openai_responses};
use turnstream::testing::{Wire, lint};
use turnstream::tool::ToolSpec;
use turnstream::{ErrorKind, History, Item, Request};

const MODEL: &str = "gemini-3-pro";

/// A part of a conversation.
#[derive(Clone, Debug)]
enum Part {
    User,
    System,
    Void,
    Note,
    Turn(Turn),
    /// Items that no run leaves, told by a number.
    Stray(usize),
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn for itself")]
struct Turn {
    /// Whose signatures it has.
    wire: usize,
    thinks: bool,
    thinks_again: bool,
    /// The provider ran something itself.
    own: bool,
    speaks: bool,
    calls: usize,
    /// How many of the calls have their results.
    answered: usize,
    whole: bool,
    pauses: bool,
}

fn part() -> impl Strategy<Value = Part> {
    let flags = prop::array::uniform5(any::<bool>());
    let turn = (0..4_usize, flags, 0..4_usize, 0..9_usize, 0..8_usize, 0..8_usize);
    let turn =
        turn.prop_map(|(wire, [thinks, again, speaks, own, more], calls, answered, w, p)| {
            let (own, whole, pauses) = (own && more, w > 0, p == 0);
            let thinks_again = again && thinks;
            Turn { wire, thinks, thinks_again, own, speaks, calls, answered, whole, pauses }
        });
    prop_oneof![
        4 => Just(Part::User),
        1 => Just(Part::System),
        1 => Just(Part::Void),
        1 => Just(Part::Note),
        9 => turn.prop_map(Part::Turn),
        1 => (0..4_usize).prop_map(Part::Stray),
    ]
}

/// A history in which each item has a word of its own, `word` and its number.
#[derive(Default)]
struct Written {
    items: Vec<Item>,
    calls: usize,
}

impl Written {
    fn word(&self) -> String {
        format!("word{:04}", self.items.len())
    }

    fn add(&mut self, part: &Part) {
        let word = self.word();
        match part {
            Part::User => self.items.push(Item::user(word)),
            Part::System => self.items.push(Item::system(word)),
            Part::Void => self.items.push(Item::user(word).with_mark(Mark::Tombstone)),
            Part::Note => self.items.push(Item::user(word).with_mark(Mark::Compacted)),
            Part::Turn(turn) => self.turn(turn),
            Part::Stray(0) => self.items.push(Item::tool_call("call_1", "t", self.arguments())),
            Part::Stray(1) => self.items.push(result("call_1", word)),
            Part::Stray(2) => {
                self.items.push(result("call_2", word).with_mark(Mark::Tombstone));
            }
            Part::Stray(_) => self.items.push(Item::text(word).with_mark(Mark::Interrupted)),
        }
    }

    fn arguments(&self) -> String {
        json!({ "a": self.word() }).to_string()
    }

    fn turn(&mut self, turn: &Turn) {
        let (from, wire) = (self.items.len(), turn.wire);
        let thought = format!("rs_{from}");
        if turn.thinks {
            self.think(wire, &thought);
        }
        if turn.own {
            self.own(wire);
        }
        if turn.speaks {
            let data = linked("message", &format!("msg_{from}"), &thought, turn.thinks);
            let data = (wire == 1).then(|| owned(wire, &data));
            self.items.push(with(Item::text(self.word()), data));
        }
        if turn.thinks_again && turn.speaks && turn.calls > 0 && wire != 1 {
            self.think(wire, &format!("rs_{from}_b"));
        }
        let mut called = Vec::new();
        for n in 0..turn.calls {
            self.calls += 1;
            called.push(format!("call_{}", self.calls));
            let id = format!("fc_{}", self.calls);
            let data = match wire {
                1 => Some(linked("function_call", &id, &thought, turn.thinks)),
                2 if n == 0 => Some(json!({ "thoughtSignature": self.word() })),
                _ => None,
            };
            let call = Item::tool_call(&called[n], "t", self.arguments());
            self.items.push(with(call, data.map(|value| owned(wire, &value))));
        }
        let Some(last) = self.items[from..].last_mut() else { return };
        if turn.whole {
            let stop = match (turn.calls, turn.pauses) {
                (0, true) => StopReason::Pause,
                (0, false) => StopReason::Stop,
                _ => StopReason::ToolCalls,
            };
            last.turn = Some(Arc::new(TurnInfo::new(stop)));
        } else {
            self.items[from..].iter_mut().for_each(|item| item.interrupted = true);
            return;
        }
        for id in called.iter().take(turn.answered) {
            self.items.push(result(id, self.word()));
        }
    }

    fn think(&mut self, wire: usize, id: &str) {
        let word = self.word();
        let value = match wire {
            0 => json!({ "signature": &word }),
            1 => {
                json!({ "type": "reasoning", "id": id, "encrypted_content": &word, "summary": [] })
            }
            2 => json!({ "thoughtSignature": &word }),
            _ => return self.items.push(Item::reasoning(word)),
        };
        self.items.push(with(Item::reasoning(word), Some(owned(wire, &value))));
    }

    fn own(&mut self, wire: usize) {
        let (id, word) = (format!("srv_{}", self.items.len()), self.word());
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
        self.items.push(Item::provider_item(owned(wire, &first)));
        let word = self.word();
        let second = match wire {
            0 => json!({ "type": "web_search_tool_result", "tool_use_id": id, "content": [{
                "type": "web_search_result", "url": "https://a.example", "title": word,
                "encrypted_content": &word }] }),
            2 => json!({ "codeExecutionResult": { "outcome": "OUTCOME_OK", "output": word } }),
            _ => return,
        };
        self.items.push(Item::provider_item(owned(wire, &second)));
    }
}

fn owned(wire: usize, value: &Value) -> ProviderData {
    let provider = ["anthropic", "openai_responses", "gemini", "openai"][wire];
    ProviderData { provider: provider.into(), model: MODEL.into(), value: value.clone().into() }
}

fn linked(kind: &str, id: &str, thought: &str, thinks: bool) -> Value {
    let item = match kind {
        "message" => {
            json!({ "type": kind, "id": id, "role": "assistant", "status": "completed" })
        }
        _ => json!({ "type": kind, "id": id, "status": "completed" }),
    };
    json!({ "item": item, "after": if thinks { json!(thought) } else { Value::Null } })
}

fn with(item: Item, data: impl Into<Option<ProviderData>>) -> Item {
    Item { provider_data: data.into().map(Arc::new), ..item }
}

fn result(id: &str, word: String) -> Item {
    let call = ToolCall { call_id: id.into(), name: "t".into(), arguments: String::new() };
    Item::tool_result(ToolResult::for_call(&call, ResultKind::Ok, word))
}

fn body(wire: Wire, history: &History) -> String {
    let parameters = json!({ "type": "object", "properties": {} });
    let tool = ToolSpec { name: "t".into(), description: "Does".into(), parameters };
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

fn rebuilt(history: &History) -> History {
    serde_json::from_str(&serde_json::to_string(history).unwrap()).unwrap()
}

fn is_own(item: &Item) -> bool {
    item.kind == ItemKind::Other
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    #[test]
    fn no_tombstoned_text_is_sent_on_any_wire_and_the_rest_stays_sendable(
        parts in prop::collection::vec(part(), 1..9),
        chosen in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        wire in 0..Wire::ALL.len(),
    ) {
        let mut written = Written::default();
        for part in &parts {
            written.add(part);
        }
        // It stays, so that something is sent.
        written.items.push(Item::user("go on"));
        let before = History::from_items("h", written.items.clone());
        if before.len() == 1 {
            return Ok(());
        }
        let positions: BTreeSet<usize> =
            chosen.iter().map(|index| index.index(before.len() - 1)).collect();
        // What no run leaves may be refused as it is.
        let is_taken = Wire::ALL.map(|wire| violations(wire, &body(wire, &before)).is_empty());
        let is_of_runs = !parts.iter().any(|part| matches!(part, Part::Stray(_)));
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
        // What is encoded before is remembered beside the history.
        let wire = Wire::ALL[wire];
        let mut after = before.clone();
        body(wire, &after);
        for made in &made {
            prop_assert_eq!(made.to - made.from, made.items.len());
            made.apply(&mut after);
            prop_assert!(!before.is_settled() || after.is_settled(), "{after:?}");
            prop_assert_eq!(body(wire, &after), body(wire, &rebuilt(&after)));
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
            let body = body(wire, &after);
            let violations = violations(wire, &body);
            prop_assert!(!is_of_runs || violations.is_empty(), "{wire:?} {violations:?} {body}");
            for (at, _) in items.iter().enumerate().filter(|(_, (_, is))| is.tombstone) {
                let word = format!("word{at:04}");
                prop_assert!(!body.contains(&word), "{:?} sends {}: {}", wire, word, body);
            }
        }
        // The items of a turn stay that were not chosen and that are bound to none that was.
        let mut at = 0;
        for part in &parts {
            let mut one = Written { items: written.items[..at].to_vec(), calls: 0 };
            one.add(part);
            let turn = &items[at..one.items.len()];
            let here = |at: &usize| positions.contains(at);
            let is_chosen = (at..one.items.len()).any(|at| here(&at));
            at = one.items.len();
            if !is_chosen || !before.is_settled() {
                continue;
            }
            let is_bound = turn.iter().any(|(was, _)| is_own(was));
            for (was, is) in turn {
                match &was.kind {
                    _ if is_bound && matches!(part, Part::Turn(_)) => prop_assert!(is.tombstone),
                    ItemKind::Reasoning { .. } => prop_assert!(is.tombstone),
                    _ => {}
                }
            }
        }
        if before.is_settled() && !before.iter().any(is_own) {
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
