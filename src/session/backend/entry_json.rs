//! Serializes entries to JSON.

use crate::error::Error;
use crate::session::Entry;
use crate::session::backend::checks::store_error;

/// Serializes an entry to a single line of JSON, without a line break at the end. To read the
/// entry, parse the line with [`serde_json::from_str`].
///
/// # Errors
///
/// Returns a [`Store`](crate::ErrorKind::Store) error if the line cannot be parsed as an entry, for
/// example because its JSON is nested more deeply than `serde_json` allows. An entry that cannot be
/// parsed must not be written.
pub fn entry_to_json_line(entry: &Entry) -> Result<String, Error> {
    let line = serde_json::to_string(entry);
    line.and_then(|line| serde_json::from_str::<Entry>(&line).map(|_| line))
        .map_err(|error| store_error("an entry cannot be stored as JSON", error))
}
