//! What an interrupt, a stop and a drop leave behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use turnstream::agent::State;
use turnstream::agent::hook::{self, Answer, BeforeTool, Hook, OnStop};
use turnstream::context::{Compaction, Compactor};
use turnstream::env::CountingIds;
use turnstream::event::{AppendedWhy, Phase, Reason};
use turnstream::item::{ResultKind, SideEffect, ToolCall, ToolResult};
use turnstream::provider::{Reply, Retry, Scripted};
use turnstream::testing::Wire;
use turnstream::tool::{Tool, Update, Verdict};
use turnstream::turn::Turn;
use turnstream::{
    Agent, Error, ErrorKind, Event, History, Item, Outcome, Request, Run, RunHandle, Usage,
};

use crate::kit::{
    Bodies, Counter, answers, calls, chat, check, encoded, ending, endless, fine, frame,
    is_started, kinds, pull, rest, results, sendable, spec, tool, types, until,
};

const STREAMING: Reason = Reason::Interrupted(Phase::Streaming);
const TOOLS: Reason = Reason::Interrupted(Phase::Tools);

fn agent(replies: impl IntoIterator<Item = Reply>, tools: Vec<Tool>) -> (Agent, Scripted) {
    let model = Scripted::new(replies);
    let agent = Agent::new(model.clone()).with_tools(tools).with_ids(CountingIds::new("id"));
    (agent, model)
}

fn call(id: &str, name: &str) -> Reply {
    Reply::new().call_raw(id, name, "{}")
}

// H01: an interrupt in the middle of a call's arguments.

/// A run that was interrupted when `{"path":"/a` had streamed.
async fn cut_in_a_call() -> (Outcome, History, usize) {
    let counter = Counter::default();
    let half = Reply::text("Let me look.").call_unfinished("c1", "read", r#"{"path":"/a"#).hang();
    let (agent, _) = agent([half], vec![fine("read", &counter)]);
    let mut run = agent.run("go");
    pull(&mut run);
    run.interrupt();
    let handle = run.handle();
    (run.outcome().await, handle.history(), counter.began())
}

#[tokio::test]
async fn h01_a_call_that_was_cut_off_never_runs_and_is_kept_raw_and_marked() {
    let (outcome, history, ran) = cut_in_a_call().await;
    check(&outcome, STREAMING, 1);
    assert_eq!(ran, 0);
    let [input, text, call] = &outcome.new_items[..] else { panic!("{:?}", outcome.new_items) };
    assert_eq!((text.as_text(), text.interrupted), (Some("Let me look."), true));
    let cut = call.as_tool_call().unwrap();
    assert_eq!((&*cut.call_id, &*cut.arguments, call.interrupted), ("c1", r#"{"path":"/a"#, true));
    assert!(!input.interrupted);
    assert_eq!(history.len(), 3);
    assert_eq!(outcome.text, "Let me look.");
}

#[tokio::test]
async fn h01_the_next_request_has_no_half_call_and_the_same_bytes_each_time() {
    let (_, mut history, _) = cut_in_a_call().await;
    history.push(Item::user("and now?"));
    for wire in Wire::ALL {
        let body = sendable(wire, &history).to_string();
        assert!(body.contains("and now?") && !body.contains("c1"), "{wire:?}: {body}");
        assert!(!body.contains("/a"), "{wire:?}: {body}");
        assert_eq!(encoded(wire, &history), encoded(wire, &history));
        assert_eq!(encoded(wire, &history), encoded(wire, &history.settled()));
    }
    assert_eq!(history.settled().settled(), history.settled());
}

#[tokio::test]
async fn h01_the_run_that_goes_on_is_sent_a_lawful_history() {
    let (_, history, _) = cut_in_a_call().await;
    let (agent, model) = agent(["done".into()], vec![]);
    check(&agent.run_from(history, "and now?").outcome().await, Reason::Completed, 1);
    let sent = &model.requests()[0].history;
    assert!(sent.is_lawful());
    assert_eq!((calls(sent).len(), results(sent).len()), (0, 0));
}

#[tokio::test]
async fn h01_a_whole_call_of_a_turn_that_did_not_end_never_runs() {
    let counter = Counter::default();
    for reply in [call("c1", "t").say("and").hang(), call("c1", "t").say("and").cut()] {
        let (agent, _) = agent([reply], vec![fine("t", &counter)]);
        let mut run = agent.run("go");
        pull(&mut run);
        run.interrupt();
        let history = run.history();
        assert!(calls(&history).len() == 1 && calls(&history.settled()).is_empty());
        for wire in Wire::ALL {
            assert!(!sendable(wire, &history).to_string().contains("c1"), "{wire:?}");
        }
    }
    assert_eq!(counter.began(), 0);
}

// H02: an interrupt behind a whole call, before it starts.

#[tokio::test]
async fn h02_a_call_that_had_not_started_never_does_and_is_answered() {
    let counter = Counter::default();
    let (agent, model) = agent([call("c1", "t"), "never".into()], vec![fine("t", &counter)]);
    let mut run = agent.run("go");
    until(&mut run, |event| event.turn_complete().is_some()).await;
    run.interrupt();
    let outcome = run.outcome().await;
    check(&outcome, TOOLS, 1);
    assert_eq!((counter.began(), model.requests().len()), (0, 1));
    let asked = outcome.new_items.iter().find(|item| item.as_tool_call().is_some()).unwrap();
    assert!(!asked.interrupted, "its turn is complete");
    let expected = ("c1", ResultKind::Interrupted, "Interrupted by user".to_owned());
    assert_eq!(answers(&outcome.new_items), [expected]);
}

#[tokio::test]
async fn h02_a_drop_leaves_the_call_open_and_the_next_request_answers_it() {
    let counter = Counter::default();
    let (agent, _) = agent([call("c1", "t")], vec![fine("t", &counter)]);
    let mut run = agent.run("go");
    until(&mut run, |event| event.turn_complete().is_some()).await;
    let handle = run.handle();
    drop(run);
    let mut history = handle.history();
    assert_eq!((counter.began(), calls(&history).len(), results(&history).len()), (0, 1, 0));
    assert_eq!(kinds(&history.settled()), [ResultKind::Interrupted]);
    history.push(Item::user("and now?"));
    for wire in Wire::ALL {
        assert!(sendable(wire, &history).to_string().contains("Interrupted"));
    }
}

// H03: an interrupt while tools run, one of two finished.

fn one_of_two() -> (Run, Scripted, Counter) {
    let counter = Counter::default();
    let reply = call("c1", "endless").call_raw("c2", "t", "{}");
    let tools = vec![endless("endless", &counter), fine("t", &Counter::default())];
    let (agent, model) = agent([reply, "never".into()], tools);
    let mut run = agent.run("go");
    let events = pull(&mut run);
    assert_eq!(events.iter().filter_map(Event::tool_output).count(), 1);
    (run, model, counter)
}

#[tokio::test]
async fn h03_the_finished_result_is_kept_and_the_other_is_interrupted_in_call_order() {
    let (run, _, _) = one_of_two();
    run.interrupt();
    let handle = run.handle();
    let outcome = run.outcome().await;
    check(&outcome, TOOLS, 1);
    assert!(outcome.partial);
    let expected = [
        ("c1", ResultKind::Interrupted, "Interrupted mid-execution".to_owned()),
        ("c2", ResultKind::Ok, "fine".to_owned()),
    ];
    assert_eq!(answers(&outcome.new_items), expected);
    assert!(handle.history().is_lawful());
    assert_eq!(handle.history().settled(), handle.history());
}

#[tokio::test]
async fn h03_no_further_request_is_sent() {
    let (mut run, model, _) = one_of_two();
    run.interrupt();
    rest(&mut run).await;
    assert!(run.next().await.is_none());
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn h03_the_unfinished_tool_is_gone_before_anything_more_is_seen() {
    let (mut run, _, counter) = one_of_two();
    assert_eq!(counter.now(), 1);
    run.interrupt();
    let next = run.next().await.unwrap().unwrap();
    assert!(next.tool_output().is_some(), "the answer comes before the end");
    assert_eq!(counter.now(), 0);
    assert!(run.next().await.unwrap().unwrap().finished().is_some());
}

#[tokio::test(start_paused = true)]
async fn h03_what_an_unfinished_tool_has_put_on_record_is_kept() {
    for by_hook in [false, true] {
        let edit = Tool::raw(spec("edit"), |_, cx| async move {
            cx.changed("notes");
            cx.evidence("a diff");
            std::future::pending::<String>().await
        });
        let reply = call("c1", "edit").call_raw("c2", "t", "{}");
        let tools = vec![edit.unwrap(), endless("t", &Counter::default())];
        // A failing hook drops what runs, too.
        let agent =
            agent([reply], tools).0.with_hook(hook::before_tool(move |_, call| async move {
                sleep(Duration::from_secs(u64::from(call.name == "t"))).await;
                assert!(!by_hook || call.name != "t");
                BeforeTool::Run
            }));
        let mut run = agent.run("go");
        pull(&mut run);
        if !by_hook {
            run.interrupt();
        }
        let outcome = run.outcome().await;
        let results = results(&outcome.new_items);
        let report = results[0].report.as_deref().unwrap();
        assert_eq!(report.side_effects, [SideEffect::changed("notes")]);
        assert_eq!((outcome.evidence.len(), &results[1].report), (1, &None));
    }
}

// H04: an interrupt before the first poll.

#[tokio::test]
async fn h04_an_interrupt_before_the_first_poll_sends_nothing_and_runs_nothing() {
    let counter = Counter::default();
    let (agent, model) = agent([call("c1", "t")], vec![fine("t", &counter)]);
    let mut run = agent.run("go");
    run.interrupt();
    let events = rest(&mut run).await;
    assert!(matches!(&events[0], Event::Appended { why: AppendedWhy::Input, .. }));
    assert_eq!(types(&events), ["appended", "finished"]);
    check(ending(&events), STREAMING, 0);
    assert_eq!(ending(&events).new_items, [Item::user("go")]);
    assert_eq!((model.requests().len(), counter.began()), (0, 0));
}

#[tokio::test]
async fn h04_a_resumed_run_that_is_interrupted_first_runs_no_pending_call() {
    let counter = Counter::default();
    let (agent, model) = agent([call("c1", "t")], vec![fine("t", &counter).needs_approval()]);
    let run = agent.run("go");
    let handle = run.handle();
    let pending = run.outcome().await.pending;
    let verdicts = pending.into_iter().map(|call| (call, Verdict::Approve));
    let mut run = agent.resume(handle.history(), verdicts).unwrap();
    run.interrupt();
    let events = rest(&mut run).await;
    check(ending(&events), TOOLS, 0);
    assert_eq!(kinds(&ending(&events).new_items), [ResultKind::Interrupted]);
    assert_eq!((model.requests().len(), counter.began()), (1, 0));
}

// H05: an interrupt twice, and one too late.

#[tokio::test]
async fn h05_to_interrupt_twice_is_to_interrupt_once() {
    let (mut run, model, counter) = one_of_two();
    let handle = run.handle();
    run.interrupt();
    run.interrupt();
    let mut events = vec![run.next().await.unwrap().unwrap()];
    handle.interrupt();
    events.extend(rest(&mut run).await);
    handle.interrupt();
    assert!(run.next().await.is_none() && run.next().await.is_none());
    check(ending(&events), TOOLS, 1);
    assert_eq!((events.len(), counter.now(), model.requests().len()), (2, 0, 1));
}

#[tokio::test]
async fn h05_an_interrupt_behind_the_end_changes_nothing() {
    let (agent, _) = agent(["done".into()], vec![]);
    let mut run = agent.run("go");
    let events = rest(&mut run).await;
    run.interrupt();
    run.stop_after_turn();
    assert!(run.next().await.is_none());
    check(ending(&events), Reason::Completed, 1);
    check(&run.outcome().await, Reason::Completed, 1);
}

// H06: a stop behind the turn.

async fn stopped_when(fits: impl Fn(&Event) -> bool) -> (Outcome, Scripted, Counter, Usage) {
    let counter = Counter::default();
    let usage = Usage { input_tokens: 10, output_tokens: 3, ..Usage::default() };
    let first = call("c1", "t").call_raw("c2", "t", "{}").usage(usage);
    let (agent, model) = agent([first, "never".into()], vec![fine("t", &counter)]);
    let mut run = agent.run("go");
    until(&mut run, fits).await;
    run.stop_after_turn();
    run.stop_after_turn();
    let handle = run.handle();
    let outcome = run.outcome().await;
    assert!(handle.history().is_lawful());
    (outcome, model, counter, usage)
}

#[tokio::test]
async fn h06_a_stop_finishes_the_turn_and_its_tools_and_sends_nothing_more() {
    let moments: [fn(&Event) -> bool; 4] = [
        |event| matches!(event, Event::TurnStarted { .. }),
        |event| event.turn_complete().is_some(),
        is_started,
        |event| event.tool_output().is_some(),
    ];
    for (at, fits) in moments.into_iter().enumerate() {
        let (outcome, model, counter, usage) = stopped_when(fits).await;
        check(&outcome, Reason::Stopped, 1);
        assert!(outcome.partial);
        assert_eq!(kinds(&outcome.new_items), [ResultKind::Ok; 2], "moment {at}");
        assert_eq!((outcome.usage, counter.began()), (usage, 2), "moment {at}");
        assert_eq!(model.requests().len(), 1, "moment {at}");
    }
}

#[tokio::test]
async fn h06_a_stop_while_the_model_is_done_changes_nothing() {
    let (agent, _) = agent(["all done".into()], vec![]);
    let mut run = agent.run("go");
    until(&mut run, |event| event.text_delta().is_some()).await;
    run.stop_after_turn();
    let outcome = run.outcome().await;
    check(&outcome, Reason::Completed, 1);
    assert_eq!(outcome.text, "all done");
}

// H07: a drop at any poll.

/// A tool that tells how far it is, three times.
fn telling(counter: &Counter, steps: &Arc<AtomicUsize>) -> Tool {
    let (counter, steps) = (counter.clone(), Arc::clone(steps));
    Tool::typed_streaming(spec("tell"), move |_: Value, _| {
        let (alive, steps) = (counter.count(), Arc::clone(&steps));
        let updates = (0..3).map(|n| Update::progress(&n)).chain([Update::output("told")]);
        stream::iter(updates).map(move |update| {
            let _alive = &alive;
            steps.fetch_add(1, Ordering::Relaxed);
            update
        })
    })
    .unwrap()
}

/// The frames of a turn with words and two calls, one a piece.
fn frames_with_calls() -> Vec<String> {
    let words = ["one ", "two ", "three "].map(|word| {
        frame(&format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{word}"}}}}]}}"#))
    });
    let call = |index: u8, name: &str| {
        frame(&format!(
            r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":{index},"id":"c{index}","function":{{"name":"{name}","arguments":"{{}}"}}}}]}}}}]}}"#
        ))
    };
    let end = frame(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#);
    let calls = [call(0, "tell"), call(1, "endless"), end, frame("[DONE]")];
    words.into_iter().chain(calls).collect()
}

#[tokio::test]
async fn h07_a_drop_at_any_poll_drops_the_body_and_the_tools_in_that_call() {
    let mut seen = [0; 3];
    for polls in 0..60 {
        let (tools, steps) = (Counter::default(), Arc::default());
        let model = Bodies::new(vec![frames_with_calls()], chat);
        let (open, read) = (model.open.clone(), Arc::clone(&model.read));
        let kit = [telling(&tools, &steps), endless("endless", &tools)];
        let mut run = Agent::new(model).with_tools(kit).run("go");
        for _ in 0..polls {
            run.next().now_or_never();
        }
        seen[0] += open.now();
        seen[1] += tools.now();
        drop(run);
        assert_eq!((open.now(), tools.now()), (0, 0), "behind {polls} polls");
        let before = (read.load(Ordering::Relaxed), steps.load(Ordering::Relaxed));
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        assert_eq!((read.load(Ordering::Relaxed), steps.load(Ordering::Relaxed)), before);
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        assert_eq!(tasks, 0, "no task is left");
        seen[2] += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0 && seen[2] == 60, "something was dropped: {seen:?}");
}

#[tokio::test(start_paused = true)]
async fn h07_a_drop_drops_timers_hooks_and_sub_agents_too() {
    let counter = Counter::default();
    let waits = {
        let counter = counter.clone();
        hook::before_tool(move |_, _| {
            let alive = counter.count();
            async move {
                let _alive = alive;
                std::future::pending::<BeforeTool>().await
            }
        })
    };
    let (agent_, model) = agent([call("c1", "t")], vec![fine("t", &Counter::default())]);
    let mut run = agent_.with_hook(waits).run("go");
    pull(&mut run);
    assert_eq!((counter.now(), model.in_flight()), (1, 0));
    drop(run);
    assert_eq!(counter.now(), 0);

    let child = Scripted::new([Reply::text("so far").hang()]);
    let asks = Reply::new().call("child", json!({ "prompt": "look" }));
    let tools = vec![Agent::new(child.clone()).as_tool("child", "Looks").unwrap()];
    let mut run = agent([asks], tools).0.run("go");
    pull(&mut run);
    assert_eq!(child.in_flight(), 1);
    drop(run);
    assert_eq!(child.in_flight(), 0);
}

// H08: a consumer that pauses.

#[tokio::test]
async fn h08_no_more_is_read_than_was_pulled() {
    // What is read beyond: the piece whose events are being given out.
    const AHEAD: usize = 1;
    let model = Bodies::new(vec![frames_with_calls()], chat);
    let read = Arc::clone(&model.read);
    let (tools, steps) = (Counter::default(), Arc::new(AtomicUsize::new(0)));
    let kit = [telling(&tools, &steps), endless("endless", &tools)];
    let mut run = Agent::new(model).with_tools(kit).run("go");
    let (mut pulled, mut told) = (0, 0);
    while let Some(Some(event)) = run.next().now_or_never() {
        pulled += 1;
        let event = event.unwrap();
        told += usize::from(types(&[event])[0].starts_with("tool_"));
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        let read = read.load(Ordering::Relaxed);
        assert!(read <= pulled + AHEAD, "{read} read behind {pulled} pulled");
        assert!(steps.load(Ordering::Relaxed) <= told, "a tool ran ahead of its consumer");
    }
    assert!(read.load(Ordering::Relaxed) >= 6 && steps.load(Ordering::Relaxed) == 4);
}

#[tokio::test]
async fn h08_the_next_request_is_sent_when_it_is_pulled() {
    let (agent, model) =
        agent([call("c1", "t"), "done".into()], vec![fine("t", &Counter::default())]);
    let mut run = agent.run("go");
    until(&mut run, |event| matches!(event, Event::Continued { .. })).await;
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
    assert_eq!(model.requests().len(), 1);
    until(&mut run, |event| matches!(event, Event::TurnStarted { .. })).await;
    assert_eq!(model.requests().len(), 1, "announced, and not sent before the next pull");
    until(&mut run, |event| event.text_delta().is_some()).await;
    assert_eq!(model.requests().len(), 2);
}

// H09: an interrupt beside an end of another kind.

/// Interrupts its run as soon as it is asked, and then says what a hook says that is content.
fn interrupting(handle: &Arc<Mutex<Option<RunHandle>>>, says: OnStop) -> impl Hook + 'static {
    let handle = Arc::clone(handle);
    hook::stop(move |_, _| {
        handle.lock().unwrap().as_ref().unwrap().interrupt();
        let says = says.clone();
        async move { says }
    })
}

#[tokio::test]
async fn h09_no_hook_turns_an_interrupt_into_success_or_into_another_turn() {
    for says in [OnStop::LetGo, OnStop::Block("go on".into()), OnStop::Prevent("no".into())] {
        let handle = Arc::default();
        let (agent, model) = agent(["done".into(), "never".into()], vec![]);
        let mut run = agent.with_hook(interrupting(&handle, says.clone())).run("go");
        *handle.lock().unwrap() = Some(run.handle());
        let events = rest(&mut run).await;
        check(ending(&events), STREAMING, 1);
        assert_eq!(model.requests().len(), 1, "{says:?}");
        assert_eq!(ending(&events).text, "done", "what was said is kept");
    }
}

#[tokio::test(start_paused = true)]
async fn h09_an_interrupt_wins_against_a_failure_of_the_same_moment() {
    let fails = || Error::new(ErrorKind::Server, "broken");
    let reply = Reply::text("x").delay(Duration::from_secs(1)).fail(fails());
    let mut run = agent([reply], vec![]).0.run("go");
    pull(&mut run);
    tokio::time::advance(Duration::from_secs(2)).await;
    run.interrupt();
    let outcome = run.outcome().await;
    check(&outcome, STREAMING, 1);
    assert_eq!(outcome.error, None);
}

#[tokio::test]
async fn h09_a_tool_that_says_it_was_cancelled_has_failed_and_nothing_else() {
    let cancelled =
        Tool::raw(spec("t"), |_, _| async { Err::<(), _>("operation was cancelled") }).unwrap();
    let (agent, _) = agent([call("c1", "t"), "done".into()], vec![cancelled]);
    let outcome = agent.run("go").outcome().await;
    check(&outcome, Reason::Completed, 2);
    assert_eq!(kinds(&outcome.new_items), [ResultKind::Error]);
}

#[tokio::test]
async fn h09_a_tool_that_interrupts_its_run_and_answers_keeps_its_answer() {
    let handle: Arc<Mutex<Option<RunHandle>>> = Arc::default();
    let held = Arc::clone(&handle);
    let tool = tool("t", &Counter::default(), move |_| {
        held.lock().unwrap().as_ref().unwrap().interrupt();
        async { "fine".to_owned() }
    });
    let (agent, model) =
        agent([call("c1", "t").call_raw("c2", "t", "{}"), "never".into()], vec![tool]);
    let mut run = agent.run("go");
    *handle.lock().unwrap() = Some(run.handle());
    let events = rest(&mut run).await;
    check(ending(&events), TOOLS, 1);
    assert_eq!(kinds(&ending(&events).new_items).len(), 2);
    assert_eq!(model.requests().len(), 1);
}

// H10: sub-agents.

fn with_child(child: &Scripted) -> (Agent, Scripted) {
    let tool = Agent::new(child.clone()).as_tool("child", "Looks").unwrap();
    let asks = Reply::new().call_raw("c1", "child", r#"{"prompt":"look"}"#);
    agent([asks, "done without it".into()], vec![tool])
}

#[tokio::test]
async fn h10_a_child_that_is_interrupted_is_one_failed_result_for_its_parent() {
    let child = Scripted::new([Reply::text("half of it").hang()]);
    let (agent, _) = with_child(&child);
    let mut run = agent.run("go");
    pull(&mut run);
    run.handle().nested("c1").unwrap().interrupt();
    let events = rest(&mut run).await;
    let outcome = ending(&events);
    check(outcome, Reason::Completed, 2);
    let [(id, kind, text)] = &answers(&outcome.new_items)[..] else { panic!("{outcome:?}") };
    assert_eq!((*id, *kind), ("c1", ResultKind::Error));
    assert!(text.contains("half of it") && text.contains("interrupted"), "{text}");
    assert_eq!(child.in_flight(), 0);
}

#[tokio::test]
async fn h10_a_parent_that_is_interrupted_drops_its_child_and_keeps_its_story() {
    let child = Scripted::new([Reply::text("half of it").hang()]);
    let (agent, model) = with_child(&child);
    let mut run = agent.run("go");
    pull(&mut run);
    assert_eq!(child.in_flight(), 1);
    run.interrupt();
    let first = run.next().await.unwrap().unwrap();
    assert!(first.tool_output().is_some());
    assert_eq!(child.in_flight(), 0);
    let story = run.journal().nested("c1").unwrap().history();
    let outcome = run.outcome().await;
    check(&outcome, TOOLS, 1);
    let expected = ("c1", ResultKind::Interrupted, "Interrupted mid-execution".to_owned());
    assert_eq!(answers(&outcome.new_items), [expected]);
    assert_eq!(model.requests().len(), 1);
    assert_eq!(story.len(), 2);
    let last = story.last().unwrap();
    assert_eq!((last.as_text(), last.interrupted), (Some("half of it"), true));
}

// H11: an approval that is pending.

fn asking(counter: &Counter) -> (Run, ToolCall) {
    let (agent, _) =
        agent([call("c1", "t"), "never".into()], vec![fine("t", counter).needs_approval()]);
    let mut run = agent.interactive().run("go");
    let events = pull(&mut run);
    let asked = events.iter().find_map(Event::approval).cloned().unwrap();
    (run, asked)
}

#[track_caller]
fn refused(verdict: Result<(), Error>) {
    assert_eq!(verdict.unwrap_err().kind(), ErrorKind::InvalidRequest);
}

#[tokio::test]
async fn h11_a_call_that_waits_for_an_approval_is_answered_as_interrupted() {
    let counter = Counter::default();
    let (mut run, asked) = asking(&counter);
    let handle = run.handle();
    handle.interrupt();
    let events = rest(&mut run).await;
    check(ending(&events), TOOLS, 1);
    let expected = ("c1", ResultKind::Interrupted, "Interrupted by user".to_owned());
    assert_eq!(answers(&ending(&events).new_items), [expected]);
    assert!(ending(&events).pending.is_empty());
    refused(handle.approve(&asked));
    refused(handle.deny(&asked, "too late"));
    assert!(run.next().await.is_none());
    assert_eq!(counter.began(), 0);
}

#[tokio::test]
async fn h11_an_approval_behind_a_drop_or_a_suspension_is_refused() {
    let counter = Counter::default();
    let (run, asked) = asking(&counter);
    let handle = run.handle();
    drop(run);
    refused(handle.approve(&asked));

    let (agent, _) = agent([call("c1", "t")], vec![fine("t", &counter).needs_approval()]);
    let run = agent.run("go");
    let handle = run.handle();
    let outcome = run.outcome().await;
    check(&outcome, Reason::Pending, 1);
    refused(handle.approve(&outcome.pending[0]));
    assert_eq!(counter.began(), 0);
}

#[tokio::test(start_paused = true)]
async fn h11_a_verdict_counts_until_the_last_sibling_has_ended() {
    for in_time in [true, false] {
        let (counter, slow) = (Counter::default(), Counter::default());
        let naps = tool("nap", &slow, |_| async {
            sleep(Duration::from_secs(1)).await;
            "rested".to_owned()
        });
        let reply = call("c1", "t").call_raw("c2", "nap", "{}");
        let tools = vec![fine("t", &counter).needs_approval(), naps];
        let (agent, _) = agent([reply, "done".into()], tools);
        let mut run = agent.run("go");
        let asked = until(&mut run, |event| event.approval().is_some()).await;
        until(&mut run, is_started).await;
        if in_time {
            run.approve(asked.approval().unwrap()).unwrap();
        }
        let handle = run.handle();
        let outcome = run.outcome().await;
        if in_time {
            check(&outcome, Reason::Completed, 2);
            assert_eq!(kinds(&outcome.new_items), [ResultKind::Ok; 2]);
        } else {
            check(&outcome, Reason::Pending, 1);
            assert_eq!(outcome.pending, [asked.approval().unwrap().clone()]);
            refused(handle.approve(asked.approval().unwrap()));
        }
        assert_eq!(counter.began(), usize::from(in_time));
    }
}

#[tokio::test]
async fn h11_a_verdict_and_an_interrupt_of_the_same_moment_run_nothing() {
    let counter = Counter::default();
    let (run, asked) = asking(&counter);
    run.approve(&asked).unwrap();
    run.interrupt();
    check(&run.outcome().await, TOOLS, 1);
    assert_eq!(counter.began(), 0);
}

#[tokio::test]
async fn h11_an_approval_for_a_child_of_an_interrupted_parent_is_refused() {
    let counter = Counter::default();
    let child = Agent::new(Scripted::new([call("c1", "t")]))
        .with_tools([fine("t", &counter).needs_approval()])
        .interactive();
    let asks = Reply::new().call("child", json!({ "prompt": "look" }));
    let tools = vec![child.as_tool("child", "Looks").unwrap()];
    let mut run = agent([asks], tools).0.run("go");
    pull(&mut run);
    let nested = run.handle().nested("call_1_1").unwrap();
    let asked = calls(&nested.history())[0].clone();
    run.interrupt();
    rest(&mut run).await;
    refused(nested.approve(&asked));
    assert_eq!(counter.began(), 0);
}

// H12: an interrupt in a wait.

/// Interrupts a run that waits, and sees it end without any time passing.
async fn ends_at_once(run: Run, reason: Reason) -> Outcome {
    let handle = run.handle();
    let began = Instant::now();
    let waiting = tokio::spawn(run.outcome());
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished(), "it waits");
    handle.interrupt();
    let outcome = waiting.await.unwrap();
    assert_eq!((outcome.reason, began.elapsed()), (reason, Duration::ZERO));
    outcome
}

#[tokio::test(start_paused = true)]
async fn h12_an_interrupt_in_a_backoff_ends_at_once_and_sends_nothing_more() {
    let busy = Error::new(ErrorKind::Overloaded, "busy").with_status(529);
    let model = Scripted::new([Reply::error(busy), "never".into()]);
    let run = Agent::new(Retry::new(model.clone())).run("go");
    let outcome = ends_at_once(run, STREAMING).await;
    assert_eq!(outcome.error, None);
    sleep(Duration::from_hours(1)).await;
    assert_eq!((model.requests().len(), model.in_flight()), (1, 0));
}

/// A hook that never answers in one of its methods.
struct Silent(&'static str, Counter);

impl Silent {
    fn answer<'a, T: Send + 'a>(&self, method: &str, otherwise: T) -> Answer<'a, T> {
        if self.0 != method {
            return std::future::ready(Ok(otherwise)).boxed();
        }
        let alive = self.1.count();
        async move {
            let _alive = alive;
            std::future::pending().await
        }
        .boxed()
    }
}

impl Hook for Silent {
    fn transform_context<'a>(&'a self, _: &'a State, context: History) -> Answer<'a, History> {
        self.answer("transform_context", context)
    }
    fn prepare<'a>(&'a self, _: &'a State, _: &'a mut Request) -> Answer<'a, ()> {
        self.answer("prepare", ())
    }
    fn turn_started<'a>(&'a self, _: &'a State) -> Answer<'a, ()> {
        self.answer("turn_started", ())
    }
    fn assistant_message<'a>(&'a self, _: &'a State, _: &'a Turn) -> Answer<'a, ()> {
        self.answer("assistant_message", ())
    }
    fn after_sampling<'a>(&'a self, _: &'a State, _: &'a Turn) -> Answer<'a, Vec<Item>> {
        self.answer("after_sampling", Vec::new())
    }
    fn before_tool<'a>(&'a self, _: &'a State, _: &'a ToolCall) -> Answer<'a, BeforeTool> {
        self.answer("before_tool", BeforeTool::Run)
    }
    fn should_stop<'a>(&'a self, _: &'a State) -> Answer<'a, bool> {
        self.answer("should_stop", false)
    }
    fn stop<'a>(&'a self, _: &'a State, _: &'a Turn) -> Answer<'a, OnStop> {
        self.answer("stop", OnStop::LetGo)
    }
}

#[tokio::test(start_paused = true)]
async fn h12_an_interrupt_in_any_hook_ends_at_once() {
    for (method, reason) in [
        ("transform_context", STREAMING),
        ("prepare", STREAMING),
        ("turn_started", STREAMING),
        ("assistant_message", TOOLS),
        ("after_sampling", TOOLS),
        ("before_tool", TOOLS),
        ("should_stop", STREAMING),
        ("stop", STREAMING),
    ] {
        let (counter, ran) = (Counter::default(), Counter::default());
        let (agent, _) = agent([call("c1", "t"), "done".into()], vec![fine("t", &ran)]);
        let run = agent.with_hook(Silent(method, counter.clone())).run("go");
        let outcome = ends_at_once(run, reason).await;
        assert_eq!((counter.began(), counter.now()), (1, 0), "{method}");
        let result = if ran.began() == 0 { ResultKind::Interrupted } else { ResultKind::Ok };
        let called = usize::from(!calls(&outcome.new_items).is_empty());
        assert_eq!(kinds(&outcome.new_items), vec![result; called], "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn h12_an_interrupt_in_a_compaction_ends_at_once_and_rewrites_nothing() {
    struct Endless(Counter);
    impl Compactor for Endless {
        fn compact(&self, _: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
            let alive = self.0.count();
            async move {
                let _alive = alive;
                std::future::pending().await
            }
            .boxed()
        }
    }
    let counter = Counter::default();
    let full = Error::new(ErrorKind::ContextWindow, "too long");
    let (agent, model) = agent([Reply::error(full), "never".into()], vec![]);
    let run = agent.with_compactor(Endless(counter.clone())).run("go");
    let outcome = ends_at_once(run, STREAMING).await;
    assert_eq!((counter.began(), counter.now(), model.requests().len()), (1, 0, 1));
    assert_eq!(outcome.new_items, [Item::user("go")]);
}

#[tokio::test(start_paused = true)]
async fn h12_an_interrupt_in_an_approval_ends_at_once() {
    let counter = Counter::default();
    let tools = vec![fine("t", &counter).needs_approval()];
    let run = agent([call("c1", "t")], tools).0.interactive().run("go");
    let outcome = ends_at_once(run, TOOLS).await;
    assert_eq!(kinds(&outcome.new_items), [ResultKind::Interrupted]);
    assert_eq!(counter.began(), 0);
}

// H13: the order of hooks at the end.

/// Writes down what it is told.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }
}

impl Hook for Log {
    fn prepare<'a>(&'a self, _: &'a State, _: &'a mut Request) -> Answer<'a, ()> {
        self.note("prepare");
        std::future::ready(Ok(())).boxed()
    }
    fn assistant_message<'a>(&'a self, _: &'a State, _: &'a Turn) -> Answer<'a, ()> {
        self.note("assistant_message");
        std::future::ready(Ok(())).boxed()
    }
    fn before_tool<'a>(&'a self, _: &'a State, _: &'a ToolCall) -> Answer<'a, BeforeTool> {
        self.note("before_tool");
        std::future::ready(Ok(BeforeTool::Run)).boxed()
    }
    fn after_tool(&self, _: &ToolCall, _: &mut ToolResult) {
        self.note("after_tool");
    }
    fn stop<'a>(&'a self, _: &'a State, _: &'a Turn) -> Answer<'a, OnStop> {
        self.note("stop");
        std::future::ready(Ok(OnStop::LetGo)).boxed()
    }
    fn failure(&self, _: &State, _: &Error) {
        self.note("failure");
    }
    fn finished(&self, outcome: &Outcome) {
        self.note(format!("finished {}", outcome.reason));
    }
}

#[track_caller]
fn told_once(log: &Log, reason: Reason) {
    let told = log.0.lock().unwrap().clone();
    let endings: Vec<_> = told.iter().filter(|told| told.starts_with("finished")).collect();
    assert_eq!(endings, [&format!("finished {reason}")], "{told:?}");
    assert!(told.last().unwrap().starts_with("finished"), "nothing is told behind it: {told:?}");
}

#[tokio::test]
async fn h13_finished_is_told_once_and_last_wherever_the_interrupt_comes() {
    let mut reasons = Vec::new();
    for polls in 0..40 {
        let log = Log::default();
        let reply = Reply::text("so").call_raw("c1", "t", "{}").call_raw("c2", "t", "{}");
        let (agent, _) = agent([reply, "done".into()], vec![fine("t", &Counter::default())]);
        let mut run = agent.with_hook(log.clone()).run("go");
        let mut events = Vec::new();
        for _ in 0..polls {
            events.extend(run.next().await.map(Result::unwrap));
        }
        run.interrupt();
        events.extend(rest(&mut run).await);
        told_once(&log, ending(&events).reason);
        reasons.push(ending(&events).reason);
    }
    assert!(reasons.contains(&STREAMING) && reasons.contains(&TOOLS));
    assert!(reasons.contains(&Reason::Completed), "the last interrupts come too late");
}

#[tokio::test]
async fn h13_finished_is_told_once_for_every_way_to_end() {
    let error = Error::new(ErrorKind::Server, "broken");
    for (reply, reason) in [
        (Reply::text("done"), Reason::Completed),
        (Reply::error(error), Reason::ProviderError),
        (Reply::text("x").cut(), Reason::Incomplete),
        (call("c1", "careful"), Reason::Pending),
        (Reply::new().refuse("no"), Reason::Refused),
    ] {
        let log = Log::default();
        let careful = fine("careful", &Counter::default()).needs_approval();
        let mut run = agent([reply], vec![careful]).0.with_hook(log.clone()).run("go");
        let events = rest(&mut run).await;
        assert_eq!(ending(&events).reason, reason);
        assert!(run.next().await.is_none());
        told_once(&log, reason);
    }
}

#[tokio::test]
async fn h13_an_interrupt_is_no_failure_and_asks_no_stop_hook() {
    let log = Log::default();
    let (agent, _) = agent([Reply::text("x").hang()], vec![]);
    let mut run = agent.with_hook(log.clone()).run("go");
    pull(&mut run);
    run.interrupt();
    rest(&mut run).await;
    assert_eq!(*log.0.lock().unwrap(), ["prepare", "finished interrupted"]);
}

#[tokio::test]
async fn h13_a_drop_is_no_end_and_tells_no_hook() {
    let log = Log::default();
    let (agent, _) = agent([Reply::text("x").hang()], vec![]);
    let mut run = agent.with_hook(log.clone()).run("go");
    pull(&mut run);
    drop(run);
    assert_eq!(*log.0.lock().unwrap(), ["prepare"]);
}
