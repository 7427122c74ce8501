//! A provider that records requests and turns.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use futures::Stream;

use futures::future::BoxFuture;

use crate::error::Error;
use crate::event::Event;
use crate::item::Part;
use crate::lock::lock_ignoring_poison;
use crate::provider::{Provider, start_at_first_poll};
use crate::replay::line_sink::LineSink;
use crate::replay::masker::Masker;
use crate::replay::pending_events::PendingEvents;
use crate::replay::recorded_request::RecordedRequest;
use crate::replay::recording_line::{FORMAT_VERSION, LineOwner, RecordingLine};
use crate::request::Request;
use crate::stream::{TurnPoll, TurnSource, TurnStream};
use crate::turn::{TurnBuilder, TurnEvent};
use crate::world::is_vetoed_event;

/// Wraps a provider and records each of its turns. The recording of a turn contains the request,
/// every event as it arrives, and the error, if the turn fails. To replay a recording, use
/// [`Replay`](super::Replay). To record whole runs of an agent instead, use
/// [`Recorder`](super::Recorder).
///
/// The lines of a recording are those that a [`Recorder`](super::Recorder) writes for the turns of
/// a run. Each line contains the turn's number, so concurrent turns can share a file. If a turn is
/// dropped, its end is not recorded. A request is stored without what it shares with the previous
/// request, so it adds only its new items to the recording.
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
/// [`Store`](crate::ErrorKind::Store). The request whose first line could not be written returns
/// the error; after any other write failure, the next request returns the error. The request that
/// returns the error is not sent to the model. All later requests are sent but not recorded. To
/// check for a write failure at any time, call [`failure`](Self::failure).
///
/// Clones of a `Record` share the recording.
///
/// ```
/// use turnstream::Agent;
/// use turnstream::provider::Scripted;
/// use turnstream::replay::{Record, Replay};
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
    /// Returns an error of kind [`Store`](crate::ErrorKind::Store) if the file cannot be created.
    pub fn to_file(
        provider: impl Provider + 'static,
        path: impl AsRef<Path>,
    ) -> Result<Self, Error> {
        Ok(Self::to_sink(provider, LineSink::create(path.as_ref())?))
    }

    /// Creates a provider that records the turns of `provider` to a writer. The writer is called
    /// while turns are polled and must not block for long.
    pub fn to_writer(provider: impl Provider + 'static, out: impl Write + Send + 'static) -> Self {
        Self::to_sink(provider, LineSink::new(out))
    }

    fn to_sink(provider: impl Provider + 'static, sink: LineSink) -> Self {
        let writer = Arc::new(RecordWriter { sink, state: Mutex::default() });
        Self { provider: Arc::new(provider), masker: Arc::default(), writer }
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
        self.writer.sink.failure()
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

    /// Returns `None`: a recording of turns does not contain counts, and a replay must decide about
    /// compactions as the recorded run did.
    fn count_tokens(&self, _: &Request) -> Option<BoxFuture<'static, Result<u64, Error>>> {
        None
    }
}

impl_debug!(
    Record(it),
    model = it.model(),
    turns = it.writer.turn_count(),
    secrets = it.masker.len(),
    failure = it.failure(),
);

/// The output of a recording, which is shared by all turns.
struct RecordWriter {
    sink: LineSink,
    state: Mutex<WriterState>,
}

#[derive(Default)]
struct WriterState {
    turn_count: u32,
    /// The request of the most recently started turn.
    last_request: RecordedRequest,
    /// Whether a turn has already failed with the error of the failed write.
    is_failure_reported: bool,
}

impl RecordWriter {
    /// Writes the request for a new turn and returns the turn's number. Returns `None` and writes
    /// nothing if an earlier write has failed.
    ///
    /// # Errors
    ///
    /// Returns the error of a failed write, unless an earlier call has already returned the error.
    fn begin_turn(
        &self,
        model: &str,
        request: RecordedRequest,
        masker: &Masker,
    ) -> Result<Option<u32>, Error> {
        let state = &mut *lock_ignoring_poison(&self.state);
        if self.sink.failure().is_none() {
            state.turn_count = state.turn_count.saturating_add(1);
            if state.turn_count == 1 {
                let model = model.into();
                let header = RecordingLine::Recording { version: FORMAT_VERSION, model };
                self.sink.append(&header, masker);
            }
            let owner = LineOwner::Turn(state.turn_count);
            let line = Box::new(request.line_since(&state.last_request));
            self.sink.append(&RecordingLine::Request { owner, request: line }, masker);
            state.last_request = request;
            self.sink.flush();
        }
        match self.sink.failure() {
            None => Ok(Some(state.turn_count)),
            Some(_) if state.is_failure_reported => Ok(None),
            Some(failure) => {
                state.is_failure_reported = true;
                Err(failure)
            }
        }
    }

    fn turn_count(&self) -> u32 {
        lock_ignoring_poison(&self.state).turn_count
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

    fn describe(&self, turn: &mut TurnBuilder) {
        self.events.describe(turn);
    }
}

/// Writes a turn's lines to the recording.
struct TurnWriter {
    masker: Arc<Masker>,
    writer: Arc<RecordWriter>,
    owner: LineOwner,
    pending: PendingEvents,
    has_ended: bool,
}

impl TurnWriter {
    fn begin_turn(record: &Record, request: &Request) -> Result<Option<Self>, Error> {
        let (masker, writer) = (Arc::clone(&record.masker), Arc::clone(&record.writer));
        let request = RecordedRequest::new(request);
        let turn = writer.begin_turn(record.model(), request, &masker)?;
        Ok(turn.map(|turn| Self {
            masker,
            writer,
            owner: LineOwner::Turn(turn),
            pending: PendingEvents::default(),
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
            self.writer.sink.flush();
            self.has_ended = true;
        }
    }

    fn write_error(&mut self, error: &Error) {
        self.write_pending();
        let line = RecordingLine::TurnFailed { owner: self.owner, error: Cow::Borrowed(error) };
        self.writer.sink.append(&line, &self.masker);
        self.writer.sink.flush();
        self.has_ended = true;
    }

    fn write_pending(&mut self) {
        let left = self.pending.drain(&self.masker);
        self.write(&left);
    }

    fn write(&self, events: &[TurnEvent]) {
        for event in events {
            let is_vetoed = is_vetoed_event(event);
            let event = Cow::Owned(Event::Turn(event.clone()));
            let line = RecordingLine::Event { owner: self.owner, is_vetoed, event };
            self.writer.sink.append(&line, &self.masker);
        }
        self.writer.sink.write();
    }
}

/// Writes the pending events if the turn is dropped before it ends.
impl Drop for TurnWriter {
    fn drop(&mut self) {
        if !self.has_ended {
            self.write_pending();
            self.writer.sink.flush();
        }
    }
}
