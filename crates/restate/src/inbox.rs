//! The commands that are waiting for a session's runs.

use std::time::Duration;

use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use turnstream::durable::StoredCommand;
use turnstream::durable::storage::{CommandQueue, CommandWaiter, WaitAnswer};

use crate::errors::to_terminal;

/// The object `Inbox/{session}`, whose handlers return quickly, so that commands can be sent while
/// a run is active. Each waiter in the inbox is a Restate awakeable.
pub(crate) struct Inbox;

/// A request to take all commands for a run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Take {
    pub(crate) run: String,
    /// The size of the commands that the run has taken but not delivered. `None` if the run has not
    /// delivered anything since its last request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) undelivered_bytes: Option<usize>,
}

/// A request to end a run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Finish {
    pub(crate) run: String,
    pub(crate) undelivered: Vec<StoredCommand>,
}

const QUEUE: &str = "queue";

#[restate_sdk::object(
    client_visibility = "pub(crate)",
    journal_retention = "0s",
    inactivity_timeout = "1m",
    invocation_retry_policy(
        initial_interval = "50ms",
        factor = 2.0,
        max_interval = "10s",
        max_attempts = 1_000_000
    )
)]
impl Inbox {
    /// Stores a command.
    #[handler]
    async fn push(
        &self,
        ctx: ObjectContext<'_>,
        Json(stored): Json<StoredCommand>,
    ) -> HandlerResult<()> {
        let pushed = change(&ctx, |queue| queue.push(ctx.key(), stored)).await?;
        wake(&ctx, pushed.map_err(|error| to_terminal(&error))?);
        Ok(())
    }

    /// Takes all commands for a run.
    #[handler(ingress_private)]
    async fn take(
        &self,
        ctx: ObjectContext<'_>,
        Json(Take { run, undelivered_bytes }): Json<Take>,
    ) -> HandlerResult<Json<Vec<StoredCommand>>> {
        Ok(Json(change(&ctx, |queue| queue.take(&run, undelivered_bytes)).await?))
    }

    /// Registers an awakeable for the next command.
    #[handler(ingress_private)]
    async fn wait(
        &self,
        ctx: ObjectContext<'_>,
        Json(waiter): Json<CommandWaiter>,
    ) -> HandlerResult<Json<WaitAnswer>> {
        Ok(Json(change(&ctx, |queue| queue.wait(waiter)).await?))
    }

    /// Wakes the run whose wait has exceeded its time limit.
    #[handler(ingress_private)]
    async fn expire(&self, ctx: ObjectContext<'_>, timer: String) -> HandlerResult<()> {
        wake(&ctx, change(&ctx, |queue| queue.expire(&timer)).await?);
        Ok(())
    }

    /// Registers an awakeable for an interrupt or the end of the active run. Returns `true` if an
    /// interrupt is already queued or no run is active.
    #[handler(ingress_private)]
    async fn watch_stop(
        &self,
        ctx: ObjectContext<'_>,
        awakeable: String,
    ) -> HandlerResult<Json<bool>> {
        let answer = change(&ctx, |queue| queue.wait_for_stop(awakeable)).await?;
        Ok(Json(answer == WaitAnswer::Ready))
    }

    /// Ends a run, and returns its undelivered commands to the queue.
    #[handler(ingress_private)]
    async fn finish(
        &self,
        ctx: ObjectContext<'_>,
        Json(Finish { run, undelivered }): Json<Finish>,
    ) -> HandlerResult<()> {
        wake(&ctx, change(&ctx, |queue| queue.finish(&run, undelivered)).await?);
        Ok(())
    }

    /// Removes all commands and waiters after the session has been removed.
    #[handler(ingress_private)]
    async fn clear(&self, ctx: ObjectContext<'_>) -> HandlerResult<()> {
        wake(&ctx, change(&ctx, CommandQueue::clear).await?);
        Ok(())
    }

    /// Returns the queued commands and the active run.
    #[handler(invocation_retry_policy(max_attempts = 8, on_max_attempts = "kill"))]
    async fn queued(&self, ctx: SharedObjectContext<'_>) -> HandlerResult<Json<CommandQueue>> {
        let queue = ctx.get::<Json<CommandQueue>>(QUEUE).await?;
        Ok(Json(queue.map(Json::into_inner).unwrap_or_default().without_waiters()))
    }
}

/// Starts the timer that limits a wait.
pub(crate) fn start_timer(ctx: &ObjectContext<'_>, timer: &str, limit: Duration) {
    let inbox = ctx.object_client::<InboxClient>(ctx.key());
    drop(inbox.expire(timer.to_owned()).send_after(limit));
}

/// Reads the queue, changes it, and writes it back if it has changed.
async fn change<T>(
    ctx: &ObjectContext<'_>,
    change: impl FnOnce(&mut CommandQueue) -> T,
) -> Result<T, TerminalError> {
    let before = ctx.get::<Json<CommandQueue>>(QUEUE).await?;
    let before = before.map(Json::into_inner).unwrap_or_default();
    let mut queue = before.clone();
    let changed = change(&mut queue);
    if queue == CommandQueue::default() {
        ctx.clear(QUEUE);
    } else if queue != before {
        ctx.set(QUEUE, Json(queue));
    }
    Ok(changed)
}

fn wake(ctx: &ObjectContext<'_>, awakeables: impl IntoIterator<Item = String>) {
    for awakeable in awakeables {
        ctx.resolve_awakeable(&awakeable, ());
    }
}
