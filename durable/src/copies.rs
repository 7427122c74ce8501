//! The copies of sessions in a store.

use restate_sdk::prelude::*;

use crate::session::SessionClient;
use crate::worker::WorkerParts;

/// The object `Copies/{session}`. It makes one copy after the other, so that a copy that was delayed is never the last
/// one: a session that was removed would come back.
pub(crate) struct Copies(pub(crate) WorkerParts);

#[restate_sdk::object(
    client_visibility = "pub(crate)",
    ingress_private,
    journal_retention = "0s",
    invocation_retry_policy(initial_interval = "50ms", factor = 2.0, max_interval = "10s")
)]
impl Copies {
    /// Copies the session as it is by now.
    #[handler]
    async fn update(&self, ctx: ObjectContext<'_>) -> HandlerResult<()> {
        if self.0.copy.is_some() {
            ctx.object_client::<SessionClient>(ctx.key()).copy().call().await?;
        }
        Ok(())
    }
}

/// Has a session copied after all that this invocation does. It waits for nothing.
pub(crate) fn send_update(ctx: &ObjectContext<'_>) {
    drop(ctx.object_client::<CopiesClient>(ctx.key()).update().send());
}
