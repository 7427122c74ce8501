//! Properties that hold for any stream and any history.

use std::sync::Arc;

use bytes::Bytes;
use futures::executor::block_on;
use futures::{StreamExt, stream};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;
use turnstream::item::{
    Item, ItemFlag, ItemKind, Part, ProviderData, RawJson, ResultKind, StopReason, ToolResult,
    TurnInfo,
};
use turnstream::provider::{Decoding, anthropic};
use turnstream::request::{Cache, Options, System, ToolSpec};
use turnstream::stream::seal;
use turnstream::turn::TurnEvent;
use turnstream::{Error, History, Request, Usage};
use turnstream_testing::{Wire, lint};

#[path = "../../../../tests/wires/anthropic/fixture.rs"]
#[allow(dead_code, reason = "the tests of the wire use all of it")]
mod fixture;

use self::fixture::*;

/// A stream with every kind of content.
fn full_stream() -> Vec<String> {
    let thought = r#"{"type":"thinking","thinking":"","signature":""}"#;
    let call = r#"{"type":"tool_use","id":"t1","name":"f","input":{}}"#;
    let server = r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}"#;
    let details = r#""container":{"id":"c1"},"stop_sequence":null"#;
    vec![
        MESSAGE_START.into(),
        content_block_start(0, thought),
        content_block_delta(0, r#"{"type":"thinking_delta","thinking":"Hm é 👍"}"#),
        content_block_delta(0, r#"{"type":"signature_delta","signature":"c2ln=="}"#),
        content_block_stop(0),
        content_block_start(1, r#"{"type":"text","text":"","citations":[]}"#),
        text_delta(1, "Hel"),
        text_delta(1, "lo \\ud83d\\udc4d"),
        content_block_delta(1, r#"{"type":"citations_delta","citation":{"cited_text":"x"}}"#),
        content_block_stop(1),
        content_block_start(2, server),
        input_json_delta(2, "{\"query\":"),
        input_json_delta(2, "\"q\"}"),
        content_block_stop(2),
        content_block_start(3, call),
        input_json_delta(3, ""),
        input_json_delta(3, "{\"a\""),
        input_json_delta(3, ":\"é\"}"),
        content_block_stop(3),
        format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"tool_use",{details}}},"usage":{{"output_tokens":9}}}}"#
        ),
        MESSAGE_STOP.into(),
    ]
}

/// All events of a stream that arrives in these pieces.
fn decode_pieces(pieces: Vec<Bytes>) -> Vec<Result<TurnEvent, Error>> {
    let body = stream::iter(pieces.into_iter().map(Ok));
    let decoding = Decoding::new(body, anthropic::Decoder::new(MODEL));
    block_on(seal(&History::empty("h"), decoding).collect())
}

fn decode_whole_stream() -> Vec<Result<TurnEvent, Error>> {
    let events = decode_pieces(vec![sse_body(&full_stream()).into()]);
    assert!(matches!(events.last(), Some(Ok(TurnEvent::TurnComplete { .. }))), "{events:?}");
    events
}

#[test]
fn any_split_of_the_bytes_yields_the_same_events() {
    let (bytes, whole) = (Bytes::from(sse_body(&full_stream())), decode_whole_stream());
    for at in 0..=bytes.len() {
        assert_eq!(decode_pieces(vec![bytes.slice(..at), bytes.slice(at..)]), whole, "cut at {at}");
    }
    let single = (0..bytes.len()).map(|at| bytes.slice(at..=at)).collect();
    assert_eq!(decode_pieces(single), whole);
}

/// Frames without meaning, which may occur between any two others.
fn noise_frames() -> impl Strategy<Value = &'static str> {
    select(vec![
        ": keepalive\n",
        ":\n\n",
        "\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "data: {\"type\":\"ping\"}\n\n",
        "event: ping\ndata:\n\n",
        "event: content_block_hologram\ndata: {\"type\":\"content_block_hologram\",\"index\":1}\n\n",
        "event: weather\ndata: not even JSON\n\n",
        "data: {\"type\":\"message_mood\",\"delta\":{\"stop_reason\":\"max_tokens\"}}\n\n",
        "data: {\"x\":1}\n\n",
        "id: 7\nretry: 3\n",
        "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"new_delta\",\"text\":\"no\"}}\n\n",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn noise_between_frames_and_arbitrary_splits_change_nothing(
        noise in vec((any::<Index>(), noise_frames()), 0..12),
        lengths in vec(1_usize..200, 1..6),
    ) {
        let mut frames: Vec<String> = full_stream().iter().map(|e| sse_body(std::slice::from_ref(e))).collect();
        for (at, noise) in noise {
            frames.insert(at.index(frames.len() + 1), noise.to_owned());
        }
        let mut rest = Bytes::from(frames.concat());
        let mut pieces = Vec::new();
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            pieces.push(rest.split_to((*length).min(rest.len())));
        }
        prop_assert_eq!(decode_pieces(pieces), decode_whole_stream());
    }
}

/// A step of a conversation, in a possible order.
#[derive(Clone, Debug)]
enum ConversationStep {
    User(Vec<Part>),
    System(String),
    /// A turn of these items, and the results of its calls.
    Turn(Vec<ModelItem>, Vec<Part>),
    /// An incomplete turn.
    CutOff(Vec<ModelItem>),
    Tombstone(String),
}

#[derive(Clone, Debug)]
enum ModelItem {
    Text(String, Author),
    Reasoning(String, Author),
    RedactedThinking(Author),
    ToolCall(String, Author),
    ServerToolUse(Author),
    /// The result of the last use of a server tool.
    ServerToolResult(Author),
    MessageData(Author),
}

/// The author of an item.
#[derive(Clone, Copy, Debug)]
enum Author {
    ThisModel,
    OtherModel,
    OtherProvider,
    NoProvider,
}

fn any_text() -> impl Strategy<Value = String> {
    select(vec!["a", "b \n", "", " \n", " c", "é👍"]).prop_map(str::to_owned)
}

fn any_parts() -> impl Strategy<Value = Vec<Part>> {
    let part = prop_oneof![
        4 => any_text().prop_map(|text| Part::from(text.as_str())),
        1 => Just(Part::image("image/png", b"\0\0\0")),
    ];
    vec(part, 0..3)
}

fn any_author() -> impl Strategy<Value = Author> {
    select(vec![
        Author::ThisModel,
        Author::ThisModel,
        Author::OtherModel,
        Author::OtherProvider,
        Author::NoProvider,
    ])
}

fn any_model_item() -> impl Strategy<Value = ModelItem> {
    prop_oneof![
        3 => (any_text(), any_author()).prop_map(|(text, whose)| ModelItem::Text(text, whose)),
        3 => (any_text(), any_author()).prop_map(|(text, whose)| ModelItem::Reasoning(text, whose)),
        1 => any_author().prop_map(ModelItem::RedactedThinking),
        3 => (select(vec!["", "{}", "{\"a\":1}", "[1", "{\"a\":"]), any_author())
            .prop_map(|(arguments, whose)| ModelItem::ToolCall(arguments.to_owned(), whose)),
        2 => any_author().prop_map(ModelItem::ServerToolUse),
        2 => any_author().prop_map(ModelItem::ServerToolResult),
        1 => any_author().prop_map(ModelItem::MessageData),
    ]
}

fn any_step() -> impl Strategy<Value = ConversationStep> {
    prop_oneof![
        3 => any_parts().prop_map(ConversationStep::User),
        1 => any_text().prop_map(ConversationStep::System),
        4 => (vec(any_model_item(), 1..5), any_parts()).prop_map(|(said, answer)| ConversationStep::Turn(said, answer)),
        1 => vec(any_model_item(), 1..4).prop_map(ConversationStep::CutOff),
        1 => any_text().prop_map(ConversationStep::Tombstone),
    ]
}

/// The histories of consecutive requests, each a prefix of the next.
fn growing_histories(scenes: Vec<ConversationStep>) -> Vec<History> {
    let mut history = History::empty("h");
    let mut calls = 0;
    let mut all = Vec::new();
    for scene in scenes {
        match scene {
            ConversationStep::User(parts) => history.push(Item::user(parts)),
            ConversationStep::System(text) => history.push(Item::system(text)),
            ConversationStep::Tombstone(text) => {
                history.push(Item::user(text).with_flag(ItemFlag::Tombstone));
            }
            ConversationStep::CutOff(said) => {
                let items = said.into_iter().map(|said| build_item(said, &mut calls));
                history.extend(items.map(|item| item.with_flag(ItemFlag::Interrupted)));
            }
            ConversationStep::Turn(said, answer) => {
                let mut items: Vec<_> =
                    said.into_iter().map(|said| build_item(said, &mut calls)).collect();
                let stop_reason = match items.len() % 2 {
                    0 => StopReason::Pause,
                    _ => StopReason::Stop,
                };
                let usage = Usage::default();
                let turn = TurnInfo { usage, model: None, response_id: None, stop_reason };
                items.last_mut().unwrap().turn = Some(Arc::new(turn));
                let answers: Vec<_> = items
                    .iter()
                    .filter_map(Item::as_tool_call)
                    .map(|call| ToolResult::for_call(call, ResultKind::Error, answer.clone()))
                    .map(Item::tool_result)
                    .collect();
                let pauses = answers.is_empty();
                history.extend(items);
                if pauses {
                    all.push(history.clone());
                }
                history.extend(answers);
            }
        }
        all.push(history.clone());
    }
    all
}

fn build_item(said: ModelItem, calls: &mut u32) -> Item {
    let value: String;
    let (kind, value, whose) = match said {
        ModelItem::Text(text, whose) => {
            (ItemKind::Text { text }, r#"{"citations":[{"z":1,"a":2}]}"#, whose)
        }
        ModelItem::Reasoning(text, whose) => {
            (ItemKind::Reasoning { text }, r#"{"signature":"s=="}"#, whose)
        }
        ModelItem::RedactedThinking(whose) => {
            let kind = ItemKind::Reasoning { text: String::new() };
            (kind, r#"{"type":"redacted_thinking","data":"d=="}"#, whose)
        }
        ModelItem::ToolCall(arguments, whose) => {
            *calls += 1;
            let call = Item::tool_call(format!("c{calls}"), "f", arguments);
            (call.kind, r#"{"caller":{"type":"direct"}}"#, whose)
        }
        ModelItem::ServerToolUse(whose) => {
            *calls += 1;
            value = format!(r#"{{"type":"server_tool_use","id":"s{calls}"}}"#);
            (ItemKind::Other, value.as_str(), whose)
        }
        ModelItem::ServerToolResult(whose) => {
            value = format!(r#"{{"type":"web_search_tool_result","tool_use_id":"s{calls}"}}"#);
            (ItemKind::Other, value.as_str(), whose)
        }
        ModelItem::MessageData(whose) => {
            (ItemKind::Other, r#"{"type":"message","container":{"id":"c"}}"#, whose)
        }
    };
    let (provider, model) = match whose {
        Author::ThisModel => ("anthropic", MODEL),
        Author::OtherModel => ("anthropic", "another"),
        Author::OtherProvider => ("gemini", MODEL),
        Author::NoProvider => return Item::new(kind),
    };
    let value = RawJson::parse(value).unwrap();
    let data = ProviderData { provider: provider.into(), model: model.into(), value };
    Item { provider_data: Some(Arc::new(data)), ..Item::new(kind) }
}

/// A request of the conversation; its volatile parts differ each time.
fn build_request(history: &History, n: usize, cache: Cache) -> Request {
    let spec = |name: &str| ToolSpec::new(name, "d", serde_json::json!({ "type": "object" }));
    let mut request = Request::new(history.clone())
        .with_tools(vec![spec("f"), spec("g")])
        .with_options(Options { cache, ..Options::default() });
    request.system = System { stable: "stable".into(), volatile: format!("volatile {n}") };
    // Results of the server's own tools may come in later turns.
    let servers = serde_json::json!([{ "type": "url", "name": "s", "url": "https://example.com" }]);
    request.options.extra.insert("mcp_servers".into(), servers);
    request
}

/// The text of every block, in order, each with the role of its message, without cache marks.
fn block_texts(body: &str) -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        tools: Vec<&'a serde_json::value::RawValue>,
        system: Vec<&'a serde_json::value::RawValue>,
        messages: Vec<Message<'a>>,
    }
    #[derive(serde::Deserialize)]
    struct Message<'a> {
        role: &'a str,
        #[serde(borrow)]
        content: Vec<&'a serde_json::value::RawValue>,
    }
    let body: Body<'_> = serde_json::from_str(body).unwrap();
    let unmarked = |text: &str| text.replace(r#","cache_control":{"type":"ephemeral"}"#, "");
    let tools = body.tools.iter().map(|tool| format!("tool {}", unmarked(tool.get())));
    let system = body.system[..1].iter().map(|zone| format!("system {}", unmarked(zone.get())));
    let blocks = body.messages.iter().flat_map(|message| {
        message.content.iter().map(|block| format!("{} {}", message.role, unmarked(block.get())))
    });
    let blocks = blocks.filter(|block| !block.contains("(Earlier messages are not shown.)"));
    tools.chain(system).chain(blocks).collect()
}

/// Whether `blocks` start with `before`. A use of the server's own tool that waited for its result
/// may be left out, with the reasoning before it; text before it may then be at the end, without
/// trailing white space.
fn starts_with_blocks(blocks: &[String], mut before: &[String]) -> bool {
    let waits = |blocks: &[String]| {
        let thoughts = blocks.iter().take_while(|block| block.contains("thinking\"")).count();
        let is_use = |block: &String| block.contains("server_tool_use");
        blocks.get(thoughts).is_some_and(is_use).then_some(thoughts + 1)
    };
    let mut blocks = blocks.iter().peekable();
    while let Some((first, rest)) = before.split_first() {
        let trimmed = waits(rest).map(|_| first.replace(" \\n\"", "\""));
        if blocks.next_if(|block| *block == first || Some(*block) == trimmed.as_ref()).is_some() {
            before = rest;
        } else if let Some(left_out) = waits(before) {
            before = &before[left_out..];
        } else {
            return false;
        }
    }
    true
}

/// Checks the rules that the vendor enforces for every request.
fn check_vendor_rules(body: &str, most_marks: usize) -> Result<(), TestCaseError> {
    prop_assert!(body.matches("\"cache_control\"").count() <= most_marks, "{}", body);
    let body: Value = serde_json::from_str(body).unwrap();
    prop_assert_eq!(body["system"][1].get("cache_control"), None);
    let messages = body["messages"].as_array().unwrap();
    for (at, message) in messages.iter().enumerate() {
        let role = ["user", "assistant"][at % 2];
        prop_assert_eq!(&message["role"], role, "{}", body);
        let blocks = message["content"].as_array().unwrap();
        prop_assert!(!blocks.is_empty());
        let mut results_are_over = false;
        for block in blocks {
            let kind = block["type"].as_str().unwrap();
            if let Some(text) = block["text"].as_str() {
                prop_assert!(!text.trim().is_empty(), "{}", message);
            }
            prop_assert!(!results_are_over || kind != "tool_result", "{}", message);
            results_are_over |= kind != "tool_result";
            let markable = matches!(kind, "text" | "image" | "tool_result") && role == "user";
            prop_assert!(markable || block.get("cache_control").is_none(), "{}", message);
            prop_assert!(kind != "tool_result" || role == "user", "{}", message);
        }
        prop_assert_ne!(&blocks.last().unwrap()["type"], "thinking");
    }
    let refused = lint::request(Wire::Anthropic, MODEL, &body);
    let unpaired = |refusal: &&String| refusal.contains("server") || refusal.contains("unexpected");
    prop_assert_eq!(refused.iter().find(unpaired), None, "{}", body);
    check_call_result_pairs(messages)
}

/// Checks that every call is answered in the next message, and that every result answers a call.
fn check_call_result_pairs(messages: &[Value]) -> Result<(), TestCaseError> {
    let ids = |message: Option<&Value>, kind: &str, id: &str| -> Vec<Value> {
        let blocks = message.and_then(|message| message["content"].as_array());
        let blocks = blocks.into_iter().flatten().filter(|block| block["type"] == kind);
        blocks.map(|block| block[id].clone()).collect()
    };
    for (at, message) in messages.iter().enumerate() {
        let calls = ids(Some(message), "tool_use", "id");
        let results = ids(messages.get(at + 1), "tool_result", "tool_use_id");
        prop_assert_eq!(calls, results);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Law 9, and that the vendor accepts each request.
    #[test]
    fn each_request_extends_the_previous_one(
        scenes in vec(any_step(), 1..8),
        cache in select(vec![Cache::Off, Cache::Short]),
    ) {
        let most_marks = if cache == Cache::Off { 0 } else { 3 };
        let mut before: Vec<String> = Vec::new();
        for (n, history) in growing_histories(scenes).iter().enumerate() {
            // A history of only empty messages has nothing to send.
            let Ok(body) = encode_to_string(&build_request(history, n, cache), MODEL) else { continue };
            check_vendor_rules(&body, most_marks)?;
            let blocks = block_texts(&body);
            prop_assert!(starts_with_blocks(&blocks, &before), "{:#?} then {:#?}", before, blocks);
            before = blocks;
        }
    }
}
