//! "Exits are policy, not accident": sub-agents of a fan-out drain one pool, and a result that was
//! cut off is marked as partial.

use serde_json::json;
use turnstream::agent::{Budget, Pool};
use turnstream::event::EndReason;
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, Item};

use turnstream_test_support::items::token_usage;
use turnstream_test_support::tools::uncounted_tool;

#[tokio::test]
async fn a_sub_agent_that_drains_the_pool_of_a_fan_out_returns_a_result_marked_as_partial() {
    let pool = Pool::new(100);
    let sub_agent = |name: &str, replies: Vec<Reply>| {
        let agent = Agent::new(Scripted::new(replies)).with_tools([uncounted_tool("t")]);
        let budget = Budget::new().with_pool(pool.clone());
        agent.with_budget(budget).as_tool(name, "Looks").unwrap()
    };
    let counts = sub_agent("counts", vec![Reply::text("Ten.").usage(token_usage(60, 0))]);
    let unfinished = Reply::text("Two of ten.").call("t", json!({})).usage(token_usage(60, 0));
    let reads = sub_agent("reads", vec![unfinished, "Unused.".into()]);
    let prompt = json!({ "prompt": "look" });
    let fan_out = Reply::new().call("counts", prompt.clone()).call("reads", prompt);
    let model = Scripted::new([fan_out, "There are ten; two are read.".into()]);

    let outcome = Agent::new(model.clone()).with_tools([counts, reads]).run("go").outcome().await;

    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 2));
    assert_eq!((pool.used_tokens(), outcome.nested_usage.total()), (120, 120));
    let request = &model.requests()[1];
    let results = request.history.iter().filter_map(Item::as_tool_result);
    let results: Vec<String> = results.map(|it| it.content.text()).collect();
    let stamp = "[stopped early: its budget was spent — this result is partial]";
    assert_eq!(results[0], "Ten.");
    assert!(results[1].starts_with("Two of ten.\n\n"), "{results:?}");
    assert!(results[1].ends_with(stamp), "{results:?}");
}
