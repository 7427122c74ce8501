//! Checkpoints and forks.

use futures::StreamExt;
use serde_json::json;
use turnstream::context::{Compaction, compactor_fn};
use turnstream::item::{ItemFlag, ResultKind, ToolCall, ToolResult};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{Entry, MemoryStore, Session, SessionState, Store};
use turnstream::tool::Verdict;
use turnstream::{Agent, ErrorKind, History, Item};

use turnstream_test_support::store_suite::{IdempotencyKeys, key_recording_tool, open_session};

async fn session_with_three_turns(store: &MemoryStore) -> Session {
    let session = open_session(store).await;
    let agent = Agent::new(Scripted::from_fn(|_, n| Reply::text(format!("Answer {n}."))));
    for n in 0..3 {
        session.run(&agent, format!("Question {n}?")).await.unwrap().outcome().await.unwrap();
    }
    session
}

fn message_texts(history: &History) -> Vec<String> {
    let text = |item: &Item| {
        let said = item.as_user().map(turnstream::item::Content::text);
        said.or_else(|| item.as_text().map(str::to_owned))
    };
    history.iter().filter_map(text).collect()
}

#[tokio::test]
async fn a_checkpoint_replaces_items_and_keeps_the_originals_in_the_store() {
    let store = MemoryStore::new();
    let session = session_with_three_turns(&store).await;
    let summary = Item::user("Two answers.").with_flag(ItemFlag::Compacted);
    session.checkpoint(0..4, [summary.clone()]).await.unwrap();
    for session in [&session, &open_session(&store).await] {
        assert_eq!(message_texts(&session.history()), ["Two answers.", "Question 2?", "Answer 2."]);
        assert_eq!(session.entries().await.unwrap()[0], Entry::Item(Item::user("Question 0?")));
    }
    assert_eq!(session.version(), 7);
    // A range that would separate a call from its result is refused, and nothing is written.
    let error = session.checkpoint(2..9, []).await.unwrap_err();
    assert_eq!((error.kind(), session.version()), (ErrorKind::InvalidRequest, 7));

    let half = |history: &History| {
        let words = vec![Item::user("In short.").with_flag(ItemFlag::Compacted)];
        Ok((history.len() > 2).then(|| Compaction::new(0, 2, words)))
    };
    assert!(session.compact(&compactor_fn(half)).await.unwrap().is_some());
    assert_eq!(session.compact(&compactor_fn(half)).await.unwrap(), None);
    assert_eq!(open_session(&store).await.history(), session.history());
}

#[tokio::test]
async fn call_ids_of_replaced_items_stay_reserved() {
    let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
    let session = open_session(&store).await;
    let model = Scripted::new([Reply::new().call("look", json!({})), Reply::text("Done.")]);
    let agent = Agent::new(model).with_tools([key_recording_tool("look", &keys, false)]);
    let outcome = session.run(&agent, "go").await.unwrap().outcome().await.unwrap();
    let call = outcome.history.iter().find_map(Item::as_tool_call).unwrap().call_id.clone();
    session.checkpoint(0..3, [Item::user("in short")]).await.unwrap();
    let history = open_session(&store).await.history();
    assert!(history.has_used_call_id(&call) && history.len() == 2);
}

#[tokio::test]
async fn a_fork_at_any_entry_is_independent_of_its_origin() {
    let store = MemoryStore::new();
    let session = session_with_three_turns(&store).await;
    for at in 0..=6 {
        let fork = session.fork_at(at, format!("fork {at}")).await.unwrap();
        assert_eq!((fork.id(), fork.version()), (&*format!("fork {at}"), at));
        assert_eq!(fork.history().id(), fork.id());
        let agent = Agent::new(Scripted::from_fn(|_, _| "Another way."));
        let outcome = fork.run(&agent, "And?").await.unwrap().outcome().await.unwrap();
        assert_eq!(outcome.history.len(), usize::try_from(at).unwrap() + 2);
        let read = Session::open(store.clone(), fork.id()).await.unwrap();
        assert_eq!(read.history(), fork.history());
    }
    assert_eq!(session.history(), open_session(&store).await.history());
    assert_eq!(session.version(), 6);
    let error = session.fork_at(1, "fork 1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let error = session.fork_at(99, "far").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}

#[tokio::test]
async fn a_fork_between_the_calls_of_a_turn_is_settled_and_runs_none_of_them() {
    let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
    let session = open_session(&store).await;
    let model = Scripted::new([Reply::new().call("look", json!({})).call("hang", json!({}))]);
    let tools = [
        key_recording_tool("look", &keys, false),
        key_recording_tool("hang", &keys, true).idempotent(),
    ];
    let agent = Agent::new(model).with_tools(tools);
    let mut run = session.run(&agent, "go").await.unwrap();
    while let Some(event) = run.next().await {
        if event.unwrap().tool_output().is_some() {
            break;
        }
    }
    // The call still hangs in the run, which still exists.
    let ran = keys.lock().unwrap().len();
    for at in 0..=session.version() {
        let fork = session.fork_at(at, format!("fork {at}")).await.unwrap();
        assert!(fork.history().is_settled());
        assert!(!matches!(fork.state(), SessionState::Pending { .. }));
        let agent = Agent::new(Scripted::from_fn(|_, _| "On."))
            .with_tools([key_recording_tool("hang", &keys, false).idempotent()]);
        fork.run(&agent, "on").await.unwrap().outcome().await.unwrap();
    }
    assert_eq!(keys.lock().unwrap().len(), ran);
    assert_eq!(session.history().unanswered_calls().len(), 1);
    drop(run);
}

#[tokio::test]
async fn a_fork_of_a_pending_session_is_pending() {
    let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
    let session = open_session(&store).await;
    let model = Scripted::new([Reply::new().call("look", json!({}))]);
    let agent = Agent::new(model)
        .with_tools([key_recording_tool("look", &keys, false).requires_approval()]);
    session.run(&agent, "go").await.unwrap().outcome().await.unwrap();
    let fork = session.fork_at(session.version(), "f").await.unwrap();
    assert_pending_in_fork(&fork.state(), &session.state());
    let (origin, fork) = (store.load("s", 0).await.unwrap(), store.load("f", 0).await.unwrap());
    let (origin, mut fork) = (origin.unwrap(), fork.unwrap());
    assert!(matches!(fork.pop(), Some(Entry::Pending { .. })), "its own requests");
    assert_eq!(fork, origin);
}

#[tokio::test]
async fn a_fork_starts_no_pending_call_that_its_origin_has_started_since() {
    for (verdict, begun) in [(Verdict::Approve, 1), (Verdict::deny("no"), 0)] {
        let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
        let agent = paying_agent(&keys);
        let session = open_session(&store).await;
        let pending = session.run(&agent, "go").await.unwrap().outcome().await.unwrap().pending;
        let (at, state) = (session.version(), session.state());
        let verdicts = pending.into_iter().map(|call| (call, verdict.clone()));
        session.resume(&agent, verdicts).await.unwrap().outcome().await.unwrap();
        assert_eq!(keys.lock().unwrap().len(), begun);
        let fork = session.fork_at(at, "f").await.unwrap();
        match begun {
            0 => assert_pending_in_fork(&fork.state(), &state),
            _ => {
                let history = fork.history();
                let result = history.iter().find_map(Item::as_tool_result).unwrap();
                assert_eq!(result.content.text(), "Interrupted mid-execution");
                assert!(fork.history().is_settled());
            }
        }
    }
}

/// A model that calls `pay` after each prompt, and then answers.
fn paying_agent(keys: &IdempotencyKeys) -> Agent {
    let model = Scripted::from_fn(|request, _| match request.history.iter().next_back() {
        Some(last) if last.as_user().is_some() => Reply::new().call("pay", json!({})),
        _ => Reply::text("Done."),
    });
    Agent::new(model).with_tools([key_recording_tool("pay", keys, false).requires_approval()])
}

#[tokio::test]
async fn a_fork_starts_no_pending_call_that_another_process_has_started() {
    let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
    let agent = paying_agent(&keys);
    let session = open_session(&store).await;
    let pending = session.run(&agent, "go").await.unwrap().outcome().await.unwrap().pending;
    let other = open_session(&store).await;
    let verdicts = pending.into_iter().map(|call| (call, Verdict::Approve));
    other.resume(&agent, verdicts).await.unwrap().outcome().await.unwrap();
    let fork = session.fork_at(session.version(), "f").await.unwrap();
    assert!(fork.history().is_settled());
}

#[tokio::test]
async fn a_fork_keeps_pending_calls_that_its_origin_has_abandoned_since() {
    let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
    let agent = paying_agent(&keys);
    let session = open_session(&store).await;
    session.run(&agent, "one").await.unwrap().outcome().await.unwrap();
    let (at, state) = (session.version(), session.state());
    let pending = session.run(&agent, "two").await.unwrap().outcome().await.unwrap().pending;
    let verdicts = pending.into_iter().map(|call| (call, Verdict::Approve));
    session.resume(&agent, verdicts).await.unwrap().outcome().await.unwrap();
    assert_eq!(keys.lock().unwrap().len(), 1);
    assert_pending_in_fork(&session.fork_at(at, "f").await.unwrap().state(), &state);
}

/// Checks that a fork has the pending calls of its origin, under approval ids of its own.
#[track_caller]
fn assert_pending_in_fork(fork: &SessionState, origin: &SessionState) {
    let (SessionState::Pending { calls: fork }, SessionState::Pending { calls: origin }) =
        (fork, origin)
    else {
        panic!("{fork:?}, {origin:?}");
    };
    assert_eq!(fork.len(), origin.len());
    for (fork, origin) in fork.iter().zip(origin) {
        assert_eq!((fork.to_tool_call(), &fork.path), (origin.to_tool_call(), &origin.path));
        assert_ne!(fork.approval_id, origin.approval_id);
    }
}

/// A session with these entries, forked where its calls were pending.
async fn fork_of(at: u64, entries: Vec<Entry>) -> Session {
    let store = MemoryStore::new();
    store.append("s", 0, entries).await.unwrap();
    open_session(&store).await.fork_at(at, "f").await.unwrap()
}

#[tokio::test]
async fn a_fork_gives_up_its_pending_calls_if_one_of_them_may_have_started_since() {
    let call = |id: &str| -> Entry { Item::tool_call(id, "pay", "{}").into() };
    let result = |id: &str, kind| -> Entry {
        Item::tool_result(ToolResult::for_call(&call_of(id), kind, "text")).into()
    };
    let pending =
        |ids: &[&str]| Entry::Pending { calls: ids.iter().map(|id| call_of(id).into()).collect() };
    let done = || Entry::from(Item::text("Done."));
    let begin = || vec![Item::user("go").into(), call("c1"), call("c2"), pending(&["c1", "c2"])];
    let later: [(Vec<Entry>, bool); 5] = [
        // A hand-written loop appended the first result. The second call was then resumed.
        (
            vec![
                result("c1", ResultKind::Ok),
                pending(&["c2"]),
                Entry::Resumed { idempotent: Vec::new() },
            ],
            true,
        ),
        // An earlier resumption may have started the call that was denied.
        (
            vec![
                Entry::Resumed { idempotent: Vec::new() },
                result("c2", ResultKind::Denied),
                pending(&["c1"]),
                Entry::Resumed { idempotent: Vec::new() },
                result("c1", ResultKind::Denied),
            ],
            true,
        ),
        (vec![Entry::Resumed { idempotent: Vec::new() }, result("c1", ResultKind::Denied)], true),
        (
            vec![
                Entry::Resumed { idempotent: Vec::new() },
                result("c1", ResultKind::Denied),
                result("c2", ResultKind::Denied),
            ],
            false,
        ),
        (vec![result("c1", ResultKind::Ok), result("c2", ResultKind::Ok), done()], false),
    ];
    for (later, is_given_up) in later {
        let place = format!("{later:?}");
        let fork = fork_of(4, [begin(), later].concat()).await;
        let is_pending = matches!(fork.state(), SessionState::Pending { .. });
        assert_eq!(is_pending, !is_given_up, "{place}");
        assert_eq!(fork.history().is_settled(), is_given_up, "{place}");
    }
}

fn call_of(id: &str) -> ToolCall {
    ToolCall { call_id: id.into(), name: "pay".into(), arguments: "{}".into() }
}

#[tokio::test]
async fn a_checkpoint_of_a_pending_session_separates_no_call_from_its_result() {
    let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
    let session = open_session(&store).await;
    let model = Scripted::from_fn(|request, _| match request.history.len() {
        1 => Reply::text("See.").call_raw("a", "look", "{}"),
        _ => Reply::text("And now.").call_raw("b", "ask", "{}"),
    });
    let tools = [
        key_recording_tool("look", &keys, false),
        key_recording_tool("ask", &keys, false).requires_approval(),
    ];
    session.run(&Agent::new(model).with_tools(tools), "go").await.unwrap().outcome().await.unwrap();
    let (state, version) = (session.state(), session.version());
    // A finished call, its result, and the pending call.
    for range in [2..3, 3..4, 5..6, 0..6] {
        let error = session.checkpoint(range, []).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }
    assert_eq!((session.state(), session.version()), (state.clone(), version));
    session.checkpoint(0..4, [Item::user("in short")]).await.unwrap();
    assert_eq!((session.state(), open_session(&store).await.state()), (state.clone(), state));
}

#[tokio::test]
async fn forking_before_the_prompt_copies_a_promptless_session_and_fails_for_an_unstored_one() {
    let store = MemoryStore::new();
    let session = Session::open(store.clone(), "s").await.unwrap();
    let error = session.fork_before_last_prompt("other").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    store.append("s", 0, vec![Item::text("Hello!").into()]).await.unwrap();
    let fork = session.fork_before_last_prompt("other").await.unwrap();
    assert_eq!(fork.history().len(), 1);
}
