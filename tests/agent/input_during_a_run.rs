//! Input during a run, and hooks that prevent its end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use turnstream::agent::hook::{self, StopDecision};
use turnstream::event::{AppendReason, EndReason, Transition};
use turnstream::provider::{Reply, Scripted};
use turnstream::turn::StopReason;
use turnstream::{Error, ErrorKind, Event, Item, RunHandle};

use turnstream_test_support::runs::{
    events_until, limits_with_max_turns, reply_calling_t, test_agent,
};
use turnstream_test_support::tools::{nap_tool, reply_calling_nap};
use turnstream_test_support::world::{AgentFixture, finish_run, finish_run_from};

mod steering_during_tools {
    //! Input steered while tools run, and input that arrives too late.

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn input_steered_during_tools_follows_all_results_and_skips_no_call() {
        let model = Scripted::new([reply_calling_nap(&[10, 20, 30]), "done".into()]);
        let mut run = test_agent(model.clone()).with_tools([nap_tool("nap")]).run("go");
        let events = events_until(&mut run, |event| event.tool_output().is_some()).await;
        let handle = run.handle();
        let receipt = run.steer("be brief").unwrap();
        assert_eq!(handle.delivery_turn(&receipt), None, "it waits");
        let finished = finish_run_from(events, run).await;
        finished.check_outcome(EndReason::Completed, 2);
        assert_eq!(finished.result_texts(), ["10", "20", "30"], "no call is skipped");
        let said = finished.item_summaries();
        assert_eq!(said[said.len() - 2..], ["user: be brief", "done"]);
        assert!(said[said.len() - 3].starts_with("result"));
        assert_eq!(handle.delivery_turn(&receipt), Some(2));
        let acknowledged = finished.events.iter().find_map(|event| match event {
            Event::Appended { why: AppendReason::Steer, id, .. } => Some(id.clone()),
            _ => None,
        });
        assert_eq!(acknowledged, Some(receipt.id));
        assert!(finished.outcome.undelivered.is_empty());
    }

    #[tokio::test]
    async fn a_late_steer_is_returned_in_the_outcome() {
        let world = AgentFixture::from_model(Scripted::from_fn(|_, _| reply_calling_t("c")))
            .map_agent(|agent| agent.with_limits(limits_with_max_turns(1)));
        let mut run = world.agent.run("go");
        let events = events_until(&mut run, |event| event.tool_output().is_some()).await;
        let steered = run.steer("one").unwrap();
        let followed = run.follow_up("two").unwrap();
        let handle = run.handle();
        let finished = finish_run_from(events, run).await;
        finished.check_outcome(EndReason::MaxTurns, 1);
        let back: Vec<_> = finished.outcome.undelivered.iter().map(|it| it.id.clone()).collect();
        assert_eq!(back, [steered.id.clone(), followed.id]);
        assert_eq!(finished.outcome.undelivered[0].items, [Item::user("one")]);
        assert_eq!(handle.delivery_turn(&steered), None);
        assert_eq!(handle.steer("three").unwrap_err().items, [Item::user("three")]);
    }

    #[tokio::test]
    async fn an_interrupt_or_error_returns_undelivered_input() {
        let broken = Reply::text("x").fail(Error::new(ErrorKind::Server, "no"));
        for (replies, interrupts) in
            [(vec![reply_calling_t("a"), "b".into()], true), (vec![broken], false)]
        {
            let mut run = AgentFixture::new(replies).agent.run("go");
            let events = events_until(&mut run, |event| matches!(event, Event::Turn(_))).await;
            run.steer("one").unwrap();
            if interrupts {
                run.interrupt();
            }
            let finished = finish_run_from(events, run).await;
            assert_eq!(finished.outcome.undelivered.len(), 1, "{:?}", finished.outcome.reason);
        }
    }
}

mod steering_at_the_end {
    //! Steering and follow-ups when the model stops.

    use super::*;

    #[tokio::test]
    async fn steering_while_the_model_stops_gets_another_turn() {
        let world = AgentFixture::new(["first".into(), "second".into()]);
        let mut run = world.agent.run("go");
        let events = events_until(&mut run, |event| event.turn_complete().is_some()).await;
        run.steer("and?").unwrap();
        let finished = finish_run_from(events, run).await;
        finished.check_outcome(EndReason::Completed, 2);
        assert_eq!(finished.transitions(), [Transition::Steering]);
        assert_eq!(finished.item_summaries(), ["user: go", "first", "user: and?", "second"]);
    }

    #[tokio::test]
    async fn follow_ups_are_delivered_one_at_a_time_when_the_model_stops() {
        let world =
            AgentFixture::new([reply_calling_t("c"), "one".into(), "two".into(), "three".into()]);
        let run = world.agent.run("go");
        let handle = run.handle();
        let receipts = [run.follow_up("more").unwrap(), run.follow_up("and more").unwrap()];
        let finished = finish_run_from(Vec::new(), run).await;
        finished.check_outcome(EndReason::Completed, 4);
        assert_eq!(
            finished.transitions(),
            [Transition::NextTurn, Transition::FollowUp, Transition::FollowUp]
        );
        assert_eq!(
            finished.item_summaries()[3..],
            ["one", "user: more", "two", "user: and more", "three"]
        );
        let delivered = receipts.map(|receipt| handle.delivery_turn(&receipt));
        assert_eq!(delivered, [Some(3), Some(4)]);
    }

    #[tokio::test]
    async fn a_hook_that_always_steers_is_bounded_by_the_turn_limit() {
        let handle: Arc<OnceLock<RunHandle>> = Arc::default();
        let steering = handle.clone();
        let always = hook::assistant_message(move |_, _| {
            steering.get().unwrap().steer("go on").unwrap();
            async {}
        });
        let world = AgentFixture::from_model(Scripted::from_fn(|_, _| Reply::text("done")))
            .map_agent(|agent| agent.with_limits(limits_with_max_turns(5)).with_hook(always));
        let run = world.agent.run("go");
        handle.set(run.handle()).unwrap();
        let finished = finish_run(run).await;
        assert_eq!((finished.outcome.turns, world.request_count()), (5, 5));
        assert_eq!(finished.transitions(), [Transition::Steering; 4]);
        assert_eq!(finished.outcome.undelivered.len(), 1, "the last one comes back");
    }
}

/// A stop hook that blocks this number of times, and a count of its calls.
fn blocking_stop_hook(times: usize) -> (impl hook::Hook + 'static, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let stop = hook::before_stop(move |_, _| {
        let blocks = count.fetch_add(1, Ordering::Relaxed) < times;
        async move {
            if blocks {
                StopDecision::Continue("run the tests".into())
            } else {
                StopDecision::Allow
            }
        }
    });
    (stop, asked)
}

mod stop_hooks {
    //! Stop hooks that block or prevent the end of a run.

    use super::*;

    #[tokio::test]
    async fn a_blocking_stop_hook_continues_the_run_with_its_message() {
        let (stop, asked) = blocking_stop_hook(1);
        let world = AgentFixture::new([reply_calling_t("c"), "done".into(), "really".into()])
            .map_agent(|agent| agent.with_hook(stop));
        let finished = world.run().await;
        finished.check_outcome(EndReason::Completed, 3);
        assert_eq!(finished.transitions(), [Transition::NextTurn, Transition::StopHookBlocking]);
        assert_eq!(finished.appended_texts(AppendReason::StopHook), ["user: run the tests"]);
        assert_eq!(asked.load(Ordering::Relaxed), 2, "not asked while the model wants tools");
    }

    #[tokio::test]
    async fn a_stop_hook_that_always_blocks_is_bounded_by_the_turn_limit() {
        let (stop, _) = blocking_stop_hook(usize::MAX);
        let world = AgentFixture::from_model(Scripted::from_fn(|_, _| Reply::text("done")))
            .map_agent(|agent| agent.with_hook(stop).with_limits(limits_with_max_turns(4)));
        let finished = world.run().await;
        finished.check_outcome(EndReason::MaxTurns, 4);
        assert_eq!(finished.transitions(), [Transition::StopHookBlocking; 3]);
    }

    #[tokio::test]
    async fn a_preventing_stop_hook_ends_the_run_unless_another_blocks() {
        let prevent = || hook::before_stop(|_, _| async { StopDecision::EndRun("not now".into()) });
        let finished = AgentFixture::new(["done".into()])
            .map_agent(|agent| agent.with_hook(prevent()))
            .run()
            .await;
        finished.check_outcome(EndReason::StopHookPrevented, 1);
        assert!(!finished.outcome.partial && finished.outcome.error.is_none());
        let (block, _) = blocking_stop_hook(1);
        let world = AgentFixture::new(["done".into(), "again".into()])
            .map_agent(|agent| agent.with_hook(prevent()).with_hook(block));
        let finished = world.run().await;
        finished.check_outcome(EndReason::StopHookPrevented, 2);
        assert_eq!(finished.transitions(), [Transition::StopHookBlocking]);
    }

    #[tokio::test]
    async fn stop_hooks_run_only_when_the_model_is_done() {
        let failed = Error::new(ErrorKind::Server, "no");
        for (reply, reason) in [
            (Reply::error(failed.clone()), EndReason::ProviderError),
            (Reply::text("x").fail(failed), EndReason::ProviderError),
            (Reply::text("x").disconnect(), EndReason::Incomplete),
            (Reply::new().refuse("no"), EndReason::Refused),
            (Reply::text("x").stop(StopReason::ContentFilter), EndReason::Filtered),
        ] {
            let (stop, asked) = blocking_stop_hook(usize::MAX);
            let finished =
                AgentFixture::new([reply]).map_agent(|agent| agent.with_hook(stop)).run().await;
            finished.check_outcome(reason, 1);
            assert_eq!(asked.load(Ordering::Relaxed), 0, "{reason}");
        }
    }

    #[tokio::test]
    async fn recovery_counters_survive_a_stop_hook_and_are_visible_to_it() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = seen.clone();
        let stop = hook::before_stop(move |state, _| {
            let mut noted = noted.lock().unwrap();
            noted.push((
                state.counts.model_calls,
                state.counts.tool_turns,
                state.streaks.continuations,
            ));
            let blocks = noted.len() == 1;
            async move {
                if blocks { StopDecision::Continue("more".into()) } else { StopDecision::Allow }
            }
        });
        let cut = || Reply::text("half").stop(StopReason::MaxTokens);
        // Three consecutive continuations in total: the stop hook in between does not reset the
        // count.
        let world = AgentFixture::new([
            reply_calling_t("c"),
            cut(),
            cut(),
            "x".into(),
            cut(),
            cut(),
            "never".into(),
        ])
        .map_agent(|agent| agent.with_hook(stop));
        let finished = world.run().await;
        finished.check_outcome(EndReason::Truncated, 6);
        assert_eq!(*seen.lock().unwrap(), [(4, 1, 2)]);
    }
}
