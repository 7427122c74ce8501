//! Settings for sending a run as AG-UI events.

use std::time::Duration;

use futures::Stream;
use serde_json::{Map, Value};

use super::encode::{AgUiEncoder, SharedPartials};
use super::request::RunRequest;
use super::stored::StoredMessages;
use crate::agent::Agent;
use crate::error::Error;
use crate::event::Event;
use crate::partial::PartialValues;
use crate::session::Session;
use crate::ui::error_texts::ErrorTexts;
use crate::ui::partial_sender::PartialSender;
use crate::ui::response::{DEFAULT_KEEP_ALIVE, Response, ResponseBody};

/// Sends a run to the client as AG-UI events.
///
/// ```
/// use futures::TryStreamExt;
/// use turnstream::Agent;
/// use turnstream::provider::Scripted;
/// use turnstream::ui::ClientLimits;
/// use turnstream::ui::ag_ui::{AgUi, RunRequest};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::ui::RequestError> {
/// let body = br#"{"threadId":"t","runId":"r","messages":[{"id":"1","role":"user","content":"Hi"}]}"#;
/// let request = RunRequest::parse(Some("application/json"), body, &ClientLimits::default())?;
/// let run = Agent::new(Scripted::new(["Hello!"])).run("Hi");
/// let response = AgUi::new(&request).respond(run);
///
/// let body: Vec<_> = response.body.try_collect().await.unwrap();
/// let text = String::from_utf8(body.concat()).unwrap();
/// assert!(text.starts_with(r#"data: {"type":"RUN_STARTED","threadId":"t","runId":"r""#));
/// assert!(text.contains(r#""delta":"Hello!""#));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AgUi {
    encoder: AgUiEncoder,
    keep_alive: Option<Duration>,
    /// The state that the client has sent.
    client_state: Map<String, Value>,
}

impl AgUi {
    /// Creates the settings for answering a request. By default, message ids are derived from the
    /// run's id, a keep-alive comment is sent after 15 seconds of inactivity, and error messages
    /// are hidden.
    pub fn new(request: &RunRequest) -> Self {
        let encoder = AgUiEncoder::new(request);
        let client_state = request.state.as_object().cloned().unwrap_or_default();
        Self { encoder, keep_alive: Some(DEFAULT_KEEP_ALIVE), client_state }
    }

    /// Derives message ids from the session, in the form `{session}:{number}`. For a turn's
    /// message, `number` is the number of the turn's first entry. For a result or a user message,
    /// `number` is the number of the entry that contains the result or the message. The message ids
    /// of sub-agents are derived from the run's id.
    pub fn with_session(mut self, session: &Session) -> Self {
        self.encoder.session = Some(session.clone());
        self
    }

    /// Sets how long the stream may be idle before a keep-alive comment is sent. The default is 15
    /// seconds, and `None` disables the comments. Sending the comments requires a tokio runtime
    /// with timers.
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
    /// in the state that is shared with the client. Off by default.
    ///
    /// The first value is sent as a `STATE_SNAPSHOT` of the client's own state, with the additional
    /// member `partials`, and later ones as a `STATE_DELTA`. `partials` contains an object
    /// `{"state": …, "value": …}` for each value: `answer-1` and so on for answers, `answer-{id}-1`
    /// and so on for those of a run that began with the pending call `{id}`, and `call-{id}` with
    /// `toolCallId` for the arguments of a call. The state is `growing`, `complete`, `retracted` or
    /// `failed`; the last two have no value. A client state that is not an object is replaced by
    /// one. A growing value is sent when no event is ready and its text has grown by an eighth
    /// since, so that all values together are at most about nine times as long as the text.
    pub fn with_partials(mut self, values: PartialValues<Value>) -> Self {
        let (sender, client_state) = (PartialSender::new(values), self.client_state.clone());
        self.encoder.partials = Some(SharedPartials { sender, client_state: Some(client_state) });
        self
    }

    /// Loads the messages to show when a page opens, each as the JSON of an AG-UI message, for
    /// example for a `MESSAGES_SNAPSHOT`. The ids of the messages are those that
    /// [`with_session`](Self::with_session) derives, except that the input of a run, which the
    /// client sent under an id of its own, has the id `{session}:{number}` with the number of its
    /// entry.
    ///
    /// Compacted items are included, and items that were marked as tombstones are left out, as are
    /// the messages of sub-agents and the items that the agent or its hooks added. If the session
    /// waits for approvals, the last messages are activities of the type `interrupt`. The `content`
    /// of each is an interrupt, as in the `RUN_FINISHED` event with which the run ended.
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if the entries cannot be read.
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::provider::Scripted;
    /// use turnstream::session::{MemoryStore, Session};
    /// use turnstream::ui::ClientLimits;
    /// use turnstream::ui::ag_ui::{AgUi, RunRequest};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::new(Scripted::new(["Hello!"]));
    /// let session = Session::open(MemoryStore::new(), "t").await?;
    /// session.run(&agent, "Hi").await?.outcome().await?;
    ///
    /// // A client that connects posts its thread, without messages.
    /// let body = br#"{"threadId":"t","runId":"r","messages":[]}"#;
    /// let request = RunRequest::parse(Some("application/json"), body, &ClientLimits::default())?;
    /// let messages = AgUi::new(&request).load_messages(&session, &agent).await?;
    /// assert_eq!((&messages[0]["id"], &messages[0]["content"]), (&"t:0".into(), &"Hi".into()));
    /// assert_eq!((&messages[1]["id"], &messages[1]["content"]), (&"t:1".into(), &"Hello!".into()));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn load_messages(
        &self,
        session: &Session,
        agent: &Agent,
    ) -> Result<Vec<Value>, Error> {
        let messages = StoredMessages::new(session.id(), &self.encoder.error_texts);
        Ok(messages.read(session.entries().await?, &session.state(), agent))
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
        Response::of_stream(ResponseBody::new(events, self.encoder, self.keep_alive), None)
    }
}
