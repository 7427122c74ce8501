//! Commands reach the run in order, or return an error.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tokio::sync::Semaphore;
use turnstream::event::{AppendReason, EndReason, GrantChange, ToolEvent};
use turnstream::hub::{Command, Hub, HubEvent, NotRunning, RunSource};
use turnstream::item::{GrantDuration, GrantScope, PendingCall, StopReason};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolSpec, Verdict};
use turnstream::{Agent, ErrorKind, Event, History, Item};

use crate::hub_suite::backend::Backend;
use crate::hub_suite::pace::Pace;

fn agent(replies: impl IntoIterator<Item = Reply>) -> Agent {
    let spec = ToolSpec::new("delete", "Deletes a file", json!({ "type": "object" }));
    let delete = Tool::raw(spec, |_, _| async { "deleted" }).unwrap().requires_approval();
    Agent::new(Scripted::new(replies)).with_tools([delete]).interactive()
}

async fn start<B: Backend>(agent: &Agent) -> (Hub, String) {
    let hub = B::hub().await;
    let run = hub.start("key", agent.run("Go")).await.unwrap().detach();
    (hub, run)
}

async fn events_of(hub: &Hub, run: &str) -> Vec<Event> {
    let events = hub.read_run(run, None).unwrap().into_events();
    events.map(Result::unwrap).collect().await
}

pub(super) async fn input_is_appended_in_order_with_the_id_of_its_receipt<B: Backend>() {
    let slow = Reply::new().delay(Duration::from_millis(100)).say("One.");
    let (hub, run) = start::<B>(&agent([slow, Reply::text("Two."), Reply::text("Three.")])).await;
    let mut expected = Vec::new();
    for text in ["first", "second"] {
        let command = Command::FollowUp(vec![Item::user(text)]);
        expected.push((hub.send(&run, command).await.unwrap().id, text.to_owned()));
    }
    let events = events_of(&hub, &run).await;
    let appended: Vec<(String, String)> = (events.iter())
        .filter_map(|event| match event {
            Event::Appended { why: AppendReason::FollowUp, id, items } => {
                Some((id.clone(), items[0].as_user()?.text()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(appended, expected);
}

pub(super) async fn a_verdict_answers_the_call_and_a_second_one_is_refused<B: Backend>() {
    let call = Reply::new().call("delete", json!({ "file": "notes" }));
    let (hub, run) = start::<B>(&agent([call, Reply::text("Done.")])).await;
    let mut reader = hub.read("key", None).unwrap();
    let call = loop {
        let Some(Ok(HubEvent::Event { event, .. })) = reader.next().await else { continue };
        if let Some(call) = event.approval_request() {
            break call;
        }
    };
    let Some(Ok(HubEvent::Snapshot { snapshot, .. })) = hub.read("key", None).unwrap().next().await
    else {
        panic!("a new reader begins with a snapshot");
    };
    drop(snapshot);
    let arguments = r#"{"file":"everything"}"#.to_owned();
    let forged = PendingCall { arguments, ..call.clone() };
    let verdict = |call| Command::Verdict { call, verdict: Verdict::Approve };
    let refused = hub.send(&run, verdict(forged)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.find_source::<NotRunning>().is_none());
    hub.send(&run, verdict(call.clone())).await.unwrap();
    hub.send(&run, verdict(call)).await.unwrap_err();
    let rest: Vec<_> = reader.into_events().map(Result::unwrap).collect().await;
    assert_eq!(rest.last().unwrap().outcome().unwrap().text, "Done.");
}

pub(super) async fn a_verdict_allows_further_calls_until_a_command_revokes_the_grant<B: Backend>() {
    // The second call ends only after the grant was revoked.
    let revoked = Arc::new(Semaphore::new(1));
    let permits = Arc::clone(&revoked);
    let spec = ToolSpec::new("delete", "Deletes a file", json!({ "type": "object" }));
    let delete = Tool::raw(spec, move |_, _| {
        let permits = Arc::clone(&permits);
        async move {
            permits.acquire().await.expect("the semaphore is open").forget();
            "deleted"
        }
    });
    let call = || Reply::new().call("delete", json!({}));
    let model = Scripted::new([call(), call(), call(), Reply::text("Done.")]);
    let agent = Agent::new(model).with_tool(delete.unwrap().requires_approval()).interactive();
    let (hub, run) = start::<B>(&agent).await;
    let mut events = hub.read_run(&run, None).unwrap().into_events();
    let (mut questions, mut starts, mut first_grant) = (0, 0, None);
    while let Some(Ok(event)) = events.next().await {
        if let Some(GrantChange::Added(grant)) = event.grant_change()
            && questions == 1
        {
            first_grant = Some(grant.id);
        }
        if let Some(call) = event.approval_request() {
            questions += 1;
            let always = Verdict::approve_always(GrantScope::AnyArguments, GrantDuration::Run);
            hub.send(&run, Command::Verdict { call, verdict: always }).await.unwrap();
        }
        starts += usize::from(matches!(event, Event::Tool(ToolEvent::Started { .. })));
        if starts == 2
            && let Some(grant_id) = first_grant.take()
        {
            hub.send(&run, Command::RevokeGrant { grant_id }).await.unwrap();
            revoked.add_permits(2);
        }
    }
    assert_eq!((questions, starts), (2, 3));
}

pub(super) async fn input_beyond_the_limits_of_a_runs_queue_is_refused_but_an_interrupt_is_not<
    B: Backend,
>() {
    let (hub, run) = start::<B>(&agent([Reply::text("One.").hang()])).await;
    let steer = |n: usize| Command::Steer(vec![Item::user("x".repeat(n << 20))]);
    let mut events = hub.read_run(&run, None).unwrap().into_events();
    while events.next().await.unwrap().unwrap().text_delta().is_none() {}
    hub.send(&run, steer(12)).await.unwrap();
    let refused = hub.send(&run, steer(5)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Overloaded);
    hub.send(&run, steer(3)).await.unwrap();
    hub.send(&run, Command::Interrupt).await.unwrap();
    let outcome = events_of(&hub, &run).await.pop().unwrap().outcome().unwrap().clone();
    assert_eq!(outcome.undelivered.len(), 2, "{outcome:?}");
}

pub(super) async fn a_command_to_an_ended_or_unknown_run_is_an_error<B: Backend>() {
    let (hub, run) = start::<B>(&agent([Reply::text("Done.")])).await;
    events_of(&hub, &run).await;
    for run in [run.as_str(), "no such run"] {
        let refused = hub.send(run, Command::Interrupt).await.unwrap_err();
        assert_eq!(refused.find_source::<NotRunning>().unwrap().run, run);
    }
}

pub(super) async fn an_interrupt_ends_the_run<B: Backend>() {
    let endless = Reply::new().say("One").delay(Duration::from_hours(1)).say("two");
    let (hub, run) = start::<B>(&agent([endless])).await;
    hub.send(&run, Command::Interrupt).await.unwrap();
    let events = events_of(&hub, &run).await;
    assert!(matches!(events.last().unwrap().outcome().unwrap().reason, EndReason::Interrupted(_)));
}

pub(super) async fn an_interrupt_of_the_model_lets_the_tools_finish_and_the_input_follow<
    B: Backend,
>() {
    let found = Arc::new(Semaphore::new(0));
    let given = Arc::clone(&found);
    let spec = ToolSpec::new("search", "Searches", json!({ "type": "object" }));
    let search = Tool::raw(spec, move |_, _| {
        let given = Arc::clone(&given);
        async move {
            given.acquire().await.unwrap().forget();
            "found"
        }
    });
    let calling = Reply::new().call("search", json!({}));
    let replies = [calling, Reply::text("I saw that").hang(), Reply::text("Then not.")];
    let agent = Agent::new(Scripted::new(replies)).with_tools([search.unwrap()]);
    let (hub, run) = start::<B>(&agent).await;
    let mut events = hub.read_run(&run, None).unwrap().into_events();
    let mut stops = Vec::new();
    let mut results = 0;
    let mut texts = 0;
    let mut input = None;
    while let Some(Ok(event)) = events.next().await {
        if let Event::Tool(ToolEvent::Started { .. }) = &event {
            hub.send(&run, Command::Steer(vec![Item::user("Also this")])).await.unwrap();
            hub.send(&run, Command::InterruptTurn).await.unwrap();
            found.add_permits(1);
        }
        results += usize::from(event.tool_output().is_some_and(|result| !result.is_error()));
        texts += usize::from(event.text_delta().is_some());
        if texts == 1 {
            texts += 1;
            let steer = Command::Steer(vec![Item::user("No")]);
            let input_id = hub.send(&run, steer).await.unwrap().id;
            hub.send(&run, Command::InterruptTurnFor { input_id: input_id.clone() }).await.unwrap();
            input = Some(input_id);
        }
        if let Event::Appended { id, .. } = &event
            && input.as_ref() == Some(id)
        {
            // The model answers the input now, and is not interrupted again, or the run has ended.
            let _ = hub.send(&run, Command::InterruptTurnFor { input_id: id.clone() }).await;
        }
        stops.extend(event.turn_complete().map(|turn| turn.stop_reason().clone()));
    }
    assert_eq!(stops, [StopReason::ToolCalls, StopReason::Interrupted, StopReason::Stop]);
    assert_eq!(results, 1);
}

pub(super) async fn a_stream_that_is_not_a_run_accepts_no_commands<B: Backend>() {
    let hub = B::hub().await;
    let source = RunSource::new(History::empty("h"), futures::stream::pending());
    let run = hub.start("key", source).await.unwrap().detach();
    let refused = hub.send(&run, Command::Interrupt).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}
