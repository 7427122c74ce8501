//! Detectors: each failure mode in a run that has it, and in a similar run without it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnstream::agent::detect::{
    AmbiguousFailure, ContextBloat, Detectors, FailureMode, MissingTermination,
    PlanningWithoutExecution, Signal,
};
use turnstream::agent::evidence::RequireEvidence;
use turnstream::agent::hook::{self, StopDecision};
use turnstream::item::{Evidence, SideEffect};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolContext};
use turnstream::{Agent, Item, Outcome, Usage};

use turnstream_test_support::runs::limits_with_max_turns;
use turnstream_test_support::tools::spec;

/// A tool with the effects that its arguments name: `changed`, `created`, `sent` (targets), `check`
/// (`[command, code, complaint]`), `fails`.
fn scripted_effect_tool(name: &str) -> Tool {
    let calls = Arc::new(AtomicU64::new(0));
    Tool::raw(spec(name), move |args: Value, cx: ToolContext| {
        let number = calls.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            let target = |key: &str| {
                let target = args[key].as_str()?;
                // A new target for each call.
                Some(target.replace('#', &number.to_string()))
            };
            for kind in ["changed", "created", "sent"] {
                if let Some(target) = target(kind) {
                    cx.record_side_effect(SideEffect { kind: kind.into(), target });
                }
            }
            if let Some([command, code, complaint]) = args["check"].as_array().map(|it| &it[..]) {
                let code = i32::try_from(code.as_i64().unwrap()).unwrap();
                let evidence = Evidence::from_command(command.as_str().unwrap(), code);
                cx.record_evidence(evidence.with_stderr(complaint.as_str().unwrap()));
            }
            match args["fails"].as_bool() {
                Some(true) => Err("it broke".to_owned()),
                Some(false) | None => Ok("fine"),
            }
        }
    })
    .unwrap()
}

fn call_with_effects(name: &str, args: Value) -> Reply {
    Reply::new().call(name, args)
}

fn read_call(n: usize) -> Reply {
    call_with_effects("read", json!({ "n": n }))
}

fn failing_call(complaint: &str) -> Reply {
    call_with_effects("run", json!({ "check": ["test", 1, complaint], "fails": true }))
}

fn detector_agent(replies: Vec<Reply>) -> Agent {
    let tools = ["read", "run", "make", "other"].map(scripted_effect_tool);
    Agent::new(Scripted::new(replies)).with_tools(tools).with_limits(limits_with_max_turns(80))
}

async fn run_with_detectors(
    detectors: Detectors,
    mut replies: Vec<Reply>,
) -> (Vec<Signal>, Outcome) {
    replies.push("There was a problem.".into());
    let signals = detectors.signal_log.clone();
    let outcome = detector_agent(replies).with_hook(detectors).run("go").outcome().await;
    (signals.drain(), outcome)
}

/// The signals of all six detectors in a run that ends with text.
async fn all_signals(replies: Vec<Reply>) -> Vec<(FailureMode, u32)> {
    let signals = run_with_detectors(Detectors::default(), replies).await.0;
    signals.into_iter().map(|signal| (signal.mode, signal.turn)).collect()
}

#[track_caller]
fn assert_signals(seen: &[(FailureMode, u32)], expected: &[(FailureMode, u32)]) {
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn an_ordinary_run_raises_no_signal() {
    let mut replies: Vec<Reply> = (0..20).map(read_call).collect();
    for n in 0..5 {
        replies.push(call_with_effects("make", json!({ "changed": format!("{n}.rs"), "n": n })));
        replies.push(failing_call(&format!("error {n}")));
        replies.extend((0..4).map(read_call));
    }
    replies.push(call_with_effects("make", json!({ "created": "new.rs" })));
    replies.push(call_with_effects("run", json!({ "check": ["test", 0, ""] })));
    assert_signals(&all_signals(replies).await, &[]);
}

#[tokio::test]
async fn a_failure_that_repeats_is_reported_as_missing_termination() {
    let edit = |n: usize| call_with_effects("make", json!({ "changed": format!("{n}.rs") }));
    let same = vec![
        failing_call("e"),
        edit(1),
        failing_call("e"),
        edit(2),
        failing_call("e"),
        read_call(1),
        failing_call("e"),
    ];
    // Reported once, however long the run continues.
    assert_signals(&all_signals(same).await, &[(FailureMode::MissingTermination, 6)]);
    let other = vec![
        failing_call("e"),
        edit(1),
        failing_call("e"),
        edit(2),
        failing_call("f"),
        edit(3),
        failing_call("e"),
    ];
    assert_signals(&all_signals(other).await, &[]);
    let mended = vec![
        failing_call("e"),
        failing_call("e"),
        call_with_effects("run", json!({ "check": ["test", 0, ""] })),
        failing_call("e"),
    ];
    assert_signals(&all_signals(mended).await, &[]);
}

#[tokio::test]
async fn tool_calls_after_a_passing_check_are_reported_as_missing_termination() {
    let passed = || call_with_effects("run", json!({ "check": ["test", 0, ""] }));
    let on = |turns: usize| [vec![passed()], (0..turns).map(read_call).collect()].concat();
    assert_signals(&all_signals(on(10)).await, &[(FailureMode::MissingTermination, 12)]);
    assert_signals(&all_signals(on(25)).await, &[(FailureMode::MissingTermination, 12)]);
    assert_signals(&all_signals(on(9)).await, &[]);
    // Repeating the same check is not progress.
    let again = [on(5), vec![passed()], (0..4).map(read_call).collect()].concat();
    assert_signals(&all_signals(again).await, &[(FailureMode::MissingTermination, 12)]);
    // A change is progress, and so is a check with a new result.
    for news in [json!({ "changed": "a.rs" }), json!({ "check": ["lint", 0, ""] })] {
        let working =
            [on(6), vec![call_with_effects("run", news)], (0..6).map(read_call).collect()].concat();
        assert_signals(&all_signals(working).await, &[]);
    }
}

#[tokio::test]
async fn failed_evidence_in_a_successful_result_is_an_ambiguous_failure() {
    let disguised = || call_with_effects("run", json!({ "check": ["test", 1, "e"] }));
    let other = || call_with_effects("other", json!({ "check": ["lint", 1, "e"] }));
    let signals = all_signals(vec![disguised(), read_call(1), disguised(), other()]).await;
    // Reported once per tool.
    assert_signals(
        &signals,
        &[(FailureMode::AmbiguousFailure, 2), (FailureMode::AmbiguousFailure, 5)],
    );
    assert_signals(&all_signals(vec![failing_call("e")]).await, &[]);
    assert_signals(
        &all_signals(vec![call_with_effects("run", json!({ "check": ["test", 0, ""] }))]).await,
        &[],
    );
}

#[tokio::test]
async fn an_answer_that_ignores_a_failure_is_an_ambiguous_failure() {
    let ends = |replies: Vec<Reply>, words: &'static str| async move {
        let detectors = Detectors::default();
        let signals = detectors.signal_log.clone();
        let replies = replies.into_iter().chain([Reply::text(words)]).collect();
        detector_agent(replies).with_hook(detectors).run("go").outcome().await;
        signals.drain()
    };
    let fails = || call_with_effects("make", json!({ "fails": true }));
    let [signal] = &ends(vec![fails()], "All done, the ticket is filed.").await[..] else {
        panic!("not one")
    };
    assert_eq!((signal.mode, signal.turn), (FailureMode::AmbiguousFailure, 2));
    assert!(signal.call_id.is_some());
    assert_eq!(signal.what, "`make` ended as `error`, and the answer ignores it");

    assert_eq!(ends(vec![fails()], "I couldn’t file the ticket.").await, []);
    assert_eq!(ends(vec![fails(), read_call(1)], "Done.").await, []);
    // Another call of the tool succeeded in the same turn.
    let both = fails().call("make", json!({ "created": "t" }));
    assert_eq!(ends(vec![both], "Done.").await, []);
}

#[tokio::test]
async fn whether_an_answer_acknowledges_a_failure_is_configurable() {
    let ambiguous_failure = AmbiguousFailure {
        acknowledgement_check: Arc::new(|turn, result| turn.text().contains(&result.name)),
    };
    let detectors = Detectors { ambiguous_failure, ..Detectors::default() };
    let signals =
        run_with_detectors(detectors, vec![call_with_effects("make", json!({ "fails": true }))])
            .await
            .0;
    assert_eq!(signals.len(), 1);
}

#[tokio::test]
async fn a_mutating_tool_without_a_report_is_a_silent_side_effect() {
    let detectors = || {
        let mut detectors = Detectors::default();
        detectors.silent_side_effect.mutating_tools = vec!["make".into(), "other".into()];
        detectors
    };
    let silent = vec![
        call_with_effects("make", json!({})),
        call_with_effects("make", json!({ "n": 2 })),
        call_with_effects("other", json!({})),
    ];
    let modes: Vec<_> = run_with_detectors(detectors(), silent)
        .await
        .0
        .into_iter()
        .map(|it| (it.mode, it.turn))
        .collect();
    assert_signals(
        &modes,
        &[(FailureMode::SilentSideEffect, 2), (FailureMode::SilentSideEffect, 4)],
    );
    let told = vec![
        call_with_effects("make", json!({ "changed": "a" })),
        call_with_effects("other", json!({ "check": ["test", 0, ""] })),
        call_with_effects("make", json!({ "fails": true })),
        read_call(1),
    ];
    assert_eq!(run_with_detectors(detectors(), told).await.0, []);
}

#[tokio::test]
async fn an_unreported_change_of_the_fingerprint_is_a_silent_side_effect() {
    let world = Arc::new(AtomicU64::new(0));
    let change = {
        let world = Arc::clone(&world);
        hook::after_tool(move |_, call, _| {
            if call.arguments.contains("silent") || call.arguments.contains("changed") {
                world.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let mut detectors = Detectors::default();
    detectors.silent_side_effect.snapshot = Some(Arc::new(move || world.load(Ordering::Relaxed)));
    let signals = detectors.signal_log.clone();
    let silent = |n: usize| call_with_effects("other", json!({ "silent": n }));
    let replies = vec![
        read_call(1),
        call_with_effects("make", json!({ "changed": "a" })),
        silent(1),
        silent(2),
        read_call(2),
        silent(3),
        "done".into(),
    ];
    detector_agent(replies).with_hook(detectors).with_hook(change).run("go").outcome().await;
    let signals: Vec<_> = signals.drain().into_iter().map(|it| (it.mode, it.turn)).collect();
    // The second one in a row is not reported again.
    assert_signals(
        &signals,
        &[(FailureMode::SilentSideEffect, 4), (FailureMode::SilentSideEffect, 7)],
    );
}

#[tokio::test]
async fn a_repeated_call_with_a_different_effect_is_not_a_retry() {
    let ticket = || call_with_effects("make", json!({ "created": "ticket-#", "title": "Bug" }));
    let signals =
        run_with_detectors(Detectors::default(), vec![ticket(), read_call(1), ticket(), ticket()])
            .await
            .0;
    let [signal] = &signals[..] else { panic!("{signals:?}") };
    assert_eq!((signal.mode, signal.turn), (FailureMode::NonIdempotentRetry, 4));
    assert_eq!(
        signal.what,
        "`make` was called again with the same arguments and created `ticket-2` in addition to \
         `ticket-1`"
    );
    // Other arguments, or the same thing created once more.
    let other = call_with_effects("make", json!({ "created": "ticket-#", "title": "Other" }));
    assert_signals(&all_signals(vec![ticket(), other]).await, &[]);
    let file = || call_with_effects("make", json!({ "created": "a.rs" }));
    assert_signals(&all_signals(vec![file(), file()]).await, &[]);
    // Two calls in one turn count as two as well.
    let args = json!({ "created": "ticket-#" });
    let twice = call_with_effects("make", args.clone()).call("make", args.clone());
    assert_signals(&all_signals(vec![twice]).await, &[(FailureMode::NonIdempotentRetry, 2)]);

    let mut detectors = Detectors::default();
    detectors.non_idempotent_retry.repeatable_tools = vec!["make".into()];
    assert_eq!(run_with_detectors(detectors, vec![ticket(), ticket()]).await.0, []);

    let ignored_modes = vec![FailureMode::NonIdempotentRetry];
    let detectors = Detectors { ignored_modes, ..Detectors::default() };
    assert_eq!(run_with_detectors(detectors, vec![ticket(), ticket()]).await.0, []);
}

#[tokio::test]
async fn the_same_edit_twice_is_a_retry_only_if_something_changed_in_between() {
    let append = || call_with_effects("make", json!({ "changed": "log" }));
    let other = || call_with_effects("other", json!({ "changed": "log" }));
    assert_signals(
        &all_signals(vec![append(), read_call(1), append(), append()]).await,
        &[(FailureMode::NonIdempotentRetry, 4)],
    );
    assert_signals(&all_signals(vec![append(), other(), append()]).await, &[]);
}

fn read_call_with_usage(n: usize, tokens: u64) -> Reply {
    read_call(n).usage(Usage { input_tokens: tokens, ..Usage::default() })
}

#[tokio::test]
async fn a_request_over_the_token_cap_is_context_bloat() {
    let grows = |tokens: &[u64]| {
        tokens
            .iter()
            .enumerate()
            .map(|(n, tokens)| read_call_with_usage(n, *tokens))
            .collect::<Vec<_>>()
    };
    let over = grows(&[90_000, 149_999, 150_000, 160_000, 170_000]);
    assert_signals(&all_signals(over).await, &[(FailureMode::ContextBloat, 3)]);
    assert_signals(&all_signals(grows(&[90_000, 120_000, 149_999])).await, &[]);
}

#[tokio::test]
async fn a_context_that_grows_without_progress_is_context_bloat() {
    let grows = || {
        (0..14).map(|n: usize| read_call_with_usage(n, 8_000 * (n as u64 + 1))).collect::<Vec<_>>()
    };
    let signals = run_with_detectors(Detectors::default(), grows()).await.0;
    let [signal] = &signals[..] else { panic!("{signals:?}") };
    assert_eq!((signal.mode, signal.turn), (FailureMode::ContextBloat, 9));
    // With a change in between, or with fewer calls.
    let mut working = grows();
    working[5] = call_with_effects("make", json!({ "changed": "a" }))
        .usage(Usage { input_tokens: 48_000, ..Usage::default() });
    assert_signals(&all_signals(working).await, &[]);
    let small =
        (0..14).map(|n: usize| read_call_with_usage(n, 4_000 * (n as u64 + 1))).collect::<Vec<_>>();
    assert_signals(&all_signals(small).await, &[]);
}

#[tokio::test]
async fn turns_without_tool_calls_are_reported_as_planning() {
    let words = |n: usize| (0..n).map(|n| Reply::text(format!("Plan {n}."))).collect::<Vec<_>>();
    let go_on = |times: usize| {
        let left = Mutex::new(times);
        hook::before_stop(move |_, _| {
            let mut left = left.lock().unwrap();
            let blocks = *left > 0;
            *left = left.saturating_sub(1);
            async move {
                if blocks { StopDecision::Continue("Go on.".into()) } else { StopDecision::Allow }
            }
        })
    };
    let plans = |replies: Vec<Reply>, times: usize| {
        let detectors = Detectors::default();
        let signals = detectors.signal_log.clone();
        let run = detector_agent(replies).with_hook(detectors).with_hook(go_on(times)).run("go");
        async move {
            run.outcome().await;
            signals.drain().into_iter().map(|it| (it.mode, it.turn)).collect::<Vec<_>>()
        }
    };
    assert_signals(&plans(words(6), 5).await, &[(FailureMode::PlanningWithoutExecution, 3)]);
    assert_signals(&plans(words(2), 1).await, &[]);
    let acting = [words(2), vec![read_call(1)], words(2)].concat();
    assert_signals(&plans(acting, 3).await, &[]);
}

#[tokio::test]
async fn answers_to_follow_ups_are_not_reported_as_planning() {
    let detectors = Detectors::default();
    let signals = detectors.signal_log.clone();
    let run =
        detector_agent(["1", "2", "3", "4"].map(Reply::text).into()).with_hook(detectors).run("go");
    for words in ["and?", "and?", "and?"] {
        run.follow_up(words).unwrap();
    }
    assert_eq!(run.outcome().await.turns, 4);
    assert_eq!(signals.drain(), []);
}

#[tokio::test]
async fn a_nudge_tells_the_model_what_to_do() {
    let fails = |n| (0..n).map(|_| failing_call("e")).chain([read_call(1)]).collect::<Vec<_>>();
    let (signals, outcome) =
        run_with_detectors(Detectors { nudges: true, ..Detectors::default() }, fails(3)).await;
    assert_eq!(signals.len(), 1);
    let is_nudge = |item: &&Item| {
        item.as_user().is_some_and(|content| content.text().starts_with("You keep working"))
    };
    assert_eq!(outcome.new_items().iter().filter(is_nudge).count(), 1);
    let (_, outcome) = run_with_detectors(Detectors::default(), fails(3)).await;
    assert_eq!(outcome.new_items().iter().filter(is_nudge).count(), 0);
}

#[tokio::test]
async fn a_detector_nudge_does_not_affect_the_evidence_policy() {
    let replies =
        vec![failing_call("e"), failing_call("e"), failing_call("e"), "done".into(), "done".into()];
    let detectors = Detectors { nudges: true, ..Detectors::default() };
    let agent = detector_agent(replies).with_hook(detectors).with_evidence(RequireEvidence::new());
    let outcome = agent.run("go").outcome().await;
    assert_eq!((outcome.reason.as_str(), outcome.turns), ("unproven", 5));
}

#[tokio::test]
async fn calls_of_earlier_runs_are_not_examined() {
    let detectors = Detectors::default();
    let signals = detectors.signal_log.clone();
    let replies = vec![
        failing_call("e"),
        failing_call("e"),
        "It fails.".into(),
        failing_call("e"),
        "It fails.".into(),
    ];
    let agent = detector_agent(replies).with_hook(detectors);
    let first = agent.run("go").outcome().await;
    agent.run_from(first.history, "again").outcome().await;
    assert_eq!(signals.drain(), []);
}

#[tokio::test]
async fn signals_are_reported_as_they_occur_and_can_be_collected() {
    let detectors = Detectors {
        missing_termination: MissingTermination {
            max_same_failures: 2,
            max_turns_without_progress: 0,
            ..MissingTermination::default()
        },
        planning_without_execution: PlanningWithoutExecution { max_planning_turns: 0 },
        context_bloat: ContextBloat {
            max_input_tokens: 0,
            growth_factor: 0,
            ..ContextBloat::default()
        },
        ..Detectors::default()
    };
    let log = detectors.signal_log.clone();
    let told = Arc::new(Mutex::new(Vec::new()));
    let reader = {
        let told = Arc::clone(&told);
        hook::after_sampling(move |_, _| {
            told.lock().unwrap().push(log.signals().len());
            async { Vec::new() }
        })
    };
    let replies = vec![failing_call("e"), failing_call("e"), "It fails.".into()];
    let signals = detectors.signal_log.clone();
    let agent = detector_agent(replies).with_hook(detectors).with_hook(reader);
    let outcome = agent.run("go").outcome().await;
    let signals = signals.drain();
    assert_eq!(*told.lock().unwrap(), [0, 0, 1]);
    let json = serde_json::to_value(&signals[0]).unwrap();
    assert_eq!(json["mode"], "missing_termination");
    assert_eq!(json["history_id"], outcome.history.id());
    assert_eq!(serde_json::from_value::<Signal>(json).unwrap(), signals[0]);
}

#[tokio::test]
async fn the_rationale_of_a_call_does_not_make_it_a_different_call() {
    let make = |why: &str| {
        call_with_effects("make", json!({ "created": "t#", "_why": { "expected_outcome": why } }))
    };
    let detectors = Detectors::default();
    let signals = detectors.signal_log.clone();
    let replies = vec![make("a ticket"), make("a ticket, this time"), "Done.".into()];
    let agent = detector_agent(replies);
    let kit = agent.toolkit().clone().with_rationale();
    agent.with_toolkit(kit).with_hook(detectors).run("go").outcome().await;
    let modes: Vec<_> = signals.drain().iter().map(|signal| signal.mode).collect();
    assert_eq!(modes, [FailureMode::NonIdempotentRetry]);
}

#[tokio::test]
async fn targets_created_long_ago_are_forgotten_by_the_retry_detector() {
    let make = |n: usize| call_with_effects("make", json!({ "created": "t#", "n": n }));
    let after = |others: usize| (0..=others).chain([0]).map(make).collect();
    assert_signals(&all_signals(after(31)).await, &[(FailureMode::NonIdempotentRetry, 34)]);
    assert_signals(&all_signals(after(32)).await, &[]);
}
