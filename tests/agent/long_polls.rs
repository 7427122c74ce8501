//! Tools that block the thread that polls them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use turnstream::agent::Limits;
use turnstream::agent::hook;
use turnstream::event::EndReason;
use turnstream::provider::Reply;

use turnstream_test_support::replays;
use turnstream_test_support::runs::{check_outcome, reply_calling, scripted_agent};
use turnstream_test_support::tools::{Counter, ok_tool};

/// The names of the tools whose polls are reported if a poll of this length is long.
async fn reported_tools(long_poll: Duration) -> Vec<String> {
    let counter = Counter::default();
    let calls = reply_calling("c1", "first").call_raw("c2", "second", "{}");
    let tools = vec![ok_tool("first", &counter), ok_tool("second", &counter)];
    let (agent, _) = scripted_agent([calls, Reply::text("Done.")], tools);
    let reported = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&reported);
    let agent = agent
        .with_limits(Limits { long_poll, ..Limits::default() })
        .with_hook(hook::on_long_poll(move |_state, call, _elapsed| {
            told.lock().unwrap().push(call.name.clone());
        }))
        .with_recorder(replays::replaying_recorder());
    check_outcome(&agent.run("go").outcome().await, EndReason::Completed, 2);
    reported.lock().unwrap().clone()
}

#[tokio::test]
async fn each_long_poll_of_a_tool_is_reported_by_name() {
    let mut reported = reported_tools(Duration::ZERO).await;
    reported.sort();
    reported.dedup();
    assert_eq!(reported, ["first", "second"]);
}

#[tokio::test]
async fn a_short_poll_is_not_reported() {
    assert_eq!(reported_tools(Duration::from_hours(1)).await, [""; 0]);
}

#[tokio::test]
async fn a_panic_of_the_hook_is_reported_and_the_run_continues() {
    let (counter, failures) = (Counter::default(), Arc::new(Mutex::new(Vec::new())));
    let told = Arc::clone(&failures);
    let tools = vec![ok_tool("first", &counter)];
    let (agent, _) = scripted_agent([reply_calling("c1", "first"), Reply::text("Done.")], tools);
    let agent = agent
        .with_limits(Limits { long_poll: Duration::ZERO, ..Limits::default() })
        .with_hook(hook::on_long_poll(|_state, _call, _elapsed| panic!("no reports")))
        .with_hook(hook::on_failure(move |_state, error| {
            told.lock().unwrap().push(error.to_string());
        }));
    check_outcome(&agent.run("go").outcome().await, EndReason::Completed, 2);
    assert!(failures.lock().unwrap()[0].contains("no reports"));
}
