//! Running the unfinished calls of a history.

use turnstream::item::{ItemFlag, ResultKind, TurnInfo};
use turnstream::provider::Reply;
use turnstream::tool::{Tool, ToolRunOutcome, Verdict};
use turnstream::turn::StopReason;
use turnstream::{ErrorKind, History, Item, Toolkit};

use super::{
    ScriptedPolicy, sleep_tool, spec, start_run, summarize_remaining, turn_from_reply,
    turn_with_calls,
};

fn approval_toolkit() -> Toolkit {
    Toolkit::new([
        sleep_tool("a"),
        sleep_tool("ask").requires_approval(),
        Tool::external(spec("out")).unwrap(),
    ])
}

/// A run that leaves the calls of `ask` and `out` open.
async fn suspended_run() -> ToolRunOutcome {
    let turn = turn_with_calls(&["ask", "a", "out"]).await;
    let history = History::from_items("h", [Item::user("go")]);
    let mut tools = approval_toolkit().run(&history, &turn).with_policy(ScriptedPolicy::default());
    summarize_remaining(&mut tools).await;
    tools.finish().unwrap()
}

#[track_caller]
fn assert_resume_rejected(history: &History, why: &str) {
    let error = approval_toolkit().resume(history).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains(why), "{error}");
}

#[tokio::test]
async fn exactly_the_open_calls_run() {
    let before = suspended_run().await;
    assert_eq!(before.pending.len(), 2);
    let rules = ScriptedPolicy::configured(|book| {
        book.verdicts.insert("ask", Verdict::Approve);
        book.verdicts.insert("out", Verdict::Deny("gone".into()));
    });
    // The outcome can also be resumed after a round trip through JSON.
    let stored = serde_json::to_string(&before.history).unwrap();
    let history: History = serde_json::from_str(&stored).unwrap();
    let mut tools = approval_toolkit().resume(&history).unwrap().with_policy(rules.clone());
    let mut events = summarize_remaining(&mut tools).await;
    events.sort();
    assert_eq!(events, ["Denied out", "Ok ask", "start ask"]);
    assert!(!rules.log().iter().any(|line| line.contains(" a") && !line.contains("ask")));
    let after = tools.finish().unwrap();
    assert_eq!(after.history.len(), before.history.len() + 2, "the turn is not appended again");
    assert!(after.history.is_settled() && after.pending.is_empty());
    assert_resume_rejected(&after.history, "no call is open");
}

#[tokio::test]
async fn a_call_without_a_verdict_stays_open_and_can_be_resumed_again() {
    let before = suspended_run().await;
    let mut tools =
        approval_toolkit().resume(&before.history).unwrap().with_policy(ScriptedPolicy::default());
    assert_eq!(summarize_remaining(&mut tools).await, ["ask ask {}"]);
    let after = tools.finish().unwrap();
    assert!(after.history.iter().eq(before.history.iter()));
    // The verdict is requested again, under another id.
    for (after, before) in after.pending.iter().zip(&before.pending) {
        assert_ne!(after.approval_id, before.approval_id);
        assert_eq!(after.to_tool_call(), before.to_tool_call());
    }
    assert_eq!(after.pending.len(), before.pending.len());
}

#[tokio::test]
async fn the_idempotency_key_is_the_same() {
    let key = || {
        let tool = Tool::raw(spec("a"), |_, cx| async move { cx.idempotency_key().to_owned() });
        Toolkit::new([tool.unwrap()])
    };
    let turn = turn_with_calls(&["a"]).await;
    let mut first = start_run(&key(), &turn);
    summarize_remaining(&mut first).await;
    let first = first.finish().unwrap().results;
    let mut again = key().resume(&History::from_items("h", turn.to_history_items())).unwrap();
    summarize_remaining(&mut again).await;
    assert_eq!(again.finish().unwrap().results, first);
}

#[tokio::test]
async fn calls_are_checked_again() {
    let turn = turn_from_reply(
        Reply::new()
            .call_raw("1", "a", "{\"x\":1}")
            .call_raw("2", "gone", "{}")
            .call_raw("used", "a", "{}"),
    )
    .await;
    let mut history = History::from_items("h", [Item::tool_call("used", "a", "{}")]);
    history.rewrite(0..1, [Item::user("folded away")]);
    history.extend(turn.to_history_items());
    let mut tools = approval_toolkit().resume(&history).unwrap();
    assert_eq!(
        summarize_remaining(&mut tools).await,
        ["InvalidArguments 1", "UnknownTool 2", "Skipped used"]
    );
}

#[tokio::test]
async fn resuming_calls_that_are_not_open_is_an_error() {
    let turn = turn_with_calls(&["a"]).await;
    let open = || History::from_items("h", turn.to_history_items());
    assert_resume_rejected(&History::empty("h"), "no call is open");

    let mut followed = open();
    followed.push(Item::user("and then?"));
    assert_resume_rejected(&followed, "not at the end");

    let mut interrupted = open();
    interrupted.push(Item::text("hal").with_flag(ItemFlag::Interrupted));
    assert_resume_rejected(&interrupted, "not at the end");

    // Without the mark of its end, the turn may have been incomplete.
    let bare = History::from_items("h", [Item::tool_call("c", "a", "{}")]);
    assert_resume_rejected(&bare, "has no `TurnInfo`");
    assert_resume_rejected(&bare, "Item::with_turn_info");

    let mut earlier = open();
    earlier.extend(turn_with_calls(&["ask"]).await.to_history_items());
    assert_resume_rejected(&earlier, "earlier turn");

    let mut shortened = turn.to_history_items();
    shortened.last_mut().unwrap().compacted = true;
    assert_resume_rejected(&History::from_items("h", shortened), "was shortened by a compaction");
}

#[tokio::test]
async fn resuming_a_turn_whose_stop_reason_forbids_calls_is_an_error() {
    for reason in [StopReason::MaxTokens, StopReason::Refusal, StopReason::Other("odd".into())] {
        let turn = turn_from_reply(Reply::new().call_raw("1", "a", "{}").stop(reason)).await;
        let history = History::from_items("h", turn.to_history_items());
        assert_resume_rejected(&history, "does not allow");
    }
}

#[tokio::test]
async fn a_resumed_turn_contains_only_its_own_items() {
    use std::sync::{Arc, Mutex};
    let seen = Arc::new(Mutex::new(None));
    let see = Arc::clone(&seen);
    let tool = Tool::raw(spec("a"), move |_, cx| {
        *see.lock().unwrap() = Some(cx.turn().clone());
        async {}
    });
    let turn = turn_from_reply(Reply::text("Let me look.").call_raw("1", "a", "{}")).await;
    let mut history =
        History::from_items("h", [Item::text("cut").with_flag(ItemFlag::Interrupted)]);
    history.extend(turn.to_history_items());
    history.push(Item::text("void").with_flag(ItemFlag::Tombstone));
    let mut tools = Toolkit::new([tool.unwrap()]).resume(&history).unwrap();
    summarize_remaining(&mut tools).await;
    let resumed = seen.lock().unwrap().take().unwrap();
    assert_eq!(resumed.items(), turn.items());
    assert_eq!((resumed.usage(), resumed.model()), (turn.usage(), turn.model()));
    let result = tools.finish().unwrap();
    assert_eq!(result.results[0].kind, ResultKind::Ok);
    assert!(result.history.is_settled());
}

#[tokio::test]
async fn a_hand_built_history_can_be_resumed_once_its_turn_is_complete() {
    let call = Item::tool_call("c1", "a", "{}");
    let info = TurnInfo::new(StopReason::ToolCalls).with_model("m");
    let history = History::from_items("h", [Item::user("go"), call.with_turn_info(info)]);
    let mut run = approval_toolkit().resume(&history).unwrap();
    summarize_remaining(&mut run).await;
    let answered = run.finish().unwrap();
    let last = answered.history.last().and_then(Item::as_tool_result).unwrap();
    assert_eq!((last.call_id.as_str(), last.kind), ("c1", ResultKind::Ok));
}
