//! Keeps copies of sessions in a store.

use restate_sdk::prelude::*;

use crate::session::SessionClient;
use crate::worker::WorkerParts;

/// The object `Copies/{session}`. It makes the copies of a session one after the other, so that a delayed copy cannot
/// overwrite a later one. Otherwise a session that was removed could reappear.
pub(crate) struct Copies(pub(crate) WorkerParts);

#[restate_sdk::object(
    client_visibility = "pub(crate)",
    ingress_private,
    journal_retention = "0s",
    invocation_retry_policy(initial_interval = "50ms", factor = 2.0, max_interval = "10s")
)]
impl Copies {
    /// Copies the current state of the session.
    #[handler]
    async fn update(&self, ctx: ObjectContext<'_>) -> HandlerResult<()> {
        if self.0.copy.is_some() {
            ctx.object_client::<SessionClient>(ctx.key()).copy().call().await?;
        }
        Ok(())
    }
}

/// Requests a copy of the session as it is after this invocation, without waiting for the copy.
pub(crate) fn send_update(ctx: &ObjectContext<'_>) {
    drop(ctx.object_client::<CopiesClient>(ctx.key()).update().send());
}
