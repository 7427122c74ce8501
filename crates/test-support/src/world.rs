//! An agent with one tool, and a run that has ended.

use futures::StreamExt;
use turnstream::event::{AppendReason, EndReason, Transition};
use turnstream::item::{ItemKind, ResultKind};
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, Event, History, Item, Journal, Outcome, Run, RunHandle, TurnEvent, Usage};

use crate::runs::{
    final_outcome, is_tool_started, push_event, result_kinds, test_agent, tool_results,
};
use crate::tools::{Counter, ok_tool};

/// A fixture with the tool `t`, which counts its executions.
pub struct AgentFixture {
    pub agent: Agent,
    pub model: Scripted,
    tool_counter: Counter,
}

impl AgentFixture {
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::from_model(Scripted::new(replies))
    }

    pub fn from_model(model: Scripted) -> Self {
        let ran = Counter::default();
        let agent = test_agent(model.clone()).with_tools([ok_tool("t", &ran)]);
        Self { agent, model, tool_counter: ran }
    }

    pub fn map_agent(mut self, change: impl FnOnce(Agent) -> Agent) -> Self {
        self.agent = change(self.agent);
        self
    }

    pub async fn run(&self) -> FinishedRun {
        finish_run(self.agent.run("go")).await
    }

    /// The number of times that the tool `t` ran.
    pub fn tool_run_count(&self) -> usize {
        self.tool_counter.started_count()
    }

    /// The number of requests that were sent.
    pub fn request_count(&self) -> usize {
        self.model.requests().len()
    }
}

/// A run that has ended: its events and its history.
#[derive(Clone)]
pub struct FinishedRun {
    pub events: Vec<Event>,
    pub outcome: Outcome,
    pub handle: RunHandle,
}

/// Drives a run to its end, and checks the properties of every run.
pub async fn finish_run(run: Run) -> FinishedRun {
    finish_run_from(Vec::new(), run).await
}

/// The same for a run of which some events were pulled already.
pub async fn finish_run_from(mut events: Vec<Event>, mut run: Run) -> FinishedRun {
    let handle = run.handle();
    while let Some(event) = run.next().await {
        push_event(&mut events, event);
    }
    let outcome = final_outcome(&events).clone();
    let history = handle.history();
    assert!(history.settled().is_settled(), "it can be sent");
    let answered = history.unanswered_calls().is_empty();
    assert!(answered || outcome.reason == EndReason::Pending, "every call has its result");
    assert_eq!(outcome.partial, is_partial(&outcome));
    assert_eq!(outcome.usage, handle.usage());
    FinishedRun { events, outcome, handle }
}

/// Whether the outcome of a run must be marked as partial.
pub fn is_partial(outcome: &Outcome) -> bool {
    outcome.reason.is_partial()
        || outcome.reason == EndReason::Completed && outcome.unknown_stop_reason.is_some()
}

impl FinishedRun {
    #[track_caller]
    pub fn check_outcome(&self, reason: EndReason, turns: u32) -> &Self {
        let found = (self.outcome.reason, self.outcome.turns);
        assert_eq!(found, (reason, turns), "{:?}", self.outcome.error);
        self
    }

    pub fn text(&self) -> &str {
        &self.outcome.text
    }

    /// The reasons for which the run continued, in order.
    pub fn transitions(&self) -> Vec<Transition> {
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

    /// The models of the requests.
    pub fn models(&self) -> Vec<&str> {
        let started = self.events.iter().filter_map(|event| match event {
            Event::TurnStarted { model, .. } => Some(model.as_str()),
            _ => None,
        });
        started.collect()
    }

    /// The texts of the items that were appended for this reason.
    pub fn appended_texts(&self, wanted: AppendReason) -> Vec<String> {
        let items = self.events.iter().filter_map(|event| match event {
            Event::Appended { why, items, .. } if *why == wanted => Some(items),
            _ => None,
        });
        items.flatten().map(item_summary).collect()
    }

    /// The kinds of the results, in the order of the history.
    pub fn result_kinds(&self) -> Vec<ResultKind> {
        result_kinds(&self.handle.history())
    }

    /// The texts of the results, in the order of the history.
    pub fn result_texts(&self) -> Vec<String> {
        let history = self.handle.history();
        tool_results(&history).into_iter().map(|result| result.content.text()).collect()
    }

    /// The texts of the results, in order of arrival.
    pub fn result_texts_by_arrival(&self) -> Vec<String> {
        self.events.iter().filter_map(Event::tool_output).map(|r| r.content.text()).collect()
    }

    /// The items as short texts, in the order of the history.
    pub fn item_summaries(&self) -> Vec<String> {
        self.handle.history().iter().map(item_summary).collect()
    }

    pub fn retracted_usages(&self) -> Vec<Usage> {
        let retracted = self.events.iter().filter_map(|event| match event {
            Event::Turn(TurnEvent::Retracted { usage, .. }) => Some(**usage),
            _ => None,
        });
        retracted.collect()
    }

    pub fn tool_start_count(&self) -> usize {
        self.events.iter().filter(|event| is_tool_started(event)).count()
    }

    /// The history that a store would have after reading the events as JSON.
    pub fn refold_history(&self, from: History) -> History {
        let journal = Journal::new(from);
        for event in &self.events {
            let line = serde_json::to_string(event).unwrap();
            journal.observe(&serde_json::from_str(&line).unwrap());
        }
        journal.history()
    }
}

/// An item as a short text.
pub fn item_summary(item: &Item) -> String {
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
