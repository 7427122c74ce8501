//! Serializes entries to JSON.

use super::checks::store_error;
use crate::error::Error;
use crate::session::Entry;

/// Serializes an entry to a single line of JSON, without a line break at the end.
///
/// # Errors
///
/// Returns an error if the line cannot be parsed as an entry, for example because its JSON is
/// nested more deeply than `serde_json` allows. An entry that cannot be parsed must not be written.
pub(super) fn to_json_line(entry: &Entry) -> Result<String, Error> {
    let line = serde_json::to_string(entry);
    line.and_then(|line| serde_json::from_str::<Entry>(&line).map(|_| line))
        .map_err(|error| store_error("an entry cannot be stored as JSON", error))
}
