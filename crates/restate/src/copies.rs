//! Keeps copies of sessions in a store.

use restate_sdk::prelude::*;

use crate::session::SessionClient;
use crate::worker::WorkerParts;

/// The object `Copies/{session}`, which makes a session's copies one at a time. If a delayed copy
/// could overwrite a later copy, a session that was removed could reappear.
pub(crate) struct Copies(pub(crate) WorkerParts);

#[restate_sdk::object(
    client_visibility = "pub(crate)",
    ingress_private,
    journal_retention = "0s",
    invocation_retry_policy(
        initial_interval = "50ms",
        factor = 2.0,
        max_interval = "10s",
        max_attempts = 1_000_000
    )
)]
impl Copies {
    /// Copies the session's current state.
    #[handler]
    async fn update(&self, ctx: ObjectContext<'_>) -> HandlerResult<()> {
        if self.0.copy.is_some() {
            ctx.object_client::<SessionClient>(ctx.key()).copy().call().await?;
        }
        Ok(())
    }
}

/// Requests a copy of the session's state after this invocation, without waiting for the copy to be
/// made.
pub(crate) fn send_update(ctx: &ObjectContext<'_>) {
    drop(ctx.object_client::<CopiesClient>(ctx.key()).update().send());
}
