//! A provider that records requests and turns.

pub(super) mod line;
pub(super) mod masker;
mod pending_events;
mod sink;

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;

use crate::error::{Error, ErrorKind};
use crate::item::Part;
use crate::provider::Provider;
use crate::provider::first_poll::start_at_first_poll;
use crate::request::Request;
use crate::stream::{TurnPoll, TurnSource, TurnStream};
use crate::turn::{StopReason, TurnBuilder, TurnEvent};
use line::{RecordLine, RecordedRequest};
use masker::Masker;
use pending_events::PendingEvents;
use sink::RecordWriter;

/// Wraps another provider and records each of its turns. The recording of a turn contains the
/// request, every event as it arrives, and the error, if the turn fails. To replay a recording, use
/// [`Replay`](crate::provider::Replay).
///
/// A recording is a JSON lines file whose first line contains the format version. Each line that
/// belongs to a turn contains the turn's number, so concurrent turns can share a file. If a turn is
/// dropped, its end is not recorded. A request is stored without the items that it shares with the
/// previous request, so it adds only its new items to the recording.
///
/// API keys are not part of a request and are therefore never recorded. To mask other secrets, use
/// [`with_secret`](Self::with_secret).
///
/// Each line is appended synchronously, in a small write, during the poll that yields the event. A
/// turn's first and last lines are flushed. To write to the file less often, wrap the writer in a
/// `BufWriter`.
///
/// A write failure never interrupts a streaming turn. After a write failure, all streaming turns
/// continue unrecorded. The failure is reported once, as an error of kind
/// [`Store`](ErrorKind::Store). The request whose first line could not be written returns the
/// error; after any other write failure, the next request returns the error. The request that
/// returns the error is not sent to the model. All later requests are sent but not recorded. To
/// check for a write failure at any time, call [`failure`](Self::failure).
///
/// Clones of a `Record` share the recording.
///
/// ```
/// use turnstream::provider::{Provider, Record, Replay, Scripted};
/// use turnstream::stream::TurnStreamExt;
/// use turnstream::{Agent, History, Request, env::SystemIds};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let path = std::env::temp_dir().join(format!("turnstream-record-{}.jsonl", std::process::id()));
/// let recorded = Record::to_file(Scripted::new(["Hello!"]), &path)?.with_secret("hunter2");
/// let outcome = Agent::new(recorded).run("My password is hunter2.").outcome().await;
///
/// let replay = Replay::from_file(&path)?.with_secret("hunter2");
/// let again = Agent::new(replay).run("My password is hunter2.").outcome().await;
/// assert_eq!(again.text, outcome.text);
/// assert!(!std::fs::read_to_string(&path).unwrap().contains("hunter2"));
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Record {
    provider: Arc<dyn Provider>,
    masker: Arc<Masker>,
    writer: Arc<RecordWriter>,
}

impl Record {
    /// Creates a provider that records the turns of `provider` to a file. An existing file is
    /// overwritten.
    ///
    /// # Errors
    ///
    /// Returns an error of kind [`Store`](ErrorKind::Store) if the file cannot be created.
    pub fn to_file(
        provider: impl Provider + 'static,
        path: impl AsRef<Path>,
    ) -> Result<Self, Error> {
        let path = path.as_ref();
        let file = File::create(path).map_err(|error| {
            let message = format!("the recording {} cannot be created: {error}", path.display());
            Error::new(ErrorKind::Store, message).with_source(error)
        })?;
        Ok(Self::to_writer(provider, file))
    }

    /// Creates a provider that records the turns of `provider` to a writer. The writer is called
    /// while turns are polled and must not block for long.
    pub fn to_writer(provider: impl Provider + 'static, out: impl Write + Send + 'static) -> Self {
        let sink = Arc::new(RecordWriter::new(out));
        Self { provider: Arc::new(provider), masker: Arc::default(), writer: sink }
    }

    /// Masks a secret in everything that is written, both in its literal form and as escaped in a
    /// JSON string. The secret is masked even if it arrives in several pieces. If a turn is cut off
    /// after text that may be the start of the secret, that text is also masked.
    ///
    /// Whitespace around the secret is trimmed. A secret shorter than four bytes is ignored.
    pub fn with_secret(mut self, secret: impl AsRef<str>) -> Self {
        Arc::make_mut(&mut self.masker).add_secret(secret.as_ref());
        self
    }

    /// Returns the write failure, if any. After a write failure, nothing more is written.
    pub fn failure(&self) -> Option<Error> {
        self.writer.failure()
    }
}

impl Provider for Record {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let record = self.clone();
        start_at_first_poll(request, move |request, _| {
            let writer = TurnWriter::begin_turn(&record, &request)?;
            Ok(RecordingTurn { events: record.provider.stream_turn(request), writer })
        })
    }

    fn model(&self) -> &str {
        self.provider.model()
    }

    fn has_tool_search(&self) -> bool {
        self.provider.has_tool_search()
    }

    fn check_parts(&self, parts: &[Part]) -> Result<(), Error> {
        self.provider.check_parts(parts)
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("model", &self.model())
            .field("turns", &self.writer.turn_count())
            .field("secrets", &self.masker.len())
            .field("failure", &self.failure())
            .finish_non_exhaustive()
    }
}

/// Records a turn while it is polled.
struct RecordingTurn {
    events: TurnStream,
    /// The writer for the turn, or `None` after a write failure.
    writer: Option<TurnWriter>,
}

impl TurnSource for RecordingTurn {
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll {
        let Self { events, writer } = self.get_mut();
        let event = ready!(Pin::new(events).poll_next(cx));
        if let Some(writer) = writer {
            match &event {
                Some(Ok(event)) => writer.write_event(event),
                Some(Err(error)) => writer.write_error(error),
                None => {}
            }
        }
        Poll::Ready(event.map(|event| event.map(|event| turn.absorb(event))))
    }
}

/// Writes a turn's lines to the recording.
struct TurnWriter {
    masker: Arc<Masker>,
    record_writer: Arc<RecordWriter>,
    turn_number: u32,
    pending: PendingEvents,
    has_ended: bool,
}

impl TurnWriter {
    fn begin_turn(record: &Record, request: &Request) -> Result<Option<Self>, Error> {
        let (masker, sink) = (Arc::clone(&record.masker), Arc::clone(&record.writer));
        let turn =
            sink.begin_turn(record.model(), RecordedRequest::from_request(request), &masker)?;
        let pending = PendingEvents::default();
        Ok(turn.map(|turn| Self {
            masker,
            record_writer: sink,
            turn_number: turn,
            pending,
            has_ended: false,
        }))
    }

    fn write_event(&mut self, event: &TurnEvent) {
        match self.masker.is_empty() {
            true => self.write(std::slice::from_ref(event)),
            false => {
                let ready = self.pending.push_event(event.clone(), &self.masker);
                self.write(&ready);
            }
        }
        if matches!(event, TurnEvent::TurnComplete { .. }) {
            self.record_writer.flush();
            self.has_ended = true;
        }
    }

    fn write_error(&mut self, error: &Error) {
        self.write_pending();
        let error = Cow::Borrowed(error);
        self.record_writer
            .write(&[RecordLine::Error { turn: self.turn_number, error }], &self.masker);
        self.record_writer.flush();
        self.has_ended = true;
    }

    fn write_pending(&mut self) {
        let left = self.pending.drain(&self.masker);
        self.write(&left);
    }

    fn write(&self, events: &[TurnEvent]) {
        let line = |event| {
            let is_vetoed = is_vetoed_event(event);
            RecordLine::Event { turn: self.turn_number, is_vetoed, event: Cow::Borrowed(event) }
        };
        let lines: Vec<RecordLine<'_>> = events.iter().map(line).collect();
        self.record_writer.write(&lines, &self.masker);
    }
}

/// Writes the pending events if the turn is dropped before it ends.
impl Drop for TurnWriter {
    fn drop(&mut self) {
        if !self.has_ended {
            self.write_pending();
            self.record_writer.flush();
        }
    }
}

/// Returns whether the event completes a turn whose calls must not run even though the turn's stop
/// reason allows it. This is the case for a turn that was not built by a turn builder.
pub(crate) fn is_vetoed_event(event: &TurnEvent) -> bool {
    let TurnEvent::TurnComplete { turn } = event else { return false };
    let allows = matches!(turn.stop_reason(), StopReason::Stop | StopReason::ToolCalls);
    allows && turn.calls().veto().is_some()
}
