//! "How to implement an agent loop": the session, one request, the calls, and the loop. A sub-agent
//! is a tool whose handler runs the same loop.

use std::sync::Arc;

use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::item::ResultKind;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::tool::{Tool, ToolContext, Toolkit};
use turnstream::{Error, History, Item, Request, Turn, TurnStreamExt};

use turnstream_test_support::items::history_of;
use turnstream_test_support::tools::spec;

fn init_session(system: &str, prompt: &str) -> History {
    history_of([Item::system(system), Item::user(prompt)])
}

async fn invoke_model(
    model: &Scripted,
    toolkit: &Toolkit,
    session: &History,
) -> Result<Arc<Turn>, Error> {
    let request = Request::new(session.clone()).with_tools(toolkit.specs());
    model.stream_turn(request).into_turn().await
}

/// Runs the turn's calls. The returned session contains the turn and all results.
async fn execute_tool_calls(
    toolkit: &Toolkit,
    session: &History,
    turn: &Arc<Turn>,
) -> Result<History, Error> {
    let mut tools = toolkit.run(session, turn);
    while tools.next().await.is_some() {}
    Ok(tools.finish()?.history)
}

async fn agent_loop(
    model: &Scripted,
    toolkit: &Toolkit,
    mut session: History,
) -> Result<History, Error> {
    loop {
        let turn = invoke_model(model, toolkit, &session).await?;
        if turn.calls().is_empty() {
            session.extend(turn.to_history_items());
            return Ok(session);
        }
        session = execute_tool_calls(toolkit, &session, &turn).await?;
    }
}

/// A tool whose handler runs a loop of its own and returns the last text.
fn summarize_tool(model: Scripted) -> Tool {
    let summarize = move |args: Value, _cx: ToolContext| {
        let model = model.clone();
        async move {
            let session =
                init_session("Output only the summary.", args["text"].as_str().unwrap_or_default());
            let session = agent_loop(&model, &Toolkit::default(), session).await;
            let session = session.map_err(|error| error.to_string())?;
            let summary = session.last().and_then(Item::as_text).unwrap_or_default();
            Ok::<_, String>(summary.to_owned())
        }
    };
    Tool::raw(spec("summarize"), summarize).unwrap()
}

#[tokio::test]
async fn four_functions_are_an_agent_whose_tools_may_run_the_same_loop() {
    let inner = Scripted::new(["Tea is hot."]);
    let read = Tool::raw(spec("read_file"), |_, _| async { Err::<(), _>("no such file") });
    let toolkit = Toolkit::new([summarize_tool(inner.clone()), read.unwrap()]);
    let calls = Reply::new()
        .call("summarize", json!({ "text": "A long page about tea." }))
        .call("read_file", json!({ "path": "tea.md" }));
    let model = Scripted::new([calls, "The page says that tea is hot.".into()]);

    let session = init_session("Be brief.", "What does the page say?");
    let session = agent_loop(&model, &toolkit, session).await.unwrap();

    assert!(session.is_settled());
    // The system prompt, the prompt, two calls, two results, the answer.
    assert_eq!(session.len(), 7);
    assert_eq!(session.last().unwrap().as_text(), Some("The page says that tea is hot."));
    let results = session.iter().filter_map(Item::as_tool_result);
    let results: Vec<_> = results.map(|it| (it.kind, it.content.text())).collect();
    let expected = [
        (ResultKind::Ok, "Tea is hot.".to_owned()),
        (ResultKind::Error, "Error: no such file".to_owned()),
    ];
    assert_eq!(results, expected);
    // The inner loop has a session of its own, and no tools.
    let request = &inner.requests()[0];
    let expected = init_session("Output only the summary.", "A long page about tea.");
    assert!(request.history.iter().eq(expected.iter()), "{:?}", request.history);
    assert!(request.tools.is_empty());
}
