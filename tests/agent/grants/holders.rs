//! The agents and the attempts in which a grant holds.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::json;
use turnstream::agent::hook::{self, CallDecision};
use turnstream::durable::{Attempt, is_attempt_lost};
use turnstream::event::{Event, ToolEvent};
use turnstream::hub::Command;
use turnstream::item::{GrantDuration, GrantScope, GrantTerms, ResultKind};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{Entry, MemoryStore, Session};
use turnstream::tool::Verdict;
use turnstream::{Agent, History, Item, Run};

use turnstream_testing::durable_suite::{Loss, LossMoment, LossPlan, MemoryEngine};

use super::{Executed, added, any_object, grant_ids, post};

fn results(history: &History) -> usize {
    history.iter().filter(|item| item.as_tool_result().is_some()).count()
}

/// An agent that posts once, with this value of `n`.
fn poster(n: u64, executed: &Executed) -> Agent {
    let model = Scripted::from_fn(move |request, _| match results(&request.history) {
        0 => Reply::new().call("post", json!({ "n": n })),
        _ => Reply::text("Posted."),
    });
    Agent::new(model).with_tool(post("Posts", any_object(), executed))
}

/// An agent that makes these calls, one after the other. A call to `post` has its position as `n`.
fn caller(names: &'static [&'static str], executed: &Executed) -> Agent {
    let model = Scripted::from_fn(move |request, _| {
        let at = results(&request.history);
        match names.get(at) {
            Some(&"post") => {
                Reply::new().call_raw(&format!("c{at}"), "post", &format!("{{\"n\":{at}}}"))
            }
            Some(name) => Reply::new().call_raw(&format!("c{at}"), name, r#"{"prompt":"go"}"#),
            None => Reply::text("Done."),
        }
    });
    Agent::new(model).with_tool(post("Posts", any_object(), executed))
}

/// Runs to the end and answers each question with the next verdict; each question of which no
/// verdict is left is denied. Returns the events and the paths of the questions.
async fn run(mut run: Run, verdicts: Vec<Verdict>) -> (Vec<Event>, Vec<usize>) {
    let (mut events, mut asked, mut verdicts) = (Vec::new(), Vec::new(), verdicts.into_iter());
    while let Some(event) = run.next().await {
        let event = event.unwrap();
        if let Some(call) = event.approval_request() {
            asked.push(call.path.len());
            let verdict = verdicts.next().unwrap_or_else(|| Verdict::deny("no"));
            run.handle().submit_verdict(call, verdict).unwrap();
        }
        events.push(event);
    }
    (events, asked)
}

fn always() -> Verdict {
    Verdict::approve_always(GrantScope::AnyArguments, GrantDuration::Session)
}

fn always_with_sub_agents() -> Verdict {
    let terms = GrantTerms::new(GrantScope::AnyArguments, GrantDuration::Session);
    Verdict::ApproveAlways(terms.with_sub_agents())
}

#[tokio::test]
async fn a_grant_of_a_sub_agent_holds_for_its_later_runs_but_for_no_other_agent() {
    for verdict in [always(), always_with_sub_agents()] {
        let executed = Executed::default();
        let sub_agent = |name, n| poster(n, &executed).interactive().as_tool(name, "").unwrap();
        let agent = caller(&["first", "first", "post", "second"], &executed)
            .with_tools([sub_agent("first", 10), sub_agent("second", 20)])
            .interactive();
        let (events, asked) = run(agent.run("Go"), vec![verdict]).await;
        assert_eq!(executed.take(), [10, 10]);
        assert_eq!(asked, [1, 0, 1], "the parent and the other sub-agent are asked");
        let grant = &added(&events)[0];
        assert_eq!((&grant.agent_path[..], &*grant.tool), (&["first".to_owned()][..], "post"));
    }
}

#[tokio::test]
async fn sub_agents_inherit_a_grant_only_if_it_includes_them() {
    for (verdict, expected, questions) in
        [(always(), vec![0], vec![0, 1]), (always_with_sub_agents(), vec![0, 10], vec![0])]
    {
        let executed = Executed::default();
        let sub_agent = poster(10, &executed).interactive().as_tool("sub", "").unwrap();
        let agent = caller(&["post", "sub"], &executed).with_tool(sub_agent).interactive();
        let (_, asked) = run(agent.run("Go"), vec![verdict]).await;
        assert_eq!((executed.take(), asked), (expected, questions));
    }
}

#[tokio::test]
async fn an_inherited_grant_does_not_overrule_a_denial_of_the_sub_agent() {
    let executed = Executed::default();
    let deny = hook::before_tool(|_state, _call| async { CallDecision::Deny("no".to_owned()) });
    let sub_agent = poster(10, &executed).with_hook(deny).interactive().as_tool("sub", "");
    let agent = caller(&["post", "sub"], &executed).with_tool(sub_agent.unwrap()).interactive();
    let (_, asked) = run(agent.run("Go"), vec![always_with_sub_agents()]).await;
    assert_eq!((executed.take(), asked), (vec![0], vec![0]));
}

#[tokio::test]
async fn a_revocation_reaches_the_running_sub_agent() {
    let executed = Executed::default();
    let sub_agent = poster(10, &executed).interactive().as_tool("sub", "").unwrap();
    let agent = caller(&["post", "sub"], &executed).with_tool(sub_agent).interactive();
    let mut run = agent.run("Go");
    let (mut asked, mut reported) = (Vec::new(), 0);
    while let Some(event) = run.next().await {
        let event = event.unwrap();
        if let Some(call) = event.approval_request() {
            asked.push(call.path.len());
            let verdict = match call.path.len() {
                0 => always_with_sub_agents(),
                _ => Verdict::deny("no"),
            };
            run.handle().submit_verdict(call, verdict).unwrap();
        }
        // The sub-agent has sent its request, and has not called its tool.
        if let Event::Nested { event, .. } = &event
            && matches!(**event, Event::TurnStarted { turn: 1, .. })
        {
            let handle = run.handle();
            handle.revoke_grant(&handle.grants()[0].id).unwrap();
        }
        let inner = event.without_nesting();
        reported += usize::from(matches!(inner, Event::Tool(ToolEvent::GrantRevoked { .. })));
    }
    assert_eq!((executed.take(), asked, reported), (vec![0], vec![0, 1], 1));
}

#[tokio::test]
async fn a_session_lists_stores_and_revokes_the_grants_of_all_its_agents() {
    let executed = Executed::default();
    let store = MemoryStore::new();
    let sub_agent = poster(10, &executed).as_tool("sub", "").unwrap();
    let agent = caller(&["post", "sub", "post", "sub"], &executed).with_tool(sub_agent);
    let session = Session::open(store.clone(), "s").await.unwrap();
    let mut outcome = session.run(&agent, "Go").await.unwrap().outcome().await.unwrap();
    let mut questions = 0;
    while !outcome.pending.is_empty() {
        questions += 1;
        let verdicts: Vec<_> =
            outcome.pending.iter().map(|call| (call.clone(), always())).collect();
        outcome = session.resume(&agent, verdicts).await.unwrap().outcome().await.unwrap();
    }
    assert_eq!((executed.take(), questions), (vec![0, 10, 2, 10], 2));

    let again = Session::open(store, "s").await.unwrap();
    let paths: Vec<Vec<String>> = again.grants().into_iter().map(|it| it.agent_path).collect();
    assert_eq!(paths, [vec![], vec!["sub".to_owned()]]);
    again.revoke_grant(&again.grants()[0].id).await.unwrap();
    assert_eq!(again.grants().len(), 1);
    assert!(again.revoke_grant("unknown").await.is_err());
    // The model's answers depend on the number of results, so it calls nothing in this history.
    let entries = again.entries().await.unwrap();
    assert!(matches!(entries.last(), Some(Entry::GrantRevoked { .. })));
    let round_trip: Vec<Entry> =
        serde_json::from_str(&serde_json::to_string(&entries).unwrap()).unwrap();
    assert_eq!(round_trip, entries);
}

/// Drives a durable run whose attempts are lost as planned, and answers its questions. Returns the
/// entries of the session, the events of the last attempt, and the number of questions.
async fn drive(agent: &Agent, plan: &LossPlan) -> (Vec<Entry>, Vec<Event>, usize) {
    let engine = MemoryEngine::new();
    let mut answered = Vec::new();
    let answers = async {
        loop {
            for call in engine.status().awaited_calls {
                if !answered.contains(&call.approval_id) {
                    answered.push(call.approval_id.clone());
                    let id = call.approval_id.clone();
                    let _ = engine.send(id, Command::Verdict { call, verdict: always() });
                }
            }
            tokio::task::yield_now().await;
        }
    };
    let run = async {
        loop {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let events = Arc::clone(&seen);
            let attempt = Attempt::run(agent, "s", Vec::new(), "Go")
                .inspect(move |event| events.lock().unwrap().push(event.clone()));
            match attempt.drive(&mut plan.wrap(engine.next_attempt())).await {
                Err(error) if is_attempt_lost(&error) => assert!(plan.attempts() < 9, "{error}"),
                outcome => {
                    assert_eq!(outcome.unwrap().text, "Done.");
                    return std::mem::take(&mut *seen.lock().unwrap());
                }
            }
        }
    };
    let events = tokio::select! {
        events = run => events,
        () = answers => unreachable!("the answers never end"),
    };
    (engine.entries(), events, answered.len())
}

#[tokio::test(start_paused = true)]
async fn a_lost_attempt_of_a_durable_run_changes_no_decision() {
    let executed = Executed::default();
    let agent = || {
        let sub_agent = poster(10, &executed).as_tool("sub", "").unwrap();
        caller(&["post", "post", "sub", "sub"], &executed).with_tool(sub_agent).interactive()
    };
    let is_grant = |entry: &&Entry| matches!(entry, Entry::GrantAdded { .. });
    // The grant of each call that the agent itself made. A repeated batch of calls does not show
    // the calls inside of a sub-agent.
    let own_starts = |events: &[Event]| {
        let own = events.iter().filter(|event| matches!(event, Event::Tool(_))).cloned();
        let ids = grant_ids(&own.collect::<Vec<_>>());
        ids.iter().map(Option::is_some).collect::<Vec<_>>()
    };
    let (entries, events, questions) = drive(&agent(), &LossPlan::new()).await;
    assert_eq!((executed.take(), questions), (vec![0, 1, 10, 10], 2));
    assert_eq!(entries.iter().filter(is_grant).count(), 2);
    // The first call to `sub` starts again after the suspension.
    assert_eq!(own_starts(&events), [false, true, false, false, false]);

    let (mut losses, mut cut) = (0, 0);
    for operation in 0..60 {
        for moment in [LossMoment::After(1), LossMoment::After(2), LossMoment::Kept] {
            let plan = LossPlan::with_losses([Loss { operation, moment }]);
            let (lossy, lossy_events, lossy_questions) = drive(&agent(), &plan).await;
            losses += plan.attempts() - 1;
            // A call that is cut before it was recorded takes the grant with it that its verdict
            // gave, and the next call asks again.
            let is_cut = |entry: &Entry| match entry {
                Entry::Item(item) => {
                    item.as_tool_result().is_some_and(|it| it.kind == ResultKind::Interrupted)
                }
                _ => false,
            };
            if lossy_questions == 3 {
                cut += 1;
                assert!(lossy.iter().any(is_cut), "{operation} {moment:?}");
                assert_eq!(lossy.iter().filter(is_grant).count(), 2, "{operation} {moment:?}");
                executed.take();
                continue;
            }
            let mut ran = executed.take();
            ran.dedup();
            assert!(
                ran.starts_with(&[0]) && ran.ends_with(&[10]),
                "{operation} {moment:?}: {ran:?}"
            );
            let found = (lossy_questions, lossy.iter().filter(is_grant).count());
            assert_eq!(found, (2, 2), "questions and grants, {operation} {moment:?}");
            assert_eq!(own_starts(&lossy_events), own_starts(&events), "{operation} {moment:?}");
            assert_eq!(lossy.len(), entries.len(), "{operation} {moment:?}");
        }
    }
    println!("{losses} attempts were lost, {cut} of them with a call");
    assert!(losses > 60 && cut > 0 && cut < 10, "{losses}, {cut}");
}

#[tokio::test(start_paused = true)]
async fn a_revocation_waits_in_the_queue_of_an_engine_for_the_next_run() {
    let executed = Executed::default();
    let agent = |n| poster(n, &executed);
    let engine = MemoryEngine::new();
    let outcome = Attempt::run(&agent(1), "s", Vec::new(), "Go")
        .drive(&mut engine.next_attempt())
        .await
        .unwrap();
    let verdicts = [(outcome.pending[0].clone(), always())];
    let engine = engine.next_run();
    Attempt::resume(&agent(1), "s", engine.entries(), verdicts)
        .drive(&mut engine.next_attempt())
        .await
        .unwrap();
    assert_eq!(executed.take(), [1]);
    let grant = engine.entries().into_iter().find_map(|entry| match entry {
        Entry::GrantAdded { grant } => Some(grant),
        _ => None,
    });

    let again = Scripted::new([Reply::new().call_raw("x", "post", r#"{"n":2}"#)]);
    let again = Agent::new(again).with_tool(post("Posts", any_object(), &executed));
    engine.send("r", Command::RevokeGrant { grant_id: grant.unwrap().id }).unwrap();
    let engine = engine.next_run();
    let outcome = Attempt::run(&again, "s", engine.entries(), "Again")
        .drive(&mut engine.next_attempt())
        .await
        .unwrap();
    assert_eq!((executed.take(), outcome.pending.len()), (vec![], 1));
    let revoked = engine.entries().iter().any(|it| matches!(it, Entry::GrantRevoked { .. }));
    assert!(revoked);
    assert!(outcome.history.iter().any(|item: &Item| item.as_tool_call().is_some()));
}
