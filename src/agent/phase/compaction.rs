//! Keeps a run's history within the model's context window.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use serde::{Deserialize, Serialize};

use crate::agent::State;
use crate::agent::phase::token_count::provider_token_count;
use crate::agent::run::run_shared::RunShared;
use crate::agent::settings::{AgentSettings, CompactorSetting, offered_tools};
use crate::agent::timed_call::{TOKEN_COUNTER_NAME, call_with_timeout, catch_named_panic};
use crate::context::{self, BytesDiv4, Compaction, CompactionFailure, Truncator};
use crate::env::TimeLimit;
use crate::error::{Error, ErrorKind};
use crate::event::{Event, RewriteReason};
use crate::item::History;
use crate::request::{Request, ToolSpecs};
use crate::tool::Toolkit;
use crate::usage::Usage;
use crate::world::EffectKind;

const COMPACTOR_NAME: &str = "the compactor";

/// The default timeout for the compactor.
const DEFAULT_COMPACTOR_TIMEOUT: Duration = Duration::from_mins(2);

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

/// The size that a request should have after a compaction.
#[derive(Clone)]
struct CompactionGoal {
    settings: Arc<AgentSettings>,
    toolkit: Toolkit,
    tools: ToolSpecs,
    /// The maximum size, as an estimated number of tokens.
    max_tokens: u64,
}

impl CompactionGoal {
    fn new(run: &RunShared, state: &State) -> Self {
        let toolkit = run.toolkit().into_owned();
        let tools = offered_tools(&toolkit, run.provider(state));
        Self { settings: Arc::clone(&run.settings), toolkit, tools, max_tokens: u64::MAX }
    }

    /// Builds the request that would be sent for the history.
    fn request(&self, history: &History) -> Request {
        self.settings.build_request(&self.toolkit, self.tools.clone(), history)
    }

    /// Estimates the number of tokens in the request for the history, ignoring reported usage.
    fn count_tokens(&self, history: &History) -> u64 {
        let request = self.request(history);
        match &self.settings.context.window {
            Some(window) => window.count_request_tokens(&request),
            None => context::count_request_tokens(&request, &BytesDiv4),
        }
    }

    fn is_reached(&self, history: &History) -> bool {
        self.count_tokens(history) <= self.max_tokens
    }
}

/// Shortens the history before a request. If some turns have become old, only those turns are
/// shortened. Otherwise, if the request is close to filling the context window, the compactor is
/// called.
pub(in crate::agent) async fn compact_if_needed(
    run: &RunShared,
    state: State,
) -> (State, Option<Event>) {
    let settings = &run.settings;
    if let Some(compaction) = ageing_compaction(settings, &state.history) {
        let event = compaction_event(run, &state, Ok(Some(compaction)));
        return (state, event);
    }
    let Some(window) = settings.context.window.as_ref().filter(|_| settings.has_compactor()) else {
        return (state, None);
    };
    let window = &window.for_model(run.provider(&state).model());
    let goal = CompactionGoal::new(run, &state);
    let request = goal.request(&state.history);
    let limit = window.threshold(&request.options);
    let compaction = state.compaction;
    let estimated = catch_named_panic(TOKEN_COUNTER_NAME, || {
        let counted = window
            .estimate_from_usage(&request)
            .filter(|_| compaction.is_count_valid(&state.history));
        let now = counted.unwrap_or_else(|| {
            compaction.corrected_estimate(window.count_request_tokens(&request))
        });
        (counted, now)
    });
    // The future is boxed to keep the body's future small.
    let counted = match &estimated {
        Ok((_, now)) if window.uses_provider_counts() => {
            let (sizes, time) = ((*now, limit), compactor_time_limit(run));
            Box::pin(provider_token_count(run, &state, window, &request, sizes, time)).await
        }
        Ok(_) | Err(_) => None,
    };
    let near = estimated.and_then(|(reported, now)| {
        let (counted, now) = (counted.or(reported), counted.unwrap_or(now));
        let is_near = now > compaction.threshold_tokens(limit);
        let guess = || (counted, now, window.count_request_tokens(&request));
        catch_named_panic(TOKEN_COUNTER_NAME, || is_near.then(guess))
    });
    let (counted, now, guess) = match near {
        Ok(Some(near)) => near,
        Ok(None) => {
            return (
                state.update(|it| it.compaction = compaction.after_small_request(limit)),
                None,
            );
        }
        Err(panicked) => {
            let event = compaction_event(run, &state, Err(panicked));
            return (state, event);
        }
    };
    let low = target_tokens(limit);
    // The provider's count may differ from the estimate by a constant factor.
    let max_tokens = u128::from(low) * u128::from(guess) / u128::from(now.max(1));
    let max_tokens = u64::try_from(max_tokens).unwrap_or(u64::MAX);
    let goal = CompactionGoal { max_tokens, ..goal };
    // The future is boxed to keep the body's future small.
    let made = Box::pin(attempt_compaction(run, &state, goal, move |goal, compaction, history| {
        let compaction = context::record_stale_usage(compaction, history);
        let mut shorter = history.clone();
        compaction.apply(&mut shorter);
        match goal.count_tokens(&shorter) < guess {
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
        Ok(Some(_)) => low,
        Ok(None) | Err(_) => limit.max(now.saturating_add(window.tokens() / 20)),
    };
    let state = state.update(|it| it.compaction = compaction.after_attempt(counted, guess, above));
    let event = compaction_event(run, &state, made);
    (state, event)
}

/// Returns the number of tokens to which a request is shortened when it exceeds `limit` tokens.
fn target_tokens(limit: u64) -> u64 {
    limit - limit / 4
}

/// Returns a compaction of the turns that have become old, if any.
fn ageing_compaction(settings: &AgentSettings, history: &History) -> Option<Compaction> {
    let compaction = settings.context.ageing?.plan_compaction(history)?;
    let compaction = context::record_stale_usage(compaction, history);
    compaction.validate(history).is_ok().then_some(compaction)
}

/// Compacts a history that has exceeded the model's context window.
pub(in crate::agent) async fn compact(run: &RunShared, state: State) -> (State, Option<Event>) {
    if !run.settings.has_compactor() {
        return (state, None);
    }
    let goal = CompactionGoal::new(run, &state);
    let goal = catch_named_panic(TOKEN_COUNTER_NAME, || {
        // The provider does not state by how much the request is too long.
        let half = goal.count_tokens(&state.history) / 2;
        let window = run.settings.context.window.as_ref();
        let window = window.map(|it| it.for_model(run.provider(&state).model()));
        let low = window.map(|it| target_tokens(it.threshold(&run.settings.prompt.options)));
        CompactionGoal { max_tokens: low.map_or(half, |low| low.min(half)), ..goal }
    });
    let made = match goal {
        Ok(goal) => {
            let made = attempt_compaction(run, &state, goal, |_, compaction, history| {
                Ok(context::mark_reactive_compaction(compaction, history))
            });
            let Some(made) = Box::pin(made).await else { return (state, None) };
            made
        }
        Err(panicked) => Err(panicked),
    };
    let compaction = match &made {
        Ok(Some(_)) => state.compaction.after_compaction(),
        Ok(None) | Err(_) => state.compaction,
    };
    let state = state.update(|it| it.compaction = compaction);
    let event = compaction_event(run, &state, made);
    (state, event)
}

/// Calls the compactor and checks its result. Returns `None` if the run's time limit has expired.
async fn attempt_compaction(
    run: &RunShared,
    state: &State,
    goal: CompactionGoal,
    finish: impl Fn(&CompactionGoal, Compaction, &History) -> Result<Compaction, Error>
    + Send
    + Sync
    + 'static,
) -> Option<Result<Option<Compaction>, Error>> {
    let (run_now, state) = (run.clone(), state.clone());
    let compact = async move {
        if run_now.is_time_over(&state) {
            return Ok(CompactionAttempt { is_too_late: true, ..CompactionAttempt::default() });
        }
        let history = &state.history;
        let compact = || match &run_now.settings.context.compactor {
            CompactorSetting::Default => {
                let fits = |history: &History| goal.is_reached(history);
                ready(Ok(Truncator::new().plan_to_fit(history, fits))).boxed()
            }
            CompactorSetting::Custom(compactor) => {
                compactor.compact_traced(history, run_now.trace_context())
            }
            CompactorSetting::Disabled => ready(Ok(None)).boxed(),
        };
        let finish = |compaction| finish(&goal, compaction, history);
        let made = call_compactor(&run_now, history, compact, finish).await;
        Ok(CompactionAttempt::from(made))
    };
    match run.effects.perform(EffectKind::Compaction, compact).await {
        Ok(CompactionAttempt { is_too_late: true, .. }) => None,
        Ok(CompactionAttempt { error: Some(error), usage, .. }) => {
            Some(Err(CompactionFailure::attach_usage(error, usage)))
        }
        Ok(CompactionAttempt { compaction, .. }) => Some(Ok(compaction)),
        Err(error) => Some(Err(error)),
    }
}

/// Returns the time limit for the compactor, and for counting tokens before a compaction.
fn compactor_time_limit(run: &RunShared) -> TimeLimit {
    let limits = &run.settings.limits.limits;
    TimeLimit::explicit_or(limits.compactor_timeout, DEFAULT_COMPACTOR_TIMEOUT)
}

async fn call_compactor(
    run: &RunShared,
    history: &History,
    compact: impl FnOnce() -> BoxFuture<'static, Result<Option<Compaction>, Error>>,
    finish: impl Fn(Compaction) -> Result<Compaction, Error>,
) -> Result<Option<Compaction>, Error> {
    let limit = compactor_time_limit(run);
    // A compaction counts as an open request, so it is dropped when the run's time limit expires.
    run.control().work.request_in_flight.set(true);
    let made = call_with_timeout(COMPACTOR_NAME, limit, compact).await;
    run.control().work.request_in_flight.set(false);
    let made = made?;
    let Some(compaction) = made? else {
        return Ok(None);
    };
    let usage = compaction.usage;
    let finished = catch_named_panic(TOKEN_COUNTER_NAME, || finish(compaction));
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
            run.charge_helper(state, usage, model.as_deref());
            Some(Event::Rewritten { why, from, to, items, usage: usage.into(), model })
        }
        Err(error) => {
            run.hooks().on_failure(state, &error);
            let usage = CompactionFailure::usage_of(&error);
            run.charge_helper(state, usage, None);
            let paid = usage != Usage::default();
            let (items, usage) = (Vec::new(), usage.into());
            paid.then_some(Event::Rewritten { why, from: 0, to: 0, items, usage, model: None })
        }
    }
}

fn unusable_compaction_error(what: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, format!("the compaction cannot be used: {what}"))
}
