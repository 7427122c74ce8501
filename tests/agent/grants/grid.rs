//! Every scope and duration, given in every way, used with every change of the tool, and revoked at
//! every moment.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use futures::future::{join, ready};
use serde_json::json;
use turnstream::durable::{Attempt, StoredCommand};
use turnstream::event::EndReason;
use turnstream::hub::{Command, Hub};
use turnstream::item::{Grant, GrantDuration, GrantScope, GrantTerms, PendingCall};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{MemoryStore, Session, Store};
use turnstream::tool::Verdict;
use turnstream::ui::{ClientLimits, ag_ui, ai_sdk};
use turnstream::{Agent, Error, Event, History, Outcome};

use turnstream_testing::durable_suite::MemoryEngine;

use super::{Executed, Fixed, added, any_object, grant_ids, post};

/// The ways in which a verdict reaches a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// A handle of a run that waits.
    Handle,
    /// A run that resumes a history.
    History,
    /// A run that resumes a session.
    Session,
    /// A command through a hub.
    Hub,
    /// A command in the form in which a server stores it.
    StoredCommand,
    /// A durable run that resumes a session.
    DurableResume,
    /// A command in the queue of an engine, while a durable run waits.
    DurableWait,
    AiSdk,
    AgUi,
}

const WAYS: [Way; 9] = [
    Way::Handle,
    Way::History,
    Way::Session,
    Way::Hub,
    Way::StoredCommand,
    Way::DurableResume,
    Way::DurableWait,
    Way::AiSdk,
    Way::AgUi,
];

/// The tool in the run that uses the grant.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Unchanged,
    Description,
    Schema,
    OtherSource,
    OwnTool,
}

const CHANGES: [Change; 5] =
    [Change::Unchanged, Change::Description, Change::Schema, Change::OtherSource, Change::OwnTool];

/// When the grant is revoked.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Revocation {
    Never,
    BeforeTheRun,
    /// When the first call of the turn has started, while the others wait for it to end.
    InTheTurn,
}

const REVOCATIONS: [Revocation; 3] =
    [Revocation::Never, Revocation::BeforeTheRun, Revocation::InTheTurn];

fn scopes() -> [GrantScope; 4] {
    [
        GrantScope::AnyArguments,
        GrantScope::SameArguments,
        GrantScope::Predicate("small".to_owned()),
        GrantScope::Predicate("unknown".to_owned()),
    ]
}

const DURATIONS: [GrantDuration; 3] =
    [GrantDuration::Run, GrantDuration::Session, GrantDuration::UntilRevoked];

/// The calls of the turn that uses the grant. The first two have the granted arguments.
const CALLS: [&str; 4] =
    [r#"{"n":1,"to":"a"}"#, r#"{ "to": "a", "n": 1 }"#, r#"{"n":2}"#, r#"{"n":50}"#];

fn agent(change: Change, model: Scripted, executed: &Executed) -> Agent {
    let tool = match change {
        Change::Unchanged | Change::OtherSource | Change::OwnTool => {
            post("Posts", any_object(), executed)
        }
        Change::Description => post("Posts at once", any_object(), executed),
        Change::Schema => {
            post("Posts", json!({ "type": "object", "properties": { "n": {} } }), executed)
        }
    };
    let agent = Agent::new(model)
        .with_grant_predicate("small", |args| args["n"].as_u64().is_some_and(|n| n < 10));
    match change {
        Change::OwnTool => agent.with_tool(tool),
        Change::OtherSource => agent.with_tool_source(Fixed("news", vec![tool])),
        Change::Unchanged | Change::Description | Change::Schema => {
            agent.with_tool_source(Fixed("mail", vec![tool]))
        }
    }
}

/// A model that calls the tool once, and then ends.
fn granting_model() -> Scripted {
    Scripted::new([Reply::new().call_raw("g1", "post", CALLS[0]), Reply::text("Posted.")])
}

fn using_model() -> Scripted {
    let call = |reply: Reply, at: usize| reply.call_raw(&format!("u{at}"), "post", CALLS[at]);
    let calls = (0..CALLS.len()).fold(Reply::new(), call);
    Scripted::new([calls, Reply::text("Done.")])
}

/// The conversation after the grant was given, and the grants in the events that the application
/// received.
struct Granted {
    store: MemoryStore,
    history: History,
    grants: Vec<Grant>,
}

/// Runs an interactive run to its end; `answer` answers the question.
async fn interactive<F: Future<Output = Result<(), Error>>>(
    mut events: impl futures::Stream<Item = Result<Event, Error>> + Unpin,
    mut answer: impl FnMut(PendingCall) -> F,
) -> Vec<Event> {
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        let event = event.unwrap();
        let asked = event.approval_request();
        seen.push(event);
        if let Some(call) = asked {
            answer(call).await.unwrap();
        }
    }
    seen
}

async fn give(way: Way, terms: &GrantTerms) -> Granted {
    let executed = Executed::default();
    let agent = agent(Change::Unchanged, granting_model(), &executed);
    let store = MemoryStore::new();
    let session = Session::open(store.clone(), "s").await.unwrap();
    let verdict = Verdict::ApproveAlways(terms.clone());
    let events = match way {
        Way::Handle => {
            let run = session.run(&agent.interactive(), "Post").await.unwrap();
            let handle = run.handle();
            interactive(run, |call| ready(handle.submit_verdict(call, verdict.clone()))).await
        }
        Way::Hub | Way::StoredCommand => {
            let hub = Hub::new();
            let run = session.run(&agent.interactive(), "Post").await.unwrap();
            let run_id = hub.start("s", run).await.unwrap().detach();
            let events = hub.read_run(&run_id, None).unwrap().into_events();
            interactive(events, |call| {
                let mut command = Command::Verdict { call, verdict: verdict.clone() };
                if way == Way::StoredCommand {
                    let stored = StoredCommand { id: "v".to_owned(), command };
                    let json = serde_json::to_string(&stored).unwrap();
                    command = serde_json::from_str::<StoredCommand>(&json).unwrap().command;
                }
                let (hub, run_id) = (hub.clone(), run_id.clone());
                async move { hub.send(&run_id, command).await.map(drop) }
            })
            .await
        }
        Way::DurableWait => durable_wait(&agent, &store, verdict).await,
        Way::DurableResume => durable_resume(&agent, &store, verdict).await,
        Way::History | Way::Session | Way::AiSdk | Way::AgUi => {
            let outcome = session.run(&agent, "Post").await.unwrap().outcome().await.unwrap();
            assert_eq!(outcome.reason, EndReason::Pending);
            let call = outcome.pending[0].clone();
            if way == Way::History {
                let json = serde_json::to_string(&outcome.history).unwrap();
                let history: History = serde_json::from_str(&json).unwrap();
                let run = agent.resume(history, [(call, verdict)]).unwrap();
                let handle = run.handle();
                let events: Vec<Event> = run.map(Result::unwrap).collect().await;
                assert_eq!(executed.take(), [1]);
                return Granted { store, history: handle.history(), grants: added(&events) };
            }
            let verdicts = client_verdicts(way, &session, &agent, &call, terms);
            let run = session.resume(&agent, verdicts).await.unwrap();
            run.map(Result::unwrap).collect().await
        }
    };
    assert_eq!(executed.take(), [1], "the approved call itself runs");
    let grants = added(&events);
    session.reload().await.unwrap();
    Granted { store, history: session.history(), grants }
}

/// Returns the verdict on the call as the client of a protocol sends it.
fn client_verdicts(
    way: Way,
    session: &Session,
    agent: &Agent,
    call: &PendingCall,
    terms: &GrantTerms,
) -> Vec<(PendingCall, Verdict)> {
    let limits = ClientLimits::default();
    let always = serde_json::to_value(terms).unwrap();
    match way {
        Way::AiSdk => {
            let body = json!({ "id": "s", "messageId": "s:1", "approvals": [
                { "id": call.approval_id, "approved": true, "always": always },
            ] });
            let body = serde_json::to_vec(&body).unwrap();
            let request =
                ai_sdk::ChatRequest::parse(Some("application/json"), &body, &limits).unwrap();
            match request.action(session, agent).unwrap() {
                ai_sdk::ClientAction::Resume { verdicts, .. } => verdicts,
                action => panic!("{action:?}"),
            }
        }
        Way::AgUi => {
            let body = json!({ "threadId": "s", "runId": "r", "messages": [], "resume": [
                { "interruptId": call.approval_id, "status": "resolved",
                    "payload": { "approved": true, "always": always } },
            ] });
            let body = serde_json::to_vec(&body).unwrap();
            let request =
                ag_ui::RunRequest::parse(Some("application/json"), &body, &limits).unwrap();
            match request.action(session, agent).unwrap() {
                ag_ui::ClientAction::Resume(verdicts) => verdicts,
                action => panic!("{action:?}"),
            }
        }
        _ => vec![(call.clone(), Verdict::ApproveAlways(terms.clone()))],
    }
}

/// Drives an attempt to the end of the run, and returns the events of the run.
async fn drive(attempt: Attempt, engine: &MemoryEngine) -> (Outcome, Vec<Event>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let events = Arc::clone(&seen);
    let attempt = attempt.inspect(move |event| events.lock().unwrap().push(event.clone()));
    let outcome = attempt.drive(&mut engine.next_attempt()).await.unwrap();
    let events = std::mem::take(&mut *seen.lock().unwrap());
    (outcome, events)
}

async fn durable_resume(agent: &Agent, store: &MemoryStore, verdict: Verdict) -> Vec<Event> {
    let engine = MemoryEngine::new();
    let (outcome, _) = drive(Attempt::run(agent, "s", Vec::new(), "Post"), &engine).await;
    let verdicts = [(outcome.pending[0].clone(), verdict)];
    let engine = engine.next_run();
    let attempt = Attempt::resume(agent, "s", engine.entries(), verdicts);
    let (_, events) = drive(attempt, &engine).await;
    store.append("s", 0, engine.entries()).await.unwrap();
    events
}

async fn durable_wait(agent: &Agent, store: &MemoryStore, verdict: Verdict) -> Vec<Event> {
    let engine = MemoryEngine::new();
    let agent = agent.clone().interactive();
    let answer = async {
        let call = loop {
            match engine.status().awaited_calls.pop() {
                Some(call) => break call,
                None => tokio::task::yield_now().await,
            }
        };
        engine.send("v", Command::Verdict { call, verdict }).unwrap();
    };
    let attempt = Attempt::run(&agent, "s", Vec::new(), "Post");
    let ((_, events), ()) = join(drive(attempt, &engine), answer).await;
    store.append("s", 0, engine.entries()).await.unwrap();
    events
}

/// The values of `n` that may run, in the order in which they start.
fn expected(
    scope: &GrantScope,
    duration: GrantDuration,
    change: Change,
    revocation: Revocation,
) -> Vec<u64> {
    let of_scope: &[u64] = match scope {
        GrantScope::AnyArguments => &[1, 1, 2, 50],
        GrantScope::SameArguments => &[1, 1],
        GrantScope::Predicate(name) if name == "small" => &[1, 1, 2],
        GrantScope::Predicate(_) => &[],
    };
    let holds = duration != GrantDuration::Run && change == Change::Unchanged;
    match (holds, revocation) {
        (false, _) | (true, Revocation::BeforeTheRun) => Vec::new(),
        (true, Revocation::Never) => of_scope.to_vec(),
        (true, Revocation::InTheTurn) => of_scope[..of_scope.len().min(1)].to_vec(),
    }
}

/// Uses the grant in a later run of the same conversation. Returns the values of `n` that ran.
async fn use_grant(
    given: &Granted,
    way: Way,
    duration: GrantDuration,
    change: Change,
    revocation: Revocation,
) -> Vec<u64> {
    let executed = Executed::default();
    let agent = agent(change, using_model(), &executed);
    // The application holds the grants that hold until they are revoked, and, without a session,
    // those of the conversation.
    let is_held = |grant: &&Grant| match grant.terms.duration {
        GrantDuration::Run => false,
        GrantDuration::Session => way == Way::History,
        GrantDuration::UntilRevoked => true,
    };
    let mut held: Vec<Grant> = given.grants.iter().filter(is_held).cloned().collect();
    let session = Session::open(given.store.clone(), "s").await.unwrap();
    if revocation == Revocation::BeforeTheRun {
        for grant in session.grants() {
            session.revoke_grant(&grant.id).await.unwrap();
        }
        held.clear();
    }
    let (mut run, handle) = if way == Way::History {
        let run = agent.run_from(given.history.clone(), "Again").with_grants(held);
        let handle = run.handle();
        (run.boxed(), handle)
    } else {
        let run = session.run(&agent, "Again").await.unwrap().with_grants(held);
        let handle = run.handle();
        (run.boxed(), handle)
    };
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        let event = event.unwrap();
        let is_first_start =
            grant_ids(std::slice::from_ref(&event)).len() == 1 && grant_ids(&events).is_empty();
        events.push(event);
        if is_first_start && revocation == Revocation::InTheTurn {
            for grant in handle.grants() {
                handle.revoke_grant(&grant.id).unwrap();
            }
        }
    }
    let ids = grant_ids(&events);
    let known = given.grants.first().map(|grant| grant.id.clone());
    assert!(ids.iter().all(|id| *id == known), "each start names the grant: {ids:?}");
    // A revocation in the turn is stored.
    let is_session_grant = duration == GrantDuration::Session && way != Way::History;
    if is_session_grant && revocation == Revocation::InTheTurn && !ids.is_empty() {
        let again = Session::open(given.store.clone(), "s").await.unwrap();
        assert!(again.grants().is_empty());
    }
    executed.take()
}

#[tokio::test(start_paused = true)]
async fn no_call_runs_beyond_what_was_granted() {
    let (mut cells, mut ran, mut wrong) = (0, 0, Vec::new());
    for way in WAYS {
        for scope in scopes() {
            for duration in DURATIONS {
                let terms = GrantTerms::new(scope.clone(), duration);
                for change in CHANGES {
                    for revocation in REVOCATIONS {
                        let given = give(way, &terms).await;
                        let found = use_grant(&given, way, duration, change, revocation).await;
                        let expected = expected(&scope, duration, change, revocation);
                        (cells, ran) = (cells + 1, ran + found.len());
                        if found != expected {
                            wrong.push(format!(
                                "{way:?} {scope:?} {duration:?} {change:?} {revocation:?}: \
                                 {found:?} ran, not {expected:?}"
                            ));
                        }
                    }
                }
            }
        }
    }
    println!("{cells} cells, {ran} calls ran under a grant, {} cells are wrong", wrong.len());
    assert_eq!(cells, 9 * 4 * 3 * 5 * 3);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
