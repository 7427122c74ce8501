//! The telemetry of small worlds: every run of a script is dropped, and interrupted, after every
//! poll.

#[path = "../../../tests/invariants/worlds/environment.rs"]
mod environment;
#[path = "../../../tests/invariants/worlds/oracle.rs"]
mod oracle;
#[path = "../../../tests/invariants/worlds/script.rs"]
mod script;
#[expect(dead_code, reason = "not all disturbances are used")]
#[path = "../../../tests/invariants/worlds/world.rs"]
mod world;

use turnstream::event::Event;
use turnstream::usage::Usage;
use turnstream_test_support::cases::sample_step;
use turnstream_test_support::clock;

use self::environment::{Environment, prior_history};
use self::oracle::expects_more_turns;
use self::script::Script;
use self::world::{Disturbance, Simulation};
use crate::recorder::{RecordedSpan, Recorder};
use crate::trees::{recorded_telemetry, usage_of};

/// By default, one script in this number is run.
const SAMPLE_STEP: usize = 61;

/// Starts a world whose agent is recorded.
fn open<'a>(
    stage: &Environment,
    script: &'a Script,
    what: Disturbance,
) -> (Recorder, Simulation<'a>) {
    let recorder = Recorder::default();
    let (agent, model) = stage.agent(script, what);
    let agent = agent.with_run_observer(recorded_telemetry(&recorder));
    let run = agent.run_from(prior_history(), "go");
    (recorder, Simulation::from_run(stage, script, what, (run, model, prior_history())))
}

/// Checks that all spans of a world have ended, below a single root.
fn check_ended(world: &Simulation, recorder: &Recorder) {
    world.check_eq(&recorder.open_spans(), &Vec::new(), "a span is open");
    let roots = recorder.spans().iter().filter(|span| span.parent.is_none()).count();
    let has_started = world.poll_count > 0;
    world.check_eq(&roots, &usize::from(has_started), "a run has one tree");
}

/// Runs a script to its end, and returns the number of its polls.
async fn run_to_the_end(stage: &Environment, script: &Script) -> usize {
    let (recorder, mut world) = open(stage, script, Disturbance::Nothing);
    while world.poll(None).await {}
    check_ended(&world, &recorder);
    let outcome = world.events.last().and_then(Event::outcome).unwrap();
    let spans = recorder.spans();
    let usage = spans.iter().map(usage_of).fold(Usage::default(), |sum, it| sum + it);
    world.check_eq(&usage, &outcome.usage, "the usage is counted once");
    let turns = spans.iter().filter(|span| span.name.starts_with("chat")).count();
    let started = world.turn_start_polls.len();
    world.check(turns >= started, format!("{turns} requests of {started} turns"));
    world.poll_count
}

async fn drop_after(stage: &Environment, script: &Script, polls: usize) {
    let (recorder, mut world) = open(stage, script, Disturbance::Drop(polls));
    while world.poll_count < polls && world.poll(None).await {}
    let is_over = world.events.last().is_some_and(|event| event.outcome().is_some());
    let mut open = recorder.spans();
    open.retain(|span| span.ended_at.is_none());
    world.check_eq(
        &open.is_empty(),
        &(is_over || polls == 0),
        "the run's span is open until its end",
    );
    world.run = None;
    check_ended(&world, &recorder);
    let ended = recorder.spans();
    for span in open {
        let has_error = |it: &RecordedSpan| it.id == span.id && it.text("error.type").is_some();
        world.check(ended.iter().any(has_error), format!("`{}` has no error", span.name));
    }
}

async fn interrupt_after(stage: &Environment, script: &Script, polls: usize) {
    let (recorder, mut world) = open(stage, script, Disturbance::Interrupt(polls));
    while world.poll_count < polls && world.poll(None).await {}
    world.handle.interrupt();
    while world.poll(None).await {}
    check_ended(&world, &recorder);
}

#[test]
fn at_every_drop_and_interrupt_of_the_small_worlds_all_spans_have_ended() {
    let scripts = [
        script::one_turn_scripts(),
        script::approval_scripts(),
        script::user_input_scripts(expects_more_turns),
        script::two_turn_scripts(expects_more_turns),
        script::three_turn_scripts(expects_more_turns),
        script::repeating_scripts(expects_more_turns),
    ];
    let runtime = clock::paused_runtime();
    let stage = Environment::new();
    let (mut trees, mut drops, mut interrupts) = (0, 0, 0);
    for script in scripts.iter().flatten().step_by(sample_step(SAMPLE_STEP)) {
        runtime.block_on(async {
            let polls = run_to_the_end(&stage, script).await;
            trees += 1;
            for polls in 0..=polls {
                drop_after(&stage, script, polls).await;
                interrupt_after(&stage, script, polls).await;
                (drops, interrupts) = (drops + 1, interrupts + 1);
            }
        });
    }
    println!("{trees} trees, {drops} drops, {interrupts} interrupts");
    assert!(trees > 50 && drops > 20 * trees, "{trees} trees, {drops} drops");
}
