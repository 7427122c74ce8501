//! Small worlds: every script of [`script`], undisturbed and with a disturbance at every
//! poll, and the laws in all of them.
//!
//! A world is one run of one script with one disturbance, or none. Undisturbed runs are checked
//! behind every poll. A run gives the same up to a disturbance as it does without one, which is
//! checked too, so that a disturbed run is checked from the disturbance on, and disturbed only in
//! the last turn of its script: before it, it is the world of a shorter script.
//!
//! By default every [`STEP`]th script is walked, with each of its disturbances. All of them are
//! walked, in about two minutes of CPU time, with
//!
//! ```text
//! TURNSTREAM_WORLDS=all cargo test --test invariants worlds -- --nocapture
//! ```

mod compactions;
mod environment;
mod input_and_verdicts;
mod invariants;
mod oracle;
mod script;
mod world;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use turnstream::event::{EndReason, InterruptedPhase, Transition};
use turnstream::provider::anthropic;
use turnstream::{Event, Request};

use self::environment::Stage;
use self::oracle::{foretell, wants_more};
use self::script::Script;
use self::world::{Disturbance, Fault, How, World};

use crate::support::clock;
use crate::support::runs::phase_after;

/// By default one script in this number is walked. It shares no factor with the number of last turns
/// of the longer scripts, so that each of these turns is in the sample.
const STEP: usize = 13;

/// Which disturbances a script is tried with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum With {
    Breaks,
    BreaksAndRetries,
    Nothing,
    Talk,
    Verdicts,
}

#[test]
fn the_invariants_hold_in_all_small_scenarios() {
    let lists = [
        (With::Nothing, script::that_repeat(wants_more)),
        (With::Talk, script::to_talk_into(wants_more)),
        (With::Verdicts, script::that_ask()),
        (With::BreaksAndRetries, script::of_one_turn()),
        (With::Breaks, script::of_two_turns(wants_more)),
        (With::Breaks, script::of_three_turns(wants_more)),
    ];
    let step = step();
    let (mut walked, mut of, mut all) = (0, 0, 0);
    for (with, scripts) in lists {
        // These are few.
        let step = if with == With::Nothing { 1 } else { step };
        let sample: Vec<_> = scripts.iter().step_by(step).collect();
        let worlds = worlds_of(&sample, with);
        println!("{} of {} scripts, {with:?}: {worlds} worlds", sample.len(), scripts.len());
        walked += sample.len();
        of += scripts.len();
        all += worlds;
    }
    println!("worlds: {all}, of {walked} of {of} scripts");
    assert!((100_000 / step..1_000_000 / step).contains(&all), "there are {all} worlds");
}

/// [`STEP`], or 1 if `TURNSTREAM_WORLDS` is `all`.
fn step() -> usize {
    match std::env::var("TURNSTREAM_WORLDS").as_deref() {
        Ok("all") => 1,
        Ok(other) => panic!("`TURNSTREAM_WORLDS` is `all` or absent, not `{other}`"),
        Err(_) => STEP,
    }
}

/// Shares the scripts out among threads. Each has a clock of its own, which stands still.
fn worlds_of(scripts: &[&Script], with: With) -> usize {
    let threads = std::thread::available_parallelism().map_or(2, NonZeroUsize::get);
    let (next, worlds) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let runtime = clock::paused();
                let stage = Stage::new();
                while let Some(script) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let tried = runtime.block_on(every_world_of(&stage, script, with));
                    worlds.fetch_add(tried, Ordering::Relaxed);
                }
            });
        }
    });
    worlds.into_inner()
}

/// Returns how many there were.
async fn every_world_of(stage: &Stage, script: &Script, with: With) -> usize {
    let plain = undisturbed(stage, script).await;
    let last = script.0.len() - 1;
    // From where the last turn is asked for, to where the next is, or to the end.
    let from = if last == 0 { 0 } else { plain.starts[last] };
    let to = plain.starts.get(last + 1).copied().unwrap_or(plain.polls);
    let mut worlds = 1;
    match with {
        With::Nothing => {}
        With::Breaks | With::BreaksAndRetries => {
            for at in from..=to {
                dropped(stage, script, &plain, at).await;
                interrupted(stage, script, &plain, at).await;
                worlds += 2;
            }
            for how in [How::Cut, How::Error] {
                for behind in 0..events_of_turn(&plain, last) {
                    let fault = Fault { turn: last, behind, how, retried: false };
                    broken(stage, script, &plain, fault).await;
                    worlds += 1;
                    if with == With::BreaksAndRetries {
                        let fault = Fault { retried: true, ..fault };
                        retried(stage, script, &plain, fault).await;
                        worlds += 1;
                    }
                }
            }
        }
        With::Talk => {
            for at in from..=to {
                for what in [
                    Disturbance::Steer(at),
                    Disturbance::FollowUp(at),
                    Disturbance::StopAfterTurn(at),
                ] {
                    input_and_verdicts::talked_into(stage, script, &plain, what).await;
                    worlds += 1;
                }
            }
        }
        With::Verdicts => worlds += input_and_verdicts::judged(stage, script).await,
    }
    worlds
}

/// How many events the stream of a turn gives before it is complete.
fn events_of_turn(world: &World, turn: usize) -> usize {
    let starts = world
        .events
        .iter()
        .enumerate()
        .filter(|(_, event)| matches!(event, Event::TurnStarted { .. }));
    let Some((start, _)) = starts.into_iter().nth(turn) else { return 0 };
    let stream = world.events[start + 1..].iter();
    stream.take_while(|event| event.turn_complete().is_none()).count()
}

async fn undisturbed<'a>(stage: &Stage, script: &'a Script) -> World<'a> {
    let mut again = World::new(stage, script, Disturbance::Nothing);
    while again.poll(None).await {}
    let mut world = World::new(stage, script, Disturbance::Nothing);
    while world.poll(None).await {
        invariants::at_any_instant(&world);
        if world.events.last().is_some_and(|event| event.outcome().is_some()) {
            invariants::nothing_runs(&world);
        }
    }
    invariants::same_bytes(&world, &again);
    let fortune = foretell(script);
    let outcome = invariants::one_ending(&mut world).await.clone();
    let reason = fortune.reason.unwrap_or(EndReason::Completed);
    world.equal(&outcome.reason, &reason, "the ending is another than what is asked for");
    let turns = script.0.len() + usize::from(fortune.reason.is_none());
    world.equal(&(outcome.turns as usize), &turns, "it takes another number of turns");
    let results = outcome.new_items().iter().filter_map(|item| Some(item.as_tool_result()?.kind));
    world.equal(&results.collect::<Vec<_>>(), &fortune.results, "the results are others");
    world
}

/// Dropped: nothing runs from that call on, and what was seen is there and can be sent.
async fn dropped(stage: &Stage, script: &Script, plain: &World<'_>, at: usize) {
    let mut world = World::new(stage, script, Disturbance::Drop(at));
    world.poll_until(at, plain).await;
    let (before, new) = (world.handle.history(), world.folded.new_items());
    world.run = None;
    invariants::nothing_runs(&world);
    let (sent, ran) = (world.sent(), world.tools.ran());
    tokio::time::advance(Duration::from_mins(1)).await;
    world.equal(&world.sent(), &sent, "law 2: a request behind a drop");
    world.equal(&world.tools.ran(), &ran, "law 2: a tool behind a drop");
    world.equal(&world.handle.history(), &before, "law 5: a drop loses nothing");
    world.equal(&world.journal.new_items(), &new, "law 7: a drop changes nothing");
    invariants::at_any_instant(&world);
    invariants::requests_are_the_fold(&world);
    let request = Request::new(before.settled());
    world.check(anthropic::encode(&request, "m").is_ok(), "law 3: it can be sent");
}

/// Interrupted from elsewhere: it is woken, and its next poll drops everything and ends it.
async fn interrupted(stage: &Stage, script: &Script, plain: &World<'_>, at: usize) {
    let mut world = World::new(stage, script, Disturbance::Interrupt(at));
    world.poll_until(at, plain).await;
    let over = world.events.last().is_some_and(|event| event.outcome().is_some());
    let (phase, cut) =
        (phase_after(&world.events, InterruptedPhase::Streaming), world.events.len());
    let open = world.handle.history().unanswered_calls().len();
    let (sent, ran, wakes) = (world.sent(), world.tools.ran(), world.wakes());
    world.handle.interrupt();
    world.handle.interrupt();
    if world.silent {
        world.check(world.wakes() > wakes, "law 6: an interrupt wakes a run that waits");
    }
    let mut known = (cut == 0).then_some(plain);
    while world.poll(known.take()).await {
        world.check(!world.silent, "law 6: behind an interrupt nothing is waited for");
        invariants::nothing_runs(&world);
        invariants::at_any_instant(&world);
    }
    world.equal(&world.sent(), &sent, "law 2: a request behind an interrupt");
    world.equal(&world.tools.ran(), &ran, "law 2: a tool behind an interrupt");
    invariants::one_ending(&mut world).await;
    match over {
        true => world.equal(&world.events.len(), &cut, "law 6: a late interrupt changes nothing"),
        false => invariants::interrupted(&world, cut, phase, open),
    }
}

/// The wire breaks, and nobody asks again: the run ends with that.
async fn broken(stage: &Stage, script: &Script, plain: &World<'_>, fault: Fault) {
    let mut world = World::new(stage, script, Disturbance::Wire(fault));
    world.poll_until(plain.starts[fault.turn], plain).await;
    while world.poll(None).await {
        invariants::at_any_instant(&world);
    }
    invariants::broken_off(&world);
    let outcome = invariants::one_ending(&mut world).await.clone();
    let reason = match fault.how {
        How::Cut => EndReason::Incomplete,
        How::Error => EndReason::ProviderError,
    };
    world.equal(&outcome.reason, &reason, "the ending of a turn that broke off");
    world.equal(&(outcome.turns as usize), &(fault.turn + 1), "nobody asks again");
}

/// The wire breaks, and the agent asks again: what came is void and counts, and the run ends as it
/// would have.
async fn retried(stage: &Stage, script: &Script, plain: &World<'_>, fault: Fault) {
    let mut world = World::new(stage, script, Disturbance::Wire(fault));
    world.poll_until(plain.starts[fault.turn], plain).await;
    while world.poll(None).await {
        invariants::at_any_instant(&world);
    }
    let outcome = invariants::one_ending(&mut world).await.clone();
    let retry = |event: &Event| matches!(event, Event::Continued { reason: Transition::Retry });
    let again = world.events.iter().any(retry);
    let said_something = fault.behind > 1;
    world.check(again || !said_something, "a turn that broke off is asked for again");
    if again {
        let ending = plain.events.last().and_then(Event::outcome).map(|outcome| outcome.reason);
        world.equal(&Some(outcome.reason), &ending, "the ending behind a retry");
    } else {
        world.check(outcome.error.is_some(), "the ending without a retry");
    }
}
