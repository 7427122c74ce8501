//! Recorded streams of real models: the results of the decoders agree with those of the vendors'
//! own SDKs.
//!
//! The recordings are not part of the crate. `TURNSTREAM_CORPUS` names their folder, by default
//! `../shared/corpus`, and `cargo test --test wires corpus -- --ignored` runs the tests. Any folder
//! of the form `<api>/<name>/{stream.sse,expect.json,meta.json}` works. A release build reads every
//! recording in thousands of splits, a debug build in some.

mod disagreements;
mod growing_values;
mod interrupted;
mod partial_args;
mod recording;
mod sdk;

use std::iter;

use bytes::Bytes;
use serde_json::{Value, json};
use turnstream::Error;
use turnstream::item::{Item, ItemKind};
use turnstream::turn::{PartialTurn, TurnEvent};

use self::disagreements::DISAGREEMENTS;
use self::recording::{Recording, Wire, decode_pieces, decode_whole, load_recordings};
use self::sdk::differing_fields;
use turnstream_test_support::wires::parse_each_frame;

#[test]
#[ignore = "needs recordings: TURNSTREAM_CORPUS"]
fn recordings_are_decoded_as_by_the_vendors_sdk() {
    check_recordings("agreement with the vendor's SDK", &load_recordings(), unlisted_differences);
}

#[test]
#[ignore = "needs recordings: TURNSTREAM_CORPUS"]
fn a_turn_is_the_sum_of_its_events() {
    check_recordings("the sum of the events", &load_recordings(), event_violations);
}

#[test]
#[ignore = "needs recordings: TURNSTREAM_CORPUS"]
fn any_split_of_the_bytes_yields_the_same_events() {
    if cfg!(debug_assertions) {
        println!("a debug build cuts at 50 places only; --release cuts everywhere");
    }
    check_recordings("the same events in every cut", &load_recordings(), chunking_differences);
}

#[test]
#[ignore = "needs recordings: TURNSTREAM_CORPUS"]
fn a_frame_that_repeats_another_is_read_as_the_parser_reads_it() {
    check_recordings("the same when each frame is parsed", &load_recordings(), parser_differences);
}

#[test]
#[ignore = "needs recordings: TURNSTREAM_CORPUS"]
fn the_history_of_an_interrupted_recording_can_be_sent_on_every_wire() {
    let recordings = load_recordings();
    let runs = interrupted::interrupt_at_every_event(&recordings);
    println!(
        "interrupted recordings: {runs} runs of {} recordings, each encoded on {} wires",
        recordings.len(),
        turnstream_testing::Wire::ALL.len(),
    );
}

#[test]
#[ignore = "needs recordings: TURNSTREAM_CORPUS"]
fn growing_values_begin_like_the_complete_ones_after_every_byte() {
    let recordings = load_recordings();
    let mut counts = growing_values::Counts::default();
    let mut problems = Vec::new();
    for recording in &recordings {
        let found = growing_values::violations(recording, &mut counts);
        problems.extend(found.into_iter().map(|problem| format!("{}: {problem}", recording.name)));
    }
    println!("{} recordings: {counts:?}, {} wrong values", recordings.len(), problems.len());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(counts.growing > counts.complete && counts.complete > recordings.len() / 4);
}

/// The comparison is meaningful only if each of its fields can fail.
#[test]
fn changing_any_field_is_detected_as_a_difference() {
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
        let (vendor, bytes) = ("openai".to_owned(), bytes.clone());
        let recording = Recording { wire, vendor, name, bytes, expected: expect };
        let unlike = differing_fields(&recording, &decode_whole(&recording));
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

/// Returns the problems in decoding a recording.
type Check = fn(&Recording) -> Vec<String>;

/// Checks every recording, and panics with all problems.
fn check_recordings(claim: &str, recordings: &[Recording], check: Check) {
    let problems: Vec<String> = recordings
        .iter()
        .flat_map(|recording| {
            check(recording).into_iter().map(|problem| format!("{}: {problem}", recording.name))
        })
        .collect();
    assert!(problems.is_empty(), "{claim}:\n{}", problems.join("\n"));
    println!("{claim}: {} recordings", recordings.len());
}

/// The unlisted differences from the vendor's SDK.
fn unlisted_differences(recording: &Recording) -> Vec<String> {
    let reading = decode_whole(recording);
    if let Some(error) = recording.expected.get("oracle_error") {
        println!("{}: the SDK refuses it, so nothing is expected: {error}", recording.name);
        return Vec::new();
    }
    let unlike = differing_fields(recording, &reading);
    let fields: Vec<&str> = unlike.iter().map(|(field, ..)| field.as_str()).collect();
    if fields.is_empty() {
        return Vec::new();
    }
    let listed = DISAGREEMENTS.iter().find(|listed| (listed.applies_to)(recording));
    match listed {
        Some(listed) if fields.iter().all(|field| listed.fields.contains(field)) => {
            (listed.assert_ours)(&reading);
            println!("{}, in {fields:?}: {}", recording.name, listed.reason);
            Vec::new()
        }
        Some(listed) => {
            let (expected, why) = (listed.fields, listed.reason);
            vec![format!("differs in {fields:?}, and may in {expected:?} only: {why}")]
        }
        None => {
            let error = reading.error().map(|error| format!(" ({error})")).unwrap_or_default();
            let told = unlike.iter().map(|(field, found, expected)| {
                format!("{field} is {found}{error}, and {expected} to the SDK")
            });
            told.collect()
        }
    }
}

/// The violations of the laws of a turn in the events.
fn event_violations(recording: &Recording) -> Vec<String> {
    let reading = decode_whole(recording);
    let mut breaches = Vec::new();
    let is_last = |event: &Result<TurnEvent, Error>| {
        matches!(event, Err(_) | Ok(TurnEvent::TurnComplete { .. }))
    };
    if reading.0.iter().position(is_last) != reading.0.len().checked_sub(1) {
        breaches.push("its last event or error is not the last, or not there".to_owned());
    }
    let fold = reading.to_partial_turn();
    let partial = reading.error().and_then(|error| error.find_source::<PartialTurn>());
    let said = reading.turn().map(|turn| (turn.items().to_vec(), turn.usage()));
    let said = said.or_else(|| partial.map(|partial| (partial.items(), partial.usage())));
    if let Some((items, usage)) = said {
        let (folded, items) = (streamed_item_kinds(fold.items()), streamed_item_kinds(items));
        if folded != items {
            breaches.push(format!("its events add up to {folded:?}, and its turn is {items:?}"));
        }
        if fold.usage() != usage {
            breaches.push(format!("its events count {:?}, and its turn {usage:?}", fold.usage()));
        }
    }
    breaches
}

/// The items that events contain, without provider data, the provider's own items, and empty ones.
fn streamed_item_kinds(items: Vec<Item>) -> Vec<ItemKind> {
    let kinds = items.into_iter().map(|item| item.kind);
    kinds
        .filter(|kind| match kind {
            ItemKind::Text { text } | ItemKind::Reasoning { text } => !text.is_empty(),
            kind => *kind != ItemKind::Other,
        })
        .collect()
}

/// The splits of the bytes that yield other events than the whole.
fn chunking_differences(recording: &Recording) -> Vec<String> {
    let bytes = &recording.bytes;
    let whole = decode_whole(recording);
    let mut unlike = Vec::new();
    let single = (0..bytes.len()).map(|at| bytes.slice(at..=at)).collect();
    if decode_pieces(recording, single) != whole {
        unlike.push("read byte by byte it gives other events than as a whole".to_owned());
    }
    let mut at = cut_offsets(bytes.len());
    at.retain(|&at| decode_pieces(recording, vec![bytes.slice(..at), bytes.slice(at..)]) != whole);
    if let Some(first) = at.first() {
        let places = at.len();
        unlike.push(format!(
            "cut at byte {first} it gives other events than as a whole ({places} such places)"
        ));
    }
    unlike
}

/// The differences if no frame repeats the bytes of another.
fn parser_differences(recording: &Recording) -> Vec<String> {
    let spaced = Bytes::from(parse_each_frame(&recording.bytes));
    match decode_pieces(recording, vec![spaced]) == decode_whole(recording) {
        true => Vec::new(),
        false => vec!["the events differ".to_owned()],
    }
}

/// The offsets at which the bytes are split in two: all of the first 4 KiB and 500 after them; in a
/// debug build 50 in total.
fn cut_offsets(len: usize) -> Vec<usize> {
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
