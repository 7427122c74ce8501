//! Calls that repeat a call whose result is unknown.

use serde_json::{Value, json};
use turnstream::agent::evidence::RequireEvidence;
use turnstream::item::{Evidence, ItemFlag, ResultKind, ToolCall, ToolResult};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolContext};
use turnstream::{Agent, History, Item, Outcome};

use turnstream_test_support::tools::spec;

/// A tool that panics if its arguments are `{"panics": true}`, and fails if they are
/// `{"fails": true}`.
fn pay_tool() -> Tool {
    Tool::raw(spec("pay"), |args: Value, _| async move {
        assert!(args["panics"] != true, "the connection was lost");
        match args["fails"] == true {
            true => Err("no money"),
            false => Ok("paid"),
        }
    })
    .unwrap()
}

fn check_tool() -> Tool {
    Tool::raw(spec("check"), |_, cx: ToolContext| async move {
        cx.record_evidence(Evidence::from_command("list payments", 1));
        "there is none"
    })
    .unwrap()
}

fn pay(arguments: Value) -> Reply {
    Reply::new().call("pay", arguments)
}

fn panics() -> Reply {
    pay(json!({ "panics": true, "to": "Ada" }))
}

#[tokio::test]
async fn the_result_of_a_held_call_says_what_lifts_the_hold() {
    let model = Scripted::new([panics(), panics(), "Done.".into()]);
    let agent = Agent::new(model).with_tool(pay_tool()).hold_unclear_repeats();
    let outcome = agent.run("go").outcome().await;
    let held = outcome.new_items().iter().filter_map(Item::as_tool_result).nth(1).unwrap();
    let expected = "Denied: Not run: the same call was made before and ended as `panic`, so it may have \
                    taken effect. Find out whether it did. The call runs again once another call \
                    has recorded evidence.";
    assert_eq!((held.kind, held.content.text().as_str()), (Denied, expected));
}

async fn kinds_of(pay_tool: Tool, replies: Vec<Reply>) -> Vec<ResultKind> {
    let model = Scripted::new(replies.into_iter().chain(["Done.".into()]));
    let agent = Agent::new(model).with_tools([pay_tool, check_tool()]).hold_unclear_repeats();
    result_kinds(&agent.run("go").outcome().await)
}

fn result_kinds(outcome: &Outcome) -> Vec<ResultKind> {
    outcome.new_items().iter().filter_map(Item::as_tool_result).map(|result| result.kind).collect()
}

use ResultKind::{Denied, Error, Ok as Ran, Panic};

#[tokio::test]
async fn a_repeated_call_is_held_back_after_a_result_that_is_unknown() {
    assert_eq!(kinds_of(pay_tool(), vec![panics(), panics()]).await, [Panic, Denied]);
    // A call that was held back did not run, so it is held back again.
    let again = vec![panics(), panics(), panics()];
    assert_eq!(kinds_of(pay_tool(), again).await, [Panic, Denied, Denied]);
    // The order of the arguments and the rationale do not matter.
    let other_order = pay(json!({ "to": "Ada", "_why": { "risk": "low" }, "panics": true }));
    assert_eq!(kinds_of(pay_tool(), vec![panics(), other_order]).await, [Panic, Denied]);
}

#[tokio::test]
async fn arguments_that_the_tool_reads_alike_are_the_same() {
    let schema = json!({
        "type": "object",
        "properties": { "amount": { "type": "integer" }, "note": { "type": "string" } },
    });
    let spec = turnstream::tool::ToolSpec::new("pay", "", schema);
    let tool = Tool::raw(spec, |_, _| async { panic!("lost") as &str }).unwrap();
    let first = || pay(json!({ "amount": 5.0, "note": null }));
    let other = pay(json!({ "amount": 5 }));
    assert_eq!(kinds_of(tool, vec![first(), first(), other]).await, [Panic, Denied, Denied]);
}

#[tokio::test]
async fn other_arguments_known_results_and_idempotent_tools_are_not_held_back() {
    let other = pay(json!({ "to": "Grace" }));
    assert_eq!(kinds_of(pay_tool(), vec![panics(), other]).await, [Panic, Ran]);
    let failing = || pay(json!({ "fails": true }));
    assert_eq!(kinds_of(pay_tool(), vec![failing(), failing()]).await, [Error, Error]);
    assert_eq!(kinds_of(pay_tool().idempotent(), vec![panics(), panics()]).await, [Panic, Panic]);
}

#[tokio::test]
async fn evidence_recorded_later_lifts_the_hold() {
    let check = || Reply::new().call("check", json!({}));
    assert_eq!(kinds_of(pay_tool(), vec![panics(), check(), panics()]).await, [Panic, Ran, Panic]);
    // Evidence that was recorded before the call says nothing about it.
    assert_eq!(kinds_of(pay_tool(), vec![check(), panics(), panics()]).await, [Ran, Panic, Denied]);
}

#[tokio::test]
async fn read_only_tools_and_agents_without_the_setting_hold_nothing_back() {
    let agent = |replies: Vec<Reply>| Agent::new(Scripted::new(replies)).with_tool(pay_tool());
    let replies = || vec![panics(), panics(), "BLOCKED: money".into()];
    let outcome = agent(replies()).run("go").outcome().await;
    assert_eq!(result_kinds(&outcome), [Panic, Panic]);
    let mut policy = RequireEvidence::new();
    policy.read_only_tools = vec!["pay".to_owned()];
    let agent = agent(replies()).with_evidence(policy).hold_unclear_repeats();
    assert_eq!(result_kinds(&agent.run("go").outcome().await), [Panic, Panic]);
}

#[tokio::test]
async fn a_call_interrupted_in_an_earlier_run_is_held_back_unless_it_is_a_tombstone() {
    let arguments = r#"{"to":"Ada"}"#;
    let call =
        ToolCall { call_id: "c1".into(), name: "pay".into(), arguments: arguments.to_owned() };
    let cut = ToolResult::for_call(&call, ResultKind::Interrupted, "Interrupted");
    for is_void in [false, true] {
        let mark = |item: Item| match is_void {
            true => item.with_flag(ItemFlag::Tombstone),
            false => item,
        };
        let items = [
            Item::user("Pay Ada"),
            mark(Item::tool_call("c1", "pay", arguments)),
            mark(Item::tool_result(cut.clone())),
        ];
        let model = Scripted::new([pay(json!({ "to": "Ada" })), "Done.".into()]);
        let agent = Agent::new(model).with_tool(pay_tool()).hold_unclear_repeats();
        let run = agent.run_from(History::from_items("h", items), "Continue");
        let expected = if is_void { Ran } else { Denied };
        assert_eq!(result_kinds(&run.outcome().await), [expected]);
    }
}
