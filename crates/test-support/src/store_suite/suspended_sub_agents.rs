//! Sub-agents that wait for a verdict, in sessions whose process is killed meanwhile. The test
//! binary starts itself again.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use turnstream::context::{Ageing, Truncator};
use turnstream::event::EndReason;
use turnstream::item::{PendingCall, ResultKind};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{Entry, Session, SessionState, Store};
use turnstream::tool::{Tool, Verdict};
use turnstream::{Agent, ErrorKind, Item};

use super::processes::{role_and_folder, test_process_command};
use super::temp_store::{OpenStore, ReopenableStore};
use super::tools::spec;
use crate::temp_folder::TempFolder;

/// The keys of the calls that ran in any process, one per line.
pub fn executed_call_keys(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("ran")).unwrap_or_default();
    let mut keys: Vec<String> = text.lines().map(str::to_owned).collect();
    keys.sort();
    keys
}

/// A tool that adds a line with its key to the file of [`executed_call_keys`].
pub fn recording_tool(folder: &Path, name: &str) -> Tool {
    let file = folder.join("ran");
    let run = move |_, cx: turnstream::tool::ToolContext| {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&file).unwrap();
        writeln!(file, "{}", cx.idempotency_key()).unwrap();
        async { "done" }
    };
    Tool::raw(spec(name), run).unwrap()
}

/// An agent that makes these calls, and then stops.
pub fn agent_with_calls(calls: &'static [(&'static str, &'static str)], tools: Vec<Tool>) -> Agent {
    let model = Scripted::from_fn(move |request, _| {
        match request.history.iter().any(|item| item.as_tool_result().is_some()) {
            true => Reply::text("all done"),
            false => calls.iter().fold(Reply::new(), |reply, (id, name)| {
                reply.call_raw(id, name, r#"{"prompt":"go"}"#)
            }),
        }
    });
    Agent::new(model).with_tools(tools)
}

/// An agent with a sub-agent that waits, one whose sub-agent waits, and siblings of all of them.
pub fn agent_with_sub_agents(folder: &Path) -> Agent {
    let own = || {
        vec![recording_tool(folder, "look"), recording_tool(folder, "delete").requires_approval()]
    };
    let cleaner = || agent_with_calls(&[("look_1", "look"), ("delete_1", "delete")], own());
    let clean = |agent: &Agent, name| agent.as_tool(name, "").unwrap();
    let manager = agent_with_calls(
        &[("sub_1", "clean"), ("look_2", "look")],
        vec![clean(&cleaner(), "clean"), recording_tool(folder, "look")],
    );
    let mut tools = own();
    tools.extend([clean(&cleaner(), "clean"), clean(&manager, "manage")]);
    agent_with_calls(&[("a", "clean"), ("b", "delete"), ("c", "manage"), ("d", "look")], tools)
}

/// The paths to the pending calls.
const PENDING_CALL_PATHS: [&str; 3] = ["a/delete_1", "b", "c/sub_1/delete_1"];
/// The keys of calls that need no approval.
const APPROVAL_FREE_KEYS: [&str; 4] = ["s/a/look_1", "s/c/look_2", "s/c/sub_1/look_1", "s/d"];

fn call_paths(calls: &[PendingCall]) -> Vec<String> {
    let path = |call: &PendingCall| {
        [&call.path[..], std::slice::from_ref(&call.call_id)].concat().join("/")
    };
    calls.iter().map(path).collect()
}

/// Runs the agent with sub-agents until calls are pending, in the session `s`.
pub async fn run_until_pending(store: impl Store + 'static, folder: &Path) {
    let session = Session::open(store, "s").await.unwrap();
    let outcome =
        session.run(&agent_with_sub_agents(folder), "go").await.unwrap().outcome().await.unwrap();
    assert_eq!(
        (outcome.reason, call_paths(&outcome.pending)),
        (EndReason::Pending, PENDING_CALL_PATHS.map(String::from).to_vec())
    );
}

/// Resumes the session, with approvals for the calls of sub-agents and a denial for the other one.
pub async fn resume_with_verdicts(store: impl Store + 'static, folder: &Path) {
    let session = Session::open(store, "s").await.unwrap();
    let SessionState::Pending { calls } = session.state() else { panic!("{:?}", session.state()) };
    assert_eq!(call_paths(&calls), PENDING_CALL_PATHS);
    assert_eq!(executed_call_keys(folder), APPROVAL_FREE_KEYS, "nothing has run that waits");
    let verdict = |call: PendingCall| match call.path.len() {
        1 => (call, Verdict::deny("not this one")),
        _ => (call, Verdict::Approve),
    };
    // A missing verdict is an error, and changes nothing.
    let error = session.resume(&agent_with_sub_agents(folder), []).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    let verdicts = calls.into_iter().map(verdict);
    let outcome = session
        .resume(&agent_with_sub_agents(folder), verdicts)
        .await
        .unwrap()
        .outcome()
        .await
        .unwrap();
    assert_eq!((outcome.reason, &*outcome.text), (EndReason::Completed, "all done"), "{outcome:?}");
}

/// Checks the state after all calls have completed.
pub async fn assert_all_completed(store: impl Store + 'static, folder: &Path) {
    let mut keys: Vec<&str> = APPROVAL_FREE_KEYS.to_vec();
    keys.extend(["s/b", "s/c/sub_1/delete_1"]);
    keys.sort_unstable();
    assert_eq!(executed_call_keys(folder), keys, "each ran once, under its old key");
    let session = Session::open(store, "s").await.unwrap();
    assert_eq!(session.state(), SessionState::Idle);
    assert!(session.history().is_settled());
    assert!(["a", "b", "c", "d"].iter().all(|id| session.history().nested_history(id).is_none()));
    let kinds: Vec<_> =
        session.history().iter().filter_map(|item| Some(item.as_tool_result()?.kind)).collect();
    assert_eq!(kinds, [ResultKind::Ok; 4]);
    let entries = session.entries().await.unwrap();
    let nested = entries.iter().filter_map(|entry| match entry {
        Entry::Nested { call_id, history, .. } => Some((&**call_id, history.id())),
        _ => None,
    });
    let mut nested: Vec<_> = nested.collect();
    nested.sort_unstable();
    assert_eq!(nested, [("a", "s/a"), ("c", "s/c")]);
    assert!(session.resume(&agent_with_sub_agents(folder), []).await.is_err(), "nothing is left");
}

pub async fn a_suspended_sub_agent_survives_its_process_and_its_call_runs_once(
    test: &str,
    open: OpenStore,
) {
    if let Some((role, folder)) = role_and_folder() {
        match &*role {
            "suspend" => run_until_pending(open(&folder).unwrap(), &folder).await,
            _ => resume_with_verdicts(open(&folder).unwrap(), &folder).await,
        }
        eprintln!("DONE");
        // The process is killed here.
        return std::future::pending().await;
    }
    let folder = TempFolder::new();
    for role in ["suspend", "resume"] {
        let mut child = test_process_command(test, role, folder.path())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut told = Vec::new();
        let done = lines.map_while(Result::ok).any(|line| {
            told.push(line);
            told.last().is_some_and(|line| line == "DONE")
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(done, "{role}: {}", told.join("\n"));
    }
    assert_all_completed(open(folder.path()).unwrap(), folder.path()).await;
}

/// While calls wait, earlier items are tombstoned, shortened and compacted.
pub async fn rewriting_items_before_a_suspended_call_lets_it_continue(
    empty: fn() -> ReopenableStore,
) {
    let (reopenable, folder) = (empty(), TempFolder::new());
    let store = reopenable.open();
    let folder = folder.path();
    let session = Session::open(store.clone(), "s").await.unwrap();
    let long = Reply::new().think("hm ".repeat(300)).say("Hello!");
    for (reply, prompt) in [(long, "Hi"), (Reply::text("Yes."), "Well?")] {
        let agent = Agent::new(Scripted::new([reply]));
        session.run(&agent, prompt).await.unwrap().outcome().await.unwrap();
    }
    run_until_pending(store.clone(), folder).await;

    let session = Session::open(store.clone(), "s").await.unwrap();
    let waiting = session.state();
    let items: Vec<Item> = session.history().iter().cloned().collect();
    let place = |id: &str| {
        let is_it = |item: &Item| item.as_tool_call().is_some_and(|call| call.call_id == id);
        items.iter().position(is_it).unwrap()
    };
    // Pending calls, one of the session's own and two of sub-agents, and one call with a result.
    for id in ["a", "b", "c"] {
        let error = session.tombstone([0, place(id)]).await.unwrap_err();
        assert_eq!((error.kind(), error.parameter()), (ErrorKind::InvalidRequest, Some(id)));
    }
    session.tombstone([0, place("d")]).await.unwrap();
    let ageing = Ageing::after_turns(1)
        .with_truncator(Truncator { max_reasoning_bytes: 20, ..Truncator::new() });
    assert!(session.compact(&ageing).await.unwrap().is_some());
    session.checkpoint(0..1, [Item::user("Hey")]).await.unwrap();
    for session in [&session, &Session::open(store.clone(), "s").await.unwrap()] {
        assert_eq!(session.state(), waiting);
        let history = session.history();
        assert_eq!(history.nested_history("a").unwrap().id(), "s/a");
        assert!(history.nested_history("c").unwrap().nested_history("sub_1").is_some());
        let void: Vec<usize> = (history.iter().enumerate())
            .filter_map(|(at, item)| item.tombstone.then_some(at))
            .collect();
        assert_eq!(void.len(), 2, "{history:?}");
    }
    resume_with_verdicts(store.clone(), folder).await;
    let session = Session::open(store, "s").await.unwrap();
    assert_eq!(session.state(), SessionState::Idle);
    assert!(session.history().is_settled());
    assert!(["a", "c"].iter().all(|id| session.history().nested_history(id).is_none()));
}
