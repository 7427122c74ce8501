//! Input that is steered to a run.

use futures::StreamExt;
use futures::executor::block_on;
use turnstream::event::EndReason;
use turnstream::provider::Scripted;
use turnstream::{Agent, Item};

#[test]
fn input_steered_to_a_dropped_run_is_returned() {
    let run = Agent::new(Scripted::new(["x"])).run("go");
    let handle = run.handle();
    drop(run);
    assert!(handle.steer("late").is_err());
}

#[test]
fn steering_empty_input_starts_no_turn() {
    let model = Scripted::new(["a", "b"]);
    let mut run = Agent::new(model.clone()).run("go");
    while let Some(event) = block_on(run.next()) {
        if event.unwrap().text_delta().is_some() {
            run.steer(Vec::<Item>::new()).unwrap();
        }
    }
    assert_eq!(model.requests().len(), 1);
}

#[test]
fn a_valid_reply_resets_the_malformed_count_even_when_steered() {
    let model = Scripted::new(["", "good", "", "good", "", "fine"]);
    let mut run = Agent::new(model).run("go");
    let mut reason = None;
    while let Some(event) = block_on(run.next()) {
        let event = event.unwrap();
        if event.text_delta().is_some_and(|text| *text == "good") {
            run.steer("go on").unwrap();
        }
        reason = event.outcome().map(|outcome| outcome.reason);
    }
    assert_eq!(reason, Some(EndReason::Completed));
}
