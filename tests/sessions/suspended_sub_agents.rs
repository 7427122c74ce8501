//! Sub-agents that wait for a verdict, in sessions whose process is killed meanwhile. The test
//! binary starts itself again.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::{env, fs};

use futures::StreamExt;
use turnstream::context::{Ageing, Truncator};
use turnstream::event::{EndReason, ToolEvent};
use turnstream::item::{PendingCall, ResultKind};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{Entry, JsonLinesStore, MemoryStore, Session, SessionState, Store};
use turnstream::tool::{Tool, Verdict};
use turnstream::{Agent, ErrorKind, Event, Item};

use crate::stores::sample_entries::TempFolder;
use crate::support::tools::spec;

const ROLE_ENV: &str = "TURNSTREAM_SUSPENDED_ROLE";
const FOLDER_ENV: &str = "TURNSTREAM_SUSPENDED_PLACE";

/// The keys of the calls that ran in any process, one per line.
fn executed_call_keys(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("ran")).unwrap_or_default();
    let mut keys: Vec<String> = text.lines().map(str::to_owned).collect();
    keys.sort();
    keys
}

fn recording_tool(folder: &Path, name: &str) -> Tool {
    let file = folder.join("ran");
    let run = move |_, cx: turnstream::tool::ToolContext| {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&file).unwrap();
        writeln!(file, "{}", cx.idempotency_key()).unwrap();
        async { "done" }
    };
    Tool::raw(spec(name), run).unwrap()
}

/// An agent that makes these calls, and then stops.
fn agent_with_calls(calls: &'static [(&'static str, &'static str)], tools: Vec<Tool>) -> Agent {
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
fn agent_with_sub_agents(folder: &Path) -> Agent {
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

async fn run_until_pending(store: impl Store + 'static, folder: &Path) {
    let session = Session::open(store, "s").await.unwrap();
    let outcome =
        session.run(&agent_with_sub_agents(folder), "go").await.unwrap().outcome().await.unwrap();
    assert_eq!(
        (outcome.reason, call_paths(&outcome.pending)),
        (EndReason::Pending, PENDING_CALL_PATHS.map(String::from).to_vec())
    );
}

async fn resume_with_verdicts(store: impl Store + 'static, folder: &Path) {
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
async fn assert_all_completed(store: impl Store + 'static, folder: &Path) {
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
        Entry::Nested { call_id, history } => Some((&**call_id, history.id())),
        _ => None,
    });
    let mut nested: Vec<_> = nested.collect();
    nested.sort_unstable();
    assert_eq!(nested, [("a", "s/a"), ("c", "s/c")]);
    assert!(session.resume(&agent_with_sub_agents(folder), []).await.is_err(), "nothing is left");
}

#[tokio::test]
async fn a_suspended_sub_agent_continues_when_its_session_is_opened_again() {
    let (store, folder) = (Arc::new(MemoryStore::new()), TempFolder::new());
    run_until_pending(MemoryStore::clone(&store), folder.path()).await;
    resume_with_verdicts(MemoryStore::clone(&store), folder.path()).await;
    assert_all_completed(MemoryStore::clone(&store), folder.path()).await;
}

/// Starts a test of this module in a separate process, with a role.
fn spawn_test_process(test: &str, role: &str, folder: &Path) -> Child {
    let (_, module) = module_path!().split_once("::").expect("a module of the binary");
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args([&*format!("{module}::{test}"), "--exact", "--nocapture"])
        .env(ROLE_ENV, role)
        .env(FOLDER_ENV, folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

async fn assert_survives_kill<S: Store + 'static>(test: &str, open: impl Fn(PathBuf) -> S) {
    if let (Ok(role), Ok(folder)) = (env::var(ROLE_ENV), env::var(FOLDER_ENV)) {
        let folder = PathBuf::from(folder);
        match &*role {
            "suspend" => run_until_pending(open(folder.clone()), &folder).await,
            _ => resume_with_verdicts(open(folder.clone()), &folder).await,
        }
        eprintln!("DONE");
        // The process is killed here.
        return std::future::pending().await;
    }
    let folder = TempFolder::new();
    for role in ["suspend", "resume"] {
        let mut child = spawn_test_process(test, role, folder.path());
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
    assert_all_completed(open(folder.path().to_owned()), folder.path()).await;
}

#[tokio::test]
async fn a_suspended_sub_agent_in_json_lines_survives_its_process_and_its_call_runs_once() {
    let test = "a_suspended_sub_agent_in_json_lines_survives_its_process_and_its_call_runs_once";
    assert_survives_kill(test, |folder| JsonLinesStore::open(folder.join("store")).unwrap()).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_suspended_sub_agent_in_sqlite_survives_its_process_and_its_call_runs_once() {
    let test = "a_suspended_sub_agent_in_sqlite_survives_its_process_and_its_call_runs_once";
    let open = |folder: PathBuf| turnstream::session::SqliteStore::open(folder.join("db")).unwrap();
    assert_survives_kill(test, open).await;
}

/// A crash while a suspended sub-agent continues: its call may have run, so it does not run again.
#[tokio::test]
async fn a_sub_agent_interrupted_while_it_continued_is_answered_as_interrupted() {
    use futures::StreamExt;

    let (store, folder) = (MemoryStore::new(), TempFolder::new());
    run_until_pending(store.clone(), folder.path()).await;
    for events in 0.. {
        let copy = Session::open(store.clone(), "s").await.unwrap();
        let copy = copy.fork_at(copy.version(), format!("s{events}")).await.unwrap();
        let SessionState::Pending { calls } = copy.state() else { panic!("{:?}", copy.state()) };
        let verdicts = calls.into_iter().map(|call| (call, Verdict::Approve));
        let mut run = copy.resume(&agent_with_sub_agents(folder.path()), verdicts).await.unwrap();
        let mut over = false;
        for _ in 0..events {
            over |= run.next().await.is_none();
        }
        drop(run);
        let before = executed_call_keys(folder.path());
        let session = Session::open(store.clone(), format!("s{events}")).await.unwrap();
        match session.state() {
            SessionState::Pending { .. } => assert_eq!(events, 0, "nothing had begun"),
            SessionState::Idle | SessionState::Unfinished { .. } => {
                let run = session.run(&agent_with_sub_agents(folder.path()), "and?").await.unwrap();
                let outcome = run.outcome().await.unwrap();
                assert!(outcome.history.settled().is_settled());
                assert!(session.history().iter().all(|item: &Item| !item.interrupted));
            }
        }
        assert_eq!(
            executed_call_keys(folder.path()),
            before,
            "after {events} events something ran again"
        );
        if over {
            return;
        }
    }
}

/// A store with a session that waits for one call, of its own or of a sub-agent that changed a
/// file.
async fn store_with_pending_call(folder: &Path, nested: bool) -> (MemoryStore, Agent) {
    let change = |_, cx: turnstream::tool::ToolContext| {
        cx.record_change("a file");
        async { "done" }
    };
    let tools = vec![
        Tool::raw(spec("look"), change).unwrap(),
        recording_tool(folder, "delete").requires_approval(),
    ];
    let agent = match nested {
        true => {
            let child = agent_with_calls(&[("look_1", "look"), ("delete_1", "delete")], tools);
            agent_with_calls(&[("a", "clean")], vec![child.as_tool("clean", "").unwrap()])
        }
        false => agent_with_calls(&[("a", "delete")], tools),
    };
    let store = MemoryStore::new();
    let session = Session::open(store.clone(), "s").await.unwrap();
    session.run(&agent, "go").await.unwrap().outcome().await.unwrap();
    (store, agent)
}

#[tokio::test]
async fn a_session_keeps_the_side_effects_of_a_suspended_sub_agent() {
    let folder = TempFolder::new();
    let (store, agent) = store_with_pending_call(folder.path(), true).await;
    let session = Session::open(store.clone(), "s").await.unwrap();
    session.run(&agent, "never mind").await.unwrap().outcome().await.unwrap();
    let session = Session::open(store, "s").await.unwrap();
    let history = session.history();
    let result = history.iter().find_map(Item::as_tool_result).unwrap();
    assert_eq!(result.kind, ResultKind::Interrupted);
    let report = result.report.as_ref().expect("a record");
    assert_eq!(report.side_effects, [turnstream::item::SideEffect::of_change("a file")]);
}

#[tokio::test]
async fn a_checkpoint_keeps_the_pending_call_of_a_suspended_sub_agent() {
    use turnstream::item::ItemFlag;

    let folder = TempFolder::new();
    let mut told = Vec::new();
    for nested in [false, true] {
        let (store, _) = store_with_pending_call(folder.path(), nested).await;
        let session = Session::open(store, "s").await.unwrap();
        let (len, mut of) = (session.history().len(), Vec::new());
        for (from, to) in (0..=len).flat_map(|to| (0..=to).map(move |from| (from, to))) {
            let id = format!("{from}_{to}");
            let fork = session.fork_at(session.version(), id).await.unwrap();
            let summary = Item::user("a summary").with_flag(ItemFlag::Compacted);
            of.push(fork.checkpoint(from..to, [summary]).await.map_err(|error| error.to_string()));
            let is_pending = matches!(fork.state(), SessionState::Pending { .. });
            assert!(is_pending, "{from}..{to}: {:?}", fork.state());
            assert_eq!(fork.history().nested_history("a").is_some(), nested);
        }
        told.push(of);
    }
    assert_eq!(told[0], told[1]);
}

/// While calls wait, earlier items are tombstoned, shortened and compacted.
async fn assert_rewrites_keep_pending(store: impl Store + Clone + 'static, folder: &Path) {
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

#[tokio::test]
async fn rewriting_items_before_a_suspended_call_lets_it_continue_in_every_store() {
    let folder = TempFolder::new();
    assert_rewrites_keep_pending(MemoryStore::new(), folder.path()).await;
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path().join("sessions")).unwrap();
    assert_rewrites_keep_pending(store, folder.path()).await;
    #[cfg(feature = "sqlite")]
    {
        let folder = TempFolder::new();
        let store = turnstream::session::SqliteStore::open(folder.path().join("db")).unwrap();
        assert_rewrites_keep_pending(store, folder.path()).await;
    }
}

#[tokio::test]
async fn a_checkpoint_cannot_replace_the_end_of_a_turn_with_pending_calls() {
    let (store, folder) = (MemoryStore::new(), TempFolder::new());
    let tools = vec![
        recording_tool(folder.path(), "look"),
        recording_tool(folder.path(), "delete").requires_approval(),
    ];
    let agent = agent_with_calls(&[("a", "delete"), ("b", "look")], tools);
    let session = Session::open(store, "s").await.unwrap();
    session.run(&agent, "go").await.unwrap().outcome().await.unwrap();
    let SessionState::Pending { calls } = session.state() else { panic!("{:?}", session.state()) };
    // The answered call is the last of its turn, and has the mark of the turn's end.
    for range in [2..4, 1..4, 2..3] {
        let error = session.checkpoint(range.clone(), []).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{range:?}");
    }
    session.checkpoint(0..1, [Item::user("in short")]).await.unwrap();
    let verdicts = calls.into_iter().map(|call| (call, Verdict::Approve));
    let outcome = session.resume(&agent, verdicts).await.unwrap().outcome().await.unwrap();
    assert_eq!(
        (outcome.reason, executed_call_keys(folder.path()).len()),
        (EndReason::Completed, 2)
    );
}

#[tokio::test]
async fn verdicts_that_a_run_was_given_before_a_crash_are_a_conflict_after_it() {
    let folder = TempFolder::new();
    let store = MemoryStore::new();
    let agent = agent_with_sub_agents(folder.path());
    let session = Session::open(store.clone(), "s").await.unwrap();
    let pending = session.run(&agent, "go").await.unwrap().outcome().await.unwrap().pending;
    let verdicts = || pending.iter().map(|call| (call.clone(), Verdict::Approve));
    let mut run = session.resume(&agent, verdicts()).await.unwrap();
    while !matches!(run.next().await, Some(Ok(Event::Tool(ToolEvent::Started { .. })))) {}
    drop(run);
    let session = Session::open(store, "s").await.unwrap();
    assert!(matches!(session.state(), SessionState::Unfinished { .. }));
    for verdict in verdicts() {
        let refused = session.resume(&agent, [verdict]).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
    }
    let outcome = session.resume(&agent, []).await.unwrap().outcome().await.unwrap();
    assert_eq!(outcome.reason, EndReason::Completed);
    assert!(session.history().is_settled());
}
