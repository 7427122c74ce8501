//! What holds for any bytes. The fuzz targets run it with bytes that are searched for, the test
//! `any_bytes` with bytes that are drawn.
//!
//! - Nothing panics.
//! - However the bytes are cut, the events are the same.
//! - There is one last event or error, and nothing behind it.
//! - What is kept is not larger than a multiple of the bytes that came.
//! - A call may run only if the terminal marker stands in the bytes and its arguments are whole:
//!   cut off before the marker, nothing may run.

#![allow(dead_code, reason = "each target uses a part")]

use bytes::Bytes;
use futures::executor::block_on;
use futures::{StreamExt, stream};
use turnstream::framing::NdJson;
use turnstream::item::ItemKind;
use turnstream::provider::{Decoding, anthropic, gemini, ollama, openai_chat, openai_responses};
use turnstream::sse::FrameReader;
use turnstream::stream::seal;
use turnstream::turn::PartialTurn;
use turnstream::{Error, History, Item, TurnEvent};

/// The model that is asked, in every wire.
const MODEL: &str = "any";

#[derive(Clone, Copy, Debug)]
pub(crate) enum Wire {
    Anthropic,
    OpenAiChat,
    OpenAiResponses,
    Gemini,
    Ollama,
}

impl Wire {
    pub(crate) const ALL: [Self; 5] =
        [Self::Anthropic, Self::OpenAiChat, Self::OpenAiResponses, Self::Gemini, Self::Ollama];

    /// One of these stands in the bytes of every turn whose calls may run.
    fn markers(self) -> &'static [&'static str] {
        match self {
            Self::Anthropic => &["stop_reason"],
            Self::OpenAiChat => &["finish_reason"],
            Self::OpenAiResponses => &["response.completed", "response.done"],
            Self::Gemini => &["finishReason"],
            // The value of `done`.
            Self::Ollama => &["true"],
        }
    }
}

/// Checks the reader of frames.
pub(crate) fn frames(data: &[u8]) {
    // The first byte says how the rest is cut.
    let (seed, body) = data.split_first().map_or((0, data), |(seed, body)| (*seed, body));
    let whole = read_frames([Bytes::copy_from_slice(body)]);
    assert_eq!(read_frames(cut(seed, body)), whole, "another cut gives other frames");
    let kept: usize = whole.iter().flatten().map(|(event, data)| event.len() + data.len()).sum();
    // A byte that is no UTF-8 becomes three; an event without a name is a `message`.
    assert!(kept <= 10 * body.len() + 16, "{kept} bytes were kept of {}", body.len());
}

type Frames = Vec<Option<(String, String)>>;

fn read_frames(pieces: impl IntoIterator<Item = Bytes>) -> Frames {
    let mut reader = FrameReader::limited_to_bytes(1 << 12);
    let mut frames = Vec::new();
    let mut take = |frame: Result<turnstream::sse::Frame<'_>, _>| {
        frames.push(frame.ok().map(|frame| (frame.event.to_owned(), frame.data.to_owned())));
    };
    for piece in pieces {
        reader.feed(piece);
        while let Some(frame) = reader.next_frame() {
            take(frame);
        }
    }
    while let Some(frame) = reader.finish() {
        take(frame);
    }
    frames
}

/// Checks a decoder.
pub(crate) fn decode(wire: Wire, data: &[u8]) {
    let (seed, body) = data.split_first().map_or((0, data), |(seed, body)| (*seed, body));
    let events = read(wire, [Bytes::copy_from_slice(body)]);
    assert_eq!(read(wire, cut(seed, body)), events, "another cut gives other events");

    let is_last = |event: &Result<TurnEvent, Error>| {
        matches!(event, Err(_) | Ok(TurnEvent::TurnComplete { .. }))
    };
    let last = events.iter().position(is_last);
    assert_eq!(last, events.len().checked_sub(1), "one last event, and nothing behind it");
    // Text, its event and its item; names and ids once each.
    let kept: usize = events.iter().map(|event| weight(event.as_ref())).sum();
    assert!(kept <= 64 * (body.len() + 64), "{kept} bytes were kept of {}", body.len());

    // A key may be written in escapes, where it is not found by its letters.
    if may_run(&events).is_empty() || find(body, b"\\u00").is_some() {
        return;
    }
    let marker = wire.markers().iter().filter_map(|marker| find(body, marker.as_bytes())).min();
    let marker = marker.expect("calls may run, and the terminal marker is nowhere");
    let before = read(wire, [Bytes::copy_from_slice(&body[..marker])]);
    assert!(may_run(&before).is_empty(), "calls may run before the terminal marker");
}

fn read(wire: Wire, pieces: impl IntoIterator<Item = Bytes>) -> Vec<Result<TurnEvent, Error>> {
    let pieces: Vec<Bytes> = pieces.into_iter().collect();
    let body = stream::iter(pieces.into_iter().map(Ok));
    let history = History::from_id("fuzz");
    let dialect = openai_chat::Dialect::OPENAI;
    let events = match wire {
        Wire::Anthropic => seal(&history, Decoding::new(body, anthropic::Decoder::new(MODEL))),
        Wire::OpenAiChat => {
            seal(&history, Decoding::new(body, openai_chat::Decoder::new(MODEL, &dialect)))
        }
        Wire::OpenAiResponses => {
            seal(&history, Decoding::new(body, openai_responses::Decoder::new(MODEL)))
        }
        Wire::Gemini => seal(&history, Decoding::new(body, gemini::Decoder::new(MODEL))),
        Wire::Ollama => {
            let (lines, decoder) = (NdJson::default(), ollama::Decoder::new(MODEL));
            seal(&history, Decoding::from_frames(body, lines, decoder))
        }
    };
    block_on(events.collect())
}

/// The arguments of the calls that may run.
fn may_run(events: &[Result<TurnEvent, Error>]) -> Vec<String> {
    let Some(Ok(TurnEvent::TurnComplete { turn })) = events.last() else { return Vec::new() };
    let calls = turn.calls();
    match calls.veto() {
        Some(_) => Vec::new(),
        None => calls.iter().map(|call| call.arguments.clone()).collect(),
    }
}

fn weight(event: Result<&TurnEvent, &Error>) -> usize {
    let items = |items: &[Item]| items.iter().map(item_weight).sum();
    match event {
        Ok(TurnEvent::TurnComplete { turn }) => items(turn.items()),
        Ok(event) => format!("{event:?}").len(),
        Err(error) => PartialTurn::from_error(error).map_or(0, |partial| items(&partial.items())),
    }
}

fn item_weight(item: &Item) -> usize {
    let said = match &item.kind {
        ItemKind::Text { text } | ItemKind::Reasoning { text } => text.len(),
        ItemKind::ToolCall(call) => call.call_id.len() + call.name.len() + call.arguments.len(),
        _ => 0,
    };
    said + item.provider_data.as_ref().map_or(0, |data| data.value.as_str().len())
}

/// Cuts into pieces of 1 to 16 bytes, which `seed` says.
fn cut(seed: u8, body: &[u8]) -> Vec<Bytes> {
    let mut state = u32::from(seed).wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut rest = body;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let len = rest.len().min(1 + (state >> 28) as usize);
        let (piece, more) = rest.split_at(len);
        pieces.push(Bytes::copy_from_slice(piece));
        rest = more;
    }
    pieces
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
