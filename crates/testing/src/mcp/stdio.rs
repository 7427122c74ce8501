//! Serves a client over a pair of streams, with one message per line.

use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt, future, stream};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::mcp::dispatch::{Reaction, protocol_of, react};
use crate::mcp::fault::McpFault;
use crate::mcp::log::McpRequestStatus;
use crate::mcp::message::{
    INVALID_REQUEST, Message, PARSE_ERROR, Request, error_message, notification, parse_message,
};
use crate::mcp::outgoing::{MessageFraming, Outgoing};
use crate::mcp::peer::Peer;
use crate::mcp::run::RunningRequest;
use crate::mcp::state::State;

/// The maximum number of messages that can be queued for the client. When the queue is full, a call
/// that sends a message waits for free space.
const OUT_CAPACITY: usize = 16;

/// Serves a client until `reader` reaches its end. Any answers that are ready at that point are
/// still written.
pub(super) async fn serve(
    state: Arc<State>,
    reader: impl AsyncRead,
    writer: impl AsyncWrite,
) -> io::Result<()> {
    if state.has_fault(McpFault::NeverReads) {
        return future::pending().await;
    }
    let (out, queue) = mpsc::channel(OUT_CAPACITY);
    let connection = Connection { peer: Arc::default(), state: Arc::clone(&state), out };
    // Reading and writing are concurrent, so that the server still receives messages from a client
    // that does not read.
    future::try_join(connection.read(reader), write(&state, queue, writer)).await?;
    Ok(())
}

struct Connection {
    state: Arc<State>,
    peer: Arc<Peer>,
    out: mpsc::Sender<Outgoing>,
}

/// The futures that run while lines are being read: the client's requests, and responses that are
/// being sent.
type Running = FuturesUnordered<BoxFuture<'static, ()>>;

impl Connection {
    async fn read(self, reader: impl AsyncRead) -> io::Result<()> {
        let mut running = Running::new();
        let mut version = self.state.tools_version();
        let mut lines = Box::pin(lines(reader));
        let mut count = 0;
        loop {
            let line = tokio::select! {
                // Requests are polled before the next line is read, so that answers that are
                // available immediately are sent even if the client closes its side right away.
                biased;
                Some(()) = running.next() => continue,
                Ok(()) = version.changed() => {
                    running.extend(self.notify_of_tools());
                    continue;
                }
                line = lines.next() => line,
            };
            let Some(line) = line.transpose()? else {
                return Ok(());
            };
            count += 1;
            if self.state.has_fault(McpFault::DiesAt(count)) {
                return Ok(());
            }
            running.extend(self.receive(&line));
        }
    }

    /// Returns a future that notifies the client of changed tools, or `None` unless the client is
    /// an initialized legacy-era client.
    fn notify_of_tools(&self) -> Option<BoxFuture<'static, ()>> {
        let message = notification("notifications/tools/list_changed", &json!({}));
        self.peer.is_initialized().then(|| self.send(message))
    }

    fn receive(&self, line: &[u8]) -> Option<BoxFuture<'static, ()>> {
        let log = &self.state.log;
        let Ok(value) = serde_json::from_slice::<Value>(line) else {
            log.record(json!(String::from_utf8_lossy(line)), &[], None);
            log.record_violation("a line is not JSON");
            let answer = error_message(&Value::Null, PARSE_ERROR, "Parse error", None);
            return Some(self.send(answer));
        };
        match parse_message(&value) {
            Ok(Message::Request(request)) => self.receive_request(value, request),
            Ok(Message::Notification { method, params }) => {
                log.record(value, &[], None);
                self.state.receive_notification(&self.peer, &method, &params);
                None
            }
            Ok(Message::Response { id, outcome }) => {
                log.record(value, &[], None);
                self.state.receive_response(&self.peer, &id, outcome);
                None
            }
            Err(malformed) => {
                log.record(value, &[], None);
                log.record_violation(malformed.reason.as_str());
                let answer = error_message(&malformed.id, INVALID_REQUEST, malformed.reason, None);
                Some(self.send(answer))
            }
        }
    }

    fn receive_request(&self, value: Value, request: Request) -> Option<BoxFuture<'static, ()>> {
        let index = self.state.log.record(value, &[], Some(McpRequestStatus::Running));
        let protocol = protocol_of(self.state.era(), &self.peer, &request);
        let reaction = match self.state.is_silent_on(&request) {
            true => Reaction::Silence,
            false => react(&self.state, &self.peer, protocol, &request),
        };
        let running = RunningRequest {
            state: Arc::clone(&self.state),
            peer: Arc::clone(&self.peer),
            protocol,
            request: Arc::new(request),
            index,
        };
        let id = running.request.id.clone();
        running.start(reaction, self.out.clone()).or_else(|| {
            let reason = format!("the id {id} is in use");
            self.state.log.record_violation(reason.as_str());
            Some(self.send(error_message(&id, INVALID_REQUEST, reason, None)))
        })
    }

    fn send(&self, message: Value) -> BoxFuture<'static, ()> {
        let out = self.out.clone();
        // Sending fails only if the receiver was dropped because writing failed, which ends the
        // connection.
        async move { drop(out.send(Outgoing::Message(message)).await) }.boxed()
    }
}

/// Returns a reader's lines without their line endings, skipping empty lines.
fn lines(reader: impl AsyncRead) -> impl Stream<Item = io::Result<Vec<u8>>> {
    let reader = BufReader::new(Box::pin(reader));
    let lines = stream::try_unfold(reader, async |mut reader| {
        let mut line = Vec::new();
        match reader.read_until(b'\n', &mut line).await? {
            0 => Ok(None),
            _ => Ok(Some((line.trim_ascii().to_vec(), reader))),
        }
    });
    lines.filter(|line| future::ready(line.as_ref().map_or(true, |line| !line.is_empty())))
}

async fn write(
    state: &State,
    mut queue: mpsc::Receiver<Outgoing>,
    writer: impl AsyncWrite,
) -> io::Result<()> {
    let mut writer = Box::pin(writer);
    let drip = state.drip();
    while let Some(outgoing) = queue.recv().await {
        for piece in outgoing.pieces(MessageFraming::Line) {
            match drip {
                None => writer.write_all(&piece).await?,
                Some(wait) => {
                    for byte in piece {
                        sleep(wait).await;
                        writer.write_all(&[byte]).await?;
                        writer.flush().await?;
                    }
                }
            }
        }
        writer.flush().await?;
    }
    writer.shutdown().await
}
