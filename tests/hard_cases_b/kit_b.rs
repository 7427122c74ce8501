//! What the hard cases are told with.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::executor::block_on;
use futures::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use turnstream::env::CountingIds;
use turnstream::event::{AppendedWhy, Reason, ToolEvent, Transition};
use turnstream::item::ResultKind;
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{
    Decoding, Provider, Reply, Scripted, anthropic, gemini, openai_chat, openai_responses,
};
use turnstream::stream::{TurnEvents, TurnStream, seal};
use turnstream::testing::{Answer, Wire, lint};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::{
    Agent, Error, Event, History, Item, Journal, Outcome, Request, Run, RunHandle, Turn, Usage,
};

pub(crate) fn spec(name: &str) -> ToolSpec {
    let properties = json!({ "ms": { "type": "integer" } });
    let parameters = json!({ "type": "object", "properties": properties });
    ToolSpec { name: name.into(), description: "d".into(), parameters }
}

/// A tool that is fine.
pub(crate) fn tool(name: &str) -> Tool {
    counted(name, &Arc::default())
}

/// A tool that counts how often it ran.
pub(crate) fn counted(name: &str, ran: &Arc<AtomicUsize>) -> Tool {
    let ran = ran.clone();
    let run = move |_, _| {
        ran.fetch_add(1, Ordering::Relaxed);
        async { "fine" }
    };
    Tool::raw(spec(name), run).unwrap()
}

/// A tool that takes as many milliseconds as it is told, and says so.
pub(crate) fn nap(name: &str) -> Tool {
    let run = |args: Value, _| async move {
        tokio::time::sleep(Duration::from_millis(args["ms"].as_u64().unwrap_or(0))).await;
        args["ms"].to_string()
    };
    Tool::raw(spec(name), run).unwrap()
}

/// A call of the tool `t`, under an id.
pub(crate) fn call(id: &str) -> Reply {
    Reply::new().call_raw(id, "t", "{}")
}

pub(crate) fn tokens(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, ..Usage::default() }
}

/// A world with the tool `t`, which counts how often it ran.
pub(crate) struct World {
    pub(crate) agent: Agent,
    pub(crate) model: Scripted,
    ran: Arc<AtomicUsize>,
}

impl World {
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::of(Scripted::new(replies))
    }

    pub(crate) fn of(model: Scripted) -> Self {
        let ran = Arc::default();
        let agent = agent(model.clone()).with_tools([counted("t", &ran)]);
        Self { agent, model, ran }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(Agent) -> Agent) -> Self {
        self.agent = change(self.agent);
        self
    }

    pub(crate) async fn run(&self) -> Told {
        told(self.agent.run("go")).await
    }

    /// How often the tool `t` ran.
    pub(crate) fn ran(&self) -> usize {
        self.ran.load(Ordering::Relaxed)
    }

    /// How many requests were sent.
    pub(crate) fn sent(&self) -> usize {
        self.model.requests().len()
    }
}

pub(crate) fn agent(model: impl Provider + 'static) -> Agent {
    Agent::new(model).with_ids(CountingIds::new("id"))
}

#[derive(Clone)]
/// A run that is over: what it told, and what is left of it.
pub(crate) struct Told {
    pub(crate) events: Vec<Event>,
    pub(crate) outcome: Outcome,
    pub(crate) handle: RunHandle,
}

/// Drives a run to its end and looks at what holds for every run.
pub(crate) async fn told(run: Run) -> Told {
    told_from(Vec::new(), run).await
}

/// The same where some events were pulled already.
pub(crate) async fn told_from(mut events: Vec<Event>, mut run: Run) -> Told {
    let handle = run.handle();
    while let Some(event) = run.next().await {
        events.push(event.expect("a run never gives an error"));
    }
    let finished = events.iter().filter(|event| event.finished().is_some()).count();
    assert_eq!(finished, 1, "one ending");
    let outcome = events.last().unwrap().finished().expect("the ending is the last").clone();
    let history = handle.history();
    assert!(history.settled().is_lawful(), "it can be sent");
    let answered = history.unanswered_calls().is_empty();
    assert!(answered || outcome.reason == Reason::Pending, "every call has its result");
    assert_eq!(outcome.partial, outcome.reason.is_partial());
    assert_eq!(outcome.usage, handle.usage());
    Told { events, outcome, handle }
}

/// Pulls until an event fits, which is the last of those that it gives.
pub(crate) async fn until(run: &mut Run, fits: impl Fn(&Event) -> bool) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        events.push(event.unwrap());
        if fits(events.last().unwrap()) {
            return events;
        }
    }
    panic!("no such event");
}

impl Told {
    #[track_caller]
    pub(crate) fn check(&self, reason: Reason, turns: u32) -> &Self {
        let found = (self.outcome.reason, self.outcome.turns);
        assert_eq!(found, (reason, turns), "{:?}", self.outcome.error);
        self
    }

    pub(crate) fn text(&self) -> &str {
        &self.outcome.text
    }

    /// Why the run went on, each time.
    pub(crate) fn transitions(&self) -> Vec<Transition> {
        let continued = self.events.iter().filter_map(|event| match event {
            Event::Continued { reason } => Some(*reason),
            _ => None,
        });
        let continued: Vec<_> = continued.collect();
        let started = self.events.iter().filter_map(|event| match event {
            Event::TurnStarted { transition, .. } => *transition,
            _ => None,
        });
        assert!(continued.iter().copied().eq(started), "each turn tells why it is there");
        continued
    }

    /// The models that were asked.
    pub(crate) fn models(&self) -> Vec<&str> {
        let started = self.events.iter().filter_map(|event| match event {
            Event::TurnStarted { model, .. } => Some(model.as_str()),
            _ => None,
        });
        started.collect()
    }

    /// What was appended for this reason, as texts.
    pub(crate) fn appended(&self, wanted: AppendedWhy) -> Vec<String> {
        let items = self.events.iter().filter_map(|event| match event {
            Event::Appended { why, items, .. } if *why == wanted => Some(items),
            _ => None,
        });
        items.flatten().map(words).collect()
    }

    /// The kinds of the results in the history, in its order.
    pub(crate) fn kinds(&self) -> Vec<ResultKind> {
        let history = self.handle.history();
        history.iter().filter_map(Item::as_tool_result).map(|result| result.kind).collect()
    }

    /// The texts of the results in the history, in its order.
    pub(crate) fn results(&self) -> Vec<String> {
        let history = self.handle.history();
        history.iter().filter_map(Item::as_tool_result).map(|r| r.content.text()).collect()
    }

    /// The texts of the results in the order in which they came.
    pub(crate) fn results_as_they_came(&self) -> Vec<String> {
        self.events.iter().filter_map(Event::tool_output).map(|r| r.content.text()).collect()
    }

    /// What was said, as texts, in the order of the history.
    pub(crate) fn words(&self) -> Vec<String> {
        self.handle.history().iter().map(words).collect()
    }

    pub(crate) fn retractions(&self) -> Vec<Usage> {
        let retracted = self.events.iter().filter_map(|event| match event {
            Event::Turn(turnstream::TurnEvent::Retracted { usage, .. }) => Some(*usage),
            _ => None,
        });
        retracted.collect()
    }

    pub(crate) fn started(&self) -> usize {
        let is_start = |event: &&Event| matches!(event, Event::Tool(ToolEvent::Started { .. }));
        self.events.iter().filter(is_start).count()
    }

    /// The history that a store would have, which sees the events as JSON.
    pub(crate) fn folded(&self, from: History) -> History {
        let journal = Journal::new(from);
        for event in &self.events {
            let line = serde_json::to_string(event).unwrap();
            journal.observe(&serde_json::from_str(&line).unwrap());
        }
        journal.history()
    }
}

/// An item as a short text.
pub(crate) fn words(item: &Item) -> String {
    use turnstream::item::ItemKind;
    match &item.kind {
        ItemKind::System { text } => format!("system: {text}"),
        ItemKind::User { content } => format!("user: {}", content.text()),
        ItemKind::Text { text } => text.clone(),
        ItemKind::Reasoning { text } => format!("thought: {text}"),
        ItemKind::ToolCall(call) => format!("call {}", call.call_id),
        ItemKind::ToolResult(result) => format!("result {}", result.call_id),
        _ => "other".to_owned(),
    }
}

/// A provider that speaks a wire and has no network: it answers with the next body.
#[derive(Clone)]
pub(crate) struct OnWire {
    wire: Wire,
    model: &'static str,
    bodies: Arc<Mutex<VecDeque<Vec<u8>>>>,
    sent: Arc<Mutex<Vec<Value>>>,
}

impl OnWire {
    pub(crate) fn new<A: Into<Answer>>(
        wire: Wire,
        model: &'static str,
        answers: impl IntoIterator<Item = A>,
    ) -> Self {
        let body = |(n, answer): (usize, A)| {
            let body = String::from_utf8(answer.into().bytes(wire)).unwrap();
            // Every response has ids of its own, as those of a server have.
            body.replace("_0000", &format!("_{n:04}")).into_bytes()
        };
        let bodies = answers.into_iter().enumerate().map(body).collect();
        Self { wire, model, bodies: Arc::new(Mutex::new(bodies)), sent: Arc::default() }
    }

    /// The bodies of the requests, none of which its vendor would refuse.
    #[track_caller]
    pub(crate) fn sent(&self) -> Vec<Value> {
        let sent = self.sent.lock().unwrap().clone();
        for body in &sent {
            assert_eq!(lint::request(self.wire, body), Vec::<String>::new(), "{}", self.wire);
        }
        sent
    }
}

impl Provider for OnWire {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let body = encode(self.wire, self.model, &request);
        self.sent.lock().unwrap().push(body);
        let body = self.bodies.lock().unwrap().pop_front().expect("the script has a reply");
        decode(self.wire, self.model, &request.history, vec![body])
    }

    fn model(&self) -> &str {
        self.model
    }
}

/// What the encoder of a wire makes of a request.
pub(crate) fn encode(wire: Wire, model: &str, request: &Request) -> Value {
    let bytes = match wire {
        Wire::Anthropic => anthropic::encode(request, model),
        Wire::OpenAiChat => openai_chat::encode(request, model, &Dialect::OPENAI),
        Wire::OpenAiResponses => openai_responses::encode(request, model),
        _ => gemini::encode(request, model),
    };
    serde_json::from_slice(&bytes.unwrap()).unwrap()
}

/// The turn that these chunks of a body are.
pub(crate) fn decode(
    wire: Wire,
    model: &str,
    after: &History,
    chunks: impl IntoIterator<Item = Vec<u8>>,
) -> TurnStream {
    let chunks: Vec<_> = chunks.into_iter().map(|chunk| Ok(Bytes::from(chunk))).collect();
    on_wire(wire, model, after, stream::iter(chunks))
}

/// The same of a body.
pub(crate) fn on_wire(
    wire: Wire,
    model: &str,
    after: &History,
    body: impl Stream<Item = Result<Bytes, Error>> + Send + 'static,
) -> TurnStream {
    match wire {
        Wire::Anthropic => seal(after, Decoding::new(body, anthropic::Decoder::new(model))),
        Wire::OpenAiChat => {
            seal(after, Decoding::new(body, openai_chat::Decoder::new(model, &Dialect::OPENAI)))
        }
        Wire::OpenAiResponses => {
            seal(after, Decoding::new(body, openai_responses::Decoder::new(model)))
        }
        _ => seal(after, Decoding::new(body, gemini::Decoder::new(model))),
    }
}

/// The turn that an answer is on a wire.
pub(crate) fn read(wire: Wire, answer: impl Into<Answer>) -> Result<Arc<Turn>, Error> {
    read_body(wire, answer.into().bytes(wire))
}

/// The turn that these frames are on a wire.
pub(crate) fn read_frames(wire: Wire, frames: &[&str]) -> Result<Arc<Turn>, Error> {
    let body: String = frames.iter().flat_map(|data| ["data: ", data, "\n\n"]).collect();
    read_body(wire, body.into_bytes())
}

fn read_body(wire: Wire, body: Vec<u8>) -> Result<Arc<Turn>, Error> {
    block_on(decode(wire, "m", &History::with_id("h"), [body]).into_turn())
}
