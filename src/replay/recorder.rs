//! Records runs.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::agent::Agent;
use crate::error::Error;
use crate::replay::line_sink::LineSink;
use crate::replay::masker::Masker;
use crate::replay::recording::{Recording, RecordingParser};
use crate::replay::recording_line::RecordingLine;
use crate::request::Request;

/// Records an agent's runs as they happen; see [`Agent::with_recorder`]. [`Recording`] parses the
/// recorded lines.
///
/// A recording consists of JSON lines: a header, every event, and every request, each without what
/// it shares with the previous request.
/// Answers from hooks, the run's owner, budgets and the compactor are recorded only if no event
/// contains them. The size of a recording grows with the content of the history, not with the
/// number of requests. Each line contains the number of its run, so concurrent runs can share a
/// file. The recording of a dropped run ends at the point where the run was dropped. A sub-agent's
/// events are recorded as part of its parent's run.
///
/// A recording contains all messages, system prompts and tool specs, including any secrets in them.
/// The providers' API keys are not recorded.
///
/// Lines are appended to the output synchronously, in small writes, during each poll that sends a
/// request or returns the end of a turn, tool call or run; between these polls, up to 16 KiB of
/// lines are buffered. A write error never affects a run. After a write error, the run continues
/// unrecorded, and [`failure`](Self::failure) returns the error.
///
/// Clones of a recorder write to the same output.
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
    /// The output, and the number of runs that have started.
    Writer(LineSink, AtomicU32),
    Callback(Box<dyn Fn(RecordedRun) + Send + Sync>),
}

/// A recorded run that has ended, as passed to the callback of [`Recorder::to_callback`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecordedRun {
    /// The agent whose run was recorded.
    pub agent: Agent,
    /// The recording of the run, parsed from the recorded lines.
    pub recording: Recording,
    /// The run's requests, as passed to the provider.
    pub requests: Vec<Request>,
}

impl Recorder {
    /// Creates a recorder that writes the recording of its runs to a file. An existing file is
    /// overwritten.
    ///
    /// # Errors
    ///
    /// Returns [`Store`](crate::ErrorKind::Store) if the file cannot be created.
    pub fn to_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self::to_sink(LineSink::create(path.as_ref())?))
    }

    /// Creates a recorder that writes the recording of its runs to `out`. Writing takes place while
    /// the runs are polled, so `out` must not block for long.
    pub fn to_writer(out: impl Write + Send + 'static) -> Self {
        Self::to_sink(LineSink::new(out))
    }

    fn to_sink(sink: LineSink) -> Self {
        Self(Arc::new(RecorderOutput::Writer(sink, AtomicU32::new(0))))
    }

    /// Creates a recorder that passes each recorded run to `then` when the run is dropped, whether
    /// or not it has finished. `then` is called from within the run's `drop`. This recorder is
    /// intended for test suites that replay every run.
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

    /// Starts the recording of a run and returns the run's number.
    pub(super) fn begin_run(&self) -> u32 {
        match &*self.0 {
            RecorderOutput::Callback(_) => 1,
            RecorderOutput::Writer(_, runs) => runs.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }

    /// Appends a line to the output, or to the recording that is passed to the callback.
    pub(super) fn append(&self, read: &mut RecordingParser, line: &RecordingLine<'_>) {
        match &*self.0 {
            RecorderOutput::Writer(sink, _) => sink.append(line, &Masker::default()),
            RecorderOutput::Callback(_) => {
                // A line that cannot be serialized and parsed is omitted.
                let json = serde_json::to_string(line).unwrap_or_default();
                let _ = serde_json::from_str(&json).map(|line| read.push_line(line));
            }
        }
    }

    /// Writes the buffered lines to the output.
    pub(super) fn write_buffered(&self) {
        if let RecorderOutput::Writer(sink, _) = &*self.0 {
            sink.write();
        }
    }

    /// Returns whether each run's requests are kept for the callback.
    pub(super) fn keeps_requests(&self) -> bool {
        matches!(&*self.0, RecorderOutput::Callback(_))
    }

    /// Ends the recording of a run.
    pub(super) fn finish_run(&self, agent: &Agent, read: RecordingParser, requests: Vec<Request>) {
        match &*self.0 {
            RecorderOutput::Writer(sink, _) => sink.flush(),
            RecorderOutput::Callback(then) => {
                if let Some(recording) = read.into_recordings().next() {
                    then(RecordedRun { agent: agent.clone(), recording, requests });
                }
            }
        }
    }

    /// Returns the first write error, if any. After a write error, no more lines are written.
    pub fn failure(&self) -> Option<Error> {
        match &*self.0 {
            RecorderOutput::Writer(sink, _) => sink.failure(),
            RecorderOutput::Callback(_) => None,
        }
    }
}

impl_debug!(Recorder(it), failure = it.failure());
