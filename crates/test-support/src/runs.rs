//! Starts runs, and inspects them.

use futures::executor::block_on;
use futures::{FutureExt, Stream, StreamExt};
use turnstream::agent::Limits;
use turnstream::env::CountingIds;
use turnstream::event::{EndReason, InterruptedPhase, ToolEvent};
use turnstream::item::{ResultKind, ToolCall, ToolResult};
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::tool::Tool;
use turnstream::{Agent, Error, Event, History, Item, Outcome, Request, Run, Usage};

use crate::replays;

/// An agent with a model that gives these replies.
pub fn scripted_agent(
    replies: impl IntoIterator<Item = Reply>,
    tools: Vec<Tool>,
) -> (Agent, Scripted) {
    let model = Scripted::new(replies);
    (test_agent(model.clone()).with_tools(tools), model)
}

/// An agent that does not retry an incomplete turn, so that a test sees the turn's remains.
pub fn test_agent(model: impl Provider + 'static) -> Agent {
    Agent::new(model)
        .with_limits(limits_without_retries())
        .with_ids(CountingIds::new("id"))
        .with_recorder(replays::replaying_recorder())
}

/// The default limits, except that an incomplete turn is not retried.
pub fn limits_without_retries() -> Limits {
    Limits { max_turn_retries: 0, ..Limits::default() }
}

/// The default limits, except that an incomplete turn is not retried, and that a run sends at most
/// this many requests.
pub fn limits_with_max_turns(max_turns: u32) -> Limits {
    Limits { max_turns: Some(max_turns), ..limits_without_retries() }
}

pub async fn run_outcome(replies: impl IntoIterator<Item = Reply>, tools: Vec<Tool>) -> Outcome {
    scripted_agent(replies, tools).0.run("go").outcome().await
}

/// The phase in which an interrupt finds a run that has emitted these events: `Tools` if a call has
/// started or ended since the last request, else `Streaming`. `first` is the phase if there was
/// neither.
pub fn phase_after(events: &[Event], first: InterruptedPhase) -> InterruptedPhase {
    let begun = events.iter().rev().find_map(|event| match event {
        Event::TurnStarted { .. } => Some(InterruptedPhase::Streaming),
        Event::Tool(ToolEvent::Started { .. } | ToolEvent::ApprovalRequested(_)) => {
            Some(InterruptedPhase::Tools)
        }
        event => event.tool_output().map(|_| InterruptedPhase::Tools),
    });
    begun.unwrap_or(first)
}

/// The outcome, the history, and the requests to the model.
pub async fn run_to_end(
    replies: impl IntoIterator<Item = Reply>,
    tools: Vec<Tool>,
) -> (Outcome, History, Vec<Request>) {
    let (agent, model) = scripted_agent(replies, tools);
    let run = agent.run("go");
    let handle = run.handle();
    let outcome = run.outcome().await;
    (outcome, handle.history(), model.requests())
}

/// A call of a tool, with an id.
pub fn reply_calling(id: &str, name: &str) -> Reply {
    Reply::new().call_raw(id, name, "{}")
}

/// A call of the tool `t`, with an id.
pub fn reply_calling_t(id: &str) -> Reply {
    reply_calling(id, "t")
}

/// Pulls events until one matches, and returns it.
pub async fn pull_until(run: &mut Run, fits: impl Fn(&Event) -> bool) -> Event {
    loop {
        match run.next().await {
            Some(Ok(event)) if fits(&event) => return event,
            Some(Ok(event)) => assert!(event.outcome().is_none(), "no such event: {event:?}"),
            Some(Err(error)) => panic!("the run failed: {error}"),
            None => panic!("no such event"),
        }
    }
}

/// Pulls events until one matches, and returns all of them.
pub async fn events_until(run: &mut Run, fits: impl Fn(&Event) -> bool) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        events.push(event.unwrap());
        if fits(events.last().unwrap()) {
            return events;
        }
    }
    panic!("no such event");
}

/// Stores an event of a run. The error of a failed run comes after `Finished`, and equals the
/// outcome's error.
#[track_caller]
pub fn push_event(events: &mut Vec<Event>, item: Result<Event, Error>) {
    match item {
        Ok(event) => {
            assert!(events.last().is_none_or(|last| last.outcome().is_none()), "{event:?}");
            events.push(event);
        }
        Err(error) => {
            let outcome = events.last().and_then(Event::outcome);
            let own = outcome.and_then(|outcome| outcome.error.as_ref());
            assert_eq!(own, Some(&error), "an error that is not that of the outcome");
        }
    }
}

/// Returns all events and the outcome of a run, and calls `act` after each event.
pub fn run_with_action(mut run: Run, mut act: impl FnMut(&Run, &Event)) -> (Vec<Event>, Outcome) {
    let mut events = Vec::new();
    while let Some(event) = block_on(run.next()) {
        let is_event = event.is_ok();
        push_event(&mut events, event);
        if is_event {
            act(&run, events.last().unwrap());
        }
    }
    let finished: Vec<&Outcome> = events.iter().filter_map(Event::outcome).collect();
    assert_eq!(finished.len(), 1);
    let outcome = finished[0].clone();
    (events, outcome)
}

/// The usage of a reply with this number of output tokens.
pub fn output_usage(output_tokens: u64) -> Usage {
    Usage { output_tokens, ..Usage::default() }
}

/// Pulls events until the run waits or ends.
pub fn pull_ready(run: &mut Run) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(Some(event)) = run.next().now_or_never() {
        push_event(&mut events, event);
    }
    events
}

/// Pulls the remaining events of a stream that ends as a run does.
pub async fn collect_rest(
    run: &mut (impl Stream<Item = Result<Event, Error>> + Unpin),
) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        push_event(&mut events, event);
    }
    events
}

/// The serialized type of each event.
pub fn event_types(events: &[Event]) -> Vec<String> {
    let name = |event| serde_json::to_value(event).unwrap()["type"].as_str().unwrap().to_owned();
    events.iter().map(name).collect()
}

/// The outcome in the `Finished` event, which must be the only one and the last event.
#[track_caller]
pub fn final_outcome(events: &[Event]) -> &Outcome {
    assert_eq!(events.iter().filter_map(Event::outcome).count(), 1, "one ending");
    events.last().and_then(Event::outcome).expect("the ending comes last")
}

#[track_caller]
pub fn check_outcome(outcome: &Outcome, reason: EndReason, turns: u32) {
    assert_eq!((outcome.reason, outcome.turns), (reason, turns), "{outcome:?}");
}

pub fn tool_results<'a>(items: impl IntoIterator<Item = &'a Item>) -> Vec<&'a ToolResult> {
    items.into_iter().filter_map(Item::as_tool_result).collect()
}

/// The call id, the kind and the text of each result.
pub fn result_summaries<'a>(
    items: impl IntoIterator<Item = &'a Item>,
) -> Vec<(&'a str, ResultKind, String)> {
    let answer = |result: &'a ToolResult| (&*result.call_id, result.kind, result.content.text());
    tool_results(items).into_iter().map(answer).collect()
}

pub fn result_kinds<'a>(items: impl IntoIterator<Item = &'a Item>) -> Vec<ResultKind> {
    tool_results(items).into_iter().map(|result| result.kind).collect()
}

pub fn tool_calls<'a>(items: impl IntoIterator<Item = &'a Item>) -> Vec<&'a ToolCall> {
    items.into_iter().filter_map(Item::as_tool_call).collect()
}

pub fn is_tool_started(event: &Event) -> bool {
    matches!(event, Event::Tool(ToolEvent::Started { .. }))
}
