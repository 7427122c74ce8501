//! Reads the parts of a message that both transports need.

use std::sync::Arc;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, NumberOrString, ServerJsonRpcMessage, ServerNotification,
};

use crate::server_requests::{ServerRequests, UnsentAnswer};

/// Converts a request id or a progress token into a string.
pub(super) fn key(id: &NumberOrString) -> String {
    match id {
        NumberOrString::Number(number) => number.to_string(),
        NumberOrString::String(text) => format!("\"{text}"),
    }
}

/// Returns the id of a request of the handshake.
pub(super) fn starting_request_id(message: &ClientJsonRpcMessage) -> Option<&NumberOrString> {
    let ClientJsonRpcMessage::Request(request) = message else { return None };
    let is_start = matches!(
        request.request,
        ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_)
    );
    is_start.then_some(&request.id)
}

/// Returns whether a message withdraws an open request of the server. Such a message is not passed
/// to rmcp, which would not send the request's answer to the transport.
pub(super) fn is_withdrawal(requests: &ServerRequests, message: &ServerJsonRpcMessage) -> bool {
    let ServerJsonRpcMessage::Notification(notification) = message else { return false };
    let ServerNotification::CancelledNotification(cancelled) = &notification.notification else {
        return false;
    };
    cancelled.params.request_id.as_ref().is_some_and(|id| requests.withdraw(&key(id)))
}

/// An outgoing message.
pub(super) enum Outgoing {
    /// An answer to a request of the server.
    Answer(UnsentAnswer),
    /// An answer to a request that the server has withdrawn, which is not sent.
    Withdrawn,
    /// A request or a notification.
    Other,
}

impl Outgoing {
    pub(super) fn new(requests: &Arc<ServerRequests>, message: &ClientJsonRpcMessage) -> Self {
        let id = match message {
            ClientJsonRpcMessage::Response(response) => Some(&response.id),
            ClientJsonRpcMessage::Error(error) => error.id.as_ref(),
            ClientJsonRpcMessage::Request(_) | ClientJsonRpcMessage::Notification(_) => None,
        };
        match id {
            Some(id) => requests.answer(key(id)).map_or(Self::Withdrawn, Self::Answer),
            None => Self::Other,
        }
    }
}
