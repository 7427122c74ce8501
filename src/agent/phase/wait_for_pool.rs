//! Waits for pool capacity before a request is sent.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::time::Instant;

use crate::agent::State;
use crate::agent::budget::{PoolAmount, Rate};
use crate::agent::run::control::DeliveryPoint;
use crate::agent::run::pool_claim::HeldCapacity;
use crate::agent::run::run_shared::RunShared;
use crate::agent::timed_call::{TOKEN_COUNTER_NAME, catch_named_panic};
use crate::context::{BytesDiv4, estimate_request_tokens};
use crate::error::Error;
use crate::propagation::TraceContexts;
use crate::request::Request;
use crate::world::EffectKind;

/// Waits until the run's pool has enough tokens, enough money and a slot for a request, and
/// acquires them. The tokens, the money and the slot are returned when the turn is over or the run
/// is dropped.
///
/// Returns whether the request should be sent. The request is not sent if the pool is exhausted, or
/// if something that must be handled first, such as steered input, arrived while the run was
/// waiting. In the latter case, the run keeps its position in the queue. If the future is dropped,
/// the run loses its position in the queue.
pub(in crate::agent) async fn wait_for_pool(
    run: &RunShared,
    state: &State,
    request: &Request,
    rate: &Rate,
) -> Result<bool, Error> {
    if run.settings.limits.budget.pool().is_none() {
        return Ok(true);
    }
    let (waiting, state) = (run.clone(), state.clone());
    let (request, rate) = (request.clone(), rate.clone());
    let admit = async move { Ok(!acquire_pool_capacity(&waiting, &state, &request, &rate).await) };
    let stopped_waiting = run.effects.perform(EffectKind::PoolWait, admit).await?;
    Ok(!stopped_waiting)
}

async fn acquire_pool_capacity(
    run: &RunShared,
    state: &State,
    request: &Request,
    rate: &Rate,
) -> bool {
    let Some(pool) = run.settings.limits.budget.pool() else { return true };
    let admission = &run.control().usage.pool_claim;
    // A custom body may not have finished the previous request.
    run.finish_request();
    let answer = request.options.max_output_tokens.map_or(pool.tokens_per_response(), u64::from);
    let amount = PoolAmount::for_request(estimate_request(run, request), answer, rate);
    let keeping = match state.end.wrap_up_reason {
        Some(_) => 0,
        None => run.settings.limits.budget.wrap_up_tokens(),
    };
    let mut wait = PoolWait::start(run);
    let first = admission.replace_yielded_queue_position(false);
    let reservation = pool.reserve_amount(amount, keeping).at_front(first);
    let yield_position = || {
        admission.replace_yielded_queue_position(true);
        false
    };
    let Some(reservation) = await_capacity(run, &mut wait, reservation).await else {
        return yield_position();
    };
    let Ok(reservation) = reservation else { return false };
    let slot = pool.queue_for_slot().at_front(first);
    let Some(slot) = await_capacity(run, &mut wait, slot).await else {
        drop(reservation);
        return yield_position();
    };
    if wait.has_waited && should_recheck_before_sending(run, state) {
        drop((slot, reservation));
        return yield_position();
    }
    admission.hold_capacity(HeldCapacity { _slot: slot, _reservation: reservation });
    true
}

/// A wait for capacity. Its time is recorded when it is dropped, also if the run ends meanwhile.
struct PoolWait {
    started_at: Instant,
    has_waited: bool,
    contexts: Option<Arc<TraceContexts>>,
}

impl PoolWait {
    fn start(run: &RunShared) -> Self {
        Self { started_at: Instant::now(), has_waited: false, contexts: run.trace_contexts() }
    }
}

impl Drop for PoolWait {
    fn drop(&mut self) {
        if let (true, Some(contexts)) = (self.has_waited, &self.contexts) {
            contexts.add_pool_wait(self.started_at.elapsed());
        }
    }
}

/// Returns whether something has happened that may change the decision to send the request.
fn should_recheck_before_sending(run: &RunShared, state: &State) -> bool {
    let (control, budget) = (run.control(), &run.settings.limits.budget);
    let spent = run.budget_usage(state);
    let exceeded =
        state.end.wrap_up_reason.is_none() && run.exceeded_limit(state, &spent).is_some();
    control.inbox.has_input(DeliveryPoint::BeforeNextRequest)
        || !control.inbox.tombstone_queue.is_empty()
        || control.signals.stop_requested.get()
        || control.signals.turn_interrupted.get()
        || exceeded
        || budget.is_exhausted(&spent)
}

/// Estimates the number of tokens in a request. If the window's token counter panics, the default
/// counter is used.
pub(super) fn estimate_request(run: &RunShared, request: &Request) -> u64 {
    let window = run.settings.context.window.as_ref();
    let counted = window.and_then(|window| {
        catch_named_panic(TOKEN_COUNTER_NAME, || window.estimate_request_tokens(request)).ok()
    });
    counted.unwrap_or_else(|| estimate_request_tokens(request, &BytesDiv4))
}

/// Awaits a future, and records in `wait` whether any poll of the future returns `Pending`.
/// Returns `None` if, meanwhile, a handle stops the run after its turn or interrupts the model.
async fn await_capacity<F: Future>(
    run: &RunShared,
    wait: &mut PoolWait,
    future: F,
) -> Option<F::Output> {
    let signals = &run.control().signals;
    let mut future = pin!(future);
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => {
            wait.has_waited = true;
            match signals.stop_requested.get() || signals.turn_interrupted.get() {
                true => Poll::Ready(None),
                false => Poll::Pending,
            }
        }
    })
    .await
}
