//! Traces that were written.

use std::io::BufRead;

use crate::error::{Error, ErrorKind};
use crate::story::trace::TraceEvent;

/// Reads a trace that was [written](super::Trace::write_to), one JSON object a line. Empty lines
/// are passed over, and so are fields that are not known.
///
/// ```
/// use turnstream::story::trace::read_lines;
///
/// let lines = "{\"step\":1,\"action\":{\"type\":\"say\",\"text\":\"hm\"}}\n\n{\"step\":2}\n";
/// let mut events = read_lines(lines.as_bytes());
/// assert_eq!(events.next().unwrap()?.step, 1);
/// let error = events.next().unwrap().unwrap_err();
/// assert!(error.to_string().contains("line 3"), "{error}");
/// # Ok::<(), turnstream::Error>(())
/// ```
///
/// # Errors
///
/// [`Store`](ErrorKind::Store) with the number of the line: if it cannot be read, which is the last
/// thing that comes then, or is no step.
pub fn read_lines(from: impl BufRead) -> impl Iterator<Item = Result<TraceEvent, Error>> {
    let mut from = from;
    let mut number = 0_u64;
    let mut over = false;
    std::iter::from_fn(move || {
        while !over {
            number += 1;
            let mut line = Vec::new();
            let error = |what: &str| {
                Error::new(ErrorKind::Store, format!("line {number} of the trace {what}"))
            };
            match from.read_until(b'\n', &mut line) {
                Ok(0) => over = true,
                Ok(_) if line.iter().all(u8::is_ascii_whitespace) => {}
                Ok(_) => {
                    return Some(serde_json::from_slice(&line).map_err(|cause| {
                        error(&format!("is no step: {cause}")).with_source(cause)
                    }));
                }
                Err(cause) => {
                    over = true;
                    return Some(
                        Err(error(&format!("cannot be read: {cause}")).with_source(cause)),
                    );
                }
            }
        }
        None
    })
}
