//! A provider that returns scripted replies and needs neither a network nor an API key.

mod reply;

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use tokio::time::Sleep;

pub use reply::{Reply, ReplyStep};

use crate::error::{Error, ErrorKind};
use crate::item::ProviderData;
use crate::lock::lock_ignoring_poison;
use crate::provider::Provider;
use crate::provider::codec::content_delta::{ContentDelta, SignatureTarget};
use crate::provider::wrap::first_poll::start_at_first_poll;
use crate::request::Request;
use crate::stream::{TurnPoll, TurnSource, TurnStream};
use crate::turn::TurnBuilder;

/// The name that identifies this provider in provider data.
const PROVIDER_NAME: &str = "scripted";

/// Answers each request with the next [`Reply`] in a script, or with the reply that a function
/// returns for the request.
///
/// A scripted turn follows the same rules as turns from other providers: it is
/// [sealed](crate::stream::seal), starts when first polled, and is cancelled when dropped. The
/// provider keeps a list of all requests that it receives. Clones of the provider share the script
/// and the list of requests.
///
/// ```
/// use serde_json::json;
/// use turnstream::provider::{Provider, Reply, Scripted};
/// use turnstream::stream::TurnStreamExt;
/// use turnstream::{History, Request, env::SystemIds};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let model = Scripted::new([
///     Reply::new().think("I need a sum.").call("add", json!({ "a": 1, "b": 2 })),
///     Reply::text("It is 3."),
/// ]);
/// let request = Request::new(History::new(&SystemIds));
/// let turn = model.stream_turn(request.clone()).into_turn().await?;
/// assert_eq!(turn.tool_calls().next().unwrap().name, "add");
/// let turn = model.stream_turn(request).into_turn().await?;
/// assert_eq!(turn.text(), "It is 3.");
/// assert_eq!(model.requests().len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Scripted {
    script: Arc<Script>,
    state: Arc<SharedState>,
    model: Arc<str>,
}

type Script = dyn Fn(&Request, usize) -> Option<Reply> + Send + Sync;

#[derive(Default)]
struct SharedState {
    requests: Mutex<Vec<Request>>,
    in_flight: AtomicUsize,
}

impl Scripted {
    /// Creates a provider that answers the first request with the first reply, the second request
    /// with the second reply, and so on. Once all replies have been used, every request fails with
    /// an error.
    pub fn new<R: Into<Reply>>(replies: impl IntoIterator<Item = R>) -> Self {
        let replies: Vec<Reply> = replies.into_iter().map(Into::into).collect();
        Self::from_script(move |_, at| replies.get(at).cloned())
    }

    /// Creates a provider that answers each request with the result of calling `reply`. The second
    /// argument to `reply` is the number of requests received before the current request.
    pub fn from_fn<R: Into<Reply>>(
        reply: impl Fn(&Request, usize) -> R + Send + Sync + 'static,
    ) -> Self {
        Self::from_script(move |request, n| Some(reply(request, n).into()))
    }

    /// Sets the model's name; `scripted` by default.
    pub fn with_model(mut self, name: impl Into<Arc<str>>) -> Self {
        self.model = name.into();
        self
    }

    /// Returns all requests that the provider has received, in order.
    pub fn requests(&self) -> Vec<Request> {
        lock_ignoring_poison(&self.state.requests).clone()
    }

    /// Returns the number of turns that have started and are neither complete nor dropped.
    pub fn in_flight(&self) -> usize {
        self.state.in_flight.load(Ordering::Relaxed)
    }

    fn from_script(
        script: impl Fn(&Request, usize) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        Self { script: Arc::new(script), state: Arc::default(), model: "scripted".into() }
    }

    fn next_reply(&self, request: &Request, turn: &mut TurnBuilder) -> Result<ScriptedTurn, Error> {
        let model = request.model.clone().unwrap_or_else(|| self.model.to_string());
        turn.set_model(&model);
        let at = {
            let mut requests = lock_ignoring_poison(&self.state.requests);
            requests.push(request.clone());
            requests.len() - 1
        };
        // The lock is not held while the script runs, because the script may call `requests`.
        let Some(reply) = (self.script)(request, at) else {
            let message = format!("the script has no reply for request {}", at + 1);
            return Err(Error::new(ErrorKind::Other, message));
        };
        let seen = Arc::clone(&self.state);
        seen.in_flight.fetch_add(1, Ordering::Relaxed);
        Ok(ScriptedTurn { model, steps: reply.into_steps().into_iter(), sleep: None, state: seen })
    }
}

impl Provider for Scripted {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let scripted = self.clone();
        start_at_first_poll(request, move |request, turn| scripted.next_reply(&request, turn))
    }

    fn model(&self) -> &str {
        &self.model
    }
}

impl_debug!(
    Scripted(it),
    model = it.model,
    requests = it.requests().len(),
    in_flight = it.in_flight()
);

/// Streams a scripted turn.
struct ScriptedTurn {
    model: String,
    steps: std::vec::IntoIter<ReplyStep>,
    sleep: Option<Pin<Box<Sleep>>>,
    state: Arc<SharedState>,
}

impl Drop for ScriptedTurn {
    fn drop(&mut self) {
        self.state.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TurnSource for ScriptedTurn {
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll {
        let this = self.get_mut();
        if let Some(sleep) = &mut this.sleep {
            ready!(sleep.as_mut().poll(cx));
            this.sleep = None;
        }
        let Some(next) = this.steps.next() else { return Poll::Ready(None) };
        match next {
            ReplyStep::Delta(index, delta) => push_delta(index, delta, &this.model, turn),
            ReplyStep::Usage(usage) => turn.set_usage(usage),
            ReplyStep::Billing(billing) => *turn.billing() = billing,
            ReplyStep::Event(event) => turn.absorb(event),
            ReplyStep::Retract(why) => {
                turn.retract(why);
                turn.set_model(&this.model);
            }
            ReplyStep::Stop(reason) => {
                let raw = reason.as_str().to_owned();
                turn.stop(reason, &raw);
                return Poll::Ready(Some(turn.complete()));
            }
            ReplyStep::Error(error) => return Poll::Ready(Some(Err(error))),
            ReplyStep::Disconnect => return Poll::Ready(None),
            ReplyStep::Delay(time) => this.sleep = Some(Box::pin(tokio::time::sleep(time))),
            ReplyStep::Hang => {
                // This step is repeated, so that the turn remains pending until the stream is
                // dropped.
                this.steps = vec![ReplyStep::Hang].into_iter();
                return Poll::Pending;
            }
        }
        Poll::Ready(Some(Ok(())))
    }
}

fn push_delta(index: u32, delta: ContentDelta, model: &str, turn: &mut TurnBuilder) {
    match delta {
        ContentDelta::Text(piece) => turn.push_text(index, &piece),
        ContentDelta::Refusal(piece) => turn.push_refusal(index, &piece),
        ContentDelta::Reasoning(kind, piece) => turn.push_reasoning(index, &piece, kind),
        ContentDelta::CallStart { call_id, name } => turn.start_tool_call(index, &call_id, &name),
        ContentDelta::CallArgs(piece) => turn.push_tool_call_args(index, &piece),
        ContentDelta::CallEnd => turn.end_tool_call(index),
        ContentDelta::Signature(of, signature) => {
            let data = provider_data(model, "signature", &signature);
            match of {
                SignatureTarget::Text => turn.set_text_data(index, data),
                SignatureTarget::Reasoning => turn.set_reasoning_data(index, data),
                SignatureTarget::Call => turn.set_tool_call_data(index, data),
            }
        }
        ContentDelta::HiddenReasoning(data) => {
            turn.set_reasoning_data(index, provider_data(model, "data", &data));
        }
    }
}

/// Creates provider data that must be sent back to the model, like the provider data of an HTTP
/// provider.
fn provider_data(model: &str, field: &str, value: &str) -> ProviderData {
    let value = serde_json::json!({ field: value }).into();
    ProviderData { provider: PROVIDER_NAME.to_owned(), model: model.to_owned(), value }
}
