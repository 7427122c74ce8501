//! The defaults in the guide are the actual ones.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use turnstream::agent::hook::{self, CallDecision};
use turnstream::agent::{Budget, Limits, Pool};
use turnstream::context::{Compaction, Compactor, Window};
use turnstream::http::Timeouts;
use turnstream::provider::{Backoff, CircuitBreaker, Provider, Reply, Scripted};
use turnstream::stream::TurnStreamExt;
use turnstream::{Agent, Error, ErrorKind, History, Item, Tool, tool};

use crate::support::providers::user_request;
use crate::support::runs::reply_calling;
use crate::support::tools::{Counter, counted_tool, ok_tool, spec};

/// The guide's table: the setting and its default.
fn documented_defaults() -> BTreeMap<&'static str, &'static str> {
    let guide = include_str!("../../src/guide/limits.md");
    let table = guide.split("<!-- end of the table -->").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = rows.map(|row| {
        let mut cells = row.split('|').skip(1).map(str::trim);
        (cells.next().unwrap(), cells.next().unwrap())
    });
    cells.collect()
}

fn format_seconds(time: Duration) -> String {
    match time {
        Timeouts::NEVER => "no limit".to_owned(),
        time => format!("{} s", time.as_secs()),
    }
}

async fn elapsed_time(future: impl Future) -> String {
    let began = Instant::now();
    future.await;
    format_seconds(began.elapsed())
}

/// The number of consecutive failures that open a circuit breaker, and the time that it stays open.
async fn circuit_breaker_defaults() -> (u32, Duration) {
    let busy = || Reply::error(Error::new(ErrorKind::Overloaded, "busy"));
    let model = Scripted::from_fn(move |_, _| busy());
    let breaker = CircuitBreaker::new(model.clone());
    let mut failures = 0;
    loop {
        drop(breaker.stream_turn(user_request()).into_turn().await);
        match model.requests().len() {
            sent if sent > failures => failures = sent,
            _ => break,
        }
    }
    let opened = Instant::now();
    while model.requests().len() == failures {
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(breaker.stream_turn(user_request()).into_turn().await);
    }
    (u32::try_from(failures).unwrap(), opened.elapsed())
}

/// The time limit of a hook.
async fn hook_timeout() -> String {
    let slow = hook::before_tool(|_, _| std::future::pending::<CallDecision>());
    let model = Scripted::new([reply_calling("c", "t"), "fine".into()]);
    let agent = Agent::new(model).with_tool(ok_tool("t", &Counter::default())).with_hook(slow);
    elapsed_time(agent.run("go").outcome()).await
}

/// The time limit of a compactor.
async fn compactor_timeout() -> String {
    struct PendingCompactor;

    impl Compactor for PendingCompactor {
        fn compact(
            &self,
            _: &History,
        ) -> futures::future::BoxFuture<'static, Result<Option<Compaction>, Error>> {
            Box::pin(std::future::pending())
        }
    }

    let long = "a long text ".repeat(200);
    let agent = Agent::new(Scripted::new(["fine"]));
    let agent = agent.with_window(Window::new(100)).with_compactor(PendingCompactor);
    elapsed_time(agent.run(long).outcome()).await
}

/// The number of requests that a sub-agent may send.
async fn sub_agent_max_requests() -> usize {
    let inner = Scripted::from_fn(|_, n| Reply::new().call("t", json!({ "n": n })));
    let child = Agent::new(inner.clone()).with_tool(ok_tool("t", &Counter::default()));
    let child = child.as_tool("child", "Helps").unwrap();
    let model =
        Scripted::new([Reply::new().call("child", json!({ "prompt": "go" })), "fine".into()]);
    Agent::new(model).with_tool(child).run("go").outcome().await;
    inner.requests().len()
}

/// The number of a turn's calls that run concurrently.
async fn max_concurrent_calls() -> usize {
    let counter = Counter::default();
    let waits = counted_tool("t", &counter, |_| std::future::pending());
    let calls = (0..20).fold(Reply::new(), |reply, _| reply.call("t", json!({})));
    let agent = Agent::new(Scripted::new([calls])).with_tool(waits);
    let run = agent.with_budget(Budget::new().with_time_limit(Duration::from_secs(5))).run("go");
    run.outcome().await;
    counter.started_count()
}

/// The size in bytes up to which the model receives a result untruncated.
async fn max_result_bytes() -> usize {
    let mut whole = 0;
    for bytes in 65_530..65_540 {
        let long = Tool::raw(spec("t"), move |_, _| async move { "x".repeat(bytes) }).unwrap();
        let model = Scripted::new([reply_calling("c", "t"), "fine".into()]);
        let outcome = Agent::new(model).with_tool(long).run("go").outcome().await;
        let result = outcome.new_items().iter().find_map(Item::as_tool_result).unwrap();
        if result.content.text() == "x".repeat(bytes) {
            whole = bytes;
        }
    }
    whole
}

#[tokio::test(start_paused = true)]
async fn the_guide_lists_the_actual_default_values() {
    let (backoff, limits, timeouts) = (Backoff::default(), Limits::default(), Timeouts::default());
    let millis = |time: Duration| match time.as_millis() {
        1_000 => "random, up to 1 s".to_owned(),
        millis => format!("random, up to {millis} ms"),
    };
    let (failures, rest) = circuit_breaker_defaults().await;
    let unlimited = |is_unlimited: bool| {
        assert!(is_unlimited);
        "no limit".to_owned()
    };
    let budget = Budget::new();
    let budgets =
        (budget.time_limit(), budget.remaining_calls(&turnstream::agent::BudgetUsage::default()));
    let child = Agent::new(Scripted::new(["fine"])).as_tool("child", "Helps").unwrap();
    let held = BTreeMap::from([
        (
            "attempts at a request, by [`Retry`](crate::provider::Retry)",
            backoff.max_attempts.to_string(),
        ),
        ("wait before the second attempt", millis(backoff.max_delay_after(1))),
        ("wait before the third attempt", millis(backoff.max_delay_after(2))),
        ("longest wait that the server did not ask for", format_seconds(backoff.max_delay)),
        ("longest wait that the server may ask for", format_seconds(backoff.max_retry_after)),
        (
            "turns that broke off after output and are asked for again, in a row",
            limits.max_turn_retries.to_string(),
        ),
        (
            "failures in a row that open a [`CircuitBreaker`](crate::provider::CircuitBreaker)",
            failures.to_string(),
        ),
        ("time for which an open circuit breaker rejects requests", format_seconds(rest)),
        ("time until the first byte of an answer", format_seconds(timeouts.first_byte)),
        ("time until the first output of a turn", format_seconds(timeouts.first_output)),
        ("time between two pieces of an answer", format_seconds(timeouts.idle)),
        ("time between two outputs of a turn", format_seconds(timeouts.idle_output)),
        ("time of a whole turn", format_seconds(timeouts.turn)),
        ("time of a tool call", format_seconds(tool::DEFAULT_TIMEOUT)),
        (
            "time of a sub-agent, an external call, an approval",
            format_seconds(child.timeout().unwrap()),
        ),
        ("time of a hook's answer", hook_timeout().await),
        ("time of a compaction", compactor_timeout().await),
        ("time of a run", unlimited(budgets == (None, None))),
        ("requests of a run", limits.max_turns.to_string()),
        ("requests of a sub-agent", sub_agent_max_requests().await.to_string()),
        (
            "replies that cannot be used and are corrected, in a row",
            limits.max_corrections.to_string(),
        ),
        (
            "texts that were cut off and are continued, in a row",
            limits.max_continuations.to_string(),
        ),
        (
            "turns whose calls were cut off and are asked for again, in a row",
            limits.max_truncated_call_retries.to_string(),
        ),
        ("tool calls of a turn that run at once", max_concurrent_calls().await.to_string()),
        ("sub-agents that run inside one another", limits.max_depth.to_string()),
        ("bytes of text, reasoning and arguments in a turn", limits.max_turn_bytes.to_string()),
        ("bytes of text in a result", max_result_bytes().await.to_string()),
        (
            "tokens that a pool keeps for an answer without `max_output_tokens`",
            Pool::new(1).tokens_per_response().to_string(),
        ),
        ("tokens, money and calls of a run", unlimited(!budget.has_cost_limit())),
    ]);
    let mut promised = documented_defaults();
    // These settings have tests of their own: `http_retries`, `closed_connections`, `custom` and
    // `transport`.
    for of_http in [
        "attempts at a request, by a provider over HTTP",
        "attempts at a request, by a provider of your own",
        "immediate resends when a pooled connection turns out to be closed",
        "time until there is a connection",
    ] {
        assert!(promised.remove(of_http).is_some(), "{of_http}");
    }
    let held: BTreeMap<_, _> = held.iter().map(|(what, value)| (*what, value.as_str())).collect();
    assert_eq!(promised, held);
}
