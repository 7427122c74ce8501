//! The invariants, over a grid of scripts: each script is run to its end, and then again with a drop and
//! with an interrupt at every poll.

mod scripts;

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use turnstream::agent::Limits;
use turnstream::env::CountingIds;
use turnstream::event::{EndReason, InterruptedPhase, ToolEvent};
use turnstream::item::ResultKind;
use turnstream::provider::Scripted;
use turnstream::{Agent, Event, EventStreamExt, History, Journal, Run};

use self::scripts::Case;
use turnstream_test_support::cases::sample_step;
use turnstream_test_support::clock;
use turnstream_test_support::replays;
use turnstream_test_support::runs::{limits_without_retries, phase_after, push_event};
use turnstream_test_support::tools::Executions;

/// A run of a case, its model and its tools.
struct CaseRun {
    run: Run,
    model: Scripted,
    executions: Arc<Executions>,
    events: Vec<Event>,
    poll_count: usize,
    /// Checks the fold after every event, not only at the end.
    checks_every_event: bool,
}

/// After this number of consecutive pending polls, the model counts as hanging.
const MAX_SILENT_POLLS: usize = 40;

impl CaseRun {
    fn new(case: &Case) -> Self {
        let tools = Arc::new(Executions::default());
        let model = Scripted::new(case.replies.clone());
        let agent = replays::record_one_in(12, Agent::new(model.clone()))
            .with_toolkit(scripts::case_toolkit(&tools, case))
            .with_limits(Limits { max_turns: Some(3), ..limits_without_retries() })
            .with_ids(CountingIds::new("id"));
        let run = agent.run_from(History::empty("h"), "go");
        Self {
            run,
            model,
            executions: tools,
            events: Vec::new(),
            poll_count: 0,
            checks_every_event: false,
        }
    }

    /// Polls until there were `polls` polls in total; returns true if the run has ended.
    async fn poll_until(&mut self, polls: usize) -> bool {
        let mut silent = 0;
        while self.poll_count < polls && silent < MAX_SILENT_POLLS {
            self.poll_count += 1;
            match self.run.next().now_or_never() {
                Some(Some(event)) => {
                    silent = 0;
                    push_event(&mut self.events, event);
                    if self.checks_every_event {
                        self.check_fold();
                    }
                }
                Some(None) => return true,
                None => {
                    silent += 1;
                    tokio::time::advance(Duration::from_millis(10)).await;
                }
            }
        }
        false
    }

    /// Checks the history, the results in it and the fold of the events at this moment.
    fn check_fold(&self) {
        let history = self.run.history();
        let folded = Journal::new(History::empty("h"));
        for event in &self.events {
            // Through JSON, as a store does it.
            let line = serde_json::to_string(event).unwrap();
            folded.observe(&serde_json::from_str(&line).unwrap());
        }
        assert_eq!(folded.history(), history, "the folded history");
        assert_eq!(folded.usage(), self.run.usage(), "usage");
        let settled = history.settled();
        assert!(settled.is_settled(), "{settled:?}");
        assert_eq!(settled.settled(), settled, "idempotent");
        if history.is_settled() {
            assert_eq!(settled, history, "a settled history stays");
        }
        for event in &self.events {
            if let Some(result) = event.tool_output() {
                let held = |h: &History| h.iter().any(|i| i.as_tool_result() == Some(result));
                assert!(held(&history) && held(&settled), "{result:?}");
            }
        }
        self.check_executions(&history);
    }

    /// Checks that every executed call is in a complete turn whose stop reason allows it, and ran
    /// once.
    fn check_executions(&self, history: &History) {
        let mut ran = self.executions.executed_call_ids();
        let all = ran.len();
        ran.sort();
        ran.dedup();
        assert_eq!(ran.len(), all, "a call ran twice");
        for call_id in ran {
            let turns = self.events.iter().filter_map(Event::turn_complete);
            let of = turns.filter(|turn| turn.tool_calls().any(|call| call.call_id == call_id));
            let of: Vec<_> = of.collect();
            assert_eq!(of.len(), 1, "{call_id}");
            assert!(of[0].calls().veto().is_none(), "{call_id} was vetoed");
            assert!(history.has_used_call_id(&call_id));
        }
    }

    /// Checks that nothing is running.
    fn check_nothing_runs(&self) {
        assert_eq!(self.model.in_flight(), 0, "a turn streams on");
        assert_eq!(self.executions.running_count(), 0, "a tool runs on");
    }

    /// Checks at the end that nothing runs, that every call has a result, and that there is one ending.
    fn check_end(&mut self) {
        let finished: Vec<_> = self.events.iter().filter_map(Event::outcome).collect();
        assert_eq!(finished.len(), 1, "one ending");
        let outcome = finished[0];
        assert!(self.events.last().unwrap().outcome().is_some(), "finished is last");
        let failed = matches!(
            outcome.reason,
            EndReason::ProviderError
                | EndReason::Incomplete
                | EndReason::HookError
                | EndReason::ContextWindow
        );
        assert!(outcome.error.is_none() || failed, "{outcome:?}");
        assert!(
            outcome.error.is_some() || !failed || outcome.reason == EndReason::ContextWindow,
            "{outcome:?}"
        );
        assert_eq!(outcome.usage, self.run.usage());
        let history = self.run.history();
        assert_eq!(outcome.new_items(), history.iter().cloned().collect::<Vec<_>>());
        assert!(history.unanswered_calls().is_empty(), "paired at the end");
        for _ in 0..3 {
            assert!(self.run.next().now_or_never().unwrap().is_none(), "None for ever");
        }
        self.check_nothing_runs();
    }
}

/// By default, one case in this number is run. It shares no factor with the 10 cases of each first
/// turn.
const SAMPLE_STEP: usize = 7;

/// Runs `check` on every case, with the number of polls until the case ends or hangs.
fn for_each_case(name: &str, mut check: impl FnMut(&Case, usize, bool)) {
    let cases = scripts::cases();
    let step = sample_step(SAMPLE_STEP);
    let mut worlds = 0;
    for case in cases.iter().step_by(step) {
        let (polls, over) = clock::paused_runtime().block_on(async {
            let mut world = CaseRun { checks_every_event: true, ..CaseRun::new(case) };
            let over = world.poll_until(usize::MAX).await;
            if over {
                world.check_end();
            }
            (world.poll_count, over)
        });
        worlds += polls;
        check(case, polls, over);
    }
    println!("{name}: {} of {} scripts, {worlds} worlds", cases.len().div_ceil(step), cases.len());
    assert!(worlds > 10_000 / step, "the grid has shrunk to {worlds} worlds");
}

#[test]
fn every_script_ends_with_a_settled_history() {
    let mut hanging = 0;
    for_each_case("to the end", |case, _, over| {
        assert_eq!(over, !case.hangs, "{}", case.name);
        hanging += usize::from(!over);
    });
    assert!(hanging > 0);
}

#[test]
fn a_drop_at_every_poll_leaves_a_sendable_history_and_nothing_running() {
    for_each_case("a drop at every poll", |case, polls, _| {
        for at in 0..polls {
            clock::paused_runtime().block_on(async {
                let mut world = CaseRun::new(case);
                world.poll_until(at).await;
                world.check_fold();
                let handle = world.run.handle();
                let before = handle.history();
                let CaseRun { run, model, executions: tools, .. } = world;
                drop(run);
                assert_eq!(model.in_flight(), 0, "{} at {at}", case.name);
                assert_eq!(tools.running_count(), 0, "{} at {at}", case.name);
                let (sent, ran) = (model.requests().len(), tools.executed_call_ids().len());
                tokio::time::advance(Duration::from_mins(1)).await;
                assert_eq!(model.requests().len(), sent, "another request");
                assert_eq!(tools.executed_call_ids().len(), ran, "another tool");
                assert_eq!(handle.history(), before, "a drop loses nothing");
                assert!(before.settled().is_settled(), "{} at {at}", case.name);
            });
        }
    });
}

#[test]
fn an_interrupt_at_every_poll_leaves_every_call_answered() {
    for_each_case("an interrupt at every poll", |case, polls, over| {
        for at in 0..polls {
            clock::paused_runtime().block_on(async {
                let mut world = CaseRun::new(case);
                world.poll_until(at).await;
                let finished = world.events.last().is_some_and(|event| event.outcome().is_some());
                let phase = phase_after(&world.events, InterruptedPhase::Streaming);
                let sent = world.model.requests().len();
                let calls = world.run.history().unanswered_calls().len();
                world.run.interrupt();
                world.run.interrupt();
                let cut = world.events.len();
                assert!(world.poll_until(usize::MAX).await, "{} at {at}: no end", case.name);
                world.check_fold();
                world.check_end();
                assert_eq!(world.model.requests().len(), sent, "no request after an interrupt");
                if finished {
                    assert_eq!(world.events.len(), cut, "a late interrupt changes nothing");
                    return;
                }
                let outcome = world.events.last().unwrap().outcome().unwrap();
                // The loop may have ended already, so that only `finished` is left.
                if !over || matches!(outcome.reason, EndReason::Interrupted(_)) {
                    assert_eq!(outcome.reason, EndReason::Interrupted(phase));
                    assert!(outcome.partial);
                    check_interrupted_results(&world.events[cut..], calls);
                }
            });
        }
    });
}

#[test]
fn an_interrupt_of_the_model_at_every_poll_drops_no_tool() {
    for_each_case("an interrupt of the model at every poll", |case, polls, over| {
        for (at, steers) in (0..polls).flat_map(|at| [(at, true), (at, false)]) {
            clock::paused_runtime().block_on(async {
                let mut world = CaseRun::new(case);
                world.poll_until(at).await;
                let sent = world.model.requests().len();
                let steered = steers && world.run.steer("by the way").is_ok();
                world.run.interrupt_turn();
                let ended = world.poll_until(usize::MAX).await;
                assert!(ended || !over || steers, "{} at {at}: no end", case.name);
                world.check_fold();
                if ended {
                    world.check_end();
                } else {
                    // The script of the next turn hangs.
                    world.run.interrupt_turn();
                    assert!(world.poll_until(usize::MAX).await, "{} at {at}: no end", case.name);
                }
                let results = world.events.iter().filter_map(Event::tool_output);
                let dropped = results.filter(|result| result.kind == ResultKind::Interrupted);
                assert_eq!(dropped.count(), 0, "{} at {at}", case.name);
                // The request of a turn that has started may not have been sent yet.
                let requests = world.model.requests().len();
                assert!(steered || requests <= sent + 1, "{} at {at}", case.name);
            });
        }
    });
}

/// After an interrupt, the events are a result for each open call, and nothing else.
fn check_interrupted_results(behind: &[Event], calls: usize) {
    let answers: Vec<_> = behind.iter().filter_map(Event::tool_output).collect();
    assert_eq!(answers.len(), calls);
    assert!(answers.iter().all(|answer| answer.kind == ResultKind::Interrupted));
    let rest = behind.iter().filter(|event| {
        !matches!(event, Event::Tool(ToolEvent::Output(_)) | Event::Appended { .. })
    });
    assert_eq!(rest.count(), 1, "only `finished`: {behind:?}");
}

#[test]
fn a_hand_written_loop_upholds_the_same_invariants_as_the_agent() {
    use turnstream::Request;
    use turnstream::provider::Provider;
    use turnstream::stream::{Steps, TurnStreamExt, loop_stream};

    for_each_case("by hand", |case, polls, _| {
        for at in [polls / 3, polls / 2, polls] {
            clock::paused_runtime().block_on(async {
                let tools = Arc::new(Executions::default());
                let model = Scripted::new(case.replies.clone());
                let kit = scripts::case_toolkit(&tools, case);
                let journal = Journal::new(History::empty("h"));
                let asked = model.clone();
                let mut turns = 0;
                let mut events = loop_stream(History::empty("h"), move |history| {
                    turns += 1;
                    let kit = kit.clone();
                    asked.stream_turn(Request::new(history.clone())).on_turn_complete(
                        async move |turn| {
                            Ok(if turn.calls().is_empty() || turns > 3 {
                                Steps::stop()
                            } else {
                                kit.run(&history, &turn).then_next(|history| history)
                            })
                        },
                    )
                })
                .journal_to(&journal)
                .finish_with(&journal)
                .boxed();
                let (mut finished, mut failed) = (0, 0);
                for _ in 0..at {
                    match events.next().now_or_never() {
                        Some(Some(event)) => match event {
                            Ok(event) => finished += usize::from(event.outcome().is_some()),
                            Err(error) => {
                                assert_eq!(finished, 1, "{error} comes after `Finished`");
                                failed += 1;
                            }
                        },
                        Some(None) => break,
                        None => tokio::time::advance(Duration::from_millis(10)).await,
                    }
                    assert!(journal.history().settled().is_settled(), "{}", case.name);
                }
                assert!(finished <= 1 && failed <= finished);
                if finished == 1 {
                    assert!(journal.history().unanswered_calls().is_empty());
                }
                drop(events);
                assert_eq!((model.in_flight(), tools.running_count()), (0, 0));
            });
        }
    });
}
