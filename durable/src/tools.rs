//! Tool calls that are executed separately from their run.

use futures::future::BoxFuture;
use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use turnstream::Error;
use turnstream::durable::{StepFuture, StepRunner, ToolCallRequest};
use turnstream::env::SystemIds;
use turnstream::item::{RawJson, ToolResult};

use crate::context::PerformStep;
use crate::errors::{to_handler_error, to_terminal};
use crate::inbox::InboxClient;
use crate::worker::WorkerParts;

/// The service `Tools`.
pub(crate) struct Tools(pub(crate) WorkerParts);

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
                let performed = call
                    .perform(&agent, data, self.0.hub(), &SystemIds, &mut CallSteps(&ctx))
                    .await;
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

struct CallSteps<'a, 'ctx>(&'a Context<'ctx>);

impl StepRunner for CallSteps<'_, '_> {
    fn step<'a>(
        &'a mut self,
        name: &'static str,
        step: StepFuture,
    ) -> BoxFuture<'a, Result<RawJson, Error>> {
        self.0.perform(name, step)
    }
}
