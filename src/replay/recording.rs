//! A parsed recording of one run.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::item::History;
use crate::json_lines::parse_values;
use crate::replay::recorded_request::RecordedRequest;
use crate::replay::recording_entry::{ParsedRun, RecordingEntry, ends_step};
use crate::replay::recording_line::{FORMAT_VERSION, LineOwner, RecordingLine, ValueLine};
use crate::world::LoopEnd;

/// A recorded run, which is cheap to clone.
///
/// A [`Recorder`](super::Recorder) creates recordings. [`replay`](Self::replay) replays a
/// recording, and [`at_step`](Self::at_step) selects a step from which a new run can continue.
///
/// A *step* is a complete turn or a tool result in the run itself. The turns and tool results of
/// sub-agents do not count as steps. Step 0 is the start of the run, after the run's input.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use turnstream::Agent;
/// use turnstream::replay::Recorder;
/// use turnstream::provider::Scripted;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let kept = Arc::new(Mutex::new(None));
/// let keep = Arc::clone(&kept);
/// let recorder = Recorder::to_callback(move |run| *keep.lock().unwrap() = Some(run.recording));
/// Agent::new(Scripted::new(["Hello!"])).with_recorder(&recorder).run("Hi").outcome().await;
///
/// let recording = kept.lock().unwrap().take().unwrap();
/// assert_eq!(recording.at_step(0).journal().history().len(), 1);
/// assert_eq!(recording.at_step(1).journal().history().len(), 2);
/// # }
/// ```
#[derive(Clone)]
pub struct Recording(pub(super) Arc<ParsedRun>);

impl Recording {
    /// Parses the first recorded run in the file at `path`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`all_from_text`](Self::all_from_text), and also
    /// [`Store`](ErrorKind::Store) if the file contains no run or cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::from_text(&read_recording_file(path.as_ref())?)
    }

    /// Parses the first recorded run in `text`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`all_from_text`](Self::all_from_text), and also
    /// [`Store`](ErrorKind::Store) if `text` contains no run.
    pub fn from_text(text: &str) -> Result<Self, Error> {
        Self::all_from_text(text)?
            .into_iter()
            .next()
            .ok_or_else(|| parse_error("line 0: there is no run"))
    }

    /// Parses all recorded runs in `text`, in the order in which they started. A truncated last
    /// line is skipped, and the run to which the line belongs ends as if it had been dropped.
    ///
    /// # Errors
    ///
    /// Returns [`Store`](ErrorKind::Store) with the line number if a line cannot be parsed, a run
    /// has an unknown version, or a line does not belong to any run.
    pub fn all_from_text(text: &str) -> Result<Vec<Self>, Error> {
        let mut reader = RecordingParser::default();
        // A truncated last line was not completely written and is skipped.
        parse_values(text, |line| reader.push_line(line)).map_err(parse_error)?;
        Ok(reader.into_recordings().collect())
    }

    /// Returns the history at the start of the run, without the run's input.
    pub fn history(&self) -> &History {
        &self.0.history
    }

    /// Returns the run's events, in the order in which the run yielded them.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.0.entries.iter().filter_map(RecordingEntry::event)
    }

    /// Returns the number of steps in the run.
    pub(crate) fn step_count(&self) -> usize {
        self.events().filter(|event| ends_step(event)).count()
    }
}

/// Builds recorded runs from the lines of a recording.
#[derive(Default)]
pub(super) struct RecordingParser(Vec<ParsedRun>);

impl RecordingParser {
    /// Adds a line to the run to which it belongs.
    pub(super) fn push_line(&mut self, line: RecordingLine<'_>) -> Result<(), String> {
        let (run, entry) = match line {
            RecordingLine::Run { run, version: FORMAT_VERSION, history, is_resuming } => {
                if self.0.iter().any(|read| read.run_number == run) {
                    return Err(format!("run {run} begins twice"));
                }
                let (history, entries) = (history.into_owned(), Vec::new());
                self.0.push(ParsedRun { run_number: run, history, is_resuming, entries });
                return Ok(());
            }
            RecordingLine::Run { version, .. } => {
                return Err(format!("version {version} of the format is not known"));
            }
            RecordingLine::Event { owner: LineOwner::Run(run), is_vetoed, event } => {
                (run, RecordingEntry::Event { event: event.into_owned(), is_vetoed })
            }
            RecordingLine::Request { owner: LineOwner::Run(run), request } => {
                let mut entries = self.run_mut(run)?.entries.iter().rev();
                let last = entries.find_map(RecordingEntry::request);
                let request = RecordedRequest::from_line(
                    *request,
                    last.unwrap_or(&RecordedRequest::default()),
                )?;
                (run, RecordingEntry::Request(Box::new(request)))
            }
            RecordingLine::Value { run, value } => (run, RecordingEntry::from(value)),
            RecordingLine::TurnFailed { owner: LineOwner::Run(run), error } => {
                (run, RecordingEntry::TurnError(error.into_owned()))
            }
            RecordingLine::LoopEnded {
                run,
                polled_since_last_event,
                error,
                time_limit_reached,
                interrupt_reason,
            } => {
                let end = LoopEnd {
                    polled_since_last_event,
                    error: error.map(Cow::into_owned),
                    time_limit_reached,
                    interrupt_reason: interrupt_reason.map(Cow::into_owned),
                };
                (run, RecordingEntry::LoopEnd(end))
            }
            // Turns that were recorded by a provider do not belong to a run.
            RecordingLine::Recording { .. }
            | RecordingLine::Event { .. }
            | RecordingLine::Request { .. }
            | RecordingLine::TurnFailed { .. }
            | RecordingLine::Unknown => return Ok(()),
        };
        self.run_mut(run)?.entries.push(entry);
        Ok(())
    }

    fn run_mut(&mut self, run: u32) -> Result<&mut ParsedRun, String> {
        let read = self.0.iter_mut().rfind(|read| read.run_number == run);
        read.ok_or_else(|| format!("run {run} has not begun"))
    }

    /// Returns the parsed runs, in the order in which they started.
    pub(super) fn into_recordings(self) -> impl Iterator<Item = Recording> {
        self.0.into_iter().map(|mut read| {
            read.entries.shrink_to_fit();
            Recording(Arc::new(read))
        })
    }
}

impl From<ValueLine> for RecordingEntry {
    fn from(line: ValueLine) -> Self {
        let ValueLine { kind, name, nth, value, error } = line;
        let made = match error {
            Some(error) => Err(error),
            None => Ok(value.unwrap_or_else(|| serde_json::Value::Null.into())),
        };
        Self::Value { kind, name, nth, result: made }
    }
}

impl_debug!(Recording(it), events = it.events().count(), steps = it.step_count());

/// Reads the text of a recording.
pub(super) fn read_recording_file(path: &Path) -> Result<String, Error> {
    let bytes = std::fs::read(path).map_err(|error| {
        let message = format!("the recording {} cannot be read: {error}", path.display());
        Error::new(ErrorKind::Store, message).with_source(error)
    })?;
    // If the file was truncated within a character, the replacement character makes the last line
    // invalid JSON.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub(super) fn parse_error(why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Store, format!("the recording cannot be read: {why}"))
}
