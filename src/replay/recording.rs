//! A recorded run, read.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::item::History;
use crate::replay::entry::{Entry, Read, is_step};
use crate::replay::line::{Line, VERSION, ValueLine};
use crate::replay::print::Whole;
use crate::replay::version1;
use crate::world::Ending;

/// A recorded run, read back. Cheap to clone.
///
/// It is made by a [`Recorder`](super::Recorder). [`replay`](Self::replay) plays it, and
/// [`at`](Self::at) goes to one of its steps and on from there.
///
/// A *step* is a turn that is complete or a tool that has its result, of the run itself: those of
/// its sub-agents do not count. Step 0 is the beginning, with the input said.
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
/// let recorder = Recorder::each(move |run| *keep.lock().unwrap() = Some(run.recording));
/// Agent::new(Scripted::new(["Hello!"])).with_recorder(&recorder).run("Hi").outcome().await;
///
/// let recording = kept.lock().unwrap().take().unwrap();
/// assert_eq!(recording.steps(), 1);
/// assert_eq!(recording.at(0).history().len(), 1);
/// assert_eq!(recording.at(1).history().len(), 2);
/// # }
/// ```
#[derive(Clone)]
pub struct Recording(pub(super) Arc<Read>);

impl Recording {
    /// Reads the first run of a file.
    ///
    /// # Errors
    ///
    /// As [`all_from_text`](Self::all_from_text), and [`Store`](ErrorKind::Store) if there is none or
    /// the file cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| {
            let message = format!("the recording {} cannot be read: {error}", path.display());
            Error::new(ErrorKind::Store, message).with_source(error)
        })?;
        // A cut may go through a character; what comes of it is no JSON.
        Self::from_text(&String::from_utf8_lossy(&bytes))
    }

    /// Reads the first run of a text.
    ///
    /// # Errors
    ///
    /// As [`all_from_text`](Self::all_from_text), and [`Store`](ErrorKind::Store) if there is none.
    pub fn from_text(text: &str) -> Result<Self, Error> {
        Self::all_from_text(text)?.into_iter().next().ok_or_else(|| refusal(0, "there is no run"))
    }

    /// Reads all runs of a text, in the order in which they began. A last line that is cut off is
    /// passed over: the run goes no further, as if it had been dropped there.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) with the number of the line, if one cannot be read, a run is of a
    /// version that is not known, or a line belongs to no run.
    pub fn all_from_text(text: &str) -> Result<Vec<Self>, Error> {
        let mut runs: Vec<(Read, Whole)> = Vec::new();
        for (at, line) in text.split_inclusive('\n').enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let read = match serde_json::from_str::<Line>(line) {
                Ok(read) => read,
                // Without its end it was never written to its end.
                Err(_) if !line.ends_with('\n') && !runs.is_empty() => break,
                Err(error) => return Err(refusal(at + 1, error)),
            };
            let (run, entry) = match read {
                Line::Run { run, version: version @ (1 | VERSION), history, resuming } => {
                    if runs.iter().any(|(read, _)| read.run == run) {
                        return Err(refusal(at + 1, format!("run {run} begins twice")));
                    }
                    let read = Read { run, version, history, resuming, entries: Vec::new() };
                    runs.push((read, Whole::default()));
                    continue;
                }
                Line::Run { version, .. } => {
                    let why = format!("version {version} of the format is not known");
                    return Err(refusal(at + 1, why));
                }
                Line::Event { run, vetoed, event } => (run, Entry::Event { event: *event, vetoed }),
                Line::Asked { run, request } => {
                    let before = runs.iter().find(|(read, _)| read.run == run);
                    let before = before.map(|(_, whole)| whole.clone()).unwrap_or_default();
                    (run, Entry::Asked(Whole::read(&request, &before)))
                }
                Line::Value { run, value } => (run, Entry::from(value)),
                Line::Noted { run, noted } => match noted.into_entry() {
                    Some(entry) => (run, entry),
                    None => continue,
                },
                Line::Failed { run, error } => (run, Entry::Failed(error)),
                Line::Ended { run, polled, error, time_up } => {
                    (run, Entry::Ended(Ending { polled, error, time_up }))
                }
                Line::Unknown => continue,
            };
            let Some((read, asked)) = runs.iter_mut().rfind(|(read, _)| read.run == run) else {
                return Err(refusal(at + 1, format!("run {run} has not begun")));
            };
            if let Entry::Asked(whole) = &entry {
                *asked = whole.clone();
            }
            read.entries.push(entry);
        }
        let runs = runs.into_iter().map(|(mut read, _)| {
            if read.version == 1 {
                version1::put_in_order(&mut read.entries);
            }
            Self(Arc::new(read))
        });
        Ok(runs.collect())
    }

    /// The history that the run began with, its input left out.
    pub fn history(&self) -> &History {
        &self.0.history
    }

    /// The events of the run.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.0.entries.iter().filter_map(Entry::event)
    }

    /// How many steps there are.
    pub fn steps(&self) -> usize {
        self.events().filter(|event| is_step(event)).count()
    }
}

impl From<ValueLine> for Entry {
    fn from(line: ValueLine) -> Self {
        let ValueLine { of: kind, name, nth, value, error } = line;
        let made = match error {
            Some(error) => Err(error),
            None => Ok(value.unwrap_or_else(|| serde_json::Value::Null.into())),
        };
        Self::Value { kind, name, nth: Some(nth), made }
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording")
            .field("events", &self.events().count())
            .field("steps", &self.steps())
            .finish_non_exhaustive()
    }
}

fn refusal(line: usize, why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Store, format!("the recording cannot be read: line {line}: {why}"))
}
