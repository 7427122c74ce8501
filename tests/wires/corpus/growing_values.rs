//! The answers and the arguments of recorded turns, read while their bytes arrive one at a time.

use std::collections::BTreeSet;
use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use futures::executor::block_on;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use serde_json::{Map, Value};
use turnstream::item::History;
use turnstream::partial::{EventOrPartial, PartialState, PartialValues};
use turnstream::turn::{StopReason, TurnEvent};
use turnstream::{Event, EventStreamExt, Turn};

use super::recording::{Recording, decode_whole, stream_body};
use turnstream_test_support::partial_json::is_beginning_of;

/// The numbers of the values that were read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The cuts: after each byte of each recording, once for the answer and once for each tool.
    pub(crate) cuts: usize,
    /// The characters of the complete values, each of which arrived on its own.
    pub(crate) characters: usize,
    pub(crate) growing: usize,
    pub(crate) complete: usize,
    pub(crate) failed: usize,
}

/// Yields each byte as a piece of its own, and is pending after each of them.
fn byte_by_byte(bytes: &Bytes) -> impl Stream<Item = Result<Bytes, turnstream::Error>> + use<> {
    let bytes = bytes.clone();
    let (mut at, mut is_pending) = (0, false);
    stream::poll_fn(move |cx| {
        is_pending = !is_pending;
        if is_pending {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        at += 1;
        Poll::Ready(bytes.get(at - 1..at).map(|_| Ok(bytes.slice(at - 1..at))))
    })
}

/// Reads the answer and the calls to each tool of a recording, and returns what is wrong.
pub(crate) fn violations(recording: &Recording, counts: &mut Counts) -> Vec<String> {
    let whole = decode_whole(recording);
    let tools: BTreeSet<String> = whole
        .events()
        .filter_map(|event| match event {
            TurnEvent::ToolCallStart { name, .. } => Some(name.clone()),
            _ => None,
        })
        .collect();
    let mut sources = vec![("the answer".to_owned(), PartialValues::untyped_answer(&true.into()))];
    sources.extend(tools.into_iter().map(|tool| {
        let values = PartialValues::untyped_calls(tool.clone(), &true.into());
        (tool, values)
    }));
    let mut problems = Vec::new();
    for (source, values) in sources {
        counts.cuts += recording.bytes.len();
        let body = byte_by_byte(&recording.bytes);
        let turn = stream_body(recording, &History::empty("corpus"), body);
        let steps = turn.map_ok(Event::from).with_partials(values);
        let found = block_on(read(steps));
        problems.extend(check(&found, counts).into_iter().map(|it| format!("{source}: {it}")));
    }
    let turn = whole.turn().filter(|turn| *turn.stop_reason() != StopReason::Interrupted);
    for text in turn.into_iter().flat_map(texts) {
        let found = read_characters(&text);
        counts.characters += text.chars().count();
        problems.extend(check(&found, counts));
        let whole = serde_json::from_str(&text).ok().map(PartialState::Complete);
        if whole.as_ref() != found.last().map(|(_, state)| state) {
            problems.push(format!("{text} is read as {:?}", found.last()));
        }
    }
    problems
}

/// The arguments and the answer of a turn that are JSON.
fn texts(turn: &Turn) -> Vec<String> {
    let arguments = turn.tool_calls().map(|call| call.arguments.clone());
    let texts = arguments.chain([turn.answer()]);
    texts.filter(|text| serde_json::from_str::<Map<String, Value>>(text).is_ok()).collect()
}

/// Reads a text character by character, as the arguments of a call. The last value is complete.
fn read_characters(text: &str) -> Found {
    let mut values = PartialValues::untyped_calls("t", &true.into());
    let (call_id, name) = ("c".to_owned(), "t".to_owned());
    values.observe(&TurnEvent::ToolCallStart { call_id, name }.into());
    let mut found: Found = Vec::new();
    for character in text.chars() {
        let (call_id, delta) = ("c".to_owned(), character.to_string().into());
        values.observe(&TurnEvent::ToolCallArgsDelta { call_id, delta }.into());
        found.extend(values.next_partial().map(|partial| (partial.call_id, partial.state)));
    }
    if let Some((call_id, PartialState::Growing(value))) = found.last().cloned() {
        found.push((call_id, PartialState::Complete(value)));
    }
    found
}

type Found = Vec<(Option<String>, PartialState<Value>)>;

async fn read(
    steps: impl Stream<Item = Result<EventOrPartial<Value>, turnstream::Error>>,
) -> Found {
    let mut steps = pin!(steps);
    let mut found = Vec::new();
    while let Some(step) = steps.next().await {
        if let Ok(EventOrPartial::Partial(partial)) = step {
            found.push((partial.call_id, partial.state));
        }
    }
    found
}

/// Each growing value begins like the next one of the same call, and like the complete one.
fn check(found: &Found, counts: &mut Counts) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, (call_id, state)) in found.iter().enumerate() {
        match state {
            PartialState::Growing(value) => {
                counts.growing += 1;
                let mut later = found[at + 1..].iter().filter(|(other, _)| other == call_id);
                match later.next() {
                    Some((_, PartialState::Growing(next) | PartialState::Complete(next))) => {
                        if !is_beginning_of(value, next) {
                            problems.push(format!("{value} is followed by {next}"));
                        }
                    }
                    Some(_) => {}
                    None => problems.push(format!("{value} has no end")),
                }
                if let Some((_, PartialState::Complete(whole))) = later.next_back()
                    && !is_beginning_of(value, whole)
                {
                    problems.push(format!("{value} does not begin like {whole}"));
                }
            }
            PartialState::Complete(whole) => {
                counts.complete += 1;
                let is_object = whole.is_object() && whole != &serde_json::json!({});
                let same = |(other, state): &&(Option<String>, PartialState<Value>)| {
                    other == call_id
                        && matches!(state, PartialState::Growing(value) if value == whole)
                };
                if is_object && found[..at].iter().rev().find(same).is_none() {
                    problems.push(format!("{whole} was not shown before its turn was complete"));
                }
            }
            PartialState::Failed(_) | PartialState::Retracted => counts.failed += 1,
        }
    }
    problems
}
