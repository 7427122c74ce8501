//! Recorded streams of real models, read by the decoders, agree with what the vendors' own SDKs
//! make of them.
//!
//! The recordings are not part of the crate. `TURNSTREAM_CORPUS` names their folder, by default
//! `../shared/corpus`; where it is absent the tests say so and pass. A release build reads every
//! recording in thousands of cuts, a debug build in some. With `TURNSTREAM_CORPUS_ALL=1` the
//! recordings of all other vendors on the same wires are read too; what differs there is printed.

use std::env;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::StreamExt;
use futures::executor::block_on;
use futures::stream;
use serde_json::{Map, Value, json};
use turnstream::item::{History, Item, ItemKind, ResultKind, ToolCall};
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{Decoding, anthropic, openai_chat};
use turnstream::stream::seal;
use turnstream::turn::{PartialTurn, Turn, TurnEvent};
use turnstream::{Error, ErrorKind, Usage};

/// Those who define the two wires; everybody else copies them.
const VENDORS: &[&str] = &["anthropic", "anthropic.com", "openai", "openai.com"];

/// A recording that is read differently than by the vendor's SDK, on purpose.
struct Disagreement {
    name: &'static str,
    /// The fields that differ, and no others do.
    fields: &'static [&'static str],
    why: &'static str,
    /// Asserts what is read instead.
    ours: fn(&Reading),
}

const DISAGREEMENTS: &[Disagreement] = &[
    Disagreement {
        name: "vercel__anthropic__spliced-message-start",
        fields: &["complete", "finish_reason", "reasoning", "tool_calls", "usage"],
        why: "a second message begins inside the first: the SDK goes on in the blocks of the \
              first and gives two calls that nobody wrote; the turn ends there instead",
        ours: |reading| {
            let error = reading.error().expect("the second message is refused");
            assert_eq!(error.kind(), ErrorKind::Protocol);
            assert_eq!(error.message(), "a second message began inside the first");
            assert_eq!(reading.turn(), None);
            let calls = calls_of(&reading.fold().items());
            assert_eq!(calls.len(), 1);
            assert_eq!((&*calls[0].call_id, &*calls[0].name), ("toolu_first", "test-tool"));
            assert_eq!(calls[0].arguments, r#"{"value":"Spark"#);
        },
    },
    Disagreement {
        name: "anthropicsdk__incomplete_partial_json_response",
        fields: &["tool_calls"],
        why: "the output limit cuts the arguments off: the SDK closes what is open, so that they \
              look whole; here they stay the text that came, and the call may not run",
        ours: |reading| {
            let turn = reading.turn().expect("the turn is complete");
            let calls = calls_of(turn.items());
            assert_eq!(calls.len(), 1);
            assert_eq!(
                (&*calls[0].call_id, &*calls[0].name),
                ("toolu_01EKqbqmZrGRXy18eN7m9kvY", "make_file"),
            );
            let cut_off = serde_json::from_str::<Value>(&calls[0].arguments).unwrap_err();
            assert!(cut_off.is_eof(), "{cut_off}");
            let veto = turn.calls().veto().expect("no call may run");
            assert_eq!(veto.kind, ResultKind::Truncated);
        },
    },
    Disagreement {
        name: "pydantic__test_openai_test_openai_moderation_stream__0",
        fields: &["usage"],
        why: "a chunk with `usage: null` comes behind the one that counts: to the SDK nothing was \
              counted then; here `null` says nothing and the count stays",
        ours: |reading| {
            let turn = reading.turn().expect("the turn is complete");
            let counted = Usage { input_tokens: 13, output_tokens: 11, ..Usage::default() };
            assert_eq!(turn.usage(), counted);
        },
    },
];

#[test]
fn recordings_read_as_the_vendors_sdk_reads_them() {
    report("agreement with the vendor's SDK", &vendors_own(), differences);
}

#[test]
fn a_turn_is_the_sum_of_its_events() {
    report("the sum of the events", &vendors_own(), breaches);
}

#[test]
fn every_cut_of_the_bytes_gives_the_same_events() {
    if cfg!(debug_assertions) {
        println!("a debug build cuts at 50 places only; --release cuts everywhere");
    }
    report("the same events in every cut", &vendors_own(), unlike_readings);
}

#[test]
fn recordings_of_other_vendors_are_shown() {
    if env::var_os("TURNSTREAM_CORPUS_ALL").is_none_or(|all| all != "1") {
        println!("skipped: TURNSTREAM_CORPUS_ALL is not 1");
        return;
    }
    let others = recordings(|vendor| !VENDORS.contains(&vendor));
    let checks: [Check; 3] = [differences, breaches, unlike_readings];
    let mut agree = 0;
    for recording in &others {
        let found: Vec<String> = checks.iter().flat_map(|check| check(recording)).collect();
        agree += usize::from(found.is_empty());
        for problem in found {
            println!("{}: {problem}", recording.name);
        }
    }
    println!("other vendors: {agree} of {} recordings agree", others.len());
}

/// The comparison is worth something only if each of its fields can fail.
#[test]
fn a_wrong_value_in_any_field_is_a_difference() {
    let call = json!({ "index": 0, "id": "1", "function": { "name": "f", "arguments": "{}" } });
    let chunk = json!({
        "choices": [{
            "delta": {
                "content": "a", "reasoning_content": "hm", "refusal": "no", "tool_calls": [call],
            },
            "finish_reason": "stop",
        }],
        "usage": { "prompt_tokens": 3, "completion_tokens": 2 },
    });
    let bytes = Bytes::from(format!("data: {chunk}\n\ndata: [DONE]\n\n"));
    let expect = json!({
        "complete": true, "text": "a", "reasoning": "hm", "refusal": "no", "finish_reason": "stop",
        "tool_calls": [{ "id": "1", "name": "f", "arguments_raw": "{}", "arguments": {} }],
        "usage": { "prompt_tokens": 3, "completion_tokens": 2 },
    });
    let check = |expect: Value| {
        let (wire, name) = (Wire::OpenAiChat, String::new());
        let recording = Recording { wire, name, bytes: bytes.clone(), expect };
        let unlike = unlike_fields(&recording, &read_whole(&recording));
        unlike.into_iter().map(|(field, ..)| field).collect::<Vec<_>>()
    };
    assert_eq!(check(expect.clone()), Vec::<String>::new());
    for (field, pointer, wrong) in [
        ("complete", "/complete", json!(false)),
        ("text", "/text", json!("b")),
        ("reasoning", "/reasoning", json!("")),
        ("refusal", "/refusal", json!("yes")),
        ("finish_reason", "/finish_reason", json!("length")),
        ("tool_calls", "/tool_calls/0/id", json!("2")),
        ("tool_calls", "/tool_calls/0/name", json!("g")),
        ("tool_calls", "/tool_calls/0/arguments", json!({ "a": 1 })),
        ("tool_calls", "/tool_calls/0/arguments_raw", json!("{ }")),
        ("usage", "/usage/prompt_tokens", json!(4)),
    ] {
        let mut changed = expect.clone();
        *changed.pointer_mut(pointer).unwrap() = wrong;
        assert_eq!(check(changed), [field], "{pointer}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Anthropic,
    OpenAiChat,
}

struct Recording {
    wire: Wire,
    name: String,
    bytes: Bytes,
    /// What the vendor's SDK makes of the bytes.
    expect: Value,
}

/// Says what is wrong with how a recording is read.
type Check = fn(&Recording) -> Vec<String>;

/// Checks every recording and fails with all that is wrong.
fn report(claim: &str, recordings: &[Recording], check: Check) {
    let problems: Vec<String> = recordings
        .iter()
        .flat_map(|recording| {
            check(recording).into_iter().map(|problem| format!("{}: {problem}", recording.name))
        })
        .collect();
    assert!(problems.is_empty(), "{claim}:\n{}", problems.join("\n"));
    println!("{claim}: {} recordings", recordings.len());
}

fn vendors_own() -> Vec<Recording> {
    recordings(|vendor| VENDORS.contains(&vendor))
}

/// The recordings of the folder on the two wires, or none where there is no folder.
fn recordings(wanted: impl Fn(&str) -> bool) -> Vec<Recording> {
    let folder = env::var_os("TURNSTREAM_CORPUS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus"),
        PathBuf::from,
    );
    if !folder.is_dir() {
        println!("skipped: there are no recordings at {}", folder.display());
        return Vec::new();
    }
    let index = json_file(&folder.join("index.json"));
    let entries = index.as_array().expect("the index is an array");
    entries
        .iter()
        .filter(|entry| wanted(entry["vendor"].as_str().unwrap_or_default()))
        .filter_map(|entry| {
            let api = entry["api"].as_str()?;
            let wire = match api {
                "anthropic" => Wire::Anthropic,
                "openai-chat" => Wire::OpenAiChat,
                _ => return None,
            };
            let name = entry["name"].as_str()?.to_owned();
            let folder = folder.join(api).join(&name);
            let bytes = fs::read(folder.join("stream.sse")).expect("a recording has its stream");
            let expect = json_file(&folder.join("expect.json"));
            Some(Recording { wire, name, bytes: bytes.into(), expect })
        })
        .collect()
}

fn json_file(path: &Path) -> Value {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All that a stream gave.
#[derive(Debug, PartialEq)]
struct Reading(Vec<Result<TurnEvent, Error>>);

impl Reading {
    fn events(&self) -> impl Iterator<Item = &TurnEvent> {
        self.0.iter().filter_map(|event| event.as_ref().ok())
    }

    fn error(&self) -> Option<&Error> {
        self.0.last().and_then(|last| last.as_ref().err())
    }

    fn turn(&self) -> Option<&Turn> {
        match self.0.last() {
            Some(Ok(TurnEvent::TurnComplete { turn })) => Some(turn),
            _ => None,
        }
    }

    fn fold(&self) -> PartialTurn {
        let mut fold = PartialTurn::default();
        self.events().for_each(|event| fold.absorb(event));
        fold
    }
}

fn read_whole(recording: &Recording) -> Reading {
    read(recording, vec![recording.bytes.clone()])
}

fn read(recording: &Recording, pieces: Vec<Bytes>) -> Reading {
    let history = History::with_id("corpus");
    let body = stream::iter(pieces.into_iter().map(Ok));
    let model = recording.expect["model"].as_str().unwrap_or_default();
    let events = match recording.wire {
        Wire::Anthropic => seal(&history, Decoding::new(body, anthropic::Decoder::new(model))),
        Wire::OpenAiChat => {
            seal(&history, Decoding::new(body, openai_chat::Decoder::new(model, &Dialect::OPENAI)))
        }
    };
    Reading(block_on(events.collect()))
}

/// What is read differently than by the vendor's SDK and not listed so, or listed and not so.
fn differences(recording: &Recording) -> Vec<String> {
    let reading = read_whole(recording);
    if let Some(error) = recording.expect.get("oracle_error") {
        println!("{}: the SDK refuses it, so nothing is expected: {error}", recording.name);
        return Vec::new();
    }
    let unlike = unlike_fields(recording, &reading);
    let listed = DISAGREEMENTS.iter().find(|listed| listed.name == recording.name);
    let Some(listed) = listed else {
        let told = unlike.into_iter().map(|(field, found, expected)| {
            let error = reading.error().map(|error| format!(" ({error})")).unwrap_or_default();
            format!("{field} is {found}{error}, and {expected} to the SDK")
        });
        return told.collect();
    };
    let fields: Vec<&str> = unlike.iter().map(|(field, ..)| field.as_str()).collect();
    if fields != listed.fields {
        let Disagreement { fields: expected, why, .. } = listed;
        return vec![format!("differs in {fields:?}, and should in {expected:?}: {why}")];
    }
    (listed.ours)(&reading);
    println!("{}, in {fields:?}: {}", recording.name, listed.why);
    Vec::new()
}

/// The fields that differ, as they are found and as they are expected.
fn unlike_fields(recording: &Recording, reading: &Reading) -> Vec<(String, Value, Value)> {
    let (Value::Object(found), Value::Object(mut expected)) =
        (found(recording.wire, reading), expected(recording))
    else {
        unreachable!("both are written as objects")
    };
    found
        .into_iter()
        .filter_map(|(field, found)| {
            let expected = expected.remove(&field).unwrap_or_default();
            (found != expected).then_some((field, found, expected))
        })
        .collect()
}

/// What was read, in the terms of `expect.json`.
fn found(wire: Wire, reading: &Reading) -> Value {
    let (mut text, mut reasoning, mut refusal) = (String::new(), String::new(), String::new());
    for event in reading.events() {
        match event {
            TurnEvent::TextDelta { text: piece, .. } => text.push_str(piece),
            TurnEvent::ReasoningDelta { text: piece, .. } => reasoning.push_str(piece),
            TurnEvent::RefusalDelta { text: piece, .. } => refusal.push_str(piece),
            _ => {}
        }
    }
    let fold = reading.fold();
    let turn = reading.turn();
    let items = turn.map_or_else(|| fold.items(), |turn| turn.items().to_vec());
    let calls = calls_of(&items);
    json!({
        "complete": turn.is_some(),
        "text": text,
        "reasoning": reasoning,
        "refusal": refusal,
        "tool_calls": calls.iter().map(|call| call_as_expected(wire, call)).collect::<Vec<_>>(),
        "server_tool_calls": items.iter().filter_map(server_call).collect::<Vec<_>>(),
        "finish_reason": turn.and_then(Turn::raw_stop_reason),
        "usage": turn.map_or_else(|| fold.usage(), Turn::usage),
    })
}

/// What the SDK makes of it. Where the SDK breaks off with an error there is no finished turn.
fn expected(recording: &Recording) -> Value {
    let expect = &recording.expect;
    let whole = expect.get("stream_error").is_none();
    let words = |field: &str| expect[field].as_str().unwrap_or_default();
    let calls = |field: &str| match &expect[field] {
        Value::Array(calls) => calls.iter().cloned().map(without_nulls).collect(),
        _ => Vec::new(),
    };
    json!({
        "complete": whole && expect["complete"] == true,
        "text": words("text"),
        "reasoning": words("reasoning"),
        "refusal": words("refusal"),
        "tool_calls": calls("tool_calls"),
        "server_tool_calls": calls("server_tool_calls"),
        "finish_reason": expect["finish_reason"].as_str().filter(|_| whole),
        "usage": expected_usage(recording.wire, &expect["usage"]),
    })
}

/// The expectations leave out what is null, also inside arguments.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            fields.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        Value::Array(values) => values.into_iter().map(without_nulls).collect(),
        value => value,
    }
}

fn calls_of(items: &[Item]) -> Vec<ToolCall> {
    items.iter().filter_map(Item::as_tool_call).cloned().collect()
}

/// Arguments that are no object are left out, as the SDKs of the two vendors do.
fn call_as_expected(wire: Wire, call: &ToolCall) -> Value {
    let mut out = json!({ "id": call.call_id, "name": call.name });
    let arguments = match wire {
        Wire::Anthropic => call.arguments_or_empty(),
        Wire::OpenAiChat => {
            out["arguments_raw"] = call.arguments.as_str().into();
            &call.arguments
        }
    };
    if let Ok(arguments) = serde_json::from_str::<Map<String, Value>>(arguments) {
        out["arguments"] = arguments.into();
    }
    without_nulls(out)
}

/// A call that the provider runs itself, kept verbatim.
fn server_call(item: &Item) -> Option<Value> {
    let data = item.provider_data.as_ref().filter(|_| item.kind == ItemKind::Other)?;
    let block = data.value.to_value();
    let is_call = matches!(block["type"].as_str(), Some("server_tool_use" | "mcp_tool_use"));
    let call = json!({ "id": block["id"], "name": block["name"], "arguments": block["input"] });
    is_call.then(|| without_nulls(call))
}

/// The formulas are those of the documentation of [`Usage`].
fn expected_usage(wire: Wire, usage: &Value) -> Usage {
    let count = |pointer| usage.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    match wire {
        Wire::Anthropic => {
            let cache_read_input_tokens = count("/cache_read_input_tokens");
            let cache_write_input_tokens = count("/cache_creation_input_tokens");
            Usage {
                input_tokens: count("/input_tokens")
                    + cache_read_input_tokens
                    + cache_write_input_tokens,
                output_tokens: count("/output_tokens"),
                cache_read_input_tokens,
                cache_write_input_tokens,
                reasoning_tokens: count("/output_tokens_details/thinking_tokens"),
            }
        }
        Wire::OpenAiChat => Usage {
            input_tokens: count("/prompt_tokens"),
            // Where they add up to the total apart from each other, the answer is both.
            output_tokens: {
                let (said, reasoned) =
                    ("/completion_tokens", "/completion_tokens_details/reasoning_tokens");
                let apart = count("/prompt_tokens") + count(said) + count(reasoned);
                let is_apart = count("/total_tokens") == apart;
                count(said) + if is_apart { count(reasoned) } else { 0 }
            },
            cache_read_input_tokens: count("/prompt_tokens_details/cached_tokens"),
            cache_write_input_tokens: count("/prompt_tokens_details/cache_write_tokens"),
            reasoning_tokens: count("/completion_tokens_details/reasoning_tokens"),
        },
    }
}

/// How the events break the laws of a turn.
fn breaches(recording: &Recording) -> Vec<String> {
    let reading = read_whole(recording);
    let mut breaches = Vec::new();
    let is_last = |event: &Result<TurnEvent, Error>| {
        matches!(event, Err(_) | Ok(TurnEvent::TurnComplete { .. }))
    };
    if reading.0.iter().position(is_last) != reading.0.len().checked_sub(1) {
        breaches.push("its last event or error is not the last, or not there".to_owned());
    }
    let fold = reading.fold();
    let partial = reading.error().and_then(PartialTurn::of);
    let said = reading.turn().map(|turn| (turn.items().to_vec(), turn.usage()));
    let said = said.or_else(|| partial.map(|partial| (partial.items(), partial.usage())));
    if let Some((items, usage)) = said {
        let (folded, items) = (said_in(fold.items()), said_in(items));
        if folded != items {
            breaches.push(format!("its events add up to {folded:?}, and its turn is {items:?}"));
        }
        if fold.usage() != usage {
            breaches.push(format!("its events count {:?}, and its turn {usage:?}", fold.usage()));
        }
    }
    breaches
}

/// What no event carries is left out: provider data, the provider's own items, empty ones.
fn said_in(items: Vec<Item>) -> Vec<ItemKind> {
    let kinds = items.into_iter().map(|item| item.kind);
    kinds
        .filter(|kind| match kind {
            ItemKind::Text { text } | ItemKind::Reasoning { text } => !text.is_empty(),
            kind => *kind != ItemKind::Other,
        })
        .collect()
}

/// The ways to cut the bytes that give other events than the whole.
fn unlike_readings(recording: &Recording) -> Vec<String> {
    let bytes = &recording.bytes;
    let whole = read_whole(recording);
    let mut unlike = Vec::new();
    let single = (0..bytes.len()).map(|at| bytes.slice(at..=at)).collect();
    if read(recording, single) != whole {
        unlike.push("read byte by byte it gives other events than as a whole".to_owned());
    }
    let mut at = cuts(bytes.len());
    at.retain(|&at| read(recording, vec![bytes.slice(..at), bytes.slice(at..)]) != whole);
    if let Some(first) = at.first() {
        let places = at.len();
        unlike.push(format!(
            "cut at byte {first} it gives other events than as a whole ({places} such places)"
        ));
    }
    unlike
}

/// Where bytes are cut in two: at each of the first 4 KiB and at 500 places behind them; in a
/// debug build at 50 places in all.
fn cuts(len: usize) -> Vec<usize> {
    let (dense, places) = if cfg!(debug_assertions) { (0, 50) } else { (4 << 10, 500) };
    let mut cuts: Vec<usize> = (1..=dense.min(len.saturating_sub(1))).collect();
    let behind = dense + 1..len;
    if behind.len() <= places {
        cuts.extend(behind);
        return cuts;
    }
    // xorshift64: the same places in every run.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let seeded = iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        behind.start + usize::try_from(state % behind.len() as u64).unwrap_or_default()
    });
    cuts.extend(seeded.take(places));
    cuts
}
