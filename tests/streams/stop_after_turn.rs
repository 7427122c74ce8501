//! Where a run ends when its owner requests a stop after the turn, and how it can continue later.

use futures::StreamExt;
use serde_json::json;
use turnstream::agent::Input;
use turnstream::event::{EndReason, ToolEvent};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::ToolSpec;
use turnstream::{Agent, Event, History, Item, Outcome, Tool};

/// A model that makes one call, then answers.
fn model() -> Scripted {
    Scripted::from_fn(|request, _| match request.history.last().map(Item::as_tool_result) {
        Some(Some(result)) => Reply::text(format!("It is {}.", result.content.text())),
        _ => Reply::text("I roll.").call("roll", json!({})),
    })
}

fn agent(model: &Scripted) -> Agent {
    let spec = ToolSpec::new("roll", "Rolls a die", json!({ "type": "object" }));
    Agent::new(model.clone()).with_tools([Tool::raw(spec, |_args, _cx| async { 6 }).unwrap()])
}

/// Stops a run at the first event for which `here` returns true. Returns the outcome and the
/// history.
async fn run_stopped_at(model: &Scripted, here: impl Fn(&Event) -> bool) -> (Outcome, History) {
    let mut run = agent(model).run("Roll a die");
    let (mut outcome, mut stopped) = (None, false);
    while let Some(event) = run.next().await {
        let event = event.unwrap();
        if !stopped && here(&event) {
            run.stop_after_turn();
            stopped = true;
        }
        outcome = event.outcome().cloned();
    }
    assert!(stopped);
    (outcome.unwrap(), run.history())
}

#[track_caller]
fn check_stopped(
    (outcome, history): &(Outcome, History),
    reason: EndReason,
    turns: u32,
    items: usize,
) {
    assert_eq!((outcome.reason, outcome.turns, history.len()), (reason, turns, items));
    assert!(history.is_settled());
}

#[tokio::test]
async fn the_turn_and_its_tools_are_finished_and_no_request_follows() {
    let places: [fn(&Event) -> bool; 4] = [
        |event| event.text_delta().is_some(),
        |event| event.turn_complete().is_some(),
        |event| matches!(event, Event::Tool(ToolEvent::Started { .. })),
        |event| event.tool_output().is_some(),
    ];
    for place in places {
        let model = model();
        check_stopped(&run_stopped_at(&model, place).await, EndReason::Stopped, 1, 4);
        assert_eq!(model.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_stop_between_turns_or_before_the_first_sends_no_request() {
    let model = model();
    let between = run_stopped_at(&model, |event| matches!(event, Event::Continued { .. })).await;
    check_stopped(&between, EndReason::Stopped, 1, 4);
    assert_eq!(model.requests().len(), 1);
    let before = run_stopped_at(&model, |event| matches!(event, Event::Appended { .. })).await;
    check_stopped(&before, EndReason::Stopped, 0, 1);
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_stop_after_a_final_answer_leaves_the_run_completed() {
    let here = |event: &Event| event.text_delta().is_some_and(|text| text.as_str() == "It ");
    check_stopped(&run_stopped_at(&model(), here).await, EndReason::Completed, 2, 5);
}

#[tokio::test]
async fn a_stopped_run_continues_from_a_file_without_new_input() {
    let (_, history) = run_stopped_at(&model(), |event| event.tool_output().is_some()).await;
    let file = serde_json::to_string(&history).unwrap();
    let loaded: History = serde_json::from_str(&file).unwrap();
    let outcome = agent(&model()).run_from(loaded, Input::default()).outcome().await;
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "It is 6."));
    assert_eq!((outcome.turns, outcome.new_items().len()), (1, 1));
}

#[tokio::test]
async fn input_steered_before_the_stop_is_returned() {
    let mut run = agent(&model()).run("Roll a die");
    let mut outcome = None;
    while let Some(event) = run.next().await {
        let event = event.unwrap();
        if event.tool_output().is_some() {
            run.stop_after_turn();
            run.steer("Again!").unwrap();
            run.follow_up("Thanks").unwrap();
        }
        outcome = event.outcome().cloned();
    }
    let undelivered = outcome.unwrap().undelivered.into_iter().flat_map(|it| it.items);
    assert_eq!(undelivered.collect::<Vec<_>>(), [Item::user("Again!"), Item::user("Thanks")]);
}
