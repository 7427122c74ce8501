//! The invariants, each as a check of one world at one moment.

use turnstream::event::{EndReason, InterruptedPhase, ToolEvent};
use turnstream::item::ResultKind;
use turnstream::provider::anthropic;
use turnstream::turn::StopReason;
use turnstream::{Event, History, Item, Outcome, Request, TurnEvent, Usage};

use super::world::Simulation;

/// Checks everything that holds after any poll.
pub(crate) fn check_after_poll(world: &Simulation) {
    let history = world.handle.history();
    check_sendable(world, &history);
    check_no_phantom_execution(world);
    check_no_paid_work_lost(world, &history);
    check_journal_matches_state(world, &history);
}

/// Checks that nothing streams and nothing runs.
pub(crate) fn check_nothing_runs(world: &Simulation) {
    world.check_eq(&world.model.in_flight(), &0, "a turn streams on");
    world.check_eq(&world.executions.running_count(), &0, "a tool runs on");
}

/// Checks that the history that a reader sees settles to one that can be sent.
pub(crate) fn check_sendable(world: &Simulation, history: &History) {
    let settled = history.settled();
    world.check(has_paired_calls(&settled), "each call has one result, each result its call");
    world.check(settled.is_settled(), "settled() settles");
    world.check_eq(&settled.settled(), &settled, "settling twice changes nothing");
    if history.is_settled() {
        world.check_eq(&settled, history, "a settled history stays as it is");
    }
}

/// Law 3 in other words: each call is answered once, after it and before the next text.
fn has_paired_calls(history: &History) -> bool {
    let mut open: Vec<&str> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for item in history {
        if let Some(call) = item.as_tool_call() {
            if seen.contains(&&*call.call_id) {
                return false;
            }
            seen.push(&call.call_id);
            open.push(&call.call_id);
        } else if let Some(result) = item.as_tool_result() {
            let Some(at) = open.iter().position(|id| *id == result.call_id) else { return false };
            open.remove(at);
        } else if !open.is_empty() && item.as_text().is_none() {
            return false;
        }
    }
    open.is_empty()
}

/// Checks that a tool ran only for a call of a complete turn that allows it, once, and after an
/// event.
fn check_no_phantom_execution(world: &Simulation) {
    let ran = world.executions.executed_call_ids();
    let all = || world.earlier_events.iter().chain(&world.events);
    for (at, call_id) in ran.iter().enumerate() {
        world.check(!ran[..at].contains(call_id), format!("{call_id} ran twice"));
        let allowed = all().filter_map(Event::turn_complete).any(|turn| {
            let may_run = matches!(turn.stop_reason(), StopReason::Stop | StopReason::ToolCalls);
            may_run && turn.tool_calls().any(|call| call.call_id == *call_id)
        });
        world.check(allowed, format!("nothing allows that {call_id} runs"));
        let started = all().any(|event| match event {
            Event::Tool(ToolEvent::Started { call_id: started, .. }) => started == call_id,
            _ => false,
        });
        world.check(started, format!("{call_id} ran without a `tool_started` event"));
    }
}

/// Checks that results and turns that were reported are in the history, and all usage counts.
fn check_no_paid_work_lost(world: &Simulation, history: &History) {
    let mut held = history.iter();
    let mut usage = Usage::default();
    let mut open = Usage::default();
    for event in &world.events {
        match event {
            Event::Turn(TurnEvent::TurnComplete { turn }) => {
                for item in turn.items() {
                    let found = held
                        .any(|held| held.kind == item.kind && held.interrupted == item.interrupted);
                    world.check(found, format!("{item:?} is lost"));
                }
                (usage, open) = (usage + turn.usage(), Usage::default());
            }
            Event::Turn(TurnEvent::Retracted { usage: void, .. }) => {
                world.check_eq(&**void, &open, "a void attempt costs what it did");
                (usage, open) = (usage + **void, Usage::default());
            }
            Event::Turn(TurnEvent::UsageUpdate { usage }) => open = *usage,
            Event::Tool(ToolEvent::Output(result)) => {
                let of = |item: &Item| item.as_tool_result() == Some(result);
                let count = history.iter().filter(|item| of(item)).count();
                world.check_eq(&count, &1, "a result is in the history");
            }
            _ => {}
        }
    }
    world.check_eq(&world.handle.usage(), &(usage + open), "all usage counts");
}

/// Checks that the fold of the events, as a store has them, is the state.
fn check_journal_matches_state(world: &Simulation, history: &History) {
    let folded = &world.folded_journal;
    world.check_eq(&folded.history(), history, "the history is the fold");
    world.check_eq(&folded.usage(), &world.handle.usage(), "so is the usage");
    let new = folded.new_items();
    world.check_eq(&new, &world.journal.new_items(), "and what is new");
    if let Some(outcome) = world.events.last().and_then(Event::outcome) {
        world.check_eq(outcome.new_items(), &new[..], "the outcome's new items");
        world.check_eq(&outcome.usage, &folded.usage(), "the outcome's usage");
    }
}

/// Checks that each request contained the fold at the start of its turn.
pub(crate) fn check_requests_match_fold(world: &Simulation) {
    let requests = world.model.requests();
    for (request, folded) in
        requests.iter().skip(world.earlier_request_count).zip(&world.turn_start_histories)
    {
        world.check_eq(&request.history, &folded.settled(), "a request is the fold, settled");
        world.check(request.history.is_settled(), "a request is settled");
    }
    // The request of a turn that has started may not have been sent yet.
    let (sent, began) = (world.request_count(), world.turn_start_histories.len());
    world.check(sent == began || sent + 1 == began, format!("{sent} requests, {began} turns"));
}

/// Checks that there is one ending, then nothing for ever, and that nothing runs.
pub(crate) async fn check_one_ending<'w>(world: &'w mut Simulation<'_>) -> &'w Outcome {
    let endings = world.events.iter().filter(|event| event.outcome().is_some()).count();
    world.check_eq(&endings, &1, "it ends once");
    let last = world.events.last().and_then(Event::outcome);
    world.check(last.is_some(), "nothing follows the ending");
    check_nothing_runs(world);
    for _ in 0..2 {
        let over = !world.poll(None).await;
        world.check(over, "then it is over for ever");
    }
    check_after_poll(world);
    check_requests_match_fold(world);
    let Some(outcome) = world.events.last().and_then(Event::outcome) else {
        unreachable!("it was looked at above")
    };
    let began = world.events.iter().filter(|event| matches!(event, Event::TurnStarted { .. }));
    world.check_eq(&(outcome.turns as usize), &began.count(), "the turns are counted");
    let failed = matches!(outcome.reason, EndReason::ProviderError | EndReason::Incomplete);
    world.check_eq(&outcome.error.is_some(), &failed, "an error says what failed");
    let is_partial = outcome.reason.is_partial()
        || outcome.reason == EndReason::Completed && outcome.unknown_stop_reason.is_some();
    world.check_eq(&outcome.partial, &is_partial, "partial");
    if outcome.reason != EndReason::Pending {
        let open = world.handle.history().unanswered_calls();
        world.check(open.is_empty(), "at the end every call has its result");
    }
    outcome
}

/// Checks that a second run is the same, byte for byte.
pub(crate) fn check_same_bytes(first: &Simulation, second: &Simulation) {
    first.check_eq(&event_lines(second), &event_lines(first), "the same events");
    first.check_eq(&request_bodies(second), &request_bodies(first), "the same requests");
}

fn event_lines(world: &Simulation) -> Vec<String> {
    let line = |event: &Event| serde_json::to_string(event).expect("an event can be written");
    world.events.iter().map(line).collect()
}

fn request_bodies(world: &Simulation) -> Vec<Vec<u8>> {
    let encode = |request: &Request| anthropic::encode(request, "m").expect("it can be sent");
    world.model.requests().iter().map(encode).collect()
}

/// Checks the events after an interrupt, which came after this number of events: a result for each
/// open call, and the ending.
pub(crate) fn check_interrupted(
    world: &Simulation,
    cut: usize,
    phase: InterruptedPhase,
    open: usize,
) {
    let behind = &world.events[cut..];
    let answers: Vec<_> = behind.iter().filter_map(Event::tool_output).collect();
    let made_up = answers.iter().all(|answer| answer.kind == ResultKind::Interrupted);
    world.check(made_up, "an interrupt: nothing more runs");
    world.check_eq(&answers.len(), &open, "an interrupt: each open call is answered");
    let input = usize::from(cut == 0);
    world.check_eq(&behind.len(), &(input + open + 1), "an interrupt: nothing else is told");
    let reason = behind.last().and_then(Event::outcome).map(|outcome| outcome.reason);
    world.check_eq(&reason, &Some(EndReason::Interrupted(phase)), "an interrupt: the reason");
}

/// Checks that every item of the incomplete turn is marked, and that none of its calls ran.
pub(crate) fn check_broken_off_turn(world: &Simulation) {
    let completed = |event: &Event| event.turn_complete().is_some();
    let from = world.events.iter().rposition(completed).map_or(0, |at| at + 1);
    let ran = world.events[from..].iter().any(|event| match event {
        Event::Tool(ToolEvent::Started { call_id, .. }) => world.events[from..]
            .iter()
            .any(|event| matches!(event, Event::Turn(TurnEvent::ToolCallStart { call_id: id, .. }) if id == call_id)),
        _ => false,
    });
    world.check(!ran, "no call of a turn that broke off runs");
    let history = world.handle.history();
    let calls = world.events[from..].iter().filter_map(|event| match event {
        Event::Turn(TurnEvent::ToolCallStart { call_id, .. }) => Some(call_id),
        _ => None,
    });
    for call_id in calls {
        let of = |item: &&Item| item.as_tool_call().is_some_and(|call| call.call_id == *call_id);
        let marked = history.iter().find(of).is_none_or(|item| item.interrupted);
        world.check(marked, "a call of a turn that broke off is marked");
    }
}
