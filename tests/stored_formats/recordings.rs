//! Recordings of runs, and of a provider's turns.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use serde_json::json;
use turnstream::agent::hook::{self, StopDecision};
use turnstream::agent::{Budget, Pool};
use turnstream::context::{Compaction, CompactionFailure, compactor_fn};
use turnstream::env::CountingIds;
use turnstream::provider::{Reply, Scripted};
use turnstream::replay::{Record, Recorder, Recording, Replay};
use turnstream::request::Options;
use turnstream::tool::{Tool, ToolList, ToolSource, Verdict};
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Toolkit, Usage};

use crate::{assert_written, stored};
use turnstream_test_support::buffer::SharedBuffer;
use turnstream_test_support::clock::paused_runtime;
use turnstream_test_support::runs::{collect_rest, pull_until};
use turnstream_test_support::tools::{constant_tool, spec};

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
    Agent::new(model).with_ids(CountingIds::new("id")).with_tools([constant_tool("look", "rain")])
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
                true => StopDecision::Continue("Look again.".into()),
                false => StopDecision::EndRun("That is enough.".into()),
            };
            let usage = Usage { input_tokens: 7, ..Usage::default() };
            state.report_helper("judge", Some("small"), usage);
            async move { end }
        }))
}

/// The first answer is rejected by a validation.
fn agent_with_validation() -> Agent {
    look_agent(Scripted::new(["No.", "Yes."])).with_validation(|turn| match turn.text() == "Yes." {
        true => Ok(()),
        false => Err("Say yes."),
    })
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

/// The first model's stream breaks off, also on the retries, and the second model answers.
fn agent_with_fallback() -> Agent {
    let lost = || Error::new(ErrorKind::Connect, "the connection was lost").with_retryable(true);
    let reply = move || Reply::text("I s").fail(lost());
    look_agent(Scripted::new([reply(), reply(), reply(), reply()]))
        .with_fallback(Scripted::new(["I see rain."]))
}

/// The time limit of the run expires while its tool runs, except for a wrap-up turn.
fn agent_with_time_limit() -> Agent {
    let slow = Tool::raw(spec("look"), |_, _| async {
        tokio::time::sleep(60 * SECOND).await;
        "rain"
    });
    let budget = Budget::new().with_time_limit(10 * SECOND).with_wrap_up_time(4 * SECOND);
    look_agent(model_with_look_calls(2))
        .with_toolkit(Toolkit::new([slow.unwrap()]))
        .with_budget(budget)
}

/// Its tool comes from a source.
fn agent_with_tool_source() -> Agent {
    struct Source;

    impl ToolSource for Source {
        fn name(&self) -> &'static str {
            "weather"
        }

        fn list_tools(&self) -> BoxFuture<'static, Result<ToolList, Error>> {
            let mut list = ToolList::new([constant_tool("look", "rain")]);
            list.notes.push("`x.y`: the name has a dot".to_owned());
            async move { Ok(list) }.boxed()
        }
    }

    look_agent(model_with_look_calls(1)).with_toolkit(Toolkit::new([])).with_tool_source(Source)
}

/// Each call waits for a verdict.
fn agent_asking_for_approval() -> Agent {
    look_agent(model_with_look_calls(1))
        .with_toolkit(Toolkit::new([constant_tool("look", "rain").requires_approval()]))
}

/// A request of 100 tokens or more waits until the pool has as many.
fn agent_with_pool(pool: &Pool) -> Agent {
    look_agent(model_with_look_calls(1))
        .with_options(Options { max_output_tokens: Some(100), ..Options::default() })
        .with_budget(Budget::new().with_pool(pool.clone()))
}

/// The agents whose runs end on their own.
const AGENTS: [fn() -> Agent; 8] = [
    agent_with_hooks,
    agent_with_validation,
    agent_stopped_by_hook,
    agent_with_failing_compactor,
    agent_with_context_overflow,
    agent_with_fallback,
    agent_with_time_limit,
    agent_with_tool_source,
];

/// The agents of the recorded runs, in order.
fn recorded_agents() -> Vec<Agent> {
    let others = [
        look_agent(model_with_look_calls(2)),
        look_agent(model_with_look_calls(2)),
        look_agent(model_with_look_calls(2)),
        agent_asking_for_approval(),
        agent_asking_for_approval(),
        agent_with_pool(&Pool::new(10_000)),
    ];
    AGENTS.into_iter().map(|agent| agent()).chain(others).collect()
}

/// Records one run of each agent.
async fn record_runs() -> String {
    let page = SharedBuffer::new();
    let recorder = Recorder::to_writer(page.clone());
    for agent in AGENTS {
        agent().with_recorder(&recorder).run("go").outcome().await;
    }
    let look = || look_agent(model_with_look_calls(2)).with_recorder(&recorder);
    let is_result = |event: &Event| event.tool_output().is_some();

    let mut steered = look().run("go");
    pull_until(&mut steered, is_result).await;
    steered.handle().steer("And there?").unwrap();
    collect_rest(&mut steered).await;

    let mut interrupted = look().run("go");
    pull_until(&mut interrupted, is_result).await;
    interrupted.handle().interrupt_with_reason("the user left");
    collect_rest(&mut interrupted).await;

    let mut dropped = look().run("go");
    pull_until(&mut dropped, is_result).await;
    drop(dropped);

    let asking = agent_asking_for_approval().with_recorder(&recorder);
    let outcome = asking.run("go").outcome().await;
    let verdicts = outcome.pending.into_iter().map(|call| (call, Verdict::Approve));
    asking.resume(outcome.history, verdicts).unwrap().outcome().await;

    // Its first request waits for the pool while input is sent.
    let pool = Pool::new(10_000);
    let reserved = pool.reserve(9_999).await.unwrap();
    let mut waiting = agent_with_pool(&pool).with_recorder(&recorder).run("go");
    while let Some(event) = waiting.next().now_or_never() {
        event.unwrap().unwrap();
    }
    waiting.handle().steer("And there?").unwrap();
    drop(reserved);
    collect_rest(&mut waiting).await;
    page.text()
}

#[test]
fn runs_are_recorded_in_the_stored_format() {
    assert_written("recordings.jsonl", &paused_runtime().block_on(record_runs()));
}

#[test]
fn stored_recordings_are_replayed() {
    let text = stored("recordings.jsonl");
    let (recordings, agents) = (Recording::all_from_text(&text).unwrap(), recorded_agents());
    assert_eq!(recordings.len(), agents.len());
    for (number, (recording, agent)) in recordings.iter().zip(&agents).enumerate() {
        let mut replay = recording.replay(agent);
        let mut events = Vec::new();
        let error = loop {
            match replay.next().now_or_never().expect("a replay does not wait") {
                Some(Ok(event)) => events.push(event),
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        let outcome = recording.events().last().and_then(Event::outcome);
        assert_eq!(error, outcome.and_then(|outcome| outcome.error.clone()), "run {number}");
        assert!(events.iter().eq(recording.events()), "run {number}");
    }
}

/// The values that no event contains, and the reports of how a turn or the loop ended.
#[test]
fn the_stored_recordings_contain_every_kind_of_line() {
    let text = stored("recordings.jsonl");
    for kind in ["run", "event", "request", "value", "turn_failed", "loop_ended"] {
        assert!(text.contains(&format!(r#"{{"type":"{kind}","run":"#)), "{kind}");
    }
    assert!(text.contains(r#""event":{"type":"helper_usage","purpose":"judge","#));
    for kind in [
        "facts",
        "prepared_request",
        "pool_wait",
        "hook_messages",
        "should_stop",
        "stop_review",
        "compaction",
        "tool_listing",
    ] {
        assert!(text.contains(&format!(r#""kind":"{kind}","nth":"#)), "{kind}");
    }
}

/// An agent whose provider is recorded or replayed: a call, an answer, and a failed request.
fn provider_agent(provider: impl turnstream::Provider + 'static) -> Agent {
    Agent::new(provider)
        .with_ids(CountingIds::new("id"))
        .with_tools([constant_tool("look", "rain")])
}

#[tokio::test]
async fn a_providers_turns_are_recorded_in_the_stored_format() {
    let page = SharedBuffer::new();
    let model = Scripted::new([
        Reply::text("Let me look.").call("look", json!({ "n": 1 })),
        Reply::text("I see rain."),
        Reply::error(Error::new(ErrorKind::Auth, "the key is not valid")),
    ]);
    let agent = provider_agent(Record::to_writer(model, page.clone()));
    let outcome = agent.run("go").outcome().await;
    agent.run_from(outcome.history, "And there?").outcome().await;
    assert_written("provider_recording.jsonl", &page.text());
}

#[tokio::test]
async fn a_stored_provider_recording_is_replayed() {
    let replay = Replay::from_text(&stored("provider_recording.jsonl")).unwrap();
    let agent = provider_agent(replay.clone());
    let outcome = agent.run("go").outcome().await;
    assert_eq!(outcome.text, "I see rain.");
    let failed = agent.run_from(outcome.history, "And there?").outcome().await;
    assert_eq!(failed.error.unwrap().kind(), ErrorKind::Auth);
    assert_eq!(replay.remaining(), 0);
}
