//! Where a record is written, shared by all turns.

use std::io::{self, Write};
use std::sync::Mutex;

use super::line::{Asked, Line, VERSION};
use super::masker::Masker;
use crate::error::{Error, ErrorKind};
use crate::json_lines::LineWriter;
use crate::lock::lock_ignoring_poison;

/// A writer and what became of it.
pub(super) struct Sink(Mutex<State>);

struct State {
    lines: LineWriter<Error>,
    turns: u32,
    /// The turn that was asked for last.
    asked: Option<(u32, Asked)>,
    /// A turn has ended with the failure.
    told: bool,
}

impl Sink {
    pub(super) fn new(out: impl Write + Send + 'static) -> Self {
        let lines = LineWriter::new(out, failed);
        Self(Mutex::new(State { lines, turns: 0, asked: None, told: false }))
    }

    /// Writes what is asked and gives the turn's number; `None` if nothing is written any more.
    ///
    /// # Errors
    ///
    /// What went wrong with the writing, the first time that it is asked for.
    pub(super) fn begin(
        &self,
        model: &str,
        asked: Asked,
        masker: &Masker,
    ) -> Result<Option<u32>, Error> {
        self.with(|state| {
            if state.lines.failure().is_none() {
                state.turns = state.turns.saturating_add(1);
                let turn = state.turns;
                if turn == 1 {
                    let model = model.into();
                    state.append(&Line::Recording { version: VERSION, model }, masker);
                }
                let request = Box::new(asked.since(state.asked.as_ref()));
                state.append(&Line::Asked { turn, request }, masker);
                state.asked = Some((turn, asked));
                state.lines.flush();
            }
            match state.lines.failure() {
                None => Ok(Some(state.turns)),
                Some(_) if state.told => Ok(None),
                Some(failure) => {
                    state.told = true;
                    Err(failure.clone())
                }
            }
        })
    }

    /// Writes lines of a turn; no more behind a failure.
    pub(super) fn write(&self, lines: &[Line<'_>], masker: &Masker) {
        self.with(|state| {
            for line in lines {
                state.append(line, masker);
            }
            state.lines.write();
        });
    }

    pub(super) fn flush(&self) {
        self.with(|state| state.lines.flush());
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.with(|state| state.lines.failure().cloned())
    }

    pub(super) fn turns(&self) -> u32 {
        self.with(|state| state.turns)
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut lock_ignoring_poison(&self.0))
    }
}

impl State {
    fn append(&mut self, line: &Line<'_>, masker: &Masker) {
        let json = serde_json::to_string(line);
        self.lines.append_json(json.map(|json| masker.json(json)));
    }
}

fn failed(error: io::Error) -> Error {
    let message = format!("the record cannot be written: {error}");
    Error::new(ErrorKind::Store, message).with_source(error)
}
