//! Who is asked when the model has stopped by itself.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::budget::Nudging;
use crate::agent::evidence::Verdict;
use crate::agent::facts::facts;
use crate::agent::hook::OnStop;
use crate::agent::shared::Shared;
use crate::agent::{self, AtStop, Next, State};
use crate::error::{Error, ErrorKind, catch_panic, panic_to_error};
use crate::event::{BudgetKind, Exceeded, Transition};
use crate::item::Evidence;
use crate::turn::Turn;
use crate::world::Kind;

/// What those who may object to an end have said.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Objection {
    #[serde(skip_serializing_if = "Option::is_none")]
    said: Option<Said>,
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
    /// The policy on evidence sends the model back.
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

impl Said {
    fn of(said: OnStop) -> (Option<Self>, String) {
        let (said, text) = match said {
            OnStop::LetGo => return (None, String::new()),
            OnStop::Block(text) => (Self::Block, text),
            OnStop::Prevent(text) => (Self::Prevent, text),
            OnStop::Blocked(text) => (Self::Blocked, text),
            OnStop::Unproven(text) => (Self::Unproven, text),
        };
        (Some(said), text)
    }

    fn with(self, text: String) -> AtStop {
        match self {
            Self::Objection => AtStop::Objection(text),
            Self::Block => AtStop::Hook(OnStop::Block(text)),
            Self::Prevent => AtStop::Hook(OnStop::Prevent(text)),
            Self::Blocked => AtStop::Hook(OnStop::Blocked(text)),
            Self::Unproven => AtStop::Hook(OnStop::Unproven(text)),
        }
    }
}

/// Asks the checks, the hooks, the policy on evidence and the token target, and decides.
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
    let room = known.has_room(&state);
    let ask = async move { objection(&asking, &now, &turn, room).await };
    let objection: Objection = run.effects.perform(Kind::AtStop, ask).await?;
    let Objection { said, text, sends_back, keeps_sent_back } = objection;
    let (state, said) = match said.map(|said| said.with(text)) {
        None => nudge(run, state),
        Some(AtStop::Hook(
            said @ (OnStop::Prevent(_) | OnStop::Blocked(_) | OnStop::Unproven(_)),
        )) => {
            let why = said.why().map(str::to_owned);
            (state.with(|it| it.ending.why = why), AtStop::Hook(said))
        }
        Some(said) => (state, said),
    };
    let (state, known) = facts(run, state);
    let next = agent::at_stop(&state, said, &known);
    let goes_back = matches!(next, Next::Say { transition: Transition::StopHookBlocking, .. });
    let sent_back = state.claims.sent_back && keeps_sent_back || sends_back && goes_back;
    Ok((state.with(|it| it.claims.sent_back = sent_back), next))
}

/// What validations, stop hooks and the policy on evidence have to say.
async fn objection(
    run: &Shared,
    state: &State,
    turn: &Turn,
    room: bool,
) -> Result<Objection, Error> {
    let ending = proof_of(run, state, turn, room)?;
    // Whoever is blocked has no answer that could be checked.
    let objection = match ending {
        OnStop::Blocked(_) => None,
        OnStop::LetGo | OnStop::Block(_) | OnStop::Prevent(_) | OnStop::Unproven(_) => {
            run.settings.answers.checks.objection(turn)?
        }
    };
    let keeping = |(said, text)| Objection { said, text, sends_back: false, keeps_sent_back: true };
    if let Some(objection) = objection {
        return Ok(keeping((Some(Said::Objection), objection)));
    }
    let (said, text) = match run.hooks().stop(state, turn).await? {
        OnStop::LetGo => {
            let sends_back = matches!(ending, OnStop::Block(_));
            let keeps_sent_back = ending != OnStop::LetGo;
            let (said, text) = Said::of(ending);
            return Ok(Objection { said, text, sends_back, keeps_sent_back });
        }
        said => Said::of(said),
    };
    Ok(keeping((said, text)))
}

/// What the policy on evidence says to the end.
fn proof_of(run: &Shared, state: &State, turn: &Turn, room: bool) -> Result<OnStop, Error> {
    let Some(policy) = &run.settings.answers.evidence else { return Ok(OnStop::LetGo) };
    let said = || policy.at_stop(state, turn, room);
    panic_to_error(ErrorKind::Hook, "the policy on evidence", said)
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
    let policy = || {
        run.settings.answers.evidence.clone().unwrap_or_default().verdict(&state.claims.standing)
    };
    match catch_panic(policy) {
        Ok(Verdict::Proven(evidence)) => Some(Box::new(evidence)),
        Ok(Verdict::NothingChanged | Verdict::Unproven(_)) | Err(_) => None,
    }
}
