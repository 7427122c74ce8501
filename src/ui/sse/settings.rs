//! Settings for sending server-sent events.

use std::time::Duration;

use futures::Stream;
use serde_json::Value;

use super::encode::SseEncoder;
use super::reader::ReaderEncoder;
use crate::error::Error;
use crate::event::Event;
use crate::hub::HubEvent;
use crate::partial::PartialValues;
use crate::ui::error_texts::ErrorTexts;
use crate::ui::partial_sender::PartialSender;
use crate::ui::response::{DEFAULT_KEEP_ALIVE, Response, ResponseBody};

/// How long a browser waits before reconnecting, by default.
const DEFAULT_RETRY: Duration = Duration::from_secs(2);

/// Sends events to a web page as server-sent events.
///
/// ```
/// use futures::TryStreamExt;
/// use turnstream::Agent;
/// use turnstream::provider::Scripted;
/// use turnstream::ui::sse::Sse;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let run = Agent::new(Scripted::new(["Hello!"])).run("Hi");
/// let response = Sse::new().respond(run);
/// assert_eq!(response.status, 200);
///
/// // A web server sends the body, for example with `axum::body::Body::from_stream(response.body)`.
/// let body: Vec<_> = response.body.try_collect().await.unwrap();
/// let text = String::from_utf8(body.concat()).unwrap();
/// assert!(text.contains(r#""text":"Hello!""#));
/// assert!(text.ends_with("event: end\ndata: {\"finished\":true}\n\n"));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Sse {
    encoder: SseEncoder,
    keep_alive: Option<Duration>,
}

impl Default for Sse {
    fn default() -> Self {
        Self::new()
    }
}

impl Sse {
    /// Creates the default settings: ids are numbers starting at 1, a keep-alive comment is sent
    /// after 15 seconds of inactivity, browsers reconnect after 2 seconds, and error messages are
    /// hidden.
    pub fn new() -> Self {
        let encoder = SseEncoder { retry: Some(DEFAULT_RETRY), ..SseEncoder::default() };
        Self { encoder, keep_alive: Some(DEFAULT_KEEP_ALIVE) }
    }

    /// Sets how long the stream may be idle before a keep-alive comment is sent. The default is 15
    /// seconds, and `None` disables the comments. The comments require a tokio runtime with timers.
    pub fn with_keep_alive(mut self, every: impl Into<Option<Duration>>) -> Self {
        self.keep_alive = every.into();
        self
    }

    /// Sets how long a browser waits before reconnecting. The default is 2 seconds. With `None`,
    /// the browser uses its own default.
    pub fn with_retry(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.encoder.retry = wait.into();
        self
    }

    /// Sets whether error messages are sent. By default, error messages are hidden.
    pub fn with_error_texts(mut self, texts: ErrorTexts) -> Self {
        self.encoder.error_texts = texts;
        self
    }

    /// Also sends each structured answer, or the arguments of calls, while the model writes them,
    /// as events of the type `partial`. Off by default.
    ///
    /// ```text
    /// event: partial
    /// data: {"state":"growing","value":{"city":"Os"}}
    /// ```
    ///
    /// The state is `growing`, `complete`, `retracted` or `failed`; the last two have no value. The
    /// data of a call's arguments contains its `call_id`. A growing value is sent when no event is
    /// ready and its text has grown by an eighth since, so that all values together are at most
    /// about nine times as long as the text. A page reads the events with
    /// `addEventListener("partial", …)`. A `snapshot` of a [hub's reader](Self::respond_to_reader)
    /// voids the values before it. A Rust client needs no setting: it applies the run's events to
    /// [`PartialValues`] itself.
    pub fn with_partials(mut self, values: PartialValues<Value>) -> Self {
        self.encoder.partials = Some(PartialSender::new(values));
        self
    }

    /// Creates a response that streams these events up to [`Finished`](Event::Finished) or the
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

    /// Creates a response that streams the items from a [hub](crate::hub)'s reader, which is either
    /// a [`Reader`](crate::hub::Reader) or a [`SessionReader`](crate::hub::SessionReader).
    ///
    /// The ids are the hub's [event numbers](crate::hub::EventNumber). Parse the `last-event-id`
    /// header and pass the event number to the hub, or pass `None` if the header cannot be parsed.
    /// In addition to events, the response contains two other kinds of data, which differ in their
    /// `type`:
    ///
    /// ```text
    /// {"type":"snapshot","run":"5f0c…","starts_at":4,"events":[…],"pending":[…]}
    /// {"type":"ended","error":null}
    /// ```
    ///
    /// When a page receives a snapshot, it keeps the first `starts_at` entries of the session,
    /// discards any content that it shows after these entries, and applies `events`. To get the
    /// entries, call [`Session::entries`](crate::session::Session::entries). `run` is null if no
    /// run is active, and `starts_at` is null for a run without a session.
    ///
    /// The response for a single run's reader ends with `event: end`, as with
    /// [`respond`](Self::respond). If the reader was cut off, the response ends with the `too_slow`
    /// event instead of `end`. During a shutdown, the response ends with `shutting_down`, which
    /// makes the browser wait five seconds before reconnecting. A page that reads a session
    /// reconnects after `end`, `too_slow` or `shutting_down`. For a session's reader, `end` means
    /// that a run was dropped or that the store failed. An `EventSource` reconnects unless the page
    /// closes it.
    ///
    /// Dropping the body stops reading, but does not stop the run.
    pub fn respond_to_reader<S>(self, reader: S) -> Response<ResponseBody<S, HubEvent>>
    where
        S: Stream<Item = Result<HubEvent, Error>>,
    {
        let encoder = ReaderEncoder {
            retry: self.encoder.retry,
            error_texts: self.encoder.error_texts,
            has_finished: false,
            failure: None,
            partials: self.encoder.partials,
        };
        Response::of_stream(ResponseBody::new(reader, encoder, self.keep_alive), None)
    }
}
