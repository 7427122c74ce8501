//! Who writes runs down.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::agent::Agent;
use crate::error::{Error, ErrorKind};
use crate::json_lines::LineWriter;
use crate::lock::lock_ignoring_poison;
use crate::replay::recording::{Recording, RecordingParser};
use crate::replay::recording_line::RecordingLine;
use crate::request::Request;

/// Writes the runs of an agent down, as they go on: [`Agent::with_recorder`] hands it over.
/// [`Recording`] reads them back.
///
/// A recording is JSON lines: a header, then every event, a fingerprint of each request, and what
/// hooks, holders, budgets and the compactor answered where no event tells it. It grows with what is
/// said, not with the number of requests. Each line carries the run's number, so runs that go on at
/// the same time share a file. A run that is dropped simply goes no further in it. A sub-agent's
/// events are in its parent's run.
///
/// Whatever was said is in it, secrets as well; keys of providers are not.
///
/// Lines are written by small synchronous appends: in the poll that sends a request, or that gives the
/// end of a turn, of a tool call or of the run. Those between wait for them, up to 16 KiB. What cannot be
/// written never breaks a run: it goes on unrecorded, and [`failure`](Self::failure) tells.
///
/// Clones share what is written to.
///
/// ```
/// use futures::StreamExt;
/// use turnstream::Agent;
/// use turnstream::replay::{Recorder, Recording};
/// use turnstream::provider::Scripted;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let path = std::env::temp_dir().join(format!("turnstream-run-{}.jsonl", std::process::id()));
/// let agent = Agent::new(Scripted::new(["Hello!"]));
/// let recorded = agent.clone().with_recorder(&Recorder::to_file(&path)?);
/// let outcome = recorded.run("Hi").outcome().await;
///
/// let recording = Recording::from_file(&path)?;
/// let mut again = recording.replay(&agent);
/// while let Some(event) = again.next().await {
///     if let Some(finished) = event?.outcome() {
///         assert_eq!(*finished, outcome);
///     }
/// }
/// assert_eq!(again.requests().len(), 1);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Recorder(Arc<RecorderOutput>);

enum RecorderOutput {
    Writer(Mutex<LineSink>),
    Callback(Box<dyn Fn(RecordedRun) + Send + Sync>),
}

struct LineSink {
    writer: LineWriter<Error>,
    run_count: u32,
}

/// A run that was recorded and is over, with what [`Recorder::to_callback`] knows besides.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecordedRun {
    /// The agent that ran.
    pub agent: Agent,
    /// The run, read back from its lines.
    pub recording: Recording,
    /// The requests as they were handed to the provider.
    pub requests: Vec<Request>,
}

impl Recorder {
    /// Records into a file. One that is there is replaced.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the file cannot be made.
    pub fn to_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let file = File::create(path).map_err(|error| {
            let message = format!("the recording {} cannot be made: {error}", path.display());
            Error::new(ErrorKind::Store, message).with_source(error)
        })?;
        Ok(Self::to_writer(file))
    }

    /// Records into any writer. It is called in the polls of the runs and must not block for long.
    pub fn to_writer(out: impl Write + Send + 'static) -> Self {
        let sink = LineSink { writer: LineWriter::new(out, write_error), run_count: 0 };
        Self(Arc::new(RecorderOutput::Writer(Mutex::new(sink))))
    }

    /// Hands each run over when it is over, or dropped: for tests that replay every run of a suite.
    /// `then` is called where the run is dropped.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use futures::executor::block_on_stream;
    /// use turnstream::Agent;
    /// use turnstream::replay::Recorder;
    /// use turnstream::provider::Scripted;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let recorder = Recorder::to_callback(|run| {
    ///     for event in block_on_stream(run.recording.replay(&run.agent)) {
    ///         assert!(event.is_ok(), "the run cannot be replayed");
    ///     }
    /// });
    /// let agent = Agent::new(Scripted::new(["Hello!"])).with_recorder(&recorder);
    /// agent.run("Hi").outcome().await;
    /// # }
    /// ```
    pub fn to_callback(then: impl Fn(RecordedRun) + Send + Sync + 'static) -> Self {
        Self(Arc::new(RecorderOutput::Callback(Box::new(then))))
    }

    /// Begins a run, and gives its number.
    pub(super) fn begin_run(&self) -> u32 {
        match &*self.0 {
            RecorderOutput::Callback(_) => 1,
            RecorderOutput::Writer(sink) => {
                let mut sink = lock_ignoring_poison(sink);
                sink.run_count = sink.run_count.saturating_add(1);
                sink.run_count
            }
        }
    }

    /// Appends a line, or reads it back into a run that is handed over at its end.
    pub(super) fn append(&self, read: &mut RecordingParser, line: &RecordingLine<'_>) {
        match &*self.0 {
            RecorderOutput::Writer(sink) => lock_ignoring_poison(sink).writer.append(line),
            RecorderOutput::Callback(_) => {
                // What cannot be written and read is not in it.
                let json = serde_json::to_string(line).unwrap_or_default();
                let _ = serde_json::from_str(&json).map(|line| read.push_line(line));
            }
        }
    }

    /// Writes the lines that were appended.
    pub(super) fn write_buffered(&self) {
        if let RecorderOutput::Writer(sink) = &*self.0 {
            lock_ignoring_poison(sink).writer.write();
        }
    }

    /// Whether the requests of a run are handed over with it.
    pub(super) fn keeps_requests(&self) -> bool {
        matches!(&*self.0, RecorderOutput::Callback(_))
    }

    /// A run is over.
    pub(super) fn finish_run(&self, agent: &Agent, read: RecordingParser, requests: Vec<Request>) {
        match &*self.0 {
            RecorderOutput::Writer(sink) => lock_ignoring_poison(sink).writer.flush(),
            RecorderOutput::Callback(then) => {
                if let Some(recording) = read.into_recordings().next() {
                    then(RecordedRun { agent: agent.clone(), recording, requests });
                }
            }
        }
    }

    /// What went wrong with the writing. Nothing is written behind it.
    pub fn failure(&self) -> Option<Error> {
        match &*self.0 {
            RecorderOutput::Writer(sink) => lock_ignoring_poison(sink).writer.failure().cloned(),
            RecorderOutput::Callback(_) => None,
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("failure", &self.failure()).finish_non_exhaustive()
    }
}

fn write_error(error: io::Error) -> Error {
    let message = format!("the recording cannot be written: {error}");
    Error::new(ErrorKind::Store, message).with_source(error)
}
