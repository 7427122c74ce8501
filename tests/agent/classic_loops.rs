//! Loops as textbooks show them, written by hand with the public parts of the crate: the four
//! pieces of an agent, a state that each iteration replaces, corrective messages, a fallback, and
//! a fan-out of sub-agents.
//!
//! | textbook section | test |
//! |---|---|
//! | How to implement an agent loop: the session, `invoke_model`, tool calls, the loop, sub-agents | `four_functions_are_an_agent_whose_tools_may_run_the_same_loop` |
//! | The state struct pattern | `each_iteration_starts_with_a_new_state_that_counts_turns_and_recoveries` |
//! | Termination strategies | `a_hand_written_loop_stops_at_its_limits_with_a_history_that_can_be_sent` |
//! | Recovery: when the model emits garbage | `correctives_cost_a_request_are_recorded_and_a_good_reply_resets_their_count` |
//! | Error handling within the loop: tombstones after a fallback | `after_a_fallback_the_partial_answer_is_a_tombstone_and_only_it_is_not_sent` |
//! | Exits are policy: a fan-out with a partial result | `a_sub_agent_that_drains_the_pool_of_a_fan_out_returns_a_result_marked_as_partial` |
//!
//! The minimal agent loop with its trace, in which an audited change of a glossary fails its check
//! and is fixed, is the example `minimal_loop`.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};
use turnstream::agent::{Budget, Pool};
use turnstream::env::{Ids, SystemIds};
use turnstream::event::{AppendReason, EndReason};
use turnstream::item::{ItemKind, ResultKind};
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::tool::{Tool, ToolContext, Toolkit};
use turnstream::turn::{PartialTurn, StopReason};
use turnstream::{
    Agent, Error, ErrorKind, Event, EventStreamExt, History, Item, Journal, Request, Steps, Turn,
    TurnStreamExt, loop_stream,
};

use turnstream_test_support::items::{history_of, token_usage};
use turnstream_test_support::models::WireProvider;
use turnstream_test_support::runs::reply_calling_t;
use turnstream_test_support::tools::{spec, uncounted_tool};
use turnstream_testing::Wire;

// ---- Four pieces: the session, one request, the calls, the loop

fn init_session(system: &str, prompt: &str) -> History {
    history_of([Item::system(system), Item::user(prompt)])
}

async fn invoke_model(
    model: &Scripted,
    toolkit: &Toolkit,
    session: &History,
) -> Result<Arc<Turn>, Error> {
    let request = Request::new(session.clone()).with_tools(toolkit.specs());
    model.stream_turn(request).into_turn().await
}

/// Runs the turn's calls. The returned session contains the turn and all results.
async fn execute_tool_calls(
    toolkit: &Toolkit,
    session: &History,
    turn: &Arc<Turn>,
) -> Result<History, Error> {
    let mut tools = toolkit.run(session, turn);
    while tools.next().await.is_some() {}
    Ok(tools.finish()?.history)
}

async fn agent_loop(
    model: &Scripted,
    toolkit: &Toolkit,
    mut session: History,
) -> Result<History, Error> {
    loop {
        let turn = invoke_model(model, toolkit, &session).await?;
        if turn.calls().is_empty() {
            session.extend(turn.to_history_items());
            return Ok(session);
        }
        session = execute_tool_calls(toolkit, &session, &turn).await?;
    }
}

/// A tool whose handler runs a loop of its own and returns the last text.
fn summarize_tool(model: Scripted) -> Tool {
    let summarize = move |args: Value, _cx: ToolContext| {
        let model = model.clone();
        async move {
            let session =
                init_session("Output only the summary.", args["text"].as_str().unwrap_or_default());
            let session = agent_loop(&model, &Toolkit::default(), session).await;
            let session = session.map_err(|error| error.to_string())?;
            let summary = session.last().and_then(Item::as_text).unwrap_or_default();
            Ok::<_, String>(summary.to_owned())
        }
    };
    Tool::raw(spec("summarize"), summarize).unwrap()
}

#[tokio::test]
async fn four_functions_are_an_agent_whose_tools_may_run_the_same_loop() {
    let inner = Scripted::new(["Tea is hot."]);
    let read = Tool::raw(spec("read_file"), |_, _| async { Err::<(), _>("no such file") });
    let toolkit = Toolkit::new([summarize_tool(inner.clone()), read.unwrap()]);
    let calls = Reply::new()
        .call("summarize", json!({ "text": "A long page about tea." }))
        .call("read_file", json!({ "path": "tea.md" }));
    let model = Scripted::new([calls, "The page says that tea is hot.".into()]);

    let session = init_session("Be brief.", "What does the page say?");
    let session = agent_loop(&model, &toolkit, session).await.unwrap();

    assert!(session.is_settled());
    // The system prompt, the prompt, two calls, two results, the answer.
    assert_eq!(session.len(), 7);
    assert_eq!(session.last().unwrap().as_text(), Some("The page says that tea is hot."));
    let results = session.iter().filter_map(Item::as_tool_result);
    let results: Vec<_> = results.map(|it| (it.kind, it.content.text())).collect();
    let expected = [
        (ResultKind::Ok, "Tea is hot.".to_owned()),
        (ResultKind::Error, "Error: no such file".to_owned()),
    ];
    assert_eq!(results, expected);
    // The inner loop has a session of its own, and no tools.
    let request = &inner.requests()[0];
    let expected = init_session("Output only the summary.", "A long page about tea.");
    assert!(request.history.iter().eq(expected.iter()), "{:?}", request.history);
    assert!(request.tools.is_empty());
}

// ---- A state that each iteration replaces

const MAX_RECOVERIES: u32 = 3;
const MAX_TURNS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
enum ContinueReason {
    NextTurn,
    MaxOutputTokensRecovery,
}

struct LoopState {
    history: History,
    turn_count: u32,
    recovery_count: u32,
    /// Why the loop continued with this state, `None` for the first one.
    reason: Option<ContinueReason>,
}

/// Returns the steps after a complete turn. Each of them has a new state.
fn steps_after(state: LoopState, turn: &Arc<Turn>, toolkit: &Toolkit) -> Steps<'static, LoopState> {
    let LoopState { mut history, turn_count, recovery_count, .. } = state;
    if matches!(turn.stop_reason(), StopReason::MaxTokens) && recovery_count < MAX_RECOVERIES {
        history.extend(turn.to_history_items());
        history.push(Item::user("You were cut off. Please continue from where you stopped."));
        return Steps::next(LoopState {
            history,
            turn_count,
            recovery_count: recovery_count + 1,
            reason: Some(ContinueReason::MaxOutputTokensRecovery),
        });
    }
    if turn.calls().is_empty() {
        history.extend(turn.to_history_items());
        return Steps::stop_with(LoopState { history, turn_count, recovery_count, reason: None });
    }
    toolkit.run(&history, turn).then_steps(move |history, _| {
        let state = LoopState {
            history,
            turn_count: turn_count + 1,
            recovery_count: 0,
            reason: Some(ContinueReason::NextTurn),
        };
        match state.turn_count < MAX_TURNS {
            true => Steps::next(state),
            false => Steps::stop_with(state),
        }
    })
}

/// The counts and the reason with which an iteration started.
type Iteration = (u32, u32, Option<ContinueReason>);

async fn run_state_loop(replies: Vec<Reply>) -> (Vec<Iteration>, LoopState) {
    let model = Scripted::new(replies);
    let toolkit = Toolkit::new([uncounted_tool("t")]);
    let iterations = Mutex::new(Vec::new());
    let start = LoopState {
        history: history_of([Item::user("go")]),
        turn_count: 0,
        recovery_count: 0,
        reason: None,
    };
    let mut events = pin!(loop_stream(start, |state: LoopState| {
        let started = (state.turn_count, state.recovery_count, state.reason);
        iterations.lock().unwrap().push(started);
        let toolkit = toolkit.clone();
        let request = Request::new(state.history.clone()).with_tools(toolkit.specs());
        model
            .stream_turn(request)
            .on_turn_complete(move |turn| async move { Ok(steps_after(state, &turn, &toolkit)) })
    }));
    while let Some(event) = events.next().await {
        event.unwrap();
    }
    let last = events.take_final_state().unwrap();
    let iterations = iterations.lock().unwrap().clone();
    (iterations, last)
}

fn cut_off() -> Reply {
    Reply::text("Half of it").stop(StopReason::MaxTokens)
}

#[tokio::test]
async fn each_iteration_starts_with_a_new_state_that_counts_turns_and_recoveries() {
    let replies = vec![
        reply_calling_t("a"),
        cut_off(),
        cut_off(),
        reply_calling_t("b"),
        cut_off(),
        "Done.".into(),
    ];
    let (iterations, last) = run_state_loop(replies).await;
    let next_turn = Some(ContinueReason::NextTurn);
    let recovery = Some(ContinueReason::MaxOutputTokensRecovery);
    let expected = [
        (0, 0, None),
        (1, 0, next_turn),
        (1, 1, recovery),
        (1, 2, recovery),
        // A turn whose calls have run resets the count.
        (2, 0, next_turn),
        (2, 1, recovery),
    ];
    assert_eq!(iterations, expected);
    assert!(last.history.is_settled());
    assert_eq!(last.history.last().unwrap().as_text(), Some("Done."));
}

#[tokio::test]
async fn a_hand_written_loop_stops_at_its_limits_with_a_history_that_can_be_sent() {
    let calls = ["a", "b", "c", "d"].map(reply_calling_t);
    let (iterations, last) = run_state_loop(calls.into()).await;
    assert_eq!((iterations.len(), last.turn_count), (3, 3));
    assert!(last.history.is_settled() && last.history.last().unwrap().as_tool_result().is_some());

    let (iterations, last) = run_state_loop((0..5).map(|_| cut_off()).collect()).await;
    assert_eq!((iterations.len(), last.recovery_count), (4, 3));
    assert!(last.history.is_settled());
}

// ---- Corrective messages

/// The number of empty replies in a row that ends the loop.
const MAX_EMPTY_REPLIES: u32 = 3;

/// Continues the loop with a message that says what was wrong. The message is an event as well, so
/// that the journal contains it.
fn ask_again(mut history: History, empty_replies: u32) -> Steps<'static, (History, u32)> {
    let corrective = Item::user("Your reply was empty. Call the tool `t`, or answer with text.");
    history.push(corrective.clone());
    let (why, id) = (AppendReason::Corrective, SystemIds.next_id());
    let event = Event::Appended { why, id, items: vec![corrective] };
    Steps::next((history, empty_replies)).preceded_by([event])
}

fn kind_of(item: &Item) -> &'static str {
    match &item.kind {
        ItemKind::User { .. } => "corrective",
        ItemKind::ToolCall(_) => "call",
        ItemKind::ToolResult(_) => "result",
        _ => "text",
    }
}

/// Runs a loop that corrects empty replies. Returns how it ended, the number of its requests, and
/// the kinds of the items that it has added.
async fn run_corrective_loop(replies: Vec<Reply>) -> (Result<(), Error>, usize, Vec<&'static str>) {
    let model = Scripted::new(replies);
    let toolkit = Toolkit::new([uncounted_tool("t")]);
    let journal = Journal::new(history_of([Item::user("go")]));
    let events = loop_stream((journal.history(), 0_u32), |(history, empty_replies)| {
        let toolkit = toolkit.clone();
        let request = Request::new(history.clone()).with_tools(toolkit.specs());
        model.stream_turn(request).on_turn_complete(move |turn| async move {
            if !turn.calls().is_empty() {
                return Ok(toolkit.run(&history, &turn).then_next(|history| (history, 0)));
            }
            if !turn.text().is_empty() {
                return Ok(Steps::stop());
            }
            match empty_replies + 1 {
                MAX_EMPTY_REPLIES => {
                    Err(Error::new(ErrorKind::GenerationFailed, "the model sends empty replies"))
                }
                empty_replies => Ok(ask_again(history, empty_replies)),
            }
        })
    });
    let ended = events.journal_to(&journal).try_for_each(|_| async { Ok(()) }).await;
    let kinds = journal.new_items().iter().map(kind_of).collect();
    (ended, model.requests().len(), kinds)
}

#[tokio::test]
async fn correctives_cost_a_request_are_recorded_and_a_good_reply_resets_their_count() {
    let empty = Reply::new;
    let replies = vec![empty(), reply_calling_t("a"), empty(), empty(), "Done.".into()];
    let (ended, requests, items) = run_corrective_loop(replies).await;
    assert_eq!((ended.is_ok(), requests), (true, 5));
    assert_eq!(items, ["corrective", "call", "result", "corrective", "corrective", "text"]);

    let replies = vec![empty(), empty(), empty(), "Unused.".into()];
    let (ended, requests, items) = run_corrective_loop(replies).await;
    assert_eq!((ended.unwrap_err().kind(), requests), (ErrorKind::GenerationFailed, 3));
    assert_eq!(items, ["corrective", "corrective"]);
}

// ---- A fallback

/// Adds the items of the failed turn as tombstones.
fn with_tombstones(mut history: History, error: &Error) -> History {
    let partial = error.find_source::<PartialTurn>().unwrap();
    let start = history.len();
    history.extend(partial.items());
    for edit in history.tombstone_edits(start..history.len()).unwrap() {
        edit.apply(&mut history);
    }
    history
}

#[tokio::test]
async fn after_a_fallback_the_partial_answer_is_a_tombstone_and_only_it_is_not_sent() {
    let first = Scripted::new([Reply::text("Half an answer").disconnect()]);
    let second = WireProvider::new(Wire::Anthropic, "m", ["A whole answer."]);
    let earlier = history_of([Item::user("What is it?")]);
    let mut events = pin!(loop_stream((earlier, false), |(history, has_failed)| {
        let request = Request::new(history.clone());
        let turn = match has_failed {
            false => first.stream_turn(request),
            true => second.stream_turn(request),
        };
        let before = history.clone();
        let steps = turn.on_turn_complete(move |turn| async move {
            let mut history = before;
            history.extend(turn.to_history_items());
            Ok(Steps::stop_with((history, has_failed)))
        });
        Steps::new(steps).recover(ErrorKind::IncompleteTurn, move |error| {
            Steps::next((with_tombstones(history, &error), true))
        })
    }));
    while let Some(event) = events.next().await {
        event.unwrap();
    }
    let (history, has_failed) = events.take_final_state().unwrap();

    assert_eq!((has_failed, first.requests().len()), (true, 1));
    let sent = second.sent_bodies()[0].to_string();
    assert!(sent.contains("What is it?") && !sent.contains("Half an answer"), "{sent}");
    let is_tombstone: Vec<bool> = history.iter().map(|item| item.tombstone).collect();
    assert_eq!(is_tombstone, [false, true, false]);
    let shown: Vec<_> =
        history.iter().filter(|item| !item.tombstone).filter_map(Item::as_text).collect();
    assert_eq!(shown, ["A whole answer."]);
}

// ---- A fan-out of sub-agents

#[tokio::test]
async fn a_sub_agent_that_drains_the_pool_of_a_fan_out_returns_a_result_marked_as_partial() {
    let pool = Pool::new(100);
    let sub_agent = |name: &str, replies: Vec<Reply>| {
        let agent = Agent::new(Scripted::new(replies)).with_tools([uncounted_tool("t")]);
        let budget = Budget::new().with_pool(pool.clone());
        agent.with_budget(budget).as_tool(name, "Looks").unwrap()
    };
    let counts = sub_agent("counts", vec![Reply::text("Ten.").usage(token_usage(60, 0))]);
    let unfinished = Reply::text("Two of ten.").call("t", json!({})).usage(token_usage(60, 0));
    let reads = sub_agent("reads", vec![unfinished, "Unused.".into()]);
    let prompt = json!({ "prompt": "look" });
    let fan_out = Reply::new().call("counts", prompt.clone()).call("reads", prompt);
    let model = Scripted::new([fan_out, "There are ten; two are read.".into()]);

    let outcome = Agent::new(model.clone()).with_tools([counts, reads]).run("go").outcome().await;

    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 2));
    assert_eq!((pool.used_tokens(), outcome.nested_usage.total()), (120, 120));
    let request = &model.requests()[1];
    let results = request.history.iter().filter_map(Item::as_tool_result);
    let results: Vec<String> = results.map(|it| it.content.text()).collect();
    let stamp = "[stopped early: its budget was spent — this result is partial]";
    assert_eq!(results[0], "Ten.");
    assert!(results[1].starts_with("Two of ten.\n\n"), "{results:?}");
    assert!(results[1].ends_with(stamp), "{results:?}");
}
