//! Worlds in which the model is interrupted, but not the tools.

use turnstream::event::{AppendReason, EndReason, InterruptedPhase};
use turnstream::item::{ResultKind, StopReason};
use turnstream::{Event, TurnEvent};
use turnstream_testing::Wire;

use super::environment::Environment;
use super::input_and_verdicts::check_delivered_or_returned;
use super::invariants;
use super::script::Script;
use super::world::{Disturbance, Simulation};
use turnstream_test_support::wires::encode_and_lint;

/// Interrupts the model after a number of polls, with or without input that lets the run continue.
pub(crate) async fn run_with_interrupted_turn(
    stage: &Environment,
    script: &Script,
    plain: &Simulation<'_>,
    what: Disturbance,
) {
    let Disturbance::InterruptTurn { at, steers } = what else { unreachable!("not an interrupt") };
    let mut world = Simulation::new(stage, script, what);
    world.poll_until(at, plain).await;
    let is_over = world.events.last().is_some_and(|event| event.outcome().is_some());
    let (cut, sent, wakes) = (world.events.len(), world.turn_start_polls.len(), world.wake_count());
    let (was_streaming, was_pending) = (is_streaming(&world), world.was_pending);
    let receipt = if steers { Some(world.handle.steer("by the way")) } else { None };
    world.handle.interrupt_turn();
    world.handle.interrupt_turn();
    if was_pending {
        world.check(world.wake_count() > wakes, "an interrupt wakes a run that waits");
    }
    let mut known = (cut == 0).then_some(plain);
    while world.poll(known.take()).await {
        invariants::check_after_poll(&world);
    }
    let outcome = invariants::check_one_ending(&mut world).await.clone();
    let new = &world.events[cut..];
    if was_streaming {
        check_interrupted_turn(&world, new);
    }
    let dropped = world.events.iter().filter_map(Event::tool_output);
    let dropped = dropped.filter(|result| result.kind == ResultKind::Interrupted).count();
    world.check_eq(&dropped, &0, "an interrupt of the model drops no tool");
    match receipt {
        Some(Ok(receipt)) => check_delivered_or_returned(&world, &receipt, AppendReason::Steer),
        Some(Err(_)) => world.check(is_over, "input is accepted until the run is over"),
        None if is_over => world.check_eq(&new.len(), &0, "a late interrupt changes nothing"),
        None => {
            world.check_eq(&world.turn_start_polls.len(), &sent, "no request follows");
            let was_cut = EndReason::Interrupted(InterruptedPhase::Streaming);
            world.check(!was_streaming || outcome.reason == was_cut, "the ending: the reason");
        }
    }
    for wire in [Wire::Anthropic, Wire::OpenAiChat] {
        encode_and_lint(wire, &outcome.history.settled());
    }
}

/// Whether a turn has started and not ended.
fn is_streaming(world: &Simulation) -> bool {
    let last = world.events.iter().rev().find(|event| match event {
        Event::Turn(TurnEvent::TurnComplete { .. }) | Event::TurnStarted { .. } => true,
        event => event.outcome().is_some(),
    });
    matches!(last, Some(Event::TurnStarted { .. }))
}

/// Checks that the turn ends with the next event, and keeps exactly what was streamed.
fn check_interrupted_turn(world: &Simulation, new: &[Event]) {
    let Some(Event::Turn(TurnEvent::TurnComplete { turn })) = new.first() else {
        return world.check(false, format!("the turn ends at once: {:?}", new.first()));
    };
    world.check_eq(turn.stop_reason(), &StopReason::Interrupted, "the turn was interrupted");
    world.check(turn.items().iter().all(|item| item.interrupted), "its items say so");
    world.check_eq(&turn.calls().len(), &0, "its calls are void");
    let cut = world.events.len() - new.len();
    let before = world.events[..cut].iter().rev();
    let streamed = before.take_while(|event| !matches!(event, Event::TurnStarted { .. }));
    let streamed: Vec<_> =
        streamed.filter_map(Event::text_delta).map(ToString::to_string).collect();
    let streamed: String = streamed.into_iter().rev().collect();
    world.check_eq(&turn.text(), &streamed, "the turn is the sum of its events");
}
