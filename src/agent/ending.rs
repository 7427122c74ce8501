//! Who is asked when the model has stopped by itself.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::budget::Nudging;
use crate::agent::evidence::Verdict;
use crate::agent::hook::OnStop;
use crate::agent::{AtStop, Next, RunContext, State, at_stop};
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

impl RunContext {
    /// Asks all who may object when the model has stopped by itself.
    ///
    /// # Errors
    ///
    /// [`Hook`](crate::ErrorKind::Hook) if a stop hook or a validation fails.
    pub fn at_stop(
        &self,
        state: &mut State,
        turn: &Arc<Turn>,
    ) -> impl Future<Output = Result<Next, Error>> + Send {
        // Boxed, as in `request`.
        Box::pin(async move {
            let facts = self.facts(state);
            let next = at_stop(state, AtStop::Fine, &facts);
            if next == Next::Continue(Transition::Steering) {
                // Stop hooks are not asked: the run goes on.
                return Ok(next);
            }
            let (cx, now, turn) = (self.clone(), state.clone(), Arc::clone(turn));
            let room = facts.has_room(state);
            let ask = async move { cx.objection(&now, &turn, room).await };
            let objection = self.effects().perform(Kind::AtStop, ask).await?;
            state.sent_back &= objection.keeps_sent_back;
            let Objection { said, text, sends_back, .. } = objection;
            let said = match said.map(|said| said.with(text)) {
                None => self.nudge(state),
                Some(said) => {
                    if let AtStop::Hook(
                        said @ (OnStop::Prevent(_) | OnStop::Blocked(_) | OnStop::Unproven(_)),
                    ) = &said
                    {
                        state.why = said.why().map(str::to_owned);
                    }
                    said
                }
            };
            let facts = self.facts(state);
            let next = at_stop(state, said, &facts);
            let goes_back =
                matches!(next, Next::Say { transition: Transition::StopHookBlocking, .. });
            state.sent_back |= sends_back && goes_back;
            Ok(next)
        })
    }

    /// What validations, stop hooks and the policy on evidence have to say.
    async fn objection(&self, state: &State, turn: &Turn, room: bool) -> Result<Objection, Error> {
        let ending = self.proof_of(state, turn, room)?;
        // Whoever is blocked has no answer that could be checked.
        let objection = match ending {
            OnStop::Blocked(_) => None,
            OnStop::LetGo | OnStop::Block(_) | OnStop::Prevent(_) | OnStop::Unproven(_) => {
                self.agent().checks.objection(turn)?
            }
        };
        let keeping =
            |(said, text)| Objection { said, text, sends_back: false, keeps_sent_back: true };
        if let Some(objection) = objection {
            return Ok(keeping((Some(Said::Objection), objection)));
        }
        let (said, text) = match self.agent().hooks.stop(state, turn).await? {
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
    fn proof_of(&self, state: &State, turn: &Turn, room: bool) -> Result<OnStop, Error> {
        let Some(policy) = &self.agent().evidence else { return Ok(OnStop::LetGo) };
        let said = || policy.at_stop(state, turn, room);
        panic_to_error(ErrorKind::Hook, "the policy on evidence", said)
    }

    /// What the token target has to say.
    fn nudge(&self, state: &mut State) -> AtStop {
        let Some(target) = self.agent().budget.wanted() else { return AtStop::Fine };
        let used = self.spent(state).usage.output_tokens;
        // Given up earlier, it may be reached by what followed.
        state.exceeded = state.exceeded.filter(|it| it.kind != BudgetKind::Target);
        match target.decide(state.target, used) {
            Nudging::GoOn { text, tracker } => {
                state.target = tracker;
                AtStop::Nudge(text)
            }
            Nudging::Stop { diminishing_returns } => {
                if diminishing_returns {
                    state.exceeded = Some(Exceeded {
                        kind: BudgetKind::Target,
                        used,
                        limit: target.tokens(),
                        diminishing_returns,
                    });
                }
                AtStop::Fine
            }
        }
    }

    /// The check that proves a run that ends as completed.
    pub(super) fn proof(&self, state: &State) -> Option<Box<Evidence>> {
        let policy = || self.agent().evidence.clone().unwrap_or_default().verdict(&state.standing);
        match catch_panic(policy) {
            Ok(Verdict::Proven(evidence)) => Some(Box::new(evidence)),
            Ok(Verdict::NothingChanged | Verdict::Unproven(_)) | Err(_) => None,
        }
    }
}
