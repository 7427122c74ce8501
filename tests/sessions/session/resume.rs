//! Unfinished calls are reported, and continued as their tools allow.

use std::sync::{Arc, Mutex};

use futures::{FutureExt, StreamExt};
use serde_json::json;
use turnstream::agent::hook::{CallDecision, before_tool};
use turnstream::event::{EndReason, ToolEvent};
use turnstream::item::{ResultKind, ToolCall, ToolResult};
use turnstream::provider::{Reply, Scripted};
use turnstream::replay::{Recorder, Recording};
use turnstream::session::{Entry, MemoryStore, Session, SessionState, Store};
use turnstream::tool::{Tool, ToolUpdate, Verdict};
use turnstream::{Agent, ErrorKind, Event, History, Item};

use turnstream_test_support::store_suite::{IdempotencyKeys, key_recording_tool, open_session};
use turnstream_test_support::tools::spec;

/// A session whose process ended while these tools ran concurrently.
async fn session_with_open_calls(store: &MemoryStore, agent: &Agent) -> Session {
    let session = open_session(store).await;
    let mut run = session.run(agent, "go").await.unwrap();
    let mut started = 0;
    while started < 2 {
        let event = run.next().await.unwrap().unwrap();
        started += u32::from(matches!(event, Event::Tool(ToolEvent::Started { .. })));
    }
    // The tools run, and do not end.
    assert!(run.next().now_or_never().is_none());
    drop(run);
    open_session(store).await
}

fn model_with_two_calls(text: &'static str) -> Scripted {
    Scripted::from_fn(move |request, _| match request.history.last() {
        Some(item) if item.as_user().is_some() && request.history.len() == 1 => {
            Reply::new().call_raw("a", "once", "{}").call_raw("b", "again", "{}")
        }
        _ => Reply::text(text),
    })
}

fn result_kinds(session: &Session) -> Vec<(String, ResultKind)> {
    let results = session.history();
    let results = results.iter().filter_map(Item::as_tool_result);
    results.map(|result| (result.call_id.clone(), result.kind)).collect()
}

#[tokio::test]
async fn calls_left_open_by_a_crash_are_reported_and_only_idempotent_tools_run_again() {
    for says in [false, true] {
        let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
        let tools = |hangs| {
            [
                key_recording_tool("once", &keys, hangs),
                key_recording_tool("again", &keys, hangs).idempotent(),
            ]
        };
        let session = session_with_open_calls(
            &store,
            &Agent::new(model_with_two_calls("x")).with_tools(tools(true)),
        )
        .await;
        let SessionState::Unfinished { open_calls: calls } = session.state() else { panic!() };
        assert_eq!(calls.iter().map(|call| &*call.call_id).collect::<Vec<_>>(), ["a", "b"]);

        let agent = Agent::new(model_with_two_calls("Done.")).with_tools(tools(false));
        let run = match says {
            true => session.run(&agent, "go on").await,
            false => session.resume(&agent, []).await,
        };
        let outcome = run.unwrap().outcome().await.unwrap();
        assert_eq!((outcome.reason, &*outcome.text), (EndReason::Completed, "Done."));
        let kinds = result_kinds(&session);
        assert_eq!(kinds, [("a".into(), ResultKind::Interrupted), ("b".into(), ResultKind::Ok)]);
        // With the old key.
        keys.lock().unwrap().sort();
        assert_eq!(*keys.lock().unwrap(), ["s/a", "s/b", "s/b"]);
        assert_eq!(outcome.history, session.history());
        assert!(outcome.history.is_settled());
        let asked = outcome.history.iter().filter(|item| item.as_user().is_some()).count();
        assert_eq!(asked, 1 + usize::from(says));
    }
}

#[tokio::test]
async fn an_idempotent_streaming_tool_runs_again_after_a_crash() {
    let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
    let hanging = [
        key_recording_tool("once", &keys, true),
        key_recording_tool("again", &keys, true).idempotent(),
    ];
    let session =
        session_with_open_calls(&store, &Agent::new(model_with_two_calls("x")).with_tools(hanging))
            .await;
    let streams = Tool::raw(spec("again"), |_args, _cx| async {
        let updates = [ToolUpdate::progress(&1), ToolUpdate::output("streamed")];
        futures::stream::iter(updates).boxed()
    });
    let agent =
        Agent::new(model_with_two_calls("Done.")).with_tools([streams.unwrap().idempotent()]);
    session.resume(&agent, []).await.unwrap().outcome().await.unwrap();
    assert_eq!(result_kinds(&session)[1], ("b".into(), ResultKind::Ok));
}

#[tokio::test]
async fn hooks_and_approvals_apply_again_to_calls_that_run_again() {
    let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
    let hanging = [
        key_recording_tool("once", &keys, true),
        key_recording_tool("again", &keys, true).idempotent(),
    ];
    let agent = Agent::new(model_with_two_calls("x")).with_tools(hanging);
    let denies = before_tool(|_, _| async { CallDecision::Deny("not twice".into()) });
    let again = || key_recording_tool("again", &keys, false).idempotent();
    let done = || Agent::new(model_with_two_calls("Done."));

    let session = session_with_open_calls(&store, &agent).await;
    let ran = keys.lock().unwrap().len();
    session.fork_at(session.version(), "other").await.unwrap();
    let agent = done().with_tools([again()]).with_hook(denies);
    session.resume(&agent, []).await.unwrap().outcome().await.unwrap();
    assert_eq!(result_kinds(&session)[1], ("b".into(), ResultKind::Denied));

    // Without an interactive owner, the pending call is returned.
    let store = MemoryStore::new();
    let agent = Agent::new(model_with_two_calls("x")).with_tools([
        key_recording_tool("once", &keys, true),
        key_recording_tool("again", &keys, true).idempotent(),
    ]);
    let session = session_with_open_calls(&store, &agent).await;
    let ran = ran + 2;
    let agent = done().with_tools([again().requires_approval()]);
    let outcome = session.run(&agent, "go on").await.unwrap().outcome().await.unwrap();
    assert_eq!((outcome.reason, outcome.undelivered.len()), (EndReason::Pending, 1));
    assert_eq!(keys.lock().unwrap().len(), ran, "it has not run");
    let SessionState::Pending { calls } = open_session(&store).await.state() else { panic!() };
    let verdicts = calls.into_iter().map(|call| (call, Verdict::Approve));
    session.resume(&agent, verdicts).await.unwrap().outcome().await.unwrap();
    assert_eq!(keys.lock().unwrap().last().unwrap(), "s/b");
    assert_eq!(keys.lock().unwrap().len(), ran + 1);
}

#[tokio::test]
async fn an_external_result_answers_an_interrupted_call() {
    let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
    let hanging = [
        key_recording_tool("once", &keys, true),
        key_recording_tool("again", &keys, true).idempotent(),
    ];
    let session =
        session_with_open_calls(&store, &Agent::new(model_with_two_calls("x")).with_tools(hanging))
            .await;
    let SessionState::Unfinished { open_calls: calls } = session.state() else { panic!() };
    let agent = Agent::new(model_with_two_calls("Done."))
        .with_tools([key_recording_tool("once", &keys, false)]);
    let other = ToolCall { call_id: "z".into(), ..calls[0].clone() };
    for (wrong, kind) in [
        (vec![other.clone()], ErrorKind::Conflict),
        (vec![calls[0].clone(), calls[0].clone()], ErrorKind::InvalidRequest),
    ] {
        let verdicts = wrong.into_iter().map(|call| (call.into(), Verdict::Approve));
        let error = session.resume(&agent, verdicts).await.unwrap_err();
        assert_eq!(error.kind(), kind);
    }
    let verdicts = [
        (calls[0].clone().into(), Verdict::output("it is paid")),
        (calls[1].clone().into(), Verdict::Approve),
    ];
    session.resume(&agent, verdicts).await.unwrap().outcome().await.unwrap();
    let kinds = result_kinds(&session);
    // `again` is not an idempotent tool of this agent, so an approval does not run it.
    assert!(kinds.contains(&("a".into(), ResultKind::Ok)), "{kinds:?}");
    assert!(kinds.contains(&("b".into(), ResultKind::Interrupted)), "{kinds:?}");
    assert_eq!(keys.lock().unwrap().len(), 2, "nothing ran again");
}

#[tokio::test]
async fn an_unanswered_prompt_is_sent_again_and_an_answered_session_has_nothing_to_resume() {
    let store = MemoryStore::new();
    let session = open_session(&store).await;
    let error = session.resume(&Agent::new(Scripted::new(["x"])), []).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    let mut run = session.run(&Agent::new(Scripted::new(["x"])), "Why?").await.unwrap();
    run.next().await.unwrap().unwrap();
    drop(run);
    let session = open_session(&store).await;
    assert_eq!(session.state(), SessionState::Unfinished { open_calls: Vec::new() });
    let agent = Agent::new(Scripted::new(["Because."]));
    let outcome = session.resume(&agent, []).await.unwrap().outcome().await.unwrap();
    assert_eq!((outcome.history.len(), session.state()), (2, SessionState::Idle));
}

#[tokio::test]
async fn pending_calls_are_resumed_once_and_interrupted_by_new_input() {
    for says in [false, true] {
        let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
        let model = Scripted::from_fn(|request, _| match request.history.len() {
            1 => Reply::new().call("once", json!({})),
            _ => Reply::text("Done."),
        });
        let agent = Agent::new(model)
            .with_tools([key_recording_tool("once", &keys, false).requires_approval()]);
        let session = open_session(&store).await;
        session.run(&agent, "go").await.unwrap().outcome().await.unwrap();
        let SessionState::Pending { calls } = open_session(&store).await.state() else { panic!() };
        let session = open_session(&store).await;
        let before = session.version();
        assert!(session.resume(&agent, []).await.is_err(), "a verdict is missing");
        assert_eq!(session.version(), before, "nothing was written for it");
        let verdicts = || calls.iter().map(|call| (call.clone(), Verdict::Approve));
        let outcome = match says {
            true => session.run(&agent, "never mind").await,
            false => session.resume(&agent, verdicts()).await,
        };
        outcome.unwrap().outcome().await.unwrap();
        assert_eq!(keys.lock().unwrap().len(), usize::from(!says));
        let kind = if says { ResultKind::Interrupted } else { ResultKind::Ok };
        assert_eq!(result_kinds(&session)[0].1, kind);
        assert!(
            open_session(&store).await.resume(&agent, verdicts()).await.is_err(),
            "a second time"
        );
        assert_eq!(keys.lock().unwrap().len(), usize::from(!says));
    }
}

#[tokio::test]
async fn new_input_reports_whether_a_pending_call_may_have_started() {
    let store = MemoryStore::new();
    let keys = IdempotencyKeys::default();
    let tool = |name| key_recording_tool(name, &keys, false).requires_approval();
    let researcher = Agent::new(Scripted::new([Reply::new().call("never", json!({}))]))
        .with_tools([tool("never")]);
    let agent = |model| {
        Agent::new(model).with_tools([
            tool("never"),
            tool("again").idempotent(),
            Tool::external(spec("elsewhere")).unwrap(),
            researcher.as_tool("research", "Looks things up").unwrap(),
        ])
    };
    let calls = Reply::new()
        .call("never", json!({}))
        .call("again", json!({}))
        .call("elsewhere", json!({}))
        .call("unknown_later", json!({}))
        .call("research", json!({ "prompt": "x" }));
    let session = open_session(&store).await;
    let first = agent(Scripted::new([calls])).with_tool(tool("unknown_later"));
    session.run(&first, "go").await.unwrap().outcome().await.unwrap();
    let session = open_session(&store).await;
    assert!(matches!(session.state(), SessionState::Pending { .. }));

    let mut run = session.run(&agent(Scripted::new(["Fine."])), "never mind").await.unwrap();
    let mut reported = Vec::new();
    while let Some(event) = run.next().await {
        if let Some(result) = event.unwrap().tool_output() {
            reported.push((result.name.clone(), result.content.text()));
        }
    }
    let history = open_session(&store).await.history();
    let stored = history.iter().filter_map(Item::as_tool_result);
    let stored: Vec<_> =
        stored.map(|result| (result.name.clone(), result.content.text())).collect();
    assert_eq!(reported, stored, "the results are reported as they are stored");
    let text = |name| &*stored.iter().find(|(of, _)| of == name).unwrap().1;
    assert_eq!(text("never"), "Interrupted by user");
    for name in ["again", "elsewhere", "unknown_later", "research"] {
        assert_eq!(text(name), "Interrupted mid-execution", "{name}");
    }
    assert!(keys.lock().unwrap().is_empty(), "no tool has run");
}

/// The texts of all results, with the ids of their calls.
fn result_texts(history: &History) -> Vec<String> {
    let results = history.iter().filter_map(Item::as_tool_result);
    results.map(|result| format!("{}: {}", result.call_id, result.content.text())).collect()
}

#[tokio::test]
async fn new_input_does_not_change_an_older_result_with_the_id_of_a_pending_call() {
    let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
    let call = ToolCall { call_id: "c1".into(), name: "look".into(), arguments: "{}".into() };
    let older = ToolResult::for_call(&call, ResultKind::Interrupted, "Interrupted mid-execution");
    let entries: Vec<Entry> = vec![
        Item::user("one").into(),
        Item::tool_call("c1", "look", "{}").into(),
        Item::tool_result(older).into(),
        Item::text("ok").into(),
        Item::user("two").into(),
        Item::tool_call("c1", "look", "{}").into(),
        Entry::Pending { calls: vec![call.into()] },
    ];
    store.append("s", 0, entries).await.unwrap();
    let session = open_session(&store).await;
    let tool = key_recording_tool("look", &keys, false).requires_approval();
    let agent = Agent::new(Scripted::new(["Fine."])).with_tools([tool]);
    session.run(&agent, "never mind").await.unwrap().outcome().await.unwrap();
    let texts = result_texts(&open_session(&store).await.history());
    assert_eq!(texts, ["c1: Interrupted mid-execution", "c1_dup1: Interrupted mid-execution"]);
}

#[tokio::test]
async fn a_rerun_interrupted_before_it_starts_may_have_started_before_the_crash() {
    let (store, agent) = crashed_in_a_call().await;
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let recorder = Recorder::to_callback(move |run| *keep.lock().unwrap() = Some(run.recording));
    let agent = agent.interactive();
    let session = open_session(&store).await;
    let mut run = session.resume(&agent.clone().with_recorder(&recorder), []).await.unwrap();
    while !matches!(run.next().await, Some(Ok(Event::Tool(ToolEvent::ApprovalRequested(_))))) {}
    run.interrupt();
    run.outcome().await.unwrap();
    let texts = result_texts(&open_session(&store).await.history());
    assert_eq!(texts, ["call_1_1: Interrupted mid-execution"]);
    let recording: Recording = kept.lock().unwrap().take().unwrap();
    let replay = recording.replay(&agent).collect::<Vec<_>>().await;
    assert!(replay.iter().all(Result::is_ok), "{:?}", replay.last());
}

#[tokio::test]
async fn a_pending_call_that_a_crash_left_open_may_have_started() {
    let (store, agent) = crashed_in_a_call().await;
    let session = open_session(&store).await;
    let pending = session.resume(&agent, []).await.unwrap().outcome().await.unwrap().pending;
    assert!(matches!(session.state(), SessionState::Pending { .. }));
    let verdicts = pending.into_iter().map(|call| (call, Verdict::Approve));
    let run = session.resume(&agent, verdicts).await.unwrap();
    run.interrupt();
    let history = run.outcome().await.unwrap().history;
    assert_eq!(result_texts(&history), ["call_1_1: Interrupted mid-execution"]);
}

/// A session whose process died while the call of an idempotent tool ran, and an agent that asks
/// before it runs the call again.
async fn crashed_in_a_call() -> (MemoryStore, Agent) {
    let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
    let model = || {
        Scripted::from_fn(|request, _| match request.history.len() {
            1 => Reply::new().call_raw("call_1_1", "again", "{}"),
            _ => Reply::text("Done."),
        })
    };
    let hanging = key_recording_tool("again", &keys, true).idempotent();
    let hanging = Agent::new(model()).with_tools([hanging]);
    let session = open_session(&store).await;
    let mut run = session.run(&hanging, "go").await.unwrap();
    while keys.lock().unwrap().is_empty() {
        let _ = run.next().now_or_never();
    }
    drop(run);
    let asking = key_recording_tool("again", &keys, false).idempotent().requires_approval();
    (store, Agent::new(model()).with_tools([asking]))
}

/// The keys and results of a session whose calls `a` and `b` were open when its process ended.
async fn continue_with(
    session: &Session,
    model: &Scripted,
    tools: impl IntoIterator<Item = Tool>,
) -> Vec<(String, ResultKind)> {
    let agent = Agent::new(model.clone()).with_tools(tools);
    session.resume(&agent, []).await.unwrap().outcome().await.unwrap();
    result_kinds(session)
}

#[tokio::test]
async fn a_call_that_a_non_idempotent_tool_started_is_not_repeated_by_a_later_idempotent_version() {
    let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
    let model = model_with_two_calls("Done.");
    let tool = |name, hangs| key_recording_tool(name, &keys, hangs);
    let first = Agent::new(model.clone())
        .with_tools([tool("once", true), tool("again", true).idempotent()]);
    let session = session_with_open_calls(&store, &first).await;
    let later = [tool("once", false).idempotent(), tool("again", false).idempotent()];
    let results = continue_with(&session, &model, later).await;
    assert_eq!(results, [("a".into(), ResultKind::Interrupted), ("b".into(), ResultKind::Ok)]);
    keys.lock().unwrap().sort();
    assert_eq!(*keys.lock().unwrap(), ["s/a", "s/b", "s/b"]);
}

#[tokio::test]
async fn an_approved_call_is_repeated_only_if_its_tool_was_idempotent_when_it_started() {
    // Whether the tool is idempotent: when the model calls it, when it starts, and after the crash.
    for (called, started, later, is_repeated) in [
        (false, false, true, false),
        (true, false, true, false),
        (false, true, true, true),
        (true, true, true, true),
        (true, true, false, false),
    ] {
        let (store, keys) = (MemoryStore::new(), IdempotencyKeys::default());
        let model = Scripted::from_fn(|request, _| match request.history.len() {
            1 => Reply::new().call_raw("a", "act", "{}"),
            _ => Reply::text("Done."),
        });
        let agent = |is_idempotent: bool, asks: bool, hangs: bool| {
            let tool = key_recording_tool("act", &keys, hangs);
            let tool = if is_idempotent { tool.idempotent() } else { tool };
            Agent::new(model.clone()).with_tool(if asks { tool.requires_approval() } else { tool })
        };
        let session = open_session(&store).await;
        session.run(&agent(called, true, false), "go").await.unwrap().outcome().await.unwrap();
        let SessionState::Pending { calls } = session.state() else { panic!() };
        let verdicts = calls.into_iter().map(|call| (call, Verdict::Approve));
        let mut run = session.resume(&agent(started, true, true), verdicts).await.unwrap();
        while keys.lock().unwrap().is_empty() {
            let _ = run.next().now_or_never();
        }
        drop(run);

        let session = open_session(&store).await;
        let agent = agent(later, false, false);
        session.resume(&agent, []).await.unwrap().outcome().await.unwrap();
        let kind = if is_repeated { ResultKind::Ok } else { ResultKind::Interrupted };
        let case = (called, started, later);
        assert_eq!(result_kinds(&session), [("a".into(), kind)], "{case:?}");
        assert_eq!(keys.lock().unwrap().len(), 1 + usize::from(is_repeated), "{case:?}");
    }
}
