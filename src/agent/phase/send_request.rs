//! Builds and sends the request for a turn.

use std::sync::{Arc, Mutex};

use futures::{StreamExt, future, stream};

use crate::agent::State;
use crate::agent::decide::ends_with_tool_result;
use crate::agent::phase::list_tools::{needs_listing, refresh_tools};
use crate::agent::phase::prepare_request::PreparedRequest;
use crate::agent::phase::wait_for_pool::{estimate_request, wait_for_pool};
use crate::agent::run::run_shared::RunShared;
use crate::agent::settings::offered_tools;
use crate::error::{Error, ErrorKind};
use crate::event::Transition;
use crate::lock::lock_ignoring_poison;
use crate::provider::should_fall_back;
use crate::request::{Request, ToolChoice, has_unknown_token, restore_tokens};
use crate::stream::{InterruptTurn, TurnStream, seal};
use crate::turn::{TurnBuilder, TurnEvent};
use crate::world::EffectKind;

/// Builds the next request from the state, and waits until it may be sent.
pub(in crate::agent) async fn next_request(
    run: &RunShared,
    state: State,
) -> Result<(State, Option<Box<Request>>), Error> {
    if run.control().work.has_unobserved_changes() {
        let why = "a request was made before the run had an event that changes the history: the body did \
                   not yield it, or is polled ahead of the run";
        return Err(Error::new(ErrorKind::InvalidRequest, why));
    }
    // A custom body may not have listed the tools.
    if needs_listing(run, &state) {
        Box::pin(refresh_tools(run, &state)).await?;
    }
    let counted = state.clone().update(|it| it.counts.model_calls += 1);
    run.control().work.has_incomplete_turn.set(false);
    // The results of the calls that have started are already in the history.
    drop(run.control().tools.take_started_calls());
    let request = prepare_request(run, &counted).await?;
    request.validate()?;
    let model = request.model.as_deref().unwrap_or(run.provider(&counted).model());
    let model = Arc::from(model);
    let budget = &run.settings.limits.budget;
    let rate = budget.rate(&model, run.request_time());
    budget.check_rate(&rate)?;
    if !wait_for_pool(run, &counted, &request, &rate).await? {
        return Ok((state, None));
    }
    if let Some(contexts) = run.trace_contexts() {
        contexts.set_request_input(&request.context);
    }
    let is_whole_kit = run.toolkit().offers_all(&request.tools);
    let offered = (!is_whole_kit).then(|| request.tools.clone());
    // The usage so far belongs to the previous request.
    run.budget_usage(&counted);
    run.control().usage.begin_request(rate);
    let state = counted.update(|it| {
        (it.model_selection.model, it.model_selection.offered_tools) = (model, offered);
    });
    Ok((state, Some(Box::new(request))))
}

/// Builds the request, without the changes made by hooks.
fn plain_request(run: &RunShared, state: &State) -> Request {
    let toolkit = run.toolkit();
    let tools = offered_tools(&toolkit, run.provider(state));
    let mut request = run.settings.build_request(&toolkit, tools, &state.history);
    if state.end.wrap_up_reason.is_some() {
        // The provider must not use them either, because they cost money.
        request.options.server_tools.clear();
    }
    if state.end.wrap_up_reason.is_some() && !request.tools.is_empty() {
        // The tools stay in the request so that it matches the provider's cached prefix.
        request.options.tool_choice = ToolChoice::None;
    } else if request.options.tool_choice.requires_call()
        && answered_turns(state) >= run.settings.limits.limits.forced_tool_turns
    {
        let choice = std::mem::take(&mut request.options.tool_choice);
        request.options.tool_choice = choice.without_requirement();
    }
    request
}

/// Builds the request, including the changes made by hooks or, in a replay, the recorded changes.
async fn prepare_request(run: &RunShared, state: &State) -> Result<Request, Error> {
    let request = plain_request(run, state);
    if run.hooks().is_empty() {
        // If there are no hooks, nothing needs to be cloned.
        let unchanged = future::ready(Ok(PreparedRequest::default()));
        let prepared = run.effects.perform(EffectKind::PreparedRequest, unchanged).await?;
        return Ok(prepared.into_request(request));
    }
    let (hooks, state, plain) = (run.hooks().clone(), state.clone(), request.clone());
    // A world may return what it has stored, which does not contain the tokens of MCP servers.
    let with_tokens = Arc::new(Mutex::new(Vec::new()));
    let computed = Arc::clone(&with_tokens);
    let prepare = async move {
        let request = Box::new(hooks.transform_request(&state, plain.clone()).await?);
        lock_ignoring_poison(&computed).clone_from(&request.options.server_tools);
        for error in state.helpers.take_failures() {
            hooks.on_failure(&state, &error);
        }
        Ok(PreparedRequest::Computed { original: Box::new(plain), prepared: request })
    };
    let prepared = run.perform_hooks(EffectKind::PreparedRequest, prepare).await?;
    let mut request = prepared.into_request(request);
    restore_tokens(&mut request.options.server_tools, &lock_ignoring_poison(&with_tokens));
    Ok(request)
}

/// Asks the hooks again for the tokens of MCP servers that an earlier attempt has not stored.
async fn request_tokens(
    run: &RunShared,
    state: &State,
    mut request: Request,
) -> Result<Request, Error> {
    let again = run.hooks().prepare_request(state, plain_request(run, state)).await?;
    restore_tokens(&mut request.options.server_tools, &again.options.server_tools);
    Ok(request)
}

/// Returns the number of turns whose calls have been answered in this run. If the run continues an
/// earlier run after its calls were answered, their turn counts too.
fn answered_turns(state: &State) -> u32 {
    let has_no_turn_yet =
        matches!(state.transition, None | Some(Transition::Retry | Transition::Fallback));
    let continues_after_results = has_no_turn_yet && ends_with_tool_result(state);
    state.counts.tool_turns.max(u32::from(continues_after_results))
}

/// Returns a stream that sends the request when first polled, and then yields the turn's events.
/// Also starts the hooks that observe the start of the turn.
pub(in crate::agent) fn send_request(
    run: &RunShared,
    state: &State,
    request: Request,
) -> TurnStream {
    let (sending, now) = (run.clone(), state.clone());
    let send = move |request| stream_turn(sending, now, request);
    let turn = run.effects.turn(request, Box::new(send));
    let hooks = run.hooks();
    if !hooks.is_empty() {
        let state = Arc::new(state.clone());
        run.control().observers.start(hooks, hooks.turn_started(&state));
    }
    turn
}

/// Sends a request, unless the run has no time left for the request. If no time is left, the
/// returned stream stays pending, and the next poll of the run ends the work in progress. If the
/// provider has a fallback, errors that the fallback can handle are returned to the loop instead of
/// being retried by the provider.
fn stream_turn(run: RunShared, state: State, mut request: Request) -> TurnStream {
    if run.is_time_over(&state) {
        return seal(&request, stream::pending::<Result<TurnEvent, Error>>());
    }
    if state.model_selection.provider_index < run.settings.providers.fallbacks.len() {
        let left = fallback_predicate(&run, &state);
        // A failed generation is corrected before a fallback is used.
        request.retries = request.retries.with_exception(move |error| {
            let kind = error.kind();
            should_fall_back(kind) && kind != ErrorKind::GenerationFailed && left()
        });
    }
    // A hook may have set a context.
    if let (None, Some(contexts)) = (&request.trace_context, run.trace_contexts()) {
        request.trace_context = contexts.request();
    }
    run.control().work.request_in_flight.set(true);
    let max_output_tokens = request.options.max_output_tokens;
    let turn = match has_unknown_token(&request.options.server_tools) {
        true => stream_with_tokens(run.clone(), state.clone(), request),
        false => run.provider(&state).stream_turn(request),
    };
    turn.with_limits(run.settings.limits.limits.max_turn_bytes, max_output_tokens)
        .interrupted_by(TurnInterrupt { run, state })
}

/// Sends a request in which the token of an MCP server is unknown.
fn stream_with_tokens(run: RunShared, state: State, request: Request) -> TurnStream {
    let turn = TurnBuilder::from(&request);
    let send = async move {
        match request_tokens(&run, &state, request).await {
            Ok(request) => run.provider(&state).stream_turn(request).left_stream(),
            Err(error) => stream::iter([Err(error)]).right_stream(),
        }
    };
    seal(turn, stream::once(send).flatten())
}

/// Interrupts a turn when a handle requests it.
struct TurnInterrupt {
    run: RunShared,
    state: State,
}

impl InterruptTurn for TurnInterrupt {
    fn is_requested(&self) -> bool {
        self.run.control().signals.turn_interrupted.get()
    }

    fn estimate_request_tokens(&self) -> u64 {
        let (run, state) = (&self.run, &self.state);
        let toolkit = run.toolkit();
        let tools = offered_tools(&toolkit, run.provider(state));
        let request = run.settings.build_request(&toolkit, tools, &state.history);
        estimate_request(run, &request)
    }
}

/// Returns a function that checks, each time it is called, whether the loop could use a fallback if
/// the request for this state failed. The function becomes part of the request, which a provider
/// may keep, so the function holds only the run's limits and handle.
fn fallback_predicate(run: &RunShared, state: &State) -> impl Fn() -> bool + Send + Sync + 'static {
    let (budget, limits) = (run.settings.limits.budget.clone(), run.settings.limits.limits);
    let (calls, wraps_up) = (state.counts.model_calls, state.end.wrap_up_reason.is_some());
    let (handle, tool_calls) = (Arc::clone(&run.handle), state.counts.tool_calls);
    move || {
        let control = &handle.control;
        let spent = control.usage.projected(handle.usage(), tool_calls);
        !wraps_up
            && !control.signals.stop_requested.get()
            && calls < limits.turns_before_wrap_up(budget.has_wrap_up())
            && budget.exceeded_limit(&spent).is_none()
    }
}
