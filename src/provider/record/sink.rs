//! Where a record is written, shared by all turns.

use std::io::Write;
use std::sync::Mutex;

use super::line::{Asked, Line, VERSION};
use super::mask::Masker;
use crate::error::{Error, ErrorKind};
use crate::lock::lock;

/// A writer and what became of it.
pub(super) struct Sink(Mutex<State>);

struct State {
    out: Box<dyn Write + Send>,
    turns: u32,
    /// The turn that was asked for last.
    asked: Option<(u32, Asked)>,
    failure: Option<Error>,
    /// A turn has ended with the failure.
    told: bool,
}

impl Sink {
    pub(super) fn new(out: impl Write + Send + 'static) -> Self {
        Self(Mutex::new(State {
            out: Box::new(out),
            turns: 0,
            asked: None,
            failure: None,
            told: false,
        }))
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
            if state.failure.is_none() {
                state.turns = state.turns.saturating_add(1);
                let turn = state.turns;
                if turn == 1 {
                    let model = model.into();
                    state.write(&Line::Recording { version: VERSION, model }, masker);
                }
                let request = Box::new(asked.since(state.asked.as_ref()));
                state.write(&Line::Asked { turn, request }, masker);
                state.asked = Some((turn, asked));
                state.flush();
            }
            match &state.failure {
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
        self.with(|state| lines.iter().for_each(|line| state.write(line, masker)));
    }

    pub(super) fn flush(&self) {
        self.with(State::flush);
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.with(|state| state.failure.clone())
    }

    pub(super) fn turns(&self) -> u32 {
        self.with(|state| state.turns)
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut lock(&self.0))
    }
}

impl State {
    fn write(&mut self, line: &Line<'_>, masker: &Masker) {
        if self.failure.is_some() {
            return;
        }
        let written = match serde_json::to_string(line) {
            Ok(json) => {
                let mut json = masker.json(json);
                json.push('\n');
                self.out.write_all(json.as_bytes())
            }
            Err(error) => Err(error.into()),
        };
        self.note(written);
    }

    fn flush(&mut self) {
        if self.failure.is_none() {
            let flushed = self.out.flush();
            self.note(flushed);
        }
    }

    fn note(&mut self, done: std::io::Result<()>) {
        if let Err(error) = done {
            let message = format!("the record cannot be written: {error}");
            self.failure = Some(Error::new(ErrorKind::Store, message).with_source(error));
        }
    }
}
