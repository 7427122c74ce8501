//! Who is asked when the model has stopped by itself.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::budget::Nudging;
use crate::agent::evidence::Verdict;
use crate::agent::facts::facts;
use crate::agent::hook::OnStop;
use crate::agent::shared::Shared;
use crate::agent::{self, AtStop, Next, State};
use crate::error::Error;
use crate::event::{BudgetKind, Exceeded, Transition};
use crate::item::Evidence;
use crate::turn::Turn;
use crate::world::Kind;

/// What those who may object to an end have said, as it is recorded.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Objection {
    #[serde(skip_serializing_if = "Option::is_none")]
    said: Option<Said>,
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
    /// It is the one time that a claim is sent back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    sends_back: bool,
    /// A claim that was sent back before still counts as such.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    keeps_sent_back: bool,
}

/// Who objects, and how.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Objection,
    Block,
    Prevent,
    Blocked,
    Unproven,
}

impl Objection {
    fn new(said: Said, text: String) -> Self {
        Self { said: Some(said), text, sends_back: false, keeps_sent_back: true }
    }

    /// What hooks have said. `may_prove` is whether a claim may be sent back for its proof.
    fn of(said: OnStop, may_prove: bool) -> Self {
        match said {
            OnStop::LetGo => Self::default(),
            OnStop::Block(text) => Self::new(Said::Block, text),
            OnStop::Prevent(text) => Self::new(Said::Prevent, text),
            OnStop::Blocked(text) => Self::new(Said::Blocked, text),
            OnStop::Prove { text, .. } if may_prove => {
                Self { sends_back: true, ..Self::new(Said::Block, text) }
            }
            OnStop::Unproven(why) | OnStop::Prove { why, .. } => Self::new(Said::Unproven, why),
        }
    }

    fn at_stop(self) -> Option<AtStop> {
        let text = self.text;
        Some(AtStop::Hook(match self.said? {
            Said::Objection => return Some(AtStop::Objection(text)),
            Said::Block => OnStop::Block(text),
            Said::Prevent => OnStop::Prevent(text),
            Said::Blocked => OnStop::Blocked(text),
            Said::Unproven => OnStop::Unproven(text),
        }))
    }
}

/// Asks the checks, the hooks and the token target, and decides.
pub(super) async fn at_stop(
    run: &Shared,
    state: State,
    turn: &Arc<Turn>,
) -> Result<(State, Next), Error> {
    let (state, known) = facts(run, state);
    let next = agent::at_stop(&state, AtStop::Fine, &known);
    if next == Next::Continue(Transition::Steering) {
        // Stop hooks are not asked: the run goes on.
        return Ok((state, next));
    }
    let (asking, now, turn) = (run.clone(), state.clone(), Arc::clone(turn));
    // Judged before anybody is asked: what comes up meanwhile ends the run for its own reason.
    let may_prove = known.has_room(&state) && !state.claims.sent_back;
    let ask = async move { objection(&asking, &now, &turn, may_prove).await };
    let objection: Objection = run.effects.perform(Kind::AtStop, ask).await?;
    let (sends_back, keeps) = (objection.sends_back, objection.keeps_sent_back);
    let (state, said) = match objection.at_stop() {
        None => nudge(run, state),
        Some(said) => (state, said),
    };
    let why = match &said {
        AtStop::Hook(said @ (OnStop::Prevent(_) | OnStop::Blocked(_) | OnStop::Unproven(_))) => {
            said.why().map(str::to_owned)
        }
        AtStop::Hook(_) | AtStop::Objection(_) | AtStop::Nudge(_) | AtStop::Fine => None,
    };
    let (state, known) = facts(run, state);
    let next = agent::at_stop(&state, said, &known);
    let goes_back = matches!(next, Next::Say { transition: Transition::StopHookBlocking, .. });
    let state = state.with(|it| {
        it.claims.sent_back &= keeps;
        it.claims.sent_back |= sends_back && goes_back;
        it.ending.why = why.or(it.ending.why.take());
    });
    Ok((state, next))
}

/// What validations and stop hooks have to say.
async fn objection(
    run: &Shared,
    state: &State,
    turn: &Turn,
    may_prove: bool,
) -> Result<Objection, Error> {
    // A model that gives up has no answer that could be checked.
    if run.hooks().gives_up(state, turn)?.is_none()
        && let Some(objection) = run.settings.checks.objection(turn)?
    {
        return Ok(Objection::new(Said::Objection, objection));
    }
    Ok(Objection::of(run.hooks().stop(state, turn).await?, may_prove))
}

/// What the token target has to say.
fn nudge(run: &Shared, state: State) -> (State, AtStop) {
    let Some(target) = run.settings.bounds.budget.wanted() else { return (state, AtStop::Fine) };
    let used = run.spent(&state).usage.output_tokens;
    let decided = target.decide(state.target, used);
    let given_up = Exceeded {
        kind: BudgetKind::Target,
        used,
        limit: target.tokens(),
        diminishing_returns: true,
    };
    // Given up earlier, it may be reached by what followed.
    let before = state.ending.exceeded.filter(|it| it.kind != BudgetKind::Target);
    let (tracker, exceeded, said) = match decided {
        Nudging::GoOn { text, tracker } => (tracker, before, AtStop::Nudge(text)),
        Nudging::Stop { diminishing_returns: true } => (state.target, Some(given_up), AtStop::Fine),
        Nudging::Stop { diminishing_returns: false } => (state.target, before, AtStop::Fine),
    };
    let nudged = state.with(|it| (it.target, it.ending.exceeded) = (tracker, exceeded));
    (nudged, said)
}

/// The check that proves a run that ends as completed.
pub(super) fn proof(run: &Shared, state: &State) -> Option<Box<Evidence>> {
    let standing = || state.claims.standing.verdict();
    match run.hooks().judge(state).ok()?.unwrap_or_else(standing) {
        Verdict::Proven(evidence) => Some(Box::new(evidence)),
        Verdict::NothingChanged | Verdict::Unproven(_) => None,
    }
}
