//! How a run is sent as a message.

use std::time::Duration;

use futures::Stream;

use super::encode::AiSdkEncoder;
use super::version::Version;
use crate::error::Error;
use crate::event::Event;
use crate::session::Session;
use crate::ui::error_texts::ErrorTexts;
use crate::ui::message_name::MessageName;
use crate::ui::response::{DEFAULT_KEEP_ALIVE, Response, ResponseBody};

/// How a run is sent as a UI message stream.
///
/// ```
/// use futures::TryStreamExt;
/// use turnstream::Agent;
/// use turnstream::provider::Scripted;
/// use turnstream::ui::ai_sdk::{AiSdk, Version};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let run = Agent::new(Scripted::new(["Hello!"])).run("Hi");
/// let response = AiSdk::new(Version::V6).respond(run);
///
/// let body: Vec<_> = response.body.try_collect().await.unwrap();
/// let text = String::from_utf8(body.concat()).unwrap();
/// assert!(text.contains(r#"data: {"type":"text-delta","id":"t1.0","delta":"Hello!"}"#));
/// assert!(text.ends_with("data: [DONE]\n\n"));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AiSdk {
    encoder: AiSdkEncoder,
    keep_alive: Option<Duration>,
}

/// That of [`Version::V6`].
impl Default for AiSdk {
    fn default() -> Self {
        Self::new(Version::default())
    }
}

impl AiSdk {
    /// The stream for this version of the client. The client finds an id for the message, tools have no types,
    /// a comment is sent every 15 seconds of silence, and texts of errors are hidden.
    pub fn new(version: Version) -> Self {
        let encoder = AiSdkEncoder { version, ..AiSdkEncoder::default() };
        Self { encoder, keep_alive: Some(DEFAULT_KEEP_ALIVE) }
    }

    /// Sets the id of the message.
    pub fn with_message_id(mut self, id: impl Into<String>) -> Self {
        self.encoder.name = MessageName::Given(id.into());
        self
    }

    /// Names the message after the session, `{session}:{number}`. The number is that of the entries which the
    /// session has when the message begins, after the input of the run. It never changes, so a client can ask
    /// for [another answer](super::ChatRequest::action) by it.
    ///
    /// Call it when the run was made and nothing was pulled from it.
    pub fn with_session(mut self, session: &Session) -> Self {
        self.encoder.name = MessageName::of_session(session);
        self
    }

    /// Continues a message that the client has, the one whose calls were approved or answered: results of calls
    /// from before this run go into it.
    pub fn continue_message(mut self, id: impl Into<String>) -> Self {
        self.encoder.continues = true;
        self.with_message_id(id)
    }

    /// Sends calls as parts `tool-{name}`, which the client's own types check, instead of `dynamic-tool`.
    pub fn with_typed_tools(mut self) -> Self {
        self.encoder.has_typed_tools = true;
        self
    }

    /// Sets how long the connection may be silent before a comment is sent; 15 seconds unless set. `None` sends
    /// no comments. They need a tokio runtime with timers.
    pub fn with_keep_alive(mut self, every: impl Into<Option<Duration>>) -> Self {
        self.keep_alive = every.into();
        self
    }

    /// Sets whether texts of errors are sent; they are hidden unless set.
    pub fn with_error_texts(mut self, texts: ErrorTexts) -> Self {
        self.encoder.error_texts = texts;
        self
    }

    /// The response that sends this run, up to [`Finished`](Event::Finished) or the first error.
    pub fn respond<S>(self, events: S) -> Response<ResponseBody<S>>
    where
        S: Stream<Item = Result<Event, Error>>,
    {
        let body = ResponseBody::new(events, self.encoder, self.keep_alive);
        Response::of_stream(body, Some(("x-vercel-ai-ui-message-stream", "v1")))
    }
}
