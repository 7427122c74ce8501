//! What an interrupt leaves behind.

use std::time::Duration;

use futures::StreamExt;
use turnstream::agent::hook::{self, CallDecision};
use turnstream::event::{AppendReason, EndReason, InterruptedPhase};
use turnstream::item::{ResultKind, SideEffect};
use turnstream::provider::{Reply, Scripted};
use turnstream::testing::Wire;
use turnstream::tool::{Tool, Verdict};
use turnstream::{Event, History, Item, Outcome, Run};

use crate::support::runs::{
    answers, call_of, calls, check, ending, kinds, pull, rest, results, scripted, types, until,
};
use crate::support::tools::{Counter, endless, fine, spec};
use crate::support::wires::{encoded, sendable};

const STREAMING: EndReason = EndReason::Interrupted(InterruptedPhase::Streaming);
const TOOLS: EndReason = EndReason::Interrupted(InterruptedPhase::Tools);

/// A run that was interrupted when `{"path":"/a` had streamed.
async fn cut_in_a_call() -> (Outcome, History, usize) {
    let counter = Counter::default();
    let half = Reply::text("Let me look.").call_unfinished("c1", "read", r#"{"path":"/a"#).hang();
    let (agent, _) = scripted([half], vec![fine("read", &counter)]);
    let mut run = agent.run("go");
    pull(&mut run);
    run.interrupt();
    let handle = run.handle();
    (run.outcome().await, handle.history(), counter.began())
}

mod interrupt_while_a_call_streams {
    //! An interrupt while the model streams a tool call: the partial call never runs and the history stays sendable.

    use super::*;

    #[tokio::test]
    async fn a_partial_call_never_runs_and_is_kept_verbatim_as_interrupted() {
        let (outcome, history, ran) = cut_in_a_call().await;
        check(&outcome, STREAMING, 1);
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
        let (_, mut history, _) = cut_in_a_call().await;
        history.push(Item::user("and now?"));
        for wire in Wire::ALL {
            let body = sendable(wire, &history).to_string();
            assert!(body.contains("and now?") && !body.contains("c1"), "{wire:?}: {body}");
            assert!(!body.contains("/a"), "{wire:?}: {body}");
            assert_eq!(encoded(wire, &history), encoded(wire, &history));
            assert_eq!(encoded(wire, &history), encoded(wire, &history.settled()));
        }
        assert_eq!(history.settled().settled(), history.settled());
    }

    #[tokio::test]
    async fn a_continued_run_sends_a_settled_history() {
        let (_, history, _) = cut_in_a_call().await;
        let (agent, model) = scripted(["done".into()], vec![]);
        check(&agent.run_from(history, "and now?").outcome().await, EndReason::Completed, 1);
        let sent = &model.requests()[0].history;
        assert!(sent.is_settled());
        assert_eq!((calls(sent).len(), results(sent).len()), (0, 0));
    }

    #[tokio::test]
    async fn a_complete_call_of_an_incomplete_turn_never_runs() {
        let counter = Counter::default();
        for reply in [call_of("c1", "t").say("and").hang(), call_of("c1", "t").say("and").cut()] {
            let (agent, _) = scripted([reply], vec![fine("t", &counter)]);
            let mut run = agent.run("go");
            pull(&mut run);
            run.interrupt();
            let history = run.history();
            assert!(calls(&history).len() == 1 && calls(&history.settled()).is_empty());
            for wire in Wire::ALL {
                assert!(!sendable(wire, &history).to_string().contains("c1"), "{wire:?}");
            }
        }
        assert_eq!(counter.began(), 0);
    }
}

mod interrupt_before_tools_start {
    //! An interrupt after a turn completed and before its tools start: the calls never run and are answered.

    use super::*;

    #[tokio::test]
    async fn a_call_that_had_not_started_never_runs_and_is_answered() {
        let counter = Counter::default();
        let (agent, model) =
            scripted([call_of("c1", "t"), "never".into()], vec![fine("t", &counter)]);
        let mut run = agent.run("go");
        until(&mut run, |event| event.turn_complete().is_some()).await;
        run.interrupt();
        let outcome = run.outcome().await;
        check(&outcome, STREAMING, 1);
        assert_eq!((counter.began(), model.requests().len()), (0, 1));
        let asked = outcome.new_items().iter().find(|item| item.as_tool_call().is_some()).unwrap();
        assert!(!asked.interrupted, "its turn is complete");
        let expected = ("c1", ResultKind::Interrupted, "Interrupted by user".to_owned());
        assert_eq!(answers(outcome.new_items()), [expected]);
    }

    #[tokio::test]
    async fn a_drop_leaves_the_call_open_and_the_next_request_answers_it() {
        let counter = Counter::default();
        let (agent, _) = scripted([call_of("c1", "t")], vec![fine("t", &counter)]);
        let mut run = agent.run("go");
        until(&mut run, |event| event.turn_complete().is_some()).await;
        let handle = run.handle();
        drop(run);
        let mut history = handle.history();
        assert_eq!((counter.began(), calls(&history).len(), results(&history).len()), (0, 1, 0));
        assert_eq!(kinds(&history.settled()), [ResultKind::Interrupted]);
        history.push(Item::user("and now?"));
        for wire in Wire::ALL {
            assert!(sendable(wire, &history).to_string().contains("Interrupted"));
        }
    }
}

fn one_of_two() -> (Run, Scripted, Counter) {
    let counter = Counter::default();
    let reply = call_of("c1", "endless").call_raw("c2", "t", "{}");
    let tools = vec![endless("endless", &counter), fine("t", &Counter::default())];
    let (agent, model) = scripted([reply, "never".into()], tools);
    let mut run = agent.run("go");
    let events = pull(&mut run);
    assert_eq!(events.iter().filter_map(Event::tool_output).count(), 1);
    (run, model, counter)
}

mod interrupt_while_tools_run {
    //! An interrupt while tools run: finished results are kept, the others are dropped and answered as interrupted.

    use super::*;

    #[tokio::test]
    async fn finished_results_are_kept_and_others_interrupted_in_call_order() {
        let (run, _, _) = one_of_two();
        run.interrupt();
        let handle = run.handle();
        let outcome = run.outcome().await;
        check(&outcome, TOOLS, 1);
        assert!(outcome.partial);
        let expected = [
            ("c1", ResultKind::Interrupted, "Interrupted mid-execution".to_owned()),
            ("c2", ResultKind::Ok, "fine".to_owned()),
        ];
        assert_eq!(answers(outcome.new_items()), expected);
        assert!(handle.history().is_settled());
        assert_eq!(handle.history().settled(), handle.history());
    }

    #[tokio::test]
    async fn no_further_request_is_sent() {
        let (mut run, model, _) = one_of_two();
        run.interrupt();
        rest(&mut run).await;
        assert!(run.next().await.is_none());
        assert_eq!(model.requests().len(), 1);
    }

    #[tokio::test]
    async fn an_unfinished_tool_is_dropped_before_the_next_event() {
        let (mut run, _, counter) = one_of_two();
        assert_eq!(counter.now(), 1);
        run.interrupt();
        let next = run.next().await.unwrap().unwrap();
        assert!(next.tool_output().is_some(), "the answer comes before the end");
        assert_eq!(counter.now(), 0);
        assert!(run.next().await.unwrap().unwrap().outcome().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_report_of_an_unfinished_tool_is_kept() {
        for by_hook in [false, true] {
            let edit = Tool::raw(spec("edit"), |_, cx| async move {
                cx.record_change("notes");
                cx.record_evidence("a diff");
                std::future::pending::<String>().await
            });
            let reply = call_of("c1", "edit").call_raw("c2", "t", "{}");
            let tools = vec![edit.unwrap(), endless("t", &Counter::default())];
            // A failing hook drops what runs, too.
            let agent = scripted([reply], tools).0.with_hook(hook::before_tool(
                move |_, call| async move {
                    tokio::time::sleep(Duration::from_secs(u64::from(call.name == "t"))).await;
                    assert!(!by_hook || call.name != "t");
                    CallDecision::Allow
                },
            ));
            let mut run = agent.run("go");
            pull(&mut run);
            if !by_hook {
                run.interrupt();
            }
            let outcome = run.outcome().await;
            let results = results(outcome.new_items());
            let report = results[0].report.as_deref().unwrap();
            assert_eq!(report.side_effects, [SideEffect::of_change("notes")]);
            assert_eq!((outcome.evidence.len(), &results[1].report), (1, &None));
        }
    }

    #[tokio::test]
    async fn an_interrupt_before_the_next_request_is_in_the_tools_phase() {
        let (agent, model) =
            scripted([call_of("c1", "t"), "never".into()], vec![fine("t", &Counter::default())]);
        let mut run = agent.run("go");
        until(&mut run, |event| event.tool_output().is_some()).await;
        run.interrupt();
        let outcome = run.outcome().await;
        check(&outcome, TOOLS, 1);
        assert_eq!((kinds(outcome.new_items()), model.requests().len()), (vec![ResultKind::Ok], 1));
    }

    #[tokio::test]
    async fn an_interrupt_after_the_next_request_is_in_the_streaming_phase() {
        let (agent, _) =
            scripted([call_of("c1", "t"), "done".into()], vec![fine("t", &Counter::default())]);
        let mut run = agent.run("go");
        until(&mut run, |event| matches!(event, Event::TurnStarted { turn: 2, .. })).await;
        run.interrupt();
        check(&run.outcome().await, STREAMING, 2);
    }
}

mod interrupt_before_the_first_poll {
    //! An interrupt before the first poll: nothing is sent and nothing runs.

    use super::*;

    #[tokio::test]
    async fn an_interrupt_before_the_first_poll_sends_and_runs_nothing() {
        let counter = Counter::default();
        let (agent, model) = scripted([call_of("c1", "t")], vec![fine("t", &counter)]);
        let mut run = agent.run("go");
        run.interrupt();
        let events = rest(&mut run).await;
        assert!(matches!(&events[0], Event::Appended { why: AppendReason::Input, .. }));
        assert_eq!(types(&events), ["appended", "finished"]);
        check(ending(&events), STREAMING, 0);
        assert_eq!(ending(&events).new_items(), [Item::user("go")]);
        assert_eq!((model.requests().len(), counter.began()), (0, 0));
    }

    #[tokio::test]
    async fn a_resumed_run_interrupted_before_its_first_poll_runs_no_pending_call() {
        let counter = Counter::default();
        let (agent, model) =
            scripted([call_of("c1", "t")], vec![fine("t", &counter).requires_approval()]);
        let run = agent.run("go");
        let handle = run.handle();
        let pending = run.outcome().await.pending;
        let verdicts = pending.into_iter().map(|call| (call, Verdict::Approve));
        let mut run = agent.resume(handle.history(), verdicts).unwrap();
        run.interrupt();
        let events = rest(&mut run).await;
        check(ending(&events), TOOLS, 0);
        assert_eq!(kinds(ending(&events).new_items()), [ResultKind::Interrupted]);
        assert_eq!((model.requests().len(), counter.began()), (1, 0));
    }
}

mod interrupt_twice_or_late {
    //! A second interrupt, or one after the end, has no effect.

    use super::*;

    #[tokio::test]
    async fn interrupting_twice_has_the_effect_of_once() {
        let (mut run, model, counter) = one_of_two();
        let handle = run.handle();
        run.interrupt();
        run.interrupt();
        let mut events = vec![run.next().await.unwrap().unwrap()];
        handle.interrupt();
        events.extend(rest(&mut run).await);
        handle.interrupt();
        assert!(run.next().await.is_none() && run.next().await.is_none());
        check(ending(&events), TOOLS, 1);
        assert_eq!((events.len(), counter.now(), model.requests().len()), (2, 0, 1));
    }

    #[tokio::test]
    async fn an_interrupt_after_the_end_changes_nothing() {
        let (agent, _) = scripted(["done".into()], vec![]);
        let mut run = agent.run("go");
        let events = rest(&mut run).await;
        run.interrupt();
        run.stop_after_turn();
        assert!(run.next().await.is_none());
        check(ending(&events), EndReason::Completed, 1);
        check(&run.outcome().await, EndReason::Completed, 1);
    }
}
