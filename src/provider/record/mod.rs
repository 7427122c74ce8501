//! A provider that writes down what is asked and what is said.

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
use crate::provider::Provider;
use crate::provider::first_poll::start_at_first_poll;
use crate::request::Request;
use crate::stream::{TurnPoll, TurnSource, TurnStream};
use crate::turn::{StopReason, TurnBuilder, TurnEvent};
use line::{RecordLine, RecordedRequest};
use masker::Masker;
use pending_events::PendingEvents;
use sink::RecordWriter;

/// A provider that writes each turn down: what was asked, every event as it came, and the error if
/// there is one. [`Replay`](crate::provider::Replay) plays it back.
///
/// A record is a file of JSON lines with a version in its first one. Each line of a turn carries
/// the turn's number, so turns that stream at the same time share a file. A turn that is dropped
/// simply goes no further in it. Of a request stands there what the one before it has not said, so a
/// record grows with what is said.
///
/// Keys are no part of a request and so of no record. What else is secret is named by
/// [`with_secret`](Self::with_secret).
///
/// The lines are written as they come, each in the poll that gives the event, by a small
/// synchronous append; a turn's first and last line are flushed. Wrap the writer in a `BufWriter` to
/// write less often.
///
/// What cannot be written never breaks a turn that streams: it goes on unrecorded, as do those that
/// stream beside it. The failure is told once, as an error of kind [`Store`](ErrorKind::Store): by
/// the request whose first line cannot be written, else by the next request. Nothing is sent for that
/// one. Requests behind it are sent and not recorded; [`failure`](Self::failure) tells at any time.
///
/// Clones share the record.
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
    /// Records into a file. One that is there is replaced.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the file cannot be made.
    pub fn to_file(
        provider: impl Provider + 'static,
        path: impl AsRef<Path>,
    ) -> Result<Self, Error> {
        let path = path.as_ref();
        let file = File::create(path).map_err(|error| {
            let message = format!("the record {} cannot be made: {error}", path.display());
            Error::new(ErrorKind::Store, message).with_source(error)
        })?;
        Ok(Self::to_writer(provider, file))
    }

    /// Records into any writer. It is called in the polls of the turns and must not block for long.
    pub fn to_writer(provider: impl Provider + 'static, out: impl Write + Send + 'static) -> Self {
        let sink = Arc::new(RecordWriter::new(out));
        Self { provider: Arc::new(provider), masker: Arc::default(), writer: sink }
    }

    /// Takes a secret out of everything that is written: as it is, and as it looks inside a JSON
    /// string. It is found also where it comes in several pieces; where a turn is cut off in what may
    /// be the beginning of one, that goes, too.
    ///
    /// White space around it is dropped. Less than four bytes are no secret and change nothing.
    pub fn with_secret(mut self, secret: impl AsRef<str>) -> Self {
        Arc::make_mut(&mut self.masker).add_secret(secret.as_ref());
        self
    }

    /// What went wrong with the writing. Nothing is written behind it.
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

/// One turn that is written down.
struct RecordingTurn {
    events: TurnStream,
    /// `None` if nothing is written any more.
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

/// Writes the lines of one turn.
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
            let vetoed = is_vetoed_event(event);
            RecordLine::Event { turn: self.turn_number, vetoed, event: Cow::Borrowed(event) }
        };
        let lines: Vec<RecordLine<'_>> = events.iter().map(line).collect();
        self.record_writer.write(&lines, &self.masker);
    }
}

/// A turn that is dropped goes no further.
impl Drop for TurnWriter {
    fn drop(&mut self) {
        if !self.has_ended {
            self.write_pending();
            self.record_writer.flush();
        }
    }
}

/// Whether calls that the stop reason allows could not run, because no builder made the turn.
pub(crate) fn is_vetoed_event(event: &TurnEvent) -> bool {
    let TurnEvent::TurnComplete { turn } = event else { return false };
    let allows = matches!(turn.stop_reason(), StopReason::Stop | StopReason::ToolCalls);
    allows && turn.calls().veto().is_some()
}
