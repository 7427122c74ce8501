//! The output of a recording.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

use serde_json::Value;

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
                let json = serde_json::to_string(line).map(without_logprobs);
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

/// Removes the log probabilities of turns: each token is a string of its own, so a secret that
/// several tokens make up would not be found.
fn without_logprobs(json: String) -> String {
    fn remove(value: &mut Value) {
        match value {
            Value::Array(list) => list.iter_mut().for_each(remove),
            Value::Object(map) => {
                if map.contains_key("stop_reason") {
                    map.shift_remove("logprobs");
                }
                map.values_mut().for_each(remove);
            }
            _ => {}
        }
    }
    if !json.contains("\"logprobs\":[") {
        return json;
    }
    let Ok(mut value) = serde_json::from_str(&json) else { return json };
    remove(&mut value);
    value.to_string()
}

fn write_error(error: io::Error) -> Error {
    let message = format!("the recording cannot be written: {error}");
    Error::new(ErrorKind::Store, message).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_log_probabilities_of_turns_are_removed() {
        let turn =
            r#"{"event":{"turn":{"items":[],"stop_reason":"stop","logprobs":[{"token":"hun"}]}}}"#;
        let expected = r#"{"event":{"turn":{"items":[],"stop_reason":"stop"}}}"#;
        assert_eq!(without_logprobs(turn.to_owned()), expected);
        for other in [r#"{"arguments":{"logprobs":[1]}}"#, expected, "not JSON \"logprobs\":["] {
            assert_eq!(without_logprobs(other.to_owned()), other);
        }
    }
}
