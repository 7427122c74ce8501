//! What the hard cases share: tools that are counted, wires that are counted, and looks at a run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use turnstream::event::{Reason, ToolEvent};
use turnstream::item::{ResultKind, ToolCall, ToolResult};
use turnstream::provider::{
    Decode, Decoding, Provider, anthropic, gemini, openai_chat, openai_responses,
};
use turnstream::stream::{TurnStream, seal};
use turnstream::testing::{Wire, lint};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::{Event, History, Item, Outcome, Request, Run};

/// How many of something began, and how many are there now.
#[derive(Clone, Default)]
pub(crate) struct Counter {
    began: Arc<AtomicUsize>,
    now: Arc<AtomicUsize>,
}

/// Counts for as long as it lives.
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counter {
    pub(crate) fn count(&self) -> Counted {
        self.began.fetch_add(1, Ordering::Relaxed);
        self.now.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(&self.now))
    }

    pub(crate) fn began(&self) -> usize {
        self.began.load(Ordering::Relaxed)
    }

    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) fn spec(name: &str) -> ToolSpec {
    let parameters = json!({ "type": "object" });
    ToolSpec { name: name.into(), description: "A tool of a test".into(), parameters }
}

/// A tool that takes what `steps` says to answer, and is counted while it runs.
pub(crate) fn tool<Fut>(
    name: &str,
    counter: &Counter,
    steps: impl Fn(Value) -> Fut + Send + Sync + 'static,
) -> Tool
where
    Fut: Future<Output = String> + Send + 'static,
{
    let counter = counter.clone();
    let run = move |args, _cx| {
        let (alive, answer) = (counter.count(), steps(args));
        async move {
            let _alive = alive;
            answer.await
        }
    };
    Tool::raw(spec(name), run).unwrap()
}

/// A tool that answers at once.
pub(crate) fn fine(name: &str, counter: &Counter) -> Tool {
    tool(name, counter, |_| async { "fine".to_owned() })
}

/// A tool that never answers.
pub(crate) fn endless(name: &str, counter: &Counter) -> Tool {
    tool(name, counter, |_| std::future::pending())
}

/// Pulls until an event fits, and gives it.
pub(crate) async fn until(run: &mut Run, fits: impl Fn(&Event) -> bool) -> Event {
    loop {
        match run.next().await {
            Some(Ok(event)) if fits(&event) => return event,
            Some(Ok(event)) => assert!(event.finished().is_none(), "no such event: {event:?}"),
            Some(Err(error)) => panic!("a run never gives an error: {error}"),
            None => panic!("no such event"),
        }
    }
}

/// Pulls until the run waits or is over.
pub(crate) fn pull(run: &mut Run) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(Some(event)) = run.next().now_or_never() {
        events.push(event.expect("a run never gives an error"));
    }
    events
}

/// Pulls the rest.
pub(crate) async fn rest(run: &mut Run) -> Vec<Event> {
    run.map(|event| event.expect("a run never gives an error")).collect().await
}

/// The type of each event, as it is written.
pub(crate) fn types(events: &[Event]) -> Vec<String> {
    let name = |event| serde_json::to_value(event).unwrap()["type"].as_str().unwrap().to_owned();
    events.iter().map(name).collect()
}

/// The one ending among the events, which is the last of them.
#[track_caller]
pub(crate) fn ending(events: &[Event]) -> &Outcome {
    assert_eq!(events.iter().filter_map(Event::finished).count(), 1, "one ending");
    events.last().and_then(Event::finished).expect("the ending comes last")
}

#[track_caller]
pub(crate) fn check(outcome: &Outcome, reason: Reason, turns: u32) {
    assert_eq!((outcome.reason, outcome.turns), (reason, turns), "{outcome:?}");
}

pub(crate) fn results<'a>(items: impl IntoIterator<Item = &'a Item>) -> Vec<&'a ToolResult> {
    items.into_iter().filter_map(Item::as_tool_result).collect()
}

/// The call, the kind and the text of each result.
pub(crate) fn answers<'a>(
    items: impl IntoIterator<Item = &'a Item>,
) -> Vec<(&'a str, ResultKind, String)> {
    let answer = |result: &'a ToolResult| (&*result.call_id, result.kind, result.content.text());
    results(items).into_iter().map(answer).collect()
}

pub(crate) fn kinds<'a>(items: impl IntoIterator<Item = &'a Item>) -> Vec<ResultKind> {
    results(items).into_iter().map(|result| result.kind).collect()
}

pub(crate) fn calls<'a>(items: impl IntoIterator<Item = &'a Item>) -> Vec<&'a ToolCall> {
    items.into_iter().filter_map(Item::as_tool_call).collect()
}

pub(crate) fn is_started(event: &Event) -> bool {
    matches!(event, Event::Tool(ToolEvent::Started { .. }))
}

/// The body of a request, as a wire has it.
pub(crate) fn encoded(wire: Wire, history: &History) -> Vec<u8> {
    let mut request = Request::new(history.clone());
    request.options.max_output_tokens = Some(100);
    let strict = &openai_chat::Dialect::STRICT;
    let bytes = match wire {
        Wire::Anthropic => anthropic::encode(&request, "m"),
        Wire::OpenAiChat => openai_chat::encode(&request, "m", strict),
        Wire::OpenAiResponses => openai_responses::encode(&request, "m"),
        _ => gemini::encode(&request, "m"),
    };
    bytes.unwrap()
}

/// The same as JSON, which a strict server takes.
#[track_caller]
pub(crate) fn sendable(wire: Wire, history: &History) -> Value {
    let body = serde_json::from_slice(&encoded(wire, history)).unwrap();
    assert_eq!(lint::request(wire, &body), [""; 0], "{wire:?}: {body}");
    body
}

/// A model behind a wire: each request is answered with the next body, piece by piece.
pub(crate) struct Bodies<D> {
    turns: Vec<Vec<String>>,
    decoder: fn() -> D,
    /// What was asked.
    pub(crate) asked: Arc<Mutex<Vec<Request>>>,
    /// The bodies that are open.
    pub(crate) open: Counter,
    /// How many pieces were read.
    pub(crate) read: Arc<AtomicUsize>,
}

impl<D> Bodies<D> {
    pub(crate) fn new(turns: Vec<Vec<String>>, decoder: fn() -> D) -> Self {
        let (asked, open, read) = (Arc::default(), Counter::default(), Arc::default());
        Self { turns, decoder, asked, open, read }
    }
}

impl<D: Decode + Send + 'static> Provider for Bodies<D> {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let history = request.history.clone();
        let mut asked = self.asked.lock().unwrap();
        let body = self.turns[asked.len()].clone();
        asked.push(request);
        let (open, read) = (self.open.count(), Arc::clone(&self.read));
        let pieces = stream::iter(body).map(move |piece| {
            let _open = &open;
            read.fetch_add(1, Ordering::Relaxed);
            Ok(Bytes::from(piece))
        });
        seal(&history, Decoding::new(pieces, (self.decoder)()))
    }

    fn model(&self) -> &'static str {
        "m"
    }
}

/// One frame of a stream of server-sent events.
pub(crate) fn frame(data: &str) -> String {
    format!("data: {data}\n\n")
}

pub(crate) fn chat() -> openai_chat::Decoder {
    openai_chat::Decoder::new("m", &openai_chat::Dialect::STRICT)
}
