//! An agent with one tool, and a run that has ended.

use futures::StreamExt;
use turnstream::event::{AppendReason, EndReason, Transition};
use turnstream::item::{ItemKind, ResultKind};
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, Event, History, Item, Journal, Outcome, Run, RunHandle, TurnEvent, Usage};

use super::runs::{agent, ending, is_started, keep, kinds, results};
use super::tools::{Counter, fine};

/// A world with the tool `t`, which counts how often it ran.
pub(crate) struct World {
    pub(crate) agent: Agent,
    pub(crate) model: Scripted,
    ran: Counter,
}

impl World {
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::of(Scripted::new(replies))
    }

    pub(crate) fn of(model: Scripted) -> Self {
        let ran = Counter::default();
        let agent = agent(model.clone()).with_tools([fine("t", &ran)]);
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
        self.ran.began()
    }

    /// How many requests were sent.
    pub(crate) fn sent(&self) -> usize {
        self.model.requests().len()
    }
}

/// A run that is over: what it told, and what is left of it.
#[derive(Clone)]
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
        keep(&mut events, event);
    }
    let outcome = ending(&events).clone();
    let history = handle.history();
    assert!(history.settled().is_settled(), "it can be sent");
    let answered = history.unanswered_calls().is_empty();
    assert!(answered || outcome.reason == EndReason::Pending, "every call has its result");
    assert_eq!(outcome.partial, outcome.reason.is_partial());
    assert_eq!(outcome.usage, handle.usage());
    Told { events, outcome, handle }
}

impl Told {
    #[track_caller]
    pub(crate) fn check(&self, reason: EndReason, turns: u32) -> &Self {
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
    pub(crate) fn appended(&self, wanted: AppendReason) -> Vec<String> {
        let items = self.events.iter().filter_map(|event| match event {
            Event::Appended { why, items, .. } if *why == wanted => Some(items),
            _ => None,
        });
        items.flatten().map(words).collect()
    }

    /// The kinds of the results in the history, in its order.
    pub(crate) fn kinds(&self) -> Vec<ResultKind> {
        kinds(&self.handle.history())
    }

    /// The texts of the results in the history, in its order.
    pub(crate) fn results(&self) -> Vec<String> {
        let history = self.handle.history();
        results(&history).into_iter().map(|result| result.content.text()).collect()
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
            Event::Turn(TurnEvent::Retracted { usage, .. }) => Some(*usage),
            _ => None,
        });
        retracted.collect()
    }

    pub(crate) fn started(&self) -> usize {
        self.events.iter().filter(|event| is_started(event)).count()
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
