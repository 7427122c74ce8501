//! The client's side of the protocol: answers to requests of the server, and its notifications.

use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{
    ClientConfig, ClientResult, ErrorCode, ProtocolVersion, ServerNotification, ServerRequest,
};
use rmcp::service::{
    InboundStreamOrigin, NotificationContext, RequestContext, RoleClient, Service,
};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use turnstream::error::{Error, ErrorKind};

use crate::active_calls::{ActiveCalls, Question};
use crate::connection_state::ConnectionState;
use crate::questions::declined_answer;
use crate::sdk::connection_settings::ConnectionSettings;
use crate::sdk::error_context::shortened;
use crate::sdk::messages::key;
use crate::server_requests::ServerRequests;

/// Implements the client's side of the protocol. rmcp calls the methods of this type when it
/// receives a message from the server.
pub(super) struct Handler {
    config: ClientConfig,
    roots: Option<Value>,
    pub(super) calls: Arc<ActiveCalls>,
    state: Arc<ConnectionState>,
    requests: Arc<ServerRequests>,
}

impl Handler {
    pub(super) fn new(
        settings: &ConnectionSettings,
        state: Arc<ConnectionState>,
        requests: Arc<ServerRequests>,
    ) -> Result<Self, Error> {
        let config = json!({
            "protocolVersion": ProtocolVersion::LATEST_WITH_INITIALIZE,
            "capabilities": settings.capabilities,
            "clientInfo": { "name": "turnstream", "version": env!("CARGO_PKG_VERSION") },
        });
        let config = serde_json::from_value(config).map_err(|error| {
            let message = format!("the capabilities cannot be written: {error}");
            Error::new(ErrorKind::InvalidRequest, message)
        })?;
        let (roots, calls) = (settings.roots.clone(), Arc::default());
        Ok(Self { config, roots, calls, state, requests })
    }

    /// Passes a request from the server to one of the active calls, and waits for the answer of
    /// that call.
    async fn ask(
        &self,
        request: &ServerRequest,
        context: &RequestContext<RoleClient>,
    ) -> Result<Value, ErrorData> {
        let mut request = serde_json::to_value(request).unwrap_or_default();
        let method = request["method"].as_str().unwrap_or_default().to_owned();
        let origin = context.extensions.get::<InboundStreamOrigin>();
        let request_id = origin.and_then(|origin| match origin {
            InboundStreamOrigin::OutboundRequest(id) => Some(key(id)),
            InboundStreamOrigin::Unassociated => None,
        });
        let (answer, answered) = oneshot::channel();
        let question =
            Question { method: method.clone(), params: request["params"].take(), answer };
        let declined = || {
            declined_answer(&method).ok_or_else(|| {
                ErrorData::new(ErrorCode::INVALID_REQUEST, "the client has declined", None)
            })
        };
        let Some(asking) = self.requests.begin_asking(&key(&context.id)) else {
            return declined();
        };
        if self.calls.on_question(request_id.as_deref(), question).is_err() {
            return declined();
        }
        tokio::select! {
            answer = answered => answer.or_else(|_| declined()),
            () = asking.withdrawn() => declined(),
            () = context.ct.cancelled() => declined(),
        }
    }
}

impl Service<RoleClient> for Handler {
    async fn handle_request(
        &self,
        request: ServerRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        let unreadable = |error: serde_json::Error| {
            ErrorData::new(ErrorCode::INTERNAL_ERROR, format!("no such answer: {error}"), None)
        };
        match &request {
            ServerRequest::PingRequest(_) => Ok(ClientResult::empty(())),
            ServerRequest::ListRootsRequest(_) => match &self.roots {
                Some(roots) => serde_json::from_value(roots.clone())
                    .map(ClientResult::ListRootsResult)
                    .map_err(unreadable),
                None => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "roots/list", None)),
            },
            ServerRequest::ElicitRequest(_) => {
                let answer = self.ask(&request, &context).await?;
                serde_json::from_value(answer).map(ClientResult::ElicitResult).map_err(unreadable)
            }
            ServerRequest::CreateMessageRequest(_) => {
                let answer = self.ask(&request, &context).await?;
                serde_json::from_value(answer)
                    .map(|result| ClientResult::CreateMessageResult(Box::new(result)))
                    .map_err(unreadable)
            }
            // rmcp cannot parse some requests, such as a form without fields.
            ServerRequest::CustomRequest(custom) if custom.method == "elicitation/create" => {
                let answer = self.ask(&request, &context).await?;
                serde_json::from_value(answer).map(ClientResult::ElicitResult).map_err(unreadable)
            }
            request => {
                let request = serde_json::to_value(request).unwrap_or_default();
                let method = request["method"].as_str().unwrap_or_default().to_owned();
                Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None))
            }
        }
    }

    async fn handle_notification(
        &self,
        notification: ServerNotification,
        _context: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        match notification {
            ServerNotification::ProgressNotification(progress) => {
                let params = progress.params;
                let token = key(&params.progress_token.0);
                let mut shown = json!({ "progress": params.progress });
                if let Some(total) = params.total {
                    shown["total"] = json!(total);
                }
                if let Some(message) = params.message {
                    shown["message"] = shortened(&message).into();
                }
                self.calls.on_progress(&token, shown);
            }
            ServerNotification::ToolListChangedNotification(_) => {
                self.state.on_tools_changed();
            }
            _ => {}
        }
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }
}
