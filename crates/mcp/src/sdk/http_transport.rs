//! Messages over HTTP.

use std::sync::Arc;

use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;

use crate::sdk::messages::{Outgoing, is_withdrawal, key, starting_request_id};
use crate::server_requests::ServerRequests;

/// Limits the requests of a server over HTTP. A request that exceeds the limits is ignored: the
/// answers are sent by the same task that receives messages, so that task cannot wait for them.
pub(super) struct HttpTransport<T> {
    pub(super) inner: T,
    pub(super) requests: Arc<ServerRequests>,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for HttpTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        if let Some(id) = starting_request_id(&message) {
            self.requests.on_start_sent(key(id));
        }
        let outgoing = Outgoing::new(&self.requests, &message);
        let is_sent = !matches!(outgoing, Outgoing::Withdrawn);
        let sending = is_sent.then(|| self.inner.send(message));
        async move {
            let sent = match sending {
                Some(sending) => sending.await,
                None => Ok(()),
            };
            drop(outgoing);
            sent
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let message = self.inner.receive().await?;
            let answered = match &message {
                ServerJsonRpcMessage::Response(response) => Some(&response.id),
                ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
                ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => None,
            };
            if let Some(id) = answered {
                self.requests.on_answer(&key(id));
            }
            let is_ignored = match &message {
                ServerJsonRpcMessage::Request(request) => {
                    let json = serde_json::to_vec(&request.request).unwrap_or_default();
                    let id = key(&request.id);
                    !self.requests.has_capacity() || !self.requests.begin(id, &json)
                }
                message => is_withdrawal(&self.requests, message),
            };
            if !is_ignored {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use futures::future;
    use rmcp::model::ClientResult;
    use serde_json::json;

    use super::*;
    use crate::server_requests::MAX_UNANSWERED_REQUESTS;

    /// A server that sends requests without end, and never accepts an answer.
    struct Flood(i64);

    impl Transport<RoleClient> for Flood {
        type Error = std::io::Error;

        fn send(
            &mut self,
            _: ClientJsonRpcMessage,
        ) -> impl Future<Output = std::io::Result<()>> + Send + 'static {
            future::pending()
        }

        async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
            self.0 += 1;
            let message = match self.0 {
                1_000 => json!({ "jsonrpc": "2.0", "id": 1, "result": {} }),
                id => json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }),
            };
            serde_json::from_value(message).ok()
        }

        async fn close(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn requests_over_http_are_ignored_while_too_many_are_unanswered() {
        let requests = ServerRequests::new(16 << 20);
        let mut transport = HttpTransport { inner: Flood(0), requests };
        let mut unsent = Vec::new();
        let answered = loop {
            match transport.receive().await.unwrap() {
                ServerJsonRpcMessage::Request(request) => {
                    let answer = ClientResult::empty(());
                    let answer = ClientJsonRpcMessage::response(answer, request.id);
                    unsent.push(Box::pin(transport.send(answer)));
                }
                _ => break unsent.len(),
            }
        };
        assert_eq!(answered, MAX_UNANSWERED_REQUESTS);
        drop(unsent);
        assert!(matches!(transport.receive().await, Some(ServerJsonRpcMessage::Request(_))));
    }
}
