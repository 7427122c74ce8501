//! Calls of sub-agents that wait for a verdict: the run is suspended with them, and continues.

use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use serde_json::json;
use turnstream::agent::{Budget, hook};
use turnstream::event::{EndReason, ToolEvent};
use turnstream::item::{PendingCall, ResultKind, ToolCall};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolPolicy, Toolkit, Verdict};
use turnstream::{Agent, ErrorKind, Event, History, Item, Journal, Outcome, Request, Run};

use turnstream_test_support::items::session_items;
use turnstream_test_support::replays;
use turnstream_test_support::runs::{
    collect_rest, final_outcome, pull_ready, pull_until, result_kinds, result_summaries,
};
use turnstream_test_support::tools::{constant_tool, spec};

/// The idempotency keys of the calls that ran, in order.
#[derive(Clone, Default)]
struct ExecutedKeys(Arc<Mutex<Vec<String>>>);

impl ExecutedKeys {
    fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// A tool that records its key.
    fn recording_tool(&self, name: &'static str) -> Tool {
        let ran = self.clone();
        let run = move |_, cx: turnstream::tool::ToolContext| {
            ran.0.lock().unwrap().push(cx.idempotency_key().to_owned());
            cx.record_change(name);
            async move { format!("{name} ran") }
        };
        Tool::raw(spec(name), run).unwrap()
    }
}

/// A model that makes these calls, and then answers with their results.
fn model_with_calls(calls: &'static [(&'static str, &'static str)]) -> Scripted {
    Scripted::from_fn(move |request, _| {
        let results = request.history.iter().filter_map(Item::as_tool_result);
        let texts: Vec<String> = results.map(|result| result.content.text()).collect();
        match texts.is_empty() {
            false => Reply::text(texts.join(", ")),
            true => calls.iter().fold(Reply::new(), |reply, (id, name)| {
                reply.call_raw(id, name, r#"{"prompt":"go"}"#)
            }),
        }
    })
}

/// An agent with one deletion, which needs approval.
fn agent_with_one_delete(ran: &ExecutedKeys) -> Agent {
    let tools = [ran.recording_tool("look"), ran.recording_tool("delete").requires_approval()];
    Agent::new(model_with_calls(&[("look_1", "look"), ("delete_1", "delete")])).with_tools(tools)
}

/// An agent with two deletions, one after the other, each of which needs approval.
fn agent_with_two_deletes(ran: &ExecutedKeys) -> Agent {
    let twice = Scripted::from_fn(|request, _| {
        match request.history.iter().filter_map(Item::as_tool_result).count() {
            n @ 0..=1 => Reply::new().call_raw(&format!("d{n}"), "delete", "{}"),
            _ => Reply::text("both are gone"),
        }
    });
    Agent::new(twice).with_tools([ran.recording_tool("delete").requires_approval()])
}

fn sub_agent_tool(name: &str, agent: &Agent) -> Tool {
    agent.as_tool(name, "").unwrap()
}

/// An agent whose sub-agent is the cleaner.
fn parent_agent(ran: &ExecutedKeys) -> Agent {
    Agent::new(model_with_calls(&[("sub_1", "clean")]))
        .with_tools([sub_agent_tool("clean", &agent_with_one_delete(ran))])
}

/// An agent whose sub-agent is the boss.
fn grandparent_agent(ran: &ExecutedKeys) -> Agent {
    Agent::new(model_with_calls(&[("boss_1", "boss")]))
        .with_tools([sub_agent_tool("boss", &parent_agent(ran))])
}

async fn run_until_suspended(agent: &Agent) -> Outcome {
    let outcome = agent.run_from(History::empty("h"), "go").outcome().await;
    assert_eq!(outcome.reason, EndReason::Pending, "{outcome:?}");
    outcome
}

/// The history as another process reads it.
fn round_trip_history(history: &History) -> History {
    let read: History = serde_json::from_str(&serde_json::to_string(history).unwrap()).unwrap();
    assert_eq!(&read, history);
    read
}

fn approve_all(pending: &[PendingCall]) -> Vec<(PendingCall, Verdict)> {
    pending.iter().map(|call| (call.clone(), Verdict::Approve)).collect()
}

fn pending_call(path: &[&str], call_id: &str, name: &str) -> PendingCall {
    let path = path.iter().map(|id| (*id).to_owned()).collect();
    let arguments = r#"{"prompt":"go"}"#.to_owned();
    let call = ToolCall { call_id: call_id.into(), name: name.into(), arguments };
    PendingCall { path, ..call.into() }
}

/// Returns the calls without their requests for verdicts.
fn without_requests(calls: &[PendingCall]) -> Vec<PendingCall> {
    let call = |call: &PendingCall| PendingCall {
        approval_id: String::new(),
        definition: String::new(),
        ..call.clone()
    };
    calls.iter().map(call).collect()
}

#[tokio::test]
async fn a_pending_call_of_a_sub_agent_suspends_the_run_and_has_its_path() {
    let ran = ExecutedKeys::default();
    let outcome = run_until_suspended(&parent_agent(&ran)).await;
    let waits = pending_call(&["sub_1"], "delete_1", "delete");
    assert_eq!(without_requests(&outcome.pending), [waits]);
    let json = serde_json::to_value(&outcome.pending).unwrap();
    assert_eq!(json[0]["path"], json!(["sub_1"]));
    assert_eq!(outcome.history.pending_calls(), outcome.pending);
    assert_eq!(ran.keys(), ["h/sub_1/look_1"], "its sibling ran");
    let nested = outcome.history.nested_history("sub_1").expect("what the sub-agent did");
    assert_eq!(nested.id(), "h/sub_1");
    assert_eq!(result_kinds(nested), [ResultKind::Ok]);
    assert!(!outcome.history.is_settled(), "the call of the sub-agent is open");
    let json = serde_json::to_value(&outcome.history).unwrap();
    assert_eq!(json["nested"]["sub_1"]["id"], "h/sub_1");
}

#[tokio::test]
async fn a_suspended_sub_agent_under_a_custom_policy_restarts_with_its_prompt() {
    struct OtherExtension;
    impl ToolPolicy for OtherExtension {
        fn policy_extension(&self) -> Option<Arc<dyn Any + Send + Sync>> {
            Some(Arc::new("of another kind"))
        }
    }
    let ran = ExecutedKeys::default();
    let model = model_with_calls(&[("look_1", "look"), ("delete_1", "delete")]);
    let tools = [ran.recording_tool("look"), ran.recording_tool("delete").requires_approval()];
    let clean = sub_agent_tool("clean", &Agent::new(model.clone()).with_tools(tools));
    let boss = Agent::new(model_with_calls(&[("sub_1", "clean")])).with_tools([clean.clone()]);
    let outcome = run_until_suspended(&boss).await;

    let mut calls =
        Toolkit::new([clean]).resume(&outcome.history).unwrap().with_policy(OtherExtension);
    while calls.next().await.is_some() {}
    assert_eq!(calls.finish().unwrap().results.len(), 1);
    let [first, anew] = &model.requests()[..] else { panic!("{:?}", model.requests()) };
    let prompt = |request: &Request| request.history.iter().find_map(Item::as_user).cloned();
    assert_eq!(prompt(first).unwrap().text(), "go");
    assert_eq!(prompt(anew), prompt(first));
}

#[tokio::test]
async fn pending_calls_of_the_run_itself_have_no_path_in_json() {
    let outcome = run_until_suspended(&agent_with_one_delete(&ExecutedKeys::default())).await;
    let json = serde_json::to_string(&without_requests(&outcome.pending)).unwrap();
    let expected = r#"[{"call_id":"delete_1","name":"delete","arguments":"{\"prompt\":\"go\"}"}]"#;
    assert_eq!(json, expected);
    let json = serde_json::to_value(&outcome.history).unwrap();
    assert!(json.get("nested").is_none());
}

#[tokio::test]
async fn an_approved_call_of_a_sub_agent_runs_once_in_another_process() {
    for levels in [1, 2] {
        let agent = |ran: &ExecutedKeys| {
            if levels == 1 { parent_agent(ran) } else { grandparent_agent(ran) }
        };
        let outcome = run_until_suspended(&agent(&ExecutedKeys::default())).await;
        let (history, ran) = (round_trip_history(&outcome.history), ExecutedKeys::default());
        let resumed = agent(&ran).resume(history.clone(), approve_all(&outcome.pending)).unwrap();
        let journal = Journal::new(history);
        let mut events = Vec::new();
        let end = {
            let mut run = resumed;
            while let Some(event) = run.next().await {
                events.push(event.unwrap());
                journal.observe(events.last().unwrap());
                assert_eq!(run.history(), journal.history(), "{levels} levels");
            }
            final_outcome(&events).clone()
        };
        assert_eq!(end.reason, EndReason::Completed);
        assert_eq!(end.text, "look ran, delete ran", "the sub-agent knows what it saw before");
        let path = if levels == 1 { "h/sub_1" } else { "h/boss_1/sub_1" };
        assert_eq!(ran.keys(), [format!("{path}/delete_1")], "only this, under its old key");
        assert!(end.history.is_settled());
        let json = serde_json::to_value(&end.history).unwrap();
        assert!(json.get("nested").is_none(), "the result is there");
    }
}

#[tokio::test]
async fn a_denied_call_of_a_sub_agent_is_answered_and_the_sub_agent_continues() {
    let ran = ExecutedKeys::default();
    let outcome = run_until_suspended(&grandparent_agent(&ran)).await;
    let expected = pending_call(&["boss_1", "sub_1"], "delete_1", "delete");
    assert_eq!(without_requests(&outcome.pending), [expected]);
    let verdicts = [(outcome.pending[0].clone(), Verdict::deny("keep it"))];
    let resumed =
        grandparent_agent(&ran).resume(round_trip_history(&outcome.history), verdicts).unwrap();
    let end = resumed.outcome().await;
    assert_eq!(end.reason, EndReason::Completed);
    assert_eq!(end.text, "look ran, Denied: keep it");
    assert_eq!(ran.keys().len(), 1);
}

/// Two cleaners, a slow tool, and a pending call of its own.
fn agent_with_many_calls(ran: &ExecutedKeys) -> Agent {
    let slow = Tool::raw(spec("slow"), |_, _| async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        "slow ran"
    });
    let calls = &[("a", "clean"), ("own", "delete"), ("b", "clean"), ("c", "slow")];
    let delete = ran.recording_tool("delete").requires_approval();
    Agent::new(model_with_calls(calls)).with_tools([
        sub_agent_tool("clean", &agent_with_one_delete(ran)),
        delete,
        slow.unwrap(),
    ])
}

#[tokio::test(start_paused = true)]
async fn siblings_of_a_suspended_sub_agent_end_first_and_all_continue_on_resume() {
    let ran = ExecutedKeys::default();
    let outcome = run_until_suspended(&agent_with_many_calls(&ran)).await;
    let waits = [
        pending_call(&["a"], "delete_1", "delete"),
        pending_call(&[], "own", "delete"),
        pending_call(&["b"], "delete_1", "delete"),
    ];
    assert_eq!(without_requests(&outcome.pending), waits, "in the order of the calls");
    assert_eq!(result_summaries(&outcome.history), [("c", ResultKind::Ok, "slow ran".to_owned())]);
    let ran = ExecutedKeys::default();
    let mut verdicts = approve_all(&outcome.pending);
    verdicts[2].1 = Verdict::deny("one is enough");
    let resumed =
        agent_with_many_calls(&ran).resume(round_trip_history(&outcome.history), verdicts).unwrap();
    let end = resumed.outcome().await;
    assert_eq!(end.reason, EndReason::Completed, "{end:?}");
    let mut keys = ran.keys();
    keys.sort();
    assert_eq!(keys, ["h/a/delete_1", "h/own"]);
    let texts: Vec<_> =
        result_summaries(&end.history).into_iter().map(|(id, _, text)| (id, text)).collect();
    let text = |id: &str| &texts.iter().find(|(it, _)| *it == id).unwrap().1;
    assert_eq!(text("a"), "look ran, delete ran");
    assert_eq!(text("b"), "look ran, Denied: one is enough");
}

#[tokio::test]
async fn a_sub_agent_may_be_suspended_again() {
    let ran = ExecutedKeys::default();
    let child = agent_with_two_deletes(&ran);
    let agent = Agent::new(model_with_calls(&[("sub_1", "clean")]))
        .with_tools([sub_agent_tool("clean", &child)]);
    let mut outcome = run_until_suspended(&agent).await;
    for (at, expected) in ["d0", "d1"].into_iter().enumerate() {
        assert_eq!((outcome.reason, &*outcome.pending[0].call_id), (EndReason::Pending, expected));
        assert_eq!(ran.keys().len(), at);
        let resumed = agent
            .resume(round_trip_history(&outcome.history), approve_all(&outcome.pending))
            .unwrap();
        outcome = resumed.outcome().await;
    }
    assert_eq!((outcome.reason, &*outcome.text), (EndReason::Completed, "both are gone"));
    assert_eq!(ran.keys(), ["h/sub_1/d0", "h/sub_1/d1"]);
    let result = outcome.history.iter().find_map(Item::as_tool_result).unwrap();
    let report = result.report.as_ref().expect("the record of all of its parts");
    assert_eq!(report.side_effects.len(), 2, "{report:?}");
}

#[tokio::test]
async fn a_run_on_the_history_of_a_suspended_one_answers_the_call_as_interrupted() {
    let ran = ExecutedKeys::default();
    let outcome = run_until_suspended(&parent_agent(&ran)).await;
    let end = parent_agent(&ran)
        .run_from(round_trip_history(&outcome.history), "never mind")
        .outcome()
        .await;
    assert_eq!(result_kinds(&end.history), [ResultKind::Interrupted]);
    assert!(end.history.nested_history("sub_1").is_none(), "{:?}", end.history);
    assert_eq!(ran.keys().len(), 1, "nothing more ran");
}

#[tokio::test]
async fn an_invalid_resume_is_rejected_before_anything_runs() {
    let ran = ExecutedKeys::default();
    let outcome = run_until_suspended(&grandparent_agent(&ran)).await;
    let (history, call) = (round_trip_history(&outcome.history), outcome.pending[0].clone());
    let before = ran.keys();
    let (yes, no) = (Verdict::Approve, Verdict::deny("no"));
    let other = |path: &[&str], call_id| pending_call(path, call_id, "delete");
    let agent = grandparent_agent(&ran);
    let twice = vec![(call.clone(), yes.clone()), (call.clone(), no.clone())];
    let of_the_boss =
        vec![(call.clone(), yes.clone()), (pending_call(&[], "boss_1", "boss"), no.clone())];
    for verdicts in [vec![], twice, of_the_boss] {
        let error = agent.resume(history.clone(), verdicts.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{verdicts:?}");
    }
    for verdicts in [
        vec![(call.clone(), yes.clone()), (other(&["boss_1", "sub_1"], "x"), no.clone())],
        vec![(call.clone(), yes.clone()), (other(&["boss_1", "sub_2"], "delete_1"), no.clone())],
        vec![(call.clone(), yes.clone()), (other(&["x"], "delete_1"), no.clone())],
        vec![(other(&["boss_1", "sub_1"], "delete_1"), yes.clone())],
        vec![(other(&["boss_1"], "delete_1"), yes.clone())],
        vec![(other(&[], "delete_1"), yes.clone())],
        vec![(PendingCall { arguments: "{}".into(), ..call.clone() }, yes.clone())],
        vec![(PendingCall { approval_id: "a".into(), ..call.clone() }, yes.clone())],
        vec![(PendingCall { definition: "d".into(), ..call.clone() }, yes.clone())],
    ] {
        let error = agent.resume(history.clone(), verdicts.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{verdicts:?}");
    }
    let answers = || Scripted::new(["never asked"]);
    let bare =
        |name: &str, agent: &Agent| Agent::new(answers()).with_tools([sub_agent_tool(name, agent)]);
    let no_delete = bare("boss", &bare("clean", &Agent::new(answers())));
    for (agent, what) in [
        (Agent::new(answers()), "there is no tool `boss`"),
        (Agent::new(answers()).with_tools([constant_tool("boss", "I am not")]), "is not an agent"),
        (bare("boss", &Agent::new(answers())), "there is no tool `clean`"),
        (no_delete, "there is no tool `delete`"),
    ] {
        let error = agent.resume(history.clone(), approve_all(&outcome.pending)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.message().contains(what), "{error}");
    }
    assert_eq!(ran.keys(), before);
}

#[tokio::test]
async fn a_sub_agents_call_can_be_approved_between_two_polls_by_its_path() {
    let ran = ExecutedKeys::default();
    let mut run = grandparent_agent(&ran).run_from(History::empty("h"), "go");
    let mut asked = 0;
    while let Some(event) = run.next().await {
        let event = event.unwrap();
        if let Some(call) = event.approval_request() {
            asked += 1;
            let expected = pending_call(&["boss_1", "sub_1"], "delete_1", "delete");
            assert_eq!(without_requests(std::slice::from_ref(&call)), [expected]);
            let short = PendingCall { path: vec!["boss_1".into()], ..call.clone() };
            assert!(run.approve(short).is_err(), "the boss has no such call");
            let without_path = PendingCall { path: Vec::new(), ..call.clone() };
            assert!(run.approve(without_path).is_err(), "nor has the chief");
            assert!(run.approve(call.to_tool_call()).is_err(), "it names no request");
            run.approve(call.clone()).unwrap();
            assert!(run.deny(call, "too late").is_err(), "it has its verdict");
        }
        if let Some(outcome) = event.outcome() {
            assert_eq!(outcome.reason, EndReason::Completed, "{outcome:?}");
        }
    }
    assert_eq!((asked, ran.keys().len()), (1, 2));
}

#[tokio::test]
async fn policies_and_limits_are_not_applied_again_to_a_suspended_sub_agents_call() {
    let ran = ExecutedKeys::default();
    let outcome = run_until_suspended(&parent_agent(&ran)).await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let deny = hook::before_tool(move |_, call| {
        log.lock().unwrap().push(call.call_id.clone());
        async { turnstream::agent::hook::CallDecision::Deny("not again".into()) }
    });
    let agent = parent_agent(&ran).with_hook(deny).with_budget(Budget::new().with_tool_calls(0));
    let resumed =
        agent.resume(round_trip_history(&outcome.history), approve_all(&outcome.pending)).unwrap();
    let end = resumed.outcome().await;
    assert!(asked.lock().unwrap().is_empty());
    assert_eq!(result_summaries(&end.history)[0].2, "look ran, delete ran", "{end:?}");
}

/// Drops a resumed run after each of its events, resumes the history that is left, and counts the
/// executions.
#[tokio::test]
async fn a_resumed_run_dropped_at_any_poll_continues_with_its_sub_agents_progress() {
    let outcome = run_until_suspended(&parent_agent(&ExecutedKeys::default())).await;
    let resumed = |ran: &ExecutedKeys, history: &History| -> Run {
        let verdicts = approve_all(&history.pending_calls());
        parent_agent(ran).resume(round_trip_history(history), verdicts).unwrap()
    };
    let all = collect_rest(&mut resumed(&ExecutedKeys::default(), &outcome.history)).await.len();
    for at in 0..all {
        let ran = ExecutedKeys::default();
        let mut run = resumed(&ran, &outcome.history);
        for _ in 0..at {
            run.next().await.unwrap().unwrap();
        }
        let left = run.history();
        drop(run);
        let has_result =
            left.nested_history("sub_1").is_some_and(|nested| result_kinds(nested).len() == 2);
        let was_answered = left.unanswered_calls().is_empty();
        if !was_answered {
            assert_eq!(left.pending_calls().len(), usize::from(!has_result), "after {at} events");
            let end = resumed(&ran, &left).outcome().await;
            assert_eq!(end.reason, EndReason::Completed, "after {at} events: {end:?}");
        }
        let runs = if has_result || was_answered { 1 } else { ran.keys().len() };
        assert_eq!(ran.keys().len(), runs, "after {at} events");
        assert!(!ran.keys().is_empty() && ran.keys().iter().all(|key| key == "h/sub_1/delete_1"));
    }
}

#[tokio::test]
async fn serialized_events_of_a_suspended_run_fold_to_its_history() {
    let ran = ExecutedKeys::default();
    let mut run = grandparent_agent(&ran).run_from(History::empty("h"), "go");
    let journal = Journal::new(History::empty("h"));
    let mut told = Vec::new();
    while let Some(event) = run.next().await {
        let line = serde_json::to_string(&event.unwrap()).unwrap();
        let event: Event = serde_json::from_str(&line).unwrap();
        journal.observe(&event);
        assert_eq!(journal.history(), run.history());
        if let Event::Tool(ToolEvent::Suspended { call_id, pending, nested, .. }) = &event {
            assert_eq!((&**call_id, nested.id()), ("boss_1", "h/boss_1"));
            told.extend(pending.clone());
            assert!(line.starts_with(r#"{"type":"tool_suspended","call_id":"boss_1","#));
        }
    }
    let expected = pending_call(&["sub_1"], "delete_1", "delete");
    assert_eq!(without_requests(&told), [expected]);
}

#[tokio::test]
async fn a_fork_of_a_suspended_run_has_its_own_idempotency_keys() {
    let ran = ExecutedKeys::default();
    let outcome = run_until_suspended(&grandparent_agent(&ran)).await;
    let forked = outcome.history.fork(&turnstream::env::CountingIds::new("f"));
    let nested = forked.nested_history("boss_1").unwrap();
    assert_eq!(nested.id(), format!("{}/boss_1", forked.id()));
    assert_eq!(
        nested.nested_history("sub_1").unwrap().id(),
        format!("{}/boss_1/sub_1", forked.id())
    );
}

#[tokio::test]
async fn the_history_of_a_suspended_sub_agent_is_not_sent_to_the_model() {
    let ran = ExecutedKeys::default();
    let outcome = run_until_suspended(&parent_agent(&ran)).await;
    let request = turnstream::Request::new(round_trip_history(&outcome.history));
    let bodies = [
        turnstream::provider::anthropic::encode(&request, "m").unwrap(),
        turnstream::provider::openai_chat::encode(
            &request,
            "m",
            &turnstream::provider::openai_chat::Dialect::default(),
        )
        .unwrap(),
        turnstream::provider::openai_responses::encode(&request, "m").unwrap(),
        turnstream::provider::gemini::encode(&request, "m").unwrap(),
    ];
    for body in bodies {
        let body = String::from_utf8(body).unwrap();
        assert!(body.contains("sub_1") || body.contains("clean"), "{body}");
        assert!(!body.contains("delete") && !body.contains("nested"), "{body}");
    }
}

#[tokio::test]
async fn without_a_parent_agent_a_waiting_sub_agent_ends_with_an_error_result() {
    let ran = ExecutedKeys::default();
    let kit = turnstream::Toolkit::new([sub_agent_tool("clean", &agent_with_one_delete(&ran))]);
    let model = model_with_calls(&[("sub_1", "clean")]);
    let history = History::from_items("h", [Item::user("go")]);
    let request = turnstream::Request::new(history.clone()).with_tools(kit.specs());
    let turn = turnstream::TurnStreamExt::into_turn(turnstream::provider::Provider::stream_turn(
        &model, request,
    ));
    let turn = Arc::new(turn.await.unwrap());
    let mut tools = kit.run(&history, &turn);
    while tools.next().await.is_some() {}
    let answered = tools.finish().unwrap();
    assert_eq!(result_kinds(&answered.history), [ResultKind::Error]);
    assert!(answered.pending.is_empty());
}

#[tokio::test]
async fn without_a_parent_agent_a_suspended_sub_agents_call_is_admitted_like_any_other() {
    let ran = ExecutedKeys::default();
    let outcome = run_until_suspended(&parent_agent(&ran)).await;
    let kit = turnstream::Toolkit::new([
        sub_agent_tool("clean", &agent_with_one_delete(&ran)).requires_approval()
    ]);
    let mut tools = kit.resume(&round_trip_history(&outcome.history)).unwrap();
    while tools.next().await.is_some() {}
    let answered = tools.finish().unwrap();
    assert_eq!(result_kinds(&answered.history), [ResultKind::Denied], "no approver existed");
    assert_eq!(ran.keys(), ["h/sub_1/look_1"], "nothing ran a second time");
}

/// An interactive run of which only the outcome is awaited.
fn start_interactive_run(agent: &Agent) -> Run {
    agent.clone().interactive().run_from(History::empty("h"), "go")
}

#[tokio::test]
async fn an_interactive_run_without_handles_is_suspended() {
    let ran = ExecutedKeys::default();
    let outcome = start_interactive_run(&agent_with_one_delete(&ran)).outcome().await;
    assert_eq!((outcome.reason, outcome.pending.len()), (EndReason::Pending, 1));
    // The same for an interactive sub-agent, whose handle its parent keeps.
    let child = agent_with_one_delete(&ran).interactive();
    let agent = Agent::new(model_with_calls(&[("sub_1", "clean")]))
        .with_tools([sub_agent_tool("clean", &child)]);
    let outcome = agent.run_from(History::empty("h"), "go").outcome().await;
    assert_eq!((outcome.reason, outcome.pending.len()), (EndReason::Pending, 1));
}

#[tokio::test]
async fn an_interactive_run_waits_until_its_last_handle_is_dropped() {
    let ran = ExecutedKeys::default();
    let child = agent_with_one_delete(&ran).interactive();
    let parent = Agent::new(model_with_calls(&[("sub_1", "clean")]))
        .with_tools([sub_agent_tool("clean", &child)]);
    for agent in [agent_with_one_delete(&ran), parent] {
        let run = start_interactive_run(&agent);
        let (handle, other) = (run.handle(), run.handle());
        let mut outcome = Box::pin(run.outcome());
        for _ in 0..3 {
            assert!((&mut outcome).now_or_never().is_none(), "it waits");
        }
        let nested = handle.sub_agent_handle("sub_1");
        drop(handle);
        assert!((&mut outcome).now_or_never().is_none(), "another handle is left");
        drop(other);
        if nested.is_some() {
            assert!((&mut outcome).now_or_never().is_none(), "one of the sub-agent is left");
            drop(nested);
        }
        // The task is woken: nothing else polls it.
        let outcome = tokio::time::timeout(Duration::from_secs(5), outcome).await.unwrap();
        assert_eq!(outcome.reason, EndReason::Pending);
    }
}

#[tokio::test]
async fn an_interactive_run_polled_as_a_stream_waits_for_a_verdict() {
    let ran = ExecutedKeys::default();
    let child = agent_with_one_delete(&ran).interactive();
    let agent = Agent::new(model_with_calls(&[("sub_1", "clean")]))
        .with_tools([sub_agent_tool("clean", &child)]);
    let mut run = start_interactive_run(&agent);
    let events = pull_ready(&mut run);
    assert!(events.iter().all(|event| event.outcome().is_none()), "it waits");
    let asked = events.iter().find_map(Event::approval_request).unwrap();
    run.approve(asked).unwrap();
    assert_eq!(final_outcome(&collect_rest(&mut run).await).reason, EndReason::Completed);
    assert_eq!(ran.keys().len(), 2);
}

#[tokio::test]
async fn a_suspended_sub_agent_with_repaired_arguments_can_continue() {
    let ran = ExecutedKeys::default();
    let model = Scripted::from_fn(|request, _| {
        match request.history.iter().find_map(Item::as_tool_result) {
            Some(result) => Reply::text(result.content.text()),
            None => Reply::new().call_raw("sub_1", "clean", r#"{"task":"go"}"#),
        }
    });
    let repair =
        hook::repair_arguments(|_: &_, _: &_, _: &_| Some(r#"{"prompt":"go"}"#.to_owned()));
    let agent = Agent::new(model)
        .with_tools([sub_agent_tool("clean", &agent_with_one_delete(&ran))])
        .with_hook(repair);
    let outcome = run_until_suspended(&agent).await;
    let resumed =
        agent.resume(round_trip_history(&outcome.history), approve_all(&outcome.pending)).unwrap();
    assert_eq!(resumed.outcome().await.text, "look ran, delete ran");
}

#[tokio::test]
async fn resuming_a_sub_agent_with_an_unusable_history_is_rejected_before_anything_runs() {
    let ran = ExecutedKeys::default();
    let outcome = run_until_suspended(&parent_agent(&ran)).await;
    let mut json = serde_json::to_value(&outcome.history).unwrap();
    let items = json["nested"]["sub_1"]["items"].as_array_mut().unwrap();
    items.push(json!({ "type": "user", "content": "one more thing" }));
    let history: History = serde_json::from_value(json).unwrap();
    let error = parent_agent(&ran).resume(history, approve_all(&outcome.pending)).unwrap_err();
    assert_eq!((error.kind(), error.parameter()), (ErrorKind::InvalidRequest, Some("sub_1")));
    assert!(error.message().contains("in the sub-agent of `sub_1`"), "{error}");
}

#[tokio::test]
async fn the_side_effects_of_a_suspended_sub_agent_are_reported_however_its_call_is_answered() {
    let changed = |outcome: &Outcome| {
        let result = outcome.history.iter().find_map(Item::as_tool_result).unwrap().clone();
        assert_eq!(result.kind, ResultKind::Interrupted);
        result.report.expect("a record").side_effects.clone()
    };
    for (make, at_most) in [(parent_agent as fn(&ExecutedKeys) -> Agent, 1), (grandparent_agent, 0)]
    {
        let ran = ExecutedKeys::default();
        let (agent, outcome) = (make(&ran), run_until_suspended(&make(&ran)).await);
        let look = [turnstream::item::SideEffect::of_change("look")];
        let (history, verdicts) =
            (round_trip_history(&outcome.history), approve_all(&outcome.pending));
        let end = agent.run_from(history.clone(), "never mind").outcome().await;
        assert_eq!(changed(&end), look, "answered by another run");
        for events in 0..=at_most {
            let mut run = agent.resume(history.clone(), verdicts.clone()).unwrap();
            for _ in 0..events {
                run.next().await.unwrap().unwrap();
            }
            run.interrupt();
            assert_eq!(
                changed(final_outcome(&collect_rest(&mut run).await)),
                look,
                "after {events} events"
            );
        }
    }
}

#[tokio::test]
async fn a_trace_shows_the_calls_of_a_sub_agent_that_continues_with_their_arguments() {
    use turnstream::EventStreamExt;
    use turnstream::trace::TraceAction;

    let ran = ExecutedKeys::default();
    let agent = grandparent_agent(&ran);
    let trace = agent.new_trace();
    let first = collect_rest(&mut agent.run_from(History::empty("h"), "go").trace_to(&trace)).await;
    let outcome = final_outcome(&first);
    let (steps, history) = (trace.events().len(), round_trip_history(&outcome.history));
    // The trace that observed the suspension, and a trace in another process.
    let other = agent.new_trace().with_resumed_history(&history);
    for (trace, seen) in [(trace, steps), (other, 0)] {
        let resumed = agent.resume(history.clone(), approve_all(&outcome.pending)).unwrap();
        collect_rest(&mut resumed.trace_to(&trace)).await;
        let mut tools = Vec::new();
        for step in &trace.events()[seen..] {
            if let TraceAction::Tool { tool, args, .. } = &step.action {
                tools.push((tool.clone(), args.as_ref().map(|args| args.as_str().to_owned())));
            }
        }
        let args = || Some(r#"{"prompt":"go"}"#.to_owned());
        assert_eq!(tools, ["delete", "clean", "boss"].map(|tool| (tool.to_owned(), args())));
    }
}

// ---- With tombstones, observers and compaction meanwhile

/// The positions of a history's tombstones.
fn tombstone_positions(history: &History) -> Vec<usize> {
    let void = history.iter().enumerate().filter(|(_, item)| item.tombstone);
    void.map(|(at, _)| at).collect()
}

/// A model that reports the last result, or makes this call.
fn single_call_model(id: &'static str, name: &'static str) -> Scripted {
    Scripted::from_fn(move |request, _| match request.history.last().unwrap().as_tool_result() {
        Some(result) => Reply::text(result.content.text()),
        None => Reply::new().call_raw(id, name, r#"{"prompt":"go"}"#),
    })
}

#[tokio::test]
async fn items_before_a_suspended_call_can_be_tombstoned_and_its_sub_agent_continues() {
    for levels in [1, 2] {
        let build = |ran: &ExecutedKeys| {
            let agent = match levels {
                1 => Agent::new(single_call_model("top", "clean"))
                    .with_tools([sub_agent_tool("clean", &agent_with_one_delete(ran))]),
                _ => Agent::new(single_call_model("top", "boss"))
                    .with_tools([sub_agent_tool("boss", &parent_agent(ran))]),
            };
            agent.with_recorder(replays::replaying_recorder())
        };
        let ran = ExecutedKeys::default();
        let mut run = build(&ran).run_from(History::from_items("h", session_items(2)), "go");
        run.tombstone([3]).unwrap();
        pull_until(&mut run, |event| matches!(event, Event::Tool(ToolEvent::Suspended { .. })))
            .await;
        let call = run.history().len() - 1;
        let error = run.tombstone([0, call]).unwrap_err();
        assert_eq!(error.parameter(), Some("top"));
        run.tombstone([7]).unwrap();
        let events = collect_rest(&mut run).await;
        let outcome = final_outcome(&events);
        assert_eq!(outcome.reason, EndReason::Pending);
        assert_eq!(tombstone_positions(&outcome.history), [1, 3, 4, 5, 7, 8]);
        assert_eq!(outcome.history.pending_calls(), outcome.pending);
        assert_eq!(outcome.new_items().len(), 2, "{:?}", outcome.new_items());
        let history = round_trip_history(&outcome.history);
        assert_eq!(history.nested_history("top").unwrap().id(), "h/top");

        let ran = ExecutedKeys::default();
        let resumed = build(&ran).resume(history, approve_all(&outcome.pending)).unwrap();
        assert_eq!(resumed.tombstone([0, call]).unwrap_err().parameter(), Some("top"));
        resumed.tombstone([0, 9]).unwrap();
        let end = resumed.outcome().await;
        assert_eq!(end.reason, EndReason::Completed, "{end:?}");
        assert_eq!(tombstone_positions(&end.history), [0, 1, 3, 4, 5, 7, 8, 9]);
        assert_eq!(ran.keys().len(), 1);
        assert_eq!(end.new_items().len(), 2, "{:?}", end.new_items());
    }
}

#[tokio::test]
async fn a_run_that_is_suspended_again_applies_tombstones_at_its_end() {
    let ran = ExecutedKeys::default();
    let child = agent_with_two_deletes(&ran);
    let agent = Agent::new(model_with_calls(&[("sub_1", "clean")]))
        .with_tools([sub_agent_tool("clean", &child)])
        .with_recorder(replays::replaying_recorder());
    let mut outcome = run_until_suspended(&agent).await;
    let resumed =
        agent.resume(round_trip_history(&outcome.history), approve_all(&outcome.pending)).unwrap();
    resumed.tombstone([0]).unwrap();
    outcome = resumed.outcome().await;
    assert_eq!(
        (outcome.reason, tombstone_positions(&outcome.history)),
        (EndReason::Pending, vec![0])
    );
    let nested = outcome.history.nested_history("sub_1").unwrap();
    assert_eq!(result_kinds(nested), [ResultKind::Ok]);
    let resumed =
        agent.resume(round_trip_history(&outcome.history), approve_all(&outcome.pending)).unwrap();
    outcome = resumed.outcome().await;
    assert_eq!(outcome.reason, EndReason::Completed);
    assert_eq!(ran.keys(), ["h/sub_1/d0", "h/sub_1/d1"]);
}

#[tokio::test]
async fn siblings_of_a_suspended_call_are_tombstoned_at_the_end_and_the_call_stays() {
    let ran = ExecutedKeys::default();
    let agent =
        Agent::new(model_with_calls(&[("sub_1", "clean"), ("look_0", "look"), ("sub_2", "clean")]))
            .with_tools([
                sub_agent_tool("clean", &agent_with_one_delete(&ran)),
                ran.recording_tool("look"),
            ])
            .with_recorder(replays::replaying_recorder());
    let mut run = agent.run_from(History::empty("h"), "go");
    let mut left = 2;
    while left > 0 {
        let event = run.next().await.unwrap().unwrap();
        left -= u32::from(matches!(event, Event::Tool(ToolEvent::Suspended { .. })));
    }
    run.tombstone([2]).unwrap();
    let handle = run.handle();
    let events = collect_rest(&mut run).await;
    let outcome = final_outcome(&events);
    assert_eq!((outcome.reason, outcome.pending.len()), (EndReason::Pending, 2), "{outcome:?}");
    assert_eq!(handle.history(), outcome.history);
    assert_eq!(tombstone_positions(&outcome.history), [2, 4], "{:?}", outcome.history);
    let resumed =
        agent.resume(round_trip_history(&outcome.history), approve_all(&outcome.pending)).unwrap();
    let end = resumed.outcome().await;
    assert_eq!(end.reason, EndReason::Completed, "{end:?}");
    let ids: Vec<String> =
        result_summaries(&end.history).iter().map(|it| it.0.to_owned()).collect();
    assert_eq!(ids, ["look_0", "sub_1", "sub_2"]);
}

#[tokio::test]
async fn a_suspended_sub_agent_leaves_no_observer_and_its_notes_are_sent_on_resume() {
    let counter = turnstream_test_support::tools::Counter::default();
    let alive = counter.clone();
    let endless = hook::assistant_message(move |_, _| {
        let alive = alive.enter();
        async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        }
    });
    let noting = hook::after_sampling(|_, _| async { vec![Item::user("note")] });
    let ran = ExecutedKeys::default();
    let child = agent_with_one_delete(&ran).with_hook(endless).with_hook(noting);
    let agent = Agent::new(model_with_calls(&[("sub_1", "clean")]))
        .with_tools([sub_agent_tool("clean", &child)])
        .with_recorder(replays::replaying_recorder());
    let outcome = run_until_suspended(&agent).await;
    assert_eq!((counter.started_count(), counter.alive_count()), (1, 0));
    let resumed =
        agent.resume(round_trip_history(&outcome.history), approve_all(&outcome.pending)).unwrap();
    let end = resumed.outcome().await;
    assert_eq!(end.reason, EndReason::Completed, "{end:?}");
    assert_eq!((counter.started_count(), counter.alive_count()), (2, 0));
}

#[tokio::test]
async fn tombstones_of_a_sub_agent_are_applied_even_if_it_is_suspended() {
    let ran = ExecutedKeys::default();
    let agent = parent_agent(&ran).with_recorder(replays::replaying_recorder());
    let journal = Journal::new(History::empty("h"));
    let mut run = agent.run_from(History::empty("h"), "go");
    let mut outcome = None;
    while let Some(event) = run.next().await {
        let event = event.unwrap();
        journal.observe(&event);
        assert_eq!(journal.history(), run.history());
        if let Event::Nested { event, .. } = &event
            && event.tool_output().is_some()
        {
            // The completed `look` call, and the parent's text.
            let child = run.handle().sub_agent_handle("sub_1").unwrap();
            let call = child.history().iter().position(|item| item.as_tool_call().is_some());
            child.tombstone([0, call.unwrap()]).unwrap();
        }
        outcome = event.outcome().cloned().or(outcome);
    }
    let outcome = outcome.unwrap();
    assert_eq!(outcome.reason, EndReason::Pending);
    let history = round_trip_history(&outcome.history);
    assert_eq!(
        tombstone_positions(history.nested_history("sub_1").unwrap()),
        [0, 1, 3],
        "{history:?}"
    );
    let resumed = agent.resume(history, approve_all(&outcome.pending)).unwrap();
    let end = resumed.outcome().await;
    assert_eq!(end.reason, EndReason::Completed, "{end:?}");
    assert_eq!(ran.keys(), ["h/sub_1/look_1", "h/sub_1/delete_1"]);
}

#[tokio::test]
async fn a_resumed_sub_agent_that_is_interrupted_before_it_continues_had_started() {
    let ran = ExecutedKeys::default();
    let inner = agent_with_one_delete(&ran);
    let model = model_with_calls(&[("c", "clean")]);
    let agent = Agent::new(model).with_tools([inner.as_tool("clean", "").unwrap()]);
    let outcome = agent.run("go").outcome().await;
    assert_eq!(outcome.reason, EndReason::Pending);
    let verdicts = outcome.pending.clone().into_iter().map(|call| (call, Verdict::Approve));
    let run = agent.resume(outcome.history, verdicts).unwrap();
    run.interrupt();
    let history = run.outcome().await.history;
    let result = history.iter().find_map(Item::as_tool_result).unwrap();
    assert_eq!(result.content.text(), "Interrupted mid-execution");
}
