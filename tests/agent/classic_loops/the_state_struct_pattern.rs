//! "The state struct pattern": a typed state that each iteration replaces, with the reason why the
//! loop continued.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::tool::Toolkit;
use turnstream::turn::StopReason;
use turnstream::{History, Item, Request, Steps, Turn, TurnStreamExt, loop_stream};

use turnstream_test_support::items::history_of;
use turnstream_test_support::runs::reply_calling_t;
use turnstream_test_support::tools::uncounted_tool;

const MAX_RECOVERIES: u32 = 3;
const MAX_TURNS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ContinueReason {
    NextTurn,
    MaxOutputTokensRecovery,
}

pub(super) struct LoopState {
    pub(super) history: History,
    pub(super) turn_count: u32,
    pub(super) recovery_count: u32,
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
pub(super) type Iteration = (u32, u32, Option<ContinueReason>);

pub(super) async fn run_state_loop(replies: Vec<Reply>) -> (Vec<Iteration>, LoopState) {
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

pub(super) fn cut_off() -> Reply {
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
