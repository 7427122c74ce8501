//! Data that a program passes to the tools of one run.

use serde_json::json;
use turnstream::event::EndReason;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{MemoryStore, Session};
use turnstream::tool::{RunData, Tool, Verdict};
use turnstream::{Agent, Item};

use turnstream_test_support::runs::{reply_calling, test_agent};
use turnstream_test_support::tools::spec;

struct UserName(&'static str);

/// A tool that returns the caller's name.
fn caller_name_tool() -> Tool {
    let run = |_, cx: turnstream::tool::ToolContext| async move {
        cx.data::<UserName>().map_or("nobody", |user| user.0)
    };
    Tool::raw(spec("who"), run).unwrap()
}

/// A model that makes one call, and reports its result.
fn single_call_model() -> Scripted {
    Scripted::from_fn(|request, _| match request.history.last().and_then(Item::as_tool_result) {
        Some(result) => Reply::text(result.content.text()),
        None => Reply::new().call("who", json!({})),
    })
}

#[tokio::test]
async fn run_data_is_visible_only_to_the_tools_of_its_run() {
    let agent = test_agent(single_call_model()).with_tools([caller_name_tool()]);
    let ada = agent.run("go").with_data(UserName("ada")).with_data(7_u32);
    let bob = agent.run("go").with_data(UserName("eve")).with_data(UserName("bob"));
    assert_eq!(ada.outcome().await.text, "ada");
    assert_eq!(bob.outcome().await.text, "bob", "one of each type");
    assert_eq!(agent.run("go").outcome().await.text, "nobody");
}

#[tokio::test]
async fn sub_agents_inherit_the_run_data_of_their_parent() {
    let child = test_agent(single_call_model())
        .with_tools([caller_name_tool()])
        .as_tool("who", "Asks")
        .unwrap();
    let middle = test_agent(Scripted::from_fn(|request, _| {
        match request.history.last().and_then(Item::as_tool_result) {
            Some(result) => Reply::text(result.content.text()),
            None => Reply::new().call("who", json!({ "prompt": "go" })),
        }
    }));
    let middle = middle.with_tools([child]).as_tool("middle", "Asks").unwrap();
    let model = Scripted::from_fn(|request, _| {
        match request.history.last().and_then(Item::as_tool_result) {
            Some(result) => Reply::text(result.content.text()),
            None => Reply::new().call("middle", json!({ "prompt": "go" })),
        }
    });
    let run = test_agent(model).with_tools([middle]).run("go").with_data(UserName("ada"));
    assert_eq!(run.outcome().await.text, "ada");
}

#[tokio::test]
async fn a_tool_can_pass_its_run_data_to_a_run_it_starts() {
    let inner = test_agent(single_call_model()).with_tools([caller_name_tool()]);
    let begins = move |_, cx: turnstream::tool::ToolContext| {
        let inner = inner.clone();
        async move { inner.run("go").with_data(cx.run_data().clone()).outcome().await.text }
    };
    let begins = Tool::raw(spec("who"), begins).unwrap().running_sub_agents();
    let run =
        test_agent(single_call_model()).with_tools([begins]).run("go").with_data(UserName("ada"));
    assert_eq!(run.outcome().await.text, "ada");
}

#[tokio::test]
async fn run_data_is_passed_again_when_a_run_is_resumed() {
    let agent =
        test_agent(single_call_model()).with_tools([caller_name_tool().requires_approval()]);
    let paused = agent.run("go").with_data(UserName("ada")).outcome().await;
    assert_eq!(paused.reason, EndReason::Pending);
    let resume = |agent: &Agent| {
        let verdicts = paused.pending.iter().map(|call| (call.clone(), Verdict::Approve));
        agent.resume(paused.history.clone(), verdicts).unwrap()
    };
    assert_eq!(resume(&agent).outcome().await.text, "nobody", "it is not in the history");
    assert_eq!(resume(&agent).with_data(UserName("bob")).outcome().await.text, "bob");
}

#[tokio::test]
async fn session_runs_accept_run_data() {
    let agent = test_agent(single_call_model()).with_tools([caller_name_tool()]);
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let run = session.run(&agent, "go").await.unwrap().with_data(UserName("ada"));
    assert_eq!(run.outcome().await.unwrap().text, "ada");
    let run = session.run(&agent, "go").await.unwrap();
    assert_eq!(run.outcome().await.unwrap().text, "nobody");
}

#[tokio::test]
async fn run_data_is_dropped_at_the_end_and_its_debug_output_shows_only_types() {
    let data = std::sync::Arc::new(());
    let run = test_agent(Scripted::new([reply_calling("c", "who"), "fine".into()]))
        .with_tools([caller_name_tool()]);
    let run = run.run("go").with_data(std::sync::Arc::clone(&data));
    let handle = run.handle();
    run.outcome().await;
    assert_eq!(std::sync::Arc::strong_count(&data), 1, "though a handle is left");
    drop(handle);
    let shown = format!("{:?}", RunData::new().insert(UserName("secret")));
    assert!(shown.contains("User") && !shown.contains("secret"), "{shown}");
}
