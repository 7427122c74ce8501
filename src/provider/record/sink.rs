//! Where a record is written, shared by all turns.

use std::io::{self, Write};
use std::sync::Mutex;

use super::line::{FORMAT_VERSION, RecordLine, RecordedRequest};
use super::masker::Masker;
use crate::error::{Error, ErrorKind};
use crate::json_lines::LineWriter;
use crate::lock::lock_ignoring_poison;

/// A writer and what became of it.
pub(super) struct RecordWriter(Mutex<WriterState>);

struct WriterState {
    lines: LineWriter<Error>,
    turns: u32,
    /// The turn that was asked for last.
    last_request: Option<(u32, RecordedRequest)>,
    /// A turn has ended with the failure.
    known_items: bool,
}

impl RecordWriter {
    pub(super) fn new(out: impl Write + Send + 'static) -> Self {
        let lines = LineWriter::new(out, write_error);
        Self(Mutex::new(WriterState { lines, turns: 0, last_request: None, known_items: false }))
    }

    /// Writes what is asked and gives the turn's number; `None` if nothing is written any more.
    ///
    /// # Errors
    ///
    /// What went wrong with the writing, the first time that it is asked for.
    pub(super) fn begin_turn(
        &self,
        model: &str,
        asked: RecordedRequest,
        masker: &Masker,
    ) -> Result<Option<u32>, Error> {
        self.with_state(|state| {
            if state.lines.failure().is_none() {
                state.turns = state.turns.saturating_add(1);
                let turn = state.turns;
                if turn == 1 {
                    let model = model.into();
                    state.append_line(
                        &RecordLine::Recording { version: FORMAT_VERSION, model },
                        masker,
                    );
                }
                let request = Box::new(asked.items_since(state.last_request.as_ref()));
                state.append_line(&RecordLine::Asked { turn, request }, masker);
                state.last_request = Some((turn, asked));
                state.lines.flush();
            }
            match state.lines.failure() {
                None => Ok(Some(state.turns)),
                Some(_) if state.known_items => Ok(None),
                Some(failure) => {
                    state.known_items = true;
                    Err(failure.clone())
                }
            }
        })
    }

    /// Writes lines of a turn; no more behind a failure.
    pub(super) fn write(&self, lines: &[RecordLine<'_>], masker: &Masker) {
        self.with_state(|state| {
            for line in lines {
                state.append_line(line, masker);
            }
            state.lines.write();
        });
    }

    pub(super) fn flush(&self) {
        self.with_state(|state| state.lines.flush());
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.with_state(|state| state.lines.failure().cloned())
    }

    pub(super) fn turn_count(&self) -> u32 {
        self.with_state(|state| state.turns)
    }

    fn with_state<T>(&self, f: impl FnOnce(&mut WriterState) -> T) -> T {
        f(&mut lock_ignoring_poison(&self.0))
    }
}

impl WriterState {
    fn append_line(&mut self, line: &RecordLine<'_>, masker: &Masker) {
        let json = serde_json::to_string(line);
        self.lines.append_json(json.map(|json| masker.mask_json(json)));
    }
}

fn write_error(error: io::Error) -> Error {
    let message = format!("the record cannot be written: {error}");
    Error::new(ErrorKind::Store, message).with_source(error)
}
