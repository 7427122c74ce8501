//! Keeps a run's history within the model's context window.

use serde::{Deserialize, Serialize};

use crate::agent::State;
use crate::agent::run_shared::RunShared;
use crate::agent::settings::{AgentSettings, offered_tools};
use crate::agent::timed_call::{TOKEN_COUNTER_NAME, call_with_timeout, catch_named_panic};
use crate::context::{self, Compaction, CompactionFailure, Compactor};
use crate::error::{Error, ErrorKind};
use crate::event::{Event, RewriteReason};
use crate::item::History;
use crate::usage::Usage;
use crate::world::EffectKind;

const COMPACTOR_NAME: &str = "the compactor";

/// The result of an attempt to shorten a history.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct CompactionAttempt {
    #[serde(skip_serializing_if = "Option::is_none")]
    compaction: Option<Compaction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
    /// The tokens used before the error occurred.
    #[serde(skip_serializing_if = "is_zero")]
    usage: Usage,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_too_late: bool,
}

fn is_zero(usage: &Usage) -> bool {
    *usage == Usage::default()
}

impl From<Result<Option<Compaction>, Error>> for CompactionAttempt {
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

/// Shortens the history before a request. If some turns have become old, only those turns are
/// shortened. Otherwise, if the request is close to filling the context window, the compactor is
/// called.
pub(super) async fn compact_if_needed(run: &RunShared, state: State) -> (State, Option<Event>) {
    let settings = &run.settings;
    if let Some(compaction) = ageing_compaction(settings, &state.history) {
        let event = compaction_event(run, &state, Ok(Some(compaction)));
        return (state, event);
    }
    let (Some(window), Some(_)) = (&settings.context.window, &settings.context.compactor) else {
        return (state, None);
    };
    let toolkit = run.toolkit().into_owned();
    let tools = offered_tools(&toolkit, run.provider(&state));
    let request = settings.build_request(&toolkit, tools.clone(), &state.history);
    let limit = window.threshold(&request.options);
    let room = state.compaction;
    let near = catch_named_panic(TOKEN_COUNTER_NAME, || {
        let counted =
            window.estimate_from_usage(&request).filter(|_| room.is_count_valid(&state.history));
        let now = counted
            .unwrap_or_else(|| room.corrected_estimate(window.count_request_tokens(&request)));
        (now > room.threshold_tokens(limit))
            .then(|| (counted, now, window.count_request_tokens(&request)))
    });
    let (counted, now, guess) = match near {
        Ok(Some(near)) => near,
        Ok(None) => {
            return (state.update(|it| it.compaction = room.after_small_request(limit)), None);
        }
        Err(panicked) => {
            let event = compaction_event(run, &state, Err(panicked));
            return (state, event);
        }
    };
    // The future is boxed to keep the body's future small.
    let made = Box::pin(attempt_compaction(run, &state, move |settings, compaction, history| {
        let compaction = context::record_stale_usage(compaction, history);
        let mut shorter = history.clone();
        compaction.apply(&mut shorter);
        let window = settings.context.window.as_ref();
        let request = settings.build_request(&toolkit, tools.clone(), &shorter);
        match window.is_none_or(|it| it.count_request_tokens(&request) < guess) {
            true => Ok(compaction),
            false => Err(unusable_compaction_error("the history would not get shorter")),
        }
    }));
    let Some(made) = made.await else { return (state, None) };
    let made = match made {
        Ok(None) if now > limit => Err(unusable_compaction_error("there is nothing to shorten")),
        made => made,
    };
    let above = match &made {
        // The compactor is called again immediately. Each call shortens the history, so the number
        // of calls is bounded.
        Ok(Some(_)) => limit - limit / 4,
        Ok(None) | Err(_) => limit.max(now.saturating_add(window.tokens() / 20)),
    };
    let state = state.update(|it| it.compaction = room.after_attempt(counted, guess, above));
    let event = compaction_event(run, &state, made);
    (state, event)
}

/// Returns a compaction of the turns that have become old, if any.
fn ageing_compaction(settings: &AgentSettings, history: &History) -> Option<Compaction> {
    let compaction = settings.context.ageing?.plan_compaction(history)?;
    let compaction = context::record_stale_usage(compaction, history);
    compaction.validate(history).is_ok().then_some(compaction)
}

/// Compacts a history that has exceeded the model's context window.
pub(super) async fn compact(run: &RunShared, state: State) -> (State, Option<Event>) {
    if run.settings.context.compactor.is_none() {
        return (state, None);
    }
    let made = Box::pin(attempt_compaction(run, &state, |_, compaction, history| {
        Ok(context::mark_reactive_compaction(compaction, history))
    }));
    let Some(made) = made.await else { return (state, None) };
    let room = match &made {
        Ok(Some(_)) => state.compaction.after_compaction(),
        Ok(None) | Err(_) => state.compaction,
    };
    let state = state.update(|it| it.compaction = room);
    let event = compaction_event(run, &state, made);
    (state, event)
}

/// Calls the compactor and checks its result. Returns `None` if the run's time limit has expired.
async fn attempt_compaction(
    run: &RunShared,
    state: &State,
    finish: impl Fn(&AgentSettings, Compaction, &History) -> Result<Compaction, Error>
    + Send
    + Sync
    + 'static,
) -> Option<Result<Option<Compaction>, Error>> {
    let (run_now, state) = (run.clone(), state.clone());
    let compact = async move {
        if run_now.is_time_over(&state) {
            return Ok(CompactionAttempt { is_too_late: true, ..CompactionAttempt::default() });
        }
        let settings = &run_now.settings;
        let Some(compactor) = &settings.context.compactor else {
            return Ok(CompactionAttempt::default());
        };
        let finish = |compaction, history: &History| finish(settings, compaction, history);
        let made = call_compactor(&run_now, &**compactor, &state.history, finish).await;
        Ok(CompactionAttempt::from(made))
    };
    match run.effects.perform(EffectKind::Compacted, compact).await {
        Ok(CompactionAttempt { is_too_late: true, .. }) => None,
        Ok(CompactionAttempt { error: Some(error), usage, .. }) => {
            Some(Err(CompactionFailure::attach_usage(error, usage)))
        }
        Ok(CompactionAttempt { compaction, .. }) => Some(Ok(compaction)),
        Err(error) => Some(Err(error)),
    }
}

async fn call_compactor(
    run: &RunShared,
    compactor: &dyn Compactor,
    history: &History,
    finish: impl Fn(Compaction, &History) -> Result<Compaction, Error>,
) -> Result<Option<Compaction>, Error> {
    let limit = run.settings.context.compactor_timeout;
    // A compaction counts as an open request, so it is dropped when the run's time limit expires.
    run.control().begin_request();
    let made = call_with_timeout(COMPACTOR_NAME, limit, || compactor.compact(history)).await;
    run.control().end_request();
    let made = made?;
    let Some(compaction) = made? else {
        return Ok(None);
    };
    let usage = compaction.usage;
    let finished = catch_named_panic(TOKEN_COUNTER_NAME, || finish(compaction, history));
    let finished = finished.and_then(|finished| {
        let compaction = finished?;
        compaction.validate(history)?;
        Ok(Some(compaction))
    });
    finished.map_err(|error| CompactionFailure::attach_usage(error, usage))
}

/// Charges the tokens that a compaction used to the run's budget, and returns the event that
/// reports the compaction's result.
fn compaction_event(
    run: &RunShared,
    state: &State,
    made: Result<Option<Compaction>, Error>,
) -> Option<Event> {
    let why = RewriteReason::Compacted;
    match made {
        Ok(compaction) => {
            let Compaction { from, to, items, usage, model } = compaction?;
            charge_compaction(run, state, usage, model.as_deref());
            Some(Event::Rewritten { why, from, to, items, usage })
        }
        Err(error) => {
            run.hooks().on_failure(state, &error);
            let usage = CompactionFailure::usage_of(&error);
            charge_compaction(run, state, usage, None);
            let paid = usage != Usage::default();
            paid.then(|| Event::Rewritten { why, from: 0, to: 0, items: Vec::new(), usage })
        }
    }
}

/// Charges the tokens that a compaction used, at the price of the compactor's model or, if that
/// price is unknown, at the price of the agent's model.
fn charge_compaction(run: &RunShared, state: &State, usage: Usage, model: Option<&str>) {
    if usage == Usage::default() {
        return;
    }
    let budget = &run.settings.limits.budget;
    let price = |model: &str| budget.price_of(model).ok().flatten();
    let price = model.and_then(price).or_else(|| price(run.provider(state).model()));
    // The usage so far is charged at the price of the previous model.
    run.budget_usage(state);
    if price.is_some() {
        run.control().set_price(price);
    }
}

fn unusable_compaction_error(what: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, format!("the compaction cannot be used: {what}"))
}
