//! Waiting for the pool before a request is sent.

use std::pin::pin;

use crate::agent::State;
use crate::agent::admission::Held;
use crate::agent::control::When;
use crate::agent::shared::Shared;
use crate::agent::within::{COUNTER, caught};
use crate::context::{BytesDiv4, estimate_request_tokens};
use crate::error::Error;
use crate::request::Request;
use crate::world::Kind;

/// Waits until the pool of the run has tokens and a slot for a request, and takes them. They are
/// given back when the turn is over, or the run is dropped.
///
/// Returns whether the request is to be sent. It is not if the pool is spent, or if something has
/// come up while the run waited that is to be looked at first, such as words of a holder; then the
/// run keeps its place in the order. Dropping the future gives the place up.
pub(super) async fn admit(run: &Shared, state: &State, request: &Request) -> Result<bool, Error> {
    if run.settings.bounds.budget.shared_pool().is_none() {
        return Ok(true);
    }
    let (waiting, state, request) = (run.clone(), state.clone(), request.clone());
    let admit = async move { Ok(!is_admitted(&waiting, &state, &request).await) };
    let gave_way = run.effects.perform(Kind::GaveWay, admit).await?;
    Ok(!gave_way)
}

async fn is_admitted(run: &Shared, state: &State, request: &Request) -> bool {
    let Some(pool) = run.settings.bounds.budget.shared_pool() else { return true };
    let admission = run.control().admission();
    // Of a request before this one, in a body that does not say when it is over.
    run.request_is_over();
    let answer = request.options.max_output_tokens.map_or(pool.per_answer(), u64::from);
    let tokens = estimate(run, request).saturating_add(answer);
    let keeping = match state.ending.wrapping_up {
        Some(_) => 0,
        None => run.settings.bounds.budget.reserve_tokens(),
    };
    let first = admission.gives_way(false);
    let mut waited = false;
    let reservation = pool.reserve_keeping(tokens, keeping).first(first);
    let Ok(reservation) = now_or_later(&mut waited, reservation).await else {
        return false;
    };
    let slot = now_or_later(&mut waited, pool.slot().first(first)).await;
    if waited && has_news(run, state) {
        drop((slot, reservation));
        admission.gives_way(true);
        return false;
    }
    admission.hold(Held { _slot: slot, _reservation: reservation });
    true
}

/// Whether something is known now that decides on the request.
fn has_news(run: &Shared, state: &State) -> bool {
    let (control, budget) = (run.control(), &run.settings.bounds.budget);
    let spent = run.spent(state);
    let exceeded = state.ending.wrapping_up.is_none() && run.exceeded(state, &spent).is_some();
    control.is_waiting(When::NextRequest)
        || !control.tombstones().is_empty()
        || control.is_stopping()
        || exceeded
        || budget.has_nothing_left(&spent)
}

/// How many tokens a request is estimated at. A counter that panics is replaced.
fn estimate(run: &Shared, request: &Request) -> u64 {
    let window = run.settings.memory.window.as_ref();
    let counted =
        window.and_then(|window| caught(COUNTER, || window.estimate_request(request)).ok());
    counted.unwrap_or_else(|| estimate_request_tokens(request, &BytesDiv4))
}

/// Waits for a future, and notes whether it was not ready at once.
async fn now_or_later<F: Future>(waited: &mut bool, future: F) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        *waited |= polled.is_pending();
        polled
    })
    .await
}
