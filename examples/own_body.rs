//! The agent's own loop with one line more: each lap says what was decided, and nothing else is
//! different. No setting and no hook is needed for that: the body is a function, copied from
//! `src/agent/body.rs` and handed to `Agent::run_by`. All that it uses is public.
//!
//! That line ends with `// the line that is ours`. Another could wait between two turns, ask a
//! service whether to go on, or leave out what you do not want. Besides this crate the body needs
//! `async-stream` and `futures`.
//!
//! ```text
//! cargo run --example own_body
//! ```

use async_stream::try_stream;
use futures::{Stream, StreamExt};
use serde_json::json;
use turnstream::agent::{Decision, Next, RunContext, State, after_tools, decide, on_error};
use turnstream::context::was_compacted;
use turnstream::env::SystemIds;
use turnstream::error::Error;
use turnstream::event::{Event, Reason};
use turnstream::provider::{Reply, Scripted};
use turnstream::stream::Step;
use turnstream::turn::PartialTurn;
use turnstream::{Agent, History, Tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Word {
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
    let count = Tool::new("count", "Counts letters", async |it: Word, _cx| it.word.len());
    let agent = Agent::new(model).with_tools([count]);

    let run = agent.run_by(body, History::new(&SystemIds), "How long are `stream` and `turn`?");
    let outcome = run.outcome().await.into_result()?;
    println!("{} after {} turns: {}", outcome.reason, outcome.turns, outcome.text);
    Ok(())
}

#[expect(clippy::too_many_lines, reason = "one line more than the agent's own body")]
/// One lap: deliver what waits, ask the model, act on its turn.
///
/// Dropping the stream drops the request, the hooks and the tools that run.
fn body(
    cx: RunContext,
    mut state: State,
) -> impl Stream<Item = Result<Step<Event, State>, Error>> + Send {
    try_stream! {
        // A run that resumes pending calls has its turn already.
        let said = if state.resuming.is_some() {
            Ok(None)
        } else {
            let request = loop {
                let next = cx.facts(&mut state).instead(&state);
                if let Some(next) = next {
                    let (events, step) = cx.then(state, next);
                    for event in events {
                        yield Step::Value(event);
                    }
                    yield step;
                    return;
                }
                while let Some(event) = cx.deliver(&mut state) {
                    yield Step::Value(event);
                }
                if let Some(event) = cx.make_room(&mut state).await {
                    yield Step::Value(event);
                    continue;
                }
                if let Some(request) = cx.request(&mut state).await? {
                    break request;
                }
            };
            yield Step::Value(cx.turn_started(&state));
            let mut events = cx.ask(&state, request);
            loop {
                match events.next().await {
                    Some(Ok(event)) => {
                        let event = Event::from(event);
                        let turn = event.turn_complete().cloned();
                        yield Step::Value(event);
                        if turn.is_some() {
                            break Ok(turn);
                        }
                    }
                    Some(Err(error)) => break Err(error),
                    None => break Err(PartialTurn::default().into_error(None)),
                }
            }
        };

        let next = match said {
            Ok(turn) => {
                let facts = cx.facts(&mut state);
                let decision = match &turn {
                    Some(turn) => {
                        cx.observe(&state, turn);
                        decide(&state, turn, &facts)
                    }
                    None => Decision::RunTools,
                };
                println!("  lap {}: {decision:?}", state.model_calls); // the line that is ours
                let mut answers = cx.answers(&state, turn.as_ref(), &decision)?;
                let mut of = turn.as_deref();
                loop {
                    while let Some(event) = answers.next().await {
                        yield Step::Value(event.into());
                    }
                    cx.close_verdicts();
                    state = state.answered(of.take(), answers.finish()?);
                    let Some(resumed) = cx.resumed(&mut state).await? else { break };
                    answers = *resumed;
                }
                let next = match (decision, turn) {
                    (Decision::Refuse { next, .. }, _) => next,
                    (Decision::Then(next), _) => cx.unless_stopped(&state, next).await?,
                    (Decision::Stop, Some(turn)) => cx.at_stop(&mut state, &turn).await?,
                    (Decision::RunTools | Decision::Stop, _) => {
                        let facts = cx.facts(&mut state);
                        let next = after_tools(&state, !state.pending.is_empty(), &facts);
                        cx.unless_stopped(&state, next).await?
                    }
                };
                if next == Next::Compact && let Some(event) = cx.compact(&mut state).await {
                    yield Step::Value(event);
                }
                let full = next == Next::Compact && !was_compacted(&cx.history());
                if full { Next::Finish(Reason::ContextWindow) } else { next }
            }
            Err(error) => {
                let retracted = cx.failed(&state, &error);
                let mut facts = cx.facts(&mut state);
                let (mut next, mut compacted) = (on_error(&state, &error, &facts), None);
                if next == Some(Next::Compact) {
                    compacted = cx.compact(&mut state).await;
                    facts.can_compact = compacted.as_ref().is_some_and(Event::replaces_items);
                    next = on_error(&state, &error, &facts);
                }
                for event in [retracted.filter(|_| next.is_some()), compacted].into_iter().flatten() {
                    yield Step::Value(event);
                }
                next.ok_or(error)?
            }
        };

        let (events, step) = cx.then(state, next);
        for event in events {
            yield Step::Value(event);
        }
        yield step;
    }
}
