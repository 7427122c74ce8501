//! Tool calls that are executed separately from their run.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, poll_fn};
use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use turnstream::Error;
use turnstream::durable::{StepFuture, StepRunner, ToolCallRequest};
use turnstream::env::SystemIds;
use turnstream::item::{RawJson, ToolResult};

use crate::context::PerformStep;
use crate::errors::{from_context, to_handler_error, to_terminal};
use crate::inbox::InboxClient;
use crate::worker_settings::WorkerSettings;

/// How long a running tool can be dropped by a cancellation.
///
/// NOTE: this must be shorter than the inactivity timeout of the service. After that timeout,
/// Restate asks the handler to suspend, and a handler that still waits for the cancellation would
/// drop its tool and do so.
const CANCELLABLE_FOR: Duration = Duration::from_mins(14);

/// The service `Tools`.
pub(crate) struct Tools(pub(crate) WorkerSettings);

/// A request to the `Tools` service.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolsRequest {
    /// Performs a call, using a tool of the agent that is registered under the name `agent`.
    Call { agent: String, call: ToolCallRequest },
    /// Waits until the session's active run is interrupted or ends.
    Stop { session: String },
}

#[restate_sdk::service(
    client_visibility = "pub(crate)",
    ingress_private,
    journal_retention = "1h",
    inactivity_timeout = "15m",
    abort_timeout = "45m",
    invocation_retry_policy(
        initial_interval = "50ms",
        factor = 2.0,
        max_interval = "10s",
        max_attempts = 1_000_000
    )
)]
impl Tools {
    /// Performs a call, or waits until the active run is interrupted or ends. Only a call has a
    /// result.
    #[handler]
    async fn call(
        &self,
        ctx: Context<'_>,
        Json(request): Json<ToolsRequest>,
    ) -> HandlerResult<Json<Option<ToolResult>>> {
        match request {
            ToolsRequest::Call { agent, call } => {
                let agent = self.0.agent(&agent).map_err(|error| to_terminal(&error))?;
                let data = self.0.data(&call.session).map_err(|error| to_terminal(&error))?;
                // The timer is part of the journal, so it is started at the same position in each
                // attempt. If Restate suspends the handler in spite of the running tool, the timer
                // wakes it.
                let watch = ctx.sleep(CANCELLABLE_FOR).boxed();
                let mut steps = CallSteps { ctx: &ctx, watch: Some(watch) };
                let performed =
                    call.perform(&agent, data, self.0.hub(), &SystemIds, &mut steps).await;
                performed.map(|result| Json(Some(result))).map_err(to_handler_error)
            }
            ToolsRequest::Stop { session } => {
                let (awakeable, stopped) = ctx.awakeable::<()>();
                let inbox = ctx.object_client::<InboxClient>(session);
                let Json(is_stopped) = inbox.watch_stop(awakeable).call().await?;
                if !is_stopped {
                    stopped.await?;
                }
                Ok(Json(None))
            }
        }
    }
}

/// Performs the steps of a call. A cancellation of the invocation drops the step that is being
/// performed, and thereby the tool. Restate's SDK reports a cancellation only to a handler that
/// waits for an operation of Restate, so the steps also wait for a timer.
struct CallSteps<'a, 'ctx> {
    ctx: &'a Context<'ctx>,
    /// The timer. `None` once it has elapsed.
    watch: Option<BoxFuture<'a, Result<(), TerminalError>>>,
}

impl StepRunner for CallSteps<'_, '_> {
    fn step<'a>(
        &'a mut self,
        name: &'static str,
        step: StepFuture,
    ) -> BoxFuture<'a, Result<RawJson, Error>> {
        let Self { ctx, watch } = self;
        async move {
            let is_performed = Arc::new(AtomicBool::new(false));
            let performed = Arc::clone(&is_performed);
            let step = step.inspect(move |_| performed.store(true, Ordering::Relaxed));
            let mut result = pin!(ctx.perform(name, step.boxed()));
            poll_fn(|cx| {
                if let Poll::Ready(value) = result.poll_unpin(cx) {
                    return Poll::Ready(value);
                }
                // Once the step has been performed, the handler waits for Restate to record its
                // value.
                let is_waiting = !is_performed.load(Ordering::Relaxed);
                let Some(timer) = watch.as_mut().filter(|_| is_waiting) else {
                    return Poll::Pending;
                };
                match timer.poll_unpin(cx) {
                    Poll::Ready(Ok(())) => *watch = None,
                    Poll::Ready(Err(cancelled)) => {
                        return Poll::Ready(Err(from_context(&cancelled)));
                    }
                    Poll::Pending => {}
                }
                Poll::Pending
            })
            .await
        }
        .boxed()
    }
}
