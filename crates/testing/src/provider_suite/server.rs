//! The server that receives requests from the provider under test.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::http::{BodyPart, HttpRequest, HttpResponse, LoopbackServer};
use crate::provider_suite::report::UnmetClaim;
use crate::provider_suite::subject::Subject;

/// The API key that every provider in the suite uses.
pub(super) const API_KEY: &str = "suite-key-5b1f0c9d2e7a4836";

/// How long a check waits for an event before the check fails.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(10);

/// The path of requests from the suite itself.
const PROBE_PATH: &str = "/provider-suite-probe";

/// A server that answers a provider's requests.
pub(super) struct SuiteServer(LoopbackServer);

impl SuiteServer {
    /// Starts a server that sends these answers in order, and then repeats the last one.
    pub(super) async fn start(answers: Vec<HttpResponse>) -> Result<Self, UnmetClaim> {
        let request_count = AtomicUsize::new(0);
        let server = LoopbackServer::start(move |request| match request.path.as_str() {
            PROBE_PATH => HttpResponse::text(200, ""),
            _ => {
                answers[request_count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1)].clone()
            }
        });
        server.await.map(Self).map_err(|error| UnmetClaim::Failed(format!("no server: {error}")))
    }

    /// Starts a server that sends the same answer to each request.
    pub(super) async fn start_repeating(response: HttpResponse) -> Result<Self, UnmetClaim> {
        Self::start(vec![response]).await
    }

    pub(super) fn provider<S: Subject>(&self, subject: &S) -> S::Provider {
        subject.provider(&self.0.url(), API_KEY)
    }

    /// Returns the requests that the provider has sent so far.
    pub(super) fn requests(&self) -> Vec<HttpRequest> {
        self.0.requests().into_iter().filter(|request| request.path != PROBE_PATH).collect()
    }

    /// Returns the body of the provider's `n`th request as a string, counting from 0.
    pub(super) fn request_body(&self, n: usize) -> Result<String, UnmetClaim> {
        let requests = self.requests();
        let request = requests.get(n);
        let request = request.ok_or_else(|| {
            UnmetClaim::Failed(format!("{} requests were received", requests.len()))
        })?;
        Ok(String::from_utf8_lossy(&request.body).into_owned())
    }

    /// Waits until the server has received everything that was sent so far. To do so, this method
    /// sends a request of its own and waits for the answer.
    pub(super) async fn wait_for_requests(&self) -> Result<(), UnmetClaim> {
        let probe = async {
            let mut stream = TcpStream::connect(self.0.url().trim_start_matches("http://")).await?;
            let request = format!("GET {PROBE_PATH} HTTP/1.1\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            stream.read_to_end(&mut Vec::new()).await?;
            io::Result::Ok(())
        };
        with_timeout("the suite's own request", probe)
            .await?
            .map_err(|error| UnmetClaim::Failed(format!("the suite's own request failed: {error}")))
    }

    /// Waits until the client closes the connection before the end of an answer.
    pub(super) async fn wait_for_early_close(&self) -> Result<(), UnmetClaim> {
        with_timeout("the connection to be closed", self.0.wait_for_early_close()).await
    }
}

/// Creates a streamed answer.
pub(super) fn stream_response<S: Subject>(subject: &S, body: Vec<BodyPart>) -> HttpResponse {
    let headers = vec![("content-type".to_owned(), subject.media_type().to_owned())];
    HttpResponse { status: 200, headers, body }
}

/// Creates an error response with a body in the subject's format.
pub(super) fn refusal_response<S: Subject>(
    subject: &S,
    status: u16,
    message: &str,
) -> HttpResponse {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    let body = vec![BodyPart::Bytes(subject.error_body(status, message).into())];
    HttpResponse { status, headers, body }
}

pub(super) fn bytes_part(bytes: &[u8]) -> BodyPart {
    BodyPart::Bytes(Bytes::copy_from_slice(bytes))
}

/// Waits for an event, and fails if the time limit expires. `what` names the event in the failure
/// message.
pub(super) async fn with_timeout<F: Future>(
    what: &str,
    future: F,
) -> Result<F::Output, UnmetClaim> {
    let waited = timeout(CLAIM_TIMEOUT, future).await;
    waited.map_err(|_| UnmetClaim::Failed(format!("it waits too long for {what}")))
}
