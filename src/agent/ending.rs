//! Who is asked when the model has stopped by itself.

use crate::agent::budget::Nudging;
use crate::agent::evidence::Verdict;
use crate::agent::hook::OnStop;
use crate::agent::{AtStop, Facts, Next, Parts, State, at_stop};
use crate::error::{Error, ErrorKind, catch_panic, panic_to_error};
use crate::event::{BudgetKind, Exceeded, Transition};
use crate::item::Evidence;
use crate::turn::Turn;

impl Parts {
    /// Asks all who may object when the model has stopped by itself.
    ///
    /// # Errors
    ///
    /// [`Hook`](crate::ErrorKind::Hook) if a stop hook or a validation fails.
    pub fn at_stop(
        &self,
        state: &mut State,
        turn: &Turn,
    ) -> impl Future<Output = Result<Next, Error>> + Send {
        // Boxed, as in `request`.
        Box::pin(async move {
            let facts = self.facts(state);
            let next = at_stop(state, AtStop::Fine, &facts);
            if next == Next::Continue(Transition::Steering) {
                // Stop hooks are not asked: the run goes on.
                return Ok(next);
            }
            let (said, sends_back) = match self.tape().is_playing() {
                true => (AtStop::Fine, false),
                false => self.objection(state, turn, &facts).await?,
            };
            let said = match self.tape().at_stop(said) {
                AtStop::Fine | AtStop::Hook(OnStop::LetGo) => self.nudge(state),
                AtStop::Hook(
                    said @ (OnStop::Prevent(_) | OnStop::Blocked(_) | OnStop::Unproven(_)),
                ) => {
                    state.why = said.why().map(str::to_owned);
                    AtStop::Hook(said)
                }
                said @ (AtStop::Hook(OnStop::Block(_))
                | AtStop::Objection(_)
                | AtStop::Nudge(_)) => said,
            };
            let facts = self.facts(state);
            let next = at_stop(state, said, &facts);
            let goes_back =
                matches!(next, Next::Say { transition: Transition::StopHookBlocking, .. });
            state.sent_back |= sends_back && goes_back;
            Ok(next)
        })
    }

    /// What validations, stop hooks and the policy on evidence have to say, and whether it is that
    /// policy which sends the model back.
    async fn objection(
        &self,
        state: &mut State,
        turn: &Turn,
        facts: &Facts,
    ) -> Result<(AtStop, bool), Error> {
        let ending = self.proof_of(state, turn, facts)?;
        // Whoever is blocked has no answer that could be checked.
        let objection = match ending {
            OnStop::Blocked(_) => None,
            OnStop::LetGo | OnStop::Block(_) | OnStop::Prevent(_) | OnStop::Unproven(_) => {
                self.agent().checks.objection(turn)?
            }
        };
        if let Some(objection) = objection {
            return Ok((AtStop::Objection(objection), false));
        }
        let said = match self.agent().hooks.stop(state, turn).await? {
            OnStop::LetGo => {
                state.sent_back &= ending != OnStop::LetGo;
                let sends_back = matches!(ending, OnStop::Block(_));
                return Ok((AtStop::Hook(ending), sends_back));
            }
            said => said,
        };
        Ok((AtStop::Hook(said), false))
    }

    /// What the policy on evidence says to the end.
    fn proof_of(&self, state: &State, turn: &Turn, facts: &Facts) -> Result<OnStop, Error> {
        let Some(policy) = &self.agent().evidence else { return Ok(OnStop::LetGo) };
        let said = || policy.at_stop(state, turn, facts.has_room(state));
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
