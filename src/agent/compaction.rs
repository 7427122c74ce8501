//! How the agent keeps its history shorter than the model's window.

use serde::{Deserialize, Serialize};

use crate::agent::State;
use crate::agent::settings::Settings;
use crate::agent::shared::Shared;
use crate::agent::within::{COUNTER, caught, within};
use crate::context::{self, Compaction, CompactionFailure, Compactor};
use crate::error::{Error, ErrorKind};
use crate::event::{Event, RewrittenWhy};
use crate::item::History;
use crate::usage::Usage;
use crate::world::Kind;

const COMPACTOR: &str = "the compactor";

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

/// Makes the history shorter before a request: old turns, and then for a request that nears the window.
pub(super) async fn make_room(run: &Shared, state: State) -> (State, Option<Event>) {
    let settings = &run.settings;
    if let Some(compaction) = aged(settings, &state.history) {
        let event = told(run, &state, Ok(Some(compaction)));
        return (state, event);
    }
    let (Some(window), Some(_)) = (&settings.memory.window, &settings.memory.compactor) else {
        return (state, None);
    };
    let request = settings.request(&state.history);
    let limit = window.threshold(&request.options);
    let room = state.room;
    let near = caught(COUNTER, || {
        let counted =
            window.estimate_from_usage(&request).filter(|_| room.is_fresh(&state.history));
        let now = counted.unwrap_or_else(|| room.corrected(window.count_request(&request)));
        (now > room.limit(limit)).then(|| (counted, now, window.count_request(&request)))
    });
    let (counted, now, guess) = match near {
        Ok(Some(near)) => near,
        Ok(None) => return (state.with(|it| it.room = room.after_short(limit)), None),
        Err(panicked) => {
            let event = told(run, &state, Err(panicked));
            return (state, event);
        }
    };
    // Boxed, so that it takes no room in the body for all of the lap.
    let made = Box::pin(made(run, &state, move |settings, compaction, history| {
        let compaction = context::record_stale_usage(compaction, history);
        let mut shorter = history.clone();
        compaction.apply(&mut shorter);
        let window = settings.memory.window.as_ref();
        match window.is_none_or(|it| it.count_request(&settings.request(&shorter)) < guess) {
            true => Ok(compaction),
            false => Err(unusable("the history would not get shorter")),
        }
    }));
    let Some(made) = made.await else { return (state, None) };
    let made = match made {
        Ok(None) if now > limit => Err(unusable("there is nothing to make shorter")),
        made => made,
    };
    let above = match &made {
        // What is asked again at once gets shorter each time, and so comes to an end.
        Ok(Some(_)) => limit - limit / 4,
        Ok(None) | Err(_) => limit.max(now.saturating_add(window.tokens() / 20)),
    };
    let state = state.with(|it| it.room = room.after_attempt(counted, guess, above));
    let event = told(run, &state, made);
    (state, event)
}

/// What is to be replaced since turns have become old.
fn aged(settings: &Settings, history: &History) -> Option<Compaction> {
    let compaction = settings.memory.ageing?.compaction(history)?;
    let compaction = context::record_stale_usage(compaction, history);
    compaction.check(history).is_ok().then_some(compaction)
}

/// Makes a history shorter that did not fit.
pub(super) async fn compact(run: &Shared, state: State) -> (State, Option<Event>) {
    if run.settings.memory.compactor.is_none() {
        return (state, None);
    }
    let made = Box::pin(made(run, &state, |_, compaction, history| {
        Ok(context::mark_reactive(compaction, history))
    }));
    let Some(made) = made.await else { return (state, None) };
    let room = match &made {
        Ok(Some(_)) => state.room.after_compaction(),
        Ok(None) | Err(_) => state.room,
    };
    let state = state.with(|it| it.room = room);
    let event = told(run, &state, made);
    (state, event)
}

/// Asks for a compaction that can be used; `None` if the time for that is over.
async fn made(
    run: &Shared,
    state: &State,
    finish: impl Fn(&Settings, Compaction, &History) -> Result<Compaction, Error>
    + Send
    + Sync
    + 'static,
) -> Option<Result<Option<Compaction>, Error>> {
    let (run_now, state) = (run.clone(), state.clone());
    let compact = async move {
        if run_now.is_too_late(&state) {
            return Ok(Compacted { is_too_late: true, ..Compacted::default() });
        }
        let settings = &run_now.settings;
        let Some(compactor) = &settings.memory.compactor else {
            return Ok(Compacted::default());
        };
        let finish = |compaction, history: &History| finish(settings, compaction, history);
        let made = asked(&run_now, &**compactor, &state.history, finish).await;
        Ok(Compacted::from(made))
    };
    match run.effects.perform(Kind::Compacted, compact).await {
        Ok(Compacted { is_too_late: true, .. }) => None,
        Ok(Compacted { error: Some(error), usage, .. }) => {
            Some(Err(CompactionFailure::attach_usage(error, usage)))
        }
        Ok(Compacted { compaction, .. }) => Some(Ok(compaction)),
        Err(error) => Some(Err(error)),
    }
}

async fn asked(
    run: &Shared,
    compactor: &dyn Compactor,
    history: &History,
    finish: impl Fn(Compaction, &History) -> Result<Compaction, Error>,
) -> Result<Option<Compaction>, Error> {
    let limit = run.settings.memory.compactor_timeout;
    // A compaction is open like a request: it ends with the time of the run.
    run.control().request_is_open();
    let made = within(COMPACTOR, limit, || compactor.compact(history)).await;
    run.control().request_is_closed();
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
    finished.map_err(|error| CompactionFailure::attach_usage(error, usage))
}

/// Tells what came of a compaction.
fn told(run: &Shared, state: &State, made: Result<Option<Compaction>, Error>) -> Option<Event> {
    let why = RewrittenWhy::Compacted;
    match made {
        Ok(compaction) => {
            let Compaction { from, to, items, usage, model } = compaction?;
            pay(run, state, usage, model.as_deref());
            Some(Event::Rewritten { why, from, to, items, usage })
        }
        Err(error) => {
            run.hooks().failure(state, &error);
            let usage = CompactionFailure::usage_of(&error);
            pay(run, state, usage, None);
            let paid = usage != Usage::default();
            paid.then(|| Event::Rewritten { why, from: 0, to: 0, items: Vec::new(), usage })
        }
    }
}

/// What comes on top next is counted at the price of the model that has made the compaction, or
/// else of the agent's.
fn pay(run: &Shared, state: &State, usage: Usage, model: Option<&str>) {
    if usage == Usage::default() {
        return;
    }
    let budget = &run.settings.bounds.budget;
    let price = |model: &str| budget.price_of(model).ok().flatten();
    let price = model.and_then(price).or_else(|| price(run.provider(state).model()));
    // What was used until here was the last model's.
    run.spent(state);
    if price.is_some() {
        run.control().set_price(price);
    }
}

fn unusable(what: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, format!("the compaction cannot be used: {what}"))
}
