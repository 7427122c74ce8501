//! How the agent keeps its history shorter than the model's window.

use serde::{Deserialize, Serialize};

use crate::agent::within::{caught, within};
use crate::agent::{Agent, RunContext, State};
use crate::context::{self, Compaction, CompactionFailure, Compactor};
use crate::error::{Error, ErrorKind};
use crate::event::{Event, RewrittenWhy};
use crate::item::History;
use crate::usage::Usage;
use crate::world::Kind;

const COMPACTOR: &str = "the compactor";
pub(super) const COUNTER: &str = "the counter of the window";

/// What is remembered of the requests that near the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Above how many tokens the history is made shorter next, where that is not the limit.
    above: Option<u64>,
    /// What a provider has counted where `guessed` was the guess.
    counted: u64,
    guessed: u64,
    /// How many turns were complete when an item became void last: what a provider has counted in
    /// these counts the item.
    stale_turns: usize,
}

/// What an attempt to make a history shorter came to.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Compacted {
    #[serde(skip_serializing_if = "Option::is_none")]
    compaction: Option<Compaction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
    /// What was used until the error.
    #[serde(skip_serializing_if = "is_zero")]
    usage: Usage,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_too_late: bool,
}

fn is_zero(usage: &Usage) -> bool {
    *usage == Usage::default()
}

impl From<Result<Option<Compaction>, Error>> for Compacted {
    fn from(made: Result<Option<Compaction>, Error>) -> Self {
        match made {
            Ok(compaction) => Self { compaction, ..Self::default() },
            Err(error) => {
                let usage = CompactionFailure::usage_of(&error);
                Self { usage, error: Some(error), ..Self::default() }
            }
        }
    }
}

impl Room {
    /// An item of the history has become void.
    pub(super) fn is_void(&mut self, history: &History) {
        self.stale_turns = history.completed_turns();
    }

    /// A guess, made larger by as much as the last one was too low, at most twice as large: what a
    /// provider has counted besides, such as what it found itself, may be gone.
    fn corrected(self, guess: u64) -> u64 {
        let guessed = self.guessed.max(1);
        let counted = self.counted.clamp(guessed, guessed.saturating_mul(2));
        let corrected = u128::from(guess) * u128::from(counted) / u128::from(guessed);
        u64::try_from(corrected).unwrap_or(u64::MAX)
    }
}

impl RunContext {
    /// Makes the history shorter before a request: [old turns](crate::Agent::with_ageing), and then
    /// for a request that nears the [window](crate::Agent::with_window). Call it until it is `None`,
    /// which says that the request is to be sent.
    ///
    /// Once a request was too long, the compactor is asked until it is a quarter below the limit, so
    /// that not every request changes what stands in front of it. Hooks are told of a compaction
    /// that came to nothing; it is tried again when the request has grown by a twentieth of the window.
    pub fn make_room(&self, state: &mut State) -> impl Future<Output = Option<Event>> + Send {
        // Boxed, as in `request`.
        Box::pin(async move {
            let agent = self.agent();
            if let Some(compaction) = self.aged(&state.history) {
                return self.told(state, Ok(Some(compaction)));
            }
            let window = agent.window.as_ref()?;
            agent.compactor.as_ref()?;
            let request = agent.request(&state.history);
            let limit = window.limit(&request.options);
            let room = state.room;
            let near = caught(COUNTER, || {
                let is_fresh = state.history.completed_turns() > room.stale_turns;
                let counted = window.counted(&request).filter(|_| is_fresh);
                let now = counted.unwrap_or_else(|| room.corrected(window.guess(&request)));
                let is_near = now > room.above.unwrap_or(limit);
                is_near.then(|| (counted, now, window.guess(&request)))
            });
            let (counted, now, guess) = match near {
                Ok(Some(near)) => near,
                Ok(None) => {
                    state.room.above = room.above.filter(|above| *above > limit);
                    return None;
                }
                Err(panicked) => return self.told(state, Err(panicked)),
            };
            // Boxed, so that it takes no room in the body for all of the lap.
            let made = Box::pin(self.made(state, move |agent, compaction, history| {
                let compaction = context::recorded(compaction, history);
                let mut shorter = history.clone();
                compaction.apply(&mut shorter);
                let window = agent.window.as_ref();
                match window.is_none_or(|it| it.guess(&agent.request(&shorter)) < guess) {
                    true => Ok(compaction),
                    false => Err(unusable("the history would not get shorter")),
                }
            }));
            let made = made.await?;
            if let Some(counted) = counted {
                (state.room.counted, state.room.guessed) = (counted, guess);
            }
            let made = match made {
                Ok(None) if now > limit => Err(unusable("there is nothing to make shorter")),
                made => made,
            };
            state.room.above = Some(match &made {
                // What is asked again at once gets shorter each time, and so comes to an end.
                Ok(Some(_)) => limit - limit / 4,
                Ok(None) | Err(_) => limit.max(now.saturating_add(window.tokens() / 20)),
            });
            self.told(state, made)
        })
    }

    /// What is to be replaced since turns have become old.
    fn aged(&self, history: &History) -> Option<Compaction> {
        let compaction = self.agent().ageing?.shorten(history)?;
        let compaction = context::recorded(compaction, history);
        compaction.check(history).is_ok().then_some(compaction)
    }

    /// Makes a history shorter that did not fit, which then [says so](context::was_compacted). `None`,
    /// or an event that replaces nothing, says that it cannot be; hooks are told why.
    pub fn compact(&self, state: &mut State) -> impl Future<Output = Option<Event>> + Send {
        // Boxed, as in `request`.
        Box::pin(async move {
            self.agent().compactor.as_ref()?;
            let made =
                Box::pin(self.made(state, |_, compaction, history| {
                    Ok(context::reactive(compaction, history))
                }));
            let made = made.await?;
            if let Ok(Some(_)) = &made {
                state.room.above = None;
            }
            self.told(state, made)
        })
    }

    /// Asks for a compaction that can be used; `None` if the time for that is over.
    async fn made(
        &self,
        state: &State,
        finish: impl Fn(&Agent, Compaction, &History) -> Result<Compaction, Error>
        + Send
        + Sync
        + 'static,
    ) -> Option<Result<Option<Compaction>, Error>> {
        let (cx, state) = (self.clone(), state.clone());
        let compact = async move {
            if cx.is_too_late(&state) {
                return Ok(Compacted { is_too_late: true, ..Compacted::default() });
            }
            let Some(compactor) = &cx.agent().compactor else {
                return Ok(Compacted::default());
            };
            let finish = |compaction, history: &History| finish(cx.agent(), compaction, history);
            let made = cx.asked(&**compactor, &state.history, finish).await;
            Ok(Compacted::from(made))
        };
        match self.effects().perform(Kind::Compacted, compact).await {
            Ok(Compacted { is_too_late: true, .. }) => None,
            Ok(Compacted { error: Some(error), usage, .. }) => {
                Some(Err(CompactionFailure::wrap(error, usage)))
            }
            Ok(Compacted { compaction, .. }) => Some(Ok(compaction)),
            Err(error) => Some(Err(error)),
        }
    }

    async fn asked(
        &self,
        compactor: &dyn Compactor,
        history: &History,
        finish: impl Fn(Compaction, &History) -> Result<Compaction, Error>,
    ) -> Result<Option<Compaction>, Error> {
        let limit = self.agent().compactor_timeout;
        // A compaction is open like a request: it ends with the time of the run.
        self.control().request_is_open();
        let made = within(COMPACTOR, limit, || compactor.compact(history)).await;
        self.control().request_is_closed();
        let made = made?;
        let Some(compaction) = made? else {
            return Ok(None);
        };
        let usage = compaction.usage;
        let finished = caught(COUNTER, || finish(compaction, history));
        let finished = finished.and_then(|finished| {
            let compaction = finished?;
            compaction.check(history)?;
            Ok(Some(compaction))
        });
        finished.map_err(|error| CompactionFailure::wrap(error, usage))
    }

    /// Tells what came of a compaction.
    fn told(&self, state: &State, made: Result<Option<Compaction>, Error>) -> Option<Event> {
        let why = RewrittenWhy::Compacted;
        match made {
            Ok(compaction) => {
                let compaction = compaction?;
                self.pay(state, compaction.usage, compaction.model.as_deref());
                let Compaction { from, to, items, usage, model: _ } = compaction;
                Some(Event::Rewritten { why, from, to, items, usage })
            }
            Err(error) => {
                self.agent().hooks.failure(state, &error);
                let usage = CompactionFailure::usage_of(&error);
                self.pay(state, usage, None);
                let paid = usage != Usage::default();
                paid.then(|| Event::Rewritten { why, from: 0, to: 0, items: Vec::new(), usage })
            }
        }
    }

    /// What comes on top next is counted at the price of the model that has made the compaction, or
    /// else of the agent's.
    fn pay(&self, state: &State, usage: Usage, model: Option<&str>) {
        if usage == Usage::default() {
            return;
        }
        let budget = &self.agent().budget;
        let price = |model: &str| budget.price_of(model).ok().flatten();
        let price = model.and_then(price).or_else(|| price(self.provider(state).model()));
        // What was used until here was the last model's.
        self.spent(state);
        if price.is_some() {
            self.control().set_price(price);
        }
    }
}

fn unusable(what: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, format!("the compaction cannot be used: {what}"))
}
