//! The writer for a recording, which is shared by all turns.

use std::io::{self, Write};
use std::sync::Mutex;

use super::line::{FORMAT_VERSION, RecordLine, RecordedRequest};
use super::masker::Masker;
use crate::error::{Error, ErrorKind};
use crate::json_lines::LineWriter;
use crate::lock::lock_ignoring_poison;

/// A shared writer for a recording.
pub(super) struct RecordWriter(Mutex<WriterState>);

struct WriterState {
    line_writer: LineWriter<Error>,
    turn_count: u32,
    /// The number and the request of the most recently started turn.
    last_request: Option<(u32, RecordedRequest)>,
    /// Whether a turn has already failed with the error of the failed write.
    is_failure_reported: bool,
}

impl RecordWriter {
    pub(super) fn new(out: impl Write + Send + 'static) -> Self {
        let lines = LineWriter::new(out, store_error);
        Self(Mutex::new(WriterState {
            line_writer: lines,
            turn_count: 0,
            last_request: None,
            is_failure_reported: false,
        }))
    }

    /// Writes the request for a new turn and returns the turn's number. Returns `None` and writes
    /// nothing if an earlier write has failed.
    ///
    /// # Errors
    ///
    /// Returns the error of a failed write, unless an earlier call has already returned the error.
    pub(super) fn begin_turn(
        &self,
        model: &str,
        asked: RecordedRequest,
        masker: &Masker,
    ) -> Result<Option<u32>, Error> {
        self.with_state(|state| {
            if state.line_writer.failure().is_none() {
                state.turn_count = state.turn_count.saturating_add(1);
                let turn = state.turn_count;
                if turn == 1 {
                    let model = model.into();
                    state.append_line(
                        &RecordLine::Recording { version: FORMAT_VERSION, model },
                        masker,
                    );
                }
                let request = Box::new(asked.to_json_since(state.last_request.as_ref()));
                state.append_line(&RecordLine::Request { turn, request }, masker);
                state.last_request = Some((turn, asked));
                state.line_writer.flush();
            }
            match state.line_writer.failure() {
                None => Ok(Some(state.turn_count)),
                Some(_) if state.is_failure_reported => Ok(None),
                Some(failure) => {
                    state.is_failure_reported = true;
                    Err(failure.clone())
                }
            }
        })
    }

    /// Writes lines for a turn. Does nothing if an earlier write has failed.
    pub(super) fn write(&self, lines: &[RecordLine<'_>], masker: &Masker) {
        self.with_state(|state| {
            for line in lines {
                state.append_line(line, masker);
            }
            state.line_writer.write();
        });
    }

    pub(super) fn flush(&self) {
        self.with_state(|state| state.line_writer.flush());
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.with_state(|state| state.line_writer.failure().cloned())
    }

    pub(super) fn turn_count(&self) -> u32 {
        self.with_state(|state| state.turn_count)
    }

    fn with_state<T>(&self, f: impl FnOnce(&mut WriterState) -> T) -> T {
        f(&mut lock_ignoring_poison(&self.0))
    }
}

impl WriterState {
    fn append_line(&mut self, line: &RecordLine<'_>, masker: &Masker) {
        let json = serde_json::to_string(line);
        self.line_writer.append_json(json.map(|json| masker.mask_json(json)));
    }
}

fn store_error(error: io::Error) -> Error {
    let message = format!("the recording cannot be written: {error}");
    Error::new(ErrorKind::Store, message).with_source(error)
}
