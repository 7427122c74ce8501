//! The usage of a run is the sum of its attempts.

use serde_json::json;
use turnstream::agent::Limits;
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, Usage};

use turnstream_test_support::runs::{collect_rest, final_outcome};

#[tokio::test]
async fn usage_is_counted_exactly_once_even_if_retracted() {
    let usage = |input_tokens| Usage { input_tokens, output_tokens: 1, ..Usage::default() };
    let model = Scripted::new([
        // Cumulative within the attempt: 30 replaces 10.
        Reply::text("void")
            .usage(usage(10))
            .usage(usage(30))
            .retract("again")
            .call("a", json!({}))
            .usage(usage(200)),
        Reply::text("hal").usage(usage(4000)).disconnect(),
    ]);
    let limits = Limits { max_turn_retries: 0, ..Limits::default() };
    let mut run = Agent::new(model).with_limits(limits).run("go");
    let outcome = final_outcome(&collect_rest(&mut run).await).clone();
    assert_eq!((outcome.usage.input_tokens, outcome.usage.output_tokens), (4230, 3));
    assert_eq!(run.usage(), outcome.usage);
    assert_eq!((outcome.text.as_str(), outcome.turns), ("hal", 2));
}
