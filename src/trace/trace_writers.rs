//! A trace's writers.

use std::io::{self, Write};

use crate::error::{Error, ErrorKind, catch_panic};
use crate::json_lines::LineWriter;
use crate::trace::TraceEvent;

/// A trace's writers, along with the first write error.
#[derive(Debug, Default)]
pub(super) struct TraceWriters {
    writers: Vec<LineWriter<Error>>,
    pub(super) failure: Option<Error>,
}

impl TraceWriters {
    /// Adds a writer and writes all of the steps recorded so far to it.
    pub(super) fn add(&mut self, out: Box<dyn Write + Send>, so_far: &[TraceEvent]) {
        let mut out = LineWriter::new(out, write_error);
        if self.write_steps_to(&mut out, so_far) {
            self.writers.push(out);
        }
    }

    /// Writes steps to all writers. Writers that fail are removed.
    pub(super) fn write_steps(&mut self, steps: &[TraceEvent]) {
        if steps.is_empty() {
            return;
        }
        for mut out in std::mem::take(&mut self.writers) {
            if self.write_steps_to(&mut out, steps) {
                self.writers.push(out);
            }
        }
    }

    /// Writes one line for each step, and returns whether all writes succeeded.
    fn write_steps_to(&mut self, out: &mut LineWriter<Error>, steps: &[TraceEvent]) -> bool {
        let written = catch_panic(|| {
            for step in steps {
                out.append(step);
            }
            out.flush();
        });
        let failure = match written {
            Ok(()) => out.failure().cloned(),
            Err(message) => {
                Some(write_error(io::Error::other(format!("the writer panicked: {message}"))))
            }
        };
        let is_whole = failure.is_none();
        self.failure = self.failure.take().or(failure);
        is_whole
    }
}

fn write_error(error: io::Error) -> Error {
    let message = format!("the trace cannot be written: {error}");
    Error::new(ErrorKind::Store, message).with_source(error)
}
