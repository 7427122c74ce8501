//! Settings for sending a run as a UI message stream.

use std::time::Duration;

use futures::Stream;
use serde_json::Value;

use super::encode::AiSdkEncoder;
use super::stored::StoredMessages;
use super::version::Version;
use crate::agent::Agent;
use crate::error::Error;
use crate::event::Event;
use crate::partial::PartialValues;
use crate::session::Session;
use crate::ui::error_texts::ErrorTexts;
use crate::ui::message_name::MessageName;
use crate::ui::partial_sender::PartialSender;
use crate::ui::response::{DEFAULT_KEEP_ALIVE, Response, ResponseBody};

/// Sends a run to the client as a UI message stream.
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
    has_replays: bool,
}

/// By default, the settings for [`Version::V6`] are used.
impl Default for AiSdk {
    fn default() -> Self {
        Self::new(Version::default())
    }
}

impl AiSdk {
    /// Creates the default settings for this client version: the client generates the message's id,
    /// calls are sent as `dynamic-tool` parts, a keep-alive comment is sent after 15 seconds of
    /// inactivity, and error messages are hidden.
    pub fn new(version: Version) -> Self {
        let encoder = AiSdkEncoder { version, ..AiSdkEncoder::default() };
        Self { encoder, keep_alive: Some(DEFAULT_KEEP_ALIVE), has_replays: version >= Version::V7 }
    }

    /// Sets the message's id, in place of the id that the client otherwise generates.
    ///
    /// For a run in a hub, set the id that the message has among the loaded messages: the session's
    /// id, a colon and `session.version() + n`, evaluated after `session.run(…).await`. Here, `n`
    /// is the number of input items. Pass the same id when a client resumes.
    pub fn with_message_id(mut self, id: impl Into<String>) -> Self {
        self.encoder.name = MessageName::Given(id.into());
        self
    }

    /// Derives the message's id from the session, in the form `{session}:{number}`. `{number}` is
    /// the session's entry count when the message starts, after the run's input has been added. A
    /// message's id never changes, so a client can use it to request [another
    /// answer](super::ChatRequest::action).
    ///
    /// Call this method after creating the run and before polling it. A run in a [hub](crate::hub)
    /// is polled immediately. For such a run, compute the id from the session's version once
    /// `Session::run` has returned, plus the number of input items. Store the id together with the
    /// run, and pass it to [`with_message_id`](Self::with_message_id), including when a client
    /// resumes the stream. See the `web` example.
    pub fn with_session(mut self, session: &Session) -> Self {
        self.encoder.name = MessageName::of_session(session);
        self
    }

    /// Continues an existing message after its calls have been approved or answered. The results of
    /// calls that were made before this run are added to this message.
    pub fn continue_message(mut self, id: impl Into<String>) -> Self {
        self.encoder.continues = true;
        self.with_message_id(id)
    }

    /// Sends calls as `tool-{name}` parts, which the client can check against its own types,
    /// instead of as `dynamic-tool` parts.
    pub fn with_typed_tools(mut self) -> Self {
        self.encoder.has_typed_tools = true;
        self
    }

    /// Sets how long the stream may be idle before a keep-alive comment is sent. The default is 15
    /// seconds, and `None` disables the comments. The comments require a tokio runtime with timers.
    pub fn with_keep_alive(mut self, every: impl Into<Option<Duration>>) -> Self {
        self.keep_alive = every.into();
        self
    }

    /// Sets whether error messages are sent. By default, error messages are hidden.
    pub fn with_error_texts(mut self, texts: ErrorTexts) -> Self {
        self.encoder.error_texts = texts;
        self
    }

    /// Also sends each structured answer, or the arguments of calls, while the model writes them,
    /// as `data-partial` parts of the message. Off by default.
    ///
    /// The client replaces a value's part whenever the value has grown. The ids of the parts begin
    /// with `answer-` or `call-`, and differ from those of the runs that the message
    /// [continues](Self::continue_message). The part's data is
    /// `{"state": …, "value": …}`, with `toolCallId` for the arguments of a call. The state is
    /// `growing`, `complete`, `retracted` or `failed`; the last two have no value. A growing value
    /// is sent when no event is ready and its text has grown by an eighth since, so that all parts
    /// together are at most about nine times as long as the text.
    ///
    /// Without this setting, the client still has the text and, as the `input` of a tool part, its
    /// own reading of the arguments so far.
    ///
    /// ```
    /// use futures::TryStreamExt;
    /// use turnstream::Agent;
    /// use turnstream::partial::PartialValues;
    /// use turnstream::provider::Scripted;
    /// use turnstream::ui::ai_sdk::AiSdk;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let run = Agent::new(Scripted::new([r#"{"city":"Oslo"}"#])).run("The capital of Norway?");
    /// // A schema tells which strings are shown only once they have ended.
    /// let answer = PartialValues::untyped_answer(&true.into());
    /// let response = AiSdk::default().with_partials(answer).respond(run);
    ///
    /// let body: Vec<_> = response.body.try_collect().await.unwrap();
    /// let text = String::from_utf8(body.concat()).unwrap();
    /// let part = r#"{"type":"data-partial","id":"answer-1","data":{"state":"complete","value":{"city":"Oslo"}}}"#;
    /// assert!(text.contains(part));
    /// # }
    /// ```
    pub fn with_partials(mut self, values: PartialValues<Value>) -> Self {
        self.encoder.partials = Some(PartialSender::new(values));
        self
    }

    /// Creates a response that streams a run's events up to [`Finished`](Event::Finished) or the
    /// first error.
    ///
    /// Nothing is polled until the server polls the body. Dropping the body drops `events`; see
    /// [`ResponseBody`].
    pub fn respond<S>(self, events: S) -> Response<ResponseBody<S>>
    where
        S: Stream<Item = Result<Event, Error>>,
    {
        let body = ResponseBody::new(events, self.encoder, self.keep_alive);
        Response::of_stream(body, Some(("x-vercel-ai-ui-message-stream", "v1")))
    }

    /// Creates the response to the `GET` request that a client sends to resume a stream. `events`
    /// contains the events of the session's active run, starting with the first event. If no run is
    /// active, pass `None`, which results in a response with status 204.
    ///
    /// Dropping the body drops `events`, which ends a hub's reader but not its run.
    ///
    /// Version 7 clients rebuild the message from the first event on. Version 5 and 6 clients would
    /// show the text twice, so they receive a response with status 204 unless
    /// [replays](Self::with_replays) are enabled.
    pub fn respond_to_resume<S>(self, events: Option<S>) -> Response<ResponseBody<S>>
    where
        S: Stream<Item = Result<Event, Error>>,
    {
        match events.filter(|_| self.has_replays) {
            Some(events) => self.respond(events),
            None => Response {
                status: 204,
                headers: Vec::new(),
                body: ResponseBody::empty(self.encoder),
            },
        }
    }

    /// Allows clients that use version 5 or 6 of the AI SDK to resume streams. Resuming a stream
    /// sends the whole message again, so the app must remove the existing message first.
    pub fn with_replays(mut self) -> Self {
        self.has_replays = true;
        self
    }

    /// Loads the messages to show when a page opens, each as `UIMessage` JSON. A user message's id
    /// is derived from its entry in the session. An assistant message's id is the same id that
    /// [`with_session`](Self::with_session) derives.
    ///
    /// Compacted items are included, and items that were marked as tombstones are left out. As in
    /// the stream, steering input and follow-ups are parts of the assistant message, and items that
    /// the agent or its hooks added are left out. The messages contain an approval request for each
    /// pending call, except for calls to `agent`'s external tools, which wait for a result instead.
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if the entries cannot be read.
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::provider::Scripted;
    /// use turnstream::session::{MemoryStore, Session};
    /// use turnstream::ui::ai_sdk::AiSdk;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let agent = Agent::new(Scripted::new(["Hello!"]));
    /// let session = Session::open(MemoryStore::new(), "chat-1").await?;
    /// session.run(&agent, "Hi").await?.outcome().await?;
    ///
    /// let messages = AiSdk::default().load_messages(&session, &agent).await?;
    /// assert_eq!(messages[0]["id"], "chat-1:0");
    /// assert_eq!(messages[1]["id"], "chat-1:1");
    /// assert_eq!(messages[1]["parts"][1]["text"], "Hello!");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn load_messages(
        &self,
        session: &Session,
        agent: &Agent,
    ) -> Result<Vec<Value>, Error> {
        let messages = StoredMessages::new(session.id(), &self.encoder);
        Ok(messages.read(session.entries().await?, &session.state(), agent))
    }
}
