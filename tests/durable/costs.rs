//! The cost of a run whose prices depend on the time of each request.

use std::time::SystemTime;

use turnstream::Agent;
use turnstream::agent::Budget;
use turnstream::durable::Attempt;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::Tool;
use turnstream::usage::{Cost, NameMatch, PriceSource, PricedRequest, Prices, Usage};

use turnstream_test_support::tools::spec;
use turnstream_testing::durable_suite::MemoryEngine;

/// Charges a millionth for each millisecond since 1970.
struct MillisecondsSince1970;

impl PriceSource for MillisecondsSince1970 {
    fn find_name(&self, _: &str) -> Option<NameMatch> {
        Some(NameMatch::ByRule)
    }

    fn cost(&self, request: &PricedRequest<'_>) -> Option<Cost> {
        let since = request.sent_at.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Some(Cost::exact(u64::try_from(since.as_millis()).unwrap()))
    }
}

/// Waits until the clock of the machine has moved on. The cost would differ if it was read again.
fn wait_for_the_clock() {
    let begun = SystemTime::now();
    while begun.elapsed().is_ok_and(|elapsed| elapsed.as_millis() < 2) {
        std::hint::spin_loop();
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_attempt_arrives_at_the_cost_of_the_first() {
    let usage = Usage { input_tokens: 10, ..Usage::default() };
    let model = Scripted::new([
        Reply::new().call_raw("c", "work", "{}").usage(usage),
        Reply::text("Done.").usage(usage),
    ]);
    let tool = Tool::raw(spec("work"), |_, _| async {
        wait_for_the_clock();
        "done"
    });
    let prices = Prices::new().with_source(MillisecondsSince1970);
    let budget = Budget::new().with_prices(prices);
    let agent = Agent::new(model).with_tool(tool.unwrap()).with_budget(budget);
    let mut engine = MemoryEngine::new();
    let attempt = || Attempt::run(&agent, "s", Vec::new(), "Work.");
    let outcome = attempt().drive(&mut engine).await.unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let cost = u128::from(outcome.cost.unwrap());
    // Two requests, of which each has its own time.
    assert!(cost > now && cost < 2 * now, "{cost} at {now}");

    wait_for_the_clock();
    assert_eq!(attempt().drive(&mut engine.next_attempt()).await.unwrap(), outcome);
}
