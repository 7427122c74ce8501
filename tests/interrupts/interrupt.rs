//! The state after an interrupt.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use turnstream::agent::hook::{self, CallDecision};
use turnstream::event::{AppendReason, EndReason, InterruptedPhase};
use turnstream::item::{ResultKind, SideEffect};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, Verdict};
use turnstream::{Event, History, Item, Outcome, Run};
use turnstream_testing::Wire;

use turnstream_test_support::runs::{
    check_outcome, collect_rest, event_types, final_outcome, pull_ready, pull_until, reply_calling,
    result_kinds, result_summaries, scripted_agent, tool_calls, tool_results,
};
use turnstream_test_support::tools::{Counter, ok_tool, pending_tool, spec};
use turnstream_test_support::wires::{encode_and_lint, encode_strict};

const INTERRUPTED_STREAMING: EndReason = EndReason::Interrupted(InterruptedPhase::Streaming);
const INTERRUPTED_TOOLS: EndReason = EndReason::Interrupted(InterruptedPhase::Tools);

/// A run that was interrupted when `{"path":"/a` had streamed.
async fn interrupt_within_call_arguments() -> (Outcome, History, usize) {
    let counter = Counter::default();
    let half = Reply::text("Let me look.").call_unfinished("c1", "read", r#"{"path":"/a"#).hang();
    let (agent, _) = scripted_agent([half], vec![ok_tool("read", &counter)]);
    let mut run = agent.run("go");
    pull_ready(&mut run);
    run.interrupt();
    let handle = run.handle();
    (run.outcome().await, handle.history(), counter.started_count())
}

mod interrupt_while_a_call_streams {
    //! An interrupt while the model streams a tool call: the partial call never runs and the
    //! history stays sendable.

    use super::*;

    #[tokio::test]
    async fn a_partial_call_never_runs_and_is_kept_verbatim_as_interrupted() {
        let (outcome, history, ran) = interrupt_within_call_arguments().await;
        check_outcome(&outcome, INTERRUPTED_STREAMING, 1);
        assert_eq!(ran, 0);
        let [input, text, call] = outcome.new_items() else { panic!("{:?}", outcome.new_items()) };
        assert_eq!((text.as_text(), text.interrupted), (Some("Let me look."), true));
        let cut = call.as_tool_call().unwrap();
        assert_eq!(
            (&*cut.call_id, &*cut.arguments, call.interrupted),
            ("c1", r#"{"path":"/a"#, true)
        );
        assert!(!input.interrupted);
        assert_eq!(history.len(), 3);
        assert_eq!(outcome.text, "Let me look.");
    }

    #[tokio::test]
    async fn the_next_request_omits_the_partial_call_and_is_deterministic() {
        let (_, mut history, _) = interrupt_within_call_arguments().await;
        history.push(Item::user("and now?"));
        for wire in Wire::ALL {
            let body = encode_and_lint(wire, &history).to_string();
            assert!(body.contains("and now?") && !body.contains("c1"), "{wire:?}: {body}");
            assert!(!body.contains("/a"), "{wire:?}: {body}");
            assert_eq!(encode_strict(wire, &history), encode_strict(wire, &history));
            assert_eq!(encode_strict(wire, &history), encode_strict(wire, &history.settled()));
        }
        assert_eq!(history.settled().settled(), history.settled());
    }

    #[tokio::test]
    async fn a_continued_run_sends_a_settled_history() {
        let (_, history, _) = interrupt_within_call_arguments().await;
        let (agent, model) = scripted_agent(["done".into()], vec![]);
        check_outcome(
            &agent.run_from(history, "and now?").outcome().await,
            EndReason::Completed,
            1,
        );
        let sent = &model.requests()[0].history;
        assert!(sent.is_settled());
        assert_eq!((tool_calls(sent).len(), tool_results(sent).len()), (0, 0));
    }

    #[tokio::test]
    async fn a_complete_call_of_an_incomplete_turn_never_runs() {
        let counter = Counter::default();
        for reply in [
            reply_calling("c1", "t").say("and").hang(),
            reply_calling("c1", "t").say("and").disconnect(),
        ] {
            let (agent, _) = scripted_agent([reply], vec![ok_tool("t", &counter)]);
            let mut run = agent.run("go");
            pull_ready(&mut run);
            run.interrupt();
            let history = run.history();
            assert!(tool_calls(&history).len() == 1 && tool_calls(&history.settled()).is_empty());
            for wire in Wire::ALL {
                assert!(!encode_and_lint(wire, &history).to_string().contains("c1"), "{wire:?}");
            }
        }
        assert_eq!(counter.started_count(), 0);
    }
}

mod interrupt_before_tools_start {
    //! An interrupt after a turn completed and before its tools start: the calls never run and are
    //! answered.

    use super::*;

    #[tokio::test]
    async fn a_call_that_had_not_started_never_runs_and_is_answered() {
        let counter = Counter::default();
        let (agent, model) = scripted_agent(
            [reply_calling("c1", "t"), "never".into()],
            vec![ok_tool("t", &counter)],
        );
        let mut run = agent.run("go");
        pull_until(&mut run, |event| event.turn_complete().is_some()).await;
        run.interrupt();
        let outcome = run.outcome().await;
        check_outcome(&outcome, INTERRUPTED_STREAMING, 1);
        assert_eq!((counter.started_count(), model.requests().len()), (0, 1));
        let asked = outcome.new_items().iter().find(|item| item.as_tool_call().is_some()).unwrap();
        assert!(!asked.interrupted, "its turn is complete");
        let expected = ("c1", ResultKind::Interrupted, "Interrupted by user".to_owned());
        assert_eq!(result_summaries(outcome.new_items()), [expected]);
    }

    #[tokio::test]
    async fn a_drop_leaves_the_call_open_and_the_next_request_answers_it() {
        let counter = Counter::default();
        let (agent, _) = scripted_agent([reply_calling("c1", "t")], vec![ok_tool("t", &counter)]);
        let mut run = agent.run("go");
        pull_until(&mut run, |event| event.turn_complete().is_some()).await;
        let handle = run.handle();
        drop(run);
        let mut history = handle.history();
        assert_eq!(
            (counter.started_count(), tool_calls(&history).len(), tool_results(&history).len()),
            (0, 1, 0)
        );
        assert_eq!(result_kinds(&history.settled()), [ResultKind::Interrupted]);
        history.push(Item::user("and now?"));
        for wire in Wire::ALL {
            assert!(encode_and_lint(wire, &history).to_string().contains("Interrupted"));
        }
    }
}

fn run_with_one_of_two_calls_done() -> (Run, Scripted, Counter) {
    let counter = Counter::default();
    let reply = reply_calling("c1", "endless").call_raw("c2", "t", "{}");
    let tools = vec![pending_tool("endless", &counter), ok_tool("t", &Counter::default())];
    let (agent, model) = scripted_agent([reply, "never".into()], tools);
    let mut run = agent.run("go");
    let events = pull_ready(&mut run);
    assert_eq!(events.iter().filter_map(Event::tool_output).count(), 1);
    (run, model, counter)
}

mod interrupt_while_tools_run {
    //! An interrupt while tools run: finished results are kept, the others are dropped and answered
    //! as interrupted.

    use super::*;

    #[tokio::test]
    async fn finished_results_are_kept_and_others_interrupted_in_call_order() {
        let (run, _, _) = run_with_one_of_two_calls_done();
        run.interrupt();
        let handle = run.handle();
        let outcome = run.outcome().await;
        check_outcome(&outcome, INTERRUPTED_TOOLS, 1);
        assert!(outcome.partial);
        let expected = [
            ("c1", ResultKind::Interrupted, "Interrupted mid-execution".to_owned()),
            ("c2", ResultKind::Ok, "fine".to_owned()),
        ];
        assert_eq!(result_summaries(outcome.new_items()), expected);
        assert!(handle.history().is_settled());
        assert_eq!(handle.history().settled(), handle.history());
    }

    #[tokio::test]
    async fn no_further_request_is_sent() {
        let (mut run, model, _) = run_with_one_of_two_calls_done();
        run.interrupt();
        collect_rest(&mut run).await;
        assert!(run.next().await.is_none());
        assert_eq!(model.requests().len(), 1);
    }

    #[tokio::test]
    async fn an_unfinished_tool_is_dropped_before_the_next_event() {
        let (mut run, _, counter) = run_with_one_of_two_calls_done();
        assert_eq!(counter.alive_count(), 1);
        run.interrupt();
        let next = run.next().await.unwrap().unwrap();
        assert!(next.tool_output().is_some(), "the answer comes before the end");
        assert_eq!(counter.alive_count(), 0);
        assert!(run.next().await.unwrap().unwrap().outcome().is_some());
    }

    #[tokio::test]
    async fn all_running_tools_are_dropped_in_the_first_poll_after_an_interrupt() {
        let mut most_running = 0;
        for polls in 0..40 {
            let counter = Counter::default();
            let endless = || vec![pending_tool("endless", &counter)];
            let child = scripted_agent([reply_calling("c", "endless")], endless()).0;
            let reply = reply_calling("c1", "endless").call_raw("c2", "endless", "{}");
            let reply = reply.call_raw("c3", "child", r#"{"prompt":"go"}"#);
            let (agent, _) = scripted_agent([reply, "never".into()], endless());
            let mut run = agent.with_tool(child.as_tool("child", "").unwrap()).run("go");
            for _ in 0..polls {
                let _ = run.next().now_or_never();
            }
            let running = counter.alive_count();
            most_running = running.max(most_running);
            run.interrupt();
            assert_eq!(counter.alive_count(), running, "the interrupt itself drops nothing");
            let _ = run.next().now_or_never();
            assert_eq!(counter.alive_count(), 0, "after {polls} polls");
        }
        assert_eq!(most_running, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_report_of_an_unfinished_tool_is_kept() {
        for by_hook in [false, true] {
            let edit = Tool::raw(spec("edit"), |_, cx| async move {
                cx.record_change("notes");
                cx.record_evidence("a diff");
                std::future::pending::<String>().await
            });
            let reply = reply_calling("c1", "edit").call_raw("c2", "t", "{}");
            let tools = vec![edit.unwrap(), pending_tool("t", &Counter::default())];
            // A failing hook also drops the running tools.
            let agent = scripted_agent([reply], tools).0.with_hook(hook::before_tool(
                move |_, call| async move {
                    tokio::time::sleep(Duration::from_secs(u64::from(call.name == "t"))).await;
                    assert!(!by_hook || call.name != "t");
                    CallDecision::Allow
                },
            ));
            let mut run = agent.run("go");
            pull_ready(&mut run);
            if !by_hook {
                run.interrupt();
            }
            let outcome = run.outcome().await;
            let results = tool_results(outcome.new_items());
            let report = results[0].report.as_deref().unwrap();
            assert_eq!(report.side_effects, [SideEffect::of_change("notes")]);
            assert_eq!((outcome.evidence.len(), &results[1].report), (1, &None));
        }
    }

    #[tokio::test]
    async fn an_interrupt_before_the_next_request_is_in_the_tools_phase() {
        let (agent, model) = scripted_agent(
            [reply_calling("c1", "t"), "never".into()],
            vec![ok_tool("t", &Counter::default())],
        );
        let mut run = agent.run("go");
        pull_until(&mut run, |event| event.tool_output().is_some()).await;
        run.interrupt();
        let outcome = run.outcome().await;
        check_outcome(&outcome, INTERRUPTED_TOOLS, 1);
        assert_eq!(
            (result_kinds(outcome.new_items()), model.requests().len()),
            (vec![ResultKind::Ok], 1)
        );
    }

    #[tokio::test]
    async fn an_interrupt_after_the_next_request_is_in_the_streaming_phase() {
        let (agent, _) = scripted_agent(
            [reply_calling("c1", "t"), "done".into()],
            vec![ok_tool("t", &Counter::default())],
        );
        let mut run = agent.run("go");
        pull_until(&mut run, |event| matches!(event, Event::TurnStarted { turn: 2, .. })).await;
        run.interrupt();
        check_outcome(&run.outcome().await, INTERRUPTED_STREAMING, 2);
    }
}

mod interrupt_before_the_first_poll {
    //! An interrupt before the first poll: nothing is sent and nothing runs.

    use super::*;

    #[tokio::test]
    async fn an_interrupt_before_the_first_poll_sends_and_runs_nothing() {
        let counter = Counter::default();
        let (agent, model) =
            scripted_agent([reply_calling("c1", "t")], vec![ok_tool("t", &counter)]);
        let mut run = agent.run("go");
        run.interrupt();
        let events = collect_rest(&mut run).await;
        assert!(matches!(&events[0], Event::Appended { why: AppendReason::Input, .. }));
        assert_eq!(event_types(&events), ["appended", "finished"]);
        check_outcome(final_outcome(&events), INTERRUPTED_STREAMING, 0);
        assert_eq!(final_outcome(&events).new_items(), [Item::user("go")]);
        assert_eq!((model.requests().len(), counter.started_count()), (0, 0));
    }

    #[tokio::test]
    async fn a_resumed_run_interrupted_before_its_first_poll_runs_no_pending_call() {
        let counter = Counter::default();
        let (agent, model) = scripted_agent(
            [reply_calling("c1", "t")],
            vec![ok_tool("t", &counter).requires_approval()],
        );
        let run = agent.run("go");
        let handle = run.handle();
        let pending = run.outcome().await.pending;
        let verdicts = pending.into_iter().map(|call| (call, Verdict::Approve));
        let mut run = agent.resume(handle.history(), verdicts).unwrap();
        run.interrupt();
        let events = collect_rest(&mut run).await;
        check_outcome(final_outcome(&events), INTERRUPTED_TOOLS, 0);
        assert_eq!(result_kinds(final_outcome(&events).new_items()), [ResultKind::Interrupted]);
        assert_eq!((model.requests().len(), counter.started_count()), (1, 0));
    }
}

mod interrupt_twice_or_late {
    //! A second interrupt, or one after the end, has no effect.

    use super::*;

    #[tokio::test]
    async fn interrupting_twice_has_the_effect_of_once() {
        let (mut run, model, counter) = run_with_one_of_two_calls_done();
        let handle = run.handle();
        run.interrupt();
        run.interrupt();
        let mut events = vec![run.next().await.unwrap().unwrap()];
        handle.interrupt();
        events.extend(collect_rest(&mut run).await);
        handle.interrupt();
        assert!(run.next().await.is_none() && run.next().await.is_none());
        check_outcome(final_outcome(&events), INTERRUPTED_TOOLS, 1);
        assert_eq!((events.len(), counter.alive_count(), model.requests().len()), (2, 0, 1));
    }

    #[tokio::test]
    async fn an_interrupt_after_the_end_changes_nothing() {
        let (agent, _) = scripted_agent(["done".into()], vec![]);
        let mut run = agent.run("go");
        let events = collect_rest(&mut run).await;
        run.interrupt();
        run.stop_after_turn();
        assert!(run.next().await.is_none());
        check_outcome(final_outcome(&events), EndReason::Completed, 1);
        check_outcome(&run.outcome().await, EndReason::Completed, 1);
    }
}
