//! Sub-agents that wait for a verdict, in sessions that are opened again.
//! `turnstream_test_support::store_suite` also kills their process.

use std::path::Path;

use futures::StreamExt;
use turnstream::event::{EndReason, ToolEvent};
use turnstream::item::ResultKind;
use turnstream::session::{MemoryStore, Session, SessionState};
use turnstream::tool::{Tool, Verdict};
use turnstream::{Agent, ErrorKind, Event, Item};
use turnstream_test_support::store_suite::suspended_sub_agents::{
    agent_with_calls, agent_with_sub_agents, assert_all_completed, executed_call_keys,
    recording_tool, resume_with_verdicts, run_until_pending,
};
use turnstream_test_support::temp_folder::TempFolder;

use turnstream_test_support::tools::spec;

#[tokio::test]
async fn a_suspended_sub_agent_continues_when_its_session_is_opened_again() {
    let (store, folder) = (MemoryStore::new(), TempFolder::new());
    run_until_pending(store.clone(), folder.path()).await;
    resume_with_verdicts(store.clone(), folder.path()).await;
    assert_all_completed(store.clone(), folder.path()).await;
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
