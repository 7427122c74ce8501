//! The entries of a log as they are written into a Redis stream.

use serde::Deserialize;
use turnstream::hub::LogContent;

/// The version of the marker's format. Readers reject later versions.
const VERSION: u32 = 1;

/// The marker for a run that was dropped, in the JSON format of the contents.
pub(crate) const DROPPED: &str = r#"{"v":1,"type":"dropped"}"#;

/// An entry in the Redis stream.
pub(crate) enum StreamEntry {
    Content(LogContent),
    /// The run was dropped before it ended.
    Dropped,
}

#[derive(Deserialize)]
struct Marker {
    v: u32,
    r#type: String,
}

/// Decodes an entry. Returns `None` if the entry was written by another program or by a later
/// version of this crate.
pub(crate) fn decode(json: &[u8]) -> Option<StreamEntry> {
    if let Ok(content) = serde_json::from_slice(json) {
        return Some(StreamEntry::Content(content));
    }
    let marker: Marker = serde_json::from_slice(json).ok()?;
    (marker.v <= VERSION && marker.r#type == "dropped").then_some(StreamEntry::Dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_of_a_dropped_run_is_read() {
        assert!(matches!(decode(DROPPED.as_bytes()), Some(StreamEntry::Dropped)));
        for other in ["", "{}", r#"{"v":2,"type":"dropped"}"#, r#"{"v":1,"type":"end"}"#] {
            assert!(!matches!(decode(other.as_bytes()), Some(StreamEntry::Dropped)), "{other}");
        }
    }
}
