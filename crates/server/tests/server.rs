//! A server on loopback, and requests to it.

use std::future::pending;
use std::net::SocketAddr;

use axum::Router;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use turnstream::Agent;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::usage::Usage;
use turnstream_server::{AgentServer, ConnectionLimits, listen, serve};

/// The result of the agent's own tool, which no client may see.
pub(crate) const SECRET: &str = "the secret result";

/// A tool without arguments that finds a text.
pub(crate) fn search_tool() -> Tool {
    let spec = ToolSpec::new("search", "Searches", json!({ "type": "object", "properties": {} }));
    Tool::raw(spec, |_, _| async { SECRET }).unwrap()
}

/// An agent that says something, calls its own tool, and answers.
pub(crate) fn searching_agent() -> Agent {
    let model = Scripted::from_fn(|request, _| {
        match request.history.iter().any(|item| item.as_tool_result().is_some()) {
            false => Reply::new().say("Let me ").say("look.").call("search", json!({})),
            true => Reply::new().say("It is ").say("five."),
        }
        .usage(Usage { input_tokens: 100, output_tokens: 10, ..Usage::default() })
    });
    Agent::new(model).with_tools([search_tool()])
}

/// A server on loopback that ends with the test's runtime.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    http: reqwest::Client,
}

/// A response to a request.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Answered {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

impl Served {
    /// Serves an agent as the model `assistant`.
    pub(crate) async fn agent(agent: Agent) -> Self {
        Self::router(AgentServer::new().with_model("assistant", agent).router()).await
    }

    pub(crate) async fn router(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, http: reqwest::Client::builder().no_proxy().build().unwrap() }
    }

    /// Serves a chat server with the crate's own `serve`.
    pub(crate) fn chat(router: Router) -> Self {
        let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, router, ConnectionLimits::default(), pending()));
        Self { address, http: reqwest::Client::builder().no_proxy().build().unwrap() }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn request(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        let request = self.http.post(self.url(path)).header("content-type", "application/json");
        request.body(body.to_string())
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answered {
        self.send(self.request(path, body)).await
    }

    pub(crate) fn get_request(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.get(self.url(path))
    }

    pub(crate) async fn get(&self, path: &str) -> Answered {
        self.send(self.get_request(path)).await
    }

    /// Sends a request without a body.
    pub(crate) async fn request_with(
        &self,
        method: reqwest::Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Answered {
        let request = self.http.request(method, self.url(path));
        self.send(headers.iter().fold(request, |it, (name, value)| it.header(*name, *value))).await
    }

    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Answered {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Answered { status, headers, text: response.text().await.unwrap() }
    }
}
