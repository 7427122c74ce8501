//! An interrupt of the model that lets the tools finish.

use std::num::NonZeroUsize;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep};
use turnstream::agent::{Budget, Pool};
use turnstream::event::{AppendReason, EndReason, InterruptedPhase, Transition};
use turnstream::item::{ResultKind, StopReason};
use turnstream::provider::{Reply, Retry, Scripted};
use turnstream::usage::{CostGapKind, Price, Prices};
use turnstream::{Agent, Error, ErrorKind, Event, Item, Run, TurnEvent, Usage};
use turnstream_testing::Wire;

use turnstream_test_support::items::token_usage;
use turnstream_test_support::replays;
use turnstream_test_support::runs::{
    check_outcome, collect_rest, final_outcome, is_tool_started, pull_ready, pull_until,
    reply_calling, result_kinds, scripted_agent, tool_calls, tool_results,
};
use turnstream_test_support::tools::{Counter, counted_tool, ok_tool, pending_tool};
use turnstream_test_support::wires::encode_and_lint;

const INTERRUPTED_STREAMING: EndReason = EndReason::Interrupted(InterruptedPhase::Streaming);
const INTERRUPTED_TOOLS: EndReason = EndReason::Interrupted(InterruptedPhase::Tools);

/// A reply that never ends, with text and the start of a call.
fn endless_reply() -> Reply {
    Reply::text("Let me look.").call_unfinished("c1", "read", r#"{"path":"/a"#).hang()
}

fn has_text(run: &Run, text: &str) -> bool {
    run.history().iter().any(|item| item.as_text() == Some(text))
}

mod interrupt_of_a_streaming_turn {
    //! The model is interrupted while it answers: what it said stays, and input that waits follows.

    use super::*;

    #[tokio::test]
    async fn the_answer_ends_at_the_next_poll_and_its_connection_is_closed() {
        let reply = Reply::text("one two three four five six seven eight nine ten").hang();
        let (agent, model) = scripted_agent([reply], vec![]);
        let mut run = agent.with_recorder(replays::replaying_recorder()).run("go");
        let is_text = |event: &Event| event.text_delta().is_some();
        let first = pull_until(&mut run, is_text).await;
        assert_eq!(model.in_flight(), 1);
        run.interrupt_turn();
        let next = run.next().now_or_never().flatten().unwrap().unwrap();
        let turn = next.turn_complete().expect("the turn ends at once");
        assert_eq!(*turn.stop_reason(), StopReason::Interrupted);
        assert_eq!(turn.text(), first.text_delta().unwrap().as_str());
        assert!(turn.items().iter().all(|item| item.interrupted));
        assert_eq!(model.in_flight(), 0);
        let rest = collect_rest(&mut run).await;
        let outcome = final_outcome(&rest);
        check_outcome(outcome, INTERRUPTED_STREAMING, 1);
        assert!(outcome.partial);
        assert_eq!(outcome.text, turn.text());
        assert_eq!((&outcome.why, &outcome.error), (&None, &None));
    }

    #[tokio::test]
    async fn a_run_that_waits_for_the_model_is_woken() {
        let (agent, _) = scripted_agent([Reply::text("Hm").hang()], vec![]);
        let run = agent.run("go");
        let handle = run.handle();
        let waiting = tokio::spawn(run.outcome());
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished());
        handle.interrupt_turn();
        check_outcome(&waiting.await.unwrap(), INTERRUPTED_STREAMING, 1);
    }

    #[tokio::test]
    async fn steered_input_follows_the_part_that_was_said() {
        let (agent, model) = scripted_agent([endless_reply(), "Then not.".into()], vec![]);
        let mut run = agent.with_recorder(replays::replaying_recorder()).run("go");
        pull_ready(&mut run);
        let receipt = run.steer("Do not look").unwrap();
        run.interrupt_turn();
        let handle = run.handle();
        let rest = collect_rest(&mut run).await;
        let continued =
            |event: &Event| matches!(event, Event::Continued { reason: Transition::Steering });
        assert_eq!(rest.iter().filter(|event| continued(event)).count(), 1);
        let delivered = rest.iter().find_map(|event| match event {
            Event::Appended { why: AppendReason::Steer, id, .. } => Some(id),
            _ => None,
        });
        assert_eq!(delivered, Some(&receipt.id));
        assert_eq!(handle.delivery_turn(&receipt), Some(2));
        let outcome = final_outcome(&rest);
        check_outcome(outcome, EndReason::Completed, 2);
        assert_eq!((outcome.text.as_str(), outcome.partial), ("Then not.", false));
        let sent = &model.requests()[1].history;
        let texts: Vec<_> = sent.iter().filter_map(Item::as_text).collect();
        assert_eq!(texts, ["Let me look."]);
    }

    #[tokio::test]
    async fn a_follow_up_is_due_after_the_interrupt() {
        let (agent, _) = scripted_agent([endless_reply(), "You are welcome.".into()], vec![]);
        let mut run = agent.run("go");
        pull_ready(&mut run);
        let receipt = run.follow_up("Thanks").unwrap();
        run.interrupt_turn();
        let handle = run.handle();
        let outcome = run.outcome().await;
        check_outcome(&outcome, EndReason::Completed, 2);
        assert_eq!(handle.delivery_turn(&receipt), Some(2));
    }

    #[tokio::test]
    async fn an_interrupt_for_input_that_waits_lets_the_model_read_it() {
        for is_follow_up in [false, true] {
            let (agent, _) = scripted_agent([endless_reply(), "Then not.".into()], vec![]);
            let mut run = agent.run("go");
            pull_ready(&mut run);
            let queue = if is_follow_up { Run::follow_up } else { Run::steer };
            let receipt = queue(&run, "Do not look").unwrap();
            run.interrupt_turn_for(&receipt);
            let handle = run.handle();
            let outcome = run.outcome().await;
            check_outcome(&outcome, EndReason::Completed, 2);
            assert_eq!(outcome.text, "Then not.");
            assert_eq!(handle.delivery_turn(&receipt), Some(2));
        }
    }

    #[tokio::test]
    async fn an_interrupt_for_input_that_was_delivered_does_not_end_its_answer() {
        let answer = Reply::text("Then not. It is as you say, and no other way.");
        let (agent, _) = scripted_agent([endless_reply(), answer], vec![]);
        let mut run = agent.run("go");
        pull_ready(&mut run);
        let receipt = run.steer("Do not look").unwrap();
        run.interrupt_turn_for(&receipt);
        let is_second =
            |event: &Event| event.text_delta().is_some_and(|text| text.contains("Then"));
        pull_until(&mut run, is_second).await;
        run.interrupt_turn_for(&receipt);
        let outcome = run.outcome().await;
        check_outcome(&outcome, EndReason::Completed, 2);
        assert!(outcome.text.ends_with("no other way."));
    }

    #[tokio::test]
    async fn an_interrupt_for_input_of_another_run_does_nothing() {
        let (agent, _) = scripted_agent(["Bye.".into(), Reply::text("Hello to you all.")], vec![]);
        let other = agent.run("go");
        let receipt = other.steer("Do not look").unwrap();
        drop(other);
        let (agent, _) = scripted_agent([Reply::text("Hello to you all.")], vec![]);
        let mut run = agent.run("go");
        pull_until(&mut run, |event: &Event| event.text_delta().is_some()).await;
        run.interrupt_turn_for(&receipt);
        let outcome = run.outcome().await;
        check_outcome(&outcome, EndReason::Completed, 1);
        assert_eq!(outcome.text, "Hello to you all.");
    }

    #[tokio::test]
    async fn input_that_is_delivered_together_with_other_input_is_answered() {
        let (agent, model) = scripted_agent([endless_reply(), "Both.".into()], vec![]);
        let mut run = agent.with_recorder(replays::replaying_recorder()).run("go");
        pull_ready(&mut run);
        run.steer("First").unwrap();
        run.interrupt_turn();
        let is_first = |event: &Event| matches!(event, Event::Appended { .. });
        pull_until(&mut run, is_first).await;
        // No turn is streaming, and the input is delivered before the next one.
        run.steer("Second").unwrap();
        run.interrupt_turn();
        let outcome = run.outcome().await;
        check_outcome(&outcome, EndReason::Completed, 2);
        assert_eq!((outcome.text.as_str(), outcome.undelivered.len()), ("Both.", 0));
        assert_eq!(model.requests().len(), 2);
    }

    #[tokio::test]
    async fn a_server_cannot_pretend_an_interrupt() {
        let reply = Reply::text("All of it.").stop(StopReason::Other("interrupted".to_owned()));
        let (agent, _) = scripted_agent([reply], vec![]);
        let outcome = agent.run("go").outcome().await;
        check_outcome(&outcome, EndReason::Completed, 1);
        assert!(outcome.history.iter().all(|item| !item.interrupted));
    }

    #[tokio::test]
    async fn calls_in_the_part_that_was_said_are_void() {
        let counter = Counter::default();
        for reply in [endless_reply(), reply_calling("c1", "read").say("and").hang()] {
            let (agent, model) =
                scripted_agent([reply, "Then not.".into()], vec![ok_tool("read", &counter)]);
            let mut run = agent.run("go");
            pull_ready(&mut run);
            run.steer("Do not look").unwrap();
            run.interrupt_turn();
            let event = pull_until(&mut run, |event| event.turn_complete().is_some()).await;
            let turn = event.turn_complete().unwrap();
            assert_eq!((turn.tool_calls().count(), turn.calls().len()), (0, 0));
            let outcome = run.outcome().await;
            let kept = tool_calls(outcome.new_items());
            assert_eq!((kept.len(), tool_results(outcome.new_items()).len()), (1, 0));
            for wire in Wire::ALL {
                let sent = encode_and_lint(wire, &model.requests()[1].history).to_string();
                assert!(!sent.contains("c1"), "{wire:?}: {sent}");
            }
        }
        assert_eq!(counter.started_count(), 0);
    }

    #[tokio::test]
    async fn reasoning_and_blank_text_of_the_part_are_never_sent() {
        for reply in [
            Reply::new().think("Perhaps").sign("half").hang(),
            Reply::new().think("Perhaps").sign("half").say(" \n").hang(),
            Reply::new().think_hidden("opaque").hang(),
        ] {
            let (agent, _) = scripted_agent([reply, "Fine.".into()], vec![]);
            let mut run = agent.run("go");
            pull_ready(&mut run);
            run.steer("What?").unwrap();
            run.interrupt_turn();
            let outcome = run.outcome().await;
            check_outcome(&outcome, EndReason::Completed, 2);
            for wire in Wire::ALL {
                let sent = encode_and_lint(wire, &outcome.history).to_string();
                assert!(!sent.contains("Perhaps") && !sent.contains("half"), "{wire:?}: {sent}");
                assert!(!sent.contains("opaque"), "{wire:?}: {sent}");
            }
        }
    }

    #[tokio::test]
    async fn an_interrupt_before_any_output_leaves_no_item() {
        let (agent, model) = scripted_agent([Reply::new().hang(), "Fine.".into()], vec![]);
        let mut run = agent.run("go");
        pull_ready(&mut run);
        run.steer("What?").unwrap();
        run.interrupt_turn();
        let outcome = run.outcome().await;
        check_outcome(&outcome, EndReason::Completed, 2);
        assert_eq!(model.requests()[1].history.len(), 2);
        assert_eq!(outcome.new_items().len(), 3);
    }

    #[tokio::test]
    async fn an_interrupt_ends_one_turn_only() {
        let (agent, _) = scripted_agent([endless_reply(), Reply::text("Second").hang()], vec![]);
        let mut run = agent.run("go");
        pull_ready(&mut run);
        run.steer("Go on").unwrap();
        run.interrupt_turn();
        run.interrupt_turn();
        pull_ready(&mut run);
        assert!(has_text(&run, "Second"), "{:?}", run.history());
        run.interrupt_turn();
        check_outcome(&run.outcome().await, INTERRUPTED_STREAMING, 2);
    }

    #[tokio::test]
    async fn a_turn_that_is_already_complete_is_not_interrupted() {
        let (agent, _) = scripted_agent(["Done.".into()], vec![]);
        let mut run = agent.run("go");
        pull_until(&mut run, |event| event.turn_complete().is_some()).await;
        run.interrupt_turn();
        let outcome = run.outcome().await;
        check_outcome(&outcome, EndReason::Completed, 1);
        assert!(outcome.history.iter().all(|item| !item.interrupted));
    }

    #[tokio::test]
    async fn the_next_run_of_the_history_continues() {
        let (agent, _) = scripted_agent([endless_reply()], vec![]);
        let mut run = agent.run("go");
        pull_ready(&mut run);
        run.interrupt_turn();
        let history = run.outcome().await.history;
        let (agent, model) = scripted_agent(["Yes.".into()], vec![]);
        let outcome = agent.run_from(history, "And now?").outcome().await;
        check_outcome(&outcome, EndReason::Completed, 1);
        assert!(model.requests()[0].history.is_settled());
    }
}

mod interrupt_of_a_turn_while_tools_run {
    //! The model is interrupted while its tools run: the tools finish.

    use super::*;

    /// A run whose tool `slow` has started, and needs ten seconds.
    async fn run_with_slow_tool(agent: &Agent) -> Run {
        let mut run = agent.run("go");
        pull_until(&mut run, is_tool_started).await;
        run
    }

    fn slow_agent(counter: &Counter) -> (Agent, Scripted) {
        let slow = counted_tool("slow", counter, |_| async {
            sleep(Duration::from_secs(10)).await;
            "found".to_owned()
        });
        scripted_agent([reply_calling("c1", "slow"), "Fine.".into()], vec![slow])
    }

    #[tokio::test(start_paused = true)]
    async fn without_input_the_run_ends_once_the_tools_have_finished() {
        let counter = Counter::default();
        let (agent, model) = slow_agent(&counter);
        let agent = agent.with_recorder(replays::replaying_recorder());
        let run = run_with_slow_tool(&agent).await;
        run.interrupt_turn();
        let began = Instant::now();
        let outcome = run.outcome().await;
        check_outcome(&outcome, INTERRUPTED_TOOLS, 1);
        assert_eq!(began.elapsed(), Duration::from_secs(10));
        assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Ok]);
        assert_eq!((model.requests().len(), outcome.partial), (1, true));
    }

    #[tokio::test(start_paused = true)]
    async fn with_input_the_run_continues_after_the_results() {
        let (counter, steers_first) = (Counter::default(), [true, false]);
        for steers_first in steers_first {
            let (agent, model) = slow_agent(&counter);
            let run = run_with_slow_tool(&agent).await;
            if steers_first {
                run.steer("Also this").unwrap();
            }
            run.interrupt_turn();
            if !steers_first {
                run.steer("Also this").unwrap();
            }
            let outcome = run.outcome().await;
            check_outcome(&outcome, EndReason::Completed, 2);
            assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Ok]);
            let sent = &model.requests()[1].history;
            assert_eq!(sent.last().unwrap().as_user().unwrap().text(), "Also this");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_follow_up_is_delivered_after_the_results() {
        let counter = Counter::default();
        let (agent, model) = slow_agent(&counter);
        let run = run_with_slow_tool(&agent.with_recorder(replays::replaying_recorder())).await;
        let receipt = run.follow_up("Also this").unwrap();
        run.interrupt_turn();
        let handle = run.handle();
        let outcome = run.outcome().await;
        check_outcome(&outcome, EndReason::Completed, 2);
        assert_eq!(handle.delivery_turn(&receipt), Some(2));
        let sent = &model.requests()[1].history;
        assert_eq!(sent.last().unwrap().as_user().unwrap().text(), "Also this");
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupt_of_the_run_still_drops_the_tools() {
        let counter = Counter::default();
        let tools = vec![pending_tool("t", &counter)];
        let (agent, _) = scripted_agent([reply_calling("c1", "t")], tools);
        let mut run = agent.run("go");
        pull_until(&mut run, is_tool_started).await;
        run.interrupt_turn();
        pull_ready(&mut run);
        assert_eq!(counter.alive_count(), 1);
        run.interrupt();
        let outcome = run.outcome().await;
        check_outcome(&outcome, INTERRUPTED_TOOLS, 1);
        assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Interrupted]);
    }

    #[tokio::test]
    async fn a_call_that_waits_for_a_verdict_goes_on_waiting() {
        let counter = Counter::default();
        let tool = ok_tool("t", &counter).requires_approval();
        let (agent, _) = scripted_agent([reply_calling("c1", "t"), "Fine.".into()], vec![tool]);
        let mut run = agent.interactive().run("go");
        let asked = pull_until(&mut run, |event| event.approval_request().is_some()).await;
        run.interrupt_turn();
        pull_ready(&mut run);
        run.approve(asked.approval_request().unwrap()).unwrap();
        let outcome = run.outcome().await;
        check_outcome(&outcome, INTERRUPTED_TOOLS, 1);
        assert_eq!(counter.started_count(), 1);
        assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Ok]);
    }

    #[tokio::test]
    async fn the_model_of_a_sub_agent_is_interrupted_by_its_own_handle() {
        let (child, _) = scripted_agent([Reply::text("Half an").hang()], vec![]);
        let helper = child.as_tool("helper", "Helps").unwrap();
        let call = Reply::new().call_raw("c1", "helper", r#"{"prompt":"help"}"#);
        let (agent, _) = scripted_agent([call, "Fine.".into()], vec![helper]);
        let mut run = agent.run("go");
        let is_nested = |event: &Event| match event {
            Event::Nested { event, .. } => event.text_delta().is_some(),
            Event::Tool(turnstream::event::ToolEvent::Nested { event, .. }) => {
                event.text_delta().is_some()
            }
            _ => false,
        };
        pull_until(&mut run, is_nested).await;
        run.handle().sub_agent_handle("c1").unwrap().interrupt_turn();
        let outcome = run.outcome().await;
        check_outcome(&outcome, EndReason::Completed, 2);
        let result = tool_results(outcome.new_items())[0].content.text();
        assert!(result.contains("it was interrupted"), "{result}");
    }
}

mod interrupt_of_a_turn_during_waits {
    //! The model is interrupted before it answers: in a retry delay, in the queue of a pool, before
    //! the first request; and the usage of the interrupted turn.

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_retry_delay_ends_at_once() {
        let busy = Error::new(ErrorKind::Overloaded, "busy").with_status(529);
        let model = Scripted::new([Reply::error(busy), "never".into()]);
        let agent = Agent::new(Retry::new(model.clone()));
        let mut run = agent.with_recorder(replays::replaying_recorder()).run("go");
        let is_retry = |event: &Event| matches!(event, Event::Turn(TurnEvent::Retrying { .. }));
        pull_until(&mut run, is_retry).await;
        run.interrupt_turn();
        let began = Instant::now();
        let outcome = run.outcome().await;
        check_outcome(&outcome, INTERRUPTED_STREAMING, 1);
        assert_eq!((began.elapsed(), model.requests().len()), (Duration::ZERO, 1));
        assert_eq!(outcome.usage, Usage::default(), "the server has refused the request");
    }

    #[tokio::test]
    async fn before_the_first_request_the_run_ends_without_one() {
        let (agent, model) = scripted_agent(["never".into()], vec![]);
        let run = agent.run("go");
        run.interrupt_turn();
        let outcome = run.outcome().await;
        check_outcome(&outcome, INTERRUPTED_STREAMING, 0);
        assert_eq!((model.requests().len(), outcome.new_items().len()), (0, 1));
    }

    /// Interrupts a turn after this reply; returns the usage of the run, and of its second turn.
    async fn usage_after(reply: Reply, agent: impl FnOnce(Agent) -> Agent) -> (Usage, Run) {
        let second = Reply::text("Fine.").usage(token_usage(50, 2));
        let (plain, _) = scripted_agent([reply.hang(), second], vec![]);
        let mut run = agent(plain).run("go");
        pull_ready(&mut run);
        run.steer("Go on").unwrap();
        run.interrupt_turn();
        pull_until(&mut run, |event| event.turn_complete().is_some()).await;
        let usage = run.usage();
        (usage, run)
    }

    #[tokio::test]
    async fn usage_that_was_not_reported_is_estimated_and_marked() {
        let (usage, run) = usage_after(Reply::text("twelve bytes"), |agent| agent).await;
        assert!(usage.input_tokens > 0, "{usage:?}");
        assert_eq!(usage.output_tokens, 3);
        assert_eq!(usage.estimated_tokens, usage.total());
        let outcome = run.outcome().await;
        assert_eq!(outcome.usage, usage + token_usage(50, 2));
    }

    #[tokio::test]
    async fn usage_that_was_reported_is_kept() {
        let said = Reply::text("twelve bytes");
        let reported = TurnEvent::UsageUpdate { usage: token_usage(100, 1) };
        let (usage, _) = usage_after(said.clone().event(reported), |agent| agent).await;
        // The first report of some providers counts one output token.
        assert_eq!((usage.input_tokens, usage.output_tokens), (100, 3));
        assert_eq!(usage.estimated_tokens, 2);
        let reported = TurnEvent::UsageUpdate { usage: token_usage(100, 40) };
        let (usage, _) = usage_after(said.event(reported), |agent| agent).await;
        assert_eq!(usage, token_usage(100, 40));
    }

    #[tokio::test]
    async fn a_pool_is_charged_and_its_reservation_returned() {
        let pool = Pool::new(100_000);
        let budget = Budget::new().with_pool(pool.clone());
        let (usage, run) =
            usage_after(Reply::text("twelve bytes"), |agent| agent.with_budget(budget)).await;
        assert_eq!(pool.used_tokens(), usage.total());
        assert_eq!(pool.reserved_tokens(), 0);
        drop(run);
    }

    #[tokio::test]
    async fn the_cost_of_an_interrupted_turn_is_known_to_be_inexact() {
        let price = Price { input: 1.0, output: 1.0, ..Price::default() };
        let budget = Budget::new().with_prices(Prices::new().with_price("scripted", price));
        let (_, run) =
            usage_after(Reply::text("twelve bytes"), |agent| agent.with_budget(budget)).await;
        let outcome = run.outcome().await;
        let gaps: Vec<_> = outcome.cost_gaps.iter().map(|gap| gap.kind).collect();
        assert!(gaps.contains(&CostGapKind::CutOffTurn), "{gaps:?}");
        assert!(outcome.cost.is_some_and(|cost| cost > 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_in_the_queue_of_a_pool_ends_without_a_request() {
        let pool = Pool::new(100_000).with_max_concurrency(NonZeroUsize::MIN);
        let budget = || Budget::new().with_pool(pool.clone());
        let (first, _) = scripted_agent([Reply::text("Hm").hang()], vec![]);
        let mut first = first.with_budget(budget()).run("go");
        pull_ready(&mut first);
        let (second, model) = scripted_agent(["never".into()], vec![]);
        let mut run = second.with_budget(budget()).run("go");
        pull_ready(&mut run);
        run.interrupt_turn();
        check_outcome(&run.outcome().await, INTERRUPTED_STREAMING, 0);
        drop(first);
        assert_eq!(model.requests().len(), 0);
    }
}
