//! The order of results, and the limits of a run.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use turnstream::agent::{Budget, Limits, Pool};
use turnstream::event::{AppendReason, BudgetKind, EndReason, Transition};
use turnstream::item::ResultKind;
use turnstream::provider::{Reply, Retry, Scripted};
use turnstream::request::ToolChoice;
use turnstream::tool::Tool;
use turnstream::usage::{Price, Prices};
use turnstream::{Agent, Error, ErrorKind, Toolkit, Usage};
use turnstream_testing::Wire;

use turnstream_test_support::items::token_usage;
use turnstream_test_support::models::WireProvider;
use turnstream_test_support::runs::{limits_with_max_turns, reply_calling_t, test_agent};
use turnstream_test_support::tools::{nap_tool, reply_calling_nap, spec, uncounted_tool};
use turnstream_test_support::wires::encode;
use turnstream_test_support::world::{AgentFixture, FinishedRun, finish_run};

mod result_order {
    //! Results are yielded when ready and stored in call order.

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn results_are_yielded_when_ready_and_stored_in_call_order() {
        let reply =
            reply_calling_nap(&[30]).call("nobody", json!({})).call("nap", json!({ "ms": 10 }));
        let model = Scripted::new([reply, "done".into()]);
        let finished = finish_run(test_agent(model).with_tools([nap_tool("nap")]).run("go")).await;
        finished.check_outcome(EndReason::Completed, 2);
        let came = finished.result_texts_by_arrival();
        assert_eq!((came[1].as_str(), came[2].as_str()), ("10", "30"));
        assert!(came[0].contains("nobody"), "a call that does not run is answered first");
        let stand = finished.result_texts();
        assert_eq!((&stand[0], &stand[1], &stand[2]), (&came[2], &came[0], &came[1]));
        assert_eq!(
            finished.result_kinds(),
            [ResultKind::Ok, ResultKind::UnknownTool, ResultKind::Ok]
        );
    }
}

/// A tool that counts how many of its calls run at once.
fn concurrency_counting_tool(name: &str, now: &Arc<AtomicUsize>, most: &Arc<AtomicUsize>) -> Tool {
    let (now, most) = (now.clone(), most.clone());
    let run = move |_, _| {
        let (now, most) = (now.clone(), most.clone());
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(10)).await;
            now.fetch_sub(1, Ordering::Relaxed);
        }
    };
    Tool::raw(spec(name), run).unwrap()
}

mod concurrency {
    //! Concurrent calls are bounded and exclusive calls run alone.

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn concurrency_is_bounded() {
        for (at_once, expected) in [(None, 4), (NonZeroUsize::new(2), 2), (NonZeroUsize::new(9), 6)]
        {
            let (now, most) = (Arc::default(), Arc::default());
            let kit = Toolkit::new([concurrency_counting_tool("busy", &now, &most)]);
            let kit = at_once.map_or(kit.clone(), |at_once| kit.with_max_concurrency(at_once));
            let six = (0..6).fold(Reply::new(), |reply, _| reply.call("busy", json!({})));
            let model = Scripted::new([six, "done".into()]);
            finish_run(test_agent(model).with_toolkit(kit).run("go"))
                .await
                .check_outcome(EndReason::Completed, 2);
            assert_eq!(most.load(Ordering::Relaxed), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_exclusive_call_runs_alone_between_its_neighbours() {
        let (now, most, alone) = (Arc::default(), Arc::default(), Arc::default());
        let tools = [
            concurrency_counting_tool("safe", &now, &most),
            concurrency_counting_tool("only", &now, &alone).exclusive(),
        ];
        let names = ["safe", "safe", "only", "only", "safe", "safe"];
        let batch = names.iter().fold(Reply::new(), |reply, name| reply.call(name, json!({})));
        let began = Instant::now();
        let model = Scripted::new([batch, "done".into()]);
        let finished = finish_run(test_agent(model).with_tools(tools).run("go")).await;
        finished.check_outcome(EndReason::Completed, 2);
        assert_eq!(most.load(Ordering::Relaxed), 2, "safe ones run together");
        assert_eq!(alone.load(Ordering::Relaxed), 1, "an exclusive call runs alone");
        assert_eq!(began.elapsed(), Duration::from_millis(40), "four segments of ten");
    }
}

mod turn_limit {
    //! At the turn limit the last tools run, or a wrap-up turn is reserved.

    use super::*;

    #[tokio::test]
    async fn at_the_turn_limit_the_last_tools_run_and_nothing_is_pending() {
        let world = AgentFixture::from_model(Scripted::from_fn(|_, _| reply_calling_t("c")))
            .map_agent(|agent| agent.with_limits(limits_with_max_turns(3)));
        let finished = world.run().await;
        finished.check_outcome(EndReason::MaxTurns, 3);
        assert_eq!((world.tool_run_count(), world.request_count()), (3, 3));
        assert!(finished.outcome.partial && finished.outcome.pending.is_empty());
        assert_eq!(finished.result_kinds(), [ResultKind::Ok; 3]);
        assert_eq!(finished.outcome.error, None);
    }

    #[tokio::test]
    async fn a_wrap_up_turn_lists_its_tools_with_tool_choice_none() {
        let world = AgentFixture::new([
            reply_calling_t("a"),
            reply_calling_t("b"),
            "what I have".into(),
            "never".into(),
        ])
        .map_agent(|agent| {
            agent.with_limits(limits_with_max_turns(3)).with_budget(Budget::new().with_wrap_up())
        });
        let finished = world.run().await;
        finished.check_outcome(EndReason::MaxTurns, 3);
        assert_eq!((finished.text(), world.tool_run_count()), ("what I have", 2));
        assert!(finished.outcome.partial);
        assert_eq!(finished.transitions(), [Transition::NextTurn, Transition::WrapUp]);
        assert_eq!(finished.appended_texts(AppendReason::WrapUp).len(), 1);
        let requests = world.model.requests();
        let choices: Vec<_> = requests.iter().map(|it| it.options.tool_choice.clone()).collect();
        assert_eq!(choices, [ToolChoice::Auto, ToolChoice::Auto, ToolChoice::None]);
        assert!(requests.iter().all(|request| request.tools == requests[0].tools));
        for wire in Wire::ALL {
            let body = encode(wire, "m", &requests[2]);
            if wire == Wire::Ollama {
                // The wire has no setting that disables tools, so they are left out.
                assert_eq!((&body["tools"], &body["tool_choice"]), (&json!(null), &json!(null)));
                continue;
            }
            let body = body.to_string();
            assert!(body.contains("\"name\":\"t\""), "{wire} lists the tools: {body}");
            assert!(body.to_lowercase().contains("none"), "{wire} disables them: {body}");
        }
    }

    #[tokio::test]
    async fn calls_in_the_wrap_up_turn_are_answered_without_running() {
        let world = AgentFixture::from_model(Scripted::from_fn(|_, _| reply_calling_t("c")))
            .map_agent(|agent| {
                agent
                    .with_limits(limits_with_max_turns(3))
                    .with_budget(Budget::new().with_wrap_up())
            });
        let finished = world.run().await;
        finished.check_outcome(EndReason::MaxTurns, 3);
        assert_eq!(finished.result_kinds(), [ResultKind::Ok, ResultKind::Ok, ResultKind::Budget]);
        assert_eq!(world.tool_run_count(), 2);
    }

    #[tokio::test]
    async fn a_limit_of_one_turn_leaves_no_wrap_up_turn() {
        let world = AgentFixture::new(["hi".into()]).map_agent(|agent| {
            agent.with_limits(limits_with_max_turns(1)).with_budget(Budget::new().with_wrap_up())
        });
        let finished = world.run().await;
        finished.check_outcome(EndReason::Completed, 1);
        assert_eq!(world.model.requests()[0].options.tool_choice, ToolChoice::Auto);
    }
}

fn with_budget(budget: Budget) -> impl FnOnce(Agent) -> Agent {
    move |agent| agent.with_budget(budget)
}

#[track_caller]
fn assert_budget_exceeded(finished: &FinishedRun, kind: BudgetKind, used: u64, limit: u64) {
    assert_eq!(finished.outcome.reason, EndReason::Budget, "{:?}", finished.outcome.error);
    assert!(finished.outcome.partial && finished.outcome.error.is_none());
    let budget = finished.outcome.budget.as_ref().expect("it says which");
    assert_eq!((budget.kind, budget.used, budget.limit), (kind, used, limit));
}

mod call_limit {
    //! Calls beyond the call limit are answered without running.

    use super::*;

    #[tokio::test]
    async fn calls_beyond_the_call_limit_are_answered_without_running() {
        let two = || reply_calling_t("a").call("t", json!({}));
        let three = two().call("t", json!({}));
        let world = AgentFixture::new([two(), three, "never".into()])
            .map_agent(with_budget(Budget::new().with_tool_calls(4)));
        let finished = world.run().await;
        assert_budget_exceeded(&finished, BudgetKind::ToolCalls, 4, 4);
        let (ok, budget_) = (ResultKind::Ok, ResultKind::Budget);
        assert_eq!(finished.result_kinds(), [ok, ok, ok, ok, budget_]);
        assert_eq!(
            (world.tool_run_count(), world.request_count(), finished.outcome.turns),
            (4, 2, 2)
        );
    }

    #[tokio::test]
    async fn after_the_last_allowed_call_the_model_may_still_answer() {
        let world = AgentFixture::new([reply_calling_t("a").call("t", json!({})), "done".into()])
            .map_agent(with_budget(Budget::new().with_tool_calls(2)));
        let finished = world.run().await;
        finished.check_outcome(EndReason::Completed, 2);
        assert_eq!(
            (finished.text(), world.tool_run_count(), finished.outcome.budget.as_ref()),
            ("done", 2, None)
        );
    }

    #[tokio::test]
    async fn calls_that_never_ran_are_not_counted() {
        let wrong = Reply::new().call("nobody", json!({}));
        let world = AgentFixture::new([wrong, reply_calling_t("a"), "done".into()])
            .map_agent(with_budget(Budget::new().with_tool_calls(1)));
        world.run().await.check_outcome(EndReason::Completed, 3);
        assert_eq!(world.tool_run_count(), 1);
    }

    #[tokio::test]
    async fn a_wrap_up_turn_after_the_call_limit_still_names_the_budget() {
        let world =
            AgentFixture::new([reply_calling_t("a"), reply_calling_t("b"), "what I have".into()])
                .map_agent(with_budget(Budget::new().with_tool_calls(1).with_wrap_up()));
        let finished = world.run().await;
        assert_budget_exceeded(&finished, BudgetKind::ToolCalls, 1, 1);
        assert_eq!((finished.text(), world.tool_run_count()), ("what I have", 1));
    }
}

mod budgets {
    //! Token, cost and time budgets, alone and shared in a pool.

    use super::*;

    #[tokio::test]
    async fn a_response_that_crosses_a_limit_is_kept_and_its_calls_do_not_start() {
        for (limits, kind, used) in [
            (Budget::new().with_output_tokens(100), BudgetKind::OutputTokens, 120),
            (Budget::new().with_total_tokens(500), BudgetKind::TotalTokens, 520),
        ] {
            let crossing =
                Reply::text("paid for").call_raw("b", "t", "{}").usage(token_usage(300, 60));
            let world = AgentFixture::new([
                reply_calling_t("a").usage(token_usage(100, 60)),
                crossing,
                "never".into(),
            ])
            .map_agent(with_budget(limits));
            let finished = world.run().await;
            let limit = if kind == BudgetKind::OutputTokens { 100 } else { 500 };
            assert_budget_exceeded(&finished, kind, used, limit);
            assert_eq!(
                (finished.text(), world.tool_run_count(), world.request_count()),
                ("paid for", 1, 2)
            );
            assert_eq!(finished.result_kinds(), [ResultKind::Ok, ResultKind::Budget]);
            assert_eq!(finished.outcome.usage, token_usage(400, 120));
        }
    }

    #[tokio::test]
    async fn a_final_answer_that_crosses_a_limit_completes_the_run() {
        let world = AgentFixture::new([Reply::text("done").usage(token_usage(1, 100))])
            .map_agent(with_budget(Budget::new().with_output_tokens(50)));
        let finished = world.run().await;
        finished.check_outcome(EndReason::Completed, 1);
        assert_eq!(finished.text(), "done");
        assert_eq!(finished.outcome.budget, None, "no budget ended it");
    }

    #[tokio::test]
    async fn cached_and_reasoning_tokens_count() {
        let usage = Usage {
            input_tokens: 400,
            output_tokens: 100,
            cache_read_input_tokens: 390,
            cache_write_input_tokens: 5,
            reasoning_tokens: 95,
            ..Usage::default()
        };
        for limits in [Budget::new().with_total_tokens(500), Budget::new().with_output_tokens(100)]
        {
            let world = AgentFixture::new([reply_calling_t("a").usage(usage)])
                .map_agent(with_budget(limits));
            world.run().await.check_outcome(EndReason::Budget, 1);
            assert_eq!(world.tool_run_count(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_of_retracted_attempts_count() {
        let busy = || Error::new(ErrorKind::Overloaded, "busy");
        let void = || Reply::text("void").usage(token_usage(300, 10)).fail(busy());
        let limits = || Budget::new().with_total_tokens(700);
        // With a provider that retries.
        let model =
            Scripted::new([void(), void(), reply_calling_t("a").usage(token_usage(100, 10))]);
        let agent_ =
            test_agent(Retry::new(model).with_retraction()).with_tools([uncounted_tool("t")]);
        let told_ = finish_run(agent_.with_budget(limits()).run("go")).await;
        assert_budget_exceeded(&told_, BudgetKind::TotalTokens, 730, 700);
        assert_eq!(told_.result_kinds(), [ResultKind::Budget]);
        // With the agent's own retries.
        let world =
            AgentFixture::new([void(), void(), reply_calling_t("a").usage(token_usage(100, 10))])
                .map_agent(with_budget(limits()))
                .map_agent(|agent| {
                    agent.with_limits(Limits { max_turn_retries: 2, ..Limits::default() })
                });
        let finished = world.run().await;
        assert_budget_exceeded(&finished, BudgetKind::TotalTokens, 730, 700);
        assert_eq!(finished.outcome.turns, 3);
    }

    #[tokio::test]
    async fn cost_is_computed_from_the_configured_prices() {
        let price = Price { input: 1.0, output: 10.0, cache_read: 0.1, cache_write: 2.0 };
        let prices = || Prices::new().with_price("scripted", price);
        let usage = Usage { cache_read_input_tokens: 100, ..token_usage(200, 30) };
        // 100 fresh tokens, 100 cached ones at a tenth of the price, 30 output tokens: 100 + 10 +
        // 300 millionths.
        let world = AgentFixture::new([
            reply_calling_t("a").usage(usage),
            reply_calling_t("b").usage(usage),
            "never".into(),
        ])
        .map_agent(with_budget(Budget::new().with_cost_limit(0.000_8, prices())));
        let finished = world.run().await;
        assert_budget_exceeded(&finished, BudgetKind::Money, 820, 800);
        assert_eq!((world.tool_run_count(), world.request_count()), (1, 2));
    }

    #[tokio::test]
    async fn a_model_without_a_price_is_an_error_and_not_free() {
        let world = AgentFixture::new([reply_calling_t("a")])
            .map_agent(with_budget(Budget::new().with_cost_limit(1.0, Prices::new())));
        let finished = world.run().await;
        finished.check_outcome(EndReason::ProviderError, 0);
        assert_eq!(finished.outcome.error.as_ref().unwrap().kind(), ErrorKind::InvalidRequest);
        assert_eq!(world.request_count(), 0, "nothing was sent");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tool_running_at_the_time_limit_is_dropped_and_answered_as_timed_out() {
        let model = Scripted::new([reply_calling_nap(&[900]), "never".into()]);
        let agent = test_agent(model.clone()).with_tools([nap_tool("nap")]);
        let finished = finish_run(
            agent.with_budget(Budget::new().with_time_limit(Duration::from_millis(500))).run("go"),
        )
        .await;
        assert_budget_exceeded(&finished, BudgetKind::Time, 500, 500);
        assert_eq!(
            (finished.result_kinds(), model.requests().len()),
            (vec![ResultKind::Timeout], 1)
        );
        assert!(finished.result_texts()[0].contains("may have taken effect in part"));
    }

    #[tokio::test]
    async fn parent_and_sub_agents_share_one_pool() {
        let pool = Pool::new(1_000);
        let shared = || Budget::new().with_pool(pool.clone());
        let child = Scripted::new([Reply::text("found").usage(token_usage(800, 100))]);
        let child = test_agent(child).with_budget(shared()).as_tool("child", "d").unwrap();
        let ask =
            Reply::new().call("child", json!({ "prompt": "look" })).usage(token_usage(90, 20));
        let model = Scripted::new([ask, "never".into()]);
        let finished = finish_run(
            test_agent(model.clone()).with_tools([child]).with_budget(shared()).run("go"),
        )
        .await;
        assert_budget_exceeded(&finished, BudgetKind::Pool, 1_010, 1_000);
        assert_eq!((pool.used_tokens(), model.requests().len()), (1_010, 1));
        assert_eq!(finished.result_texts(), ["found"], "what was paid for is there");
        assert_eq!(*finished.outcome.nested_usage, token_usage(800, 100));
        assert_eq!(finished.outcome.usage, token_usage(90, 20));
    }

    #[tokio::test]
    async fn a_sub_agent_stops_when_its_parent_has_exhausted_the_pool() {
        let pool = Pool::new(100);
        let shared = || Budget::new().with_pool(pool.clone());
        let child = Scripted::new([reply_calling_t("x").usage(token_usage(60, 0)), "never".into()]);
        let child_agent =
            test_agent(child.clone()).with_tools([uncounted_tool("t")]).with_budget(shared());
        let ask = Reply::new().call("child", json!({ "prompt": "look" })).usage(token_usage(50, 0));
        let model = Scripted::new([ask, "never".into()]);
        let parent = test_agent(model).with_tools([child_agent.as_tool("child", "d").unwrap()]);
        let finished = finish_run(parent.with_budget(shared()).run("go")).await;
        assert_budget_exceeded(&finished, BudgetKind::Pool, 110, 100);
        assert_eq!(child.requests().len(), 1);
        assert!(
            finished.result_texts()[0].contains("budget was spent"),
            "{:?}",
            finished.result_texts()
        );
    }
}

mod missing_or_repeated_usage {
    //! Usage that is missing, late or reported twice.

    use super::*;

    #[tokio::test]
    async fn a_request_without_usage_still_counts() {
        let world = AgentFixture::from_model(Scripted::from_fn(|_, _| reply_calling_t("c")))
            .map_agent(|agent| {
                agent
                    .with_limits(limits_with_max_turns(2))
                    .with_budget(Budget::new().with_total_tokens(10))
            });
        let finished = world.run().await;
        finished.check_outcome(EndReason::MaxTurns, 2);
        assert_eq!(finished.outcome.usage, Usage::default());
    }

    #[tokio::test]
    async fn repeated_usage_replaces_and_never_adds() {
        let reply = reply_calling_t("c")
            .usage(token_usage(10, 1))
            .usage(token_usage(10, 5))
            .usage(token_usage(12, 9));
        let finished =
            AgentFixture::new([reply, Reply::text("x").usage(token_usage(20, 1))]).run().await;
        assert_eq!(finished.outcome.usage, token_usage(32, 10));
    }

    #[tokio::test]
    async fn late_or_missing_usage_is_not_an_error_on_any_wire() {
        for wire in Wire::ALL {
            let model = WireProvider::new(wire, "m", ["hello"]);
            finish_run(test_agent(model).run("go")).await.check_outcome(EndReason::Completed, 1);
        }
    }
}
