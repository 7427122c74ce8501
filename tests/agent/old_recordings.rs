//! Recordings that earlier versions have written can be replayed. In recordings of version 1, the
//! answers of hooks, owners, compactors, pools and limits are on lines of their own; those of
//! version 2 are numbered.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use serde_json::json;
use turnstream::agent::hook::{self, StopDecision};
use turnstream::agent::{Budget, Pool};
use turnstream::context::{Compaction, CompactionFailure, compactor_fn};
use turnstream::env::CountingIds;
use turnstream::provider::{Reply, Scripted};
use turnstream::replay::Recording;
use turnstream::request::Options;
use turnstream::tool::Tool;
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Usage};

use crate::support::tools::{constant_tool, spec};

const SECOND: Duration = Duration::from_secs(1);

/// Calls `look` until there are this many results, and then stops on its own.
fn model_with_look_calls(results: usize) -> Scripted {
    Scripted::from_fn(move |request, _| {
        let seen = request.history.iter().filter(|item| item.as_tool_result().is_some()).count();
        match seen < results {
            true => Reply::text("Let me look.").call("look", json!({ "n": seen })),
            false => Reply::text("I see rain."),
        }
    })
}

fn look_agent(model: Scripted) -> Agent {
    Agent::new(model)
        .with_id_generator(CountingIds::new("id"))
        .with_tools([constant_tool("look", "rain")])
}

fn agent_with_hooks() -> Agent {
    look_agent(model_with_look_calls(2))
        .with_hook(hook::prepare_request(|state, mut request| {
            request.system.volatile = format!("Request {}.", state.counts.model_calls);
            async move { request }
        }))
        .with_hook(hook::transform_context(|_, context| async move {
            let items = context.iter().map(|item| match item.as_user() {
                Some(_) => Item::user("***"),
                None => item.clone(),
            });
            History::from_items(context.id(), items.collect::<Vec<_>>())
        }))
        .with_hook(hook::after_sampling(|state, _| {
            let note = Item::user(format!("a note on turn {}", state.counts.model_calls));
            async move { vec![note] }
        }))
        .with_hook(hook::before_stop(|state, _| {
            let end = match state.counts.model_calls < 5 {
                true => StopDecision::Block("Look again.".into()),
                false => StopDecision::EndRun("That is enough.".into()),
            };
            async move { end }
        }))
}

/// A hook ends the run after the third request.
fn agent_stopped_by_hook() -> Agent {
    look_agent(model_with_look_calls(9)).with_hook(hook::should_stop(|state| {
        let stops = state.counts.model_calls == 3;
        async move { stops }
    }))
}

/// Its compactor fails once, at a cost, and then succeeds.
fn agent_with_failing_compactor() -> Agent {
    let usage = Usage { input_tokens: 7, ..Usage::default() };
    let compactor = compactor_fn(move |history: &History| {
        let results = history.iter().filter(|item| item.as_tool_result().is_some()).count();
        if results < 2 {
            let error = Error::new(ErrorKind::Other, "too short to be worth it");
            return Err(CompactionFailure::attach_usage(error, usage));
        }
        let items = vec![Item::user("look"), Item::text("I looked twice.")];
        Ok(Some(Compaction { usage, ..Compaction::new(0, history.len(), items) }))
    });
    let model = Scripted::from_fn(|request, n| match n {
        0 | 1 => Reply::new().call("look", json!({ "n": n })),
        2 if request.history.len() > 4 => Reply::error(Error::new(ErrorKind::ContextWindow, "")),
        _ => Reply::text("Rain, twice."),
    });
    look_agent(model).with_compactor(compactor)
}

/// The first request is too long, and the compactor fails.
fn agent_with_context_overflow() -> Agent {
    let usage = Usage { input_tokens: 7, ..Usage::default() };
    let compactor = compactor_fn(move |_: &History| {
        let error = Error::new(ErrorKind::Other, "too short to be worth it");
        Err(CompactionFailure::attach_usage(error, usage))
    });
    let model = Scripted::new([Reply::error(Error::new(ErrorKind::ContextWindow, "too long"))]);
    look_agent(model).with_compactor(compactor)
}

/// Its request waits for the pool while input is sent.
fn agent_waiting_for_pool(pool: &Pool) -> Agent {
    look_agent(model_with_look_calls(1))
        .with_options(Options { max_output_tokens: Some(100), ..Options::default() })
        .with_budget(Budget::new().with_pool(pool.clone()))
}

fn slow_tool() -> Tool {
    Tool::raw(spec("look"), |_, _| async {
        tokio::time::sleep(60 * SECOND).await;
        "rain"
    })
    .unwrap()
}

/// The time limit of the run expires while its tool runs, except for a wrap-up turn.
fn agent_with_run_timeout() -> Agent {
    let budget = Budget::new().with_time_limit(10 * SECOND).with_wrap_up_time(4 * SECOND);
    look_agent(model_with_look_calls(2)).with_tools([slow_tool()]).with_budget(budget)
}

/// The first model's stream breaks off, also on the retry, and the second model answers.
fn agent_with_fallback() -> Agent {
    let lost = || Error::new(ErrorKind::Connect, "the connection was lost").with_retryable(true);
    let reply = move || Reply::text("I s").fail(lost());
    look_agent(Scripted::new([reply(), reply(), reply(), reply()]))
        .with_fallback(Scripted::new(["I see rain."]))
}

/// Each call waits for a verdict.
fn agent_asking_for_approval() -> Agent {
    look_agent(model_with_look_calls(1))
        .with_tools([constant_tool("look", "rain").requires_approval()])
}

fn read_recording(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agent/recordings");
    std::fs::read_to_string(format!("{folder}/{name}.jsonl")).unwrap()
}

/// Replays each run of a recording, and checks that its events are the recorded ones.
#[track_caller]
fn assert_replays(name: &str, agent: &Agent, runs: usize) {
    assert_text_replays(name, &read_recording(name), agent, runs);
}

#[track_caller]
fn assert_text_replays(name: &str, text: &str, agent: &Agent, runs: usize) {
    let recordings = Recording::all_from_text(text).unwrap();
    assert_eq!(recordings.len(), runs, "{name}");
    for recording in recordings {
        let mut rerun = recording.replay(agent);
        let mut events = Vec::new();
        let failure = loop {
            match rerun.next().now_or_never().expect("nothing of it waits") {
                Some(Ok(event)) => events.push(event),
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        let ending = recording.events().last().and_then(Event::outcome);
        assert_eq!(failure, ending.and_then(|it| it.error.clone()), "{name}");
        assert!(events.iter().eq(recording.events()), "{name}");
        let asked = text.matches(r#"{"type":"asked""#).count();
        assert!(runs > 1 || rerun.requests().len() == asked, "{name}");
    }
}

#[test]
fn version_1_recordings_can_be_replayed() {
    assert_replays("hooked", &agent_with_hooks(), 1);
    assert_replays("stopped", &agent_stopped_by_hook(), 1);
    assert_replays("compacting", &agent_with_failing_compactor(), 1);
    assert_replays("overflowing", &agent_with_context_overflow(), 1);
    assert_replays("timed", &agent_with_run_timeout(), 1);
    assert_replays("broken", &agent_with_fallback(), 1);
    assert_replays("steered", &look_agent(model_with_look_calls(3)), 1);
    assert_replays("interrupted", &look_agent(model_with_look_calls(3)), 1);
    assert_replays("waiting", &agent_waiting_for_pool(&Pool::new(10_000)), 1);
    assert_replays("resumed", &agent_asking_for_approval(), 2);
    assert_replays("dropped", &agent_with_hooks(), 1);
}

#[test]
fn version_2_recordings_can_be_replayed() {
    assert_replays("hooked_2", &agent_with_hooks(), 1);
    assert_replays("compacting_2", &agent_with_failing_compactor(), 1);
}

#[test]
fn recordings_with_notes_stored_after_the_turn_can_be_replayed() {
    let text = read_recording("hooked");
    let mut lines: Vec<&str> = text.lines().collect();
    let notes = lines.iter().position(|line| line.contains(r#""of":"notes""#)).unwrap();
    assert!(lines[notes + 1].contains(r#""why":"hook""#), "{}", lines[notes + 1]);
    let notes = lines.remove(notes);
    let turn = lines.iter().position(|line| line.contains(r#""type":"turn_complete""#)).unwrap();
    lines.insert(turn + 1, notes);
    assert_text_replays("hooked", &lines.join("\n"), &agent_with_hooks(), 1);
}
