//! Items that are tombstoned during a run.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{StreamExt, TryStreamExt};
use turnstream::agent::{RunContext, hook};
use turnstream::context::{
    BytesDiv4, Compaction, ContextInjector, Window, compactor_fn, count_tokens,
    was_reactively_compacted,
};
use turnstream::event::{AppendReason, EndReason, RewriteReason};
use turnstream::item::{ItemFlag, TombstoneEdit};
use turnstream::provider::{Reply, Scripted};
use turnstream::ui::ai_sdk::AiSdk;
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Journal, Run};

use turnstream::tool::Tool;
use turnstream_test_support::items::{history_of, session_items, token_usage};
use turnstream_test_support::models::WireProvider;
use turnstream_test_support::runs::{
    collect_rest, events_until, is_tool_started, pull_ready, pull_until, reply_calling_t,
    test_agent,
};
use turnstream_test_support::tools::{spec, uncounted_tool};
use turnstream_test_support::world::{finish_run, finish_run_from};
use turnstream_testing::Wire;

fn is_tombstone_event(event: &Event) -> bool {
    matches!(event, Event::Rewritten { why: RewriteReason::Tombstoned, .. })
}

/// The positions of a history's tombstones.
fn tombstone_positions(history: &History) -> Vec<usize> {
    let void = history.iter().enumerate().filter(|(_, item)| item.tombstone);
    void.map(|(at, _)| at).collect()
}

#[track_caller]
fn assert_tombstone_refused(refused: Result<(), Error>, message: &str, parameter: Option<&str>) {
    let error = refused.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::InvalidRequest, message));
    assert_eq!(error.parameter(), parameter);
}

fn is_turn_start(turn: u32) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::TurnStarted { turn: it, .. } if *it == turn)
}

/// The position of the first item that matches.
fn position_of(run: &Run, fits: impl Fn(&Item) -> bool) -> usize {
    run.history().iter().position(fits).unwrap()
}

// ---- Items that are tombstoned together

#[track_caller]
fn assert_tombstones(items: &[Item], position: usize, expected: &[usize]) {
    let mut history = history_of(items.to_vec());
    let turns = history.completed_turns();
    for tombstones in history.tombstone_edits([position]).unwrap() {
        tombstones.apply(&mut history);
    }
    assert_eq!(tombstone_positions(&history), expected);
    assert!(history.is_settled());
    assert_eq!(history.completed_turns(), turns);
}

#[test]
fn tombstoning_a_call_or_its_result_includes_both_and_the_reasoning_of_the_turn() {
    // The start, and a turn of reasoning, text, a call, and its result.
    let items = session_items(2);
    assert_tombstones(&items, 0, &[0]);
    assert_tombstones(&items, 1, &[1]);
    assert_tombstones(&items, 2, &[1, 2]);
    assert_tombstones(&items, 3, &[1, 3, 4]);
    assert_tombstones(&items, 4, &[1, 3, 4]);
    assert_tombstones(&items, 8, &[5, 7, 8]);
}

#[test]
fn siblings_of_a_tombstoned_call_stay_and_end_their_turn() {
    let mut items = session_items(1);
    items.insert(3, Item::tool_call("first", "look", "{}"));
    items.insert(5, turnstream_test_support::items::look_result("first", "done"));
    assert_tombstones(&items, 4, &[1, 4, 6]);
    let mut history = history_of(items);
    let [made] = &history.tombstone_edits([4]).unwrap()[..] else { panic!("one range") };
    assert_eq!((made.from, made.to), (1, 7));
    made.apply(&mut history);
    let items: Vec<&Item> = history.iter().collect();
    assert!(items[3].turn.is_some() && items[4].turn.is_none());
}

#[test]
fn tombstoning_a_provider_item_includes_its_whole_turn() {
    let data = turnstream::item::ProviderData {
        provider: "openai_responses".into(),
        model: "m".into(),
        value: serde_json::json!({ "type": "web_search_call", "id": "ws_1" }).into(),
    };
    let mut items = session_items(2);
    items.insert(2, Item::provider_item(data));
    for position in 1..=5 {
        assert_tombstones(&items, position, &[1, 2, 3, 4, 5]);
    }
    assert_tombstones(&items, 7, &[6, 7]);
}

#[test]
fn distant_positions_are_separate_edits_and_tombstoned_items_are_skipped() {
    let mut history = history_of(session_items(5));
    let range = |made: &TombstoneEdit| (made.from, made.to);
    let made = history.tombstone_edits([0, 18, 19, 3]).unwrap();
    assert_eq!(made.iter().map(range).collect::<Vec<_>>(), [(0, 5), (17, 21)]);
    for made in made {
        made.apply(&mut history);
        assert!(history.is_settled());
    }
    assert_eq!(history.tombstone_edits([0, 3, 4, 1, 17]).unwrap(), []);
    let range = |made: &TombstoneEdit| made.items.iter().filter(|item| item.tombstone).count();
    assert_eq!(history.tombstone_edits([0, 2]).unwrap().iter().map(range).sum::<usize>(), 1);
}

#[test]
fn tombstoning_a_missing_position_or_a_pending_call_is_a_named_error() {
    let mut items = session_items(2);
    items.pop();
    let history = history_of(items);
    let refused = |at: usize| history.tombstone_edits([0, at]).map(drop);
    assert_tombstone_refused(refused(8), "there is no item 8: there are 8", Some("8"));
    let far = usize::MAX.to_string();
    assert_tombstone_refused(
        refused(usize::MAX),
        &format!("there is no item {far}: there are 8"),
        Some(&far),
    );
    assert_tombstone_refused(refused(7), "the call `c1` has no result yet", Some("c1"));
    assert!(history.tombstone_edits([5, 6]).is_ok(), "the thought and the words of its turn");
}

#[test]
fn a_tombstoned_reactive_compaction_note_still_counts() {
    let before = history_of(session_items(3));
    let compaction =
        turnstream::context::mark_reactive_compaction(Compaction::new(0, 5, vec![]), &before);
    let mut history = before;
    compaction.apply(&mut history);
    let note = history.iter().position(|item| item.compacted).unwrap();
    for tombstones in history.tombstone_edits([note]).unwrap() {
        tombstones.apply(&mut history);
    }
    assert_eq!(tombstone_positions(&history), [note]);
    assert!(was_reactively_compacted(&history));
}

// ---- Tombstones in a run

#[tokio::test]
async fn tombstoned_items_are_not_sent_in_the_next_request_on_any_wire() {
    for wire in Wire::ALL {
        let model = WireProvider::new(
            wire,
            "m",
            [reply_calling_t("c"), reply_calling_t("d"), "Done.".into()],
        );
        let mut run =
            test_agent(model.clone()).with_tools([uncounted_tool("t")]).run("The secret word.");
        let mut events = events_until(&mut run, is_turn_start(2)).await;
        run.tombstone([0]).unwrap();
        run.tombstone([position_of(&run, |item| item.as_tool_call().is_some())]).unwrap();
        assert_eq!(tombstone_positions(&run.history()), [0; 0], "not in the middle of a turn");
        events.extend(events_until(&mut run, is_turn_start(3)).await);
        let finished = finish_run_from(events, run).await;
        finished.check_outcome(EndReason::Completed, 3);
        let changes: Vec<&Event> =
            finished.events.iter().filter(|event| is_tombstone_event(event)).collect();
        assert_eq!(changes.len(), 1, "adjacent items are one range");
        let sent: Vec<String> = model.sent_bodies().iter().map(ToString::to_string).collect();
        for (body, is_sent) in sent.iter().zip([true, true, false]) {
            assert_eq!(body.contains("secret word"), is_sent, "{wire}: {body}");
        }
        assert!(sent[1].contains("fine") && !sent[2].is_empty());
        assert_eq!(tombstone_positions(&finished.outcome.history), [0, 1, 2]);
        assert_eq!(finished.refold_history(History::empty("id-1")), finished.outcome.history);
        let before = finished.events.iter().position(is_tombstone_event).unwrap();
        let turn = finished.events.iter().position(is_turn_start(3)).unwrap();
        assert!(before < turn);
    }
}

#[tokio::test]
async fn a_run_can_tombstone_earlier_items_before_its_first_request() {
    let model = Scripted::new(["Done."]);
    let run = test_agent(model.clone()).run_from(history_of(session_items(1)), "go");
    run.tombstone([0, 3]).unwrap();
    let finished = finish_run(run).await;
    assert_eq!(tombstone_positions(&finished.outcome.history), [0, 1, 3, 4]);
    assert_eq!(tombstone_positions(&model.requests()[0].context), [0, 1, 3, 4]);
}

#[tokio::test]
async fn tombstones_are_applied_before_the_end_if_no_request_follows() {
    // The model stops; an interrupt; an error.
    let failed = Error::new(ErrorKind::Auth, "no");
    for (reply, reason) in
        [(Reply::text("Done."), Some(EndReason::Completed)), ("a b".into(), None), {
            (Reply::error(failed), Some(EndReason::ProviderError))
        }]
    {
        let mut run = test_agent(Scripted::new([reply])).run("go");
        let events = events_until(&mut run, is_turn_start(1)).await;
        run.tombstone([0]).unwrap();
        if reason.is_none() {
            run.next().await;
            run.interrupt();
        }
        let finished = finish_run_from(events, run).await;
        assert!(reason.is_none_or(|reason| reason == finished.outcome.reason));
        let end = finished.events.len() - 1;
        assert!(is_tombstone_event(&finished.events[end - 1]), "{:?}", finished.events);
        assert_eq!(tombstone_positions(&finished.outcome.history), [0]);
        assert_tombstone_refused(finished.handle.tombstone([0]), "the run is over", None);
    }
}

#[tokio::test]
async fn a_dropped_run_applies_no_tombstones() {
    let run = test_agent(Scripted::new(["Done."])).run_from(history_of(session_items(1)), "go");
    run.tombstone([0]).unwrap();
    let handle = run.handle();
    drop(run);
    assert_eq!(tombstone_positions(&handle.history()), [0; 0]);
    assert_tombstone_refused(handle.tombstone([0]), "the run is over", None);
}

#[tokio::test]
async fn only_items_of_completed_and_answered_turns_can_be_tombstoned() {
    let replies = [Reply::text("So.").call_raw("c", "t", "{}"), "Done.".into()];
    let mut run = test_agent(Scripted::new(replies)).with_tools([uncounted_tool("t")]).run("go");
    pull_until(&mut run, |event| event.text_delta().is_some()).await;
    assert_eq!(run.history().len(), 2);
    assert_tombstone_refused(run.tombstone([1]), "there is no item 1: there are 1", Some("1"));
    assert_tombstone_refused(run.tombstone([0, 9]), "there is no item 9: there are 1", Some("9"));
    pull_until(&mut run, is_tool_started).await;
    let call = position_of(&run, |item| item.as_tool_call().is_some());
    assert_tombstone_refused(run.tombstone([call]), "the call `c` has no result yet", Some("c"));
    pull_until(&mut run, |event| event.tool_output().is_some()).await;
    run.tombstone([call]).unwrap();
    let finished = finish_run_from(Vec::new(), run).await;
    assert_eq!(tombstone_positions(&finished.outcome.history), [call, call + 1]);
}

#[tokio::test]
async fn a_call_awaiting_approval_cannot_be_tombstoned_and_other_items_can() {
    let model = Scripted::new([reply_calling_t("c")]);
    let tool = Tool::raw(spec("t"), |_, _| async { "fine" }).unwrap().requires_approval();
    let mut run = test_agent(model).with_tools([tool]).run_from(history_of(session_items(1)), "go");
    pull_until(&mut run, |event| event.turn_complete().is_some()).await;
    let call =
        position_of(&run, |item| item.as_tool_call().is_some_and(|call| call.call_id == "c"));
    assert_tombstone_refused(run.tombstone([0, call]), "the call `c` has no result yet", Some("c"));
    run.tombstone([0]).unwrap();
    let finished = finish_run_from(Vec::new(), run).await;
    finished.check_outcome(EndReason::Pending, 1);
    assert_eq!(tombstone_positions(&finished.outcome.history), [0]);
    assert_eq!(finished.outcome.pending.len(), 1);
    assert_eq!(finished.outcome.history.pending_calls(), finished.outcome.pending);
}

#[tokio::test]
async fn a_pending_call_between_tombstoned_items_still_runs_when_approved() {
    let model = Scripted::new([
        Reply::new().call_raw("a", "t", "{}").call_raw("w", "ask", "{}").call_raw("b", "t", "{}"),
        "Done.".into(),
    ]);
    let ask = Tool::raw(spec("ask"), |_, _| async { "it ran" }).unwrap().requires_approval();
    let agent = test_agent(model).with_tools([uncounted_tool("t"), ask]);
    let mut run = agent.run("go");
    let mut results = 0;
    while results < 2 {
        let event = run.next().await.unwrap().unwrap();
        results += usize::from(event.tool_output().is_some());
    }
    let call = position_of(&run, |item| item.as_tool_call().is_some());
    run.tombstone([call, call + 2]).unwrap();
    let outcome = run.outcome().await;
    assert_eq!(tombstone_positions(&outcome.history), [1, 3, 4, 5]);
    let json = serde_json::to_string(&outcome.history).unwrap();
    let history: History = serde_json::from_str(&json).unwrap();
    let verdicts =
        outcome.pending.into_iter().map(|call| (call, turnstream::tool::Verdict::Approve));
    let end = agent.resume(history, verdicts).unwrap().outcome().await;
    let result = end.history.newest_first().find_map(Item::as_tool_result).unwrap();
    assert_eq!(result.content.text(), "it ran");
}

#[tokio::test]
async fn requested_tombstones_follow_their_items_through_a_compaction() {
    let too_long = || Reply::error(Error::new(ErrorKind::ContextWindow, "too long"));
    // Removes the first five items and shortens the call after them.
    let compactor = compactor_fn(|history: &History| {
        let mut items = vec![Item::user("in short").with_flag(ItemFlag::Compacted)];
        items.extend(history.iter().take(8).skip(5).cloned());
        items[3] = Item { turn: items[3].turn.clone(), ..Item::tool_call("c1", "look", "{}") }
            .with_flag(ItemFlag::Compacted);
        Ok(Some(Compaction::new(0, 8, items)))
    });
    let model = Scripted::new([too_long(), "Done.".into()]);
    let agent = test_agent(model.clone()).with_compactor(compactor);
    let mut run = agent.run_from(history_of(session_items(3)), "go");
    let mut events = events_until(&mut run, is_turn_start(1)).await;
    // An item that is removed, the call that is shortened, and the user's last message.
    run.tombstone([2, 7, 13]).unwrap();
    events.extend(events_until(&mut run, is_turn_start(2)).await);
    let finished = finish_run_from(events, run).await;
    finished.check_outcome(EndReason::Completed, 2);
    let history = &finished.outcome.history;
    let is_shown = |item: &Item| item.as_tool_call().is_some_and(|call| call.call_id == "c1");
    let call = history.iter().position(is_shown).unwrap();
    let said =
        history.iter().position(|item| *item == Item::user("go").with_flag(ItemFlag::Tombstone));
    assert_eq!(
        tombstone_positions(history),
        [call - 2, call, call + 1, said.unwrap()],
        "{history:?}"
    );
    assert_eq!(finished.refold_history(self::history_of(session_items(3))), *history);
}

#[tokio::test]
async fn reasoning_shortened_by_a_compaction_can_still_be_tombstoned() {
    let too_long = || Reply::error(Error::new(ErrorKind::ContextWindow, "too long"));
    let agent = test_agent(Scripted::new([too_long(), "Done.".into()])).with_compactor(
        turnstream::context::Truncator { keep_turns: 1, ..turnstream::context::Truncator::new() },
    );
    let mut items = session_items(3);
    items[1] = Item::reasoning("hm ".repeat(200));
    let mut run = agent.run_from(history_of(items), "go");
    pull_until(&mut run, is_turn_start(1)).await;
    run.tombstone([1]).unwrap();
    let finished = finish_run_from(Vec::new(), run).await;
    finished.check_outcome(EndReason::Completed, 2);
    assert_eq!(
        tombstone_positions(&finished.outcome.history),
        [1],
        "{:?}",
        finished.outcome.history
    );
}

#[tokio::test]
async fn of_two_equal_items_the_one_kept_by_a_compaction_is_not_tombstoned() {
    let too_long = || Reply::error(Error::new(ErrorKind::ContextWindow, "too long"));
    // Removes the first text, and keeps an equal text after it.
    let compactor = compactor_fn(|history: &History| {
        let summary = Item::user("in short").with_flag(ItemFlag::Compacted);
        Ok(Some(Compaction::new(0, 3, vec![summary, history.iter().nth(2).unwrap().clone()])))
    });
    let agent = test_agent(Scripted::new([too_long(), "Done.".into()])).with_compactor(compactor);
    let items = [Item::user("yes"), Item::text("What?"), Item::user("yes")];
    let mut run = agent.run_from(history_of(items), "go");
    pull_until(&mut run, is_turn_start(1)).await;
    run.tombstone([2]).unwrap();
    let finished = finish_run_from(Vec::new(), run).await;
    finished.check_outcome(EndReason::Completed, 2);
    assert_eq!(
        tombstone_positions(&finished.outcome.history),
        [1],
        "{:?}",
        finished.outcome.history
    );
}

#[tokio::test]
async fn dropped_signed_reasoning_does_not_prevent_other_tombstones() {
    let too_long = || Reply::error(Error::new(ErrorKind::ContextWindow, "too long"));
    let agent = test_agent(Scripted::new([too_long(), "Done.".into()])).with_compactor(
        turnstream::context::Truncator { keep_turns: 1, ..turnstream::context::Truncator::new() },
    );
    let data = turnstream::item::ProviderData {
        provider: "openai_responses".into(),
        model: "m".into(),
        value: serde_json::json!({ "type": "reasoning", "id": "rs_1" }).into(),
    };
    let mut items = session_items(3);
    for at in [1, 5] {
        items[at] = Item { provider_data: Some(Arc::new(data.clone())), ..Item::reasoning("") };
    }
    let mut run = agent.run_from(history_of(items), "go");
    pull_until(&mut run, is_turn_start(1)).await;
    run.tombstone([2, 13]).unwrap();
    let finished = finish_run_from(Vec::new(), run).await;
    finished.check_outcome(EndReason::Completed, 2);
    let history = &finished.outcome.history;
    let is_it = |at: &usize| history.iter().nth(*at).unwrap().kind == session_items(1)[2].kind;
    assert_eq!(
        tombstone_positions(history).iter().filter(|at| is_it(at)).count(),
        1,
        "{history:?}"
    );
    assert_eq!(tombstone_positions(history).len(), 2);
}

#[tokio::test]
async fn before_a_request_notes_then_tombstones_then_steered_input_are_applied() {
    let noting = hook::after_sampling(|_, _| async { vec![Item::user("note")] });
    let model = Scripted::new([reply_calling_t("c"), "So.".into(), "Done.".into()]);
    let mut run =
        test_agent(model.clone()).with_tools([uncounted_tool("t")]).with_hook(noting).run("go");
    let mut events = events_until(&mut run, |event| event.tool_output().is_some()).await;
    run.tombstone([0]).unwrap();
    run.steer("left").unwrap();
    run.steer("right").unwrap();
    run.follow_up("later").unwrap();
    events.extend(collect_rest(&mut run).await);
    let what: Vec<String> = events
        .iter()
        .filter_map(|event| match event {
            Event::Appended { why, items, .. } => {
                Some(format!("{why:?} {}", items[0].as_user().unwrap().text()))
            }
            event if is_tombstone_event(event) => Some("void".to_owned()),
            Event::TurnStarted { .. } => Some("asked".to_owned()),
            _ => None,
        })
        .collect();
    let expected = format!(
        "{:?} go, asked, Hook note, void, {steer:?} left, {steer:?} right, asked, Hook note, \
         {:?} later, asked",
        AppendReason::Input,
        AppendReason::FollowUp,
        steer = AppendReason::Steer,
    );
    assert_eq!(what.join(", "), expected);
}

#[tokio::test(start_paused = true)]
async fn a_wrap_up_turn_with_reserved_time_has_notes_and_no_tombstoned_items() {
    use std::time::Duration;
    use turnstream::agent::Budget;
    let noting = hook::after_sampling(|_, _| async { vec![Item::user("note")] });
    let budget = Budget::new()
        .with_time_limit(Duration::from_secs(10))
        .with_wrap_up_time(Duration::from_secs(4));
    let model = Scripted::new([
        turnstream_test_support::tools::reply_calling_nap(&[60_000]),
        "Done.".into(),
    ]);
    let mut run = test_agent(model.clone())
        .with_tools([turnstream_test_support::tools::nap_tool("nap")])
        .with_hook(noting)
        .with_budget(budget)
        .run("go");
    let events = events_until(&mut run, is_tool_started).await;
    run.tombstone([0]).unwrap();
    let finished = finish_run_from(events, run).await;
    finished.check_outcome(EndReason::Budget, 2);
    assert_eq!(tombstone_positions(&finished.outcome.history), [0]);
    let sent = &model.requests()[1].context;
    assert_eq!(tombstone_positions(sent), [0]);
    assert!(sent.iter().any(|item| item.as_user().is_some_and(|it| it.text() == "note")));
}

#[tokio::test]
async fn a_request_waiting_for_its_pool_is_rebuilt_without_tombstoned_items() {
    use turnstream::agent::{Budget, Pool};
    let pool = Pool::new(1_000_000).with_max_concurrency(NonZeroUsize::MIN);
    let model = Scripted::from_fn(|_, _| "Done.");
    let agent = test_agent(model.clone()).with_budget(Budget::new().with_pool(pool.clone()));
    let slot = pool.acquire_slot().await;
    let mut run = agent.run_from(history_of(session_items(1)), "go");
    let mut events = pull_ready(&mut run);
    assert_eq!(events.len(), 1, "{events:?}");
    run.tombstone([0]).unwrap();
    drop(slot);
    events.extend(collect_rest(&mut run).await);
    assert_eq!(tombstone_positions(&model.requests()[0].context), [0]);
}

/// Sends notes while a request waits for its pool; `meanwhile` changes the run during the wait.
async fn assert_notes_while_waiting(meanwhile: impl Fn(&Run), expected: &[&str]) {
    use turnstream::agent::{Budget, Pool};
    use turnstream::item::Content;
    let pool = Pool::new(1_000_000).with_max_concurrency(NonZeroUsize::MIN);
    let (give, note) = tokio::sync::oneshot::channel::<()>();
    let note = std::sync::Mutex::new(Some(note));
    let noting = hook::after_sampling(move |_, _| {
        let note = note.lock().unwrap().take();
        async move {
            match note {
                Some(note) => note.await.map(|()| vec![Item::user("note")]).unwrap_or_default(),
                None => Vec::new(),
            }
        }
    });
    let prepares = hook::prepare_request(|_, mut request: turnstream::Request| {
        request.system.volatile = format!("{} items", request.history.len());
        async { request }
    });
    let full = reply_calling_t("c").usage(token_usage(900, 10));
    let model = Scripted::new([full, "Done.".into()]);
    let agent = test_agent(model.clone())
        .with_tools([uncounted_tool("t")])
        .with_hook(noting)
        .with_hook(prepares)
        .with_window(Window::new(1_000))
        .with_compactor(compactor_fn(|_: &History| Err(Error::new(ErrorKind::Other, "no"))))
        .with_budget(Budget::new().with_pool(pool.clone()));
    let mut run = agent.run("go");
    pull_until(&mut run, |event| event.tool_output().is_some()).await;
    let slot = pool.acquire_slot().await;
    pull_ready(&mut run);
    meanwhile(&run);
    give.send(()).unwrap();
    pull_ready(&mut run);
    drop(slot);
    let finished = finish_run_from(Vec::new(), run).await;
    finished.check_outcome(EndReason::Completed, 2);
    let sent = &model.requests()[1];
    let said = sent.context.iter().filter(|item| !item.tombstone).filter_map(Item::as_user);
    assert_eq!(said.map(Content::text).collect::<Vec<_>>(), expected);
    let items = format!("{} items", sent.context.len());
    assert_eq!(sent.system.volatile, items);
}

#[tokio::test]
async fn notes_that_arrive_while_a_request_waits_are_sent_if_it_is_rebuilt() {
    assert_notes_while_waiting(|_| {}, &["go"]).await;
    assert_notes_while_waiting(|run| run.tombstone([0]).unwrap(), &["note"]).await;
    assert_notes_while_waiting(|run| drop(run.steer("left").unwrap()), &["go", "note", "left"])
        .await;
}

#[tokio::test]
async fn with_a_body_that_delivers_no_input_tombstones_are_applied_at_the_end() {
    let body = |cx: RunContext, state| {
        // Like the agent's body, except that it starts with the request.
        async_stream::try_stream! {
            let (state, request) = cx.next_request(state).await?;
            let request = request.unwrap();
            yield turnstream::Step::Value(cx.turn_started_event(&state));
            let mut events = cx.send_request(&state, request);
            while let Some(event) = events.next().await {
                yield turnstream::Step::Value(event?.into());
            }
            yield turnstream::Step::StopWith(state.with_end_reason(EndReason::Completed));
        }
    };
    let agent = turnstream::Agent::new(Scripted::new(["Done."]));
    let run = agent.run_with_body(body, history_of(session_items(1)), "go");
    run.tombstone([0]).unwrap();
    assert_eq!(tombstone_positions(&run.outcome().await.history), [0]);
}

// ---- Readers of a history

#[tokio::test]
async fn tombstones_that_free_enough_tokens_avoid_a_compaction() {
    let full = reply_calling_t("c").usage(token_usage(900, 10));
    let asks = async |tombstones: bool| {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let agent = test_agent(Scripted::new([full.clone(), "Done.".into()]))
            .with_tools([uncounted_tool("t")])
            .with_window(Window::new(1_000))
            .with_compactor(compactor_fn(move |_: &History| {
                counter.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }));
        let mut run = agent.run_from(history_of([Item::user("x".repeat(400))]), "go");
        pull_until(&mut run, is_tool_started).await;
        if tombstones {
            run.tombstone([0]).unwrap();
        }
        finish_run_from(Vec::new(), run).await.check_outcome(EndReason::Completed, 2);
        asked.load(Ordering::Relaxed)
    };
    assert_eq!((asks(false).await, asks(true).await), (1, 0));
}

#[test]
fn a_tombstoned_prompt_is_not_the_last_prompt() {
    let void = || Item::user("void").with_flag(ItemFlag::Tombstone);
    let items = [
        Item::user("Hi"),
        Item::text("Hello!"),
        Item::user("Do it"),
        void(),
        Item::user("now"),
        Item::text("No."),
        void(),
    ];
    assert_eq!(history_of(items).before_last_prompt().len(), 2);
    assert_eq!(history_of([void(), Item::text("x")]).before_last_prompt().len(), 2);
}

#[test]
fn the_step_summary_of_injected_context_omits_tombstoned_calls() {
    let mut history = history_of(session_items(3));
    for tombstones in history.tombstone_edits([3]).unwrap() {
        tombstones.apply(&mut history);
    }
    let mut injector = ContextInjector::new(10_000, |_: &History| Vec::new());
    injector.max_turns = Some(1);
    let injected = injector.inject(&history);
    let text = injected.context.last().unwrap().as_user().unwrap().text();
    assert!(!text.contains("{\"n\":0}") && text.contains("{\"n\":1}"), "{text}");
}

#[test]
fn token_counts_exclude_tombstoned_items() {
    let mut history = history_of(session_items(1));
    let before = count_tokens(&history, &BytesDiv4);
    let journal = Journal::new(history.clone());
    for TombstoneEdit { from, to, items } in history.tombstone_edits([4]).unwrap() {
        let (why, items_now, usage) = (RewriteReason::Tombstoned, items.clone(), Box::default());
        let rewritten = Event::Rewritten { why, from, to, items: items_now, usage, model: None };
        journal.observe(&rewritten);
        TombstoneEdit { from, to, items }.apply(&mut history);
    }
    assert_eq!(journal.history(), history);
    assert!(count_tokens(&history, &BytesDiv4) < before / 2);
}

#[tokio::test]
async fn a_page_that_shows_tombstones_is_told_why_the_history_was_rewritten() {
    let history = History::from_items("h", [Item::user("My key is 1234."), Item::text("Oh.")]);
    let run = Agent::new(Scripted::new(["Bye."])).run_from(history, "More");
    run.tombstone([0]).unwrap();
    let body: Vec<_> = AiSdk::default().respond(run).body.try_collect().await.unwrap();
    let body = String::from_utf8(body.concat()).unwrap();
    let parts = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let parts = parts.filter_map(|part| serde_json::from_str::<serde_json::Value>(part).ok());
    let rewritten: Vec<_> = parts.filter(|part| part["type"] == "data-compacted").collect();
    let [part] = &rewritten[..] else { panic!("{body}") };
    assert_eq!(part["data"], serde_json::json!({ "why": "tombstoned", "from": 0, "to": 1 }));
}
