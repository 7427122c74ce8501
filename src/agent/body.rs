//! The body of the agent's loop: it performs what `decide` says.

use std::sync::Arc;

use async_stream::stream;
use futures::{Stream, StreamExt};

use crate::agent::control::Control;
use crate::agent::decide::malformed;
use crate::agent::{Agent, Answered, Decision, State, after_tools, after_validation, decide};
use crate::error::Error;
use crate::event::{AppendedWhy, Event, Reason, Transition};
use crate::item::{Item, ResultKind};
use crate::stream::{Step, Steps, TurnEvents};
use crate::turn::Turn;

/// One lap: deliver what waits, ask the model, act on its turn.
pub(super) fn body(
    agent: Arc<Agent>,
    control: Arc<Control>,
    mut state: State,
) -> impl Stream<Item = Result<Step<Event, State>, Error>> + Send {
    stream! {
        if state.model_calls >= agent.limits.max_turns {
            yield Ok(Step::StopWith(state.end(Reason::MaxTurns)));
            return;
        }
        while let Some(waiting) = control.next_steered() {
            state.history.extend(waiting.items.iter().cloned());
            let (why, id, items) = (AppendedWhy::Steer, waiting.id, waiting.items);
            yield Ok(Step::Value(Event::Appended { why, id, items }));
        }
        state.model_calls += 1;
        yield Ok(Step::Value(Event::TurnStarted {
            turn: state.model_calls,
            model: agent.provider.model().to_owned(),
            transition: state.transition,
        }));
        let turn = agent.provider.stream_turn(agent.request(&state.history));
        let mut steps = std::pin::pin!(
            turn.on_turn_complete(async |turn| perform(&agent, &control, state, &turn))
        );
        while let Some(step) = steps.next().await {
            yield step;
        }
    }
}

/// Acts on a complete turn.
fn perform(
    agent: &Agent,
    control: &Control,
    state: State,
    turn: &Arc<Turn>,
) -> Result<Steps<'static, State>, Error> {
    let limits = agent.limits;
    let answers = agent.kit.run(&state.history, turn);
    let mut decision = decide(&state, turn, limits, control.is_steered());
    if decision.is_completed() {
        let objection = agent.checks.objection(turn)?;
        decision = after_validation(&state, objection.as_deref(), limits);
    }
    Ok(match decision {
        Decision::RunTools => answers.then_steps(move |history, results| {
            let kinds: Vec<ResultKind> = results.iter().map(|result| result.kind).collect();
            let answered = after_tools(&state, &kinds, limits);
            let malformed = malformed(&state, &kinds);
            State { history, malformed, asked_again: false, ..state }.go(answered)
        }),
        Decision::Answer(answered) => answers.then_steps(move |history, _| {
            // Only a stop reason that is not understood has a corrective here.
            let asked_again = answered == Answered::Continue(Transition::Corrective);
            State { history, asked_again, malformed: 0, ..state }.go(answered)
        }),
        Decision::Correct(text) => {
            let id = agent.ids.draw();
            answers.then_steps(move |mut history, _| {
                let corrective = Item::user(text.into_owned());
                history.push(corrective.clone());
                let appended =
                    Event::Appended { why: AppendedWhy::Corrective, id, items: vec![corrective] };
                let malformed = state.malformed + 1;
                let state = State { history, malformed, ..state };
                state.go(Answered::Continue(Transition::Corrective)).after([appended])
            })
        }
    })
}

impl State {
    /// The steps that end a lap.
    fn go(self, answered: Answered) -> Steps<'static, Self> {
        match answered {
            Answered::Finish(reason) => Steps::stop_with(self.end(reason)),
            Answered::Continue(reason) => {
                let turns = u32::from(reason == Transition::NextTurn);
                let turn_count = self.turn_count + turns;
                let next = Self { turn_count, transition: Some(reason), ..self };
                Steps::next(next).after([Event::Continued { reason }])
            }
        }
    }

    fn end(self, reason: Reason) -> Self {
        Self { ending: Some(reason), ..self }
    }
}
