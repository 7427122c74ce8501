//! Asks the provider for the number of tokens in a request.

use futures::future::{self, FutureExt};
use serde::{Deserialize, Serialize};

use crate::agent::State;
use crate::agent::run::run_shared::RunShared;
use crate::agent::timed_call::call_with_timeout;
use crate::context::{Window, has_uncounted_media};
use crate::env::TimeLimit;
use crate::error::Error;
use crate::request::Request;
use crate::world::EffectKind;

/// The name used in errors for the provider's count.
const COUNT_NAME: &str = "the provider's token count";

/// The provider's answer, as it is stored. Both fields are `None` if the provider cannot count.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct CountAttempt {
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}

/// Returns the provider's count of the tokens in a request, if the window asks for it and the
/// request may exceed the limit: if its estimate exceeds half of the limit, or if it contains an
/// image or a file that no usage covers. Returns `None` if the estimate is to be used instead. A
/// failure is reported to the hooks, and the provider is not asked again in this run.
pub(super) async fn provider_token_count(
    run: &RunShared,
    state: &State,
    window: &Window,
    request: &Request,
    (estimate, limit): (u64, u64),
    time_limit: TimeLimit,
) -> Option<u64> {
    let has_failed = &run.control().work.token_count_failed;
    if !window.uses_provider_counts() || has_failed.get() {
        return None;
    }
    // An image or a file may have many more tokens than the estimate assumes.
    if estimate <= limit / 2 && !has_uncounted_media(&request.context) {
        return None;
    }
    let (now, state_now, mut request) = (run.clone(), state.clone(), request.clone());
    if request.trace_context.is_none() {
        request.trace_context = run.trace_context();
    }
    let count = async move {
        let counting = || match now.provider(&state_now).count_tokens(&request) {
            Some(count) => count.map(|made| made.map(Some)).boxed(),
            None => future::ready(Ok(None)).boxed(),
        };
        // A count is an open request, so it is dropped when the run's time limit expires.
        now.control().work.request_in_flight.set(true);
        let made = call_with_timeout(COUNT_NAME, time_limit, counting).await;
        now.control().work.request_in_flight.set(false);
        Ok(match made.flatten() {
            Ok(tokens) => CountAttempt { tokens, error: None },
            Err(error) => CountAttempt { tokens: None, error: Some(error) },
        })
    };
    let made = run.effects.perform(EffectKind::TokenCount, count).await;
    match made {
        Ok(CountAttempt { tokens, error: None }) => tokens,
        Ok(CountAttempt { error: Some(error), .. }) | Err(error) => {
            run.control().work.token_count_failed.set(true);
            run.hooks().on_failure(state, &error);
            None
        }
    }
}
