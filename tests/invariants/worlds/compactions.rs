//! The items that a run has added, compared with the observations of its provider, its compactor
//! and its tools, with a compaction of every range before every request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use turnstream::agent::hook;
use turnstream::context::{Compaction, Window, compactor_fn};
use turnstream::item::{ItemFlag, ItemKind, ToolResult};
use turnstream::{Event, History, Item, Request};

use super::environment::{Environment, prior_history};
use super::oracle::expects_more_turns;
use super::script::{self, Script, TurnEnding};
use super::world::{Disturbance, Simulation};
use turnstream_test_support::cases::sample_step;
use turnstream_test_support::clock;

/// The range that is replaced, after this number of requests was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReplacedRange {
    after_requests: usize,
    from: usize,
    to: usize,
}

/// The observations of the run's provider, compactor and tools.
#[derive(Default)]
struct Observations {
    /// The histories that the compactor received, each with the range that it replaced.
    compactor_histories: Mutex<Vec<(ReplacedRange, Vec<Item>)>>,
    /// The results that the tools returned.
    tool_results: Mutex<Vec<ToolResult>>,
}

#[test]
fn new_items_match_what_provider_and_tools_exchanged_at_any_compaction() {
    let lists = [script::one_turn_scripts(), script::two_turn_scripts(expects_more_turns), {
        script::three_turn_scripts(expects_more_turns).into_iter().step_by(LONGEST_STEP).collect()
    }];
    let runtime = clock::paused_runtime();
    let stage = Environment::new();
    let (mut worlds, mut rewritten) = (0, 0);
    for script in lists.iter().flatten().step_by(sample_step(super::SAMPLE_STEP)) {
        let requests = runtime.block_on(run_with_compaction(&stage, script, None)).requests;
        worlds += 1;
        for (sent, seen) in requests.iter().enumerate() {
            // A longer range than the plain run's request never exists.
            for to in 1..=seen.history.len() {
                for from in 0..to {
                    let place = ReplacedRange { after_requests: sent, from, to };
                    let world = runtime.block_on(run_with_compaction(&stage, script, Some(place)));
                    worlds += 1;
                    rewritten += usize::from(world.is_rewritten);
                }
            }
        }
    }
    println!("{worlds} worlds, in {rewritten} of which a compaction replaced items");
    assert!(rewritten * 4 > worlds, "{rewritten} of {worlds} were compacted");
}

/// The step for the longest scripts, which take most of the time.
const LONGEST_STEP: usize = 20;

struct CompactedRun {
    requests: Vec<Request>,
    is_rewritten: bool,
}

/// Runs a script, and compares the items that the run reports as added with the observations.
async fn run_with_compaction(
    stage: &Environment,
    script: &Script,
    place: Option<ReplacedRange>,
) -> CompactedRun {
    let (agent, model) = stage.agent(script, Disturbance::Nothing);
    let witnesses = Arc::new(Observations::default());
    let (seen, asked) = (Arc::clone(&witnesses), model.clone());
    let overflows: Vec<bool> =
        script.0.iter().map(|turn| turn.ending == TurnEnding::ContextWindow).collect();
    let reacted = Mutex::new(vec![false; overflows.len()]);
    let replaced = AtomicBool::new(false);
    let compactor = compactor_fn(move |history: &History| {
        let sent = asked.requests().len();
        // The first compaction after a turn that did not fit is the run's reaction to it.
        let reacts = sent.checked_sub(1).is_some_and(|turn| {
            overflows.get(turn) == Some(&true)
                && !std::mem::replace(&mut reacted.lock().unwrap()[turn], true)
        });
        let here = place.filter(|place| {
            place.after_requests == sent
                && place.to <= history.len()
                && (reacts || !replaced.swap(true, Ordering::Relaxed))
        });
        let (from, to) = match (reacts, here) {
            (true, _) => (0, 1),
            (false, Some(place)) => (place.from, place.to),
            (false, None) => return Ok(None),
        };
        let compaction =
            Compaction::new(from, to, vec![Item::user("n").with_flag(ItemFlag::Compacted)]);
        // A note alone cannot be shortened.
        let is_note = to - from == 1 && history.iter().nth(from).is_some_and(|item| item.compacted);
        if is_note || compaction.validate(history).is_err() {
            return Ok(None);
        }
        let place = ReplacedRange { after_requests: sent, from, to };
        seen.compactor_histories.lock().unwrap().push((place, history.iter().cloned().collect()));
        Ok(Some(compaction))
    });
    let seen = Arc::clone(&witnesses);
    let results = hook::after_tool(move |_, _, result| {
        seen.tool_results.lock().unwrap().push(result.clone());
    });
    let bytes = |text: &str| 1_000 * text.len() as u64;
    let agent = agent
        .with_window(Window::new(1).with_threshold_percent(0).with_counter(bytes))
        .with_compactor(compactor)
        .with_hook(results);
    let run = agent.run_from(prior_history(), "go");
    let parts = (run, model.clone(), prior_history());
    let mut world = Simulation::from_run(stage, script, Disturbance::Nothing, parts);
    while world.poll(None).await {}
    let requests = model.requests();
    let rewritten = check_added_items(&world, &requests, &witnesses, place);
    CompactedRun { requests, is_rewritten: rewritten }
}

/// Reconstructs the added items from the observations, and compares. Returns whether items were
/// replaced.
fn check_added_items(
    world: &Simulation,
    requests: &[Request],
    witnesses: &Observations,
    place: Option<ReplacedRange>,
) -> bool {
    let mut requests = requests.iter();
    let compacted = witnesses.compactor_histories.lock().unwrap();
    let mut record: Vec<Item> = Vec::new();
    let mut shown: Vec<Item> = prior_history().iter().cloned().collect();
    let see = |record: &mut Vec<Item>, shown: &mut Vec<Item>, items: Vec<Item>| {
        let begins = items.len() >= shown.len()
            && shown.iter().zip(&items).all(|(shown, item)| shown.kind == item.kind);
        world.check(begins, format!("{place:?}: {items:?} does not begin with {shown:?}"));
        record.extend_from_slice(&items[shown.len()..]);
        *shown = items;
    };
    let (mut sent, mut rewritten, mut last) = (0, false, None);
    for event in &world.events {
        match event {
            Event::TurnStarted { .. } => {
                let request = requests.next().expect("a request of each turn");
                see(&mut record, &mut shown, request.history.iter().cloned().collect());
                (sent, last) = (sent + 1, None);
            }
            Event::Rewritten { from, to, items, .. } => {
                // A range may be extended, up to a position where a note is allowed.
                let is_it = |it: &ReplacedRange| {
                    it.after_requests == sent && it.from == *from && it.to <= *to
                };
                let (_, history) = compacted.iter().find(|(at, _)| is_it(at)).expect("it asked");
                see(&mut record, &mut shown, history.clone());
                last = None;
                shown.splice(*from..*to, items.iter().cloned());
                rewritten = true;
            }
            Event::Turn(_) => last = event.turn_complete().or(last),
            _ => {}
        }
    }
    // No request contains the last turn, nor the results of its calls.
    let outcome = world.events.last().and_then(Event::outcome).expect("the run has ended");
    if let Some(last) = last {
        record.extend(last.to_history_items());
        let passed = witnesses.tool_results.lock().unwrap();
        let tail = outcome.new_items().iter().skip(record.len());
        let mut calls = last.tool_calls();
        for item in tail {
            let ItemKind::ToolResult(result) = &item.kind else {
                world.check(false, format!("{place:?}: {item:?} was added by no one"));
                continue;
            };
            let mine = calls.any(|call| call.call_id == result.call_id);
            world.check(mine, format!("{place:?}: {result:?} answers no call in its order"));
            let seen = passed.iter().find(|seen| seen.call_id == result.call_id);
            world.check(seen.is_none_or(|seen| seen == result), "a result is as the tool gave it");
            record.push(item.clone());
        }
    }
    world.check_eq(outcome.new_items(), &record[..], &format!("what was added, {place:?}"));
    rewritten
}
