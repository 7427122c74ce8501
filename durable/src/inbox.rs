//! The commands that wait for the runs of a session.

use std::time::Duration;

use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use turnstream::durable::{CommandQueue, StoredCommand};
use turnstream::hub::Command;

use crate::errors::to_terminal;

/// The object `Inbox/{session}`. Its handlers are quick, so that commands can be sent while a run goes on.
pub(crate) struct Inbox;

/// A wait for commands.
#[derive(Serialize, Deserialize)]
pub(crate) struct Wait {
    /// Resolved when there is something to look at.
    pub(crate) awakeable: String,
    /// The timer of the wait.
    pub(crate) timer: Option<String>,
}

/// What a wait finds.
#[derive(Serialize, Deserialize)]
pub(crate) enum WaitAnswer {
    /// The awakeable will be resolved.
    Waiting,
    /// Commands are there.
    Ready,
    /// The time is over.
    Expired,
}

/// The end of a run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Finish {
    pub(crate) run: String,
    pub(crate) put_back: Vec<StoredCommand>,
}

/// What those wait for who are to be told.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Waiting {
    /// Resolved by any command, or by its timer.
    commands: Option<String>,
    timer: Option<String>,
    is_expired: bool,
    /// Resolved by an interrupt, and by the end of the run.
    stop: Vec<String>,
}

const QUEUE: &str = "queue";
const WAITING: &str = "waiting";

#[restate_sdk::object(
    client_visibility = "pub(crate)",
    journal_retention = "0s",
    inactivity_timeout = "1m",
    invocation_retry_policy(initial_interval = "50ms", factor = 2.0, max_interval = "10s")
)]
impl Inbox {
    /// Stores a command.
    #[handler]
    async fn push(
        &self,
        ctx: ObjectContext<'_>,
        Json(stored): Json<StoredCommand>,
    ) -> HandlerResult<()> {
        let mut queue = queue(&ctx).await?;
        let is_interrupt = stored.command == Command::Interrupt;
        let pushed = queue.push(ctx.key(), stored);
        pushed.map_err(|error| to_terminal(&error))?;
        ctx.set(QUEUE, Json(queue));
        let mut waiting = waiting(&ctx).await?;
        resolve(&ctx, &mut waiting.commands);
        if is_interrupt {
            resolve_all(&ctx, &mut waiting.stop);
        }
        ctx.set(WAITING, Json(waiting));
        Ok(())
    }

    /// Takes all commands for a run.
    #[handler(ingress_private)]
    async fn take(
        &self,
        ctx: ObjectContext<'_>,
        run: String,
    ) -> HandlerResult<Json<Vec<StoredCommand>>> {
        let mut queue = queue(&ctx).await?;
        let is_new = queue.run() != Some(&*run);
        let commands = queue.take(&run);
        if is_new || !commands.is_empty() {
            ctx.set(QUEUE, Json(queue));
        }
        Ok(Json(commands))
    }

    /// Registers an awakeable for the next command.
    #[handler(ingress_private)]
    async fn wait(
        &self,
        ctx: ObjectContext<'_>,
        Json(wait): Json<Wait>,
    ) -> HandlerResult<Json<WaitAnswer>> {
        let (queue, mut waiting) = (queue(&ctx).await?, waiting(&ctx).await?);
        if queue.commands().next().is_some() {
            return Ok(Json(WaitAnswer::Ready));
        }
        if waiting.timer != wait.timer {
            (waiting.timer, waiting.is_expired) = (wait.timer, false);
        }
        if waiting.is_expired {
            return Ok(Json(WaitAnswer::Expired));
        }
        waiting.commands = Some(wait.awakeable);
        ctx.set(WAITING, Json(waiting));
        Ok(Json(WaitAnswer::Waiting))
    }

    /// The time of a wait is over.
    #[handler(ingress_private)]
    async fn expire(&self, ctx: ObjectContext<'_>, timer: String) -> HandlerResult<()> {
        let mut waiting = waiting(&ctx).await?;
        if waiting.timer.as_deref() == Some(&*timer) {
            waiting.is_expired = true;
            resolve(&ctx, &mut waiting.commands);
            ctx.set(WAITING, Json(waiting));
        }
        Ok(())
    }

    /// Registers an awakeable for an interrupt. `true` if one waits already, or no run is active.
    #[handler(ingress_private)]
    async fn watch_stop(
        &self,
        ctx: ObjectContext<'_>,
        awakeable: String,
    ) -> HandlerResult<Json<bool>> {
        let queue = queue(&ctx).await?;
        let is_stop = |stored: &StoredCommand| matches!(stored.command, Command::Interrupt);
        if queue.run().is_none() || queue.commands().any(is_stop) {
            return Ok(Json(true));
        }
        let mut waiting = waiting(&ctx).await?;
        // Beside those of calls that have ended: they may register late.
        waiting.stop.push(awakeable);
        ctx.set(WAITING, Json(waiting));
        Ok(Json(false))
    }

    /// A run has ended.
    #[handler(ingress_private)]
    async fn finish(&self, ctx: ObjectContext<'_>, Json(end): Json<Finish>) -> HandlerResult<()> {
        let mut queue = queue(&ctx).await?;
        let is_active = queue.run() == Some(&*end.run);
        queue.finish(&end.run, end.put_back);
        ctx.set(QUEUE, Json(queue));
        if is_active {
            let mut waiting = waiting(&ctx).await?;
            resolve_all(&ctx, &mut waiting.stop);
            ctx.clear(WAITING);
        }
        Ok(())
    }

    /// The commands that wait, and the active run.
    #[handler(invocation_retry_policy(max_attempts = 8, on_max_attempts = "kill"))]
    async fn queued(&self, ctx: SharedObjectContext<'_>) -> HandlerResult<Json<CommandQueue>> {
        let queue = ctx.get::<Json<CommandQueue>>(QUEUE).await?;
        Ok(Json(queue.map(Json::into_inner).unwrap_or_default()))
    }
}

/// A timer of a wait.
pub(crate) fn start_timer(ctx: &ObjectContext<'_>, timer: &str, limit: Duration) {
    let inbox = ctx.object_client::<InboxClient>(ctx.key());
    drop(inbox.expire(timer.to_owned()).send_after(limit));
}

async fn queue(ctx: &ObjectContext<'_>) -> Result<CommandQueue, TerminalError> {
    let queue = ctx.get::<Json<CommandQueue>>(QUEUE).await?;
    Ok(queue.map(Json::into_inner).unwrap_or_default())
}

async fn waiting(ctx: &ObjectContext<'_>) -> Result<Waiting, TerminalError> {
    let waiting = ctx.get::<Json<Waiting>>(WAITING).await?;
    Ok(waiting.map(Json::into_inner).unwrap_or_default())
}

fn resolve_all(ctx: &ObjectContext<'_>, awakeables: &mut Vec<String>) {
    for awakeable in awakeables.drain(..) {
        ctx.resolve_awakeable(&awakeable, ());
    }
}

fn resolve(ctx: &ObjectContext<'_>, awakeable: &mut Option<String>) {
    if let Some(awakeable) = awakeable.take() {
        ctx.resolve_awakeable(&awakeable, ());
    }
}
