//! The agent's own loop with one added line, which prints the decision after each iteration. It
//! needs no setting and no hook: the body is a function, copied from `src/agent/body.rs` and passed
//! to `Agent::run_with_body`. Everything that it uses is public.
//!
//! The added line ends with `// the line that is ours`. Another line could wait between two turns,
//! ask a service whether to continue, or leave out a part of the loop. Besides this crate, the body
//! needs `async-stream` and `futures`.
//!
//! ```text
//! cargo run --example own_body
//! ```

use std::sync::Arc;

use async_stream::try_stream;
use futures::{Stream, StreamExt};
use serde_json::json;
use turnstream::agent::{
    Decision, NextAction, RunContext, State, after_tools, decide, forward_turns, on_error,
};
use turnstream::env::SystemIds;
use turnstream::error::Error;
use turnstream::event::{EndReason, Event};
use turnstream::provider::{Reply, Scripted};
use turnstream::stream::Step;
use turnstream::turn::Turn;
use turnstream::{Agent, History, Tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct CountArgs {
    word: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    println!("The model's words are scripted; the loop and its decisions are real.");
    let model = Scripted::new([
        Reply::text("I count.").call("count", json!({ "word": "stream" })),
        Reply::text("Once more.").call("count", json!({ "word": "turn" })),
        Reply::text("Six and four."),
    ]);
    let count = Tool::new("count", "Counts letters", async |it: CountArgs, _cx| it.word.len());
    let agent = Agent::new(model).with_tools([count]);

    let run = agent.run_with_body(
        loop_body,
        History::new(&SystemIds),
        "How long are `stream` and `turn`?",
    );
    let outcome = run.outcome().await.into_result()?;
    println!("{} after {} turns: {}", outcome.reason, outcome.turns, outcome.text);
    Ok(())
}

/// Runs one iteration of the loop: delivers queued input, sends a request to the model, and acts on
/// the model's turn.
///
/// Dropping the returned stream also drops the open request and any running hooks and tools.
///
/// # Errors
///
/// The stream ends with an error, which ends the run, in the following cases:
///
/// - A turn fails, and [`on_error`] returns `None`.
/// - [`decide`] returns [`Decision::Fail`].
/// - [`refresh_tools`](RunContext::refresh_tools), [`next_request`](RunContext::next_request),
///   [`run_tools`](RunContext::run_tools),
///   [`resume_pending_calls`](RunContext::resume_pending_calls),
///   [`check_should_stop`](RunContext::check_should_stop) or
///   [`review_stop`](RunContext::review_stop) returns an error.
/// - A hook fails while the turn's calls are run; see
///   [`ToolRun::finish`](turnstream::tool::ToolRun::finish).
#[expect(clippy::too_many_lines, reason = "an iteration reads from top to bottom")]
fn loop_body(
    cx: RunContext,
    mut state: State,
) -> impl Stream<Item = Result<Step<Event, State>, Error>> + Send {
    forward_turns(|mut turns| {
        try_stream! {
            // A run that resumes pending calls starts with calls that are already in its history,
            // so it does not send a request first.
            let due = match state.approvals.resume_verdicts {
                Some(_) => {
                    cx.refresh_tools(&state).await?;
                    Due::Decision(None)
                }
                None => loop {
                    let facts;
                    (state, facts) = cx.gather_facts(state);
                    if let Some(next) = facts.instead_of_request(&state) {
                        break Due::Action(next);
                    }
                    cx.refresh_tools(&state).await?;
                    let mut event;
                    loop {
                        (state, event) = cx.deliver_next_input(state);
                        let Some(event) = event else { break };
                        yield Step::Value(event);
                    }
                    (state, event) = cx.compact_if_needed(state).await;
                    if let Some(event) = event {
                        yield Step::Value(event);
                        continue;
                    }
                    let request;
                    (state, request) = cx.next_request(state).await?;
                    let Some(request) = request else { continue };
                    yield Step::Value(cx.turn_started_event(&state));
                    break match turns.forward(cx.send_request(&state, request)).await {
                        Ok(turn) => Due::Decision(Some(turn)),
                        Err(error) => Due::Recovery(error),
                    };
                },
            };

            let next = match due {
                Due::Action(next) => next,
                Due::Decision(turn) => {
                    let facts;
                    (state, facts) = cx.gather_facts(state);
                    let decision = match &turn {
                        Some(turn) => {
                            cx.notify_turn(&state, turn);
                            decide(&state, turn, &facts)
                        }
                        None => Decision::RunTools,
                    };
                    if let Decision::Fail(error) = &decision {
                        cx.report_error(&state, error);
                        Err::<(), _>(error.clone())?;
                    }
                    println!("  iteration {}: {decision:?}", state.counts.model_calls); // the line that is ours
                    let mut answers = cx.run_tools(&state, turn.as_ref(), &decision)?;
                    let mut of = turn.as_deref();
                    loop {
                        while let Some(event) = answers.next().await {
                            yield Step::Value(event.into());
                        }
                        cx.stop_accepting_verdicts();
                        state = state.with_tool_results(of.take(), answers.finish()?);
                        let Some(resumed) = cx.resume_pending_calls(&state).await? else { break };
                        answers = resumed;
                    }
                    let next = match (decision, turn) {
                        (Decision::RefuseTools { next, .. }, _) => next,
                        (Decision::Continue(next), _) => cx.check_should_stop(&state, next).await?,
                        // The model has stopped, by its text or by a stop action.
                        (decision, Some(turn)) if state.has_stopped(&decision) => {
                            let next;
                            (state, next) = cx.review_stop(state, &turn).await?;
                            next
                        }
                        (Decision::RunTools | Decision::Stop | Decision::Fail(_), _) => {
                            let facts;
                            (state, facts) = cx.gather_facts(state);
                            let next = after_tools(&state, !state.approvals.pending.is_empty(), &facts);
                            cx.check_should_stop(&state, next).await?
                        }
                    };
                    if next == NextAction::Compact {
                        let event;
                        (state, event) = cx.compact(state).await;
                        let is_shorter = event.as_ref().is_some_and(Event::is_rewrite);
                        if let Some(event) = event {
                            yield Step::Value(event);
                        }
                        if is_shorter { next } else { NextAction::Finish(EndReason::ContextWindow) }
                    } else {
                        next
                    }
                }
                Due::Recovery(error) => {
                    let retracted = cx.report_error(&state, &error);
                    let mut facts;
                    (state, facts) = cx.gather_facts(state);
                    let (mut next, mut compacted) = (on_error(&state, &error, &facts), None);
                    if next == Some(NextAction::Compact) {
                        (state, compacted) = cx.compact(state).await;
                        facts.can_compact = compacted.as_ref().is_some_and(Event::is_rewrite);
                        next = on_error(&state, &error, &facts);
                    }
                    if let Some(event) = retracted.filter(|_| next.is_some()) {
                        yield Step::Value(event);
                    }
                    if let Some(event) = compacted {
                        yield Step::Value(event);
                    }
                    next.ok_or(error)?
                }
            };

            let (events, step) = cx.apply_next_action(state, next);
            for event in events {
                yield Step::Value(event);
            }
            yield step;
        }
    })
}

/// The part of an iteration that follows the request.
enum Due {
    /// The model's turn is complete. A run that resumes pending calls starts without a turn.
    Decision(Option<Arc<Turn>>),
    /// The request failed.
    Recovery(Error),
    /// No request was sent.
    Action(NextAction),
}
