//! Two tools with the same name are an error, which is reported before anything is sent.

use serde_json::json;
use turnstream::event::EndReason;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, Verdict};
use turnstream::{Agent, Error, ErrorKind, Toolkit};

use turnstream_test_support::runs::reply_calling;
use turnstream_test_support::tools::{Counter, ok_tool, spec};

fn constant_tool(name: &str, says: &'static str) -> Tool {
    Tool::raw(spec(name), move |_, _| async move { says }).unwrap()
}

#[track_caller]
fn assert_duplicate_name_error(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains("two tools have the name `t`"), "{error}");
    assert_eq!(error.parameter(), Some("tools"));
}

#[tokio::test]
async fn an_agent_with_duplicate_tool_names_sends_nothing() {
    let makes: [fn(Agent) -> Agent; 3] = [
        |agent| agent.with_tools([constant_tool("t", "a"), constant_tool("t", "b")]),
        |agent| agent.with_tool(constant_tool("t", "a")).with_tool(constant_tool("t", "b")),
        |agent| {
            agent.with_toolkit(
                Toolkit::new([constant_tool("t", "a")]).with_tool(constant_tool("t", "b")),
            )
        },
    ];
    for make in makes {
        let model = Scripted::new(["never"]);
        let outcome = make(Agent::new(model.clone())).run("go").outcome().await;
        assert_duplicate_name_error(outcome.error.as_ref().unwrap());
        assert_eq!((outcome.turns, model.requests().len()), (0, 0));
    }
}

#[tokio::test]
async fn a_run_cannot_be_resumed_with_duplicate_tool_names() {
    let ran = Counter::default();
    let model = Scripted::new([reply_calling("c", "t"), "never".into()]);
    let agent = Agent::new(model).with_tool(ok_tool("t", &ran).requires_approval());
    let paused = agent.run("go").outcome().await;
    assert_eq!(paused.reason, EndReason::Pending);
    let doubled = agent.with_tool(ok_tool("t", &ran));
    let verdicts = paused.pending.into_iter().map(|call| (call, Verdict::Approve));
    assert_duplicate_name_error(&doubled.resume(paused.history, verdicts).unwrap_err());
    assert_eq!(ran.started_count(), 0);
}

#[tokio::test]
async fn replacing_a_tool_explicitly_keeps_its_position() {
    let kit =
        Toolkit::new([constant_tool("a", "a"), constant_tool("t", "old"), constant_tool("z", "z")]);
    let kit = kit.with_replaced_tool(constant_tool("t", "new"));
    let names: Vec<_> = kit.specs().iter().map(|spec| spec.name.clone()).collect();
    assert_eq!(names, ["a", "t", "z"]);
    let model = Scripted::new([reply_calling("c", "t"), "fine".into()]);
    let outcome = Agent::new(model).with_toolkit(kit).run("go").outcome().await;
    let result = outcome.new_items().iter().find_map(|item| item.as_tool_result()).unwrap();
    assert_eq!(result.content.text(), "new");
}

#[tokio::test]
async fn a_tool_added_later_to_a_toolkit_with_rationale_gets_one() {
    let kit = Toolkit::new([constant_tool("a", "a")]).with_rationale();
    let kit =
        kit.with_tool(constant_tool("b", "b")).with_replaced_tool(constant_tool("a", "other"));
    for spec in &kit.specs() {
        assert!(spec.parameters.to_value()["properties"]["_why"].is_object(), "{}", spec.name);
    }
    let call = Reply::new().call("b", json!({ "_why": { "goal": "to see" } }));
    let model = Scripted::new([call, "fine".into()]);
    let outcome = Agent::new(model).with_toolkit(kit).run("go").outcome().await;
    assert_eq!(outcome.reason, EndReason::Completed);
}
