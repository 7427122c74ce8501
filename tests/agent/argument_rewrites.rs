//! Hooks that rewrite a call's arguments into invalid ones.

use std::sync::{Arc, Mutex};

use serde_json::json;
use turnstream::agent::hook::{self, CallDecision, Hook};
use turnstream::item::{Item, ResultKind};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::{Agent, ErrorKind};

/// Runs an agent whose model calls `count` with these arguments. Returns the call's result, and the
/// errors that hooks were told.
async fn run(arguments: &str, rewrites: impl Hook + 'static) -> (ResultKind, String, Vec<String>) {
    let schema = json!({
        "type": "object",
        "properties": { "n": { "type": "integer" } },
        "required": ["n"],
    });
    let count = Tool::raw(ToolSpec::new("count", "Counts", schema), |_, _| async { "counted" });
    let model = Scripted::new([Reply::new().call_raw("c1", "count", arguments), "Done.".into()]);
    let failures: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&failures);
    let observes = hook::on_failure(move |_, error| {
        assert_eq!(error.kind(), ErrorKind::Hook);
        told.lock().unwrap().push(error.message().to_owned());
    });
    let agent =
        Agent::new(model).with_tools([count.unwrap()]).with_hook(rewrites).with_hook(observes);
    let outcome = agent.run("go").outcome().await;
    assert_eq!(outcome.text, "Done.");
    let result = outcome.history.iter().find_map(Item::as_tool_result).unwrap().clone();
    let failures = failures.lock().unwrap().clone();
    (result.kind, result.content.text(), failures)
}

#[tokio::test]
async fn a_hook_that_rewrites_arguments_into_invalid_ones_is_reported_and_the_model_is_not_blamed()
{
    let rewrites =
        hook::before_tool(|_, _| async { CallDecision::RewriteArguments(r#"{"n":"x"}"#.into()) });
    let (kind, text, failures) = run(r#"{"n":1}"#, rewrites).await;
    assert_eq!(kind, ResultKind::Error);
    assert!(text.contains("a rule rewrote the arguments of `count`"), "{text}");
    assert!(text.contains("not your fault"), "{text}");
    let [failure] = &failures[..] else { panic!("{failures:?}") };
    assert!(failure.contains("a hook rewrote the arguments of `count`"), "{failure}");
}

#[tokio::test]
async fn an_invalid_repair_is_reported_and_the_model_reads_its_own_mistake() {
    let repairs = hook::repair_arguments(|_, _, _| Some(r#"{"m":1}"#.to_owned()));
    let (kind, text, failures) = run(r#"{"n":"#, repairs).await;
    assert_eq!(kind, ResultKind::InvalidArguments);
    assert!(!text.contains("rule"), "{text}");
    let [failure] = &failures[..] else { panic!("{failures:?}") };
    assert!(failure.contains("a hook rewrote the arguments of `count`"), "{failure}");
}

#[tokio::test]
async fn a_valid_rewrite_is_not_reported() {
    let rewrites =
        hook::before_tool(|_, _| async { CallDecision::RewriteArguments(r#"{"n":2}"#.into()) });
    let (kind, _, failures) = run(r#"{"n":1}"#, rewrites).await;
    assert_eq!((kind, failures), (ResultKind::Ok, Vec::new()));
}

#[tokio::test]
async fn the_call_of_a_providers_mcp_server_is_not_approved_with_arguments_that_a_hook_rewrote() {
    let arguments = r#"{"name":"find","arguments":{}}"#;
    let call = Reply::new().call_raw("c1", "mcp_approval_wiki", arguments);
    let rewrites = hook::before_tool(|_, _| async {
        CallDecision::RewriteArguments(r#"{"name":"find","arguments":{"word":"a"}}"#.into())
    });
    let agent = Agent::new(Scripted::new([call, "Done.".into()]))
        .with_tools([Tool::mcp_approval("wiki").unwrap()])
        .with_hook(rewrites);
    let outcome = agent.run("go").outcome().await;
    assert_eq!((outcome.text.as_str(), outcome.pending.len()), ("Done.", 0));
    let result = outcome.history.iter().find_map(Item::as_tool_result).unwrap();
    assert_eq!(result.kind, ResultKind::Error);
    let text = result.content.text();
    assert!(text.contains("the provider runs the call with the model's own arguments"), "{text}");
}
