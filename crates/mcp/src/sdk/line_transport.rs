//! Messages as lines, over the pipes of a process or any other pair of streams.

use std::collections::HashSet;
use std::sync::Arc;
use std::task::Context;

use futures::future;
use rmcp::ErrorData;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, CustomResult, ErrorCode, NumberOrString,
    ServerJsonRpcMessage, ServerResult,
};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::http_events::{TOO_MANY_VALUES, answered_request_id};
use crate::json_values::{MAX_JSON_VALUES, has_too_many_values};
use crate::line_channel::{LineChannel, SendQueue};
use crate::sdk::messages::{Outgoing, is_withdrawal, key, starting_request_id};
use crate::server_requests::ServerRequests;

/// The requests that only a client sends, one of which starts each connection.
const STARTING_REQUESTS: [&str; 2] = ["server/discover", "initialize"];

/// A line that is not a message from a server.
enum OtherLine {
    /// A request of this client, which the program has sent back.
    RepeatedInput,
    Noise,
    /// A message that is not passed on.
    Ignored,
}

/// Transports messages as lines.
///
/// This transport replaces rmcp's own transport for three reasons:
///
/// - This transport queues each message as soon as rmcp hands it over, so a cancellation never
///   overtakes the request that it cancels.
/// - The queue is limited, so it cannot grow without bound if the server does not read.
/// - Results keep their original JSON, whereas rmcp infers the kind of a result from the result's
///   fields.
pub(super) struct LineTransport<R, W> {
    /// The channel, or `None` after the transport has been closed.
    channel: Option<LineChannel<R, W>>,
    queue: SendQueue,
    requests: Arc<ServerRequests>,
    /// The ids of the requests that rmcp itself sent and whose results rmcp reads.
    own_requests: HashSet<String>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> LineTransport<R, W> {
    pub(super) fn new(channel: LineChannel<R, W>, requests: Arc<ServerRequests>) -> Self {
        let queue = channel.queue();
        Self { channel: Some(channel), queue, requests, own_requests: HashSet::new() }
    }

    /// Parses a message for rmcp.
    fn read(&mut self, line: &[u8]) -> Result<ServerJsonRpcMessage, OtherLine> {
        if has_too_many_values(line) {
            return self.read_too_large(line);
        }
        let json: Value = serde_json::from_slice(line).map_err(|_| OtherLine::Noise)?;
        let id = serde_json::from_value::<NumberOrString>(json["id"].clone()).ok();
        if id.is_some() && STARTING_REQUESTS.iter().any(|method| json["method"] == *method) {
            return Err(OtherLine::RepeatedInput);
        }
        if let (Some(id), None) = (&id, json.get("method")) {
            self.requests.on_answer(&key(id));
        }
        if let Some(id) = id
            && json.get("method").is_none()
            && !self.own_requests.remove(&key(&id))
            && let Some(result) = json.get("result")
        {
            let result = ServerResult::CustomResult(CustomResult(result.clone()));
            return Ok(ServerJsonRpcMessage::response(result, id));
        }
        let message = serde_json::from_value(json).map_err(|_| OtherLine::Noise)?;
        if let ServerJsonRpcMessage::Request(request) = &message
            && !self.requests.begin(key(&request.id), line)
        {
            return Err(OtherLine::Ignored);
        }
        match is_withdrawal(&self.requests, &message) {
            true => Err(OtherLine::Ignored),
            false => Ok(message),
        }
    }

    /// Reads only the id of a message that has too many values. Returns an error in place of the
    /// answer to a request, and ignores any other message.
    fn read_too_large(&mut self, line: &[u8]) -> Result<ServerJsonRpcMessage, OtherLine> {
        let id = answered_request_id(line).map_err(|_| OtherLine::Noise)?;
        let id = id.and_then(|id| serde_json::from_value::<NumberOrString>(id).ok());
        let Some(id) = id else { return Err(OtherLine::Ignored) };
        self.requests.on_answer(&key(&id));
        self.own_requests.remove(&key(&id));
        let message = format!("the message has more than {MAX_JSON_VALUES} JSON values");
        let error = ErrorData::new(ErrorCode(TOO_MANY_VALUES), message, None);
        Ok(ServerJsonRpcMessage::error(error, Some(id)))
    }
}

impl<R, W> Transport<RoleClient> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = std::io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = std::io::Result<()>> + Send + 'static {
        if let ClientJsonRpcMessage::Request(request) = &message
            && matches!(
                request.request,
                ClientRequest::InitializeRequest(_)
                    | ClientRequest::DiscoverRequest(_)
                    | ClientRequest::SubscriptionsListenRequest(_)
            )
        {
            self.own_requests.insert(key(&request.id));
        }
        if let Some(id) = starting_request_id(&message) {
            self.requests.on_start_sent(key(id));
        }
        let answer = match Outgoing::new(&self.requests, &message) {
            Outgoing::Answer(answer) => Some(answer),
            Outgoing::Withdrawn => return future::ready(Ok(())),
            Outgoing::Other => None,
        };
        let sent = match (&self.channel, serde_json::to_vec(&message)) {
            (Some(_), Ok(line)) => {
                self.queue.push(line, answer);
                Ok(())
            }
            (Some(_), Err(error)) => Err(error.into()),
            (None, _) => Err(std::io::ErrorKind::NotConnected.into()),
        };
        future::ready(sent)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            // Reading a buffered line never waits, but the tasks that handle messages must run.
            tokio::task::consume_budget().await;
            let (requests, channel) = (&self.requests, self.channel.as_mut()?);
            let poll_capacity = |cx: &mut Context<'_>| requests.poll_capacity(cx);
            let line = future::poll_fn(|cx| channel.poll_line(cx, poll_capacity)).await?;
            let read = self.read(&line);
            let channel = self.channel.as_mut()?;
            match read {
                Ok(message) => {
                    channel.on_message();
                    return Some(message);
                }
                Err(OtherLine::RepeatedInput) => channel.on_repeated_input(&line),
                Err(OtherLine::Noise) => channel.on_noise(&line),
                Err(OtherLine::Ignored) => channel.on_message(),
            }
        }
    }

    async fn close(&mut self) -> std::io::Result<()> {
        self.channel = None;
        self.queue.clear();
        Ok(())
    }
}
