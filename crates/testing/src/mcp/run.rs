//! Runs a request to completion and sends the answer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{AbortHandle, Abortable, BoxFuture};
use futures::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::mcp::answer::{McpAnswer, Outcome};
use crate::mcp::call::McpCall;
use crate::mcp::dispatch::{PreparedCall, Reaction, complete};
use crate::mcp::era::Protocol;
use crate::mcp::fault::McpFault;
use crate::mcp::log::McpRequestStatus;
use crate::mcp::message::{INTERNAL_ERROR, Request, error_message, notification};
use crate::mcp::outgoing::Outgoing;
use crate::mcp::peer::Peer;
use crate::mcp::state::{Question, State};
use crate::panic::panic_message;

const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// The interval between the notifications that [`McpFault::EndlessProgress`] sends.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(1);

/// A request that is being answered. If this value is dropped before the request is answered, the
/// request is marked as cancelled in the log.
#[derive(Debug)]
pub(super) struct RunningRequest {
    pub(super) state: Arc<State>,
    pub(super) peer: Arc<Peer>,
    pub(super) protocol: Protocol,
    pub(super) request: Arc<Request>,
    /// The request's index in the log.
    pub(super) index: usize,
}

impl RunningRequest {
    /// Returns a future that runs the request until it completes or [`Peer::cancel`] cancels it.
    /// Returns `None` if the request's id is already in use.
    pub(super) fn start(
        self,
        reaction: Reaction,
        out: mpsc::Sender<Outgoing>,
    ) -> Option<BoxFuture<'static, ()>> {
        let (abort, registration) = AbortHandle::new_pair();
        if !self.peer.add_running(&self.request.id, abort) {
            self.end();
            return None;
        }
        let registered = Registered(Arc::clone(&self.peer), self.request.id.clone());
        let run = async move {
            let _registered = registered;
            self.run(reaction, out).await;
        };
        Some(Abortable::new(run, registration).map(drop).boxed())
    }

    async fn run(self, reaction: Reaction, out: mpsc::Sender<Outgoing>) {
        match reaction {
            Reaction::Answer(message) => self.send_answer(message, &out).await,
            Reaction::Silence => std::future::pending().await,
            Reaction::Listen { wants_tools } => self.listen(wants_tools, &out).await,
            Reaction::Call(call) => self.call(call, &out).await,
        }
    }

    async fn call(&self, prepared: PreparedCall, out: &mpsc::Sender<Outgoing>) {
        let PreparedCall { tool, arguments, answered } = prepared;
        let call = McpCall {
            protocol: self.protocol,
            request: Arc::clone(&self.request),
            peer: Arc::clone(&self.peer),
            out: out.clone(),
            answered: Arc::new(answered),
        };
        for fault in self.state.faults() {
            match fault {
                McpFault::EndlessProgress => return progress_for_ever(&self.request, out).await,
                McpFault::LongLine(padding) => {
                    let _ = out.send(self.padded(padding, false)).await;
                    return std::future::pending().await;
                }
                McpFault::LargeResult(padding) => {
                    let _ = out.send(self.padded(padding, true)).await;
                    return self.end();
                }
                _ => {}
            }
        }
        let handler = async { (tool.handler)(arguments.clone(), call).await };
        let answer = AssertUnwindSafe(handler).catch_unwind().await.unwrap_or_else(|payload| {
            let panic = panic_message(&*payload);
            McpAnswer::rpc_error(INTERNAL_ERROR, format!("the tool's handler panicked: {panic}"))
        });
        let message = self.message_of(answer, arguments);
        self.send_answer(message, out).await;
    }

    fn message_of(&self, answer: McpAnswer, arguments: Value) -> Value {
        match answer.0 {
            Outcome::Result(result) => {
                complete(self.protocol, &self.request, Value::Object(result))
            }
            Outcome::RpcError { code, message, data } => {
                error_message(&self.request.id, code, message, data)
            }
            Outcome::InputRequired { key, request, answered } => {
                let tool = self.request.param("name").unwrap_or_default().to_owned();
                let input_requests = json!({ key.as_str(): request });
                let question = Question { tool, arguments, key, answered };
                self.request.result(&json!({
                    "resultType": "input_required",
                    "inputRequests": input_requests,
                    "requestState": self.state.add_question(question),
                }))
            }
        }
    }

    /// Sends an answer, along with any messages that faults add.
    async fn send_answer(&self, message: Value, out: &mpsc::Sender<Outgoing>) {
        for outgoing in answer_with_faults(&self.state, &self.peer, message) {
            // Sending fails only if the receiver was dropped because the client closed the
            // response.
            let _ = out.send(outgoing).await;
        }
        self.end();
    }

    async fn listen(&self, wants_tools: bool, out: &mpsc::Sender<Outgoing>) {
        let meta = json!({ SUBSCRIPTION_KEY: self.request.id });
        let filter = match wants_tools {
            true => json!({ "toolsListChanged": true }),
            false => json!({}),
        };
        let mut version = self.state.tools_version();
        let params = json!({ "notifications": filter, "_meta": meta });
        let message = notification("notifications/subscriptions/acknowledged", &params);
        let _ = out.send(Outgoing::Message(message)).await;
        while version.changed().await.is_ok() {
            if wants_tools {
                let changed =
                    notification("notifications/tools/list_changed", &json!({ "_meta": meta }));
                let _ = out.send(Outgoing::Message(changed)).await;
            }
        }
    }

    /// Returns a result message that contains a text of `padding` bytes.
    fn padded(&self, padding: u64, ends: bool) -> Outgoing {
        const MARK: &str = "<padding>";
        let result = json!({ "content": [{ "type": "text", "text": MARK }] });
        let message = complete(self.protocol, &self.request, result).to_string();
        // Invariant: the message contains `MARK`, which needs no escaping.
        let (before, after) = message.rsplit_once(MARK).unwrap_or((&message, ""));
        Outgoing::Padded { before: before.to_owned(), padding, after: after.to_owned(), ends }
    }

    fn end(&self) {
        self.state.log.end(self.index, McpRequestStatus::Answered);
    }
}

impl Drop for RunningRequest {
    /// Marks the request as cancelled in the log, if it has not been answered yet.
    fn drop(&mut self) {
        self.state.log.end(self.index, McpRequestStatus::Cancelled);
    }
}

/// A guard that removes a request from the peer's running requests when the guard is dropped.
struct Registered(Arc<Peer>, Value);

impl Drop for Registered {
    fn drop(&mut self) {
        self.0.remove_running(&self.1);
    }
}

async fn progress_for_ever(request: &Request, out: &mpsc::Sender<Outgoing>) {
    let token = request.meta().and_then(|meta| meta.get("progressToken"));
    let token = token.unwrap_or(&request.id).clone();
    let progress = stream::iter(1_u64..).then(|progress| {
        let params = json!({ "progressToken": token, "progress": progress });
        let message = notification("notifications/progress", &params);
        async move {
            // Sending fails only if the receiver was dropped because the client closed the
            // response.
            let _ = out.send(Outgoing::Message(message)).await;
            sleep(PROGRESS_INTERVAL).await;
        }
    });
    progress.for_each(|()| std::future::ready(())).await;
}

/// Returns an answer, along with any messages that faults add.
pub(super) fn answer_with_faults(state: &State, peer: &Peer, mut answer: Value) -> Vec<Outgoing> {
    let mut outgoing = Vec::new();
    let mut count = 1;
    for fault in state.faults() {
        match fault {
            McpFault::Noise => outgoing.extend(
                ["INFO the server is ready", "{\"jsonrpc\":\"2.0\",\"id\":", "[1,2", "null", ""]
                    .map(|noise| Outgoing::Raw(Bytes::from_static(noise.as_bytes()))),
            ),
            McpFault::BinaryNoise => {
                let noise: &[u8] = &[0xff, 0xfe, 0x00, 0x80, 0xc3, 0x28, 0x1b, b'[', b'2', b'J'];
                outgoing.push(Outgoing::Raw(Bytes::from_static(noise)));
            }
            McpFault::UnsolicitedRequests => {
                outgoing.extend(unsolicited_requests(peer).map(Outgoing::Message));
            }
            McpFault::WrongIds => answer["id"] = json!(format!("not {}", answer["id"])),
            McpFault::AnswersTwice => count = 2,
            _ => {}
        }
    }
    outgoing.extend(std::iter::repeat_n(Outgoing::Message(answer), count));
    outgoing
}

/// Returns one request for each method that a server can call, and one request for an unknown
/// method. The client may respond to these requests, but its responses are ignored.
fn unsolicited_requests(peer: &Peer) -> impl Iterator<Item = Value> {
    let message = json!({ "role": "user", "content": { "type": "text", "text": "Hi" } });
    let sampling = json!({ "messages": [message], "maxTokens": 10 });
    let elicitation = json!({
        "mode": "form",
        "message": "Which password?",
        "requestedSchema": { "type": "object", "properties": {} },
    });
    let requests = [
        ("sampling/createMessage", sampling),
        ("elicitation/create", elicitation),
        ("roots/list", json!({})),
        ("ping", json!({})),
        ("no/such/method", json!({})),
    ];
    requests.into_iter().map(|(method, params)| {
        let id = peer.next_request_id();
        drop(peer.expect_response(&id));
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    })
}
