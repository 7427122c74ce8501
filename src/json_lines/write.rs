//! Writes JSON lines.

use std::fmt;
use std::io::{self, Write};

use serde::Serialize;

/// The number of buffered bytes at which the buffered lines are passed to the writer.
const MAX_BUFFERED_BYTES: usize = 16 << 10;

/// Buffers lines and passes them to a writer. After the first error, a `LineWriter` stores the
/// error and writes nothing more.
pub(crate) struct LineWriter<F> {
    out: Box<dyn Write + Send>,
    buffer: Vec<u8>,
    /// Whether lines are accepted. This field is `false` after an error, and also while the writer
    /// is being called, since the writer may panic.
    is_open: bool,
    failure: Option<F>,
    make_failure: fn(io::Error) -> F,
}

impl<F> LineWriter<F> {
    /// Creates a line writer that converts I/O errors with `to_failure`.
    pub(crate) fn new(out: impl Write + Send + 'static, to_failure: fn(io::Error) -> F) -> Self {
        let (out, lines) = (Box::new(out), Vec::new());
        Self { out, buffer: lines, is_open: true, failure: None, make_failure: to_failure }
    }

    /// Appends a line to the buffer. The line is written by the next call to
    /// [`write`](Self::write), or when the buffer is full.
    pub(crate) fn append(&mut self, line: &impl Serialize) {
        self.append_with(|lines| push_json_line(lines, line));
    }

    /// Appends an object that the caller has serialized. If `json` is an error, stores the error
    /// instead.
    pub(crate) fn append_json(&mut self, json: serde_json::Result<String>) {
        self.append_with(|lines| {
            lines.extend(json?.as_bytes());
            lines.push(b'\n');
            Ok(())
        });
    }

    fn append_with(&mut self, push: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>) {
        if !self.is_open {
            return;
        }
        if let Err(error) = push(&mut self.buffer) {
            self.write();
            self.try_io(|_, _| Err(error.into()));
        } else if self.buffer.len() >= MAX_BUFFERED_BYTES {
            self.write();
        }
    }

    /// Passes the buffered lines to the writer.
    pub(crate) fn write(&mut self) {
        if !self.buffer.is_empty() {
            self.try_io(|out, lines| out.write_all(lines));
            self.buffer.clear();
        }
    }

    /// Passes the buffered lines to the writer and flushes the writer.
    pub(crate) fn flush(&mut self) {
        self.write();
        self.try_io(|out, _| out.flush());
    }

    /// Returns the first error, if any.
    pub(crate) fn failure(&self) -> Option<&F> {
        self.failure.as_ref()
    }

    fn try_io(&mut self, act: impl FnOnce(&mut dyn Write, &[u8]) -> io::Result<()>) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        match act(&mut *self.out, &self.buffer) {
            Ok(()) => self.is_open = true,
            Err(error) => self.failure = Some((self.make_failure)(error)),
        }
    }
}

impl<F: fmt::Debug> fmt::Debug for LineWriter<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineWriter").field("failure", &self.failure).finish_non_exhaustive()
    }
}

/// Serializes a value and appends it to `text` as a line. Compact JSON contains no LF, because LFs
/// in strings are escaped as `\n`.
///
/// # Errors
///
/// Returns an error, and appends nothing, if the value cannot be serialized as JSON.
fn push_json_line(text: &mut Vec<u8>, line: &impl Serialize) -> serde_json::Result<()> {
    let before = text.len();
    let written = serde_json::to_writer(&mut *text, line);
    match written {
        Ok(()) => text.push(b'\n'),
        Err(_) => text.truncate(before),
    }
    written
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Stores each write, up to a total number of bytes.
    #[derive(Clone)]
    struct LimitedSink(Arc<Mutex<(usize, Vec<String>)>>);

    impl LimitedSink {
        fn new(sink: usize) -> (LineWriter<String>, Self) {
            let this = Self(Arc::new(Mutex::new((sink, Vec::new()))));
            (LineWriter::new(this.clone(), |error| error.to_string()), this)
        }

        fn writes(&self) -> Vec<String> {
            self.0.lock().unwrap().1.clone()
        }
    }

    impl Write for LimitedSink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (sink, writes) = &mut *self.0.lock().unwrap();
            let Some(left) = sink.checked_sub(bytes.len()) else {
                return Err(io::Error::other("the disk is full"));
            };
            *sink = left;
            writes.push(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_buffered_up_to_a_number_of_bytes() {
        let (mut lines, sink) = LimitedSink::new(usize::MAX);
        lines.append(&1);
        lines.append_json(Ok("[2]".to_owned()));
        assert!(sink.writes().is_empty());
        lines.write();
        lines.write();
        assert_eq!(sink.writes(), ["1\n[2]\n"]);
        let long = "x".repeat(MAX_BUFFERED_BYTES);
        lines.append(&long);
        assert_eq!(sink.writes()[1..], [format!("\"{long}\"\n")]);
    }

    #[test]
    fn after_the_first_failure_nothing_is_written() {
        let (mut lines, sink) = LimitedSink::new(3);
        lines.append(&1);
        lines.write();
        lines.append(&22);
        lines.write();
        assert_eq!(lines.failure().map(String::as_str), Some("the disk is full"));
        for _ in 0..3 {
            // The line would fit into the capacity.
            lines.append_json(Ok(String::new()));
            lines.flush();
        }
        assert_eq!(sink.writes(), ["1\n"]);
    }

    #[test]
    fn an_unserializable_value_is_a_failure_and_earlier_lines_are_written() {
        let (mut lines, sink) = LimitedSink::new(usize::MAX);
        lines.append(&1);
        lines.append(&std::collections::HashMap::from([([1], 1)]));
        lines.append(&2);
        lines.flush();
        assert!(lines.failure().is_some_and(|it| it.contains("key must be a string")));
        assert_eq!(sink.writes(), ["1\n"]);
    }

    #[test]
    fn a_writer_that_panicked_is_not_called_again() {
        struct PanickingWriter;
        impl Write for PanickingWriter {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                panic!("boom")
            }
            fn flush(&mut self) -> io::Result<()> {
                panic!("again")
            }
        }
        let mut lines = LineWriter::new(PanickingWriter, |error| error.to_string());
        lines.append(&1);
        let write = std::panic::AssertUnwindSafe(|| lines.write());
        assert!(std::panic::catch_unwind(write).is_err());
        lines.append(&2);
        lines.flush();
    }
}
