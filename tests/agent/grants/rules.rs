//! The calls that a grant allows within one agent.

use futures::StreamExt;
use serde_json::json;
use turnstream::agent::hook::{self, CallDecision};
use turnstream::event::{EndReason, ToolEvent};
use turnstream::item::{GrantDuration, GrantScope, ResultKind};
use turnstream::provider::{Reply, Scripted};
use turnstream::replay::{Recorder, Recording};
use turnstream::tool::{Tool, ToolSearch, Verdict};
use turnstream::trace::{Trace, TraceAction};
use turnstream::{Agent, ErrorKind, Event, Toolkit};

use turnstream_test_support::buffer::SharedBuffer;
use turnstream_test_support::tools::spec;

use super::{Executed, added, any_object, grant_ids, post};

/// A model that makes a turn with calls for each list of values of `n`, and then ends.
fn model(turns: &[&[u64]]) -> Scripted {
    let call = |reply: Reply, n: &u64| reply.call("post", json!({ "n": n }));
    let turns = turns.iter().map(|calls| calls.iter().fold(Reply::new(), call));
    Scripted::new(turns.chain([Reply::text("Done.")]))
}

fn agent(turns: &[&[u64]], executed: &Executed) -> Agent {
    Agent::new(model(turns))
        .with_tool(post("Posts", any_object(), executed))
        .with_grant_predicate("small", |args| args["n"].as_u64().is_some_and(|n| n < 10))
        .interactive()
}

fn always() -> Verdict {
    Verdict::approve_always(GrantScope::AnyArguments, GrantDuration::Run)
}

/// Runs to the end. `answer` returns the verdict on the call with this value of `n`. Returns the
/// events, and the values of `n` for which an approval was requested.
async fn run(agent: &Agent, answer: impl Fn(u64) -> Verdict) -> (Vec<Event>, Vec<u64>) {
    let mut run = agent.run("Post");
    let (mut events, mut asked) = (Vec::new(), Vec::new());
    while let Some(event) = run.next().await {
        let event = event.unwrap();
        if let Some(call) = event.approval_request() {
            let arguments: serde_json::Value = serde_json::from_str(&call.arguments).unwrap();
            let n = arguments["n"].as_u64().unwrap();
            asked.push(n);
            run.handle().submit_verdict(call, answer(n)).unwrap();
        }
        events.push(event);
    }
    (events, asked)
}

#[tokio::test]
async fn later_calls_run_without_a_question_and_name_the_grant() {
    let executed = Executed::default();
    let (events, asked) = run(&agent(&[&[1], &[2], &[3]], &executed), |_| always()).await;
    assert_eq!((executed.take(), asked), (vec![1, 2, 3], vec![1]));
    let grants = added(&events);
    let id = Some(grants[0].id.clone());
    assert_eq!(grant_ids(&events), [None, id.clone(), id]);
}

#[tokio::test]
async fn a_grant_is_reported_before_its_call_starts() {
    let (events, _) = run(&agent(&[&[1]], &Executed::default()), |_| always()).await;
    let position = |is_it: fn(&ToolEvent) -> bool| {
        events.iter().position(|event| matches!(event, Event::Tool(event) if is_it(event))).unwrap()
    };
    let added = position(|event| matches!(event, ToolEvent::GrantAdded { .. }));
    let started = position(|event| matches!(event, ToolEvent::Started { .. }));
    let asked = position(|event| matches!(event, ToolEvent::ApprovalRequested(_)));
    assert!(asked < added && added < started, "{asked} {added} {started}");
}

#[tokio::test]
async fn a_grant_lets_the_waiting_calls_of_its_turn_start_if_it_covers_them() {
    let executed = Executed::default();
    let agent = agent(&[&[50, 1, 2]], &executed);
    let mut run = agent.run("Post");
    let (mut calls, mut late) = (Vec::new(), None);
    while let Some(event) = run.next().await {
        let event = event.unwrap();
        calls.extend(event.approval_request());
        if calls.len() == 3 && late.is_none() {
            let small = GrantScope::Predicate("small".to_owned());
            let verdict = Verdict::approve_always(small, GrantDuration::Run);
            run.handle().submit_verdict(&calls[1], verdict).unwrap();
            late = Some(calls[2].clone());
        }
        if let Event::Tool(ToolEvent::Started { grant_id: Some(_), .. }) = &event {
            // The third call has started, so a verdict on it comes too late.
            let error = run.handle().deny(late.clone().unwrap(), "no").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
            run.handle().deny(&calls[0], "too much").unwrap();
        }
    }
    assert_eq!(executed.take(), [1, 2]);
}

#[tokio::test]
async fn a_denial_that_came_before_the_grant_holds() {
    let executed = Executed::default();
    let mut run = agent(&[&[1, 2]], &executed).run("Post");
    let mut calls = Vec::new();
    while let Some(event) = run.next().await {
        calls.extend(event.unwrap().approval_request());
        if calls.len() == 2 {
            run.handle().submit_verdict(calls.remove(0), always()).unwrap();
            run.handle().deny(calls.remove(0), "not this one").unwrap();
        }
    }
    assert_eq!(executed.take(), [1]);
}

#[tokio::test]
async fn hooks_that_deny_are_asked_before_a_grant_is_looked_up() {
    let executed = Executed::default();
    let deny = hook::before_tool(|_state, call| async move {
        match call.arguments.contains('7') {
            true => CallDecision::Deny("never seven".to_owned()),
            false => CallDecision::Allow,
        }
    });
    let agent = agent(&[&[1], &[7], &[2]], &executed).with_hook(deny);
    let (events, asked) = run(&agent, |_| always()).await;
    assert_eq!((executed.take(), asked), (vec![1, 2], vec![1]));
    let denied = events.iter().filter_map(Event::tool_output);
    assert_eq!(denied.filter(|result| result.kind == ResultKind::Denied).count(), 1);
}

#[tokio::test]
async fn a_grant_answers_a_hook_that_requires_an_approval() {
    let executed = Executed::default();
    let free = executed.clone();
    let tool = Tool::raw(spec("post"), move |args, _| {
        free.add(args["n"].as_u64().unwrap());
        async { "posted" }
    });
    let ask = hook::before_tool(|_state, _call| async { CallDecision::RequireApproval });
    let agent = Agent::new(model(&[&[1], &[2]])).with_tool(tool.unwrap()).with_hook(ask);
    let (_, asked) = run(&agent.interactive(), |_| always()).await;
    assert_eq!((executed.take(), asked), (vec![1, 2], vec![1]));
}

#[tokio::test]
async fn a_grant_for_a_call_through_tool_search_names_the_inner_tool() {
    let executed = Executed::default();
    let call = |n: u64| {
        let arguments = json!({ "name": "post", "arguments": { "n": n } });
        Reply::new().call("call_tool", arguments)
    };
    let model = Scripted::new([call(1), call(2), Reply::text("Done.")]);
    let other = Tool::raw(spec("other"), |_, _| async { "" }).unwrap();
    let tools = [post("Posts", any_object(), &executed), other];
    let toolkit = Toolkit::new(tools).with_search(ToolSearch::new());
    let agent = Agent::new(model).with_toolkit(toolkit).interactive();
    let (events, asked) = run(&agent, |_| always()).await;
    assert_eq!((executed.take(), asked), (vec![1, 2], vec![1]));
    assert_eq!(added(&events)[0].tool, "post");
}

#[tokio::test]
async fn a_revoked_grant_is_reported_once_and_the_next_call_is_asked_for() {
    let executed = Executed::default();
    let mut run = agent(&[&[1], &[2], &[3]], &executed).run("Post");
    let (mut asked, mut revoked) = (0, 0);
    while let Some(event) = run.next().await {
        let event = event.unwrap();
        if let Some(call) = event.approval_request() {
            asked += 1;
            run.handle().submit_verdict(call, always()).unwrap();
        }
        if let Event::TurnStarted { turn: 3, .. } = event {
            let handle = run.handle();
            let id = handle.grants()[0].id.clone();
            handle.revoke_grant(&id).unwrap();
            assert_eq!(handle.revoke_grant(&id).unwrap_err().kind(), ErrorKind::InvalidRequest);
        }
        revoked += usize::from(matches!(event, Event::Tool(ToolEvent::GrantRevoked { .. })));
    }
    assert_eq!((executed.take(), asked, revoked), (vec![1, 2, 3], 2, 1));
    assert!(run.handle().revoke_grant("x").is_err(), "the run is over");
}

#[tokio::test]
async fn a_revocation_after_the_last_request_is_reported_before_the_end() {
    let mut run = agent(&[&[1]], &Executed::default()).run("Post");
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        let event = event.unwrap();
        if let Some(call) = event.approval_request() {
            run.handle().submit_verdict(call, always()).unwrap();
        }
        if event.text_delta().is_some() {
            let handle = run.handle();
            handle.revoke_grant(&handle.grants()[0].id).unwrap();
        }
        events.push(event);
    }
    let [.., Event::Tool(ToolEvent::GrantRevoked { .. }), Event::Finished(outcome)] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(outcome.reason, EndReason::Completed);
}

#[tokio::test]
async fn a_replay_makes_the_same_decisions_and_the_trace_names_the_grant() {
    let (executed, log) = (Executed::default(), SharedBuffer::new());
    let agent =
        agent(&[&[1], &[2, 50]], &executed).with_recorder(&Recorder::to_writer(log.clone()));
    let mut run = agent.run("Post");
    let (trace, mut events) = (Trace::new(), Vec::new());
    while let Some(event) = run.next().await {
        let event = event.unwrap();
        if let Some(call) = event.approval_request() {
            let small = GrantScope::Predicate("small".to_owned());
            let verdict = Verdict::approve_always(small, GrantDuration::Run);
            run.handle().submit_verdict(call, verdict).unwrap();
        }
        if let Event::TurnStarted { turn: 3, .. } = event {
            run.handle().revoke_grant(&run.handle().grants()[0].id).unwrap();
        }
        trace.observe(&event);
        events.push(event);
    }
    drop(run);
    assert_eq!(executed.take(), [1, 2, 50]);
    let steps = trace.events();
    let grant_ids = steps.iter().filter_map(|step| match &step.action {
        TraceAction::Tool { grant_id, .. } => Some(grant_id.as_deref()),
        _ => None,
    });
    let ids: Vec<String> = added(&events).into_iter().map(|grant| grant.id).collect();
    assert_eq!(grant_ids.collect::<Vec<_>>(), [None, Some(&*ids[0]), None]);

    let recording = Recording::from_text(&log.text()).unwrap();
    let replayed: Vec<Event> = recording.replay(&agent).map(Result::unwrap).collect().await;
    assert_eq!(replayed, events);
    assert_eq!(executed.take(), [0; 0], "a replay runs no tool");
}
