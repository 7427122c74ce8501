//! A history that was encoded before, in part or as another version, is encoded to the same bytes
//! as one that was not.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use serde_json::{Value, json};
use turnstream::env::CountingIds;
use turnstream::item::{ItemFlag, Media, MediaSource, Part, ProviderData, RawJson, ResultKind};
use turnstream::item::{ToolResult, TurnInfo};
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{anthropic, gemini, ollama, openai_chat, openai_responses};
use turnstream::request::{Cache, Options, SharedText, System, ToolSpecs};
use turnstream::tool::ToolSpec;
use turnstream::turn::StopReason;
use turnstream::{Error, ErrorKind, History, Item, Request, Usage};

/// A change of a history.
#[derive(Clone, Debug)]
enum HistoryChange {
    Append(Vec<Item>),
    /// A turn, with the same number of calls and results.
    Turn {
        items: Vec<Item>,
        call_count: usize,
        result_count: usize,
        stop_reason: StopReason,
        is_complete: bool,
    },
    /// Entries, selected by two numbers, are replaced.
    Rewrite(usize, usize, Vec<Item>),
    /// Entries, selected by two numbers, are tombstoned.
    Tombstone(usize, usize),
    /// The newest entries are removed.
    Truncate(usize),
    /// The history continues as a fork.
    Fork,
    /// The history continues as a clone, and the original receives other items.
    Diverge(Vec<Item>),
    /// The history continues from an earlier state.
    Rewind(usize),
}

/// The settings of a request.
#[derive(Clone, Debug)]
struct RequestSettings {
    model: &'static str,
    cache: Cache,
    /// The index of the list of tools in [`TOOLS`].
    tools: usize,
    stable_system: &'static str,
    volatile_system: &'static str,
    extra: Value,
    /// How many of the newest items the request's context leaves out or replaces.
    context_edit: usize,
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just(" \n".to_owned()),
        Just("trailing ".to_owned()),
        Just("{\"a\":\"ü\\u2028\"}".to_owned()),
        "[a-z ]{1,8}",
    ]
}

fn any_provider_data() -> impl Strategy<Value = Option<Arc<ProviderData>>> {
    let values = prop::sample::select(vec![
        ("anthropic", json!({ "signature": "c2ln" })),
        ("anthropic", json!({ "type": "redacted_thinking", "data": "x" })),
        ("anthropic", json!({ "type": "server_tool_use", "id": "s1", "name": "w", "input": {} })),
        ("anthropic", json!({ "type": "web_search_tool_result", "tool_use_id": "s1" })),
        ("anthropic", json!({ "type": "message", "container": { "id": "box" } })),
        ("gemini", json!({ "thoughtSignature": "c2ln" })),
        ("gemini", json!({ "thoughtSignature": "c2ln", "text": "", "id": "1" })),
        ("openai_responses", json!({ "type": "reasoning", "id": "r", "encrypted_content": "e" })),
        ("openai_responses", json!({ "item": { "type": "message", "id": "i" }, "after": "r" })),
        ("openai_responses", json!({ "item": { "type": "function_call" }, "after": "r" })),
        ("ollama", json!({})),
        ("openrouter", json!({ "reasoning_details": [{ "type": "reasoning.text" }] })),
        ("litellm", json!({ "thinking_blocks": [{ "thinking": "x" }], "thought": "t" })),
    ]);
    let model = prop::sample::select(vec!["gemini-2.5-pro", "gemini-3-pro"]);
    let data = (values, model).prop_map(|((provider, value), model)| {
        let value = RawJson::new(&value).unwrap();
        Arc::new(ProviderData { provider: provider.into(), model: model.into(), value })
    });
    prop::option::of(data)
}

fn image_message() -> Item {
    let source = MediaSource::Data("iVBORw0KGgo=".into());
    let picture = Part::Image(Media::new("image/png", source));
    Item::user(vec![Part::from("see"), picture])
}

/// A text of 40 KB, which is long enough to be shared by the bodies of several requests.
fn long_text() -> String {
    "long ".repeat(8_000)
}

fn any_model_items() -> impl Strategy<Value = Vec<Item>> {
    let words = prop_oneof![
        12 => any_text().prop_map(Item::text),
        1 => Just(Item::text(long_text())),
        8 => any_text().prop_map(Item::reasoning),
        4 => any_provider_data().prop_filter_map("with data", |data| Some(Item::provider_item((*data?).clone()))),
    ];
    let item = (words, any_provider_data()).prop_map(|(item, data)| Item {
        provider_data: item.provider_data.clone().or(data),
        ..item
    });
    prop::collection::vec(item, 0..3)
}

fn any_appended_items() -> impl Strategy<Value = Vec<Item>> {
    let item = prop_oneof![
        4 => any_text().prop_map(Item::user),
        1 => Just(image_message()),
        1 => any_text().prop_map(Item::system),
        1 => any_text().prop_map(|text| Item::user(text).with_flag(ItemFlag::Tombstone)),
        1 => Just(Item::tool_call("c1", "twice", "{}")),
        1 => Just(tool_result("c1", "stray", 0)),
        1 => any_text().prop_map(|text| Item::text(text).with_flag(ItemFlag::Interrupted)),
    ];
    // Most are valid.
    prop_oneof![
        15 => any_text().prop_map(|text| vec![Item::user(text)]),
        1 => Just(vec![Item::user(long_text())]),
        6 => prop::collection::vec(item, 1..3),
    ]
}

fn any_change() -> impl Strategy<Value = HistoryChange> {
    let stop_reason =
        prop::sample::select(vec![StopReason::Stop, StopReason::Pause, StopReason::MaxTokens]);
    let turn = (any_model_items(), 0..3_usize, 0..9_usize, stop_reason, 0..8_usize);
    prop_oneof![
        10 => turn.prop_map(|(items, call_count, result_count, stop_reason, whole)| {
            HistoryChange::Turn { items, call_count, result_count, stop_reason, is_complete: whole > 0 }
        }),
        4 => any_appended_items().prop_map(HistoryChange::Append),
        1 => (any::<usize>(), 0..4_usize, any_appended_items()).prop_map(|(at, n, items)| HistoryChange::Rewrite(at, n, items)),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(a, b)| HistoryChange::Tombstone(a, b)),
        1 => (0..4_usize).prop_map(HistoryChange::Truncate),
        1 => Just(HistoryChange::Fork),
        1 => any_appended_items().prop_map(HistoryChange::Diverge),
        1 => (1..4_usize).prop_map(HistoryChange::Rewind),
    ]
}

fn any_settings() -> impl Strategy<Value = RequestSettings> {
    let few = || prop::sample::select(vec!["", " ", "Be brief.", "Be brief."]);
    let extra = prop::sample::select(vec![
        json!({}),
        json!({}),
        json!({ "n": 1, "metadata": { "a": 1 } }),
        json!({ "messages": [], "input": {}, "contents": 1 }),
    ]);
    let models = prop::sample::select(vec!["gemini-2.5-pro", "gemini-2.5-pro", "gemini-3-pro"]);
    let cache = prop::sample::select(vec![Cache::Off, Cache::Short, Cache::Short, Cache::Long]);
    (models, cache, 0..4_usize, few(), few(), extra, 0..12_usize).prop_map(
        |(model, cache, tools, stable, volatile, extra, context)| RequestSettings {
            model,
            cache,
            tools,
            stable_system: stable,
            volatile_system: volatile,
            extra,
            context_edit: context,
        },
    )
}

fn tool_result(call_id: &str, text: &str, at: usize) -> Item {
    let content = match at {
        1 => match image_message().as_user() {
            Some(content) => content.clone(),
            None => text.into(),
        },
        _ => text.into(),
    };
    let kind = if at == 2 { ResultKind::Error } else { ResultKind::Ok };
    Item::tool_result(ToolResult {
        call_id: call_id.into(),
        name: "t".into(),
        content,
        kind,
        report: None,
    })
}

fn turn_info(stop_reason: StopReason) -> Arc<TurnInfo> {
    let usage = Usage::default();
    Arc::new(TurnInfo { usage, model: None, response_id: None, stop_reason })
}

/// Applies one change to a history; `ids` counts its calls.
fn apply_change(
    history: &mut History,
    past: &[History],
    ids: &mut usize,
    act: HistoryChange,
    wire: usize,
) {
    match act {
        HistoryChange::Append(items) => history.extend(items),
        HistoryChange::Turn {
            mut items,
            call_count: calls,
            result_count: answered,
            stop_reason: stop,
            is_complete: whole,
        } => {
            let mut called = Vec::new();
            for _ in 0..calls {
                *ids += 1;
                called.push(format!("call_{ids}"));
                items.push(Item::tool_call(called.last().unwrap(), "t", "{\"a\": 1}"));
            }
            match items.last_mut() {
                Some(last) if whole => {
                    last.turn = Some(turn_info(stop));
                }
                _ => {
                    items = items
                        .into_iter()
                        .map(|item| item.with_flag(ItemFlag::Interrupted))
                        .collect();
                }
            }
            history.extend(items);
            for (at, id) in called.iter().enumerate().take(if whole { answered } else { 0 }) {
                history.push(tool_result(id, "done", at + answered % 3));
            }
        }
        HistoryChange::Rewrite(at, n, items) => {
            let from = at % (history.len() + 1);
            history.rewrite(from..from + n, items);
        }
        HistoryChange::Tombstone(a, b) => {
            let len = history.len().max(1);
            // Pending calls are not tombstoned.
            for tombstones in history.tombstone_edits([a % len, b % len]).unwrap_or_default() {
                tombstones.apply(history);
            }
        }
        HistoryChange::Truncate(n) => *history = history.truncated(history.len().saturating_sub(n)),
        HistoryChange::Fork => *history = history.fork(&CountingIds::new("f")),
        HistoryChange::Diverge(items) => {
            let mut old = history.clone();
            old.extend(items);
            let _ =
                encode_on(wire, &build_request(old, &RequestSettings::plain()), "gemini-2.5-pro");
        }
        HistoryChange::Rewind(n) => {
            if let Some(earlier) = past.len().checked_sub(n).and_then(|at| past.get(at)) {
                *history = earlier.clone();
            }
        }
    }
}

impl RequestSettings {
    fn plain() -> Self {
        let (model, cache, extra) = ("gemini-2.5-pro", Cache::Short, json!({}));
        Self {
            model,
            cache,
            tools: 1,
            stable_system: "Be brief.",
            volatile_system: "",
            extra,
            context_edit: 0,
        }
    }
}

fn build_request(history: History, ask: &RequestSettings) -> Request {
    let mut request = Request::new(history);
    match ask.context_edit {
        1 => request.context = request.context.truncated(request.context.len() / 2),
        2 => {
            let len = request.context.len();
            request.context.rewrite(len.saturating_sub(3)..len, [Item::user("short")]);
        }
        3 => request.context.push(Item::user("by the way")),
        _ => {}
    }
    let stable = STABLE_SYSTEMS.iter().find(|text| **text == ask.stable_system);
    let volatile = ask.volatile_system.into();
    request.system = System { stable: stable.unwrap().clone(), volatile };
    let Value::Object(extra) = ask.extra.clone() else { unreachable!("it is one") };
    request.options = Options { cache: ask.cache, extra, ..Options::default() };
    request.tools = TOOLS[ask.tools].clone();
    request
}

/// The stable system prompts, which all requests share.
static STABLE_SYSTEMS: LazyLock<[SharedText; 3]> =
    LazyLock::new(|| ["", " ", "Be brief."].map(SharedText::from));

/// The lists of tools, which all requests share.
static TOOLS: LazyLock<[ToolSpecs; 4]> = LazyLock::new(|| {
    let tool = |name: &str, deferred| {
        let parameters = json!({ "type": "object", "properties": {} });
        ToolSpec::new(name, "Does", parameters).with_deferred(deferred)
    };
    [
        ToolSpecs::default(),
        [tool("t", false)].into(),
        [tool("t", false), tool("u", true)].into(),
        [tool("u", false), tool("t", false)].into(),
    ]
});

/// The same request without anything cached.
fn uncached(request: &Request) -> Request {
    let mut fresh = request.clone();
    fresh.context = round_trip_json(&request.context);
    fresh.system.stable = SharedText::from(&*request.system.stable);
    fresh.tools = request.tools.iter().cloned().collect();
    fresh
}

const DIALECTS: [Dialect; 5] =
    [Dialect::OPENAI, Dialect::OPENROUTER, Dialect::MISTRAL, Dialect::LITELLM, Dialect::DEEPSEEK];

/// The number of encoders.
const ENCODER_COUNT: usize = DIALECTS.len() + 4;

/// The output of an encoder for a request.
fn encode_on(wire: usize, request: &Request, model: &str) -> Result<String, String> {
    let told = |encoded: Result<Vec<u8>, Error>| match encoded {
        Ok(bytes) => {
            let _: Value = serde_json::from_slice(&bytes).unwrap();
            Ok(String::from_utf8(bytes).unwrap())
        }
        Err(error) => Err(format!("{error} {:?}", error.parameter())),
    };
    match wire.checked_sub(DIALECTS.len()) {
        None => told(openai_chat::encode(request, model, &DIALECTS[wire])),
        Some(0) => told(openai_responses::encode(request, model)),
        Some(1) => told(anthropic::encode(request, model)),
        Some(2) => told(gemini::encode(request, model)),
        Some(_) => told(ollama::encode(request, model, &ollama::Chat::default())),
    }
}

/// Encodes a history after each of its items.
fn check_growing_history(
    wire: usize,
    ask: &RequestSettings,
    items: impl IntoIterator<Item = Item>,
) -> History {
    let mut history = History::empty("h");
    for item in items {
        history.push(item);
        let request = build_request(history.clone(), ask);
        let fresh = uncached(&request);
        assert_eq!(encode_on(wire, &request, ask.model), encode_on(wire, &fresh, ask.model));
    }
    history
}

/// The same history without any cached encoding.
fn round_trip_json(history: &History) -> History {
    serde_json::from_str(&serde_json::to_string(history).unwrap()).unwrap()
}

/// Changes from which a history recovers, with the settings of each request.
fn any_recoverable_changes() -> impl Strategy<Value = Vec<(HistoryChange, RequestSettings)>> {
    let said = || prop_oneof![4 => any_text().prop_map(Item::user), 1 => Just(image_message())];
    let tamed = |act| match act {
        HistoryChange::Append(_) => HistoryChange::Append(vec![Item::user("go on")]),
        HistoryChange::Turn {
            items,
            call_count: calls,
            result_count: answered,
            stop_reason: stop,
            ..
        } => HistoryChange::Turn {
            items,
            call_count: calls,
            result_count: answered + calls,
            stop_reason: stop,
            is_complete: true,
        },
        act => act,
    };
    let act = prop_oneof![
        4 => any_change().prop_map(tamed),
        1 => said().prop_map(|item| HistoryChange::Append(vec![item])),
        1 => said().prop_map(|item| HistoryChange::Append(vec![item, Item::text("half ").with_flag(ItemFlag::Interrupted)])),
    ];
    let acts = prop::collection::vec((act, any::<bool>()), 1..24);
    (acts, any_settings(), any_settings()).prop_map(|(acts, often, seldom)| {
        let asks = |seldom_now| if seldom_now { seldom.clone() } else { often.clone() };
        acts.into_iter().map(|(act, seldom_now)| (act, asks(seldom_now))).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    #[test]
    fn the_encode_cache_changes_no_byte(
        acts in prop_oneof![prop::collection::vec((any_change(), any_settings()), 1..14), any_recoverable_changes(), any_recoverable_changes()],
        leading in 0..3_usize,
        wire in 0..ENCODER_COUNT,
        other in 0..ENCODER_COUNT,
    ) {
        let mut history = History::empty("h");
        history.extend((0..leading).map(|n| Item::system(["", "first"][n % 2])));
        let (mut past, mut ids) = (Vec::new(), 0);
        for (act, ask) in acts {
            apply_change(&mut history, &past, &mut ids, act, wire);
            past.push(history.clone());
            let request = build_request(history.clone(), &ask);
            let fresh = uncached(&request);
            // At most two wires, so that both stay cached.
            for wire in [wire, other].into_iter().take(1 + leading % 2) {
                let (encoded, anew) =
                    (encode_on(wire, &request, ask.model), encode_on(wire, &fresh, ask.model));
                prop_assert_eq!(encoded, anew);
            }
        }
    }
}

#[test]
fn an_image_described_in_an_earlier_message_is_refused_when_the_message_is_new_again() {
    let encode = |history: &History| {
        openai_chat::encode(&Request::new(history.clone()), "m", &Dialect::DEEPSEEK)
    };
    let mut question = History::empty("h");
    question.push(image_message());
    let mut answered = question.clone();
    answered.extend([Item::text("A cat."), Item::user("Sure?")]);
    let body = String::from_utf8(encode(&answered).unwrap()).unwrap();
    assert!(body.contains("[An image (image/png) was omitted"), "{body}");
    let error = encode(&question).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[test]
fn a_cache_mark_can_be_placed_on_an_item_encoded_earlier() {
    let mut history = History::empty("h");
    history.push(Item::user("go"));
    for n in 0..5 {
        let mut call = Item::tool_call(format!("c{n}"), "t", "{}");
        call.turn = Some(turn_info(StopReason::ToolCalls));
        history.extend([call, tool_result(&format!("c{n}"), "ok", 0)]);
        let request = build_request(history.clone(), &RequestSettings::plain());
        let body = openai_chat::encode(&request, "m", &Dialect::OPENROUTER).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["messages"][1]["content"][0]["cache_control"]["type"], "ephemeral");
    }
}

#[test]
fn an_id_generated_for_an_earlier_item_is_not_reused() {
    let wire = DIALECTS.iter().position(|dialect| *dialect == Dialect::MISTRAL).unwrap();
    let first =
        [Item::user("go"), Item::tool_call("call_1", "t", "{}"), tool_result("call_1", "ok", 0)];
    let history = check_growing_history(wire, &RequestSettings::plain(), first.clone());
    let body = encode_on(wire, &build_request(history, &RequestSettings::plain()), "m").unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    let sent = body["messages"][2]["tool_calls"][0]["id"].as_str().unwrap();
    let again = [Item::user("go"), Item::tool_call(sent, "t", "{}"), tool_result(sent, "ok", 0)];
    check_growing_history(wire, &RequestSettings::plain(), first.into_iter().chain(again));
}

#[test]
fn reasoning_after_cached_results_is_sent_again() {
    let wire = DIALECTS.iter().position(|dialect| *dialect == Dialect::DEEPSEEK).unwrap();
    let call =
        Item { turn: Some(turn_info(StopReason::ToolCalls)), ..Item::tool_call("c", "t", "{}") };
    let items = [Item::user("go"), call, tool_result("c", "ok", 0), Item::reasoning("Hm.")];
    let said = Item { turn: Some(turn_info(StopReason::Stop)), ..Item::text("Done.") };
    check_growing_history(
        wire,
        &RequestSettings::plain(),
        items.into_iter().chain([said, Item::user("and?")]),
    );
}

#[test]
fn items_of_a_turn_are_linked_to_reasoning_encoded_earlier() {
    let kept = |item: Item, value: Value| {
        let (provider, model) = ("openai_responses".into(), RequestSettings::plain().model.into());
        let value = RawJson::new(&value).unwrap();
        Item { provider_data: Some(Arc::new(ProviderData { provider, model, value })), ..item }
    };
    let thought = json!({ "type": "reasoning", "id": "r", "encrypted_content": "e" });
    let message = json!({ "item": { "type": "message", "id": "m" }, "after": "r" });
    let call = json!({ "item": { "type": "function_call", "id": "c" }, "after": "r" });
    let history = check_growing_history(
        DIALECTS.len(),
        &RequestSettings::plain(),
        [
            Item::user("go"),
            kept(Item::reasoning(""), thought.clone()),
            kept(Item::text("so"), message.clone()),
            kept(Item::tool_call("c", "t", "{}"), call),
            tool_result("c", "ok", 0),
            Item::text("half").with_flag(ItemFlag::Interrupted),
        ],
    );
    let body = encode_on(
        DIALECTS.len(),
        &build_request(history, &RequestSettings::plain()),
        RequestSettings::plain().model,
    );
    let cut = |item: Item| item.with_flag(ItemFlag::Interrupted);
    check_growing_history(
        DIALECTS.len(),
        &RequestSettings::plain(),
        [
            Item::user("go"),
            cut(kept(Item::reasoning(""), thought)),
            cut(kept(Item::text("so"), message.clone())),
            kept(Item::text("so"), message),
        ],
    );
    assert!(body.unwrap().contains(r#""type":"function_call","id":"c""#));
}

#[test]
fn an_empty_stable_prompt_moves_its_cache_mark_to_the_first_message_only() {
    let mut history = History::from_items("h", [Item::user("one")]);
    let ask = RequestSettings { stable_system: " ", ..RequestSettings::plain() };
    let marks = |history: &History| {
        let body = encode_on(1, &build_request(history.clone(), &ask), "m").unwrap();
        let body: Value = serde_json::from_str(&body).unwrap();
        let marked = |message: &Value| !message["content"][0]["cache_control"].is_null();
        body["messages"].as_array().unwrap().iter().map(marked).collect::<Vec<_>>()
    };
    assert_eq!(marks(&history), [true]);
    history.extend([Item::user("two"), Item::user("three")]);
    assert_eq!(marks(&history), [true, false, true]);
}

#[test]
fn the_encode_cache_is_not_part_of_a_historys_value() {
    let history = History::from_items("h", [Item::user("go")]);
    let (told, same) = (format!("{history:?}"), round_trip_json(&history));
    encode_on(0, &build_request(history.clone(), &RequestSettings::plain()), "m").unwrap();
    assert_eq!(format!("{history:?}"), told);
    assert_eq!(history, same);
    assert_eq!(serde_json::to_string(&history).unwrap(), serde_json::to_string(&same).unwrap());
}
