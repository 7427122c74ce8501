//! Reads traces that were written as JSON lines.

use std::error::Error as StdError;
use std::io::BufRead;

use crate::error::{Error, ErrorKind};
use crate::json_lines;
use crate::trace::TraceLine;

/// Reads a trace that was [written](super::Trace::write_to) as JSON lines. Each line contains a
/// JSON object that represents one step or the end of one iteration. Empty lines, lines of an
/// unknown type and unknown fields are ignored.
///
/// ```
/// use turnstream::trace::{TraceLine, read_jsonl};
///
/// let lines = r#"{"step":1,"action":{"type":"say","text":"hm"}}
/// {"type":"iteration","turn":1,"continued":"stop_hook_blocking"}
/// {"step":2}"#;
/// let mut lines = read_jsonl(lines.as_bytes());
/// assert_eq!(lines.next().unwrap()?.into_step().unwrap().step, 1);
/// let TraceLine::Iteration(iteration) = lines.next().unwrap()? else { panic!() };
/// assert_eq!(iteration.turn, 1);
/// let error = lines.next().unwrap().unwrap_err();
/// assert!(error.to_string().contains("line 3"), "{error}");
/// # Ok::<(), turnstream::Error>(())
/// ```
///
/// # Errors
///
/// Yields a [`Store`](ErrorKind::Store) error with the line number if a line is not a valid step or
/// iteration, or if reading fails. After reading has failed, the iterator ends.
pub fn read_jsonl(from: impl BufRead) -> impl Iterator<Item = Result<TraceLine, Error>> {
    json_lines::read_lines(from).filter_map(|read| match read {
        Ok(line) if line.is_blank() => None,
        Ok(line) => TraceLine::parse(&line.text)
            .map_err(|cause| read_error(line.number, "is not a step", cause))
            .transpose(),
        Err((number, cause)) => Some(Err(read_error(number, "cannot be read", cause))),
    })
}

fn read_error(line: usize, what: &str, cause: impl StdError + Send + Sync + 'static) -> Error {
    let message = format!("line {line} of the trace {what}: {cause}");
    Error::new(ErrorKind::Store, message).with_source(cause)
}
