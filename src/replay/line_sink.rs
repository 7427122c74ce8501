//! The output of a recording.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

use crate::error::{Error, ErrorKind};
use crate::json_lines::LineWriter;
use crate::lock::lock_ignoring_poison;
use crate::replay::masker::Masker;
use crate::replay::recording_line::RecordingLine;

/// Writes the lines of a recording. After the first write error, nothing more is written.
pub(super) struct LineSink(Mutex<LineWriter<Error>>);

impl LineSink {
    /// Creates a sink that writes to a file. An existing file is overwritten.
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        let file = File::create(path).map_err(|error| {
            let message = format!("the recording {} cannot be created: {error}", path.display());
            Error::new(ErrorKind::Store, message).with_source(error)
        })?;
        Ok(Self::new(file))
    }

    pub(super) fn new(out: impl Write + Send + 'static) -> Self {
        Self(Mutex::new(LineWriter::new(out, write_error)))
    }

    /// Masks the secrets in a line, and buffers the line.
    pub(super) fn append(&self, line: &RecordingLine<'_>, masker: &Masker) {
        let mut writer = lock_ignoring_poison(&self.0);
        match masker.is_empty() {
            true => writer.append(line),
            false => {
                let json = serde_json::to_string(line);
                writer.append_json(json.map(|json| masker.mask_json(json)));
            }
        }
    }

    /// Writes the buffered lines to the output.
    pub(super) fn write(&self) {
        lock_ignoring_poison(&self.0).write();
    }

    /// Writes the buffered lines to the output, and flushes the output.
    pub(super) fn flush(&self) {
        lock_ignoring_poison(&self.0).flush();
    }

    /// Returns the first write error, if any.
    pub(super) fn failure(&self) -> Option<Error> {
        lock_ignoring_poison(&self.0).failure().cloned()
    }
}

fn write_error(error: io::Error) -> Error {
    let message = format!("the recording cannot be written: {error}");
    Error::new(ErrorKind::Store, message).with_source(error)
}
