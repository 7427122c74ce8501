//! The histories of sub-agents, stored beside the entries of the session.

use futures::{FutureExt, StreamExt, TryStreamExt};
use serde_json::{Value, json};
use turnstream::agent::{Budget, Limits};
use turnstream::event::EndReason;
use turnstream::item::ResultKind;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{Entry, MemoryStore, Session, restore_history};
use turnstream::tool::{Tool, ToolSearch, Verdict};
use turnstream::ui::ClientLimits;
use turnstream::ui::ag_ui::{AgUi, RunRequest};
use turnstream::ui::ai_sdk::AiSdk;
use turnstream::{Agent, History, Item, Toolkit, Usage};

use turnstream_test_support::tools::{spec, uncounted_tool};

fn read_call(id: &str) -> Reply {
    Reply::new().call_raw(id, "read", &json!({ "prompt": "Count" }).to_string())
}

/// An agent that calls a sub-agent once, which calls a tool once.
fn agent_with_reader(approval: bool) -> Agent {
    let tool = uncounted_tool("look");
    let tool = if approval { tool.requires_approval() } else { tool };
    let look = Reply::text("Let me look.").call_raw("look-1", "look", "{}");
    let reader = Agent::new(Scripted::new([look, "Two pages.".into()])).with_tool(tool);
    Agent::new(Scripted::new([read_call("c1"), "It has two pages.".into()]))
        .with_tool(reader.as_tool("read", "Reads").unwrap())
}

async fn session() -> Session {
    Session::open(MemoryStore::new(), "s").await.unwrap()
}

fn texts(history: &History) -> Vec<&str> {
    history.iter().filter_map(Item::as_text).collect()
}

#[tokio::test]
async fn the_history_of_a_sub_agent_is_stored_before_its_result_if_asked_for() {
    let agent = agent_with_reader(false);
    let session = session().await.with_sub_agent_histories();
    session.run(&agent, "Go").await.unwrap().outcome().await.unwrap();
    let entries = session.entries().await.unwrap();
    let at = entries.iter().position(|entry| matches!(entry, Entry::Nested { .. })).unwrap();
    let is_result =
        |entry: &Entry| matches!(entry, Entry::Item(item) if item.as_tool_result().is_some());
    assert!(is_result(&entries[at + 1]));
    let stored = session.sub_agent_history("c1").await.unwrap().unwrap();
    assert_eq!((stored.id(), stored.is_settled()), ("s/c1", true));
    assert_eq!(texts(&stored), ["Let me look.", "Two pages."]);
    assert!(session.sub_agent_history("c2").await.unwrap().is_none());

    // The session's own history is the same as without the entry.
    let others = entries.iter().filter(|entry| !matches!(entry, Entry::Nested { .. }));
    let without = restore_history("s", others.cloned());
    let history = session.history();
    assert!(history.iter().eq(without.iter()) && history.nested_history("c1").is_none());
    let reopened = session.entries().await.unwrap();
    assert_eq!(restore_history("s", reopened), history);
}

#[tokio::test]
async fn without_the_setting_only_suspended_sub_agents_are_stored() {
    let session = session().await;
    session.run(&agent_with_reader(false), "Go").await.unwrap().outcome().await.unwrap();
    assert!(session.sub_agent_history("c1").await.unwrap().is_none());
}

#[tokio::test]
async fn a_resumed_sub_agent_is_stored_with_what_it_did_before() {
    let agent = agent_with_reader(true);
    let session = session().await.with_sub_agent_histories();
    let outcome = session.run(&agent, "Go").await.unwrap().outcome().await.unwrap();
    assert_eq!(outcome.reason, EndReason::Pending);
    let verdicts: Vec<_> =
        outcome.pending.into_iter().map(|call| (call, Verdict::Approve)).collect();
    session.resume(&agent, verdicts).await.unwrap().outcome().await.unwrap();
    let stored = session.sub_agent_history("c1").await.unwrap().unwrap();
    assert_eq!(texts(&stored), ["Let me look.", "Two pages."]);
}

#[tokio::test]
async fn a_page_that_is_opened_later_shows_the_sub_agent() {
    let agent = agent_with_reader(false);
    let session = session().await.with_sub_agent_histories();
    session.run(&agent, "Go").await.unwrap().outcome().await.unwrap();
    let messages = AiSdk::default().load_messages(&session, &agent).await.unwrap();
    let parts = messages[1]["parts"].as_array().unwrap();
    let part = parts.iter().find(|part| part["type"] == "data-agent").unwrap();
    let expected = json!({
        "type": "data-agent",
        "id": "c1",
        "data": {
            "name": "read",
            "state": "completed",
            "turn": 2,
            "text": "Two pages.",
            "calls": [{ "toolCallId": "look-1", "toolName": "look", "state": "ok" }],
        },
    });
    assert_eq!(*part, expected);
}

#[tokio::test]
async fn an_ag_ui_page_that_is_opened_later_shows_the_sub_agents_messages_as_a_stream_does() {
    let agent = agent_with_reader(false);
    let session = session().await.with_sub_agent_histories();
    let body = json!({
        "threadId": "s", "runId": "s",
        "messages": [{ "id": "u", "role": "user", "content": "Go" }],
    });
    let limits = ClientLimits::default();
    let request =
        RunRequest::parse(Some("application/json"), body.to_string().as_bytes(), &limits).unwrap();
    let settings = AgUi::new(&request).with_session(&session);
    let run = session.run(&agent, "Go").await.unwrap();
    let body: Vec<_> = settings.clone().respond(run).body.try_collect().await.unwrap();
    let body = String::from_utf8(body.concat()).unwrap();
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();

    let messages = settings.load_messages(&session, &agent).await.unwrap();
    // The run has the id of the session, so the sub-agent has the same id in both.
    let nested: Vec<_> = messages.iter().filter(|it| it["subagentRunId"] == "s/c1").collect();
    let shown: Vec<_> =
        nested.iter().map(|it| (it["role"].as_str().unwrap(), &it["content"])).collect();
    let [text, result, answer] = ["Let me look.", "fine", "Two pages."].map(Value::from);
    assert_eq!(shown, [("assistant", &text), ("tool", &result), ("assistant", &answer)]);
    let streamed = |id: &Value| {
        let own = |event: &&Value| event["subagentRunId"] == "s/c1";
        let is_it = |event: &Value| {
            let starts =
                event["type"] == "TEXT_MESSAGE_START" || event["type"] == "TOOL_CALL_RESULT";
            starts && event["messageId"] == *id
        };
        events.iter().filter(own).any(is_it)
    };
    assert!(nested.iter().all(|message| streamed(&message["id"])), "{nested:?}");
    let of_parent = |message: &Value| message["subagentRunId"].is_null();
    let last = messages.iter().rposition(|message| !of_parent(message)).unwrap();
    assert_eq!(messages[last + 1]["toolCallId"], "c1");
}

/// The name and state of the sub-agent, as a page that is opened later shows it.
async fn shown_sub_agent(session: &Session, agent: &Agent) -> (String, String) {
    let messages = AiSdk::default().load_messages(session, agent).await.unwrap();
    let parts = messages[1]["parts"].as_array().unwrap();
    let part = parts.iter().find(|part| part["type"] == "data-agent").unwrap();
    let text = |name: &str| part["data"][name].as_str().unwrap().to_owned();
    (text("name"), text("state"))
}

#[tokio::test]
async fn a_page_shows_why_a_sub_agent_ended() {
    let endless = || Scripted::from_fn(|_, _| Reply::new().call("look", json!({})));
    let reader = |model: Scripted, limits: Limits| {
        Agent::new(model).with_tool(uncounted_tool("look")).with_limits(limits)
    };
    let three_turns = Limits { max_turns: Some(3), ..Limits::default() };
    for (reader, state) in [
        (reader(endless(), three_turns), "max_turns"),
        (reader(endless(), Limits::default()).with_budget(few_calls()), "budget"),
        (reader(Scripted::new([""; 0]), three_turns), "provider_error"),
        (reader(Scripted::new(["Two pages."]), three_turns), "completed"),
    ] {
        let agent = Agent::new(Scripted::new([read_call("c1"), "Hm.".into()]))
            .with_tool(reader.as_tool("read", "Reads").unwrap());
        let session = session().await.with_sub_agent_histories();
        session.run(&agent, "Go").await.unwrap().outcome().await.unwrap();
        assert_eq!(shown_sub_agent(&session, &agent).await, ("read".into(), state.into()));
        // The reason is stored.
        let entries = session.entries().await.unwrap();
        let lines = entries.iter().map(|entry| serde_json::to_string(entry).unwrap());
        let read = lines.map(|line| serde_json::from_str::<Entry>(&line).unwrap());
        assert!(read.eq(entries.iter().cloned()));
    }
}

fn few_calls() -> Budget {
    Budget::new().with_tool_calls(1)
}

#[tokio::test]
async fn a_page_shows_that_a_sub_agent_was_cut_off() {
    let hangs = Tool::raw(spec("look"), |_, _| async {
        std::future::pending::<()>().await;
        "never"
    });
    let reader =
        Agent::new(Scripted::new([Reply::new().call("look", json!({}))])).with_tool(hangs.unwrap());
    let agent = Agent::new(Scripted::new([read_call("c1")]))
        .with_tool(reader.as_tool("read", "Reads").unwrap());
    let session = session().await.with_sub_agent_histories();
    let mut run = session.run(&agent, "Go").await.unwrap();
    while run.next().now_or_never().is_some() {}
    run.interrupt();
    run.outcome().await.unwrap();
    assert_eq!(shown_sub_agent(&session, &agent).await, ("read".into(), "interrupted".into()));
    let stored = session.sub_agent_history("c1").await.unwrap().unwrap();
    let result = stored.iter().find_map(Item::as_tool_result).unwrap();
    assert_eq!(result.kind, ResultKind::Interrupted, "the open call of the sub-agent has a result");
}

#[tokio::test]
async fn a_page_names_a_sub_agent_that_was_found_by_a_search() {
    let reader = Agent::new(Scripted::new(["Two pages."]));
    let arguments = json!({ "name": "read", "arguments": { "prompt": "Count" } });
    let call = Reply::new().call_raw("c1", "call_tool", &arguments.to_string());
    let toolkit = Toolkit::new([reader.as_tool("read", "Reads").unwrap()]);
    let agent = Agent::new(Scripted::new([call, "It has two pages.".into()]))
        .with_toolkit(toolkit.with_search(ToolSearch::new()));
    let session = session().await.with_sub_agent_histories();
    session.run(&agent, "Go").await.unwrap().outcome().await.unwrap();
    assert_eq!(shown_sub_agent(&session, &agent).await, ("read".into(), "completed".into()));
}

#[tokio::test]
async fn the_usage_of_earlier_runs_counts_towards_a_budget() {
    let usage = Usage { input_tokens: 900, output_tokens: 90, ..Usage::default() };
    let agent = Agent::new(Scripted::new([
        Reply::text("One.").usage(usage),
        Reply::text("Two.").usage(usage),
        "Three.".into(),
    ]));
    let session = session().await;
    assert_eq!(session.usage().await.unwrap(), Usage::default());
    for _ in 0..2 {
        session.run(&agent, "Go").await.unwrap().outcome().await.unwrap();
    }
    // The usage of items that are not sent any more counts as well.
    session.tombstone([1]).await.unwrap();
    let used = session.usage().await.unwrap();
    assert_eq!((used.input_tokens, used.output_tokens), (1_800, 180));
    for (budget, reason) in [
        (Budget::new().with_total_tokens(1_981), EndReason::Completed),
        (Budget::new().with_total_tokens(1_980), EndReason::Budget),
        (Budget::new().with_output_tokens(180), EndReason::Budget),
    ] {
        let limited = agent.clone().with_budget(budget.with_earlier_usage(used));
        let outcome = session.run(&limited, "Go").await.unwrap().outcome().await.unwrap();
        assert_eq!(outcome.reason, reason);
        if reason == EndReason::Budget {
            assert!(outcome.budget.unwrap().used >= 180);
        }
    }
}
