//! Small worlds: every script of [`script`], undisturbed and with a disturbance at every poll, and
//! the invariants in all of them.
//!
//! A world is one run of one script with one disturbance, or none. Undisturbed runs are checked
//! after every poll. Up to a disturbance, a run is the same as without one, which is checked too.
//! So a disturbed run is checked only from the disturbance on, and disturbed only in the last turn
//! of its script: before that turn, it is the world of a shorter script.
//!
//! By default, every [`SAMPLE_STEP`]th script is run, with each of its disturbances. All of them
//! are run, in about two minutes of CPU time with optimizations, with
//!
//! ```text
//! TURNSTREAM_CASES=all cargo test --test invariants worlds -- --nocapture
//! ```

mod compactions;
mod environment;
mod input_and_verdicts;
mod invariants;
mod oracle;
mod script;
mod turn_interrupts;
mod world;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use turnstream::event::{EndReason, InterruptedPhase, Transition};
use turnstream::provider::anthropic;
use turnstream::{Event, Request};

use self::environment::Environment;
use self::oracle::{expects_more_turns, predict_run};
use self::script::Script;
use self::world::{Disturbance, Fault, FaultKind, Simulation};

use turnstream_test_support::cases::sample_step;
use turnstream_test_support::clock;
use turnstream_test_support::runs::phase_after;

/// By default, one script in this number is run. It shares no factor with the number of last turns
/// of the longer scripts, so that each of these turns is in the sample.
const SAMPLE_STEP: usize = 31;

/// The disturbances that a script is run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DisturbanceSet {
    Breaks,
    BreaksAndRetries,
    Nothing,
    UserInput,
    Verdicts,
}

#[test]
fn the_invariants_hold_in_all_small_scenarios() {
    let lists = [
        (DisturbanceSet::Nothing, script::repeating_scripts(expects_more_turns)),
        (DisturbanceSet::UserInput, script::user_input_scripts(expects_more_turns)),
        (DisturbanceSet::Verdicts, script::approval_scripts()),
        (DisturbanceSet::BreaksAndRetries, script::one_turn_scripts()),
        (DisturbanceSet::Breaks, script::two_turn_scripts(expects_more_turns)),
        (DisturbanceSet::Breaks, script::three_turn_scripts(expects_more_turns)),
    ];
    let step = sample_step(SAMPLE_STEP);
    let (mut walked, mut of, mut all) = (0, 0, 0);
    for (with, scripts) in lists {
        // These are few.
        let step = if with == DisturbanceSet::Nothing { 1 } else { step };
        let sample: Vec<_> = scripts.iter().step_by(step).collect();
        let worlds = simulate_scripts(&sample, with);
        println!("{} of {} scripts, {with:?}: {worlds} worlds", sample.len(), scripts.len());
        walked += sample.len();
        of += scripts.len();
        all += worlds;
    }
    println!("worlds: {all}, of {walked} of {of} scripts");
    assert!((100_000 / step..1_000_000 / step).contains(&all), "there are {all} worlds");
}

/// Distributes the scripts over threads. Each has a paused clock of its own.
fn simulate_scripts(scripts: &[&Script], with: DisturbanceSet) -> usize {
    let threads = std::thread::available_parallelism().map_or(2, NonZeroUsize::get);
    let (next, worlds) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let runtime = clock::paused_runtime();
                let stage = Environment::new();
                while let Some(script) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let tried = runtime.block_on(simulate_script(&stage, script, with));
                    worlds.fetch_add(tried, Ordering::Relaxed);
                }
            });
        }
    });
    worlds.into_inner()
}

/// Returns the number of worlds.
async fn simulate_script(stage: &Environment, script: &Script, with: DisturbanceSet) -> usize {
    let plain = run_undisturbed(stage, script).await;
    let last = script.0.len() - 1;
    // From the poll that requests the last turn to the one that requests the next, or to the end.
    let from = if last == 0 { 0 } else { plain.turn_start_polls[last] };
    let to = plain.turn_start_polls.get(last + 1).copied().unwrap_or(plain.poll_count);
    let mut worlds = 1;
    match with {
        DisturbanceSet::Nothing => {}
        DisturbanceSet::Breaks | DisturbanceSet::BreaksAndRetries => {
            for at in from..=to {
                run_dropped(stage, script, &plain, at).await;
                run_interrupted(stage, script, &plain, at).await;
                worlds += 2;
            }
            for how in [FaultKind::Cut, FaultKind::Error] {
                for behind in 0..turn_event_count(&plain, last) {
                    let fault =
                        Fault { turn: last, after_events: behind, kind: how, is_retried: false };
                    run_with_broken_stream(stage, script, &plain, fault).await;
                    worlds += 1;
                    if with == DisturbanceSet::BreaksAndRetries {
                        let fault = Fault { is_retried: true, ..fault };
                        run_with_retry(stage, script, &plain, fault).await;
                        worlds += 1;
                    }
                }
            }
        }
        DisturbanceSet::UserInput => {
            for at in from..=to {
                for what in [
                    Disturbance::Steer(at),
                    Disturbance::FollowUp(at),
                    Disturbance::StopAfterTurn(at),
                ] {
                    input_and_verdicts::run_with_user_input(stage, script, &plain, what).await;
                    worlds += 1;
                }
                for steers in [true, false] {
                    let what = Disturbance::InterruptTurn { at, steers };
                    turn_interrupts::run_with_interrupted_turn(stage, script, &plain, what).await;
                    worlds += 1;
                }
            }
        }
        DisturbanceSet::Verdicts => {
            worlds += input_and_verdicts::run_with_verdicts(stage, script).await;
        }
    }
    worlds
}

/// The number of events that the stream of a turn yields before the turn is complete.
fn turn_event_count(world: &Simulation, turn: usize) -> usize {
    let starts = world
        .events
        .iter()
        .enumerate()
        .filter(|(_, event)| matches!(event, Event::TurnStarted { .. }));
    let Some((start, _)) = starts.into_iter().nth(turn) else { return 0 };
    let stream = world.events[start + 1..].iter();
    stream.take_while(|event| event.turn_complete().is_none()).count()
}

async fn run_undisturbed<'a>(stage: &Environment, script: &'a Script) -> Simulation<'a> {
    let mut again = Simulation::new(stage, script, Disturbance::Nothing);
    while again.poll(None).await {}
    let mut world = Simulation::new(stage, script, Disturbance::Nothing);
    while world.poll(None).await {
        invariants::check_after_poll(&world);
        if world.events.last().is_some_and(|event| event.outcome().is_some()) {
            invariants::check_nothing_runs(&world);
        }
    }
    invariants::check_same_bytes(&world, &again);
    let fortune = predict_run(script);
    let outcome = invariants::check_one_ending(&mut world).await.clone();
    let reason = fortune.reason.unwrap_or(EndReason::Completed);
    world.check_eq(&outcome.reason, &reason, "the ending is another than what is asked for");
    let turns = script.0.len() + usize::from(fortune.reason.is_none());
    world.check_eq(&(outcome.turns as usize), &turns, "it takes another number of turns");
    let results = outcome.new_items().iter().filter_map(|item| Some(item.as_tool_result()?.kind));
    world.check_eq(&results.collect::<Vec<_>>(), &fortune.result_kinds, "the results are others");
    world
}

/// A dropped run: nothing runs after the drop, and the reported items are there and can be sent.
async fn run_dropped(stage: &Environment, script: &Script, plain: &Simulation<'_>, at: usize) {
    let mut world = Simulation::new(stage, script, Disturbance::Drop(at));
    world.poll_until(at, plain).await;
    let (before, new) = (world.handle.history(), world.folded_journal.new_items());
    world.run = None;
    invariants::check_nothing_runs(&world);
    let (sent, ran) = (world.request_count(), world.executions.executed_call_ids());
    tokio::time::advance(Duration::from_mins(1)).await;
    world.check_eq(&world.request_count(), &sent, "a request after a drop");
    world.check_eq(&world.executions.executed_call_ids(), &ran, "a tool after a drop");
    world.check_eq(&world.handle.history(), &before, "a drop loses nothing");
    world.check_eq(&world.journal.new_items(), &new, "a drop changes nothing");
    invariants::check_after_poll(&world);
    invariants::check_requests_match_fold(&world);
    let request = Request::new(before.settled());
    world.check(anthropic::encode(&request, "m").is_ok(), "it can be sent");
}

/// A run that is interrupted through a handle: it is woken, and its next poll drops everything and
/// ends the run.
async fn run_interrupted(stage: &Environment, script: &Script, plain: &Simulation<'_>, at: usize) {
    let mut world = Simulation::new(stage, script, Disturbance::Interrupt(at));
    world.poll_until(at, plain).await;
    let over = world.events.last().is_some_and(|event| event.outcome().is_some());
    let (phase, cut) =
        (phase_after(&world.events, InterruptedPhase::Streaming), world.events.len());
    let open = world.handle.history().unanswered_calls().len();
    let (sent, ran, wakes) =
        (world.request_count(), world.executions.executed_call_ids(), world.wake_count());
    world.handle.interrupt();
    world.handle.interrupt();
    if world.was_pending {
        world.check(world.wake_count() > wakes, "an interrupt wakes a run that waits");
    }
    let mut known = (cut == 0).then_some(plain);
    while world.poll(known.take()).await {
        world.check(!world.was_pending, "after an interrupt nothing is waited for");
        invariants::check_nothing_runs(&world);
        invariants::check_after_poll(&world);
    }
    world.check_eq(&world.request_count(), &sent, "a request after an interrupt");
    world.check_eq(&world.executions.executed_call_ids(), &ran, "a tool after an interrupt");
    invariants::check_one_ending(&mut world).await;
    match over {
        true => {
            world.check_eq(&world.events.len(), &cut, "a late interrupt changes nothing");
        }
        false => invariants::check_interrupted(&world, cut, phase, open),
    }
}

/// The wire breaks, and the agent does not retry: the run ends with the error.
async fn run_with_broken_stream(
    stage: &Environment,
    script: &Script,
    plain: &Simulation<'_>,
    fault: Fault,
) {
    let mut world = Simulation::new(stage, script, Disturbance::Wire(fault));
    world.poll_until(plain.turn_start_polls[fault.turn], plain).await;
    while world.poll(None).await {
        invariants::check_after_poll(&world);
    }
    invariants::check_broken_off_turn(&world);
    let outcome = invariants::check_one_ending(&mut world).await.clone();
    let reason = match fault.kind {
        FaultKind::Cut => EndReason::Incomplete,
        FaultKind::Error => EndReason::ProviderError,
    };
    world.check_eq(&outcome.reason, &reason, "the ending of a turn that broke off");
    world.check_eq(&(outcome.turns as usize), &(fault.turn + 1), "no retry follows");
}

/// The wire breaks, and the agent retries: the received items are void, their usage counts, and the
/// run ends as it would have without the fault.
async fn run_with_retry(
    stage: &Environment,
    script: &Script,
    plain: &Simulation<'_>,
    fault: Fault,
) {
    let mut world = Simulation::new(stage, script, Disturbance::Wire(fault));
    world.poll_until(plain.turn_start_polls[fault.turn], plain).await;
    while world.poll(None).await {
        invariants::check_after_poll(&world);
    }
    let outcome = invariants::check_one_ending(&mut world).await.clone();
    let retry = |event: &Event| matches!(event, Event::Continued { reason: Transition::Retry });
    let again = world.events.iter().any(retry);
    let said_something = fault.after_events > 1;
    world.check(again || !said_something, "a turn that broke off is asked for again");
    if again {
        let ending = plain.events.last().and_then(Event::outcome).map(|outcome| outcome.reason);
        world.check_eq(&Some(outcome.reason), &ending, "the ending after a retry");
    } else {
        world.check(outcome.error.is_some(), "the ending without a retry");
    }
}
