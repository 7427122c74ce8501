//! Where steps are written as they happen.

use std::fmt;
use std::io::{self, Write};

use crate::error::{Error, ErrorKind, catch_panic};
use crate::story::trace::TraceEvent;

/// The writers, and what went wrong first.
#[derive(Default)]
pub(super) struct Sink {
    outs: Vec<Box<dyn Write + Send>>,
    pub(super) failure: Option<Error>,
}

impl Sink {
    /// Writes what there is, and what comes from here on.
    pub(super) fn add(&mut self, mut out: Box<dyn Write + Send>, so_far: &[TraceEvent]) {
        if self.attempt(|| append(&mut out, so_far)) {
            self.outs.push(out);
        }
    }

    /// Writes steps. Behind a failure nothing more is written there.
    pub(super) fn write(&mut self, steps: &[TraceEvent]) {
        if steps.is_empty() {
            return;
        }
        for mut out in std::mem::take(&mut self.outs) {
            if self.attempt(|| append(&mut out, steps)) {
                self.outs.push(out);
            }
        }
    }

    fn attempt(&mut self, write: impl FnOnce() -> io::Result<()>) -> bool {
        let written = catch_panic(write).unwrap_or_else(|message| {
            Err(io::Error::other(format!("the writer panicked: {message}")))
        });
        let Err(error) = written else { return true };
        let message = format!("the trace cannot be written: {error}");
        let failure = Error::new(ErrorKind::Store, message).with_source(error);
        self.failure.get_or_insert(failure);
        false
    }
}

/// One line a step, each whole.
fn append(out: &mut impl Write, steps: &[TraceEvent]) -> io::Result<()> {
    for step in steps {
        let mut line = serde_json::to_string(step)?;
        line.push('\n');
        out.write_all(line.as_bytes())?;
    }
    out.flush()
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink")
            .field("outs", &self.outs.len())
            .field("failure", &self.failure)
            .finish()
    }
}
