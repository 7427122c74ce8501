//! A trace's writers.

use std::io::{self, Write};

use crate::error::{Error, ErrorKind, catch_panic};
use crate::json_lines::LineWriter;
use crate::trace::trace_line::LineRef;

/// A trace's writers, along with the first write error.
#[derive(Debug, Default)]
pub(super) struct TraceWriters {
    writers: Vec<LineWriter<Error>>,
    pub(super) failure: Option<Error>,
}

impl TraceWriters {
    /// Adds a writer and writes all lines so far to it.
    pub(super) fn add(&mut self, out: Box<dyn Write + Send>, so_far: &[LineRef<'_>]) {
        let mut out = LineWriter::new(out, write_error);
        if self.write_lines_to(&mut out, so_far) {
            self.writers.push(out);
        }
    }

    /// Writes lines to all writers. Writers that fail are removed.
    pub(super) fn write_lines(&mut self, lines: &[LineRef<'_>]) {
        if lines.is_empty() {
            return;
        }
        for mut out in std::mem::take(&mut self.writers) {
            if self.write_lines_to(&mut out, lines) {
                self.writers.push(out);
            }
        }
    }

    /// Writes the lines, and returns whether all writes succeeded.
    fn write_lines_to(&mut self, out: &mut LineWriter<Error>, lines: &[LineRef<'_>]) -> bool {
        let written = catch_panic(|| {
            for line in lines {
                out.append(line);
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
