//! A model whose replies and their timing are controlled by the test.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// A server of OpenAI's Chat Completions API. Each request waits for the test to answer it.
pub(crate) struct Model {
    address: std::net::SocketAddr,
    asked: tokio::sync::Mutex<mpsc::UnboundedReceiver<Asked>>,
    task: AbortHandle,
}

/// A waiting request, and its answer so far.
pub(crate) struct Asked {
    pub(crate) body: Value,
    answer: mpsc::UnboundedSender<Answer>,
}

enum Answer {
    Chunk(String),
    Refusal { status: u16, retry_after: u32 },
}

type Sender = Arc<Mutex<mpsc::UnboundedSender<Asked>>>;

impl Model {
    pub(crate) async fn start() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new()
            .route("/v1/chat/completions", post(complete))
            .with_state(Arc::new(Mutex::new(sender)));
        let task = tokio::spawn(async move { axum::serve(listener, app).await }).abort_handle();
        Self { address, asked: tokio::sync::Mutex::new(receiver), task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Waits for the next request.
    pub(crate) async fn asked(&self) -> Asked {
        let mut asked = self.asked.lock().await;
        let limit = std::time::Duration::from_secs(20);
        let next = tokio::time::timeout(limit, asked.recv()).await;
        next.expect("the model is not asked").unwrap()
    }

    /// Answers the next request with this text.
    pub(crate) async fn answer(&self, words: &str) {
        let asked = self.asked().await;
        asked.say(words);
        asked.end();
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn complete(State(sender): State<Sender>, axum::Json(body): axum::Json<Value>) -> Response {
    let (answer, mut answers) = mpsc::unbounded_channel();
    let _ = sender.lock().unwrap().send(Asked { body, answer });
    let first = match answers.recv().await {
        Some(Answer::Refusal { status, retry_after }) => {
            let response = Response::builder().status(status).header("retry-after", retry_after);
            return response.body(Body::from("{\"error\":{\"message\":\"busy\"}}")).unwrap();
        }
        first => first,
    };
    let stream = futures::stream::unfold((first, answers), async |(first, mut answers)| {
        let answer = if first.is_some() { first } else { answers.recv().await };
        let Some(Answer::Chunk(chunk)) = answer else { return None };
        Some((Ok::<_, Infallible>(Bytes::from(chunk)), (None, answers)))
    });
    let response = Response::builder().header("content-type", "text/event-stream");
    response.body(Body::from_stream(stream.boxed())).unwrap()
}

impl Asked {
    fn chunk(&self, delta: &Value, reason: Option<&str>) {
        let chunk = json!({
            "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }],
        });
        // A client that has disconnected is not an error of the test.
        let _ = self.answer.send(Answer::Chunk(format!("data: {chunk}\n\n")));
    }

    /// Refuses the request, with the number of seconds after which it may be retried.
    pub(crate) fn refuse(self, status: u16, retry_after: u32) {
        let _ = self.answer.send(Answer::Refusal { status, retry_after });
    }

    pub(crate) fn say(&self, words: &str) {
        self.chunk(&json!({ "content": words }), None);
    }

    pub(crate) fn call(&self, id: &str, name: &str, arguments: &Value) {
        self.call_as_written(id, name, &arguments.to_string());
    }

    /// A call with arguments that need not be JSON.
    pub(crate) fn call_as_written(&self, id: &str, name: &str, arguments: &str) {
        let function = json!({ "name": name, "arguments": arguments });
        let call = json!({ "index": 0, "id": id, "type": "function", "function": function });
        self.chunk(&json!({ "tool_calls": [call] }), None);
    }

    /// A piece of reasoning.
    pub(crate) fn reason(&self, words: &str) {
        self.chunk(&json!({ "reasoning_content": words }), None);
    }

    pub(crate) fn end(self) {
        self.finish("stop", None);
    }

    /// Ends the turn, and reports its input and output tokens.
    pub(crate) fn end_with_usage(self, input: u64, output: u64) {
        self.finish("stop", Some((input, output)));
    }

    pub(crate) fn end_with_call(self, id: &str, name: &str, arguments: &Value) {
        self.call(id, name, arguments);
        self.end_with_calls();
    }

    /// Ends the turn after its calls.
    pub(crate) fn end_with_calls(self) {
        self.finish("tool_calls", None);
    }

    /// Ends the turn after its calls, and reports its input and output tokens.
    pub(crate) fn end_with_calls_and_usage(self, input: u64, output: u64) {
        self.finish("tool_calls", Some((input, output)));
    }

    fn finish(self, reason: &str, usage: Option<(u64, u64)>) {
        self.chunk(&json!({}), Some(reason));
        if let Some((input, output)) = usage {
            let usage = json!({ "prompt_tokens": input, "completion_tokens": output });
            let chunk = json!({ "id": "c", "object": "chat.completion.chunk", "created": 1,
                "model": "m", "choices": [], "usage": usage });
            let _ = self.answer.send(Answer::Chunk(format!("data: {chunk}\n\n")));
        }
        let _ = self.answer.send(Answer::Chunk("data: [DONE]\n\n".to_owned()));
    }
}
