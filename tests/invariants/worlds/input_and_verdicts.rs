//! Worlds with external input: steering, stops and verdicts.

use turnstream::agent::InputReceipt;
use turnstream::event::{AppendReason, EndReason, InterruptedPhase};
use turnstream::tool::Verdict;
use turnstream::{Event, Item};

use super::environment::{Environment, prior_history};
use super::invariants;
use super::script::{CallFate, Script};
use super::world::{Disturbance, Simulation};
use turnstream_test_support::runs::phase_after;

/// Sends input after a number of polls, or requests a stop.
pub(crate) async fn run_with_user_input(
    stage: &Environment,
    script: &Script,
    plain: &Simulation<'_>,
    what: Disturbance,
) {
    let mut world = Simulation::new(stage, script, what);
    let at = match what {
        Disturbance::Steer(at) | Disturbance::FollowUp(at) | Disturbance::StopAfterTurn(at) => at,
        Disturbance::Nothing
        | Disturbance::Drop(_)
        | Disturbance::Interrupt(_)
        | Disturbance::InterruptTurn { .. }
        | Disturbance::Wire(_) => unreachable!("not an input"),
    };
    world.poll_until(at, plain).await;
    let over = world.events.last().is_some_and(|event| event.outcome().is_some());
    let began = world.turn_start_polls.len();
    let said = match what {
        Disturbance::Steer(_) => Some((world.handle.steer("by the way"), AppendReason::Steer)),
        Disturbance::FollowUp(_) => {
            Some((world.handle.follow_up("by the way"), AppendReason::FollowUp))
        }
        _ => {
            world.handle.stop_after_turn();
            None
        }
    };
    while world.poll(None).await {
        invariants::check_after_poll(&world);
    }
    invariants::check_one_ending(&mut world).await;
    match said {
        Some((Ok(receipt), why)) => check_delivered_or_returned(&world, &receipt, why),
        Some((Err(back), _)) => {
            world.check(over, "input is accepted until the run is over");
            world.check_eq(
                &back.items,
                &vec![Item::user("by the way")],
                "undelivered input is returned",
            );
        }
        None => world.check_eq(&world.request_count(), &began, "no request after a stop"),
    }
}

/// Checks that the input is in the history once, at its position; or that the outcome returns it.
pub(super) fn check_delivered_or_returned(
    world: &Simulation,
    receipt: &InputReceipt,
    why: AppendReason,
) {
    let Some(outcome) = world.events.last().and_then(Event::outcome) else { return };
    let back = outcome.undelivered.iter().filter(|back| back.id == receipt.id).count();
    let told = world.events.iter().filter(|event| match event {
        Event::Appended { why: of, id, .. } => *of == why && *id == receipt.id,
        _ => false,
    });
    let told = told.count();
    let held = world.handle.history();
    let held = held.iter().filter(|item| **item == Item::user("by the way")).count();
    world.check_eq(&(told + back), &1, "input is delivered or returned");
    world.check_eq(&held, &told, "what is delivered is in the history");
    world.check_eq(
        &world.handle.delivery_turn(receipt).is_some(),
        &(told == 1),
        "the receipt knows",
    );
}

/// Runs a call that needs approval: the run ends as pending; then it is resumed with each verdict,
/// and dropped and interrupted at every poll.
pub(crate) async fn run_with_verdicts(stage: &Environment, script: &Script) -> usize {
    let mut worlds = 0;
    for verdict in [Verdict::Approve, Verdict::Deny("no".into())] {
        let plain = run_resumed(stage, script, &verdict, Disturbance::Nothing, None).await;
        for at in 0..=plain.poll_count {
            run_resumed(stage, script, &verdict, Disturbance::Drop(at), Some(&plain)).await;
            run_resumed(stage, script, &verdict, Disturbance::Interrupt(at), Some(&plain)).await;
            worlds += 2;
        }
        worlds += 1;
    }
    worlds
}

async fn run_resumed<'a>(
    stage: &Environment,
    script: &'a Script,
    verdict: &Verdict,
    what: Disturbance,
    plain: Option<&Simulation<'_>>,
) -> Simulation<'a> {
    let (agent, model) = stage.agent(script, Disturbance::Nothing);
    let run = agent.run_from(prior_history(), "go");
    let parts = (run, model.clone(), prior_history());
    let mut first = Simulation::from_run(stage, script, Disturbance::Nothing, parts);
    while first.poll(None).await {}
    let outcome = invariants::check_one_ending(&mut first).await.clone();
    first.check_eq(&outcome.reason, &EndReason::Pending, "a call without a verdict is pending");
    let asks = script.0[0].calls.iter().filter(|fate| **fate == CallFate::NeedsApproval).count();
    first.check_eq(&outcome.pending.len(), &asks, "exactly these are pending");
    let history = first.handle.history();
    let verdicts = outcome.pending.iter().map(|call| (call.clone(), verdict.clone()));
    let run = match agent.resume(history.clone(), verdicts) {
        Ok(run) => run,
        Err(error) => panic!("{first:?} cannot be resumed: {error}"),
    };
    let ran = first.executions.executed_call_ids().len();
    let mut world = Simulation::from_run(stage, script, what, (run, model, history));
    world.earlier_events = first.events;
    match (what, plain) {
        (Disturbance::Drop(at), Some(plain)) => {
            world.poll_until(at, plain).await;
            world.run = None;
            invariants::check_nothing_runs(&world);
            invariants::check_after_poll(&world);
        }
        (Disturbance::Interrupt(at), Some(plain)) => {
            world.poll_until(at, plain).await;
            let over = world.events.last().is_some_and(|event| event.outcome().is_some());
            let phase = phase_after(&world.events, InterruptedPhase::Tools);
            world.handle.interrupt();
            while world.poll(None).await {
                invariants::check_nothing_runs(&world);
                invariants::check_after_poll(&world);
            }
            let ended = invariants::check_one_ending(&mut world).await.reason;
            world.check(over || ended == EndReason::Interrupted(phase), "an interrupt: the reason");
        }
        _ => {
            while world.poll(None).await {
                invariants::check_after_poll(&world);
            }
            let ended = invariants::check_one_ending(&mut world).await.reason;
            world.check_eq(&ended, &EndReason::Completed, "a resumed run continues");
            let more = if *verdict == Verdict::Approve { asks } else { 0 };
            let ran_now = world.executions.executed_call_ids().len() - ran;
            world.check_eq(&ran_now, &more, "exactly what was approved runs");
        }
    }
    world
}
