//! A request that has been sent to a server, and its answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt;
use rmcp::model::ServerResult;
use rmcp::service::{RequestHandle, RoleClient, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::Value;
use tokio::runtime::Handle;
use turnstream::http::reqwest;

use crate::active_calls::{ActiveCallGuard, Arrived};

/// A request that has been sent. Dropping this value cancels the request on the server, unless the
/// server has already answered it.
pub(crate) struct PendingRequest {
    pub(super) method: String,
    /// The runtime on which the connection's tasks run.
    pub(super) runtime: Handle,
    pub(super) handle: Option<RequestHandle<RoleClient>>,
    pub(super) call: Option<ActiveCallGuard>,
    pub(super) answer: Option<Result<Value, RequestFailure>>,
}

/// An update on a pending request: progress or a question from the server, or the answer.
pub(crate) enum CallUpdate {
    Arrived(Arrived),
    Answered(Result<Value, RequestFailure>),
}

/// The reason why a request did not receive an answer.
pub(crate) struct RequestFailure(pub(super) ServiceError);

impl RequestFailure {
    /// Returns whether the server rejected the request because it does not know the session any
    /// more. The server has not processed the request.
    pub(crate) fn is_session_end(&self) -> bool {
        let ServiceError::TransportSend(error) = &self.0 else { return false };
        matches!(
            error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>(),
            Some(StreamableHttpError::SessionExpired)
        )
    }
}

impl PendingRequest {
    /// Creates a request that no server answers.
    #[cfg(test)]
    pub(crate) fn unanswered(runtime: Handle) -> Self {
        Self { method: "tools/call".to_owned(), runtime, handle: None, call: None, answer: None }
    }

    /// Polls for the next update. Any progress and questions are returned before the answer. After
    /// the answer has been returned, every poll returns `Pending`.
    pub(crate) fn poll_update(&mut self, cx: &mut Context<'_>) -> Poll<CallUpdate> {
        if let Some(call) = &self.call
            && let Poll::Ready(arrived) = call.poll_arrived(cx)
        {
            return Poll::Ready(CallUpdate::Arrived(arrived));
        }
        match self.poll_is_answered(cx) {
            Poll::Ready(()) => match self.answer.take() {
                Some(answer) => Poll::Ready(CallUpdate::Answered(answer)),
                None => Poll::Pending,
            },
            Poll::Pending => Poll::Pending,
        }
    }

    /// Becomes ready once the answer has arrived.
    pub(crate) fn poll_is_answered(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.answer.is_some() {
            return Poll::Ready(());
        }
        let Some(handle) = &mut self.handle else { return Poll::Pending };
        let Poll::Ready(answer) = Pin::new(&mut handle.rx).poll(cx) else { return Poll::Pending };
        (self.handle, self.call) = (None, None);
        let answer = answer.unwrap_or(Err(ServiceError::TransportClosed));
        let value = answer.and_then(|result: ServerResult| result_json(&self.method, result));
        self.answer = Some(value.map_err(RequestFailure));
        Poll::Ready(())
    }
}

/// Returns a result as JSON. Over HTTP, rmcp infers the kind of a result from the result's fields,
/// and drops the fields that belong to other kinds. Returns an error if the result of a `method`
/// request cannot have the inferred kind.
fn result_json(method: &str, result: ServerResult) -> Result<Value, ServiceError> {
    let is_of_call = matches!(
        result,
        ServerResult::CustomResult(_)
            | ServerResult::EmptyResult(_)
            | ServerResult::CallToolResult(_)
            | ServerResult::InputRequiredResult(_)
            | ServerResult::TaskAckResult(_)
            | ServerResult::CreateTaskResult(_)
    );
    let is_right = method != "tools/call" || is_of_call;
    if !is_right {
        return Err(ServiceError::UnexpectedResponse);
    }
    serde_json::to_value(result).map_err(|_| ServiceError::UnexpectedResponse)
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // A single poll is enough to pass the message to the connection's task, unless a
            // thousand other messages are queued. The poll is unconstrained, because the current
            // task may have used up its budget.
            let mut cancel = handle.cancel(Some("the caller no longer waits".to_owned())).boxed();
            if tokio::task::unconstrained(&mut cancel).now_or_never().is_none() {
                self.runtime.spawn(cancel);
            }
        }
    }
}
