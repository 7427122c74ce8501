//! Properties at every boundary of a run, whatever the model, the tools, the hooks and the owner
//! do: the history that is sent is the fold of the events so far, and everything is counted once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::StreamExt;
use futures::future::{BoxFuture, ready};
use serde_json::json;
use turnstream::agent::{Budget, Limits, Pool, RunHandle, Target};
use turnstream::context::{Compaction, Compactor};
use turnstream::event::EndReason;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::stream::TurnStream;
use turnstream::tool::Tool;
use turnstream::turn::StopReason;
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Journal, Outcome, Request, Usage};

use turnstream_test_support::cases;
use turnstream_test_support::random_agent::with_note_and_stop_hooks;
use turnstream_test_support::replays;
use turnstream_test_support::seeded_random::Dice;
use turnstream_test_support::seeds;
use turnstream_test_support::tools::spec;

fn error_of_kind(kind: ErrorKind) -> Error {
    Error::new(kind, "it failed")
}

fn random_reply(dice: &Dice) -> Reply {
    let usage = Usage { input_tokens: dice.roll(50), output_tokens: 7, ..Usage::default() };
    let it = Reply::new().usage(usage);
    let call = |it: Reply| it.say("I look.").call("t", json!({})).call("t", json!({}));
    match dice.roll(22) {
        0..3 => it.say("An answer."),
        3 => it,
        4 => it.think("Hm."),
        5 => it.say("Half").stop(StopReason::MaxTokens),
        6 => call(it).stop(StopReason::MaxTokens),
        7 => call(it).stop(StopReason::ContextWindow),
        8 => it.say("Full").stop(StopReason::ContextWindow),
        9 => it.say("Wait").stop(StopReason::Pause),
        10 => call(it).stop(StopReason::Other("odd".into())),
        11 => it.call("nobody", json!({})),
        12 => it.call_raw("", "t", "{ no"),
        13 => call(it).fail(error_of_kind(ErrorKind::Overloaded)),
        14 => call(it).fail(error_of_kind(ErrorKind::ContextWindow)),
        15 => it.say("Half a").retract("again").say("A whole").call_raw("c", "t", "{}"),
        16 => it.call_raw("c", "t", "{}").call_raw("c", "t", "{}").say("behind"),
        17 => it.fail(error_of_kind(ErrorKind::Server)),
        18 => it.say("Half a").disconnect(),
        _ => call(it),
    }
}

/// A provider that checks each request before it forwards the request to the model.
struct RequestWatcher {
    model: Scripted,
    run: Arc<OnceLock<RunHandle>>,
    request_count: Arc<AtomicUsize>,
    violation_count: Arc<AtomicUsize>,
}

impl Provider for RequestWatcher {
    fn stream_turn(&self, request: Request) -> TurnStream {
        self.request_count.fetch_add(1, Ordering::Relaxed);
        let told = self.run.get().unwrap().history();
        // A panic here would end the run like any other panic, so the result is recorded instead.
        let is_right = request.history == told && told.unanswered_calls().is_empty();
        self.violation_count.fetch_add(usize::from(!is_right), Ordering::Relaxed);
        self.model.stream_turn(request)
    }

    fn model(&self) -> &str {
        self.model.model()
    }
}

/// A compactor that drops the older half, returns an invalid compaction, or returns none.
struct RandomCompactor(Arc<Dice>);

impl Compactor for RandomCompactor {
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        let (from, to) = (0, history.len() / 2);
        let words = vec![Item::user("It went on for long.")];
        ready(match self.0.roll(8) {
            0 => Ok(None),
            1 => Err(error_of_kind(ErrorKind::Other)),
            2 => Ok(Some(Compaction::new(5, 2, words))),
            3 => Ok(Some(Compaction::new(usize::MAX, usize::MAX, words))),
            4 => panic!("the compactor"),
            5 => Ok(Some(Compaction::new(0, history.len(), Vec::new()))),
            _ => Ok(Some(Compaction::new(from, to, words))),
        })
        .boxed()
    }
}

fn random_agent(
    dice: &Arc<Dice>,
    watched: impl Fn(Scripted) -> RequestWatcher,
    pool: &Pool,
) -> Agent {
    let at = Arc::clone(dice);
    let tool = Tool::raw(spec("t"), move |_, _| {
        let fate = at.roll(8);
        async move {
            match fate {
                0 => panic!("the tool"),
                1 => Err("it does not work".to_owned()),
                n => Ok(n),
            }
        }
    });
    let script = || {
        let dice = Arc::clone(dice);
        watched(Scripted::from_fn(move |_, _| random_reply(&dice)))
    };
    let limits = Limits {
        max_turns: Some(u32::try_from(dice.roll(25)).unwrap()),
        max_corrections: u32::try_from(dice.roll(4)).unwrap(),
        max_turn_retries: u32::try_from(dice.roll(3)).unwrap(),
        max_truncated_call_retries: u32::try_from(dice.roll(3)).unwrap(),
        nudge_after_repeats: 2,
        ..Limits::default()
    };
    let mut budget = Budget::new().with_pool(pool.clone());
    if dice.roll(2) == 0 {
        budget = budget.with_wrap_up();
    }
    if dice.roll(3) == 0 {
        budget = budget.with_tool_calls(u32::try_from(dice.roll(9)).unwrap());
    }
    if dice.roll(3) == 0 {
        budget = budget.with_output_tokens(dice.roll(100));
    }
    if dice.roll(3) == 0 {
        budget = budget.with_target(Target::new(80));
    }
    let agent = Agent::new(script())
        .with_recorder(replays::replaying_recorder())
        .with_fallback(script())
        .with_fallback(script())
        .with_tools([tool.unwrap()])
        .with_limits(limits)
        .with_budget(budget)
        .with_compactor(RandomCompactor(Arc::clone(dice)));
    with_note_and_stop_hooks(agent, dice)
}

/// Returns how the run ended; `None` if it was dropped.
fn check_seed(seed: u64) -> Option<EndReason> {
    let dice = Dice::new(seed);
    let handle = Arc::new(OnceLock::new());
    let (requests, wrong) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let pool = Pool::new(match dice.roll(3) {
        0 => 300,
        _ => u64::MAX,
    });
    let watched = |model| RequestWatcher {
        model,
        run: Arc::clone(&handle),
        request_count: Arc::clone(&requests),
        violation_count: Arc::clone(&wrong),
    };
    let agent = random_agent(&dice, watched, &pool);
    let begin = History::empty("h");
    let journal = Journal::new(begin.clone());
    let mut run = agent.run_from(begin, "go");
    let (mut given, mut started, mut turns) = (0, 0, Vec::new());
    let mut outcome: Option<Outcome> = None;
    handle.set(run.handle()).ok().unwrap();
    let mut laps = 0;
    while let Some(event) = run.next().now_or_never().expect("nothing here waits") {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                assert_eq!(outcome.as_ref().and_then(|it| it.error.as_ref()), Some(&error));
                assert!(run.next().now_or_never().expect("nothing here waits").is_none());
                break;
            }
        };
        journal.observe(&event);
        assert_eq!(journal.history(), run.history());
        assert!(run.history().settled().is_settled());
        assert!(outcome.is_none(), "an event followed the ending");
        laps += 1;
        assert!(laps < 10_000);
        match &event {
            Event::TurnStarted { turn, .. } => {
                started += 1;
                turns.push(*turn);
                assert_eq!(*turn, started);
            }
            Event::Finished(it) => outcome = Some((**it).clone()),
            _ => {}
        }
        match dice.roll(120) {
            0..3 => given += usize::from(run.steer("Look here.").is_ok()),
            3..5 => given += usize::from(run.follow_up("And then?").is_ok()),
            5 if dice.roll(2) == 0 => run.stop_after_turn(),
            6 if dice.roll(2) == 0 => run.interrupt(),
            7 if dice.roll(2) == 0 => break,
            _ => {}
        }
    }
    assert_eq!(wrong.load(Ordering::Relaxed), 0, "a request's history is not the fold");
    let known = run.usage();
    drop(run);
    assert_eq!(pool.used_tokens(), known.total(), "the pool is drained once");
    let outcome = outcome?;
    assert_eq!(outcome.turns, started);
    assert!(requests.load(Ordering::Relaxed) <= usize::try_from(started).unwrap());
    assert_eq!(outcome.usage, known);
    let told = |text: &str| {
        let is_it = |item: &&Item| item.as_user().is_some_and(|it| it.text() == text);
        outcome.new_items().iter().filter(is_it).count()
    };
    let heard = told("Look here.") + told("And then?");
    // Text that was compacted away was also reported before.
    if told("It went on for long.") == 0 && !journal.history().iter().any(|item| item.compacted) {
        assert_eq!(heard + outcome.undelivered.len(), given);
    }
    Some(outcome.reason)
}

#[test]
fn at_every_boundary_the_history_is_the_fold_of_the_events_and_usage_is_counted_once() {
    let sample = (1..1_500).step_by(cases::sample_step(5));
    let reasons = seeds::count_endings(sample, |seed| vec![format!("{:?}", check_seed(seed))]);
    assert!(reasons.len() > 11, "{reasons:?}");
}
