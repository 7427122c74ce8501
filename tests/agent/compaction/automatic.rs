//! An agent that compacts its history before its window is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use turnstream::agent::{Budget, Limits, hook};
use turnstream::context::{
    Compaction, Compactor, Summarizer, Truncator, Window, compactor_fn, was_reactively_compacted,
};
use turnstream::event::{BudgetKind, EndReason};
use turnstream::item::ItemFlag;
use turnstream::provider::{Reply, Scripted};
use turnstream::request::Options;
use turnstream::turn::StopReason;
use turnstream::usage::{Price, Prices};
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Toolkit};

use super::{compaction_order, failure_log_hook, look_call_reply, look_tool, run_to_end};
use turnstream_test_support::items::{
    history_of, message_texts, round_trip_json, session_items, token_usage,
};
use turnstream_test_support::runs::{limits_with_max_turns, limits_without_retries};

/// An agent whose requests are near the window from 800 tokens on.
fn agent_near_window(model: &Scripted, compactor: impl Compactor + 'static) -> Agent {
    Agent::new(model.clone())
        .with_tools([look_tool(120)])
        .with_window(Window::new(1_000))
        .with_compactor(compactor)
}

fn scripted_summarizer(replies: impl IntoIterator<Item = Reply>) -> (Summarizer, Scripted) {
    let model = Scripted::new(replies).with_model("cheap");
    (Summarizer::new(model.clone()).with_keep_turns(1), model)
}

fn summary_reply() -> Reply {
    Reply::text("The name is Ada.").usage(token_usage(50, 5))
}

/// A compactor that counts how many times it is called.
fn counting_compactor<C: Compactor + 'static>(
    compactor: C,
) -> (Arc<AtomicUsize>, impl Compactor + 'static) {
    struct CountingCompactor<C>(Arc<AtomicUsize>, C);
    impl<C: Compactor> Compactor for CountingCompactor<C> {
        fn compact(
            &self,
            history: &History,
        ) -> futures::future::BoxFuture<'static, Result<Option<Compaction>, Error>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            self.1.compact(history)
        }
    }
    let asked = Arc::new(AtomicUsize::new(0));
    (asked.clone(), CountingCompactor(asked, compactor))
}

#[tokio::test]
async fn the_history_is_summarised_before_the_request_that_nears_the_window() {
    let model = Scripted::new([
        look_call_reply(token_usage(300, 10)),
        look_call_reply(token_usage(700, 10)),
        look_call_reply(token_usage(800, 10)),
        Reply::text("You are Ada.").usage(token_usage(200, 10)),
    ]);
    let (summarize, cheap) = scripted_summarizer([summary_reply()]);
    let (events, outcome) = run_to_end(agent_near_window(&model, summarize).run("I am Ada.")).await;
    assert_eq!(
        (compaction_order(&events).as_str(), outcome.reason),
        ("tttct", EndReason::Completed)
    );
    assert_eq!(outcome.usage, token_usage(2_050, 45), "the summary counts");
    let rewritten = events.iter().find_map(|event| match event {
        Event::Rewritten { usage, .. } => Some(**usage),
        _ => None,
    });
    assert_eq!(rewritten, Some(token_usage(50, 5)));
    let last = &model.requests()[3].history;
    assert!(message_texts(last)[0].ends_with("The name is Ada."));
    assert_eq!(message_texts(last)[1..], ["I am Ada.", "Let me look."]);
    assert_eq!((cheap.requests().len(), outcome.turns), (1, 4));
    assert!(!was_reactively_compacted(&outcome.history), "it did not have to fail first");
}

#[tokio::test]
async fn below_the_threshold_or_without_a_window_the_compactor_is_not_called() {
    let replies = || {
        [
            look_call_reply(token_usage(750, 10)),
            look_call_reply(token_usage(750, 10)),
            "done".into(),
        ]
    };
    let (asked, never) = counting_compactor(Truncator::new());
    let model = Scripted::new(replies());
    let (events, _) = run_to_end(agent_near_window(&model, never).run("go")).await;
    assert_eq!((compaction_order(&events).as_str(), asked.load(Ordering::Relaxed)), ("ttt", 0));
    // The same with a larger output limit.
    let (asked, some) = counting_compactor(Truncator::new());
    let model = Scripted::new(replies());
    run_to_end(
        agent_near_window(&model, some)
            .with_options(Options { max_output_tokens: Some(300), ..Options::default() })
            .run("go"),
    )
    .await;
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let model = Scripted::new([look_call_reply(token_usage(9_000, 10)), "done".into()]);
    let (asked, never) = counting_compactor(Truncator::new());
    let agent = Agent::new(model).with_tools([look_tool(4)]).with_compactor(never);
    run_to_end(agent.run("go")).await;
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    let model = Scripted::new([look_call_reply(token_usage(9_000, 10)), "done".into()]);
    let (_, never) = counting_compactor(Truncator::new());
    let (events, _) =
        run_to_end(self::agent_near_window(&model, never).without_compactor().run("go")).await;
    assert_eq!(compaction_order(&events), "tt");
}

#[tokio::test]
async fn automatic_compaction_runs_each_time_the_window_fills_up() {
    let full = || look_call_reply(token_usage(850, 10));
    let model = Scripted::new([
        look_call_reply(token_usage(100, 1)),
        full(),
        look_call_reply(token_usage(300, 1)),
        full(),
        Reply::text("done").usage(token_usage(300, 1)),
    ]);
    let (summarize, cheap) =
        scripted_summarizer([summary_reply(), summary_reply(), summary_reply()]);
    let (events, _) = run_to_end(agent_near_window(&model, summarize).run("go")).await;
    assert_eq!((compaction_order(&events).as_str(), cheap.requests().len()), ("ttcttct", 2));
}

#[tokio::test]
async fn a_stored_history_is_compacted_before_the_first_request() {
    let mut long = session_items(3);
    long.push(Item::user("x".repeat(4_000)));
    long.push(Item::text("I have read it."));
    let model = Scripted::new(["done"]);
    let (summarize, _) = scripted_summarizer([summary_reply()]);
    let run =
        agent_near_window(&model, summarize).run_from(round_trip_json(&history_of(long)), "go");
    assert_eq!(compaction_order(&run_to_end(run).await.0), "ct");
}

#[tokio::test]
async fn usage_from_before_a_compaction_does_not_trigger_another() {
    let model = Scripted::new([
        look_call_reply(token_usage(100, 1)),
        look_call_reply(token_usage(990, 10)),
        // A server that reports no usage: the earlier count no longer applies to the history.
        look_call_reply(token_usage(0, 0)),
        look_call_reply(token_usage(0, 0)),
        "done".into(),
        "more".into(),
    ]);
    let (summarize, cheap) = scripted_summarizer([summary_reply(), summary_reply()]);
    let agent = agent_near_window(&model, summarize);
    let (events, outcome) = run_to_end(agent.run("go")).await;
    assert_eq!(compaction_order(&events), "ttcttt");
    let (events, _) = run_to_end(agent.run_from(round_trip_json(&outcome.history), "on")).await;
    assert_eq!(compaction_order(&events), "t");
    assert_eq!(cheap.requests().len(), 1);
}

#[tokio::test]
async fn a_fruitless_compaction_is_not_retried_until_the_request_has_grown() {
    let model = Scripted::new([
        look_call_reply(token_usage(800, 10)),
        look_call_reply(token_usage(820, 10)),
        look_call_reply(token_usage(850, 10)),
        look_call_reply(token_usage(870, 10)),
        "done".into(),
    ]);
    let (asked, fails) =
        counting_compactor(compactor_fn(|_: &History| Err(Error::new(ErrorKind::Other, "no"))));
    let (seen, failure) = failure_log_hook();
    let (events, outcome) =
        run_to_end(agent_near_window(&model, fails).with_hook(failure).run("go")).await;
    assert_eq!(
        (compaction_order(&events).as_str(), outcome.reason),
        ("ttttt", EndReason::Completed)
    );
    // Compactions run at 844, with 34 tokens for the result, and at 914, but not at 864 and 894.
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    assert_eq!(*seen.lock().unwrap(), [ErrorKind::Other; 2]);
}

#[tokio::test]
async fn the_usage_of_a_failed_summary_is_counted_and_the_history_is_unchanged() {
    let model = Scripted::new([
        look_call_reply(token_usage(10, 1)),
        look_call_reply(token_usage(800, 10)),
        "done".into(),
    ]);
    let (summarize, _) = scripted_summarizer([summary_reply().stop(StopReason::MaxTokens)]);
    let (seen, failure) = failure_log_hook();
    let (events, outcome) =
        run_to_end(agent_near_window(&model, summarize).with_hook(failure).run("go")).await;
    assert_eq!((compaction_order(&events).as_str(), outcome.usage), ("tt0t", token_usage(860, 16)));
    assert_eq!(*seen.lock().unwrap(), [ErrorKind::GenerationFailed]);
    assert!(!outcome.history.iter().any(|item| item.compacted));
    assert_eq!(model.requests()[2].history.len(), 7);
}

async fn assert_compaction_fails(compactor: impl Compactor + 'static, kind: ErrorKind) {
    let model = Scripted::new([look_call_reply(token_usage(900, 10)), "done".into()]);
    let (seen, failure) = failure_log_hook();
    let agent = agent_near_window(&model, compactor).with_hook(failure);
    assert_eq!(compaction_order(&run_to_end(agent.run("go")).await.0), "tt");
    assert_eq!(*seen.lock().unwrap(), [kind]);
}

#[tokio::test]
async fn a_compaction_that_does_not_shorten_is_rejected() {
    let longer = compactor_fn(|history: &History| {
        let mut items: Vec<Item> = history.iter().cloned().collect();
        items.insert(0, Item::user("And so on.").with_flag(ItemFlag::Compacted));
        Ok(Some(Compaction::new(0, history.len(), items)))
    });
    let parting = compactor_fn(|history: &History| {
        let to = history.iter().position(|item| item.as_tool_call().is_some()).unwrap() + 1;
        Ok(Some(Compaction::new(0, to, vec![])))
    });
    let panics = compactor_fn(|_: &History| panic!("no"));
    assert_compaction_fails(longer, ErrorKind::InvalidRequest).await;
    assert_compaction_fails(parting, ErrorKind::InvalidRequest).await;
    assert_compaction_fails(panics, ErrorKind::Panic).await;
}

#[tokio::test]
async fn a_model_is_asked_only_if_shortening_by_rule_is_not_enough() {
    let run = async |bytes: usize| {
        let model = Scripted::new([
            look_call_reply(token_usage(300, 1)),
            look_call_reply(token_usage(450, 10)),
            Reply::text("done").usage(token_usage(1, 1)),
        ]);
        let (summarize, cheap) = scripted_summarizer([summary_reply()]);
        let chain = Truncator { keep_turns: 1, max_result_bytes: Some(400), ..Truncator::new() }
            .or_else(summarize);
        let agent = agent_near_window(&model, chain).with_toolkit(Toolkit::new([look_tool(bytes)]));
        let (events, outcome) = run_to_end(agent.run("go ".repeat(30))).await;
        assert_eq!(outcome.reason, EndReason::Completed);
        (compaction_order(&events), cheap.requests().len())
    };
    assert_eq!(run(1_600).await, ("ttct".to_owned(), 0));
    // The newest result still has 800 tokens.
    assert_eq!(run(90_000).await.1, 1);
}

#[tokio::test]
async fn queued_input_survives_an_automatic_compaction() {
    let model = Scripted::new([
        look_call_reply(token_usage(10, 1)),
        look_call_reply(token_usage(900, 10)),
        "done".into(),
        Reply::text("bye").usage(token_usage(20, 1)),
    ]);
    let (summarize, _) = scripted_summarizer([summary_reply()]);
    let mut run = agent_near_window(&model, summarize).run("go");
    while let Some(event) = run.next().await {
        match event.unwrap() {
            Event::TurnStarted { turn: 2, .. } => drop(run.steer("be brief").unwrap()),
            Event::Rewritten { .. } => drop(run.follow_up("thanks").unwrap()),
            Event::Finished(outcome) => {
                assert_eq!(outcome.reason, EndReason::Completed);
                assert!(outcome.undelivered.is_empty());
                let said = message_texts(&outcome.history);
                assert_eq!(said[said.len() - 4..], ["be brief", "done", "thanks", "bye"]);
            }
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_compactor_that_takes_too_long_is_dropped_and_the_request_is_sent() {
    let model = Scripted::new([
        look_call_reply(token_usage(10, 1)),
        look_call_reply(token_usage(900, 10)),
        "done".into(),
    ]);
    let (summarize, cheap) = scripted_summarizer([summary_reply().delay(Duration::from_secs(121))]);
    let (seen, failure) = failure_log_hook();
    let agent = agent_near_window(&model, summarize).with_hook(failure);
    let begun = tokio::time::Instant::now();
    assert_eq!(compaction_order(&run_to_end(agent.clone().run("go")).await.0), "ttt");
    assert_eq!(begun.elapsed(), Duration::from_mins(2));
    assert_eq!(
        (cheap.in_flight(), seen.lock().unwrap().as_slice()),
        (0, &[ErrorKind::Timeout][..])
    );

    let model = Scripted::new([
        look_call_reply(token_usage(10, 1)),
        look_call_reply(token_usage(900, 10)),
        "done".into(),
    ]);
    let (summarize, _) = scripted_summarizer([summary_reply().delay(Duration::from_secs(200))]);
    let agent = self::agent_near_window(&model, summarize).with_limits(Limits {
        compactor_timeout: Some(Duration::from_mins(5)),
        ..limits_without_retries()
    });
    assert_eq!(compaction_order(&run_to_end(agent.run("go")).await.0), "ttct");
}

#[tokio::test(start_paused = true)]
async fn dropping_or_interrupting_the_run_drops_the_summary_request() {
    for interrupt in [true, false] {
        let model = Scripted::new([
            look_call_reply(token_usage(10, 1)),
            look_call_reply(token_usage(900, 10)),
            "never".into(),
        ]);
        let (summarize, cheap) =
            scripted_summarizer([summary_reply().delay(Duration::from_mins(1))]);
        let mut run = agent_near_window(&model, summarize).run("go");
        let handle = run.handle();
        let mut events = Vec::new();
        // No further event is ready until the summary is awaited.
        while let std::task::Poll::Ready(Some(event)) = futures::poll!(run.next()) {
            events.push(event.unwrap());
        }
        assert_eq!((compaction_order(&events).as_str(), cheap.in_flight()), ("tt", 1));
        if interrupt {
            run.interrupt();
            let outcome = run.outcome().await;
            assert!(matches!(outcome.reason, EndReason::Interrupted(_)));
        } else {
            drop(run);
        }
        assert_eq!((cheap.in_flight(), model.requests().len()), (0, 2));
        assert!(handle.history().is_settled() && handle.history().len() == 7);
    }
}

#[tokio::test]
async fn a_budget_that_the_summary_crosses_ends_the_run_before_the_request() {
    let model = Scripted::new([
        look_call_reply(token_usage(10, 1)),
        look_call_reply(token_usage(900, 10)),
        "never".into(),
    ]);
    let (summarize, _) = scripted_summarizer([summary_reply()]);
    let agent =
        agent_near_window(&model, summarize).with_budget(Budget::new().with_total_tokens(940));
    let (events, outcome) = run_to_end(agent.run("go")).await;
    assert_eq!((compaction_order(&events).as_str(), outcome.reason), ("ttc", EndReason::Budget));
    assert_eq!(outcome.budget.unwrap().kind, BudgetKind::TotalTokens);
    assert!(outcome.history.is_settled());
}

#[tokio::test]
async fn a_summary_is_priced_by_the_model_that_wrote_it() {
    let price = |input| Price { input, ..Price::default() };
    let prices = Prices::new().with_price("scripted", price(100.0)).with_price("cheap", price(1.0));
    let model = Scripted::new([
        look_call_reply(token_usage(10, 0)),
        look_call_reply(token_usage(900, 0)),
        "done".into(),
    ]);
    let (summarize, _) = scripted_summarizer([Reply::text("Ada.").usage(token_usage(50, 0))]);
    let agent = agent_near_window(&model, summarize)
        .with_budget(Budget::new().with_cost_limit(9.0, prices));
    let (_, outcome) = run_to_end(agent.run("go")).await;
    assert_eq!(outcome.cost, Some(910 * 100 + 50));
}

#[tokio::test]
async fn reactive_compaction_happens_once_regardless_of_automatic_compactions() {
    let full = || Reply::error(Error::new(ErrorKind::ContextWindow, "too long"));
    let model = Scripted::new([
        look_call_reply(token_usage(10, 1)),
        look_call_reply(token_usage(900, 10)),
        look_call_reply(token_usage(20, 1)),
        full(),
        look_call_reply(token_usage(30, 1)),
        look_call_reply(token_usage(900, 10)),
        full(),
        "never".into(),
    ]);
    let (summarize, cheap) =
        scripted_summarizer([summary_reply(), summary_reply(), summary_reply(), summary_reply()]);
    let (events, outcome) = run_to_end(agent_near_window(&model, summarize).run("go")).await;
    assert_eq!(compaction_order(&events), "ttcttcttct");
    assert_eq!((outcome.reason, cheap.requests().len()), (EndReason::ContextWindow, 3));
    assert!(was_reactively_compacted(&outcome.history), "a summary does not lose the note");
}

#[tokio::test]
async fn a_failed_reactive_summary_is_counted_and_the_run_ends_with_the_overflow_error() {
    let full = Error::new(ErrorKind::ContextWindow, "too long");
    let model = Scripted::new([
        look_call_reply(token_usage(10, 1)),
        look_call_reply(token_usage(10, 1)),
        Reply::error(full.clone()),
        "never".into(),
    ]);
    let (summarize, _) = scripted_summarizer([summary_reply().stop(StopReason::Refusal)]);
    let (events, outcome) = run_to_end(agent_near_window(&model, summarize).run("go")).await;
    assert_eq!(
        (compaction_order(&events).as_str(), outcome.reason),
        ("ttt0", EndReason::ContextWindow)
    );
    assert_eq!((outcome.error, outcome.usage), (Some(full), token_usage(70, 7)));

    // The same if the overflow is reported by a turn.
    let model = Scripted::new([
        look_call_reply(token_usage(10, 1)),
        look_call_reply(token_usage(10, 1)),
        Reply::text("so").stop(StopReason::ContextWindow),
        "never".into(),
    ]);
    let (summarize, _) = scripted_summarizer([summary_reply().stop(StopReason::Refusal)]);
    let (events, outcome) = run_to_end(agent_near_window(&model, summarize).run("go")).await;
    assert_eq!(
        (compaction_order(&events).as_str(), outcome.reason),
        ("ttt0", EndReason::ContextWindow)
    );
    assert_eq!((outcome.error, outcome.usage), (None, token_usage(70, 7)));
}

#[tokio::test]
async fn reported_usage_accounts_for_hooks_that_shrink_the_request() {
    // The history is long, but the request is short.
    let model = Scripted::new([
        look_call_reply(token_usage(90, 1)),
        look_call_reply(token_usage(95, 1)),
        "done".into(),
    ]);
    let (asked, never) = counting_compactor(Truncator::new());
    let only = hook::transform_context(|_, mut context| async move {
        context.rewrite(0..context.len().saturating_sub(3), [Item::user("go")]);
        context
    });
    let agent = agent_near_window(&model, never).with_hook(only);
    run_to_end(agent.run_from(history_of(session_items(40)), "go")).await;
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_panicking_token_counter_skips_the_compaction() {
    let model = Scripted::new([look_call_reply(token_usage(900, 10)), Reply::text("Done.")]);
    let (seen, hook) = failure_log_hook();
    let agent = agent_near_window(&model, Truncator::new())
        .with_window(Window::new(1_000).with_counter(|_: &str| -> u64 { panic!("no tokenizer") }))
        .with_hook(hook);
    let (events, outcome) = run_to_end(agent.run("go")).await;
    assert_eq!((outcome.reason, compaction_order(&events).as_str()), (EndReason::Completed, "tt"));
    assert_eq!(*seen.lock().unwrap(), [ErrorKind::Panic, ErrorKind::Panic]);
}

#[tokio::test]
async fn compaction_repeats_until_the_request_is_a_quarter_below_the_threshold() {
    let forget = compactor_fn(|history: &History| {
        Ok(Some(Compaction::new(0, 2.min(history.len()), Vec::new())))
    });
    let model = Scripted::new(["Done."]);
    // 29 tokens each: 800 tokens hold 27 of them, and 600 hold 20.
    let long = history_of((0..40).map(|_| Item::user("x".repeat(100))));
    let (_, outcome) = run_to_end(agent_near_window(&model, forget).run_from(long, "go")).await;
    assert_eq!(outcome.reason, EndReason::Completed);
    assert!((10..=22).contains(&outcome.history.len()), "{}", outcome.history.len());
}

#[tokio::test]
async fn after_a_reactive_compaction_the_next_one_starts_at_the_threshold_again() {
    // The first compaction had no effect, so the next one has to wait until the request has grown.
    let run = async |overflows: bool| {
        let times = AtomicUsize::new(0);
        let (asked, first_fails) = counting_compactor(compactor_fn(move |history: &History| {
            match times.fetch_add(1, Ordering::Relaxed) {
                0 => Err(Error::new(ErrorKind::Other, "no")),
                _ => Ok(Some(Compaction::new(0, history.len(), vec![Item::user("in short")]))),
            }
        }));
        let full = Reply::error(Error::new(ErrorKind::ContextWindow, "too long"));
        let model = Scripted::new(
            [look_call_reply(token_usage(800, 10))]
                .into_iter()
                .chain(overflows.then_some(full))
                .chain([look_call_reply(token_usage(830, 10)), "done".into()]),
        );
        let (events, outcome) = run_to_end(agent_near_window(&model, first_fails).run("go")).await;
        assert_eq!(outcome.reason, EndReason::Completed);
        (compaction_order(&events), asked.load(Ordering::Relaxed))
    };
    // The compaction fails at 844. At 874 the request is above the limit, but has not grown enough.
    assert_eq!(run(false).await, ("ttt".to_owned(), 1));
    assert_eq!(run(true).await, ("ttctct".to_owned(), 3));
}

#[tokio::test]
async fn a_failed_summary_is_priced_by_the_agents_model() {
    let price = |input| Price { input, ..Price::default() };
    let prices = Prices::new().with_price("scripted", price(1.0)).with_price("dear", price(100.0));
    let model = Scripted::new([
        look_call_reply(token_usage(10, 0)),
        look_call_reply(token_usage(900, 0)),
        "done".into(),
    ]);
    let (summarize, _) = scripted_summarizer([Reply::text("Ada.")
        .usage(token_usage(50, 0))
        .stop(StopReason::MaxTokens)]);
    // All requests are sent to another model than the agent's.
    let dear = hook::prepare_request(|_, mut request| async move {
        request.model = Some("dear".to_owned());
        request
    });
    let agent = agent_near_window(&model, summarize)
        .with_budget(Budget::new().with_cost_limit(9.0, prices));
    let (events, outcome) = run_to_end(agent.with_hook(dear).run("go")).await;
    assert_eq!(
        (compaction_order(&events).as_str(), outcome.reason),
        ("tt0t", EndReason::Completed)
    );
    assert_eq!(outcome.cost, Some(910 * 100 + 50));
}

/// The ids of the calls without a result, and those of the results without a call.
fn unpaired_ids(history: &History) -> Vec<String> {
    let ids = |of: fn(&Item) -> Option<&str>| history.iter().filter_map(of).collect::<Vec<_>>();
    let calls = ids(|item| item.as_tool_call().map(|call| &*call.call_id));
    let results = ids(|item| item.as_tool_result().map(|result| &*result.call_id));
    let open = calls.iter().filter(|id| !results.contains(id));
    let orphans = results.iter().filter(|id| !calls.contains(id));
    open.chain(orphans).map(|id| (*id).to_owned()).collect()
}

#[tokio::test]
async fn repeated_compactions_split_no_batch_of_calls() {
    let summary = || Scripted::from_fn(|_, _| Reply::text("SUMMARY"));
    let compactors: [fn(Agent, Scripted) -> Agent; 3] = [
        |agent, _| agent.with_compactor(Truncator { keep_turns: 1, ..Truncator::new() }),
        |agent, model| agent.with_compactor(Summarizer::new(model).with_keep_turns(1)),
        |agent, model| {
            let summarizer = Summarizer::new(model).with_keep_turns(2).with_keep_tokens(500);
            agent.with_compactor(summarizer)
        },
    ];
    let mut compactions = 0;
    for with_compactor in compactors {
        for calls in [1, 3] {
            let model = Scripted::from_fn(move |_, request| match request < 18 {
                true => (0..calls)
                    .fold(Reply::text("Let me look."), |reply, _| reply.call("look", json!({}))),
                false => Reply::text("Done."),
            });
            let agent = Agent::new(model.clone())
                .with_tool(look_tool(700))
                .with_limits(limits_with_max_turns(40));
            let agent = with_compactor(agent.with_window(Window::new(3000)), summary());
            let (events, outcome) = run_to_end(agent.run("Go")).await;
            assert_eq!(outcome.reason, EndReason::Completed, "{:?}", outcome.error);
            compactions += events.iter().filter(|event| event.is_rewrite()).count();
            for request in model.requests() {
                assert_eq!(unpaired_ids(&request.history), Vec::<String>::new());
            }
            let stored = serde_json::to_string(&outcome.history).unwrap();
            let stored: History = serde_json::from_str(&stored).unwrap();
            assert_eq!(unpaired_ids(&stored.settled()), Vec::<String>::new());
        }
    }
    assert!(compactions > 0, "nothing was compacted");
}
