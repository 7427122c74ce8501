//! An entry as text.

use super::checks::store_error;
use crate::error::Error;
use crate::session::Entry;

/// Writes an entry as one line of JSON, without its end.
///
/// # Errors
///
/// If it could not be read again, as what is nested more deeply than `serde_json` reads: it is better
/// refused than lost.
pub(super) fn to_json_line(entry: &Entry) -> Result<String, Error> {
    let line = serde_json::to_string(entry);
    line.and_then(|line| serde_json::from_str::<Entry>(&line).map(|_| line))
        .map_err(|error| store_error("an entry cannot be kept as JSON", error))
}
