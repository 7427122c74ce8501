//! A model on the loopback device.

use std::fmt;

use serde_json::Value;

use crate::provider::Reply;
use crate::testing::anthropic;
use crate::testing::http::{HttpRequest, HttpResponse, LoopbackServer};

/// A server on 127.0.0.1 that speaks a provider's wire and says what a function tells it to.
///
/// The function gets the JSON body of each request and how many came before, and gives a
/// [`Reply`]. A reply that begins with an error that has a status is answered with that status;
/// any other error stands in the stream.
///
/// It keeps a record of every request. Dropping it closes all connections.
///
/// ```
/// use turnstream::testing::ModelServer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let server = ModelServer::anthropic(|_body, _n| "Hello!").await?;
/// # #[cfg(feature = "http")] {
/// use turnstream::{Agent, provider::Anthropic};
///
/// let model = Anthropic::new("any").with_base_url(server.url()).expect("a URL");
/// let outcome = Agent::new(model).run("Hi").outcome().await;
/// assert_eq!(outcome.text, "Hello!");
/// assert_eq!(server.requests()[0]["messages"][0]["role"], "user");
/// # }
/// # Ok(())
/// # }
/// ```
pub struct ModelServer {
    server: LoopbackServer,
}

impl ModelServer {
    /// Starts a server that speaks Anthropic Messages.
    ///
    /// What a reply says that this wire cannot say (a retraction, an event as it is) is answered
    /// with status 500.
    ///
    /// # Errors
    ///
    /// If no port of 127.0.0.1 can be had.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O and time.
    pub async fn anthropic<R: Into<Reply>>(
        reply: impl Fn(&Value, usize) -> R + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let handler = move |request: HttpRequest| {
            if request.method != "POST" || !request.path.ends_with("/v1/messages") {
                return anthropic::refusal(404, "not_found_error", "no such path");
            }
            let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
                return anthropic::refusal(400, "invalid_request_error", "the body is not JSON");
            };
            let n = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            anthropic::response(reply(&body, n).into(), &body, n)
        };
        Self::start(handler).await
    }

    async fn start(
        handler: impl Fn(HttpRequest) -> HttpResponse + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        Ok(Self { server: LoopbackServer::start(handler).await? })
    }

    /// The base URL for a provider of this wire.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The bodies of all requests, in order; `null` for one that was not JSON.
    pub fn requests(&self) -> Vec<Value> {
        let requests = self.server.requests();
        requests.iter().map(|r| serde_json::from_slice(&r.body).unwrap_or_default()).collect()
    }

    /// The server below, with the connections and the requests as they came.
    pub fn http(&self) -> &LoopbackServer {
        &self.server
    }
}

impl fmt::Debug for ModelServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelServer").field("url", &self.url()).finish_non_exhaustive()
    }
}
