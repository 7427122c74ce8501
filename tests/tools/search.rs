//! A toolkit whose tools are searched for: a call inside of `call_tool` counts as a call of the
//! inner tool everywhere except in the history.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::agent::hook::{self, CallDecision};
use turnstream::event::{EndReason, ToolEvent};
use turnstream::item::{PendingCall, ResultKind, ToolCall};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{MemoryStore, Session, SessionState, restore_history};
use turnstream::tool::{Tool, ToolSearch, ToolSpec, Verdict};
use turnstream::{
    Agent, Error, ErrorKind, Event, EventStreamExt, History, Journal, Outcome, Provider, Request,
    Toolkit,
};
use turnstream_testing::Wire;

use turnstream_test_support::replays::{check_replay, replaying_recorder};
use turnstream_test_support::runs::{pull_until, result_summaries, tool_calls, tool_results};
use turnstream_test_support::tools::{Counter, ok_tool, spec, uncounted_tool};
use turnstream_test_support::wires::encode;

/// A tool with a required number, which it returns.
fn number_tool(name: &str) -> Tool {
    let parameters = json!({
        "type": "object",
        "properties": { "n": { "type": "integer", "description": "The number" } },
        "required": ["n"],
        "additionalProperties": false,
    });
    let spec = ToolSpec::new(name, format!("Returns the number for {name}"), parameters);
    Tool::raw(spec, |args, _| async move { args["n"].clone() }).unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "callers have just created it")]
fn wrapped(name: &str, arguments: Value) -> Value {
    json!({ "name": name, "arguments": arguments })
}

fn reply_calling_inner(call_id: &str, name: &str, arguments: Value) -> Reply {
    Reply::new().call_raw(call_id, "call_tool", &wrapped(name, arguments).to_string())
}

/// An agent whose model gives one reply and then answers, and whose runs are replayed.
fn agent_with(kit: Toolkit, first: Reply) -> Agent {
    Agent::new(Scripted::new([first, Reply::text("done")]))
        .with_toolkit(kit)
        .with_recorder(replaying_recorder())
}

/// Runs an agent to its end, and checks that the fold of the events is the history.
async fn run_folded(agent: &Agent) -> (Vec<Event>, Outcome) {
    let journal = Journal::new(History::empty("h"));
    let mut run = agent.run_from(History::empty("h"), "go").journal_to(&journal);
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        events.push(event.unwrap());
    }
    let outcome = events.last().and_then(Event::outcome).unwrap().clone();
    assert_eq!(journal.history(), outcome.history);
    assert!(outcome.history.is_settled() || outcome.reason == EndReason::Pending);
    (events, outcome)
}

/// The kind and the text of the only result.
async fn only_result(kit: Toolkit, first: Reply) -> (ResultKind, String) {
    let (_, outcome) = run_folded(&agent_with(kit, first)).await;
    let results = tool_results(&outcome.history);
    assert_eq!(results.len(), 1);
    (results[0].kind, results[0].content.text())
}

fn names(kit: &Toolkit) -> Vec<String> {
    kit.specs().iter().map(|spec| spec.name.clone()).collect()
}

#[tokio::test]
async fn events_show_the_inner_call_and_the_history_keeps_the_outer_one() {
    let kit = Toolkit::new([number_tool("count")]).searchable();
    let (events, outcome) =
        run_folded(&agent_with(kit, reply_calling_inner("c1", "count", json!({ "n": 7 })))).await;
    let shown = events.iter().filter_map(|event| match event {
        Event::Tool(ToolEvent::Started { call_id, name, .. }) => {
            Some((call_id.clone(), name.clone()))
        }
        Event::Tool(ToolEvent::Output(result)) => {
            Some((result.call_id.clone(), result.name.clone()))
        }
        _ => None,
    });
    let inner = || ("c1".to_owned(), "count".to_owned());
    assert_eq!(shown.collect::<Vec<_>>(), [inner(), inner()]);
    let (calls, results) = (tool_calls(&outcome.history), tool_results(&outcome.history));
    assert_eq!((&*calls[0].name, &*results[0].name), ("call_tool", "call_tool"));
    assert_eq!(results[0].content.text(), "7");
}

#[tokio::test]
async fn a_result_has_the_name_of_its_call_on_the_gemini_wire() {
    let kit = Toolkit::new([number_tool("count")]).searchable();
    let (_, outcome) =
        run_folded(&agent_with(kit, reply_calling_inner("c1", "count", json!({ "n": 7 })))).await;
    let body = encode(Wire::Gemini, "m", &Request::new(outcome.history)).to_string();
    assert!(body.contains(r#""functionCall":{"#) && body.contains(r#""functionResponse":{"#));
    assert_eq!(body.matches(r#""name":"call_tool""#).count(), 2, "{body}");
}

#[tokio::test]
async fn a_run_of_a_toolkit_without_an_agent_names_results_the_same() {
    let kit = Toolkit::new([number_tool("count")]).searchable();
    let model = Scripted::new([reply_calling_inner("c1", "count", json!({ "n": 7 }))]);
    let history = History::empty("h");
    let turn =
        turnstream::TurnStreamExt::into_turn(model.stream_turn(Request::new(history.clone())));
    let turn = turn.await.unwrap();
    let mut run = kit.run(&history, &turn);
    while run.next().await.is_some() {}
    let outcome = run.finish().unwrap();
    assert_eq!(outcome.results[0].name, "count");
    assert_eq!(tool_results(&outcome.history)[0].name, "call_tool");
}

#[tokio::test]
async fn hooks_see_the_inner_call_and_can_rewrite_or_deny_it() {
    let seen: Arc<Mutex<Vec<ToolCall>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let hook = hook::before_tool(move |_, call| {
        noted.lock().unwrap().push(call.clone());
        let decision = match call.name.as_str() {
            "count" => CallDecision::RewriteArguments(r#"{"n":8}"#.into()),
            _ => CallDecision::Deny("no".into()),
        };
        std::future::ready(decision)
    });
    let kit = Toolkit::new([number_tool("count"), number_tool("delete")]).searchable();
    let both = reply_calling_inner("c1", "count", json!({ "n": 7 })).call_raw(
        "c2",
        "call_tool",
        &wrapped("delete", json!({ "n": 1 })).to_string(),
    );
    let (_, outcome) = run_folded(&agent_with(kit, both).with_hook(hook)).await;
    let seen = seen.lock().unwrap();
    let calls: Vec<_> = seen.iter().map(|call| (&*call.name, &*call.arguments)).collect();
    assert_eq!(calls, [("count", r#"{"n":7}"#), ("delete", r#"{"n":1}"#)]);
    let summaries: Vec<_> = tool_results(&outcome.history)
        .iter()
        .map(|result| (result.kind, result.content.text()))
        .collect();
    assert_eq!(summaries[0], (ResultKind::Ok, "8".to_owned()));
    assert_eq!(summaries[1].0, ResultKind::Denied);
}

#[tokio::test]
async fn an_approval_of_an_inner_call_survives_a_round_trip() {
    for from_history in [false, true] {
        let kit = Toolkit::new([number_tool("pay").requires_approval()]).searchable();
        let agent = agent_with(kit, reply_calling_inner("c1", "pay", json!({ "n": 7 })));
        let (events, outcome) = run_folded(&agent).await;
        assert_eq!(outcome.reason, EndReason::Pending);
        let asked = events.iter().find_map(Event::approval_request).unwrap();
        assert_eq!((&*asked.name, &*asked.arguments), ("pay", r#"{"n":7}"#));
        assert_eq!(outcome.pending, std::slice::from_ref(&asked));

        let json = serde_json::to_string(&outcome.history).unwrap();
        let history: History = serde_json::from_str(&json).unwrap();
        let pending = if from_history { history.pending_calls() } else { outcome.pending };
        let other = PendingCall { arguments: r#"{"n":9}"#.into(), ..asked };
        let refused = agent.resume(history.clone(), [(other, Verdict::Approve)]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        let verdicts = pending.into_iter().map(|call| (call, Verdict::Approve));
        let outcome = agent.resume(history, verdicts).unwrap().outcome().await;
        assert_eq!(outcome.reason, EndReason::Completed);
        let results = tool_results(&outcome.history);
        assert_eq!((&*results[0].name, &*results[0].content.text()), ("call_tool", "7"));
    }
}

#[tokio::test]
async fn an_interactive_approval_applies_to_the_inner_call() {
    let kit = Toolkit::new([number_tool("pay").requires_approval()]).searchable();
    let agent = agent_with(kit, reply_calling_inner("c1", "pay", json!({ "n": 7 }))).interactive();
    let mut run = agent.run("go");
    let handle = run.handle();
    let asked = pull_until(&mut run, |event| event.approval_request().is_some()).await;
    handle.approve(asked.approval_request().unwrap()).unwrap();
    let outcome = run.outcome().await;
    assert_eq!(result_summaries(&outcome.history).len(), 1);
    assert_eq!(tool_results(&outcome.history)[0].content.text(), "7");
}

#[tokio::test]
async fn an_external_tool_waits_for_its_result_under_its_own_name() {
    let kit = Toolkit::new([Tool::external(spec("ask")).unwrap()]).searchable();
    let agent = agent_with(kit, reply_calling_inner("c1", "ask", json!({})));
    let (_, outcome) = run_folded(&agent).await;
    assert_eq!(outcome.pending[0].name, "ask");
    let pending = outcome.pending[0].clone();
    let approved = agent.resume(outcome.history.clone(), [(pending.clone(), Verdict::Approve)]);
    assert!(approved.is_err(), "it cannot run here");
    let answered = agent.resume(outcome.history, [(pending, Verdict::output("yes"))]).unwrap();
    let outcome = answered.outcome().await;
    assert_eq!(tool_results(&outcome.history)[0].content.text(), "yes");
}

#[tokio::test]
async fn arguments_may_be_a_string_that_holds_an_object() {
    let kit = Toolkit::new([number_tool("count")]).searchable();
    let result = only_result(kit, reply_calling_inner("c1", "count", r#"{"n":7}"#.into())).await;
    assert_eq!(result, (ResultKind::Ok, "7".to_owned()));
}

#[tokio::test]
async fn inner_arguments_are_checked_against_the_tools_own_schema() {
    let kit = || Toolkit::new([number_tool("count")]).searchable();
    for wrong in [json!({ "n": "seven" }), json!({}), json!([7]), json!("{"), Value::Null] {
        let (kind, text) = only_result(kit(), reply_calling_inner("c1", "count", wrong)).await;
        assert_eq!(kind, ResultKind::InvalidArguments);
        assert!(text.starts_with("The arguments of `count` do not fit"), "{text}");
    }
}

#[tokio::test]
async fn a_malformed_call_is_answered_with_the_reason() {
    let counter = Counter::default();
    let kit = || Toolkit::new([ok_tool("count", &counter)]).searchable();
    for (arguments, says) in [
        (r#"{"arguments":{}}"#, "missing field `name`"),
        (r#"{"name":7,"arguments":{}}"#, "expected a string"),
        (r#"{"name":"count","n":7}"#, "unknown field `n`"),
        (r#"{"name":"call_tool","arguments":{"name":"count"}}"#, "call it directly"),
        (r#"{"name":"search_tools","arguments":{"query":"x"}}"#, "call it directly"),
        (r#"{"name":"count","arguments":{}"#, "not JSON"),
    ] {
        let reply = Reply::new().call_raw("c1", "call_tool", arguments);
        let (kind, text) = only_result(kit(), reply).await;
        assert_eq!(kind, ResultKind::InvalidArguments, "{text}");
        assert!(text.contains(says), "{text}");
    }
    assert_eq!(counter.started_count(), 0);
}

#[tokio::test]
async fn an_unknown_tool_is_answered_with_the_names_of_similar_ones() {
    let kit =
        Toolkit::new(["create_issue", "list_issues", "play"].map(uncounted_tool)).searchable();
    let reply = reply_calling_inner("c1", "new_issue", json!({}));
    let (kind, text) = only_result(kit, reply).await;
    assert_eq!(kind, ResultKind::UnknownTool);
    assert!(text.contains("There is no tool `new_issue`"), "{text}");
    assert!(text.contains("`create_issue`, `list_issues`") && !text.contains("play"), "{text}");
    assert!(text.contains("`search_tools`"), "{text}");
}

#[tokio::test]
async fn a_searchable_tool_can_be_called_directly() {
    let kit = Toolkit::new([number_tool("count")]).searchable();
    let (_, outcome) =
        run_folded(&agent_with(kit, Reply::new().call("count", json!({ "n": 7 })))).await;
    let results = tool_results(&outcome.history);
    assert_eq!((&*results[0].name, &*results[0].content.text()), ("count", "7"));
}

#[tokio::test(start_paused = true)]
async fn inner_tools_keep_their_concurrency() {
    let running = Arc::new(Mutex::new((0, 0)));
    let tool = |name: &'static str| {
        let running = Arc::clone(&running);
        Tool::raw(spec(name), move |_, _| {
            let running = Arc::clone(&running);
            async move {
                let now = {
                    let mut running = running.lock().unwrap();
                    running.0 += 1;
                    running.1 = running.1.max(running.0);
                    running.0
                };
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                running.lock().unwrap().0 -= 1;
                now
            }
        })
        .unwrap()
    };
    for (kit, most) in [
        (Toolkit::new([tool("nap")]), 3),
        (Toolkit::new([tool("nap").exclusive()]), 1),
        (Toolkit::new([tool("nap")]).with_max_concurrency(NonZeroUsize::new(2).unwrap()), 2),
    ] {
        let call = wrapped("nap", json!({})).to_string();
        let reply = ["a", "b", "c"]
            .iter()
            .fold(Reply::new(), |reply, id| reply.call_raw(id, "call_tool", &call));
        *running.lock().unwrap() = (0, 0);
        let (_, outcome) = run_folded(&agent_with(kit.searchable(), reply)).await;
        assert_eq!(tool_results(&outcome.history).len(), 3);
        assert_eq!(running.lock().unwrap().1, most);
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_call_is_reported_under_the_name_of_its_tool() {
    let nap = Tool::raw(spec("nap"), |_, _| std::future::pending::<&str>()).unwrap();
    let kit = Toolkit::new([nap]).searchable();
    let agent = agent_with(kit, reply_calling_inner("c1", "nap", json!({})));
    let mut run = agent.run("go");
    pull_until(&mut run, |event| matches!(event, Event::Tool(ToolEvent::Started { .. }))).await;
    run.handle().interrupt();
    let output = pull_until(&mut run, |event| event.tool_output().is_some()).await;
    let result = output.tool_output().unwrap();
    assert_eq!((&*result.name, result.kind), ("nap", ResultKind::Interrupted));
    let outcome = run.outcome().await;
    assert_eq!(tool_results(&outcome.history)[0].name, "call_tool");
}

#[tokio::test]
async fn a_dry_run_skips_inner_tools_and_still_searches() {
    let counter = Counter::default();
    let kit = || Toolkit::new([ok_tool("count", &counter)]).searchable().with_dry_run(true);
    let (kind, text) = only_result(kit(), reply_calling_inner("c1", "count", json!({}))).await;
    assert_eq!(kind, ResultKind::Skipped);
    assert!(text.contains("`count` would be called with {}"), "{text}");
    let search = Reply::new().call("search_tools", json!({ "query": "count" }));
    assert_eq!(only_result(kit(), search).await.0, ResultKind::Ok);
    assert_eq!(counter.started_count(), 0);
}

#[tokio::test]
async fn a_suspended_sub_agent_called_through_call_tool_continues() {
    let ran = Counter::default();
    let child = Agent::new(Scripted::new([
        reply_calling_inner("d1", "delete", json!({})),
        Reply::text("deleted"),
    ]));
    let delete = ok_tool("delete", &ran).requires_approval();
    let child = child.with_toolkit(Toolkit::new([delete]).searchable());
    let kit = Toolkit::new([child.as_tool("clean", "Cleans up").unwrap()]).searchable();
    let agent = agent_with(kit, reply_calling_inner("c1", "clean", json!({ "prompt": "go" })));
    let (events, outcome) = run_folded(&agent).await;
    assert!(events.iter().any(|event| {
        matches!(event, Event::Nested { call_id, name, .. } if call_id == "c1" && name == "clean")
    }));
    let pending = outcome.pending[0].clone();
    assert_eq!((&*pending.name, &pending.path[..]), ("delete", &["c1".to_owned()][..]));
    assert_eq!(ran.started_count(), 0);
    let history: History =
        serde_json::from_str(&serde_json::to_string(&outcome.history).unwrap()).unwrap();
    let outcome = agent.resume(history, [(pending, Verdict::Approve)]).unwrap().outcome().await;
    assert_eq!(outcome.reason, EndReason::Completed, "{:?}", outcome.error);
    assert_eq!(ran.started_count(), 1);
    assert_eq!(tool_results(&outcome.history)[0].content.text(), "deleted");
}

#[tokio::test]
async fn a_session_restores_the_history_and_runs_pending_inner_calls() {
    let kit = Toolkit::new([number_tool("pay").requires_approval()]).searchable();
    let agent = agent_with(kit, reply_calling_inner("c1", "pay", json!({ "n": 7 })));
    let store = MemoryStore::new();
    let session = Session::open(store.clone(), "s").await.unwrap();
    session.run(&agent, "go").await.unwrap().outcome().await.unwrap();
    let session = Session::open(store.clone(), "s").await.unwrap();
    let SessionState::Pending { calls } = session.state() else { panic!("nothing is pending") };
    assert_eq!(calls[0].name, "pay");
    let verdicts = calls.into_iter().map(|call| (call, Verdict::Approve));
    let outcome = session.resume(&agent, verdicts).await.unwrap().outcome().await.unwrap();
    let restored = Session::open(store, "s").await.unwrap().history();
    assert_eq!(restored, outcome.history);
    assert_eq!(tool_results(&restored)[0].name, "call_tool");
    assert_eq!(restore_history("s", restored.iter().cloned().map(Into::into)), restored);
}

#[tokio::test]
async fn a_repaired_outer_call_becomes_the_inner_one() {
    let repair = hook::repair_arguments(|_, call: &ToolCall, _: &str| {
        let fixed = call.arguments.replace(",}", "}");
        (fixed != call.arguments).then_some(fixed)
    });
    let kit = Toolkit::new([number_tool("count")]).searchable();
    let reply =
        Reply::new().call_raw("c1", "call_tool", r#"{"name":"count","arguments":{"n":7},}"#);
    let (events, outcome) = run_folded(&agent_with(kit, reply).with_hook(repair)).await;
    let output = events.iter().find_map(Event::tool_output).unwrap();
    assert_eq!((&*output.name, &*output.content.text()), ("count", "7"));
    assert_eq!(tool_results(&outcome.history)[0].name, "call_tool");
}

#[tokio::test]
async fn requests_list_the_same_bytes_while_the_tools_change() {
    let tools = |count: usize| (0..count).map(|n| uncounted_tool(&format!("tool_{n}")));
    let mut seen = HashSet::new();
    for count in [1, 3, 40] {
        let model = Scripted::new([
            Reply::new().call("search_tools", json!({ "query": "tool" })),
            reply_calling_inner("c1", "tool_0", json!({})),
            Reply::text("done"),
        ]);
        let kit = Toolkit::new(tools(count)).searchable();
        let agent = Agent::new(model.clone()).with_toolkit(kit).with_system("Be brief.");
        let agent = agent.with_tool(uncounted_tool("one_more"));
        agent.run("go").outcome().await;
        assert_eq!(model.requests().len(), 3);
        for request in model.requests() {
            let body = encode(Wire::Anthropic, "m", &request);
            seen.insert((body["tools"].to_string(), body["system"].to_string()));
        }
    }
    assert_eq!(seen.len(), 1);
}

#[tokio::test]
async fn a_replay_of_a_run_makes_the_same_requests() {
    let recorder = turnstream::replay::Recorder::to_callback(|run| {
        check_replay(&run, run.recording.replay(&run.agent));
        let json = serde_json::to_string(&run.recording.events().collect::<Vec<_>>()).unwrap();
        assert!(json.contains("call_tool"));
    });
    let kit = Toolkit::new([number_tool("count")]).searchable();
    let agent = Agent::new(Scripted::new([
        Reply::new().call("search_tools", json!({ "query": "number" })),
        reply_calling_inner("c1", "count", json!({ "n": 7 })),
        Reply::text("done"),
    ]));
    let outcome = agent.with_toolkit(kit).with_recorder(&recorder).run("go").outcome().await;
    assert_eq!(outcome.text, "done");
}

#[tokio::test]
async fn a_search_returns_the_schemas_of_matching_tools() {
    let kit = Toolkit::new([number_tool("count"), uncounted_tool("play")]).searchable();
    let search = Reply::new().call("search_tools", json!({ "query": "count something" }));
    let (kind, text) = only_result(kit, search).await;
    assert_eq!(kind, ResultKind::Ok);
    let spec = number_tool("count").spec().clone();
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        found,
        json!({ "tools": [{ "name": "count", "description": spec.description,
            "parameters": spec.parameters.to_value() }] })
    );
    assert!(text.contains(spec.parameters.as_str()), "the schema is written as the tool has it");
}

#[tokio::test]
async fn a_search_without_a_match_or_query_is_reported() {
    let kit = || Toolkit::new([uncounted_tool("play")]).searchable();
    let search = |arguments: Value| Reply::new().call("search_tools", arguments);
    let (kind, text) = only_result(kit(), search(json!({ "query": "xylophone" }))).await;
    assert_eq!(kind, ResultKind::Ok);
    assert!(text.starts_with("No tool matches. Search with other words"), "{text}");
    for wrong in [json!({ "query": "  " }), json!({}), json!({ "query": 7 })] {
        assert_eq!(only_result(kit(), search(wrong)).await.0, ResultKind::InvalidArguments);
    }
}

#[tokio::test]
async fn a_search_is_limited_in_tools_and_bytes() {
    let tools = || (0..9).map(|n| number_tool(&format!("count_{n}")));
    let found = async |search: ToolSearch, limit: Option<usize>| -> Value {
        let kit = Toolkit::new(tools()).with_search(search);
        let mut arguments = json!({ "query": "count" });
        if let Some(limit) = limit {
            arguments["limit"] = limit.into();
        }
        let reply = Reply::new().call("search_tools", arguments);
        serde_json::from_str(&only_result(kit, reply).await.1).unwrap()
    };
    let len = |found: &Value| found["tools"].as_array().unwrap().len();
    assert_eq!(len(&found(ToolSearch::new(), None).await), 5);
    assert_eq!(len(&found(ToolSearch::new(), Some(2)).await), 2);
    assert_eq!(len(&found(ToolSearch::new(), Some(0)).await), 1);
    assert_eq!(len(&found(ToolSearch::new(), Some(100)).await), 5);
    let three = ToolSearch::new().with_max_results(NonZeroUsize::new(3).unwrap());
    assert_eq!(len(&found(three.clone(), None).await), 3);
    let short = found(three.with_max_result_bytes(1), None).await;
    assert_eq!(short["tools"].as_array().unwrap().len(), 1);
    assert_eq!(short["also"], json!(["count_1", "count_2"]));
}

#[test]
fn always_listed_tools_are_sent_and_excluded_from_search() {
    let search = ToolSearch::new().with_always_listed(["play", "missing"]);
    let kit = Toolkit::new(["look", "play"].map(uncounted_tool)).with_search(search);
    assert_eq!(names(&kit), ["play", "search_tools", "call_tool"]);
    assert!(kit.get("look").is_some() && kit.get("search_tools").is_some());
    let added = kit.clone().with_tool(uncounted_tool("jump"));
    assert_eq!(names(&added), names(&kit));
    let deferred: Vec<_> =
        added.deferred_specs().iter().map(|it| (it.name.clone(), it.deferred)).collect();
    let expected = [("look", true), ("play", false), ("jump", true)];
    assert_eq!(deferred, expected.map(|(name, deferred)| (name.to_owned(), deferred)));
}

#[test]
fn a_restricted_toolkit_keeps_unlisted_tools_only_with_call_tool() {
    let search = ToolSearch::new().with_always_listed(["play"]);
    let kit = Toolkit::new(["look", "play", "jump"].map(uncounted_tool)).with_search(search);
    let all = kit.specs();
    let without_play: Vec<ToolSpec> = all.iter().skip(1).cloned().collect();
    let restricted = kit.restricted_to(&without_play);
    assert_eq!(names(&restricted), ["search_tools", "call_tool"]);
    assert!(restricted.get("look").is_some() && restricted.get("play").is_none());
    let plain = kit.restricted_to(&[spec("jump")]);
    assert_eq!(names(&plain), ["jump"]);
    assert!(plain.get("call_tool").is_none());
}

#[test]
fn with_rationale_found_tools_have_the_rationale_field() {
    let kit = Toolkit::new([number_tool("count")]).searchable();
    let audited = kit.clone().with_rationale();
    assert_eq!(audited.specs(), kit.specs());
    let schema = audited.get("count").unwrap().spec().parameters.to_value();
    assert!(schema["properties"]["_why"].is_object());
}

#[tokio::test]
async fn duplicate_tool_names_send_no_request() {
    for double in ["search_tools", "call_tool", "look"] {
        let kit = Toolkit::new(["look", double].map(uncounted_tool)).searchable();
        let model = Scripted::new(["never"]);
        let outcome = Agent::new(model.clone()).with_toolkit(kit).run("go").outcome().await;
        let error = outcome.error.unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.message().contains(&format!("two tools have the name `{double}`")));
        assert!(model.requests().is_empty());
    }
}

/// A provider that searches for tools itself.
#[derive(Clone)]
struct Searching(Scripted);

impl Provider for Searching {
    fn stream_turn(&self, request: Request) -> turnstream::TurnStream {
        self.0.stream_turn(request)
    }

    fn model(&self) -> &str {
        self.0.model()
    }

    fn has_tool_search(&self) -> bool {
        true
    }
}

fn deferred_names(request: &Request) -> Vec<(&str, bool)> {
    request.tools.iter().map(|tool| (&*tool.name, tool.deferred)).collect()
}

#[tokio::test]
async fn a_provider_with_its_own_search_gets_the_whole_list() {
    let search = ToolSearch::new().with_always_listed(["play"]);
    let kit = Toolkit::new([number_tool("count"), uncounted_tool("play")]).with_search(search);
    let model = Scripted::new([Reply::new().call("count", json!({ "n": 7 })), "done".into()]);
    let agent = Agent::new(Searching(model.clone())).with_toolkit(kit);
    let (_, outcome) = run_folded(&agent.with_recorder(replaying_recorder())).await;
    assert_eq!(tool_results(&outcome.history)[0].content.text(), "7");
    for request in model.requests() {
        assert_eq!(deferred_names(&request), [("count", true), ("play", false)]);
    }
}

#[tokio::test]
async fn each_provider_of_an_agent_gets_tools_in_the_form_it_supports() {
    let failing = Scripted::from_fn(|_, _| Reply::error(Error::new(ErrorKind::Auth, "no key")));
    let other = Scripted::new(["done"]);
    let kit = Toolkit::new([number_tool("count")]).searchable();
    let agent = Agent::new(Searching(failing.clone())).with_fallback(other.clone());
    agent.with_toolkit(kit).run("go").outcome().await;
    assert_eq!(deferred_names(&failing.requests()[0]), [("count", true)]);
    let constant = [("search_tools", false), ("call_tool", false)];
    assert_eq!(deferred_names(&other.requests()[0]), constant);
}

#[test]
fn a_composite_provider_searches_tools_only_if_all_its_parts_do() {
    use turnstream::provider::{CircuitBreaker, Fallback, Retry};
    let plain = || Scripted::new(["x"]);
    let searching = || Searching(plain());
    assert!(!plain().has_tool_search());
    assert!(Retry::new(CircuitBreaker::new(Arc::new(searching()))).has_tool_search());
    assert!(Fallback::new(searching()).or(searching()).has_tool_search());
    assert!(!Fallback::new(searching()).or(plain()).has_tool_search());
}

#[test]
fn a_spec_is_written_as_deferred_only_if_it_is() {
    let plain = serde_json::to_string(&spec("t")).unwrap();
    assert!(!plain.contains("deferred"));
    assert_eq!(serde_json::from_str::<ToolSpec>(&plain).unwrap(), spec("t"));
    let deferred = spec("t").with_deferred(true);
    let json = serde_json::to_string(&deferred).unwrap();
    assert_eq!(serde_json::from_str::<ToolSpec>(&json).unwrap(), deferred);
}
