//! The fold of a run's events: sub-agents, evidence, calls that are pending.

use futures::executor::block_on;
use futures::{StreamExt, stream};
use turnstream::env::CountingIds;
use turnstream::event::{
    AppendReason, EndReason, InterruptedPhase, Outcome, RewriteReason, ToolEvent, Transition,
};
use turnstream::item::{EffectReport, ItemFlag, RawJson, ResultKind, ToolCall, ToolResult};
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::tool::Tool;
use turnstream::{
    Agent, Error, ErrorKind, Event, EventStreamExt, History, Item, Journal, Request, TurnEvent,
    Usage,
};

use turnstream_test_support::runs::collect_rest;
use turnstream_test_support::tools::spec;

fn input_usage(input_tokens: u64) -> Usage {
    Usage { input_tokens, ..Usage::default() }
}

/// The events of a turn that calls `t` once for each id, and uses `input_tokens`.
fn tool_turn_events(ids: &[&str], input_tokens: u64) -> Vec<Event> {
    let reply = Reply::new().say("so").usage(input_usage(input_tokens));
    let reply = ids.iter().fold(reply, |reply, id| reply.call_raw(id, "t", "{}"));
    let turn = Scripted::new([reply]).stream_turn(Request::new(History::empty("h")));
    block_on(turn.map(|event| Event::from(event.unwrap())).collect())
}

fn tool_result(call_id: &str, proof: &str) -> ToolResult {
    let call = tool_call(call_id, "{}");
    let evidence = vec![RawJson::new(&proof).unwrap()];
    let report = EffectReport { evidence, ..EffectReport::default() };
    ToolResult::for_call(&call, ResultKind::Ok, "real").with_report(report)
}

fn tool_call(call_id: &str, arguments: &str) -> ToolCall {
    ToolCall { call_id: call_id.into(), name: "t".into(), arguments: arguments.into() }
}

fn output_event(call_id: &str, proof: &str) -> Event {
    ToolEvent::Output(tool_result(call_id, proof)).into()
}

fn started_event(call_id: &str) -> Event {
    let (call_id, name, arguments) = (call_id.into(), "t".into(), "{}".into());
    ToolEvent::Started { call_id, name, arguments, grant_id: None }.into()
}

fn approval_requested_event(call_id: &str, arguments: &str) -> Event {
    ToolEvent::ApprovalRequested(Box::new(tool_call(call_id, arguments).into())).into()
}

fn input_event(text: &str) -> Event {
    let (why, items) = (AppendReason::Input, vec![Item::user(text)]);
    Event::Appended { why, id: "i".into(), items }
}

fn nested_event(call_id: &str, event: Event) -> Event {
    Event::Nested { call_id: call_id.into(), name: "t".into(), event: Box::new(event) }
}

/// Folds the events, and the same events after a round trip through JSON.
#[track_caller]
fn fold_events(history: &History, events: &[Event]) -> Journal {
    let (journal, read) = (Journal::new(history.clone()), Journal::new(history.clone()));
    for event in events {
        journal.observe(event);
        let line = serde_json::to_string(event).unwrap();
        read.observe(&serde_json::from_str(&line).unwrap());
        assert_same_journal(&journal, &read);
    }
    assert!(journal.history().settled().is_settled());
    journal
}

#[track_caller]
fn assert_same_journal(a: &Journal, b: &Journal) {
    assert_eq!(a.history(), b.history());
    assert_eq!((a.phase(), a.has_open_turn()), (b.phase(), b.has_open_turn()));
    for reason in [EndReason::Pending, EndReason::Stopped] {
        assert_eq!(a.outcome(reason, None), b.outcome(reason, None));
    }
    assert_eq!(a.nested_call_ids(), b.nested_call_ids());
    for id in a.nested_call_ids() {
        assert_same_journal(&a.nested_journal(&id).unwrap(), &b.nested_journal(&id).unwrap());
    }
}

fn empty_history() -> History {
    History::empty("h")
}

fn evidence_texts(outcome: &Outcome) -> Vec<&str> {
    outcome.evidence.iter().map(|json| json.as_str().trim_matches('"')).collect()
}

#[test]
fn a_sub_agents_events_fold_into_its_own_history_only() {
    let before =
        [vec![input_event("go")], tool_turn_events(&["a"], 10), vec![started_event("a")]].concat();
    let child = [
        vec![input_event("read")],
        tool_turn_events(&["a"], 100),
        vec![started_event("a"), output_event("a", "child's")],
        tool_turn_events(&[], 200),
        vec![Event::Continued { reason: Transition::NextTurn }],
    ];
    let events: Vec<_> = before
        .iter()
        .cloned()
        .chain(child.concat().into_iter().map(|e| nested_event("a", e)))
        .collect();

    let (alone, journal) =
        (fold_events(&empty_history(), &before), fold_events(&empty_history(), &events));
    assert_eq!(journal.history(), alone.history());
    assert_eq!((journal.usage(), journal.phase()), (input_usage(10), InterruptedPhase::Tools));
    assert!(journal.outcome(EndReason::Stopped, None).evidence.is_empty());
    assert_eq!(journal.nested_usage(), input_usage(300));
    assert_eq!(*journal.outcome(EndReason::Stopped, None).nested_usage, input_usage(300));

    let child = journal.nested_journal("a").unwrap();
    assert_eq!((child.history().id(), child.history().len()), ("h/a", 5));
    assert!(child.history().unanswered_calls().is_empty());
    assert_eq!(journal.nested_call_ids(), ["a"]);
    assert!(journal.nested_journal("b").is_none());
}

#[test]
fn a_sub_agents_ending_is_not_its_parents() {
    let child = block_on(Agent::new(Scripted::new(["hi"])).run("go").outcome());
    let half = tool_turn_events(&["a"], 1)[..1].to_vec();
    let events = [half, vec![nested_event("a", Event::Finished(Box::new(child)))]].concat();
    let journal = fold_events(&empty_history(), &events);
    assert!(journal.has_open_turn());
}

#[test]
fn nested_sub_agents_are_found_in_the_journal_of_their_parent() {
    let deep = |event| nested_event("a", nested_event("b", nested_event("c", event)));
    let events: Vec<_> = tool_turn_events(&[], 7).into_iter().map(deep).collect();
    let more: Vec<_> =
        tool_turn_events(&[], 3).into_iter().map(|event| nested_event("a", event)).collect();
    let journal = fold_events(&empty_history(), &[events, more].concat());
    let child = journal.nested_journal("a").unwrap();
    let deepest = child.nested_journal("b").unwrap().nested_journal("c").unwrap();
    assert_eq!((deepest.history().id(), deepest.history().len()), ("h/a/b/c", 1));
    assert_eq!((child.usage(), child.nested_usage()), (input_usage(3), input_usage(7)));
    assert_eq!((journal.usage(), journal.nested_usage()), (input_usage(0), input_usage(10)));
}

#[test]
fn parallel_sub_agents_are_distinguished_in_order_of_their_first_events() {
    let (b, a) = (tool_turn_events(&[], 1), tool_turn_events(&[], 2));
    let both = b.into_iter().zip(a).flat_map(|(b, a)| [nested_event("b", b), nested_event("a", a)]);
    let journal = fold_events(&empty_history(), &both.collect::<Vec<_>>());
    assert_eq!(journal.nested_call_ids(), ["b", "a"]);
    assert_eq!(journal.nested_journal("a").unwrap().usage(), input_usage(2));
}

#[test]
fn an_unfinished_sub_agent_is_shown_as_interrupted() {
    let journal = Journal::new(empty_history());
    for event in tool_turn_events(&["x"], 1).into_iter().take(1) {
        journal.observe(&nested_event("a", event));
    }
    let child = journal.nested_journal("a").unwrap();
    assert!(child.has_open_turn());
    assert!(child.history().last().unwrap().interrupted);
    drop(journal);
    assert!(child.history().settled().is_settled());
}

#[test]
fn nested_events_between_tool_events_are_folded_the_same() {
    let (call_id, name, event) = ("a".to_owned(), "t".to_owned(), Box::new(input_event("go")));
    let tool = Event::Tool(ToolEvent::Nested { call_id, name, event });
    let journal = fold_events(&empty_history(), &[tool]);
    assert_eq!(journal.nested_journal("a").unwrap().history().len(), 1);
}

#[test]
fn an_unknown_nested_event_creates_no_sub_agent_journal() {
    let journal = Journal::new(empty_history());
    journal.observe(&nested_event("a", nested_event("b", Event::Unknown)));
    assert!(journal.nested_call_ids().is_empty());
}

#[test]
fn evidence_is_collected_in_call_order() {
    let batch =
        [tool_turn_events(&["a", "b"], 1), vec![output_event("b", "2"), output_event("a", "1")]]
            .concat();
    let next = [tool_turn_events(&["c", "d"], 1), vec![output_event("d", "4")]].concat();
    let journal = fold_events(&empty_history(), &[batch, next].concat());
    assert_eq!(evidence_texts(&journal.outcome(EndReason::Stopped, None)), ["1", "2", "4"]);
    journal.observe(&output_event("c", "3"));
    assert_eq!(evidence_texts(&journal.outcome(EndReason::Stopped, None)), ["1", "2", "3", "4"]);
    journal.observe(&output_event("c", "twice"));
    journal.observe(&output_event("stray", "nobody asked"));
    assert_eq!(journal.outcome(EndReason::Stopped, None).evidence.len(), 4);
}

#[test]
fn evidence_survives_a_compaction() {
    let events = [tool_turn_events(&["a"], 1), vec![output_event("a", "1")]].concat();
    let journal = fold_events(&empty_history(), &events);
    let (why, items) = (RewriteReason::Compacted, vec![Item::user("short")]);
    let usage = Box::default();
    journal.observe(&Event::Rewritten { why, from: 0, to: 3, items, usage, model: None });
    assert_eq!(journal.history().len(), 1);
    assert_eq!(evidence_texts(&journal.outcome(EndReason::Stopped, None)), ["1"]);
}

#[test]
fn new_items_are_unaffected_by_later_replacements_and_marks() {
    let known = History::from_items("h", [Item::user("known")]);
    let journal = fold_events(
        &known,
        &[vec![input_event("go")], tool_turn_events(&["a"], 1), vec![output_event("a", "1")]]
            .concat(),
    );
    let first = journal.new_items();
    assert_eq!(first.len(), 4, "the input, the words, the call, its result");
    let rewritten = |why, from, to, items| {
        let usage = Box::default();
        journal.observe(&Event::Rewritten { why, from, to, items, usage, model: None });
    };
    rewritten(RewriteReason::Compacted, 0, 2, vec![Item::user("in short")]);
    assert_eq!(journal.new_items(), first, "a note is not something that was appended");
    let words = journal.history().iter().nth(1).unwrap().clone();
    rewritten(RewriteReason::Tombstoned, 1, 2, vec![words.with_flag(ItemFlag::Tombstone)]);
    assert_eq!(journal.new_items(), first, "nor is a mark");
    journal.observe(&TurnEvent::TextDelta { index: 0, text: "ha".into() }.into());
    let why = "it broke off".to_owned();
    journal.observe(&TurnEvent::Retracted { why, usage: Usage::default().into() }.into());
    journal.observe(&input_event("and then?"));
    assert_eq!(journal.new_items(), [first, vec![Item::user("and then?")]].concat());
    rewritten(RewriteReason::Compacted, 0, journal.history().len(), Vec::new());
    assert_eq!(journal.new_items().len(), 5);
    assert!(journal.history().is_empty());
}

#[test]
fn evidence_of_calls_open_before_the_run_counts_for_this_run_only() {
    let before = fold_events(
        &empty_history(),
        &[tool_turn_events(&["a", "b"], 1), vec![output_event("a", "old")]].concat(),
    );
    let journal = fold_events(&before.history(), &[output_event("b", "new")]);
    assert_eq!(evidence_texts(&journal.outcome(EndReason::Completed, None)), ["new"]);
    assert!(journal.history().is_settled());
}

#[test]
fn an_appended_result_answers_its_call() {
    let journal = fold_events(&empty_history(), &tool_turn_events(&["a", "b"], 1));
    let (why, items) = (AppendReason::Input, vec![Item::tool_result(tool_result("a", "1"))]);
    journal.observe(&Event::Appended { why, id: "i".into(), items });
    let pending = journal.outcome(EndReason::Pending, None);
    assert_eq!(pending.pending, [tool_call("b", "{}").into()]);
    assert_eq!(evidence_texts(&pending), ["1"]);
}

#[test]
fn pending_calls_stay_open_with_the_arguments_that_were_shown() {
    let events = [
        tool_turn_events(&["a", "b", "c"], 1),
        vec![approval_requested_event("b", r#"{"dry":true}"#)],
    ]
    .concat();
    let journal = fold_events(
        &empty_history(),
        &[events, vec![started_event("a"), output_event("a", "1")]].concat(),
    );
    let outcome = journal.outcome(EndReason::Pending, None);
    assert_eq!(
        outcome.pending,
        [tool_call("b", r#"{"dry":true}"#).into(), tool_call("c", "{}").into()]
    );
    assert!(journal.outcome(EndReason::Stopped, None).pending.is_empty());

    // The end changes nothing: the calls are pending until the history is settled.
    journal.observe(&Event::Finished(Box::new(outcome)));
    let history = journal.history();
    assert_eq!(history.unanswered_calls(), [tool_call("b", "{}"), tool_call("c", "{}")]);
    let settled = history.settled();
    assert!(settled.is_settled());
    let kinds = settled.iter().filter_map(|item| Some(item.as_tool_result()?.kind));
    assert!(kinds.eq([ResultKind::Ok, ResultKind::Interrupted, ResultKind::Interrupted]));

    // Their results may still arrive, in this journal or in a new one with the same history.
    for journal in [journal, Journal::new(history)] {
        journal.observe(&output_event("c", "3"));
        journal.observe(&output_event("b", "2"));
        assert!(journal.history().is_settled());
    }
}

/// The end of a hand-written loop with these events: its outcome, and the texts of all results.
fn finished_outcome(events: Vec<Result<Event, Error>>) -> (Outcome, Vec<String>) {
    let journal = Journal::new(empty_history());
    let loops = stream::iter(events).journal_to(&journal).finish_with(&journal);
    let told = block_on(collect_rest(&mut std::pin::pin!(loops)));
    let outcome = told.last().and_then(Event::outcome).unwrap().clone();
    assert!(journal.history().is_settled());
    let results = outcome.new_items().iter().filter_map(Item::as_tool_result);
    let texts = results.map(|result| result.content.text()).collect();
    (outcome, texts)
}

#[test]
fn a_hand_written_loop_that_leaves_calls_pending_is_stopped_and_answers_them() {
    let events = [
        tool_turn_events(&["a", "b", "c"], 1),
        vec![approval_requested_event("a", "{}"), started_event("b")],
    ]
    .concat();
    let (outcome, texts) = finished_outcome(events.iter().cloned().map(Ok).collect());
    assert_eq!(outcome.reason, EndReason::Stopped);
    assert!(outcome.pending.is_empty());
    let waited = "Interrupted by user";
    assert_eq!(texts, [waited, "Interrupted mid-execution", waited]);

    let failed = Error::new(ErrorKind::Other, "no more");
    let (outcome, failed_texts) =
        finished_outcome(events.into_iter().map(Ok).chain([Err(failed)]).collect());
    assert_eq!((outcome.reason, failed_texts), (EndReason::ProviderError, texts));
}

#[test]
fn a_dropped_or_interrupted_run_keeps_its_sub_agents_output() {
    let agent = || {
        let child = Agent::new(Scripted::new([Reply::text("one two three").usage(input_usage(5))]));
        let tool = Tool::raw(spec("child"), move |_, _| {
            let updates = child.run("read").map(|event| {
                turnstream::tool::ToolUpdate::NestedEvent(Box::new(
                    event.expect("a run gives no error"),
                ))
            });
            std::future::ready(updates.boxed())
        })
        .unwrap();
        let model = Scripted::new([Reply::new().call_raw("c", "child", "{}")]);
        Agent::new(model).with_tools([tool]).with_ids(CountingIds::new("id"))
    };
    let words = |journal: &Journal| {
        let child = journal.nested_journal("c").expect("it has begun").history();
        assert!(child.settled().is_settled());
        child.last().and_then(Item::as_text).map(str::to_owned)
    };
    let half = async |dropped: bool| {
        let mut run = agent().run_from(empty_history(), "go");
        let journal = run.journal().clone();
        while let Some(event) = run.next().await {
            if let Event::Nested { event, .. } = event.unwrap()
                && event.text_delta().is_some()
            {
                break;
            }
        }
        match dropped {
            true => drop(run),
            false => {
                run.interrupt();
                let outcome = run.outcome().await;
                assert_eq!(outcome.reason, EndReason::Interrupted(InterruptedPhase::Tools));
                assert_eq!(*outcome.nested_usage, journal.nested_usage());
            }
        }
        words(&journal)
    };
    for dropped in [true, false] {
        let words = block_on(half(dropped)).expect("a word");
        assert!("one two three".starts_with(&words), "{words}");
    }

    let outcome = block_on(agent().run_from(empty_history(), "go").outcome());
    assert_eq!(*outcome.nested_usage, input_usage(5));
    assert_eq!(outcome.usage, input_usage(0));
}

#[test]
fn a_retry_event_opens_no_turn_and_has_no_usage() {
    let report = Event::from(TurnEvent::Retrying {
        attempt: 1,
        delay_ms: 3000,
        error: Error::new(ErrorKind::RateLimited, "slow down").into(),
    });
    let journal = Journal::new(History::empty("h"));
    journal.observe(&input_event("go"));
    let before = (journal.history(), journal.usage(), journal.phase());
    journal.observe(&report);
    assert!(!journal.has_open_turn());
    assert_eq!((journal.history(), journal.usage(), journal.phase()), before);

    // It does not complete the results of the previous turn either.
    for event in tool_turn_events(&["a", "b"], 5).iter().chain([
        &output_event("a", "1"),
        &report,
        &output_event("b", "2"),
    ]) {
        journal.observe(event);
    }
    assert!(journal.history().unanswered_calls().is_empty() && !journal.has_open_turn());
    assert_eq!(journal.history().iter().filter_map(Item::as_tool_result).count(), 2);
}

#[test]
fn the_phase_is_tools_from_the_first_tool_until_the_next_request() {
    use InterruptedPhase::{Streaming, Tools};

    let started_turn = || Event::TurnStarted { turn: 1, model: "m".into(), transition: None };
    let retracted =
        || Event::from(TurnEvent::Retracted { why: "broken".into(), usage: input_usage(1).into() });
    let steered = || Event::Appended {
        why: AppendReason::Steer,
        id: "s".into(),
        items: vec![Item::user("by the way")],
    };
    let compacted = || Event::Rewritten {
        why: RewriteReason::Compacted,
        from: 0,
        to: 1,
        items: vec![Item::user("in short")],
        usage: Box::new(input_usage(0)),
        model: None,
    };
    let interrupted = |call_id| {
        let call = tool_call(call_id, "{}");
        ToolEvent::Output(ToolResult::for_call(&call, ResultKind::Interrupted, "no")).into()
    };
    let half = tool_turn_events(&["a"], 1)[..1].to_vec();

    let check = |claim: &str, events: &[&[Event]], expected: InterruptedPhase| {
        assert_eq!(fold_events(&empty_history(), &events.concat()).phase(), expected, "{claim}");
    };
    let turn = [vec![input_event("go"), started_turn()], tool_turn_events(&["a", "b"], 1)].concat();
    let ran =
        [turn.clone(), vec![started_event("a"), output_event("a", "1"), output_event("b", "2")]]
            .concat();
    check("nothing has happened", &[], Streaming);
    check("the input is appended and nothing is asked", &[&[input_event("go")]], Streaming);
    check("the request is begun", &[&[input_event("go"), started_turn()]], Streaming);
    check("the turn streams", &[&[input_event("go"), started_turn()], &half], Streaming);
    check("the turn is complete, its tools have not begun", &[&turn], Streaming);
    check("a call was interrupted before it began", &[&turn, &[interrupted("a")]], Streaming);
    check("a call waits for an approval", &[&turn, &[approval_requested_event("a", "{}")]], Tools);
    check("a tool runs", &[&turn, &[started_event("a")]], Tools);
    check("a call was answered without running", &[&turn, &[output_event("a", "1")]], Tools);
    check("all results are in and nothing is sent", &[&ran], Tools);
    check("something is steered then", &[&ran, &[steered()]], Tools);
    check("the history is compacted then", &[&ran, &[compacted()]], Tools);
    check("the next request is begun", &[&ran, &[started_turn()]], Streaming);
    check("a loop announces no request", &[&ran, &half], Streaming);
    check("the attempt is retracted", &[&ran, &[started_turn()], &half, &[retracted()]], Streaming);
    check(
        "a turn without calls, and more input",
        &[&tool_turn_events(&[], 1), &[steered()]],
        Streaming,
    );

    let open = fold_events(&empty_history(), &turn).history();
    check_phase_from(&open, &[], Tools);
    check_phase_from(&open, &[output_event("a", "1"), output_event("b", "2")], Tools);
    check_phase_from(
        &open,
        &[output_event("a", "1"), output_event("b", "2"), started_turn()],
        Streaming,
    );
    check_phase_from(&fold_events(&empty_history(), &ran).history(), &[], Streaming);
}

/// Checks the phase of a run that starts with a history.
#[track_caller]
fn check_phase_from(history: &History, events: &[Event], expected: InterruptedPhase) {
    assert_eq!(fold_events(history, events).phase(), expected, "{events:?}");
}
